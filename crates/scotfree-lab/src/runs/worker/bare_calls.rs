//! A client without the runtime: it sends updates by a socket and waits for the one answer that ends a call,
//! whoever else answers.
//!
//! Invariant: a latency runs from before an update is sent until an authentic answer to it has been taken; it
//! is the same code whoever answers. A server's reply ends no call, and what ends without an answer is counted
//! and not measured.

use crate::gauge::{interface_number, Gauge, Part};
use scotfree_core::{Durability, Epoch, Nanos, SeqNum, SessionId, Tier};
use scotfree_io::{Interest, Poller};
use scotfree_stage::stats::{Latencies, Summary};
use scotfree_stage::trouble::Trouble;
use scotfree_wire::{
    emit, ClusterKey, Direction, Flags, Header, KeyEpoch, Kind, OpenTail, Packet, SessionKeys, Stamp, Tail,
    PACKET_BYTES_MAX,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// What is not answered within this time is sent again.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// After so many times in a row the measurement is given up.
const RETRIES_MAX: u32 = 50;
/// More than a fast device acknowledges before the server has said what is stable.
const WINDOW: u32 = 4_096;

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answerer {
    /// A device, with an acknowledgement at the durability asked for.
    Device,
    /// The same, while the server is not given the updates: it says of none that it is stable, so that all calls are
    /// within one window.
    DeviceAlone,
    /// Something that sends the update back as it came. There is no session then.
    Reflection,
}

/// Which calls to make.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BareCallsSpec {
    /// The server.
    pub server: SocketAddr,
    /// The secret that the cluster shares.
    pub cluster_key: [u8; 32],
    /// What is asked of the device.
    #[serde(with = "crate::tier_text")]
    pub tier: Tier,
    /// Who answers.
    pub answerer: Answerer,
    /// Updates that wait for their answer at any time.
    pub outstanding: usize,
    /// The shortest time between the ends of two rests; meanwhile the processor is kept busy and what else comes
    /// is taken. 0 for none.
    pub interval_us: u64,
    /// How long it looks for an answer before it sleeps ([`scotfree_io::Spin::UpTo`]); 0 to sleep at once.
    pub spin_us: u64,
    /// The size of an update.
    pub payload_bytes: usize,
    /// How many are measured.
    pub calls: u64,
    /// The interface before which a program stands that lets everything pass, if one does: a reflection needs it.
    pub pass_at: Option<String>,
}

/// What calls measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BareCallsReport {
    /// Latencies of the calls measured.
    pub latency: Summary,
    /// Calls per second.
    pub requests_per_s: f64,
    /// Answers to calls measured.
    pub answered: u64,
    /// Calls without an answer that ended since the server said that they are stable; they have no latency.
    pub ended_stable: u64,
    /// Updates that were sent again.
    pub sent_again: u64,
    /// Packets that were refused.
    pub refused: u64,
}

pub(super) fn measure(spec: &BareCallsSpec) -> Result<BareCallsReport, Trouble> {
    let broke = |error: io::Error| {
        let next = "see the logs of the server and of the device";
        Trouble::new(format!("have updates for {} answered", spec.server), error, next)
    };
    let _passing = spec.pass_at.as_deref().map(Passing::at).transpose()?;
    let mut client = BareClient::open(spec).map_err(broke)?;
    client.run(spec.calls / 10).map_err(broke)?;
    (client.ended_stable, client.sent_again, client.refused) = (0, 0, 0);
    let begin = Instant::now();
    let latencies = client.run(spec.calls).map_err(broke)?;
    let elapsed_s = begin.elapsed().as_secs_f64();
    client.close().map_err(broke)?;
    Ok(BareCallsReport {
        latency: latencies.summary().ok_or_else(|| broke(client.unanswered()))?,
        requests_per_s: latencies.count() as f64 / elapsed_s,
        answered: latencies.count(),
        ended_stable: client.ended_stable,
        sent_again: client.sent_again,
        refused: client.refused,
    })
}

/// A program that lets everything pass, before an interface.
struct Passing {
    _program: Gauge,
    _link: libbpf_rs::Link,
}

impl Passing {
    fn at(interface: &str) -> Result<Passing, Trouble> {
        let broke =
            |error| Trouble::new(format!("attach a program to {interface}"), error, "see: scot doctor");
        let program = Gauge::load(Part::Pass).map_err(broke)?;
        let link = program.attach(interface_number(interface)?).map_err(broke)?;
        Ok(Passing { _program: program, _link: link })
    }
}

