//! A topology as network namespaces and veth pairs, with the processes that run in them.
//!
//! Invariant: what a lab made is written down in its state file before it is made, and is removed by the
//! lab's drop, by its cleanup handle, or, if the lab died, by the next lab of that name; nothing that a
//! lab did not make is ever touched.

mod processors;
mod state;

use crate::process::{find_tool, run, Process, ProcessSpec, Supervisor};
use crate::topology::{Host, Link, LinkEnd, Port, Topology};
use crate::trouble::Trouble;
use scotfree_io::offloads::{self, Offload};
use state::{existing_namespaces, names_in, state_file_of, State};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Where state files lie if nothing else is said.
pub const RUN_FOLDER: &str = "/run/scotfree";
/// Where `ip` keeps the namespaces that it makes.
const NAMESPACES: &str = "/run/netns";

/// Namespaces that exist and their processes; dropping it removes both.
#[derive(Debug)]
pub struct Lab {
    inner: Arc<Inner>,
}

/// A lab that is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Its name.
    pub name: String,
    /// The process that runs in it; none if it was kept up.
    pub owner_pid: Option<u32>,
}

/// Removes a lab from another thread, such as one that waits for Ctrl-C.
#[derive(Debug, Clone)]
pub struct CleanupHandle {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: State,
    state_file: PathBuf,
    supervisor: Supervisor,
    // Whether dropping the lab leaves it up.
    is_kept: AtomicBool,
    // Whether it is removed already; the lock is held during removal, so that a second caller returns
    // only when all is gone.
    is_down: Mutex<bool>,
}

impl Lab {
    /// Makes the namespaces, ports and cables of a topology. One of that name that a dead process left
    /// behind is removed first; one that was kept up is entered, if its topology is the same.
    pub fn up(topology: &Topology, run_folder: &Path) -> Result<Lab, Trouble> {
        let state_file = state_file_of(&topology.name, run_folder);
        if let Some(state) = State::read(&state_file)? {
            if state.is_kept {
                return Lab::enter(topology, state, state_file);
            }
            state.require_dead(&state_file)?;
            state.remove_stale(&state_file)?;
        }
        Lab::make(topology, state_file)
    }

    /// Makes a lab under a name that is free.
    fn make(topology: &Topology, state_file: PathBuf) -> Result<Lab, Trouble> {
        let state = State::of(topology);
        state.require_free_names()?;
        state.claim(&state_file)?;
        // From here on dropping the lab removes what was made, also when making the rest fails.
        let inner = Inner::new(state, state_file);
        build(topology)?;
        Ok(Lab { inner: Arc::new(inner) })
    }

    fn enter(topology: &Topology, state: State, state_file: PathBuf) -> Result<Lab, Trouble> {
        let is_whole = existing_namespaces()?;
        let is_whole = state.namespaces.iter().all(|namespace| is_whole.contains(namespace));
        if state.topology != *topology || !is_whole {
            return Err(Trouble::new(
                format!("bring up `{}`", topology.name),
                "a lab of that name is up with another topology or is damaged",
                format!("remove it: scot lab down {}", topology.name),
            ));
        }
        let inner = Inner::new(state, state_file);
        inner.is_kept.store(true, Ordering::Relaxed);
        Ok(Lab { inner: Arc::new(inner) })
    }

    /// Removes a lab by its name, also one that was kept up. Says whether there was one.
    pub fn down(name: &str, run_folder: &Path) -> Result<bool, Trouble> {
        let state_file = state_file_of(name, run_folder);
        let Some(state) = State::read(&state_file)? else { return Ok(false) };
        if !state.is_kept {
            state.require_dead(&state_file)?;
        }
        state.remove_stale(&state_file)?;
        Ok(true)
    }

    /// Removes what dead labs left, of any name; those that were kept up stay. Says what it removed, and
    /// what it could not.
    pub fn sweep(run_folder: &Path) -> (Vec<String>, Vec<Trouble>) {
        state::sweep(run_folder)
    }

    /// The names of the labs that are up or were left behind.
    pub fn list(run_folder: &Path) -> Vec<String> {
        names_in(run_folder)
    }

