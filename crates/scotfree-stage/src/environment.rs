//! On what, of what and when a measurement was made.
//!
//! Invariant: what cannot be found out is `unknown`, never left out and never guessed.

use crate::process::run;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// What stands where something could not be found out.
pub const UNKNOWN: &str = "unknown";

/// For how many nanoseconds idle processors look for work before they halt (Linux, `cpuidle-haltpoll`).
pub const HALT_POLL_FILE: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";

/// The circumstances of a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Processors, memory, and what idle processors do.
    pub machine: String,
    /// The processor's model, to the stepping; results from before this was recorded do not say it.
    #[serde(default = "unknown", skip_serializing_if = "is_unknown")]
    pub processor: String,
    /// The kernel's release.
    pub kernel: String,
    /// At which priority what was measured ran (priority.rs); results from before this was recorded do not say it.
    #[serde(default = "unknown", skip_serializing_if = "is_unknown")]
    pub priority: String,
    /// The commit whose code was measured.
    pub commit: String,
    /// Whether the code that was measured had changes that are in no commit.
    pub has_uncommitted_changes: bool,
    /// When, in UTC.
    pub date: String,
    /// The load averages of 1, 5 and 15 minutes before the measurement: what else the machine did.
    pub load_average: String,
}

impl Environment {
    /// Finds out all of it. `covers` are the paths in `repository` whose code is measured.
    pub fn observe(repository: &Path, covers: &[String]) -> Environment {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").ok();
        Environment {
            machine: machine(),
            processor: processor(),
            kernel: kernel.map_or(UNKNOWN.to_owned(), |text| text.trim().to_owned()),
            priority: UNKNOWN.to_owned(),
            commit: git(repository, &["rev-parse", "HEAD"]).unwrap_or(UNKNOWN.to_owned()),
            has_uncommitted_changes: has_uncommitted_changes(repository, covers),
            date: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(UNKNOWN.to_owned(), |span| utc(span.as_secs())),
            load_average: load_average(),
        }
    }
}

fn unknown() -> String {
    UNKNOWN.to_owned()
}

fn is_unknown(text: &str) -> bool {
    text == UNKNOWN
}

/// Whether the code of a measurement is still the repository's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Freshness {
    /// No commit has touched it since.
    Fresh,
    /// So many commits have.
    Stale(u64),
    /// Git cannot tell, for this reason.
    Unknown(String),
}

/// Tests of the code that is covered: no measurement runs them.
const NOT_MEASURED: &str = ":(exclude,glob)**/tests/**";

/// Compares the code of a measurement with the repository's.
pub fn freshness(repository: &Path, commit: &str, covers: &[String]) -> Freshness {
    if !commit.bytes().all(|byte| byte.is_ascii_hexdigit()) || commit.len() < 7 {
        return Freshness::Unknown("the commit measured is not known".into());
    }
    let range = format!("{commit}..HEAD");
    let mut words = vec!["rev-list", "--count", &range, "--", NOT_MEASURED];
    words.extend(covers.iter().map(String::as_str));
    match git(repository, &words).map(|count| count.parse()) {
        Ok(Ok(0)) => Freshness::Fresh,
        Ok(Ok(count)) => Freshness::Stale(count),
        Ok(Err(_)) => Freshness::Unknown("git printed no number".into()),
        Err(problem) => Freshness::Unknown(problem),
    }
}

fn has_uncommitted_changes(repository: &Path, covers: &[String]) -> bool {
    let mut words = vec!["status", "--porcelain", "--", NOT_MEASURED];
    words.extend(covers.iter().map(String::as_str));
    // Without git nothing is known to be committed.
    git(repository, &words).map_or(true, |changes| !changes.is_empty())
}

pub(crate) fn git(repository: &Path, args: &[&str]) -> Result<String, String> {
    let folder = ["-C".as_ref(), repository.as_os_str()];
    run("git", folder.into_iter().chain(args.iter().map(AsRef::as_ref)))
        .map(|text| text.trim().to_owned())
        .map_err(|trouble| trouble.problem)
}

/// The processor's model with what tells two of one name apart, where the kernel says it.
fn processor() -> String {
    let field = |key| field_of("/proc/cpuinfo", key);
    let Some(model) = field("model name") else { return unknown() };
    let parts = [("family", "cpu family"), ("model", "model"), ("stepping", "stepping")];
    let parts = parts.into_iter().filter_map(|(name, key)| Some(format!(" {name} {}", field(key)?)));
    parts.fold(model, |text, part| text + &part)
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(UNKNOWN.to_owned(), |count| count.to_string());
    let model = field_of("/proc/cpuinfo", "model name").unwrap_or(UNKNOWN.to_owned());
    let memory = field_of("/proc/meminfo", "MemTotal")
        .and_then(|text| text.strip_suffix(" kB")?.parse::<f64>().ok())
        .map_or(UNKNOWN.to_owned(), |kib| format!("{:.1} GiB", kib / f64::from(1 << 20)));
    format!("{cores} x {model}, {memory}{}", idle(fs::read_to_string(HALT_POLL_FILE).ok().as_deref()))
}

