//! What all daemons have in common: signals, readiness, metrics, messages.
//!
//! Invariant: `scot: ready` is printed once, on standard output, when requests are served and not before;
//! SIGTERM and Ctrl-C drain, a second one ends at once.

use crate::failure::{Failure, INTERRUPTED};
use crate::out;
use crate::settings::LogLevel;
use scotfree_io::{stderr, Interest, Poller, Signal, Signals};
use scotfree_rpc::metrics::{MetricsBoard, MetricsListener};
use scotfree_rpc::Stop;
use serde::Serialize;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;
use std::thread;

/// From now on what this process makes is its user's alone: a log holds what callers have sent.
pub fn keep_files_private() {
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
}

/// Lets this process open as many files as it may at all; how many these are.
pub fn open_files_max() -> u64 {
    use rustix::process::{getrlimit, setrlimit, Resource};
    let mut limit = getrlimit(Resource::Nofile);
    let before = limit.current;
    limit.current = limit.maximum;
    let raised = setrlimit(Resource::Nofile, limit).is_ok();
    // None is no limit.
    (if raised { limit.maximum } else { before }).unwrap_or(u64::MAX)
}

/// Hears the process's signals in a thread of its own. `on_end` is called for the first SIGTERM or
/// Ctrl-C; a second one ends the process.
pub fn on_signals(
    mut on_end: impl FnMut() + Send + 'static,
    mut on_hangup: impl FnMut() + Send + 'static,
) -> Result<(), Failure> {
    let failed = |error| Failure::tried("listen for signals", &error, "see ulimit -n");
    let signals = Signals::install().map_err(failed)?;
    let mut poller = Poller::new(1).map_err(failed)?;
    poller.add(signals.as_raw_fd(), 0, Interest::Read).map_err(failed)?;
    let mut is_ending = false;
    thread::spawn(move || {
        // An error of the poller would come again and again: without signals it is as if none came.
        while poller.wait(None).is_ok() {
            while let Some(signal) = signals.next_signal() {
                match signal {
                    Signal::Hangup => survive(&mut on_hangup),
                    Signal::Terminate | Signal::Interrupt if is_ending => {
                        std::process::exit(INTERRUPTED.into())
                    }
                    Signal::Terminate | Signal::Interrupt => {
                        is_ending = true;
                        on_end();
                    }
                }
            }
        }
    });
    Ok(())
}

/// A reload that panics ends with itself: the thread must hear the SIGTERM that comes after it. What was to be taken
/// over is kept as it was or taken over in part; the next reload compares with what was taken over last as a whole.
fn survive(on_hangup: &mut impl FnMut()) {
    if catch_unwind(AssertUnwindSafe(on_hangup)).is_err() {
        stderr::line(
            "scot: ALARM: SIGHUP was not carried out to its end, by a fault of scot itself (above); the daemon goes on, \
             and signals are heard; restart it to take over what has changed",
        );
    }
}

/// Says that requests are served from now on.
pub fn say_ready(what: &str) {
    out::line(format_args!("scot: ready {what}"));
}

/// What a server's loop is given.
pub struct Serving {
    /// Ends the loop.
    pub stop: Stop,
    /// Where the loop says how it is.
    pub board: MetricsBoard,
    _listener: Option<MetricsListener>,
}

/// Where the outside sees how a server is, from before it serves.
pub struct Listening {
    board: MetricsBoard,
    listener: Option<MetricsListener>,
}

impl Listening {
    /// Listens for those who want metrics, if an address is given.
    pub fn open(metrics: Option<SocketAddr>) -> Result<Listening, Failure> {
        let board = MetricsBoard::new();
        let listen = |address| MetricsListener::listen(address, board.clone()).map_err(Failure::environment);
        let listener = metrics.map(listen).transpose()?;
        Ok(Listening { board, listener })
    }
}

/// Prepares to serve: signals, and the line that says when the loop's board says so.
pub fn begin(
    what: String,
    listening: Listening,
    on_hangup: impl FnMut() + Send + 'static,
) -> Result<Serving, Failure> {
    let serving = begin_quietly(listening, on_hangup)?;
    let board = serving.board.clone();
    thread::spawn(move || {
        board.wait_until_serving();
        say_ready(&what);
    });
    Ok(serving)
}

/// Prepares to serve, for who says by itself when it is ready.
pub fn begin_quietly(
    listening: Listening,
    on_hangup: impl FnMut() + Send + 'static,
) -> Result<Serving, Failure> {
    let stop = Stop::new().map_err(|error| Failure::tried("make a waker", &error, "see ulimit -n"))?;
    let ending = stop.clone();
    on_signals(move || ending.stop(), on_hangup)?;
    Ok(Serving { stop, board: listening.board, _listener: listening.listener })
}

/// The daemons' messages, filtered by a level that may change.
#[derive(Debug, Clone)]
pub struct Messages {
    name: Arc<str>,
    level: Arc<AtomicU8>,
}

