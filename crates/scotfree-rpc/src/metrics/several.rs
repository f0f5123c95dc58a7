//! One Prometheus text of the texts of several loops.
//!
//! Invariant: a family is written once, as the format demands, with the samples of all who have it; each sample bears
//! the name of its loop.

use super::escaped;

/// A family in the making.
struct Family<'t> {
    name: &'t str,
    /// Its lines of HELP and TYPE, as who has it first writes them.
    head: [&'t str; 2],
    samples: String,
}

/// The texts of several, each with its name, which becomes the value of `label`. They are texts of
/// [`super::MetricsText`]: each family begins with HELP and TYPE.
pub(super) fn merged(label: &str, texts: &[(&str, String)]) -> String {
    let mut families: Vec<Family<'_>> = Vec::new();
    for (name, text) in texts {
        let label = format!("{label}=\"{}\"", escaped(name));
        let mut at = None;
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let name = rest.split(' ').next().unwrap_or_default();
                let head = [line, lines.next().unwrap_or_default()];
                at = Some(place_of(&mut families, name, head));
            } else if let Some(at) = at {
                push_sample(&mut families[at].samples, line, &label);
            }
        }
    }
    families.iter().map(|family| family.head.join("\n") + "\n" + &family.samples).collect()
}

fn place_of<'t>(families: &mut Vec<Family<'t>>, name: &'t str, head: [&'t str; 2]) -> usize {
    families.iter().position(|family| family.name == name).unwrap_or_else(|| {
        families.push(Family { name, head, samples: String::new() });
        families.len() - 1
    })
}

/// A name has neither a brace nor a blank, so whichever comes first ends it.
fn push_sample(out: &mut String, line: &str, label: &str) {
    let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap_or(line.len()));
    let labelled = match rest.strip_prefix('{') {
        Some(labels) => format!("{name}{{{label},{labels}\n"),
        None => format!("{name}{{{label}}}{rest}\n"),
    };
    out.push_str(&labelled);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{MetricKind, MetricsText};

    fn text(updates: u64, kinds: &[&str], has_peers: bool) -> String {
        let mut text = MetricsText::new();
        if has_peers {
            text.gauge("x_peers", "Peers: two lines\nof \\ text", 2);
        }
        text.counter("x_updates_total", "Updates", updates);
        text.family(MetricKind::Counter, "x_refused_total", "Refused");
        for kind in kinds {
            text.sample("x_refused_total", &[("kind", kind)], 1);
        }
        text.as_str().to_owned()
    }

    #[test]
    fn families_are_written_once_with_the_samples_of_all() {
        let texts = [("a", text(1, &["{b} c"], false)), ("b\"", text(2, &[], true))];
        let expected = "# HELP x_updates_total Updates\n# TYPE x_updates_total counter\n\
            x_updates_total{proxy=\"a\"} 1\nx_updates_total{proxy=\"b\\\"\"} 2\n\
            # HELP x_refused_total Refused\n# TYPE x_refused_total counter\n\
            x_refused_total{proxy=\"a\",kind=\"{b} c\"} 1\n\
            # HELP x_peers Peers: two lines\\nof \\\\ text\n# TYPE x_peers gauge\n\
            x_peers{proxy=\"b\\\"\"} 2\n";
        assert_eq!(merged("proxy", &texts), expected);
        assert_eq!(merged("proxy", &[("a", String::new())]), "");
    }
}
