//! What a client does with each message and at each alarm, and what its counters count.

mod answers;
mod ends;
mod sending;

use crate::by_hand::{
    accept, address, client_address, cluster, header, nonce, order, packet, server_address, session_keys, NOW,
};
use crate::{
    Client, ClientConfig, ClientCounters, ClientOwn, ClosedReason, CompletedBy, Completion, ExtendedError,
    Mode, Request, RequestKind, SubmitError,
};
use scotfree_core::{
    DeviceId, Durability, Effect, Effects, Epoch, KeyHash, Machine, Nanos, SeqNum, SessionId,
};
use scotfree_wire::{
    AcceptTail, Answerer, BusyTail, CloseReason, CloseTail, ClusterKey, Direction, ExtensionSet, Extensions,
    Family, Flags, Header, HeartbeatTail, Key, KeyEpoch, Kind, LateStamp, OpenTail, Packet, RangeTail,
    ResponseTail, Stamp, Tail, WireError, FURTHER_KEYS_MAX, PAYLOAD_BYTES_MAX, REQUEST_BYTES_MAX,
};
use CompletedBy::{Device, Server, ServerAck};
use Mode::{Covered, Early};
use RequestKind::{Bypass, Read, Update};

/// How long a client waits that has measured nothing.
const GUESS: Nanos = Nanos::from_millis(20);
const WINDOW: u32 = 8;

/// A client and what it wished for.
struct ClientBench {
    client: Client,
    now: Nanos,
    effects: Effects<ClientOwn>,
    /// The headers of what it sent since somebody looked, with when.
    sent: Vec<(Nanos, Header)>,
    /// What its last heartbeat called its highest request.
    highest: SeqNum,
    done: Vec<Completion>,
    closed: Vec<ClosedReason>,
    late: Vec<LateStamp>,
}

impl ClientBench {
    /// One that is not open.
    fn new(adjust: impl FnOnce(&mut ClientConfig)) -> ClientBench {
        let mut config = ClientConfig::new(client_address(), server_address(), cluster(), nonce(1), 1);
        // Heartbeats would stand between what is looked at.
        config.heartbeat_interval = Nanos::from_secs(1_000);
        config.idle_interval = Nanos::from_secs(2_000);
        adjust(&mut config);
        ClientBench {
            client: Client::new(config),
            now: NOW,
            effects: Effects::new(),
            sent: Vec::new(),
            highest: SeqNum(0),
            done: Vec::new(),
            closed: Vec::new(),
            late: Vec::new(),
        }
    }

    fn open(adjust: impl FnOnce(&mut ClientConfig)) -> ClientBench {
        let mut bench = ClientBench::new(adjust);
        bench.act(Client::open);
        bench.receive(&accept(1, WINDOW));
        bench.sent.clear();
        bench
    }

    fn act<T>(&mut self, act: impl FnOnce(&mut Client, Nanos, &mut Effects<ClientOwn>) -> T) -> T {
        let result = act(&mut self.client, self.now, &mut self.effects);
        for effect in self.effects.iter() {
            match effect {
                Effect::Send { bytes, .. } => {
                    let packet = Packet::parse(self.effects.bytes(*bytes)).expect("it sends whole packets");
                    self.sent.push((self.now, *packet.header()));
                    if let Tail::Heartbeat(tail) = packet.tail() {
                        self.highest = tail.highest;
                    }
                }
                Effect::Own(ClientOwn::Complete(done)) => self.done.push(*done),
                Effect::Own(ClientOwn::Closed { reason }) => self.closed.push(*reason),
                Effect::Own(ClientOwn::LateStamp(stamp)) => self.late.push(*stamp),
                Effect::Own(ClientOwn::Opened { .. }) | Effect::Persist { .. } | Effect::Erase { .. } => {}
            }
        }
        self.effects.clear();
        result
    }

    fn submit(&mut self, kind: RequestKind, mode: Mode) -> Result<SeqNum, SubmitError> {
        self.act(|client, now, effects| client.submit(now, Request { kind, mode, ..read() }, effects))
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.act(|client, now, effects| {
            client.on_message(now, server_address(), client_address(), bytes, effects);
        });
    }

    fn server_says(&mut self, header: &Header, tail: &Tail) {
        self.receive(&packet(header, tail, &[], &session_keys(1).server_to_client));
    }

    fn respond(&mut self, seq: u64) {
        self.server_says(&header(Kind::Response, 1, seq), &Tail::Response(ResponseTail::default()));
    }

    fn respond_in(&mut self, epoch: u32, seq: u64) {
        let header = Header { epoch: Epoch(epoch), ..header(Kind::Response, 1, seq) };
        self.server_says(&header, &Tail::Response(ResponseTail::default()));
    }

    fn stable(&mut self, seq: u64) {
        self.server_says(&header(Kind::ServerAck, 1, seq), &Tail::Empty);
    }

    fn acknowledge(&mut self, device: u16, boot_epoch: u32, seq: u64) {
        let header = Header { granted: Durability::Ram, ..header(Kind::PersistAck, 1, seq) };
        let stamp = Stamp { device: DeviceId(device), ..order(boot_epoch, seq, 0) };
        self.receive(&packet(&header, &Tail::Stamp(stamp), &[], &session_keys(1).device_to_client));
    }

    fn close_reason(&mut self, seq: u64, reason: CloseReason) {
        self.server_says(&header(Kind::SessionClose, 1, seq), &Tail::Close(CloseTail { reason }));
    }

    /// Time goes by, alarm by alarm.
    fn pass(&mut self, span: Nanos) {
        let end = self.now.plus(span);
        for _ in 0..10_000 {
            let Some(at) = self.client.next_timer().filter(|at| *at <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(at);
            self.act(Client::on_timer);
        }
        panic!("the alarms do not end");
    }

    fn take_sent(&mut self) -> Vec<Header> {
        std::mem::take(&mut self.sent).into_iter().map(|(_, header)| header).collect()
    }

    /// The kinds and numbers of what it sent since the last look.
    fn take_numbers(&mut self) -> Vec<(Kind, u64)> {
        self.take_sent().into_iter().map(|header| (header.kind, header.seq_num.0)).collect()
    }

    /// Who completed which requests so far.
    fn done(&self) -> Vec<(u64, CompletedBy)> {
        self.done.iter().map(|done| (done.seq.0, done.answered_by)).collect()
    }

    fn counters(&self) -> ClientCounters {
        *self.client.counters()
    }

    fn refused(&self) -> u64 {
        self.counters().refused.iter().sum()
    }
}

fn read() -> Request<'static> {
    Request {
        kind: Read,
        mode: Covered,
        fixed_reply: false,
        relaxed: false,
        traced: false,
        key_hash: KeyHash(0),
        payload: b"x",
    }
}
