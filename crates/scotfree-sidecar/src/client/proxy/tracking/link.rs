//! The socket of the connection by which the Redis tells of writes.
//!
//! Invariant: what was told is handed on before anything that the same turn of the loop gives a place; when the
//! connection is lost, that is handed on too, once.

use super::{Told, Tracking};
use crate::notices::Notices;
use crate::redis::RedisServer;
use crate::seldom::Seldom;
use crate::server::{Connector, NewStream, PasswordSource, RedisServiceConfig};
use crate::stream::Stream;
use scotfree_core::Nanos;
use scotfree_rpc::metrics::MetricsText;
use scotfree_rpc::Watch;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;

const READ_BYTES: usize = 64 << 10;
/// How long it is waited behind a connection that was lost, or refused.
const AGAIN_AFTER: Nanos = Nanos::from_millis(100);
/// What the poller tells its sockets from others by; the number of the connection is added.
const GENERATIONS: u64 = 1 << 63;

/// The connection, its socket, and who makes it.
pub(in super::super) struct Link {
    machine: Tracking,
    redis: RedisServer,
    credentials: Option<(String, String)>,
    connector: Connector<u64>,
    socket: Option<Stream>,
    /// How often it was asked for a connection.
    connections: u64,
    is_connecting: bool,
    again_at: Nanos,
    buffer: Vec<u8>,
    notices: Notices,
    losses: u64,
    unsaid: Seldom,
    /// Why it is not open; empty while it is, or was never tried.
    trouble: String,
    /// The operator knows of that, and is to be told when it is open.
    is_said: bool,
    keys_told: u64,
}

impl Link {
    /// One that is not connected, to the service's Redis.
    pub fn new(bound: Nanos, service: &RedisServiceConfig) -> io::Result<Link> {
        let (password, notices) = (service.password.clone(), service.notices.clone());
        let read_password =
            move || password.as_ref().and_then(|source: &PasswordSource| source.read(&notices));
        Ok(Link {
            machine: Tracking::new(bound),
            redis: service.redis.clone(),
            credentials: service.back.credentials.clone(),
            connector: Connector::start(service.redis.clone(), read_password)?,
            socket: None,
            connections: 0,
            is_connecting: false,
            again_at: Nanos(0),
            buffer: vec![0; READ_BYTES],
            notices: service.notices.clone(),
            losses: 0,
            unsaid: Seldom::default(),
            trouble: String::new(),
            is_said: true,
            keys_told: 0,
        })
    }

    /// For how long a PING counts.
    pub fn bound(&self) -> Nanos {
        self.machine.bound()
    }

