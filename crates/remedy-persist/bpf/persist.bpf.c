// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Persist's function in the kernel: what `remedy_persist::Device` does with the most frequent packets, or a word that
 * the daemon shall do it. It keeps the places of sessions: with a place goes a slot of the log.
 *
 * Invariants: an update is acknowledged only when its slot is VALID, under a lease, at a durability that
 * its slot has reached (rule 4); only the next seq_num of a session is admitted (rule 1); nothing of a
 * session that the daemon holds is touched.
 */
#include "persist.h"
#include "scot_function.h"

#define PERSIST_LINES_FETCHED 4 /* a slot's own fields, its header, the beginning of its payload */

/* The log. How many slots there are, the daemon says before it loads. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scot_slot);
} scot_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct persist_counters);
} scot_persist_counters SEC(".maps");

static __always_inline struct persist_counters *persist_counters_here(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&scot_persist_counters, &first);
}

/* What persist keeps of a session. */
static __always_inline struct persist_session *persist_of(struct scot_session *session)
{
	return (void *)session->room;
}

/* Where the slot of a request lies, in a session that has slots. */
static __always_inline __u32 persist_place(const struct scot_session *session, __u32 window, __u64 seq_num)
{
	return session->slot_first + seq_num % window;
}

static __always_inline struct scot_slot *persist_slot(const struct scot_session *session, __u64 seq_num)
{
	__u32 window = session->window;
	__u32 place;

	if (window == 0)
		return NULL;
	place = persist_place(session, window, seq_num);
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

/* ---- requests (rules 1, 3 and 5) */

/* What of a request is needed under its session's lock. */
struct persist_request {
	__u64 session;
	__u64 seq_num;
	__u64 key_hash;
	__u64 now;
	struct scot_server *server;
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
	bool late;
	bool acknowledge;
	bool without_lease;
	struct scot_stamp stamp;
};

/* Whether the session's entry has become another's meanwhile. */
static __always_inline bool persist_is_gone(const struct scot_session *session, const struct persist_request *request)
{
	return session->id != request->session || scot_server(session->server) != request->server;
}

static __always_inline bool persist_entry_is_live(struct scot_session *session, const struct scot_slot *slot)
{
	return slot->state >= PERSIST_SLOT_WRITING && slot->seq_num > persist_of(session)->stable;
}

static __always_inline bool persist_can_log(struct scot_session *session, const struct scot_slot *slot,
					    const struct persist_request *request)
{
	return request->kind == SCOT_KIND_UPDATE && slot->state != PERSIST_SLOT_WRITING && slot->writing == 0 &&
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
	if (request->now >= request->server->lease_until) {
		decision->without_lease = true;
		return;
	}
	slot->acknowledged = 1;
	decision->acknowledge = true;
}

static __always_inline void persist_fill_slot(struct scot_session *session, struct scot_slot *slot,
					      const struct persist_request *request,
					      const struct persist_decision *decision, __u32 state)
{
	slot->state = state;
	slot->seq_num = request->seq_num;
	slot->logged = persist_of(session)->logged;
	slot->logged_at = request->now;
	slot->stamp = decision->stamp;
	slot->asked = request->asked;
	slot->persisted = SCOT_DURABILITY_NONE;
	slot->writing = state == PERSIST_SLOT_WRITING ? request->asked & SCOT_DURABILITY_DISK : 0;
	slot->acknowledged = 0;
}

/* Whether an entry can be acknowledged again here: the acknowledgement is made of this packet, which must
 * be the one that was logged.
 */
static __always_inline bool persist_can_acknowledge_again(const struct scot_slot *slot,
							  const struct persist_request *request)
{
	return slot->state != PERSIST_SLOT_DAEMON && slot->asked == SCOT_DURABILITY_RAM &&
	       request->kind == SCOT_KIND_UPDATE && request->key_hash == slot->header.key_hash;
}

static __always_inline void persist_admit_next(struct scot_session *session, struct scot_slot *slot,
					       const struct persist_request *request,
					       struct persist_decision *decision)
{
	struct scot_server *server = request->server;
	struct scot_stamp *stamp = &decision->stamp;
	bool logs = persist_can_log(session, slot, request);

	stamp->kind = logs ? SCOT_STAMP_KIND_ORDER : SCOT_STAMP_KIND_BARRIER;
	stamp->device = scot_shared.device;
	stamp->boot_epoch = scot_shared.boot_epoch;
	stamp->number = logs ? __sync_fetch_and_add(&server->order_current, 1) + 1 : server->order_current;
	stamp->previous_write = session->last_write;
	session->next = request->seq_num + 1;
	if (request->kind != SCOT_KIND_READ)
		session->last_write = request->seq_num;
	persist_of(session)->logged += logs;
	decision->admission = logs ? PERSIST_ADMIT_LOGGED : PERSIST_ADMIT_UNLOGGED;
	// A slot that holds a live entry keeps it: the request is stamped anew if it comes again.
	if (!logs && (slot->state == PERSIST_SLOT_WRITING || persist_entry_is_live(session, slot)))
		return;
	persist_fill_slot(session, slot, request, decision, logs ? PERSIST_SLOT_WRITING : PERSIST_SLOT_STAMPED);
	if (logs && request->asked == SCOT_DURABILITY_RAM)
		persist_decide_ack(session, slot, request, decision);
}

static __always_inline void persist_admit_again(struct scot_session *session, struct scot_slot *slot,
						const struct persist_request *request,
						struct persist_decision *decision)
{
	bool entry = slot->state >= PERSIST_SLOT_WRITING;

	if (slot->seq_num != request->seq_num || slot->state == PERSIST_SLOT_EMPTY) {
		decision->admission = PERSIST_ADMIT_FORGOTTEN;
		return;
	}
	if (entry && !persist_can_acknowledge_again(slot, request)) {
		decision->admission = PERSIST_ADMIT_NOT;
		return;
	}
	decision->admission = PERSIST_ADMIT_DUPLICATE;
	decision->stamp = slot->stamp;
	if (slot->state == PERSIST_SLOT_VALID && slot->seq_num > persist_of(session)->stable)
		persist_decide_ack(session, slot, request, decision);
}

static __always_inline void persist_admit(struct scot_session *session, struct scot_slot *slot,
					  const struct persist_request *request, struct persist_decision *decision)
{
	decision->admission = PERSIST_ADMIT_NOT;
	bpf_spin_lock(&session->lock);
	if (persist_is_gone(session, request)) {
		decision->admission = PERSIST_ADMIT_GONE;
	} else if (!scot_is_held(session)) {
		session->heard_at = request->now;
		session->confirmed = 1;
		if (request->seq_num < session->next)
			persist_admit_again(session, slot, request, decision);
		else if (request->server->accepted && request->seq_num == session->next)
			persist_admit_next(session, slot, request, decision);
	}
	bpf_spin_unlock(&session->lock);
}

/* Copies a request into its slot, which then is an entry. False: it could not be read, and there is none. */
static __always_inline bool persist_write(struct xdp_md *frame, const struct scot_context *context,
					  struct scot_slot *slot)
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
	slot->stamp.mac = context->stamp.mac;
	slot->persisted = slot->asked & SCOT_DURABILITY_RAM;
	// A full barrier: who finds the entry VALID finds all of it.
	__sync_lock_test_and_set(&slot->state, PERSIST_SLOT_VALID);
	return true;
}

