//! Each thing that the plane in the kernel lacks, lacking.

use super::*;
use scotfree_core::DeviceId;
use scotfree_stage::kernel_plane::{Attached, Features};

fn wanted() -> Wishes {
    Wishes { kernel: KernelWish { is_wanted: true, ..KernelWish::default() }, ..wishes() }
}

/// The one fault; it must be mended if the plane is wanted and could be if not.
fn assert_lacks(fake: &Fake, check: &str, found: &str, mend: &str) {
    for (wishes, state) in [(wanted(), State::Must), (wishes(), State::Could)] {
        let examination = examine(fake, &wishes);
        let fault = only_fault(&examination);
        assert_eq!(fault.state, state, "{fault:?}");
        assert!(fault.check.contains(check) && fault.found.contains(found), "{fault:?}");
        let offered = fault.mend.as_deref().expect("a mend");
        assert!(offered.contains(mend) && offered.contains("--plane user"), "{fault:?}");
    }
}

/// What a check says, where other faults are there, too.
fn finding(fake: &Fake, wishes: &Wishes, check: &str) -> Finding {
    let examination = examine(fake, wishes);
    let found = examination.findings.iter().find(|finding| finding.check.contains(check));
    found.unwrap_or_else(|| panic!("no {check} in {examination}")).clone()
}

fn capable(bits: u64) -> Fake {
    Fake::healthy().with_file("/proc/self/status", &format!("CapEff:\t{bits:016x}\n"))
}

#[test]
fn rights_are_named_one_by_one() {
    let rights = |bits| finding(&capable(bits), &wanted(), "kernel plane: rights");
    assert_eq!(rights(1 << 39 | 1 << 38 | 1 << 12).state, State::Ok);
    assert_eq!(rights(1 << 21 | 1 << 12).state, State::Ok);
    assert!(rights(1 << 38 | 1 << 12).found.ends_with("missing: CAP_BPF"));
    assert!(rights(1 << 39 | 1 << 12).found.ends_with("missing: CAP_PERFMON"));
    assert!(rights(1 << 39 | 1 << 38).found.ends_with("missing: CAP_NET_ADMIN"));
    let mend = rights(0).mend.expect("a mend");
    assert!(
        mend.contains("setcap cap_bpf,cap_perfmon,cap_net_admin") && mend.contains("--plane user"),
        "{mend}"
    );
    let inside = Fake::healthy().with_file("/proc/self/uid_map", "0 1000 1\n");
    let rights = finding(&inside, &wanted(), "kernel plane: rights");
    assert!(rights.state == State::Must && rights.found.contains("user namespace"), "{rights:?}");
}

#[test]
fn a_build_without_the_plane_is_named_and_nothing_else_of_it() {
    let without = Fake { has_kernel_plane: false, ..Fake::healthy() };
    assert_lacks(&without, "kernel plane", "built without", "apt-get install clang libbpf-dev");
}

#[test]
fn a_set_that_root_has_loaded_takes_the_place_of_rights() {
    let set = |owner: Result<Option<u16>, &str>| GroupSet {
        folder: "/sys/fs/bpf/scotfree-group-devs/0".into(),
        owner: owner.map(|device| device.map(DeviceId)).map_err(str::to_owned),
    };
    let inside =
        |sets: Vec<GroupSet>| Fake { sets, ..Fake::healthy().with_file("/proc/self/uid_map", "0 1 1\n") };
    let check = |fake: &Fake, check: &str| finding(fake, &wanted(), check);
    let with = inside(vec![set(Ok(None))]);
    let rights = check(&with, "kernel plane: rights");
    assert_eq!(rights.state, State::Could);
    assert!(rights.mend.is_some_and(|mend| mend.starts_with("--pin /sys/fs/bpf/scotfree-group-devs/0")));
    assert_eq!(check(&with, "features").state, State::Ok);
    assert!(check(&with, "sets for groups").found.contains("devs/0 (free)"));
    assert!(check(&inside(vec![set(Ok(Some(7)))]), "sets for groups").found.contains("of device 7"));
    let closed = inside(vec![set(Err("Permission denied"))]);
    assert_eq!(check(&closed, "kernel plane: rights").state, State::Must);
    let closed = check(&closed, "sets for groups");
    assert!(closed.state == State::Could && closed.found.contains("Permission denied"), "{closed:?}");
    let mend = check(&inside(Vec::new()), "sets for groups").mend.expect("a mend");
    assert!(mend.contains("scot setup --group"), "{mend}");
    let old = inside(vec![set(Ok(None))])
        .with_file("/proc/sys/kernel/osrelease", "5.15.0-1\n")
        .with_file("/proc/sys/kernel/unprivileged_bpf_disabled", "2\n");
    assert!(check(&old, "sets for groups").found.contains("before 5.19"));
}

