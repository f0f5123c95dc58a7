//! `scot proxy`: RESP in, a durable log beside it, a Redis or Valkey behind, all in one process.
//!
//! Invariant: nobody is served before everything that the log holds and the server does not is executed there.

mod asked;
mod cache;
mod certificates;
mod log;
mod log_times;
mod path;
mod peers;
mod refused;
mod starting;
mod tracking;
mod watching;

use super::connections::Connections;
use super::coverage::Coverage;
use super::drain::given_up;
use super::fronts::Fronts;
use super::learn::Told;
use super::silence::{Silence, Whose};
use super::{listen, ClientSidecarConfig, EarlyRules, ListenerConfig, Pacing};
use crate::notices::Notices;
use crate::server::{
    say_once, Recovered, RedisService, RedisServiceConfig, SidecarError, CANNOT_SYNC, RETRY_INTERVAL,
};
pub use asked::Questions;
pub use cache::BYTES_MIN as CACHE_BYTES_MIN;
use certificates::Certificates;
pub use log::LogError;
use log::{updates_of, LogName, PeerList, ProxyLog};
use path::{ProxyPath, PROXY_MARK};
use peers::{records_of_peers, Links};
pub use peers::{PeersConfig, PEERS_MAX};
use scotfree_core::{Nanos, SeqNum, SessionId};
use scotfree_io::processor::Home;
use scotfree_io::{now_monotonic, now_realtime, Crowd, Spin};
use scotfree_proxy::{CommitQueue, Found, Lacking, QueueConfig, Torn};
use scotfree_resp::back::{Owner, StopReason};
use scotfree_resp::front::{EarlyRule, FrontConfig, FrontCounters};
use scotfree_rpc::metrics::{Health, MetricsBoard, MetricsText};
use scotfree_rpc::{SessionHandle, SharedKey, Stop};
use scotfree_wire::ClusterKey;
use starting::Starting;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use tracking::Link;
use watching::{Manner, Watching};

/// The largest command that is logged; a larger one is answered when the server's storage holds it.
pub const REQUEST_BYTES_MAX: usize = 1 << 20;
/// How often it is looked what the server is now.
const DESCRIBE_INTERVAL: Nanos = Nanos::from_millis(250);
/// How often metrics are published.
const PUBLISH_INTERVAL: Nanos = Nanos::from_millis(250);
/// After how long a replay is said to go on.
const REPLAY_SAID_AFTER: Nanos = Nanos::from_secs(2);
/// With more requests under way, a loop that looks takes a processor that the Redis or who writes the log could use. With
/// no more, those who read beside a few writers are answered in half the time.
const FEW: u64 = 8;
/// Why one is not used that refuses what belongs into a file that takes nothing.
const NO_LETTERS: &str =
    "the dead-letter file takes nothing (is its disk full?), and the Redis server refuses a write \
                          whose letter it should have; see the alarm";
/// Nobody's session.
const NO_SESSION: SessionHandle = SessionHandle::numbered(0);

/// What the proxy is told at its start.
#[derive(Debug, Clone)]
pub struct ProxyConfig {
    /// Where clients connect.
    pub listeners: Vec<ListenerConfig>,
    /// The server behind it.
    pub service: RedisServiceConfig,
    /// The file of the log.
    pub log: PathBuf,
    /// Its size when it is made.
    pub log_bytes: u64,
    /// The processor on which the log is written, if that matters.
    pub log_processor: Option<usize>,
    /// Goes on with a server that another stood before since, or that does not know this log.
    pub accept_server: bool,
    /// Other hosts whose memory holds the records, instead of the disk.
    pub peers: Option<PeersConfig>,
    /// Goes on without what only peers hold.
    pub without_peers: bool,
    /// Where it is said that a server which is not there at the start is waited for; if nowhere, that ends the start.
    pub waits_for_server: Option<Notices>,
    /// Up to how many bytes of values are kept, for reads to be answered without the server; none are if not given.
    pub cache_bytes: Option<u64>,
    /// By how much these answers may be older than what others have written past this proxy; if not given, nobody but
    /// this proxy may write the server.
    pub cache_tracking: Option<Nanos>,
    /// By which an operator asks what the cache knows.
    pub questions: Questions,
    /// By which the rules of early answers are changed, also while it starts.
    pub early_rules: EarlyRules,
    /// What is outstanding at once.
    pub queue: QueueConfig,
    /// What a connection may do; its early rule is the listener's.
    pub front: FrontConfig,
    /// How many client connections there can be.
    pub connections_max: usize,
    /// How many of them can be tunnels.
    pub tunnels_max: usize,
    /// Where lines for the operator go.
    pub notices: Notices,
    /// How long a stop waits for what is on its way.
    pub drain_ns_max: Nanos,
    /// Whether to look for events before sleeping.
    pub spin: Spin,
}

