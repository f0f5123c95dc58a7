//! Sends packets that nobody may accept, from a client's own host, while an honest client uses the session that
//! they are about.
//!
//! Invariant: what is sent is counted frame by frame as the interface took it; the honest client is a real one,
//! and what it lost would end the worker with an error.

mod packets;

pub use packets::Hostility;
use packets::{Forger, Frame};
use scotfree_core::{KeyHash, Nanos};
use scotfree_io::frame::{Link, MacAddress, UdpFrame};
use scotfree_io::packet_port::{PacketPort, PacketPortConfig};
use scotfree_io::udp::{UdpConfig, UdpTransport};
use scotfree_io::{now_monotonic, RxBurst, Stamps, Transport, TxPacket};
use scotfree_rpc::{
    CallLabel, ClientEvent, ClientOptions, ClientRuntime, Mode, ProbeOptions, Request, RequestKind,
    SessionHandle, SessionOptions,
};
use scotfree_stage::trouble::Trouble;
use scotfree_wire::ClusterKey;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::fmt::Display;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::Duration;

/// How many frames are sent between two looks at the honest client.
const BURST: usize = 64;
/// How many of the honest client's packets are kept for the forger.
const TAKEN_MAX: usize = 64;
/// How many of its updates are under way.
const OUTSTANDING_MAX: usize = 4;
/// How long the honest client may take to open, and to finish.
const PATIENCE: Duration = Duration::from_secs(20);

/// What to send.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HostileSpec {
    /// The server that the honest client uses.
    pub server: SocketAddr,
    /// Where the device answers control messages.
    pub control: SocketAddr,
    /// Its station address.
    pub control_mac: [u8; 6],
    /// The secret of the cluster, for the honest client.
    pub cluster_key: [u8; 32],
    /// The address of this host.
    pub local: IpAddr,
    /// Its interface.
    pub interface: String,
    /// What kind of packets.
    pub hostility: Hostility,
    /// How many.
    pub packets: u64,
    /// How many in a second, at most.
    pub per_second: u64,
    /// Where randomness begins.
    pub seed: u64,
}

/// What was sent.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct HostileReport {
    /// Hostile packets that the interface took.
    pub sent: u64,
    /// Updates of the honest client, each of which was completed.
    pub honest: u64,
    /// Requests that it sent again.
    pub again: u64,
    /// Of all that came to it, packets that it refused.
    pub refused: u64,
}

pub(super) fn send(spec: &HostileSpec) -> Result<HostileReport, Trouble> {
    let mut honest = Honest::open(spec)?;
    // The forger has seen some of it, all of which is stable when the first hostile packet leaves.
    for _ in 0..TAKEN_MAX {
        honest.update()?;
    }
    honest.settle()?;
    let taken = honest.taken.take();
    let mut forger = Forger::new(spec, honest.local, &taken)?;
    let sent = forger_at_work(spec, &mut forger, &mut honest)?;
    honest.update()?;
    honest.settle()?;
    let totals = honest.runtime.totals();
    let refused = honest.runtime.counters().refused.iter().sum();
    Ok(HostileReport { sent, honest: honest.submitted, again: totals.retransmitted, refused })
}

fn forger_at_work(spec: &HostileSpec, forger: &mut Forger, honest: &mut Honest) -> Result<u64, Trouble> {
    let mut port = PacketPort::open(&spec.interface, &PacketPortConfig::default())
        .map_err(|error| Trouble::new("send raw frames", error, "run it as the lab does, in a namespace"))?;
    let here = port.mac();
    let server_mac = neighbour(spec.server.ip())?;
    let burst_time = Nanos(BURST as u64 * 1_000_000_000 / spec.per_second.max(1));
    let mut due = now_monotonic();
    let mut frames: Vec<Vec<u8>> = vec![Vec::new(); BURST];
    let mut made = 0;
    while made < spec.packets {
        let count = BURST.min((spec.packets - made) as usize);
        for (number, out) in (made..).zip(&mut frames[..count]) {
            let Frame { source, destination, bytes } = forger.make(number);
            let destination_mac =
                if destination == spec.control { MacAddress(spec.control_mac) } else { server_mac };
            let link = Link { destination: destination_mac, source: here, vlan: None };
            out.clear();
            UdpFrame { link, source, destination, hop_limit: 64, traffic_class: 0, payload: bytes }
                .write(out)
                .map_err(|error| broke("make a frame", &error))?;
        }
        let mut left = &frames[..count];
        while !left.is_empty() {
            let taken = port.tx_burst(left.iter().map(Vec::as_slice));
            left = &left[taken.map_err(|error| broke("send frames", &error))?..];
        }
        made += count as u64;
        honest.update()?;
        due = due.plus(burst_time);
        let early = due.since(now_monotonic());
        if early > Nanos(0) {
            std::thread::sleep(Duration::from_nanos(early.0));
        }
    }
    let counters = port.counters();
    if counters.tx_dropped + counters.tx_too_long > 0 {
        return Err(broke("send frames", &format!("the interface dropped {}", counters.tx_dropped)));
    }
    Ok(counters.tx_frames)
}

fn broke(doing: &str, error: &impl Display) -> Trouble {
    Trouble::new(doing, error.to_string(), "see the logs of the server and of the device")
}

