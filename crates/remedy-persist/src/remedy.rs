//! What the remedy says of itself: which stages it takes off the critical path and what that saves.

use scotfree_core::{Forecast, Remedy, Stage, StageSet, StageTimes};

/// In-network persistence, as a forecast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Persist;

impl Remedy for Persist {
    fn name(&self) -> &'static str {
        "persist"
    }

    fn removes(&self) -> StageSet {
        StageSet::of(&[
            Stage::ServerRecvQueue,
            Stage::ServerApp,
            Stage::ServerSendQueue,
            Stage::ResponseStack,
        ])
    }

    fn preconditions(&self) -> &'static [&'static str] {
        &[
            "the request is an update whose reply is known in advance (early), or its caller waits for durability (covered)",
            "a device is on the path and holds a lease from the server",
            "the server's storage reports when an update is stable",
        ]
    }

    /// An early update: the stages beyond the device fall away; both wires stay, since the device
    /// stands beside the server.
    fn forecast(&self, times: &StageTimes) -> Forecast {
        let baseline = times.total();
        Forecast { completion_time: baseline.since(times.of(self.removes())), baseline }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_core::Nanos;

    #[test]
    fn the_forecast_removes_what_lies_beyond_the_device() {
        let mut times = StageTimes::default();
        for (stage, time) in Stage::ALL.into_iter().zip(1..) {
            times.set(stage, Nanos(time));
        }
        let forecast = Persist.forecast(&times);
        assert_eq!(forecast.baseline, Nanos(45));
        assert_eq!(forecast.saving(), Nanos(4 + 5 + 6 + 7));
        assert!(!Persist.preconditions().is_empty());
    }
}
