//! The roles of the test: plain shells around the client's and the server's machine, echo servers, and
//! the daemon itself. Each is a process; they talk in lines over their standard streams.

use scotfree_core::{
    DeviceId, Effect, Effects, Epoch, KeyHash, Machine, Nanos, SeqNum, SessionId, Tier, Token,
};
use scotfree_io::frame::{Ethernet, Link, MacAddress, VlanTag};
use scotfree_io::packet_port::{FrameBurst, PacketPort, PacketPortConfig};
use scotfree_io::ram::Media;
use scotfree_io::{now_monotonic, Interest, Poller};
use scotfree_session::{
    Client, ClientConfig, ClientOwn, CompletedBy, Mode, RecoveredSession, Request, RequestKind, Server,
    ServerConfig, ServerOwn,
};
use scotfree_switch::impair::{Impairment, Share};
use scotfree_switch::{Command, Daemon, DiskLogConfig, Notices, PortConfig, RamLogConfig, SwitchConfig};
use scotfree_wire::{ClusterKey, ResponseTail};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::mpsc::{channel, Receiver};
use std::time::Duration;

pub const DEVICE: DeviceId = DeviceId(7);

pub fn cluster_key() -> ClusterKey {
    ClusterKey::from_bytes([7; 32])
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// Lines of standard input; its end is the channel's.
fn lines() -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

fn say(line: &str) {
    println!("{line}");
}

/// A datagram socket whose receiving waits a millisecond at most.
struct Socket(UdpSocket);

impl Socket {
    fn bind(local: SocketAddr) -> Socket {
        let socket = UdpSocket::bind(local).expect("the address is free");
        socket.set_read_timeout(Some(Duration::from_millis(1))).expect("a timeout");
        Socket(socket)
    }

    fn receive(&self, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
        self.0.recv_from(buffer).ok()
    }

    fn send(&self, to: SocketAddr, bytes: &[u8]) {
        // What cannot be sent is lost, as on any network.
        let _ = self.0.send_to(bytes, to);
    }
}

/// `client LOCAL SERVER TIER MODE`. Understands `update N`, `time N` (one at a time), `close`.
pub fn client(arguments: &[&str]) {
    let (local, server) = (address(arguments[0]), address(arguments[1]));
    let tier: Tier = arguments[2].parse().expect("a tier");
    let nonce = std::process::id().to_le_bytes().repeat(4).try_into().expect("16 bytes");
    let mut config = ClientConfig::new(local, server, cluster_key(), nonce, 1);
    config.asked = tier.durability();
    config.device_acks_asked = tier.device_count();
    config.window_asked = 256;
    let mut shell = ClientShell {
        client: Client::new(config),
        socket: Socket::bind(local),
        effects: Effects::new(),
        mode: if arguments[3] == "early" { Mode::Early } else { Mode::Covered },
        wanted: 0,
        submitted: 0,
        by_device: 0,
        completed: 0,
        submitted_at: Nanos(0),
        times: None,
    };
    shell.client.open(now_monotonic(), &mut shell.effects);
    shell.run(&lines());
}

struct ClientShell {
    client: Client,
    socket: Socket,
    effects: Effects<ClientOwn>,
    mode: Mode,
    wanted: u64,
    submitted: u64,
    completed: u64,
    by_device: u64,
    submitted_at: Nanos,
    /// The completion times, if updates are timed and go one at a time.
    times: Option<Vec<String>>,
}

impl ClientShell {
    fn run(&mut self, commands: &Receiver<String>) {
        let mut buffer = [0; 2_048];
        while !self.client.is_closed() {
            match commands.try_recv() {
                Ok(command) if command == "close" => self.client.close(now_monotonic(), &mut self.effects),
                Ok(command) => self.on_command(&command),
                Err(_) => {}
            }
            self.carry_out();
            self.submit();
            self.carry_out();
            if let Some((bytes, from)) = self.socket.receive(&mut buffer) {
                let to = self.socket.0.local_addr().expect("an address");
                self.client.on_message(now_monotonic(), from, to, &buffer[..bytes], &mut self.effects);
            }
            if self.client.next_timer().is_some_and(|due| due <= now_monotonic()) {
                self.client.on_timer(now_monotonic(), &mut self.effects);
            }
        }
        self.carry_out();
    }

    fn on_command(&mut self, command: &str) {
        let number = |prefix| command.strip_prefix(prefix)?.parse::<u64>().ok();
        if let Some(count) = number("time ") {
            self.times = Some(Vec::new());
            self.wanted += count;
        }
        self.wanted += number("update ").unwrap_or(0);
    }

    fn submit(&mut self) {
        let outstanding_max = if self.times.is_some() { 1 } else { usize::MAX };
        while self.submitted < self.wanted
            && self.client.is_open()
            && self.client.credit() > 0
            && self.client.outstanding() < outstanding_max
        {
            let payload = format!("update {}", self.submitted + 1);
            self.submitted_at = now_monotonic();
            let request = Request {
                kind: RequestKind::Update,
                mode: self.mode,
                fixed_reply: self.mode == Mode::Early,
                relaxed: false,
                traced: false,
                key_hash: KeyHash(self.submitted),
                payload: payload.as_bytes(),
            };
            self.client.submit(now_monotonic(), request, &mut self.effects).expect("there is credit");
            self.submitted += 1;
        }
    }

    fn carry_out(&mut self) {
        for effect in self.effects.iter() {
            match effect {
                Effect::Send { to, bytes, .. } => self.socket.send(*to, self.effects.bytes(*bytes)),
                Effect::Own(ClientOwn::Opened { .. }) => say("open"),
                Effect::Own(ClientOwn::Complete(completion)) => {
                    self.completed += 1;
                    if let Some(times) = &mut self.times {
                        times.push(now_monotonic().since(self.submitted_at).0.to_string());
                    }
                    self.by_device +=
                        u64::from(matches!(completion.answered_by, CompletedBy::Device(DEVICE)));
                    if self.completed == self.wanted {
                        if let Some(times) = self.times.take() {
                            say(&format!("times {}", times.join(" ")));
                        }
                        say(&format!("completed {} by device {}", self.completed, self.by_device));
                    }
                }
                Effect::Own(ClientOwn::Closed { reason }) => say(&format!("closed {reason:?}")),
                Effect::Own(ClientOwn::LateStamp(_)) | Effect::Persist { .. } | Effect::Erase { .. } => {}
            }
        }
        self.effects.clear();
    }
}

/// `server LOCAL DEVICE_ADDRESS STORE`. Understands `freeze`: from then on it does nothing.
pub fn server(arguments: &[&str]) {
    let (local, device) = (address(arguments[0]), address(arguments[1]));
    let mut store = Store::open(arguments[2]);
    let recovered = store.recovered();
    let epoch = store.begin_epoch();
    let nonce = std::process::id().to_le_bytes().repeat(4).try_into().expect("16 bytes");
    let mut config = ServerConfig::new(local, cluster_key(), epoch, nonce, vec![(DEVICE, device)]);
    config.window = 256;
    let mut shell = ServerShell {
        server: Server::new(config, &recovered),
        socket: Socket::bind(local),
        effects: Effects::new(),
        store,
    };
    shell.server.start(now_monotonic(), &mut shell.effects);
    shell.run(&lines());
}

struct ServerShell {
    server: Server,
    socket: Socket,
    effects: Effects<ServerOwn>,
    store: Store,
}

impl ServerShell {
    fn run(&mut self, commands: &Receiver<String>) {
        let mut buffer = [0; 2_048];
        let mut serving = false;
        loop {
            match commands.try_recv().as_deref() {
                Ok("freeze") => {
                    say("frozen");
                    // Frozen for good: only a signal ends it.
                    while commands.recv().is_ok() {}
                    return;
                }
                Ok("end") | Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
                Ok(_) | Err(std::sync::mpsc::TryRecvError::Empty) => {}
            }
            if let Some((bytes, from)) = self.socket.receive(&mut buffer) {
                let to = self.socket.0.local_addr().expect("an address");
                self.server.on_message(now_monotonic(), from, to, &buffer[..bytes], &mut self.effects);
            }
            if self.server.next_timer().is_some_and(|due| due <= now_monotonic()) {
                self.server.on_timer(now_monotonic(), &mut self.effects);
            }
            self.carry_out();
            if self.server.is_serving() && !serving {
                serving = true;
                say(&format!("serving after {} replays", self.server.counters().replayed));
            }
        }
    }

    fn carry_out(&mut self) {
        while !self.effects.is_empty() {
            let effects = std::mem::take(&mut self.effects);
            let mut last = None;
            for effect in effects.iter() {
                match effect {
                    Effect::Send { to, bytes, .. } => self.socket.send(*to, effects.bytes(*bytes)),
                    Effect::Own(ServerOwn::Execute { ticket, session, seq, payload, .. }) => {
                        self.store.write(*session, *seq, effects.bytes(*payload));
                        let times = ResponseTail::default();
                        self.server.on_executed(
                            now_monotonic(),
                            *ticket,
                            b"done",
                            false,
                            times,
                            &mut self.effects,
                        );
                        last = Some(*ticket);
                    }
                    Effect::Own(ServerOwn::RecordSession { record }) => {
                        self.store.record(record);
                        self.server.on_session_recorded(now_monotonic(), record.session, &mut self.effects);
                    }
                    Effect::Own(ServerOwn::DeleteSession { session }) => {
                        self.server.on_session_deleted(now_monotonic(), *session, &mut self.effects);
                    }
                    Effect::Own(ServerOwn::DeadLetter { session, seq, reason, .. }) => {
                        say(&format!("dead letter {session} {seq} {reason:?}"));
                    }
                    Effect::Persist { .. } | Effect::Erase { .. } => {}
                }
            }
            if let Some(ticket) = last {
                self.store.sync();
                self.server.on_persisted(now_monotonic(), Token(ticket), &mut self.effects);
            }
        }
    }
}

/// What the server keeps: lines in a file.
struct Store {
    file: File,
    text: String,
}

impl Store {
    fn open(path: &str) -> Store {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path).expect("the store");
        let mut text = String::new();
        file.read_to_string(&mut text).expect("the store");
        Store { file, text }
    }

    fn begin_epoch(&mut self) -> Epoch {
        let last = self
            .text
            .lines()
            .filter_map(|line| line.strip_prefix("epoch "))
            .filter_map(|n| n.parse().ok())
            .max();
        let epoch = last.unwrap_or(0_u32) + 1;
        self.line(&format!("epoch {epoch}"));
        self.sync();
        Epoch(epoch)
    }

    fn recovered(&self) -> Vec<RecoveredSession> {
        let mut sessions = BTreeMap::new();
        for line in self.text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["session", id, epoch, client, server] => {
                    let record = RecoveredSession {
                        session: SessionId(id.parse().expect("a number")),
                        epoch: Epoch(epoch.parse().expect("a number")),
                        client_nonce: client.parse::<u128>().expect("a number").to_le_bytes(),
                        server_nonce: server.parse::<u128>().expect("a number").to_le_bytes(),
                        position: SeqNum(0),
                    };
                    sessions.insert(record.session, record);
                }
                ["write", id, seq, ..] => {
                    let session = SessionId(id.parse().expect("a number"));
                    let record = sessions.get_mut(&session).expect("a session before its writes");
                    record.position = SeqNum(seq.parse().expect("a number"));
                }
                _ => {}
            }
        }
        sessions.into_values().collect()
    }

    fn record(&mut self, record: &RecoveredSession) {
        let (client, server) =
            (u128::from_le_bytes(record.client_nonce), u128::from_le_bytes(record.server_nonce));
        self.line(&format!("session {} {} {client} {server}", record.session, record.epoch));
        self.sync();
    }

    fn write(&mut self, session: SessionId, seq: SeqNum, payload: &[u8]) {
        self.line(&format!("write {session} {seq} {}", String::from_utf8_lossy(payload)));
    }

    fn line(&mut self, line: &str) {
        writeln!(self.file, "{line}").expect("the store");
    }

    fn sync(&self) {
        self.file.sync_data().expect("the store");
    }
}