    /// The labs that are up, without those that dead processes left behind; what cannot be read is reported
    /// by a sweep.
    pub fn standing(run_folder: &Path) -> Vec<Standing> {
        state::standing(run_folder)
    }

    /// Its topology.
    pub fn topology(&self) -> &Topology {
        &self.inner.state.topology
    }

    /// The namespace of a role.
    pub fn namespace(&self, role: &str) -> String {
        self.topology().namespace(role)
    }

    /// Starts a program on a host, on the host's processor if it has one of its own.
    pub fn spawn(&self, role: &str, spec: &ProcessSpec) -> Result<Process, Trouble> {
        let mut words: Vec<OsString> = vec![find_tool("ip").unwrap_or_else(|| "ip".into()).into()];
        words.extend(["netns", "exec", &self.namespace(role)].map(Into::into));
        if let Some(processor) = self.topology().host(role).and_then(|host| host.processor) {
            words.extend(["taskset", "--cpu-list", &processors::nth(processor)?].map(Into::into));
        }
        let prefix: Vec<&OsStr> = words.iter().map(OsString::as_os_str).collect();
        let is_down = self.inner.is_down.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_down {
            return Err(Trouble::new(
                format!("start {} on {role}", spec.name),
                "the lab is being removed",
                "bring it up again",
            ));
        }
        self.inner.supervisor.spawn_behind(&prefix, spec)
    }

    /// Runs a program on a host to its end and returns its standard output.
    pub fn run<S: AsRef<OsStr>>(
        &self,
        role: &str,
        program: &str,
        args: impl IntoIterator<Item = S>,
    ) -> Result<String, Trouble> {
        let namespace = self.namespace(role);
        let words = ["netns", "exec", &namespace, program].map(OsStr::new);
        let args: Vec<S> = args.into_iter().collect();
        run("ip", words.into_iter().chain(args.iter().map(AsRef::as_ref)))
    }

    /// Leaves the lab up when this process ends; `Lab::down` removes it. Its processes end with this one.
    pub fn keep(&self) -> Result<(), Trouble> {
        let state = State { is_kept: true, ..self.inner.state.clone() };
        state.replace(&self.inner.state_file)?;
        self.inner.is_kept.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// What removes the lab from another thread.
    pub fn cleanup_handle(&self) -> CleanupHandle {
        CleanupHandle { inner: Arc::clone(&self.inner) }
    }

    /// Ends the processes and removes the namespaces, also of a lab that was to be kept.
    pub fn remove(self) -> Result<(), Trouble> {
        self.inner.remove()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // A handle elsewhere must not keep the lab up.
        self.inner.end();
    }
}

impl CleanupHandle {
    /// Ends the processes and removes the namespaces; returns when all is gone. May be called again.
    pub fn cleanup(&self) -> Result<(), Trouble> {
        self.inner.remove()
    }
}

impl Inner {
    fn new(state: State, state_file: PathBuf) -> Inner {
        Inner {
            state,
            state_file,
            supervisor: Supervisor::new(),
            is_kept: AtomicBool::new(false),
            is_down: Mutex::new(false),
        }
    }

    fn end(&self) {
        self.supervisor.kill_all();
        if !self.is_kept.load(Ordering::Relaxed) {
            // Nobody is left to be told; the state file stays, and the next lab of this name tries again.
            let _ = self.remove();
        }
    }

