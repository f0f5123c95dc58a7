//! A server with several clients over rings, step by step in random order: every request is taken once, whole, in the
//! order of its client, and answered once; and each rule is one whose absence is found.
#![allow(clippy::unwrap_used)]
#![cfg(not(loom))]

use remedy_ring::{
    AtomicU32, AtomicU64, Burst, Fault, HeapMemory, Memory, Notify, Refused, RingClient, RingServer, Room,
    Shape,
};
use std::collections::{BTreeMap, VecDeque};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::Ordering;

const ROUNDS: u64 = 300;
const STEPS: u32 = 600;
const SUMMARY: (Notify, Room) = (Notify::Summary, Room::ByAnswers);
const POINTERS: (Notify, Room) = (Notify::Pointers, Room::ByAnswers);

/// xorshift64*: the same seed is the same run.
struct Chance(u64);

impl Chance {
    fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }
}

struct Asker {
    client: RingClient,
    asked: u64,
    /// Answers that it waits for, by index.
    waits: BTreeMap<u32, u64>,
    sleeps: bool,
    /// Woken, and has not looked yet.
    is_woken: bool,
}

struct World {
    memory: HeapMemory,
    shape: Shape,
    server: RingServer,
    askers: Vec<Asker>,
    /// Taken and not answered: ring, index, which of its client's.
    held: VecDeque<(usize, u32, u64)>,
    taken: Vec<u64>,
    server_sleeps: bool,
    server_is_woken: bool,
    is_asking: bool,
    chance: Chance,
}

/// The content of a client's nth request: of a length that the number gives.
fn content(shape: Shape, ring: usize, nth: u64, is_answer: bool) -> Vec<u8> {
    let length = (nth as usize).wrapping_mul(37) % (shape.message_bytes_max() + 1);
    let mut bytes = vec![(nth as u8).wrapping_add(ring as u8); length.max(17)];
    bytes[..8].copy_from_slice(&nth.to_le_bytes());
    bytes[8..16].copy_from_slice(&(ring as u64).to_le_bytes());
    bytes[16] = u8::from(is_answer);
    bytes.truncate(shape.message_bytes_max());
    bytes
}

impl World {
    fn new(seed: u64, planted: Option<Fault>) -> World {
        let mut chance = Chance::new(seed);
        let shape = Shape::new(4 << chance.below(3), 64).unwrap();
        let rings = 1 + chance.below(70);
        let notify = [Notify::Pointers, Notify::Marks, Notify::Summary][chance.below(3)];
        let memory = HeapMemory::new(rings, shape);
        let mut server = RingServer::new(rings, shape, (notify, Room::ByAnswers), 1 + chance.below(3));
        if let Some(fault) = planted {
            server.plant(fault);
        }
        let askers = (0..rings.min(3)).map(|nth| {
            let ring = nth * (rings - 1) / 2;
            let mut client = RingClient::new(ring, shape, (notify, Room::ByAnswers));
            if let Some(fault) = planted {
                client.plant(fault);
            }
            Asker { client, asked: 0, waits: BTreeMap::new(), sleeps: false, is_woken: false }
        });
        let askers: Vec<Asker> = askers.collect();
        let world = World {
            memory,
            shape,
            server,
            taken: vec![0; askers.len()],
            askers,
            held: VecDeque::new(),
            server_sleeps: false,
            server_is_woken: false,
            is_asking: true,
            chance,
        };
        world.opened(rings)
    }

    fn opened(mut self, rings: usize) -> World {
        let mut rings: Vec<usize> = (0..self.askers.len()).map(|nth| nth * (rings - 1) / 2).collect();
        rings.dedup();
        for ring in &rings {
            self.server.open(&self.memory, *ring);
        }
        self.askers.truncate(rings.len());
        self
    }

    fn ring_of(&self, asker: usize) -> usize {
        let rings = self.memory.pointers().len();
        asker * (rings - 1) / 2
    }

    fn step(&mut self) {
        let nth = self.chance.below(self.askers.len());
        match self.chance.below(8) {
            0..=2 => self.ask(nth),
            3 | 4 => self.serve(),
            5 => self.answer(),
            _ => self.take(nth),
        }
    }

    fn ask(&mut self, nth: usize) {
        let ring = self.ring_of(nth);
        let asker = &mut self.askers[nth];
        if asker.sleeps && !asker.is_woken {
            return;
        }
        for _ in 0..=self.chance.below(3) {
            let number = asker.asked + 1;
            let request = content(self.shape, ring, number, false);
            match asker.client.ask(&self.memory, &request) {
                Ok(index) => {
                    asker.asked = number;
                    assert_eq!(asker.waits.insert(index, number), None, "an index that waits already");
                }
                Err(refused) => assert_eq!(refused, Refused::Full),
            }
        }
        self.server_is_woken |= asker.client.tell(&self.memory);
    }

