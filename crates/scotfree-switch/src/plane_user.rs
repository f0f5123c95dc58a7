//! The user-space plane: the ports, and one turn of frames through the datapath.
//!
//! Invariant: frames leave a port in the order in which the datapath let them go, as far as no
//! impairment is asked for; a turn takes at most one burst per port, so nothing else starves.

use crate::bridge::PortIndex;
use crate::config::{PortConfig, SwitchConfig};
use crate::datapath::{scotfree_offset, Arrival, Datapath};
use crate::impair::{Impairer, Impairment, ImpairmentCounters};
use crate::notice::Notices;
use crate::outbox::{FrameSource, Outbox};
use scotfree_core::{Nanos, ServerIndex, SessionId};
use scotfree_io::frame::{complete_checksums, Checksums, Ethernet, ETHERNET_HEADER_BYTES, VLAN_TAG_BYTES};
use scotfree_io::packet_port::{FrameBurst, PacketPort, PacketPortConfig, PacketPortCounters, PortError};
use scotfree_wire::ClusterKey;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, RawFd};

/// How many frames one system call moves at most.
const BURST_MAX: usize = 64;
/// How long a port's health speaks of frames that were too long.
const LONG_FRAMES_SAID: Nanos = Nanos::from_secs(60);

/// One port.
struct Port {
    socket: PacketPort,
    ingress: Impairer,
    egress: Impairer,
    /// Frames dropped because the interface had no room for them.
    full: u64,
    /// The last burst was full, so there may be more without another wait.
    more: bool,
    /// How often the interface was down when it was last looked at.
    times_down: u64,
    /// Whether the interface was there then.
    is_there: bool,
    long_frames: LongFrames,
}

/// Frames that a port has dropped as too long: a host that leaves segmenting to its interface sends them, and has its
/// TCP crawl.
#[derive(Debug, Default)]
struct LongFrames {
    /// How many there were when this was last looked at.
    count: u64,
    /// Until when there were some lately.
    said_until: Option<Nanos>,
}

impl LongFrames {
    /// How many there are now; true when these are the first ones.
    fn look(&mut self, now: Nanos, count: u64) -> bool {
        let before = std::mem::replace(&mut self.count, count);
        if count > before {
            self.said_until = Some(now.plus(LONG_FRAMES_SAID));
        }
        before == 0 && count > 0
    }

    /// Whether some came lately.
    fn are_recent(&self, now: Nanos) -> bool {
        self.said_until.is_some_and(|until| now < until)
    }
}

/// Ports that are open, before anything lies between them. Frames that come meanwhile wait in them.
pub struct Ports(Vec<Port>);

impl Ports {
    /// Opens the ports.
    pub fn open(config: &SwitchConfig) -> Result<Ports, PortError> {
        let ports = config.ports.iter().enumerate().map(|(index, port)| Port::open(index, port));
        ports.collect::<Result<Vec<Port>, PortError>>().map(Ports)
    }

    /// Their interfaces and the interfaces' numbers, in their order.
    pub fn interfaces(&self) -> Vec<(String, u32)> {
        self.0.iter().map(|port| (port.socket.interface().to_owned(), port.socket.index())).collect()
    }
}

/// The ports and what lies between them.
pub struct UserPlane {
    ports: Vec<Port>,
    bursts: Vec<FrameBurst>,
    datapath: Datapath,
    outbox: Outbox,
    /// Frames that an impairment held until now.
    late: Outbox,
    scotfree_ports: RangeInclusive<u16>,
}

/// What a port has seen.
#[derive(Debug, Clone)]
pub struct PortReport {
    /// Its interface.
    pub interface: String,
    /// Its counters.
    pub counters: PacketPortCounters,
    /// Frames dropped because the interface had no room for them.
    pub full: u64,
    /// What was done to frames that came in.
    pub ingress: ImpairmentCounters,
    /// What was done to frames that went out.
    pub egress: ImpairmentCounters,
}

impl UserPlane {
    /// Puts the ports around `datapath`.
    pub fn new(config: &SwitchConfig, Ports(ports): Ports, datapath: Datapath) -> UserPlane {
        let bursts =
            ports.iter().map(|port| FrameBurst::new(BURST_MAX, frame_bytes_max(&port.socket))).collect();
        UserPlane {
            ports,
            bursts,
            datapath,
            outbox: Outbox::default(),
            late: Outbox::default(),
            scotfree_ports: config.scotfree_ports.clone(),
        }
    }

    /// Descriptors that are readable when frames wait, in the order of the ports.
    pub fn port_fds(&self) -> Vec<RawFd> {
        self.ports.iter().map(|port| port.socket.as_raw_fd()).collect()
    }

    /// The ports' largest payloads, in their order.
    pub fn mtus(&self) -> Vec<usize> {
        self.ports.iter().map(|port| port.socket.mtu()).collect()
    }