    fn remove(&self) -> Result<(), Trouble> {
        let mut is_down = self.is_down.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_down {
            return Ok(());
        }
        self.supervisor.kill_all();
        self.state.remove(&self.state_file)?;
        *is_down = true;
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end();
    }
}

fn build(topology: &Topology) -> Result<(), Trouble> {
    for host in &topology.hosts {
        let namespace = topology.namespace(&host.role);
        run("ip", ["netns", "add", &namespace])?;
        run("ip", ["-n", &namespace, "link", "set", "lo", "up"])?;
    }
    for link in &topology.links {
        add_cable(topology, link)?;
    }
    for host in &topology.hosts {
        for port in &host.ports {
            set_up_port(topology, host, port)?;
            set_offloads(&topology.namespace(&host.role), port)?;
        }
    }
    Ok(())
}

fn add_cable(topology: &Topology, Link { a, b }: &Link) -> Result<(), Trouble> {
    let (near, far) = (topology.namespace(&a.role), topology.namespace(&b.role));
    let mut words = vec!["-n", &near, "link", "add", "name", &a.port];
    words.extend(port_settings(topology, a));
    words.extend(["type", "veth", "peer", "name", &b.port]);
    words.extend(port_settings(topology, b));
    words.extend(["netns", &far]);
    run("ip", words).map(drop)
}

fn port_settings<'a>(topology: &'a Topology, end: &LinkEnd) -> Vec<&'a str> {
    let host = topology.host(&end.role).expect("a checked topology's cables end at hosts");
    let port = host.ports.iter().find(|port| port.name == end.port).expect("and at their ports");
    port.mac.iter().flat_map(|mac| ["address", mac.as_str()]).collect()
}

fn set_up_port(topology: &Topology, host: &Host, port: &Port) -> Result<(), Trouble> {
    let namespace = topology.namespace(&host.role);
    let in_namespace = |words: &[&str]| run("ip", ["-n", &namespace].iter().chain(words)).map(drop);
    if let Some(mtu_bytes) = port.mtu_bytes {
        in_namespace(&["link", "set", "dev", &port.name, "mtu", &mtu_bytes.to_string()])?;
    }
    // No address of the kernel's own making: its solicitations would be foreign packets in every count.
    in_namespace(&["link", "set", "dev", &port.name, "addrgenmode", "none"])?;
    if let Some(address) = port.address {
        in_namespace(&["addr", "add", &String::from(address), "dev", &port.name])?;
    }
    in_namespace(&["link", "set", "dev", &port.name, "up"])?;
    for device in &topology.hosts {
        if let (Some(address), Some(mac), Some(here)) = (device.address, &device.mac, port.address) {
            if here.reaches(address) {
                let to = address.to_string();
                in_namespace(&[
                    "neigh",
                    "replace",
                    &to,
                    "lladdr",
                    mac,
                    "nud",
                    "permanent",
                    "dev",
                    &port.name,
                ])?;
            }
        }
    }
    Ok(())
}

/// Offloads as the device needs them (design.md section 6): whole checksums and no merged packets on the
/// wire; GRO, which switches a veth to polling, where the port polls. Without them packets would vanish unseen.
fn set_offloads(namespace: &str, port: &Port) -> Result<(), Trouble> {
    if find_tool("ethtool").is_some() {
        let gro = if port.polls { "on" } else { "off" };
        let settings = ["tx", "off", "tso", "off", "gso", "off", "gro", gro];
        let words = ["netns", "exec", namespace, "ethtool", "-K", &port.name];
        return run("ip", words.into_iter().chain(settings)).map(drop);
    }
    set_offloads_ourselves(namespace, &port.name, false, port.polls).map_err(|error| {
        Trouble::new(
            format!("switch offloads of {} in {namespace} off", port.name),
            error,
            "it takes CAP_SYS_ADMIN and CAP_NET_ADMIN here (scot doctor); or install the tool: apt-get install ethtool",
        )
    })
}

/// The same where the tool is not installed: all that the kernel does to what a host sends, and GRO.
fn set_offloads_ourselves(namespace: &str, port: &str, sending: bool, gro: bool) -> io::Result<()> {
    let settings = [
        (Offload::TxChecksums, sending),
        (Offload::Tso, sending),
        (Offload::Gso, sending),
        (Offload::Gro, gro),
    ];
    offloads::set_in(&Path::new(NAMESPACES).join(namespace), port, &settings)
}

/// What this process may do about network namespaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// It can make them.
    Direct,
    /// It can after entering a user namespace, see [`in_user_namespace`].
    UserNamespace,
    /// It cannot.
    None(Trouble),
}

