//! What becomes of clients when a lane of their own cannot be opened.
//!
//! Invariant: a request whose lane cannot be opened is answered with an error when its turn comes, so no
//! other waits behind it. What runs on lanes that are open goes on.

use super::health::way_in;
use super::{Back, BackEvent, BackEvents, LaneId, LaneState, Nature, Purpose, StopReason};
use crate::codec::error_reply;
use scotfree_core::SessionId;

/// How often a lane is opened for a request when the server only closes it.
pub const OPENINGS_MAX: u8 = 3;

/// What to do about a server that refuses connections for another reason than who the sidecar is.
const ASK_THE_SERVER: &str =
    "see what the server's log says of it and how many connections it admits: redis-cli CONFIG \
                              GET maxclients";

/// What a client is told whose lane the server refuses. A password or a right that the sidecar lacks is not the client's
/// fault: by the server's own word its library would take its own password for a wrong one.
fn text_of_refused(reply: &str) -> String {
    let is_of_us = ["WRONGPASS", "NOAUTH", "NOPERM"].iter().any(|code| reply.starts_with(code));
    if is_of_us {
        return format!(
            "TRYAGAIN scotfree: the server refuses the user of scot itself, not this client: it answers `{reply}` to the \
             connection that this command needs; the log of scot says what to do"
        );
    }
    format!(
        "{reply} (scotfree: the server refuses its sidecar the connection that this command needs; the sidecar's log says \
         what to do)"
    )
}

impl Back {
    /// Whether the server has let the last new lane in.
    pub fn lanes_allowed(&self) -> bool {
        self.shut_out.is_empty()
    }

    /// The server refused a command of our own that must succeed; an error breaks the lane.
    pub(super) fn on_refused(
        &mut self,
        id: LaneId,
        reply: &str,
        events: &mut BackEvents,
    ) -> Result<(), String> {
        if let Some(refusal) = self.refused_greeting(reply) {
            self.stop(StopReason::Unwilling(vec![refusal]), events);
            return Ok(());
        }
        let is_greeting = self.lanes.get(id).is_some_and(|lane| lane.state == LaneState::Greeting);
        match self.purpose(id).filter(|_| is_greeting) {
            Some(Purpose::Private { session, connection }) => {
                self.refuse_first((session, connection), &text_of_refused(reply));
            }
            Some(Purpose::Trial) => {}
            _ => return Err(format!("the server refused a command of scot itself: {reply}")),
        }
        self.close(id, events);
        self.shut_out(reply, events);
        Ok(())
    }

    /// A client's lane was closed before it was ready, without a word why: it may have been chance.
    pub(super) fn on_unopened(&mut self, owner: (SessionId, u32), reason: &str) {
        let Some(item) = self.queue.iter_mut().find(|item| item.private() == Some(owner)) else { return };
        item.tries += 1;
        if item.tries >= OPENINGS_MAX {
            let text = format!(
                "ERR scotfree: the connection to the server that this command needs was closed {OPENINGS_MAX} times \
                 before it could be used: {reason}; the command did not run, try again"
            );
            self.refuse_first(owner, &text);
        }
    }

    /// The first request that waits for the lane is answered when its turn comes: what is before it in the
    /// queue keeps its place.
    fn refuse_first(&mut self, owner: (SessionId, u32), text: &str) {
        if let Some(item) = self.queue.iter_mut().find(|item| item.private() == Some(owner)) {
            item.nature = Nature::Refused(error_reply(text), false);
        }
    }

    fn shut_out(&mut self, reply: &str, events: &mut BackEvents) {
        if self.shut_out == reply {
            return;
        }
        reply.clone_into(&mut self.shut_out);
        let user = self.config.credentials.as_ref().map_or("default", |(user, _)| user);
        let next = way_in(reply, user).unwrap_or_else(|| ASK_THE_SERVER.to_owned());
        events.push(BackEvent::Lanes { allowed: false, reason: format!("it answers `{reply}`; {next}") });
    }

    /// Finds out whether the server lets new lanes in again. Clients need not be the ones who try.
    pub(super) fn try_opening(&mut self, events: &mut BackEvents) {
        let tries = self.lanes.iter().any(|lane| lane.purpose == Purpose::Trial);
        if !self.lanes_allowed() && !tries {
            self.open(Purpose::Trial, events);
        }
    }

    /// The server has let a lane in.
    pub(super) fn on_let_in(&mut self, id: LaneId, events: &mut BackEvents) {
        if self.purpose(id) == Some(Purpose::Trial) {
            self.close(id, events);
        }
        if !self.lanes_allowed() {
            self.shut_out.clear();
            events.push(BackEvent::Lanes { allowed: true, reason: String::new() });
        }
    }
}
