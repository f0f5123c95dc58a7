//! Worlds in which one thing goes wrong, everywhere it can: each role crashes at each step, and each
//! mechanism that repairs damage is left alone with it, within a bound on time.

use remedy_persist_world::media::DeviceCrash;
use remedy_persist_world::rng::PerMillion;
use remedy_persist_world::scenario::{Drop, Mishap, Repair, Trouble, When};
use remedy_persist_world::Place;
use remedy_persist_world::{made, run, Depth, Report, Scenario};
use scotfree_core::{Durability, Nanos, SeqNum};
use scotfree_wire::Kind;

fn pass(seed: u64, scenario: Scenario) -> Report {
    run(seed, scenario, Depth::Last).unwrap_or_else(|failure| panic!("{failure}"))
}

/// A short run of two clients in which everything is asked for once or more.
fn short_run(device_count: usize, asked: Durability) -> Scenario {
    let mut scenario = Scenario::calm();
    scenario.client_count = 2;
    scenario.device_count = device_count;
    scenario.device_acks = device_count as u8;
    scenario.asked = asked;
    scenario.work.requests_per_client = 12;
    scenario.work.think_max = Nanos::from_millis(2);
    scenario.work.bypasses = PerMillion::percent(20);
    scenario.calm_at = Nanos::from_millis(25);
    scenario.expiry = Nanos::from_millis(600);
    scenario
}

/// Runs the scenario once for each step that it has, with this trouble before the step.
fn at_each_step(scenario: &Scenario, what: Trouble) -> Report {
    let step_count = pass(1, scenario.clone()).tally.steps;
    let mut total = Report::default();
    for step in 1..step_count {
        let mishaps = vec![Mishap { when: When::Step(step), what }];
        total.add(&pass(1, Scenario { mishaps, ..scenario.clone() }));
    }
    total
}

const DOWN: Nanos = Nanos::from_millis(2);

#[test]
fn the_server_may_crash_at_each_step() {
    for (device_count, asked) in [(1, Durability::Ram), (1, Durability::Disk), (2, Durability::RamAndDisk)] {
        let total =
            at_each_step(&short_run(device_count, asked), Trouble::CrashServer { server: 0, down: DOWN });
        assert!(total.taken_back > 50 && total.executed_from_log > 100, "{total}");
        assert_eq!(total.weakened, 0);
    }
}

#[test]
fn a_device_process_may_crash_at_each_step() {
    for (device_count, asked) in [(1, Durability::Ram), (1, Durability::Disk), (2, Durability::RamAndDisk)] {
        for device in 0..device_count {
            let crash = Trouble::CrashDevice { device, kind: DeviceCrash::Process, down: DOWN };
            let total = at_each_step(&short_run(device_count, asked), crash);
            assert!(total.records_restored > 100, "{total}");
            assert_eq!(total.weakened, 0);
        }
    }
}

#[test]
fn a_device_host_may_crash_at_each_step() {
    let crash = |device| Trouble::CrashDevice { device, kind: DeviceCrash::Host, down: DOWN };
    let declared = at_each_step(&short_run(1, Durability::Ram), crash(0));
    let disk = at_each_step(&short_run(1, Durability::Disk), crash(0));
    // With two acknowledgements either of the two may lose its memory.
    let volatile = Scenario { ram_survives_host: false, ..short_run(2, Durability::Ram) };
    let head = at_each_step(&volatile, crash(0));
    let tail = at_each_step(&volatile, crash(1));
    for total in [declared, disk, head, tail] {
        assert!(total.host_crashes > 100, "{total}");
        assert_eq!(total.weakened, 0);
    }
}

#[test]
fn memory_that_does_not_survive_promises_nothing_alone() {
    let volatile = Scenario { ram_survives_host: false, ..short_run(1, Durability::Ram) };
    let crash = Trouble::CrashDevice { device: 0, kind: DeviceCrash::Host, down: DOWN };
    let total = at_each_step(&volatile, crash);
    assert!(total.weakened > 10, "ram:1 must not be taken for durable: {total}");
}

