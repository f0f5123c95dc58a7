//! The same services twice: over our codec, and over prost's.

use std::path::PathBuf;

const FILES: [&str; 3] = ["proto/helloworld.proto", "proto/route_guide.proto", "proto/logs.proto"];

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    for file in FILES {
        scotfree_tonic_build::configure().compile(&[file], &["proto"]).expect("our files compile");
    }
    scotfree_tonic_build::configure().compile(&["proto/clock.proto"], &["proto"]).expect("our files compile");
    let views = out.join("views");
    std::fs::create_dir_all(&views).expect("the folder is ours");
    for (file, view) in [(FILES[0], "helloworld.HelloRequest"), (FILES[2], "logs.Batch")] {
        scotfree_tonic_build::configure()
            .view(view)
            .out_dir(views.clone())
            .compile(&[file], &["proto"])
            .expect("our files compile");
    }
    let prost = out.join("prost");
    std::fs::create_dir_all(&prost).expect("the folder is ours");
    let set = protox::compile(FILES, ["proto"]).expect("our files compile");
    tonic_prost_build::configure().out_dir(prost).compile_fds(set).expect("prost takes them");
}
