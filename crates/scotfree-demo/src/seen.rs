//! What a client of Redis sees: the latencies of each way to a Redis, Redis alone first.
//!
//! Invariant: all of them are taken by the same client from the same load in turns, and what is slower is called
//! slower.

use scotfree_stage::load::LoadReport;
use scotfree_stage::stats::median;
use scotfree_stage::workload::Command;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Latencies by method.
pub type Methods = BTreeMap<&'static str, Latency>;

/// One method's latencies: medians over the turns.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Latency {
    /// Calls of all turns.
    pub count: u64,
    /// The median call.
    pub p50_ns: f64,
    /// 99 of 100 are at most this.
    pub p99_ns: f64,
}

/// What was seen of each way. Where no Redis serves, the ways to one are absent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Seen {
    /// Redis alone, `appendfsync everysec`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_everysec: Option<Methods>,
    /// Redis alone, `appendfsync always`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_always: Option<Methods>,
    /// Redis alone, `appendfsync everysec`, with two replicas: a SET with the WAIT 2 behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_wait2: Option<Methods>,
    /// Behind `scot proxy`, covered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Methods>,
    /// Behind the sidecars, answered by the server.
    pub without_remedy: Methods,
    /// Behind the sidecars, answered by the server once the device has it.
    pub covered: Methods,
    /// Behind the sidecars, SETs answered by the device.
    pub persist: Methods,
    /// SETs of one connection.
    pub one: Sets,
    /// SETs of many connections at a time.
    pub many: Sets,
}

/// What so many connections get, each with one SET at a time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sets {
    /// How many they are.
    pub connections: u32,
    /// By way.
    pub ways: BTreeMap<&'static str, Rate>,
}

/// A rate and its latencies: medians over the turns.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rate {
    /// Answers in a second.
    pub per_s: f64,
    /// The median call.
    pub p50_ns: f64,
    /// 99 of 100 are at most this.
    pub p99_ns: f64,
}

/// What the turns of one way come to where many connections ask; none if nothing was answered.
pub(super) fn rate(turns: &[LoadReport]) -> Option<Rate> {
    let set = latencies(turns).get(Command::Set.name()).copied()?;
    let per_s = median(&turns.iter().map(|turn| turn.requests_per_s).collect::<Vec<_>>())?;
    Some(Rate { per_s, p50_ns: set.p50_ns, p99_ns: set.p99_ns })
}

/// The table of SETs alone: of one connection, and of many.
pub(super) fn table_of_sets(seen: &Seen) -> String {
    let columns = [&seen.one, &seen.many];
    let mut text = format!(" {:<35}", "");
    for sets in columns {
        let plural = if sets.connections == 1 { "" } else { "s" };
        write!(text, "{:>22}", format!("{} connection{plural}", sets.connections)).expect(TO_MEMORY);
    }
    write!(text, "\n {:<35}{:>11}{:>11}{:>11}{:>11}", "", "SET P50", "SETs/s", "SET P50", "SETs/s")
        .expect(TO_MEMORY);
    for (way, words) in WAYS {
        let rates = columns.map(|sets| sets.ways.get(way));
        if rates == [None, None] {
            continue;
        }
        write!(text, "\n {words:<35}").expect(TO_MEMORY);
        for rate in rates {
            let p50 = rate.map_or_else(|| "-".into(), |rate| micros(rate.p50_ns));
            let per_s = rate.map_or_else(|| "-".into(), |rate| format!("{:.0}", rate.per_s));
            write!(text, "{p50:>11}{per_s:>11}").expect(TO_MEMORY);
        }
    }
    text
}

