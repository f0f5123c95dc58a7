//! Tells the tests where the programs lie that were compiled with the functions of fixtures, and which these are.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let said = |name: &str| std::env::var(name).expect("the build of scotfree-xdp says it");
    let (object, functions) = (said("DEP_SCOTFREE_BPF_FIXTURES"), said("DEP_SCOTFREE_BPF_FIXTURE_FUNCTIONS"));
    println!("cargo:rustc-env=SCOT_OBJECT_WITH_FIXTURES={object}");
    println!("cargo:rustc-env=SCOT_FUNCTIONS_WITH_FIXTURES={functions}");
}
