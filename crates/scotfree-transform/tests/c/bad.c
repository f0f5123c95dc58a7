/* Whatever C gives, it gets a code and words: NULL, handles of another type, nodes of another message, values that do
 * not fit, every prefix of a message. Its descriptors are those of examples-c/transform.c. */
#include "scotfree_transform.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(wanted, call) expect((wanted), (call), #call)

static void expect(int wanted, int code, const char *call)
{
	if (code != wanted) {
		printf("%s: %d instead of %d: %s\n", call, code, wanted, scot_transform_error_message());
		exit(1);
	}
	if (code != SCOT_TRANSFORM_OK && strlen(scot_transform_error_message()) == 0) {
		printf("%s: no words\n", call);
		exit(1);
	}
}

static void wrong_handles(scot_transform_schema *schema, scot_transform_message *order, scot_transform_type of)
{
	scot_transform_field field, lines, what;
	scot_transform_field_info info;
	scot_transform_message *none;
	scot_transform_type type;
	scot_transform_node line;
	const scot_transform_limits deep = {.depth_max = 401};
	const void *bytes;
	size_t length;
	int64_t number;

	EXPECT(SCOT_TRANSFORM_INVALID, scot_transform_find_type(schema, NULL, &type));
	EXPECT(SCOT_TRANSFORM_INVALID, scot_transform_find_type(NULL, "shop.Line", &type));
	EXPECT(SCOT_TRANSFORM_INVALID, scot_transform_find_type(schema, "\xff", &type));
	EXPECT(SCOT_TRANSFORM_ABSENT, scot_transform_find_type(schema, "Line", &type));
	EXPECT(SCOT_TRANSFORM_OK, scot_transform_find_type(schema, "shop.Line", &type));
	EXPECT(SCOT_TRANSFORM_INVALID, scot_transform_find_type(schema, "shop.Line", NULL));
	EXPECT(SCOT_TRANSFORM_ABSENT, scot_transform_find_field(schema, of, "no", &field));
	EXPECT(SCOT_TRANSFORM_INVALID, scot_transform_find_field(schema, 999, "what", &field));
	EXPECT(SCOT_TRANSFORM_ABSENT, scot_transform_find_number(schema, of, 4, &field));
	EXPECT(SCOT_TRANSFORM_ABSENT, scot_transform_find_place(schema, of, 3, &field));
	EXPECT(SCOT_TRANSFORM_INVALID, scot_transform_describe(schema, 0xffffffff, &info));
	EXPECT(SCOT_TRANSFORM_INVALID, scot_transform_describe(schema, (uint32_t)of << 16 | 9, &info));
	EXPECT(SCOT_TRANSFORM_OK, scot_transform_find_number(schema, of, 2, &lines));
	EXPECT(SCOT_TRANSFORM_OK, scot_transform_describe(schema, lines, &info));
	if (info.of != type || info.kind != SCOT_TRANSFORM_MESSAGE || !info.is_many || info.is_map ||
	    info.number != 2 || info.name_bytes != 5 || memcmp(info.name, "lines", 5) != 0)
		exit(2);
	EXPECT(SCOT_TRANSFORM_OK, scot_transform_find_field(schema, type, "what", &what));
	EXPECT(SCOT_TRANSFORM_INVALID, scot_transform_message_new(schema, 999, NULL, &none));
	EXPECT(SCOT_TRANSFORM_INVALID, scot_transform_message_new(schema, of, &deep, &none));
	EXPECT(SCOT_TRANSFORM_INVALID, scot_transform_message_new(schema, of, NULL, NULL));
	EXPECT(SCOT_TRANSFORM_INVALID, scot_transform_clear(NULL));
	EXPECT(SCOT_TRANSFORM_INVALID, scot_transform_decode(order, NULL, 1));
	EXPECT(SCOT_TRANSFORM_INVALID, scot_transform_decode(order, "x", (size_t)-1));
	EXPECT(SCOT_TRANSFORM_OK, scot_transform_decode(order, NULL, 0));
	EXPECT(SCOT_TRANSFORM_INVALID, scot_transform_encode(order, NULL, &length));
	EXPECT(SCOT_TRANSFORM_INVALID, scot_transform_get_bytes(order, SCOT_TRANSFORM_ROOT, what, 0, &bytes, &length));
	EXPECT(SCOT_TRANSFORM_ABSENT, scot_transform_get_message(order, SCOT_TRANSFORM_ROOT, lines, 0, &line));
	EXPECT(SCOT_TRANSFORM_INVALID, scot_transform_set_message(order, SCOT_TRANSFORM_ROOT, lines, &line));
	EXPECT(SCOT_TRANSFORM_INVALID, scot_transform_add_message(order, SCOT_TRANSFORM_ROOT, lines, NULL));
	EXPECT(SCOT_TRANSFORM_VALUE, scot_transform_add_int(order, SCOT_TRANSFORM_ROOT, lines, 1));
	EXPECT(SCOT_TRANSFORM_OK, scot_transform_add_message(order, SCOT_TRANSFORM_ROOT, lines, &line));
	EXPECT(SCOT_TRANSFORM_VALUE, scot_transform_get_int(order, line, what, 0, &number));
	EXPECT(SCOT_TRANSFORM_ABSENT, scot_transform_get_bytes(order, line, what, 1, &bytes, &length));
	EXPECT(SCOT_TRANSFORM_OK, scot_transform_get_bytes(order, line, what, 0, &bytes, &length));
	if (length != 0)
		exit(2);
	EXPECT(SCOT_TRANSFORM_INVALID, scot_transform_get_bytes(order, line + 1, what, 0, &bytes, &length));
	EXPECT(SCOT_TRANSFORM_OK, scot_transform_clear(order));
	EXPECT(SCOT_TRANSFORM_INVALID, scot_transform_get_bytes(order, line, what, 0, &bytes, &length));
	EXPECT(SCOT_TRANSFORM_ABSENT, scot_transform_get_unknown(order, SCOT_TRANSFORM_ROOT, 0, &bytes, &length));
	scot_transform_message_free(NULL);
	scot_transform_schema_free(NULL);
}

