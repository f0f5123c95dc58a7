//! The sessions that client connections use one after the other.
//!
//! Invariant: what completes is passed to the connection that asked, and to nobody if that is gone.

use scotfree_rpc::SessionHandle;
use std::collections::{BTreeMap, VecDeque};

/// Names a client connection; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ConnectionKey(pub u64);

/// A request on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flight {
    pub connection: ConnectionKey,
    /// The front's name for it.
    pub id: u64,
    /// The reply that is known in advance.
    pub early: Option<&'static [u8]>,
}

/// One session.
#[derive(Debug, Default)]
pub(super) struct SharedSession {
    pub open: bool,
    pub owner: Option<ConnectionKey>,
    /// How many connections have used it.
    pub uses: u32,
    pub flights: VecDeque<Flight>,
    /// It asks for what new sessions ask for no longer: no other connection uses it.
    pub outdated: bool,
}

/// All sessions that are used for clients.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    all: BTreeMap<SessionHandle, SharedSession>,
    idle: Vec<SessionHandle>,
}

impl Sessions {
    /// Adds a session that is being opened, for a connection.
    pub fn insert(&mut self, handle: SessionHandle, owner: ConnectionKey) {
        self.all.insert(handle, SharedSession { owner: Some(owner), uses: 1, ..SharedSession::default() });
    }

    /// A session that waits for a connection, now that connection's; and the connection's number in it.
    pub fn take_idle(&mut self, owner: ConnectionKey) -> Option<(SessionHandle, u32)> {
        let handle = self.idle.pop()?;
        let session = self.all.get_mut(&handle)?;
        session.owner = Some(owner);
        session.uses = session.uses.wrapping_add(1);
        Some((handle, session.uses))
    }

    /// The connection is gone: the session waits for the next one. False if it is one too many.
    pub fn give_back(&mut self, handle: SessionHandle, idle_max: usize) -> bool {
        if let Some(session) = self.all.get_mut(&handle) {
            session.owner = None;
            if self.idle.len() >= idle_max || session.outdated {
                return false;
            }
            self.idle.push(handle);
        }
        true
    }

    /// New sessions ask for something else: those that are idle end, the others when their connections do.
    pub fn outdate(&mut self) {
        for session in self.all.values_mut() {
            session.outdated = true;
        }
    }

    /// Idle sessions that are to end.
    pub fn take_outdated(&mut self) -> Vec<SessionHandle> {
        let all = &self.all;
        let is_outdated = |handle: &SessionHandle| all.get(handle).is_some_and(|session| session.outdated);
        let (outdated, idle) = std::mem::take(&mut self.idle).into_iter().partition(is_outdated);
        self.idle = idle;
        outdated
    }

    pub fn get_mut(&mut self, handle: SessionHandle) -> Option<&mut SharedSession> {
        self.all.get_mut(&handle)
    }

    pub fn remove(&mut self, handle: SessionHandle) -> Option<SharedSession> {
        self.idle.retain(|idle| *idle != handle);
        self.all.remove(&handle)
    }

    pub fn handles(&self) -> impl Iterator<Item = SessionHandle> + '_ {
        self.all.keys().copied()
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn in_flight(&self) -> usize {
        self.all.values().map(|session| session.flights.len()).sum()
    }
}
