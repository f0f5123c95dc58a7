// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The persist device's part in the kernel: what `remedy_persist::Device` does with the most frequent
 * packets, or a word that the daemon shall do it. Included by the dispatcher.
 *
 * Invariants: an update is acknowledged only when its slot is VALID, under a lease, at a durability that
 * its slot has reached (rule 4); only the next seq_num of a session is admitted (rule 1); nothing of a
 * session that the daemon holds is touched.
 */
#include "scot_counters.h"
#include "scot_packet.h"
#include "scot_siphash.h"

#define PERSIST_MAC_OFFSET __builtin_offsetof(struct scot_header, mac)
#define PERSIST_STAMP_BODY_BYTES __builtin_offsetof(struct scot_stamp, mac)
#define PERSIST_PLACE_MAX (~0ULL - 1) /* places in an order are smaller */
#define PERSIST_HINTS 64
#define PERSIST_LINES_FETCHED 4 /* a slot's own fields, its header, the beginning of its payload */
#define PERSIST_WORDS_MAX ((SCOT_PACKET_BYTES_MAX - sizeof(struct scot_header)) / 8 + 1)

_Static_assert(SCOT_PACKET_BYTES_MAX < 2048, "an offset into a packet is masked with 2047");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SCOT_SESSIONS_MAX);
	__type(key, __u64);
	__type(value, __u32);
} scot_session_index SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SCOT_SESSIONS_MAX);
	__type(key, __u32);
	__type(value, struct scot_session);
} scot_sessions SEC(".maps");

/* The log. How many slots there are, the daemon says before it loads. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scot_slot);
} scot_slots SEC(".maps");

/* Where the sessions of the requests lie that were acknowledged last, by their seq_num: the acknowledgements are made a
 * moment later on the same processor. An entry is never more than a hint.
 */
struct persist_hints {
	__u32 session[PERSIST_HINTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct persist_hints);
} persist_hints SEC(".maps");

/* What the dispatcher makes of a packet. */
enum persist_outcome {
	PERSIST_FORWARD,            /* along its way */
	PERSIST_ACKNOWLEDGE,        /* along its way, and the acknowledgement back */
	PERSIST_PASS_UP,            /* the daemon's */
	PERSIST_PASS_UP_REQUEST,    /* the daemon's; unstamped along its way if that is not possible */
	PERSIST_TELL_AND_FORWARD,   /* along its way; the daemon has a disk write to do */
	PERSIST_REFUSE,             /* nowhere; it is counted */
};

static __always_inline struct scot_session *persist_session(__u64 id)
{
	__u32 *index = bpf_map_lookup_elem(&scot_session_index, &id);

	return index ? bpf_map_lookup_elem(&scot_sessions, index) : NULL;
}

static __always_inline struct persist_hints *persist_hints_here(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&persist_hints, &first);
}

static __always_inline void persist_leave_hint(const struct scot_session *session, __u64 seq_num)
{
	struct persist_hints *hints = persist_hints_here();

	if (hints)
		hints->session[seq_num % PERSIST_HINTS] = session->index;
}

/* The session of a request that may have left a hint. */
static __always_inline struct scot_session *persist_session_by_hint(__u64 id, __u64 seq_num)
{
	struct persist_hints *hints = persist_hints_here();
	struct scot_session *session = NULL;

	if (hints)
		session = bpf_map_lookup_elem(&scot_sessions, &hints->session[seq_num % PERSIST_HINTS]);
	return session && session->id == id ? session : persist_session(id);
}

static __always_inline struct scot_slot *persist_slot(const struct scot_session *session, __u64 seq_num)
{
	__u32 window = session->window;
	__u32 place = session->slot_first;

	if (window == 0)
		return NULL;
	place += seq_num % window;
	return bpf_map_lookup_elem(&scot_slots, &place);
}

/* Begins to fetch what of a slot will be written, which was last used a window of requests ago: the processor waits
 * for it while it makes a MAC and not under the session's lock.
 */
static __always_inline void persist_fetch(const struct scot_slot *slot)
{
	const volatile __u64 *words = (const volatile void *)slot;

#pragma clang loop unroll(full)
	for (__u32 line = 0; line < PERSIST_LINES_FETCHED; line++)
		(void)words[line * 8];
}

static __always_inline enum persist_outcome persist_refuse(struct scot_counters *counters, enum scot_refusal reason)
{
	counters->refused[reason]++;
	return PERSIST_REFUSE;
}

/* ---- structure, as `Packet::parse` checks it */

