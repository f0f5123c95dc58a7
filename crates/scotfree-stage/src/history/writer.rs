//! One writer of a history: sends tokens, remembers what it was told.
//!
//! Invariant: a token is sent once, on one connection; it is acknowledged only if its good reply was read.

use super::judge::Told;
use super::{HistoryOptions, Token};
use crate::resp::{Connection, Reply, ReplyError};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

// The pause before a writer tries again to connect to a service that is down.
const RECONNECT_PAUSE: Duration = Duration::from_millis(5);

/// Where a writer's tokens go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// Appended to the list of this name: `RPUSH`.
    List(String),
    /// Each to a key of its own, which begins with this: `SET`, which may be answered early.
    Keys(String),
}

impl Target {
    /// The key under which a token is found that has one of its own.
    pub fn key_of(prefix: &str, token: Token) -> String {
        format!("{prefix}{token}")
    }

    fn push(&self, connection: &mut Connection, token: Token, padding_bytes: usize) {
        let value = value_of(token, padding_bytes);
        match self {
            Target::List(key) => connection.push(&["RPUSH", key, &value]),
            Target::Keys(prefix) => connection.push(&["SET", &Target::key_of(prefix, token), &value]),
        }
    }

    fn is_good(&self, reply: &Reply) -> bool {
        match self {
            Target::List(_) => matches!(reply, Reply::Integer(_)),
            Target::Keys(_) => matches!(reply, Reply::Simple(text) if text == "OK"),
        }
    }
}

/// What one writer was told.
#[derive(Debug, Default)]
pub(super) struct Writer {
    pub told: Told,
    pub refused_count: u64,
    sent_count: u64,
    connection_count: u32,
}

impl Writer {
    /// Writes until `stop` is set or `tokens_max` are sent, reconnecting whenever a connection breaks.
    pub fn write(
        &mut self,
        target: &Target,
        options: &HistoryOptions,
        stop: &AtomicBool,
        tokens_max: usize,
        on_ack: &(impl Fn() + Sync),
    ) {
        let is_over =
            |writer: &Writer| stop.load(Ordering::Relaxed) || writer.sent_count >= tokens_max as u64;
        while !is_over(self) {
            match Connection::open(options.address, options.timeout) {
                Ok(connection) => self.write_on(connection, target, options, &is_over, on_ack),
                Err(_) => thread::sleep(RECONNECT_PAUSE),
            }
        }
    }

    /// Writes on one connection until it breaks or all is over; what is in flight when it breaks has an
    /// unknown outcome.
    fn write_on(
        &mut self,
        mut connection: Connection,
        target: &Target,
        options: &HistoryOptions,
        is_over: &impl Fn(&Writer) -> bool,
        on_ack: &impl Fn(),
    ) {
        self.connection_count += 1;
        let mut in_flight = VecDeque::with_capacity(options.outstanding_max);
        loop {
            if in_flight.is_empty() {
                thread::sleep(options.pause);
            }
            while in_flight.len() < options.outstanding_max.max(1) && !is_over(self) {
                let token = self.next_token();
                target.push(&mut connection, token, options.padding_bytes);
                in_flight.push_back(token);
            }
            if connection.flush().is_err() {
                break;
            }
            let Some(token) = in_flight.pop_front() else { return };
            match connection.read() {
                Ok(reply) if target.is_good(&reply) => {
                    self.told.acknowledged.insert(token);
                    on_ack();
                }
                Ok(_) => self.refuse(token),
                Err(ReplyError::Broken(_) | ReplyError::Nonsense(_)) => {
                    in_flight.push_front(token);
                    break;
                }
            }
        }
        self.told.unknown.extend(in_flight);
    }

    /// An error reply mostly means "not applied", but only the list can tell.
    fn refuse(&mut self, token: Token) {
        self.refused_count += 1;
        self.told.unknown.insert(token);
        // A service that refuses, such as one that is loading, is not asked again at once.
        thread::sleep(RECONNECT_PAUSE);
    }

    fn next_token(&mut self) -> Token {
        self.sent_count += 1;
        Token { connection: self.connection_count, index: self.sent_count }
    }
}

fn value_of(token: Token, padding_bytes: usize) -> String {
    format!("{token}:{:x<padding_bytes$}", "")
}

pub(super) fn token_of(value: &[u8]) -> Option<Token> {
    std::str::from_utf8(value).ok()?.split(':').next()?.parse().ok()
}
