//! Both sides, what they are sent, and where they differ.

use crate::server::{accept, keys, lease, stable, Server, EPOCH};
use crate::sides::{client, key_hash, Leaving, Programs, Rules, Sent, Step, SERVER};
use scotfree_core::{Durability, KeyHash, SeqNum, SessionId};
use scotfree_wire::{emit_extended, Extensions, Flags, Header, Kind, Kinds, Packet, Stamp, Tail};
use scotfree_xdp::Kernel;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

pub const SESSIONS: u64 = 3;
/// The connection of most requests.
pub const CALLER: u8 = 9;
/// How much of what has happened is told where the sides differ.
const HAPPENED_MAX: usize = 150;

/// Where the sides differ.
#[derive(Debug)]
pub struct Trouble(String);

impl Trouble {
    pub fn in_life(self, seed: u64) -> Trouble {
        Trouble(format!("life {seed}, {}", self.0))
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A request of a client's.
#[derive(Debug, Clone)]
pub struct Asked<'a> {
    pub session: u64,
    pub seq: u64,
    pub completed: u64,
    pub kind: Kind,
    /// The connection that asks.
    pub caller: u8,
    pub line: &'a str,
    /// 0: it has none.
    pub key_hash: KeyHash,
    pub further: &'a [KeyHash],
    pub flags: Flags,
}

impl Asked<'_> {
    pub fn sent(&self) -> Sent {
        self.sent_with(&payload(self.caller, self.line))
    }

    /// With this payload instead of its line's.
    pub fn sent_with(&self, payload: &[u8]) -> Sent {
        let mut header = Header::new(self.kind, SessionId(self.session), EPOCH);
        header.seq_num = SeqNum(self.seq);
        header.completed = SeqNum(self.completed);
        header.key_hash = self.key_hash;
        header.device_acks_asked = 1;
        header.flags = self.flags;
        if self.kind == Kind::Update {
            header.asked = Durability::Ram;
        }
        let extensions = Extensions { further_keys: self.further, ..Extensions::NONE };
        let (tail, key) = (Tail::Stamp(Stamp::default()), keys(self.session).client_to_server);
        let mut bytes = Vec::new();
        emit_extended(&header, &tail, &extensions, payload, &key, &mut bytes);
        Sent { from: client(self.session), to: SERVER, bytes }
    }
}

/// A command as sidecars write it, of a caller that takes what was answered before.
pub fn payload(caller: u8, line: &str) -> Vec<u8> {
    let words: Vec<&str> = line.split(' ').collect();
    let mut payload = vec![1, 0, 0, 32, 0, 0, caller, 0, 0, 0];
    payload.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        payload.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    payload
}

/// Both sides and their server.
pub struct Play {
    rules: Rules,
    programs: Programs,
    pub server: Server,
    kernel: Arc<Kernel>,
    /// What has happened of late, in words.
    happened: VecDeque<String>,
    pub packets: u64,
    pub reads: u64,
    pub by_rules: u64,
    pub by_programs: u64,
}

impl Play {
    /// A device with a lease and some sessions, whose clients' port is known.
    pub fn new(kernel: &Arc<Kernel>, planted: u32) -> Play {
        Play::of_reads(kernel, planted, 1)
    }

    /// One that keeps the reply to a key's read of this number.
    pub fn of_reads(kernel: &Arc<Kernel>, planted: u32, admit_reads: u8) -> Play {
        let mut play = Play {
            rules: Rules::new(admit_reads),
            programs: Programs::new(kernel, planted, admit_reads),
            server: Server::default(),
            kernel: Arc::clone(kernel),
            happened: VecDeque::new(),
            packets: 0,
            reads: 0,
            by_rules: 0,
            by_programs: 0,
        };
        let agreed = play.begin();
        agreed.unwrap_or_else(|trouble| panic!("{trouble}"));
        play
    }

    fn begin(&mut self) -> Result<(), Trouble> {
        self.send(&lease(self.rules.boot_epoch(), EPOCH, false))?;
        for session in 1..=SESSIONS {
            self.send(&accept(session, EPOCH))?;
            self.ask(session, Kind::Update, "SET k begun", key_hash("k"))?;
        }
        Ok(())
    }

    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    pub fn next(&self, session: u64) -> u64 {
        self.rules.next(session)
    }

