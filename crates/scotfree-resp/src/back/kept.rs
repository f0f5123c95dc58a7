//! How far each session is stable: a server that is begun with again has that, or its data is older.
//!
//! Invariant: a position that is said to be kept was stored by a transaction that storage holds.

use super::Markers;
use scotfree_core::{SeqNum, SessionId};
use std::collections::BTreeMap;

/// Of one session.
#[derive(Debug, Clone, Copy)]
struct Of {
    stable: SeqNum,
    /// A later position, and the effect with which it becomes stable. It is followed until it is: newer ones come with
    /// every transaction.
    next: Option<(u64, SeqNum)>,
}

impl Of {
    fn settle(&mut self, stable: u64) {
        if let Some((_, position)) = self.next.take_if(|(effect, _)| *effect <= stable) {
            self.stable = position;
        }
    }
}

/// Of all sessions.
#[derive(Debug, Default)]
pub(super) struct Kept(BTreeMap<SessionId, Of>);

impl Kept {
    /// What was found at a start, which is stable when that is over.
    pub fn of(markers: &Markers) -> Kept {
        let found = |marker: &super::Marker| Of { stable: marker.position, next: None };
        Kept(markers.sessions.iter().map(|(session, marker)| (*session, found(marker))).collect())
    }

    /// A transaction with this effect has stored these positions; effects up to `stable` are.
    pub fn note(&mut self, marks: &BTreeMap<SessionId, SeqNum>, effect: u64, stable: u64) {
        for (session, position) in marks {
            let of = self.0.entry(*session).or_insert(Of { stable: SeqNum(0), next: None });
            of.settle(stable);
            of.next.get_or_insert((effect, *position));
        }
    }

    /// How far the sessions of `markers` are, effects up to `stable` being so.
    pub fn positions(&self, markers: &Markers, stable: u64) -> BTreeMap<SessionId, SeqNum> {
        let is_there = |session: &SessionId| markers.sessions.contains_key(session);
        let of_each = self.0.iter().filter(|(session, _)| is_there(session));
        of_each
            .map(|(session, of)| {
                let mut of = *of;
                of.settle(stable);
                (*session, of.stable)
            })
            .collect()
    }

    /// Nothing is known of a session any more.
    pub fn forget(&mut self, session: SessionId) {
        self.0.remove(&session);
    }
}

/// What is missing in `markers` of what was kept, in words for the operator.
pub(super) fn lacking(kept: &BTreeMap<SessionId, SeqNum>, markers: &Markers) -> Option<String> {
    let found = |session| markers.sessions.get(session).map_or(SeqNum(0), |marker| marker.position);
    let (session, kept) = kept.iter().find(|(session, kept)| found(session) < **kept)?;
    Some(format!(
        "the server has older data than it had called stable: of session {session} the writes up to {}, and it had those \
         up to {kept}. It has followed an older copy (REPLICAOF), or was started from one or from a dump; nothing was \
         changed. Bring its data back, or, to serve what is there, start the sidecar again",
        found(session)
    ))
}

#[cfg(test)]
mod tests {
    use super::super::Marker;
    use super::*;

    fn markers(position: u64) -> Markers {
        let marker = Marker { position: SeqNum(position), opaque: Vec::new() };
        Markers { epoch: 1, sessions: BTreeMap::from([(SessionId(7), marker)]) }
    }

    #[test]
    fn what_is_stable_is_kept_and_no_more() {
        let mut kept = Kept::of(&markers(3));
        let at = |kept: &Kept, stable| kept.positions(&markers(0), stable)[&SessionId(7)].0;
        for (position, effect, stable) in [(5, 1, 0), (6, 2, 0), (9, 3, 1), (12, 4, 1)] {
            kept.note(&BTreeMap::from([(SessionId(7), SeqNum(position))]), effect, stable);
        }
        assert_eq!([0, 2, 3, 4].map(|stable| at(&kept, stable)), [5, 5, 9, 9]);
        assert!(kept.positions(&Markers::default(), 4).is_empty(), "of sessions that are gone nothing is");
        kept.forget(SessionId(7));
        assert!(kept.positions(&markers(0), 4).is_empty());
    }

    #[test]
    fn less_than_was_kept_is_older_data() {
        let kept = BTreeMap::from([(SessionId(7), SeqNum(9))]);
        assert_eq!(lacking(&kept, &markers(9)), None);
        let said = lacking(&kept, &markers(8)).expect("it is older");
        assert!(said.contains("up to 8") && said.contains("up to 9"), "{said}");
        assert!(lacking(&kept, &Markers::default()).is_some());
    }
}
