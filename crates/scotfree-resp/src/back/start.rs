//! From a fresh connection to a server that may be given requests.
//!
//! Invariant: when the start is over, no earlier incarnation can write any more, the markers read are the
//! last ones, and our own epoch is stored beside them. The order is what makes it so: check, take a new
//! epoch, end the predecessors' connections, and only then read the markers. A predecessor's connection
//! that was not there to be ended reads the epoch before it is used, and finds that it has been replaced.
//! Nothing is written before the append-only files are known to be whole: what is appended to an open
//! transaction is dropped or executed twice by a later load (see [`super::Ending`]).

use super::default_user::DefaultUser;
use super::ending::Ending;
use super::health::{no_data, obstacles, passing, remote_obstacle, version, waiting, way_in, Info, Settings};
use super::kept::lacking;
use super::lane::{Expected, Lane};
use super::markers::{foreign_epoch, integer_reply, MarkerError, Markers, EPOCH_FIELD};
use super::replies::line;
use super::rewrite::{Next, Rewriting};
use super::stability::AofFiles;
use super::{BackConfig, StopReason};
use crate::classes::Flags;
use crate::codec::{elements, is_error, parse_integer, text_of};
use crate::description::{CommandInfo, Description};
use scotfree_core::Nanos;
use std::collections::BTreeMap;

/// Connections whose names begin so are a sidecar's.
pub const LANE_NAME_PREFIX: &str = "scotfree-";
/// How long to wait before a server that is loading, or rewriting its file, is asked again.
pub(super) const BUSY_RETRY: Nanos = Nanos::from_millis(20);
/// Where it is noted who has counted the epoch up, and how that is told from a session.
const OWNER_FIELD: &[u8] = b"0:opaque";
const OWNER_MARK: &[u8; 16] = b"scotfree owner 1";
/// How often predecessors' connections are looked for; they are gone after the first time.
const KILL_ROUNDS_MAX: u32 = 20;

/// What the start waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Facts,
    Loading {
        until: Nanos,
    },
    /// The append-only files are being read.
    Ending,
    /// The server is told to rewrite them.
    Rewrite,
    /// It is doing so, or something that has to be over first; it is asked again at this time.
    Rewriting {
        until: Nanos,
    },
    /// It is being asked.
    Rewritten,
    /// Whether there is what was stable before is being asked.
    Kept,
    /// Who has counted the epoch up is being asked.
    Owner,
    /// That it will be counted up by this owner is being noted.
    Claim,
    Epoch,
    Predecessors {
        round: u32,
    },
    Kills {
        round: u32,
    },
    Markers,
}

/// The start under way.
#[derive(Debug)]
pub(super) struct Start {
    step: Step,
    replies: Vec<Vec<u8>>,
    wanted: usize,
    own_id: i64,
    /// The epoch that this owner has said to count up to.
    claimed: Option<u32>,
    pub info: Info,
    pub settings: Settings,
    pub description: Description,
    pub told_at: Nanos,
    pub markers: Markers,
    epoch: u32,
    pub killed: usize,
    rewriting: Option<Rewriting>,
    is_loading: bool,
}

/// What a step of the start leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// More replies are needed.
    Going,
    /// The server has work of its own to do first, which may take long; in words for the operator.
    Waits(String),
    /// These files have to be read.
    Read(AofFiles),
    /// The markers are read.
    Done,
    /// The server cannot be used; each reason says what to do.
    Refused(Vec<String>),
    /// It cannot be used as it is now, and nothing says that it is another one; each reason says what to do.
    Unwilling(Vec<String>),
    /// The stored epoch is not ours.
    Foreign(StopReason),
}

impl Start {
    /// Begins on a lane that has been greeted.
    pub fn begin(lane: &mut Lane) -> Start {
        let mut start = Start {
            step: Step::Facts,
            replies: Vec::new(),
            wanted: 0,
            own_id: lane.client_id,
            claimed: None,
            info: Info::default(),
            settings: Settings::default(),
            description: Description::default(),
            told_at: Nanos(0),
            markers: Markers::default(),
            epoch: 0,
            killed: 0,
            rewriting: None,
            is_loading: false,
        };
        start.ask_facts(lane);
        start
    }

