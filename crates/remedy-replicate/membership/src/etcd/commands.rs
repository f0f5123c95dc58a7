//! What an operator asks of a group at etcd: to make it, to show it, to leave a member out, to go on after a loss.
//!
//! Invariant: each can be repeated, and says the second time that nothing was left to do. No command writes a view
//! that the members would not write (G7).

use super::absent::Absent;
use super::decide::{recovered, swap};
use super::endpoint::Endpoint;
use super::gateway::Gateway;
use super::request::{Answer, Guard, Request, Swap};
use super::seen::{LiveKey, Seen, GROUP, VIEW};
use crate::form::{json, Group, Listed, Live};
use remedy_replicate::{Member, MemberId, Standing, View};
use scotfree_core::Nanos;
use scotfree_io::now_boottime;
use std::time::Duration;

/// How long one server is waited for.
const LIMIT: Nanos = Nanos::from_secs(2);
/// A member that does not answer for this long is no member: shorter ones etcd does not grant.
const LEASE_MS: std::ops::RangeInclusive<u64> = 1_000..=60_000;
/// How long a group's name may be.
const NAME_BYTES_MAX: usize = 128;
/// How often a write is tried again when members wrote at the same time.
const TRIES_MAX: usize = 8;

/// Whether there was something to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// It was done now.
    Now,
    /// It was so before.
    Before,
}

/// A group as it is at etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// What it is.
    pub group: Group,
    /// Its view, if one was written yet.
    pub view: Option<View>,
    /// Everyone who is in the view, listed for the first one, or alive, by number.
    pub members: Vec<MemberStatus>,
}

/// One member as it is at etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its number.
    pub id: MemberId,
    /// How it takes part; nothing if the view does not name it.
    pub standing: Option<Standing>,
    /// What it says of itself; nothing if its lease is over.
    pub live: Option<Live>,
    /// How many whole seconds its lease lasts still.
    pub lease_left_seconds: Option<u64>,
}

/// Makes a group: its key, by which members know what they are part of. The members write its first view when all
/// of them are there. One that nobody has joined yet may be made otherwise.
pub fn init(endpoint: &Endpoint, group: &Group) -> Result<Done, String> {
    check(group)?;
    let mut gateway = Gateway::new(endpoint.clone());
    for _ in 0..TRIES_MAX {
        let seen = look(&mut gateway)?;
        if seen.group.as_ref() == Some(group) {
            return Ok(Done::Before);
        }
        if let Some(known) = seen.group.as_ref().filter(|_| seen.view.is_some() || !seen.lives.is_empty()) {
            let (known, wished) = (json(known), json(group));
            return Err(format!("{endpoint}: there is another group already: {known}, and not {wished}"));
        }
        if write(&mut gateway, first_key(group, &seen))? {
            return Ok(Done::Now);
        }
    }
    Err(changes(endpoint))
}

/// The group's key, if nobody has made another or come since.
fn first_key(group: &Group, seen: &Seen) -> Swap {
    let mut guards = vec![
        Guard::Written { key: GROUP.to_owned(), revision: seen.group_written },
        Guard::Written { key: VIEW.to_owned(), revision: 0 },
    ];
    let listed = seen.group.iter().flat_map(|known| &known.members).map(|listed| MemberId(listed.id));
    guards.extend(listed.map(|id| seen.guard(id)));
    Swap { guards, key: GROUP.to_owned(), value: json(group), lease: None }
}

fn changes(endpoint: &Endpoint) -> String {
    format!("{endpoint}: the group changed {TRIES_MAX} times meanwhile; try it again")
}

/// The view that is at etcd, if one was written yet.
pub fn view(endpoint: &Endpoint) -> Result<Option<View>, String> {
    let mut gateway = Gateway::new(endpoint.clone());
    known_group(endpoint, &mut gateway).map(|(_, seen)| seen.view)
}

/// What the group is, who is in its view, and who is alive.
pub fn status(endpoint: &Endpoint) -> Result<Status, String> {
    let mut gateway = Gateway::new(endpoint.clone());
    let (group, seen) = known_group(endpoint, &mut gateway)?;
    let mut ids: Vec<MemberId> = group.members.iter().map(|listed| MemberId(listed.id)).collect();
    ids.extend(seen.view.iter().flat_map(|view| &view.members).map(|member| member.id));
    ids.extend(seen.lives.keys());
    ids.sort_unstable();
    ids.dedup();
    let members: Result<_, String> = ids.into_iter().map(|id| member(&mut gateway, &seen, id)).collect();
    Ok(Status { group, view: seen.view, members: members? })
}

/// Leaves a member out of the view, which the others do by themselves while one of them has the state. It must be
/// down: one that is alive may be answering reads (G7), and one whose key is gone for less than a lease, too.
pub fn remove(endpoint: &Endpoint, id: MemberId) -> Result<Done, String> {
    let mut gateway = Gateway::new(endpoint.clone());
    let (mut absent, mut done, mut tries) = (Absent::default(), Done::Before, 0);
    let (group, _) = known_group(endpoint, &mut gateway)?;
    let ttl = granted(&mut gateway, &group)?;
    while tries < TRIES_MAX {
        let (_, seen) = known_group(endpoint, &mut gateway)?;
        let Some(view) = seen.view.as_ref().filter(|view| view.member(id).is_some()) else {
            return Ok(done);
        };
        let next = without(view, &seen, id)?;
        absent.look(now_boottime(), &seen, ttl);
        done = Done::Now;
        if absent.lingering(now_boottime()).contains(&id) {
            pause(Nanos(ttl.0 / 20));
        } else if write(&mut gateway, swap(&next, &seen))? {
            return Ok(done);
        } else {
            tries += 1;
        }
    }
    Err(changes(endpoint))
}

