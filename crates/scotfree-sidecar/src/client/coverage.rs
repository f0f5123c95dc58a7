//! Who makes the updates of clients more durable than the server alone does, and whether they do.
//!
//! Invariant: where the server has no device, no session asks for one's acknowledgement: replies are the
//! server's own, at once, and that is said. Where it has one that is silent, updates are answered when
//! they are stable (rule 13), and that is said too.

use crate::seldom::Seldom;
use scotfree_core::{Nanos, Tier};
use scotfree_resp::front::EarlyRule;
use scotfree_rpc::metrics::MetricsText;
use scotfree_rpc::{ClientTotals, SessionOptions};

/// What sessions ask for, and what came of it.
#[derive(Debug)]
pub(super) struct Coverage {
    configured: SessionOptions,
    /// How many devices the server has, if it says so.
    devices: Option<u32>,
    seen: Option<ClientTotals>,
    unacknowledged: Seldom,
    too_few: Seldom,
    is_silent: bool,
}

impl Coverage {
    pub fn new(configured: SessionOptions, devices: Option<u32>) -> Coverage {
        Coverage {
            configured,
            devices,
            seen: None,
            unacknowledged: Seldom::default(),
            too_few: Seldom::default(),
            is_silent: false,
        }
    }

    /// What a new session asks for.
    pub fn options(&self) -> SessionOptions {
        match self.devices {
            Some(0) => SessionOptions { tier: Tier::NONE, ..self.configured },
            Some(_) | None => self.configured,
        }
    }

    /// What new sessions can be told to count on, for the log; `rules` are those of the listeners.
    pub fn text<'a>(&self, rules: impl Iterator<Item = &'a EarlyRule>) -> String {
        let asked = self.configured.tier;
        match self.devices {
            Some(0) => {
                format!(
                    "no device acknowledges, since the server has none: durability none, whatever is asked \
                     ({asked}); replies are the server's own (see --device of scot sidecar server)"
                )
            }
            _ if asked == Tier::NONE => "durability none, as asked: replies are the server's own".to_owned(),
            Some(count) if count < u32::from(asked.device_count()) => format!(
                "updates are answered only when the server's storage holds them: durability {asked} asks more \
                 devices than the {count} on the path (see --durability, and --device of the server)"
            ),
            devices => {
                let count = devices.map_or(String::new(), |count| format!(" of {count} on the path"));
                let (modes, acks) = (modes(rules), asked.device_count());
                format!("{modes}: durability {asked}, acknowledgements asked: {acks}{count}")
            }
        }
    }

    /// The server has told how many devices it has; true if new sessions ask for something else now.
    pub fn learn(&mut self, devices: Option<u32>) -> bool {
        let before = self.options();
        self.devices = devices;
        before != self.options()
    }

    /// Looks at the totals so far; says what an operator should know, if that has changed.
    pub fn look(&mut self, now: Nanos, totals: ClientTotals) -> Option<String> {
        let seen = self.seen.replace(totals).unwrap_or_default();
        // Sessions that end hand their counts over, so totals only grow.
        let stable = totals.completed_stable.saturating_sub(seen.completed_stable);
        let acks = totals.device_acks.saturating_sub(seen.device_acks);
        if acks > 0 && std::mem::take(&mut self.is_silent) {
            return Some("devices acknowledge updates again".to_owned());
        }
        if acks > 0 {
            return self.look_for_missing(now, stable, acks);
        }
        self.is_silent |= stable > 0;
        self.unacknowledged.happened(stable);
        let count = self.unacknowledged.due(now)?;
        Some(format!(
            "no device acknowledges: {count} updates were answered only when the server's storage held them, \
             which is as safe and slower; is the device running, on the path, with a log, and with room for this session? \
             (its own lines, scot doctor)"
        ))
    }

    /// Some devices acknowledge: are they as many as are asked?
    fn look_for_missing(&mut self, now: Nanos, stable: u64, acks: u64) -> Option<String> {
        let tier = self.configured.tier;
        let wanted = u64::from(tier.device_count());
        if wanted < 2 || acks >= stable * wanted {
            return None;
        }
        self.too_few.happened(stable);
        let count = self.too_few.due(now)?;
        Some(format!(
            "fewer devices acknowledge than durability {tier} asks: {count} updates were answered only when the \
             server's storage held them; does each device have the logs, and a lease? (scotfree_device_ungranted_total, \
             scotfree_device_without_lease_total)"
        ))
    }

    pub fn write_metrics(&self, totals: ClientTotals, text: &mut MetricsText) {
        if let Some(devices) = self.devices {
            text.gauge("scotfree_client_devices", "Devices that the server has", devices);
        }
        let none = u32::from(self.options().tier == Tier::NONE);
        text.gauge("scotfree_client_durability_none", "1: replies are as durable as the server's", none);
        text.gauge(
            "scotfree_client_devices_silent",
            "1: devices are asked and none acknowledges; updates are answered when stable",
            u32::from(self.is_silent),
        );
        let help = "Acknowledgements of devices for updates";
        text.counter("scotfree_client_device_acks_total", help, totals.device_acks);
        let help = "Updates without devices' acknowledgements, answered when stable";
        text.counter("scotfree_client_completed_stable_total", help, totals.completed_stable);
    }
}

