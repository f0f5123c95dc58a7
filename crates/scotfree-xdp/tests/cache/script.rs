//! Lives of chance: clients that read and write few keys, a server that answers late, twice or never, and what else
//! befalls a device.

use crate::play::{Asked, Play, Trouble, CALLER, SESSIONS};
use crate::server::{lease, poll, stable, Reply};
use crate::sides::{key_hash, Sent, Step};
use scotfree_core::{Epoch, KeyHash};
use scotfree_wire::{Flags, Kind};
use std::collections::BTreeMap;

/// Numbers of chance (xorshift64*).
struct Chance(u64);

impl Chance {
    fn below(&mut self, count: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % count
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// `twin` has the hash of `k`.
const KEYS: [&str; 5] = ["k", "twin", "other", "a-key-of-some-length", "l"];

struct Life<'a> {
    chance: Chance,
    play: &'a mut Play,
    /// Of requests that were sent, some.
    sent: Vec<Sent>,
    /// Those that have overtaken others, until their place has come: a place is one request's.
    early: BTreeMap<(u64, u64), Sent>,
    values: u64,
}

/// A life of so many packets; or where the sides differ.
pub fn life(seed: u64, packets: u64, play: &mut Play) -> Result<(), Trouble> {
    let mut life =
        Life { chance: Chance(seed + 1), play, sent: Vec::new(), early: BTreeMap::new(), values: 0 };
    while life.play.packets < packets {
        life.step()?;
        let unlogged = life.chance.one_in(3);
        life.play.server.run(unlogged);
    }
    Ok(())
}

impl Life<'_> {
    fn step(&mut self) -> Result<(), Trouble> {
        match self.chance.below(1_000) {
            0..=459 => self.read(),
            460..=549 => self.write(),
            550..=929 => self.reply(),
            930..=959 => self.stable(),
            960..=979 => self.play.step(&Step::Tick).map(drop),
            980..=989 => self.again(),
            990..=993 => self.out_of_order(),
            994..=996 => self.unseen(),
            _ => self.incarnation(),
        }
    }

    fn session(&mut self) -> u64 {
        1 + self.chance.below(SESSIONS)
    }

