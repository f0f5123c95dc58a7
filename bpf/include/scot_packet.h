/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A frame as the device functions see it: where its parts lie and between whom it travels.
 *
 * Invariant: offsets are only ever those of Ethernet with at most one VLAN tag, IPv4 without options
 * or IPv6 without extension headers, and UDP; everything else is not looked into here.
 */
#ifndef SCOT_PACKET_H
#define SCOT_PACKET_H

#include "scot_shared.h"
#include "scotfree_wire.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#define SCOT_VLAN_HEADER_BYTES 4
#define SCOT_VLAN_ID_MASK 0x0fff
#define SCOT_IP_FRAGMENT_MASK 0x3fff /* more fragments, and the offset */

/* What follows the ethertype of a tagged frame. */
struct scot_vlan_header {
	__be16 control;
	__be16 ethertype;
};

/* Where a packet of Scotfree's is on its way, if that concerns the device. */
enum scot_direction {
	SCOT_PASSING,           /* between others */
	SCOT_TO_SERVER,         /* a request to one of the device's servers */
	SCOT_FROM_SERVER,       /* of one of them */
};

/* What place a request has in its session. */
enum scot_place {
	SCOT_PLACE_NONE,        /* none that is known here */
	SCOT_PLACE_NEXT,        /* the next; it has just taken it */
	SCOT_PLACE_SEEN,        /* it was seen before, or came late */
};

/* What is known of the frame under way. Functions get it by reference; it has no padding. */
struct scot_context {
	__u32 ingress;          /* ifindex */
	__u16 network_at;       /* offset of the IP header */
	__u16 udp_at;           /* offset of the UDP header; 0 if there is none */
	__u16 packet_at;        /* offset of Scotfree's packet; 0 if there is none */
	__u16 packet_bytes;     /* its size, as UDP states it */
	__u16 vlan;             /* the virtual network, 0 without a tag */
	__u16 ethertype;        /* in host order, behind the tag */
	struct scot_address source;
	struct scot_address destination;
	__u64 now;              /* CLOCK_MONOTONIC, nanoseconds */
	/* of a packet of Scotfree's */
	__u32 server;           /* whose it is, if its direction says that it is a server's */
	__u32 session;          /* of an authentic request: its session's place in the table */
	__u32 slot;             /* of one that has a place: where that lies among all places */
	__u16 pair;             /* the ports that it and its answer leave by, among the pairs */
	__u8 direction;         /* enum scot_direction */
	__u8 kind;              /* as its header says */
	__u8 asked;             /* the durability, as its header says */
	__u8 place;             /* enum scot_place */
	__u8 logs;              /* its place is its keeper's to fill with an entry */
	__u8 granted;           /* the durability that may be acknowledged now */
	__u32 unanswerable;     /* a function would have answered it, and its frame had no room for that */
	struct scot_stamp stamp; /* of one that has a place; its kind is NONE if that is forgotten */
};

static __always_inline void *scot_data(struct xdp_md *frame)
{
	return (void *)(long)frame->data;
}

static __always_inline void *scot_data_end(struct xdp_md *frame)
{
	return (void *)(long)frame->data_end;
}

/* What lies `offset` bytes into the frame; every header begins below 128. The verifier must see the bound,
 * which the compiler would take away where it knows better.
 */
static __always_inline void *scot_at(struct xdp_md *frame, __u64 offset)
{
	asm volatile("%0 &= 127" : "+r"(offset));
	return scot_data(frame) + offset;
}

/* Whether `bytes` is between 1 and `max`. Verifiers before Linux 6.10 bound only the register that is compared,
 * and the compiler would compare another than the one that it uses: so the bounded one is made here.
 */
static __always_inline bool scot_bound(__u64 *bytes, __u64 max)
{
	__u64 last = *bytes - 1;

	asm volatile("" : "+r"(last));
	if (last >= max)
		return false;
	asm volatile("" : "+r"(last));
	*bytes = last + 1;
	return true;
}

static __always_inline bool scot_address_is(const struct scot_address *one, const struct scot_address *other)
{
	return one->ip[0] == other->ip[0] && one->ip[1] == other->ip[1] && one->port == other->port;
}

/* In which of 2^bits places a name's hint stands (Knuth's multiplicative hash). */
#define SCOT_HINT(name, bits) ((__u64)(name) * 0x9e3779b97f4a7c15ULL >> (64 - (bits)))

/* ---- the Internet checksum (RFC 1071), of words that lie in a frame or on the stack; sizes are known when this
 * is compiled, multiples of four. The helper of the kernel costs more than these few additions.
 */

static __always_inline __u64 scot_sum(const void *data, __u32 bytes)
{
	const __u32 *words = data;
	__u64 sum = 0;

#pragma clang loop unroll(full)
	for (__u32 i = 0; i < bytes / sizeof(*words); i++)
		sum += words[i];
	return sum;
}

/* What takes the words out of a sum again. */
static __always_inline __u64 scot_sum_without(const void *data, __u32 bytes)
{
	return bytes / sizeof(__u32) * 0xffffffffULL - scot_sum(data, bytes);
}

