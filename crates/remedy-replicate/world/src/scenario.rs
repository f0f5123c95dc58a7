//! What a run of a group is made of.
//!
//! Invariant: a seed is a scenario.

use remedy_replicate::{Planted, StableWhen};
use scotfree_core::Nanos;
use scotfree_sim::network::Quality;
use scotfree_sim::rng::{PerMillion, Rng};
use scotfree_sim::{Mishap, When};
use std::fmt;

/// Where a role can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A client.
    Client(usize),
    /// A member.
    Member(usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Which protocol the group runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Chain replication.
    Chain,
    /// CRAQ.
    Craq,
    /// Hermes.
    Hermes,
}

impl Protocol {
    /// As configurations say it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Protocol::Chain => "chain",
            Protocol::Craq => "craq",
            Protocol::Hermes => "hermes",
        }
    }
}

/// What can go wrong.
#[derive(Debug, Clone, Copy)]
pub enum Trouble {
    /// A member's process dies, and comes back after a while with what its storage holds.
    Crash {
        /// Which.
        member: usize,
        /// For how long.
        down: Nanos,
    },
    /// A member does nothing for a while, and takes what has come meanwhile.
    Pause {
        /// Which.
        member: usize,
        /// For how long.
        span: Nanos,
    },
    /// Nothing passes from one place to another.
    Cut {
        /// From.
        from: Place,
        /// To.
        to: Place,
        /// For how long.
        span: Nanos,
    },
    /// The membership cannot be reached by a member.
    Silence {
        /// Which.
        member: usize,
        /// For how long.
        span: Nanos,
    },
}

/// A run.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The protocol.
    pub protocol: Protocol,
    /// The membership is an operator's: no leases, and all are full in a new view when one was started again.
    pub is_static: bool,
    /// How many members there are.
    pub member_count: usize,
    /// How many clients.
    pub client_count: usize,
    /// How many keys they use.
    pub key_count: u64,
    /// How many requests each of them makes.
    pub request_count: u64,
    /// Before each member stands a device, which acknowledges so many writes of one session.
    pub owed_count: u64,
    /// How many of a hundred requests write.
    pub write_percent: u32,
    /// When a write is stable.
    pub stable_when: StableWhen,
    /// How bad the network is.
    pub network: Quality,
    /// How wrong clocks run at most, in millionths.
    pub drift_ppm_max: u64,
    /// How long a lease is.
    pub lease: Nanos,
    /// How long a client waits before it goes to another member.
    pub patience: Nanos,
    /// How many bytes may be under way from a member to the next.
    pub window_bytes_max: usize,
    /// How long storage takes at most.
    pub storing_max: Nanos,
    /// What goes wrong.
    pub mishaps: Vec<Mishap<Trouble>>,
    /// When all faults stop.
    pub calm_at: Nanos,
    /// What goes wrong holds no request up: all have been answered when it stops.
    pub goes_on: bool,
    /// A safety rule switched off.
    pub planted: Planted,
}

const CALM_AT: Nanos = Nanos::from_millis(400);

impl Scenario {
    /// A chain.
    pub fn chain(seed: u64) -> Scenario {
        Scenario::random(seed, Protocol::Chain)
    }

    /// CRAQ.
    pub fn craq(seed: u64) -> Scenario {
        Scenario::random(seed, Protocol::Craq)
    }

    /// Hermes.
    pub fn hermes(seed: u64) -> Scenario {
        Scenario::random(seed, Protocol::Hermes)
    }

