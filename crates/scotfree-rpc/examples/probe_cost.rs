//! What the stamps cost: processor time per call of a no-op server over loopback, with and without
//! them, and calls per second.
//!
//! Client and server run in one process, in a thread each. Rounds with and without stamps take turns,
//! so that whatever else the machine does hits both; the medians are compared. Where the two threads
//! are what limits the throughput, its cost is that of the processor time; on a busy machine only the
//! latter means something.
//!
//! Usage: `probe_cost` [ROUNDS [CALLS]]

use scotfree_core::{Epoch, KeyHash, Nanos};
use scotfree_io::udp::{UdpConfig, UdpTransport};
use scotfree_io::{now_monotonic, Transport};
use scotfree_rpc::{
    CallLabel, ClientEvent, ClientOptions, ClientRuntime, Mode, NoopService, ProbeOptions, Request,
    RequestKind, ServerConfig, ServerOptions, ServerRuntime, SessionOptions, Stop,
};
use scotfree_wire::ClusterKey;
use std::error::Error;

const CLUSTER_KEY: [u8; 32] = [1; 32];
const OUTSTANDING: u64 = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let argument = |index, default: u64| std::env::args().nth(index).map_or(Ok(default), |text| text.parse());
    let (rounds, calls) = (argument(1, 21)?, argument(2, 50_000)?);
    round(ProbeOptions::OFF, calls)?;
    let mut rounds_of: [Vec<Round>; 2] = Default::default();
    for number in 0..rounds {
        // The order alternates too.
        let order = if number % 2 == 0 { [0, 1] } else { [1, 0] };
        for kind in order {
            let probes = if kind == 0 {
                ProbeOptions::OFF
            } else {
                ProbeOptions { record_every: 64, ..ProbeOptions::default() }
            };
            rounds_of[kind].push(round(probes, calls)?);
        }
    }
    report("processor time per call [ns]", &rounds_of, |round| round.cpu_ns_per_call);
    report("calls per second", &rounds_of, |round| round.calls_per_second);
    Ok(())
}

/// What one round has measured.
struct Round {
    cpu_ns_per_call: f64,
    calls_per_second: f64,
}

fn report(what: &str, rounds: &[Vec<Round>; 2], value: impl Fn(&Round) -> f64) {
    let sorted = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values
    };
    let [without, with] = rounds.each_ref().map(|rounds| sorted(rounds.iter().map(&value).collect()));
    let pairs = rounds[1].iter().zip(&rounds[0]).map(|(with, without)| value(with) / value(without));
    let ratios = sorted(pairs.collect());
    let at = |values: &[f64], quarter: usize| values[values.len() * quarter / 4];
    println!(
        "{what}: without stamps {:.0}, with stamps {:.0}; ratio {:.4} (quartiles {:.4} to {:.4}, {} pairs)",
        at(&without, 2),
        at(&with, 2),
        at(&ratios, 2),
        at(&ratios, 1),
        at(&ratios, 3),
        ratios.len()
    );
}

/// The processor time of all threads of this process so far.
fn cpu_ns() -> Result<u64, Box<dyn Error>> {
    let mut total = 0;
    for thread in std::fs::read_dir("/proc/self/task")? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        total += text.split(' ').next().unwrap_or_default().parse::<u64>()?;
    }
    Ok(total)
}

fn round(probes: ProbeOptions, calls: u64) -> Result<Round, Box<dyn Error>> {
    let any = "127.0.0.1:0".parse()?;
    let udp = UdpConfig { stamps: probes.stamps, ..UdpConfig::default() };
    let transport = UdpTransport::bind(any, &udp)?;
    let server = transport.local_address();
    let stop = Stop::new()?;
    let config =
        ServerConfig::new(server, ClusterKey::from_bytes(CLUSTER_KEY), Epoch(1), [0; 16], Vec::new());
    let options = ServerOptions { probes, ..ServerOptions::default() };
    let thread = std::thread::spawn({
        let stop = stop.clone();
        move || ServerRuntime::new(transport, NoopService::new(), config, &[], options).run(&stop, None)
    });
    let options = ClientOptions { probes, ..ClientOptions::new(server, ClusterKey::from_bytes(CLUSTER_KEY)) };
    let mut client = ClientRuntime::new(UdpTransport::bind(any, &udp)?, options);
    let measured = measure(&mut client, calls)?;
    stop.stop();
    thread.join().map_err(|_| "the server's thread panicked")??;
    Ok(measured)
}

fn measure(client: &mut ClientRuntime<UdpTransport>, calls: u64) -> Result<Round, Box<dyn Error>> {
    let session = client.start_session(SessionOptions::default())?;
    client.wait_open(session, std::time::Duration::from_secs(10))?;
    let request = Request {
        kind: RequestKind::Update,
        mode: Mode::Covered,
        fixed_reply: false,
        relaxed: false,
        traced: false,
        key_hash: KeyHash(1),
        payload: &[7; 64],
    };
    let (mut submitted, mut completed, mut started, mut cpu) = (0, 0, Nanos(0), 0);
    let warm_up = calls / 10;
    while completed < calls + warm_up {
        while submitted < calls + warm_up && submitted - completed < OUTSTANDING {
            client
                .submit(session, request, CallLabel::new("update"))
                .map_err(|error| format!("{error:?}"))?;
            submitted += 1;
        }
        client.turn()?;
        while let Some(event) = client.next_event() {
            completed += u64::from(matches!(event, ClientEvent::Completed { .. }));
        }
        while client.next_record().is_some() {}
        if completed >= warm_up && started == Nanos(0) {
            started = now_monotonic();
            cpu = cpu_ns()?;
        }
        // Behind the last call nothing comes but the next heartbeat.
        if completed < calls + warm_up {
            client.wait(None)?;
        }
    }
    Ok(Round {
        cpu_ns_per_call: (cpu_ns()? - cpu) as f64 / calls as f64,
        calls_per_second: calls as f64 / (now_monotonic().since(started).0 as f64 / 1e9),
    })
}
