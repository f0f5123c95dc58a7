//! What a run is made of: all that chance decides before it begins.
//!
//! Invariant: a scenario and a seed determine the run; [`Scenario::random`] derives the scenario
//! from the seed too.

use crate::media::{DeviceCrash, DiskTimes};
use crate::place::Place;
use scotfree_core::{Durability, Nanos, SeqNum};
use scotfree_device::Maker;
use scotfree_session::Fault;
use scotfree_sim::network::Quality;
use scotfree_sim::rng::{PerMillion, Rng};
use scotfree_wire::Kind;

pub use scotfree_sim::When;

/// Everything about a run but its seed.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// How many clients there are.
    pub client_count: usize,
    /// How many devices stand on the path.
    pub device_count: usize,
    /// How many servers stand behind them. Clients are dealt to them in turns.
    pub server_count: usize,
    /// The functions of each device, in their order.
    pub functions: Vec<Maker>,
    /// Whose updates the devices log.
    pub logged: Logged,
    /// The durability that clients ask for.
    pub asked: Durability,
    /// How many devices must acknowledge.
    pub device_acks: u8,
    /// Whether the devices' memory survives a restart of their hosts.
    pub ram_survives_host: bool,
    /// Whether early updates complete before their elders.
    pub early_overtakes: bool,
    /// The credit of a session, if every device has slots for it.
    pub window: u32,
    /// How many slots a device has for a session.
    pub device_window: u32,
    /// How many sessions a device has room for.
    pub device_sessions_max: u32,
    /// What the clients do.
    pub work: Work,
    /// How bad the network is, until all faults stop.
    pub network: Quality,
    /// When there are ways around the devices, if the network has some.
    pub detours: Detours,
    /// How long the server takes.
    pub service: ServiceTimes,
    /// How long the devices' disks take.
    pub disk: DiskTimes,
    /// How fast clocks may run apart.
    pub drift_ppm_max: u32,
    /// What goes wrong, and when.
    pub mishaps: Vec<Mishap>,
    /// Single packets that vanish.
    pub drops: Vec<Drop>,
    /// When all faults stop and the network becomes calm.
    pub calm_at: Nanos,
    /// Which mechanisms repair damage.
    pub repair: &'static [Repair],
    /// How long a session lives without a sign of its client.
    pub expiry: Nanos,
    /// How long after the faults have stopped everything outstanding may take.
    pub recovery_max: Nanos,
    /// How many bytes of requests may wait at the server.
    pub buffer_bytes_max: usize,
    /// How many bytes of sent replies the server keeps per session.
    pub replies_bytes_max: usize,
    /// A safety rule switched off.
    pub planted: Option<Fault>,
    /// Whose verdict counts.
    pub judge: Judge,
}

/// Whose verdict on a run counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judge {
    /// Everyone's, after each step.
    Everyone,
    /// At the end, that of what clients saw; what the roles did is nobody's business.
    Clients,
    /// The same, with relaxed reads held to what only strict ones promise.
    ClientsAsIfStrict,
}

/// Of several servers, those whose updates are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logged {
    /// All.
    All,
    /// This one.
    Only(usize),
}

impl Logged {
    /// Whether this server is one of them.
    pub fn holds(self, server: usize) -> bool {
        match self {
            Logged::All => true,
            Logged::Only(only) => server == only,
        }
    }
}

/// When packets may get from client to server, and back, around the devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detours {
    /// At any time.
    Always,
    /// Once a device is excluded and all servers go on without it: the operator has given some clients another way,
    /// and the others still come by it.
    AroundExcluded,
}

/// What the clients do.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// How many requests each client makes.
    pub requests_per_client: usize,
    /// How many of them are outstanding at most.
    pub outstanding_max: usize,
    /// How many it makes at once.
    pub burst_max: u64,
    /// How long it thinks between bursts.
    pub think_min: Nanos,
    /// At most.
    pub think_max: Nanos,
    /// How many cells the application has.
    pub cell_count: usize,
    /// Of the requests, reads of what no write changes, which a function of a device may answer.
    pub known: PerMillion,
    /// Whether a function of a device may answer reads of cells. Then nobody lengthens a list: a register that is
    /// overwritten is all that a read shows, and servers vouch for what they answer.
    pub answerable: bool,
    /// Where reads are answered: how many hashes the cells' names have.
    pub hash_count: u64,
    /// Of the overwrites, those of values that live for a while.
    pub living: PerMillion,
    /// Of the writes, those of two cells that name both.
    pub pairs: PerMillion,
    /// Of these, those that are updates; the others bypass.
    pub pairs_logged: PerMillion,
    /// Of a hundred requests, reads.
    pub reads: PerMillion,
    /// Of a hundred writes, bypassing.
    pub bypasses: PerMillion,
    /// Of the updates, early ones (where the reply is known).
    pub early: PerMillion,
    /// Of the reads, relaxed ones.
    pub relaxed: PerMillion,
    /// Requests and replies of more than one packet.
    pub large: PerMillion,
    /// Requests of which every packet is lost for the first sendings.
    pub swallowed: PerMillion,
}

