//! Whether what the clients saw agrees with one sequential order of all requests.
//!
//! Invariant: [`Order::check`] accepts only linearizable histories (the order in which the server
//! executed the surviving writes is the witness); [`is_linearizable`] decides small histories
//! without a witness, by trying all orders, and is what `check` is validated against.

use crate::app::{App, Op, Reply};
use std::collections::HashSet;

/// One request as its client saw it. Moments are drawn from one counter over all clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Which session sent it, counted over the run.
    pub session: usize,
    /// Its place in the session.
    pub seq: u64,
    /// What it asks.
    pub op: Op,
    /// A read that need not be linearizable.
    pub relaxed: bool,
    /// When the caller made it.
    pub invoked: u64,
    /// When the caller was told that it is complete, if ever.
    pub completed: Option<u64>,
    /// What the caller was told.
    pub reply: Option<Reply>,
}

impl Call {
    /// Whether the client was told that this call is complete before it made `other`.
    fn is_before(&self, other: &Call) -> bool {
        self.completed.is_some_and(|completed| completed < other.invoked)
    }
}

/// How a history breaks its promise. The numbers are indices of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contradiction {
    /// A completed write is not in the order.
    Lost(usize),
    /// A write is in the order twice.
    Twice(usize),
    /// Two writes of one session stand in the wrong order.
    SessionOrder(usize, usize),
    /// The second was complete before the first was made, and stands behind it.
    RealTime(usize, usize),
    /// Replaying the order gives this write another reply than its caller got.
    Reply(usize),
    /// No instant at which this read could have been answered so.
    Read(usize),
}

/// A history with its witness: the writes in the order in which the server holds them.
#[derive(Debug, Clone, Copy)]
pub struct Order<'a> {
    /// All calls.
    pub calls: &'a [Call],
    /// Indices of the surviving writes, in their order.
    pub writes: &'a [usize],
    /// How many cells the application has.
    pub cell_count: usize,
}

