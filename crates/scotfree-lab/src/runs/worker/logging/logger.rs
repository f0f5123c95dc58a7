//! A logger: it takes a request, logs it, has its peers log it, lets the caller go on, and hands the request on.
//!
//! Invariant: an entry is freed only after the application has applied its request; a caller waits while the
//! log is full.

use super::{connect_udp, damaged, Done, Door, Message, Requests, MESSAGE_BYTES_MAX, PATIENCE, QUESTION};
use scotfree_core::Token;
use scotfree_io::ram::{RamConfig, RamDomain};
use scotfree_io::{processor, PersistenceDomain};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::READY;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Entries of a log. So many requests, on their way to the application, fit into a socket's usual buffer.
const ENTRIES_MAX: u64 = 64;

/// What a logger is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoggerSpec {
    /// Where it takes requests.
    pub door: Door,
    /// Its log, of the kind `ram`.
    pub log: PathBuf,
    /// Loggers of other hosts that must have a request before its caller goes on.
    pub peers: Vec<SocketAddr>,
    /// Who gets the requests in the end; a logger that is a peer of another has nobody.
    pub application: Option<SocketAddr>,
    /// Whether it takes requests on the first processor, where its caller runs: who is woken on the same one need
    /// not be woken from sleep.
    pub beside_caller: bool,
}

pub(in super::super) fn serve(spec: &LoggerSpec) -> Result<(), Trouble> {
    let broke = |error: io::Error| {
        let next = "see the logs of its peers and of the application";
        Trouble::new(format!("log requests to {}", spec.log.display()), error, next)
    };
    let mut logger = Logger::new(spec).map_err(broke)?;
    let mut requests = Requests::open(&spec.door).map_err(broke)?;
    // Not the threads behind it, whose work nobody waits for.
    if spec.beside_caller {
        processor::stay_on_first().map_err(broke)?;
    }
    println!("{READY}");
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    loop {
        let length = requests.next(&mut buffer).map_err(broke)?;
        logger.take(&buffer[..length], &mut requests).map_err(broke)?;
    }
}

struct Logger {
    log: Log,
    peers: Vec<UdpSocket>,
    application: Option<Application>,
    copied: u64,
    buffer: [u8; MESSAGE_BYTES_MAX],
}

impl Logger {
    fn new(spec: &LoggerSpec) -> io::Result<Logger> {
        Ok(Logger {
            log: Log::open(spec)?,
            peers: spec.peers.iter().map(|peer| connect_udp(*peer)).collect::<io::Result<_>>()?,
            application: spec.application.map(Application::connect).transpose()?,
            copied: 0,
            buffer: [0; MESSAGE_BYTES_MAX],
        })
    }

    fn take(&mut self, bytes: &[u8], requests: &mut Requests) -> io::Result<()> {
        let request = Message::read(bytes)?;
        if request.number == QUESTION {
            return self.tell(requests);
        }
        let applied = match &self.application {
            Some(application) => application.await_room(self.log.written)?,
            None => request.applied,
        };
        self.log.free(applied)?;
        let number = self.log.write(request.payload)?;
        let length = Message { number, applied, ..request }.write(&mut self.buffer);
        self.copy_to_peers(number, length)?;
        answer(requests, &Message { payload: &[], ..request })?;
        // From here on the caller does not wait.
        self.application.as_ref().map_or(Ok(()), |application| application.hand_on(&self.buffer[..length]))
    }

    /// All peers log at the same time.
    fn copy_to_peers(&mut self, number: u64, length: usize) -> io::Result<()> {
        for peer in &self.peers {
            peer.send(&self.buffer[..length])?;
        }
        let mut answer = [0; MESSAGE_BYTES_MAX];
        for peer in &self.peers {
            let length = peer.recv(&mut answer)?;
            if Message::read(&answer[..length])?.number != number {
                return Err(damaged());
            }
            self.copied += 1;
        }
        Ok(())
    }

    /// Whoever asks wants to know it when everything is applied.
    fn tell(&self, requests: &mut Requests) -> io::Result<()> {
        let applied = match &self.application {
            Some(application) => application.await_applied(self.log.written)?,
            None => 0,
        };
        let done = Done { logged: self.log.written, copied: self.copied, applied };
        answer(requests, &Message { number: QUESTION, applied, payload: &done.encode() })
    }
}

fn answer(requests: &mut Requests, message: &Message<'_>) -> io::Result<()> {
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    let length = message.write(&mut buffer);
    requests.answer(&buffer[..length])
}

