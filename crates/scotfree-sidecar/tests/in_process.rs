//! A Redis client in the test's own process, a server's sidecar behind it, and a real redis-server.

mod support;

use scotfree_io::conformance::ports::free_address;
use scotfree_sidecar::client::in_process::{RedisClient, RedisClientConfig, RedisError, Reply};
use scotfree_wire::ClusterKey;
use std::time::Duration;
use support::pair::{Pair, KEY};
use support::RedisServer;

/// A client, and what it speaks to.
fn connect(change: impl FnOnce(&mut RedisClientConfig)) -> Option<(RedisServer, Pair, RedisClient)> {
    let redis = RedisServer::start(&["--appendonly yes"])?;
    let address = free_address();
    let pair = Pair::start_at(address, &redis, &[], |_| ());
    let mut config = RedisClientConfig::new(address, ClusterKey::from_bytes(KEY));
    change(&mut config);
    let client = RedisClient::connect(&config).expect("the server's sidecar answers");
    Some((redis, pair, client))
}

fn simple(text: &str) -> Reply {
    Reply::Simple(text.to_owned())
}

#[test]
fn commands_are_answered_as_redis_does() {
    let Some((redis, pair, mut client)) = connect(|_| ()) else { return };
    client.set("k", "v").expect("it is set");
    assert_eq!(client.get("k").expect("a reply"), Some(b"v".to_vec()));
    assert_eq!(client.get("none").expect("a reply"), None);
    assert_eq!(client.command(&["INCR", "n"]).expect("a reply"), Reply::Integer(1));
    let wrong = client.command(&["LPUSH", "k", "x"]).expect("an error is a reply");
    assert!(matches!(&wrong, Reply::Error(text) if text.starts_with("WRONGTYPE")), "{wrong:?}");
    assert!(matches!(client.get("list"), Ok(None)));
    client.command(&["RPUSH", "list", "a", "b"]).expect("a reply");
    assert!(matches!(client.get("list"), Err(RedisError::Unexpected(Reply::Error(_)))));
    let range = client.command(&["LRANGE", "list", "0", "-1"]).expect("a reply");
    assert_eq!(range, Reply::Array(vec![Reply::Bulk(b"a".to_vec()), Reply::Bulk(b"b".to_vec())]));
    let large = vec![b'x'; 3 << 20];
    client.set("large", &large).expect("it is set in parts");
    assert!(client.get("large").expect("a reply") == Some(large), "it comes in parts");
    assert_eq!(redis.connect().line("GET k"), b"$1\r\nv\r\n");
    pair.end();
}

#[test]
fn commands_sent_one_behind_the_other_share_packets_and_are_answered_in_their_order() {
    let Some((redis, pair, mut client)) = connect(|_| ()) else { return };
    for _ in 0..500 {
        client.send(&["INCR", "n"]).expect("it is sent");
    }
    assert_eq!(client.outstanding(), 500);
    for number in 1..=500 {
        assert_eq!(client.receive().expect("a reply"), Reply::Integer(number));
    }
    assert!(matches!(client.receive(), Err(RedisError::NothingAsked)));
    let info = redis.connect().line("INFO commandstats");
    let execs = String::from_utf8_lossy(&info)
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_exec:calls=")?.split(',').next()?.parse::<u32>().ok());
    assert!(execs.is_some_and(|count| count < 250), "{execs:?} transactions of 500 commands");
    pair.end();
}

#[test]
fn a_transaction_that_watches_is_the_connections_own() {
    let Some((redis, pair, mut client)) = connect(|_| ()) else { return };
    client.set("w", "1").expect("it is set");
    for (interferes, expected) in [(false, Reply::Array(vec![simple("OK")])), (true, Reply::Null)] {
        assert_eq!(client.command(&["WATCH", "w"]).expect("a reply"), simple("OK"));
        assert_eq!(client.command(&["MULTI"]).expect("a reply"), simple("OK"));
        assert_eq!(client.command(&["SET", "w", "2"]).expect("a reply"), simple("QUEUED"));
        if interferes {
            redis.connect().line("SET w 3");
        }
        assert_eq!(client.command(&["EXEC"]).expect("a reply"), expected, "{interferes}");
    }
    pair.end();
}

#[test]
fn what_needs_a_socket_is_refused_and_the_next_command_begins_anew() {
    let Some((_redis, pair, mut client)) = connect(|_| ()) else { return };
    for words in
        [&["SUBSCRIBE", "c"][..], &["BLPOP", "l", "0"], &["MONITOR"], &["client", "reply", "off"], &[]]
    {
        let refused = client.command(words);
        assert!(matches!(refused, Err(RedisError::Unsupported)), "{words:?}: {refused:?}");
        client.set("k", "v").expect("a new connection");
    }
    // Behind other commands it is refused when these are answered.
    client.send(&["INCR", "n"]).expect("it is sent");
    client.send(&["SUBSCRIBE", "c"]).expect("it is sent");
    let (first, second) = (client.receive(), client.receive());
    assert!(matches!(first, Ok(Reply::Integer(1))), "{first:?}");
    assert!(matches!(second, Err(RedisError::Unsupported)), "{second:?}");
    assert_eq!(client.command(&["QUIT"]).expect("a reply"), simple("OK"));
    assert_eq!(client.get("k").expect("a new connection"), Some(b"v".to_vec()));
    pair.end();
}

#[test]
fn a_server_that_is_slow_is_waited_for_and_one_that_is_gone_ends_the_connection() {
    let Some((redis, pair, mut client)) = connect(|config| config.time_max = Duration::from_millis(200))
    else {
        return;
    };
    client.set("k", "v").expect("it is set");
    redis.pause();
    assert!(matches!(client.command(&["INCR", "n"]), Err(RedisError::TimedOut(_))));
    redis.go_on();
    // Its reply comes before the next one's.
    let mut next = client.command(&["INCR", "n"]);
    while let Err(RedisError::TimedOut(_)) = next {
        next = client.receive();
    }
    while client.outstanding() > 0 {
        next = client.receive();
    }
    assert_eq!(next.expect("a reply"), Reply::Integer(2));
    pair.end();
}

#[test]
fn nobody_there_is_said() {
    let mut config = RedisClientConfig::new(free_address(), ClusterKey::from_bytes(KEY));
    config.time_max = Duration::from_millis(300);
    let error = RedisClient::connect(&config).err().expect("nobody answers").to_string();
    assert!(error.contains("nothing answers at"), "{error}");
}