/// How long the server takes.
#[derive(Debug, Clone, Copy)]
pub struct ServiceTimes {
    /// The shortest execution.
    pub execute_min: Nanos,
    /// The longest.
    pub execute_max: Nanos,
    /// How often it syncs on its own.
    pub sync_interval: Nanos,
    /// The shortest sync.
    pub sync_min: Nanos,
    /// The longest.
    pub sync_max: Nanos,
    /// For so long after a server is back from its first crash, its application takes no writes.
    pub refuses_after_crash: Nanos,
    /// Of the restarts, those before which somebody has overwritten a register in the storage.
    pub changed_while_away: PerMillion,
}

/// A mechanism that repairs damage. Where one alone is left, it must do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repair {
    /// Clients send again what stays unanswered.
    ClientRetransmission,
    /// Clients say what their highest request is, and the server asks for what it misses.
    ClientHeartbeat,
    /// Devices send aged entries to the server again.
    DeviceReforwarding,
    /// The server asks devices and clients for what is missing before what it has.
    ServerQuestions,
}

impl Repair {
    /// All of them.
    pub const ALL: &'static [Repair] = &[
        Repair::ClientRetransmission,
        Repair::ClientHeartbeat,
        Repair::DeviceReforwarding,
        Repair::ServerQuestions,
    ];
}

/// Packets that vanish on one link: the next `count` of one kind and place in their session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drop {
    /// Where the link begins.
    pub from: Place,
    /// Where it ends.
    pub to: Place,
    /// Of which kind.
    pub kind: Kind,
    /// Of which place; 0 is any.
    pub seq: SeqNum,
    /// How many.
    pub count: u32,
}

/// Something that goes wrong once.
pub type Mishap = scotfree_sim::Mishap<Trouble>;

/// What can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// A server dies and comes back after a while.
    CrashServer {
        /// Which.
        server: usize,
        /// How long it is away.
        down: Nanos,
    },
    /// A server is gone for good, with its storage; the last one stays.
    LoseServer {
        /// Which.
        server: usize,
    },
    /// A device dies and comes back.
    CrashDevice {
        /// Which.
        device: usize,
        /// The process or its host.
        kind: DeviceCrash,
        /// How long it is away.
        down: Nanos,
    },
    /// A device is gone; after a while the operator excludes it and packets pass its place.
    LoseDevice {
        /// Which.
        device: usize,
        /// How long the operator takes.
        noticed: Nanos,
        /// After how long it is put back into service with its old log; `None` is never, and its
        /// log is gone.
        back: Option<Nanos>,
    },
    /// The operator excludes a device that lives; packets pass its place a while after.
    ExcludeDevice {
        /// Which.
        device: usize,
        /// How long it stays in its place.
        stays: Nanos,
    },
    /// A client dies. If it comes back it opens a new session.
    CrashClient {
        /// Which.
        client: usize,
        /// How long it is away; `None` is for good.
        down: Option<Nanos>,
    },
    /// Nothing passes from one place to its neighbour, for a while.
    Cut {
        /// From.
        from: Place,
        /// To.
        to: Place,
        /// For how long.
        span: Nanos,
    },
    /// A clock is set forward, or, if negative, backward.
    JumpClock {
        /// Whose.
        place: Place,
        /// How far.
        jump_ns: i64,
    },
    /// Somebody without the key says that everything of a session is stable.
    Forge {
        /// Whose session.
        client: usize,
    },
    /// The operator is told that a client's session has failed in the application.
    FailSession {
        /// Whose.
        client: usize,
    },
    /// The operator rotates the cluster's key: a new epoch for the server, the devices and the clients, one
    /// after the other, then the old one away from all.
    RotateKey {
        /// How long from one to the next.
        step: Nanos,
    },
}

const MILLI: u64 = 1_000_000;

