// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The cache's function in the kernel: answers reads with what the daemon has shown, or with the logged SET that has
 * replaced it, and says of everything else that matters that it has passed. What else may be answered the rules in the
 * daemon decide alone (docs/design/cache.md).
 *
 * Invariants: a value that a passing packet makes doubtful is dead before that packet goes on; a read is answered only
 * if its client has everything before it.
 */
#include "cache.h"
#include "scot_function.h"

#define CACHE_NOT_IN_SETS /* its tables are made anew with every load, which a set does without */
#define CACHE_HEAD_BYTES 64 /* of a payload: what of it is looked at */
#define CACHE_PAYLOAD_AT (sizeof(struct scot_header) + sizeof(struct scot_stamp))

/* How sidecars write requests (crates/scotfree-cache/src/language/redis.rs). */
#define CACHE_VERSION 1
#define CACHE_FLAG_EARLY 1
#define CACHE_FLAG_RESP3 128
#define CACHE_FLAG_NOTED 8192
#define CACHE_COMMAND_AT 10
#define CACHE_GET_BYTES_MIN 29 /* of a GET of nothing */
#define CACHE_FLAG_AGAIN 32 /* of a response: it says nothing of early answers */
#define CACHE_REPLY_HEAD_BYTES 2
#define CACHE_LINE_END ('\r' | '\n' << 8)
#define CACHE_ARGUMENT_BYTES_MIN 7 /* of one byte */

/* Rules that tests switch off to show that they would notice; only their programs can. */
enum cache_fault {
	CACHE_FAULT_IGNORE_WRITES = 1u << 0,   /* K1, K2: a write makes nothing doubtful */
	CACHE_FAULT_ONE_KEY_ALWAYS = 1u << 1,  /* K8: a write touches the key of its header alone */
	CACHE_FAULT_HASH_ONLY = 1u << 2,       /* K9: two keys are one if their hashes are */
	CACHE_FAULT_IGNORE_EPOCH = 1u << 3,    /* K5: what was shown is answered in whatever epoch */
	CACHE_FAULT_PIPELINED = 1u << 4,       /* K14: although the client waits for what it asked before */
	CACHE_FAULT_IGNORE_UNSEEN = 1u << 5,   /* a response to what never passed changes nothing */
	CACHE_FAULT_SILENT = 1u << 6,          /* the daemon is not told of writes */
	CACHE_FAULT_SAY_NOTHING_DOUBTFUL = 1u << 7, /* the daemon is told, and what was shown goes on */
	CACHE_FAULT_PENDING_FROM_NOTHING = 1u << 8, /* K2: a SET is shown where nothing was answered before it */
	CACHE_FAULT_PENDING_OVER_NEWER = 1u << 9,   /* K1: a SET is shown over one behind it in the order */
	CACHE_FAULT_PENDING_UNSAFE = 1u << 10,      /* K6: although an elder of its session may be given up */
	CACHE_FAULT_PENDING_REFUSED = 1u << 11,     /* a SET that the server has refused is shown on */
	CACHE_FAULT_PENDING_OPTIONS = 1u << 12,     /* what follows a SET's value changes nothing */
	CACHE_FAULT_PENDING_LATE = 1u << 13,        /* although nobody takes its early answer for its reply */
	CACHE_FAULT_PENDING_AGAIN = 1u << 14,       /* K1: one that may have been executed before it had this place */
};

#ifdef SCOT_WITH_FAULTS
static __always_inline bool cache_is_planted(const struct cache_head *head, enum cache_fault fault)
{
	return *(const volatile __u32 *)&head->planted & fault;
}
#else
static __always_inline bool cache_is_planted(const struct cache_head *head, enum cache_fault fault)
{
	return false;
}
#endif

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cache_head);
} cache_heads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CACHE_BUCKETS);
	__type(key, __u32);
	__type(value, struct cache_bucket);
} cache_buckets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CACHE_CELLS);
	__type(key, __u32);
	__type(value, struct cache_cell);
} cache_cells SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CACHE_CELLS / CACHE_WAYS);
	__type(key, __u32);
	__type(value, struct cache_tags);
} cache_tags SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CACHE_NOTES);
	__type(key, __u32);
	__type(value, struct cache_note);
} cache_notes SEC(".maps");

/* By a session's place. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SCOT_SESSIONS_MAX);
	__type(key, __u32);
	__type(value, struct cache_session);
} cache_sessions SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cache_counts);
} cache_counted SEC(".maps");

/* Where a packet is looked at; too large for the stack. */
struct cache_desk {
	__u64 fence;
	__u32 key_bytes;        /* of a read that may be answered; else 0 */
	__u32 value_bytes;      /* of what was found */
	__u64 reads;            /* of a write: how often its key was answered */
	__u64 begun;            /* of a write of one key: its bucket's count before it */
	__u64 from;             /* where what follows a key begins, in its payload */
	__u16 database;
	__u8 may_pend;          /* this write's value may be shown once it is acknowledged */
	__u8 unkept;            /* this read's reply is not kept */
	__u8 zero[4];
	__u8 head[CACHE_HEAD_BYTES];
	__u64 key[2 * CACHE_KEY_WORDS];
	__u64 value[CACHE_VALUE_WORDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cache_desk);
} cache_desks SEC(".maps");

static __always_inline struct cache_head *cache_head_here(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&cache_heads, &first);
}

static __always_inline struct cache_desk *cache_desk_here(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&cache_desks, &first);
}

static __always_inline struct cache_bucket *cache_bucket_of(__u64 key_hash)
{
	__u32 at = key_hash & (CACHE_BUCKETS - 1);

	return bpf_map_lookup_elem(&cache_buckets, &at);
}

