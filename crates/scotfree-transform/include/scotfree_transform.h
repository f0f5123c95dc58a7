/*
 * The C interface of Scotfree's codec: messages of Protobuf by descriptors that are read at run time.
 *
 * A schema is loaded once, and may be used by any number of threads at once. A message is used by one
 * thread at a time, again for message after message: once it has grown, decoding asks the heap for
 * nothing.
 *
 * Every function that returns int returns a code of enum scot_transform_code; on any but
 * SCOT_TRANSFORM_OK, scot_transform_error_message() says in words, for the calling thread, what was
 * given and what is expected, and nothing was changed unless it is said.
 */
#ifndef SCOTFREE_TRANSFORM_H
#define SCOTFREE_TRANSFORM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum scot_transform_code {
	SCOT_TRANSFORM_OK = 0,
	/* An argument makes no sense: NULL, no such type, field or node, or one of another type. */
	SCOT_TRANSFORM_INVALID = 1,
	/* What is asked for is not there. */
	SCOT_TRANSFORM_ABSENT = 2,
	/* The bytes are no message of the type, or no set of descriptors; or beyond a limit. */
	SCOT_TRANSFORM_MALFORMED = 3,
	/* A value that the field does not take: another kind, beyond its bits, no UTF-8; or a required
	 * field has none. */
	SCOT_TRANSFORM_VALUE = 4,
	/* A fault of this library. What it happened to can only be freed. */
	SCOT_TRANSFORM_FAULT = 5
};

/* The last error of the calling thread, valid until its next call here. Never NULL. */
const char *scot_transform_error_message(void);

/* ---- schema */

typedef struct scot_transform_schema scot_transform_schema;
/* A type of a schema. */
typedef uint16_t scot_transform_type;
/* A field of a type of a schema: looked up once, used with each message. */
typedef uint32_t scot_transform_field;

enum scot_transform_kind {
	SCOT_TRANSFORM_BOOL = 0,
	/* scot_transform_get_int and its like. */
	SCOT_TRANSFORM_INT = 1,
	SCOT_TRANSFORM_UINT = 2,
	SCOT_TRANSFORM_DOUBLE = 3,
	SCOT_TRANSFORM_STRING = 4,
	SCOT_TRANSFORM_BYTES = 5,
	/* As an int. */
	SCOT_TRANSFORM_ENUM = 6,
	SCOT_TRANSFORM_MESSAGE = 7
};

typedef struct {
	/* Not closed by a zero; valid as long as the schema. */
	const char *name;
	size_t name_bytes;
	uint32_t number;
	/* One of enum scot_transform_kind. */
	int kind;
	/* Of a list or a map, whose entries are messages of a key (1) and a value (2). */
	int is_many;
	int is_map;
	/* The type of messages, if they are. */
	scot_transform_type of;
} scot_transform_field_info;

/* Loads the types of a FileDescriptorSet, as protoc --include_imports --descriptor_set_out writes it. */
int scot_transform_schema_load(const void *descriptors, size_t bytes, scot_transform_schema **schema);

/* Frees it; messages of it go on. NULL is allowed. */
void scot_transform_schema_free(scot_transform_schema *schema);

/* The type of a full name, "package.Message". */
int scot_transform_find_type(const scot_transform_schema *schema, const char *name, scot_transform_type *type);

/* A field by its name, by its number, and by its place: 0 and so on by ascending numbers, until
 * SCOT_TRANSFORM_ABSENT. */
int scot_transform_find_field(const scot_transform_schema *schema, scot_transform_type type, const char *name,
			      scot_transform_field *field);
int scot_transform_find_number(const scot_transform_schema *schema, scot_transform_type type, uint32_t number,
			       scot_transform_field *field);
int scot_transform_find_place(const scot_transform_schema *schema, scot_transform_type type, size_t place,
			      scot_transform_field *field);

int scot_transform_describe(const scot_transform_schema *schema, scot_transform_field field,
			    scot_transform_field_info *info);

/* ---- messages */

typedef struct scot_transform_message scot_transform_message;
/* A message within a message. One that was got before the last decoding or clearing is refused. */
typedef uint64_t scot_transform_node;
/* The message itself. */
#define SCOT_TRANSFORM_ROOT ((scot_transform_node)0)

