//! What a proxy waits for: clients, the server's connections, the log, and the word to stop.
//!
//! Invariant: what the poller watches is what was wanted at the last wait.

use super::path::ProxyPath;
use scotfree_core::Nanos;
use scotfree_io::{Event, Interest, Poller, Spin};
use scotfree_rpc::{Stop, Watched};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

/// The poller's keys.
const STOP_KEY: u64 = 0;
const PATH_KEY: u64 = 1;
const LISTENER_KEY: u64 = 2;
/// Those of connections are larger.
pub(super) const FIRST_CONNECTION: u64 = LISTENER_KEY + super::super::LISTENERS_MAX as u64;
/// How many descriptors one wait reports.
const EVENTS_MAX: usize = 256;
/// How long clients are not listened to at most: there may be some who ask for nothing that waits, and tunnels.
const HOLD: Nanos = Nanos::from_micros(200);

/// How to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// For anything; asleep at once.
    Asleep,
    /// For anything; looks before it sleeps, since that is in nobody's way.
    Looking,
    /// First for the log and the server: whatever clients ask now would wait for these anyway, and heard together it
    /// costs a turn, a record and a transaction instead of one of each for every few requests.
    Holding,
}

/// The poller.
pub(super) struct Watching {
    poller: Poller,
    /// Of the log and the server; the other one watches it.
    of_path: Poller,
    watched: Watched,
    stops: Option<RawFd>,
}

/// Which listener an event is of.
pub(super) fn listener_of(event: Event) -> Option<usize> {
    (LISTENER_KEY..FIRST_CONNECTION).contains(&event.key).then(|| (event.key - LISTENER_KEY) as usize)
}

impl Watching {
    /// Watches nothing; looks so before it sleeps.
    pub fn new(spin: Spin) -> io::Result<Watching> {
        let mut poller = Poller::new(EVENTS_MAX)?;
        poller.spin(spin);
        let of_path = Poller::new(EVENTS_MAX)?;
        poller.add(of_path.as_raw_fd(), PATH_KEY, Interest::Read)?;
        Ok(Watching { poller, of_path, watched: Watched::default(), stops: None })
    }

    /// For clients' sockets.
    pub fn poller(&self) -> &Poller {
        &self.poller
    }

    /// Wakes for new clients.
    pub fn listen(&self, listeners: &[TcpListener]) -> io::Result<()> {
        for (index, listener) in listeners.iter().enumerate() {
            self.poller.add(listener.as_raw_fd(), LISTENER_KEY + index as u64, Interest::Read)?;
        }
        Ok(())
    }

    /// Wakes when somebody asks to stop.
    pub fn stop_on(&mut self, stop: &Stop) -> io::Result<()> {
        self.stops = Some(stop.poll_fd());
        self.poller.add(stop.poll_fd(), STOP_KEY, Interest::Read)
    }

    /// Wakes for no new client, nor for the word to stop, which was heard.
    pub fn end_listening(&mut self, listeners: &[TcpListener]) -> io::Result<()> {
        for listener in listeners {
            self.poller.remove(listener.as_raw_fd())?;
        }
        self.stops.take().map_or(Ok(()), |fd| self.poller.remove(fd))
    }

    /// Watches what the path wants to be watched.
    pub fn follow(&mut self, path: &ProxyPath) -> io::Result<()> {
        self.watched.follow(&self.of_path, PATH_KEY, |out| path.watches(out))
    }

    /// Waits for at most `time`; what is ready, but for what is the path's.
    pub fn wait(&mut self, time: Nanos, manner: Manner) -> io::Result<Vec<Event>> {
        let mut time = time;
        if manner == Manner::Holding {
            let held = time.min(HOLD);
            let is_over = !self.of_path.wait_asleep(Some(duration(held)))?.is_empty();
            time = if is_over { Nanos(0) } else { time.since(held) };
        }
        let events = self.poller.wait_looking(Some(duration(time)), manner == Manner::Looking)?;
        Ok(events.to_vec())
    }
}

fn duration(time: Nanos) -> Duration {
    Duration::from_nanos(time.0)
}