    pub fn server_epoch(&self) -> scotfree_core::Epoch {
        self.rules.server_epoch()
    }

    pub fn boot_epoch(&self) -> scotfree_core::BootEpoch {
        self.rules.boot_epoch()
    }

    /// A SET whose caller takes its acknowledgement for its reply.
    pub fn set(&mut self, session: u64, key: &str, value: &str) -> Result<bool, Trouble> {
        self.set_as(session, key, &payload(CALLER, &format!("SET {key} {value}")))
    }

    /// The same with this payload.
    pub fn set_as(&mut self, session: u64, key: &str, payload: &[u8]) -> Result<bool, Trouble> {
        let (seq, line) = (self.next(session), "");
        let (caller, completed, further, flags) = (CALLER, seq - 1, &[][..], Flags::EARLY);
        let (kind, key_hash) = (Kind::Update, key_hash(key));
        let asked = Asked { session, seq, completed, kind, caller, line, key_hash, further, flags };
        self.send(&asked.sent_with(payload))
    }

    /// The next request of a session, whose client has everything before it; whether the programs answered it.
    pub fn ask(&mut self, session: u64, kind: Kind, line: &str, key_hash: KeyHash) -> Result<bool, Trouble> {
        self.ask_at(session, self.next(session), kind, line, key_hash)
    }

    /// The same with this place.
    pub fn ask_at(
        &mut self,
        session: u64,
        seq: u64,
        kind: Kind,
        line: &str,
        key_hash: KeyHash,
    ) -> Result<bool, Trouble> {
        let (caller, completed, further, flags) = (CALLER, seq - 1, &[][..], Flags::NONE);
        let asked = Asked { session, seq, completed, kind, caller, line, key_hash, further, flags };
        self.send(&asked.sent())
    }

    /// Sends a packet to both sides; whether the programs answered it, or where the sides differ.
    pub fn send(&mut self, sent: &Sent) -> Result<bool, Trouble> {
        self.step(&Step::Packet(sent.clone()))
    }

    pub fn step(&mut self, step: &Step) -> Result<bool, Trouble> {
        let missed = self.rules.misses();
        let expected = self.rules.step(step);
        let found = self.programs.step(step);
        let Step::Packet(sent) = step else { return Ok(false) };
        self.packets += 1;
        let is_read = sent.to == SERVER && sent.bytes.get(5) == Some(&Kind::Read.code());
        let is_answer = |leaving: &Leaving| matches!(leaving, Leaving::Originated { .. });
        let is_passed_on = |leaving: &Leaving| matches!(leaving, Leaving::Forwarded(_));
        self.reads += u64::from(is_read);
        self.by_rules += u64::from(is_read && expected.iter().any(is_answer));
        self.by_programs += u64::from(found.answered);
        self.note(sent, &expected, &found.leaving, found.answered);
        // What the programs do not know they pass on.
        let knows_less = is_read && expected.iter().all(is_answer) && found.leaving.iter().all(is_passed_on);
        if found.leaving != expected && !knows_less {
            let happened: Vec<&str> = self.happened.iter().map(String::as_str).collect();
            let why: Vec<String> = (self.rules.misses().into_iter().zip(missed))
                .filter(|(now, before)| now != before)
                .map(|(now, _)| now.0)
                .collect();
            return Err(Trouble(format!(
                "packet {}: the sides differ (the rules: {why:?}):\n{}",
                self.packets,
                happened.join("\n")
            )));
        }
        if sent.to == SERVER {
            for leaving in &found.leaving {
                if let Leaving::Forwarded(bytes) = leaving {
                    self.server.take(bytes);
                }
            }
        }
        Ok(found.answered)
    }

