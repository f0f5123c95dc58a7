//! What happens at the limits that no configuration names: each `*_MAX` of the machines, reached.

use super::bench::{recovered, ServerBench};
use crate::by_hand::{
    accept, address, barrier, client_address, cluster, header, nonce, packet, sent, server_address,
    session_keys, update, NOW,
};
use crate::client::{DEVICES_MAX, RESPONSE_SETS_MAX, SPARE_BYTES_MAX, UNTOLD_BYTES_MAX};
use crate::server::SEQ_MAX;
use crate::{
    Client, ClientConfig, ClientOwn, CompletedBy, ExtendedError, Mode, Request, RequestKind, Server,
    ServerConfig, SubmitError,
};
use scotfree_core::{
    DeviceId, Durability, Effect, Effects, Epoch, KeyHash, Machine, Nanos, SeqNum, SessionId, Token,
};
use scotfree_wire::{
    emit_extended, emit_stamp, fragments, AcceptTail, Answerer, Direction, ExtensionSet, Extensions, Family,
    Header, HeartbeatTail, Key, Kind, ObjectNote, Packet, ResponseTail, SessionKeys, Stamp, StampKind, Tail,
    WireError, PAYLOAD_BYTES_MAX,
};

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

/// As many buffers are kept as requests may be outstanding.
#[test]
fn a_client_keeps_no_buffer_larger_than_spare_bytes_max() {
    let (mut client, mut effects) = open_client(1);
    for seq in 1..=20 {
        submit(&mut client, RequestKind::Read, &mut effects);
        respond(&mut client, seq, &vec![0; 40 * SPARE_BYTES_MAX], &mut effects);
    }
    assert!(client.spare.iter().all(|buffer| buffer.capacity() <= SPARE_BYTES_MAX), "{}", client.spare.len());
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

const FURTHER: Extensions<'static> = Extensions { further_keys: &[KeyHash(7)], ..Extensions::NONE };

fn read() -> Request<'static> {
    Request {
        kind: RequestKind::Read,
        mode: Mode::Covered,
        fixed_reply: false,
        relaxed: false,
        traced: false,
        key_hash: KeyHash(3),
        payload: b"MGET a b",
    }
}

/// A client whose server takes these extensions.
fn client_of(offered: ExtensionSet) -> (Client, Effects<ClientOwn>) {
    let mut client =
        Client::new(ClientConfig::new(client_address(), server_address(), cluster(), nonce(1), 1));
    let mut effects = Effects::new();
    client.open(NOW, &mut effects);
    let mut accepted = header(Kind::SessionAccept, 1, 0);
    accepted.set_offered(offered);
    let tail = AcceptTail { client_nonce: nonce(1), server_nonce: [9; 16], window: 8, expiry_ms: 1_000 };
    let key = cluster().control(Direction::Handshake);
    let accept = packet(&accepted, &Tail::Accept(tail), &[], &key);
    client.on_message(NOW, server_address(), client_address(), &accept, &mut effects);
    effects.clear();
    (client, effects)
}

#[test]
fn extensions_go_only_to_a_server_that_takes_them_and_come_with_every_retry() {
    let (mut client, mut effects) = client_of(ExtensionSet::IDENTITY);
    let refused = client.submit_extended(NOW, read(), &FURTHER, &mut effects);
    assert_eq!((refused, effects.len()), (Err(ExtendedError::NotOffered), 0));
    let (mut client, mut effects) = client_of(ExtensionSet::KEYS);
    let large = Request { payload: &[0; PAYLOAD_BYTES_MAX - 15], ..read() };
    let refused = client.submit_extended(NOW, large, &FURTHER, &mut effects);
    assert_eq!(refused, Err(ExtendedError::Submit(SubmitError::TooLarge)), "it needs two packets");
    client.submit_extended(NOW, read(), &FURTHER, &mut effects).expect("the server takes it");
    client.on_timer(NOW.plus(Nanos::from_secs(60)), &mut effects);
    let requests: Vec<Vec<u8>> =
        sent(&mut effects).into_iter().filter(|bytes| bytes[5] == Kind::Read as u8).collect();
    assert_eq!(requests.len(), 2);
    for bytes in requests {
        let packet = Packet::parse(&bytes).expect("whole");
        assert_eq!(packet.extensions().further_keys().collect::<Vec<_>>(), [KeyHash(7)]);
        assert_eq!(
            (packet.payload(), packet.verify(&session_keys(1).client_to_server)),
            (read().payload, Ok(()))
        );
    }
}

