//! Every result has a plot of its own measurement, and every plot a picture of its own specification.
//!
//! Invariant: only the results' and plots' own words are compared, so that this takes no time and no
//! renderer.

use super::{Complaint, Files};
use serde_json::Value;

const RESULTS: &str = "lab/results/";
const PLOTS: &str = "lab/results/plots/";
const SPECIFICATION: &str = ".vl.json";
const HOW: &str = "make plots";
const PNG_BEGIN: &[u8] = b"\x89PNG\r\n\x1a\n";
/// The keyword that scripts/plot.py writes before the mark.
const KEYWORD: &[u8] = b"tEXtSpecification\0";

pub(super) fn check(files: &Files) -> Vec<Complaint> {
    let of_result = |path: &str| {
        let name = path.strip_prefix(RESULTS)?.strip_suffix(".json")?;
        // Other names are not results: raw data, and what lies in folders.
        (!name.contains(['/', '.'])).then(|| name.to_owned())
    };
    let results = files.iter().filter_map(|(path, text)| Some((of_result(path)?, text)));
    let mut complaints: Vec<Complaint> =
        results.filter_map(|(name, text)| complaint(files, &name, text)).collect();
    complaints.extend(orphans(files));
    complaints
}

fn complaint(files: &Files, name: &str, result: &str) -> Option<Complaint> {
    let specification = format!("{PLOTS}{name}{SPECIFICATION}");
    let picture = format!("{PLOTS}{name}.png");
    let fault = |path: &str, problem: &str| Some(Complaint::of_file(path, format!("{problem}: {HOW}")));
    let Some(text) = files.get(&specification) else {
        return fault(&specification, "is missing, and there is a result");
    };
    let (result, usermeta) = (json(result), json(text)["usermeta"].clone());
    let is_same = |key: &str| result[key].is_string() && result[key] == usermeta[key];
    if !["experiment", "commit", "date"].into_iter().all(is_same) {
        return fault(&specification, "is not of the result's measurement");
    }
    match files.marks.get(&picture) {
        None => fault(&picture, "is missing, or no picture that scripts/plot.py drew"),
        Some(mark) if usermeta["mark"] != **mark => fault(&picture, "was drawn of another specification"),
        Some(_) => None,
    }
}

fn orphans(files: &Files) -> Vec<Complaint> {
    let specifications = files.iter().map(|(path, _)| path).filter(|path| path.ends_with(SPECIFICATION));
    let pictures = files.marks.keys().map(String::as_str).filter(|path| path.starts_with(PLOTS));
    let has_result = |path: &str| {
        let name = path.strip_prefix(PLOTS)?;
        let name = name.strip_suffix(SPECIFICATION).or_else(|| name.strip_suffix(".png"))?;
        files.get(&format!("{RESULTS}{name}.json"))
    };
    let alone = specifications.chain(pictures).filter(|path| has_result(path).is_none());
    alone.map(|path| Complaint::of_file(path, "is a plot of no result: remove it")).collect()
}

/// What is no JSON has no fields.
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or(Value::Null)
}

/// The mark in a picture; nothing if it is none of ours.
pub(super) fn mark_of(bytes: &[u8]) -> Option<String> {
    let begins_at = bytes.windows(KEYWORD.len()).position(|window| window == KEYWORD);
    let at = begins_at.filter(|_| bytes.starts_with(PNG_BEGIN))?;
    // A chunk begins with its length, before its kind.
    let length = bytes.get(at.checked_sub(4)?..at)?.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let text = bytes.get(at + KEYWORD.len()..at + 4 + length)?;
    String::from_utf8(text.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULT: &str = r#"{"experiment":"speed","commit":"abc","date":"today"}"#;
    const PLOT: &str =
        r#"{"usermeta":{"experiment":"speed","commit":"abc","date":"today","mark":"speed abc 1"}}"#;

    fn files(result: &str, specification: Option<&str>, mark: Option<&str>) -> Files {
        let mut files = Files::of(&[("lab/results/speed.json", result)]);
        if let Some(text) = specification {
            files.texts.insert("lab/results/plots/speed.vl.json".into(), text.into());
        }
        if let Some(mark) = mark {
            files.marks.insert("lab/results/plots/speed.png".into(), mark.into());
        }
        files
    }

    fn picture(mark: &str) -> Vec<u8> {
        let text = [b"Specification\0", mark.as_bytes()].concat();
        let length = (text.len() as u32).to_be_bytes();
        [PNG_BEGIN, b"\0\0\0\x0dIHDR and more", &length, b"tEXt", &text, b"crc."].concat()
    }

    #[test]
    fn a_plot_of_the_result_passes() {
        assert_eq!(check(&files(RESULT, Some(PLOT), Some("speed abc 1"))), []);
        assert_eq!(check(&Files::default()), []);
    }

    #[test]
    fn what_is_older_or_missing_is_named_with_what_mends_it() {
        for (files, wanted) in [
            (files(RESULT, None, None), "speed.vl.json: is missing"),
            (
                files(&RESULT.replace("today", "later"), Some(PLOT), Some("speed abc 1")),
                "not of the result's",
            ),
            (files(&RESULT.replace("abc", "def"), Some(PLOT), Some("speed abc 1")), "not of the result's"),
            (files(RESULT, Some("{}"), Some("speed abc 1")), "not of the result's"),
            (files("{}", Some("{}"), Some("speed abc 1")), "not of the result's"),
            (files(RESULT, Some(PLOT), None), "speed.png: is missing"),
            (files(RESULT, Some(PLOT), Some("speed abc 0")), "another specification"),
        ] {
            let shown: Vec<String> = check(&files).iter().map(ToString::to_string).collect();
            assert!(shown.len() == 1 && shown[0].contains(wanted), "{shown:?} for {wanted}");
            assert!(shown[0].ends_with("make plots"), "{shown:?}");
        }
    }

    #[test]
    fn plots_of_no_result_are_named() {
        let mut files = files(RESULT, Some(PLOT), Some("speed abc 1"));
        files.texts.remove("lab/results/speed.json");
        let paths: Vec<String> = check(&files).into_iter().map(|complaint| complaint.path).collect();
        assert_eq!(paths, ["lab/results/plots/speed.vl.json", "lab/results/plots/speed.png"]);
    }

    #[test]
    fn marks_are_read_from_pictures_only() {
        let bytes = picture("speed abc 1");
        assert_eq!(mark_of(&bytes).as_deref(), Some("speed abc 1"));
        assert_eq!(mark_of(&bytes[1..]), None);
        assert_eq!(mark_of(&bytes[..bytes.len() - 8]), None);
        assert_eq!(mark_of(b"tEXtSpecification\0"), None);
    }
}
