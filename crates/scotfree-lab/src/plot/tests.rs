//! What is drawn of results, and that the plots of the repository are those of its results.

use super::*;
use crate::experiment::{Arm, Measurement};
use crate::results::read_all;
use scotfree_stage::config::Source;
use scotfree_stage::environment::Environment;
use scotfree_stage::scratch::Scratch;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// An experiment without its claims and plots.
pub(super) const EXPERIMENT: &str = r#"name = "speed"
title = "How much faster it is"
runner = "update-ack"
topology = "direct"
repetitions = 3
covers = ["crates"]
arm = [
  { name = "slow-1", settings = { mode = "slow", size = 1, kind = "odd" } },
  { name = "fast-1", settings = { mode = "fast", size = 1, kind = "odd" } },
  { name = "slow-8", settings = { mode = "slow", size = 8 } },
  { name = "fast-8", settings = { mode = "fast", size = 8 } },
]
"#;

const CLAIMS: &str = r#"[[claim]]
claim = "slow over fast"
unit = "x"
required = 5
goal = 8
better = "higher"
formula = { kind = "ratio", metric = "p50_us", arm = "slow-1", over = "fast-1" }
[[claim]]
claim = "throughput"
unit = "1/s"
required = 7
better = "higher"
formula = { kind = "min", metric = "requests_per_s", arm = "fast-8" }
[[claim]]
claim = "lost"
unit = "updates"
required = 0
better = "lower"
formula = { kind = "sum", metric = "lost", arm = "fast-8" }
"#;

/// In the repetition r the slow arms take 40 + r, the fast ones 10 + r.
fn example(plots: &str) -> (Experiment, ExperimentResult) {
    let source = Source::from_text("lab/speed.toml", format!("{EXPERIMENT}{CLAIMS}{plots}"));
    let experiment = Experiment::parse(&source).expect("it is an experiment");
    let measure = |arm: &Arm, repetition: u32| -> Result<Measurement, String> {
        let us = f64::from(repetition) + if arm.name.starts_with("slow") { 40.0 } else { 10.0 };
        let values = [
            ("p50_us", us),
            ("p90_us", 2.0 * us),
            ("p99_us", 3.0 * us),
            ("lost", 0.0),
            ("requests_per_s", us),
        ];
        let values = values.map(|(metric, value)| (metric.to_owned(), value)).into();
        Ok(Measurement { arm: arm.name.clone(), repetition, values, counters: [].into() })
    };
    let series = crate::experiment::run_interleaved(&experiment.arms, 3, measure).expect("it is measured");
    let result = ExperimentResult::of(&experiment, environment(), series).expect("all was measured");
    (experiment, result)
}

fn environment() -> Environment {
    Environment {
        machine: "2 x test, 1.0 GiB".into(),
        processor: "test family 1".into(),
        kernel: "6.1".into(),
        priority: "normal".into(),
        commit: "0123456789abcdef".into(),
        has_uncommitted_changes: false,
        date: "2025-01-31T00:00:00Z".into(),
        load_average: "0.1 0.2 0.3".into(),
    }
}

fn draw(plots: &str) -> Result<Value, String> {
    let (experiment, result) = example(plots);
    specification(&experiment, &result)
}

/// All values of a field, wherever it stands.
fn all<'a>(value: &'a Value, field: &str) -> Vec<&'a Value> {
    let mut found = Vec::new();
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get(field));
                open.extend(fields.values().rev());
            }
            Value::Array(values) => open.extend(values.iter().rev()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => (),
        }
    }
    found
}

/// The rows of data in which a field is.
fn rows<'a>(value: &'a Value, field: &str) -> Vec<&'a Value> {
    let data = all(value, "values").into_iter().filter_map(Value::as_array).flatten();
    data.filter(|row| row.get(field).is_some()).collect()
}

#[test]
fn without_a_plot_the_metrics_of_claims_are_drawn_with_their_bounds() {
    let drawn = draw("").expect("all was measured");
    assert_eq!(drawn["vconcat"].as_array().map(Vec::len), Some(2), "lost is 0, and no panel");
    let subtitle = drawn["title"]["subtitle"].to_string();
    assert!(subtitle.contains("0 in every repetition: lost"), "{subtitle}");
    assert!(subtitle.contains("commit 0123456789") && subtitle.contains("repetitions: 3"), "{subtitle}");
    let median = rows(&drawn["vconcat"][0], "median")[0];
    assert_eq!(
        (&median["arm"], &median["min"], &median["median"]),
        (&json!("slow-1"), &json!(40.0), &json!(41.0))
    );
    // 5 times and 8 times as fast as 41 us.
    let bounds: Vec<(&Value, &Value, &Value)> =
        rows(&drawn, "bound").into_iter().map(|row| (&row["arm"], &row["bound"], &row["value"])).collect();
    assert_eq!(
        bounds,
        [
            (&json!("fast-1"), &json!("required"), &json!(8.2)),
            (&json!("fast-1"), &json!("goal"), &json!(5.125)),
            (&json!("fast-8"), &json!("required"), &json!(7.0)),
        ]
    );
    let titles = all(&drawn, "title");
    assert!(titles.contains(&&json!("p50 (us)")) && titles.contains(&&json!("requests per second")));
}

