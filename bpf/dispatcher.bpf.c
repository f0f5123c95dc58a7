// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The device's data plane in the kernel: a learning bridge whose Scotfree packets pass the device
 * functions on their way.
 *
 * Invariants: one switch maps every outcome of a device function to what happens with the frame; no frame
 * leaves by the port that it came in by, but as the acknowledgement made of its clone.
 */
#include "scot_bridge.h"
#include "scot_upcall.h"

#include "persist.bpf.c"

struct scot_shared scot_shared SEC(".data.shared");

/* By the port that requests come in by: that port, with the program that makes acknowledgements, and the
 * server's.
 */
struct scot_pair {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct bpf_devmap_val);
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, SCOT_PORTS_MAX);
	__type(key, __u32);
	__array(values, struct scot_pair);
} scot_pairs SEC(".maps");

static __always_inline int scot_acknowledge_and_forward(const struct scot_context *context)
{
	void *pair = bpf_map_lookup_elem(&scot_pairs, &context->ingress);

	return pair ? bpf_redirect_map(pair, 0, BPF_F_BROADCAST) : XDP_ABORTED;
}

/* The daemon must know the server's port before a request can be acknowledged at its own. */
static __always_inline bool scot_can_acknowledge(const struct scot_way *way)
{
	return way->ifindex != 0 && way->ifindex == scot_shared.server_ifindex;
}

static __always_inline int scot_on_packet(struct xdp_md *frame, struct scot_context *context,
					  const struct scot_way *way, struct scot_counters *counters)
{
	enum persist_outcome outcome = PERSIST_PASS_UP_REQUEST;

	counters->scotfree++;
	if (scot_can_acknowledge(way) || !scot_address_is(&context->destination, &scot_shared.server))
		outcome = persist_on_packet(frame, context, counters);
	scot_sample(frame, context, outcome, counters);
	switch (outcome) {
	case PERSIST_FORWARD:
		return scot_forward(way, counters);
	case PERSIST_TELL_AND_FORWARD:
		scot_tell(frame, context, counters);
		return scot_forward(way, counters);
	case PERSIST_ACKNOWLEDGE:
		counters->forwarded++;
		return scot_acknowledge_and_forward(context);
	case PERSIST_PASS_UP:
		scot_pass_up(frame, context, SCOT_UPCALL_FRAME, counters);
		return XDP_DROP;
	case PERSIST_PASS_UP_REQUEST:
		if (scot_pass_up(frame, context, SCOT_UPCALL_FRAME, counters))
			return XDP_DROP;
		persist_unadmitted(counters);
		return scot_forward(way, counters);
	case PERSIST_REFUSE:
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

/* ---- what leaves */

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

static __always_inline bool scot_write_udp(struct xdp_md *frame, const struct scot_context *context,
					   const struct persist_ack *ack)
{
	struct udphdr *udp = scot_at(frame, context->udp_at);
	struct persist_ack *packet = (void *)(udp + 1);
	__u16 bytes = sizeof(*udp) + sizeof(*packet);
	struct scot_pseudo_header pseudo = {
		.source = { context->source.ip[0], context->source.ip[1] },
		.destination = { context->destination.ip[0], context->destination.ip[1] },
		.bytes = bpf_htonl(bytes),
		.protocol = bpf_htonl(IPPROTO_UDP),
	};
	__be16 source;

	if ((void *)(packet + 1) > scot_data_end(frame))
		return false;
	*packet = *ack;
	source = udp->source;
	udp->source = udp->dest;
	udp->dest = source;
	udp->len = bpf_htons(bytes);
	udp->check = 0;
	udp->check = scot_udp_checksum(scot_sum(&pseudo, sizeof(pseudo)) + scot_sum(udp, sizeof(*udp)) +
				       scot_sum(ack, sizeof(*ack)));
	return true;
}

static __always_inline bool scot_turn_back(struct xdp_md *frame)
{
	struct scot_context context = {};
	struct persist_ack ack;
	struct ethhdr *ethernet;
	__u64 wanted, present;

	if (!scot_parse_link(frame, &context))
		return false;
	scot_parse_transport(frame, &context);
	if (!context.packet_at || !persist_make_ack(frame, &context, &ack))
		return false;
	wanted = context.packet_at + sizeof(ack);
	present = frame->data_end - frame->data;
	if (present > wanted && bpf_xdp_adjust_tail(frame, (int)(wanted - present)) != 0)
		return false;
	ethernet = scot_data(frame);
	if ((void *)(ethernet + 1) > scot_data_end(frame))
		return false;
	scot_swap_stations(ethernet);
	return scot_write_network(frame, &context, sizeof(struct udphdr) + sizeof(ack)) &&
	       scot_write_udp(frame, &context, &ack);
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
