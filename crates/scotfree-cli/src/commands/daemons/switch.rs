//! The command `scot switch`: the device daemon.
//!
//! Invariant: what SIGHUP takes over is what the daemon can change while frames pass: faults on purpose, the
//! level of messages, and that it becomes the head; all else is named as not taken over.

use super::{cluster_key, spin_of, take_key};
use crate::config::Sources;
use crate::failure::{required, Failure};
use crate::registry;
use crate::serve::{keep_files_private, on_signals, say_ready, say_reload, InForce, Messages};
use crate::settings::{Config, Plane, Switch, XdpMode};
use crate::text::{LogSpec, LogTier, OptionSpec, Size};
use scotfree_core::{DeviceId, Nanos};
use scotfree_device::{arrange, Maker, OptionValue};
use scotfree_io::ram::Media;
use scotfree_rpc::SharedKey;
use scotfree_switch::impair::{Impairment, Rate, Share};
use scotfree_switch::{
    Command, Daemon, DaemonHandle, DiskLogConfig, Notices, PlaneConfig, PortConfig, RamLogConfig, StartError,
    SwitchConfig, XdpConfig, XDP_SESSIONS_MAX,
};
use scotfree_wire::ClusterKey;

/// Of a log on disk, unless another size is named.
const DISK_LOG: Size = Size(64 << 20);
/// What an entry of a log in memory takes: two pages, for an update of usual size.
const RAM_ENTRY_BYTES: u64 = 8 << 10;
/// What may pass at once after a pause, under a limit of the rate.
const BURST_BYTES: u64 = 64 << 10;
/// What can be taken over without a restart.
const RELOADABLE: [&str; 10] =
    ["loss", "duplicate", "corrupt", "reorder", "delay_us", "rate", "seed", "log_level", "key_file", "key"];

/// Runs the daemon until it is told to end.
pub fn run(sources: Sources) -> Result<(), Failure> {
    keep_files_private();
    let settings = sources.read()?;
    let key = cluster_key(&settings.cluster)?;
    let config = config(&settings.switch, key).map_err(|failure| sources.placed("switch", failure))?;
    let messages = Messages::new("switch", settings.cluster.log_level);
    let sink = messages.clone();
    let daemon =
        Daemon::start(&config, Notices::new(Box::new(move |line| sink.say(line)))).map_err(not_started)?;
    let kernel_slots = daemon.kernel_slots();
    if let Some(ram) = &config.ram {
        messages.say(&ram_log_line(&config, ram, kernel_slots));
    }
    let what = ready_line(&config, kernel_slots);
    let handle = daemon.handle();
    let ending = handle.clone();
    let key = SharedKey::from(config.cluster_key.clone());
    let in_force = InForce::of(&settings.switch).and(&settings.cluster);
    let interfaces = settings.switch.ports.clone();
    let is_head = is_head(&settings.switch);
    let mut reload = Reload { sources, in_force, interfaces, is_head, messages, handle, key };
    on_signals(move || ending.stop(), move || reload.run())?;
    say_ready(&what);
    daemon.run().map_err(|error| {
        Failure::tried("move frames", &error, "see whether the interfaces are still there: ip -brief link")
    })
}

/// What is ready. The kernel's log is as large as it was made, whatever this start asks for.
fn ready_line(config: &SwitchConfig, kernel_slots: Option<u32>) -> String {
    let ports: Vec<&str> = config.ports.iter().map(|port| port.interface.as_str()).collect();
    let slots = kernel_slots.map_or_else(String::new, |slots| format!(", with {slots} slots in the kernel"));
    format!("switch {} bridging {}{slots}", config.control, ports.join(" "))
}

/// What the log in memory can take: less than the length of its file, which is sparse.
fn ram_log_line(config: &SwitchConfig, ram: &RamLogConfig, kernel_slots: Option<u32>) -> String {
    let SwitchConfig { window_max, sessions_max, .. } = *config;
    let entries = u64::from(window_max) * u64::from(sessions_max);
    let file_bytes = std::fs::metadata(&ram.path).map_or(0, |file| file.len());
    let survives = match ram.media {
        Media::Volatile => "the death of processes",
        Media::BatteryBacked => "a restart of the host, by your word",
        Media::Pmem { .. } => "a loss of power, by your word that this is persistent memory",
    };
    let in_kernel = kernel_slots.map_or_else(String::new, |slots| {
        let sessions = (slots / window_max).min(sessions_max);
        format!("; the kernel's {slots} slots are enough for {sessions} such sessions")
    });
    format!(
        "log {} survives {survives}: {sessions_max} sessions of {window_max} updates, {} MiB of memory when full of updates of up to 4 \
         KiB; the file is {} MiB long, but sparse{in_kernel}",
        ram.path.display(),
        (entries * RAM_ENTRY_BYTES) >> 20,
        file_bytes >> 20
    )
}

