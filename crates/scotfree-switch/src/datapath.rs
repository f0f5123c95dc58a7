//! What happens to one frame: the bridge says where it goes, the device's functions say what becomes of
//! it if it is Scotfree's, and what they wish for is carried out.
//!
//! Invariant: no I/O happens here but that of the logs; frames come as borrowed bytes and leave as
//! entries of an [`Outbox`]. A frame that is not Scotfree's leaves as it came, or, if its sender left
//! the checksums to hardware, with full ones.

use crate::bridge::{Bridge, FrameAddresses, PortIndex, Verdict};
use crate::config::SwitchConfig;
use crate::link::Vlan;
use crate::logs::{LogMeta, Logs};
use crate::ndp::{NdpKind, NdpMessage};
use crate::neighbours::{Neighbour, Neighbours, Queued, WaitingPacket};
use crate::notice::Notices;
use crate::outbox::{FrameSource, Outbox};
use crate::programs::{why_unreachable, Programs};
use scotfree_core::{BootEpoch, Durability, Epoch, Machine, Nanos, ServerIndex, SessionId, Token};
use scotfree_device::{
    carry_out, report, Before, Completion, Count, DeviceCounters, DeviceEffects, Origin, Pipeline,
    PortNumber, Round, Shell, UnsafeNow, Word,
};
use scotfree_io::frame::{
    complete_checksums, parse, ArpOperation, ArpPacket, Checksums, Ethernet, Frame, FrameError, Link,
    MacAddress, UdpFrame, ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, PROTOCOL_UDP,
};
use scotfree_wire::{ClusterKey, WireError, MAGIC};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

/// A frame that has come in.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    /// By which port.
    pub ingress: PortIndex,
    /// Its bytes, with its VLAN tag.
    pub bytes: &'a [u8],
    /// Whether its checksums are complete.
    pub checksums: Checksums,
    /// Where an outbox finds the bytes again.
    pub source: FrameSource,
}

/// What was done with frames so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DatapathCounters {
    /// Frames that came in.
    pub frames: u64,
    /// Of these, Scotfree's.
    pub scotfree: u64,
    /// Frames dropped because they could not be read.
    pub malformed: u64,
    /// Questions for the control address answered.
    pub answered: u64,
    /// Packets that the device originated.
    pub originated: u64,
    /// Packets that could not be written as frames.
    pub unwritable: u64,
}

/// The path of a frame through the device.
pub struct Datapath {
    bridge: Bridge,
    neighbours: Neighbours,
    device: Pipeline,
    logs: Logs,
    meta: LogMeta,
    /// What the device was told that the logs can give.
    media: Durability,
    own_mac: MacAddress,
    control: SocketAddr,
    control_vlan: Vlan,
    scotfree_ports: RangeInclusive<u16>,
    port_count: usize,
    round: Round,
    released: Vec<WaitingPacket>,
    refused_seen: u64,
    room: RoomTold,
    programs: Option<Box<dyn Programs>>,
    was_kept: bool,
    unreachable: Vec<String>,
    counters: DatapathCounters,
}

/// What was told of sessions without room.
#[derive(Debug, Default)]
struct RoomTold {
    refused: u64,
    next_at: Nanos,
}

/// How often it is told.
const ROOM_INTERVAL: Nanos = Nanos::from_secs(60);

impl Datapath {
    /// The path through `device`, which has been restored from `logs`; `meta` is what stands in them.
    pub fn new(config: &SwitchConfig, device: Pipeline, logs: Logs, meta: LogMeta) -> Datapath {
        Datapath {
            bridge: Bridge::new(config.own_mac(), config.bridge),
            neighbours: Neighbours::new(config.neighbours),
            device,
            media: logs.media(),
            logs,
            meta,
            own_mac: config.own_mac(),
            control: config.control,
            control_vlan: config.control_vlan,
            scotfree_ports: config.scotfree_ports.clone(),
            port_count: config.ports.len(),
            round: Round::default(),
            released: Vec::new(),
            refused_seen: 0,
            room: RoomTold::default(),
            programs: None,
            was_kept: true,
            unreachable: Vec::new(),
            counters: DatapathCounters::default(),
        }
    }

    /// Lets programs in the kernel begin with the device; what the device wishes for then is carried out in the
    /// next turn.
    pub fn begin_programs<T>(&mut self, begin: impl FnOnce(&mut Pipeline, &mut DeviceEffects) -> T) -> T {
        begin(&mut self.device, &mut self.round.effects)
    }

    /// Puts programs in the kernel before the path.
    pub fn set_programs(&mut self, programs: Box<dyn Programs>) {
        self.programs = Some(programs);
    }

    /// Has the device decide something that no message asks for, and carries it out.
    fn decide(
        &mut self,
        now: Nanos,
        decide: impl FnOnce(&mut Pipeline, &mut DeviceEffects),
        out: &mut Outbox,
        notices: &mut Notices,
    ) {
        decide(&mut self.device, &mut self.round.effects);
        self.carry_out(now, None, out, notices);
    }

    /// Tells of what went wrong in functions since the last time.
    fn tell_of_functions(&mut self, notices: &mut Notices) {
        self.device.check(&mut |word| match word {
            Word::Alarm(text) => notices.alarm(&text),
            Word::Notice(text) => notices.say(&text),
        });
    }

