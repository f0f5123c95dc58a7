//! How long what a read shows is true, for a device that answers it again: said only to clients that take the note.
//!
//! Invariant: whatever is said was true when the read was executed: nobody gives a key a time to live unseen, and one
//! that has some is asked for what remains of it just before it is read, with no write in between.

use super::lane::Expected;
use super::markers::integer_reply;
use super::{Back, BackEvent, BackEvents, Item, Lane};
use crate::codec::write_words;
use crate::payload::RequestFlags;

/// It lives as long as nobody writes it.
pub(super) const FOR_EVER: u64 = u64::MAX;

/// What is known of the data when a read is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Vouching {
    /// Nothing is said.
    No,
    /// No key has a time to live.
    ForEver,
    /// Some may.
    ByAsking,
}

/// The key of a read that shows one value and asks for a note on it.
fn noted_key(item: &Item) -> Option<&[u8]> {
    let is_plain = item.has(RequestFlags::NOTED)
        && !item.writes
        && !item.is_pack()
        && !item.is_transaction()
        && item.private().is_none();
    let args = (is_plain && item.request.len() == 1).then(|| item.request.args(&item.payload, 0))?;
    (args.len() == 2 && args.is(0, "GET")).then(|| args.get(1))
}

/// Before a read is sent by itself: what it is said to live, or the question for it.
pub(super) fn vouch_alone(vouching: Vouching, item: &mut Item, lane: &mut Lane) {
    item.lives_ms = None;
    let Some(key) = noted_key(item) else { return };
    match vouching {
        Vouching::No => {}
        Vouching::ForEver => item.lives_ms = Some(FOR_EVER),
        Vouching::ByAsking => {
            lane.enter(item.db(0), item.request.head.resp());
            write_words(&mut lane.output, &[b"PTTL", key]);
            lane.expected.push_back(Expected::Life);
        }
    }
}

/// Before a read is sent in a transaction with others, where nothing is asked.
pub(super) fn vouch_in_batch(vouching: Vouching, item: &mut Item) {
    item.lives_ms = noted_key(item).filter(|_| vouching == Vouching::ForEver).map(|_| FOR_EVER);
}

impl Back {
    /// Where the server may lose keys by itself (it evicts some), nothing is vouched for.
    pub(super) fn vouching(&self) -> Vouching {
        let vouches = self.config.vouches && self.description.writes_refused.is_none();
        match () {
            () if !vouches => Vouching::No,
            () if self.place.may_expire => Vouching::ByAsking,
            () => Vouching::ForEver,
        }
    }

    /// What is left of the life of what the first read under way shows.
    pub(super) fn on_life(&mut self, reply: &[u8]) {
        let left = integer_reply(reply).and_then(|left_ms| match left_ms {
            -1 => Some(FOR_EVER),
            left_ms => u64::try_from(left_ms).ok(),
        });
        if let Some(item) = self.direct.front_mut() {
            item.lives_ms = left;
        }
    }
}

/// Before a read's reply: how long it is true, if that is known and it is a value.
pub(super) fn say_life(item: &Item, reply: &[u8], events: &mut BackEvents) {
    let is_value = reply.first() == Some(&b'$') && reply.get(1).is_some_and(u8::is_ascii_digit);
    if let (Some(ticket), Some(remaining_ms), true) = (item.ticket, item.lives_ms, is_value) {
        events.push(BackEvent::Lives { ticket, remaining_ms });
    }
}
