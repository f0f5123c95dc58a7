//! The device's logs: which record goes to which persistence domain, what stands in their meta data,
//! and what happens when one of them fails.
//!
//! Invariant: a token is reported as durable only when every write of it that is under way has
//! completed, and never again after its domain has failed; a failed domain lowers [`Logs::media`] and
//! nothing else: requests flow on.

use crate::notice::Notices;
use scotfree_core::{BootEpoch, DeviceId, Durability, Epoch, Nanos, ServerIndex, Token, SERVERS_MAX};
use scotfree_device::{Pipeline, RestoreError, DISK_TOKEN_BIT};
use scotfree_io::exposition::DurationHistogram;
use scotfree_io::{DomainError, PersistenceDomain, ScanReport};
use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What a log says of itself beside its records: whose it is, how its records are numbered, and which
/// incarnations it has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogMeta {
    /// The device that writes it.
    pub device: DeviceId,
    /// The largest window; records are numbered by it.
    pub window_max: u32,
    /// How many sessions have slots; records are numbered by it.
    pub sessions_max: u32,
    /// The last incarnation of the device.
    pub boot_epoch: BootEpoch,
    /// How many servers stand behind it; records name them by their places in its list.
    pub server_count: u8,
    /// What is kept of each.
    pub servers: [ServerMeta; SERVERS_MAX],
}

/// What a log keeps of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerMeta {
    /// The largest of its epochs that has polled the device.
    pub epoch: Epoch,
    /// A checksum of its address; 0 if the log was written by a build that knew a single server.
    pub address: u32,
}

const META_VERSION: u8 = 2;
/// Written by builds that knew a single server: version 1, zero 1, device 2, `window_max` 4, `sessions_max` 4,
/// boot epoch 4, server epoch 4.
const META_VERSION_SINGLE: u8 = 1;
const META_BYTES_SINGLE: usize = 20;
const META_HEAD_BYTES: usize = 16;
const META_SERVER_BYTES: usize = 8;

impl LogMeta {
    /// Of a device that begins, with its `window_max` and `sessions_max`.
    pub fn new(
        device: DeviceId,
        (window_max, sessions_max): (u32, u32),
        servers: &[std::net::SocketAddr],
    ) -> LogMeta {
        let mut meta = LogMeta {
            device,
            window_max,
            sessions_max,
            boot_epoch: BootEpoch(0),
            server_count: servers.len() as u8,
            servers: [ServerMeta::default(); SERVERS_MAX],
        };
        for (kept, address) in meta.servers.iter_mut().zip(servers) {
            kept.address = crc32c::crc32c(address.to_string().as_bytes()).max(1);
        }
        meta
    }

