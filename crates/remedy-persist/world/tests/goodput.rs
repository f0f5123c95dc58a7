//! A table of what the protocol yields as packets are lost and windows grow, in virtual time: a
//! change in behaviour shows as a change of text. `UPDATE_SNAPSHOTS=1` writes it anew.

use remedy_persist_world::rng::PerMillion;
use remedy_persist_world::{run, Depth, Scenario};
use scotfree_core::{Durability, Nanos};
use std::fmt::Write;

const LOSSES: [u32; 5] = [0, 1, 5, 10, 20];
const WINDOWS: [u32; 4] = [1, 4, 16, 64];
const SEED_COUNT: u64 = 8;
const SNAPSHOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/goodput.txt");

/// One client that always has a full window outstanding, and a device that logs in memory.
fn scenario(loss: u32, window: u32) -> Scenario {
    let mut scenario = Scenario::calm();
    scenario.window = window;
    scenario.device_window = window;
    scenario.network.loss = PerMillion::percent(loss);
    scenario.work.requests_per_client = 300;
    scenario.work.outstanding_max = window as usize;
    scenario.work.burst_max = u64::from(window);
    scenario.work.think_min = Nanos::from_micros(5);
    scenario.work.think_max = Nanos::from_micros(5);
    scenario.work.reads = PerMillion::NEVER;
    scenario.work.bypasses = PerMillion::NEVER;
    scenario.work.large = PerMillion::NEVER;
    scenario.work.early = PerMillion::ALWAYS;
    scenario.asked = Durability::Ram;
    scenario.calm_at = Nanos::from_secs(8);
    scenario.expiry = Nanos::from_secs(20);
    scenario
}

/// Completed requests per virtual millisecond.
fn goodput(loss: u32, window: u32) -> f64 {
    let (mut completed, mut spent_ns) = (0, 0);
    for seed in 0..SEED_COUNT {
        let report =
            run(seed, scenario(loss, window), Depth::Last).unwrap_or_else(|failure| panic!("{failure}"));
        completed += 300;
        spent_ns += report.work_ns;
        assert!(report.completed >= 300, "the work is not done: {report}");
    }
    f64::from(completed) / (spent_ns as f64 / 1e6)
}

fn table() -> String {
    let mut text =
        String::from("early updates completed per virtual millisecond\n\nloss of a packet on each link\n\n");
    let header: Vec<String> = WINDOWS.iter().map(|window| format!("window {window:<3}")).collect();
    let _ = writeln!(text, "loss    {}", header.join("  "));
    for loss in LOSSES {
        let cells: Vec<String> =
            WINDOWS.iter().map(|window| format!("{:>10.1}", goodput(loss, *window))).collect();
        let _ = writeln!(text, "{loss:>3} %   {}", cells.join("  "));
    }
    text
}

#[test]
fn goodput_over_loss_and_window_is_what_it_was() {
    let now = table();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(SNAPSHOT, &now).expect("the snapshot can be written");
    }
    let then = std::fs::read_to_string(SNAPSHOT).unwrap_or_default();
    assert!(now == then, "the table has changed; UPDATE_SNAPSHOTS=1 accepts it\n\nwas\n{then}\nis\n{now}");
}

#[test]
fn a_larger_window_yields_more_and_loss_yields_less() {
    assert!(goodput(0, 16) > 2.0 * goodput(0, 1));
    assert!(goodput(20, 16) < goodput(0, 16));
}