    /// When [`Start::on_timer`] is wanted.
    pub fn timer(&self) -> Option<Nanos> {
        match self.step {
            Step::Loading { until } | Step::Rewriting { until } => Some(until),
            _ => None,
        }
    }

    /// Asks a server again that was loading or rewriting its file.
    pub fn on_timer(&mut self, now: Nanos, lane: &mut Lane) {
        match self.step {
            Step::Loading { until } if now >= until => self.ask_facts(lane),
            Step::Rewriting { until } if now >= until => {
                self.ask(lane, Step::Rewritten, &[&[b"INFO", b"persistence"]]);
            }
            _ => {}
        }
    }

    /// Whether the server has work of its own to do, which may take any time.
    pub fn waits(&self) -> bool {
        self.is_loading || self.rewriting.is_some()
    }

    /// Takes the reply to one of our commands.
    pub fn on_reply(&mut self, now: Nanos, reply: &[u8], lane: &mut Lane, config: &BackConfig) -> Progress {
        self.replies.push(reply.to_vec());
        if self.replies.len() < self.wanted {
            return Progress::Going;
        }
        let replies = std::mem::take(&mut self.replies);
        let busy = replies.iter().find_map(|reply| passing(reply));
        if let Some(what) = busy.filter(|_| self.step != Step::Facts) {
            // Some of what was asked may have been done: the whole start is repeated.
            return Progress::Foreign(StopReason::Lost(what.to_owned()));
        }
        match self.step {
            Step::Facts => self.on_facts(now, &replies, lane, config),
            Step::Loading { .. } | Step::Ending | Step::Rewriting { .. } => Progress::Going,
            Step::Rewrite => self.on_rewrite(now, &replies),
            Step::Rewritten => self.on_rewritten(now, &replies[0], lane, config),
            Step::Kept => self.on_kept(&replies[0], lane, config),
            Step::Owner => self.on_owner(&replies[0], lane, config),
            Step::Claim => self.on_claim(&replies[0], lane, config),
            Step::Epoch => self.on_epoch(&replies, lane, config),
            Step::Predecessors { round } => self.on_predecessors(round, &replies[0], lane, config),
            Step::Kills { round } => {
                self.ask_predecessors(round + 1, lane);
                Progress::Going
            }
            Step::Markers => self.on_markers(&replies[0]),
        }
    }

    fn ask(&mut self, lane: &mut Lane, step: Step, commands: &[&[&[u8]]]) {
        self.step = step;
        self.wanted = commands.len();
        for words in commands {
            lane.say(words, Expected::Step);
        }
    }

    fn ask_facts(&mut self, lane: &mut Lane) {
        let mut commands: Vec<Vec<&[u8]>> = vec![vec![b"INFO"], vec![b"TIME"], vec![b"COMMAND"]];
        commands.push(vec![b"ACL", b"GETUSER", b"default"]);
        for name in Settings::NAMES {
            commands.push(vec![b"CONFIG", b"GET", name.as_bytes()]);
        }
        let commands: Vec<&[&[u8]]> = commands.iter().map(Vec::as_slice).collect();
        self.ask(lane, Step::Facts, &commands);
    }

