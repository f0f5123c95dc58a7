/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The learning bridge: where a frame goes by its stations, as crates/scotfree-switch's bridge decides it. */
#ifndef SCOT_BRIDGE_H
#define SCOT_BRIDGE_H

#include "scot_counters.h"
#include "scot_packet.h"

#define SCOT_STATION_REFRESH_NS 1000000000ULL /* how stale a station's last sight may be */
#define SCOT_STATION_AGE_NS 300000000000ULL   /* how long a silent station is remembered */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct scot_station_key);
	__type(value, struct scot_station);
} scot_stations SEC(".maps");

#define SCOT_STATION_HINT_BITS 6

/* What the table said of a station, while no station has changed. */
struct scot_station_hint {
	__u64 name;    /* its key in the table */
	__u64 seen;    /* it was seen then, or later */
	__u32 ifindex;
	__u32 change;  /* what `stations_change` was before the look */
};

struct scot_station_hints {
	struct scot_station_hint of[1u << SCOT_STATION_HINT_BITS];
};

/* The processor's own, so that none is read while it is written. Not kept: a new program begins without. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scot_station_hints);
} station_hints SEC(".maps");

/* All ports, by ifindex. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, SCOT_PORTS_MAX);
	__type(key, __u32);
	__type(value, struct bpf_devmap_val);
} scot_ports SEC(".maps");

/* Where a frame goes. */
struct scot_way {
	__u32 ifindex; /* 0: out of every port but its ingress */
	bool local;    /* to the device itself */
	bool drop;
};

static __always_inline bool scot_is_group(const __u8 *station)
{
	return station[0] & 1;
}

static __always_inline bool scot_is_own(const __u8 *station)
{
	const __u8 *own = scot_shared.own_mac;

	return station[0] == own[0] && station[1] == own[1] && station[2] == own[2] && station[3] == own[3] &&
	       station[4] == own[4] && station[5] == own[5];
}

/* For the next bridge only. The spanning tree's own address is left out: this bridge does not take part
 * in the tree and must not hide loops from those that do.
 */
static __always_inline bool scot_is_link_local(const __u8 *station)
{
	return station[0] == 0x01 && station[1] == 0x80 && station[2] == 0xc2 && station[3] == 0 &&
	       station[4] == 0 && station[5] >= 1 && station[5] <= 0x0f;
}

static __always_inline __u64 scot_station_name(const struct scot_station_key *station)
{
	__u64 name;

	_Static_assert(sizeof(name) == sizeof(*station), "a station's key is a word");
	__builtin_memcpy(&name, station, sizeof(name));
	return name;
}

/* Where a hint at a station stands, if there are hints. */
static __always_inline struct scot_station_hint *scot_station_hint(struct scot_station_hints *hints, __u64 name)
{
	return hints ? &hints->of[SCOT_HINT(name, SCOT_STATION_HINT_BITS)] : NULL;
}

static __always_inline bool scot_hint_holds(const struct scot_station_hint *hint, __u64 name)
{
	return hint && hint->name == name && hint->change == scot_shared.stations_change;
}

static __always_inline void scot_leave_hint(struct scot_station_hint *hint, __u64 name, __u32 change,
					    const struct scot_station *station)
{
	if (!hint)
		return;
	hint->name = name;
	hint->seen = station->last_seen;
	hint->ifindex = station->ifindex;
	hint->change = change;
}

static __always_inline void scot_learn(const struct scot_context *context, const struct scot_station_key *source,
				       struct scot_station_hints *hints, struct scot_counters *counters)
{
	__u64 name = scot_station_name(source);
	struct scot_station_hint *hint = scot_station_hint(hints, name);
	struct scot_station seen = { .last_seen = context->now, .ifindex = context->ingress };
	__u32 change = *(volatile __u32 *)&scot_shared.stations_change;
	struct scot_station *known;

	if (scot_hint_holds(hint, name) && hint->ifindex == context->ingress &&
	    context->now - hint->seen <= SCOT_STATION_REFRESH_NS)
		return;
	known = bpf_map_lookup_elem(&scot_stations, source);
	if (!known) {
		if (bpf_map_update_elem(&scot_stations, source, &seen, BPF_ANY) != 0)
			counters->unlearnt++;
		else
			__sync_fetch_and_add(&scot_shared.stations_change, 1);
		return;
	}
	if (known->ifindex != context->ingress) {
		counters->moved++;
		known->ifindex = context->ingress;
		__sync_fetch_and_add(&scot_shared.stations_change, 1);
	}
	// Written seldom, so that the processors do not take the line from each other for every frame.
	if (context->now - known->last_seen > SCOT_STATION_REFRESH_NS)
		known->last_seen = context->now;
	scot_leave_hint(hint, name, change, known);
}

static __always_inline void scot_find(const struct scot_context *context, const struct scot_station_key *destination,
				      struct scot_way *way, struct scot_station_hints *hints,
				      struct scot_counters *counters)
{
	__u64 name = scot_station_name(destination);
	struct scot_station_hint *hint = scot_station_hint(hints, name);
	__u32 change = *(volatile __u32 *)&scot_shared.stations_change;
	struct scot_station *known;

	if (scot_hint_holds(hint, name) && context->now - hint->seen < SCOT_STATION_AGE_NS) {
		way->ifindex = hint->ifindex;
	} else {
		known = bpf_map_lookup_elem(&scot_stations, destination);
		if (!known || context->now - known->last_seen >= SCOT_STATION_AGE_NS)
			return;
		way->ifindex = known->ifindex;
		scot_leave_hint(hint, name, change, known);
	}
	if (way->ifindex == context->ingress) {
		counters->dropped_same_port++;
		way->drop = true;
	}
}

/* Learns from a frame and says where it goes. */
static __always_inline struct scot_way scot_bridge(struct xdp_md *frame, const struct scot_context *context,
						   struct scot_counters *counters)
{
	struct ethhdr *ethernet = scot_data(frame);
	struct scot_way way = {};
	struct scot_station_key source = { .vlan = context->vlan }, destination = { .vlan = context->vlan };
	struct scot_station_hints *hints;
	__u32 first = 0;

	way.drop = true;
	if ((void *)(ethernet + 1) > scot_data_end(frame)) {
		counters->malformed++;
		return way;
	}
	__builtin_memcpy(source.mac, ethernet->h_source, ETH_ALEN);
	__builtin_memcpy(destination.mac, ethernet->h_dest, ETH_ALEN);
	if (scot_is_group(source.mac)) {
		counters->dropped_source_is_group++;
		return way;
	}
	if (scot_is_own(source.mac)) {
		counters->dropped_source_is_own++;
		return way;
	}
	hints = bpf_map_lookup_elem(&station_hints, &first);
	scot_learn(context, &source, hints, counters);
	if (scot_is_link_local(destination.mac)) {
		counters->dropped_link_local++;
		return way;
	}
	way.drop = false;
	way.local = scot_is_own(destination.mac);
	if (!way.local && !scot_is_group(destination.mac))
		scot_find(context, &destination, &way, hints, counters);
	return way;
}

/* Sends a frame on its way. */
static __always_inline int scot_forward(const struct scot_way *way, struct scot_counters *counters)
{
	if (way->local)
		return XDP_DROP;
	if (way->ifindex != 0) {
		counters->forwarded++;
		return bpf_redirect_map(&scot_ports, way->ifindex, 0);
	}
	counters->flooded++;
	return bpf_redirect_map(&scot_ports, 0, BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS);
}

#endif