/// The ways by their names in the report, as the tables call them, in their order.
const WAYS: [(&str, &str); 7] = [
    (EVERYSEC, "Redis alone, everysec"),
    (ALWAYS, "Redis alone, always"),
    (WAIT2, "Redis alone, 2 replicas, WAIT 2"),
    (PROXY, "scot proxy, covered"),
    (WITHOUT, "both sidecars, without remedy"),
    (COVERED, "both sidecars, persist, covered"),
    (PERSIST, "both sidecars, persist, SET early"),
];
pub(super) const EVERYSEC: &str = "redis_everysec";
pub(super) const ALWAYS: &str = "redis_always";
pub(super) const WAIT2: &str = "redis_wait2";
pub(super) const PROXY: &str = "proxy";
pub(super) const WITHOUT: &str = "without_remedy";
pub(super) const COVERED: &str = "covered";
pub(super) const PERSIST: &str = "persist";
/// What is ours, and what it is compared with, in words.
const OURS: [(&str, &str); 3] = [(COVERED, "covered"), (PERSIST, "early"), (PROXY, "proxy")];
const RIVALS: [(&str, &str); 3] = [(EVERYSEC, "everysec"), (ALWAYS, "always"), (WAIT2, "WAIT 2")];
/// What differs by less is called the same: two runs do.
const SAME_WITHIN: f64 = 0.1;
const TO_MEMORY: &str = "writing to memory does not fail";

/// The methods of the load.
const METHODS: [Command; 2] = [Command::Set, Command::Get];

/// What the turns of one way come to.
pub(super) fn latencies(turns: &[LoadReport]) -> Methods {
    let of = |command: Command| {
        let summaries: Vec<_> = turns.iter().filter_map(|turn| turn.commands.get(&command)).collect();
        let over_turns = |times: Vec<u64>| median(&times.iter().map(|time| *time as f64).collect::<Vec<_>>());
        let latency = Latency {
            count: summaries.iter().map(|summary| summary.count).sum(),
            p50_ns: over_turns(summaries.iter().map(|summary| summary.p50_ns).collect())?,
            p99_ns: over_turns(summaries.iter().map(|summary| summary.p99_ns).collect())?,
        };
        Some((command.name(), latency))
    };
    METHODS.into_iter().filter_map(of).collect()
}

/// The table, and what an answered SET survives.
pub(super) fn table(seen: &Seen) -> String {
    let measured = [
        seen.redis_everysec.as_ref(),
        seen.redis_always.as_ref(),
        seen.redis_wait2.as_ref(),
        seen.proxy.as_ref(),
        Some(&seen.without_remedy),
        Some(&seen.covered),
        Some(&seen.persist),
    ];
    let ways = measured.into_iter().zip(WAYS.map(|(_, words)| words));
    let mut text = format!(" {:<35}", "");
    for title in ["SET P50", "SET P99", "GET P50", "GET P99"] {
        write!(text, "{title:>11}").expect(TO_MEMORY);
    }
    for (methods, words) in ways {
        let Some(methods) = methods else { continue };
        write!(text, "\n {words:<35}").expect(TO_MEMORY);
        for command in METHODS {
            let latency = methods.get(command.name());
            for time in [latency.map(|latency| latency.p50_ns), latency.map(|latency| latency.p99_ns)] {
                let shown = time.map_or_else(|| "-".into(), micros);
                write!(text, "{shown:>11}").expect(TO_MEMORY);
            }
        }
    }
    text
}

/// Our ways beside Redis alone, the losses first; nothing where there was no Redis.
pub(super) fn beside_redis(seen: &Seen) -> Vec<String> {
    let comparisons: Vec<Comparison> = [&seen.one, &seen.many].into_iter().flat_map(compare).collect();
    let verdicts = [
        (Verdict::Slower, "slower than Redis alone:"),
        (Verdict::Same, "about as fast, within a tenth:"),
        (Verdict::Faster, "faster:"),
    ];
    verdicts.iter().flat_map(|(verdict, title)| lines_of(&comparisons, *verdict, title)).collect()
}

/// One of our ways beside one of Redis alone.
struct Comparison {
    connections: u32,
    rival: &'static str,
    way: &'static str,
    /// How many times as fast: by the median call of one connection, by the rate of many.
    times: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Slower,
    Same,
    Faster,
}

impl Comparison {
    fn verdict(&self) -> Verdict {
        if self.times < 1.0 - SAME_WITHIN {
            Verdict::Slower
        } else if self.times <= 1.0 + SAME_WITHIN {
            Verdict::Same
        } else {
            Verdict::Faster
        }
    }
}

