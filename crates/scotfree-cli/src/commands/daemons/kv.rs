//! The command `scot kv`: the embedded key-value server.
//!
//! Invariant: its write-ahead file is read and its sessions are known before the first request is taken.

use super::place::Place;
use super::{
    cluster_key, dead_letters_of, devices, exclude_more, excluded, is_cached, say_excluded, spin_of, take_key,
};
use crate::config::Sources;
use crate::failure::{required, Failure};
use crate::registry::GROUPS;
use crate::serve::{begin, keep_files_private, say_reload, InForce, Listening, Messages};
use crate::settings::{AnswerWhen, Config, Kv};
use crate::text::Size;
use scotfree_core::{DeviceId, Nanos};
use scotfree_io::disk::{DiskConfig, DiskDomain, DiskWriter};
use scotfree_io::{Spin, Transport, Waker};
use scotfree_kv::{IndexKind, JournalLimits, KvOptions, KvRecovery, KvService};
use scotfree_resp::codec::write_error;
use scotfree_resp::payload::{write_response, ResponseFlags};
use scotfree_rpc::{
    Exclusions, GroupPlan, RecoveredSession, Replies, ServerConfig, ServerOptions, ServerRuntime, Service,
    SharedKey,
};
use scotfree_wire::{ClusterKey, ExtensionSet, Nonce};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Of a write-ahead file, unless another size is named.
const LOG: Size = Size(128 << 20);
/// How members of a group agree, unless they are told otherwise.
const PROTOCOL: &str = "craq";
/// By how much clocks go wrong at most, in parts of a million.
const DRIFT_PPM_MAX: u32 = 500;
/// Of a member of a group without devices: each client has two with each member.
const MEMBER_SESSIONS_MAX: usize = 4_096;
/// About what a write takes whose members all sleep between their datagrams.
const MEMBERS_LOOK_FOR: Nanos = Nanos::from_micros(500);
/// How long writes that were answered from memory wait for others to be stored with.
const GATHERED_FOR: Nanos = Nanos::from_millis(1);

/// What the settings mean, all of it there.
struct Plan {
    place: Place,
    log: PathBuf,
    log_bytes: u64,
    index: IndexKind,
    devices: Vec<(DeviceId, SocketAddr)>,
    excluded: Vec<DeviceId>,
    vouches: bool,
    dead_letters: PathBuf,
    group: Option<Group>,
}

/// A member of a group, as the settings say it.
struct Group {
    name: String,
    id: u8,
    protocol: String,
    membership: String,
    peers: SocketAddr,
    is_stored_first: bool,
}

/// Runs the server until it is told to end.
pub fn run(sources: Sources) -> Result<(), Failure> {
    keep_files_private();
    let settings = sources.read()?;
    let key = cluster_key(&settings.cluster)?;
    let plan = plan(&settings.kv).map_err(|failure| sources.placed("kv", failure))?;
    let messages = Messages::new("kv", settings.cluster.log_level);
    // The file last: a start that is refused for anything else has not made or touched it.
    let listening = Listening::open(settings.kv.metrics)?;
    let transport = plan.place.open()?;
    refuse_to_leave_a_group(&plan)?;
    let Opened { mut service, recovery, log_name } = open(&plan)?;
    let teller = messages.clone();
    service.tell(move |line| teller.say(line));
    messages.say(&describe(&plan, &recovery, service.store().data_bytes_max()));
    let shared = SharedKey::from(key.clone());
    let read_again = waker()?;
    let service = grouped(&plan, service, (&recovery, log_name), &key, &messages, &read_again)?;
    let mut runtime = runtime(&plan, transport, service, &recovery, key, &settings.kv)?;
    let what = format!("kv {}", plan.place);
    say_excluded(&messages, &plan.excluded);
    let exclusions = Exclusions::of(plan.excluded.iter().copied());
    runtime.obey(exclusions.clone());
    runtime.follow_key(shared.clone());
    let in_force = InForce::of(&settings.kv).and(&settings.cluster);
    let excluded = settings.kv.exclude.clone();
    let messages_of_reload = messages.clone();
    let mut reload = Reload {
        sources,
        in_force,
        excluded,
        messages: messages_of_reload,
        exclusions,
        key: shared,
        read_again,
    };
    let serving = begin(what, listening, move || reload.run())?;
    let drained = runtime.run(&serving.stop, Some(&serving.board)).map_err(|error| {
        Failure::tried("serve", &error, "nothing that was acknowledged is lost; mend it and start again")
    })?;
    if !drained {
        messages.say("ALARM: not everything became stable in time; devices hold what did not");
    }
    messages.say("stopped");
    Ok(())
}

