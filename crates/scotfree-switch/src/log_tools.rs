//! `scot log ls`, `verify`, `export` and `replay`: what stands in a log that no daemon is using.
//!
//! Invariant: the file is read and never written, not even to mend it; a log in use is refused, with
//! the process that uses it.

mod disk_file;
mod export;
mod ram_file;
mod replay;

pub use export::{Export, Payloads};
pub use replay::{Replay, ReplayConfig, ReplayError, ReplayProgress};

use crate::logs::LogMeta;
use scotfree_device::{DeviceConfig, Maker, Pipeline, RestoreError, Served, Settings, DISK_TOKEN_BIT};

use scotfree_core::{Durability, Nanos, Token};
use scotfree_io::storage::Storage;
use scotfree_io::DomainError;
use scotfree_wire::ClusterKey;
use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which format a log has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogKind {
    /// Slots in memory.
    Ram,
    /// A ring on disk.
    Disk,
}

/// What a log holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogContents {
    /// Its format.
    pub kind: LogKind,
    /// What it says of itself; none before its first use.
    pub meta: Option<LogMeta>,
    /// Live records, those of sessions included.
    pub record_count: u64,
    /// Their bytes.
    pub record_bytes: u64,
    /// Records that a failure left half written; they were never completed.
    pub torn_count: u64,
    /// The sessions in it.
    pub session_count: usize,
    /// The log entries, in the order that the device gave them.
    pub entries: Vec<ListedEntry>,
}

/// A log entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedEntry {
    /// Whose it is, by its place among the servers of the device.
    pub server: u8,
    /// Its session, whose number is its server's own.
    pub session: u64,
    /// Its place in the session.
    pub seq: u64,
    /// The boot epoch in which it was logged.
    pub boot_epoch: u32,
    /// Its order number in that boot epoch.
    pub order_number: u64,
    /// The size of the request.
    pub payload_bytes: usize,
}

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogToolError {
    /// The file says so.
    #[error(transparent)]
    Domain(#[from] DomainError),
    /// Its meta data are not those of a device's log.
    #[error("{} was written by another program than `scot switch`, or by another version; `scot log verify` \
         checks the records of any log", path.display())]
    ForeignMeta {
        /// The file.
        path: PathBuf,
        /// Its meta data.
        meta: Vec<u8>,
    },
    /// A record's checksum holds, but it is not a record of a device.
    #[error("{}: record {token}: {source}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The record's number.
        token: u64,
        /// What is wrong with it.
        source: RestoreError,
    },
}

/// What a reader of one format found.
struct RawLog {
    meta: Vec<u8>,
    records: Vec<(Token, Vec<u8>)>,
    torn_count: u64,
    /// The file: nobody else opens it as long as this lives.
    file: Arc<dyn Storage>,
}

/// A log that was read, with the device that knows what is in it.
struct ReadLog {
    contents: LogContents,
    /// None if the log was never used.
    device: Option<Pipeline>,
}

/// Reads the whole log at `path` and checks every record; `functions` are all that may have written it.
pub fn read_log(path: &Path, functions: &[Maker]) -> Result<LogContents, LogToolError> {
    Ok(read(path, functions)?.contents)
}

fn read(path: &Path, functions: &[Maker]) -> Result<ReadLog, LogToolError> {
    let (kind, raw) = read_raw(path)?;
    let mut contents = LogContents {
        kind,
        meta: LogMeta::from_bytes(&raw.meta),
        record_count: raw.records.len() as u64,
        record_bytes: raw.records.iter().map(|(_, record)| record.len() as u64).sum(),
        torn_count: raw.torn_count,
        session_count: 0,
        entries: Vec::new(),
    };
    let device = match contents.meta {
        Some(meta) => Some(decode(path, meta, (&raw.records, functions), &mut contents)?),
        None if raw.meta.is_empty() && raw.records.is_empty() => None,
        None => return Err(LogToolError::ForeignMeta { path: path.to_owned(), meta: raw.meta }),
    };
    Ok(ReadLog { contents, device })
}

fn read_raw(path: &Path) -> Result<(LogKind, RawLog), DomainError> {
    let kind = kind_of(path)?;
    let raw = match kind {
        LogKind::Ram => ram_file::read(path)?,
        LogKind::Disk => disk_file::read(path)?,
    };
    Ok((kind, raw))
}

