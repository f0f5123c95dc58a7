//! Each thing that can be missing, missing.

use super::*;
use scotfree_stage::kernel_plane::Features;
use std::collections::BTreeMap;

mod kernel;

const VETH: &str = r#"[{"ifindex":7,"link":"eth8","flags":["BROADCAST","UP"],"mtu":1500,"num_rx_queues":2,"num_tx_queues":2,"linkinfo":{"info_kind":"veth"}}]"#;

/// A machine on which all is well, until a test takes something away.
struct Fake {
    files: BTreeMap<String, String>,
    tools: Vec<&'static str>,
    outputs: BTreeMap<String, Result<String, String>>,
    used_ports: Vec<(Socket, u16)>,
    stamps: StampTrial,
    has_kernel_plane: bool,
    programs: Result<(), String>,
    interface: Interface,
    kept: Result<Vec<KeptDevice>, String>,
    sets: Vec<GroupSet>,
    elsewhere: Vec<PathBuf>,
}

impl Fake {
    fn healthy() -> Fake {
        let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        Fake {
            files: BTreeMap::from([
                file("/proc/self/status", "Name:\tscot\nCapEff:\t000001ffffffffff\n"),
                file("/proc/self/uid_map", "0 0 4294967295\n"),
                file("/proc/sys/user/max_user_namespaces", "63000\n"),
                file("/proc/sys/user/max_net_namespaces", "63000\n"),
                file("/proc/net/packet", "sk RefCnt Type\n"),
                file("/proc/net/dev", "Inter-| Receive\n    lo: 0 0\n  eth7: 0 0\n"),
                file("/proc/self/mounts", "/dev/vda / ext4 rw 0 0\nbpf /sys/fs/bpf bpf rw 0 0\n"),
                file("/proc/sys/kernel/osrelease", "6.12.9-amd64\n"),
                file("/proc/self/mountinfo", "29 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
                file("/proc/self/cgroup", "0::/init.scope\n"),
                file("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n"),
                file("/proc/meminfo", "MemTotal: 1 kB\nHugePages_Total:      64\n"),
            ]),
            tools: TOOLS.iter().map(|(tool, ..)| *tool).collect(),
            outputs: BTreeMap::from([
                ("unshare".to_owned(), Ok(String::new())),
                ("ethtool -k eth8".to_owned(), Ok("tx-checksumming: off\n".to_owned())),
                ("ip".to_owned(), Ok(VETH.to_owned())),
                (
                    "ethtool".to_owned(),
                    Ok("tx-checksumming: off\nlarge-receive-offload: off [fixed]\n".to_owned()),
                ),
            ]),
            has_kernel_plane: true,
            programs: Ok(()),
            interface: Interface { features: Features { native: true, is_target: true }, program: None },
            kept: Ok(Vec::new()),
            sets: Vec::new(),
            elsewhere: Vec::new(),
            used_ports: Vec::new(),
            stamps: StampTrial { sent: true, received: true },
        }
    }

    fn without_capabilities(mut self) -> Fake {
        self.files.insert("/proc/self/status".into(), "CapEff:\t0000000000000000\n".into());
        self
    }

    fn with_file(mut self, name: &str, text: &str) -> Fake {
        self.files.insert(name.into(), text.into());
        self
    }

    fn without_file(mut self, name: &str) -> Fake {
        self.files.remove(name).expect("it was there");
        self
    }

    fn without_tool(mut self, name: &str) -> Fake {
        self.tools.retain(|tool| *tool != name);
        self
    }

    fn with_output(mut self, program: &str, output: Result<&str, &str>) -> Fake {
        self.outputs.insert(program.into(), output.map(str::to_owned).map_err(str::to_owned));
        self
    }

    fn examine(&self) -> Examination {
        examine(self, &wishes())
    }
}

impl Environment for Fake {
    fn read(&self, file: &str) -> Option<String> {
        self.files.get(file).cloned()
    }

    fn has_tool(&self, name: &str) -> bool {
        self.tools.contains(&name)
    }

