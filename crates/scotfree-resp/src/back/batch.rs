//! Several items in one MULTI … EXEC, with the markers of their sessions.
//!
//! Invariant: what a batch writes and where it says its sessions are become true together or not at all.

use super::item::{selected, Item, Nature};
use super::lane::{Expected, Lane};
use super::markers::{integer_reply, write_delete, write_opaque, write_position, Markers};
use crate::classes::keys;
use crate::codec::{elements, is_error, write_bulk, write_header, write_words};
use crate::expiry;
use scotfree_core::{SeqNum, SessionId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

/// What one command of a batch is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    /// Changes the database.
    Select,
    /// Asks whether a key that the item with this index depends on has a time to live.
    Expiry(usize),
    /// A command of the item with this index, by its place among the item's.
    Command(usize, usize),
    /// Stores or deletes one session's marker for the item with this index.
    Record(usize),
    /// Stores positions.
    Marker,
}

/// More keys of one item are not asked for their times to live: the item counts as depending on one.
const EXPIRY_KEYS_MAX: usize = 8;

/// Where markers are kept.
#[derive(Debug, Clone)]
pub(super) struct MarkerPlace {
    pub db: u16,
    pub key: Vec<u8>,
    pub databases: u16,
    /// Whether keys may have a time to live.
    pub may_expire: bool,
}

/// A transaction on its way.
#[derive(Debug)]
pub(super) struct Batch {
    pub items: Vec<Item>,
    pub plan: Vec<Element>,
    /// What is sent when the server has taken MULTI, and what is expected of it.
    pub rest: Option<(Vec<u8>, VecDeque<Expected>)>,
    /// Errors by which single commands were refused: their place in the plan, the error.
    pub refusals: Vec<(usize, Vec<u8>)>,
    queued: usize,
    /// The database before and after, to know it whether the batch is executed or not.
    pub db_before: Option<u16>,
    pub db_after: Option<u16>,
    /// Whether the whole hash is written, so that the number of new fields says nothing.
    pub rewrites: bool,
    /// The positions that it stores.
    pub marks: BTreeMap<SessionId, SeqNum>,
    /// Where the sessions of its items were before it.
    pub positions_before: BTreeMap<SessionId, SeqNum>,
    /// Items known beforehand to depend on a time to live.
    volatile: BTreeSet<usize>,
    /// Whether keys are asked for their time to live at all.
    asks_expiry: bool,
}

/// What an executed transaction answered.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Done<'a> {
    /// The replies to all items' commands.
    replies: Vec<&'a [u8]>,
    /// Which of them are each item's.
    of_items: Vec<Range<usize>>,
    /// The items whose effect depends on a key that has a time to live.
    pub volatile: BTreeSet<usize>,
    /// The hash of markers had lost fields.
    pub lost: bool,
}

impl<'a> Done<'a> {
    /// The replies to an item's commands.
    pub fn replies_to(&self, item: usize) -> &[&'a [u8]] {
        &self.replies[self.of_items[item].clone()]
    }

    /// The next reply is one of this item's, as those before it if any were.
    fn add(&mut self, item: usize, reply: &'a [u8]) {
        let (place, count) = (&mut self.of_items[item], self.replies.len());
        if place.start == place.end {
            place.start = count;
        }
        place.end = count + 1;
        self.replies.push(reply);
    }
}

/// What EXEC answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome<'a> {
    /// Executed.
    Done(Done<'a>),
    /// A watched key had changed.
    Unwatched,
    /// Refused: nothing was executed. The server's reason.
    Aborted(Vec<u8>),
}

/// Why EXEC's answer cannot be that of the batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum BatchError {
    /// It is neither an array of the right length nor an error.
    #[error("EXEC answered something that is not the batch's")]
    Nonsense,
    /// The markers could not be stored although everything else was.
    #[error("the markers could not be stored: {0}")]
    Marker(String),
}

impl Batch {
    /// Writes the batch to a lane. `late` are positions that earlier items could not store; `rewrite`
    /// asks for the whole hash.
    pub fn send(
        items: Vec<Item>,
        lane: &mut Lane,
        markers: &Markers,
        late: &BTreeMap<SessionId, SeqNum>,
        rewrite: bool,
        place: &MarkerPlace,
    ) -> Batch {
        let speaker = items.iter().find(|item| item.ticket.is_some());
        lane.speak(speaker.map_or(lane.resp, |item| item.request.head.resp()));
        lane.say(&[b"MULTI"], if lane.may_multi { Expected::Ok } else { Expected::Multi });
        let (sent_bytes, sent_commands) = (lane.output.len(), lane.expected.len());
        let mut batch = Batch {
            plan: Vec::new(),
            rest: None,
            refusals: Vec::new(),
            queued: 0,
            db_before: lane.db,
            db_after: lane.db,
            rewrites: rewrite || items.iter().any(Item::flushes_all),
            marks: BTreeMap::new(),
            positions_before: BTreeMap::new(),
            volatile: BTreeSet::new(),
            asks_expiry: place.may_expire,
            items,
        };
        let items = std::mem::take(&mut batch.items);
        for (index, item) in items.iter().enumerate() {
            batch.add(index, item, lane, place);
        }
        batch.items = items;
        batch.add_markers(lane, markers, late, place);
        lane.say(&[b"EXEC"], Expected::Exec);
        lane.db = batch.db_after;
        if !lane.may_multi {
            let (bytes, replies) =
                (lane.output.split_off(sent_bytes), lane.expected.split_off(sent_commands));
            batch.rest = Some((bytes, replies));
        }
        batch
    }

