//! The sessions that client connections share.
//!
//! Invariant: what completes is passed to the connection that asked, and to nobody if that is gone. A connection
//! changes its session only while nothing of it is under way, so what it asks is done in its order.

use super::fronts::Counted;
use scotfree_core::{Nanos, SeqNum};
use scotfree_rpc::SessionHandle;
use scotfree_session::RequestKind;
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
    /// When it was read, in real time; 0 if nobody waits for it.
    pub called: Nanos,
    /// Whether its reply may be large.
    pub lengthy: bool,
}

/// A request on its way: of one command, or of several that share it.
#[derive(Debug)]
pub(super) struct Flight {
    pub first: Asker,
    pub others: Vec<Asker>,
    kind: RequestKind,
    /// What it is counted for among large replies.
    pub counted: Counted,
    /// With which of its session's departures it has set out.
    departure: u64,
}

impl Flight {
    /// A request of these commands.
    pub fn new(first: Asker, others: Vec<Asker>, kind: RequestKind) -> Flight {
        Flight { first, others, kind, counted: Counted::default(), departure: 0 }
    }

    /// It is counted for so much among large replies.
    pub fn counted_for(self, counted: Counted) -> Flight {
        Flight { counted, ..self }
    }

    /// All whose commands it carries, in its order.
    pub fn askers(&self) -> impl Iterator<Item = Asker> + '_ {
        std::iter::once(self.first).chain(self.others.iter().copied())
    }

    /// How many commands it carries.
    pub fn count(&self) -> usize {
        1 + self.others.len()
    }

    /// What kind of request it is.
    pub fn kind(&self) -> RequestKind {
        self.kind
    }

    /// Whether it is a read.
    pub fn is_read(&self) -> bool {
        self.kind == RequestKind::Read
    }

    fn is_early(&self) -> bool {
        self.first.early.is_some()
    }
}

/// The requests of a session that are on their way. They set out in the order of their places and mostly land in it, so
/// a queue does what a tree would, at a third of the cost.
#[derive(Debug, Default)]
pub(super) struct Flights {
    /// Begins with one that is on its way; None are over.
    queue: VecDeque<(SeqNum, Option<Flight>)>,
    count: usize,
    /// How many commands they carry.
    commands: usize,
}

impl Flights {
    fn set_out(&mut self, seq: SeqNum, flight: Flight) {
        debug_assert!(self.queue.back().is_none_or(|(last, _)| *last < seq), "{seq} sets out late");
        self.commands += flight.count();
        self.queue.push_back((seq, Some(flight)));
        self.count += 1;
    }

    fn land(&mut self, seq: SeqNum) -> Option<Flight> {
        let at = match self.queue.front() {
            Some((first, _)) if *first == seq => 0,
            _ => self.queue.binary_search_by_key(&seq, |(seq, _)| *seq).ok()?,
        };
        let landed = self.queue[at].1.take()?;
        self.count -= 1;
        self.commands -= landed.count();
        while self.queue.front().is_some_and(|(_, flight)| flight.is_none()) {
            self.queue.pop_front();
        }
        Some(landed)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// In their order.
    pub fn iter(&self) -> impl Iterator<Item = &Flight> {
        self.queue.iter().filter_map(|(_, flight)| flight.as_ref())
    }
}

/// Early requests of a session, or all its others: neither waits for the other.
#[derive(Debug, Default)]
struct Traffic {
    /// How many flights of each departure are not back yet.
    departures: BTreeMap<u64, usize>,
    /// Whether somebody may wait to set out.
    is_wanted: bool,
}

/// One session.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // Independent facts, no states of one machine.
pub(super) struct SharedSession {
    pub open: bool,
    /// Whether it has one connection at a time.
    pub is_own: bool,
    /// The connections that use it.
    pub users: BTreeSet<ConnectionKey>,
    /// Those of them that have something to send.
    pub ready: BTreeSet<ConnectionKey>,
    /// One of them has something to send that waits for nothing.
    is_urgent: bool,
    pub flights: Flights,
    /// How many of them are reads.
    pub reads: usize,
    /// Of requests that are answered by the server, and of early ones.
    traffic: [Traffic; 2],
    /// How many departures there have been.
    departed: u64,
    /// Whose request led the last one that was sent.
    pub served: Option<ConnectionKey>,
    /// It asks for what new sessions ask for no longer: no other connection uses it.
    outdated: bool,
    /// Its end is asked for.
    ending: bool,
}

impl SharedSession {
    /// A connection has something to send, first of all a request of this kind.
    pub fn want(&mut self, key: ConnectionKey, is_early: bool) {
        self.ready.insert(key);
        self.traffic[usize::from(is_early)].is_wanted = true;
    }

    /// A connection has something to send that waits for nothing.
    pub fn want_at_once(&mut self, key: ConnectionKey) {
        self.want(key, false);
        self.is_urgent = true;
    }

    /// Takes all who have something to send, to ask each of them.
    pub fn take_ready(&mut self) -> BTreeSet<ConnectionKey> {
        self.traffic.iter_mut().for_each(|traffic| traffic.is_wanted = false);
        self.is_urgent = false;
        std::mem::take(&mut self.ready)
    }

    /// Whether requests of this kind may set out now: if no more than so many departures are under way, or if they
    /// are of one connection.
    pub fn may_depart(&self, is_early: bool, departures_max: usize) -> bool {
        self.is_own || self.traffic[usize::from(is_early)].departures.len() < departures_max
    }

