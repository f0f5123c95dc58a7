//! What the operator of a sidecar is told when something is not as it should be.

mod support;

use scotfree_core::{DeviceId, SeqNum, SessionId};
use scotfree_io::conformance::ports::free_address;
use scotfree_io::now_monotonic;
use scotfree_resp::codec::{write_command, Command};
use scotfree_resp::payload::{RequestHead, RequestKind};
use scotfree_rpc::metrics::{Health, MetricsBoard, MetricsText};
use scotfree_rpc::{DeadLetter, Execution, Handler, Replies, Service, Stop};
use scotfree_session::DeadLetterReason;
use scotfree_sidecar::client::{ClientSidecar, ClientSidecarConfig};
use scotfree_sidecar::notices::Notices;
use scotfree_sidecar::redis::RedisAddress;
use scotfree_sidecar::server::{self, RedisService, RedisServiceConfig, ServerSidecarConfig, SidecarError};
use scotfree_wire::ClusterKey;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::mpsc::{channel, Receiver};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use support::proxy::{Fault, Proxy};
use support::{RedisServer, PATIENCE};

/// What says that the server's sidecar has started.
const STARTED: &str = "connections of predecessors ended";

/// Lines as they come.
struct Lines(Receiver<String>);

impl Lines {
    fn new() -> (Notices, Lines) {
        let (sender, lines) = channel();
        (Notices::new(move |line| drop(sender.send(line.to_owned()))), Lines(lines))
    }

    /// The next line with these words.
    fn with(&self, words: &str) -> String {
        loop {
            let line = self.0.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("nobody says `{words}`"));
            if line.contains(words) {
                return line;
            }
        }
    }
}

/// A server's sidecar in a thread.
struct Running {
    stop: Stop,
    thread: JoinHandle<Result<(), SidecarError>>,
    address: SocketAddr,
    lines: Lines,
    board: MetricsBoard,
}

fn key(byte: u8) -> ClusterKey {
    ClusterKey::from_bytes([byte; 32])
}

fn start(socket: &Path, devices: Vec<(DeviceId, SocketAddr)>) -> Running {
    start_as(None, socket, devices)
}

fn start_as(user: Option<(&str, &str)>, socket: &Path, devices: Vec<(DeviceId, SocketAddr)>) -> Running {
    let (notices, lines) = Lines::new();
    let letters = socket.with_file_name("dead-letters");
    let mut service = RedisServiceConfig::new(RedisAddress::Unix(socket.to_owned()), letters);
    service.notices = notices;
    service.back.credentials = user.map(|(name, password)| (name.to_owned(), password.to_owned()));
    let address = free_address();
    let config = ServerSidecarConfig {
        devices,
        tunnel_listen: None,
        ..ServerSidecarConfig::new(address, key(7), service)
    };
    let stop = Stop::new().expect("a waker");
    let board = MetricsBoard::new();
    let (ending, publishing) = (stop.clone(), board.clone());
    let thread = std::thread::spawn(move || server::run(&config, &ending, Some(&publishing)));
    Running { stop, thread, address, lines, board }
}

impl Running {
    fn end(self) -> Result<(), SidecarError> {
        self.stop.stop();
        self.thread.join().expect("no panic")
    }
}

/// Why a client's sidecar does not start, and what it says meanwhile.
fn try_client(server: SocketAddr, cluster_key: ClusterKey) -> (String, Lines) {
    let (notices, lines) = Lines::new();
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let config = ClientSidecarConfig {
        notices,
        start_time_max: Duration::from_secs(3),
        ..ClientSidecarConfig::new(any, any, server, cluster_key)
    };
    let error = ClientSidecar::start(&config).err().expect("it cannot start");
    (error.to_string(), lines)
}

#[test]
fn garbage_is_sampled_into_the_log() {
    let Some(redis) = RedisServer::start(&["--appendonly yes"]) else { return };
    let server = start(&redis.socket(), Vec::new());
    server.board.wait_until_serving();
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let from = socket.local_addr().expect("bound");
    for _ in 0..100 {
        socket.send_to(&[0xaa; 100], server.address).expect("it is sent");
    }
    let line = server.lines.with("dropped a packet");
    assert!(line.contains(&format!("100 bytes from {from}: wrong_magic")), "{line}");
    socket.send_to(b"x", server.address).expect("it is sent");
    let line = server.lines.with("dropped a packet");
    assert!(line.contains("truncated"), "one line for the hundred, then one of another reason: {line}");
    server.end().expect("it ends as it should");
}