    /// Hands on what the Redis has told, and asks what is to be asked. While the Redis is not there, nobody is asked.
    pub fn turn(&mut self, now: Nanos, is_there: bool, tell: &mut impl FnMut(Told<'_>)) {
        if !is_there {
            return self.close(tell);
        }
        self.take_connection(now, tell);
        if self.socket.is_some() {
            let talked = self.hear(tell).and_then(|()| {
                self.machine.on_time(now);
                self.say()
            });
            if let Err(trouble) = talked {
                self.lose(now, trouble, tell);
            }
        } else if !self.is_connecting && now >= self.again_at {
            self.connections += 1;
            self.is_connecting = true;
            self.connector.connect(self.connections);
        }
        self.say_trouble(now);
    }

    /// Somebody reads what could be answered.
    pub fn want(&mut self, now: Nanos) {
        self.machine.want(now);
    }

    /// Ends the connection: the Redis is lost, or nobody is answered any more.
    pub fn close(&mut self, tell: &mut impl FnMut(Told<'_>)) {
        if self.socket.take().is_some() {
            self.machine.close();
            tell(Told::Lost);
        }
    }

    fn take_connection(&mut self, now: Nanos, tell: &mut impl FnMut(Told<'_>)) {
        while let Some((number, result)) = self.connector.result() {
            self.is_connecting = false;
            match result {
                _ if number != self.connections => {}
                Ok(NewStream { stream, password }) => {
                    if let (Some((_, held)), Some(new)) = (&mut self.credentials, password) {
                        *held = new;
                    }
                    self.socket = Some(stream);
                    let credentials = self.credentials.as_ref();
                    self.machine
                        .on_connected(credentials.map(|(user, password)| (user.as_str(), password.as_str())));
                }
                Err(error) => {
                    let next = self.redis.mend(&error);
                    self.lose(now, format!("{error}; {next}"), tell);
                }
            }
        }
    }

    fn hear(&mut self, tell: &mut impl FnMut(Told<'_>)) -> Result<(), String> {
        let Some(socket) = &mut self.socket else { return Ok(()) };
        loop {
            match socket.read(&mut self.buffer) {
                Ok(0) => return Err("it has closed the connection".to_owned()),
                Ok(count) => {
                    let is_more = count == self.buffer.len() || socket.is_tls();
                    let (keys_told, mut has_begun) = (&mut self.keys_told, false);
                    self.machine.on_bytes(&self.buffer[..count], &mut |told| {
                        *keys_told += u64::from(matches!(told, Told::Key(_)));
                        has_begun |= told == Told::Begun;
                        tell(told);
                    })?;
                    if has_begun {
                        self.trouble.clear();
                        if std::mem::take(&mut self.is_said) {
                            self.notices
                                .say("the Redis server tells what others write: reads are answered here");
                        }
                    }
                    if !is_more {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    fn say(&mut self) -> Result<(), String> {
        let Some(socket) = &mut self.socket else { return Ok(()) };
        while !self.machine.output().is_empty() {
            match socket.write(self.machine.output()) {
                Ok(count) => self.machine.sent(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        match socket.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error.to_string()),
            _ => Ok(()),
        }
    }

    fn lose(&mut self, now: Nanos, trouble: String, tell: &mut impl FnMut(Told<'_>)) {
        self.close(tell);
        self.again_at = now.plus(AGAIN_AFTER);
        self.losses += 1;
        if self.trouble != trouble {
            self.trouble = trouble;
            self.unsaid.happened(1);
        }
    }

    fn say_trouble(&mut self, now: Nanos) {
        if self.trouble.is_empty() || self.unsaid.due(now).is_none() {
            return;
        }
        self.is_said = true;
        let next = way_out(&self.trouble);
        self.notices.alarm(&format!(
            "the Redis server does not tell what others write: {}{next}; until it does no read is answered here, and what was \
             known is forgotten; everything else goes on",
            self.trouble
        ));
    }

    // ---- what the loop waits for

    /// Appends what it waits for.
    pub fn watches(&self, out: &mut Vec<Watch>) {
        let watch = |fd, generation, writable| Watch {
            fd,
            generation: GENERATIONS + generation,
            readable: true,
            writable,
        };
        out.push(watch(self.connector.fd(), 0, false));
        if let Some(socket) = &self.socket {
            let writable = !self.machine.output().is_empty() || socket.wants_write();
            out.push(watch(socket.as_raw_fd(), self.connections, writable));
        }
    }

    /// When to turn again even if nothing happens.
    pub fn next_turn(&self, now: Nanos) -> Option<Nanos> {
        match &self.socket {
            Some(_) => self.machine.next_ping(now),
            None => (!self.is_connecting).then_some(self.again_at),
        }
    }

    /// What it has counted.
    pub fn write_metrics(&self, text: &mut MetricsText) {
        let help = "1: the Redis tells of all writes, whoever makes them";
        text.gauge("scotfree_cache_tracking", help, u8::from(self.machine.is_open()));
        for (name, help, value) in [
            ("told_total", "Keys of which the Redis has told that they were written", self.keys_told),
            ("pings_total", "Questions whether the Redis has told of all writes", self.machine.pings()),
            ("tracking_losses_total", "Connections lost, or refused, by which it tells", self.losses),
        ] {
            text.counter(&format!("scotfree_cache_{name}"), help, value);
        }
    }
}

/// What an operator can do about it.
fn way_out(trouble: &str) -> &'static str {
    match trouble {
        trouble if trouble.contains("NOPERM") => {
            " (let scot's user run HELLO and CLIENT: ACL SETUSER NAME +hello +client)"
        }
        trouble if trouble.contains("unknown command") => " (it takes Redis 6.2 or newer)",
        _ => "",
    }
}
