//! What a run, or many, came to.
//!
//! Invariant: a run that passed says how much went wrong in it; a run in which nothing was lost
//! proves nothing about losses.

use scotfree_core::Nanos;
use std::fmt::{self, Debug, Display};

/// What is counted in every world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Runs.
    pub runs: u64,
    /// Steps.
    pub steps: u64,
    /// Virtual time, in nanoseconds.
    pub virtual_ns: u64,
    /// Links cut.
    pub cuts: u64,
    /// Packets lost.
    pub packets_lost: u64,
    /// Packets doubled.
    pub packets_doubled: u64,
    /// Packets damaged.
    pub packets_damaged: u64,
    /// Packets that went around the devices.
    pub packets_detoured: u64,
    /// Packets that were very late.
    pub packets_late: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// The longest that anything outstanding took after all faults had stopped.
    pub recovery_max: Nanos,
    /// The hashes of all that happened, added up; 0 where they were not wanted.
    pub trace_hash: u64,
}

impl Tally {
    /// Adds another run's numbers.
    pub fn add(&mut self, other: &Tally) {
        self.runs += other.runs;
        self.steps += other.steps;
        self.virtual_ns += other.virtual_ns;
        self.cuts += other.cuts;
        self.packets_lost += other.packets_lost;
        self.packets_doubled += other.packets_doubled;
        self.packets_damaged += other.packets_damaged;
        self.packets_detoured += other.packets_detoured;
        self.packets_late += other.packets_late;
        self.packets_sent += other.packets_sent;
        self.recovery_max = self.recovery_max.max(other.recovery_max);
        self.trace_hash = self.trace_hash.wrapping_add(other.trace_hash);
    }

    /// The numbers with their names.
    pub fn numbers(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("runs", self.runs),
            ("steps", self.steps),
            ("virtual_ns", self.virtual_ns),
            ("cuts", self.cuts),
            ("packets_lost", self.packets_lost),
            ("packets_doubled", self.packets_doubled),
            ("packets_damaged", self.packets_damaged),
            ("packets_detoured", self.packets_detoured),
            ("packets_late", self.packets_late),
            ("packets_sent", self.packets_sent),
            ("recovery_max_ns", self.recovery_max.0),
        ]
    }
}

/// What is counted in a protocol's world, made by [`report!`](crate::report!).
pub trait Counters: Clone + Debug + Default + Display + Send {
    /// What the engine counts.
    fn tally_mut(&mut self) -> &mut Tally;

    /// Adds another run's numbers.
    fn add(&mut self, other: &Self);
}

/// A report of what the engine counts and of the named counters.
#[macro_export]
macro_rules! report {
    ($(#[$meta:meta])* $visibility:vis struct $Report:ident { $($(#[$doc:meta])* $name:ident,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        $visibility struct $Report {
            /// What is counted in every world.
            pub tally: $crate::Tally,
            $($(#[$doc])* pub $name: u64,)*
        }

        impl $Report {
            /// Adds another run's numbers.
            $visibility fn add(&mut self, other: &$Report) {
                self.tally.add(&other.tally);
                $(self.$name += other.$name;)*
            }

            /// The numbers with their names.
            $visibility fn numbers(&self) -> Vec<(&'static str, u64)> {
                let mut numbers = self.tally.numbers();
                numbers.extend([$((stringify!($name), self.$name)),*]);
                numbers
            }
        }

        impl $crate::Counters for $Report {
            fn tally_mut(&mut self) -> &mut $crate::Tally {
                &mut self.tally
            }

            fn add(&mut self, other: &$Report) {
                $Report::add(self, other);
            }
        }

        impl std::fmt::Display for $Report {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                for (name, number) in self.numbers() {
                    writeln!(f, "{name:>20} {number}")?;
                }
                if self.tally.trace_hash != 0 {
                    writeln!(f, "{:>20} {:016x}", "trace_hash", self.tally.trace_hash)?;
                }
                Ok(())
            }
        }
    };
}

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation<Invariant> {
    /// Which.
    pub invariant: Invariant,
    /// How.
    pub detail: String,
}

impl<Invariant> Violation<Invariant> {
    /// `invariant` is broken in the way that `detail` says.
    pub fn new(invariant: Invariant, detail: impl Into<String>) -> Violation<Invariant> {
        Violation { invariant, detail: detail.into() }
    }
}

/// A run that broke an invariant.
#[derive(Debug, Clone)]
pub struct Failure<Invariant, Entry> {
    /// The seed that replays it.
    pub seed: u64,
    /// The step in which it was noticed.
    pub step: u64,
    /// The world's time then.
    pub at: Nanos,
    /// What was broken, and how.
    pub violation: Violation<Invariant>,
    /// The scenario, in a few words.
    pub scenario: String,
    /// What happened before.
    pub trace: Vec<Entry>,
}

impl<Invariant: Debug, Entry: Display> Display for Failure<Invariant, Entry> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for entry in &self.trace {
            writeln!(f, "{entry}")?;
        }
        writeln!(f, "{}", self.scenario)?;
        writeln!(
            f,
            "seed {} broke {:?} in step {} after {:.3} ms: {}",
            self.seed,
            self.violation.invariant,
            self.step,
            self.at.0 as f64 / 1e6,
            self.violation.detail
        )
    }
}

impl<Invariant: Debug, Entry: Debug + Display> std::error::Error for Failure<Invariant, Entry> {}

#[cfg(test)]
mod tests {
    use super::*;

    report! {
        /// Of a world with one counter.
        struct Report {
            /// Requests completed.
            completed,
        }
    }

    #[test]
    fn reports_add_up() {
        let tally = |recovery, hash| Tally {
            recovery_max: Nanos(recovery),
            trace_hash: hash,
            steps: 1,
            ..Tally::default()
        };
        let one = Report { completed: 2, tally: tally(7, u64::MAX) };
        let mut sum = Report { completed: 3, tally: tally(5, 3) };
        sum.add(&one);
        assert_eq!((sum.completed, sum.tally), (5, Tally { steps: 2, ..tally(7, 2) }));
        assert!(sum.to_string().contains("completed 5"));
        assert!(sum.to_string().contains("trace_hash 0000000000000002"));
        assert!(sum.numbers().contains(&("steps", 2)));
    }
}
