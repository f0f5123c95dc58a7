//! Says which devices keep the server from serving, since a start that hangs without a word is the worst
//! of errors.

use scotfree_core::Nanos;

/// How long a device may take to answer before that is said.
const SILENCE_MAX: Nanos = Nanos::from_secs(2);
/// How often it is said again.
const REPEAT_INTERVAL: Nanos = Nanos::from_secs(10);

/// Since when devices are missing.
#[derive(Debug, Default)]
pub(super) struct Missing {
    since: Option<Nanos>,
    said_at: Option<Nanos>,
}

impl Missing {
    /// Looks at the devices that have not answered; says what an operator should know.
    pub fn look(&mut self, now: Nanos, devices: impl Iterator<Item = String>) -> Option<String> {
        let devices: Vec<String> = devices.collect();
        if devices.is_empty() {
            *self = Missing::default();
            return None;
        }
        let since = *self.since.get_or_insert(now);
        if now < self.said_at.map_or(since.plus(SILENCE_MAX), |said| said.plus(REPEAT_INTERVAL)) {
            return None;
        }
        self.said_at = Some(now);
        Some(format!(
            "not serving yet: {} did not say within {} s which updates it holds; it is asked again until it does: \
             is `scot switch` running there, do packets get there with whole checksums (scot doctor), and is its key \
             file the same? If it will not come back: \
             --exclude with its number; what only it held is lost",
            devices.join(", "),
            now.since(since).0 / 1_000_000_000
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_does_not_answer_is_named_and_again_later() {
        let mut missing = Missing::default();
        let mut look = |second: u64, devices: &[&str]| {
            missing.look(Nanos::from_secs(second), devices.iter().map(|device| (*device).to_owned()))
        };
        assert_eq!(look(1, &["device 1"]), None);
        assert_eq!(look(2, &["device 1"]), None);
        let said = look(3, &["device 1", "device 2"]).expect("it is time");
        assert!(said.contains("device 1, device 2 did not say within 2 s") && said.contains("key file"));
        assert_eq!(look(12, &["device 1"]), None);
        assert!(look(13, &["device 1"]).is_some_and(|said| said.contains("12 s")));
        assert_eq!(look(14, &[]), None);
        assert_eq!(look(15, &["device 1"]), None, "a new wait begins");
    }
}
