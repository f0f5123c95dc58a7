//! What stands in a membership's file and under etcd's keys.
//!
//! Invariant: a word that is not known is refused, not passed over.

use remedy_replicate::{Member, MemberId, Standing, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// A member as it is written. A life of 0 is any, which only an operator's file says.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MemberForm {
    id: u8,
    #[serde(default)]
    boot: u32,
    peers: SocketAddr,
    clients: SocketAddr,
    #[serde(default)]
    standing: StandingForm,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StandingForm {
    #[default]
    Full,
    Joining,
}

/// A view as it is written.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ViewForm {
    pub(crate) epoch: u64,
    #[serde(default = "first_epoch")]
    pub(crate) founded: u64,
    /// An operator writes each as `[[member]]`.
    #[serde(alias = "member", default)]
    pub(crate) members: Vec<MemberForm>,
}

/// An operator who does not say otherwise goes on with what the group began with.
fn first_epoch() -> u64 {
    1
}

impl ViewForm {
    /// The view, or why it is none.
    pub(crate) fn view(&self) -> Result<View, String> {
        let members = self.members.iter().map(Member::from).collect();
        let view = View { epoch: self.epoch, founded: self.founded, members };
        view.check()?;
        if view.founded > view.epoch {
            return Err(format!(
                "the group began in epoch {}, and this is epoch {}",
                view.founded, view.epoch
            ));
        }
        Ok(view)
    }
}

impl From<&MemberForm> for Member {
    fn from(form: &MemberForm) -> Member {
        let standing = match form.standing {
            StandingForm::Full => Standing::Full,
            StandingForm::Joining => Standing::Joining,
        };
        let id = MemberId(form.id);
        Member { id, boot: form.boot, peers: form.peers, clients: form.clients, standing }
    }
}

impl From<&Member> for MemberForm {
    fn from(member: &Member) -> MemberForm {
        let standing = match member.standing {
            Standing::Full => StandingForm::Full,
            Standing::Joining => StandingForm::Joining,
        };
        let id = member.id.0;
        MemberForm { id, boot: member.boot, peers: member.peers, clients: member.clients, standing }
    }
}

impl From<&View> for ViewForm {
    fn from(view: &View) -> ViewForm {
        let members = view.members.iter().map(MemberForm::from).collect();
        ViewForm { epoch: view.epoch, founded: view.founded, members }
    }
}

/// What a group is, as it was once made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// By which protocol its members keep one state.
    pub protocol: String,
    /// How long a member may be silent before the others go on without it. etcd counts whole seconds and has a
    /// smallest lease of its own, so it may be longer.
    pub lease_ms: u64,
    /// What all members' fingerprints have to be; if it is not said, only that they are equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<u64>,
    /// The members of the first view, in their order.
    pub members: Vec<Listed>,
}

/// A member of the first view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    /// Its name.
    pub id: u8,
    /// Where other members reach it.
    pub peers: SocketAddr,
    /// Where clients reach it.
    pub clients: SocketAddr,
}

impl Listed {
    /// Whether members can be the first of a group: the reason if not.
    pub(crate) fn check(listed: &[Listed]) -> Result<(), String> {
        let mut places = BTreeMap::new();
        for Listed { id, peers, clients } in listed {
            for (place, what) in [(peers, "members"), (clients, "clients")] {
                if place.port() == 0 || place.ip().is_unspecified() {
                    return Err(format!(
                        "member {id}: {place} is nowhere that {what} could send to: name an address and a port"
                    ));
                }
                if let Some(other) = places.insert(*place, id) {
                    return Err(if other == id {
                        format!("member {id} has {place} for members and for clients: they need two")
                    } else {
                        format!("members {other} and {id} have the address {place}")
                    });
                }
            }
        }
        View { epoch: 1, founded: 1, members: listed.iter().map(Member::from).collect() }.check()
    }
}

impl From<&Listed> for Member {
    fn from(listed: &Listed) -> Member {
        let Listed { id, peers, clients } = *listed;
        Member { id: MemberId(id), boot: 0, peers, clients, standing: Standing::Full }
    }
}

/// What a member that is alive says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Live {
    /// Which of its lives it is in.
    pub boot: u32,
    /// Where other members reach it.
    pub peers: SocketAddr,
    /// Where clients reach it.
    pub clients: SocketAddr,
    /// How many writes it had applied when it last said so.
    pub applied: u64,
    /// Of everything that has to be equal in all members.
    pub fingerprint: u64,
    /// How long its lease is, as etcd granted it.
    pub lease_seconds: u64,
    /// In which epoch the history began of which its state was when it started, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub founded: Option<u64>,
    /// The term of etcd's leader before the lease was asked for: it was granted in this one, or a later one.
    #[serde(default)]
    pub term: u64,
}

impl Live {
    /// This life as a member of a view.
    pub(crate) fn member(&self, id: MemberId, standing: Standing) -> Member {
        Member { id, boot: self.boot, peers: self.peers, clients: self.clients, standing }
    }
}

/// What is written as JSON. None of the forms has a key that is not text, so it always can be.
pub(crate) fn json(form: &impl Serialize) -> String {
    serde_json::to_string(form).expect("plain structs become JSON")
}
