//! The device as a machine: a packet is parsed once, what is the base's is decided once, and the functions see it in
//! their order.
//!
//! Invariant: no function sees a packet of a session that is not authentic as that session's, and a function that has
//! brought its knowledge up to date does so before anything is decided.

use crate::admit::Request;
use crate::authority::Learnt;
use crate::base::{Base, DeviceCounters};
use crate::config::DeviceConfig;
use crate::effects::{forward, DeviceEffects, DeviceOwn};
use crate::function::{Before, Count, Function, Passing, Place, SessionChange, Verdict, Way, Word};
use crate::kernel_part::{InKernel, KernelPart};
use crate::list::{check, ListError};
use crate::origin::Origin;
use crate::restore::RestoreError;
use crate::sessions::{Region, SessionName};
use crate::DISK_TOKEN_BIT;
use scotfree_core::{BootEpoch, Durability, Effects, Epoch, Machine, Nanos, SeqNum, ServerIndex, Token};
use scotfree_wire::{
    key_epoch, CloseReason, CloseTail, ClusterKey, Family, Kind, Packet, Tail, WireError, HEADER_BYTES,
    MAGIC, VERSION,
};
use std::net::SocketAddr;
use std::ops::Range;

/// Tokens of flushes: far from those of functions.
const FLUSH_TOKEN_FIRST: u64 = 1 << 48;

/// A device: its base and its functions.
#[derive(Debug)]
pub struct Pipeline {
    pub(crate) base: Base,
    pub(crate) functions: Vec<Box<dyn Function>>,
    /// The tokens of each function.
    tokens: Vec<Range<u64>>,
    hears_servers: bool,
    /// What functions had to say to the operator.
    troubles: Vec<String>,
}

impl Pipeline {
    /// A device that remembers nothing yet. [`Pipeline::restore`] fills it before the first packet. The servers of
    /// `config` must have been checked.
    pub fn new(config: DeviceConfig, mut functions: Vec<Box<dyn Function>>) -> Result<Pipeline, ListError> {
        check(&functions)?;
        assert_eq!(config.check(), Ok(()), "the configuration has been checked");
        let mut base = Base::new(config);
        let mut tokens = vec![0..0; functions.len()];
        let mut first = 0;
        // The last begins: it acknowledges, and its records keep their numbers whatever stands before it.
        for (range, function) in tokens.iter_mut().zip(&mut functions).rev() {
            *range = first..first + function.tokens_max(&base);
            first = range.end;
            function.begin(&mut base, range.start);
        }
        assert!(first <= FLUSH_TOKEN_FIRST, "records are numbered below flushes");
        let hears_servers = functions.iter().any(|function| function.hears_servers());
        Ok(Pipeline { base, functions, tokens, hears_servers, troubles: Vec::new() })
    }

    // ---- what it looks like

    /// What its functions share.
    pub fn base(&self) -> &Base {
        &self.base
    }

