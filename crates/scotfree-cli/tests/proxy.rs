//! The proxy with its log before a real Redis: what clients see, and what is left when either is killed.

mod site;

use scotfree_io::conformance::ports::free_address;
use scotfree_stage::power_cut::{cut_back, synced_in, SyncedFile};
use scotfree_stage::process::{find_tool, wait_until, Process};
use scotfree_stage::resp::{Connection, Reply};
use scotfree_stage::scratch::Scratch;
use site::{call, text, Site, CLIENT_PATIENCE, PATIENCE, SCOT};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const WRITERS: u64 = 4;

/// How many bytes a power failure could take of the server's files.
fn unsynced_bytes(site: &Site) -> u64 {
    let files = synced_in(&site.file("sizes")).expect("the note can be read");
    let unsynced = |file: &SyncedFile| {
        fs::metadata(&file.path).map_or(0, |found| found.len().saturating_sub(file.bytes))
    };
    files.iter().map(unsynced).sum()
}

/// What a power failure leaves of the server's files.
fn cut_files(site: &Site, kept: &mut impl FnMut(u64) -> u64) -> u64 {
    let files = synced_in(&site.file("sizes")).expect("the note can be read");
    cut_back(&files, kept).expect("the files can be cut")
}

/// What docs/proxy.md tells a reader to type for one host, with a folder and a port of the test's own.
struct OneHost {
    folder: Scratch,
    port: String,
}

impl OneHost {
    fn run(&self, line: &str) -> std::process::Output {
        let beside = Path::new(SCOT).parent().expect("it is in a folder").display();
        let path = format!("{beside}:{}", std::env::var("PATH").expect("it is set"));
        let mut command = std::process::Command::new("sh");
        command.args(["-c", line]).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        command.env("PATH", path).env("ONE_HOST", self.folder.path()).env("PORT", &self.port);
        command.output().expect("every system has a shell")
    }
}

impl Drop for OneHost {
    fn drop(&mut self) {
        self.run("docs/one-host.sh down");
    }
}

#[test]
fn what_the_page_tells_to_type_for_one_host_runs() {
    let page = include_str!("../../../docs/proxy.md");
    let lines: Vec<&str> = page.lines().filter(|line| line.starts_with("docs/one-host.sh ")).collect();
    assert_eq!(lines.len(), 4, "{lines:?}");
    if ["redis-server", "redis-cli"].iter().any(|tool| find_tool(tool).is_none()) {
        eprintln!(
            "SKIP: redis-server or redis-cli is not installed: apt-get install redis-server redis-tools"
        );
        return;
    }
    let folder = Scratch::new("one-host").expect("temporary files can be written");
    let host = OneHost { folder, port: free_address().port().to_string() };
    let refused = host.run("docs/one-host.sh proxy");
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && words.contains("no Redis yet"), "{words}");
    let mut said = String::new();
    for line in &lines {
        let output = host.run(line);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{line}: {words}");
        said += &String::from_utf8_lossy(&output.stdout);
    }
    assert!(said.contains("1000 steps, each once"), "{said}");
    let left = host.run("docs/one-host.sh check");
    assert!(!left.status.success(), "both have ended");
}

