//! What a run of persist, or many, came to.
//!
//! Invariant: a run that passed says how much went wrong in it; a run in which nothing crashed
//! proves nothing about crashes.

use crate::world::World;

scotfree_sim::report! {
    /// How often what happened.
    pub struct Report {
        /// Requests made.
        invoked,
        /// Requests completed.
        completed,
        /// Of these, by devices alone.
        completed_early,
        /// Of these, before elders of their session.
        overtook,
        /// Of the completed ones, reads.
        completed_reads,
        /// Of these, by functions of devices in the server's place.
        completed_by_function,
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
        /// Servers lost for good.
        servers_lost,
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
        /// Writes that an application did not take.
        refused,
        /// Packets refused by roles, for any reason.
        packets_refused,
        /// Reads that functions of devices answered.
        answered,
        /// Times that a device told a server what to pass over.
        passed_over,
        /// Messages of past server epochs that devices refused.
        past_epoch,
        /// Acknowledgements that devices withheld for want of a lease.
        without_lease,
    }
}

/// A run that broke an invariant.
pub type Failure = scotfree_sim::FailureOf<World>;
