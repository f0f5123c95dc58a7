//! What happens at the limits that no configuration names: each `*_MAX` of the device, reached.

use crate::PersistConfig;
use scotfree_core::{BootEpoch, DeviceId, Effect, Epoch, Machine, Nanos, SeqNum, ServerIndex, SessionId};
use scotfree_device::{
    DeviceConfig, DeviceEffects, DeviceOwn, Origin, Pipeline, PortNumber, ENDED_MAX, FRAGMENT_BYTES_MAX,
    FRAGMENT_SETS_MAX, PAGE_RECORDS_MAX,
};
use scotfree_session::by_hand::{
    accept, address, barrier, client_address, cluster, device_address, header, nonce, packet, sent,
    server_address, session_keys, update, NOW,
};
use scotfree_wire::{
    emit_stamp, CloseReason, CloseTail, ClusterKey, Direction, Flags, Header, KeyEpoch, Kind, LeaseTail,
    Packet, RangeTail, Stamp, Tail, WireError, MANIFEST_RECORD_BYTES, REQUEST_BYTES_MAX,
};

struct DeviceBench {
    device: Pipeline,
    effects: DeviceEffects,
}

impl DeviceBench {
    fn new(sessions_max: u32) -> DeviceBench {
        DeviceBench::adjusted(|config| config.sessions_max = sessions_max)
    }

    fn adjusted(adjust: impl FnOnce(&mut DeviceConfig)) -> DeviceBench {
        let mut config =
            DeviceConfig::new(DeviceId(1), BootEpoch(1), device_address(), server_address(), cluster());
        config.window_max = 128;
        adjust(&mut config);
        let mut bench = DeviceBench {
            device: crate::device(config, PersistConfig::default()),
            effects: DeviceEffects::new(),
        };
        bench.lease(BootEpoch(1));
        bench
    }

    fn lease(&mut self, boot_epoch: BootEpoch) {
        let duration = Nanos::from_secs(100);
        let tail = LeaseTail { asked_at: NOW, duration, device: DeviceId(1), boot_epoch };
        self.command(&header(Kind::Lease, 0, 0), &Tail::Lease(tail));
        assert!(self.device.has_lease(ServerIndex(0), NOW));
    }

    fn command(&mut self, header: &Header, tail: &Tail) -> Vec<Vec<u8>> {
        let bytes = packet(header, tail, &[], &cluster().control(Direction::ServerToDevice));
        self.device.on_message(NOW, server_address(), device_address(), &bytes, &mut self.effects);
        self.flush()
    }

    fn learn(&mut self, id: u64) {
        let bytes = accept(id, 128);
        self.device.on_message(NOW, server_address(), client_address(), &bytes, &mut self.effects);
        self.flush();
    }

    fn request(&mut self, bytes: &[u8]) {
        self.device.on_message(NOW, client_address(), server_address(), bytes, &mut self.effects);
        self.flush();
    }

    /// Completes what the domains were asked for, and gives what was sent.
    fn flush(&mut self) -> Vec<Vec<u8>> {
        let tokens: Vec<_> = self
            .effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Persist { token, .. } | Effect::Own(DeviceOwn::FlushErasures { token }) => {
                    Some(*token)
                }
                _ => None,
            })
            .collect();
        let mut packets = sent(&mut self.effects);
        for token in tokens {
            self.device.on_persisted(NOW, token, &mut self.effects);
            packets.extend(sent(&mut self.effects));
        }
        packets
    }
}

#[test]
fn a_manifest_page_holds_page_records_max_and_the_rest_goes_on_the_next() {
    let mut bench = DeviceBench::new(64);
    for id in 1..=PAGE_RECORDS_MAX as u64 + 3 {
        bench.learn(id);
    }
    let pages = bench.command(&header(Kind::RecoveryPoll, 0, 7), &Tail::Empty);
    let sizes: Vec<usize> = pages
        .iter()
        .map(|page| Packet::parse(page).expect("a manifest").payload().len() / MANIFEST_RECORD_BYTES)
        .collect();
    assert_eq!(sizes, [PAGE_RECORDS_MAX, 3]);
}

#[test]
fn a_question_is_answered_with_replay_burst_max_entries_and_where_to_go_on() {
    let mut bench = DeviceBench::new(4);
    bench.learn(1);
    for seq in 1..=100 {
        bench.request(&update(1, seq, b"x")[0]);
    }
    let range = RangeTail { first: 1, last: 100, boot_epoch: BootEpoch(0) };
    let answer = bench.command(&header(Kind::Retransmit, 1, 0), &Tail::Range(range));
    let burst = PersistConfig::default().replay_burst_max;
    assert_eq!(answer.len(), burst as usize + 1);
    let last = Packet::parse(&answer[burst as usize]).expect("the end of the answer");
    assert!(last.flags().has(Flags::VOID));
    assert_eq!((last.seq_num(), last.stamp().number.0), (SeqNum(u64::from(burst)), u64::from(burst)));
}

