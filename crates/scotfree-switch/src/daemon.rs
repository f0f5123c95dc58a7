//! The daemon: opens the logs, begins an incarnation, restores, and moves frames until it is told to
//! stop.
//!
//! Invariant: the boot epoch is durable and every record of the logs is restored before the first
//! frame is received (rule 12); one thread does everything but those writes of the disk log that it cannot wait for.

use crate::config::{DiskLogConfig, PlaneConfig, PortConfig, RamLogConfig, SwitchConfig};
use crate::datapath::Datapath;
use crate::logs::{Log, LogError, LogMeta, Logs};
use crate::metrics::MetricsText;
use crate::metrics_http::{MetricsListener, Pages};
use crate::notice::Notices;
use crate::offload::Offload;
use crate::plane::Plane;
use crate::plane_user::{Ports, UserPlane};
use scotfree_core::{Durability, Nanos};
use scotfree_device::{DeviceConfig, Pipeline, Served};
use scotfree_io::advice::after_listening;
use scotfree_io::disk::{DiskConfig, DiskDomain, DiskWriter};
use scotfree_io::packet_port::PortError;
use scotfree_io::pmem;
use scotfree_io::ram::{Media, RamConfig, RamDomain};
use scotfree_io::{now_monotonic, now_realtime, Event, Interest, Poller, ScanReport, Waker};
use scotfree_wire::{questions, ClusterKey, REQUEST_BYTES_MAX};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::time::Duration;

/// What a log record has beside its request, at most.
const RECORD_HEAD_BYTES_MAX: usize = 256;
/// The largest log record.
pub const RECORD_BYTES_MAX: usize = REQUEST_BYTES_MAX + RECORD_HEAD_BYTES_MAX;
/// How often to look whether the logs' files and the interfaces are still there.
const CHECK_INTERVAL: Nanos = Nanos::from_secs(1);
/// How many turns are made in a row before other descriptors are looked at.
const TURNS_MAX: usize = 8;

const KEY_COMMANDS: u64 = 1;
const KEY_COMPLETIONS: u64 = 2;
const KEY_PORT_FIRST: u64 = 16;
const KEY_METRICS_FIRST: u64 = 1_024;

