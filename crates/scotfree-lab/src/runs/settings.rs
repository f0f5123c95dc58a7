//! What an arm's settings mean to the code that runs it.
//!
//! Invariant: a key that a runner does not know is refused, so that no setting is believed to have been
//! measured that was not.

use crate::experiment::{Arm, Experiment};
use scotfree_stage::trouble::Trouble;
use serde::de::DeserializeOwned;

/// The settings of an arm as the runner's own struct, which denies unknown fields.
pub(super) fn settings_of<Settings: DeserializeOwned>(arm: &Arm) -> Result<Settings, Trouble> {
    let table: toml::Table = arm.settings.clone().into_iter().collect();
    table.try_into().map_err(|error: toml::de::Error| {
        let tried = format!("understand the settings of the arm `{}`", arm.name);
        Trouble::new(tried, error.message().trim(), "see the other arms of this experiment's file")
    })
}

/// A setting that all arms must agree on, since they share the processes that it is for.
pub(super) fn shared_by_arms<Settings: DeserializeOwned, Value: PartialEq>(
    experiment: &Experiment,
    of: impl Fn(&Settings) -> Value,
) -> Result<Value, Trouble> {
    let first = of(&settings_of(&experiment.arms[0])?);
    for arm in &experiment.arms {
        if of(&settings_of(arm)?) != first {
            let tried = format!("measure `{}`", experiment.name);
            let problem =
                format!("arm `{}` has another setting of shared processes than the first", arm.name);
            return Err(Trouble::new(
                tried,
                problem,
                "give all arms the same, or make two experiments of them",
            ));
        }
    }
    Ok(first)
}

/// What moves a device's frames where an experiment leaves that to the build: programs in the kernel if they are built
/// in, else the daemon.
pub(super) const fn plane_of_this_build() -> &'static str {
    if cfg!(feature = "xdp") {
        "xdp"
    } else {
        "user"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_stage::config::Source;
    use std::collections::BTreeMap;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Example {
        calls: u64,
    }

    #[test]
    fn settings_are_typed_and_unknown_ones_refused() {
        let arm = |key: &str| Arm { name: "a".into(), settings: BTreeMap::from([(key.into(), 3.into())]) };
        assert_eq!(settings_of::<Example>(&arm("calls")), Ok(Example { calls: 3 }));
        let error = settings_of::<Example>(&arm("cals")).expect_err("it is misspelt").to_string();
        assert!(error.contains("arm `a`") && error.contains("cals") && error.contains("calls"), "{error}");
    }

    #[test]
    fn arms_that_share_processes_agree_on_their_settings() {
        let experiment = |second: u64| {
            let text = format!(
                "name = 'x'\ntitle = 'x'\nrunner = 'x'\ntopology = 'direct'\nrepetitions = 1\ncovers = ['crates/x']\n\
                 [[arm]]\nname = 'a'\nsettings = {{ calls = 3 }}\n\
                 [[arm]]\nname = 'b'\nsettings = {{ calls = {second} }}\n\
                 [[claim]]\nclaim = 'x'\nunit = 'x'\nbetter = 'higher'\n\
                 formula = {{ kind = 'median', metric = 'x', arm = 'a' }}\n"
            );
            Experiment::parse(&Source::from_text("x.toml", text)).expect("an experiment")
        };
        let calls = |arm: &Example| arm.calls;
        assert_eq!(shared_by_arms(&experiment(3), calls), Ok(3));
        let error = shared_by_arms(&experiment(4), calls).expect_err("they differ").to_string();
        assert!(error.contains("arm `b`"), "{error}");
    }
}
