// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The device's data plane in the kernel: a learning bridge whose Scotfree packets pass the device's
 * functions on their way.
 *
 * Invariants: one switch maps every verdict to what happens with the frame; no frame leaves by the port
 * that it came in by, but as an answer; only a read that has just become its session's next is answered
 * instead of going to the server.
 */
#include "scot_bridge.h"
#include "scot_function.h"
#include "scot_upcall.h"

/* The list: made from the folders of remedies and bpf/functions.order when this is compiled. It includes every
 * function and says SCOT_FUNCTIONS(each), which calls each(name, number) in their order, and, if one of them keeps
 * the places of sessions, SCOT_KEEPER(hook), which makes NAME_hook of it. SCOT_LISTENERS(each) is the same of those that
 * want to hear of what is acknowledged, SCOT_READERS(each) of those that know extensions of responses.
 */
#include "scot_functions.h"

struct scot_shared scot_shared SEC(".data.shared");

/* Which functions are on, by the bits of their numbers. Those that are off are taken out as this is loaded. */
const volatile __u32 scot_functions_on = ~0u;

/* By client's port and server: the client's port, with the program that makes acknowledgements, and the server's. */
struct scot_pair {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct bpf_devmap_val);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, SCOT_PORTS_MAX * SCOT_SERVERS_MAX);
	__type(key, __u32);
	__array(values, struct scot_pair);
} scot_pairs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scot_answer);
} answers SEC(".maps");

static __always_inline struct scot_answer *scot_answer_here(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&answers, &first);
}

static __always_inline bool scot_is_on(__u32 number)
{
	return scot_functions_on & 1u << number;
}

/* ---- an answer goes back */

static __always_inline void scot_swap_stations(struct ethhdr *ethernet)
{
	__u8 station[ETH_ALEN];

	__builtin_memcpy(station, ethernet->h_dest, ETH_ALEN);
	__builtin_memcpy(ethernet->h_dest, ethernet->h_source, ETH_ALEN);
	__builtin_memcpy(ethernet->h_source, station, ETH_ALEN);
}

static __always_inline bool scot_write_network(struct xdp_md *frame, const struct scot_context *context, __u16 bytes)
{
	if (context->ethertype == ETH_P_IP) {
		struct iphdr *ip = scot_at(frame, context->network_at);
		__be32 source;

		if ((void *)(ip + 1) > scot_data_end(frame))
			return false;
		source = ip->saddr;
		ip->saddr = ip->daddr;
		ip->daddr = source;
		ip->tos = 0;
		ip->ttl = IPDEFTTL;
		ip->tot_len = bpf_htons(sizeof(*ip) + bytes);
		ip->check = 0;
		ip->check = scot_fold(scot_sum(ip, sizeof(*ip)));
	} else {
		struct ipv6hdr *ip = scot_at(frame, context->network_at);
		struct in6_addr source;

		if ((void *)(ip + 1) > scot_data_end(frame))
			return false;
		source = ip->saddr;
		ip->saddr = ip->daddr;
		ip->daddr = source;
		ip->hop_limit = IPDEFTTL;
		ip->payload_len = bpf_htons(bytes);
	}
	return true;
}

/* What the UDP checksum covers beside the datagram. An IPv4 address in IPv6's form adds the same to it. */
struct scot_pseudo_header {
	__u64 source[2];
	__u64 destination[2];
	__be32 bytes;
	__be32 protocol;
};

/* Writes the answer over the packet, and adds it up. False: there is no room. */
static __always_inline bool scot_write_answer(struct xdp_md *frame, __u64 *to, const struct scot_answer *answer,
					      __u64 *sum)
{
	void *end = scot_data_end(frame);
	__u32 bytes = answer->bytes;

#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < SCOT_ANSWER_WORDS_MAX; i += SCOT_ANSWER_STEP) {
		const __u64 *from = &answer->packet[i];

		if (i * sizeof(*from) >= bytes)
			return true;
		if ((void *)(to + SCOT_ANSWER_STEP) > end)
			return false;
#pragma clang loop unroll(full)
		for (__u32 at = 0; at < SCOT_ANSWER_STEP; at++)
			to[at] = from[at];
		*sum += scot_sum(from, SCOT_ANSWER_STEP * sizeof(*from));
		to += SCOT_ANSWER_STEP;
	}
	return true;
}

