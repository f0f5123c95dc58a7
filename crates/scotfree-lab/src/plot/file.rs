//! Specifications as files: `lab/results/plots/NAME.vl.json`, beside which its picture `NAME.png` is laid.
//!
//! Invariant: a file names the measurement it was made of, and has a mark that no other has; a picture has
//! the mark of the specification that it was drawn from, so that it is seen when one is older than another.

use super::specification;
use crate::experiment::Experiment;
use crate::results::{short, ExperimentResult};
use scotfree_stage::trouble::Trouble;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of plots in that of the results.
pub const FOLDER: &str = "plots";

/// The content of the file.
pub fn text(experiment: &Experiment, result: &ExperimentResult) -> Result<String, Trouble> {
    let mut specification = specification(experiment, result).map_err(|problem| {
        let tried = format!("make the plot of `{}`", result.experiment);
        Trouble::new(tried, problem, "measure it again, or mend the [[plot]] of its file")
    })?;
    let sum = crc32c::crc32c(specification.to_string().as_bytes());
    let environment = &result.environment;
    specification["usermeta"] = json!({
        "experiment": result.experiment,
        "commit": environment.commit,
        "date": environment.date,
        "mark": format!("{} {} {} {sum:08x}", result.experiment, short(&environment.commit), environment.date),
    });
    Ok(format!("{specification}\n"))
}

/// Writes the file into the folder `plots` of that of the results, whole or not at all.
pub fn write(experiment: &Experiment, result: &ExperimentResult, results: &Path) -> Result<PathBuf, Trouble> {
    let text = text(experiment, result)?;
    let folder = results.join(FOLDER);
    let file = folder.join(format!("{}.vl.json", result.experiment));
    let draft = folder.join(format!("{}.{}.draft", result.experiment, std::process::id()));
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(&draft, text))
        .and_then(|()| fs::rename(&draft, &file))
        .map_err(|error| Trouble::file("write", &file, &error))?;
    Ok(file)
}
