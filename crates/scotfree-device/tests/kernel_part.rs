//! A function with programs in the kernel: to the device it is the function itself, and both are asked.

use scotfree_core::{
    BootEpoch, DeviceId, Durability, Epoch, KeyHash, Machine, Nanos, SeqNum, ServerIndex, Token,
};
use scotfree_device::{
    carry_out, Base, Before, Completion, Count, DeviceConfig, DeviceEffects, Function, KernelPart,
    LogEntryView, Origin, Passing, Pipeline, Region, RestoreError, Round, SessionChange, SessionName, Shell,
    Verdict, Word,
};
use scotfree_session::by_hand::{
    accept, address, client_address, cluster, device_address, header, packet, update, NOW,
};
use scotfree_wire::{Direction, Family, Kind, Packet, Stamp, Tail, WireError, HEADER_BYTES, MAGIC, VERSION};
use std::any::Any;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

const SERVER: u8 = 2;
const SPY_AT: Nanos = Nanos(700);

/// Who was asked what, in order.
#[derive(Debug, Clone, Default)]
struct Asked(Arc<Mutex<Vec<String>>>);

impl Asked {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().expect("nobody panics with it").push(what.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("nobody panics with it"))
    }
}

/// Notes what it is asked, and answers what no function answers by itself.
#[derive(Debug)]
struct Spy {
    family: Family,
    asked: Asked,
    fails: bool,
}

impl Function for Spy {
    fn name(&self) -> &'static str {
        "spy"
    }

    fn family(&self) -> Family {
        self.family
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn acknowledges(&self) -> bool {
        true
    }

    fn hears_servers(&self) -> bool {
        true
    }

    fn tokens_max(&self, _base: &Base) -> u64 {
        5
    }

    fn before(
        &mut self,
        _now: Nanos,
        _base: &mut Base,
        _what: &Before<'_>,
        _effects: &mut DeviceEffects,
    ) -> Result<(), String> {
        self.asked.note("before");
        if self.fails {
            Err("the function".to_owned())
        } else {
            Ok(())
        }
    }

    fn on_own_packet(
        &mut self,
        _now: Nanos,
        _base: &mut Base,
        _origin: Origin,
        message: &[u8],
        _effects: &mut DeviceEffects,
    ) -> Result<(), WireError> {
        self.asked.note(format!("own packet of {} bytes", message.len()));
        Err(WireError::InvalidField)
    }

    fn after(&mut self, _base: &mut Base) -> Result<(), String> {
        self.asked.note("after");
        if self.fails {
            Err("the function".to_owned())
        } else {
            Ok(())
        }
    }

    fn asks_order(&self, _base: &Base, passing: &Passing<'_>) -> bool {
        self.asked.note(format!("asks for {}", passing.seq().0));
        true
    }

    fn on_packet(
        &mut self,
        _now: Nanos,
        _base: &mut Base,
        passing: &mut Passing<'_>,
        _effects: &mut DeviceEffects,
    ) -> Verdict {
        self.asked.note(format!("{:?} {}", passing.kind(), passing.seq().0));
        Verdict::Next
    }

    fn on_control(
        &mut self,
        _now: Nanos,
        _base: &mut Base,
        _server: ServerIndex,
        packet: &Packet<'_>,
        _effects: &mut DeviceEffects,
    ) -> Result<bool, WireError> {
        self.asked.note(format!("control {:?}", packet.kind()));
        Ok(true)
    }

    fn on_session(
        &mut self,
        _now: Nanos,
        _base: &mut Base,
        region: Region,
        change: SessionChange,
        _effects: &mut DeviceEffects,
    ) {
        self.asked.note(format!("session {} {change:?}", region.0));
    }

    fn on_persisted(&mut self, _now: Nanos, _base: &mut Base, token: Token, _effects: &mut DeviceEffects) {
        self.asked.note(format!("persisted {}", token.0));
    }

    fn on_refused(&mut self, _base: &mut Base, token: Token) {
        self.asked.note(format!("refused {}", token.0));
    }

    fn set_media(&mut self, _base: &mut Base, media: Durability) {
        self.asked.note(format!("media {media:?}"));
    }

    fn on_timer(&mut self, _now: Nanos, _base: &mut Base, _effects: &mut DeviceEffects) {
        self.asked.note("timer");
    }

    fn next_timer(&self) -> Option<Nanos> {
        Some(SPY_AT)
    }

    fn restore(
        &mut self,
        _now: Nanos,
        _base: &mut Base,
        token: Token,
        record: &[u8],
    ) -> Result<(), RestoreError> {
        self.asked.note(format!("restore {} {record:?}", token.0));
        Err(RestoreError::Malformed)
    }

    fn check(&mut self, tell: &mut dyn FnMut(Word)) {
        tell(Word::Notice("of the function".to_owned()));
    }

    fn entries<'a>(&'a self, _base: &'a Base, out: &mut dyn FnMut(LogEntryView<'a>)) {
        for (seq, acknowledged, logged_at) in
            [(3, true, Nanos(40)), (1, false, Nanos(10)), (2, true, Nanos(30))]
        {
            out(LogEntryView {
                session: SessionName::default(),
                seq: SeqNum(seq),
                stamp: scotfree_session::by_hand::order(1, seq, 0),
                asked: Durability::Ram,
                key_hash: KeyHash(0),
                acknowledged,
                logged_at,
                payload: b"four",
            });
        }
    }

    fn counters(&self, out: &mut dyn FnMut(Count)) {
        out(Count { name: "seen", help: "What was seen.", labels: "", value: 30 });
    }
}

