//! What goes wrong around a group at etcd: etcd is away, a joiner dies while it is given the state, members are
//! configured wrongly.

use super::*;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Three members at an etcd, all full.
pub(super) fn group_at_etcd(name: &str, protocol: &'static str) -> Option<(Scratch, Running, Group)> {
    let ground = Scratch::new(&format!("{name}-etcd")).expect("temporary files can be written");
    let (etcd, port) = etcd(ground.path())?;
    let place = format!("etcd:http://127.0.0.1:{port}/scotfree/g");
    let group = Group::new(name, protocol, |_| place);
    let (is_made, text) = group.init(&["--lease-ms", "1000"]);
    assert!(is_made, "{text}");
    Some((ground, etcd, group))
}

pub(super) fn start_all(group: &mut Group) {
    (1..=3).for_each(|id| group.start(id));
    (1..=3).for_each(|id| group.await_said(id, "this one is full"));
}

fn health(metrics: SocketAddr) -> String {
    asked(metrics, "healthz")
}

fn asked(metrics: SocketAddr, page: &str) -> String {
    let mut answer = String::new();
    if let Ok(mut stream) = TcpStream::connect(metrics) {
        // One that has closed says nothing, and is asked again.
        let _ = write!(stream, "GET /{page} HTTP/1.1\r\n\r\n");
        let _ = stream.read_to_string(&mut answer);
    }
    answer
}

fn free_tcp_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port is free")
}

fn await_health(metrics: SocketAddr, words: &str) {
    let is_so = wait_until(PATIENCE, || health(metrics).contains(words));
    assert!(is_so, "{words}: {}", health(metrics));
}

#[test]
fn while_etcd_is_away_a_member_says_that_it_does_not_serve_and_comes_back_by_itself() {
    let Some((_ground, etcd, mut group)) = group_at_etcd("group-away", "craq") else { return };
    let metrics = free_tcp_address();
    let mut first = group.command(1, 1, "g");
    first.args(["--metrics", &metrics.to_string()]);
    group.members.insert(1, Running(first.spawn().expect("scot starts")));
    await_health(metrics, "no view of its group");
    (2..=3).for_each(|id| group.start(id));
    await_health(metrics, "200 OK");

    etcd.signal(Signal::STOP);
    await_health(metrics, "lease is over");
    assert!(health(metrics).contains("503"));
    // Who waits for a member learns why that takes so long, and goes on waiting.
    let waiting =
        Command::new(SCOT).args(["group", "add", &group.membership, "1"]).stdout(Stdio::piped()).spawn();
    let mut waiting = Running(waiting.expect("scot starts"));
    let mut said = String::new();
    let mut out = std::io::BufReader::new(waiting.0.stdout.take().expect("it is piped"));
    std::io::BufRead::read_line(&mut out, &mut said).expect("it says something");
    assert!(said.contains("etcd does not answer"), "{said}");

    etcd.signal(Signal::CONT);
    await_health(metrics, "200 OK");
    assert!(waiting.0.wait().expect("it is ours").success(), "it belongs to the group again");
    assert_counted(&group.client(&[1, 2, 3], Policy::Random).increment(20, |_| {}), 1);
}

#[test]
fn a_joiner_that_is_killed_while_it_takes_the_state_takes_it_when_it_is_started_again() {
    let Some((_ground, _etcd, mut group)) = group_at_etcd("group-joiner", "craq") else { return };
    group.log_size = "256M";
    start_all(&mut group);
    // More than members keep of their logs: a joiner needs the whole state.
    let count = 18_000;
    let mut client = group.client(&[1, 2, 3], Policy::Random);
    client.fill(count);
    for _ in 0..3 {
        group.start(4);
        let joined = || group.said(4).contains("this one is joining");
        assert!(wait_until(PATIENCE, joined), "{}", group.said(4));
        group.members.remove(&4).expect("it was started").kill();
        fs::remove_file(group.folder.path().join("said-4")).expect("it was written");
    }
    group.start(4);
    let (is_full, text) = scot(&["group", "add", &group.membership, "4"]);
    assert!(is_full, "{text}\n{}", group.said(4));
    let mut reader = group.client(&[1, 2, 3, 4], Policy::Member(4));
    for number in [0, count / 2, count - 1] {
        let key = format!("key-{number}");
        assert_eq!(reader.ask(RequestKind::Read, &[b"GET", key.as_bytes()], 1, |_| {}), [5], "{key}");
    }
}

