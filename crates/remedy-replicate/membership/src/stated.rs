//! The operator's word: a file says who the members are, and no lease ends.
//!
//! Invariant: a view that goes backward, or that lacks this member, is refused with the reason; the one before it
//! stays.

pub mod file;

use crate::{Membership, MembershipEvent, Myself};
use remedy_replicate::{Member, MemberId, Standing, View};
use scotfree_core::Nanos;
use scotfree_io::Waker;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which of the full members gives a joiner the state, and knows when it has that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gives {
    /// The first, as in Hermes.
    First,
    /// The last, as in a chain.
    Last,
}

/// A membership that a file states: `epoch = 1`, then for each member `[[member]]` with `id`, `peers`, `clients`, and
/// `standing = "joining"` if it has not the state yet. An operator who begins the group anew with what one member's
/// storage holds says `founded = EPOCH`, too. Which member is down only the operator knows, and says it by
/// another file of a larger epoch.
pub struct StaticMembership {
    path: PathBuf,
    id: MemberId,
    gives: Gives,
    /// Woken when the file is to be read again.
    again: Arc<Waker>,
    view: View,
    /// The joiner that has the state, in the view of an epoch.
    promoted: Option<(MemberId, u64)>,
    /// What was not polled yet. Each reading replaces it, so it is no queue.
    news: Vec<MembershipEvent>,
}

impl StaticMembership {
    /// Reads the file, or says why it is no membership of this member. It is read again whenever `again` was woken.
    pub fn open(
        path: impl Into<PathBuf>,
        myself: &Myself,
        gives: Gives,
        again: Arc<Waker>,
    ) -> Result<StaticMembership, String> {
        let path = path.into();
        let view = read(&path, myself.id)?;
        let lease = MembershipEvent::Lease { until: Nanos::MAX };
        let news = vec![MembershipEvent::View(view.clone()), lease];
        Ok(StaticMembership { path, id: myself.id, gives, again, view, promoted: None, news })
    }

    /// Reads the file again; whether it says a new view.
    fn reload(&mut self) -> Result<bool, String> {
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
        if let Some(early) = self.made_full_early(&view) {
            return Err(format!(
                "{}: member {early} is full in it, and has not the whole state yet: write a larger epoch in which it joins, \
                 and wait until this member says that it has",
                self.path.display()
            ));
        }
        self.view = view.clone();
        self.news.retain(|event| !matches!(event, MembershipEvent::View(_)));
        self.news.insert(0, MembershipEvent::View(view));
        Ok(true)
    }

    /// A joiner that a new view calls full, though this member, which gives it the state, has not said so.
    fn made_full_early(&self, next: &View) -> Option<MemberId> {
        let giver = match self.gives {
            Gives::First => self.view.full().next(),
            Gives::Last => self.view.full().next_back(),
        };
        let is_giver = giver.is_some_and(|giver| giver.id == self.id);
        let joined = |member: &&Member| {
            self.view.member(member.id).is_some_and(|known| known.standing == Standing::Joining)
        };
        let has_state = |member: &&Member| self.promoted == Some((member.id, self.view.epoch));
        next.full()
            .filter(|_| is_giver)
            .filter(joined)
            .find(|member| !has_state(member))
            .map(|member| member.id)
    }

    fn read_again(&mut self) {
        let (place, epoch) = (self.path.display().to_string(), self.view.epoch);
        let said = match self.reload() {
            Ok(true) => return,
            Ok(false) => MembershipEvent::Well(format!("{place}: the view of epoch {epoch}, as before")),
            Err(reason) => MembershipEvent::Trouble(format!(
                "{reason}; this member goes on in the view of epoch {epoch}"
            )),
        };
        self.news.push(said);
    }
}

impl Membership for StaticMembership {
    fn poll(&mut self, out: &mut Vec<MembershipEvent>) {
        if self.again.drain() {
            self.read_again();
        }
        out.append(&mut self.news);
    }

    fn poll_fd(&self) -> Option<RawFd> {
        Some(self.again.as_raw_fd())
    }

    /// Only the operator gives a member its standing: it is told what to write.
    fn promote(&mut self, member: MemberId, epoch: u64) {
        let is_joining = self.view.member(member).is_some_and(|known| known.standing == Standing::Joining);
        if epoch != self.view.epoch || !is_joining || self.promoted == Some((member, epoch)) {
            return;
        }
        self.promoted = Some((member, epoch));
        self.news.push(MembershipEvent::Well(format!(
            "member {member} has the whole state: in {} set its standing to full, and the epoch to {} or more (scot \
             group add --has-state does), and send SIGHUP to all members",
            self.path.display(),
            epoch + 1
        )));
    }

    /// Nobody asks: without leases nobody finds out that all were down.
    fn tell_progress(&mut self, _applied: u64) {}

    /// Only the operator says who is gone.
    fn leave(&mut self) {
        self.news.clear();
    }
}

fn read(path: &Path, id: MemberId) -> Result<View, String> {
    let place = path.display();
    let view = file::view(path)?;
    if view.member(id).is_none() {
        return Err(format!("{place}: member {id}, which is this one, is not in it"));
    }
    Ok(view)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

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
        let again = Arc::new(Waker::new().unwrap());
        let opened = StaticMembership::open(&path, &myself, Gives::Last, again);
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
        membership.promote(MemberId(3), 9);
        membership.promote(MemberId(1), 1);
        let events = polled(&mut membership);
        assert!(
            matches!(&events[..], [MembershipEvent::Well(said)] if said.contains("member 3")),
            "{events:?}"
        );
        membership.promote(MemberId(3), 1);
        assert_eq!(polled(&mut membership), []);
    }

    #[test]
    fn the_file_is_read_again_when_that_is_asked_for_and_only_then() {
        let (_folder, path, membership) = opened(THREE);
        let mut membership = membership.unwrap();
        polled(&mut membership);
        rewrite(&path, "epoch = 1", "epoch = 2");
        assert_eq!(polled(&mut membership), []);
        membership.again.wake();
        let events = polled(&mut membership);
        assert!(matches!(&events[..], [MembershipEvent::View(view)] if view.epoch == 2), "{events:?}");
        rewrite(&path, "epoch = 2", "epoch = 1");
        membership.again.wake();
        let events = polled(&mut membership);
        let [MembershipEvent::Trouble(said)] = &events[..] else { panic!("{events:?}") };
        assert!(said.contains("raise it") && said.ends_with("goes on in the view of epoch 2"), "{said}");
    }

    #[test]
    fn a_joiner_is_full_when_its_giver_has_said_so() {
        let (_folder, path, membership) = opened(THREE);
        let mut membership = membership.unwrap();
        rewrite(&path, "epoch = 1", "epoch = 2");
        rewrite(&path, "standing = \"joining\"", "");
        let reason = membership.reload().unwrap_err();
        assert!(reason.contains("member 3") && reason.contains("not the whole state"), "{reason}");
        // Another one gives the state, and knows.
        membership.gives = Gives::First;
        assert_eq!(membership.made_full_early(&file::view(&path).unwrap()), None);
        membership.gives = Gives::Last;
        membership.promote(MemberId(3), 1);
        assert_eq!(membership.reload(), Ok(true));
    }
}
