//! Datagrams of other members that were refused: how many, from where, and why, as few lines for the log.
//!
//! Invariant: of what a refused datagram holds nothing is kept or said. However many come from however many addresses:
//! a line per address, reason and minute, for at most [`ADDRESSES_MAX`] addresses and for all others together.

use remedy_replicate::{Refusal, ReplicaCounters};
use scotfree_core::Nanos;
use std::net::SocketAddr;

/// Of how many addresses it is known what came from there. One that was silent for a minute makes room for another.
const ADDRESSES_MAX: usize = 16;
/// The shortest time between two lines about an address.
const INTERVAL: Nanos = Nanos::from_secs(60);
/// The shortest time between two greetings of an address.
const GREET_INTERVAL: Nanos = Nanos::from_secs(1);
/// What is said; datagrams that are none of ours, or are damaged, are only counted.
const REASONS: [Refusal; 3] = [Refusal::BadMac, Refusal::OtherGroup, Refusal::OtherMember];

/// What was refused, by address.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    seen: [u64; REASONS.len()],
    senders: Vec<Sender>,
    lines: Vec<String>,
    /// The last one, and when it came.
    last: Option<(Nanos, Refusal)>,
}

/// What came from an address for one reason.
#[derive(Debug)]
struct Sender {
    /// None stands for all that found no room.
    from: Option<SocketAddr>,
    why: Refusal,
    unsaid: u64,
    last_at: Nanos,
    said_at: Option<Nanos>,
    greeted_at: Option<Nanos>,
}

impl Refused {
    /// A datagram from there has been handled. Whether the sender should be greeted: a member with another key, or of
    /// another group, learns it from what it cannot take, too.
    pub(crate) fn look(&mut self, now: Nanos, from: SocketAddr, counters: &ReplicaCounters) -> bool {
        let Some(why) = self.news(counters) else { return false };
        self.last = Some((now, why));
        let sender = self.sender(now, from, why);
        sender.unsaid += 1;
        sender.last_at = now;
        let line = sender.next_line(now);
        let is_greeted = sender.is_to_be_greeted(now);
        self.lines.extend(line);
        is_greeted
    }

    /// What is to be said since the last time.
    pub(crate) fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    /// Why this member hears nobody, if that is why: what others have sent of late was refused, and nothing else ever
    /// came.
    pub(crate) fn hears_nobody(&self, now: Nanos, counters: &ReplicaCounters) -> Option<&'static str> {
        let has_heard = counters.received > counters.refused.values().sum();
        let (_, why) = self.last.filter(|(at, _)| !has_heard && now < at.plus(INTERVAL))?;
        Some(match why {
            Refusal::BadMac => {
                "what other members send does not authenticate: is --key-file the same on all members?"
            }
            _ => "other members are of another group, or set up otherwise: see what this one logs",
        })
    }

    /// For which reason the last datagram was refused, if it was for one that is said.
    fn news(&mut self, counters: &ReplicaCounters) -> Option<Refusal> {
        let mut news = None;
        for (why, seen) in REASONS.into_iter().zip(&mut self.seen) {
            let count = counters.refused.get(&why).copied().unwrap_or(0);
            if count != *seen {
                (*seen, news) = (count, Some(why));
            }
        }
        news
    }

    /// The row of an address, which may have to be that of all others.
    fn sender(&mut self, now: Nanos, from: SocketAddr, why: Refusal) -> &mut Sender {
        let is_of = |from: Option<SocketAddr>| move |row: &Sender| row.from == from && row.why == why;
        let position = self.senders.iter().position(is_of(Some(from)));
        let position = position.or_else(|| self.room_for(now, Some(from), why));
        let position = position.or_else(|| self.senders.iter().position(is_of(None)));
        let position = position.unwrap_or_else(|| self.add(now, None, why));
        &mut self.senders[position]
    }

    /// A new row, if there is room for one, in the place of an address that has been silent if need be.
    fn room_for(&mut self, now: Nanos, from: Option<SocketAddr>, why: Refusal) -> Option<usize> {
        let known = self.senders.iter().filter(|row| row.from.is_some()).count();
        if known == ADDRESSES_MAX {
            let is_silent = |row: &Sender| row.from.is_some() && row.last_at.plus(INTERVAL) <= now;
            let silent = self.senders.iter().position(is_silent)?;
            self.senders.swap_remove(silent);
        }
        Some(self.add(now, from, why))
    }

    fn add(&mut self, now: Nanos, from: Option<SocketAddr>, why: Refusal) -> usize {
        self.senders.push(Sender { from, why, unsaid: 0, last_at: now, said_at: None, greeted_at: None });
        self.senders.len() - 1
    }
}