    /// Takes a burst from a port into the datapath.
    pub fn receive(&mut self, now: Nanos, index: usize, notices: &mut Notices) -> io::Result<()> {
        let port = &mut self.ports[index];
        let burst = &mut self.bursts[index];
        port.more = port.socket.rx_burst(burst)? == BURST_MAX;
        let ingress = PortIndex(index);
        for (place, frame) in self.bursts[index].iter().enumerate() {
            let port = &mut self.ports[index];
            if !port.ingress.is_transparent() {
                let scotfree_ports = &self.scotfree_ports;
                port.ingress.offer(now, frame.bytes, |bytes, chance| corrupt(scotfree_ports, bytes, chance));
                continue;
            }
            let source = FrameSource::Received { port: ingress, index: place };
            let arrival = Arrival { ingress, bytes: frame.bytes, checksums: frame.checksums, source };
            self.datapath.on_frame(now, &arrival, &mut self.outbox, notices);
        }
        Ok(())
    }

    /// The ports' interfaces and their numbers, in their order.
    pub fn interfaces(&self) -> Vec<(String, u32)> {
        self.ports.iter().map(|port| (port.socket.interface().to_owned(), port.socket.index())).collect()
    }

    /// Takes in a frame that came another way than by a port's socket.
    pub fn take_in(&mut self, now: Nanos, ingress: PortIndex, frame: &[u8], notices: &mut Notices) {
        let (source, ()) = self.outbox.write_with(|bytes| bytes.extend_from_slice(frame));
        let arrival = Arrival { ingress, bytes: frame, checksums: Checksums::Ready, source };
        self.datapath.on_frame(now, &arrival, &mut self.outbox, notices);
    }

    /// Takes note of a frame that has passed already.
    pub fn take_note(&mut self, now: Nanos, ingress: PortIndex, frame: &[u8], notices: &mut Notices) {
        self.datapath.on_passed(now, ingress, frame, &mut self.outbox, notices);
    }

    /// Programs have logged an entry that is to go to disk.
    pub fn on_entry(&mut self, now: Nanos, entry: (ServerIndex, SessionId), notices: &mut Notices) {
        self.datapath.on_entry(now, entry, &mut self.outbox, notices);
    }

    /// Whether a port has more frames than the last burst held.
    pub fn has_more(&self, index: usize) -> bool {
        self.ports[index].more
    }

    /// A log has completed something.
    pub fn on_completions(&mut self, now: Nanos, notices: &mut Notices) {
        self.datapath.on_completions(now, &mut self.outbox, notices);
    }

    /// Writes what waits in logs that leave this to their owner. Whether something was written.
    pub fn write_waiting(&mut self) -> bool {
        self.datapath.write_waiting()
    }

    /// Calls the timers that are due and lets delayed frames in.
    pub fn on_timer(&mut self, now: Nanos, notices: &mut Notices) {
        let (datapath, out) = (&mut self.datapath, &mut self.outbox);
        for (index, port) in self.ports.iter_mut().enumerate() {
            let ingress = PortIndex(index);
            port.ingress.deliver(now, |bytes| {
                let (source, ()) = out.write_with(|written| written.extend_from_slice(bytes));
                let arrival = Arrival { ingress, bytes, checksums: Checksums::Ready, source };
                datapath.on_frame(now, &arrival, out, notices);
            });
        }
        if datapath.next_timer().is_some_and(|due| due <= now) {
            datapath.on_timer(now, out, notices);
        }
    }

    /// When something is due next.
    pub fn next_timer(&self) -> Option<Nanos> {
        let held = self.ports.iter().flat_map(|port| [port.ingress.next_due(), port.egress.next_due()]);
        held.flatten().chain(self.datapath.next_timer()).min()
    }

    /// Sends what the turn has brought. The bursts may be received into again afterwards.
    pub fn send(&mut self, now: Nanos) -> io::Result<()> {
        for index in 0..self.ports.len() {
            let port = &mut self.ports[index];
            let frames = self.outbox.leaving(PortIndex(index));
            let frames = frames.map(|source| bytes_of(&self.bursts, &self.outbox, source));
            if port.egress.is_transparent() {
                port.transmit(frames)?;
                continue;
            }
            for bytes in frames {
                let scotfree_ports = &self.scotfree_ports;
                port.egress.offer(now, bytes, |bytes, chance| corrupt(scotfree_ports, bytes, chance));
            }
            self.late.clear();
            let late = &mut self.late;
            port.egress.deliver(now, |bytes| {
                let (source, ()) = late.write_with(|written| written.extend_from_slice(bytes));
                late.push(PortIndex(index), source);
            });
            let frames = self.late.leaving(PortIndex(index));
            port.transmit(frames.map(|source| bytes_of(&[], &self.late, source)))?;
        }
        self.outbox.clear();
        Ok(())
    }