static __always_inline bool persist_is_request(__u8 kind)
{
	return kind == SCOT_KIND_UPDATE || kind == SCOT_KIND_READ || kind == SCOT_KIND_BYPASS;
}

static __always_inline bool persist_header_is_valid(const struct scot_header *header)
{
	return header->durability_asked <= SCOT_DURABILITY_RAM_AND_DISK &&
	       header->durability_granted <= SCOT_DURABILITY_RAM_AND_DISK &&
	       (header->flags & ~SCOT_FLAGS_ALL) == 0 && header->fragment_index < header->fragment_count &&
	       header->seq_num < PERSIST_PLACE_MAX && header->completed < PERSIST_PLACE_MAX &&
	       (!persist_is_request(header->kind) || header->seq_num > 0);
}

static __always_inline bool persist_stamp_is_valid(const struct scot_stamp *stamp)
{
	if (stamp->kind > SCOT_STAMP_KIND_BARRIER || stamp->zero[0] != 0)
		return false;
	if (stamp->kind == SCOT_STAMP_KIND_NONE)
		return stamp->device == 0 && stamp->boot_epoch == 0 && stamp->number == 0 &&
		       stamp->previous_write == 0 && stamp->mac == 0;
	return stamp->number < PERSIST_PLACE_MAX && stamp->previous_write < PERSIST_PLACE_MAX;
}

enum persist_structure {
	PERSIST_WHOLE,      /* as it must be */
	PERSIST_DAMAGED,    /* counted, to be refused */
	PERSIST_UNEXAMINED, /* of a kind that is left to the daemon */
};

/* The tail of the kinds that are only passed on. */
static __always_inline enum persist_structure persist_check_tail(struct xdp_md *frame,
								 const struct scot_header *header)
{
	const void *tail = header + 1;
	const void *end = scot_data_end(frame);

	switch (header->kind) {
	case SCOT_KIND_UPDATE:
	case SCOT_KIND_READ:
	case SCOT_KIND_BYPASS:
	case SCOT_KIND_PERSIST_ACK: {
		const struct scot_stamp *stamp = tail;

		if ((void *)(stamp + 1) > end || !persist_stamp_is_valid(stamp))
			return PERSIST_DAMAGED;
		if (header->kind == SCOT_KIND_PERSIST_ACK && stamp->mac != 0)
			return PERSIST_DAMAGED;
		return PERSIST_WHOLE;
	}
	case SCOT_KIND_HEARTBEAT: {
		const struct scot_heartbeat *heartbeat = tail;

		if ((void *)(heartbeat + 1) > end)
			return PERSIST_DAMAGED;
		return heartbeat->highest < PERSIST_PLACE_MAX && heartbeat->stable < PERSIST_PLACE_MAX ?
			       PERSIST_WHOLE : PERSIST_DAMAGED;
	}
	case SCOT_KIND_RESPONSE: {
		const struct scot_response *response = tail;

		if ((void *)(response + 1) > end || response->received_by > 2)
			return PERSIST_DAMAGED;
		// Of a device: its functions' names are the daemon's to know.
		return response->answered_by || response->device || response->zero[0] || response->zero[1] ||
			       response->zero[2] || response->zero[3] ? PERSIST_UNEXAMINED : PERSIST_WHOLE;
	}
	case SCOT_KIND_SERVER_ACK:
	case SCOT_KIND_BUSY:
		return PERSIST_WHOLE;
	default:
		return PERSIST_UNEXAMINED;
	}
}

static __always_inline enum persist_structure persist_damaged(struct scot_counters *counters, enum scot_refusal reason)
{
	persist_refuse(counters, reason);
	return PERSIST_DAMAGED;
}

static __always_inline enum persist_structure persist_check(struct xdp_md *frame, const struct scot_context *context,
							    const struct scot_header *header,
							    struct scot_counters *counters)
{
	enum persist_structure structure;
	__u64 expected;
	int tail_bytes;

	if (header->version != SCOT_VERSION)
		return persist_damaged(counters, SCOT_REFUSAL_WRONG_VERSION);
	// Another family's, or with extensions.
	if (header->kind > SCOT_KIND_SESSION_LAST || header->extension_words != 0)
		return PERSIST_UNEXAMINED;
	tail_bytes = scot_tail_bytes(header->kind);
	if (tail_bytes < 0)
		return persist_damaged(counters, SCOT_REFUSAL_UNKNOWN_KIND);
	if (!persist_header_is_valid(header))
		return persist_damaged(counters, SCOT_REFUSAL_INVALID_FIELD);
	expected = sizeof(*header) + (__u64)tail_bytes + header->payload_bytes;
	if (expected > SCOT_PACKET_BYTES_MAX || context->packet_bytes > expected)
		return persist_damaged(counters, SCOT_REFUSAL_OVERSIZED);
	if (context->packet_bytes < expected)
		return persist_damaged(counters, SCOT_REFUSAL_TRUNCATED);
	structure = persist_check_tail(frame, header);
	return structure == PERSIST_DAMAGED ? persist_damaged(counters, SCOT_REFUSAL_INVALID_FIELD) : structure;
}

