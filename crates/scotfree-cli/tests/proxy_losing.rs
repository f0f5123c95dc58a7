//! A Redis that is set up so that it would lose what it has answered, or has lost it: it is not written, or it is said.

mod site;

use scotfree_io::conformance::ports::free_address;
use scotfree_stage::process::{wait_until, Process};
use scotfree_stage::resp::Connection;
use site::{call, Site, PATIENCE};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;

const SCOT: [&str; 6] = ["--user", "scot", "on", ">pw", "+@all", "~*"];
const FREE: [&str; 6] = ["--user", "default", "off", "+@all", "~*", "&*"];
const BOUND: [&str; 4] = ["--user", "default", "off", "-@all"];

/// A proxy that says how it is, in this mode.
fn proxy(site: &Site, mode: &str, more: &[&str]) -> (Process, SocketAddr) {
    let metrics = free_address();
    let proxy = site.proxy(&[&["--mode", mode, "--metrics", &metrics.to_string()], more].concat());
    (proxy, metrics)
}

fn as_scot(mut connection: Connection) -> Connection {
    assert_eq!(call(&mut connection, "AUTH scot pw"), "OK");
    connection
}

fn await_said(proxy: &Process, words: &str) {
    assert!(wait_until(PATIENCE, || proxy.error_output().contains(words)), "{}", proxy.error_output());
}

fn times_said(proxy: &Process, words: &str) -> usize {
    proxy.error_output().matches(words).count()
}

#[test]
fn a_redis_that_would_load_nothing_of_what_was_written_is_waited_for() {
    let Some(site) = Site::new("losing-default") else { return };
    let start = |default: &[&str]| site.redis(&[&SCOT[..], &["&*"], default].concat());
    let redis = start(&FREE);
    let (proxy, metrics) = proxy(&site, "covered", &site::as_user(&site, "scot", "pw"));
    let mut client = as_scot(site.connect());
    for number in 0..20 {
        assert_eq!(call(&mut client, &format!("SET k{number} v")), "OK");
    }
    redis.kill();
    let redis = start(&BOUND);
    await_said(&proxy, "ACL SETUSER default off +@all");
    site::await_health(metrics, "503");
    redis.kill();
    let _redis = start(&FREE);
    await_said(&proxy, "the server is there again");
    let mut client = as_scot(site.connect());
    assert_eq!(call(&mut client, "EXISTS k0 k19"), "2", "its file still had it");
}

#[test]
fn writes_are_refused_while_the_redis_may_evict_or_keeps_no_file_and_it_is_said_once() {
    let Some(site) = Site::new("losing-policy") else { return };
    let _redis = site.redis(&[]);
    let (proxy, metrics) = proxy(&site, "early", &[]);
    let mut direct = site.direct();
    for (setting, bad, good) in [
        ("maxmemory-policy", "allkeys-lru", "noeviction"),
        ("maxmemory-policy", "volatile-lru", "noeviction"),
        ("appendonly", "no", "yes"),
    ] {
        assert_eq!(call(&mut direct, &format!("CONFIG SET {setting} {bad}")), "OK");
        site::await_health(metrics, "writes are refused; see the alarm");
        let refused =
            || call(&mut site.connect(), "SET k v").contains(&format!("CONFIG SET {setting} {good}"));
        assert!(wait_until(PATIENCE, refused), "{}", proxy.error_output());
        assert_eq!(call(&mut direct, &format!("CONFIG SET {setting} {good}")), "OK");
        site::await_health(metrics, "200 OK");
        assert!(wait_until(PATIENCE, || call(&mut site.connect(), "SET k v") == "OK"));
    }
    for words in ["`allkeys-lru`", "`volatile-lru`", "no longer keeps an append-only file"] {
        assert_eq!(times_said(&proxy, words), 1, "{words}: {}", proxy.error_output());
    }
    assert_eq!(times_said(&proxy, "clients' writes are taken again"), 3, "{}", proxy.error_output());
    // Files that are switched on again are written anew, which is said where it lasts until it is looked at.
    let anew = times_said(&proxy, "still writing its append-only files anew");
    assert_eq!(times_said(&proxy, "writes are"), 6 + anew, "{}", proxy.error_output());
    assert_eq!(times_said(&proxy, "early answers stop"), 0, "{}", proxy.error_output());
}