    /// Changes the impairments of the ports that are named; says which names are not known.
    pub fn reload(&mut self, ports: &[PortConfig]) -> Vec<String> {
        let mut unknown = Vec::new();
        for config in ports {
            let place = self.ports.iter().position(|port| port.socket.interface() == config.interface);
            let Some(index) = place else {
                unknown.push(config.interface.clone());
                continue;
            };
            let [ingress, egress] = impairments(index, config);
            self.ports[index].ingress.reload(ingress);
            self.ports[index].egress.reload(egress);
        }
        unknown
    }

    /// Looks whether the logs' files and the interfaces are still there and whether interfaces went down.
    pub fn check(&mut self, now: Nanos, notices: &mut Notices) {
        self.datapath.check(now, &mut self.outbox, notices);
        for port in &mut self.ports {
            let times_down = port.socket.counters().link_down;
            if std::mem::replace(&mut port.times_down, times_down) != times_down {
                let interface = port.socket.interface();
                notices.say(&format!("interface {interface} went down; frames pass again when it is up"));
            }
            if port.is_there && !port.socket.is_there() {
                port.is_there = false;
                let interface = port.socket.interface();
                notices.alarm(&format!(
                    "interface {interface} is gone: no frame passes there, nor by another that is made under its \
                     name; make it again and restart"
                ));
            }
            let count = port.socket.counters().rx_truncated;
            if port.long_frames.look(now, count) {
                notices.alarm(&why_long(port.socket.interface(), port.socket.mtu(), count));
            }
        }
    }

    /// An interface that was not there any more when it was last looked at.
    pub fn missing_interface(&self) -> Option<&str> {
        self.ports.iter().find(|port| !port.is_there).map(|port| port.socket.interface())
    }

    /// A port that has dropped frames lately because they were too long, and how many by now.
    pub fn cut_short(&self, now: Nanos) -> Option<(&str, u64)> {
        let port = self.ports.iter().find(|port| port.long_frames.are_recent(now))?;
        Some((port.socket.interface(), port.long_frames.count))
    }

    /// Makes the device the head of its chain.
    pub fn promote(&mut self, now: Nanos, notices: &mut Notices) {
        self.datapath.promote(now, &mut self.outbox, notices);
    }

    /// Takes the cluster's key anew.
    pub fn set_cluster_key(&mut self, now: Nanos, key: ClusterKey, notices: &mut Notices) {
        self.datapath.set_cluster_key(now, key, &mut self.outbox, notices);
    }

    /// What lies between the ports.
    pub fn datapath(&self) -> &Datapath {
        &self.datapath
    }

    /// The same, to put a fast path before it or to look at what it knows.
    pub fn datapath_mut(&mut self) -> &mut Datapath {
        &mut self.datapath
    }

    /// What the ports have seen.
    pub fn port_reports(&mut self) -> Vec<PortReport> {
        self.ports.iter_mut().map(Port::report).collect()
    }
}

impl Port {
    fn open(index: usize, config: &PortConfig) -> Result<Port, PortError> {
        let socket = PacketPort::open(
            &config.interface,
            &PacketPortConfig { burst_max: BURST_MAX, ..PacketPortConfig::default() },
        )?;
        let [ingress, egress] = impairments(index, config).map(Impairer::new);
        Ok(Port {
            socket,
            ingress,
            egress,
            full: 0,
            more: false,
            times_down: 0,
            is_there: true,
            long_frames: LongFrames::default(),
        })
    }

    /// Sends frames; those for which there is no room are lost, as in any switch.
    fn transmit<'a>(&mut self, frames: impl Iterator<Item = &'a [u8]> + Clone) -> io::Result<()> {
        let taken = self.socket.tx_burst(frames.clone())?;
        self.full += frames.skip(taken).count() as u64;
        Ok(())
    }

    fn report(&mut self) -> PortReport {
        PortReport {
            interface: self.socket.interface().to_owned(),
            counters: self.socket.counters(),
            full: self.full,
            ingress: *self.ingress.counters(),
            egress: *self.egress.counters(),
        }
    }
}

/// The impairments of a port, each with chances of its own: with the same ones, a request and its
/// response would share their fate.
fn impairments(index: usize, config: &PortConfig) -> [Impairment; 2] {
    let place = index as u64 * 2;
    [(config.ingress, place), (config.egress, place + 1)].map(|(impairment, place)| {
        let seed = impairment.seed.wrapping_add(place << 32);
        Impairment { seed, ..impairment }
    })
}

