//! The log of a proxy: records in a domain on disk or in the memory of peers, and whose they are.
//!
//! Invariant: a log that broke takes nothing more and says so once; what it reported until then is kept. Whose the log
//! is, and which peers a restart may rely on, is on disk in either case.

use super::log_times::LogTimes;
use super::peers::Links;
use scotfree_core::{Nanos, SeqNum, SessionId, Token};
use scotfree_io::disk::{DiskConfig, DiskDomain, DiskWriter};
use scotfree_io::{DomainError, PersistenceDomain};
use scotfree_proxy::peers::{Incarnation, RECORD_BYTES_MAX};
use scotfree_proxy::{CommitQueue, Lacking, LoggedUpdate, RecordError, RecordReader};
use scotfree_rpc::metrics::MetricsText;
use scotfree_rpc::Watch;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What the meta data of a proxy's log begin with; the last byte is the version.
const MAGIC: [u8; 8] = *b"SCOTPXY\x01";
/// The same, where peers are relied on: older versions would not ask them.
const MAGIC_WITH_PEERS: [u8; 8] = *b"SCOTPXY\x02";
/// The same, where the server was refused since it had older data: older versions would take it.
const MAGIC_LACKING: [u8; 8] = *b"SCOTPXY\x03";
/// Before one of these: a start may have counted the server's epoch up, and has not noted it.
const MAGIC_STARTING: [u8; 8] = *b"SCOTPXY\x04";
/// Names a completion that is no record's: everything erased before it is gone.
const FLUSH: u64 = 1 << 63;
/// How many bytes wait for the next write.
const GROUP_BYTES_MAX: usize = 8 << 20;
/// Behind how much this thread has better things to do than to wait for the medium: what follows such a group is as
/// much again.
const LITTLE_BYTES_MAX: usize = 4 << 10;
/// How far one looks back for who has written.
const OWN_WRITES_MAX: u32 = 64;
/// The smallest log that takes such a record, which is an eighth of it.
const LOG_BYTES_MIN: u64 = 8 * (RECORD_BYTES_MAX as u64 + 4096);

pub use scotfree_proxy::peers::LogName;

/// The peers that hold what was answered and is not stable: any one of them is enough.
pub type PeerList = BTreeSet<Incarnation>;

/// Why a log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file cannot be.
    #[error(transparent)]
    Domain(#[from] DomainError),
    /// It belongs to something else.
    #[error("this log was not written by `scot proxy`; nothing in it was changed: choose another file")]
    Foreign,
    /// It cannot be asked for.
    #[error("asking for the log failed: {0}")]
    File(io::Error),
    /// There is not so much room.
    #[error(
        "the log {} is made with its whole size, {bytes} bytes (--log-size), and its file system has {free} bytes \
         free; give a smaller size ({LOG_BYTES_MIN} at least), or a path where there is room",
        path.display()
    )]
    NoRoom {
        /// Where it would be.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// What there is.
        free: u64,
    },
    /// It contradicts itself.
    #[error("the log is damaged: {0}; nothing in it was changed")]
    Damaged(RecordError),
    /// The system gave no random numbers.
    #[error("no random numbers: {0}")]
    Random(getrandom::Error),
}

/// What a log is called, and what it knows of its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogMeta {
    /// Its name.
    pub name: LogName,
    /// The server's last incarnation that this log has stood before; 0 if there was none.
    pub epoch: u32,
    /// The peers that a restart may rely on.
    pub peers: PeerList,
    /// What the server lacked when it was refused last, until it is accepted.
    pub lacking: Option<Lacking>,
    /// A start has begun that has noted no epoch: it may have counted the server's up all the same.
    pub is_starting: bool,
}

