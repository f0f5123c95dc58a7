//! What a run, or many, came to.
//!
//! Invariant: a run that passed says how much went wrong in it; a run in which nothing crashed
//! proves nothing about crashes.

use crate::model::Violation;
use crate::trace::Entry;
use scotfree_core::Nanos;
use std::fmt;

macro_rules! report {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// How often what happened.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Report {
            $($(#[$doc])* pub $name: u64,)*
            /// The longest that anything outstanding took after all faults had stopped.
            pub recovery_max: Nanos,
            /// The hashes of all that happened, added up; 0 where they were not wanted.
            pub trace_hash: u64,
        }

        impl Report {
            /// Adds another run's numbers.
            pub fn add(&mut self, other: &Report) {
                $(self.$name += other.$name;)*
                self.recovery_max = self.recovery_max.max(other.recovery_max);
                self.trace_hash = self.trace_hash.wrapping_add(other.trace_hash);
            }

            /// The numbers with their names.
            pub fn numbers(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)* ("recovery_max_ns", self.recovery_max.0)]
            }
        }
    };
}

report! {
    /// Runs.
    runs,
    /// Steps.
    steps,
    /// Virtual time, in nanoseconds.
    virtual_ns,
    /// Requests made.
    invoked,
    /// Requests completed.
    completed,
    /// Of these, by devices alone.
    completed_early,
    /// Of these, reads.
    completed_reads,
    /// Requests whose client or session ended first.
    outcome_unknown,
    /// Virtual time until the last request of a client completed, in nanoseconds.
    work_ns,
    /// Requests sent again by clients.
    retransmitted,
    /// Requests executed.
    executed,
    /// Writes that a crash of the server took back.
    taken_back,
    /// Entries that devices logged.
    logged,
    /// Entries that devices sent to the server, on request or because of age.
    replays,
    /// Of these, because of age.
    reforwarded,
    /// Requests executed from a device's log.
    executed_from_log,
    /// Questions by the server for an order number.
    orders_asked,
    /// Questions by the server for the place of an unstamped request.
    drains_asked,
    /// Questions by the server for a session's missing request.
    gaps_asked,
    /// Replies held until stable.
    replies_held,
    /// Times the server said Busy.
    busy,
    /// Dead letters.
    dead_letters,
    /// Sessions that expired.
    expired,
    /// Sessions that ended although their client wanted to go on.
    sessions_ended,
    /// Crashes of servers.
    server_crashes,
    /// Crashes of device processes.
    device_crashes,
    /// Crashes of devices' hosts.
    host_crashes,
    /// Devices lost for good.
    devices_lost,
    /// Devices put back into service after they had been excluded.
    devices_reinstated,
    /// Crashes of clients.
    client_crashes,
    /// Records that devices found again after a crash.
    records_restored,
    /// Links cut.
    cuts,
    /// Clocks set.
    clock_jumps,
    /// Forged packets.
    forged,
    /// Times that a part of the cluster took its key anew.
    rekeyed,
    /// Mishaps left out because they would have broken more than was promised to hold.
    mishaps_spared,
    /// Runs whose clients' histories were judged for themselves.
    histories_judged,
    /// Of these, those of which it could not be told in time whether an order explains them.
    histories_undecided,
    /// Runs in which more was lost than the durability asked for survives.
    weakened,
    /// Packets lost.
    packets_lost,
    /// Packets doubled.
    packets_doubled,
    /// Packets damaged.
    packets_damaged,
    /// Packets that went around the devices.
    packets_detoured,
    /// Packets that were very late.
    packets_late,
    /// Packets sent.
    packets_sent,
    /// Packets refused by roles, for any reason.
    packets_refused,
    /// Messages of past server epochs that devices refused.
    past_epoch,
    /// Acknowledgements that devices withheld for want of a lease.
    without_lease,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, number) in self.numbers() {
            writeln!(f, "{name:>20} {number}")?;
        }
        if self.trace_hash != 0 {
            writeln!(f, "{:>20} {:016x}", "trace_hash", self.trace_hash)?;
        }
        Ok(())
    }
}

/// A run that broke an invariant.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The seed that replays it.
    pub seed: u64,
    /// The step in which it was noticed.
    pub step: u64,
    /// The world's time then.
    pub at: Nanos,
    /// What was broken, and how.
    pub violation: Violation,
    /// The scenario, in a few words.
    pub scenario: String,
    /// What happened before.
    pub trace: Vec<Entry>,
}

impl fmt::Display for Failure {
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

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_add_up() {
        let one = Report { completed: 2, recovery_max: Nanos(7), ..Report::default() };
        let mut sum = Report { completed: 3, recovery_max: Nanos(5), ..Report::default() };
        sum.add(&one);
        assert_eq!((sum.completed, sum.recovery_max), (5, Nanos(7)));
        assert!(sum.to_string().contains("completed 5"));
    }
}
