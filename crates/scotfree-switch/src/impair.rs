//! A bad link, made on purpose: loss, delay, reordering, duplication, corruption and a rate limit on
//! one direction of one port, for the lab, where the kernel offers no such thing.
//!
//! Invariant: the fate of the n-th frame depends on the seed, on n and on the time only, so a run can
//! be repeated; the frames held never exceed `held_frames_max`: at the limit a frame is dropped and
//! counted, as a switch with a full buffer does.

use scotfree_core::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A share of all frames, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Share(u32);

impl Share {
    const WHOLE: u32 = 1_000_000;

    /// `percent` of all frames, from 0 to 100.
    pub fn from_percent(percent: f64) -> Option<Share> {
        (0.0..=100.0).contains(&percent).then(|| Share((percent * 10_000.0).round() as u32))
    }

    /// The share in percent.
    pub fn percent(self) -> f64 {
        f64::from(self.0) / 10_000.0
    }
}

/// A limit of the rate: `bits_per_second`, of which a sender may be ahead by `burst_bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How fast, at least 1.
    pub bits_per_second: u64,
    /// How much may pass at once after a pause.
    pub burst_bytes: u64,
}

impl Rate {
    fn span_of(self, bytes: u64) -> Nanos {
        let nanos = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(self.bits_per_second.max(1));
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// What to do to the frames of one direction. The default does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Impairment {
    /// Frames that vanish.
    pub loss: Share,
    /// Frames that come twice.
    pub duplicate: Share,
    /// Frames that come `reorder_hold` later than their place, so that others overtake them.
    pub reorder: Share,
    /// How much later.
    pub reorder_hold: Nanos,
    /// Frames in which one bit is flipped.
    pub corrupt: Share,
    /// How much later every frame comes.
    pub delay: Nanos,
    /// How fast frames may come.
    pub rate: Option<Rate>,
    /// How many frames are held at a time.
    pub held_frames_max: usize,
    /// The seed of all chances.
    pub seed: u64,
}

impl Default for Impairment {
    fn default() -> Self {
        Impairment {
            loss: Share(0),
            duplicate: Share(0),
            reorder: Share(0),
            reorder_hold: Nanos::from_millis(1),
            corrupt: Share(0),
            delay: Nanos(0),
            rate: None,
            held_frames_max: 4_096,
            seed: 1,
        }
    }
}

impl Impairment {
    /// Whether frames pass as they are, at once.
    pub fn is_transparent(&self) -> bool {
        let none = Share(0);
        let untouched =
            [self.loss, self.duplicate, self.reorder, self.corrupt].iter().all(|one| *one == none);
        untouched && self.delay == Nanos(0) && self.rate.is_none()
    }
}

/// What was done to frames so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImpairmentCounters {
    /// Frames offered.
    pub offered: u64,
    /// Frames lost by chance.
    pub lost: u64,
    /// Frames duplicated.
    pub duplicated: u64,
    /// Frames held back so that others overtake them.
    pub reordered: u64,
    /// Frames with a flipped bit.
    pub corrupted: u64,
    /// Frames dropped because too many were held.
    pub overflowed: u64,
    /// Frames that came out.
    pub delivered: u64,
}

/// The bad link of one direction.
#[derive(Debug)]
pub struct Impairer {
    settings: Impairment,
    chance: Chance,
    /// Ordered by the time when the frame is due and, at equal times, by the order of coming.
    held: BinaryHeap<Reverse<(Nanos, u64, Vec<u8>)>>,
    spare: Vec<Vec<u8>>,
    /// When the link, at its rate, is done with everything sent so far.
    paid_at: Nanos,
    counters: ImpairmentCounters,
}

impl Impairer {
    /// A link with these faults.
    pub fn new(settings: Impairment) -> Impairer {
        Impairer {
            settings,
            chance: Chance(settings.seed),
            held: BinaryHeap::new(),
            spare: Vec::new(),
            paid_at: Nanos(0),
            counters: ImpairmentCounters::default(),
        }
    }

    /// Changes the faults; frames held keep their time, counters go on.
    pub fn reload(&mut self, settings: Impairment) {
        self.settings = settings;
        self.chance = Chance(settings.seed);
        self.paid_at = Nanos(0);
    }

    /// Whether frames may pass beside it: it would do nothing to them and holds none.
    pub fn is_transparent(&self) -> bool {
        self.held.is_empty() && self.settings.is_transparent()
    }

    /// A frame comes. `corrupt` flips a bit of it, chosen by the number that it is given.
    pub fn offer(&mut self, now: Nanos, frame: &[u8], corrupt: impl Fn(&mut [u8], u64)) {
        self.counters.offered += 1;
        // Every chance is drawn for every frame: the fates stay the same when one share changes.
        let [lost, twice, late, damaged] =
            [self.settings.loss, self.settings.duplicate, self.settings.reorder, self.settings.corrupt]
                .map(|share| self.chance.strikes(share));
        let place = self.chance.next();
        if lost {
            self.counters.lost += 1;
            return;
        }
        let hold = if late { self.settings.reorder_hold } else { Nanos(0) };
        for copy in 0..=u64::from(twice) {
            let Some(due) = self.take_place(now, frame.len()) else { return };
            let mut bytes = self.spare.pop().unwrap_or_default();
            bytes.clear();
            bytes.extend_from_slice(frame);
            if damaged {
                corrupt(&mut bytes, place);
            }
            self.counters.duplicated += copy;
            let order = self.counters.offered;
            self.held.push(Reverse((due.plus(self.settings.delay).plus(hold), order, bytes)));
        }
        self.counters.reordered += u64::from(late);
        self.counters.corrupted += u64::from(damaged);
    }