    /// Whatever the seed says.
    pub fn random(seed: u64, protocol: Protocol) -> Scenario {
        let rng = &mut Rng::new(seed, 1);
        let percent = |rng: &mut Rng, choices: &[u32]| PerMillion::percent(rng.pick(choices));
        let mut scenario = Scenario {
            protocol,
            is_static: false,
            member_count: rng.pick(&[1, 2, 3, 3, 3, 4, 5]),
            client_count: rng.between(1, 6) as usize,
            key_count: rng.between(1, 3),
            request_count: rng.between(10, 40),
            owed_count: 0,
            write_percent: rng.pick(&[20, 50, 80]),
            stable_when: rng.pick(&[StableWhen::InMemory, StableWhen::Stored]),
            network: Quality {
                loss: percent(rng, &[0, 1, 10]),
                duplication: percent(rng, &[0, 10]),
                corruption: percent(rng, &[0, 1]),
                delay_max: Nanos::from_micros(rng.pick(&[20, 400, 3_000])),
                straggling: percent(rng, &[0, 2]),
                straggle_max: Nanos::from_millis(rng.pick(&[20, 120])),
                ..Quality::CALM
            },
            drift_ppm_max: 500,
            lease: Nanos::from_millis(rng.pick(&[20, 50])),
            patience: Nanos::from_millis(rng.pick(&[2, 10, 30])),
            window_bytes_max: 1 << 20,
            storing_max: Nanos::from_micros(rng.pick(&[10, 500, 5_000])),
            mishaps: Vec::new(),
            calm_at: CALM_AT,
            goes_on: false,
            planted: Planted::default(),
        };
        scenario.mishaps = (0..rng.below(10)).map(|_| draw_mishap(rng, &scenario)).collect();
        scenario
    }
}

impl Scenario {
    /// An operator's views, of members that are started again, often several at once.
    pub fn stated(seed: u64, protocol: Protocol) -> Scenario {
        let rng = &mut Rng::new(seed, 7);
        let mut scenario = Scenario::random(seed, protocol);
        (scenario.is_static, scenario.stable_when) = (true, StableWhen::Stored);
        scenario.member_count = rng.pick(&[2, 3, 4]);
        scenario.mishaps = (0..rng.between(1, 6)).flat_map(|_| draw_outage(rng, &scenario)).collect();
        scenario
    }

    /// Members behind devices, whose views change all the time; members are left out and go on, while others die.
    pub fn behind_devices(seed: u64, protocol: Protocol) -> Scenario {
        let rng = &mut Rng::new(seed, 9);
        let mut scenario = Scenario::storm(seed, protocol);
        (scenario.owed_count, scenario.stable_when) = (rng.between(20, 60), StableWhen::Stored);
        scenario.client_count = rng.between(1, 2) as usize;
        scenario.mishaps = (0..rng.between(2, 6)).flat_map(|_| draw_departure(rng, &scenario)).collect();
        scenario
    }

    /// Members are started again, two at a time, and join over a network that loses much. What a joiner lacks is not
    /// hidden by a later write soon: there are several keys, and few writes.
    pub fn joining(seed: u64, protocol: Protocol) -> Scenario {
        let rng = &mut Rng::new(seed, 10);
        let mut scenario = Scenario::storm(seed, protocol);
        (scenario.member_count, scenario.client_count) = (rng.pick(&[4, 5]), 4);
        (scenario.request_count, scenario.write_percent) = (50, rng.pick(&[20, 40]));
        scenario.key_count = rng.pick(&[2, 5]);
        let (loss, delay_max) = (PerMillion::percent(rng.pick(&[20, 35])), Nanos::from_micros(300));
        scenario.network = Quality { loss, delay_max, ..Quality::CALM };
        scenario.storing_max = Nanos::from_micros(10);
        scenario.mishaps = (0..rng.between(4, 9)).flat_map(|_| draw_restarts(rng, &scenario)).collect();
        scenario
    }

    /// The membership hears a member that was started again, and the other members do not.
    pub fn apart(seed: u64, protocol: Protocol) -> Scenario {
        let rng = &mut Rng::new(seed, 8);
        let mut scenario = Scenario::random(seed, protocol);
        (scenario.goes_on, scenario.calm_at) = (true, Nanos::from_secs(1));
        scenario.member_count = rng.pick(&[3, 4, 5]);
        (scenario.request_count, scenario.patience) = (40, Nanos::from_millis(10));
        scenario.network = Quality { delay_max: Nanos::from_micros(400), ..Quality::CALM };
        scenario.storing_max = Nanos::from_micros(500);
        scenario.mishaps = part(rng.index(scenario.member_count), &scenario, rng);
        scenario
    }