/// When updates are answered, for all listeners.
fn modes<'a>(rules: impl Iterator<Item = &'a EarlyRule>) -> String {
    let mut texts: Vec<String> = rules.map(mode).collect();
    texts.dedup();
    texts.join("; at the next address ")
}

/// The commands are those of class early in the table.
fn mode(rule: &EarlyRule) -> String {
    let of_keys = match rule {
        EarlyRule::Never => return "updates are covered".to_owned(),
        EarlyRule::Always => String::new(),
        EarlyRule::Prefixes(prefixes) => {
            let prefixes: Vec<_> = prefixes.iter().map(|prefix| String::from_utf8_lossy(prefix)).collect();
            format!(" of keys that begin with {}", prefixes.join(" or "))
        }
    };
    format!("SET, SETEX and PSETEX{of_keys} are early, all other updates are covered")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(coverage: &Coverage) -> String {
        coverage.text([EarlyRule::Never].iter())
    }

    #[test]
    fn what_is_answered_early_is_named() {
        let coverage = Coverage::new(SessionOptions::default(), Some(1));
        let prefixes = EarlyRule::Prefixes(vec![b"cache:".to_vec(), b"tmp:".to_vec()]);
        for (rules, expected) in [
            (vec![EarlyRule::Never, EarlyRule::Never], "updates are covered: "),
            (vec![EarlyRule::Always], "SET, SETEX and PSETEX are early, all other updates are covered: "),
            (vec![prefixes], "SET, SETEX and PSETEX of keys that begin with cache: or tmp: are early, "),
            (vec![EarlyRule::Never, EarlyRule::Always], "updates are covered; at the next address SET, "),
        ] {
            let text = coverage.text(rules.iter());
            assert!(text.starts_with(expected), "{text}");
        }
    }

    #[test]
    fn the_commands_named_are_those_of_class_early() {
        let early = |words: &[&str]| {
            let command = scotfree_resp::codec::Command::new(words);
            scotfree_resp::classes::classify(command.args()).class == scotfree_resp::classes::Class::Early
        };
        assert!(
            early(&["SET", "k", "v"])
                && early(&["SETEX", "k", "1", "v"])
                && early(&["PSETEX", "k", "1", "v"])
        );
        assert!(!early(&["MSET", "k", "v"]) && !early(&["DEL", "k"]) && !early(&["INCR", "k"]));
    }

    fn totals(completed_stable: u64, device_acks: u64) -> ClientTotals {
        ClientTotals { completed_stable, device_acks, ..ClientTotals::default() }
    }

    #[test]
    fn without_a_device_nobody_is_asked_and_that_is_said() {
        let mut coverage = Coverage::new(SessionOptions::default(), Some(0));
        assert_eq!(coverage.options().tier, Tier::NONE);
        assert!(text(&coverage).contains("durability none"), "{}", text(&coverage));
        assert!(coverage.learn(Some(1)) && !coverage.learn(Some(2)));
        assert_eq!(coverage.options(), SessionOptions::default());
        assert!(text(&coverage).contains("covered"), "{}", text(&coverage));
        assert_eq!(Coverage::new(SessionOptions::default(), None).options(), SessionOptions::default());
    }

    #[test]
    fn silent_devices_are_said_with_a_count_and_their_return_too() {
        let mut coverage = Coverage::new(SessionOptions::default(), Some(1));
        let at = Nanos::from_secs;
        assert_eq!(coverage.look(at(1), totals(0, 5)), None);
        // Storage may be faster than a device: one that acknowledges is not silent.
        assert_eq!(coverage.look(at(2), totals(3, 6)), None);
        assert!(coverage.look(at(3), totals(7, 6)).is_some_and(|text| text.contains(": 4 updates")));
        assert_eq!(coverage.look(at(4), totals(8, 6)), None);
        assert_eq!(coverage.look(at(12), totals(10, 6)), None);
        assert!(coverage.look(at(13), totals(10, 6)).is_some_and(|text| text.contains(": 3 updates")));
        assert!(coverage.look(at(14), totals(10, 9)).is_some_and(|text| text.contains("again")));
        assert_eq!(coverage.look(at(15), totals(10, 12)), None);
    }

    #[test]
    fn a_device_that_does_not_grant_what_was_asked_is_noticed_although_others_do() {
        let options =
            SessionOptions { tier: "ram:3+disk".parse().expect("a tier"), ..SessionOptions::default() };
        let mut coverage = Coverage::new(options, Some(3));
        assert_eq!(coverage.look(Nanos::from_secs(1), totals(0, 30)), None);
        // Storage was faster than the third device.
        assert_eq!(coverage.look(Nanos::from_secs(2), totals(10, 60)), None);
        let text = coverage.look(Nanos::from_secs(3), totals(20, 80)).expect("two of three acknowledge");
        assert!(text.contains("ram:3+disk") && text.contains(": 10 updates"), "{text}");
        assert!(self::text(&Coverage::new(options, Some(2))).contains("more devices than the 2 on the path"));
    }
}
