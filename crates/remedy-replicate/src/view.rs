//! Who belongs to a group, and in which order.
//!
//! Invariant: a view has one to [`MEMBERS_MAX`] members, no two of one id; there is at most one view of an epoch.

use std::fmt;
use std::net::SocketAddr;

/// How many members a group has at most.
pub const MEMBERS_MAX: usize = 16;

/// A member, unique in its group, from 1 to 255.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u8);

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How a member takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It has the state.
    Full,
    /// It is being given the state: it takes every write, and neither answers nor counts (G8).
    Joining,
}

impl Standing {
    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Standing::Full => "full",
            Standing::Joining => "joining",
        }
    }
}

/// A member in a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Member {
    /// Its name.
    pub id: MemberId,
    /// Which of its lives, each start being another one; they have no order. One that was started again is in the
    /// view only if the view says its new number. 0 is any life, which only an operator's file says.
    pub boot: u32,
    /// Where other members reach it.
    pub peers: SocketAddr,
    /// Where it takes requests.
    pub clients: SocketAddr,
    /// How it takes part.
    pub standing: Standing,
}

/// The members of a group at one time. In a chain the first is the head, and the last full one the tail.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct View {
    /// Grows with every change.
    pub epoch: u64,
    /// The epoch in which the group began, or began anew with what the storage of one member held, when all full ones
    /// were gone: what others hold from before may not be of this group's history.
    pub founded: u64,
    /// The members; joining ones stand behind the full ones.
    pub members: Vec<Member>,
}

impl View {
    /// A member by its name.
    pub fn member(&self, id: MemberId) -> Option<&Member> {
        self.members.iter().find(|member| member.id == id)
    }

    /// The members that have the state, in their order.
    pub fn full(&self) -> impl DoubleEndedIterator<Item = &Member> {
        self.members.iter().filter(|member| member.standing == Standing::Full)
    }

    /// Whether it is a view at all: the reason if not.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=MEMBERS_MAX).contains(&self.members.len()) {
            return Err(format!(
                "a group has 1 to {MEMBERS_MAX} members, and this view has {}",
                self.members.len()
            ));
        }
        for (index, member) in self.members.iter().enumerate() {
            if member.id.0 == 0 {
                return Err("members are numbered from 1".to_owned());
            }
            let others = &self.members[index + 1..];
            if others.iter().any(|other| other.id == member.id) {
                return Err(format!("two members are number {}", member.id));
            }
            if others.iter().any(|other| other.peers == member.peers) {
                return Err(format!("two members have the address {}", member.peers));
            }
            let late = member.standing == Standing::Joining
                && others.iter().any(|other| other.standing == Standing::Full);
            if late {
                return Err(format!(
                    "member {} is joining and stands before one that has the state",
                    member.id
                ));
            }
        }
        if self.full().next().is_none() {
            return Err("no member of the view has the state".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u8, standing: Standing) -> Member {
        let address = SocketAddr::from(([10, 0, 0, id], 1));
        Member { id: MemberId(id), boot: 1, peers: address, clients: address, standing }
    }

    #[test]
    fn what_is_no_view_is_refused_with_the_reason() {
        let full = |id| member(id, Standing::Full);
        let view = |members: &[Member]| View { epoch: 1, founded: 1, members: members.to_vec() }.check();
        assert_eq!(view(&[full(1), full(2), member(3, Standing::Joining)]), Ok(()));
        for (members, reason) in [
            (&[][..], "1 to 16"),
            (&[full(1), full(1)], "two members are number 1"),
            (&[full(0)], "from 1"),
            (&[full(1), Member { id: MemberId(2), ..full(1) }], "two members have the address"),
            (&[member(1, Standing::Joining), full(2)], "stands before"),
            (&[member(1, Standing::Joining)], "no member"),
        ] {
            let said = view(members).expect_err("it is no view");
            assert!(said.contains(reason), "{said}");
        }
    }
}