/// Its part in the kernel.
struct Part {
    asked: Asked,
    next_timer: Option<Nanos>,
    fails: bool,
}

impl KernelPart for Part {
    fn before(
        &mut self,
        _now: Nanos,
        _base: &mut Base,
        function: &mut dyn Function,
        _what: &Before<'_>,
        _effects: &mut DeviceEffects,
    ) -> Result<(), String> {
        self.asked.note(format!("before {}'s part", function.name()));
        if self.fails {
            Err("the part".to_owned())
        } else {
            Ok(())
        }
    }

    fn after(&mut self, _base: &mut Base, function: &mut dyn Function) -> Result<(), String> {
        self.asked.note(format!("after {}'s part", function.name()));
        if self.fails {
            Err("the part".to_owned())
        } else {
            Ok(())
        }
    }

    fn next_timer(&self) -> Option<Nanos> {
        self.next_timer
    }

    fn counted(&self, name: &str) -> u64 {
        if name == "seen" {
            12
        } else {
            0
        }
    }

    fn counters(&self, out: &mut dyn FnMut(Count)) {
        out(Count { name: "part", help: "What only the part counts.", labels: "", value: 7 });
    }

    fn check(&mut self, tell: &mut dyn FnMut(Word)) {
        tell(Word::Alarm("of the part".to_owned()));
    }
}

/// A shell that keeps nothing.
struct Nowhere(Pipeline);

impl Shell for Nowhere {
    fn pipeline(&mut self) -> &mut Pipeline {
        &mut self.0
    }

    fn send(&mut self, _from: SocketAddr, _to: SocketAddr, _bytes: &[u8]) {}

    fn forward(&mut self, _bytes: &[u8]) {}

    fn persist(&mut self, _token: Token, _record: &[u8]) -> Completion {
        Completion::Later
    }

    fn erase(&mut self, _token: Token) {}

    fn set_meta(&mut self, _boot_epoch: BootEpoch, _server: ServerIndex, _server_epoch: Epoch) {}

    fn flush_erasures(&mut self, _token: Token) -> Completion {
        Completion::Later
    }
}

struct Bench {
    shell: Nowhere,
    round: Round,
    asked: Asked,
}

impl Bench {
    fn bare(family: Family, fails: bool) -> Bench {
        let asked = Asked::default();
        let config =
            DeviceConfig::new(DeviceId(1), BootEpoch(1), device_address(), address(SERVER), cluster());
        let spy = Spy { family, asked: asked.clone(), fails };
        let device = Pipeline::new(config, vec![Box::new(spy)]).expect("the list is in order");
        Bench { shell: Nowhere(device), round: Round::default(), asked }
    }

    /// Before its function stand programs.
    fn in_kernel(mut self, next_timer: Option<Nanos>, fails: bool) -> Bench {
        let part = Part { asked: self.asked.clone(), next_timer, fails };
        self.shell.0.put_in_kernel::<()>("spy", |_, _| Ok(Box::new(part))).expect("it begins");
        self
    }

    fn receive(&mut self, host: u8, to: SocketAddr, bytes: &[u8]) {
        self.shell.0.on_message(NOW, address(host), to, bytes, &mut self.round.effects);
    }

    /// Everything that a function is told of.
    fn run(&mut self) -> Vec<String> {
        assert_eq!(self.shell.0.restore(NOW, Token(4), &[9]), Err(RestoreError::Malformed));
        let lease = scotfree_wire::LeaseTail {
            asked_at: NOW,
            duration: Nanos::from_secs(100),
            device: DeviceId(1),
            boot_epoch: BootEpoch(1),
        };
        let key = cluster().control(Direction::ServerToDevice);
        self.receive(
            SERVER,
            device_address(),
            &packet(&header(Kind::Lease, 0, 0), &Tail::Lease(lease), &[], &key),
        );
        self.receive(SERVER, client_address(), &accept(1, 16));
        self.receive(1, address(SERVER), &update(1, 1, b"new")[0]);
        let foreign = packet(&header(Kind::Update, 1, 2), &Tail::Stamp(Stamp::default()), &[], &key);
        self.receive(SERVER, device_address(), &foreign);
        let mut own = vec![0; HEADER_BYTES];
        own[..4].copy_from_slice(&MAGIC.to_le_bytes());
        (own[4], own[5]) = (VERSION, *Family::Trial.codes().start());
        self.receive(1, device_address(), &own);
        let device = &mut self.shell.0;
        device.on_persisted(NOW, Token(2), &mut self.round.effects);
        device.on_refused(Token(3));
        device.set_media(Durability::Ram);
        device.on_timer(NOW, &mut self.round.effects);
        carry_out(NOW, &mut self.round, &mut self.shell);
        self.asked.take()
    }
}