impl LogMeta {
    fn bytes(&self) -> Vec<u8> {
        let magic = match self.lacking {
            Some(_) => MAGIC_LACKING,
            None if self.peers.is_empty() => MAGIC,
            None => MAGIC_WITH_PEERS,
        };
        let starting = if self.is_starting { &MAGIC_STARTING[..] } else { &[] };
        let mut bytes = [starting, &magic[..], &self.name, &self.epoch.to_le_bytes()].concat();
        if let Some(Lacking { session, kept, .. }) = self.lacking {
            bytes.extend_from_slice(&session.0.to_le_bytes());
            bytes.extend_from_slice(&kept.0.to_le_bytes());
        }
        self.peers.iter().for_each(|peer| bytes.extend_from_slice(peer));
        bytes
    }

    fn read(bytes: &[u8]) -> Option<LogMeta> {
        if let Some(rest) = bytes.strip_prefix(&MAGIC_STARTING) {
            let meta = LogMeta::read(rest).filter(|meta| !meta.is_starting)?;
            return Some(LogMeta { is_starting: true, ..meta });
        }
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        let (name, rest) = rest.split_first_chunk::<16>()?;
        let (epoch, rest) = rest.split_first_chunk()?;
        let (lacking, rest) = match *magic {
            MAGIC_LACKING => read_lacking(rest).map(|(lacking, rest)| (Some(lacking), rest))?,
            _ => (None, rest),
        };
        let (peers, torn) = rest.as_chunks::<16>();
        let fits = torn.is_empty()
            && match *magic {
                MAGIC => peers.is_empty(),
                MAGIC_WITH_PEERS => !peers.is_empty(),
                MAGIC_LACKING => true,
                _ => false,
            };
        let (name, epoch) = (*name, u32::from_le_bytes(*epoch));
        let peers = peers.iter().copied().collect();
        fits.then_some(LogMeta { name, epoch, peers, lacking, is_starting: false })
    }
}

fn read_lacking(bytes: &[u8]) -> Option<(Lacking, &[u8])> {
    let (session, rest) = bytes.split_first_chunk()?;
    let (kept, rest) = rest.split_first_chunk()?;
    let (session, kept) = (SessionId(u64::from_le_bytes(*session)), SeqNum(u64::from_le_bytes(*kept)));
    Some((Lacking { session, kept, found: SeqNum(0) }, rest))
}

/// A log that is open.
pub struct ProxyLog {
    path: PathBuf,
    /// Which file it was, and how long.
    file: (u64, u64),
    domain: DiskDomain,
    /// They hold the records, and the disk none.
    peers: Option<Links>,
    meta: LogMeta,
    completed: Vec<Token>,
    /// Sessions that the server may forget when the erasures of this number are durable.
    ended: VecDeque<(u64, SessionId)>,
    flushes: u64,
    failed: Option<String>,
    is_full: bool,
    times_full: u64,
    /// How many bytes behind the last whole record were cut off.
    torn_bytes: u64,
    /// How many bytes were handed over since the last write.
    unwritten_bytes: usize,
    /// Grows with each record that the owner has written itself, and shrinks with others.
    own_writes: u32,
    times: LogTimes,
}

impl ProxyLog {
    /// Opens the log at `path`, or makes it with `bytes`; a thread that writes it does so on this processor.
    pub fn open(path: &Path, bytes: u64, processor: Option<usize>) -> Result<ProxyLog, LogError> {
        let bytes = bytes.max(LOG_BYTES_MIN);
        has_room(path, bytes)?;
        let config = DiskConfig {
            processor,
            log_bytes: bytes,
            record_bytes_max: RECORD_BYTES_MAX,
            group_bytes_max: GROUP_BYTES_MAX,
            writer: DiskWriter::OWNER,
            ..DiskConfig::default()
        };
        let domain = DiskDomain::open(path, &config)?;
        let meta = match LogMeta::read(domain.meta()) {
            Some(meta) => meta,
            None if domain.meta().is_empty() => {
                let mut name = LogName::default();
                getrandom::fill(&mut name).map_err(LogError::Random)?;
                LogMeta { name, epoch: 0, peers: PeerList::new(), lacking: None, is_starting: false }
            }
            None => return Err(LogError::Foreign),
        };
        let file = identity(path).map_err(LogError::File)?;
        Ok(ProxyLog {
            path: path.to_owned(),
            file,
            domain,
            peers: None,
            meta,
            completed: Vec::new(),
            ended: VecDeque::new(),
            flushes: 0,
            failed: None,
            is_full: false,
            times_full: 0,
            torn_bytes: 0,
            unwritten_bytes: 0,
            own_writes: 0,
            times: LogTimes::default(),
        })
    }

