//! Dependencies point one way: core <- wire <- remedies <- shells <- services <- cli.
//!
//! Invariant: a crate may use crates of a lower rank only; no remedy knows another, and who may know
//! a remedy at all is listed here. A remedy's folder holds its machine and, in crates of their own, its
//! parts; a part may know its own machine.

use super::{Complaint, Files};
use toml::Table;

/// The rank of each crate that is not a remedy. A new crate needs one.
const RANKS: &[(&str, u8)] = &[
    ("scotfree-core", 0),
    ("scotfree-wire", 1),
    ("scotfree-check", 1),
    ("scotfree-cache", 2),
    ("scotfree-store", 2),
    ("scotfree-state", 2),
    ("scotfree-retrieval", 1),
    ("scotfree-study", 2),
    ("scotfree-transform", 1),
    ("scotfree-codegen", 2),
    ("scotfree-python", 3),
    ("scotfree-session", 2),
    ("scotfree-device", 3),
    ("scotfree-trace", 3),
    ("scotfree-io", 3),
    ("scotfree-resp", 3),
    ("scotfree-proxy", 4),
    ("scotfree-rpc", 4),
    ("scotfree-sim", 5),
    ("scotfree-xdp", 5),
    ("scotfree-kv", 5),
    ("scotfree-switch", 7),
    ("scotfree-sidecar", 7),
    ("scotfree-stage", 6),
    ("scotfree-doctor", 7),
    ("scotfree-demo", 7),
    ("scotfree-lab", 8),
    ("scotfree-kernels", 8),
    ("scotfree-cli", 9),
    ("xtask", 9),
];
const REMEDY_RANK: u8 = 4;
/// What a remedy is made of: machines, whatever lies below it.
const MACHINES: [&str; 6] = [
    "scotfree-core",
    "scotfree-wire",
    "scotfree-cache",
    "scotfree-state",
    "scotfree-session",
    "scotfree-device",
];
/// Who may name a remedy: what runs it, what tries it, and the registry.
const MAY_NAME_A_REMEDY: [&str; 1] = ["scotfree-cli"];
/// The remedy that is for tests alone, and that any test may name.
const FIXTURE: &str = "remedy-toy";

/// What a remedy may have in its folder beside its machine: `crates/remedy-NAME/PART`, whose crate is
/// `remedy-NAME-PART`.
struct Part {
    name: &'static str,
    /// What it is made of beside machines, its own, and parts of its own that are below it.
    uses: &'static [&'static str],
    rank: u8,
}

const PARTS: [Part; 6] = [
    Part { name: "kernel", uses: &["scotfree-xdp"], rank: 6 },
    Part { name: "world", uses: &["scotfree-sim", "scotfree-check"], rank: 6 },
    Part { name: "membership", uses: &["scotfree-io"], rank: 6 },
    Part { name: "transport", uses: &["scotfree-io"], rank: 6 },
    Part { name: "models", uses: &[], rank: 6 },
    Part { name: "service", uses: &["scotfree-io", "scotfree-rpc"], rank: 7 },
];

pub(super) fn check(files: &Files) -> Vec<Complaint> {
    let manifests = files.iter().filter_map(|(path, text)| Some((path, crate_of(path)?, text)));
    manifests.flat_map(|(path, name, text)| check_manifest(path, &name, text)).collect()
}

/// The crate whose manifest this is, by its folder.
fn crate_of(path: &str) -> Option<String> {
    let folder = path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
    match folder.split_once('/') {
        None => Some(folder.to_owned()),
        Some((remedy, part)) => {
            (is_remedy(remedy) && !part.contains('/')).then(|| format!("{remedy}-{part}"))
        }
    }
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
    let of_remedy = match (Member::of(user), Member::of(used)) {
        _ if user == used => None,
        _ if used == FIXTURE => (!for_tests).then(|| format!("`{used}` is for tests alone")),
        (Some(user), used_member) => user.fault(used, used_member.as_ref(), for_tests),
        // What is tried beside it may be named by tests.
        (None, Some(_)) => (!for_tests && !MAY_NAME_A_REMEDY.contains(&user))
            .then(|| format!("`{user}` must not know the remedy `{used}`")),
        (None, None) => None,
    };
    of_remedy.or_else(|| match (rank(user), rank(used)) {
        (None, _) => Some(format!("`{user}` has no rank in xtask's tidy/dependencies.rs")),
        (_, None) => Some(format!("`{used}` has no rank in xtask's tidy/dependencies.rs")),
        // What a crate's tests use does not reach its users.
        (Some(own), Some(other)) => (other >= own && !for_tests).then(|| {
            format!("`{used}` (rank {other}) is not below `{user}` (rank {own}): dependencies point one way")
        }),
    })
}

/// A crate in a remedy's folder.
struct Member<'a> {
    remedy: &'a str,
    part: Option<&'static Part>,
}

