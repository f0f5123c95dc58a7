//! What holds for the whole device, in memory that the kernel's programs read while the daemon writes.
//!
//! Invariant: every access is atomic or to a field that no program reads while it is written: settings
//! are written once, before the first port is attached.

use crate::memory::Memory;
use crate::skeleton::types::{scot_server, scot_shared};
use scotfree_core::{BootEpoch, DeviceId, Durability, Epoch, Nanos, OrderNumber};
use std::io;
use std::mem::offset_of;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{fence, AtomicU32, AtomicU64, AtomicU8, Ordering};

/// How many sessions the programs can keep.
pub const SESSIONS_MAX: usize = 1024;
/// How many servers the programs can keep.
pub const SERVERS_MAX: usize = 16;
/// How many ports a device has at most (`SCOT_PORTS_MAX`).
pub(crate) const PORTS_MAX: usize = 16;
/// The layout that this build reads; it stands in the shared memory.
pub(crate) const VERSION: u32 = 3;
/// Where it stands, in every layout.
const VERSION_AT: usize = 16;
const _: () = assert!(VERSION_AT == offset_of!(scot_shared, version));

/// A key of the packet MAC as the two words that `SipHash` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyWords(pub [u64; 2]);

/// An endpoint as the programs keep it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint(pub SocketAddr);

impl Endpoint {
    pub(crate) fn to_plain(self) -> crate::skeleton::types::scot_address {
        let ip = match self.0.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let octets = ip.octets();
        let word = |half: usize| {
            let bytes: [u8; 8] = octets[half * 8..half * 8 + 8].try_into().expect("8 of 16 bytes");
            u64::from_ne_bytes(bytes)
        };
        crate::skeleton::types::scot_address { ip: [word(0), word(1)], port: self.0.port(), zero: [0; 3] }
    }

    pub(crate) fn from_plain(plain: &crate::skeleton::types::scot_address) -> Endpoint {
        let mut octets = [0; 16];
        octets[..8].copy_from_slice(&plain.ip[0].to_ne_bytes());
        octets[8..].copy_from_slice(&plain.ip[1].to_ne_bytes());
        Endpoint(SocketAddr::new(Ipv6Addr::from(octets).to_canonical(), plain.port))
    }
}

/// What the daemon tells the programs once, before they see a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The device's name.
    pub device: DeviceId,
    /// The servers that it serves, in their order; at most [`SERVERS_MAX`].
    pub servers: Vec<SocketAddr>,
    /// The address of its control messages.
    pub control: SocketAddr,
    /// The first and the last of Scotfree's UDP ports.
    pub ports: (u16, u16),
    /// The key of stamps.
    pub stamp_key: KeyWords,
    /// The device's own station address.
    pub own_mac: [u8; 6],
    /// Of so many of Scotfree's packets one is told of; 0: none.
    pub event_every: u32,
}

impl Settings {
    /// In what these differ from others, which may go on with any of `stamp_keys`; each side in words, keys never.
    /// How many packets are told of can change at any time.
    pub(crate) fn differences(
        &self,
        others: &Settings,
        stamp_keys: &[KeyWords],
    ) -> (Vec<String>, Vec<String>) {
        let mut both = (Vec::new(), Vec::new());
        let mut say = |differs: bool, ours: String, theirs: String| {
            if differs {
                both.0.push(ours);
                both.1.push(theirs);
            }
        };
        let named = |name: &str, value: &dyn std::fmt::Display| format!("{name} {value}");
        let ports = |(first, last): (u16, u16)| format!("UDP ports {first}-{last}");
        let mac = |bytes: [u8; 6]| {
            let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("station address {}", digits.join(":"))
        };
        say(
            self.device != others.device,
            named("device", &self.device),
            named("that of device", &others.device),
        );
        let servers = |settings: &Settings| {
            let servers: Vec<String> = settings.servers.iter().map(SocketAddr::to_string).collect();
            format!("{} {}", if servers.len() == 1 { "server" } else { "servers" }, servers.join(", "))
        };
        say(self.servers != others.servers, servers(self), servers(others));
        let control = |settings: &Settings| named("control address", &settings.control);
        say(self.control != others.control, control(self), control(others));
        say(self.ports != others.ports, ports(self.ports), ports(others.ports));
        let (found, wanted) = ("another cluster key", "one of an epoch in its own key file");
        say(!stamp_keys.contains(&self.stamp_key), found.to_owned(), wanted.to_owned());
        say(self.own_mac != others.own_mac, mac(self.own_mac), mac(others.own_mac));
        both
    }
}