#[test]
fn of_early_answers_it_is_spoken_where_there_are_any() {
    let Some(site) = Site::new("losing-early") else { return };
    let _redis = site.redis(&[]);
    let mut direct = site.direct();
    for (mode, times) in [("covered", 0), ("early", 1)] {
        assert_eq!(call(&mut direct, "CONFIG SET maxmemory 0"), "OK");
        let (proxy, metrics) = proxy(&site, mode, &[]);
        let allows = |word: &str| {
            let line = format!("scotfree_redis_early_allowed {word}");
            wait_until(PATIENCE, || site::get(metrics, "/metrics").contains(&line))
        };
        assert!(allows("1"));
        assert_eq!(call(&mut direct, "CONFIG SET maxmemory 1"), "OK");
        assert!(allows("0"));
        assert_eq!(times_said(&proxy, "early answers stop"), times, "{mode}: {}", proxy.error_output());
        proxy.kill();
    }
}

#[test]
fn markers_that_somebody_has_deleted_are_written_anew_and_end_no_proxy() {
    let Some(site) = Site::new("losing-markers") else { return };
    let _redis = site.redis(&[]);
    let (proxy, _) = proxy(&site, "covered", &[]);
    assert_eq!(call(&mut site.connect(), "INCR n"), "1");
    assert_eq!(call(&mut site.direct(), "FLUSHALL"), "OK");
    let mut client = site.connect();
    for line in ["WATCH a", "MULTI"] {
        assert_eq!(call(&mut client, line), "OK", "{}", proxy.error_output());
    }
    assert_eq!(call(&mut client, "INCR n"), "QUEUED");
    assert!(call(&mut client, "EXEC").contains("Integer(1)"), "{}", proxy.error_output());
    await_said(&proxy, "ALARM: the markers of what was executed were gone");
    assert_eq!(call(&mut site.connect(), "INCR n"), "2");
    assert!(proxy.is_running(), "{}", proxy.error_output());
    assert_eq!(times_said(&proxy, "the markers of what"), 1, "{}", proxy.error_output());
    proxy.kill();
    let _proxy = site.proxy(&[]);
    assert_eq!(call(&mut site.connect(), "INCR n"), "3");
}

/// Before 7.2 the files are synced from here; root becomes nobody, and nobody has to reach the command.
#[test]
fn a_start_that_may_not_open_the_files_of_the_redis_ends_with_the_reason() {
    let Some(site) = Site::new("losing-denied") else { return };
    let _redis = site.redis(&[]);
    let mut direct = site.direct();
    let info = call(&mut direct, "INFO server");
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap_or_default();
    let is_old = ["6.", "7.0."].iter().any(|old| version.starts_with(old));
    let nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups", site::SCOT];
    let tried = std::process::Command::new("setpriv").args(nobody).arg("--version").output();
    if !is_old || !tried.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIP: needs a Redis before 7.2, and to become another user (setpriv, as root)");
        return;
    }
    for (name, mode) in [("", 0o777), ("redis.sock", 0o777), ("appendonlydir", 0o700)] {
        fs::set_permissions(site.file(name), fs::Permissions::from_mode(mode)).expect("it is there");
    }
    let listen = site.listen.to_string();
    let words = ["proxy", "--listen", &listen, "--redis", "unix:redis.sock", "--log", "nobodys.log"];
    let (code, said) = site::end_of(&site.spawn(
        "proxy",
        "setpriv",
        &[&nobody[..], &words, &["--log-size", "32M"]].concat(),
    ));
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("run scot as a user who can read the server's files"), "{said}");
    assert_eq!(said.matches("syncing the append-only files").count(), 1, "{said}");
}

/// The append-only files of a Redis that does not run, as they are now.
fn keep_files(site: &Site, name: &str) {
    fs::create_dir(site.file(name)).expect("it is new");
    for file in fs::read_dir(site.file("appendonlydir")).expect("it is there") {
        let file = file.expect("it can be read");
        fs::copy(file.path(), site.file(name).join(file.file_name())).expect("there is room");
    }
}

/// Puts them back.
fn put_back(site: &Site, name: &str) {
    fs::remove_dir_all(site.file("appendonlydir")).expect("it is there");
    fs::rename(site.file(name), site.file("appendonlydir")).expect("it is there");
}

#[test]
fn older_data_that_the_same_log_has_stood_before_is_refused() {
    let Some(site) = Site::new("losing-older") else { return };
    let mut redis = site.redis(&[]);
    for (start, then) in [("1", "first"), ("2", "second"), ("3", "third")] {
        let proxy = site.proxy(&[]);
        assert_eq!(call(&mut site.connect(), "INCR n"), start);
        proxy.kill();
        redis.kill();
        keep_files(&site, then);
        redis = site.redis(&[]);
    }
    for (older, epoch) in [("first", "epoch 1"), ("second", "epoch 2")] {
        redis.kill();
        put_back(&site, older);
        redis = site.redis(&[]);
        let (code, said) = site.refused(&[]);
        assert!(code == Some(3) && said.contains("has older data than this log"), "{code:?} {said}");
        assert!(said.contains(epoch) && said.contains("knows epoch 3"), "{said}");
        assert!(said.contains("--accept-server"), "{said}");
    }
    redis.kill();
    put_back(&site, "third");
    let _redis = site.redis(&[]);
    let proxy = site.proxy(&[]);
    assert_eq!(call(&mut site.connect(), "INCR n"), "4");
    assert!(proxy.is_running(), "{}", proxy.error_output());
}