static __always_inline void persist_count(struct scot_counters *counters, struct persist_counters *own,
					  const struct persist_request *request,
					  const struct persist_decision *decision)
{
	bool logged = decision->admission == PERSIST_ADMIT_LOGGED;
	bool admitted = logged || decision->admission == PERSIST_ADMIT_UNLOGGED;
	bool update = request->kind == SCOT_KIND_UPDATE;

	counters->requests++;
	counters->admitted += admitted;
	counters->duplicate += !admitted;
	own->admitted_updates += admitted && update;
	own->logged += logged;
	own->ungranted += admitted && update && !logged;
	own->persist_acks += decision->acknowledge;
	own->without_lease += decision->without_lease;
}

/* ---- behind the head of a chain: what it has stamped is logged under its stamp (rule 13) */

static __always_inline void persist_follow_new(struct scot_session *session, struct scot_slot *slot,
					       const struct persist_request *request,
					       struct persist_decision *decision)
{
	bool logs = decision->stamp.kind == SCOT_STAMP_KIND_ORDER && persist_can_log(session, slot, request);
	bool late = request->seq_num < session->next;

	decision->admission = logs ? PERSIST_ADMIT_LOGGED : PERSIST_ADMIT_UNLOGGED;
	decision->late = late;
	if (!late)
		session->next = request->seq_num + 1;
	if (session->last_write < decision->stamp.previous_write)
		session->last_write = decision->stamp.previous_write;
	if (request->kind != SCOT_KIND_READ && session->last_write < request->seq_num)
		session->last_write = request->seq_num;
	if (!logs)
		return;
	// Behind newer entries: until these are stable the running counts of slots say nothing.
	if (late && persist_of(session)->disorder_until < session->next - 1)
		persist_of(session)->disorder_until = session->next - 1;
	persist_of(session)->logged++;
	persist_fill_slot(session, slot, request, decision, PERSIST_SLOT_WRITING);
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
	else if (slot->state == PERSIST_SLOT_VALID)
		persist_decide_ack(session, slot, request, decision);
}

