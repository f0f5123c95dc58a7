// SPDX-License-Identifier: Apache-2.0 OR MIT
/* An endpoint that bypasses its host's network stack: what comes for its UDP port goes to its AF_XDP socket.
 *
 * Invariant: whatever else comes (questions for addresses, other ports, other protocols) goes to the host as if no
 * program stood here.
 */
#include "scot_packet.h"

/* The port, in network byte order; 0 until the endpoint has said it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __be16);
} endpoint_port SEC(".maps");

/* The socket, of the only queue. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} endpoint_socket SEC(".maps");

/* IPv4 without options and without a VLAN tag. */
struct endpoint_frame {
	struct ethhdr ethernet;
	struct iphdr ip;
	struct udphdr udp;
} __attribute__((packed));

static __always_inline bool endpoint_is_ours(struct xdp_md *context)
{
	struct endpoint_frame *frame = scot_data(context);
	__u32 first = 0;
	__be16 *port = bpf_map_lookup_elem(&endpoint_port, &first);

	if (!port || (void *)(frame + 1) > scot_data_end(context))
		return false;
	return frame->ethernet.h_proto == bpf_htons(ETH_P_IP) && frame->ip.version == 4 && frame->ip.ihl == 5 &&
	       frame->ip.protocol == IPPROTO_UDP && !(frame->ip.frag_off & bpf_htons(SCOT_IP_FRAGMENT_MASK)) &&
	       frame->udp.dest == *port;
}

SEC("xdp")
int endpoint_steer(struct xdp_md *context)
{
	return endpoint_is_ours(context) ?
		       bpf_redirect_map(&endpoint_socket, context->rx_queue_index, XDP_PASS) : XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
