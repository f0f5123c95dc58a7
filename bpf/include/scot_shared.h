/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What the programs in the kernel and the daemon share, whichever functions the device has. The daemon's Rust
 * types are made from the type information of the compiled object, so this is the one place where they are
 * written down; what a function shares with its own half in the daemon stands in that function's folder.
 *
 * Invariants:
 * - A session's fields behind its lock change only under the lock, or, while it is held, by the daemon.
 * - `version` lies where it lay in every layout, so that another one can be refused by its number.
 */
#ifndef SCOT_SHARED_H
#define SCOT_SHARED_H

#include "scotfree_wire.h"
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>

#define SCOT_SHARED_VERSION 3u
#define SCOT_SESSIONS_MAX 1024u
#define SCOT_PORTS_MAX 16u
#define SCOT_SERVERS_MAX 16u
#define SCOT_SESSION_ROOM 4u /* words of a session that its places' keeper may use */
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

/* One of the servers behind the device. Each has an order, an epoch and a lease of its own. */
struct scot_server {
	__u64 order_current;    /* the last order number given; only ever added to atomically */
	__u64 lease_until;      /* CLOCK_MONOTONIC in nanoseconds; acknowledged only before */
	struct scot_address address;
	__u32 epoch;            /* the largest that has polled the device */
	__u32 ifindex;          /* behind which port it lives; 0 if that is not known */
	__u8 accepted;          /* whether it has accepted the device's boot epoch */
	__u8 zero[3];
	__u32 heard_epoch;      /* the largest under which it has said anything to the device; answers bear it */
	__u8 more_zero[8];
};

_Static_assert(sizeof(struct scot_server) == 64, "a cache line");

/* What holds for the whole device. Written by the daemon, but for the servers' `order_current`. */
struct scot_shared {
	struct scot_key stamp_key;
	__u32 version;          /* SCOT_SHARED_VERSION; 0: nobody has written it */
	__u32 boot_epoch;       /* this device's incarnation */
	__u32 boot_seen;        /* the largest boot epoch seen in a stamp */
	__u16 device;           /* its name */
	__u8 head;              /* whether it gives order numbers */
	__u8 media;             /* the durability that its domains can give, a bit set */
	__u16 port_first;       /* of Scotfree's UDP ports */
	__u16 port_last;
	__u32 event_every;      /* of so many of Scotfree's packets one is told of; 0: none */
	__u32 server_count;
	__u32 stations_change;  /* goes up when a station is learnt, moves or is forgotten */
	struct scot_address control;
	__u8 own_mac[8];        /* six bytes of the device's own station address */
	__u64 zero[6];
	__u32 ports[SCOT_PORTS_MAX]; /* ifindexes; where one stands is its port's place as long as it is a port */
	struct scot_server servers[SCOT_SERVERS_MAX];
	__u32 held[SCOT_SESSIONS_MAX]; /* not 0: the daemon is changing this session; pass its packets up */
};

_Static_assert(__builtin_offsetof(struct scot_shared, version) == 16, "as in every layout");
_Static_assert(__builtin_offsetof(struct scot_shared, servers) == 192, "servers begin a cache line");

/* By what a session is found: two servers may give the same id. */
struct scot_session_name {
	__u64 id;
	__u32 server;           /* its place among the servers */
	__u32 zero;
};

/* What the kernel knows of one session. */
struct scot_session {
	struct bpf_spin_lock lock;
	__u32 index;            /* its place in the tables and in `held` */
	__u64 id;               /* 0: nobody's */
	__u64 next;             /* the only seq_num that is admitted */
	__u64 last_write;       /* the last write admitted */
	__u64 heard_at;         /* when its client last spoke under its keys, CLOCK_MONOTONIC */
	__u64 room[SCOT_SESSION_ROOM]; /* the keeper's of its places */
	struct scot_address client;
	__u32 window;           /* its credit and the number of its places */
	__u32 slot_first;       /* its places are slot_first .. slot_first + window */
	__u32 epoch;            /* in which it was opened */
	__u32 client_ifindex;   /* the port that its requests come in by */
	__u32 server;           /* its place among the servers */
	__u8 client_port;       /* that port's place among the ports */
	__u8 closing;           /* nothing new is logged or acknowledged */
	__u8 confirmed;         /* its client has spoken under its keys */
	__u8 zero;
	struct scot_key client_to_server;
	struct scot_key server_to_client;
	struct scot_key device_to_client;
	__u8 client_nonce[16];
	__u8 server_nonce[16];
};

/* What was counted whichever functions are on; one per CPU. The first are the device machine's own counters, under its
 * names: requests = admitted + unadmitted + duplicate + bad.
 */
struct scot_counters {
	__u64 requests;
	__u64 admitted;
	__u64 unadmitted;
	__u64 duplicate;
	__u64 bad;
	__u64 past_epoch;
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
	__u64 answered;         /* requests that a function answered instead of the server */
	__u64 unwritable;       /* an answer that could not be made */
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
	__u32 server;           /* whose session it is, as the daemon counts them */
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
	__u8 outcome;           /* enum scot_verdict */
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
