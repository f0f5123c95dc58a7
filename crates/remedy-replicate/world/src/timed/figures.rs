//! What is asked of simulated time: a setup by its settings, and the overview.
//!
//! Invariant: every number comes from [`measure`]; none is stated here.

use crate::scenario::Protocol;
use crate::timed::{measure, quantile, Costs, Outcome, Setup};
use scotfree_core::Nanos;
use scotfree_sim::Timing;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::str::FromStr;

/// Groups in simulated time, by their settings.
#[derive(Debug)]
pub struct GroupTiming;

impl Timing for GroupTiming {
    fn measure(&self, settings: &str, seed: u64) -> Result<BTreeMap<String, f64>, String> {
        let setup = parse(settings, seed)?;
        Ok(numbers(&measure(&setup)))
    }

    fn overview(&self, seed: u64) -> String {
        overview(&default_setup(seed))
    }
}

/// One way between two hosts of a rack: a switch and two network cards, without the kernel's share, which is among what
/// cores spend.
const ONE_WAY: Nanos = Nanos::from_micros(5);

/// A write at a time, of a group of three, of any member.
pub(super) fn default_setup(seed: u64) -> Setup {
    Setup {
        protocol: Protocol::Craq,
        member_count: 3,
        client_count: 1,
        write_percent: 100,
        reads_to: None,
        writes_to: None,
        key_count: 10_000,
        value_bytes: 100,
        one_way: ONE_WAY,
        client_one_way: ONE_WAY,
        costs: Costs::MEASURED,
        request_count: 10_000,
        warmup_count: 1_000,
        seed,
    }
}

const KNOWN: &str =
    "protocol=craq|chain|hermes, members, clients, writes (of a hundred requests), reads-to and \
                     writes-to (a member's number), keys, value-bytes, one-way-ns, client-one-way-ns, \
                     costs-percent (of what was measured), requests, warmup";

fn parse(settings: &str, seed: u64) -> Result<Setup, String> {
    let mut setup = default_setup(seed);
    for setting in settings.split(',').filter(|setting| !setting.is_empty()) {
        let pair = setting.split_once('=');
        let (name, value) = pair.ok_or_else(|| format!("`{setting}` has no value; known are {KNOWN}"))?;
        set(&mut setup, name, value)?;
    }
    check(&setup)?;
    Ok(setup)
}

fn set(setup: &mut Setup, name: &str, value: &str) -> Result<(), String> {
    match name {
        "protocol" => setup.protocol = protocol(value)?,
        "members" => setup.member_count = number(name, value)?,
        "clients" => setup.client_count = number(name, value)?,
        "writes" => setup.write_percent = number(name, value)?,
        "reads-to" => setup.reads_to = Some(place(name, value)?),
        "writes-to" => setup.writes_to = Some(place(name, value)?),
        "keys" => setup.key_count = number(name, value)?,
        "value-bytes" => setup.value_bytes = number(name, value)?,
        "one-way-ns" => setup.one_way = Nanos(number(name, value)?),
        "client-one-way-ns" => setup.client_one_way = Nanos(number(name, value)?),
        "costs-percent" => setup.costs = costs(name, value)?,
        "requests" => setup.request_count = number(name, value)?,
        "warmup" => setup.warmup_count = number(name, value)?,
        _ => return Err(format!("`{name}` is no setting; known are {KNOWN}")),
    }
    Ok(())
}

/// How many members and clients, and requests, there may be.
const MEMBERS_MAX: usize = 8;
const CLIENTS_MAX: usize = 4_096;
const REQUESTS_MAX: u64 = 10_000_000;
/// Costs are at most so many hundredths of those measured.
const COSTS_PERCENT_MAX: u64 = 10_000;

fn check(setup: &Setup) -> Result<(), String> {
    let are_members =
        [setup.reads_to, setup.writes_to].into_iter().flatten().all(|to| to < setup.member_count);
    let is_within = (1..=MEMBERS_MAX).contains(&setup.member_count)
        && (1..=CLIENTS_MAX).contains(&setup.client_count)
        && (1..=REQUESTS_MAX).contains(&setup.request_count)
        && setup.warmup_count <= REQUESTS_MAX
        && setup.write_percent <= 100
        && setup.key_count > 0
        && setup.value_bytes <= 1_000
        && setup.one_way.max(setup.client_one_way) <= Nanos::from_millis(1);
    if are_members && is_within {
        return Ok(());
    }
    Err(format!(
        "allowed are 1 to {MEMBERS_MAX} members, 1 to {CLIENTS_MAX} clients, up to {REQUESTS_MAX} requests, 0 to 100 \
         writes, values up to 1000 bytes, ways up to a millisecond, and members that there are"
    ))
}

