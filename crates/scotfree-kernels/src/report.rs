//! A guest's report: one line on its console, and the same line with the package that the kernel came in.
//!
//! Invariant: what is read is what was written; whatever else stands on a console is no report.

use anyhow::{bail, Context, Result};
use std::fmt;
use std::str::FromStr;

/// Begins a report.
const MARK: &str = "scot-kernel-report";

/// What became of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It worked.
    Yes,
    /// It was not tried, since one before it failed.
    Untried,
    /// It failed, and why.
    No(String),
}

impl Outcome {
    pub fn of(result: Result<()>) -> Outcome {
        result.map_or_else(|error| Outcome::No(one_line(&format!("{error:#}"))), |()| Outcome::Yes)
    }
}

/// What the kernel of a guest did with the programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The kernel's release, as it says itself.
    pub release: String,
    /// It takes the programs.
    pub loads: Outcome,
    /// They can be attached to veth ports in the driver.
    pub native: Outcome,
    /// A ping passes between two hosts, through the programs alone.
    pub bridges: Outcome,
    /// They do what the machine does.
    pub agrees: Outcome,
    /// With how many packets that was tried.
    pub packets: u32,
}

impl Report {
    /// Of a guest that printed none.
    pub fn of_silence(release: &str, reason: &str) -> Report {
        Report { loads: Outcome::No(one_line(reason)), ..Report::untried(release.to_owned()) }
    }

    /// Before anything was tried.
    pub fn untried(release: String) -> Report {
        let untried = || Outcome::Untried;
        Report {
            release,
            loads: untried(),
            native: untried(),
            bridges: untried(),
            agrees: untried(),
            packets: 0,
        }
    }

    /// Whether the programs may be used on this kernel.
    pub fn is_supported(&self) -> bool {
        [&self.loads, &self.native, &self.bridges, &self.agrees].iter().all(|step| **step == Outcome::Yes)
    }
}

/// A report and the package that the kernel came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// The package, with its version.
    pub package: String,
    /// What was found.
    pub report: Report,
}

/// The last report on a console.
pub fn find(console: &str) -> Option<Report> {
    let mut lines = console.lines().rev().map(|line| line.trim_end_matches('\r'));
    lines.find_map(|line| line.parse().ok())
}

/// A reason as one field: without line ends and tabs.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Outcome::Yes => write!(f, "yes"),
            Outcome::Untried => write!(f, "untried"),
            Outcome::No(reason) => write!(f, "no: {reason}"),
        }
    }
}

impl FromStr for Outcome {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Outcome> {
        match text {
            "yes" => Ok(Outcome::Yes),
            "untried" => Ok(Outcome::Untried),
            _ => match text.strip_prefix("no: ") {
                Some(reason) => Ok(Outcome::No(reason.to_owned())),
                None => bail!("`{text}` is no outcome"),
            },
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Report { release, loads, native, bridges, agrees, packets } = self;
        write!(f, "{MARK}\t{release}\t{loads}\t{native}\t{bridges}\t{agrees}\t{packets}")
    }
}

impl FromStr for Report {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Report> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [MARK, release, loads, native, bridges, agrees, packets] = fields[..] else {
            bail!("`{line}` is no report");
        };
        Ok(Report {
            release: release.to_owned(),
            loads: loads.parse()?,
            native: native.parse()?,
            bridges: bridges.parse()?,
            agrees: agrees.parse()?,
            packets: packets.parse().context("the number of packets")?,
        })
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}\t{}", self.package, self.report)
    }
}

impl FromStr for Tried {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Tried> {
        let (package, report) =
            line.split_once('\t').with_context(|| format!("`{line}` names no package"))?;
        Ok(Tried { package: package.to_owned(), report: report.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Report {
        Report {
            release: "6.1.0-1-amd64".to_owned(),
            loads: Outcome::Yes,
            native: Outcome::Yes,
            bridges: Outcome::Yes,
            agrees: Outcome::Yes,
            packets: 4000,
        }
    }

    #[test]
    fn what_is_read_is_what_was_written() {
        let refused = Outcome::of(Err(anyhow::anyhow!("R3 is\n\tunbounded: no")));
        for report in [
            good(),
            Report { loads: refused, ..Report::untried("5.10.0".to_owned()) },
            Report::of_silence("5.10.0", "killed\tafter 3 s"),
        ] {
            assert_eq!(report.to_string().parse::<Report>().expect("it was written"), report);
            let tried = Tried { package: "linux-image=6.1.1-1".to_owned(), report };
            assert_eq!(tried.to_string().parse::<Tried>().expect("it was written"), tried);
        }
    }

    #[test]
    fn a_report_is_found_among_what_else_a_console_shows() {
        let console = format!(
            "SeaBIOS\r\nscot-kernel-report: soon\r\n[ 1.0] Linux\r\n\r\n{}\r\n[ 9.9] Power down",
            good()
        );
        assert_eq!(find(&console), Some(good()));
    }

    #[test]
    fn a_report_that_broke_off_is_none() {
        let line = good().to_string();
        let (cut, _) = line.rsplit_once('\t').expect("it has fields");
        assert_eq!(find(cut), None);
        assert_eq!(find(&line.replace("yes\tyes", "yes\tperhaps")), None);
        assert_eq!(find(&line.replace("4000", "many")), None);
    }

    #[test]
    fn a_kernel_is_supported_only_if_every_step_worked() {
        assert!(good().is_supported());
        let no = || Outcome::No("why".to_owned());
        assert!(!Report { loads: no(), ..good() }.is_supported());
        assert!(!Report { native: no(), ..good() }.is_supported());
        assert!(!Report { bridges: Outcome::Untried, ..good() }.is_supported());
        assert!(!Report { agrees: no(), ..good() }.is_supported());
        assert!(!Report::of_silence("6.1", "it hung").is_supported());
    }
}
