//! Whether a device here can have its plane in the kernel.
//!
//! Invariant: what cannot be looked at from here is said to be so, never guessed; every mend also offers the
//! plane that needs none of this.

mod ports;

use super::interfaces::is_missing;
use super::{capabilities, Environment, Finding, State};
use scotfree_core::DeviceId;
use scotfree_stage::kernel_plane::{is_user_namespace, USER_NAMESPACE_FILE};
use std::path::{Path, PathBuf};

const CAP_NET_ADMIN: u64 = 1 << 12;
const CAP_SYS_ADMIN: u64 = 1 << 21;
const CAP_PERFMON: u64 = 1 << 38;
const CAP_BPF: u64 = 1 << 39;
/// Where devices keep what outlives their daemons, unless they are told otherwise.
pub const KEPT_FOLDER: &str = "/sys/fs/bpf";
/// What the folders of devices are called there; the device's number follows.
pub const KEPT_PREFIX: &str = "scotfree-device-";
/// What the folders of sets for groups are called there; the group's name follows.
pub const SETS_PREFIX: &str = "scotfree-group-";
/// The first kernel that lets who may load no programs use those that others have loaded, whatever
/// `kernel.unprivileged_bpf_disabled` says.
const SETS_SINCE: (u32, u32) = (5, 19);
const UNIT_FILES: [&str; 3] = [
    "/etc/systemd/system/scot-switch.service",
    "/usr/lib/systemd/system/scot-switch.service",
    "/lib/systemd/system/scot-switch.service",
];
const SERVICE_SETTINGS: &str = "/etc/scotfree/scot.toml";
const BTF_FILE: &str = "/sys/kernel/btf/vmlinux";
/// The first kernel that has all that the programs call: `bpf_xdp_load_bytes` came last.
const PROGRAMS_SINCE: (u32, u32) = (5, 18);
const OTHERWISE: &str = "or give --plane user";

/// What is wanted of the plane in the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KernelWish {
    /// Whether a device here is to use it; if not, it is something that could be.
    pub is_wanted: bool,
    /// The folder of that device, where it is not the usual one.
    pub pin: Option<PathBuf>,
    /// Whether its programs may run in the kernel's stack.
    pub generic: bool,
}

impl KernelWish {
    fn lacking(&self) -> State {
        if self.is_wanted {
            State::Must
        } else {
            State::Could
        }
    }
}

/// What a device has kept in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptDevice {
    /// The folder.
    pub folder: PathBuf,
    /// Its device and incarnation, or why it cannot be read.
    pub holds: Result<String, String>,
    /// The ports to which its programs are attached.
    pub ports: Vec<String>,
    /// Who runs it.
    pub runner: Runner,
}

/// A set of programs that root has loaded for a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSet {
    /// Its folder, or that of all sets of a group that cannot be entered.
    pub folder: PathBuf,
    /// The device whose log it holds, none if it is free; or why it cannot be used from here.
    pub owner: Result<Option<DeviceId>, String>,
}

/// Who runs a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runner {
    /// A process.
    Process(u32),
    /// No process.
    Nobody,
    /// That is not to be seen from here.
    Unknown,
}

pub(super) fn check(environment: &dyn Environment, wish: &KernelWish, interfaces: &[String]) -> Vec<Finding> {
    if !environment.has_kernel_plane() {
        return vec![left_out(wish)];
    }
    let sets = environment.group_sets(Path::new(KEPT_FOLDER), wish.pin.as_deref());
    let usable = sets.iter().find(|set| set.owner.is_ok());
    let rights = rights(environment, wish, usable);
    let may_try = rights.state == State::Ok;
    let features = match usable {
        Some(set) if !may_try => {
            let found = format!("the kernel has taken the device's programs: {}", set.folder.display());
            Finding::ok("kernel plane: features", found)
        }
        _ => features(environment, wish, may_try),
    };
    let mut findings = vec![rights, features, file_system(environment, wish)];
    findings.push(group_sets(environment, &sets, may_try));
    findings.push(service(environment));
    findings.extend(kept(environment, wish, &sets));
    let there = interfaces.iter().filter(|interface| !is_missing(environment, interface));
    findings.extend(there.flat_map(|interface| ports::check(environment, wish, interface)));
    findings
}

fn left_out(wish: &KernelWish) -> Finding {
    let found = "this scot was built without the plane in the kernel";
    let mend = format!(
        "apt-get install clang libbpf-dev libelf-dev zlib1g-dev, then: cargo build --release -p scotfree-cli; {OTHERWISE}"
    );
    Finding::lacks("kernel plane", wish.lacking(), found, mend)
}