#[test]
fn a_service_without_settings_is_named() {
    let there = |files: &[&str]| files.iter().fold(Fake::healthy(), |fake, file| fake.with_file(file, ""));
    let service = |fake: &Fake| finding(fake, &wanted(), "kernel plane: service");
    let unit = "/etc/systemd/system/scot-switch.service";
    assert_eq!(service(&there(&[])).state, State::Ok);
    assert_eq!(service(&there(&[unit, "/etc/scotfree/scot.toml"])).state, State::Ok);
    let bare = service(&there(&[unit]));
    assert!(bare.state == State::Should && bare.found.contains("no /etc/scotfree/scot.toml"), "{bare:?}");
}

#[test]
fn what_cannot_be_tried_is_not_said_to_be_well() {
    let features = |fake: &Fake| finding(fake, &wanted(), "kernel plane: features");
    let untried = features(&capable(0).with_file(BTF, ""));
    assert_eq!(untried.state, State::Could);
    assert!(untried.found.contains("cannot be tried") && untried.found.contains("6.12"), "{untried:?}");
    let without = features(&capable(0));
    assert!(without.state == State::Must && without.found.contains("no BTF"), "{without:?}");
    assert_eq!(features(&Fake { programs: Err("asked all the same".into()), ..capable(0) }), without);
}

const BTF: &str = "/sys/kernel/btf/vmlinux";

#[test]
fn a_kernel_that_takes_no_programs_is_named_with_what_it_said() {
    let refusing = Fake { programs: Err("unknown opcode".into()), ..Fake::healthy() };
    assert_lacks(&refusing, "features", "unknown opcode", "CONFIG_DEBUG_INFO_BTF");
    let old = Fake::healthy().with_file("/proc/sys/kernel/osrelease", "5.10.0-28-amd64\n");
    let finding = finding(&old, &wanted(), "kernel plane: features");
    assert!(
        finding.state == State::Must && finding.found.contains("Linux 5.10 lacks bpf_xdp_load_bytes"),
        "{finding:?}"
    );
}

#[test]
fn the_file_system_that_keeps_the_log_is_looked_for_where_it_will_be() {
    let none = Fake::healthy()
        .with_file("/proc/self/mounts", "sysfs /sys sysfs rw 0 0\nbpf /sys/fs/bpfx bpf rw 0 0\n");
    assert_lacks(&none, "BPF file system", "not mounted", "mount -t bpf bpf /sys/fs/bpf");
    let covered = "bpf /sys/fs/bpf bpf rw 0 0\ntmpfs /sys/fs/bpf tmpfs rw 0 0\n";
    let covered = Fake::healthy().with_file("/proc/self/mounts", covered);
    assert_lacks(&covered, "BPF file system", "not mounted", "mount -t bpf");
    let elsewhere = KernelWish { pin: Some("/mnt/bpf/d1".into()), ..wanted().kernel };
    let finding = finding(&Fake::healthy(), &Wishes { kernel: elsewhere, ..wishes() }, "BPF file system");
    assert!(finding.state == State::Must && finding.check.ends_with("at /mnt/bpf"), "{finding:?}");
}