struct Reload {
    sources: Sources,
    in_force: InForce,
    /// The devices to go on without.
    excluded: Vec<u16>,
    messages: Messages,
    exclusions: Exclusions,
    key: SharedKey,
    /// The member, if the server is one, reads its membership again when this is woken.
    read_again: Arc<Waker>,
}

impl Reload {
    fn run(&mut self) {
        self.read_again.wake();
        let is_right = |new: &Config| -> Result<ClusterKey, Failure> {
            let key = cluster_key(&new.cluster)?;
            check(&new.kv).map_err(|failure| self.sources.placed("kv", failure))?;
            Ok(key)
        };
        match self.sources.read().and_then(|new| Ok((is_right(&new)?, new))) {
            Ok((key, new)) => {
                self.messages.set_level(new.cluster.log_level);
                let Reload { messages, exclusions, .. } = &*self;
                let is_obeyed = exclude_more(messages, exclusions, &self.excluded, &new.kv.exclude);
                let mut reloadable = vec!["log_level", "key_file", "key"];
                if is_obeyed {
                    reloadable.push("exclude");
                    self.excluded.clone_from(&new.kv.exclude);
                }
                let new = InForce::of(&new.kv).and(&new.cluster);
                let mut changed = self.in_force.take_over(&new, &reloadable);
                changed.extend(take_key(&self.messages, &self.key, key).then(|| "key".to_owned()));
                say_reload(&self.messages, &changed, &reloadable);
            }
            Err(failure) => self.messages.say(&format!("ALARM: not reloaded: {failure}")),
        }
    }
}

/// Refuses settings that are not complete.
pub fn check(kv: &Kv) -> Result<(), Failure> {
    plan(kv).map(drop)
}

fn plan(kv: &Kv) -> Result<Plan, Failure> {
    let log = required(kv.log.as_ref(), "kv", "log")?;
    let dead_letters = kv.dead_letters.clone().unwrap_or_else(|| dead_letters_of(&log));
    let place = Place::of("kv", kv.listen.as_ref(), kv.transport.as_deref())?;
    if place.udp().is_none() {
        needs_no_address(kv, &place)?;
    }
    Ok(Plan {
        place,
        devices: devices(&kv.devices)?,
        excluded: excluded(&kv.exclude, &kv.devices)?,
        vouches: is_cached("kv", kv.cache_device, &kv.devices)?,
        log_bytes: kv.log_size.unwrap_or(LOG).0,
        index: kv.index.unwrap_or_default().kind(),
        log,
        dead_letters,
        group: group(kv)?,
    })
}

/// What others reach over the network has an address.
fn needs_no_address(kv: &Kv, place: &Place) -> Result<(), Failure> {
    let other = match (kv.group.is_some(), kv.devices.is_empty()) {
        (true, _) => "a member of a group (--group) is one that clients of any host reach",
        (false, false) => "a device (--device) lies on the path of a network",
        (false, true) => return Ok(()),
    };
    Err(Failure::usage(format!(
        "{place} is for clients on this machine, and {other}: listen at an address (--listen)"
    )))
}

fn group(kv: &Kv) -> Result<Option<Group>, Failure> {
    let Some(name) = kv.group.clone() else { return without_a_group(kv).map(|()| None) };
    let protocol = kv.protocol.clone().unwrap_or_else(|| PROTOCOL.to_owned());
    let known = GROUPS.iter().any(|maker| maker.protocols.contains(&protocol.as_str()));
    if !known {
        let all: Vec<&str> = GROUPS.iter().flat_map(|maker| maker.protocols).copied().collect();
        return Err(Failure::usage(format!(
            "there is no protocol {protocol} here: choose one of {}",
            all.join(", ")
        )));
    }
    let is_stored_first = kv.answer_when != Some(AnswerWhen::Memory);
    if !kv.devices.is_empty() {
        fits_devices(kv, &protocol, is_stored_first)?;
    }
    Ok(Some(Group {
        name,
        id: required(kv.member.as_ref(), "kv", "member")?,
        protocol,
        membership: required(kv.membership.as_ref(), "kv", "membership")?,
        peers: required(kv.peers.as_ref(), "kv", "peers")?.0,
        is_stored_first,
    }))
}