impl ProxyConfig {
    /// Defaults, with these listeners.
    pub fn new(listeners: Vec<ListenerConfig>, service: RedisServiceConfig, log: PathBuf) -> ProxyConfig {
        ProxyConfig {
            listeners,
            service,
            log,
            log_bytes: 256 << 20,
            log_processor: None,
            accept_server: false,
            peers: None,
            without_peers: false,
            waits_for_server: None,
            cache_bytes: None,
            cache_tracking: None,
            questions: Questions::default(),
            early_rules: EarlyRules::default(),
            queue: QueueConfig::default(),
            front: FrontConfig { request_bytes_max: REQUEST_BYTES_MAX, ..FrontConfig::default() },
            connections_max: 10_000,
            tunnels_max: 2_048,
            notices: Notices::default(),
            drain_ns_max: Nanos::from_secs(3),
            spin: Spin::Never,
        }
    }
}

/// Why a proxy cannot do its work.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// Its log cannot be used.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Its server, or an address, cannot be used.
    #[error(transparent)]
    Server(#[from] SidecarError),
    /// The server is not the one that this log belongs to.
    #[error(
        "{0}. Give the log that belongs to this server (--log), or, to go on with what is there, --accept-server"
    )]
    Stranger(String),
    /// Peers hold what nobody asks them for.
    #[error(
        "the last acknowledged updates of the log {0} are in the memory of peers, and none is named: nothing was changed. \
         Name them (--peer), or, to go on without these updates, --without-peers"
    )]
    Peers(String),
    /// The log has gaps that cannot be.
    #[error(transparent)]
    Torn(#[from] Torn),
}

impl ProxyError {
    /// Whether trying again could help.
    fn is_passing(&self) -> bool {
        match self {
            ProxyError::Server(error) => error.is_passing(),
            ProxyError::Log(_) | ProxyError::Stranger(_) | ProxyError::Peers(_) | ProxyError::Torn(_) => {
                false
            }
        }
    }
}

impl From<std::io::Error> for ProxyError {
    fn from(error: std::io::Error) -> ProxyError {
        ProxyError::Server(SidecarError::Io(error))
    }
}

/// The loop and what it owns.
pub struct Proxy {
    path: ProxyPath,
    connections: Connections,
    listeners: Vec<TcpListener>,
    watching: Watching,
    service: RedisServiceConfig,
    notices: Notices,
    questions: Questions,
    describe_at: Nanos,
    log_trouble_said: bool,
    certificates: Certificates,
    /// What the operator was told last of a server that refuses to execute anew what the log holds; empty since it has.
    refusal_said: String,
    /// Why a letter could not be written, for which the server is begun with anew; empty since all is executed.
    letters_trouble: String,
    silence: Silence,
    drain_ns_max: Nanos,
    drain_until: Option<Nanos>,
    log_processor: Option<usize>,
    crowd: Crowd,
}

impl Proxy {
    /// Opens the log and the server, and executes what the server lacks. None if somebody asks to stop meanwhile.
    pub fn start(config: &ProxyConfig, stop: &Stop) -> Result<Option<Proxy>, ProxyError> {
        let mut listeners = config.listeners.iter().map(listen).collect::<Result<Vec<_>, _>>()?;
        let mut said = String::new();
        // The start may take long.
        let mut certificates = Certificates::of(config);
        certificates.look(unix_s(), &config.notices);
        loop {
            let started = Proxy::start_behind(&mut listeners, config, &certificates, stop);
            match (started, &config.waits_for_server) {
                // It was lost while the log was replayed.
                (Err(error), Some(_)) if error.is_passing() && stop.is_stopped() => return Ok(None),
                (Err(error), Some(notices)) if error.is_passing() => {
                    say_once(notices, &mut said, error.to_string());
                    std::thread::sleep(RETRY_INTERVAL);
                }
                (started, _) => return started,
            }
        }
    }

