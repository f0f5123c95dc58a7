//! Addresses for servers that a test starts later, in another process.
//!
//! Invariant: no port is one that the kernel gives to sockets without one of their own (from 32768 on by
//! default), so nothing takes it in between; and none is given twice by one process.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u32 = 10_000;
const COUNT: u32 = 22_000;

/// An address on loopback that is free for TCP and for UDP.
pub fn free_address() -> SocketAddr {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    // Processes begin at places of their own; 97 leaves room for what each asks for.
    let begin = std::process::id().wrapping_mul(97);
    let mut tries = 0..COUNT;
    let address = tries.find_map(|_| {
        let place = begin.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, (FIRST + place) as u16));
        let is_free = TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok();
        is_free.then_some(address)
    });
    address.expect("loopback has a free port")
}
