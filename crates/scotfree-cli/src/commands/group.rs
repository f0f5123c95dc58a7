//! The command `scot group`: groups of servers that keep one state, at etcd or by an operator's file.
//!
//! Invariant: each verb can be repeated.

use crate::cli::GroupVerb;
use crate::failure::Failure;
use crate::out;
use crate::registry::GROUPS;
use scotfree_rpc::GroupCommand;
use std::time::{Duration, Instant};

/// Does what is asked.
pub fn run(verb: &GroupVerb) -> Result<(), Failure> {
    match verb {
        GroupVerb::Init { membership, name, protocol, lease_ms, members } => {
            let known: Vec<&str> = GROUPS.iter().flat_map(|maker| maker.protocols).copied().collect();
            if !known.contains(&protocol.as_str()) {
                let all = known.join(", ");
                return Err(Failure::usage(format!(
                    "there is no protocol {protocol} here: choose one of {all}"
                )));
            }
            let members = members.iter().map(|member| (member.id, member.peers, member.clients)).collect();
            let (group, protocol) = (name.clone(), protocol.clone());
            say(membership, &GroupCommand::Init { group, protocol, lease_ms: *lease_ms, members })
        }
        GroupVerb::Status { membership } => say(membership, &GroupCommand::Status),
        GroupVerb::Add { membership, id, at, has_state, .. } if membership.starts_with("static:") => {
            let at = at.map(|at| (at.peers, at.clients));
            say(membership, &GroupCommand::Add { id: *id, at, has_state: *has_state })
        }
        GroupVerb::Add { at: Some(_), .. } | GroupVerb::Add { has_state: true, .. } => Err(Failure::usage(
            "--at and --has-state are for a file: at etcd a member says itself where it is, and what it has",
        )),
        GroupVerb::Add { membership, id, wait, .. } => wait_for(membership, *id, Duration::from_secs(*wait)),
        GroupVerb::Remove { membership, id } => say(membership, &GroupCommand::Remove { id: *id }),
        GroupVerb::Recover { id, accept_loss: false, .. } => Err(Failure::usage(format!(
            "what the group answered since member {id} was left out would be lost: add --accept-loss if none of the \
             members that have it comes back with its log"
        ))),
        GroupVerb::Recover { membership, id, .. } => say(membership, &GroupCommand::Recover { id: *id }),
        GroupVerb::View { membership } => say(membership, &GroupCommand::View),
    }
}

fn ask(membership: &str, command: &GroupCommand) -> Result<String, Failure> {
    let maker = GROUPS.first().ok_or_else(|| Failure::usage("this scot was built without groups"))?;
    (maker.command)(membership, command).map_err(Failure::environment)
}

fn say(membership: &str, command: &GroupCommand) -> Result<(), Failure> {
    let text = ask(membership, command)?;
    out::line(format_args!("{}", text.trim_end()));
    Ok(())
}

/// What a status says of a member.
fn line_of(status: &str, id: u8) -> String {
    let line = status.lines().map(str::trim).find(|line| line.starts_with(&format!("member {id}: ")));
    let nobody = || format!("member {id}: not there: start scot kv --group … --member {id}");
    line.map_or_else(nobody, str::to_owned)
}

/// Asks again and again, and says what has changed.
fn wait_for(membership: &str, id: u8, limit: Duration) -> Result<(), Failure> {
    let (begin, of_member) = (Instant::now(), format!("member {id}: "));
    let mut said = String::new();
    loop {
        let line = match ask(membership, &GroupCommand::Status) {
            Ok(status) => line_of(&status, id),
            // It may answer again in time.
            Err(failure) if failure.to_string().contains("etcd does not answer") => failure.to_string(),
            Err(failure) => return Err(failure),
        };
        if line != said {
            out::line(format_args!("{line}"));
            said.clone_from(&line);
        }
        if line.starts_with(&format!("{of_member}full;")) && !line.contains("not alive") {
            return Ok(());
        }
        if begin.elapsed() >= limit {
            return Err(Failure::environment(format!("after {} s: {line}", limit.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}