static __always_inline bool scot_write_udp(struct xdp_md *frame, const struct scot_context *context,
					   const struct scot_answer *answer)
{
	struct udphdr *udp = scot_at(frame, context->udp_at);
	__u16 bytes = sizeof(*udp) + answer->bytes;
	struct scot_pseudo_header pseudo = {
		.source = { context->source.ip[0], context->source.ip[1] },
		.destination = { context->destination.ip[0], context->destination.ip[1] },
		.bytes = bpf_htonl(bytes),
		.protocol = bpf_htonl(IPPROTO_UDP),
	};
	__u64 sum = scot_sum(&pseudo, sizeof(pseudo));
	__be16 source;

	if ((void *)(udp + 1) > scot_data_end(frame) || !scot_write_answer(frame, (void *)(udp + 1), answer, &sum))
		return false;
	source = udp->source;
	udp->source = udp->dest;
	udp->dest = source;
	udp->len = bpf_htons(bytes);
	udp->check = 0;
	udp->check = scot_udp_checksum(sum + scot_sum(udp, sizeof(*udp)));
	return true;
}

/* What became of an answer. */
enum scot_made {
	SCOT_MADE_NOT,  /* the frame is what it was */
	SCOT_MADE,      /* the frame is the answer */
	SCOT_MADE_HALF, /* the frame is nothing any more */
};

#define SCOT_HEADERS_BYTES_MAX 72 /* of Ethernet with a tag, IPv6 and UDP, and some */

/* Makes a frame so long. Drivers that leave no room behind a frame leave some before it: then its headers go there. */
static __always_inline enum scot_made scot_make_room(struct xdp_md *frame, const struct scot_context *context,
						     __u64 wanted)
{
	__u64 present = frame->data_end - frame->data;
	__u8 headers[SCOT_HEADERS_BYTES_MAX];
	__u64 bytes = context->packet_at;
	__u32 missing = wanted - present;

	if (present == wanted || bpf_xdp_adjust_tail(frame, (int)missing) == 0)
		return SCOT_MADE;
	if (present > wanted || !scot_bound(&bytes, sizeof(headers)) ||
	    bpf_xdp_load_bytes(frame, 0, headers, bytes) != 0 || bpf_xdp_adjust_head(frame, -(int)missing) != 0)
		return SCOT_MADE_NOT;
	return bpf_xdp_store_bytes(frame, 0, headers, bytes) == 0 ? SCOT_MADE : SCOT_MADE_HALF;
}

/* Makes the answer of the frame with its request. A function of its own, for the verifier and for the stack. */
__noinline int scot_turn_round(struct xdp_md *frame, const struct scot_context *context,
			       const struct scot_answer *answer)
{
	struct ethhdr *ethernet;
	enum scot_made made;
	__u32 bytes, spare;

	if (!context || !answer || answer->bytes > sizeof(answer->packet))
		return SCOT_MADE_NOT;
	bytes = answer->bytes;
	// It is written in whole steps; what the last has too much goes again.
	spare = -bytes % (SCOT_ANSWER_STEP * sizeof(__u64));
	made = scot_make_room(frame, context, context->packet_at + (__u64)bytes + spare);
	if (made != SCOT_MADE)
		return made;
	ethernet = scot_data(frame);
	if ((void *)(ethernet + 1) > scot_data_end(frame))
		return SCOT_MADE_HALF;
	scot_swap_stations(ethernet);
	if (!scot_write_network(frame, context, sizeof(struct udphdr) + bytes) ||
	    !scot_write_udp(frame, context, answer) || (spare && bpf_xdp_adjust_tail(frame, -(int)spare) != 0))
		return SCOT_MADE_HALF;
	return SCOT_MADE;
}

/* Makes the answer of the function with this number. */
static __always_inline int scot_make_answer(struct xdp_md *frame, const struct scot_context *context, __u32 by)
{
	struct scot_answer *answer = scot_answer_here();
	int made = 0;

	if (!answer)
		return SCOT_MADE_NOT;
#define SCOT_MAKE_ANSWER(name, number)                                          \
	if (scot_is_on(number) && by == (number))                               \
		made = name##_make_answer(frame, context, answer);
	SCOT_FUNCTIONS(SCOT_MAKE_ANSWER)
	return made ? scot_turn_round(frame, context, answer) : SCOT_MADE_NOT;
}

/* ---- packets of Scotfree's */

