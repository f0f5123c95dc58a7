/*
 * Decodes an order from standard input, gives each of its lines a discount, adds one, and writes the
 * order to standard output; what it did goes to standard error. Its descriptors are in a file:
 *
 *     message Order { string customer = 1; repeated Line lines = 2; sint64 total = 3; }
 *     message Line { string what = 1; double price = 2; uint32 count = 3; }
 */
#include "scotfree_transform.h"
#include <stdio.h>
#include <stdlib.h>

static void require(int code)
{
	if (code != SCOT_TRANSFORM_OK) {
		fprintf(stderr, "%s\n", scot_transform_error_message());
		exit(code);
	}
}

static size_t read_all(FILE *file, char *buffer, size_t room)
{
	size_t length = file ? fread(buffer, 1, room, file) : 0;

	if (!file || ferror(file) || !feof(file)) {
		fprintf(stderr, "cannot read, or it is longer than %zu bytes\n", room);
		exit(1);
	}
	return length;
}

static scot_transform_field field(const scot_transform_schema *schema, scot_transform_type of, const char *name)
{
	scot_transform_field found;

	require(scot_transform_find_field(schema, of, name, &found));
	return found;
}

int main(int count, char **arguments)
{
	static char bytes[65536];
	scot_transform_schema *schema;
	scot_transform_message *order;
	scot_transform_type order_type, line_type;
	scot_transform_node line;
	size_t lines, length;
	const void *text;
	FILE *file = count == 2 ? fopen(arguments[1], "rb") : NULL;
	double total = 0;

	/* Once: types and fields. */
	require(scot_transform_schema_load(bytes, read_all(file, bytes, sizeof(bytes)), &schema));
	fclose(file);
	require(scot_transform_find_type(schema, "shop.Order", &order_type));
	require(scot_transform_find_type(schema, "shop.Line", &line_type));
	const scot_transform_field customer = field(schema, order_type, "customer");
	const scot_transform_field of_lines = field(schema, order_type, "lines");
	const scot_transform_field of_total = field(schema, order_type, "total");
	const scot_transform_field what = field(schema, line_type, "what");
	const scot_transform_field price = field(schema, line_type, "price");

	/* For each message: the same handle. */
	require(scot_transform_message_new(schema, order_type, NULL, &order));
	require(scot_transform_decode(order, bytes, read_all(stdin, bytes, sizeof(bytes))));
	require(scot_transform_get_bytes(order, SCOT_TRANSFORM_ROOT, customer, 0, &text, &length));
	fprintf(stderr, "an order of %.*s\n", (int)length, (const char *)text);
	require(scot_transform_count(order, SCOT_TRANSFORM_ROOT, of_lines, &lines));
	for (size_t at = 0; at < lines; at++) {
		double its;

		require(scot_transform_get_message(order, SCOT_TRANSFORM_ROOT, of_lines, at, &line));
		require(scot_transform_get_double(order, line, price, 0, &its));
		require(scot_transform_set_double(order, line, price, its / 2));
		require(scot_transform_get_bytes(order, line, what, 0, &text, &length));
		fprintf(stderr, "%.*s: %g instead of %g\n", (int)length, (const char *)text, its / 2, its);
		total += its / 2;
	}
	require(scot_transform_add_message(order, SCOT_TRANSFORM_ROOT, of_lines, &line));
	require(scot_transform_set_bytes(order, line, what, "a gift", 6));
	require(scot_transform_set_int(order, SCOT_TRANSFORM_ROOT, of_total, (int64_t)total));
	require(scot_transform_encode(order, &text, &length));
	if (fwrite(text, 1, length, stdout) != length)
		return 1;

	scot_transform_message_free(order);
	scot_transform_schema_free(schema);
	return 0;
}
