//! Three `scot kv` as one group, over loopback: written through any, read from any, one killed, a fourth that joins;
//! and what goes wrong around them.

#[path = "groups/by_file.rs"]
mod by_file;
#[path = "groups/full_disk.rs"]
mod full_disk;
#[path = "groups/lost_logs.rs"]
mod lost_logs;
#[path = "groups/many_clients.rs"]
mod many_clients;
#[path = "groups/namespaces.rs"]
mod namespaces;
#[path = "groups/trouble.rs"]
mod trouble;

use rustix::process::{kill_process, Pid, Signal};
use scotfree_core::Nanos;
use scotfree_io::udp::{UdpConfig, UdpTransport};
use scotfree_kv::command;
use scotfree_rpc::{
    CallLabel, ClientOptions, ClientRuntime, GroupClient, GroupEvent, GroupMember, GroupOptions, Policy,
    RequestKind,
};
use scotfree_stage::process::{find_tool, wait_until};
use scotfree_stage::scratch::Scratch;
use scotfree_wire::ClusterKey;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const SECRET: [u8; 32] = [9; 32];
const SCOT: &str = env!("CARGO_BIN_EXE_scot");
const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A process that ends with the test.
struct Running(Child);

impl Running {
    /// As a machine that loses its power ends it.
    fn kill(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).map(drop).expect("it is ours");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it is ours");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Members of one group, in one folder.
struct Group {
    folder: Scratch,
    protocol: &'static str,
    membership: String,
    log_size: &'static str,
    addresses: Vec<(SocketAddr, SocketAddr)>,
    /// How `scot` is started at the place of a member.
    program: fn(u8) -> Command,
    /// Where clients are.
    clients_ip: IpAddr,
    members: BTreeMap<u8, Running>,
}

fn free_addresses(count: usize) -> Vec<SocketAddr> {
    let sockets: Vec<UdpSocket> =
        (0..count).map(|_| UdpSocket::bind("127.0.0.1:0").expect("a port is free")).collect();
    sockets.iter().map(|socket| socket.local_addr().expect("it is bound")).collect()
}

impl Group {
    fn new(name: &str, protocol: &'static str, membership: impl FnOnce(&Path) -> String) -> Group {
        let folder = Scratch::new(name).expect("temporary files can be written");
        let digits = scotfree_core::to_hex(&SECRET);
        let key = folder.path().join("key");
        fs::write(&key, digits).expect("the folder is ours");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("the file is ours");
        let free = free_addresses(8);
        let addresses = free.chunks(2).map(|pair| (pair[0], pair[1])).collect();
        let membership = membership(folder.path());
        (1..=4).for_each(|place| fs::create_dir(folder.path().join(place.to_string())).expect("it is ours"));
        Group {
            folder,
            protocol,
            membership,
            log_size: "16M",
            addresses,
            program: |_| Command::new(SCOT),
            clients_ip: LOCALHOST,
            members: BTreeMap::new(),
        }
    }

    /// Where a member's files lie.
    fn folder_of(&self, place: u8) -> PathBuf {
        self.folder.path().join(place.to_string())
    }

    fn said(&self, id: u8) -> String {
        fs::read_to_string(self.folder.path().join(format!("said-{id}"))).unwrap_or_default()
    }

    fn start(&mut self, id: u8) {
        let mut scot = self.command(id, id, "g");
        self.members.insert(id, Running(scot.spawn().expect("scot starts")));
    }

    /// What starts a member, at the place of one, of a group of this name.
    fn command(&self, place: u8, id: u8, group: &str) -> Command {
        let path = |name: &str| self.folder.path().join(name);
        let (peers, clients) = self.addresses[usize::from(place) - 1];
        let said = path(&format!("said-{place}"));
        let said = File::options().append(true).create(true).open(said).expect("a file");
        let mut scot = (self.program)(place);
        scot.arg("kv").args(["--listen", &clients.to_string(), "--peers", &peers.to_string()]);
        scot.arg("--log").arg(self.folder_of(place).join("kv.wal")).args(["--log-size", self.log_size]);
        scot.arg("--key-file").arg(path("key")).args(["--group", group, "--member", &id.to_string()]);
        scot.args(["--protocol", self.protocol, "--membership", &self.membership]);
        scot.stdout(Stdio::null()).stderr(said);
        scot
    }