/// Why the daemon does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration cannot work.
    #[error("{0}")]
    Config(String),
    /// A log cannot be used.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A port cannot be opened.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The programs in the kernel do not run.
    #[cfg(feature = "xdp")]
    #[error(transparent)]
    Kernel(#[from] scotfree_xdp::KernelError),
    /// The metrics listener cannot be opened.
    #[error("listening for metrics on {address} failed: {source}; {}", after_listening(source))]
    Metrics {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Something that should always work failed.
    #[error("{doing} failed: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// What the daemon can be told while it runs.
#[derive(Debug, Clone)]
pub enum Command {
    /// End.
    Stop,
    /// Take these impairments for the ports that are named.
    Impair(Vec<PortConfig>),
    /// Become the head of the chain.
    Promote,
    /// Take the cluster's key anew.
    Key(ClusterKey),
}

/// Tells a running daemon what to do, from another thread.
#[derive(Clone)]
pub struct DaemonHandle {
    commands: Sender<Command>,
    waker: Arc<Waker>,
}

impl DaemonHandle {
    /// Sends a command. After the daemon's end nobody hears it.
    pub fn tell(&self, command: Command) {
        if self.commands.send(command).is_ok() {
            self.waker.wake();
        }
    }

    /// Ends the daemon.
    pub fn stop(&self) {
        self.tell(Command::Stop);
    }
}

/// What wakes the daemon other than frames and logs.
struct Outside {
    poller: Poller,
    waker: Waker,
    metrics: Option<MetricsListener>,
}

impl Outside {
    fn open(config: &SwitchConfig) -> Result<Outside, StartError> {
        let failed = |doing| move |source| StartError::Io { doing, source };
        let mut poller = Poller::new(64).map_err(failed("making a poller"))?;
        poller.spin(config.spin);
        let waker = Waker::new().map_err(failed("making a waker"))?;
        let listen = |address| {
            MetricsListener::bind(address, &poller, KEY_METRICS_FIRST)
                .map_err(|source| StartError::Metrics { address, source })
        };
        let metrics = config.metrics.map(listen).transpose()?;
        Ok(Outside { poller, waker, metrics })
    }

    /// A daemon that watches all of it.
    fn daemon(
        self,
        plane: Box<dyn Plane>,
        media: Durability,
        notices: Notices,
    ) -> Result<Daemon, StartError> {
        let Outside { poller, waker, metrics } = self;
        let failed = |source| StartError::Io { doing: "watching a descriptor", source };
        let add = |fd, key| poller.add(fd, key, Interest::Read).map_err(failed);
        add(waker.as_raw_fd(), KEY_COMMANDS)?;
        for fd in plane.common_ref().datapath().logs().completion_fds() {
            add(fd, KEY_COMPLETIONS)?;
        }
        for (index, fd) in plane.fds().into_iter().enumerate() {
            add(fd, KEY_PORT_FIRST + index as u64)?;
        }
        let (sender, commands) = channel();
        Ok(Daemon {
            plane,
            metrics,
            poller,
            commands,
            handle: DaemonHandle { commands: sender, waker: Arc::new(waker) },
            notices,
            media,
            check_at: Nanos(0),
            stopping: false,
        })
    }
}

/// The daemon, ready to run.
pub struct Daemon {
    plane: Box<dyn Plane>,
    poller: Poller,
    metrics: Option<MetricsListener>,
    commands: Receiver<Command>,
    handle: DaemonHandle,
    notices: Notices,
    /// What the logs could give at the start.
    media: Durability,
    check_at: Nanos,
    stopping: bool,
}

impl Daemon {
    /// Opens everything that `config` names and restores the log. No frame is received yet. The logs come
    /// last: a start that is refused for anything else has not touched them.
    pub fn start(config: &SwitchConfig, mut notices: Notices) -> Result<Daemon, StartError> {
        config.check().map_err(StartError::Config)?;
        let now = now_monotonic();
        notices.set_now(now);
        let ports = Ports::open(config)?;
        let outside = Outside::open(config)?;
        let interfaces = ports.interfaces();
        let offload = Offload::load(config, &interfaces)?;
        let mut logs = open_logs(config)?;
        let meta = logs.begin(LogMeta { boot_epoch: offload.alive(), ..meta_wanted(config) })?;
        let media = logs.media();
        let mut device = device(config, &meta, media)?;
        let found = logs.restore(now, &mut device)?;
        let common = |device| UserPlane::new(config, ports, Datapath::new(config, device, logs, meta));
        let offload_notices = offload.notices(config, &interfaces);
        let mut plane = offload.plane(config, device, common)?;
        let restored = plane.common().datapath_mut().unsafe_now(now).entries;
        let device = plane.common_ref().datapath().device();
        notices.say(&describe_start(config, meta, media, &found, device, restored));
        for notice in &offload_notices {
            notices.say(notice);
        }
        warn_of_mtus(config, plane.common_ref(), &mut notices);
        outside.daemon(plane, media, notices)
    }

    /// A handle for other threads.
    pub fn handle(&self) -> DaemonHandle {
        self.handle.clone()
    }

    /// How many slots the log has that programs in the kernel write, as the kernel says; none if there are no such.
    pub fn kernel_slots(&self) -> Option<u32> {
        self.plane.kernel_slots()
    }

    /// Where metrics are answered.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().and_then(|listener| listener.local_address().ok())
    }

    /// Moves frames until a handle says [`Command::Stop`].
    pub fn run(mut self) -> io::Result<()> {
        let mut events: Vec<Event> = Vec::new();
        while !self.stopping {
            let now = now_monotonic();
            events.clear();
            let timeout = self.idle_time(now);
            events.extend_from_slice(self.poller.wait(Some(timeout))?);
            let now = now_monotonic();
            self.notices.set_now(now);
            let mut received = false;
            for event in &events {
                received |= self.on_event(now, *event)?;
            }
            self.finish_turn(now)?;
            if received {
                self.take_what_is_left()?;
            }
        }
        self.notices.say("stopped; what the log holds is kept for the next start");
        Ok(())
    }

    /// Carries out one event; whether it was about frames.
    fn on_event(&mut self, now: Nanos, event: Event) -> io::Result<bool> {
        match event.key {
            KEY_COMMANDS => self.on_commands(now),
            KEY_COMPLETIONS => self.plane.common().on_completions(now, &mut self.notices),
            key if key >= KEY_METRICS_FIRST => self.on_metrics(now, key),
            key => {
                self.plane.receive(now, (key - KEY_PORT_FIRST) as usize, &mut self.notices)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Receives on where a burst was full.
    fn take_what_is_left(&mut self) -> io::Result<()> {
        let port_count = self.plane.fds().len();
        for _ in 0..TURNS_MAX {
            let now = now_monotonic();
            let mut received = false;
            for index in 0..port_count {
                if self.plane.has_more(index) {
                    self.plane.receive(now, index, &mut self.notices)?;
                    received = true;
                }
            }
            if !received {
                return Ok(());
            }
            self.finish_turn(now)?;
        }
        Ok(())
    }

    /// Timers, then everything that is to leave. What is to go to a disk goes last, since the daemon may wait for
    /// it: nothing that could leave without it does.
    fn finish_turn(&mut self, now: Nanos) -> io::Result<()> {
        self.plane.common().on_timer(now, &mut self.notices);
        if self.check_at <= now {
            self.check_at = now.plus(CHECK_INTERVAL);
            self.plane.common().check(now, &mut self.notices);
            if let Some(metrics) = &mut self.metrics {
                metrics.on_timer(now);
            }
        }
        let common = self.plane.common();
        common.send(now)?;
        if common.write_waiting() {
            let now = now_monotonic();
            self.notices.set_now(now);
            common.on_completions(now, &mut self.notices);
            common.send(now)?;
        }
        Ok(())
    }

    fn idle_time(&self, now: Nanos) -> Duration {
        let next = self.plane.common_ref().next_timer().map_or(self.check_at, |due| due.min(self.check_at));
        Duration::from_nanos(next.since(now).0)
    }

    fn on_commands(&mut self, now: Nanos) {
        self.handle.waker.drain();
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Stop => self.stopping = true,
                Command::Promote => self.plane.common().promote(now, &mut self.notices),
                Command::Key(key) => self.plane.common().set_cluster_key(now, key, &mut self.notices),
                Command::Impair(ports) => {
                    for name in self.plane.common().reload(&ports) {
                        self.notices.say(&format!("no port `{name}` to impair"));
                    }
                }
            }
        }
    }

    fn on_metrics(&mut self, now: Nanos, key: u64) {
        let Some(metrics) = &mut self.metrics else { return };
        let mut pages =
            DaemonPages { plane: self.plane.as_mut(), now, notices: &mut self.notices, media: self.media };
        metrics.on_ready(now, key, &self.poller, &mut pages);
    }

    /// What the daemon counts, as Prometheus text.
    pub fn render_metrics(&mut self) -> String {
        let (now, notices) = (now_monotonic(), &mut self.notices);
        DaemonPages { plane: self.plane.as_mut(), now, notices, media: self.media }.metrics()
    }
}

struct DaemonPages<'a> {
    plane: &'a mut dyn Plane,
    now: Nanos,
    notices: &'a mut Notices,
    media: Durability,
}

impl Pages for DaemonPages<'_> {
    fn metrics(&mut self) -> String {
        let mut text = MetricsText::default();
        let unsafe_now = self.plane.common().datapath_mut().unsafe_now(self.now);
        let path = self.plane.common_ref().datapath();
        let device = path.device();
        text.device(&path.device_counters());
        text.unsafe_now(self.now, &unsafe_now);
        path.function_counters(&mut |function, count| text.function(function, count));
        text.state(self.now, path.logs().media(), device);
        text.logs(path.logs().counters(), self.notices.alarm_count());
        text.log_durations(path.logs().durations());
        text.datapath(path.counters());
        text.unreachable(path.unreachable());
        text.bridge(path.bridge().counters(), path.bridge().station_count());
        text.neighbours(path.neighbours().counters(), path.neighbours().known_count());
        text.ports(&self.plane.common().port_reports());
        self.plane.metrics(&mut text);
        text.finish()
    }

    fn events(&mut self) -> String {
        self.plane.events()
    }

    fn ask(&mut self, target: &str) -> Result<String, String> {
        let path = self.plane.common().datapath_mut();
        let key = path.device().base().config().cluster_key.clone();
        let (name, question) = questions::asked(&key, target, now_realtime())?;
        let none = || format!("this device has no function `{name}`; its list is `functions` in [switch]");
        path.ask_function(self.now, name, &question).ok_or_else(none)?
    }

    fn health(&mut self) -> (bool, String) {
        if let Some(interface) = self.plane.common_ref().missing_interface() {
            return (false, format!("interface {interface} is gone; see the alarm\n"));
        }
        if !self.plane.common_ref().datapath().was_kept() {
            return (false, "nothing keeps the kernel's log beyond this process; see the alarm\n".to_owned());
        }
        if let Some(port) = self.plane.common_ref().datapath().unreachable().first() {
            return (false, format!("port {port} takes no frames from programs; see the alarm\n"));
        }
        let works = self.plane.common_ref().datapath().logs().media();
        if works == self.media {
            let full = self.plane.common_ref().datapath().full();
            let full = full.map_or(String::new(), |full| format!("; {full} (sessions_max)"));
            let cut = self.plane.common_ref().cut_short(self.now).map_or(String::new(), |(port, count)| {
                format!("; port {port} drops frames that are too long, {count} so far; see the alarm")
            });
            return (true, format!("well: acknowledges from {works}{full}{cut}\n"));
        }
        let lost =
            format!("a log failed: acknowledges from {works}, should from {}; see the alarm\n", self.media);
        (false, lost)
    }
}