#[test]
fn a_client_with_another_key_is_told_soon_and_so_is_the_server() {
    let Some(redis) = RedisServer::start(&["--appendonly yes"]) else { return };
    let server = start(&redis.socket(), Vec::new());
    server.board.wait_until_serving();
    let (error, lines) = try_client(server.address, key(8));
    let said = lines.with("nothing answers at");
    for text in [&said, &error] {
        assert!(
            text.contains(&server.address.to_string()) && text.contains("is its key file the same?"),
            "{text}"
        );
    }
    assert!(said.ends_with("trying on"), "{said}");
    server.lines.with("has it the same key file?");
    server.end().expect("it ends as it should");
}

#[test]
fn a_device_that_is_not_there_is_named() {
    let Some(redis) = RedisServer::start(&["--appendonly yes"]) else { return };
    let nobody = free_address();
    let server = start(&redis.socket(), vec![(DeviceId(1), nobody)]);
    let line = server.lines.with("not serving yet");
    assert!(line.starts_with("ALARM") && line.contains(&format!("device 1 at {nobody}")), "{line}");
    server.end().expect("it ends as it should");
}

#[test]
fn a_server_that_is_lost_is_said_once_and_its_return_too() {
    let Some(mut redis) = RedisServer::start(&["--appendonly yes"]) else { return };
    let server = start(&redis.socket(), Vec::new());
    server.lines.with(STARTED);
    redis.kill();
    let lost = server.lines.with("trying again");
    assert!(lost.contains(&redis.socket().display().to_string()), "{lost}");
    redis.restart();
    let mut lines = 0;
    while !server.lines.with("").contains(STARTED) {
        lines += 1;
    }
    assert!(lines < 5, "{lines} lines while it was away");
    server.end().expect("it ends as it should");
}

#[test]
fn a_server_that_comes_back_empty_is_not_taken_for_a_second_sidecar() {
    let Some(mut redis) = RedisServer::start(&["--appendonly yes"]) else { return };
    let server = start(&redis.socket(), Vec::new());
    server.lines.with(STARTED);
    redis.kill();
    server.lines.with("trying again");
    std::fs::remove_dir_all(redis.folder.join("appendonlydir")).expect("it is the server's");
    redis.restart();
    let error = server.thread.join().expect("no panic").expect_err("it ends").to_string();
    assert!(error.contains("the server's data was lost or replaced"), "{error}");
    assert!(!error.contains("another sidecar"), "{error}");
}

#[test]
fn updates_of_sessions_that_the_server_never_had_are_said_with_their_number() {
    let Some(redis) = RedisServer::start(&["--appendonly yes"]) else { return };
    let letters = redis.folder.join("dead-letters");
    let config = RedisServiceConfig::new(RedisAddress::Unix(redis.socket()), letters.clone());
    let started = RedisService::start(&config, &Stop::new().expect("a waker")).expect("it can be used");
    let (mut service, _) = started.expect("nobody stops it");
    assert_eq!(service.say_strangers(now_monotonic()), None);
    for seq in 1..=46 {
        let (session, seq) = (SessionId(9), SeqNum(seq));
        let reason = DeadLetterReason::UnknownSession;
        service.dead_letter(&DeadLetter { session, seq, reason, payload: b"" });
    }
    let said = service.say_strangers(now_monotonic()).expect("it is time");
    assert!(
        said.starts_with("46 updates of sessions") && said.contains(&letters.display().to_string()),
        "{said}"
    );
    assert!(said.contains("lost its data") && said.contains("another one is behind this sidecar"), "{said}");
}

#[test]
fn nonsense_from_the_server_is_an_alarm_and_a_number() {
    let Some(redis) = RedisServer::start(&["--appendonly yes"]) else { return };
    let proxy = Proxy::start(&redis.socket());
    let (notices, lines) = Lines::new();
    let letters = redis.folder.join("dead-letters");
    let config = RedisServiceConfig {
        notices,
        ..RedisServiceConfig::new(RedisAddress::Unix(proxy.path.clone()), letters)
    };
    let started = RedisService::start(&config, &Stop::new().expect("a waker")).expect("it can be used");
    let (mut service, _) = started.expect("nobody stops it");
    proxy.plant("culprit", Fault::Nonsense);
    let mut payload = Vec::new();
    RequestHead::default().write(&mut payload);
    write_command(&mut payload, Command::new(["GET", "culprit"]).args());
    let (session, seq, kind) = (SessionId(9), SeqNum(1), RequestKind::Read);
    let mut replies = Replies::new();
    let request =
        Execution { ticket: 1, session, seq, kind, payload: &payload, is_replayed: false, identity: None };
    service.execute(&request, &mut replies);
    let deadline = Instant::now() + PATIENCE;
    while service.counters().executed == 0 {
        assert!(Instant::now() < deadline, "nobody answers");
        service.poll(false, &mut replies);
    }
    let line = lines.with("has answered nonsense");
    assert!(line.starts_with("ALARM: ") && line.contains("`HTTP/1.1 400 Bad Request\\r\\n`"), "{line}");
    assert!(line.contains(&proxy.path.display().to_string()), "{line}");
    let mut text = MetricsText::new();
    service.write_metrics(&mut text);
    assert!(text.as_str().contains("\nscotfree_redis_nonsense_total 1\n"), "{}", text.as_str());
}

