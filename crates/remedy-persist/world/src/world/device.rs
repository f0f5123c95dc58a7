//! Devices with their domains and what of them survives.
//!
//! Invariant: a device acknowledges what its domains hold and erases what is stable; both are
//! checked when it does so.

use super::capture::Seen;
use super::Packet;
use super::{device_address, place_of, server_address, Alarm, Event, Incarnation, World};
use crate::media::{DeviceCrash, EntryName, Media};
use crate::model::{Invariant, Violation};
use crate::place::Place;
use crate::scenario::{Repair, Scenario};
use crate::trace::{Deed, Happening, Loss};
use remedy_persist::{Persist, PersistConfig};
use scotfree_core::{
    BootEpoch, DeviceId, Durability, Effects, Epoch, Machine, Nanos, SeqNum, ServerIndex, SessionId, Token,
};
use scotfree_device::{
    carry_out, Completion, DeviceConfig, DeviceEffects, Function, LogEntryView, Maker, Pipeline, Served,
    Settings, Shell,
};
use scotfree_session::Server;
use scotfree_sim::clock::Clock;
use scotfree_sim::rng::{PerMillion, Rng};
use scotfree_sim::{Protocol, Travel};
use scotfree_wire::{ClusterKey, Kind};
use std::net::SocketAddr;

/// What a device did when it got a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Did {
    /// It passed it on, or nothing.
    Forward,
    /// Something else too.
    More,
}

/// Whether a device is part of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Service {
    /// It is, even while it is down.
    In,
    /// It will not come back, and the operator does not know yet.
    Lost,
    /// The operator has excluded it, and packets pass its place.
    Bridged,
}

pub(super) struct DeviceNode {
    machine: Option<Pipeline>,
    incarnation: Incarnation,
    clock: Clock,
    alarm: Alarm,
    media: Media,
    /// What its shell keeps durably beside the log.
    boot_epoch: BootEpoch,
    server_epochs: Vec<Epoch>,
    head: bool,
    service: Service,
    /// The operator has said that it will not come back.
    excluded: bool,
    /// Until when each server has granted it to acknowledge, by the world's clock.
    leased_until: Vec<Nanos>,
    /// Whether a crash has ever cost it entries that it should have kept.
    pub(super) memory_lost: bool,
}

impl DeviceNode {
    pub(super) fn new(scenario: &Scenario, rng: &mut Rng) -> DeviceNode {
        DeviceNode {
            machine: None,
            incarnation: Incarnation::default(),
            clock: super::draw_clock(rng, scenario.drift_ppm_max),
            alarm: Alarm::NONE,
            media: Media::new(scenario.ram_survives_host),
            boot_epoch: BootEpoch(0),
            server_epochs: vec![Epoch(0); scenario.server_count],
            head: false,
            service: Service::In,
            excluded: false,
            leased_until: vec![Nanos(0); scenario.server_count],
            memory_lost: false,
        }
    }

    pub(super) fn put_back(&mut self) {
        self.service = Service::In;
        self.excluded = false;
    }

    pub(super) fn exclude(&mut self) {
        self.excluded = true;
    }

    pub(super) fn is_excluded(&self) -> bool {
        self.excluded
    }

    pub(super) fn is_alive(&self) -> bool {
        self.machine.is_some()
    }

    pub(super) fn is_lost(&self) -> bool {
        self.service != Service::In
    }

    pub(super) fn machine(&self) -> Option<&Pipeline> {
        self.machine.as_ref()
    }

    /// How many entries its log holds of servers that are not `lost`.
    pub(super) fn entry_count(&self, lost: impl Fn(usize) -> bool) -> usize {
        let living = |machine: &Pipeline| {
            let of_living = |entry: &LogEntryView<'_>| !lost(usize::from(entry.session.server.0));
            machine.entries().iter().filter(|entry| of_living(entry)).count()
        };
        self.machine.as_ref().map_or(0, living)
    }

    pub(super) fn media(&self) -> &Media {
        &self.media
    }

    pub(super) fn is_leased(&self, server: usize, now: Nanos) -> bool {
        now <= self.leased_until[server]
    }

    /// Its clock was set back: by it, its leases end later.
    pub(super) fn extend_leases(&mut self, span: Nanos) {
        self.leased_until.iter_mut().for_each(|until| *until = until.plus(span));
    }

