//! The end of the client's sidecar: what is on its way is waited for, and not longer.
//!
//! Invariant: a stop lasts no longer than `drain_ns_max`, and ends as soon as nothing is outstanding; what
//! is given up is counted and said.

use super::{ClientSidecar, SessionHandle, SidecarError};
use scotfree_core::Nanos;
use scotfree_io::now_monotonic;
use scotfree_trace::CallRecord;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// How long the sessions' ends are waited for when nothing is outstanding in them: sessions that the
/// server does not hear the end of expire there.
const FAREWELL_TIME_MAX: Nanos = Nanos::from_millis(500);
/// How long one wait for them lasts at most, since nobody else wakes this loop.
const FAREWELL_LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// A stop under way, and what it gave up.
#[derive(Debug)]
pub(super) struct Drain {
    began: Nanos,
    until: Nanos,
    given_up: u64,
}

impl Drain {
    pub fn until(&self) -> Nanos {
        self.until
    }
}

/// What remained when the time was over.
pub(super) struct Remainder {
    /// Requests without an answer.
    pub unanswered: u64,
    /// Updates that were answered and are not known to be stable.
    pub unstable: u64,
}

impl Remainder {
    pub fn text(&self, after: Nanos) -> String {
        let (given_up, unstable) = (given_up(self.unanswered, after), self.unstable);
        format!(
            "{given_up}; {unstable} acknowledged updates were not known to be stable yet, and are in the devices' logs"
        )
    }
}

/// What is said of requests that a stop has not waited for.
pub(super) fn given_up(unanswered: u64, after: Nanos) -> String {
    let seconds = after.0 as f64 / 1e9;
    format!(
        "stopped after {seconds:.1} s (drain_ns_max): {unanswered} requests were given up, and whether they ran can only \
         be seen in the data"
    )
}

impl ClientSidecar {
    /// How many requests a stop gave up.
    pub fn given_up(&self) -> u64 {
        self.drain.as_ref().map_or(0, |drain| drain.given_up)
    }

    /// Takes nothing more from clients; those that wait for nothing are told the end now.
    pub(super) fn begin_drain(&mut self, now: Nanos) -> Result<(), SidecarError> {
        let drain = Drain { began: now, until: now.plus(self.drain_ns_max), given_up: 0 };
        self.drain = Some(drain);
        for listener in self.listeners.drain(..) {
            self.poller.remove(listener.as_raw_fd())?;
        }
        let waiting = self.connections.fronts.outstanding();
        if waiting > 0 {
            let most = self.drain_ns_max.0 as f64 / 1e9;
            let text = format!("stopping; {waiting} requests have up to {most:.1} s to be answered");
            self.notices.say(&text);
        }
        self.connections.fronts.stop_reading();
        self.connections.send(&self.poller);
        Ok(())
    }

    /// Whether a stop was asked for and nothing is on its way any more, or has had its time.
    pub(super) fn is_drained(&self, now: Nanos) -> bool {
        self.drain.as_ref().is_some_and(|drain| now >= drain.until || self.connections.fronts.is_drained())
    }

    /// Ends the sessions, so that the server need not wait for their expiry.
    pub(super) fn finish(&mut self, on_record: &mut dyn FnMut(CallRecord)) -> Result<(), SidecarError> {
        let unanswered = self.connections.fronts.outstanding();
        self.connections.close_all();
        let sessions: Vec<SessionHandle> =
            self.connections.fronts.sessions().chain([self.control.session]).collect();
        for session in &sessions {
            self.runtime.end_session(*session);
        }
        let mut nothing_kept_since = None;
        loop {
            self.turn(on_record)?;
            let now = now_monotonic();
            let kept = self.kept(&sessions);
            let since = if kept > 0 { now } else { *nothing_kept_since.get_or_insert(now) };
            let is_over = now >= self.finish_until() || now >= since.plus(FAREWELL_TIME_MAX);
            if is_over || !sessions.iter().any(|session| self.runtime.is_alive(*session)) {
                let remainder = Remainder { unanswered, unstable: kept.saturating_sub(unanswered) };
                self.give_up(now, &remainder);
                break;
            }
            self.runtime.wait(Some(FAREWELL_LOOK_INTERVAL))?;
        }
        while let Some(record) = self.runtime.last_record() {
            on_record(record);
        }
        Ok(())
    }

    fn finish_until(&self) -> Nanos {
        self.drain.as_ref().map_or(Nanos(0), Drain::until)
    }

    fn kept(&self, sessions: &[SessionHandle]) -> u64 {
        sessions.iter().map(|session| self.runtime.kept(*session) as u64).sum()
    }

    fn give_up(&mut self, now: Nanos, remainder: &Remainder) {
        let Some(drain) = &mut self.drain else { return };
        drain.given_up = remainder.unanswered;
        if remainder.unanswered > 0 || remainder.unstable > 0 {
            self.notices.alarm(&remainder.text(now.since(drain.began)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_up_is_named_with_its_count() {
        let text = Remainder { unanswered: 3, unstable: 2 }.text(Nanos::from_millis(3_000));
        assert!(text.contains("after 3.0 s") && text.contains("3 requests were given up"), "{text}");
        assert!(text.contains("2 acknowledged updates"), "{text}");
    }
}
