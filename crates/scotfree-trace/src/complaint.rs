//! Says that call records cannot be written while that is so, and when it is over.
//!
//! Invariant: the first failure is said at once; of those that follow, one in each [`INTERVAL`].

use std::fmt::{self, Display};
use std::time::{Duration, Instant};

/// How long nothing more is said after a failure was.
const INTERVAL: Duration = Duration::from_secs(10);

type Tell = Box<dyn FnMut(&str) + Send>;

/// Who is told, and what was said so far.
#[derive(Default)]
pub(crate) struct Complaints {
    tell: Option<Tell>,
    said_at: Option<Instant>,
    /// Whether the last that was said is a failure.
    is_open: bool,
}

impl Complaints {
    /// From now on `tell` is told.
    pub fn tell(&mut self, tell: Tell) {
        self.tell = Some(tell);
    }

    /// Something could not be written, now or at all.
    pub fn failed(&mut self, now: Instant, failed_count: u64, problem: &dyn Display) {
        let is_recent = self.said_at.is_some_and(|said_at| now.duration_since(said_at) < INTERVAL);
        let Some(tell) = self.tell.as_mut().filter(|_| !is_recent) else { return };
        tell(&format!(
            "ALARM: call records cannot be written, {failed_count} are lost so far: {problem}; \
             calls are not affected"
        ));
        self.said_at = Some(now);
        self.is_open = true;
    }

    /// Something was written.
    pub fn written(&mut self, failed_count: u64) {
        let Some(tell) = self.tell.as_mut().filter(|_| self.is_open) else { return };
        tell(&format!("call records are written again; {failed_count} were lost so far"));
        self.is_open = false;
    }
}

impl fmt::Debug for Complaints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Complaints").field("said_at", &self.said_at).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn the_first_failure_is_said_at_once_and_then_one_in_an_interval() {
        let (sender, said) = channel();
        let mut complaints = Complaints::default();
        complaints.tell(Box::new(move |line| sender.send(line.to_owned()).expect("the test listens")));
        let start = Instant::now();
        complaints.written(0);
        complaints.failed(start, 0, &"refused");
        complaints.failed(start + INTERVAL / 2, 3, &"refused");
        complaints.failed(start + INTERVAL, 5, &"refused");
        complaints.written(5);
        complaints.written(5);
        complaints.failed(start + INTERVAL * 3 / 2, 5, &"refused");
        let said: Vec<String> = said.try_iter().collect();
        let expected =
            ["0 are lost so far: refused", "5 are lost so far: refused", "written again; 5 were lost"];
        assert_eq!(said.len(), expected.len(), "{said:?}");
        assert!(said.iter().zip(expected).all(|(line, part)| line.contains(part)), "{said:?}");
    }
}
