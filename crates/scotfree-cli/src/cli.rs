//! The commands and their flags.
//!
//! Invariant: every command's help ends with an example.

use crate::settings::{Client, Cluster, Doctor, Kv, Peer, Plane, Proxy, Server, Switch};
use crate::text::Address;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use scotfree_stage::confined::{Bytes, BytesPerSecond, Processors};
#[cfg(feature = "lab")]
use scotfree_stage::priority::Priority;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

/// Takes the tax off remote procedure calls: measures where their time goes, and lets a device on the
/// path acknowledge updates durably while the server is still busy.
#[derive(Debug, Parser)]
#[command(name = "scot", version, propagate_version = false, arg_required_else_help = true)]
#[command(after_help = "Begin here:
  scot doctor        what this machine lacks, and the command that mends it
  scot demo          client, device and server in three namespaces, beside Redis alone; a power failure
Settings come from scot.toml (--config FILE), variables SCOT_SECTION_KEY and flags; flags win.
An unknown command NAME runs the program scot-NAME. Three such come with the Python package, which
scripts/python.sh sets up in a clone, the first two with --study (or pip installs):
  scot study         your own traces as figures and tables
  scot plan          which remedy pays on them
  scot rag           your own documents, indexed and asked in little memory")]
pub struct Cli {
    /// The configuration file (scot.toml here or in /etc/scotfree if not given)
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one, at the start")]
pub enum Command {
    /// Show all of it: three namespaces, a real Redis, nine stages, a power failure and a count
    #[command(after_help = "Examples:
  scot demo                      as root, or as anybody where user namespaces are allowed
  scot demo --service kv         without a Redis
  scot demo --report demo.html   with the study of its calls (needs the Python package: scripts/python.sh --study)
  scot demo --cache              GETs that the device answers, beside Redis alone
  scot demo --json --seconds 3   one JSON object on standard output, for scripts
Ends with 1 if an acknowledged update was lost or applied twice.")]
    Demo(Demo),
    /// Look whether this machine has what is needed, and print the command that mends what it lacks
    #[command(after_help = "Examples:
  scot doctor
  scot doctor --json
  scot doctor --rate-per-s 50000 --time-to-stable-p99-ms 2000   is the log large enough?
  SCOT_SWITCH_LOG='[\"pmem:/mnt/pmem/scot.log\"]' scot doctor       is that persistent memory?
Ends with 1 if something is missing without which nothing works.")]
    Doctor(DoctorArgs),
    /// Load the device's programs once, as root, for a group whose members then run --plane xdp without root
    #[command(after_help = "Examples:
  sudo scot setup --group devs                 one set, for one device: /sys/fs/bpf/scotfree-group-devs/0
  sudo scot setup --group devs --sets 4        four of them
  unshare -Urnm scot switch --plane xdp --pin /sys/fs/bpf/scotfree-group-devs/0 …     a member's device
  scot setup --release /sys/fs/bpf/scotfree-group-devs/0     end its log: another device may have the set
  sudo scot setup --group devs --remove
After a restart of the host or with another build of scot, run it again; a log that is there stays.
Members can attach these programs to any port that they can see, the host's as well, and read each other's
logs and session keys there: give it to a group of people who might as well be root of this host.")]
    Setup(Setup),
    /// Run the device: bridge ports, log updates, acknowledge them
    #[command(after_help = "Examples:
  scot switch --port eth1 --port eth2 --address 10.0.0.254 --server 10.0.0.2:51000 \\
      --device-id 1 --key-file cluster.key --log ram:/dev/shm/scot.log
  scot switch --config scot.toml     all of it from [cluster] and [switch]
  scot switch --config scot.toml --plane xdp     by programs in the kernel: scot doctor --plane xdp --port eth1 …
  scot switch --config scot.toml --log pmem:/mnt/pmem/scot.log     in persistent memory, mounted with -o dax
SIGHUP reads the configuration again and takes over the faults on purpose, the log level, new keys, and that the
device becomes the head of its chain.")]
    Switch(SwitchArgs),
    /// Run the embedded key-value server
    #[command(after_help = "Examples:
  scot kv --listen 10.0.0.2:51000 --log /var/lib/scot/kv.wal --key-file cluster.key \\
      --device 1=10.0.0.254:51000
  scot kv --listen 10.0.0.2:51000 --log /var/lib/scot/kv.wal --key-file cluster.key \\
      --group g1 --member 1 --peers 10.0.0.2:51900 --membership etcd:http://10.0.0.9:2379/scotfree/g1
                                     one of several that keep one state: scot group init first, docs/groups.md")]
    Kv(KvArgs),
    /// Make a group of servers that keep one state, and look after it
    #[command(subcommand)]
    Group(GroupVerb),
    /// Run a sidecar: RESP in front of a client, or behind a server
    #[command(subcommand)]
    Sidecar(Sidecar),
    /// Run a proxy before a Redis or Valkey, or several, with a durable log for each: no device, no second sidecar
    #[command(after_help = "Examples:
  scot proxy --listen 127.0.0.1:7379 --redis 127.0.0.1:6379 --log /var/lib/scot/proxy.log
  scot proxy --config scot.toml --mode early --early-prefix session:
  scot proxy --config several.toml --metrics 127.0.0.1:9103      a section [[proxy]] for each of several Redis
  scot proxy --config scot.toml --cache 64M --cache-tracking 10ms   answers reads of what it knows, beside other writers
  scot proxy --listen 127.0.0.1:7379 --redis 127.0.0.1:6379 --log /var/lib/scot/proxy.log \
      --peer peer1:7399 --peer peer2:7399 --key-file cluster.key     in the memory of two hosts, not on disk
The Redis needs its append-only file (appendonly yes; appendfsync everysec will do). Clients connect to the proxy
instead; what they are answered is in the log and at the Redis. After a crash of either the proxy executes what the
Redis lacks, each update once. SIGHUP reads the configuration again and takes over mode, prefixes and the log level.
See docs/proxy.md.")]
    Proxy(ProxyArgs),
    /// Keep the logs of proxies in this host's memory: an answered write outlasts the Redis' host without its disk
    #[command(after_help = "Examples:
  scot peer --listen 10.0.0.3:7399 --key-file cluster.key
  scot peer --config scot.toml --memory 4G
A proxy names it by --peer, and asks it for the log after a crash. What it holds is gone with its process; an update
leaves it when the Redis' own files hold it. See docs/proxy.md.")]
    Peer(PeerArgs),
    /// Bring up topologies and run experiments
    #[command(subcommand)]
    Lab(Lab),
    #[cfg(feature = "lab")]
    /// Measure what this project has beside the libraries of others
    #[command(subcommand)]
    Bench(Bench),
    /// Show where the time of calls went
    #[command(subcommand)]
    Tax(Tax),
    #[cfg(feature = "lab")]
    /// Print every claim with its verdict; ends with 1 if a required value is missed
    #[command(after_help = "Examples:
  scot claims
  scot claims --update    write the tables of results into docs/results.md and README.md")]
    Claims(Claims),
    /// List the remedies that are built in: what each takes off the critical path, and what it needs
    #[command(after_help = "Examples:
  scot remedies
  scot remedies --json           as the planner reads it")]
    Remedies(Remedies),
    /// Run the deterministic simulator
    #[command(after_help = "Examples:
  scot sim --seeds 0..2000
  scot sim --seed 7 --trace      one run, with everything that happened
  scot sim --seeds 0..2000 --kind several
Ends with 1 if a seed violates an invariant.")]
    Sim(Sim),
    /// Say what may be done with a Redis command, or print the whole table
    #[command(after_help = "Examples:
  scot classify                  all forms of all commands
  scot classify SET key value EX 10")]
    Classify(Classify),
    /// Look at the cache of a device, or of a proxy
    #[command(subcommand)]
    Cache(Cache),
    /// Look into log files
    #[command(subcommand)]
    Log(Log),
    /// Look at the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Make keys
    #[command(subcommand)]
    Key(Key),
    /// Print the completions of a shell
    #[command(after_help = "Examples:
  scot completions bash > /etc/bash_completion.d/scot")]
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Write the manual pages into a folder
    #[command(after_help = "Examples:
  scot man /usr/local/share/man/man1")]
    Man {
        /// The folder; it is made if it is not there
        folder: PathBuf,
    },
    /// What an experiment runs inside a host's namespace.
    #[command(hide = true)]
    LabWorker {
        /// What to do.
        spec: PathBuf,
    },
    /// A program `scot-NAME`.
    #[command(external_subcommand)]
    External(Vec<OsString>),
}

/// Flags of the demo.
#[derive(Debug, Args)]
pub struct Demo {
    /// Print one JSON object on standard output, everything else on standard error
    #[arg(long)]
    pub json: bool,
    /// How long tokens are written; requests are measured four times as long in all, without a Redis one and a half times
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,
    /// What serves: a real Redis, the embedded server, or Redis where it is installed
    #[arg(long, value_enum, default_value_t = DemoService::Auto)]
    pub service: DemoService,
    /// What moves the device's frames: this process, programs in the kernel, or these where they can run
    #[arg(long, value_enum, default_value_t = DemoPlane::Auto)]
    pub plane: DemoPlane,
    /// Show GETs that the device answers (its cache of reads) instead: beside Redis alone, and stage by stage
    #[arg(long, conflicts_with = "report")]
    pub cache: bool,
    /// Keep what the processes print
    #[arg(long, value_name = "FOLDER")]
    pub log_folder: Option<PathBuf>,
    /// End with a picture: write the study of the calls to FILE, one HTML page; what it was made of lies beside it
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// What moves the frames in the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DemoPlane {
    /// The device's process.
    User,
    /// Programs in the kernel, or nothing.
    Xdp,
    /// Programs in the kernel where they can run, the device's process elsewhere.
    Auto,
}

/// What serves in the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DemoService {
    /// redis-server.
    Redis,
    /// scot kv.
    Kv,
    /// Redis where it is installed, scot kv elsewhere.
    Auto,
}

