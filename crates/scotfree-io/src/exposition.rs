//! What all daemons' pages of metrics have in common: durations as histograms, and the two texts in which a
//! page is served.
//!
//! Invariant: a page is written once, with its exemplars, and becomes the text that was asked for only then;
//! the classic text has no exemplars, since it has no place for them.

mod histogram;

use std::collections::BTreeSet;

pub use histogram::{write_histogram, DurationHistogram, Exemplar, Exemplars, BUCKETS};

/// The media type of `OpenMetrics`, as it is asked for.
const OPEN_METRICS: &str = "application/openmetrics-text";

/// The text of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Prometheus' own, which every scraper reads.
    #[default]
    Classic,
    /// `OpenMetrics` 1.0, with exemplars.
    OpenMetrics,
}

impl Format {
    /// What an HTTP request asks for, by its head up to the empty line: `OpenMetrics` if its Accept names
    /// that, and no other text with more weight.
    pub fn asked_by(head: &[u8]) -> Format {
        let head = String::from_utf8_lossy(head);
        let accepts = head.lines().filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("accept").then_some(value)
        });
        let (mut open, mut plain) = (0.0_f64, 0.0_f64);
        for range in accepts.flat_map(|value| value.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            match parts.next() {
                Some(OPEN_METRICS) => open = open.max(weight(parts)),
                Some("text/plain") => plain = plain.max(weight(parts)),
                _ => {}
            }
        }
        if open > 0.0 && open >= plain {
            Format::OpenMetrics
        } else {
            Format::Classic
        }
    }

    /// What the answer says it is.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Classic => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// A page in this text.
    pub fn of(self, page: &str) -> String {
        let mut out = String::with_capacity(page.len() + 8);
        let names: BTreeSet<&str> = page.lines().filter_map(declared).collect();
        for line in page.lines() {
            match (self, line.starts_with('#')) {
                (Format::Classic, false) => out.push_str(without_exemplar(line)),
                (Format::OpenMetrics, true) => push_open_head(&mut out, line, &names),
                (Format::Classic, true) | (Format::OpenMetrics, false) => out.push_str(line),
            }
            out.push('\n');
        }
        if self == Format::OpenMetrics {
            out.push_str("# EOF\n");
        }
        out
    }
}

/// The weight among a media range's parameters.
fn weight<'a>(mut parameters: impl Iterator<Item = &'a str>) -> f64 {
    let given = parameters.find_map(|parameter| parameter.strip_prefix("q="));
    given.map_or(1.0, |weight| weight.trim().parse().unwrap_or(0.0))
}

/// The name that a line declares.
fn declared(line: &str) -> Option<&str> {
    line.strip_prefix("# TYPE ")?.split(' ').next()
}

/// A line of HELP or TYPE: there a counter's family has no `_total`, and a quote in a text is escaped. A
/// counter beside a gauge that is called as its family would be is none there: its samples keep their name.
fn push_open_head(out: &mut String, line: &str, names: &BTreeSet<&str>) {
    let mut words = line.splitn(4, ' ');
    let (mark, what) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (name, rest) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let stem = name.strip_suffix("_total");
    let is_taken = stem.is_some_and(|stem| names.contains(stem));
    let family = stem.filter(|_| !is_taken).unwrap_or(name);
    let rest = match what {
        "HELP" => rest.replace('"', "\\\""),
        _ if is_taken => "unknown".to_owned(),
        _ => rest.to_owned(),
    };
    out.push_str(&[mark, what, family, &rest].join(" "));
}

/// A sample without what follows its value: a `#` in a label's value is not meant.
fn without_exemplar(line: &str) -> &str {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, letter) in line.char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            '#' if !is_quoted => return line[..at].trim_end(),
            _ => {}
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(accept: &str) -> Format {
        Format::asked_by(format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{accept}\r\n\r\n").as_bytes())
    }

    #[test]
    fn a_scraper_gets_the_text_that_it_prefers() {
        // As Prometheus 2.42, Prometheus 3 and a browser ask.
        for accept in [
            "Accept: application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
             text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "accept: application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
             text/plain;version=0.0.4;q=0.3",
            "ACCEPT:application/openmetrics-text",
            "Accept: text/plain; q=0.2\r\nAccept: application/openmetrics-text; q=0.4",
        ] {
            assert_eq!(asked(accept), Format::OpenMetrics, "{accept}");
        }
        for accept in [
            "X: y",
            "Accept: text/html,*/*;q=0.8",
            "Accept: text/plain;version=0.0.4",
            "Accept: application/openmetrics-text;q=0",
            "Accept: application/openmetrics-text;q=never",
            "Accept: application/openmetrics-text;q=0.3, text/plain;q=0.5",
            "X-Accept: application/openmetrics-text",
        ] {
            assert_eq!(asked(accept), Format::Classic, "{accept}");
        }
    }

    #[test]
    fn one_page_becomes_either_text() {
        let page = "# HELP a_total Says \"a # {\" twice.\n# TYPE a_total counter\n\
            a_total{of=\"a\\\"# {b} # 1\"} 1\n# HELP b_seconds B.\n# TYPE b_seconds histogram\n\
            b_seconds_bucket{of=\"# {\",le=\"1.0\"} 2 # {trace_id=\"01\"} 0.5 1.5\n";
        assert_eq!(Format::Classic.of(page), page.replace(" # {trace_id=\"01\"} 0.5 1.5", ""));
        assert_eq!(
            Format::OpenMetrics.of(page),
            "# HELP a Says \\\"a # {\\\" twice.\n# TYPE a counter\n\
             a_total{of=\"a\\\"# {b} # 1\"} 1\n# HELP b_seconds B.\n# TYPE b_seconds histogram\n\
             b_seconds_bucket{of=\"# {\",le=\"1.0\"} 2 # {trace_id=\"01\"} 0.5 1.5\n# EOF\n"
        );
        let clash =
            "# HELP a_total A.\n# TYPE a_total counter\na_total 1\n# HELP a A.\n# TYPE a gauge\na 2\n";
        assert_eq!(
            Format::OpenMetrics.of(clash),
            clash.replace("a_total counter", "a_total unknown") + "# EOF\n",
            "a counter's family may not be called as a gauge"
        );
        assert_eq!(Format::OpenMetrics.of(""), "# EOF\n");
        assert_eq!(Format::Classic.of(""), "");
    }
}