    /// A server grants until `until`.
    pub(super) fn lease(&mut self, server: usize, until: Nanos) {
        self.leased_until[server] = self.leased_until[server].max(until);
    }

    pub(super) fn clock_mut(&mut self) -> &mut Clock {
        &mut self.clock
    }
}

pub(super) fn device_id(index: usize) -> DeviceId {
    DeviceId(index as u16 + 1)
}

pub(super) fn index_of(device: DeviceId) -> usize {
    usize::from(device.0).saturating_sub(1)
}

impl World {
    /// A device starts with what its domains hold.
    pub(super) fn start_device(&mut self, device: usize) {
        if self.devices[device].is_lost() || self.devices[device].is_alive() {
            return;
        }
        let head = self.head() == Some(device);
        let node = &mut self.devices[device];
        node.boot_epoch = BootEpoch(node.boot_epoch.0 + 1);
        node.head = head;
        let mut config = DeviceConfig::new(
            device_id(device),
            node.boot_epoch,
            device_address(device),
            server_address(0),
            self.keys.devices.key(),
        );
        config.servers = servers_behind(&self.scenario, &node.server_epochs);
        config.head = head;
        let mut persist = configure(&mut config, &self.scenario);
        (config.planted, persist.planted) = (self.planted(), self.planted());
        self.tap(device, || Seen::Start(Box::new((config.clone(), persist))));
        let mut machine = Pipeline::new(config, self.functions(persist))
            .expect("a scenario's functions stand in an order that can work");
        self.restore(device, &mut machine);
        let node = &mut self.devices[device];
        node.machine = Some(machine);
        node.incarnation = node.incarnation.next();
        self.answered.forget(device);
        self.rewind_device(device);
    }

    /// The functions of a device, persist with what the world knows of it.
    fn functions(&self, persist: PersistConfig) -> Vec<Box<dyn Function>> {
        let (media, reforward_after) = (persist.media, persist.reforward_after);
        let settings = Settings { media, reforward_after, planted: persist.planted, ..Settings::default() };
        let make = |maker: &Maker| -> Box<dyn Function> {
            if maker.name == remedy_persist::MAKER.name {
                Box::new(Persist::new(persist))
            } else {
                (maker.make)(&settings)
            }
        };
        self.scenario.functions.iter().map(make).collect()
    }

    /// A device that is down reads its file when it starts.
    pub(super) fn rekey_device(&mut self, device: usize, key: ClusterKey) {
        let now = self.devices[device].clock.read(self.engine.now);
        let mut effects = Effects::new();
        if let Some(machine) = self.devices[device].machine.as_mut() {
            machine.set_cluster_key(now, key, &mut effects);
        }
        assert!(effects.is_empty(), "a new key alone moves nothing");
    }

    fn restore(&mut self, device: usize, machine: &mut Pipeline) {
        let node = &self.devices[device];
        let now = node.clock.read(self.engine.now);
        let mut records = node.media.scan(&mut self.engine.chance.media);
        if self.engine.chance.media.chance(PerMillion::percent(10)) {
            self.check_nonsense_is_no_entry(now, machine);
        }
        for (token, record) in records.drain(..) {
            self.engine.report.records_restored += 1;
            if let Err(error) = machine.restore(now, token, &record) {
                let detail = format!("device {device} does not know its own record {}: {error}", token.0);
                self.must(Err(Violation::new(Invariant::Authentic, detail)));
            }
        }
    }

    /// Whatever a record is, restoring it does not panic, and nonsense becomes no log entry.
    fn check_nonsense_is_no_entry(&mut self, now: Nanos, machine: &mut Pipeline) {
        let nonsense: [u8; 40] = self.engine.chance.media.bytes();
        let _ = machine.restore(now, Token(0), &nonsense);
        if machine.entry_count() > 0 {
            self.must(Err(Violation::new(
                Invariant::Authentic,
                "a record of random bytes became a log entry",
            )));
        }
    }

    /// The first device that is not out of service.
    pub(super) fn head(&self) -> Option<usize> {
        self.devices.iter().position(|node| node.service != Service::Bridged)
    }

