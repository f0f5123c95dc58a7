//! The program that brings an endpoint's frames to its `AF_XDP` socket (bpf/lab/endpoint.bpf.c).
//!
//! Invariant: it stands before the interface for as long as this value lives, and not longer.

use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder};
use std::os::fd::RawFd;

static OBJECT: &[u8] = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/endpoint.bpf.o"))).0;

/// The compiled program, aligned as its reader wants it.
#[repr(align(16))]
struct Aligned<const N: usize>([u8; N]);

const FIRST: [u8; 4] = 0_u32.to_ne_bytes();

/// The program before an interface.
pub(super) struct Steering {
    _link: Link,
    _object: Object,
}

impl Steering {
    /// From now on what comes to `port` of this interface goes to the socket.
    pub(super) fn start(ifindex: u32, port: u16, socket: RawFd) -> libbpf_rs::Result<Steering> {
        // What libbpf would print is in the errors that it returns.
        libbpf_rs::set_print(None);
        let object = ObjectBuilder::default().open_memory(OBJECT)?.load()?;
        let table = |name: &str| object.maps().find(|map| map.name() == name).expect("the object has it");
        table("endpoint_port").update(&FIRST, &port.to_be_bytes(), MapFlags::ANY)?;
        table("endpoint_socket").update(&FIRST, &socket.to_ne_bytes(), MapFlags::ANY)?;
        let program = object.progs_mut().next().expect("the object has a program");
        let link = program.attach_xdp(ifindex as i32)?;
        Ok(Steering { _link: link, _object: object })
    }
}