/// Flags of the setup.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct Setup {
    /// The group, by name or number, whose members may use the sets
    #[arg(long, value_name = "GROUP", required_unless_present = "release")]
    pub group: Option<String>,
    /// How many sets there are to be at least, each for one device at a time
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub sets: u32,
    /// How many slots of 1.5 KiB the log of each has in the kernel's memory (32768 for a new one)
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub slots: Option<u32>,
    /// Where the sets lie, in a BPF file system (/sys/fs/bpf/scotfree-group-GROUP by default)
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// Remove all sets of the group, their logs with them
    #[arg(long, conflicts_with_all = ["sets", "slots", "release"])]
    pub remove: bool,
    /// End the log in a set and take its programs from all ports; members may do it
    #[arg(long, value_name = "SET", conflicts_with_all = ["group", "sets", "slots", "folder"])]
    pub release: Option<PathBuf>,
}

/// Flags of the doctor.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print the findings as JSON
    #[arg(long)]
    pub json: bool,
    /// A port that a device shall have, instead of those of the configuration; may be given more than once
    #[arg(long = "port", value_name = "INTERFACE")]
    pub ports: Vec<String>,
    /// The plane that a device shall have, instead of the configuration's
    #[arg(long)]
    pub plane: Option<Plane>,
    /// The folder, in a BPF file system, where a device keeps its log, instead of the configuration's
    #[arg(long, value_name = "FOLDER")]
    pub pin: Option<PathBuf>,
    /// Settings of the section.
    #[command(flatten)]
    pub settings: Doctor,
}

