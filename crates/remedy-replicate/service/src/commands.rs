//! What an operator asks of a group.

use remedy_replicate::{Member, MemberId, Standing, View};
use remedy_replicate_membership::{
    file, init, recover, remove, status, view, Done, Endpoint, Group, Listed, Status,
};
use scotfree_rpc::GroupCommand;
use serde_json::{json, Value};
use std::net::SocketAddr;
use std::path::Path;

/// Does it; what to print.
pub(crate) fn run(membership: &str, command: &GroupCommand) -> Result<String, String> {
    match membership.strip_prefix("static:") {
        Some(path) => of_file(Path::new(path), command),
        None => at_etcd(membership, command),
    }
}

fn of_file(path: &Path, command: &GroupCommand) -> Result<String, String> {
    let place = path.display();
    match command {
        GroupCommand::Init { members, .. } => Ok(match file::init(path, &listed(members))? {
            Done::Now => {
                format!("wrote the first view to {place}; copy it to each member's host, and start them\n")
            }
            Done::Before => format!("{place} states this first view already\n"),
        }),
        GroupCommand::Status => file::view(path).map(|view| view_in_words(&place.to_string(), &view)),
        GroupCommand::View => file::view(path).map(|view| as_json(&view)),
        GroupCommand::Add { id, has_state: false, at } => {
            let (done, view) = file::add(path, MemberId(*id), *at)?;
            let then = format!(
                "start member {id}; another one says when it has the state: then scot group add {id} --has-state"
            );
            Ok(written(done, path, &view, &format!("member {id} joins"), &then))
        }
        GroupCommand::Add { id, has_state: true, .. } => {
            let (done, view) = file::make_full(path, MemberId(*id))?;
            Ok(written(done, path, &view, &format!("member {id} has the state"), "that is all"))
        }
        GroupCommand::Remove { id } => {
            let (done, view) = file::leave_out(path, MemberId(*id))?;
            let then = "it must be down before they are told: nothing else keeps it from answering";
            Ok(written(done, path, &view, &format!("member {id} is left out"), then))
        }
        GroupCommand::Recover { id } => Err(format!(
            "{place}: write the next view yourself: member {id} alone in it, and founded = its epoch"
        )),
    }
}

/// What was written, and what the operator does next: a file moves nothing by itself.
fn written(done: Done, path: &Path, view: &View, what: &str, then: &str) -> String {
    let (place, epoch) = (path.display(), view.epoch);
    match done {
        Done::Now => format!(
            "{place}: epoch {epoch}, in which {what}; copy it to each member's host, and send SIGHUP to each member; {then}\n"
        ),
        Done::Before => format!("{place}: nothing to do; in epoch {epoch} {what} already; {then}\n"),
    }
}

fn view_in_words(place: &str, view: &View) -> String {
    let line = |member: &Member| {
        let Member { id, peers, clients, standing, .. } = member;
        format!("  member {id}: {}; at {clients}, for members at {peers}\n", standing.name())
    };
    let lines: String = view.members.iter().map(line).collect();
    format!("{place}: view of epoch {}, of a group that began in {}\n{lines}", view.epoch, view.founded)
}

fn listed(members: &[(u8, SocketAddr, SocketAddr)]) -> Vec<Listed> {
    members.iter().map(|(id, peers, clients)| Listed { id: *id, peers: *peers, clients: *clients }).collect()
}

fn at_etcd(membership: &str, command: &GroupCommand) -> Result<String, String> {
    let endpoint = Endpoint::parse(membership)?;
    match command {
        GroupCommand::Init { group, protocol, lease_ms, members } => {
            let group = Group {
                name: group.clone(),
                protocol: protocol.clone(),
                lease_ms: *lease_ms,
                members: listed(members),
                fingerprint: None,
            };
            Ok(match init(&endpoint, &group)? {
                Done::Now => format!("made the group {}; start its members\n", group.name),
                Done::Before => format!("the group {} was made before\n", group.name),
            })
        }
        GroupCommand::Status => status(&endpoint).map(|status| in_words(&status)),
        GroupCommand::View => match view(&endpoint)? {
            Some(view) => Ok(as_json(&view)),
            None => Err("no view was written yet: it is when all listed members are there".to_owned()),
        },
        GroupCommand::Add { id, .. } => {
            Err(format!("member {id} joins a group at etcd by being started; a file is written for it"))
        }
        GroupCommand::Remove { id } => Ok(match remove(&endpoint, MemberId(*id))? {
            Done::Now => format!("member {id} is in the view no more\n"),
            Done::Before => format!("member {id} was not in the view\n"),
        }),
        GroupCommand::Recover { id } => Ok(match recover(&endpoint, MemberId(*id))? {
            Done::Now => format!("the group goes on with what member {id} holds; start the others\n"),
            Done::Before => format!("member {id} has the state: there is nothing to recover\n"),
        }),
    }
}

fn as_json(view: &View) -> String {
    let member = |member: &Member| {
        json!({
            "id": member.id.0,
            "boot": member.boot,
            "peers": member.peers,
            "clients": member.clients,
            "standing": member.standing.name(),
        })
    };
    let members: Vec<Value> = view.members.iter().map(member).collect();
    format!("{}\n", json!({ "epoch": view.epoch, "founded": view.founded, "members": members }))
}

fn in_words(status: &Status) -> String {
    let mut lines = vec![format!(
        "group {}: {}, leases of {} ms",
        status.group.name, status.group.protocol, status.group.lease_ms
    )];
    lines.push(
        status.view.as_ref().map_or("no view yet".to_owned(), |view| format!("view of epoch {}", view.epoch)),
    );
    for member in &status.members {
        let standing = member.standing.map_or("not in the view", Standing::name);
        let alive = member.live.as_ref().map_or("not alive".to_owned(), |live| {
            let left = member.lease_left_seconds.map_or(String::new(), |left| format!(", lease {left} s"));
            format!("life {} at {}, {} writes applied{left}", live.boot, live.clients, live.applied)
        });
        lines.push(format!("  member {}: {standing}; {alive}", member.id));
    }
    lines.join("\n") + "\n"
}
