//! Compiles the lab's own programs for the kernel, in a build with its plane there.

#[cfg(feature = "xdp")]
#[path = "../scotfree-xdp/clang.rs"]
mod clang;

#[cfg(feature = "xdp")]
use libbpf_cargo::SkeletonBuilder;
#[cfg(feature = "xdp")]
use std::env;
#[cfg(feature = "xdp")]
use std::path::{Path, PathBuf};

fn main() {
    #[cfg(feature = "xdp")]
    compile();
}

#[cfg(feature = "xdp")]
fn compile() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..");
    let include = root.join("bpf/include");
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-changed={}", include.display());
    for name in ["gauge", "endpoint"] {
        let source = root.join(format!("bpf/lab/{name}.bpf.c"));
        println!("cargo:rerun-if-changed={}", source.display());
        compile_one(&source, &include, &out.join(format!("{name}.bpf.o")));
    }
}

#[cfg(feature = "xdp")]
fn compile_one(source: &Path, include: &Path, object: &Path) {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let includes = [format!("-I{}", include.display()), format!("-I/usr/include/{arch}-linux-gnu")];
    let fixed = ["-mcpu=v3", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-unused-function"];
    let built = SkeletonBuilder::new()
        .source(source)
        .obj(object)
        .clang(clang::find())
        .clang_args(fixed.map(str::to_owned).into_iter().chain(includes))
        .build();
    if let Err(error) = built {
        panic!("compiling {} failed: {error:#}\n{}", source.display(), clang::ADVICE);
    }
}
