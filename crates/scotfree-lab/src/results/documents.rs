//! The tables that documents have of the results: all of them in docs/results.md, those beside Redis alone in README.
//!
//! Invariant: only what stands between a table's markers is written, and every number there is a result's. A
//! row whose claim is not there is left out and named.

use super::{cell, line, number, render_table, Claim, ExperimentResult};
use scotfree_stage::trouble::Trouble;
use std::fs;
use std::path::Path;

const RESULTS: Markers = Markers("<!-- results -->", "<!-- /results -->");
const BESIDE_REDIS: Markers = Markers("<!-- beside redis -->", "<!-- /beside redis -->");

/// The lines before and behind a table.
#[derive(Debug, Clone, Copy)]
struct Markers(&'static str, &'static str);

/// What README says of a claim.
struct Row {
    words: &'static str,
    experiment: &'static str,
    claim: &'static str,
}

/// What somebody loses and gains who has a Redis: losses first.
const ROWS: [Row; 11] = [
    Row {
        words: "`everysec` over a cable, 1 connection: a covered SET takes longer by, p50",
        experiment: "sidecar-overhead",
        claim: "the same over a cable without the device, p50",
    },
    Row {
        words: "the same where daemons are told to sleep whenever nothing is there (`spin_us = 0`); Redis through the device's bridge",
        experiment: "sidecar-overhead-asleep",
        claim: "asleep: sidecars and device add to a SET at one connection, over direct access through the same bridge, p50",
    },
    Row {
        words: "`everysec` through the device's bridge, 16 connections: SETs per second, covered",
        experiment: "kernel-sidecars",
        claim: "SETs covered by a device (ram:1, kernel plane), 16 connections: rate over a Redis with everysec alone, through the same bridge",
    },
    Row {
        words: "the same, early",
        experiment: "kernel-sidecars",
        claim: "SETs answered early, 16 connections: rate over a Redis with everysec alone",
    },
    Row {
        words: "`always`, 1 connection: SET early, on the device's disk when it is answered, p50",
        experiment: "kernel-redis-always",
        claim: "the same at equal durability (disk, kernel plane), p50",
    },
    Row {
        words: "`always`, TPC-C, requests sent together where they can be: transactions per second",
        experiment: "tpcc",
        claim: "TPC-C, 100 % updates, requests sent together where they can be: transactions per second behind the kernel plane (ram:1) over called directly",
    },
    Row {
        words: "`always`, TPC-C, each request behind the reply to the one before: transactions per second",
        experiment: "tpcc",
        claim: "TPC-C, 100 % updates: transactions per second behind the kernel plane (ram:1) over called directly",
    },
    Row {
        words: "two replicas and `WAIT 2` behind the same devices, 16 connections: SETs per second, covered by two devices",
        experiment: "ram2-replication",
        claim: "the same, 16 connections: SETs per second",
    },
    Row {
        words: "`always`, 4 connections, a quarter SETs and the rest GETs: calls per second, early, in the device's memory",
        experiment: "redis-mixes",
        claim: "Redis behind the kernel plane (ram:1), 25 % SETs: throughput over Redis with appendfsync always called directly",
    },
    Row {
        words: "`always`, 4 connections: SETs per second, early, in the device's memory when they are answered",
        experiment: "redis-mixes",
        claim: "Redis behind the kernel plane (ram:1), 100 % SETs: throughput over Redis with appendfsync always called directly",
    },
    Row {
        words: "`always`, 1 connection: SET early, in the device's memory when it is answered, p50",
        experiment: "kernel-redis-always",
        claim: "SET of 100 B: Redis with appendfsync always called directly, over device acknowledgement in memory (ram:1, kernel plane), p50",
    },
];

/// The kills and power failures whose sum stands below README's table.
const CUTS: &str = "kill-rounds-cut";

/// Writes the tables of README.md and docs/results.md; returns what it had to say of each.
pub fn update_documents(repository: &Path, results: &[ExperimentResult]) -> Result<Vec<String>, Trouble> {
    let (beside_redis, missing) = render_beside_redis(results);
    let tables =
        [("docs/results.md", RESULTS, render_table(results)), ("README.md", BESIDE_REDIS, beside_redis)];
    let mut said: Vec<String> = missing;
    for (name, markers, table) in tables {
        let file = repository.join(name);
        let (old, new) = with_table(&file, markers, &table)?;
        if old != new {
            fs::write(&file, &new).map_err(|error| Trouble::file("write", &file, &error))?;
        }
        let state = if old == new { "was up to date" } else { "is updated" };
        said.push(format!("{} {state}", file.display()));
    }
    Ok(said)
}

/// README's table, and which rows it could not have.
fn render_beside_redis(results: &[ExperimentResult]) -> (String, Vec<String>) {
    let (mut rows, mut missing) = (Vec::new(), Vec::new());
    for row in &ROWS {
        match claim_of(results, row.experiment, row.claim) {
            Some(claim) => rows.push(render_row(row, claim)),
            None => {
                missing.push(format!("README has no row of `{}`: no claim “{}”", row.experiment, row.claim));
            }
        }
    }
    let mut text = String::from(
        "| beside Redis alone | with Scotfree (above 1 x is better) | spread | |\n|---|---|---|---|\n",
    );
    for row in &rows {
        line(&mut text, row);
    }
    if let Some(sentence) = sentence_on_cuts(results) {
        line(&mut text, "");
        line(&mut text, &sentence);
    }
    (text, missing)
}

fn claim_of<'a>(results: &'a [ExperimentResult], experiment: &str, words: &str) -> Option<&'a Claim> {
    let result = results.iter().find(|result| result.experiment == experiment)?;
    result.claims.iter().find(|claim| claim.claim == words)
}

