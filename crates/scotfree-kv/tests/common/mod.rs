//! A storage in memory that remembers its writes, and a service driven without a network.
#![allow(dead_code, reason = "each test file uses its own part")]

use scotfree_core::{Epoch, Nanos, SeqNum, SessionId};
use scotfree_io::disk::{DiskConfig, DiskDomain};
use scotfree_io::storage::Storage;
use scotfree_io::{Interest, Poller};
use scotfree_kv::{
    command, IndexKind, JournalError, JournalLimits, KvOptions, KvRecovery, KvService, Store, Value,
};
use scotfree_rpc::{Execution, Handler, Replies, Report, Service};
use scotfree_session::{RecoveredSession, RequestKind};
use scotfree_state::ResultsLimits;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes in memory, and the history of what was written.
#[derive(Default)]
pub struct MemoryStorage {
    bytes: Mutex<Vec<u8>>,
    pub writes: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl MemoryStorage {
    pub fn of(bytes: Vec<u8>) -> Arc<MemoryStorage> {
        Arc::new(MemoryStorage { bytes: Mutex::new(bytes), writes: Mutex::default() })
    }

    pub fn write_count(&self) -> usize {
        self.writes.lock().expect("no writer panics").len()
    }

    pub fn image(&self) -> Vec<u8> {
        self.bytes.lock().expect("no writer panics").clone()
    }
}

pub fn apply(image: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let end = offset as usize + bytes.len();
    if image.len() < end {
        image.resize(end, 0);
    }
    image[offset as usize..end].copy_from_slice(bytes);
}

impl Storage for MemoryStorage {
    fn length(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().expect("no writer panics").len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let bytes = self.bytes.lock().expect("no writer panics");
        let end = offset as usize + buffer.len();
        let range = bytes.get(offset as usize..end).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(range);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        apply(&mut self.bytes.lock().expect("no writer panics"), offset, bytes);
        self.writes.lock().expect("no writer panics").push((offset, bytes.to_vec()));
        Ok(())
    }
}

pub fn options(ops_bytes_max: u64) -> KvOptions {
    KvOptions {
        index: IndexKind::default(),
        data_bytes_max: 6_000,
        request_bytes_max: 4_000,
        devices: 1,
        vouches: false,
        results: ResultsLimits {
            clients_max: 4,
            per_client_max: 8,
            bytes_per_client_max: 200,
            bytes_max: 4_000,
            silent_ms_min: 1_000,
        },
        limits: JournalLimits {
            chunk_bytes_max: 4_000,
            ops_bytes_max,
            backlog_bytes_max: 1 << 20,
            full_time_max: Nanos::from_secs(10),
            gather_time: Nanos(0),
        },
        dead_letters: std::env::temp_dir().join(format!("scot-kv-dead-{}", std::process::id())),
        dead_letters_bytes_max: 1 << 20,
    }
}

/// The same with another structure.
pub fn options_with(index: IndexKind, ops_bytes_max: u64) -> KvOptions {
    KvOptions { index, ..options(ops_bytes_max) }
}

/// What a store holds, whatever its structure.
pub fn content(store: &Store) -> BTreeMap<Vec<u8>, Value> {
    store.iter().map(|(key, value)| (key.to_vec(), value.clone())).collect()
}

pub fn open(
    storage: &Arc<MemoryStorage>,
    options: &KvOptions,
) -> Result<(KvService<DiskDomain>, KvRecovery), JournalError> {
    let config = DiskConfig { log_bytes: 64 << 10, ..DiskConfig::default() };
    let storage: Arc<dyn Storage> = Arc::clone(storage) as Arc<dyn Storage>;
    KvService::open(DiskDomain::open_on(storage, Path::new("memory"), &config)?, options)
}

/// A service whose requests come from the test.
pub struct Driver {
    pub service: KvService<DiskDomain>,
    pub replies: Replies,
    ticket: u64,
    /// The last ticket reported as stable.
    pub stable: u64,
}

impl Driver {
    pub fn new(service: KvService<DiskDomain>) -> Driver {
        Driver { service, replies: Replies::new(), ticket: 0, stable: 0 }
    }

    pub fn start_session(&mut self, session: u64) {
        let record = RecoveredSession {
            session: SessionId(session),
            epoch: Epoch(1),
            client_nonce: [session as u8; 16],
            server_nonce: [9; 16],
            position: SeqNum(0),
        };
        self.service.record_session(&record, &mut self.replies);
    }

    pub fn service_delete(&mut self, session: u64) {
        self.service.delete_session(SessionId(session), &mut self.replies);
    }

    /// Executes one command and gives its reply without the head.
    pub fn run(&mut self, kind: RequestKind, session: u64, seq: u64, line: &str) -> String {
        let arguments: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.run_payload(kind, session, seq, &command(&arguments))
    }

    pub fn run_payload(&mut self, kind: RequestKind, session: u64, seq: u64, payload: &[u8]) -> String {
        self.execute(kind, session, seq, payload);
        let reply = self.replies.replies().pop().map(|reply| reply.bytes).unwrap_or_default();
        self.replies.clear();
        String::from_utf8_lossy(reply.get(2..).unwrap_or_default()).into_owned()
    }

    fn execute(&mut self, kind: RequestKind, session: u64, seq: u64, payload: &[u8]) {
        self.ticket += 1;
        let (ticket, session, seq) = (self.ticket, SessionId(session), SeqNum(seq));
        let request = Execution { ticket, session, seq, kind, payload, is_replayed: false, identity: None };
        self.service.execute(&request, &mut self.replies);
    }

    /// How long the reply to a request is said to be true, if anything is said.
    pub fn lives(&mut self, kind: RequestKind, payload: &[u8]) -> Option<u64> {
        self.execute(kind, 1, self.ticket + 1, payload);
        let lives = (0..).map_while(|index| self.replies.report(index)).find_map(|report| match report {
            Report::Lives { ticket, remaining_ms } if ticket == self.ticket => Some(remaining_ms),
            _ => None,
        });
        self.replies.clear();
        lives
    }

    pub fn poll(&mut self) {
        self.service.poll(false, &mut self.replies);
        assert_eq!(self.service.broken(), None);
        self.stable = self.stable.max(self.replies.stable_through().unwrap_or(0));
        self.replies.clear();
    }

    /// Waits until everything is durable.
    pub fn settle(&mut self) {
        let mut watches = Vec::new();
        self.service.watches(&mut watches);
        let mut poller = Poller::new(1).expect("a poller");
        poller.add(watches[0].fd, 0, Interest::Read).expect("a watch");
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.poll();
            if self.service.is_idle() {
                return;
            }
            assert!(Instant::now() < deadline, "the log does not settle");
            let wait = if self.service.next_poll().is_some() { Duration::from_micros(100) } else { PATIENCE };
            poller.wait(Some(wait)).expect("a wait");
        }
    }
}
