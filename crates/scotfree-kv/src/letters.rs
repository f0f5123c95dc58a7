//! Updates that came to nothing although they were promised: kept in a file, counted, and told.
//!
//! Invariant: a letter is durable before the session's position passes its update; that there are some is
//! told at once, and further ones with their count, at most once an interval.

use scotfree_core::{Nanos, SeqNum, SessionId};
use scotfree_rpc::{DeadLetter, DeadLetterFile};
use std::io;
use std::path::{Path, PathBuf};

/// How often late errors are told at most.
const TELL_INTERVAL: Nanos = Nanos::from_secs(10);

/// The dead letters of a service.
pub(crate) struct Letters {
    file: DeadLetterFile,
    path: PathBuf,
    late_errors: u64,
    late_errors_told: u64,
    told_at: Option<Nanos>,
}

impl Letters {
    /// Letters go to `path`, which may grow to `bytes_max`.
    pub fn new(path: &Path, bytes_max: u64) -> Letters {
        let file = DeadLetterFile::new(path, bytes_max);
        Letters { file, path: path.to_owned(), late_errors: 0, late_errors_told: 0, told_at: None }
    }

    /// An update that is never applied.
    pub fn write(&mut self, letter: &DeadLetter<'_>) -> io::Result<()> {
        self.file.write(letter)
    }

    /// An update that was refused with `reply`, after its client had been answered.
    pub fn late_error(
        &mut self,
        session: SessionId,
        seq: SeqNum,
        payload: &[u8],
        reply: &[u8],
    ) -> io::Result<()> {
        self.late_errors += 1;
        let error = String::from_utf8_lossy(reply.strip_prefix(b"-").unwrap_or(reply));
        self.file.write_late_error(session, seq, payload, error.trim_end())
    }

    /// How many letters were written.
    pub fn count(&self) -> u64 {
        self.file.count()
    }

    /// How many of them were late errors.
    pub fn late_errors(&self) -> u64 {
        self.late_errors
    }

    /// What to tell of late errors, if it is time.
    pub fn next_line(&mut self, now: Nanos) -> Option<String> {
        let unsaid = self.late_errors - self.late_errors_told;
        let too_soon = self.told_at.is_some_and(|told| now < told.plus(TELL_INTERVAL));
        if unsaid == 0 || too_soon {
            return None;
        }
        (self.late_errors_told, self.told_at) = (self.late_errors, Some(now));
        Some(format!(
            "ALARM: {unsaid} updates were refused after their clients had been answered early; they are in {} with \
             reason late_error: apply them by other means or tell their owners",
            self.path.display()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_errors_are_told_at_once_and_then_with_their_count() {
        let mut letters = Letters::new(Path::new("dead"), 0);
        let at = Nanos::from_secs;
        assert_eq!(letters.next_line(at(1)), None);
        letters.late_errors = 1;
        assert!(letters.next_line(at(1)).is_some_and(|line| line.starts_with("ALARM: 1 updates")));
        letters.late_errors = 1_001;
        assert_eq!(letters.next_line(at(10)), None);
        assert!(letters.next_line(at(11)).is_some_and(|line| line.starts_with("ALARM: 1000 updates")));
        assert_eq!(letters.next_line(at(30)), None);
    }
}
