//! The proxy before a real Redis, and clients that block, listen or track: past the log no longer than they must.

mod site;

use scotfree_io::conformance::ports::free_address;
use scotfree_stage::process::wait_until;
use scotfree_stage::resp::Connection;
use site::{call, get, text, Site, PATIENCE};
use std::net::SocketAddr;

/// How many writes a client makes to see which way they take.
const WRITES: u64 = 10;

fn value_of(metrics: SocketAddr, name: &str) -> u64 {
    let page = get(metrics, "/metrics");
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// Writes through a connection, and says whether so many more updates were handed to the log.
fn writes_are_logged(client: &mut Connection, metrics: SocketAddr, logged: &mut u64) -> bool {
    for number in 0..WRITES {
        assert_eq!(call(client, &format!("SET tt {number}")), "OK");
    }
    *logged += WRITES;
    let mut found = 0;
    let all = wait_until(PATIENCE, || {
        found = value_of(metrics, "scotfree_proxy_logged_total");
        found >= *logged
    });
    assert!(!all || found == *logged, "{found} instead of {logged}");
    all
}

#[test]
fn after_a_command_that_blocks_or_listens_writes_are_logged_again() {
    let Some(site) = Site::new("proxy-blocks") else { return };
    let metrics = free_address();
    let _redis = site.redis(&[]);
    let _proxy = site.proxy(&["--metrics", &metrics.to_string()]);
    let (mut client, mut logged) = (site.connect(), 0);
    for line in [
        "BRPOP nol 0.05",
        "BRPOP nol 0.05",
        "BLMOVE none other LEFT RIGHT 0.05",
        "BZPOPMIN noz 0.05",
        "XREAD BLOCK 20 STREAMS nos 0",
    ] {
        assert_eq!(call(&mut client, line), "nil", "{line}");
        assert!(writes_are_logged(&mut client, metrics, &mut logged), "{line}");
    }
    assert_eq!(call(&mut client, "RPUSH l x"), "1");
    logged += 1;
    let popped = call(&mut client, "BRPOP l 0");
    assert!(popped.starts_with("Array"), "{popped}");
    assert!(writes_are_logged(&mut client, metrics, &mut logged), "behind an element");
    for line in ["SUBSCRIBE a b", "UNSUBSCRIBE"] {
        client.push(&line.split(' ').collect::<Vec<_>>());
        client.flush().expect("it is sent");
        for _ in 0..2 {
            client.read().expect("each channel is confirmed");
        }
    }
    assert!(writes_are_logged(&mut client, metrics, &mut logged), "behind the last channel");
    assert_eq!(call(&mut client, "MULTI"), "OK");
    assert_eq!(call(&mut client, "SUBSCRIBE a"), "QUEUED");
    assert_eq!(call(&mut client, "UNSUBSCRIBE"), "QUEUED");
    assert!(call(&mut client, "EXEC").starts_with("Array"));
    assert!(writes_are_logged(&mut client, metrics, &mut logged), "behind a transaction that listens");
}

#[test]
fn in_a_pipeline_with_a_blocking_command_answers_keep_their_order() {
    let Some(site) = Site::new("proxy-pipeline") else { return };
    let _redis = site.redis(&[]);
    let _proxy = site.proxy(&[]);
    let (mut client, mut other) = (site.connect(), site.connect());
    let lines = [
        "SELECT 2",
        "SET a 1",
        "BLPOP jobs 0",
        "INCR a",
        "GET a",
        "BLPOP none 0.01",
        "INCR a",
        "SELECT 0",
        "GET a",
    ];
    for line in lines {
        client.push(&line.split(' ').collect::<Vec<_>>());
    }
    client.flush().expect("it is sent");
    assert_eq!(text(&client.read().expect("an answer")), "OK");
    assert_eq!(text(&client.read().expect("an answer")), "OK");
    assert_eq!(call(&mut other, "SELECT 2"), "OK");
    assert_eq!(call(&mut other, "GET a"), "1", "what is behind the blocking command waits for it");
    assert_eq!(call(&mut other, "RPUSH jobs one"), "1");
    let mut answers = (2..lines.len()).map(|_| text(&client.read().expect("an answer")));
    let popped = answers.next().unwrap_or_default();
    assert!(popped.contains("Array"), "{popped}");
    assert_eq!(answers.collect::<Vec<_>>(), ["2", "2", "nil", "3", "OK", "nil"]);
}

#[test]
fn a_client_that_ends_while_it_blocks_takes_nothing_from_others() {
    let Some(site) = Site::new("proxy-block-ends") else { return };
    let _redis = site.redis(&[]);
    let _proxy = site.proxy(&[]);
    let (mut client, mut other) = (site.connect(), site.connect());
    client.push(&["BLPOP", "jobs", "0"]);
    client.flush().expect("it is sent");
    let blocked = |other: &mut Connection| call(other, "INFO clients").contains("blocked_clients:1");
    assert!(wait_until(PATIENCE, || blocked(&mut other)));
    drop(client);
    assert!(wait_until(PATIENCE, || !blocked(&mut other)));
    assert_eq!(call(&mut other, "RPUSH jobs one"), "1");
    assert_eq!(call(&mut other, "LLEN jobs"), "1");
}

#[test]
fn who_is_gone_gets_nothing_whatever_it_has_sent_behind_what_blocks() {
    let Some(site) = Site::new("proxy-gone") else { return };
    let _redis = site.redis(&[]);
    let _proxy = site.proxy(&[]);
    let mut other = site.connect();
    let blocked = |other: &mut Connection| call(other, "INFO clients").contains("blocked_clients:1");
    // As much as is read of it while it waits, and more.
    for bytes in [200_000, (1 << 20) + 30_000] {
        let mut client = site.connect();
        client.push(&["BLPOP", "jobs", "0"]);
        client.push(&["SET", "k", &"x".repeat(bytes)]);
        client.flush().expect("it is sent");
        assert!(wait_until(PATIENCE, || blocked(&mut other)));
        drop(client);
        assert!(wait_until(PATIENCE, || !blocked(&mut other)), "{bytes} bytes behind it");
    }
    assert_eq!(call(&mut other, "RPUSH jobs one"), "1");
    assert_eq!((call(&mut other, "LLEN jobs"), call(&mut other, "EXISTS k")), ("1".into(), "0".into()));
}

#[test]
fn what_rests_makes_room_for_what_blocks() {
    let Some(site) = Site::new("proxy-rests") else { return };
    let _redis = site.redis(&[]);
    let _proxy = site.proxy(&["--tunnels-max", "2"]);
    let mut clients: Vec<Connection> = (0..5).map(|_| site.connect()).collect();
    for round in 0..2 {
        for client in &mut clients {
            assert_eq!(call(client, "BLPOP nothing 0.01"), "nil", "round {round}");
        }
    }
    assert_eq!(call(&mut clients[0], "SET k 1"), "OK");
}

#[test]
fn who_was_named_by_another_is_logged_again() {
    let Some(site) = Site::new("proxy-named") else { return };
    let metrics = free_address();
    let _redis = site.redis(&[]);
    let _proxy = site.proxy(&["--metrics", &metrics.to_string()]);
    let (mut client, mut listener, mut logged) = (site.connect(), site.connect(), 0);
    let target = call(&mut listener, "CLIENT ID");
    assert_eq!(call(&mut client, &format!("CLIENT TRACKING on REDIRECT {target}")), "OK");
    assert_eq!(call(&mut client, "CLIENT TRACKING off"), "OK");
    assert!(writes_are_logged(&mut listener, metrics, &mut logged));
}

#[test]
fn who_tracks_is_answered_when_its_writes_are_stable_and_refused_where_they_cannot_be() {
    let Some(site) = Site::new("proxy-tracks") else { return };
    let metrics = free_address();
    let _redis = site.redis(&[]);
    let _proxy = site.proxy(&["--metrics", &metrics.to_string()]);
    // At once more than connections to the server are kept for: a target's number there is waited for.
    let mut pairs: Vec<_> = (0..32).map(|_| (site.connect(), site.connect())).collect();
    for (client, listener) in &mut pairs {
        let target = call(listener, "CLIENT ID");
        client.push(&["CLIENT", "TRACKING", "on", "REDIRECT", &target]);
    }
    for (client, _) in &mut pairs {
        client.flush().expect("it is sent");
    }
    for (client, _) in &mut pairs {
        assert_eq!(text(&client.read().expect("it answers")), "OK");
    }
    let ((mut client, mut listener), mut logged) = (pairs.swap_remove(0), 0);
    let itself = call(&mut listener, "CLIENT ID");
    assert_eq!(call(&mut listener, &format!("CLIENT TRACKING on REDIRECT {itself}")), "OK");
    let bypasses = || value_of(metrics, "scotfree_front_bypasses_total");
    assert_eq!((call(&mut client, "SET k 1"), call(&mut client, "GET k")), ("OK".into(), "1".into()));
    assert!(wait_until(PATIENCE, || bypasses() == 1), "it waited for the server's storage");
    assert_eq!(call(&mut client, "MULTI"), "OK");
    assert_eq!(call(&mut client, "INCR k"), "QUEUED");
    assert_eq!(call(&mut client, "EXEC"), "Array([Integer(2)])");
    assert!(wait_until(PATIENCE, || bypasses() == 2), "so did the transaction, and what it queued did not");
    let mut direct = site.direct();
    assert_eq!(text(&direct.call(&["CONFIG", "SET", "appendonly", "no"]).expect("it answers")), "OK");
    let refused = |client: &mut Connection, line: &str| call(client, line).contains("writes are refused");
    // Whose write is held already would wait until the files are whole again.
    assert!(wait_until(PATIENCE, || refused(&mut site.connect(), "SET other 3")));
    assert!(refused(&mut client, "SET k 3"), "here too");
    assert!(refused(&mut site.connect(), "BLPOP l 0"), "and what blocks");
    assert_eq!(text(&direct.call(&["CONFIG", "SET", "appendonly", "yes"]).expect("it answers")), "OK");
    assert!(wait_until(PATIENCE, || call(&mut client, "SET k 4") == "OK"));
    assert_eq!(call(&mut client, "CLIENT TRACKING off"), "OK");
    logged += value_of(metrics, "scotfree_proxy_logged_total");
    assert!(writes_are_logged(&mut client, metrics, &mut logged));
}

#[test]
fn who_tracks_and_deletes_all_leaves_the_markers() {
    let Some(site) = Site::new("proxy-tracks-flushes") else { return };
    let metrics = free_address();
    let _redis = site.redis(&[]);
    let proxy = site.proxy(&["--metrics", &metrics.to_string()]);
    let (mut client, mut tracker) = (site.connect(), site.connect());
    assert_eq!(call(&mut client, "INCR n"), "1");
    assert_eq!(call(&mut tracker, "CLIENT TRACKING ON"), "OK");
    for words in [&["SET", "k", "1"][..], &["FLUSHALL"], &["GET", "k"]] {
        tracker.push(words);
    }
    tracker.flush().expect("it is sent");
    for expected in ["OK", "OK", "nil"] {
        assert_eq!(text(&tracker.read().expect("it answers")), expected);
    }
    assert_eq!(call(&mut client, "EXISTS n"), "0");
    assert_eq!(call(&mut tracker, "MULTI"), "OK");
    let told = call(&mut tracker, "FLUSHALL");
    assert!(told.starts_with("ERR scotfree: FLUSHALL would delete the markers"), "{told}");
    let told = call(&mut tracker, "CLIENT REPLY SKIP");
    assert!(told.contains("CLIENT REPLY inside MULTI is not supported"), "{told}");
    assert!(call(&mut tracker, "EXEC").starts_with("EXECABORT"));
    assert_eq!(call(&mut tracker, "ECHO all"), "all", "answers are those of their commands");
    // Before anything else writes markers.
    proxy.kill();
    proxy.wait(PATIENCE);
    let proxy = site.proxy(&[]);
    assert_eq!(call(&mut site.connect(), "INCR n"), "1");
    let said = proxy.error_output();
    assert!(!said.contains("ALARM"), "{said}");
}