#[test]
fn a_server_that_closes_without_a_word_may_be_at_a_port_of_tls() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it has one");
    // As a server of TLS does with what is no handshake.
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("somebody connects");
        socket.read(&mut [0; 1]).map(drop)
    });
    let letters = std::env::temp_dir().join(format!("scot-silent-server-{}", std::process::id()));
    let config = RedisServiceConfig::new(RedisAddress::Tcp(address), letters.clone());
    let started = RedisService::start(&config, &Stop::new().expect("a waker"));
    let error = started.err().expect("nobody answers").to_string();
    assert!(error.contains("is it a tls-port? (scot proxy --redis-tls)"), "{error}");
    server.join().expect("no panic").expect("something was sent");
    std::fs::remove_file(letters).expect("it was opened");
}

#[test]
fn dead_letters_that_could_not_be_written_are_an_error_at_the_start() {
    let Some(redis) = RedisServer::start(&["--appendonly yes"]) else { return };
    std::fs::create_dir(redis.folder.join("dead-letters")).expect("it is ours");
    let server = start(&redis.socket(), Vec::new());
    let error = server.thread.join().expect("no panic").expect_err("it cannot start");
    assert!(matches!(error, SidecarError::DeadLetters { .. }), "{error}");
    assert!(error.to_string().contains("--dead-letters FILE"), "{error}");
}

/// Why a sidecar does not start.
fn refusal(socket: &Path, user: Option<(&str, &str)>) -> String {
    let server = start_as(user, socket, Vec::new());
    server.thread.join().expect("no panic").expect_err("it cannot start").to_string()
}

#[test]
fn a_server_that_lets_nobody_in_is_an_error_that_says_how_to_get_in() {
    let Some(redis) = RedisServer::start(&["--appendonly yes", "--requirepass secret"]) else { return };
    let socket = redis.socket();
    let mut admin = redis.connect();
    admin.line("AUTH secret");
    admin.line("ACL SETUSER ada on >lovelace ~* +ping +client");
    for (user, said, next) in [
        (None, "NOAUTH", "--redis-password-file FILE"),
        (Some(("default", "wrong")), "WRONGPASS", "put the password of the user `default`"),
        (Some(("nobody", "secret")), "WRONGPASS", "redis-cli ACL GETUSER nobody"),
        (Some(("ada", "lovelace")), "NOPERM", "redis-cli ACL SETUSER ada '+@all'"),
    ] {
        let error = refusal(&socket, user);
        assert!(error.contains(said) && error.contains(next), "{error}");
        assert!(
            error.starts_with(&format!("the Redis server at unix:{} cannot", socket.display())),
            "{error}"
        );
    }
}

/// What the server's sidecar says of itself.
fn until_health(board: &MetricsBoard, is_there: impl Fn(Health) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_there(board.health()) {
        assert!(Instant::now() < deadline, "the health is {:?}", board.health());
        std::thread::yield_now();
    }
}

/// Sends a line and returns the line that answers it.
fn ask(client: &mut BufReader<TcpStream>, line: &str) -> String {
    client.get_mut().write_all(format!("{line}\r\n").as_bytes()).expect("it reads");
    let mut answer = String::new();
    client.read_line(&mut answer).expect("an answer in time");
    answer.trim_end().to_owned()
}

/// A client's sidecar of the server's, where clients connect.
struct ClientSide {
    address: SocketAddr,
    stop: Stop,
    running: JoinHandle<Result<(), SidecarError>>,
}

impl ClientSide {
    fn start(server: SocketAddr) -> ClientSide {
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let config = ClientSidecarConfig::new(any, any, server, key(7));
        let mut sidecar = ClientSidecar::start(&config).expect("the server's sidecar answers");
        let address = sidecar.addresses()[0];
        let stop = Stop::new().expect("a waker");
        let ending = stop.clone();
        let running = std::thread::spawn(move || sidecar.run(&ending, None, &mut |_| ()));
        ClientSide { address, stop, running }
    }

    fn connect(&self) -> BufReader<TcpStream> {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout is possible");
        BufReader::new(stream)
    }

    fn end(self) {
        self.stop.stop();
        self.running.join().expect("no panic").expect("it ends as it should");
    }
}

