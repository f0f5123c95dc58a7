/*
 * Redis commands from a C program's own process: no client's sidecar, no socket of Redis' own.
 *
 * What is covered or early, what shares a packet and what is refused is as with scot sidecar client;
 * subscriptions, blocking commands and MONITOR stay the sidecar's. The library libscotfree_redis also
 * has all of scotfree.h, whose codes and scot_error_message() are used here.
 *
 * Threads: a client may be used by one thread at a time, by another one later; different ones are
 * independent. Nothing here installs signal handlers or starts threads. Lines for an operator go to
 * standard error.
 *
 * Every function that returns int returns a code of enum scot_code; on any but SCOT_OK,
 * scot_error_message() says in words what was tried, what was missing and what to do next. A place for
 * a client or a reply holds NULL after any other code.
 */
#ifndef SCOTFREE_REDIS_H
#define SCOTFREE_REDIS_H

#include <scotfree.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One connection to the Redis behind a server's sidecar. */
typedef struct scot_redis scot_redis;

enum scot_redis_mode {
	/* The reply is the server's own, and comes when the devices have an update as well. */
	SCOT_REDIS_COVERED = 0,
	/* SET, SETEX and PSETEX are answered by the devices; what Redis refuses later is a dead letter. */
	SCOT_REDIS_EARLY = 1
};

typedef struct {
	/* "address:port" of the server's sidecar. */
	const char *server;
	/* The file that `scot key new` made; NULL: `cluster_key` is taken. */
	const char *key_file;
	/* SCOT_CLUSTER_KEY_BYTES bytes, instead of a file. */
	const uint8_t *cluster_key;
	/* One of enum scot_redis_mode. */
	uint32_t mode;
	/* One of enum scot_durability: what an update is acknowledged for. SCOT_DURABILITY_NONE: no device
	 * is asked. */
	uint32_t durability;
	/* Devices that must acknowledge an update, 1 to 4; 0 for one. */
	uint32_t device_acks;
	/* How long connecting, and each reply, is waited for; 0 for ten seconds. */
	uint32_t timeout_ms;
	/* How long to look for a reply before sleeping: saves a wake-up, and takes the processor. */
	uint32_t spin_us;
} scot_redis_options;

enum scot_redis_type {
	SCOT_REDIS_NULL = 0,
	/* "OK" and its kin, in `bytes`. */
	SCOT_REDIS_SIMPLE = 1,
	/* What Redis refused, in `bytes`: "WRONGTYPE Operation against ...". */
	SCOT_REDIS_ERROR = 2,
	/* In `integer`. */
	SCOT_REDIS_INTEGER = 3,
	/* A string of any bytes, in `bytes`. */
	SCOT_REDIS_BULK = 4,
	/* In `elements`; a map is a flat list. */
	SCOT_REDIS_ARRAY = 5
};

typedef struct scot_redis_reply {
	/* One of enum scot_redis_type. */
	int type;
	int64_t integer;
	/* Never NULL; behind the last byte is a zero that `byte_count` does not count. */
	const char *bytes;
	size_t byte_count;
	/* They belong to this reply and are freed with it. */
	const struct scot_redis_reply *elements;
	size_t element_count;
} scot_redis_reply;

/* Learns from the server's sidecar what the server is, and opens a session. */
int scot_redis_connect(const scot_redis_options *options, scot_redis **redis);

/* Ends the connection, frees the client and sets *redis to NULL, after which it is refused. */
int scot_redis_close(scot_redis **redis);

/* SET. SCOT_REFUSED if Redis answered with an error, which scot_error_message() has. */
int scot_redis_set(scot_redis *redis, const void *key, size_t key_bytes, const void *value,
		   size_t value_bytes);

/* GET: a reply of type SCOT_REDIS_BULK or SCOT_REDIS_NULL. SCOT_REFUSED as above. */
int scot_redis_get(scot_redis *redis, const void *key, size_t key_bytes, scot_redis_reply **reply);

/* Any command of `argc` words, and its reply; an error of Redis is a reply like others. `lens` are the
 * words' lengths in bytes; if it is NULL, each word ends with a zero. Replies to commands that were sent
 * before and not received are dropped. */
int scot_redis_command(scot_redis *redis, size_t argc, const char *const *argv, const size_t *lens,
		       scot_redis_reply **reply);

/* The same without waiting: commands sent one behind the other share packets. The replies come in the
 * order of the commands. */
int scot_redis_send(scot_redis *redis, size_t argc, const char *const *argv, const size_t *lens);

/* Waits for the reply to the oldest command that has none. SCOT_INVALID if there is none; after
 * SCOT_TIMED_OUT it may still come; after SCOT_ENDED what had no reply has an unknown outcome, and the
 * next command begins a new connection. */
int scot_redis_receive(scot_redis *redis, scot_redis_reply **reply);

/* Sends and receives what there is, without waiting. A client that rests for more than half a minute
 * keeps its session by calling it meanwhile. */
int scot_redis_turn(scot_redis *redis);

/* Frees a reply and sets *reply to NULL. */
void scot_redis_free_reply(scot_redis_reply **reply);

#ifdef __cplusplus
}
#endif

#endif
