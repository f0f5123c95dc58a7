//! Notices that the server does not answer while it is expected to, and says so, since a connection that
//! hangs without a word is the worst of errors.

use scotfree_core::Nanos;

/// How long the server may be silent before that is said.
const SILENCE_MAX: Nanos = Nanos::from_secs(2);
/// How often it is said again to who waits behind a network.
const REPEAT_INTERVAL: Nanos = Nanos::from_secs(10);

/// Whose silence it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The server's sidecar's, and what is behind it or on the way.
    Sidecar,
    /// The Redis server's.
    Redis,
}

/// What was heard so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hearing {
    /// How often something came.
    pub received: u64,
    /// Whether an answer is expected.
    pub is_expected: bool,
    /// How many requests wait.
    pub waiting: u64,
}

/// Who was heard when.
#[derive(Debug)]
pub(crate) struct Silence {
    whose: Whose,
    received: u64,
    /// Since when something has been expected, and nothing has come.
    since: Option<Nanos>,
    said_at: Option<Nanos>,
}

impl Silence {
    /// Nothing was expected yet.
    pub fn of(whose: Whose) -> Silence {
        Silence { whose, received: 0, since: None, said_at: None }
    }

    /// Looks at what was heard so far; says what an operator should know, if that has changed.
    pub fn look(&mut self, now: Nanos, heard: Hearing) -> Option<String> {
        if heard.received != self.received || !heard.is_expected {
            self.received = heard.received;
            let silent_since = self.since.take();
            let was_said = self.said_at.take().is_some();
            return was_said.then(|| {
                let seconds = now.since(silent_since.unwrap_or(now)).0 / 1_000_000_000;
                self.end(seconds)
            });
        }
        let since = *self.since.get_or_insert(now);
        let due = match (self.said_at, self.whose) {
            (None, _) => since.plus(SILENCE_MAX),
            (Some(said), Whose::Sidecar) => said.plus(REPEAT_INTERVAL),
            (Some(_), Whose::Redis) => Nanos::MAX,
        };
        if now < due {
            return None;
        }
        self.said_at = Some(now);
        Some(self.beginning(now.since(since).0 / 1_000_000_000, heard.waiting))
    }

    fn beginning(&self, seconds: u64, waiting: u64) -> String {
        match self.whose {
            Whose::Sidecar => format!(
                "no answer for {seconds} s while {waiting} requests wait; they are sent again until it comes: are the \
                 server's sidecar, its Redis and the device running? (scot doctor)"
            ),
            Whose::Redis => format!(
                "the Redis server has answered nothing for {seconds} s, not even how it is, while {waiting} requests \
                 wait for it: was it stopped (SIGSTOP, a debugger), does it swap, or is it busy with one long command? \
                 (ps, and SLOWLOG GET afterwards)"
            ),
        }
    }

    fn end(&self, seconds: u64) -> String {
        match self.whose {
            Whose::Sidecar => format!("the server answers again, after {seconds} s"),
            Whose::Redis => format!("the Redis server answers again, after {seconds} s"),
        }
    }

    /// Whether the silence has been said and lasts.
    pub fn lasts(&self) -> bool {
        self.said_at.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(received: u64, waiting: u64) -> Hearing {
        Hearing { received, is_expected: waiting > 0, waiting }
    }

    #[test]
    fn silence_is_said_after_silence_max_repeated_and_its_end_too() {
        let mut silence = Silence::of(Whose::Sidecar);
        let at = Nanos::from_secs;
        assert_eq!(silence.look(at(1), heard(5, 3)), None);
        assert_eq!(silence.look(at(2), heard(5, 3)), None);
        assert_eq!(silence.look(at(2).plus(Nanos(SILENCE_MAX.0 / 2)), heard(5, 3)), None);
        assert!(silence.look(at(4), heard(5, 3)).is_some_and(|text| text.contains("3 requests wait")));
        assert!(silence.lasts());
        assert_eq!(silence.look(at(5), heard(5, 3)), None);
        assert!(silence.look(at(14), heard(5, 3)).is_some_and(|text| text.contains("12 s")));
        assert!(silence.look(at(15), heard(6, 2)).is_some_and(|text| text.contains("again, after 13 s")));
        assert!(!silence.lasts());
    }

    #[test]
    fn of_a_redis_it_is_said_once_and_in_words_of_its_own() {
        let mut silence = Silence::of(Whose::Redis);
        let at = Nanos::from_secs;
        // Nobody asks, but the sidecar has.
        let asked = Hearing { received: 5, is_expected: true, waiting: 0 };
        assert_eq!(silence.look(at(1), asked), None);
        assert_eq!(silence.look(at(2), asked), None);
        let said = silence.look(at(4), asked).unwrap_or_default();
        assert!(said.contains("the Redis server has answered nothing for 2 s"), "{said}");
        assert!(!said.contains("sidecar") && !said.contains("device"), "{said}");
        assert_eq!(silence.look(at(100), asked), None);
        assert!(silence.lasts());
        let end = silence.look(at(101), heard(6, 0)).unwrap_or_default();
        assert_eq!(end, "the Redis server answers again, after 99 s");
        assert!(!silence.lasts());
    }

    #[test]
    fn nobody_waits_in_vain_when_nobody_waits() {
        let mut silence = Silence::of(Whose::Sidecar);
        for second in 1..60 {
            assert_eq!(silence.look(Nanos::from_secs(second), heard(5, 0)), None);
        }
    }
}
