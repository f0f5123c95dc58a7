//! The machine itself, as the doctor's checks see it.
//!
//! Invariant: what is tried is undone before the answer is given.

use super::{Environment, StampTrial};
use crate::process::{find_tool, run, wait_until, Socket};
use scotfree_io::udp::{UdpConfig, UdpTransport};
use scotfree_io::{DomainError, RxBurst, Transport, TxPacket};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::time::Duration;

// How long a stamp over loopback may take; it takes microseconds.
const STAMP_PATIENCE: Duration = Duration::from_millis(500);

/// This machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

impl Environment for System {
    fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(file).ok()
    }

    fn has_tool(&self, name: &str) -> bool {
        find_tool(name).is_some()
    }

    fn run(&self, program: &str, args: &[&str]) -> Result<String, String> {
        run(program, args).map_err(|trouble| trouble.problem)
    }

    fn bind(&self, socket: Socket, address: SocketAddr) -> io::Result<()> {
        match socket {
            Socket::Tcp => TcpListener::bind(address).map(drop),
            Socket::Udp => UdpSocket::bind(address).map(drop),
        }
    }

    fn try_pmem(&self, path: &Path) -> Result<String, String> {
        match scotfree_io::pmem::probe(path) {
            Ok(instruction) => Ok(instruction.to_string()),
            // What to do about it the finding says.
            Err(DomainError::NotPersistent { missing, .. }) => Err(missing),
            Err(error) => Err(error.to_string()),
        }
    }

    fn try_stamps(&self) -> io::Result<StampTrial> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut sender = UdpTransport::bind(any, &UdpConfig::default())?;
        let mut receiver = UdpTransport::bind(any, &UdpConfig::default())?;
        let packet = TxPacket { to: receiver.local_address(), bytes: b"scot doctor", stamp: Some(1) };
        let mut burst = RxBurst::new(1, 64);
        let mut stamps = Vec::new();
        let mut trial = StampTrial { sent: false, received: false };
        wait_until(STAMP_PATIENCE, || {
            // Again and again: the kernel switches receive stamps on a moment after the first asks.
            let _ = sender.tx_burst(&[packet]);
            if receiver.rx_burst(&mut burst).is_ok_and(|count| count > 0) {
                trial.received |= burst.get(0).is_some_and(|packet| packet.received_at.is_some());
            }
            sender.tx_stamps(&mut stamps);
            trial.sent = !stamps.is_empty();
            trial.sent && trial.received
        });
        Ok(trial)
    }
}