/// Lets a device that never runs restore the records: it alone knows what is in them.
fn decode(
    path: &Path,
    meta: LogMeta,
    (records, functions): (&[(Token, Vec<u8>)], &[Maker]),
    contents: &mut LogContents,
) -> Result<Pipeline, LogToolError> {
    // The key is not used to read records; it only has to be some key. Nor are addresses, but each is another's.
    let key = ClusterKey::from_bytes([0; 32]);
    let nowhere = |port: u8| SocketAddr::from(([0, 0, 0, 0], u16::from(port)));
    let config = DeviceConfig {
        window_max: meta.window_max,
        sessions_max: meta.sessions_max,
        servers: (1..=meta.server_count).map(|port| Served::new(nowhere(port))).collect(),
        ..DeviceConfig::new(meta.device, meta.boot_epoch, nowhere(0), nowhere(1), key)
    };
    let mut device = with_functions(config, functions, Durability::RamAndDisk);
    restore(path, Nanos(0), &mut device, records)?;
    contents.session_count = device.session_count();
    contents.entries = device
        .entries()
        .iter()
        .map(|entry| ListedEntry {
            server: entry.session.server.0,
            session: entry.session.id.0,
            seq: entry.seq.0,
            boot_epoch: entry.stamp.boot_epoch.0,
            order_number: entry.stamp.number.0,
            payload_bytes: entry.payload.len(),
        })
        .collect();
    Ok(device)
}

/// A device with the functions that may have written a log.
fn with_functions(config: DeviceConfig, functions: &[Maker], media: Durability) -> Pipeline {
    let settings = Settings { media, ..Settings::default() };
    let functions = functions.iter().map(|maker| (maker.make)(&settings)).collect();
    Pipeline::new(config, functions).expect("the list of all functions is in order")
}

fn restore(
    path: &Path,
    now: Nanos,
    device: &mut Pipeline,
    records: &[(Token, Vec<u8>)],
) -> Result<(), LogToolError> {
    for (token, record) in records {
        device.restore(now, *token, record).map_err(|source| LogToolError::Record {
            path: path.to_owned(),
            token: token.0 & !DISK_TOKEN_BIT,
            source,
        })?;
    }
    Ok(())
}

/// The text of `scot log ls`: one line per entry.
pub fn ls(path: &Path, functions: &[Maker]) -> Result<String, LogToolError> {
    let contents = read_log(path, functions)?;
    let mut text = String::from("boot epoch  order number  server  session  seq  bytes\n");
    for entry in &contents.entries {
        let ListedEntry { server, session, seq, boot_epoch, order_number, payload_bytes } = entry;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{boot_epoch:>10}  {order_number:>12}  {server:>6}  {session:>7}  {seq}  {payload_bytes}"
        );
    }
    text.push_str(&summary(&contents));
    Ok(text)
}

/// The text of `scot log verify`.
pub fn verify(path: &Path, functions: &[Maker]) -> Result<String, LogToolError> {
    let contents = read_log(path, functions)?;
    let torn = (contents.torn_count > 0).then(|| format!("{} torn", contents.torn_count));
    Ok(format!("{}: {}\n{}", path.display(), verdict(torn), summary(&contents)))
}

/// What can be said of a log that is not damaged; `torn` is what a failure left half written.
pub fn verdict(torn: Option<String>) -> String {
    torn.map_or_else(
        || "every record holds".to_owned(),
        |torn| {
            format!(
                "every whole record holds; {torn} (left half written by a failure; the next start drops it)"
            )
        },
    )
}

fn summary(contents: &LogContents) -> String {
    let kind = match contents.kind {
        LogKind::Ram => "ram",
        LogKind::Disk => "disk",
    };
    let written_by = contents.meta.map_or_else(
        || "never used".to_owned(),
        |meta| {
            let LogMeta { device, window_max, sessions_max, boot_epoch, .. } = meta;
            let epochs: Vec<String> = meta.servers().iter().map(|server| server.epoch.to_string()).collect();
            let epochs = epochs.join(", ");
            format!(
                "device {device} (boot epoch {boot_epoch}, server epoch {epochs}, window_max \
                 {window_max}, sessions_max {sessions_max})"
            )
        },
    );
    let LogContents { entries, session_count, record_count, record_bytes, torn_count, .. } = contents;
    format!(
        "{kind} log of {written_by}: {} entries of {session_count} sessions; {record_count} records, \
         {record_bytes} bytes; {torn_count} torn\n",
        entries.len()
    )
}