/// Flags of the device daemon.
#[derive(Debug, Args)]
pub struct SwitchArgs {
    /// Settings that all share.
    #[command(flatten)]
    pub cluster: Cluster,
    /// Settings of the section.
    #[command(flatten)]
    pub settings: Switch,
}

/// A device's cache, or a proxy's.
#[derive(Debug, Subcommand)]
pub enum Cache {
    /// How many reads it has answered, and why it has passed the others on
    #[command(after_help = "Examples:
  scot cache stats                          of the device whose [switch] metrics scot.toml names
  scot cache stats --metrics 127.0.0.1:9102 --json
  scot cache stats --metrics 127.0.0.1:9103 of a proxy that was started with --metrics 127.0.0.1:9103")]
    Stats(CacheStats),
    /// What it keeps, the newest first: key, bytes of the reply, how long it is answered yet
    #[command(after_help = "Examples:
  scot cache ls
  scot cache ls --limit 1000 --json")]
    Ls(CacheLs),
    /// Why a GET of this key is answered on the way, or not
    #[command(after_help = "Examples:
  scot cache why user:1
  scot cache why user:1 --database 3")]
    Why(CacheWhy),
    /// Forget a key, or all of them: the next GET asks the server
    #[command(after_help = "Examples:
  scot cache drop user:1
  scot cache drop --all
Nothing that is answered becomes wrong or right by it. Ends with 1 if nothing was known of the key.")]
    Drop(CacheDrop),
}

/// Flags of the cache's counts.
#[derive(Debug, Args)]
pub struct CacheStats {
    /// Where the device, or the proxy, answers /metrics, instead of the configuration's
    #[arg(long, value_name = "IP:PORT", value_parser = crate::text::socket_address)]
    pub metrics: Option<SocketAddr>,
    /// Print what is counted as JSON
    #[arg(long)]
    pub json: bool,
}

/// Whom a question goes to, and who asks.
#[derive(Debug, Args)]
pub struct CacheAsk {
    /// Where the device, or the proxy, answers /metrics, instead of the configuration's
    #[arg(long, value_name = "IP:PORT", value_parser = crate::text::socket_address)]
    pub metrics: Option<SocketAddr>,
    /// The file with the cluster's secret, instead of the configuration's: keys are told to nobody else
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
}

/// Flags of the cache's list.
#[derive(Debug, Args)]
pub struct CacheLs {
    /// Whom it goes to.
    #[command(flatten)]
    pub ask: CacheAsk,
    /// So many at most
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
    /// Print it as JSON; keys that are no UTF-8 in hexadecimal as `key_hex`
    #[arg(long)]
    pub json: bool,
}

/// Flags of the question why.
#[derive(Debug, Args)]
pub struct CacheWhy {
    /// The key
    pub key: OsString,
    /// The number of its database
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub database: u16,
    /// Whom it goes to.
    #[command(flatten)]
    pub ask: CacheAsk,
}

/// Flags of forgetting.
#[derive(Debug, Args)]
pub struct CacheDrop {
    /// The key
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub key: Option<OsString>,
    /// The number of its database
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub database: u16,
    /// All keys
    #[arg(long)]
    pub all: bool,
    /// Whom it goes to.
    #[command(flatten)]
    pub ask: CacheAsk,
}

/// Flags of the embedded server.
#[derive(Debug, Args)]
pub struct KvArgs {
    /// Settings that all share.
    #[command(flatten)]
    pub cluster: Cluster,
    /// Settings of the section.
    #[command(flatten)]
    pub settings: Kv,
}

/// Flags of a proxy's peer.
#[derive(Debug, Args)]
pub struct PeerArgs {
    /// Settings that all share.
    #[command(flatten)]
    pub cluster: Cluster,
    /// Settings of the section.
    #[command(flatten)]
    pub settings: Peer,
}

/// Flags of the proxy.
#[derive(Debug, Args)]
pub struct ProxyArgs {
    /// Settings that all share.
    #[command(flatten)]
    pub cluster: Cluster,
    /// Settings of the section.
    #[command(flatten)]
    pub settings: Proxy,
}

