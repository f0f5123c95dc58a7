/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Servers and sessions, which packets are authentic, and stamps: what holds for every function of the device.
 *
 * Invariant: a packet is authentic only under the key of the session that it names and of the way that it goes.
 */
#ifndef SCOT_SESSION_H
#define SCOT_SESSION_H

#include "scot_check.h"
#include "scot_siphash.h"

#define SCOT_MAC_OFFSET __builtin_offsetof(struct scot_header, mac)
#define SCOT_STAMP_BODY_BYTES __builtin_offsetof(struct scot_stamp, mac)
#define SCOT_WORDS_MAX ((SCOT_PACKET_BYTES_MAX - sizeof(struct scot_header)) / 8 + 1)
#define SCOT_SERVER_NONE SCOT_SERVERS_MAX

_Static_assert(SCOT_PACKET_BYTES_MAX < 2048, "an offset into a packet is masked with 2047");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SCOT_SESSIONS_MAX);
	__type(key, struct scot_session_name);
	__type(value, __u32);
} scot_session_index SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SCOT_SESSIONS_MAX);
	__type(key, __u32);
	__type(value, struct scot_session);
} scot_sessions SEC(".maps");

#define SCOT_SESSION_HINT_BITS 10

__u32 scot_session_hints[1u << SCOT_SESSION_HINT_BITS];

/* ---- servers */

/* Which of the servers behind the first has this address. A function of its own, for the verifier. */
__noinline int scot_other_server_at(const struct scot_address *address)
{
	__u32 count = scot_shared.server_count;

	if (!address)
		return SCOT_SERVER_NONE;
#pragma clang loop unroll(disable)
	for (__u32 place = 1; place < SCOT_SERVERS_MAX && place < count; place++)
		if (scot_address_is(address, &scot_shared.servers[place].address))
			return place;
	return SCOT_SERVER_NONE;
}

/* The server that has this address: its place, or SCOT_SERVER_NONE. Most devices have one. */
static __always_inline __u32 scot_server_at(const struct scot_address *address)
{
	__u32 count = scot_shared.server_count;

	if (count != 0 && scot_address_is(address, &scot_shared.servers[0].address))
		return 0;
	return count > 1 ? scot_other_server_at(address) : SCOT_SERVER_NONE;
}

static __always_inline struct scot_server *scot_server(__u32 place)
{
	asm volatile("" : "+r"(place));
	return &scot_shared.servers[place & (SCOT_SERVERS_MAX - 1)];
}

/* ---- sessions */

static __always_inline struct scot_session *scot_session_by_index(__u32 index)
{
	return bpf_map_lookup_elem(&scot_sessions, &index);
}

/* The session that a server has given this id. Where a look into the index has found one is kept, by its id; it is
 * never more than a hint, for the entry itself says whose it is.
 */
static __always_inline struct scot_session *scot_session(__u32 server, __u64 id)
{
	struct scot_session_name name = { .id = id, .server = server };
	__u32 *hint = &scot_session_hints[SCOT_HINT(id, SCOT_SESSION_HINT_BITS)];
	struct scot_session *session = scot_session_by_index(*hint);
	__u32 *index;

	// Nobody's entry has the id 0.
	if (id != 0 && session && session->id == id && session->server == server)
		return session;
	index = bpf_map_lookup_elem(&scot_session_index, &name);
	if (!index)
		return NULL;
	*hint = *index;
	return scot_session_by_index(*index);
}

/* Under the session's lock. */
static __always_inline bool scot_is_held(const struct scot_session *session)
{
	return scot_shared.held[session->index & (SCOT_SESSIONS_MAX - 1)] != 0;
}

/* Whether a request comes from another address than its session's client, or by another port. */
static __always_inline bool scot_is_elsewhere(const struct scot_session *session, const struct scot_context *context)
{
	return !scot_address_is(&context->source, &session->client) ||
	       (session->client_ifindex != 0 && session->client_ifindex != context->ingress);
}

/* ---- authenticity (rule 14) */

/* A key, and the MAC that was made with it. */
struct scot_mac {
	struct scot_key key;
	__u64 mac;
};

/* The MAC that a packet should bear: over its header up to the MAC and over what lies from `body_at` on. Not 0 if
 * it could be made. A function of its own, which the verifier looks at once and not with every way that leads
 * to it.
 */
__noinline int scot_packet_mac(struct xdp_md *frame, __u32 packet_at, __u32 bytes, __u32 body_at,
			       struct scot_mac *made)
{
	void *packet = scot_at(frame, packet_at);
	void *end = scot_data_end(frame);
	__u64 body = body_at & 127;
	struct scot_sip sip;
	__u64 *word = packet;
	__u64 rest = 0;
	__u32 words;

	if (!made || bytes < body || bytes > SCOT_PACKET_BYTES_MAX || (void *)(word + 8) > end)
		return 0;
	scot_sip_start(&sip, &made->key);
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < SCOT_MAC_OFFSET / 8; i++)
		scot_sip_word(&sip, word[i]);
	word = packet + body;
	words = (bytes - body) / 8;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < SCOT_WORDS_MAX; i++) {
		if (i >= words || (void *)(word + 1) > end)
			break;
		scot_sip_word(&sip, *word);
		word++;
	}
	if (bytes % 8) {
		__u64 last_at = bytes - 8;
		__u64 *last;

		// The size was checked above; Linux 6.1's verifier has forgotten it here.
		asm volatile("%0 &= 2047" : "+r"(last_at));
		last = packet + last_at;
		if ((void *)(last + 1) > end)
			return 0;
		rest = *last >> (64 - bytes % 8 * 8);
	}
	made->mac = scot_sip_end(&sip, rest, SCOT_MAC_OFFSET + bytes - body);
	return 1;
}

static __always_inline bool scot_is_authentic(struct xdp_md *frame, const struct scot_context *context, __u32 body_at,
					      const struct scot_key *key)
{
	struct scot_mac made = { .key = *key };
	struct scot_header *header;

	if (!scot_packet_mac(frame, context->packet_at, context->packet_bytes, body_at, &made))
		return false;
	header = scot_at(frame, context->packet_at);
	return (void *)(header + 1) <= scot_data_end(frame) && header->mac == made.mac;
}

/* ---- stamps */

static __always_inline __u64 scot_stamp_mac(const struct scot_stamp *stamp, __u64 session, __u64 seq_num)
{
	const __u64 *body = (const void *)stamp;
	struct scot_sip sip;

	scot_sip_start(&sip, &scot_shared.stamp_key);
	scot_sip_word(&sip, body[0]);
	scot_sip_word(&sip, body[1]);
	scot_sip_word(&sip, body[2]);
	scot_sip_word(&sip, session);
	scot_sip_word(&sip, seq_num);
	return scot_sip_end(&sip, 0, SCOT_STAMP_BODY_BYTES + 16);
}

/* Writes a stamp into its request. The UDP checksum is changed by what the stamp changes. */
static __always_inline bool scot_write_stamp(struct xdp_md *frame, const struct scot_context *context)
{
	const struct scot_stamp *stamp = &context->stamp;
	struct udphdr *udp = scot_at(frame, context->udp_at);
	struct scot_header *header = (void *)(udp + 1);
	struct scot_stamp *room = (void *)(header + 1);

	if ((void *)(room + 1) > scot_data_end(frame))
		return false;
	if (udp->check != 0) {
		__u64 sum = (__u16)~udp->check;

		sum += scot_sum(stamp, sizeof(*stamp)) + scot_sum_without(room, sizeof(*room));
		udp->check = scot_udp_checksum(sum);
	}
	*room = *stamp;
	return true;
}

#endif
