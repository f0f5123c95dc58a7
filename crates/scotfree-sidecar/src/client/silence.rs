//! Notices that the server does not answer while somebody waits, and says so, since a connection that
//! hangs without a word is the worst of errors.

use scotfree_core::Nanos;

/// How long the server may be silent before that is said.
const SILENCE_MAX: Nanos = Nanos::from_secs(2);
/// How often it is said again.
const REPEAT_INTERVAL: Nanos = Nanos::from_secs(10);

/// Who was heard when.
#[derive(Debug, Default)]
pub(super) struct Silence {
    received: u64,
    /// Since when somebody has waited without a packet from the server.
    since: Option<Nanos>,
    said_at: Option<Nanos>,
}

impl Silence {
    /// Looks at what was received so far and how many requests wait; says what an operator should
    /// know, if that has changed.
    pub(super) fn look(&mut self, now: Nanos, received: u64, waiting: u64) -> Option<String> {
        if received != self.received || waiting == 0 {
            self.received = received;
            let silent_since = self.since.take();
            let was_said = self.said_at.take().is_some();
            return was_said.then(|| {
                let silent = now.since(silent_since.unwrap_or(now));
                format!("the server answers again, after {} s", silent.0 / 1_000_000_000)
            });
        }
        let since = *self.since.get_or_insert(now);
        let due = self.said_at.map_or(since.plus(SILENCE_MAX), |said| said.plus(REPEAT_INTERVAL));
        if now < due {
            return None;
        }
        self.said_at = Some(now);
        let seconds = now.since(since).0 / 1_000_000_000;
        Some(format!(
            "no answer for {seconds} s while {waiting} requests wait; they are sent again until it comes: are the \
             server's sidecar, its Redis and the device running? (scot doctor)"
        ))
    }

    /// Whether the silence has been said and lasts.
    pub(super) fn lasts(&self) -> bool {
        self.said_at.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_said_after_silence_max_repeated_and_its_end_too() {
        let mut silence = Silence::default();
        let at = Nanos::from_secs;
        assert_eq!(silence.look(at(1), 5, 3), None);
        assert_eq!(silence.look(at(2), 5, 3), None);
        assert_eq!(silence.look(at(2).plus(Nanos(SILENCE_MAX.0 / 2)), 5, 3), None);
        assert!(silence.look(at(4), 5, 3).is_some_and(|text| text.contains("3 requests wait")));
        assert!(silence.lasts());
        assert_eq!(silence.look(at(5), 5, 3), None);
        assert!(silence.look(at(14), 5, 3).is_some_and(|text| text.contains("12 s")));
        assert!(silence.look(at(15), 6, 2).is_some_and(|text| text.contains("again, after 13 s")));
        assert!(!silence.lasts());
    }

    #[test]
    fn nobody_waits_in_vain_when_nobody_waits() {
        let mut silence = Silence::default();
        for second in 1..60 {
            assert_eq!(silence.look(Nanos::from_secs(second), 5, 0), None);
        }
    }
}