    fn serve(&mut self) {
        if self.server_sleeps && !self.server_is_woken {
            return;
        }
        self.server.awake(&self.memory);
        (self.server_sleeps, self.server_is_woken) = (false, false);
        self.server.look(&self.memory);
        let mut burst = Burst::new();
        self.server.take(&self.memory, 1 + self.chance.below(8), &mut burst);
        assert_eq!(burst.broken(), []);
        for (request, bytes) in burst.iter() {
            let asker = (0..self.askers.len()).find(|nth| self.ring_of(*nth) == request.ring).unwrap();
            self.taken[asker] += 1;
            let number = self.taken[asker];
            assert_eq!(bytes, content(self.shape, request.ring, number, false), "request {number}");
            self.held.push_back((request.ring, request.index, number));
        }
        if !burst.is_empty() {
            return;
        }
        // Somebody writes between its last look and its word that it sleeps.
        if self.is_asking && self.chance.below(2) == 0 {
            self.ask(0);
        }
        self.server_sleeps = self.server.may_sleep(&self.memory);
    }

    fn answer(&mut self) {
        // In any order.
        for _ in 0..self.chance.below(4) {
            if self.held.is_empty() {
                return;
            }
            let (ring, index, number) =
                self.held.swap_remove_back(self.chance.below(self.held.len())).unwrap();
            let answer = content(self.shape, ring, number, true);
            match self.server.answer(&self.memory, ring, index, &answer) {
                Ok(wakes) => {
                    let nth = (0..self.askers.len()).find(|nth| self.ring_of(*nth) == ring).unwrap();
                    self.askers[nth].is_woken |= wakes;
                }
                Err(refused) => {
                    assert_eq!(refused, Refused::Full);
                    self.held.push_back((ring, index, number));
                }
            }
        }
    }

    fn take(&mut self, nth: usize) {
        let ring = self.ring_of(nth);
        let asker = &mut self.askers[nth];
        if asker.sleeps && !asker.is_woken {
            return;
        }
        asker.client.doorbell(&self.memory).awake();
        (asker.sleeps, asker.is_woken) = (false, false);
        let mut bytes = Vec::new();
        while let Some(response) = asker.client.take(&self.memory, &mut bytes).unwrap() {
            let number = asker.waits.remove(&response.index).expect("it waits");
            assert_eq!(bytes, content(self.shape, ring, number, true), "answer {number}");
            bytes.clear();
        }
        if asker.client.credit().taken() > 0 {
            let doorbell = asker.client.doorbell(&self.memory);
            doorbell.about_to_sleep();
            asker.sleeps = !asker.client.is_ready(&self.memory);
            if !asker.sleeps {
                doorbell.awake();
            }
        }
    }

    /// Everything comes to its end if nothing is asked any more: nobody sleeps over what waits.
    fn settle(&mut self) {
        self.is_asking = false;
        for _ in 0..4_000 {
            self.serve();
            self.answer();
            (0..self.askers.len()).for_each(|nth| self.take(nth));
        }
        for (nth, asker) in self.askers.iter().enumerate() {
            assert_eq!(self.taken[nth], asker.asked, "all requests are taken");
            assert!(asker.waits.is_empty(), "all are answered");
        }
    }
}

/// How many requests were asked.
fn run(seed: u64, planted: Option<Fault>) -> u64 {
    let mut world = World::new(seed, planted);
    (0..STEPS).for_each(|_| world.step());
    world.settle();
    world.askers.iter().map(|asker| asker.asked).sum()
}

/// Whether any of the seeds fails.
fn is_found(fault: Fault) -> bool {
    (0..ROUNDS).any(|seed| catch_unwind(AssertUnwindSafe(|| run(seed, Some(fault)))).is_err())
}

#[test]
fn every_request_is_taken_once_in_order_and_answered_once() {
    let asked: u64 = (0..ROUNDS).map(|seed| run(seed, None)).sum();
    assert!(asked > 50 * ROUNDS, "{asked} requests say little");
}

#[test]
fn rules_that_are_switched_off_are_missed() {
    for fault in [Fault::ForgetLap, Fault::OneTooMany, Fault::CountAnswers, Fault::SleepAtOnce] {
        assert!(is_found(fault), "{fault:?}");
    }
}

// ---- a ring that has much, and others (B6)