/// Finds out what this process may do about network namespaces, by trying.
pub fn access() -> Access {
    if find_tool("ip").is_none() {
        return Access::None(Trouble::new(
            "make network namespaces",
            "the tool `ip` is missing",
            "install it: apt-get install iproute2",
        ));
    }
    if has_capabilities() && can_write_run() {
        return Access::Direct;
    }
    match run("unshare", ["-Urnm", "sh", "-c", "mount -t tmpfs tmpfs /run"]) {
        Ok(_) => Access::UserNamespace,
        Err(trouble) => Access::None(Trouble::new(
            "make network namespaces without being root",
            format!("user namespaces are not allowed here: {}", trouble.problem),
            "run as root, or allow them: sysctl kernel.unprivileged_userns_clone=1 user.max_user_namespaces=15000 \
             (on Ubuntu also kernel.apparmor_restrict_unprivileged_userns=0); scot doctor says which of them forbids it",
        )),
    }
}

/// `CAP_NET_ADMIN` makes ports and `CAP_SYS_ADMIN` namespaces.
fn has_capabilities() -> bool {
    const NEEDED: u64 = 1 << 12 | 1 << 21;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
    effective & NEEDED == NEEDED
}

// In a user namespace all capabilities are there, but /run may still be the host's.
fn can_write_run() -> bool {
    let probe = Path::new("/run").join(format!("scotfree-probe-{}", std::process::id()));
    fs::create_dir(&probe).and_then(|()| fs::remove_dir(&probe)).is_ok()
}

