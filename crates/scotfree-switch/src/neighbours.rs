//! Who lives where: internet address to station, port and virtual network, learnt by listening; and
//! the packets that wait until somebody has answered the question for an address.
//!
//! Invariant: addresses, questions and waiting packets are bounded by [`NeighbourLimits`]. At the
//! limit a new address is not learnt, unless it was asked for: then the one longest silent goes. A
//! packet that finds no room to wait is refused and counted; its sender retries.

use crate::bridge::PortIndex;
use crate::link::Vlan;
use scotfree_core::Nanos;
use scotfree_io::frame::MacAddress;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// The bounds of the table and of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeighbourLimits {
    /// How many addresses are known at a time.
    pub neighbours_max: usize,
    /// How long an address is believed to be where it was last heard.
    pub neighbour_age: Nanos,
    /// How many packets wait for an answer, over all addresses.
    pub waiting_packets_max: usize,
    /// How many addresses are asked for at a time.
    pub questions_max: usize,
    /// How long to wait for an answer before asking again.
    pub ask_interval: Nanos,
    /// How often to ask before the waiting packets are given up.
    pub ask_tries_max: u32,
}

impl Default for NeighbourLimits {
    fn default() -> Self {
        NeighbourLimits {
            neighbours_max: 4_096,
            neighbour_age: Nanos::from_secs(300),
            waiting_packets_max: 256,
            questions_max: 64,
            ask_interval: Nanos::from_millis(250),
            ask_tries_max: 4,
        }
    }
}

/// Where an address lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    /// Its station, or the router's before it.
    pub mac: MacAddress,
    /// The port that it was heard at.
    pub port: PortIndex,
    /// Its virtual network.
    pub vlan: Vlan,
}

/// A packet without a frame yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingPacket {
    /// In whose name it is sent.
    pub from: SocketAddr,
    /// To whom.
    pub to: SocketAddr,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// What became of a packet for an unknown address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queued {
    /// It waits, and the question is to be asked now.
    Ask,
    /// It waits for a question that was asked already.
    Waiting,
    /// There was no room.
    Refused,
}

/// What the table did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NeighbourCounters {
    /// Questions asked, repetitions included.
    pub asked: u64,
    /// Addresses not learnt because the table was full.
    pub unlearnt: u64,
    /// Packets for which there was no room to wait.
    pub refused: u64,
    /// Packets given up because nobody answered.
    pub unanswered: u64,
    /// Addresses that moved to another station, port or virtual network.
    pub moved: u64,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    neighbour: Neighbour,
    last_heard: Nanos,
}

#[derive(Debug)]
struct Question {
    asked_at: Nanos,
    tries: u32,
    packets: Vec<WaitingPacket>,
}

/// The table and the queue.
#[derive(Debug)]
pub struct Neighbours {
    limits: NeighbourLimits,
    known: BTreeMap<IpAddr, Entry>,
    questions: BTreeMap<IpAddr, Question>,
    waiting_packets: usize,
    /// No known address is too old before this time; spares a full table a search per packet.
    fresh_until: Nanos,
    counters: NeighbourCounters,
}

impl Neighbours {
    /// An empty table.
    pub fn new(limits: NeighbourLimits) -> Neighbours {
        Neighbours {
            limits,
            known: BTreeMap::new(),
            questions: BTreeMap::new(),
            waiting_packets: 0,
            fresh_until: Nanos(0),
            counters: NeighbourCounters::default(),
        }
    }

    /// Where `address` lives, if it was heard lately.
    pub fn lookup(&self, now: Nanos, address: IpAddr) -> Option<Neighbour> {
        let entry = self.known.get(&address)?;
        (now.since(entry.last_heard) < self.limits.neighbour_age).then_some(entry.neighbour)
    }

    /// Somebody spoke as `address`. The packets that waited for it are appended to `released`.
    pub fn heard(
        &mut self,
        now: Nanos,
        address: IpAddr,
        neighbour: Neighbour,
        released: &mut Vec<WaitingPacket>,
    ) {
        if !is_single(address) || neighbour.mac.is_multicast() {
            return;
        }
        if self.remember(now, address, neighbour) {
            self.answer(address, released);
        }
    }

    fn remember(&mut self, now: Nanos, address: IpAddr, neighbour: Neighbour) -> bool {
        if let Some(entry) = self.known.get_mut(&address) {
            self.counters.moved += u64::from(entry.neighbour != neighbour);
            *entry = Entry { neighbour, last_heard: now };
            return true;
        }
        if self.known.len() >= self.limits.neighbours_max && !self.make_room(now, address) {
            self.counters.unlearnt += 1;
            return false;
        }
        self.known.insert(address, Entry { neighbour, last_heard: now });
        true
    }

