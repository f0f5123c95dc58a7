//! A client of a group of three servers, over loopback UDP: one of them stops answering, refuses, or ends, and each
//! request is answered once all the same, under the identity that it had first.

mod common;

use common::{socket, TestServer, KEY, PATIENCE};
use scotfree_core::Nanos;
use scotfree_io::udp::UdpTransport;
use scotfree_rpc::{
    CallLabel, ClientOptions, ClientRuntime, Execution, GivenUp, GroupClient, GroupError, GroupEvent,
    GroupMember, GroupOptions, GroupSubmitError, Handler, Policy, Replies, RequestKind, RequestNumber,
    ServerOptions, Volatile,
};
use scotfree_wire::{ClusterKey, Identity, REQUEST_BYTES_MAX};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LABEL: CallLabel = CallLabel::new("SET");
const CLIENT: [u8; 16] = *b"sixteen of these";
const NOT_SERVING: &[u8] = b"not now";

const ANSWERS: u8 = 0;
const REFUSES: u8 = 1;
const SILENT: u8 = 2;
const SILENT_WRITES: u8 = 3;

/// Remembers what it was asked by whom, and answers with its own letter, if it is in the mood.
#[derive(Debug)]
struct Toy {
    letter: u8,
    mood: Arc<AtomicU8>,
    asked: Vec<(Option<Identity>, Vec<u8>)>,
}

impl Handler for Toy {
    fn execute(&mut self, request: &Execution<'_>, replies: &mut Replies) {
        self.asked.push((request.identity, request.payload.to_vec()));
        let mood = match self.mood.load(Ordering::SeqCst) {
            SILENT_WRITES if request.kind == RequestKind::Read => ANSWERS,
            mood => mood,
        };
        match mood {
            ANSWERS => replies.reply(request.ticket, false, |out| {
                out.push(self.letter);
                out.extend_from_slice(request.payload);
            }),
            REFUSES => replies.reply(request.ticket, true, |out| out.extend_from_slice(NOT_SERVING)),
            _ => {}
        }
    }
}

struct Group {
    servers: Vec<TestServer<Volatile<Toy>>>,
    moods: Vec<Arc<AtomicU8>>,
}

impl Group {
    fn start() -> Group {
        let moods: Vec<_> = (0..3).map(|_| Arc::new(AtomicU8::new(ANSWERS))).collect();
        // What a silent toy has is never answered, so a stop does not wait for it.
        let options = ServerOptions { drain_time_max: Nanos::from_millis(10), ..ServerOptions::default() };
        let server = |(at, mood): (usize, &Arc<AtomicU8>)| {
            let toy = Toy { letter: b'a' + at as u8, mood: mood.clone(), asked: Vec::new() };
            TestServer::start_undrained(Volatile(toy), options)
        };
        let servers = moods.iter().enumerate().map(server).collect();
        Group { servers, moods }
    }

    fn members(&self) -> Vec<GroupMember> {
        let member =
            |(at, server): (usize, &TestServer<_>)| GroupMember { id: at as u8, address: server.address };
        self.servers.iter().enumerate().map(member).collect()
    }

    /// A client of it whose sessions are open.
    fn client(&self, adjust: impl FnOnce(&mut GroupOptions)) -> GroupClient<UdpTransport> {
        let key = ClusterKey::from_bytes(KEY);
        let runtime = ClientRuntime::new(socket(), ClientOptions::new(self.servers[0].address, key));
        let mut options = GroupOptions::new(self.members(), CLIENT, 1);
        options.is_not_serving = |reply| reply.starts_with(NOT_SERVING);
        adjust(&mut options);
        let mut client = GroupClient::new(runtime, options).expect("three members");
        turn_until(&mut client, all_serve);
        client
    }

    fn set(&self, server: usize, mood: u8) {
        self.moods[server].store(mood, Ordering::SeqCst);
    }

    /// What each server was asked, in its order.
    fn finish(self) -> Vec<Vec<(Option<Identity>, Vec<u8>)>> {
        self.servers.into_iter().map(|server| server.finish().0.asked).collect()
    }
}

fn all_serve(client: &GroupClient<UdpTransport>) -> bool {
    [RequestKind::Read, RequestKind::Update].into_iter().all(|kind| client.serving(kind).count() == 3)
}