/// The two sidecars.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one, at the start")]
pub enum Sidecar {
    /// In front of Redis clients: they connect here instead of to their server
    #[command(after_help = "Examples:
  scot sidecar client --listen 127.0.0.1:6379 --server 10.0.0.2:51000 --key-file cluster.key
  scot sidecar client --config scot.toml --mode early --early-prefix session: --durability ram:3
SIGHUP reads the configuration again and takes over mode, prefixes and the log level.")]
    Client(SidecarClientArgs),
    /// Behind the protocol, in front of an unmodified Redis or Valkey
    #[command(after_help = "Examples:
  scot sidecar server --listen 10.0.0.2:51000 --redis unix:/run/redis/redis.sock \\
      --dead-letters /var/lib/scot/dead.txt --device 1=10.0.0.254:51000 --key-file cluster.key")]
    Server(SidecarServerArgs),
}

/// Flags of the client's sidecar.
#[derive(Debug, Args)]
pub struct SidecarClientArgs {
    /// Settings that all share.
    #[command(flatten)]
    pub cluster: Cluster,
    /// Settings of the section.
    #[command(flatten)]
    pub settings: Client,
}

/// Flags of the server's sidecar.
#[derive(Debug, Args)]
pub struct SidecarServerArgs {
    /// Settings that all share.
    #[command(flatten)]
    pub cluster: Cluster,
    /// Settings of the section.
    #[command(flatten)]
    pub settings: Server,
}

#[cfg(feature = "lab")]
/// What is measured beside others.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// The codec of messages: prost, buffa, quick-protobuf and pilota, for Thrift Apache's and pilota, in turns
    #[command(after_help = "Examples:
  scot bench codec                       all messages; half a minute, and minutes before it the first time, to build
  scot bench codec flat:95 otlp          some: a class with 95 % of its fields absent, batches of spans
  scot bench codec --quick --json        five rounds, one JSON object on standard output
In a clone of the repository, with cargo. Each arm encodes messages, or decodes them and reads every field, in one
process on one processor; times are of its thread. Where we lose stands first. See docs/transform.md.")]
    Codec(BenchCodec),
    /// Rings in memory, beside UDP over loopback
    #[command(after_help = "Examples:
  scot bench ring                        half a minute, on two processors
  scot bench ring --count 20000 --json   fewer messages, one JSON object on standard output
What is required and missed stands first. See docs/rings.md.")]
    Ring(BenchRing),
}

#[cfg(feature = "lab")]
/// Flags of `scot bench ring`.
#[derive(Debug, Args)]
pub struct BenchRing {
    /// So many messages or calls for each number
    #[arg(long, value_name = "COUNT", default_value_t = 100_000, value_parser = count_of_messages)]
    pub count: usize,
    /// Print one JSON object on standard output, everything else on standard error
    #[arg(long)]
    pub json: bool,
}

#[cfg(feature = "lab")]
fn count_of_messages(word: &str) -> Result<usize, String> {
    let count: usize = word.parse().map_err(|error| format!("{error}"))?;
    if (100..=100_000_000).contains(&count) {
        Ok(count)
    } else {
        Err("give 100 to 100000000".to_owned())
    }
}

#[cfg(feature = "lab")]
/// Flags of `scot bench codec`.
#[derive(Debug, Args)]
pub struct BenchCodec {
    /// Which messages: flat, mixed, nested, each also :PERCENT absent; packed, maps, bytes, shuffled, unknown, otlp,
    /// thrift-binary, thrift-compact; all if none are named
    pub shapes: Vec<String>,
    /// Measure each arm so often
    #[arg(long, value_name = "COUNT", default_value_t = 31, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: u32,
    /// Five rounds: whether it works, not who is faster
    #[arg(long, conflicts_with = "rounds")]
    pub quick: bool,
    /// Print one JSON object on standard output, everything else on standard error
    #[arg(long)]
    pub json: bool,
    /// The repository's root
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub repository: PathBuf,
}

