//! At which priority what is measured runs.
//!
//! Invariant: a priority's name is what results and flags have.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    /// That of everything else on the machine.
    #[default]
    Normal,
    /// Before everything else that is not the kernel's.
    RealTime,
}

impl Priority {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Priority::Normal => "normal",
            Priority::RealTime => "real-time",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Priority {
    type Err = String;

    fn from_str(text: &str) -> Result<Priority, String> {
        let all = [Priority::Normal, Priority::RealTime];
        all.into_iter()
            .find(|priority| priority.name() == text)
            .ok_or("allowed are normal, real-time".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_is_known_by_its_name() {
        for priority in [Priority::Normal, Priority::RealTime] {
            assert_eq!(priority.name().parse(), Ok(priority));
        }
        assert!("idle".parse::<Priority>().expect_err("there is none").contains("normal, real-time"));
    }
}