    /// Tells, seldom, of sessions for which there was no room since it was told last.
    fn tell_of_room(&mut self, now: Nanos, notices: &mut Notices) {
        let refused = self.device.counters().sessions_refused;
        if refused == self.room.refused || now < self.room.next_at {
            return;
        }
        self.room = RoomTold { refused, next_at: now.plus(ROOM_INTERVAL) };
        let base = self.device.base();
        let (window_max, sessions_max) = (base.config().window_max, base.config().sessions_max);
        let limit = match base.refused_window() {
            None => format!("all {sessions_max} are taken; raise sessions_max"),
            Some(window) => {
                format!("a window of {window} is more than window_max = {window_max}; raise that")
            }
        };
        notices.alarm(&format!(
            "no room for a session ({refused} times so far): {limit}. Its updates are answered when the server's storage \
             holds them, which is as safe and slower"
        ));
    }

    /// How many sessions there are, if there is no room for more.
    pub fn full(&self) -> Option<String> {
        let (count, max) = (self.device.session_count(), self.device.base().config().sessions_max);
        (count >= max as usize).then(|| format!("{count} of {max} sessions are taken"))
    }

    /// Tells once that the programs' log has lost what keeps it.
    fn tell_of_lost_pins(&mut self, notices: &mut Notices) {
        let is_kept = self.programs.as_ref().is_none_or(|programs| programs.is_kept());
        if self.was_kept && !is_kept {
            notices.alarm(
                "the folder that keeps the kernel's log was removed: the log and the attachments end with this \
                 process, and acknowledged updates with them; wait until nothing is unstable \
                 (scotfree_unsafe_entries), then restart",
            );
        }
        self.was_kept = is_kept;
    }

    /// Tells of ports whose other ends have begun or ceased to take what programs send.
    fn tell_of_unreachable(&mut self, notices: &mut Notices) {
        let now = self.programs.as_ref().map_or_else(Vec::new, |programs| programs.unreachable());
        for port in now.iter().filter(|port| !self.unreachable.contains(port)) {
            notices.alarm(&why_unreachable(port));
        }
        for port in self.unreachable.iter().filter(|port| !now.contains(port)) {
            notices.say(&format!("port {port} takes frames from programs again"));
        }
        self.unreachable = now;
    }

    /// The ports by which what programs send left for nobody when that was last looked at.
    pub fn unreachable(&self) -> &[String] {
        &self.unreachable
    }

    /// Whether the programs' log outlives this process, when that was last looked at.
    pub fn was_kept(&self) -> bool {
        self.was_kept
    }

    /// A frame that has passed already tells who lives where.
    pub fn on_passed(
        &mut self,
        now: Nanos,
        ingress: PortIndex,
        bytes: &[u8],
        out: &mut Outbox,
        notices: &mut Notices,
    ) {
        let Ok(ethernet) = Ethernet::parse(bytes) else { return };
        let Link { destination, source, vlan } = ethernet.link;
        let addresses = FrameAddresses { destination, source, vlan: Vlan::of(vlan) };
        self.bridge.on_frame(now, ingress, &addresses);
        let shown = match parse(bytes, Checksums::Ready) {
            Ok(Frame::Arp { packet, .. }) => Some((packet.sender_ip.into(), packet.sender_mac)),
            Ok(Frame::Udp(_) | Frame::Other) | Err(_) => {
                let message = NdpMessage::read(&ethernet);
                message.and_then(|message| message.shows()).map(|(host, station)| (host.into(), station))
            }
        };
        if let Some((host, station)) = shown {
            let neighbour = Neighbour { mac: station, port: ingress, vlan: Vlan::of(vlan) };
            self.hear(now, host, neighbour, out, notices);
        }
    }

    /// Programs have logged an entry that is to go to disk.
    pub fn on_entry(
        &mut self,
        now: Nanos,
        (server, session): (ServerIndex, SessionId),
        out: &mut Outbox,
        notices: &mut Notices,
    ) {
        let what = Before::Entry(server, session);
        self.decide(now, |device, effects| device.before(now, &what, effects), out, notices);
    }

    /// A frame has come in.
    pub fn on_frame(&mut self, now: Nanos, arrival: &Arrival<'_>, out: &mut Outbox, notices: &mut Notices) {
        self.counters.frames += 1;
        let Ok(ethernet) = Ethernet::parse(arrival.bytes) else {
            self.counters.malformed += 1;
            return;
        };
        let Link { destination, source, vlan } = ethernet.link;
        let addresses = FrameAddresses { destination, source, vlan: Vlan::of(vlan) };
        let verdict = self.bridge.on_frame(now, arrival.ingress, &addresses);
        if matches!(verdict, Verdict::Drop(_)) {
            return;
        }
        if ethernet.ethertype == ETHERTYPE_ARP {
            return self.on_arp(now, arrival, verdict, out, notices);
        }
        if let Some(message) = NdpMessage::read(&ethernet) {
            return self.on_ndp(now, arrival, (&message, ethernet.link), verdict, out, notices);
        }
        if scotfree_offset(&self.scotfree_ports, &ethernet).is_some() {
            return self.on_scotfree(now, arrival, verdict, out, notices);
        }
        self.pass_on(arrival, verdict, out);
    }

    /// Sends a frame on as it came.
    fn pass_on(&mut self, arrival: &Arrival<'_>, verdict: Verdict, out: &mut Outbox) {
        if arrival.checksums == Checksums::Ready {
            return self.emit(arrival.ingress, verdict, arrival.source, out);
        }
        let (source, written) = out.write_with(|bytes| {
            bytes.extend_from_slice(arrival.bytes);
            let start = bytes.len() - arrival.bytes.len();
            complete_checksums(&mut bytes[start..])
        });
        if written.is_err() {
            self.counters.malformed += 1;
            return;
        }
        self.emit(arrival.ingress, verdict, source, out);
    }