#[test]
fn an_entry_is_replayed_however_many_reads_stand_before_it() {
    let mut bench = DeviceBench::new(4);
    bench.learn(1);
    for seq in 1..=500 {
        let read = header(Kind::Read, 1, seq);
        let key = session_keys(1).client_to_server;
        bench.request(&packet(&read, &Tail::Stamp(Stamp::default()), b"x", &key));
    }
    bench.request(&update(1, 501, b"x")[0]);
    let range = RangeTail { first: 1, last: 501, boot_epoch: BootEpoch(0) };
    let answer = bench.command(&header(Kind::Retransmit, 1, 0), &Tail::Range(range));
    let seqs: Vec<_> =
        answer.iter().map(|bytes| Packet::parse(bytes).map(|packet| packet.seq_num())).collect();
    assert_eq!(seqs, [Ok(SeqNum(501)), Ok(SeqNum(501))], "the entry, and the word that it is all");
    // A question that makes no sense is answered and does no harm.
    let backward = RangeTail { first: 501, last: 1, boot_epoch: BootEpoch(0) };
    assert_eq!(bench.command(&header(Kind::Retransmit, 1, 0), &Tail::Range(backward)).len(), 1);
}

#[test]
fn a_follower_that_becomes_the_head_knows_of_writes_that_it_has_not_seen() {
    let mut bench = DeviceBench::adjusted(|config| config.head = false);
    bench.learn(1);
    let key = session_keys(1).client_to_server;
    let mut read = packet(&header(Kind::Read, 1, 25), &Tail::Stamp(Stamp::default()), b"x", &key);
    let by_head = Stamp { device: DeviceId(2), ..barrier(1, 0, 24) };
    emit_stamp(&mut read, &by_head, &cluster().control(Direction::Stamp)).expect("a request has room");
    bench.request(&read);
    bench.device.promote(NOW, &mut bench.effects);
    bench.lease(BootEpoch(2));
    bench.request(&update(1, 26, b"x")[0]);
    let entry = bench.device.entries()[0];
    assert_eq!((entry.seq, entry.stamp.previous_write), (SeqNum(26), SeqNum(24)));
}

#[test]
fn incomplete_updates_at_the_device_hold_at_most_fragment_bytes_max() {
    // The oldest set gives way; its client sends it again. With sets of the largest size the bytes
    // are the nearer limit, FRAGMENT_SETS_MAX the farther.
    let mut bench = DeviceBench::new(300);
    let large = vec![0; REQUEST_BYTES_MAX];
    for id in 1..=300 {
        bench.learn(id);
        bench.request(&update(id, 1, &large)[0]);
    }
    assert!(bench.device.base().fragments(ServerIndex(0)).bytes_reserved() <= FRAGMENT_BYTES_MAX);
    assert_eq!(
        bench.device.base().fragments(ServerIndex(0)).set_count(),
        FRAGMENT_BYTES_MAX / REQUEST_BYTES_MAX
    );
    assert!(bench.device.base().fragments(ServerIndex(0)).set_count() <= FRAGMENT_SETS_MAX);
}

#[test]
fn an_ended_session_is_remembered_until_ended_max_others_have_ended() {
    let mut bench = DeviceBench::new(4);
    let end = |bench: &mut DeviceBench, id| {
        let tail = Tail::Close(CloseTail { reason: CloseReason::Expire });
        bench.command(&header(Kind::SessionClose, id, 0), &tail);
    };
    bench.learn(1);
    end(&mut bench, 1);
    bench.learn(1);
    assert_eq!(bench.device.session_count(), 0);
    for id in 2..=ENDED_MAX as u64 + 1 {
        end(&mut bench, id);
    }
    bench.learn(1);
    assert_eq!(bench.device.session_count(), 1);
}

#[test]
fn a_request_to_another_server_passes_as_it_is() {
    let mut bench = DeviceBench::new(4);
    bench.learn(1);
    // The other server has a session of the same name, with other keys.
    let key = cluster().session(&nonce(77), &[9; 16], SessionId(1), Epoch(1)).client_to_server;
    let bytes = packet(&header(Kind::Update, 1, 1), &Tail::Stamp(Stamp::default()), b"x", &key);
    bench.device.on_message(NOW, client_address(), address(3), &bytes, &mut bench.effects);
    let forwarded: Vec<_> = bench
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Own(DeviceOwn::Forward { bytes }) => Some(bench.effects.bytes(*bytes).to_vec()),
            _ => None,
        })
        .collect();
    assert_eq!(forwarded, [bytes]);
    assert_eq!(bench.device.counters().bad, 0);
}

