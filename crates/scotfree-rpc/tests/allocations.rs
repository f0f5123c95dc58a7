//! After warm-up, the client's runtime allocates nothing per request.

mod common;

use allocation_counter::measure;
use common::{client, update, TestServer};
use scotfree_rpc::{CallLabel, ClientEvent, NoopHandler, ProbeOptions, ServerOptions, Volatile};

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