/* What all functions together made of a packet. */
struct scot_outcome {
	enum scot_verdict verdict;
	__u32 by; /* the function that said it */
};

/* Only a read that has just become its session's next is answered here, while the device may speak for the server: any
 * other request has gone on before, or its answer is the server's to give.
 */
static __always_inline bool scot_may_answer(struct xdp_md *frame, const struct scot_context *context)
{
	const struct scot_session *session;
	const struct scot_header *header;

	if (context->direction != SCOT_TO_SERVER || context->kind != SCOT_KIND_READ ||
	    context->place != SCOT_PLACE_NEXT || context->now >= scot_server(context->server)->lease_until)
		return false;
	session = scot_session_by_index(context->session);
	header = scot_at(frame, context->packet_at);
	if (!session || (void *)(header + 1) > scot_data_end(frame))
		return false;
	return !session->closing && !(header->flags & SCOT_FLAG_SKIP);
}

/* Asks the functions in their order. */
static __always_inline void scot_ask(struct xdp_md *frame, struct scot_context *context, struct scot_outcome *outcome)
{
#define SCOT_ASK(name, number)                                                                          \
	if (scot_is_on(number) && outcome->verdict == SCOT_NEXT) {                                      \
		outcome->verdict = name##_on_packet(frame, context);                                    \
		outcome->by = (number);                                                                 \
		if (outcome->verdict == SCOT_ANSWER && !scot_may_answer(frame, context))                     \
			outcome->verdict = SCOT_NEXT;                                                   \
	}
	SCOT_FUNCTIONS(SCOT_ASK)
}

#ifdef SCOT_KEEPER

static __always_inline void scot_expect(const struct scot_session *session, __u64 seq_num)
{
	if (scot_is_on(SCOT_KEEPER_NUMBER))
		SCOT_KEEPER(expect)(session, seq_num);
}

static __always_inline enum scot_verdict scot_take_place(struct xdp_md *frame, struct scot_context *context,
							 struct scot_session *session,
							 const struct scot_header *header,
							 struct scot_counters *counters)
{
	if (!scot_is_on(SCOT_KEEPER_NUMBER))
		return SCOT_PASS_UP_REQUEST;
	return SCOT_KEEPER(take_place)(frame, context, session, header, counters);
}

#else

static __always_inline void scot_expect(const struct scot_session *session, __u64 seq_num)
{
}

/* Without a keeper of places all requests are the daemon's. */
static __always_inline enum scot_verdict scot_take_place(struct xdp_md *frame, struct scot_context *context,
							 struct scot_session *session,
							 const struct scot_header *header,
							 struct scot_counters *counters)
{
	return SCOT_PASS_UP_REQUEST;
}

#endif

static __always_inline enum scot_verdict scot_bad(struct scot_counters *counters, enum scot_refusal reason)
{
	counters->requests++;
	counters->bad++;
	return scot_refuse(counters, reason);
}

/* A request is its session's, authentic, and takes its place before any function sees it, or goes on unstamped without
 * one. Not NEXT: no function sees it.
 */
static __always_inline enum scot_verdict scot_admit(struct xdp_md *frame, struct scot_context *context,
						    const struct scot_header *header, struct scot_counters *counters)
{
	struct scot_session *session = scot_session(context->server, header->session);
	__u64 id = header->session, seq_num = header->seq_num;
	enum scot_verdict verdict;

	if (!session)
		return scot_unadmitted(counters);
	if (header->fragment_count != 1)
		return SCOT_PASS_UP_REQUEST;
	scot_expect(session, seq_num);
	if (!scot_is_authentic(frame, context, sizeof(*header) + sizeof(struct scot_stamp),
			       &session->client_to_server))
		return scot_bad(counters, SCOT_REFUSAL_BAD_MAC);
	if (scot_is_elsewhere(session, context))
		return scot_bad(counters, SCOT_REFUSAL_ELSEWHERE);
	if (session->client_ifindex == 0)
		return SCOT_PASS_UP_REQUEST;
	context->session = session->index;
	context->pair = session->client_port * SCOT_SERVERS_MAX + context->server;
	verdict = scot_take_place(frame, context, session, header, counters);
	if (!scot_shared.head || context->stamp.kind == SCOT_STAMP_KIND_NONE)
		return verdict;
	context->stamp.mac = scot_stamp_mac(&context->stamp, id, seq_num);
	return scot_write_stamp(frame, context) ? verdict : SCOT_REFUSE;
}