    /// Starts behind these listeners, which are taken if it comes to that: meanwhile clients wait at them.
    fn start_behind(
        listeners: &mut Vec<TcpListener>,
        config: &ProxyConfig,
        certificates: &Certificates,
        stop: &Stop,
    ) -> Result<Option<Proxy>, ProxyError> {
        let mut log = ProxyLog::open(&config.log, config.log_bytes, config.log_processor)?;
        let Some(records) = records_of(config, &mut log, stop)? else { return Ok(None) };
        if let Some(text) = log.torn_text() {
            config.notices.say(&text);
        }
        let mut service = config.service.clone();
        let is_early = config.listeners.iter().any(|listener| listener.early != EarlyRule::Never);
        service.says_early.store(is_early, Ordering::Relaxed);
        // The log counts as a device, so early answers are to be had.
        service.back.devices = Some(1);
        service.back.last_epoch = (log.meta().epoch > 0 && !config.accept_server).then_some(log.meta().epoch);
        service.back.owner = Some(Owner {
            name: log.meta().name,
            takes_over: config.accept_server,
            may_have_counted: log.meta().is_starting,
        });
        // And its name: it may die as soon as the server knows it.
        log.note_starting()?;
        let started = match &config.waits_for_server {
            Some(notices) => starting::start(&service, notices, stop),
            None => RedisService::start(&service, stop),
        };
        let started = started.or_else(|error| refuse(&mut log, error))?;
        let Some((redis, recovered)) = started else { return Ok(None) };
        service.back.last_epoch = Some(recovered.epoch.0);
        let name = log.meta().name;
        service.back.owner = Some(Owner { name, takes_over: false, may_have_counted: false });
        let (updates, places) = updates_of(&records)?;
        let positions = positions_of(log.meta().name, &recovered);
        refuse_strangers(config, &log, &recovered, &positions, updates.is_empty())?;
        log.note_epoch(recovered.epoch.0)?;
        let found = Found { records: places, updates, positions };
        let (queue, lost) = CommitQueue::recover(config.queue.clone(), &found)?;
        config.notices.say(&text_of(config, &found, &recovered));
        let mut path = ProxyPath::new(queue, log, redis, session_base()?);
        path.bury(&lost);
        if config.accept_server && !lost.is_empty() {
            config.notices.alarm(&format!(
                "{} updates of the log that may have been acknowledged are not executed, since a write of their session \
                 before them is not there; they are in the file of dead letters",
                lost.len()
            ));
        }
        let mut watching = Watching::new(config.spin)?;
        path.settles = config.peers.is_some() || !path.log.meta().peers.is_empty();
        if !replay(&mut path, &mut watching, stop, config)? {
            return Ok(None);
        }
        path.settles = false;
        begin_peers(config, &mut path)?;
        if let Some(bytes) = config.cache_bytes {
            let link = config.cache_tracking.map(|bound| Link::new(bound, &config.service)).transpose()?;
            path.begin_cache(bytes, link);
            config
                .notices
                .say(&format!("reads of what passes are answered here, from {bytes} bytes at most"));
        }
        let key = SharedKey::from(random_key()?);
        let fronts_config = fronts_config(config, key);
        let told = told(&path).unwrap_or_else(|| Told { description: Arc::default(), ahead_ms: 0 });
        let coverage = Coverage::new(fronts_config.session, told.description.devices);
        let mut fronts = Fronts::new(&fronts_config, told, coverage);
        fronts.early_rules = config.early_rules.clone();
        // The service says it.
        fronts.says_writes = false;
        if config.cache_bytes.is_some() {
            fronts.note_waiting();
        }
        // Where it cannot be, the first client is told.
        let _ = fronts.prepare(&mut path);
        watching.listen(listeners)?;
        let connections = Connections::new(&fronts_config, fronts, watching::FIRST_CONNECTION)?;
        Ok(Some(Proxy {
            path,
            connections,
            listeners: std::mem::take(listeners),
            watching,
            service,
            notices: config.notices.clone(),
            questions: config.questions.clone(),
            describe_at: Nanos(0),
            log_trouble_said: false,
            certificates: certificates.clone(),
            refusal_said: String::new(),
            letters_trouble: String::new(),
            silence: Silence::of(Whose::Redis),
            drain_ns_max: config.drain_ns_max,
            drain_until: None,
            log_processor: config.log_processor,
            crowd: Crowd::above(FEW),
        }))
    }

    /// Where clients connect, in the order of the configuration.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// What all connections have counted.
    pub fn counters(&self) -> FrontCounters {
        self.connections.fronts.counters()
    }