fn compare(sets: &Sets) -> Vec<Comparison> {
    let speed = |rate: &Rate| if sets.connections == 1 { 1e9 / rate.p50_ns.max(1.0) } else { rate.per_s };
    let pairs = RIVALS.iter().flat_map(|rival| OURS.iter().map(move |ours| (rival, ours)));
    let compared = pairs.filter_map(|((rival, rival_words), (way, words))| {
        let (theirs, ours) = (sets.ways.get(rival)?, sets.ways.get(way)?);
        let times = speed(ours) / speed(theirs).max(f64::MIN_POSITIVE);
        Some(Comparison { connections: sets.connections, rival: rival_words, way: words, times })
    });
    compared.collect()
}

/// A title, and a line for each load and rival; none of them where nothing came out so.
fn lines_of(comparisons: &[Comparison], verdict: Verdict, title: &str) -> Vec<String> {
    let such: Vec<&Comparison> = comparisons.iter().filter(|one| one.verdict() == verdict).collect();
    let lines = such.chunk_by(|a, b| (a.connections, a.rival) == (b.connections, b.rival)).map(line_of);
    let head = (!such.is_empty()).then(|| title.to_owned());
    head.into_iter().chain(lines).collect()
}

fn line_of(of_one_rival: &[&Comparison]) -> String {
    let Comparison { connections, rival, .. } = of_one_rival[0];
    let what = match connections {
        1 => "SET P50, 1 connection".to_owned(),
        many => format!("SETs/s, {many} connections"),
    };
    let ways = of_one_rival.iter().map(|one| format!("{} {}", one.way, times(one.times)));
    format!(" {what}, beside {rival}: {}", ways.collect::<Vec<_>>().join(", "))
}

fn times(ratio: f64) -> String {
    if ratio < 10.0 {
        format!("{ratio:.2}x")
    } else {
        format!("{ratio:.1}x")
    }
}

/// A SET with the remedy beside the same path without it, by the client's own clock, as in the table.
pub(super) fn gain(seen: &Seen) -> Option<String> {
    let p50 = |methods: &Methods| methods.get("SET").map(|latency| latency.p50_ns);
    let (without, with) = (p50(&seen.without_remedy)?, p50(&seen.persist)?);
    let (ratio, shown) = (ratio(with, without), micros(with));
    Some(format!(
        "SET P50 as the client sees it: {} without the remedy, {shown} with it ({ratio})",
        micros(without)
    ))
}

fn ratio(ours: f64, theirs: f64) -> String {
    if ours > theirs {
        format!("{:.1}x as long", ours / theirs.max(1.0))
    } else {
        format!("{:.1}x as fast", theirs / ours.max(1.0))
    }
}

