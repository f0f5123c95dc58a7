//! What members of all protocols have: who they are, their view and lease, and the datagrams that are being written.
//!
//! Invariant: a datagram is of one epoch: what is being written when the view changes is thrown away.

use crate::datagram::{begin, message, open, seal, Head, Messages, Refusal, DATAGRAM_BYTES_MAX, HEAD_BYTES};
use crate::fault::Fault;
use crate::replica::{Decline, MemberConfig, ReplicaCounters, ReplicaOwn};
use crate::view::{Member, MemberId, Standing, View};
use scotfree_core::{Effects, Nanos};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;

#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) config: MemberConfig,
    pub(crate) counters: ReplicaCounters,
    view: Option<View>,
    lease_until: Nanos,
    writing: BTreeMap<MemberId, Vec<u8>>,
}

/// What it will do depends on: what is the same all its life, and what was counted, apart. Nothing is being written
/// between two bursts.
impl Hash for Desk {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.view, self.lease_until).hash(state);
    }
}

impl Desk {
    pub(crate) fn new(config: MemberConfig) -> Desk {
        Desk {
            config,
            counters: ReplicaCounters::default(),
            view: None,
            lease_until: Nanos(0),
            writing: BTreeMap::new(),
        }
    }

    pub(crate) fn plants(&self, fault: Fault) -> bool {
        self.config.planted.has(fault)
    }

    /// Takes a view that comes after the present one. False if it does not, or is none.
    pub(crate) fn take_view(&mut self, view: &View) -> bool {
        if view.epoch <= self.epoch() || view.check().is_err() {
            return false;
        }
        self.counters.views += 1;
        self.view = Some(view.clone());
        self.writing.values_mut().for_each(Vec::clear);
        true
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.view.as_ref().map_or(0, |view| view.epoch)
    }

    pub(crate) fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    /// This member in its view, if the view means this life of it.
    pub(crate) fn myself(&self) -> Option<&Member> {
        let member = self.view.as_ref()?.member(self.config.id)?;
        (member.boot == 0 || member.boot == self.config.boot).then_some(member)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.myself().is_some_and(|member| member.standing == Standing::Full)
    }

    pub(crate) fn set_lease(&mut self, until: Nanos) {
        self.lease_until = until;
    }

    /// G1: nothing is answered from this member's state without a lease.
    pub(crate) fn has_lease(&self, now: Nanos) -> bool {
        now < self.lease_until || self.plants(Fault::LeaseIgnored)
    }

    pub(crate) fn may_take_requests(&self, now: Nanos) -> Result<(), Decline> {
        if self.myself().is_none() {
            return Err(Decline::NoView);
        }
        self.has_lease(now).then_some(()).ok_or(Decline::NoLease)
    }

    pub(crate) fn real_ms(&self, now: Nanos) -> u64 {
        self.config.real_ms_at_zero + now.0 / 1_000_000
    }

    pub(crate) fn decline(&mut self, ticket: u64, why: Decline, effects: &mut Effects<ReplicaOwn>) {
        self.counters.declined += 1;
        effects.own(ReplicaOwn::Decline { ticket, why });
    }

