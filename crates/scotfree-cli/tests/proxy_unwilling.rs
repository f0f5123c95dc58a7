//! A Redis that is there and keeps the proxy out, or refuses what is executed anew: nothing is given up for that.

mod site;

use scotfree_io::conformance::ports::free_address;
use scotfree_stage::process::{wait_until, Process};
use scotfree_stage::resp::Connection;
use site::{call, ready, Site, PATIENCE};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;

/// What the Redis starts with: a user that may write everything, and one that may only begin and write some keys.
const FREE: &str = "proxy on >secret +@all ~* &*";
const BOUND: &str = "proxy on >secret +@all ~scotfree:markers ~open:* &*";

/// A site whose proxy is a user of the Redis with a password in a file.
struct Guarded {
    site: Site,
    metrics: SocketAddr,
}

impl Guarded {
    fn new(name: &str) -> Option<Guarded> {
        let guarded = Guarded { site: Site::new(name)?, metrics: free_address() };
        guarded.write_password("secret");
        Some(guarded)
    }

    fn write_password(&self, password: &str) {
        let file = self.site.file("password");
        fs::write(&file, password).expect("it can be written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
    }

    fn redis(&self, user: &str) -> Process {
        let words: Vec<&str> = ["--user"].into_iter().chain(user.split(' ')).collect();
        self.site.redis(&words)
    }

    fn start_proxy(&self) -> Process {
        let metrics = self.metrics.to_string();
        let user = ["--redis-user", "proxy", "--redis-password-file", "password"];
        self.site.start_proxy(&[&user[..], &["--mode", "early", "--metrics", &metrics]].concat())
    }

    /// A proxy that has answered: the Redis knows the session that clients share, without which nobody is answered early.
    fn serving(&self) -> Process {
        let proxy = ready(self.start_proxy());
        assert_eq!(call(&mut self.site.connect(), "EXISTS k"), "0");
        proxy
    }

    fn direct(&self) -> Connection {
        self.site.direct()
    }

    fn epoch(&self) -> u64 {
        let mut direct = self.direct();
        assert_eq!(call(&mut direct, "SELECT 15"), "OK");
        call(&mut direct, "HGET scotfree:markers epoch").parse().expect("a number")
    }

    fn await_health(&self, expected: &str) {
        site::await_health(self.metrics, expected);
    }

    /// Early answers to two updates, of which the Redis knows nothing.
    fn acknowledge_two(&self, proxy: &Process) {
        await_said(proxy, "is waited for");
        for line in ["SET closed:k v", "SET open:k v"] {
            assert_eq!(call(&mut self.site.connect(), line), "OK", "{line}");
        }
    }

    /// Both are there, each once, and nobody was told that one was given up.
    fn expect_both(&self) {
        for key in ["closed:k", "open:k"] {
            assert_eq!(call(&mut self.site.connect(), &format!("GET {key}")), "v", "{key}");
        }
        let letters = fs::read_to_string(self.site.file("proxy.log.dead")).unwrap_or_default();
        assert_eq!(letters, "", "no dead letters");
    }
}

fn await_said(proxy: &Process, words: &str) {
    assert!(wait_until(PATIENCE, || proxy.error_output().contains(words)), "{}", proxy.error_output());
}

#[test]
fn a_start_ends_before_a_redis_that_refuses_what_the_log_holds() {
    let Some(guarded) = Guarded::new("unwilling-start") else { return };
    {
        let (redis, proxy) = (guarded.redis(FREE), guarded.serving());
        redis.kill();
        guarded.acknowledge_two(&proxy);
        proxy.kill();
    }
    let _redis = guarded.redis(BOUND);
    for _ in 0..2 {
        let (code, said) = site::end_of(&guarded.start_proxy());
        assert_eq!(code, Some(3), "{said}");
        assert!(said.contains("refuses what the log holds") && said.contains("ACL SETUSER proxy"), "{said}");
        // By the position of what is behind it the refused one would count as executed.
        assert_eq!(call(&mut guarded.direct(), "EXISTS open:k"), "0", "{said}");
    }
    assert_eq!(call(&mut guarded.direct(), "ACL SETUSER proxy ~*"), "OK");
    let _proxy = ready(guarded.start_proxy());
    guarded.expect_both();
}

#[test]
fn a_redis_that_is_back_and_refuses_what_the_log_holds_is_waited_for() {
    let Some(guarded) = Guarded::new("unwilling-again") else { return };
    let (redis, proxy) = (guarded.redis(FREE), guarded.serving());
    redis.kill();
    guarded.acknowledge_two(&proxy);
    let _redis = guarded.redis(BOUND);
    await_said(&proxy, "refuses what the log holds");
    guarded.await_health("takes no writes (NOPERM)");
    let epoch = guarded.epoch();
    assert!(wait_until(PATIENCE, || guarded.epoch() > epoch + 3), "it is tried again");
    assert_eq!(call(&mut guarded.site.connect(), "SET open:later v"), "OK", "the log goes on");
    let said = proxy.error_output();
    assert_eq!(said.matches("refuses what the log holds").count(), 1, "{said}");
    assert_eq!(call(&mut guarded.direct(), "EXISTS open:k"), "0", "{said}");
    assert_eq!(call(&mut guarded.direct(), "ACL SETUSER proxy ~*"), "OK");
    await_said(&proxy, "has executed anew what it had refused");
    guarded.await_health("200 OK");
    guarded.expect_both();
    assert_eq!(call(&mut guarded.site.connect(), "GET open:later"), "v");
}

#[test]
fn a_password_that_is_changed_is_read_again_and_ends_no_proxy() {
    let Some(guarded) = Guarded::new("unwilling-password") else { return };
    guarded.write_password("wrong");
    let _redis = guarded.redis(FREE);
    let (code, said) = site::end_of(&guarded.start_proxy());
    assert!(code == Some(3) && said.contains("WRONGPASS"), "a mistake of the configuration: {code:?} {said}");
    guarded.write_password("secret");
    let proxy = guarded.serving();
    let mut direct = guarded.direct();
    assert_eq!(call(&mut direct, "ACL SETUSER proxy resetpass >new"), "OK");
    assert_ne!(call(&mut direct, "CLIENT KILL USER proxy"), "0");
    await_said(&proxy, "put the password of the user `proxy` into the file");
    guarded.await_health("keeps the proxy out, or takes no writes (WRONGPASS)");
    assert_eq!(call(&mut guarded.site.connect(), "SET k v"), "OK", "the log goes on");
    assert!(proxy.is_running());
    guarded.write_password("new");
    await_said(&proxy, "the server is there again");
    guarded.await_health("200 OK");
    assert_eq!(call(&mut guarded.site.connect(), "GET k"), "v");
    // Where only new connections notice it, they give what is in the file now.
    assert_eq!(call(&mut direct, "ACL SETUSER proxy resetpass >newer"), "OK");
    guarded.write_password("newer");
    let mut client = guarded.site.connect();
    assert_eq!(call(&mut client, "WATCH k"), "OK", "{}", proxy.error_output());
}

#[test]
fn a_redis_that_became_a_replica_is_waited_for() {
    let Some(guarded) = Guarded::new("unwilling-replica") else { return };
    let (redis, proxy) = (guarded.redis(FREE), guarded.serving());
    assert_eq!(call(&mut guarded.site.connect(), "SET open:k v"), "OK");
    redis.kill();
    await_said(&proxy, "is waited for");
    let nobody = free_address().port().to_string();
    let words: Vec<&str> = ["--user"].into_iter().chain(FREE.split(' ')).collect();
    let _redis = guarded.site.redis(&[&words[..], &["--replicaof", "127.0.0.1", &nobody]].concat());
    await_said(&proxy, "REPLICAOF NO ONE");
    guarded.await_health("keeps the proxy out, or takes no writes; see");
    assert_eq!(call(&mut guarded.direct(), "REPLICAOF NO ONE"), "OK");
    await_said(&proxy, "the server is there again");
    assert_eq!(call(&mut guarded.site.connect(), "GET open:k"), "v");
}

#[test]
fn a_redis_that_becomes_a_replica_while_it_is_served_is_waited_for() {
    let Some(guarded) = Guarded::new("unwilling-following") else { return };
    let (_redis, proxy) = (guarded.redis(FREE), guarded.serving());
    assert_eq!(call(&mut guarded.site.connect(), "SET open:k v"), "OK");
    for times in 1..3 {
        assert_eq!(call(&mut guarded.direct(), "REPLICAOF 127.0.0.1 1"), "OK");
        let is_said = || proxy.error_output().matches("role is `slave`").count() >= times;
        assert!(wait_until(PATIENCE, is_said), "{}", proxy.error_output());
        guarded.await_health("keeps the proxy out, or takes no writes; see");
        assert_eq!(call(&mut guarded.direct(), "REPLICAOF NO ONE"), "OK");
        guarded.await_health("200 OK");
        assert_eq!(call(&mut guarded.site.connect(), "GET open:k"), "v", "it has everything");
    }
}