    /// Serves until somebody asks to stop.
    pub fn run(&mut self, stop: &Stop, board: Option<&MetricsBoard>) -> Result<(), ProxyError> {
        self.watching.stop_on(stop)?;
        let mut home = self.log_processor.and_then(|processor| Home::new(processor).ok());
        let mut text = MetricsText::new();
        let mut publish_at = if board.is_some() { Nanos(0) } else { Nanos::MAX };
        loop {
            self.turn()?;
            // There who writes is woken sooner; with more to do than to write, the Redis would be in its way.
            if let (Some(home), Some(is_written_here)) = (&mut home, self.path.log.is_written_here()) {
                home.stay(is_written_here);
            }
            let now = now_monotonic();
            self.look_around(now);
            if let Some(board) = board.filter(|_| now >= publish_at) {
                publish_at = now.plus(PUBLISH_INTERVAL);
                self.publish(board, &mut text);
            }
            if stop.is_stopped() && self.drain_until.is_none() {
                self.begin_drain(now)?;
            }
            if self.is_drained(now) {
                self.finish(now);
                return self.leave_peers();
            }
            self.wait(now, publish_at)?;
        }
    }

    /// Takes what clients have sent to the log and the server, and what came of it back.
    fn turn(&mut self) -> Result<(), ProxyError> {
        self.connections.start_tunnels(self.watching.poller());
        let mut now = now_realtime();
        self.submit(now);
        loop {
            self.path.turn(now);
            now = now_realtime();
            self.path.log.note_times(now);
            self.connections.fronts.hear(now, NO_SESSION, &mut self.path);
            // Who is only answered early hears nothing of the server's.
            if let Some(allowed) = self.path.service().and_then(RedisService::word_of_early) {
                self.connections.fronts.spread_early(allowed);
            }
            let has_room = self.connections.send(self.watching.poller());
            // What was answered, and what was sent, may have made room for what waits: nothing else wakes it.
            now = now_realtime();
            self.submit(now);
            self.keep_server()?;
            if !has_room && !self.path.has_work() {
                return Ok(());
            }
        }
    }

    /// Hands on what clients have asked; what some do past the order is known before.
    fn submit(&mut self, now: Nanos) {
        self.path.know_passing(&mut self.connections.fronts);
        self.connections.fronts.submit(now, &mut self.path);
    }

    /// Notices that the server is lost, or there again.
    fn keep_server(&mut self) -> Result<(), ProxyError> {
        if let Some(reason) = self.path.broken() {
            let service = self.path.service();
            let stopped = service.and_then(|service| service.stopped().cloned());
            if let Some(trouble) = service.and_then(RedisService::letters_trouble) {
                trouble.clone_into(&mut self.letters_trouble);
            }
            if let Some(reason) = stopped.as_ref().filter(|reason| !may_be_waited_for(reason)) {
                return Err(of_server(SidecarError::of_start(&self.service.redis, reason.clone())));
            }
            self.lose_server(reason, stopped.is_some_and(|reason| reason.is_unwilling()))?;
        }
        let Some(started) = self.path.starting().and_then(Starting::result) else { return Ok(()) };
        if let Some((service, recovered)) = started.or_else(|error| refuse(&mut self.path.log, error))? {
            let positions = positions_of(self.path.log.meta().name, &recovered);
            if let Some(lacking) = self.path.queue.lacking(&positions) {
                // A restart, which knows nothing of this, is to refuse it as well.
                self.path.log.note_lacking(lacking)?;
                return Err(older_data(&self.service.redis, lacking));
            }
            self.service.back.last_epoch = Some(recovered.epoch.0);
            self.path.log.note_epoch(recovered.epoch.0)?;
            let before = self.path.queue.counters().replayed;
            self.path.regain_server(service, &positions);
            self.connections.forget_ready_tunnels();
            let again = self.path.queue.counters().replayed - before;
            let epoch = recovered.epoch;
            if self.refusal_said.is_empty() {
                self.notices.alarm(&format!(
                    "the server is there again, epoch {epoch}; {again} writes are executed anew"
                ));
            }
        }
        Ok(())
    }

    /// Gives the server up, and says so: of one that refuses what is executed anew once, however often it is tried.
    fn lose_server(&mut self, reason: String, is_refusal: bool) -> Result<(), ProxyError> {
        let is_said = is_refusal && reason == self.refusal_said;
        if !is_said {
            let letters = &self.letters_trouble;
            let also = if is_refusal && !letters.is_empty() {
                format!("; before, {letters}")
            } else {
                String::new()
            };
            self.notices.alarm(&format!("{reason}{also}; the log goes on, and the server is waited for"));
        }
        let is_last = if is_refusal { reason } else { String::new() };
        self.refusal_said.clone_from(&is_last);
        self.path.log.note_starting()?;
        let starting = Starting::begin(self.service.clone(), self.notices.clone(), is_last)?;
        self.path.lose_server(starting);
        Ok(())
    }

