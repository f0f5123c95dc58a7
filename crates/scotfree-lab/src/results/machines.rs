//! On which machines results were measured: processors' models and kernels, so that no table mixes them silently.
//!
//! Invariant: what a result does not say is `unknown`, and is no machine that another result names.

use super::ExperimentResult;
use scotfree_stage::environment::{Environment, UNKNOWN};

/// A processor's model and a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Machine {
    processor: String,
    kernel: String,
}

impl Machine {
    /// That of a measurement.
    pub fn of(environment: &Environment) -> Machine {
        let processor = match environment.processor.as_str() {
            UNKNOWN => name_of_model(&environment.machine).unwrap_or(UNKNOWN),
            processor => processor,
        };
        Machine { processor: processor.to_owned(), kernel: environment.kernel.clone() }
    }

    /// In words.
    pub fn describe(&self) -> String {
        let Machine { processor, kernel } = self;
        format!("{processor}, Linux {kernel}")
    }
}

/// Whether two measurements were made on processors of one name and one kernel, as far as both say it: results from
/// before models were recorded have the name only.
pub(crate) fn is_same_machine(a: &Environment, b: &Environment) -> bool {
    let is_recorded = |environment: &Environment| environment.processor != UNKNOWN;
    let is_same_processor = if is_recorded(a) && is_recorded(b) {
        a.processor == b.processor
    } else {
        let (a, b) = (name_of_model(&a.machine), name_of_model(&b.machine));
        a.is_some() && a == b
    };
    is_same_processor && a.kernel == b.kernel && a.kernel != UNKNOWN
}

/// The processor's name in what a result says of its machine: `2 x NAME, 1.0 GiB`.
fn name_of_model(machine: &str) -> Option<&str> {
    let (_, rest) = machine.split_once(" x ")?;
    let (name, _) = rest.split_once(", ")?;
    (name != UNKNOWN).then_some(name)
}

/// The machines of some results.
pub(super) struct Machines {
    // Of each result, the place of its machine in `all`.
    of_results: Vec<usize>,
    all: Vec<Machine>,
}

impl Machines {
    pub fn of(results: &[ExperimentResult]) -> Machines {
        let mut machines = Machines { of_results: Vec::new(), all: Vec::new() };
        for result in results {
            let machine = Machine::of(&result.environment);
            let known = machines.all.iter().position(|known| *known == machine);
            machines.of_results.push(known.unwrap_or(machines.all.len()));
            if known.is_none() {
                machines.all.push(machine);
            }
        }
        machines
    }

    /// What marks a result where there are several machines.
    pub fn mark(&self, result: usize) -> Option<String> {
        (self.all.len() > 1).then(|| name_of(self.of_results[result]))
    }

    /// What the marks mean, with the results by what they are called; nothing if there is one machine.
    pub fn legend(&self, called: impl Fn(usize) -> String) -> Vec<String> {
        if self.all.len() < 2 {
            return Vec::new();
        }
        let mut lines = vec![format!(
            "Measured on {} machines; times on different ones are not to be compared:",
            self.all.len()
        )];
        let of = |place: usize, machine: &Machine| {
            let results = self.of_results.iter().enumerate().filter(|(_, of)| **of == place);
            let names: Vec<String> = results.map(|(result, _)| called(result)).collect();
            format!("{}: {}: {}", name_of(place), machine.describe(), names.join(", "))
        };
        lines.extend(self.all.iter().enumerate().map(|(place, machine)| of(place, machine)));
        lines
    }
}

fn name_of(place: usize) -> String {
    format!("M{}", place + 1)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{environment, result};
    use super::*;

    #[test]
    fn results_of_one_machine_are_not_marked() {
        let machines = Machines::of(&[result(), result()]);
        assert_eq!((machines.mark(1), machines.legend(|_| "x".into())), (None, Vec::new()));
    }

    #[test]
    fn results_of_several_machines_are_marked_and_the_machines_named() {
        let (mut old, mut other) = (result(), result());
        old.environment.processor = UNKNOWN.into();
        other.environment.kernel = "6.2".into();
        let machines = Machines::of(&[result(), old, other, result()]);
        let marks = [0, 1, 2, 3].map(|index| machines.mark(index).expect("there are several"));
        assert_eq!(marks, ["M1", "M2", "M3", "M1"]);
        assert_eq!(
            machines.legend(|result| format!("{}", result + 1)),
            [
                "Measured on 3 machines; times on different ones are not to be compared:",
                "M1: test family 1, Linux 6.1: 1, 4",
                "M2: test, Linux 6.1: 2",
                "M3: test family 1, Linux 6.2: 3",
            ]
        );
    }

    #[test]
    fn what_is_not_said_is_unknown() {
        let nothing = Environment { machine: "unknown".into(), processor: UNKNOWN.into(), ..environment() };
        assert_eq!(Machine::of(&nothing).describe(), "unknown, Linux 6.1");
        assert!(!is_same_machine(&nothing, &nothing));
        let old = Environment { processor: UNKNOWN.into(), ..environment() };
        assert!(is_same_machine(&old, &environment()), "the name is the same");
        let other = Environment { processor: "test family 2".into(), ..environment() };
        assert!(!is_same_machine(&other, &environment()));
    }
}