/// The lab.
#[derive(Debug, Subcommand)]
pub enum Lab {
    /// Make the namespaces of a topology and leave them up
    #[command(after_help = "Examples:
  scot lab up direct         a client and a server on one cable
  ip netns exec scot-direct-client ip -brief address
  scot lab up one-device     nothing passes the device before a switch bridges its ports:
  ip netns exec scot-one-device-device scot switch --port client0 --port server0 \\
      --address 10.77.0.254 --server 10.77.0.2:51000 --device-id 1 --key-file cluster.key
With --plane xdp enter by nsenter --net=/run/netns/scot-one-device-device instead: ip netns exec hides /sys/fs/bpf.")]
    Up {
        /// Its name, see scot lab list, or its file
        topology: PathBuf,
    },
    #[cfg(feature = "lab")]
    /// Run experiments and write lab/results
    #[command(after_help = "Examples:
  scot lab run                            all but those that take very long
  scot lab run kill-rounds --rounds 100 --no-results
Ends with 1 if a required value is missed.")]
    Run(LabRun),
    #[cfg(feature = "lab")]
    /// Run experiments shortly and say which recorded results still hold
    #[command(after_help = "Examples:
  scot lab confirm                        results older than the code, but not retrieval's: 20 minutes at most
  scot lab confirm kernel-ack probes
What comes out as recorded is written into lab/results beside what is recorded; what does not is to be measured again.
Ends with 0 if all is confirmed, with 1 if something is worse, with 3 if nothing is worse and not all is confirmed.
See docs/confirming.md.")]
    Confirm(LabConfirm),
    #[cfg(feature = "lab")]
    /// Make the plots of lab/results again, as Vega-Lite; `make plots` draws them
    #[command(after_help = "Examples:
  scot lab plot                           of all results
  scot lab plot kernel-ack
What is drawn is said by the [[plot]] tables of lab/experiments.")]
    Plot {
        /// Names in lab/results; all if none is named
        experiments: Vec<String>,
    },
    /// Run a command under the limits of a small machine: memory, processors, rates of disks
    #[command(after_help = "Examples:
  scot lab device board-1gb -- scot rag ask 'which instrument has strings?'
  scot lab device board-1gb --memory 400MB --cold -- python3 search.py     limits of its own come first
  scot lab device --memory 400MB --report used.json -- python3 search.py
  scot lab list                                                            the devices there are
Ends as the command does: with its exit code, or 128 and the number of the signal that ended it; 137 may be the memory
limit, and the last lines say so. Before it begins: 2 for wrong words, 3 if the limits cannot be had here (it takes root).
Processor time is given out in slices of a period of 10 ms: means over seconds are meaningful. See docs/edge-emulation.md.")]
    Device(LabDevice),
    /// Remove what a lab left up
    #[command(after_help = "Examples:
  scot lab down one-device
  scot lab down              what killed runs left; lists what stays up
  scot lab down --all        the labs that were kept up as well")]
    Down {
        /// Which; if none is named, only what killed runs left is removed
        #[arg(conflicts_with = "all")]
        name: Option<String>,
        /// Remove every lab that was kept up, with the processes in it, whoever brought it up
        #[arg(long)]
        all: bool,
    },
    /// List the labs that are up, and the topologies, workloads, devices and experiments there are
    #[command(after_help = "Examples:
  scot lab list")]
    List,
    /// Load a service that speaks RESP, and print what was measured
    #[command(after_help = "Examples:
  scot lab load lab/workloads/set-get-one.toml --address 127.0.0.1:6379")]
    Load {
        /// The workload's file
        workload: PathBuf,
        /// The service
        #[arg(long)]
        address: SocketAddr,
    },
    /// Record the calls that a fit of persist rests on: SETs without and with a device, in turns
    #[command(after_help = "Examples:
  scot plan fit --here                          this, and the fit of it
  scot lab fit-calls calls/ && scot plan fit calls/baseline.jsonl --remedy calls/remedy.jsonl
Takes 25 s in namespaces of its own, and writes calls/baseline.jsonl and calls/remedy.jsonl.")]
    FitCalls(FitCalls),
    #[cfg(not(feature = "lab"))]
    #[command(external_subcommand)]
    Experiments(Vec<OsString>),
}

/// Flags of `scot lab fit-calls`.
#[derive(Debug, Args)]
pub struct FitCalls {
    /// Where the records are written; made if it is not there
    pub folder: PathBuf,
    /// Print one JSON object on standard output, everything else on standard error
    #[arg(long)]
    pub json: bool,
    /// What serves: a real Redis, the embedded server, or Redis where it is installed
    #[arg(long, value_enum, default_value_t = DemoService::Auto)]
    pub service: DemoService,
    /// What moves the device's frames: its process, programs in the kernel, or these where they can run
    #[arg(long, value_enum, default_value_t = DemoPlane::Auto)]
    pub plane: DemoPlane,
    /// Keep what the processes print
    #[arg(long, value_name = "FOLDER")]
    pub log_folder: Option<PathBuf>,
}

#[cfg(feature = "lab")]
/// Flags of `scot lab run`.
#[derive(Debug, Args)]
pub struct LabRun {
    /// Names in lab/experiments; all but the longest if none is named
    pub experiments: Vec<String>,
    /// Measure each arm so often, instead of as often as the experiment says
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub repetitions: Option<u32>,
    /// So many rounds of killing, instead of as many as the experiment says
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: Option<u64>,
    /// Where randomness begins
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Keep what the daemons print
    #[arg(long, value_name = "FOLDER")]
    pub log_folder: Option<PathBuf>,
    /// At which priority what is measured runs: normal or real-time; real-time where that is permitted and the
    /// experiment measures time
    #[arg(long, value_name = "PRIORITY")]
    pub priority: Option<Priority>,
    /// Do not write lab/results
    #[arg(long)]
    pub no_results: bool,
}

#[cfg(feature = "lab")]
/// Flags of `scot lab confirm`.
#[derive(Debug, Args)]
pub struct LabConfirm {
    /// Names in lab/experiments; if none is named, those whose results are older than the code, but not retrieval's
    pub experiments: Vec<String>,
    /// All there are, those with results of the code of now and retrieval's as well
    #[arg(long, conflicts_with = "experiments")]
    pub all: bool,
    /// At which priority what is measured runs: normal or real-time; that of the recorded result if none is said
    #[arg(long, value_name = "PRIORITY")]
    pub priority: Option<Priority>,
    /// Keep what the daemons print
    #[arg(long, value_name = "FOLDER")]
    pub log_folder: Option<PathBuf>,
    /// Do not write into lab/results
    #[arg(long)]
    pub no_results: bool,
}

