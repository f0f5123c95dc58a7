//! A server with one device on whose word it recovers.

use crate::by_hand::{
    barrier, client_address, cluster, device_address, header, nonce, packet, server_address, session_keys,
    NOW,
};
use crate::{DeadLetterReason, RecoveredSession, Server, ServerConfig, ServerOwn};
use scotfree_core::{
    BootEpoch, DeviceId, Effect, Effects, Epoch, KeyHash, Machine, Nanos, OrderNumber, SeqNum, SessionId,
    Token,
};
use scotfree_wire::{
    emit_extended, CloseReason, CloseTail, Direction, Extensions, Flags, Header, HeartbeatTail, Identity,
    KeyEpoch, Kind, ManifestRecord, ManifestTail, OpenTail, Packet, Stamp, StampKind, Tail,
};
use std::net::SocketAddr;

/// What the storage of a server knows of session `id`.
pub(super) fn recovered(id: u64, position: u64) -> RecoveredSession {
    RecoveredSession {
        session: SessionId(id),
        epoch: Epoch(1),
        client_nonce: nonce(id),
        server_nonce: [9; 16],
        position: SeqNum(position),
    }
}

/// A server of epoch 2 with one device.
pub(super) struct ServerBench {
    pub(super) server: Server,
    pub(super) now: Nanos,
    effects: Effects<ServerOwn>,
    /// What it executed, in order.
    pub(super) executed: Vec<(SessionId, SeqNum)>,
    /// What of it may have been acknowledged before.
    pub(super) executed_anew: Vec<(SessionId, SeqNum)>,
    /// Who made what it executed, where that is said.
    pub(super) identities: Vec<Option<Identity>>,
    pub(super) dead_letters: Vec<(SessionId, SeqNum, DeadLetterReason)>,
    /// The packets that it sent, with where to.
    pub(super) sent: Vec<(SocketAddr, Vec<u8>)>,
    /// The sessions whose records storage was asked to forget.
    pub(super) deleted: Vec<SessionId>,
    /// Whether the application answers at once, and storage with it.
    pub(super) answers: bool,
    /// What it answers.
    pub(super) reply: Vec<u8>,
}

impl ServerBench {
    pub(super) fn new(sessions: &[RecoveredSession], adjust: impl FnOnce(&mut ServerConfig)) -> ServerBench {
        let devices = vec![(DeviceId(1), device_address())];
        let mut config = ServerConfig::new(server_address(), cluster(), Epoch(2), [1; 16], devices);
        adjust(&mut config);
        let mut bench = ServerBench {
            server: Server::new(config, sessions),
            now: NOW,
            effects: Effects::new(),
            executed: Vec::new(),
            executed_anew: Vec::new(),
            identities: Vec::new(),
            dead_letters: Vec::new(),
            sent: Vec::new(),
            deleted: Vec::new(),
            answers: true,
            reply: b"ok".to_vec(),
        };
        bench.act(Server::start);
        bench
    }

    /// Lets the server do something and carries out what it wishes for.
    pub(super) fn act(&mut self, act: impl FnOnce(&mut Server, Nanos, &mut Effects<ServerOwn>)) {
        act(&mut self.server, self.now, &mut self.effects);
        self.carry_out();
    }

    fn carry_out(&mut self) {
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.iter() {
            match effect {
                Effect::Send { to, bytes, .. } => self.sent.push((*to, effects.bytes(*bytes).to_vec())),
                Effect::Own(ServerOwn::Execute { ticket, session, seq, is_replayed, identity, .. }) => {
                    self.executed.push((*session, *seq));
                    self.identities.push(*identity);
                    self.executed_anew.extend(is_replayed.then_some((*session, *seq)));
                    if self.answers {
                        self.answer(*ticket);
                    }
                }
                Effect::Own(ServerOwn::DeadLetter { session, seq, reason, .. }) => {
                    self.dead_letters.push((*session, *seq, *reason));
                }
                Effect::Own(ServerOwn::RecordSession { record }) => {
                    self.server.on_session_recorded(self.now, record.session, &mut self.effects);
                    self.carry_out();
                }
                Effect::Own(ServerOwn::DeleteSession { session }) => self.deleted.push(*session),
                Effect::Persist { .. } | Effect::Erase { .. } => {}
            }
        }
        effects.clear();
    }

    /// The application answers, and storage has it.
    pub(super) fn answer(&mut self, ticket: u64) {
        let times = scotfree_wire::ResponseTail::default();
        self.server.on_executed(self.now, ticket, &self.reply, false, times, &mut self.effects);
        self.carry_out();
        self.server.on_persisted(self.now, Token(ticket), &mut self.effects);
        self.carry_out();
    }

    pub(super) fn receive(&mut self, from: SocketAddr, bytes: &[u8]) {
        self.act(|server, now, effects| server.on_message(now, from, server_address(), bytes, effects));
    }

    /// A word of the device's.
    pub(super) fn device_says(&mut self, header: &Header, tail: &Tail, payload: &[u8]) {
        let bytes = packet(header, tail, payload, &cluster().control(Direction::DeviceToServer));
        self.receive(device_address(), &bytes);
    }