#[test]
fn to_a_client_the_proxy_is_the_redis_behind_it() {
    let Some(site) = Site::new("proxy-client") else { return };
    let _redis = site.redis(&[]);
    let _proxy = site.proxy(&[]);
    let mut client = site.connect();
    for (line, expected) in [
        ("SET k v", "OK"),
        ("GET k", "v"),
        ("INCR n", "1"),
        ("INCR k", "ERR value is not an integer or out of range"),
        ("SPOP k", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("EVAL return(redis.call('incr','n')) 0", "2"),
        ("MULTI", "OK"),
        ("INCR n", "QUEUED"),
        ("NOSUCH", "ERR unknown command 'NOSUCH', with args beginning with: "),
        ("EXEC", "EXECABORT Transaction discarded because of previous errors."),
        ("WATCH n", "OK"),
        ("SELECT 3", "OK"),
        ("SET k other", "OK"),
        ("SELECT 0", "OK"),
        ("GET k", "v"),
        ("DEL k n", "2"),
        // At once, and not "scheduled" as inside MULTI.
        ("BGREWRITEAOF", "Background append only file rewriting started"),
    ] {
        assert_eq!(call(&mut client, line), expected, "{line}");
    }
    // More than is logged at once.
    let large = vec![b'x'; 3 << 20];
    assert_eq!(text(&client.call(&[&b"SET"[..], b"large", &large]).expect("it is taken")), "OK");
    assert_eq!(client.call(&["GET", "large"]).expect("it is there"), Reply::Bulk(large));
    for number in 0..20_000 {
        client.push(&["RPUSH", "list", &number.to_string()]);
    }
    client.flush().expect("it is sent");
    for number in 1..=20_000 {
        assert_eq!(client.read().expect("every command is answered"), Reply::Integer(number));
    }
    // A tunnel.
    let mut listener = site.connect();
    listener.push(&["SUBSCRIBE", "news"]);
    listener.flush().expect("it is sent");
    assert!(format!("{:?}", listener.read()).contains("Integer(1)"));
    assert_eq!(call(&mut client, "PUBLISH news x"), "1");
    assert!(listener.read().is_ok());
}

#[test]
fn events_of_keys_name_no_markers() {
    let Some(site) = Site::new("proxy-events") else { return };
    let _redis = site.redis(&["--notify-keyspace-events KEA"]);
    let _proxy = site.proxy(&[]);
    let (mut client, mut listener) = (site.connect(), site.connect());
    listener.push(&["PSUBSCRIBE", "*"]);
    listener.flush().expect("it is sent");
    assert!(format!("{:?}", listener.read()).contains("Integer(1)"));
    for field in ["a", "b", "c"] {
        assert_eq!(call(&mut client, &format!("HSET h {field} 1")), "1");
    }
    for event in ["h", "hset"].repeat(3) {
        let told = listener.read().expect("an event");
        let Reply::Array(words) = &told else { panic!("{told:?}") };
        assert_eq!(
            words.last().map(text).as_deref(),
            Some(if event == "h" { "hset" } else { "h" }),
            "{told:?}"
        );
    }
}

/// Asks until the answer is this one.
fn await_answer(client: &mut Connection, line: &str, expected: &str) {
    let mut last = String::new();
    let found = wait_until(PATIENCE, || {
        last = call(client, line);
        last.starts_with(expected)
    });
    assert!(found, "{line}: {last}");
}

#[test]
fn a_script_that_does_not_end_keeps_others_busy_until_it_is_killed() {
    let Some(site) = Site::new("proxy-busy") else { return };
    let _redis = site.redis(&[]);
    let _proxy = site.proxy(&[]);
    let (mut client, mut runner) = (site.connect(), site.connect());
    assert_eq!(call(&mut client, "CONFIG SET lua-time-limit 10"), "OK");
    assert_eq!(call(&mut client, "MULTI"), "OK");
    assert_eq!(call(&mut client, "SET k v"), "QUEUED");
    runner.push(&["EVAL", "while true do end", "0"]);
    runner.push(&["PING"]);
    runner.flush().expect("it is sent");
    let mut other = site.connect();
    await_answer(&mut other, "PING", "BUSY");
    assert!(call(&mut client, "GET k").starts_with("BUSY"), "the server would not queue it");
    let aborted = call(&mut client, "EXEC");
    assert!(aborted.starts_with("EXECABORT Transaction discarded because of: BUSY"), "{aborted}");
    assert_eq!(call(&mut other, "SCRIPT KILL"), "OK");
    let killed = text(&runner.read().expect("the script has an answer"));
    assert!(killed.contains("killed by user"), "{killed}");
    assert_eq!(text(&runner.read().expect("behind it, too")), "PONG");
    assert_eq!(call(&mut client, "GET k"), "nil", "nothing of the transaction was executed");
    assert_eq!(call(&mut other, "SET k v"), "OK");
}

#[test]
fn where_memory_is_used_up_nothing_that_needs_some_is_queued() {
    let Some(site) = Site::new("proxy-oom") else { return };
    let _redis = site.redis(&[]);
    let _proxy = site.proxy(&[]);
    let (mut client, mut other) = (site.connect(), site.connect());
    for (line, expected) in [("SET k v", "OK"), ("MULTI", "OK"), ("GET k", "QUEUED")] {
        assert_eq!(call(&mut client, line), expected, "{line}");
    }
    // Nothing has been asked of the server since by the one whose transaction it is.
    assert_eq!(call(&mut other, "CONFIG SET maxmemory 1"), "OK");
    assert!(call(&mut client, "SET k w").starts_with("OOM"));
    assert!(
        call(&mut client, "EXEC").starts_with("EXECABORT Transaction discarded because of previous errors")
    );
    assert_eq!(call(&mut other, "CONFIG SET maxmemory 0"), "OK");
    assert_eq!(call(&mut client, "MULTI"), "OK");
    assert_eq!(call(&mut client, "SET k w"), "QUEUED");
    assert_eq!(call(&mut other, "CONFIG SET maxmemory 1"), "OK");
    let aborted = call(&mut client, "EXEC");
    assert!(aborted.starts_with("EXECABORT Transaction discarded because of: OOM"), "{aborted}");
    assert_eq!(call(&mut other, "CONFIG SET maxmemory 0"), "OK");
    assert_eq!(call(&mut client, "GET k"), "v");
}

#[test]
fn where_replicas_are_missing_what_the_server_takes_all_the_same_is_executed_and_can_end_that() {
    let Some(site) = Site::new("proxy-noreplicas") else { return };
    let _redis = site.redis(&[]);
    let _proxy = site.proxy(&[]);
    let mut client = site.connect();
    assert_eq!(call(&mut client, "SET k v"), "OK");
    assert_eq!(call(&mut client, "CONFIG SET min-replicas-to-write 1"), "OK");
    assert!(call(&mut client, "SET k w").starts_with("NOREPLICAS"));
    for (line, expected) in [
        ("EVAL return(redis.call('get','k')) 0", "v"),
        ("EVAL_RO return(redis.call('get','k')) 0", "v"),
        ("PUBLISH channel x", "0"),
        ("MULTI", "OK"),
        ("GET k", "QUEUED"),
        ("EXEC", "Array([Bulk([118])])"),
        ("CONFIG SET maxmemory 0", "OK"),
    ] {
        assert_eq!(call(&mut client, line), expected, "{line}");
    }
    let writes = call(&mut client, "EVAL return(redis.call('set','k','w')) 0");
    assert!(writes.contains("NOREPLICAS"), "{writes}");
    // Sent together they share a request.
    client.push(&["PUBLISH", "channel", "x"]);
    client.push(&["SET", "k", "w"]);
    client.push(&["PUBLISH", "channel", "x"]);
    client.flush().expect("they are sent");
    let replies = [(); 3].map(|()| text(&client.read().expect("a reply")));
    assert_eq!((replies[0].as_str(), replies[2].as_str()), ("0", "0"), "{replies:?}");
    assert!(replies[1].starts_with("NOREPLICAS"), "{replies:?}");
    assert_eq!(call(&mut client, "CONFIG SET min-replicas-to-write 0"), "OK");
    assert_eq!(call(&mut client, "GET k"), "v");
    assert_eq!(call(&mut client, "SET k w"), "OK");
}

/// The fields of a client's line.
fn line_of(list: &str, id: &str) -> String {
    let start = format!("id={id} ");
    list.lines().find(|line| line.starts_with(&start)).unwrap_or_default().to_owned()
}

#[test]
fn clients_are_listed_unblocked_and_ended_by_the_numbers_that_they_know() {
    let Some(site) = Site::new("proxy-clients") else { return };
    let _redis = site.redis(&[]);
    let _proxy = site.proxy(&[]);
    let (mut client, mut worker, mut idle) = (site.connect(), site.connect(), site.connect());
    let id = |connection: &mut Connection| call(connection, "CLIENT ID");
    let (own, blocked, victim) = (id(&mut client), id(&mut worker), id(&mut idle));
    assert_eq!(call(&mut worker, "CLIENT SETNAME worker"), "OK");
    worker.push(&["BLPOP", "jobs", "0"]);
    worker.flush().expect("it is sent");
    let blocks = || line_of(&call(&mut client, "CLIENT LIST"), &blocked).contains(" flags=b ");
    assert!(wait_until(PATIENCE, blocks));
    let list = call(&mut client, "CLIENT LIST");
    assert_eq!(list.lines().count(), 3, "clients, and no connection of ours: {list}");
    assert!(line_of(&list, &blocked).contains(" name=worker "), "{list}");
    assert!(line_of(&list, &own).contains(" cmd=client|list "), "{list}");
    assert_eq!(call(&mut client, &format!("CLIENT UNBLOCK {victim}")), "0");
    assert_eq!(call(&mut client, &format!("CLIENT UNBLOCK {blocked} ERROR")), "1");
    assert!(text(&worker.read().expect("it is let go")).starts_with("UNBLOCKED"));
    assert_eq!(call(&mut client, &format!("CLIENT KILL ID {victim}")), "1");
    assert!(idle.read().is_err(), "it is closed");
    assert_eq!(call(&mut client, "CLIENT KILL TYPE normal"), "1", "all others, and none of ours");
    assert!(worker.read().is_err(), "it is closed");
    assert_eq!(call(&mut client, "SET k v"), "OK", "the proxy serves on");
}

#[test]
fn who_tracks_keys_elsewhere_is_told_of_them_and_of_no_marker() {
    let Some(site) = Site::new("proxy-tracking") else { return };
    let _redis = site.redis(&[]);
    let _proxy = site.proxy(&[]);
    let (mut client, mut listener, mut writer) = (site.connect(), site.connect(), site.connect());
    let target = call(&mut listener, "CLIENT ID");
    listener.push(&["SUBSCRIBE", "__redis__:invalidate"]);
    listener.flush().expect("it is sent");
    assert!(listener.read().is_ok());
    assert_eq!(call(&mut client, &format!("CLIENT TRACKING on REDIRECT {target} BCAST")), "OK");
    for key in ["a", "b"] {
        assert_eq!(call(&mut writer, &format!("SET {key} 1")), "OK");
        let message = listener.read().expect("a message");
        let keys = Reply::Array(vec![Reply::Bulk(key.as_bytes().to_vec())]);
        let Reply::Array(parts) = &message else { panic!("{message:?}") };
        assert_eq!(parts.last(), Some(&keys), "{message:?}");
    }
}

#[test]
fn a_watched_key_that_was_changed_ends_the_transaction() {
    let Some(site) = Site::new("proxy-watch") else { return };
    let _redis = site.redis(&[]);
    let _proxy = site.proxy(&[]);
    let (mut one, mut other) = (site.connect(), site.connect());
    for (expected, changes) in [("nil", true), ("Array([Simple(\"OK\")])", false)] {
        assert_eq!(call(&mut one, "WATCH k"), "OK");
        if changes {
            assert_eq!(call(&mut other, "SET k 1"), "OK");
        }
        assert_eq!(call(&mut one, "MULTI"), "OK");
        assert_eq!(call(&mut one, "SET k 2"), "QUEUED");
        assert_eq!(call(&mut one, "EXEC"), expected);
    }
}

/// What writers were told: of each list, the numbers that were appended; the keys that were set.
#[derive(Default)]
struct Told {
    appended: Mutex<BTreeMap<u64, BTreeSet<i64>>>,
    set: Mutex<BTreeSet<(u64, i64)>>,
    count: AtomicU64,
}

/// Appends to a list of its own and sets keys of its own until it is told to end. What has no reply is not asked
/// again.
fn write(listen: SocketAddr, writer: u64, told: &Told, ends: &AtomicBool) {
    let mut number = 0;
    while !ends.load(Ordering::Relaxed) {
        let Ok(mut client) = Connection::open(listen, CLIENT_PATIENCE) else {
            std::thread::yield_now();
            continue;
        };
        loop {
            number += 1;
            client.push(&["RPUSH".to_owned(), format!("list:{writer}"), number.to_string()]);
            client.push(&["SET".to_owned(), format!("key:{writer}:{number}"), number.to_string()]);
            let sent = client.flush();
            let appended = sent.is_ok() && matches!(client.read(), Ok(Reply::Integer(_)));
            if !appended {
                break;
            }
            told.appended.lock().expect("no writer panics").entry(writer).or_default().insert(number);
            if !matches!(client.read(), Ok(Reply::Simple(_))) {
                break;
            }
            told.set.lock().expect("no writer panics").insert((writer, number));
            // Relaxed: only how many there are matters.
            told.count.fetch_add(1, Ordering::Relaxed);
            if ends.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

/// What is wrong with what is there.
fn faults(site: &Site, told: &Told) -> Vec<String> {
    let mut client = site.connect();
    let mut faults = Vec::new();
    for (writer, appended) in told.appended.lock().expect("no writer panics").iter() {
        let list = client.call(&["LRANGE".to_owned(), format!("list:{writer}"), "0".into(), "-1".into()]);
        let Ok(Reply::Array(list)) = list else { panic!("no list: {list:?}") };
        let there: Vec<i64> = list.iter().map(|number| text(number).parse().expect("a number")).collect();
        let lost = appended.iter().filter(|number| !there.contains(number)).count();
        if lost > 0 {
            faults.push(format!("of list {writer} {lost} of {} are lost", appended.len()));
        }
        if !there.is_sorted_by(|before, behind| before < behind) {
            faults.push(format!("in list {writer} some are there twice, or out of order"));
        }
    }
    let set = told.set.lock().expect("no writer panics").clone();
    for (writer, number) in &set {
        client.push(&["EXISTS".to_owned(), format!("key:{writer}:{number}")]);
    }
    client.flush().expect("it is sent");
    let lost = set.iter().filter(|_| client.read().expect("it is answered") != Reply::Integer(1)).count();
    if lost > 0 {
        faults.push(format!("of {} keys {lost} are lost", set.len()));
    }
    faults
}

/// What is killed in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Killed {
    Proxy,
    Redis,
    /// And what it has not synced is lost.
    RedisAndItsFiles,
    Both,
    BothAndFiles,
    /// Ended, not killed.
    ProxyInPeace,
}

const ROUNDS: [Killed; 8] = [
    Killed::Proxy,
    Killed::RedisAndItsFiles,
    Killed::BothAndFiles,
    Killed::Redis,
    Killed::Both,
    Killed::ProxyInPeace,
    Killed::BothAndFiles,
    Killed::RedisAndItsFiles,
];

/// Writers write while rounds go on; `before` is called before each.
fn kill_rounds(
    site: &Site,
    rounds: &[Killed],
    more: &[&str],
    before: &mut dyn FnMut(&Process),
) -> (Arc<Told>, u64) {
    let early = [&["--mode", "early"], more].concat();
    let (mut redis, mut proxy) = (site.redis(&[]), site.proxy(&early));
    let told = Arc::new(Told::default());
    let ends = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (listen, told, ends) = (site.listen, Arc::clone(&told), Arc::clone(&ends));
            std::thread::spawn(move || write(listen, writer, &told, &ends))
        })
        .collect();
    let mut cut = 0;
    // Half of what could be lost is, in turns with all of it.
    let mut kept = 0;
    for killed in rounds {
        let from = told.count.load(Ordering::Relaxed);
        let wrote = wait_until(PATIENCE, || told.count.load(Ordering::Relaxed) > from + 300);
        assert!(wrote, "nothing is written any more: {}", proxy.error_output());
        before(&proxy);
        if *killed == Killed::ProxyInPeace {
            assert!(proxy.stop(PATIENCE).is_some_and(|status| status.success()), "{}", proxy.error_output());
        } else if !matches!(killed, Killed::Redis | Killed::RedisAndItsFiles) {
            proxy.kill();
        }
        if !matches!(killed, Killed::Proxy | Killed::ProxyInPeace) {
            redis.kill();
            if matches!(killed, Killed::RedisAndItsFiles | Killed::BothAndFiles) {
                kept = 1 - kept;
                cut += cut_files(site, &mut |unsynced| unsynced / 2 * kept);
            }
            redis = site.redis(&[]);
        }
        if !matches!(killed, Killed::Redis | Killed::RedisAndItsFiles) {
            proxy = site.proxy(&early);
        }
    }
    ends.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.join().expect("no writer panics");
    }
    // Read through the proxy, so what it still has to execute is there.
    let found = faults(site, &told);
    assert!(found.is_empty(), "{found:#?}\n{}", proxy.error_output());
    drop((redis, proxy));
    (told, cut)
}

