//! Packets that devices were sent in runs of the simulator: with losses, doubles, damage, crashes and forgeries.

use crate::packets::{Sent, PORT};
use remedy_persist::DeviceConfig;
use remedy_persist_world::{capture, Scenario, Seen};
use scotfree_core::{Durability, Nanos};
use scotfree_wire::{emit, Direction, Packet, Tail, MAGIC};

/// One life of a device, from its start to its end or its crash.
pub struct Life {
    pub config: DeviceConfig,
    pub packets: Vec<Sent>,
}

/// The lives of the head, or of the device behind it, in the run of this seed.
pub fn lives(seed: u64, head: bool) -> Vec<Life> {
    let mut scenario = Scenario::random(seed);
    scenario.device_count = scenario.device_count.max(if head { 1 } else { 2 });
    let mut lives: Vec<Life> = Vec::new();
    for seen in capture(seed, scenario, usize::from(!head)) {
        match (seen, lives.last_mut()) {
            (Seen::Start(config), _) => lives.push(Life { config: of_memory(*config), packets: Vec::new() }),
            // Without the mark it is no packet of ours, and bridged before a device is asked.
            (Seen::Packet { bytes, .. }, _) if !bytes.starts_with(&MAGIC.to_le_bytes()) => {}
            (Seen::Packet { from, to, bytes }, Some(life)) => {
                let bytes = with_long_lease(&life.config, bytes);
                life.packets.push(Sent { from, to, port: PORT, bytes });
            }
            (Seen::Packet { .. }, None) => unreachable!("a device that has not started is sent nothing"),
        }
    }
    // In some runs the other device is the head.
    lives.retain(|life| life.config.head == head);
    lives
}

/// Here all domains are memory and complete at once.
fn of_memory(mut config: DeviceConfig) -> DeviceConfig {
    config.media = Durability::Ram;
    config
}

/// The simulator's time is not this machine's: leases are written anew, to run for ever or not at all.
fn with_long_lease(config: &DeviceConfig, bytes: Vec<u8>) -> Vec<u8> {
    let key = config.cluster_key.control(Direction::ServerToDevice);
    let Ok(packet) = Packet::parse(&bytes) else { return bytes };
    let Tail::Lease(mut lease) = *packet.tail() else { return bytes };
    if packet.verify(&key).is_err() {
        return bytes;
    }
    lease.asked_at = Nanos(1);
    lease.duration = if lease.duration == Nanos(0) { Nanos(0) } else { Nanos(u64::MAX / 4) };
    let mut anew = Vec::new();
    emit(packet.header(), &Tail::Lease(lease), packet.payload(), &key, &mut anew);
    anew
}
