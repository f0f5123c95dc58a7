//! An anomaly in words.

use super::{Anomaly, AnomalyKind, Ended, Link, Step, Transaction};
use std::fmt::{self, Display, Formatter, Write};

/// How many values of a list are told, from its end.
const VALUES_MAX: usize = 8;

impl Display for AnomalyKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AnomalyKind::Unwritten => "a value was read that nobody appended",
            AnomalyKind::Doubled => "a value stands twice in a list",
            AnomalyKind::Internal => "a transaction contradicts itself",
            AnomalyKind::Reordered => "a transaction's appends stand in another order, or with holes",
            AnomalyKind::AbortedRead => "G1a, an aborted transaction was read",
            AnomalyKind::IntermediateRead => "G1b, a transaction was read in the middle",
            AnomalyKind::Incompatible => "two reads of a list of which neither continues the other",
            AnomalyKind::G0 => "G0, appends in a circle",
            AnomalyKind::G1c => "G1c, appends and reads of them in a circle",
            AnomalyKind::GSingle => "G-single, a circle with one read before an append",
            AnomalyKind::G2 => "G2, a circle with several reads before appends",
        })
    }
}

impl Anomaly {
    /// Its name, the transactions that show it, and why each comes before the next one.
    pub fn describe(&self, history: &[Transaction]) -> String {
        let mut text = self.kind.to_string();
        if self.needs_time {
            text.push_str(", as clients know from the time");
        }
        if let Some(key) = self.key {
            write!(text, ", list k{}", key.0).expect("a string takes all text");
        }
        for index in &self.transactions {
            let told = words_of(&history[*index]);
            write!(text, "\n  T{index} {told}").expect("a string takes all text");
        }
        for (at, link) in self.links.iter().enumerate() {
            let (before, after) = (self.transactions[at], self.transactions[(at + 1) % self.links.len()]);
            let why = words_of_link(*link, before, after);
            write!(text, "\n  T{before} before T{after}: {why}").expect("a string takes all text");
        }
        text
    }
}

fn words_of(transaction: &Transaction) -> String {
    let end = match transaction.ended {
        Ended::Committed { at } => at.to_string(),
        Ended::Aborted => "aborted".to_owned(),
        Ended::Unknown => "never answered".to_owned(),
    };
    let steps: Vec<String> = transaction.steps.iter().map(words_of_step).collect();
    format!("client {}, {} .. {end}: {}", transaction.client, transaction.called, steps.join("; "))
}

fn words_of_step(step: &Step) -> String {
    match step {
        Step::Append { key, value } => format!("append k{} {value}", key.0),
        Step::Read { key, values } => {
            let told = &values[values.len().saturating_sub(VALUES_MAX)..];
            let dots = if told.len() < values.len() { "… " } else { "" };
            let told: Vec<String> = told.iter().map(u64::to_string).collect();
            format!("read k{} -> [{dots}{}]", key.0, told.join(" "))
        }
    }
}

fn words_of_link(link: Link, before: usize, after: usize) -> String {
    match link {
        Link::Appended(key) => format!("T{before} appended to k{} first", key.0),
        Link::WasRead(key) => format!("T{after} read what T{before} appended to k{}", key.0),
        Link::ReadBefore(key) => format!("T{before} read k{} before T{after} appended to it", key.0),
        Link::Returned => format!("T{before} had returned when T{after} was called"),
    }
}