    /// Its item, if it is the only one.
    pub fn only_item(&mut self) -> Option<&mut Item> {
        match self.items.as_mut_slice() {
            [item] => Some(item),
            _ => None,
        }
    }

    /// Whether it changes the dataset.
    pub fn writes(&self) -> bool {
        !self.marks.is_empty()
            || self.rewrites
            || self.items.iter().any(|item| matches!(item.nature, Nature::Record(_) | Nature::Delete))
    }

    /// A command inside MULTI was answered.
    pub fn on_queued(&mut self, reply: &[u8]) {
        if reply != b"+QUEUED\r\n" {
            self.refusals.push((self.queued, reply.to_vec()));
        }
        self.queued += 1;
    }

    /// Takes EXEC's answer apart.
    pub fn settle<'a>(&self, reply: &'a [u8]) -> Result<Outcome<'a>, BatchError> {
        if is_error(reply) {
            return Ok(Outcome::Aborted(reply.to_vec()));
        }
        if matches!(reply, b"*-1\r\n" | b"_\r\n") {
            return Ok(Outcome::Unwatched);
        }
        let mut parts = Vec::with_capacity(self.plan.len());
        parts.extend(elements(reply));
        if reply.first() != Some(&b'*') || parts.len() != self.plan.len() || !self.refusals.is_empty() {
            return Err(BatchError::Nonsense);
        }
        let mut done = Done { volatile: self.volatile.clone(), ..Done::default() };
        done.replies.reserve_exact(parts.len());
        done.of_items.resize(self.items.len(), 0..0);
        for (element, part) in self.plan.iter().zip(parts) {
            match *element {
                Element::Command(item, _) => done.add(item, part),
                Element::Record(_) if integer_reply(part).is_none() => return Err(marker_error(part)),
                Element::Expiry(item) if integer_reply(part).is_none_or(|left_ms| left_ms >= 0) => {
                    done.volatile.insert(item);
                }
                Element::Select | Element::Record(_) | Element::Expiry(_) => {}
                Element::Marker => {
                    let new_fields = integer_reply(part).ok_or_else(|| marker_error(part))?;
                    done.lost = new_fields > 0 && !self.rewrites;
                }
            }
        }
        Ok(Outcome::Done(done))
    }

    /// The commands of an item that were refused, and by which errors.
    pub fn refusals_of(&self, index: usize) -> impl Iterator<Item = (usize, &[u8])> {
        self.refusals.iter().filter_map(move |(at, error)| match self.plan.get(*at) {
            Some(Element::Command(item, command)) if *item == index => Some((*command, error.as_slice())),
            _ => None,
        })
    }

    fn add(&mut self, index: usize, item: &Item, lane: &mut Lane, place: &MarkerPlace) {
        match &item.nature {
            Nature::Record(opaque) => {
                self.enter(place.db, lane);
                write_header(&mut lane.output, if opaque.is_empty() { 4 } else { 6 });
                write_bulk(&mut lane.output, b"HSET");
                write_bulk(&mut lane.output, &place.key);
                write_position(&mut lane.output, item.session, item.seq);
                if !opaque.is_empty() {
                    write_opaque(&mut lane.output, item.session, opaque);
                }
                self.queue(Element::Record(index), lane);
            }
            Nature::Delete => {
                self.enter(place.db, lane);
                write_delete(&mut lane.output, &place.key, item.session);
                self.queue(Element::Record(index), lane);
            }
            Nature::Batched { .. } | Nature::Direct { .. } => self.add_commands(index, item, lane, place),
            // The wish to store markers has no command of its own; nothing else gets here.
            _ => debug_assert!(item.nature == Nature::Flush, "{:?} is not for a transaction", item.nature),
        }
        if item.writes {
            self.marks.insert(item.session, item.seq);
        }
    }

    fn add_commands(&mut self, index: usize, item: &Item, lane: &mut Lane, place: &MarkerPlace) {
        if self.asks_expiry && item.writes {
            self.ask_expiry(index, item, lane);
        }
        for command in item.open_commands() {
            // The first SELECT of a transaction decides where it goes on; parts go their own ways.
            if command == 0 || item.is_pack() {
                self.enter(item.db(command), lane);
            }
            lane.output.extend_from_slice(item.request.bytes(&item.payload, command));
            self.queue(Element::Command(index, command), lane);
            if let Some(db) = selected(item.request.args(&item.payload, command), place.databases) {
                self.db_after = Some(db);
            }
        }
    }

    /// Asks for the times to live of the keys on which the item's effect depends.
    fn ask_expiry(&mut self, index: usize, item: &Item, lane: &mut Lane) {
        let args_of = |command| item.request.args(&item.payload, command);
        let dependent = || item.open_commands().filter(|command| expiry::is_dependent(args_of(*command)));
        if dependent().next().is_none() {
            return;
        }
        let sets = item.open_commands().any(|command| expiry::may_set(args_of(command)));
        let count: usize = dependent().map(|command| keys(args_of(command)).count()).sum();
        // What makes its own times to live, or has many keys, is not asked about.
        if item.request.len() > 1 && sets || count > EXPIRY_KEYS_MAX {
            self.volatile.insert(index);
            return;
        }
        for command in dependent() {
            // A transaction that selects another database on its way is asked about in its first.
            self.enter(item.db(command), lane);
            for key in keys(args_of(command)) {
                write_words(&mut lane.output, &[b"PTTL", key]);
                self.queue(Element::Expiry(index), lane);
            }
        }
    }

    fn add_markers(
        &mut self,
        lane: &mut Lane,
        markers: &Markers,
        late: &BTreeMap<SessionId, SeqNum>,
        place: &MarkerPlace,
    ) {
        for (session, position) in late {
            self.marks.entry(*session).or_insert(*position);
        }
        // A session that has been deleted meanwhile must not come back.
        self.marks.retain(|session, _| markers.sessions.contains_key(session));
        // What is executed behind its position leaves that where it is.
        for (session, position) in &mut self.marks {
            let known = markers.sessions.get(session).map_or(SeqNum(0), |marker| marker.position);
            *position = known.max(*position);
        }
        if self.marks.is_empty() && !self.rewrites {
            return;
        }
        self.enter(place.db, lane);
        let fields = if self.rewrites { markers.field_count() } else { self.marks.len() };
        write_header(&mut lane.output, 2 + 2 * fields);
        write_bulk(&mut lane.output, b"HSET");
        write_bulk(&mut lane.output, &place.key);
        if self.rewrites {
            markers.write_all(&mut lane.output);
        } else {
            for (session, position) in &self.marks {
                write_position(&mut lane.output, *session, *position);
            }
        }
        self.queue(Element::Marker, lane);
    }

    fn enter(&mut self, db: u16, lane: &mut Lane) {
        if self.db_after != Some(db) {
            let text = db.to_string();
            write_header(&mut lane.output, 2);
            write_bulk(&mut lane.output, b"SELECT");
            write_bulk(&mut lane.output, text.as_bytes());
            self.queue(Element::Select, lane);
            self.db_after = Some(db);
        }
    }

    fn queue(&mut self, element: Element, lane: &mut Lane) {
        self.plan.push(element);
        lane.expected.push_back(Expected::Queued);
    }
}

