//! What the errors say by which a server refuses writes for a state of its own: INFO knows of some of them only.
//!
//! Invariant: from such an error on early answers are not allowed until a write was taken that the server was sent
//! since, and a pause is over that grows while refusals come back.

use super::health::{Info, Settings};
use super::replies::line;
use crate::codec::error_reply;
use scotfree_core::Nanos;

/// How long after a refusal early answers come back at the soonest.
const PAUSE_MIN: Nanos = Nanos::from_secs(1);
/// The longest that this becomes: one right may be missing and another not, which no trial finds out.
const PAUSE_MAX: Nanos = Nanos::from_secs(300);
/// A refusal this long after the last one has nothing to do with it.
const FORGOTTEN_AFTER: Nanos = Nanos::from_secs(600);

/// For what state of its own a server refuses writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusing {
    /// It is a replica (READONLY, MASTERDOWN).
    Replica,
    /// It has too few replicas (NOREPLICAS).
    NoReplicas,
    /// It cannot write its files (MISCONF).
    Files,
    /// It wants a password (NOAUTH).
    LockedOut,
    /// Its memory is used up (OOM): what needs none is taken.
    Memory,
    /// A right is missing (NOPERM): what needs another one is taken.
    Right,
}

impl Refusing {
    /// What an error says; none if it says nothing of the server's state.
    pub(super) fn of(error: &[u8]) -> Option<Refusing> {
        let code = error.strip_prefix(b"-")?.split(|byte| *byte == b' ').next()?;
        match code {
            b"READONLY" | b"MASTERDOWN" => Some(Refusing::Replica),
            b"NOREPLICAS" => Some(Refusing::NoReplicas),
            b"MISCONF" => Some(Refusing::Files),
            b"NOAUTH" => Some(Refusing::LockedOut),
            b"OOM" => Some(Refusing::Memory),
            b"NOPERM" => Some(Refusing::Right),
            _ => None,
        }
    }

    /// Whether it refuses every write.
    fn is_all(self) -> bool {
        !matches!(self, Refusing::Memory | Refusing::Right)
    }

    /// In words, for a line of health.
    pub const fn text(self) -> &'static str {
        match self {
            Refusing::Replica => "the Redis server is a replica and refuses writes (READONLY)",
            Refusing::NoReplicas => {
                "the Redis server lacks replicas and refuses writes (NOREPLICAS, min-replicas-to-write)"
            }
            Refusing::Files => "the Redis server cannot write its files and refuses writes (MISCONF)",
            Refusing::LockedOut => "the Redis server wants a password and refuses writes (NOAUTH)",
            Refusing::Memory => "the Redis server's memory is used up (OOM)",
            Refusing::Right => "the Redis server refuses writes for a right that is missing (NOPERM)",
        }
    }
}

/// Why a server refuses every write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The kind.
    pub cause: Refusing,
    /// The server's words, or what its INFO says.
    pub text: String,
}

/// Why a master refuses every write, as far as INFO and CONFIG GET say it.
pub(super) fn said_by_info(info: &Info, settings: &Settings) -> Option<Refused> {
    let refused = |cause, text: String| Some(Refused { cause, text });
    if info.get("aof_enabled") == "1" && info.get("aof_last_write_status") == "err" {
        let text = "it cannot write its append-only file (aof_last_write_status:err); is its disk full?";
        return refused(Refusing::Files, text.to_owned());
    }
    let stops = settings.get("stop-writes-on-bgsave-error") == "yes" && !settings.get("save").is_empty();
    if stops && info.get("rdb_last_bgsave_status") == "err" {
        let text =
            "its last snapshot failed (rdb_last_bgsave_status:err, stop-writes-on-bgsave-error yes); is its \
                    disk full?";
        return refused(Refusing::Files, text.to_owned());
    }
    // Redis says how many are good only where it asks for some.
    let good = info.number("min_slaves_good_slaves")?;
    let needed: u64 = settings.get("min-replicas-to-write").parse().ok()?;
    (good < needed).then(|| Refused {
        cause: Refusing::NoReplicas,
        text: format!("it has {good} of {needed} replicas that it wants (min-replicas-to-write)"),
    })
}

/// What was learnt from refused writes.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    present: Option<Refusal>,
    pause: Nanos,
    last_at: Option<Nanos>,
}

#[derive(Debug)]
struct Refusal {
    refused: Refused,
    /// When early answers may come back; none before the round behind it has begun.
    until: Option<Nanos>,
    /// It was met since that round began: what was asked in it may have been answered before.
    is_new: bool,
    /// A write was taken since.
    is_taken: bool,
}

