//! Rounds of `kill -9` on real processes while writers append tokens, and what is found afterwards.
//!
//! Invariant: nobody is told of a kill before it happens; what was killed is started again on the files it
//! left, everything else stays up. A round counts when replies have come again after its kill.

use super::settings::settings_of;
use super::{Context, Measured};
use crate::experiment::Measurement;
use scotfree_core::Tier;
use scotfree_stage::history::Verdict;
use scotfree_stage::power_cut::PowerCut;
use scotfree_stage::process::{wait_until, Process};
use scotfree_stage::resp::Reply;
use scotfree_stage::site::{
    ask_redis, await_ready, has_redis, require_redis, AppendFsync, ClientSidecar, Logs, Redis, Site,
    PATIENCE, REDIS_PORT, WITH_METRICS,
};
use scotfree_stage::stats::Spread;
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::history::HistoryControl;
use scotfree_stage::worker::metrics::Counts;
use scotfree_stage::workload::Random;
use serde::Deserialize;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

#[derive(Deserialize, Clone, Copy)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    /// What serves.
    #[serde(default)]
    service: Service,
    /// How many rounds, unless the command line says.
    rounds: u64,
    appendfsync: AppendFsync,
    /// Whether the append-only file is cut back while the server is dead.
    cut: bool,
    /// Whether the server says stable when it means applied.
    #[serde(default)]
    ack_when_applied: bool,
}

/// What serves.
#[derive(Deserialize, Clone, Copy, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Service {
    /// A Redis where one is installed, else the embedded server.
    #[default]
    Redis,
    /// The embedded server.
    Kv,
}

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    /// Redis and its sidecar, as if their host died.
    Server,
    /// The device's daemon.
    Device,
    /// The sidecar in front of the writers.
    Client,
}

// A killed client's sessions live on until they expire, a minute: they need more room than a device usually
// has.
const SWITCH: [&str; 2] = ["--sessions-max", "512"];
// Of so many kills one is of the client, for the same reason.
const KILLS_PER_CLIENT: u64 = 5;
// How long after replies have come again the next kill may come, at most.
const CALM_MS_MAX: u64 = 120;
// How long what was killed stays dead, at most, beyond what a start takes.
const DEAD_MS_MAX: u64 = 30;
// How old a daemon's counts may be.
const COUNTS_AGE_MAX: Duration = Duration::from_millis(300);
// Reading back takes longer than a round, so it is done every so many rounds.
const ROUNDS_PER_READING: u64 = 10;
// The append-only file is rewritten every so many rounds, or loading it would be all that a round does.
const ROUNDS_PER_REWRITE: u64 = 20;
// What is written stays until the end of a block, so in long ones rounds take longer and longer; in very
// short ones nothing has a past. Fewer rounds than the experiment asks for make fewer blocks.
const BLOCK_ROUNDS_MIN: u64 = 50;
// How long the readings of a control may wait for what is lost for good.
const LOST_FOR_GOOD: Duration = Duration::from_secs(2);

/// The sidecar that writers speak to, while processes die.
pub(super) const SIDECAR: ClientSidecar = ClientSidecar {
    name: "sidecar-client",
    port: REDIS_PORT,
    early: true,
    durability: Tier::RAM,
    trace: None,
};

/// Blocks of rounds in each of which one set of processes lives on: nothing may be lost.
pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let arm = &context.experiment.arms[0];
    let settings: Settings = settings_of(arm)?;
    let rounds = context.options.rounds.unwrap_or(settings.rounds).max(1);
    let blocks = u64::from(context.experiment.repetitions).min(rounds.div_ceil(BLOCK_ROUNDS_MIN));
    let seed = seed(context)?;
    context.bar.set_length(rounds);
    let mut series = Vec::new();
    for block in 0..blocks {
        let count = rounds * (block + 1) / blocks - rounds * block / blocks;
        let measured = World::up(context, settings, seed ^ block)?.block(count)?;
        series.push(measured.into_measurement(&arm.name, block as u32));
    }
    Ok(series)
}

