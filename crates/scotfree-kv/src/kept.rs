//! All that the log keeps, and how each op changes it: while serving and again at a recovery.
//!
//! Invariant: what is kept is a function of the ops in their order. An op that cannot follow the ones before it is
//! damage.

use crate::executor::Executor;
use crate::journal::{JournalError, Recovered};
use crate::op::{Op, Part, Place};
use crate::snapshot::{self, Sessions};
use crate::store::Store;
use crate::value::Value;
use scotfree_core::{SeqNum, SessionId};
use scotfree_state::{Installed, Mark, Results, ResultsLimits, Version};

/// The map, the sessions, and what a member of a group knows besides.
pub(crate) struct Kept {
    pub store: Store,
    pub sessions: Sessions,
    /// The last place of the group's order that was applied.
    pub mark: Mark,
    /// How many values of other members' making were installed.
    pub installed: u64,
    /// What the group's writes were answered.
    pub results: Results,
    pub results_limits: ResultsLimits,
}

impl Kept {
    /// Nothing but an empty map.
    pub fn new(store: Store, results_limits: ResultsLimits) -> Kept {
        let results = Results::new(results_limits);
        Kept {
            store,
            sessions: Sessions::new(),
            mark: Mark::default(),
            installed: 0,
            results,
            results_limits,
        }
    }

    /// What the log holds.
    pub fn recover(&mut self, recovered: &Recovered, executor: &mut Executor) -> Result<(), JournalError> {
        if let Some(snapshot) = &recovered.snapshot {
            snapshot::read(snapshot, self).ok_or_else(|| damaged("its snapshot is not whole"))?;
        }
        let mut loading = Loading::default();
        for record in &recovered.ops {
            match Op::read(record).ok_or_else(|| damaged("an op cannot be read"))? {
                Op::Loaded(part) => {
                    if let Some(snapshot) = loading.take(part)? {
                        self.load(&snapshot).ok_or_else(|| damaged("a member's snapshot is not whole"))?;
                    }
                }
                op => {
                    loading = Loading::default();
                    self.redo(&op, executor)?;
                }
            }
        }
        Ok(())
    }

    fn redo(&mut self, op: &Op<'_>, executor: &mut Executor) -> Result<(), JournalError> {
        match *op {
            Op::Start(record) => drop(self.sessions.insert(record.session, record)),
            Op::End(session) => drop(self.sessions.remove(&session)),
            Op::Limit(bytes) => self.store.set_data_bytes_max(bytes as usize),
            Op::Position { session, seq } => self.redo_position(Some((session, seq)))?,
            Op::Apply { session, seq, payload } => {
                executor.answer(&mut self.store, payload, true);
                self.leave_group();
                self.redo_position(Some((session, seq)))?;
            }
            Op::Applied { place, payload } => {
                executor.answer(&mut self.store, payload, true);
                let mut reply = Vec::new();
                executor.write_response(&self.store, &mut reply);
                self.redo_place(&place, &reply)?;
            }
            Op::Answered { place, reply } => self.redo_place(&place, reply)?,
            Op::Installed(installed) => {
                self.redo_position(installed.session)?;
                self.install(&installed).ok_or_else(|| damaged("a value cannot be read"))?;
            }
            Op::Loaded(_) => unreachable!("parts of a snapshot are gathered before they come here"),
        }
        Ok(())
    }

    fn redo_place(&mut self, place: &Place, reply: &[u8]) -> Result<(), JournalError> {
        if place.mark != self.next_mark() {
            return Err(damaged(&format!("write {} of the group is out of its order", place.mark.0)));
        }
        self.redo_position(place.session)?;
        self.take(place, reply);
        Ok(())
    }

    /// Moves a session's position forward; backward, or without a session, is damage.
    fn redo_position(&mut self, position: Option<(SessionId, SeqNum)>) -> Result<(), JournalError> {
        let Some((session, seq)) = position else { return Ok(()) };
        if !self.is_forward(session, seq) {
            return Err(damaged(&format!("request {seq} of session {session} is out of its order")));
        }
        self.move_position(session, seq);
        Ok(())
    }

    /// The place behind the last one.
    pub fn next_mark(&self) -> Mark {
        Mark(self.mark.0 + 1)
    }

    /// Whether a session is known and its request's place is not behind it.
    pub fn is_forward(&self, session: SessionId, seq: SeqNum) -> bool {
        self.sessions.get(&session).is_some_and(|record| record.position < seq)
    }

    /// A session's position from now on.
    pub fn move_position(&mut self, session: SessionId, seq: SeqNum) {
        if let Some(record) = self.sessions.get_mut(&session) {
            record.position = seq;
        }
    }

    /// A write of the group took its place, and was answered with this.
    pub fn take(&mut self, place: &Place, reply: &[u8]) {
        self.mark = place.mark;
        self.results.note(&place.identity, place.at_ms, reply);
        if let Some((session, seq)) = place.session {
            self.move_position(session, seq);
        }
    }

    /// A key gets what a write elsewhere made of it, unless it has something newer; `None`, and nothing is changed, if
    /// that is no value.
    pub fn install(&mut self, installed: &Installed<'_>) -> Option<()> {
        let value = installed.value.map(|bytes| Value::read(bytes).ok_or(())).transpose().ok()?;
        if installed.version > self.version(installed.key) {
            self.store.put(installed.key, value);
            self.store.set_version(installed.key, installed.version);
        }
        self.installed += 1;
        self.results.note(&installed.identity, installed.at_ms, installed.reply);
        if let Some((session, seq)) = installed.session {
            self.move_position(session, seq);
        }
        Some(())
    }

