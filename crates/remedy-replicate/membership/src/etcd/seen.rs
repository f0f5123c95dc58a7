//! A group as etcd held it at one moment.
//!
//! Invariant: a view that was read is a view; what cannot be read makes the whole look fail, so that nothing is
//! decided by half of what is there.

use super::request::{Entry, Guard};
use crate::form::{Group, Live, ViewForm};
use remedy_replicate::{Member, MemberId, View};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

pub(crate) const GROUP: &str = "group";
pub(crate) const VIEW: &str = "view";

/// All keys of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) group: Option<Group>,
    /// At which revision the group was written; 0 if there is none.
    pub(crate) group_written: i64,
    pub(crate) view: Option<View>,
    /// At which revision the view was written; 0 if there is none.
    pub(crate) view_written: i64,
    pub(crate) lives: BTreeMap<MemberId, LiveKey>,
    /// The term of etcd's leader, or a later one.
    pub(crate) term: u64,
}

/// A member's sign of life: while it is there, the member's lease is not over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LiveKey {
    pub(crate) live: Live,
    pub(crate) lease: i64,
    /// At which revision it was made.
    pub(crate) made: i64,
}

impl Seen {
    /// Reads what etcd answered, or says which key is not what it should be.
    pub(crate) fn read(entries: &[Entry], term: u64) -> Result<Seen, String> {
        let mut seen = Seen { term, ..Seen::default() };
        for entry in entries {
            match entry.key.as_str() {
                GROUP => {
                    seen.group = Some(parse(entry)?);
                    seen.group_written = entry.written;
                }
                VIEW => {
                    let view = parse::<ViewForm>(entry)?.view();
                    seen.view = Some(view.map_err(|reason| format!("the key view: {reason}"))?);
                    seen.view_written = entry.written;
                }
                key => {
                    if let Some(id) = key.strip_prefix("live/").and_then(|id| id.parse().ok()) {
                        let key = LiveKey { live: parse(entry)?, lease: entry.lease, made: entry.made };
                        seen.lives.insert(MemberId(id), key);
                    }
                }
            }
        }
        Ok(seen)
    }

    /// Whether a member of a view is alive in the life that the view names.
    pub(crate) fn is_alive(&self, member: &Member) -> bool {
        self.lives.get(&member.id).is_some_and(|key| key.live.boot == member.boot)
    }

    /// That a member's sign of life has neither come nor gone since.
    pub(crate) fn guard(&self, id: MemberId) -> Guard {
        let revision = self.lives.get(&id).map_or(0, |key| key.made);
        Guard::Made { key: live_key(id), revision }
    }
}

pub(crate) fn live_key(id: MemberId) -> String {
    format!("live/{id}")
}

fn parse<T: DeserializeOwned>(entry: &Entry) -> Result<T, String> {
    serde_json::from_str(&entry.value).map_err(|error| format!("the key {}: {error}", entry.key))
}