/// The station address of a host that this one has spoken to.
fn neighbour(ip: IpAddr) -> Result<MacAddress, Trouble> {
    let table =
        std::fs::read_to_string("/proc/net/arp").map_err(|error| broke("read /proc/net/arp", &error))?;
    let line = table.lines().find(|line| line.split_whitespace().next() == Some(&ip.to_string()));
    let octets = line.and_then(|line| line.split_whitespace().nth(3)).map(|text| {
        text.split(':').filter_map(|octet| u8::from_str_radix(octet, 16).ok()).collect::<Vec<_>>()
    });
    let octets = octets.and_then(|octets| <[u8; 6]>::try_from(octets).ok());
    octets.map(MacAddress).ok_or_else(|| broke("find the server's station", &format!("{ip} is no neighbour")))
}

/// A client as any other; what it sends first, somebody on its host has seen.
struct Honest {
    runtime: ClientRuntime<Tapped>,
    session: SessionHandle,
    local: SocketAddr,
    taken: Rc<RefCell<Vec<Vec<u8>>>>,
    submitted: u64,
}

impl Honest {
    fn open(spec: &HostileSpec) -> Result<Honest, Trouble> {
        let inner = UdpTransport::bind(SocketAddr::new(spec.local, 0), &UdpConfig::default())
            .map_err(|error| broke("open a socket", &error))?;
        let local = inner.local_address();
        let options = ClientOptions {
            probes: ProbeOptions::OFF,
            ..ClientOptions::new(spec.server, ClusterKey::from_bytes(spec.cluster_key))
        };
        let taken = Rc::new(RefCell::new(Vec::new()));
        let mut runtime = ClientRuntime::new(Tapped { inner, taken: Rc::clone(&taken) }, options);
        let session = runtime
            .start_session(SessionOptions::default())
            .map_err(|error| broke("start a session", &error))?;
        runtime.wait_open(session, PATIENCE).map_err(|error| broke("open a session", &error))?;
        Ok(Honest { runtime, session, local, taken, submitted: 0 })
    }

    /// Makes an update, and takes what has come of others.
    fn update(&mut self) -> Result<(), Trouble> {
        let payload = vec![b'h'; 16 + (self.submitted as usize * 37) % 900];
        let request = Request {
            kind: RequestKind::Update,
            mode: Mode::Early,
            fixed_reply: false,
            relaxed: false,
            traced: false,
            key_hash: KeyHash(self.submitted),
            payload: &payload,
        };
        self.wait_until(|honest| honest.runtime.outstanding(honest.session) < OUTSTANDING_MAX)?;
        self.runtime
            .submit(self.session, request, CallLabel::new("honest"))
            .map_err(|error| broke("make an honest update", &format!("{error:?}")))?;
        self.submitted += 1;
        self.turn()
    }

    /// Waits until everything is stable at the server.
    fn settle(&mut self) -> Result<(), Trouble> {
        self.wait_until(|honest| honest.runtime.kept(honest.session) == 0)
    }

    fn turn(&mut self) -> Result<(), Trouble> {
        self.runtime.turn().map_err(|error| broke("be an honest client", &error))?;
        while let Some(event) = self.runtime.next_event() {
            if let ClientEvent::Closed { reason, unknown_count, .. } = event {
                let problem = format!("its session has ended: {reason:?}, {unknown_count} updates unknown");
                return Err(broke("be an honest client", &problem));
            }
        }
        Ok(())
    }

    fn wait_until(&mut self, mut is_so: impl FnMut(&Honest) -> bool) -> Result<(), Trouble> {
        let deadline = now_monotonic().plus(Nanos(PATIENCE.as_nanos() as u64));
        self.turn()?;
        while !is_so(self) {
            if now_monotonic() > deadline {
                return Err(broke("be an honest client", &"its updates do not complete"));
            }
            let waited = self.runtime.wait(Some(Duration::from_millis(10)));
            waited.map_err(|error| broke("be an honest client", &error))?;
            self.turn()?;
        }
        Ok(())
    }
}

/// A socket of whose datagrams the first are seen by somebody.
struct Tapped {
    inner: UdpTransport,
    taken: Rc<RefCell<Vec<Vec<u8>>>>,
}

impl Transport for Tapped {
    fn rx_burst(&mut self, out: &mut RxBurst) -> io::Result<usize> {
        self.inner.rx_burst(out)
    }

    fn tx_burst(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
        let sent = self.inner.tx_burst(packets)?;
        let mut taken = self.taken.borrow_mut();
        let room = TAKEN_MAX.saturating_sub(taken.len());
        taken.extend(packets[..sent].iter().take(room).map(|packet| packet.bytes.to_vec()));
        Ok(sent)
    }

    fn tx_stamps(&mut self, out: &mut Vec<(u32, Nanos)>) {
        self.inner.tx_stamps(out);
    }

    fn mtu(&self) -> usize {
        self.inner.mtu()
    }

    fn stamps(&self) -> Stamps {
        self.inner.stamps()
    }

    fn local_address(&self) -> SocketAddr {
        self.inner.local_address()
    }

    fn poll_fd(&self) -> Option<RawFd> {
        self.inner.poll_fd()
    }
}