    /// The function of this type, if it is in the list.
    pub fn function<F: Function + 'static>(&self) -> Option<&F> {
        self.functions.iter().find_map(|function| function.as_any().downcast_ref())
    }

    /// The function of this type, if it is in the list, and the base that it works on.
    pub fn with_base<F: Function + 'static>(&mut self) -> Option<(&mut Base, &mut F)> {
        let function = self.functions.iter_mut().find_map(|function| function.as_any_mut().downcast_mut())?;
        Some((&mut self.base, function))
    }

    /// Its functions, in their order.
    pub fn functions(&self) -> impl Iterator<Item = &dyn Function> {
        self.functions.iter().map(AsRef::as_ref)
    }

    /// Puts programs in the kernel before the function of this name; `start` begins the part between them.
    pub fn put_in_kernel<E>(
        &mut self,
        name: &str,
        start: impl FnOnce(&mut Base, &mut dyn Function) -> Result<Box<dyn KernelPart>, E>,
    ) -> Result<(), E> {
        let at = self.functions.iter().position(|function| function.name() == name);
        let at = at.expect("a part in the kernel is a function's of the list");
        let part = start(&mut self.base, self.functions[at].as_mut())?;
        // Programs pass retries on: what is kept here they would not find.
        self.base.keep_no_answers();
        let function = self.functions.remove(at);
        self.functions.insert(at, Box::new(InKernel { function, part }));
        Ok(())
    }

    /// Goes on as the incarnation that programs in the kernel have kept alive.
    pub fn resume(&mut self, server: ServerIndex, accepted: bool, lease_until: Nanos) {
        self.base.resume(server, accepted, lease_until);
    }

    /// Lets the functions tell what the operator should know.
    pub fn check(&mut self, tell: &mut dyn FnMut(Word)) {
        self.functions.iter_mut().for_each(|function| function.check(tell));
    }

    /// What the function of this name answers an operator; none if it is not in the list.
    pub fn ask(
        &mut self,
        now: Nanos,
        name: &str,
        question: &str,
        effects: &mut DeviceEffects,
    ) -> Option<Result<String, String>> {
        let at = self.functions.iter().position(|function| function.name() == name)?;
        self.before(now, &Before::Look, effects);
        let answer = self.functions[at].ask(now, &mut self.base, question);
        // What it has forgotten is to go elsewhere, too.
        if let Err(trouble) = self.functions[at].after(&mut self.base) {
            self.troubles.push(trouble);
        }
        Some(answer)
    }

    /// What the base has counted.
    pub fn counters(&self) -> &DeviceCounters {
        self.base.counters()
    }

    /// What the functions have counted, by their names.
    pub fn function_counters(&self, out: &mut dyn FnMut(&'static str, Count)) {
        for function in &self.functions {
            function.counters(&mut |count| out(function.name(), count));
        }
    }

    /// Its incarnation.
    pub fn boot_epoch(&self) -> BootEpoch {
        self.base.boot_epoch()
    }

    /// The largest epoch of a server that has polled it.
    pub fn server_epoch(&self, server: ServerIndex) -> Epoch {
        self.base.server_epoch(server)
    }

    /// Whether it may acknowledge for a server at `now`.
    pub fn has_lease(&self, server: ServerIndex, now: Nanos) -> bool {
        self.base.has_lease(server, now)
    }

    /// How many sessions it knows.
    pub fn session_count(&self) -> usize {
        self.base.sessions.count()
    }

    /// What functions had to say to the operator since the last call.
    pub fn take_troubles(&mut self) -> Vec<String> {
        std::mem::take(&mut self.troubles)
    }

    // ---- what its surroundings say

    /// Takes over one record of the log, before the first packet (rule 12).
    pub fn restore(&mut self, now: Nanos, token: Token, record: &[u8]) -> Result<(), RestoreError> {
        let at = self.owner(token).ok_or(RestoreError::Layout)?;
        self.functions[at].restore(now, &mut self.base, token, record)
    }

    /// Makes this device the head of its chain, after the operator has excluded the former one.
    pub fn promote(&mut self, now: Nanos, effects: &mut DeviceEffects) {
        self.before(now, &Before::Promotion, effects);
        if !self.base.config.head {
            self.base.config.head = true;
            let boot_epoch = BootEpoch(self.base.boot_seen.0 + 1);
            self.base.raise_boot_epoch(ServerIndex(0), boot_epoch, effects);
        }
    }

    /// Takes the cluster's key anew, after a rotation. The entries of a session whose epoch has been taken
    /// away stay until they are stable; its client is not heard any more, nor is what was made for it (rule 14).
    pub fn set_cluster_key(&mut self, now: Nanos, key: ClusterKey, effects: &mut DeviceEffects) {
        self.before(now, &Before::NewKey, effects);
        self.base.set_cluster_key(key);
        let regions: Vec<(Region, bool)> =
            self.base.sessions.iter().map(|(region, session)| (region, session.revoked)).collect();
        for (region, revoked) in regions {
            let change = if revoked { SessionChange::Revoked } else { SessionChange::Rekeyed };
            self.tell(now, region, change, effects);
        }
    }

    /// Says what the domains can still give, after one of them has failed.
    pub fn set_media(&mut self, media: Durability) {
        for function in &mut self.functions {
            function.set_media(&mut self.base, media);
        }
    }

    /// A domain had no room for what was wished for under `token`: it will not be acknowledged, and
    /// its slot is free for others once the server has it.
    pub fn on_refused(&mut self, token: Token) {
        if let Some(at) = self.owner(token) {
            self.functions[at].on_refused(&mut self.base, token);
        }
        self.base.forsake_answers(token);
    }

    fn owner(&self, token: Token) -> Option<usize> {
        let number = token.0 & !DISK_TOKEN_BIT;
        self.tokens.iter().position(|range| range.contains(&number))
    }

    /// Has the functions bring their knowledge up to date, before something is decided or looked at.
    pub fn before(&mut self, now: Nanos, what: &Before<'_>, effects: &mut DeviceEffects) {
        for function in &mut self.functions {
            if let Err(trouble) = function.before(now, &mut self.base, what, effects) {
                self.troubles.push(trouble);
            }
        }
    }

    /// Everything is decided and carried out.
    pub(crate) fn after(&mut self) {
        for function in &mut self.functions {
            if let Err(trouble) = function.after(&mut self.base) {
                self.troubles.push(trouble);
            }
        }
    }

    /// Tells the functions what has become of a session.
    pub(crate) fn tell(
        &mut self,
        now: Nanos,
        region: Region,
        change: SessionChange,
        effects: &mut DeviceEffects,
    ) {
        for function in &mut self.functions {
            function.on_session(now, &mut self.base, region, change, effects);
        }
    }

    // ---- messages

    /// A message has come in by a port of the device. [`Machine::on_message`] is for shells that do not tell
    /// ports apart: then sessions are bound to their clients' addresses alone.
    pub fn on_arrival(
        &mut self,
        now: Nanos,
        origin: Origin,
        to: SocketAddr,
        message: &[u8],
        effects: &mut DeviceEffects,
    ) {
        if let Err(error) = self.receive(now, origin, to, message, effects) {
            self.base.counters.refused[error as usize] += 1;
        }
    }

    fn receive(
        &mut self,
        now: Nanos,
        origin: Origin,
        to: SocketAddr,
        message: &[u8],
        effects: &mut DeviceEffects,
    ) -> Result<(), WireError> {
        if let Some(family) = other_family(message) {
            return self.receive_of(now, family, origin, to, message, effects);
        }
        let packet = Packet::parse(message)?;
        let config = &self.base.config;
        let from_server = config.server_at(origin.address);
        if to == config.address {
            // Whoever holds the key of a single server speaks for it, wherever it has moved.
            let single = (config.servers.len() == 1).then_some(ServerIndex(0));
            let server = from_server.or(single).ok_or(WireError::Elsewhere)?;
            self.before(now, &Before::Packet(&packet, server), effects);
            return self.on_control(now, server, &packet, effects);
        }
        if let Some(server) = from_server {
            self.before(now, &Before::Packet(&packet, server), effects);
            return self.on_server_passing(now, server, origin, to, &packet, effects);
        }
        // Sessions of a server that is not served here may bear the same names.
        let Some(server) = config.server_at(to) else {
            forward(effects, message);
            return Ok(());
        };
        self.before(now, &Before::Packet(&packet, server), effects);
        if packet.kind().is_request() {
            return self.on_request(now, &Request { packet: &packet, origin, to, server }, effects);
        }
        if packet.kind() == Kind::Heartbeat {
            self.hear_heartbeat(server, &packet);
        }
        forward(effects, message);
        Ok(())
    }

    /// A packet of a function's own family: for this device, or on its way to somebody else.
    fn receive_of(
        &mut self,
        now: Nanos,
        family: Family,
        origin: Origin,
        to: SocketAddr,
        message: &[u8],
        effects: &mut DeviceEffects,
    ) -> Result<(), WireError> {
        if to != self.base.config.address {
            forward(effects, message);
            return Ok(());
        }
        let function = self.functions.iter_mut().find(|function| function.family() == family);
        let function = function.ok_or(WireError::UnknownKind)?;
        function.on_own_packet(now, &mut self.base, origin, message, effects)
    }

    /// A client says in its heartbeats too what it has for certain.
    fn hear_heartbeat(&mut self, server: ServerIndex, packet: &Packet<'_>) {
        let Some(region) = self.base.find(server, packet.session()) else { return };
        let Some(session) = self.base.session(region).filter(|session| !session.answers.is_empty()) else {
            return;
        };
        if packet.verify(&session.keys.client_to_server).is_ok() {
            self.base.forget_answers(region, packet.header().completed);
        }
    }

    /// A message of a server's that passes on its way to a client.
    fn on_server_passing(
        &mut self,
        now: Nanos,
        server: ServerIndex,
        origin: Origin,
        to: SocketAddr,
        packet: &Packet<'_>,
        effects: &mut DeviceEffects,
    ) -> Result<(), WireError> {
        match (packet.kind(), packet.tail()) {
            (Kind::SessionAccept, Tail::Accept(accept)) => {
                packet.verify(&self.base.keys.handshake.of(key_epoch(&accept.server_nonce))?)?;
                let epoch = packet.epoch().max(self.base.server_epoch(server));
                if self.base.obeys(server, epoch) {
                    let learnt = self.base.learn_session(now, server, to, packet, accept);
                    self.on_learnt(now, learnt, effects);
                }
            }
            (Kind::ServerAck, _) => self.on_stable(now, server, packet, packet.seq_num(), effects)?,
            (Kind::Heartbeat, Tail::Heartbeat(tail)) => {
                self.on_stable(now, server, packet, tail.stable, effects)?;
            }
            (Kind::SessionClose, Tail::Close(close)) if close.reason == CloseReason::ReplyGone => {
                if self.base.has_the_reply(server, packet, effects) {
                    return Ok(());
                }
            }
            (Kind::SessionAccept | Kind::Heartbeat, _) => return Err(WireError::InvalidField),
            // For the client alone.
            (
                Kind::SessionOpen
                | Kind::SessionClose
                | Kind::Update
                | Kind::Read
                | Kind::Bypass
                | Kind::PersistAck
                | Kind::Response
                | Kind::Retransmit
                | Kind::RecoveryPoll
                | Kind::Manifest
                | Kind::Replay
                | Kind::Lease
                | Kind::Busy
                | Kind::Drain,
                _,
            ) => {}
        }
        if self.hears_servers {
            self.show_servers_word(now, server, (origin, to), packet, effects)?;
        }
        forward(effects, packet.bytes());
        Ok(())
    }

    /// Functions see what servers send in the reverse order: what is logged last is known first.
    fn show_servers_word(
        &mut self,
        now: Nanos,
        server: ServerIndex,
        (origin, to): (Origin, SocketAddr),
        packet: &Packet<'_>,
        effects: &mut DeviceEffects,
    ) -> Result<(), WireError> {
        let region = self.base.find(server, packet.session());
        let authentic = |region: &Region| {
            let session = self.base.session(*region);
            session.is_some_and(|session| packet.verify(&session.keys.server_to_client).is_ok())
        };
        let name = SessionName { server, id: packet.session() };
        let roomless = self.base.roomless.key(name).is_some_and(|key| packet.verify(key).is_ok());
        let mut passing = Passing {
            packet,
            header: packet.header(),
            payload: packet.payload(),
            origin,
            to,
            way: Way::ToClient(server),
            session: region.filter(authentic),
            roomless,
            place: Place::None,
            stamp: None,
            answerable: false,
            granted: Durability::None,
            depends: None,
        };
        for function in self.functions.iter_mut().rev().filter(|function| function.hears_servers()) {
            match function.on_packet(now, &mut self.base, &mut passing, effects) {
                Verdict::Next => {}
                Verdict::Refuse(error) => return Err(error),
                Verdict::Answer(_) | Verdict::Absorb => panic!("what a server says is not answered"),
            }
        }
        Ok(())
    }

    fn on_learnt(&mut self, now: Nanos, learnt: Learnt, effects: &mut DeviceEffects) {
        match learnt {
            Learnt::Opened(region) => self.tell(now, region, SessionChange::Opened, effects),
            Learnt::NoRoom => {
                if let Some(silent) = self.base.silent_session() {
                    self.expire(now, silent, effects);
                }
            }
            Learnt::Nothing => {}
        }
    }

    fn on_stable(
        &mut self,
        now: Nanos,
        server: ServerIndex,
        packet: &Packet<'_>,
        stable: SeqNum,
        effects: &mut DeviceEffects,
    ) -> Result<(), WireError> {
        if let Some(region) = self.base.verify_stable(server, packet)? {
            self.free(now, region, stable, effects);
        }
        Ok(())
    }

    /// Everything of a session up to `stable` is stable (rule 6).
    fn free(&mut self, now: Nanos, region: Region, stable: SeqNum, effects: &mut DeviceEffects) {
        if self.base.note_stable(region, stable) {
            self.tell(now, region, SessionChange::Stable(stable), effects);
            if let Some(name) = self.base.session(region).map(|session| session.name) {
                self.base.touch_session(name);
            }
        }
    }

    /// A message of a server's for this device.
    fn on_control(
        &mut self,
        now: Nanos,
        server: ServerIndex,
        packet: &Packet<'_>,
        effects: &mut DeviceEffects,
    ) -> Result<(), WireError> {
        self.base.keys.from_server.verify(packet)?;
        if !self.base.obeys(server, packet.epoch()) {
            return Ok(());
        }
        self.base.hear(server, packet.epoch());
        let name = SessionName { server, id: packet.session() };
        match (packet.kind(), packet.tail()) {
            (Kind::Lease, Tail::Lease(tail)) => self.base.on_lease(now, server, *tail, effects),
            (Kind::RecoveryPoll, _) => self.base.on_poll(server, packet, effects),
            (Kind::ServerAck, _) => {
                if let Some(region) = self.base.sessions.find(name) {
                    self.free(now, region, packet.seq_num(), effects);
                }
            }
            (Kind::Drain, _) => {
                if let Some(run) = self.base.on_drain(server, packet, effects) {
                    let last_write = packet.header().run_last_write();
                    for function in &mut self.functions {
                        function.on_placed(now, &mut self.base, name, run.clone(), last_write);
                    }
                }
            }
            (Kind::SessionClose, Tail::Close(CloseTail { reason: CloseReason::Expire })) => {
                self.base.remember_ended(name);
                self.expire(now, name, effects);
            }
            _ => return self.offer_control(now, server, packet, effects),
        }
        Ok(())
    }

    /// What is not the base's may be a function's.
    fn offer_control(
        &mut self,
        now: Nanos,
        server: ServerIndex,
        packet: &Packet<'_>,
        effects: &mut DeviceEffects,
    ) -> Result<(), WireError> {
        let own = |function: &&mut Box<dyn Function>| function.family() == Family::Session;
        for function in self.functions.iter_mut().filter(own) {
            if function.on_control(now, &mut self.base, server, packet, effects)? {
                return Ok(());
            }
        }
        Err(WireError::InvalidField)
    }

    // ---- the end of a session (rule 11)

    /// Ends a session once no log holds anything of it.
    fn expire(&mut self, now: Nanos, name: SessionName, effects: &mut DeviceEffects) {
        let Some(region) = self.base.sessions.find(name) else {
            if self.base.roomless.forget(name) {
                for function in &mut self.functions {
                    function.on_roomless_ended(now, &mut self.base, name);
                }
            }
            return self.base.send_confirmation(name, effects);
        };
        let Some(session) = self.base.sessions.get_mut(region) else { return };
        let begins = !std::mem::replace(&mut session.closing, true);
        let empty = session.held.is_empty();
        self.base.touch_session(name);
        if begins {
            self.tell(now, region, SessionChange::Closing, effects);
        }
        if !empty || self.base.flushing.values().any(|flushing| *flushing == name) {
            return;
        }
        self.tell(now, region, SessionChange::Ending, effects);
        let token = Token(FLUSH_TOKEN_FIRST + self.base.flush_next);
        self.base.flush_next += 1;
        self.base.flushing.insert(token, name);
        effects.own(DeviceOwn::FlushErasures { token });
    }

    /// The erasures of a session that ends are durable.
    fn end(&mut self, now: Nanos, name: SessionName, effects: &mut DeviceEffects) {
        if let Some((region, session)) = self.base.sessions.remove(name) {
            assert!(session.held.is_empty(), "a session is forgotten only when its log is empty");
            self.base.drop_answers(session.answers);
            self.base.touch_session(name);
            self.base.fragments[usize::from(name.server.0)].forget_session(name.id);
            self.tell(now, region, SessionChange::Ended, effects);
        }
        self.base.send_confirmation(name, effects);
    }

    /// Sessions that have neither entries nor traffic are forgotten; if one lives after all, the
    /// server's next drain question teaches it again. Their region is free once the erasure of their
    /// record is durable.
    fn forget_idle(&mut self, now: Nanos, effects: &mut DeviceEffects) {
        for idle in self.base.idle_sessions(now) {
            self.expire(now, idle, effects);
        }
        self.base.idle_check_at = now.plus(Nanos(self.base.config.idle_max.0 / 4 + 1));
    }
}