#[test]
fn what_was_acknowledged_survives_kills_and_cut_files_once() {
    let Some(site) = Site::new("proxy-kills") else { return };
    let (told, cut) = kill_rounds(&site, &ROUNDS, &[], &mut |_| ());
    let count = told.count.load(Ordering::Relaxed);
    assert!(count > 300 * ROUNDS.len() as u64);
    assert!(cut > 0, "no file was cut, so nothing was tried");
}

/// Two peers, and what a proxy is told of them.
struct Peers {
    addresses: [SocketAddr; 2],
    processes: Vec<Option<Process>>,
}

impl Peers {
    fn new(site: &Site) -> Peers {
        let made =
            std::process::Command::new(SCOT).args(["key", "new"]).arg(site.file("cluster.key")).output();
        assert!(made.is_ok_and(|made| made.status.success()));
        let mut peers = Peers { addresses: [free_address(), free_address()], processes: vec![None, None] };
        (0..2).for_each(|index| peers.restart(site, index));
        peers
    }

    /// Its memory is gone.
    fn restart(&mut self, site: &Site, index: usize) {
        if let Some(peer) = self.processes[index].take() {
            peer.kill();
        }
        let listen = self.addresses[index].to_string();
        let words = ["peer", "--listen", &listen, "--key-file", "cluster.key"];
        let peer = site.spawn(&format!("peer{index}"), SCOT, &words);
        peer.wait_for_output("scot: ready", PATIENCE).unwrap_or_else(|trouble| {
            panic!("{trouble}: {}", peer.error_output());
        });
        self.processes[index] = Some(peer);
    }

