//! `scot sidecar server`: the runtime around the service, started again whenever the server is lost.
//!
//! Invariant: each start has a larger epoch than the one before, and tells the protocol's server how far
//! each session had come.

use super::missing::Missing;
use super::{Recovered, RedisService, RedisServiceConfig};
use crate::client::silence::{Silence, Whose};
use crate::notices::Notices;
use crate::redis::RedisServer;
use crate::tunnel::{TunnelListener, TunnelOptions};
use scotfree_core::{DeviceId, Nanos};
use scotfree_io::advice::after_listening;
use scotfree_io::now_monotonic;
use scotfree_io::udp::{UdpConfig, UdpTransport};
use scotfree_resp::back::StopReason;
use scotfree_rpc::metrics::{Health, MetricsBoard, MetricsText, PublishTimes};
use scotfree_rpc::{write_udp_metrics, Exclusions, ServerOptions, ServerRuntime, SharedKey, Stop};
use scotfree_session::ServerConfig;
use scotfree_wire::Nonce;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How long to wait before a lost server is tried again.
pub(crate) const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Why nothing is called stable.
pub(crate) const CANNOT_SYNC: &str = "the Redis server's append-only files cannot be synced; see the alarm";
/// Why a server that is there is not used.
const REFUSED: &str = "the Redis server keeps the sidecar out, or takes no writes; see the alarm";
/// Why one is not used that is not.
const AWAY: &str = "the Redis server is not there";

/// How often it is looked whether the server answers.
const LISTEN_INTERVAL: Nanos = Nanos::from_secs(1);

/// What the sidecar is told at its start.
#[derive(Debug, Clone)]
pub struct ServerSidecarConfig {
    /// The UDP address of the protocol.
    pub listen: SocketAddr,
    /// Its socket.
    pub udp: UdpConfig,
    /// The secret that the cluster shares.
    pub cluster_key: SharedKey,
    /// The devices on the path; the first is the head.
    pub devices: Vec<(DeviceId, SocketAddr)>,
    /// Those of them that will not come back.
    pub excluded: Exclusions,
    /// The server behind it.
    pub service: RedisServiceConfig,
    /// The runtime's settings.
    pub options: ServerOptions,
    /// The credit of a session.
    pub window: u32,
    /// How many sessions there can be.
    pub sessions_max: usize,
    /// After this long without a sign of its client a session expires.
    pub expiry: Nanos,
    /// Where clients' sidecars connect for tunnels; none are offered if not given.
    pub tunnel_listen: Option<SocketAddr>,
    /// How many tunnels there can be.
    pub tunnels_max: usize,
}

impl ServerSidecarConfig {
    /// Defaults.
    pub fn new(
        listen: SocketAddr,
        cluster_key: impl Into<SharedKey>,
        service: RedisServiceConfig,
    ) -> ServerSidecarConfig {
        ServerSidecarConfig {
            listen,
            udp: UdpConfig::default(),
            cluster_key: cluster_key.into(),
            devices: Vec::new(),
            excluded: Exclusions::default(),
            service,
            options: ServerOptions::default(),
            window: 4_096,
            sessions_max: 16_384,
            expiry: Nanos::from_secs(60),
            tunnel_listen: Some(listen),
            tunnels_max: 4_096,
        }
    }
}

/// Why a sidecar cannot do its work.
#[derive(Debug, thiserror::Error)]
pub enum SidecarError {
    /// The server cannot be used; the reason says what to do.
    #[error("the Redis server at {redis} cannot be used: {reason}")]
    Server {
        /// Where it is.
        redis: String,
        /// Why.
        reason: StopReason,
    },
    /// The start took too long.
    #[error(
        "the Redis server at {redis} was not ready within {seconds} s{}",
        .sync_error.as_ref().map(|error| format!(": {error}")).unwrap_or_default()
    )]
    NotStarted {
        /// Where it is.
        redis: String,
        /// How long it was waited for.
        seconds: u64,
        /// Why its files could not be synced, if that was the trouble.
        sync_error: Option<String>,
    },
    /// An address cannot be listened on.
    #[error("listening on {address} ({what}) failed: {error}; {}", after_listening(error))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What for.
        what: &'static str,
        /// Why.
        error: io::Error,
    },
    /// The file for dead letters cannot be written.
    #[error(
        "opening {} for dead letters failed: {error}; name a file that the sidecar may append to, in a folder that \
         exists (--dead-letters FILE)",
        path.display()
    )]
    DeadLetters {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The server's sidecar cannot be reached, or said something unexpected.
    #[error("the server's sidecar at {server} cannot be used: {reason}")]
    Peer {
        /// Where it is.
        server: SocketAddr,
        /// Why.
        reason: String,
    },
    /// The system refused something.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The system gave no random numbers.
    #[error("no random numbers: {0}")]
    Random(getrandom::Error),
}

impl SidecarError {
    pub(crate) fn of_start(redis: &RedisServer, reason: StopReason) -> SidecarError {
        SidecarError::Server { redis: redis.to_string(), reason }
    }