    /// What it is called, and what it knows of its server.
    pub fn meta(&self) -> &LogMeta {
        &self.meta
    }

    /// Notes what the server lacks, for which it is refused; durable when this returns.
    pub fn note_lacking(&mut self, lacking: Lacking) -> Result<(), LogError> {
        self.meta.lacking = Some(lacking);
        Ok(self.domain.set_meta(&self.meta.bytes())?)
    }

    /// Notes, with its name, that the server's epoch may be counted up from now on; durable when this returns.
    pub fn note_starting(&mut self) -> Result<(), LogError> {
        self.meta.is_starting = true;
        Ok(self.domain.set_meta(&self.meta.bytes())?)
    }

    /// Notes that such a start is over and was another's: durable when this returns.
    pub fn note_overtaken(&mut self) -> Result<(), LogError> {
        self.meta.is_starting = false;
        Ok(self.domain.set_meta(&self.meta.bytes())?)
    }

    /// Notes the server's incarnation, which was accepted; durable when this returns.
    pub fn note_epoch(&mut self, epoch: u32) -> Result<(), LogError> {
        self.meta.epoch = epoch;
        self.meta.lacking = None;
        self.meta.is_starting = false;
        if let Some(peers) = &mut self.peers {
            peers.set_epoch(epoch);
        }
        Ok(self.domain.set_meta(&self.meta.bytes())?)
    }

    /// Notes the peers that a restart may rely on; durable when this returns.
    pub fn note_peers(&mut self, list: &PeerList) -> Result<(), LogError> {
        if self.meta.peers != *list {
            self.meta.peers.clone_from(list);
            self.domain.set_meta(&self.meta.bytes())?;
        }
        Ok(())
    }

    /// From now on records go to peers: those on disk are stable, and a later start must not find them.
    pub fn go_to_peers(&mut self, links: Links) -> Result<(), LogError> {
        for name in self.records()?.into_keys() {
            self.domain.erase(Token(name))?;
        }
        self.flushes += 1;
        let flushed = Token(FLUSH | self.flushes);
        self.domain.flush_erasures(flushed);
        let mut completed = Vec::new();
        while !completed.contains(&flushed) {
            self.domain.write_waiting();
            self.domain.completions(&mut completed)?;
        }
        self.peers = Some(links);
        Ok(())
    }

    /// The peers, if they hold the records.
    pub fn peers(&self) -> Option<&Links> {
        self.peers.as_ref()
    }

    /// Everything is stable, and nobody is served any more: peers are needed no longer.
    pub fn leave_peers(&mut self) -> Result<(), LogError> {
        self.note_peers(&PeerList::new())?;
        if let Some(peers) = &mut self.peers {
            peers.leave();
        }
        Ok(())
    }

    /// All records in the log, by name.
    pub fn records(&mut self) -> Result<BTreeMap<u64, Vec<u8>>, LogError> {
        let mut records = BTreeMap::new();
        let each = &mut |token: Token, record: &[u8]| drop(records.insert(token.0, record.to_vec()));
        self.torn_bytes = self.domain.scan(each)?.torn_bytes;
        Ok(records)
    }

    /// What was cut off behind the last whole record when the log was opened, if anything: for the operator.
    pub fn torn_text(&self) -> Option<String> {
        (self.torn_bytes > 0).then(|| {
            format!(
                "{} bytes behind the last whole record of {} were dropped: a write that was cut short, and answered to \
                 nobody, or a last record that the disk no longer holds as it was written; if it was the latter, what was \
                 answered by it is lost unless the Redis has it",
                self.torn_bytes,
                self.path.display()
            )
        })
    }

