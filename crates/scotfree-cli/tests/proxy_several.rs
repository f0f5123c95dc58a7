//! Several Redis behind one process: each with its own log, and none in the way of the others.

mod prometheus;
mod site;

use scotfree_io::conformance::ports::free_address;
use scotfree_stage::process::{wait_until, Process};
use scotfree_stage::resp::{Connection, Place, Reply};
use scotfree_stage::scratch::Scratch;
use site::{call, end_of, ready, Site, CLIENT_PATIENCE, PATIENCE, SCOT};
use std::fs;
use std::net::SocketAddr;
use std::process::Command;

const NAMES: [&str; 2] = ["a", "b"];

/// Two Redis, and what one process has before them.
struct Two {
    site: Site,
    listen: [SocketAddr; 2],
    metrics: SocketAddr,
}

impl Two {
    /// None where there is no Redis.
    fn new(name: &str) -> Option<Two> {
        let two =
            Two { site: Site::new(name)?, listen: [free_address(), free_address()], metrics: free_address() };
        for name in NAMES {
            fs::create_dir(two.site.file(name)).expect("it can be made");
        }
        two.write(["", ""]);
        Some(two)
    }

    /// The configuration, with more keys in each section.
    fn write(&self, more: [&str; 2]) {
        let sections = (0..2).map(|index| self.section(index) + more[index] + "\n");
        let text: String = sections.collect();
        fs::write(self.site.file("several.toml"), text).expect("it can be written");
    }

    fn section(&self, index: usize) -> String {
        let (name, listen) = (NAMES[index], self.listen[index]);
        format!(
            "[[proxy]]\nname = \"{name}\"\nlisten = \"{listen}\"\nredis = \"unix:{name}/redis.sock\"\n\
             log = \"{name}.log\"\nlog_size = \"32M\"\n"
        )
    }

    fn redis(&self, index: usize) -> Process {
        let name = NAMES[index];
        let socket = format!("{name}/redis.sock");
        let _ = fs::remove_file(self.site.file(&socket));
        let words = ["--port", "0", "--unixsocket", "redis.sock", "--dir", name, "--save", ""];
        let aof = ["--appendonly", "yes", "--appendfsync", "everysec"];
        let redis = self.site.spawn(&format!("redis-{name}"), "redis-server", &[&words[..], &aof].concat());
        let answers = || {
            let asked = Connection::open_at(&Place::Unix(self.site.file(&socket)), PATIENCE);
            asked.is_ok_and(|mut asked| matches!(asked.call(&["PING"]), Ok(Reply::Simple(_))))
        };
        assert!(wait_until(PATIENCE, answers), "{}", redis.output());
        redis
    }

    fn start(&self) -> Process {
        let metrics = self.metrics.to_string();
        self.site.spawn("proxy", SCOT, &["proxy", "--config", "several.toml", "--metrics", &metrics])
    }

    fn connect(&self, index: usize) -> Connection {
        Connection::open(self.listen[index], CLIENT_PATIENCE).expect("the proxy listens")
    }

    /// To the Redis itself.
    fn direct(&self, index: usize) -> Connection {
        let socket = self.site.file(&format!("{}/redis.sock", NAMES[index]));
        Connection::open_at(&Place::Unix(socket), PATIENCE).expect("it listens")
    }

    fn get(&self, path: &str) -> String {
        site::get(self.metrics, path)
    }

    fn await_health(&self, expected: &str) {
        site::await_health(self.metrics, expected);
    }
}

