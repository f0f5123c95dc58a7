//! Fronts with an upstream that is a list: no socket, no clock, no server.

use super::*;
use scotfree_core::{DeviceId, SeqNum, SessionId, Tier};
use scotfree_resp::description::Description;
use scotfree_resp::front::EarlyRule;
use scotfree_resp::payload::{write_response, RequestKind, RequestPayload, ResponseFlags};
use scotfree_rpc::{Reply, SessionOptions};
use scotfree_session::CompletedBy;
use std::collections::BTreeMap;

const NOW: Nanos = Nanos::from_secs(1_700_000_000);
const CONTROL: SessionHandle = SessionHandle::numbered(u64::MAX);
const FIRST: SessionHandle = SessionHandle::numbered(1);
const KEY: ConnectionKey = ConnectionKey(70);
const OTHER: ConnectionKey = ConnectionKey(71);

/// A request as the upstream was given it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sent {
    kind: RequestKind,
    mode: Mode,
    payload: Vec<u8>,
}

enum Happens {
    Opened(SessionHandle),
    Completed(SessionHandle, Option<Vec<u8>>),
    Closed(SessionHandle, ClosedReason),
}

/// An upstream that keeps what it is given until the test says what becomes of it.
#[derive(Default)]
struct Listed {
    asked: Vec<SessionOptions>,
    /// How many more requests each open session takes.
    credit: BTreeMap<SessionHandle, u32>,
    sent: Vec<Sent>,
    ended: Vec<SessionHandle>,
    events: VecDeque<Happens>,
    handed_over: Vec<u8>,
}

impl Listed {
    fn opens(&mut self, session: SessionHandle, credit: u32) {
        self.credit.insert(session, credit);
        self.events.push_back(Happens::Opened(session));
    }

    /// The oldest request of a session is answered.
    fn answers(&mut self, session: SessionHandle, reply: &[u8]) {
        let mut payload = Vec::new();
        write_response(&mut payload, ResponseFlags::NONE, reply);
        self.events.push_back(Happens::Completed(session, Some(payload)));
    }

    /// The commands sent since the last time, one a line.
    fn take_sent(&mut self) -> Vec<String> {
        let text = |sent: Sent| {
            let payload = RequestPayload::parse(&sent.payload).expect("a front sends payloads");
            let words = payload.all(&sent.payload).flat_map(|args| args.iter());
            let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
            format!("{:?} {:?} {}", sent.kind, sent.mode, words.join(" "))
        };
        self.sent.drain(..).map(text).collect()
    }
}

impl Upstream for Listed {
    fn start_session(&mut self, options: SessionOptions) -> Result<SessionHandle, StartError> {
        self.asked.push(options);
        Ok(SessionHandle::numbered(self.asked.len() as u64))
    }

    fn end_session(&mut self, session: SessionHandle) {
        self.ended.push(session);
    }

    fn submit(
        &mut self,
        session: SessionHandle,
        request: Request<'_>,
        _label: CallLabel,
    ) -> Result<SeqNum, SubmitError> {
        let credit = self.credit.get_mut(&session).ok_or(SubmitError::NotOpen)?;
        *credit = credit.checked_sub(1).ok_or(SubmitError::WindowFull)?;
        let Request { kind, mode, payload, .. } = request;
        self.sent.push(Sent { kind, mode, payload: payload.to_vec() });
        Ok(SeqNum(self.sent.len() as u64))
    }

    fn next_event(&mut self) -> Option<ClientEvent<'_>> {
        Some(match self.events.pop_front()? {
            Happens::Opened(session) => ClientEvent::Opened { session, id: SessionId(5), window: 9 },
            Happens::Completed(session, bytes) => {
                let answered_by =
                    if bytes.is_some() { CompletedBy::Server } else { CompletedBy::Device(DeviceId(1)) };
                let bytes = bytes.map(|bytes| {
                    self.handed_over = bytes;
                    &self.handed_over[..]
                });
                let reply = Reply { seq: SeqNum(1), answered_by, bytes, failed: false };
                ClientEvent::Completed { session, reply }
            }
            Happens::Closed(session, reason) => ClientEvent::Closed { session, reason, unknown_count: 0 },
        })
    }
}

