//! A command that runs in a group in the foreground, as if its caller had started it.
//!
//! Invariant: a signal that asks the caller to end is passed on to the command; the second one ends all that runs in the
//! group. The command ends with this process, however that ends.

use super::group::Group;
use crate::process::{run, spawn_for_life, wait_until};
use crate::trouble::Trouble;
use scotfree_io::{Signal, Signals};
use std::ffi::OsString;
use std::io;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// How a command ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Its exit code, or the signal that ended it.
    pub status: ExitStatus,
    /// How long it ran.
    pub wall: Duration,
}

/// Runs a command in a group to its end. Its input and output are this process's.
pub fn run_foreground(group: &Group, words: &[OsString]) -> Result<Ended, Trouble> {
    let shown = words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let tried = format!("run `{shown}` under limits");
    let failed =
        |error: io::Error| Trouble::new(tried.clone(), error, "see whether `sh` can be started here");
    let signals = Signals::install().map_err(failed)?;
    let prefix = group.prefix();
    let mut command = Command::new(&prefix[0]);
    command.args(&prefix[1..]).args(words);
    let begin = Instant::now();
    let mut child = spawn_for_life(command).map_err(failed)?;
    let status = wait(&mut child, &signals, group).map_err(failed)?;
    Ok(Ended { status, wall: begin.elapsed() })
}

fn wait(child: &mut Child, signals: &Signals, group: &Group) -> io::Result<ExitStatus> {
    const LONG: Duration = Duration::from_secs(3_600);
    let mut signals_count = 0;
    let mut ended = None;
    while ended.is_none() {
        wait_until(LONG, || {
            ended = child.try_wait().transpose();
            while let Some(signal) = signals.next_signal().filter(|_| ended.is_none()) {
                signals_count += 1;
                pass_on(signal, signals_count, child, group);
            }
            ended.is_some()
        });
    }
    ended.expect("it has ended")
}

/// Ctrl-C the terminal has sent to the command as well as to this process; what else comes has come to this one alone.
fn pass_on(signal: Signal, signals_count: u32, child: &Child, group: &Group) {
    let name = match signal {
        _ if signals_count > 1 => return group.end_processes(),
        Signal::Interrupt => return,
        Signal::Terminate => "TERM",
        Signal::Hangup => "HUP",
    };
    // Not yet reaped, so the number is still its own; that it has ended meanwhile is as well.
    let _ = run("sh", ["-c", "kill -s \"$1\" \"$2\"", "sh", name, &child.id().to_string()]);
}