#[test]
fn where_the_number_of_databases_has_changed_the_markers_are_told_where_to_be_found() {
    let Some(site) = Site::new("losing-databases") else { return };
    let redis = site.redis(&[]);
    let proxy = site.proxy(&[]);
    assert_eq!(call(&mut site.connect(), "INCR n"), "1");
    redis.kill();
    let _redis = site.redis(&["--databases", "32"]);
    let (code, said) = site::end_of(&proxy);
    assert!(code == Some(3) && said.contains("`databases`") && said.contains("--marker-db 15"), "{said}");
    let (code, said) = site.refused(&[]);
    assert!(code == Some(3) && said.contains("`databases`") && said.contains("--marker-db 15"), "{said}");
    let proxy = site.proxy(&["--marker-db", "15"]);
    assert_eq!(call(&mut site.connect(), "INCR n"), "2");
    assert!(proxy.is_running(), "{}", proxy.error_output());
}

/// Counts up to here; what was before is stable when this returns, since SPOP is answered only then.
fn count_to(site: &Site, last: u64) {
    let mut client = site.connect();
    while call(&mut client, "INCR n") != last.to_string() {}
    assert_eq!(call(&mut client, "SPOP none"), "nil");
}

#[test]
fn a_redis_that_comes_back_without_its_append_only_file_is_not_told_to_overwrite_it() {
    let Some(site) = Site::new("losing-dump") else { return };
    let redis = site.redis(&[]);
    let proxy = site.proxy(&[]);
    count_to(&site, 5);
    assert_eq!(call(&mut site.direct(), "SAVE"), "OK");
    count_to(&site, 10);
    redis.kill();
    keep_files(&site, "good");
    let redis = site.redis(&["--appendonly", "no"]);
    await_said(&proxy, "restart it with the files it left");
    assert_eq!(call(&mut site.direct(), "GET n"), "5", "it has loaded the dump");
    // Done nevertheless, it makes the dump the server's data.
    assert_eq!(call(&mut site.direct(), "CONFIG SET appendonly yes"), "OK");
    for (code, said) in [site::end_of(&proxy), site.refused(&[])] {
        assert!(code == Some(3) && said.contains("older data than it had called stable"), "{code:?} {said}");
        assert!(said.contains("--accept-server") && said.contains("`appendonly yes` in its conf"), "{said}");
    }
    redis.kill();
    put_back(&site, "good");
    let _redis = site.redis(&[]);
    let proxy = site.proxy(&[]);
    count_to(&site, 11);
    assert!(proxy.is_running(), "{}", proxy.error_output());
}

#[test]
fn an_old_copy_of_the_same_start_is_refused_until_it_is_accepted() {
    let Some(site) = Site::new("losing-copy") else { return };
    let redis = site.redis(&[]);
    let proxy = site.proxy(&[]);
    count_to(&site, 5);
    keep_files(&site, "copy");
    count_to(&site, 10);
    redis.kill();
    put_back(&site, "copy");
    let _redis = site.redis(&[]);
    for (code, said) in [site::end_of(&proxy), site.refused(&[])] {
        assert!(code == Some(3) && said.contains("older data than it had called stable"), "{code:?} {said}");
    }
    site.proxy(&["--accept-server"]).kill();
    let _proxy = site.proxy(&[]);
    assert_eq!(call(&mut site.connect(), "INCR n"), "6", "it is what there is");
}

#[test]
fn an_old_copy_of_the_log_is_refused_and_of_two_proxies_on_copies_the_older_one_ends() {
    let Some(site) = Site::new("losing-log") else { return };
    let _redis = site.redis(&[]);
    let copy = |from: &str, to: &str| {
        fs::copy(site.file(from), site.file(to)).expect("it can be copied");
    };
    let is_refused = |(code, said): (Option<i32>, String)| {
        assert!(code == Some(3) && said.contains("this log is a copy of one that has"), "{code:?} {said}");
        assert!(said.contains("--accept-server"), "{said}");
    };
    site.proxy(&[]).kill();
    copy("proxy.log", "old.log");
    for _ in 0..2 {
        site.proxy(&[]).kill();
    }
    copy("proxy.log", "new.log");
    copy("old.log", "proxy.log");
    is_refused(site.refused(&[]));
    copy("new.log", "proxy.log");
    let proxy = site.proxy(&[]);
    assert_eq!(call(&mut site.connect(), "SET a 1"), "OK");
    copy("proxy.log", "copy.log");
    let listen = free_address();
    let words = ["proxy", "--listen", &listen.to_string(), "--redis", "unix:redis.sock", "--log", "copy.log"];
    let other = site::ready(site.spawn("other", site::SCOT, &words));
    is_refused(site::end_of(&proxy));
    is_refused(site.refused(&[]));
    let mut client = Connection::open(listen, PATIENCE).expect("it listens");
    assert_eq!(call(&mut client, "SET a 2"), "OK");
    assert!(other.is_running(), "{}", other.error_output());
}

