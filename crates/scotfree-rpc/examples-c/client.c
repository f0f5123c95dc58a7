/*
 * A client of the server that adds up numbers.
 *
 * Usage: client ADDRESS [stop]
 */
#include <scotfree.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int code, const char *doing)
{
	if (code != SCOT_OK) {
		fprintf(stderr, "%s: %s\n", doing, scot_error_message());
		exit(1);
	}
}

static void print_reply(scot_session *session, const char *what)
{
	char text[64];
	scot_reply reply;

	check(scot_next_reply(session, text, sizeof(text), &reply, 10000), what);
	printf("%s: %.*s\n", what, (int)reply.bytes, text);
}

int main(int argc, char **argv)
{
	/* A real cluster has a secret key, read from a file. */
	uint8_t cluster_key[SCOT_CLUSTER_KEY_BYTES];
	scot_session_options options = { .cluster_key = cluster_key, .durability = SCOT_DURABILITY_RAM };
	scot_session *session;
	char text[24];
	int number;

	if (argc < 2) {
		fprintf(stderr, "usage: client ADDRESS [stop]\n");
		return 2;
	}
	memset(cluster_key, 42, sizeof(cluster_key));
	options.server = argv[1];
	check(scot_start_session(&options, &session), "starting a session");

	check(scot_bypass(session, "1000", 4, NULL), "sending");
	print_reply(session, "set");
	/* Updates are sent one behind the other; their replies come in the same order. */
	for (number = 1; number <= 10; number++) {
		snprintf(text, sizeof(text), "%d", number);
		check(scot_send_update(session, "sum", 3, text, strlen(text), NULL), "sending");
	}
	for (number = 1; number <= 10; number++) {
		snprintf(text, sizeof(text), "added %d", number);
		print_reply(session, text);
	}
	check(scot_send_update(session, "sum", 3, "ten", 3, NULL), "sending");
	print_reply(session, "refused");
	check(scot_read(session, "sum", 3, NULL, 0, NULL), "sending");
	print_reply(session, "read");
	if (argc > 2 && strcmp(argv[2], "stop") == 0) {
		check(scot_bypass(session, "stop", 4, NULL), "sending");
		print_reply(session, "stop");
		/* The server is gone and cannot end the session with us. */
		return 0;
	}
	check(scot_end_session(session), "ending the session");
	printf("ended\n");
	return 0;
}
