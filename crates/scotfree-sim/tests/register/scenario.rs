//! What a run of the registers is made of.
//!
//! Invariant: a seed is a scenario.

use crate::machines::Fault;
use scotfree_core::Nanos;
use scotfree_sim::media::Crash;
use scotfree_sim::network::Quality;
use scotfree_sim::rng::{PerMillion, Rng};
use scotfree_sim::{Mishap, When};
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Writer(usize),
    Replica(usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

#[derive(Debug, Clone)]
pub struct Scenario {
    pub writer_count: usize,
    pub replica_count: usize,
    /// How many writes each writer makes.
    pub write_count: u64,
    pub network: Quality,
    pub drift_ppm_max: u64,
    pub mishaps: Vec<Mishap<Trouble>>,
    pub calm_at: Nanos,
    pub planted: Option<Fault>,
}

#[derive(Debug, Clone, Copy)]
pub enum Trouble {
    Crash { replica: usize, kind: Crash, down: Nanos },
    Cut { from: Place, to: Place, span: Nanos },
    JumpClock { place: Place, jump_ns: i64 },
}

impl Scenario {
    /// Whatever the seed says.
    pub fn random(seed: u64) -> Scenario {
        let rng = &mut Rng::new(seed, 1);
        let percent = |rng: &mut Rng, choices: &[u32]| PerMillion::percent(rng.pick(choices));
        let mut scenario = Scenario {
            writer_count: rng.between(1, 5) as usize,
            replica_count: rng.pick(&[1, 3, 4, 5, 7]),
            write_count: rng.between(5, 25),
            network: Quality {
                loss: percent(rng, &[0, 1, 10]),
                duplication: percent(rng, &[0, 10, 30]),
                corruption: percent(rng, &[0, 1, 5]),
                delay_max: Nanos::from_micros(rng.pick(&[10, 400, 2_000])),
                straggling: percent(rng, &[0, 3]),
                straggle_max: Nanos::from_millis(rng.pick(&[5, 40])),
                ..Quality::CALM
            },
            drift_ppm_max: 200,
            mishaps: Vec::new(),
            calm_at: Nanos::from_millis(30),
            planted: None,
        };
        scenario.mishaps = (0..rng.below(8)).map(|_| draw_mishap(rng, &scenario)).collect();
        scenario
    }
}

fn draw_mishap(rng: &mut Rng, scenario: &Scenario) -> Mishap<Trouble> {
    let replica = rng.index(scenario.replica_count);
    let (from, to) = (Place::Writer(rng.index(scenario.writer_count)), Place::Replica(replica));
    let span = Nanos(rng.below(10_000_000));
    let what = match rng.below(4) {
        0 | 1 => Trouble::Crash { replica, kind: rng.pick(&[Crash::Process, Crash::Host]), down: span },
        2 => Trouble::Cut { from, to, span },
        _ => Trouble::JumpClock { place: from, jump_ns: rng.below(20_000_000) as i64 - 10_000_000 },
    };
    Mishap { when: When::Time(Nanos(rng.below(30_000_000))), what }
}
