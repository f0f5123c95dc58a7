//! Calls that a site's client makes, and servers that do nothing, which only experiments want.
//!
//! Invariant: what calls runs on the client's host, what serves on the server's.

use super::worker::calls::{CallsReport, CallsSpec, Slice, SlicesSpec, TraceSpec};
#[cfg(feature = "xdp")]
use super::worker::endpoints::{server::EndpointServerSpec, Access, Endpoint, Waits};
use super::worker::noop::NoopSpec;
use super::worker::WorkerSpec;
use scotfree_core::Tier;
use scotfree_stage::process::Process;
use scotfree_stage::site::{Device, Site, METRICS};
use scotfree_stage::trouble::Trouble;
use std::net::SocketAddr;

/// Calls to be made from the client's host.
#[derive(Debug, Clone)]
pub(super) struct Calls {
    pub tier: Tier,
    pub outstanding: usize,
    pub interval_us: u64,
    pub payload_bytes: usize,
    pub count: u64,
    pub trace: Option<TraceSpec>,
}

/// What experiments start on a site beside what it starts itself.
pub(super) trait BareServices {
    /// The site.
    fn site(&self) -> &Site<'_>;

    /// Makes calls from the client's host and measures them.
    fn calls(&self, calls: &Calls) -> Result<CallsReport, Trouble> {
        self.calls_to(self.site().server(), calls)
    }

    /// The same to a server that may be another than the usual one.
    fn calls_to(&self, server: SocketAddr, calls: &Calls) -> Result<CallsReport, Trouble> {
        self.site().run_worker("client", "calls", &WorkerSpec::Calls(calls_spec(self.site(), server, calls)))
    }

    /// Makes calls to several servers, in slices that take turns. `servers` are their processes.
    fn slices(
        &self,
        callers: &[(SocketAddr, Calls)],
        servers: &[Process],
        slices: u32,
    ) -> Result<Vec<Slice>, Trouble> {
        let callers = callers.iter().map(|(server, calls)| calls_spec(self.site(), *server, calls)).collect();
        let servers = servers.iter().map(Process::pid).collect();
        self.site().run_worker(
            "client",
            "slices",
            &WorkerSpec::Slices(SlicesSpec { callers, servers, slices }),
        )
    }

    /// Starts a server that does nothing.
    fn start_noop(&self, probes: bool) -> Result<Process, Trouble> {
        self.start_noop_at(self.site().server(), probes)
    }

    /// Starts one of several servers that do nothing.
    fn start_noop_at(&self, listen: SocketAddr, probes: bool) -> Result<Process, Trouble> {
        start_noop_with(
            self.site(),
            &NoopSpec { probes, ..noop_spec(self.site(), listen, &self.site().devices()) },
        )
    }

    /// Starts a server that does nothing and looks for requests for up to so long before it sleeps.
    fn start_looking_noop(&self, spin_us: u64) -> Result<Process, Trouble> {
        let spec = usual_noop_spec(self.site());
        start_noop_with(self.site(), &NoopSpec { spin_us, ..spec })
    }

    /// Starts a server whose every value has so many bytes, and which vouches for it; it counts, and looks for requests
    /// for up to so long before it sleeps.
    fn start_values(&self, value_bytes: usize, spin_us: u64) -> Result<Process, Trouble> {
        let spec = usual_noop_spec(self.site());
        start_noop_with(self.site(), &NoopSpec { value_bytes, spin_us, metrics: Some(METRICS), ..spec })
    }

    /// Starts a server that works so long on each request, and stamps it.
    fn start_working_noop(&self, work_us: u64) -> Result<Process, Trouble> {
        self.start_working_noop_at(self.site().server(), &self.site().devices(), work_us)
    }

    /// The same at an address of its own, with devices or none.
    fn start_working_noop_at(
        &self,
        listen: SocketAddr,
        devices: &[Device],
        work_us: u64,
    ) -> Result<Process, Trouble> {
        let spec = noop_spec(self.site(), listen, devices);
        start_noop_with(self.site(), &NoopSpec { probes: true, work_ns: work_us * 1_000, ..spec })
    }

    /// Starts a server that does nothing, and knows these devices only.
    fn start_noop_behind(&self, devices: &[Device]) -> Result<Process, Trouble> {
        start_noop_with(self.site(), &noop_spec(self.site(), self.site().server(), devices))
    }

    /// Starts a server that does nothing but count, as an incarnation of its own.
    fn start_counting_noop(&self, epoch: u32) -> Result<Process, Trouble> {
        let spec = usual_noop_spec(self.site());
        start_noop_with(self.site(), &NoopSpec { epoch, metrics: Some(METRICS), ..spec })
    }

    /// Starts a server that does nothing, whose executions are stable some time later.
    #[cfg(feature = "xdp")]
    fn start_late_noop(&self, stable_after_ms: u64) -> Result<Process, Trouble> {
        let spec = usual_noop_spec(self.site());
        start_noop_with(self.site(), &NoopSpec { stable_after_ms, ..spec })
    }

    /// Starts a server that does nothing, on a chosen way, as an incarnation of its own.
    #[cfg(feature = "xdp")]
    fn start_endpoint_server(&self, epoch: u32, access: Access, waits: Waits) -> Result<Process, Trouble> {
        let address = self.site().server();
        let noop = NoopSpec { epoch, ..noop_spec(self.site(), address, &self.site().devices()) };
        let endpoint = Endpoint { address, access, waits };
        let spec = WorkerSpec::EndpointServer(EndpointServerSpec { noop, endpoint });
        self.site().start_worker("server", "endpoint-server", &spec)
    }
}

impl BareServices for Site<'_> {
    fn site(&self) -> &Site<'_> {
        self
    }
}

fn calls_spec(site: &Site<'_>, server: SocketAddr, calls: &Calls) -> CallsSpec {
    CallsSpec {
        server,
        cluster_key: site.cluster_key(),
        tier: calls.tier,
        outstanding: calls.outstanding,
        interval_us: calls.interval_us,
        payload_bytes: calls.payload_bytes,
        calls: calls.count,
        warmup_calls: calls.count / 10,
        trace: calls.trace.clone(),
    }
}

fn noop_spec(site: &Site<'_>, listen: SocketAddr, devices: &[Device]) -> NoopSpec {
    NoopSpec {
        devices: devices.iter().map(|device| (device.id, device.control)).collect(),
        ..NoopSpec::new(listen, site.cluster_key())
    }
}

/// One at the server's address that knows all devices.
fn usual_noop_spec(site: &Site<'_>) -> NoopSpec {
    noop_spec(site, site.server(), &site.devices())
}

fn start_noop_with(site: &Site<'_>, spec: &NoopSpec) -> Result<Process, Trouble> {
    site.start_worker("server", "noop", &WorkerSpec::Noop(spec.clone()))
}