    /// The blob, little-endian: version 1, server count 1, device 2, `window_max` 4, `sessions_max` 4, boot epoch 4;
    /// then for each server epoch 4, checksum of its address 4.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut out = vec![META_VERSION, self.server_count];
        out.extend_from_slice(&self.device.0.to_le_bytes());
        for word in [self.window_max, self.sessions_max, self.boot_epoch.0] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for server in self.servers() {
            out.extend_from_slice(&server.epoch.0.to_le_bytes());
            out.extend_from_slice(&server.address.to_le_bytes());
        }
        out
    }

    /// Reads a blob; `None` if it is none, or of a version that this build does not know.
    pub fn from_bytes(bytes: &[u8]) -> Option<LogMeta> {
        let word = |at: usize| {
            let word = bytes.get(at..at + 4)?;
            Some(u32::from_le_bytes(word.try_into().ok()?))
        };
        let server_count = match *bytes.get(..2)? {
            [META_VERSION_SINGLE, 0] if bytes.len() == META_BYTES_SINGLE => 1,
            [META_VERSION, count] if (1..=SERVERS_MAX).contains(&usize::from(count)) => {
                let expected = META_HEAD_BYTES + usize::from(count) * META_SERVER_BYTES;
                (bytes.len() == expected).then_some(count)?
            }
            _ => return None,
        };
        let mut servers = [ServerMeta::default(); SERVERS_MAX];
        for (place, server) in servers.iter_mut().take(usize::from(server_count)).enumerate() {
            let at = META_HEAD_BYTES + place * META_SERVER_BYTES;
            server.epoch = Epoch(word(at)?);
            server.address = if bytes[0] == META_VERSION { word(at + 4)? } else { 0 };
        }
        Some(LogMeta {
            device: DeviceId(u16::from_le_bytes([bytes[2], bytes[3]])),
            window_max: word(4)?,
            sessions_max: word(8)?,
            boot_epoch: BootEpoch(word(12)?),
            server_count,
            servers,
        })
    }

    /// What is kept of the servers.
    pub fn servers(&self) -> &[ServerMeta] {
        &self.servers[..usize::from(self.server_count)]
    }

    /// A server has polled the device.
    pub fn set_server_epoch(&mut self, server: ServerIndex, epoch: Epoch) {
        self.servers[usize::from(server.0)].epoch = epoch;
    }

    /// Takes over the later of both logs' epochs.
    pub fn take_epochs(&mut self, other: &LogMeta) {
        self.boot_epoch = self.boot_epoch.max(other.boot_epoch);
        for (own, other) in self.servers.iter_mut().zip(other.servers()) {
            own.epoch = own.epoch.max(other.epoch);
        }
    }

    /// Whether a log with records of `self` can be gone on with by a device with the servers of `wanted`: records name
    /// servers by their places. A server that has moved to another address keeps its place.
    fn keeps_places(&self, wanted: &LogMeta) -> bool {
        let elsewhere = |(place, server): (usize, &ServerMeta)| {
            let found = wanted.servers().iter().position(|other| other.address == server.address);
            server.address != 0 && found.is_some_and(|found| found != place)
        };
        self.server_count <= wanted.server_count && !self.servers().iter().enumerate().any(elsewhere)
    }
}

/// Why a log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The domain says so.
    #[error(transparent)]
    Domain(#[from] DomainError),
    /// The log was written with other settings.
    #[error(
        "{} was written by {written}, this is {wanted}; start with its settings, or give another file",
        path.display()
    )]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// The settings in the log.
        written: String,
        /// The settings asked for.
        wanted: String,
    },
    /// The log names servers by other places in the list.
    #[error(
        "{} was written by a device with {written} servers, in an order that differs from that of the {wanted} of now, \
         and its records name them by their places; list those first, in the order of then, and new ones after them",
        path.display()
    )]
    Servers {
        /// The file.
        path: PathBuf,
        /// How many servers it knows.
        written: u8,
        /// How many are configured.
        wanted: u8,
    },
    /// A log of a build that is newer than this.
    #[error(
        "{} was written by a newer build of Scotfree (meta data of version {version}, this build reads {META_VERSION_SINGLE} \
         and {META_VERSION}); start with that build, or give another file",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version.
        version: u8,
    },
    /// A record does not make sense to the device.
    #[error(
        "{}: record {token}: {source}; it was left untouched, run `scot log verify {}`",
        path.display(),
        path.display()
    )]
    Record {
        /// The file.
        path: PathBuf,
        /// The record's number.
        token: u64,
        /// What is wrong with it.
        source: RestoreError,
    },
}

/// One log.
pub struct Log {
    domain: Box<dyn PersistenceDomain + Send>,
    path: PathBuf,
    /// The file's identity at opening: a path that leads elsewhere later means that the log is lost.
    identity: Option<(u64, u64)>,
    /// How many writes of a token are under way, and since when.
    pending: BTreeMap<u64, (u32, Nanos)>,
    durations: DurationHistogram,
    failed: bool,
}

