//! Clients: their sidecars and their calls.
//!
//! Invariant: all of them run on the client's host.

use super::Site;
use crate::process::Process;
use crate::runs::worker::calls::{CallsReport, CallsSpec, Slice, SlicesSpec, TraceSpec};
use crate::runs::worker::WorkerSpec;
use crate::trouble::Trouble;
use scotfree_core::Tier;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A sidecar in front of clients.
#[derive(Debug, Clone)]
pub(in super::super) struct ClientSidecar {
    pub name: &'static str,
    /// The port at which clients find it.
    pub port: u16,
    pub early: bool,
    /// What is asked of the devices: `none`, `ram:3`, `disk`.
    pub durability: Tier,
    pub trace: Option<PathBuf>,
}

/// Calls to be made from the client's host.
#[derive(Debug, Clone)]
pub(in super::super) struct Calls {
    pub tier: Tier,
    pub outstanding: usize,
    pub interval_us: u64,
    pub payload_bytes: usize,
    pub count: u64,
    pub trace: Option<TraceSpec>,
}

impl Site<'_> {
    /// Starts a sidecar in front of clients.
    pub fn start_client_sidecar(&self, sidecar: &ClientSidecar) -> Result<Process, Trouble> {
        self.start_client_sidecar_with(sidecar, &[])
    }

    /// The same with further flags.
    pub fn start_client_sidecar_with(
        &self,
        sidecar: &ClientSidecar,
        more: &[&str],
    ) -> Result<Process, Trouble> {
        let listen = self.client_sidecar_address(sidecar).to_string();
        let mut words = self.words(&["sidecar", "client", "--listen", &listen]);
        words.extend(["--server".into(), self.server().to_string().into()]);
        words.extend(["--mode".into(), if sidecar.early { "early" } else { "covered" }.into()]);
        words.extend(["--durability".into(), sidecar.durability.to_string().into()]);
        if let Some(trace) = &sidecar.trace {
            words.extend(["--trace".into(), trace.into()]);
        }
        words.extend(more.iter().map(OsString::from));
        self.start_scot("client", sidecar.name, words)
    }

    /// Where clients find a sidecar.
    pub fn client_sidecar_address(&self, sidecar: &ClientSidecar) -> SocketAddr {
        SocketAddr::new(self.address("client"), sidecar.port)
    }

    /// Makes calls from the client's host and measures them.
    pub fn calls(&self, calls: &Calls) -> Result<CallsReport, Trouble> {
        self.calls_to(self.server(), calls)
    }

    /// The same to a server that may be another than the usual one.
    pub fn calls_to(&self, server: SocketAddr, calls: &Calls) -> Result<CallsReport, Trouble> {
        self.run_worker("client", "calls", &WorkerSpec::Calls(self.calls_spec(server, calls)))
    }

    /// Makes calls to several servers, in slices that take turns. `servers` are their processes.
    pub fn slices(
        &self,
        callers: &[(SocketAddr, Calls)],
        servers: &[Process],
        slices: u32,
    ) -> Result<Vec<Slice>, Trouble> {
        let callers = callers.iter().map(|(server, calls)| self.calls_spec(*server, calls)).collect();
        let servers = servers.iter().map(Process::pid).collect();
        self.run_worker("client", "slices", &WorkerSpec::Slices(SlicesSpec { callers, servers, slices }))
    }

    fn calls_spec(&self, server: SocketAddr, calls: &Calls) -> CallsSpec {
        CallsSpec {
            server,
            cluster_key: self.key,
            tier: calls.tier,
            outstanding: calls.outstanding,
            interval_us: calls.interval_us,
            payload_bytes: calls.payload_bytes,
            calls: calls.count,
            warmup_calls: calls.count / 10,
            trace: calls.trace.clone(),
        }
    }
}
