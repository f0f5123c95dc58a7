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

/// What was seen of each way.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Seen {
    /// Redis alone, `appendfsync everysec`; absent where no Redis serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_everysec: Option<Methods>,
    /// Redis alone, `appendfsync always`; absent where no Redis serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_always: Option<Methods>,
    /// Behind the sidecars, answered by the server.
    pub without_remedy: Methods,
    /// Behind the sidecars, answered by the server once the device has it.
    pub covered: Methods,
    /// Behind the sidecars, SETs answered by the device.
    pub persist: Methods,
    /// SETs of many connections at a time.
    pub many: Many,
}

/// What many connections get, each with one SET at a time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Many {
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

/// The table of rates, each beside the first: Redis alone, where there is one.
pub(super) fn table_of_rates(many: &Many) -> String {
    let first = WAYS.iter().find_map(|(way, _)| many.ways.get(way)).map_or(0.0, |rate| rate.per_s);
    let mut text = format!(" {:<35}{:>11}{:>11}{:>11}{:>11}", "", "SETs/s", "beside", "SET P50", "SET P99");
    for (way, words) in WAYS {
        let Some(rate) = many.ways.get(way) else { continue };
        let beside = format!("{:.2}x", rate.per_s / first.max(1.0));
        let (p50, p99) = (micros(rate.p50_ns), micros(rate.p99_ns));
        write!(text, "\n {words:<35}{:>11.0}{beside:>11}{p50:>11}{p99:>11}", rate.per_s)
            .expect("writing to memory does not fail");
    }
    text
}

/// The ways by their names in the report, as the tables call them, in their order.
const WAYS: [(&str, &str); 5] = [
    (EVERYSEC, "Redis alone, everysec"),
    (ALWAYS, "Redis alone, always"),
    ("without_remedy", "both sidecars, without remedy"),
    (COVERED, "both sidecars, persist, covered"),
    (PERSIST, "both sidecars, persist, SET early"),
];
pub(super) const EVERYSEC: &str = "redis_everysec";
pub(super) const ALWAYS: &str = "redis_always";
pub(super) const COVERED: &str = "covered";
pub(super) const PERSIST: &str = "persist";

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
        Some(&seen.without_remedy),
        Some(&seen.covered),
        Some(&seen.persist),
    ];
    let ways = measured.into_iter().zip(WAYS.map(|(_, words)| words));
    let mut text = format!(" {:<35}", "");
    for title in ["SET P50", "SET P99", "GET P50", "GET P99"] {
        write!(text, "{title:>11}").expect("writing to memory does not fail");
    }
    for (methods, words) in ways {
        let Some(methods) = methods else { continue };
        write!(text, "\n {words:<35}").expect("writing to memory does not fail");
        for command in METHODS {
            let latency = methods.get(command.name());
            for time in [latency.map(|latency| latency.p50_ns), latency.map(|latency| latency.p99_ns)] {
                let shown = time.map_or_else(|| "-".into(), micros);
                write!(text, "{shown:>11}").expect("writing to memory does not fail");
            }
        }
    }
    text
}

/// A SET with the remedy beside Redis alone, the loss first.
pub(super) fn beside_redis(seen: &Seen) -> Option<String> {
    let p50 = |methods: &Methods| methods.get("SET").map(|latency| latency.p50_ns);
    let ours = p50(&seen.persist)?;
    let everysec = ratio(ours, p50(seen.redis_everysec.as_ref()?)?);
    let always = ratio(ours, p50(seen.redis_always.as_ref()?)?);
    Some(format!(
        "SET P50 with persist: {everysec} as Redis alone with everysec, where a power failure takes up to a second of \
         answered writes; {always} as Redis alone with always, where it takes none"
    ))
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
fn micros(nanos: f64) -> String {
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

    fn seen() -> Seen {
        Seen {
            redis_everysec: Some(of(47)),
            redis_always: Some(of(6_360)),
            without_remedy: of(228),
            covered: of(180),
            persist: of(111),
            many: Many {
                connections: 16,
                ways: [(EVERYSEC, 60_000.0), (ALWAYS, 4_000.0), (COVERED, 30_000.0), (PERSIST, 33_000.0)]
                    .map(|(way, per_s)| (way, Rate { per_s, p50_ns: 2e5, p99_ns: 1e6 }))
                    .into(),
            },
        }
    }

    #[test]
    fn rates_stand_beside_redis_alone() {
        let table = table_of_rates(&seen().many);
        let rows: Vec<&str> = table.lines().collect();
        assert_eq!(rows.len(), 5, "{table}");
        for (row, shown) in [(1, "1.00x"), (2, "0.07x"), (3, "0.50x"), (4, "0.55x")] {
            assert!(rows[row].contains(shown), "{table}");
        }
        assert!(rows[3].contains("covered") && rows[3].contains("200.0 us"), "{table}");
        assert!(rows.iter().all(|row| row.len() <= 80), "{table}");
        let of_kv = Many {
            connections: 16,
            ways: BTreeMap::from([(PERSIST, Rate { per_s: 5.0, p50_ns: 1.0, p99_ns: 2.0 })]),
        };
        assert!(table_of_rates(&of_kv).contains("1.00x"));
    }

    #[test]
    fn losses_come_first_and_are_called_losses() {
        let said = beside_redis(&seen()).expect("all were measured");
        assert!(said.contains("2.4x as long as Redis alone with everysec"), "{said}");
        assert!(said.contains("57.3x as fast as Redis alone with always"), "{said}");
        let table = table(&seen());
        let rows: Vec<&str> = table.lines().collect();
        assert!(rows[1].starts_with(" Redis alone, everysec") && rows[1].ends_with("80.0 us"), "{table}");
        assert!(
            rows[2].contains("6360 us") && rows[4].contains("covered") && rows[5].contains("early"),
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
        let seen = Seen { redis_everysec: None, redis_always: None, ..seen() };
        assert_eq!(beside_redis(&seen), None);
        assert_eq!(table(&seen).lines().count(), 4);
        let json = serde_json::to_value(&seen).expect("it is JSON");
        assert!(json.get("redis_everysec").is_none() && json["persist"]["SET"]["count"] == 9, "{json}");
    }
}
