//! One register for each writer, kept by a majority of the replicas.
//!
//! Invariant: a replica acknowledges what its disk holds, and holds the highest number it was told; a write is
//! complete when a majority has acknowledged it.

use scotfree_core::{Effects, Machine, Nanos, Token};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};

/// A safety rule switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    AcknowledgeBeforeDurable,
    CountTwice,
    TakeOlder,
    BelieveDamage,
    NeverRepeat,
}

/// A write, or its acknowledgement by one replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    pub writer: u16,
    /// Who acknowledges; `None` in a write.
    pub replica: Option<u16>,
    pub number: u64,
}

const NO_REPLICA: u16 = u16::MAX;
const MESSAGE_BYTES: usize = 12;
/// How long a writer waits before it sends again.
const RETRY_AFTER: Nanos = Nanos::from_millis(2);

impl Message {
    pub fn encode(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        out.extend(self.writer.to_le_bytes());
        out.extend(self.replica.unwrap_or(NO_REPLICA).to_le_bytes());
        out.extend(self.number.to_le_bytes());
        out.extend(sum(&out[begin..]).to_le_bytes());
    }

    pub fn decode(bytes: &[u8], is_believed: bool) -> Option<Message> {
        let (said, summed) = bytes.split_at_checked(MESSAGE_BYTES)?;
        if !is_believed && summed != sum(said).to_le_bytes() {
            return None;
        }
        let word = |at: usize| u16::from_le_bytes([said[at], said[at + 1]]);
        let number = u64::from_le_bytes(said[4..].try_into().ok()?);
        Some(Message {
            writer: word(0),
            replica: Some(word(2)).filter(|replica| *replica != NO_REPLICA),
            number,
        })
    }
}

fn sum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

pub fn writer_address(index: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 2, index as u8), 1))
}

pub fn replica_address(index: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 1, index as u8), 1))
}

/// A write is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completed(pub u64);

pub struct Writer {
    index: usize,
    replica_count: usize,
    write_count: u64,
    /// The write that is outstanding.
    number: u64,
    acknowledged_by: Vec<u16>,
    retry_at: Option<Nanos>,
    planted: Option<Fault>,
}

impl Writer {
    pub fn new(index: usize, replica_count: usize, write_count: u64, planted: Option<Fault>) -> Writer {
        let begin = Some(Nanos(0));
        Writer {
            index,
            replica_count,
            write_count,
            number: 1,
            acknowledged_by: Vec::new(),
            retry_at: begin,
            planted,
        }
    }

    fn tell_all(&mut self, now: Nanos, effects: &mut Effects<Completed>) {
        let message = Message { writer: self.index as u16, replica: None, number: self.number };
        for replica in 0..self.replica_count {
            effects.send(writer_address(self.index), replica_address(replica), |out| message.encode(out));
        }
        self.retry_at = (self.planted != Some(Fault::NeverRepeat)).then(|| now.plus(RETRY_AFTER));
    }
}

impl Machine for Writer {
    type Own = Completed;

    fn on_message(
        &mut self,
        now: Nanos,
        _from: SocketAddr,
        _to: SocketAddr,
        bytes: &[u8],
        effects: &mut Effects<Completed>,
    ) {
        let message = Message::decode(bytes, self.planted == Some(Fault::BelieveDamage));
        let Some(Message { replica: Some(replica), number, .. }) = message else { return };
        let counts = !self.acknowledged_by.contains(&replica) || self.planted == Some(Fault::CountTwice);
        if number != self.number || !counts {
            return;
        }
        self.acknowledged_by.push(replica);
        if 2 * self.acknowledged_by.len() <= self.replica_count {
            return;
        }
        effects.own(Completed(number));
        self.acknowledged_by.clear();
        self.number += 1;
        self.retry_at = None;
        if self.number <= self.write_count {
            self.tell_all(now, effects);
        }
    }

    fn on_persisted(&mut self, _now: Nanos, _token: Token, _effects: &mut Effects<Completed>) {}

    fn on_timer(&mut self, now: Nanos, effects: &mut Effects<Completed>) {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.tell_all(now, effects);
        }
    }

    fn next_timer(&self) -> Option<Nanos> {
        self.retry_at
    }
}

pub struct Replica {
    index: usize,
    /// The highest number it was told of each writer, and the highest that its disk holds.
    told: Vec<u64>,
    durable: Vec<u64>,
    /// What the disk has not completed, in its order.
    writing: VecDeque<Message>,
    planted: Option<Fault>,
}

/// A record is written over the one before the last: one that is torn takes no other with it that counts.
pub fn token_of(writer: u16, number: u64) -> Token {
    Token(2 * u64::from(writer) + number % 2)
}

pub fn writer_of(token: Token) -> usize {
    (token.0 / 2) as usize
}

impl Replica {
    /// A replica with what its disk has kept.
    pub fn new(
        index: usize,
        writer_count: usize,
        records: &[(Token, Vec<u8>)],
        planted: Option<Fault>,
    ) -> Replica {
        let mut durable = vec![0; writer_count];
        for (token, record) in records {
            let held = &mut durable[writer_of(*token)];
            *held = number_of(record).max(*held);
        }
        Replica { index, told: durable.clone(), durable, writing: VecDeque::new(), planted }
    }

    fn acknowledge(&self, writer: u16, number: u64, effects: &mut Effects<Completed>) {
        let message = Message { writer, replica: Some(self.index as u16), number };
        let to = writer_address(usize::from(writer));
        effects.send(replica_address(self.index), to, |out| message.encode(out));
    }
}

pub fn number_of(record: &[u8]) -> u64 {
    u64::from_le_bytes(record.try_into().expect("records are numbers"))
}

impl Machine for Replica {
    type Own = Completed;

    fn on_message(
        &mut self,
        _now: Nanos,
        _from: SocketAddr,
        _to: SocketAddr,
        bytes: &[u8],
        effects: &mut Effects<Completed>,
    ) {
        let message = Message::decode(bytes, self.planted == Some(Fault::BelieveDamage));
        let Some(message @ Message { replica: None, writer, number }) = message else { return };
        let Some(told) = self.told.get_mut(usize::from(writer)) else { return };
        if number > *told || (self.planted == Some(Fault::TakeOlder) && number < *told) {
            *told = number;
            self.writing.push_back(message);
            effects.persist(token_of(writer, number), |out| out.extend(number.to_le_bytes()));
            if self.planted != Some(Fault::AcknowledgeBeforeDurable) {
                return;
            }
        } else if number > self.durable[usize::from(writer)] {
            return;
        }
        self.acknowledge(writer, number, effects);
    }

    fn on_persisted(&mut self, _now: Nanos, _token: Token, effects: &mut Effects<Completed>) {
        let Message { writer, number, .. } = self.writing.pop_front().expect("it was asked for");
        let durable = &mut self.durable[usize::from(writer)];
        *durable = number.max(*durable);
        self.acknowledge(writer, number, effects);
    }

    fn on_timer(&mut self, _now: Nanos, _effects: &mut Effects<Completed>) {}

    fn next_timer(&self) -> Option<Nanos> {
        None
    }
}
