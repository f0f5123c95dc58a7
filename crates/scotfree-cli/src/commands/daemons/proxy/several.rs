//! Several proxies in one process: a thread with a loop of its own for each, and one word to the outside.
//!
//! Invariant: what keeps one from serving ends no other. The exception is the start: one that is refused then ends the
//! process, before anybody is served where all know soon how they are, so that a slip in the configuration is noticed.

use super::reload::{Reload, Running};
use super::sections::{of_named, sections, Section};
use super::{answer_questions, complete, place};
use crate::commands::daemons::client::limit_by_files;
use crate::config::Sources;
use crate::failure::Failure;
use crate::serve::{on_signals, open_files_max, say_ready, InForce, Messages};
use crate::settings::{Cluster, Config};
use scotfree_core::Nanos;
use scotfree_io::now_monotonic;
use scotfree_rpc::metrics::{MetricsBoard, MetricsListener};
use scotfree_rpc::Stop;
use scotfree_sidecar::client::proxy::{Proxy, ProxyConfig};
use scotfree_sidecar::notices::Notices;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// For so long it is the start: those that could serve wait at most so long to learn whether another is refused.
const REFUSAL_TIME_MAX: Nanos = Nanos::from_secs(3);

/// What a process's first thread has on Linux, in which one proxy alone runs.
const STACK_BYTES: usize = 8 << 20;

/// One of them, before its thread begins.
struct Upstream {
    name: String,
    config: ProxyConfig,
    messages: Messages,
    board: MetricsBoard,
}

/// What a thread has to say.
enum Event {
    /// Its Redis is waited for.
    Waits(usize),
    /// It could serve, here.
    Started(usize, String),
    /// It is over.
    Ended(usize, Result<(), Failure>),
    /// All are to end: whoever listens should look.
    Stop,
}

/// Where one is.
#[derive(PartialEq, Eq)]
enum State {
    Starting,
    Waiting,
    Ready(String),
    Ended,
}

/// Runs all until they are told to end.
pub(super) fn run(sources: Sources, settings: &Config) -> Result<(), Failure> {
    let sections = sections(&settings.proxy, &sources)?;
    let messages = Messages::new("proxy", settings.cluster.log_level);
    let (sender, events) = channel();
    let (mut upstreams, mut running) = (Vec::new(), Vec::new());
    for (index, section) in sections.iter().enumerate() {
        let upstream = upstream(section, &settings.cluster, &messages, (index, &sender))
            .map_err(|failure| section.placed(&sources, failure))?;
        running.push(Running::new(section, &upstream.config, upstream.messages.clone()));
        upstreams.push(upstream);
    }
    limit_each(&mut upstreams);
    let _listener = listen(&sections, &upstreams)?;
    drop(sections);
    let common = InForce::of(&settings.cluster);
    let stop = Stop::new().map_err(|error| Failure::tried("make a waker", &error, "see ulimit -n"))?;
    hear_signals(Reload { sources, common, messages: messages.clone(), running }, &stop, sender.clone())?;
    let begin = |(index, upstream)| begin(index, upstream, &stop, sender.clone());
    let gates = upstreams.iter().enumerate().map(begin).collect::<Result<Vec<_>, _>>()?;
    Together::new(upstreams, events, stop).run(gates)?;
    messages.say("stopped");
    Ok(())
}