    /// Opens a datagram that is for this member, of its group and of its epoch (G2).
    pub(crate) fn open<'a>(&mut self, bytes: &'a [u8]) -> Option<(MemberId, Messages<'a>)> {
        self.counters.received += 1;
        let (head, messages) = match self.look(bytes) {
            Ok(opened) => opened,
            Err(refusal) => {
                *self.counters.refused.entry(refusal).or_default() += 1;
                return None;
            }
        };
        let is_older = head.epoch < self.epoch() && self.plants(Fault::OlderEpochTaken);
        let is_member = self.view.as_ref().is_some_and(|view| view.member(head.from).is_some());
        if (head.epoch != self.epoch() && !is_older) || !is_member || self.myself().is_none() {
            self.counters.other_epoch += 1;
            return None;
        }
        Some((head.from, messages))
    }

    fn look<'a>(&self, bytes: &'a [u8]) -> Result<(Head, Messages<'a>), Refusal> {
        let (head, messages) = open(bytes, &self.config.keys)?;
        if head.group != self.config.group {
            return Err(Refusal::OtherGroup);
        }
        (head.to == self.config.id).then_some((head, messages)).ok_or(Refusal::OtherMember)
    }

    /// Counts a message that contradicts itself.
    pub(crate) fn damaged(&mut self) {
        *self.counters.refused.entry(Refusal::Damaged).or_default() += 1;
    }

    /// Adds a message to what is being written to a member; what is full goes out first.
    pub(crate) fn tell(
        &mut self,
        to: MemberId,
        tag: u8,
        body_bytes: usize,
        effects: &mut Effects<ReplicaOwn>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let used = self.writing.get(&to).map_or(0, Vec::len);
        if used > HEAD_BYTES && used + body_bytes + 8 > DATAGRAM_BYTES_MAX {
            self.send(to, effects);
        }
        let datagram = self.writing.entry(to).or_default();
        if datagram.is_empty() {
            begin(datagram);
        }
        message(tag, datagram, write);
    }

    /// The member at this address is sent a datagram, without messages if there are none.
    pub(crate) fn greet(&mut self, address: SocketAddr) {
        let members = self.view.iter().flat_map(|view| &view.members);
        let Some(member) =
            members.filter(|member| member.peers == address).find(|member| member.id != self.config.id)
        else {
            return;
        };
        let datagram = self.writing.entry(member.id).or_default();
        if datagram.is_empty() {
            begin(datagram);
        }
    }

    /// Sends all that is being written.
    pub(crate) fn flush(&mut self, effects: &mut Effects<ReplicaOwn>) {
        let waiting: Vec<MemberId> =
            self.writing.iter().filter(|(_, datagram)| !datagram.is_empty()).map(|(to, _)| *to).collect();
        for to in waiting {
            self.send(to, effects);
        }
    }

    fn send(&mut self, to: MemberId, effects: &mut Effects<ReplicaOwn>) {
        let address = self.view.as_ref().and_then(|view| view.member(to)).map(|member| member.peers);
        let (Some(address), Some(datagram)) = (address, self.writing.get_mut(&to)) else { return };
        let head = Head {
            from: self.config.id,
            to,
            group: self.config.group,
            epoch: self.view.as_ref().map_or(0, |view| view.epoch),
        };
        seal(&head, &self.config.keys.newest(), datagram);
        effects.send(self.config.address, address, |out| out.extend_from_slice(datagram));
        datagram.clear();
        self.counters.sent += 1;
    }
}

/// Nothing is tried again sooner, however soon it was tried first.
const SPAN_MIN: Nanos = Nanos::from_millis(1);

/// When to try again: soon at first, then less and less often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Retry {
    at: Option<Nanos>,
    span: Nanos,
}

/// Whether it waits; until when is left out, so that a group is the same sooner and later.
impl Hash for Retry {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.at.is_some().hash(state);
    }
}

impl Retry {
    /// Nothing waits.
    pub(crate) fn stop(&mut self) {
        *self = Retry::default();
    }

    /// Something waits, from now on unless it has before.
    pub(crate) fn start(&mut self, now: Nanos, min: Nanos) {
        if self.at.is_none() {
            *self = Retry { at: Some(now.plus(min)), span: min };
        }
    }

    /// It went on: what is left waits from now on.
    pub(crate) fn restart(&mut self, now: Nanos, min: Nanos) {
        *self = Retry { at: Some(now.plus(min)), span: min };
    }

    /// Whether it is time; the next time is later.
    pub(crate) fn is_due(&mut self, now: Nanos, max: Nanos) -> bool {
        let is_due = self.at.is_some_and(|at| at <= now);
        if is_due {
            self.span = Nanos((self.span.0 * 2).max(SPAN_MIN.0).min(max.0));
            self.at = Some(now.plus(self.span));
        }
        is_due
    }

