//! What an experiment's file may say of its plots, and what is refused.

use super::*;
use crate::experiment::Experiment;
use crate::plot::tests::EXPERIMENT;

fn parse(plot: &str) -> Result<Plot, ConfigError> {
    let source = Source::from_text("lab/speed.toml", format!("{EXPERIMENT}claim = []\n[[plot]]\n{plot}"));
    Experiment::parse(&source).map(|experiment| experiment.plots[0].clone())
}

#[test]
fn what_is_not_allowed_is_named_with_its_line() {
    for (plot, line, problem) in [
        ("kind = 'pie'", 15, "unknown variant `pie`"),
        ("kind = 'points'\nmetric = ['p50_us']", 16, "unknown field `metric`"),
        ("kind = 'points'", 15, "0 metrics; allowed are 1 to 4"),
        ("kind = 'bars'\nmetrics = ['a', 'b', 'c', 'd', 'e']", 16, "5 metrics"),
        ("kind = 'points'\nmetrics = ['a']\nx = 'size'", 17, "allowed are title, arms, metrics"),
        ("kind = 'cdf'\nmetrics = ['a']", 16, "a plot of kind `cdf` has none"),
        ("kind = 'cdf'\narms = ['slow-2']", 16, "there is no arm `slow-2`"),
        ("kind = 'bars'\nmetrics = ['a']\nby = 'kind'", 17, "`slow-8` has no setting `kind`"),
        ("kind = 'bars'\nmetrics = ['a']\nx = 'size'", 15, "`slow-1` and `fast-1` stand in the same place"),
        ("kind = 'curve'\nmetrics = ['a']", 15, "a curve needs either `x`"),
        ("kind = 'curve'\nmetrics = ['a']\nx = 'size'\nx_metric = 'b'", 15, "not both"),
        ("kind = 'curve'\nmetrics = ['a']\nx = 'mode'\nby = 'size'", 15, "the arm `slow-1` has `slow`"),
        (
            "kind = 'curve'\nmetrics = ['a']\nx = 'size'\npanels = 'kind'",
            18,
            "`slow-8` has no setting `kind`",
        ),
        ("kind = 'curve'\nmetrics = ['a']\nx = 'size'\npanels = 'size'", 15, "stand in the same place"),
        ("kind = 'bars'\nmetrics = ['a']\npanels = 'size'", 17, "a plot of kind `bars` has none"),
        ("kind = 'time'", 15, "0 metrics; allowed are 1 to 4"),
        ("kind = 'time'\nmetrics = ['a']\nby = 'mode'", 15, "`slow-1` and `slow-8` stand in the same place"),
        ("kind = 'time'\nmetrics = ['a']\nx = 'size'", 17, "allowed are title, arms, metrics, by, events"),
        ("kind = 'ratio'\nmetrics = ['a']", 15, "a ratio needs `x`"),
        ("kind = 'ratio'\nmetrics = ['a']\nx = 'size'", 15, "a ratio needs `compare"),
    ] {
        let error = parse(plot).expect_err(problem);
        assert!(error.to_string().contains(problem), "{error}");
        assert_eq!(error.line, line, "{error}");
    }
}

#[test]
fn what_cannot_be_divided_is_named() {
    for (x, compare, problem) in [
        ("size", "setting = 'mode', of = 'slow', over = 'fast', by = 'size'", "unknown field `by`"),
        ("size", "setting = 'speed', of = 'slow', over = 'fast'", "has no setting `speed`"),
        ("size", "setting = 'mode', of = 'slower', over = 'fast'", "no arm has mode = \"slower\""),
        ("size", "setting = 'mode', of = 'slow', over = 'faster'", "0 arms with mode = \"faster\" stand"),
        ("mode", "setting = 'size', of = 1, over = 8", ""),
    ] {
        let plot = format!("kind = 'ratio'\nmetrics = ['a']\nx = '{x}'\ncompare = {{ {compare} }}");
        match parse(&plot) {
            Ok(_) => assert_eq!(problem, "", "{plot}"),
            Err(error) => {
                assert!(!problem.is_empty() && error.to_string().contains(problem), "{error}");
                assert_eq!(error.line, 18, "{error}");
            }
        }
    }
}

