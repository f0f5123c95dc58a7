//! The server's side: all its clients' rings as one transport.
//!
//! Invariant: an address names a ring in one life of it: what is sent to a client that is gone reaches no later one.

use crate::bell::Bell;
use crate::handover::{connect, grant, has_ended, is_trusted, refuse, HandoverError, RingConfig};
use crate::region::Region;
use crate::RingCounters;
use remedy_ring::{Burst, Memory as _, Notify, Refused, RingServer, Room, Shape};
use rustix::io::Errno;
use scotfree_core::Nanos;
use scotfree_io::{Interest, Poller, RxBurst, Stamps, Transport, TxPacket};
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) const HOW: (Notify, Room) = (Notify::Marks, Room::ByHead);
/// How often it is looked at the rings between two looks at what needs a system call.
pub(crate) const GLANCES: u32 = 64;
/// So often rings are looked at between two looks at whoever comes and goes, unless this side has slept.
pub(crate) const ATTEND_EVERY: u32 = 64;
const EVENTS_MAX: usize = 64;
/// Keys of the poller: the bell, the listening socket, and the client of each ring.
const BELL: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;
/// How many newcomers are let in before those who are there are heard again.
const ACCEPTS_MAX: usize = 4;
/// Of addresses that name rings: a prefix for what is local, with our name in it.
const PREFIX: [u16; 3] = [0xfd73, 0x636f, 0x7400];

const NO_DESCRIPTORS: &str = "it has no descriptors left: raise its ulimit -n";

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(code) if code == Errno::MFILE.raw_os_error() || code == Errno::NFILE.raw_os_error())
}

/// What clients of rings call their server.
pub fn server_address() -> SocketAddr {
    let [a, b, c] = PREFIX;
    SocketAddr::from((Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), 1))
}

/// What a server calls the client of a ring in one of its lives.
fn address_of(ring: usize, life: u32) -> SocketAddr {
    let [a, b, c] = PREFIX;
    let halves = [(life >> 16) as u16, life as u16, (ring >> 16) as u16, ring as u16];
    SocketAddr::from((Ipv6Addr::new(a, b, c, 1, halves[0], halves[1], halves[2], halves[3]), 1))
}

/// (ring, life) of a client's address.
fn ring_at(address: SocketAddr) -> Option<(usize, u32)> {
    let IpAddr::V6(ip) = address.ip() else { return None };
    let [a, b, c, one, life_high, life_low, ring_high, ring_low] = ip.segments();
    let join = |high: u16, low: u16| u32::from(high) << 16 | u32::from(low);
    ([a, b, c] == PREFIX && one == 1).then(|| (join(ring_high, ring_low) as usize, join(life_high, life_low)))
}

struct Client {
    life: u32,
    bell: Bell,
    stream: UnixStream,
}

/// All rings of a server, and the socket where clients ask for one.
pub struct RingListener {
    path: PathBuf,
    listener: UnixListener,
    /// A descriptor that is given up where there are no more, to tell a client so.
    spare: Option<Bell>,
    region: Region,
    server: RingServer,
    bell: Bell,
    poller: Poller,
    clients: Vec<Option<Client>>,
    lives: u32,
    burst: Burst,
    /// Clients to be woken when all of a burst is written.
    asleep: Vec<usize>,
    /// Rings whose clients have gone, and how often they are looked into still: what was said before the end counts.
    leaving: Vec<(usize, u32)>,
    /// The socket's file, told from another that was put in its place.
    identity: (u64, u64),
    has_slept: bool,
    unattended: u32,
    counters: RingCounters,
}

impl RingListener {
    /// Listens at `path`. A socket that a server left which was killed is taken over.
    pub fn bind(path: &Path, config: &RingConfig) -> Result<RingListener, HandoverError> {
        let of_socket = |source: io::Error| HandoverError::Listen { path: path.to_owned(), source };
        let shape = Shape::new(config.entries, config.entry_bytes)?;
        make_way(path)?;
        let region =
            Region::create(config.rings_max, shape).map_err(|source| HandoverError::Memory { source })?;
        let listener = UnixListener::bind(path).map_err(of_socket)?;
        let prepared = (|| {
            fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
            listener.set_nonblocking(true)?;
            let (bell, spare, poller) = (Bell::new()?, Bell::new()?, Poller::new(EVENTS_MAX)?);
            poller.add(bell.as_raw_fd(), BELL, Interest::Read)?;
            poller.add(listener.as_raw_fd(), LISTENER, Interest::Read)?;
            let identity = identity_of(path).ok_or(ErrorKind::NotFound)?;
            Ok((bell, spare, poller, identity))
        })();
        let (bell, spare, poller, identity) = prepared.map_err(of_socket)?;
        Ok(RingListener {
            path: path.to_owned(),
            listener,
            spare: Some(spare),
            server: RingServer::new(config.rings_max, shape, HOW, config.quota),
            region,
            bell,
            poller,
            clients: (0..config.rings_max).map(|_| None).collect(),
            lives: 0,
            burst: Burst::new(),
            asleep: Vec::new(),
            leaving: Vec::new(),
            identity,
            has_slept: false,
            unattended: 0,
            counters: RingCounters::default(),
        })
    }