static __always_inline struct cache_session *cache_session_of(__u32 at)
{
	return bpf_map_lookup_elem(&cache_sessions, &at);
}

#define CACHE_TRIES_MAX 4

/* Makes a number at least so high. False: others are at it. */
static __always_inline bool cache_raise(__u64 *number, __u64 least)
{
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < CACHE_TRIES_MAX; i++) {
		__u64 found = *(volatile __u64 *)number;

		if (found >= least || __sync_val_compare_and_swap(number, found, least) == found)
			return true;
	}
	return false;
}

/* ---- what the daemon is told */

/* So many notes wait that the daemon should look, whatever else wakes it. It knows no session 0. */
static __always_inline void cache_poke(void)
{
	struct scot_entry_note note = { .type = SCOT_UPCALL_ENTRY };

	bpf_ringbuf_output(&scot_upcalls, &note, sizeof(note), 0);
}

/* Tells of a packet. A function of its own, for the verifier. */
__noinline int cache_tell(struct xdp_md *frame, const struct scot_context *context, __u64 key_hash, __u32 what)
{
	struct cache_head *head = cache_head_here();
	struct cache_desk *desk = cache_desk_here();
	struct scot_header *header;
	struct cache_note *note;
	__u64 number;
	__u32 at;

	if (!context || !head || !desk)
		return 0;
	header = scot_at(frame, context->packet_at);
	if ((void *)(header + 1) > scot_data_end(frame))
		return 0;
	number = __sync_fetch_and_add(&head->notes, 1);
	at = number & (CACHE_NOTES - 1);
	note = bpf_map_lookup_elem(&cache_notes, &at);
	if (!note)
		return 0;
	// Until it is whole it is nobody's.
	__sync_lock_test_and_set(&note->number, 0);
	note->session = header->session;
	note->seq_num = header->seq_num;
	note->completed = header->completed;
	note->flags = header->flags;
	note->key_hash = key_hash;
	note->now = context->now;
	note->order = context->stamp.number;
	note->reads = desk->reads;
	note->boot_epoch = context->stamp.boot_epoch;
	note->stamp_kind = context->stamp.kind;
	note->what = what;
	note->server = context->server;
	note->kind = context->kind;
	note->place = context->place;
	note->database = desk->database;
	note->key_bytes = desk->key_bytes;
	note->unkept = desk->unkept;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < CACHE_KEY_WORDS; i++) {
		if (i * 8 >= desk->key_bytes)
			break;
		note->key[i] = desk->key[i];
	}
	// A full barrier: who finds the number finds all of it.
	__sync_lock_test_and_set(&note->number, number + 1);
	if (number - *(volatile __u64 *)&head->taken >= CACHE_NOTES / 2 && number % CACHE_POKE_EVERY == 0)
		cache_poke();
	return 1;
}

/* Makes the keys of a bucket doubtful, or all, and tells why. The count before it. */
static __always_inline __u64 cache_doubt(struct xdp_md *frame, const struct scot_context *context,
					 struct cache_head *head, struct cache_bucket *bucket, __u64 key_hash,
					 __u32 what)
{
	__u64 begun = 0;

	if (!cache_is_planted(head, CACHE_FAULT_SAY_NOTHING_DOUBTFUL))
		begun = __sync_fetch_and_add(&bucket->begun, 1);
	if (!cache_is_planted(head, CACHE_FAULT_SILENT))
		cache_tell(frame, context, key_hash, what);
	if (!cache_is_planted(head, CACHE_FAULT_SAY_NOTHING_DOUBTFUL))
		__sync_fetch_and_add(&bucket->told, 1);
	return begun;
}

/* The cell that holds the value of a key, by its hash. */
static __always_inline struct cache_cell *cache_cell_of(__u64 key_hash, __u32 server)
{
	__u32 set = key_hash >> 16 & (CACHE_CELLS / CACHE_WAYS - 1);
	struct cache_tags *tags = bpf_map_lookup_elem(&cache_tags, &set);

	if (!tags)
		return NULL;
#pragma clang loop unroll(full)
	for (__u32 way = 0; way < CACHE_WAYS; way++) {
		__u32 at = set * CACHE_WAYS + way;
		struct cache_cell *cell;

		if (*(volatile __u32 *)&tags->of[way] != (__u32)(key_hash >> 32))
			continue;
		cell = bpf_map_lookup_elem(&cache_cells, &at);
		if (cell && cell->key_hash == key_hash && cell->server == server)
			return cell;
	}
	return NULL;
}

/* How often a key was answered since somebody asked, or nearly. */
static __always_inline __u64 cache_take_hits(__u64 key_hash, __u32 server)
{
	struct cache_cell *cell = cache_cell_of(key_hash, server);
	__u64 hits = 0;

	if (cell && cell->hit) {
		hits = cell->hit;
		cell->hit = 0;
	}
	return hits;
}

/* Nothing that was shown is answered any more; nobody has to be told. */
static __always_inline void cache_doubt_all(struct cache_head *head)
{
	__sync_fetch_and_add(&head->all.begun, 1);
	__sync_fetch_and_add(&head->all.told, 1);
}

/* ---- writes */

/* A command's name of up to 16 bytes as two words, in capitals. */
#define CACHE_BYTE(name, at) ((__u64)((at) < sizeof(name) - 1 ? (name)[(at) < sizeof(name) ? (at) : 0] : 0) << ((at) % 8 * 8))
#define CACHE_WORD(name, at)                                                                                     \
	(CACHE_BYTE(name, (at)) | CACHE_BYTE(name, (at) + 1) | CACHE_BYTE(name, (at) + 2) |                      \
	 CACHE_BYTE(name, (at) + 3) | CACHE_BYTE(name, (at) + 4) | CACHE_BYTE(name, (at) + 5) |                  \
	 CACHE_BYTE(name, (at) + 6) | CACHE_BYTE(name, (at) + 7))