/* ---- authenticity (rule 14) */

/* A key, and the MAC that was made with it. */
struct persist_mac {
	struct scot_key key;
	__u64 mac;
};

/* The MAC that a packet should bear: over its header up to the MAC and over what lies from `body_at` on. Not 0 if
 * it could be made. A function of its own, which the verifier looks at once and not with every way that leads
 * to it.
 */
__noinline int persist_packet_mac(struct xdp_md *frame, __u32 packet_at, __u32 bytes, __u32 body_at,
				  struct persist_mac *made)
{
	void *packet = scot_at(frame, packet_at);
	void *end = scot_data_end(frame);
	__u64 body = body_at & 127;
	struct scot_sip sip;
	__u64 *word = packet;
	__u64 rest = 0;
	__u32 words;

	if (!made || bytes < body || bytes > SCOT_PACKET_BYTES_MAX || (void *)(word + 8) > end)
		return 0;
	scot_sip_start(&sip, &made->key);
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < PERSIST_MAC_OFFSET / 8; i++)
		scot_sip_word(&sip, word[i]);
	word = packet + body;
	words = (bytes - body) / 8;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < PERSIST_WORDS_MAX; i++) {
		if (i >= words || (void *)(word + 1) > end)
			break;
		scot_sip_word(&sip, *word);
		word++;
	}
	if (bytes % 8) {
		__u64 last_at = bytes - 8;
		__u64 *last;

		// The size was checked above; Linux 6.1's verifier has forgotten it here.
		asm volatile("%0 &= 2047" : "+r"(last_at));
		last = packet + last_at;
		if ((void *)(last + 1) > end)
			return 0;
		rest = *last >> (64 - bytes % 8 * 8);
	}
	made->mac = scot_sip_end(&sip, rest, PERSIST_MAC_OFFSET + bytes - body);
	return 1;
}

static __always_inline bool persist_is_authentic(struct xdp_md *frame, const struct scot_context *context,
						 __u32 body_at, const struct scot_key *key)
{
	struct persist_mac made = { .key = *key };
	struct scot_header *header;

	if (!persist_packet_mac(frame, context->packet_at, context->packet_bytes, body_at, &made))
		return false;
	header = scot_at(frame, context->packet_at);
	return (void *)(header + 1) <= scot_data_end(frame) && header->mac == made.mac;
}

static __always_inline __u64 persist_stamp_mac(const struct scot_stamp *stamp, __u64 session, __u64 seq_num)
{
	const __u64 *body = (const void *)stamp;
	struct scot_sip sip;

	scot_sip_start(&sip, &scot_shared.stamp_key);
	scot_sip_word(&sip, body[0]);
	scot_sip_word(&sip, body[1]);
	scot_sip_word(&sip, body[2]);
	scot_sip_word(&sip, session);
	scot_sip_word(&sip, seq_num);
	return scot_sip_end(&sip, 0, PERSIST_STAMP_BODY_BYTES + 16);
}

/* ---- requests (rules 1, 3 and 5) */

/* What of a request is needed under its session's lock. */
struct persist_request {
	__u64 session;
	__u64 seq_num;
	__u64 key_hash;
	__u64 now;
	__u8 kind;
	__u8 asked;
};

enum persist_admission {
	PERSIST_ADMIT_LOGGED,    /* the next, and its slot is the caller's to write */
	PERSIST_ADMIT_UNLOGGED,  /* the next */
	PERSIST_ADMIT_DUPLICATE, /* seen before; the stamp is known */
	PERSIST_ADMIT_FORGOTTEN, /* seen before; the stamp is forgotten */
	PERSIST_ADMIT_NOT,       /* the daemon's */
	PERSIST_ADMIT_UNSTAMPED, /* the head has not admitted it */
	PERSIST_ADMIT_GONE,      /* the session is gone */
};

struct persist_decision {
	enum persist_admission admission;
	struct scot_stamp stamp;
	bool acknowledge;
	bool without_lease;
};

