//! Which clang compiles the programs in the kernel; part of the build scripts that do it.
//!
//! Invariant: scripts/common.sh chooses alike.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::process::Command;

/// The oldest that will do, and the one that the programs are tried with most.
const VERSION_MIN: u32 = 14;
/// What to do if compiling fails.
pub const ADVICE: &str =
    "wanted: clang 14 or newer (CLANG=PROGRAM names one) and libbpf's headers (Debian: apt-get \
                          install clang libbpf-dev)";

/// The compiler: that of the variable `CLANG`, or what [`choose`] takes of those in the path.
pub fn find() -> String {
    env::var("CLANG").unwrap_or_else(|_| {
        // Where there is none, the error of running this one is the one to be told.
        choose(&versions_in_path(), usual_version()).unwrap_or_else(|| format!("clang-{VERSION_MIN}"))
    })
}

/// Of the versions N that are there as `clang-N`, and that of `clang`: the known one, or else the newest.
pub fn choose(versions: &[u32], usual: Option<u32>) -> Option<String> {
    let newest = versions.iter().copied().filter(|version| *version >= VERSION_MIN).max();
    let numbered = if versions.contains(&VERSION_MIN) { Some(VERSION_MIN) } else { newest };
    numbered
        .map(|version| format!("clang-{version}"))
        .or_else(|| usual.filter(|version| *version >= VERSION_MIN).map(|_| "clang".to_owned()))
}

fn versions_in_path() -> Vec<u32> {
    let folders = env::var_os("PATH").unwrap_or_default();
    let entries =
        env::split_paths(&folders).filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    entries.filter_map(|entry| version_in_name(&entry.file_name())).collect()
}

fn version_in_name(name: &OsString) -> Option<u32> {
    name.to_str()?.strip_prefix("clang-")?.parse().ok()
}

fn usual_version() -> Option<u32> {
    let told = Command::new("clang").arg("--version").output().ok()?;
    version_told(&String::from_utf8_lossy(&told.stdout))
}

/// The version in what `clang --version` prints.
pub fn version_told(text: &str) -> Option<u32> {
    let (_, rest) = text.lines().next()?.split_once("version ")?;
    rest.split('.').next()?.parse().ok()
}
