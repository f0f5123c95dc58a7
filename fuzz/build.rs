//! Types for the codec's targets: those that it is compared to others by.

fn main() {
    const FOLDER: &str = "../lab/peers/codec/proto";
    const THRIFT: &str = "../lab/peers/codec/thrift";
    println!("cargo::rerun-if-changed={FOLDER}");
    scotfree_codegen::Config::new()
        .compile(&["three.proto", "two.proto", "kinds.proto"], &[FOLDER])
        .expect("the files are Protobuf");
    println!("cargo::rerun-if-changed={THRIFT}");
    scotfree_codegen::Config::new()
        .file_name("structs.rs")
        .compile(&["every.thrift", "post.thrift"], &[THRIFT])
        .expect("the files are Thrift");
    let set = protox::compile(["three.proto", "two.proto", "kinds.proto"], [FOLDER]).expect("as above");
    let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    std::fs::write(out.join("types.bin"), protox::prost::Message::encode_to_vec(&set))
        .expect("its folder is there");
}