static void wrong_values(scot_transform_schema *schema, scot_transform_message *order, scot_transform_type of)
{
	scot_transform_field customer, total, lines, counted;
	scot_transform_node line;
	scot_transform_type type;
	uint64_t number;
	size_t count;

	EXPECT(SCOT_TRANSFORM_OK, scot_transform_find_field(schema, of, "customer", &customer));
	EXPECT(SCOT_TRANSFORM_OK, scot_transform_find_field(schema, of, "total", &total));
	EXPECT(SCOT_TRANSFORM_OK, scot_transform_find_field(schema, of, "lines", &lines));
	EXPECT(SCOT_TRANSFORM_OK, scot_transform_find_type(schema, "shop.Line", &type));
	EXPECT(SCOT_TRANSFORM_OK, scot_transform_find_field(schema, type, "count", &counted));
	EXPECT(SCOT_TRANSFORM_VALUE, scot_transform_set_bytes(order, SCOT_TRANSFORM_ROOT, customer, "\xff", 1));
	EXPECT(SCOT_TRANSFORM_INVALID, scot_transform_set_bytes(order, SCOT_TRANSFORM_ROOT, customer, NULL, 1));
	EXPECT(SCOT_TRANSFORM_VALUE, scot_transform_set_double(order, SCOT_TRANSFORM_ROOT, total, 1.5));
	EXPECT(SCOT_TRANSFORM_VALUE, scot_transform_set_bool(order, SCOT_TRANSFORM_ROOT, total, 1));
	EXPECT(SCOT_TRANSFORM_VALUE, scot_transform_set_uint(order, SCOT_TRANSFORM_ROOT, total, UINT64_MAX));
	EXPECT(SCOT_TRANSFORM_INVALID, scot_transform_add_int(order, SCOT_TRANSFORM_ROOT, total, 1));
	EXPECT(SCOT_TRANSFORM_OK, scot_transform_set_int(order, SCOT_TRANSFORM_ROOT, total, INT64_MIN));
	EXPECT(SCOT_TRANSFORM_VALUE, scot_transform_get_uint(order, SCOT_TRANSFORM_ROOT, total, 0, &number));
	EXPECT(SCOT_TRANSFORM_OK, scot_transform_add_message(order, SCOT_TRANSFORM_ROOT, lines, &line));
	EXPECT(SCOT_TRANSFORM_VALUE, scot_transform_set_int(order, line, counted, -1));
	EXPECT(SCOT_TRANSFORM_VALUE, scot_transform_set_int(order, line, counted, 1LL << 32));
	EXPECT(SCOT_TRANSFORM_OK, scot_transform_count(order, line, counted, &count));
	if (count != 0)
		exit(2);
	EXPECT(SCOT_TRANSFORM_OK, scot_transform_clear_field(order, SCOT_TRANSFORM_ROOT, lines));
	EXPECT(SCOT_TRANSFORM_OK, scot_transform_count(order, SCOT_TRANSFORM_ROOT, lines, &count));
	if (count != 0)
		exit(2);
}