    /// The device answers the open poll: of session `id` it holds `entries`.
    pub(super) fn manifest(&mut self, boot_epoch: u32, current: u64, id: u64, entries: &[(u64, Stamp)]) {
        let polled = self.last_sent(Kind::RecoveryPoll).expect("a poll is open");
        let mut payload = Vec::new();
        let (Some((first, _)), Some((last, _))) = (entries.first(), entries.last()) else {
            return self.manifest_page(polled, boot_epoch, current, 0, &payload);
        };
        ManifestRecord {
            session: SessionId(id),
            epoch: Epoch(1),
            window: 128,
            client_nonce: nonce(id),
            server_nonce: [9; 16],
            first: SeqNum(*first),
            last: SeqNum(*last),
            entry_count: entries.len() as u32,
        }
        .write(&mut payload);
        self.manifest_page(polled, boot_epoch, current, 1, &payload);
        for (seq, stamp) in entries {
            self.replay(id, *seq, *stamp);
        }
        let mut end = header(Kind::Replay, id, *last);
        end.flags = Flags::VOID;
        self.device_says(&end, &Tail::Stamp(barrier(boot_epoch, entries.len() as u64, *first)), &[]);
    }

    /// The device sends what its log holds.
    pub(super) fn replay(&mut self, id: u64, seq: u64, stamp: Stamp) {
        self.device_says(&header(Kind::Replay, id, seq), &Tail::Stamp(stamp), b"x");
    }

    pub(super) fn manifest_page(
        &mut self,
        polled: Header,
        boot_epoch: u32,
        current: u64,
        count: u32,
        payload: &[u8],
    ) {
        let tail = ManifestTail {
            device: DeviceId(1),
            boot_epoch: BootEpoch(boot_epoch),
            order_current: OrderNumber(current),
            session_count: count,
        };
        let mut header = header(Kind::Manifest, 0, polled.seq_num.0);
        header.fragment_count = 1;
        self.device_says(&header, &Tail::Manifest(tail), payload);
    }

    /// A request of a client's that passed the device.
    pub(super) fn request(&mut self, kind: Kind, id: u64, seq: u64, stamp: Stamp) {
        self.request_of(kind, id, seq, stamp, None);
    }

    /// As [`ServerBench::request`], of one that says who made it.
    pub(super) fn request_of(
        &mut self,
        kind: Kind,
        id: u64,
        seq: u64,
        stamp: Stamp,
        identity: Option<Identity>,
    ) {
        let mut bytes = Vec::new();
        let extensions = Extensions { identity, ..Extensions::NONE };
        let (tail, key) = (Tail::Stamp(Stamp::default()), session_keys(id).client_to_server);
        emit_extended(&header(kind, id, seq), &tail, &extensions, b"x", &key, &mut bytes);
        if stamp.kind != StampKind::None {
            let key = cluster().control(Direction::Stamp);
            scotfree_wire::emit_stamp(&mut bytes, &stamp, &key).expect("a request has room for a stamp");
        }
        self.receive(client_address(), &bytes);
    }

    /// A client says up to where all is complete, and what its highest request is.
    pub(super) fn heartbeat(&mut self, id: u64, completed: u64, highest: u64) {
        let mut header = header(Kind::Heartbeat, id, 0);
        header.completed = SeqNum(completed);
        let tail = Tail::Heartbeat(HeartbeatTail { highest: SeqNum(highest), ..HeartbeatTail::default() });
        self.receive(client_address(), &packet(&header, &tail, &[], &session_keys(id).client_to_server));
    }

    /// A client opens, or somebody sends again what a client has sent.
    pub(super) fn open(&mut self, number: u64, from: SocketAddr) {
        let tail =
            Tail::Open(OpenTail { client_nonce: nonce(number), window_asked: 128, key_epoch: KeyEpoch(0) });
        let opening = Header::new(Kind::SessionOpen, SessionId(0), Epoch(0));
        self.receive(from, &packet(&opening, &tail, &[], &cluster().control(Direction::Handshake)));
    }

    /// Storage has forgotten what the server wished it to forget.
    pub(super) fn forget_deleted(&mut self) {
        for session in std::mem::take(&mut self.deleted) {
            self.act(|server, now, effects| server.on_session_deleted(now, session, effects));
        }
    }

    /// The device says that it holds nothing of these sessions any more.
    pub(super) fn confirm_empty(&mut self, ids: impl Iterator<Item = u64>) {
        for id in ids {
            let mut header = header(Kind::SessionClose, id, 0);
            header.flags = Flags::CONFIRMED;
            header.key_hash = KeyHash(1);
            self.device_says(&header, &Tail::Close(CloseTail { reason: CloseReason::Expire }), &[]);
        }
    }

    /// Time goes by, alarm by alarm.
    pub(super) fn pass(&mut self, span: Nanos) {
        let end = self.now.plus(span);
        while let Some(at) = self.server.next_timer().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.act(Server::on_timer);
        }
        self.now = end;
    }

    pub(super) fn last_sent(&self, kind: Kind) -> Option<Header> {
        self.sent.iter().rev().find_map(|(_, bytes)| {
            let packet = Packet::parse(bytes).ok()?;
            (packet.kind() == kind).then(|| *packet.header())
        })
    }

    /// The kinds of what it sent to `address`, in order.
    pub(super) fn sent_to(&self, address: SocketAddr) -> Vec<Kind> {
        let kind = |bytes: &[u8]| Packet::parse(bytes).expect("it sends whole packets").kind();
        self.sent.iter().filter(|(to, _)| *to == address).map(|(_, bytes)| kind(bytes)).collect()
    }
}