    fn emit(&self, ingress: PortIndex, verdict: Verdict, source: FrameSource, out: &mut Outbox) {
        match verdict {
            Verdict::Forward(port) => out.push(port, source),
            Verdict::Flood => {
                for port in (0..self.port_count).map(PortIndex).filter(|port| *port != ingress) {
                    out.push(port, source);
                }
            }
            Verdict::Local | Verdict::Drop(_) => {}
        }
    }

    // ---- who lives where

    fn on_arp(
        &mut self,
        now: Nanos,
        arrival: &Arrival<'_>,
        verdict: Verdict,
        out: &mut Outbox,
        notices: &mut Notices,
    ) {
        let Ok(Frame::Arp { link, packet }) = parse(arrival.bytes, arrival.checksums) else {
            // Not about Ethernet and IPv4: none of ours, and not to be hidden from others.
            return self.pass_on(arrival, verdict, out);
        };
        let neighbour =
            Neighbour { mac: packet.sender_mac, port: arrival.ingress, vlan: Vlan::of(link.vlan) };
        self.hear(now, packet.sender_ip.into(), neighbour, out, notices);
        if IpAddr::V4(packet.target_ip) != self.control.ip() {
            return self.pass_on(arrival, verdict, out);
        }
        if packet.operation == ArpOperation::Request {
            self.counters.answered += 1;
            let link = Link { source: self.own_mac, destination: packet.sender_mac, vlan: link.vlan };
            let (source, ()) = out.write_with(|bytes| packet.reply(self.own_mac).write(&link, bytes));
            out.push(arrival.ingress, source);
        }
    }

    fn on_ndp(
        &mut self,
        now: Nanos,
        arrival: &Arrival<'_>,
        (message, link): (&NdpMessage, Link),
        verdict: Verdict,
        out: &mut Outbox,
        notices: &mut Notices,
    ) {
        if let Some((host, station)) = message.shows() {
            let neighbour = Neighbour { mac: station, port: arrival.ingress, vlan: Vlan::of(link.vlan) };
            self.hear(now, host.into(), neighbour, out, notices);
        }
        if IpAddr::V6(message.target) != self.control.ip() {
            return self.pass_on(arrival, verdict, out);
        }
        if message.kind == NdpKind::Solicitation {
            self.counters.answered += 1;
            let (source, ()) = out.write_with(|bytes| message.write_answer(self.own_mac, link, bytes));
            out.push(arrival.ingress, source);
        }
    }

    fn hear(
        &mut self,
        now: Nanos,
        address: IpAddr,
        neighbour: Neighbour,
        out: &mut Outbox,
        notices: &mut Notices,
    ) {
        if address == self.control.ip() {
            return;
        }
        if let Some(Err(problem)) =
            self.programs.as_mut().map(|programs| programs.heard(address, neighbour.port))
        {
            notices.alarm(&format!("{problem}; nothing is acknowledged in the kernel"));
        }
        let mut released = std::mem::take(&mut self.released);
        self.neighbours.heard(now, address, neighbour, &mut released);
        for packet in released.drain(..) {
            self.originate(now, packet.from, packet.to, &packet.payload, out);
        }
        self.released = released;
    }

    fn ask(&mut self, address: IpAddr, out: &mut Outbox) {
        let link =
            Link { source: self.own_mac, destination: MacAddress::BROADCAST, vlan: self.control_vlan.tag() };
        let source = match (self.control.ip(), address) {
            (IpAddr::V4(own), IpAddr::V4(wanted)) => {
                let question = ArpPacket::request(self.own_mac, own, wanted);
                out.write_with(|bytes| question.write(&link, bytes)).0
            }
            (IpAddr::V6(own), IpAddr::V6(wanted)) => {
                let mac = self.own_mac;
                out.write_with(|bytes| NdpMessage::write_question(own, mac, wanted, link, bytes)).0
            }
            // Only hosts of the control address's family can be asked for.
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return,
        };
        for port in (0..self.port_count).map(PortIndex) {
            out.push(port, source);
        }
    }

    /// Sends a packet of the device's own making.
    fn originate(&mut self, now: Nanos, from: SocketAddr, to: SocketAddr, payload: &[u8], out: &mut Outbox) {
        let Some(neighbour) = self.neighbours.lookup(now, to.ip()) else {
            if self.neighbours.wait(now, from, to, payload) == Queued::Ask {
                self.ask(to.ip(), out);
            }
            return;
        };
        let link = Link {
            source: self.mac_in_the_name_of(now, from.ip(), neighbour.port),
            destination: neighbour.mac,
            vlan: neighbour.vlan.tag(),
        };
        let frame =
            UdpFrame { link, source: from, destination: to, hop_limit: 64, traffic_class: 0, payload };
        self.write_frame(&frame, Verdict::Forward(neighbour.port), neighbour.port, out);
        self.counters.originated += 1;
    }

    /// Who speaks in a host's name uses its station too, so that switches behind the port keep what
    /// they know of it; unless the host lives behind that very port: there it would mislead them.
    fn mac_in_the_name_of(&self, now: Nanos, host: IpAddr, egress: PortIndex) -> MacAddress {
        match self.neighbours.lookup(now, host) {
            Some(neighbour) if neighbour.port != egress => neighbour.mac,
            _ => self.own_mac,
        }
    }

    fn write_frame(&mut self, frame: &UdpFrame<'_>, verdict: Verdict, ingress: PortIndex, out: &mut Outbox) {
        let (source, written) = out.write_with(|bytes| frame.write(bytes));
        match written {
            Ok(()) => self.emit(ingress, verdict, source, out),
            Err(_) => self.counters.unwritable += 1,
        }
    }

    // ---- Scotfree's packets

