//! Scenarios made for one chain of events each, which random ones seldom meet.
//!
//! Invariant: a scenario is a function of its seed; the chain of events is its comment, and a test
//! shows that it comes about.

use crate::media::DeviceCrash;
use crate::place::Place;
use crate::scenario::{Drop, Mishap, Scenario, Trouble, When};
use scotfree_core::{Durability, Nanos, SeqNum};
use scotfree_sim::rng::{PerMillion, Rng};
use scotfree_wire::Kind;

/// A scenario of each seed.
pub type Maker = fn(u64) -> Scenario;

/// All of them, by name.
pub const ALL: [(&str, Maker); 7] = [
    ("left-behind", left_behind),
    ("silent-death", silent_death),
    ("return-of-the-device", return_of_the_device),
    ("forgotten-run", forgotten_run),
    ("excluded-alive", excluded_alive),
    ("rotated-key", rotated_key),
    ("refused-replay", refused_replay),
];

/// One update of a client never reaches the device, those behind it do, and the client dies. What
/// the device has not admitted holds nobody up: all others go on at once.
pub fn left_behind(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed, 76);
    let mut scenario = Scenario::calm();
    scenario.client_count = 2;
    scenario.work.reads = PerMillion::NEVER;
    scenario.work.bypasses = PerMillion::NEVER;
    let (from, to) = (Place::Client(0), Place::Device(0));
    let seq = SeqNum(rng.between(10, 20));
    scenario.drops = vec![Drop { from, to, kind: Kind::Update, seq, count: u32::MAX }];
    let died_at = When::Time(Nanos::from_millis(rng.between(16, 20)));
    scenario.mishaps = vec![Mishap { when: died_at, what: Trouble::CrashClient { client: 0, down: None } }];
    scenario.calm_at = Nanos::from_millis(21);
    scenario.recovery_max = Nanos::from_millis(25);
    scenario
}

/// A client dies after its device has acknowledged updates that cannot reach the server before the
/// session expires.
pub fn silent_death(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed, 77);
    let mut scenario = Scenario::calm();
    scenario.client_count = 2;
    scenario.work.reads = PerMillion::percent(10);
    scenario.work.early = PerMillion::ALWAYS;
    scenario.expiry = Nanos::from_millis(60);
    scenario.calm_at = Nanos::from_millis(250);
    let cut_at = Nanos(rng.between(1_000_000, 15_000_000));
    let died_at = cut_at.plus(Nanos(rng.between(100_000, 4_000_000)));
    let (from, to) = (Place::Device(0), Place::Server(0));
    scenario.mishaps = vec![
        Mishap { when: When::Time(cut_at), what: Trouble::Cut { from, to, span: Nanos::from_millis(110) } },
        Mishap { when: When::Time(died_at), what: Trouble::CrashClient { client: 0, down: None } },
    ];
    scenario
}

/// A device is excluded, sessions end without it, and it comes back with what it held of them.
pub fn return_of_the_device(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed, 78);
    let mut scenario = Scenario::calm();
    scenario.client_count = 3;
    scenario.device_count = 2;
    scenario.device_acks = 2;
    scenario.asked = rng.pick(&[Durability::Ram, Durability::Disk]);
    scenario.work.reads = PerMillion::percent(10);
    scenario.expiry = Nanos::from_millis(60);
    scenario.calm_at = Nanos::from_millis(300);
    let lost_at = Nanos(rng.between(5_000_000, 15_000_000));
    let back = Some(Nanos::from_millis(180));
    let lost = Trouble::LoseDevice { device: rng.index(2), noticed: Nanos::from_millis(1), back };
    let died = |client| Trouble::CrashClient { client, down: None };
    let after = |span| When::Time(lost_at.plus(Nanos::from_millis(span)));
    scenario.mishaps = vec![
        Mishap { when: When::Time(lost_at), what: lost },
        Mishap { when: after(5), what: died(0) },
        Mishap { when: after(30), what: died(1) },
    ];
    scenario
}

/// Requests come in disorder and pass the head unstamped, the server asks for the place of a run of
/// them and crashes, the head forgets their stamps, and the client dies before it has sent again
/// what the run began with.
pub fn forgotten_run(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed, 79);
    let mut scenario = Scenario::calm();
    scenario.work.reads = PerMillion::percent(10);
    scenario.work.think_max = Nanos::from_micros(200);
    scenario.work.burst_max = 8;
    scenario.work.outstanding_max = 16;
    scenario.network.loss = PerMillion::percent(10);
    scenario.network.duplication = PerMillion::percent(40);
    scenario.network.delay_max = Nanos::from_millis(2);
    scenario.expiry = Nanos::from_millis(60);
    scenario.calm_at = Nanos::from_millis(30);
    let crashed_at = Nanos(rng.between(8_000_000, 16_000_000));
    let died_at = crashed_at.plus(Nanos(rng.between(100_000, 2_000_000)));
    let crash = Trouble::CrashServer { server: 0, down: Nanos::from_micros(100) };
    let died = Trouble::CrashClient { client: 0, down: None };
    scenario.mishaps = vec![
        Mishap { when: When::Time(crashed_at), what: crash },
        Mishap { when: When::Time(died_at), what: died },
    ];
    scenario
}

