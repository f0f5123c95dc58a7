//! How much the device's user-space plane adds to a UDP round trip: client and server in two network
//! namespaces, once over a veth pair of their own and once through the bridge, interleaved in one run.
//! Prints one JSON object; times in microseconds.
//!
//! Envelope: a round trip passes the bridge twice. Each pass costs one wake-up of the daemon, one
//! `recvmmsg`, one `sendmmsg` and one `epoll` call: 10 to 20 us of a small virtual machine, so 20 to
//! 40 us per round trip. `--spin MICROSECONDS` lets the daemon look for frames instead of sleeping,
//! which takes the wake-up away where a processor is free.

#[path = "../tests/namespaces/world.rs"]
#[allow(dead_code)]
mod world;

use scotfree_core::{DeviceId, Nanos};
use scotfree_io::now_monotonic;
use scotfree_switch::{Daemon, Notices, SwitchConfig};
use scotfree_wire::ClusterKey;
use std::io::BufRead;
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, ExitCode};
use world::{Role, CLIENT, SERVER};

const DIRECT: &str = "10.79.0.2:4000";
const BRIDGED: &str = "10.77.0.2:4000";
const PAYLOAD_BYTES: usize = 160;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["role", "all", rest @ ..] => measure(rest),
        ["role", "daemon", spin] => daemon(spin),
        ["role", "echo"] => echo(),
        ["role", "ping", to, count] => ping(to, count),
        options => return enter(options),
    }
    ExitCode::SUCCESS
}

fn enter(options: &[&str]) -> ExitCode {
    let after = |name: &str| options.iter().skip_while(|word| **word != name).nth(1).copied();
    let (rounds, count) = (after("--rounds").unwrap_or("10"), after("--count").unwrap_or("2000"));
    match world::enter_private_namespaces(&["all", rounds, count, after("--spin").unwrap_or("0")]) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("bridge_latency: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &[&str]) {
    world::set_up().expect("namespaces");
    let direct = "ip link add d0 netns scot-sw-client type veth peer name d1 netns scot-sw-server
        ip -n scot-sw-client addr add 10.79.0.1/24 dev d0; ip -n scot-sw-client link set d0 up
        ip -n scot-sw-server addr add 10.79.0.2/24 dev d1; ip -n scot-sw-server link set d1 up";
    assert!(Command::new("sh").args(["-e", "-c", direct]).status().expect("a shell").success());
    let rounds: usize = arguments[0].parse().expect("a number");
    let (count, spin) = (arguments[1], arguments[2]);

    let mut daemon = Role::start(None, &["daemon", spin]);
    daemon.wait_for("ready");
    let mut echo = Role::start(Some(SERVER), &["echo"]);
    echo.wait_for("ready");
    let mut direct = Vec::new();
    let mut bridged = Vec::new();
    for _ in 0..rounds {
        for (to, times) in [(DIRECT, &mut direct), (BRIDGED, &mut bridged)] {
            let mut ping = Role::start(Some(CLIENT), &["ping", to, count]);
            let line = ping.wait_for("times ");
            times.push(line.split(' ').map(|time| time.parse().expect("a number")).collect::<Vec<u64>>());
            assert!(ping.finish());
        }
    }
    print(&direct, &bridged, spin);
    assert!(echo.finish() && daemon.finish());
}

/// The quantile of each round, then the median over the rounds with the smallest and the largest.
fn quantile(rounds: &[Vec<u64>], share: f64) -> (f64, f64, f64) {
    let mut values: Vec<u64> = rounds
        .iter()
        .map(|round| {
            let mut round = round.clone();
            round.sort_unstable();
            round[((round.len() - 1) as f64 * share) as usize]
        })
        .collect();
    values.sort_unstable();
    let micros = |value: u64| value as f64 / 1_000.0;
    (micros(values[values.len() / 2]), micros(values[0]), micros(values[values.len() - 1]))
}

fn print(direct: &[Vec<u64>], bridged: &[Vec<u64>], spin: &str) {
    let part = |rounds: &[Vec<u64>]| {
        let ((p50, p50_min, p50_max), (p99, ..)) = (quantile(rounds, 0.5), quantile(rounds, 0.99));
        format!(
            "{{\"p50_us\": {p50:.1}, \"p50_us_min\": {p50_min:.1}, \"p50_us_max\": {p50_max:.1}, \
             \"p99_us\": {p99:.1}}}"
        )
    };
    let added = quantile(bridged, 0.5).0 - quantile(direct, 0.5).0;
    let (rounds, count) = (direct.len(), direct[0].len());
    println!(
        "{{\"payload_bytes\": {PAYLOAD_BYTES}, \"rounds\": {rounds}, \"count\": {count}, \
         \"spin_us\": {spin}, \"direct\": {}, \"bridged\": {}, \
         \"added_round_trip_p50_us\": {added:.1}, \"added_one_way_p50_us\": {:.1}}}",
        part(direct),
        part(bridged),
        added / 2.0
    );
}

fn daemon(spin: &str) {
    let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
    let key = ClusterKey::from_bytes([1; 32]);
    let (control, server) = (address("10.77.0.9:51000"), address("10.77.0.2:51000"));
    let mut config = SwitchConfig::new(DeviceId(1), &["p0", "p1"], control, server, key);
    config.functions = vec![remedy_persist::MAKER];
    config.spin = scotfree_io::Spin::UpTo(Nanos::from_micros(spin.parse().expect("a number")));
    let daemon = Daemon::start(&config, Notices::to_stderr()).expect("the daemon starts");
    println!("ready");
    let handle = daemon.handle();
    std::thread::spawn(move || {
        for _ in std::io::stdin().lock().lines() {}
        handle.stop();
    });
    daemon.run().expect("the daemon runs");
}

fn echo() {
    let socket = UdpSocket::bind("0.0.0.0:4000").expect("the port is free");
    println!("ready");
    std::thread::spawn(move || {
        let mut buffer = [0; 2_048];
        while let Ok((bytes, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..bytes], from);
        }
    });
    for _ in std::io::stdin().lock().lines() {}
}

fn ping(to: &str, count: &str) {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a free port");
    socket.connect(to).expect("a route");
    socket.set_read_timeout(Some(std::time::Duration::from_millis(500))).expect("a timeout");
    let count: usize = count.parse().expect("a number");
    let mut buffer = [0; 2_048];
    let mut times = Vec::new();
    // The first round trips resolve addresses and warm caches.
    let warm_up = 50;
    let mut sent = 0;
    while times.len() < count + warm_up {
        assert!(sent < 2 * (count + warm_up), "half of the datagrams are lost");
        sent += 1;
        let before = now_monotonic();
        socket.send(&[7; PAYLOAD_BYTES]).expect("a route");
        if socket.recv(&mut buffer).is_ok() {
            times.push(now_monotonic().since(before).0);
        }
    }
    let times: Vec<String> = times[warm_up..].iter().map(u64::to_string).collect();
    println!("times {}", times.join(" "));
}