    pub(super) fn arrive_at_device(&mut self, device: usize, packet: Packet) {
        let here = Place::Device(device);
        let for_itself = packet.to == device_address(device);
        if self.devices[device].service == Service::Bridged && !for_itself {
            return self.pass_on(here, packet);
        }
        if !self.devices[device].is_alive() {
            return self.end(here, packet, Loss::Down);
        }
        self.note(here, Happening::Arrived { sight: packet.sight });
        let mut forwarded = Vec::new();
        self.tap(device, || Seen::Packet { from: packet.from, to: packet.to, bytes: packet.bytes.clone() });
        let past = self.is_of_past_epoch(device, &packet);
        let admitted = self.admitted(device);
        let did = self.with_device(device, &mut forwarded, |machine, now, effects| {
            machine.on_message(now, packet.from, packet.to, &packet.bytes, effects);
        });
        let took_place = self.admitted(device) > admitted;
        if past && did == Did::More {
            let detail = format!("device {device} obeys {}, of a past epoch", packet.sight);
            self.must(Err(Violation::new(Invariant::PastEpoch, detail)));
        }
        if forwarded.is_empty() {
            return self.end(here, packet, Loss::Absorbed);
        }
        if took_place {
            self.spy_on_admitted(device, packet.to, &forwarded[0]);
        }
        for bytes in forwarded {
            let sight = crate::trace::Sight::of(&bytes);
            self.spy_on_stamp(device, packet.to, &sight, &bytes);
            self.pass_on(here, Packet { bytes, sight, ..packet });
        }
        self.engine.packets.recycle(packet.bytes);
    }

    /// How many requests have taken their places at a device.
    fn admitted(&self, device: usize) -> u64 {
        self.devices[device].machine.as_ref().map_or(0, |machine| machine.counters().admitted)
    }

    pub(super) fn wake_device(&mut self, device: usize) {
        if self.devices[device].alarm.rings(self.engine.now) {
            self.act_on_device(device, Pipeline::on_timer);
        }
    }

    /// Lets a device do something that cannot forward anything.
    pub(super) fn act_on_device(
        &mut self,
        device: usize,
        act: impl FnOnce(&mut Pipeline, Nanos, &mut DeviceEffects),
    ) {
        let mut forwarded = Vec::new();
        self.with_device(device, &mut forwarded, act);
        assert!(forwarded.is_empty(), "only a message just received can be forwarded");
    }

    /// Lets a device do something and carries out what it wishes for; `ram` completes at once.
    fn with_device(
        &mut self,
        device: usize,
        forwarded: &mut Vec<Vec<u8>>,
        act: impl FnOnce(&mut Pipeline, Nanos, &mut DeviceEffects),
    ) -> Did {
        let mut round = std::mem::take(&mut self.buffers.device);
        let now = self.devices[device].clock.read(self.engine.now);
        let mut did = Did::Forward;
        if let Some(machine) = self.devices[device].machine.as_mut() {
            act(machine, now, &mut round.effects);
            let mut shell = Surroundings { world: self, device, forwarded, did, round: 0 };
            carry_out(now, &mut round, &mut shell);
            did = shell.did;
        }
        self.buffers.device = round;
        self.check_device(device);
        self.commit_if_wanted(device);
        self.rewind_device(device);
        did
    }

    /// Whether the server's past speaks: a message that commands, of an epoch before the one that
    /// polled this device last.
    fn is_of_past_epoch(&self, device: usize, packet: &Packet) -> bool {
        let commands = matches!(
            packet.sight.kind,
            Some(
                Kind::ServerAck
                    | Kind::Heartbeat
                    | Kind::RecoveryPoll
                    | Kind::Retransmit
                    | Kind::Drain
                    | Kind::Lease
            )
        );
        let Some(Place::Server(server)) = place_of(packet.from) else { return false };
        let machine = self.devices[device].machine.as_ref();
        let obeyed = machine.map_or(Epoch(0), |machine| machine.server_epoch(ServerIndex(server as u8)));
        commands && Epoch(packet.sight.epoch) < obeyed
    }

    fn note_logged(&mut self, device: usize, record: &[u8]) {
        let Some((server, session, seq)) = crate::media::entry_name(record) else { return };
        let Some(node) = self.servers.get_mut(usize::from(server)) else { return };
        node.model.logged(SessionId(session), SeqNum(seq));
        if !self.scenario.logged.holds(usize::from(server)) {
            let detail =
                format!("device {device} logs {session:x}:{seq}, whose server {server} is not to be logged");
            self.must(Err(Violation::new(Invariant::LoggedAsTold, detail)));
        }
    }

