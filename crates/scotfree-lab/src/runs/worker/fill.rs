//! Clients that fill the logs of devices: many sessions, each with as many early updates as it may have, for a
//! server that answers no more.
//!
//! Invariant: what is reported as acknowledged was completed by devices; no session ends in order, so that the
//! server has the updates from the devices or not at all.

use super::embedded::write_request;
use scotfree_core::Tier;
use scotfree_rpc::{start_session, Session, SessionConfig, SessionError, SessionOptions};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::READY;
use scotfree_wire::ClusterKey;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

/// How long devices may take to acknowledge an update; their lease is shorter.
const PATIENCE: Duration = Duration::from_secs(5);

/// What to fill logs with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FillSpec {
    /// The server, `scot kv`.
    pub server: SocketAddr,
    /// The secret that the cluster shares.
    pub cluster_key: [u8; 32],
    /// How many sessions.
    pub sessions: u32,
    /// How many updates each makes; at most its window.
    pub updates: u32,
    /// A socket: the updates are made when somebody connects.
    pub go: PathBuf,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FillReport {
    /// Updates that devices acknowledged.
    pub acknowledged: u64,
}

pub(super) fn fill(spec: &FillSpec) -> Result<FillReport, Trouble> {
    let broke = |error: SessionError| {
        let next = "see the logs of the server and of the device";
        Trouble::new(format!("fill the devices' logs with updates for {}", spec.server), error, next)
    };
    let mut sessions = open(spec).map_err(broke)?;
    let listener =
        UnixListener::bind(&spec.go).map_err(|error| Trouble::file("listen at", &spec.go, &error))?;
    println!("{READY}");
    listener.accept().map_err(|error| Trouble::file("wait at", &spec.go, &error))?;
    let mut acknowledged = 0;
    // A session is left alone when its updates are acknowledged: its client would send again what is not stable.
    for (number, session) in sessions.iter_mut().enumerate() {
        acknowledged += make_updates(session, number, spec.updates).map_err(broke)?;
    }
    Ok(FillReport { acknowledged })
}

fn open(spec: &FillSpec) -> Result<Vec<Session>, SessionError> {
    let options = SessionOptions { tier: Tier::RAM, ..SessionOptions::default() };
    let key = || ClusterKey::from_bytes(spec.cluster_key);
    let open = |_| start_session(&SessionConfig { options, ..SessionConfig::new(spec.server, key()) });
    (0..spec.sessions).map(open).collect()
}

/// Makes the updates of a session; how many of them devices have acknowledged.
fn make_updates(session: &mut Session, number: usize, updates: u32) -> Result<u64, SessionError> {
    for update in 0..updates {
        let key = format!("{number:04}:{update:05}");
        session.send_early_update(key.as_bytes(), &set(&key))?;
    }
    while session.outstanding() > 0 {
        session.next_reply(PATIENCE)?;
    }
    Ok(session.runtime().totals().completed_early)
}

/// A SET of a key of ten bytes, as the embedded server takes it.
fn set(key: &str) -> Vec<u8> {
    let mut payload = Vec::new();
    write_request(&[&["SET", key, key]], true, &mut payload);
    payload
}