    fn send(&mut self, asked: &Asked<'_>) -> Result<(), Trouble> {
        let sent = self.early.remove(&(asked.session, asked.seq)).unwrap_or_else(|| asked.sent());
        self.play.send(&sent)?;
        if self.sent.len() < 64 {
            self.sent.push(sent);
        } else {
            let at = self.chance.below(64) as usize;
            self.sent[at] = sent;
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), Trouble> {
        let session = self.session();
        let key = self.chance.pick(&KEYS);
        let seq = self.play.next(session);
        // Some clients wait for what they have asked before.
        let behind = if self.chance.one_in(6) { 1 + self.chance.below(3) } else { 0 };
        let completed = (seq - 1).saturating_sub(behind);
        let flags = if self.chance.one_in(20) { Flags::RELAXED } else { Flags::NONE };
        let flags = if self.chance.one_in(20) { flags.with(Flags::AGAIN) } else { flags };
        let name = self.chance.pick(&["GET", "get", "Get"]);
        let line = format!("{name} {key}");
        let (kind, caller, line, key_hash, further) = (Kind::Read, CALLER, &line[..], key_hash(key), &[][..]);
        self.send(&Asked { session, seq, completed, kind, caller, line, key_hash, further, flags })
    }

    fn write(&mut self) -> Result<(), Trouble> {
        let session = self.session();
        let (key, other) = (self.chance.pick(&KEYS), self.chance.pick(&KEYS));
        self.values += 1;
        let value = self.values;
        let hash = key_hash(key);
        let both = [key_hash(other)];
        let (line, key_hash, further): (String, KeyHash, &[KeyHash]) = match self.chance.below(13) {
            0..=5 => (format!("SET {key} {value}"), hash, &[]),
            6 => (format!("SET {key} {}", "x".repeat(self.chance.below(1_250) as usize)), hash, &[]),
            7 => (format!("APPEND {key} {value}"), hash, &[]),
            8 => (format!("DEL {key}"), hash, &[]),
            12 => (format!("SET {key} {value} NX"), hash, &[]),
            9 => (format!("DEL {key} {other}"), hash, &[]),
            10 => (format!("MSET {key} {value} {other} {value}"), hash, &both),
            _ => (format!("EVAL {key} {value}"), KeyHash(0), &[]),
        };
        // One session hardly ever writes what is not logged: what it does log is shown.
        let one_bypass_in = if session == 1 { 40 } else { 4 };
        let kind = if self.chance.one_in(one_bypass_in) { Kind::Bypass } else { Kind::Update };
        let one_late_in = if session == 1 { 8 } else { 2 };
        let is_early = kind == Kind::Update && !self.chance.one_in(one_late_in);
        let flags = if is_early { Flags::EARLY } else { Flags::NONE };
        let flags = if self.chance.one_in(12) { flags.with(Flags::AGAIN) } else { flags };
        let seq = self.play.next(session);
        let (completed, caller, line) = (seq - 1, CALLER, &line[..]);
        self.send(&Asked { session, seq, completed, kind, caller, line, key_hash, further, flags })
    }

    /// Late, in any order, twice, or never.
    fn reply(&mut self) -> Result<(), Trouble> {
        let count = self.play.server.leaving.len() as u64;
        if count == 0 {
            return Ok(());
        }
        // Mostly the last that was made.
        let at = if self.chance.one_in(3) { self.chance.below(count) } else { count - 1 } as usize;
        let reply = self.play.server.leaving.swap_remove(at);
        if self.chance.one_in(30) {
            return Ok(());
        }
        if self.chance.one_in(30) {
            self.play.server.leaving.push(reply.clone());
        }
        self.play.send(&reply.sent()).map(drop)
    }

    fn stable(&mut self) -> Result<(), Trouble> {
        let session = self.session();
        let seq = self.play.server.executed(session).saturating_sub(self.chance.below(4));
        let way = self.chance.below(2);
        let sent = stable(session, seq, self.play.server_epoch(), way);
        self.play.send(&sent).map(drop)
    }

    /// A request that was sent before.
    fn again(&mut self) -> Result<(), Trouble> {
        if self.sent.is_empty() {
            return Ok(());
        }
        let at = self.chance.below(self.sent.len() as u64) as usize;
        let sent = self.sent[at].clone();
        self.play.send(&sent).map(drop)
    }

    /// A write that is not the next of its session, of somebody who asks for nothing else: to the rules it has been asked
    /// before what it has overtaken.
    fn out_of_order(&mut self) -> Result<(), Trouble> {
        let (session, key) = (self.session(), self.chance.pick(&KEYS));
        let seq = self.play.next(session) + 1 + self.chance.below(2);
        let line = format!("SET {key} early");
        let (kind, caller, completed, line) = (Kind::Update, CALLER + 1, 0, &line[..]);
        let (key_hash, further, flags) = (key_hash(key), &[][..], Flags::NONE);
        let asked = Asked { session, seq, completed, kind, caller, line, key_hash, further, flags };
        let sent = self.early.entry((session, seq)).or_insert_with(|| asked.sent()).clone();
        self.play.send(&sent).map(drop)
    }

    /// A response to what never passed.
    fn unseen(&mut self) -> Result<(), Trouble> {
        let session = self.session();
        let seq = self.play.next(session) + self.chance.below(3);
        self.play.send(&Reply::of(session, seq).sent()).map(drop)
    }

    /// The lease ends and comes back, or the server begins anew.
    fn incarnation(&mut self) -> Result<(), Trouble> {
        let (boot_epoch, epoch) = (self.play.boot_epoch(), self.play.server_epoch());
        let epoch = if self.chance.one_in(3) { Epoch(epoch.0 + 1) } else { epoch };
        if epoch != self.play.server_epoch() {
            self.play.send(&poll(epoch))?;
        }
        if self.chance.one_in(2) {
            self.play.send(&lease(boot_epoch, epoch, true))?;
            let reads = self.chance.below(4);
            (0..reads).try_for_each(|_| self.read())?;
        }
        self.play.send(&lease(boot_epoch, epoch, false)).map(drop)
    }
}
