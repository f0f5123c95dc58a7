//! A power failure of the server's host in the middle of a run, and what was acknowledged counted. Where no Redis
//! serves the server is only killed.
//!
//! Invariant: tokens are acknowledged on both sides of the failure, or there is an error instead of a count.

use super::control::{Control, PowerFailure};
use super::sync_watch::SyncWatch;
use super::{bar, Server, Service, Stage, Teller, REDIS, TOKENS_MIN};
use scotfree_core::Tier;
use scotfree_stage::history::{HistoryOptions, Verdict};
use scotfree_stage::interrupt::Interrupt;
use scotfree_stage::power_cut::{cut_back, PowerCut};
use scotfree_stage::process::{wait_until, Process};
use scotfree_stage::site::{ClientSidecar, Site, PATIENCE};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::history::{HistoryControl, HistorySpec};
use scotfree_stage::worker::WorkerSpec;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const UNSAFE_NOW: &str = "scotfree_unsafe_entries";
const CLIENT_PORT: u16 = 6_381;
const SIDECAR: ClientSidecar = ClientSidecar {
    name: "sidecar-client",
    port: CLIENT_PORT,
    early: true,
    durability: Tier::RAM,
    trace: None,
};
const WRITERS: &str = "writers append tokens, each remembers what was acknowledged";

impl Stage<'_> {
    /// Lets the server's host fail, starts it again, counts.
    pub fn fail_and_count(
        &mut self,
        interrupt: &Interrupt,
        teller: &mut Teller<'_>,
    ) -> Result<(Verdict, Option<PowerFailure>), Trouble> {
        let _client = self.site.start_client_sidecar(&SIDECAR)?;
        let (_writers, mut history) = start_writers(&self.site, self.server.service)?;
        let half = self.options.span / 2;
        let failure = if let Some(mut alone) = self.alone.take() {
            teller.say(&format!("{WRITERS}; beside them others write to Redis alone (everysec)"));
            // The processors are the writers' from here on.
            alone.kill_others();
            self.proxied = None;
            let control = Control::start(&self.site, &mut alone.every_second)?;
            let failure = Failure { site: &self.site, server: &mut self.server, interrupt, teller };
            Some(failure.come(control, &mut history, half)?)
        } else {
            teller
                .say(&format!("{WRITERS}; then kill -9 of the server, which a Redis alone survives as well"));
            history.write()?;
            write_for(&mut history, half, interrupt)?;
            self.server.kill();
            None
        };
        self.recover(interrupt, teller)?;
        write_for(&mut history, half, interrupt)?;
        history.rest()?;
        teller.say(match self.server.service {
            Service::Redis => "reading back every token, from Redis itself",
            Service::Kv => "reading back every token",
        });
        let verdict = history.verify_all(PATIENCE)?;
        report(&verdict, failure.as_ref(), teller);
        Ok((verdict, failure))
    }

    /// Starts the server again.
    fn recover(&mut self, interrupt: &Interrupt, teller: &mut Teller<'_>) -> Result<(), Trouble> {
        interrupt.check()?;
        let begin = Instant::now();
        let held = self.site.device_counts()?.get(UNSAFE_NOW).copied().unwrap_or(0);
        teller.say(&format!("the device holds {held} updates that the server had not made stable"));
        self.server = Server::start(&self.site, self.options.service, &[])?;
        self.server.await_ready()?;
        let recovered_s = begin.elapsed().as_secs_f64();
        teller.say(&format!("started again, the server serves after {recovered_s:.1} s; writing goes on"));
        Ok(())
    }
}

/// A power failure that is about to come.
struct Failure<'a, 'b> {
    site: &'a Site<'a>,
    server: &'a mut Server,
    interrupt: &'a Interrupt,
    teller: &'a mut Teller<'b>,
}