/// What a session is to its client.
struct Opened {
    id: SessionId,
    epoch: Epoch,
    keys: SessionKeys,
    window: u64,
}

struct BareClient<'a> {
    spec: &'a BareCallsSpec,
    socket: UdpSocket,
    // What looks for a while before it sleeps, if anything does.
    looking: Option<Poller>,
    session: Opened,
    payload: Vec<u8>,
    next: u64,
    stable: u64,
    // When each update that has no answer was sent.
    in_flight: BTreeMap<u64, Instant>,
    ended_stable: u64,
    sent_again: u64,
    refused: u64,
    packet: Vec<u8>,
}

impl<'a> BareClient<'a> {
    fn open(spec: &'a BareCallsSpec) -> io::Result<BareClient<'a>> {
        let any = match spec.server {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(spec.server)?;
        socket.set_read_timeout(Some(RETRY_AFTER))?;
        let session = match spec.answerer {
            Answerer::Device | Answerer::DeviceAlone => open_session(spec, &socket)?,
            Answerer::Reflection => nobodys_session(spec),
        };
        let looking = (spec.spin_us > 0).then(|| looking_at(&socket, spec.spin_us)).transpose()?;
        Ok(BareClient::new(spec, socket, looking, session))
    }

    fn new(
        spec: &'a BareCallsSpec,
        socket: UdpSocket,
        looking: Option<Poller>,
        session: Opened,
    ) -> BareClient<'a> {
        BareClient {
            spec,
            socket,
            looking,
            session,
            payload: vec![b'x'; spec.payload_bytes],
            next: 1,
            stable: 0,
            in_flight: BTreeMap::new(),
            ended_stable: 0,
            sent_again: 0,
            refused: 0,
            packet: Vec::with_capacity(PACKET_BYTES_MAX),
        }
    }

    /// Makes `count` calls to their ends.
    fn run(&mut self, count: u64) -> io::Result<Latencies> {
        let mut latencies = Latencies::new();
        let last = self.next + count;
        let mut due = Instant::now();
        let mut retries = 0;
        while self.next < last || !self.in_flight.is_empty() {
            while self.next < last && self.may_send() {
                due = self.rest_until(due)?;
                let seq = self.next;
                self.next += 1;
                self.in_flight.insert(seq, Instant::now());
                self.send(seq, Flags::EARLY)?;
            }
            match self.take()? {
                Taken::Answer(latency) => {
                    latencies.record(latency);
                    retries = 0;
                }
                Taken::Other => {}
                Taken::Nothing => {
                    retries += 1;
                    self.send_all_again(retries)?;
                }
            }
        }
        Ok(latencies)
    }

    /// Why there is nothing to be measured.
    fn unanswered(&self) -> io::Error {
        let (calls, stable) = (self.spec.calls, self.ended_stable);
        io::Error::other(format!("none of {calls} calls was answered; {stable} ended since they were stable"))
    }

    /// Credit runs out when the server is slow to make things stable; a reflection knows no server.
    fn may_send(&self) -> bool {
        let has_credit = match self.spec.answerer {
            Answerer::Device | Answerer::DeviceAlone => self.next - self.stable <= self.session.window,
            Answerer::Reflection => true,
        };
        has_credit && self.in_flight.len() < self.spec.outstanding
    }

    /// Takes what else comes until the next call is due; when the one after it is.
    fn rest_until(&mut self, due: Instant) -> io::Result<Instant> {
        if self.spec.interval_us == 0 {
            return Ok(due);
        }
        self.socket.set_nonblocking(true)?;
        while Instant::now() < due {
            self.receive()?;
        }
        self.socket.set_nonblocking(false)?;
        Ok(Instant::now() + Duration::from_micros(self.spec.interval_us))
    }

    fn send(&mut self, seq: u64, flags: Flags) -> io::Result<()> {
        let mut header = Header::new(Kind::Update, self.session.id, self.session.epoch);
        header.seq_num = SeqNum(seq);
        header.flags = flags;
        header.asked = self.spec.tier.durability();
        header.device_acks_asked = self.spec.tier.device_count();
        let first_open = self.in_flight.first_key_value().map_or(self.next, |(first, _)| *first);
        header.completed = SeqNum(first_open - 1);
        self.packet.clear();
        let tail = Tail::Stamp(Stamp::default());
        emit(&header, &tail, &self.payload, &self.session.keys.client_to_server, &mut self.packet);
        self.socket.send(&self.packet).map(drop)
    }

    fn send_all_again(&mut self, retries: u32) -> io::Result<()> {
        if retries > RETRIES_MAX {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"));
        }
        let unanswered: Vec<u64> = self.in_flight.keys().copied().collect();
        self.sent_again += unanswered.len() as u64;
        unanswered.into_iter().try_for_each(|seq| self.send(seq, Flags::EARLY.with(Flags::AGAIN)))
    }

    /// Waits for a packet and takes it.
    fn take(&mut self) -> io::Result<Taken> {
        if let Some(poller) = &mut self.looking {
            if poller.wait(Some(RETRY_AFTER))?.is_empty() {
                return Ok(Taken::Nothing);
            }
        }
        self.receive()
    }

    fn receive(&mut self) -> io::Result<Taken> {
        let mut bytes = [0; PACKET_BYTES_MAX + 1];
        match self.socket.recv(&mut bytes) {
            Ok(length) => Ok(self.on_packet(&bytes[..length])),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Taken::Nothing),
            Err(error) => Err(error),
        }
    }