/* Whether the daemon knows behind which port the server lives that a frame goes to: before it does, nothing can be
 * acknowledged at its own.
 */
static __always_inline bool scot_knows_way(const struct scot_way *way, __u32 server)
{
	return way->ifindex != 0 && way->ifindex == scot_server(server)->ifindex;
}

/* What can be said of a packet before it is looked into. */
static __always_inline enum scot_verdict scot_refuse_short(struct xdp_md *frame, const struct scot_context *context,
							   const struct scot_header *header,
							   struct scot_counters *counters)
{
	if (context->packet_bytes < sizeof(*header) || (void *)(header + 1) > scot_data_end(frame))
		return scot_refuse(counters, SCOT_REFUSAL_TRUNCATED);
	if (!scot_frame_holds(frame, context) || scot_address_is(&context->destination, &scot_shared.control))
		return SCOT_PASS_UP;
	return SCOT_NEXT;
}

/* Whether a response's extensions are those of a function whose half in the daemon waits for none of them. */
static __always_inline bool scot_is_needless(struct xdp_md *frame, const struct scot_context *context)
{
	bool is_needless = false;

#define SCOT_ASK_WHETHER_NEEDED(name, number)                                           \
	if (scot_is_on(number) && !is_needless)                                         \
		is_needless = name##_has_no_need_of(frame, context);
	SCOT_READERS(SCOT_ASK_WHETHER_NEEDED)
	return is_needless;
}

static __always_inline void scot_decide(struct xdp_md *frame, struct scot_context *context, const struct scot_way *way,
					struct scot_counters *counters, struct scot_outcome *outcome)
{
	__u32 from = scot_server_at(&context->source), to = scot_server_at(&context->destination);
	struct scot_header *header = scot_at(frame, context->packet_at);
	enum scot_structure structure;

	outcome->verdict = SCOT_PASS_UP_REQUEST;
	if (to != SCOT_SERVER_NONE && !scot_knows_way(way, to))
		return;
	outcome->verdict = scot_refuse_short(frame, context, header, counters);
	if (outcome->verdict != SCOT_NEXT)
		return;
	structure = scot_check(frame, context, header, counters);
	context->kind = header->kind;
	context->asked = header->durability_asked;
	if (from != SCOT_SERVER_NONE) {
		context->direction = SCOT_FROM_SERVER;
		context->server = from;
		if (structure == SCOT_EXTENDED && scot_is_needless(frame, context))
			structure = SCOT_WHOLE;
	}
	if (structure != SCOT_WHOLE) {
		outcome->verdict = structure == SCOT_DAMAGED ? SCOT_REFUSE : SCOT_PASS_UP;
		return;
	}
	if (from == SCOT_SERVER_NONE && to != SCOT_SERVER_NONE && scot_is_request(context->kind)) {
		header = scot_at(frame, context->packet_at);
		if ((void *)(header + 1) > scot_data_end(frame))
			return;
		context->direction = SCOT_TO_SERVER;
		context->server = to;
		outcome->verdict = scot_admit(frame, context, header, counters);
	}
	scot_ask(frame, context, outcome);
}

/* What is acknowledged can be answered with: those that want to hear of it, which the list names, do. */
static __always_inline void scot_say_acknowledged(struct xdp_md *frame, const struct scot_context *context)
{
#define SCOT_SAY_ACKNOWLEDGED(name, number)             \
	if (scot_is_on(number))                         \
		name##_on_acknowledged(frame, context);
	SCOT_LISTENERS(SCOT_SAY_ACKNOWLEDGED)
}

static __always_inline int scot_answer_and_forward(const struct scot_context *context)
{
	__u32 at = context->pair;
	void *pair = bpf_map_lookup_elem(&scot_pairs, &at);

	return pair ? bpf_redirect_map(pair, 0, BPF_F_BROADCAST) : XDP_ABORTED;
}

/* Where there is no room for the answer in its frame the request goes on: it has its place and its stamp. Who would have
 * answered it sees it once more.
 */