    fn on_scotfree(
        &mut self,
        now: Nanos,
        arrival: &Arrival<'_>,
        verdict: Verdict,
        out: &mut Outbox,
        notices: &mut Notices,
    ) {
        self.counters.scotfree += 1;
        let frame = match parse(arrival.bytes, arrival.checksums) {
            Ok(Frame::Udp(frame)) => frame,
            Ok(Frame::Arp { .. } | Frame::Other) => return self.pass_on(arrival, verdict, out),
            Err(error) => {
                self.counters.malformed += 1;
                notices.limited("malformed frame", || {
                    format!("malformed frame dropped: {error}{}", whose(&error))
                });
                return;
            }
        };
        let Link { source: mac, vlan, .. } = frame.link;
        let neighbour = Neighbour { mac, port: arrival.ingress, vlan: Vlan::of(vlan) };
        self.hear(now, frame.source.ip(), neighbour, out, notices);
        let port = PortNumber(arrival.ingress.0 as u32);
        let origin = Origin { address: frame.source, port: Some(port) };
        self.device.on_arrival(now, origin, frame.destination, frame.payload, &mut self.round.effects);
        self.note_refusals(&frame, notices);
        self.carry_out(now, Some(Passing { arrival, frame: &frame, verdict }), out, notices);
    }

    fn note_refusals(&mut self, frame: &UdpFrame<'_>, notices: &mut Notices) {
        let refused = &self.device.counters().refused;
        let total: u64 = refused.iter().sum();
        if total == self.refused_seen {
            return;
        }
        self.refused_seen = total;
        notices.limited("bad packet", || {
            let counts: Vec<String> = WireError::ALL
                .iter()
                .zip(refused)
                .filter(|(_, count)| **count > 0)
                .map(|(reason, count)| format!("{} {count}", reason.name()))
                .collect();
            let (from, to, bytes) = (frame.source, frame.destination, frame.payload.len());
            format!("bad packet of {bytes} bytes from {from} to {to} dropped; so far: {}", counts.join(", "))
        });
    }

    /// Carries out what the device wishes for, and what it then wishes for, until it is content.
    fn carry_out(
        &mut self,
        now: Nanos,
        passing: Option<Passing<'_>>,
        out: &mut Outbox,
        notices: &mut Notices,
    ) {
        let mut round = std::mem::take(&mut self.round);
        carry_out(now, &mut round, &mut Surroundings { path: self, now, passing, out, notices });
        self.round = round;
        for trouble in self.device.take_troubles() {
            notices.alarm(&format!("{trouble}; restart the daemon: the log is kept"));
        }
    }

    /// Passes a message on with `payload` instead of its own.
    fn forward(&mut self, passing: Passing<'_>, payload: &[u8], out: &mut Outbox) {
        let Passing { arrival, frame, verdict } = passing;
        if payload == frame.payload {
            return self.pass_on(arrival, verdict, out);
        }
        let stamped = UdpFrame { payload, ..*frame };
        self.write_frame(&stamped, verdict, arrival.ingress, out);
    }

    /// Tells the device what the logs have completed, refused and lost.
    fn collect_durable(&mut self, now: Nanos, out: &mut Outbox, notices: &mut Notices) {
        let mut round = std::mem::take(&mut self.round);
        let mut shell = Surroundings { path: self, now, passing: None, out, notices };
        report(now, &mut round, &mut shell);
        self.round = round;
    }

    fn note_losses(&mut self) {
        for token in self.logs.refused() {
            self.device.on_refused(token);
        }
        if self.logs.media() != self.media {
            self.media = self.logs.media();
            self.device.set_media(self.media);
        }
    }

    // ---- time and completions

    /// A log has completed something.
    pub fn on_completions(&mut self, now: Nanos, out: &mut Outbox, notices: &mut Notices) {
        self.collect_durable(now, out, notices);
        self.carry_out(now, None, out, notices);
    }

    /// Writes what waits in logs that leave this to their owner. Whether something was written.
    pub fn write_waiting(&mut self) -> bool {
        self.logs.write_waiting()
    }

    /// Calls the timers that are due.
    pub fn on_timer(&mut self, now: Nanos, out: &mut Outbox, notices: &mut Notices) {
        if self.device.next_timer().is_some_and(|due| due <= now) {
            self.decide(now, |device, effects| device.on_timer(now, effects), out, notices);
        }
        if self.neighbours.next_timer().is_some_and(|due| due <= now) {
            let mut again = Vec::new();
            self.neighbours.on_timer(now, &mut again);
            for address in again {
                self.ask(address, out);
            }
        }
    }

    /// When to call [`Datapath::on_timer`] next.
    pub fn next_timer(&self) -> Option<Nanos> {
        [self.device.next_timer(), self.neighbours.next_timer()].into_iter().flatten().min()
    }

    /// Looks whether the logs' files are still there, and what went wrong before the device.
    pub fn check(&mut self, now: Nanos, out: &mut Outbox, notices: &mut Notices) {
        self.logs.check_files(notices);
        self.on_completions(now, out, notices);
        self.tell_of_functions(notices);
        self.tell_of_room(now, notices);
        self.tell_of_lost_pins(notices);
        self.tell_of_unreachable(notices);
    }

    /// Takes the cluster's key anew, after a rotation.
    pub fn set_cluster_key(&mut self, now: Nanos, key: ClusterKey, out: &mut Outbox, notices: &mut Notices) {
        self.decide(now, |device, effects| device.set_cluster_key(now, key, effects), out, notices);
    }

    /// Makes this device the head of its chain, at the operator's word.
    pub fn promote(&mut self, now: Nanos, out: &mut Outbox, notices: &mut Notices) {
        self.decide(now, |device, effects| device.promote(now, effects), out, notices);
    }

