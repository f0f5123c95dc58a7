//! How a client begins, be it a sidecar or a part of a program, and how it goes on asking what the server is.

use super::coverage::Coverage;
use super::fronts::Fronts;
use super::learn::learn;
use super::{as_read, ClientSidecarConfig};
use crate::server::SidecarError;
use scotfree_core::Nanos;
use scotfree_io::udp::UdpTransport;
use scotfree_io::{now_monotonic, now_realtime};
use scotfree_resp::front::describe_request;
use scotfree_rpc::{CallLabel, ClientOptions, ClientRuntime, SessionHandle, SessionOptions};
use std::time::Duration;

/// How long the start waits for the session of the first connections.
const FIRST_OPEN_TIME_MAX: Duration = Duration::from_secs(1);
/// How often the server's description and time are asked for again; early answers go on for so long after
/// the server no longer allows them.
const DESCRIBE_INTERVAL: Nanos = Nanos::from_secs(1);

/// The session for what the client wants to know itself.
pub(super) struct Control {
    pub session: SessionHandle,
    /// When the server is asked again what it is.
    pub ask_at: Nanos,
}

/// Opens a socket, learns from the server's sidecar what the server is, and has a session open for the first
/// connections.
pub(super) fn begin(
    config: &ClientSidecarConfig,
) -> Result<(ClientRuntime<UdpTransport>, Control, Fronts), SidecarError> {
    let transport = UdpTransport::bind(config.bind, &config.udp).map_err(|error| SidecarError::Listen {
        address: config.bind,
        what: "the protocol",
        error,
    })?;
    let mut options = ClientOptions::new(config.server, config.cluster_key.get());
    options.probes = config.probes;
    let mut runtime = ClientRuntime::new(transport, options);
    runtime.follow_key(config.cluster_key.clone());
    let (session, description) = learn(&mut runtime, config)?;
    let coverage = Coverage::new(config.session, description.description.devices);
    let rules = config.listeners.iter().map(|listener| &listener.early);
    config.notices.say(&coverage.text(rules));
    let mut fronts = Fronts::new(config, description, coverage);
    if let Some(session) = open_first(&mut runtime, fronts.coverage.options()) {
        fronts.add_shared(session);
    }
    let ask_at = now_monotonic().plus(DESCRIBE_INTERVAL);
    Ok((runtime, Control { session, ask_at }, fronts))
}

/// A session for the first connections: when they come, the server may have no memory for its record.
fn open_first(runtime: &mut ClientRuntime<UdpTransport>, options: SessionOptions) -> Option<SessionHandle> {
    let session = runtime.start_session(options).ok()?;
    if runtime.wait_open(session, FIRST_OPEN_TIME_MAX).is_ok() {
        return Some(session);
    }
    // It is no reason not to start: the connections themselves will be told.
    runtime.end_session(session);
    None
}

/// A session for what the client wants to know itself.
pub(super) fn control_options() -> SessionOptions {
    SessionOptions { window_asked: 4, ..SessionOptions::default() }
}

impl Control {
    /// Asks the server what it is, if it is time.
    pub fn ask_if_due(&mut self, runtime: &mut ClientRuntime<UdpTransport>, fronts: &mut Fronts) {
        let now = now_monotonic();
        if now < self.ask_at {
            return;
        }
        self.ask_at = now.plus(DESCRIBE_INTERVAL);
        if !runtime.is_alive(self.session) {
            // The server has forgotten the session: another one takes its place.
            if let Ok(session) = runtime.start_session(control_options()) {
                self.session = session;
            }
            return;
        }
        // A server that is silent is not asked again and again.
        if runtime.outstanding(self.session) > 0 {
            return;
        }
        let request = describe_request();
        fronts.description_asked_at = now_realtime();
        let _ = runtime.submit(self.session, as_read(&request.payload), CallLabel::new("describe"));
    }
}