/// The operator rotates the cluster's key under load, with losses, and either role dies meanwhile. Sessions
/// of the old epoch end; what was acknowledged under it is kept.
pub fn rotated_key(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed, 82);
    let mut scenario = Scenario::calm();
    scenario.client_count = 3;
    scenario.device_count = rng.pick(&[1, 1, 2]);
    scenario.device_acks = scenario.device_count as u8;
    scenario.asked = rng.pick(&[Durability::Ram, Durability::Disk]);
    scenario.work.requests_per_client = 80;
    scenario.work.early = PerMillion::percent(60);
    scenario.work.reads = PerMillion::percent(20);
    scenario.network.loss = PerMillion::percent(rng.between(0, 5) as u32);
    scenario.calm_at = Nanos::from_millis(200);
    let rotated_at = Nanos(rng.between(2_000_000, 10_000_000));
    let step = Nanos::from_micros(rng.between(100, 4_000));
    let at = |span: u64, what| Mishap { when: When::Time(rotated_at.plus(Nanos(span * step.0))), what };
    let dies = if rng.index(2) == 0 {
        Trouble::CrashServer { server: 0, down: Nanos::from_micros(rng.between(10, 3_000)) }
    } else {
        let down = Nanos::from_micros(rng.between(10, 3_000));
        Trouble::CrashDevice { device: 0, kind: DeviceCrash::Process, down }
    };
    scenario.mishaps = vec![at(0, Trouble::RotateKey { step }), at(rng.between(0, 6), dies)];
    scenario
}

/// A server crashes, and when it is back its application takes no writes for a while (a full disk, replicas that are
/// missing): not those either that it has lost and that a device has acknowledged.
pub fn refused_replay(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed, 83);
    let mut scenario = Scenario::calm();
    scenario.client_count = 3;
    scenario.work.requests_per_client = 100;
    scenario.work.think_max = Nanos::from_micros(300);
    scenario.work.outstanding_max = 16;
    scenario.work.early = PerMillion::percent(60);
    scenario.work.reads = PerMillion::percent(20);
    scenario.service.sync_interval = Nanos::from_millis(20);
    (scenario.service.sync_min, scenario.service.sync_max) = (Nanos::from_millis(2), Nanos::from_millis(5));
    scenario.service.refuses_after_crash = Nanos::from_micros(rng.between(4_000, 30_000));
    let crashed_at = Nanos(rng.between(2_000_000, 12_000_000));
    let down = Nanos::from_micros(rng.between(10, 1_000));
    let crash = Trouble::CrashServer { server: 0, down };
    scenario.mishaps = vec![Mishap { when: When::Time(crashed_at), what: crash }];
    scenario
}

/// The head acknowledges under a lease from before the server's crash, cannot be reached by the new
/// server, and the operator excludes it though it lives.
pub fn excluded_alive(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed, 81);
    let mut scenario = Scenario::calm();
    scenario.client_count = 2;
    scenario.device_count = rng.pick(&[1, 2, 2, 3]);
    scenario.device_acks = scenario.device_count as u8;
    scenario.work.early = PerMillion::ALWAYS;
    scenario.work.reads = PerMillion::percent(20);
    let crashed_at = Nanos(rng.between(4_000_000, 20_000_000));
    let head = Place::Device(0);
    let above = if scenario.device_count == 1 { Place::Server(0) } else { Place::Device(1) };
    let at =
        |span_us: u64, what| Mishap { when: When::Time(crashed_at.plus(Nanos::from_micros(span_us))), what };
    let excluded_after = rng.between(50, 3_000);
    let cut = Trouble::Cut { from: above, to: head, span: Nanos::from_millis(60) };
    let stays = Nanos::from_millis(rng.between(1, 30));
    scenario.mishaps = vec![
        at(0, Trouble::CrashServer { server: 0, down: Nanos::from_micros(rng.between(10, 1_000)) }),
        at(0, cut),
        at(excluded_after, Trouble::ExcludeDevice { device: 0, stays }),
    ];
    scenario
}