/// `daemon RAM_LOG DISK_LOG FAMILY` (`-` for no log, `v6` for IPv6): the device of the test, ended by
/// the end of its input.
/// Understands `impair PERCENT`, which spoils that share of the frames in every way, at every port.
pub fn daemon(arguments: &[&str]) {
    let mut config = config(arguments.get(2) == Some(&"v6"));
    let given = |at: usize| arguments.get(at).filter(|path| **path != "-");
    config.ram = given(0).map(|path| RamLogConfig { path: path.into(), media: Media::Volatile });
    config.disk = given(1).map(|path| DiskLogConfig { path: path.into(), log_bytes: 16 << 20 });
    let notices = Notices::new(Box::new(|line| say(&format!("notice {line}"))));
    let daemon = match Daemon::start(&config, notices) {
        Ok(daemon) => daemon,
        Err(error) => return say(&format!("refused {error}")),
    };
    say(&format!("metrics {}", daemon.metrics_address().expect("a metrics listener")));
    let handle = daemon.handle();
    std::thread::spawn(move || {
        for line in lines() {
            if let Some(percent) = line.strip_prefix("impair ").and_then(|text| text.parse().ok()) {
                handle.tell(Command::Impair(["p0", "p1"].map(|name| spoilt_port(name, percent)).to_vec()));
            }
        }
        handle.stop();
    });
    match daemon.run() {
        Ok(()) => say("stopped"),
        Err(error) => say(&format!("broken {error}")),
    }
}