#[test]
fn many_repetitions_are_drawn_by_their_middle_half() {
    let (experiment, mut result) = example("");
    assert!(!rows(&specification(&experiment, &result).expect("few"), "q1").is_empty());
    let first = result.series.clone();
    for copy in 1..20 {
        let later = |one: &Measurement| Measurement { repetition: one.repetition + 3 * copy, ..one.clone() };
        result.series.extend(first.iter().map(later));
    }
    let drawn = specification(&experiment, &result).expect("many").to_string();
    assert!(drawn.contains("half of the repetitions") && !drawn.contains("one repetition"), "{drawn}");
    assert!(drawn.len() < 10_000, "{} bytes", drawn.len());
}

#[test]
fn a_ratio_is_the_claims_quotient_with_its_bounds_and_others_numbers() {
    let drawn = draw(
        "[[plot]]\nkind = 'ratio'\nmetrics = ['p50_us']\nx = 'size'\n\
         compare = { setting = 'mode', of = 'slow', over = 'fast' }\n\
         [[plot.reference]]\nlabel = 'thesis'\npoints = [[1, 2.83], [8, 2.19]]\n",
    );
    let drawn = drawn.expect("all was measured");
    let medians: Vec<(&Value, &Value)> =
        rows(&drawn, "median").into_iter().map(|row| (&row["x"], &row["median"])).collect();
    let quotient = json!(3.72727); // the median of 40/10, 41/11, 42/12
    assert_eq!(medians, [(&json!(1.0), &quotient), (&json!(8.0), &quotient)]);
    let bounds: Vec<&Value> = rows(&drawn, "bound").into_iter().map(|row| &row["value"]).collect();
    assert_eq!(bounds, [&json!(5.0), &json!(8.0)]);
    assert_eq!(rows(&drawn, "label").len(), 4, "a line and its points");
    assert!(all(&drawn, "title").contains(&&json!("p50: mode slow / fast (x)")));
}

#[test]
fn curves_bars_and_distributions_have_a_row_for_each_place() {
    let curve = "[[plot]]\nkind = 'curve'\nmetrics = ['p50_us', 'p99_us']\nx = 'size'\nby = 'mode'\n";
    let drawn = draw(curve).expect("all was measured");
    let last = rows(&drawn, "median").pop().expect("there are rows").clone();
    assert_eq!(rows(&drawn, "median").len(), 8);
    assert_eq!((&last["x"], &last["series"], &last["metric"]), (&json!(8.0), &json!("fast"), &json!("p99")));
    let over = "[[plot]]\nkind = 'curve'\nmetrics = ['p99_us']\nx_metric = 'requests_per_s'\nby = 'mode'\n";
    assert_eq!(rows(&draw(over).expect("all was measured"), "median")[1]["x"], json!(11.0));
    let bars = "[[plot]]\nkind = 'bars'\nmetrics = ['p50_us']\nx = 'size'\nby = 'mode'\n";
    let drawn = draw(bars).expect("all was measured");
    assert_eq!(rows(&drawn, "median")[3]["by"], "fast");
    assert!(all(&drawn, "y2").contains(&&json!({ "datum": 0 })), "bars begin at zero");
    let cdf = "[[plot]]\nkind = 'cdf'\narms = ['slow-1', 'fast-1']\n";
    let drawn = draw(cdf).expect("all was measured");
    let points: Vec<(&Value, &Value)> =
        rows(&drawn, "percent").into_iter().map(|row| (&row["percent"], &row["us"])).collect();
    assert_eq!(
        points[..3],
        [(&json!(50.0), &json!(41.0)), (&json!(90.0), &json!(82.0)), (&json!(99.0), &json!(123.0))]
    );
    assert_eq!(points.len(), 6);
}

#[test]
fn panels_hold_the_lines_of_their_value_on_the_same_axes() {
    let curve =
        "[[plot]]\nkind = 'curve'\nmetrics = ['p50_us']\nx = 'size'\npanels = 'mode'\ntitle = 'both'\n";
    let drawn = draw(curve).expect("all was measured");
    let plot = &drawn["vconcat"][0];
    assert_eq!((&plot["title"], &plot["resolve"]["scale"]["y"]), (&json!("both"), &json!("shared")));
    let panels: Vec<(&Value, Vec<&Value>)> = plot["concat"]
        .as_array()
        .expect("there are panels")
        .iter()
        .map(|panel| (&panel["title"], rows(panel, "median").into_iter().map(|row| &row["median"]).collect()))
        .collect();
    assert_eq!(
        panels,
        [
            (&json!("mode: slow"), vec![&json!(41.0), &json!(41.0)]),
            (&json!("mode: fast"), vec![&json!(11.0), &json!(11.0)]),
        ]
    );
}

