//! What the peers' own generators make of the same files, none of which asks for protoc.

use crate::reading::{of_structs, Dialect};
use crate::{first_large, messages, MEASURED};
use protox::prost_reflect::MessageDescriptor;
use std::path::{Path, PathBuf};

pub fn make(out: &Path) {
    let proto = Path::new("proto").canonicalize().unwrap();
    buffa(out, &proto);
    quick(out, &proto);
    pilota(out, &proto);
    let messages = messages(out);
    let text: String = DIALECTS.iter().map(|dialect| of_structs(&messages, *dialect)).collect();
    std::fs::write(out.join("peers_reading.rs"), text).unwrap();
}

const DIALECTS: [Dialect; 4] = [
    Dialect {
        module: "crate::peers::buffa_messages",
        path: |message| message.name().to_owned(),
        field: str::to_owned,
        oneof: |message, oneof| {
            format!("{}::__buffa::oneof::any_value::{}", message.package_name(), first_large(oneof))
        },
        is_snake: false,
        is_flat: false,
    },
    Dialect {
        module: "crate::peers::buffa_messages",
        path: |message| format!("__buffa::view::{}View<'_>", message.name()),
        field: str::to_owned,
        oneof: |message, oneof| {
            format!("{}::__buffa::view::oneof::any_value::{}", message.package_name(), first_large(oneof))
        },
        is_snake: false,
        is_flat: false,
    },
    Dialect {
        module: "crate::peers::quick_messages",
        path: |message| message.name().to_owned() + lifetime(message),
        field: quick_name,
        oneof: |message, oneof| format!("{}::mod_{}::OneOf{oneof}", message.package_name(), message.name()),
        is_snake: true,
        is_flat: true,
    },
    Dialect {
        module: "crate::peers::pilota_messages::pilota_proto",
        path: |message| message.name().to_owned(),
        field: str::to_owned,
        oneof: |message, oneof| format!("{}::any_value::{}", message.package_name(), first_large(oneof)),
        is_snake: false,
        is_flat: false,
    },
];

/// What borrows has one: all but what has numbers alone.
fn lifetime(message: &MessageDescriptor) -> &'static str {
    if message.name() == "Nothing" {
        ""
    } else {
        "<'_>"
    }
}

/// Names of Rust's own types are escaped.
fn quick_name(field: &str) -> String {
    if field == "f32" {
        "f32_pb".to_owned()
    } else {
        field.to_owned()
    }
}

fn folder(out: &Path, name: &str) -> PathBuf {
    let folder = out.join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn buffa(out: &Path, proto: &Path) {
    let set = protox::compile(MEASURED, [out, proto]).unwrap();
    let bytes = out.join("measured.bin");
    std::fs::write(&bytes, protox::prost::Message::encode_to_vec(&set)).unwrap();
    buffa_build::Config::new()
        .descriptor_set(&bytes)
        .files(&MEASURED)
        .out_dir(folder(out, "buffa"))
        .include_file("all.rs")
        .compile()
        .unwrap();
}

fn quick(out: &Path, proto: &Path) {
    let files = [out.join("classes.proto"), proto.join("shapes.proto"), proto.join("otlp.proto")];
    let to = folder(out, "quick");
    let config =
        pb_rs::ConfigBuilder::new(&files, None, Some(&to), &[out.to_path_buf(), proto.to_path_buf()])
            .unwrap();
    pb_rs::types::FileDescriptor::run(&config.build()).unwrap();
}

fn pilota(out: &Path, proto: &Path) {
    let files = [out.join("classes.proto"), proto.join("shapes.proto"), proto.join("otlp.proto")];
    pilota_build::Builder::pb()
        .include_dirs(vec![out.to_path_buf(), proto.to_path_buf()])
        .ignore_unused(false)
        .compile(files, pilota_build::Output::File(out.join("pilota_proto.rs")));
    pilota_build::Builder::thrift()
        .ignore_unused(false)
        .compile(["thrift/post.thrift"], pilota_build::Output::File(out.join("pilota_thrift.rs")));
}