/// It ends with a number, which can be read again.
const VALUE: [u8; 1_150] = {
    let mut value = [b'v'; 1_150];
    value[1_149] = b'5';
    value
};

impl Client {
    /// How many of so many keys hold what [`Client::fill`] has written.
    pub(super) fn filled(&mut self, count: usize) -> usize {
        let is_there = |number: &usize| {
            let key = format!("key-{number}");
            self.ask(RequestKind::Read, &[b"GET", key.as_bytes()], 1, |_| {}) == [5]
        };
        (0..count).filter(is_there).count()
    }

    /// Writes so many keys, many at once.
    pub(super) fn fill(&mut self, count: usize) {
        let (mut begun, mut answered) = (0, 0);
        let deadline = Instant::now() + 3 * PATIENCE;
        while answered < count {
            while begun < count && begun - answered < 32 {
                let key = format!("key-{begun}");
                let words: &[&[u8]] = &[b"SET", key.as_bytes(), &VALUE];
                self.0
                    .submit(RequestKind::Update, &command(words), CallLabel::new("test"))
                    .expect("there is room");
                begun += 1;
            }
            self.0.turn().expect("the socket works");
            while let Some(event) = self.0.next_event() {
                let GroupEvent::Answered { bytes, .. } = event else { panic!("{event:?}") };
                assert!(bytes.ends_with(b"+OK\r\n"), "{}", String::from_utf8_lossy(bytes));
                answered += 1;
            }
            assert!(Instant::now() < deadline, "{answered} of {count} answers");
            self.0.wait(Some(Duration::from_millis(20))).expect("the socket works");
        }
    }
}

#[test]
fn who_is_configured_wrongly_is_told_so_and_the_others_go_on() {
    let Some((_ground, _etcd, mut group)) = group_at_etcd("group-wrong", "chain") else { return };
    start_all(&mut group);
    let mut client = group.client(&[1, 2, 3], Policy::Random);
    // Another group's name; another member's number, at a place of its own.
    for (id, name, reason) in [
        (4, "other", "the group is other here and g at etcd"),
        (2, "g", "two members are number 2: another one is alive"),
    ] {
        let mut wrong = Running(group.command(4, id, name).spawn().expect("scot starts"));
        let status = wrong.0.wait().expect("it is ours");
        assert!(!status.success() && group.said(4).contains(reason), "{}", group.said(4));
    }
    // Another key: it finds the group at etcd, and no member believes it.
    let key = group.folder.path().join("key");
    fs::write(&key, scotfree_core::to_hex(&[8; 32])).expect("the folder is ours");
    let metrics = free_tcp_address();
    let mut fourth = group.command(4, 4, "g");
    group
        .members
        .insert(4, Running(fourth.args(["--metrics", &metrics.to_string()]).spawn().expect("scot starts")));
    group.await_said(4, "this one is joining");
    // Each of the two that do not understand each other says whom.
    for (id, other) in [(3, 4), (4, 3)] {
        let address = group.addresses[other - 1].0;
        group.await_said(id, &format!("from {address} did not authenticate: is --key-file the same"));
    }
    await_health(metrics, "what other members send does not authenticate");
    let counted = asked(metrics, "metrics");
    let not_authentic =
        counted.lines().find_map(|line| line.strip_prefix("scotfree_group_not_authentic_total "));
    assert!(not_authentic.is_some_and(|count| count != "0"), "{counted}");
    let answers = client.increment(100, |_| {});
    assert_counted(&answers, 1);
    let (is_full, text) = scot(&["group", "add", &group.membership, "4", "--wait", "1"]);
    assert!(!is_full && text.contains("member 4: joining"), "{text}");
}