struct Bench {
    fronts: Fronts,
    upstream: Listed,
}

impl Bench {
    fn new(configure: impl FnOnce(&mut ClientSidecarConfig)) -> Bench {
        let address = || "127.0.0.1:7".parse().expect("an address");
        let key = scotfree_wire::ClusterKey::from_bytes([1; 32]);
        let mut config = ClientSidecarConfig::new(address(), address(), address(), key);
        configure(&mut config);
        let told = Told { description: Arc::new(Description::of_table()), ahead_ms: 0 };
        let fronts = Fronts::new(&config, told, Coverage::new(config.session, None));
        Bench { fronts, upstream: Listed::default() }
    }

    fn open(&mut self, key: ConnectionKey) {
        let peer = Peer { id: key.0, ..Peer::default() };
        self.fronts.open(key, peer, &mut self.upstream).expect("the upstream has room");
    }

    fn says(&mut self, key: ConnectionKey, bytes: &[u8]) {
        self.fronts.on_bytes(NOW, key, bytes, &mut self.upstream);
    }

    /// What a turn of the loop does before it writes to sockets.
    fn turn(&mut self) {
        self.fronts.hear(NOW, CONTROL, &mut self.upstream);
        self.fronts.submit(NOW, &mut self.upstream);
    }

    /// What the client reads.
    fn read(&mut self, key: ConnectionKey) -> String {
        let front = self.fronts.front_mut(key).expect("it is open");
        let text = String::from_utf8_lossy(front.output()).into_owned();
        front.sent(text.len());
        text
    }
}

#[test]
fn a_command_waits_for_credit_and_is_answered_by_its_session() {
    let mut bench = Bench::new(|_| ());
    bench.open(KEY);
    bench.says(KEY, b"SET k v\r\nGET k\r\n");
    bench.turn();
    assert!(bench.upstream.take_sent().is_empty(), "the session is not open");
    assert_eq!(bench.fronts.wish(KEY), Wish::Wait { to_read: false, to_write: false });
    bench.upstream.opens(FIRST, 1);
    bench.turn();
    assert_eq!(bench.upstream.take_sent(), ["Update Covered SET k v"]);
    assert_eq!(bench.fronts.wish(KEY), Wish::Wait { to_read: false, to_write: false }, "no credit");
    bench.upstream.answers(FIRST, b"+OK\r\n");
    bench.upstream.credit.insert(FIRST, 1);
    bench.turn();
    assert_eq!(bench.upstream.take_sent(), ["Read Covered GET k"]);
    assert_eq!(bench.fronts.wish(KEY), Wish::Wait { to_read: true, to_write: true });
    assert_eq!((bench.read(KEY), bench.fronts.outstanding()), ("+OK\r\n".to_owned(), 1));
    bench.upstream.answers(FIRST, b"$1\r\nv\r\n");
    bench.turn();
    assert_eq!((bench.read(KEY), bench.fronts.outstanding()), ("$1\r\nv\r\n".to_owned(), 0));
    assert_eq!(bench.fronts.wish(KEY), Wish::Wait { to_read: true, to_write: false });
    bench.fronts.on_input_end(KEY);
    assert_eq!(bench.fronts.wish(KEY), Wish::Close);
}

#[test]
fn an_early_command_is_answered_without_the_server_s_reply() {
    let mut bench = Bench::new(|config| config.listeners[0].early = EarlyRule::Always);
    bench.open(KEY);
    bench.upstream.opens(FIRST, 9);
    bench.turn();
    bench.says(KEY, b"SET k v\r\n");
    assert_eq!(bench.upstream.take_sent(), ["Update Early SET k v"]);
    bench.upstream.events.push_back(Happens::Completed(FIRST, None));
    bench.turn();
    assert_eq!(bench.read(KEY), "+OK\r\n");
}