#define CACHE_EACH 0x0101010101010101ULL

/* Eight letters in capitals; every other byte stays what it is. */
static __always_inline __u64 cache_capitals(__u64 word)
{
	__u64 low = word & 0x7f * CACHE_EACH;
	__u64 from_a = low + (0x80 - 'a') * CACHE_EACH;
	__u64 beyond_z = low + (0x7f - 'z') * CACHE_EACH;

	return word ^ ((~word & (from_a ^ beyond_z) & 0x80 * CACHE_EACH) >> 2);
}

/* Whether a command of `count` words touches its first argument alone: those of the rules' own list
 * (crates/scotfree-cache/src/language/redis.rs).
 */
static __always_inline bool cache_is_of_one_key(__u32 count, __u64 low, __u64 high)
{
	switch (low) {
	case CACHE_WORD("APPEND", 0):
	case CACHE_WORD("DECR", 0):
	case CACHE_WORD("DECRBY", 0):
	case CACHE_WORD("EXPIRE", 0):
	case CACHE_WORD("EXPIREAT", 0):
	case CACHE_WORD("GETDEL", 0):
	case CACHE_WORD("GETEX", 0):
	case CACHE_WORD("GETSET", 0):
	case CACHE_WORD("HDEL", 0):
	case CACHE_WORD("HINCRBY", 0):
	case CACHE_WORD("HMSET", 0):
	case CACHE_WORD("HSET", 0):
	case CACHE_WORD("HSETNX", 0):
	case CACHE_WORD("INCR", 0):
	case CACHE_WORD("INCRBY", 0):
	case CACHE_WORD("LINSERT", 0):
	case CACHE_WORD("LPOP", 0):
	case CACHE_WORD("LPUSH", 0):
	case CACHE_WORD("LPUSHX", 0):
	case CACHE_WORD("LREM", 0):
	case CACHE_WORD("LSET", 0):
	case CACHE_WORD("LTRIM", 0):
	case CACHE_WORD("PERSIST", 0):
	case CACHE_WORD("PEXPIRE", 0):
	case CACHE_WORD("PFADD", 0):
	case CACHE_WORD("PSETEX", 0):
	case CACHE_WORD("RPOP", 0):
	case CACHE_WORD("RPUSH", 0):
	case CACHE_WORD("RPUSHX", 0):
	case CACHE_WORD("SADD", 0):
	case CACHE_WORD("SET", 0):
	case CACHE_WORD("SETBIT", 0):
	case CACHE_WORD("SETEX", 0):
	case CACHE_WORD("SETNX", 0):
	case CACHE_WORD("SETRANGE", 0):
	case CACHE_WORD("SPOP", 0):
	case CACHE_WORD("SREM", 0):
	case CACHE_WORD("XADD", 0):
	case CACHE_WORD("XDEL", 0):
	case CACHE_WORD("XTRIM", 0):
	case CACHE_WORD("ZADD", 0):
	case CACHE_WORD("ZINCRBY", 0):
	case CACHE_WORD("ZREM", 0):
	case CACHE_WORD("RESTORE", 0):
		return high == 0;
	case CACHE_WORD("DEL", 0):
	case CACHE_WORD("UNLINK", 0):
		return high == 0 && count == 2;
	case CACHE_WORD("HINCRBYFLOAT", 0):
		return high == CACHE_WORD("HINCRBYFLOAT", 8);
	case CACHE_WORD("INCRBYFLOAT", 0):
		return high == CACHE_WORD("INCRBYFLOAT", 8);
	case CACHE_WORD("PEXPIREAT", 0):
		return high == CACHE_WORD("PEXPIREAT", 8);
	default:
		return false;
	}
}

static __always_inline __u8 cache_head_byte(const struct cache_desk *desk, __u32 at)
{
	asm volatile("" : "+r"(at));
	return desk->head[at & (CACHE_HEAD_BYTES - 1)];
}

/* The number of one or two digits that a line begins with, and where its next line begins. False: it is none. */
static __always_inline bool cache_small_number(const struct cache_desk *desk, __u32 *at, __u32 *number)
{
	__u32 first = cache_head_byte(desk, *at) - '0', second = cache_head_byte(desk, *at + 1) - '0';

	if (first > 9)
		return false;
	*number = first;
	*at += 1;
	if (second <= 9) {
		*number = first * 10 + second;
		*at += 1;
	}
	if (cache_head_byte(desk, *at) != '\r' || cache_head_byte(desk, *at + 1) != '\n')
		return false;
	*at += 2;
	return true;
}

/* What stands in the head of every payload: whether its flags change nothing. */
static __always_inline bool cache_is_plain(const struct cache_desk *desk)
{
	__u32 flags = desk->head[2] | desk->head[3] << 8;

	return desk->head[0] == CACHE_VERSION && desk->head[1] == 0 &&
	       (flags & ~(CACHE_FLAG_EARLY | CACHE_FLAG_RESP3 | CACHE_FLAG_NOTED)) == 0;
}

