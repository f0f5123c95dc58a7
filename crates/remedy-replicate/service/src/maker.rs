//! How a service becomes a member.

use crate::commands;
use crate::kept::Kept;
use crate::peers::Peers;
use crate::service::{Inner, Parts, ReplicatedService};
use remedy_replicate::{
    group_name_hash, Chain, Hermes, Limits, MemberConfig, MemberId, Planted, ReadsAt, Replica, StableWhen,
};
use remedy_replicate_membership::{
    Endpoint, EtcdMembership, EtcdSettings, Gives, Membership, Myself, StaticMembership,
};
use scotfree_core::Nanos;
use scotfree_io::{now_boottime, now_realtime};
use scotfree_rpc::{GroupMaker, GroupPlan, Say, Service, StatefulService};
use scotfree_state::State;
use scotfree_wire::Direction;
use std::sync::Arc;

/// Makes services members of a group.
pub const MAKER: GroupMaker =
    GroupMaker { protocols: &["craq", "chain", "hermes"], member, command: commands::run };

// The shape of a maker is everybody's: it is given the plan.
#[allow(clippy::needless_pass_by_value)]
fn member(plan: GroupPlan, inner: Box<dyn StatefulService>, say: Say) -> Result<Box<dyn Service>, String> {
    let kept = Kept::open(&plan.kept, plan.log)?;
    let peers = Peers::bind(plan.peers)
        .map_err(|error| format!("listen for other members on UDP {}: {error}", plan.peers))?;
    if plan.holds_data && inner.progress() == 0 {
        return Err(foreign_data(&plan, &kept));
    }
    // A log without writes is of a history only if it is known to be the one that took part in it.
    let lineage = kept.lineage().filter(|_| inner.progress() > 0 || kept.names_its_log());
    let membership = membership(&plan, &inner, lineage)?;
    let config = MemberConfig {
        group: group_of(&plan, &inner),
        id: MemberId(plan.id),
        boot: plan.boot,
        address: plan.peers,
        keys: plan.key.controls(Direction::MemberToMember),
        real_ms_at_zero: now_realtime().since(now_boottime()).0 / 1_000_000,
        stable_when: if plan.is_stored_first { StableWhen::Stored } else { StableWhen::InMemory },
        lineage,
        limits: Limits::default(),
        planted: Planted::default(),
    };
    let machine = machine(&plan.protocol, config, inner)?;
    let (id, boot, decline) = (plan.id, plan.boot, plan.decline);
    Ok(Box::new(ReplicatedService::new(Parts {
        machine,
        membership,
        peers,
        kept,
        id,
        boot,
        is_behind_device: plan.is_behind_device,
        sessions: plan.sessions,
        decline,
        say,
    })))
}

/// What no group has written other members would not have.
fn foreign_data(plan: &GroupPlan, kept: &Kept) -> String {
    let log = plan.kept.with_extension("");
    let of_another = if kept.epoch() > 0 && !kept.names_its_log() {
        format!(" ({} is of another log)", plan.kept.display())
    } else {
        String::new()
    };
    format!(
        "{} holds data that no group has written{of_another}, which other members would not have: bring back the log \
         of this member, or begin with an empty log, and write the data through the group",
        log.display()
    )
}

/// The group as members name it to each other: those that would not agree are refused.
fn group_of(plan: &GroupPlan, inner: &Inner) -> u64 {
    let when = if plan.is_stored_first { "stored" } else { "memory" };
    group_name_hash(&plan.group, &format!("{} {when} {:x}", plan.protocol, inner.fingerprint()))
}

fn machine(
    protocol: &str,
    config: MemberConfig,
    inner: Inner,
) -> Result<Box<dyn Replica<State = Inner>>, String> {
    match protocol {
        "chain" => Ok(Box::new(Chain::new(config, ReadsAt::Tail, inner))),
        "craq" => Ok(Box::new(Chain::new(config, ReadsAt::Anyone, inner))),
        "hermes" => Ok(Box::new(Hermes::new(config, inner))),
        other => Err(format!("there is no protocol {other}: choose one of {}", MAKER.protocols.join(", "))),
    }
}

fn membership(plan: &GroupPlan, inner: &Inner, founded: Option<u64>) -> Result<Box<dyn Membership>, String> {
    let myself = Myself {
        group: plan.group.clone(),
        id: MemberId(plan.id),
        boot: plan.boot,
        peers: plan.peers,
        clients: plan.clients,
        fingerprint: inner.fingerprint(),
    };
    match plan.membership.split_once(':') {
        Some(("static", file)) => {
            let gives = if plan.protocol == "hermes" { Gives::First } else { Gives::Last };
            let again = Arc::clone(&plan.read_again);
            Ok(Box::new(StaticMembership::open(file, &myself, gives, again)?))
        }
        Some(("etcd", _)) => {
            let settings = EtcdSettings {
                endpoint: Endpoint::parse(&plan.membership)?,
                protocol: plan.protocol.clone(),
                drift_ppm_max: plan.drift_ppm_max,
                applied: inner.progress(),
                founded,
                // Each time leaves a revision at etcd.
                progress_every: Nanos::from_secs(60),
            };
            let started = EtcdMembership::start(settings, myself);
            Ok(Box::new(started.map_err(|error| format!("a thread that speaks to etcd: {error}"))?))
        }
        _ => Err(format!("{}: a membership is static:FILE or etcd:http://HOST:PORT/PREFIX", plan.membership)),
    }
}