impl Failure<'_, '_> {
    /// Lets all write, takes the power from both Redis at one moment, and counts what is left of the control.
    fn come(
        self,
        mut control: Control<'_>,
        history: &mut HistoryControl,
        span: Duration,
    ) -> Result<PowerFailure, Trouble> {
        let redis = self.server.processes.first().expect("a Redis serves");
        let mut watch = SyncWatch::start(redis, self.site.redis_folder(&REDIS))?;
        history.write()?;
        control.write()?;
        write_for(history, span, self.interrupt)?;
        control.await_unsynced(self.interrupt, || watch.look().map(drop))?;
        control.kill();
        // The sidecar before the last look: what it has called stable was synced before that.
        self.server.processes.last().expect("a sidecar stands before it").kill();
        watch.look()?;
        self.server.kill();
        // The sidecar notes its own syncs; where Redis says when it has synced, there is nothing to note.
        let noted = PowerCut::new(self.site).synced()?;
        let synced = if noted.is_empty() { watch.synced() } else { &noted[..] };
        let cut_bytes = cut_back(synced, |_| 0)?;
        let redis_everysec = control.count()?;
        self.teller.say(&format!(
            "the server's host loses power: both Redis are dead, and what they had not synced is gone, {cut_bytes} bytes \
             behind the device and {} of Redis alone",
            redis_everysec.cut_bytes
        ));
        Ok(PowerFailure { cut_bytes, redis_everysec })
    }
}

fn report(verdict: &Verdict, failure: Option<&PowerFailure>, teller: &mut Teller<'_>) {
    let Verdict { acked, lost, doubled, unknown, out_of_order, foreign, .. } = verdict;
    if let Some(PowerFailure { redis_everysec: alone, .. }) = failure {
        teller.say(&format!(
            "Redis alone, everysec: {} acknowledged, {} found, {} LOST",
            alone.acked, alone.found, alone.lost
        ));
    }
    let with = if failure.is_some() { "with persist: " } else { "" };
    teller.say(&format!(
        "{with}{acked} acknowledged, {} found, {lost} lost, {doubled} applied twice",
        acked - lost
    ));
    teller.say(&format!(
        "(and {out_of_order} out of order, {foreign} that nobody sent, {unknown} cut off unanswered)"
    ));
}

/// Two writers of lists, covered; and one whose SETs the device answers.
fn start_writers(site: &Site<'_>, service: Service) -> Result<(Process, HistoryControl), Trouble> {
    let socket = site.folder().join("history");
    let options = HistoryOptions {
        key_writers: 1,
        timeout: PATIENCE,
        ..HistoryOptions::new(site.client_sidecar_address(&SIDECAR))
    };
    let server: Option<PathBuf> = match service {
        Service::Redis => Some(site.redis_socket(&REDIS)),
        Service::Kv => None,
    };
    let spec = HistorySpec { socket: socket.clone(), options, server };
    let process = site.start_worker("client", "history", &WorkerSpec::History(spec))?;
    let control = HistoryControl::connect(&socket, &process)?;
    Ok((process, control))
}

/// Lets the writers write for a time, and until something was acknowledged.
fn write_for(history: &mut HistoryControl, span: Duration, interrupt: &Interrupt) -> Result<(), Trouble> {
    let begin = Instant::now();
    let count_before = history.count()?;
    let bar = bar(span.as_millis() as u64, "writing");
    let mut asked = Ok(count_before);
    wait_until(span + PATIENCE, || {
        asked = history.count();
        bar.set_position(begin.elapsed().as_millis().min(span.as_millis()) as u64);
        let is_enough = asked.as_ref().is_ok_and(|count| *count >= count_before + TOKENS_MIN);
        interrupt.has_come() || asked.is_err() || (is_enough && begin.elapsed() >= span)
    });
    bar.finish_and_clear();
    interrupt.check()?;
    let count = asked?;
    if count < count_before + TOKENS_MIN {
        let problem =
            format!("only {} were acknowledged within {} s", count - count_before, begin.elapsed().as_secs());
        return Err(Trouble::new(
            "write tokens",
            problem,
            "run it again; if it comes again, see: scot doctor",
        ));
    }
    Ok(())
}