    fn flags(&self) -> Vec<String> {
        let [one, other] = self.addresses.map(|address| address.to_string());
        ["--peer", &one, "--peer", &other, "--key-file", "cluster.key"].map(str::to_owned).to_vec()
    }

    /// Both hold the log.
    fn wait_until_whole(&self, proxy: &Process) {
        let holds = |address: &SocketAddr| {
            let said = proxy.error_output();
            let last = said.lines().rfind(|line| line.contains(&format!("peer {address}")));
            last.is_some_and(|line| line.ends_with("holds the log"))
        };
        let whole = wait_until(PATIENCE, || self.addresses.iter().all(holds));
        assert!(whole, "{}", proxy.error_output());
    }
}

#[test]
fn what_peers_hold_survives_the_loss_of_the_redis_host() {
    let Some(site) = Site::new("proxy-peers") else { return };
    let mut peers = Peers::new(&site);
    let flags = peers.flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut round = 0;
    let (told, cut) = kill_rounds(&site, &ROUNDS, &flags, &mut |proxy| {
        // One of them loses its memory at the same time, or a little before.
        if round % 2 == 0 {
            peers.wait_until_whole(proxy);
            peers.restart(&site, round / 2 % 2);
        }
        round += 1;
    });
    assert!(told.count.load(Ordering::Relaxed) > 300 * ROUNDS.len() as u64);
    assert!(cut > 0, "no file was cut, so nothing was tried");
}

