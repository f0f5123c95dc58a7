//! A small state, and members of it that are told step by step what happens: for tests of the machines.
//!
//! Invariant: nothing arrives, and no time passes, but what a test lets arrive and pass.

use crate::replica::{Decline, Limits, MemberConfig, Replica, ReplicaOwn, StableWhen, Write};
use crate::view::{Member, MemberId, Standing, View};
use scotfree_core::{Effect, Effects, Nanos, SeqNum, SessionId};
use scotfree_state::{
    Applied, DamagedSnapshot, Facts, Installed, Mark, Placed, Results, ResultsLimits, State, Touches, Version,
};
use scotfree_wire::{ClusterKey, Direction, Identity};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

/// `[b'S', key, number]` sets and says nothing, `[b'A', key, number]` adds and says what there is then,
/// `[b'G', key]` says what there is, and `[b'M', number]` sets the keys 1 and 2.
#[derive(Debug, Clone)]
pub(crate) struct Toy {
    numbers: BTreeMap<u8, u8>,
    versions: BTreeMap<u8, Version>,
    mark: Mark,
    installed: u64,
    results: Results,
    /// How many writes storage was given, and has.
    given: u64,
    stored: u64,
}

impl Toy {
    pub(crate) fn new() -> Toy {
        let results = Results::new(ResultsLimits::default());
        let (numbers, versions) = (BTreeMap::new(), BTreeMap::new());
        Toy { numbers, versions, mark: Mark(0), installed: 0, results, given: 0, stored: 0 }
    }

    /// What a key holds.
    pub(crate) fn number(&self, key: u8) -> Option<u8> {
        self.numbers.get(&key).copied()
    }

    fn run(&mut self, op: &[u8]) -> Vec<u8> {
        match *op {
            [b'S', key, number] => drop(self.numbers.insert(key, number)),
            [b'A', key, number] => *self.numbers.entry(key).or_default() += number,
            [b'M', number] => self.numbers.extend([(1, number), (2, number)]),
            _ => {}
        }
        match op {
            [b'A' | b'G', key, ..] => self.number(*key).into_iter().collect(),
            _ => Vec::new(),
        }
    }

    fn give(&mut self) -> Applied {
        self.given += 1;
        Applied { number: self.given, is_refused: false }
    }
}

impl State for Toy {
    fn facts(&mut self, op: &[u8]) -> Facts {
        let touches = if op[0] == b'M' { Touches::Several } else { Touches::One(vec![op[1]]) };
        Facts { touches, is_blind: op[0] == b'S' }
    }

    fn query(&mut self, op: &[u8], reply: &mut Vec<u8>) -> bool {
        reply.extend(self.run(op));
        false
    }

    fn apply(&mut self, placed: &Placed<'_>, reply: &mut Vec<u8>) -> Applied {
        assert_eq!(placed.mark.0, self.mark.0 + 1, "marks grow by one");
        let answer = self.run(placed.op);
        self.mark = placed.mark;
        self.results.note(&placed.identity, placed.at_ms, &answer);
        reply.extend(answer);
        self.give()
    }

    fn take_place(&mut self, _session: SessionId, _seq: SeqNum) -> Applied {
        self.give()
    }

    fn mark(&self) -> Mark {
        self.mark
    }

    fn progress(&self) -> u64 {
        self.mark.0 + self.installed
    }

    fn stable(&self) -> u64 {
        self.stored
    }

    fn has_room(&self) -> bool {
        true
    }

    fn results(&self) -> &Results {
        &self.results
    }

    fn version(&self, key: &[u8]) -> Version {
        self.versions.get(&key[0]).copied().unwrap_or_default()
    }

    fn try_write(&mut self, op: &[u8], reply: &mut Vec<u8>, value: &mut Vec<u8>) -> (bool, bool) {
        let mut tried = self.clone();
        reply.extend(tried.run(op));
        (tried.value(&op[1..2], value), false)
    }

    fn value(&self, key: &[u8], out: &mut Vec<u8>) -> bool {
        out.extend(self.number(key[0]));
        self.number(key[0]).is_some()
    }

    fn install(&mut self, installed: &Installed<'_>) -> Applied {
        let key = installed.key[0];
        if installed.version > self.version(&[key]) {
            self.versions.insert(key, installed.version);
            match installed.value {
                Some(value) => drop(self.numbers.insert(key, value[0])),
                None => drop(self.numbers.remove(&key)),
            }
        }
        self.installed += 1;
        self.results.note(&installed.identity, installed.at_ms, installed.reply);
        self.give()
    }