static __always_inline void persist_follow_admit(struct scot_session *session, struct scot_slot *slot,
						 const struct persist_request *request,
						 struct persist_decision *decision)
{
	decision->admission = PERSIST_ADMIT_NOT;
	bpf_spin_lock(&session->lock);
	if (persist_is_gone(session, request)) {
		decision->admission = PERSIST_ADMIT_GONE;
	} else if (!scot_is_held(session)) {
		bool live = slot->seq_num == request->seq_num && persist_entry_is_live(session, slot);

		session->heard_at = request->now;
		session->confirmed = 1;
		if (decision->stamp.kind == SCOT_STAMP_KIND_NONE)
			decision->admission = PERSIST_ADMIT_UNSTAMPED;
		else if (live || request->seq_num <= persist_of(session)->stable)
			persist_follow_again(session, slot, request, decision);
		else
			persist_follow_new(session, slot, request, decision);
	}
	bpf_spin_unlock(&session->lock);
}

/* The stamp that the head has given a request, if it is one to log under. */
static __always_inline bool persist_head_stamp(struct xdp_md *frame, const struct scot_context *context,
					       const struct persist_request *request, struct scot_stamp *stamp)
{
	struct scot_header *header = scot_at(frame, context->packet_at);
	struct scot_stamp *given = (void *)(header + 1);

	if ((void *)(given + 1) > scot_data_end(frame))
		return false;
	*stamp = *given;
	// A forged stamp under an authentic packet, or a later incarnation of the head's: the daemon's to note.
	return (stamp->kind == SCOT_STAMP_KIND_NONE ||
		scot_stamp_mac(stamp, request->session, request->seq_num) == stamp->mac) &&
	       stamp->boot_epoch <= scot_shared.boot_seen;
}

/* ---- the keeper of places: what the dispatcher asks before it asks any function */

/* A request is about to be examined. */
static __always_inline void persist_expect(const struct scot_session *session, __u64 seq_num)
{
	struct scot_slot *slot = persist_slot(session, seq_num);

	if (slot)
		persist_fetch(slot);
}

static __always_inline void persist_note_place(struct scot_context *context, const struct persist_decision *decision)
{
	bool logged = decision->admission == PERSIST_ADMIT_LOGGED;
	bool admitted = logged || decision->admission == PERSIST_ADMIT_UNLOGGED;

	context->place = admitted && !decision->late ? SCOT_PLACE_NEXT : SCOT_PLACE_SEEN;
	context->logs = logged;
	context->granted = decision->acknowledge ? SCOT_DURABILITY_RAM : SCOT_DURABILITY_NONE;
	context->stamp = decision->stamp;
}

/* An authentic request takes its place, or is found to have it. */
static __always_inline enum scot_verdict persist_take_place(struct xdp_md *frame, struct scot_context *context,
							    struct scot_session *session,
							    const struct scot_header *header,
							    struct scot_counters *counters)
{
	struct persist_request request = {
		.session = header->session,
		.seq_num = header->seq_num,
		.key_hash = header->key_hash,
		.now = context->now,
		.server = scot_server(context->server),
		.kind = context->kind,
		.asked = context->asked,
	};
	struct persist_counters *own = persist_counters_here();
	struct persist_decision decision = {};
	__u32 window = session->window;
	struct scot_slot *slot;

	if (!own || window == 0)
		return SCOT_PASS_UP_REQUEST;
	context->slot = persist_place(session, window, request.seq_num);
	slot = bpf_map_lookup_elem(&scot_slots, &context->slot);
	if (!slot)
		return SCOT_PASS_UP_REQUEST;
	if (scot_shared.head) {
		persist_admit(session, slot, &request, &decision);
	} else {
		if (!persist_head_stamp(frame, context, &request, &decision.stamp))
			return SCOT_PASS_UP_REQUEST;
		persist_follow_admit(session, slot, &request, &decision);
	}
	if (decision.admission == PERSIST_ADMIT_GONE || decision.admission == PERSIST_ADMIT_UNSTAMPED)
		return scot_unadmitted(counters);
	if (decision.admission == PERSIST_ADMIT_NOT)
		return SCOT_PASS_UP_REQUEST;
	persist_count(counters, own, &request, &decision);
	persist_note_place(context, &decision);
	return SCOT_NEXT;
}

/* ---- what the server says in passing (rules 6 and 12) */