    /// A member as `scot group init` is told it.
    fn listed(&self, id: u8) -> String {
        let (peers, clients) = self.addresses[usize::from(id) - 1];
        format!("{id}={peers},{clients}")
    }

    /// Makes the group of the first three.
    fn init(&self, more: &[&str]) -> (bool, String) {
        let members = [1, 2, 3].map(|id| self.listed(id));
        let mut words = vec!["group", "init", &self.membership, "--name", "g", "--protocol", self.protocol];
        words.extend(more);
        for member in &members {
            words.extend(["--member", member]);
        }
        scot(&words)
    }

    fn await_said(&self, id: u8, text: &str) {
        let was_said = wait_until(PATIENCE, || self.said(id).contains(text));
        assert!(was_said, "member {id} never said {text:?}:\n{}", self.said(id));
    }

    /// A client that goes to any member.
    fn client(&self, ids: &[u8], reads: Policy) -> Client {
        self.client_named(*b"client of groups", ids, reads)
    }

    /// One of several that write: each has a name of its own.
    fn client_named(&self, name: [u8; 16], ids: &[u8], reads: Policy) -> Client {
        let address = |id: u8| self.addresses[usize::from(id) - 1].1;
        let here = SocketAddr::new(self.clients_ip, 0);
        let socket = UdpTransport::bind(here, &UdpConfig::default()).expect("a port is free");
        let runtime =
            ClientRuntime::new(socket, ClientOptions::new(address(ids[0]), ClusterKey::from_bytes(SECRET)));
        let members = ids.iter().map(|id| GroupMember { id: *id, address: address(*id) }).collect();
        let mut options = GroupOptions::new(members, name, 7);
        options.reads = reads;
        options.give_up_after = Nanos::from_secs(40);
        options.is_not_serving = |reply| reply.windows(12).any(|part| part == b"-NOTSERVING ");
        Client(GroupClient::new(runtime, options).expect("members"))
    }
}

struct Client(GroupClient<UdpTransport>);

impl Client {
    /// Sends so many requests and returns their answers; `between` is called after each.
    fn ask(
        &mut self,
        kind: RequestKind,
        words: &[&[u8]],
        count: usize,
        mut between: impl FnMut(usize),
    ) -> Vec<i64> {
        let (mut answers, mut begun) = (Vec::new(), 0);
        let deadline = Instant::now() + PATIENCE;
        while answers.len() < count {
            while begun < count && begun - answers.len() < 8 {
                self.0.submit(kind, &command(words), CallLabel::new("test")).expect("there is room");
                begun += 1;
            }
            self.0.turn().expect("the socket works");
            while let Some(event) = self.0.next_event() {
                match event {
                    GroupEvent::Answered { bytes, .. } => answers.push(number_in(bytes)),
                    GroupEvent::GivenUp { why, .. } => {
                        panic!("given up after {} answers: {why:?}", answers.len())
                    }
                }
                between(answers.len());
            }
            assert!(Instant::now() < deadline, "{} of {count} answers", answers.len());
            self.0.wait(Some(Duration::from_millis(20))).expect("the socket works");
        }
        answers
    }

    fn increment(&mut self, count: usize, between: impl FnMut(usize)) -> Vec<i64> {
        self.ask(RequestKind::Update, &[b"INCR", b"n"], count, between)
    }

