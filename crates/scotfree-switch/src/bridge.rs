//! A learning bridge without I/O: a frame's addresses go in, the decision where it goes comes out.
//!
//! Invariant: no frame is sent back out of the port that it came in by, and the table of stations
//! never outgrows `mac_entries_max`: at the limit new stations are not learnt, their frames flood.

use crate::link::{is_link_local, Vlan};
use scotfree_core::Nanos;
use scotfree_io::frame::MacAddress;
use std::collections::BTreeMap;

/// A port of the bridge, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortIndex(pub usize);

/// The bounds of the table of stations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BridgeLimits {
    /// How many stations are remembered.
    pub mac_entries_max: usize,
    /// How long a silent station is remembered.
    pub mac_age: Nanos,
}

impl Default for BridgeLimits {
    fn default() -> Self {
        BridgeLimits { mac_entries_max: 4_096, mac_age: Nanos::from_secs(300) }
    }
}

/// What a frame says of its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameAddresses {
    /// The station it is for, or a group.
    pub destination: MacAddress,
    /// The station it is from.
    pub source: MacAddress,
    /// The virtual network it belongs to; stations of different ones never meet in the table.
    pub vlan: Vlan,
}

/// Where a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Out of this port.
    Forward(PortIndex),
    /// Out of every port but its ingress.
    Flood,
    /// To the device itself.
    Local,
    /// Nowhere.
    Drop(DropReason),
}

/// Why a frame goes nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// Its destination lives behind the port it came in by.
    SamePort,
    /// Its source is a group address, which nobody can have.
    SourceIsGroup,
    /// Its source is the device itself: there is a loop, or an impostor.
    SourceIsOwn,
    /// It is for the next bridge only (pause frames and the like) and must not be passed on.
    LinkLocal,
}

impl DropReason {
    /// All reasons, in the order of their counters.
    pub const ALL: [DropReason; 4] =
        [DropReason::SamePort, DropReason::SourceIsGroup, DropReason::SourceIsOwn, DropReason::LinkLocal];

    /// The reason's name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::SamePort => "same_port",
            DropReason::SourceIsGroup => "source_is_group",
            DropReason::SourceIsOwn => "source_is_own",
            DropReason::LinkLocal => "link_local",
        }
    }
}

/// What the bridge did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BridgeCounters {
    /// Frames sent out of one port.
    pub forwarded: u64,
    /// Frames sent out of all ports but one.
    pub flooded: u64,
    /// Frames for the device itself.
    pub local: u64,
    /// Frames dropped, by the place of their reason in [`DropReason::ALL`].
    pub dropped: [u64; DropReason::ALL.len()],
    /// Stations that were not learnt because the table was full.
    pub unlearnt: u64,
    /// Stations that were seen at another port than before.
    pub moved: u64,
}

impl BridgeCounters {
    /// How many frames were dropped for `reason`.
    pub fn dropped_for(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }
}

#[derive(Debug, Clone, Copy)]
struct Station {
    port: PortIndex,
    last_seen: Nanos,
}

/// The bridge.
#[derive(Debug)]
pub struct Bridge {
    limits: BridgeLimits,
    own: MacAddress,
    stations: BTreeMap<(Vlan, MacAddress), Station>,
    /// No entry needs to be looked at for its age before this time.
    sweep_at: Nanos,
    counters: BridgeCounters,
}

/// At a full table the entries are searched for old ones at most this often.
const SWEEP_INTERVAL: Nanos = Nanos::from_secs(1);

impl Bridge {
    /// A bridge whose own address is `own`.
    pub fn new(own: MacAddress, limits: BridgeLimits) -> Bridge {
        Bridge {
            limits,
            own,
            stations: BTreeMap::new(),
            sweep_at: Nanos(0),
            counters: BridgeCounters::default(),
        }
    }

    /// Learns from a frame that came in by `ingress` and says where it goes.
    pub fn on_frame(&mut self, now: Nanos, ingress: PortIndex, frame: &FrameAddresses) -> Verdict {
        let verdict = self.decide(now, ingress, frame);
        self.count(verdict);
        verdict
    }