/// Goes on with what one member holds, when all that had the state are lost: what they answered since this one was
/// left out is lost with them. It must have been started, with its log; the others join it.
pub fn recover(endpoint: &Endpoint, id: MemberId) -> Result<Done, String> {
    let mut gateway = Gateway::new(endpoint.clone());
    let (mut absent, mut done, mut tries) = (Absent::default(), Done::Before, 0);
    let (group, _) = known_group(endpoint, &mut gateway)?;
    let ttl = granted(&mut gateway, &group)?;
    while tries < TRIES_MAX {
        let (_, seen) = known_group(endpoint, &mut gateway)?;
        let Some(next) = recovered(&seen, id)? else { return Ok(done) };
        absent.look(now_boottime(), &seen, ttl);
        done = Done::Now;
        if !absent.lingering(now_boottime()).is_empty() {
            pause(Nanos(ttl.0 / 20));
        } else if write(&mut gateway, swap(&next, &seen))? {
            return Ok(done);
        } else {
            tries += 1;
        }
    }
    Err(changes(endpoint))
}

/// A command may wait, unlike what a machine does.
#[allow(clippy::disallowed_methods)]
fn pause(span: Nanos) {
    std::thread::sleep(Duration::from_nanos(span.0));
}

/// How long a lease of the group is: etcd grants none that is shorter than its own elections.
fn granted(gateway: &mut Gateway, group: &Group) -> Result<Nanos, String> {
    match ask(gateway, &Request::Grant { ttl_seconds: group.lease_ms.div_ceil(1_000) })? {
        Answer::Granted { lease, ttl_seconds } => {
            ask(gateway, &Request::Revoke { lease })?;
            Ok(Nanos::from_secs(ttl_seconds))
        }
        other => Err(format!("an answer that does not fit: {other:?}")),
    }
}

fn without(view: &View, seen: &Seen, id: MemberId) -> Result<View, String> {
    if let Some(LiveKey { live, .. }) = seen.lives.get(&id) {
        let place = live.peers;
        return Err(format!("member {id} is alive at {place}: end it first; the others then leave it out"));
    }
    let others = |member: &&Member| member.id != id;
    let members: Vec<Member> = view.members.iter().filter(others).copied().collect();
    let next = View { epoch: view.epoch + 1, founded: view.founded, members };
    if next.full().next().is_none() {
        return Err(format!(
            "member {id} is the last one that has the state: without it nothing would be left"
        ));
    }
    next.check().map(|()| next)
}

fn member(gateway: &mut Gateway, seen: &Seen, id: MemberId) -> Result<MemberStatus, String> {
    let key = seen.lives.get(&id);
    let lease_left_seconds = match key {
        Some(key) => gateway.lease_left(key.lease, LIMIT)?,
        None => None,
    };
    let standing = seen.view.as_ref().and_then(|view| view.member(id)).map(|member| member.standing);
    Ok(MemberStatus { id, standing, live: key.map(|key| key.live.clone()), lease_left_seconds })
}

fn check(group: &Group) -> Result<(), String> {
    if !LEASE_MS.contains(&group.lease_ms) {
        let (least, most) = (LEASE_MS.start(), LEASE_MS.end());
        return Err(format!("a lease of {} ms: {least} to {most} can be had", group.lease_ms));
    }
    if group.name.is_empty() || group.name.len() > NAME_BYTES_MAX || group.name.contains(char::is_control) {
        return Err(format!("a group's name has 1 to {NAME_BYTES_MAX} bytes, and no control characters"));
    }
    Listed::check(&group.members)
}

fn known_group(endpoint: &Endpoint, gateway: &mut Gateway) -> Result<(Group, Seen), String> {
    let seen = look(gateway)?;
    let group = seen.group.clone();
    let group = group.ok_or_else(|| format!("{endpoint}: there is no group: scot group init makes it"))?;
    Ok((group, seen))
}

fn look(gateway: &mut Gateway) -> Result<Seen, String> {
    match ask(gateway, &Request::Look)? {
        Answer::Looked { entries, term } => Seen::read(&entries, term),
        other => Err(format!("an answer that does not fit: {other:?}")),
    }
}

fn write(gateway: &mut Gateway, swap: Swap) -> Result<bool, String> {
    match ask(gateway, &Request::Swap(swap))? {
        Answer::Swapped(is_done) => Ok(is_done),
        other => Err(format!("an answer that does not fit: {other:?}")),
    }
}

/// Asks one server after the other until one answers. A write that was done without an answer is found done.
fn ask(gateway: &mut Gateway, request: &Request) -> Result<Answer, String> {
    let mut reasons = Vec::new();
    for _ in 0..gateway.host_count() {
        match gateway.ask(request, LIMIT) {
            Ok(answer) => return Ok(answer),
            Err(reason) => reasons.push(reason),
        }
    }
    Err(format!("etcd does not answer: {}", reasons.join("; ")))
}