    fn on_packet(&mut self, bytes: &[u8]) -> Taken {
        let Ok(packet) = Packet::parse(bytes) else {
            self.refused += 1;
            return Taken::Other;
        };
        let keys = &self.session.keys;
        let (answer, key) = match self.spec.answerer {
            Answerer::Device | Answerer::DeviceAlone => (Kind::PersistAck, keys.device_to_client),
            Answerer::Reflection => (Kind::Update, keys.client_to_server),
        };
        let is_answer = packet.kind() == answer;
        let is_authentic = packet.verify(if is_answer { &key } else { &keys.server_to_client }).is_ok();
        if !is_authentic || (is_answer && !self.grants_enough(&packet)) {
            self.refused += 1;
            return Taken::Other;
        }
        match (packet.kind(), packet.tail()) {
            (kind, _) if kind == answer => self.on_answer(packet.seq_num()),
            (Kind::ServerAck, _) => self.on_stable(packet.seq_num()),
            (_, Tail::Heartbeat(tail)) => self.on_stable(tail.stable),
            _ => Taken::Other,
        }
    }

    fn grants_enough(&self, packet: &Packet<'_>) -> bool {
        let asked = self.spec.tier.durability();
        match self.spec.answerer {
            Answerer::Device | Answerer::DeviceAlone => packet.header().granted.satisfies(asked),
            Answerer::Reflection => packet.header().granted == Durability::None,
        }
    }

    fn on_answer(&mut self, seq: SeqNum) -> Taken {
        self.in_flight.remove(&seq.0).map_or(Taken::Other, |begin| Taken::Answer(begin.elapsed()))
    }

    /// What is stable no device acknowledges any more.
    fn on_stable(&mut self, stable: SeqNum) -> Taken {
        self.stable = self.stable.max(stable.0);
        let open = self.in_flight.split_off(&(self.stable + 1));
        self.ended_stable += self.in_flight.len() as u64;
        self.in_flight = open;
        Taken::Other
    }

    /// Waits until everything is stable and has the server forget the session, so that the device has its room
    /// back. There is nothing to wait for where no server has the updates.
    fn close(&mut self) -> io::Result<()> {
        if self.spec.answerer != Answerer::Device {
            return Ok(());
        }
        let deadline = Instant::now() + RETRY_AFTER * RETRIES_MAX;
        while self.stable + 1 < self.next && Instant::now() < deadline {
            self.take()?;
        }
        let mut header = Header::new(Kind::SessionClose, self.session.id, self.session.epoch);
        (header.seq_num, header.completed) = (SeqNum(self.next - 1), SeqNum(self.next - 1));
        let tail = Tail::Close(scotfree_wire::CloseTail { reason: scotfree_wire::CloseReason::ByClient });
        self.packet.clear();
        emit(&header, &tail, &[], &self.session.keys.client_to_server, &mut self.packet);
        self.socket.send(&self.packet).map(drop)
    }
}

fn looking_at(socket: &UdpSocket, spin_us: u64) -> io::Result<Poller> {
    let mut poller = Poller::new(1)?;
    poller.add(socket.as_raw_fd(), 0, Interest::Read)?;
    poller.spin(scotfree_io::Spin::UpTo(Nanos::from_micros(spin_us)));
    Ok(poller)
}

/// What was taken from the socket.
enum Taken {
    /// The answer to a call, and how long it took.
    Answer(Duration),
    Other,
    Nothing,
}

