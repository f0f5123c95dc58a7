//! The replies that a client waits for, in order.
//!
//! Invariant: replies leave in the order in which their commands came, whatever the order in which they
//! become known; one that is not wanted keeps its place and leaves nothing.

use crate::codec::Command;
use std::collections::VecDeque;

/// What else happens when a reply is known.
#[derive(Debug, Default)]
pub(super) enum Hook {
    /// Nothing.
    #[default]
    None,
    /// SHUTDOWN: if there is no reply it has succeeded, and the connection is closed without one.
    Shutdown,
    /// AUTH: the reply says whether the client is who it says. True: a user of its own.
    Auth { user: bool, credentials: Command },
    /// AUTH that the client has sent in a tunnel, again on the usual way: an error ends the connection.
    AuthAgain { user: bool, credentials: Command },
    /// HELLO with AUTH: the reply is AUTH's; HELLO follows.
    HelloAuth { user: bool, credentials: Command, hello: super::control::Hello },
    /// EXEC of a transaction with SELECT inside: where each stands, and what it selects.
    Exec { selects: Vec<(usize, u16)> },
    /// A command inside MULTI that the server was asked about: it is queued if the server would.
    Queue(super::transaction::Queued),
    /// EXEC that the server was asked about: the transaction is sent if the server would take it.
    AskExec(super::transaction::Transaction),
    /// HELLO: the reply names the connection.
    Hello,
    /// CLIENT INFO: the reply describes the connection.
    ClientInfo(super::identity::Words),
    /// CLIENT LIST at the server, for a question about the clients here.
    Clients(super::clients::Question),
    /// What was written through the tunnel is stable when this is answered.
    Barrier,
    /// A tunnel waits for the answer to what went the usual way.
    Aside,
    /// No reply: the connection becomes a tunnel when this is first. All but the last command are answered.
    Tunnel(Vec<Command>),
}

#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // Independent facts, no states of one machine.
struct Entry {
    reply: Option<Vec<u8>>,
    /// The first parts of a large reply.
    parts: Vec<u8>,
    wanted: bool,
    close: bool,
    is_script: bool,
    /// Its first part came, which may be empty, and not its last.
    is_begun: bool,
    hook: Hook,
}

/// The queue of replies.
#[derive(Debug)]
pub(super) struct Pending {
    first_id: u64,
    entries: VecDeque<Entry>,
    /// How many of them are scripts without a reply.
    scripts: usize,
    /// How many of them have come in part.
    fetching: usize,
    /// The replies of the present command are not wanted.
    pub suppress: bool,
}

impl Default for Pending {
    fn default() -> Self {
        // 0 names nobody.
        Pending { first_id: 1, entries: VecDeque::new(), scripts: 0, fetching: 0, suppress: false }
    }
}

impl Pending {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Makes place for a reply that is not known yet, and names it.
    pub fn expect(&mut self, hook: Hook) -> u64 {
        self.entries.push_back(Entry {
            reply: None,
            parts: Vec::new(),
            wanted: !self.suppress,
            close: false,
            is_script: false,
            is_begun: false,
            hook,
        });
        self.first_id + self.entries.len() as u64 - 1
    }

    /// Adds a reply that is known.
    pub fn answer(&mut self, reply: &[u8]) {
        if !self.suppress {
            let reply = Some(reply.to_vec());
            self.entries.push_back(Entry {
                reply,
                parts: Vec::new(),
                wanted: true,
                close: false,
                is_script: false,
                is_begun: false,
                hook: Hook::None,
            });
        }
    }

    /// What is waited for is a script.
    pub fn mark_script(&mut self, id: u64) {
        if let Some(entry) = self.entry(id) {
            entry.is_script = true;
            self.scripts += 1;
        }
    }

    /// How many scripts are waited for.
    pub fn scripts(&self) -> usize {
        self.scripts
    }

    /// A reply is known now. A second one, or one for nobody, is dropped.
    pub fn complete(&mut self, id: u64, reply: &[u8], close: bool) {
        if let Some(entry) = self.entry(id).filter(|entry| entry.reply.is_none()) {
            entry.reply = Some(reply.to_vec());
            entry.close = close;
            let was_script = std::mem::take(&mut entry.is_script);
            let was_begun = std::mem::take(&mut entry.is_begun);
            self.scripts -= usize::from(was_script);
            self.fetching -= usize::from(was_begun);
        }
    }

