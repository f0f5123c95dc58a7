//! Compiles the programs for the kernel and makes Rust types of what they share with the daemon.

mod clang;

use libbpf_cargo::SkeletonBuilder;
use std::env;
use std::path::PathBuf;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..");
    let source = root.join("bpf/dispatcher.bpf.c");
    let folders = [root.join("bpf/include"), root.join("crates/remedy-persist/bpf")];
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-changed={}", root.join("bpf").display());
    println!("cargo:rerun-if-changed={}", folders[1].display());
    let includes = folders.iter().map(|folder| format!("-I{}", folder.display()));
    let arch_include =
        format!("-I/usr/include/{}-linux-gnu", env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it"));
    let fixed = ["-mcpu=v3", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-unused-function"];
    let built = SkeletonBuilder::new()
        .source(&source)
        .obj(out.join("dispatcher.bpf.o"))
        .clang(clang::find())
        .clang_args(fixed.map(str::to_owned).into_iter().chain(includes).chain([arch_include]))
        .build_and_generate(out.join("dispatcher.skel.rs"));
    if let Err(error) = built {
        panic!("compiling {} failed: {error:#}\n{}", source.display(), clang::ADVICE);
    }
}
