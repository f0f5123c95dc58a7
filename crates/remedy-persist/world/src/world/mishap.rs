//! What goes wrong.
//!
//! Invariant: a mishap that would break more than was promised to hold either weakens what the
//! checker asks for, or does not happen; which of the two, and how often, is counted.

use super::{Event, World};
use crate::media::{DeviceCrash, EntryName};
use crate::model::Promise;
use crate::place::Place;
use crate::scenario::Trouble;
use crate::trace::Happening;
use scotfree_core::{Durability, Nanos};

impl World {
    pub(super) fn go_wrong(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::CrashServer { server, down } => self.crash_server(server, down),
            Trouble::LoseServer { server } => self.lose_server(server),
            Trouble::CrashDevice { device, kind, down } => self.crash_device(device, kind, down),
            Trouble::LoseDevice { device, noticed, back } => self.lose(device, noticed, back),
            Trouble::ExcludeDevice { device, stays } => self.exclude_living(device, stays),
            Trouble::CrashClient { client, down } => self.crash_client(client, down),
            Trouble::Cut { from, to, span } => self.engine.cut(from, to, span),
            Trouble::JumpClock { place, jump_ns } => self.jump_clock(place, jump_ns),
            Trouble::Forge { client } => self.forge(client),
            Trouble::FailSession { client } => self.fail_session(client),
            Trouble::RotateKey { step } => self.rotate_key(step),
        }
    }

    pub(super) fn crash_server(&mut self, server: usize, down: Nanos) {
        if self.servers[server].machine().is_none() {
            return;
        }
        self.take_server_down(server);
        self.engine.comes_back(down, Place::Server(server));
    }

    fn take_server_down(&mut self, server: usize) {
        if self.servers[server].machine().is_none() {
            return;
        }
        self.engine.report.server_crashes += 1;
        self.spare_what_no_log_holds(server);
        let taken_back = self.engine.report.taken_back;
        self.stop_server(server);
        if self.devices.is_empty() && self.engine.report.taken_back > taken_back {
            // Alone, a server that answers before it is stable promises nothing across a crash.
            self.weaken(server, Promise::Alone);
        }
    }

    /// A server goes with its storage. Its clients ask in vain, devices keep what they hold for it, and all that is
    /// the others' goes on as if nothing had happened. The last one stays.
    fn lose_server(&mut self, server: usize) {
        let living = self.servers.iter().filter(|node| !node.is_lost()).count();
        if self.servers[server].machine().is_none() || living < 2 {
            return;
        }
        self.take_server_down(server);
        self.engine.report.servers_lost += 1;
        self.note(Place::Server(server), Happening::Note("is lost", 0));
        self.servers[server].lose();
        self.weaken(server, Promise::Alone);
    }

    /// Nothing goes wrong any more: what has not come back by now never will, and its clients know.
    pub(super) fn give_up_lost_servers(&mut self) {
        for client in 0..self.clients.len() {
            if self.servers[self.clients[client].server()].is_lost() {
                self.retire_client(client);
            }
        }
    }

    /// Whether a client's server is lost and the client knows.
    pub(super) fn is_given_up(&self, client: usize) -> bool {
        !self.is_faulty() && self.servers[self.clients[client].server()].is_lost()
    }

    /// An update that was logged, executed and answered, and whose log has since been lost, lives
    /// in the server's unsynced storage alone: if that went too, two failures would have met.
    fn spare_what_no_log_holds(&mut self, server: usize) {
        let node = &self.servers[server];
        let lost_from_logs = node.model.unsynced_logged(&node.storage);
        let unprotected = |entry: &EntryName| !self.is_held_elsewhere(*entry, None);
        if let Some((at, _)) = lost_from_logs.iter().rev().find(|(_, entry)| unprotected(entry)) {
            self.engine.report.mishaps_spared += 1;
            self.servers[server].storage.spare(at + 1);
        }
    }

    fn crash_device(&mut self, device: usize, kind: DeviceCrash, down: Nanos) {
        if !self.devices[device].is_alive() {
            return;
        }
        if !self.prepare_for_loss(device, kind) {
            return;
        }
        match kind {
            DeviceCrash::Process => self.engine.report.device_crashes += 1,
            DeviceCrash::Host => self.engine.report.host_crashes += 1,
        }
        self.note(Place::Device(device), Happening::Note("crashes", kind as u64));
        self.stop_device(device, kind);
        self.engine.comes_back(down, Place::Device(device));
    }

    fn lose(&mut self, device: usize, noticed: Nanos, back: Option<Nanos>) {
        let others =
            self.devices.iter().enumerate().filter(|(index, node)| *index != device && !node.is_lost());
        if !self.devices[device].is_alive() || others.count() == 0 || !self.prepare_for_total_loss(device) {
            return;
        }
        self.engine.report.devices_lost += 1;
        self.note(Place::Device(device), Happening::Note("is lost", 0));
        self.lose_device(device, back.is_some());
        self.engine.after(noticed, Event::Excluded(device));
        if let Some(back) = back {
            self.engine.after(noticed.plus(back), Event::Reinstated(device));
        }
    }

    /// The server is told first; until the device is taken out of the path it goes on as it may.
    fn exclude_living(&mut self, device: usize, stays: Nanos) {
        if !self.devices[device].is_alive() || !self.prepare_for_total_loss(device) {
            return;
        }
        self.engine.report.devices_lost += 1;
        self.devices[device].exclude();
        self.tell_all_of_exclusion(device);
        self.engine.after(stays, Event::TakenOut(device));
    }

    /// An excluded device leaves the path, with all that only it holds.
    pub(super) fn take_out(&mut self, device: usize) {
        if !self.devices[device].is_alive() {
            return;
        }
        if !self.prepare_for_total_loss(device) {
            (0..self.servers.len()).for_each(|server| self.weaken(server, Promise::Sessions));
        }
        self.lose_device(device, false);
        self.exclude_device(device);
    }

    /// The operator puts a device that was excluded back into its place. Who is the head may
    /// change, so whoever is concerned starts anew with the new configuration.
    pub(super) fn reinstate_device(&mut self, device: usize) {
        let heads = self.head().filter(|head| *head > device && self.devices[*head].is_alive());
        let may_stop = |world: &mut World, head: usize| world.prepare_for_loss(head, DeviceCrash::Process);
        if heads.is_some_and(|head| !may_stop(self, head)) {
            return;
        }
        self.engine.report.devices_reinstated += 1;
        self.note(Place::Device(device), Happening::Note("is put back into service", 0));
        (0..self.servers.len()).for_each(|server| self.take_server_down(server));
        self.devices[device].put_back();
        if let Some(head) = heads {
            self.stop_device(head, DeviceCrash::Process);
            self.start_device(head);
        }
        self.start_device(device);
        (0..self.servers.len()).for_each(|server| self.engine.comes_back(Nanos(0), Place::Server(server)));
    }

    /// Decides what the loss of a device's volatile entries means; whether it may happen.
    fn prepare_for_loss(&mut self, device: usize, kind: DeviceCrash) -> bool {
        let keeps = |world: &World, entry: EntryName| {
            let media = world.devices[device].media();
            let ram = kind == DeviceCrash::Process || world.scenario.ram_survives_host;
            (ram && media.holds(entry, Durability::Ram)) || media.holds(entry, Durability::Disk)
        };
        if self.devices[device].media().loses_at(kind) {
            self.judge_loss(device, kind == DeviceCrash::Host, keeps)
        } else {
            true
        }
    }

    fn prepare_for_total_loss(&mut self, device: usize) -> bool {
        self.judge_loss(device, true, |_, _| false)
    }

    fn judge_loss(&mut self, device: usize, memory: bool, keeps: impl Fn(&World, EntryName) -> bool) -> bool {
        let endangered = |world: &World, entry: EntryName| {
            !keeps(world, entry) && !world.is_held_elsewhere(entry, Some(device))
        };
        // Executed once and seen, taken back by the server's crash, and now only here.
        let mut seen = self
            .servers
            .iter()
            .filter(|node| !node.is_lost())
            .flat_map(|node| node.model.taken_back_and_logged());
        if seen.any(|entry| endangered(self, entry)) {
            self.engine.report.mishaps_spared += 1;
            return false;
        }
        if !memory {
            return true;
        }
        self.devices[device].memory_lost = true;
        let losses = self.devices.iter().filter(|node| node.memory_lost).count();
        for server in 0..self.servers.len() {
            let node = &self.servers[server];
            let promised = node.model.acknowledged_unstable(&node.storage);
            if losses > self.scenario.device_losses_max()
                && promised.iter().any(|entry| endangered(self, *entry))
            {
                self.weaken(server, Promise::Sessions);
            }
        }
        true
    }

    /// Answers that functions gave in a server's place are kept in memory, and not found by a client that gets around
    /// its devices.
    pub(super) fn answers_may_be_gone(&self) -> bool {
        let report = &self.engine.report;
        let died = report.device_crashes + report.host_crashes + report.devices_lost;
        self.scenario.functions.len() > 1 && died + report.tally.packets_detoured > 0
    }

    fn weaken(&mut self, server: usize, promise: Promise) {
        let model = &mut self.servers[server].model;
        self.engine.report.weakened += u64::from(model.promise() == Promise::Full);
        model.weaken(promise);
    }

    fn crash_client(&mut self, client: usize, down: Option<Nanos>) {
        if !self.clients[client].is_alive() {
            return;
        }
        self.engine.report.client_crashes += 1;
        self.note(Place::Client(client), Happening::Note("crashes", 0));
        self.retire_client(client);
        if let Some(down) = down {
            self.engine.comes_back(down, Place::Client(client));
        }
    }

    fn jump_clock(&mut self, place: Place, jump_ns: i64) {
        self.engine.report.clock_jumps += 1;
        self.note(place, Happening::Note("has its clock set", jump_ns.unsigned_abs()));
        let now = self.engine.now;
        self.clocks_were_set = true;
        match place {
            Place::Client(client) => {
                self.clients[client].clock_mut().jump(now, jump_ns);
                self.rewind_client(client);
            }
            Place::Device(device) => {
                self.devices[device].clock_mut().jump(now, jump_ns);
                // A lease counted by a clock that was set back ends later by as much.
                let set_back = Nanos(jump_ns.min(0).unsigned_abs());
                self.devices[device].extend_leases(set_back);
                self.rewind_device(device);
            }
            Place::Server(server) => {
                self.servers[server].clock_mut().jump(now, jump_ns);
                self.rewind_server(server);
            }
        }
    }

    fn fail_session(&mut self, client: usize) {
        let session = self.clients[client].machine().and_then(scotfree_session::Client::session);
        if let Some(session) = session {
            let server = self.clients[client].server();
            let failed = (server, self.servers[server].incarnation(), session);
            self.failed_sessions.push(failed);
            self.with_server(server, |machine, now, effects| machine.fail_session(now, session, effects));
        }
    }

    /// Whether a session was ended by the application.
    pub(super) fn some_session_failed(&self) -> bool {
        !self.failed_sessions.is_empty()
    }
}