    fn write_snapshot(&self, out: &mut Vec<u8>) {
        out.extend([self.mark.0, self.installed].map(u64::to_le_bytes).concat());
        out.extend([self.numbers.len() as u8, self.versions.len() as u8]);
        self.numbers.iter().for_each(|(key, number)| out.extend([*key, *number]));
        for (key, version) in &self.versions {
            out.push(*key);
            out.extend(version.counter.to_le_bytes());
            out.extend(version.member.to_le_bytes());
        }
        self.results.write(out);
    }

    fn read_snapshot(&mut self, bytes: &[u8]) -> Result<Applied, DamagedSnapshot> {
        let taken = read(bytes).ok_or_else(|| DamagedSnapshot("it is cut".to_owned()))?;
        *self = Toy { given: self.given, stored: self.stored, ..taken };
        Ok(self.give())
    }

    fn fingerprint(&self) -> u64 {
        0
    }
}

fn read(bytes: &[u8]) -> Option<Toy> {
    let (numbers, bytes) = bytes.split_first_chunk::<16>()?;
    let (&[number_count, version_count], mut bytes) = bytes.split_first_chunk::<2>()?;
    let word = |bytes: &[u8]| Some(u64::from_le_bytes(bytes.try_into().ok()?));
    let (mark, installed) = (Mark(word(&numbers[..8])?), word(&numbers[8..])?);
    let mut toy = Toy { mark, installed, ..Toy::new() };
    for _ in 0..number_count {
        let (&[key, number], rest) = bytes.split_first_chunk()?;
        toy.numbers.insert(key, number);
        bytes = rest;
    }
    for _ in 0..version_count {
        let (entry, rest) = bytes.split_first_chunk::<11>()?;
        let member = u16::from_le_bytes([entry[9], entry[10]]);
        toy.versions.insert(entry[0], Version { counter: word(&entry[1..9])?, member });
        bytes = rest;
    }
    (toy.results, _) = Results::read(ResultsLimits::default(), bytes)?;
    Some(toy)
}

/// What a member has told its shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    Answer(u64, Vec<u8>),
    Stable(u64),
    Decline(u64, Decline),
    Lost(u64),
    Promote(u8),
}

struct Datagram {
    from: u8,
    to: u8,
    bytes: Vec<u8>,
}

/// Members by number, and the datagrams between them.
pub(crate) struct Group<M> {
    pub members: BTreeMap<u8, M>,
    pub now: Nanos,
    on_the_way: VecDeque<Datagram>,
    said: Vec<(u8, Said)>,
}

pub(crate) fn address(id: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, id], 1))
}

/// A member that keeps nothing of the log that it need not, and sends all at once.
pub(crate) fn config(id: u8, stable_when: StableWhen) -> MemberConfig {
    MemberConfig {
        group: 1,
        id: MemberId(id),
        boot: 1,
        address: address(id),
        keys: ClusterKey::from_bytes([1; 32]).controls(Direction::MemberToMember),
        real_ms_at_zero: 0,
        stable_when,
        lineage: None,
        limits: Limits { kept_bytes_max: 0, ..Limits::default() },
        planted: crate::fault::Planted::default(),
    }
}

/// A view of full members and of one that joins, or of none that does.
pub(crate) fn view(epoch: u64, full: &[u8], joining: &[u8]) -> View {
    let member = |id: u8, standing| {
        let (peers, clients) = (address(id), address(id));
        Member { id: MemberId(id), boot: 1, peers, clients, standing }
    };
    let members = full.iter().map(|id| member(*id, Standing::Full));
    let members = members.chain(joining.iter().map(|id| member(*id, Standing::Joining))).collect();
    View { epoch, founded: 1, members }
}

/// The request of a client's count that goes to this member first.
pub(crate) fn identity(home: u8, count: u64) -> Identity {
    Identity { client: [1; 16], number: u64::from(home) << 56 | count }
}

impl<M: Replica<State = Toy>> Group<M> {
    /// Members that have a lease, and no view.
    pub(crate) fn new(ids: &[u8], make: impl Fn(u8) -> M) -> Group<M> {
        let mut members: BTreeMap<u8, M> = ids.iter().map(|id| (*id, make(*id))).collect();
        for member in members.values_mut() {
            member.on_lease(Nanos(u64::MAX));
        }
        Group { members, now: Nanos(0), on_the_way: VecDeque::new(), said: Vec::new() }
    }