static __always_inline __u16 scot_fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* 0 would say that there is none. */
static __always_inline __u16 scot_udp_checksum(__u64 sum)
{
	__u16 folded = scot_fold(sum);

	return folded ? folded : 0xffff;
}

/* An IPv4 address in the form of IPv6, as `SocketAddr` is kept in the shared tables. */
static __always_inline void scot_set_ipv4(struct scot_address *address, __be32 ip)
{
	address->ip[0] = 0;
	address->ip[1] = (__u64)bpf_htonl(0xffff) | (__u64)ip << 32;
}

/* The link layer: ethertype, virtual network, where the network layer begins. False if the frame is
 * too short to have one.
 */
static __always_inline bool scot_parse_link(struct xdp_md *frame, struct scot_context *context)
{
	struct ethhdr *ethernet = scot_data(frame);
	void *end = scot_data_end(frame);

	if ((void *)(ethernet + 1) > end)
		return false;
	context->network_at = sizeof(*ethernet);
	context->ethertype = bpf_ntohs(ethernet->h_proto);
	context->vlan = 0;
	if (context->ethertype == ETH_P_8021Q) {
		struct scot_vlan_header *tag = (void *)(ethernet + 1);

		if ((void *)(tag + 1) > end)
			return false;
		context->vlan = bpf_ntohs(tag->control) & SCOT_VLAN_ID_MASK;
		context->ethertype = bpf_ntohs(tag->ethertype);
		context->network_at += SCOT_VLAN_HEADER_BYTES;
	}
	return true;
}

enum scot_transport {
	SCOT_TRANSPORT_OTHER,      /* not UDP */
	SCOT_TRANSPORT_UDP,        /* UDP; the offsets and addresses are set */
	SCOT_TRANSPORT_UNREADABLE, /* UDP in a form that is left to the daemon: options, a fragment */
};

static __always_inline enum scot_transport scot_parse_ipv4(struct xdp_md *frame, struct scot_context *context)
{
	struct iphdr *ip = scot_at(frame, context->network_at);

	if ((void *)(ip + 1) > scot_data_end(frame) || ip->protocol != IPPROTO_UDP)
		return SCOT_TRANSPORT_OTHER;
	if (ip->version != 4 || ip->ihl != 5 || ip->frag_off & bpf_htons(SCOT_IP_FRAGMENT_MASK))
		return SCOT_TRANSPORT_UNREADABLE;
	scot_set_ipv4(&context->source, ip->saddr);
	scot_set_ipv4(&context->destination, ip->daddr);
	context->udp_at = context->network_at + sizeof(*ip);
	context->packet_bytes = bpf_ntohs(ip->tot_len) - sizeof(*ip);
	return SCOT_TRANSPORT_UDP;
}

static __always_inline enum scot_transport scot_parse_ipv6(struct xdp_md *frame, struct scot_context *context)
{
	struct ipv6hdr *ip = scot_at(frame, context->network_at);

	if ((void *)(ip + 1) > scot_data_end(frame) || ip->nexthdr != IPPROTO_UDP)
		return SCOT_TRANSPORT_OTHER;
	if (ip->version != 6)
		return SCOT_TRANSPORT_UNREADABLE;
	__builtin_memcpy(context->source.ip, &ip->saddr, sizeof(context->source.ip));
	__builtin_memcpy(context->destination.ip, &ip->daddr, sizeof(context->destination.ip));
	context->udp_at = context->network_at + sizeof(*ip);
	context->packet_bytes = bpf_ntohs(ip->payload_len);
	return SCOT_TRANSPORT_UDP;
}

static __always_inline bool scot_is_ours(__u16 port)
{
	return port >= scot_shared.port_first && port <= scot_shared.port_last;
}

/* Network and transport layer. `packet_at` is set if this is one of Scotfree's: a datagram from or to
 * one of its ports that bears its mark.
 */
static __always_inline enum scot_transport scot_parse_transport(struct xdp_md *frame, struct scot_context *context)
{
	enum scot_transport transport = SCOT_TRANSPORT_OTHER;
	struct udphdr *udp;
	__le32 *magic;

	if (context->ethertype == ETH_P_IP)
		transport = scot_parse_ipv4(frame, context);
	else if (context->ethertype == ETH_P_IPV6)
		transport = scot_parse_ipv6(frame, context);
	if (transport != SCOT_TRANSPORT_UDP)
		return transport;
	udp = scot_at(frame, context->udp_at);
	magic = (void *)(udp + 1);
	if ((void *)(magic + 1) > scot_data_end(frame))
		return transport;
	context->source.port = bpf_ntohs(udp->source);
	context->destination.port = bpf_ntohs(udp->dest);
	if (*magic != SCOT_MAGIC || !(scot_is_ours(context->source.port) || scot_is_ours(context->destination.port)))
		return transport;
	if (bpf_ntohs(udp->len) != context->packet_bytes)
		return SCOT_TRANSPORT_UNREADABLE;
	context->packet_at = context->udp_at + sizeof(*udp);
	context->packet_bytes -= sizeof(*udp);
	return transport;
}

#endif