fn open_session(spec: &BareCallsSpec, socket: &UdpSocket) -> io::Result<Opened> {
    let cluster = ClusterKey::from_bytes(spec.cluster_key);
    let handshake = cluster.control(Direction::Handshake);
    let mut client_nonce = [0; 16];
    getrandom::fill(&mut client_nonce).map_err(|error| io::Error::other(error.to_string()))?;
    let header = Header::new(Kind::SessionOpen, SessionId(0), Epoch(0));
    let mut opening = Vec::new();
    emit(
        &header,
        &Tail::Open(OpenTail { client_nonce, window_asked: WINDOW, key_epoch: KeyEpoch(0) }),
        &[],
        &handshake,
        &mut opening,
    );
    for _ in 0..RETRIES_MAX {
        socket.send(&opening)?;
        let mut bytes = [0; PACKET_BYTES_MAX + 1];
        let Ok(length) = socket.recv(&mut bytes) else { continue };
        let packet = Packet::parse(&bytes[..length]).ok().filter(|packet| packet.verify(&handshake).is_ok());
        let Some((packet, Tail::Accept(accept))) = packet.as_ref().map(|packet| (packet, packet.tail()))
        else {
            continue;
        };
        if accept.client_nonce == client_nonce {
            let (id, epoch) = (packet.session(), packet.epoch());
            let keys = cluster.session(&client_nonce, &accept.server_nonce, id, epoch);
            return Ok(Opened { id, epoch, keys, window: u64::from(accept.window.min(WINDOW)) });
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "the server opens no session"))
}

/// Keys like a session's, so that a call costs its client the same.
fn nobodys_session(spec: &BareCallsSpec) -> Opened {
    let (id, epoch) = (SessionId(1), Epoch(1));
    let keys = ClusterKey::from_bytes(spec.cluster_key).session(&[1; 16], &[2; 16], id, epoch);
    Opened { id, epoch, keys, window: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Sends back what `change` makes of each datagram, until a test's process ends.
    fn reflection(change: fn(&mut Vec<u8>)) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = socket.local_addr().expect("it is bound");
        thread::spawn(move || loop {
            let mut bytes = vec![0; 2_000];
            let (length, from) = socket.recv_from(&mut bytes).expect("it receives");
            bytes.truncate(length);
            change(&mut bytes);
            socket.send_to(&bytes, from).expect("it sends");
        });
        address
    }

    fn spec(server: SocketAddr) -> BareCallsSpec {
        BareCallsSpec {
            server,
            cluster_key: [5; 32],
            tier: "ram:1".parse().expect("a tier"),
            answerer: Answerer::Reflection,
            outstanding: 1,
            interval_us: 0,
            spin_us: 0,
            payload_bytes: 64,
            calls: 100,
            pass_at: None,
        }
    }

    #[test]
    fn each_call_ends_with_its_own_answer() {
        let address = reflection(|_| {});
        for (outstanding, interval_us, spin_us) in
            [(1, 0, 0), (1, 50, 0), (16, 0, 0), (1, 0, 200), (16, 0, 200)]
        {
            let calls = BareCallsSpec { outstanding, interval_us, spin_us, ..spec(address) };
            let report = measure(&calls).expect("answers");
            assert_eq!((report.answered, report.latency.count, report.refused), (100, 100, 0));
        }
    }

    #[test]
    fn what_is_not_authentic_ends_no_call() {
        let address = reflection(|bytes| *bytes.last_mut().expect("bytes") ^= 1);
        let spec = spec(address);
        let mut client = BareClient::open(&spec).expect("a socket");
        client.send(1, Flags::EARLY).expect("it is sent");
        client.in_flight.insert(1, Instant::now());
        assert!(matches!(client.take(), Ok(Taken::Other)));
        assert_eq!((client.refused, client.in_flight.len()), (1, 1));
    }

    #[test]
    fn an_acknowledgement_below_what_was_asked_ends_no_call() {
        let nobody = "127.0.0.1:9".parse().expect("an address");
        let spec = BareCallsSpec { answerer: Answerer::Device, ..spec(nobody) };
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let mut client = BareClient::new(&spec, socket, None, nobodys_session(&spec));
        for (granted, is_enough) in [(Durability::Disk, false), (Durability::Ram, true)] {
            client.in_flight.insert(1, Instant::now());
            let mut header = Header::new(Kind::PersistAck, SessionId(1), Epoch(1));
            (header.seq_num, header.granted) = (SeqNum(1), granted);
            let mut bytes = Vec::new();
            let key = client.session.keys.device_to_client;
            emit(&header, &Tail::Stamp(Stamp::default()), &[], &key, &mut bytes);
            assert_eq!(matches!(client.on_packet(&bytes), Taken::Answer(_)), is_enough, "{granted}");
        }
    }
}