    // ---- what it looks like

    /// What device and programs have counted together.
    pub fn device_counters(&self) -> DeviceCounters {
        let own = *self.device.counters();
        // Programs whose counters cannot be read have raised an alarm elsewhere.
        match self.programs.as_ref().map(|programs| programs.counters()) {
            Some(Ok(in_front)) => own.plus(&in_front),
            Some(Err(_)) | None => own,
        }
    }

    /// What the functions have counted.
    pub fn function_counters(&self, out: &mut dyn FnMut(&'static str, Count)) {
        self.device.function_counters(out);
    }

    /// What the function of this name answers an operator.
    pub fn ask_function(&mut self, now: Nanos, name: &str, question: &str) -> Option<Result<String, String>> {
        self.device.ask(now, name, question, &mut self.round.effects)
    }

    /// What is acknowledged and not yet stable, also in the programs' log.
    pub fn unsafe_now(&mut self, now: Nanos) -> UnsafeNow {
        self.device.before(now, &Before::Look, &mut self.round.effects);
        self.device.unsafe_now()
    }

    /// The device.
    pub fn device(&self) -> &Pipeline {
        &self.device
    }

    /// The logs.
    pub fn logs(&self) -> &Logs {
        &self.logs
    }

    /// The bridge.
    pub fn bridge(&self) -> &Bridge {
        &self.bridge
    }

    /// The table of addresses.
    pub fn neighbours(&self) -> &Neighbours {
        &self.neighbours
    }

    /// What was done with frames so far.
    pub fn counters(&self) -> &DatapathCounters {
        &self.counters
    }
}

/// What surrounds the device while it acts.
struct Surroundings<'a> {
    path: &'a mut Datapath,
    now: Nanos,
    passing: Option<Passing<'a>>,
    out: &'a mut Outbox,
    notices: &'a mut Notices,
}

impl Shell for Surroundings<'_> {
    fn pipeline(&mut self) -> &mut Pipeline {
        &mut self.path.device
    }

    fn send(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        self.path.originate(self.now, from, to, bytes, self.out);
    }

    fn forward(&mut self, bytes: &[u8]) {
        if let Some(passing) = self.passing {
            self.path.forward(passing, bytes, self.out);
        }
    }

    fn persist(&mut self, token: Token, record: &[u8]) -> Completion {
        self.path.logs.persist(self.now, token, record, self.notices);
        Completion::Later
    }

    fn erase(&mut self, token: Token) {
        self.path.logs.erase(token, self.notices);
    }

    fn set_meta(&mut self, boot_epoch: BootEpoch, server: ServerIndex, server_epoch: Epoch) {
        self.path.meta.boot_epoch = boot_epoch;
        self.path.meta.set_server_epoch(server, server_epoch);
        self.path.logs.set_meta(self.path.meta, self.notices);
    }

    fn flush_erasures(&mut self, token: Token) -> Completion {
        self.path.logs.flush_erasures(token);
        Completion::Later
    }

    fn collect(&mut self, done: &mut Vec<Token>) {
        self.path.logs.completions(self.now, done, self.notices);
        self.path.note_losses();
    }
}

/// A message of Scotfree on its way through.
#[derive(Clone, Copy)]
struct Passing<'a> {
    arrival: &'a Arrival<'a>,
    frame: &'a UdpFrame<'a>,
    verdict: Verdict,
}

/// Where in the payload of its frame a packet of Scotfree begins, if it is one: a UDP datagram from or
/// to one of Scotfree's ports that bears Scotfree's mark. The mark is needed because hosts also give
/// these ports to others: a name server's answer must not be taken for a bad packet of ours. Ordinary
/// datagrams are passed on without a look at their checksums.
pub(crate) fn scotfree_offset(ports: &RangeInclusive<u16>, ethernet: &Ethernet<'_>) -> Option<usize> {
    let packet = ethernet.payload;
    let (protocol, header_bytes) = match ethernet.ethertype {
        ETHERTYPE_IPV4 => (*packet.get(9)?, usize::from(packet[0] & 0x0f) * 4),
        ETHERTYPE_IPV6 => (*packet.get(6)?, 40),
        _ => return None,
    };
    let offset = header_bytes + 8;
    let udp = packet.get(header_bytes..offset).filter(|_| protocol == PROTOCOL_UDP)?;
    let either = [u16::from_be_bytes([udp[0], udp[1]]), u16::from_be_bytes([udp[2], udp[3]])];
    let ours = either.iter().any(|port| ports.contains(port));
    (ours && packet[offset..].starts_with(&MAGIC.to_le_bytes())).then_some(offset)
}

