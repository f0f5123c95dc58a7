//! The operator's word: a file says who the members are, and no lease ends.
//!
//! Invariant: a view that goes backward, or that lacks this member, is refused with the reason; the one before it
//! stays.

use crate::form::ViewForm;
use crate::{Membership, MembershipEvent, Myself};
use remedy_replicate::{MemberId, Standing, View};
use scotfree_core::Nanos;
use std::os::fd::RawFd;
use std::path::PathBuf;

/// A membership that a file states: `epoch = 1`, then for each member `[[member]]` with `id`, `peers`, `clients`, and
/// `standing = "joining"` if it has not the state yet. An operator who begins the group anew with what one member's
/// storage holds says `founded = EPOCH`, too. Which member is down only the operator knows, and says it by
/// another file of a larger epoch.
pub struct StaticMembership {
    path: PathBuf,
    id: MemberId,
    view: View,
    /// What was not polled yet. Each reading replaces it, so it is no queue.
    news: Vec<MembershipEvent>,
}

impl StaticMembership {
    /// Reads the file, or says why it is no membership of this member.
    pub fn open(path: impl Into<PathBuf>, myself: &Myself) -> Result<StaticMembership, String> {
        let path = path.into();
        let view = read(&path, myself.id)?;
        let lease = MembershipEvent::Lease { until: Nanos::MAX };
        let news = vec![MembershipEvent::View(view.clone()), lease];
        Ok(StaticMembership { path, id: myself.id, view, news })
    }

    /// Reads the file again; whether it says a new view.
    pub fn reload(&mut self) -> Result<bool, String> {
        let view = read(&self.path, self.id)?;
        if view == self.view {
            return Ok(false);
        }
        if view.epoch <= self.view.epoch {
            return Err(format!(
                "{}: other members, but epoch {}, and this member is at epoch {}: raise it",
                self.path.display(),
                view.epoch,
                self.view.epoch
            ));
        }
        self.view = view.clone();
        self.news.retain(|event| !matches!(event, MembershipEvent::View(_)));
        self.news.insert(0, MembershipEvent::View(view));
        Ok(true)
    }
}

impl Membership for StaticMembership {
    fn poll(&mut self, out: &mut Vec<MembershipEvent>) {
        out.append(&mut self.news);
    }

    fn poll_fd(&self) -> Option<RawFd> {
        None
    }

    /// Only the operator gives a member its standing: it is told what to write.
    fn promote(&mut self, member: MemberId, epoch: u64) {
        let is_joining = self.view.member(member).is_some_and(|known| known.standing == Standing::Joining);
        if epoch != self.view.epoch || !is_joining {
            return;
        }
        let said = MembershipEvent::Well(format!(
            "member {member} has the whole state: in {} set its standing to full, and the epoch to {} or more",
            self.path.display(),
            epoch + 1
        ));
        if !self.news.contains(&said) {
            self.news.push(said);
        }
    }

    /// Nobody asks: without leases nobody finds out that all were down.
    fn tell_progress(&mut self, _applied: u64) {}

    /// Only the operator says who is gone.
    fn leave(&mut self) {
        self.news.clear();
    }
}

fn read(path: &PathBuf, id: MemberId) -> Result<View, String> {
    let place = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{place}: {error}"))?;
    let form: ViewForm = toml::from_str(&text).map_err(|error| format!("{place}: {error}"))?;
    let view = form.view().map_err(|reason| format!("{place}: {reason}"))?;
    if view.member(id).is_none() {
        return Err(format!("{place}: member {id}, which is this one, is not in it"));
    }
    Ok(view)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::path::Path;

    const THREE: &str = r#"
        epoch = 1
        [[member]]
        id = 1
        peers = "10.0.0.1:7000"
        clients = "10.0.0.1:6379"
        [[member]]
        id = 2
        peers = "10.0.0.2:7000"
        clients = "10.0.0.2:6379"
        [[member]]
        id = 3
        peers = "10.0.0.3:7000"
        clients = "10.0.0.3:6379"
        standing = "joining"
    "#;

    fn opened(text: &str) -> (tempfile::TempDir, PathBuf, Result<StaticMembership, String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("members.toml");
        std::fs::write(&path, text).unwrap();
        let address = "10.0.0.2:7000".parse().unwrap();
        let group = "g1".to_owned();
        let myself =
            Myself { group, id: MemberId(2), boot: 4, peers: address, clients: address, fingerprint: 0 };
        let opened = StaticMembership::open(&path, &myself);
        (folder, path, opened)
    }

    fn polled(membership: &mut StaticMembership) -> Vec<MembershipEvent> {
        let mut events = Vec::new();
        membership.poll(&mut events);
        events
    }

    fn rewrite(path: &Path, from: &str, to: &str) {
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.contains(from));
        std::fs::write(path, text.replacen(from, to, 1)).unwrap();
    }

    #[test]
    fn the_file_is_the_view_of_any_life_and_its_lease_never_ends() {
        let (_folder, _, membership) = opened(THREE);
        let events = polled(&mut membership.unwrap());
        let [MembershipEvent::View(view), MembershipEvent::Lease { until: Nanos::MAX }] = &events[..] else {
            panic!("{events:?}");
        };
        assert_eq!((view.epoch, view.founded, view.members.len(), view.members[0].boot), (1, 1, 3, 0));
        assert_eq!(view.members[2].standing, Standing::Joining);
    }

    #[test]
    fn a_view_that_goes_backward_is_refused_and_the_old_one_stays() {
        let (_folder, path, membership) = opened(THREE);
        let mut membership = membership.unwrap();
        polled(&mut membership);
        assert_eq!(membership.reload(), Ok(false));
        rewrite(&path, "10.0.0.1:7000", "10.0.0.9:7000");
        let reason = membership.reload().unwrap_err();
        assert!(reason.contains("epoch 1") && reason.contains("raise it"), "{reason}");
        assert_eq!(polled(&mut membership), []);
        rewrite(&path, "epoch = 1", "epoch = 2");
        assert_eq!(membership.reload(), Ok(true));
        let events = polled(&mut membership);
        assert!(matches!(&events[..], [MembershipEvent::View(view)] if view.epoch == 2), "{events:?}");
    }

    #[test]
    fn what_is_no_membership_of_this_member_is_refused_with_the_reason() {
        for (from, to, reason) in [
            ("id = 2", "id = 4", "member 2, which is this one"),
            ("id = 1", "id = 2", "two members are number 2"),
            ("epoch = 1", "", "epoch"),
            ("epoch = 1", "epoch = 1\nfounded = 2", "began in epoch 2"),
            ("standing = \"joining\"", "rank = 1", "unknown field"),
        ] {
            let (_folder, path, membership) = opened(&THREE.replacen(from, to, 1));
            let said = membership.err().unwrap();
            assert!(said.contains(reason) && said.contains(&path.display().to_string()), "{said}");
        }
    }

    #[test]
    fn the_operator_is_told_once_that_a_joiner_has_the_state() {
        let (_folder, _, membership) = opened(THREE);
        let mut membership = membership.unwrap();
        polled(&mut membership);
        membership.promote(MemberId(3), 1);
        membership.promote(MemberId(3), 1);
        membership.promote(MemberId(3), 9);
        membership.promote(MemberId(1), 1);
        let events = polled(&mut membership);
        assert!(
            matches!(&events[..], [MembershipEvent::Well(said)] if said.contains("member 3")),
            "{events:?}"
        );
    }
}
