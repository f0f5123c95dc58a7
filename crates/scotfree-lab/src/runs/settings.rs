//! What an arm's settings mean to the code that runs it.
//!
//! Invariant: a key that a runner does not know is refused, so that no setting is believed to have been
//! measured that was not.

use crate::experiment::Arm;
use crate::trouble::Trouble;
use serde::de::DeserializeOwned;

/// The settings of an arm as the runner's own struct, which denies unknown fields.
pub(super) fn settings_of<Settings: DeserializeOwned>(arm: &Arm) -> Result<Settings, Trouble> {
    let table: toml::Table = arm.settings.clone().into_iter().collect();
    table.try_into().map_err(|error: toml::de::Error| {
        let tried = format!("understand the settings of the arm `{}`", arm.name);
        Trouble::new(tried, error.message().trim(), "see the other arms of this experiment's file")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
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
}
