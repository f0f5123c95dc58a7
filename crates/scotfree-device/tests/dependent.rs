//! What a function says in a packet's context: what it has made durable, for those behind it, and what an answer
//! depends on.
//!
//! The function that is tried keeps the last update of a session under its own token and answers reads with it: an
//! answer that shows what is not durable here yet waits until it is.

use scotfree_core::{BootEpoch, DeviceId, Durability, Effect, Machine, Nanos, ServerIndex, Token};
use scotfree_device::{
    Base, DeviceConfig, DeviceEffects, DeviceOwn, Function, Passing, Pipeline, Place, Verdict, Way,
};
use scotfree_session::by_hand::{
    accept, address, client_address, cluster, device_address, header, packet, session_keys, update, NOW,
};
use scotfree_wire::{Direction, Family, Kind, LeaseTail, Packet, Stamp, Tail};
use std::any::Any;

const SERVER: u8 = 2;

/// Keeps the last update, and answers reads with it.
#[derive(Debug, Default)]
struct Keeper {
    token: Option<Token>,
    kept: Vec<u8>,
    is_writing: bool,
}

impl Function for Keeper {
    fn name(&self) -> &'static str {
        "keeper"
    }

    fn family(&self) -> Family {
        Family::Trial
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn begin(&mut self, _base: &mut Base, token_first: u64) {
        self.token = Some(Token(token_first));
    }

    fn tokens_max(&self, _base: &Base) -> u64 {
        1
    }

    fn on_packet(
        &mut self,
        _now: Nanos,
        _base: &mut Base,
        passing: &mut Passing<'_>,
        effects: &mut DeviceEffects,
    ) -> Verdict {
        let (Way::ToServer(_), Place::Next, Some(token)) = (passing.way, passing.place, self.token) else {
            return Verdict::Next;
        };
        if passing.kind() == Kind::Update {
            self.kept = passing.payload.to_vec();
            self.is_writing = true;
            effects.persist(token, |out| out.extend_from_slice(&self.kept));
            passing.granted = Durability::Ram;
            return Verdict::Next;
        }
        if !passing.answerable {
            return Verdict::Next;
        }
        passing.depends = self.is_writing.then_some(token);
        Verdict::Answer(effects.append(|out| out.extend_from_slice(&self.kept)))
    }

    fn on_persisted(&mut self, _now: Nanos, _base: &mut Base, _token: Token, _effects: &mut DeviceEffects) {
        self.is_writing = false;
    }
}

/// Notes what stands in the context of what it sees.
#[derive(Debug, Default)]
struct Witness {
    granted: Vec<Durability>,
}

impl Function for Witness {
    fn name(&self) -> &'static str {
        "witness"
    }

    fn family(&self) -> Family {
        Family::Session
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn on_packet(
        &mut self,
        _now: Nanos,
        _base: &mut Base,
        passing: &mut Passing<'_>,
        _effects: &mut DeviceEffects,
    ) -> Verdict {
        if passing.kind() == Kind::Update {
            self.granted.push(passing.granted);
        }
        Verdict::Next
    }
}

struct Bench {
    device: Pipeline,
    effects: DeviceEffects,
}

impl Bench {
    fn new(functions: Vec<Box<dyn Function>>) -> Bench {
        let config =
            DeviceConfig::new(DeviceId(1), BootEpoch(1), device_address(), address(SERVER), cluster());
        let device = Pipeline::new(config, functions).expect("the list is in order");
        let mut bench = Bench { device, effects: DeviceEffects::new() };
        let duration = Nanos::from_secs(100);
        let lease = LeaseTail { asked_at: NOW, duration, device: DeviceId(1), boot_epoch: BootEpoch(1) };
        let key = cluster().control(Direction::ServerToDevice);
        let lease = packet(&header(Kind::Lease, 0, 0), &Tail::Lease(lease), &[], &key);
        bench.receive_from(SERVER, device_address(), &lease);
        bench.receive_from(SERVER, client_address(), &accept(1, 16));
        assert!(bench.device.has_lease(ServerIndex(0), NOW));
        bench
    }

