//! One client, one device, one server on a perfect network: what each message does when nothing
//! goes wrong, and what a restart of each role does. Faults by the thousand are the simulator's.

use remedy_persist::PersistConfig;
use remedy_toy::Toy;
use scotfree_core::{
    BootEpoch, DeviceId, Effect, Effects, Epoch, KeyHash, Machine, Nanos, SeqNum, ServerIndex, SessionId,
    Token,
};
use scotfree_device::{carry_out, Completion, DeviceConfig, Function, Pipeline, Round, Shell};
use scotfree_session::{
    Client, ClientConfig, ClientOwn, ClosedReason, CompletedBy, Fault, Mode, Planted, RecoveredSession,
    Request, RequestKind, Server, ServerConfig, ServerOwn, SubmitError,
};
use scotfree_wire::{Answerer, CloseReason, ClusterKey, Family, ResponseTail};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

const CLIENT: &str = "10.0.0.1:51001";
const SERVER: &str = "10.0.0.2:51000";
const DEVICE: &str = "10.0.0.254:51000";

struct Bench {
    now: Nanos,
    client: Client,
    device: Option<Pipeline>,
    server: Option<Server>,
    client_effects: Effects<ClientOwn>,
    device_round: Round,
    server_effects: Effects<ServerOwn>,
    /// Messages between device and the sides: (from, to, bytes, towards the server).
    wire: VecDeque<(SocketAddr, SocketAddr, Vec<u8>, bool)>,
    done: Vec<(SeqNum, CompletedBy, Option<Vec<u8>>)>,
    closed: Option<ClosedReason>,
    /// The device's log.
    ram: BTreeMap<Token, Vec<u8>>,
    /// What the application has executed, and the sessions in storage.
    applied: Vec<(SessionId, SeqNum, Vec<u8>)>,
    sessions: BTreeMap<SessionId, RecoveredSession>,
    ticket_applied: u64,
    dead_letters: Vec<(SessionId, SeqNum)>,
    /// Whether storage reports stability at once.
    stable_at_once: bool,
    to_server_lost: bool,
}

fn key() -> ClusterKey {
    ClusterKey::from_bytes([7; 32])
}

fn server(epoch: u32, recovered: &[RecoveredSession]) -> Server {
    let devices = vec![(DeviceId(1), address(DEVICE))];
    Server::new(
        ServerConfig::new(address(SERVER), key(), Epoch(epoch), [epoch as u8; 16], devices),
        recovered,
    )
}

/// A device with the toy before persist.
fn device_with_toy(planted: Planted) -> Pipeline {
    device_with_room(planted, 1 << 20)
}

fn device_with_room(planted: Planted, answers_bytes_max: usize) -> Pipeline {
    let mut config = DeviceConfig::new(DeviceId(1), BootEpoch(1), address(DEVICE), address(SERVER), key());
    (config.planted, config.answers_bytes_max) = (planted, answers_bytes_max);
    let persist = remedy_persist::Persist::new(PersistConfig::default());
    let functions: Vec<Box<dyn Function>> = vec![Box::new(Toy::new(b"toy", planted)), Box::new(persist)];
    Pipeline::new(config, functions).expect("the list is in order")
}

fn device(boot: u32) -> Pipeline {
    let mut config = DeviceConfig::new(DeviceId(1), BootEpoch(boot), address(DEVICE), address(SERVER), key());
    config.sessions_max = 4;
    remedy_persist::device(config, PersistConfig::default())
}

fn client(nonce: u8) -> Client {
    Client::new(ClientConfig::new(address(CLIENT), address(SERVER), key(), [nonce; 16], 1))
}

impl Bench {
    fn new() -> Bench {
        let mut bench = Bench {
            now: Nanos::from_secs(1),
            client: client(1),
            device: Some(device(1)),
            server: Some(server(1, &[])),
            client_effects: Effects::new(),
            device_round: Round::default(),
            server_effects: Effects::new(),
            wire: VecDeque::new(),
            done: Vec::new(),
            closed: None,
            ram: BTreeMap::new(),
            applied: Vec::new(),
            sessions: BTreeMap::new(),
            ticket_applied: 0,
            dead_letters: Vec::new(),
            stable_at_once: true,
            to_server_lost: false,
        };
        bench.server.as_mut().expect("just made").start(bench.now, &mut bench.server_effects);
        bench.run(Nanos::from_secs(1));
        bench
    }

