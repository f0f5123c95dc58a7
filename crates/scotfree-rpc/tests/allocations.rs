//! After warm-up, neither a client's runtime nor a group's client allocates anything per request.

mod common;

use allocation_counter::measure;
use common::{client, socket, update, TestServer, KEY};
use scotfree_rpc::{
    CallLabel, ClientEvent, ClientOptions, ClientRuntime, GroupClient, GroupEvent, GroupMember, GroupOptions,
    NoopHandler, ProbeOptions, RequestKind, ServerOptions, Volatile,
};
use scotfree_wire::ClusterKey;

const LABEL: CallLabel = CallLabel::new("SET");

#[test]
fn a_warm_client_does_not_allocate() {
    const CALLS: u64 = 20_000;
    let server = TestServer::start(Volatile(NoopHandler::new()), ServerOptions::default());
    for probes in [ProbeOptions::OFF, ProbeOptions::default()] {
        let (mut client, session) = client(server.address, probes);
        let mut run = |calls: u64| {
            let (mut submitted, mut completed) = (0, 0);
            while completed < calls {
                while submitted < calls && submitted - completed < 64 {
                    client.submit(session, update(&[7; 100]), LABEL).expect("within the window");
                    submitted += 1;
                }
                client.turn().expect("the socket works");
                while let Some(event) = client.next_event() {
                    completed += u64::from(matches!(event, ClientEvent::Completed { .. }));
                }
                while client.next_record().is_some() {}
                client.wait(None).expect("the socket works");
            }
        };
        run(CALLS);
        let allocations = measure(|| run(CALLS)).count_total;
        // A burst larger than any before may still make buffers grow, and after a pause of the machine there
        // are retransmissions; but nothing is allocated for each call, nor for each of which a stamp is asked.
        assert!(allocations < CALLS / 128, "{allocations} allocations in {CALLS} calls with {probes:?}");
    }
}

#[test]
fn a_warm_client_of_a_group_does_not_allocate() {
    const CALLS: u64 = 20_000;
    let server = || TestServer::start(Volatile(NoopHandler::new()), ServerOptions::default());
    let servers = [server(), server()];
    let member = |id: usize| GroupMember { id: id as u8, address: servers[id].address };
    let options = ClientOptions {
        probes: ProbeOptions::OFF,
        ..ClientOptions::new(servers[0].address, ClusterKey::from_bytes(KEY))
    };
    let options =
        (ClientRuntime::new(socket(), options), GroupOptions::new(vec![member(0), member(1)], [1; 16], 1));
    let mut client = GroupClient::new(options.0, options.1).expect("two members");
    let mut run = |calls: u64| {
        let (mut submitted, mut answered) = (0, 0);
        while answered < calls {
            while submitted < calls && submitted - answered < 64 {
                let kind = [RequestKind::Read, RequestKind::Update][submitted as usize % 2];
                client.submit(kind, &[7; 100], LABEL).expect("there is room");
                submitted += 1;
            }
            client.turn().expect("the socket works");
            while let Some(event) = client.next_event() {
                answered += u64::from(matches!(event, GroupEvent::Answered { .. }));
            }
            client.wait(None).expect("the socket works");
        }
    };
    run(CALLS);
    let allocations = measure(|| run(CALLS)).count_total;
    assert!(allocations < CALLS / 128, "{allocations} allocations in {CALLS} calls");
}
