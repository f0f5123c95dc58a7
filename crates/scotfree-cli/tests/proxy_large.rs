//! Large values through the proxy: many at once, and clients that do not take them.

mod site;

use scotfree_stage::process::{wait_until, Process};
use scotfree_stage::resp::{Connection, Reply};
use site::{call, text, Site, PATIENCE};

const VALUE_BYTES: usize = 8 << 20;
/// More than is kept of replies at once.
const AT_ONCE: usize = 12;

/// No two bytes near each other are alike, so pieces in the wrong order are noticed.
fn value(seed: u32) -> Vec<u8> {
    (0..VALUE_BYTES as u32 / 4)
        .flat_map(|index| (index.wrapping_mul(2_654_435_761) ^ seed).to_le_bytes())
        .collect()
}

fn ask(client: &mut Connection, key: &str) {
    for _ in 0..AT_ONCE {
        client.push(&["GET", key]);
    }
    client.flush().expect("it is sent");
}

fn take(client: &mut Connection, expected: &Reply) {
    for number in 0..AT_ONCE {
        let reply = client.read().expect("it comes");
        assert!(reply == *expected, "reply {number}: {}", text(&reply).chars().take(300).collect::<String>());
    }
}

#[test]
fn however_many_large_values_are_asked_for_at_once_all_of_them_come() {
    let Some(site) = Site::new("proxy-large") else { return };
    let _redis = site.redis(&[]);
    let _proxy = site.proxy(&[]);
    let mut client = site.connect();
    let values: Vec<Vec<u8>> = (1..=2).map(value).collect();
    for (key, value) in ["a", "b"].iter().zip(&values) {
        assert_eq!(text(&client.call(&[b"SET", key.as_bytes(), value]).expect("it is taken")), "OK");
    }
    let [first, second] = [0, 1].map(|index: usize| Reply::Bulk(values[index].clone()));
    ask(&mut client, "a");
    take(&mut client, &first);
    // Several at the same time, and in between some that read nothing of what they ask for.
    let mut idle: Vec<Connection> = (0..4).map(|_| site.connect()).collect();
    for client in &mut idle {
        ask(client, "b");
    }
    std::thread::scope(|scope| {
        for expected in [("a", &first), ("b", &second), ("a", &first), ("b", &second)] {
            let mut client = site.connect();
            scope.spawn(move || {
                ask(&mut client, expected.0);
                take(&mut client, expected.1);
            });
        }
    });
    assert_eq!(call(&mut client, "INCR n"), "1", "others go on");
    // Those that went away without reading leave nothing behind that others would wait for.
    drop(idle.split_off(2));
    ask(&mut client, "b");
    take(&mut client, &second);
    for client in &mut idle {
        take(client, &second);
    }
}

#[test]
fn the_memory_for_large_replies_goes_back() {
    let Some(site) = Site::new("proxy-large-memory") else { return };
    let _redis = site.redis(&[]);
    let proxy = site.proxy(&[]);
    let mut client = site.connect();
    let value = value(3);
    assert_eq!(text(&client.call(&[&b"SET"[..], b"k", &value]).expect("it is taken")), "OK");
    let expected = Reply::Bulk(value);
    ask(&mut client, "k");
    take(&mut client, &expected);
    let resident = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", proxy.pid())).expect("it runs");
        let line =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("every process has some");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
    };
    // Memory is given back while something is done.
    let is_back = || {
        assert_eq!(call(&mut site.connect(), "PING"), "PONG");
        resident() < 8 * VALUE_BYTES as u64
    };
    assert!(wait_until(PATIENCE, is_back), "{} bytes are resident", resident());
}

/// How many bytes of memory a process has had at most.
fn peak_bytes(proxy: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", proxy.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("every process has some");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

#[test]
fn who_reads_none_of_its_large_replies_gets_few_whatever_it_asks() {
    const ASKED: usize = 100;
    let Some(site) = Site::new("proxy-large-unread") else { return };
    let _redis = site.redis(&[]);
    let proxy = site.proxy(&[]);
    let mut client = site.connect();
    let (value, script) = (value(4), "return redis.call('get', KEYS[1])");
    assert_eq!(text(&client.call(&[&b"SET"[..], b"k", &value]).expect("it is taken")), "OK");
    let expected = Reply::Bulk(value);
    let asked: [&[&str]; 3] =
        [&["GETEX", "k", "EX", "1000"], &["EVAL", script, "1", "k"], &["GETEX", "k", "PERSIST"]];
    for (number, words) in asked.into_iter().enumerate() {
        let mut idle = site.connect();
        if number == 2 {
            // Past the log.
            assert_eq!(call(&mut idle, "CLIENT TRACKING ON"), "OK");
        }
        assert_eq!(idle.call(words).expect("it is answered"), expected);
        for _ in 0..ASKED {
            idle.push(words);
        }
        idle.flush().expect("it is sent");
        // It begins to come.
        assert_eq!(idle.read().expect("it is answered"), expected);
        let count = call(&mut client, "INCR n");
        assert_eq!(count, (number + 1).to_string(), "others go on");
        let peak = peak_bytes(&proxy);
        assert!(peak < 20 * VALUE_BYTES as u64, "{words:?}: {peak} bytes");
    }
}
