//! What can stand in `scot.toml`, in variables `SCOT_SECTION_KEY` and in flags: one struct per section,
//! whose fields are keys and flags at once.
//!
//! Invariant: a field that nobody set is absent, so that a flag never overrides a file by its default.

use crate::text::{
    socket_address, Address, Asked, BitRate, DeviceSpec, LogProcessor, LogSpec, OptionSpec, ProxyName, Redis,
    Size, Span, TraceTarget, Word,
};
use clap::{Args, ValueEnum};
use scotfree_kv::IndexKind;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::{de, Deserialize, Deserializer, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

/// The whole file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// What all share.
    pub cluster: Cluster,
    /// `scot switch`.
    pub switch: Switch,
    /// `scot kv`.
    pub kv: Kv,
    /// `scot sidecar server`.
    pub server: Server,
    /// `scot sidecar client`.
    pub client: Client,
    /// `scot proxy`.
    pub proxy: Proxies,
    /// `scot peer`.
    pub peer: Peer,
    /// `scot doctor`.
    pub doctor: Doctor,
}

/// A list of words, or the one word that it would hold. What a word may be its own type says, so that a refusal does.
fn one_or_many<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<Word, Error = String>,
{
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "allowed is a word, or a list of words")]
    enum OneOrMany {
        One(Word),
        Many(Vec<Word>),
    }
    let words = match OneOrMany::deserialize(from)? {
        OneOrMany::One(one) => vec![one],
        OneOrMany::Many(many) => many,
    };
    words.into_iter().map(|word| T::try_from(word).map_err(de::Error::custom)).collect()
}

/// The names of the sections.
#[cfg(test)]
pub const SECTIONS: [&str; 8] = ["cluster", "switch", "kv", "server", "client", "proxy", "peer", "doctor"];

/// What all roles of a cluster share.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cluster {
    /// The file with the cluster's secret (make one: scot key new FILE)
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// What daemons say on standard error
    #[arg(long, value_name = "LEVEL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_level: Option<LogLevel>,
}

/// What a daemon says on standard error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// What somebody should act on.
    Alarms,
    /// Everything.
    #[default]
    Notices,
}

// The heading of the flags that make a bad link, on every port in both directions.
const FAULTS: &str = "Faults on purpose, for the lab (reloaded on SIGHUP)";

/// The device daemon.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Switch {
    /// An interface to bridge; give two or more
    #[arg(long = "port", value_name = "IFACE")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
    /// The device's own address, at which it answers control messages (port 51000 by default)
    #[arg(long, value_name = "IP[:PORT]")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    /// A server that it serves; up to 16, each named once. The logs name servers by their places: new ones come last
    #[arg(long = "server", value_name = "IP[:PORT]")]
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    pub server: Vec<Address>,
    /// A server whose updates are logged; those of others pass unlogged (all by default)
    #[arg(long = "logged", value_name = "IP[:PORT]")]
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    pub logged: Vec<Address>,
    /// The functions that packets pass, in their order (persist by default)
    #[arg(long = "function", value_name = "NAME")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<String>,
    /// An option of a function of the list, `FUNCTION.OPTION=VALUE`, as `cache.bytes_max=256M`
    #[arg(long = "option", value_name = "OPTION")]
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    pub option: Vec<OptionSpec>,
    /// The device's number in the cluster
    #[arg(long, value_name = "ID")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_id: Option<u16>,
    /// A log, `ram:PATH[:SIZE]` or `pmem:PATH[:SIZE]`, `disk:PATH[:SIZE]`; one in memory and one on disk at most.
    /// Without any, nothing is acknowledged. SIZE is the file's for disk; in memory it is that of the updates at 8K
    /// each (those of up to 4K), which bounds the sessions; the sparse file is longer. pmem is your word that the
    /// file lies in persistent memory: it needs a file system mounted with -o dax, grants `ram`, and survives a
    /// loss of power
    #[arg(long = "log", value_name = "LOG")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<LogSpec>,
    /// Your word that the memory of the ram log outlasts a restart of the host
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub battery_backed: Option<bool>,
    /// From which size on an update is streamed into a pmem log past the processor's caches, instead of flushed
    /// out of them (384 by default; the example `flush_bench` of scotfree-io measures both)
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pmem_stream_from: Option<Size>,
    /// Where /metrics and /healthz are answered
    #[arg(long, value_name = "IP:PORT", value_parser = socket_address)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
    /// What moves the frames
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plane: Option<Plane>,
    /// Where the programs of the plane `xdp` run
    #[arg(long, value_name = "MODE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xdp_mode: Option<XdpMode>,
    /// The folder, in a BPF file system, where the plane `xdp` keeps its log and its attachments when the
    /// daemon ends (/sys/fs/bpf/scotfree-device-ID by default)
    #[arg(long, value_name = "FOLDER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<PathBuf>,
    /// How many slots of 1.5 KiB the log of the plane `xdp` has in the kernel's memory; every session takes as
    /// many as its window (32768 by default)
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// Of so many of Scotfree's packets the plane `xdp` shows one at `/events`, beside `/metrics` (none by default)
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_every: Option<u32>,
    /// Whether it is the first device on the path, which gives order numbers (true by default). From false to true
    /// on SIGHUP: it takes the place of a head that the server has excluded
    #[arg(long, value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<bool>,
    /// The largest window that a session is granted
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_max: Option<u32>,
    /// How many sessions are granted slots
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions_max: Option<u32>,
    /// How long to look for events before sleeping, at most, in microseconds (0: never; by default up to 200 while
    /// that pays). Saves an event that comes so soon its wake-up, and takes the processor meanwhile
    #[arg(long, value_name = "MICROSECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spin_us: Option<u64>,
    /// Frames that vanish, in percent
    #[arg(long, help_heading = FAULTS, value_name = "PERCENT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Frames that come twice, in percent
    #[arg(long, help_heading = FAULTS, value_name = "PERCENT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<f64>,
    /// Frames in which one bit is flipped, in percent
    #[arg(long, help_heading = FAULTS, value_name = "PERCENT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrupt: Option<f64>,
    /// Frames that others overtake, in percent
    #[arg(long, help_heading = FAULTS, value_name = "PERCENT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<f64>,
    /// How much later every frame comes, in microseconds
    #[arg(long, help_heading = FAULTS, value_name = "MICROSECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_us: Option<u64>,
    /// How fast frames may come, in bits per second: 500K, 100M, 1G
    #[arg(long, help_heading = FAULTS, value_name = "BITS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitRate>,
    /// The seed of all chances
    #[arg(long, help_heading = FAULTS, value_name = "NUMBER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// What moves a device's frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Plane {
    /// This process, by packet sockets.
    #[default]
    User,
    /// Programs in the kernel (XDP), with this process behind them.
    Xdp,
}