static __always_inline bool persist_entry_is_live(const struct scot_session *session, const struct scot_slot *slot)
{
	return slot->state >= SCOT_SLOT_WRITING && slot->seq_num > session->stable;
}

static __always_inline bool persist_can_log(const struct scot_session *session, const struct scot_slot *slot,
					    const struct persist_request *request)
{
	return request->kind == SCOT_KIND_UPDATE && slot->state != SCOT_SLOT_WRITING && slot->writing == 0 &&
	       !persist_entry_is_live(session, slot) && !session->closing &&
	       request->asked != SCOT_DURABILITY_NONE &&
	       (scot_shared.media & request->asked) == request->asked;
}

/* Whether an entry at durability `ram` may be acknowledged now, under the session's lock. */
static __always_inline void persist_decide_ack(const struct scot_session *session, struct scot_slot *slot,
					       const struct persist_request *request,
					       struct persist_decision *decision)
{
	if (session->closing)
		return;
	if (request->now >= scot_shared.lease_until) {
		decision->without_lease = true;
		return;
	}
	slot->acknowledged = 1;
	decision->acknowledge = true;
}

static __always_inline void persist_fill_slot(const struct scot_session *session, struct scot_slot *slot,
					      const struct persist_request *request,
					      const struct persist_decision *decision, __u32 state)
{
	slot->state = state;
	slot->seq_num = request->seq_num;
	slot->logged = session->logged;
	slot->logged_at = request->now;
	slot->stamp = decision->stamp;
	slot->asked = request->asked;
	slot->persisted = SCOT_DURABILITY_NONE;
	slot->writing = state == SCOT_SLOT_WRITING ? request->asked & SCOT_DURABILITY_DISK : 0;
	slot->acknowledged = 0;
}

/* Whether an entry can be acknowledged again here: the acknowledgement is made of this packet, which must
 * be the one that was logged.
 */
static __always_inline bool persist_can_acknowledge_again(const struct scot_slot *slot,
							  const struct persist_request *request)
{
	return slot->state != SCOT_SLOT_DAEMON && slot->asked == SCOT_DURABILITY_RAM &&
	       request->kind == SCOT_KIND_UPDATE && request->key_hash == slot->header.key_hash;
}

static __always_inline void persist_admit_next(struct scot_session *session, struct scot_slot *slot,
					       const struct persist_request *request,
					       struct persist_decision *decision)
{
	struct scot_stamp *stamp = &decision->stamp;
	bool logs = persist_can_log(session, slot, request);

	stamp->kind = logs ? SCOT_STAMP_KIND_ORDER : SCOT_STAMP_KIND_BARRIER;
	stamp->device = scot_shared.device;
	stamp->boot_epoch = scot_shared.boot_epoch;
	stamp->number = logs ? __sync_fetch_and_add(&scot_shared.order_current, 1) + 1 : scot_shared.order_current;
	stamp->previous_write = session->last_write;
	session->next = request->seq_num + 1;
	if (request->kind != SCOT_KIND_READ)
		session->last_write = request->seq_num;
	session->logged += logs;
	decision->admission = logs ? PERSIST_ADMIT_LOGGED : PERSIST_ADMIT_UNLOGGED;
	// A slot that holds a live entry keeps it: the request is stamped anew if it comes again.
	if (!logs && (slot->state == SCOT_SLOT_WRITING || persist_entry_is_live(session, slot)))
		return;
	persist_fill_slot(session, slot, request, decision, logs ? SCOT_SLOT_WRITING : SCOT_SLOT_STAMPED);
	if (logs && request->asked == SCOT_DURABILITY_RAM)
		persist_decide_ack(session, slot, request, decision);
}

static __always_inline void persist_admit_again(struct scot_session *session, struct scot_slot *slot,
						const struct persist_request *request,
						struct persist_decision *decision)
{
	bool entry = slot->state >= SCOT_SLOT_WRITING;

	if (slot->seq_num != request->seq_num || slot->state == SCOT_SLOT_EMPTY) {
		decision->admission = PERSIST_ADMIT_FORGOTTEN;
		return;
	}
	if (entry && !persist_can_acknowledge_again(slot, request)) {
		decision->admission = PERSIST_ADMIT_NOT;
		return;
	}
	decision->admission = PERSIST_ADMIT_DUPLICATE;
	decision->stamp = slot->stamp;
	if (slot->state == SCOT_SLOT_VALID && slot->seq_num > session->stable)
		persist_decide_ack(session, slot, request, decision);
}

