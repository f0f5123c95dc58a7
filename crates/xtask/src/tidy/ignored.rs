//! A test that is ignored is the inner half of another: some test of its file names it, to run it elsewhere.
//!
//! Invariant: what is said here of a test's text holds for formatted code only.

use super::{is_rust, Complaint, Files};

pub(super) fn check(files: &Files) -> Vec<Complaint> {
    let rust = files.iter().filter(|(path, _)| is_rust(path));
    let never_run = rust.flat_map(|(path, text)| never_run(text).into_iter().map(move |test| (path, test)));
    never_run
        .map(|(path, (index, name))| {
            Complaint::of_line(path, index, format!("`{name}` is ignored, and no test of this file runs it"))
        })
        .collect()
}

/// The lines, from 0, and names of ignored tests that nothing else names.
fn never_run(text: &str) -> Vec<(usize, &str)> {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let name_behind = |index: usize| {
        let declared = lines[index..].iter().find_map(|line| line.strip_prefix("fn "))?;
        declared.split('(').next()
    };
    let ignored = (0..lines.len()).filter(|index| lines[*index].starts_with("#[ignore"));
    let named = ignored.map(|index| (index, name_behind(index).unwrap_or_default()));
    named.filter(|(_, name)| !text.contains(&format!("\"{name}\""))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_test_that_no_other_runs_is_named() {
        let inner = "#[test]\n#[ignore = \"run by another test\"]\nfn inside() {}\n";
        let outer = "#[test]\nfn outside() { run(\"inside\") }\n";
        let (both, alone) =
            (format!("{outer}{inner}"), format!("fn outside() {{ run(\"other\") }}\n{inner}"));
        let files = Files::of(&[("both.rs", &both), ("alone.rs", &alone), ("notes.md", &alone)]);
        let complaints: Vec<String> = check(&files).iter().map(ToString::to_string).collect();
        assert_eq!(complaints, ["alone.rs:3: `inside` is ignored, and no test of this file runs it"]);
    }
}