#[test]
fn the_function_is_told_everything_that_it_is_told_without_programs() {
    for family in [Family::Session, Family::Trial] {
        let mut bare = Bench::bare(family, false);
        let mut in_kernel = Bench::bare(family, false).in_kernel(None, false);
        let (expected, mut asked) = (bare.run(), in_kernel.run());
        asked.retain(|what| !what.ends_with("part"));
        assert_eq!(asked, expected);
        let is_refused = |bench: &Bench| bench.shell.0.counters().refused[WireError::InvalidField as usize];
        assert_eq!(is_refused(&in_kernel), is_refused(&bare));
        let of_family = match family {
            Family::Session => "control Update",
            _ => "own packet of 64 bytes",
        };
        let told = [
            "restore 4 [9]",
            "session 0 Opened",
            "asks for 1",
            "Update 1",
            of_family,
            "persisted 2",
            "refused 3",
            "media Ram",
            "timer",
            "after",
        ];
        for what in told {
            assert!(asked.iter().any(|asked| asked == what), "{what} in {asked:?}");
        }
    }
}

#[test]
fn the_device_sees_the_function_and_its_log_as_without_programs() {
    for bench in [Bench::bare(Family::Trial, false), Bench::bare(Family::Trial, false).in_kernel(None, false)]
    {
        let device = &bench.shell.0;
        let function = device.functions().next().expect("it is there");
        assert_eq!((function.name(), function.family()), ("spy", Family::Trial));
        assert!(function.acknowledges() && function.hears_servers());
        assert_eq!(function.tokens_max(device.base()), 5);
        assert!(device.function::<Spy>().is_some(), "it is found as what it is");
        let seqs: Vec<u64> = device.entries().iter().map(|entry| entry.seq.0).collect();
        assert_eq!((seqs, device.entry_count()), (vec![1, 2, 3], 3), "in the server's order");
        let unsafe_now = device.unsafe_now();
        assert_eq!((unsafe_now.entries, unsafe_now.bytes), (2, 8), "what is acknowledged, and nothing else");
        assert_eq!(unsafe_now.oldest_since, Some(Nanos(30)));
    }
    let mut bench = Bench::bare(Family::Trial, false).in_kernel(None, false);
    assert!(bench.shell.0.with_base::<Spy>().is_some());
    assert!(format!("{:?}", bench.shell.0).contains("InKernel"));
}

#[test]
fn the_programs_are_asked_after_the_function_before_and_after_each_decision() {
    let mut bench = Bench::bare(Family::Session, false).in_kernel(None, false);
    let asked = bench.run();
    for pair in [["before", "before spy's part"], ["after", "after spy's part"]] {
        let each: Vec<_> = asked.iter().filter(|what| pair.contains(&what.as_str())).collect();
        assert!(!each.is_empty());
        for asked in each.chunks(2) {
            assert_eq!(asked, pair);
        }
    }
}

#[test]
fn what_goes_wrong_in_either_is_told_and_the_programs_do_not_go_on_from_half_a_state() {
    let mut bench = Bench::bare(Family::Session, false).in_kernel(None, true);
    bench.shell.0.before(NOW, &Before::Look, &mut bench.round.effects);
    carry_out(NOW, &mut bench.round, &mut bench.shell);
    assert_eq!(bench.shell.0.take_troubles(), ["the part", "the part"]);
    assert!(bench.shell.0.take_troubles().is_empty(), "each is told once");
    let mut bench = Bench::bare(Family::Session, true).in_kernel(None, false);
    bench.shell.0.before(NOW, &Before::Look, &mut bench.round.effects);
    carry_out(NOW, &mut bench.round, &mut bench.shell);
    assert_eq!(bench.shell.0.take_troubles(), ["the function", "the function"]);
    assert_eq!(bench.asked.take(), ["before", "after"]);
}

#[test]
fn the_earlier_timer_both_counts_and_both_words_are_heard() {
    for (part, earliest) in [(None, SPY_AT), (Some(Nanos(600)), Nanos(600)), (Some(Nanos(800)), SPY_AT)] {
        let bench = Bench::bare(Family::Trial, false).in_kernel(part, false);
        assert_eq!(bench.shell.0.functions().next().expect("it is there").next_timer(), Some(earliest));
    }
    let mut bench = Bench::bare(Family::Trial, false).in_kernel(None, false);
    let mut counts = Vec::new();
    bench.shell.0.function_counters(&mut |function, count| counts.push((function, count.name, count.value)));
    assert_eq!(counts, [("spy", "seen", 42), ("spy", "part", 7)]);
    let mut words = Vec::new();
    bench.shell.0.check(&mut |word| words.push(word));
    let expected = [Word::Notice("of the function".to_owned()), Word::Alarm("of the part".to_owned())];
    assert_eq!(words, expected);
}
