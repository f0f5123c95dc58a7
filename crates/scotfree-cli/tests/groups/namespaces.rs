//! A group whose members are hosts of their own, as network namespaces on one bridge: a member is killed, a fourth
//! joins, a cable is pulled for longer than a lease; and some order explains all that clients have seen.
//!
//! Invariant: all of it runs in a network namespace that ends with the test.

use super::*;
use scotfree_check::{check, Answer, Key, Limits, Op, Operation, Registers, Reply, Verdict};
use scotfree_stage::netns::{access, in_user_namespace, Access};
use std::thread;

const HERE: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
/// Says to this test that it runs in the namespaces that it wants.
const INSIDE: &str = "INSIDE_TEST_NAMESPACES";
/// Where a member is asked for its health, in its own namespace.
const METRICS: &str = "127.0.0.1:9100";
/// How many requests a client makes in a phase.
const REQUESTS: u64 = 150;

#[test]
fn members_in_namespaces_go_on_without_a_killed_and_a_cut_off_one_and_all_is_linearizable() {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    if let Access::None(trouble) = access() {
        eprintln!("SKIP: {trouble}");
        return;
    }
    let this = thread::current().name().expect("a test has a name").to_owned();
    let program = std::env::current_exe().expect("it runs");
    let mut again = in_user_namespace(&program, [this.as_str(), "--exact", "--nocapture"]);
    let status = again.env(INSIDE, "1").status().expect("it runs");
    assert!(status.success(), "{status}");
}

fn run(words: &str) {
    let (program, words) = words.split_once(' ').expect("a program and its words");
    let output = Command::new(program).args(words.split(' ')).output().expect("it is installed");
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A bridge, on which this test and its etcd are, and four hosts at it.
fn make_hosts() {
    run("ip link set lo up");
    run("ip link add bridge type bridge");
    run(&format!("ip address add {HERE}/24 dev bridge"));
    run("ip link set bridge up");
    for id in 1..=4 {
        run(&format!("ip netns add scot-{id}"));
        run(&format!("ip link add to-{id} type veth peer name eth0 netns scot-{id}"));
        run(&format!("ip link set to-{id} master bridge up"));
        run(&format!("ip -n scot-{id} link set lo up"));
        run(&format!("ip -n scot-{id} address add {}/24 dev eth0", address_of(id)));
        run(&format!("ip -n scot-{id} link set eth0 up"));
    }
}

fn address_of(id: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, 0, 10 + id)
}

fn in_namespace(id: u8, program: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &format!("scot-{id}"), program]);
    command
}