    /// A slot is written again only when what it held has been erased.
    fn check_slot_is_free(&mut self, device: usize, token: Token, record: &[u8]) {
        let held = self.devices[device].media.entry_under(token);
        if held.is_some() && held != crate::media::entry_name(record) {
            let detail = format!("device {device} writes over {held:?}, which it has not erased");
            self.must(Err(Violation::new(Invariant::FreedBeforeStable, detail)));
        }
    }

    fn erase(&mut self, device: usize, token: Token) {
        if let Some((server, session, seq)) = self.devices[device].media.entry_under(token) {
            self.note(Place::Device(device), Happening::Did(Deed::Erased { session, seq }));
            let node = &self.servers[usize::from(server)];
            let verdict = node.model.erased(SessionId(session), SeqNum(seq), &node.storage);
            self.must(verdict);
        }
        self.devices[device].media.erase(token);
    }

    fn commit_if_wanted(&mut self, device: usize) {
        let node = &mut self.devices[device];
        if node.media.wants_commit() {
            node.media.begin_commit();
            let time = self.scenario.disk.draw(&mut self.engine.chance.media);
            self.engine.after(time, Event::Committed(device, node.incarnation));
        }
    }

    pub(super) fn committed(&mut self, device: usize, incarnation: Incarnation) {
        let node = &mut self.devices[device];
        if node.incarnation != incarnation || !node.is_alive() {
            return;
        }
        for token in node.media.end_commit() {
            self.act_on_device(device, |machine, now, effects| machine.on_persisted(now, token, effects));
        }
        self.commit_if_wanted(device);
    }

    pub(super) fn rewind_device(&mut self, device: usize) {
        let node = &mut self.devices[device];
        if let Some(at) = node.machine.as_ref().and_then(Pipeline::next_timer) {
            let at = node.clock.when(at).max(self.engine.now);
            node.alarm.set(Place::Device(device), at, &mut self.engine.queue);
        }
    }

    // ---- the end of a device

    /// Takes a device out of the world, for now or for good; what its domains keep stays.
    pub(super) fn stop_device(&mut self, device: usize, kind: DeviceCrash) {
        self.retire_device(device);
        let node = &mut self.devices[device];
        node.media.crash(kind, &mut self.engine.chance.media);
        node.alarm = Alarm::NONE;
    }

    pub(super) fn lose_device(&mut self, device: usize, keeps_log: bool) {
        self.stop_device(device, DeviceCrash::Process);
        self.devices[device].service = Service::Lost;
        if !keeps_log {
            self.devices[device].media = Media::new(false);
        }
    }

    /// The operator tells everybody that a device will not come back.
    pub(super) fn exclude_device(&mut self, device: usize) {
        self.devices[device].service = Service::Bridged;
        self.devices[device].exclude();
        self.tell_all_of_exclusion(device);
        if let Some(head) = self.head() {
            if self.devices[head].is_alive() && !self.devices[head].head {
                self.devices[head].head = true;
                self.act_on_device(head, Pipeline::promote);
            }
        }
    }

    /// Whether a device is excluded and all servers serve without it: its leases have ended.
    pub(super) fn all_go_on_without_one(&self) -> bool {
        let goes_on_without = |device: usize| {
            let without = |machine: &Server| {
                machine.is_serving() && machine.devices().all(|(known, _)| known != device_id(device))
            };
            self.servers.iter().all(|node| node.machine().is_some_and(without))
        };
        (0..self.devices.len()).any(|device| self.devices[device].is_excluded() && goes_on_without(device))
    }

    /// The operator's word to all servers.
    pub(super) fn tell_all_of_exclusion(&mut self, device: usize) {
        (0..self.servers.len()).for_each(|server| self.tell_of_exclusion(server, device));
    }

    /// The operator's word to a server.
    pub(super) fn tell_of_exclusion(&mut self, server: usize, device: usize) {
        self.note(Place::Device(device), Happening::Note("is excluded", server as u64));
        self.with_server(server, |machine, now, effects| machine.exclude(now, device_id(device), effects));
    }