#[test]
fn a_device_that_nobody_runs_is_named_with_what_removes_it() {
    let kept = |runner| KeptDevice {
        folder: "/sys/fs/bpf/scotfree-device-7".into(),
        holds: Ok("the log of device 7".into()),
        ports: vec!["eth1".into(), "eth2".into()],
        runner,
    };
    let fake = |device: KeptDevice| Fake { kept: Ok(vec![device]), ..Fake::healthy() };
    let nobody = fake(kept(Runner::Nobody));
    assert_fault(
        &nobody,
        State::Should,
        "device-7",
        "eth1, eth2; no process",
        "rm -r /sys/fs/bpf/scotfree-device-7",
    );
    let unknown = fake(kept(Runner::Unknown));
    assert_fault(&unknown, State::Could, "device-7", "not to be seen from here", "sudo scot doctor");
    let unread = fake(KeptDevice { holds: Err("not permitted".into()), ..kept(Runner::Unknown) });
    assert_fault(&unread, State::Should, "device-7", "cannot be read: not permitted", "sudo scot doctor");
    let hidden = Fake { kept: Err("Permission denied".into()), ..Fake::healthy() };
    assert_fault(
        &hidden,
        State::Could,
        "kept devices",
        "cannot be looked into from here",
        "sudo scot doctor",
    );
    let run = finding(&fake(kept(Runner::Process(42))), &wanted(), "device-7");
    assert!(run.state == State::Ok && run.found.contains("process 42"), "{run:?}");
}

#[test]
fn logs_in_other_folders_are_named_where_none_lies_in_the_usual_one() {
    let place = |folder: &str| PathBuf::from("/sys/fs/bpf").join(folder);
    let elsewhere = vec![place("mine/1"), place("scotfree-group-devs/0")];
    let set = GroupSet { folder: place("scotfree-group-devs/0"), owner: Ok(None) };
    let fake = Fake { elsewhere: elsewhere.clone(), sets: vec![set.clone()], ..Fake::healthy() };
    let named = finding(&fake, &wanted(), "kept devices");
    assert_eq!(named.state, State::Ok, "another device's, perhaps");
    assert!(
        named.found.contains("elsewhere: /sys/fs/bpf/mine/1; "),
        "sets are named by themselves: {named:?}"
    );
    assert!(named.found.ends_with("scot doctor --pin /sys/fs/bpf/mine/1"), "{named:?}");
    let only_sets = Fake { elsewhere: elsewhere[1..].to_vec(), sets: vec![set], ..Fake::healthy() };
    assert_eq!(finding(&only_sets, &wanted(), "kept devices").found, "none in /sys/fs/bpf");
}