    /// Hands over what the queue has for the log, and lets the log forget what may be forgotten; `now` in real time.
    pub fn take_from(&mut self, now: Nanos, queue: &mut CommitQueue) {
        if self.failed.is_some() {
            return;
        }
        if let Some(peers) = &mut self.peers {
            peers.take_from(queue, &mut |last| self.times.give(now, last));
            // Those first: what follows waits for them, and the server has enough to do.
            peers.flush();
        }
        let moved = self.submit_all(now, queue).and_then(|()| self.erase_all(queue));
        if let Err(error) = moved {
            self.failed = Some(error.to_string());
        }
    }

    fn submit_all(&mut self, now: Nanos, queue: &mut CommitQueue) -> Result<(), DomainError> {
        while let Some((name, bytes)) = queue.next_record() {
            match self.domain.submit(Token(name.0), bytes) {
                Ok(()) => {
                    self.unwritten_bytes += bytes.len();
                    self.times.give(now, name);
                    queue.record_taken();
                }
                Err(DomainError::Full { .. }) => {
                    self.times_full += u64::from(!self.is_full);
                    self.is_full = true;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
            self.is_full = false;
        }
        Ok(())
    }

    fn erase_all(&mut self, queue: &mut CommitQueue) -> Result<(), DomainError> {
        while let Some(name) = queue.next_trim() {
            match &mut self.peers {
                Some(peers) => peers.trim(name),
                None => self.domain.erase(Token(name.0))?,
            }
        }
        let before = self.ended.len();
        while let Some(session) = queue.next_ended() {
            match &mut self.peers {
                Some(peers) => peers.end(session),
                None => self.ended.push_back((self.flushes + 1, session)),
            }
        }
        if self.ended.len() > before {
            self.flushes += 1;
            self.domain.flush_erasures(Token(FLUSH | self.flushes));
        }
        Ok(())
    }

    /// Writes what waits, here and now if `may_block`, it is little, and the medium was quick of late, which spares two
    /// wake-ups; whether it did.
    pub fn write(&mut self, may_block: bool) -> bool {
        let bytes = std::mem::take(&mut self.unwritten_bytes);
        if may_block && bytes <= LITTLE_BYTES_MAX {
            self.own_writes = (self.own_writes + u32::from(bytes > 0)).min(OWN_WRITES_MAX);
            self.domain.write_waiting()
        } else {
            self.own_writes = self.own_writes.saturating_sub(4 * u32::from(bytes > 0));
            self.domain.write_by_thread();
            false
        }
    }

    /// Whether the caller has written most of the last records itself; none if it is now the one and now the other.
    pub fn is_written_here(&self) -> Option<bool> {
        match self.own_writes {
            0..=16 => Some(false),
            48.. => Some(true),
            _ => None,
        }
    }

    /// Tells the queue what is logged; `forget` is called with the sessions that the server may forget.
    pub fn tell(&mut self, queue: &mut CommitQueue, forget: &mut dyn FnMut(SessionId)) {
        let mut completed = std::mem::take(&mut self.completed);
        completed.clear();
        if let Err(error) = self.domain.completions(&mut completed) {
            self.failed.get_or_insert(error.to_string());
        }
        let (flushes, records): (Vec<&Token>, Vec<&Token>) =
            completed.iter().partition(|token| token.0 & FLUSH != 0);
        if let Some(last) = records.last() {
            queue.on_logged(SeqNum(last.0));
            self.times.note_durable(SeqNum(last.0));
        }
        if let Some(peers) = &mut self.peers {
            hear_peers(peers, queue, &mut self.meta, &mut self.domain, &mut self.failed, &mut self.times);
        }
        let flushed = flushes.last().map_or(0, |token| token.0 & !FLUSH);
        while let Some((_, session)) = self.ended.front().copied().filter(|(number, _)| *number <= flushed) {
            self.ended.pop_front();
            forget(session);
        }
        while let Some(session) = self.peers.as_mut().and_then(Links::next_ended) {
            forget(session);
        }
        self.completed = completed;
    }

    /// Counts how long took what has become durable until `now`, in real time.
    pub fn note_times(&mut self, now: Nanos) {
        self.times.settle(now);
    }

    /// Appends how long records took.
    pub fn write_metrics(&self, text: &mut MetricsText) {
        self.times.write_metrics(text);
    }

    /// Looks whether the file is still there: what is written to one that was deleted is lost with the process.
    pub fn look(&mut self) {
        if self.failed.is_none() && identity(&self.path).ok() != Some(self.file) {
            let path = self.path.display();
            self.failed = Some(format!("{path} was deleted, replaced or cut while it was in use"));
        }
    }

    /// Why nothing more is logged, if so.
    pub fn failure(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// Whether the last record had no room.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// How often the log has had no room.
    pub fn times_full(&self) -> u64 {
        self.times_full
    }

    /// What live records take, and the size of the log.
    pub fn used(&self) -> (u64, u64) {
        (self.domain.live_bytes(), self.domain.log_bytes())
    }

    /// Appends what is ready when something is logged.
    pub fn watches(&self, out: &mut Vec<Watch>) {
        if let Some(fd) = self.domain.completion_fd() {
            out.push(Watch { fd, generation: u64::MAX - 1, readable: true, writable: false });
        }
        if let Some(peers) = &self.peers {
            peers.watches(out);
        }
    }

    /// When to turn again even if nothing happens.
    pub fn next_turn(&self) -> Option<Nanos> {
        self.peers.as_ref().and_then(Links::next_turn)
    }

    /// Whether answers wait for the server's storage, since the log does not hold what it should.
    pub fn lags(&self) -> bool {
        self.failed.is_some() || self.peers.as_ref().is_some_and(|peers| !peers.is_whole())
    }
}

/// Takes what peers have said, and what a restart may rely on then.
fn hear_peers(
    peers: &mut Links,
    queue: &mut CommitQueue,
    meta: &mut LogMeta,
    domain: &mut DiskDomain,
    failed: &mut Option<String>,
    times: &mut LogTimes,
) {
    peers.turn(queue, &mut |list| {
        if failed.is_some() {
            return false;
        }
        meta.peers.clone_from(list);
        let noted = domain.set_meta(&meta.bytes());
        if let Err(error) = &noted {
            *failed = Some(error.to_string());
        }
        noted.is_ok()
    });
    if let Some(logged) = peers.logged() {
        queue.on_logged(logged);
        times.note_durable(logged);
    }
}

/// All updates in records, in order, and the first and last places of each.
#[allow(clippy::type_complexity)] // Two lists, taken apart at once.
pub fn updates_of(
    records: &BTreeMap<u64, Vec<u8>>,
) -> Result<(Vec<LoggedUpdate<'_>>, Vec<(SeqNum, SeqNum)>), LogError> {
    let (mut updates, mut places) = (Vec::new(), Vec::new());
    for record in records.values() {
        let from = updates.len();
        for update in RecordReader::new(record).map_err(LogError::Damaged)? {
            updates.push(update.map_err(LogError::Damaged)?);
        }
        if let [first, .., last] | [first @ last] = &updates[from..] {
            places.push((first.seq, last.seq));
        }
    }
    if !updates.is_sorted_by(|before, behind| before.seq < behind.seq) {
        return Err(LogError::Damaged(RecordError::Order));
    }
    Ok((updates, places))
}

/// Whether a log that is not there yet can be made.
fn has_room(path: &Path, bytes: u64) -> Result<(), LogError> {
    if std::fs::metadata(path).is_ok_and(|found| found.len() > 0) {
        return Ok(());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // A folder that cannot be asked is spoken of when the file is made.
    let Ok(found) = rustix::fs::statvfs(folder) else { return Ok(()) };
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    if bytes > free {
        return Err(LogError::NoRoom { path: path.to_owned(), bytes, free });
    }
    Ok(())
}

/// The number of a file, and its length.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = std::fs::metadata(path)?;
    Ok((found.ino(), found.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_keeps_its_name_and_what_it_knows_of_its_server() {
        let name = std::array::from_fn(|index| index as u8);
        let lacks = Lacking { session: SessionId(3), kept: SeqNum(9), found: SeqNum(0) };
        for (peers, lacking) in [
            (PeerList::new(), None),
            (PeerList::from([[1; 16], [2; 16]]), None),
            (PeerList::new(), Some(lacks)),
            (PeerList::from([[1; 16], [2; 16]]), Some(lacks)),
        ] {
            // With fewer peers.
            let fewer = [44, 60];
            for is_starting in [false, true] {
                let meta = LogMeta { name, epoch: 7, peers: peers.clone(), lacking, is_starting };
                let bytes = meta.bytes();
                assert_eq!(LogMeta::read(&bytes).as_ref(), Some(&meta));
                let before = usize::from(is_starting) * 8;
                for length in
                    (0..bytes.len()).filter(|length| !fewer.contains(&(length - before.min(*length))))
                {
                    assert_eq!(LogMeta::read(&bytes[..length]), None, "{length}");
                }
            }
        }
    }

    #[test]
    fn a_log_for_which_there_is_no_room_is_not_made() {
        let folder = std::env::temp_dir();
        let error = has_room(&folder.join("scot-no-such-log"), 1 << 62).expect_err("no disk is so large");
        let (text, LogError::NoRoom { free, .. }) = (error.to_string(), &error) else { panic!("{error}") };
        assert!(text.contains(&(1_u64 << 62).to_string()) && text.contains(&free.to_string()), "{text}");
        assert!(has_room(&folder.join("scot-no-such-log"), 1).is_ok());
        // One that is there keeps its size.
        assert!(has_room(&std::env::current_exe().expect("it runs"), 1 << 62).is_ok());
    }

    #[test]
    fn a_last_record_that_does_not_hold_is_dropped_and_said_to_be() {
        let folder = std::env::temp_dir().join(format!("scot-torn-log-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("it can be made");
        let open = |name: &str| {
            let mut log = ProxyLog::open(&folder.join(name), LOG_BYTES_MIN, None).expect("there is room");
            let records = log.records().expect("it can be read");
            (log, records.len())
        };
        let (mut log, _) = open("log");
        for (name, content) in [(1, b"the first record"), (2, b"the other record")] {
            log.domain.submit(Token(name), content).expect("it is taken");
            while log.completed.len() < name as usize {
                log.domain.write_waiting();
                log.domain.completions(&mut log.completed).expect("the disk works");
            }
        }
        // As a kill leaves it: an end in good order notes how much is durable.
        let mut bytes = std::fs::read(folder.join("log")).expect("it is there");
        std::fs::write(folder.join("whole"), &bytes).expect("it can be written");
        let (whole, count) = open("whole");
        assert_eq!((count, whole.torn_text()), (2, None));
        let at = bytes.windows(5).position(|word| word == b"other").expect("it was written");
        bytes[at] ^= 1;
        std::fs::write(folder.join("flipped"), &bytes).expect("it can be written");
        let (flipped, count) = open("flipped");
        let said = flipped.torn_text().expect("something was dropped");
        assert!(count == 1 && said.contains("bytes behind the last whole record"), "{count} {said}");
        drop((log, whole, flipped));
        std::fs::remove_dir_all(&folder).expect("it is there");
    }

    #[test]
    fn records_that_contradict_each_other_are_damage() {
        let record = |seq| {
            let mut writer = scotfree_proxy::RecordWriter::default();
            let (session, behind) = (SessionId(1), SeqNum(0));
            writer.add(&LoggedUpdate { seq: SeqNum(seq), session, behind, payload: b"x" });
            writer.bytes().to_vec()
        };
        let right = BTreeMap::from([(3, record(3)), (9, record(9))]);
        let (updates, places) = updates_of(&right).expect("they are in order");
        assert_eq!(updates.len(), 2);
        assert_eq!(places, [(SeqNum(3), SeqNum(3)), (SeqNum(9), SeqNum(9))]);
        let wrong = BTreeMap::from([(3, record(9)), (9, record(3))]);
        assert!(matches!(updates_of(&wrong), Err(LogError::Damaged(RecordError::Order))));
    }
}