fn spoilt_port(name: &str, percent: f64) -> PortConfig {
    let share = Share::from_percent(percent).expect("0 to 100");
    let spoilt = Impairment {
        loss: share,
        duplicate: share,
        reorder: share,
        corrupt: share,
        delay: Nanos::from_micros(100),
        ..Impairment::default()
    };
    PortConfig { ingress: spoilt, egress: Impairment { seed: 2, ..spoilt }, ..PortConfig::new(name) }
}

/// The device between the client and the server.
pub fn config(v6: bool) -> SwitchConfig {
    let (control, server) =
        if v6 { ("[fd77::9]:51000", "[fd77::2]:51000") } else { ("10.77.0.9:51000", "10.77.0.2:51000") };
    let mut config =
        SwitchConfig::new(DEVICE, &["p0", "p1"], address(control), address(server), cluster_key());
    config.functions = vec![remedy_persist::MAKER];
    config.window_max = 256;
    config.sessions_max = 4;
    config.reforward_after = Nanos::from_millis(50);
    config.lease_interval = Nanos::from_millis(50);
    config.metrics = Some(address("127.0.0.1:0"));
    config
}

/// `echo UDP_ADDRESS... TCP_ADDRESS`: returns every datagram, and the sum of what comes by TCP.
pub fn echo(arguments: &[&str]) {
    let (tcp, udp) = arguments.split_last().expect("addresses");
    for text in udp {
        let socket = UdpSocket::bind(address(text)).expect("the address is free");
        std::thread::spawn(move || {
            let mut buffer = [0; 2_048];
            while let Ok((bytes, from)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(&buffer[..bytes], from);
            }
        });
    }
    let listener = TcpListener::bind(address(tcp)).expect("the address is free");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut sum = 0_u64;
            let mut buffer = [0; 4_096];
            while let Ok(bytes) = stream.read(&mut buffer) {
                if bytes == 0 {
                    break;
                }
                sum += buffer[..bytes].iter().map(|byte| u64::from(*byte)).sum::<u64>();
            }
            let _ = stream.write_all(&sum.to_le_bytes());
        }
    });
    say("listening");
    for _ in lines() {}
}