    fn decide(&mut self, now: Nanos, ingress: PortIndex, frame: &FrameAddresses) -> Verdict {
        if frame.source.is_multicast() {
            return Verdict::Drop(DropReason::SourceIsGroup);
        }
        if frame.source == self.own {
            return Verdict::Drop(DropReason::SourceIsOwn);
        }
        self.learn(now, ingress, frame);
        if frame.destination == self.own {
            return Verdict::Local;
        }
        if is_link_local(frame.destination) {
            return Verdict::Drop(DropReason::LinkLocal);
        }
        if frame.destination.is_multicast() {
            return Verdict::Flood;
        }
        match self.port_of(now, frame.vlan, frame.destination) {
            Some(port) if port == ingress => Verdict::Drop(DropReason::SamePort),
            Some(port) => Verdict::Forward(port),
            None => Verdict::Flood,
        }
    }

    /// Where a station is, if it was heard lately.
    pub fn port_of(&self, now: Nanos, vlan: Vlan, station: MacAddress) -> Option<PortIndex> {
        let entry = self.stations.get(&(vlan, station))?;
        (now.since(entry.last_seen) < self.limits.mac_age).then_some(entry.port)
    }

    fn learn(&mut self, now: Nanos, ingress: PortIndex, frame: &FrameAddresses) {
        let key = (frame.vlan, frame.source);
        if let Some(station) = self.stations.get_mut(&key) {
            self.counters.moved += u64::from(station.port != ingress);
            *station = Station { port: ingress, last_seen: now };
            return;
        }
        if self.stations.len() >= self.limits.mac_entries_max {
            self.sweep(now);
        }
        if self.stations.len() >= self.limits.mac_entries_max {
            self.counters.unlearnt += 1;
            return;
        }
        self.stations.insert(key, Station { port: ingress, last_seen: now });
    }

    fn sweep(&mut self, now: Nanos) {
        if now < self.sweep_at {
            return;
        }
        let age = self.limits.mac_age;
        self.stations.retain(|_, station| now.since(station.last_seen) < age);
        self.sweep_at = now.plus(SWEEP_INTERVAL);
    }

