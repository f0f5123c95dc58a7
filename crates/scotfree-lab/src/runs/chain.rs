//! Three devices in series: what early updates wait for, and what becomes of them when a device dies or grants
//! less than was asked (rule 13).
//!
//! Invariant: nobody but the operator's steps below is told of a death; what was killed is started again on the
//! files it left. Each arm has processes of its own.

use super::settings::settings_of;
use super::worker::sets::{SetsReport, SetsSpec};
use super::worker::WorkerSpec;
use super::{Context, Measured};
use crate::experiment::Measurement;
use scotfree_core::Tier;
use scotfree_stage::history::Verdict;
use scotfree_stage::process::Process;
use scotfree_stage::site::{
    await_condition, await_ready, difference, ClientSidecar, Device, Logs, Site, PATIENCE, REDIS_PORT,
    WITH_METRICS,
};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::history::HistoryControl;
use scotfree_stage::worker::metrics::Counts;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Instant;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    #[serde(with = "crate::tier_text")]
    durability: Tier,
    /// The logs of the devices, in the order of the path.
    logs: Vec<Logs>,
    /// Who dies, if anybody does.
    deaths: Option<Deaths>,
    /// What moves the frames.
    plane: String,
}

/// Who dies while tokens are written.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Deaths {
    /// The middle device, which comes back; the head, which does not; the server, which does.
    OneByOne,
    /// The server and the client, and before they are back the head, for good: nobody but the devices that
    /// follow holds what the server has not seen.
    AllButFollowers,
}

const SETS: u64 = 500;
/// So many acknowledged updates that the server has not seen are put at stake.
const ENTRIES_AT_DEATH: u64 = 20;
const READ_EVERY: u64 = 10;
/// The size of a value.
pub(super) const VALUE_BYTES: usize = 100;
const EARLY: &str = "scotfree_client_completed_early_total";
const STABLE: &str = "scotfree_client_completed_stable_total";

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    context.measure_in_turns(|arm, _| {
        let settings: Settings = settings_of(arm)?;
        let mut chain = Chain::up(context, &settings)?;
        let mut measured = Measured::default();
        chain.set_keys("whole_", &mut measured)?;
        match settings.deaths {
            Some(Deaths::OneByOne) => chain.lose_one_by_one(&mut measured)?,
            Some(Deaths::AllButFollowers) => chain.lose_all_but_followers(&mut measured)?,
            None => {}
        }
        Ok(measured)
    })
}

/// Client, three devices and server.
struct Chain<'a> {
    site: Site<'a>,
    devices: Vec<Device>,
    logs: Vec<Logs>,
    plane: String,
    sidecar: ClientSidecar,
    // In the order of the path; none is dead.
    switches: Vec<Option<Process>>,
    server: Option<Process>,
    client: Option<Process>,
}