/* 0 for the default of each. */
typedef struct {
	/* Bytes on the wire; 64 MiB. */
	uint32_t message_bytes_max;
	/* Messages in each other, 400 at most; 100. A level takes 1 KiB of the stack. */
	uint32_t depth_max;
	/* Bytes of what messages are decoded to; 256 MiB. */
	uint32_t slots_bytes_max;
	/* Runs of fields that the schema does not know; a million. */
	uint32_t unknown_fields_max;
} scot_transform_limits;

/* An empty message of a type. `limits` may be NULL. */
int scot_transform_message_new(const scot_transform_schema *schema, scot_transform_type type,
			       const scot_transform_limits *limits, scot_transform_message **message);

/* NULL is allowed. */
void scot_transform_message_free(scot_transform_message *message);

/* Empties it. */
int scot_transform_clear(scot_transform_message *message);

/* Decodes a copy of the bytes. The message is empty on any error. */
int scot_transform_decode(scot_transform_message *message, const void *bytes, size_t length);

/* Encodes it: the bytes are the message's own, valid until its next encoding or its end. */
int scot_transform_encode(scot_transform_message *message, const void **bytes, size_t *length);

/* How many values there are: of a field of one, 1 if it is there and 0 if not. */
int scot_transform_count(const scot_transform_message *message, scot_transform_node node,
			 scot_transform_field field, size_t *count);

/* A value. `index` counts from 0, and is 0 for a field of one; such a field that is not there is zero or
 * empty. Bytes are not closed by a zero, and valid until the message is changed, to which they may be given
 * back. */
int scot_transform_get_bool(const scot_transform_message *message, scot_transform_node node,
			    scot_transform_field field, size_t index, int *value);
int scot_transform_get_int(const scot_transform_message *message, scot_transform_node node,
			   scot_transform_field field, size_t index, int64_t *value);
int scot_transform_get_uint(const scot_transform_message *message, scot_transform_node node,
			    scot_transform_field field, size_t index, uint64_t *value);
int scot_transform_get_double(const scot_transform_message *message, scot_transform_node node,
			      scot_transform_field field, size_t index, double *value);
int scot_transform_get_bytes(const scot_transform_message *message, scot_transform_node node,
			     scot_transform_field field, size_t index, const void **value, size_t *length);
/* A message that is not there is SCOT_TRANSFORM_ABSENT. */
int scot_transform_get_message(scot_transform_message *message, scot_transform_node node,
			       scot_transform_field field, size_t index, scot_transform_node *value);

/* Sets a field of one. Of a oneof the other members are absent then. */
int scot_transform_set_bool(scot_transform_message *message, scot_transform_node node,
			    scot_transform_field field, int value);
int scot_transform_set_int(scot_transform_message *message, scot_transform_node node,
			   scot_transform_field field, int64_t value);
int scot_transform_set_uint(scot_transform_message *message, scot_transform_node node,
			    scot_transform_field field, uint64_t value);
int scot_transform_set_double(scot_transform_message *message, scot_transform_node node,
			      scot_transform_field field, double value);
int scot_transform_set_bytes(scot_transform_message *message, scot_transform_node node,
			     scot_transform_field field, const void *value, size_t length);
/* The message of the field, an empty one if it was not there. */
int scot_transform_set_message(scot_transform_message *message, scot_transform_node node,
			       scot_transform_field field, scot_transform_node *value);

/* Puts a value behind those of a field of many. */
int scot_transform_add_bool(scot_transform_message *message, scot_transform_node node,
			    scot_transform_field field, int value);
int scot_transform_add_int(scot_transform_message *message, scot_transform_node node,
			   scot_transform_field field, int64_t value);
int scot_transform_add_uint(scot_transform_message *message, scot_transform_node node,
			    scot_transform_field field, uint64_t value);
int scot_transform_add_double(scot_transform_message *message, scot_transform_node node,
			      scot_transform_field field, double value);
int scot_transform_add_bytes(scot_transform_message *message, scot_transform_node node,
			     scot_transform_field field, const void *value, size_t length);
int scot_transform_add_message(scot_transform_message *message, scot_transform_node node,
			       scot_transform_field field, scot_transform_node *value);

/* Has a field be absent, one of many be empty. */
int scot_transform_clear_field(scot_transform_message *message, scot_transform_node node,
			       scot_transform_field field);

/* A run of the fields that the schema does not know, 0 and so on until SCOT_TRANSFORM_ABSENT. Encoding
 * writes them again. */
int scot_transform_get_unknown(const scot_transform_message *message, scot_transform_node node, size_t index,
			       const void **bytes, size_t *length);

#ifdef __cplusplus
}
#endif

#endif