/// A server that is told of other members and of no group would stand at a member's address, alone.
fn without_a_group(kv: &Kv) -> Result<(), Failure> {
    let told = [
        ("--member", kv.member.is_some()),
        ("--peers", kv.peers.is_some()),
        ("--membership", kv.membership.is_some()),
        ("--protocol", kv.protocol.is_some()),
        ("--answer-when", kv.answer_when.is_some()),
    ];
    let names: Vec<&str> = told.iter().filter(|(_, is_told)| *is_told).map(|(name, _)| *name).collect();
    if names.is_empty() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{} without --group: name the group of which this is a member",
        names.join(", ")
    )))
}

/// A device forgets a write when its server says that it is stored, and gives them back in one order.
fn fits_devices(kv: &Kv, protocol: &str, is_stored_first: bool) -> Result<(), Failure> {
    if kv.cache_device.is_some() {
        return Err(Failure::usage(
            "a cache before a member does not see what clients of other members write: leave out --cache-device, or \
             --group",
        ));
    }
    if protocol == "hermes" {
        return Err(Failure::usage(
            "a group of the protocol hermes has no device before its members: it orders each key by itself, and what a \
             device replays has one order. Leave out --device, or choose craq or chain",
        ));
    }
    if !is_stored_first {
        return Err(Failure::usage(
            "a device forgets what its server says is stored: with --device, leave out --answer-when memory",
        ));
    }
    Ok(())
}

/// A file with the log's name and more.
fn beside(log: &Path, more: &str) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(more);
    name.into()
}

/// What is written to a member's log alone no other member has: it would be lost when the member joins again.
fn refuse_to_leave_a_group(plan: &Plan) -> Result<(), Failure> {
    let kept = beside(&plan.log, ".group");
    if plan.group.is_some() || !kept.exists() {
        return Ok(());
    }
    Err(Failure::environment(format!(
        "{} is the log of a member of a group, and what is written to it alone no other member would have: start it \
         with --group; or, to leave the group for good, move {} away",
        plan.log.display(),
        kept.display()
    )))
}

/// The service itself, or as a member of its group.
fn grouped(
    plan: &Plan,
    service: KvService<DiskDomain>,
    (recovery, log_name): (&KvRecovery, u64),
    key: &ClusterKey,
    messages: &Messages,
    read_again: &Arc<Waker>,
) -> Result<Box<dyn Service>, Failure> {
    let Some(group) = &plan.group else { return Ok(Box::new(service)) };
    let of_protocol = |maker: &&scotfree_rpc::GroupMaker| maker.protocols.contains(&group.protocol.as_str());
    let maker = GROUPS.iter().find(of_protocol).expect("the plan has a protocol that there is");
    let holds_data = !service.store().is_empty();
    let is_behind_device = !plan.devices.is_empty();
    let service = if is_behind_device { service } else { without_sessions(service, recovery) };
    let teller = messages.clone();
    let member = GroupPlan {
        group: group.name.clone(),
        id: group.id,
        protocol: group.protocol.clone(),
        membership: group.membership.clone(),
        peers: group.peers,
        clients: plan.place.udp().expect("a member of a group listens at an address"),
        boot: life()?,
        key: key.clone(),
        is_stored_first: group.is_stored_first,
        is_behind_device,
        sessions: sessions_of(plan, recovery).to_vec(),
        kept: beside(&plan.log, ".group"),
        log: log_name,
        holds_data,
        drift_ppm_max: DRIFT_PPM_MAX,
        read_again: Arc::clone(read_again),
        decline,
    };
    (maker.member)(member, Box::new(service), Box::new(move |line| teller.say(line)))
        .map_err(Failure::environment)
}

fn waker() -> Result<Arc<Waker>, Failure> {
    Waker::new().map(Arc::new).map_err(|error| Failure::tried("make a waker", &error, "see ulimit -n"))
}

/// A number for this life of a member. Views compare lives for being the same, never for which came first; so it is
/// drawn, and not the log's epoch: that begins anew with a log that was replaced, and a member without a state would
/// be taken for the earlier life that had it. Two lives are equal once in four billion times.
///
/// The numbers of requests have its lower 16 bits (those of `GroupClient` have the log's epoch instead), and two lives
/// may share them: what is remembered of requests is found by the client's 16 bytes and the lower 40 bits. Of a session
/// without identities the server's nonce is part of these 16 bytes: the session's own name begins anew with a new log.
fn life() -> Result<u32, Failure> {
    let drawn =
        getrandom::u32().map_err(|error| Failure::environment(format!("no random numbers: {error}")))?;
    Ok(drawn.max(1))
}

/// The sessions of an earlier life that go on: those of a member only if devices hold what they had under way.
fn sessions_of<'a>(plan: &Plan, recovery: &'a KvRecovery) -> &'a [RecoveredSession] {
    let ends = plan.group.is_some() && plan.devices.is_empty();
    if ends {
        &[]
    } else {
        &recovery.sessions
    }
}

