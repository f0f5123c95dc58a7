//! The document docs/kernels.md.
//!
//! Invariant: a kernel is called supported only if every step of its trial worked.

use crate::report::{Outcome, Tried};
use std::fmt::Write;

const OPENING: &str = "\
# Kernels

<!-- Made by `make kernels`: change crates/scotfree-kernels/src/table.rs, not this file. -->

On which kernels `scot switch --plane xdp` runs is tried, not hoped. `make kernels` boots the kernels that \
Debian's packages offer, each in a virtual machine of its own, and there

1. *loads* the device's programs;
2. attaches them *natively*, in the driver, to two veth ports, and pairs the ports for acknowledgements;
3. *bridges*: two hosts behind the ports ping each other through the programs;
4. runs the *equivalence* test: programs and device machine must do the same with that many random packets.

**A kernel that does not stand in this table as supported failed, or was not tried like this.** Where it failed, and \
where `scot doctor`, which loads the programs, is refused: use `--plane user`. One that takes them and does not stand \
here can run them, and `scot demo` then does so by itself; but for the one below nobody has shown that programs and \
machine do the same on it: for what must not fail take a kernel of the table. Real network drivers are not tried.

The results in lab/results are of a kernel that does not stand here, for Debian's suites offer other ones: Linux 6.18, a \
virtual machine's own build (6.18.44-fc-v669). It was not booted for this table. `scot doctor` finds the programs \
taken, the demo runs on them, and the project's tests run on it, equivalence and trials on veth among them.
";

const NEEDS: &str = "\
## What the programs need of a kernel

| what | for | since Linux |
|---|---|---|
| `bpf_xdp_load_bytes` | copying a packet into its slot, and into the ring to the daemon | 5.18 |
| broadcast by a device map | flooding; a request and its acknowledgement made of one frame | 5.14 |
| atomic operations that return the old value | order numbers | 5.12 |
| XDP attachments as links | replacing a port's program in one step, keeping it when the daemon ends | 5.9 |
| programs of device maps | the clone that becomes the acknowledgement | 5.8 |
| ring buffer | what the daemon deals with | 5.8 |
| array maps that can be mapped | the log's slots | 5.5 |
| device maps by interface number | ports | 5.4 |
| spin locks in maps | a session's state | 5.1 |

When a feature came is Linux's own history. Between 5.18 and the oldest supported kernel above nothing was \
tried, and a verifier of that age may refuse what a newer one understands.
";

/// The whole document.
pub fn document(tried: &[Tried], date: &str, commit: &str) -> String {
    let mut text = format!("{OPENING}\nTried on {date} at commit {commit}, x86-64.\n\n");
    text += "| kernel | package | loads | native veth | bridges | equivalence | verdict |\n|---|---|---|---|---|---|---|\n";
    let mut reasons = Vec::new();
    for Tried { package, report } in tried {
        let [loads, native, bridges] =
            [&report.loads, &report.native, &report.bridges].map(|step| cell(step, &mut reasons));
        let agrees = match &report.agrees {
            Outcome::Yes => format!("{} packets", report.packets),
            other => cell(other, &mut reasons),
        };
        let verdict = if report.is_supported() { "supported" } else { "unsupported" };
        let release = &report.release;
        let row = writeln!(
            text,
            "| {release} | {package} | {loads} | {native} | {bridges} | {agrees} | {verdict} |"
        );
        row.expect("a string takes it");
    }
    text.push('\n');
    for (index, reason) in reasons.iter().enumerate() {
        writeln!(text, "{}. `{}`", index + 1, reason.replace('`', "'")).expect("a string takes it");
    }
    if !reasons.is_empty() {
        text.push('\n');
    }
    text + NEEDS.trim_end()
}

/// The cell of a step; a reason goes below the table.
fn cell(step: &Outcome, reasons: &mut Vec<String>) -> String {
    match step {
        Outcome::Yes => "yes".to_owned(),
        Outcome::Untried => "–".to_owned(),
        Outcome::No(reason) => {
            reasons.push(reason.clone());
            format!("no [{}]", reasons.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;

    fn rows(tried: &[Tried]) -> Vec<String> {
        let text = document(tried, "2026-01-02", "abc");
        text.lines().filter(|line| line.contains("linux-image")).map(str::to_owned).collect()
    }

    /// What is said of a kernel outside of the table is what the results say of themselves.
    #[test]
    fn the_kernel_of_the_results_is_named() {
        let results = include_str!("../../../lab/results/kernel-ack.json");
        let line =
            results.lines().find(|line| line.trim_start().starts_with("\"kernel\"")).expect("it says so");
        let kernel = line.split('"').nth(3).expect("it is a text");
        assert!(OPENING.contains(&format!("({kernel})")), "lab/results is of {kernel}");
    }

    /// The document is made of this text and of trials, which are not made again for a word.
    #[test]
    fn the_document_begins_and_ends_as_here() {
        let document = include_str!("../../../docs/kernels.md");
        assert!(document.starts_with(OPENING) && document.ends_with(NEEDS));
    }

    fn tried(report: Report) -> Tried {
        Tried { package: "linux-image=1".to_owned(), report }
    }

    #[test]
    fn a_supported_kernel_shows_how_much_was_compared() {
        let yes = || Outcome::Yes;
        let report = Report {
            release: "6.1".to_owned(),
            loads: yes(),
            native: yes(),
            bridges: yes(),
            agrees: yes(),
            packets: 4000,
        };
        assert_eq!(
            rows(&[tried(report)]),
            ["| 6.1 | linux-image=1 | yes | yes | yes | 4000 packets | supported |"]
        );
    }

    #[test]
    fn reasons_stand_below_the_table_under_their_numbers() {
        let silent = |reason| tried(Report::of_silence("5.10", reason));
        let tried = [silent("R3 is `odd`"), silent("it hung")];
        assert_eq!(
            rows(&tried),
            [
                "| 5.10 | linux-image=1 | no [1] | – | – | – | unsupported |",
                "| 5.10 | linux-image=1 | no [2] | – | – | – | unsupported |",
            ]
        );
        let text = document(&tried, "2026-01-02", "abc");
        assert!(text.contains("\n1. `R3 is 'odd'`\n2. `it hung`\n"), "{text}");
        assert!(text.contains("Tried on 2026-01-02 at commit abc"), "{text}");
    }
}