    /// Views change all the time, and everybody uses one key.
    pub fn storm(seed: u64, protocol: Protocol) -> Scenario {
        let rng = &mut Rng::new(seed, 6);
        let mut scenario = Scenario::random(seed, protocol);
        scenario.member_count = rng.pick(&[3, 4, 5]);
        scenario.key_count = 1;
        scenario.request_count = 30;
        scenario.lease = Nanos::from_millis(20);
        scenario.patience = Nanos::from_millis(rng.pick(&[5, 12]));
        scenario.network.delay_max = Nanos::from_micros(rng.pick(&[400, 4_000]));
        scenario.network.loss = PerMillion::percent(rng.pick(&[0, 5]));
        scenario.mishaps = (0..rng.between(10, 25)).map(|_| draw_mishap(rng, &scenario)).collect();
        scenario
    }
}

/// A member dies and comes back, and all the while nothing passes between it and the others.
fn part(member: usize, scenario: &Scenario, rng: &mut Rng) -> Vec<Mishap<Trouble>> {
    let at = Nanos(rng.below(20_000_000));
    let span = scenario.calm_at.since(at);
    let place = Place::Member(member);
    let others = (0..scenario.member_count).filter(|other| *other != member).map(Place::Member);
    let cuts = others.flat_map(|other| {
        [Trouble::Cut { from: place, to: other, span }, Trouble::Cut { from: other, to: place, span }]
    });
    let crash = Trouble::Crash { member, down: Nanos(rng.below(60_000_000)) };
    cuts.chain([crash]).map(|what| Mishap { when: When::Time(at), what }).collect()
}

/// Some members die within a few milliseconds.
fn draw_outage(rng: &mut Rng, scenario: &Scenario) -> Vec<Mishap<Trouble>> {
    let at = rng.below(CALM_AT.0);
    let dies = |rng: &mut Rng| {
        let member = rng.index(scenario.member_count);
        let what = Trouble::Crash { member, down: Nanos(rng.below(30_000_000)) };
        Mishap { when: When::Time(Nanos(at + rng.below(5_000_000))), what }
    };
    (0..rng.between(1, 5)).map(|_| dies(rng)).collect()
}

/// Some members are left out of the view at about the same time: they die, or live on.
fn draw_departure(rng: &mut Rng, scenario: &Scenario) -> Vec<Mishap<Trouble>> {
    let at = rng.below(CALM_AT.0);
    let leaves = |rng: &mut Rng| {
        let (member, span) = (rng.index(scenario.member_count), Nanos(rng.below(60_000_000)));
        let what = match rng.below(4) {
            0 | 1 => Trouble::Silence { member, span },
            2 => Trouble::Crash { member, down: span },
            _ => Trouble::Pause { member, span },
        };
        Mishap { when: When::Time(Nanos(at + rng.below(10_000_000))), what }
    };
    (0..rng.between(1, 3)).map(|_| leaves(rng)).collect()
}

/// Two members are started again at the same time.
fn draw_restarts(rng: &mut Rng, scenario: &Scenario) -> [Mishap<Trouble>; 2] {
    let (at, down) = (Nanos(rng.below(CALM_AT.0)), Nanos(rng.below(15_000_000)));
    let first = rng.index(scenario.member_count);
    let members = [first, (first + 1) % scenario.member_count];
    members.map(|member| Mishap { when: When::Time(at), what: Trouble::Crash { member, down } })
}

fn draw_mishap(rng: &mut Rng, scenario: &Scenario) -> Mishap<Trouble> {
    let member = rng.index(scenario.member_count);
    let span = Nanos(rng.below(120_000_000));
    let other = Place::Member(rng.index(scenario.member_count));
    let what = match rng.below(7) {
        0..=2 => Trouble::Crash { member, down: span },
        3 => Trouble::Pause { member, span },
        4 => Trouble::Cut { from: Place::Member(member), to: other, span },
        5 => {
            let client = Place::Client(rng.index(scenario.client_count));
            let (from, to) = if rng.below(2) == 0 { (client, other) } else { (other, client) };
            Trouble::Cut { from, to, span }
        }
        _ => Trouble::Silence { member, span },
    };
    Mishap { when: When::Time(Nanos(rng.below(CALM_AT.0))), what }
}
