//! The client: one update behind the other, each measured.
//!
//! Invariant: a latency runs from before an update is handed to the runtime until its completion has been taken from
//! it.

use super::{open_stack, sleeps, Access, Endpoint, EndpointReport, HasRings, Waits};
use crate::af_xdp::AfXdpTransport;
use scotfree_core::{KeyHash, Tier};
use scotfree_rpc::{
    CallLabel, ClientEvent, ClientOptions, ClientRuntime, ClientTotals, Mode, ProbeOptions, Request,
    RequestKind, SessionHandle, SessionOptions, SubmitError,
};
use scotfree_stage::stats::{Latencies, Summary};
use scotfree_stage::trouble::Trouble;
use scotfree_wire::ClusterKey;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long one step may take before the measurement is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which calls to make, and by which way.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EndpointCallsSpec {
    /// How the client gets at its datagrams.
    pub endpoint: Endpoint,
    /// The server.
    pub server: SocketAddr,
    /// The secret that the cluster shares.
    pub cluster_key: [u8; 32],
    /// What devices must give; where nothing is asked, the server's reply completes an update.
    #[serde(with = "crate::tier_text")]
    pub tier: Tier,
    /// The size of an update.
    pub payload_bytes: usize,
    /// How many are measured.
    pub calls: u64,
    /// How many are made before.
    pub warmup_calls: u64,
}

/// What calls measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndpointCallsReport {
    /// Latencies of the calls measured.
    pub latency: Summary,
    /// Calls per second.
    pub requests_per_s: f64,
    /// Of the calls measured, those that a device's acknowledgement completed.
    pub completed_early: u64,
    /// Requests that were sent again.
    pub retransmitted: u64,
    /// Packets that were refused.
    pub refused: u64,
    /// The way of the datagrams of the calls measured.
    pub client: EndpointReport,
}

pub(in super::super) fn measure(spec: &EndpointCallsSpec) -> Result<EndpointCallsReport, Trouble> {
    let report = match &spec.endpoint.access {
        Access::Stack => measure_on(spec, open_stack(spec.endpoint.address)?),
        Access::Bypass(interface) => {
            measure_on(spec, AfXdpTransport::bind(spec.endpoint.address, interface)?)
        }
    };
    report.map_err(|error| {
        let next = "see the logs of the server and of the device";
        Trouble::new(format!("call the server {}", spec.server), error, next)
    })
}

fn measure_on<T: HasRings>(spec: &EndpointCallsSpec, transport: T) -> io::Result<EndpointCallsReport> {
    let mut caller = Caller::open(spec, transport)?;
    caller.run(spec.warmup_calls)?;
    let (before, begin) = (caller.counts(), Instant::now());
    let latencies = caller.run(spec.calls)?;
    let elapsed_s = begin.elapsed().as_secs_f64();
    let after = caller.counts();
    caller.close()?;
    let none = || io::Error::new(io::ErrorKind::InvalidInput, "no calls were to be made");
    Ok(EndpointCallsReport {
        latency: latencies.summary().ok_or_else(none)?,
        requests_per_s: spec.calls as f64 / elapsed_s,
        completed_early: after.totals.completed_early - before.totals.completed_early,
        retransmitted: after.totals.retransmitted - before.totals.retransmitted,
        refused: after.totals.refused - before.totals.refused,
        client: EndpointReport {
            sleeps: after.report.sleeps - before.report.sleeps,
            rings: after.report.rings.since(before.report.rings),
        },
    })
}

/// What was counted up to a moment.
struct Counts {
    totals: ClientTotals,
    report: EndpointReport,
}

struct Caller<T> {
    runtime: ClientRuntime<T>,
    session: SessionHandle,
    mode: Mode,
    waits: Waits,
    payload: Vec<u8>,
    number: u64,
}

impl<T: HasRings> Caller<T> {
    fn open(spec: &EndpointCallsSpec, transport: T) -> io::Result<Caller<T>> {
        let key = ClusterKey::from_bytes(spec.cluster_key);
        let options = ClientOptions {
            sessions_max: 1,
            probes: ProbeOptions::OFF,
            ..ClientOptions::new(spec.server, key)
        };
        let mut runtime = ClientRuntime::new(transport, options);
        let wanted = SessionOptions { tier: spec.tier, ..SessionOptions::default() };
        let session = runtime.start_session(wanted).map_err(io::Error::other)?;
        runtime.wait_open(session, PATIENCE).map_err(io::Error::other)?;
        Ok(Caller {
            runtime,
            session,
            mode: if spec.tier == Tier::NONE { Mode::Covered } else { Mode::Early },
            waits: spec.endpoint.waits,
            payload: vec![b'x'; spec.payload_bytes],
            number: 0,
        })
    }