/* What a message gave is given back to it, while it grows and while it is decoded anew. */
static void own_bytes(scot_transform_schema *schema, scot_transform_message *order, scot_transform_type of)
{
	scot_transform_field customer, lines, what;
	scot_transform_node line;
	scot_transform_type type;
	const void *bytes;
	size_t length;

	EXPECT(SCOT_TRANSFORM_OK, scot_transform_find_field(schema, of, "customer", &customer));
	EXPECT(SCOT_TRANSFORM_OK, scot_transform_find_field(schema, of, "lines", &lines));
	EXPECT(SCOT_TRANSFORM_OK, scot_transform_find_type(schema, "shop.Line", &type));
	EXPECT(SCOT_TRANSFORM_OK, scot_transform_find_field(schema, type, "what", &what));
	/* An order within an order: the customer is an order of Eva's, and so long that it is what makes room grow. */
	char inner[5 + 4 * 129] = "\x0a\x03" "Eva";
	for (char *at = inner + 5; at < inner + sizeof(inner); at += 129) {
		memset(at, 'x', 129);
		memcpy(at, "\x22\x7f", 2);
	}
	EXPECT(SCOT_TRANSFORM_OK, scot_transform_clear(order));
	EXPECT(SCOT_TRANSFORM_OK,
	       scot_transform_set_bytes(order, SCOT_TRANSFORM_ROOT, customer, inner, sizeof(inner)));
	for (int at = 0; at < 100; at++) {
		EXPECT(SCOT_TRANSFORM_OK,
		       scot_transform_get_bytes(order, SCOT_TRANSFORM_ROOT, customer, 0, &bytes, &length));
		EXPECT(SCOT_TRANSFORM_OK, scot_transform_set_bytes(order, SCOT_TRANSFORM_ROOT, customer, bytes, length));
		EXPECT(SCOT_TRANSFORM_OK, scot_transform_add_message(order, SCOT_TRANSFORM_ROOT, lines, &line));
		EXPECT(SCOT_TRANSFORM_OK,
		       scot_transform_get_bytes(order, SCOT_TRANSFORM_ROOT, customer, 0, &bytes, &length));
		EXPECT(SCOT_TRANSFORM_OK, scot_transform_set_bytes(order, line, what, bytes, length));
	}
	EXPECT(SCOT_TRANSFORM_OK, scot_transform_get_bytes(order, line, what, 0, &bytes, &length));
	EXPECT(SCOT_TRANSFORM_OK, scot_transform_decode(order, bytes, length));
	EXPECT(SCOT_TRANSFORM_OK, scot_transform_get_bytes(order, SCOT_TRANSFORM_ROOT, customer, 0, &bytes, &length));
	if (length != 3 || memcmp(bytes, "Eva", 3) != 0)
		exit(2);
}

static void prefixes(scot_transform_message *order)
{
	static const char whole[] = "\x0a\x03" "Eva" "\x12\x0c\x0a\x01" "x" "\x11\0\0\0\0\0\0\0\x40" "\x18\x05\xf8\x01\x07";
	int refused = 0;

	for (size_t length = 0; length < sizeof(whole) - 1; length++) {
		/* A copy of its own, so that a sanitizer sees what is read behind it. */
		char *copy = malloc(length + 1);
		const void *bytes;
		size_t again;

		memcpy(copy, whole, length);
		int code = scot_transform_decode(order, copy, length);
		free(copy);
		EXPECT(SCOT_TRANSFORM_OK, scot_transform_encode(order, &bytes, &again));
		if (code == SCOT_TRANSFORM_OK ? again != length || memcmp(bytes, whole, length) != 0 : again != 0)
			exit(2);
		refused += code == SCOT_TRANSFORM_MALFORMED;
	}
	printf("%d of %zu prefixes refused: %s\n", refused, sizeof(whole) - 1, scot_transform_error_message());
}

int main(int count, char **arguments)
{
	static char bytes[65536];
	scot_transform_schema *schema, *none;
	scot_transform_message *order;
	scot_transform_type of;
	FILE *file = count == 2 ? fopen(arguments[1], "rb") : NULL;

	if (!file)
		return 2;
	size_t length = fread(bytes, 1, sizeof(bytes), file);
	fclose(file);
	EXPECT(SCOT_TRANSFORM_MALFORMED, scot_transform_schema_load("text", 4, &none));
	EXPECT(SCOT_TRANSFORM_MALFORMED, scot_transform_schema_load("", 0, &none));
	EXPECT(SCOT_TRANSFORM_INVALID, scot_transform_schema_load(bytes, length, NULL));
	EXPECT(SCOT_TRANSFORM_OK, scot_transform_schema_load(bytes, length, &schema));
	EXPECT(SCOT_TRANSFORM_OK, scot_transform_find_type(schema, "shop.Order", &of));
	EXPECT(SCOT_TRANSFORM_OK, scot_transform_message_new(schema, of, NULL, &order));
	wrong_handles(schema, order, of);
	wrong_values(schema, order, of);
	own_bytes(schema, order, of);
	/* What was made of it goes on. */
	scot_transform_schema_free(schema);
	prefixes(order);
	scot_transform_message_free(order);
	return 0;
}
