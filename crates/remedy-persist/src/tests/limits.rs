//! What happens at the limits that no configuration names: each `*_MAX` of the machines, reached.

use super::bench::{
    accept, address, barrier, client_address, cluster, device_address, header, nonce, packet, recovered,
    sent, server_address, session_keys, update, ServerBench, NOW,
};
use crate::client::{DEVICES_MAX, RESPONSE_SETS_MAX, UNTOLD_BYTES_MAX};
use crate::device::{ENDED_MAX, FRAGMENT_BYTES_MAX, PAGE_RECORDS_MAX};
use crate::server::SEQ_MAX;
use crate::{
    Client, ClientConfig, ClientOwn, Device, DeviceConfig, DeviceOwn, Mode, Origin, PortNumber, Request,
    RequestKind, Server, ServerConfig,
};
use scotfree_core::{
    BootEpoch, DeviceId, Durability, Effect, Effects, Epoch, KeyHash, Machine, Nanos, SeqNum, SessionId,
};
use scotfree_wire::{
    emit_stamp, fragments, CloseReason, CloseTail, ClusterKey, Direction, Flags, Header, HeartbeatTail,
    KeyEpoch, Kind, LeaseTail, Packet, RangeTail, ResponseTail, SessionKeys, Stamp, StampKind, Tail,
    WireError, MANIFEST_RECORD_BYTES, REQUEST_BYTES_MAX,
};