/// Flags of `scot lab device`.
#[derive(Debug, Args)]
pub struct LabDevice {
    /// Its name in lab/devices, or its file; without it, only what flags name is limited
    pub profile: Option<PathBuf>,
    /// Memory, the page cache of what is read with it, as 400MB or 1GiB
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Bytes>,
    /// This machine's processors, as 0.5
    #[arg(long, value_name = "COUNT")]
    pub cpus: Option<Processors>,
    /// What may be read from each disk, as 25MB/s
    #[arg(long, value_name = "RATE")]
    pub read_rate: Option<BytesPerSecond>,
    /// What may be written to each disk, as 10MB/s
    #[arg(long, value_name = "RATE")]
    pub write_rate: Option<BytesPerSecond>,
    /// How many reads a second of each disk
    #[arg(long, value_name = "COUNT")]
    pub read_iops: Option<NonZeroU32>,
    /// How many writes a second to each disk
    #[arg(long, value_name = "COUNT")]
    pub write_iops: Option<NonZeroU32>,
    /// A folder on a disk whose rates are limited, instead of the current one; may be given more than once
    #[arg(long = "disk", value_name = "FOLDER")]
    pub disks: Vec<PathBuf>,
    /// Empty this machine's page cache first, so that what is read comes from the disk
    #[arg(long)]
    pub cold: bool,
    /// Write what was used as JSON into FILE, replacing it
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// The tax.
#[derive(Debug, Subcommand)]
pub enum Tax {
    /// Draw the nine stages of the calls in OTLP JSON files
    #[command(after_help = "Examples:
  scot tax report trace.jsonl
  scot tax report baseline.jsonl --against remedy.jsonl
  scot tax report trace.jsonl --json")]
    Report(TaxReport),
}

/// Flags of `scot tax report`.
#[derive(Debug, Args)]
pub struct TaxReport {
    /// Files of one set of calls
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// A second set, drawn beside the first on the same scale
    #[arg(long, value_name = "FILE")]
    pub against: Vec<PathBuf>,
    /// Print JSON instead of bars
    #[arg(long)]
    pub json: bool,
}

#[cfg(feature = "lab")]
/// Flags of `scot claims`.
#[derive(Debug, Args)]
pub struct Claims {
    /// Write the tables of results into docs/results.md and README.md
    #[arg(long, alias = "update-readme")]
    pub update: bool,
    /// The repository
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub repository: PathBuf,
}

/// Flags of the list of remedies.
#[derive(Debug, Args)]
pub struct Remedies {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Flags of the simulator.
#[derive(Debug, Args)]
pub struct Sim {
    /// Run these seeds, FIRST..END
    #[arg(
        long,
        value_name = "RANGE",
        required_unless_present_any = ["seed", "timed"],
        conflicts_with = "seed"
    )]
    pub seeds: Option<String>,
    /// Run this seed
    #[arg(long, value_name = "SEED")]
    pub seed: Option<u64>,
    /// Print everything that happened
    #[arg(long, requires = "seed")]
    pub trace: bool,
    /// Worlds in which everything goes wrong at once
    #[arg(long)]
    pub storm: bool,
    /// The worlds of this remedy; without, of the first that has some
    #[arg(long, value_name = "NAME")]
    pub remedy: Option<String>,
    /// Scenarios of this kind; an unknown name lists those that there are
    #[arg(long, value_name = "NAME", conflicts_with = "storm")]
    pub kind: Option<String>,
    /// How long requests take and how many there are in a second, in simulated time: of this setup, or an overview
    #[arg(
        long,
        value_name = "NAME=VALUE,…",
        num_args = 0..=1,
        default_missing_value = "",
        conflicts_with_all = ["seeds", "trace", "storm", "kind"]
    )]
    pub timed: Option<String>,
    /// Print the numbers of a setup as JSON
    #[arg(long, requires = "timed")]
    pub json: bool,
}

/// Words of a Redis command.
#[derive(Debug, Args)]
pub struct Classify {
    /// A command with its arguments; without, the whole table is printed
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

/// Log files.
#[derive(Debug, Subcommand)]
pub enum Log {
    /// Say what a log file holds
    #[command(after_help = "Examples:
  scot log ls /dev/shm/scot.log
With --plane xdp most of the log is in the kernel's memory, and not in the file.")]
    Ls {
        /// The file
        file: PathBuf,
    },
    /// Read a whole log file and say whether it can be used; changes nothing
    #[command(after_help = "Examples:
  scot log verify /var/lib/scot/device.log
Ends with 1 if the file is damaged.")]
    Verify {
        /// The file
        file: PathBuf,
    },
    /// Print the log entries as JSON lines, in their order; keys and nonces never
    #[command(after_help = "Examples:
  scot log export /dev/shm/scot.log | jq .seq
  scot log export /var/lib/scot/device.log --payload --to entries.jsonl
The file appears whole, with mode 0600, or not at all; once more gives the same bytes.")]
    Export(LogExport),
    /// Hand what the log of a device that is gone for good holds to its server, so that no acknowledged update is lost
    #[command(after_help = "Examples:
  scot log replay saved.log --server 10.0.0.2 --address 10.0.0.254 --device-id 1 --key-file cluster.key --dry-run
  scot log replay ram.log disk.log --config scot.toml     server, address and device_id of its [switch]
Runs where the device's address is this machine's; changes nothing in the log; ends with 0 when the server holds all,
and may be run again. What else to do stands in docs/chain.md.")]
    Replay(LogReplay),
}

/// Flags of `scot log replay`.
#[derive(Debug, Clone, Args)]
pub struct LogReplay {
    /// The device's log, or both its logs, in memory and on disk
    #[arg(required = true, num_args = 1..=2)]
    pub files: Vec<PathBuf>,
    /// The server that the device served
    #[arg(long, value_name = "IP[:PORT]")]
    pub server: Option<Address>,
    /// The device's own address, at which the server asks it: an address of this machine for the time
    #[arg(long, value_name = "IP[:PORT]")]
    pub address: Option<Address>,
    /// The device's number in the cluster
    #[arg(long, value_name = "ID")]
    pub device_id: Option<u16>,
    /// The file with the cluster's secret
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Say what would be sent, and send nothing
    #[arg(long)]
    pub dry_run: bool,
    /// How long the server may be silent, in seconds, before this is given up
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub patience_s: u64,
}

/// Flags of `scot log export`.
#[derive(Debug, Args)]
pub struct LogExport {
    /// The log
    pub file: PathBuf,
    /// Write into this file, replacing it, instead of standard output
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
    /// With the requests themselves, in hexadecimal: what clients wrote
    #[arg(long)]
    pub payload: bool,
}

/// The configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Say whether a configuration can be used, with file, line and key of what is wrong
    #[command(after_help = "Examples:
  scot config check
  scot config check /etc/scotfree/scot.toml")]
    Check {
        /// The file (as --config)
        file: Option<PathBuf>,
    },
}

