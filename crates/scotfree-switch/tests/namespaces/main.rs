//! The device between real network namespaces, with real processes: ordinary traffic passes it
//! unchanged, and a session's updates survive the death of the server and of the daemon.
//!
//! Without root and without user namespaces there is nothing to run in: the test then says SKIP and
//! why.

mod roles;
mod world;

use std::path::{Path, PathBuf};
use world::{ask, await_that, page, Role, CLIENT, SERVER};

type Test = fn(&Path);

/// Name and body of each test.
const TESTS: [(&str, Test); 13] = [
    ("ordinary_traffic_passes_unchanged", ordinary_traffic_passes_unchanged),
    ("an_interface_may_go_down_and_come_back", an_interface_may_go_down_and_come_back),
    ("a_disk_that_is_too_small_is_named", a_disk_that_is_too_small_is_named),
    ("the_device_answers_for_its_control_address", the_device_answers_for_its_control_address),
    ("updates_survive_the_server", updates_survive_the_server),
    ("a_session_works_over_ipv6", a_session_works_over_ipv6),
    ("updates_survive_the_daemon", updates_survive_the_daemon),
    (
        "a_lost_log_stops_acknowledgements_and_nothing_else",
        a_lost_log_stops_acknowledgements_and_nothing_else,
    ),
    (
        "a_full_file_system_stops_acknowledgements_and_nothing_else",
        a_full_file_system_stops_acknowledgements_and_nothing_else,
    ),
    ("a_bad_link_loses_nothing_that_was_acknowledged", a_bad_link_loses_nothing_that_was_acknowledged),
    ("two_daemons_do_not_share_a_log", two_daemons_do_not_share_a_log),
    ("frames_that_are_too_long_are_an_alarm", frames_that_are_too_long_are_an_alarm),
    // The last, as it takes a port away.
    ("an_interface_that_is_gone_is_an_alarm", an_interface_that_is_gone_is_an_alarm),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["role", "all", filter @ ..] => run_tests(filter),
        ["role", "client", rest @ ..] => roles::client(rest),
        ["role", "server", rest @ ..] => roles::server(rest),
        ["role", "daemon", rest @ ..] => roles::daemon(rest),
        ["role", "echo", rest @ ..] => roles::echo(rest),
        ["role", "ping", rest @ ..] => roles::ping(rest),
        ["role", "tagged-echo", rest @ ..] => roles::tagged_echo(rest),
        ["role", "tagged-ping", rest @ ..] => roles::tagged_ping(rest),
        ["role", "poke", rest @ ..] => roles::poke(rest),
        ["role", "stream", rest @ ..] => roles::stream(rest),
        _ if arguments.contains(&"--list") => TESTS.iter().for_each(|(name, _)| println!("{name}: test")),
        filter => enter(filter),
    }
}

fn enter(filter: &[&str]) {
    let names: Vec<&str> = filter.iter().copied().filter(|word| !word.starts_with('-')).collect();
    let mut arguments = vec!["all"];
    arguments.extend(names);
    match world::enter_private_namespaces(&arguments) {
        Ok(true) => {}
        Ok(false) => std::process::exit(1),
        Err(reason) => println!("SKIP namespaces: {reason}"),
    }
}