/// Where the programs of the plane in the kernel run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum XdpMode {
    /// In the ports' drivers.
    #[default]
    Native,
    /// In the kernel's stack: with any driver, slower.
    Generic,
}

/// The structure in which the embedded server finds a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lower")]
pub enum Index {
    /// B-tree.
    BTree,
    /// Crit-bit tree.
    CTree,
    /// Red-black tree.
    RbTree,
    /// Hash map.
    #[default]
    Hash,
    /// Skip list.
    SkipList,
}

impl Index {
    /// Its name in the service.
    pub fn kind(self) -> IndexKind {
        match self {
            Index::BTree => IndexKind::BTree,
            Index::CTree => IndexKind::CTree,
            Index::RbTree => IndexKind::RedBlack,
            Index::Hash => IndexKind::Hash,
            Index::SkipList => IndexKind::SkipList,
        }
    }
}

/// The embedded key-value server.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Kv {
    /// The address to serve (UDP)
    #[arg(long, value_name = "IP[:PORT]")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<Address>,
    /// What takes the place of UDP: ring:FILE is rings in memory, for clients of this user on this machine, who find
    /// the server by the socket FILE
    #[arg(long, value_name = "KIND:PLACE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    /// The write-ahead file
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<PathBuf>,
    /// The size of the write-ahead file when it is made; the data may take an eighth of it (128M by default)
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_size: Option<Size>,
    /// The structure that finds a key (hash by default); the write-ahead file is the same for all, so it may be
    /// another at every start
    #[arg(long, value_name = "STRUCTURE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<Index>,
    /// A device on the path, `ID=IP[:PORT]`; the first is the head
    #[arg(long = "device", value_name = "ID=IP[:PORT]")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceSpec>,
    /// A device of those above that will not come back: go on without it; what only it held is lost (more of
    /// them on SIGHUP)
    #[arg(long, value_name = "ID")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<u16>,
    /// The device, the only one on the path, whose function `cache` may answer GET again: your word that all clients
    /// come through it
    #[arg(long, value_name = "ID")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_device: Option<u16>,
    /// The group of which this server is a member: several servers that keep one state (docs/groups.md)
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Its number in the group, from 1 to 255
    #[arg(long, value_name = "ID")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<u8>,
    /// How the members agree (craq by default)
    #[arg(long, value_name = "PROTOCOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Who says who belongs to the group: etcd:http://HOST:PORT/PREFIX, or static:FILE
    #[arg(long, value_name = "PLACE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub membership: Option<String>,
    /// The address for other members (UDP)
    #[arg(long, value_name = "IP[:PORT]")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peers: Option<Address>,
    /// When a write of the group is answered: all members have stored it (stored, the default), or all have it in
    /// memory (memory), which a power failure of all loses
    #[arg(long, value_name = "WHEN")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer_when: Option<AnswerWhen>,
    /// Where updates go that are never applied (the log's name with .dead by default)
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letters: Option<PathBuf>,
    /// How long to look for events before sleeping, at most, in microseconds (0: never; by default up to 200 while
    /// that pays; in a member that answers from memory up to 500). Saves an event that comes so soon its wake-up, and takes the processor meanwhile
    #[arg(long, value_name = "MICROSECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spin_us: Option<u64>,
    /// Where /metrics and /healthz are answered
    #[arg(long, value_name = "IP:PORT", value_parser = socket_address)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
}