/// Keys.
#[derive(Debug, Subcommand)]
pub enum Key {
    /// Make a new cluster key: 32 random bytes in a file of mode 0600; never overwrites
    #[command(after_help = "Examples:
  scot key new cluster.key")]
    New {
        /// The file
        file: PathBuf,
    },
    /// Add a key of a new epoch, under which new sessions are opened once the daemons have read the file again
    /// (SIGHUP: servers first, then devices, then clients)
    #[command(after_help = "Examples:
  scot key rotate cluster.key
  scot key rotate cluster.key --epoch 3")]
    Rotate {
        /// The file
        file: PathBuf,
        /// The newest epoch that it is to have; nothing is done if it has it [default: one more than now]
        #[arg(long)]
        epoch: Option<u32>,
    },
    /// Take away all keys but the newest: the sessions of the others end once the daemons have read the file again
    /// (SIGHUP: devices first, then servers, then clients)
    #[command(after_help = "Examples:
  scot key retire cluster.key")]
    Retire {
        /// The file
        file: PathBuf,
    },
}

/// What is asked of a group.
#[derive(Debug, Subcommand)]
pub enum GroupVerb {
    /// Make a group at etcd; its members write the first view when all of them are there. Or write a file for it
    #[command(after_help = "Examples:
  scot group init etcd:http://10.0.0.9:2379/scotfree/g1 --name g1 \\
      --member 1=10.0.0.2:51900,10.0.0.2:51000 --member 2=10.0.0.3:51900,10.0.0.3:51000 \\
      --member 3=10.0.0.4:51900,10.0.0.4:51000
  scot group init static:members.toml --name g1 --member 1=10.0.0.2:51900,10.0.0.2:51000 …   a new file
Can be repeated. Then start scot kv --group g1 --member 1 … on each host. See docs/groups.md.")]
    Init {
        /// Where the group is kept: etcd:http://HOST:PORT/PREFIX, or static:FILE
        membership: String,
        /// Its name
        #[arg(long)]
        name: String,
        /// How its members agree
        #[arg(long, default_value = "craq")]
        protocol: String,
        /// How long a member may be silent before the others go on without it
        #[arg(long, value_name = "MILLISECONDS", default_value_t = 2_000)]
        lease_ms: u64,
        /// One of the first members: its number, its address for members, and that for clients
        #[arg(long = "member", value_name = "ID=PEERS,CLIENTS", required = true)]
        members: Vec<GroupMemberSpec>,
    },
    /// Who belongs to the group, who is alive, and how far each is
    #[command(after_help = "Examples:
  scot group status etcd:http://10.0.0.9:2379/scotfree/g1")]
    Status {
        /// Where the group is kept
        membership: String,
    },
    /// Wait until a member that was started belongs to the group and has its state. Or write that into a file
    #[command(after_help = "Examples:
  scot kv --group g1 --member 4 … &                  a member joins by being started
  scot group add etcd:http://10.0.0.9:2379/scotfree/g1 4
  scot group add static:members.toml 4 --at 4=10.0.0.5:51900,10.0.0.5:51000     the next view, in which it joins
  scot group add static:members.toml 4 --has-state        the next, when another member says that it has the state
Members read a file again when they get SIGHUP: first those that go on, then start the one that joins.
Ends with 1 if it has not the state within the time that --wait says.")]
    Add {
        /// Where the group is kept
        membership: String,
        /// Its number, from 1 to 255
        #[arg(value_parser = clap::value_parser!(u8).range(1..))]
        id: u8,
        /// How long to wait for it
        #[arg(long, value_name = "SECONDS", default_value_t = 60)]
        wait: u64,
        /// For a file that does not name it yet: its number, its address for members, and that for clients
        #[arg(long, value_name = "ID=PEERS,CLIENTS")]
        at: Option<GroupMemberSpec>,
        /// For a file: another member has said that it has the state
        #[arg(long)]
        has_state: bool,
    },
    /// Leave a member out that was stopped for good
    #[command(after_help = "Examples:
  scot group remove etcd:http://10.0.0.9:2379/scotfree/g1 3
  scot group remove static:members.toml 3        writes the next view; then send SIGHUP to the members that go on
A member that is silent is left out by the others when its lease is over; this says so at once. One that lives, and
the last that has the state, are not left out.")]
    Remove {
        /// Where the group is kept
        membership: String,
        /// Its number, from 1 to 255
        #[arg(value_parser = clap::value_parser!(u8).range(1..))]
        id: u8,
    },
    /// Go on with what one member holds, when all that had the state are lost with their logs
    #[command(after_help = "Examples:
  scot kv --group g1 --member 3 … &                  the member whose log is left, in which it waits
  scot group recover etcd:http://10.0.0.9:2379/scotfree/g1 3 --accept-loss
What was answered since that member was left out is lost. Members that had the state and come back with their logs go
on by themselves, and lose nothing: this is for when none will. The others join when they are started.")]
    Recover {
        /// Where the group is kept
        membership: String,
        /// The number of the member that goes on, from 1 to 255
        #[arg(value_parser = clap::value_parser!(u8).range(1..))]
        id: u8,
        /// What only lost members had is lost
        #[arg(long)]
        accept_loss: bool,
    },
    /// The view as it is at etcd, or in a file
    #[command(after_help = "Examples:
  scot group view etcd:http://10.0.0.9:2379/scotfree/g1")]
    View {
        /// Where the group is kept
        membership: String,
    },
}