/* Whether a write touches the key of its header alone; else it may touch any. A function of its own, for the verifier. */
__noinline int cache_names_one(struct xdp_md *frame, const struct scot_context *context)
{
	struct cache_desk *desk = cache_desk_here();
	__u64 bytes, name[2] = {};
	__u32 at = CACHE_COMMAND_AT + 1, count, name_bytes;

	if (!context || !desk || context->packet_bytes <= CACHE_PAYLOAD_AT + CACHE_COMMAND_AT)
		return 0;
	bytes = context->packet_bytes - CACHE_PAYLOAD_AT;
	if (bytes > CACHE_HEAD_BYTES)
		bytes = CACHE_HEAD_BYTES;
	__builtin_memset(desk->head, 0, sizeof(desk->head));
	if (!scot_bound(&bytes, CACHE_HEAD_BYTES) ||
	    bpf_xdp_load_bytes(frame, context->packet_at + CACHE_PAYLOAD_AT, desk->head, bytes) != 0)
		return 0;
	if (!cache_is_plain(desk) || desk->head[CACHE_COMMAND_AT] != '*' || !cache_small_number(desk, &at, &count))
		return 0;
	if (cache_head_byte(desk, at) != '$')
		return 0;
	at += 1;
	if (!cache_small_number(desk, &at, &name_bytes))
		return 0;
	bytes = name_bytes;
	if (!scot_bound(&bytes, sizeof(name)) ||
	    bpf_xdp_load_bytes(frame, context->packet_at + CACHE_PAYLOAD_AT + at, name, bytes) != 0)
		return 0;
	return cache_is_of_one_key(count, cache_capitals(name[0]), cache_capitals(name[1]));
}

/* Whether nothing that a session has written so far can be given up, and what follows with it (K6). */
static __always_inline bool cache_is_safe(const struct cache_session *session, const struct cache_head *head)
{
	return *(const volatile __u64 *)&session->lossy == *(const volatile __u64 *)&session->safe ||
	       cache_is_planted(head, CACHE_FAULT_PENDING_UNSAFE);
}

/* A write that can be given up is noted (K6). False: it could not be. */
static __always_inline bool cache_count_lossy(struct cache_session *session, struct cache_head *head, __u64 seq_num)
{
	if (!cache_raise(&session->last_lossy, seq_num))
		return false;
	__sync_fetch_and_add(&session->lossy, 1);
	// What stands behind it may have been shown already, by another processor.
	if (*(volatile __u64 *)&session->pending > seq_num)
		cache_doubt_all(head);
	return true;
}

/* Whether a write was not sent before, neither again nor before this device began: the server may have executed what was
 * (K1); and whether its caller goes on behind its acknowledgement, as only those do that nothing can refuse.
 */
static __always_inline bool cache_is_new_and_early(const struct cache_session *session,
						   const struct scot_context *context, const struct cache_head *head,
						   const struct scot_header *header)
{
	bool is_new = context->place == SCOT_PLACE_NEXT && !(header->flags & SCOT_FLAG_AGAIN) &&
		      header->seq_num >= session->from;

	return (is_new || cache_is_planted(head, CACHE_FAULT_PENDING_AGAIN)) &&
	       (header->flags & SCOT_FLAG_EARLY || cache_is_planted(head, CACHE_FAULT_PENDING_LATE));
}

static __always_inline enum scot_verdict cache_on_write(struct xdp_md *frame, const struct scot_context *context,
							struct cache_head *head, struct cache_desk *desk)
{
	struct scot_header *header = scot_at(frame, context->packet_at);
	struct cache_bucket *bucket = &head->all;
	struct cache_session *session = NULL;
	// What is in the log is durable there, whether or not it was acknowledged; what waits for a disk is not yet.
	bool is_lossy = context->stamp.kind != SCOT_STAMP_KIND_ORDER || context->asked != SCOT_DURABILITY_RAM;
	bool may_pend;
	__u64 key_hash;

	if ((void *)(header + 1) > scot_data_end(frame))
		return SCOT_NEXT;
	key_hash = header->key_hash;
	// One that has no place may be of a session that there is no room for.
	if (context->place != SCOT_PLACE_NONE || scot_session(context->server, header->session))
		session = cache_session_of(context->session);
	if (session && is_lossy && !cache_count_lossy(session, head, header->seq_num))
		return SCOT_REFUSE;
	// Behind the head of a chain packets may come in another order than their stamps.
	may_pend = session && !is_lossy && scot_shared.head && cache_is_safe(session, head) &&
		   cache_is_new_and_early(session, context, head, header);
	if (cache_is_planted(head, CACHE_FAULT_IGNORE_WRITES))
		return SCOT_NEXT;
	if (header->fragment_count != 1 ||
	    (!cache_names_one(frame, context) && !cache_is_planted(head, CACHE_FAULT_ONE_KEY_ALWAYS)))
		key_hash = 0;
	if (key_hash != 0) {
		bucket = cache_bucket_of(key_hash);
		if (!bucket)
			return SCOT_REFUSE;
		desk->reads = cache_take_hits(key_hash, context->server);
	}
	desk->begun = cache_doubt(frame, context, head, bucket, key_hash, CACHE_NOTE_REQUEST);
	desk->may_pend = may_pend && key_hash != 0;
	return SCOT_NEXT;
}

/* ---- what names one key */

/* Whether a line ends at this place of the payload. */
static __always_inline bool cache_ends_line(struct xdp_md *frame, const struct scot_context *context, __u32 at)
{
	__u16 end = 0;

	return bpf_xdp_load_bytes(frame, context->packet_at + CACHE_PAYLOAD_AT + at, &end, sizeof(end)) == 0 &&
	       end == CACHE_LINE_END;
}

/* Reads database and key of a command with a name of three letters, and where what follows the key begins, to the desk.
 * The head of the payload lies there. A function of its own, for the verifier.
 */
