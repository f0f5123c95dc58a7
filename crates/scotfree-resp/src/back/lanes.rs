//! The lanes, of which few may have anything to do: a client with a user of its own has one, whether it asks or not.
//!
//! Invariant: a lane that has bytes to send, or expects or holds a reply, or is not open yet, is among the busy ones.

use super::lane::{Lane, LaneState};
use super::LaneId;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Lanes {
    all: BTreeMap<LaneId, Lane>,
    /// Those that were changed since they were last found idle, and some that are gone.
    busy: Vec<LaneId>,
}

impl Lanes {
    pub fn get(&self, id: LaneId) -> Option<&Lane> {
        self.all.get(&id)
    }

    /// Whoever may change a lane may give it something to do.
    pub fn get_mut(&mut self, id: LaneId) -> Option<&mut Lane> {
        let lane = self.all.get_mut(&id)?;
        if !std::mem::replace(&mut lane.is_listed, true) {
            self.busy.push(id);
        }
        Some(lane)
    }

    pub fn contains(&self, id: LaneId) -> bool {
        self.all.contains_key(&id)
    }

    pub fn insert(&mut self, id: LaneId, lane: Lane) {
        self.busy.push(id);
        self.all.insert(id, Lane { is_listed: true, ..lane });
    }

    pub fn remove(&mut self, id: LaneId) -> Option<Lane> {
        self.all.remove(&id)
    }

    pub fn ids(&self) -> Vec<LaneId> {
        self.all.keys().copied().collect()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Lane> {
        self.all.values()
    }

    /// Those that may have something to do.
    pub fn busy(&self) -> impl Iterator<Item = (LaneId, &Lane)> {
        self.busy.iter().filter_map(|id| Some((*id, self.all.get(id)?)))
    }

    /// Forgets those that have nothing to do.
    pub fn tidy(&mut self) {
        let all = &mut self.all;
        self.busy.retain(|id| {
            let Some(lane) = all.get_mut(id) else { return false };
            lane.is_listed = lane.state != LaneState::Ready
                || !lane.output.is_empty()
                || !lane.expected.is_empty()
                || lane.waits.is_some();
            lane.is_listed
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::lane::Expected;
    use super::super::Purpose;
    use super::*;
    use crate::codec::Limits;

    fn busy(lanes: &Lanes) -> Vec<u32> {
        lanes.busy().map(|(id, _)| id.0).collect()
    }

    #[test]
    fn a_lane_is_busy_as_long_as_it_has_something_to_do() {
        let mut lanes = Lanes::default();
        for id in 0..3 {
            lanes.insert(LaneId(id), Lane::new(Purpose::Shared, Limits::default()));
        }
        lanes.tidy();
        assert_eq!(busy(&lanes), [0, 1, 2], "they are not open");
        for id in 0..3 {
            lanes.get_mut(LaneId(id)).expect("it is there").state = LaneState::Ready;
        }
        lanes.tidy();
        assert!(busy(&lanes).is_empty());
        let lane = lanes.get_mut(LaneId(1)).expect("it is there");
        lane.say(&[b"PING"], Expected::Ok);
        lanes.get_mut(LaneId(1));
        lanes.tidy();
        assert_eq!(busy(&lanes), [1]);
        lanes.get_mut(LaneId(1)).expect("it is there").output.clear();
        lanes.tidy();
        assert_eq!(busy(&lanes), [1], "it expects an answer");
        lanes.remove(LaneId(1));
        assert!(busy(&lanes).is_empty());
    }
}