fn rights(environment: &dyn Environment, wish: &KernelWish, usable: Option<&GroupSet>) -> Finding {
    let check = "kernel plane: rights";
    let (lacking, set) = match usable {
        Some(set) => (State::Could, format!("--pin {}; or ", set.folder.display())),
        None => (wish.lacking(), String::new()),
    };
    let held = capabilities(environment);
    let uid_map = environment.read(USER_NAMESPACE_FILE);
    if uid_map.is_some_and(|map| is_user_namespace(&map)) {
        let found = "this is a user namespace; the kernel takes programs from the first one only";
        let mend = format!("{set}run outside of it, as root: sudo scot …; {OTHERWISE}");
        return Finding::lacks(check, lacking, found, mend);
    }
    // Without CAP_PERFMON the kernel takes no program that reads a frame at a place it has computed.
    let needed = [
        ("CAP_BPF", CAP_BPF | CAP_SYS_ADMIN),
        ("CAP_PERFMON", CAP_PERFMON | CAP_SYS_ADMIN),
        ("CAP_NET_ADMIN", CAP_NET_ADMIN),
    ];
    let lacks: Vec<&str> =
        needed.into_iter().filter(|(_, any)| held & any == 0).map(|(name, _)| name).collect();
    if lacks.is_empty() {
        return Finding::ok(check, "CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN are held");
    }
    let mend = format!(
        "{set}run as root: sudo scot …; or setcap cap_bpf,cap_perfmon,cap_net_admin,cap_net_raw+ep \"$(command -v \
         scot)\"; {OTHERWISE}"
    );
    Finding::lacks(check, lacking, format!("missing: {}", lacks.join(", ")), mend)
}

fn features(environment: &dyn Environment, wish: &KernelWish, may_try: bool) -> Finding {
    let check = "kernel plane: features";
    let mend =
        format!("a kernel from 5.18 on with CONFIG_DEBUG_INFO_BTF, as Debian's and Ubuntu's; {OTHERWISE}");
    let release = release(environment);
    let release_text =
        release.map_or("of unknown version".into(), |(major, minor)| format!("{major}.{minor}"));
    if release.is_some_and(|release| release < PROGRAMS_SINCE) {
        let found = format!(
            "Linux {release_text} lacks bpf_xdp_load_bytes, which the programs call; 5.18 and later have it"
        );
        return Finding::lacks(check, wish.lacking(), found, mend);
    }
    if may_try {
        return match environment.try_programs() {
            Ok(()) => Finding::ok(
                check,
                format!(
                    "Linux {release_text} took the device's programs, with BTF, ring buffer and map of ports"
                ),
            ),
            Err(problem) => Finding::lacks(check, wish.lacking(), problem, mend),
        };
    }
    if environment.read(BTF_FILE).is_none() && !environment.is_there(Path::new(BTF_FILE)) {
        return Finding::lacks(check, wish.lacking(), format!("there is no BTF: {BTF_FILE}"), mend);
    }
    let found = format!(
        "Linux {release_text} is not too old; whether it takes the programs cannot be tried without the rights"
    );
    Finding::lacks(check, State::Could, found, format!("try it as root: sudo scot doctor; {OTHERWISE}"))
}

