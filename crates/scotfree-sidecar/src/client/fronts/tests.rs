//! Fronts with an upstream that is a list: no socket, no clock, no server.

use super::*;
use scotfree_core::{DeviceId, KeyHash, SeqNum, SessionId, Tier};
use scotfree_resp::codec::Args;
use scotfree_resp::description::Description;
use scotfree_resp::front::EarlyRule;
use scotfree_resp::payload::pack::{write_pack_response, write_response_part};
use scotfree_resp::payload::{
    write_part, write_response, RequestFlags, RequestHead, RequestKind, RequestPayload, ResponseFlags,
    REQUEST_HEAD_BYTES,
};
use scotfree_rpc::{CallLabel, Recorded, Reply, SessionOptions};
use scotfree_session::{CompletedBy, Mode, Request, SubmitError};
use scotfree_trace::{SpanId, TraceId};
use scotfree_wire::{FURTHER_KEYS_MAX, PAYLOAD_BYTES_MAX};
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
    /// By which it is named, and those beside it.
    key_hash: KeyHash,
    further_keys: Vec<KeyHash>,
}

enum Happens {
    Opened(SessionHandle),
    Completed(SessionHandle, Option<Vec<u8>>),
    Closed(SessionHandle, ClosedReason),
}

/// An upstream that keeps what it is given until the test says what becomes of it.
struct Listed {
    /// How many sessions it starts.
    sessions_max: usize,
    asked: Vec<SessionOptions>,
    /// How many more requests each open session takes.
    credit: BTreeMap<SessionHandle, u32>,
    sent: Vec<Sent>,
    /// How many requests each session was given, and those that are not complete.
    given: BTreeMap<SessionHandle, u64>,
    under_way: BTreeMap<SessionHandle, VecDeque<(SeqNum, Mode)>>,
    ended: Vec<SessionHandle>,
    events: VecDeque<Happens>,
    handed_over: Vec<u8>,
    /// What the record of the next calls is known by.
    recorded: Option<Recorded>,
}

impl Listed {
    fn new() -> Listed {
        Listed {
            sessions_max: usize::MAX,
            asked: Vec::new(),
            credit: BTreeMap::new(),
            sent: Vec::new(),
            given: BTreeMap::new(),
            under_way: BTreeMap::new(),
            ended: Vec::new(),
            events: VecDeque::new(),
            handed_over: Vec::new(),
            recorded: None,
        }
    }

    fn opens(&mut self, session: SessionHandle, credit: u32) {
        self.credit.insert(session, credit);
        self.events.push_back(Happens::Opened(session));
    }

    /// The oldest request of a session is complete, or the oldest early one.
    fn complete(&mut self, session: SessionHandle, is_early: bool) -> SeqNum {
        let Some(under_way) = self.under_way.get_mut(&session) else { return SeqNum(0) };
        let at = under_way.iter().position(|(_, mode)| (*mode == Mode::Early) == is_early);
        at.and_then(|at| under_way.remove(at)).map_or(SeqNum(0), |(seq, _)| seq)
    }

    /// The oldest request of a session is answered.
    fn answers(&mut self, session: SessionHandle, reply: &[u8]) {
        let mut payload = Vec::new();
        write_response(&mut payload, ResponseFlags::NONE, reply);
        self.events.push_back(Happens::Completed(session, Some(payload)));
    }

    /// The oldest request of a session is answered part by part.
    fn answers_parts(&mut self, session: SessionHandle, replies: &[&[u8]]) {
        let mut payload = Vec::new();
        write_pack_response(&mut payload, ResponseFlags::NONE);
        for reply in replies {
            write_response_part(&mut payload, |out| write_response(out, ResponseFlags::NONE, reply));
        }
        self.events.push_back(Happens::Completed(session, Some(payload)));
    }

    /// The replies whose next parts were asked for since the last time, and nothing else was sent.
    fn take_fetched(&mut self) -> Vec<u64> {
        let name = |sent: Sent| {
            let head = RequestHead::parse(&sent.payload).expect("a front sends payloads");
            assert!(head.flags.has(RequestFlags::REST), "{sent:?}");
            u64::from_le_bytes(sent.payload[REQUEST_HEAD_BYTES..].try_into().expect("a name"))
        };
        self.sent.drain(..).map(name).collect()
    }

    /// The commands sent since the last time, a request a line.
    fn take_sent(&mut self) -> Vec<String> {
        let text = |sent: Sent| {
            let payload = RequestPayload::parse(&sent.payload).expect("a front sends payloads");
            let command =
                |args: Args<'_>| args.iter().map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ");
            let commands: Vec<_> = payload.all(&sent.payload).map(command).collect();
            format!("{:?} {:?} {}", sent.kind, sent.mode, commands.join(", "))
        };
        self.sent.drain(..).map(text).collect()
    }
}

impl Upstream for Listed {
    fn start_session(&mut self, options: SessionOptions) -> Result<SessionHandle, StartError> {
        if self.asked.len() >= self.sessions_max {
            return Err(StartError::TooMany { sessions_max: self.sessions_max });
        }
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
        let (payload, key_hash) = (payload.to_vec(), request.key_hash);
        self.sent.push(Sent { kind, mode, payload, key_hash, further_keys: Vec::new() });
        let given = self.given.entry(session).or_default();
        *given += 1;
        self.under_way.entry(session).or_default().push_back((SeqNum(*given), mode));
        Ok(SeqNum(*given))
    }

    fn submit_naming(
        &mut self,
        session: SessionHandle,
        request: Request<'_>,
        further_keys: &[KeyHash],
        label: CallLabel,
    ) -> Result<SeqNum, SubmitError> {
        let taken = self.submit(session, request, label);
        if let (Ok(_), Some(sent)) = (&taken, self.sent.last_mut()) {
            sent.further_keys = further_keys.to_vec();
        }
        taken
    }