#[test]
fn without_its_peers_memory_acknowledged_updates_are_lost_and_that_is_said() {
    let Some(site) = Site::new("proxy-peers-control") else { return };
    let mut peers = Peers::new(&site);
    let flags = peers.flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let told = Told::default();
    lose_what_is_unsynced(&site, &[&["--mode", "early"], &flags[..]].concat(), &told, &|proxy| {
        peers.wait_until_whole(proxy);
    });
    (0..2).for_each(|index| peers.restart(&site, index));
    let _redis = site.redis(&[]);
    let waiting = site.start_proxy(&flags);
    let says = |word: &str| waiting.error_output().contains(word);
    assert!(wait_until(PATIENCE, || says("none of them gives them back")), "{}", waiting.error_output());
    assert!(says("--without-peers") && says("its memory is not the one that was relied on"));
    waiting.kill();
    let (code, said) = site.refused(&[]);
    assert!(code == Some(3) && said.contains("Name them (--peer)"), "{code:?} {said}");
    let _proxy = site.proxy(&[&flags[..], &["--without-peers"]].concat());
    let found = faults(&site, &told);
    assert!(found.iter().any(|fault| fault.contains("lost")), "{found:?}");
}

#[test]
fn a_peer_that_cannot_be_used_costs_time_and_no_write() {
    let Some(site) = Site::new("proxy-peers-trouble") else { return };
    let peers = Peers::new(&site);
    let _redis = site.redis(&[]);
    let made = std::process::Command::new(SCOT).args(["key", "new"]).arg(site.file("other.key")).output();
    assert!(made.is_ok_and(|made| made.status.success()));
    let address = peers.addresses[0].to_string();
    let by_name = format!("localhost:{}", peers.addresses[0].port());
    let nobody = free_address().to_string();
    for (flags, expected) in [
        (["--peer", &address, "--peer", &address, "--key-file", "other.key"], "named twice"),
        (["--peer", &address, "--peer", &nobody, "--key-file", "other.key"], "not authentic"),
        (
            ["--peer", &address, "--peer", &by_name, "--key-file", "cluster.key"],
            "the same process as another peer",
        ),
        (["--peer", &address, "--peer", &nobody, "--key-file", "cluster.key"], "refused"),
    ] {
        if expected == "named twice" {
            let (code, said) = site.refused(&flags);
            assert!(code == Some(2) && said.contains(expected), "{code:?} {said}");
            continue;
        }
        let proxy = site.proxy(&flags);
        assert!(wait_until(PATIENCE, || proxy.error_output().contains(expected)), "{}", proxy.error_output());
        assert_eq!(call(&mut site.connect(), "SET k v"), "OK", "the server's own files hold it");
        // Nobody waits for a peer to know of a refusal.
        assert!(call(&mut site.connect(), "INCR k").contains("not an integer"));
        assert_eq!(call(&mut site.connect(), "SET k w"), "OK");
        assert!(proxy.stop(PATIENCE).is_some_and(|status| status.success()), "{}", proxy.error_output());
    }
    // Who speaks something else is cut off, and does no harm.
    let peer = peers.processes[0].as_ref().expect("it runs");
    let mut stranger = Connection::open(peers.addresses[0], PATIENCE).expect("it listens");
    assert!(stranger.call(&["PING"]).is_err());
    assert!(wait_until(PATIENCE, || peer
        .error_output()
        .contains("no `scot peer` of this version, or no proxy")));
    assert!(peer.is_running());
}

