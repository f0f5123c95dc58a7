//! Decides at which priority an experiment runs.
//!
//! Invariant: it is decided once for a run of an experiment and is the same for all its arms, and the result says which
//! it was; the limits that the kernel sets to real-time work are left as they are.

use crate::experiment::Experiment;
use scotfree_io::priority::try_real_time;
use scotfree_stage::priority::Priority;
use std::fs;
use std::thread;

/// How much of each second real-time work may take; -1 for all of it.
const LIMIT_FILE: &str = "/proc/sys/kernel/sched_rt_runtime_us";
/// Who looks for work for longer than this before it sleeps keeps a processor busy.
const LOOK_US_MAX: i64 = 1_000;
/// Both ends of a call look for work.
const SPINNING_ENDS: usize = 2;

/// What an experiment runs at: what was asked for, else real time where that is allowed and starves nobody. An
/// error says why it cannot be what was asked for.
pub fn decide(asked: Option<Priority>, is_timed: bool, experiment: &Experiment) -> Result<Priority, String> {
    let refusal = if is_timed { refusal(experiment) } else { Some("it measures no time".to_owned()) };
    match (asked, refusal) {
        (Some(Priority::Normal), _) | (None, Some(_)) => Ok(Priority::Normal),
        // Who asks for it asks for the experiments that it is good for.
        (Some(Priority::RealTime), Some(_)) if !is_timed => Ok(Priority::Normal),
        (Some(Priority::RealTime), Some(why)) => Err(why),
        (_, None) => Ok(Priority::RealTime),
    }
}

/// Why an experiment cannot run at a real-time priority.
fn refusal(experiment: &Experiment) -> Option<String> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    if processors <= SPINNING_ENDS && spins(experiment) {
        let taken = format!("its arms keep {SPINNING_ENDS} processors busy without sleeping");
        return Some(format!("{taken}, and there are {processors}: nothing else would run"));
    }
    let limit = fs::read_to_string(LIMIT_FILE).ok().and_then(|text| text.trim().parse::<i64>().ok());
    if limit.is_none_or(|limit| limit < 0) {
        return Some(format!("nothing limits real-time work on this machine ({LIMIT_FILE})"));
    }
    let error = try_real_time().err()?;
    Some(format!("it is not allowed here ({error}); it takes root or CAP_SYS_NICE"))
}

/// Whether what an arm starts looks for work without ever sleeping, or for so long that it is the same.
fn spins(experiment: &Experiment) -> bool {
    experiment.arms.iter().flat_map(|arm| &arm.settings).any(|(key, value)| is_spinning(key, value))
}

fn is_spinning(key: &str, value: &toml::Value) -> bool {
    match value {
        toml::Value::Table(inner) => inner.iter().any(|(key, value)| is_spinning(key, value)),
        toml::Value::Integer(us) => key.ends_with("spin-us") && *us > LOOK_US_MAX,
        toml::Value::String(word) => word == "spinning",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::example;

    #[test]
    fn what_is_not_timed_and_what_is_asked_so_is_normal() {
        let experiment = example();
        assert_eq!(decide(None, false, &experiment), Ok(Priority::Normal));
        assert_eq!(decide(Some(Priority::RealTime), false, &experiment), Ok(Priority::Normal));
        assert_eq!(decide(Some(Priority::Normal), true, &experiment), Ok(Priority::Normal));
        let is_allowed = refusal(&experiment).is_none();
        let wanted = if is_allowed { Priority::RealTime } else { Priority::Normal };
        assert_eq!(decide(None, true, &experiment), Ok(wanted));
        assert_eq!(decide(Some(Priority::RealTime), true, &experiment).is_ok(), is_allowed);
    }

    #[test]
    fn arms_that_spin_are_known_by_their_settings() {
        let with = |settings: &str| {
            let mut experiment = example();
            experiment.arms[1].settings = toml::from_str(settings).expect("they are settings");
            spins(&experiment)
        };
        assert!(with("spin-us = 10000"));
        assert!(with("waits = \"spinning\""));
        assert!(with("what = { updates = { client-spin-us = 5000 } }"));
        assert!(!with("spin-us = 200\nwaits = \"sleeping\"\ncalls = 20000"));
    }
}