fn run_tests(filter: &[&str]) {
    if let Err(reason) = world::set_up() {
        println!("SKIP namespaces: setting them up failed: {reason}");
        return;
    }
    let scratch = Path::new("/run/scot-sw");
    for (name, test) in
        TESTS.iter().filter(|(name, _)| filter.is_empty() || filter.iter().any(|word| name.contains(word)))
    {
        let folder = scratch.join(name);
        std::fs::create_dir_all(&folder).expect("a scratch folder");
        test(&folder);
        println!("test {name} ... ok");
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the path is text")
}

fn start_daemon(ram: &str, disk: &str) -> (Role, String) {
    let mut daemon = Role::start(None, &["daemon", ram, disk]);
    let metrics = daemon.wait_for("metrics ");
    (daemon, metrics)
}

fn ordinary_traffic_passes_unchanged(_scratch: &Path) {
    let (daemon, metrics) = start_daemon("-", "-");
    let addresses = ["10.77.0.2:4000", "[fd77::2]:4000"];
    let mut echo = Role::start(Some(SERVER), &[&["echo"], &addresses[..], &["10.77.0.2:4001"]].concat());
    echo.wait_for("listening");
    for address in addresses {
        let mut ping = Role::start(Some(CLIENT), &["ping", address, "40"]);
        assert_eq!(ping.wait_for("came back "), "40 of 40", "{address}");
    }
    let mut stream = Role::start(Some(CLIENT), &["stream", "10.77.0.2:4001", "4000000"]);
    stream.wait_for("whole");
    let mut tagged_echo = Role::start(Some(SERVER), &["tagged-echo", "s0"]);
    tagged_echo.wait_for("listening");
    let mut tagged = Role::start(Some(CLIENT), &["tagged-ping", "c0", "10"]);
    assert_eq!(tagged.wait_for("came back "), "10 of 10");
    // Two stations untagged and in each of ten virtual networks.
    assert_eq!(value(&metrics, "scotfree_bridge_stations"), 22);
    assert!(page(&metrics, "/healthz").starts_with("HTTP/1.1 200"));
    assert!(tagged_echo.finish());
    assert!(echo.finish());
    assert!(daemon.finish());
}

fn an_interface_may_go_down_and_come_back(_scratch: &Path) {
    let (mut daemon, _) = start_daemon("-", "-");
    let mut echo = Role::start(Some(SERVER), &["echo", "10.77.0.2:4000", "10.77.0.2:4001"]);
    echo.wait_for("listening");
    let pass = || {
        let mut ping = Role::start(Some(CLIENT), &["ping", "10.77.0.2:4000", "5"]);
        assert_eq!(ping.wait_for("came back "), "5 of 5");
    };
    pass();
    for state in ["down", "up"] {
        let set = std::process::Command::new("ip").args(["link", "set", "p0", state]).status();
        assert!(set.expect("ip").success());
        if state == "down" {
            daemon.wait_for("notice interface p0 went down");
        }
    }
    pass();
    assert!(echo.finish());
    assert!(daemon.finish());
}

/// A host that leaves segmenting to its interface sends frames of 64 KiB over a veth.
fn frames_that_are_too_long_are_an_alarm(_scratch: &Path) {
    let (mut daemon, metrics) = start_daemon("-", "-");
    assert!(!page(&metrics, "/healthz").contains("too long"));
    let mut echo = Role::start(Some(SERVER), &["echo", "10.77.0.2:4000", "10.77.0.2:4001"]);
    echo.wait_for("listening");
    ask(CLIENT, "ethtool -K c0 tso on gso on");
    let stream = Role::start(Some(CLIENT), &["stream", "10.77.0.2:4001", "4000000"]);
    let alarm = daemon.wait_for("notice ALARM: port p0 has dropped frames longer than its mtu of 1500");
    assert!(alarm.contains("ethtool -K OTHER_END tx off tso off gso off"), "{alarm}");
    let health = page(&metrics, "/healthz");
    assert!(health.starts_with("HTTP/1.1 200") && health.contains("; port p0 drops frames"), "{health}");
    stream.kill();
    ask(CLIENT, "ethtool -K c0 tso off gso off");
    assert!(echo.finish());
    assert!(daemon.finish());
}

fn an_interface_that_is_gone_is_an_alarm(_scratch: &Path) {
    let (mut daemon, metrics) = start_daemon("-", "-");
    assert!(page(&metrics, "/healthz").starts_with("HTTP/1.1 200"));
    let removed = std::process::Command::new("ip").args(["link", "del", "p0"]).status();
    assert!(removed.expect("ip").success());
    daemon.wait_for("notice ALARM: interface p0 is gone");
    let health = page(&metrics, "/healthz");
    assert!(health.starts_with("HTTP/1.1 503") && health.contains("interface p0 is gone"), "{health}");
    daemon.kill();
}

fn small_file_system(folder: &Path) {
    std::fs::create_dir_all(folder).expect("a folder");
    let mount = ["-t", "tmpfs", "-o", "size=100k", "scot-sw", text(folder)];
    assert!(std::process::Command::new("mount").args(mount).status().expect("mount").success());
}

fn a_disk_that_is_too_small_is_named(scratch: &Path) {
    let small = scratch.join("small");
    small_file_system(&small);
    let log = small.join("disk.log");
    let mut daemon = Role::start(None, &["daemon", "-", text(&log)]);
    let refusal = daemon.wait_for("refused ");
    assert!(refusal.contains(text(&log)) && refusal.contains("No space left"), "{refusal}");
    assert!(daemon.finish());
    let left: Vec<_> = std::fs::read_dir(&small).expect("a folder").collect();
    assert!(left.is_empty(), "{left:?}");
}

fn the_device_answers_for_its_control_address(_scratch: &Path) {
    let (daemon, _) = start_daemon("-", "-");
    for namespace in [CLIENT, SERVER] {
        ask(namespace, "ip neigh flush all");
        let mac = scotfree_switch::mac_of_device("10.77.0.9:51000".parse().expect("an address"));
        await_that("the control address resolves", || {
            assert!(Role::start(Some(namespace), &["poke", "10.77.0.9:51000"]).finish());
            ask(namespace, "ip neigh show 10.77.0.9").contains(&mac.to_string())
        });
    }
    assert!(daemon.finish());
}

fn start_server(store: &Path) -> Role {
    Role::start(Some(SERVER), &["server", "10.77.0.2:51000", "10.77.0.9:51000", text(store)])
}

fn start_client(durability: &str) -> Role {
    let addresses = ["10.77.0.1:51001", "10.77.0.2:51000"];
    let mut client =
        Role::start(Some(CLIENT), &[&["client"], &addresses[..], &[durability, "early"]].concat());
    client.wait_for("open");
    client
}

/// The writes in the store, in order.
fn writes(store: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(store).unwrap_or_default();
    text.lines()
        .filter(|line| line.starts_with("write "))
        .filter_map(|line| line.splitn(4, ' ').nth(3).map(str::to_owned))
        .collect()
}

fn assert_writes_in_order(store: &Path, count: usize) {
    let expected: Vec<String> = (1..=count).map(|number| format!("update {number}")).collect();
    await_that("every update is in the store", || writes(store).len() >= count);
    assert_eq!(writes(store), expected);
}

fn value(metrics: &str, name: &str) -> u64 {
    let text = page(metrics, "/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).map(str::to_owned);
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
}

fn updates_survive_the_server(scratch: &Path) {
    for (durability, ram, disk) in [("ram", "ram.log", "-"), ("ram+disk", "both.ram.log", "both.disk.log")] {
        let place = |name: &str| if name == "-" { PathBuf::from("-") } else { scratch.join(name) };
        let store = scratch.join(format!("{durability}.store"));
        let (daemon, metrics) = start_daemon(text(&place(ram)), text(&place(disk)));
        let mut server = start_server(&store);
        server.wait_for("serving");
        let mut client = start_client(durability);
        client.tell("update 100");
        client.wait_for("completed 100");
        assert_writes_in_order(&store, 100);
        await_that("the log is empty again", || value(&metrics, "scotfree_unsafe_entries") == 0);

        server.tell("freeze");
        server.wait_for("frozen");
        client.tell("update 60");
        let completed = client.wait_for("completed 160 by device ");
        assert!(completed.parse::<u64>().expect("a number") >= 60, "{completed}");
        assert_eq!(value(&metrics, "scotfree_unsafe_entries"), 60);
        let timed = |tier: &str| {
            value(&metrics, &format!("scotfree_log_write_duration_seconds_count{{tier=\"{tier}\"}}"))
        };
        // Every update in each log, and the session in the one that lasts longest.
        let expected: &[(&str, u64)] =
            if disk == "-" { &[("ram", 161)] } else { &[("ram", 160), ("disk", 161)] };
        for (tier, count) in expected {
            assert_eq!(timed(tier), *count, "{durability}: {tier}");
        }
        server.kill();
        assert_writes_in_order(&store, 100);

        let mut server = start_server(&store);
        server.wait_for("serving");
        assert_writes_in_order(&store, 160);
        client.tell("close");
        client.wait_for("closed Finished");
        assert!(client.finish());
        await_that("the log is empty again", || value(&metrics, "scotfree_unsafe_entries") == 0);
        server.tell("end");
        assert!(server.finish());
        assert!(daemon.finish());
    }
}

fn a_session_works_over_ipv6(scratch: &Path) {
    let (ram, store) = (scratch.join("ram.log"), scratch.join("store"));
    let mut daemon = Role::start(None, &["daemon", text(&ram), "-", "v6"]);
    daemon.wait_for("metrics ");
    let mut server =
        Role::start(Some(SERVER), &["server", "[fd77::2]:51000", "[fd77::9]:51000", text(&store)]);
    server.wait_for("serving");
    let arguments = ["client", "[fd77::1]:51001", "[fd77::2]:51000", "ram", "early"];
    let mut client = Role::start(Some(CLIENT), &arguments);
    client.wait_for("open");
    server.tell("freeze");
    server.wait_for("frozen");
    client.tell("update 25");
    assert_eq!(client.wait_for("completed 25 by device "), "25");
    server.kill();
    let mut server =
        Role::start(Some(SERVER), &["server", "[fd77::2]:51000", "[fd77::9]:51000", text(&store)]);
    server.wait_for("serving");
    assert_writes_in_order(&store, 25);
    for role in [client, server, daemon] {
        role.kill();
    }
}

fn updates_survive_the_daemon(scratch: &Path) {
    let (ram, store) = (scratch.join("ram.log"), scratch.join("store"));
    let (daemon, _) = start_daemon(text(&ram), "-");
    let mut server = start_server(&store);
    server.wait_for("serving");
    let mut client = start_client("ram");
    client.tell("update 10");
    client.wait_for("completed 10");
    server.tell("freeze");
    server.wait_for("frozen");
    client.tell("update 50");
    client.wait_for("completed 60");
    // Everything dies at once; only the device's memory file and the server's store stay.
    client.kill();
    server.kill();
    daemon.kill();

    let (daemon, metrics) = start_daemon(text(&ram), "-");
    // The first ten may or may not have been known to be stable.
    let restored = value(&metrics, "scotfree_unsafe_entries");
    assert!((50..=60).contains(&restored), "{restored}");
    assert_eq!(value(&metrics, "scotfree_device_boot_epoch"), 2);
    let mut server = start_server(&store);
    server.wait_for("serving");
    assert_writes_in_order(&store, 60);
    await_that("the log is empty again", || value(&metrics, "scotfree_unsafe_entries") == 0);
    server.tell("end");
    assert!(server.finish());
    assert!(daemon.finish());
}

fn two_daemons_do_not_share_a_log(scratch: &Path) {
    for (ram, disk) in [("ram.log", "-"), ("-", "disk.log")] {
        let place = |name: &str| if name == "-" { PathBuf::from("-") } else { scratch.join(name) };
        let (ram, disk) = (place(ram), place(disk));
        let (first, _) = start_daemon(text(&ram), text(&disk));
        let mut second = Role::start(None, &["daemon", text(&ram), text(&disk)]);
        let refusal = second.wait_for("refused ");
        assert!(refusal.contains("in use by process"), "{refusal}");
        assert!(second.finish());
        assert!(first.finish());
    }
}

fn a_lost_log_stops_acknowledgements_and_nothing_else(scratch: &Path) {
    let (ram, store) = (scratch.join("ram.log"), scratch.join("store"));
    let (mut daemon, metrics) = start_daemon(text(&ram), "-");
    let mut server = start_server(&store);
    server.wait_for("serving");
    let mut client = start_client("ram");
    client.tell("update 20");
    client.wait_for("completed 20");
    std::fs::remove_file(&ram).expect("the log");
    daemon.wait_for("notice ALARM");
    assert!(page(&metrics, "/healthz").starts_with("HTTP/1.1 503"));
    assert_goes_on_without_device(&mut client, &metrics, &store, 20);
    for role in [client, server, daemon] {
        role.kill();
    }
}

fn a_full_file_system_stops_acknowledgements_and_nothing_else(scratch: &Path) {
    let (small, store) = (scratch.join("small"), scratch.join("store"));
    small_file_system(&small);
    let (mut daemon, metrics) = start_daemon(text(&small.join("ram.log")), "-");
    let mut server = start_server(&store);
    server.wait_for("serving");
    let mut client = start_client("ram");
    // More than fit at a time, so that the file needs room that is not there.
    client.tell("update 200");
    client.wait_for("completed 200");
    daemon.wait_for("notice ALARM");
    assert_goes_on_without_device(&mut client, &metrics, &store, 200);
    for role in [client, server, daemon] {
        role.kill();
    }
}

fn assert_goes_on_without_device(client: &mut Role, metrics: &str, store: &Path, before: usize) {
    let acknowledged = value(metrics, "scotfree_device_persist_acks_total");
    client.tell("update 30");
    client.wait_for(&format!("completed {}", before + 30));
    assert_writes_in_order(store, before + 30);
    assert_eq!(value(metrics, "scotfree_device_persist_acks_total"), acknowledged);
    let text = page(metrics, "/metrics");
    assert!(text.contains("scotfree_device_media{tier=\"ram\"} 0\n"), "{text}");
}

fn a_bad_link_loses_nothing_that_was_acknowledged(scratch: &Path) {
    let (ram, store) = (scratch.join("ram.log"), scratch.join("store"));
    let (mut daemon, metrics) = start_daemon(text(&ram), "-");
    let mut server = start_server(&store);
    server.wait_for("serving");
    let mut client = start_client("ram");
    daemon.tell("impair 5");
    client.tell("update 400");
    client.wait_for("completed 400");
    assert_writes_in_order(&store, 400);
    let text = page(&metrics, "/metrics");
    for name in ["lost", "duplicated", "reordered", "corrupted"] {
        let begin = format!("scotfree_impaired_{name}_total{{");
        let total: u64 = text
            .lines()
            .filter(|line| line.starts_with(&begin))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
            .sum();
        assert!(total > 0, "{name}: {text}");
    }
    daemon.tell("impair 0");
    client.tell("close");
    client.wait_for("closed Finished");
    server.tell("end");
    assert!(client.finish() && server.finish() && daemon.finish());
}