/// How many of a busy ring's requests are taken before one of another.
fn taken_before_another(planted: Option<Fault>) -> usize {
    let shape = Shape::new(256, 64).unwrap();
    let memory = HeapMemory::new(2, shape);
    let mut server = RingServer::new(2, shape, SUMMARY, 32);
    if let Some(fault) = planted {
        server.plant(fault);
    }
    let mut clients: Vec<RingClient> = (0..2).map(|ring| RingClient::new(ring, shape, SUMMARY)).collect();
    (0..2).for_each(|ring| server.open(&memory, ring));
    while clients[0].ask(&memory, b"much").is_ok() {}
    clients[1].ask(&memory, b"one").unwrap();
    assert!(clients.iter().all(|client| !client.tell(&memory)), "the server is awake");
    assert!(server.look(&memory));
    let mut burst = Burst::new();
    server.take(&memory, 1_000, &mut burst);
    let before = burst.iter().position(|(request, _)| request.ring == 1).unwrap();
    before
}

#[test]
fn a_ring_that_is_full_keeps_another_waiting_for_one_quota() {
    assert_eq!(taken_before_another(None), 32);
    assert_eq!(taken_before_another(Some(Fault::NoQuota)), 256);
}

// ---- a peer that writes what it should not (B4)

/// A client's ring with a request in it, whose words somebody changes then; what the server makes of it.
fn after(planted: Option<Fault>, change: impl Fn(&[AtomicU64], &[AtomicU32])) -> (usize, Vec<String>) {
    let shape = Shape::new(8, 64).unwrap();
    let memory = HeapMemory::new(2, shape);
    let mut server = RingServer::new(2, shape, POINTERS, 8);
    if let Some(fault) = planted {
        server.plant(fault);
    }
    (0..2).for_each(|ring| server.open(&memory, ring));
    let mut client = RingClient::new(0, shape, POINTERS);
    client.ask(&memory, &[7; 100]).unwrap();
    client.tell(&memory);
    change(memory.requests(0), memory.pointers());
    let mut other = RingClient::new(1, shape, POINTERS);
    other.ask(&memory, b"others are served on").unwrap();
    other.tell(&memory);
    let (mut burst, mut taken, mut broken) = (Burst::new(), 0, Vec::new());
    for _ in 0..10 {
        server.look(&memory);
        server.take(&memory, 8, &mut burst);
        taken += burst.len();
        broken.extend(burst.broken().iter().map(|(ring, why)| format!("{ring}: {why}")));
    }
    assert!(server.may_sleep(&memory), "nobody keeps the server awake");
    (taken, broken)
}

fn set(words: &[AtomicU64], entry: usize, value: u64) {
    words[entry * 8].store(value, Ordering::SeqCst);
}

#[test]
fn whatever_a_peer_writes_breaks_its_own_ring_at_most() {
    assert_eq!(after(None, |_, _| {}), (2, vec![]));
    let too_long = after(None, |words, _| set(words, 0, 1 | 1_000 << 32));
    let why = "0: an entry says that its message has 1000 bytes; this ring carries up to 192";
    assert_eq!(too_long, (1, vec![why.to_owned()]));
    let torn = after(None, |words, _| set(words, 2, 0));
    assert_eq!(torn, (1, vec!["0: a message of 100 bytes ends before its last entry".to_owned()]));
    let longest = after(None, |words, _| set(words, 0, 1 | u64::from(u32::MAX) << 32));
    assert!(longest.1[0].contains("4294967295 bytes"));
    // A lap of the future, and one that was never begun, are no message.
    assert_eq!(after(None, |words, _| set(words, 0, 9 | 100 << 32)), (1, vec![]));
    assert_eq!(after(None, |words, _| set(words, 0, 0)), (1, vec![]));
    for tail in [0, 1, 100, 1 << 31, u32::MAX] {
        let (taken, broken) = after(None, |_, pointers| pointers[0].store(tail, Ordering::SeqCst));
        assert_eq!((taken, broken), (if tail == 0 { 1 } else { 2 }, vec![]), "a pointer is a hint");
    }
    let trusted = catch_unwind(|| after(Some(Fault::TrustLength), |words, _| set(words, 0, 1 | 1_000 << 32)));
    assert!(!matches!(trusted, Ok((1, broken)) if broken == [why]));
}