#[test]
fn each_redis_has_its_own_log_and_none_waits_for_the_other() {
    let Some(two) = Two::new("several") else { return };
    let mut redis = [0, 1].map(|index| two.redis(index));
    let proxy = ready(two.start());
    let mut clients = [0, 1].map(|index| two.connect(index));
    for number in 1..=10 {
        for client in &mut clients {
            assert_eq!(call(client, "INCR n"), number.to_string());
        }
    }
    assert_eq!(call(&mut clients[0], "SET of a"), "OK");
    assert_eq!(call(&mut clients[1], "GET of"), "nil");
    two.await_health("200 OK");
    redis[0].kill();
    two.await_health("\r\n\r\na: the Redis server is not there\n");
    for number in 11..=20 {
        assert_eq!(call(&mut clients[1], "INCR n"), number.to_string());
    }
    redis[0] = two.redis(0);
    two.await_health("200 OK");
    assert_eq!(call(&mut clients[0], "INCR n"), "11", "{}", proxy.error_output());
    assert!(proxy.error_output().contains("scot proxy a: ALARM"), "{}", proxy.error_output());
    assert!(proxy.stop(PATIENCE).is_some_and(|status| status.success()), "{}", proxy.error_output());
}

#[test]
fn samples_bear_the_names_of_their_proxies_and_families_are_written_once() {
    let Some(two) = Two::new("several-metrics") else { return };
    let _redis = [0, 1].map(|index| two.redis(index));
    let _proxy = ready(two.start());
    two.await_health("200 OK");
    let text = two.get("/metrics");
    let submitted =
        |name: &str| text.contains(&format!("\nscotfree_proxy_submitted_total{{proxy=\"{name}\"}} "));
    assert!(submitted("a") && submitted("b"), "{text}");
    let (_, body) = text.split_once("\r\n\r\n").expect("an answer has a body");
    assert_eq!(prometheus::faults(body), Vec::<String>::new());
    prometheus::check_by_promtool(body);
    let open = site::get_as(two.metrics, "/metrics", "HTTP/1.1\r\nAccept: application/openmetrics-text");
    let (_, body) = open.split_once("\r\n\r\n").expect("an answer has a body");
    assert_eq!(prometheus::open_faults(body), Vec::<String>::new());
    assert!(body.contains("_bucket{proxy=\"b\",kind=\"early\",le=\"+Inf\"} 0\n"), "{body}");
}

#[test]
fn after_a_kill_each_log_is_executed_at_its_own_redis() {
    let Some(two) = Two::new("several-replay") else { return };
    two.write(["mode = \"early\"", "mode = \"early\""]);
    let redis = [0, 1].map(|index| two.redis(index));
    let proxy = ready(two.start());
    let mut clients = [0, 1].map(|index| two.connect(index));
    for client in &mut clients {
        assert_eq!(call(client, "INCR n"), "1");
    }
    redis.iter().for_each(Process::kill);
    two.await_health("\r\n\r\na: the Redis server is not there\nb: the Redis server is not there\n");
    // The logs alone answer these.
    for (client, name) in clients.iter_mut().zip(NAMES) {
        assert_eq!(call(client, &format!("SET of-{name} {name}")), "OK");
    }
    proxy.kill();
    drop(redis);
    let _redis = [0, 1].map(|index| two.redis(index));
    let _proxy = ready(two.start());
    for index in [0, 1] {
        let (name, other) = (NAMES[index], NAMES[1 - index]);
        let mut direct = two.direct(index);
        assert_eq!(call(&mut direct, &format!("GET of-{name}")), name);
        assert_eq!(call(&mut direct, &format!("GET of-{other}")), "nil");
        assert_eq!(call(&mut two.connect(index), "INCR n"), "2");
    }
}

#[test]
fn a_redis_that_is_not_there_at_the_start_holds_up_nobody() {
    let Some(two) = Two::new("several-late") else { return };
    let _b = two.redis(1);
    // It can be stopped while it waits.
    let proxy = two.start();
    two.await_health("\r\n\r\na: the Redis server cannot be used yet; see the alarm\n");
    assert!(proxy.stop(PATIENCE).is_some_and(|status| status.success()), "{}", proxy.error_output());
    let proxy = two.start();
    two.await_health("\r\n\r\na: the Redis server cannot be used yet; see the alarm\n");
    assert_eq!(call(&mut two.connect(1), "INCR n"), "1");
    assert!(!proxy.output().contains("scot: ready"), "not all of them serve");
    // Who comes meanwhile waits.
    let mut early = two.connect(0);
    early.push(&["INCR", "n"]);
    early.flush().expect("it is sent");
    let _a = two.redis(0);
    let proxy = ready(proxy);
    assert_eq!(early.read().expect("it is answered"), Reply::Integer(1));
    two.await_health("200 OK");
    assert!(proxy.stop(PATIENCE).is_some_and(|status| status.success()), "{}", proxy.error_output());
}

