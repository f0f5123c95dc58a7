//! The sidecars in front of clients.
//!
//! Invariant: all of them run on the client's host.

use super::Site;
use crate::process::Process;
use crate::trouble::Trouble;
use scotfree_core::Tier;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A sidecar in front of clients.
#[derive(Debug, Clone)]
pub struct ClientSidecar {
    /// What its process is called.
    pub name: &'static str,
    /// The port at which clients find it.
    pub port: u16,
    /// Whether it answers before the server has executed.
    pub early: bool,
    /// What is asked of the devices: `none`, `ram:3`, `disk`.
    pub durability: Tier,
    /// Where it writes records of calls.
    pub trace: Option<PathBuf>,
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
}
