//! Groups in the deterministic world: members that crash, pause and lose their way to each other, clients that go from
//! one to another, by as many schedules as are asked for.
//!
//! Invariant: a seed is a schedule, and each repetition has seeds of its own; a schedule that breaks a promise is told
//! by its seed.

use crate::experiment::Measurement;
use crate::runs::settings::settings_of;
use crate::runs::{Context, Measured};
use remedy_replicate_world::{Protocol, Scenario, World};
use scotfree_sim::{campaign, Options};
use scotfree_stage::trouble::Trouble;
use serde::Deserialize;
use std::thread;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    protocol: ProtocolName,
    /// Whether views change all the time.
    storm: bool,
    /// How many in each repetition.
    schedules: u64,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum ProtocolName {
    Chain,
    Craq,
    Hermes,
}

impl ProtocolName {
    const fn protocol(self) -> Protocol {
        match self {
            ProtocolName::Chain => Protocol::Chain,
            ProtocolName::Craq => Protocol::Craq,
            ProtocolName::Hermes => Protocol::Hermes,
        }
    }
}

pub(in crate::runs) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    context.measure_in_turns(|arm, repetition| {
        let settings: Settings = settings_of(arm)?;
        Ok(try_schedules(&settings, u64::from(repetition) * settings.schedules))
    })
}

fn try_schedules(settings: &Settings, first: u64) -> Measured {
    let protocol = settings.protocol.protocol();
    let scenario = |seed| {
        if settings.storm {
            Scenario::storm(seed, protocol)
        } else {
            Scenario::random(seed, protocol)
        }
    };
    let threads_max = thread::available_parallelism().map_or(1, usize::from);
    let options = Options::<World> { scenario: &scenario, threads_max, ..Options::default() };
    let report = campaign(first..first + settings.schedules, &options, |_| {});
    for failure in &report.failures {
        eprintln!("{failure}");
    }
    let mut measured = Measured::default();
    measured.value("schedules", report.total.numbers()[0].1 as f64 + report.failures.len() as f64);
    measured.value("violations", report.failures.len() as f64);
    for (name, number) in report.total.numbers() {
        measured.counter(name, number).value(name, number as f64);
    }
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_counted_with_what_happened_in_them() {
        let settings = Settings { protocol: ProtocolName::Craq, storm: true, schedules: 5 };
        let measured = try_schedules(&settings, 0);
        assert_eq!((measured.values["schedules"], measured.values["violations"]), (5.0, 0.0));
        assert_eq!(measured.counters["runs"], 5);
    }
}
