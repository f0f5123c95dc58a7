//! The application behind loggers: it applies a request by counting it, and says so.
//!
//! Invariant: it sleeps in the kernel until a request comes, and answers each.

use super::{Message, MESSAGE_BYTES_MAX};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::READY;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{SocketAddr, UdpSocket};

/// Where an application is found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ApplicationSpec {
    /// Where it listens.
    pub listen: SocketAddr,
}

pub(in super::super) fn serve(spec: &ApplicationSpec) -> Result<(), Trouble> {
    let broke = |error: io::Error| {
        let next = "see whether the address is this host's and free (ss -ulpn)";
        Trouble::new(format!("serve at {}", spec.listen), error, next)
    };
    let socket = UdpSocket::bind(spec.listen).map_err(broke)?;
    println!("{READY}");
    apply(&socket).map_err(broke)
}

fn apply(socket: &UdpSocket) -> io::Result<()> {
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    let mut applied = 0;
    loop {
        let (length, from) = socket.recv_from(&mut buffer)?;
        let number = Message::read(&buffer[..length])?.number;
        applied += 1;
        let mut answer = [0; MESSAGE_BYTES_MAX];
        let length = Message { number, applied, payload: &[] }.write(&mut answer);
        socket.send_to(&answer[..length], from)?;
    }
}
