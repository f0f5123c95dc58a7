//! `scot bench ring`: what rings cost on this machine, beside UDP over loopback.
//!
//! Invariant: both arms of a comparison run in turns in one process, each side on a thread of its own, and what is
//! compared is the processor time of both.

use crate::cli::BenchRing;
use crate::failure::Failure;
use crate::out;
use crate::registry::TRANSPORTS;
use crate::serve::open_files_max;
use rustix::time::{clock_gettime, ClockId};
use scotfree_core::{Epoch, KeyHash, Nanos};
use scotfree_io::udp::{UdpConfig, UdpTransport};
use scotfree_io::{stderr, Cost, Spin, Transport, TransportMaker};
use scotfree_rpc::{
    CallLabel, ClientEvent, ClientOptions, ClientRuntime, Mode, NoopHandler, ProbeOptions, Request,
    RequestKind, ServerConfig, ServerOptions, ServerRuntime, SessionHandle, SessionOptions, Stop, Volatile,
};
use scotfree_stage::scratch::Scratch;
use scotfree_wire::ClusterKey;
use serde_json::json;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The transport that is measured.
const KIND: &str = "ring";
/// How many clients an idle server is measured with.
const CLIENTS: usize = 1_000;
const IDLE_FOR: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a side looks before it sleeps, where both look.
const LOOK: Spin = Spin::UpTo(Nanos::from_millis(1));
const WINDOW: u32 = 64;

fn is_missed(row: &Cost) -> bool {
    row.required.is_some_and(|required| row.value > required)
}

pub(super) fn run(flags: &BenchRing) -> Result<(), Failure> {
    open_files_max();
    let Some(maker) = TRANSPORTS.iter().find(|maker| maker.kind == KIND) else {
        return Err(Failure::environment("this build has no rings"));
    };
    let mut rows = measure(maker, flags.count).map_err(|error| {
        Failure::tried(
            "measure rings",
            &error,
            "see ulimit -n and TMPDIR, and whether processors 0 and 1 are this process's (taskset -p)",
        )
    })?;
    rows.sort_by_key(|row| !is_missed(row));
    if flags.json {
        let row = |row: &Cost| json!({ "what": row.what, "value": row.value, "unit": row.unit, "required": row.required });
        out::json(&json!({ "rows": rows.iter().map(row).collect::<Vec<_>>() }));
    } else {
        out::text(render(&rows));
    }
    Ok(())
}

fn render(rows: &[Cost]) -> String {
    let line = |row: &Cost| {
        let verdict = match row.required {
            _ if is_missed(row) => "MISSED",
            Some(_) => "met",
            None => "noted",
        };
        let required = row.required.map_or(String::new(), |most| format!(", required <= {most}"));
        format!("  {verdict:<7} {:<12} {}{required}\n", format!("{:.3} {}", row.value, row.unit), row.what)
    };
    rows.iter().map(line).collect()
}

fn measure(maker: &TransportMaker, count: usize) -> io::Result<Vec<Cost>> {
    stderr::line(format_args!("rings, both sides looking …"));
    let mut rows = (maker.costs)(count)?;
    let mut note = |what, value, unit, required| rows.push(Cost { what, value, unit, required });
    stderr::line(format_args!("an idle server with {CLIENTS} clients …"));
    let idle = idle_share(maker)? * 100.0;
    note("processor share of an idle server with 1,000 rings", idle, "%", Some(1.0));
    stderr::line(format_args!("calls of nothing, by rings and by UDP in turns …"));
    calls(maker, count, &mut note)?;
    Ok(rows)
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn broke(why: String) -> io::Error {
    io::Error::other(why)
}

// ---- a server that does nothing

fn idle_share(maker: &TransportMaker) -> io::Result<f64> {
    let folder = folder()?;
    let place = folder.path().join("ring");
    with_server(
        || (maker.listen)(&place).map_err(broke),
        Spin::WhileItPays,
        |_| {
            let connected: io::Result<Vec<_>> =
                (0..CLIENTS).map(|_| (maker.connect)(&place).map_err(broke)).collect();
            let clients = connected?;
            let before = processor_time();
            thread::sleep(IDLE_FOR);
            let spent = processor_time().saturating_sub(before);
            drop(clients);
            Ok(spent.as_secs_f64() / IDLE_FOR.as_secs_f64())
        },
    )
}

/// Does something while a server runs in a thread of its own, which makes its transport there.
fn with_server<R>(
    listen: impl FnOnce() -> io::Result<Box<dyn Transport>> + Send,
    spin: Spin,
    job: impl FnOnce(SocketAddr) -> io::Result<R>,
) -> io::Result<R> {
    let stop = Stop::new()?;
    let (say, hear) = mpsc::channel();
    thread::scope(|scope| {
        let stop_heard = &stop;
        let serving = scope.spawn(move || {
            let transport = listen()?;
            say.send(transport.local_address()).map_err(io::Error::other)?;
            serve(transport, spin, stop_heard)
        });
        // A server that has ended without an address says why below.
        let done = hear.recv().map_err(io::Error::other).and_then(job);
        stop.stop();
        serving.join().expect("the server ends")?;
        done
    })
}

// ---- calls of nothing

/// How a call is made.
#[derive(Debug, Clone, Copy)]
struct Manner {
    spin: Spin,
    outstanding: usize,
}

const ONE_LOOKING: Manner = Manner { spin: LOOK, outstanding: 1 };
const MANY: Manner = Manner { spin: LOOK, outstanding: 32 };
const ONE_SLEEPING: Manner = Manner { spin: Spin::Never, outstanding: 1 };
/// So often each arm is measured.
const TURNS: usize = 5;

fn calls(
    maker: &TransportMaker,
    count: usize,
    note: &mut impl FnMut(&'static str, f64, &'static str, Option<f64>),
) -> io::Result<()> {
    let compare = |manner: Manner, count: usize| -> io::Result<(f64, f64)> {
        let (mut rings, mut udp) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            rings.push(by_rings(maker, manner, count)?);
            udp.push(by_udp(manner, count)?);
        }
        Ok((median_of(rings), median_of(udp)))
    };
    let (rings, udp) = compare(ONE_LOOKING, count)?;
    note(
        "processor time of both sides for a call of nothing, by a ring over by UDP, both looking",
        rings / udp,
        "x",
        Some(0.35),
    );
    note("the same by a ring", rings, "us", None);
    note("the same by UDP", udp, "us", None);
    let (rings, udp) = compare(MANY, count)?;
    note("processor time for a call of nothing, 32 under way, by a ring over by UDP", rings / udp, "x", None);
    note("the same by a ring", rings, "us", None);
    note("the same by UDP", udp, "us", None);
    let (rings, udp) = compare(ONE_SLEEPING, count.min(20_000))?;
    note(
        "processor time for a call of nothing, both asleep between calls, by a ring over by UDP",
        rings / udp,
        "x",
        None,
    );
    note("the same by a ring", rings, "us", None);
    note("the same by UDP", udp, "us", None);
    Ok(())
}

