//! The control of the power failure: Redis alone, which syncs once a second, written to in the same way.
//!
//! Invariant: it is cut by the same rule as the Redis behind the device, and where it loses nothing there is an
//! error instead of a count, since then the failure has shown nothing.

use super::alone::RedisAlone;
use super::sync_watch::SyncWatch;
use super::{bar, TOKENS_MIN};
use scotfree_stage::history::{HistoryOptions, Verdict};
use scotfree_stage::interrupt::Interrupt;
use scotfree_stage::power_cut::cut_back;
use scotfree_stage::process::{wait_until, Process};
use scotfree_stage::site::{Site, PATIENCE};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::history::{HistoryControl, HistorySpec};
use scotfree_stage::worker::WorkerSpec;
use serde::Serialize;
use std::time::{Duration, Instant};

/// How long after a sync the power fails: shortly before the next one, if there is one each second.
const AFTER_SYNC: Duration = Duration::from_millis(700);
/// Where a sync comes sooner than that, again and again, it is tried with less.
const AFTER_SYNC_MIN: Duration = Duration::from_millis(20);

/// What the failure took.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PowerFailure {
    /// Bytes of the append-only files behind the device that had not been synced.
    pub cut_bytes: u64,
    /// Redis alone, `appendfsync everysec`, on the same host at the same moment.
    pub redis_everysec: Tally,
}

/// What became of the control's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Tally {
    /// Bytes of its append-only files that had not been synced.
    pub cut_bytes: u64,
    /// Tokens that were acknowledged.
    pub acked: u64,
    /// Of these, found afterwards.
    pub found: u64,
    /// Of these, not found.
    pub lost: u64,
}

/// A Redis alone with writers.
pub(super) struct Control<'a> {
    site: &'a Site<'a>,
    redis: &'a mut RedisAlone,
    watch: SyncWatch,
    history: HistoryControl,
    _writers: Process,
}

impl<'a> Control<'a> {
    /// Starts writers like those behind the device.
    pub fn start(site: &'a Site<'a>, redis: &'a mut RedisAlone) -> Result<Control<'a>, Trouble> {
        let socket = site.folder().join("history-alone");
        let options =
            HistoryOptions { key_writers: 1, timeout: PATIENCE, ..HistoryOptions::new(redis.address) };
        let server = Some(site.redis_socket(redis.redis()));
        let spec = HistorySpec { socket: socket.clone(), options, server };
        let writers = site.start_worker("client", "history-alone", &WorkerSpec::History(spec))?;
        let history = HistoryControl::connect(&socket, &writers)?;
        let watch = SyncWatch::start(&redis.process, site.redis_folder(redis.redis()))?;
        Ok(Control { site, redis, watch, history, _writers: writers })
    }

    pub fn write(&mut self) -> Result<(), Trouble> {
        self.history.write()
    }

    /// Waits until it has acknowledged what it has not synced, shortly before its next sync. `look` is called
    /// all the while.
    pub fn await_unsynced(
        &mut self,
        interrupt: &Interrupt,
        mut look: impl FnMut() -> Result<(), Trouble>,
    ) -> Result<(), Trouble> {
        let bar = bar(1, "waiting for a sync of Redis alone");
        let mut wait = Unsynced { after_sync: AFTER_SYNC, since: None };
        let mut outcome = Ok(false);
        wait_until(PATIENCE, || {
            outcome = look().and_then(|()| {
                let has_synced = self.watch.look()?;
                Ok(wait.is_over(has_synced, Instant::now(), self.history.count()?))
            });
            interrupt.has_come() || !matches!(outcome, Ok(false))
        });
        bar.finish_and_clear();
        interrupt.check()?;
        if outcome? {
            return Ok(());
        }
        let problem = format!("not within {} s", PATIENCE.as_secs());
        let next = "run it again; if it comes again, see: scot doctor";
        Err(Trouble::new("wait until Redis alone has acknowledged what it has not synced", problem, next))
    }

    pub fn kill(&self) {
        self.redis.process.kill();
    }

    /// Cuts its files, starts it again and counts.
    pub fn count(mut self) -> Result<Tally, Trouble> {
        self.history.rest()?;
        let cut_bytes = cut_back(self.watch.synced(), |_| 0)?;
        self.redis.restart(self.site)?;
        let verdict = self.history.verify_all(PATIENCE)?;
        tally(verdict, cut_bytes)
    }
}

/// What is waited for before the power fails.
struct Unsynced {
    after_sync: Duration,
    // When the last sync was seen, and how many tokens were acknowledged then.
    since: Option<(Instant, u64)>,
}

impl Unsynced {
    fn is_over(&mut self, has_synced: bool, now: Instant, count: u64) -> bool {
        if has_synced {
            // A sync is seen in several looks; one that comes too soon after another is the next one.
            let is_next = self.since.is_some_and(|(since, _)| now - since >= AFTER_SYNC_MIN);
            if is_next && self.since.is_some_and(|(since, _)| now - since < self.after_sync) {
                self.after_sync = (self.after_sync / 2).max(AFTER_SYNC_MIN);
            }
            self.since = Some((now, count));
            return false;
        }
        let is_enough =
            |(since, then): (Instant, u64)| now - since >= self.after_sync && count >= then + TOKENS_MIN;
        self.since.is_some_and(is_enough)
    }
}

fn tally(verdict: Verdict, cut_bytes: u64) -> Result<Tally, Trouble> {
    let Verdict { acked, lost, .. } = verdict;
    if lost > 0 {
        return Ok(Tally { cut_bytes, acked, found: acked - lost, lost });
    }
    let problem = format!("Redis alone has lost none of {acked}, {cut_bytes} bytes were cut");
    Err(Trouble::new(
        "show what a power failure takes",
        problem,
        "run it again; if it comes again, see: scot doctor",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_power_fails_some_time_after_a_sync_and_with_something_to_lose() {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let mut wait = Unsynced { after_sync: AFTER_SYNC, since: None };
        assert!(!wait.is_over(false, at(900), 1_000), "no sync was seen yet");
        assert!(!wait.is_over(true, at(1_000), 1_000));
        assert!(!wait.is_over(true, at(1_005), 1_010), "it is the same sync");
        assert_eq!(wait.after_sync, AFTER_SYNC);
        assert!(!wait.is_over(false, at(1_600), 5_000), "the next sync is far");
        assert!(!wait.is_over(false, at(1_705), 1_009 + TOKENS_MIN), "too little to lose");
        assert!(wait.is_over(false, at(1_705), 1_010 + TOKENS_MIN));
    }

    #[test]
    fn where_syncs_come_often_it_fails_sooner() {
        let begin = Instant::now();
        let mut wait = Unsynced { after_sync: AFTER_SYNC, since: None };
        for turn in 0..20 {
            assert!(!wait.is_over(true, begin + Duration::from_millis(turn * 100), turn));
        }
        assert!(wait.after_sync <= Duration::from_millis(100), "{:?}", wait.after_sync);
        assert!(wait.is_over(false, begin + Duration::from_millis(1_999), 19 + TOKENS_MIN));
    }

    #[test]
    fn a_control_that_loses_nothing_shows_nothing() {
        let verdict = Verdict { acked: 100, found: 100, ..Verdict::default() };
        assert!(tally(verdict, 70).expect_err("nothing was lost").to_string().contains("lost none of 100"));
        let tally = tally(Verdict { lost: 30, found: 70, ..verdict }, 70).expect("it has lost");
        assert_eq!((tally.found, tally.lost), (70, 30));
    }
}
