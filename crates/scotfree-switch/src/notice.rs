//! What the daemon tells its operator, line by line.
//!
//! Invariant: a flood of packets cannot become a flood of lines: lines of one subject come at most
//! once per [`INTERVAL`], with the number of those left out.

use scotfree_core::Nanos;
use scotfree_io::stderr;
use std::collections::BTreeMap;

/// The shortest time between two lines of one subject.
pub const INTERVAL: Nanos = Nanos::from_secs(1);

/// Takes the daemon's lines.
pub type Sink = Box<dyn FnMut(&str) + Send>;

/// The daemon's lines and their limits.
pub struct Notices {
    sink: Sink,
    now: Nanos,
    subjects: BTreeMap<&'static str, Subject>,
    alarms: u64,
}

#[derive(Debug, Clone, Copy)]
struct Subject {
    next_at: Nanos,
    left_out: u64,
}

impl Notices {
    /// Lines go to `sink`.
    pub fn new(sink: Sink) -> Notices {
        Notices { sink, now: Nanos(0), subjects: BTreeMap::new(), alarms: 0 }
    }

    /// Lines go to standard error.
    pub fn to_stderr() -> Notices {
        Notices::new(Box::new(|line| stderr::line(format_args!("scot switch: {line}"))))
    }

    /// Tells the time, by which lines are limited.
    pub fn set_now(&mut self, now: Nanos) {
        self.now = now;
    }

    /// A line that is always told.
    pub fn say(&mut self, line: &str) {
        (self.sink)(line);
    }

    /// A line that somebody should act on; counted.
    pub fn alarm(&mut self, line: &str) {
        self.alarms += 1;
        (self.sink)(&format!("ALARM: {line}"));
    }

    /// A line that may come often; made only if it is told.
    pub fn limited(&mut self, subject: &'static str, line: impl FnOnce() -> String) {
        let subject = self.subjects.entry(subject).or_insert(Subject { next_at: self.now, left_out: 0 });
        if self.now < subject.next_at {
            subject.left_out += 1;
            return;
        }
        let left_out = std::mem::take(&mut subject.left_out);
        subject.next_at = self.now.plus(INTERVAL);
        let more =
            if left_out > 0 { format!(" (and {left_out} more since the last line)") } else { String::new() };
        (self.sink)(&format!("{}{more}", line()));
    }

    /// How many alarms there were.
    pub fn alarm_count(&self) -> u64 {
        self.alarms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn a_flood_becomes_one_line_and_a_number() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&lines);
        let mut notices =
            Notices::new(Box::new(move |line| sink.lock().expect("one thread").push(line.to_owned())));
        for _ in 0..1_000 {
            notices.limited("bad packet", || "a bad packet".to_owned());
        }
        notices.set_now(INTERVAL);
        notices.limited("bad packet", || "a bad packet".to_owned());
        notices.limited("other", || "something else".to_owned());
        notices.alarm("the disk is gone");
        let lines = lines.lock().expect("one thread");
        assert_eq!(
            *lines,
            [
                "a bad packet",
                "a bad packet (and 999 more since the last line)",
                "something else",
                "ALARM: the disk is gone"
            ]
        );
        assert_eq!(notices.alarm_count(), 1);
    }
}