    fn on_facts(
        &mut self,
        now: Nanos,
        replies: &[Vec<u8>],
        lane: &mut Lane,
        config: &BackConfig,
    ) -> Progress {
        self.info = Info::parse(&replies[0]);
        let is_loading = self.info.get("loading") == "1";
        let busy = replies.iter().find_map(|reply| passing(reply));
        if is_loading || busy.is_some() {
            self.step = Step::Loading { until: now.plus(BUSY_RETRY) };
            return self.on_busy(busy);
        }
        self.is_loading = false;
        if let Some(text) = no_data(&self.info) {
            return Progress::Refused(vec![text]);
        }
        let is_in_the_way = |reply: &&Vec<u8>| is_error(reply) && !DefaultUser::is_unknown(reply);
        if let Some(error) = replies.iter().find(is_in_the_way) {
            return Progress::Unwilling(vec![refused(
                "what scot has to ask (INFO, CONFIG GET, ACL GETUSER)",
                error,
                config,
            )]);
        }
        for reply in &replies[4..] {
            self.settings.add(reply);
        }
        let databases: u16 = self.settings.get("databases").parse().unwrap_or(0);
        let reserved_db = config.reserved_db.unwrap_or(databases.saturating_sub(1));
        let was_served = config.last_epoch.is_some();
        let mut found = obstacles(&self.info, &self.settings, reserved_db, config.allow_unstable, was_served);
        if !config.same_host && found.is_empty() {
            found.extend(remote_obstacle(&self.info, &self.settings));
        }
        let default_user = DefaultUser::of(&replies[3]);
        found.extend(default_user.obstacle(&self.settings));
        if !found.is_empty() {
            return Progress::Unwilling(found);
        }
        self.told_at = now;
        self.description = Description {
            time_ms: time_ms(&replies[1]),
            version: self.info.get("redis_version").to_owned(),
            databases,
            reserved_db,
            auth_required: default_user.needs_password,
            early_allowed: true,
            writes_refused: None,
            packs: true,
            cached: config.vouches,
            own_user: own_user(config),
            asks: true,
            devices: config.devices,
            commands: commands(&replies[2]),
            ..Description::default()
        };
        if self.settings.get("appendonly") != "yes" {
            return self.ask_epoch(lane, config);
        }
        let files = AofFiles::of(&self.settings);
        if !config.same_host {
            let reason = "it is on another host".to_owned();
            return self.on_ending(Ending::Unknown { file: files.folder, reason }, lane, config);
        }
        self.step = Step::Ending;
        Progress::Read(files)
    }

    /// Says once what is waited for.
    fn on_busy(&mut self, busy: Option<&str>) -> Progress {
        if std::mem::replace(&mut self.is_loading, true) {
            return Progress::Going;
        }
        if let Some(what) = busy {
            return Progress::Waits(waiting(what));
        }
        let percent = self.info.get("loading_loaded_perc");
        Progress::Waits(format!("the server is loading its files ({percent} %); waiting until it is done"))
    }

    /// The append-only files were read.
    pub fn on_ending(&mut self, ending: Ending, lane: &mut Lane, config: &BackConfig) -> Progress {
        let has_one_file = version(&self.info) < (7, 0);
        let Some(rewriting) = Rewriting::because_of(ending, has_one_file) else {
            return self.ask_epoch(lane, config);
        };
        let (said, commands) = (rewriting.text(), rewriting.commands());
        self.rewriting = Some(rewriting);
        self.ask(lane, Step::Rewrite, commands);
        Progress::Waits(said)
    }

    fn on_rewrite(&mut self, now: Nanos, replies: &[Vec<u8>]) -> Progress {
        let Some(rewriting) = &mut self.rewriting else { return Progress::Going };
        if let Err(refusal) = rewriting.on_replies(replies) {
            return Progress::Unwilling(vec![refusal]);
        }
        self.step = Step::Rewriting { until: now.plus(BUSY_RETRY) };
        Progress::Going
    }

    fn on_rewritten(&mut self, now: Nanos, reply: &[u8], lane: &mut Lane, config: &BackConfig) -> Progress {
        let Some(rewriting) = &mut self.rewriting else { return Progress::Going };
        match rewriting.on_info(&Info::parse(reply)) {
            Ok(Next::Wait) => self.step = Step::Rewriting { until: now.plus(BUSY_RETRY) },
            Ok(Next::Again) => {
                let commands = rewriting.commands();
                self.ask(lane, Step::Rewrite, commands);
            }
            Ok(Next::Done) => {
                self.rewriting = None;
                return self.ask_epoch(lane, config);
            }
            Err(refusal) => return Progress::Unwilling(vec![refusal]),
        }
        Progress::Going
    }

    fn ask_epoch(&mut self, lane: &mut Lane, config: &BackConfig) -> Progress {
        lane.enter(self.description.reserved_db, 2);
        let key = config.marker_key.as_bytes();
        if config.owner.is_some() {
            self.ask(lane, Step::Owner, &[&[b"HMGET", key, EPOCH_FIELD, OWNER_FIELD]]);
        } else if !config.kept.is_empty() {
            self.ask(lane, Step::Kept, &[&[b"HGETALL", key]]);
        } else {
            self.count_up(lane, config);
        }
        Progress::Going
    }