    /// What has happened so far.
    pub fn counters(&self) -> RingCounters {
        self.counters
    }

    /// How many clients have a ring.
    pub fn client_count(&self) -> usize {
        self.server.open_count()
    }

    /// Looks after whoever comes and goes.
    fn attend(&mut self) -> io::Result<()> {
        self.unattended = 0;
        let keys: Vec<u64> = self.poller.wait(Some(Duration::ZERO))?.iter().map(|event| event.key).collect();
        for key in keys {
            match key {
                BELL => self.bell.hush()?,
                LISTENER => self.accept(),
                ring => self.hear(ring as usize),
            }
        }
        Ok(())
    }

    fn accept(&mut self) {
        // The rest is told of again.
        for _ in 0..ACCEPTS_MAX {
            match self.listener.accept() {
                Ok((stream, _)) => self.welcome(stream),
                Err(error) if is_out_of_descriptors(&error) => {
                    // Whoever is left waiting would keep the socket readable, and this loop awake: with the spare one
                    // he is told instead.
                    if self.spare.take().is_none() {
                        return;
                    }
                    if let Ok((stream, _)) = self.listener.accept() {
                        self.refuse(&stream, NO_DESCRIPTORS);
                    }
                    self.spare = Bell::new().ok();
                }
                // Nobody waits, or who did has gone again.
                Err(_) => return,
            }
        }
    }

    fn welcome(&mut self, stream: UnixStream) {
        match (is_trusted(&stream), self.server.closed()) {
            (Err(reason), _) => self.refuse(&stream, &reason),
            (Ok(()), None) => {
                let rings = self.region.rings();
                self.refuse(
                    &stream,
                    &format!("all its {rings} rings are taken: try again when a client has left"),
                );
            }
            (Ok(()), Some(ring)) => match self.prepare(ring, &stream) {
                Ok(bell) => self.open(ring, stream, bell),
                Err(_) => self.refuse(&stream, NO_DESCRIPTORS),
            },
        }
    }

    fn refuse(&mut self, stream: &UnixStream, reason: &str) {
        self.counters.refused += 1;
        refuse(stream, reason);
    }

    /// What a client's ring needs beside its memory.
    fn prepare(&mut self, ring: usize, stream: &UnixStream) -> io::Result<Bell> {
        stream.set_nonblocking(true)?;
        let bell = Bell::new()?;
        self.poller.add(stream.as_raw_fd(), ring as u64, Interest::Read)?;
        Ok(bell)
    }

    fn open(&mut self, ring: usize, stream: UnixStream, bell: Bell) {
        self.server.open(&self.region, ring);
        if grant(&stream, &self.region, ring, [&self.bell, &bell]).is_err() {
            // Its client has gone already.
            return self.server.close(ring);
        }
        self.lives = self.lives.wrapping_add(1);
        self.clients[ring] = Some(Client { life: self.lives, bell, stream });
        self.counters.granted += 1;
    }

    /// A client's socket tells of something: it has ended, or it says what it should not.
    fn hear(&mut self, ring: usize) {
        let Some(client) = &self.clients[ring] else { return };
        if !has_ended(&client.stream) {
            return;
        }
        // It is heard of no more, and its ring until that is empty.
        if self.poller.remove(client.stream.as_raw_fd()).is_ok() {
            self.leaving.push((ring, self.region.shape().entries()));
        }
    }

    fn close(&mut self, ring: usize) {
        self.clients[ring] = None;
        self.server.close(ring);
        self.region.forget(ring);
    }

    /// Closes the rings of those who have gone when nothing lies in them any more; who writes on has a ring's worth of
    /// looks.
    fn let_go(&mut self) {
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.retain_mut(|(ring, looks)| {
            *looks = looks.saturating_sub(1);
            let stays = *looks > 0 && self.server.look_into(&self.region, *ring);
            if !stays {
                self.close(*ring);
            }
            stays
        });
        self.leaving = leaving;
    }