/// `ping UDP_ADDRESS COUNT`: sends datagrams of growing size until each has come back, whole.
pub fn ping(arguments: &[&str]) {
    let to = address(arguments[0]);
    let count: usize = arguments[1].parse().expect("a number");
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).expect("a free port");
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    let mut back = 0;
    for number in 0..count {
        let payload: Vec<u8> = (0..=number * 1_400 / count).map(|at| (at * 7 + number) as u8).collect();
        back += usize::from((0..50).any(|_| comes_back(&socket, to, &payload)));
    }
    say(&format!("came back {back} of {count}"));
}

fn comes_back(socket: &UdpSocket, to: SocketAddr, payload: &[u8]) -> bool {
    let mut buffer = [0; 2_048];
    let _ = socket.send_to(payload, to);
    while let Ok((bytes, from)) = socket.recv_from(&mut buffer) {
        if from == to && buffer[..bytes] == *payload {
            return true;
        }
    }
    false
}

/// The frame type of the tagged frames of this test (IEEE: local experiments).
const ETHERTYPE_TEST: u16 = 0x88B5;

/// `tagged-echo INTERFACE`: returns every tagged frame of the test to its sender.
pub fn tagged_echo(arguments: &[&str]) {
    let mut port = PacketPort::open(arguments[0], &PacketPortConfig::default()).expect("a port");
    say("listening");
    let commands = lines();
    while commands.try_recv() != Err(std::sync::mpsc::TryRecvError::Disconnected) {
        for (link, payload) in tagged_frames(&mut port) {
            let mut frame = Vec::new();
            let back = Link { source: port.mac(), ..link.reversed() };
            back.write(ETHERTYPE_TEST, &mut frame);
            frame.extend_from_slice(&payload);
            port.tx_burst([frame.as_slice()].into_iter()).expect("the port sends");
        }
    }
}