    fn count_up(&mut self, lane: &mut Lane, config: &BackConfig) {
        let key = config.marker_key.as_bytes();
        self.ask(lane, Step::Epoch, &[&[b"HINCRBY", key, EPOCH_FIELD, b"1"]]);
    }

    /// Positions only grow, so it is not waited for predecessors' ends. Nothing was changed yet: it is asked again until
    /// the data is back. Of another epoch it is said when that is counted up.
    fn on_kept(&mut self, reply: &[u8], lane: &mut Lane, config: &BackConfig) -> Progress {
        let markers = read_markers(reply).ok().filter(|markers| Some(markers.epoch) == config.last_epoch);
        if let Some(reason) = markers.and_then(|markers| lacking(&config.kept, &markers)) {
            return Progress::Unwilling(vec![reason]);
        }
        self.count_up(lane, config);
        Progress::Going
    }

    /// Nothing was changed yet: who is not the owner leaves no trace.
    fn on_owner(&mut self, reply: &[u8], lane: &mut Lane, config: &BackConfig) -> Progress {
        if is_error(reply) {
            return self.no_epoch(reply, config);
        }
        let Some(owner) = config.owner else { return Progress::Going };
        let fields: Vec<Option<&[u8]>> = elements(reply).map(text_of).collect();
        let field = |at: usize| fields.get(at).copied().flatten();
        let found = field(0).and_then(parse_integer).and_then(|epoch| u32::try_from(epoch).ok()).unwrap_or(0);
        // A claim that is older than the epoch was somebody's before the last one who has counted it up; one that is
        // newer by one was made, and its maker died before it counted.
        let is_last = |epoch: u32| epoch == found || epoch == found.wrapping_add(1);
        let claim = field(1).and_then(read_claim).filter(|(epoch, _)| is_last(*epoch));
        let is_ours = claim.is_some_and(|(_, name)| name == owner.name);
        let is_right = match config.last_epoch {
            _ if owner.takes_over => true,
            // What was counted here before this owner's last start bears this owner's claim as well.
            Some(last) if found < last => {
                return Progress::Foreign(foreign_epoch((found > 0).then_some(found), last));
            }
            // Nor is what bears its name always its own: its log may be an old copy, or another process may have one.
            _ if is_ours => owner.may_have_counted || found == config.last_epoch.unwrap_or(0),
            // Whoever has counted it since is another one, although as far.
            Some(last) if found == last => claim.is_none_or(|(epoch, _)| epoch != found),
            Some(last) => return Progress::Foreign(foreign_epoch(Some(found), last)),
            None => claim.is_none(),
        };
        if !is_right {
            return Progress::Foreign(if is_ours { StopReason::Fenced } else { StopReason::Owned });
        }
        let claim = write_claim(found.wrapping_add(1), &owner.name);
        self.ask(lane, Step::Claim, &[&[b"HSET", config.marker_key.as_bytes(), OWNER_FIELD, &claim]]);
        self.claimed = Some(found.wrapping_add(1));
        Progress::Going
    }

    fn on_claim(&mut self, reply: &[u8], lane: &mut Lane, config: &BackConfig) -> Progress {
        if is_error(reply) {
            return self.no_epoch(reply, config);
        }
        self.count_up(lane, config);
        Progress::Going
    }

    fn on_epoch(&mut self, replies: &[Vec<u8>], lane: &mut Lane, config: &BackConfig) -> Progress {
        let epoch = integer_reply(&replies[0]).and_then(|epoch| u32::try_from(epoch).ok());
        let Some(epoch) = epoch else {
            return self.no_epoch(&replies[0], config);
        };
        let expected = self.claimed.or(config.last_epoch.map(|last| last + 1));
        if let Some(expected) = expected.filter(|expected| epoch != *expected) {
            return Progress::Foreign(foreign_epoch(Some(epoch), expected));
        }
        self.epoch = epoch;
        self.ask_predecessors(0, lane);
        Progress::Going
    }

