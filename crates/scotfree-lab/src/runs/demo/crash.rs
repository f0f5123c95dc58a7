//! The server killed in the middle of a run, started again, and what was acknowledged counted.
//!
//! Invariant: tokens are acknowledged on both sides of the kill, or there is an error instead of a count.

use super::{bar, Server, Service, Stage, Teller, REDIS};
use crate::history::{HistoryOptions, Verdict};
use crate::process::{wait_until, Process};
use crate::runs::interrupt::Interrupt;
use crate::runs::site::{ClientSidecar, PATIENCE};
use crate::runs::worker::history::{HistoryControl, HistorySpec};
use crate::runs::worker::WorkerSpec;
use crate::trouble::Trouble;
use scotfree_core::Tier;
use std::time::{Duration, Instant};

const UNSAFE_NOW: &str = "scotfree_unsafe_entries";
const CLIENT_PORT: u16 = 6_381;
/// What is written at least on either side of the kill.
const TOKENS_MIN: u64 = 50;

impl Stage<'_> {
    /// Kills, restarts, counts; what came of it, and whether that is good.
    pub fn kill_and_count(
        &mut self,
        interrupt: &Interrupt,
        teller: &mut Teller<'_>,
    ) -> Result<(Verdict, bool), Trouble> {
        let sidecar = ClientSidecar {
            name: "sidecar-client",
            port: CLIENT_PORT,
            early: true,
            durability: Tier::RAM,
            trace: None,
        };
        let _client = self.site.start_client_sidecar(&sidecar)?;
        let (_writers, mut history) = self.start_writers(&sidecar)?;
        let half = self.options.span / 2;
        teller.say("writers append tokens, each remembers what was acknowledged; then kill -9 of the server");
        history.write()?;
        let before = write_for(&mut history, half, interrupt)?;
        self.server.kill();
        let killed = Instant::now();
        let held = self.site.device_counts()?.get(UNSAFE_NOW).copied().unwrap_or(0);
        teller.say(&format!(
            "killed with {before} tokens acknowledged; the device holds {held} updates that the server had not made stable"
        ));
        self.server = Server::start(&self.site, self.options.service)?;
        self.server.await_ready()?;
        let recovered_s = killed.elapsed().as_secs_f64();
        teller.say(&format!("the server serves again after {recovered_s:.1} s; writing goes on"));
        write_for(&mut history, half, interrupt)?;
        history.rest()?;
        teller.say(match self.server.service {
            Service::Redis => "reading back every token, from Redis itself",
            Service::Kv => "reading back every token",
        });
        let verdict = history.verify_all(PATIENCE)?;
        let Verdict { acked, lost, doubled, unknown, out_of_order, foreign, .. } = verdict;
        teller.say(&format!(
            "{acked} acknowledged, {} found, {lost} lost, {doubled} applied twice",
            acked - lost
        ));
        let rest =
            format!("{out_of_order} out of order, {foreign} that nobody sent, {unknown} cut off unanswered");
        teller.say(&format!("(and {rest})"));
        Ok((verdict, verdict.is_good()))
    }

    /// Two writers of lists, covered; and one whose SETs the device answers.
    fn start_writers(&self, sidecar: &ClientSidecar) -> Result<(Process, HistoryControl), Trouble> {
        let socket = self.site.folder().join("history");
        let options = HistoryOptions {
            key_writers: 1,
            timeout: PATIENCE,
            ..HistoryOptions::new(self.site.client_sidecar_address(sidecar))
        };
        let server = match self.server.service {
            Service::Redis => Some(self.site.redis_socket(&REDIS)),
            Service::Kv => None,
        };
        let spec = HistorySpec { socket: socket.clone(), options, server };
        let process = self.site.start_worker("client", "history", &WorkerSpec::History(spec))?;
        let control = HistoryControl::connect(&socket, &process)?;
        Ok((process, control))
    }
}

/// Lets the writers write for a time, and until something was acknowledged; how much there is then.
fn write_for(history: &mut HistoryControl, span: Duration, interrupt: &Interrupt) -> Result<u64, Trouble> {
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
    Ok(count)
}
