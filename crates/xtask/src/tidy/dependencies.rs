//! Dependencies point one way: core <- wire <- remedies <- shells <- services <- cli.
//!
//! Invariant: a crate may use crates of a lower rank only; no remedy knows another, and who may know
//! a remedy at all is listed here. A remedy's folder may hold crates beside its machine: remedy-NAME/kernel is
//! `remedy-NAME-kernel`, its part of the plane in the kernel.

use super::{Complaint, Files};
use toml::Table;

/// The rank of each crate that is not a remedy. A new crate needs one.
const RANKS: &[(&str, u8)] = &[
    ("scotfree-core", 0),
    ("scotfree-wire", 1),
    ("scotfree-check", 1),
    ("scotfree-retrieval", 1),
    ("scotfree-study", 1),
    ("scotfree-python", 2),
    ("scotfree-session", 2),
    ("scotfree-device", 3),
    ("scotfree-trace", 3),
    ("scotfree-io", 3),
    ("scotfree-rpc", 4),
    ("scotfree-sim", 5),
    ("scotfree-xdp", 5),
    ("scotfree-kv", 5),
    ("scotfree-switch", 7),
    ("scotfree-sidecar", 7),
    ("scotfree-lab", 8),
    ("scotfree-kernels", 8),
    ("scotfree-cli", 9),
    ("xtask", 9),
];
const REMEDY_RANK: u8 = 4;
/// What a remedy is made of: machines, whatever lies below it.
const MACHINES: [&str; 4] = ["scotfree-core", "scotfree-wire", "scotfree-session", "scotfree-device"];
/// The crates that a remedy's folder may hold beside its machine, their ranks, and what they name beyond what a machine
/// may.
const PARTS: [(&str, u8, &[&str]); 1] = [("kernel", 6, &["scotfree-xdp"])];
/// Who may name a remedy: what runs it, what tries it, and the registry.
const MAY_NAME_A_REMEDY: [&str; 3] = ["scotfree-cli", "scotfree-sim", "scotfree-switch"];

pub(super) fn check(files: &Files) -> Vec<Complaint> {
    let manifests = files.iter().filter_map(|(path, text)| Some((path, crate_of(path)?, text)));
    manifests.flat_map(|(path, name, text)| check_manifest(path, &name, text)).collect()
}

/// The name that a crate has by its folder: of one in a remedy's folder both names.
fn crate_of(path: &str) -> Option<String> {
    let folder = path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
    match folder.split_once('/') {
        None => Some(folder.to_owned()),
        Some((remedy, part)) if is_remedy(remedy) && !part.contains('/') => Some(format!("{remedy}-{part}")),
        Some(_) => None,
    }
}

/// Of a crate in a remedy's folder the remedy, and what it may name beyond what a machine may.
fn part_of(name: &str) -> Option<(&str, u8, &'static [&'static str])> {
    let of = |(part, rank, names): &(&str, u8, &'static [&'static str])| {
        let remedy = name.strip_suffix(part)?.strip_suffix('-')?;
        is_remedy(remedy).then_some((remedy, *rank, *names))
    };
    PARTS.iter().find_map(of)
}

/// The remedy that a crate is of: the crate itself, or that in whose folder it lies.
fn remedy_of(name: &str) -> Option<&str> {
    part_of(name).map(|(remedy, ..)| remedy).or_else(|| is_remedy(name).then_some(name))
}

fn check_manifest(path: &str, folder: &str, text: &str) -> Vec<Complaint> {
    let manifest: Table = match text.parse() {
        Ok(manifest) => manifest,
        Err(error) => return vec![Complaint::of_file(path, format!("is not TOML: {error}"))],
    };
    let mut faults: Vec<String> = name_fault(&manifest, folder).into_iter().collect();
    for (used, for_tests) in dependencies(&manifest) {
        faults.extend(fault(folder, &used, for_tests));
    }
    faults.into_iter().map(|fault| Complaint::of_file(path, fault)).collect()
}

fn name_fault(manifest: &Table, folder: &str) -> Option<String> {
    let name = manifest.get("package").and_then(|package| package.get("name")).and_then(|name| name.as_str());
    (name != Some(folder)).then(|| format!("the crate's name is not its folder's, `{folder}`"))
}

/// The crates that a manifest uses, and whether for tests only.
fn dependencies(manifest: &Table) -> Vec<(String, bool)> {
    let names = |section: &str| -> Vec<String> {
        let table = manifest.get(section).and_then(|section| section.as_table());
        table.map(|table| table.keys().cloned().collect()).unwrap_or_default()
    };
    let used = ["dependencies", "build-dependencies"].into_iter().flat_map(names).map(|name| (name, false));
    used.chain(names("dev-dependencies").into_iter().map(|name| (name, true))).collect()
}

fn fault(user: &str, used: &str, for_tests: bool) -> Option<String> {
    let is_ours = used.starts_with("scotfree-") || is_remedy(used) || used == "xtask";
    if !is_ours {
        return (user == "scotfree-core").then(|| format!("the core uses nothing, yet it names `{used}`"));
    }
    let own = remedy_of(user);
    if is_remedy(used) && user != used {
        if own.is_some() && own != remedy_of(used) {
            return Some(format!("a remedy names another, `{used}`"));
        }
        // What is tried beside it may be named by tests.
        if own.is_none() && !for_tests && !MAY_NAME_A_REMEDY.contains(&user) {
            return Some(format!("`{user}` must not know the remedy `{used}`"));
        }
    }
    let more = part_of(user).map_or(&[][..], |(_, _, names)| names);
    let is_own = own.is_some_and(|own| own == used);
    if own.is_some() && !is_own && !for_tests && !MACHINES.contains(&used) && !more.contains(&used) {
        return Some(format!("a remedy is a machine, yet it names `{used}`: dependencies point one way"));
    }
    match (rank(user), rank(used)) {
        (None, _) => Some(format!("`{user}` has no rank in xtask's tidy/dependencies.rs")),
        (_, None) => Some(format!("`{used}` has no rank in xtask's tidy/dependencies.rs")),
        // What a crate's tests use does not reach its users.
        (Some(own), Some(other)) => (other >= own && !for_tests).then(|| {
            format!("`{used}` (rank {other}) is not below `{user}` (rank {own}): dependencies point one way")
        }),
    }
}