/// A member as `scot group init` is told it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupMemberSpec {
    /// Its number.
    pub id: u8,
    /// Its address for members.
    pub peers: SocketAddr,
    /// Its address for clients.
    pub clients: SocketAddr,
}

impl std::str::FromStr for GroupMemberSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<GroupMemberSpec, String> {
        let wrong =
            || format!("{text}: a member is ID=PEERS,CLIENTS, such as 1=10.0.0.2:51900,10.0.0.2:51000");
        let (id, addresses) = text.split_once('=').ok_or_else(wrong)?;
        let (peers, clients) = addresses.split_once(',').ok_or_else(wrong)?;
        let id = id.parse().ok().filter(|id| *id > 0).ok_or_else(wrong)?;
        let address = |text: &str| text.parse().map_err(|_| wrong());
        Ok(GroupMemberSpec { id, peers: address(peers)?, clients: address(clients)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_flags_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example_and_every_flag_a_help() {
        fn walk(command: &clap::Command, path: &str) {
            for flag in command.get_arguments() {
                assert!(flag.get_help().is_some(), "{path}: {} has no help", flag.get_id());
            }
            if command.has_subcommands() {
                command
                    .get_subcommands()
                    .for_each(|inner| walk(inner, &format!("{path} {}", inner.get_name())));
            } else if !command.is_hide_set() {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("Examples:\n  ") && help.contains(path), "{path}: {help}");
            }
        }
        walk(&Cli::command(), "scot");
    }

    /// Who reads the key file first differs between the two, and a wrong order refuses openings or leases.
    #[test]
    fn the_order_of_a_rotation_is_that_of_the_documents() {
        let said = include_str!("../../../SECURITY.md");
        let rotation = said.lines().find(|line| line.contains("`scot key rotate FILE`")).expect("it is told");
        let (adds, takes) = rotation.split_once("`scot key retire FILE`").expect("it is told whole");
        for (name, told) in [("rotate", adds), ("retire", takes)] {
            let command = Cli::command();
            let key = command.find_subcommand("key").and_then(|key| key.find_subcommand(name));
            let about = key.and_then(clap::Command::get_about).expect("it has one").to_string();
            assert_eq!(
                order(told),
                order(about.split_once("SIGHUP").expect("it names it").1),
                "{name}: {about}"
            );
        }
    }

    fn order(text: &str) -> [&str; 3] {
        let mut roles = ["servers", "devices", "clients"];
        roles.sort_by_key(|role| text.find(role).expect("all three read it"));
        roles
    }

    /// Those of the Python package are typed by `python/tests/test_docs.py`.
    #[test]
    fn what_the_documents_say_can_be_typed() {
        let documents = [
            include_str!("../../../README.md"),
            include_str!("../../../docs/redis.md"),
            include_str!("../../../docs/plan.md"),
        ];
        let mut count = 0;
        for line in documents.into_iter().flat_map(str::lines).filter_map(typed) {
            let words: Vec<&str> =
                line.split_whitespace().take_while(|word| !["#", "&", ">/dev/null"].contains(word)).collect();
            if !["study", "plan", "rag"].contains(&words[1]) {
                count += 1;
                Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
            }
        }
        assert!(count >= 16, "only {count} lines were found");
    }

    /// What a line types of scot, also in a namespace.
    fn typed(line: &str) -> Option<&str> {
        let (before, _) = line.split_once("scot ")?;
        let is_typed = before.is_empty() || before.trim_start().starts_with("ip netns exec ");
        is_typed.then(|| line[before.len()..].split(';').next().unwrap_or_default())
    }

    #[test]
    fn a_member_is_a_number_and_two_addresses() {
        let read = |text: &str| text.parse::<GroupMemberSpec>();
        let address = |text: &str| text.parse().expect("an address");
        let (peers, clients) = (address("10.0.0.2:51900"), address("10.0.0.2:51000"));
        assert_eq!(read("1=10.0.0.2:51900,10.0.0.2:51000"), Ok(GroupMemberSpec { id: 1, peers, clients }));
        for text in [
            "",
            "1",
            "0=10.0.0.2:1,10.0.0.2:2",
            "1=10.0.0.2:1",
            "256=10.0.0.2:1,10.0.0.2:2",
            "1=x,10.0.0.2:2",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