    /// Removes the address longest silent, if it is too old to be believed or `address` was asked for.
    fn make_room(&mut self, now: Nanos, address: IpAddr) -> bool {
        let asked = self.questions.contains_key(&address);
        if !asked && now < self.fresh_until {
            return false;
        }
        let Some((oldest, entry)) = self.known.iter().min_by_key(|(_, entry)| entry.last_heard) else {
            return false;
        };
        let oldest = *oldest;
        self.fresh_until = entry.last_heard.plus(self.limits.neighbour_age);
        let room = asked || now >= self.fresh_until;
        if room {
            self.known.remove(&oldest);
        }
        room
    }

    fn answer(&mut self, address: IpAddr, released: &mut Vec<WaitingPacket>) {
        if self.questions.is_empty() {
            return;
        }
        if let Some(question) = self.questions.remove(&address) {
            self.waiting_packets -= question.packets.len();
            released.extend(question.packets);
        }
    }

    /// Lets a packet wait until its receiver is found.
    pub fn wait(&mut self, now: Nanos, from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Queued {
        let known_question = self.questions.contains_key(&to.ip());
        let full = self.waiting_packets >= self.limits.waiting_packets_max
            || (!known_question && self.questions.len() >= self.limits.questions_max);
        if full || !is_single(to.ip()) {
            self.counters.refused += 1;
            return Queued::Refused;
        }
        let question = self.questions.entry(to.ip()).or_insert_with(|| Question {
            asked_at: now,
            tries: 1,
            packets: Vec::new(),
        });
        question.packets.push(WaitingPacket { from, to, payload: payload.to_vec() });
        self.waiting_packets += 1;
        if known_question {
            return Queued::Waiting;
        }
        self.counters.asked += 1;
        Queued::Ask
    }

    /// Appends the addresses to ask for again to `ask`, and gives up those that nobody answers for.
    pub fn on_timer(&mut self, now: Nanos, ask: &mut Vec<IpAddr>) {
        let limits = self.limits;
        let asked_before = ask.len();
        let mut given_up = 0;
        self.questions.retain(|address, question| {
            if now < question.asked_at.plus(limits.ask_interval) {
                return true;
            }
            if question.tries >= limits.ask_tries_max {
                given_up += question.packets.len();
                return false;
            }
            question.asked_at = now;
            question.tries += 1;
            ask.push(*address);
            true
        });
        self.waiting_packets -= given_up;
        self.counters.unanswered += given_up as u64;
        self.counters.asked += (ask.len() - asked_before) as u64;
    }

    /// When to call [`Neighbours::on_timer`] next.
    pub fn next_timer(&self) -> Option<Nanos> {
        let oldest = self.questions.values().map(|question| question.asked_at).min()?;
        Some(oldest.plus(self.limits.ask_interval))
    }

    /// How many addresses are in the table.
    pub fn known_count(&self) -> usize {
        self.known.len()
    }

    /// How many packets wait.
    pub fn waiting_count(&self) -> usize {
        self.waiting_packets
    }

    /// What the table did so far.
    pub fn counters(&self) -> &NeighbourCounters {
        &self.counters
    }
}

/// Whether one host can have this address.
fn is_single(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !address.is_unspecified() && !address.is_multicast() && !address.is_loopback() && !broadcast
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limits() -> NeighbourLimits {
        NeighbourLimits {
            neighbours_max: 3,
            neighbour_age: Nanos::from_secs(10),
            waiting_packets_max: 4,
            questions_max: 2,
            ask_interval: Nanos::from_secs(1),
            ask_tries_max: 2,
        }
    }

    fn ip(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    fn at(port: usize) -> Neighbour {
        Neighbour { mac: MacAddress([2, 0, 0, 0, 0, port as u8]), port: PortIndex(port), vlan: Vlan::NONE }
    }

    fn to(number: u8) -> SocketAddr {
        SocketAddr::new(ip(number), 51_000)
    }

    #[test]
    fn a_waiting_packet_leaves_when_its_receiver_is_heard() {
        let mut neighbours = Neighbours::new(limits());
        assert_eq!(neighbours.wait(Nanos(0), to(9), to(1), b"first"), Queued::Ask);
        assert_eq!(neighbours.wait(Nanos(0), to(9), to(1), b"second"), Queued::Waiting);
        let mut released = Vec::new();
        neighbours.heard(Nanos(1), ip(2), at(0), &mut released);
        assert!(released.is_empty());
        neighbours.heard(Nanos(2), ip(1), at(1), &mut released);
        let payloads: Vec<&[u8]> = released.iter().map(|packet| packet.payload.as_slice()).collect();
        assert_eq!(payloads, [b"first".as_slice(), b"second"]);
        assert_eq!(neighbours.lookup(Nanos(3), ip(1)), Some(at(1)));
        assert_eq!((neighbours.waiting_count(), neighbours.next_timer()), (0, None));
    }

    #[test]
    fn a_question_is_repeated_and_then_given_up() {
        let mut neighbours = Neighbours::new(limits());
        neighbours.wait(Nanos(0), to(9), to(1), b"packet");
        let mut ask = Vec::new();
        neighbours.on_timer(Nanos(1), &mut ask);
        assert!(ask.is_empty());
        neighbours.on_timer(Nanos::from_secs(1), &mut ask);
        assert_eq!(ask, [ip(1)]);
        neighbours.on_timer(Nanos::from_secs(2), &mut ask);
        assert_eq!((ask.len(), neighbours.waiting_count()), (1, 0));
        assert_eq!((neighbours.counters().asked, neighbours.counters().unanswered), (2, 1));
    }

    #[test]
    fn without_room_to_wait_a_packet_is_refused() {
        let mut neighbours = Neighbours::new(limits());
        for number in [1, 2] {
            neighbours.wait(Nanos(0), to(9), to(number), b"packet");
        }
        assert_eq!(neighbours.wait(Nanos(0), to(9), to(3), b"third address"), Queued::Refused);
        for _ in 0..2 {
            assert_eq!(neighbours.wait(Nanos(0), to(9), to(1), b"more"), Queued::Waiting);
        }
        assert_eq!(neighbours.wait(Nanos(0), to(9), to(1), b"fifth packet"), Queued::Refused);
        let group = SocketAddr::from(([224, 0, 0, 1], 51_000));
        assert_eq!(Neighbours::new(limits()).wait(Nanos(0), to(9), group, b""), Queued::Refused);
    }

    #[test]
    fn a_full_table_learns_only_what_was_asked_for_or_takes_an_expired_place() {
        let mut neighbours = Neighbours::new(limits());
        let mut released = Vec::new();
        for number in 1..=4 {
            neighbours.heard(Nanos(u64::from(number)), ip(number), at(0), &mut released);
        }
        assert_eq!(neighbours.lookup(Nanos(9), ip(4)), None);
        assert_eq!(neighbours.counters().unlearnt, 1);
        neighbours.wait(Nanos(5), to(9), to(5), b"packet");
        neighbours.heard(Nanos(6), ip(5), at(1), &mut released);
        assert_eq!(neighbours.lookup(Nanos(9), ip(5)), Some(at(1)));
        assert_eq!(neighbours.lookup(Nanos(9), ip(1)), None, "the longest silent went");
        let later = Nanos::from_secs(20);
        neighbours.heard(later, ip(6), at(0), &mut released);
        assert_eq!(neighbours.lookup(later, ip(6)), Some(at(0)));
    }

    #[test]
    fn what_nobody_can_be_is_not_learnt() {
        let mut neighbours = Neighbours::new(limits());
        let mut released = Vec::new();
        for address in ["0.0.0.0", "255.255.255.255", "224.0.0.1", "127.0.0.1", "::", "ff02::1"] {
            let address = address.parse().expect("an address");
            neighbours.heard(Nanos(0), address, at(0), &mut released);
        }
        let group = Neighbour { mac: MacAddress::BROADCAST, ..at(0) };
        neighbours.heard(Nanos(0), ip(1), group, &mut released);
        assert_eq!(neighbours.known_count(), 0);
    }

    proptest! {
        #[test]
        fn table_and_queue_stay_bounded(
            steps in proptest::collection::vec((0..3_u8, 0..9_u8, 0..3_000_u64), 0..300)
        ) {
            let mut neighbours = Neighbours::new(limits());
            let mut now = Nanos(0);
            let (mut released, mut ask) = (Vec::new(), Vec::new());
            for (step, number, millis) in steps {
                now = now.plus(Nanos::from_millis(millis));
                match step {
                    0 => neighbours.heard(now, ip(number), at(0), &mut released),
                    1 => { neighbours.wait(now, to(9), to(number), b"x"); }
                    _ => neighbours.on_timer(now, &mut ask),
                }
                prop_assert!(neighbours.known_count() <= 3);
                prop_assert!(neighbours.waiting_count() <= 4);
                prop_assert!(neighbours.questions.len() <= 2);
                let queued: usize = neighbours.questions.values().map(|one| one.packets.len()).sum();
                prop_assert_eq!(queued, neighbours.waiting_count());
            }
        }
    }
}