    pub(crate) fn at(self) -> Option<Nanos> {
        self.at
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::replica::StableWhen;
    use crate::toy::{address, config, view};
    use scotfree_core::Effect;

    /// Member 1 of a group of two.
    fn desk() -> Desk {
        let mut desk = Desk::new(config(1, StableWhen::InMemory));
        assert!(desk.take_view(&view(1, &[1, 2], &[])));
        desk
    }

    /// The datagrams that a flush sends: how many bytes each has.
    fn flushed(desk: &mut Desk) -> Vec<usize> {
        let mut effects = Effects::new();
        desk.flush(&mut effects);
        sizes(&effects)
    }

    fn sizes(effects: &Effects<ReplicaOwn>) -> Vec<usize> {
        let sent = effects.iter().filter_map(|effect| match effect {
            Effect::Send { bytes, .. } => Some(effects.bytes(*bytes).len()),
            _ => None,
        });
        sent.collect()
    }

    #[test]
    fn a_view_that_means_another_life_of_this_member_means_another() {
        for (boot, is_meant) in [(0, true), (1, false), (2, true), (3, false)] {
            let mut desk = Desk::new(MemberConfig { boot: 2, ..config(1, StableWhen::InMemory) });
            let mut stated = view(1, &[1, 2], &[]);
            stated.members[0].boot = boot;
            assert!(desk.take_view(&stated));
            assert_eq!(desk.myself().is_some(), is_meant, "life {boot}");
        }
    }

    /// G2: neither of one that is over nor of one that this member does not know yet.
    #[test]
    fn what_was_said_in_another_view_is_not_taken() {
        for (epoch, is_taken) in [(1, false), (2, true), (3, false)] {
            let mut desk = desk();
            assert!(desk.take_view(&view(2, &[1, 2], &[])));
            assert_eq!(desk.open(&said_by_the_other(epoch)).is_some(), is_taken, "in epoch {epoch}");
            assert_eq!(desk.counters.other_epoch, u64::from(!is_taken));
        }
    }

    /// A datagram of member 2, in the view of this epoch.
    fn said_by_the_other(epoch: u64) -> Vec<u8> {
        let mut desk = Desk::new(config(2, StableWhen::InMemory));
        assert!(desk.take_view(&view(epoch, &[1, 2], &[])));
        let mut effects = Effects::new();
        desk.tell(MemberId(1), 1, 0, &mut effects, |_| {});
        desk.flush(&mut effects);
        let sent = effects.iter().find_map(|effect| match effect {
            Effect::Send { bytes, .. } => Some(effects.bytes(*bytes).to_vec()),
            _ => None,
        });
        sent.unwrap()
    }

    #[test]
    fn who_does_not_authenticate_is_sent_a_datagram_if_it_is_at_a_members_address() {
        let mut desk = desk();
        desk.greet(address(1));
        desk.greet(address(3));
        assert_eq!(flushed(&mut desk), Vec::<usize>::new(), "itself, and a stranger");
        desk.greet(address(2));
        desk.greet(address(2));
        assert_eq!(flushed(&mut desk), [HEAD_BYTES]);
    }

    #[test]
    fn no_datagram_is_longer_than_one_may_be() {
        let mut desk = desk();
        let mut effects = Effects::new();
        for _ in 0..7 {
            desk.tell(MemberId(2), 1, 20_000, &mut effects, |out| out.resize(out.len() + 20_000, 0));
        }
        desk.flush(&mut effects);
        let sizes = sizes(&effects);
        assert!(sizes.len() == 3 && sizes.iter().all(|size| *size <= DATAGRAM_BYTES_MAX), "{sizes:?}");
    }

    #[test]
    fn what_one_burst_says_leaves_in_one_datagram_and_a_new_view_takes_nothing_along() {
        let mut desk = desk();
        let mut effects = Effects::new();
        desk.tell(MemberId(2), 1, 0, &mut effects, |_| {});
        desk.tell(MemberId(2), 2, 0, &mut effects, |_| {});
        assert_eq!(flushed(&mut desk), [HEAD_BYTES + 16]);
        desk.tell(MemberId(2), 1, 0, &mut effects, |_| {});
        let view = View { epoch: 2, ..desk.view().unwrap().clone() };
        assert!(desk.take_view(&view));
        assert_eq!(flushed(&mut desk), Vec::<usize>::new());
    }
}
