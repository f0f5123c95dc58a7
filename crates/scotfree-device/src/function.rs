//! What a function of the device is, and what it sees of a packet.
//!
//! Invariant: a function sees a packet with what was decided once for all of them; it neither checks keys nor gives
//! places, and what it wants done with the packet it says by a verdict.

use crate::base::Base;
use crate::effects::DeviceEffects;
use crate::look::LogEntryView;
use crate::origin::Origin;
use crate::restore::RestoreError;
use crate::sessions::{Region, SessionName};
pub use scotfree_core::Count;
use scotfree_core::{ByteRange, Durability, Nanos, SeqNum, ServerIndex, SessionId, Token};
use scotfree_wire::{Family, Flags, Header, Kind, Packet, Stamp, WireError};
use std::any::Any;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

/// Which way a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From a client to a server behind the device.
    ToServer(ServerIndex),
    /// From a server behind the device to a client.
    ToClient(ServerIndex),
}

/// Where a request stands in its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// It is the next: what is decided now holds.
    Next,
    /// It was seen before.
    Seen,
    /// It passes without a place: it is not the next, or its session is not known here, or it is no request.
    None,
}

/// A packet on its way through, with what is decided about it.
#[derive(Debug)]
pub struct Passing<'p> {
    /// The packet, its structure checked.
    pub packet: &'p Packet<'p>,
    /// The header of the whole request, if it came in fragments.
    pub header: &'p Header,
    /// The payload of the whole.
    pub payload: &'p [u8],
    /// Where it came from.
    pub origin: Origin,
    /// Where it goes.
    pub to: SocketAddr,
    /// Which way that is.
    pub way: Way,
    /// Its session, only if it is authentic.
    pub session: Option<Region>,
    /// Of a server's: it is authentic, and of a session that there is no room for.
    pub roomless: bool,
    /// Where it stands in its session.
    pub place: Place,
    /// The stamp under which it is passed on.
    pub stamp: Option<Stamp>,
    /// Whether a function may answer or absorb it: a read at its place, while the device may speak for the server.
    pub answerable: bool,
    /// What functions before have made durable of it.
    pub granted: Durability,
    /// No answer to it leaves before this has completed.
    pub depends: Option<Token>,
}

impl Passing<'_> {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.header.kind
    }

    /// Its place in its session.
    pub fn seq(&self) -> SeqNum {
        self.header.seq_num
    }

    /// Whether it says that others are to be passed over, and is nothing to be executed.
    pub fn is_filler(&self) -> bool {
        self.header.flags.has(Flags::SKIP)
    }
}

/// What a function wants done with a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Let the next function see it; after the last it is passed on.
    Next,
    /// It is answered with these bytes of the effects, and not passed on.
    Answer(ByteRange),
    /// It is not passed on: the function sees to it that it is answered.
    Absorb,
    /// It is dropped, and counted.
    Refuse(WireError),
}

/// What has become of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionChange {
    /// It was learnt.
    Opened,
    /// Its client speaks from another address.
    Moved,
    /// Its keys are of the cluster's key as it is now.
    Rekeyed,
    /// The epoch of its keys was taken away.
    Revoked,
    /// Everything up to here is stable.
    Stable(SeqNum),
    /// Nothing new of it is to be logged or acknowledged.
    Closing,
    /// No log holds anything of it: what else is kept of it is to be erased.
    Ending,
    /// It is gone.
    Ended,
}

/// Before what a function is told to bring its knowledge up to date.
#[derive(Debug, Clone, Copy)]
pub enum Before<'a> {
    /// A packet is to be decided about.
    Packet(&'a Packet<'a>, ServerIndex),
    /// The timers are to run.
    Timer,
    /// The device is to become the head of its chain.
    Promotion,
    /// The cluster's key is to be taken anew.
    NewKey,
    /// A fast path has logged an entry of this session that is to go to disk.
    Entry(ServerIndex, SessionId),
    /// The device is to be looked at.
    Look,
}

/// What a function has to say to the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// Something that somebody should act on.
    Alarm(String),
    /// Something to know.
    Notice(String),
}

/// A function of the device. What it does not need it leaves as it is.
pub trait Function: Debug + Send {
    /// Its name in the configuration.
    fn name(&self) -> &'static str;

    /// Whose packets are its own: control packets of this family come to it, and its answers bear the family's name.
    /// What belongs to sessions and is not the base's comes to the functions of [`Family::Session`].
    fn family(&self) -> Family;

    /// It as what it is, for those who made it.
    fn as_any(&self) -> &dyn Any;

