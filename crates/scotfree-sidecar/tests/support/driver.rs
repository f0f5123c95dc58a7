//! Both machines in one process: client connections in front, an in-order queue, a real server behind.
//!
//! Invariant: requests are executed in the order in which the fronts send them, and replies to bypass
//! requests are passed on only when they are stable, as the protocol's server does.
#![allow(dead_code)] // Each test file uses its own part.

use super::{RedisServer, PATIENCE};
use scotfree_core::{Nanos, SeqNum, SessionId};
use scotfree_resp::back::{
    Back, BackConfig, BackEvent, BackEvents, Ending, Execute, LaneId, LateError, Refused, StartReport,
    StopReason,
};
use scotfree_resp::codec::text_of;
use scotfree_resp::description::Description;
use scotfree_resp::front::clients::Row;
use scotfree_resp::front::{describe_request, ClientFront, FrontAction, FrontConfig, FrontRequest, Identity};
use scotfree_resp::payload::{parse_response, RequestKind};
use scotfree_sidecar::aof::{self, Synced};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// A response that came out of the back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// Whether the server refused the request.
    pub failed: bool,
    /// The whole response.
    pub bytes: Vec<u8>,
}

impl Response {
    /// The reply inside.
    pub fn reply(&self) -> &[u8] {
        parse_response(&self.bytes).expect("a response of ours").1
    }
}

/// Drives one back against one server.
#[allow(clippy::struct_excessive_bools)] // Each is set by a test for itself.
pub struct BackDriver {
    pub back: Back,
    events: BackEvents,
    sockets: BTreeMap<LaneId, UnixStream>,
    path: PathBuf,
    begun: Instant,
    next_ticket: u64,
    /// What has happened.
    pub started: Option<StartReport>,
    pub stopped: Option<StopReason>,
    pub responses: BTreeMap<u64, Response>,
    /// How long what a read shows is said to live, by its ticket.
    pub lives: BTreeMap<u64, u64>,
    pub stable: u64,
    pub recorded: BTreeSet<SessionId>,
    pub deleted: BTreeSet<SessionId>,
    pub failed: BTreeMap<SessionId, String>,
    /// Sessions for which there is no memory.
    pub refused: BTreeMap<SessionId, String>,
    pub late_errors: Vec<LateError>,
    /// How often the markers were said to be gone.
    pub markers_gone: usize,
    pub early: Vec<(bool, String)>,
    /// Why the server refuses every write, as it was said.
    pub refuses: Vec<Option<Refused>>,
    /// Why clients' writes are refused, as it was said.
    pub writes: Vec<Option<String>>,
    /// Whether new lanes are let in, as it was said.
    pub lanes: Vec<(bool, String)>,
    /// Nonsense that the server answered, as it was said.
    pub nonsense: Vec<String>,
    pub synced: Vec<Synced>,
    /// What the start has waited for.
    pub waits: Vec<String>,
    /// How the append-only files end is not read while this is set, but taken to be this.
    pub assumed_ending: Option<Ending>,
    /// Whether somebody waits for stability.
    pub wants_stable: bool,
    /// What is given while this is set is executed anew, and may have been acknowledged before.
    pub replays: bool,
    /// So many bytes at the end of what a lane sends are kept back.
    pub kept_back: usize,
    /// Syncs are left undone while this is set.
    pub sync_fails: bool,
    /// Syncs are said to be done while this is set, and are not.
    pub sync_lies: bool,
}

impl BackDriver {
    /// A driver whose machine begins to start.
    pub fn new(path: &Path, config: BackConfig) -> BackDriver {
        let mut driver = BackDriver {
            back: Back::new(config),
            events: BackEvents::new(),
            sockets: BTreeMap::new(),
            path: path.to_owned(),
            begun: Instant::now(),
            next_ticket: 1,
            started: None,
            stopped: None,
            responses: BTreeMap::new(),
            lives: BTreeMap::new(),
            stable: 0,
            recorded: BTreeSet::new(),
            deleted: BTreeSet::new(),
            failed: BTreeMap::new(),
            refused: BTreeMap::new(),
            late_errors: Vec::new(),
            markers_gone: 0,
            early: Vec::new(),
            refuses: Vec::new(),
            writes: Vec::new(),
            lanes: Vec::new(),
            nonsense: Vec::new(),
            synced: Vec::new(),
            waits: Vec::new(),
            assumed_ending: None,
            wants_stable: false,
            replays: false,
            kept_back: 0,
            sync_fails: false,
            sync_lies: false,
        };
        driver.back.start(&mut driver.events);
        driver
    }

