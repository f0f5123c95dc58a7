/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What the cache's function in the kernel shares with its half in the daemon (crates/remedy-cache/kernel).
 *
 * Invariants:
 * - Whatever makes the keys of a bucket doubtful counts `begun` up before its packet goes on, and `told` after the
 *   daemon's note of it lies there. While both are equal, the daemon can know of all of it.
 * - A value is answered only while its bucket's `begun`, and that of all keys, are what they were when the daemon
 *   looked for notes before it showed the value.
 * - A cell is one's who has made `written` odd, until it is even again: the daemon's, or a program's that puts in what
 *   a logged SET says. A program does so only where the cell was answered until that SET came.
 */
#ifndef CACHE_H
#define CACHE_H

#include "scot_shared.h"

#define CACHE_BUCKETS 262144u
#define CACHE_CELLS 16384u
#define CACHE_WAYS 4u           /* cells in which the value of one key may lie */
#define CACHE_NOTES 16384u
#define CACHE_KEY_BYTES_MAX 256u
#define CACHE_VALUE_BYTES_MAX 1304u
#define CACHE_KEY_WORDS (CACHE_KEY_BYTES_MAX / 8)
#define CACHE_VALUE_WORDS (CACHE_VALUE_BYTES_MAX / 8)
#define CACHE_AWAITED 1024u     /* reads of a session that are told from each other */
#define CACHE_POKE_EVERY 256u   /* notes: while half of them wait, so often the daemon is woken */

/* What has made keys doubtful, and which were read of late: four of them, by eight bits of their hashes each, and whose
 * place the next takes.
 */
struct cache_bucket {
	__u64 begun;
	__u64 told;
	__u64 door;
};

/* What holds for all keys. */
struct cache_head {
	struct cache_bucket all;
	__u64 notes;            /* how many were begun */
	__u64 taken;            /* of these the daemon has seen so many */
	__u32 on;               /* 0: nothing is answered, nothing told */
	__u32 planted;          /* of tests alone */
	__u32 doorkeeper;       /* not 0: of what was not read of late no reply is kept */
	__u32 zero[3];
};

/* A value that may be answered, and the read that it answers. */
struct cache_cell {
	__u64 written;
	__u64 begun;            /* its bucket's, when it was shown */
	__u64 all;              /* that of all keys, then */
	__u64 key_hash;         /* 0: nobody's */
	__u64 order;            /* of the logged SET that it shows, in this boot epoch; 0: it was shown by the daemon */
	__u32 server;
	__u32 epoch;            /* in which its server spoke */
	__u32 boot_epoch;       /* of the device */
	__u32 hit;              /* how often it was answered since the daemon looked, or nearly */
	__u16 database;
	__u16 key_bytes;
	__u32 value_bytes;
	__u64 key[CACHE_KEY_WORDS];     /* filled up with zeros to a whole word, as the value */
	__u64 value[CACHE_VALUE_WORDS];
};

/* Whose values the cells are in which a key's may lie: a part of each hash, or of what was there. It tells only where to
 * look, in one line of memory instead of four cells.
 */
struct cache_tags {
	__u32 of[CACHE_WAYS];
};

/* What is known of a session's requests; by its place. */
struct cache_session {
	__u64 from;             /* from this seq_num on everything has passed this incarnation of the device */
	__u64 lossy;            /* counts its writes that are not in the log: given up, they take with them what follows */
	__u64 last_lossy;       /* the seq_num of the last of them; raised before it is counted */
	__u64 safe;             /* at this count the server had executed all of them, as the daemon found */
	__u64 pending;          /* the last of its SETs that a cell shows, or has shown */
	__u64 awaited[CACHE_AWAITED / 64]; /* a bit for each of its last reads: the daemon may keep the reply */
};

enum cache_note_what {
	CACHE_NOTE_REQUEST = 1, /* a request has passed */
	CACHE_NOTE_UNSEEN = 2,  /* a response to what never passed here */
};

/* What the daemon has to know of a packet that has passed. */
struct cache_note {
	__u64 number;           /* from 1; written last */
	__u64 session;
	__u64 seq_num;
	__u64 key_hash;         /* of a write 0 if it may touch any */
	__u64 completed;
	__u64 now;              /* CLOCK_MONOTONIC, nanoseconds */
	__u64 order;            /* the stamp's number */
	__u64 reads;            /* of a write: how often its key was answered since the daemon looked, or it was written */
	__u32 boot_epoch;       /* the stamp's */
	__u16 flags;
	__u16 database;         /* of a read with a key */
	__u16 key_bytes;        /* of a read that could be answered; else 0 */
	__u8 what;              /* enum cache_note_what */
	__u8 server;
	__u8 kind;
	__u8 place;             /* enum scot_place */
	__u8 stamp_kind;
	__u8 unkept;            /* of a read that could be answered: its reply is not kept */
	__u64 key[CACHE_KEY_WORDS];
};

/* What the programs have counted, one per CPU. */
struct cache_counts {
	__u64 hits;
	__u64 overwrites;       /* SETs whose values were put into their cells */
};

#endif
