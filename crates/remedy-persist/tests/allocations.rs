//! After warm-up, no step of a device allocates: neither for an update that is logged, acknowledged and freed, nor for
//! a read, nor for one that a function answers.

use allocation_counter::measure;
use remedy_persist::{Persist, PersistConfig};
use remedy_toy::Toy;
use scotfree_core::{BootEpoch, DeviceId, Epoch, KeyHash, Machine, Nanos, SeqNum, ServerIndex, Token};
use scotfree_device::{carry_out, Completion, DeviceConfig, Pipeline, Round, Shell};
use scotfree_session::by_hand::{
    accept, client_address, cluster, device_address, header, packet, server_address, session_keys, update,
    NOW,
};
use scotfree_session::Planted;
use scotfree_wire::{Direction, Kind, LeaseTail, Stamp, Tail};
use std::net::SocketAddr;

/// A device whose memory keeps everything at once, and whose packets go nowhere.
struct Nowhere {
    device: Pipeline,
    packets: u64,
}

impl Shell for Nowhere {
    fn pipeline(&mut self) -> &mut Pipeline {
        &mut self.device
    }

    fn send(&mut self, _from: SocketAddr, _to: SocketAddr, _bytes: &[u8]) {
        self.packets += 1;
    }

    fn forward(&mut self, _bytes: &[u8]) {
        self.packets += 1;
    }

    fn persist(&mut self, _token: Token, _record: &[u8]) -> Completion {
        Completion::Done
    }

    fn erase(&mut self, _token: Token) {}

    fn set_meta(&mut self, _boot_epoch: BootEpoch, _server: ServerIndex, _server_epoch: Epoch) {}

    fn flush_erasures(&mut self, _token: Token) -> Completion {
        Completion::Done
    }
}

fn read(seq: u64, key_hash: KeyHash) -> Vec<u8> {
    let mut header = header(Kind::Read, 1, seq);
    (header.key_hash, header.completed) = (key_hash, SeqNum(seq - 1));
    packet(&header, &Tail::Stamp(Stamp::default()), b"get", &session_keys(1).client_to_server)
}

/// What comes in: of four requests two are updates, one is a read, one a read that the toy answers; then the server's
/// word that all is stable.
fn script(requests: u64) -> Vec<(SocketAddr, SocketAddr, Vec<u8>)> {
    let up = |bytes| (client_address(), server_address(), bytes);
    let mut packets = Vec::new();
    for seq in 1..=requests {
        packets.push(up(match seq % 4 {
            0 => read(seq, remedy_toy::ANSWERED),
            1 => read(seq, KeyHash(1)),
            _ => update(1, seq, &[7; 100]).remove(0),
        }));
        if seq % 8 == 0 {
            let word = packet(
                &header(Kind::ServerAck, 1, seq),
                &Tail::Empty,
                &[],
                &session_keys(1).server_to_client,
            );
            packets.push((server_address(), client_address(), word));
        }
    }
    packets
}

#[test]
fn a_warm_device_does_not_allocate() {
    const REQUESTS: u64 = 20_000;
    let mut config =
        DeviceConfig::new(DeviceId(1), BootEpoch(1), device_address(), server_address(), cluster());
    config.window_max = 64;
    let toy = Toy::new(b"toy", Planted::NONE);
    let persist = Persist::new(PersistConfig::default());
    let device = Pipeline::new(config, vec![Box::new(toy), Box::new(persist)]).expect("a list in order");
    let (mut shell, mut round) = (Nowhere { device, packets: 0 }, Round::default());
    let duration = Nanos::from_secs(100);
    let lease = LeaseTail { asked_at: NOW, duration, device: DeviceId(1), boot_epoch: BootEpoch(1) };
    let key = cluster().control(Direction::ServerToDevice);
    let lease = packet(&header(Kind::Lease, 0, 0), &Tail::Lease(lease), &[], &key);
    let mut packets = vec![
        (server_address(), device_address(), lease),
        (server_address(), client_address(), accept(1, 64)),
    ];
    packets.extend(script(REQUESTS));
    let mut play = |packets: &[(SocketAddr, SocketAddr, Vec<u8>)]| {
        for (from, to, bytes) in packets {
            shell.device.on_message(NOW, *from, *to, bytes, &mut round.effects);
            carry_out(NOW, &mut round, &mut shell);
        }
    };
    let (first, second) = packets.split_at(packets.len() / 2);
    play(first);
    let allocated = measure(|| play(second)).count_total;
    let (counters, persist) = (*shell.device.counters(), remedy_persist::counters(&shell.device));
    assert_eq!((counters.admitted, counters.answered), (REQUESTS, REQUESTS / 4));
    assert_eq!(
        (persist.logged, persist.persist_acks, persist.freed),
        (REQUESTS / 2, REQUESTS / 2, REQUESTS / 2)
    );
    assert!(shell.packets > REQUESTS);
    assert_eq!(allocated, 0, "allocations in {} packets of a warm device", second.len());
}
