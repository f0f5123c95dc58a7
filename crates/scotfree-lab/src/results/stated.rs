//! A recorded result beside what its experiment's file states today: bounds may have changed since it was measured,
//! claims may have been added.
//!
//! Invariant: values still follow from the recorded series; a claim of which the series has none is named as not
//! measured, and the recorded file stays as it is.

use super::{Claim, ExperimentResult};
use crate::experiment::{ClaimRule, Experiment};
use scotfree_stage::trouble::Trouble;
use std::path::Path;

impl ExperimentResult {
    /// With the claims that its experiment's file in `experiments` states. A result whose experiment is no more
    /// keeps its own.
    pub fn as_stated(mut self, experiments: &Path) -> Result<ExperimentResult, Trouble> {
        let file = experiments.join(format!("{}.toml", self.experiment));
        if !file.is_file() {
            return Ok(self);
        }
        let experiment = Experiment::read(&file).map_err(|error| {
            Trouble::new(format!("read what `{}` states", self.experiment), error, "mend its file")
        })?;
        self.state(&experiment.claims);
        Ok(self)
    }

    fn state(&mut self, rules: &[ClaimRule]) {
        (self.claims, self.unmeasured) = (Vec::new(), Vec::new());
        for rule in rules {
            match rule.formula.compute(&self.series) {
                Ok(computed) => self.claims.push(Claim::of(rule, computed)),
                Err(_) => self.unmeasured.push(rule.clone()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{result, scratch};
    use super::super::{judge, read_all, render_table, Verdict};
    use std::fs;

    /// The lab's file of the example, with its claim's bound and one more claim of an arm that was not there.
    const STATED: &str = r#"name = "speed"
title = "How much faster the fast arm is"
runner = "update-ack"
repetitions = 3
covers = ["crates"]
[[arm]]
name = "slow"
[[arm]]
name = "fast"
[[arm]]
name = "alone"
[[claim]]
claim = "alone over fast"
unit = "x"
required = 2.0
better = "lower"
formula = { kind = "ratio", metric = "p50_us", arm = "alone", over = "fast" }
[[claim]]
claim = "latency, slow over fast"
unit = "x"
better = "higher"
formula = { kind = "ratio", metric = "p50_us", arm = "slow", over = "fast" }
"#;

    #[test]
    fn a_result_of_an_older_set_of_claims_is_read_and_what_it_lacks_is_said() {
        let folder = scratch();
        let (results, experiments) = (folder.path().join("results"), folder.path().join("experiments"));
        let file = result().write(&results).expect("it can be written");
        let recorded = fs::read(&file).expect("it is there");
        assert_eq!(
            read_all(&results),
            Ok(vec![result()]),
            "without the experiment's file it keeps its claims"
        );
        fs::create_dir(&experiments).expect("it can be made");
        fs::write(experiments.join("speed.toml"), STATED).expect("it can be written");
        let read = read_all(&results).expect("it is read");
        assert_eq!((read[0].claims.len(), read[0].unmeasured.len()), (1, 1));
        assert_eq!((read[0].claims[0].value, read[0].claims[0].verdict()), (3.0, Verdict::Noted));
        let report = judge(&read, folder.path());
        assert_eq!((report.missed_count, report.unmeasured_count, report.exit_code()), (0, 1, 0));
        assert!(report.text.contains("not measured") && report.text.contains("alone over fast"));
        let row = "| alone over fast | - | - | <= 2 | - | not measured | `speed` |";
        assert!(render_table(&read).contains(row), "{}", render_table(&read));
        assert_eq!(fs::read(&file).expect("it is there"), recorded);
        fs::write(experiments.join("speed.toml"), "name = 'speed'").expect("it can be written");
        assert!(read_all(&results).expect_err("it is no experiment").to_string().contains("`speed`"));
    }

    #[test]
    fn a_bound_that_was_added_since_is_missed_all_the_same() {
        let mut result = result();
        let mut rules = vec![crate::experiment::tests::example().claims[0].clone()];
        (rules[0].required, rules[0].goal) = (Some(10.0), None);
        result.state(&rules);
        assert_eq!(judge(&[result], scratch().path()).exit_code(), 1);
    }
}