#[test]
fn a_session_that_ends_says_what_became_of_each_command() {
    let mut bench = Bench::new(|_| ());
    bench.open(KEY);
    bench.upstream.opens(FIRST, 1);
    bench.turn();
    bench.says(KEY, b"SET a 1\r\nSET b 2\r\n");
    assert_eq!(bench.upstream.take_sent().len(), 1);
    bench.upstream.events.push_back(Happens::Closed(FIRST, ClosedReason::Unreachable));
    bench.turn();
    let said = bench.read(KEY);
    assert!(said.starts_with("-ERR scotfree: ") && said.contains("the outcome is unknown"), "{said}");
    assert_eq!(said.matches("-ERR").count(), 1, "the first error ends it: {said}");
    assert_eq!(bench.fronts.wish(KEY), Wish::Close);
    bench.fronts.close(KEY);
    bench.turn();
    assert!(bench.fronts.is_drained() && bench.upstream.ended.is_empty(), "it has ended already");
}

#[test]
fn a_session_serves_the_next_client_until_the_server_is_another_one() {
    let mut bench = Bench::new(|_| ());
    bench.open(KEY);
    bench.upstream.opens(FIRST, 9);
    bench.turn();
    bench.fronts.close(KEY);
    bench.turn();
    bench.open(OTHER);
    assert_eq!(bench.upstream.asked.len(), 1, "the idle session is used");
    bench.fronts.close(OTHER);
    bench.turn();
    let without_devices = Description { devices: Some(0), ..Description::of_table() }.to_text();
    let told = format!("${}\r\n{without_devices}\r\n", without_devices.len());
    bench.upstream.answers(CONTROL, told.as_bytes());
    bench.turn();
    assert_eq!(bench.upstream.ended, [FIRST]);
    bench.upstream.events.push_back(Happens::Closed(FIRST, ClosedReason::Finished));
    bench.turn();
    bench.open(KEY);
    assert_eq!(bench.upstream.asked.len(), 2);
    assert_eq!(bench.upstream.asked[1].tier, Tier::NONE, "nobody is asked to acknowledge");
}

#[test]
fn a_command_that_never_ends_asks_for_a_tunnel_and_is_not_sent() {
    let mut bench = Bench::new(|_| ());
    bench.open(KEY);
    bench.upstream.opens(FIRST, 9);
    bench.turn();
    bench.says(KEY, b"SUBSCRIBE c\r\n");
    bench.turn();
    assert!(bench.upstream.take_sent().is_empty());
    let asked = bench.fronts.take_tunnels();
    assert!(matches!(&asked[..], [tunnel] if tunnel.key == KEY && tunnel.setup_replies == 0), "{asked:?}");
    assert!(asked[0].bytes.starts_with(b"*2\r\n$9\r\nSUBSCRIBE"));
}

#[test]
fn behind_input_bytes_max_the_largest_is_refused_and_the_others_go_on() {
    let mut bench = Bench::new(|config| config.input_bytes_max = 4 * LITTLE_BYTES_MAX);
    let part = |bytes: usize| [&b"*2\r\n$3\r\nGET\r\n$9000000\r\n"[..], &vec![b'x'; bytes]].concat();
    bench.open(KEY);
    bench.open(OTHER);
    bench.says(KEY, &part(3 * LITTLE_BYTES_MAX));
    bench.says(OTHER, &part(2 * LITTLE_BYTES_MAX));
    assert!(!bench.fronts.admits(OTHER));
    assert_eq!(bench.fronts.wish(OTHER), Wish::Wait { to_read: false, to_write: false });
    bench.fronts.take_touched();
    assert!(bench.fronts.make_room(NOW));
    let said = bench.read(KEY);
    assert!(said.contains("input_bytes_max = 262144"), "{said}");
    assert_eq!(bench.fronts.wish(KEY), Wish::Close);
    assert!(bench.fronts.take_touched().contains(&OTHER), "it is looked at again");
    assert_eq!(bench.fronts.wish(OTHER), Wish::Wait { to_read: true, to_write: false });
}
