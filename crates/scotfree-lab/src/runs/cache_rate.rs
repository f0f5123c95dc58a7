//! How many reads a second a device's functions deal with on one processor: hits, and what passes.
//!
//! Invariant: what is counted is the processor time of the thread that gives packets to the functions, from the bytes of
//! a packet to those of what they become, MACs included; sockets and the bridge are not there. Packets are made outside
//! of that time.

use super::device::{get, keys_of, Became, Device};
use super::settings::settings_of;
use super::worker::gets::Keys;
use super::{Context, Measured};
use crate::experiment::Measurement;
use rustix::time::{clock_gettime, ClockId};
use scotfree_stage::trouble::Trouble;
use scotfree_wire::SessionKeys;
use serde::Deserialize;
use std::time::Duration;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    /// Whether a cache is among the functions.
    cache: bool,
    keys: Keys,
    /// How many they are, if they are asked for in turns.
    keys_count: u64,
    reads: u64,
}

const SESSION: u64 = 1;
const WINDOW: u32 = 64;
/// Packets that are made at once.
const BATCH: u64 = 4_096;
/// How often a cache is shown every key before.
const ROUNDS: u64 = 4;

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    context.measure_in_turns(|arm, _| {
        let settings: Settings = settings_of(arm)?;
        let functions = if settings.cache { &["cache", "persist"][..] } else { &["persist"] };
        let device = Device::new(context.options, functions, WINDOW)?;
        Ok(measure(device, &settings))
    })
}

struct Reader {
    device: Device,
    keys: SessionKeys,
    seq: u64,
}

impl Reader {
    fn read(&mut self, settings: &Settings) -> Vec<u8> {
        self.seq += 1;
        let number = match settings.keys {
            Keys::Known | Keys::Some => self.seq % settings.keys_count,
            Keys::Fresh => self.seq,
        };
        get(&self.keys, SESSION, self.seq, &format!("user{number:016}"))
    }

    /// A server answers what passes, until the cache knows all keys.
    fn warm_up(&mut self, settings: &Settings) {
        for _ in 0..settings.keys_count * ROUNDS {
            let packet = self.read(settings);
            if self.device.request(&packet) != Became::Answered {
                self.device.answer(&self.keys, SESSION, self.seq);
            }
        }
    }
}

fn measure(mut device: Device, settings: &Settings) -> Measured {
    device.open(SESSION, WINDOW);
    let mut reader = Reader { device, keys: keys_of(SESSION), seq: 0 };
    reader.warm_up(settings);
    let (mut time, mut answered, mut passed, mut sent) = (Duration::ZERO, 0, 0, 0);
    while sent < settings.reads {
        let packets: Vec<Vec<u8>> = (0..BATCH).map(|_| reader.read(settings)).collect();
        let begin = processor_time();
        for packet in &packets {
            match reader.device.request(packet) {
                Became::Answered => answered += 1,
                Became::Passed => passed += 1,
                Became::Logged | Became::Nothing => {}
            }
        }
        time += processor_time().saturating_sub(begin);
        sent += BATCH;
    }
    let mut measured = Measured::default();
    measured.value("reads_per_s", sent as f64 / time.as_secs_f64());
    measured.value("ns_per_read", time.as_secs_f64() * 1e9 / sent as f64);
    measured.counter("answered", answered).counter("passed", passed);
    measured.counter("lost", sent - answered - passed);
    measured
}

/// What this thread has had of processors.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_runs_while_something_is_done() {
        let begin = processor_time();
        // It ends when it has taken some.
        while processor_time() <= begin {
            std::hint::spin_loop();
        }
        assert!(processor_time() > begin);
    }
}