    fn open() -> Bench {
        Bench::open_with(device(1))
    }

    fn open_with(device: Pipeline) -> Bench {
        let mut bench = Bench::new();
        bench.device = Some(device);
        bench.run(Nanos::from_secs(1));
        bench.client.open(bench.now, &mut bench.client_effects);
        bench.run(Nanos::from_millis(100));
        assert!(bench.client.is_open());
        bench
    }

    fn submit(&mut self, kind: RequestKind, mode: Mode, payload: &[u8]) -> SeqNum {
        self.submit_to(KeyHash(1), kind, mode, payload)
    }

    fn submit_to(&mut self, key_hash: KeyHash, kind: RequestKind, mode: Mode, payload: &[u8]) -> SeqNum {
        let request =
            Request { kind, mode, fixed_reply: false, relaxed: false, traced: false, key_hash, payload };
        self.client.submit(self.now, request, &mut self.client_effects).expect("the window is open")
    }

    /// Runs for `span`, or until nothing is left to do before its end.
    fn run(&mut self, span: Nanos) {
        let end = self.now.plus(span);
        loop {
            self.settle();
            let timers = [
                self.client.next_timer(),
                self.device.as_ref().and_then(Machine::next_timer),
                self.server.as_ref().and_then(Machine::next_timer),
            ];
            let Some(next) = timers.into_iter().flatten().min().filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            self.client.on_timer(self.now, &mut self.client_effects);
            if let Some(device) = &mut self.device {
                device.on_timer(self.now, &mut self.device_round.effects);
            }
            if let Some(server) = &mut self.server {
                server.on_timer(self.now, &mut self.server_effects);
            }
        }
        self.now = end;
    }

    fn settle(&mut self) {
        loop {
            self.drain_client();
            self.drain_device(None);
            self.drain_server();
            let Some((from, to, bytes, up)) = self.wire.pop_front() else { return };
            self.deliver(from, to, &bytes, up);
        }
    }

