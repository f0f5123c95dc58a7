//! `scot kv` by rings in memory: a client of the library writes, the server is killed and started again, and what was
//! answered is there; who is of another user gets no ring.

use remedy_ring_transport::RingTransport;
use scotfree_core::KeyHash;
use scotfree_io::Transport;
use scotfree_kv::command;
use scotfree_resp::payload::parse_response;
use scotfree_rpc::{CallLabel, ClientOptions, ClientRuntime, Mode, Request, RequestKind, SessionOptions};
use scotfree_stage::process::wait_until;
use scotfree_stage::scratch::Scratch;
use scotfree_wire::ClusterKey;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const SCOT: &str = env!("CARGO_BIN_EXE_scot");
const PATIENCE: Duration = Duration::from_secs(60);
const SECRET: [u8; 32] = [9; 32];

/// A server in a folder of its own.
struct Stand {
    folder: Scratch,
    /// How many files the server may have open.
    files_max: u32,
    server: Option<Child>,
}

impl Stand {
    fn new(name: &str) -> Stand {
        let folder = Scratch::new(name).expect("temporary files can be written");
        let key = folder.path().join("key");
        fs::write(&key, scotfree_core::to_hex(&SECRET)).expect("the folder is ours");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("the file is ours");
        Stand { folder, files_max: 1_024, server: None }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("kv.ring")
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new("prlimit");
        command.current_dir(self.folder.path()).arg(format!("--nofile={0}:{0}", self.files_max)).arg(SCOT);
        command.args(["kv", "--log", "kv.wal", "--log-size", "8M"]);
        command.args(["--key-file", "key", "--transport", "ring:kv.ring"]).args(more);
        command
    }

    fn start(&mut self) {
        let said = File::create(self.folder.path().join("said")).expect("the folder is ours");
        let server = self
            .command(&[])
            .stdin(Stdio::null())
            .stdout(said.try_clone().expect("a file"))
            .stderr(said)
            .spawn();
        self.server = Some(server.expect("scot is there"));
        assert!(wait_until(PATIENCE, || self.said().contains("kv ring:kv.ring")), "{}", self.said());
    }

    fn said(&self) -> String {
        fs::read_to_string(self.folder.path().join("said")).unwrap_or_default()
    }

    /// As a machine that loses its power ends it.
    fn kill(&mut self) {
        let mut server = self.server.take().expect("it was started");
        server.kill().and_then(|()| server.wait()).map(drop).expect("it is ours");
    }

    fn refused(&self, more: &[&str]) -> String {
        let Output { status, stderr, .. } = self.command(more).output().expect("scot is there");
        assert!(!status.success());
        String::from_utf8_lossy(&stderr).into_owned()
    }

    fn client(&self) -> ClientRuntime<RingTransport> {
        let transport = RingTransport::connect(&self.socket()).expect("a ring");
        let options = ClientOptions::new(transport.local_address(), ClusterKey::from_bytes(SECRET));
        ClientRuntime::new(transport, options)
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        if self.server.is_some() {
            self.kill();
        }
    }
}

/// Sends commands one behind the other in a session of their own; the answers as Redis would write them.
fn answers(client: &mut ClientRuntime<RingTransport>, commands: &[&[&[u8]]]) -> Vec<Vec<u8>> {
    let session = client.start_session(SessionOptions::default()).expect("there is room for one");
    client.wait_open(session, PATIENCE).expect("it opens");
    let answer = |words: &&[&[u8]]| {
        let payload = command(words);
        let kind = if words[0] == b"GET" { RequestKind::Read } else { RequestKind::Update };
        let request = Request {
            kind,
            mode: Mode::Covered,
            fixed_reply: false,
            relaxed: false,
            traced: false,
            key_hash: KeyHash(7),
            payload: &payload,
        };
        let reply = client.call(session, request, CallLabel::new("kv"), PATIENCE).expect("it is answered");
        parse_response(reply.bytes.expect("the server answers")).expect("it is one").1.to_vec()
    };
    commands.iter().map(answer).collect()
}