impl Log {
    /// A log in `domain`, whose file is `path`.
    pub fn new(domain: Box<dyn PersistenceDomain + Send>, path: &Path) -> Log {
        Log {
            domain,
            path: path.to_owned(),
            identity: identity(path),
            pending: BTreeMap::new(),
            durations: DurationHistogram::default(),
            failed: false,
        }
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn meta(&self) -> Option<LogMeta> {
        LogMeta::from_bytes(self.domain.meta())
    }

    fn check_meta(&self, wanted: LogMeta) -> Result<(), LogError> {
        let blob = self.domain.meta();
        let Some(written) = self.meta() else {
            return match blob.first() {
                None => Ok(()),
                Some(version) if is_newer(blob) => {
                    Err(LogError::Newer { path: self.path.clone(), version: *version })
                }
                Some(_) => Err(self.mismatch("another program", wanted)),
            };
        };
        let numbering = |meta: LogMeta| (meta.device, meta.window_max, meta.sessions_max);
        if numbering(written) != numbering(wanted) {
            return Err(self.mismatch(&settings(written), wanted));
        }
        if !written.keeps_places(&wanted) {
            let (written, wanted) = (written.server_count, wanted.server_count);
            return Err(LogError::Servers { path: self.path.clone(), written, wanted });
        }
        Ok(())
    }

    fn mismatch(&self, written: &str, wanted: LogMeta) -> LogError {
        LogError::Mismatch { path: self.path.clone(), written: written.to_owned(), wanted: settings(wanted) }
    }
}

/// Whether a blob looks like meta data of a later version: its head would fit, but for the version.
fn is_newer(blob: &[u8]) -> bool {
    blob.len() >= META_HEAD_BYTES && (META_VERSION + 1..META_VERSION + 32).contains(&blob[0])
}

fn settings(meta: LogMeta) -> String {
    let LogMeta { device, window_max, sessions_max, .. } = meta;
    format!("device {device} with window_max {window_max} and sessions_max {sessions_max}")
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// What the logs did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogCounters {
    /// Records submitted.
    pub submitted: u64,
    /// Records reported as durable.
    pub completed: u64,
    /// Records that a domain had no room for: not acknowledged.
    pub full: u64,
    /// Records for a domain that is not there or has failed: not acknowledged.
    pub without_domain: u64,
    /// Domains that failed.
    pub failed: u64,
    /// Groups of records that the daemon wrote by itself, without the log's thread.
    pub written_here: u64,
}

/// The logs of one device: in memory, on disk, or both.
#[derive(Default)]
pub struct Logs {
    ram: Option<Log>,
    disk: Option<Log>,
    /// Flushes that not every log has completed yet, with how many logs are left.
    flushing: BTreeMap<Token, u32>,
    /// Flushes of a device without logs.
    ready: Vec<Token>,
    /// Records that were not taken, until the device is told.
    refused: Vec<Token>,
    counters: LogCounters,
}

impl Logs {
    /// These logs.
    pub fn new(ram: Option<Log>, disk: Option<Log>) -> Logs {
        Logs { ram, disk, ..Logs::default() }
    }

    /// What the logs that have not failed can give.
    pub fn media(&self) -> Durability {
        let alive = |log: &Option<Log>| log.as_ref().is_some_and(|log| !log.failed);
        let code = u8::from(alive(&self.ram)) * Durability::Ram.code()
            + u8::from(alive(&self.disk)) * Durability::Disk.code();
        Durability::from_code(code).expect("two bits are a durability")
    }

    /// Begins a new incarnation: checks that the logs are of this device, and makes the next boot
    /// epoch durable in all of them before it returns it. `wanted` carries the settings, and the boot epoch
    /// of an incarnation that outlived its daemon: it goes on if the logs have seen no later one.
    pub fn begin(&mut self, wanted: LogMeta) -> Result<LogMeta, LogError> {
        let mut meta = LogMeta { boot_epoch: BootEpoch(0), ..wanted };
        for log in self.all() {
            log.check_meta(wanted)?;
            if let Some(written) = log.meta() {
                meta.take_epochs(&written);
            }
        }
        let alive = wanted.boot_epoch;
        let goes_on = alive > BootEpoch(0) && alive >= meta.boot_epoch;
        meta.boot_epoch = if goes_on { alive } else { BootEpoch(meta.boot_epoch.max(alive).0 + 1) };
        for log in self.all_mut() {
            log.domain.set_meta(&meta.to_bytes())?;
        }
        Ok(meta)
    }

