//! A device before two servers, with one function that lets everything pass.

use scotfree_core::{BootEpoch, DeviceId, Effect, Epoch, Machine, Nanos, ServerIndex, SessionId};
use scotfree_device::{
    Base, DeviceConfig, DeviceEffects, DeviceOwn, Function, Passing, Pipeline, Region, Served, SessionName,
    Verdict,
};
use scotfree_session::by_hand::{
    accept, address, client_address, cluster, device_address, header, packet, NOW,
};
use scotfree_wire::{CloseReason, CloseTail, Direction, Family, Header, Kind, LeaseTail, Tail};
use std::any::Any;

pub const FIRST: ServerIndex = ServerIndex(0);
pub const SECOND: ServerIndex = ServerIndex(1);

/// Lets everything pass.
#[derive(Debug)]
struct Idle;

impl Function for Idle {
    fn name(&self) -> &'static str {
        "idle"
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

    fn on_packet(
        &mut self,
        _now: Nanos,
        _base: &mut Base,
        _passing: &mut Passing<'_>,
        _effects: &mut DeviceEffects,
    ) -> Verdict {
        Verdict::Next
    }
}

pub fn name(server: ServerIndex, id: u64) -> SessionName {
    SessionName { server, id: SessionId(id) }
}

pub fn lease(device: u16, boot_epoch: u32, asked_at: Nanos, duration: Nanos) -> LeaseTail {
    LeaseTail { asked_at, duration, device: DeviceId(device), boot_epoch: BootEpoch(boot_epoch) }
}

pub struct Bench {
    pub device: Pipeline,
    pub effects: DeviceEffects,
}

impl Bench {
    /// Device 7 in its incarnation 3, before two servers of the epochs 1 and 4.
    pub fn new(adjust: impl FnOnce(&mut DeviceConfig)) -> Bench {
        let mut config =
            DeviceConfig::new(DeviceId(7), BootEpoch(3), device_address(), address(2), cluster());
        config.servers[0].epoch = Epoch(1);
        config.servers.push(Served { epoch: Epoch(4), ..Served::new(address(3)) });
        config.window_max = 16;
        adjust(&mut config);
        let device = Pipeline::new(config, vec![Box::new(Idle)]).expect("the list is in order");
        Bench { device, effects: DeviceEffects::new() }
    }

    pub fn base(&mut self) -> &mut Base {
        self.device.with_base::<Idle>().expect("it is there").0
    }

    pub fn receive(&mut self, now: Nanos, from: u8, to: std::net::SocketAddr, bytes: &[u8]) {
        self.device.on_message(now, address(from), to, bytes, &mut self.effects);
    }

    /// A word of the first server's to the device.
    pub fn command(&mut self, header: &Header, tail: &Tail) {
        let bytes = packet(header, tail, &[], &cluster().control(Direction::ServerToDevice));
        self.receive(NOW, 2, device_address(), &bytes);
    }

    pub fn grant(&mut self, tail: LeaseTail) {
        self.command(&header(Kind::Lease, 0, 0), &Tail::Lease(tail));
    }

    pub fn expire(&mut self, id: u64) {
        self.command(
            &header(Kind::SessionClose, id, 0),
            &Tail::Close(CloseTail { reason: CloseReason::Expire }),
        );
    }

    pub fn learn(&mut self, now: Nanos, id: u64) -> Option<Region> {
        self.receive(now, 2, client_address(), &accept(id, 16));
        self.device.base().find(FIRST, SessionId(id))
    }

    /// What it wished for of its own: erasures to be flushed, and incarnations to be kept.
    pub fn wishes(&mut self) -> (Vec<scotfree_core::Token>, Vec<(u32, u8, u32)>) {
        let effects = std::mem::take(&mut self.effects);
        let (mut flushes, mut metas) = (Vec::new(), Vec::new());
        for effect in effects.iter() {
            match effect {
                Effect::Own(DeviceOwn::FlushErasures { token }) => flushes.push(*token),
                Effect::Own(DeviceOwn::SetMeta { boot_epoch, server, server_epoch }) => {
                    metas.push((boot_epoch.0, server.0, server_epoch.0));
                }
                _ => {}
            }
        }
        (flushes, metas)
    }

    pub fn sent(&mut self) -> Vec<Vec<u8>> {
        scotfree_session::by_hand::sent(&mut self.effects)
    }
}