    fn no_epoch(&self, reply: &[u8], config: &BackConfig) -> Progress {
        let (db, key) = (self.description.reserved_db, &config.marker_key);
        let what = format!("to count up the epoch in `{key}` of database {db}");
        // What is not a hash, or no number in it, was put there by somebody else.
        if !is_error(reply) || reply.starts_with(b"-WRONGTYPE") || reply.starts_with(b"-ERR hash value") {
            let look = format!("look at it with: redis-cli -n {db} HGETALL {key}");
            return Progress::Refused(vec![format!("{}; {look}", refused(&what, reply, config))]);
        }
        Progress::Unwilling(vec![refused(&what, reply, config)])
    }

    fn ask_predecessors(&mut self, round: u32, lane: &mut Lane) {
        self.ask(lane, Step::Predecessors { round }, &[&[b"CLIENT", b"LIST"]]);
    }

    fn on_predecessors(
        &mut self,
        round: u32,
        reply: &[u8],
        lane: &mut Lane,
        config: &BackConfig,
    ) -> Progress {
        if is_error(reply) {
            return Progress::Unwilling(vec![refused(
                "to name predecessors' connections (CLIENT LIST)",
                reply,
                config,
            )]);
        }
        let others: Vec<String> =
            sidecars(reply).into_iter().filter(|id| *id != self.own_id).map(|id| id.to_string()).collect();
        if others.is_empty() {
            self.ask(lane, Step::Markers, &[&[b"HGETALL", config.marker_key.as_bytes()]]);
            return Progress::Going;
        }
        if round == KILL_ROUNDS_MAX {
            return Progress::Refused(vec![format!(
                "{} connections of another sidecar come back as soon as they are ended; stop that sidecar",
                others.len()
            )]);
        }
        self.killed += others.len();
        let commands: Vec<[&[u8]; 4]> =
            others.iter().map(|id| [b"CLIENT".as_slice(), b"KILL", b"ID", id.as_bytes()]).collect();
        let commands: Vec<&[&[u8]]> = commands.iter().map(<[&[u8]; 4]>::as_slice).collect();
        self.ask(lane, Step::Kills { round }, &commands);
        Progress::Going
    }

    fn on_markers(&mut self, reply: &[u8]) -> Progress {
        match read_markers(reply) {
            Ok(markers) if markers.epoch == self.epoch => {
                self.markers = markers;
                Progress::Done
            }
            Ok(markers) => Progress::Foreign(foreign_epoch(Some(markers.epoch), self.epoch)),
            Err(error) => Progress::Refused(vec![error.to_string()]),
        }
    }
}

/// A claim has the form of what is kept of a session, and stands where that of a session 0 would: who knows nothing
/// of owners takes it for a session that never speaks.
fn write_claim(epoch: u32, name: &[u8; 16]) -> Vec<u8> {
    [&epoch.to_le_bytes()[..], name, OWNER_MARK].concat()
}

fn read_claim(claim: &[u8]) -> Option<(u32, [u8; 16])> {
    let (epoch, rest) = claim.split_first_chunk::<4>()?;
    let (name, mark) = rest.split_first_chunk::<16>()?;
    (mark == OWNER_MARK).then_some((u32::from_le_bytes(*epoch), *name))
}

/// Says what a server refuses, and what to do about it as far as its answer tells.
fn refused(what: &str, reply: &[u8], config: &BackConfig) -> String {
    let user = config.credentials.as_ref().map_or("default", |(user, _)| user);
    let said = line(reply);
    let next = way_in(&said, user).map(|next| format!("; {next}")).unwrap_or_default();
    format!("it refuses {what}: {said}{next}")
}

/// Reads HGETALL's reply.
pub(super) fn read_markers(reply: &[u8]) -> Result<Markers, MarkerError> {
    let texts: Vec<&[u8]> = elements(reply).map(|element| text_of(element).unwrap_or_default()).collect();
    Markers::parse(texts.chunks_exact(2).map(|pair| (pair[0], pair[1])))
}