#[test]
fn a_device_may_be_lost_at_each_step() {
    for device in 0..2 {
        for back in [None, Some(Nanos::from_millis(10))] {
            let lost = Trouble::LoseDevice { device, noticed: DOWN, back };
            let total = at_each_step(&short_run(2, Durability::Ram), lost);
            assert!(total.devices_lost > 100, "{total}");
            assert_eq!(total.weakened, 0);
        }
    }
}

#[test]
fn a_client_may_die_at_each_step() {
    for down in [None, Some(DOWN)] {
        let total = at_each_step(&short_run(1, Durability::Ram), Trouble::CrashClient { client: 0, down });
        assert!(total.outcome_unknown > 100, "{total}");
    }
}

#[test]
fn the_server_may_crash_again_while_it_recovers() {
    let scenario = short_run(1, Durability::Ram);
    let crash =
        |step| Mishap { when: When::Step(step), what: Trouble::CrashServer { server: 0, down: DOWN } };
    let with = |mishaps| Scenario { mishaps, ..scenario.clone() };
    let leaves_work = |step: &u64| pass(1, with(vec![crash(*step)])).executed_from_log > 0;
    let first = (100..300).find(leaves_work).expect("a crash at some step leaves work in the log");
    for second in first + 1..first + 140 {
        let total = pass(1, with(vec![crash(first), crash(second)]));
        assert!(total.server_crashes >= 1);
    }
}

// ---- one mechanism alone

/// The last request of a single client vanishes on one link, with nothing behind it.
fn last_request_lost(kind: Kind, from: Place, to: Place, repair: &'static [Repair]) -> Scenario {
    let mut scenario = Scenario::calm();
    scenario.work.requests_per_client = 30;
    scenario.work.burst_max = 1;
    scenario.work.outstanding_max = 1;
    scenario.work.reads = if kind == Kind::Read { PerMillion::ALWAYS } else { PerMillion::NEVER };
    scenario.work.bypasses = PerMillion::NEVER;
    scenario.work.relaxed = PerMillion::NEVER;
    scenario.work.large = PerMillion::NEVER;
    scenario.work.early = PerMillion::ALWAYS;
    scenario.work.think_max = Nanos::from_micros(100);
    scenario.repair = repair;
    // Nothing overtakes anything: what is out of order would have to be asked for.
    scenario.network.delay_max = scenario.network.delay_min;
    scenario.drops = vec![Drop { from, to, kind, seq: SeqNum(30), count: 1 }];
    scenario.calm_at = Nanos::from_millis(30);
    scenario
}

/// Every phase after the faults must end within so long; the last request was made before.
fn repaired_within(span: Nanos, scenario: Scenario) -> Report {
    let report = pass(3, Scenario { recovery_max: span, ..scenario });
    assert_eq!(report.tally.packets_lost, 0, "only the one packet vanishes");
    assert_eq!(report.outcome_unknown, 0);
    report
}

const CLIENT: Place = Place::Client(0);
const DEVICE: Place = Place::Device(0);

#[test]
fn retransmission_alone_finds_a_lost_last_request() {
    for kind in [Kind::Update, Kind::Read] {
        for (from, to) in [(CLIENT, DEVICE), (DEVICE, Place::Server(0))] {
            let scenario = last_request_lost(kind, from, to, &[Repair::ClientRetransmission]);
            let report = repaired_within(Nanos::from_millis(90), scenario);
            assert!(report.retransmitted > 0, "{report}");
        }
    }
}

#[test]
fn re_forwarding_alone_finds_a_lost_last_update() {
    let scenario = last_request_lost(Kind::Update, DEVICE, Place::Server(0), &[Repair::DeviceReforwarding]);
    let report = repaired_within(Nanos::from_millis(40), scenario);
    assert!(report.reforwarded > 0 && report.retransmitted == 0, "{report}");
}