#[test]
fn a_password_set_while_it_serves_keeps_nobody_waiting() {
    let Some(redis) = RedisServer::start(&["--appendonly yes"]) else { return };
    let server = start(&redis.socket(), Vec::new());
    server.board.wait_until_serving();
    let clients = ClientSide::start(server.address);
    let mut steady = clients.connect();
    assert_eq!(ask(&mut steady, "SET n 1"), "+OK");
    let mut admin = redis.connect();
    admin.line("CONFIG SET requirepass pw");
    let mut late = clients.connect();
    let answer = ask(&mut late, "AUTH pw");
    // The client is not to take it for its own password.
    let own = "-TRYAGAIN scotfree: the server refuses the user of scot itself";
    assert!(answer.starts_with(own) && answer.contains("NOAUTH Authentication required."), "{answer}");
    assert!(ask(&mut steady, "WATCH n").starts_with(own), "it needs a connection of its own");
    assert_eq!(ask(&mut steady, "INCR n"), ":2", "nothing waits behind the others");
    assert_eq!(ask(&mut late, "INCR n"), ":3");
    let line = server.lines.with("no new connections");
    assert!(line.starts_with("ALARM") && line.contains("--redis-password-file"), "{line}");
    assert!(line.contains("clients that give no password are served as before"), "{line}");
    until_health(
        &server.board,
        |health| matches!(health, Health::NotServing(why) if why.contains("connections")),
    );
    admin.line("AUTH pw");
    admin.send(b"CONFIG SET requirepass \"\"\r\n");
    assert_eq!(support::text(&admin.reply()), "+OK\\r\\n");
    server.lines.with("new connections be opened again");
    until_health(&server.board, |health| health == Health::Serving);
    assert_eq!(ask(&mut steady, "WATCH n"), "+OK");
    clients.end();
    server.end().expect("it ends as it should");
}

fn copy_files(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir_all(to).expect("it can be made");
    for file in std::fs::read_dir(from).expect("it is there") {
        let file = file.expect("it can be read");
        std::fs::copy(file.path(), to.join(file.file_name())).expect("there is room");
    }
}

#[test]
fn a_server_that_has_followed_an_older_copy_is_refused_until_its_data_is_back() {
    let Some(mut redis) = RedisServer::start(&["--appendonly yes"]) else { return };
    let port = free_address().port();
    let listens = format!("--port {port}");
    let options = [&listens, "--appendonly yes", "--repl-diskless-sync-delay 0"];
    let Some(mut other) = RedisServer::start(&options) else { return };
    let server = start(&redis.socket(), Vec::new());
    server.board.wait_until_serving();
    let clients = ClientSide::start(server.address);
    // What was before is stable when this is answered.
    let count_to = |last: u64| {
        let mut asking = clients.connect();
        while ask(&mut asking, "INCR n") != format!(":{last}") {}
        assert_eq!(ask(&mut asking, "SPOP none"), "$-1");
    };
    let (files, copy, good) =
        ("appendonlydir", other.folder.join("appendonlydir"), redis.folder.join("good"));
    count_to(5);
    other.kill();
    copy_files(&redis.folder.join(files), &copy);
    other.restart();
    count_to(10);
    copy_files(&redis.folder.join(files), &good);

    let mut admin = redis.connect();
    admin.line(&format!("REPLICAOF 127.0.0.1 {port}"));
    while !support::text(&admin.line("INFO replication")).contains("link_status:up") {
        std::thread::yield_now();
    }
    server.lines.with("role is `slave`");
    admin.line("REPLICAOF NO ONE");
    server.lines.with("older data than it had called stable");
    until_health(&server.board, |health| matches!(health, Health::NotServing(_)));
    assert_eq!(admin.line("GET n"), b"$1\r\n5\r\n");

    redis.kill();
    copy_files(&good, &redis.folder.join(files));
    redis.restart();
    until_health(&server.board, |health| health == Health::Serving);
    count_to(11);
    clients.end();
    server.end().expect("it ends as it should");
}

#[test]
fn a_server_that_is_no_master_or_not_there_is_an_error_that_says_what_to_do() {
    let Some(redis) = RedisServer::start(&["--appendonly yes", "--replicaof 127.0.0.1 1"]) else { return };
    let error = refusal(&redis.socket(), None);
    assert!(error.contains("role is `slave`") && error.contains("redis-cli REPLICAOF NO ONE"), "{error}");
    let nobody = redis.folder.join("nobody");
    let error = refusal(&nobody, None);
    assert!(error.contains(&format!("redis-cli -s {} PING", nobody.display())), "{error}");
}

#[test]
fn a_server_that_loads_its_files_is_waited_for() {
    let Some(mut redis) = RedisServer::start(&["--appendonly yes"]) else { return };
    let mut connection = redis.connect();
    for number in 0..3_000 {
        connection.line(&format!("SET k{number} v"));
    }
    redis.kill();
    // So many microseconds for each key; meanwhile it answers every 1,024 keys.
    redis.restart_loading("--key-load-delay 300");
    let server = start(&redis.socket(), Vec::new());
    server.lines.with("the server is loading its files");
    server.lines.with(STARTED);
    server.end().expect("it ends as it should");
}