    /// The version of a key.
    pub fn version(&self, key: &[u8]) -> Version {
        self.store.version_of(key).unwrap_or_default()
    }

    /// What a member wrote takes the place of all but the sessions, and of what the data may take, which is this
    /// service's own; `None`, and nothing is changed, if it is not whole.
    pub fn load(&mut self, stream: &[u8]) -> Option<()> {
        let mut loaded = Kept::new(self.store.empty_like(), self.results_limits);
        snapshot::read(stream, &mut loaded)?;
        if !loaded.sessions.is_empty() {
            return None;
        }
        loaded.store.set_data_bytes_max(self.store.data_bytes_max());
        loaded.sessions = std::mem::take(&mut self.sessions);
        *self = loaded;
        Some(())
    }

    /// A write of no group was executed: this is no member's state any more. It has no place in the order and no
    /// versions, so that a member gets another's state before it goes on.
    pub fn leave_group(&mut self) {
        if self.mark != Mark::default() || self.results.client_count() > 0 {
            self.mark = Mark::default();
            self.installed = 0;
            self.results = Results::new(self.results_limits);
        }
        self.store.forget_versions();
    }
}

/// The parts of a member's snapshot so far.
#[derive(Default)]
struct Loading(Option<Vec<u8>>);

impl Loading {
    /// Adds a part; the snapshot, if it is whole with it.
    fn take(&mut self, part: Part<'_>) -> Result<Option<Vec<u8>>, JournalError> {
        if part.is_first {
            self.0 = Some(Vec::new());
        }
        let bytes = self.0.as_mut().ok_or_else(|| damaged("a member's snapshot has no beginning"))?;
        bytes.extend_from_slice(part.bytes);
        Ok(if part.is_last { self.0.take() } else { None })
    }
}

fn damaged(what: &str) -> JournalError {
    JournalError::Damaged(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::IndexKind;
    use crate::service::{command, KvOptions};
    use scotfree_wire::Identity;

    /// The mark that is found behind these ops, if they can follow each other.
    fn recover(ops: &[Op<'_>]) -> Option<Mark> {
        let record = |op: &Op<'_>| {
            let mut record = Vec::new();
            op.write(&mut record);
            record
        };
        let recovered = Recovered { ops: ops.iter().map(record).collect(), ..Recovered::default() };
        let mut kept = Kept::new(Store::new(IndexKind::Hash, 1 << 20), ResultsLimits::default());
        let options = KvOptions::for_log(1 << 20, 0, "dead".into());
        kept.recover(&recovered, &mut Executor::new(&options)).ok().map(|()| kept.mark)
    }

    #[test]
    fn marks_that_do_not_follow_each_other_are_damage() {
        let incr = command(&[b"INCR", b"n"]);
        let identity = Identity { client: [1; 16], number: 1 };
        let applied = |mark| Op::Applied {
            place: Place { mark: Mark(mark), identity, at_ms: 0, session: None },
            payload: &incr,
        };
        assert_eq!(recover(&[applied(1), applied(2)]), Some(Mark(2)));
        assert_eq!(recover(&[applied(1), applied(3)]), None);
        assert_eq!(recover(&[applied(1), applied(1)]), None);
    }

    #[test]
    fn a_load_that_a_crash_cut_off_is_none_and_nothing_continues_it() {
        let mut stream = Vec::new();
        let mut other = Kept::new(Store::new(IndexKind::Hash, 1 << 20), ResultsLimits::default());
        other.mark = Mark(9);
        snapshot::write_for_members(&other, &mut stream);
        let (begin, end) = stream.split_at(5);
        let first = Op::Loaded(Part { is_first: true, is_last: false, bytes: begin });
        let last = Op::Loaded(Part { is_first: false, is_last: true, bytes: end });
        assert_eq!(recover(&[first, last]), Some(Mark(9)));
        assert_eq!(recover(&[first, Op::Limit(100)]), Some(Mark(0)));
        assert_eq!(recover(&[first, first, last]), Some(Mark(9)));
        assert_eq!(recover(&[first, Op::Limit(100), last]), None);
    }

    fn part(name: &str, is_first: bool, is_last: bool) -> Part<'_> {
        Part { is_first, is_last, bytes: name.as_bytes() }
    }

    #[test]
    #[allow(clippy::unwrap_used)]
    fn parts_make_a_snapshot_from_the_first_to_the_last() {
        let mut loading = Loading::default();
        assert!(loading.take(part("lost", false, true)).is_err());
        assert_eq!(loading.take(part("cut", true, false)).unwrap(), None);
        assert_eq!(loading.take(part("a", true, false)).unwrap(), None);
        assert_eq!(loading.take(part("b", false, false)).unwrap(), None);
        assert_eq!(loading.take(part("c", false, true)).unwrap(), Some(b"abc".to_vec()));
        assert_eq!(loading.take(part("alone", true, true)).unwrap(), Some(b"alone".to_vec()));
        assert!(loading.take(part("lost", false, false)).is_err());
    }
}