#[test]
fn a_heartbeat_and_the_question_that_follows_find_a_lost_last_request() {
    for kind in [Kind::Update, Kind::Read] {
        let repair = &[Repair::ClientHeartbeat, Repair::ServerQuestions];
        let scenario = last_request_lost(kind, CLIENT, DEVICE, repair);
        let report = repaired_within(Nanos::from_millis(30), scenario);
        assert!(report.gaps_asked > 0, "{report}");
    }
}

#[test]
fn a_question_for_a_missing_order_finds_what_others_wait_for() {
    // Another client's requests stand behind the lost one in the order, none in its session.
    let mut scenario = last_request_lost(Kind::Update, DEVICE, Place::Server(0), &[Repair::ServerQuestions]);
    scenario.client_count = 2;
    scenario.drops[0].seq = SeqNum(20);
    let report = repaired_within(Nanos::from_millis(30), scenario);
    assert!(report.orders_asked > 0 && report.retransmitted == 0 && report.reforwarded == 0, "{report}");
}

#[test]
fn without_any_mechanism_the_loss_is_noticed() {
    let scenario = last_request_lost(Kind::Update, CLIENT, DEVICE, &[]);
    let failure = run(3, scenario, Depth::Last).expect_err("nothing repairs this");
    assert_eq!(failure.violation.invariant, remedy_persist_world::model::Invariant::Progress);
}

// ---- what is left when a client has died

#[test]
fn a_run_whose_stamps_are_forgotten_is_not_executed_over_the_gap_before_it() {
    let mut total = Report::default();
    for seed in 0..400 {
        total.add(&pass(seed, made::forgotten_run(seed)));
    }
    assert!(total.drains_asked > 400 && total.dead_letters > 20, "{total}");
}

#[test]
fn worlds_that_once_broke_a_promise_keep_it() {
    // An update executed over a gap of writes; a complete one given up, since another that stands
    // behind it in its session was before it in the order.
    pass(94_684, Scenario::random(94_684));
    // An entry behind more reads than the session's window was not replayed.
    pass(273_365, Scenario::random(273_365));
    pass(19_039, Scenario::storm(19_039));
    // A follower became the head and did not know of writes that had passed it unstamped.
    pass(5_115, Scenario::storm(5_115));
}

#[test]
fn no_device_acknowledges_what_the_server_goes_on_without() {
    let mut total = Report::default();
    for seed in 0..300 {
        total.add(&pass(seed, made::excluded_alive(seed)));
    }
    assert!(total.devices_lost > 250 && total.completed_early > 1_000, "{total}");
}

#[test]
fn a_device_with_few_slots_acknowledges_those_that_it_has_room_for() {
    let mut total = Report::default();
    for seed in 0..20 {
        let mut scenario = short_run(1, Durability::Ram);
        (scenario.window, scenario.device_window) = (32, 4);
        total.add(&pass(seed, scenario));
    }
    assert!(total.logged > 100 && total.completed_early > 40, "{total}");
}

// ---- words of the past

#[test]
fn packets_of_the_past_change_nothing() {
    // Half of all packets come again, up to a fifth of a second late, across three incarnations.
    let mut total = Report::default();
    for seed in 0..60 {
        let mut scenario = short_run(1, Durability::Ram);
        scenario.network.duplication = PerMillion::percent(50);
        scenario.network.straggling = PerMillion::percent(30);
        scenario.network.straggle_max = Nanos::from_millis(200);
        scenario.calm_at = Nanos::from_millis(120);
        scenario.mishaps = (1..=3)
            .map(|round| Mishap {
                when: When::Time(Nanos::from_millis(20 * round + seed % 7)),
                what: Trouble::CrashServer { server: 0, down: DOWN },
            })
            .collect();
        total.add(&pass(seed, scenario));
    }
    assert!(total.past_epoch > 100 && total.tally.packets_late > 1_000, "{total}");
}
