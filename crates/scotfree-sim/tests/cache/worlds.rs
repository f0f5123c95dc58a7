//! Worlds with the cache before persist: several clients that read what others write, through one device.
//!
//! Invariant: what goes wrong in them is within the guarantee of docs/design/cache.md.

use remedy_persist_world::media::{DeviceCrash, DiskTimes};
use remedy_persist_world::rng::{PerMillion, Rng};
use remedy_persist_world::scenario::{Detours, Mishap, Trouble, When};
use remedy_persist_world::{Place, Scenario};
use scotfree_core::{Durability, Nanos};
use scotfree_device::Maker;

/// A kind of worlds: that of each seed.
pub type Kind = fn(u64) -> Scenario;

const HALF: PerMillion = PerMillion::percent(50);

/// A kind's world with a cache.
pub fn with(cache: Maker, kind: Kind, seed: u64) -> Scenario {
    let mut scenario = kind(seed);
    scenario.functions.insert(0, cache);
    scenario
}

fn at(when: Nanos, what: Trouble) -> Mishap {
    Mishap { when: When::Time(when), what }
}

/// What is acknowledged is on the disk, which takes its time; the device's host, and clients, die meanwhile.
fn slow_disk(seed: u64) -> Scenario {
    let mut scenario = Scenario::random(seed);
    scenario.asked = Durability::Disk;
    scenario.ram_survives_host = false;
    scenario.disk =
        DiskTimes { commit_min: Nanos::from_millis(1), commit_max: Nanos::from_millis(4), ..scenario.disk };
    scenario.network.loss = PerMillion::percent(20);
    scenario.work.early = PerMillion::percent(100);
    let crash = |number: u64| {
        let down = Nanos::from_micros(300);
        let client = Trouble::CrashClient { client: number as usize % 2, down: Some(Nanos::from_millis(1)) };
        let device = Trouble::CrashDevice { device: 0, kind: DeviceCrash::Host, down };
        let when_us = 12_000 * (number + 1) + seed * 37 % 9_000;
        [at(Nanos::from_micros(when_us), client), at(Nanos::from_micros(when_us + 1), device)]
    };
    scenario.mishaps = (0..5).flat_map(crash).collect();
    scenario
}

/// Makes a world one that a cache may stand in.
fn for_cache(mut scenario: Scenario) -> Scenario {
    scenario.client_count = scenario.client_count.max(2);
    scenario.device_count = 1;
    scenario.device_acks = 1;
    if scenario.asked == Durability::None {
        scenario.asked = Durability::Ram;
    }
    let loses =
        |trouble: &Trouble| matches!(trouble, Trouble::LoseDevice { .. } | Trouble::ExcludeDevice { .. });
    // Those of devices that there are not any more go too.
    let names_another = |trouble: &Trouble| {
        let words = format!("{trouble:?}");
        ["device: 1", "device: 2", "Device(1)", "Device(2)"].iter().any(|device| words.contains(device))
    };
    scenario.mishaps.retain(|mishap| !loses(&mishap.what) && !names_another(&mishap.what));
    scenario.work.cell_count = 3;
    scenario.work.answerable = true;
    scenario.work.reads = PerMillion::percent(60);
    scenario.work.relaxed = PerMillion::NEVER;
    // Every way leads through the device (K11).
    scenario.network.detour = PerMillion::NEVER;
    scenario
}

/// Worlds of all sorts.
pub fn usual(seed: u64) -> Scenario {
    for_cache(match seed % 4 {
        0 => Scenario::several(seed),
        1 => Scenario::storm(seed),
        2 => Scenario::random(seed),
        _ => slow_disk(seed),
    })
}

/// Cells whose names have one hash.
pub fn colliding(seed: u64) -> Scenario {
    let mut scenario = usual(seed);
    scenario.work.hash_count = 1 + seed / 4 % 2;
    scenario
}

/// Writes of two cells that name both, logged or not.
pub fn pairs(seed: u64) -> Scenario {
    let mut scenario = usual(seed);
    scenario.work.pairs = PerMillion::percent(40);
    scenario.work.pairs_logged = HALF;
    scenario
}

/// Each client asks for one thing after the other. A read that a crash has executed again, behind what the server has
/// written meanwhile, stands before what its session has asked since: of that nobody may have seen the effect.
fn one_by_one(scenario: &mut Scenario) {
    (scenario.work.outstanding_max, scenario.work.burst_max) = (1, 1);
}

