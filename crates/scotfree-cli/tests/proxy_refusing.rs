//! A Redis that runs and does not do its work: the proxy says so, and answers nothing early that would be refused.

mod site;

use scotfree_io::conformance::ports::free_address;
use scotfree_stage::process::{wait_until, Process};
use site::{call, text, Site, PATIENCE};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;

/// What a proxy says of itself over HTTP.
struct Watched {
    proxy: Process,
    metrics: SocketAddr,
}

impl Watched {
    fn new(site: &Site, more: &[&str]) -> Watched {
        let metrics = free_address();
        let address = metrics.to_string();
        let proxy = site.proxy(&[&["--metrics", &address], more].concat());
        let watched = Watched { proxy, metrics };
        watched.wait_for("/healthz", "200 OK");
        watched
    }

    fn get(&self, path: &str) -> String {
        site::get(self.metrics, path)
    }

    fn wait_for(&self, path: &str, expected: &str) {
        let mut last = String::new();
        let found = wait_until(PATIENCE, || {
            last = self.get(path);
            last.contains(expected)
        });
        assert!(found, "{expected}: {last}\n{}", self.proxy.error_output());
    }

    /// How often it has said this.
    fn times_said(&self, words: &str) -> usize {
        self.proxy.error_output().matches(words).count()
    }
}

fn dead_letters(site: &Site) -> usize {
    fs::read_to_string(site.file("proxy.log.dead")).map_or(0, |text| text.lines().count())
}

#[test]
fn early_answers_stop_when_the_redis_refuses_what_info_does_not_tell() {
    let Some(site) = Site::new("proxy-refusing-early") else { return };
    let _redis = site.redis(&["--user", "proxy", "on", ">secret", "+@all", "~*", "&*"]);
    let user = site::as_user(&site, "proxy", "secret");
    let watched = Watched::new(&site, &[&user[..], &["--mode", "early"]].concat());
    let (mut client, mut direct) = (site.connect(), site.direct());
    assert_eq!(call(&mut client, "SET k v"), "OK");
    assert_eq!(call(&mut direct, "ACL SETUSER proxy -set"), "OK");
    let refused = wait_until(PATIENCE, || call(&mut client, "SET k w").starts_with("NOPERM"));
    assert!(refused, "{}", watched.proxy.error_output());
    assert_eq!(watched.times_said("early answers stop: the server refuses writes: NOPERM"), 1);
    let letters = dead_letters(&site);
    assert!(letters > 0, "the first ones were answered before anybody knew");
    for _ in 0..200 {
        assert!(call(&mut client, "SET k w").starts_with("NOPERM"), "every answer is the server's own");
    }
    assert_eq!(dead_letters(&site), letters);
    assert_eq!(call(&mut direct, "ACL SETUSER proxy +set"), "OK");
    watched.wait_for("/metrics", "scotfree_redis_early_allowed 1");
    assert_eq!(call(&mut client, "SET k x"), "OK");
}

#[test]
fn a_dead_letter_file_that_takes_nothing_is_named() {
    let Some(site) = Site::new("proxy-refusing-letters") else { return };
    let redis = site.redis(&[]);
    symlink("/dev/full", site.file("proxy.log.dead")).expect("it can be made");
    let watched = Watched::new(&site, &["--mode", "early"]);
    let (mut client, mut direct) = (site.connect(), site.direct());
    assert_eq!(call(&mut client, "SET k v"), "OK");
    watched.wait_for("/metrics", "scotfree_redis_early_allowed 1");
    assert_eq!(call(&mut direct, "ACL SETUSER default -set"), "OK");
    // The log answers, and nobody knows yet.
    redis.signal("STOP");
    assert_eq!(call(&mut client, "SET k w"), "OK");
    redis.signal("CONT");
    watched.wait_for("/healthz", "the dead-letter file takes nothing");
    let is_named = || watched.times_said("proxy.log.dead failed: No space left on device") > 0;
    assert!(wait_until(PATIENCE, is_named), "{}", watched.proxy.error_output());
    // Nothing of it is lost: it is executed when it may be.
    assert_eq!(call(&mut direct, "ACL SETUSER default +set"), "OK");
    watched.wait_for("/healthz", "200 OK");
    assert_eq!(call(&mut client, "GET k"), "w");
}

#[test]
fn health_tells_of_a_redis_that_refuses_every_write_and_of_the_end_of_that() {
    let Some(site) = Site::new("proxy-refusing") else { return };
    let _redis = site.redis(&["--dbfilename", "snapshot"]);
    let watched = Watched::new(&site, &[]);
    let mut direct = site.direct();
    let mut tell = |words: &[&str]| {
        let answer = text(&direct.call(words).expect("it answers"));
        assert!(answer == "OK" || answer.starts_with("Background"), "{words:?}: {answer}");
    };
    let began = "ALARM: the Redis server refuses every write by itself";
    let ended = "ALARM: the Redis server takes writes again";
    let mut times = 0;
    let mut passes = |tell: &mut dyn FnMut(bool), words: &str, is_tried: bool| {
        times += 1;
        tell(true);
        if is_tried {
            // Whoever writes meets it too.
            assert!(wait_until(PATIENCE, || call(&mut site.connect(), "SET k v") != "OK"));
        }
        watched.wait_for("/healthz", words);
        assert!(watched.get("/healthz").contains("503"));
        tell(false);
        watched.wait_for("/healthz", "200 OK");
        assert_eq!(call(&mut site.connect(), "SET k w"), "OK");
        let said = || (watched.times_said(began), watched.times_said(ended));
        assert!(wait_until(PATIENCE, || said() == (times, times)), "{}", watched.proxy.error_output());
    };
    let replicas = |count| ["CONFIG", "SET", "min-replicas-to-write", count];
    for is_tried in [true, false] {
        passes(&mut |bad| tell(&replicas(if bad { "1" } else { "0" })), "NOREPLICAS", is_tried);
    }
    // A snapshot fails whose place is taken.
    tell(&["CONFIG", "SET", "save", "3600 1"]);
    let place = site.file("snapshot");
    let mut snapshot = |bad| {
        if bad {
            fs::create_dir(&place).expect("it can be made");
        } else {
            fs::remove_dir(&place).expect("it is there");
        }
        tell(&["BGSAVE"]);
    };
    passes(&mut snapshot, "cannot write its files", true);
}

#[test]
fn health_tells_of_a_redis_that_answers_nothing_though_nobody_asks() {
    let Some(site) = Site::new("proxy-hanging") else { return };
    let redis = site.redis(&[]);
    let watched = Watched::new(&site, &[]);
    redis.signal("STOP");
    watched.wait_for("/healthz", "the Redis server does not answer");
    assert_eq!(watched.times_said("ALARM: the Redis server has answered nothing for"), 1);
    redis.signal("CONT");
    watched.wait_for("/healthz", "200 OK");
    assert_eq!(watched.times_said("ALARM: the Redis server answers again"), 1);
    assert_eq!(watched.times_said("device"), 0);
    assert_eq!(call(&mut site.connect(), "SET k v"), "OK");
}
