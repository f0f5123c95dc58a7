//! Samples of the packets that a runtime refused, as lines for its log.
//!
//! Invariant: a flood of packets cannot become a flood of lines: there is one for the first packet of a
//! reason and then at most one per [`INTERVAL`] and reason, with the number of those left out.

use scotfree_core::Nanos;
use scotfree_wire::{WireError, WIRE_ERROR_COUNT};
use std::net::SocketAddr;

/// The shortest time between two lines of one reason.
const INTERVAL: Nanos = Nanos::from_secs(5);

/// What has been said of each reason.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    reasons: [Reason; WIRE_ERROR_COUNT],
}

#[derive(Debug, Default, Clone)]
struct Reason {
    seen: u64,
    said: u64,
    next_at: Nanos,
    // The line that nobody has taken yet; a later one replaces it.
    line: Option<String>,
}

impl Refusals {
    /// A packet has been handled since the last look; `counts` is how many were refused, by reason.
    pub fn look(&mut self, now: Nanos, from: SocketAddr, bytes: usize, counts: &[u64; WIRE_ERROR_COUNT]) {
        for error in WireError::ALL {
            let count = counts[error as usize];
            if self.reasons[error as usize].seen != count {
                self.reasons[error as usize].on_refused(now, count, || line(from, bytes, error));
            }
        }
    }

    /// The next line to be logged.
    pub fn next_line(&mut self) -> Option<String> {
        self.reasons.iter_mut().find_map(|reason| reason.line.take())
    }
}

impl Reason {
    fn on_refused(&mut self, now: Nanos, count: u64, line: impl FnOnce() -> String) {
        self.seen = count;
        if now < self.next_at {
            return;
        }
        let left_out = count - self.said - 1;
        let more =
            if left_out > 0 { format!(" (and {left_out} more since the last line)") } else { String::new() };
        self.line = Some(format!("{}{more}", line()));
        self.said = count;
        self.next_at = now.plus(INTERVAL);
    }
}

fn line(from: SocketAddr, bytes: usize, error: WireError) -> String {
    let hint = match error {
        WireError::BadMac | WireError::BadStampMac => "; has it the same key file?",
        WireError::UnknownKeyEpoch => "; was its key file, or this one, rotated and not read again (SIGHUP)?",
        WireError::WrongVersion | WireError::UnknownExtension => "; is it of another version?",
        WireError::ExtensionNotOffered => {
            "; it was not offered to be taken: is its session of another server?"
        }
        WireError::Truncated
        | WireError::Oversized
        | WireError::WrongMagic
        | WireError::UnknownKind
        | WireError::InvalidField
        | WireError::BadFragment
        | WireError::BadExtension
        | WireError::Elsewhere => "",
    };
    format!("dropped a packet of {bytes} bytes from {from}: {} ({error}){hint}", error.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAD_MAC: usize = WireError::BadMac as usize;

    #[test]
    fn a_flood_becomes_one_line_and_a_number() {
        let from: SocketAddr = "10.0.0.9:51000".parse().expect("an address");
        let (mut refusals, mut counts) = (Refusals::default(), [0; WIRE_ERROR_COUNT]);
        refusals.look(Nanos(0), from, 64, &counts);
        assert_eq!(refusals.next_line(), None, "nothing was refused");
        let mut lines = Vec::new();
        for millis in 0..10_000 {
            counts[BAD_MAC] += 1;
            counts[WireError::Truncated as usize] = 1;
            refusals.look(Nanos::from_millis(millis), from, 64, &counts);
            lines.extend(std::iter::from_fn(|| refusals.next_line()));
        }
        assert_eq!(lines.len(), 3, "{lines:?}");
        let bad_macs: Vec<&String> = lines.iter().filter(|line| line.contains("bad_mac")).collect();
        assert!(bad_macs[0].contains("64 bytes from 10.0.0.9:51000") && !bad_macs[0].contains("more"));
        assert!(bad_macs[0].contains("the same key file?"));
        assert!(bad_macs[1].ends_with("(and 4999 more since the last line)"), "{}", bad_macs[1]);
    }
}
