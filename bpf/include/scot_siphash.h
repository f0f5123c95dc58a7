/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* SipHash-2-4 (Aumasson and Bernstein, 2012) over 8-byte words, as crates/scotfree-wire uses it. */
#ifndef SCOT_SIPHASH_H
#define SCOT_SIPHASH_H

#include "scot_shared.h"

struct scot_sip {
	__u64 v0;
	__u64 v1;
	__u64 v2;
	__u64 v3;
};

static __always_inline __u64 scot_rotate(__u64 value, int bits)
{
	return value << bits | value >> (64 - bits);
}

static __always_inline void scot_sip_round(struct scot_sip *sip)
{
	sip->v0 += sip->v1;
	sip->v1 = scot_rotate(sip->v1, 13) ^ sip->v0;
	sip->v0 = scot_rotate(sip->v0, 32);
	sip->v2 += sip->v3;
	sip->v3 = scot_rotate(sip->v3, 16) ^ sip->v2;
	sip->v0 += sip->v3;
	sip->v3 = scot_rotate(sip->v3, 21) ^ sip->v0;
	sip->v2 += sip->v1;
	sip->v1 = scot_rotate(sip->v1, 17) ^ sip->v2;
	sip->v2 = scot_rotate(sip->v2, 32);
}

static __always_inline void scot_sip_start(struct scot_sip *sip, const struct scot_key *key)
{
	sip->v0 = key->low ^ 0x736f6d6570736575ULL;
	sip->v1 = key->high ^ 0x646f72616e646f6dULL;
	sip->v2 = key->low ^ 0x6c7967656e657261ULL;
	sip->v3 = key->high ^ 0x7465646279746573ULL;
}

static __always_inline void scot_sip_word(struct scot_sip *sip, __u64 word)
{
	sip->v3 ^= word;
	scot_sip_round(sip);
	scot_sip_round(sip);
	sip->v0 ^= word;
}

/* `rest` holds the last `bytes % 8` bytes of a message of `bytes`. */
static __always_inline __u64 scot_sip_end(struct scot_sip *sip, __u64 rest, __u32 bytes)
{
	scot_sip_word(sip, rest | (__u64)bytes << 56);
	sip->v2 ^= 0xff;
	scot_sip_round(sip);
	scot_sip_round(sip);
	scot_sip_round(sip);
	scot_sip_round(sip);
	return sip->v0 ^ sip->v1 ^ sip->v2 ^ sip->v3;
}

#endif
