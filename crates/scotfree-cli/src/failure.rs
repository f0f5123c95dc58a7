//! How a command ends that did not come to a good end.
//!
//! Invariant: the exit code says whose turn it is: 1 the result is bad, 2 the caller asked wrongly,
//! 3 the machine cannot do it, 130 somebody interrupted it. A command that was run for the caller ends with its own.

use scotfree_io::stderr;
use scotfree_stage::trouble::Trouble;
use std::fmt;
use std::io;

/// The exit code of what a signal has ended, as shells have it for Ctrl-C.
pub const INTERRUPTED: u8 = 130;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// It did what was asked, and the result is bad. What there is to say was printed.
    Verdict,
    /// What was looked at is damaged.
    Damaged(String),
    /// Wrong flags or a wrong configuration.
    Usage(String),
    /// The machine cannot do it.
    Environment(String),
    /// Somebody ended it by a signal; what there is to say of that.
    Interrupted(String),
    /// A command that was run for the caller ended with this code, and has said why.
    Command(u8),
}

impl Failure {
    /// Wrong flags or a wrong configuration.
    pub fn usage(problem: impl fmt::Display) -> Failure {
        Failure::Usage(problem.to_string())
    }

    /// The machine cannot do it.
    pub fn environment(problem: impl fmt::Display) -> Failure {
        Failure::Environment(problem.to_string())
    }

    /// What was tried on the machine failed; `next` is what to do about it.
    pub fn tried(what: impl fmt::Display, error: &io::Error, next: &str) -> Failure {
        Failure::Environment(format!("{what}: {error}; {next}"))
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Failure::Verdict | Failure::Damaged(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Environment(_) => 3,
            Failure::Interrupted(_) => INTERRUPTED,
            Failure::Command(code) => *code,
        }
    }

    /// Says it; the exit code.
    pub fn report(&self) -> u8 {
        match self {
            Failure::Verdict | Failure::Command(_) => (),
            other => stderr::line(format_args!("scot: {other}")),
        }
        self.code()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Verdict => f.write_str("the result is bad"),
            Failure::Command(code) => write!(f, "the command ended with {code}"),
            Failure::Damaged(problem)
            | Failure::Usage(problem)
            | Failure::Environment(problem)
            | Failure::Interrupted(problem) => f.write_str(problem),
        }
    }
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Failure {
        Failure::environment(trouble)
    }
}

/// The setting must be there: a flag, a variable or a key.
pub fn required<T: Clone>(value: Option<&T>, section: &str, key: &str) -> Result<T, Failure> {
    value.cloned().ok_or_else(|| {
        let flag = key.replace('_', "-");
        Failure::usage(format!(
            "--{flag} is missing; give it, or `{key}` in [{section}] of scot.toml, or SCOT_{}_{}",
            section.to_uppercase(),
            key.to_uppercase()
        ))
    })
}