fn number<Number: FromStr>(name: &str, value: &str) -> Result<Number, String> {
    value.parse().map_err(|_| format!("`{value}` is no number of {name}"))
}

fn place(name: &str, value: &str) -> Result<usize, String> {
    number::<usize>(name, value)?.checked_sub(1).ok_or_else(|| format!("{name}: members are counted from 1"))
}

fn protocol(value: &str) -> Result<Protocol, String> {
    let found = ALL.into_iter().find(|protocol| protocol.name() == value);
    found.ok_or_else(|| format!("there is no protocol `{value}`; known are {KNOWN}"))
}

fn costs(name: &str, value: &str) -> Result<Costs, String> {
    let percent: u64 = number(name, value)?;
    if percent > COSTS_PERCENT_MAX {
        return Err(format!("{name} is at most {COSTS_PERCENT_MAX}"));
    }
    Ok(Costs::MEASURED.percent(percent))
}

fn micros(span: Nanos) -> f64 {
    span.0 as f64 / 1e3
}

fn numbers(outcome: &Outcome) -> BTreeMap<String, f64> {
    let all = outcome.all();
    let count = all.len() as f64;
    let mut numbers = BTreeMap::from([
        ("requests".to_owned(), count),
        ("requests_per_s".to_owned(), outcome.per_second()),
        ("mean_us".to_owned(), all.iter().map(|latency| micros(*latency)).sum::<f64>() / count),
        ("datagrams_per_request".to_owned(), outcome.datagrams as f64 / count),
        ("resent".to_owned(), outcome.resent as f64),
    ]);
    for (kind, latencies) in [("", &all), ("read_", &outcome.reads), ("update_", &outcome.writes)] {
        for (name, per_mille) in [("p50_us", 500), ("p99_us", 990)] {
            if let Some(latency) = quantile(latencies, per_mille) {
                numbers.insert(format!("{kind}{name}"), micros(latency));
            }
        }
    }
    for (place, busy) in outcome.busy.iter().enumerate() {
        let share = busy.0 as f64 / outcome.elapsed.0.max(1) as f64;
        numbers.insert(format!("busy_share_{}", place + 1), share);
    }
    let busy = outcome.busy.iter().map(|busy| micros(*busy)).sum::<f64>();
    numbers.insert("all_us_per_request".to_owned(), busy / count);
    numbers
}

// ---- the overview

const ALL: [Protocol; 3] = [Protocol::Chain, Protocol::Craq, Protocol::Hermes];

fn overview(base: &Setup) -> String {
    [reads(base), writes(base), shares(base)].join("\n")
}

/// Requests under way at each member that is asked.
const READS_PER_MEMBER: usize = 64;

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("a text takes all");
}

/// Reads of three members beside those of the tail alone.
fn reads(base: &Setup) -> String {
    let mut text = "Reads of three members, 64 under way at each that is asked, a second (times those of the tail alone)\n\
                    one way us        tail alone              craq            hermes\n"
        .to_owned();
    for one_way_us in [1, 5, 20] {
        let per_second = |protocol, reads_to: Option<usize>| {
            let asked = if reads_to.is_some() { 1 } else { 3 };
            let one_way = Nanos::from_micros(one_way_us);
            let setup = Setup {
                protocol,
                reads_to,
                client_count: READS_PER_MEMBER * asked,
                write_percent: 0,
                one_way,
                client_one_way: one_way,
                ..base.clone()
            };
            measure(&setup).per_second()
        };
        let tail = per_second(Protocol::Chain, Some(2));
        let (craq, hermes) = (per_second(Protocol::Craq, None), per_second(Protocol::Hermes, None));
        line(
            &mut text,
            format_args!(
                "{one_way_us:>10} {tail:>17.0} {craq:>10.0} ({:.2}) {hermes:>10.0} ({:.2})",
                craq / tail,
                hermes / tail
            ),
        );
    }
    text
}

