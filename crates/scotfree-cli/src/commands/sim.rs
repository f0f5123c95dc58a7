//! The command `scot sim`.
//!
//! Invariant: a violated invariant is exit code 1, with the seed that repeats it.

use crate::cli::Sim;
use crate::failure::Failure;
use crate::out;
use crate::registry::{self, World};
use scotfree_io::stderr;
use scotfree_sim::Depth;
use std::io::IsTerminal;
use std::ops::Range;
use std::time::Instant;

/// The kind of scenarios that `--storm` stands for.
const STORM: &str = "storm";

pub fn run(flags: &Sim) -> Result<(), Failure> {
    if let Some(settings) = &flags.timed {
        return timed(flags, settings, &registry::worlds());
    }
    let chosen = Chosen::of(flags, &registry::worlds())?;
    match (&flags.seeds, flags.seed) {
        (Some(seeds), _) => chosen.many(range(seeds)?),
        (None, Some(seed)) => chosen.one(seed, if flags.trace { Depth::All } else { Depth::Last }),
        (None, None) => Err(Failure::usage("give --seeds FIRST..END or --seed SEED")),
    }
}

/// Numbers in simulated time: an overview where no setup is named.
fn timed(flags: &Sim, settings: &str, worlds: &[World]) -> Result<(), Failure> {
    let world = world(worlds, flags.remedy.as_deref())?;
    let timing = world.timing.ok_or_else(|| {
        let known: Vec<&str> =
            worlds.iter().filter(|world| world.timing.is_some()).map(|world| world.name).collect();
        let (name, known) = (world.name, known.join(", "));
        Failure::usage(format!("{name} is not in simulated time; say --remedy with one that is: {known}"))
    })?;
    let seed = flags.seed.unwrap_or(1);
    if settings.is_empty() && !flags.json {
        out::text(timing.overview(seed));
        return Ok(());
    }
    let numbers = timing.measure(settings, seed).map_err(Failure::usage)?;
    if flags.json {
        out::line(serde_json::to_string(&numbers).expect("names and numbers are JSON"));
    } else {
        for (name, number) in &numbers {
            out::line(format_args!("{name:>24} {number:.3}"));
        }
    }
    Ok(())
}

fn range(text: &str) -> Result<Range<u64>, Failure> {
    let parsed = text.split_once("..").and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    parsed.filter(|range: &Range<u64>| !range.is_empty()).ok_or_else(|| {
        Failure::usage(format!("`{text}` is no range of seeds; allowed is FIRST..END, such as 0..2000"))
    })
}

/// Which worlds are run.
struct Chosen {
    world: World,
    /// The place of its kind of scenarios.
    kind: usize,
    /// The flags that choose the same again.
    repeat: String,
}

impl Chosen {
    fn of(flags: &Sim, worlds: &[World]) -> Result<Chosen, Failure> {
        let world = world(worlds, flags.remedy.as_deref())?;
        let kinds = world.simulation.kinds();
        let wanted = if flags.storm { Some(STORM) } else { flags.kind.as_deref() };
        let place = wanted.map_or(Some(0), |wanted| kinds.iter().position(|(name, _)| *name == wanted));
        let kind = place.ok_or_else(|| {
            let (wanted, name) = (wanted.unwrap_or_default(), world.name);
            let known = kinds.iter().map(|(name, about)| format!("\n  {name}: {about}"));
            let known = known.collect::<Vec<_>>().concat();
            Failure::usage(format!("{name} has no scenarios of the kind `{wanted}`; it has:{known}"))
        })?;
        Ok(Chosen { world, kind, repeat: repeat(flags) })
    }

    fn one(&self, seed: u64, depth: Depth) -> Result<(), Failure> {
        match self.world.simulation.one(self.kind, seed, depth) {
            Ok(report) => {
                out::text(report);
                Ok(())
            }
            Err(failure) => {
                out::text(failure);
                Err(Failure::Verdict)
            }
        }
    }

    fn many(&self, seeds: Range<u64>) -> Result<(), Failure> {
        let begun = Instant::now();
        let count = seeds.end - seeds.start;
        let is_terminal = std::io::stderr().is_terminal();
        let mut shown = Instant::now();
        let told = self.world.simulation.many(self.kind, seeds, &mut |progress| {
            if is_terminal && shown.elapsed().as_millis() >= 200 {
                shown = Instant::now();
                stderr::text(format_args!(
                    "\r{} of {count} seeds, {} failed ",
                    progress.done_count, progress.failed_count
                ));
            }
        });
        if is_terminal {
            stderr::text(format_args!("\r\x1b[K"));
        }
        out::text(told.total);
        out::line(format_args!("{:>20} {:.1} s", "wall clock", begun.elapsed().as_secs_f64()));
        for (seed, broken) in &told.failures {
            out::line(format_args!(
                "seed {seed}: {broken}; repeat it: scot sim --seed {seed}{}",
                self.repeat
            ));
        }
        if told.failures.is_empty() {
            Ok(())
        } else {
            Err(Failure::Verdict)
        }
    }
}