struct DeviceBench {
    device: Device,
    effects: Effects<DeviceOwn>,
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
        let mut bench = DeviceBench { device: Device::new(config), effects: Effects::new() };
        bench.lease(BootEpoch(1));
        bench
    }

    fn lease(&mut self, boot_epoch: BootEpoch) {
        let duration = Nanos::from_secs(100);
        let tail = LeaseTail { asked_at: NOW, duration, device: DeviceId(1), boot_epoch };
        self.command(&header(Kind::Lease, 0, 0), &Tail::Lease(tail));
        assert!(self.device.has_lease(NOW));
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
    let burst =
        DeviceConfig::new(DeviceId(1), BootEpoch(1), address(1), address(2), cluster()).replay_burst_max;
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
    bench.device.promote(&mut bench.effects);
    bench.lease(BootEpoch(2));
    bench.request(&update(1, 26, b"x")[0]);
    let entry = bench.device.entries().next().expect("the update is logged");
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
    assert!(bench.device.fragments.bytes_reserved() <= FRAGMENT_BYTES_MAX);
    assert_eq!(bench.device.fragments.set_count(), FRAGMENT_BYTES_MAX / REQUEST_BYTES_MAX);
    assert!(bench.device.fragments.set_count() <= crate::device::FRAGMENT_SETS_MAX);
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

fn open_client(device_acks_asked: u8) -> (Client, Effects<ClientOwn>) {
    let mut config = ClientConfig::new(client_address(), server_address(), cluster(), nonce(1), 1);
    config.device_acks_asked = device_acks_asked;
    let mut client = Client::new(config);
    let mut effects = Effects::new();
    client.open(NOW, &mut effects);
    client.on_message(NOW, server_address(), client_address(), &accept(1, 128), &mut effects);
    assert!(client.is_open());
    effects.clear();
    (client, effects)
}

fn submit(client: &mut Client, kind: RequestKind, effects: &mut Effects<ClientOwn>) {
    let request = Request {
        kind,
        mode: Mode::Early,
        fixed_reply: true,
        relaxed: false,
        traced: false,
        key_hash: KeyHash(0),
        payload: b"x",
    };
    client.submit(NOW, request, effects).expect("the window is open");
}

#[test]
fn a_client_counts_at_most_devices_max_devices() {
    let (mut client, mut effects) = open_client(DEVICES_MAX as u8 + 1);
    submit(&mut client, RequestKind::Update, &mut effects);
    for device in 1..=DEVICES_MAX as u16 + 1 {
        let mut header = header(Kind::PersistAck, 1, 1);
        header.granted = Durability::Ram;
        let stamp = Stamp { kind: StampKind::Order, device: DeviceId(device), ..Stamp::default() };
        let bytes = packet(&header, &Tail::Stamp(stamp), &[], &session_keys(1).device_to_client);
        client.on_message(NOW, server_address(), client_address(), &bytes, &mut effects);
    }
    assert_eq!(client.counters().foreign, 1, "the device beyond the limit is not followed");
    assert_eq!(client.outstanding(), 1, "nor counted");
}

#[test]
fn a_client_keeps_at_most_response_sets_max_incomplete_responses() {
    let (mut client, mut effects) = open_client(1);
    for seq in 1..=RESPONSE_SETS_MAX as u64 + 4 {
        submit(&mut client, RequestKind::Read, &mut effects);
        let header = header(Kind::Response, 1, seq);
        let payload = vec![0; 4_000];
        let (first, part) = fragments(&header, &payload).expect("a response").next().expect("a part");
        let tail = Tail::Response(ResponseTail::default());
        let bytes = packet(&first, &tail, part, &session_keys(1).server_to_client);
        client.on_message(NOW, server_address(), client_address(), &bytes, &mut effects);
    }
    assert_eq!(client.responses.set_count(), RESPONSE_SETS_MAX);
    assert_eq!(client.responses.evicted_count(), 4);
}

#[test]
fn a_client_that_has_taken_untold_bytes_max_of_replies_says_so_at_once() {
    let (mut client, mut effects) = open_client(1);
    submit(&mut client, RequestKind::Read, &mut effects);
    submit(&mut client, RequestKind::Read, &mut effects);
    effects.clear();
    for seq in 1..=2 {
        respond(&mut client, seq, &vec![0; UNTOLD_BYTES_MAX / 2], &mut effects);
        let told: Vec<Vec<u8>> = sent(&mut effects);
        let told = told.iter().map(|bytes| *Packet::parse(bytes).expect("whole").header());
        let told: Vec<_> = told.map(|header| (header.kind, header.completed)).collect();
        let expected = if seq == 1 { Vec::new() } else { vec![(Kind::Heartbeat, SeqNum(2))] };
        assert_eq!(told, expected, "after reply {seq}");
    }
}

fn respond(client: &mut Client, seq: u64, payload: &[u8], effects: &mut Effects<ClientOwn>) {
    let header = header(Kind::Response, 1, seq);
    for (header, part) in fragments(&header, payload).expect("a response") {
        let tail = Tail::Response(ResponseTail::default());
        let bytes = packet(&header, &tail, part, &session_keys(1).server_to_client);
        client.on_message(NOW, server_address(), client_address(), &bytes, effects);
    }
}

#[test]
fn a_server_keeps_at_most_fragment_sets_max_incomplete_requests() {
    let config = ServerConfig::new(server_address(), cluster(), Epoch(2), [1; 16], Vec::new());
    let mut server = Server::new(config, &[recovered(1, 0)]);
    let mut effects = Effects::new();
    server.start(NOW, &mut effects);
    for seq in 1..=crate::server::FRAGMENT_SETS_MAX as u64 + 5 {
        let first = &update(1, seq, &[0; 4_000])[0];
        server.on_message(NOW, client_address(), server_address(), first, &mut effects);
    }
    assert_eq!(server.fragments.set_count(), crate::server::FRAGMENT_SETS_MAX);
    assert_eq!(server.fragments.evicted_count(), 5);
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
    bench.device.set_cluster_key(both);
    bench.request(&update(1, 2, b"x")[0]);
    assert_eq!(bench.device.counters().logged, 2, "its epoch is still there");
    bench.device.set_cluster_key(new.clone());
    bench.request(&update(1, 3, b"x")[0]);
    bench.request(&update(1, 1, b"x")[0]);
    let counters = *bench.device.counters();
    assert_eq!((counters.logged, counters.persist_acks, counters.duplicate), (2, 2, 0));
    assert_eq!(counters.refused[WireError::UnknownKeyEpoch as usize], 2);
    let mut stable = |key| {
        let word = packet(&header(Kind::ServerAck, 1, 1), &Tail::Empty, &[], &key);
        bench.device.on_message(NOW, server_address(), client_address(), &word, &mut bench.effects);
        bench.flush();
        bench.device.counters().freed
    };
    assert_eq!(stable(session_keys(1).server_to_client), 0, "a word under the key that is gone");
    assert_eq!(stable(new.session(&nonce(1), &[9; 16], SessionId(1), Epoch(1)).server_to_client), 1);
    assert_eq!(bench.device.entries().count(), 1);
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
    assert_eq!(bench.device.counters().persist_acks, 0);
    let mut stable = header(Kind::ServerAck, 1, 128);
    stable.epoch = Epoch(1);
    bench.command(&stable, &Tail::Empty);
    update_into(&mut bench, 129, false);
    assert_eq!((bench.device.counters().logged, bench.device.counters().persist_acks), (129, 1));
}

fn opening_bench() -> ServerBench {
    let mut bench = ServerBench::new(&[], |config| {
        config.sessions_max = 8;
        config.unconfirmed_max = 3;
    });
    bench.manifest(1, 0, 1, &[]);
    bench
}

/// The name of the session that was accepted last, and its keys.
fn accepted(bench: &ServerBench) -> (SessionId, SessionKeys) {
    let accept = bench.sent.iter().rev().find_map(|(_, bytes)| {
        let packet = Packet::parse(bytes).ok()?;
        let Tail::Accept(tail) = *packet.tail() else { return None };
        Some((packet.session(), packet.epoch(), tail))
    });
    let (id, epoch, tail) = accept.expect("an acceptance");
    (id, cluster().session(&tail.client_nonce, &tail.server_nonce, id, epoch))
}

/// The client that was accepted last speaks under its session's keys.
fn confirm(bench: &mut ServerBench) -> SessionId {
    let (id, keys) = accepted(bench);
    let beat = Header::new(Kind::Heartbeat, id, Epoch(2));
    let tail = Tail::Heartbeat(HeartbeatTail::default());
    bench.receive(client_address(), &packet(&beat, &tail, &[], &keys.client_to_server));
    id
}

#[test]
fn an_opening_that_comes_again_is_the_same_session_and_moves_nothing() {
    let mut bench = opening_bench();
    bench.open(1, client_address());
    let id = confirm(&mut bench);
    bench.pass(Nanos::from_secs(59));
    bench.sent.clear();
    bench.open(1, address(66));
    assert_eq!((accepted(&bench).0, bench.server.session_count()), (id, 1));
    assert_eq!(bench.sent_to(address(66)), [], "whoever replays an opening hears nothing");
    // Nor does it keep the session of a client alive that is gone.
    bench.pass(Nanos::from_secs(9));
    assert_eq!(bench.server.counters().expired, 1);
}

#[test]
fn sessions_whose_client_never_spoke_give_way_at_unconfirmed_max_and_no_others() {
    let mut bench = opening_bench();
    for number in 1..=2 {
        bench.open(number, client_address());
        confirm(&mut bench);
    }
    let first = accepted(&bench).0 .0;
    // Recordings of many sessions of the past, again and again.
    for _ in 0..3 {
        for number in 100..150 {
            bench.open(number, address(66));
            bench.pass(Nanos::from_millis(1));
            bench.confirm_empty(first + 1..=first + 200);
            bench.forget_deleted();
            assert!(bench.server.session_count() <= 2 + 3);
        }
    }
    assert!(bench.server.counters().gave_way >= 140);
    // A client finds room at once, and keeps it when it has spoken.
    bench.open(7, client_address());
    let kept = confirm(&mut bench);
    for number in 200..250 {
        bench.open(number, address(66));
    }
    bench.sent.clear();
    bench.open(7, client_address());
    assert_eq!(accepted(&bench).0, kept);
    assert!(bench.server.session_count() <= 8);
}

#[test]
fn at_sessions_max_an_opening_is_refused_if_all_have_spoken() {
    let mut bench = opening_bench();
    for number in 1..=8 {
        bench.open(number, client_address());
        confirm(&mut bench);
    }
    bench.sent.clear();
    bench.open(9, client_address());
    assert_eq!(
        (bench.sent_to(client_address()), bench.server.session_count()),
        (vec![Kind::SessionClose], 8)
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
    assert_eq!((bench.device.session_count(), bench.device.counters().logged), (2, 2));
    bench.learn(4);
    bench.learn(4);
    bench.request(&update(4, 1, b"x")[0]);
    assert_eq!((bench.device.session_count(), bench.device.counters().logged), (2, 2));
}

#[test]
fn at_unfinished_max_execution_waits_for_the_application_and_for_storage() {
    let mut bench = ServerBench::new(&[recovered(1, 0)], |config| config.unfinished_max = 4);
    bench.manifest(1, 0, 1, &[]);
    bench.answers = false;
    for seq in 1..=9 {
        bench.request(Kind::Read, 1, seq, barrier(1, 0, 0));
    }
    assert_eq!(bench.executed.len(), 4);
    assert!(bench.server.wants_stable());
    for ticket in 1..=9 {
        bench.answer(ticket);
    }
    assert_eq!(bench.executed.len(), 9);
}

#[test]
fn a_request_beyond_its_credit_is_dropped_whatever_the_client_says_is_complete() {
    let mut bench = ServerBench::new(&[recovered(1, 0)], |config| config.window = 4);
    bench.manifest(1, 0, 1, &[]);
    let mut far = |seq: u64, completed: u64| {
        let mut header = header(Kind::Read, 1, seq);
        header.completed = SeqNum(completed);
        let key = session_keys(1).client_to_server;
        bench.receive(client_address(), &packet(&header, &Tail::Stamp(Stamp::default()), b"", &key));
        bench.server.counters().beyond_window
    };
    assert_eq!(far(9, 0), 1);
    assert_eq!(far(8, 0), 1);
    // Eight may wait, though each says that all before it is complete.
    assert_eq!((100..108).map(|seq| far(2 * seq, 2 * seq - 1)).max(), Some(2));
    assert_eq!(far(300, 299), 3);
    // Numbers that cannot be are refused.
    assert_eq!(far(SEQ_MAX + 1, 0), 3);
    assert_eq!(far(1, u64::MAX), 3);
    assert_eq!(bench.server.counters().refused.iter().sum::<u64>(), 2);
}
