//! Whether the programs can be attached to a port, and whether what they send leaves it.
//!
//! Invariant: what only the other end of a cable knows is said to be so where that end is not to be seen.

use super::super::interfaces::Link;
use super::{release, Environment, Finding, KernelWish, State, OTHERWISE};
use scotfree_stage::kernel_plane::{Attached, Interface};

/// The first kernel that says what a driver offers to programs.
const FEATURES_SINCE: (u32, u32) = (6, 3);
/// A page of 4 KiB without the room before the frame (256 bytes), what the kernel keeps behind it (320), and its
/// Ethernet header; of a veth this is the limit, and other drivers have no larger one.
const NATIVE_MTU_MAX: u32 = 3_506;

pub(super) fn check(environment: &dyn Environment, wish: &KernelWish, name: &str) -> Vec<Finding> {
    let unseen = |problem: String| {
        let found = format!("cannot be looked at from here: {problem}");
        vec![Finding::lacks(
            format!("kernel plane: port {name}"),
            State::Could,
            found,
            format!("see: ip -details link show dev {name}; {OTHERWISE}"),
        )]
    };
    let link = match Link::look(environment, name) {
        Ok(link) => link,
        Err(problem) => return unseen(problem),
    };
    if link.is_loopback() {
        return Vec::new();
    }
    let interface = match environment.look_at_interface(link.ifindex) {
        Ok(interface) => interface,
        Err(problem) => return unseen(problem),
    };
    let mut findings = vec![mode(environment, wish, name, &link, &interface)];
    findings.extend(frames_fit(environment, wish, name, &link, &interface));
    findings.extend(interface.program.as_ref().map(|program| attached(wish, name, program)));
    if link.is_veth() {
        findings.push(other_end_takes(environment, wish, name, &link, &interface));
        findings.push(other_end_sums(environment, name, &link));
    }
    findings
}

fn says_features(environment: &dyn Environment) -> bool {
    release(environment).is_some_and(|release| release >= FEATURES_SINCE)
}

fn mode(
    environment: &dyn Environment,
    wish: &KernelWish,
    name: &str,
    link: &Link,
    interface: &Interface,
) -> Finding {
    let check = format!("kernel plane: mode of {name}");
    let queues = link.num_rx_queues;
    if interface.features.native {
        return Finding::ok(check, format!("native: its driver runs programs; receive queues: {queues}"));
    }
    if !says_features(environment) {
        let found =
            "this kernel does not say whether the driver runs programs (6.3 and later do); a start tries it";
        return Finding::lacks(check, State::Could, found, format!("--xdp-mode generic; {OTHERWISE}"));
    }
    if wish.generic {
        return Finding::ok(
            check,
            format!("generic, as asked: its driver runs no programs; receive queues: {queues}"),
        );
    }
    if link.is_veth() {
        let found =
            format!("not native: its other end has more transmit queues than its {queues} receive queues");
        let mend = format!(
            "ethtool -L {name} rx COUNT, at least as many as its other end's tx; or there: ethtool -L INTERFACE tx COUNT; \
             or --xdp-mode generic; {OTHERWISE}"
        );
        return Finding::lacks(check, wish.lacking(), found, mend);
    }
    let found = format!("not native: its driver runs no programs; receive queues: {queues}");
    Finding::lacks(check, wish.lacking(), found, format!("--xdp-mode generic, which is slower; {OTHERWISE}"))
}

/// Of frames that arrive by a veth its other end's MTU says how large they are; where that is not to be seen, the port's
/// own is most likely the same.
fn frames_fit(
    environment: &dyn Environment,
    wish: &KernelWish,
    name: &str,
    link: &Link,
    interface: &Interface,
) -> Option<Finding> {
    if wish.generic || (says_features(environment) && !interface.features.native) {
        return None;
    }
    let check = format!("kernel plane: MTU at {name}");
    let seen = link.other_end.as_deref().filter(|_| link.is_veth());
    let seen = seen.and_then(|peer| Some((peer, Link::look(environment, peer).ok()?.mtu)));
    let is_certain = seen.is_some() || !link.is_veth();
    let (place, mtu) = seen.unwrap_or((name, link.mtu));
    if mtu <= NATIVE_MTU_MAX {
        return None;
    }
    let found = format!(
        "{place} has {mtu}: programs in drivers take frames of one page, so an MTU of {NATIVE_MTU_MAX} at most \
         (of some drivers less), and a start is refused"
    );
    let mend = format!(
        "ip link set dev {place} mtu 1500, and the same at the other end of its cable; or --xdp-mode generic; {OTHERWISE}"
    );
    let state = if is_certain { wish.lacking() } else { State::Could };
    Some(Finding::lacks(check, state, found, mend))
}

fn attached(wish: &KernelWish, name: &str, program: &Attached) -> Finding {
    let check = format!("kernel plane: program at {name}");
    let id = program.id;
    let mend = format!("see what it is for: bpftool prog show id {id}; if no scot switch runs on {name}, detach it: ip link set dev {name} xdp off; {OTHERWISE}");
    match (program.is_ours, &program.name) {
        (Some(true), _) => Finding::ok(check, format!("a device's, number {id}")),
        (_, Some(other)) => {
            let found = format!("a foreign program is attached: {other}, number {id}");
            Finding::lacks(check, wish.lacking(), found, mend)
        }
        (_, None) => {
            let found = format!("program {id} is attached; whose it is, is not to be seen from here");
            Finding::lacks(check, State::Could, found, mend)
        }
    }
}

/// A veth takes frames from programs only if its other end receives by NAPI, which GRO switches on.
fn other_end_takes(
    environment: &dyn Environment,
    wish: &KernelWish,
    name: &str,
    link: &Link,
    interface: &Interface,
) -> Finding {
    let check = format!("kernel plane: GRO at the other end of {name}");
    let (peer, place) = link.other_end_of(name);
    let mend =
        format!("{place}ethtool -K {peer} gro off; ethtool -K {peer} gro on, while it is up; {OTHERWISE}");
    if interface.features.is_target {
        return Finding::ok(check, "is on: frames sent by programs arrive there");
    }
    if !interface.features.native || !says_features(environment) {
        let found = "cannot be looked at from here: the kernel says nothing of this port";
        return Finding::lacks(check, State::Could, found, mend);
    }
    Finding::lacks(
        check,
        wish.lacking(),
        "is off, or was switched on while it was down: frames sent by programs would vanish",
        mend,
    )
}

/// Frames that a program moves leave without the checksum that a driver was to fill in.
fn other_end_sums(environment: &dyn Environment, name: &str, link: &Link) -> Finding {
    let check = format!("kernel plane: checksums from the other end of {name}");
    let (peer, place) = link.other_end_of(name);
    let mend = format!("{place}ethtool -K {peer} tx off");
    if link.other_end.is_none() {
        let found = "cannot be looked at from here, the other end being in another namespace: if TX checksum offload is on \
                     there, as it is by default, frames that programs move have none, and nothing passes";
        return Finding::lacks(check, State::Could, found, mend);
    }
    match environment.run("ethtool", &["-k", peer]) {
        Ok(said) if said.lines().any(|line| line.starts_with("tx-checksumming: off")) => {
            Finding::ok(check, format!("{peer} fills them in itself"))
        }
        Ok(_) => {
            let found = format!("TX checksum offload is on at {peer}: frames that programs move have none");
            Finding::lacks(check, State::Should, found, mend)
        }
        Err(problem) => {
            let found = format!("cannot be looked at: {}", problem.trim());
            Finding::lacks(check, State::Could, found, mend)
        }
    }
}