static __always_inline void persist_admit(struct scot_session *session, struct scot_slot *slot,
					  const struct persist_request *request, struct persist_decision *decision)
{
	decision->admission = PERSIST_ADMIT_NOT;
	bpf_spin_lock(&session->lock);
	if (session->id != request->session) {
		decision->admission = PERSIST_ADMIT_GONE;
	} else if (scot_shared.held[session->index & (SCOT_SESSIONS_MAX - 1)] == 0) {
		session->heard_at = request->now;
		session->confirmed = 1;
		if (request->seq_num < session->next)
			persist_admit_again(session, slot, request, decision);
		else if (scot_shared.accepted && request->seq_num == session->next)
			persist_admit_next(session, slot, request, decision);
	}
	bpf_spin_unlock(&session->lock);
}

/* Copies a request into its slot, which then is an entry. False: it could not be read, and there is none. */
static __always_inline bool persist_write(struct xdp_md *frame, const struct scot_context *context,
					  struct scot_slot *slot, const struct scot_stamp *stamp)
{
	__u32 payload_at = sizeof(struct scot_header) + sizeof(struct scot_stamp);
	__u64 payload_bytes = (__u64)context->packet_bytes - payload_at;
	__u32 at = context->packet_at;
	const struct scot_header *header = scot_at(frame, at);

	if ((void *)(header + 1) > scot_data_end(frame))
		return false;
	slot->header = *header;
	if (scot_bound(&payload_bytes, sizeof(slot->payload)) &&
	    bpf_xdp_load_bytes(frame, at + payload_at, slot->payload, payload_bytes) != 0)
		return false;
	slot->packet_bytes = context->packet_bytes;
	slot->stamp.mac = stamp->mac;
	slot->persisted = slot->asked & SCOT_DURABILITY_RAM;
	// A full barrier: who finds the entry VALID finds all of it.
	__sync_lock_test_and_set(&slot->state, SCOT_SLOT_VALID);
	return true;
}

/* Writes a stamp into its request. The UDP checksum is changed by what the stamp changes. */
static __always_inline bool persist_write_stamp(struct xdp_md *frame, const struct scot_context *context,
						struct scot_stamp *stamp)
{
	struct udphdr *udp = scot_at(frame, context->udp_at);
	struct scot_header *header = (void *)(udp + 1);
	struct scot_stamp *room = (void *)(header + 1);

	if ((void *)(room + 1) > scot_data_end(frame))
		return false;
	if (udp->check != 0) {
		__u64 sum = (__u16)~udp->check;

		sum += scot_sum(stamp, sizeof(*stamp)) + scot_sum_without(room, sizeof(*room));
		udp->check = scot_udp_checksum(sum);
	}
	*room = *stamp;
	return true;
}

static __always_inline void persist_count(struct scot_counters *counters, const struct persist_request *request,
					  const struct persist_decision *decision)
{
	bool logged = decision->admission == PERSIST_ADMIT_LOGGED;
	bool admitted = logged || decision->admission == PERSIST_ADMIT_UNLOGGED;
	bool update = request->kind == SCOT_KIND_UPDATE;

	counters->requests++;
	counters->admitted += admitted;
	counters->duplicate += !admitted;
	counters->admitted_updates += admitted && update;
	counters->logged += logged;
	counters->ungranted += admitted && update && !logged;
	counters->persist_acks += decision->acknowledge;
	counters->without_lease += decision->without_lease;
}

static __always_inline enum persist_outcome persist_unadmitted(struct scot_counters *counters)
{
	counters->requests++;
	counters->unadmitted++;
	return PERSIST_FORWARD;
}

/* How a request goes on that has been dealt with. */
static __always_inline enum persist_outcome persist_way_on(const struct scot_session *session,
							   const struct persist_request *request,
							   const struct persist_decision *decision)
{
	if (decision->acknowledge) {
		persist_leave_hint(session, request->seq_num);
		return PERSIST_ACKNOWLEDGE;
	}
	return decision->admission == PERSIST_ADMIT_LOGGED && request->asked & SCOT_DURABILITY_DISK ?
		       PERSIST_TELL_AND_FORWARD : PERSIST_FORWARD;
}

static __always_inline enum persist_outcome persist_carry_out(struct xdp_md *frame, const struct scot_context *context,
							      const struct scot_session *session,
							      struct scot_slot *slot,
							      const struct persist_request *request,
							      struct persist_decision *decision)
{
	struct scot_stamp *stamp = &decision->stamp;