impl Scenario {
    /// Everything in order, one client, one device: what directed scenarios start from.
    pub fn calm() -> Scenario {
        Scenario {
            client_count: 1,
            device_count: 1,
            server_count: 1,
            functions: vec![remedy_persist::MAKER],
            logged: Logged::All,
            asked: Durability::Ram,
            device_acks: 1,
            ram_survives_host: true,
            early_overtakes: true,
            window: 16,
            device_window: 16,
            device_sessions_max: 16,
            work: Work {
                requests_per_client: 40,
                outstanding_max: 8,
                burst_max: 4,
                think_min: Nanos::from_micros(10),
                think_max: Nanos::from_millis(2),
                cell_count: 4,
                known: PerMillion::NEVER,
                answerable: false,
                hash_count: 8,
                living: PerMillion::NEVER,
                pairs: PerMillion::NEVER,
                pairs_logged: PerMillion::NEVER,
                reads: PerMillion::percent(30),
                bypasses: PerMillion::percent(10),
                early: PerMillion::percent(50),
                relaxed: PerMillion::percent(3),
                large: PerMillion::percent(3),
                swallowed: PerMillion::NEVER,
            },
            network: Quality::CALM,
            detours: Detours::Always,
            service: ServiceTimes {
                execute_min: Nanos::from_micros(1),
                execute_max: Nanos::from_micros(20),
                sync_interval: Nanos::from_millis(2),
                sync_min: Nanos::from_micros(50),
                sync_max: Nanos::from_micros(300),
                refuses_after_crash: Nanos(0),
                changed_while_away: PerMillion::NEVER,
            },
            disk: DiskTimes {
                commit_min: Nanos::from_micros(60),
                commit_max: Nanos::from_micros(200),
                slow: PerMillion::percent(2),
            },
            drift_ppm_max: 0,
            mishaps: Vec::new(),
            drops: Vec::new(),
            calm_at: Nanos::from_millis(100),
            repair: Repair::ALL,
            expiry: Nanos::from_secs(2),
            recovery_max: Nanos::from_millis(1_500),
            buffer_bytes_max: 1 << 20,
            replies_bytes_max: 1 << 20,
            planted: None,
            judge: Judge::Everyone,
        }
    }

    /// Whatever the seed says.
    pub fn random(seed: u64) -> Scenario {
        let rng = &mut Rng::new(seed, 1);
        let mut scenario = Scenario::calm();
        scenario.client_count = rng.between(1, 4) as usize;
        scenario.device_count = rng.pick(&[0, 1, 1, 1, 1, 2, 2, 3]);
        scenario.window = rng.pick(&[4, 8, 16, 32]);
        scenario.device_sessions_max = rng.pick(&[2, 8, 16, 16]);
        scenario.drift_ppm_max = rng.pick(&[0, 100, 500]);
        draw_durability(rng, &mut scenario);
        scenario.work = draw_work(rng, scenario.client_count);
        scenario.network = draw_network(rng);
        scenario.service = draw_service(rng);
        if rng.chance(PerMillion::percent(15)) {
            scenario.expiry = Nanos::from_millis(rng.between(60, 200));
        }
        scenario.buffer_bytes_max = rng.pick(&[2_000, 1 << 20, 1 << 20]);
        scenario.replies_bytes_max = rng.pick(&[300, 1 << 20, 1 << 20, 1 << 20]);
        let count = rng.pick(&[0, 1, 1, 2, 2, 3, 4, 6]);
        scenario.mishaps = (0..count).map(|_| draw_mishap(rng, &scenario)).collect();
        let window = scenario.window;
        scenario.device_window = rng.pick(&[window, window, window / 2, window / 4]);
        scenario.early_overtakes = rng.chance(PerMillion::percent(75));
        scenario
    }

    /// As [`Scenario::random`], with one thing after another going wrong, often before the last is
    /// repaired.
    pub fn storm(seed: u64) -> Scenario {
        let mut scenario = Scenario::random(seed);
        let rng = &mut Rng::new(seed, 7);
        scenario.work.think_max = Nanos::from_millis(8);
        scenario.work.requests_per_client *= 2;
        scenario.calm_at = Nanos::from_millis(200);
        let count = rng.between(6, 16);
        scenario.mishaps = (0..count).map(|_| draw_mishap(rng, &scenario)).collect();
        for mishap in &mut scenario.mishaps {
            mishap.when = When::Time(Nanos(rng.below(160 * MILLI)));
        }
        scenario
    }