    /// Says that a server which has refused to do so has executed what the log holds.
    fn say_replayed(&mut self) {
        let is_well = self.refusal_said.is_empty() && self.letters_trouble.is_empty();
        if is_well || self.path.service().is_none() || !self.path.queue.is_replayed() {
            return;
        }
        self.letters_trouble.clear();
        if self.refusal_said.is_empty() {
            return;
        }
        self.refusal_said.clear();
        self.notices.alarm("the server is there again, and has executed anew what it had refused");
    }

    /// Says what an operator should know, and tells the fronts what the server is.
    fn look_around(&mut self, now: Nanos) {
        if now < self.describe_at {
            return;
        }
        self.describe_at = now.plus(DESCRIBE_INTERVAL);
        if let Some(told) = told(&self.path) {
            self.connections.fronts.learn(told);
        }
        self.service.says_early.store(self.connections.fronts.may_answer_early(), Ordering::Relaxed);
        self.say_replayed();
        self.path.answer(&self.questions);
        self.certificates.look(unix_s(), &self.notices);
        self.listen_to_server(now);
        self.path.log.look();
        self.connections.end_slow_handshakes(now);
        if let Some(reason) = self.path.log.failure().filter(|_| !self.log_trouble_said) {
            self.log_trouble_said = true;
            self.notices.alarm(&format!(
                "the log takes nothing more: {reason}; every write is answered when the server's storage holds it, \
                 which is as safe and slower; mend it and restart the proxy"
            ));
        }
        if let Some(text) = self.connections.say_refusals(now) {
            self.notices.say(&text);
        }
    }

    /// Says that the server answers nothing, or again. One that is lost is another matter.
    fn listen_to_server(&mut self, now: Nanos) {
        match self.path.service() {
            None => self.silence = Silence::of(Whose::Redis),
            Some(service) => {
                if let Some(text) = self.silence.look(now, service.hearing()) {
                    self.notices.alarm(&text);
                }
            }
        }
    }

    fn wait(&mut self, now: Nanos, publish_at: Nanos) -> Result<(), ProxyError> {
        let timers = [Some(publish_at), Some(self.describe_at), self.drain_until, self.path.next_turn()];
        let timer = timers.into_iter().flatten().min().unwrap_or(Nanos::MAX);
        self.watching.follow(&self.path)?;
        let are_few = self.crowd.are_few(self.path.queue.counters().under_way());
        let manner = match (are_few, self.path.is_busy()) {
            (true, _) => Manner::Looking,
            (false, true) => Manner::Holding,
            (false, false) => Manner::Asleep,
        };
        for event in self.watching.wait(timer.since(now), manner)? {
            match watching::listener_of(event) {
                Some(index) => {
                    let listener = self.listeners.get(index);
                    if let Some(listener) = listener {
                        self.connections.accept(listener, index, &mut self.path, self.watching.poller());
                    }
                }
                None if event.key >= watching::FIRST_CONNECTION => self.connections.on_ready(event),
                None => {}
            }
        }
        Ok(())
    }

    fn begin_drain(&mut self, now: Nanos) -> Result<(), ProxyError> {
        self.drain_until = Some(now.plus(self.drain_ns_max));
        self.watching.end_listening(&self.listeners)?;
        self.listeners.clear();
        self.connections.fronts.stop_reading();
        self.connections.send(self.watching.poller());
        Ok(())
    }

    fn is_drained(&self, now: Nanos) -> bool {
        self.drain_until.is_some_and(|until| now >= until || self.connections.fronts.is_drained())
    }

    fn finish(&mut self, now: Nanos) {
        let unanswered = self.connections.fronts.outstanding();
        let after = self.drain_until.map_or(Nanos(0), |until| self.drain_ns_max.since(until.since(now)));
        self.connections.close_all();
        self.path.end_cache();
        if unanswered > 0 {
            let given_up = given_up(unanswered, after);
            self.notices.alarm(&format!(
                "{given_up}; what was answered is in the log or at the Redis, and the next start executes what the Redis lacks"
            ));
        }
    }

    /// Peers are needed no longer when everything is stable; if it does not become so soon, the next start asks them.
    fn leave_peers(&mut self) -> Result<(), ProxyError> {
        if self.path.log.peers().is_none() {
            return Ok(());
        }
        self.path.settles = true;
        let until = now_monotonic().plus(self.drain_ns_max);
        while !self.path.queue.is_settled() && self.path.service().is_some() {
            let now = now_monotonic();
            if now >= until {
                return Ok(());
            }
            self.path.turn(now_realtime());
            let timer = self.path.next_turn().map_or(until, |at| at.min(until));
            self.watching.follow(&self.path)?;
            self.watching.wait(timer.since(now), Manner::Asleep)?;
        }
        if self.path.queue.is_settled() {
            self.path.log.leave_peers()?;
        }
        Ok(())
    }