/// A write of Hermes beside one of a chain.
fn writes(base: &Setup) -> String {
    let mut text = "A write of any of three members, one at a time, p50 in us, and Hermes over a chain\n\
                    client is              costs  one way us     chain      craq    hermes     ratio\n"
        .to_owned();
    for (client, is_beside) in [("at a host of its own", false), ("beside its member", true)] {
        for percent in [0, 50, 100, 200] {
            for one_way_us in [1, 5, 20] {
                let one_way = Nanos::from_micros(one_way_us);
                let client_one_way = if is_beside { Nanos(0) } else { one_way };
                let costs = Costs::MEASURED.percent(percent);
                let [chain, craq, hermes] = ALL.map(|protocol| {
                    p50_of_writes(&Setup { protocol, one_way, client_one_way, costs, ..base.clone() })
                });
                let ratio = hermes / chain;
                line(&mut text, format_args!(
                    "{client:<20} {percent:>5} % {one_way_us:>11} {chain:>9.2} {craq:>9.2} {hermes:>9.2} {ratio:>9.3}"
                ));
            }
        }
    }
    text
}

fn p50_of_writes(setup: &Setup) -> f64 {
    quantile(&measure(setup).writes, 500).map_or(0.0, micros)
}

/// By how many members there are and how many of the requests are writes.
fn shares(base: &Setup) -> String {
    let mut text = "16 under way, of any member: p50 us, p99 us, requests a second, by members and writes of a hundred\n\
                    members writes                     chain                      craq                    hermes\n"
        .to_owned();
    for member_count in 1..=4 {
        for write_percent in [0, 5, 20, 50, 100] {
            let cell = |protocol| {
                let setup = Setup { protocol, member_count, write_percent, client_count: 16, ..base.clone() };
                let outcome = measure(&setup);
                let all = outcome.all();
                let [p50, p99] = [500, 990].map(|per_mille| quantile(&all, per_mille).map_or(0.0, micros));
                format!("{p50:>8.1} {p99:>8.1} {:>8.0}", outcome.per_second())
            };
            let [chain, craq, hermes] = ALL.map(cell);
            line(&mut text, format_args!("{member_count:>7} {write_percent:>6} {chain} {craq} {hermes}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_what_is_none_is_refused_with_those_that_there_are() {
        let setup = parse("protocol=hermes,members=4,writes=20,reads-to=4,costs-percent=0", 7)
            .expect("all are known");
        assert_eq!((setup.protocol, setup.member_count, setup.write_percent), (Protocol::Hermes, 4, 20));
        assert_eq!(
            (setup.reads_to, setup.writes_to, setup.costs, setup.seed),
            (Some(3), None, Costs::NONE, 7)
        );
        for (settings, word) in [
            ("member=3", "members"),
            ("members", "no value"),
            ("members=x", "no number"),
            ("members=0", "1 to 8"),
            ("members=9", "1 to 8"),
            ("members=2,reads-to=3", "members that there are"),
            ("reads-to=0", "from 1"),
            ("protocol=raft", "hermes"),
            ("costs-percent=some", "no number"),
            ("writes=101", "0 to 100"),
        ] {
            let error = parse(settings, 1).expect_err(settings);
            assert!(error.contains(word), "{settings}: {error}");
        }
        let most = format!("members={MEMBERS_MAX},clients={CLIENTS_MAX},requests={REQUESTS_MAX}");
        assert!(parse(&most, 1).is_ok());
        assert!(parse(&format!("clients={}", CLIENTS_MAX + 1), 1).is_err());
        assert!(parse(&format!("costs-percent={}", COSTS_PERCENT_MAX + 1), 1).is_err());
        assert!(parse(&format!("requests={}", REQUESTS_MAX + 1), 1).is_err());
    }

    #[test]
    fn the_overview_has_a_number_in_every_place() {
        let text = overview(&Setup { request_count: 20, warmup_count: 200, ..default_setup(1) });
        assert_eq!(text.lines().count(), (2 + 3) + 1 + (2 + 24) + 1 + (2 + 20), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf") && !text.contains(" 0.00"), "{text}");
    }

    #[test]
    fn numbers_are_of_both_kinds_and_of_every_member() {
        let numbers =
            GroupTiming.measure("writes=50,clients=4,requests=400,warmup=0", 1).expect("all are known");
        assert!((numbers["requests"] - 400.0).abs() < 1e-9);
        for name in ["p50_us", "read_p99_us", "update_p50_us", "requests_per_s", "busy_share_3"] {
            assert!(numbers[name] > 0.0, "{name}");
        }
        assert!(!numbers.contains_key("busy_share_4"));
    }
}