    /// A driver that has started.
    pub fn started(path: &Path, config: BackConfig) -> BackDriver {
        let mut driver = BackDriver::new(path, config);
        driver.until("the start", |driver| driver.started.is_some() || driver.stopped.is_some());
        assert_eq!(driver.stopped, None);
        driver
    }

    /// Records a session and waits for it.
    pub fn open(&mut self, session: u64) -> SessionId {
        let session = SessionId(session);
        self.back.record_session(session, b"opaque");
        self.until("the session's marker", |driver| driver.recorded.contains(&session));
        session
    }

    /// Gives a request to the machine.
    pub fn execute(&mut self, session: SessionId, seq: u64, kind: RequestKind, payload: &[u8]) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let (seq, is_replayed) = (SeqNum(seq), self.replays);
        self.back.execute(&Execute { ticket, session, seq, kind, payload, is_replayed });
        ticket
    }

    /// Gives a request and waits for its response.
    pub fn call(&mut self, session: SessionId, seq: u64, kind: RequestKind, payload: &[u8]) -> Response {
        let ticket = self.execute(session, seq, kind, payload);
        self.response(ticket)
    }

    /// Waits for a response.
    pub fn response(&mut self, ticket: u64) -> Response {
        self.until("a response", |driver| driver.responses.contains_key(&ticket) || driver.stopped.is_some());
        self.responses.remove(&ticket).unwrap_or_else(|| panic!("stopped: {:?}", self.stopped))
    }

    /// Asks for the description.
    pub fn describe(&mut self) -> Description {
        let request = describe_request();
        let response = self.call(SessionId(0), 0, request.kind, &request.payload);
        let text = text_of(response.reply()).expect("a bulk string");
        Description::parse(std::str::from_utf8(text).expect("text")).expect("a description")
    }

    /// Kills the server and starts it again on what a power failure leaves: what was synced.
    pub fn cut_power(&mut self, redis: &mut RedisServer) {
        redis.kill();
        self.until("the loss", |driver| driver.stopped.is_some());
        assert!(matches!(self.stopped, Some(StopReason::Lost(_))), "{:?}", self.stopped);
        for file in &self.synced {
            let handle = std::fs::OpenOptions::new().write(true).open(&file.path).expect("it is there");
            handle.set_len(file.bytes).expect("it can be cut");
        }
        redis.restart();
    }

    /// Turns the loop until a condition holds.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&BackDriver) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(Instant::now() < deadline, "waited too long for {what}: {self:?}");
            self.turn();
        }
    }

    /// The machine's time.
    pub fn now(&self) -> Nanos {
        Nanos(self.begun.elapsed().as_nanos() as u64)
    }

    /// One turn of the loop.
    pub fn turn(&mut self) {
        let now = self.now();
        self.back.flush(now, self.wants_stable, &mut self.events);
        if self.back.next_timer().is_some_and(|at| at <= now) {
            self.back.on_timer(now, &mut self.events);
        }
        self.handle_events();
        self.write();
        if !self.read() {
            std::thread::yield_now();
        }
        self.handle_events();
    }

    fn handle_events(&mut self) {
        while !self.events.is_empty() {
            let events = std::mem::take(&mut self.events);
            for event in events.iter() {
                self.handle(event, &events);
            }
        }
    }

    fn handle(&mut self, event: &BackEvent, events: &BackEvents) {
        let now = self.now();
        match event.clone() {
            BackEvent::Connect(lane) => match UnixStream::connect(&self.path) {
                Ok(socket) => {
                    socket.set_nonblocking(true).expect("a socket can be non-blocking");
                    self.sockets.insert(lane, socket);
                    self.back.on_connected(lane, now, &mut self.events);
                }
                Err(error) => self.back.on_closed(lane, now, &error.to_string(), &mut self.events),
            },
            BackEvent::Disconnect(lane) => {
                self.sockets.remove(&lane);
            }
            BackEvent::Waits(what) => self.waits.push(what),
            BackEvent::ReadEnding(files) => {
                let ending = self.assumed_ending.clone().unwrap_or_else(|| aof::ending(&files));
                self.back.on_ending(ending, now, &mut self.events);
            }
            BackEvent::Started(report) => self.started = Some(*report),
            BackEvent::Independent { .. } => {}
            BackEvent::Lives { ticket, remaining_ms } => {
                self.lives.insert(ticket, remaining_ms);
            }
            BackEvent::Reply { ticket, failed, response } => {
                let bytes = events.bytes(response).to_vec();
                assert!(
                    self.responses.insert(ticket, Response { failed, bytes }).is_none(),
                    "answered twice"
                );
            }
            BackEvent::Stable { ticket } => {
                assert!(ticket >= self.stable, "stability goes backwards");
                self.stable = ticket;
            }
            BackEvent::SessionRecorded(session) => {
                self.recorded.insert(session);
            }
            BackEvent::SessionDeleted(session) => {
                self.deleted.insert(session);
            }
            BackEvent::SessionFailed { session, reason } => {
                self.failed.insert(session, reason);
            }
            BackEvent::SessionRefused { session, error } => {
                self.refused.insert(session, error);
            }
            BackEvent::Sync(files) => {
                let mut counts = !self.sync_fails;
                if counts && !self.sync_lies {
                    match aof::sync(&files) {
                        Ok(synced) => self.synced = synced,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => counts = false,
                        Err(error) => panic!("files to sync: {error}"),
                    }
                }
                self.back.on_synced(now, counts, &mut self.events);
            }
            BackEvent::MarkersGone => self.markers_gone += 1,
            BackEvent::LateError(error) => self.late_errors.push(error),
            BackEvent::Writes { refused } => self.writes.push(refused),
            BackEvent::Refuses { refused } => self.refuses.push(refused),
            BackEvent::Early { allowed, reason } => self.early.push((allowed, reason)),
            BackEvent::Lanes { allowed, reason } => self.lanes.push((allowed, reason)),
            BackEvent::Nonsense { lane, said } => self.nonsense.push(format!("{lane}: {said}")),
            BackEvent::Stopped(reason) => self.stopped = Some(reason),
        }
    }

    fn write(&mut self) {
        let lanes: Vec<LaneId> = self.back.sending_lanes().collect();
        for lane in lanes {
            let Some(socket) = self.sockets.get_mut(&lane) else { continue };
            let output = self.back.output(lane);
            let sent = output.len().saturating_sub(self.kept_back);
            if sent == 0 {
                continue;
            }
            match socket.write(&output[..sent]) {
                Ok(count) => self.back.sent(lane, count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => self.lose(lane, &error.to_string()),
            }
        }
    }

    fn read(&mut self) -> bool {
        let mut chunk = [0; 16 << 10];
        let mut any = false;
        let lanes: Vec<LaneId> = self.sockets.keys().copied().collect();
        for lane in lanes {
            let Some(socket) = self.sockets.get_mut(&lane) else { continue };
            match socket.read(&mut chunk) {
                Ok(0) => self.lose(lane, "closed by the server"),
                Ok(count) => {
                    let now = self.now();
                    self.back.on_bytes(lane, now, &chunk[..count], &mut self.events);
                    any = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => self.lose(lane, &error.to_string()),
            }
        }
        any
    }

    fn lose(&mut self, lane: LaneId, reason: &str) {
        let now = self.now();
        self.sockets.remove(&lane);
        self.back.on_closed(lane, now, reason, &mut self.events);
    }
}

impl std::fmt::Debug for BackDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackDriver")
            .field("started", &self.started)
            .field("stopped", &self.stopped)
            .field("responses", &self.responses.keys())
            .field("stable", &self.stable)
            .field("failed", &self.failed)
            .field("backlog", &self.back.backlog())
            .field("counters", &self.back.counters())
            .finish_non_exhaustive()
    }
}