/// The family of a packet that is not of sessions and devices; what is no whole header is left to be refused as theirs.
fn other_family(message: &[u8]) -> Option<Family> {
    let is_header =
        message.len() >= HEADER_BYTES && message[..4] == MAGIC.to_le_bytes() && message[4] == VERSION;
    Family::of_packet(message).filter(|family| is_header && *family != Family::Session)
}

impl Machine for Pipeline {
    type Own = DeviceOwn;

    fn on_message(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        to: SocketAddr,
        message: &[u8],
        effects: &mut Effects<DeviceOwn>,
    ) {
        self.on_arrival(now, Origin { address: from, port: None }, to, message, effects);
    }

    fn on_persisted(&mut self, now: Nanos, token: Token, effects: &mut Effects<DeviceOwn>) {
        if let Some(name) = self.base.flushing.remove(&token) {
            return self.end(now, name, effects);
        }
        if let Some(at) = self.owner(token) {
            self.functions[at].on_persisted(now, &mut self.base, token, effects);
        }
        self.base.release_answers(token, effects);
    }

    fn on_timer(&mut self, now: Nanos, effects: &mut Effects<DeviceOwn>) {
        self.before(now, &Before::Timer, effects);
        self.base.ask_for_leases(now, effects);
        for function in &mut self.functions {
            function.on_timer(now, &mut self.base, effects);
        }
        if self.base.idle_check_at <= now {
            self.forget_idle(now, effects);
        }
    }

    fn next_timer(&self) -> Option<Nanos> {
        let leases = self.base.authorities.iter().map(|authority| authority.lease_ask_at);
        let functions = self.functions.iter().filter_map(|function| function.next_timer());
        leases.chain(functions).chain([self.base.idle_check_at]).min()
    }
}