    fn count(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Forward(_) => self.counters.forwarded += 1,
            Verdict::Flood => self.counters.flooded += 1,
            Verdict::Local => self.counters.local += 1,
            Verdict::Drop(reason) => self.counters.dropped[reason as usize] += 1,
        }
    }

    /// How many stations are remembered.
    pub fn station_count(&self) -> usize {
        self.stations.len()
    }

    /// What the bridge did so far.
    pub fn counters(&self) -> &BridgeCounters {
        &self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 99]);

    fn mac(number: u8) -> MacAddress {
        MacAddress([2, 0, 0, 0, 1, number])
    }

    fn frame(source: MacAddress, destination: MacAddress) -> FrameAddresses {
        FrameAddresses { destination, source, vlan: Vlan::NONE }
    }

    fn bridge(mac_entries_max: usize) -> Bridge {
        Bridge::new(OWN, BridgeLimits { mac_entries_max, mac_age: Nanos::from_secs(10) })
    }

    #[test]
    fn a_station_that_was_heard_gets_its_frames_at_its_port_only() {
        let mut bridge = bridge(8);
        assert_eq!(bridge.on_frame(Nanos(0), PortIndex(0), &frame(mac(1), mac(2))), Verdict::Flood);
        let back = bridge.on_frame(Nanos(1), PortIndex(1), &frame(mac(2), mac(1)));
        assert_eq!(back, Verdict::Forward(PortIndex(0)));
        let there = bridge.on_frame(Nanos(2), PortIndex(0), &frame(mac(1), mac(2)));
        assert_eq!(there, Verdict::Forward(PortIndex(1)));
    }

    #[test]
    fn broadcast_and_spanning_tree_flood_but_pause_frames_stay() {
        let mut bridge = bridge(8);
        let spanning_tree = MacAddress([0x01, 0x80, 0xc2, 0, 0, 0]);
        let pause = MacAddress([0x01, 0x80, 0xc2, 0, 0, 1]);
        for (destination, expected) in [
            (MacAddress::BROADCAST, Verdict::Flood),
            (spanning_tree, Verdict::Flood),
            (pause, Verdict::Drop(DropReason::LinkLocal)),
        ] {
            let verdict = bridge.on_frame(Nanos(0), PortIndex(0), &frame(mac(1), destination));
            assert_eq!(verdict, expected, "{destination}");
        }
    }

    #[test]
    fn the_own_address_is_local_as_destination_and_refused_as_source() {
        let mut bridge = bridge(8);
        assert_eq!(bridge.on_frame(Nanos(0), PortIndex(0), &frame(mac(1), OWN)), Verdict::Local);
        let looped = bridge.on_frame(Nanos(0), PortIndex(0), &frame(OWN, mac(1)));
        assert_eq!(looped, Verdict::Drop(DropReason::SourceIsOwn));
        let group = bridge.on_frame(Nanos(0), PortIndex(0), &frame(MacAddress::BROADCAST, mac(1)));
        assert_eq!(group, Verdict::Drop(DropReason::SourceIsGroup));
        assert_eq!(bridge.station_count(), 1);
    }

    #[test]
    fn virtual_networks_do_not_share_stations() {
        let mut bridge = bridge(8);
        let vlan = Vlan::numbered(7);
        bridge.on_frame(Nanos(0), PortIndex(1), &frame(mac(2), mac(1)));
        let tagged = FrameAddresses { vlan, ..frame(mac(1), mac(2)) };
        assert_eq!(bridge.on_frame(Nanos(0), PortIndex(0), &tagged), Verdict::Flood);
    }

    #[test]
    fn silent_stations_are_forgotten_and_make_room() {
        let mut bridge = bridge(2);
        bridge.on_frame(Nanos(0), PortIndex(1), &frame(mac(2), mac(1)));
        bridge.on_frame(Nanos(0), PortIndex(0), &frame(mac(1), mac(2)));
        bridge.on_frame(Nanos(0), PortIndex(0), &frame(mac(3), mac(2)));
        assert_eq!((bridge.station_count(), bridge.counters().unlearnt), (2, 1));
        let later = Nanos::from_secs(11);
        assert_eq!(bridge.on_frame(later, PortIndex(0), &frame(mac(3), mac(2))), Verdict::Flood);
        assert_eq!(bridge.station_count(), 1);
    }

    #[test]
    fn at_a_full_table_new_stations_flood_and_known_ones_stay() {
        let mut bridge = bridge(1);
        bridge.on_frame(Nanos(0), PortIndex(1), &frame(mac(2), mac(1)));
        for number in 10..20 {
            bridge.on_frame(Nanos(0), PortIndex(0), &frame(mac(number), mac(2)));
        }
        assert_eq!(bridge.port_of(Nanos(1), Vlan::NONE, mac(2)), Some(PortIndex(1)));
        assert_eq!(bridge.on_frame(Nanos(1), PortIndex(1), &frame(mac(2), mac(10))), Verdict::Flood);
    }

    proptest! {
        #[test]
        fn no_frame_leaves_by_its_ingress_and_the_table_stays_bounded(
            frames in proptest::collection::vec((0..3_usize, 0..12_u8, 0..12_u8, 0..3_u16, 0..20_u64), 0..200)
        ) {
            let mut bridge = bridge(5);
            let mut now = Nanos(0);
            for (port, source, destination, vlan, seconds) in frames {
                now = now.plus(Nanos::from_secs(seconds));
                let frame = FrameAddresses {
                    vlan: Vlan::numbered(vlan),
                    ..frame(mac(source), mac(destination))
                };
                let verdict = bridge.on_frame(now, PortIndex(port), &frame);
                prop_assert_ne!(verdict, Verdict::Forward(PortIndex(port)));
                prop_assert!(bridge.station_count() <= 5);
            }
        }
    }
}
