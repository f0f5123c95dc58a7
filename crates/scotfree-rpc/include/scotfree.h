/*
 * The C interface of Scotfree's RPC runtime: the six calls of PMNet's programmer's interface (start a
 * session, end it, send an update, bypass, receive, acknowledge), reads, and what takes the replies.
 *
 * Threads: a session or server may be used by one thread at a time, by another one later; different
 * ones are independent. Nothing here installs signal handlers or starts threads.
 *
 * Every function returns a code of enum scot_code; on any but SCOT_OK, scot_error_message() says in
 * words, for the calling thread, what was tried, what was missing and what to do next.
 */
#ifndef SCOTFREE_H
#define SCOTFREE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SCOT_CLUSTER_KEY_BYTES 32
#define SCOT_NONCE_BYTES 16
/* The largest request. */
#define SCOT_REQUEST_BYTES_MAX 49152

enum scot_code {
	SCOT_OK = 0,
	/* Nothing came in time. */
	SCOT_TIMED_OUT = 1,
	/* An argument makes no sense. */
	SCOT_INVALID = 2,
	/* The session has ended; what had no reply has an unknown outcome. */
	SCOT_ENDED = 3,
	/* The request, or a reply for its buffer, is too large. */
	SCOT_TOO_LARGE = 4,
	/* The system refused something. */
	SCOT_SYSTEM = 5,
	/* Nobody answers at the server's address. */
	SCOT_UNREACHABLE = 6,
	/* The server answered with an error, where another reply was expected. */
	SCOT_REFUSED = 7,
	/* A fault of this library. What it happened to can only be closed. */
	SCOT_FAULT = 8
};

enum scot_durability {
	SCOT_DURABILITY_NONE = 0,
	/* In the memory of the devices asked for. */
	SCOT_DURABILITY_RAM = 1,
	/* On stable storage of a device. */
	SCOT_DURABILITY_DISK = 2,
	SCOT_DURABILITY_RAM_AND_DISK = 3
};

/* The last error of the calling thread, valid until its next call here. Never NULL. */
const char *scot_error_message(void);

/* ---- client */

typedef struct scot_session scot_session;

typedef struct {
	/* "address:port" of the server. */
	const char *server;
	/* SCOT_CLUSTER_KEY_BYTES bytes that the cluster shares. */
	const uint8_t *cluster_key;
	/* Requests that may be outstanding or not yet stored; 0 for the default. */
	uint32_t window;
	/* One of enum scot_durability, for updates. */
	uint32_t durability;
	/* Devices that must acknowledge an update, 1 to 4; 0 for one. */
	uint32_t device_acks;
	/* How long starting, ending and sending into a full window may take; 0 for the default. */
	uint32_t timeout_ms;
} scot_session_options;

typedef struct {
	/* The request's number in its session, from 1. */
	uint64_t seq;
	/* The bytes of the reply; 0 if a device answered and the caller knows the reply. */
	size_t bytes;
	/* The application refused the request. */
	int failed;
	/* -1: the server answered, -2: the server's word that it is stored; else the device's number. */
	int answered_by;
} scot_reply;

/* Starts a session and waits until it is open. */
int scot_start_session(const scot_session_options *options, scot_session **session);

/* Waits until the server has stored every update, then ends and frees the session. It is freed on every
 * outcome; NULL is allowed. */
int scot_end_session(scot_session *session);

/* Sends a deterministic write, which devices may log. `seq` may be NULL. */
int scot_send_update(scot_session *session, const void *key, size_t key_bytes, const void *payload,
		     size_t payload_bytes, uint64_t *seq);

/* The same, for a write whose reply is known in advance: the devices' acknowledgement completes it. */
int scot_send_early_update(scot_session *session, const void *key, size_t key_bytes, const void *payload,
			   size_t payload_bytes, uint64_t *seq);

/* Sends a write that must not be logged: answered when the server has stored it. */
int scot_bypass(scot_session *session, const void *payload, size_t payload_bytes, uint64_t *seq);

/* Sends a request that changes nothing. */
int scot_read(scot_session *session, const void *key, size_t key_bytes, const void *payload,
	      size_t payload_bytes, uint64_t *seq);

/* Takes the next reply, in the order of the requests, and copies it to `buffer`. If it does not fit,
 * SCOT_TOO_LARGE is returned, `reply->bytes` says how large it is, and the reply can be taken again. */
int scot_next_reply(scot_session *session, void *buffer, size_t buffer_bytes, scot_reply *reply,
		    uint32_t timeout_ms);

/* ---- server */

typedef struct scot_server scot_server;

/* A session as a server stores it. */
typedef struct {
	uint64_t session;
	/* The number of the last request of the session that wrote, stored together with its write. */
	uint64_t position;
	uint32_t epoch;
	uint8_t client_nonce[SCOT_NONCE_BYTES];
	uint8_t server_nonce[SCOT_NONCE_BYTES];
} scot_session_record;

typedef struct {
	uint16_t id;
	/* "address:port" for the server's questions to it. */
	const char *address;
} scot_device;

typedef struct {
	/* "address:port" to listen on. */
	const char *address;
	/* SCOT_CLUSTER_KEY_BYTES bytes that the cluster shares. */
	const uint8_t *cluster_key;
	/* Larger than at any earlier start, and stored before this one; at least 1. */
	uint32_t epoch;
	/* Not 0: the application stores sessions (see SCOT_SESSION_STARTED) and gives them back here. */
	int keeps_sessions;
	const scot_session_record *sessions;
	size_t session_count;
	/* The devices on the path; the first is the head. */
	const scot_device *devices;
	size_t device_count;
} scot_server_options;

enum scot_incoming_kind {
	/* Requests. Execute them in the order received, then scot_ack. */
	SCOT_UPDATE = 1,
	SCOT_READ = 2,
	SCOT_BYPASS = 3,
	/* Store `record`, then scot_ack without a reply. */
	SCOT_SESSION_STARTED = 4,
	/* Forget `session`, then scot_ack without a reply. */
	SCOT_SESSION_ENDED = 5,
	/* An update that will never be executed: keep it for an operator. No scot_ack. */
	SCOT_DEAD_LETTER = 6
};

typedef struct {
	/* One of enum scot_incoming_kind. */
	int kind;
	/* For scot_ack. */
	uint64_t id;
	uint64_t session;
	/* To be stored together with what the request writes. */
	uint64_t seq;
	/* Valid until the next scot_receive or scot_close of this server. */
	const uint8_t *payload;
	size_t payload_bytes;
	scot_session_record record;
} scot_incoming;

/* Listens; with devices, recovers what they hold first. */
int scot_listen(const scot_server_options *options, scot_server **server);

/* Writes "address:port" that is listened on, with a closing zero. */
int scot_server_address(const scot_server *server, char *buffer, size_t buffer_bytes);

/* Gets the next thing to do. Call it often: it also keeps sessions and devices alive. */
int scot_receive(scot_server *server, scot_incoming *incoming, uint32_t timeout_ms);

/* What came under `id` is stored, or for a read, answered. `failed` not 0: the request was refused. */
int scot_ack(scot_server *server, uint64_t id, const void *reply, size_t reply_bytes, int failed);

/* Sends what is ready and frees the server; NULL is allowed. */
int scot_close(scot_server *server);

#ifdef __cplusplus
}
#endif

#endif