fn not_started(error: StartError) -> Failure {
    match error {
        StartError::Config(problem) => Failure::usage(problem),
        other => Failure::environment(other),
    }
}

/// What SIGHUP does.
struct Reload {
    sources: Sources,
    in_force: InForce,
    /// Of the ports that are there.
    interfaces: Vec<String>,
    is_head: bool,
    messages: Messages,
    handle: DaemonHandle,
    key: SharedKey,
}

impl Reload {
    fn run(&mut self) {
        // All of it must be right, as at a start: half a wrong file is not taken over.
        let read = self.sources.read().and_then(|new| {
            let key = cluster_key(&new.cluster)?;
            let config =
                config(&new.switch, key).map_err(|failure| self.sources.placed("switch", failure))?;
            Ok((config, new))
        });
        match read {
            Ok((config, new)) => self.take_over(config, &new),
            Err(failure) => self.messages.say(&format!("ALARM: not reloaded: {failure}")),
        }
    }

    fn take_over(&mut self, config: SwitchConfig, new: &Config) {
        let SwitchConfig { ports, cluster_key, .. } = config;
        self.messages.set_level(new.cluster.log_level);
        // Ports that are new are not there yet; they are named below.
        let known = |port: &PortConfig| self.interfaces.contains(&port.interface);
        self.handle.tell(Command::Impair(ports.into_iter().filter(known).collect()));
        let mut reloadable = RELOADABLE.to_vec();
        if is_head(&new.switch) && !self.is_head {
            self.is_head = true;
            self.handle.tell(Command::Promote);
            self.messages.say("promoted: gives order numbers from its next lease on");
            reloadable.push("head");
        }
        let new = InForce::of(&new.switch).and(&new.cluster);
        let mut changed = self.in_force.take_over(&new, &reloadable);
        if take_key(&self.messages, &self.key, cluster_key.clone()) {
            changed.push("key".to_owned());
            self.handle.tell(Command::Key(cluster_key));
        }
        say_reload(&self.messages, &changed, &reloadable);
    }
}

/// A head cannot be told to follow while it runs: what it has numbered would have two sources.
fn is_head(switch: &Switch) -> bool {
    switch.head.unwrap_or(true)
}

/// What the settings mean to the daemon.
pub fn config(switch: &Switch, key: ClusterKey) -> Result<SwitchConfig, Failure> {
    let missing = |value: Option<crate::text::Address>, name| required(value.as_ref(), "switch", name);
    let address = missing(switch.address, "address")?;
    let server = missing(switch.server.first().copied(), "server")?;
    let device = required(switch.device_id.as_ref(), "switch", "device_id")?;
    if device == 0 {
        let allowed = format!("allowed are 1 to {}", u16::MAX);
        return Err(Failure::usage(format!("[switch] device_id: no device has the number 0; {allowed}")));
    }
    let mut config = SwitchConfig::new(DeviceId(device), &[], address.0, server.0, key);
    let addresses = |list: &[crate::text::Address]| list.iter().map(|address| address.0).collect();
    config.servers = addresses(&switch.server);
    config.logged = addresses(&switch.logged);
    config.functions = functions(switch)?;
    config.options = switch.option.iter().map(option).collect();
    #[cfg(feature = "xdp")]
    {
        config.parts = registry::parts();
    }
    config.ports = ports(switch)?;
    config.plane = plane(switch, config.device);
    config.head = is_head(switch);
    config.window_max = switch.window_max.unwrap_or(config.window_max);
    config.sessions_max = switch.sessions_max.unwrap_or(config.sessions_max);
    config.spin = spin_of(switch.spin_us);
    config.metrics = switch.metrics;
    for log in &switch.log {
        add_log(&mut config, switch, log)?;
    }
    config.check().map_err(|problem| Failure::usage(format!("[switch]: {problem}")))?;
    Ok(config)
}

