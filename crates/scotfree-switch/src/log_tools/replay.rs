//! `scot log replay`: hands what the logs of a stopped device hold to its server, in the device's name.
//!
//! Invariant: the files are read and never written. The device machine behind it is given no request and no
//! completion of any domain, so it logs nothing and acknowledges nothing; of its wishes only packets are carried
//! out. In particular the end of a session is never confirmed, since the files still hold its entries.

use super::{read_raw, restore, with_functions, LogToolError, RawLog};
use crate::logs::LogMeta;
use scotfree_core::{BootEpoch, DeviceId, Durability, Effect, Machine, Nanos, ServerIndex};
use scotfree_device::{DeviceConfig, DeviceEffects, Maker, Pipeline, Served, SessionName};
use scotfree_io::advice::after_listening;
use scotfree_io::storage::Storage;
use scotfree_io::udp::{UdpConfig, UdpTransport};
use scotfree_io::{now_monotonic, Interest, Poller, RxBurst, Transport, TxPacket};
use scotfree_wire::{ClusterKey, WireError, PACKET_BYTES_MAX};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How often it is said how far the replay has come.
const PROGRESS_INTERVAL: Nanos = Nanos::from_secs(1);
const BURST_MAX: usize = 64;

/// Whose log is replayed to whom.
#[derive(Debug, Clone)]
pub struct ReplayConfig {
    /// The device that wrote the log.
    pub device: DeviceId,
    /// Its control address, at which the server asks it.
    pub control: SocketAddr,
    /// The server.
    pub server: SocketAddr,
    /// The secret that the cluster shares.
    pub cluster_key: ClusterKey,
    /// How long the server may be silent.
    pub patience: Nanos,
}

/// How far a replay has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplayProgress {
    /// Entries sent to the server, again ones included.
    pub sent: u64,
    /// Entries of which the server has said that they are stable, or in its dead letters.
    pub resolved: u64,
    /// Entries of which it has not.
    pub left: u64,
}