    fn next_event(&mut self) -> Option<ClientEvent<'_>> {
        Some(match self.events.pop_front()? {
            Happens::Opened(session) => ClientEvent::Opened { session, id: SessionId(5), window: 9 },
            Happens::Completed(session, bytes) => {
                let seq = self.complete(session, bytes.is_none());
                let answered_by =
                    if bytes.is_some() { CompletedBy::Server } else { CompletedBy::Device(DeviceId(1)) };
                let bytes = bytes.map(|bytes| {
                    self.handed_over = bytes;
                    &self.handed_over[..]
                });
                let reply = Reply { seq, answered_by, bytes, failed: false, recorded: self.recorded };
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
        Bench::told(Description::of_table(), configure)
    }

    /// The server's sidecar takes several commands in one request, and the first connection's session is open.
    fn packing(credit: u32, configure: impl FnOnce(&mut ClientSidecarConfig)) -> Bench {
        let mut bench = Bench::told(Description { packs: true, ..Description::of_table() }, configure);
        bench.open(KEY);
        bench.upstream.opens(FIRST, credit);
        bench.turn();
        bench
    }

    fn told(description: Description, configure: impl FnOnce(&mut ClientSidecarConfig)) -> Bench {
        let address = || "127.0.0.1:7".parse().expect("an address");
        let key = scotfree_wire::ClusterKey::from_bytes([1; 32]);
        let mut config = ClientSidecarConfig::new(address(), address(), address(), key);
        configure(&mut config);
        let told = Told { description: Arc::new(description), ahead_ms: 0 };
        let fronts = Fronts::new(&config, told, Coverage::new(config.session, None));
        Bench { fronts, upstream: Listed::new() }
    }

    fn open(&mut self, key: ConnectionKey) {
        let peer = Peer { id: key.0, ..Peer::default() };
        self.fronts.open(key, peer, &mut self.upstream).expect("the upstream has room");
    }

    /// A client's bytes come, and what may be sent is sent.
    fn says(&mut self, key: ConnectionKey, bytes: &[u8]) {
        self.fronts.on_bytes(NOW, key, bytes);
        self.fronts.submit(NOW, &mut self.upstream);
    }

    /// A client's bytes come, and nothing is sent yet.
    fn hears(&mut self, key: ConnectionKey, bytes: &[u8]) {
        self.fronts.on_bytes(NOW, key, bytes);
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
fn what_a_client_asked_past_the_order_is_known_when_it_is_gone() {
    let mut bench = Bench::new(|_| ());
    bench.open(KEY);
    bench.upstream.opens(FIRST, 9);
    bench.turn();
    bench.says(KEY, b"CLIENT TRACKING ON REDIRECT 1\r\n");
    bench.fronts.on_tunnel(NOW, KEY, b"+OK\r\n", false);
    bench.says(KEY, b"SET a 1\r\nSET b 1\r\nGET a\r\n");
    bench.fronts.on_tunnel(NOW, KEY, b"+OK\r\n", false);
    let counts = |bench: &Bench| {
        let (passed_by, orphans) = bench.fronts.passed_by();
        (passed_by.begun, passed_by.ended, orphans)
    };
    assert_eq!(counts(&bench), (2, 1, 0));
    bench.fronts.close(KEY);
    assert_eq!(counts(&bench), (2, 1, 1), "the server may have the other");
    // A stream of replication is the client's own from now on, whatever becomes of the front.
    let other = ConnectionKey(KEY.0 + 1);
    bench.open(other);
    bench.says(other, b"REPLCONF listening-port 1\r\n");
    assert_eq!(counts(&bench), (3, 1, 1));
    bench.fronts.close(other);
    assert_eq!(counts(&bench), (3, 1, 1), "it is never over");
}

#[test]
fn what_waits_past_the_order_is_noted_with_its_keys_where_somebody_takes_the_notes() {
    let mut bench = Bench::new(|_| ());
    bench.open(KEY);
    bench.upstream.opens(FIRST, 9);
    bench.turn();
    let noted = |bench: &mut Bench| bench.fronts.take_waiting().collect::<Vec<_>>();
    bench.says(KEY, b"BLPOP l 0\r\n");
    bench.fronts.on_tunnel(NOW, KEY, b"*-1\r\n", false);
    assert_eq!(noted(&mut bench), []);
    bench.fronts.note_waiting();
    let keys = Some(vec![KeyHash::of(0, b"l")]);
    bench.says(KEY, b"BLPOP l 0\r\nBLPOP l 0\r\n");
    assert_eq!(noted(&mut bench), [Waiting::Begun { number: 1, keys: keys.clone() }]);
    // The next one begins with the answer.
    bench.fronts.on_tunnel(NOW, KEY, b"*-1\r\n", false);
    bench.turn();
    assert_eq!(
        noted(&mut bench),
        [Waiting::Ended { number: 1 }, Waiting::Begun { number: 2, keys: keys.clone() }]
    );
    bench.fronts.close(KEY);
    assert_eq!(noted(&mut bench), [Waiting::Orphaned { number: 2 }]);
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
fn each_command_is_timed_from_when_it_was_read_and_an_exemplar_names_its_call() {
    let mut bench =
        Bench::packing(9, |config| config.listeners[0].early = EarlyRule::Prefixes(vec![b"e".to_vec()]));
    let after = |ms| NOW.plus(Nanos::from_millis(ms));
    bench.fronts.on_bytes(NOW, KEY, b"SET a 1\r\nINCR n\r\nGET a\r\n");
    bench.fronts.on_bytes(after(2), KEY, b"SET e 1\r\n");
    bench.fronts.submit(after(2), &mut bench.upstream);
    assert_eq!(bench.upstream.take_sent().len(), 3, "SET a and INCR n share one");
    bench.upstream.recorded = Some(Recorded { trace_id: TraceId([7; 16]), span_id: SpanId([8; 8]) });
    bench.upstream.answers_parts(FIRST, &[b"+OK\r\n", b":1\r\n"]);
    bench.fronts.hear(after(3), CONTROL, &mut bench.upstream);
    bench.upstream.recorded = None;
    bench.upstream.answers(FIRST, b"$1\r\n1\r\n");
    bench.fronts.hear(after(40), CONTROL, &mut bench.upstream);
    bench.upstream.events.push_back(Happens::Completed(FIRST, None));
    bench.fronts.hear(after(52), CONTROL, &mut bench.upstream);
    let mut text = MetricsText::new();
    bench.fronts.write_metrics(&mut text);
    let name = "scotfree_front_request_duration_seconds";
    for (kind, count, sum, bound, at_least) in [
        ("covered", 2, "0.006", "0.005", 0.003),
        ("read", 1, "0.04", "0.05", 0.0),
        ("early", 1, "0.05", "0.05", 0.0),
    ] {
        let expected =
            format!("{name}_sum{{kind=\"{kind}\"}} {sum}\n{name}_count{{kind=\"{kind}\"}} {count}\n");
        assert!(text.as_str().contains(&expected), "{expected}: {}", text.as_str());
        let bucket = format!("{name}_bucket{{kind=\"{kind}\",le=\"{bound}\"}} {count}");
        let line = text.as_str().lines().find(|line| line.starts_with(&bucket)).expect(&bucket);
        let exemplar = (at_least > 0.0).then(|| format!(" # {{trace_id=\"{}\"", "07".repeat(16)));
        assert_eq!(line.contains('#'), exemplar.is_some(), "{line}");
        assert!(
            exemplar.is_none_or(|exemplar| line.contains(&exemplar) && line.contains(" 0.003 ")),
            "{line}"
        );
    }
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
fn commands_that_wait_together_share_a_request_and_each_gets_its_reply() {
    let mut bench = Bench::packing(9, |_| ());
    bench.says(KEY, b"SET a 1\r\nINCR n\r\nGET a\r\nGET b\r\nSET c 3\r\n");
    let sent = bench.upstream.take_sent();
    assert_eq!(
        sent,
        ["Update Covered SET a 1, INCR n", "Read Covered GET a, GET b", "Update Covered SET c 3"]
    );
    assert_eq!(bench.fronts.outstanding(), 3, "requests, not commands");
    bench.upstream.answers_parts(FIRST, &[b"+OK\r\n", b"-ERR no\r\n"]);
    bench.turn();
    assert_eq!(bench.read(KEY), "+OK\r\n-ERR no\r\n", "an error ends nothing but its command");
    bench.upstream.answers_parts(FIRST, &[b"$1\r\n1\r\n", b"$-1\r\n"]);
    bench.upstream.answers(FIRST, b"+OK\r\n");
    bench.turn();
    assert_eq!(bench.read(KEY), "$1\r\n1\r\n$-1\r\n+OK\r\n");
    assert_eq!(bench.fronts.wish(KEY), Wish::Wait { to_read: true, to_write: false });
}

#[test]
fn before_a_server_whose_reads_a_device_answers_writes_say_which_keys_they_touch() {
    // By which hash a request is named, which are beside it, and whether its client takes a note.
    let sent = |cached: bool, said: &[u8]| {
        let description = Description { packs: true, cached, ..Description::of_table() };
        let mut bench = Bench::told(description, |_| ());
        bench.open(KEY);
        bench.upstream.opens(FIRST, 99);
        bench.turn();
        bench.says(KEY, said);
        if !bench.upstream.asked.is_empty() {
            // What is answered when storage holds it goes where nobody waits for it.
            bench.upstream.opens(SessionHandle::numbered(2), 99);
            bench.turn();
        }
        let head = |sent: &Sent| RequestHead::parse(&sent.payload).expect("a front sends payloads");
        let told = |sent: Sent| {
            let is_noted = head(&sent).flags.has(RequestFlags::NOTED);
            (sent.key_hash, sent.further_keys, is_noted)
        };
        bench.upstream.sent.drain(..).map(told).collect::<Vec<_>>()
    };
    let [a, b, c] = ["a", "b", "c"].map(|key| KeyHash::of(0, key.as_bytes()));
    let none = KeyHash(0);
    for (said, with, without) in [
        (&b"SET a 1\r\n"[..], (a, vec![], false), (a, vec![], false)),
        (b"MSET a 1 b 2 c 3\r\n", (a, vec![b, c], false), (a, vec![], false)),
        (b"SET a 1\r\nINCR b\r\nSET a 2\r\n", (a, vec![b], false), (none, vec![], false)),
        (b"SET a 1\r\nINCR a\r\n", (a, vec![a], false), (none, vec![], false)),
        (b"SET a 1\r\nFLUSHDB\r\n", (none, vec![], false), (none, vec![], false)),
        (b"COPY a b DB 3\r\n", (a, vec![], false), (a, vec![], false)),
        (b"GET a\r\n", (a, vec![], true), (a, vec![], false)),
        // Of a transaction all are named, beside the first that it reads or writes.
        (b"MULTI\r\nSET a 1\r\nEXEC\r\n", (a, vec![a], false), (a, vec![], false)),
        (b"MULTI\r\nGET a\r\nSET b 1\r\nHSET c f 1\r\nEXEC\r\n", (a, vec![b, c], false), (a, vec![], false)),
        (b"MULTI\r\nSET a 1\r\nSORT b STORE c\r\nEXEC\r\n", (a, vec![], false), (a, vec![], false)),
        (b"HGET a f\r\n", (a, vec![], true), (a, vec![], false)),
        (b"LRANGE a 0 1\r\n", (a, vec![], false), (a, vec![], false)),
        // It keeps in the value what it counts: a write that names its keys.
        (b"PFCOUNT a b\r\n", (a, vec![b], false), (a, vec![], false)),
    ] {
        let text = String::from_utf8_lossy(said);
        assert_eq!(sent(true, said), [with], "{text}");
        assert_eq!(sent(false, said), [without], "{text}");
    }
    let reads = sent(true, b"GET a\r\nGET b\r\n");
    assert_eq!(reads, [(a, vec![], true), (b, vec![], false)], "the second waits for the first");
    let many: Vec<String> = (0..=FURTHER_KEYS_MAX + 1).map(|key| key.to_string()).collect();
    let many = sent(true, format!("DEL {}\r\n", many.join(" ")).as_bytes());
    assert_eq!(many[0].1, [], "more than a packet names are not named");
}

#[test]
fn reads_that_wait_for_an_answer_share_a_packet_though_a_device_answers_others() {
    let description = Description { packs: true, cached: true, ..Description::of_table() };
    let mut bench = Bench::told(description, |_| ());
    bench.open(KEY);
    bench.upstream.opens(FIRST, 99);
    bench.turn();
    // How large answers are is known from the first.
    bench.says(KEY, b"GET a\r\n");
    bench.upstream.answers(FIRST, b"$1\r\n1\r\n");
    bench.turn();
    bench.upstream.take_sent();
    bench.says(KEY, b"GET a\r\nGET b\r\nHGET c f\r\n");
    assert_eq!(bench.upstream.take_sent(), ["Read Covered GET a", "Read Covered GET b, HGET c f"]);
}

#[test]
fn what_has_a_state_of_its_own_goes_alone_and_nothing_overtakes_it() {
    let mut bench = Bench::packing(99, |_| ());
    bench.open(OTHER);
    bench.says(
        KEY,
        b"SET a 1\r\nWATCH a\r\nSET b 1\r\nSET b 2\r\nMULTI\r\nSET c 1\r\nSET c 2\r\nEXEC\r\nSET d 1\r\n",
    );
    bench.says(OTHER, b"SET e 1\r\n");
    assert_eq!(bench.upstream.take_sent(), ["Update Covered SET a 1", "Update Covered SET e 1"]);
    assert_eq!(bench.upstream.asked.len(), 1, "something of it is under way in the shared session");
    bench.upstream.answers(FIRST, b"+OK\r\n");
    bench.turn();
    let own = SessionHandle::numbered(2);
    bench.upstream.opens(own, 99);
    bench.turn();
    let sent = bench.upstream.take_sent();
    assert_eq!(
        sent,
        [
            "Read Covered WATCH a",
            "Update Covered SET b 1, SET b 2",
            "Bypass Covered SET c 1, SET c 2",
            "Update Covered SET d 1"
        ],
        "the third is the transaction"
    );
    bench.says(OTHER, b"SET f 1\r\n");
    let of = |bench: &Bench, session| bench.upstream.under_way[&session].len();
    assert_eq!((of(&bench, FIRST), of(&bench, own)), (2, 4), "the others stay where they were");
    bench.fronts.close(KEY);
    bench.turn();
    assert_eq!(of(&bench, own), 5, "what the server keeps for it is let go where it is kept");
}

/// A session of one's own that is idle serves the next connection that needs one.
#[test]
fn a_command_that_waits_for_storage_is_sent_where_nobody_waits_for_it() {
    let mut bench = Bench::packing(99, |config| config.idle_sessions_max = 1);
    let own = SessionHandle::numbered(2);
    bench.upstream.opens(own, 99);
    bench.says(KEY, b"SPOP s\r\nSET a 1\r\n");
    bench.turn();
    assert_eq!(bench.upstream.under_way[&own].len(), 2);
    bench.open(OTHER);
    bench.says(OTHER, b"SET b 1\r\n");
    assert_eq!(bench.upstream.under_way[&FIRST].len(), 1);
    bench.upstream.answers(own, b"$-1\r\n");
    bench.upstream.answers(own, b"+OK\r\n");
    bench.upstream.answers(FIRST, b"+OK\r\n");
    bench.turn();
    assert_eq!(bench.read(KEY), "$-1\r\n+OK\r\n");
    bench.fronts.close(KEY);
    bench.says(OTHER, b"SPOP s\r\n");
    assert_eq!((bench.upstream.asked.len(), bench.upstream.under_way[&own].len()), (2, 1));
}

#[test]
fn a_command_that_needs_a_session_where_none_is_left_is_refused_alone() {
    let mut bench = Bench::packing(99, |_| ());
    bench.open(OTHER);
    bench.upstream.sessions_max = 1;
    bench.says(KEY, b"SPOP s\r\n");
    bench.says(OTHER, b"SET b 1\r\n");
    let said = bench.read(KEY);
    assert!(
        said.starts_with("-ERR scotfree: the command needs a session of its own, and 1 sessions"),
        "{said}"
    );
    assert_eq!(bench.upstream.take_sent(), ["Update Covered SET b 1"]);
    assert_eq!(bench.fronts.wish(KEY), Wish::Close);
}

#[test]
fn a_pack_fills_a_packet_and_no_more() {
    let mut bench = Bench::packing(99, |_| ());
    let set = [&b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$100\r\n"[..], &[b'v'; 100], b"\r\n"].concat();
    bench.says(KEY, &set.repeat(16));
    let sizes: Vec<usize> = bench.upstream.sent.iter().map(|sent| sent.payload.len()).collect();
    assert_eq!(sizes.len(), 2, "{sizes:?}");
    assert!(sizes.iter().all(|size| *size <= PAYLOAD_BYTES_MAX), "{sizes:?}");
    assert!(sizes[0] + set.len() + 10 > PAYLOAD_BYTES_MAX, "one more would have no room: {sizes:?}");
}

#[test]
fn an_acknowledged_pack_answers_all_its_early_commands_and_no_covered_one() {
    let mut bench =
        Bench::packing(9, |config| config.listeners[0].early = EarlyRule::Prefixes(vec![b"e".to_vec()]));
    bench.says(KEY, b"SET e1 1\r\nSET e2 1\r\nSET c 1\r\nSET e3 1\r\n");
    let sent = bench.upstream.take_sent();
    assert_eq!(sent, ["Update Early SET e1 1, SET e2 1", "Update Covered SET c 1", "Update Early SET e3 1"]);
    bench.upstream.events.push_back(Happens::Completed(FIRST, None));
    bench.turn();
    assert_eq!(bench.read(KEY), "+OK\r\n+OK\r\n");
    bench.upstream.answers(FIRST, b"+OK\r\n");
    bench.upstream.events.push_back(Happens::Completed(FIRST, None));
    bench.turn();
    assert_eq!(bench.read(KEY), "+OK\r\n+OK\r\n");
}

#[test]
fn a_pack_waits_for_credit_whole_and_what_ends_its_session_ends_all_its_commands() {
    let mut bench = Bench::packing(1, |_| ());
    bench.says(KEY, b"SET a 1\r\nSET b 2\r\n");
    bench.says(KEY, b"SET c 3\r\n");
    assert_eq!(bench.upstream.take_sent(), ["Update Covered SET a 1, SET b 2"]);
    bench.says(KEY, b"SET d 4\r\n");
    bench.upstream.credit.insert(FIRST, 1);
    bench.turn();
    assert_eq!(
        bench.upstream.take_sent(),
        ["Update Covered SET c 3, SET d 4"],
        "what came meanwhile goes along"
    );
    bench.upstream.events.push_back(Happens::Closed(FIRST, ClosedReason::Unreachable));
    bench.turn();
    let said = bench.read(KEY);
    assert!(said.contains("the outcome is unknown") && said.matches("-ERR").count() == 1, "{said}");
}

#[test]
fn an_answer_with_fewer_replies_than_commands_ends_the_connection() {
    let mut bench = Bench::packing(9, |_| ());
    bench.says(KEY, b"SET a 1\r\nSET b 2\r\n");
    bench.upstream.answers_parts(FIRST, &[b"+OK\r\n"]);
    bench.turn();
    let said = bench.read(KEY);
    assert!(said.starts_with("-ERR scotfree: the server's sidecar answered 2 commands wrongly"), "{said}");
    assert_eq!(bench.fronts.wish(KEY), Wish::Close);
}

#[test]
fn what_is_said_to_a_whole_pack_is_said_to_each_of_its_commands() {
    let mut bench = Bench::packing(9, |_| ());
    bench.says(KEY, b"SET a 1\r\nSET b 2\r\n");
    bench.upstream.answers(FIRST, b"-ERR all\r\n");
    bench.turn();
    assert_eq!(bench.read(KEY), "-ERR all\r\n-ERR all\r\n");
}

#[test]
fn connections_share_a_session_and_requests_and_each_gets_its_own_replies() {
    let mut bench = Bench::packing(9, |_| ());
    bench.open(OTHER);
    assert_eq!(bench.upstream.asked.len(), 1, "there is room in the first session");
    bench.hears(KEY, b"SET a 1\r\nGET a\r\n");
    bench.hears(OTHER, b"SET b 1\r\nSET c 1\r\n");
    bench.turn();
    assert_eq!(
        bench.upstream.take_sent(),
        ["Update Covered SET a 1, SET b 1, SET c 1", "Read Covered GET a"]
    );
    let replies: &[&[u8]] = &[b"+OK\r\n", b"-ERR b\r\n", b"-ERR c\r\n"];
    bench.upstream.answers_parts(FIRST, replies);
    bench.upstream.answers(FIRST, b"$1\r\n1\r\n");
    bench.turn();
    assert_eq!(bench.read(KEY), "+OK\r\n$1\r\n1\r\n");
    assert_eq!(bench.read(OTHER), "-ERR b\r\n-ERR c\r\n");
}

#[test]
fn what_comes_while_departures_are_under_way_makes_the_next_one_larger() {
    let mut bench = Bench::packing(99, |_| ());
    bench.open(OTHER);
    for count in 1..=4 {
        bench.says(KEY, b"SET a 1\r\n");
        assert_eq!(bench.upstream.take_sent().len(), 1, "{count} departures may be under way");
    }
    bench.says(KEY, b"SET a 3\r\n");
    bench.says(OTHER, b"SET b 1\r\n");
    bench.says(KEY, b"GET a\r\n");
    assert!(bench.upstream.take_sent().is_empty(), "and no more");
    assert_eq!(bench.fronts.wish(KEY), Wish::Wait { to_read: false, to_write: false });
    bench.upstream.answers(FIRST, b"+OK\r\n");
    bench.turn();
    let sent = bench.upstream.take_sent();
    assert_eq!(sent, ["Update Covered SET b 1, SET a 3", "Read Covered GET a"], "who has led is last");
    assert_eq!(bench.read(KEY), "+OK\r\n");
    assert_eq!(bench.fronts.wish(KEY), Wish::Wait { to_read: true, to_write: false }, "it is read again");
    for _ in 0..3 {
        bench.upstream.answers(FIRST, b"+OK\r\n");
    }
    bench.turn();
    for line in [b"SET b 2\r\n", b"SET b 3\r\n", b"SET b 4\r\n"] {
        bench.says(OTHER, line);
        assert_eq!(bench.upstream.take_sent().len(), 1);
    }
    bench.upstream.answers_parts(FIRST, &[b"+OK\r\n", b"+OK\r\n"]);
    bench.turn();
    bench.says(OTHER, b"SET b 5\r\n");
    assert!(bench.upstream.take_sent().is_empty(), "a departure is back when all of it is");
    bench.upstream.answers(FIRST, b"$1\r\n3\r\n");
    bench.turn();
    assert_eq!(bench.upstream.take_sent(), ["Update Covered SET b 5"]);
}

#[test]
fn who_sends_much_holds_nobody_up() {
    let mut bench = Bench::packing(2, |_| ());
    bench.open(OTHER);
    let set = [&b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$100\r\n"[..], &[b'v'; 100], b"\r\n"].concat();
    bench.hears(KEY, &set.repeat(100));
    bench.hears(OTHER, b"GET a\r\nSET b 1\r\n");
    bench.turn();
    let sent = bench.upstream.take_sent();
    assert!(sent[0].starts_with("Update Covered SET key vvv") && sent[1] == "Read Covered GET a", "{sent:?}");
    bench.upstream.answers_parts(FIRST, &[&b"+OK\r\n"[..]; 10]);
    bench.upstream.credit.insert(FIRST, 2);
    bench.turn();
    let sent = bench.upstream.take_sent();
    assert!(sent[0].ends_with("SET b 1") || sent[1].ends_with("SET b 1"), "{sent:?}");
}

#[test]
fn what_was_taken_from_a_connection_that_is_gone_is_done_and_answered_to_nobody() {
    let mut bench = Bench::packing(9, |_| ());
    bench.open(OTHER);
    bench.hears(KEY, b"SET a 1\r\n");
    bench.hears(OTHER, b"INCR n\r\n");
    bench.turn();
    bench.fronts.close(KEY);
    bench.upstream.answers_parts(FIRST, &[b"+OK\r\n", b":1\r\n"]);
    bench.turn();
    // The second lets the server's sidecar forget what it may keep of a reply that nobody takes.
    assert_eq!(bench.upstream.take_sent(), ["Update Covered SET a 1, INCR n", "Read Covered "]);
    assert_eq!(bench.read(OTHER), ":1\r\n");
    // What was not taken is not sent any more.
    bench.open(KEY);
    bench.hears(KEY, b"SET a 2\r\n");
    bench.fronts.close(KEY);
    bench.turn();
    assert_eq!(bench.upstream.take_sent(), ["Read Covered "]);
    assert!(bench.upstream.ended.is_empty());
}

#[test]
fn the_end_of_a_session_is_that_of_its_connections_alone() {
    let mut bench = Bench::packing(9, |config| config.connections_per_session = 2);
    let third = ConnectionKey(72);
    bench.open(OTHER);
    bench.open(third);
    assert_eq!(bench.upstream.asked.len(), 2, "the first session has its connections");
    bench.upstream.opens(SessionHandle::numbered(2), 9);
    bench.says(KEY, b"SET a 1\r\n");
    bench.says(third, b"SET c 1\r\n");
    bench.upstream.events.push_back(Happens::Closed(FIRST, ClosedReason::Unreachable));
    bench.turn();
    let said = [KEY, OTHER, third].map(|key| (bench.read(key), bench.fronts.wish(key)));
    assert!(said[0].0.contains("the outcome is unknown") && said[0].1 == Wish::Close, "{said:?}");
    assert!(said[1].0.is_empty() && said[1].1 == Wish::Close, "{said:?}");
    assert_eq!(said[2].1, Wish::Wait { to_read: true, to_write: false });
    bench.turn();
    assert_eq!(bench.upstream.take_sent().len(), 2, "the third one's was sent");
    bench.open(ConnectionKey(73));
    assert_eq!(bench.upstream.asked.len(), 2, "the session that is left has room");
    bench.open(ConnectionKey(74));
    assert_eq!(bench.upstream.asked.len(), 3);
}

#[test]
fn an_early_answer_waits_for_no_other_connection() {
    let mut bench = Bench::packing(99, |config| config.listeners[0].early = EarlyRule::Always);
    bench.open(OTHER);
    assert_eq!(bench.upstream.asked.len(), 1, "they share a session");
    for _ in 0..9 {
        bench.says(KEY, b"INCR slow\r\nINCR slow\r\n");
    }
    assert_eq!(bench.upstream.take_sent().len(), 4, "as many departures as may be under way");
    bench.says(OTHER, b"SET a 1\r\n");
    assert_eq!(bench.upstream.take_sent(), ["Update Early SET a 1"], "early ones are counted apart");
    bench.upstream.events.push_back(Happens::Completed(FIRST, None));
    bench.turn();
    assert_eq!((bench.read(KEY), bench.read(OTHER)), (String::new(), "+OK\r\n".to_owned()));
    assert!(bench.upstream.take_sent().is_empty(), "who waits for another kind is not let go by it");
}

#[test]
fn sessions_of_another_key_take_no_more_connections() {
    let mut bench = Bench::packing(9, |_| ());
    let secrets = vec![(KeyEpoch(0), [1; 32]), (KeyEpoch(1), [2; 32])];
    bench.fronts.key.set(scotfree_wire::ClusterKey::from_epochs(secrets).expect("two secrets"));
    bench.open(OTHER);
    assert_eq!(bench.upstream.asked.len(), 2);
}

#[test]
fn behind_sessions_max_the_sessions_have_more_connections() {
    let mut bench =
        Bench::packing(9, |config| (config.sessions_max, config.connections_per_session) = (2, 1));
    for key in 80..90 {
        bench.open(ConnectionKey(key));
    }
    assert_eq!(bench.upstream.asked.len(), 2);
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
    let asked = bench.fronts.next_tunnel();
    let Some(TunnelAsked::Begin(tunnel)) = &asked else { panic!("{asked:?}") };
    assert_eq!((tunnel.key, tunnel.setup_replies, tunnel.is_whole), (KEY, 2, false));
    assert!(tunnel.bytes.starts_with(b"*2\r\n$9\r\nSUBSCRIBE"));
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

#[test]
fn of_whoever_reads_much_few_reads_are_under_way_and_none_while_it_takes_no_replies() {
    let alone = |config: &mut ClientSidecarConfig| {
        config.pacing = Pacing { packs: false, departures_max: usize::MAX, reads_max: usize::MAX };
    };
    let mut bench = Bench::packing(10_000, alone);
    bench.says(KEY, &b"GET k\r\n".repeat(500));
    let first = bench.upstream.take_sent().len();
    assert_eq!(first, REPLIES_BYTES_MAX / REPLY_BYTES_UNKNOWN);
    // Small replies: more at once, and not all.
    let (mut under_way, mut most) = (first, first);
    while under_way > 0 {
        bench.upstream.answers(FIRST, b"+x\r\n");
        bench.turn();
        under_way = under_way - 1 + bench.upstream.take_sent().len();
        most = most.max(under_way);
    }
    assert_eq!((most, bench.read(KEY).len()), (READS_AT_ONCE_MAX, 500 * 4));
    // Large ones: few at once, and none behind as many bytes as may wait for the client.
    let large = [b"$1000000\r\n".as_slice(), &vec![b'x'; 1_000_000], b"\r\n"].concat();
    bench.says(KEY, &b"GET k\r\n".repeat(500));
    under_way = bench.upstream.take_sent().len();
    let mut answered = 0;
    while under_way > 0 {
        bench.upstream.answers(FIRST, &large);
        answered += 1;
        bench.turn();
        under_way = under_way - 1 + bench.upstream.take_sent().len();
    }
    assert_eq!(answered, READS_AT_ONCE_MAX, "more was asked for than was under way already");
    bench.read(KEY);
    bench.turn();
    let more = bench.upstream.take_sent().len();
    assert!((1..=4).contains(&more), "{more} large reads at once");
}

#[test]
fn of_whoever_is_answered_at_length_few_writes_are_under_way_and_else_as_many_as_may_wait() {
    let alone = |config: &mut ClientSidecarConfig| {
        config.pacing = Pacing { packs: false, departures_max: usize::MAX, reads_max: usize::MAX };
    };
    let mut bench = Bench::packing(10_000, alone);
    let all = FrontConfig::default().pending_max;
    bench.says(KEY, &b"INCR n\r\n".repeat(all));
    assert_eq!(bench.upstream.take_sent().len(), all, "nobody counts what is answered with numbers");
    (0..all).for_each(|_| bench.upstream.answers(FIRST, b":1\r\n"));
    bench.turn();
    bench.read(KEY);
    // Nothing is known of these; when they prove small, nobody waits any more.
    bench.says(KEY, &b"GETEX k PERSIST\r\n".repeat(all));
    let mut under_way = bench.upstream.take_sent().len();
    assert_eq!(under_way, REPLIES_BYTES_MAX / REPLY_BYTES_UNKNOWN);
    while under_way > 0 {
        bench.upstream.answers(FIRST, b"+x\r\n");
        bench.turn();
        under_way = under_way - 1 + bench.upstream.take_sent().len();
    }
    bench.read(KEY);
    bench.says(KEY, &b"GETEX k PERSIST\r\n".repeat(all));
    assert_eq!(bench.upstream.take_sent().len(), all);
    // When they prove large, few are asked for at once, and none behind as many bytes as may wait for the client.
    let large = [b"$1000000\r\n".as_slice(), &vec![b'x'; 1_000_000], b"\r\n"].concat();
    (0..all - 1).for_each(|_| bench.upstream.answers(FIRST, b"+x\r\n"));
    bench.upstream.answers(FIRST, &large);
    bench.turn();
    bench.read(KEY);
    bench.says(KEY, &b"GETEX k PERSIST\r\n".repeat(500));
    let under_way = bench.upstream.take_sent().len();
    assert!((1..=4).contains(&under_way), "{under_way} at once");
    let mut answered = 0;
    while answered < 500 && bench.upstream.under_way.values().any(|requests| !requests.is_empty()) {
        bench.upstream.answers(FIRST, &large);
        answered += 1;
        bench.turn();
    }
    assert!(answered <= 8, "{answered} although nobody reads");
}

#[test]
fn large_replies_of_writes_wait_for_each_other_and_reads_for_none_of_them() {
    let mut bench = Bench::packing(10_000, |config| {
        config.pacing = Pacing { packs: false, departures_max: usize::MAX, reads_max: usize::MAX };
    });
    let writers: Vec<ConnectionKey> = (80..90).map(ConnectionKey).collect();
    for key in &writers {
        bench.open(*key);
        bench.says(*key, b"GETDEL k\r\n");
    }
    let first_ones = bench.upstream.take_sent().len();
    assert_eq!(first_ones, 4, "what is not known yet is taken for large");
    bench.says(KEY, b"GET s\r\n");
    assert_eq!(bench.upstream.take_sent(), ["Read Covered GET s"]);
    // Whoever is gone is owed nothing more, and nobody waits for it.
    for key in &writers {
        bench.fronts.close(*key);
    }
    (0..first_ones).for_each(|_| bench.upstream.answers(FIRST, b"+x\r\n"));
    bench.turn();
    bench.says(KEY, b"GETDEL k\r\n");
    let sent = bench.upstream.take_sent();
    assert!(sent.contains(&"Update Covered GETDEL k".to_owned()), "{sent:?}");
    assert_eq!(sent.iter().filter(|command| command.contains("GETDEL")).count(), 1, "{sent:?}");
}

#[test]
fn who_asks_for_little_goes_past_large_reads_and_those_go_in_turn() {
    let mut bench = Bench::packing(10_000, |config| {
        config.pacing = Pacing { packs: false, departures_max: usize::MAX, reads_max: usize::MAX };
    });
    bench.says(KEY, b"GET s\r\n");
    bench.upstream.answers(FIRST, b"+x\r\n");
    bench.turn();
    let clients: Vec<ConnectionKey> = (80..90).map(ConnectionKey).collect();
    let ask =
        |bench: &mut Bench, key: ConnectionKey| bench.says(key, format!("GET {}\r\n", key.0).as_bytes());
    for key in &clients {
        bench.open(*key);
        ask(&mut bench, *key);
    }
    let sent = bench.upstream.take_sent().len();
    assert_eq!(sent, 1 + 8, "what is not known yet is taken for large");
    let large = [b"$9000000\r\n".as_slice(), &vec![b'x'; 9_000_000], b"\r\n"].concat();
    (0..8).for_each(|_| bench.upstream.answers(FIRST, &large));
    bench.turn();
    assert_eq!(bench.upstream.take_sent(), ["Read Covered GET 88", "Read Covered GET 89"]);
    for key in &clients {
        bench.read(*key);
    }
    for key in clients.iter().take(4).rev() {
        ask(&mut bench, *key);
    }
    assert_eq!(
        bench.upstream.take_sent(),
        ["Read Covered GET 83", "Read Covered GET 82"],
        "no third one fits"
    );
    bench.says(KEY, b"GET s\r\n");
    assert_eq!(bench.upstream.take_sent(), ["Read Covered GET s"]);
    (0..2).for_each(|_| bench.upstream.answers(FIRST, &large));
    bench.turn();
    assert!(bench.upstream.take_sent().is_empty(), "those that were answered had read nothing before");
    bench.open(OTHER);
    bench.says(OTHER, b"GET s\r\n");
    assert_eq!(bench.upstream.take_sent(), ["Read Covered GET s"], "one that is new waits for such only");
    // Whoever is gone is passed over.
    bench.fronts.close(ConnectionKey(81));
    bench.upstream.answers(FIRST, &large);
    bench.turn();
    let sent = bench.upstream.take_sent();
    assert!(sent.contains(&"Read Covered GET 80".to_owned()), "{sent:?}");
}

#[test]
fn a_large_reply_counts_until_its_last_part_has_come_or_nobody_wants_it() {
    let mut bench = Bench::packing(10_000, |config| {
        config.pacing = Pacing { packs: false, departures_max: usize::MAX, reads_max: usize::MAX };
    });
    bench.open(OTHER);
    let begun = || {
        let mut payload = Vec::new();
        write_part(&mut payload, ResponseFlags::NONE, 9, &vec![b'x'; large::LARGE_BYTES_MAX]);
        Happens::Completed(FIRST, Some(payload))
    };
    bench.says(KEY, b"GET a\r\n");
    bench.upstream.take_sent();
    bench.upstream.events.push_back(begun());
    bench.turn();
    assert_eq!(bench.upstream.take_fetched(), [9]);
    bench.says(OTHER, b"GET b\r\n");
    assert!(bench.upstream.take_sent().is_empty(), "it may be as large");
    bench.upstream.answers(FIRST, b"x\r\n");
    bench.turn();
    assert_eq!(bench.upstream.take_sent(), ["Read Covered GET b"]);
    bench.upstream.events.push_back(begun());
    bench.turn();
    bench.upstream.take_fetched();
    let third = ConnectionKey(72);
    bench.open(third);
    bench.says(third, b"GET c\r\n");
    assert!(bench.upstream.take_sent().is_empty());
    bench.fronts.close(OTHER);
    bench.turn();
    let sent = bench.upstream.take_sent();
    assert!(sent.contains(&"Read Covered GET c".to_owned()), "{sent:?}");
}

#[test]
fn the_rest_of_a_large_reply_goes_first_and_no_read_before_it_has_come() {
    let mut bench = Bench::packing(10_000, |_| ());
    bench.says(KEY, b"GET a\r\nGET b\r\nGET c\r\nSET d 1\r\n");
    assert_eq!(
        bench.upstream.take_sent(),
        ["Read Covered GET a, GET b"],
        "nothing is known of its replies yet"
    );
    let mut payload = Vec::new();
    write_pack_response(&mut payload, ResponseFlags::NONE);
    for (name, part) in [(8, b"$9\r\n1234".as_slice()), (9, b"")] {
        write_response_part(&mut payload, |out| write_part(out, ResponseFlags::NONE, name, part));
    }
    bench.upstream.events.push_back(Happens::Completed(FIRST, Some(payload)));
    bench.turn();
    let fetching = bench.upstream.take_fetched();
    assert_eq!(fetching, [9, 8]);
    for last in [b"$-1\r\n".as_slice(), b"56789\r\n"] {
        assert!(bench.upstream.take_sent().is_empty(), "the next read would come upon them");
        bench.upstream.answers(FIRST, last);
        bench.turn();
    }
    assert_eq!(bench.read(KEY), "$9\r\n123456789\r\n$-1\r\n");
    assert_eq!(bench.upstream.take_sent(), ["Read Covered GET c", "Update Covered SET d 1"]);
}