    /// As [`Scenario::random`], with two or three servers behind the devices. Each crashes for itself and may be lost,
    /// and the updates of all or of one are logged.
    pub fn several(seed: u64) -> Scenario {
        let mut scenario = Scenario::random(seed);
        let rng = &mut Rng::new(seed, 8);
        scenario.server_count = rng.pick(&[2, 2, 3]);
        scenario.client_count = scenario.server_count.max(rng.between(2, 5) as usize);
        let requests = rng.between(80, 240) as usize;
        scenario.work.requests_per_client = requests / scenario.client_count;
        scenario.device_sessions_max = rng.pick(&[4, 16, 32, 32]);
        if rng.chance(PerMillion::percent(25)) {
            scenario.logged = Logged::Only(rng.index(scenario.server_count));
        }
        let count = rng.pick(&[0, 1, 2, 3, 4, 6]);
        scenario.mishaps = (0..count).map(|_| draw_mishap(rng, &scenario)).collect();
        if rng.chance(PerMillion::percent(20)) {
            let server = rng.index(scenario.server_count);
            let when = When::Time(Nanos(rng.below(80 * MILLI)));
            scenario.mishaps.push(Mishap { when, what: Trouble::LoseServer { server } });
        }
        if rng.chance(PerMillion::percent(10)) {
            let step = Nanos::from_micros(rng.between(100, 4_000));
            let when = When::Time(Nanos(rng.below(40 * MILLI)));
            scenario.mishaps.push(Mishap { when, what: Trouble::RotateKey { step } });
        }
        scenario
    }

    /// Which server a client has its sessions with. Behind the clients stand the auditors, one a server.
    pub fn server_of(&self, client: usize) -> usize {
        match client.checked_sub(self.client_count) {
            Some(auditor) => auditor,
            None => client % self.server_count,
        }
    }

    /// Whether servers write what no client has asked for. That may stand before what is done again after a crash, and
    /// clients may have seen it the other way round: then the storage's order is no witness, and only that of what
    /// clients saw is looked for.
    pub fn servers_write(&self) -> bool {
        self.work.living != PerMillion::NEVER || self.service.changed_while_away != PerMillion::NEVER
    }

    /// Whether a mechanism is switched on.
    pub fn repairs_by(&self, mechanism: Repair) -> bool {
        self.repair.contains(&mechanism)
    }

    /// How many devices may lose their memory without harm to what was promised.
    pub fn device_losses_max(&self) -> usize {
        usize::from(self.device_acks).saturating_sub(1)
    }
}

fn draw_durability(rng: &mut Rng, scenario: &mut Scenario) {
    if scenario.device_count == 0 {
        scenario.asked = Durability::None;
        scenario.device_acks = 0;
        return;
    }
    scenario.asked = rng.pick(&[Durability::Ram, Durability::Ram, Durability::Disk, Durability::RamAndDisk]);
    scenario.device_acks = rng.between(1, scenario.device_count as u64) as u8;
    scenario.ram_survives_host = rng.chance(PerMillion::percent(50));
}

fn draw_work(rng: &mut Rng, client_count: usize) -> Work {
    let percent = |rng: &mut Rng, choices: &[u32]| PerMillion::percent(rng.pick(choices));
    Work {
        requests_per_client: rng.between(60, 200) as usize / client_count,
        outstanding_max: rng.pick(&[1, 4, 8, 16]),
        burst_max: rng.pick(&[1, 4, 8]),
        think_min: Nanos::from_micros(10),
        think_max: Nanos::from_millis(rng.pick(&[1, 3, 8])),
        cell_count: rng.between(2, 5) as usize,
        known: PerMillion::NEVER,
        answerable: false,
        hash_count: 8,
        living: PerMillion::NEVER,
        pairs: PerMillion::NEVER,
        pairs_logged: PerMillion::NEVER,
        reads: percent(rng, &[10, 30, 60]),
        bypasses: percent(rng, &[0, 5, 20]),
        early: percent(rng, &[0, 50, 100]),
        relaxed: percent(rng, &[0, 0, 10]),
        large: percent(rng, &[0, 2, 10]),
        swallowed: percent(rng, &[0, 2, 5]),
    }
}

fn draw_network(rng: &mut Rng) -> Quality {
    let percent = |rng: &mut Rng, choices: &[u32]| PerMillion::percent(rng.pick(choices));
    Quality {
        loss: percent(rng, &[0, 1, 5, 20]),
        duplication: percent(rng, &[0, 1, 10]),
        corruption: percent(rng, &[0, 0, 1, 3]),
        delay_min: Nanos::from_micros(5),
        delay_max: Nanos::from_micros(rng.pick(&[10, 50, 400, 2_000])),
        straggling: percent(rng, &[0, 1, 3]),
        straggle_max: Nanos::from_millis(rng.pick(&[5, 40, 150])),
        detour: percent(rng, &[0, 0, 2, 20]),
    }
}