/// The requests that the application may not have applied.
struct Log {
    domain: RamDomain,
    written: u64,
    freed: u64,
    completed: Vec<Token>,
}

impl Log {
    fn open(spec: &LoggerSpec) -> io::Result<Log> {
        let config = RamConfig {
            slot_count: ENTRIES_MAX,
            record_bytes_max: MESSAGE_BYTES_MAX,
            ..RamConfig::default()
        };
        let domain = RamDomain::open(&spec.log, &config).map_err(io::Error::other)?;
        Ok(Log { domain, written: 0, freed: 0, completed: Vec::new() })
    }

    /// Logs a request; its number, from 1.
    fn write(&mut self, payload: &[u8]) -> io::Result<u64> {
        assert!(self.written - self.freed < ENTRIES_MAX, "no entry that is not applied is written over");
        let token = slot(self.written);
        self.domain.submit(token, payload).map_err(io::Error::other)?;
        self.domain.completions(&mut self.completed).map_err(io::Error::other)?;
        assert_eq!(self.completed.pop(), Some(token), "a log in memory completes at once");
        self.written += 1;
        Ok(self.written)
    }

    fn free(&mut self, applied: u64) -> io::Result<()> {
        while self.freed < applied.min(self.written) {
            self.domain.erase(slot(self.freed)).map_err(io::Error::other)?;
            self.freed += 1;
        }
        Ok(())
    }
}

fn slot(written_before: u64) -> Token {
    Token(written_before % ENTRIES_MAX)
}

/// The way to the application, and how far it has come.
struct Application {
    waiting: SyncSender<Vec<u8>>,
    progress: Arc<Progress>,
}

impl Application {
    fn connect(address: SocketAddr) -> io::Result<Application> {
        let socket = connect_udp(address)?;
        socket.set_read_timeout(None)?;
        let progress = Arc::new(Progress::default());
        let (answers, noted) = (socket.try_clone()?, progress.clone());
        thread::spawn(move || note_answers(&answers, &noted));
        let (waiting, messages) = sync_channel(ENTRIES_MAX as usize);
        thread::spawn(move || send_all(&socket, &messages));
        Ok(Application { waiting, progress })
    }

    fn hand_on(&self, message: &[u8]) -> io::Result<()> {
        self.waiting.send(message.to_owned()).map_err(|_| unreachable_application())
    }

    /// Waits until there is an entry for the request after `number`; up to which one all are applied.
    fn await_room(&self, number: u64) -> io::Result<u64> {
        let is_behind = |applied: &mut Applied| applied.up_to + ENTRIES_MAX <= number;
        let waited = self.progress.grown.wait_timeout_while(self.progress.look(), PATIENCE, is_behind);
        match waited {
            Ok((applied, result)) if !result.timed_out() => Ok(applied.up_to),
            Ok(_) | Err(_) => Err(unreachable_application()),
        }
    }

    /// Waits until all requests up to `number` are applied; up to which one they are.
    fn await_applied(&self, number: u64) -> io::Result<u64> {
        self.await_room(number + ENTRIES_MAX - 1)
    }
}

fn unreachable_application() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the application does not apply what it was sent")
}

/// Sends what the caller does not wait for. An error shows as requests that are not applied.
fn send_all(socket: &UdpSocket, messages: &Receiver<Vec<u8>>) {
    while messages.recv().is_ok_and(|message| socket.send(&message).is_ok()) {}
}

fn note_answers(socket: &UdpSocket, progress: &Progress) {
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    while let Ok(length) = socket.recv(&mut buffer) {
        let Ok(message) = Message::read(&buffer[..length]) else { return };
        progress.look().note(message.number);
        progress.grown.notify_one();
    }
}

#[derive(Default)]
struct Progress {
    applied: Mutex<Applied>,
    grown: Condvar,
}

impl Progress {
    fn look(&self) -> MutexGuard<'_, Applied> {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which requests are applied. Answers may overtake each other.
#[derive(Default)]
struct Applied {
    up_to: u64,
    beyond: BTreeSet<u64>,
}

impl Applied {
    fn note(&mut self, number: u64) {
        self.beyond.insert(number);
        while self.beyond.remove(&(self.up_to + 1)) {
            self.up_to += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_applied_is_known_up_to_the_first_gap() {
        let mut applied = Applied::default();
        for (number, up_to) in [(2, 0), (3, 0), (1, 3), (5, 3), (4, 5)] {
            applied.note(number);
            assert_eq!(applied.up_to, up_to, "after {number}");
        }
        assert!(applied.beyond.is_empty());
    }
}