/// A client's connection, as the client sees it.
pub struct Client {
    front: ClientFront,
    session: SessionId,
    seq: u64,
    /// Everything the client was sent.
    pub received: Vec<u8>,
    /// The connection was closed.
    pub closed: bool,
    /// The connection became a tunnel: setup, replies of it, first bytes.
    pub tunnel: Option<(Vec<u8>, usize, Vec<u8>)>,
}

impl Client {
    /// What the front has counted.
    pub fn counters(&self) -> scotfree_resp::front::FrontCounters {
        self.front.counters()
    }
}

/// Fronts, queue and back together.
pub struct Sidecars {
    pub driver: BackDriver,
    pub clients: Vec<Client>,
    config: Arc<FrontConfig>,
    description: Arc<Description>,
    in_flight: VecDeque<(u64, usize, FrontRequest)>,
    /// Answer early requests before they are executed.
    pub acknowledge_early: bool,
}

impl Sidecars {
    /// Starts everything in front of the server at `path`.
    pub fn start(path: &Path, back: BackConfig, front: FrontConfig) -> Sidecars {
        let mut driver = BackDriver::started(path, back);
        let description = Arc::new(driver.describe());
        Sidecars {
            driver,
            clients: Vec::new(),
            config: Arc::new(front),
            description,
            in_flight: VecDeque::new(),
            acknowledge_early: true,
        }
    }