    /// When the bucket lets a frame go, if there is room to hold it until then.
    fn take_place(&mut self, now: Nanos, bytes: usize) -> Option<Nanos> {
        if self.held.len() >= self.settings.held_frames_max {
            self.counters.overflowed += 1;
            return None;
        }
        let Some(rate) = self.settings.rate else { return Some(now) };
        let begins = self.paid_at.max(now);
        self.paid_at = begins.plus(rate.span_of(bytes as u64));
        Some(now.max(Nanos(begins.0.saturating_sub(rate.span_of(rate.burst_bytes).0))))
    }

    /// Hands out the frames whose time has come.
    pub fn deliver(&mut self, now: Nanos, mut out: impl FnMut(&[u8])) {
        while self.next_due().is_some_and(|due| due <= now) {
            let Some(Reverse((_, _, bytes))) = self.held.pop() else { return };
            self.counters.delivered += 1;
            out(&bytes);
            if self.spare.len() < self.settings.held_frames_max {
                self.spare.push(bytes);
            }
        }
    }

    /// When the next frame is due.
    pub fn next_due(&self) -> Option<Nanos> {
        self.held.peek().map(|Reverse((due, _, _))| *due)
    }

    /// What was done to frames so far.
    pub fn counters(&self) -> &ImpairmentCounters {
        &self.counters
    }
}

/// A sequence of chances (splitmix64): nothing secret depends on it.
#[derive(Debug)]
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn strikes(&mut self, share: Share) -> bool {
        self.next() % u64::from(Share::WHOLE) < u64::from(share.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(percent: f64) -> Share {
        Share::from_percent(percent).expect("0 to 100")
    }

    fn flip(frame: &mut [u8], place: u64) {
        let bits = frame.len() as u64 * 8;
        let bit = place % bits;
        frame[(bit / 8) as usize] ^= 1 << (bit % 8);
    }

    /// Offers `count` numbered frames a microsecond apart and returns what came out with its time.
    fn run(settings: Impairment, count: u32) -> (Vec<(Nanos, u32)>, ImpairmentCounters) {
        let mut link = Impairer::new(settings);
        let mut came = Vec::new();
        for number in 0..count {
            let now = Nanos::from_micros(u64::from(number));
            link.offer(now, &number.to_be_bytes(), flip);
            drain(&mut link, now, &mut came);
        }
        while let Some(due) = link.next_due() {
            drain(&mut link, due, &mut came);
        }
        (came, *link.counters())
    }

    fn drain(link: &mut Impairer, now: Nanos, came: &mut Vec<(Nanos, u32)>) {
        link.deliver(now, |bytes| came.push((now, u32::from_be_bytes(bytes.try_into().expect("4 bytes")))));
    }

    #[test]
    fn a_default_link_is_transparent() {
        assert!(Impairer::new(Impairment::default()).is_transparent());
        let (came, _) = run(Impairment::default(), 5);
        assert_eq!(came.iter().map(|(_, number)| *number).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn shares_are_met_and_repeat_with_the_seed() {
        let settings = Impairment {
            loss: percent(10.0),
            duplicate: percent(5.0),
            corrupt: percent(1.0),
            reorder: percent(2.0),
            held_frames_max: 100_000,
            ..Impairment::default()
        };
        let (came, counters) = run(settings, 100_000);
        let near = |count: u64, expected: u64| count.abs_diff(expected) < expected / 5;
        assert!(near(counters.lost, 10_000), "{counters:?}");
        assert!(near(counters.duplicated, 4_500), "{counters:?}");
        assert!(near(counters.corrupted, 900), "{counters:?}");
        assert!(near(counters.reordered, 1_800), "{counters:?}");
        assert_eq!(counters.delivered, came.len() as u64);
        assert_eq!(counters.delivered + counters.lost, counters.offered + counters.duplicated);
        assert_eq!(run(settings, 100_000).0, came);
        assert_ne!(run(Impairment { seed: 2, ..settings }, 100_000).0, came);
    }

    #[test]
    fn delay_keeps_the_order_and_reordering_does_not() {
        let delayed = Impairment { delay: Nanos::from_micros(500), ..Impairment::default() };
        let (came, _) = run(delayed, 100);
        assert_eq!(came[0].0, Nanos::from_micros(500));
        assert!(came.windows(2).all(|pair| pair[0].1 < pair[1].1));
        let shuffled = Impairment { reorder: percent(20.0), ..delayed };
        let (came, counters) = run(shuffled, 1_000);
        assert!(counters.reordered > 100);
        assert!(came.windows(2).any(|pair| pair[0].1 > pair[1].1));
    }

    #[test]
    fn the_rate_holds_after_the_burst() {
        // 4 bytes take 4 us at 8 Mbit/s; two frames pass at once.
        let rate = Some(Rate { bits_per_second: 8_000_000, burst_bytes: 8 });
        let (came, _) = run(Impairment { rate, ..Impairment::default() }, 100);
        assert_eq!(came[2].0, Nanos::from_micros(2));
        let last = came[99].0;
        assert!((Nanos::from_micros(388)..=Nanos::from_micros(400)).contains(&last), "{last}");
    }

    #[test]
    fn at_the_limit_frames_are_dropped_and_counted() {
        let settings =
            Impairment { delay: Nanos::from_secs(1), held_frames_max: 10, ..Impairment::default() };
        let (came, counters) = run(settings, 25);
        assert_eq!((came.len(), counters.overflowed), (10, 15));
    }

    #[test]
    fn shares_beyond_the_whole_are_refused() {
        for percent in [-0.1, 100.1, f64::NAN] {
            assert_eq!(Share::from_percent(percent), None);
        }
        assert!((percent(0.5).percent() - 0.5).abs() < 1e-9);
    }
}