fn turn_until(client: &mut GroupClient<UdpTransport>, is_done: impl Fn(&GroupClient<UdpTransport>) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        client.turn().expect("the socket works");
        if is_done(client) {
            return;
        }
        assert!(Instant::now() < deadline, "{:?}", client.counters());
        client.wait(Some(PATIENCE)).expect("the socket works");
    }
}

/// What has become of a request: who answered what, or why nobody did.
type End = Result<(u8, Vec<u8>), GivenUp>;

/// Waits for the ends of so many requests.
fn ends(client: &mut GroupClient<UdpTransport>, count: usize) -> BTreeMap<RequestNumber, End> {
    let mut ends = BTreeMap::new();
    let deadline = Instant::now() + PATIENCE;
    while ends.len() < count {
        assert!(Instant::now() < deadline, "{} of {count}: {:?}", ends.len(), client.counters());
        client.turn().expect("the socket works");
        while let Some(event) = client.next_event() {
            let (number, end) = match event {
                GroupEvent::Answered { number, member, bytes, .. } => (number, Ok((member, bytes.to_vec()))),
                GroupEvent::GivenUp { number, why } => (number, Err(why)),
            };
            assert_eq!(ends.insert(number, end), None, "{number:?} ends twice");
        }
        if ends.len() < count {
            client.wait(Some(PATIENCE)).expect("the socket works");
        }
    }
    ends
}

fn update(client: &mut GroupClient<UdpTransport>, payload: &[u8]) -> RequestNumber {
    client.submit(RequestKind::Update, payload, LABEL).expect("there is room")
}

/// Every server's epoch in these tests.
fn number_at(member: u8, count: u64) -> u64 {
    u64::from(member) << 56 | 1 << 40 | count
}

#[test]
fn what_a_silent_member_had_is_answered_by_another_under_the_same_identity() {
    const COUNT: u64 = 50;
    let group = Group::start();
    let mut client = group.client(|options| options.writes = Policy::Member(1));
    let first = update(&mut client, b"x");
    assert_eq!(ends(&mut client, 1)[&first], Ok((1, b"bx".to_vec())));
    group.set(1, SILENT);
    for number in 2..=COUNT {
        let expected = RequestNumber { writes: true, count: number };
        assert_eq!(update(&mut client, &number.to_le_bytes()), expected);
    }
    for (number, end) in ends(&mut client, COUNT as usize - 1) {
        let (member, bytes) = end.expect("somebody has answered");
        assert_ne!(member, 1);
        assert_eq!(bytes[1..], number.count.to_le_bytes());
    }
    client.end(Duration::from_secs(5)).expect("the socket works");
    let asked = group.finish();
    let identities = |server: usize| -> BTreeMap<Vec<u8>, Identity> {
        let identified = asked[server].iter();
        identified.map(|(identity, payload)| (payload.clone(), identity.expect("it is a write"))).collect()
    };
    let silent = identities(1);
    let others: BTreeMap<_, _> = identities(0).into_iter().chain(identities(2)).collect();
    assert_eq!(others.len() as u64, COUNT - 1);
    assert_eq!(asked[0].len() + asked[2].len(), others.len(), "each is sent to one other, once");
    let both = silent.iter().filter(|(payload, _)| others.contains_key(*payload)).count();
    assert!(both > 1, "the silent member was sent some: {silent:?}");
    for (payload, identity) in &others {
        let count = u64::from_le_bytes(payload[..].try_into().expect("eight bytes"));
        assert_eq!(identity.client, CLIENT);
        if let Some(first) = silent.get(payload) {
            assert_eq!((identity, identity.number), (first, number_at(1, count)));
        }
    }
}

#[test]
fn a_member_that_refuses_is_passed_over_and_one_that_has_ended_too() {
    let group = Group::start();
    let mut client =
        group.client(|options| (options.writes, options.reads) = (Policy::Member(0), Policy::Sticky));
    group.set(0, REFUSES);
    let refused = update(&mut client, b"x");
    let Ok((member, _)) = ends(&mut client, 1)[&refused] else { panic!("two others answer") };
    assert_ne!(member, 0);
    assert_eq!(client.counters().refused, 1);
    let read = client.submit(RequestKind::Read, b"r", LABEL).expect("there is room");
    let Ok((sticky, _)) = ends(&mut client, 1)[&read] else { panic!("somebody answers") };
    group.set(0, ANSWERS);
    let Group { mut servers, .. } = group;
    servers.remove(usize::from(sticky)).finish();
    let numbers: Vec<_> =
        (0..20).map(|_| client.submit(RequestKind::Read, b"r", LABEL).expect("there is room")).collect();
    let ended = ends(&mut client, numbers.len());
    assert!(ended.values().all(|end| end.as_ref().is_ok_and(|(member, _)| *member != sticky)), "{ended:?}");
    for server in servers {
        let asked = server.finish().0.asked;
        assert!(asked.iter().filter(|(_, payload)| payload == b"r").all(|(identity, _)| identity.is_none()));
    }
}