#[test]
fn a_client_takes_no_answer_that_it_does_not_wait_for_nor_room_that_it_was_not_given() {
    let shape = Shape::new(8, 64).unwrap();
    let memory = HeapMemory::new(1, shape);
    let mut server = RingServer::new(1, shape, SUMMARY, 8);
    server.open(&memory, 0);
    let mut client = RingClient::new(0, shape, SUMMARY);
    let index = client.ask(&memory, b"one").unwrap();
    server.answer(&memory, 0, index, b"once").unwrap();
    server.answer(&memory, 0, index, b"twice").unwrap();
    let mut bytes = Vec::new();
    assert_eq!(client.take(&memory, &mut bytes).unwrap().unwrap().index, index);
    let foreign = client.take(&memory, &mut bytes).unwrap_err();
    assert!(foreign.to_string().ends_with("an answer to request 0, which waits for none"), "{foreign}");
    // A client that says it has read what was never written gives the server no room.
    while server.answer(&memory, 0, 0, b"").is_ok() {}
    memory.responses_read(0).store(1_000, Ordering::SeqCst);
    assert_eq!(server.answer(&memory, 0, 0, b""), Err(Refused::Full));
}

#[test]
fn a_message_longer_than_half_the_ring_is_refused_with_what_would_fit() {
    let shape = Shape::new(8, 64).unwrap();
    let memory = HeapMemory::new(1, shape);
    let mut client = RingClient::new(0, shape, SUMMARY);
    assert!(client.ask(&memory, &[0; 192]).is_ok());
    let refused = client.ask(&memory, &[0; 193]).unwrap_err();
    assert_eq!(refused, Refused::TooLong { bytes: 193, bytes_max: 192 });
    assert!(refused.to_string().contains("takes up to 192"));
}

#[test]
fn messages_without_answers_have_room_when_the_server_has_read_them() {
    let shape = Shape::new(8, 64).unwrap();
    let memory = HeapMemory::new(1, shape);
    let how = (Notify::Pointers, Room::ByHead);
    let mut server = RingServer::new(1, shape, how, 8);
    server.open(&memory, 0);
    let mut client = RingClient::new(0, shape, how);
    let (mut burst, mut taken) = (Burst::new(), 0_u8);
    for nth in 0..100_u8 {
        while client.ask(&memory, &[nth; 60]) == Err(Refused::Full) {
            client.tell(&memory);
            assert!(server.look(&memory));
            server.take(&memory, 3, &mut burst);
            for (_, bytes) in burst.iter() {
                assert_eq!(bytes, [taken; 60]);
                taken += 1;
            }
        }
    }
    assert!(taken >= 90);
    memory.requests_read(0).store(7_000, Ordering::SeqCst);
    while client.ask(&memory, b"").is_ok() {}
    assert_eq!(client.room(), 0, "nor does a server give room that it has not");
}

#[test]
fn a_ring_serves_its_next_client_from_the_beginning() {
    let shape = Shape::new(4, 64).unwrap();
    let memory = HeapMemory::new(1, shape);
    let mut server = RingServer::new(1, shape, POINTERS, 8);
    let mut burst = Burst::new();
    for life in 0..5 {
        assert_eq!((server.closed(), server.open_count()), (Some(0), 0));
        server.open(&memory, 0);
        let mut client = RingClient::new(0, shape, POINTERS);
        for nth in 0..life {
            client.ask(&memory, &[nth]).unwrap();
        }
        client.tell(&memory);
        server.look(&memory);
        server.take(&memory, 8, &mut burst);
        assert_eq!(burst.len(), usize::from(life));
        server.close(0);
    }
}

#[test]
fn threads_see_whole_messages_in_order_over_many_laps() {
    let shape = Shape::new(8, 64).unwrap();
    let memory = HeapMemory::new(1, shape);
    let mut server = RingServer::new(1, shape, POINTERS, 8);
    server.open(&memory, 0);
    let count = if cfg!(miri) { 200 } else { 200_000_u64 };
    std::thread::scope(|scope| {
        let memory = &memory;
        scope.spawn(move || {
            let (mut burst, mut taken) = (Burst::new(), 0);
            while taken < count {
                if !server.look(memory) {
                    std::thread::yield_now();
                }
                server.take(memory, 8, &mut burst);
                for (request, bytes) in burst.iter() {
                    taken += 1;
                    assert_eq!(bytes, content(shape, 0, taken, false));
                    // The ring of responses is as long: it has room for what was asked.
                    while server.answer(memory, 0, request.index, &bytes[..17]).is_err() {}
                }
            }
        });
        let mut client = RingClient::new(0, shape, POINTERS);
        let (mut asked, mut answered, mut bytes) = (0, 0, Vec::new());
        while answered < count {
            while asked < count && client.ask(memory, &content(shape, 0, asked + 1, false)).is_ok() {
                asked += 1;
            }
            client.tell(memory);
            bytes.clear();
            match client.take(memory, &mut bytes).unwrap() {
                Some(_) => {
                    answered += 1;
                    assert_eq!(bytes, content(shape, 0, answered, false)[..17]);
                }
                None => std::thread::yield_now(),
            }
        }
    });
}
