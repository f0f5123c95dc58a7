//! Views that do not say which life of a member they mean: an operator's file.
//!
//! Invariant: no member answers for a state that it may not have. In such a view, one is full only if this life of it
//! was given the state before, or if the group begins in this view.

use remedy_replicate::{Member, Standing, View};

/// What a member knows of itself when a view comes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    /// The last epoch in which an earlier life took part; 0 if none did.
    pub(crate) epoch_before: u64,
    /// The epoch of this life's view; 0 if it has taken none.
    pub(crate) epoch: u64,
    /// In which history its state stands.
    pub(crate) lineage: Option<u64>,
}

/// Why this member does not take a view that names it so, if it does not, and what to do.
pub(crate) fn refusal(known: Known, me: &Member, view: &View) -> Option<String> {
    let is_alone = view.members.len() == 1;
    if me.boot != 0 || is_alone {
        return None;
    }
    if view.epoch <= known.epoch_before && known.epoch == 0 {
        return Some(format!(
            "this member was started again in the view of epoch {}: write one of a larger epoch in which it joins",
            view.epoch
        ));
    }
    if me.standing == Standing::Joining || has_state(known, view) {
        return None;
    }
    Some(format!(
        "the view of epoch {} says that this member has the state, and it has not: write one of a larger epoch in which \
         it joins; if all were down, one in which one member alone is full and founded is that epoch",
        view.epoch
    ))
}

fn has_state(known: Known, view: &View) -> bool {
    let is_first = known.epoch == 0;
    let begins_here = view.founded == view.epoch;
    // What several members brought from an earlier time need not be the same.
    let brings_none = known.epoch_before == 0 || view.full().count() == 1;
    match (is_first, begins_here) {
        (true, true) => brings_none,
        (true, false) => false,
        (false, true) => true,
        (false, false) => known.lineage == Some(view.founded),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]
    use super::*;
    use remedy_replicate::MemberId;
    use std::net::SocketAddr;

    fn view(epoch: u64, founded: u64, standings: &[Standing]) -> View {
        let member = |(index, standing): (usize, &Standing)| {
            let address = SocketAddr::from(([10, 0, 0, 1], index as u16));
            let id = MemberId(index as u8 + 1);
            Member { id, boot: 0, peers: address, clients: address, standing: *standing }
        };
        View { epoch, founded, members: standings.iter().enumerate().map(member).collect() }
    }

    fn refused(known: (u64, u64, Option<u64>), id: usize, view: &View) -> bool {
        let (epoch_before, epoch, lineage) = known;
        refusal(Known { epoch_before, epoch, lineage }, &view.members[id - 1], view).is_some()
    }

    #[test]
    fn one_that_was_started_again_takes_part_when_it_joins() {
        use Standing::{Full, Joining};
        let first = view(1, 1, &[Full, Full]);
        assert!(!refused((0, 0, None), 1, &first), "the group begins");
        assert!(refused((1, 0, Some(1)), 1, &first), "its earlier life was in it");
        assert!(
            refused((1, 0, Some(1)), 1, &view(2, 1, &[Full, Full])),
            "it may lack what was written since"
        );
        assert!(refused((0, 0, None), 1, &view(2, 1, &[Full, Full])), "it was given nothing");
        assert!(!refused((1, 0, Some(1)), 2, &view(2, 1, &[Full, Joining])));
        assert!(!refused((1, 0, Some(1)), 1, &view(1, 1, &[Full])), "nobody else is there");
    }

    #[test]
    fn a_joiner_is_full_when_it_has_the_state() {
        use Standing::Full;
        let full = view(3, 1, &[Full, Full]);
        assert!(refused((1, 2, None), 2, &full), "it is being given the state");
        assert!(!refused((1, 2, Some(1)), 2, &full));
        assert!(!refused((0, 1, Some(1)), 1, &full), "it was full before");
    }

    #[test]
    fn after_all_were_down_one_alone_brings_the_state() {
        use Standing::{Full, Joining};
        assert!(!refused((4, 0, Some(1)), 1, &view(5, 5, &[Full, Joining])));
        assert!(refused((4, 0, Some(1)), 1, &view(5, 5, &[Full, Full])));
    }
}