/// Values that live for a while. A device counts their lives by a clock that is not set back.
pub fn living(seed: u64) -> Scenario {
    let mut scenario = usual(seed);
    one_by_one(&mut scenario);
    scenario.work.living = HALF;
    scenario.mishaps.retain(|mishap| {
        !matches!(mishap.what, Trouble::JumpClock { place: Place::Device(_), jump_ns } if jump_ns < 0)
    });
    scenario
}

/// Values that may live out before the server has executed what was acknowledged earlier.
pub fn lagging(seed: u64) -> Scenario {
    let mut scenario = for_cache(Scenario::calm());
    let rng = &mut Rng::new(seed, 96);
    one_by_one(&mut scenario);
    scenario.client_count = rng.between(3, 5) as usize;
    scenario.work.requests_per_client = 60;
    scenario.work.early = PerMillion::percent(100);
    scenario.work.bypasses = PerMillion::NEVER;
    scenario.work.living = HALF;
    scenario.work.cell_count = 2;
    scenario.service.execute_max = Nanos::from_micros(rng.pick(&[20, 500]));
    let (from, to) = (Place::Device(0), Place::Server(0));
    for number in 0..10 {
        let begun = Nanos::from_micros(10_000 * number + rng.below(6_000));
        let span = Nanos::from_micros(rng.between(1_000, 4_000));
        scenario.mishaps.push(at(begun, Trouble::Cut { from, to, span }));
    }
    scenario
}

/// Servers that come back with other data than they had.
pub fn changed(seed: u64) -> Scenario {
    let mut scenario = usual(seed);
    let rng = &mut Rng::new(seed, 90);
    one_by_one(&mut scenario);
    scenario.service.changed_while_away = PerMillion::percent(80);
    for _ in 0..3 {
        let server = rng.index(scenario.server_count);
        let down = Nanos::from_micros(rng.between(100, 4_000));
        let when = Nanos::from_micros(rng.between(5_000, 80_000));
        scenario.mishaps.push(at(when, Trouble::CrashServer { server, down }));
    }
    scenario
}

/// The operator excludes the device, and when all goes on without it gives some packets another way; the others still
/// come by it.
pub fn around(seed: u64) -> Scenario {
    let mut scenario = for_cache(Scenario::calm());
    let rng = &mut Rng::new(seed, 91);
    scenario.client_count = rng.between(2, 4) as usize;
    scenario.work.requests_per_client = 400 / scenario.client_count;
    scenario.work.outstanding_max = rng.pick(&[1, 4]);
    scenario.work.burst_max = 2;
    scenario.work.think_max = Nanos::from_millis(rng.pick(&[1, 3]));
    scenario.service.sync_interval = Nanos::from_millis(1);
    scenario.network.detour = HALF;
    scenario.detours = Detours::AroundExcluded;
    let stays = Nanos::from_millis(rng.between(50, 80));
    let excluded_at = Nanos::from_micros(rng.between(5_000, 20_000));
    scenario.mishaps = vec![at(excluded_at, Trouble::ExcludeDevice { device: 0, stays })];
    scenario
}

/// A client whose write that is not logged never gets beyond the device goes on with logged ones, and dies.
pub fn given_up(seed: u64) -> Scenario {
    let mut scenario = for_cache(Scenario::calm());
    let rng = &mut Rng::new(seed, 92);
    scenario.client_count = rng.between(2, 3) as usize;
    scenario.work.requests_per_client = 100;
    scenario.work.outstanding_max = 8;
    scenario.work.bypasses = PerMillion::percent(20);
    scenario.work.early = PerMillion::percent(100);
    scenario.calm_at = Nanos::from_millis(250);
    scenario.network.loss = PerMillion::percent(rng.pick(&[0, 10, 30]));
    let (from, to) = (Place::Device(0), Place::Server(0));
    for number in 0..3 {
        let begun = Nanos::from_micros(rng.between(2_000, 20_000) + 70_000 * number);
        let span = Nanos::from_micros(rng.between(500, 5_000));
        let client = rng.index(scenario.client_count);
        scenario.mishaps.push(at(begun, Trouble::Cut { from, to, span }));
        scenario
            .mishaps
            .push(at(begun.plus(Nanos(span.0 / 2)), Trouble::CrashClient { client, down: Some(span) }));
    }
    scenario
}