/// `tagged-ping INTERFACE COUNT`: sends frames in virtual networks 1 to COUNT to everybody, and expects
/// each back with its tag.
pub fn tagged_ping(arguments: &[&str]) {
    let mut port = PacketPort::open(arguments[0], &PacketPortConfig::default()).expect("a port");
    let count: u16 = arguments[1].parse().expect("a number");
    let mut back = 0;
    for number in 1..=count {
        // Priority 5 must survive too.
        let vlan = Some(VlanTag(5 << 13 | number));
        let link = Link { destination: MacAddress::BROADCAST, source: port.mac(), vlan };
        let mut frame = Vec::new();
        link.write(ETHERTYPE_TEST, &mut frame);
        frame.extend_from_slice(&[number as u8; 60]);
        port.tx_burst([frame.as_slice()].into_iter()).expect("the port sends");
        let deadline = now_monotonic().plus(Nanos::from_secs(5));
        let mut came = false;
        while !came && now_monotonic() < deadline {
            came = tagged_frames(&mut port)
                .iter()
                .any(|(link, payload)| link.vlan == vlan && *payload == [number as u8; 60]);
        }
        back += u16::from(came);
    }
    say(&format!("came back {back} of {count}"));
}

/// The test's frames that arrive within a millisecond.
fn tagged_frames(port: &mut PacketPort) -> Vec<(Link, Vec<u8>)> {
    let mut poller = Poller::new(1).expect("a poller");
    poller.add(port.as_raw_fd(), 0, Interest::Read).expect("a watch");
    poller.wait(Some(Duration::from_millis(1))).expect("a wait");
    let mut burst = FrameBurst::new(8, 1_518);
    port.rx_burst(&mut burst).expect("the port receives");
    let frames = burst.iter().filter_map(|frame| Ethernet::parse(frame.bytes).ok());
    frames
        .filter(|frame| frame.ethertype == ETHERTYPE_TEST)
        .map(|frame| (frame.link, frame.payload.to_vec()))
        .collect()
}

/// `poke UDP_ADDRESS`: sends one datagram, so that the host asks who has the address.
pub fn poke(arguments: &[&str]) {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a free port");
    socket.send_to(b"hello", address(arguments[0])).expect("a route");
}

/// `stream TCP_ADDRESS BYTES`: sends bytes by TCP and compares the sum that comes back.
pub fn stream(arguments: &[&str]) {
    let bytes: u64 = arguments[1].parse().expect("a number");
    let mut stream = TcpStream::connect(address(arguments[0])).expect("the echo server");
    let block: Vec<u8> = (0..4_096_u32).map(|at| (at * 13) as u8).collect();
    let block_sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    let blocks = bytes / block.len() as u64;
    for _ in 0..blocks {
        stream.write_all(&block).expect("a whole block");
    }
    stream.shutdown(std::net::Shutdown::Write).expect("an end");
    let mut sum = [0; 8];
    stream.read_exact(&mut sum).expect("a sum");
    say(if u64::from_le_bytes(sum) == blocks * block_sum { "whole" } else { "damaged" });
}