#[test]
fn frames_larger_than_a_page_are_named_with_the_limit() {
    let jumbo = |mtu: u32| VETH.replace("1500", &mtu.to_string());
    let other_end = |mtu| Fake::healthy().with_output("ip -j -details link show dev eth8", Ok(&jumbo(mtu)));
    assert_lacks(&other_end(3_507), "MTU at eth7", "eth8 has 3507", "ip link set dev eth8 mtu 1500");
    assert!(finding(&other_end(9_000), &wanted(), "MTU at eth7").found.contains("3506 at most"));
    let says_nothing = |fake: &Fake, wishes: &Wishes| {
        let examination = examine(fake, wishes);
        assert!(examination.findings.iter().all(|finding| !finding.check.contains("MTU")), "{examination}");
    };
    says_nothing(&other_end(3_506), &wanted());
    let generic = KernelWish { generic: true, ..wanted().kernel };
    says_nothing(&other_end(9_000), &Wishes { kernel: generic, ..wishes() });
    let away = jumbo(9_000).replace(r#""link":"eth8","#, "");
    let unseen = finding(&Fake::healthy().with_output("ip", Ok(&away)), &wanted(), "MTU at eth7");
    assert!(unseen.state == State::Could && unseen.found.contains("eth7 has 9000"), "{unseen:?}");
    let physical = away.replace("veth", "");
    let physical = finding(&Fake::healthy().with_output("ip", Ok(&physical)), &wanted(), "MTU at eth7");
    assert_eq!(physical.state, State::Must);
}

fn with_features(native: bool, is_target: bool) -> Fake {
    Fake {
        interface: Interface { features: Features { native, is_target }, program: None },
        ..Fake::healthy()
    }
}

#[test]
fn a_port_whose_other_end_has_gro_off_is_named_with_its_mend() {
    let fake = with_features(true, false);
    assert_lacks(&fake, "GRO at the other end of eth7", "would vanish", "ethtool -K eth8 gro on");
    let away = fake.with_output("ip", Ok(&VETH.replace(r#""link":"eth8","#, r#""link_index":3,"#)));
    let gro = finding(&away, &wanted(), "GRO");
    assert!(gro.mend.expect("a mend").contains("in the namespace of the other end of eth7"));
    let sums = finding(&away, &wanted(), "checksums");
    assert!(sums.state == State::Could && sums.found.contains("cannot be looked at from here"), "{sums:?}");
}

#[test]
fn checksums_that_nobody_fills_in_are_named() {
    let fake = Fake::healthy().with_output("ethtool -k eth8", Ok("tx-checksumming: on\n"));
    assert_fault(&fake, State::Should, "checksums", "on at eth8", "ethtool -K eth8 tx off");
}

#[test]
fn a_port_without_native_programs_says_how_to_do_without() {
    let veth = finding(&with_features(false, false), &wanted(), "mode of eth7");
    assert!(veth.state == State::Must && veth.found.contains("than its 2 receive queues"), "{veth:?}");
    assert!(veth.mend.expect("a mend").contains("ethtool -L eth7 rx"));
    let physical = with_features(false, false)
        .with_output("ip", Ok(r#"[{"ifindex":7,"flags":["UP"],"num_rx_queues":4}]"#));
    assert_lacks(&physical, "mode of eth7", "receive queues: 4", "--xdp-mode generic");
    let generic = KernelWish { generic: true, ..wanted().kernel };
    let asked = finding(&physical, &Wishes { kernel: generic, ..wishes() }, "mode of eth7");
    assert_eq!(asked.state, State::Ok);
    let old = physical.with_file("/proc/sys/kernel/osrelease", "6.1.0\n");
    let unsaid = finding(&old, &wanted(), "mode of eth7");
    assert!(unsaid.state == State::Could && unsaid.found.contains("does not say"), "{unsaid:?}");
}

#[test]
fn a_foreign_program_is_told_from_a_device_s() {
    let fake = |name: Option<&str>| {
        let is_ours = name.map(|name| name == "scot_ingress");
        let program = Some(Attached { id: 31, name: name.map(str::to_owned), is_ours });
        let features = Features { native: true, is_target: true };
        Fake { interface: Interface { features, program }, ..Fake::healthy() }
    };
    assert_lacks(
        &fake(Some("xdp_filter")),
        "program at eth7",
        "xdp_filter",
        "if no scot switch runs on eth7, detach it: ip link set dev eth7 xdp off",
    );
    let unnamed = finding(&fake(None), &wanted(), "program at eth7");
    assert!(unnamed.state == State::Could && unnamed.found.contains("not to be seen"), "{unnamed:?}");
    assert_eq!(finding(&fake(Some("scot_ingress")), &wanted(), "program at eth7").state, State::Ok);
}

#[test]
fn a_port_that_cannot_be_looked_at_is_said_to_be_so() {
    for fake in [
        Fake::healthy().with_output("ip", Err("not installed")),
        Fake::healthy().with_output("ip", Ok("no JSON")),
        Fake::healthy().with_output("ip", Ok(r#"[{"ifindex":8,"flags":["UP"]}]"#)),
    ] {
        assert_fault(&fake, State::Could, "port eth7", "cannot be looked at from here", "--plane user");
    }
}