/// When a write of a group is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AnswerWhen {
    /// All members have stored it.
    Stored,
    /// All have it in memory.
    Memory,
}

/// The sidecar behind which a Redis serves.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// The address to serve (UDP)
    #[arg(long, value_name = "IP[:PORT]")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<Address>,
    /// The Redis or Valkey behind it, 127.0.0.1:PORT or unix:PATH
    #[arg(long, value_name = "REDIS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis: Option<Redis>,
    /// The user by which the sidecar authenticates itself at the Redis (`default` if not given)
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_user: Option<String>,
    /// A file with the Redis's password, of mode 0600
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_password_file: Option<PathBuf>,
    /// The database of the markers (the Redis's last one by default)
    #[arg(long, value_name = "NUMBER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub marker_db: Option<u16>,
    /// Where updates go that are never applied, and late errors of early answers
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letters: Option<PathBuf>,
    /// A device on the path, `ID=IP[:PORT]`; the first is the head
    #[arg(long = "device", value_name = "ID=IP[:PORT]")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceSpec>,
    /// A device of those above that will not come back: go on without it; what only it held is lost (more of
    /// them on SIGHUP)
    #[arg(long, value_name = "ID")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<u16>,
    /// The device, the only one on the path, whose function `cache` may answer GET again: your word that nobody writes
    /// the Redis in another way. Connections that listen or track may then not write
    #[arg(long, value_name = "ID")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_device: Option<u16>,
    /// Serve although the Redis never makes anything stable (no append-only file)
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_unstable: Option<bool>,
    /// Call stable what is only applied, for the control of an experiment; refused unless `SCOT_TEST` is 1
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsafe_ack_when_applied: Option<bool>,
    /// How many sessions there can be with clients' sidecars (16384 by default)
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions_max: Option<NonZeroUsize>,
    /// How many connections to the Redis there can be for clients that watch or have a user of their own (1024 by
    /// default)
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_lanes_max: Option<usize>,
    /// How many tunnels there can be (4096 by default)
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnels_max: Option<usize>,
    /// Where to note how far the append-only files are synced, for a lab that cuts them back
    #[arg(long, value_name = "FILE", hide = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synced_sizes: Option<PathBuf>,
    /// How long to look for events before sleeping, at most, in microseconds (0: never; by default up to 200 while
    /// that pays). Saves an event that comes so soon its wake-up, and takes the processor meanwhile
    #[arg(long, value_name = "MICROSECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spin_us: Option<u64>,
    /// Where /metrics and /healthz are answered
    #[arg(long, value_name = "IP:PORT", value_parser = socket_address)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
}