__noinline int cache_load_key(struct xdp_md *frame, const struct scot_context *context)
{
	struct cache_desk *desk = cache_desk_here();
	__u32 digits, key_bytes, first, second, third, payload_bytes;
	__u64 bytes;

	if (!context || !desk || context->packet_bytes < CACHE_PAYLOAD_AT + CACHE_GET_BYTES_MIN)
		return 0;
	payload_bytes = context->packet_bytes - CACHE_PAYLOAD_AT;
	if (desk->head[10] != '*' || desk->head[12] != '\r' || desk->head[13] != '\n' ||
	    desk->head[14] != '$' || desk->head[15] != '3' || desk->head[16] != '\r' || desk->head[17] != '\n' ||
	    desk->head[21] != '\r' || desk->head[22] != '\n' || desk->head[23] != '$')
		return 0;
	first = desk->head[24] - '0';
	second = desk->head[25] - '0';
	third = desk->head[26] - '0';
	if (first > 9)
		return 0;
	if (second > 9) {
		digits = 1;
		key_bytes = first;
	} else if (third > 9) {
		digits = 2;
		key_bytes = first * 10 + second;
	} else {
		digits = 3;
		key_bytes = first * 100 + second * 10 + third;
	}
	desk->from = 26 + digits + key_bytes + 2;
	if (cache_head_byte(desk, 24 + digits) != '\r' || cache_head_byte(desk, 25 + digits) != '\n' ||
	    payload_bytes < desk->from)
		return 0;
	if (!cache_ends_line(frame, context, 26 + digits + key_bytes))
		return 0;
	bytes = key_bytes;
	if (!scot_bound(&bytes, CACHE_KEY_BYTES_MAX))
		return 0;
	desk->key[bytes / 8 & (2 * CACHE_KEY_WORDS - 1)] = 0;
	if (bpf_xdp_load_bytes(frame, context->packet_at + CACHE_PAYLOAD_AT + 26 + digits, desk->key, bytes) != 0)
		return 0;
	desk->database = desk->head[4] | desk->head[5] << 8;
	desk->key_bytes = key_bytes;
	return 1;
}

/* The name of a command, three letters in capitals. */
static __always_inline __u32 cache_name(const struct cache_desk *desk)
{
	return cache_capitals(desk->head[18] | desk->head[19] << 8 | desk->head[20] << 16);
}

/* Whether a key lies on the desk: that of a GET whose caller takes what was answered before. */
static __always_inline bool cache_read_key(struct xdp_md *frame, const struct scot_context *context,
					   struct cache_desk *desk)
{
	if (context->packet_bytes < CACHE_PAYLOAD_AT + CACHE_GET_BYTES_MIN ||
	    bpf_xdp_load_bytes(frame, context->packet_at + CACHE_PAYLOAD_AT, desk->head, CACHE_GET_BYTES_MIN) != 0)
		return false;
	if (!cache_is_plain(desk) || !(desk->head[3] & CACHE_FLAG_NOTED >> 8) || desk->head[11] != '2' ||
	    cache_name(desk) != CACHE_WORD("GET", 0) || !cache_load_key(frame, context))
		return false;
	if (desk->from == context->packet_bytes - CACHE_PAYLOAD_AT)
		return true;
	desk->key_bytes = 0;
	return false;
}

/* ---- cells */

/* Whether nothing has become doubtful since a value was shown (K1, K2, K5); its bucket's count is given. */
static __always_inline bool cache_is_true(const struct cache_cell *cell, const struct cache_head *head, __u64 begun,
					  __u32 server)
{
	const struct scot_server *of = scot_server(server);
	__u32 heard = of->heard_epoch > of->epoch ? of->heard_epoch : of->epoch;

	if (cell->begun != begun || cell->all != *(const volatile __u64 *)&head->all.begun)
		return false;
	return (cell->epoch == heard && cell->boot_epoch == scot_shared.boot_epoch) ||
	       cache_is_planted(head, CACHE_FAULT_IGNORE_EPOCH);
}

/* Whether a cell is of the key on the desk and not of another with its hash (K9). */
static __always_inline bool cache_is_of_key(const struct cache_cell *cell, const struct cache_desk *desk)
{
	if (cell->key_bytes != desk->key_bytes || cell->database != desk->database)
		return false;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < CACHE_KEY_WORDS; i++) {
		if (i * 8 >= desk->key_bytes)
			break;
		if (cell->key[i] != desk->key[i])
			return false;
	}
	return true;
}

/* Finds what a read is answered with, and copies it to the desk. A function of its own, for the verifier. */
__noinline int cache_find(__u64 key_hash, __u32 server)
{
	struct cache_head *head = cache_head_here();
	struct cache_desk *desk = cache_desk_here();
	struct cache_bucket *bucket;
	struct cache_cell *cell;
	__u32 value_bytes;
	__u64 written;

	if (!head || !desk)
		return 0;
	cell = cache_cell_of(key_hash, server);
	bucket = cache_bucket_of(key_hash);
	if (!cell || !bucket)
		return 0;
	written = *(volatile __u64 *)&cell->written;
	// A full barrier: what is read from here on is as new as that count.
	__sync_lock_test_and_set(&desk->fence, written);
	if (written & 1 || !cache_is_true(cell, head, *(volatile __u64 *)&bucket->begun, server))
		return 0;
	if (!cache_is_of_key(cell, desk) && !cache_is_planted(head, CACHE_FAULT_HASH_ONLY))
		return 0;
	value_bytes = *(volatile __u32 *)&cell->value_bytes;
	if (value_bytes > CACHE_VALUE_BYTES_MAX)
		return 0;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < CACHE_VALUE_WORDS; i++) {
		if (i * 8 >= value_bytes)
			break;
		desk->value[i] = cell->value[i];
	}
	desk->value_bytes = value_bytes;
	// A full barrier: what was copied was there before the cell is looked at again.
	__sync_lock_test_and_set(&desk->fence, written);
	if (*(volatile __u64 *)&cell->written != written)
		return 0;
	cell->hit++;
	return 1;
}

