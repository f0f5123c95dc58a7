//! A server that adds up numbers: an update adds one and answers with the sum, a read answers with the
//! sum, a bypass request sets it, and the bypass request `stop` ends the server.
//!
//! Usage: server ADDRESS

use scotfree_core::Epoch;
use scotfree_rpc::{Incoming, Listener, ListenerConfig, RequestKind};
use scotfree_wire::ClusterKey;
use std::error::Error;
use std::time::Duration;

/// A real cluster has a secret key, read from a file.
const CLUSTER_KEY: [u8; 32] = [42; 32];

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).ok_or("usage: server ADDRESS")?.parse()?;
    // Nothing outlives this server, so any epoch will do; one with storage counts its starts.
    let config = ListenerConfig::new(address, ClusterKey::from_bytes(CLUSTER_KEY), Epoch(1));
    let mut listener = Listener::bind(config)?;
    println!("listening on {}", listener.address());
    let mut sum = 0_i64;
    loop {
        let Some(Incoming::Request { id, kind, payload, .. }) = listener.receive(Duration::from_secs(1))?
        else {
            continue;
        };
        let text = String::from_utf8_lossy(&payload);
        if kind == RequestKind::Bypass && text == "stop" {
            listener.ack(id, b"stopping", false)?;
            break;
        }
        match (kind, text.parse::<i64>()) {
            (RequestKind::Update, Ok(number)) => sum += number,
            (RequestKind::Bypass, Ok(number)) => sum = number,
            (RequestKind::Read, _) => {}
            (RequestKind::Update | RequestKind::Bypass, Err(_)) => {
                listener.ack(id, b"not a number", true)?;
                continue;
            }
        }
        // A server with storage would store the sum and the session's position here.
        listener.ack(id, sum.to_string().as_bytes(), false)?;
    }
    listener.close()?;
    println!("the sum is {sum}");
    Ok(())
}
