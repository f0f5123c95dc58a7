//! The C interface: its examples are built with the system's compiler, and speak to the Rust ones.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const REPLIES: &str = "set: 1000\n\
    added 1: 1001\nadded 2: 1003\nadded 3: 1006\nadded 4: 1010\nadded 5: 1015\n\
    added 6: 1021\nadded 7: 1028\nadded 8: 1036\nadded 9: 1045\nadded 10: 1055\n\
    refused: not a number\nread: 1055\n";

#[test]
fn rust_and_c_speak_to_each_other() {
    let built = Built::new();
    for server in [&built.rust_server, &built.c_server] {
        let mut child = start(server);
        let address = listening_address(&mut child);
        for client in [&built.rust_client, &built.c_client] {
            assert_eq!(run(client, &[&address]), format!("{REPLIES}ended\n"), "{client:?} to {server:?}");
        }
        assert_eq!(run(&built.c_client, &[&address, "stop"]), format!("{REPLIES}stop: stopping\n"));
        let mut rest = String::new();
        child.stdout.take().expect("it is piped").read_to_string(&mut rest).expect("text");
        assert_eq!(rest, "the sum is 1055\n");
        assert!(child.wait().expect("our child").success());
    }
}

#[test]
fn errors_have_words() {
    let built = Built::new();
    let output = Command::new(&built.c_client).arg("nowhere").output().expect("it was built");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("`nowhere` is no address"), "{text}");
}

/// The examples of both languages, built.
struct Built {
    rust_server: PathBuf,
    rust_client: PathBuf,
    c_server: PathBuf,
    c_client: PathBuf,
}

impl Built {
    fn new() -> Built {
        // The test lies in target/PROFILE/deps, the examples in target/PROFILE/examples.
        let test = std::env::current_exe().expect("the test knows its own path");
        let profile = test.parent().and_then(Path::parent).expect("target/PROFILE/deps").to_owned();
        let examples = profile.join("examples");
        let library = examples.join("libscotfree.a");
        if !library.exists() {
            build_examples(&profile);
        }
        let folder = profile.join("examples-c");
        std::fs::create_dir_all(&folder).expect("the target folder is writable");
        Built {
            rust_server: examples.join("server"),
            rust_client: examples.join("client"),
            c_server: compile(&folder, "server", &library),
            c_client: compile(&folder, "client", &library),
        }
    }
}

/// Under `cargo test` they are there already; under `cargo test --test c_api` they may not be.
fn build_examples(profile: &Path) {
    let release = profile.ends_with("release").then_some("--release");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--offline", "--examples", "--package", "scotfree-rpc"])
        .args(release)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(status.expect("cargo runs").success(), "the examples do not build");
}

/// Compiles an example under a name of this test process, since tests run beside each other.
fn compile(folder: &Path, name: &str, library: &Path) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = folder.join(format!("{name}-{}-{:?}", std::process::id(), std::thread::current().id()));
    let status = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1"])
        .arg("-I")
        .arg(here.join("include"))
        .arg(here.join("examples-c").join(format!("{name}.c")))
        .arg(library)
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&output)
        .status();
    assert!(
        status.expect("a C compiler `cc` is installed (apt install gcc libc6-dev)").success(),
        "{name}.c"
    );
    output
}

impl Drop for Built {
    fn drop(&mut self) {
        for file in [&self.c_server, &self.c_client] {
            let _ = std::fs::remove_file(file);
        }
    }
}

fn start(server: &Path) -> Child {
    let child = Command::new(server).arg("127.0.0.1:0").stdout(Stdio::piped()).spawn();
    child.unwrap_or_else(|error| panic!("{} does not start: {error}", server.display()))
}

fn listening_address(child: &mut Child) -> String {
    let mut line = Vec::new();
    let output = child.stdout.as_mut().expect("it is piped");
    // One byte at a time: what follows belongs to a later reader.
    while line.last() != Some(&b'\n') {
        let mut byte = [0];
        output.read_exact(&mut byte).expect("the server says where it listens");
        line.push(byte[0]);
    }
    let line = String::from_utf8(line).expect("text");
    line.trim().strip_prefix("listening on ").expect("the address").to_owned()
}

fn run(client: &Path, arguments: &[&str]) -> String {
    let output = Command::new(client).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{} does not start: {error}", client.display()));
    let lines: Vec<String> = BufReader::new(&output.stdout[..]).lines().map_while(Result::ok).collect();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    lines.join("\n") + "\n"
}