impl Messages {
    /// Messages of a daemon.
    pub fn new(name: &str, level: Option<LogLevel>) -> Messages {
        let messages = Messages { name: name.into(), level: Arc::default() };
        messages.set_level(level);
        messages
    }

    /// Messages of a part of the daemon, which obey the same level.
    pub fn of_part(&self, part: &str) -> Messages {
        Messages { name: format!("{} {part}", self.name).into(), level: Arc::clone(&self.level) }
    }

    /// Changes the level. A plain value: nothing else is ordered by it.
    pub fn set_level(&self, level: Option<LogLevel>) {
        self.level.store(level.unwrap_or_default() as u8, Ordering::Relaxed);
    }

    /// Says a line, unless the level is against it.
    pub fn say(&self, line: &str) {
        let is_alarm = line.starts_with("ALARM");
        if is_alarm || self.level.load(Ordering::Relaxed) == LogLevel::Notices as u8 {
            stderr::line(format_args!("scot {}: {line}", self.name));
        }
    }
}

/// The settings that a daemon obeys: those that it was started with, and what it has taken over since. What needs a
/// restart is said at each reload until there is one, since it is compared with these and not with the last file.
#[derive(Debug, Clone, Default)]
pub struct InForce(serde_json::Map<String, serde_json::Value>);

impl InForce {
    /// Those of a section.
    pub fn of(section: &impl Serialize) -> InForce {
        InForce::default().and(section)
    }

    /// These and those of another section, whose keys are others.
    pub fn and(mut self, section: &impl Serialize) -> InForce {
        if let Ok(serde_json::Value::Object(keys)) = serde_json::to_value(section) {
            self.0.extend(keys);
        }
        self
    }

    /// Takes over what can be; the keys in which they differ, in order, whether taken over or not.
    pub fn take_over(&mut self, new: &InForce, reloadable: &[&str]) -> Vec<String> {
        let differ = |key: &&String| self.0.get(*key) != new.0.get(*key);
        let changed: BTreeSet<String> = self.0.keys().chain(new.0.keys()).filter(differ).cloned().collect();
        for key in changed.iter().filter(|key| reloadable.contains(&key.as_str())) {
            match new.0.get(key) {
                Some(value) => drop(self.0.insert(key.clone(), value.clone())),
                None => drop(self.0.remove(key)),
            }
        }
        changed.into_iter().collect()
    }
}

/// Says what of the changed keys was taken over and what needs a restart.
pub fn say_reload(messages: &Messages, changed: &[String], reloadable: &[&str]) {
    let (taken, left): (Vec<&str>, Vec<&str>) =
        changed.iter().map(String::as_str).partition(|key| reloadable.contains(key));
    if !taken.is_empty() {
        messages.say(&format!("reloaded: {}", taken.join(", ")));
    }
    if !left.is_empty() {
        messages.say(&format!("ALARM: not reloaded, restart to take over: {}", left.join(", ")));
    }
    if changed.is_empty() {
        messages.say("reloaded: nothing has changed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Switch;

    /// Signals are the process's: the only test here that installs their handlers.
    #[test]
    fn a_reload_that_panics_costs_no_later_signal() {
        let (heard, said) = std::sync::mpsc::channel();
        let ends = heard.clone();
        let on_hangup = move || {
            heard.send("reload").expect("the test listens");
            panic!("the fault that this test is about");
        };
        on_signals(move || ends.send("end").expect("the test listens"), on_hangup)
            .expect("there are descriptors");
        send("HUP");
        assert_eq!(said.recv(), Ok("reload"));
        send("TERM");
        assert_eq!(said.recv(), Ok("end"), "the thread that hears signals is gone");
    }

    /// The shell's own `kill`: a small system has no other.
    fn send(signal: &str) {
        let words = ["-c", "kill -s \"$1\" \"$2\"", "sh", signal, &std::process::id().to_string()];
        let sent = std::process::Command::new("sh").args(words).status();
        assert!(sent.expect("every system has a shell").success());
    }

    #[test]
    fn what_has_changed_is_compared_with_what_is_in_force() {
        let old = Switch { device_id: Some(1), loss: Some(1.0), head: Some(true), ..Switch::default() };
        let new = Switch { device_id: Some(1), loss: Some(2.0), seed: Some(3), ..Switch::default() };
        let (old, new) = (InForce::of(&old), InForce::of(&new));
        let mut in_force = old.clone();
        assert!(in_force.take_over(&old, &[]).is_empty());
        assert_eq!(in_force.take_over(&new, &["loss", "seed"]), ["head", "loss", "seed"]);
        assert_eq!(in_force.take_over(&new, &["loss", "seed"]), ["head"], "it still needs a restart");
        assert_eq!(in_force.take_over(&old, &["loss", "seed"]), ["loss", "seed"], "and no longer");
    }
}