/// Another Redis in a folder of its own, with these append-only files or none, and its port.
fn other_redis(site: &Site, files: Option<&str>) -> (Process, String) {
    let folder = site.file("other");
    fs::create_dir(&folder).expect("it is new");
    if let Some(files) = files {
        fs::rename(site.file(files), folder.join("appendonlydir")).expect("they are there");
    }
    let address = free_address();
    let port = address.port().to_string();
    let words = ["--port", &port, "--dir", "other", "--save", "", "--appendonly", "yes"];
    let at_once = ["--repl-diskless-sync-delay", "0"];
    let redis = site.spawn("other", "redis-server", &[&words[..], &at_once].concat());
    let answers = || {
        let asked = Connection::open(address, PATIENCE);
        asked.is_ok_and(|mut asked| asked.call(&["PING"]).is_ok_and(|reply| site::text(&reply) == "PONG"))
    };
    assert!(wait_until(PATIENCE, answers), "{}", redis.output());
    (redis, port)
}

/// Has the Redis take over what another one holds, and be a master again.
fn follow(site: &Site, port: &str) {
    let mut direct = site.direct();
    assert_eq!(call(&mut direct, &format!("REPLICAOF 127.0.0.1 {port}")), "OK");
    let has_it = || call(&mut site.direct(), "INFO replication").contains("master_link_status:up");
    assert!(wait_until(PATIENCE, has_it));
    assert_eq!(call(&mut direct, "REPLICAOF NO ONE"), "OK");
}

#[test]
fn a_redis_that_has_followed_an_older_copy_or_another_one_is_refused() {
    for (name, files, words) in [
        ("losing-followed", Some("copy"), "older data than it had called stable"),
        ("losing-unrelated", None, "has no markers where this log"),
    ] {
        let Some(site) = Site::new(name) else { return };
        let _redis = site.redis(&[]);
        let proxy = site.proxy(&[]);
        count_to(&site, 5);
        keep_files(&site, "copy");
        count_to(&site, 10);
        let (_other, port) = other_redis(&site, files);
        follow(&site, &port);
        for (code, said) in [site::end_of(&proxy), site.refused(&[])] {
            assert!(code == Some(3) && said.contains(words), "{code:?} {said}");
        }
    }
}

#[test]
fn a_redis_that_has_followed_a_copy_with_everything_goes_on() {
    let Some(site) = Site::new("losing-nothing") else { return };
    let _redis = site.redis(&[]);
    let (proxy, metrics) = proxy(&site, "covered", &[]);
    count_to(&site, 10);
    keep_files(&site, "copy");
    let (_other, port) = other_redis(&site, Some("copy"));
    follow(&site, &port);
    await_said(&proxy, "the server is there again");
    site::await_health(metrics, "200 OK");
    count_to(&site, 11);
    assert!(proxy.is_running(), "{}", proxy.error_output());
}

#[test]
fn what_an_accepted_server_cannot_be_given_is_said_once_with_its_number() {
    // Behind a write that is not there they are given up at once, else when the server is asked.
    for (first, alarm, ends) in
        [("GET none", "ALARM: 20 updates of session", 1), ("SPOP none", "ALARM: 20 updates of the log", 0)]
    {
        let Some(site) = Site::new("losing-accepted") else { return };
        let redis = site.redis(&[]);
        let proxy = site.proxy(&["--mode", "early"]);
        let mut client = site.connect();
        assert_eq!(call(&mut client, first), "nil");
        redis.kill();
        await_said(&proxy, "the server is waited for");
        for number in 0..20 {
            assert_eq!(call(&mut client, &format!("SET k{number} v")), "OK");
        }
        proxy.kill();
        fs::remove_dir_all(site.file("appendonlydir")).expect("it is there");
        let _redis = site.redis(&[]);
        let proxy = site.proxy(&["--accept-server"]);
        await_said(&proxy, alarm);
        assert_eq!(times_said(&proxy, "its marker is missing"), ends, "{}", proxy.error_output());
        let letters = fs::read_to_string(site.file("proxy.log.dead")).expect("it is there");
        assert_eq!(letters.matches("\"behind_gap\"").count(), 20, "{letters}");
    }
}
