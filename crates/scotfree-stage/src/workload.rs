//! A workload: which commands, on how many keys, how large, how fast.
//!
//! Invariant: the same workload with the same seed is the same sequence of commands on each connection.

use crate::config::Source;
use crate::trouble::ConfigError;
use serde::{Deserialize, Serialize};
use std::path::Path;
use toml::Spanned;

/// Connections of one load.
pub const CONNECTIONS_MAX: u32 = 64;
/// Connections of one that asks them in turns.
pub const CONNECTIONS_IN_TURNS_MAX: u32 = 20_000;
/// Requests of one connection that may wait for their replies.
pub const OUTSTANDING_MAX: u32 = 4_096;
/// Bytes of one value.
pub const VALUE_BYTES_MAX: u32 = 16 << 20;
/// Keys of one workload.
pub const KEYS_MAX: u64 = 100_000_000;
/// The longest load: a day.
pub const DURATION_MS_MAX: u64 = 24 * 3_600 * 1_000;
/// Requests per second of an open loop.
pub const RATE_MAX: f64 = 10_000_000.0;

/// A command that the load generator knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Command {
    /// Sets a key to a value.
    Set,
    /// Reads a key.
    Get,
    /// Appends a value to a list.
    Rpush,
    /// Counts a key up.
    Incr,
}

/// What is said behind a write that is to have reached replicas, however long that takes.
const WAIT: &[u8] = b"WAIT";

impl Command {
    /// All commands.
    pub const ALL: [Command; 4] = [Command::Set, Command::Get, Command::Rpush, Command::Incr];

    /// Its name in the protocol.
    pub const fn name(self) -> &'static str {
        match self {
            Command::Set => "SET",
            Command::Get => "GET",
            Command::Rpush => "RPUSH",
            Command::Incr => "INCR",
        }
    }

    const fn is_write(self) -> bool {
        match self {
            Command::Set | Command::Rpush | Command::Incr => true,
            Command::Get => false,
        }
    }
}

/// When requests are sent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Pace {
    /// A request is sent when a reply came: `outstanding` wait at any time.
    Closed {
        /// Requests of each connection that wait for their replies.
        outstanding: u32,
    },
    /// Requests are sent at their times, whether replies come or not.
    Open {
        /// Requests per second over all connections.
        rate: f64,
        /// How their times are spread.
        arrivals: Arrivals,
    },
    /// One request waits for its reply at any time, on a connection chosen at random; all others rest.
    Turns {
        /// Requests per second over all connections, at most.
        rate: f64,
    },
}

/// How the times of an open loop are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// The same time between any two.
    #[default]
    Uniform,
    /// At random, as from many independent callers.
    Poisson,
}

/// What is sent to a service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// Connections.
    pub connections: u32,
    /// When requests are sent.
    pub pace: Pace,
    /// The commands with their weights.
    pub mix: Vec<(Command, u32)>,
    /// The size of a value.
    pub value_bytes: u32,
    /// How many keys; each command takes one at random.
    pub keys: u64,
    /// The load ends after this many requests.
    pub requests_max: u64,
    /// The load ends after this many milliseconds.
    pub duration_ms_max: u64,
    /// Requests of the first milliseconds are sent but not measured.
    pub warmup_ms: u64,
    /// Where the randomness begins.
    pub seed: u64,
    /// Behind each write WAIT is sent with it, until so many replicas have it: a write is answered when both are. 0:
    /// none is asked for.
    #[serde(default)]
    pub replicas: u32,
}

impl Workload {
    /// Reads a workload file.
    pub fn read(file: &Path) -> Result<Workload, ConfigError> {
        Workload::parse(&Source::read(file)?)
    }

    /// Whether the answer to a command is two replies: its own, and how many replicas have it.
    pub(crate) fn waits_for_replicas(&self, command: Command) -> bool {
        self.replicas > 0 && command.is_write()
    }