/// The functions that packets pass.
fn functions(switch: &Switch) -> Result<Vec<Maker>, Failure> {
    let named = switch.functions.clone();
    let names = if named.is_empty() { registry::functions_default() } else { named };
    let list = arrange(&names, &registry::functions());
    list.map_err(|problem| Failure::usage(format!("[switch] functions: {problem}")))
}

fn option(given: &OptionSpec) -> OptionValue {
    let OptionSpec { function, name, value } = given;
    OptionValue { function: function.clone(), name: name.clone(), value: value.0 }
}

/// What moves the frames.
fn plane(switch: &Switch, device: DeviceId) -> PlaneConfig {
    match switch.plane.unwrap_or_default() {
        Plane::User => PlaneConfig::User,
        Plane::Xdp => {
            let default = XdpConfig::new(device);
            PlaneConfig::Xdp(XdpConfig {
                pin: switch.pin.clone().unwrap_or(default.pin),
                slots: switch.slots,
                generic: switch.xdp_mode == Some(XdpMode::Generic),
                event_every: switch.event_every.unwrap_or(default.event_every),
            })
        }
    }
}

fn add_log(config: &mut SwitchConfig, switch: &Switch, log: &LogSpec) -> Result<(), Failure> {
    let is_second = match log.tier {
        LogTier::Ram | LogTier::Pmem => {
            config.sessions_max = ram_sessions_max(switch, log, config);
            require_places(switch, log, config)?;
            let media = media(switch, log)?;
            config.ram.replace(RamLogConfig { path: log.path.clone(), media }).is_some()
        }
        LogTier::Disk => {
            let log_bytes = disk_log_bytes(log);
            config.disk.replace(DiskLogConfig { path: log.path.clone(), log_bytes }).is_some()
        }
    };
    if is_second {
        return Err(Failure::usage(format!(
            "[switch] log: `{log}` is a second log of its kind; one in memory and one on disk are allowed"
        )));
    }
    Ok(())
}

/// What the memory of a log is, by the operator's word.
fn media(switch: &Switch, log: &LogSpec) -> Result<Media, Failure> {
    let is_battery_backed = switch.battery_backed.unwrap_or(false);
    let bytes = |size: Size| usize::try_from(size.0).unwrap_or(usize::MAX);
    match log.tier {
        LogTier::Pmem if is_battery_backed => Err(Failure::usage(format!(
            "[switch] battery_backed: `{log}` survives a loss of power by itself; leave battery_backed away, or \
             give ram:{}",
            log.path.display()
        ))),
        LogTier::Pmem => Ok(switch.pmem_stream_from.map_or(Media::PMEM, |size| Media::Pmem {
            streaming_bytes_min: bytes(size),
        })),
        LogTier::Ram | LogTier::Disk if is_battery_backed => Ok(Media::BatteryBacked),
        LogTier::Ram | LogTier::Disk => Ok(Media::Volatile),
    }
}

/// A size of a log in memory bounds how many sessions get slots in it.
fn ram_sessions_max(switch: &Switch, log: &LogSpec, config: &SwitchConfig) -> u32 {
    match (switch.sessions_max, log.size) {
        (None, Some(size)) => {
            // A window of nothing is refused by who checks the whole.
            let sessions = size.0 / (u64::from(config.window_max.max(1)) * RAM_ENTRY_BYTES);
            u32::try_from(sessions.max(1)).unwrap_or(u32::MAX)
        }
        _ => config.sessions_max,
    }
}

/// Nobody has named the number of sessions that a log's size is room for, so it is named with the size.
fn require_places(switch: &Switch, log: &LogSpec, config: &SwitchConfig) -> Result<(), Failure> {
    let SwitchConfig { sessions_max, window_max, .. } = *config;
    let is_derived = switch.sessions_max.is_none() && log.size.is_some();
    let is_xdp = matches!(config.plane, PlaneConfig::Xdp(_));
    // A window of nothing is refused by its own name.
    if !is_derived || !is_xdp || window_max == 0 || sessions_max <= XDP_SESSIONS_MAX {
        return Ok(());
    }
    let bytes_max = u64::from(XDP_SESSIONS_MAX) * u64::from(window_max) * RAM_ENTRY_BYTES;
    Err(Failure::usage(format!(
        "[switch] log: `{log}` is room for {sessions_max} sessions of window_max {window_max}, but the kernel's table has \
         {XDP_SESSIONS_MAX} places; give a larger --window-max, or a size of at most {}M, or --sessions-max \
         {XDP_SESSIONS_MAX}, which leaves some of it unused",
        bytes_max >> 20
    )))
}