    fn publish(&self, board: &MetricsBoard, text: &mut MetricsText) {
        text.clear();
        self.connections.write_metrics(text);
        write_metrics(&self.path, text);
        self.certificates.write_metrics(unix_s(), text);
        if let Some(service) = self.path.service() {
            service.write_metrics(text);
        }
        let (open, total, refused) = self.connections.tunnel_counts();
        text.gauge("scotfree_proxy_tunnels_open", "Tunnels open now, at the server's end", open);
        text.counter("scotfree_proxy_tunnels_total", "Tunnels that have ended", total);
        text.counter("scotfree_proxy_tunnels_refused_total", "Tunnels refused", refused);
        board.publish(text, self.health());
    }

    fn health(&self) -> Health {
        match self.path.service() {
            _ if self.drain_until.is_some() => Health::NotServing("draining"),
            _ if !self.letters_trouble.is_empty() => Health::NotServing(NO_LETTERS),
            _ if !self.refusal_said.is_empty() => Health::NotServing(refused::text(&self.refusal_said)),
            None => {
                let refusal = self.path.starting().and_then(Starting::refusal);
                Health::NotServing(refusal.unwrap_or("the Redis server is not there"))
            }
            Some(_) if self.silence.lasts() => Health::NotServing("the Redis server does not answer"),
            Some(_) if self.path.log.failure().is_some() => {
                Health::NotServing("the log takes nothing more; writes wait for the server's storage")
            }
            Some(_) if self.path.log.peers().is_some_and(|peers| !peers.is_whole()) => {
                Health::NotServing("a peer does not hold the log; writes wait for the server's storage")
            }
            Some(service) if !service.writes_allowed() => {
                Health::NotServing("writes are refused; see the alarm")
            }
            Some(service) if !service.can_sync() => Health::NotServing(CANNOT_SYNC),
            Some(service) => match service.refusing() {
                Some(cause) => Health::NotServing(cause.text()),
                None => Health::Serving,
            },
        }
    }
}

fn write_metrics(path: &ProxyPath, text: &mut MetricsText) {
    let counters = path.queue.counters();
    let (used, size) = path.log.used();
    text.gauge("scotfree_proxy_outstanding", "Requests not dealt with", path.queue.len());
    text.gauge(
        "scotfree_proxy_log_used_bytes",
        "What live records take of the log, half of which is theirs",
        used,
    );
    text.gauge("scotfree_proxy_log_bytes", "The size of the log", size);
    text.gauge(
        "scotfree_proxy_log_failed",
        "1: the log takes nothing more",
        u8::from(path.log.failure().is_some()),
    );
    if let Some(peers) = path.log.peers() {
        let (count, all) = peers.count();
        text.gauge("scotfree_proxy_peers", "Peers that are to hold the log", all);
        text.gauge("scotfree_proxy_peers_whole", "Peers that hold it", count);
        text.counter(
            "scotfree_proxy_peer_losses_total",
            "Times when one that held it was lost",
            peers.losses,
        );
    }
    for (name, help, value) in [
        ("submitted_total", "Requests taken", counters.submitted),
        ("completed_total", "Requests answered", counters.completed),
        ("completed_early_total", "Of these, by the log alone", counters.completed_early),
        ("held_total", "Answers that waited for the log or for storage", counters.held),
        ("logged_total", "Updates handed to the log", counters.logged),
        ("records_total", "Records of the log that held them", counters.records),
        ("replayed_total", "Writes executed anew after a crash", counters.replayed),
        ("known_total", "Reads answered by the proxy itself", counters.known),
        ("lost_total", "Updates never executed, since a write before them was lost", counters.lost),
        ("log_full_total", "Times when the log had no room", path.log.times_full()),
        ("server_losses_total", "Times when the server was lost", path.server_losses),
    ] {
        text.counter(&format!("scotfree_proxy_{name}"), help, value);
    }
    path.log.write_metrics(text);
    path.write_cache_metrics(text);
}

/// Whether a server that was served is waited for: it is away, or somebody can have it serve again.
fn may_be_waited_for(reason: &StopReason) -> bool {
    reason.is_passing() || reason.is_unwilling()
}

/// A server that cannot be used. What another has counted up is not this log's, whoever asks again.
fn refuse<T>(log: &mut ProxyLog, error: SidecarError) -> Result<T, ProxyError> {
    if matches!(error, SidecarError::Server { reason: StopReason::Fenced, .. }) {
        log.note_overtaken()?;
    }
    Err(of_server(error))
}