/// The memory shared with the programs.
pub struct Shared {
    memory: Memory,
}

impl Shared {
    pub(crate) fn map(table: BorrowedFd<'_>) -> io::Result<Shared> {
        Ok(Shared { memory: Memory::map(table, size_of::<scot_shared>())? })
    }

    fn place(&self) -> NonNull<scot_shared> {
        self.memory.place().cast()
    }

    /// The word that begins `offset` bytes into the struct.
    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the field is an aligned word of the mapping, which lives as long as `self`.
        unsafe { AtomicU64::from_ptr(self.place().as_ptr().byte_add(offset).cast()) }
    }

    fn half(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the field is an aligned half word of the mapping, which lives as long as `self`.
        unsafe { AtomicU32::from_ptr(self.place().as_ptr().byte_add(offset).cast()) }
    }

    fn byte(&self, offset: usize) -> &AtomicU8 {
        // SAFETY: the field is a byte of the mapping, which lives as long as `self`.
        unsafe { AtomicU8::from_ptr(self.place().as_ptr().byte_add(offset).cast()) }
    }

    /// Writes the settings. There must be no more servers than there is room for. No port may be attached yet, or they must be those that stand there, but for the key of
    /// stamps and how many packets are told of.
    pub fn set(&self, settings: &Settings) {
        // SAFETY: the mapping holds a whole struct; by this function's rule no program reads it now, or
        // what is written does not change it.
        let shared = unsafe { &mut *self.place().as_ptr() };
        shared.device = settings.device.0;
        assert!(settings.servers.len() <= SERVERS_MAX, "more servers than the programs can keep");
        for (place, server) in shared.servers.iter_mut().zip(&settings.servers) {
            place.address = Endpoint(*server).to_plain();
        }
        shared.server_count = settings.servers.len() as u32;
        shared.control = Endpoint(settings.control).to_plain();
        (shared.port_first, shared.port_last) = settings.ports;
        shared.own_mac[..6].copy_from_slice(&settings.own_mac);
        shared.version = VERSION;
        self.set_stamp_key(settings.stamp_key);
        self.half(offset_of!(scot_shared, event_every)).store(settings.event_every, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The settings that stand there.
    pub fn settings(&self) -> Settings {
        // SAFETY: the mapping holds a whole struct, whose settings only its one daemon writes.
        let shared = unsafe { &*self.place().as_ptr() };
        let mut own_mac = [0; 6];
        own_mac.copy_from_slice(&shared.own_mac[..6]);
        let servers = &shared.servers[..SERVERS_MAX.min(shared.server_count as usize)];
        Settings {
            device: DeviceId(shared.device),
            servers: servers.iter().map(|server| Endpoint::from_plain(&server.address).0).collect(),
            control: Endpoint::from_plain(&shared.control).0,
            ports: (shared.port_first, shared.port_last),
            stamp_key: KeyWords([shared.stamp_key.low, shared.stamp_key.high]),
            own_mac,
            event_every: shared.event_every,
        }
    }

    /// Makes the memory nobody's. No port may be attached.
    pub(crate) fn forget(&self) {
        // SAFETY: the mapping holds a whole struct, of which all zeros is a value; no program reads it now.
        unsafe { self.place().as_ptr().write_bytes(0, 1) };
        fence(Ordering::SeqCst);
    }

    /// The name that stands in the memory.
    pub fn device(&self) -> DeviceId {
        // SAFETY: the field lies in the mapping and is written only before ports are attached.
        DeviceId(unsafe { (*self.place().as_ptr()).device })
    }

    /// What the programs know of one of the servers.
    pub fn server(&self, place: usize) -> SharedServer<'_> {
        assert!(place < SERVERS_MAX, "a server's place lies in the table");
        SharedServer { shared: self, at: offset_of!(scot_shared, servers) + place * size_of::<scot_server>() }
    }

    /// What the programs know of the servers, in their order.
    pub fn servers(&self) -> impl Iterator<Item = SharedServer<'_>> {
        let count = self.half(offset_of!(scot_shared, server_count)).load(Ordering::SeqCst);
        (0..SERVERS_MAX.min(count as usize)).map(|place| self.server(place))
    }

    /// Begins all orders anew; every session must be held.
    pub fn orders_restart(&self) {
        (0..SERVERS_MAX).for_each(|place| self.server(place).order_restart());
    }

    /// Sets the key of the stamps that the programs make. One that they make while it changes is under no key,
    /// and refused.
    pub fn set_stamp_key(&self, key: KeyWords) {
        let offset = offset_of!(scot_shared, stamp_key);
        self.word(offset).store(key.0[0], Ordering::SeqCst);
        self.word(offset + size_of::<u64>()).store(key.0[1], Ordering::SeqCst);
    }

    /// Sets the incarnation; every session must be held.
    pub fn set_boot_epoch(&self, boot_epoch: BootEpoch) {
        self.half(offset_of!(scot_shared, boot_epoch)).store(boot_epoch.0, Ordering::SeqCst);
    }

    /// The incarnation.
    pub fn boot_epoch(&self) -> BootEpoch {
        BootEpoch(self.half(offset_of!(scot_shared, boot_epoch)).load(Ordering::SeqCst))
    }

    /// Sets the largest boot epoch seen in a stamp.
    pub fn set_boot_seen(&self, boot_epoch: BootEpoch) {
        self.half(offset_of!(scot_shared, boot_seen)).store(boot_epoch.0, Ordering::SeqCst);
    }

    fn port_at(&self, place: usize) -> &AtomicU32 {
        self.half(offset_of!(scot_shared, ports) + place * size_of::<u32>())
    }

    /// The place of a port among the ports; it keeps it as long as it is one. `None` if it is none.
    pub fn port_place(&self, ifindex: u32) -> Option<u8> {
        let is_here = |place: &usize| ifindex != 0 && self.port_at(*place).load(Ordering::SeqCst) == ifindex;
        (0..PORTS_MAX).find(is_here).map(|place| place as u8)
    }

    /// Gives a port a place, unless it has one; `None` if there are too many.
    pub(crate) fn add_port(&self, ifindex: u32) -> Option<u8> {
        let is_free = |place: &usize| self.port_at(*place).load(Ordering::SeqCst) == 0;
        self.port_place(ifindex).or_else(|| {
            let free = (0..PORTS_MAX).find(is_free)?;
            self.port_at(free).store(ifindex, Ordering::SeqCst);
            Some(free as u8)
        })
    }

    /// The port that has this place; 0 if none has.
    pub(crate) fn port_of(&self, place: usize) -> u32 {
        self.port_at(place).load(Ordering::SeqCst)
    }

    /// Takes a port's place away.
    pub(crate) fn remove_port(&self, place: usize) {
        self.port_at(place).store(0, Ordering::SeqCst);
    }

    /// Sets whether the device is the head of its chain, and what its domains can give.
    pub fn set_role(&self, head: bool, media: Durability) {
        self.byte(offset_of!(scot_shared, head)).store(u8::from(head), Ordering::SeqCst);
        self.byte(offset_of!(scot_shared, media)).store(media.code(), Ordering::SeqCst);
    }

    /// Says that a station was written into its table, so that programs look there.
    pub(crate) fn note_station(&self) {
        self.half(offset_of!(scot_shared, stations_change)).fetch_add(1, Ordering::SeqCst);
    }

    /// Marks a session as held by the daemon, or lets it go. What a program began before that is over
    /// when its table entry has been read under its lock.
    pub(crate) fn set_held(&self, index: u32, held: bool) {
        assert!((index as usize) < SESSIONS_MAX, "a session's place lies in the table");
        let place = offset_of!(scot_shared, held) + index as usize * size_of::<u32>();
        self.half(place).store(u32::from(held), Ordering::SeqCst);
    }
}

