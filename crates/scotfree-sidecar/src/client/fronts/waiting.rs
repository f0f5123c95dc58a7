//! What waits past the order for an element, and may change data meanwhile: noted for who keeps answers.
//!
//! Invariant: whatever begins is noted before it is sent, under a number of its own, and is noted once more when it is
//! over or will have no answer.

use scotfree_core::KeyHash;
use scotfree_resp::front::Waits;
use std::collections::VecDeque;

/// What becomes of a command that waits and may change data past the order meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Waiting {
    /// It is sent. Its keys; none if they are not known.
    Begun { number: u64, keys: Option<Vec<KeyHash>> },
    /// It is answered.
    Ended { number: u64 },
    /// Its connection is gone, and the server may have answered it nevertheless.
    Orphaned { number: u64 },
}

/// What a connection waits for, by the number that it has among all.
#[derive(Debug, Default)]
pub(super) struct Waited(Option<(u64, Waits)>);

/// What nobody has taken yet.
#[derive(Debug, Default)]
pub(super) struct WaitingNotes {
    /// Somebody takes it.
    pub is_on: bool,
    begun: u64,
    noted: VecDeque<Waiting>,
}

impl WaitingNotes {
    /// Notes what a connection has begun to wait for, and that it waits no longer.
    pub fn note(&mut self, before: &mut Waited, now: Option<&Waits>) {
        if !self.is_on || before.0.as_ref().map(|(_, waits)| waits) == now {
            return;
        }
        let ended = before.0.take().map(|(number, _)| Waiting::Ended { number });
        self.noted.extend(ended);
        if let Some(waits) = now.cloned() {
            self.begun += 1;
            self.noted.push_back(Waiting::Begun { number: self.begun, keys: waits.keys.clone() });
            before.0 = Some((self.begun, waits));
        }
    }

    /// A connection is gone.
    pub fn end(&mut self, Waited(waited): Waited) {
        self.noted.extend(waited.map(|(number, _)| Waiting::Orphaned { number }));
    }

    /// What has become of it since this was taken last, in its order.
    pub fn take(&mut self) -> impl Iterator<Item = Waiting> + '_ {
        self.noted.drain(..)
    }
}