static __always_inline int scot_answer(struct xdp_md *frame, struct scot_context *context, const struct scot_way *way,
				       __u32 by, struct scot_counters *counters)
{
	int made = scot_make_answer(frame, context, by);

	if (made == SCOT_MADE) {
		counters->answered++;
		return bpf_redirect_map(&scot_ports, context->ingress, 0);
	}
	counters->unwritable++;
	if (made != SCOT_MADE_NOT)
		return XDP_DROP;
	context->unanswerable = 1;
#define SCOT_ASK_AGAIN(name, number)                    \
	if (scot_is_on(number) && by == (number))       \
		name##_on_packet(frame, context);
	SCOT_FUNCTIONS(SCOT_ASK_AGAIN)
	return scot_forward(way, counters);
}

static __always_inline int scot_on_packet(struct xdp_md *frame, struct scot_context *context,
					  const struct scot_way *way, struct scot_counters *counters)
{
	struct scot_outcome outcome = {};

	counters->scotfree++;
	scot_decide(frame, context, way, counters, &outcome);
	scot_sample(frame, context, outcome.verdict, counters);
	switch (outcome.verdict) {
	case SCOT_NEXT:
		return scot_forward(way, counters);
	case SCOT_TELL_AND_FORWARD:
		scot_tell(frame, context, counters);
		return scot_forward(way, counters);
	case SCOT_ANSWER_AND_FORWARD:
		counters->forwarded++;
		scot_say_acknowledged(frame, context);
		return scot_answer_and_forward(context);
	case SCOT_ANSWER:
		return scot_answer(frame, context, way, outcome.by, counters);
	case SCOT_PASS_UP:
		scot_pass_up(frame, context, SCOT_UPCALL_FRAME, counters);
		return XDP_DROP;
	case SCOT_PASS_UP_REQUEST:
		if (scot_pass_up(frame, context, SCOT_UPCALL_FRAME, counters))
			return XDP_DROP;
		scot_unadmitted(counters);
		return scot_forward(way, counters);
	case SCOT_REFUSE:
		return XDP_DROP;
	}
	return XDP_ABORTED;
}

SEC("xdp")
int scot_ingress(struct xdp_md *frame)
{
	struct scot_counters *counters = scot_counters_here();
	struct scot_context context = {};
	enum scot_transport transport;
	struct scot_way way;

	if (!counters)
		return XDP_ABORTED;
	context.ingress = frame->ingress_ifindex;
	context.now = bpf_ktime_get_ns();
	counters->frames++;
	if (!scot_parse_link(frame, &context)) {
		counters->malformed++;
		return XDP_DROP;
	}
	way = scot_bridge(frame, &context, counters);
	if (way.drop)
		return XDP_DROP;
	if (scot_tells_addresses(frame, &context))
		return scot_on_address(frame, &context, &way, counters);
	transport = scot_parse_transport(frame, &context);
	if (context.packet_at)
		return scot_on_packet(frame, &context, &way, counters);
	if (transport == SCOT_TRANSPORT_UNREADABLE && scot_may_be_ours(frame, &context)) {
		scot_pass_up(frame, &context, SCOT_UPCALL_FRAME, counters);
		return XDP_DROP;
	}
	return scot_forward(&way, counters);
}

/* ---- what leaves: the acknowledgement is made of a clone of its request */

static __always_inline bool scot_turn_back(struct xdp_md *frame)
{
	struct scot_answer *answer = scot_answer_here();
	struct scot_context context = {};
	int made = 0;

	if (!answer || !scot_parse_link(frame, &context))
		return false;
	scot_parse_transport(frame, &context);
	if (!context.packet_at)
		return false;
	context.server = scot_server_at(&context.destination);
#define SCOT_ASK_ANSWER(name, number)                              \
	if (scot_is_on(number) && !made)                           \
		made = name##_make_answer(frame, &context, answer);
	SCOT_FUNCTIONS(SCOT_ASK_ANSWER)
	return made && scot_turn_round(frame, &context, answer) == SCOT_MADE;
}

static __always_inline int scot_leave(struct xdp_md *frame)
{
	struct scot_counters *counters;

	if (scot_turn_back(frame))
		return XDP_PASS;
	counters = scot_counters_here();
	if (counters)
		counters->unwritable++;
	return XDP_DROP;
}

/* Runs as a request leaves, at either port. */
SEC("xdp/devmap")
int scot_egress(struct xdp_md *frame)
{
	return frame->egress_ifindex == frame->ingress_ifindex ? scot_leave(frame) : XDP_PASS;
}

/* The same where tests can run it: the kernel runs no program of a device map by itself. */
SEC("?xdp")
int scot_egress_alone(struct xdp_md *frame)
{
	return scot_leave(frame);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