    fn send(&mut self, packet: &TxPacket<'_>) {
        let found = ring_at(packet.to).filter(|(ring, life)| {
            self.clients.get(*ring).and_then(Option::as_ref).is_some_and(|client| client.life == *life)
        });
        let Some((ring, _)) = found else {
            self.counters.tx_unroutable += 1;
            return;
        };
        match self.server.answer(&self.region, ring, 0, packet.bytes) {
            Ok(wakes) => {
                self.counters.tx_packets += 1;
                if wakes {
                    self.asleep.push(ring);
                }
            }
            Err(Refused::Full) => self.counters.tx_full += 1,
            Err(Refused::TooLong { .. }) => self.counters.tx_too_long += 1,
        }
    }

    fn wake(&mut self) -> io::Result<()> {
        self.asleep.sort_unstable();
        self.asleep.dedup();
        for ring in self.asleep.drain(..) {
            if let Some(client) = &self.clients[ring] {
                self.counters.wakes += 1;
                client.bell.ring()?;
            }
        }
        Ok(())
    }
}

/// Removes what a server left that was killed, and nothing else.
fn make_way(path: &Path) -> Result<(), HandoverError> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(HandoverError::NotASocket { path: path.to_owned() });
    }
    match connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|source| HandoverError::Listen { path: path.to_owned(), source })
        }
        // One that takes no more connections lives as well.
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            Err(HandoverError::InUse { path: path.to_owned() })
        }
        Err(source) => Err(HandoverError::Listen { path: path.to_owned(), source }),
        Ok(_) => Err(HandoverError::InUse { path: path.to_owned() }),
    }
}

/// (device, inode) of a file, if it is there.
fn identity_of(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

impl Transport for RingListener {
    fn rx_burst(&mut self, out: &mut RxBurst) -> io::Result<usize> {
        out.clear();
        let has_slept = std::mem::take(&mut self.has_slept);
        if has_slept {
            self.server.awake(&self.region);
        }
        self.unattended += 1;
        // Whoever comes and goes does so before anything is taken: what is taken is of those who are there.
        if has_slept || self.unattended >= ATTEND_EVERY {
            self.attend()?;
        }
        self.server.look(&self.region);
        self.server.take(&self.region, out.burst_max(), &mut self.burst);
        for (request, bytes) in self.burst.iter() {
            let Some(client) = &self.clients[request.ring] else { continue };
            if out.push(address_of(request.ring, client.life), None, bytes) {
                self.counters.rx_packets += 1;
            } else {
                self.counters.rx_truncated += 1;
            }
        }
        for nth in 0..self.burst.broken().len() {
            let (ring, _) = self.burst.broken()[nth];
            self.counters.broken += 1;
            self.leaving.retain(|(leaving, _)| *leaving != ring);
            self.clients[ring] = None;
            self.region.forget(ring);
        }
        self.let_go();
        Ok(out.len())
    }

    fn tx_burst(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
        for packet in packets {
            self.send(packet);
        }
        self.wake()?;
        Ok(packets.len())
    }

    fn tx_stamps(&mut self, _out: &mut Vec<(u32, Nanos)>) {}

    fn mtu(&self) -> usize {
        self.region.shape().payload_bytes()
    }

    fn stamps(&self) -> Stamps {
        Stamps::None
    }

    fn local_address(&self) -> SocketAddr {
        server_address()
    }

    fn poll_fd(&self) -> Option<RawFd> {
        Some(self.poller.as_raw_fd())
    }

    fn events(&self) -> Vec<(&'static str, u64)> {
        self.counters.events()
    }

    fn glances(&self) -> u32 {
        GLANCES
    }

    fn glance(&mut self) -> bool {
        !self.leaving.is_empty() || self.server.look(&self.region)
    }

    fn may_sleep(&mut self) -> bool {
        let may_sleep = self.leaving.is_empty() && self.server.may_sleep(&self.region);
        self.has_slept |= may_sleep;
        may_sleep
    }
}

impl Drop for RingListener {
    fn drop(&mut self) {
        if identity_of(&self.path) == Some(self.identity) {
            // One that cannot be removed is taken over by the next server.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_a_ring_in_one_of_its_lives() {
        for (ring, life) in [(0, 1), (1_023, 70_000), (65_536, u32::MAX)] {
            assert_eq!(ring_at(address_of(ring, life)), Some((ring, life)));
        }
        let others: [SocketAddr; 2] = [server_address(), SocketAddr::from(([127, 0, 0, 1], 1))];
        assert_eq!(others.map(ring_at), [None, None]);
    }
}