impl<'a> Chain<'a> {
    fn up(context: &Context<'a>, settings: &Settings) -> Result<Chain<'a>, Trouble> {
        let site = context.site()?;
        let switches = site.start_chain(&settings.logs, &["--plane", &settings.plane])?;
        let server = site.spawn_kv(&WITH_METRICS)?;
        await_ready(&server)?;
        let sidecar = ClientSidecar {
            name: "sidecar-client",
            port: REDIS_PORT,
            early: true,
            durability: settings.durability,
            trace: None,
        };
        Ok(Chain {
            devices: site.devices(),
            logs: settings.logs.clone(),
            plane: settings.plane.clone(),
            switches: switches.into_iter().map(Some).collect(),
            server: Some(server),
            client: Some(site.start_client_sidecar(&sidecar)?),
            sidecar,
            site,
        })
    }

    /// Sets keys, early, through a sidecar that has done nothing before, and counts who acknowledged them and
    /// what completed them.
    fn set_keys(&self, prefix: &str, measured: &mut Measured) -> Result<(), Trouble> {
        let sidecar = ClientSidecar { name: "sidecar-sets", port: REDIS_PORT + 1, ..self.sidecar.clone() };
        let process = self.site.start_client_sidecar_with(&sidecar, &WITH_METRICS)?;
        let sets = Sets { count: SETS, warmup_count: 0, read_every: READ_EVERY };
        set_keys(&self.site, &sidecar, &sets, prefix, measured)?;
        process.kill();
        Ok(())
    }

    // ---- deaths

    fn lose_one_by_one(&mut self, measured: &mut Measured) -> Result<(), Trouble> {
        let (writers, mut history) = self.site.start_writers(&self.sidecar, None)?;
        await_replies(&mut history)?;

        let begin = Instant::now();
        self.kill(1);
        self.revive(1, self.logs[1])?;
        await_replies(&mut history)?;
        measured.value("middle_back_ms", begin.elapsed().as_secs_f64() * 1e3);
        history.verify_new(PATIENCE)?;

        await_replies(&mut history)?;
        let begin = Instant::now();
        self.kill(0);
        self.replace_head()?;
        await_replies(&mut history)?;
        measured.value("head_replaced_ms", begin.elapsed().as_secs_f64() * 1e3);
        history.verify_new(PATIENCE)?;
        self.set_keys("without_head_", measured)?;

        await_replies(&mut history)?;
        self.server = None;
        self.server = Some(self.site.spawn_kv(&WITH_METRICS)?);
        await_replies(&mut history)?;
        judge(history.verify_all(PATIENCE)?, measured);
        writers.kill();
        Ok(())
    }

    fn lose_all_but_followers(&mut self, measured: &mut Measured) -> Result<(), Trouble> {
        let (writers, mut history) = self.site.start_writers(&self.sidecar, None)?;
        await_replies(&mut history)?;
        self.server = None;
        let at_stake = || self.site.device_counts().map(|counts| unsafe_entries(&counts));
        await_condition("the devices hold what the server has not seen", || {
            at_stake().is_ok_and(|entries| entries >= ENTRIES_AT_DEATH)
        })?;
        let at_stake = at_stake()?;
        // It would send again what is not stable.
        self.client = None;
        self.kill(0);
        self.replace_head()?;
        self.client = Some(self.site.start_client_sidecar(&self.sidecar)?);
        await_replies(&mut history)?;
        judge(history.verify_all(PATIENCE)?, measured);
        measured.counter("acknowledged_not_stable", at_stake);
        writers.kill();
        Ok(())
    }

    /// What an operator does when the head is gone for good: docs/chain.md, in the same order.
    fn replace_head(&mut self) -> Result<(), Trouble> {
        let dead = self.devices[0].clone();
        // Without a log it only bridges: the way is there again.
        self.site.say_head(&dead, false)?;
        self.revive(0, Logs::None)?;
        self.site.say_excluded(&[dead.id])?;
        let server = match self.server.take() {
            Some(server) => {
                server.signal("HUP");
                server
            }
            None => self.site.spawn_kv(&WITH_METRICS)?,
        };
        server.wait_for_output(&format!("device {} is excluded", dead.id), PATIENCE)?;
        self.server = Some(server);
        self.site.say_head(&self.devices[1], true)?;
        let next = self.switches[1].as_ref().expect("it has been started again");
        next.signal("HUP");
        next.wait_for_output("reloaded: head", PATIENCE)
    }

    fn kill(&mut self, index: usize) {
        self.switches[index] = None;
    }

    fn revive(&mut self, index: usize, logs: Logs) -> Result<(), Trouble> {
        let switch = self.site.start_device(&self.devices[index], logs, &["--plane", &self.plane])?;
        self.switches[index] = Some(switch);
        Ok(())
    }
}

/// SETs to be made through a sidecar.
pub(super) struct Sets {
    pub count: u64,
    pub warmup_count: u64,
    pub read_every: u64,
}

/// Sets keys through a sidecar, and counts which device acknowledged them and what completed them. The
/// counters' names begin with `prefix`.
pub(super) fn set_keys(
    site: &Site<'_>,
    sidecar: &ClientSidecar,
    sets: &Sets,
    prefix: &str,
    measured: &mut Measured,
) -> Result<(), Trouble> {
    let before = AllCounts::once_told(site)?;
    let spec = SetsSpec {
        address: site.client_sidecar_address(sidecar),
        connections: 1,
        sets: sets.count,
        warmup_sets: sets.warmup_count,
        value_bytes: VALUE_BYTES,
        replicas: 0,
        read_every: sets.read_every,
    };
    let report: SetsReport = site.run_worker("client", "sets", &WorkerSpec::Sets(spec))?;
    // Daemons say what they have counted some time later.
    let mut after = before.clone();
    await_condition("every SET is counted", || {
        let Ok(counts) = AllCounts::of(site) else { return false };
        after = counts;
        let client = |name| difference(&before.client, &after.client, name);
        client(EARLY) + client(STABLE) >= sets.count + sets.warmup_count
    })?;
    measured.latency(&report.latency);
    let mut count = |name: &str, value: u64| {
        measured.counter(&format!("{prefix}{name}"), value);
    };
    let client = |name| difference(&before.client, &after.client, name);
    count("refused", report.refused);
    count("reads", report.reads);
    count("stale_reads", report.stale_reads);
    count("completed_by_devices", client(EARLY));
    count("completed_by_storage", client(STABLE));
    count("acks_taken", client("scotfree_client_device_acks_total"));
    for (id, then) in &before.devices {
        let device = |name| difference(then, &after.devices[id], name);
        count(&format!("logged_{id}"), device("scotfree_device_logged_total"));
        count(&format!("acks_{id}"), device("scotfree_device_persist_acks_total"));
        count(&format!("ungranted_{id}"), device("scotfree_device_ungranted_total"));
    }
    Ok(())
}

/// What each device and the client have counted.
#[derive(Clone)]
struct AllCounts {
    devices: BTreeMap<u16, Counts>,
    client: Counts,
}

impl AllCounts {
    /// A daemon that has just started says nothing yet.
    fn once_told(site: &Site<'_>) -> Result<AllCounts, Trouble> {
        let mut told = None;
        await_condition("the client says what it has counted", || {
            told = AllCounts::of(site).ok();
            told.is_some()
        })?;
        Ok(told.expect("it was awaited just now"))
    }

    fn of(site: &Site<'_>) -> Result<AllCounts, Trouble> {
        Ok(AllCounts { devices: site.counts_of_devices()?, client: site.counts("client")? })
    }
}

/// Waits until every writer has further tokens acknowledged.
fn await_replies(history: &mut HistoryControl) -> Result<(), Trouble> {
    history.write()?;
    let before = history.counts()?;
    await_condition("every writer has replies", || {
        history.counts().is_ok_and(|now| now.iter().zip(&before).all(|(now, then)| now > then))
    })
}

/// What a device has acknowledged and the server not yet stored.
fn unsafe_entries(counts: &Counts) -> u64 {
    counts.get("scotfree_unsafe_entries").copied().unwrap_or(0)
}

fn judge(verdict: Verdict, measured: &mut Measured) {
    let Verdict { acked, lost, doubled, out_of_order, foreign, .. } = verdict;
    measured.counter("acknowledged", acked);
    for (name, count) in
        [("lost", lost), ("doubled", doubled), ("out_of_order", out_of_order), ("foreign", foreign)]
    {
        measured.value(name, count as f64);
    }
}
