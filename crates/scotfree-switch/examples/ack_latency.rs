//! How long a client waits for one update through the user-space device, one at a time: for the
//! device's acknowledgement (early), for acknowledgement and reply (covered), and for the reply alone
//! (no durability asked: the device only forwards). Interleaved in one run; prints one JSON object.
//!
//! The server executes at once, into a file in memory; every process blocks while it waits. Envelope:
//! the acknowledgement crosses two links and the device, 20 to 30 us; the reply crosses four links,
//! the device twice and the server, 50 to 70 us.

#[path = "../tests/namespaces/roles.rs"]
#[allow(dead_code)]
mod roles;
#[path = "../tests/namespaces/world.rs"]
#[allow(dead_code)]
mod world;

use std::process::ExitCode;
use world::{Role, CLIENT, SERVER};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["role", "all", rounds, count] => measure(rounds, count),
        ["role", "client", rest @ ..] => roles::client(rest),
        ["role", "server", rest @ ..] => roles::server(rest),
        ["role", "daemon", rest @ ..] => roles::daemon(rest),
        options => return enter(options),
    }
    ExitCode::SUCCESS
}

fn enter(options: &[&str]) -> ExitCode {
    let after = |name: &str| options.iter().skip_while(|word| **word != name).nth(1).copied();
    let (rounds, count) = (after("--rounds").unwrap_or("10"), after("--count").unwrap_or("1000"));
    match world::enter_private_namespaces(&["all", rounds, count]) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("ack_latency: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn measure(rounds: &str, count: &str) {
    world::set_up().expect("namespaces");
    let rounds: usize = rounds.parse().expect("a number");
    let mut daemon = Role::start(None, &["daemon", "/run/scot-sw-ram.log", "-"]);
    daemon.wait_for("metrics ");
    let store = "/run/scot-sw-store";
    let mut server = Role::start(Some(SERVER), &["server", "10.77.0.2:51000", "10.77.0.9:51000", store]);
    server.wait_for("serving");
    let kinds = [("early", "ram", "early"), ("covered", "ram", "covered"), ("server", "none", "covered")];
    let mut clients: Vec<Role> = Vec::new();
    for (index, (_, durability, mode)) in kinds.iter().enumerate() {
        let local = format!("10.77.0.1:{}", 51_001 + index);
        let arguments = ["client", &local, "10.77.0.2:51000", durability, mode];
        let mut client = Role::start(Some(CLIENT), &arguments);
        client.wait_for("open");
        client.tell("time 200");
        client.wait_for("times ");
        clients.push(client);
    }
    let mut medians = vec![Vec::new(); kinds.len()];
    let mut tails = vec![Vec::new(); kinds.len()];
    for _ in 0..rounds {
        for (index, client) in clients.iter_mut().enumerate() {
            client.tell(&format!("time {count}"));
            let line = client.wait_for("times ");
            let mut times: Vec<u64> = line.split(' ').map(|time| time.parse().expect("a number")).collect();
            times.sort_unstable();
            medians[index].push(times[times.len() / 2]);
            tails[index].push(times[times.len() * 99 / 100]);
        }
    }
    let parts: Vec<String> = (0..kinds.len())
        .map(|index| describe(kinds[index].0, &mut medians[index], &mut tails[index]))
        .collect();
    let ratio = medians[2][rounds / 2] as f64 / medians[0][rounds / 2] as f64;
    println!(
        "{{\"rounds\": {rounds}, \"count\": {count}, {}, \"server_over_early_p50\": {ratio:.2}}}",
        parts.join(", ")
    );
}

/// The median over the rounds of median and tail, with the smallest and the largest median.
fn describe(name: &str, medians: &mut [u64], tails: &mut [u64]) -> String {
    medians.sort_unstable();
    tails.sort_unstable();
    let micros = |value: u64| value as f64 / 1_000.0;
    let middle = medians.len() / 2;
    let (p50, low, high) = (medians[middle], medians[0], medians[medians.len() - 1]);
    format!(
        "\"{name}\": {{\"p50_us\": {:.1}, \"p50_us_min\": {:.1}, \"p50_us_max\": {:.1}, \
         \"p99_us\": {:.1}}}",
        micros(p50),
        micros(low),
        micros(high),
        micros(tails[middle])
    )
}