#[test]
fn a_large_write_bears_no_identity_and_is_given_up_where_it_may_have_been_executed() {
    let group = Group::start();
    let mut client = group.client(|options| options.writes = Policy::Member(2));
    let large = vec![b'l'; 10_000];
    let first = update(&mut client, &large);
    assert!(matches!(&ends(&mut client, 1)[&first], Ok((2, bytes)) if bytes.len() == 10_001));
    group.set(2, SILENT);
    let (lost, small) = (update(&mut client, &large), update(&mut client, b"s"));
    let ended = ends(&mut client, 2);
    assert_eq!(ended[&lost], Err(GivenUp::UnknownOutcome));
    assert!(ended[&small].as_ref().is_ok_and(|(member, _)| *member != 2));
    drop(client);
    let asked = group.finish();
    let large_at = |server: usize| asked[server].iter().filter(|(_, payload)| payload.len() == 10_000);
    assert_eq!([0, 1, 2].map(|server| large_at(server).count()), [0, 0, 2]);
    assert!(large_at(2).all(|(identity, _)| identity.is_none()));
}

#[test]
fn what_nobody_answers_is_given_up_and_said_to_be() {
    let group = Group::start();
    let mut client = group.client(|options| {
        options.give_up_after = Nanos::from_millis(300);
        options.outstanding_max = 2;
    });
    (0..3).for_each(|server| group.set(server, SILENT));
    let silent = update(&mut client, b"x");
    assert_eq!(ends(&mut client, 1)[&silent], Err(GivenUp::UnknownOutcome));
    (0..3).for_each(|server| group.set(server, REFUSES));
    let numbers = [update(&mut client, b"y"), update(&mut client, b"z")];
    let full = client.submit(RequestKind::Read, b"r", LABEL);
    assert_eq!(full, Err(GroupSubmitError::Full));
    let ended = ends(&mut client, 2);
    assert!(numbers.iter().all(|number| ended[number].is_err()), "{ended:?}");
    let too_large = client.submit(RequestKind::Read, &vec![0; REQUEST_BYTES_MAX + 1], LABEL);
    assert_eq!(too_large, Err(GroupSubmitError::TooLarge));
    drop(client);
    group.finish();
}

#[test]
fn members_come_and_go() {
    let group = Group::start();
    let mut client = group.client(|options| options.writes = Policy::Member(2));
    let members = group.members();
    client.set_members(&members[..1]).expect("one is enough");
    let number = update(&mut client, b"x");
    assert_eq!(ends(&mut client, 1)[&number], Ok((0, b"ax".to_vec())));
    client.set_members(&members).expect("three are not too many");
    turn_until(&mut client, all_serve);
    let number = update(&mut client, b"y");
    assert_eq!(ends(&mut client, 1)[&number], Ok((2, b"cy".to_vec())));
    let twice = [members[0], GroupMember { id: 0, ..members[1] }];
    assert_eq!(client.set_members(&twice), Err(GroupError::Twice(0)));
    assert_eq!(client.set_members(&[]), Err(GroupError::NoMembers));
    client.end(Duration::from_secs(5)).expect("the socket works");
    group.finish();
}

/// As when the group has not noticed yet that a member is lost: writes wait for it, reads do not.
#[test]
fn reads_do_not_wait_for_writes_that_nobody_answers() {
    let group = Group::start();
    let mut client = group.client(|_| {});
    (0..3).for_each(|server| group.set(server, SILENT_WRITES));
    let write = update(&mut client, b"x");
    for _ in 0..10 {
        let read = client.submit(RequestKind::Read, b"r", LABEL).expect("there is room");
        assert!(ends(&mut client, 1)[&read].is_ok());
    }
    assert_eq!(client.outstanding(), 1);
    (0..3).for_each(|server| group.set(server, ANSWERS));
    assert!(ends(&mut client, 1)[&write].is_ok(), "it is sent again");
    drop(client);
    group.finish();
}
