//! Makes requests, one behind the other, of a logger or through devices, and measures each.
//!
//! Invariant: a latency runs from before a request is handed over until its answer has been taken; between two
//! requests the caller computes for a while, so that what nobody waits for is done when the next one is made.

use super::{connect_udp, damaged, read_message, Done, Door, Message, MESSAGE_BYTES_MAX, PATIENCE, QUESTION};
use scotfree_core::Tier;
use scotfree_io::processor;
use scotfree_rpc::{start_session, Session, SessionConfig, SessionOptions};
use scotfree_stage::stats::{Latencies, Summary};
use scotfree_stage::trouble::Trouble;
use scotfree_wire::ClusterKey;
use serde::{Deserialize, Serialize};
use std::hint::spin_loop;
use std::io::{self, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Which requests to make.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CallerSpec {
    /// Who acknowledges them.
    pub log: LogSpec,
    /// The size of a request.
    pub payload_bytes: usize,
    /// How long the caller computes before each request.
    pub think_us: u64,
    /// How many are measured.
    pub calls: u64,
    /// How many are made before.
    pub warmup_calls: u64,
}

/// Who acknowledges requests.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogSpec {
    /// A logger.
    Logger(Door),
    /// Devices on the way to a server.
    Devices {
        /// The server.
        server: SocketAddr,
        /// The secret that the cluster shares.
        cluster_key: [u8; 32],
        /// What they must give.
        #[serde(with = "crate::tier_text")]
        tier: Tier,
    },
}

/// What requests measured. What was counted is of all of them, those before the measured ones too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallerReport {
    /// Latencies of the requests measured.
    pub latency: Summary,
    /// What the logger did.
    pub done: Done,
    /// Requests that devices' acknowledgements completed.
    pub completed_early: u64,
    /// Packets that were refused.
    pub refused: u64,
}

pub(in super::super) fn measure(spec: &CallerSpec) -> Result<CallerReport, Trouble> {
    make_calls(spec).map_err(|error| {
        let next = "see the logs of all who were to log requests, and of the server";
        Trouble::new("make requests that are logged", error, next)
    })
}

fn make_calls(spec: &CallerSpec) -> io::Result<CallerReport> {
    processor::stay_on_first()?;
    let think = Duration::from_micros(spec.think_us);
    let mut caller =
        Caller { way: Way::open(&spec.log)?, payload: vec![b'x'; spec.payload_bytes], number: QUESTION };
    let before = caller.ask()?;
    for _ in 0..spec.warmup_calls {
        caller.call(think)?;
    }
    let mut latencies = Latencies::new();
    for _ in 0..spec.calls {
        latencies.record(caller.call(think)?);
    }
    let done = caller.ask()?.since(before);
    let none = || io::Error::new(io::ErrorKind::InvalidInput, "no calls were to be made");
    let latency = latencies.summary().ok_or_else(none)?;
    let (completed_early, refused) = caller.way.end()?;
    Ok(CallerReport { latency, done, completed_early, refused })
}

struct Caller {
    way: Way,
    payload: Vec<u8>,
    number: u64,
}

impl Caller {
    /// Makes the next request and waits until it is answered; how long that took.
    fn call(&mut self, think: Duration) -> io::Result<Duration> {
        self.number += 1;
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        let request = Message { number: self.number, applied: 0, payload: &self.payload };
        let length = request.write(&mut buffer);
        compute_for(think);
        let begin = Instant::now();
        if let Way::Devices(session) = &mut self.way {
            let key = (self.number % 4_096).to_le_bytes();
            session.send_early_update(&key, &self.payload).map_err(io::Error::other)?;
            session.next_reply(PATIENCE).map_err(io::Error::other)?;
            return Ok(begin.elapsed());
        }
        let length = self.way.exchange(&mut buffer, length)?;
        let latency = begin.elapsed();
        if Message::read(&buffer[..length])?.number == self.number {
            return Ok(latency);
        }
        Err(damaged())
    }

    /// What the logger has done, if there is one.
    fn ask(&mut self) -> io::Result<Done> {
        if let Way::Devices(_) = self.way {
            return Ok(Done::default());
        }
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        let length = Message { number: QUESTION, applied: 0, payload: &[] }.write(&mut buffer);
        let length = self.way.exchange(&mut buffer, length)?;
        Done::decode(Message::read(&buffer[..length])?.payload)
    }
}

fn compute_for(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        spin_loop();
    }
}

enum Way {
    Unix(UnixStream),
    Udp(UdpSocket),
    Devices(Box<Session>),
}

impl Way {
    fn open(log: &LogSpec) -> io::Result<Way> {
        Ok(match log {
            LogSpec::Logger(Door::Unix(path)) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                Way::Unix(stream)
            }
            LogSpec::Logger(Door::Udp(address)) => Way::Udp(connect_udp(*address)?),
            LogSpec::Devices { server, cluster_key, tier } => {
                let options = SessionOptions { tier: *tier, ..SessionOptions::default() };
                let key = ClusterKey::from_bytes(*cluster_key);
                let config = SessionConfig { options, ..SessionConfig::new(*server, key) };
                Way::Devices(Box::new(start_session(&config).map_err(io::Error::other)?))
            }
        })
    }

    /// Sends a message of `length` bytes and waits for the one that answers it, which takes its place.
    fn exchange(&mut self, buffer: &mut [u8; MESSAGE_BYTES_MAX], length: usize) -> io::Result<usize> {
        match self {
            Way::Unix(stream) => {
                stream.write_all(&buffer[..length])?;
                read_message(stream, buffer)
            }
            Way::Udp(socket) => {
                socket.send(&buffer[..length])?;
                socket.recv(buffer)
            }
            Way::Devices(_) => Err(io::Error::other("devices are no loggers")),
        }
    }

    /// Ends a session; how many of its requests devices completed, and how many packets were refused.
    fn end(self) -> io::Result<(u64, u64)> {
        let Way::Devices(mut session) = self else { return Ok((0, 0)) };
        let totals = session.runtime().totals();
        session.end_session().map_err(io::Error::other)?;
        Ok((totals.completed_early, totals.refused))
    }
}