impl Refusals {
    /// A write was refused.
    pub fn add(&mut self, cause: Refusing, error: &[u8]) {
        let Some(present) = &mut self.present else {
            let refused = Refused { cause, text: line(error) };
            self.present = Some(Refusal { refused, until: None, is_new: true, is_taken: false });
            return;
        };
        if present.refused.cause != cause {
            present.refused = Refused { cause, text: line(error) };
        }
        (present.is_new, present.is_taken) = (true, false);
    }

    /// A round of questions begins: what is asked from now on is asked after all refusals that were met.
    pub fn begin_round(&mut self, now: Nanos) {
        let Some(present) = self.present.as_mut().filter(|present| present.is_new) else { return };
        if present.until.is_none() {
            let comes_back = self.last_at.is_some_and(|at| now.since(at) < FORGOTTEN_AFTER);
            let longer = Nanos(self.pause.0.saturating_mul(2)).min(PAUSE_MAX);
            self.pause = if comes_back { longer } else { PAUSE_MIN };
        }
        present.is_new = false;
        present.until = Some(now.plus(self.pause));
        self.last_at = Some(now);
    }

    /// Whether a write is to be tried.
    pub fn wants_trial(&self) -> bool {
        self.present.as_ref().is_some_and(|present| !present.is_taken)
    }

    /// What a write was answered that was tried in this round.
    pub fn on_trial(&mut self, was_taken: bool) {
        if let Some(present) = self.present.as_mut().filter(|present| !present.is_new) {
            present.is_taken = was_taken;
        }
    }

    /// A write was executed that was sent after the refusal. Of rights it says nothing: it may need others.
    pub fn on_executed(&mut self) {
        if let Some(present) = &mut self.present {
            present.is_taken |= present.refused.cause != Refusing::Right;
        }
    }

    /// A round has ended, in which the server has said how it is.
    pub fn end_round(&mut self, now: Nanos) {
        let is_over = |present: &Refusal| {
            !present.is_new && present.is_taken && present.until.is_some_and(|until| now >= until)
        };
        self.present.take_if(|present| is_over(present));
    }

    /// Why early answers are not allowed; empty if nothing is known.
    pub fn obstacle(&self) -> Option<String> {
        let present = self.present.as_ref()?;
        Some(format!("the server refuses writes: {}", present.refused.text))
    }

    /// Why every write is refused, as far as is known.
    pub fn refused(&self) -> Option<&Refused> {
        let present = self.present.as_ref().filter(|present| !present.is_taken)?;
        present.refused.cause.is_all().then_some(&present.refused)
    }
}

