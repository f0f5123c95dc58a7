/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Counters, one set per CPU; the daemon adds them up. */
#ifndef SCOT_COUNTERS_H
#define SCOT_COUNTERS_H

#include "scot_shared.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scot_counters);
} scot_counters SEC(".maps");

static __always_inline struct scot_counters *scot_counters_here(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&scot_counters, &first);
}

#endif
