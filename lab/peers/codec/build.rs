//! Messages of three classes and of other shapes for each codec, and what reads every field of each; and messages and
//! structs of random types (schemata.rs, thrift_schemata.rs).

#[cfg(feature = "buffa")]
#[path = "build/buffa.rs"]
mod buffa;
#[path = "build/classes.rs"]
mod classes;
#[path = "src/drawn.rs"]
#[allow(dead_code)]
mod drawn;
#[cfg(feature = "peers")]
#[path = "build/peers.rs"]
mod peers;
#[path = "build/reading.rs"]
mod reading;
mod schemata;
#[allow(dead_code)]
mod thrift_schemata;

use protox::prost_reflect::{DescriptorPool, MessageDescriptor};
use reading::Dialect;
use std::path::{Path, PathBuf};

/// What is measured: files of each codec.
pub const MEASURED: [&str; 3] = ["classes.proto", "shapes.proto", "otlp.proto"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=proto");
    println!("cargo::rerun-if-changed=thrift");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap());
    measured(&out);
    tested(&out);
    #[cfg(feature = "peers")]
    peers::make(&out);
    age(&out);
}

/// Makes all files of a folder old. The peers' generators tell cargo to look at files that this has just made, which else
/// would be newer than this run, and have cargo run it, and compile all, each time.
fn age(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            age(&entry.path());
        } else {
            let file = std::fs::File::open(entry.path()).unwrap();
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
        }
    }
}

/// What is measured, by prost and by ours.
fn measured(out: &Path) {
    let specs = classes::specs();
    std::fs::write(out.join("classes.proto"), classes::proto(&specs)).unwrap();
    std::fs::write(out.join("drawing.rs"), classes::drawing(&specs)).unwrap();
    let set = protox::compile(MEASURED, [out, Path::new("proto")]).unwrap();
    let folder = out.join("prost");
    std::fs::create_dir_all(&folder).unwrap();
    prost_build::Config::new().out_dir(folder).compile_fds(set).unwrap();
    scotfree_codegen::Config::new()
        .file_name("scotfree.rs")
        .compile(&MEASURED, &[out, Path::new("proto")])
        .unwrap();
    let messages = messages(out);
    let prost = Dialect {
        module: "crate::prost_messages",
        path: |message| message.name().to_owned(),
        field: str::to_owned,
        oneof: |message, oneof| format!("{}::any_value::{}", message.package_name(), first_large(oneof)),
        is_snake: false,
        is_flat: false,
    };
    let text = reading::of_structs(&messages, prost) + &reading::of_ours(&messages, "crate::messages");
    std::fs::write(out.join("reading.rs"), text).unwrap();
}

/// The messages that are measured, of all files.
pub fn messages(out: &Path) -> Vec<MessageDescriptor> {
    let set = protox::compile(MEASURED, [out, Path::new("proto")]).unwrap();
    let bytes = protox::prost::Message::encode_to_vec(&set);
    let pool = DescriptorPool::decode(&bytes[..]).unwrap();
    pool.all_messages().filter(|message| !message.is_map_entry()).collect()
}

/// What tests and examples use of our own.
fn tested(out: &Path) {
    let ours = scotfree_codegen::Config::new;
    let every = ["three.proto", "two.proto", "kinds.proto"];
    ours().file_name("every.rs").compile(&every, &["proto"]).unwrap();
    ours().file_name("otlp.rs").compile(&["otlp.proto"], &["proto"]).unwrap();
    ours().visitors().file_name("visited.rs").compile(&["otlp.proto"], &["proto"]).unwrap();
    ours().file_name("testee.rs").compile(&["testee.proto"], &["proto"]).unwrap();
    let set = protox::compile(every, ["proto"]).unwrap();
    std::fs::write(out.join("every.bin"), protox::prost::Message::encode_to_vec(&set)).unwrap();
    ours().file_name("uuid.rs").compile(&["uuid.proto"], &["proto"]).unwrap();
    let set = scotfree_codegen::descriptors(&["uuid.proto"], &["proto"]).unwrap();
    std::fs::write(out.join("uuid.bin"), set).unwrap();
    ours().file_name("thrift.rs").compile(&["every.thrift", "post.thrift"], &["thrift"]).unwrap();
    random(out);
    random_thrift(out);
    owned(out, &every);
}

/// Messages of random types.
fn random(out: &Path) {
    println!("cargo::rerun-if-changed=schemata.rs");
    println!("cargo::rerun-if-changed=src/drawn.rs");
    let random = schemata::write(out);
    let mut config = scotfree_codegen::Config::new();
    schemata::cold().into_iter().for_each(|name| {
        config.cold(name);
    });
    config.file_name("schemata.rs").compile(&random, &[out]).unwrap();
    let set = protox::compile(&random, [out]).unwrap();
    std::fs::write(out.join("schemata.bin"), protox::prost::Message::encode_to_vec(&set)).unwrap();
    #[cfg(feature = "buffa")]
    buffa::random(out, &random);
}

/// Structs of random types.
fn random_thrift(out: &Path) {
    println!("cargo::rerun-if-changed=thrift_schemata.rs");
    let random = thrift_schemata::write(out);
    let mut config = scotfree_codegen::Config::new();
    thrift_schemata::cold().into_iter().for_each(|name| {
        config.cold(name);
    });
    config.file_name("thrift_schemata.rs").compile(&random, &[out]).unwrap();
}

/// Plain structs: ours, and prost's with what decodes them here.
fn owned(out: &Path, files: &[&str]) {
    let folder = out.join("prosts");
    std::fs::create_dir_all(&folder).unwrap();
    let set = protox::compile(files, ["proto"]).unwrap();
    let mut config = prost_build::Config::new();
    config.out_dir(&folder).include_file("mod.rs").compile_fds(set).unwrap();
    let ours = scotfree_codegen::Config::new;
    ours().file_name("owned.rs").owned().compile(files, &["proto"]).unwrap();
    ours().file_name("by_prost.rs").owned_by_prost("crate::prosts").compile(files, &["proto"]).unwrap();
}

/// `Value` of `value`.
pub fn first_large(name: &str) -> String {
    let (first, rest) = name.split_at(1);
    first.to_uppercase() + rest
}