    /// Gives every record to the device. Nothing was forwarded yet.
    pub fn restore(&self, now: Nanos, device: &mut Pipeline) -> Result<ScanReport, LogError> {
        let mut total = ScanReport::default();
        for log in self.all() {
            let mut refused = None;
            let report = log.domain.scan(&mut |token, record| {
                if let Err(source) = device.restore(now, token, record) {
                    refused.get_or_insert((token, source));
                }
            })?;
            if let Some((token, source)) = refused {
                let token = token.0 & !DISK_TOKEN_BIT;
                return Err(LogError::Record { path: log.path.clone(), token, source });
            }
            total.record_count += report.record_count;
            total.record_bytes += report.record_bytes;
            total.torn_count += report.torn_count;
            total.torn_bytes += report.torn_bytes;
        }
        Ok(total)
    }

    /// Starts to make a record durable. Where that is impossible the record is never reported, so
    /// nobody acknowledges it.
    pub fn persist(&mut self, now: Nanos, token: Token, record: &[u8], notices: &mut Notices) {
        let Some(log) = self.of(token) else {
            self.counters.without_domain += 1;
            self.refused.push(token);
            return;
        };
        match log.domain.submit(token, record) {
            Ok(()) => {
                log.pending.entry(token.0).or_insert((0, now)).0 += 1;
                self.counters.submitted += 1;
            }
            Err(error) => {
                self.refused.push(token);
                self.count_refusal(token, &error, notices);
            }
        }
    }

    /// The records not taken since the last call.
    pub fn refused(&mut self) -> std::vec::Drain<'_, Token> {
        self.refused.drain(..)
    }

    fn count_refusal(&mut self, token: Token, error: &DomainError, notices: &mut Notices) {
        match error {
            DomainError::Full { .. } | DomainError::TooLarge { .. } => {
                self.counters.full += 1;
                notices.limited("log", || format!("not logged: {error}"));
            }
            DomainError::Io { .. }
            | DomainError::Foreign { .. }
            | DomainError::Damaged { .. }
            | DomainError::NotPersistent { .. }
            | DomainError::InUse { .. } => self.fail(token, &error.to_string(), notices),
        }
    }

    /// Forgets a record.
    pub fn erase(&mut self, token: Token, notices: &mut Notices) {
        let Some(log) = self.of(token) else { return };
        if let Err(error) = log.domain.erase(token) {
            self.fail(token, &error.to_string(), notices);
        }
    }

    /// Reports `token` once every erasure so far is durable in every log.
    pub fn flush_erasures(&mut self, token: Token) {
        let mut left = 0;
        for log in self.all_mut() {
            // A failed log can promise nothing: the flush then stays open, and the session is not
            // confirmed empty, until the log is mended and the device restarted.
            if !log.failed {
                log.domain.flush_erasures(token);
            }
            left += 1;
        }
        if left == 0 {
            self.ready.push(token);
        } else {
            self.flushing.insert(token, left);
        }
    }

    /// Makes the incarnations durable; returns when they are.
    pub fn set_meta(&mut self, meta: LogMeta, notices: &mut Notices) {
        for bit in [0, DISK_TOKEN_BIT] {
            let Some(log) = self.of(Token(bit)) else { continue };
            if let Err(error) = log.domain.set_meta(&meta.to_bytes()) {
                self.fail(Token(bit), &error.to_string(), notices);
            }
        }
    }

    /// Writes what waits in logs that leave this to their owner. Whether something was written.
    pub fn write_waiting(&mut self) -> bool {
        let mut written = 0;
        for log in self.all_mut().filter(|log| !log.failed) {
            written += u64::from(log.domain.write_waiting());
        }
        self.counters.written_here += written;
        written > 0
    }

    /// Appends the tokens that have become durable until `now`.
    pub fn completions(&mut self, now: Nanos, out: &mut Vec<Token>, notices: &mut Notices) {
        out.append(&mut self.ready);
        for bit in [0, DISK_TOKEN_BIT] {
            let Some(log) = self.of(Token(bit)) else { continue };
            let mut done = Vec::new();
            let result = log.domain.completions(&mut done);
            for token in done {
                self.complete(now, bit, token, out);
            }
            if let Err(error) = result {
                self.fail(Token(bit), &error.to_string(), notices);
            }
        }
    }