    fn deliver(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8], up: bool) {
        let Some(device) = &mut self.device else { return };
        device.on_message(self.now, from, to, bytes, &mut self.device_round.effects);
        self.drain_device(Some((from, to, up)));
    }

    fn arrive(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        if to == address(CLIENT) {
            self.client.on_message(self.now, from, to, bytes, &mut self.client_effects);
        } else if to == address(SERVER) && !self.to_server_lost {
            if let Some(server) = &mut self.server {
                server.on_message(self.now, from, to, bytes, &mut self.server_effects);
            }
        }
    }

    fn drain_client(&mut self) {
        for effect in self.client_effects.iter() {
            match effect {
                Effect::Send { from, to, bytes } => {
                    self.wire.push_back((*from, *to, self.client_effects.bytes(*bytes).to_vec(), true));
                }
                Effect::Own(ClientOwn::Complete(done)) => {
                    let reply = done.reply.map(|range| self.client_effects.bytes(range).to_vec());
                    self.done.push((done.seq, done.answered_by, reply));
                }
                Effect::Own(ClientOwn::Closed { reason }) => self.closed = Some(*reason),
                _ => {}
            }
        }
        self.client_effects.clear();
    }

    fn drain_device(&mut self, current: Option<(SocketAddr, SocketAddr, bool)>) {
        if self.device.is_none() {
            return;
        }
        let (now, mut round) = (self.now, std::mem::take(&mut self.device_round));
        carry_out(now, &mut round, &mut Surroundings { bench: self, current });
        self.device_round = round;
    }

    fn drain_server(&mut self) {
        loop {
            let mut executed = Vec::new();
            let mut recorded = Vec::new();
            let mut deleted = Vec::new();
            for effect in self.server_effects.iter() {
                match effect {
                    Effect::Send { from, to, bytes } => {
                        self.wire.push_back((*from, *to, self.server_effects.bytes(*bytes).to_vec(), false));
                    }
                    Effect::Own(ServerOwn::Execute { ticket, session, seq, kind, payload, .. }) => {
                        let payload = self.server_effects.bytes(*payload).to_vec();
                        if kind.writes() {
                            self.applied.push((*session, *seq, payload));
                            self.sessions.get_mut(session).expect("recorded").position = *seq;
                        }
                        executed.push(*ticket);
                    }
                    Effect::Own(ServerOwn::RecordSession { record }) => {
                        self.sessions.insert(record.session, *record);
                        recorded.push(record.session);
                    }
                    Effect::Own(ServerOwn::DeleteSession { session }) => {
                        self.sessions.remove(session);
                        deleted.push(*session);
                    }
                    Effect::Own(ServerOwn::DeadLetter { session, seq, .. }) => {
                        self.dead_letters.push((*session, *seq));
                    }
                    Effect::Persist { .. } | Effect::Erase { .. } => {}
                }
            }
            self.server_effects.clear();
            if executed.is_empty() && recorded.is_empty() && deleted.is_empty() {
                return;
            }
            let Some(server) = &mut self.server else { return };
            for session in recorded {
                server.on_session_recorded(self.now, session, &mut self.server_effects);
            }
            for session in deleted {
                server.on_session_deleted(self.now, session, &mut self.server_effects);
            }
            for ticket in executed {
                let reply = format!("r{ticket}");
                let times = ResponseTail::default();
                server.on_executed(
                    self.now,
                    ticket,
                    reply.as_bytes(),
                    false,
                    times,
                    &mut self.server_effects,
                );
                self.ticket_applied = ticket;
            }
            if self.stable_at_once {
                server.on_persisted(self.now, Token(self.ticket_applied), &mut self.server_effects);
            }
        }
    }

    /// The server dies and comes back with what `applied` and `sessions` hold.
    fn restart_server(&mut self, epoch: u32) {
        let recovered: Vec<_> = self.sessions.values().copied().collect();
        let mut server = server(epoch, &recovered);
        server.start(self.now, &mut self.server_effects);
        self.ticket_applied = 0;
        self.server = Some(server);
    }

    fn restart_device(&mut self, boot: u32) {
        let mut device = device(boot);
        for (token, record) in &self.ram {
            device.restore(self.now, *token, record).expect("a record of our own");
        }
        self.device = Some(device);
    }

    fn applied_seqs(&self) -> Vec<u64> {
        self.applied.iter().map(|(_, seq, _)| seq.0).collect()
    }
}

/// What surrounds the device: a memory that keeps everything at once.
struct Surroundings<'b> {
    bench: &'b mut Bench,
    current: Option<(SocketAddr, SocketAddr, bool)>,
}

impl Shell for Surroundings<'_> {
    fn pipeline(&mut self) -> &mut Pipeline {
        self.bench.device.as_mut().expect("it was there when it wished")
    }

    fn send(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        self.bench.arrive(from, to, bytes);
    }

    fn forward(&mut self, bytes: &[u8]) {
        let (from, to, _) = self.current.expect("only a message is forwarded");
        self.bench.arrive(from, to, bytes);
    }

    fn persist(&mut self, token: Token, record: &[u8]) -> Completion {
        self.bench.ram.insert(token, record.to_vec());
        Completion::Done
    }

    fn erase(&mut self, token: Token) {
        self.bench.ram.remove(&token);
    }

    fn set_meta(&mut self, _boot_epoch: BootEpoch, _server: ServerIndex, _server_epoch: Epoch) {}

    fn flush_erasures(&mut self, _token: Token) -> Completion {
        Completion::Done
    }
}

#[test]
fn an_early_update_is_completed_by_the_device() {
    let mut bench = Bench::open();
    bench.to_server_lost = true;
    let seq = bench.submit(RequestKind::Update, Mode::Early, b"set");
    bench.settle();
    assert_eq!(bench.done, [(seq, CompletedBy::Device(DeviceId(1)), None)]);
    assert_eq!(bench.device.as_ref().expect("there").unsafe_now().entries, 1);
    bench.to_server_lost = false;
    bench.run(Nanos::from_secs(2));
    assert_eq!(bench.applied_seqs(), [1]);
    assert_eq!(bench.device.as_ref().expect("there").unsafe_now().entries, 0);
    assert_eq!(bench.client.kept(), 0);
}