/// What the programs know of one server.
#[derive(Clone, Copy)]
pub struct SharedServer<'a> {
    shared: &'a Shared,
    at: usize,
}

impl SharedServer<'_> {
    fn order(&self) -> &AtomicU64 {
        self.shared.word(self.at + offset_of!(scot_server, order_current))
    }

    /// The last order number given.
    pub fn order_current(&self) -> OrderNumber {
        OrderNumber(self.order().load(Ordering::SeqCst))
    }

    /// Gives the next order number.
    pub fn order_next(&self) -> OrderNumber {
        OrderNumber(self.order().fetch_add(1, Ordering::SeqCst) + 1)
    }

    /// Begins the order anew; every session must be held.
    pub fn order_restart(&self) {
        self.order().store(0, Ordering::SeqCst);
    }

    /// Sets until when the programs may acknowledge, on the clock of `CLOCK_MONOTONIC`.
    pub fn set_lease(&self, until: Nanos) {
        self.shared.word(self.at + offset_of!(scot_server, lease_until)).store(until.0, Ordering::SeqCst);
    }

    /// Until when the programs may acknowledge.
    pub fn lease(&self) -> Nanos {
        Nanos(self.shared.word(self.at + offset_of!(scot_server, lease_until)).load(Ordering::SeqCst))
    }

    /// Sets the largest epoch that has polled the device.
    pub fn set_epoch(&self, epoch: Epoch) {
        self.shared.half(self.at + offset_of!(scot_server, epoch)).store(epoch.0, Ordering::SeqCst);
    }

    /// Sets the largest epoch under which it has said anything to the device.
    pub fn set_heard_epoch(&self, epoch: Epoch) {
        self.shared.half(self.at + offset_of!(scot_server, heard_epoch)).store(epoch.0, Ordering::SeqCst);
    }

    /// Sets whether it has accepted the device's incarnation.
    pub fn set_accepted(&self, accepted: bool) {
        let place = self.shared.byte(self.at + offset_of!(scot_server, accepted));
        place.store(u8::from(accepted), Ordering::SeqCst);
    }

    /// Whether it has accepted the device's incarnation.
    pub fn accepted(&self) -> bool {
        self.shared.byte(self.at + offset_of!(scot_server, accepted)).load(Ordering::SeqCst) != 0
    }

    /// Says behind which port it lives.
    pub fn set_ifindex(&self, ifindex: u32) {
        self.shared.half(self.at + offset_of!(scot_server, ifindex)).store(ifindex, Ordering::SeqCst);
    }

    /// Behind which port it lives; 0 if that is not known.
    pub fn ifindex(&self) -> u32 {
        self.shared.half(self.at + offset_of!(scot_server, ifindex)).load(Ordering::SeqCst)
    }
}

