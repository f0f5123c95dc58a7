//! How long what a read shows is true, for a device that answers it again: said only to clients that take the note.
//!
//! Invariant: whatever is said was true when the read was executed: nobody gives a key a time to live unseen, and one
//! that has some is asked for what remains of it just before it is read, with no write in between.

use super::lane::Expected;
use super::markers::integer_reply;
use super::{Back, BackEvent, BackEvents, Item, Lane};
use crate::classes::{lookup, read_again, ReadAgain};
use crate::codec::{is_error, write_words};
use crate::description::Description;
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

/// A read of one key whose client asks for a note on it: which one, and its key.
fn noted(item: &Item) -> Option<(ReadAgain, &[u8])> {
    let is_plain = item.has(RequestFlags::NOTED)
        && !item.writes
        && !item.is_pack()
        && !item.is_transaction()
        && item.private().is_none();
    let args = (is_plain && item.request.len() == 1).then(|| item.request.args(&item.payload, 0))?;
    let read = lookup(args).and_then(|row| read_again(row, args))?;
    Some((read, args.get(1)))
}

/// Before a read is sent by itself: what it is said to live, or the question for it.
pub(super) fn vouch_alone(vouching: Vouching, description: &Description, item: &mut Item, lane: &mut Lane) {
    item.lives_ms = None;
    let Some((read, key)) = noted(item) else { return };
    match vouching {
        Vouching::No => {}
        // A hash's fields may have times to live of their own, of which no key tells.
        _ if read.tells_of_hash && description.command(b"hpexpire").is_some() => {}
        // What another read says of a key that is missing changes with what is written past a device.
        Vouching::ForEver if read.is_get => item.lives_ms = Some(FOR_EVER),
        Vouching::ForEver | Vouching::ByAsking => {
            lane.enter(item.db(0), item.request.head.resp());
            write_words(&mut lane.output, &[b"PTTL", key]);
            lane.expected.push_back(Expected::Life);
        }
    }
}

/// Before a read is sent in a transaction with others, where nothing is asked.
pub(super) fn vouch_in_batch(vouching: Vouching, item: &mut Item) {
    let may_be = vouching == Vouching::ForEver && noted(item).is_some_and(|(read, _)| read.is_get);
    item.lives_ms = may_be.then_some(FOR_EVER);
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

/// Before a read's reply: how long it is true, if that is known and it is one that may be kept.
pub(super) fn say_life(item: &Item, reply: &[u8], events: &mut BackEvents) {
    let (Some(ticket), Some(remaining_ms)) = (item.ticket, item.lives_ms) else { return };
    let is_value = reply.first() == Some(&b'$') && reply.get(1).is_some_and(u8::is_ascii_digit);
    let is_get = noted(item).is_some_and(|(read, _)| read.is_get);
    if !is_error(reply) && (is_value || !is_get) {
        events.push(BackEvent::Lives { ticket, remaining_ms });
    }
}