fn is_remedy(name: &str) -> bool {
    name.starts_with("remedy-")
}

fn rank(name: &str) -> Option<u8> {
    let listed = RANKS.iter().find(|(listed, _)| *listed == name).map(|(_, rank)| *rank);
    let part = || part_of(name).map(|(_, rank, _)| rank);
    listed.or_else(part).or(is_remedy(name).then_some(REMEDY_RANK))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The complaints about a crate that depends on others.
    fn complaints(user: &str, section: &str, used: &[&str]) -> Vec<String> {
        let uses = used.iter().map(|used| format!("{used}.workspace = true\n")).collect::<Vec<_>>().concat();
        let manifest = format!("[package]\nname = \"{user}\"\n[{section}]\n{uses}");
        let folder = part_of(user).map(|(remedy, ..)| format!("{remedy}/{}", &user[remedy.len() + 1..]));
        let path = format!("crates/{}/Cargo.toml", folder.as_deref().unwrap_or(user));
        check(&Files::of(&[(&path, &manifest)])).into_iter().map(|complaint| complaint.text).collect()
    }

    fn assert_refused(user: &str, used: &str, why: &str) {
        let complaints = complaints(user, "dependencies", &[used]);
        assert!(complaints.len() == 1 && complaints[0].contains(why), "{user} -> {used}: {complaints:?}");
    }

    #[test]
    fn dependencies_that_point_down_pass() {
        let none: [String; 0] = [];
        assert_eq!(complaints("scotfree-core", "dependencies", &[]), none);
        assert_eq!(complaints("scotfree-wire", "dependencies", &["scotfree-core", "hkdf"]), none);
        assert_eq!(complaints("remedy-cache", "dependencies", &["scotfree-core", "scotfree-wire"]), none);
        assert_eq!(complaints("scotfree-rpc", "dependencies", &["scotfree-session", "scotfree-io"]), none);
        assert_eq!(complaints("scotfree-cli", "dependencies", &["scotfree-lab", "scotfree-kv"]), none);
        assert_eq!(complaints("remedy-persist", "dev-dependencies", &["scotfree-sim", "proptest"]), none);
    }

    #[test]
    fn dependencies_that_point_up_or_across_are_refused() {
        assert_refused("scotfree-core", "scotfree-wire", "one way");
        assert_refused("scotfree-core", "libc", "the core uses nothing");
        assert_refused("scotfree-wire", "scotfree-io", "one way");
        assert_refused("remedy-persist", "scotfree-io", "one way");
        assert_refused("scotfree-io", "scotfree-rpc", "one way");
        assert_refused("scotfree-io", "scotfree-trace", "one way");
        assert_refused("scotfree-kv", "scotfree-cli", "one way");
        assert_refused("scotfree-cli", "xtask", "one way");
    }

    #[test]
    fn remedies_are_known_to_few() {
        assert_refused("remedy-cache", "remedy-persist", "names another");
        assert_refused("scotfree-io", "remedy-persist", "must not know");
        assert_refused("scotfree-lab", "remedy-persist", "must not know");
        assert_refused("scotfree-wire", "remedy-persist", "must not know");
        let in_tests = complaints("remedy-cache", "dev-dependencies", &["remedy-persist"]);
        assert_eq!(in_tests.len(), 1, "not even in tests");
    }

    #[test]
    fn a_remedys_part_in_the_kernel_knows_its_remedy_and_the_plane_and_is_known_by_shells() {
        let none: [String; 0] = [];
        let own = ["remedy-cache", "scotfree-xdp", "scotfree-wire"];
        assert_eq!(complaints("remedy-cache-kernel", "dependencies", &own), none);
        assert_eq!(complaints("scotfree-switch", "dependencies", &["remedy-cache-kernel"]), none);
        assert_refused("remedy-cache-kernel", "remedy-persist", "names another");
        assert_refused("remedy-cache-kernel", "remedy-persist-kernel", "names another");
        assert_refused("remedy-cache-kernel", "scotfree-io", "is a machine");
        assert_refused("remedy-cache", "remedy-cache-kernel", "is a machine");
        assert_refused("scotfree-xdp", "remedy-cache-kernel", "must not know");
        assert_refused("scotfree-xdp", "remedy-cache", "must not know");
        let other =
            check(&Files::of(&[("crates/remedy-a/kernel/Cargo.toml", "[package]\nname = \"kernel\"")]));
        assert!(other[0].text.contains("folder"), "{:?}", other[0].text);
    }

    #[test]
    fn an_unranked_crate_a_foreign_name_and_bad_toml_are_refused() {
        assert_refused("scotfree-new", "scotfree-core", "no rank");
        assert_refused("scotfree-cli", "scotfree-new", "no rank");
        let other = check(&Files::of(&[("crates/a/Cargo.toml", "[package]\nname = \"b\"")]));
        assert!(other[0].text.contains("folder"));
        assert!(check(&Files::of(&[("crates/a/Cargo.toml", "[package")]))[0].text.contains("not TOML"));
    }
}