fn marker_error(reply: &[u8]) -> BatchError {
    BatchError::Marker(String::from_utf8_lossy(reply).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::Purpose;
    use super::*;
    use crate::codec::Limits;
    use crate::payload::{write_request, RequestFlags, RequestPayload};

    /// How often a batch of one command asks for a time to live, and whether its effect is taken to depend on
    /// one without asking.
    fn asked(words: &[&str]) -> (usize, bool) {
        let mut payload = Vec::new();
        write_request(&mut payload, RequestFlags::NONE, &[words]);
        let request = RequestPayload::parse(&payload).expect("well-formed");
        let nature = Nature::Batched { alone: false };
        let item =
            Item { ticket: Some(1), writes: true, payload, request, ..Item::own(SessionId(1), nature) };
        let mut lane = Lane::new(Purpose::Shared, Limits::default());
        let place = MarkerPlace { db: 15, key: b"marker".to_vec(), databases: 16, may_expire: true };
        let (markers, late) = (Markers::default(), BTreeMap::new());
        let batch = Batch::send(vec![item], &mut lane, &markers, &late, false, &place);
        (String::from_utf8_lossy(&lane.output).matches("PTTL").count(), batch.volatile.contains(&0))
    }

    #[test]
    fn keys_are_asked_for_their_times_to_live_unless_they_are_many() {
        assert_eq!(asked(&["DEL", "k"]), (0, false), "it depends on nothing");
        assert_eq!(asked(&["INCR", "k"]), (1, false));
        let command = |key_count: usize| {
            let mut words = vec!["SUNIONSTORE"];
            words.resize(1 + key_count, "k");
            words
        };
        assert_eq!(asked(&command(EXPIRY_KEYS_MAX)), (EXPIRY_KEYS_MAX, false));
        assert_eq!(asked(&command(EXPIRY_KEYS_MAX + 1)), (0, true));
    }
}