    /// The same, to be changed.
    fn as_any_mut(&mut self) -> &mut dyn Any;

    /// Whether it acknowledges updates: such a function is the last of the list.
    fn acknowledges(&self) -> bool {
        false
    }

    /// Whether it sees what servers send to clients.
    fn hears_servers(&self) -> bool {
        false
    }

    /// The device begins: the function's tokens are `token_first ..`.
    fn begin(&mut self, _base: &mut Base, _token_first: u64) {}

    /// How many tokens it needs, without the bit of the domain.
    fn tokens_max(&self, _base: &Base) -> u64 {
        0
    }

    /// It may bring the base up to date with what it alone knows. An error is for the operator.
    fn before(
        &mut self,
        _now: Nanos,
        _base: &mut Base,
        _what: &Before<'_>,
        _effects: &mut DeviceEffects,
    ) -> Result<(), String> {
        Ok(())
    }

    /// A packet of its own family, to the device's address, whose sender nothing has been said of yet.
    fn on_own_packet(
        &mut self,
        _now: Nanos,
        _base: &mut Base,
        _origin: Origin,
        _message: &[u8],
        _effects: &mut DeviceEffects,
    ) -> Result<(), WireError> {
        Err(WireError::UnknownKind)
    }

    /// Everything is decided and carried out. An error is for the operator.
    fn after(&mut self, _base: &mut Base) -> Result<(), String> {
        Ok(())
    }

    /// Before an update at its place is stamped: will it be logged?
    fn asks_order(&self, _base: &Base, _passing: &Passing<'_>) -> bool {
        false
    }

    /// A packet passes.
    fn on_packet(
        &mut self,
        now: Nanos,
        base: &mut Base,
        passing: &mut Passing<'_>,
        effects: &mut DeviceEffects,
    ) -> Verdict;

    /// A control packet that is not the base's; whether it is this function's.
    fn on_control(
        &mut self,
        _now: Nanos,
        _base: &mut Base,
        _server: ServerIndex,
        _packet: &Packet<'_>,
        _effects: &mut DeviceEffects,
    ) -> Result<bool, WireError> {
        Ok(false)
    }

    /// Something has become of a session. Of one that has ended only the region is left.
    fn on_session(
        &mut self,
        _now: Nanos,
        _base: &mut Base,
        _region: Region,
        _change: SessionChange,
        _effects: &mut DeviceEffects,
    ) {
    }

    /// A session that there was no room for is over at its server.
    fn on_roomless_ended(&mut self, _now: Nanos, _base: &mut Base, _session: SessionName) {}

    /// Requests of a session reached the server unstamped and have got their place by its question: some may never
    /// have passed here. Those after `last_write` are reads.
    fn on_placed(
        &mut self,
        _now: Nanos,
        _base: &mut Base,
        _session: SessionName,
        _run: RangeInclusive<SeqNum>,
        _last_write: SeqNum,
    ) {
    }

    /// What was wished for under `token` is durable.
    fn on_persisted(&mut self, _now: Nanos, _base: &mut Base, _token: Token, _effects: &mut DeviceEffects) {}

    /// A domain had no room for what was wished for under `token`.
    fn on_refused(&mut self, _base: &mut Base, _token: Token) {}

    /// The domains can give this from now on, after one of them has failed.
    fn set_media(&mut self, _base: &mut Base, _media: Durability) {}

    /// The time of [`Function::next_timer`] may have come.
    fn on_timer(&mut self, _now: Nanos, _base: &mut Base, _effects: &mut DeviceEffects) {}

    /// When it is to be called next.
    fn next_timer(&self) -> Option<Nanos> {
        None
    }

    /// Takes over one record of its own, before the first packet (rule 12).
    fn restore(
        &mut self,
        _now: Nanos,
        _base: &mut Base,
        _token: Token,
        _record: &[u8],
    ) -> Result<(), RestoreError> {
        Err(RestoreError::Layout)
    }

    /// The answer to an operator's question in the function's own words, or what is wrong with it.
    fn ask(&mut self, _now: Nanos, _base: &mut Base, _question: &str) -> Result<String, String> {
        Err(format!("`{}` answers no questions", self.name()))
    }

    /// Tells of what the operator should know since the last call.
    fn check(&mut self, _tell: &mut dyn FnMut(Word)) {}

    /// What its log holds.
    fn entries<'a>(&'a self, _base: &'a Base, _out: &mut dyn FnMut(LogEntryView<'a>)) {}

    /// What it has counted.
    fn counters(&self, _out: &mut dyn FnMut(Count)) {}
}