    /// Takes what a device that is no more has counted.
    pub(super) fn retire_device(&mut self, device: usize) {
        let Some(machine) = self.devices[device].machine.take() else { return };
        let counters = machine.counters();
        let persist = remedy_persist::counters(&machine);
        self.engine.report.logged += persist.logged;
        self.engine.report.replays += persist.replays;
        self.engine.report.reforwarded += persist.reforwarded;
        self.engine.report.answered += counters.answered;
        self.engine.report.passed_over += counters.passed_over;
        self.engine.report.past_epoch += counters.past_epoch;
        self.engine.report.without_lease += persist.without_lease;
        self.engine.report.packets_refused += counters.refused.iter().sum::<u64>();
    }

    /// Whether some device other than `except` has an entry, durably or in a process that lives.
    pub(super) fn is_held_elsewhere(&self, entry: EntryName, except: Option<usize>) -> bool {
        let holds = |node: &DeviceNode| {
            let durable =
                node.media.holds(entry, Durability::Ram) || node.media.holds(entry, Durability::Disk);
            durable || (node.is_alive() && node.media.is_writing(entry))
        };
        self.devices
            .iter()
            .enumerate()
            .any(|(index, node)| Some(index) != except && !node.is_lost() && holds(node))
    }
}

/// What surrounds a device while it acts.
struct Surroundings<'w> {
    world: &'w mut World,
    device: usize,
    forwarded: &'w mut Vec<Vec<u8>>,
    did: Did,
    round: u32,
}

impl Surroundings<'_> {
    fn did_more(&mut self) {
        if self.round == 0 {
            self.did = Did::More;
        }
    }
}

impl Shell for Surroundings<'_> {
    fn pipeline(&mut self) -> &mut Pipeline {
        self.world.devices[self.device].machine.as_mut().expect("what acts is alive")
    }

    fn send(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        self.did_more();
        self.world.send(Place::Device(self.device), from, to, bytes);
    }

    fn forward(&mut self, bytes: &[u8]) {
        let copy = self.world.engine.packets.copy(bytes);
        self.forwarded.push(copy);
    }

    fn persist(&mut self, token: Token, record: &[u8]) -> Completion {
        self.did_more();
        self.world.note_logged(self.device, record);
        self.world.check_slot_is_free(self.device, token, record);
        let done = self.world.devices[self.device].media.persist(token, record);
        if done {
            Completion::Done
        } else {
            Completion::Later
        }
    }

    fn erase(&mut self, token: Token) {
        self.did_more();
        self.world.erase(self.device, token);
    }

    fn set_meta(&mut self, boot_epoch: BootEpoch, server: ServerIndex, server_epoch: Epoch) {
        self.did_more();
        let node = &mut self.world.devices[self.device];
        let kept_epoch = &mut node.server_epochs[usize::from(server.0)];
        let forward = boot_epoch >= node.boot_epoch && server_epoch >= *kept_epoch;
        node.boot_epoch = boot_epoch;
        *kept_epoch = server_epoch;
        let place = Place::Device(self.device);
        self.world.note(place, Happening::Note("is in boot epoch", u64::from(boot_epoch.0)));
        if !forward {
            let detail = "an epoch of a device went backward";
            self.world.must(Err(Violation::new(Invariant::Bounded, detail)));
        }
    }

    fn flush_erasures(&mut self, token: Token) -> Completion {
        self.did_more();
        self.world.devices[self.device].media.flush(token);
        Completion::Later
    }

    fn collect(&mut self, _done: &mut Vec<Token>) {
        self.round += 1;
    }
}

/// The servers, with the epochs that the device's shell has kept.
fn servers_behind(scenario: &Scenario, epochs: &[Epoch]) -> Vec<Served> {
    let served = |(server, epoch): (usize, &Epoch)| Served {
        epoch: *epoch,
        logged: scenario.logged.holds(server),
        ..Served::new(server_address(server))
    };
    epochs.iter().enumerate().map(served).collect()
}

fn configure(config: &mut DeviceConfig, scenario: &Scenario) -> PersistConfig {
    config.window_max = scenario.device_window;
    config.sessions_max = scenario.device_sessions_max;
    config.lease_interval = Nanos::from_millis(8);
    config.idle_max = Nanos::from_millis(150);
    let repairs = scenario.repairs_by(Repair::DeviceReforwarding);
    let (after, wait_max) = (Nanos::from_millis(20), Nanos::from_millis(100));
    PersistConfig {
        media: scenario.asked,
        reforward_after: if repairs { after } else { Nanos::MAX },
        reforward_wait_max: if repairs { wait_max } else { Nanos::MAX },
        ..PersistConfig::default()
    }
}
