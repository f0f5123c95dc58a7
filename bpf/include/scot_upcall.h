/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The way to the daemon: frames that are its to handle, and copies from which it learns who lives where.
 *
 * Invariant: the ring is bounded; what finds no room in it is counted.
 */
#ifndef SCOT_UPCALL_H
#define SCOT_UPCALL_H

#include "scot_bridge.h"
#include <linux/icmpv6.h>

#define SCOT_NEIGHBOUR_SOLICITATION 135
#define SCOT_NEIGHBOUR_ADVERTISEMENT 136
#define SCOT_ARP_BYTES 28
#define SCOT_ARP_TARGET_AT 24

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} scot_upcalls SEC(".maps");

static __always_inline bool scot_pass_up(struct xdp_md *frame, const struct scot_context *context,
					 enum scot_upcall_type type, struct scot_counters *counters)
{
	__u64 bytes = frame->data_end - frame->data;
	struct scot_upcall *upcall;

	if (!scot_bound(&bytes, SCOT_FRAME_BYTES_MAX))
		return false;
	upcall = bpf_ringbuf_reserve(&scot_upcalls, sizeof(*upcall), 0);
	if (!upcall) {
		counters->passed_up_full++;
		return false;
	}
	upcall->type = type;
	upcall->ifindex = context->ingress;
	upcall->frame_bytes = bytes;
	if (bpf_xdp_load_bytes(frame, 0, upcall->frame, bytes) != 0) {
		bpf_ringbuf_discard(upcall, 0);
		return false;
	}
	bpf_ringbuf_submit(upcall, 0);
	counters->passed_up++;
	return true;
}

/* Tells the daemon of an entry that waits for its disk. If the ring is full the daemon finds the entry when
 * it next looks through the log.
 */
static __always_inline void scot_tell(struct xdp_md *frame, const struct scot_context *context,
				      struct scot_counters *counters)
{
	struct scot_header *header = scot_at(frame, context->packet_at);
	struct scot_entry_note note = { .type = SCOT_UPCALL_ENTRY, .server = context->server };

	if ((void *)(header + 1) > scot_data_end(frame))
		return;
	note.session = header->session;
	note.seq_num = header->seq_num;
	if (bpf_ringbuf_output(&scot_upcalls, &note, sizeof(note), 0) != 0)
		counters->passed_up_full++;
}

/* Tells the daemon what became of a packet. A full ring costs only the telling. A function of its own, which
 * the verifier looks at once and not with every way that leads to it.
 */
__noinline int scot_tell_outcome(struct xdp_md *frame, const struct scot_context *context, __u32 outcome)
{
	struct scot_event event = { .type = SCOT_UPCALL_EVENT, .outcome = outcome };
	struct scot_header *header;

	if (!context)
		return 0;
	header = scot_at(frame, context->packet_at);
	if ((void *)(header + 1) > scot_data_end(frame))
		return 0;
	event.ifindex = context->ingress;
	event.session = header->session;
	event.seq_num = header->seq_num;
	event.at = context->now;
	event.kind = header->kind;
	event.asked = header->durability_asked;
	event.packet_bytes = context->packet_bytes;
	return bpf_ringbuf_output(&scot_upcalls, &event, sizeof(event), 0);
}

static __always_inline void scot_sample(struct xdp_md *frame, const struct scot_context *context, __u32 outcome,
					const struct scot_counters *counters)
{
	__u32 every = scot_shared.event_every;

	if (every != 0 && counters->scotfree % every == 0)
		scot_tell_outcome(frame, context, outcome);
}

/* Whether a frame tells who lives where: ARP, and its like in IPv6. */
static __always_inline bool scot_tells_addresses(struct xdp_md *frame, const struct scot_context *context)
{
	struct ipv6hdr *ip = scot_at(frame, context->network_at);
	struct icmp6hdr *message = (void *)(ip + 1);

	if (context->ethertype == ETH_P_ARP)
		return true;
	if (context->ethertype != ETH_P_IPV6 || (void *)(message + 1) > scot_data_end(frame))
		return false;
	return ip->nexthdr == IPPROTO_ICMPV6 && (message->icmp6_type == SCOT_NEIGHBOUR_SOLICITATION ||
						 message->icmp6_type == SCOT_NEIGHBOUR_ADVERTISEMENT);
}

/* Whether it is about the device's own address, for which the daemon answers. */
static __always_inline bool scot_is_about_control(struct xdp_md *frame, const struct scot_context *context)
{
	void *network = scot_at(frame, context->network_at);
	struct scot_address target = { .port = scot_shared.control.port };

	if (context->ethertype == ETH_P_ARP) {
		__be32 *wanted = network + SCOT_ARP_TARGET_AT;

		if ((void *)(wanted + 1) > scot_data_end(frame))
			return false;
		scot_set_ipv4(&target, *wanted);
	} else {
		__u64 *wanted = network + sizeof(struct ipv6hdr) + sizeof(struct icmp6hdr);

		if ((void *)(wanted + 2) > scot_data_end(frame))
			return false;
		target.ip[0] = wanted[0];
		target.ip[1] = wanted[1];
	}
	return scot_address_is(&target, &scot_shared.control);
}

static __always_inline int scot_on_address(struct xdp_md *frame, const struct scot_context *context,
					   const struct scot_way *way, struct scot_counters *counters)
{
	if (way->local || scot_is_about_control(frame, context)) {
		scot_pass_up(frame, context, SCOT_UPCALL_FRAME, counters);
		return XDP_DROP;
	}
	scot_pass_up(frame, context, SCOT_UPCALL_NOTICE, counters);
	return scot_forward(way, counters);
}

/* Whether a datagram in a form that is not read here bears one of our ports. A later fragment of one has
 * no ports; it is bridged, and its packet never whole at a device, as in the daemon.
 */
static __always_inline bool scot_may_be_ours(struct xdp_md *frame, const struct scot_context *context)
{
	struct iphdr *ip = scot_at(frame, context->network_at);

	if (context->ethertype != ETH_P_IP || (void *)(ip + 1) > scot_data_end(frame))
		return context->ethertype == ETH_P_IPV6;
	return (ip->frag_off & bpf_htons(SCOT_IP_FRAGMENT_MASK)) == 0;
}

#endif