/// Where the outside sees how all are, if an address is given.
fn listen(sections: &[Section<'_>], upstreams: &[Upstream]) -> Result<Option<MetricsListener>, Failure> {
    let Some(address) = sections.iter().find_map(|section| section.settings.metrics) else { return Ok(None) };
    let named = upstreams.iter().map(|upstream| (upstream.name.clone(), upstream.board.clone())).collect();
    MetricsListener::listen_to_several(address, "proxy", named).map(Some).map_err(Failure::environment)
}

fn hear_signals(mut reload: Reload, stop: &Stop, sender: Sender<Event>) -> Result<(), Failure> {
    let ending = stop.clone();
    let on_end = move || {
        ending.stop();
        // Nobody listens when all have ended.
        let _ = sender.send(Event::Stop);
    };
    on_signals(on_end, move || reload.run())
}

/// Each gets its part of the files: how many connections one takes must not depend on the others.
fn limit_each(upstreams: &mut [Upstream]) {
    let files_max = open_files_max() / upstreams.len() as u64;
    for Upstream { config, messages, .. } in upstreams {
        limit_by_files((&mut config.connections_max, &mut config.tunnels_max), files_max, messages);
    }
}

fn upstream(
    section: &Section<'_>,
    cluster: &Cluster,
    messages: &Messages,
    (index, sender): (usize, &Sender<Event>),
) -> Result<Upstream, Failure> {
    let name = section.name.clone().unwrap_or_default();
    let (messages, board) = (messages.of_part(&name), MetricsBoard::new());
    let mut config = complete(section.settings, cluster, &messages, index)?;
    answer_questions(&board, &config);
    let (says, waits, sender) = (messages.clone(), board.clone(), sender.clone());
    config.waits_for_server = Some(Notices::new(move |line| {
        says.say(line);
        waits.hold("the Redis server cannot be used yet; see the alarm");
        let _ = sender.send(Event::Waits(index));
    }));
    Ok(Upstream { name, config, messages, board })
}

/// Starts a thread. It does not serve before what is returned is dropped.
fn begin(
    index: usize,
    upstream: &Upstream,
    stop: &Stop,
    sender: Sender<Event>,
) -> Result<Sender<()>, Failure> {
    let (gate, opens) = channel();
    let (config, board, stop) = (upstream.config.clone(), upstream.board.clone(), stop.clone());
    let work = move || {
        let started = |places| {
            let _ = sender.send(Event::Started(index, places));
            // It says nothing: that its other end is gone is the word.
            let _ = opens.recv();
        };
        let ended = catch_unwind(AssertUnwindSafe(|| serve(&config, &board, &stop, started)));
        let fault = || {
            Failure::environment(
                "a fault of scot itself ended it (above); restart the process to serve it again",
            )
        };
        let _ = sender.send(Event::Ended(index, ended.unwrap_or_else(|_| Err(fault()))));
    };
    let started = thread::Builder::new().name(format!("proxy-{index}")).stack_size(STACK_BYTES).spawn(work);
    let failed = |error| Failure::tried("start a thread for each proxy", &error, "see ulimit -u");
    started.map_err(failed).map(|_| gate)
}

fn serve(
    config: &ProxyConfig,
    board: &MetricsBoard,
    stop: &Stop,
    started: impl FnOnce(String),
) -> Result<(), Failure> {
    let Some(mut proxy) = Proxy::start(config, stop).map_err(Failure::environment)? else { return Ok(()) };
    started(place(&proxy, config));
    proxy.run(stop, Some(board)).map_err(Failure::environment)
}

/// What is known of all, in the thread that began them.
struct Together {
    upstreams: Vec<Upstream>,
    states: Vec<State>,
    events: Receiver<Event>,
    stop: Stop,
    /// Until then it is the start.
    start_until: Nanos,
    /// Of the first that was ended by one.
    failure: Option<Failure>,
}

impl Together {
    fn new(upstreams: Vec<Upstream>, events: Receiver<Event>, stop: Stop) -> Together {
        let states = upstreams.iter().map(|_| State::Starting).collect();
        let start_until = now_monotonic().plus(REFUSAL_TIME_MAX);
        Together { upstreams, states, events, stop, start_until, failure: None }
    }

    /// Lets them serve, and hears what becomes of them.
    fn run(mut self, gates: Vec<Sender<()>>) -> Result<(), Failure> {
        self.hear_refusals();
        // If one was refused, the others find that they are to stop.
        drop(gates);
        let mut is_said = false;
        while self.states.iter().any(|state| *state != State::Ended) {
            if !is_said {
                is_said = self.say_ready();
            }
            // The thread that hears signals keeps the other end.
            let Ok(event) = self.events.recv() else { break };
            self.take(event);
        }
        self.failure.map_or(Ok(()), Err)
    }

    /// Waits until each has started, waits for its Redis, or takes longer than anybody should wait for.
    fn hear_refusals(&mut self) {
        while self.states.contains(&State::Starting) && !self.stop.is_stopped() {
            let left = Duration::from_nanos(self.start_until.since(now_monotonic()).0);
            match self.events.recv_timeout(left) {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Waits(index) => self.states[index] = State::Waiting,
            Event::Started(index, place) => self.states[index] = State::Ready(place),
            Event::Ended(index, ended) => {
                let before = std::mem::replace(&mut self.states[index], State::Ended);
                if let Err(failure) = ended {
                    self.take_failure(index, &before, &failure);
                }
            }
            Event::Stop => {}
        }
    }

    /// Ends all at the start, if it never served; else one that has ended leaves the others.
    fn take_failure(&mut self, index: usize, before: &State, failure: &Failure) {
        let has_served = matches!(before, State::Ready(_));
        if !has_served && now_monotonic() < self.start_until && !self.stop.is_stopped() {
            self.stop.stop();
        } else {
            let upstream = &self.upstreams[index];
            upstream.board.end(&format!("it has ended: {failure}"));
            upstream
                .messages
                .say(&format!("ALARM: it has ended: {failure}; a restart of the process begins it again"));
        }
        let named = self.named(index, failure);
        self.failure.get_or_insert(named);
    }

    fn named(&self, index: usize, failure: &Failure) -> Failure {
        Failure::environment(of_named(Some(&self.upstreams[index].name), &failure.to_string()))
    }

    /// Says so once all serve.
    fn say_ready(&self) -> bool {
        let places: Option<Vec<&str>> = self
            .states
            .iter()
            .map(|state| match state {
                State::Ready(place) => Some(place.as_str()),
                State::Starting | State::Waiting | State::Ended => None,
            })
            .collect();
        let all = places.map(|places| places.join(", "));
        all.map(|places| say_ready(&format!("proxy {places}"))).is_some()
    }
}