/// A command that runs `program` as root of a user namespace of its own, where it can make network
/// namespaces. Its /run is empty and its own; of the rest of the file system it sees what it could see
/// before.
pub fn in_user_namespace<S: AsRef<OsStr>>(program: &Path, args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(find_tool("unshare").unwrap_or_else(|| "unshare".into()));
    command.args(["-Urnm", "sh", "-c", "mount -t tmpfs tmpfs /run && exec \"$0\" \"$@\""]);
    command.arg(program).args(args);
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Source;
    use crate::process::Socket;
    use crate::scratch::Scratch;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn a_lab_comes_up_runs_processes_and_leaves_nothing() {
        let Some(run_folder) = ready("up") else { return };
        let lab = Lab::up(&topology("t-up"), run_folder.path()).expect("it comes up");
        assert_eq!(Lab::list(run_folder.path()), ["t-up"]);
        assert_eq!(namespaces_of("t-up").len(), 3);
        let ports = lab.run("server", "ip", ["-o", "addr", "show"]).expect("ip runs there");
        assert!(ports.contains("10.77.0.2/24"), "{ports}");
        let neighbours = lab.run("client", "ip", ["neigh"]).expect("ip runs there");
        assert!(
            neighbours.contains("10.77.0.254") && neighbours.contains("02:5c:07:00:00:fe"),
            "{neighbours}"
        );
        assert_offloads(&lab, "client", "eth0", ["off", "on"]);
        assert_offloads(&lab, "device", "client0", ["off", "off"]);
        // As where there is no tool.
        let namespace = lab.namespace("device");
        for (sending, gro, states) in [(true, true, ["on", "on"]), (false, false, ["off", "off"])] {
            set_offloads_ourselves(&namespace, "client0", sending, gro).expect("the kernel does it");
            assert_offloads(&lab, "device", "client0", states);
        }
        // A child with a child of its own: both must go.
        let spec = ProcessSpec::new("idle", "sh", run_folder.path()).args(["-c", "sleep 1000 & sleep 1000"]);
        let process = lab.spawn("server", &spec).expect("sh starts");
        process.wait_until("has a child", PATIENCE, || pids_in(&lab, "server") >= 2).expect("it forks");
        assert!(!process.listens(Socket::Tcp, 1));
        drop(lab);
        assert!(!process.is_running());
        assert!(namespaces_of("t-up").is_empty());
        assert!(Lab::list(run_folder.path()).is_empty());
        assert_eq!(
            fs::read_dir(run_folder.path()).expect("it is there").count(),
            2,
            "only the two logs are left"
        );
    }

    #[test]
    fn a_host_with_a_processor_of_its_own_runs_its_programs_there() {
        let Some(run_folder) = ready("processor") else { return };
        let mut topology = topology("t-processor");
        let server = topology.hosts.iter_mut().find(|host| host.role == "server").expect("there is one");
        server.processor = Some(1);
        let lab = Lab::up(&topology, run_folder.path()).expect("it comes up");
        let spec = ProcessSpec::new("where", "grep", run_folder.path())
            .args(["Cpus_allowed_list", "/proc/self/status"]);
        let process = lab.spawn("server", &spec).expect("grep starts");
        let own = processors::nth(1).expect("there is one");
        let line = format!("Cpus_allowed_list:\t{own}\n");
        process.wait_for_output(&line, PATIENCE).expect("it runs there only");
        lab.remove().expect("it goes");
    }

    #[test]
    fn what_a_dead_lab_left_is_removed_by_the_next() {
        let Some(run_folder) = ready("stale") else { return };
        let topology = topology("t-stale");
        let lab = Lab::up(&topology, run_folder.path()).expect("it comes up");
        // As a killed owner leaves it: the state says a number that now belongs to nobody.
        let dead = State { owner_start_ticks: 1, ..lab.inner.state.clone() };
        dead.replace(&lab.inner.state_file).expect("it can be written");
        std::mem::forget(lab);
        let lab = Lab::up(&topology, run_folder.path()).expect("it comes up again");
        assert_eq!(namespaces_of("t-stale").len(), 3);
        lab.remove().expect("it goes");
        assert!(namespaces_of("t-stale").is_empty());
    }

    #[test]
    fn a_run_folder_that_was_removed_meanwhile_is_made_again() {
        let scratch = Scratch::new("lab-gone").expect("temporary files can be written");
        let run_folder = scratch.path().join("run");
        let state = State::of(&topology("t-gone"));
        state.claim(&state_file_of("t-gone", &run_folder)).expect("the folder is made");
        assert_eq!(Lab::list(&run_folder), ["t-gone"]);
    }

    #[test]
    fn a_lab_in_use_and_a_foreign_namespace_are_left_alone() {
        let Some(run_folder) = ready("busy") else { return };
        let lab = Lab::up(&topology("t-busy"), run_folder.path()).expect("it comes up");
        let error = Lab::up(&topology("t-busy"), run_folder.path()).expect_err("it is in use").to_string();
        assert!(error.contains(&std::process::id().to_string()), "{error}");
        Lab::down("t-busy", run_folder.path()).expect_err("it is in use");
        assert_eq!(namespaces_of("t-busy").len(), 3);
        drop(lab);
        run("ip", ["netns", "add", "scot-t-busy-server"]).expect("it is free");
        let error = Lab::up(&topology("t-busy"), run_folder.path()).expect_err("a stranger's").to_string();
        assert_eq!(namespaces_of("t-busy"), ["scot-t-busy-server"]);
        run("ip", ["netns", "delete", "scot-t-busy-server"]).expect("it is ours");
        assert!(error.contains("ip netns delete scot-t-busy-server"), "{error}");
    }

    #[test]
    fn a_kept_lab_outlives_its_maker_and_is_entered_again() {
        let Some(run_folder) = ready("kept") else { return };
        let topology = topology("t-kept");
        let lab = Lab::up(&topology, run_folder.path()).expect("it comes up");
        lab.keep().expect("the state can be written");
        drop(lab);
        assert_eq!(namespaces_of("t-kept").len(), 3);
        drop(Lab::up(&topology, run_folder.path()).expect("it is entered"));
        let kept = Standing { name: "t-kept".to_owned(), owner_pid: None };
        assert_eq!(Lab::standing(run_folder.path()), vec![kept]);
        let mut other = topology.clone();
        other.hosts[0].ports[0].mtu_bytes = Some(1_400);
        Lab::up(&other, run_folder.path()).expect_err("it is another topology");
        assert_eq!(namespaces_of("t-kept").len(), 3);
        assert_eq!(Lab::down("t-kept", run_folder.path()), Ok(true));
        assert_eq!(Lab::down("t-kept", run_folder.path()), Ok(false));
        assert!(namespaces_of("t-kept").is_empty());
    }

    #[test]
    fn cleanup_from_another_thread_removes_all_once() {
        let Some(run_folder) = ready("handle") else { return };
        let lab = Lab::up(&topology("t-handle"), run_folder.path()).expect("it comes up");
        let handles = [lab.cleanup_handle(), lab.cleanup_handle()];
        let threads = handles.map(|handle| std::thread::spawn(move || handle.cleanup()));
        for thread in threads {
            thread.join().expect("no panic").expect("it goes");
        }
        assert!(namespaces_of("t-handle").is_empty());
        let spec = ProcessSpec::new("late", "true", run_folder.path());
        assert!(lab.spawn("server", &spec).is_err());
    }

    #[test]
    fn a_failure_in_the_middle_leaves_nothing() {
        let Some(run_folder) = ready("half") else { return };
        let mut topology = topology("t-half");
        topology.hosts[2].ports[0].mac = Some("no address".into());
        let error = Lab::up(&topology, run_folder.path()).expect_err("ip refuses it").to_string();
        assert!(error.contains("no address"), "{error}");
        assert!(namespaces_of("t-half").is_empty());
        assert!(Lab::list(run_folder.path()).is_empty());
    }

    #[test]
    fn a_user_namespace_is_enough() {
        let Some(_) = ready("user") else { return };
        // A process in a chroot may make none, nor may anybody where they are turned off.
        let probe = Command::new("unshare").args(["-Ur", "true"]).output().expect("unshare starts");
        if !probe.status.success() {
            skip(String::from_utf8_lossy(&probe.stderr).trim());
            return;
        }
        let script = "ip netns add scot-t-user-a && ip netns list";
        let output =
            in_user_namespace(Path::new("/bin/sh"), ["-c", script]).output().expect("unshare starts");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "scot-t-user-a", "{output:?}");
        assert!(namespaces_of("t-user").is_empty());
    }

    /// What the tool says of them: those of sending, and GRO.
    fn assert_offloads(lab: &Lab, role: &str, port: &str, [sending, gro]: [&str; 2]) {
        if find_tool("ethtool").is_none() {
            eprintln!("SKIP: there is no ethtool to say what offloads a port has");
            return;
        }
        let told = lab.run(role, "ethtool", ["-k", port]).expect("ethtool runs there");
        for (feature, state) in [
            ("tx-checksumming", sending),
            ("tx-tcp-segmentation", sending),
            ("tx-tcp6-segmentation", sending),
            ("generic-segmentation-offload", sending),
            ("generic-receive-offload", gro),
        ] {
            let wanted = format!("{feature}: {state}");
            assert!(told.lines().any(|line| line.trim().starts_with(&wanted)), "no {wanted} in {told}");
        }
    }

    /// A run folder, or nothing where namespaces cannot be made; the reason is printed.
    fn ready(name: &str) -> Option<Scratch> {
        match access() {
            Access::Direct => {
                Some(Scratch::new(&format!("lab-{name}")).expect("temporary files can be written"))
            }
            Access::UserNamespace => skip("this test runs as root or in a user namespace only"),
            Access::None(trouble) => skip(&trouble.to_string()),
        }
    }

    fn skip(why: &str) -> Option<Scratch> {
        eprintln!("skipped: {why}");
        None
    }

    fn topology(name: &str) -> Topology {
        let text = include_str!("../../../lab/topologies/one-device.toml").replace("one-device", name);
        Topology::parse(&Source::from_text("one-device.toml", text)).expect("it is a topology")
    }

    fn namespaces_of(name: &str) -> Vec<String> {
        let prefix = format!("scot-{name}-");
        let mut all = existing_namespaces().expect("ip lists them");
        all.retain(|namespace| namespace.starts_with(&prefix));
        all
    }

    fn pids_in(lab: &Lab, role: &str) -> usize {
        run("ip", ["netns", "pids", &lab.namespace(role)]).expect("ip lists them").split_whitespace().count()
    }
}
