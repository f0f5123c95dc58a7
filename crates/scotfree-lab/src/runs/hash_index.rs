//! A log whose slots are found by a hash of the header, as published, beside ours, whose slots are the places of
//! sessions' windows: what share of updates finds its slot taken, by how full the log is.
//!
//! Invariant: both get the same updates, and the same word of what is stable, in the same order, and have the same number
//! of slots; the same seed gives the same shares.

use super::device::{keys_of, update, Became, Device};
use super::settings::settings_of;
use super::{Context, Measured};
use crate::experiment::Measurement;
use scotfree_stage::trouble::Trouble;
use scotfree_stage::workload::Random;
use scotfree_wire::SessionKeys;
use serde::Deserialize;
use std::collections::BTreeSet;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    index: Index,
    /// How many of a hundred slots there are updates for that are not stable.
    fill_percent: u64,
    updates: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Index {
    /// CRC-32 of type, session and number, over the number of slots.
    Hash,
    /// The place in the session's window.
    Window,
}

const SESSIONS: u64 = 16;
const WINDOW: u64 = 64;
const SLOTS: u64 = SESSIONS * WINDOW;
/// `update-req` of the published header.
const KIND: u8 = 1;

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    context.measure_in_turns(|arm, repetition| {
        let settings: Settings = settings_of(arm)?;
        let seed = u64::from(repetition);
        Ok(match settings.index {
            Index::Hash => measure(&mut HashedLog::new(seed), &settings, seed),
            Index::Window => {
                let device = Device::new(context.options, &["persist"], WINDOW as u32)?;
                measure(&mut OwnLog::new(device), &settings, seed)
            }
        })
    })
}

/// A log of updates.
trait Log {
    /// An update comes; whether it is granted a slot.
    fn admit(&mut self, session: u64, seq: u64) -> bool;
    /// An update is stable at the server.
    fn free(&mut self, session: u64, seq: u64);
}

/// Has every session keep so many updates under way that the log would be as full as asked for.
fn measure(log: &mut dyn Log, settings: &Settings, seed: u64) -> Measured {
    let under_way = (SLOTS * settings.fill_percent / 100).max(SESSIONS) / SESSIONS;
    let mut random = Random::new(seed, 1);
    let mut sent = vec![0_u64; SESSIONS as usize];
    let (mut not_granted, mut updates) = (0, 0);
    let warmup = under_way * SESSIONS * 4;
    for number in 0..warmup + settings.updates {
        let session = random.below(SESSIONS);
        let seq = &mut sent[session as usize];
        *seq += 1;
        if *seq > under_way {
            log.free(session, *seq - under_way);
        }
        let is_granted = log.admit(session, *seq);
        // Until every session has as many under way the log is emptier.
        if number >= warmup {
            updates += 1;
            not_granted += u64::from(!is_granted);
        }
    }
    let mut measured = Measured::default();
    measured.value("not_granted_share", not_granted as f64 / updates as f64);
    measured.counter("updates", updates).counter("not_granted", not_granted);
    measured
}

/// As published: an update whose slot is taken passes unlogged.
struct HashedLog {
    /// Which update has the slot.
    slots: Vec<Option<(u64, u64)>>,
    /// The sessions' names, of 16 bits, none twice.
    names: Vec<u16>,
}

impl HashedLog {
    fn new(seed: u64) -> HashedLog {
        let mut random = Random::new(seed, 2);
        let mut names = BTreeSet::new();
        while (names.len() as u64) < SESSIONS {
            names.insert(random.next() as u16);
        }
        HashedLog { slots: vec![None; SLOTS as usize], names: names.into_iter().collect() }
    }

    fn slot(&self, session: u64, seq: u64) -> usize {
        let mut header = [0; 7];
        header[0] = KIND;
        header[1..3].copy_from_slice(&self.names[session as usize].to_be_bytes());
        header[3..].copy_from_slice(&(seq as u32).to_be_bytes());
        crc32c::crc32c(&header) as usize % self.slots.len()
    }
}

impl Log for HashedLog {
    fn admit(&mut self, session: u64, seq: u64) -> bool {
        let slot = self.slot(session, seq);
        let is_free = self.slots[slot].is_none();
        if is_free {
            self.slots[slot] = Some((session, seq));
        }
        is_free
    }

    fn free(&mut self, session: u64, seq: u64) {
        let slot = self.slot(session, seq);
        if self.slots[slot] == Some((session, seq)) {
            self.slots[slot] = None;
        }
    }
}

/// The function of our device.
struct OwnLog {
    device: Device,
    keys: Vec<SessionKeys>,
}

impl OwnLog {
    fn new(mut device: Device) -> OwnLog {
        let keys = (0..SESSIONS).map(|session| keys_of(session + 1)).collect();
        (1..=SESSIONS).for_each(|session| device.open(session, WINDOW as u32));
        OwnLog { device, keys }
    }
}

impl Log for OwnLog {
    fn admit(&mut self, session: u64, seq: u64) -> bool {
        let keys = &self.keys[session as usize];
        let bytes = update(keys, session + 1, seq, &format!("user{seq}"));
        self.device.request(&bytes) == Became::Logged
    }

    fn free(&mut self, session: u64, seq: u64) {
        self.device.stable(&self.keys[session as usize], session + 1, seq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(fill_percent: u64, seed: u64) -> f64 {
        let settings = Settings { index: Index::Hash, fill_percent, updates: 20_000 };
        measure(&mut HashedLog::new(seed), &settings, seed).values["not_granted_share"]
    }

    #[test]
    fn the_fuller_a_hashed_log_is_the_more_updates_find_their_slot_taken() {
        assert_eq!(share(50, 1).to_bits(), share(50, 1).to_bits());
        assert!(share(10, 1) < share(50, 1) && share(50, 1) < share(100, 1));
        assert!(share(100, 1) > 0.2 && share(100, 1) < 0.8, "{}", share(100, 1));
    }

    #[test]
    fn a_slot_is_free_again_when_its_own_update_is_stable_and_not_before() {
        let mut log = HashedLog::new(1);
        assert!(log.admit(0, 1) && !log.admit(0, 1));
        log.free(1, 1);
        assert!(!log.admit(0, 1));
        log.free(0, 1);
        assert!(log.admit(0, 1));
    }
}
