//! Puts keys into an etcd, so many at a time, and measures each put.
//!
//! Invariant: a latency runs from before a put is written to its connection until its stream has ended; puts go to the
//! member that leads, which no other has to hand them on.

mod grpc;

use grpc::{Connection, Ended};
use scotfree_stage::stats::{Latencies, Summary};
use scotfree_stage::trouble::Trouble;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

const PUT: &str = "/etcdserverpb.KV/Put";
const STATUS: &str = "/etcdserverpb.Maintenance/Status";
/// How long a cluster may take to have a leader.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);

/// Which puts to make.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EtcdPutsSpec {
    /// The members of the cluster.
    pub addresses: Vec<SocketAddr>,
    /// Over how many connections.
    pub connections: usize,
    /// How many are under way at a time, over all of them.
    pub outstanding: usize,
    /// How many keys are put in turn.
    pub keys: u64,
    /// The size of a value.
    pub value_bytes: usize,
    /// How long puts are made before they are measured.
    pub warmup_ms: u64,
    /// How long they are measured.
    pub time_ms: u64,
}

/// What puts measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EtcdPutsReport {
    /// Latencies of the puts measured.
    pub latency: Summary,
    /// How many were answered in a second.
    pub puts_per_s: f64,
    /// How many had another answer than that of a put.
    pub wrong_replies: u64,
}

/// Makes the puts.
pub(super) fn measure(spec: &EtcdPutsSpec) -> Result<EtcdPutsReport, Trouble> {
    let broke =
        |error: io::Error| Trouble::new("put keys into an etcd", error, "see the logs of its members");
    let leader = leader_of(&spec.addresses).map_err(broke)?;
    let each = (spec.outstanding / spec.connections).max(1);
    let connections = 0..spec.connections as u64;
    let open = |number| Ok(Putter::new(spec, number, each, Connection::open(leader)?));
    let mut putters = connections.map(open).collect::<io::Result<Vec<Putter<'_>>>>().map_err(broke)?;
    run_all(&mut putters, Duration::from_millis(spec.warmup_ms)).map_err(broke)?;
    let begin = Instant::now();
    let latencies = run_all(&mut putters, Duration::from_millis(spec.time_ms)).map_err(broke)?;
    let elapsed = begin.elapsed();
    let none = || Trouble::new("measure puts", "none was answered", "give them more time");
    let latency = latencies.summary().ok_or_else(none)?;
    Ok(EtcdPutsReport {
        puts_per_s: latency.count as f64 / elapsed.as_secs_f64(),
        latency,
        wrong_replies: putters.iter().map(|putter| putter.wrong_replies).sum(),
    })
}

fn run_all(putters: &mut [Putter<'_>], time: Duration) -> io::Result<Latencies> {
    let mut all = Latencies::new();
    thread::scope(|scope| {
        let threads: Vec<_> =
            putters.iter_mut().map(|putter| scope.spawn(move || putter.run(time))).collect();
        for thread in threads {
            all.add(&thread.join().expect("a putter does not panic")?);
        }
        Ok(all)
    })
}

/// The member that leads, once there is one.
fn leader_of(addresses: &[SocketAddr]) -> io::Result<SocketAddr> {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        for address in addresses {
            if leads(*address).unwrap_or(false) {
                return Ok(*address);
            }
        }
        thread::sleep(PAUSE);
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "no member leads"))
}

fn leads(address: SocketAddr) -> io::Result<bool> {
    let mut connection = Connection::open(address)?;
    connection.begin(STATUS, &[])?;
    let Ended { message, .. } = connection.next_end()?;
    Ok(message.is_some_and(|status| says_leader(&status)))
}

/// Whether the status of a member says that itself is the leader.
fn says_leader(status: &[u8]) -> bool {
    let header = grpc::field(status, 1).map(|(_, header)| header).unwrap_or_default();
    let (member, leader) = (grpc::field(header, 2), grpc::field(status, 4));
    member.zip(leader).is_some_and(|((member, _), (leader, _))| member == leader && leader != 0)
}

/// Makes puts over one connection.
struct Putter<'a> {
    spec: &'a EtcdPutsSpec,
    number: u64,
    outstanding: usize,
    connection: Connection,
    begun: HashMap<u32, Instant>,
    count: u64,
    wrong_replies: u64,
}

impl<'a> Putter<'a> {
    fn new(spec: &'a EtcdPutsSpec, number: u64, outstanding: usize, connection: Connection) -> Putter<'a> {
        Putter { spec, number, outstanding, connection, begun: HashMap::new(), count: 0, wrong_replies: 0 }
    }

    /// Makes puts for so long, and awaits all of them.
    fn run(&mut self, time: Duration) -> io::Result<Latencies> {
        let (mut latencies, begin) = (Latencies::new(), Instant::now());
        loop {
            let is_over = begin.elapsed() >= time;
            while !is_over && self.begun.len() < self.outstanding {
                self.put()?;
            }
            if self.begun.is_empty() {
                return Ok(latencies);
            }
            let Ended { stream, message } = self.connection.next_end()?;
            let Some(since) = self.begun.remove(&stream) else { continue };
            latencies.record(since.elapsed());
            self.wrong_replies += u64::from(message.is_none());
        }
    }

    fn put(&mut self) -> io::Result<()> {
        self.count += 1;
        let key = format!("key:{}:{}", self.number, self.count % self.spec.keys);
        let value = format!("{:0width$}", self.count, width = self.spec.value_bytes);
        let message = [grpc::bytes_field(1, key.as_bytes()), grpc::bytes_field(2, value.as_bytes())].concat();
        let begun = Instant::now();
        let stream = self.connection.begin(PUT, &message)?;
        self.begun.insert(stream, begun);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_leads_that_says_its_own_number_is_the_leaders() {
        // A header with the cluster's and the member's number; a version; the leader's number.
        let status = |member: u8, leader: u8| {
            let header = [0x08, 7, 0x10, member];
            [grpc::bytes_field(1, &header), grpc::bytes_field(2, b"3"), vec![0x20, leader]].concat()
        };
        assert!(says_leader(&status(5, 5)));
        assert!(!says_leader(&status(5, 6)) && !says_leader(&status(0, 0)) && !says_leader(&[]));
    }
}