fn world(worlds: &[World], wanted: Option<&str>) -> Result<World, Failure> {
    let found = match wanted {
        None => worlds.first(),
        Some(wanted) => worlds.iter().find(|world| world.name == wanted),
    };
    found.copied().ok_or_else(|| {
        let names: Vec<&str> = worlds.iter().map(|world| world.name).collect();
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let problem = match wanted {
            None => "no remedy that is built in has worlds".to_owned(),
            Some(wanted) => format!("`{wanted}` is no remedy with worlds; those with worlds: {known}"),
        };
        Failure::usage(problem)
    })
}

fn repeat(flags: &Sim) -> String {
    let remedy = flags.remedy.as_ref().map(|name| format!(" --remedy {name}"));
    let kind = flags.kind.as_ref().map(|name| format!(" --kind {name}"));
    let storm = flags.storm.then(|| " --storm".to_owned());
    remedy.into_iter().chain(kind).chain(storm).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_sim::{Progress, Simulation, Timing, Told};
    use std::collections::BTreeMap;

    /// Worlds of two kinds that always fail.
    #[derive(Debug)]
    struct Failing;

    impl Simulation for Failing {
        fn kinds(&self) -> Vec<(&'static str, &'static str)> {
            vec![("plain", "nothing happens"), (STORM, "all happens")]
        }

        fn one(&self, kind: usize, seed: u64, _depth: Depth) -> Result<String, String> {
            Err(format!("{kind} {seed}"))
        }

        fn many(&self, _: usize, seeds: Range<u64>, _: &mut (dyn FnMut(Progress) + Send)) -> Told {
            Told {
                total: String::new(),
                failures: seeds.map(|seed| (seed, "Broken: by hand".into())).collect(),
            }
        }
    }

    /// A remedy in simulated time, in which all takes as long as its settings are.
    #[derive(Debug)]
    struct Long;

    impl Timing for Long {
        fn measure(&self, settings: &str, _seed: u64) -> Result<BTreeMap<String, f64>, String> {
            let known = settings.strip_prefix("long=").ok_or("it is `long`")?;
            Ok(BTreeMap::from([("long".into(), known.len() as f64)]))
        }

        fn overview(&self, seed: u64) -> String {
            format!("{seed}")
        }
    }

    const WORLDS: [World; 2] = [
        World { name: "first", simulation: &Failing, timing: None },
        World { name: "second", simulation: &Failing, timing: Some(&Long) },
    ];

    fn flags(remedy: Option<&str>, kind: Option<&str>, storm: bool) -> Sim {
        let (remedy, kind) = (remedy.map(str::to_owned), kind.map(str::to_owned));
        Sim { seeds: None, seed: Some(7), trace: false, storm, remedy, kind, timed: None, json: false }
    }

    fn chosen(flags: &Sim) -> (&'static str, usize, String) {
        let chosen = Chosen::of(flags, &WORLDS).expect("both are there");
        (chosen.world.name, chosen.kind, chosen.repeat)
    }

    #[test]
    fn remedy_and_kind_are_chosen_by_name_and_are_the_first_without() {
        assert_eq!(chosen(&flags(None, None, false)), ("first", 0, String::new()));
        assert_eq!(chosen(&flags(None, None, true)), ("first", 1, " --storm".into()));
        let named = chosen(&flags(Some("second"), Some("plain"), false));
        assert_eq!(named, ("second", 0, " --remedy second --kind plain".into()));
    }

    #[test]
    fn an_unknown_name_is_refused_with_those_that_there_are() {
        let refusal = |flags: &Sim, worlds: &[World]| {
            Chosen::of(flags, worlds).err().map(|failure| (failure.code(), failure.to_string()))
        };
        let (code, text) = refusal(&flags(Some("third"), None, false), &WORLDS).expect("there is no third");
        assert!(code == 2 && text.contains("`third`") && text.contains("first, second"), "{text}");
        let (code, text) = refusal(&flags(None, Some("calm"), false), &WORLDS).expect("nothing is calm");
        assert!(
            code == 2 && text.contains("`calm`") && text.contains("\n  plain: nothing happens"),
            "{text}"
        );
        let (code, text) = refusal(&flags(None, None, false), &[]).expect("there are none");
        assert!(code == 2 && text.contains("no remedy"), "{text}");
    }

    #[test]
    fn a_remedy_without_simulated_time_and_settings_that_it_does_not_know_are_refused() {
        let told = |remedy, settings| timed(&flags(Some(remedy), None, false), settings, &WORLDS);
        let refusal = told("first", "").expect_err("it has none");
        assert!(refusal.code() == 2 && refusal.to_string().contains("second"), "{refusal}");
        let refusal = told("second", "wide=3").expect_err("it is long").to_string();
        assert!(refusal.contains("`long`"), "{refusal}");
        assert!(told("second", "long=3").is_ok() && told("second", "").is_ok());
    }

    #[test]
    fn runs_that_fail_are_a_verdict() {
        let chosen = Chosen::of(&flags(None, None, false), &WORLDS).expect("both are there");
        assert!(matches!(chosen.one(7, Depth::Last), Err(Failure::Verdict)));
        assert!(matches!(chosen.many(0..2), Err(Failure::Verdict)));
    }
}