/// Redis and proxy are killed in a moment in which something is acknowledged and not synced, and that is cut away.
fn lose_what_is_unsynced(site: &Site, flags: &[&str], told: &Told, ready: &dyn Fn(&Process)) {
    let (redis, proxy) = (site.redis(&[]), site.proxy(flags));
    ready(&proxy);
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| write(site.listen, 0, told, &ends));
        assert!(wait_until(PATIENCE, || told.count.load(Ordering::Relaxed) > 2_000));
        // A moment in which there is something to lose: while the proxy is stopped nothing more is synced.
        let something_to_lose = wait_until(PATIENCE, || {
            proxy.signal("STOP");
            let found = unsynced_bytes(site) > 4_096;
            if !found {
                proxy.signal("CONT");
            }
            found
        });
        assert!(something_to_lose, "everything is always synced");
        redis.kill();
        proxy.kill();
        ends.store(true, Ordering::Relaxed);
    });
    assert!(cut_files(site, &mut |_| 0) > 0, "everything was synced");
}

#[test]
fn without_its_log_acknowledged_updates_are_lost_and_that_is_noticed() {
    let Some(site) = Site::new("proxy-control") else { return };
    let told = Told::default();
    lose_what_is_unsynced(&site, &["--mode", "early"], &told, &|_| ());
    fs::remove_file(site.file("proxy.log")).expect("it is there");
    let _redis = site.redis(&[]);
    // It is not done unless the operator means it.
    let (code, said) = site.refused(&[]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("another log stood before") && said.contains("--accept-server"), "{said}");
    let _proxy = site.proxy(&["--accept-server"]);
    let found = faults(&site, &told);
    assert!(found.iter().any(|fault| fault.contains("lost")), "{found:?}");
}

#[test]
fn a_proxy_does_not_go_on_with_what_is_not_its_own() {
    let Some(site) = Site::new("proxy-refusals") else { return };
    fs::write(site.file("proxy.log"), b"somebody's letters").expect("it can be written");
    let redis = site.redis(&[]);
    let (code, said) = site.refused(&[]);
    assert!(code == Some(3) && said.contains("not usable as a log"), "{code:?} {said}");
    fs::remove_file(site.file("proxy.log")).expect("it is there");
    {
        let proxy = site.proxy(&[]);
        assert_eq!(call(&mut site.connect(), "SET k v"), "OK");
        // The log is one proxy's.
        let other = site.spawn(
            "other",
            SCOT,
            &["proxy", "--listen", "127.0.0.1:0", "--redis", "unix:redis.sock", "--log", "proxy.log"],
        );
        assert!(other.wait(PATIENCE).is_some_and(|status| status.code() == Some(3)));
        assert!(other.error_output().contains("is in use by process"), "{}", other.error_output());
        proxy.kill();
    }
    // The server's data is gone.
    redis.kill();
    fs::remove_dir_all(site.file("appendonlydir")).expect("it is there");
    let _redis = site.redis(&[]);
    let (code, said) = site.refused(&[]);
    assert!(code == Some(3) && said.contains("older data than this log"), "{code:?} {said}");
    assert!(said.contains("--accept-server"), "{said}");
    let _proxy = site.proxy(&["--accept-server"]);
    assert_eq!(call(&mut site.connect(), "SET k w"), "OK");
}

#[test]
fn without_an_append_only_file_writes_are_refused_and_reads_go_on() {
    let Some(site) = Site::new("proxy-no-aof") else { return };
    let _redis = site.redis(&[]);
    let _proxy = site.proxy(&[]);
    let mut client = site.connect();
    assert_eq!(call(&mut client, "SET k v"), "OK");
    let mut direct = site.direct();
    assert_eq!(text(&direct.call(&["CONFIG", "SET", "appendonly", "no"]).expect("it answers")), "OK");
    let refused = || call(&mut site.connect(), "SET k w").contains("writes are refused");
    assert!(wait_until(PATIENCE, refused));
    assert!(["v", "w"].contains(&call(&mut client, "GET k").as_str()));
    assert_eq!(text(&direct.call(&["CONFIG", "SET", "appendonly", "yes"]).expect("it answers")), "OK");
    assert!(wait_until(PATIENCE, || call(&mut site.connect(), "SET k x") == "OK"));
}

