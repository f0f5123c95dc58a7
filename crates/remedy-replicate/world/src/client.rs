//! A client: one request after the other, each at one member and, without an answer, at another under the same
//! identity.
//!
//! Invariant: a request is in the history once, from its first sending to its first answer.

use crate::model::Op;
use crate::scenario::{Protocol, Scenario};
use scotfree_core::{Fnv1a, Nanos};
use scotfree_sim::rng::Rng;
use scotfree_state::request_of;
use scotfree_wire::Identity;

/// What clients and members say to each other: a request, or its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parcel {
    pub(crate) identity: Identity,
    /// 0 a request, 1 an answer, 2 declined.
    pub(crate) kind: u8,
    pub(crate) body: Vec<u8>,
}

const HEAD_BYTES: usize = 16 + 8 + 1;

impl Parcel {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.identity.client.to_vec();
        bytes.extend(self.identity.number.to_le_bytes());
        bytes.push(self.kind);
        bytes.extend(&self.body);
        bytes.extend(Fnv1a::EMPTY.and(&bytes).value().to_le_bytes());
        bytes
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Parcel> {
        let (said, sum) = bytes.split_at_checked(bytes.len().checked_sub(8)?)?;
        if sum != Fnv1a::EMPTY.and(said).value().to_le_bytes() || said.len() < HEAD_BYTES {
            return None;
        }
        let client = said[..16].try_into().ok()?;
        let number = u64::from_le_bytes(said[16..24].try_into().ok()?);
        Some(Parcel {
            identity: Identity { client, number },
            kind: said[24],
            body: said[HEAD_BYTES..].to_vec(),
        })
    }
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) identity: Identity,
    pub(crate) op: Option<Op>,
    pub(crate) called: Nanos,
    pub(crate) member: usize,
    pub(crate) left: u64,
    pub(crate) retry_at: Nanos,
}

impl Client {
    pub(crate) fn new(index: usize, request_count: u64) -> Client {
        Client {
            identity: Identity { client: [index as u8 + 1; 16], number: 0 },
            op: None,
            called: Nanos(0),
            member: 0,
            left: request_count,
            retry_at: Nanos(0),
        }
    }

    /// Begins the next request; false if there is none.
    pub(crate) fn begin(&mut self, now: Nanos, scenario: &Scenario, rng: &mut Rng) -> bool {
        if self.left == 0 {
            self.op = None;
            return false;
        }
        self.left -= 1;
        let count = request_of(&self.identity).1 + 1;
        let value = count << 8 | u64::from(self.identity.client[0]);
        self.op = Some(draw_op(scenario, value, rng));
        (self.called, self.member) = (now, rng.index(scenario.member_count));
        // Where a request is sent first is a part of its name.
        self.identity.number = (self.member as u64 + 1) << HOME_SHIFT | count;
        true
    }
}

/// The bits of an identity's number from here on name the member to which the request was sent first.
const HOME_SHIFT: u32 = 56;

fn draw_op(scenario: &Scenario, value: u64, rng: &mut Rng) -> Op {
    let key = |rng: &mut Rng| rng.below(scenario.key_count) as u8;
    let (one, two) = (key(rng), key(rng));
    let has_one_order = scenario.protocol != Protocol::Hermes;
    let is_several = has_one_order && scenario.key_count > 1 && one != two && rng.below(6) == 0;
    let writes = rng.below(100) < u64::from(scenario.write_percent);
    match (writes, is_several) {
        (true, true) => Op::SetBoth(one, two, value),
        (true, false) => match rng.below(8) {
            0 => Op::Del(one),
            1..=3 => Op::Incr(one),
            _ => Op::Set(one, value),
        },
        (false, true) => Op::GetBoth(one, two),
        (false, false) => Op::Get(one),
    }
}