fn draw_service(rng: &mut Rng) -> ServiceTimes {
    let sync_max = Nanos::from_micros(rng.pick(&[60, 500, 5_000]));
    ServiceTimes {
        execute_min: Nanos::from_micros(1),
        execute_max: Nanos::from_micros(rng.pick(&[5, 50, 500])),
        sync_interval: Nanos::from_millis(rng.pick(&[1, 5, 20])),
        sync_min: Nanos::from_micros(50),
        sync_max,
        refuses_after_crash: Nanos(0),
        changed_while_away: PerMillion::NEVER,
    }
}

fn draw_mishap(rng: &mut Rng, scenario: &Scenario) -> Mishap {
    let when = When::Time(Nanos(rng.below(80 * MILLI)));
    let down = Nanos(rng.between(MILLI / 10, 15 * MILLI));
    let client = rng.index(scenario.client_count);
    let device = rng.index(scenario.device_count.max(1));
    let server = draw_server(rng, scenario);
    let what = match rng.below(100) {
        0..30 => Trouble::CrashServer { server, down },
        30..50 if scenario.device_count > 0 => {
            let kind = rng.pick(&[DeviceCrash::Process, DeviceCrash::Host]);
            Trouble::CrashDevice { device, kind, down }
        }
        30..62 => {
            let returns = rng.chance(PerMillion::percent(60));
            Trouble::CrashClient { client, down: returns.then_some(down) }
        }
        62..80 => {
            let (from, to) = draw_link(rng, scenario, client);
            Trouble::Cut { from, to, span: Nanos(rng.between(MILLI, 40 * MILLI)) }
        }
        80..90 => Trouble::JumpClock { place: draw_place(rng, scenario, client), jump_ns: draw_jump(rng) },
        90..93 => Trouble::Forge { client },
        93..94 => Trouble::FailSession { client },
        _ if scenario.device_losses_max() > 0 => {
            let returns = rng.chance(PerMillion::percent(40));
            let back = returns.then(|| Nanos(rng.between(20 * MILLI, 100 * MILLI)));
            Trouble::LoseDevice { device, noticed: down, back }
        }
        _ => Trouble::CrashServer { server, down },
    };
    Mishap { when, what }
}

/// Where there is one, chance is not asked.
fn draw_server(rng: &mut Rng, scenario: &Scenario) -> usize {
    if scenario.server_count == 1 {
        0
    } else {
        rng.index(scenario.server_count)
    }
}

fn draw_place(rng: &mut Rng, scenario: &Scenario, client: usize) -> Place {
    match rng.below(3) {
        0 => Place::Server(draw_server(rng, scenario)),
        1 if scenario.device_count > 0 => Place::Device(rng.index(scenario.device_count)),
        _ => Place::Client(client),
    }
}

fn draw_link(rng: &mut Rng, scenario: &Scenario, client: usize) -> (Place, Place) {
    let mut chain = vec![Place::Client(client)];
    chain.extend((0..scenario.device_count).map(Place::Device));
    chain.push(Place::Server(scenario.server_of(client)));
    let at = rng.index(chain.len() - 1);
    let (near, far) = (chain[at], chain[at + 1]);
    if rng.chance(PerMillion::percent(50)) {
        (near, far)
    } else {
        (far, near)
    }
}

/// Forward by up to 60 ms, or backward by up to 5 ms.
fn draw_jump(rng: &mut Rng) -> i64 {
    if rng.chance(PerMillion::percent(60)) {
        rng.below(60 * MILLI) as i64
    } else {
        -(rng.below(5 * MILLI) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_scenario() {
        assert_eq!(format!("{:?}", Scenario::random(7)), format!("{:?}", Scenario::random(7)));
        assert_ne!(format!("{:?}", Scenario::random(7)), format!("{:?}", Scenario::random(8)));
    }

    #[test]
    fn every_kind_of_trouble_comes_up() {
        let mut seen = [false; 8];
        for mishap in (0..500).flat_map(|seed| Scenario::random(seed).mishaps) {
            seen[match mishap.what {
                Trouble::CrashServer { .. } | Trouble::LoseServer { .. } => 0,
                Trouble::CrashDevice { .. } => 1,
                Trouble::LoseDevice { .. } | Trouble::ExcludeDevice { .. } => 2,
                Trouble::CrashClient { .. } => 3,
                Trouble::Cut { .. } => 4,
                Trouble::JumpClock { .. } => 5,
                Trouble::Forge { .. } => 6,
                // Only other scenarios rotate keys.
                Trouble::FailSession { .. } | Trouble::RotateKey { .. } => 7,
            }] = true;
        }
        assert_eq!(seen, [true; 8]);
    }
}