/// The sidecar in front of Redis clients.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Client {
    /// Where Redis clients connect (TCP)
    #[arg(long, value_name = "IP:PORT", value_parser = socket_address)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// The server's sidecar or scot kv
    #[arg(long, value_name = "IP[:PORT]")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<Address>,
    /// The address to speak from (any by default)
    #[arg(long, value_name = "IP:PORT", value_parser = socket_address)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<SocketAddr>,
    /// Whether SET, SETEX and PSETEX are answered by the device alone
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// In mode early, only keys that begin so; repeatable
    #[arg(long = "early-prefix", value_name = "PREFIX")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub early_prefix: Vec<String>,
    /// What the devices must give before an update is acknowledged: none, ram:K, disk or ram:K+disk, where K
    /// is how many of them (ram:1 by default). If they do not, the server's storage must hold it first
    #[arg(long, value_name = "DURABILITY")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durability: Option<Asked>,
    /// How many client connections there can be (10000 by default, or what open files allow)
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections_max: Option<NonZeroUsize>,
    /// How many of them can be tunnels: connections that subscribe, block or watch (2048 by default)
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnels_max: Option<usize>,
    /// How many commands a transaction (MULTI) may have (65536 by default)
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transaction_commands_max: Option<NonZeroUsize>,
    /// How many sessions connections share (4 by default)
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions_max: Option<NonZeroUsize>,
    /// With how many connections in each a further session is opened (256 by default)
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections_per_session: Option<NonZeroUsize>,
    /// How long a stop waits for answers, in nanoseconds (3 s by default); the rest is given up
    #[arg(long, value_name = "NS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_ns_max: Option<u64>,
    /// Where call records go: a file of OTLP JSON lines, or http://HOST:PORT of a collector
    #[arg(long, value_name = "FILE|URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceTarget>,
    /// Record every Nth call (1: all, 0: none)
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_every: Option<u32>,
    /// Record every call of one key in so many instead, with a hash of the key that nobody can trace back without the
    /// cluster's key (1: all keys; not by default): from these `scot plan` tells what a cache would answer
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_keys: Option<NonZeroU32>,
    /// What call records call the program in front of this sidecar (`service.name`; scot-sidecar-client by default)
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_service: Option<String>,
    /// What call records call the service that is called (`peer.service`; not said by default)
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_peer: Option<String>,
    /// Ask the kernel for its stamps of every Nth packet (64 by default, 0: never)
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stamp_every: Option<u32>,
    /// How long to look for events before sleeping, at most, in microseconds (0: never; by default up to 200 while
    /// that pays). Saves an event that comes so soon its wake-up, and takes the processor meanwhile
    #[arg(long, value_name = "MICROSECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spin_us: Option<u64>,
    /// Where /metrics and /healthz are answered
    #[arg(long, value_name = "IP:PORT", value_parser = socket_address)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
}

/// The proxies of one process: a section `[proxy]`, over which flags and variables go, or several `[[proxy]]`, each of
/// which is whole.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Proxies {
    /// `[proxy]`, or no section.
    One(Box<Proxy>),
    /// `[[proxy]]`, in the order of the file.
    Several(Vec<Proxy>),
}

impl Proxies {
    /// Each of them.
    pub fn all(&self) -> &[Proxy] {
        match self {
            Proxies::One(proxy) => std::slice::from_ref(proxy.as_ref()),
            Proxies::Several(proxies) => proxies,
        }
    }
}

impl Default for Proxies {
    fn default() -> Proxies {
        Proxies::One(Box::default())
    }
}

/// Not derived: an untagged enum forgets at which key of which line something is wrong.
impl<'de> Deserialize<'de> for Proxies {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Proxies, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Proxies;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a section [proxy], or several [[proxy]]")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Proxies, A::Error> {
                Proxy::deserialize(MapAccessDeserializer::new(map)).map(Box::new).map(Proxies::One)
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, seq: A) -> Result<Proxies, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(Proxies::Several)
            }
        }

        from.deserialize_any(Visitor)
    }
}