impl Sender {
    fn next_line(&mut self, now: Nanos) -> Option<String> {
        if self.said_at.is_some_and(|said| now < said.plus(INTERVAL)) {
            return None;
        }
        self.said_at = Some(now);
        let count = std::mem::take(&mut self.unsaid);
        Some(line(count, self.from, self.why))
    }

    fn is_to_be_greeted(&mut self, now: Nanos) -> bool {
        let is_soon = self.greeted_at.is_some_and(|greeted| now < greeted.plus(GREET_INTERVAL));
        if !is_soon {
            self.greeted_at = Some(now);
        }
        !is_soon
    }
}

fn line(count: u64, from: Option<SocketAddr>, why: Refusal) -> String {
    let datagrams = if count == 1 { "datagram" } else { "datagrams" };
    let from = from.map_or_else(|| "other addresses".to_owned(), |from| from.to_string());
    let what = match why {
        Refusal::BadMac => " did not authenticate: is --key-file the same on all members?",
        Refusal::OtherGroup => {
            ": of another group, or of a member that was set up otherwise: compare --group, --protocol, --answer-when \
             and --log-size"
        }
        Refusal::OtherMember => ": meant for another member: the membership has a wrong address",
        Refusal::Foreign | Refusal::Damaged => ": not to be read",
    };
    format!("ALARM: {count} {datagrams} from {from}{what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: usize) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 9], number as u16))
    }

    /// What is said of datagrams, one a second, from these addresses, all of them refused as `why`.
    fn said(senders: impl Iterator<Item = usize>, why: Refusal) -> (Vec<String>, usize) {
        let (mut refused, mut counters) = (Refused::default(), ReplicaCounters::default());
        let mut greeted = 0;
        for (second, number) in senders.enumerate() {
            *counters.refused.entry(why).or_default() += 1;
            let now = Nanos::from_secs(1 + second as u64);
            greeted += usize::from(refused.look(now, address(number), &counters));
        }
        assert!(refused.senders.len() <= ADDRESSES_MAX + 1);
        (refused.take_lines(), greeted)
    }

    #[test]
    fn of_an_address_there_is_a_line_a_minute_with_the_number_since_the_last() {
        let (lines, greeted) = said((0..121).map(|_| 7), Refusal::BadMac);
        assert_eq!((lines.len(), greeted), (3, 121));
        assert!(
            lines[0].contains("1 datagram from 10.0.0.9:7 ") && lines[0].contains("--key-file"),
            "{lines:?}"
        );
        assert!(
            lines[1].contains("60 datagrams from") && lines[2].contains("60 datagrams from"),
            "{lines:?}"
        );
    }

    #[test]
    fn who_has_our_key_is_told_what_else_differs() {
        let (lines, _) = said((0..3).map(|_| 7), Refusal::OtherGroup);
        assert!(lines.len() == 1 && lines[0].contains("compare --group"), "{lines:?}");
        assert_eq!(said([1, 2].into_iter(), Refusal::Damaged), (vec![], 0), "it is only counted");
    }

    #[test]
    fn a_flood_from_many_addresses_is_a_line_for_each_of_the_first_and_one_for_all_others() {
        let (lines, _) = said((0..40).map(|number| 1 + number % 20), Refusal::BadMac);
        assert_eq!(lines.len(), ADDRESSES_MAX + 1, "{lines:?}");
        assert!(lines[ADDRESSES_MAX].contains("other addresses"), "{lines:?}");
        // Whoever was silent for a minute makes room.
        let (lines, _) = said(1..=100, Refusal::BadMac);
        assert!(lines.iter().any(|line| line.contains("10.0.0.9:70 ")), "{lines:?}");
    }

    #[test]
    fn a_member_that_has_heard_another_blames_no_key() {
        let (mut refused, mut counters) = (Refused::default(), ReplicaCounters::default());
        let at = Nanos::from_secs;
        assert_eq!(refused.hears_nobody(at(1), &counters), None);
        counters.received = 1;
        counters.refused.insert(Refusal::BadMac, 1);
        refused.look(at(1), address(1), &counters);
        assert!(refused.hears_nobody(at(2), &counters).is_some_and(|why| why.contains("--key-file")));
        assert_eq!(refused.hears_nobody(at(61), &counters), None, "that was long ago");
        counters.received = 2;
        assert_eq!(refused.hears_nobody(at(2), &counters), None);
    }
}