#[test]
fn a_server_refuses_extensions_that_it_has_not_offered() {
    for (offered, executed) in [(ExtensionSet::ALL, 1), (ExtensionSet::OBJECT, 0)] {
        let mut bench = ServerBench::new(&[recovered(1, 0)], |config| config.extensions = offered);
        bench.manifest(1, 0, 1, &[]);
        let mut bytes = Vec::new();
        let mut request = header(Kind::Read, 1, 1);
        request.key_hash = KeyHash(3);
        let key = session_keys(1).client_to_server;
        emit_extended(&request, &Tail::Stamp(Stamp::default()), &FURTHER, b"x", &key, &mut bytes);
        emit_stamp(&mut bytes, &barrier(1, 0, 0), &cluster().control(Direction::Stamp)).expect("a request");
        bench.receive(client_address(), &bytes);
        let refused = bench.server.counters().refused[WireError::ExtensionNotOffered as usize];
        assert_eq!((bench.executed.len(), refused), (executed, 1 - executed as u64), "{offered:?}");
        let response = bench.last_sent(Kind::Response);
        assert_eq!(response.map(|response| response.key_hash), (executed == 1).then_some(KeyHash(3)));
    }
}

#[test]
fn what_the_application_vouches_for_is_said_with_its_reply_and_with_no_other() {
    let said = |kind: Kind, reply: &[u8], failed: bool| {
        let mut bench = ServerBench::new(&[recovered(1, 0)], |_| {});
        bench.manifest(1, 0, 1, &[]);
        bench.answers = false;
        bench.request(kind, 1, 1, barrier(1, 0, 0));
        bench.act(|server, now, effects| {
            server.on_lives(1, 7);
            server.on_executed(now, 1, reply, failed, ResponseTail::default(), effects);
            server.on_persisted(now, Token(1), effects);
        });
        let is_response = |bytes: &Vec<u8>| bytes[5] == Kind::Response as u8;
        let sent = std::mem::take(&mut bench.sent).into_iter().map(|(_, bytes)| bytes).find(is_response);
        let sent = sent.expect("it is answered");
        Packet::parse(&sent).expect("whole").extensions().object()
    };
    let note = Some(ObjectNote { value_bytes: 2, remaining_ms: 7 });
    assert_eq!(said(Kind::Read, b"ok", false), note);
    assert_eq!(said(Kind::Read, b"no", true), None, "it failed");
    assert_eq!(said(Kind::Bypass, b"ok", false), None, "it is no read");
    assert_eq!(said(Kind::Read, &[0; 3_000], false), None, "it needs several packets");
}

/// The response of a device's function to request 1.
fn answered_by_a_function(key: &Key) -> Vec<u8> {
    let answered_by = Answerer::device(DeviceId(4), Family::Trial);
    let tail = ResponseTail { answered_by, ..ResponseTail::default() };
    packet(&header(Kind::Response, 1, 1), &Tail::Response(tail), b"seven", key)
}

#[test]
fn a_function_of_a_device_answers_reads_under_its_own_key_and_nothing_else() {
    let keys = session_keys(1);
    for (kind, key, answered) in [
        (RequestKind::Read, keys.device_to_client, true),
        (RequestKind::Read, keys.server_to_client, false),
        (RequestKind::Update, keys.device_to_client, false),
        (RequestKind::Bypass, keys.device_to_client, false),
    ] {
        let (mut client, mut effects) = client_of(ExtensionSet::NONE);
        client.submit(NOW, Request { kind, ..read() }, &mut effects).expect("the window is open");
        effects.clear();
        let bytes = answered_by_a_function(&key);
        client.on_message(NOW, server_address(), client_address(), &bytes, &mut effects);
        let by = effects.iter().find_map(|effect| match effect {
            Effect::Own(ClientOwn::Complete(completion)) => Some(completion.answered_by),
            _ => None,
        });
        let function = CompletedBy::Function(Answerer::device(DeviceId(4), Family::Trial));
        assert_eq!(by, answered.then_some(function), "{kind:?}");
        assert_eq!(client.counters().refused.iter().sum::<u64>(), u64::from(!answered), "{kind:?}");
    }
}