	if (decision->admission == PERSIST_ADMIT_FORGOTTEN)
		return PERSIST_FORWARD;
	stamp->mac = persist_stamp_mac(stamp, request->session, request->seq_num);
	if (decision->admission == PERSIST_ADMIT_LOGGED && !persist_write(frame, context, slot, stamp))
		return PERSIST_REFUSE;
	if (!persist_write_stamp(frame, context, stamp))
		return PERSIST_REFUSE;
	return persist_way_on(session, request, decision);
}

/* ---- behind the head of a chain: what it has stamped is logged under its stamp (rule 13) */

static __always_inline void persist_follow_new(struct scot_session *session, struct scot_slot *slot,
					       const struct persist_request *request,
					       struct persist_decision *decision)
{
	bool logs = decision->stamp.kind == SCOT_STAMP_KIND_ORDER && persist_can_log(session, slot, request);
	bool late = request->seq_num < session->next;

	decision->admission = logs ? PERSIST_ADMIT_LOGGED : PERSIST_ADMIT_UNLOGGED;
	if (!late)
		session->next = request->seq_num + 1;
	if (session->last_write < decision->stamp.previous_write)
		session->last_write = decision->stamp.previous_write;
	if (request->kind != SCOT_KIND_READ && session->last_write < request->seq_num)
		session->last_write = request->seq_num;
	if (!logs)
		return;
	// Behind newer entries: until these are stable the running counts of slots say nothing.
	if (late && session->disorder_until < session->next - 1)
		session->disorder_until = session->next - 1;
	session->logged++;
	persist_fill_slot(session, slot, request, decision, SCOT_SLOT_WRITING);
	if (request->asked == SCOT_DURABILITY_RAM)
		persist_decide_ack(session, slot, request, decision);
}

static __always_inline void persist_follow_again(struct scot_session *session, struct scot_slot *slot,
						 const struct persist_request *request,
						 struct persist_decision *decision)
{
	bool here = slot->seq_num == request->seq_num && persist_entry_is_live(session, slot);

	decision->admission = PERSIST_ADMIT_DUPLICATE;
	if (!here)
		return;
	if (!persist_can_acknowledge_again(slot, request) || slot->stamp.mac != decision->stamp.mac)
		decision->admission = PERSIST_ADMIT_NOT;
	else if (slot->state == SCOT_SLOT_VALID)
		persist_decide_ack(session, slot, request, decision);
}

static __always_inline void persist_follow_admit(struct scot_session *session, struct scot_slot *slot,
						 const struct persist_request *request,
						 struct persist_decision *decision)
{
	decision->admission = PERSIST_ADMIT_NOT;
	bpf_spin_lock(&session->lock);
	if (session->id != request->session) {
		decision->admission = PERSIST_ADMIT_GONE;
	} else if (scot_shared.held[session->index & (SCOT_SESSIONS_MAX - 1)] == 0) {
		bool live = slot->seq_num == request->seq_num && persist_entry_is_live(session, slot);

		session->heard_at = request->now;
		session->confirmed = 1;
		if (decision->stamp.kind == SCOT_STAMP_KIND_NONE)
			decision->admission = PERSIST_ADMIT_UNSTAMPED;
		else if (live || request->seq_num <= session->stable)
			persist_follow_again(session, slot, request, decision);
		else
			persist_follow_new(session, slot, request, decision);
	}
	bpf_spin_unlock(&session->lock);
}

static __always_inline enum persist_outcome persist_follow(struct xdp_md *frame, const struct scot_context *context,
							   struct scot_session *session, struct scot_slot *slot,
							   const struct persist_request *request,
							   struct scot_counters *counters)
{
	struct persist_decision decision = {};
	struct scot_header *header = scot_at(frame, context->packet_at);
	struct scot_stamp *stamp = (void *)(header + 1);

	if ((void *)(stamp + 1) > scot_data_end(frame))
		return PERSIST_PASS_UP_REQUEST;
	decision.stamp = *stamp;
	// A forged stamp under an authentic packet, or a later incarnation of the head's: the daemon's to note.
	if (decision.stamp.kind != SCOT_STAMP_KIND_NONE &&
	    persist_stamp_mac(&decision.stamp, request->session, request->seq_num) != decision.stamp.mac)
		return PERSIST_PASS_UP_REQUEST;
	if (decision.stamp.boot_epoch > scot_shared.boot_seen)
		return PERSIST_PASS_UP_REQUEST;
	persist_follow_admit(session, slot, request, &decision);
	if (decision.admission == PERSIST_ADMIT_GONE || decision.admission == PERSIST_ADMIT_UNSTAMPED)
		return persist_unadmitted(counters);
	if (decision.admission == PERSIST_ADMIT_NOT)
		return PERSIST_PASS_UP_REQUEST;
	persist_count(counters, request, &decision);
	if (decision.admission == PERSIST_ADMIT_LOGGED && !persist_write(frame, context, slot, &decision.stamp))
		return PERSIST_REFUSE;
	return persist_way_on(session, request, &decision);
}