    /// A part of a large reply came.
    pub fn add_part(&mut self, id: u64, part: &[u8]) {
        if let Some(entry) = self.entry(id) {
            let was_begun = entry.is_begun;
            entry.is_begun = true;
            entry.parts.extend_from_slice(part);
            self.fetching += usize::from(!was_begun);
        }
    }

    /// Whether a large reply has come in part.
    pub fn is_fetching(&self) -> bool {
        self.fetching > 0
    }

    /// The whole of a reply whose last part came; none if it has one part only.
    pub fn take_parts(&mut self, id: u64, last: &[u8]) -> Option<Vec<u8>> {
        let entry = self.entry(id).filter(|entry| !entry.parts.is_empty())?;
        let mut whole = std::mem::take(&mut entry.parts);
        let was_begun = std::mem::take(&mut entry.is_begun);
        self.fetching -= usize::from(was_begun);
        whole.extend_from_slice(last);
        Some(whole)
    }

    /// Sets what else happens when a reply is known; returns its name.
    pub fn set_hook(&mut self, id: u64, hook: Hook) -> u64 {
        if let Some(entry) = self.entry(id) {
            entry.hook = hook;
        }
        id
    }

    pub fn take_hook(&mut self, id: u64) -> Hook {
        self.entry(id).map_or(Hook::None, |entry| std::mem::take(&mut entry.hook))
    }

    /// The commands with which the connection becomes a tunnel, if everything before them is answered; and whether the
    /// answer is wanted.
    pub fn take_tunnel(&mut self) -> Option<(Vec<Command>, bool)> {
        if !matches!(self.entries.front()?.hook, Hook::Tunnel(_)) {
            return None;
        }
        self.first_id += 1;
        let entry = self.entries.pop_front()?;
        match entry.hook {
            Hook::Tunnel(commands) => Some((commands, entry.wanted)),
            _ => None,
        }
    }

    /// Appends the replies that are next; true if the connection has to be closed behind them.
    pub fn release(&mut self, output: &mut Vec<u8>) -> bool {
        while self.entries.front().is_some_and(|entry| entry.reply.is_some()) {
            let Some(entry) = self.entries.pop_front() else { break };
            self.first_id += 1;
            if entry.wanted || entry.close {
                output.extend_from_slice(&entry.reply.unwrap_or_default());
            }
            if entry.close {
                return true;
            }
        }
        false
    }

    pub fn clear(&mut self) {
        self.first_id += self.entries.len() as u64;
        self.entries.clear();
        self.scripts = 0;
        self.fetching = 0;
    }

    fn entry(&mut self, id: u64) -> Option<&mut Entry> {
        let index = usize::try_from(id.checked_sub(self.first_id)?).ok()?;
        self.entries.get_mut(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_leave_in_the_order_of_their_commands() {
        let mut pending = Pending::default();
        let first = pending.expect(Hook::None);
        pending.answer(b"2");
        let third = pending.expect(Hook::None);
        let mut output = Vec::new();
        pending.complete(third, b"3", false);
        assert!(!pending.release(&mut output) && output.is_empty());
        pending.complete(first, b"1", false);
        pending.complete(first, b"again", false);
        assert!(!pending.release(&mut output));
        assert_eq!((output.as_slice(), pending.len()), (&b"123"[..], 0));
        pending.complete(third, b"late", false);
        pending.complete(0, b"nobody", false);
        assert!(pending.is_empty());
    }

    #[test]
    fn an_unwanted_reply_leaves_nothing_and_a_last_one_ends() {
        let mut pending = Pending { suppress: true, ..Pending::default() };
        let silent = pending.expect(Hook::None);
        pending.answer(b"silent too");
        pending.suppress = false;
        let last = pending.expect(Hook::None);
        pending.answer(b"behind the end");
        let mut output = Vec::new();
        pending.complete(silent, b"x", false);
        pending.complete(last, b"end", true);
        assert!(pending.release(&mut output));
        assert_eq!(output, b"end");
        pending.clear();
        assert_eq!(pending.expect(Hook::None), last + 2);
    }
}
