/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What persist's function in the kernel shares with its half in the daemon (crates/remedy-persist/kernel).
 *
 * Invariant: a slot goes EMPTY or STAMPED -> WRITING -> VALID; WRITING is set under its session's lock and left by the
 * one who set it. An entry is live while its seq_num is above its session's `stable`.
 */
#ifndef PERSIST_H
#define PERSIST_H

#include "scot_shared.h"

/* What persist keeps in a session's room, behind its lock. */
struct persist_session {
	__u64 stable;           /* everything up to here is stable */
	__u64 logged;           /* entries logged so far */
	__u64 freed;            /* of these, up to `stable` */
	__u64 disorder_until;   /* up to here entries were logged out of the order of their seq_num */
};

_Static_assert(sizeof(struct persist_session) <= SCOT_SESSION_ROOM * sizeof(__u64), "it fits a session's room");

enum persist_slot_state {
	PERSIST_SLOT_EMPTY = 0,
	PERSIST_SLOT_STAMPED = 1, /* a request that passed and is not logged */
	PERSIST_SLOT_WRITING = 2, /* an entry that is being copied in */
	PERSIST_SLOT_VALID = 3,   /* an entry */
	PERSIST_SLOT_DAEMON = 4,  /* an entry that the daemon keeps */
};

/* A slot of the log. `header` and `payload` are the request as its client sent it, so its MAC shows
 * whether the entry is whole.
 */
struct scot_slot {
	__u32 state;
	__u32 packet_bytes;     /* of the header and the payload */
	__u64 seq_num;
	__u64 logged;           /* how many of its session had been logged with this one */
	__u64 logged_at;        /* CLOCK_MONOTONIC, nanoseconds */
	struct scot_stamp stamp;
	__u8 asked;
	__u8 persisted;         /* the domains that have it */
	__u8 writing;           /* the domains that the daemon is still writing it to */
	__u8 acknowledged;
	__u8 zero[4];
	struct scot_header header;
	__u8 payload[SCOT_PACKET_BYTES_MAX - sizeof(struct scot_header) - sizeof(struct scot_stamp)];
	__u8 reserve[44];
};

_Static_assert(sizeof(struct scot_slot) == 1536, "a slot is a multiple of a cache line");

/* What persist counted, one per CPU, under the names of the device machine: admitted_updates = logged + ungranted. */
struct persist_counters {
	__u64 admitted_updates;
	__u64 logged;
	__u64 ungranted;
	__u64 persist_acks;
	__u64 freed;
	__u64 without_lease;
};

#endif