impl Order<'_> {
    /// Whether everything that clients saw follows from this order.
    pub fn check(&self) -> Result<(), Contradiction> {
        self.check_presence()?;
        self.check_session_order()?;
        self.check_real_time()?;
        let states = self.replay()?;
        self.place_reads(&states)
    }

    /// What holds even where logs were lost beyond what was promised: nothing twice, sessions in
    /// order.
    pub fn check_sessions_only(&self) -> Result<(), Contradiction> {
        self.positions()?;
        self.check_session_order()
    }

    /// Where each call stands in the order.
    fn positions(&self) -> Result<Vec<Option<usize>>, Contradiction> {
        let mut positions = vec![None; self.calls.len()];
        for (position, write) in self.writes.iter().enumerate() {
            if positions[*write].replace(position).is_some() {
                return Err(Contradiction::Twice(*write));
            }
        }
        Ok(positions)
    }

    fn check_presence(&self) -> Result<(), Contradiction> {
        let positions = self.positions()?;
        let lost = |(index, call): &(usize, &Call)| {
            call.op.writes() && call.completed.is_some() && positions[*index].is_none()
        };
        match self.calls.iter().enumerate().find(lost) {
            Some((index, _)) => Err(Contradiction::Lost(index)),
            None => Ok(()),
        }
    }

    fn check_session_order(&self) -> Result<(), Contradiction> {
        let mut last: Vec<Option<usize>> = vec![None; self.session_count()];
        for write in self.writes {
            let call = &self.calls[*write];
            match last[call.session].replace(*write) {
                Some(earlier) if self.calls[earlier].seq >= call.seq => {
                    return Err(Contradiction::SessionOrder(earlier, *write));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn session_count(&self) -> usize {
        self.calls.iter().map(|call| call.session + 1).max().unwrap_or(0)
    }

    fn check_real_time(&self) -> Result<(), Contradiction> {
        // From the back: the earliest completion among what stands behind.
        let mut earliest: Option<usize> = None;
        for write in self.writes.iter().rev() {
            match earliest {
                Some(behind) if self.calls[behind].is_before(&self.calls[*write]) => {
                    return Err(Contradiction::RealTime(*write, behind));
                }
                _ => {}
            }
            let completed = |index: usize| self.calls[index].completed.unwrap_or(u64::MAX);
            if earliest.is_none_or(|behind| completed(*write) < completed(behind)) {
                earliest = Some(*write);
            }
        }
        Ok(())
    }

    /// The states before the first write, and after each.
    fn replay(&self) -> Result<Vec<App>, Contradiction> {
        let mut states = Vec::with_capacity(self.writes.len() + 1);
        let mut app = App::new(self.cell_count);
        states.push(app.clone());
        for write in self.writes {
            let call = &self.calls[*write];
            let reply = app.apply(&call.op);
            if call.completed.is_some() && call.reply != Some(reply) {
                return Err(Contradiction::Reply(*write));
            }
            states.push(app.clone());
        }
        Ok(states)
    }

    /// Finds every completed read a place between two writes. Reads are placed as early as possible
    /// in the order in which they were made: a read that finds no place so finds none at all.
    fn place_reads(&self, states: &[App]) -> Result<(), Contradiction> {
        let mut reads: Vec<usize> =
            (0..self.calls.len()).filter(|index| self.must_be_placed(*index)).collect();
        reads.sort_by_key(|index| self.calls[*index].invoked);
        let mut floors = Floors::new(self);
        let mut session_floors = vec![0; self.session_count()];
        for read in reads {
            let call = &self.calls[read];
            let own = session_floors[call.session].max(self.after_own_writes(call));
            let floor = floors.advance(call.invoked).max(own);
            let ceiling = self.before_later_writes(call);
            let place = (floor..=ceiling).find(|place| Some(states[*place].look(&call.op)) == call.reply);
            let place = place.ok_or(Contradiction::Read(read))?;
            floors.add(call.completed.unwrap_or(u64::MAX), place);
            session_floors[call.session] = place;
        }
        Ok(())
    }

    fn must_be_placed(&self, index: usize) -> bool {
        let call = &self.calls[index];
        !call.op.writes() && !call.relaxed && call.completed.is_some()
    }

    /// The first place behind the writes that its own session made before.
    fn after_own_writes(&self, read: &Call) -> usize {
        let own = |write: &&usize| {
            let call = &self.calls[**write];
            call.session == read.session && call.seq < read.seq
        };
        self.writes.iter().rposition(|write| own(&write)).map_or(0, |position| position + 1)
    }

    /// The last place before the writes that were made after it was complete, or later in its own
    /// session.
    fn before_later_writes(&self, read: &Call) -> usize {
        let later = |write: &usize| {
            let call = &self.calls[*write];
            read.is_before(call) || (call.session == read.session && call.seq > read.seq)
        };
        self.writes.iter().position(later).unwrap_or(self.writes.len())
    }
}

/// The first place that a read made at a moment may take, in view of all that was complete before.
struct Floors {
    /// Completion and the first place behind, not yet counted in; ascending from the back.
    ahead: Vec<(u64, usize)>,
    floor: usize,
}

impl Floors {
    fn new(order: &Order<'_>) -> Floors {
        let completed = |(position, write): (usize, &usize)| {
            order.calls[*write].completed.map(|completed| (completed, position + 1))
        };
        let mut ahead: Vec<(u64, usize)> = order.writes.iter().enumerate().filter_map(completed).collect();
        ahead.sort_unstable_by(|one, other| other.cmp(one));
        Floors { ahead, floor: 0 }
    }

    fn advance(&mut self, moment: u64) -> usize {
        while self.ahead.last().is_some_and(|(completed, _)| *completed < moment) {
            self.floor = self.floor.max(self.ahead.pop().map_or(0, |(_, place)| place));
        }
        self.floor
    }

    fn add(&mut self, completed: u64, place: usize) {
        let at = self.ahead.partition_point(|(other, _)| *other > completed);
        self.ahead.insert(at, (completed, place));
    }
}

/// Whether any order of these calls explains them, sessions' orders included (after Wing and Gong).
/// At most 64 calls; the time grows exponentially with how many overlap.
pub fn is_linearizable(calls: &[Call], cell_count: usize) -> bool {
    assert!(calls.len() <= 64, "a set of calls is a mask of 64 bits");
    let needed = calls
        .iter()
        .enumerate()
        .filter(|(_, call)| call.completed.is_some() && !call.relaxed)
        .fold(0, |mask, (index, _)| mask | 1 << index);
    Search { calls, needed, visited: HashSet::new() }.extend(0, &App::new(cell_count))
}

struct Search<'a> {
    calls: &'a [Call],
    needed: u64,
    visited: HashSet<(u64, App)>,
}

impl Search<'_> {
    /// Whether the calls not in `taken` can follow a state.
    fn extend(&mut self, taken: u64, app: &App) -> bool {
        if taken & self.needed == self.needed {
            return true;
        }
        if !self.visited.insert((taken, app.clone())) {
            return false;
        }
        (0..self.calls.len()).any(|next| self.can_follow(taken, next) && self.take(taken, next, app))
    }

    fn can_follow(&self, taken: u64, next: usize) -> bool {
        let call = &self.calls[next];
        let optional_read = !call.op.writes() && (call.relaxed || call.completed.is_none());
        let must_precede = |(index, other): (usize, &Call)| {
            let waits = self.needed & (1 << index) != 0 && taken & (1 << index) == 0;
            let earlier_in_session = other.session == call.session && other.seq < call.seq;
            waits && (other.is_before(call) || earlier_in_session)
        };
        let overtaken = |(index, other): (usize, &Call)| {
            taken & (1 << index) != 0 && other.session == call.session && other.seq > call.seq
        };
        let mut others = self.calls.iter().enumerate().filter(|(index, _)| *index != next);
        taken & (1 << next) == 0
            && !optional_read
            && !others.any(|other| must_precede(other) || overtaken(other))
    }

    fn take(&mut self, taken: u64, next: usize, app: &App) -> bool {
        let mut app = app.clone();
        let call = &self.calls[next];
        let reply = app.apply(&call.op);
        let agrees = call.completed.is_none() || call.reply == Some(reply);
        agrees && self.extend(taken | 1 << next, &app)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::WriteToken;
    use crate::rng::Rng;

    /// Builds histories by hand: each call is (session, op, invoked, completed).
    struct Hand {
        calls: Vec<Call>,
        app: App,
    }

    impl Hand {
        fn new() -> Hand {
            Hand { calls: Vec::new(), app: App::new(2) }
        }

        fn set(cell: u8, token: u64) -> Op {
            Op::Set { cell, token: WriteToken(token) }
        }

        /// A call that is executed now and answered truly.
        fn call(&mut self, session: usize, op: Op, invoked: u64, completed: u64) -> usize {
            let reply = self.app.apply(&op);
            self.said(session, op, invoked, completed, reply)
        }

        fn said(&mut self, session: usize, op: Op, invoked: u64, completed: u64, reply: Reply) -> usize {
            let seq = 1 + self.calls.iter().filter(|call| call.session == session).count() as u64;
            let (completed, reply) = (Some(completed), Some(reply));
            self.calls.push(Call { session, seq, op, relaxed: false, invoked, completed, reply });
            self.calls.len() - 1
        }

        fn verdicts(&self, writes: &[usize]) -> (Result<(), Contradiction>, bool) {
            let order = Order { calls: &self.calls, writes, cell_count: 2 };
            (order.check(), is_linearizable(&self.calls, 2))
        }
    }

    #[test]
    fn overlapping_writes_may_take_either_order() {
        let mut hand = Hand::new();
        let one = hand.call(0, Hand::set(0, 1), 1, 10);
        let two = hand.call(1, Hand::set(0, 2), 2, 9);
        hand.call(2, Op::Get { cell: 0 }, 11, 12);
        assert_eq!(hand.verdicts(&[one, two]), (Ok(()), true));
        assert_eq!(hand.verdicts(&[two, one]).0, Err(Contradiction::Read(2)));
    }

    #[test]
    fn a_read_that_misses_a_completed_write_is_found() {
        let mut hand = Hand::new();
        let before = hand.app.look(&Op::Get { cell: 0 });
        let write = hand.call(0, Hand::set(0, 1), 1, 2);
        let read = hand.said(1, Op::Get { cell: 0 }, 3, 4, before);
        assert_eq!(hand.verdicts(&[write]), (Err(Contradiction::Read(read)), false));
    }

    #[test]
    fn two_reads_that_see_time_run_backward_are_found() {
        let mut hand = Hand::new();
        let old = hand.app.look(&Op::Get { cell: 0 });
        let write = hand.call(0, Hand::set(0, 1), 1, 20);
        hand.call(1, Op::Get { cell: 0 }, 2, 3);
        let read = hand.said(2, Op::Get { cell: 0 }, 4, 5, old);
        assert_eq!(hand.verdicts(&[write]), (Err(Contradiction::Read(read)), false));
    }

    #[test]
    fn a_read_of_two_cells_sees_one_instant() {
        let mut hand = Hand::new();
        let mut torn = App::new(2);
        torn.apply(&Hand::set(1, 2));
        let one = hand.call(0, Hand::set(0, 1), 1, 20);
        let two = hand.call(0, Hand::set(1, 2), 2, 21);
        let op = Op::GetTwo { cells: [0, 1] };
        let read = hand.said(1, op, 3, 22, torn.look(&op));
        assert_eq!(hand.verdicts(&[one, two]), (Err(Contradiction::Read(read)), false));
    }

    #[test]
    fn a_lost_a_doubled_and_a_reordered_write_are_found() {
        let mut hand = Hand::new();
        let one = hand.call(0, Op::Append { cell: 0, token: WriteToken(1) }, 1, 2);
        let two = hand.call(0, Op::Append { cell: 0, token: WriteToken(2) }, 3, 4);
        assert_eq!(hand.verdicts(&[one, two]), (Ok(()), true));
        assert_eq!(hand.verdicts(&[one]).0, Err(Contradiction::Lost(two)));
        assert_eq!(hand.verdicts(&[one, two, one]).0, Err(Contradiction::Twice(one)));
        assert_eq!(hand.verdicts(&[two, one]).0, Err(Contradiction::SessionOrder(two, one)));
    }

    #[test]
    fn writes_of_two_sessions_keep_the_order_of_real_time() {
        let mut hand = Hand::new();
        let one = hand.call(0, Hand::set(0, 1), 1, 2);
        let two = hand.call(1, Hand::set(0, 2), 3, 4);
        assert_eq!(hand.verdicts(&[two, one]).0, Err(Contradiction::RealTime(two, one)));
    }

    #[test]
    fn a_reply_that_a_replay_contradicts_is_found() {
        let mut hand = Hand::new();
        let one = hand.call(0, Op::Append { cell: 0, token: WriteToken(1) }, 1, 10);
        let two = hand.call(1, Op::Append { cell: 0, token: WriteToken(2) }, 1, 10);
        assert_eq!(hand.verdicts(&[two, one]).0, Err(Contradiction::Reply(two)));
    }

    #[test]
    fn what_never_completed_may_have_happened_or_not() {
        let mut hand = Hand::new();
        let write = hand.call(0, Hand::set(0, 1), 1, 2);
        hand.calls[write].completed = None;
        hand.calls[write].reply = None;
        assert_eq!(hand.verdicts(&[]), (Ok(()), true));
        hand.call(1, Op::Get { cell: 0 }, 5, 6);
        assert_eq!(hand.verdicts(&[write]), (Ok(()), true));
        assert_eq!(hand.verdicts(&[]).0, Err(Contradiction::Read(1)));
    }

    #[test]
    fn a_relaxed_read_may_be_stale() {
        let mut hand = Hand::new();
        let old = hand.app.look(&Op::Get { cell: 0 });
        let write = hand.call(0, Hand::set(0, 1), 1, 2);
        let read = hand.said(1, Op::Get { cell: 0 }, 3, 4, old);
        hand.calls[read].relaxed = true;
        assert_eq!(hand.verdicts(&[write]), (Ok(()), true));
    }

    /// Random histories of a true sequential machine, then with one reply damaged: whatever the
    /// witness accepts, the exhaustive search accepts too.
    #[test]
    fn the_witness_accepts_only_what_the_exhaustive_search_accepts() {
        let mut damaged_count = 0;
        for seed in 0..10_000 {
            let mut rng = Rng::new(seed, 0);
            let (mut hand, writes) = random_history(&mut rng);
            let (witnessed, searched) = hand.verdicts(&writes);
            assert_eq!((witnessed, searched), (Ok(()), true), "seed {seed}: {:?}", hand.calls);
            let victim = rng.index(hand.calls.len());
            hand.calls[victim].reply = hand.calls[rng.index(hand.calls.len())].reply;
            let (witnessed, searched) = hand.verdicts(&writes);
            assert!(searched || witnessed.is_err(), "seed {seed}: {:?}", hand.calls);
            damaged_count += usize::from(!searched);
        }
        assert!(damaged_count > 2_000, "only {damaged_count} histories were damaged visibly");
    }

    fn random_history(rng: &mut Rng) -> (Hand, Vec<usize>) {
        let mut hand = Hand::new();
        let mut writes = Vec::new();
        let mut session_free = [0; 3];
        for step in 1..=8 {
            // Executed at 10 x step; made and completed somewhere around, in session order.
            let session = rng.index(3);
            let executed = 10 * step;
            let invoked = executed - rng.between(1, 30).min(executed - session_free[session]);
            let completed = executed + rng.between(1, 30);
            session_free[session] = executed;
            let token = WriteToken(step);
            let cell = rng.below(2) as u8;
            let op = match rng.below(5) {
                0 => Op::Set { cell, token },
                1 => Op::Append { cell, token },
                2 => Op::Swap { cells: [0, 1], token },
                3 => Op::Get { cell },
                _ => Op::GetTwo { cells: [0, 1] },
            };
            let index = hand.call(session, op, invoked, completed);
            writes.extend(op.writes().then_some(index));
        }
        (hand, writes)
    }
}
