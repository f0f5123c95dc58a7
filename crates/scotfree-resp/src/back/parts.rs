//! What comes or goes in parts: requests and replies that are too large for one packet of the protocol.
//!
//! Invariant: a session holds a bounded number of bytes of each here. Parts live in memory only: when the sidecar
//! is started again they are gone, and whoever asks for them is told so.

use scotfree_core::{Nanos, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// A client's connection within its session.
type Owner = (SessionId, u32);

/// The parts of requests that have come, and of replies that have not gone.
#[derive(Debug, Default)]
pub(super) struct Parts {
    requests: BTreeMap<Owner, Vec<u8>>,
    /// The rest of a reply and how far it was sent, by its name.
    replies: BTreeMap<(Owner, u64), (Vec<u8>, usize)>,
    /// Client connections that are gone: nobody will ask for what they are answered.
    gone: BTreeSet<Owner>,
    /// Sessions that left what is kept for them where it is for too long: nobody waits for them.
    slow: BTreeSet<SessionId>,
    /// When sessions fetched something last.
    fetched_at: BTreeMap<SessionId, Nanos>,
}

impl Parts {
    /// Keeps a part of a request; false if it is too much.
    pub fn keep(&mut self, owner: Owner, part: &[u8], bytes_max: usize) -> bool {
        if self.held_of_requests(owner.0) + part.len() > bytes_max {
            self.requests.remove(&owner);
            return false;
        }
        let kept = self.requests.entry(owner).or_default();
        kept.extend_from_slice(part);
        true
    }

    /// The parts of a request that is complete now.
    pub fn take_request(&mut self, owner: Owner) -> Vec<u8> {
        self.requests.remove(&owner).unwrap_or_default()
    }

    /// Keeps what is left of a reply; false if it is too much.
    pub fn keep_reply(
        &mut self,
        owner: Owner,
        name: u64,
        reply: &[u8],
        sent: usize,
        bytes_max: usize,
    ) -> bool {
        if self.gone.contains(&owner) {
            return true;
        }
        if self.held_of_replies(owner.0) + reply.len() > bytes_max {
            return false;
        }
        self.replies.insert((owner, name), (reply.to_vec(), sent));
        true
    }

    /// The next part of a reply, and whether more is left; none if there is no such reply.
    pub fn next_part(&mut self, owner: Owner, name: u64, bytes_max: usize) -> Option<(Vec<u8>, bool)> {
        let (reply, sent) = self.replies.get_mut(&(owner, name))?;
        self.slow.remove(&owner.0);
        let end = (*sent + bytes_max).min(reply.len());
        let part = reply[*sent..end].to_vec();
        *sent = end;
        let more = end < reply.len();
        if !more {
            self.replies.remove(&(owner, name));
        }
        Some((part, more))
    }

    /// Whether a session should fetch something before `bytes` more of replies are kept for it, and can be expected to.
    pub fn has_to_wait(&self, session: SessionId, bytes: usize, bytes_max: usize) -> bool {
        let held = self.held_of_replies(session);
        held > 0 && held + bytes > bytes_max && !self.slow.contains(&session)
    }

    /// A session has asked for a part of what is kept for it.
    pub fn note_fetch(&mut self, session: SessionId, now: Nanos) {
        self.fetched_at.insert(session, now);
    }

    /// When a session did so last.
    pub fn fetched_at(&self, session: SessionId) -> Option<Nanos> {
        self.fetched_at.get(&session).copied()
    }

    /// Nobody waits for this session any more, before it fetches something.
    pub fn give_up_on(&mut self, session: SessionId) {
        self.slow.insert(session);
    }

    fn held_of_requests(&self, session: SessionId) -> usize {
        self.requests.range((session, 0)..=(session, u32::MAX)).map(|(_, kept)| kept.len()).sum()
    }

    /// How many bytes of a session's replies are kept here.
    pub fn held_of_replies(&self, session: SessionId) -> usize {
        let (first, last) = ((session, 0), (session, u32::MAX));
        self.replies.range((first, 0)..=(last, u64::MAX)).map(|(_, (rest, _))| rest.len()).sum()
    }

    /// A client's connection is gone, and what it has asked for may still be answered.
    pub fn leave(&mut self, owner: Owner) {
        self.replies.retain(|(of, _), _| *of != owner);
        self.gone.insert(owner);
    }

    /// A client's connection is gone, and all that it has asked for is answered.
    pub fn forget_connection(&mut self, owner: Owner) {
        self.requests.remove(&owner);
        self.replies.retain(|(of, _), _| *of != owner);
        self.gone.remove(&owner);
    }

    /// A session has ended.
    pub fn forget(&mut self, session: SessionId) {
        self.requests.retain(|(owner, _), _| *owner != session);
        self.replies.retain(|((owner, _), _), _| *owner != session);
        self.gone.retain(|(owner, _)| *owner != session);
        self.slow.remove(&session);
        self.fetched_at.remove(&session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_kept_up_to_the_limit_and_forgotten_with_their_session() {
        let mut parts = Parts::default();
        let owner = (SessionId(1), 1);
        assert!(parts.keep(owner, b"abc", 5) && parts.keep(owner, b"de", 5));
        assert_eq!(parts.take_request(owner), b"abcde");
        assert!(!parts.keep(owner, b"abcdef", 5));
        assert_eq!(parts.take_request(owner), b"");
        assert!(parts.keep_reply(owner, 7, b"0123456789", 4, 15));
        assert!(!parts.keep_reply(owner, 8, b"0123456789", 4, 15));
        assert_eq!(parts.next_part(owner, 7, 4), Some((b"4567".to_vec(), true)));
        assert_eq!(parts.next_part(owner, 7, 4), Some((b"89".to_vec(), false)));
        assert_eq!(parts.next_part(owner, 7, 4), None);
        let other = (SessionId(1), 2);
        assert!(parts.keep(owner, b"abc", 6) && !parts.keep(other, b"defg", 6), "the limit is the session's");
        assert!(parts.keep_reply(other, 9, b"abc", 0, 6) && !parts.keep_reply(owner, 8, b"defg", 0, 6));
        parts.forget_connection(other);
        assert_eq!(parts.next_part(other, 9, 4), None);
        assert!(parts.keep_reply(owner, 9, b"abc", 0, 15));
        parts.forget(SessionId(1));
        assert_eq!((parts.take_request(owner), parts.next_part(owner, 9, 4)), (Vec::new(), None));
    }
}