    fn complete(&mut self, now: Nanos, bit: u64, token: Token, out: &mut Vec<Token>) {
        if let Some(left) = self.flushing.get_mut(&token) {
            *left -= 1;
            if *left == 0 {
                self.flushing.remove(&token);
                out.push(token);
            }
            return;
        }
        let Some(log) = self.of(Token(bit)) else { return };
        let Some((under_way, since)) = log.pending.get_mut(&token.0) else { return };
        *under_way -= 1;
        if *under_way == 0 {
            log.durations.record(now.since(*since));
            log.pending.remove(&token.0);
            self.counters.completed += 1;
            out.push(token);
        }
    }

    /// Looks whether the files are still where they were: a log that nobody will find again keeps
    /// nothing.
    pub fn check_files(&mut self, notices: &mut Notices) {
        for bit in [0, DISK_TOKEN_BIT] {
            let Some(log) = self.of(Token(bit)) else { continue };
            if log.identity.is_some() && identity(&log.path) != log.identity {
                let text = format!("{} was removed or replaced while in use", log.path.display());
                self.fail(Token(bit), &text, notices);
            }
        }
    }

    fn fail(&mut self, token: Token, error: &str, notices: &mut Notices) {
        let Some(log) = self.of(token) else { return };
        log.failed = true;
        log.pending.clear();
        let path = log.path.display().to_string();
        self.counters.failed += 1;
        notices.alarm(&format!(
            "{path}: {error}. Updates are forwarded but not acknowledged from this log; mend it and restart"
        ));
    }

    /// Descriptors that are readable when completions wait.
    pub fn completion_fds(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.all().filter_map(|log| log.domain.completion_fd())
    }

    /// What the logs did so far.
    pub fn counters(&self) -> &LogCounters {
        &self.counters
    }

    /// How long records took to become durable, in each log that there is.
    pub fn durations(&self) -> impl Iterator<Item = (&'static str, &DurationHistogram)> {
        let logs = [("ram", &self.ram), ("disk", &self.disk)];
        logs.into_iter().filter_map(|(tier, log)| Some((tier, &log.as_ref()?.durations)))
    }

    fn of(&mut self, token: Token) -> Option<&mut Log> {
        let log = if token.0 & DISK_TOKEN_BIT == 0 { &mut self.ram } else { &mut self.disk };
        log.as_mut().filter(|log| !log.failed)
    }

