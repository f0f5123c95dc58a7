/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The structure of packets, as `Packet::parse` checks it. */
#ifndef SCOT_CHECK_H
#define SCOT_CHECK_H

#include "scot_counters.h"
#include "scot_packet.h"

#define SCOT_SEQ_NUM_MAX (~0ULL - 1) /* places in an order are smaller */

static __always_inline bool scot_is_request(__u8 kind)
{
	return kind == SCOT_KIND_UPDATE || kind == SCOT_KIND_READ || kind == SCOT_KIND_BYPASS;
}

static __always_inline bool scot_header_is_valid(const struct scot_header *header)
{
	return header->durability_asked <= SCOT_DURABILITY_RAM_AND_DISK &&
	       header->durability_granted <= SCOT_DURABILITY_RAM_AND_DISK &&
	       (header->flags & ~SCOT_FLAGS_ALL) == 0 && header->fragment_index < header->fragment_count &&
	       header->seq_num < SCOT_SEQ_NUM_MAX && header->completed < SCOT_SEQ_NUM_MAX &&
	       (!scot_is_request(header->kind) || header->seq_num > 0);
}

static __always_inline bool scot_stamp_is_valid(const struct scot_stamp *stamp)
{
	if (stamp->kind > SCOT_STAMP_KIND_BARRIER || stamp->zero[0] != 0)
		return false;
	if (stamp->kind == SCOT_STAMP_KIND_NONE)
		return stamp->device == 0 && stamp->boot_epoch == 0 && stamp->number == 0 &&
		       stamp->previous_write == 0 && stamp->mac == 0;
	return stamp->number < SCOT_SEQ_NUM_MAX && stamp->previous_write < SCOT_SEQ_NUM_MAX;
}

enum scot_structure {
	SCOT_WHOLE,      /* as it must be */
	SCOT_DAMAGED,    /* counted, to be refused */
	SCOT_EXTENDED,   /* a response as it must be, but for extensions, which nobody has looked into */
	SCOT_UNEXAMINED, /* of a kind that is left to the daemon */
};

/* The tail of the kinds that are only passed on. */
static __always_inline enum scot_structure scot_check_tail(struct xdp_md *frame, const struct scot_header *header)
{
	const void *tail = header + 1;
	const void *end = scot_data_end(frame);

	switch (header->kind) {
	case SCOT_KIND_UPDATE:
	case SCOT_KIND_READ:
	case SCOT_KIND_BYPASS:
	case SCOT_KIND_PERSIST_ACK: {
		const struct scot_stamp *stamp = tail;

		if ((void *)(stamp + 1) > end || !scot_stamp_is_valid(stamp))
			return SCOT_DAMAGED;
		if (header->kind == SCOT_KIND_PERSIST_ACK && stamp->mac != 0)
			return SCOT_DAMAGED;
		return SCOT_WHOLE;
	}
	case SCOT_KIND_HEARTBEAT: {
		const struct scot_heartbeat *heartbeat = tail;

		if ((void *)(heartbeat + 1) > end)
			return SCOT_DAMAGED;
		return heartbeat->highest < SCOT_SEQ_NUM_MAX && heartbeat->stable < SCOT_SEQ_NUM_MAX ? SCOT_WHOLE :
												       SCOT_DAMAGED;
	}
	case SCOT_KIND_RESPONSE: {
		const struct scot_response *response = tail;

		if ((void *)(response + 1) > end || response->received_by > 2)
			return SCOT_DAMAGED;
		// Of a device: its functions' names are the daemon's to know.
		return response->answered_by || response->device || response->zero[0] || response->zero[1] ||
			       response->zero[2] || response->zero[3] ? SCOT_UNEXAMINED : SCOT_WHOLE;
	}
	case SCOT_KIND_SERVER_ACK:
	case SCOT_KIND_BUSY:
		return SCOT_WHOLE;
	default:
		return SCOT_UNEXAMINED;
	}
}

static __always_inline enum scot_structure scot_damaged(struct scot_counters *counters, enum scot_refusal reason)
{
	counters->refused[reason]++;
	return SCOT_DAMAGED;
}

/* Of what bears extensions only responses are looked at; all else, and whatever is wrong, is left to the daemon. */
static __always_inline enum scot_structure scot_check_extended(struct xdp_md *frame, const struct scot_context *context,
							       const struct scot_header *header)
{
	__u64 expected = sizeof(*header) + sizeof(struct scot_response) +
			 (__u64)header->extension_words * SCOT_EXTENSION_WORD_BYTES + header->payload_bytes;

	if (header->kind != SCOT_KIND_RESPONSE || header->fragment_count != 1 || !scot_header_is_valid(header) ||
	    expected > SCOT_PACKET_BYTES_MAX || context->packet_bytes != expected)
		return SCOT_UNEXAMINED;
	return scot_check_tail(frame, header) == SCOT_WHOLE ? SCOT_EXTENDED : SCOT_UNEXAMINED;
}

static __always_inline enum scot_structure scot_check(struct xdp_md *frame, const struct scot_context *context,
						      const struct scot_header *header, struct scot_counters *counters)
{
	enum scot_structure structure;
	__u64 expected;
	int tail_bytes;

	if (header->version != SCOT_VERSION)
		return scot_damaged(counters, SCOT_REFUSAL_WRONG_VERSION);
	// Another family's.
	if (header->kind > SCOT_KIND_SESSION_LAST)
		return SCOT_UNEXAMINED;
	if (header->extension_words != 0)
		return scot_check_extended(frame, context, header);
	tail_bytes = scot_tail_bytes(header->kind);
	if (tail_bytes < 0)
		return scot_damaged(counters, SCOT_REFUSAL_UNKNOWN_KIND);
	if (!scot_header_is_valid(header))
		return scot_damaged(counters, SCOT_REFUSAL_INVALID_FIELD);
	expected = sizeof(*header) + (__u64)tail_bytes + header->payload_bytes;
	if (expected > SCOT_PACKET_BYTES_MAX || context->packet_bytes > expected)
		return scot_damaged(counters, SCOT_REFUSAL_OVERSIZED);
	if (context->packet_bytes < expected)
		return scot_damaged(counters, SCOT_REFUSAL_TRUNCATED);
	structure = scot_check_tail(frame, header);
	return structure == SCOT_DAMAGED ? scot_damaged(counters, SCOT_REFUSAL_INVALID_FIELD) : structure;
}

static __always_inline bool scot_frame_holds(struct xdp_md *frame, const struct scot_context *context)
{
	return (__u64)context->packet_at + context->packet_bytes <= frame->data_end - frame->data;
}

#endif
