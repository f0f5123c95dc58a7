/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What the programs in the kernel and the daemon share. The daemon's Rust types are made from the type
 * information of the compiled object, so this is the one place where they are written down.
 *
 * Invariants:
 * - A session's fields behind its lock change only under the lock, or, while it is held, by the daemon.
 * - A slot goes EMPTY or STAMPED -> WRITING -> VALID; WRITING is set under its session's lock and left
 *   by the one who set it. An entry is live while its seq_num is above its session's `stable`.
 */
#ifndef SCOT_SHARED_H
#define SCOT_SHARED_H

#include "scotfree_wire.h"
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>

#define SCOT_SHARED_VERSION 2u
#define SCOT_SESSIONS_MAX 1024u
#define SCOT_PORTS_MAX 16u
#define SCOT_FRAME_BYTES_MAX 1522u /* 1500 of payload, Ethernet's header, a VLAN tag, and reserve */

/* An endpoint. IPv4 addresses stand in IPv6's mapped form. */
struct scot_address {
	__u64 ip[2];  /* the 16 bytes of the address as they lie on the wire */
	__u16 port;   /* in host order */
	__u16 zero[3];
};

/* A key of SipHash-2-4. */
struct scot_key {
	__u64 low;
	__u64 high;
};

/* What holds for the whole device. Written by the daemon, but for `order_current`. */
struct scot_shared {
	__u64 order_current;    /* the last order number given; only ever added to atomically */
	__u64 lease_until;      /* CLOCK_MONOTONIC in nanoseconds; acknowledged only before */
	__u32 version;          /* SCOT_SHARED_VERSION */
	__u32 boot_epoch;       /* this device's incarnation */
	__u32 server_epoch;     /* the largest that has polled it */
	__u16 device;           /* its name */
	__u8 head;              /* whether it gives order numbers */
	__u8 accepted;          /* whether the server has accepted this boot epoch */
	__u8 media;             /* the durability that its domains can give, a bit set */
	__u8 zero[3];
	__u32 boot_seen;        /* the largest boot epoch seen in a stamp */
	__u16 port_first;       /* of Scotfree's UDP ports */
	__u16 port_last;
	__u32 server_ifindex;   /* behind which port the server lives; 0 if that is not known */
	__u32 event_every;      /* of so many of Scotfree's packets one is told of; 0: none */
	__u32 zero_too;
	struct scot_key stamp_key;
	struct scot_address server;
	struct scot_address control;
	__u8 own_mac[8];        /* six bytes of the device's own station address */
	__u32 held[SCOT_SESSIONS_MAX]; /* not 0: the daemon is changing this session; pass its packets up */
};

/* What the kernel knows of one session. */
struct scot_session {
	struct bpf_spin_lock lock;
	__u32 index;            /* its place in the tables and in `held` */
	__u64 id;               /* 0: nobody's */
	__u64 next;             /* the only seq_num that is admitted */
	__u64 last_write;       /* the last write admitted */
	__u64 stable;           /* everything up to here is stable */
	__u64 heard_at;         /* when its client last spoke under its keys, CLOCK_MONOTONIC */
	__u64 logged;           /* entries logged so far */
	__u64 freed;            /* of these, up to `stable` */
	__u64 disorder_until;   /* up to here entries were logged out of the order of their seq_num */
	struct scot_address client;
	__u32 window;           /* its credit and the number of its slots */
	__u32 slot_first;       /* its slots are slot_first .. slot_first + window */
	__u32 epoch;            /* in which it was opened */
	__u32 client_ifindex;   /* the port that its requests come in by */
	__u8 closing;           /* nothing new is logged or acknowledged */
	__u8 confirmed;         /* its client has spoken under its keys */
	__u8 zero[6];
	struct scot_key client_to_server;
	struct scot_key server_to_client;
	struct scot_key device_to_client;
	__u8 client_nonce[16];
	__u8 server_nonce[16];
};

enum scot_slot_state {
	SCOT_SLOT_EMPTY = 0,
	SCOT_SLOT_STAMPED = 1, /* a request that passed and is not logged */
	SCOT_SLOT_WRITING = 2, /* an entry that is being copied in */
	SCOT_SLOT_VALID = 3,   /* an entry */
	SCOT_SLOT_DAEMON = 4,  /* an entry that the daemon keeps */
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

/* What was counted; one per CPU. The first are the device machine's own counters, under its names:
 * requests = admitted + unadmitted + duplicate + bad, admitted_updates = logged + ungranted.
 */
struct scot_counters {
	__u64 requests;
	__u64 admitted;
	__u64 unadmitted;
	__u64 duplicate;
	__u64 bad;
	__u64 admitted_updates;
	__u64 logged;
	__u64 ungranted;
	__u64 persist_acks;
	__u64 freed;
	__u64 past_epoch;
	__u64 without_lease;
	__u64 refused[SCOT_REFUSAL_COUNT];
	/* what became of frames */
	__u64 frames;
	__u64 scotfree;
	__u64 malformed;
	__u64 forwarded;
	__u64 flooded;
	__u64 dropped_same_port;
	__u64 dropped_source_is_group;
	__u64 dropped_source_is_own;
	__u64 dropped_link_local;
	__u64 unlearnt;
	__u64 moved;
	__u64 passed_up;
	__u64 passed_up_full;   /* the daemon's ring had no room */
	__u64 unwritable;       /* an acknowledgement that could not be made of its clone */
};

/* A station and where it lives. */
struct scot_station_key {
	__u8 mac[6];
	__u16 vlan;
};

struct scot_station {
	__u64 last_seen;        /* CLOCK_MONOTONIC, nanoseconds */
	__u32 ifindex;
	__u32 zero;
};

enum scot_upcall_type {
	SCOT_UPCALL_FRAME = 1,  /* the daemon's to handle: it goes no further here */
	SCOT_UPCALL_NOTICE = 2, /* bridged here; the daemon learns from it who lives where */
	SCOT_UPCALL_ENTRY = 3,  /* an entry that waits for the daemon's disk; no frame */
	SCOT_UPCALL_EVENT = 4,  /* what became of a packet; no frame */
};

/* A record of the ring to the daemon. */
struct scot_upcall {
	__u32 type;
	__u32 ifindex;
	__u64 session;          /* of SCOT_UPCALL_ENTRY */
	__u64 seq_num;          /* of SCOT_UPCALL_ENTRY */
	__u32 frame_bytes;
	__u32 zero;
	__u8 frame[SCOT_FRAME_BYTES_MAX + 6];
};

/* A note without a frame. */
struct scot_entry_note {
	__u32 type;
	__u32 ifindex;
	__u64 session;
	__u64 seq_num;
};

/* What became of one packet. */
struct scot_event {
	__u32 type;
	__u32 ifindex;
	__u64 session;
	__u64 seq_num;
	__u64 at;               /* CLOCK_MONOTONIC, nanoseconds */
	__u8 kind;
	__u8 asked;
	__u8 outcome;           /* enum persist_outcome */
	__u8 zero;
	__u16 packet_bytes;
	__u16 zero_too;
};

_Static_assert(__builtin_offsetof(struct scot_event, at) == 24 &&
		       __builtin_offsetof(struct scot_event, kind) == 32 &&
		       __builtin_offsetof(struct scot_event, packet_bytes) == 36,
	       "the daemon reads it by these offsets");

/* ---- the tables */

extern struct scot_shared scot_shared;

#endif