    fn receive_from(&mut self, host: u8, to: std::net::SocketAddr, bytes: &[u8]) -> Vec<(Kind, Vec<u8>)> {
        self.device.on_message(NOW, address(host), to, bytes, &mut self.effects);
        self.leaving()
    }

    /// The kinds and payloads of what leaves; what is to be kept is not done yet.
    fn leaving(&mut self) -> Vec<(Kind, Vec<u8>)> {
        let effects = std::mem::take(&mut self.effects);
        let bytes = effects.iter().filter_map(|effect| match effect {
            Effect::Send { bytes, .. } | Effect::Own(DeviceOwn::Forward { bytes }) => Some(*bytes),
            _ => None,
        });
        let packets = bytes.map(|range| {
            let packet = Packet::parse(effects.bytes(range)).expect("ours");
            (packet.kind(), packet.payload().to_vec())
        });
        packets.collect()
    }

    fn update(&mut self, seq: u64, payload: &[u8]) -> Vec<(Kind, Vec<u8>)> {
        self.receive_from(1, address(SERVER), &update(1, seq, payload)[0])
    }

    fn read(&mut self, seq: u64) -> Vec<(Kind, Vec<u8>)> {
        let key = session_keys(1).client_to_server;
        let read = packet(&header(Kind::Read, 1, seq), &Tail::Stamp(Stamp::default()), &[], &key);
        self.receive_from(1, address(SERVER), &read)
    }

    fn token(&self) -> Token {
        self.device.function::<Keeper>().and_then(|keeper| keeper.token).expect("it has begun")
    }
}

fn keeper() -> Box<dyn Function> {
    Box::new(Keeper::default())
}

fn answer(payload: &[u8]) -> Vec<(Kind, Vec<u8>)> {
    vec![(Kind::Response, payload.to_vec())]
}

#[test]
fn an_answer_waits_until_what_it_depends_on_is_durable() {
    let mut bench = Bench::new(vec![keeper()]);
    assert_eq!(bench.update(1, b"new"), [(Kind::Update, b"new".to_vec())]);
    // Neither the first question nor the next is answered, and neither goes on to the server.
    assert_eq!((bench.read(2), bench.read(2)), (vec![], vec![]));
    assert_eq!(bench.device.counters().answered, 1);
    let token = bench.token();
    bench.device.on_persisted(NOW, token, &mut bench.effects);
    assert_eq!(bench.leaving(), answer(b"new"));
    assert_eq!(bench.read(2), answer(b"new"), "it is kept until its client has it for certain");
    assert_eq!(bench.read(3), answer(b"new"), "nothing is to be waited for any more");
}

#[test]
fn every_answer_that_waits_leaves_and_another_token_releases_none() {
    let mut bench = Bench::new(vec![keeper()]);
    bench.update(1, b"new");
    assert_eq!((bench.read(2), bench.read(3)), (vec![], vec![]));
    let token = bench.token();
    bench.device.on_persisted(NOW, Token(token.0 + 1), &mut bench.effects);
    assert_eq!(bench.leaving(), []);
    bench.device.on_persisted(NOW, token, &mut bench.effects);
    assert_eq!(bench.leaving(), [answer(b"new"), answer(b"new")].concat());
}

#[test]
fn where_what_it_depends_on_has_no_room_the_server_is_asked_again() {
    let mut bench = Bench::new(vec![keeper()]);
    bench.update(1, b"new");
    assert_eq!(bench.read(2), []);
    let token = bench.token();
    bench.device.on_refused(token);
    assert_eq!(bench.read(2), [(Kind::Read, vec![])], "it goes on to the server");
    bench.device.on_persisted(NOW, token, &mut bench.effects);
    assert_eq!(bench.leaving(), []);
}

#[test]
fn what_one_function_has_made_durable_those_behind_it_see() {
    let mut bench = Bench::new(vec![keeper(), Box::new(Witness::default())]);
    bench.update(1, b"new");
    let seen = |bench: &Bench| bench.device.function::<Witness>().expect("it is there").granted.clone();
    assert_eq!(seen(&bench), [Durability::Ram]);
    let mut bench = Bench::new(vec![Box::new(Witness::default()), keeper()]);
    bench.update(1, b"new");
    assert_eq!(seen(&bench), [Durability::None], "it has not come there yet");
}
