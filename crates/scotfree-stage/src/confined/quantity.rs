//! Amounts as people write them: `400MB`, `25MB/s`, half a processor.
//!
//! Invariant: what is read is positive and finite; anything else is answered with what is allowed.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A number of bytes, as `400MB`, `1GiB` or `4096`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "u64")]
pub struct Bytes(pub u64);

/// A rate, as `25MB/s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "u64")]
pub struct BytesPerSecond(pub u64);

/// Processors' worth of time, as 0.5 or 2.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Processors(f64);

const UNITS: [(&str, u64); 8] = [
    ("", 1),
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Bytes, String> {
        let number_ends = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(number_ends);
        let unit = UNITS.iter().find(|(name, _)| *name == unit.trim_start()).map(|(_, bytes)| *bytes);
        let bytes = number.parse::<f64>().ok().zip(unit).map(|(number, unit)| (number * unit as f64).round());
        // 2^63 is where the kernel's own numbers end.
        match bytes.filter(|bytes| (1.0..9.2e18).contains(bytes)) {
            Some(bytes) => Ok(Bytes(bytes as u64)),
            None => Err(format!(
                "`{text}` is no size; allowed is a number above 0 with B, kB, MB, GB, KiB, MiB or GiB, for instance 400MB"
            )),
        }
    }
}

impl FromStr for BytesPerSecond {
    type Err = String;

    fn from_str(text: &str) -> Result<BytesPerSecond, String> {
        let size = text.strip_suffix("/s").and_then(|size| size.parse::<Bytes>().ok());
        size.map(|Bytes(bytes)| BytesPerSecond(bytes)).ok_or_else(|| {
            format!("`{text}` is no rate; allowed is a size with /s behind it, for instance 25MB/s")
        })
    }
}

impl FromStr for Processors {
    type Err = String;

    fn from_str(text: &str) -> Result<Processors, String> {
        let number = text.parse::<f64>().map_err(|_| Processors::refusal(text))?;
        Processors::try_from(number)
    }
}

impl Processors {
    /// The smallest share. The kernel would give out 1 ms of a second; with less than ten nothing gets done.
    pub const MIN: f64 = 0.01;
    /// The largest.
    pub const MAX: f64 = 1_024.0;

    /// How many they are.
    pub const fn count(self) -> f64 {
        self.0
    }

    fn refusal(text: impl fmt::Display) -> String {
        let (min, max) = (Processors::MIN, Processors::MAX);
        format!(
            "`{text}` is no share of this machine's processors; allowed are {min} to {max}, for instance 0.5"
        )
    }
}

impl TryFrom<f64> for Processors {
    type Error = String;

    fn try_from(number: f64) -> Result<Processors, String> {
        let is_allowed = (Processors::MIN..=Processors::MAX).contains(&number);
        is_allowed.then_some(Processors(number)).ok_or_else(|| Processors::refusal(number))
    }
}

impl From<Processors> for f64 {
    fn from(processors: Processors) -> f64 {
        processors.0
    }
}

impl TryFrom<String> for Bytes {
    type Error = String;

    fn try_from(text: String) -> Result<Bytes, String> {
        text.parse()
    }
}

impl From<Bytes> for u64 {
    fn from(bytes: Bytes) -> u64 {
        bytes.0
    }
}

impl TryFrom<String> for BytesPerSecond {
    type Error = String;

    fn try_from(text: String) -> Result<BytesPerSecond, String> {
        text.parse()
    }
}

impl From<BytesPerSecond> for u64 {
    fn from(rate: BytesPerSecond) -> u64 {
        rate.0
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{} B", self.0),
            1_000..1_000_000 => write!(f, "{:.1} kB", bytes / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.1} MB", bytes / 1e6),
            _ => write!(f, "{:.2} GB", bytes / 1e9),
        }
    }
}

impl fmt::Display for BytesPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", Bytes(self.0))
    }
}

impl fmt::Display for Processors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_rates_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("1", 1),
            ("4096", 4_096),
            ("7 B", 7),
            ("2kB", 2_000),
            ("400MB", 400_000_000),
            ("1.5GB", 1_500_000_000),
            ("3KiB", 3_072),
            ("2 MiB", 2_097_152),
            ("1GiB", 1_073_741_824),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
            assert_eq!(format!("{text}/s").parse(), Ok(BytesPerSecond(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_amount_is_answered_with_what_is_allowed() {
        for text in ["", "MB", "0", "0.1B", "-1MB", "1mb", "1TB", "1e3", "nan", "1..2GB", "99999999999GiB"] {
            assert!(text.parse::<Bytes>().expect_err(text).contains("for instance 400MB"), "{text}");
            let rate = format!("{text}/s").parse::<BytesPerSecond>();
            assert!(rate.expect_err(text).contains("for instance 25MB/s"), "{text}");
        }
        assert!("25MB".parse::<BytesPerSecond>().expect_err("it has no time").contains("/s behind it"));
        for text in ["", "0", "0.009", "-1", "nan", "inf", "1025", "two"] {
            assert!(text.parse::<Processors>().expect_err(text).contains("0.01 to 1024"), "{text}");
        }
        assert_eq!("0.5".parse::<Processors>().map(Processors::count), Ok(0.5));
    }

    #[test]
    fn amounts_are_shown_as_people_read_them() {
        for (bytes, shown) in
            [(999, "999 B"), (1_500, "1.5 kB"), (400_000_000, "400.0 MB"), (8 << 30, "8.59 GB")]
        {
            assert_eq!(Bytes(bytes).to_string(), shown);
        }
        assert_eq!(BytesPerSecond(25_000_000).to_string(), "25.0 MB/s");
    }
}