#[test]
fn what_was_answered_by_rings_outlives_the_server() {
    let mut stand = Stand::new("rings");
    stand.start();
    let mut client = stand.client();
    let first = answers(&mut client, &[&[b"SET", b"a", b"1"], &[b"INCR", b"n"], &[b"INCR", b"n"]]);
    assert_eq!(first, [&b"+OK\r\n"[..], b":1\r\n", b":2\r\n"]);
    // Several clients, each with a ring.
    let mut others: Vec<_> = (0..20).map(|_| stand.client()).collect();
    for other in &mut others {
        assert_eq!(answers(other, &[&[b"GET", b"a"]]), [b"$1\r\n1\r\n"]);
    }
    stand.kill();
    let gone = client.turn().and_then(|()| client.wait(Some(PATIENCE))).and_then(|()| client.turn());
    assert!(gone.is_err_and(|error| error.to_string().contains("the server is gone")));
    // The socket that it left is in nobody's way.
    assert!(stand.socket().exists());
    stand.start();
    assert_eq!(
        answers(&mut stand.client(), &[&[b"GET", b"n"], &[b"INCR", b"n"]]),
        [&b"$1\r\n2\r\n"[..], b":3\r\n"]
    );
}

#[test]
fn what_has_no_place_beside_rings_is_refused_with_the_reason() {
    let mut stand = Stand::new("rings-refused");
    assert!(stand.refused(&["--listen", "127.0.0.1:0"]).contains("leave one of them out"));
    assert!(stand.refused(&["--device", "1=127.0.0.1:9"]).contains("lies on the path of a network"));
    let group = ["--group", "g", "--member", "1", "--membership", "static:m", "--peers", "127.0.0.1:9"];
    assert!(stand
        .refused(&group)
        .contains("a member of a group (--group) is one that clients of any host reach"));
    stand.start();
    let second = Stand::new("rings-second");
    let socket = stand.socket();
    let there = format!("ring:{}", socket.display());
    let mut command = Command::new(SCOT);
    command.current_dir(second.folder.path()).args(["kv", "--log", "kv.wal", "--key-file", "key"]);
    let output = command.args(["--transport", &there]).output().expect("scot is there");
    assert!(String::from_utf8_lossy(&output.stderr).contains("another server listens there"));
    assert!(!second.folder.path().join("kv.wal").exists(), "a start that is refused makes no log");
}

#[test]
fn a_server_without_descriptors_says_so_serves_on_and_takes_clients_again() {
    let mut stand = Stand::new("rings-files");
    stand.files_max = 40;
    stand.start();
    let mut clients = Vec::new();
    let refused = loop {
        match RingTransport::connect(&stand.socket()) {
            Ok(client) => clients.push(client),
            Err(refused) => break refused.to_string(),
        }
        assert!(clients.len() < 40, "each takes two of 40");
    };
    assert!(refused.contains("it has no descriptors left: raise its ulimit -n"), "{refused}");
    assert!(clients.len() > 5, "{} clients", clients.len());
    drop(clients);
    assert!(wait_until(PATIENCE, || RingTransport::connect(&stand.socket()).is_ok()));
    assert_eq!(answers(&mut stand.client(), &[&[b"SET", b"a", b"1"]]), [b"+OK\r\n"]);
}

/// The file system keeps others out; where it does not, the server does.
#[test]
fn a_process_of_another_user_gets_no_ring() {
    let mut stand = Stand::new("rings-user");
    stand.start();
    fs::set_permissions(stand.folder.path(), fs::Permissions::from_mode(0o755)).expect("the folder is ours");
    fs::set_permissions(stand.socket(), fs::Permissions::from_mode(0o666)).expect("the socket is ours");
    // Whoever gets a ring is told so in 32 bytes; who does not, in words.
    let ask =
        "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(512))";
    let as_another = |user: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user, "--clear-groups", "python3", "-c", ask]).arg(stand.socket());
        command.output().expect("util-linux and Python are there")
    };
    let Output { status, stdout, stderr } = as_another("65534");
    if !status.success() {
        let why = String::from_utf8_lossy(&stderr);
        return eprintln!("SKIP: nobody else can be here: run it as root ({})", why.trim());
    }
    let said = String::from_utf8_lossy(&stdout);
    assert!(said.contains("of its own user (0) alone, and this one is of 65534"), "{said}");
    assert!(String::from_utf8_lossy(&as_another("0").stdout).contains("scotring"));
}