pub(crate) fn open_logs(config: &SwitchConfig) -> Result<Logs, StartError> {
    if let Some(RamLogConfig { path, media: Media::Pmem { .. } }) = &config.ram {
        // What is refused there is refused before another log is made.
        pmem::probe(path).map_err(LogError::Domain)?;
    }
    let open_disk = || config.disk.as_ref().map(|disk| open_disk(config, disk)).transpose();
    // A log that is there may be refused; one that is missing is made only after that.
    let disk = if is_missing(config.ram.as_ref().map(|ram| &ram.path)) { Some(open_disk()?) } else { None };
    let ram = config.ram.as_ref().map(|ram| open_ram(config, ram)).transpose()?;
    let disk = match disk {
        Some(disk) => disk,
        None => open_disk()?,
    };
    Ok(Logs::new(ram, disk))
}

fn is_missing(path: Option<&PathBuf>) -> bool {
    path.is_some_and(|path| !path.exists())
}

fn open_ram(config: &SwitchConfig, ram: &RamLogConfig) -> Result<Log, StartError> {
    // One record per slot and one per session.
    let slot_count = u64::from(config.sessions_max) * (u64::from(config.window_max) + 1);
    let domain = RamDomain::open(
        &ram.path,
        &RamConfig {
            slot_count,
            record_bytes_max: RECORD_BYTES_MAX,
            media: ram.media,
            ..RamConfig::default()
        },
    )
    .map_err(LogError::Domain)?;
    Ok(Log::new(Box::new(domain), &ram.path))
}

