//! Messages of three classes (Optimus Prime, table 6.2) for each codec, and what reads every field of each; and messages
//! of random types (schemata.rs).

#[path = "src/drawn.rs"]
#[allow(dead_code)]
mod drawn;
mod schemata;

use std::fmt::Write;
use std::path::PathBuf;

/// A message: its fields by number, from 1.
struct Spec {
    name: &'static str,
    fields: Vec<(String, &'static str)>,
}

/// Fields of these kinds in turn, so many of them.
fn fields(kinds: &[&'static str], count: usize) -> Vec<(String, &'static str)> {
    (0..count).map(|at| (format!("f{}", at + 1), kinds[at % kinds.len()])).collect()
}

fn specs() -> Vec<Spec> {
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
        Spec {
            name: "Flat",
            fields: fields(&["uint64", "int32", "string", "uint32", "bool", "fixed32"], 45),
        },
        Spec { name: "Leaf", fields: fields(&["uint32", "string", "sint64", "bool"], 6) },
        Spec { name: "Branch", fields: branch },
        Spec { name: "Mixed", fields: mixed },
        Spec { name: "Nested", fields: nested },
    ]
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap());
    let mut proto = String::from("syntax = \"proto3\";\npackage classes;\n");
    let mut reading = String::new();
    for Spec { name, fields } in specs() {
        let _ = writeln!(proto, "message {name} {{");
        for (at, (field, kind)) in fields.iter().enumerate() {
            let _ = writeln!(proto, "  {kind} {field} = {};", at + 1);
        }
        proto.push_str("}\n");
        reading.push_str(&reader(name, &fields));
    }
    std::fs::write(out.join("classes.proto"), &proto).unwrap();
    std::fs::write(out.join("reading.rs"), reading).unwrap();
    let set = protox::compile(["classes.proto"], [&out]).unwrap();
    prost_build::Config::new().compile_fds(set).unwrap();
    scotfree_codegen::Config::new().file_name("scotfree.rs").compile(&["classes.proto"], &[&out]).unwrap();
    println!("cargo::rerun-if-changed=proto");
    let every = ["three.proto", "two.proto", "kinds.proto"];
    scotfree_codegen::Config::new().file_name("every.rs").compile(&every, &["proto"]).unwrap();
    scotfree_codegen::Config::new().file_name("uuid.rs").compile(&["uuid.proto"], &["proto"]).unwrap();
    let set = scotfree_codegen::descriptors(&["uuid.proto"], &["proto"]).unwrap();
    std::fs::write(out.join("uuid.bin"), set).unwrap();
    scotfree_codegen::Config::new().file_name("otlp.rs").compile(&["otlp.proto"], &["proto"]).unwrap();
    scotfree_codegen::Config::new()
        .visitors()
        .file_name("visited.rs")
        .compile(&["otlp.proto"], &["proto"])
        .unwrap();
    scotfree_codegen::Config::new().file_name("testee.rs").compile(&["testee.proto"], &["proto"]).unwrap();
    let set = protox::compile(every, ["proto"]).unwrap();
    std::fs::write(out.join("every.bin"), protox::prost::Message::encode_to_vec(&set)).unwrap();
    println!("cargo::rerun-if-changed=schemata.rs");
    println!("cargo::rerun-if-changed=src/drawn.rs");
    let random = schemata::write(&out);
    let mut config = scotfree_codegen::Config::new();
    schemata::cold().into_iter().for_each(|name| {
        config.cold(name);
    });
    config.file_name("schemata.rs").compile(&random, &[&out]).unwrap();
    let set = protox::compile(random, [&out]).unwrap();
    std::fs::write(out.join("schemata.bin"), protox::prost::Message::encode_to_vec(&set)).unwrap();
    println!("cargo::rerun-if-changed=thrift");
    scotfree_codegen::Config::new()
        .file_name("thrift.rs")
        .compile(&["every.thrift", "post.thrift"], &["thrift"])
        .unwrap();
    owned(&out, &every);
}