#[test]
fn a_session_is_bound_to_its_clients_address_and_to_the_port_that_its_next_request_came_by() {
    let mut bench = DeviceBench::new(4);
    bench.learn(1);
    let mut play = |address, port, seq| {
        let origin = Origin { address, port: Some(PortNumber(port)) };
        let bytes = &update(1, seq, b"x")[0];
        bench.device.on_arrival(NOW, origin, server_address(), bytes, &mut bench.effects);
        let leaving = !bench.flush().is_empty();
        let counters = *bench.device.counters();
        assert_eq!(counters.bad, counters.refused[WireError::Elsewhere as usize]);
        (leaving, counters.admitted, counters.bad)
    };
    // Not the next: it says nothing about where the client lives.
    play(client_address(), 3, 2);
    assert_eq!(play(address(9), 0, 1), (false, 0, 1));
    assert_eq!(play(client_address(), 0, 1), (true, 1, 1));
    assert_eq!(play(client_address(), 3, 1), (false, 1, 2));
    assert_eq!(play(client_address(), 3, 2), (false, 1, 3));
    assert_eq!(play(client_address(), 0, 2), (true, 2, 3));
}

#[test]
fn of_a_session_whose_key_was_taken_away_the_entries_stay_and_nothing_else() {
    let mut bench = DeviceBench::new(4);
    bench.learn(1);
    bench.request(&update(1, 1, b"x")[0]);
    let secrets = vec![(KeyEpoch(0), [3; 32]), (KeyEpoch(1), [4; 32])];
    let both = ClusterKey::from_epochs(secrets.clone()).expect("they grow");
    let new = ClusterKey::from_epochs(secrets[1..].to_vec()).expect("one is enough");
    bench.device.set_cluster_key(NOW, both, &mut bench.effects);
    bench.request(&update(1, 2, b"x")[0]);
    assert_eq!(crate::counters(&bench.device).logged, 2, "its epoch is still there");
    bench.device.set_cluster_key(NOW, new.clone(), &mut bench.effects);
    bench.request(&update(1, 3, b"x")[0]);
    bench.request(&update(1, 1, b"x")[0]);
    let (counters, persist) = (*bench.device.counters(), crate::counters(&bench.device));
    assert_eq!((persist.logged, persist.persist_acks, counters.duplicate), (2, 2, 0));
    assert_eq!(counters.refused[WireError::UnknownKeyEpoch as usize], 2);
    let mut stable = |key| {
        let word = packet(&header(Kind::ServerAck, 1, 1), &Tail::Empty, &[], &key);
        bench.device.on_message(NOW, server_address(), client_address(), &word, &mut bench.effects);
        bench.flush();
        crate::counters(&bench.device).freed
    };
    assert_eq!(stable(session_keys(1).server_to_client), 0, "a word under the key that is gone");
    assert_eq!(stable(new.session(&nonce(1), &[9; 16], SessionId(1), Epoch(1)).server_to_client), 1);
    assert_eq!(bench.device.entry_count(), 1);
}

#[test]
fn a_slot_whose_record_was_refused_is_logged_again_later() {
    let mut bench = DeviceBench::new(4);
    bench.learn(1);
    let update_into = |bench: &mut DeviceBench, seq, refused| {
        let bytes = &update(1, seq, b"x")[0];
        bench.device.on_message(NOW, client_address(), server_address(), bytes, &mut bench.effects);
        let persists = bench.effects.iter().filter_map(|effect| match effect {
            Effect::Persist { token, .. } => Some(*token),
            _ => None,
        });
        for token in persists.collect::<Vec<_>>() {
            if refused {
                bench.device.on_refused(token);
            } else {
                bench.device.on_persisted(NOW, token, &mut bench.effects);
            }
        }
        bench.effects.clear();
    };
    for seq in 1..=128 {
        update_into(&mut bench, seq, true);
    }
    assert_eq!(crate::counters(&bench.device).persist_acks, 0);
    let mut stable = header(Kind::ServerAck, 1, 128);
    stable.epoch = Epoch(1);
    bench.command(&stable, &Tail::Empty);
    update_into(&mut bench, 129, false);
    assert_eq!(
        (crate::counters(&bench.device).logged, crate::counters(&bench.device).persist_acks),
        (129, 1)
    );
}

#[test]
fn at_sessions_max_a_device_lets_a_session_go_whose_client_never_spoke() {
    let mut bench = DeviceBench::new(2);
    bench.learn(1);
    bench.request(&update(1, 1, b"x")[0]);
    bench.learn(2);
    bench.learn(3);
    // The oldest that is silent has gone; the new one is taught again and stays.
    bench.learn(3);
    bench.request(&update(3, 1, b"x")[0]);
    assert_eq!((bench.device.session_count(), crate::counters(&bench.device).logged), (2, 2));
    bench.learn(4);
    bench.learn(4);
    bench.request(&update(4, 1, b"x")[0]);
    assert_eq!((bench.device.session_count(), crate::counters(&bench.device).logged), (2, 2));
}