/// Looks at the first page; the readers check it whole.
fn kind_of(path: &Path) -> Result<LogKind, DomainError> {
    let failed = |source| DomainError::Io { doing: format!("reading {}", path.display()), source };
    let mut head = Vec::new();
    // What is no file is refused below: opening a pipe would wait for a writer.
    if std::fs::metadata(path).map_err(failed)?.is_file() {
        File::open(path).map_err(failed)?.take(16).read_to_end(&mut head).map_err(failed)?;
    }
    let kind = head.get(12..16).filter(|_| head.starts_with(ram_file::MAGIC));
    match kind {
        Some([1, 0, 0, 0]) => Ok(LogKind::Ram),
        Some([2, 0, 0, 0]) => Ok(LogKind::Disk),
        _ => Err(DomainError::Foreign {
            path: path.to_owned(),
            found: "it does not begin as a log of Scotfree does".to_owned(),
            advice: "give the PATH of a `log` of [switch] (--log ram:PATH or disk:PATH), or of `log` in [kv]"
                .to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{DiskLogConfig, RamLogConfig, SwitchConfig};
    use crate::logs::{Log, Logs};
    use crate::notice::Notices;
    use scotfree_core::{BootEpoch, DeviceId, Effect, Effects, Epoch, KeyHash, Machine, SeqNum, SessionId};
    use scotfree_io::disk::{DiskConfig, DiskDomain};
    use scotfree_io::ram::{Media, RamConfig, RamDomain};
    use scotfree_wire::{emit, AcceptTail, Direction, Header, Kind, LeaseTail, Stamp, Tail};
    use std::os::unix::fs::FileExt;

    const WINDOW_MAX: u32 = 16;
    const SESSIONS_MAX: u32 = 2;
    pub(super) const FUNCTIONS: &[Maker] = &[remedy_persist::MAKER];

    pub(super) fn key() -> ClusterKey {
        ClusterKey::from_bytes([1; 32])
    }

    pub(super) fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    pub(super) fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("scot-sw-log-tools-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a scratch folder");
        folder
    }

    fn open(kind: LogKind, path: &Path) -> Log {
        match kind {
            LogKind::Ram => {
                let slot_count = u64::from(SESSIONS_MAX * (WINDOW_MAX + 1));
                let config = RamConfig { slot_count, record_bytes_max: 8_000, ..RamConfig::default() };
                Log::new(Box::new(RamDomain::open(path, &config).expect("a log")), path)
            }
            LogKind::Disk => {
                let config =
                    DiskConfig { log_bytes: 1 << 20, record_bytes_max: 8_000, ..DiskConfig::default() };
                Log::new(Box::new(DiskDomain::open(path, &config).expect("a log")), path)
            }
        }
    }

    /// A log with one session and `count` updates, written by a device.
    pub(super) fn write(kind: LogKind, path: &Path, count: u64) {
        let log = Some(open(kind, path));
        let mut logs = match kind {
            LogKind::Ram => Logs::new(log, None),
            LogKind::Disk => Logs::new(None, log),
        };
        let (client, server) = (address("10.0.0.1:51001"), address("10.0.0.2:51000"));
        let wanted = LogMeta::new(DeviceId(5), (WINDOW_MAX, SESSIONS_MAX), &[server]);
        let meta = logs.begin(wanted).expect("a new log");
        let config = DeviceConfig {
            window_max: WINDOW_MAX,
            sessions_max: SESSIONS_MAX,
            ..DeviceConfig::new(DeviceId(5), meta.boot_epoch, address("10.0.0.9:51000"), server, key())
        };
        let mut device = with_functions(config, FUNCTIONS, logs.media());
        let mut effects = Effects::new();
        let control = address("10.0.0.9:51000");
        device.on_message(Nanos(1), server, control, &lease(meta.boot_epoch), &mut effects);
        device.on_message(Nanos(1), server, client, &accept(), &mut effects);
        for seq in 1..=count {
            device.on_message(Nanos(1), client, server, &update(seq, logs.media()), &mut effects);
        }
        let mut notices = Notices::new(Box::new(|line| panic!("{line}")));
        let mut persisted = 0;
        for effect in effects.iter() {
            if let Effect::Persist { token, bytes } = effect {
                logs.persist(Nanos(1), *token, effects.bytes(*bytes), &mut notices);
                persisted += 1;
            }
        }
        assert_eq!(persisted, count + 1, "every update and the session; {:?}", device.counters());
        let mut durable = Vec::new();
        while durable.len() as u64 <= count {
            logs.completions(Nanos(1), &mut durable, &mut notices);
            std::thread::yield_now();
        }
    }

    /// The server's word that the device may stamp and acknowledge.
    fn lease(boot_epoch: BootEpoch) -> Vec<u8> {
        let header = Header::new(Kind::Lease, SessionId(0), Epoch(1));
        let tail =
            LeaseTail { asked_at: Nanos(1), duration: Nanos::from_secs(1), device: DeviceId(5), boot_epoch };
        let mut out = Vec::new();
        emit(&header, &Tail::Lease(tail), &[], &key().control(Direction::ServerToDevice), &mut out);
        out
    }

    fn accept() -> Vec<u8> {
        let header = Header::new(Kind::SessionAccept, SessionId(11), Epoch(1));
        let tail =
            AcceptTail { client_nonce: [1; 16], server_nonce: [2; 16], window: WINDOW_MAX, expiry_ms: 1 };
        let mut out = Vec::new();
        emit(&header, &Tail::Accept(tail), &[], &key().control(Direction::Handshake), &mut out);
        out
    }

    fn update(seq: u64, asked: Durability) -> Vec<u8> {
        let mut header = Header::new(Kind::Update, SessionId(11), Epoch(1));
        header.seq_num = SeqNum(seq);
        header.asked = asked;
        header.device_acks_asked = 1;
        header.key_hash = KeyHash(seq);
        let keys = key().session(&[1; 16], &[2; 16], SessionId(11), Epoch(1));
        let mut out = Vec::new();
        let payload = vec![seq as u8; 100 + seq as usize];
        emit(&header, &Tail::Stamp(Stamp::default()), &payload, &keys.client_to_server, &mut out);
        out
    }

    #[test]
    fn what_a_device_has_logged_is_listed_and_nothing_is_changed() {
        for (kind, name) in [(LogKind::Ram, "ram"), (LogKind::Disk, "disk")] {
            let folder = folder(name);
            let path = folder.join("log");
            write(kind, &path, 9);
            let before = std::fs::read(&path).expect("the file");
            let contents = read_log(&path, FUNCTIONS).expect("a whole log");
            assert_eq!((contents.kind, contents.record_count, contents.session_count), (kind, 10, 1));
            let listed: Vec<_> =
                contents.entries.iter().map(|one| (one.session, one.seq, one.order_number)).collect();
            assert_eq!(listed, (1..=9).map(|seq| (11, seq, seq)).collect::<Vec<_>>());
            assert_eq!(contents.entries[8].payload_bytes, 109);
            assert_eq!(contents.meta.map(|meta| meta.boot_epoch), Some(BootEpoch(1)));
            let text = ls(&path, FUNCTIONS).expect("a whole log");
            assert!(text.contains("9 entries of 1 sessions"), "{text}");
            let (columns, first) = (text.lines().next(), text.lines().nth(1));
            assert_eq!(columns, Some("boot epoch  order number  server  session  seq  bytes"));
            let first: Vec<&str> = first.expect("an entry").split_whitespace().collect();
            assert_eq!(first, ["1", "1", "0", "11", "1", "101"]);
            assert!(verify(&path, FUNCTIONS).expect("a whole log").contains("every record holds"));
            assert!(std::fs::read(&path).expect("the file") == before, "{name} was written to");
            std::fs::remove_dir_all(&folder).expect("the scratch folder");
        }
    }

    #[test]
    fn entries_are_exported_in_order_without_what_makes_keys() {
        for (kind, asked) in [(LogKind::Ram, "ram"), (LogKind::Disk, "disk")] {
            let folder = folder(&format!("export-{asked}"));
            let path = folder.join("log");
            write(kind, &path, 9);
            let before = std::fs::read(&path).expect("the file");
            let export = Export::read(&path, FUNCTIONS).expect("a whole log");
            let text = |payloads| {
                let mut out = Vec::new();
                export.write(&mut out, payloads).expect("memory takes all");
                String::from_utf8(out).expect("text")
            };
            let lines: Vec<String> = text(Payloads::LeftOut).lines().map(str::to_owned).collect();
            assert_eq!(lines.len(), 9);
            assert_eq!(
                lines[2],
                format!(
                    "{{\"server\":0,\"session\":11,\"seq\":3,\"stamp\":{{\"device\":5,\"boot_epoch\":1,\"order_number\":3,\
                     \"previous_write\":2}},\"durability\":\"{asked}\",\"asked\":\"{asked}\",\
                     \"key_hash\":\"0000000000000003\",\"payload_bytes\":103}}"
                )
            );
            let whole = text(Payloads::Hex);
            assert!(whole
                .lines()
                .nth(2)
                .expect("nine lines")
                .ends_with(&format!("\"payload_bytes\":103,\"payload\":\"{}\"}}", "03".repeat(103))));
            // The nonces of the session are sixteen times 1 and sixteen times 2; no payload is so short.
            for nonce in ["01".repeat(16), "02".repeat(16)] {
                assert!(!text(Payloads::LeftOut).contains(&nonce), "a nonce was written");
            }
            assert!(std::fs::read(&path).expect("the file") == before, "{asked} was written to");
            std::fs::remove_dir_all(&folder).expect("the scratch folder");
        }
    }

    #[test]
    fn an_export_replaces_its_target_whole_or_not_at_all() {
        use std::os::unix::fs::PermissionsExt;
        let folder = folder("export-file");
        let (path, target) = (folder.join("log"), folder.join("entries.jsonl"));
        write(LogKind::Disk, &path, 3);
        let export = Export::read(&path, FUNCTIONS).expect("a whole log");
        std::fs::write(&target, "older").expect("a file");
        export.write_file(&target, Payloads::Hex).expect("it can be written");
        let first = std::fs::read(&target).expect("it is there");
        assert_eq!(std::str::from_utf8(&first).expect("text").lines().count(), 3);
        assert_eq!(std::fs::metadata(&target).expect("it is there").permissions().mode() & 0o777, 0o600);
        export.write_file(&target, Payloads::Hex).expect("it can be written again");
        assert!(std::fs::read(&target).expect("it is there") == first, "once more is the same");
        let refused = |target: &Path| {
            export.write_file(target, Payloads::Hex).expect_err("it cannot be written").to_string()
        };
        assert!(refused(&path).contains("the log itself"));
        assert!(refused(&folder).contains("no regular file"));
        refused(&folder.join("none/entries"));
        // The draft cannot be written: what was there stays, and nothing else.
        std::fs::create_dir(folder.join(format!("entries.jsonl.new-{}", std::process::id())))
            .expect("a folder");
        refused(&target);
        assert!(std::fs::read(&target).expect("it is there") == first, "it was touched");
        assert_eq!(std::fs::read_dir(&folder).expect("it is there").count(), 3);
        read_log(&path, FUNCTIONS).expect("the log is whole");
        std::fs::remove_dir_all(&folder).expect("the scratch folder");
    }

    #[test]
    fn a_log_that_was_cut_is_not_exported() {
        let folder = folder("export-cut");
        for (kind, bytes_left) in [(LogKind::Ram, 50_000), (LogKind::Ram, 60), (LogKind::Disk, 60)] {
            let path = folder.join("log");
            write(kind, &path, 3);
            let file = std::fs::OpenOptions::new().write(true).open(&path).expect("the file");
            file.set_len(bytes_left).expect("it can be cut");
            assert!(Export::read(&path, FUNCTIONS).is_err(), "{kind:?} of {bytes_left} bytes");
            std::fs::remove_file(&path).expect("the file");
        }
        std::fs::remove_dir_all(&folder).expect("the scratch folder");
    }

    #[test]
    fn a_flipped_bit_is_damage_and_is_left_alone() {
        for (kind, name) in [(LogKind::Ram, "ram-flip"), (LogKind::Disk, "disk-flip")] {
            let folder = folder(name);
            let path = folder.join("log");
            write(kind, &path, 9);
            let mut bytes = std::fs::read(&path).expect("the file");
            let at = bytes.windows(40).position(|window| window == [3; 40]).expect("the third update");
            bytes[at] ^= 1;
            std::fs::OpenOptions::new()
                .write(true)
                .open(&path)
                .and_then(|file| file.write_all_at(&bytes[at..=at], at as u64))
                .expect("a flipped bit");
            let error = verify(&path, FUNCTIONS).expect_err("a flipped bit");
            assert!(error.to_string().contains("damaged at byte"), "{error}");
            assert!(std::fs::read(&path).expect("the file") == bytes, "{name} was written to");
            std::fs::remove_dir_all(&folder).expect("the scratch folder");
        }
    }

    #[test]
    fn what_is_torn_is_not_said_to_hold() {
        assert_eq!(verdict(None), "every record holds");
        let told = verdict(Some("1 torn".to_owned()));
        assert!(told.starts_with("every whole record holds; 1 torn (left half written"), "{told}");
    }

    #[test]
    fn a_log_in_use_and_other_files_are_refused() {
        let folder = folder("refused");
        for kind in [LogKind::Ram, LogKind::Disk] {
            let path = folder.join(format!("{kind:?}"));
            write(kind, &path, 1);
            let owner = open(kind, &path);
            let error = read_log(&path, FUNCTIONS).expect_err("it is in use");
            assert!(matches!(error, LogToolError::Domain(DomainError::InUse { .. })), "{error}");
            drop(owner);
            read_log(&path, FUNCTIONS).expect("it is free");
        }
        let other = folder.join("other");
        std::fs::write(&other, b"something else").expect("a file");
        let error = read_log(&other, FUNCTIONS).expect_err("not a log");
        assert!(matches!(error, LogToolError::Domain(DomainError::Foreign { .. })), "{error}");
        assert!(read_log(&folder.join("none"), FUNCTIONS).is_err());
        std::fs::remove_dir_all(&folder).expect("the scratch folder");
    }

    fn config() -> SwitchConfig {
        let (control, server) = (address("10.0.0.9:51000"), address("10.0.0.2:51000"));
        SwitchConfig {
            window_max: 64,
            sessions_max: 4,
            ..SwitchConfig::new(DeviceId(1), &["a", "b"], control, server, key())
        }
    }

    #[test]
    fn persistent_memory_that_is_none_is_refused_and_the_log_on_disk_not_made() {
        let folder = folder("pmem");
        let config = SwitchConfig {
            ram: Some(RamLogConfig { path: folder.join("pmem"), media: Media::PMEM }),
            disk: Some(DiskLogConfig { path: folder.join("disk"), log_bytes: 1 << 20 }),
            ..config()
        };
        match crate::daemon::open_logs(&config) {
            Ok(_) => println!("SKIP: {} offers DAX", folder.display()),
            Err(error) => {
                assert!(error.to_string().contains("-o dax"), "{error}");
                assert_eq!(std::fs::read_dir(&folder).expect("it is there").count(), 0, "a log was made");
            }
        }
        std::fs::remove_dir_all(&folder).expect("the scratch folder");
    }

    #[test]
    fn logs_that_the_daemon_has_just_made_are_empty() {
        let mut config = config();
        let folder = folder("sizes");
        config.ram = Some(RamLogConfig { path: folder.join("ram"), media: Media::Volatile });
        config.disk = Some(DiskLogConfig { path: folder.join("disk"), log_bytes: 1 << 20 });
        let logs = crate::daemon::open_logs(&config).expect("two logs");
        assert_eq!(logs.media(), Durability::RamAndDisk);
        drop(logs);
        for name in ["ram", "disk"] {
            let text = ls(&folder.join(name), FUNCTIONS).expect("an empty log");
            assert!(text.contains("never used: 0 entries"), "{text}");
        }
        std::fs::remove_dir_all(&folder).expect("the scratch folder");
    }
}