static __always_inline void cache_count_hit(int by)
{
	__u32 first = 0;
	struct cache_counts *counted = bpf_map_lookup_elem(&cache_counted, &first);

	if (counted)
		counted->hits += by;
}

static __always_inline void cache_count_overwrite(void)
{
	__u32 first = 0;
	struct cache_counts *counted = bpf_map_lookup_elem(&cache_counted, &first);

	if (counted)
		counted->overwrites++;
}

/* Whether the device may answer a read that it could: K5, and only where its client has everything before it (K14). */
static __always_inline bool cache_may_answer(const struct cache_head *head, const struct scot_context *context,
					     const struct scot_header *header)
{
	if (context->place != SCOT_PLACE_NEXT || header->flags & SCOT_FLAG_SKIP || header->key_hash == 0)
		return false;
	if (context->now >= scot_server(context->server)->lease_until)
		return false;
	return header->completed == header->seq_num - 1 || cache_is_planted(head, CACHE_FAULT_PIPELINED);
}

/* ---- what is kept */

#define CACHE_READERS 4 /* keys of a bucket that were read of late */

/* Whether a key was read of late (the rules' doorkeeper, crates/scotfree-cache/src/track.rs); from now on it was. Of two
 * processors at once one may be forgotten, which costs an answer.
 */
static __always_inline bool cache_comes_again(struct cache_bucket *bucket, __u64 key_hash)
{
	__u64 door = *(volatile __u64 *)&bucket->door;
	__u64 mark = key_hash >> 56; // not the bits by which its bucket is found
	__u32 next = door >> 32 & (CACHE_READERS - 1);

	if (mark == 0)
		mark = 1;
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < CACHE_READERS; i++) {
		if ((door >> i * 8 & 0xff) == mark)
			return true;
	}
	door = (door & 0xffffffff & ~(0xffULL << next * 8)) | mark << next * 8;
	*(volatile __u64 *)&bucket->door = door | (__u64)(next + 1) << 32;
	return false;
}

/* Whether the daemon may keep the reply to a read that could be answered: that of a key which has come again, or which
 * was answered before.
 */
static __always_inline bool cache_is_let_in(const struct cache_head *head, __u64 key_hash, __u32 server)
{
	struct cache_bucket *bucket = cache_bucket_of(key_hash);

	return !*(const volatile __u32 *)&head->doorkeeper || (bucket && cache_comes_again(bucket, key_hash)) ||
	       cache_cell_of(key_hash, server);
}

/* Whether the daemon may keep the reply to a session's read; what it has said of its place before is forgotten. */
static __always_inline void cache_await(struct cache_session *known, __u64 seq_num, bool is_kept)
{
	__u64 *word = &known->awaited[seq_num / 64 & (CACHE_AWAITED / 64 - 1)];
	__u64 bit = 1ULL << (seq_num & 63);

	if (is_kept)
		__sync_fetch_and_or(word, bit);
	else if (*(volatile __u64 *)word & bit)
		__sync_fetch_and_and(word, ~bit);
}

static __always_inline bool cache_is_awaited(const struct cache_session *known, __u64 seq_num)
{
	const volatile __u64 *word = &known->awaited[seq_num / 64 & (CACHE_AWAITED / 64 - 1)];

	return *word & 1ULL << (seq_num & 63);
}

/* Of a read that could be answered, whose key lies on the desk: the key goes to the daemon if the reply may be kept. */
static __always_inline void cache_keep(const struct scot_context *context, const struct cache_head *head,
				       struct cache_desk *desk, __u64 key_hash, __u64 seq_num)
{
	struct cache_session *known = cache_session_of(context->session);
	bool is_kept = cache_is_let_in(head, key_hash, context->server);

	if (known && context->place == SCOT_PLACE_NEXT)
		cache_await(known, seq_num, is_kept);
	if (!is_kept) {
		desk->key_bytes = 0;
		desk->unkept = 1;
	}
}

static __always_inline enum scot_verdict cache_on_read(struct xdp_md *frame, const struct scot_context *context,
						       const struct cache_head *head, struct cache_desk *desk)
{
	struct scot_header *header;
	bool has_key = cache_read_key(frame, context, desk);
	__u64 key_hash, seq_num;

	header = scot_at(frame, context->packet_at);
	if ((void *)(header + 1) > scot_data_end(frame))
		return SCOT_NEXT;
	key_hash = header->key_hash;
	seq_num = header->seq_num;
	if (context->unanswerable)
		cache_count_hit(-1);
	else if (has_key && cache_may_answer(head, context, header) && cache_find(key_hash, context->server))
		return SCOT_ANSWER;
	if (has_key)
		cache_keep(context, head, desk, key_hash, seq_num);
	cache_tell(frame, context, key_hash, CACHE_NOTE_REQUEST);
	return SCOT_NEXT;
}

/* ---- what servers say */

/* Whether a response is one to a request that has passed this incarnation of the device. */
static __always_inline bool cache_has_seen(const struct scot_session *session, const struct cache_session *known,
					   __u64 seq_num)
{
	return known && seq_num >= *(const volatile __u64 *)&known->from && seq_num < session->next;
}

/* Whether what the server refuses may be a SET whose value is shown. */
static __always_inline bool cache_may_have_shown(const struct cache_session *known, __u64 seq_num)
{
	return known && seq_num <= *(const volatile __u64 *)&known->pending;
}

static __always_inline enum scot_verdict cache_on_server(struct xdp_md *frame, const struct scot_context *context,
							 struct cache_head *head)
{
	struct scot_header *header = scot_at(frame, context->packet_at);
	struct scot_stamp *stamp = (void *)(header + 1);
	struct cache_session *known;
	struct scot_session *session;
	__u64 seq_num;
	bool failed;