fn median_of(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn by_rings(maker: &TransportMaker, manner: Manner, count: usize) -> io::Result<f64> {
    let folder = folder()?;
    let place = folder.path().join("ring");
    let connect = || (maker.connect)(&place).map_err(broke);
    spent(|| (maker.listen)(&place).map_err(broke), connect, manner, count)
}

fn by_udp(manner: Manner, count: usize) -> io::Result<f64> {
    let bind = || -> io::Result<Box<dyn Transport>> {
        let config = UdpConfig { stamps: false, ..UdpConfig::default() };
        Ok(Box::new(UdpTransport::bind("127.0.0.1:0".parse().expect("an address"), &config)?))
    };
    spent(bind, bind, manner, count)
}

/// The processor time of both sides for a call, in microseconds.
fn spent(
    listen: impl FnOnce() -> io::Result<Box<dyn Transport>> + Send,
    connect: impl FnOnce() -> io::Result<Box<dyn Transport>>,
    manner: Manner,
    count: usize,
) -> io::Result<f64> {
    with_server(listen, manner.spin, |address| {
        let options = ClientOptions { probes: ProbeOptions::OFF, ..ClientOptions::new(address, key()) };
        let mut client = ClientRuntime::new(connect()?, options);
        client.spin(manner.spin)?;
        let asked = SessionOptions { window_asked: WINDOW, ..SessionOptions::default() };
        let session = client.start_session(asked).map_err(io::Error::other)?;
        client.wait_open(session, PATIENCE).map_err(io::Error::other)?;
        call(&mut client, session, manner.outstanding, count / 10)?;
        let before = processor_time();
        call(&mut client, session, manner.outstanding, count)?;
        Ok(processor_time().saturating_sub(before).as_secs_f64() * 1e6 / count as f64)
    })
}

fn key() -> ClusterKey {
    ClusterKey::from_bytes([7; 32])
}

fn serve(transport: impl Transport, spin: Spin, stop: &Stop) -> io::Result<()> {
    let config = ServerConfig::new(transport.local_address(), key(), Epoch(1), [1; 16], Vec::new());
    let options = ServerOptions { spin, probes: ProbeOptions::OFF, ..ServerOptions::default() };
    let mut server = ServerRuntime::new(transport, Volatile(NoopHandler::new()), config, &[], options);
    server.run(stop, None).map(drop)
}

/// Calls so often, with so many under way.
fn call<T: Transport>(
    client: &mut ClientRuntime<T>,
    session: SessionHandle,
    outstanding: usize,
    count: usize,
) -> io::Result<()> {
    let payload = [7; 64];
    let request = Request {
        kind: RequestKind::Read,
        mode: Mode::Covered,
        fixed_reply: false,
        relaxed: true,
        traced: false,
        key_hash: KeyHash(0),
        payload: &payload,
    };
    let (mut asked, mut answered) = (0, 0);
    while answered < count {
        while asked < count && asked - answered < outstanding {
            let submitted = client.submit(session, request, CallLabel::new("noop"));
            submitted.map_err(|error| io::Error::other(format!("no call: {error:?}")))?;
            asked += 1;
        }
        client.turn()?;
        let before = answered;
        while let Some(event) = client.next_event() {
            match event {
                ClientEvent::Completed { .. } => answered += 1,
                ClientEvent::Opened { .. } => {}
                ClientEvent::Closed { reason, .. } => {
                    return Err(io::Error::other(format!("the session has ended: {reason:?}")));
                }
            }
        }
        if answered == before {
            client.wait(Some(PATIENCE))?;
        }
    }
    Ok(())
}

/// A folder for a socket.
fn folder() -> io::Result<Scratch> {
    Scratch::new("ring").map_err(|trouble| io::Error::other(trouble.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missed_stands_first_and_says_what_is_required() {
        let rows = [
            Cost { what: "slow", value: 2.0, unit: "us", required: Some(1.0) },
            Cost { what: "known", value: 2.0, unit: "us", required: None },
            Cost { what: "quick", value: 0.5, unit: "us", required: Some(1.0) },
        ];
        let text = render(&rows);
        assert!(text.contains("MISSED  2.000 us     slow, required <= 1\n"), "{text}");
        assert!(text.contains("noted   2.000 us     known\n") && text.contains("met     0.500 us     quick"));
        assert!(rows.iter().map(is_missed).eq([true, false, false]));
    }
}