/// A server that is not what this log has stood before has words of its own: there is another way out.
fn of_server(error: SidecarError) -> ProxyError {
    match error {
        SidecarError::Server { redis, reason: StopReason::Replaced { found: Some(found), last } } => {
            ProxyError::Stranger(format!(
                "the Redis server at {redis} has older data than this log has stood before (epoch {found}, and the log \
                 knows epoch {last}): it was started from an old copy of its files, or another server answers there; \
                 nothing was changed; bring its data back"
            ))
        }
        SidecarError::Server { redis, reason: StopReason::Replaced { found: None, last } } => {
            ProxyError::Stranger(format!(
                "the Redis server at {redis} has no markers where this log, which knows epoch {last}, expects them: in the \
                 last one of its `databases`, or in that of --marker-db. If `databases` was changed, they are still in the \
                 former last one: set it back, or name that one (--marker-db 15 where there were 16). Otherwise it has older \
                 data than this log has stood before, or none: it was started without its append-only files or from an old \
                 copy, or has evicted keys (maxmemory-policy), or another server answers there; bring its data back. Nothing \
                 was changed"
            ))
        }
        SidecarError::Server { redis, reason: StopReason::Fenced } => ProxyError::Stranger(format!(
            "another proxy or sidecar has stood before the Redis server at {redis} since this log did, or this log is a \
             copy of one that has, so what only the log holds may be older than what is there; nothing was changed"
        )),
        SidecarError::Server { redis, reason: StopReason::Owned } => ProxyError::Stranger(format!(
            "another log stood before the Redis server at {redis}, or still does (one proxy stands before a Redis: who \
             accepts the server ends the other), and may hold acknowledged updates that the server does not have; nothing \
             was changed"
        )),
        other => other.into(),
    }
}

/// A server that has less than it had called stable.
fn older_data(redis: &impl std::fmt::Display, lacking: Lacking) -> ProxyError {
    let Lacking { session, kept, found } = lacking;
    ProxyError::Stranger(format!(
        "the Redis server at {redis} has older data than it had called stable: of session {session} the writes up to \
         {found}, and it had those up to {kept}. It was started from a dump instead of its append-only files (appendonly \
         no in its conf), or from an old copy; nothing was changed but the epoch that the server counts. Stop it, and \
         start it with `appendonly yes` in its conf and the append-only files that it had, which CONFIG SET appendonly yes \
         overwrites"
    ))
}

/// What the server is now; none while it is away.
fn told(path: &ProxyPath) -> Option<Told> {
    let description = path.service()?.describe();
    let ahead_ms = description.time_ms - (now_realtime().0 / 1_000_000) as i64;
    Some(Told { description: Arc::new(description), ahead_ms })
}

/// The positions of this log's sessions.
fn positions_of(name: LogName, recovered: &Recovered) -> BTreeMap<SessionId, SeqNum> {
    let ours = recovered
        .sessions
        .iter()
        .filter(|session| session.server_nonce == PROXY_MARK && session.client_nonce == name);
    ours.map(|session| (session.session, session.position)).collect()
}

/// Refuses a server that is not the one that this log belongs to.
fn refuse_strangers(
    config: &ProxyConfig,
    log: &ProxyLog,
    recovered: &Recovered,
    positions: &BTreeMap<SessionId, SeqNum>,
    is_empty: bool,
) -> Result<(), ProxyError> {
    if config.accept_server {
        return Ok(());
    }
    let (server, path) = (&config.service.redis, config.log.display());
    // As it was when a proxy with this log was refused: what was missing then may be there again.
    let is_there =
        |lacking: &Lacking| positions.get(&lacking.session).is_some_and(|seq| *seq >= lacking.kept);
    if let Some(lacking) = log.meta().lacking.filter(|lacking| !is_there(lacking)) {
        let found = positions.get(&lacking.session).copied().unwrap_or(SeqNum(0));
        return Err(older_data(server, Lacking { found, ..lacking }));
    }
    if positions.is_empty() && !is_empty {
        return Err(ProxyError::Stranger(format!(
            "the log {path} holds updates, and the Redis server at {server} does not know it: its data was lost or \
             replaced, or it is another server; nothing was changed but the epoch that the server counts"
        )));
    }
    let name = log.meta().name;
    let others = recovered
        .sessions
        .iter()
        .any(|session| session.server_nonce == PROXY_MARK && session.client_nonce != name);
    if others && log.meta().epoch == 0 {
        return Err(ProxyError::Stranger(format!(
            "another log stood before the Redis server at {server}, and may hold acknowledged updates that the server \
             does not have; {path} is not it; nothing was changed but the epoch that the server counts"
        )));
    }
    Ok(())
}

