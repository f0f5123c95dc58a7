//! Tells the tests where the programs lie that were compiled with the functions of fixtures.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let object = std::env::var("DEP_SCOTFREE_BPF_FIXTURES").expect("the build of scotfree-xdp says it");
    println!("cargo:rustc-env=SCOT_OBJECT_WITH_FIXTURES={object}");
}