#[test]
fn a_covered_update_waits_for_log_and_response() {
    let mut bench = Bench::open();
    let seq = bench.submit(RequestKind::Update, Mode::Covered, b"incr");
    bench.run(Nanos::from_millis(10));
    assert_eq!(bench.done, [(seq, CompletedBy::Server, Some(b"r1".to_vec()))]);
}

#[test]
fn a_bypass_write_is_answered_when_it_is_stable() {
    let mut bench = Bench::open();
    bench.stable_at_once = false;
    bench.submit(RequestKind::Bypass, Mode::Covered, b"spop");
    bench.submit(RequestKind::Update, Mode::Covered, b"incr");
    bench.run(Nanos::from_millis(10));
    assert_eq!(bench.done, []);
    assert!(bench.server.as_ref().expect("there").wants_stable());
    let ticket = bench.ticket_applied;
    let server = bench.server.as_mut().expect("there");
    server.on_persisted(bench.now, Token(ticket), &mut bench.server_effects);
    bench.run(Nanos::from_millis(10));
    assert_eq!(bench.done.len(), 2);
}

#[test]
fn a_large_update_is_logged_whole_and_applied_once() {
    let mut bench = Bench::open();
    let large = vec![b'x'; 10_000];
    bench.submit(RequestKind::Update, Mode::Covered, &large);
    bench.run(Nanos::from_millis(100));
    assert_eq!(bench.done.len(), 1);
    assert_eq!(bench.applied.len(), 1);
    assert_eq!(bench.applied[0].2, large);
    let counters = remedy_persist::counters(bench.device.as_ref().expect("there"));
    assert_eq!((counters.logged, counters.persist_acks), (1, 1));
}

#[test]
fn a_restarted_server_replays_what_it_had_not_applied() {
    let mut bench = Bench::open();
    bench.submit(RequestKind::Update, Mode::Early, b"a");
    bench.run(Nanos::from_millis(10));
    bench.server = None;
    for payload in [b"b", b"c"] {
        bench.submit(RequestKind::Update, Mode::Early, payload);
    }
    bench.submit(RequestKind::Read, Mode::Covered, b"get");
    bench.run(Nanos::from_millis(10));
    assert_eq!(bench.done.len(), 3, "the read waits for a server");
    bench.restart_server(2);
    bench.run(Nanos::from_secs(3));
    assert_eq!(bench.applied_seqs(), [1, 2, 3]);
    assert_eq!(bench.done.len(), 4);
    assert_eq!(bench.closed, None);
}

#[test]
fn a_restarted_device_knows_its_sessions_and_entries() {
    let mut bench = Bench::open();
    bench.to_server_lost = true;
    bench.submit(RequestKind::Update, Mode::Early, b"a");
    bench.run(Nanos::from_millis(5));
    bench.restart_device(2);
    bench.to_server_lost = false;
    // It logs again once the server has accepted its new boot epoch.
    bench.run(Nanos::from_secs(1));
    bench.submit(RequestKind::Update, Mode::Early, b"b");
    bench.run(Nanos::from_secs(3));
    assert_eq!(bench.applied_seqs(), [1, 2]);
    let device = bench.device.as_ref().expect("there");
    assert_eq!((device.session_count(), device.entry_count()), (1, 0));
    assert!(remedy_persist::counters(device).freed >= 2);
}

#[test]
fn a_device_without_memory_learns_its_sessions_again() {
    let mut bench = Bench::open();
    bench.ram.clear();
    bench.restart_device(2);
    for payload in [b"a", b"b", b"c"] {
        bench.submit(RequestKind::Update, Mode::Covered, payload);
        bench.run(Nanos::from_secs(1));
    }
    assert_eq!(bench.applied_seqs(), [1, 2, 3]);
    assert_eq!(bench.done.len(), 3);
    assert!(remedy_persist::counters(bench.device.as_ref().expect("there")).logged > 0);
}