/// The same, each round with a new set of processes, since what loses cannot go on.
pub(super) fn run_control(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let arm = &context.experiment.arms[0];
    let settings: Settings = settings_of(arm)?;
    let rounds = context.options.rounds.unwrap_or(settings.rounds).max(1);
    let seed = seed(context)?;
    context.bar.set_length(rounds);
    let mut series = Vec::new();
    for round in 0..rounds {
        let mut world = World::up(context, settings, seed ^ round)?;
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

/// All processes, and the history that they must keep.
struct World<'a> {
    context: &'a Context<'a>,
    site: Site<'a>,
    settings: Settings,
    server: Server,
    switch: Option<Process>,
    client: Option<Process>,
    writers: Process,
    history: HistoryControl,
    power: PowerCut,
    random: Random,
    rounds_count: u64,
    tally: Tally,
    verdict: Verdict,
}

/// What serves.
struct Server {
    redis: Option<Redis>,
    // Redis and its sidecar, or the embedded server alone.
    store: Option<Process>,
    sidecar: Option<Process>,
}

/// What happened in the rounds of a block.
#[derive(Default)]
struct Tally {
    kills: [u64; 3],
    // From a kill until every writer had a reply again, by victim.
    recovery_ms: [Vec<f64>; 3],
    cut_bytes: u64,
    // What the device's daemons have counted, as far as they could be asked.
    persist_acks: u64,
    sessions_refused: u64,
}

impl Tally {
    fn add(&mut self, counts: &Counts) {
        let count = |name: &str| counts.get(name).copied().unwrap_or(0);
        self.persist_acks += count("scotfree_device_persist_acks_total");
        self.sessions_refused += count("scotfree_device_sessions_refused_total");
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

impl<'a> World<'a> {
    fn up(context: &'a Context<'a>, settings: Settings, seed: u64) -> Result<World<'a>, Trouble> {
        let site = context.site()?;
        let redis = Redis { name: "redis", appendfsync: settings.appendfsync, listen: &[] };
        let wants_redis = settings.service == Service::Redis;
        let redis = (wants_redis && has_redis()).then_some(redis);
        if redis.is_none() && settings.cut {
            require_redis()?;
        }
        if wants_redis && redis.is_none() {
            super::say("redis-server is not installed: the embedded server takes its place");
        }
        let power = PowerCut::new(&site);
        let mut server = Server { redis, store: None, sidecar: None };
        server.start(&site, &settings, &power)?;
        let switch = site.start_switch_with(Logs::Ram, &SWITCH)?;
        server.wait_until_ready()?;
        let client = site.start_client_sidecar_with(&SIDECAR, &WITH_METRICS)?;
        let socket = redis.as_ref().map(|redis| site.redis_socket(redis));
        let (writers, history) = site.start_writers(&SIDECAR, socket)?;
        Ok(World {
            context,
            site,
            settings,
            server,
            switch: Some(switch),
            client: Some(client),
            writers,
            history,
            power,
            random: Random::new(seed, 0),
            rounds_count: 0,
            tally: Tally::default(),
            verdict: Verdict::default(),
        })
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
        self.tally.add(&self.site.device_counts()?);
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
        thread::sleep(Duration::from_millis(self.random.below(CALM_MS_MAX + 1)));
        let victim = if self.settings.cut {
            // A power cut is the server's; now and then somebody else dies as well.
            if self.random.below(4) == 0 {
                self.any_victim()
            } else {
                Victim::Server
            }
        } else {
            self.any_victim()
        };
        self.context.bar.set_message(format!("{victim:?}"));
        let killed = Instant::now();
        self.kill(victim);
        thread::sleep(Duration::from_millis(self.random.below(DEAD_MS_MAX + 1)));
        self.revive(victim)?;
        if waits_for_all || self.random.below(4) > 0 {
            self.await_replies(Replies::All)?;
            self.tally.recovery_ms[victim as usize].push(killed.elapsed().as_secs_f64() * 1e3);
        }
        self.tally.kills[victim as usize] += 1;
        self.rounds_count += 1;
        self.context.bar.inc(1);
        Ok(())
    }

    fn any_victim(&mut self) -> Victim {
        match self.random.below(KILLS_PER_CLIENT) {
            0 => Victim::Client,
            other if other % 2 == 0 => Victim::Device,
            _ => Victim::Server,
        }
    }

    fn kill(&mut self, victim: Victim) {
        match victim {
            Victim::Server => {
                let sidecar_first = self.random.below(2) == 0;
                self.server.kill(sidecar_first);
            }
            Victim::Device => {
                // What it has counted dies with it; a count that cannot be had is one that is missing below.
                if let Ok(counts) = self.site.device_counts() {
                    self.tally.add(&counts);
                }
                self.switch = None;
            }
            Victim::Client => drop(self.client.take()),
        }
    }

    fn revive(&mut self, victim: Victim) -> Result<(), Trouble> {
        match victim {
            Victim::Server => {
                if self.settings.cut {
                    self.tally.cut_bytes += self.power.cut(&mut self.random)?;
                }
                self.server.start(&self.site, &self.settings, &self.power)?;
            }
            Victim::Device => self.switch = Some(self.site.start_switch_with(Logs::Ram, &SWITCH)?),
            Victim::Client => {
                self.client = Some(self.site.start_client_sidecar_with(&SIDECAR, &WITH_METRICS)?);
            }
        }
        Ok(())
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
        let counts = ["client", "device", "server"].map(|role| (role, self.site.counts(role)));
        let text = format!("writers {:?}\n{counts:#?}\n", self.history.counts());
        let file = logs.join("counts");
        match fs::write(&file, text) {
            Ok(()) => eprintln!("kept: {}", file.display()),
            Err(error) => eprintln!("could not keep {}: {error}", file.display()),
        }
    }

    /// Where logs are kept, what the server held at the first fault is kept too.
    fn keep_evidence(&self) {
        let (Some(logs), Some(redis)) = (&self.context.options.log_folder, &self.server.redis) else {
            return;
        };
        let kept = logs.join(format!("redis-after-round-{}", self.rounds_count));
        match copy_folder(&self.site.redis_folder(redis), &kept) {
            Ok(()) => eprintln!("kept: {}", kept.display()),
            Err(error) => eprintln!("could not keep {}: {error}", kept.display()),
        }
    }

    /// Lets Redis rewrite its append-only file, and waits until it has.
    fn rewrite(&mut self) -> Result<(), Trouble> {
        let Some(redis) = &self.server.redis else { return Ok(()) };
        let socket = self.site.redis_socket(redis);
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
        thread::sleep(Duration::from_millis(100 + self.random.below(CALM_MS_MAX + 1)));
        self.kill(Victim::Server);
        self.history.rest()?;
        self.revive(Victim::Server)?;
        self.server.wait_until_ready()?;
        self.tally.kills[Victim::Server as usize] += 1;
        self.rounds_count += 1;
        let mut verdict = self.history.verify_all(PATIENCE)?;
        let deadline = Instant::now() + LOST_FOR_GOOD;
        while verdict.lost > 0 && Instant::now() < deadline {
            // The device may still be replaying.
            thread::sleep(Duration::from_millis(100));
            self.context.interrupt.check()?;
            verdict = self.history.verify_all(PATIENCE)?;
        }
        self.verdict = verdict;
        self.context.bar.inc(1);
        Ok(self.measured(before, 1))
    }

    fn measured(&mut self, before: Verdict, rounds: u64) -> Measured {
        let tally = std::mem::take(&mut self.tally);
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
        for (name, count) in ["kills_server", "kills_device", "kills_client"].iter().zip(tally.kills) {
            measured.value(name, count as f64);
        }
        if let Some(spread) = Spread::of(&tally.recovery_ms.concat()) {
            measured.value("recovery_ms_p50", spread.median);
        }
        measured.value("cut_bytes", tally.cut_bytes as f64);
        for (victim, times) in ["server", "device", "client"].iter().zip(&tally.recovery_ms) {
            // None if this victim was spared.
            let longest = times.iter().copied().fold(0.0, f64::max);
            measured.value(&format!("recovery_ms_max_{victim}"), longest);
        }
        measured.counter("acknowledged", acked.saturating_sub(before.acked));
        measured.counter("persist_acks", tally.persist_acks);
        measured.counter("sessions_refused", tally.sessions_refused);
        measured
    }

    fn last_words(&self) -> String {
        let processes = [&self.server.store, &self.server.sidecar, &self.switch, &self.client];
        let words = processes.into_iter().flatten().map(|process| {
            let said = process.error_output() + &process.output();
            let last = said.lines().last().unwrap_or("nothing").to_owned();
            let state = process.exit_status().map_or("runs".into(), |status| status.to_string());
            format!("{} ({state}) said: {last}", process.name())
        });
        words.collect::<Vec<_>>().join("; ")
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        self.writers.kill();
    }
}

impl Server {
    fn start(&mut self, site: &Site<'_>, settings: &Settings, power: &PowerCut) -> Result<(), Trouble> {
        match &self.redis {
            Some(redis) => {
                self.store = Some(site.start_redis(redis)?);
                let sizes = power.sizes_file().to_string_lossy().into_owned();
                let mut more = WITH_METRICS.to_vec();
                if settings.cut {
                    more.extend(["--synced-sizes", &sizes]);
                }
                if settings.ack_when_applied {
                    more.push("--unsafe-ack-when-applied");
                }
                self.sidecar = Some(site.spawn_server_sidecar(redis, &more)?);
            }
            None => self.store = Some(site.spawn_kv(&WITH_METRICS)?),
        }
        Ok(())
    }

    fn wait_until_ready(&self) -> Result<(), Trouble> {
        let last = self.sidecar.as_ref().or(self.store.as_ref());
        last.map_or(Ok(()), await_ready)
    }

    fn kill(&mut self, sidecar_first: bool) {
        if sidecar_first {
            self.sidecar = None;
        }
        self.store = None;
        self.sidecar = None;
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