#[test]
fn a_redis_that_does_not_answer_at_the_start_holds_up_nobody_for_good() {
    let Some(two) = Two::new("several-silent") else { return };
    let redis = [0, 1].map(|index| two.redis(index));
    redis[0].signal("STOP");
    let proxy = two.start();
    assert!(wait_until(PATIENCE, || two.get("/healthz").ends_with("\r\n\r\na: starting\n")));
    assert_eq!(call(&mut two.connect(1), "INCR n"), "1");
    assert!(!proxy.output().contains("scot: ready"), "not all of them serve");
    redis[0].signal("CONT");
    let _proxy = ready(proxy);
    assert_eq!(call(&mut two.connect(0), "INCR n"), "1");
}

#[test]
fn one_that_is_refused_at_the_start_ends_the_process_before_anybody_is_served() {
    let Some(two) = Two::new("several-refused") else { return };
    let _redis = [0, 1].map(|index| two.redis(index));
    let proxy = ready(two.start());
    assert_eq!(call(&mut two.connect(1), "INCR n"), "1");
    assert!(proxy.stop(PATIENCE).is_some_and(|status| status.success()));
    // A slip of the one who writes the file.
    let text = fs::read_to_string(two.site.file("several.toml")).expect("it is there");
    fs::write(two.site.file("several.toml"), text.replace("\"b.log\"", "\"c.log\""))
        .expect("it can be written");
    let proxy = two.start();
    let (code, said) = end_of(&proxy);
    assert!(code == Some(3) && said.contains("[[proxy]] b: another log stood before"), "{code:?} {said}");
    assert!(said.contains("a flag --a-b is the key a_b"), "{said}");
    assert!(!proxy.output().contains("scot: ready"));
}

#[test]
fn one_redis_by_two_addresses_is_found_at_the_start() {
    let Some(two) = Two::new("several-same") else { return };
    let _redis = two.redis(0);
    std::os::unix::fs::symlink("redis.sock", two.site.file("a/also.sock")).expect("it can be made");
    let tcp = free_address();
    let set = format!("CONFIG SET port {}", tcp.port());
    assert_eq!(call(&mut two.direct(0), &set), "OK");
    let before = |redis: &str| {
        let text = two.section(0) + &two.section(1).replace("unix:b/redis.sock", redis);
        fs::write(two.site.file("several.toml"), text).expect("it can be written");
        two.start()
    };
    let (code, said) = end_of(&before("unix:a/also.sock"));
    assert!(code == Some(2) && said.contains("redis: unix:a/also.sock is behind a"), "{code:?} {said}");
    // What only the Redis can know: one is refused, or each by the other.
    let proxy = before(&tcp.to_string());
    let is_refused = || proxy.error_output().contains("stood before the Redis server");
    assert!(wait_until(PATIENCE, is_refused), "{}", proxy.error_output());
    let status = proxy.stop(PATIENCE).expect("it ends");
    assert_eq!(status.code(), Some(3), "{}", proxy.error_output());
}

#[test]
fn one_that_is_ended_later_leaves_the_others_and_the_process_ends_with_its_failure() {
    let Some(two) = Two::new("several-ended") else { return };
    let _redis = [0, 1].map(|index| two.redis(index));
    let proxy = ready(two.start());
    assert_eq!(call(&mut two.connect(0), "INCR n"), "1");
    let words = ["proxy", "--listen", "127.0.0.1:0", "--redis", "unix:a/redis.sock", "--log", "other.log"];
    let other =
        two.site.spawn("other", SCOT, &[&words[..], &["--log-size", "32M", "--accept-server"]].concat());
    let _other = ready(other);
    two.await_health("\r\n\r\na: it has ended: another proxy or sidecar has stood");
    assert_eq!(call(&mut two.connect(1), "INCR n"), "1");
    assert!(!two.get("/metrics").contains("{proxy=\"a\""), "what is gone counts nothing");
    assert!(proxy.is_running());
    let status = proxy.stop(PATIENCE).expect("it ends");
    let said = proxy.error_output();
    assert!(status.code() == Some(3) && said.contains("scot proxy a: ALARM: it has ended"), "{said}");
}

