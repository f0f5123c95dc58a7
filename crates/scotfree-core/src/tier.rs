//! What clients ask of the devices: a durability, and how many of them must give it (design.md section 4).
//!
//! Invariant: a tier names no device if and only if its durability is `none`, and never more than
//! [`TIER_DEVICES_MAX`]. The text is the same wherever a tier is named: commands, files, results.

use crate::Durability;
use core::fmt;
use core::str::FromStr;

/// The most devices that a tier can name: a client counts the acknowledgements of so many.
pub const TIER_DEVICES_MAX: u8 = 4;

/// A durability, with the number of distinct devices each of which must give it. As text `none`,
/// `ram:3`, `disk` or `ram:3+disk`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tier {
    durability: Durability,
    device_count: u8,
}

impl Tier {
    /// As the server alone gives it.
    pub const NONE: Tier = Tier { durability: Durability::None, device_count: 0 };
    /// In the memory of one device.
    pub const RAM: Tier = Tier { durability: Durability::Ram, device_count: 1 };

    /// A tier, unless there is none such.
    pub fn new(durability: Durability, device_count: u8) -> Result<Tier, TierError> {
        let allowed = match durability {
            Durability::None => 0..=0,
            Durability::Ram | Durability::Disk | Durability::RamAndDisk => 1..=TIER_DEVICES_MAX,
        };
        if allowed.contains(&device_count) {
            Ok(Tier { durability, device_count })
        } else {
            Err(TierError::Count { durability, device_count })
        }
    }

    /// What each of the devices must give.
    pub const fn durability(self) -> Durability {
        self.durability
    }

    /// How many distinct devices must acknowledge; none only if nothing is asked of them.
    pub const fn device_count(self) -> u8 {
        self.device_count
    }
}

/// Why there is no such tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TierError {
    /// The text is none of the four forms.
    Text(String),
    /// So many devices cannot be asked for this durability.
    Count {
        /// The durability.
        durability: Durability,
        /// How many devices were to give it.
        device_count: u8,
    },
}

impl fmt::Display for TierError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let devices_max = TIER_DEVICES_MAX;
        match self {
            TierError::Text(text) => write!(
                f,
                "`{text}` is no durability; allowed are none, ram:K, disk:K and ram:K+disk, where K devices from 1 \
                 to {devices_max} must have it (1 if not named)"
            ),
            TierError::Count { durability: Durability::None, device_count } => {
                write!(f, "durability none asks nothing of devices, so {device_count} cannot give it; allowed are 0")
            }
            TierError::Count { durability, device_count } => {
                write!(f, "durability {durability} of {device_count} devices cannot be asked for; allowed are 1 to {devices_max}")
            }
        }
    }
}

impl core::error::Error for TierError {}

impl FromStr for Tier {
    type Err = TierError;

    fn from_str(text: &str) -> Result<Tier, TierError> {
        if text == "none" {
            return Ok(Tier::NONE);
        }
        let wrong = || TierError::Text(text.to_owned());
        let (first, both) = text.strip_suffix("+disk").map_or((text, false), |first| (first, true));
        let (name, device_count) = match first.split_once(':') {
            Some((name, digits)) => (name, parse_count(digits).ok_or_else(wrong)?),
            None => (first, 1),
        };
        let durability = match (name, both) {
            ("ram", false) => Durability::Ram,
            ("disk", false) => Durability::Disk,
            ("ram", true) => Durability::RamAndDisk,
            _ => return Err(wrong()),
        };
        Tier::new(durability, device_count)
    }
}

/// Digits alone: a sign is no part of a count.
fn parse_count(digits: &str) -> Option<u8> {
    digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.device_count;
        match self.durability {
            Durability::None => f.write_str("none"),
            Durability::Ram => write!(f, "ram:{count}"),
            Durability::Disk if count == 1 => f.write_str("disk"),
            Durability::Disk => write!(f, "disk:{count}"),
            Durability::RamAndDisk => write!(f, "ram:{count}+disk"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Tier, TierError> {
        text.parse()
    }

    #[test]
    fn every_tier_is_read_as_it_is_written() {
        let mut count = 0;
        for durability in (0..4).filter_map(Durability::from_code) {
            for tier in (0..=u8::MAX).filter_map(|devices| Tier::new(durability, devices).ok()) {
                assert_eq!(parse(&tier.to_string()), Ok(tier));
                count += 1;
            }
        }
        assert_eq!(count, 1 + 3 * u32::from(TIER_DEVICES_MAX));
    }

    #[test]
    fn one_device_need_not_be_counted() {
        for (short, long) in [("ram", "ram:1"), ("disk:1", "disk"), ("ram+disk", "ram:1+disk")] {
            assert_eq!(parse(short).expect(short).to_string(), long);
        }
    }

    #[test]
    fn what_is_no_tier_is_answered_with_those_that_are() {
        for text in [
            "",
            "tape",
            "RAM",
            "ram:",
            "ram:x",
            "ram:+1",
            "ram:256",
            "none:1",
            "none+disk",
            "disk+disk",
            "ram+",
            "ram:1+ram",
        ] {
            let problem = parse(text).expect_err(text).to_string();
            assert!(problem.contains("allowed are none, ram:K"), "{text}: {problem}");
        }
        for text in ["ram:0", "ram:5", "disk:5", "ram:0+disk"] {
            let problem = parse(text).expect_err(text).to_string();
            assert!(problem.contains("allowed are 1 to 4"), "{text}: {problem}");
        }
        let problem = Tier::new(Durability::None, 1).expect_err("nobody to count").to_string();
        assert!(problem.contains("allowed are 0"), "{problem}");
    }
}