fn render_row(row: &Row, claim: &Claim) -> String {
    let Claim { value, unit, spread, .. } = claim;
    // A factor above one is a gain in all rows; what is no factor is a time that is added.
    let verdict = match unit.as_str() {
        "x" if spread.min > 1.0 => "faster",
        "x" if spread.max >= 1.0 => "about as fast",
        _ => "**slower**",
    };
    let cells = [
        format!("{} (`{}`)", cell(row.words), row.experiment),
        format!("{} {}", number(*value), cell(unit)),
        format!("{} .. {}", number(spread.min), number(spread.max)),
        verdict.to_owned(),
    ];
    format!("| {} |", cells.join(" | "))
}

fn sentence_on_cuts(results: &[ExperimentResult]) -> Option<String> {
    let value = |words: &str| claim_of(results, CUTS, words).map(|claim| claim.value as u64);
    let (rounds, acknowledged) = (value("rounds")?, value("updates acknowledged")?);
    let lost = value("acknowledged updates lost")?;
    Some(format!(
        "Lost of {} acknowledged updates in {rounds} rounds of kills of server, device's daemon or client, most of them \
         with the append-only file cut back to its last sync (`{CUTS}`): **{lost}**. Only the device's own host never lost its power.",
        with_commas(acknowledged)
    ))
}

/// Digits in groups of three.
fn with_commas(count: u64) -> String {
    let digits = count.to_string();
    let groups = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| group.iter().map(|digit| char::from(*digit)).collect());
    groups.collect::<Vec<String>>().join(",")
}

/// A file's text as it is and as it should be.
fn with_table(file: &Path, markers: Markers, table: &str) -> Result<(String, String), Trouble> {
    let old = fs::read_to_string(file).map_err(|error| Trouble::file("read", file, &error))?;
    let Markers(begins, ends) = markers;
    let begin = old.find(begins).map(|at| at + begins.len());
    let end = begin.and_then(|begin| old[begin..].find(ends).map(|at| (begin, begin + at)));
    let Some((begin, end)) = end else {
        return Err(Trouble::new(
            format!("find the table of results in {}", file.display()),
            "the markers are missing",
            format!("add the lines `{begins}` and `{ends}` where the table belongs"),
        ));
    };
    let new = format!("{}\n{table}{}", &old[..begin], &old[end..]);
    Ok((old, new))
}

#[cfg(test)]
mod tests {
    use super::super::read_all;
    use super::super::tests::{result, scratch};
    use super::*;
    use scotfree_stage::scratch::Scratch;
    use scotfree_stage::stats::Spread;
    use std::path::PathBuf;

    /// A repository with both documents.
    fn documents() -> Scratch {
        let folder = scratch();
        fs::create_dir(folder.path().join("docs")).expect("it can be made");
        for (name, Markers(begins, ends)) in [("docs/results.md", RESULTS), ("README.md", BESIDE_REDIS)] {
            fs::write(folder.path().join(name), format!("before\n{begins}\nold\n{ends}\nafter\n"))
                .expect("it can be written");
        }
        folder
    }

    fn of_row(row: &Row, value: f64, unit: &str) -> ExperimentResult {
        let mut result = result();
        row.experiment.clone_into(&mut result.experiment);
        let claim = &mut result.claims[0];
        (claim.claim, claim.value, claim.unit) = (row.claim.into(), value, unit.into());
        claim.spread = Spread { min: value, q1: value, median: value, q3: value, max: value };
        result
    }

    #[test]
    fn documents_are_updated_between_their_markers_only() {
        let folder = documents();
        let said = update_documents(folder.path(), &[result()]).expect("both are there");
        assert_eq!(said.iter().filter(|line| line.ends_with(" is updated")).count(), 2, "{said:?}");
        let said = update_documents(folder.path(), &[result()]).expect("both are there");
        assert_eq!(said.iter().filter(|line| line.ends_with(" was up to date")).count(), 2, "{said:?}");
        let text = fs::read_to_string(folder.path().join("docs/results.md")).expect("it is there");
        assert!(
            text.starts_with("before\n<!-- results -->\n| claim")
                && text.ends_with("<!-- /results -->\nafter\n")
        );
        fs::write(folder.path().join("README.md"), "no markers").expect("it can be written");
        let error = update_documents(folder.path(), &[]).expect_err("no markers").to_string();
        assert!(error.contains(BESIDE_REDIS.0), "{error}");
    }

    #[test]
    fn losses_are_called_losses() {
        let [added, _, throughput, ..] = &ROWS;
        for (row, value, unit, verdict) in [
            (added, 56.0, "us", "**slower** |"),
            (throughput, 0.45, "x", "**slower** |"),
            (throughput, 1.0, "x", "about as fast |"),
            (throughput, 2.0, "x", "faster |"),
        ] {
            let (table, missing) = render_beside_redis(&[of_row(row, value, unit)]);
            assert!(table.lines().nth(2).is_some_and(|line| line.ends_with(verdict)), "{table}");
            assert_eq!(missing.len(), ROWS.len() - 1);
        }
    }

    #[test]
    fn the_documents_of_this_repository_have_every_row_as_it_was_measured() {
        let repository = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let results = read_all(&repository.join("lab/results")).expect("they are results");
        let (table, missing) = render_beside_redis(&results);
        assert_eq!(missing, Vec::<String>::new());
        let readme = fs::read_to_string(repository.join("README.md")).expect("it is there");
        assert!(readme.contains(&table), "README is behind lab/results: scot claims --update");
        assert!(readme.lines().count() <= 200 && readme.len() <= 12 << 10, "README is for three minutes");
    }
}
