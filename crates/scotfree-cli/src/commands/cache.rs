//! The command `scot cache`: what a device's cache, or a proxy's, has answered, and why it has not; what it keeps.
//!
//! Invariant: counts are what the daemon publishes anyway; keys are asked for under the cluster's secret.

use super::daemons::cluster_key;
use crate::cli::{Cache, CacheAsk, CacheDrop, CacheLs, CacheStats};
use crate::config::Sources;
use crate::failure::{required, Failure};
use crate::out;
use crate::settings::Cluster;
use scotfree_cache::reason_in_words;
use scotfree_core::{from_hex, to_hex};
use scotfree_io::now_realtime;
use scotfree_rpc::metrics::REQUEST_BYTES_MAX;
use scotfree_stage::worker::metrics::{get, read, Counts, MetricsSpec};
use scotfree_wire::questions::target;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;

/// Before the names of what it counts.
const PREFIX: &str = "scotfree_cache_";
/// Daemons read no longer questions; the rest of the request is some dozens of bytes.
const TARGET_BYTES_MAX: usize = REQUEST_BYTES_MAX - 100;

pub fn run(command: &Cache, sources: &Sources) -> Result<(), Failure> {
    match command {
        Cache::Stats(flags) => stats(flags, sources),
        Cache::Ls(flags) => list(flags, sources),
        Cache::Why(flags) => {
            let question = format!("why {} {}", flags.database, to_hex(flags.key.as_bytes()));
            out::line(format_args!("{}", ask(&flags.ask, sources, &question)?.trim_end()));
            Ok(())
        }
        Cache::Drop(flags) => forget(flags, sources),
    }
}

fn list(flags: &CacheLs, sources: &Sources) -> Result<(), Failure> {
    let answer = ask(&flags.ask, sources, &format!("ls {}", flags.limit))?;
    let kept: Vec<Listed> = answer.lines().filter_map(Listed::read).collect();
    if flags.json {
        let shown: Vec<serde_json::Value> = kept.iter().map(Listed::json).collect();
        let text = serde_json::to_string_pretty(&shown).expect("names and numbers are JSON");
        out::line(format_args!("{text}"));
        return Ok(());
    }
    if kept.is_empty() {
        out::line(format_args!("nothing is kept; `scot cache stats` says why reads were passed on"));
    }
    for listed in &kept {
        out::line(format_args!("{}", listed.in_words()));
    }
    Ok(())
}

fn forget(flags: &CacheDrop, sources: &Sources) -> Result<(), Failure> {
    let question = match &flags.key {
        Some(key) => format!("drop {} {}", flags.database, to_hex(key.as_bytes())),
        None => "drop all".to_owned(),
    };
    let answer = ask(&flags.ask, sources, &question)?;
    out::line(format_args!("{}", answer.trim_end()));
    if flags.key.is_some() && !answer.contains(": forgotten") {
        return Err(Failure::Verdict);
    }
    Ok(())
}

/// What a cache answers to whoever holds the cluster's secret.
fn ask(flags: &CacheAsk, sources: &Sources, question: &str) -> Result<String, Failure> {
    let address = address(flags.metrics, sources)?;
    let key_file = flags.key_file.clone().or(sources.read()?.cluster.key_file);
    let key = cluster_key(&Cluster { key_file, ..Cluster::default() })?;
    let target = target(&key, "cache", question, now_realtime());
    if target.len() > TARGET_BYTES_MAX {
        let most = TARGET_BYTES_MAX / 2 - 200;
        return Err(Failure::usage(format!(
            "the key is too long to be asked about: a question has room for some {most} bytes of it; `scot cache drop --all` \
             forgets whatever is kept"
        )));
    }
    let answer = get(address, &target).map_err(Failure::environment)?;
    match answer {
        (200, body) => Ok(body),
        (404, _) => Err(Failure::environment(format!(
            "the daemon at {address} answers no questions: it is neither device nor proxy, or older than this command"
        ))),
        (_, why) => Err(Failure::environment(format!("the daemon at {address} says: {}", why.trim_end()))),
    }
}

/// A line of what is kept.
#[derive(Debug, PartialEq, Eq)]
struct Listed {
    server: u8,
    database: u16,
    key: Vec<u8>,
    bytes: u64,
    left_ms: Option<u64>,
    is_pending: bool,
    /// Which command's reply it is, if it is not a plain read's.
    command: Option<String>,
}