#[test]
fn a_silent_client_leaves_nothing_behind() {
    let mut bench = Bench::open();
    bench.submit(RequestKind::Update, Mode::Early, b"a");
    bench.run(Nanos::from_millis(10));
    bench.client = client(2);
    bench.run(Nanos::from_secs(120));
    assert_eq!(bench.sessions.len(), 0);
    assert_eq!(bench.device.as_ref().expect("there").session_count(), 0);
    assert_eq!(bench.server.as_ref().expect("there").session_count(), 0);
    assert_eq!(bench.dead_letters, []);
}

#[test]
fn a_session_that_ends_is_closed_when_everything_is_stable() {
    let mut bench = Bench::open();
    bench.submit(RequestKind::Update, Mode::Early, b"a");
    bench.client.close(bench.now, &mut bench.client_effects);
    bench.run(Nanos::from_secs(1));
    assert_eq!(bench.closed, Some(ClosedReason::Finished));
    assert_eq!(bench.sessions.len(), 0);
    assert_eq!(bench.device.as_ref().expect("there").session_count(), 0);
}

#[test]
fn entries_of_a_session_that_storage_lost_become_dead_letters() {
    let mut bench = Bench::open();
    bench.to_server_lost = true;
    bench.submit(RequestKind::Update, Mode::Early, b"a");
    bench.run(Nanos::from_millis(5));
    bench.sessions.clear();
    bench.to_server_lost = false;
    bench.restart_server(2);
    bench.run(Nanos::from_secs(3));
    assert_eq!(bench.applied_seqs(), [0u64; 0]);
    assert_eq!(bench.dead_letters.len(), 1);
    assert_eq!(bench.device.as_ref().expect("there").session_count(), 0);
    assert_eq!(bench.closed, Some(ClosedReason::Server(CloseReason::UnknownSession)));
}

#[test]
fn the_window_bounds_what_is_outstanding() {
    let mut bench = Bench::open();
    bench.to_server_lost = true;
    let window = bench.client.credit();
    for _ in 0..window {
        bench.submit(RequestKind::Update, Mode::Early, b"a");
    }
    let request = Request {
        kind: RequestKind::Update,
        mode: Mode::Early,
        fixed_reply: true,
        relaxed: false,
        traced: false,
        key_hash: KeyHash(1),
        payload: b"one more",
    };
    let refused = bench.client.submit(bench.now, request, &mut bench.client_effects);
    assert_eq!(refused, Err(SubmitError::WindowFull));
    bench.settle();
    assert_eq!(bench.done.len(), window as usize);
    bench.to_server_lost = false;
    bench.run(Nanos::from_secs(20));
    assert_eq!(bench.applied.len(), window as usize);
    assert_eq!(bench.client.credit(), window);
}

#[test]
fn a_retry_whose_reply_is_gone_ends_the_session() {
    let mut bench = Bench::open();
    bench.submit(RequestKind::Update, Mode::Covered, b"incr");
    // The server applies the update and dies before its response arrives.
    bench.drain_client();
    while let Some((from, to, bytes, up)) = bench.wire.pop_front() {
        bench.deliver(from, to, &bytes, up);
    }
    bench.drain_server();
    bench.wire.clear();
    bench.restart_server(2);
    bench.run(Nanos::from_secs(3));
    assert_eq!(bench.applied_seqs(), [1]);
    assert_eq!(bench.closed, Some(ClosedReason::Server(CloseReason::ReplyGone)));
}

/// Two reads that the toy answers and an update behind them, all at once, and what the server has executed of it when
/// nothing is under way any more.
fn answered_and_behind(planted: Planted) -> (Bench, Vec<u64>) {
    let mut bench = Bench::open_with(device_with_toy(planted));
    for _ in 0..2 {
        bench.submit_to(remedy_toy::ANSWERED, RequestKind::Read, Mode::Covered, b"get");
    }
    for _ in 0..4 {
        bench.submit(RequestKind::Update, Mode::Covered, b"set");
    }
    bench.settle();
    let applied = bench.applied_seqs();
    (bench, applied)
}