    fn note(&mut self, sent: &Sent, expected: &[Leaving], found: &[Leaving], answered: bool) {
        let all = |leaving: &[Leaving]| {
            let one = |leaving: &Leaving| match leaving {
                Leaving::Forwarded(bytes) if *bytes == sent.bytes => "on".to_owned(),
                Leaving::Forwarded(bytes) => format!("on as {}", in_words(bytes)),
                Leaving::Originated { bytes, .. } => format!("{{{}}}", in_words(bytes)),
            };
            leaving.iter().map(one).collect::<Vec<_>>().join(", ")
        };
        let by = if answered { " by the programs" } else { "" };
        let rules = if expected == found { String::new() } else { format!("; the rules: {}", all(expected)) };
        let text = format!("{}: {} -> {}{by}{rules}", self.packets, in_words(&sent.bytes), all(found));
        self.happened.push_back(text);
        if self.happened.len() > HAPPENED_MAX {
            self.happened.pop_front();
        }
    }

    // ---- for single tests

    /// Reads a key a few times, with all replies.
    pub fn warm(&mut self, key: &str, times: usize) -> Result<(), Trouble> {
        for _ in 0..times {
            self.ask(1, Kind::Read, &format!("GET {key}"), key_hash(key))?;
            self.replies()?;
        }
        Ok(())
    }

    /// Reads a key; whether the reply, changed by this, went up to the daemon.
    pub fn reply_goes_up(&mut self, key: &str, change: impl Fn(&mut Vec<u8>)) -> Result<bool, Trouble> {
        self.ask(1, Kind::Read, &format!("GET {key}"), key_hash(key))?;
        self.server.run(true);
        let passed_up = |kernel: &Kernel| kernel.counters().expect("the tables can be read").passed_up;
        let before = passed_up(&self.kernel);
        for reply in std::mem::take(&mut self.server.leaving) {
            let mut sent = reply.sent();
            change(&mut sent.bytes);
            self.send(&sent)?;
        }
        Ok(passed_up(&self.kernel) > before)
    }

    /// All that the server has to say.
    pub fn replies(&mut self) -> Result<(), Trouble> {
        self.server.run(true);
        for reply in std::mem::take(&mut self.server.leaving) {
            self.send(&reply.sent())?;
        }
        Ok(())
    }

    /// Everything is executed, answered and stable, and the daemon knows it.
    pub fn settle(&mut self) -> Result<(), Trouble> {
        self.replies()?;
        for session in 1..=SESSIONS {
            self.send(&stable(session, self.server.executed(session), self.server_epoch(), 0))?;
        }
        // Who keeps the places takes it over when the daemon has something to decide, and the cache at its next timer.
        self.send(&lease(self.boot_epoch(), self.server_epoch(), false))?;
        self.step(&Step::Tick).map(drop)
    }

    /// Whether the programs answer a read of a key by themselves, which the rules do as well.
    pub fn programs_answer(&mut self, key: &str) -> bool {
        let (session, seq, line) = (1, self.next(1), format!("GET {key}"));
        let (kind, caller, completed, line) = (Kind::Read, CALLER, seq - 1, &line[..]);
        let (key_hash, further, flags) = (key_hash(key), &[][..], Flags::NONE);
        let asked = Asked { session, seq, completed, kind, caller, line, key_hash, further, flags };
        let step = Step::Packet(asked.sent());
        self.rules.step(&step);
        self.programs.step(&step).answered
    }
}

/// A packet in words: kind, session, place, stamp and payload.
fn in_words(bytes: &[u8]) -> String {
    let Ok(packet) = Packet::parse(bytes) else { return "no packet".to_owned() };
    let stamp = match packet.tail() {
        Tail::Stamp(stamp) => format!("{:?} {}", stamp.kind, stamp.number.0),
        Tail::Heartbeat(tail) => format!("stable {}", tail.stable.0),
        _ => String::new(),
    };
    let payload: String = String::from_utf8_lossy(packet.payload()).chars().take(60).collect();
    let (kind, session, seq) = (packet.kind(), packet.session().0, packet.seq_num().0);
    let completed = packet.header().completed.0;
    format!("{kind:?} {session}/{seq} ({completed} complete) {stamp} {payload:?} {:?}", packet.flags())
}