#[test]
fn a_setting_may_have_a_panel_for_each_value_or_lines_over_time() {
    let plot = parse("kind = 'curve'\nmetrics = ['a']\nx = 'size'\npanels = 'mode'").expect("it is one");
    let panels: Vec<&str> = plot.entries.iter().filter_map(|entry| entry.panel.as_deref()).collect();
    assert_eq!(panels, ["slow", "fast", "slow", "fast"]);
    let plot =
        parse("kind = 'time'\nmetrics = ['a']\nevents = ['b_ms']\nby = 'mode'\narms = ['slow-1', 'fast-1']");
    let plot = plot.expect("it is one");
    assert_eq!((plot.x, plot.events), (Axis::Time, vec!["b_ms".to_owned()]));
}

#[test]
fn more_events_than_allowed_are_refused() {
    let events = vec!["a"; EVENTS_MAX + 1];
    let error =
        parse(&format!("kind = 'time'\nmetrics = ['a']\nevents = {events:?}")).expect_err("one too many");
    assert!(error.to_string().contains("5 events; allowed are 0 to 4"), "{error}");
    assert_eq!(error.line, 17);
}

#[test]
fn more_plots_than_allowed_are_refused() {
    let plots = "kind = 'cdf'\n[[plot]]\n".repeat(PLOTS_MAX);
    let error = parse(&format!("{plots}kind = 'cdf'")).expect_err("one too many").to_string();
    assert!(error.contains("9 plots; allowed are 0 to 8"), "{error}");
    assert!(parse(plots.trim_end_matches("[[plot]]\n")).is_ok());
}

#[test]
fn arms_are_divided_by_those_that_stand_in_their_place() {
    let plot = parse(
        "kind = 'ratio'\nmetrics = ['p50_us']\nx = 'size'\n\
         compare = { setting = 'mode', of = 'slow', over = 'fast' }",
    );
    let plot = plot.expect("it is a plot");
    let pairs: Vec<_> =
        plot.entries.iter().map(|entry| (entry.arm.as_str(), entry.over.as_deref())).collect();
    assert_eq!(pairs, [("slow-1", Some("fast-1")), ("slow-8", Some("fast-8"))]);
    assert_eq!(plot.entries[1].x, At::Number(8.0));
    assert_eq!(plot.quotient.as_deref(), Some("mode slow / fast"));
}

#[test]
fn references_stand_where_arms_may() {
    let curve = "kind = 'curve'\nmetrics = ['a']\nx = 'size'\nby = 'mode'\n";
    let bars = "kind = 'bars'\nmetrics = ['a']\n";
    let reference = |points: &str| format!("[[plot.reference]]\nlabel = 'thesis'\npoints = [{points}]\n");
    for (plot, points, problem) in [
        (curve, "[4, 2.5]", None),
        (curve, "['four', 2.5]", Some("no arm stands at `four`")),
        (bars, "['fast-8', 2]", None),
        (bars, "['fast-9', 2]", Some("no arm stands at `fast-9`")),
        (bars, "['fast-8']", Some("points")),
    ] {
        match (parse(&format!("{plot}{}", reference(points))), problem) {
            (Ok(plot), None) => assert_eq!(plot.references[0].points.len(), 1),
            (Err(error), Some(problem)) => assert!(error.to_string().contains(problem), "{error}"),
            (parsed, problem) => panic!("{parsed:?}, and not {problem:?}"),
        }
    }
    let error = parse(&format!("kind = 'cdf'\n{}", reference("[4, 2]"))).expect_err("a cdf has none");
    assert!(error.to_string().contains("`reference`"), "{error}");
}