    /// What was prepared for the whole command, or for its program.
    fn run(&self, program: &str, args: &[&str]) -> Result<String, String> {
        let command = [&[program], args].concat().join(" ");
        let output = self.outputs.get(&command).or_else(|| self.outputs.get(program));
        output.cloned().unwrap_or_else(|| Err("not found".into()))
    }

    fn bind(&self, socket: Socket, address: SocketAddr) -> io::Result<()> {
        if address.port() < 1_024 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        if address.ip().to_string() == "192.0.2.1" {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let is_used = self.used_ports.contains(&(socket, address.port()));
        if is_used {
            Err(io::ErrorKind::AddrInUse.into())
        } else {
            Ok(())
        }
    }

    fn try_pmem(&self, path: &Path) -> Result<String, String> {
        if path.starts_with("/mnt/pmem") {
            Ok("clwb".to_owned())
        } else {
            Err("its file system does not offer MAP_SYNC".to_owned())
        }
    }

    fn is_there(&self, file: &Path) -> bool {
        file.to_str().is_some_and(|name| self.files.contains_key(name))
    }

    fn has_kernel_plane(&self) -> bool {
        self.has_kernel_plane
    }

    fn try_programs(&self) -> Result<(), String> {
        self.programs.clone()
    }

    fn look_at_interface(&self, ifindex: u32) -> Result<Interface, String> {
        if ifindex == 7 {
            Ok(self.interface.clone())
        } else {
            Err(format!("no interface {ifindex}"))
        }
    }

    fn group_sets(&self, _folder: &Path, _other: Option<&Path>) -> Vec<GroupSet> {
        self.sets.clone()
    }

    fn kept_devices(&self, _: &Path, _: Option<&Path>) -> Result<Vec<KeptDevice>, String> {
        self.kept.clone()
    }

    fn kept_elsewhere(&self) -> Vec<PathBuf> {
        self.elsewhere.clone()
    }

    fn try_stamps(&self) -> io::Result<StampTrial> {
        Ok(self.stamps)
    }
}

fn wish(socket: Socket, address: &str, is_configured: bool) -> PortWish {
    let address = address.parse().expect("an address");
    PortWish { purpose: "test".into(), socket, address, is_configured }
}

fn wishes() -> Wishes {
    Wishes {
        ports: vec![wish(Socket::Udp, "0.0.0.0:51000", false), wish(Socket::Tcp, "127.0.0.1:6379", true)],
        interfaces: vec!["eth7".into()],
        kernel: KernelWish::default(),
        logs: vec![LogRoom { name: "disk:/x".into(), bytes_max: Some(32 << 20), entries_max: 1 << 18 }],
        pmem_logs: vec!["/mnt/pmem/log".into()],
        demand: LogDemand::default(),
        is_demand_asked: false,
    }
}

/// The one finding that is not well.
fn only_fault(examination: &Examination) -> &Finding {
    let faults: Vec<_> = examination.findings.iter().filter(|finding| finding.state != State::Ok).collect();
    assert_eq!(faults.len(), 1, "{examination}");
    assert!(faults[0].mend.is_some(), "a fault carries its mend");
    faults[0]
}

fn assert_fault(fake: &Fake, state: State, check: &str, found: &str, mend: &str) {
    let examination = fake.examine();
    let fault = only_fault(&examination);
    assert_eq!(fault.state, state, "{fault:?}");
    assert!(fault.check.contains(check), "{fault:?}");
    assert!(fault.found.contains(found), "{fault:?}");
    assert!(fault.mend.as_deref().is_some_and(|text| text.contains(mend)), "{fault:?}");
    assert_eq!(examination.ok, state != State::Must);
}

#[test]
fn a_healthy_machine_has_nothing_to_mend() {
    let examination = Fake::healthy().examine();
    assert!(examination.ok);
    assert!(examination.findings.iter().all(|finding| finding.state == State::Ok), "{examination}");
    assert!(examination.to_string().ends_with("0 must be mended, 0 should, 0 could"));
}

#[test]
fn each_missing_tool_is_named_with_its_package() {
    for (tool, package, state, _) in TOOLS {
        let mend = format!("apt-get install {package}");
        assert_fault(&Fake::healthy().without_tool(tool), state, tool, "not installed", &mend);
    }
    assert!(!Fake::healthy().without_tool("ip").examine().ok);
}

#[test]
fn without_capabilities_it_depends_on_user_namespaces() {
    let examination = Fake::healthy().without_capabilities().examine();
    assert!(examination.ok, "user namespaces do instead: {examination}");
    let admin = |examination: &Examination| {
        let is_it = |finding: &&Finding| finding.check.contains("CAP_NET_ADMIN");
        examination.findings.iter().find(is_it).expect("it is checked").clone()
    };
    assert_eq!(admin(&examination).state, State::Should);
    let neither = Fake::healthy()
        .without_capabilities()
        .with_file("/proc/sys/kernel/unprivileged_userns_clone", "0\n")
        .examine();
    assert!(!neither.ok);
    let finding = admin(&neither);
    assert_eq!(finding.state, State::Must);
    assert!(finding.mend.expect("a mend").contains("sudo scot"));
}

#[test]
fn each_setting_that_forbids_user_namespaces_is_named() {
    for (file, value, mend) in [
        ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
        ("/proc/sys/user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"),
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ] {
        let fake = Fake::healthy().with_file(file, value);
        assert_fault(&fake, State::Could, "user namespaces", "disabled by", mend);
        let examination = fake.without_capabilities().examine();
        let is_it = |finding: &&Finding| finding.check == "user namespaces";
        let finding = examination.findings.iter().find(is_it).expect("it is checked");
        assert_eq!(finding.state, State::Should, "who is not root needs them");
    }
    let fake = Fake::healthy().without_file("/proc/self/uid_map");
    assert_fault(&fake, State::Could, "user namespaces", "CONFIG_USER_NS", "sudo");
    let fake = Fake::healthy().with_output("unshare", Err("Operation not permitted"));
    assert_fault(&fake, State::Could, "user namespaces", "Operation not permitted", "sudo");
}

#[test]
fn each_missing_feature_of_the_kernel_is_named() {
    let fake = Fake::healthy().without_file("/proc/net/packet");
    assert_fault(&fake, State::Must, "AF_PACKET", "does not have them", "modprobe af_packet");
    let fake = Fake::healthy().without_file("/proc/sys/user/max_net_namespaces");
    assert_fault(&fake, State::Must, "network namespaces", "does not have them", "CONFIG_NET_NS");
    let fake = Fake::healthy().with_file("/proc/sys/user/max_net_namespaces", "0\n");
    assert_fault(&fake, State::Must, "network namespaces", "disabled", "sysctl -w user.max_net_namespaces");
    let stamps = StampTrial { sent: false, received: true };
    let fake = Fake { stamps, ..Fake::healthy() };
    assert_fault(&fake, State::Should, "SO_TIMESTAMPING", "when it left", "kernel");
    let fake = Fake::healthy().with_file("/proc/meminfo", "HugePages_Total:       0\n");
    assert_fault(&fake, State::Could, "huge pages", "none", "sysctl -w vm.nr_hugepages");
    let setting = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";
    let halting = |nanos| Fake::healthy().with_file(setting, nanos);
    assert_fault(
        &halting("0\n"),
        State::Could,
        "idle processors",
        "halt at once",
        "echo 200000 > /sys/module",
    );
    assert!(halting("200000\n").examine().findings.iter().all(|finding| finding.state == State::Ok));
}

#[test]
fn what_control_groups_cannot_limit_is_named() {
    let check = "control groups";
    let file = "/sys/fs/cgroup/cgroup.controllers";
    let fake = Fake::healthy().with_file(file, "cpu io pids\n");
    assert_fault(
        &fake,
        State::Could,
        check,
        "memory cannot be limited: there are cpu, io by",
        "cgroup_enable=memory",
    );
    let fake = Fake::healthy().without_file("/proc/self/mountinfo");
    assert_fault(&fake, State::Could, check, "memory, processors, disks cannot", "mount -t cgroup2");
}

#[test]
fn a_port_in_use_is_worse_where_it_was_configured() {
    let fake = Fake { used_ports: vec![(Socket::Udp, 51_000)], ..Fake::healthy() };
    assert_fault(&fake, State::Should, "UDP 0.0.0.0:51000", "in use", "ss -lunp 'sport = :51000'");
    let fake = Fake { used_ports: vec![(Socket::Tcp, 6_379)], ..Fake::healthy() };
    assert_fault(&fake, State::Must, "TCP 127.0.0.1:6379", "in use", "ss -ltnp 'sport = :6379'");
}

#[test]
fn an_address_that_cannot_be_bound_is_explained() {
    let finding = |address: &str| port(&Fake::healthy(), &wish(Socket::Udp, address, true));
    assert!(finding("192.0.2.1:51000").mend.expect("a mend").contains("ip -brief address"));
    assert!(finding("127.0.0.1:80").found.contains("root"));
}

#[test]
fn offloads_that_are_on_are_switched_off_by_the_mend() {
    let on = "tx-checksumming: on\n\ttx-checksum-ipv4: on\ngeneric-segmentation-offload: on\nlarge-receive-offload: off [fixed]\n";
    let fake = Fake::healthy().with_output("ethtool", Ok(on));
    assert_fault(
        &fake,
        State::Should,
        "offloads of eth7",
        "tx-checksumming",
        "ethtool -K eth7 tx off gso off",
    );
    let fake = Fake::healthy().with_output("ethtool", Err("not permitted"));
    assert_fault(&fake, State::Should, "offloads of eth7", "not permitted", "apt-get install ethtool");
}

#[test]
fn that_the_other_end_of_a_veth_leaves_segmenting_to_it_is_named_with_the_mend_there() {
    let check = "segmentation at the other end of eth7";
    let on = "tx-checksumming: off\ntcp-segmentation-offload: on\ngeneric-segmentation-offload: on\n";
    let fake = Fake::healthy().with_output("ethtool -k eth8", Ok(on));
    assert_fault(
        &fake,
        State::Should,
        check,
        "on at eth8: frames too long",
        "ethtool -K eth8 tso off gso off",
    );
    let away = VETH.replace(r#""link":"eth8","#, r#""link_index":3,"#);
    let examination = examine(&Fake::healthy().with_output("ip", Ok(&away)), &wishes());
    let unseen = examination.findings.iter().find(|finding| finding.check == check).expect("it is told");
    assert!(unseen.state == State::Could && unseen.found.contains("in another namespace"), "{unseen:?}");
    let mend = "in the namespace of the other end of eth7: ethtool -K INTERFACE tx off tso off gso off";
    assert_eq!(unseen.mend.as_deref(), Some(mend));
    let physical = Fake::healthy().with_output("ip", Ok(&VETH.replace("veth", "")));
    let examination = examine(&physical, &wishes());
    assert!(examination.findings.iter().all(|finding| !finding.check.contains("segmentation")));
}

#[test]
fn a_port_that_does_not_exist_is_not_mended_by_a_tool() {
    let fake = Fake::healthy().with_file("/proc/net/dev", "face |bytes\n    lo: 1 2\n eth77: 1 2\n");
    assert_fault(&fake, State::Must, "offloads of eth7", "there is no port eth7", "ip -brief link");
}

#[test]
fn a_port_that_carries_no_frames_is_named_with_its_mend() {
    let link = |from: &str, to: &str| Fake::healthy().with_output("ip", Ok(&VETH.replace(from, to)));
    let down = link(r#""BROADCAST","UP""#, r#""BROADCAST""#);
    assert_fault(&down, State::Must, "port eth7", "is down", "ip link set dev eth7 up");
    let unplugged = link(r#""BROADCAST""#, r#""NO-CARRIER""#);
    assert_fault(&unplugged, State::Should, "port eth7", "no carrier", "at the other end");
    let loopback = link(r#""BROADCAST""#, r#""LOOPBACK""#).with_output("ethtool", Err("not asked"));
    assert_fault(&loopback, State::Must, "port eth7", "loopback", "ip -brief link");
}

#[test]
fn the_size_that_a_rate_needs_is_said_without_a_log_too() {
    let demand = LogDemand { rate_per_s: 50_000.0, ..LogDemand::default() };
    let asked = Wishes { logs: Vec::new(), demand, is_demand_asked: true, ..wishes() };
    let examination = examine(&Fake::healthy(), &asked);
    let finding = examination.findings.last().expect("there are some");
    // 100,000 entries of 128 bytes of payload and 256 of their own, of which half of a disk log may be live.
    assert!(finding.found.contains("100000 entries, 36.6 MiB"), "{finding:?}");
    assert!(finding.found.contains("disk:PATH:74M") && finding.state == State::Ok, "{finding:?}");
    assert!(finding.found.contains("window_max x sessions_max of at least 100000"), "{finding:?}");
    let unasked = examine(&Fake::healthy(), &Wishes { is_demand_asked: false, ..asked });
    assert_eq!(unasked.findings.len() + 1, examination.findings.len(), "nobody wants to know");
}

#[test]
fn a_log_must_hold_what_comes_before_stability() {
    let demand = LogDemand { rate_per_s: 100_000.0, update_bytes: 1_000, time_to_stable_p99_ms: 2_000 };
    let room = |bytes_max, entries_max| LogRoom { name: "disk:/x".into(), bytes_max, entries_max };
    let finding = |room| log_size::check(&[room], &demand, false).remove(0);
    // 200,000 entries of 1,256 bytes.
    let small = finding(room(Some(64 << 20), 1 << 20));
    assert_eq!(small.state, State::Should);
    assert!(small.mend.expect("a mend").contains("--log disk:/x:480M"), "twice 240 MiB");
    let few = finding(room(None, 4_096));
    assert!(few.mend.expect("a mend").contains("at least 200000"));
    assert_eq!(finding(room(Some(256 << 20), 1 << 20)).state, State::Ok);
}

#[test]
fn a_log_in_persistent_memory_is_tried() {
    let finding = |path: &str| pmem::check(&Fake::healthy(), &[path.into()]).remove(0);
    let granted = finding("/mnt/pmem/log");
    assert!(granted.state == State::Ok && granted.found.contains("clwb"), "{granted:?}");
    let refused = finding("/tmp/log");
    assert!(refused.state == State::Must && refused.found.contains("MAP_SYNC"), "{refused:?}");
    assert!(refused.mend.expect("a mend").contains("--log ram:/tmp/log"));
    // The machine itself; on DAX it would say with what it flushes.
    let folder = std::env::temp_dir();
    match System.try_pmem(&folder.join(format!("scot-doctor-{}", std::process::id()))) {
        Ok(instruction) => assert!(instruction.starts_with("cl"), "{instruction}"),
        Err(problem) => assert!(problem.contains("MAP_SYNC"), "{problem}"),
    }
}

#[test]
fn the_report_is_json_too() {
    let examination = Fake::healthy().without_tool("redis-server").examine();
    let json = serde_json::to_value(&examination).expect("it is JSON");
    assert_eq!(json["ok"], true);
    let findings = json["findings"].as_array().expect("a list");
    assert!(findings
        .iter()
        .any(|finding| finding["state"] == "should" && finding["check"] == "tool redis-server"));
}

#[test]
fn this_machine_stamps_what_goes_over_loopback() {
    let trial = System.try_stamps().expect("loopback has ports");
    assert!(trial.received, "{trial:?}");
    let used = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
    let address = used.local_addr().expect("it is bound");
    let error = System.bind(Socket::Tcp, address).expect_err("it is in use");
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}