/// Forgets the sessions of an earlier life.
fn without_sessions(mut service: KvService<DiskDomain>, recovery: &KvRecovery) -> KvService<DiskDomain> {
    let mut replies = Replies::new();
    for record in &recovery.sessions {
        service.delete_session(record.session, &mut replies);
    }
    service
}

/// Why a member does not execute a request, as a reply.
fn decline(why: &str) -> Vec<u8> {
    let (mut answer, mut reply) = (Vec::new(), Vec::new());
    write_error(&mut answer, why);
    write_response(&mut reply, ResponseFlags::NONE, &answer);
    reply
}

/// The service on its log.
struct Opened {
    service: KvService<DiskDomain>,
    recovery: KvRecovery,
    log_name: u64,
}

fn open(plan: &Plan) -> Result<Opened, Failure> {
    let config = DiskConfig { log_bytes: plan.log_bytes, writer: writer_of(plan), ..DiskConfig::default() };
    let domain = DiskDomain::open(&plan.log, &config).map_err(Failure::environment)?;
    // An existing file keeps the size that it has.
    let bounds = KvOptions::for_log(domain.log_bytes(), plan.devices.len() as u32, plan.dead_letters.clone());
    let limits = JournalLimits { gather_time: gather_time_of(plan), ..bounds.limits };
    let options = KvOptions { index: plan.index, vouches: plan.vouches, limits, ..bounds };
    let log_name = domain.log_name();
    let (service, recovery) = KvService::open(domain, &options).map_err(Failure::environment)?;
    Ok(Opened { service, recovery, log_name })
}

/// Members wait for each other's storage: a wake-up of a thread that writes would come on top of each write.
fn writer_of(plan: &Plan) -> DiskWriter {
    match &plan.group {
        Some(group) if group.is_stored_first => DiskWriter::OWNER,
        _ => DiskWriter::Thread,
    }
}

/// Nobody waits for the storage of a member that answers from memory.
fn gather_time_of(plan: &Plan) -> Nanos {
    match &plan.group {
        Some(group) if !group.is_stored_first => GATHERED_FOR,
        _ => Nanos(0),
    }
}

/// Whether it looks for events before it sleeps. A write that is answered from memory waits for nothing but members'
/// wake-ups, four or five of them one behind the other, and where processors halt each is dearer than the rest.
fn how_it_looks(plan: &Plan, spin_us: Option<u64>) -> Spin {
    match &plan.group {
        Some(group) if !group.is_stored_first && spin_us.is_none() => Spin::UpTo(MEMBERS_LOOK_FOR),
        _ => spin_of(spin_us),
    }
}

/// The server's loop, whatever it serves by.
type Runtime = ServerRuntime<Box<dyn Transport>, Box<dyn Service>>;

fn runtime(
    plan: &Plan,
    transport: Box<dyn Transport>,
    service: Box<dyn Service>,
    recovery: &KvRecovery,
    key: ClusterKey,
    kv: &Kv,
) -> Result<Runtime, Failure> {
    let mut seed = Nonce::default();
    getrandom::fill(&mut seed)
        .map_err(|error| Failure::environment(format!("no random numbers: {error}")))?;
    let mut config =
        ServerConfig::new(transport.local_address(), key, recovery.epoch, seed, plan.devices.clone());
    match (&plan.group, plan.devices.is_empty()) {
        // A device's log keeps no identities: what it gives back would be another request than what was sent elsewhere.
        (Some(_), false) => config.extensions = ExtensionSet::KEYS.with(ExtensionSet::OBJECT),
        (Some(_), true) => config.sessions_max = MEMBER_SESSIONS_MAX,
        (None, _) => {}
    }
    let options = ServerOptions { spin: how_it_looks(plan, kv.spin_us), ..ServerOptions::default() };
    Ok(ServerRuntime::new(transport, service, config, sessions_of(plan, recovery), options))
}

fn describe(plan: &Plan, recovery: &KvRecovery, data_bytes_max: usize) -> String {
    let KvRecovery { epoch, sessions, key_count, report, .. } = recovery;
    let torn = match report.torn_count {
        0 => String::new(),
        count => format!(", {count} torn records cut off"),
    };
    format!(
        "epoch {epoch}, {key_count} keys and {} sessions from {}{torn}, index {}; room for {data_bytes_max} bytes \
         of data",
        sessions.len(),
        plan.log.display(),
        plan.index.name()
    )
}
