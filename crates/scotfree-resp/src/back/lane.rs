//! A lane: one connection to the server, with what is expected on it.
//!
//! Invariant: replies are matched to commands by their order alone, so every byte sent has its expected
//! replies recorded before it is sent.

use crate::codec::{write_bulk, write_header, Limits, ReplyDecoder};
use scotfree_core::{Nanos, SessionId};
use std::collections::VecDeque;

/// Names a lane; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub u32);

/// What a lane is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Starting, watching the server, cleaning up.
    Control,
    /// Finding out what is stable.
    Probe,
    /// All requests that need no connection of their own.
    Shared,
    /// One client connection's own.
    Private {
        /// The session.
        session: SessionId,
        /// The client's connection within it.
        connection: u32,
    },
    /// Finding out whether the server lets new lanes in.
    Trial,
}

impl Purpose {
    /// The last part of the lane's name at the server.
    pub const fn name(self) -> &'static str {
        match self {
            Purpose::Control => "control",
            Purpose::Probe => "probe",
            Purpose::Shared => "shared",
            Purpose::Private { .. } => "private",
            Purpose::Trial => "trial",
        }
    }
}

/// What the next reply on a lane belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    /// A command of our own that must succeed.
    Ok,
    /// A command of our own that may fail.
    Ignored,
    /// The lane's number at the server, the last reply of the handshake.
    ClientId,
    /// Which run of the server answers.
    Run,
    /// The epoch, which says whether we have been replaced.
    Epoch,
    /// A command inside the batch's MULTI.
    Queued,
    /// The batch's MULTI, which may be refused: the rest of it is sent then.
    Multi,
    /// The batch's EXEC.
    Exec,
    /// The command at the front of those in flight.
    Direct,
    /// What is left of the life of what the command at the front of those in flight reads.
    Life,
    /// A step of the start, of a health check or of a probe.
    Step,
    /// A write by which it is found out whether the server takes writes again.
    Trial,
    /// What is asked beside the order.
    Aside,
    /// An answer about what was executed on a lane that broke.
    Recovery,
}

/// How far a lane is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LaneState {
    Connecting,
    Greeting,
    Ready,
}

/// A lane's next reply waits for room.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoomWait {
    pub since: Nanos,
    /// When one of those that it waits for has had its time.
    pub until: Nanos,
}

/// A run of the server, from its start to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Run {
    /// It has not said, or it is another one.
    Unknown,
    /// The one that was begun with.
    Same,
}

/// One connection to the server.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // Independent facts, no states of one machine.
pub(super) struct Lane {
    pub purpose: Purpose,
    pub state: LaneState,
    pub output: Vec<u8>,
    pub replies: ReplyDecoder,
    pub expected: VecDeque<Expected>,
    /// The database selected; none if it is not known.
    pub db: Option<u16>,
    pub resp: u8,
    /// A client has authenticated itself on it as a user of its own.
    pub has_user: bool,
    /// The server has taken a MULTI on it: a client's user may have no right to that, and what follows would be
    /// executed without its marker.
    pub may_multi: bool,
    /// A client watches keys on it.
    pub watches: bool,
    pub client_id: i64,
    /// Which run of the server answers on it.
    pub run: Run,
    /// Its next reply waits for room; see `room`.
    pub waits: Option<RoomWait>,
    /// It is among those that may have something to do; see `lanes`.
    pub is_listed: bool,
}

impl Lane {
    pub fn new(purpose: Purpose, limits: Limits) -> Lane {
        Lane {
            purpose,
            state: LaneState::Connecting,
            output: Vec::new(),
            replies: ReplyDecoder::new(limits),
            expected: VecDeque::new(),
            db: Some(0),
            resp: 2,
            has_user: false,
            may_multi: !matches!(purpose, Purpose::Private { .. }),
            watches: false,
            client_id: 0,
            run: Run::Unknown,
            waits: None,
            is_listed: false,
        }
    }

    /// Adds a command of plain words and what is expected of it.
    pub fn say(&mut self, words: &[&[u8]], expected: Expected) {
        write_header(&mut self.output, words.len());
        for word in words {
            write_bulk(&mut self.output, word);
        }
        self.expected.push_back(expected);
    }

    /// Changes database and protocol version if they are others.
    pub fn enter(&mut self, db: u16, resp: u8) {
        self.speak(resp);
        if self.db != Some(db) {
            self.say(&[b"SELECT", db.to_string().as_bytes()], Expected::Ok);
            self.db = Some(db);
        }
    }

    /// Changes the protocol version if it is another.
    pub fn speak(&mut self, resp: u8) {
        if self.resp != resp {
            self.say(&[b"HELLO", resp.to_string().as_bytes()], Expected::Ok);
            self.resp = resp;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_and_version_are_changed_only_when_they_differ() {
        let mut lane = Lane::new(Purpose::Shared, Limits::default());
        lane.enter(0, 2);
        assert!(lane.output.is_empty() && lane.expected.is_empty());
        lane.enter(3, 3);
        lane.enter(3, 3);
        assert_eq!(lane.output, b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n");
        assert_eq!(lane.expected, [Expected::Ok, Expected::Ok]);
        lane.db = None;
        lane.enter(3, 3);
        assert_eq!(lane.expected.len(), 3);
    }
}
