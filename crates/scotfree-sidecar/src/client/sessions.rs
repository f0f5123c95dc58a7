//! The sessions that client connections share.
//!
//! Invariant: what completes is passed to the connection that asked, and to nobody if that is gone. A connection
//! stays with its session, so what it asks is done in its order.

use scotfree_rpc::SessionHandle;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Names a client connection; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ConnectionKey(pub u64);

/// Whose command is on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asker {
    pub connection: ConnectionKey,
    /// The front's name for it.
    pub id: u64,
    /// The reply that is known in advance.
    pub early: Option<&'static [u8]>,
}

/// A request on its way: of one command, or of several that share it.
#[derive(Debug)]
pub(super) struct Flight {
    pub first: Asker,
    pub others: Vec<Asker>,
}

impl Flight {
    /// All whose commands it carries, in its order.
    pub fn askers(&self) -> impl Iterator<Item = Asker> + '_ {
        std::iter::once(self.first).chain(self.others.iter().copied())
    }

    /// How many commands it carries.
    pub fn count(&self) -> usize {
        1 + self.others.len()
    }
}

/// One session.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // Independent facts, no states of one machine.
pub(super) struct SharedSession {
    pub open: bool,
    /// Whether it has one connection at a time: requests of a session complete in its order, and an early answer
    /// must not wait for what others are still to hear from the server.
    is_own: bool,
    /// The connections that use it.
    pub users: BTreeSet<ConnectionKey>,
    /// Those of them that have something to send.
    pub ready: BTreeSet<ConnectionKey>,
    /// How many connections have used it.
    uses: u32,
    pub flights: VecDeque<Flight>,
    /// How many of the flights set out together, of each departure that is not back yet.
    departures: VecDeque<usize>,
    /// Whose request led the last one that was sent.
    pub served: Option<ConnectionKey>,
    /// It asks for what new sessions ask for no longer: no other connection uses it.
    outdated: bool,
    /// Its end is asked for.
    ending: bool,
}

impl SharedSession {
    /// So many flights have set out together.
    pub fn set_out(&mut self, count: usize) {
        if count > 0 {
            self.departures.push_back(count);
        }
    }

    /// The oldest flight is over.
    pub fn land(&mut self) -> Option<Flight> {
        if let Some(left) = self.departures.front_mut() {
            *left -= 1;
            if *left == 0 {
                self.departures.pop_front();
            }
        }
        self.flights.pop_front()
    }
}

/// All sessions that are used for clients.
#[derive(Debug)]
pub(super) struct Sessions {
    all: BTreeMap<SessionHandle, SharedSession>,
    count_max: usize,
    connections_per_session: usize,
    /// How many that are one connection's own are kept for the next ones.
    idle_max: usize,
}

impl Sessions {
    /// No session. A further one is opened when all have so many connections, up to `sessions_max`.
    pub fn new(sessions_max: usize, connections_per_session: usize, idle_max: usize) -> Sessions {
        Sessions { all: BTreeMap::new(), count_max: sessions_max, connections_per_session, idle_max }
    }

    /// Adds a session that is being opened, for one connection at a time or for many.
    pub fn insert(&mut self, handle: SessionHandle, is_own: bool) {
        self.all.insert(handle, SharedSession { is_own, ..SharedSession::default() });
    }

    /// The session for another connection, its own or a shared one; none if a further one is to be opened.
    pub fn find(&self, is_own: bool) -> Option<SessionHandle> {
        let usable = || self.all.iter().filter(|(_, session)| !session.outdated && session.is_own == is_own);
        if is_own {
            return usable().find(|(_, session)| session.users.is_empty()).map(|(handle, _)| *handle);
        }
        let (handle, session) = usable().min_by_key(|(_, session)| session.users.len())?;
        let has_room = session.users.len() < self.connections_per_session;
        (has_room || usable().count() >= self.count_max).then_some(*handle)
    }

    /// A connection uses a session from now on; its number there.
    pub fn join(&mut self, handle: SessionHandle, user: ConnectionKey) -> u32 {
        let Some(session) = self.all.get_mut(&handle) else { return 0 };
        session.users.insert(user);
        session.uses = session.uses.wrapping_add(1);
        session.uses
    }

    /// A connection is gone.
    pub fn leave(&mut self, handle: SessionHandle, user: ConnectionKey) {
        let is_idle = |session: &&SharedSession| session.is_own && session.users.is_empty();
        let idle = self.all.values().filter(is_idle).count();
        let Some(session) = self.all.get_mut(&handle) else { return };
        session.users.remove(&user);
        session.ready.remove(&user);
        session.outdated |= session.is_own && idle >= self.idle_max;
    }

    /// New sessions ask for something else: those that are idle end, the others when their connections do.
    pub fn outdate(&mut self) {
        for session in self.all.values_mut() {
            session.outdated = true;
        }
    }

    /// Sessions that nobody will use any more, and that are to end.
    pub fn take_outdated(&mut self) -> Vec<SessionHandle> {
        let over = |session: &SharedSession| {
            session.outdated && !session.ending && session.users.is_empty() && session.flights.is_empty()
        };
        let over = self.all.iter_mut().filter(|(_, session)| over(session));
        over.map(|(handle, session)| {
            session.ending = true;
            *handle
        })
        .collect()
    }

    /// Those in which somebody has something to send, and that have fewer departures under way, or one connection.
    pub fn due(&self, departures_max: usize) -> Vec<SessionHandle> {
        let may_depart =
            |session: &SharedSession| session.is_own || session.departures.len() < departures_max;
        let is_due = |session: &SharedSession| !session.ready.is_empty() && may_depart(session);
        self.all.iter().filter(|(_, session)| is_due(session)).map(|(handle, _)| *handle).collect()
    }

    pub fn get_mut(&mut self, handle: SessionHandle) -> Option<&mut SharedSession> {
        self.all.get_mut(&handle)
    }

    pub fn remove(&mut self, handle: SessionHandle) -> Option<SharedSession> {
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
