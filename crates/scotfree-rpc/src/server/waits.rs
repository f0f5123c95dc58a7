//! What a server's loop waits for: its transport, its service's descriptors, and whatever else wakes it.
//!
//! Invariant: what the poller watches is what was wanted at the last wait.

use crate::service::Handler;
use crate::watched::{watch, Watched};
use scotfree_io::{Crowd, Interest, Poller, Spin, Transport};
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// The poller's keys: the transport, what else wakes the loop, and the service's descriptors.
const TRANSPORT_KEY: u64 = 0;
const WAKE_KEY: u64 = 1;
const SERVICE_KEY: u64 = 2;
/// With more requests at the service the loop sleeps at once: a third of its processor time where pipelines were
/// measured, on two processors.
const FEW: u64 = 8;

/// What may have something; what is not, has not had when it was looked at last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) transport: bool,
    pub(super) service: bool,
}

impl Ready {
    /// Nobody has looked.
    pub(super) const UNKNOWN: Ready = Ready { transport: true, service: true };
}

/// What the loop waits for.
pub(super) struct Waits {
    poller: Option<Poller>,
    spin: Spin,
    crowd: Crowd,
    /// What else wakes the loop.
    wakes: Vec<RawFd>,
    transport: Option<(RawFd, Interest)>,
    service: Watched,
}

impl Waits {
    /// Nothing yet; it looks so before it sleeps.
    pub(super) fn spinning(spin: Spin) -> Waits {
        let (wakes, service) = (Vec::new(), Watched::default());
        Waits { poller: None, spin, crowd: Crowd::above(FEW), wakes, transport: None, service }
    }

    fn poller(&mut self) -> io::Result<&mut Poller> {
        if self.poller.is_none() {
            let mut poller = Poller::new(64)?;
            poller.spin(self.spin);
            self.poller = Some(poller);
        }
        Ok(self.poller.as_mut().expect("it was made just now"))
    }

    pub(super) fn add(&mut self, fd: RawFd) -> io::Result<()> {
        self.poller()?.add(fd, WAKE_KEY, Interest::Read)?;
        self.wakes.push(fd);
        Ok(())
    }

    /// Whoever wakes the loop has been heard: a descriptor that stays readable would let it spin.
    pub(super) fn forget_wakes(&mut self) -> io::Result<()> {
        for fd in std::mem::take(&mut self.wakes) {
            self.poller()?.remove(fd)?;
        }
        Ok(())
    }

    /// Waits while so many requests are at the service; what may have something then.
    pub(super) fn wait(
        &mut self,
        in_flight: usize,
        transport: &mut impl Transport,
        receives: bool,
        stalled: bool,
        service: &impl Handler,
        timeout: Option<Duration>,
    ) -> io::Result<Ready> {
        self.poller()?;
        let poller = self.poller.as_ref().expect("it was made just now");
        self.service.follow(poller, SERVICE_KEY, |out| service.watches(out))?;
        let interest = match (receives, stalled) {
            (true, false) => Some(Interest::Read),
            (true, true) => Some(Interest::ReadWrite),
            (false, true) => Some(Interest::Write),
            (false, false) => None,
        };
        let fd = transport.poll_fd();
        self.watch_transport(fd.zip(interest))?;
        // A transport that cannot be polled is looked at in short waits.
        let timeout = match (fd, timeout) {
            (None, timeout) => Some(timeout.unwrap_or(Duration::MAX).min(Duration::from_micros(50))),
            (Some(_), timeout) => timeout,
        };
        let looks = self.crowd.are_few(in_flight as u64);
        let events = if receives {
            self.poller()?.wait_for(transport, timeout, looks)?
        } else {
            self.poller()?.wait_looking(timeout, looks)?
        };
        let is_ready = |key| events.iter().any(|event| event.key == key);
        Ok(Ready {
            transport: fd.is_none() || is_ready(TRANSPORT_KEY) || (receives && transport.glance()),
            service: is_ready(SERVICE_KEY),
        })
    }

    fn watch_transport(&mut self, wanted: Option<(RawFd, Interest)>) -> io::Result<()> {
        if self.transport == wanted {
            return Ok(());
        }
        match (wanted, self.transport) {
            (Some((fd, interest)), _) => watch(self.poller()?, fd, TRANSPORT_KEY, interest)?,
            (None, Some((fd, _))) => self.poller()?.remove(fd)?,
            (None, None) => {}
        }
        self.transport = wanted;
        Ok(())
    }
}
