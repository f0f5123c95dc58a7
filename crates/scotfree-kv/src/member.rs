//! The service as a member of a replicated group: its state, which is written only in the group's order or by the
//! versions of its keys.
//!
//! Invariant: what a write does, its answer and its place lie in one record; its session's position moves when the group
//! says that it is stable, and no sooner. A write of no group ends the membership (see `Kept::leave_group`): no member
//! goes on with a state that is not the group's.

use crate::op::{Op, Part, Place};
use crate::request::is_early;
use crate::service::{KvService, Stands};
use crate::snapshot;
use scotfree_core::{Fnv1a, SeqNum, SessionId};
use scotfree_io::PersistenceDomain;
use scotfree_state::{
    Applied, DamagedSnapshot, Facts, Installed, Mark, Placed, Results, ResultsLimits, State, Touches, Version,
};

/// Grows when a command answers or does something else than before: members of different versions are not alike.
const COMMANDS_VERSION: u64 = 1;

const TOO_MANY_KEYS: &str =
    "ERR this group orders each key by itself and takes no request of several keys that writes; a group \
     whose protocol is chain or craq does";

impl<D: PersistenceDomain> State for KvService<D> {
    fn facts(&mut self, op: &[u8]) -> Facts {
        self.executor.facts(op)
    }

    fn query(&mut self, op: &[u8], reply: &mut Vec<u8>) -> bool {
        self.executor.answer(&mut self.kept.store, op, false);
        self.respond(reply)
    }

    fn apply(&mut self, placed: &Placed<'_>, reply: &mut Vec<u8>) -> Applied {
        assert_eq!(placed.mark, self.kept.next_mark(), "writes come in the order of the group");
        let changed = self.execute_in_group(placed.op);
        let begin = reply.len();
        let is_refused = self.respond(reply);
        self.keep_late_error_of(placed.session, placed.op);
        let place = Place { session: None, ..Place::from(placed) };
        let answer = &reply[begin..];
        self.kept.take(&place, answer);
        let number = self.note_write(&if changed {
            Op::Applied { place, payload: placed.op }
        } else {
            Op::Answered { place, reply: answer }
        });
        Applied { number, is_refused }
    }

    fn take_place(&mut self, session: SessionId, seq: SeqNum) -> Applied {
        let mut number = self.write_count;
        if self.kept.is_forward(session, seq) {
            self.kept.move_position(session, seq);
            number = self.note_write(&Op::Position { session, seq });
        }
        Applied { number, is_refused: false }
    }

    fn mark(&self) -> Mark {
        self.kept.mark
    }

    fn progress(&self) -> u64 {
        self.kept.mark.0 + self.kept.installed
    }

    fn stable(&self) -> u64 {
        self.write_stable
    }

    fn has_room(&self) -> bool {
        self.takes_requests()
    }

    fn results(&self) -> &Results {
        &self.kept.results
    }

    fn version(&self, key: &[u8]) -> Version {
        self.kept.version(key)
    }

    fn try_write(&mut self, op: &[u8], reply: &mut Vec<u8>, value: &mut Vec<u8>) -> (bool, bool) {
        match self.executor.facts(op).touches {
            Touches::One(key) => self.try_write_of(&key, op, reply, value),
            Touches::Nothing => {
                self.execute_in_group(op);
                (false, self.respond(reply))
            }
            Touches::Several => {
                self.executor.refuse(TOO_MANY_KEYS);
                (false, self.respond(reply))
            }
        }
    }

    fn value(&self, key: &[u8], out: &mut Vec<u8>) -> bool {
        let value = self.kept.store.value(key);
        value.inspect(|value| value.write(out)).is_some()
    }

    fn install(&mut self, installed: &Installed<'_>) -> Applied {
        let installed = Installed { session: None, ..*installed };
        if self.kept.install(&installed).is_none() {
            return Applied { number: self.write_count, is_refused: true };
        }
        Applied { number: self.note_write(&Op::Installed(installed)), is_refused: false }
    }

    fn write_snapshot(&self, out: &mut Vec<u8>) {
        snapshot::write_for_members(&self.kept, out);
    }

    fn read_snapshot(&mut self, bytes: &[u8]) -> Result<Applied, DamagedSnapshot> {
        let damaged = || DamagedSnapshot("it was cut, or written by something else".to_owned());
        self.kept.load(bytes).ok_or_else(damaged)?;
        self.write_count += 1;
        let last = bytes.len().div_ceil(self.part_bytes_max()) - 1;
        for (index, bytes) in bytes.chunks(self.part_bytes_max()).enumerate() {
            let part = Part { is_first: index == 0, is_last: index == last, bytes };
            let stands = if part.is_last { Stands::Write(self.write_count) } else { Stands::Nothing };
            self.note(&Op::Loaded(part), stands);
        }
        Ok(Applied { number: self.write_count, is_refused: false })
    }

    fn fingerprint(&self) -> u64 {
        let ResultsLimits { clients_max, per_client_max, bytes_per_client_max, bytes_max, silent_ms_min } =
            self.kept.results_limits;
        let sizes = [
            self.kept.store.data_bytes_max(),
            self.executor.request_bytes_max(),
            clients_max,
            per_client_max,
            bytes_per_client_max,
            bytes_max,
        ];
        let numbers = sizes.into_iter().map(|size| size as u64).chain([silent_ms_min, COMMANDS_VERSION]);
        numbers.fold(Fnv1a::EMPTY, |hash, number| hash.and(&number.to_le_bytes())).value()
    }
}

impl<D: PersistenceDomain> KvService<D> {
    /// Executes a request that may write. Whether it may have changed the map.
    fn execute_in_group(&mut self, op: &[u8]) -> bool {
        if self.executor.is_description(op) {
            // It says what time it is, which every member would say otherwise.
            self.executor.refuse("ERR scotfree: a description is read, not written");
            return false;
        }
        self.executor.write(&mut self.kept.store, op)
    }

    /// Appends the response to what was executed last. Whether that was refused.
    fn respond(&self, reply: &mut Vec<u8>) -> bool {
        self.executor.write_response(&self.kept.store, reply);
        self.executor.is_refused()
    }

    /// An early update that was refused becomes a dead letter where its client is.
    fn keep_late_error_of(&mut self, session: Option<(SessionId, SeqNum)>, op: &[u8]) {
        if let Some((session, seq)) = session.filter(|_| is_early(op)) {
            self.keep_late_error(session, seq, op);
        }
    }

    /// Executes a write on the map, looks at what its key holds, and puts back what it held before.
    fn try_write_of(
        &mut self,
        key: &[u8],
        op: &[u8],
        reply: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> (bool, bool) {
        let before = self.kept.store.value(key).cloned();
        let (reply_begin, value_begin) = (reply.len(), value.len());
        self.execute_in_group(op);
        let is_refused = self.respond(reply);
        let has_value = self.value(key, value);
        let bytes = key.len() + (reply.len() - reply_begin) + (value.len() - value_begin);
        self.kept.store.put(key, before);
        if bytes > self.executor.request_bytes_max() {
            let bytes_max = self.executor.request_bytes_max();
            self.executor.refuse(&format!(
                "ERR a key with its value and the answer may take {bytes_max} bytes in this group"
            ));
        } else if !has_value
            && !self.kept.store.has_room_for_tombstone(key)
            && self.kept.store.value(key).is_none()
        {
            self.executor.refuse_to_grow(&mut self.kept.store);
        } else {
            return (has_value, is_refused);
        }
        reply.truncate(reply_begin);
        value.truncate(value_begin);
        (self.value(key, value), self.respond(reply))
    }
}