fn open_disk(config: &SwitchConfig, disk: &DiskLogConfig) -> Result<Log, StartError> {
    let writer = match config.plane {
        // Every frame passes the daemon: none shall wait for the disk.
        PlaneConfig::User => DiskWriter::Thread,
        PlaneConfig::Xdp(_) => DiskWriter::OWNER,
    };
    let domain = DiskDomain::open(
        &disk.path,
        &DiskConfig {
            log_bytes: disk.log_bytes,
            record_bytes_max: RECORD_BYTES_MAX,
            writer,
            ..DiskConfig::default()
        },
    )
    .map_err(LogError::Domain)?;
    Ok(Log::new(Box::new(domain), &disk.path))
}

fn meta_wanted(config: &SwitchConfig) -> LogMeta {
    LogMeta::new(config.device, (config.window_max, config.sessions_max), &config.servers)
}

/// The device, with the functions of its list.
fn device(config: &SwitchConfig, meta: &LogMeta, media: Durability) -> Result<Pipeline, StartError> {
    let settings = config.settings(media);
    let functions = config.functions.iter().map(|maker| (maker.make)(&settings)).collect();
    let list = Pipeline::new(device_config(config, meta), functions);
    list.map_err(|error| StartError::Config(format!("functions: {error}")))
}

fn device_config(config: &SwitchConfig, meta: &LogMeta) -> DeviceConfig {
    let known = config.served().into_iter().zip(&meta.servers);
    DeviceConfig {
        servers: known.map(|(served, kept)| Served { epoch: kept.epoch, ..served }).collect(),
        head: config.head,
        window_max: config.window_max,
        sessions_max: config.sessions_max,
        lease_interval: config.lease_interval,
        ..DeviceConfig::new(
            config.device,
            meta.boot_epoch,
            config.control,
            config.servers[0],
            config.cluster_key.clone(),
        )
    }
}

fn describe_start(
    config: &SwitchConfig,
    meta: LogMeta,
    media: Durability,
    found: &ScanReport,
    device: &Pipeline,
    entries: u64,
) -> String {
    let (device_id, boot_epoch, control) = (config.device, meta.boot_epoch, config.control);
    let torn = match (found.torn_count, found.torn_at) {
        (0, _) => String::new(),
        (count, None) => format!(", {count} torn records cut off"),
        (count, Some(at)) => format!(", {count} torn records cut off from byte {at}"),
    };
    let nothing = if media == Durability::None { " (there is no log: nothing is acknowledged)" } else { "" };
    format!(
        "device {device_id}, boot epoch {boot_epoch}, control address {control} at {}, acknowledges from \
         {media}{nothing}; restored {entries} entries of {} sessions{torn}",
        config.own_mac(),
        device.session_count(),
    )
}

fn warn_of_mtus(config: &SwitchConfig, plane: &UserPlane, notices: &mut Notices) {
    let mtus = plane.mtus();
    if mtus.iter().all(|mtu| *mtu == mtus[0]) {
        return;
    }
    let ports: Vec<String> =
        config.ports.iter().zip(&mtus).map(|(port, mtu)| format!("{} {mtu}", port.interface)).collect();
    notices.say(&format!("the ports' mtus differ ({}): longer frames will be lost", ports.join(", ")));
}