/// The error inside "EXECABORT Transaction discarded because of: …"; another error is itself.
pub(super) fn inner(error: &[u8]) -> Vec<u8> {
    let text = line(error);
    error_reply(text.split_once("because of: ").map_or(text.as_str(), |(_, error)| error))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_REPLICAS: &[u8] = b"-NOREPLICAS Not enough good replicas to write.\r\n";

    fn at(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    /// A round with a trial; whether early answers are allowed behind it.
    fn round(refusals: &mut Refusals, now: Nanos, trial: Option<bool>) -> bool {
        refusals.begin_round(now);
        if let Some(was_taken) = trial {
            refusals.on_trial(was_taken);
        }
        refusals.end_round(now);
        refusals.obstacle().is_none()
    }

    #[test]
    fn errors_of_state_are_told_from_others() {
        for (error, expected) in [
            (NO_REPLICAS, Some(Refusing::NoReplicas)),
            (b"-READONLY You can't write against a read only replica.\r\n", Some(Refusing::Replica)),
            (b"-MASTERDOWN Link with MASTER is down\r\n", Some(Refusing::Replica)),
            (b"-MISCONF Errors writing to the AOF file: No space left\r\n", Some(Refusing::Files)),
            (b"-NOAUTH Authentication required.\r\n", Some(Refusing::LockedOut)),
            (b"-OOM command not allowed\r\n", Some(Refusing::Memory)),
            (b"-NOPERM this user has no permissions\r\n", Some(Refusing::Right)),
            (b"-WRONGTYPE Operation against a key\r\n", None),
            (b"-NOREPLICASX y\r\n", None),
            (b"+OK\r\n", None),
        ] {
            assert_eq!(Refusing::of(error), expected, "{}", String::from_utf8_lossy(error));
        }
        let aborted = b"-EXECABORT Transaction discarded because of: NOREPLICAS Not enough\r\n";
        assert_eq!(Refusing::of(&inner(aborted)), Some(Refusing::NoReplicas));
    }

    #[test]
    fn early_answers_come_back_when_a_write_was_taken_and_the_pause_is_over() {
        let mut refusals = Refusals::default();
        assert!(!refusals.wants_trial());
        refusals.add(Refusing::NoReplicas, NO_REPLICAS);
        assert!(refusals.obstacle().is_some_and(|text| text.contains("NOREPLICAS Not enough")));
        assert!(refusals.wants_trial());
        assert!(!round(&mut refusals, at(0), Some(false)));
        assert!(!round(&mut refusals, PAUSE_MIN, Some(false)), "it still refuses");
        assert!(!round(&mut refusals, PAUSE_MIN, None), "nobody knows");
        assert!(round(&mut refusals, PAUSE_MIN, Some(true)));
        assert!(!refusals.wants_trial());
    }

    #[test]
    fn a_write_that_is_taken_ends_the_refusal_at_once_and_the_pause_later() {
        let mut refusals = Refusals::default();
        refusals.add(Refusing::NoReplicas, NO_REPLICAS);
        assert_eq!(refusals.refused().map(|refused| refused.cause), Some(Refusing::NoReplicas));
        refusals.on_executed();
        assert_eq!(refusals.refused(), None);
        assert!(!round(&mut refusals, at(0), None));
        let before = Nanos(PAUSE_MIN.0 - 1);
        assert!(!round(&mut refusals, before, None));
        assert!(round(&mut refusals, PAUSE_MIN, None));
    }

    #[test]
    fn a_trial_says_nothing_of_a_refusal_that_was_met_behind_it() {
        let mut refusals = Refusals::default();
        refusals.add(Refusing::NoReplicas, NO_REPLICAS);
        refusals.begin_round(at(0));
        refusals.add(Refusing::NoReplicas, NO_REPLICAS);
        refusals.on_trial(true);
        refusals.end_round(at(2_000));
        assert!(refusals.refused().is_some() && refusals.obstacle().is_some());
    }

    #[test]
    fn the_pause_grows_while_refusals_come_back_and_is_forgotten() {
        let mut refusals = Refusals::default();
        let mut now = at(0);
        let pause_of = |refusals: &mut Refusals, now: &mut Nanos| {
            refusals.add(Refusing::Right, b"-NOPERM no\r\n");
            refusals.on_executed();
            assert!(refusals.wants_trial(), "others may need another right");
            let begun = *now;
            while !round(refusals, *now, Some(true)) {
                *now = now.plus(PAUSE_MIN);
            }
            now.since(begun)
        };
        for doubled in 0..8 {
            assert_eq!(pause_of(&mut refusals, &mut now), Nanos(PAUSE_MIN.0 << doubled));
        }
        for _ in 0..4 {
            pause_of(&mut refusals, &mut now);
        }
        assert_eq!(pause_of(&mut refusals, &mut now), PAUSE_MAX);
        now = now.plus(FORGOTTEN_AFTER);
        assert_eq!(pause_of(&mut refusals, &mut now), PAUSE_MIN);
    }

    #[test]
    fn what_leaves_some_writes_is_no_refusal_of_all() {
        let mut refusals = Refusals::default();
        refusals.add(Refusing::Memory, b"-OOM command not allowed\r\n");
        assert_eq!(refusals.refused(), None);
        assert!(refusals.obstacle().is_some());
        refusals.add(Refusing::Files, b"-MISCONF no\r\n");
        assert!(refusals.refused().is_some_and(|refused| refused.text == "MISCONF no"));
    }

    #[test]
    fn info_tells_of_most_refusals_beforehand() {
        let good =
            "role:master\r\naof_enabled:1\r\naof_last_write_status:ok\r\nrdb_last_bgsave_status:ok\r\n";
        let reply = |facts: &str| Info::parse(format!("${}\r\n{facts}\r\n", facts.len()).as_bytes());
        let settings = |pairs: &[(&str, &str)]| {
            let mut settings = Settings::default();
            for (name, value) in pairs {
                let text = format!("*2\r\n${}\r\n{name}\r\n${}\r\n{value}\r\n", name.len(), value.len());
                settings.add(text.as_bytes());
            }
            settings
        };
        let stops = [("stop-writes-on-bgsave-error", "yes"), ("save", "3600 1")];
        let cause = |facts: &str, pairs: &[(&str, &str)]| {
            said_by_info(&reply(facts), &settings(pairs)).map(|refused| refused.cause)
        };
        assert_eq!(cause(good, &stops), None);
        assert_eq!(cause(&good.replace("write_status:ok", "write_status:err"), &[]), Some(Refusing::Files));
        let no_snapshot = good.replace("bgsave_status:ok", "bgsave_status:err");
        assert_eq!(cause(&no_snapshot, &stops), Some(Refusing::Files));
        assert_eq!(cause(&no_snapshot, &stops[..1]), None, "without `save` Redis goes on");
        let one_there = format!("{good}min_slaves_good_slaves:1\r\n");
        assert_eq!(cause(&one_there, &[("min-replicas-to-write", "1")]), None);
        assert_eq!(cause(&one_there, &[("min-replicas-to-write", "2")]), Some(Refusing::NoReplicas));
        assert_eq!(cause(good, &[("min-replicas-to-write", "2")]), None, "it was set behind INFO");
    }
}