    /// Whether trying again could help.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            SidecarError::Server { reason, .. } => reason.is_passing(),
            SidecarError::NotStarted { .. } => true,
            _ => false,
        }
    }

    /// Whether the server may be used when somebody has changed its state, or how it is set up.
    pub(crate) fn is_unwilling(&self) -> bool {
        matches!(self, SidecarError::Server { reason, .. } if reason.is_unwilling())
    }
}

/// Serves until somebody asks to stop. A server that is lost is waited for; one that cannot be used at the
/// first start is an error.
pub fn run(
    config: &ServerSidecarConfig,
    stop: &Stop,
    board: Option<&MetricsBoard>,
) -> Result<(), SidecarError> {
    let options = TunnelOptions {
        cluster_key: config.cluster_key.clone(),
        redis: config.service.redis.clone(),
        tunnels_max: config.tunnels_max,
        is_cached: config.service.back.vouches,
    };
    let tunnels = match config.tunnel_listen {
        None => None,
        Some(address) => {
            Some(TunnelListener::start(address, options).map_err(|error| SidecarError::Listen {
                address,
                what: "tunnels",
                error,
            })?)
        }
    };
    let mut text = MetricsText::new();
    let mut service_config = config.service.clone();
    service_config.back.devices = u32::try_from(config.devices.len()).ok();
    let mut ever_started = false;
    let mut last_trouble = String::new();
    let mut refusal = Refusal::default();
    let notices = &config.service.notices;
    while !stop.is_stopped() {
        let started = RedisService::start(&service_config, stop).and_then(|started| {
            let Some((service, recovered)) = started else { return Ok(None) };
            if !refusal.lasts() {
                notices.say(&text_of(&recovered));
            }
            service_config.back.last_epoch = Some(recovered.epoch.0);
            runtime(config, service, &recovered).map(Some)
        });
        let mut runtime = match started {
            Ok(Some(runtime)) => runtime,
            Ok(None) => break,
            Err(error) if ever_started && (error.is_passing() || error.is_unwilling()) => {
                say_once(notices, &mut last_trouble, error.to_string());
                let is_refused = error.is_unwilling() || refusal.lasts();
                publish_down(board, &mut text, if is_refused { REFUSED } else { AWAY });
                std::thread::sleep(RETRY_INTERVAL);
                continue;
            }
            Err(error) => return Err(error),
        };
        if let Some(tunnels) = &tunnels {
            tunnels.serve(runtime.service().reserved_db());
        }
        ever_started = true;
        last_trouble.clear();
        let tunnels = tunnels.as_ref();
        let result = turn_until_stopped(config, &mut runtime, stop, board, tunnels, &mut text, &mut refusal);
        service_config.back.kept = runtime.service().kept();
        match (result, runtime.service().stopped()) {
            (Ok(()), _) => return Ok(()),
            (Err(_), Some(StopReason::Lost(reason))) => notices.alarm(&format!("{reason}; starting again")),
            (Err(_), Some(reason)) if reason.is_unwilling() => {
                // The devices keep what was acknowledged, and send it again to the next start.
                refusal.say(notices, reason.to_string());
                publish_down(board, &mut text, REFUSED);
                std::thread::sleep(RETRY_INTERVAL);
            }
            (Err(_), Some(reason)) => {
                return Err(SidecarError::of_start(&config.service.redis, reason.clone()))
            }
            (Err(error), None) => return Err(error.into()),
        }
    }
    Ok(())
}

fn text_of(recovered: &Recovered) -> String {
    format!(
        "epoch {}, {} sessions, {} connections of predecessors ended; stable: {}",
        recovered.epoch,
        recovered.sessions.len(),
        recovered.killed,
        recovered.method.text()
    )
}

/// Says what keeps the server from being used, unless that was the last thing said of it.
pub(crate) fn say_once(notices: &Notices, last: &mut String, trouble: String) {
    if trouble != *last {
        notices.alarm(&format!("{trouble}; trying again until it can be used"));
        *last = trouble;
    }
}

fn runtime(
    config: &ServerSidecarConfig,
    service: RedisService,
    recovered: &Recovered,
) -> Result<ServerRuntime<UdpTransport, RedisService>, SidecarError> {
    let transport = UdpTransport::bind(config.listen, &config.udp).map_err(|error| SidecarError::Listen {
        address: config.listen,
        what: "the protocol",
        error,
    })?;
    let mut seed = Nonce::default();
    getrandom::fill(&mut seed).map_err(SidecarError::Random)?;
    let key = config.cluster_key.get();
    let mut machine = ServerConfig::new(config.listen, key, recovered.epoch, seed, config.devices.clone());
    machine.window = config.window;
    machine.sessions_max = config.sessions_max;
    machine.expiry = config.expiry;
    let mut runtime = ServerRuntime::new(transport, service, machine, &recovered.sessions, config.options);
    runtime.obey(config.excluded.clone());
    runtime.follow_key(config.cluster_key.clone());
    Ok(runtime)
}

