/*
 * A server that adds up numbers: an update adds one and answers with the sum, a read answers with the
 * sum, a bypass request sets it, and the bypass request `stop` ends the server.
 *
 * Usage: server ADDRESS
 */
#include <scotfree.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *doing)
{
	fprintf(stderr, "%s: %s\n", doing, scot_error_message());
	return 1;
}

/* The number that the payload is; 0 if it is none. */
static int parse(const scot_incoming *request, long long *number)
{
	char text[24];
	char *end;

	if (request->payload_bytes == 0 || request->payload_bytes >= sizeof(text))
		return 0;
	memcpy(text, request->payload, request->payload_bytes);
	text[request->payload_bytes] = 0;
	*number = strtoll(text, &end, 10);
	return *end == 0;
}

/* Not 0 when the server shall end. */
static int serve(scot_server *server, const scot_incoming *request, long long *sum)
{
	char reply[24];
	long long number = 0;
	int is_number = parse(request, &number);

	if (request->kind == SCOT_BYPASS && request->payload_bytes == 4 &&
	    memcmp(request->payload, "stop", 4) == 0) {
		scot_ack(server, request->id, "stopping", 8, 0);
		return 1;
	}
	if (request->kind != SCOT_READ && !is_number) {
		scot_ack(server, request->id, "not a number", 12, 1);
		return 0;
	}
	if (request->kind == SCOT_UPDATE)
		*sum += number;
	else if (request->kind == SCOT_BYPASS)
		*sum = number;
	/* A server with storage would store the sum and the session's position here. */
	snprintf(reply, sizeof(reply), "%lld", *sum);
	scot_ack(server, request->id, reply, strlen(reply), 0);
	return 0;
}

int main(int argc, char **argv)
{
	/* A real cluster has a secret key, read from a file. */
	uint8_t cluster_key[SCOT_CLUSTER_KEY_BYTES];
	scot_server_options options = { .cluster_key = cluster_key, .epoch = 1 };
	scot_server *server;
	scot_incoming request;
	char address[64];
	long long sum = 0;
	int code;

	if (argc < 2) {
		fprintf(stderr, "usage: server ADDRESS\n");
		return 2;
	}
	memset(cluster_key, 42, sizeof(cluster_key));
	options.address = argv[1];
	if (scot_listen(&options, &server) != SCOT_OK)
		return fail("listening");
	scot_server_address(server, address, sizeof(address));
	printf("listening on %s\n", address);
	fflush(stdout);
	do {
		code = scot_receive(server, &request, 1000);
		if (code == SCOT_TIMED_OUT)
			continue;
		if (code != SCOT_OK)
			return fail("receiving");
	} while (code == SCOT_TIMED_OUT || !serve(server, &request, &sum));
	if (scot_close(server) != SCOT_OK)
		return fail("closing");
	printf("the sum is %lld\n", sum);
	return 0;
}