/// What an operator is told whose ports drop frames that are too long.
fn why_long(interface: &str, mtu: usize, count: u64) -> String {
    format!(
        "port {interface} has dropped frames longer than its mtu of {mtu} ({count} so far): a host that leaves \
         segmenting to its interface sends such, and its TCP crawls. Of a veth, at its other end, in that one's \
         namespace: ethtool -K OTHER_END tx off tso off gso off; of a network card, here: ethtool -K {interface} gro \
         off lro off; if hosts there have a larger mtu, give the device's ports the same"
    )
}

fn frame_bytes_max(port: &PacketPort) -> usize {
    port.mtu() + ETHERNET_HEADER_BYTES + VLAN_TAG_BYTES
}

fn bytes_of<'a>(bursts: &'a [FrameBurst], out: &'a Outbox, source: FrameSource) -> &'a [u8] {
    match source {
        FrameSource::Received { port, index } => {
            bursts[port.0].iter().nth(index).expect("a frame stays in its burst until it is sent").bytes
        }
        FrameSource::Written { start, end } => out.written(start, end),
    }
}

/// Flips one bit of a frame. A packet of Scotfree is hit in its payload and gets a checksum that fits,
/// as a faulty switch would make it: its receiver has to notice by itself.
fn corrupt(scotfree_ports: &RangeInclusive<u16>, frame: &mut [u8], chance: u64) {
    let Ok(ethernet) = Ethernet::parse(frame) else { return };
    let ours = scotfree_offset(scotfree_ports, &ethernet);
    let link_bytes = frame.len() - ethernet.payload.len();
    let first = link_bytes + ours.unwrap_or(0);
    let bits = (frame.len().saturating_sub(first) as u64) * 8;
    if bits == 0 {
        return;
    }
    let bit = chance % bits;
    frame[first + (bit / 8) as usize] ^= 1 << (bit % 8);
    if ours.is_some() {
        // The headers are as they were, so there is nothing that could not be read.
        let _ = complete_checksums(frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_io::frame::{parse, Frame, Link, MacAddress, UdpFrame};

    fn frame(payload: &[u8]) -> Vec<u8> {
        let link = Link { destination: MacAddress([2; 6]), source: MacAddress([4; 6]), vlan: None };
        let (source, destination) = (([10, 0, 0, 1], 51_001).into(), ([10, 0, 0, 2], 51_000).into());
        let frame = UdpFrame { link, source, destination, hop_limit: 64, traffic_class: 0, payload };
        let mut bytes = Vec::new();
        frame.write(&mut bytes).expect("it fits");
        bytes
    }

    #[test]
    fn corruption_of_our_packets_gets_past_the_checksum_and_that_of_others_does_not() {
        let ports = 51_000..=52_000;
        for chance in 0..2_000 {
            let original = frame(b"SCOT and what follows");
            let mut hit = original.clone();
            corrupt(&ports, &mut hit, chance);
            let Ok(Frame::Udp(read)) = parse(&hit, Checksums::Ready) else { panic!("chance {chance}") };
            let flipped =
                read.payload.iter().zip(b"SCOT and what follows").map(|(a, b)| (a ^ b).count_ones());
            assert_eq!(flipped.sum::<u32>(), 1);

            let original = frame(b"an ordinary datagram");
            let mut hit = original.clone();
            corrupt(&ports, &mut hit, chance);
            assert_ne!(hit, original);
            assert_eq!(hit[..ETHERNET_HEADER_BYTES], original[..ETHERNET_HEADER_BYTES]);
        }
    }

    #[test]
    fn that_frames_are_too_long_is_an_alarm_once_and_health_while_it_goes_on() {
        let mut frames = LongFrames::default();
        let at = Nanos::from_secs;
        assert!(!frames.look(at(1), 0) && !frames.are_recent(at(1)));
        assert!(frames.look(at(2), 3) && frames.are_recent(at(2)));
        assert!(!frames.look(at(50), 4), "it was said");
        assert!(frames.are_recent(at(109)) && !frames.are_recent(at(110)));
        assert!(!frames.look(at(110), 4) && !frames.are_recent(at(110)));
        assert!(!frames.look(at(200), 5) && frames.are_recent(at(200)));
    }

    #[test]
    fn no_two_directions_share_their_chances() {
        let config = PortConfig::new("p");
        let seeds: Vec<u64> =
            (0..4).flat_map(|index| impairments(index, &config)).map(|one| one.seed).collect();
        assert!(seeds.iter().enumerate().all(|(at, seed)| !seeds[..at].contains(seed)), "{seeds:?}");
    }

    #[test]
    fn nothing_is_too_short_to_be_corrupted() {
        for length in 0..40 {
            let mut bytes = frame(b"SCOT")[..length].to_vec();
            corrupt(&(51_000..=52_000), &mut bytes, u64::MAX);
            assert_eq!(bytes.len(), length);
        }
    }
}