/* ---- requests, whichever part the device has */

/* Whether a request comes from another address than its session's client, or by another port. */
static __always_inline bool persist_is_elsewhere(const struct scot_session *session,
						 const struct scot_context *context)
{
	return !scot_address_is(&context->source, &session->client) ||
	       (session->client_ifindex != 0 && session->client_ifindex != context->ingress);
}

static __always_inline enum persist_outcome persist_on_request(struct xdp_md *frame, const struct scot_context *context,
							       const struct scot_header *header,
							       struct scot_counters *counters)
{
	struct persist_request request = {
		.session = header->session,
		.seq_num = header->seq_num,
		.key_hash = header->key_hash,
		.now = context->now,
		.kind = header->kind,
		.asked = header->durability_asked,
	};
	struct persist_decision decision = {};
	bool whole = header->fragment_count == 1;
	struct scot_session *session = persist_session(request.session);
	struct scot_slot *slot;

	if (!session)
		return persist_unadmitted(counters);
	if (!whole)
		return PERSIST_PASS_UP_REQUEST;
	slot = persist_slot(session, request.seq_num);
	if (slot)
		persist_fetch(slot);
	if (!persist_is_authentic(frame, context, sizeof(*header) + sizeof(struct scot_stamp),
				  &session->client_to_server)) {
		counters->requests++;
		counters->bad++;
		return persist_refuse(counters, SCOT_REFUSAL_BAD_MAC);
	}
	if (persist_is_elsewhere(session, context)) {
		counters->requests++;
		counters->bad++;
		return persist_refuse(counters, SCOT_REFUSAL_ELSEWHERE);
	}
	if (!slot || session->client_ifindex == 0)
		return PERSIST_PASS_UP_REQUEST;
	if (!scot_shared.head)
		return persist_follow(frame, context, session, slot, &request, counters);
	persist_admit(session, slot, &request, &decision);
	if (decision.admission == PERSIST_ADMIT_GONE)
		return persist_unadmitted(counters);
	if (decision.admission == PERSIST_ADMIT_NOT)
		return PERSIST_PASS_UP_REQUEST;
	persist_count(counters, &request, &decision);
	return persist_carry_out(frame, context, session, slot, &request, &decision);
}

/* ---- what the server says in passing (rules 6 and 12) */

/* Everything up to `stable` is stable. Entries are not touched one by one: they are live only above it. */
static __always_inline enum persist_outcome persist_free(struct scot_session *session, __u64 id, __u64 stable,
							 struct scot_counters *counters)
{
	struct scot_slot *slot = persist_slot(session, stable);
	enum persist_outcome outcome = PERSIST_PASS_UP;
	__u64 freed = 0;

	if (!slot)
		return PERSIST_PASS_UP;
	bpf_spin_lock(&session->lock);
	if (session->id != id || stable <= session->stable) {
		outcome = PERSIST_FORWARD;
	} else if (scot_shared.held[session->index & (SCOT_SESSIONS_MAX - 1)] == 0 && stable < session->next &&
		   stable > session->disorder_until && slot->seq_num == stable && slot->state != SCOT_SLOT_EMPTY) {
		freed = slot->logged - session->freed;
		session->freed = slot->logged;
		session->stable = stable;
		outcome = PERSIST_FORWARD;
	}
	bpf_spin_unlock(&session->lock);
	counters->freed += freed;
	return outcome;
}

static __always_inline enum persist_outcome persist_on_stable(struct xdp_md *frame, const struct scot_context *context,
							      const struct scot_header *header, __u64 stable,
							      struct scot_counters *counters)
{
	__u64 id = header->session;
	__u32 epoch = header->epoch;
	struct scot_session *session = persist_session(id);

	if (!session)
		return PERSIST_FORWARD;
	if (!persist_is_authentic(frame, context, sizeof(*header), &session->server_to_client))
		return persist_refuse(counters, SCOT_REFUSAL_BAD_MAC);
	if (epoch < scot_shared.server_epoch) {
		counters->past_epoch++;
		return PERSIST_FORWARD;
	}
	return persist_free(session, id, stable, counters);
}