/// The layout that a kept table says it has, whichever that is; 0 if nobody has written it.
pub(crate) fn layout_of(table: BorrowedFd<'_>, bytes: usize) -> io::Result<u32> {
    if bytes < VERSION_AT + size_of::<u32>() {
        return Ok(u32::MAX);
    }
    let memory = Memory::map(table, bytes)?;
    // SAFETY: the word lies in the mapping, and is aligned.
    let word = unsafe { AtomicU32::from_ptr(memory.place().as_ptr().byte_add(VERSION_AT).cast()) };
    Ok(word.load(Ordering::Acquire))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_that_of_the_programs() {
        let header = include_str!("../../../bpf/include/scot_shared.h");
        assert!(header.contains(&format!("#define SCOT_SHARED_VERSION {VERSION}u\n")));
    }

    #[test]
    fn what_is_kept_goes_on_under_any_epoch_of_the_key() {
        let settings = |key: u64| Settings {
            device: DeviceId(7),
            servers: vec!["10.77.0.2:51000".parse().expect("it is plain")],
            control: "10.77.0.254:51000".parse().expect("it is plain"),
            ports: (51000, 51000),
            stamp_key: KeyWords([key; 2]),
            own_mac: [2; 6],
            event_every: 0,
        };
        let (older, newer) = (settings(1), Settings { event_every: 100, ..settings(2) });
        let epochs = [newer.stamp_key, older.stamp_key];
        assert_eq!(older.differences(&newer, &epochs), (vec![], vec![]));
        let (found, _) = older.differences(&newer, &epochs[..1]);
        assert_eq!(found, ["another cluster key"]);
    }
}