/// The server's Unix time in milliseconds, from TIME's reply.
pub(super) fn time_ms(reply: &[u8]) -> i64 {
    let mut parts = elements(reply).filter_map(text_of).filter_map(parse_integer);
    let (seconds, micros) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    seconds * 1_000 + micros / 1_000
}

/// The numbers of the connections that belong to sidecars, from CLIENT LIST's reply.
fn sidecars(reply: &[u8]) -> Vec<i64> {
    let text = String::from_utf8_lossy(text_of(reply).unwrap_or_default()).into_owned();
    let is_ours = |line: &&str| {
        line.split(' ')
            .any(|fact| fact.strip_prefix("name=").is_some_and(|name| name.starts_with(LANE_NAME_PREFIX)))
    };
    let id = |line: &str| line.split(' ').find_map(|fact| fact.strip_prefix("id=")?.parse().ok());
    text.lines().filter(is_ours).filter_map(id).collect()
}

/// The user that a client may be without a state of its own: what it may do, its sidecar may.
fn own_user(config: &BackConfig) -> String {
    let user = config.credentials.as_ref().map_or("", |(user, _)| user);
    if user == "default" {
        String::new()
    } else {
        user.to_owned()
    }
}

/// The server's commands, from COMMAND's reply.
fn commands(reply: &[u8]) -> BTreeMap<Vec<u8>, CommandInfo> {
    let mut found = BTreeMap::new();
    for command in elements(reply) {
        let parts: Vec<&[u8]> = elements(command).collect();
        add_command(&parts, &mut found);
        for subcommand in parts.get(9).into_iter().flat_map(|list| elements(list)) {
            add_command(&elements(subcommand).collect::<Vec<_>>(), &mut found);
        }
    }
    found
}

fn add_command(parts: &[&[u8]], found: &mut BTreeMap<Vec<u8>, CommandInfo>) {
    let [name, arity, flags, ..] = parts else { return };
    let (Some(name), Some(arity)) = (text_of(name), text_of(arity).and_then(parse_integer)) else { return };
    let flags = elements(flags)
        .filter_map(|flag| std::str::from_utf8(text_of(flag)?).ok())
        .map(Flags::named)
        .fold(Flags::default(), Flags::with);
    let arity = i32::try_from(arity).unwrap_or(0);
    found.insert(name.to_ascii_lowercase(), CommandInfo { arity, flags });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sidecars_are_known_by_their_names() {
        let text = "id=3 addr=x name=scotfree-shared db=0\nid=4 addr=x name= db=0\nid=5 name=myscotfree- x\nid=9 name=scotfree-probe\n";
        let reply = format!("${}\r\n{text}\r\n", text.len());
        assert_eq!(sidecars(reply.as_bytes()), [3, 9]);
    }

    #[test]
    fn predecessors_that_always_come_back_are_refused() {
        let config = BackConfig::default();
        let mut lane = Lane::new(super::super::Purpose::Control, config.limits);
        let mut start = Start::begin(&mut lane);
        let list = "id=3 addr=x name=scotfree-shared db=0\n";
        let reply = format!("${}\r\n{list}\r\n", list.len());
        let mut look = |round| start.on_predecessors(round, reply.as_bytes(), &mut lane, &config);
        assert_eq!(look(KILL_ROUNDS_MAX - 1), Progress::Going);
        let Progress::Refused(reasons) = look(KILL_ROUNDS_MAX) else { panic!("it is over") };
        assert!(reasons[0].contains("stop that sidecar"), "{reasons:?}");
    }

    #[test]
    fn commands_and_subcommands_are_read() {
        let reply =
            b"*1\r\n*10\r\n$6\r\nconfig\r\n:-2\r\n*1\r\n+admin\r\n:0\r\n:0\r\n:0\r\n*0\r\n*0\r\n*0\r\n*1\r\n\
            *3\r\n$10\r\nconfig|get\r\n:-3\r\n*1\r\n+write\r\n";
        let found = commands(reply);
        assert_eq!(found[b"config".as_slice()].arity, -2);
        assert!(found[b"config|get".as_slice()].flags.has(Flags::WRITE));
    }
}