fn turn_until_stopped(
    config: &ServerSidecarConfig,
    runtime: &mut ServerRuntime<UdpTransport, RedisService>,
    stop: &Stop,
    board: Option<&MetricsBoard>,
    tunnels: Option<&TunnelListener>,
    text: &mut MetricsText,
    refusal: &mut Refusal,
) -> io::Result<()> {
    runtime.wake_on(stop.poll_fd())?;
    let mut publishing = PublishTimes::default();
    let mut missing = Missing::default();
    let mut silence = Silence::of(Whose::Redis);
    while !stop.is_stopped() {
        runtime.turn()?;
        let now = now_monotonic();
        say_news(config, runtime, &mut missing, now);
        if let Some(text) = silence.look(now, runtime.service().hearing()) {
            config.service.notices.alarm(&text);
        }
        refusal.look(&config.service.notices, runtime);
        let health = if refusal.lasts() { Health::NotServing(REFUSED) } else { health(runtime, &silence) };
        if let Some(board) = board.filter(|_| publishing.is_due(now, health)) {
            text.clear();
            runtime.metrics().write(text);
            write_udp_metrics(text, "server", &runtime.transport().counters());
            runtime.service().write_metrics(text);
            if let Some((open, total, refused)) = tunnels.map(TunnelListener::counts) {
                text.gauge("scotfree_tunnels_open", "Tunnels open now", open);
                text.counter("scotfree_tunnels_total", "Tunnels that have ended", total);
                text.counter("scotfree_tunnels_refused_total", "Tunnels refused", refused);
            }
            board.publish(text, health);
        }
        let next = board.map_or(Nanos::MAX, |_| publishing.next().since(now_monotonic()));
        // A server that answers nothing wakes nobody.
        runtime.wait(Some(Duration::from_nanos(next.min(LISTEN_INTERVAL).0)))?;
    }
    runtime.drain().map(|_| ())
}

/// Health that keeps to what the sidecar can do: without new connections it cannot serve every command.
fn health(runtime: &ServerRuntime<UdpTransport, RedisService>, silence: &Silence) -> Health {
    match runtime.health() {
        Health::Serving if silence.lasts() => Health::NotServing("the Redis server does not answer"),
        Health::Serving if !runtime.service().lanes_allowed() => {
            Health::NotServing("the Redis server lets no new connections be opened")
        }
        Health::Serving if !runtime.service().writes_allowed() => {
            Health::NotServing("writes are refused; see the alarm")
        }
        Health::Serving if !runtime.service().can_sync() => Health::NotServing(CANNOT_SYNC),
        Health::Serving => match runtime.service().refusing() {
            Some(cause) => Health::NotServing(cause.text()),
            None => Health::Serving,
        },
        not_serving @ Health::NotServing(_) => not_serving,
    }
}

/// Says what is good to know: packets that were refused, devices that keep it from serving.
fn say_news(
    config: &ServerSidecarConfig,
    runtime: &mut ServerRuntime<UdpTransport, RedisService>,
    missing: &mut Missing,
    now: Nanos,
) {
    let notices = &config.service.notices;
    while let Some(refusal) = runtime.next_refusal() {
        notices.say(&refusal);
    }
    // Until every device has been asked, there may be more of them.
    let strangers =
        runtime.machine().is_serving().then(|| runtime.service_mut().say_strangers(now)).flatten();
    if let Some(text) = strangers {
        notices.alarm(&text);
    }
    let unanswered = runtime.machine().devices().filter(|(_, has_answered)| !has_answered);
    let named = unanswered.map(|(device, _)| {
        let address = config.devices.iter().find(|(id, _)| *id == device).map(|(_, address)| address);
        address.map_or(format!("device {device}"), |address| format!("device {device} at {address}"))
    });
    if let Some(text) = missing.look(now, named) {
        notices.alarm(&text);
    }
}

fn publish_down(board: Option<&MetricsBoard>, text: &mut MetricsText, why: &'static str) {
    if let Some(board) = board {
        text.clear();
        board.publish(text, Health::NotServing(why));
    }
}

/// What the operator was told last of a server that refuses to execute anew what a device holds.
#[derive(Debug, Default)]
struct Refusal {
    said: String,
}

impl Refusal {
    /// Whether it has not executed it since.
    fn lasts(&self) -> bool {
        !self.said.is_empty()
    }

    /// Says it, once however often it is tried.
    fn say(&mut self, notices: &Notices, reason: String) {
        if reason != self.said {
            notices.alarm(&format!("{reason}; the devices keep it, and it is tried again until it is taken"));
            self.said = reason;
        }
    }

    /// Says so when it is over.
    fn look(&mut self, notices: &Notices, runtime: &ServerRuntime<UdpTransport, RedisService>) {
        let machine = runtime.machine();
        let is_over = || machine.is_serving() && runtime.service().takes_replays();
        if self.lasts() && is_over() {
            self.said.clear();
            notices.alarm("the Redis server is there again, and has executed anew what it had refused");
        }
    }
}