#[test]
fn a_proxy_that_is_refused_does_no_harm_to_the_one_that_serves() {
    let Some(site) = Site::new("proxy-second") else { return };
    let _redis = site.redis(&[]);
    let proxy = site.proxy(&[]);
    let mut client = site.connect();
    assert_eq!(call(&mut client, "SET k v"), "OK");
    let words = [
        "proxy",
        "--listen",
        "127.0.0.1:0",
        "--redis",
        "unix:redis.sock",
        "--log",
        "other.log",
        "--log-size",
        "32M",
    ];
    let other = site.spawn("other", SCOT, &words);
    assert!(other.wait(PATIENCE).is_some_and(|status| status.code() == Some(3)));
    assert!(other.error_output().contains("another log stood before"), "{}", other.error_output());
    for number in 1..=50 {
        assert_eq!(call(&mut client, "INCR n"), number.to_string());
    }
    assert!(proxy.is_running(), "{}", proxy.error_output());
    // Who means it takes its place, and the first ends.
    let _other = site.spawn("other", SCOT, &[&words[..], &["--accept-server"]].concat());
    assert!(proxy.wait(PATIENCE).is_some_and(|status| status.code() == Some(3)));
    assert!(proxy.error_output().contains("another proxy or sidecar has stood"), "{}", proxy.error_output());
}

