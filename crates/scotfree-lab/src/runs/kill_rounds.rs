//! Rounds of `kill -9` on real processes while writers append tokens, and what is found afterwards.
//!
//! Invariant: nobody is told of a kill before it happens; what was killed is started again on the files it
//! left, everything else stays up. A round counts when replies have come again after its kill.

pub(super) mod device;
pub(super) mod proxy;

use super::settings::settings_of;
use super::{Context, Measured};
use crate::experiment::Measurement;
use scotfree_stage::history::Verdict;
use scotfree_stage::power_cut::PowerCut;
use scotfree_stage::process::{wait_until, Process};
use scotfree_stage::resp::Reply;
use scotfree_stage::site::{ask_redis, Redis, Site, PATIENCE};
use scotfree_stage::stats::Spread;
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::history::HistoryControl;
use scotfree_stage::worker::metrics::Counts;
use scotfree_stage::workload::Random;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

/// What serves the writers, and who of it dies.
pub(super) trait Cast<'a>: Sized {
    /// What its experiments' arms say.
    type Settings: DeserializeOwned + Clone;
    /// Who may die, as metrics name them; a victim is a place here.
    const VICTIMS: &'static [&'static str];
    /// The victim with which a control loses: it takes what the server's files had not synced.
    const POWER_CUT: usize;
    /// What daemons count that tells whether what is tried was at work: counters by the daemons' names for them.
    const COUNTERS: &'static [(&'static str, &'static str)];
    /// The hosts whose daemons are asked for that.
    const COUNTED_AT: &'static [&'static str];

    /// How many rounds, unless the command line says.
    fn rounds(settings: &Self::Settings) -> u64;
    /// Starts all of it.
    fn up(scene: &mut Scene<'a>, settings: Self::Settings) -> Result<Self, Trouble>;
    /// Where writers write.
    fn address(&self, site: &Site<'a>) -> SocketAddr;
    /// The Redis that holds the data at last, if it is one.
    fn redis(&self) -> Option<&Redis>;
    /// Chooses who dies next.
    fn choose(&self, random: &mut Random) -> usize;
    /// Waits until a victim may die, and asks it what is not to die with it.
    fn before_kill(&mut self, _victim: usize, _scene: &mut Scene<'a>) -> Result<(), Trouble> {
        Ok(())
    }
    /// Ends a victim without a word.
    fn kill(&mut self, victim: usize, scene: &mut Scene<'a>);
    /// Starts it again; whether it serves yet is not waited for.
    fn revive(&mut self, victim: usize, scene: &mut Scene<'a>) -> Result<(), Trouble>;
    /// Waits until it serves.
    fn wait_until_ready(&self) -> Result<(), Trouble>;
    /// All that is to run.
    fn processes(&self) -> Vec<&Process>;
}

// How long after replies have come again the next kill may come, at most.
const CALM_MS_MAX: u64 = 120;
// How long what was killed stays dead, at most, beyond what a start takes.
const DEAD_MS_MAX: u64 = 30;
// How old a daemon's counts may be.
pub(super) const COUNTS_AGE_MAX: Duration = Duration::from_millis(300);
// Reading back takes longer than a round, so it is done every so many rounds.
const ROUNDS_PER_READING: u64 = 10;
// The append-only file is rewritten every so many rounds, or loading it would be all that a round does.
const ROUNDS_PER_REWRITE: u64 = 20;
// What is written stays until the end of a block, so in long ones rounds take longer and longer; in very
// short ones nothing has a past. Fewer rounds than the experiment asks for make fewer blocks.
const BLOCK_ROUNDS_MIN: u64 = 50;
// How long the readings of a control may wait for what is lost for good.
const LOST_FOR_GOOD: Duration = Duration::from_secs(2);

/// Blocks of rounds in each of which one set of processes lives on: nothing may be lost.
fn run<'a, C: Cast<'a>>(context: &Context<'a>) -> Result<Vec<Measurement>, Trouble> {
    let arm = &context.experiment.arms[0];
    let settings: C::Settings = settings_of(arm)?;
    let rounds = context.options.rounds.unwrap_or(C::rounds(&settings)).max(1);
    let blocks = u64::from(context.experiment.repetitions).min(rounds.div_ceil(BLOCK_ROUNDS_MIN));
    let seed = seed(context)?;
    context.bar.set_length(rounds);
    let mut series = Vec::new();
    for block in 0..blocks {
        let count = rounds * (block + 1) / blocks - rounds * block / blocks;
        let measured = World::<C>::up(context, settings.clone(), seed ^ block)?.block(count)?;
        series.push(measured.into_measurement(&arm.name, block as u32));
    }
    Ok(series)
}

/// The same, each round with a new set of processes, since what loses cannot go on.
fn run_control<'a, C: Cast<'a>>(context: &Context<'a>) -> Result<Vec<Measurement>, Trouble> {
    let arm = &context.experiment.arms[0];
    let settings: C::Settings = settings_of(arm)?;
    let rounds = context.options.rounds.unwrap_or(C::rounds(&settings)).max(1);
    let seed = seed(context)?;
    context.bar.set_length(rounds);
    let mut series = Vec::new();
    for round in 0..rounds {
        let mut world = World::<C>::up(context, settings.clone(), seed ^ round)?;
        let measured = world.control_round()?;
        series.push(measured.into_measurement(&arm.name, round as u32));
    }
    Ok(series)
}

pub(super) fn seed(context: &Context<'_>) -> Result<u64, Trouble> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| Trouble::new("choose a seed", error, "name one: --seed 1"))?;
    let seed = context.options.seed.unwrap_or(u64::from_le_bytes(bytes) >> 32);
    super::say(&format!("{}: seed {seed}", context.experiment.name));
    Ok(seed)
}

/// Where the rounds are played, and what they have come to.
pub(super) struct Scene<'a> {
    pub site: Site<'a>,
    pub power: PowerCut,
    pub random: Random,
    tally: Tally,
}

impl<'a> Scene<'a> {
    fn up(context: &Context<'a>, seed: u64) -> Result<Scene<'a>, Trouble> {
        let site = context.site()?;
        let power = PowerCut::new(&site);
        Ok(Scene { site, power, random: Random::new(seed, 0), tally: Tally::default() })
    }

    /// Takes from a server's files what a power failure would.
    pub fn cut(&mut self) -> Result<(), Trouble> {
        self.tally.cut_bytes += self.power.cut(&mut self.random)?;
        Ok(())
    }

    /// Adds what the daemon of a host has counted, which dies with it.
    pub fn keep_counts(&mut self, role: &str) {
        // A count that cannot be had is one that is missing at the end.
        if let Ok(counts) = self.site.counts(role) {
            self.tally.add(counts);
        }
    }
}

/// All processes, and the history that they must keep.
struct World<'c, 'a, C: Cast<'a>> {
    context: &'c Context<'a>,
    scene: Scene<'a>,
    cast: C,
    writers: Process,
    history: HistoryControl,
    rounds_count: u64,
    verdict: Verdict,
}

/// What happened in the rounds of a block.
#[derive(Default)]
struct Tally {
    // By victim.
    kills: BTreeMap<usize, u64>,
    // From a kill until every writer had a reply again, by victim.
    recovery_ms: BTreeMap<usize, Vec<f64>>,
    cut_bytes: u64,
    // What daemons have counted, as far as they could be asked.
    counts: Counts,
}

impl Tally {
    fn add(&mut self, counts: Counts) {
        for (name, count) in counts {
            *self.counts.entry(name).or_default() += count;
        }
    }
}

/// Whose replies are waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Replies {
    /// Anybody's, such as an early answer while the server is still recovering.
    Any,
    /// Those of every writer.
    All,
}

impl<'c, 'a, C: Cast<'a>> World<'c, 'a, C> {
    fn up(context: &'c Context<'a>, settings: C::Settings, seed: u64) -> Result<Self, Trouble> {
        let mut scene = Scene::up(context, seed)?;
        let cast = C::up(&mut scene, settings)?;
        let socket = cast.redis().map(|redis| scene.site.redis_socket(redis));
        let (writers, history) = scene.site.start_writers_at(cast.address(&scene.site), socket)?;
        Ok(World { context, scene, cast, writers, history, rounds_count: 0, verdict: Verdict::default() })
    }

    /// So many rounds; at the end everything is read back, from the server itself too.
    fn block(&mut self, rounds: u64) -> Result<Measured, Trouble> {
        let before = self.verdict;
        let begin = Instant::now();
        for round in 0..rounds {
            self.round(round == 0)?;
            if self.rounds_count.is_multiple_of(ROUNDS_PER_READING) {
                self.read_back()?;
            }
            if self.rounds_count.is_multiple_of(ROUNDS_PER_REWRITE) {
                self.rewrite()?;
            }
        }
        self.read_back()?;
        let verdict = self.history.verify_all(PATIENCE)?;
        self.judge(verdict);
        // Whether the remedy was at work at all. The daemon says so some time later.
        thread::sleep(COUNTS_AGE_MAX);
        for role in C::COUNTED_AT {
            let counts = self.scene.site.counts(role)?;
            self.scene.tally.add(counts);
        }
        let mut measured = self.measured(before, rounds);
        measured.value("round_ms", begin.elapsed().as_secs_f64() * 1e3 / rounds as f64);
        Ok(measured)
    }

    /// Writing, a kill and a start. Unless told otherwise, a quarter of the rounds ends while recovery is
    /// still under way.
    fn round(&mut self, waits_for_all: bool) -> Result<(), Trouble> {
        self.context.interrupt.check()?;
        self.history.write()?;
        self.await_replies(Replies::Any)?;
        self.sleep_up_to(CALM_MS_MAX);
        let victim = self.cast.choose(&mut self.scene.random);
        self.context.bar.set_message(C::VICTIMS[victim]);
        self.cast.before_kill(victim, &mut self.scene)?;
        let killed = Instant::now();
        self.cast.kill(victim, &mut self.scene);
        self.sleep_up_to(DEAD_MS_MAX);
        self.cast.revive(victim, &mut self.scene)?;
        if waits_for_all || self.scene.random.below(4) > 0 {
            self.await_replies(Replies::All)?;
            let recovery_ms = killed.elapsed().as_secs_f64() * 1e3;
            self.scene.tally.recovery_ms.entry(victim).or_default().push(recovery_ms);
        }
        self.count_round(victim);
        Ok(())
    }

    fn sleep_up_to(&mut self, ms_max: u64) {
        thread::sleep(Duration::from_millis(self.scene.random.below(ms_max + 1)));
    }

    fn count_round(&mut self, victim: usize) {
        *self.scene.tally.kills.entry(victim).or_default() += 1;
        self.rounds_count += 1;
        self.context.bar.inc(1);
    }

    /// Waits until further tokens are acknowledged.
    fn await_replies(&mut self, whose: Replies) -> Result<(), Trouble> {
        let before = self.history.counts()?;
        let mut asked = Ok(Vec::new());
        let come = wait_until(PATIENCE, || {
            asked = self.history.counts();
            let Ok(counts) = &asked else { return true };
            let mut grown = counts.iter().zip(&before).map(|(now, then)| now > then);
            let has_come = match whose {
                Replies::Any => grown.any(|has_grown| has_grown),
                Replies::All => grown.all(|has_grown| has_grown),
            };
            has_come || self.context.interrupt.has_come()
        });
        asked?;
        self.context.interrupt.check()?;
        if come {
            return Ok(());
        }
        let problem = format!("no reply within {} s", PATIENCE.as_secs());
        let next = format!("see the logs of the run: {}", self.last_words());
        self.keep_counts();
        Err(Trouble::new(format!("go on after round {}", self.rounds_count), problem, next))
    }

    /// Reads what is new back, through the sidecars.
    fn read_back(&mut self) -> Result<(), Trouble> {
        let verdict = self.history.verify_new(PATIENCE)?;
        self.judge(verdict);
        Ok(())
    }

    fn judge(&mut self, verdict: Verdict) {
        if !verdict.is_good() && verdict != self.verdict {
            eprintln!("after round {}: {verdict}", self.rounds_count);
            if self.verdict.is_good() {
                self.keep_evidence();
            }
        }
        self.verdict = verdict;
    }

    /// Where logs are kept, what the daemons have counted when it went on no longer is kept too.
    fn keep_counts(&mut self) {
        let Some(logs) = &self.context.options.log_folder else { return };
        let roles = C::COUNTED_AT.iter().copied();
        let counts: Vec<_> = roles.map(|role| (role, self.scene.site.counts(role))).collect();
        let text = format!("writers {:?}\n{counts:#?}\n", self.history.counts());
        let file = logs.join("counts");
        match fs::write(&file, text) {
            Ok(()) => eprintln!("kept: {}", file.display()),
            Err(error) => eprintln!("could not keep {}: {error}", file.display()),
        }
    }

    /// Where logs are kept, what the server held at the first fault is kept too.
    fn keep_evidence(&self) {
        let (Some(logs), Some(redis)) = (&self.context.options.log_folder, self.cast.redis()) else {
            return;
        };
        let kept = logs.join(format!("redis-after-round-{}", self.rounds_count));
        match copy_folder(&self.scene.site.redis_folder(redis), &kept) {
            Ok(()) => eprintln!("kept: {}", kept.display()),
            Err(error) => eprintln!("could not keep {}: {error}", kept.display()),
        }
    }

    /// Lets Redis rewrite its append-only file, and waits until it has.
    fn rewrite(&mut self) -> Result<(), Trouble> {
        let Some(redis) = self.cast.redis() else { return Ok(()) };
        let socket = self.scene.site.redis_socket(redis);
        let asked = ask_redis(&socket, &["BGREWRITEAOF"]);
        let done = wait_until(PATIENCE, || match ask_redis(&socket, &["INFO", "persistence"]) {
            Ok(Reply::Bulk(text)) => {
                let text = String::from_utf8_lossy(&text);
                ["aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0"]
                    .iter()
                    .all(|line| text.contains(line))
            }
            _ => false,
        });
        match (asked, done) {
            (Ok(_), true) => Ok(()),
            (asked, _) => {
                let problem = asked.err().unwrap_or_else(|| "it does not end".into());
                Err(Trouble::new("rewrite the append-only file", problem, "see the log of Redis"))
            }
        }
    }

    /// One kill with a power cut, and what is lost for good.
    fn control_round(&mut self) -> Result<Measured, Trouble> {
        let before = self.verdict;
        self.history.write()?;
        self.await_replies(Replies::All)?;
        thread::sleep(Duration::from_millis(100));
        self.sleep_up_to(CALM_MS_MAX);
        self.cast.before_kill(C::POWER_CUT, &mut self.scene)?;
        self.cast.kill(C::POWER_CUT, &mut self.scene);
        self.history.rest()?;
        self.cast.revive(C::POWER_CUT, &mut self.scene)?;
        self.cast.wait_until_ready()?;
        self.count_round(C::POWER_CUT);
        let mut verdict = self.history.verify_all(PATIENCE)?;
        let deadline = Instant::now() + LOST_FOR_GOOD;
        while verdict.lost > 0 && Instant::now() < deadline {
            // What is left may still be replayed.
            thread::sleep(Duration::from_millis(100));
            self.context.interrupt.check()?;
            verdict = self.history.verify_all(PATIENCE)?;
        }
        self.verdict = verdict;
        Ok(self.measured(before, 1))
    }

    fn measured(&mut self, before: Verdict, rounds: u64) -> Measured {
        let tally = std::mem::take(&mut self.scene.tally);
        let Verdict { acked, unknown, lost, doubled, out_of_order, foreign, .. } = self.verdict;
        let mut measured = Measured::default();
        let mut grown = |name: &str, now: u64, then: u64| {
            measured.value(name, now.saturating_sub(then) as f64);
        };
        grown("acknowledged", acked, before.acked);
        grown("unknown", unknown, before.unknown);
        grown("lost", lost, before.lost);
        grown("doubled", doubled, before.doubled);
        grown("out_of_order", out_of_order, before.out_of_order);
        grown("foreign", foreign, before.foreign);
        measured.value("rounds", rounds as f64);
        let times: Vec<f64> = tally.recovery_ms.values().flatten().copied().collect();
        if let Some(spread) = Spread::of(&times) {
            measured.value("recovery_ms_p50", spread.median);
        }
        measured.value("cut_bytes", tally.cut_bytes as f64);
        for (victim, name) in C::VICTIMS.iter().enumerate() {
            let kills = tally.kills.get(&victim).copied().unwrap_or(0);
            measured.value(&format!("kills_{name}"), kills as f64);
            // None if this victim was spared.
            let times = tally.recovery_ms.get(&victim).into_iter().flatten();
            let longest = times.copied().fold(0.0, f64::max);
            measured.value(&format!("recovery_ms_max_{name}"), longest);
        }
        measured.counter("acknowledged", acked.saturating_sub(before.acked));
        for (name, of_daemon) in C::COUNTERS {
            measured.counter(name, tally.counts.get(*of_daemon).copied().unwrap_or(0));
        }
        measured
    }

    fn last_words(&self) -> String {
        let words = self.cast.processes().into_iter().map(|process| {
            let said = process.error_output() + &process.output();
            let last = said.lines().last().unwrap_or("nothing").to_owned();
            let state = process.exit_status().map_or("runs".into(), |status| status.to_string());
            format!("{} ({state}) said: {last}", process.name())
        });
        words.collect::<Vec<_>>().join("; ")
    }
}

impl<'a, C: Cast<'a>> Drop for World<'_, 'a, C> {
    fn drop(&mut self) {
        self.writers.kill();
    }
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else if entry.file_type()?.is_file() {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