/// Plain structs: ours, and prost's with what decodes them here.
fn owned(out: &std::path::Path, files: &[&str]) {
    let prost = out.join("prost");
    std::fs::create_dir_all(&prost).unwrap();
    let set = protox::compile(files, ["proto"]).unwrap();
    let mut config = prost_build::Config::new();
    config.out_dir(&prost).include_file("mod.rs").compile_fds(set).unwrap();
    let made = |file: &str| scotfree_codegen::Config::new().file_name(file).clone();
    made("owned.rs").owned().compile(files, &["proto"]).unwrap();
    made("by_prost.rs").owned_by_prost("crate::prosts").compile(files, &["proto"]).unwrap();
}

/// Functions that read every field: of prost's struct, and of ours; and one that fills prost's.
fn reader(name: &str, fields: &[(String, &str)]) -> String {
    let (mut theirs, mut ours, mut fill, mut copy) =
        (String::new(), String::new(), String::new(), String::new());
    for (field, kind) in fields {
        copy.push_str(&copied(field, kind));
        let (of_theirs, of_ours, made) = match *kind {
            "string" => ("text(&m.$)".into(), "text(m.$())".into(), "r.text()".into()),
            "bool" => ("u64::from(m.$)".into(), "u64::from(m.$())".into(), "r.number() % 2 == 1".into()),
            "double" => ("m.$.to_bits()".into(), "m.$().to_bits()".into(), "r.number() as f64".into()),
            "uint32" | "fixed32" => {
                ("u64::from(m.$)".into(), "u64::from(m.$())".into(), "r.number() as u32".into())
            }
            "int32" => ("m.$ as u64".into(), "m.$() as u64".into(), "(r.number() as i32).abs()".into()),
            "int64" | "sint64" => {
                ("m.$ as u64".into(), "m.$() as u64".into(), "(r.number() >> 8) as i64".into())
            }
            "uint64" => ("m.$".into(), "m.$()".into(), "r.number()".into()),
            kind => {
                let inner = kind.trim_start_matches("repeated ").to_lowercase();
                if kind.starts_with("repeated ") {
                    (
                        format!("m.$.iter().map(theirs_{inner}).fold(0, u64::wrapping_add)"),
                        format!("m.$().map(ours_{inner}).fold(0, u64::wrapping_add)"),
                        format!("(0..r.below(4)).map(|_| fill_{inner}(r)).collect()"),
                    )
                } else {
                    (
                        format!("m.$.as_ref().map_or(0, theirs_{inner})"),
                        format!("m.$().map_or(0, ours_{inner})"),
                        format!("Some(fill_{inner}(r))"),
                    )
                }
            }
        };
        let _ = writeln!(theirs, "    s = s.wrapping_add({});", of_theirs.replace('$', field));
        let _ = writeln!(ours, "    s = s.wrapping_add({});", of_ours.replace('$', field));
        let _ = writeln!(fill, "    if r.is_there() {{ m.{field} = {made}; }}");
    }
    let low = name.to_lowercase();
    format!(
        "pub fn theirs_{low}(m: &prost_messages::{name}) -> u64 {{\n    let mut s = 0_u64;\n{theirs}    s\n}}\n\
         pub fn ours_{low}(m: messages::classes::{name}Ref<'_>) -> u64 {{\n    let mut s = 0_u64;\n{ours}    s\n}}\n\
         pub fn fill_{low}(r: &mut Drawn) -> prost_messages::{name} {{\n    let mut m = prost_messages::{name}::default();\n{fill}    m\n}}\n\
         pub fn copy_{low}(m: &prost_messages::{name}, to: &mut messages::classes::{name}Mut<'_>) {{\n{copy}}}\n"
    )
}

/// Sets a field of ours to what it is in prost's.
fn copied(field: &str, kind: &str) -> String {
    match kind {
        "string" => format!("    if !m.{field}.is_empty() {{ to.set_{field}(&m.{field}).unwrap(); }}\n"),
        "bool" | "double" | "uint32" | "fixed32" | "int32" | "int64" | "sint64" | "uint64" => {
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
