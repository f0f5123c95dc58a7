//! Edge workspaces: folders that are built by themselves, since what they need is not wanted in the product.
//!
//! Invariant: each is listed here with its reason and with what it uses that deny.toml bans; nothing of the product
//! names one.

use super::{Complaint, Files};
use std::collections::BTreeSet;
use toml::{Table, Value};

/// A workspace beside the product's.
struct Edge {
    folder: &'static str,
    /// Why it is one.
    why: &'static str,
    /// What it may use of what the root's deny.toml bans, such as the async runtime of somebody's client library.
    allowed: &'static [&'static str],
}

const EDGES: &[Edge] = &[
    Edge {
        folder: "fuzz",
        why: "cargo-fuzz builds with a nightly compiler and instruments all it builds",
        allowed: &[],
    },
    Edge {
        folder: "lab/peers/codec",
        why: "the codec is tried and measured beside those of others, which the product does not use",
        allowed: &[],
    },
    Edge {
        folder: "adapters/tonic",
        why: "tonic's users bring its runtime; the product has none",
        allowed: &["tokio"],
    },
];

pub(super) fn check(files: &Files) -> Vec<Complaint> {
    check_against(files, EDGES)
}

fn check_against(files: &Files, edges: &[Edge]) -> Vec<Complaint> {
    let manifests: Vec<Manifest> =
        files.iter().filter_map(|(path, text)| Manifest::read(path, text)).collect();
    let banned = banned(files);
    let mut complaints: Vec<Complaint> = edges.iter().filter_map(|edge| gone(files, edge)).collect();
    let edge_of = |manifest: &Manifest| edges.iter().find(|edge| is_within(&manifest.folder, edge.folder));
    let names: BTreeSet<&str> =
        manifests.iter().filter(|one| edge_of(one).is_some()).filter_map(Manifest::name).collect();
    for manifest in &manifests {
        let faults = match edge_of(manifest) {
            Some(edge) => manifest.unallowed(edge, &banned),
            None => manifest.faults_in_product(edges, &names),
        };
        complaints.extend(faults.into_iter().map(|fault| Complaint::of_file(manifest.path, fault)));
    }
    complaints
}

/// An edge that is listed must be there, and what it is built of locked.
fn gone(files: &Files, Edge { folder, why, .. }: &Edge) -> Option<Complaint> {
    let missing = ["Cargo.toml", "Cargo.lock"]
        .into_iter()
        .find(|name| files.get(&format!("{folder}/{name}")).is_none())?;
    let fault =
        format!("is missing, yet xtask's tidy/edges.rs lists `{folder}` as an edge workspace ({why})");
    Some(Complaint::of_file(&format!("{folder}/{missing}"), fault))
}

/// The crates that the root's deny.toml bans.
fn banned(files: &Files) -> BTreeSet<String> {
    let denied = files.get("deny.toml").and_then(|text| text.parse::<Table>().ok());
    let list = denied.as_ref().and_then(|table| table.get("bans")?.get("deny")?.as_array());
    let names = list.into_iter().flatten().filter_map(|ban| ban.get("crate")?.as_str());
    names.map(|name| name.split('@').next().unwrap_or(name).to_owned()).collect()
}

fn is_within(folder: &str, outer: &str) -> bool {
    folder == outer || folder.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'))
}

/// A crate's or a workspace's description.
struct Manifest<'a> {
    path: &'a str,
    /// Where it lies: empty at the root.
    folder: String,
    table: Table,
}

impl Manifest<'_> {
    /// What is not TOML is another check's.
    fn read<'a>(path: &'a str, text: &str) -> Option<Manifest<'a>> {
        let folder = match path {
            "Cargo.toml" => "",
            _ => path.strip_suffix("/Cargo.toml")?,
        };
        Some(Manifest { path, folder: folder.to_owned(), table: text.parse().ok()? })
    }

    fn name(&self) -> Option<&str> {
        self.table.get("package")?.get("name")?.as_str()
    }

    fn unallowed(&self, edge: &Edge, banned: &BTreeSet<String>) -> Vec<String> {
        let used = self.dependencies().into_iter().map(|(name, _)| name);
        let unallowed = used.filter(|name| banned.contains(*name) && !edge.allowed.contains(name));
        let fault = |name| {
            format!(
                "`{name}` is banned by deny.toml, and not allowed to `{}` by xtask's tidy/edges.rs",
                edge.folder
            )
        };
        unallowed.map(fault).collect()
    }

    fn faults_in_product(&self, edges: &[Edge], names: &BTreeSet<&str>) -> Vec<String> {
        let mut faults = Vec::new();
        if !self.folder.is_empty() && self.table.contains_key("workspace") {
            faults.push(
                "is a workspace of its own that xtask's tidy/edges.rs does not list with its reason"
                    .to_owned(),
            );
        }
        for (name, dependency) in self.dependencies() {
            let folder =
                dependency.get("path").and_then(Value::as_str).map(|path| resolved(&self.folder, path));
            let lies_in =
                folder.is_some_and(|folder| edges.iter().any(|edge| is_within(&folder, edge.folder)));
            if lies_in || names.contains(name) {
                faults
                    .push(format!("names `{name}` of an edge workspace, which nothing of the product does"));
            }
        }
        faults
    }

    /// The crates that it uses by their true names, whatever for, and how.
    fn dependencies(&self) -> Vec<(&str, &Value)> {
        let targets = self.table.get("target").and_then(Value::as_table);
        let shared = self.table.get("workspace").and_then(Value::as_table);
        let places = [&self.table].into_iter().chain(shared);
        let places = places.chain(targets.into_iter().flat_map(Table::values).filter_map(Value::as_table));
        let sections = places.flat_map(|place| {
            ["dependencies", "dev-dependencies", "build-dependencies"].map(|section| place.get(section))
        });
        let all = sections.flatten().filter_map(Value::as_table).flatten();
        all.map(|(name, how)| (how.get("package").and_then(Value::as_str).unwrap_or(name), how)).collect()
    }
}