	if ((void *)stamp > scot_data_end(frame))
		return SCOT_NEXT;
	// K11: another device stands on the path.
	if (context->kind == SCOT_KIND_PERSIST_ACK) {
		return (void *)(stamp + 1) <= scot_data_end(frame) && stamp->device == scot_shared.device ? SCOT_NEXT :
													   SCOT_PASS_UP;
	}
	if (context->kind != SCOT_KIND_RESPONSE)
		return SCOT_NEXT;
	seq_num = header->seq_num;
	failed = header->flags & SCOT_FLAG_FAILED;
	session = scot_session(context->server, header->session);
	// There is no room for it here: whether to believe this the daemon knows.
	if (!session)
		return SCOT_PASS_UP;
	known = cache_session_of(session->index);
	// Nobody has to be told: what the rules know shows none of these SETs.
	if (failed && cache_may_have_shown(known, seq_num) && !cache_is_planted(head, CACHE_FAULT_PENDING_REFUSED))
		cache_doubt_all(head);
	if (cache_has_seen(session, known, seq_num) || cache_is_planted(head, CACHE_FAULT_IGNORE_UNSEEN))
		return SCOT_NEXT;
	cache_doubt(frame, context, head, &head->all, 0, CACHE_NOTE_UNSEEN);
	return SCOT_NEXT;
}

struct cache_object_note {
	__le64 head; /* type and words of the extension */
	__le64 value_bytes;
	__le64 remaining_ms;
};

/* Whether a response, which says that its value can be kept and nothing else, is one that nobody keeps. */
__noinline int cache_has_no_need_of(struct xdp_md *frame, const struct scot_context *context)
{
	struct cache_head *head = cache_head_here();
	struct cache_object_note *note;
	struct cache_session *known;
	struct scot_session *session;
	struct scot_header *header;
	__u64 seq_num;

	if (!context || !head || !*(volatile __u32 *)&head->on)
		return 0;
	header = scot_at(frame, context->packet_at);
	note = (void *)header + sizeof(*header) + sizeof(struct scot_response);
	if ((void *)(note + 1) > scot_data_end(frame) || header->extension_words * 8 != sizeof(*note) ||
	    note->head != (SCOT_EXTENSION_OBJECT | SCOT_EXTENSION_OBJECT_WORDS << 8))
		return 0;
	seq_num = header->seq_num;
	session = scot_session(context->server, header->session);
	known = session ? cache_session_of(session->index) : NULL;
	return cache_has_seen(session, known, seq_num) && !cache_is_awaited(known, seq_num);
}

/* ---- the function */

__noinline int cache_on_packet(struct xdp_md *frame, struct scot_context *context)
{
	struct cache_head *head = cache_head_here();
	struct cache_desk *desk = cache_desk_here();

	if (!context)
		return SCOT_REFUSE;
	if (!head || !desk || !*(volatile __u32 *)&head->on)
		return SCOT_NEXT;
	desk->key_bytes = 0;
	desk->reads = 0;
	desk->may_pend = 0;
	desk->unkept = 0;
	if (context->direction == SCOT_FROM_SERVER)
		return cache_on_server(frame, context, head);
	if (context->direction != SCOT_TO_SERVER)
		return SCOT_NEXT;
	if (context->kind == SCOT_KIND_READ)
		return cache_on_read(frame, context, head, desk);
	return cache_on_write(frame, context, head, desk);
}

/* ---- what a logged SET says */

/* How long the only argument is that begins here; 0 if what follows is no such, or too long. */
static __always_inline __u32 cache_only_argument(struct xdp_md *frame, const struct scot_context *context,
						 const struct cache_head *head, __u32 from)
{
	__u32 bytes = context->packet_bytes - CACHE_PAYLOAD_AT - from;
	__u32 number = 0, digits = 0, whole;
	__u64 line = 0; // a word, of which nothing is read by a place that the verifier does not know

	if (bytes < CACHE_ARGUMENT_BYTES_MIN ||
	    bpf_xdp_load_bytes(frame, context->packet_at + CACHE_PAYLOAD_AT + from, &line, CACHE_ARGUMENT_BYTES_MIN) != 0 ||
	    (line & 0xff) != '$')
		return 0;
#pragma clang loop unroll(full)
	for (__u32 i = 1; i < 5; i++) {
		__u64 digit = (line >> i * 8 & 0xff) - '0';

		if (digits == i - 1 && digit <= 9) {
			number = number * 10 + digit;
			digits = i;
		}
	}
	whole = 1 + digits + 2 + number + 2;
	if (digits == 0 || number == 0 || (line >> (1 + digits) * 8 & 0xffff) != CACHE_LINE_END ||
	    !cache_ends_line(frame, context, from + whole - 2))
		return 0;
	if (bytes == whole || (bytes > whole && cache_is_planted(head, CACHE_FAULT_PENDING_OPTIONS)))
		return whole;
	return 0;
}

/* Whether this is a SET without options: then its key lies on the desk, and where its value begins. */
static __always_inline bool cache_read_set(struct xdp_md *frame, const struct scot_context *context,
					   const struct cache_head *head, struct cache_desk *desk)
{
	bool is_plain = desk->head[11] == '3' || cache_is_planted(head, CACHE_FAULT_PENDING_OPTIONS);

	return context->kind == SCOT_KIND_UPDATE && is_plain && cache_name(desk) == CACHE_WORD("SET", 0) &&
	       cache_load_key(frame, context);
}

/* Writes what a GET is answered from now on into a cell that is this program's. False: it cannot be read. */
static __always_inline bool cache_write_value(struct xdp_md *frame, const struct scot_context *context,
					      struct cache_cell *cell, __u32 from, __u64 bytes)
{
	__u8 *value = (__u8 *)cell->value;
	__u32 last;