impl Member<'_> {
    fn of(name: &str) -> Option<Member<'_>> {
        if !is_remedy(name) {
            return None;
        }
        let parted = PARTS.iter().find_map(|part| {
            let remedy = name.strip_suffix(part.name)?.strip_suffix('-')?;
            Some(Member { remedy, part: Some(part) })
        });
        Some(parted.unwrap_or(Member { remedy: name, part: None }))
    }

    fn fault(&self, used: &str, used_member: Option<&Member<'_>>, for_tests: bool) -> Option<String> {
        match (used_member, self.part) {
            (Some(other), _) if other.remedy != self.remedy => {
                Some(format!("a remedy names another, `{used}`"))
            }
            _ if for_tests || MACHINES.contains(&used) => None,
            (Some(Member { part: None, .. }), Some(_)) => None,
            (Some(Member { part: Some(other), .. }), Some(own)) if other.rank < own.rank => None,
            (_, None) => {
                Some(format!("a remedy is a machine, yet it names `{used}`: dependencies point one way"))
            }
            (_, Some(part)) if part.uses.contains(&used) => None,
            (_, Some(part)) => Some(format!("the {} of a remedy must not know `{used}`", part.name)),
        }
    }
}

fn is_remedy(name: &str) -> bool {
    name.starts_with("remedy-")
}

fn rank(name: &str) -> Option<u8> {
    if let Some(member) = Member::of(name) {
        return Some(member.part.map_or(REMEDY_RANK, |part| part.rank));
    }
    RANKS.iter().find(|(listed, _)| *listed == name).map(|(_, rank)| *rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The complaints about a crate that depends on others.
    fn complaints(user: &str, section: &str, used: &[&str]) -> Vec<String> {
        let uses = used.iter().map(|used| format!("{used}.workspace = true\n")).collect::<Vec<_>>().concat();
        let manifest = format!("[package]\nname = \"{user}\"\n[{section}]\n{uses}");
        let part = ["kernel", "world", "membership"].into_iter().find_map(|part| {
            Some((user.strip_suffix(part)?.strip_suffix('-')?, part)).filter(|_| is_remedy(user))
        });
        let folder = part.map_or(user.to_owned(), |(remedy, part)| format!("{remedy}/{part}"));
        let path = format!("crates/{folder}/Cargo.toml");
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
        assert_eq!(complaints("remedy-cache", "dependencies", &["scotfree-core", "scotfree-cache"]), none);
        assert_eq!(complaints("scotfree-rpc", "dependencies", &["scotfree-session", "scotfree-io"]), none);
        assert_eq!(complaints("scotfree-cli", "dependencies", &["scotfree-lab", "scotfree-kv"]), none);
        assert_eq!(complaints("remedy-persist", "dev-dependencies", &["scotfree-sim", "proptest"]), none);
        assert_eq!(complaints("scotfree-sidecar", "dependencies", &["scotfree-cache"]), none);
        let of_world =
            ["remedy-cache", "scotfree-session", "scotfree-device", "scotfree-sim", "scotfree-check"];
        assert_eq!(complaints("remedy-cache-world", "dependencies", &of_world), none);
        let of_kernel = ["remedy-cache", "scotfree-wire", "scotfree-xdp", "libbpf-rs"];
        assert_eq!(complaints("remedy-cache-kernel", "dependencies", &of_kernel), none);
        let of_membership = ["remedy-cache", "scotfree-core", "scotfree-io", "ureq"];
        assert_eq!(complaints("remedy-cache-membership", "dependencies", &of_membership), none);
        assert_eq!(complaints("scotfree-cli", "dependencies", &["remedy-cache-world"]), none);
        assert_eq!(complaints("scotfree-cli", "dependencies", &["remedy-cache-kernel"]), none);
        assert_eq!(complaints("remedy-cache", "dev-dependencies", &["remedy-toy"]), none);
        assert_eq!(complaints("remedy-cache", "dev-dependencies", &["remedy-cache-world"]), none);
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
        assert_refused("scotfree-sidecar", "remedy-cache", "must not know");
        assert_refused("scotfree-switch", "remedy-persist", "must not know");
        assert_refused("scotfree-cli", "remedy-toy", "for tests alone");
        assert_refused("scotfree-lab", "remedy-persist", "must not know");
        assert_refused("scotfree-wire", "remedy-persist", "must not know");
        let in_tests = complaints("remedy-cache", "dev-dependencies", &["remedy-persist"]);
        assert_eq!(in_tests.len(), 1, "not even in tests");
    }

    #[test]
    fn the_parts_of_a_remedy_know_their_own_and_what_they_are_made_of() {
        assert_refused("remedy-cache-world", "remedy-persist", "names another");
        assert_refused("remedy-cache-world", "remedy-persist-world", "names another");
        assert_refused("remedy-cache-world", "remedy-cache-kernel", "must not know");
        assert_refused("remedy-cache-world", "scotfree-xdp", "must not know");
        assert_refused("remedy-cache-world", "scotfree-rpc", "must not know");
        assert_refused("remedy-cache-kernel", "scotfree-sim", "must not know");
        assert_refused("remedy-cache-membership", "scotfree-rpc", "must not know");
        assert_refused("remedy-cache", "remedy-cache-world", "is a machine");
        assert_refused("scotfree-sim", "remedy-cache-world", "must not know");
        assert_refused("scotfree-sim", "remedy-cache", "must not know");
        let foreign =
            check(&Files::of(&[("crates/remedy-a/world/Cargo.toml", "[package]\nname = \"world\"")]));
        assert!(foreign[0].text.contains("remedy-a-world"), "{foreign:?}");
        let unknown = "[package]\nname = \"remedy-a-shell\"\n[dependencies]\nremedy-a.workspace = true";
        assert_eq!(check(&Files::of(&[("crates/remedy-a/shell/Cargo.toml", unknown)])).len(), 1);
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