/// The size of a log on disk.
pub fn disk_log_bytes(log: &LogSpec) -> u64 {
    log.size.unwrap_or(DISK_LOG).0
}

/// How many entries the device can hold.
pub fn entries_max(switch: &Switch) -> u64 {
    let any = || std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let mut config = SwitchConfig::new(DeviceId(0), &[], any(), any(), ClusterKey::from_bytes([0; 32]));
    config.window_max = switch.window_max.unwrap_or(config.window_max);
    config.sessions_max = switch.sessions_max.unwrap_or(config.sessions_max);
    let ram = switch.log.iter().find(|log| log.tier != LogTier::Disk);
    let sessions_max = ram.map_or(config.sessions_max, |log| ram_sessions_max(switch, log, &config));
    u64::from(config.window_max) * u64::from(sessions_max)
}

/// The ports with their faults, the same in both directions.
fn ports(switch: &Switch) -> Result<Vec<PortConfig>, Failure> {
    let impairment = impairment(switch)?;
    let port = |name: &String| PortConfig {
        ingress: impairment,
        egress: Impairment::default(),
        ..PortConfig::new(name)
    };
    Ok(switch.ports.iter().map(port).collect())
}

fn impairment(switch: &Switch) -> Result<Impairment, Failure> {
    let share = |percent: Option<f64>, key: &str| {
        Share::from_percent(percent.unwrap_or(0.0)).ok_or_else(|| {
            let value = percent.unwrap_or_default();
            Failure::usage(format!("[switch] {key}: {value} is no share; allowed are 0 to 100 percent"))
        })
    };
    let default = Impairment::default();
    Ok(Impairment {
        loss: share(switch.loss, "loss")?,
        duplicate: share(switch.duplicate, "duplicate")?,
        corrupt: share(switch.corrupt, "corrupt")?,
        reorder: share(switch.reorder, "reorder")?,
        delay: Nanos::from_micros(switch.delay_us.unwrap_or(0)),
        rate: switch.rate.map(|rate| Rate { bits_per_second: rate.0, burst_bytes: BURST_BYTES }),
        seed: switch.seed.unwrap_or(default.seed),
        ..default
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch() -> Switch {
        Switch {
            ports: vec!["a".into(), "b".into()],
            address: "10.0.0.9".parse().ok(),
            server: vec!["10.0.0.2".parse().expect("an address")],
            device_id: Some(3),
            ..Switch::default()
        }
    }

    fn config_of(switch: &Switch) -> Result<SwitchConfig, Failure> {
        config(switch, ClusterKey::from_bytes([1; 32]))
    }

    #[test]
    fn a_window_of_nothing_is_refused_also_where_a_log_has_a_size() {
        let mut settings = switch();
        settings.log = vec!["ram:/dev/shm/a:64M".parse().expect("a log")];
        settings.window_max = Some(0);
        let failure = config_of(&settings).expect_err("nothing could be sent");
        assert!(failure.to_string().contains("must be at least 1"), "{failure}");
    }

    #[test]
    fn settings_become_the_daemons_configuration() {
        let mut settings = switch();
        settings.log = vec!["ram:/dev/shm/a:64M".parse().expect("a log"), "disk:/b".parse().expect("a log")];
        settings.loss = Some(2.5);
        settings.rate = "1M".parse().ok();
        let config = config_of(&settings).expect("it can be used");
        assert_eq!((config.device, config.control.port()), (DeviceId(3), 51_000));
        assert_eq!(config.disk.as_ref().expect("a log").log_bytes, 64 << 20);
        // 64 MiB are two sessions of 4,096 entries of 8 KiB.
        assert_eq!(config.sessions_max, 2);
        assert_eq!(entries_max(&settings), 8_192);
        let ram = config.ram.as_ref().expect("a log");
        let line = ram_log_line(&config, ram, None);
        assert!(line.ends_with("but sparse"), "{line}");
        let behind_programs = ram_log_line(&config, ram, Some(4_096));
        assert!(behind_programs.ends_with("the kernel's 4096 slots are enough for 1 such sessions"));
        assert_eq!(ready_line(&config, None), "switch 10.0.0.9:51000 bridging a b");
        assert!(ready_line(&config, Some(64)).ends_with("bridging a b, with 64 slots in the kernel"));
        assert!(line.contains("survives the death of processes: 2 sessions"), "{line}");
        assert!(line.contains("2 sessions of 4096 updates, 64 MiB of memory"), "{line}");
        for port in &config.ports {
            assert!((port.ingress.loss.percent() - 2.5).abs() < 1e-9);
            assert!(port.egress.is_transparent(), "or every frame would meet the fault twice");
        }
    }

    #[test]
    fn a_log_with_room_for_more_sessions_than_the_kernel_has_is_named_by_its_size() {
        let config_of = |window_max, sessions_max| {
            let log = vec!["ram:/a:64M".parse().expect("a log")];
            let window_max = Some(window_max);
            config_of(&Switch { plane: Some(Plane::Xdp), log, window_max, sessions_max, ..switch() })
        };
        let refused = config_of(1, None).expect_err("8192 do not fit").to_string();
        assert!(refused.contains("`ram:/a:64M` is room for 8192 sessions of window_max 1,"), "{refused}");
        assert!(refused.contains("a size of at most 8M, or --sessions-max 1024"), "{refused}");
        assert_eq!(config_of(1, Some(1_024)).expect("they fit").sessions_max, 1_024);
        assert_eq!(config_of(8, None).expect("they fit").sessions_max, 1_024);
    }

    #[test]
    fn what_the_memory_is_is_the_operators_word() {
        let media = |log: &str, battery_backed, stream_from: Option<&str>| {
            let settings = Switch {
                log: vec![log.parse().expect("a log")],
                battery_backed: Some(battery_backed),
                pmem_stream_from: stream_from.map(|size| size.parse().expect("a size")),
                ..switch()
            };
            config_of(&settings).expect("it can be used").ram.expect("a log in memory").media
        };
        assert_eq!(media("ram:/a", false, None), Media::Volatile);
        assert_eq!(media("ram:/a", true, None), Media::BatteryBacked);
        assert_eq!(media("pmem:/a:1G", false, None), Media::PMEM);
        assert_eq!(media("pmem:/a", false, Some("2K")), Media::Pmem { streaming_bytes_min: 2_048 });
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_key() {
        type Spoil = fn(&mut Switch);
        let cases: [(Spoil, &str); 11] = [
            (
                |switch| {
                    switch.functions = vec!["cache".into(), "persist".into()];
                    switch.head = Some(false);
                },
                "`cache` answers for the server, which only a device can that sees every request first",
            ),
            (
                |switch| switch.option = vec!["cache.bytes_max=64M".parse().expect("an option")],
                "is not in the list (persist); add it to `functions`",
            ),
            (
                |switch| switch.device_id = Some(0),
                "[switch] device_id: no device has the number 0; allowed are 1 to",
            ),
            (|switch| switch.address = None, "--address is missing"),
            (|switch| switch.device_id = None, "SCOT_SWITCH_DEVICE_ID"),
            (|switch| switch.loss = Some(101.0), "loss: 101"),
            (|switch| switch.ports.truncate(1), "2 to 16"),
            (|switch| switch.server = switch.address.into_iter().collect(), "server's own"),
            (
                |switch| {
                    switch.log = vec!["ram:/a".parse().expect("a log"), "ram:/b".parse().expect("a log")];
                },
                "second log",
            ),
            (
                |switch| {
                    switch.log = vec!["ram:/a".parse().expect("a log"), "pmem:/b".parse().expect("a log")];
                },
                "second log",
            ),
            (
                |switch| {
                    switch.log = vec!["pmem:/b".parse().expect("a log")];
                    switch.battery_backed = Some(true);
                },
                "by itself",
            ),
        ];
        for (spoil, expected) in cases {
            let mut settings = switch();
            spoil(&mut settings);
            let failure = config_of(&settings).expect_err(expected);
            assert!(failure.code() == 2 && failure.to_string().contains(expected), "{failure}");
        }
    }
}
