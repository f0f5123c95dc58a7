/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What a function of the device is, in the kernel. A function NAME lies in the folder of its remedy, in
 * bpf/NAME.bpf.c, and consists of
 *
 *   __noinline int NAME_on_packet(struct xdp_md *frame, struct scot_context *context);
 *
 * which sees every packet of Scotfree's that is whole, in the order of the list, until one says more than NEXT; a
 * request that has a place is authentic and comes from where its session's client lives, one that has none goes on
 * unstamped; and
 *
 *   __noinline int NAME_make_answer(struct xdp_md *frame, const struct scot_context *context,
 *                                   struct scot_answer *answer);
 *
 * which writes the answer to the request in the frame, and returns 0 if it has none. Both are global functions: the
 * verifier looks at each by itself, and one that is off is never called. One function may keep the places of sessions
 * (see dispatcher.bpf.c): it has two more, inlined, which take a place under the session's lock. One that has
 *
 *   __noinline int NAME_on_acknowledged(struct xdp_md *frame, const struct scot_context *context);
 *
 * is told of a request that it has seen and said NEXT to, when that is in the log and before its acknowledgement leaves.
 * Of a server's response with extensions, which otherwise is the daemon's,
 *
 *   __noinline int NAME_has_no_need_of(struct xdp_md *frame, const struct scot_context *context);
 *
 * says not 0 if it knows all of these extensions for its own, and that its half in the daemon waits for none of them.
 * Such a response then passes the functions as any other.
 *
 * Invariant: what a function says is carried out by the dispatcher alone.
 */
#ifndef SCOT_FUNCTION_H
#define SCOT_FUNCTION_H

#include "scot_session.h"

/* What a function makes of a packet. */
enum scot_verdict {
	SCOT_NEXT,                /* the next function's; behind the last, along its way */
	SCOT_ANSWER,              /* nowhere: the answer goes back. Only of a read that is its session's next */
	SCOT_ANSWER_AND_FORWARD,  /* along its way, and the answer back */
	SCOT_TELL_AND_FORWARD,    /* along its way; the daemon is told of an entry for its disk */
	SCOT_PASS_UP,             /* the daemon's */
	SCOT_PASS_UP_REQUEST,     /* the daemon's; unstamped along its way if that is not possible */
	SCOT_REFUSE,              /* nowhere; it is counted */
};

#define SCOT_ANSWER_STEP 2 /* words: an answer is written in multiples of these, filled up with zeros */
#define SCOT_ANSWER_WORDS_MAX 182

/* A packet that goes back to where a request came from. */
struct scot_answer {
	__u32 bytes;              /* its size */
	__u32 zero;
	__u64 packet[SCOT_ANSWER_WORDS_MAX];
};

_Static_assert(sizeof(((struct scot_answer *)0)->packet) >= SCOT_PACKET_BYTES_MAX, "every packet fits");
_Static_assert(SCOT_ANSWER_WORDS_MAX % SCOT_ANSWER_STEP == 0, "the last step is whole");

static __always_inline enum scot_verdict scot_refuse(struct scot_counters *counters, enum scot_refusal reason)
{
	counters->refused[reason]++;
	return SCOT_REFUSE;
}

static __always_inline enum scot_verdict scot_unadmitted(struct scot_counters *counters)
{
	counters->requests++;
	counters->unadmitted++;
	return SCOT_NEXT;
}

/* The header of an answer to a request; its MAC is made when all of it is written. */
static __always_inline void scot_begin_answer(struct scot_header *header, __u8 kind, const struct scot_header *request)
{
	__builtin_memset(header, 0, sizeof(*header));
	header->magic = SCOT_MAGIC;
	header->version = SCOT_VERSION;
	header->kind = kind;
	header->session = request->session;
	header->seq_num = request->seq_num;
	header->key_hash = request->key_hash;
	header->fragment_count = 1;
}

/* The epoch that an answer bears: a client takes none of an epoch before the last that it has seen. */
static __always_inline __u32 scot_answer_epoch(const struct scot_context *context, const struct scot_session *session)
{
	const struct scot_server *server = scot_server(context->server);
	__u32 heard = server->heard_epoch > server->epoch ? server->heard_epoch : server->epoch;

	return heard > session->epoch ? heard : session->epoch;
}

/* Gives an answer of `bytes`, a multiple of a step that is known when this is compiled, its MAC. */
static __always_inline void scot_seal_answer(struct scot_answer *answer, const struct scot_key *key, __u32 bytes)
{
	struct scot_header *header = (void *)answer->packet;
	const __u64 *words = answer->packet;
	struct scot_sip sip;

	scot_sip_start(&sip, key);
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < SCOT_MAC_OFFSET / 8; i++)
		scot_sip_word(&sip, words[i]);
#pragma clang loop unroll(full)
	for (__u32 i = sizeof(struct scot_header) / 8; i < bytes / 8; i++)
		scot_sip_word(&sip, words[i]);
	header->mac = scot_sip_end(&sip, 0, bytes - 8);
	answer->bytes = bytes;
}

/* Gives an answer of any size its MAC. The last word of it that is not whole is filled up with zeros. Not 0 if it could
 * be made. A function of its own, for the verifier.
 */
__noinline int scot_seal_long_answer(struct scot_answer *answer, const struct scot_key *key)
{
	struct scot_header *header;
	struct scot_sip sip;
	__u32 bytes, whole;
	__u64 rest = 0;

	if (!answer || !key)
		return 0;
	header = (void *)answer->packet;
	bytes = answer->bytes;
	if (bytes < sizeof(*header) || bytes > SCOT_PACKET_BYTES_MAX)
		return 0;
	whole = bytes / 8;
	scot_sip_start(&sip, key);
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < SCOT_MAC_OFFSET / 8; i++)
		scot_sip_word(&sip, answer->packet[i]);
#pragma clang loop unroll(disable)
	for (__u32 i = sizeof(*header) / 8; i < SCOT_ANSWER_WORDS_MAX; i++) {
		if (i > (whole | 1))
			break;
		if (i < whole)
			scot_sip_word(&sip, answer->packet[i]);
		else if (i == whole && bytes % 8 != 0)
			rest = answer->packet[i];
		else
			answer->packet[i] = 0; // what fills up the last step
	}
	header->mac = scot_sip_end(&sip, rest, bytes - 8);
	return 1;
}

#endif
