/*
 * Redis commands from this process: a value, a list, a pipeline, an error.
 *
 * Usage: redis_client SERVER KEY_FILE, with the address of a scot sidecar server
 */
#include <scotfree_redis.h>
#include <stdio.h>
#include <stdlib.h>

static void check(int code, const char *doing)
{
	if (code != SCOT_OK) {
		fprintf(stderr, "%s: %s\n", doing, scot_error_message());
		exit(1);
	}
}

int main(int argc, char **argv)
{
	scot_redis_options options = { .durability = SCOT_DURABILITY_RAM };
	const char *push[] = { "RPUSH", "list", "a", "b" }, *range[] = { "LRANGE", "list", "0", "-1" };
	const char *count[] = { "INCR", "count" }, *wrong[] = { "INCR", "greeting" };
	scot_redis *redis;
	scot_redis_reply *reply;
	int number;

	if (argc != 3) {
		fprintf(stderr, "usage: redis_client SERVER KEY_FILE\n");
		return 2;
	}
	options.server = argv[1];
	options.key_file = argv[2];
	check(scot_redis_connect(&options, &redis), "connecting");

	check(scot_redis_set(redis, "greeting", 8, "hello", 5), "SET");
	check(scot_redis_get(redis, "greeting", 8, &reply), "GET");
	printf("greeting: %s\n", reply->bytes);
	scot_redis_free_reply(&reply);

	check(scot_redis_send(redis, 4, push, NULL), "sending");
	for (number = 0; number < 100; number++)
		check(scot_redis_send(redis, 2, count, NULL), "sending");
	for (number = 0; number <= 100; number++) {
		check(scot_redis_receive(redis, &reply), "receiving");
		if (number == 100)
			printf("count: %lld\n", (long long)reply->integer);
		scot_redis_free_reply(&reply);
	}
	check(scot_redis_command(redis, 4, range, NULL, &reply), "LRANGE");
	printf("list: %zu, the last is %s\n", reply->element_count, reply->elements[1].bytes);
	scot_redis_free_reply(&reply);
	check(scot_redis_command(redis, 2, wrong, NULL, &reply), "INCR");
	printf("refused: %d, %s\n", reply->type == SCOT_REDIS_ERROR, reply->bytes);
	scot_redis_free_reply(&reply);
	check(scot_redis_close(&redis), "closing");
	return 0;
}