	if (!scot_bound(&bytes, CACHE_VALUE_BYTES_MAX - CACHE_REPLY_HEAD_BYTES))
		return false;
	// What fills up the last word is zero.
	last = (bytes + CACHE_REPLY_HEAD_BYTES - 1) / 8;
	if (last >= CACHE_VALUE_WORDS)
		return false;
	cell->value[last] = 0;
	value[0] = CACHE_VERSION;
	value[1] = CACHE_FLAG_AGAIN;
	if (bpf_xdp_load_bytes(frame, context->packet_at + CACHE_PAYLOAD_AT + from, value + CACHE_REPLY_HEAD_BYTES,
			       bytes) != 0)
		return false;
	cell->value_bytes = bytes + CACHE_REPLY_HEAD_BYTES;
	return true;
}

/* Puts into the cell of a key, which lies on the desk, what its GET is answered from now on, if it was answered until
 * this write came: then nothing else that concerns it is under way (K1, K2). A function of its own, for the verifier.
 */
__noinline int cache_pend(struct xdp_md *frame, const struct scot_context *context, __u64 key_hash, __u32 bytes)
{
	struct cache_head *head = cache_head_here();
	struct cache_desk *desk = cache_desk_here();
	struct cache_cell *cell;
	bool is_true, is_written = false;
	__u64 written, order;

	if (!context || !head || !desk)
		return 0;
	cell = cache_cell_of(key_hash, context->server);
	if (!cell)
		return 0;
	order = context->stamp.number;
	written = *(volatile __u64 *)&cell->written;
	if (written & 1 || __sync_val_compare_and_swap(&cell->written, written, written + 1) != written)
		return 0;
	is_true = cache_is_true(cell, head, desk->begun, context->server);
	if (cache_is_planted(head, CACHE_FAULT_PENDING_FROM_NOTHING)) {
		cell->all = *(volatile __u64 *)&head->all.begun;
		is_true = true;
	}
	// Of two at once the other may have come first and stand behind.
	if (cell->order > order && !cache_is_planted(head, CACHE_FAULT_PENDING_OVER_NEWER))
		is_true = false;
	if (is_true && cache_is_of_key(cell, desk)) {
		if (cache_write_value(frame, context, cell, desk->from, bytes)) {
			cell->order = order;
			cell->begun = desk->begun + 1;
			is_written = true;
		} else {
			cell->key_hash = 0;
		}
	}
	// A full barrier: who finds the cell even finds all of it.
	__sync_lock_test_and_set(&cell->written, written + 2);
	return is_written;
}

/* A write is in the log (K6), and its acknowledgement leaves behind it. */
__noinline int cache_on_acknowledged(struct xdp_md *frame, const struct scot_context *context)
{
	struct cache_head *head = cache_head_here();
	struct cache_desk *desk = cache_desk_here();
	struct cache_session *session;
	struct scot_header *header;
	__u64 key_hash, seq_num;
	__u32 bytes;

	if (!context || !head || !desk || !desk->may_pend || !*(volatile __u32 *)&head->on)
		return 0;
	desk->may_pend = 0;
	if (!cache_read_set(frame, context, head, desk))
		return 0;
	bytes = cache_only_argument(frame, context, head, desk->from);
	header = scot_at(frame, context->packet_at);
	session = cache_session_of(context->session);
	if (bytes == 0 || !session || (void *)(header + 1) > scot_data_end(frame))
		return 0;
	key_hash = header->key_hash;
	seq_num = header->seq_num;
	// First: the server may refuse it at any time from now on, and another processor may count what stands before it.
	if (!cache_raise(&session->pending, seq_num) || !cache_is_safe(session, head) ||
	    !cache_pend(frame, context, key_hash, bytes))
		return 0;
	cache_count_overwrite();
	return 1;
}

struct cache_answer {
	struct scot_header header;
	struct scot_response response;
	__u64 value[CACHE_VALUE_WORDS];
};

_Static_assert(sizeof(struct cache_answer) + 8 <= SCOT_ANSWER_WORDS_MAX * sizeof(__u64),
	       "it is an answer, and behind it there is room for what fills up the last step");

/* Writes what lies on the desk into the answer. */
__noinline int cache_make_answer(struct xdp_md *frame, const struct scot_context *context, struct scot_answer *answer)
{
	struct cache_desk *desk = cache_desk_here();
	struct scot_header *request;
	struct scot_session *session;
	struct cache_answer *told;
	__u32 value_bytes, i;

	if (!context || !answer || !desk || context->kind != SCOT_KIND_READ)
		return 0;
	value_bytes = desk->value_bytes;
	request = scot_at(frame, context->packet_at);
	if ((void *)(request + 1) > scot_data_end(frame) || value_bytes > CACHE_VALUE_BYTES_MAX)
		return 0;
	told = (void *)answer->packet;
	scot_begin_answer(&told->header, SCOT_KIND_RESPONSE, request);
	told->header.payload_bytes = value_bytes;
	__builtin_memset(&told->response, 0, sizeof(told->response));
	told->response.answered_by = SCOT_FUNCTION_CACHE;
	told->response.device = scot_shared.device;
#pragma clang loop unroll(disable)
	for (i = 0; i < CACHE_VALUE_WORDS; i++) {
		if (i * 8 >= value_bytes)
			break;
		told->value[i] = desk->value[i];
	}
	session = scot_session_by_index(context->session);
	if (!session)
		return 0;
	told->header.epoch = scot_answer_epoch(context, session);
	answer->bytes = sizeof(told->header) + sizeof(told->response) + value_bytes;
	if (!scot_seal_long_answer(answer, &session->device_to_client))
		return 0;
	cache_count_hit(1);
	return 1;
}