/// The proxy with a log of its own, before one Redis.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Proxy {
    /// What it is called where there are several
    #[arg(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<ProxyName>,
    /// Where Redis clients connect (TCP), in plain form; may be left out where --tls-listen is given
    #[arg(long, value_name = "IP:PORT", value_parser = socket_address)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// Where Redis clients connect under TLS
    #[arg(long, value_name = "IP:PORT", value_parser = socket_address)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_listen: Option<SocketAddr>,
    /// The certificate that clients are shown, with those between it and its authority (PEM)
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_cert: Option<PathBuf>,
    /// Its key (PEM), which not everybody may read
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,
    /// The authorities of clients' certificates (PEM): a client without a good one is turned away
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_client_ca: Option<PathBuf>,
    /// The Redis or Valkey behind it: ADDRESS:PORT, NAME:PORT or unix:PATH
    #[arg(long, value_name = "REDIS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis: Option<Redis>,
    /// The Redis may be on another host; it has to be 7.2 or newer, or a Valkey, and nobody but the proxy may reach
    /// it
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_remote: Option<bool>,
    /// Speak TLS with the Redis
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_tls: Option<bool>,
    /// The authorities of the Redis's certificate (PEM; those of the system by default)
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_ca: Option<PathBuf>,
    /// What the Redis's certificate is made out to, if not to the name or address in --redis
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_server_name: Option<String>,
    /// The certificate that the Redis is shown (PEM), if it asks for one
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_cert: Option<PathBuf>,
    /// Its key (PEM), which not everybody may read
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_key: Option<PathBuf>,
    /// The file of the log, on a disk that keeps what it has said to have written
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<PathBuf>,
    /// The size of the log when it is made (256M by default, 18M with peers); an existing file keeps its own
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_size: Option<Size>,
    /// The processor on which the log is written: disk (the one that the disk interrupts, if that is one; the
    /// default), any, or a number
    #[arg(long, value_name = "PROCESSOR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_processor: Option<LogProcessor>,
    /// A `scot peer` that holds the log in its memory, instead of the disk: a write is answered when all that are named
    /// hold it; repeatable. Both sides need the same key file
    #[arg(long = "peer", value_name = "NAME:PORT")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<String>,
    /// Go on although no peer gives back the last acknowledged updates: they are lost
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_peers: Option<bool>,
    /// Keep up to so many bytes of replies that pass (64K or more), and answer reads by them without the Redis; off by
    /// default. It needs --cache-only-writer or --cache-tracking
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<Size>,
    /// Vouch that nobody writes the Redis but through this proxy, or what is kept could be older than what is there
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_only_writer: Option<bool>,
    /// Let others write the Redis too: it tells the proxy of what they write, and no answer is older than that by more
    /// than so long (1ms to 10s; 10ms if no time is given)
    #[arg(long, num_args = 0..=1, default_missing_value = "10ms", value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_tracking: Option<Span>,
    /// Whether SET, SETEX and PSETEX are answered when the log holds them, before the Redis has seen them
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// In mode early, only keys that begin so; repeatable
    #[arg(long = "early-prefix", value_name = "PREFIX")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub early_prefix: Vec<String>,
    /// The user by which the proxy authenticates itself at the Redis (`default` if not given)
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_user: Option<String>,
    /// A file with the Redis's password, of mode 0600
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_password_file: Option<PathBuf>,
    /// The database of the markers (the Redis's last one by default)
    #[arg(long, value_name = "NUMBER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub marker_db: Option<u16>,
    /// Go on with a Redis that does not know this log, or that another stood before since: what only the log holds
    /// is executed there, or goes to the dead letters where the Redis no longer says how far it was; what only
    /// another log holds is neither
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accept_server: Option<bool>,
    /// Where updates go that are never applied, and late errors of early answers (the log's name with .dead by
    /// default)
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letters: Option<PathBuf>,
    /// How many client connections there can be (10000 by default, or what open files allow)
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections_max: Option<NonZeroUsize>,
    /// How many of them can be tunnels: connections that subscribe, block or watch (2048 by default)
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnels_max: Option<usize>,
    /// How many commands a transaction (MULTI) may have (65536 by default)
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transaction_commands_max: Option<NonZeroUsize>,
    /// How many connections to the Redis there can be for clients that watch or have a user of their own (1024 by
    /// default)
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_lanes_max: Option<usize>,
    /// How long a stop waits for answers, in nanoseconds (3 s by default); the rest is given up
    #[arg(long, value_name = "NS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_ns_max: Option<u64>,
    /// Where to note how far the append-only files are synced, for a lab that cuts them back
    #[arg(long, value_name = "FILE", hide = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synced_sizes: Option<PathBuf>,
    /// How long to look for events before sleeping, at most, in microseconds (0: never; by default up to 200 while
    /// that pays). Saves an event that comes so soon its wake-up, and takes the processor meanwhile
    #[arg(long, value_name = "MICROSECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spin_us: Option<u64>,
    /// Where /metrics and /healthz are answered
    #[arg(long, value_name = "IP:PORT", value_parser = socket_address)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
}

/// What keeps proxies' logs in memory.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Peer {
    /// Where proxies connect (TCP)
    #[arg(long, value_name = "IP:PORT", value_parser = socket_address)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// How much memory the logs' records may take (1G by default)
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,
    /// How many logs it keeps, of a proxy each (64 by default)
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logs_max: Option<NonZeroUsize>,
    /// Where /metrics and /healthz are answered
    #[arg(long, value_name = "IP:PORT", value_parser = socket_address)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
}

/// Who answers SET, SETEX and PSETEX.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The server; its reply is given when the devices hold the request.
    #[default]
    Covered,
    /// The devices, before the server has seen it.
    Early,
}

/// What a device's log has to hold.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Doctor {
    /// Updates per second that are expected
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// The size of an update
    #[arg(long, value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_bytes: Option<u64>,
    /// The 99th percentile of the time from acknowledgement to stability
    #[arg(long, value_name = "MILLISECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_to_stable_p99_ms: Option<u64>,
}