/* Everything up to `stable` is stable. Entries are not touched one by one: they are live only above it. */
static __always_inline enum scot_verdict persist_free(struct scot_session *session, __u64 id, __u64 stable)
{
	struct scot_slot *slot = persist_slot(session, stable);
	struct persist_session *own = persist_of(session);
	enum scot_verdict verdict = SCOT_PASS_UP;
	struct persist_counters *counters;
	__u64 freed = 0;

	if (!slot)
		return SCOT_PASS_UP;
	bpf_spin_lock(&session->lock);
	if (session->id != id || stable <= own->stable) {
		verdict = SCOT_NEXT;
	} else if (!scot_is_held(session) && stable < session->next && stable > own->disorder_until &&
		   slot->seq_num == stable && slot->state != PERSIST_SLOT_EMPTY) {
		freed = slot->logged - own->freed;
		own->freed = slot->logged;
		own->stable = stable;
		verdict = SCOT_NEXT;
	}
	bpf_spin_unlock(&session->lock);
	counters = persist_counters_here();
	if (counters)
		counters->freed += freed;
	return verdict;
}

static __always_inline enum scot_verdict persist_on_stable(struct xdp_md *frame, const struct scot_context *context,
							   const struct scot_header *header, __u64 stable)
{
	struct scot_counters *counters = scot_counters_here();
	__u64 id = header->session;
	__u32 epoch = header->epoch;
	struct scot_session *session = scot_session(context->server, id);

	if (!session || !counters)
		return SCOT_NEXT;
	if (!scot_is_authentic(frame, context, sizeof(*header), &session->server_to_client))
		return scot_refuse(counters, SCOT_REFUSAL_BAD_MAC);
	if (epoch < scot_server(context->server)->epoch) {
		counters->past_epoch++;
		return SCOT_NEXT;
	}
	return persist_free(session, id, stable);
}

static __always_inline enum scot_verdict persist_on_server_passing(struct xdp_md *frame,
								   const struct scot_context *context)
{
	struct scot_header *header = scot_at(frame, context->packet_at);
	struct scot_heartbeat *heartbeat = (void *)(header + 1);

	if ((void *)heartbeat > scot_data_end(frame))
		return SCOT_PASS_UP;
	if (context->kind == SCOT_KIND_SERVER_ACK)
		return persist_on_stable(frame, context, header, header->seq_num);
	if (context->kind != SCOT_KIND_HEARTBEAT)
		return SCOT_NEXT;
	if ((void *)(heartbeat + 1) > scot_data_end(frame))
		return SCOT_PASS_UP;
	return persist_on_stable(frame, context, header, heartbeat->stable);
}

/* ---- the function */

/* A request that has its place: what is to be logged is copied in. */
static __always_inline enum scot_verdict persist_on_request(struct xdp_md *frame, const struct scot_context *context)
{
	if (context->logs) {
		__u32 place = context->slot;
		struct scot_slot *slot = bpf_map_lookup_elem(&scot_slots, &place);

		if (!slot || !persist_write(frame, context, slot))
			return SCOT_REFUSE;
	}
	if (context->granted != SCOT_DURABILITY_NONE)
		return SCOT_ANSWER_AND_FORWARD;
	return context->logs && context->asked & SCOT_DURABILITY_DISK ? SCOT_TELL_AND_FORWARD : SCOT_NEXT;
}

__noinline int persist_on_packet(struct xdp_md *frame, struct scot_context *context)
{
	if (!context)
		return SCOT_REFUSE;
	if (context->direction == SCOT_FROM_SERVER)
		return persist_on_server_passing(frame, context);
	if (context->direction == SCOT_TO_SERVER)
		return persist_on_request(frame, context);
	return SCOT_NEXT;
}

/* ---- the acknowledgement, made of the clone that goes back to where its request came from */

struct persist_ack {
	struct scot_header header;
	struct scot_stamp stamp;
};

_Static_assert(sizeof(struct persist_ack) <= SCOT_ANSWER_WORDS_MAX * sizeof(__u64), "it is an answer");

__noinline int persist_make_answer(struct xdp_md *frame, const struct scot_context *context,
				   struct scot_answer *answer)
{
	struct scot_session *session;
	struct scot_header *request;
	struct scot_stamp *stamp;
	struct persist_ack *ack;

	if (!context || !answer)
		return 0;
	request = scot_at(frame, context->packet_at);
	stamp = (void *)(request + 1);
	if ((void *)(stamp + 1) > scot_data_end(frame) || request->kind != SCOT_KIND_UPDATE ||
	    stamp->kind != SCOT_STAMP_KIND_ORDER)
		return 0;
	session = scot_session(context->server, request->session);
	if (!session)
		return 0;
	ack = (void *)answer->packet;
	scot_begin_answer(&ack->header, SCOT_KIND_PERSIST_ACK, request);
	ack->header.durability_granted = SCOT_DURABILITY_RAM;
	ack->header.epoch = session->epoch;
	ack->stamp = *stamp;
	ack->stamp.device = scot_shared.device;
	ack->stamp.boot_epoch = scot_shared.boot_epoch;
	ack->stamp.mac = 0;
	scot_seal_answer(answer, &session->device_to_client, sizeof(*ack));
	return 1;
}
