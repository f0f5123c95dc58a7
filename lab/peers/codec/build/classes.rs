//! The three classes of messages (Optimus Prime, table 6.2), whose fields the thesis does not publish, and what draws
//! messages of them.
//!
//! Invariant: a field that is drawn has a value that is written: of a hundred fields as many are on the wire as are there.

use std::fmt::Write;

/// A message: its fields by number, from 1.
pub struct Spec {
    pub name: &'static str,
    pub fields: Vec<(String, &'static str)>,
}

/// Fields of these kinds in turn, so many of them.
fn fields(kinds: &[&'static str], count: usize) -> Vec<(String, &'static str)> {
    (0..count).map(|at| (format!("f{}", at + 1), kinds[at % kinds.len()])).collect()
}

pub fn specs() -> Vec<Spec> {
    let flat = ["uint64", "int32", "string", "uint32", "string", "bool", "fixed32"];
    let mut mixed = fields(&["uint64", "string", "int32", "bool"], 10);
    mixed.extend([("inner".into(), "Leaf"), ("last".into(), "double"), ("items".into(), "repeated Leaf")]);
    let mut nested = fields(&["uint32", "int64"], 3);
    nested.extend([
        ("left".into(), "Branch"),
        ("right".into(), "Branch"),
        ("leaves".into(), "repeated Leaf"),
    ]);
    let mut branch = fields(&["uint32"], 2);
    branch.extend([("leaf".into(), "Leaf")]);
    vec![
        Spec { name: "Flat", fields: fields(&flat, 45) },
        Spec { name: "Leaf", fields: fields(&["uint32", "string", "int64", "bool"], 6) },
        Spec { name: "Branch", fields: branch },
        Spec { name: "Mixed", fields: mixed },
        Spec { name: "Nested", fields: nested },
    ]
}

/// Them as a .proto file.
pub fn proto(specs: &[Spec]) -> String {
    let mut proto = String::from("syntax = \"proto3\";\npackage classes;\n");
    for Spec { name, fields } in specs {
        let _ = writeln!(proto, "message {name} {{");
        for (at, (field, kind)) in fields.iter().enumerate() {
            let _ = writeln!(proto, "  {kind} {field} = {};", at + 1);
        }
        proto.push_str("}\n");
    }
    proto
}

/// Functions that draw prost's struct, and that set ours to what is in it.
pub fn drawing(specs: &[Spec]) -> String {
    specs.iter().map(drawing_of).collect()
}

fn drawing_of(Spec { name, fields }: &Spec) -> String {
    let (mut fill, mut copy) = (String::new(), String::new());
    for (field, kind) in fields {
        copy.push_str(&copied(field, kind));
        let _ = writeln!(fill, "    if r.is_there() {{ m.{field} = {}; }}", made(name, kind));
    }
    let low = name.to_lowercase();
    format!(
        "/// One at random.\npub fn fill_{low}(r: &mut Drawn) -> prost_messages::classes::{name} {{\n    \
             let mut m = prost_messages::classes::{name}::default();\n{fill}    m\n}}\n\
         /// The same by setters.\npub fn copy_{low}(m: &prost_messages::classes::{name}, to: &mut \
             messages::classes::{name}Mut<'_>) {{\n{copy}}}\n\
         /// All of prost's.\npub fn theirs_{low}(m: &prost_messages::classes::{name}) -> u64 {{\n    m.sum()\n}}\n\
         /// All of ours.\npub fn ours_{low}(m: messages::classes::{name}Ref<'_>) -> u64 {{\n    m.sum()\n}}\n"
    )
}

fn made(message: &str, kind: &str) -> String {
    match kind {
        "string" => "r.text_below(49)".into(),
        "bool" => "true".into(),
        "double" => "r.written(35) as f64 / 8.0".into(),
        "uint32" | "fixed32" => "r.written(32) as u32".into(),
        "int32" => "r.written(31) as i32".into(),
        "int64" => "r.written(35) as i64".into(),
        "uint64" => "r.written(35)".into(),
        kind => {
            let inner = kind.trim_start_matches("repeated ").to_lowercase();
            let most = if message == "Nested" { 2 } else { 3 };
            if kind.starts_with("repeated ") {
                format!("(0..=r.below({most})).map(|_| fill_{inner}(r)).collect()")
            } else {
                format!("Some(fill_{inner}(r))")
            }
        }
    }
}

/// Sets a field of ours to what it is in prost's.
fn copied(field: &str, kind: &str) -> String {
    match kind {
        "string" => format!("    if !m.{field}.is_empty() {{ to.set_{field}(&m.{field}).unwrap(); }}\n"),
        "bool" | "double" | "uint32" | "fixed32" | "int32" | "int64" | "uint64" => {
            format!("    to.set_{field}(m.{field});\n")
        }
        kind => {
            let inner = kind.trim_start_matches("repeated ").to_lowercase();
            if kind.starts_with("repeated ") {
                format!(
                    "    for one in &m.{field} {{ copy_{inner}(one, &mut to.add_{field}().unwrap()); }}\n"
                )
            } else {
                format!("    if let Some(one) = &m.{field} {{ copy_{inner}(one, &mut to.{field}_mut().unwrap()); }}\n")
            }
        }
    }
}