impl Listed {
    fn read(line: &str) -> Option<Listed> {
        let words: Vec<&str> = line.split(' ').collect();
        let (said, command) = words.split_at_checked(6)?;
        let &[server, database, key, bytes, left, state] = said else { return None };
        Some(Listed {
            server: server.parse().ok()?,
            database: database.parse().ok()?,
            key: from_hex(key)?,
            bytes: bytes.parse().ok()?,
            left_ms: if left == "-" { None } else { Some(left.parse().ok()?) },
            is_pending: state == "pending",
            command: command.first().map(|command| (*command).to_owned()),
        })
    }

    fn json(&self) -> serde_json::Value {
        let (name, key) = match std::str::from_utf8(&self.key) {
            Ok(text) => ("key", text.to_owned()),
            Err(_) => ("key_hex", to_hex(&self.key)),
        };
        serde_json::json!({
            "server": self.server, "database": self.database, name: key, "bytes": self.bytes,
            "left_ms": self.left_ms, "pending": self.is_pending, "command": self.command,
        })
    }

    fn in_words(&self) -> String {
        let left =
            self.left_ms.map_or_else(|| "until it is written".to_owned(), |left| format!("{left} ms left"));
        let of = if self.database == 0 { String::new() } else { format!(" of database {}", self.database) };
        let pending = if self.is_pending { ", not stable yet" } else { "" };
        // What a terminal would take for commands is shown, not sent.
        let key = self.key.escape_ascii();
        let command = self.command.as_ref().map_or_else(String::new, |command| format!("{command} "));
        format!("{command}{key}{of}: {} bytes, {left}{pending}", self.bytes)
    }
}

fn stats(flags: &CacheStats, sources: &Sources) -> Result<(), Failure> {
    let address = address(flags.metrics, sources)?;
    let counts = read(&MetricsSpec { address }).map_err(Failure::environment)?;
    let counts: Counts = counts
        .into_iter()
        .filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?.into(), value)))
        .collect();
    if counts.is_empty() {
        return Err(Failure::environment(format!(
            "the daemon at {address} has no cache; a device has one that was started with --function cache --function \
             persist (functions in [switch]), a proxy one that was started with --cache SIZE"
        )));
    }
    if flags.json {
        out::line(format_args!(
            "{}",
            serde_json::to_string_pretty(&counts).expect("names and numbers are JSON")
        ));
        return Ok(());
    }
    for (proxy, counts) in by_proxy(&counts) {
        if let Some(proxy) = proxy {
            out::line(format_args!("proxy {}:", proxy.escape_default()));
        }
        out::line(format_args!("{}", in_words(&counts).trim_end()));
    }
    Ok(())
}

/// What each cache of a process has counted: of several proxies each bears its name, which is taken out of the names.
fn by_proxy(counts: &Counts) -> BTreeMap<Option<&str>, Counts> {
    let mut found: BTreeMap<Option<&str>, Counts> = BTreeMap::new();
    for (name, count) in counts {
        let (proxy, name) =
            without_proxy(name).map_or((None, name.clone()), |(proxy, name)| (Some(proxy), name));
        found.entry(proxy).or_default().insert(name, *count);
    }
    found
}

/// The proxy that the labels of a name say, and the name without it.
fn without_proxy(name: &str) -> Option<(&str, String)> {
    let (before, rest) = name.split_once("proxy=\"")?;
    let (proxy, after) = rest.split_once('"')?;
    let name = format!("{before}{}", after.strip_prefix(',').unwrap_or(after));
    Some((proxy, name.replace(",}", "}").replace("{}", "")))
}

/// Where the device publishes what it counts, or, where the configuration has none, the proxy.
fn address(given: Option<SocketAddr>, sources: &Sources) -> Result<SocketAddr, Failure> {
    if let Some(address) = given {
        return Ok(address);
    }
    let settings = sources.read()?;
    let of_proxy = settings.proxy.all().iter().find_map(|proxy| proxy.metrics);
    required(settings.switch.metrics.or(of_proxy).as_ref(), "switch", "metrics")
}