    fn read(&mut self) -> i64 {
        self.ask(RequestKind::Read, &[b"GET", b"n"], 1, |_| {})[0]
    }
}

/// The last number in a reply: of INCR or GET.
fn number_in(bytes: &[u8]) -> i64 {
    let text = String::from_utf8_lossy(bytes);
    let digits = text.trim_end().rsplit(|letter: char| !letter.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().unwrap_or_else(|_| panic!("no number in {text:?}"))
}

/// Each request was executed once: their answers are all the numbers from one to the next.
fn assert_counted(answers: &[i64], first: i64) {
    let distinct: BTreeSet<i64> = answers.iter().copied().collect();
    let last = first + answers.len() as i64 - 1;
    assert_eq!(
        (distinct.len(), distinct.first(), distinct.last()),
        (answers.len(), Some(&first), Some(&last))
    );
}

fn static_file(folder: &Path) -> String {
    format!("static:{}", folder.join("members.toml").display())
}

#[test]
fn three_members_of_a_file_keep_one_count_whichever_is_asked() {
    for protocol in ["chain", "craq", "hermes"] {
        let mut group = Group::new(&format!("group-{protocol}"), protocol, static_file);
        let mut text = "epoch = 1\n".to_owned();
        for (index, (peers, clients)) in group.addresses.iter().take(3).enumerate() {
            let member =
                format!("[[member]]\nid = {}\npeers = \"{peers}\"\nclients = \"{clients}\"\n", index + 1);
            text.push_str(&member);
        }
        fs::write(group.folder.path().join("members.toml"), text).expect("the folder is ours");
        (1..=3).for_each(|id| group.start(id));
        (1..=3).for_each(|id| group.await_said(id, "this one is full"));
        let answers = group.client(&[1, 2, 3], Policy::Random).increment(200, |_| {});
        assert_counted(&answers, 1);
        for id in 1..=3 {
            assert_eq!(group.client(&[1, 2, 3], Policy::Member(id)).read(), 200, "{protocol}, member {id}");
        }
    }
}

/// An etcd in the folder, on ports that were free.
fn etcd(folder: &Path) -> Option<(Running, u16)> {
    etcd_at(LOCALHOST, folder)
}

fn etcd_at(ip: IpAddr, folder: &Path) -> Option<(Running, u16)> {
    let Some(program) = find_tool("etcd") else {
        eprintln!("SKIP: etcd is not installed: apt-get install etcd-server");
        return None;
    };
    let port =
        || std::net::TcpListener::bind((ip, 0)).and_then(|free| free.local_addr()).expect("a port").port();
    let (clients, peers) = (port(), port());
    let (clients_url, peers_url) = (format!("http://{ip}:{clients}"), format!("http://{ip}:{peers}"));
    let mut command = Command::new(program);
    command.arg("--data-dir").arg(folder.join("etcd")).args(["--name", "e", "--logger", "zap"]);
    command.args(["--listen-client-urls", &clients_url, "--advertise-client-urls", &clients_url]);
    command.args(["--listen-peer-urls", &peers_url, "--initial-advertise-peer-urls", &peers_url]);
    command
        .args(["--initial-cluster", &format!("e={peers_url}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let running = Running(command.spawn().expect("etcd starts"));
    let answers = || std::net::TcpStream::connect((ip, clients)).is_ok();
    assert!(wait_until(PATIENCE, answers), "etcd does not answer");
    Some((running, clients))
}

fn scot(words: &[&str]) -> (bool, String) {
    let output = Command::new(SCOT).args(words).output().expect("scot runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn a_group_goes_on_when_a_member_is_killed_and_takes_it_and_a_fourth_in() {
    let ground = Scratch::new("group-etcd").expect("temporary files can be written");
    let Some((_etcd, port)) = etcd(ground.path()) else { return };
    let place = format!("etcd:http://127.0.0.1:{port}/scotfree/g");
    let mut group = Group::new("group-killed", "craq", |_| place.clone());
    let members: Vec<String> = (1..=3)
        .map(|id| format!("{id}={},{}", group.addresses[id - 1].0, group.addresses[id - 1].1))
        .collect();
    let mut init = vec!["group", "init", &place, "--name", "g", "--lease-ms", "1000"];
    for member in &members {
        init.extend(["--member", member]);
    }
    for said in ["made the group", "was made before"] {
        let (is_done, text) = scot(&init);
        assert!(is_done && text.contains(said), "{text}");
    }
    (1..=3).for_each(|id| group.start(id));
    (1..=3).for_each(|id| group.await_said(id, "this one is full"));

    let mut client = group.client(&[1, 2, 3], Policy::Random);
    let mut answers = Vec::new();
    // The head, then the tail of what is left; each comes back.
    for killed in [1, 3] {
        let mut victim = group.members.remove(&killed);
        answers.extend(client.increment(300, |answered| {
            if answered == 100 {
                victim.take().expect("it is killed once").kill();
            }
        }));
        group.start(killed);
        let (is_full, text) = scot(&["group", "add", &place, &killed.to_string()]);
        assert!(is_full, "{text}\n{}", group.said(killed));
    }
    assert_counted(&answers, 1);

    group.start(4);
    let (is_full, text) = scot(&["group", "add", &place, "4"]);
    assert!(is_full, "{text}\n{}", group.said(4));
    for id in 1..=4 {
        assert_eq!(group.client(&[1, 2, 3, 4], Policy::Member(id)).read(), 600, "member {id}");
    }
    let (_, text) = scot(&["group", "status", &place]);
    assert_eq!(text.matches(": full;").count(), 4, "{text}");
}
