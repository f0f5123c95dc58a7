//! Whether a log that is to lie in persistent memory can.
//!
//! Invariant: what is tried is what a start of the device tries, and it leaves nothing.

use super::{Environment, Finding, State};
use std::path::{Path, PathBuf};

pub(super) fn check(environment: &dyn Environment, logs: &[PathBuf]) -> Vec<Finding> {
    logs.iter().map(|path| check_one(environment, path)).collect()
}

fn check_one(environment: &dyn Environment, path: &Path) -> Finding {
    let check = format!("persistent memory under pmem:{}", path.display());
    match environment.try_pmem(path) {
        Ok(instruction) => Finding::ok(
            check,
            format!("the file system grants MAP_SYNC (DAX), the processor flushes with {instruction}"),
        ),
        Err(problem) => Finding::lacks(
            check,
            State::Must,
            problem,
            format!(
                "give a file on a file system mounted with -o dax on persistent memory: findmnt -O dax; or \
                 --log ram:{0} or disk:{0}",
                path.display()
            ),
        ),
    }
}