/// Microseconds with as many decimals as mean something.
pub(super) fn micros(nanos: f64) -> String {
    let micros = nanos / 1_000.0;
    if micros < 1_000.0 {
        format!("{micros:.1} us")
    } else {
        format!("{micros:.0} us")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(set_us: u64) -> Methods {
        let latency = |us: u64| Latency { count: 9, p50_ns: us as f64 * 1e3, p99_ns: us as f64 * 2e3 };
        Methods::from([("SET", latency(set_us)), ("GET", latency(40))])
    }

    fn sets(connections: u32, ways: &[(&'static str, f64)]) -> Sets {
        let rate = |per_s: f64| Rate { per_s, p50_ns: 1e9 / per_s * f64::from(connections), p99_ns: 1e7 };
        Sets { connections, ways: ways.iter().map(|(way, per_s)| (*way, rate(*per_s))).collect() }
    }

    fn seen() -> Seen {
        let one =
            [(EVERYSEC, 2e4), (ALWAYS, 200.0), (WAIT2, 5e3), (PROXY, 5e3), (COVERED, 4e3), (PERSIST, 8e3)];
        let many =
            [(EVERYSEC, 6e4), (ALWAYS, 4e3), (WAIT2, 2e4), (PROXY, 1.9e4), (COVERED, 3e4), (PERSIST, 3.3e4)];
        Seen {
            redis_everysec: Some(of(47)),
            redis_always: Some(of(6_360)),
            redis_wait2: Some(of(190)),
            proxy: Some(of(150)),
            without_remedy: of(228),
            covered: of(180),
            persist: of(111),
            one: sets(1, &one),
            many: sets(16, &many),
        }
    }

    fn of_kv() -> Seen {
        let ways = [(COVERED, 3e4), (PERSIST, 3.3e4)];
        Seen {
            redis_everysec: None,
            redis_always: None,
            redis_wait2: None,
            proxy: None,
            one: sets(1, &ways),
            many: sets(16, &ways),
            ..seen()
        }
    }

    #[test]
    fn sets_of_one_and_of_many_stand_beside_each_other() {
        let table = table_of_sets(&seen());
        let rows: Vec<&str> = table.lines().collect();
        assert_eq!(rows.len(), 8, "{table}");
        assert!(rows[0].ends_with("1 connection        16 connections"), "{table}");
        for (row, shown) in [(2, "60000"), (3, "5000 us"), (4, "WAIT 2"), (5, "19000"), (6, "533.3 us")] {
            assert!(rows[row].contains(shown), "{table}");
        }
        assert!(rows[3].starts_with(" Redis alone, always") && rows[6].contains("covered"), "{table}");
        assert!(rows.iter().all(|row| row.len() <= 80), "{table}");
        assert_eq!(table_of_sets(&of_kv()).lines().count(), 4);
    }

    #[test]
    fn losses_come_first_and_are_called_losses() {
        assert_eq!(
            beside_redis(&seen()),
            [
                "slower than Redis alone:",
                " SET P50, 1 connection, beside everysec: covered 0.20x, early 0.40x, proxy 0.25x",
                " SET P50, 1 connection, beside WAIT 2: covered 0.80x",
                " SETs/s, 16 connections, beside everysec: covered 0.50x, early 0.55x, proxy 0.32x",
                "about as fast, within a tenth:",
                " SET P50, 1 connection, beside WAIT 2: proxy 1.00x",
                " SETs/s, 16 connections, beside WAIT 2: proxy 0.95x",
                "faster:",
                " SET P50, 1 connection, beside always: covered 20.0x, early 40.0x, proxy 25.0x",
                " SET P50, 1 connection, beside WAIT 2: early 1.60x",
                " SETs/s, 16 connections, beside always: covered 7.50x, early 8.25x, proxy 4.75x",
                " SETs/s, 16 connections, beside WAIT 2: covered 1.50x, early 1.65x",
            ]
        );
        let table = table(&seen());
        let rows: Vec<&str> = table.lines().collect();
        assert!(rows[1].starts_with(" Redis alone, everysec") && rows[1].ends_with("80.0 us"), "{table}");
        assert!(
            rows[2].contains("6360 us") && rows[6].contains("covered") && rows[7].contains("early"),
            "{table}"
        );
        assert!(rows.iter().all(|row| row.len() <= 80), "{table}");
    }

    #[test]
    fn what_the_remedy_gains_is_what_the_table_shows() {
        let said = gain(&seen()).expect("both were measured");
        assert_eq!(
            said,
            "SET P50 as the client sees it: 228.0 us without the remedy, 111.0 us with it (2.1x as fast)"
        );
        let table = table(&seen());
        for shown in ["228.0 us", "111.0 us"] {
            assert!(table.contains(shown), "{table}");
        }
        let slower = Seen { persist: of(300), ..seen() };
        assert!(gain(&slower).is_some_and(|said| said.ends_with("(1.3x as long)")));
        assert_eq!(gain(&Seen { persist: Methods::new(), ..seen() }), None);
    }

    #[test]
    fn without_a_redis_nothing_is_compared_with_it() {
        let seen = of_kv();
        assert_eq!(beside_redis(&seen), Vec::<String>::new());
        assert_eq!(table(&seen).lines().count(), 4);
        let json = serde_json::to_value(&seen).expect("it is JSON");
        assert!(json.get("redis_everysec").is_none() && json["persist"]["SET"]["count"] == 9, "{json}");
    }
}
