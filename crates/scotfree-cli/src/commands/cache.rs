//! The command `scot cache`: what a device's cache has answered, and why it has not.
//!
//! Invariant: it reads what the device publishes anyway, and changes nothing there.

use crate::cli::{Cache, CacheStats};
use crate::config::Sources;
use crate::failure::{required, Failure};
use crate::out;
use scotfree_stage::worker::metrics::{read, Counts, MetricsSpec};
use std::fmt::Write as _;
use std::net::SocketAddr;

/// Before the names of what it counts.
const PREFIX: &str = "scotfree_cache_";

pub fn run(command: &Cache, sources: &Sources) -> Result<(), Failure> {
    let Cache::Stats(flags) = command;
    let address = address(flags, sources)?;
    let counts = read(&MetricsSpec { address }).map_err(Failure::environment)?;
    let counts: Counts = counts
        .into_iter()
        .filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?.into(), value)))
        .collect();
    if counts.is_empty() {
        return Err(Failure::environment(format!(
            "the daemon at {address} has no cache; a device has one that was started with --function cache --function \
             persist (functions in [switch])"
        )));
    }
    if flags.json {
        out::line(format_args!(
            "{}",
            serde_json::to_string_pretty(&counts).expect("names and numbers are JSON")
        ));
    } else {
        out::line(format_args!("{}", in_words(&counts).trim_end()));
    }
    Ok(())
}

/// Where the device publishes what it counts.
fn address(flags: &CacheStats, sources: &Sources) -> Result<SocketAddr, Failure> {
    match flags.metrics {
        Some(address) => Ok(address),
        None => required(sources.read()?.switch.metrics.as_ref(), "switch", "metrics"),
    }
}

fn in_words(counts: &Counts) -> String {
    let count = |name: &str| counts.get(name).copied().unwrap_or(0);
    let (hits, passed_on) = (count("hits_total"), reasons(counts, "misses_total"));
    let missed: u64 = passed_on.iter().map(|(_, count)| count).sum();
    let refused = reasons(counts, "refused_total");
    let reads = hits + missed;
    let share = if reads == 0 { 0.0 } else { 100.0 * hits as f64 / reads as f64 };
    let mut text = format!("answered: {hits} of {reads} reads ({share:.1} %)\n");
    let mut line = |what: &str, said: String| {
        let said = if said.is_empty() { "none".to_owned() } else { said };
        let _ = writeln!(text, "{what}: {said}");
    };
    line("  passed on", listed(&passed_on));
    line("kept now", format!("{} values, {} bytes", count("entries"), count("bytes")));
    line(
        "  taken",
        format!("{} of replies, {} of logged SETs", count("fills_total"), count("overwrites_total")),
    );
    line("  replies not taken", listed(&refused));
    let dropped = format!(
        "{} because of a write, {} for room, {} times all of them",
        count("stale_total"),
        count("evicted_total"),
        count("resets_total")
    );
    line("  given up", dropped);
    line("writes under way that are not logged", count("under_way").to_string());
    if count("off") > 0 {
        text.push_str("it is OFF, and answers nothing until the device starts again; its messages say why\n");
    }
    text
}

/// The reasons that have happened, the most frequent first.
fn reasons<'c>(counts: &'c Counts, name: &str) -> Vec<(&'c str, u64)> {
    let reason = |known: &'c str| known.strip_prefix(name)?.strip_prefix("{reason=\"")?.strip_suffix("\"}");
    let mut found: Vec<(&str, u64)> =
        counts.iter().filter_map(|(known, count)| Some((reason(known)?, *count))).collect();
    found.retain(|(_, count)| *count > 0);
    found.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    found
}

fn listed(reasons: &[(&str, u64)]) -> String {
    reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_answered_comes_first_and_reasons_that_never_were_do_not() {
        let counts = [
            ("hits_total", 3),
            ("misses_total{reason=\"absent\"}", 1),
            ("misses_total{reason=\"under_way\"}", 4),
            ("misses_total{reason=\"off\"}", 0),
            ("fills_total", 2),
            ("entries", 1),
            ("bytes", 143),
        ];
        let mut counts: Counts = counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
        let text = in_words(&counts);
        assert!(
            text.starts_with("answered: 3 of 8 reads (37.5 %)\n  passed on: 4 under_way, 1 absent\n"),
            "{text}"
        );
        assert!(
            text.contains("kept now: 1 values, 143 bytes\n  taken: 2 of replies, 0 of logged SETs\n"),
            "{text}"
        );
        assert!(text.contains("  replies not taken: none\n") && !text.contains("OFF"), "{text}");
        counts.insert("off".to_owned(), 1);
        assert!(in_words(&counts).contains("it is OFF"), "{counts:?}");
        assert!(in_words(&Counts::new()).starts_with("answered: 0 of 0 reads (0.0 %)"));
    }
}