    /// Lets a member do something, and takes what it says and sends.
    pub(crate) fn act(&mut self, id: u8, act: impl FnOnce(&mut M, Nanos, &mut Effects<ReplicaOwn>)) {
        let mut effects = Effects::new();
        let member = self.members.get_mut(&id).expect("there is such a member");
        act(member, self.now, &mut effects);
        member.flush(self.now, &mut effects);
        for effect in effects.iter() {
            match effect {
                Effect::Send { to, bytes, .. } => {
                    let SocketAddr::V4(to) = to else { continue };
                    let (to, bytes) = (to.ip().octets()[3], effects.bytes(*bytes).to_vec());
                    self.on_the_way.push_back(Datagram { from: id, to, bytes });
                }
                Effect::Own(own) => self.said.push((id, said(own, &effects))),
                Effect::Persist { .. } | Effect::Erase { .. } => {}
            }
        }
    }

    /// These members take a view.
    pub(crate) fn take_view(&mut self, ids: &[u8], view: &View) {
        for id in ids {
            self.act(*id, |member, now, effects| member.on_view(now, view, effects));
        }
    }

    pub(crate) fn write(&mut self, id: u8, ticket: u64, identity: Identity, op: &[u8]) {
        self.act(id, |member, now, effects| {
            member.write(now, &Write { ticket, identity, session: None, op }, effects);
        });
    }

    pub(crate) fn read(&mut self, id: u8, ticket: u64, key: u8) {
        self.act(id, |member, now, effects| member.read(now, ticket, &[b'G', key], effects));
    }

    /// A member's storage has so many more of the writes that it was given, or all.
    pub(crate) fn store(&mut self, id: u8, count: u64) {
        self.act(id, |member, now, effects| {
            let toy = member.state_mut();
            toy.stored = toy.stored.saturating_add(count).min(toy.given);
            member.on_stored(now, effects);
        });
    }

    /// What is on its way from one member to another arrives.
    pub(crate) fn carry(&mut self, from: u8, to: u8) {
        for datagram in self.take_from_the_way(|datagram| (datagram.from, datagram.to) == (from, to)) {
            self.arrive(&datagram);
        }
    }

    /// What is on its way from one member to another is lost.
    pub(crate) fn lose(&mut self, from: u8, to: u8) {
        drop(self.take_from_the_way(|datagram| (datagram.from, datagram.to) == (from, to)));
    }

    /// All that is on its way between these members arrives, and what they send each other then.
    pub(crate) fn carry_all(&mut self, ids: &[u8]) {
        let is_between = |datagram: &Datagram| ids.contains(&datagram.from) && ids.contains(&datagram.to);
        loop {
            let datagrams = self.take_from_the_way(is_between);
            if datagrams.is_empty() {
                return;
            }
            for datagram in &datagrams {
                self.arrive(datagram);
            }
        }
    }

    fn take_from_the_way(&mut self, is_meant: impl Fn(&Datagram) -> bool) -> Vec<Datagram> {
        let all = std::mem::take(&mut self.on_the_way);
        let (meant, left): (Vec<_>, Vec<_>) = all.into_iter().partition(is_meant);
        self.on_the_way = left.into();
        meant
    }

    fn arrive(&mut self, datagram: &Datagram) {
        self.act(datagram.to, |member, now, effects| member.on_message(now, &datagram.bytes, effects));
    }

    /// Time passes for these members, and all that is due then is done; nothing arrives meanwhile.
    pub(crate) fn wait(&mut self, ids: &[u8], span: Nanos) {
        self.now = self.now.plus(span);
        for id in ids {
            self.act(*id, M::on_timer);
        }
    }

    /// What a member has said since it was asked last.
    pub(crate) fn said(&mut self, id: u8) -> Vec<Said> {
        let (of_it, left) = std::mem::take(&mut self.said).into_iter().partition(|(by, _)| *by == id);
        self.said = left;
        of_it.into_iter().map(|(_, said)| said).collect()
    }
}

fn said(own: &ReplicaOwn, effects: &Effects<ReplicaOwn>) -> Said {
    match *own {
        ReplicaOwn::Answer { ticket, reply, .. } => Said::Answer(ticket, effects.bytes(reply).to_vec()),
        ReplicaOwn::Stable { ticket } => Said::Stable(ticket),
        ReplicaOwn::Decline { ticket, why } => Said::Decline(ticket, why),
        ReplicaOwn::Lost { ticket } => Said::Lost(ticket),
        ReplicaOwn::Promote { member, .. } => Said::Promote(member.0),
    }
}
