//! The proxy before a real Redis, and clients with a state of their own there: a watch, a user, a large value.

mod site;

use scotfree_io::conformance::ports::free_address;
use scotfree_stage::process::{wait_until, Process};
use scotfree_stage::resp::{Connection, Reply};
use site::{call, get, text, Site, PATIENCE};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

/// Writes a file that only we may read, and gives its name.
fn secret(site: &Site, password: &str) -> String {
    let path = site.file("password");
    fs::write(&path, password).expect("it can be written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
    path.display().to_string()
}

/// Has clients write while the server is away, and looks what they are told when it is back; that one.
fn all_wait_through_a_restart(
    site: &Site,
    redis: &Process,
    clients: &mut [Connection],
    more: &[&str],
) -> Process {
    redis.kill();
    assert!(redis.wait(PATIENCE).is_some(), "it is gone");
    for client in clients.iter_mut() {
        client.push(&["INCR", "n"]);
        client.flush().expect("it is sent");
    }
    let redis = site.redis(more);
    let mut told: Vec<Reply> = clients.iter_mut().map(|client| client.read().expect("an answer")).collect();
    told.sort_by_key(|reply| format!("{reply:?}"));
    let expected: Vec<Reply> = (1..=clients.len() as i64).map(Reply::Integer).collect();
    assert_eq!(told, expected, "none is cut off");
    redis
}

#[test]
fn who_watches_no_more_waits_through_a_restart_as_all_do() {
    let Some(site) = Site::new("proxy-watched") else { return };
    let redis = site.redis(&[]);
    let _proxy = site.proxy(&[]);
    let mut clients: Vec<Connection> = (0..4).map(|_| site.connect()).collect();
    for line in ["WATCH k", "UNWATCH", "SET k 1"] {
        assert_eq!(call(&mut clients[0], line), "OK");
    }
    for (line, answer) in [("WATCH k", "OK"), ("MULTI", "OK"), ("SET k 2", "QUEUED")] {
        assert_eq!(call(&mut clients[1], line), answer);
    }
    assert!(call(&mut clients[1], "EXEC").starts_with("Array"));
    let large = vec![b'x'; 2 << 20];
    assert_eq!(text(&clients[2].call(&[&b"SET"[..], b"large", &large]).expect("it is taken")), "OK");
    assert!(call(&mut clients[3], "CLIENT INFO").contains("id="));
    let _redis = all_wait_through_a_restart(&site, &redis, &mut clients, &[]);
    for (line, answer) in [("WATCH k", "OK"), ("MULTI", "OK"), ("SET k 3", "QUEUED")] {
        assert_eq!(call(&mut clients[0], line), answer, "it can watch again");
    }
    assert!(call(&mut clients[0], "EXEC").starts_with("Array"));
}

#[test]
fn who_proves_to_be_the_proxys_own_user_is_as_one_without_a_user() {
    let Some(site) = Site::new("proxy-own-user") else { return };
    let metrics = free_address().to_string();
    let user = ["--user", "scot", "on", ">one", "~*", "&*", "+@all"];
    let redis = site.redis(&user);
    let password = secret(&site, "one");
    let _proxy =
        site.proxy(&["--redis-user", "scot", "--redis-password-file", &password, "--metrics", &metrics]);
    let mut clients = [site.connect(), site.connect()];
    for client in &mut clients {
        assert_eq!(call(client, "AUTH scot one"), "OK");
    }
    assert!(call(&mut site.connect(), "AUTH scot two").starts_with("WRONGPASS"), "the server has the word");
    for number in 0..5 {
        assert_eq!(call(&mut clients[0], &format!("SET k {number}")), "OK");
    }
    let logged = || {
        get(metrics.parse().expect("an address"), "/metrics").contains("\nscotfree_proxy_logged_total 5\n")
    };
    assert!(wait_until(PATIENCE, logged), "what it writes is logged");
    let _redis = all_wait_through_a_restart(&site, &redis, &mut clients, &user);
}

#[test]
fn a_client_is_not_blamed_for_the_proxys_password() {
    let Some(site) = Site::new("proxy-rotation") else { return };
    let users = [
        "--user", "scot", "on", ">one", "~*", "&*", "+@all", "--user", "app", "on", ">right", "~*", "&*",
        "+@all",
    ];
    let _redis = site.redis(&users);
    let password = secret(&site, "one");
    let _proxy = site.proxy(&["--redis-user", "scot", "--redis-password-file", &password]);
    assert_eq!(call(&mut site.connect(), "AUTH app right"), "OK");
    let mut direct = site.direct();
    assert_eq!(text(&direct.call(&["ACL", "SETUSER", "scot", ">two", "<one"]).expect("it answers")), "OK");
    let told = call(&mut site.connect(), "AUTH app right");
    assert!(told.starts_with("TRYAGAIN scotfree: the server refuses the user of scot itself"), "{told}");
    secret(&site, "two");
    assert!(wait_until(PATIENCE, || call(&mut site.connect(), "AUTH app right") == "OK"));
}

#[test]
fn a_user_that_is_deleted_and_a_server_that_is_shut_down_are_told_apart() {
    let Some(site) = Site::new("proxy-deleted") else { return };
    let redis = site.redis(&[]);
    let _proxy = site.proxy(&[]);
    let mut other = site.connect();
    // What is under way when the server closes the connection has an unknown outcome; what comes behind that is told.
    let is_told = |other: &mut Connection| {
        assert_eq!(call(other, "ACL SETUSER app on >right ~* &* +@all"), "OK");
        let mut client = site.connect();
        assert_eq!(
            (call(&mut client, "AUTH app right"), call(&mut client, "SET k 1")),
            ("OK".into(), "OK".into())
        );
        assert_eq!((call(other, "ACL DELUSER app"), call(other, "GET k")), ("1".into(), "1".into()));
        call(&mut client, "GET k").contains("or the user was deleted")
    };
    assert!(wait_until(PATIENCE, || is_told(&mut other)));
    assert_eq!(call(&mut other, "GET k"), "1");
    other.push(&["SHUTDOWN", "NOSAVE"]);
    other.flush().expect("it is sent");
    assert!(redis.wait(PATIENCE).is_some(), "it is shut down");
    assert!(other.read().is_err(), "it is closed without a word, as the server does");
}

/// Sends these lines in one go and reads their answers.
fn pipeline(client: &mut Connection, lines: &[&str]) -> Vec<String> {
    for line in lines {
        client.push(&line.split(' ').collect::<Vec<&str>>());
    }
    client.flush().expect("they are sent");
    lines.iter().map(|_| text(&client.read().expect("an answer"))).collect()
}

#[test]
fn who_may_not_store_its_marker_reads_whatever_it_is_sent_with() {
    let Some(site) = Site::new("proxy-few") else { return };
    let _redis = site.redis(&["--user", "few", "on", ">pw", "~few:*", "+get", "+set", "+ping"]);
    let _proxy = site.proxy(&[]);
    assert_eq!(call(&mut site.direct(), "SET few:1 old"), "OK");
    let told = pipeline(
        &mut site.connect(),
        &["AUTH few pw", "SET few:1 new", "GET few:1", "PING", "SET few:1 new", "GET few:1"],
    );
    let is_refused =
        |index: usize| told[index].starts_with("NOPERM scotfree: this user may not store its marker");
    assert!(is_refused(1) && is_refused(4), "{told:?}");
    assert_eq!([&told[0], &told[2], &told[3], &told[5]], ["OK", "old", "PONG", "old"]);
}

#[test]
fn exec_says_which_right_is_missing() {
    let Some(site) = Site::new("proxy-few-exec") else { return };
    let rights = ["~*", "+@read", "+@transaction", "+select", "+hset"];
    let _redis = site.redis(&[&["--user", "reader", "on", ">pw"], &rights[..]].concat());
    let _proxy = site.proxy(&[]);
    let mut direct = site.direct();
    assert_eq!(call(&mut direct, "ACL SETUSER few on >pw ~few:* &* +@all"), "OK");
    let exec = |user: &str| {
        let lines = [&format!("AUTH {user} pw"), "MULTI", "SET few:1 new", "EXEC"];
        pipeline(&mut site.connect(), &lines).pop().expect("four answers")
    };
    let told = exec("few");
    let marker =
        "EXECABORT Transaction discarded because of: NOPERM scotfree: this user may not store its marker";
    assert!(told.starts_with(marker) && told.contains("~scotfree:markers"), "{told}");
    let told = exec("reader");
    assert!(told.starts_with("EXECABORT") && told.contains("'set' command"), "{told}");
    assert_eq!(call(&mut direct, "EXISTS few:1"), "0");
}

#[test]
fn who_proves_to_be_a_user_while_it_tracks_is_this_user_behind_that_too() {
    let Some(site) = Site::new("proxy-tunnel-user") else { return };
    let _redis = site.redis(&["--user", "app", "on", ">right", "~app:*", "~scotfree:markers", "&*", "+@all"]);
    let _proxy = site.proxy(&[]);
    let mut client = site.connect();
    let lines = ["CLIENT TRACKING ON", "AUTH app right", "CLIENT TRACKING OFF", "SET app:1 1", "GET app:1"];
    assert_eq!(pipeline(&mut client, &lines), ["OK", "OK", "OK", "OK", "1"]);
    assert_eq!(call(&mut client, "ACL WHOAMI"), "app");
    assert!(call(&mut client, "GET other").starts_with("NOPERM"), "with that user's rights and no others");
}