    /// What is sent from now on sets out together.
    pub fn begin_departure(&mut self) {
        self.departed += 1;
    }

    /// A request is on its way.
    pub fn set_out(&mut self, seq: SeqNum, flight: Flight) {
        let departures = &mut self.traffic[usize::from(flight.is_early())].departures;
        *departures.entry(self.departed).or_default() += 1;
        self.reads += usize::from(flight.is_read());
        self.flights.set_out(seq, Flight { departure: self.departed, ..flight });
    }

    /// A request is over.
    pub fn land(&mut self, seq: SeqNum) -> Option<Flight> {
        let flight = self.flights.land(seq)?;
        self.reads -= usize::from(flight.is_read());
        let traffic = &mut self.traffic[usize::from(flight.is_early())];
        // Somebody may have waited for this one.
        traffic.is_wanted = true;
        let departures = &mut traffic.departures;
        if let Some(left) = departures.get_mut(&flight.departure) {
            *left -= 1;
            if *left == 0 {
                departures.remove(&flight.departure);
            }
        }
        Some(flight)
    }

    fn is_due(&self, departures_max: usize) -> bool {
        let may = |is_early: bool| {
            self.traffic[usize::from(is_early)].is_wanted && self.may_depart(is_early, departures_max)
        };
        !self.ready.is_empty() && (self.is_urgent || may(false) || may(true))
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
    /// How many connections there have been.
    joined: u32,
}

impl Sessions {
    /// No session. A further one is opened when all have so many connections, up to `sessions_max`.
    pub fn new(sessions_max: usize, connections_per_session: usize, idle_max: usize) -> Sessions {
        Sessions {
            all: BTreeMap::new(),
            count_max: sessions_max,
            connections_per_session,
            idle_max,
            joined: 0,
        }
    }

    /// Adds a session that is being opened, for one connection at a time or for many.
    pub fn insert(&mut self, handle: SessionHandle, is_own: bool) {
        self.all.insert(handle, SharedSession { is_own, ..SharedSession::default() });
    }

    /// The shared session for another connection; none if a further one is to be opened.
    pub fn find(&self) -> Option<SessionHandle> {
        let usable = || self.all.iter().filter(|(_, session)| !session.outdated && !session.is_own);
        let (handle, session) = usable().min_by_key(|(_, session)| session.users.len())?;
        let has_room = session.users.len() < self.connections_per_session;
        (has_room || usable().count() >= self.count_max).then_some(*handle)
    }

    /// A session that was a connection's own and that nobody uses.
    pub fn find_idle(&self) -> Option<SessionHandle> {
        let is_idle =
            |session: &SharedSession| session.is_own && !session.outdated && session.users.is_empty();
        self.all.iter().find(|(_, session)| is_idle(session)).map(|(handle, _)| *handle)
    }

    /// A number by which the server's sidecar tells a new connection from all others, whatever session it uses.
    pub fn next_number(&mut self) -> u32 {
        self.joined = self.joined.wrapping_add(1);
        self.joined
    }

    /// A connection uses a session from now on.
    pub fn join(&mut self, handle: SessionHandle, user: ConnectionKey) {
        if let Some(session) = self.all.get_mut(&handle) {
            session.users.insert(user);
        }
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
            session.outdated && !session.ending && session.users.is_empty() && session.flights.len() == 0
        };
        let over = self.all.iter_mut().filter(|(_, session)| over(session));
        over.map(|(handle, session)| {
            session.ending = true;
            *handle
        })
        .collect()
    }

    /// Those in which somebody may have something to send that may set out.
    pub fn due(&self, departures_max: usize) -> Vec<SessionHandle> {
        let due = self.all.iter().filter(|(_, session)| session.is_due(departures_max));
        due.map(|(handle, _)| *handle).collect()
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

    /// How many commands are on their way.
    pub fn commands_under_way(&self) -> usize {
        self.all.values().map(|session| session.flights.commands).sum()
    }

    pub fn in_flight(&self) -> usize {
        self.all.values().map(|session| session.flights.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(id: u64) -> Flight {
        let first = Asker { connection: ConnectionKey(1), id, early: None, called: Nanos(0), lengthy: false };
        Flight::new(first, Vec::new(), RequestKind::Update)
    }

    #[test]
    fn flights_land_in_any_order_once_each_and_leave_no_room_taken() {
        let mut flights = Flights::default();
        for seq in [3, 4, 7, 9] {
            flights.set_out(SeqNum(seq), flight(seq));
        }
        assert!(flights.land(SeqNum(5)).is_none(), "it never set out");
        let landed = |flights: &mut Flights, seq| flights.land(SeqNum(seq)).map(|flight| flight.first.id);
        assert_eq!(landed(&mut flights, 7), Some(7));
        assert_eq!(landed(&mut flights, 7), None, "it is over");
        assert_eq!(flights.iter().map(|flight| flight.first.id).collect::<Vec<_>>(), [3, 4, 9]);
        assert_eq!([4, 3].map(|seq| landed(&mut flights, seq)), [Some(4), Some(3)]);
        assert_eq!((flights.len(), flights.queue.len()), (1, 1), "what is over in front is forgotten");
        assert_eq!(landed(&mut flights, 9), Some(9));
        assert_eq!((flights.len(), flights.queue.len(), flights.commands), (0, 0, 0));
    }
}