/// Who sends such frames, and what mends it, where that is known.
fn whose(error: &FrameError) -> &'static str {
    match error {
        FrameError::BadChecksum { .. } => {
            "; a host that leaves checksums to its interface sends such, and none of its requests arrives: of a veth, at \
             its other end, in that one's namespace: ethtool -K OTHER_END tx off"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use scotfree_core::DeviceId;
    use scotfree_device::{Base, DeviceConfig, Function};
    use scotfree_wire::{
        emit, AcceptTail, Direction, Family, Header, KeyEpoch, Kind, OpenTail, Packet, Tail,
    };

    use std::net::Ipv6Addr;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};

    const CLIENT: PortIndex = PortIndex(0);
    const SERVER: PortIndex = PortIndex(1);

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn mac(last: u8) -> MacAddress {
        MacAddress([2, 0, 0, 0, 0, last])
    }

    fn key() -> ClusterKey {
        ClusterKey::from_bytes([1; 32])
    }

    struct World {
        path: Datapath,
        out: Outbox,
        notices: Notices,
    }

    impl World {
        fn new() -> World {
            World::with(vec![(remedy_persist::MAKER.make)(&scotfree_device::Settings::default())])
        }

        fn with(functions: Vec<Box<dyn Function>>) -> World {
            let (control, server) = (address("10.0.0.9:51000"), address("10.0.0.2:51000"));
            let config = SwitchConfig::new(DeviceId(1), &["p0", "p1"], control, server, key());
            let device = DeviceConfig::new(DeviceId(1), BootEpoch(1), control, server, key());
            let device = Pipeline::new(device, functions).expect("a list in order");
            let meta = LogMeta::new(DeviceId(1), (1, 1), &[server]);
            World {
                path: Datapath::new(&config, device, Logs::default(), meta),
                out: Outbox::default(),
                notices: Notices::new(Box::new(|_| {})),
            }
        }

        /// What leaves, with its port, when a frame comes in. A frame that passes unchanged is in it.
        fn arrive(
            &mut self,
            ingress: PortIndex,
            bytes: &[u8],
            checksums: Checksums,
        ) -> Vec<(PortIndex, Vec<u8>)> {
            let source = FrameSource::Received { port: ingress, index: 0 };
            let arrival = Arrival { ingress, bytes, checksums, source };
            self.path.on_frame(Nanos(1), &arrival, &mut self.out, &mut self.notices);
            self.leaving(bytes)
        }

        fn leaving(&mut self, received: &[u8]) -> Vec<(PortIndex, Vec<u8>)> {
            let bytes = |source| match source {
                FrameSource::Received { .. } => received.to_vec(),
                FrameSource::Written { start, end } => self.out.written(start, end).to_vec(),
            };
            let frames = [CLIENT, SERVER].into_iter().flat_map(|port| {
                let out = &self.out;
                out.leaving(port).map(move |source| (port, bytes(source)))
            });
            let frames = frames.collect();
            self.out.clear();
            frames
        }

        fn teach(&mut self) {
            self.arrive(CLIENT, &arp_of(1, 77), Checksums::Ready);
            self.arrive(SERVER, &arp_of(2, 77), Checksums::Ready);
        }
    }

    fn ip(last: u8) -> std::net::Ipv4Addr {
        [10, 0, 0, last].into()
    }

    /// The question of host `from` for host `target`.
    fn arp_of(from: u8, target: u8) -> Vec<u8> {
        let link = Link { destination: MacAddress::BROADCAST, source: mac(from), vlan: None };
        let mut bytes = Vec::new();
        ArpPacket::request(mac(from), ip(from), ip(target)).write(&link, &mut bytes);
        bytes
    }

    fn udp(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
        let link = Link { destination: mac(2), source: mac(1), vlan: None };
        let frame =
            UdpFrame { link, source: from, destination: to, hop_limit: 64, traffic_class: 0, payload };
        let mut bytes = Vec::new();
        frame.write(&mut bytes).expect("it fits");
        bytes
    }

    fn read(bytes: &[u8]) -> UdpFrame<'_> {
        let Ok(Frame::Udp(frame)) = parse(bytes, Checksums::Ready) else { panic!("it is a whole datagram") };
        frame
    }

    /// The server accepts the session of this number.
    fn acceptance(number: u8, window: u32) -> Vec<u8> {
        let header = Header::new(Kind::SessionAccept, SessionId(u64::from(number)), Epoch(1));
        let (client_nonce, server_nonce) = ([number; 16], [0; 16]);
        let tail = Tail::Accept(AcceptTail { client_nonce, server_nonce, window, expiry_ms: 1_000 });
        let mut bytes = Vec::new();
        emit(&header, &tail, &[], &key().control(Direction::Handshake), &mut bytes);
        bytes
    }

    #[test]
    fn the_operator_is_told_which_limit_leaves_no_room_for_a_session() {
        let mut world = World::new();
        world.teach();
        let (sender, lines) = std::sync::mpsc::channel();
        world.notices = Notices::new(Box::new(move |line| drop(sender.send(line.to_owned()))));
        let link = Link { destination: mac(1), source: mac(2), vlan: None };
        let (source, destination) = (address("10.0.0.2:51000"), address("10.0.0.1:9"));
        let accept = |world: &mut World, number, window| {
            let payload = &acceptance(number, window);
            let frame = UdpFrame { link, source, destination, hop_limit: 64, traffic_class: 0, payload };
            let mut bytes = Vec::new();
            frame.write(&mut bytes).expect("it fits");
            let frame = bytes;
            world.arrive(SERVER, &frame, Checksums::Ready);
            world.path.device().counters().sessions_refused
        };
        assert_eq!(accept(&mut world, 99, 4_097), 1);
        world.path.check(Nanos(5), &mut world.out, &mut world.notices);
        let sessions_max = world.path.device().base().config().sessions_max;
        for number in 1..=sessions_max {
            assert_eq!(accept(&mut world, number as u8, 4), 1, "there is room for {number}");
        }
        assert_eq!(world.path.full().as_deref(), Some("64 of 64 sessions are taken"));
        assert_eq!(accept(&mut world, 100, 4), 2);
        for now in [Nanos(6), ROOM_INTERVAL, Nanos(6).plus(ROOM_INTERVAL)] {
            world.path.check(now, &mut world.out, &mut world.notices);
        }
        let said: Vec<String> =
            lines.try_iter().filter(|line| line.contains("no room for a session")).collect();
        assert!(said.len() == 2 && said[0].contains("4097 is more than window_max = 4096"), "{said:?}");
        assert!(said[1].contains("(2 times so far): all 64 are taken; raise sessions_max"), "{said:?}");
    }

    fn opening() -> Vec<u8> {
        let header = Header::new(Kind::SessionOpen, SessionId(0), Epoch(0));
        let tail = Tail::Open(OpenTail { client_nonce: [3; 16], window_asked: 8, key_epoch: KeyEpoch(0) });
        let mut bytes = Vec::new();
        emit(&header, &tail, &[], &key().control(Direction::Handshake), &mut bytes);
        bytes
    }

    #[test]
    fn a_question_for_the_control_address_is_answered_and_goes_no_further() {
        let mut world = World::new();
        let leaving = world.arrive(CLIENT, &arp_of(1, 9), Checksums::Ready);
        assert_eq!(leaving.len(), 1);
        assert_eq!(leaving[0].0, CLIENT);
        let Ok(Frame::Arp { link, packet }) = parse(&leaving[0].1, Checksums::Ready) else {
            panic!("an answer")
        };
        assert_eq!(
            (packet.operation, packet.sender_ip, packet.target_mac),
            (ArpOperation::Reply, ip(9), mac(1))
        );
        assert_eq!(link.destination, mac(1));
        assert_eq!(packet.sender_mac, world.path.own_mac);
        let others = arp_of(1, 2);
        assert_eq!(world.arrive(CLIENT, &others, Checksums::Ready), [(SERVER, others)]);
    }

    #[test]
    fn a_packet_to_an_unknown_host_waits_for_the_answer_to_a_question_at_every_port() {
        let mut world = World::new();
        // The device's first wish is a lease of the server, whom nobody has heard yet.
        world.path.on_timer(Nanos(1), &mut world.out, &mut world.notices);
        let questions = world.leaving(&[]);
        assert_eq!(questions.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [CLIENT, SERVER]);
        let leaving = world.arrive(SERVER, &arp_of(2, 77), Checksums::Ready);
        let lease = leaving.iter().find(|(port, _)| *port == SERVER).expect("the lease question");
        let frame = read(&lease.1);
        assert_eq!((frame.link.destination, frame.link.source), (mac(2), world.path.own_mac));
        assert_eq!(Packet::parse(frame.payload).expect("our own").kind(), Kind::Lease);
    }

    #[test]
    fn our_packets_pass_and_foreign_ones_at_our_ports_too_but_bad_ones_do_not() {
        let mut world = World::new();
        world.teach();
        let (client, server) = (address("10.0.0.1:51001"), address("10.0.0.2:51000"));
        let ours = udp(client, server, &opening());
        assert_eq!(world.arrive(CLIENT, &ours, Checksums::Ready), [(SERVER, ours.clone())]);
        let foreign = udp(client, server, b"a question for a name server");
        assert_eq!(world.arrive(CLIENT, &foreign, Checksums::Ready), [(SERVER, foreign)]);
        let bad = udp(client, server, &opening()[..70]);
        assert_eq!(world.arrive(CLIENT, &bad, Checksums::Ready), []);
        let mut damaged = ours;
        *damaged.last_mut().expect("it has bytes") ^= 1;
        assert_eq!(world.arrive(CLIENT, &damaged, Checksums::Ready), []);
        let counters = *world.path.counters();
        assert_eq!((counters.scotfree, counters.malformed), (3, 1));
        assert_eq!(world.path.device().counters().refused.iter().sum::<u64>(), 1);
        assert!(whose(&FrameError::BadChecksum { layer: scotfree_io::frame::Layer::Udp }).contains("tx off"));
        assert_eq!(whose(&FrameError::UnknownArp), "");
    }

    #[test]
    fn who_speaks_in_a_hosts_name_uses_its_station_unless_it_lives_behind_the_same_port() {
        let mut world = World::new();
        world.teach();
        let (client, server) = (address("10.0.0.1:51001"), address("10.0.0.2:51000"));
        for (from, to, expected) in [
            (server, client, mac(2)),
            (client, server, mac(1)),
            (address("10.0.0.1:5"), client, world.path.own_mac),
        ] {
            world.path.originate(Nanos(2), from, to, b"SCOT", &mut world.out);
            let leaving = world.leaving(&[]);
            assert_eq!(read(&leaving[0].1).link.source, expected, "{from} to {to}");
        }
    }

    /// Programs that do nothing, and are kept or not; and a function that has something to say.
    #[derive(Debug, Clone)]
    struct Clumsy(Arc<Mutex<Vec<Word>>>, Arc<AtomicBool>, Arc<Mutex<Vec<String>>>);

    impl Function for Clumsy {
        fn name(&self) -> &'static str {
            "clumsy"
        }

        fn family(&self) -> Family {
            Family::Trial
        }

        fn as_any(&self) -> &dyn std::any::Any {
            self
        }

        fn as_any_mut(&mut self) -> &mut dyn std::any::Any {
            self
        }

        fn on_packet(
            &mut self,
            _: Nanos,
            _: &mut Base,
            _: &mut scotfree_device::Passing<'_>,
            _: &mut DeviceEffects,
        ) -> scotfree_device::Verdict {
            scotfree_device::Verdict::Next
        }

        fn check(&mut self, tell: &mut dyn FnMut(Word)) {
            self.0.lock().expect("nobody panicked").drain(..).for_each(tell);
        }
    }

    impl Programs for Clumsy {
        fn heard(&mut self, _: IpAddr, _: PortIndex) -> Result<(), String> {
            Ok(())
        }

        fn is_kept(&self) -> bool {
            self.1.load(Ordering::Relaxed)
        }

        fn unreachable(&self) -> Vec<String> {
            self.2.lock().expect("nobody panicked").clone()
        }

        fn counters(&self) -> Result<DeviceCounters, String> {
            Ok(DeviceCounters::default())
        }
    }

    /// A datapath before which something goes wrong, and what it tells.
    fn clumsy_world() -> (World, Clumsy, impl FnMut(&mut World) -> Vec<String>) {
        let clumsy = Clumsy(Arc::default(), Arc::new(AtomicBool::new(true)), Arc::default());
        let mut world = World::with(vec![Box::new(clumsy.clone())]);
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&lines);
        let sink = move |line: &str| sink.lock().expect("nobody panicked").push(line.to_owned());
        world.notices = Notices::new(Box::new(sink));
        world.path.set_programs(Box::new(clumsy.clone()));
        let told = move |world: &mut World| {
            world.path.check(Nanos(1), &mut world.out, &mut world.notices);
            std::mem::take(&mut *lines.lock().expect("nobody panicked"))
        };
        (world, clumsy, told)
    }

    #[test]
    fn what_a_function_has_to_say_is_told() {
        let (mut world, clumsy, mut told) = clumsy_world();
        assert_eq!(told(&mut world), [""; 0]);
        let words = [Word::Alarm("it burns".to_owned()), Word::Notice("it smells".to_owned())];
        clumsy.0.lock().expect("nobody panicked").extend(words);
        assert_eq!(told(&mut world), ["ALARM: it burns", "it smells"]);
        assert_eq!(told(&mut world), [""; 0]);
    }

    #[test]
    fn a_log_that_nothing_keeps_any_more_is_an_alarm() {
        let (mut world, clumsy, mut told) = clumsy_world();
        assert_eq!((told(&mut world), world.path.was_kept()), (vec![], true));
        clumsy.1.store(false, Ordering::Relaxed);
        let lines = told(&mut world);
        assert!(lines.len() == 1 && lines[0].starts_with("ALARM: the folder that keeps"), "{lines:?}");
        assert_eq!((told(&mut world), world.path.was_kept()), (vec![], false));
    }

    #[test]
    fn a_port_that_takes_nothing_from_programs_is_an_alarm_until_it_does() {
        let (mut world, clumsy, mut told) = clumsy_world();
        *clumsy.2.lock().expect("nobody panicked") = vec!["p0".to_owned()];
        let lines = told(&mut world);
        assert!(lines.len() == 1 && lines[0].starts_with("ALARM: port p0 takes no frames"), "{lines:?}");
        assert_eq!((told(&mut world), world.path.unreachable()), (vec![], &["p0".to_owned()][..]));
        clumsy.2.lock().expect("nobody panicked").clear();
        assert_eq!(told(&mut world), ["port p0 takes frames from programs again"]);
        assert_eq!((told(&mut world), world.path.unreachable()), (vec![], &[][..]));
    }

    #[test]
    fn checksums_left_to_hardware_are_completed() {
        let mut world = World::new();
        world.teach();
        let whole = udp(address("10.0.0.1:99"), address("10.0.0.2:80"), b"ordinary");
        let mut partial = whole.clone();
        let checksum_at = whole.len() - b"ordinary".len() - 2;
        partial[checksum_at] ^= 0x55;
        assert_eq!(world.arrive(CLIENT, &partial, Checksums::NotReady), [(SERVER, whole)]);
    }

    #[test]
    fn nobody_becomes_the_control_address_by_speaking_as_it() {
        let mut world = World::new();
        world.arrive(CLIENT, &arp_of(9, 2), Checksums::Ready);
        assert_eq!(world.path.neighbours().known_count(), 0);
    }

    /// Frames of every kind that is read.
    fn templates() -> [Vec<u8>; 6] {
        let (client, server) = (address("10.0.0.1:51001"), address("10.0.0.2:51000"));
        let link = Link { destination: mac(2), source: mac(1), vlan: None };
        let mut question = Vec::new();
        let own = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
        NdpMessage::write_question(own, mac(1), own, link, &mut question);
        let (ours, answer) = (udp(client, server, &opening()), udp(server, client, &opening()));
        [arp_of(1, 9), arp_of(2, 1), ours, answer, question, Vec::new()]
    }

    /// Template, port, whether the checksums are ready, bytes to spoil, where to cut.
    type Spoilt = (usize, usize, bool, Vec<(u16, u8)>, u16);

    fn spoilt() -> impl Strategy<Value = Spoilt> {
        let flips = proptest::collection::vec(any::<(u16, u8)>(), 0..4);
        (0..6_usize, 0..2_usize, any::<bool>(), flips, any::<u16>())
    }

    proptest! {
        #[test]
        fn no_frame_makes_it_panic_or_goes_back_where_it_came_from(
            frames in proptest::collection::vec(spoilt(), 1..60)
        ) {
            let mut world = World::new();
            let templates = templates();
            for (template, port, ready, flips, cut) in frames {
                let mut bytes = templates[template].clone();
                for (at, flip) in flips {
                    let length = bytes.len().max(1);
                    if let Some(byte) = bytes.get_mut(usize::from(at) % length) {
                        *byte ^= flip;
                    }
                }
                if cut < 1_000 {
                    bytes.truncate(usize::from(cut));
                }
                let ingress = PortIndex(port);
                let source = FrameSource::Received { port: ingress, index: 0 };
                let checksums = if ready { Checksums::Ready } else { Checksums::NotReady };
                let arrival = Arrival { ingress, bytes: &bytes, checksums, source };
                world.path.on_frame(Nanos(1), &arrival, &mut world.out, &mut world.notices);
                prop_assert!(world.out.leaving(ingress).all(|leaving| leaving != source));
                prop_assert!(world.out.len() < 200);
                world.out.clear();
            }
        }
    }
}