/// What the processors of a virtual machine do that have nothing to do: to wake one that has halted takes a way through
/// the host. Nothing of a machine that is no such, or has no such setting.
fn idle(halt_poll_ns: Option<&str>) -> String {
    match halt_poll_ns.and_then(|text| text.trim().parse::<u64>().ok()) {
        Some(0) => ", idle processors halt at once".to_owned(),
        Some(nanos) => format!(", idle processors look for {} us before they halt", nanos / 1_000),
        None => String::new(),
    }
}

/// The value behind a key of a file of lines `key: value`, if there is one.
pub fn field_of(file: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    let value = fields.into_iter().find(|(name, _)| name.trim() == key)?.1.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let averages: Vec<&str> = text.split_whitespace().take(3).collect();
    if averages.len() == 3 {
        averages.join(" ")
    } else {
        UNKNOWN.to_owned()
    }
}

/// Seconds since 1970 as `2025-01-31T12:34:56Z`.
fn utc(unix_s: u64) -> String {
    const DAY_S: u64 = 86_400;
    let (mut days, second) = (unix_s / DAY_S, unix_s % DAY_S);
    let mut year = 1970;
    while days >= days_of_year(year) {
        days -= days_of_year(year);
        year += 1;
    }
    let mut month = 0;
    while days >= days_of_month(year, month) {
        days -= days_of_month(year, month);
        month += 1;
    }
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!("{year}-{:02}-{:02}T{hour:02}:{minute:02}:{:02}Z", month + 1, days + 1, second % 60)
}

fn days_of_year(year: u64) -> u64 {
    365 + u64::from(is_leap(year))
}

fn days_of_month(year: u64, month: usize) -> u64 {
    const DAYS: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    DAYS[month] + u64::from(month == 1 && is_leap(year))
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fakes::Repository;
    use crate::scratch::Scratch;

    #[test]
    fn what_idle_processors_do_is_said_where_it_is_set() {
        for (setting, said) in [
            (Some("0\n"), ", idle processors halt at once"),
            (Some("200000\n"), ", idle processors look for 200 us before they halt"),
            (None, ""),
        ] {
            assert_eq!(idle(setting), said);
        }
    }

    #[test]
    fn what_was_recorded_before_processor_and_priority_were_says_that_they_are_unknown() {
        let text = r#"{"machine":"2 x test, 1.0 GiB","kernel":"6.1","commit":"c","has_uncommitted_changes":false,"date":"d","load_average":"l"}"#;
        let environment: Environment = serde_json::from_str(text).expect("it is an environment");
        assert_eq!((environment.processor.as_str(), environment.priority.as_str()), (UNKNOWN, UNKNOWN));
        assert_eq!(serde_json::to_string(&environment).expect("it is JSON"), text);
    }

    #[test]
    fn dates_are_right() {
        for (unix_s, wanted) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_763_705_045, "2025-11-21T06:04:05Z"),
        ] {
            assert_eq!(utc(unix_s), wanted);
        }
    }

    #[test]
    fn without_a_repository_the_commit_is_unknown() {
        let folder = Scratch::new("no-repository").expect("temporary files can be written");
        let environment = Environment::observe(folder.path(), &[]);
        assert_eq!(environment.commit, UNKNOWN);
        assert!(environment.has_uncommitted_changes);
        assert!(environment.machine.contains(" x "));
        assert_ne!(environment.processor, UNKNOWN, "this machine says what it is");
        assert_eq!(environment.priority, UNKNOWN, "who measures says that");
        assert!(matches!(freshness(folder.path(), UNKNOWN, &[]), Freshness::Unknown(_)));
        assert!(matches!(freshness(folder.path(), &"a".repeat(40), &[]), Freshness::Unknown(_)));
    }

    #[test]
    fn a_measurement_is_stale_when_a_later_commit_touches_its_code() {
        let Some(repository) = Repository::new() else { return };
        let covers = ["code".to_owned()];
        repository.commit("code/a", "1");
        let observed = Environment::observe(repository.folder.path(), &covers);
        let freshness = || freshness(repository.folder.path(), &observed.commit, &covers);
        assert!(!observed.has_uncommitted_changes);
        assert_eq!(freshness(), Freshness::Fresh);
        repository.commit("docs/b", "1");
        assert_eq!(freshness(), Freshness::Fresh);
        repository.commit("code/tests/c", "1");
        assert_eq!(freshness(), Freshness::Fresh, "tests are no part of what is measured");
        repository.commit("code/a", "2");
        assert_eq!(freshness(), Freshness::Stale(1));
        repository.write("code/a", "3");
        assert!(Environment::observe(repository.folder.path(), &covers).has_uncommitted_changes);
    }
}