#[test]
fn a_proxy_that_is_killed_while_it_starts_can_start_again() {
    let Some(site) = Site::new("proxy-starts") else { return };
    let _redis = site.redis(&[]);
    {
        let proxy = site.proxy(&[]);
        assert_eq!(call(&mut site.connect(), "INCR n"), "1");
        proxy.kill();
    }
    // It is killed at every moment of its start, by the number of bytes that the Redis has heard.
    let mut direct = site.direct();
    for round in 0..40 {
        let proxy = site.start_proxy(&[]);
        let commands = |direct: &mut Connection| {
            let info = text(&direct.call(&["INFO", "stats"]).expect("it answers"));
            let line = info
                .lines()
                .find_map(|line| line.strip_prefix("total_commands_processed:"))
                .map(str::to_owned);
            line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        let from = commands(&mut direct);
        let mut asked = 0;
        wait_until(PATIENCE, || {
            asked += 1;
            commands(&mut direct) >= from + asked + round || !proxy.is_running()
        });
        proxy.kill();
        assert!(!proxy.error_output().contains("nothing was changed"), "{}", proxy.error_output());
    }
    let _proxy = site.proxy(&[]);
    assert_eq!(call(&mut site.connect(), "INCR n"), "2");
}

#[test]
fn a_command_that_ends_the_server_is_not_executed_again() {
    let Some(site) = Site::new("proxy-shutdown") else { return };
    let redis = site.redis(&[]);
    let proxy = site.proxy(&[]);
    let mut client = site.connect();
    assert_eq!(call(&mut client, "INCR n"), "1");
    client.push(&["SHUTDOWN", "NOSAVE"]);
    client.flush().expect("it is sent");
    assert!(redis.wait(PATIENCE).is_some(), "it is shut down");
    let redis = site.redis(&[]);
    assert!(wait_until(PATIENCE, || proxy.error_output().contains("the server is there again")));
    // Behind the answer to this nothing of before is left to be executed.
    assert_eq!(call(&mut site.connect(), "INCR n"), "2");
    assert!(redis.is_running(), "{}", proxy.error_output());
    // Who asked for it is told, or cut off.
    assert!(client.read().map_or(true, |reply| matches!(reply, Reply::Error(_))));
}

#[test]
fn early_answers_go_on_without_the_redis_though_nobody_has_asked_before() {
    let Some(site) = Site::new("proxy-early-first") else { return };
    let redis = site.redis(&[]);
    let proxy = site.proxy(&["--mode", "early"]);
    let mut direct = site.direct();
    assert_eq!(call(&mut direct, "SELECT 15"), "OK");
    // Epoch, owner, and the session that the first clients will share: its position and whose it is.
    assert!(wait_until(PATIENCE, || call(&mut direct, "HLEN scotfree:markers") == "4"));
    assert_eq!(call(&mut site.connect(), "EXISTS k"), "0");
    drop(redis);
    assert!(wait_until(PATIENCE, || proxy.error_output().contains("is waited for")));
    assert_eq!(call(&mut site.connect(), "SET k v"), "OK");
    let _redis = site.redis(&[]);
    assert_eq!(call(&mut site.connect(), "GET k"), "v");
}

/// Without a replica the Redis refuses every write, the proxy's markers too; the log has the writes nevertheless.
#[test]
fn what_the_redis_has_refused_is_not_executed_after_a_crash() {
    let Some(site) = Site::new("proxy-refused") else { return };
    let (mut redis, mut proxy) = (site.redis(&[]), site.proxy(&[]));
    assert_eq!(call(&mut site.connect(), "INCR n"), "1");
    for loses_proxy in [true, false] {
        let mut direct = site.direct();
        let mut wants_replicas = |count: &str| {
            let set = ["CONFIG", "SET", "min-replicas-to-write", count];
            assert_eq!(text(&direct.call(&set).expect("it answers")), "OK");
        };
        wants_replicas("1");
        let mut client = site.connect();
        for _ in 0..20 {
            let refused = call(&mut client, "INCR n");
            assert!(refused.starts_with("NOREPLICAS"), "{refused}");
        }
        if loses_proxy {
            proxy.kill();
            wants_replicas("0");
            proxy = site.proxy(&[]);
        } else {
            // It begins with its own settings.
            redis.kill();
            redis = site.redis(&[]);
            assert!(wait_until(PATIENCE, || proxy.error_output().contains("the server is there again")));
        }
        assert_eq!(call(&mut site.connect(), "INCR other"), if loses_proxy { "1" } else { "2" });
        assert_eq!(call(&mut site.connect(), "GET n"), "1", "{}", proxy.error_output());
    }
    assert!(redis.is_running());
}

/// Where memory is used up the Redis takes what frees some, and no marker that would tell of it.
#[test]
fn what_was_executed_without_a_marker_is_not_executed_again() {
    let Some(site) = Site::new("proxy-unmarked") else { return };
    let (mut redis, mut proxy) = (site.redis(&[]), site.proxy(&[]));
    assert_eq!(call(&mut site.connect(), "RPUSH l 1 2 3 4 5 6 7 8 9"), "9");
    for (loses_proxy, popped) in [(true, ["1", "2", "3"]), (false, ["4", "5", "6"])] {
        let mut direct = site.direct();
        let mut may_use = |bytes: &str| {
            let set = ["CONFIG", "SET", "maxmemory", bytes];
            assert_eq!(text(&direct.call(&set).expect("it answers")), "OK");
        };
        may_use("1");
        let mut client = site.connect();
        for element in popped {
            assert_eq!(call(&mut client, "LPOP l"), element);
        }
        if loses_proxy {
            proxy.kill();
            may_use("0");
            proxy = site.proxy(&[]);
        } else {
            // It begins with its own settings.
            redis.kill();
            redis = site.redis(&[]);
            assert!(wait_until(PATIENCE, || proxy.error_output().contains("the server is there again")));
        }
        let length = if loses_proxy { "6" } else { "3" };
        assert_eq!(call(&mut site.connect(), "LLEN l"), length, "{}", proxy.error_output());
    }
    assert!(redis.is_running() && proxy.is_running());
}

/// What a Redis without replicas executes has no marker either: it lacks nothing when it is there again.
#[test]
fn a_redis_that_took_no_markers_has_no_older_data() {
    let Some(site) = Site::new("proxy-markerless") else { return };
    let (mut redis, proxy) = (site.redis(&[]), site.proxy(&[]));
    let mut client = site.connect();
    assert_eq!(call(&mut client, "EVAL return(1) 0"), "1");
    let set = ["CONFIG", "SET", "min-replicas-to-write", "1"];
    assert_eq!(text(&site.direct().call(&set).expect("it answers")), "OK");
    for (line, expected) in [("PUBLISH c m", "0"), ("EVAL return(2) 0", "2"), ("CONFIG SET hz 12", "OK")] {
        assert_eq!(call(&mut client, line), expected, "{line}");
    }
    redis.kill();
    redis = site.redis(&[]);
    assert!(wait_until(PATIENCE, || proxy.error_output().contains("the server is there again")));
    assert_eq!(call(&mut site.connect(), "SET k v"), "OK", "{}", proxy.error_output());
    assert!(redis.is_running() && proxy.is_running());
}

#[test]
fn a_log_that_is_deleted_under_the_proxy_is_noticed() {
    let Some(site) = Site::new("proxy-deleted") else { return };
    let _redis = site.redis(&[]);
    let proxy = site.proxy(&[]);
    let mut client = site.connect();
    assert_eq!(call(&mut client, "INCR n"), "1");
    fs::remove_file(site.file("proxy.log")).expect("it is there");
    assert!(wait_until(PATIENCE, || proxy.error_output().contains("was deleted, replaced or cut")));
    assert_eq!(call(&mut client, "INCR n"), "2", "the server's own files hold it");
}

#[test]
fn a_stop_that_gives_requests_up_speaks_of_the_log_and_of_no_device() {
    let Some(site) = Site::new("proxy-stop") else { return };
    let redis = site.redis(&[]);
    let proxy = site.proxy(&["--drain-ns-max", "1000000"]);
    let mut client = site.connect();
    assert_eq!(call(&mut client, "INCR n"), "1");
    redis.signal("STOP");
    client.push(&["INCR", "n"]);
    client.flush().expect("it is sent");
    // The proxy answers this by itself, behind what came before.
    assert_eq!(call(&mut site.connect(), "SELECT 0"), "OK");
    assert!(proxy.stop(PATIENCE).is_some_and(|status| status.success()), "{}", proxy.error_output());
    let said = proxy.error_output();
    assert!(said.contains("1 requests were given up") && said.contains("is in the log"), "{said}");
    assert!(!said.contains("device"), "{said}");
    redis.signal("CONT");
}