/// Why a log is not replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A log cannot be read.
    #[error(transparent)]
    Log(#[from] LogToolError),
    /// It is not what was asked for.
    #[error("{0}")]
    Refused(String),
    /// The control address cannot be had.
    #[error("listening at the device's control address {control} failed: {source}; {}; a device that is gone lends its \
         address to this machine: ip address add {}/24 dev IFACE", after_listening(source), control.ip())]
    Address {
        /// The address.
        control: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The server does not say anything that this device may believe.
    #[error("{0}")]
    Silent(String),
    /// Something that should always work failed.
    #[error("{doing} failed: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// A device's logs, read and about to be replayed.
pub struct Replay {
    config: ReplayConfig,
    device: Pipeline,
    meta: LogMeta,
    entry_count: u64,
    torn_count: u64,
    /// They stay locked, so that no daemon begins on them meanwhile.
    _files: Vec<Arc<dyn Storage>>,
}

impl Replay {
    /// Reads the logs at `paths`, which are one device's: that in memory, that on disk, or both; `functions` are all
    /// that may have written them.
    pub fn read(paths: &[PathBuf], config: ReplayConfig, functions: &[Maker]) -> Result<Replay, ReplayError> {
        let mut logs = Vec::new();
        for path in paths {
            let (_, raw) = read_raw(path).map_err(LogToolError::from)?;
            let meta = meta_of(path.clone(), &raw)?;
            logs.push((path, meta, raw));
        }
        let meta = common_meta(&logs, config.device)?;
        let now = now_monotonic();
        let device = device_config(&config, &meta)?;
        let mut device = with_functions(device, functions, Durability::None);
        for (path, _, raw) in &logs {
            restore(path, now, &mut device, &raw.records)?;
        }
        let entry_count = device.entry_count() as u64;
        let torn_count = logs.iter().map(|(_, _, raw)| raw.torn_count).sum();
        let files = logs.into_iter().map(|(_, _, raw)| raw.file).collect();
        Ok(Replay { config, device, meta, entry_count, torn_count, _files: files })
    }

    /// What would be sent, session by session.
    pub fn describe(&self) -> String {
        let mut sessions: BTreeMap<SessionName, (u64, u64, u64, usize)> = BTreeMap::new();
        for entry in self.device.entries() {
            let (count, first, last, bytes) = sessions.entry(entry.session).or_insert((0, u64::MAX, 0, 0));
            (*count, *first, *last) = (*count + 1, entry.seq.0.min(*first), entry.seq.0.max(*last));
            *bytes += entry.payload.len();
        }
        let mut text = String::from("session  entries  first seq  last seq  bytes\n");
        for (session, (count, first, last, bytes)) in &sessions {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{:>7}  {count:>7}  {first:>9}  {last:>8}  {bytes}", session.id.0);
        }
        let ReplayConfig { device, control, server, .. } = &self.config;
        let (boot_epoch, entry_count, torn_count) = (self.meta.boot_epoch, self.entry_count, self.torn_count);
        let _ = writeln!(
            text,
            "device {device} (boot epoch {boot_epoch}): {entry_count} entries of {} sessions go to {server} from \
             {control}; {torn_count} torn records, never acknowledged, stay out",
            sessions.len()
        );
        text
    }

    /// Answers the server as the device until it has said of every entry that it is dealt with. `tell` hears
    /// now and then how far that has come.
    pub fn run(mut self, tell: &mut dyn FnMut(ReplayProgress)) -> Result<ReplayProgress, ReplayError> {
        let mut sockets = Sockets::open(self.config.control)?;
        let mut effects = DeviceEffects::new();
        let (mut heard_at, mut tell_at) = (now_monotonic(), Nanos(0));
        loop {
            let now = now_monotonic();
            self.device.on_timer(now, &mut effects);
            sockets.carry_out(&mut effects)?;
            let progress = self.progress();
            // A lease means that the server has asked this incarnation what it holds, and has been answered.
            if progress.left == 0 && self.device.has_lease(ServerIndex(0), now) {
                return Ok(progress);
            }
            if now.since(heard_at) > self.config.patience {
                return Err(ReplayError::Silent(self.silence(progress)));
            }
            if tell_at <= now {
                tell_at = now.plus(PROGRESS_INTERVAL);
                tell(progress);
            }
            let due = self.device.next_timer().map_or(tell_at, |due| due.min(tell_at));
            sockets.wait(due.since(now))?;
            if self.take_in(&mut sockets, &mut effects)? {
                heard_at = now;
            }
        }
    }

    fn progress(&self) -> ReplayProgress {
        let (mut sent, mut resolved) = (0, 0);
        self.device.function_counters(&mut |_, count| match count.name {
            "scotfree_device_replays_total" => sent += count.value,
            "scotfree_device_freed_total" => resolved += count.value,
            _ => {}
        });
        ReplayProgress { sent, resolved, left: self.entry_count - resolved }
    }

    /// Takes in what has come; whether something of it was the server's, under the cluster's key.
    fn take_in(&mut self, sockets: &mut Sockets, effects: &mut DeviceEffects) -> Result<bool, ReplayError> {
        let now = now_monotonic();
        let refused = |device: &Pipeline| device.counters().refused.iter().sum::<u64>();
        let mut heard = false;
        for socket in [&mut sockets.control, &mut sockets.client] {
            let to = socket.local_address();
            while receive(socket, &mut sockets.burst)? > 0 {
                for packet in sockets.burst.iter().filter(|packet| packet.from == self.config.server) {
                    let before = refused(&self.device);
                    self.device.on_message(now, packet.from, to, packet.bytes, effects);
                    heard |= refused(&self.device) == before;
                }
            }
        }
        Ok(heard)
    }

    /// Why the server may be silent.
    fn silence(&self, progress: ReplayProgress) -> String {
        let ReplayConfig { device, control, server, patience, .. } = &self.config;
        let refused = |error: WireError| self.device.counters().refused[error as usize];
        let seconds = patience.0 / 1_000_000_000;
        let ReplayProgress { resolved, left, .. } = progress;
        let left = format!(
            "{resolved} of {} entries are resolved, {left} left; the log is untouched, and can be replayed again",
            self.entry_count
        );
        if refused(WireError::BadMac) + refused(WireError::UnknownKeyEpoch) > 0 {
            return format!(
                "what the server {server} says to device {device} does not bear this cluster's key; give the key file \
                 that the server has; {left}"
            );
        }
        if resolved > 0 {
            return format!(
                "the server {server} has said nothing more to device {device} at {control} for {seconds} s; see \
                 whether it still runs, and whether nobody else has this address, such as a scot switch that bridges \
                 in the device's stead; {left}"
            );
        }
        format!(
            "the server {server} has not answered device {device} at {control} for {seconds} s; see whether it runs, \
             names the device by this address (device = [\"{device}={control}\"]), does not exclude it, has the same \
             cluster key, and reaches this machine by it (no permanent neighbour entry there names another \
             hardware address); {left}"
        )
    }
}

fn meta_of(path: PathBuf, raw: &RawLog) -> Result<LogMeta, ReplayError> {
    match LogMeta::from_bytes(&raw.meta) {
        Some(meta) => Ok(meta),
        None if raw.meta.is_empty() => {
            Err(ReplayError::Refused(format!("{}: no device has used it; it holds nothing", path.display())))
        }
        None => Err(LogToolError::ForeignMeta { path, meta: raw.meta.clone() }.into()),
    }
}

/// What all logs say of themselves, with the latest of their epochs.
fn common_meta(logs: &[(&PathBuf, LogMeta, RawLog)], device: DeviceId) -> Result<LogMeta, ReplayError> {
    let (_, first, _) = logs.first().ok_or_else(|| ReplayError::Refused("no log is named".to_owned()))?;
    let mut common = *first;
    for (path, meta, _) in logs {
        if meta.device != device {
            return Err(ReplayError::Refused(format!(
                "{}: it is the log of device {}, not of device {device}",
                path.display(),
                meta.device
            )));
        }
        if (meta.window_max, meta.sessions_max) != (common.window_max, common.sessions_max) {
            let problem =
                "its window_max and sessions_max differ from those of the other log: they are not of one \
                           device at one time";
            return Err(ReplayError::Refused(format!("{}: {problem}", path.display())));
        }
        common.take_epochs(meta);
    }
    Ok(common)
}

/// The device's next incarnation, as its daemon would begin it. It gives no order numbers, so one that is begun
/// with the files later may bear the same number.
fn device_config(config: &ReplayConfig, meta: &LogMeta) -> Result<DeviceConfig, ReplayError> {
    if meta.server_count > 1 {
        return Err(ReplayError::Refused(format!(
            "the log holds updates for {} servers: start its device again (scot switch), with all of them, and wait until \
             nothing is unstable (scotfree_unsafe_entries)",
            meta.server_count
        )));
    }
    let boot_epoch = BootEpoch(meta.boot_epoch.0 + 1);
    let (server, key) = (config.server, config.cluster_key.clone());
    Ok(DeviceConfig {
        servers: vec![Served { epoch: meta.servers[0].epoch, ..Served::new(server) }],
        window_max: meta.window_max,
        sessions_max: meta.sessions_max,
        ..DeviceConfig::new(config.device, boot_epoch, config.control, server, key)
    })
}

/// Where the device speaks for itself, and where in the name of the clients whose requests it has: what the server
/// answers these must not be taken for control messages, which bear another key.
struct Sockets {
    control: UdpTransport,
    client: UdpTransport,
    poller: Poller,
    burst: RxBurst,
}

impl Sockets {
    fn open(control: SocketAddr) -> Result<Sockets, ReplayError> {
        let config = UdpConfig { stamps: false, burst_max: BURST_MAX, ..UdpConfig::default() };
        let bind = |address| {
            UdpTransport::bind(address, &config).map_err(|source| ReplayError::Address { control, source })
        };
        let failed = |source| ReplayError::Io { doing: "making a poller", source };
        let client = bind(SocketAddr::new(control.ip(), 0))?;
        let control = bind(control)?;
        let poller = Poller::new(2).map_err(failed)?;
        for (key, socket) in [&control, &client].into_iter().enumerate() {
            let fd = socket.poll_fd().expect("a UDP socket has a descriptor");
            poller.add(fd, key as u64, Interest::Read).map_err(failed)?;
        }
        Ok(Sockets { control, client, poller, burst: RxBurst::new(BURST_MAX, PACKET_BYTES_MAX) })
    }

    /// Sends what the device wishes to send. What finds no room is lost, as in any network.
    fn carry_out(&mut self, effects: &mut DeviceEffects) -> Result<(), ReplayError> {
        for effect in effects.iter() {
            let Effect::Send { from, to, bytes } = effect else { continue };
            let socket =
                if *from == self.control.local_address() { &mut self.control } else { &mut self.client };
            let packet = TxPacket { to: *to, bytes: effects.bytes(*bytes), stamp: None };
            socket.tx_burst(&[packet]).map_err(|source| ReplayError::Io { doing: "sending", source })?;
        }
        effects.clear();
        Ok(())
    }

    fn wait(&mut self, time: Nanos) -> Result<(), ReplayError> {
        let waited = self.poller.wait(Some(Duration::from_nanos(time.0)));
        waited.map(drop).map_err(|source| ReplayError::Io { doing: "waiting for the server", source })
    }
}

fn receive(socket: &mut UdpTransport, burst: &mut RxBurst) -> Result<usize, ReplayError> {
    socket.rx_burst(burst).map_err(|source| ReplayError::Io { doing: "receiving", source })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{address, folder, key, write, FUNCTIONS};
    use super::super::LogKind;
    use super::*;
    use scotfree_io::DomainError;
    use std::os::unix::fs::FileExt;

    fn config(device: u16) -> ReplayConfig {
        ReplayConfig {
            device: DeviceId(device),
            control: address("10.0.0.9:51000"),
            server: address("10.0.0.2:51000"),
            cluster_key: key(),
            patience: Nanos::from_secs(1),
        }
    }

    fn refusal(paths: &[PathBuf], device: u16) -> String {
        Replay::read(paths, config(device), FUNCTIONS).err().expect("it is refused").to_string()
    }

    #[test]
    fn what_would_be_sent_is_told_and_nobody_else_has_the_file_meanwhile() {
        let folder = folder("replay");
        let paths = [folder.join("log")];
        write(LogKind::Ram, &paths[0], 9);
        let replay = Replay::read(&paths, config(5), FUNCTIONS).expect("a whole log");
        let told = replay.describe();
        assert!(told.contains("     11        9          1         9  945\n"), "{told}");
        assert!(
            told.contains("device 5 (boot epoch 1): 9 entries of 1 sessions go to 10.0.0.2:51000"),
            "{told}"
        );
        assert!(refusal(&paths, 5).contains("in use"));
        drop(replay);
        Replay::read(&paths, config(5), FUNCTIONS).expect("it is free again");
        std::fs::remove_dir_all(&folder).expect("the scratch folder");
    }

    #[test]
    fn a_silence_after_some_answers_says_how_far_the_replay_came() {
        let folder = folder("replay-silence");
        let paths = [folder.join("log")];
        write(LogKind::Ram, &paths[0], 9);
        let replay = Replay::read(&paths, config(5), FUNCTIONS).expect("a whole log");
        let said = replay.silence(ReplayProgress { sent: 9, resolved: 0, left: 9 });
        assert!(
            said.contains("has not answered") && said.contains("0 of 9 entries are resolved, 9 left"),
            "{said}"
        );
        let said = replay.silence(ReplayProgress { sent: 9, resolved: 7, left: 2 });
        assert!(
            !said.contains("has not answered") && said.contains("7 of 9 entries are resolved, 2 left"),
            "{said}"
        );
        std::fs::remove_dir_all(&folder).expect("the scratch folder");
    }

    #[test]
    fn both_logs_of_a_device_are_one_and_those_of_others_are_refused() {
        let folder = folder("replay-both");
        let both = [folder.join("ram"), folder.join("disk")];
        write(LogKind::Ram, &both[0], 4);
        write(LogKind::Disk, &both[1], 9);
        let replay = Replay::read(&both, config(5), FUNCTIONS).expect("two whole logs");
        assert_eq!(replay.progress(), ReplayProgress { sent: 0, resolved: 0, left: 9 });
        drop(replay);
        let said = refusal(&both, 6);
        assert!(said.ends_with("it is the log of device 5, not of device 6"), "{said}");
        std::fs::remove_dir_all(&folder).expect("the scratch folder");
    }

    #[test]
    fn every_record_that_does_not_hold_is_named() {
        let folder = folder("replay-damaged");
        let path = folder.join("log");
        write(LogKind::Ram, &path, 9);
        let file = std::fs::OpenOptions::new().write(true).open(&path).expect("the file");
        for slot in [3, 5] {
            // Eight pages, then slots of two halves of two pages; a half's record begins at 32.
            file.write_at(b"?", (8 + 4 * slot) * 4_096 + 50).expect("it can be written");
        }
        let error = Replay::read(&[path], config(5), FUNCTIONS).err().expect("it is refused");
        let ReplayError::Log(LogToolError::Domain(DomainError::Damaged { found, .. })) = error else {
            panic!("{error}")
        };
        let record = |slot| format!("the record of slot {slot} fails its checksum");
        assert_eq!(found, [record(3), record(5)].join(", "));
        std::fs::remove_dir_all(&folder).expect("the scratch folder");
    }
}
