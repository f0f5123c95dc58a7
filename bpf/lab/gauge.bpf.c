// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The lab's own programs: one that sends a request back to where it came from, with what that needs at the other
 * end of the cable, one that keeps a device's updates from a server, one that plays frames into the device's program,
 * and one where what leaves the device ends.
 *
 * Invariant: at the device no frame goes up to the host's stack; every frame is counted.
 */
#include "scot_packet.h"

#define GAUGE_KINDS_MAX 32
#define GAUGE_FRAME_BYTES_MAX 256

/* What one of the programs has seen; one per CPU. */
struct gauge_counters {
	__u64 reflected;
	__u64 dropped;                /* by the reflection, as not reflectable */
	__u64 played;
	__u64 passed;                 /* at the client's end, to its host */
	__u64 stamped;                /* updates with an order number that came to an end */
	__u64 ended[GAUGE_KINDS_MAX]; /* packets that came to an end, by kind; 0: not ours */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gauge_counters);
} gauge_counters SEC(".maps");

/* A packet in a frame without a VLAN tag, in IPv4 without options. */
struct gauge_frame {
	struct ethhdr ethernet;
	struct iphdr ip;
	struct udphdr udp;
	struct scot_header header;
} __attribute__((packed));

static __always_inline struct gauge_frame *gauge_frame(struct xdp_md *context)
{
	struct gauge_frame *frame = scot_data(context);

	if ((void *)(frame + 1) > scot_data_end(context))
		return NULL;
	return frame->ethernet.h_proto == bpf_htons(ETH_P_IP) && frame->ip.version == 4 && frame->ip.ihl == 5 &&
			       frame->ip.protocol == IPPROTO_UDP && frame->header.magic == SCOT_MAGIC ? frame : NULL;
}

static __always_inline struct gauge_counters *gauge_count(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&gauge_counters, &first);
}

/* ---- the floor: an answer without a device */

static __always_inline void gauge_turn_back(struct gauge_frame *frame)
{
	__u8 station[ETH_ALEN];
	__be32 address = frame->ip.saddr;
	__be16 port = frame->udp.source;

	__builtin_memcpy(station, frame->ethernet.h_dest, ETH_ALEN);
	__builtin_memcpy(frame->ethernet.h_dest, frame->ethernet.h_source, ETH_ALEN);
	__builtin_memcpy(frame->ethernet.h_source, station, ETH_ALEN);
	frame->ip.saddr = frame->ip.daddr;
	frame->ip.daddr = address;
	frame->udp.source = frame->udp.dest;
	frame->udp.dest = port;
}

SEC("xdp")
int gauge_reflect(struct xdp_md *context)
{
	struct gauge_frame *frame = gauge_frame(context);
	struct gauge_counters *counters = gauge_count();

	if (!counters)
		return XDP_ABORTED;
	if (!frame || frame->header.kind != SCOT_KIND_UPDATE) {
		counters->dropped++;
		return XDP_DROP;
	}
	gauge_turn_back(frame);
	counters->reflected++;
	return XDP_TX;
}

/* A cable takes what a reflection sends back only where some program stands at its other end. */
SEC("xdp")
int gauge_pass(struct xdp_md *context)
{
	struct gauge_counters *counters = gauge_count();

	if (counters)
		counters->passed++;
	return XDP_PASS;
}

/* ---- frames played into the device's program */

/* The device's program. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} gauge_device SEC(".maps");

struct gauge_room {
	__u8 bytes[GAUGE_FRAME_BYTES_MAX];
};

/* The frames. How many there is room for, the lab says before it loads. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gauge_room);
} gauge_frames SEC(".maps");

/* How far a run has come. */
struct gauge_run {
	__u32 next;
	__u32 count; /* of its frames */
	__u64 begin; /* CLOCK_MONOTONIC in nanoseconds, when the first was taken */
	__u64 end;   /* when one was asked for that is not there */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gauge_run);
} gauge_run SEC(".maps");

static __always_inline bool gauge_write_next(struct xdp_md *context, struct gauge_run *run)
{
	__u64 bytes = scot_data_end(context) - scot_data(context);
	struct gauge_room *room = bpf_map_lookup_elem(&gauge_frames, &run->next);

	// The compiler would fold the next steps into one that is not allowed with pointers.
	asm volatile("" : "+r"(bytes));
	if (!room || !scot_bound(&bytes, sizeof(room->bytes)))
		return false;
	run->next++;
	return bpf_xdp_store_bytes(context, 0, room->bytes, bytes) == 0;
}

/* Writes the next frame over the one that it is given, which is as long, and hands it to the device if there is one. */
SEC("xdp")
int gauge_play(struct xdp_md *context)
{
	struct gauge_counters *counters = gauge_count();
	__u32 first = 0;
	struct gauge_run *run = bpf_map_lookup_elem(&gauge_run, &first);

	if (!counters || !run)
		return XDP_ABORTED;
	if (run->next == run->count) {
		run->end = bpf_ktime_get_ns();
		return XDP_DROP;
	}
	if (run->next == 0)
		run->begin = bpf_ktime_get_ns();
	if (!gauge_write_next(context, run))
		return XDP_ABORTED;
	counters->played++;
	bpf_tail_call(context, &gauge_device, 0);
	return XDP_DROP;
}

/* ---- the end of what leaves the device */

static __always_inline bool gauge_is_stamped(struct xdp_md *context, const struct gauge_frame *frame)
{
	const struct scot_stamp *stamp = (const void *)(frame + 1);

	return (const void *)(stamp + 1) <= scot_data_end(context) &&
	       frame->header.kind == SCOT_KIND_UPDATE && stamp->kind == SCOT_STAMP_KIND_ORDER;
}

SEC("xdp")
int gauge_end(struct xdp_md *context)
{
	struct gauge_frame *frame = gauge_frame(context);
	struct gauge_counters *counters = gauge_count();

	if (!counters)
		return XDP_ABORTED;
	if (frame) {
		counters->ended[frame->header.kind & (GAUGE_KINDS_MAX - 1)]++;
		counters->stamped += gauge_is_stamped(context, frame);
	} else {
		counters->ended[0]++;
	}
	return XDP_DROP;
}

/* ---- a server that is left alone */

/* The updates that the device sends on end here; all else, such as leases and the opening of sessions, the server has. */
SEC("xdp")
int gauge_take(struct xdp_md *context)
{
	struct gauge_frame *frame = gauge_frame(context);
	struct gauge_counters *counters = gauge_count();

	if (!counters)
		return XDP_ABORTED;
	if (frame && gauge_is_stamped(context, frame)) {
		counters->stamped++;
		return XDP_DROP;
	}
	counters->passed++;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