/// What the log holds, on disk or at the peers that are relied on; none if somebody asks to stop.
fn records_of(
    config: &ProxyConfig,
    log: &mut ProxyLog,
    stop: &Stop,
) -> Result<Option<BTreeMap<u64, Vec<u8>>>, ProxyError> {
    let list = log.meta().peers.clone();
    if list.is_empty() {
        return Ok(Some(log.records()?));
    }
    if config.without_peers {
        log.note_peers(&PeerList::new())?;
        config.notices.alarm("goes on without what only peers held: acknowledged updates may be lost");
        return Ok(Some(log.records()?));
    }
    let peers = config.peers.as_ref().ok_or_else(|| ProxyError::Peers(config.log.display().to_string()))?;
    Ok(records_of_peers(peers, log.meta().name, &list, &config.notices, stop))
}

/// Everything that peers gave back is stable: they are relied on no longer, and hold what comes from now on.
fn begin_peers(config: &ProxyConfig, path: &mut ProxyPath) -> Result<(), ProxyError> {
    path.log.note_peers(&PeerList::new())?;
    if let Some(peers) = &config.peers {
        let (name, epoch) = (path.log.meta().name, path.log.meta().epoch);
        let links = Links::new(peers, name, epoch, &config.notices)?;
        path.log.go_to_peers(links)?;
    }
    Ok(())
}

fn text_of(config: &ProxyConfig, found: &Found<'_>, recovered: &Recovered) -> String {
    let applied = found.positions.values().max().copied().unwrap_or(SeqNum(0));
    let behind = found.updates.iter().filter(|update| update.seq > applied).count();
    format!(
        "epoch {}, log {}: {} updates in it, {behind} of them not executed yet; stable: {}",
        recovered.epoch,
        config.log.display(),
        found.updates.len(),
        recovered.method.text()
    )
}

/// Executes what the log holds and the server lacks; false if somebody asked to stop.
fn replay(
    path: &mut ProxyPath,
    watching: &mut Watching,
    stop: &Stop,
    config: &ProxyConfig,
) -> Result<bool, ProxyError> {
    let (redis, notices) = (&config.service.redis, &config.notices);
    let mut say_at = now_monotonic().plus(REPLAY_SAID_AFTER);
    loop {
        path.turn(now_realtime());
        if let Some(lost) = path.broken() {
            let stopped = path.service().and_then(|service| service.stopped().cloned());
            let reason = stopped.filter(StopReason::is_unwilling).unwrap_or(StopReason::Lost(lost));
            return Err(SidecarError::of_start(redis, reason).into());
        }
        if path.queue.is_executed() && (!path.settles || path.queue.is_settled()) {
            return Ok(true);
        }
        if stop.is_stopped() {
            return Ok(false);
        }
        let now = now_monotonic();
        if now >= say_at {
            say_at = now.plus(REPLAY_SAID_AFTER);
            notices.say(&format!("{} updates of the log are still to be executed", path.queue.unexecuted()));
        }
        let timer =
            path.next_turn().map_or(REPLAY_SAID_AFTER, |at| at.since(now)).min(Nanos::from_millis(100));
        watching.follow(path)?;
        watching.wait(timer, Manner::Asleep)?;
    }
}

/// What the fronts are told: the way to the server is this process', so requests need no packing.
fn fronts_config(config: &ProxyConfig, key: SharedKey) -> ClientSidecarConfig {
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut common = ClientSidecarConfig::new(nowhere, nowhere, nowhere, key);
    common.listeners.clone_from(&config.listeners);
    common.tunnels_to = Some(config.service.redis.clone());
    common.front = config.front.clone();
    common.connections_max = config.connections_max;
    common.tunnels_max = config.tunnels_max;
    common.notices = config.notices.clone();
    common.pacing = Pacing { packs: false, departures_max: usize::MAX, reads_max: usize::MAX };
    common
}

/// Seconds since 1970.
fn unix_s() -> i64 {
    (now_realtime().0 / 1_000_000_000) as i64
}

fn random_key() -> Result<ClusterKey, ProxyError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(SidecarError::Random)?;
    Ok(ClusterKey::from_bytes(bytes))
}

/// Where the numbers of this run's sessions begin: no other's are near.
fn session_base() -> Result<u64, ProxyError> {
    let random = getrandom::u64().map_err(SidecarError::Random)?;
    Ok(random >> 1 << 20 >> 1)
}