#[test]
fn rates_are_drawn_over_time_with_the_moments_of_events() {
    let plot = "[[plot]]\nkind = 'time'\nmetrics = ['calls_per_s']\nevents = ['kill_ms']\n\
                arms = ['slow-1', 'fast-1']\nby = 'mode'\n";
    let (experiment, mut result) = example(plot);
    let error = specification(&experiment, &result).expect_err("no interval was measured");
    assert!(error.contains("`calls_per_s` of the arm `slow-1` was not measured over time"), "{error}");
    for one in &mut result.series {
        let us = one.values["p50_us"];
        for (ms, rate) in [(0, us), (500, 0.0), (1_000, 2.0 * us)] {
            one.values.insert(format!("calls_per_s_at_{ms}_ms"), rate);
        }
        one.values.insert("kill_ms".into(), 10.0 * us);
    }
    let drawn = specification(&experiment, &result).expect("all was measured");
    let line: Vec<(&Value, &Value, &Value)> =
        rows(&drawn, "median").into_iter().map(|row| (&row["series"], &row["s"], &row["median"])).collect();
    assert_eq!(
        line[..3],
        [
            (&json!("slow"), &json!(0.0), &json!(41.0)),
            (&json!("slow"), &json!(0.5), &json!(0.0)),
            (&json!("slow"), &json!(1.0), &json!(82.0)),
        ]
    );
    let named = rows(&drawn, "event");
    assert_eq!(named, [&json!({ "s": 0.11, "event": "kill" })], "it is named where it came first");
    assert!(rows(&drawn, "s").contains(&&json!({ "s": 0.41 })), "each arm has its own");
    for one in &mut result.series {
        one.values.remove("kill_ms");
    }
    let error = specification(&experiment, &result).expect_err("it has no moment");
    assert!(error.contains("`kill_ms` of the arm `slow-1` was not measured"), "{error}");
}

#[test]
fn what_was_not_measured_is_named_and_not_drawn() {
    for (plot, problem) in [
        ("kind = 'points'\nmetrics = ['p51_us']", "`p51_us` of the arm `slow-1` was not measured"),
        ("kind = 'curve'\nmetrics = ['p50_us']\nx_metric = 'speed'", "`speed` of the arm `slow-1`"),
    ] {
        assert!(draw(&format!("[[plot]]\n{plot}\n")).expect_err(problem).contains(problem));
    }
    let (experiment, mut result) = example("[[plot]]\nkind = 'cdf'\n");
    for one in &mut result.series {
        one.values.remove("p90_us");
    }
    let error = text(&experiment, &result).expect_err("two percentiles are no line").to_string();
    assert!(error.contains("`speed`") && error.contains("`slow-1` 2 percentiles"), "{error}");
    let (experiment, mut result) = example("[[plot]]\nkind = 'bars'\nmetrics = ['p50_us']\n");
    result.series.retain(|one| one.arm != "fast-8");
    let error = text(&experiment, &result).expect_err("an arm is missing").to_string();
    assert!(error.contains("the arm `fast-8` was not measured"), "{error}");
}

#[test]
fn a_file_names_its_measurement_and_its_mark_changes_with_what_is_drawn() {
    let folder = Scratch::new("plots").expect("temporary files can be written");
    let (experiment, mut result) = example("");
    let file = write(&experiment, &result, folder.path()).expect("it can be written");
    assert_eq!(file, folder.path().join("plots/speed.vl.json"));
    let read = |file: &PathBuf| -> Value {
        serde_json::from_str(&std::fs::read_to_string(file).expect("it is there")).expect("it is JSON")
    };
    let first = read(&file)["usermeta"].clone();
    assert_eq!(first["experiment"], "speed");
    assert_eq!(first["date"], "2025-01-31T00:00:00Z");
    assert!(first["mark"].as_str().is_some_and(|mark| mark.starts_with("speed 0123456789 2025")), "{first}");
    result.series[0].values.insert("p50_us".into(), 40.5);
    write(&experiment, &result, folder.path()).expect("it can be written");
    assert_ne!(read(&file)["usermeta"]["mark"], first["mark"]);
}

#[test]
fn the_plots_of_the_repository_are_those_of_its_results() {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab");
    for result in read_all(&lab.join("results")).expect("the results are there") {
        let name = &result.experiment;
        let experiment = Experiment::read(&lab.join(format!("experiments/{name}.toml"))).expect("its file");
        let measured: BTreeSet<&str> = result.series.iter().map(|one| one.arm.as_str()).collect();
        let has_arms = experiment.arms.iter().all(|arm| measured.contains(arm.name.as_str()));
        if !has_arms || !result.unmeasured.is_empty() {
            continue; // The experiment has got arms or claims since, and must be measured again.
        }
        let wanted = text(&experiment, &result).expect("it can be drawn");
        let found = std::fs::read_to_string(lab.join(format!("results/{FOLDER}/{name}.vl.json")));
        assert!(found.is_ok_and(|found| found == wanted), "the plot of `{name}` is not current: make plots");
    }
}
