//! The runners: what can measure an experiment. An experiment's file names one (`runner = "update-ack"`).
//!
//! Invariant: a name is either in the table, or of those that this build leaves out, or refused with the names known.

use super::{Context, RunError};
use crate::experiment::{Experiment, Measurement};
use scotfree_stage::trouble::Trouble;

/// Brings up what an experiment compares and measures it.
type Run = fn(&Context<'_>) -> Result<Vec<Measurement>, Trouble>;

/// What measures an experiment.
#[derive(Clone, Copy)]
pub(super) struct Runner {
    /// By which experiments' files name it.
    pub name: &'static str,
    pub run: Run,
    /// Whether it measures time with processes of the lab's own, so that another priority gives other values.
    pub is_timed: bool,
}

/// A runner that measures time.
const fn timed(name: &'static str, run: Run) -> Runner {
    Runner { name, run, is_timed: true }
}

/// One that counts what is right and wrong, or that measures programs which take all processors for a long time.
const fn untimed(name: &'static str, run: Run) -> Runner {
    Runner { name, run, is_timed: false }
}

const RUNNERS: &[Runner] = &[
    timed("cache-get", super::cache_get::run),
    untimed("cache-hit-curve", super::cache_hit_curve::run),
    timed("cache-proxy", super::cache_proxy::run),
    timed("cache-rate", super::cache_rate::run),
    timed("cache-updates", super::cache_updates::run),
    untimed("cached-linearizability", super::cached_linearizability::run),
    untimed("chain", super::chain::run),
    timed("codec", super::codec::run),
    timed("connections", super::connections::run),
    untimed("daemon-deaths", super::daemon_deaths::run),
    #[cfg(feature = "xdp")]
    timed("disk-acks", super::disk_acks::run),
    timed("disk-domain", super::disk_domain::run),
    #[cfg(feature = "xdp")]
    timed("endpoints", super::endpoints::run),
    // Four programs and more on two processors: at real-time priority those that look for events keep each other, and
    // the kernel's threads that write, from running.
    untimed("group-device", super::group::device::run),
    untimed("group-etcd-put", super::group::etcd_put::run),
    untimed("group-failures", super::group::failures::run),
    untimed("group-kill-rounds", super::group::kill_rounds::run),
    timed("group-reads", super::group::reads::run),
    untimed("group-redis-wait", super::group::redis_wait::run),
    untimed("group-resent", super::group::resent::run),
    untimed("group-shares", super::group::shares::run),
    untimed("group-unavailability", super::group::unavailability::run),
    untimed("hash-index", super::hash_index::run),
    untimed("hostile-packets", super::hostile_packets::run),
    timed("in-process", super::in_process::run),
    untimed("kill-rounds", super::kill_rounds::device::run),
    untimed("kill-rounds-control", super::kill_rounds::device::run_control),
    untimed("linearizability", super::linearizability::run),
    timed("logging-designs", super::logging_designs::run),
    timed("placement", super::placement::run),
    #[cfg(feature = "xdp")]
    timed("playback", super::playback::run),
    timed("probes", super::probes::run),
    timed("proxy", super::proxy::run),
    untimed("proxy-kill-rounds", super::kill_rounds::proxy::run),
    untimed("proxy-kill-rounds-control", super::kill_rounds::proxy::run_control),
    timed("ram2-replication", super::ram2_replication::run),
    timed("ram3-replication", super::ram3_replication::run),
    timed("recovery-time", super::recovery_time::run),
    timed("redis-always", super::redis_always::run),
    timed("redis-load", super::redis_load::run),
    #[cfg(feature = "xdp")]
    timed("reflection", super::reflection::run),
    timed("sidecar-overhead", super::sidecar_overhead::run),
    untimed("simulated", super::simulated::run),
    timed("stores", super::stores::run),
    untimed("study", super::study::run),
    untimed("study-faults", super::study_faults::run),
    untimed("study-forecast", super::study_forecast::run),
    timed("transactions", super::transactions::run),
    timed("update-ack", super::update_ack::run),
];

/// Those of them that a build without the kernel plane lacks.
const OF_THE_KERNEL_PLANE: [&str; 4] = ["disk-acks", "endpoints", "playback", "reflection"];

/// The runner that an experiment's file names.
pub(super) fn runner_of(experiment: &Experiment) -> Result<Runner, RunError> {
    if let Some(runner) = RUNNERS.iter().find(|runner| runner.name == experiment.runner) {
        return Ok(*runner);
    }
    let (experiment, runner) = (experiment.name.clone(), experiment.runner.clone());
    if OF_THE_KERNEL_PLANE.contains(&runner.as_str()) {
        return Err(RunError::LeftOut { experiment, runner });
    }
    Err(RunError::UnknownRunner { experiment, runner })
}

/// The names of all runners of this build.
pub(super) fn runner_names() -> Vec<&'static str> {
    RUNNERS.iter().map(|runner| runner.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::example;

    #[test]
    fn an_unknown_runner_is_named_with_the_known_ones() {
        let mut experiment = example();
        assert_eq!(runner_of(&experiment).map(|runner| runner.name).ok(), Some("update-ack"));
        experiment.runner = "update-akc".into();
        let error = runner_of(&experiment).err().expect("there is none").to_string();
        assert!(error.contains("`speed`") && error.contains("`update-akc`"), "{error}");
        assert!(RUNNERS.iter().all(|runner| error.contains(runner.name)), "{error}");
    }

    #[test]
    fn a_runner_of_the_kernel_plane_is_there_or_said_to_be_left_out() {
        for name in OF_THE_KERNEL_PLANE {
            let experiment = Experiment { runner: name.into(), ..example() };
            let found = runner_of(&experiment).map(|runner| runner.name);
            let said = found.map_or_else(|error| error.to_string(), str::to_owned);
            let wanted = if cfg!(feature = "xdp") { name } else { "built without the kernel plane" };
            assert!(said.contains(wanted), "{said}");
        }
    }
}