/// Where a path leads from a folder.
fn resolved(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => (),
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &[Edge] =
        &[Edge { folder: "edges/client", why: "a client library's runtime", allowed: &["tokio"] }];
    const ROOT: (&str, &str) = ("Cargo.toml", "[workspace]\nmembers = [\"crates/*\"]\n");
    const BANS: (&str, &str) =
        ("deny.toml", "[bans]\ndeny = [{ crate = \"tokio\", reason = \"x\" }, { crate = \"smol@1\" }]\n");
    const LOCK: (&str, &str) = ("edges/client/Cargo.lock", "");
    const EDGE: (&str, &str) = (
        "edges/client/Cargo.toml",
        "[package]\nname = \"scotfree-client\"\n[workspace]\n[dependencies]\ntokio = \"1\"\n",
    );

    fn complaints(files: &[(&str, &str)]) -> Vec<String> {
        check_against(&Files::of(files), LISTED).iter().map(ToString::to_string).collect()
    }

    /// The complaints beside a listed edge that is as it should be.
    fn beside_it(path: &str, manifest: &str) -> Vec<String> {
        complaints(&[ROOT, BANS, LOCK, EDGE, (path, manifest)])
    }

    fn assert_named(complaints: &[String], path: &str, why: &str) {
        let [only] = complaints else { panic!("{complaints:?}") };
        assert!(only.starts_with(path) && only.contains(why), "{only}");
    }

    #[test]
    fn a_listed_edge_and_the_product_beside_it_pass() {
        let product = "[package]\nname = \"a\"\n[dependencies]\nb = { path = \"../b\" }\n";
        assert_eq!(beside_it("crates/a/Cargo.toml", product), [""; 0]);
    }

    #[test]
    fn a_workspace_that_is_not_listed_is_named() {
        let other = "[package]\nname = \"other\"\n[workspace]\n";
        assert_named(&beside_it("edges/other/Cargo.toml", other), "edges/other/Cargo.toml", "does not list");
        assert_named(&beside_it("edges/client-two/Cargo.toml", other), "edges/client-two", "does not list");
    }

    #[test]
    fn a_list_that_names_what_is_gone_or_not_locked_is_named() {
        assert_named(&complaints(&[ROOT, BANS]), "edges/client/Cargo.toml", "is missing");
        assert_named(&complaints(&[ROOT, BANS, EDGE]), "edges/client/Cargo.lock", "is missing");
    }

    #[test]
    fn what_the_product_has_banned_is_allowed_to_edges_by_name_only() {
        let member = "[package]\nname = \"scotfree-client-two\"\n[target.'cfg(unix)'.dev-dependencies]\n\
                      tokio = \"1\"\nslow = { package = \"smol\", version = \"1\" }\n";
        assert_named(
            &beside_it("edges/client/two/Cargo.toml", member),
            "edges/client/two",
            "`smol` is banned",
        );
    }

    #[test]
    fn a_crate_of_the_product_that_names_an_edge_is_named() {
        let path = "crates/a/Cargo.toml";
        let using = |how: &str| beside_it(path, &format!("[package]\nname = \"a\"\n{how}\n"));
        assert_named(&using("[dependencies]\nscotfree-client = \"1\""), path, "`scotfree-client`");
        assert_named(
            &using("[dev-dependencies]\nx = { package = \"scotfree-client\" }"),
            path,
            "`scotfree-client`",
        );
        assert_named(&using("[build-dependencies]\nx = { path = \"../.././edges/client\" }"), path, "`x`");
        let root = "[workspace.dependencies]\nx = { path = \"edges/client\" }\n";
        let named = complaints(&[("Cargo.toml", root), BANS, LOCK, EDGE]);
        assert_named(&named, "Cargo.toml", "`x`");
    }
}
