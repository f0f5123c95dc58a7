//! What an operator asks of a group.

use remedy_replicate::{Member, MemberId, Standing, View};
use remedy_replicate_membership::{init, remove, status, view, Done, Endpoint, Group, Listed, Status};
use scotfree_rpc::GroupCommand;
use serde_json::{json, Value};

/// Does it; what to print.
pub(crate) fn run(membership: &str, command: &GroupCommand) -> Result<String, String> {
    let endpoint = Endpoint::parse(membership)?;
    match command {
        GroupCommand::Init { group, protocol, lease_ms, members } => {
            let listed = members.iter().map(|(id, peers, clients)| Listed {
                id: *id,
                peers: *peers,
                clients: *clients,
            });
            let group = Group {
                name: group.clone(),
                protocol: protocol.clone(),
                lease_ms: *lease_ms,
                members: listed.collect(),
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
        GroupCommand::Remove { id } => Ok(match remove(&endpoint, MemberId(*id))? {
            Done::Now => format!("member {id} is in the view no more\n"),
            Done::Before => format!("member {id} was not in the view\n"),
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