#[test]
fn settings_are_taken_over_for_each_and_other_sections_need_a_restart() {
    let Some(two) = Two::new("several-reload") else { return };
    let redis = [0, 1].map(|index| two.redis(index));
    let proxy = ready(two.start());
    two.write(["", "mode = \"early\""]);
    proxy.signal("HUP");
    let said = |text: &str| wait_until(PATIENCE, || proxy.error_output().contains(text));
    assert!(said("scot proxy b: reloaded: mode"), "{}", proxy.error_output());
    assert!(!proxy.error_output().contains("scot proxy a: reloaded"));
    let mut client = two.connect(1);
    assert_eq!(call(&mut client, "INCR n"), "1");
    redis[1].kill();
    two.await_health("b: the Redis server is not there");
    // Only an early answer needs no Redis.
    assert_eq!(call(&mut client, "SET k v"), "OK");
    fs::write(two.site.file("several.toml"), two.section(0)).expect("it can be written");
    proxy.signal("HUP");
    let wanted = "not reloaded: the configuration has a, and this process serves proxies a, b; restart it";
    assert!(said(wanted), "{}", proxy.error_output());
}

#[test]
fn what_the_page_shows_for_several_can_be_used() {
    let page = include_str!("../../../docs/proxy.md");
    let (_, behind) = page.split_once("```\n[[proxy]]").expect("it shows a file");
    let (shown, _) = behind.split_once("```").expect("the file ends");
    let folder = Scratch::new("several-page").expect("temporary files can be written");
    let file = folder.path().join("scot.toml");
    fs::write(&file, format!("[[proxy]]{shown}")).expect("it can be written");
    let output = Command::new(SCOT).args(["config", "check"]).arg(&file).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("2 of proxy"), "{output:?}");
}

#[test]
fn what_would_be_in_each_others_way_is_refused_with_its_place() {
    let Some(two) = Two::new("several-wrong") else { return };
    let good = two.section(0) + &two.section(1);
    let [a, b] = two.listen.map(|address| address.to_string());
    for (text, words, expected) in [
        (good.replace("b.log", "a.log"), &[][..], "several.toml:11: [[proxy]] b: log: "),
        (good.replace(&b, &a), &[], "several.toml:9: [[proxy]] b: listen: "),
        (good.replace("b/redis", "a/redis"), &[], "several.toml:10: [[proxy]] b: redis: "),
        (good.replace("name = \"b\"", "name = \"a\""), &[], "several.toml:8: [[proxy]] a: name: "),
        (good.replace("log = \"b.log\"\n", ""), &[], "several.toml:7: [[proxy]] b: --log is missing"),
        (good.clone(), &["--mode", "early"], "a flag sets `mode` of one proxy"),
        (format!("[proxy]\n{}", two.section(1)), &[], "several.toml:2"),
    ] {
        fs::write(two.site.file("several.toml"), &text).expect("it can be written");
        let started = [&["proxy", "--config", "several.toml"][..], words].concat();
        let (code, said) = end_of(&two.site.spawn("proxy", SCOT, &started));
        assert!(code == Some(2) && said.contains(expected), "{expected}: {code:?} {said}");
        if words.is_empty() {
            let (code, checked) =
                end_of(&two.site.spawn("check", SCOT, &["config", "check", "several.toml"]));
            assert_eq!((code, checked), (Some(2), said));
        }
    }
    fs::write(two.site.file("several.toml"), &good).expect("it can be written");
    let check = two.site.spawn("check", SCOT, &["config", "check", "several.toml"]);
    assert_eq!(end_of(&check).0, Some(0));
    assert!(check.output().contains("sections set: 2 of proxy"), "{}", check.output());
}