/// What a member says of itself to who asks it on its own host.
fn health(id: u8) -> String {
    let (host, port) = METRICS.split_once(':').expect("an address");
    let ask =
        format!("exec 3<>/dev/tcp/{host}/{port}; printf 'GET /healthz HTTP/1.1\\r\\n\\r\\n' >&3; cat <&3");
    let output = in_namespace(id, "bash").args(["-c", &ask]).output().expect("bash is there");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn await_health(group: &Group, id: u8, words: &str) {
    let is_so = wait_until(PATIENCE, || health(id).contains(words));
    assert!(is_so, "{words}: {}\n{}", health(id), group.said(id));
}

fn start(group: &mut Group, id: u8) {
    let mut scot = group.command(id, id, "g");
    group.members.insert(id, Running(scot.args(["--metrics", METRICS]).spawn().expect("scot starts")));
}

fn add(group: &mut Group, id: u8) {
    start(group, id);
    let (is_full, text) = scot(&["group", "add", &group.membership, &id.to_string()]);
    assert!(is_full, "{text}\n{}", group.said(id));
}

/// How many members are listed as full.
fn full_count(place: &str) -> usize {
    scot(&["group", "status", place]).1.matches(": full;").count()
}

fn inside() {
    make_hosts();
    let ground = Scratch::new("group-hosts-etcd").expect("temporary files can be written");
    let Some((_etcd, port)) = etcd_at(HERE.into(), ground.path()) else { return };
    let place = format!("etcd:http://{HERE}:{port}/scotfree/g");
    let mut group = Group::new("group-hosts", "craq", |_| place.clone());
    let at = |id, port| SocketAddr::from((address_of(id), port));
    group.addresses = (1..=4).map(|id| (at(id, 51_900), at(id, 51_000))).collect();
    (group.program, group.clients_ip) = (|id| in_namespace(id, SCOT), HERE.into());
    let (is_made, text) = group.init(&["--lease-ms", "1000"]);
    assert!(is_made, "{text}");
    (1..=3).for_each(|id| start(&mut group, id));
    (1..=3).for_each(|id| group.await_said(id, "this one is full"));

    let mut seen = Seen::default();
    seen.during(&mut group, &[1, 2, 3], |group| group.members.get_mut(&1).expect("it runs").kill());
    seen.during(&mut group, &[2, 3], |group| add(group, 4));
    assert_eq!(full_count(&place), 3);
    seen.during(&mut group, &[2, 3, 4], |group| add(group, 1));

    // Longer than a lease: it says that it does not serve, and goes on by itself.
    seen.during(&mut group, &[1, 2, 3, 4], |group| {
        run("ip -n scot-2 link set eth0 down");
        await_health(group, 2, "lease is over");
        assert!(wait_until(PATIENCE, || full_count(&place) == 3), "it is left out");
    });
    assert!(health(2).contains("503"), "{}", health(2));
    run("ip -n scot-2 link set eth0 up");
    seen.during(&mut group, &[1, 2, 3, 4], |group| await_health(group, 2, "200 OK"));
    let (is_full, text) = scot(&["group", "add", &place, "2"]);
    assert!(is_full, "it was not started again: {text}\n{}", group.said(2));
    seen.during(&mut group, &[1, 2, 3, 4], |_| {});
    seen.judge();
}

/// What clients have seen, by one clock.
struct Seen {
    begun: Instant,
    history: Vec<Operation<Op, Reply>>,
    phase: u8,
}

impl Default for Seen {
    fn default() -> Seen {
        Seen { begun: Instant::now(), history: Vec::new(), phase: 0 }
    }
}

impl Seen {
    /// Three clients that read at one of these members each and write at any make their requests, while `act` acts.
    fn during(&mut self, group: &mut Group, ids: &[u8], act: impl FnOnce(&mut Group)) {
        self.phase += 1;
        let clients: Vec<Client> = (0..3)
            .map(|number| {
                let mut name = [self.phase; 16];
                name[0] = number;
                group.client_named(name, ids, Policy::Member(ids[usize::from(number) % ids.len()]))
            })
            .collect();
        let (begun, phase) = (self.begun, self.phase);
        let seen: Vec<Vec<_>> = thread::scope(|scope| {
            let begin = |(number, client)| {
                scope.spawn(move || requests_of(client, u64::from(phase) << 8 | number, begun))
            };
            let threads: Vec<_> = (0..).zip(clients).map(begin).collect();
            act(group);
            threads.into_iter().map(|thread| thread.join().expect("it is answered")).collect()
        });
        self.history.extend(seen.into_iter().flatten());
    }

    fn judge(&self) {
        let limits = Limits { steps_max: 50_000_000, ..Limits::default() };
        match check(&Registers, &self.history, limits) {
            Verdict::Linearizable => eprintln!("{} operations, linearizable", self.history.len()),
            Verdict::Violation(violation) => panic!("{}", violation.describe(&Registers, &self.history)),
            unknown @ Verdict::Unknown { .. } => panic!("{unknown:?}"),
        }
    }
}

/// The requests of one client, one after the other.
fn requests_of(mut client: Client, number: u64, begun: Instant) -> Vec<Operation<Op, Reply>> {
    let now = || begun.elapsed().as_nanos() as u64;
    let request = |turn: u64| {
        let op = op_of(number, turn);
        let called = now();
        let reply = answer(&mut client, &op);
        Operation { client: number, called, op, answer: Some(Answer { at: now(), reply }) }
    };
    (0..REQUESTS).map(request).collect()
}

/// Two keys are set, each to values that nothing else has, and one is counted up; half of all are reads.
fn op_of(number: u64, turn: u64) -> Op {
    let key = Key((turn / 2 % 3) as u32);
    match (turn % 2, key) {
        (0, _) => Op::Get { key },
        (_, Key(2)) => Op::Incr { key },
        _ => Op::Set { key, value: number << 16 | turn | 1 << 40 },
    }
}

fn answer(client: &mut Client, op: &Op) -> Reply {
    match op {
        Op::Get { key } => Reply::Values(vec![client.value(RequestKind::Read, &["GET", &name_of(*key)])]),
        Op::Incr { key } => {
            let counted = client.value(RequestKind::Update, &["INCR", &name_of(*key)]);
            Reply::Number(counted.expect("it answers with a number"))
        }
        Op::Set { key, value } => {
            let none = client.value(RequestKind::Update, &["SET", &name_of(*key), &value.to_string()]);
            assert_eq!(none, None, "it answers OK");
            Reply::Done
        }
        other => unreachable!("{other:?} is not asked"),
    }
}

fn name_of(key: Key) -> String {
    format!("key-{}", key.0)
}

impl Client {
    /// The number that a command answers, or none.
    fn value(&mut self, kind: RequestKind, words: &[&str]) -> Option<u64> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.0.submit(kind, &command(&words), CallLabel::new("test")).expect("there is room");
        loop {
            self.0.turn().expect("the socket works");
            match self.0.next_event() {
                Some(GroupEvent::Answered { bytes, failed, .. }) => {
                    let text = String::from_utf8_lossy(bytes).into_owned();
                    assert!(!failed, "{text:?}");
                    return text.trim_end().rsplit([':', '\n']).next().and_then(|end| end.parse().ok());
                }
                Some(GroupEvent::GivenUp { why, .. }) => panic!("{words:?} was given up: {why:?}"),
                None => self.0.wait(None).expect("the socket works"),
            }
        }
    }
}