fn release(environment: &dyn Environment) -> Option<(u32, u32)> {
    let text = environment.read("/proc/sys/kernel/osrelease")?;
    let mut numbers = text.split(|letter: char| !letter.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

// ---- without root, and as a service

/// What root has loaded for groups; of no use to who may load programs.
fn group_sets(environment: &dyn Environment, sets: &[GroupSet], may_load: bool) -> Finding {
    let check = "kernel plane: sets for groups";
    let make = format!("sudo scot setup --group GROUP, with you in it; {OTHERWISE}");
    let say = |set: &GroupSet| {
        let folder = set.folder.display();
        match &set.owner {
            Ok(Some(device)) => format!("{folder} (of device {device})"),
            Ok(None) => format!("{folder} (free)"),
            Err(problem) => format!("{folder}: {problem}"),
        }
    };
    let said: Vec<String> = sets.iter().map(say).collect();
    let said = if said.is_empty() { "none".to_owned() } else { said.join(", ") };
    let setting = environment.read("/proc/sys/kernel/unprivileged_bpf_disabled").unwrap_or_default();
    let is_old = release(environment).is_some_and(|release| release < SETS_SINCE);
    if may_load {
        return Finding::ok(check, format!("{said}; needed only without these rights"));
    }
    if is_old && setting.trim() != "0" {
        let found = format!(
            "{said}; but kernels before 5.19 let nobody without CAP_BPF use them while kernel.unprivileged_bpf_disabled is {}",
            setting.trim()
        );
        let mend = format!("a kernel from 5.19 on; or run as root: sudo scot …; {OTHERWISE}");
        return Finding::lacks(check, State::Could, found, mend);
    }
    if sets.iter().any(|set| set.owner.is_ok()) {
        return Finding::ok(check, format!("{said}; a device here takes one with --pin"));
    }
    Finding::lacks(check, State::Could, said, make)
}

fn service(environment: &dyn Environment) -> Finding {
    let check = "kernel plane: service";
    if !UNIT_FILES.iter().any(|file| environment.is_there(Path::new(file))) {
        return Finding::ok(check, "is not installed; docs/privileges.md says how a device is run as one");
    }
    if environment.is_there(Path::new(SERVICE_SETTINGS)) {
        return Finding::ok(check, format!("is installed, with settings in {SERVICE_SETTINGS}"));
    }
    let found = format!("is installed, but there is no {SERVICE_SETTINGS}");
    let mend = format!("write it, as docs/privileges.md shows; then: scot config check {SERVICE_SETTINGS}");
    Finding::lacks(check, State::Should, found, mend)
}

// ---- what outlives a daemon

fn kept_in(wish: &KernelWish) -> &Path {
    wish.pin.as_deref().and_then(Path::parent).unwrap_or(Path::new(KEPT_FOLDER))
}

fn file_system(environment: &dyn Environment, wish: &KernelWish) -> Finding {
    let folder = kept_in(wish);
    let check = format!("kernel plane: BPF file system at {}", folder.display());
    let mounts = environment.read("/proc/self/mounts").unwrap_or_default();
    // The last of those that reach deepest covers the others.
    let covers = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (place, kind) = (words.next()?, words.next()?);
        folder.starts_with(place).then_some((place.len(), kind))
    });
    if covers.max_by_key(|(depth, _)| *depth).is_some_and(|(_, kind)| kind == "bpf") {
        return Finding::ok(check, "is mounted: the log outlives its daemon there");
    }
    let found = "is not mounted: there is no place for a log that outlives its daemon";
    // `ip netns exec` mounts another /sys for each command, so that what is mounted there is gone with it.
    let mend = format!(
        "mount -t bpf bpf {}; under ip netns exec: nsenter --net=/run/netns/NAME instead; or name another with --pin; \
         {OTHERWISE}",
        folder.display()
    );
    Finding::lacks(check, wish.lacking(), found, mend)
}

fn kept(environment: &dyn Environment, wish: &KernelWish, sets: &[GroupSet]) -> Vec<Finding> {
    let folder = kept_in(wish);
    match environment.kept_devices(folder, wish.pin.as_deref()) {
        Ok(devices) if devices.is_empty() => vec![none_kept(environment, folder, sets)],
        Ok(devices) => devices.iter().map(one_kept).collect(),
        Err(problem) => vec![Finding::lacks(
            "kernel plane: kept devices",
            State::Could,
            format!("{} cannot be looked into from here: {problem}", folder.display()),
            "look as root: sudo scot doctor",
        )],
    }
}

/// A device may have been told another folder than who looks for it, which is no fault.
fn none_kept(environment: &dyn Environment, folder: &Path, sets: &[GroupSet]) -> Finding {
    let check = "kernel plane: kept devices";
    let none = format!("none in {}", folder.display());
    let mut elsewhere = environment.kept_elsewhere();
    elsewhere.retain(|place| sets.iter().all(|set| set.folder != *place));
    let Some(first) = elsewhere.first() else { return Finding::ok(check, none) };
    let places: Vec<String> = elsewhere.iter().map(|place| place.display().to_string()).collect();
    let look = format!("scot doctor --pin {}", first.display());
    Finding::ok(check, format!("{none}; logs lie elsewhere: {}; look at one: {look}", places.join(", ")))
}

fn one_kept(device: &KeptDevice) -> Finding {
    let KeptDevice { folder, holds, ports, runner } = device;
    let folder = folder.display();
    let check = format!("kernel plane: kept in {folder}");
    let attached = if ports.is_empty() { "no port".to_owned() } else { ports.join(", ") };
    let remove =
        format!("if nothing in that log is needed any more, remove log and attachments: rm -r {folder}");
    let (holds, runner) = match (holds, runner) {
        (Ok(holds), runner) => (holds, *runner),
        (Err(problem), _) => {
            let found = format!("cannot be read: {problem}");
            return Finding::lacks(
                check,
                State::Should,
                found,
                format!("look as root: sudo scot doctor; {remove}"),
            );
        }
    };
    match runner {
        Runner::Process(pid) => {
            Finding::ok(check, format!("{holds}, attached to {attached}; process {pid} runs it"))
        }
        Runner::Nobody => Finding::lacks(
            check,
            State::Should,
            format!("{holds}, attached to {attached}; no process runs it, its programs go on by themselves"),
            format!("start it again with its settings; or, {remove}"),
        ),
        Runner::Unknown => Finding::lacks(
            check,
            State::Could,
            format!("{holds}, attached to {attached}; whether a process runs it is not to be seen from here"),
            "look as root: sudo scot doctor",
        ),
    }
}