    fn all(&self) -> impl Iterator<Item = &Log> {
        self.ram.iter().chain(&self.disk)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Log> {
        self.ram.iter_mut().chain(&mut self.disk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remedy_persist::PersistConfig;
    use scotfree_core::Survives;
    use scotfree_device::DeviceConfig;
    use scotfree_wire::ClusterKey;
    use std::io;
    use std::sync::{Arc, Mutex};

    /// A domain whose completions and failures the test decides.
    #[derive(Default)]
    struct Inside {
        meta: Vec<u8>,
        submitted: Vec<Token>,
        done: Vec<Token>,
        full: bool,
        broken: bool,
        records: Vec<(Token, Vec<u8>)>,
    }

    #[derive(Clone, Default)]
    struct Fake(Arc<Mutex<Inside>>);

    impl Fake {
        fn with<T>(&self, change: impl FnOnce(&mut Inside) -> T) -> T {
            change(&mut self.0.lock().expect("one thread"))
        }

        fn log(&self) -> Log {
            Log::new(Box::new(self.clone()), Path::new("/nowhere/fake.log"))
        }
    }

    fn broken() -> DomainError {
        DomainError::Io { doing: "writing".to_owned(), source: io::Error::other("the disk is gone") }
    }

    impl PersistenceDomain for Fake {
        fn survives(&self) -> Survives {
            Survives::PowerLoss
        }

        fn durability(&self) -> Durability {
            Durability::Disk
        }

        fn submit(&mut self, token: Token, _record: &[u8]) -> Result<(), DomainError> {
            self.with(|inside| {
                if inside.full {
                    return Err(DomainError::Full { what: "the test says so".to_owned() });
                }
                if inside.broken {
                    return Err(broken());
                }
                inside.submitted.push(token);
                Ok(())
            })
        }

        fn completions(&mut self, out: &mut Vec<Token>) -> Result<(), DomainError> {
            self.with(|inside| {
                out.append(&mut inside.done);
                if inside.broken {
                    Err(broken())
                } else {
                    Ok(())
                }
            })
        }

        fn erase(&mut self, _token: Token) -> Result<(), DomainError> {
            Ok(())
        }

        fn flush_erasures(&mut self, token: Token) {
            self.with(|inside| inside.submitted.push(token));
        }

        fn scan(&self, each: &mut dyn FnMut(Token, &[u8])) -> Result<ScanReport, DomainError> {
            self.with(|inside| inside.records.iter().for_each(|(token, record)| each(*token, record)));
            Ok(ScanReport::default())
        }

        fn meta(&self) -> &[u8] {
            // The trait lends its bytes; a test may leak a few.
            self.with(|inside| inside.meta.clone()).leak()
        }

        fn set_meta(&mut self, meta: &[u8]) -> Result<(), DomainError> {
            self.with(|inside| inside.meta = meta.to_vec());
            Ok(())
        }

        fn completion_fd(&self) -> Option<RawFd> {
            None
        }
    }

    fn wanted() -> LogMeta {
        of_servers(&["10.0.0.2:51000"])
    }

    fn of_servers(servers: &[&str]) -> LogMeta {
        let servers: Vec<std::net::SocketAddr> =
            servers.iter().map(|server| server.parse().expect("an address")).collect();
        LogMeta::new(DeviceId(3), (16, 4), &servers)
    }

    fn with_epochs(meta: LogMeta, boot_epoch: u32, server_epoch: u32) -> LogMeta {
        let mut meta = LogMeta { boot_epoch: BootEpoch(boot_epoch), ..meta };
        meta.set_server_epoch(ServerIndex(0), Epoch(server_epoch));
        meta
    }

    fn notices() -> Notices {
        Notices::new(Box::new(|_| {}))
    }

    fn completed(logs: &mut Logs) -> Vec<Token> {
        let mut out = Vec::new();
        logs.completions(Nanos(1), &mut out, &mut notices());
        out
    }

    const RAM: Token = Token(5);
    const DISK: Token = Token(5 | DISK_TOKEN_BIT);

    #[test]
    fn meta_round_trips_and_foreign_meta_is_none() {
        let meta = with_epochs(wanted(), 9, 8);
        assert_eq!(LogMeta::from_bytes(&meta.to_bytes()), Some(meta));
        assert_eq!(LogMeta::from_bytes(&meta.to_bytes()[1..]), None);
        assert_eq!(LogMeta::from_bytes(&[9; META_BYTES_SINGLE]), None);
        let mut many = of_servers(&["10.0.0.2:51000", "10.0.0.3:51000"]);
        many.set_server_epoch(ServerIndex(1), Epoch(5));
        assert_eq!(LogMeta::from_bytes(&many.to_bytes()), Some(many));
    }

    /// What builds that knew a single server wrote.
    fn single(boot_epoch: u32, server_epoch: u32) -> Vec<u8> {
        let mut blob = vec![1, 0, 3, 0];
        for word in [16, 4, boot_epoch, server_epoch] {
            blob.extend_from_slice(&u32::to_le_bytes(word));
        }
        blob
    }

    #[test]
    fn a_log_of_the_time_of_single_servers_is_gone_on_with() {
        let fake = Fake::default();
        fake.with(|inside| inside.meta = single(6, 2));
        let wanted = of_servers(&["10.0.0.2:51000", "10.0.0.3:51000"]);
        let meta = Logs::new(Some(fake.log()), None).begin(wanted).expect("it is ours");
        assert_eq!((meta.boot_epoch, meta.servers[0].epoch), (BootEpoch(7), Epoch(2)));
        assert_eq!(fake.with(|inside| inside.meta.clone()), meta.to_bytes());
    }

    #[test]
    fn a_log_that_names_servers_by_other_places_is_refused_and_left() {
        let fake = Fake::default();
        let (first, second, third) = ("10.0.0.2:51000", "10.0.0.3:51000", "10.0.0.4:51000");
        let written = of_servers(&[first, second]).to_bytes();
        fake.with(|inside| inside.meta = written.clone());
        let begin = |servers: &[&str]| Logs::new(Some(fake.log()), None).begin(of_servers(servers));
        for other in [&[second, first] as &[&str], &[first], &[third, first, second]] {
            let said = begin(other).expect_err("other places").to_string();
            assert!(said.contains("2 servers") && said.contains("list those first"), "{said}");
            assert_eq!(fake.with(|inside| inside.meta.clone()), written);
        }
        begin(&[first, third]).expect("the second has moved");
        begin(&[first, third, second]).expect("a third stands behind them");
    }

    #[test]
    fn a_log_of_a_newer_build_is_refused_by_its_version() {
        let fake = Fake::default();
        let mut blob = wanted().to_bytes();
        blob[0] = 3;
        fake.with(|inside| inside.meta = blob.clone());
        let said = Logs::new(Some(fake.log()), None).begin(wanted()).expect_err("newer").to_string();
        assert!(said.contains("newer build") && said.contains("version 3"), "{said}");
        assert_eq!(fake.with(|inside| inside.meta.clone()), blob);
    }

    #[test]
    fn an_incarnation_is_larger_than_any_that_either_log_has_seen_and_durable_in_both() {
        let (ram, disk) = (Fake::default(), Fake::default());
        let old = with_epochs(wanted(), 6, 2);
        disk.with(|inside| inside.meta = old.to_bytes());
        let mut logs = Logs::new(Some(ram.log()), Some(disk.log()));
        let meta = logs.begin(wanted()).expect("they are ours");
        assert_eq!((meta.boot_epoch, meta.servers[0].epoch), (BootEpoch(7), Epoch(2)));
        for fake in [&ram, &disk] {
            assert_eq!(fake.with(|inside| inside.meta.clone()), meta.to_bytes());
        }
        assert_eq!(logs.media(), Durability::RamAndDisk);
    }

    #[test]
    fn an_incarnation_that_outlived_its_daemon_goes_on_unless_a_later_one_was_begun() {
        let fake = Fake::default();
        let old = LogMeta { boot_epoch: BootEpoch(6), ..wanted() };
        fake.with(|inside| inside.meta = old.to_bytes());
        let begun = |alive| {
            let wanted = LogMeta { boot_epoch: BootEpoch(alive), ..wanted() };
            Logs::new(Some(fake.log()), None).begin(wanted).expect("it is ours").boot_epoch
        };
        assert_eq!(begun(6), BootEpoch(6));
        assert_eq!(begun(5), BootEpoch(7));
        assert_eq!(begun(0), BootEpoch(8));
    }

    #[test]
    fn a_log_of_other_settings_is_refused_with_both_named() {
        let fake = Fake::default();
        let other = LogMeta { window_max: 32, ..wanted() };
        fake.with(|inside| inside.meta = other.to_bytes());
        let error = Logs::new(Some(fake.log()), None).begin(wanted()).expect_err("another window");
        let text = error.to_string();
        assert!(text.contains("window_max 32") && text.contains("window_max 16"), "{text}");
        fake.with(|inside| inside.meta = vec![1, 2, 3]);
        let error = Logs::new(Some(fake.log()), None).begin(wanted()).expect_err("another program");
        assert!(error.to_string().contains("another program"), "{error}");
    }

    #[test]
    fn a_token_is_durable_only_when_its_last_write_is() {
        let fake = Fake::default();
        let mut logs = Logs::new(None, Some(fake.log()));
        logs.persist(Nanos(1), DISK, b"first", &mut notices());
        logs.erase(DISK, &mut notices());
        logs.persist(Nanos(1), DISK, b"second", &mut notices());
        fake.with(|inside| inside.done.push(DISK));
        assert_eq!(completed(&mut logs), []);
        fake.with(|inside| inside.done.push(DISK));
        assert_eq!(completed(&mut logs), [DISK]);
        assert_eq!((logs.counters().submitted, logs.counters().completed), (2, 1));
    }

    #[test]
    fn a_record_is_timed_from_its_first_write_until_its_last_is_durable() {
        let fake = Fake::default();
        let mut logs = Logs::new(None, Some(fake.log()));
        logs.persist(Nanos::from_millis(10), DISK, b"first", &mut notices());
        logs.persist(Nanos::from_millis(20), DISK, b"second", &mut notices());
        fake.with(|inside| inside.done.extend([DISK, DISK]));
        logs.completions(Nanos::from_millis(50), &mut Vec::new(), &mut notices());
        let mut expected = DurationHistogram::default();
        expected.record(Nanos::from_millis(40));
        assert_eq!(logs.durations().collect::<Vec<_>>(), [("disk", &expected)]);
    }

    #[test]
    fn a_full_log_reports_nothing_and_goes_on() {
        let fake = Fake::default();
        let mut logs = Logs::new(None, Some(fake.log()));
        fake.with(|inside| inside.full = true);
        logs.persist(Nanos(1), DISK, b"no room", &mut notices());
        assert_eq!((logs.counters().full, logs.media()), (1, Durability::Disk));
        fake.with(|inside| inside.full = false);
        logs.persist(Nanos(1), DISK, b"room", &mut notices());
        fake.with(|inside| inside.done.push(DISK));
        assert_eq!(completed(&mut logs), [DISK]);
    }

    #[test]
    fn a_failed_log_lowers_the_media_and_leaves_the_other_alone() {
        let (ram, disk) = (Fake::default(), Fake::default());
        let mut logs = Logs::new(Some(ram.log()), Some(disk.log()));
        logs.persist(Nanos(1), DISK, b"under way", &mut notices());
        disk.with(|inside| inside.broken = true);
        assert_eq!(completed(&mut logs), []);
        assert_eq!(logs.media(), Durability::Ram);
        logs.persist(Nanos(1), DISK, b"too late", &mut notices());
        logs.persist(Nanos(1), RAM, b"in memory", &mut notices());
        ram.with(|inside| inside.done.push(RAM));
        disk.with(|inside| inside.done.push(DISK));
        assert_eq!(completed(&mut logs), [RAM]);
        assert_eq!((logs.counters().without_domain, logs.counters().failed), (1, 1));
    }

    #[test]
    fn a_flush_is_done_when_every_log_is_and_never_without_a_failed_one() {
        let (ram, disk) = (Fake::default(), Fake::default());
        let mut logs = Logs::new(Some(ram.log()), Some(disk.log()));
        let flush = Token(1 << 48);
        logs.flush_erasures(flush);
        ram.with(|inside| inside.done.push(flush));
        assert_eq!(completed(&mut logs), []);
        disk.with(|inside| inside.done.push(flush));
        assert_eq!(completed(&mut logs), [flush]);
        disk.with(|inside| inside.broken = true);
        completed(&mut logs);
        logs.flush_erasures(flush);
        ram.with(|inside| inside.done.push(flush));
        assert_eq!(completed(&mut logs), []);
        let mut none = Logs::default();
        none.flush_erasures(flush);
        assert_eq!(completed(&mut none), [flush]);
    }

    #[test]
    fn a_log_file_that_went_away_is_a_failure() {
        let folder = std::env::temp_dir().join(format!("scot-sw-logs-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a scratch folder");
        let path = folder.join("log");
        std::fs::write(&path, b"here").expect("a file");
        let mut logs = Logs::new(Some(Log::new(Box::new(Fake::default()), &path)), None);
        logs.check_files(&mut notices());
        assert_eq!(logs.media(), Durability::Ram);
        std::fs::remove_file(&path).expect("the file");
        let mut lost = notices();
        logs.check_files(&mut lost);
        assert_eq!((logs.media(), lost.alarm_count()), (Durability::None, 1));
        std::fs::remove_dir_all(&folder).expect("the scratch folder");
    }

    #[test]
    fn a_record_that_the_device_refuses_is_named_with_its_file() {
        let fake = Fake::default();
        fake.with(|inside| inside.records.push((DISK, vec![77, 1])));
        let logs = Logs::new(None, Some(fake.log()));
        let address = "10.0.0.9:51000".parse().expect("an address");
        let server = "10.0.0.2:51000".parse().expect("an address");
        let key = ClusterKey::from_bytes([1; 32]);
        let config = DeviceConfig::new(DeviceId(3), BootEpoch(1), address, server, key);
        let mut device = remedy_persist::device(config, PersistConfig::default());
        let error = logs.restore(Nanos(0), &mut device).expect_err("version 77");
        let text = error.to_string();
        assert!(text.contains("record 5") && text.contains("version 77"), "{text}");
        assert!(text.contains("scot log verify /nowhere/fake.log"), "{text}");
    }
}
