//! Transmit stamps on their way to the clients: they wait for each other, since a packet costs more than
//! what it tells.
//!
//! Invariant: none waits longer than [`WAIT`] once the runtime turns, and their number is bounded by that
//! of the stamps that can be asked for.

use scotfree_core::{Nanos, SessionId};
use scotfree_wire::LateStamp;

/// How long a stamp waits for company.
const WAIT: Nanos = Nanos::from_millis(5);
/// So many do not wait. They fit a packet, whosever they are.
const COMPANY_MAX: usize = 32;

/// The stamps that wait.
#[derive(Debug, Default)]
pub(super) struct LateStamps {
    waiting: Vec<(SessionId, LateStamp)>,
    due_at: Nanos,
}

impl LateStamps {
    /// One more. At the limit all are due at once.
    pub fn push(&mut self, now: Nanos, session: SessionId, stamp: LateStamp) {
        if self.waiting.is_empty() {
            self.due_at = now.plus(WAIT);
        }
        self.waiting.push((session, stamp));
        if self.waiting.len() >= COMPANY_MAX {
            self.due_at = now;
        }
    }

    /// When they are to be told, if there are any.
    pub fn due_at(&self) -> Option<Nanos> {
        (!self.waiting.is_empty()).then_some(self.due_at)
    }

    /// Takes all if it is time, those of a session in one piece.
    pub fn tell(&mut self, now: Nanos, mut each: impl FnMut(SessionId, &mut dyn Iterator<Item = LateStamp>)) {
        if self.due_at().is_none_or(|at| now < at) {
            return;
        }
        self.waiting.sort_by_key(|(session, _)| *session);
        for of_session in self.waiting.chunk_by(|a, b| a.0 == b.0) {
            for part in of_session.chunks(COMPANY_MAX) {
                each(part[0].0, &mut part.iter().map(|(_, stamp)| *stamp));
            }
        }
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_core::SeqNum;

    fn told(late: &mut LateStamps, now: Nanos) -> Vec<(u64, Vec<u64>)> {
        let mut told = Vec::new();
        late.tell(now, |session, stamps| told.push((session.0, stamps.map(|stamp| stamp.seq.0).collect())));
        told
    }

    fn push(late: &mut LateStamps, now: Nanos, session: u64, seq: u64) {
        late.push(now, SessionId(session), LateStamp { seq: SeqNum(seq), sent: Nanos(1) });
    }

    #[test]
    fn stamps_wait_for_company_and_go_together() {
        let mut late = LateStamps::default();
        assert_eq!((late.due_at(), told(&mut late, Nanos(9))), (None, vec![]));
        push(&mut late, Nanos(10), 1, 64);
        push(&mut late, Nanos(20), 2, 64);
        push(&mut late, Nanos(30), 1, 128);
        let due = late.due_at().expect("they wait");
        assert_eq!((due, told(&mut late, Nanos(due.0 - 1))), (Nanos(10).plus(WAIT), vec![]));
        assert_eq!(told(&mut late, due), [(1, vec![64, 128]), (2, vec![64])]);
        assert_eq!(late.due_at(), None);
    }

    #[test]
    fn at_company_max_nobody_waits_and_none_is_lost() {
        let mut late = LateStamps::default();
        for seq in 0..=COMPANY_MAX as u64 {
            push(&mut late, Nanos(10), 1, seq);
        }
        let told = told(&mut late, Nanos(10));
        assert_eq!(told.iter().map(|(_, seqs)| seqs.len()).collect::<Vec<_>>(), [COMPANY_MAX, 1]);
    }
}