    fn counts(&self) -> Counts {
        let report = EndpointReport { sleeps: sleeps(), rings: self.runtime.transport().rings() };
        Counts { totals: self.runtime.totals(), report }
    }

    /// Makes `count` calls.
    fn run(&mut self, count: u64) -> io::Result<Latencies> {
        let mut latencies = Latencies::new();
        for _ in 0..count {
            latencies.record(self.call()?);
        }
        Ok(latencies)
    }

    /// Makes a call; how long it took.
    fn call(&mut self) -> io::Result<Duration> {
        let begin = Instant::now();
        while !self.submit()? {
            self.rest(begin)?;
            self.runtime.turn()?;
        }
        self.runtime.flush()?;
        self.wait_for(begin, |event| matches!(event, ClientEvent::Completed { .. }))?;
        Ok(begin.elapsed())
    }

    /// Hands the next update over; false if there is no credit for it.
    fn submit(&mut self) -> io::Result<bool> {
        let request = Request {
            kind: RequestKind::Update,
            mode: self.mode,
            fixed_reply: self.mode == Mode::Early,
            relaxed: false,
            traced: false,
            // Some thousand keys in turn: neither one hot key nor a table that grows.
            key_hash: KeyHash(self.number % 4_096 + 1),
            payload: &self.payload,
        };
        match self.runtime.submit(self.session, request, CallLabel::of_kind(RequestKind::Update)) {
            Ok(_) => {
                self.number += 1;
                Ok(true)
            }
            Err(SubmitError::WindowFull) => Ok(false),
            Err(error) => Err(io::Error::other(format!("an update was not taken: {error:?}"))),
        }
    }

    /// Ends the session once all of it is stable, so that the device has its room back.
    fn close(mut self) -> io::Result<()> {
        self.runtime.end_session(self.session);
        self.wait_for(Instant::now(), |event| matches!(event, ClientEvent::Closed { .. }))
    }

    /// Takes what happens until what is wanted does.
    fn wait_for(&mut self, begin: Instant, is_wanted: impl Fn(&ClientEvent<'_>) -> bool) -> io::Result<()> {
        loop {
            self.runtime.turn()?;
            while let Some(event) = self.runtime.next_event() {
                if is_wanted(&event) {
                    return Ok(());
                }
                if matches!(event, ClientEvent::Closed { .. }) {
                    return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the session has ended"));
                }
            }
            self.rest(begin)?;
        }
    }

    /// Does what the client does while nothing comes.
    fn rest(&mut self, begin: Instant) -> io::Result<()> {
        let left = PATIENCE.checked_sub(begin.elapsed()).ok_or(io::ErrorKind::TimedOut)?;
        match self.waits {
            Waits::Asleep => self.runtime.wait(Some(left)),
            Waits::Spinning => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::af_xdp::RingCounters;
    use crate::runs::worker::noop::{self, NoopSpec};
    use scotfree_io::conformance::ports::free_address;
    use scotfree_stage::process::wait_until;
    use std::net::UdpSocket;

    #[test]
    fn calls_by_the_stack_are_measured_whether_their_client_sleeps_or_not() {
        let server = noop_server();
        for waits in [Waits::Asleep, Waits::Spinning] {
            let report = measure(&example(server, Access::Stack, waits)).expect("the server answers");
            assert_eq!((report.latency.count, report.completed_early, report.refused), (200, 0, 0));
            assert_eq!(report.client.rings, RingCounters::default());
        }
    }

    #[test]
    fn an_interface_that_is_not_there_is_named() {
        let bypass = Access::Bypass("scot-none".into());
        let spec = example(free_address(), bypass, Waits::Asleep);
        let error = measure(&spec).expect_err("it has no stack to pass by").to_string();
        assert!(error.contains("scot-none"), "{error}");
    }

    /// Serves until the test's process ends.
    fn noop_server() -> SocketAddr {
        let listen = free_address();
        let noop = NoopSpec::new(listen, [5; 32]);
        std::thread::spawn(move || noop::serve(&noop));
        assert!(wait_until(PATIENCE, || UdpSocket::bind(listen).is_err()), "it is bound");
        listen
    }

    fn example(server: SocketAddr, access: Access, waits: Waits) -> EndpointCallsSpec {
        let address = SocketAddr::new(server.ip(), 0);
        EndpointCallsSpec {
            endpoint: Endpoint { address, access, waits },
            server,
            cluster_key: [5; 32],
            tier: Tier::NONE,
            payload_bytes: 64,
            calls: 200,
            warmup_calls: 10,
        }
    }
}