/// Much is sent again, to a device that has started again meanwhile and knows its sessions by its log.
pub fn sent_again(seed: u64) -> Scenario {
    let mut scenario = for_cache(Scenario::calm());
    let rng = &mut Rng::new(seed, 95);
    scenario.client_count = rng.between(3, 4) as usize;
    scenario.work.requests_per_client = 60;
    scenario.work.outstanding_max = rng.pick(&[1, 4]);
    scenario.work.reads = HALF;
    scenario.work.bypasses = PerMillion::NEVER;
    scenario.work.early = PerMillion::percent(100);
    scenario.work.cell_count = 2;
    scenario.network.loss = PerMillion::percent(25);
    scenario.network.duplication = PerMillion::percent(rng.pick(&[0, 10]));
    scenario.network.straggling = PerMillion::percent(rng.pick(&[0, 3]));
    scenario.network.straggle_max = Nanos::from_millis(20);
    for number in 0..8 {
        let when = Nanos::from_micros(10_000 * number + rng.between(3_000, 12_000));
        let down = Nanos::from_micros(rng.between(50, 500));
        let kind = DeviceCrash::Process;
        scenario.mishaps.push(at(when, Trouble::CrashDevice { device: 0, kind, down }));
    }
    scenario
}

/// Long histories of clients that ask one thing after the other, mostly for what a device can answer.
pub fn busy(seed: u64) -> Scenario {
    let mut scenario = for_cache(Scenario::calm());
    let rng = &mut Rng::new(seed, 94);
    scenario.client_count = rng.between(2, 4) as usize;
    scenario.work.requests_per_client = 1_200 / scenario.client_count;
    scenario.work.outstanding_max = 1;
    scenario.work.burst_max = 1;
    scenario.work.think_max = Nanos::from_micros(100);
    scenario.work.reads = PerMillion::percent(90);
    scenario.work.bypasses = PerMillion::percent(3);
    scenario.work.early = PerMillion::percent(80);
    scenario.work.large = PerMillion::NEVER;
    scenario.network.loss = PerMillion::percent(rng.pick(&[0, 0, 1]));
    scenario.calm_at = Nanos::from_millis(150);
    for _ in 0..rng.below(3) {
        let role = rng.below(5);
        let when = Nanos::from_micros(rng.between(5_000, 60_000));
        scenario.mishaps.push(at(when, crash(rng, &scenario, role)));
    }
    scenario
}

/// All of them, each with what it is called.
pub const KINDS: [(&str, Kind); 9] = [
    ("usual", usual),
    ("colliding", colliding),
    ("pairs", pairs),
    ("living", living),
    ("lagging", lagging),
    ("changed", changed),
    ("around", around),
    ("given up", given_up),
    ("sent again", sent_again),
];

/// How many steps of a small world have a crash.
const STEPS: u64 = 1_201;
/// No divisor of it, so that the first seeds have steps from everywhere.
const STRIDE: u64 = 611;

fn crash(rng: &mut Rng, scenario: &Scenario, role: u64) -> Trouble {
    let down = Nanos::from_micros(rng.between(50, 10_000));
    let client = rng.index(scenario.client_count);
    match role {
        0 => Trouble::CrashClient { client, down: rng.chance(HALF).then_some(down) },
        1 => Trouble::CrashDevice { device: 0, kind: DeviceCrash::Process, down },
        2 => Trouble::CrashDevice { device: 0, kind: DeviceCrash::Host, down },
        3 => Trouble::CrashServer { server: 0, down },
        _ => {
            let ends = [Place::Client(client), Place::Server(0)];
            let (end, device) = (rng.pick(&ends), Place::Device(0));
            let (from, to) = if rng.chance(HALF) { (end, device) } else { (device, end) };
            Trouble::Cut { from, to, span: Nanos(4 * down.0) }
        }
    }
}

/// Small worlds in which a role dies before a step, and in some another a little later: all roles and all steps in turn.
pub fn crashes(seed: u64) -> Scenario {
    let (role, step) = (seed % 5, seed / 5 * STRIDE % STEPS);
    let rng = &mut Rng::new(seed, 93);
    let mut scenario = Scenario::random(seed);
    scenario.mishaps.clear();
    let mut scenario = for_cache(scenario);
    scenario.client_count = rng.between(2, 3) as usize;
    scenario.work.requests_per_client = 90 / scenario.client_count;
    scenario.work.hash_count = rng.pick(&[1, 2, 8]);
    match rng.below(4) {
        0 => (scenario.work.pairs, scenario.work.pairs_logged) = (PerMillion::percent(30), HALF),
        1 => scenario.work.living = HALF,
        2 => scenario.service.changed_while_away = HALF,
        _ => {}
    }
    if scenario.servers_write() {
        one_by_one(&mut scenario);
    }
    scenario.mishaps.push(Mishap { when: When::Step(step), what: crash(rng, &scenario, role) });
    if rng.chance(HALF) {
        let (when, other) = (When::Step(step + rng.between(1, 300)), rng.below(5));
        scenario.mishaps.push(Mishap { when, what: crash(rng, &scenario, other) });
    }
    scenario
}