    /// Reads a workload.
    pub fn parse(source: &Source) -> Result<Workload, ConfigError> {
        source.parse::<Form>()?.check(source)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    name: String,
    connections: Spanned<u32>,
    closed: Option<ClosedForm>,
    open: Option<OpenForm>,
    turns: Option<TurnsForm>,
    mix: Spanned<MixForm>,
    value_bytes: Spanned<u32>,
    keys: Spanned<u64>,
    requests_max: Option<Spanned<u64>>,
    duration_ms_max: Spanned<u64>,
    #[serde(default)]
    warmup_ms: u64,
    #[serde(default = "default_seed")]
    seed: u64,
}

fn default_seed() -> u64 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClosedForm {
    outstanding: Spanned<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenForm {
    rate: Spanned<f64>,
    #[serde(default)]
    arrivals: Arrivals,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnsForm {
    rate: Spanned<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "UPPERCASE")]
struct MixForm {
    #[serde(default)]
    set: u16,
    #[serde(default)]
    get: u16,
    #[serde(default)]
    rpush: u16,
    #[serde(default)]
    incr: u16,
}

impl Form {
    fn check(self, source: &Source) -> Result<Workload, ConfigError> {
        let connections_max = if self.turns.is_some() { CONNECTIONS_IN_TURNS_MAX } else { CONNECTIONS_MAX };
        within(source, "connections", &self.connections, 1, connections_max)?;
        within(source, "value_bytes", &self.value_bytes, 0, VALUE_BYTES_MAX)?;
        within(source, "keys", &self.keys, 1, KEYS_MAX)?;
        within(source, "duration_ms_max", &self.duration_ms_max, 1, DURATION_MS_MAX)?;
        if let Some(requests_max) = &self.requests_max {
            within(source, "requests_max", requests_max, 1, u64::MAX)?;
        }
        let mix = check_mix(source, &self.mix)?;
        let pace = match (self.closed, self.open, self.turns) {
            (Some(closed), None, None) => {
                within(source, "outstanding", &closed.outstanding, 1, OUTSTANDING_MAX)?;
                Pace::Closed { outstanding: closed.outstanding.into_inner() }
            }
            (None, Some(open), None) => {
                within(source, "rate", &open.rate, 0.001, RATE_MAX)?;
                Pace::Open { rate: open.rate.into_inner(), arrivals: open.arrivals }
            }
            (None, None, Some(turns)) => {
                within(source, "rate", &turns.rate, 0.001, RATE_MAX)?;
                Pace::Turns { rate: turns.rate.into_inner() }
            }
            _ => {
                return Err(source.error_at_top("", "exactly one of [closed], [open] and [turns] is allowed"))
            }
        };
        Ok(Workload {
            name: self.name,
            connections: self.connections.into_inner(),
            pace,
            mix,
            value_bytes: self.value_bytes.into_inner(),
            keys: self.keys.into_inner(),
            requests_max: self.requests_max.map_or(u64::MAX, Spanned::into_inner),
            duration_ms_max: self.duration_ms_max.into_inner(),
            warmup_ms: self.warmup_ms,
            seed: self.seed,
            replicas: 0,
        })
    }
}

fn check_mix(source: &Source, mix: &Spanned<MixForm>) -> Result<Vec<(Command, u32)>, ConfigError> {
    let MixForm { set, get, rpush, incr } = *mix.get_ref();
    let weights = [set, get, rpush, incr].map(u32::from);
    let mix_with_weights: Vec<_> =
        Command::ALL.into_iter().zip(weights).filter(|(_, weight)| *weight > 0).collect();
    if mix_with_weights.is_empty() {
        return Err(source.error(mix.span(), "mix", "one of SET, GET, RPUSH, INCR needs a weight above 0"));
    }
    Ok(mix_with_weights)
}

fn within<T: PartialOrd + Copy + std::fmt::Display>(
    source: &Source,
    key: &str,
    value: &Spanned<T>,
    min: T,
    max: T,
) -> Result<(), ConfigError> {
    // Written so that a value that is not a number is refused.
    if *value.get_ref() >= min && *value.get_ref() <= max {
        return Ok(());
    }
    Err(source.error(
        value.span(),
        key,
        format!("{} is not allowed; allowed are {min} to {max}", value.get_ref()),
    ))
}

/// A sequence of pseudo-random numbers (`SplitMix64`).
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The sequence of one of several users of a seed.
    pub fn new(seed: u64, user: u64) -> Random {
        let mut random = Random { state: seed ^ user.wrapping_mul(0xd1b5_4a32_d192_ed03) };
        random.next();
        random
    }

    /// Any number.
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number above 0, at most 1.
    pub fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

/// The commands of one connection.
#[derive(Debug, Clone)]
pub(crate) struct Commands<'a> {
    workload: &'a Workload,
    random: Random,
    weight_sum: u64,
    value: Vec<u8>,
}

impl<'a> Commands<'a> {
    pub(crate) fn new(workload: &'a Workload, connection: u32) -> Commands<'a> {
        let mut random = Random::new(workload.seed, u64::from(connection));
        let value = (0..workload.value_bytes).map(|_| b'a' + random.below(26) as u8).collect();
        let weight_sum = workload.mix.iter().map(|(_, weight)| u64::from(*weight)).sum();
        Commands { workload, random, weight_sum, value }
    }

    /// Hands the next command's words to `push`, and those of the WAIT behind it. Each command has keys of its own, since their types
    /// differ; SET and GET share theirs.
    pub(crate) fn next(&mut self, mut push: impl FnMut(&[&[u8]])) -> Command {
        let command = self.pick();
        let number = self.random.below(self.workload.keys);
        let key = match command {
            Command::Set | Command::Get => format!("scot:key:{number}"),
            Command::Rpush => format!("scot:list:{number}"),
            Command::Incr => format!("scot:count:{number}"),
        };
        let (name, key) = (command.name().as_bytes(), key.as_bytes());
        match command {
            Command::Set | Command::Rpush => push(&[name, key, &self.value]),
            Command::Get | Command::Incr => push(&[name, key]),
        }
        if self.workload.waits_for_replicas(command) {
            push(&[WAIT, self.workload.replicas.to_string().as_bytes(), b"0"]);
        }
        command
    }

    fn pick(&mut self) -> Command {
        let mut place = self.random.below(self.weight_sum);
        for (command, weight) in &self.workload.mix {
            match place.checked_sub(u64::from(*weight)) {
                None => return *command,
                Some(rest) => place = rest,
            }
        }
        unreachable!("the place is below the sum of the weights")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fakes::{example_workload, WORKLOAD as TEXT};

    #[test]
    fn the_workloads_of_the_lab_are_right() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/workloads");
        let mut count = 0;
        for file in std::fs::read_dir(folder).expect("it is there").flatten() {
            let workload = Workload::read(&file.path()).expect("it is a workload");
            assert_eq!(Some(workload.name.as_ref()), file.path().file_stem());
            count += 1;
        }
        assert!(count > 0);
    }

    #[test]
    fn what_is_not_allowed_is_named() {
        for (from, to, line, problem) in [
            ("connections = 2", "connections = 65", 2, "allowed are 1 to 64"),
            ("SET = 3", "SET = 0", 7, "needs a weight"),
            ("SET = 3", "DEL = 3", 8, "unknown field `DEL`"),
            ("[closed]\noutstanding = 1", "", 1, "exactly one"),
            ("outstanding = 1", "outstanding = 0", 10, "allowed are 1 to 4096"),
            ("[closed]\noutstanding = 1", "[open]\nrate = nan", 10, "NaN is not allowed"),
            ("[closed]\noutstanding = 1", "[turns]\nrate = 0", 10, "0 is not allowed"),
            ("[closed]\noutstanding = 1", "[turns]\nrate = 1\n[open]\nrate = 1", 1, "exactly one"),
            ("keys = 10", "keys = 0", 5, "allowed are 1 to"),
        ] {
            let text = TEXT.replace(from, to);
            let error = Workload::parse(&Source::from_text("w.toml", text)).expect_err(problem);
            assert!(error.to_string().contains(problem), "{error}");
            assert_eq!(error.line, line, "{error}");
        }
    }

    #[test]
    fn of_connections_that_are_asked_in_turns_there_may_be_many() {
        let text = TEXT
            .replace("[closed]\noutstanding = 1", "[turns]\nrate = 1000")
            .replace("connections = 2", "connections = 20000");
        let workload = Workload::parse(&Source::from_text("w.toml", text.as_str())).expect("it is allowed");
        assert_eq!((workload.connections, workload.pace), (20_000, Pace::Turns { rate: 1_000.0 }));
        let text = text.replace("20000", "20001");
        let error = Workload::parse(&Source::from_text("w.toml", text)).expect_err("they are too many");
        assert!(error.to_string().contains("allowed are 1 to 20000"), "{error}");
    }

    #[test]
    fn the_same_seed_is_the_same_sequence_and_the_mix_is_kept() {
        let workload = example_workload();
        let sequence = |connection| {
            let mut commands = Commands::new(&workload, connection);
            let mut words = Vec::new();
            for _ in 0..4_000 {
                commands.next(|command| words.push(command.concat()));
            }
            words
        };
        assert_eq!(sequence(0), sequence(0));
        assert_ne!(sequence(0), sequence(1));
        let sets = sequence(0).iter().filter(|words| words.starts_with(b"SET")).count();
        assert!((2_850..3_150).contains(&sets), "3 of 4 are SET: {sets}");
    }
}
