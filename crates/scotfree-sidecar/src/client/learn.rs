//! The first conversation with the server's sidecar: what the server is.
//!
//! Invariant: one session is asked again and again, with growing pauses; another one is opened only when
//! it has ended.

use super::begin::control_options;
use super::{as_read, ClientSidecarConfig};
use crate::server::SidecarError;
use scotfree_core::Nanos;
use scotfree_io::{now_monotonic, now_realtime, Transport};
use scotfree_resp::codec::text_of;
use scotfree_resp::description::Description;
use scotfree_resp::front::describe_request;
use scotfree_resp::payload::parse_response;
use scotfree_rpc::{CallError, CallLabel, ClientRuntime, SessionHandle};
use scotfree_session::{backoff, Jitter};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The first pause after a refused description, doubled each time, and the longest.
const PAUSE_MIN: Nanos = Nanos::from_millis(50);
const PAUSE_MAX: Nanos = Nanos::from_secs(2);
/// How long the server's sidecar may be silent before that is said.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// A description, and how far the server's clock is ahead of ours.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub description: Arc<Description>,
    pub ahead_ms: i64,
}

impl Told {
    /// Reads what was asked for at `asked_at` and has come `now`, in real time.
    pub fn parse(payload: &[u8], asked_at: Nanos, now: Nanos) -> Result<Told, String> {
        let (_, reply) = parse_response(payload).map_err(|error| error.to_string())?;
        let text = text_of(reply)
            .and_then(|text| std::str::from_utf8(text).ok())
            .ok_or("its description is no text")?;
        let description = Description::parse(text).map_err(|error| error.to_string())?;
        // The server looked at its clock somewhere between the question and now: take the middle.
        let middle_ms = ((asked_at.0 / 2 + now.0 / 2) / 1_000_000) as i64;
        let ahead_ms = description.time_ms - middle_ms;
        Ok(Told { description: Arc::new(description), ahead_ms })
    }
}

/// Opens the control session and asks for the description, until it comes or the time is over.
pub(super) fn learn<T: Transport>(
    runtime: &mut ClientRuntime<T>,
    config: &ClientSidecarConfig,
) -> Result<(SessionHandle, Told), SidecarError> {
    let deadline = now_monotonic().plus(Nanos(config.start_time_max.as_nanos() as u64));
    // Sidecars that start together ask at different times.
    let mut jitter = Jitter::new(now_realtime().0);
    let mut session = None;
    for tries in 0.. {
        let reason = match learn_once(runtime, config, &mut session, deadline) {
            Ok(learned) => return Ok(learned),
            Err(reason) => reason,
        };
        if now_monotonic() >= deadline {
            let seconds = config.start_time_max.as_secs();
            let reason = format!("{reason} (tried for {seconds} s); {}", nothing_answers(config.server));
            return Err(SidecarError::Peer { server: config.server, reason });
        }
        let pause = jitter.around(backoff(PAUSE_MIN, PAUSE_MAX, tries));
        pass(runtime, now_monotonic().plus(pause).min(deadline))?;
    }
    unreachable!("the tries end with the deadline")
}

fn learn_once<T: Transport>(
    runtime: &mut ClientRuntime<T>,
    config: &ClientSidecarConfig,
    session: &mut Option<SessionHandle>,
    deadline: Nanos,
) -> Result<(SessionHandle, Told), String> {
    let left = || Duration::from_nanos(deadline.since(now_monotonic()).0);
    let handle = match session.filter(|handle| runtime.is_alive(*handle)) {
        Some(handle) => handle,
        None => runtime.start_session(control_options()).map_err(|error| error.to_string())?,
    };
    *session = Some(handle);
    wait_open(runtime, config, handle, left()).map_err(|error| error.to_string())?;
    let asked_at = now_realtime();
    let request = describe_request();
    let told = runtime
        .call(handle, as_read(&request.payload), CallLabel::new("describe"), left())
        .map_err(|error: CallError| error.to_string())
        .and_then(|reply| Told::parse(reply.bytes.unwrap_or_default(), asked_at, now_realtime()))?;
    Ok((handle, told))
}

/// Waits until the session is open, and says soon if nothing answers.
fn wait_open<T: Transport>(
    runtime: &mut ClientRuntime<T>,
    config: &ClientSidecarConfig,
    session: SessionHandle,
    left: Duration,
) -> Result<(), CallError> {
    let patience = left.min(SILENCE_MAX);
    match runtime.wait_open(session, patience) {
        Err(CallError::TimedOut(_)) if patience < left => {}
        result => return result,
    }
    config.notices.alarm(&format!("{}; trying on", nothing_answers(config.server)));
    runtime.wait_open(session, left.saturating_sub(patience))
}

/// What an operator should look at. A peer with another key drops our packets, as if it were not there.
fn nothing_answers(server: SocketAddr) -> String {
    format!(
        "nothing answers at {server}: is `scot sidecar server` running there, do packets get there with whole checksums \
         (in a lab of your own: ethtool -K PORT tx off), and is its key file the same?"
    )
}

/// Lets time pass; the session's end, if it comes, is taken note of.
fn pass<T: Transport>(runtime: &mut ClientRuntime<T>, until: Nanos) -> std::io::Result<()> {
    loop {
        runtime.turn()?;
        while runtime.next_event().is_some() {}
        let left = until.since(now_monotonic());
        if left == Nanos(0) {
            return Ok(());
        }
        runtime.wait(Some(Duration::from_nanos(left.0)))?;
    }
}