static __always_inline enum persist_outcome persist_on_server_passing(struct xdp_md *frame,
								      const struct scot_context *context,
								      const struct scot_header *header,
								      struct scot_counters *counters)
{
	if (header->kind == SCOT_KIND_SERVER_ACK)
		return persist_on_stable(frame, context, header, header->seq_num, counters);
	if (header->kind == SCOT_KIND_HEARTBEAT) {
		const struct scot_heartbeat *heartbeat = (const void *)(header + 1);

		if ((void *)(heartbeat + 1) > scot_data_end(frame))
			return PERSIST_PASS_UP;
		return persist_on_stable(frame, context, header, heartbeat->stable, counters);
	}
	return PERSIST_FORWARD;
}

static __always_inline bool persist_frame_holds(struct xdp_md *frame, const struct scot_context *context)
{
	return (__u64)context->packet_at + context->packet_bytes <= frame->data_end - frame->data;
}

/* A packet of Scotfree's. */
static __always_inline enum persist_outcome persist_on_packet(struct xdp_md *frame, const struct scot_context *context,
							      struct scot_counters *counters)
{
	struct scot_header *header = scot_at(frame, context->packet_at);
	enum persist_structure structure;

	if (context->packet_bytes < sizeof(*header) || (void *)(header + 1) > scot_data_end(frame))
		return persist_refuse(counters, SCOT_REFUSAL_TRUNCATED);
	if (!persist_frame_holds(frame, context))
		return PERSIST_PASS_UP;
	if (scot_address_is(&context->destination, &scot_shared.control))
		return PERSIST_PASS_UP;
	structure = persist_check(frame, context, header, counters);
	if (structure == PERSIST_DAMAGED)
		return PERSIST_REFUSE;
	if (structure == PERSIST_UNEXAMINED)
		return PERSIST_PASS_UP;
	if (scot_address_is(&context->source, &scot_shared.server))
		return persist_on_server_passing(frame, context, header, counters);
	if (persist_is_request(header->kind) && scot_address_is(&context->destination, &scot_shared.server))
		return persist_on_request(frame, context, header, counters);
	return PERSIST_FORWARD;
}

/* ---- the acknowledgement, made of the clone that goes back to where its request came from */

struct persist_ack {
	struct scot_header header;
	struct scot_stamp stamp;
};

static __always_inline void persist_fill_ack(struct persist_ack *ack, const struct scot_session *session,
					     const struct scot_header *request, const struct scot_stamp *stamp)
{
	const __u64 *words = (const void *)ack;
	struct scot_sip sip;

	__builtin_memset(ack, 0, sizeof(*ack));
	ack->header.magic = SCOT_MAGIC;
	ack->header.version = SCOT_VERSION;
	ack->header.kind = SCOT_KIND_PERSIST_ACK;
	ack->header.durability_granted = SCOT_DURABILITY_RAM;
	ack->header.epoch = session->epoch;
	ack->header.session = request->session;
	ack->header.seq_num = request->seq_num;
	ack->header.key_hash = request->key_hash;
	ack->header.fragment_count = 1;
	ack->stamp = *stamp;
	ack->stamp.device = scot_shared.device;
	ack->stamp.boot_epoch = scot_shared.boot_epoch;
	ack->stamp.mac = 0;
	scot_sip_start(&sip, &session->device_to_client);
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < PERSIST_MAC_OFFSET / 8; i++)
		scot_sip_word(&sip, words[i]);
#pragma clang loop unroll(full)
	for (__u32 i = sizeof(struct scot_header) / 8; i < sizeof(*ack) / 8; i++)
		scot_sip_word(&sip, words[i]);
	ack->header.mac = scot_sip_end(&sip, 0, sizeof(*ack) - 8);
}

static __always_inline bool persist_make_ack(struct xdp_md *frame, const struct scot_context *context,
					     struct persist_ack *ack)
{
	struct scot_header *request = scot_at(frame, context->packet_at);
	struct scot_stamp *stamp = (void *)(request + 1);
	struct scot_session *session;

	if ((void *)(stamp + 1) > scot_data_end(frame) || request->kind != SCOT_KIND_UPDATE ||
	    stamp->kind != SCOT_STAMP_KIND_ORDER)
		return false;
	session = persist_session_by_hint(request->session, request->seq_num);
	if (!session)
		return false;
	request = scot_at(frame, context->packet_at);
	stamp = (void *)(request + 1);
	if ((void *)(stamp + 1) > scot_data_end(frame))
		return false;
	persist_fill_ack(ack, session, request, stamp);
	return true;
}