fn in_words(counts: &Counts) -> String {
    let count = |name: &str| counts.get(name).copied().unwrap_or(0);
    let (hits, passed_on) = (count("hits_total"), reasons(counts, "misses_total"));
    let missed: u64 = passed_on.iter().map(|(_, count)| count).sum();
    let refused = reasons(counts, "refused_total");
    let reads = hits + missed;
    let share = if reads == 0 { 0.0 } else { 100.0 * hits as f64 / reads as f64 };
    let mut text = format!("answered: {hits} of {reads} reads ({share:.1} %)\n");
    text.push_str(&listed("passed on", &passed_on, true));
    if count("unoffered_total") > 0 {
        let _ = writeln!(
            text,
            "beside these, {} packets with reads that no cache answers: several commands in one (pipelines), of a connection \
             that waits for something, or of another command",
            count("unoffered_total")
        );
    }
    let refused = listed("replies not taken", &refused, false);
    let mut line = |said: fmt::Arguments<'_>| {
        let _ = writeln!(text, "{said}");
    };
    line(format_args!("kept now: {} values, {} bytes", count("entries"), count("bytes")));
    let (fills, overwrites) = (count("fills_total"), count("overwrites_total"));
    line(format_args!("  taken: {fills} of replies, {overwrites} of logged SETs"));
    line(format_args!("{}", refused.trim_end()));
    let dropped = format!(
        "{} because of a write, {} for room, {} times all of them",
        count("stale_total"),
        count("evicted_total"),
        count("resets_total")
    );
    line(format_args!("  given up: {dropped}"));
    line(format_args!("writes under way that are not logged: {}", count("under_way")));
    if let Some(is_told) = counts.get("tracking") {
        let told = if *is_told > 0 { "is told" } else { "is NOT told, and answers nothing" };
        let ms = |name: &str| count(name) as f64 / 1e3;
        line(format_args!(
            "beside other writers: it {told} of what they write; an answer may be older by {:.3} ms, and was by {:.3} ms at \
             most",
            ms("stale_bound_us"),
            ms("stale_max_us")
        ));
    }
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

/// A line for each reason: how often, its label, and what that is in words.
fn listed(what: &str, reasons: &[(&str, u64)], of_read: bool) -> String {
    let mut text = format!("  {what}: {}\n", reasons.iter().map(|(_, count)| count).sum::<u64>());
    for (reason, count) in reasons {
        let words = reason_in_words(reason, of_read).unwrap_or("a reason that this command does not know");
        let _ = writeln!(text, "    {count} {reason}: {words}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_shown_and_no_key_drives_the_terminal() {
        let listed = Listed::read("1 3 6b1b5b 12 - pending").expect("a line");
        assert_eq!(listed.in_words(), "k\\x1b[ of database 3: 12 bytes, until it is written, not stable yet");
        let listed = Listed::read("0 0 ff 12 250 persisted").expect("a line");
        assert_eq!(listed.in_words(), "\\xff: 12 bytes, 250 ms left");
        assert_eq!(
            (listed.json()["key_hex"].as_str(), listed.json()["left_ms"].as_u64()),
            (Some("ff"), Some(250))
        );
        let listed = Listed::read("0 0 6b 12 - persisted HGETALL").expect("a line");
        assert_eq!(listed.in_words(), "HGETALL k: 12 bytes, until it is written");
        for wrong in ["", "0 0 6 12 - persisted", "0 0 6b 12 -"] {
            assert_eq!(Listed::read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn of_several_proxies_each_has_counts_of_its_own() {
        let counts = [
            ("hits_total{proxy=\"carts\"}", 3),
            ("misses_total{proxy=\"carts\",reason=\"absent\"}", 1),
            ("hits_total{proxy=\"sess\"}", 5),
            ("misses_total{reason=\"absent\",proxy=\"sess\"}", 0),
        ];
        let counts: Counts = counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
        let found = by_proxy(&counts);
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [Some("carts"), Some("sess")]);
        assert!(in_words(&found[&Some("carts")]).starts_with("answered: 3 of 4 reads"), "{found:?}");
        assert!(in_words(&found[&Some("sess")]).starts_with("answered: 5 of 5 reads"), "{found:?}");
        let alone: Counts = [("hits_total".to_owned(), 2)].into_iter().collect();
        assert_eq!(by_proxy(&alone), BTreeMap::from([(None, alone.clone())]));
    }

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
            text.starts_with(
                "answered: 3 of 8 reads (37.5 %)\n  passed on: 5\n    4 under_way: a write of it is under way\n    1 absent: \
                 nothing is known of it\nkept now"
            ),
            "{text}"
        );
        assert!(
            text.contains("kept now: 1 values, 143 bytes\n  taken: 2 of replies, 0 of logged SETs\n"),
            "{text}"
        );
        assert!(
            text.contains("  replies not taken: 0\n") && !text.contains("OFF") && !text.contains("beside"),
            "{text}"
        );
        for (name, count) in
            [("tracking", 1), ("stale_bound_us", 10_000), ("stale_max_us", 9_500), ("unoffered_total", 7)]
        {
            counts.insert(name.to_owned(), count);
        }
        let text = in_words(&counts);
        assert!(
            text.contains("beside these, 7 packets") && text.contains("older by 10.000 ms, and was by 9.500"),
            "{text}"
        );
        counts.insert("off".to_owned(), 1);
        assert!(in_words(&counts).contains("it is OFF"), "{counts:?}");
        assert!(in_words(&Counts::new()).starts_with("answered: 0 of 0 reads (0.0 %)"));
    }
}