    /// Opens a client connection with a session of its own.
    pub fn connect(&mut self) -> usize {
        let number = self.clients.len();
        let session = self.driver.open(1_000 + number as u64);
        let front = ClientFront::new(
            self.config.clone(),
            self.description.clone(),
            Identity::new(1, number as u64 + 1),
        );
        self.clients.push(Client {
            front,
            session,
            seq: 0,
            received: Vec::new(),
            closed: false,
            tunnel: None,
        });
        number
    }

    /// A client sends bytes.
    pub fn send(&mut self, client: usize, bytes: &[u8]) {
        let now_ms = Self::now_ms();
        let mut actions = Vec::new();
        self.clients[client].front.on_bytes(now_ms, bytes, &mut actions);
        self.act(client, actions);
    }

    /// Turns until a condition on a client holds.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&Sidecars) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(Instant::now() < deadline, "waited too long for {what}: {:?}", self.driver);
            self.turn();
        }
    }

    /// Sends a script and returns everything that it is answered with.
    pub fn script(&mut self, client: usize, bytes: &[u8]) -> Vec<u8> {
        self.send(client, bytes);
        self.until("the script", |sidecars| {
            let client = &sidecars.clients[client];
            client.front.pending_count() == 0 || client.closed || client.tunnel.is_some()
        });
        std::mem::take(&mut self.clients[client].received)
    }

    /// One turn of everything.
    pub fn turn(&mut self) {
        let bypass_waits = |(ticket, _, request): &(u64, usize, FrontRequest)| {
            request.kind == RequestKind::Bypass && self.driver.responses.contains_key(ticket)
        };
        self.driver.wants_stable = self.in_flight.iter().any(bypass_waits);
        self.driver.turn();
        let answered: Vec<(u64, usize, FrontRequest)> =
            self.in_flight.iter().filter(|flight| self.is_answered(flight)).cloned().collect();
        self.in_flight.retain(|(ticket, _, _)| !answered.iter().any(|(done, _, _)| done == ticket));
        for (ticket, client, request) in answered {
            let response = self.driver.responses.remove(&ticket).expect("it is there");
            let now_ms = Self::now_ms();
            let mut actions = Vec::new();
            self.clients[client].front.on_response(now_ms, request.id, &response.bytes, &mut actions);
            self.act(client, actions);
        }
    }

    fn is_answered(&self, (ticket, _, request): &(u64, usize, FrontRequest)) -> bool {
        let stable = request.kind != RequestKind::Bypass || self.driver.stable >= *ticket;
        stable && self.driver.responses.contains_key(ticket)
    }

    fn act(&mut self, client: usize, actions: Vec<FrontAction>) {
        for action in actions {
            match action {
                FrontAction::Request(request) => self.request(client, request),
                FrontAction::Tunnel { setup, setup_replies, bytes, .. } => {
                    self.clients[client].tunnel = Some((setup, setup_replies, bytes));
                }
                FrontAction::Pass(_) | FrontAction::RestTunnel | FrontAction::EndTunnel => {}
                FrontAction::Clients { id, question, list } => {
                    let facts = self.clients[client].front.facts();
                    let row = Row { facts, server_id: None, is_tunnel: false };
                    let outcome = question.answer(Self::now_ms(), row.facts.id, &list, &[row]);
                    let mut more = Vec::new();
                    self.clients[client].front.on_clients(Self::now_ms(), id, outcome, false, &mut more);
                    self.act(client, more);
                }
                FrontAction::Close => self.clients[client].closed = true,
            }
        }
        let connection = &mut self.clients[client];
        connection.received.extend_from_slice(connection.front.output());
        let count = connection.front.output().len();
        connection.front.sent(count);
    }

    fn request(&mut self, client: usize, request: FrontRequest) {
        let connection = &mut self.clients[client];
        connection.seq += 1;
        let ticket = self.driver.execute(connection.session, connection.seq, request.kind, &request.payload);
        if let Some(reply) = request.early.filter(|_| self.acknowledge_early) {
            let now_ms = Self::now_ms();
            let mut actions = Vec::new();
            self.clients[client].front.on_early(now_ms, request.id, reply, &mut actions);
            self.act(client, actions);
        }
        self.in_flight.push_back((ticket, client, request));
    }

    fn now_ms() -> i64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| since.as_millis() as i64)
    }
}