#[test]
fn the_server_goes_on_over_what_a_function_has_answered() {
    let (mut bench, applied) = answered_and_behind(Planted::NONE);
    assert_eq!(applied, [3, 4, 5, 6]);
    bench.run(Nanos::from_secs(1));
    let by = |bench: &Bench, at: usize| (bench.done[at].1, bench.done[at].2.clone());
    let toy = CompletedBy::Function(Answerer::device(DeviceId(1), Family::Trial));
    assert_eq!(by(&bench, 0), (toy, Some(b"toy".to_vec())));
    assert_eq!((bench.done.len(), by(&bench, 2).0), (6, CompletedBy::Server));
    let counters = bench.device.as_ref().expect("there").counters();
    assert_eq!((counters.answered, counters.passed_over, counters.duplicate), (2, 1, 0));
}

#[test]
fn a_server_that_is_not_told_what_to_pass_over_stalls() {
    let (mut bench, applied) = answered_and_behind(Planted::some(Fault::StallBehindAnswered));
    assert_eq!(applied, [0u64; 0], "the server waits for reads that nobody sends");
    bench.run(Nanos::from_secs(3));
    assert_eq!(bench.applied_seqs(), [3, 4, 5, 6], "until it asks the client");
}

#[test]
fn an_update_that_a_function_absorbs_is_missed() {
    let (_, applied) = answered_and_behind(Planted::some(Fault::AbsorbWrite));
    assert_eq!(applied, [3, 4], "the fifth was absorbed, and what is behind it waits");
}

#[test]
#[should_panic(expected = "only a read at its place is answered or absorbed")]
fn no_function_absorbs_an_update() {
    let mut config = DeviceConfig::new(DeviceId(1), BootEpoch(1), address(DEVICE), address(SERVER), key());
    config.sessions_max = 4;
    let toy = Toy::new(b"toy", Planted::some(Fault::AbsorbWrite));
    let mut bench = Bench::open_with(Pipeline::new(config, vec![Box::new(toy)]).expect("one function"));
    for _ in 0..5 {
        bench.submit(RequestKind::Update, Mode::Covered, b"set");
    }
    bench.settle();
}

#[test]
fn an_answer_is_given_again_until_the_client_has_it() {
    let mut bench = Bench::open_with(device_with_toy(Planted::NONE));
    let seq = bench.submit_to(remedy_toy::ANSWERED, RequestKind::Read, Mode::Covered, b"get");
    bench.drain_client();
    let (from, to, bytes, _) = bench.wire.pop_front().expect("the read");
    for _ in 0..3 {
        bench.deliver(from, to, &bytes, true);
    }
    let counters = *bench.device.as_ref().expect("there").counters();
    assert_eq!((counters.answered, counters.duplicate), (1, 2));
    assert_eq!(bench.server.as_ref().expect("there").counters().duplicates, 0, "nothing of it has gone on");
    bench.settle();
    bench.run(Nanos::from_millis(1));
    assert_eq!(bench.done.iter().map(|done| done.0).collect::<Vec<_>>(), [seq]);
}

#[test]
fn beyond_answers_bytes_max_reads_go_to_the_server() {
    // Room for one answer with its head.
    let mut bench = Bench::open_with(device_with_room(Planted::NONE, 100));
    for _ in 0..3 {
        bench.submit_to(remedy_toy::ANSWERED, RequestKind::Read, Mode::Covered, b"get");
    }
    bench.run(Nanos::from_secs(1));
    let by: Vec<_> = bench.done.iter().map(|done| done.1).collect();
    let toy = CompletedBy::Function(Answerer::device(DeviceId(1), Family::Trial));
    assert_eq!(by, [toy, CompletedBy::Server, CompletedBy::Server]);
    // The client's next word makes room again.
    bench.submit_to(remedy_toy::ANSWERED, RequestKind::Read, Mode::Covered, b"get");
    bench.run(Nanos::from_secs(1));
    assert_eq!(bench.done[3].1, toy);
}
