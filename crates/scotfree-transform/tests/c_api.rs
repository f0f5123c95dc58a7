//! The C interface: its example, and what C may do wrong, are built with the system's compiler, and with its sanitizers
//! where it has them.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A field of a message below 128 bytes: its tag, its length.
fn part(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
}

fn field(name: &str, number: u8, label: u8, kind: u8, of: &str) -> Vec<u8> {
    let numbers = [3 << 3, number, 4 << 3, label, 5 << 3, kind];
    let of = if of.is_empty() { vec![] } else { part(6, of.as_bytes()) };
    part(2, &[&part(1, name.as_bytes())[..], &numbers[..], &of[..]].concat())
}

/// The descriptors that examples-c/transform.c says.
fn descriptors() -> Vec<u8> {
    let order = [
        part(1, b"Order"),
        field("customer", 1, 1, 9, ""),
        field("lines", 2, 3, 11, ".shop.Line"),
        field("total", 3, 1, 18, ""),
    ];
    let line = [
        part(1, b"Line"),
        field("what", 1, 1, 9, ""),
        field("price", 2, 1, 1, ""),
        field("count", 3, 1, 13, ""),
    ];
    let messages = [part(4, &order.concat()), part(4, &line.concat())].concat();
    let file = [&part(2, b"shop")[..], &messages, &part(12, b"proto3")].concat();
    [&[10, file.len() as u8 | 0x80, (file.len() >> 7) as u8][..], &file].concat()
}

const ORDER: &[u8] = b"\x0a\x03Eva\x12\x0e\x0a\x03tea\x11\0\0\0\0\0\0\x08\x40\xf8\x01\x07";
const HALVED: &[u8] =
    b"\x0a\x03Eva\x12\x0e\x0a\x03tea\x11\0\0\0\0\0\0\xf8\x3f\x12\x08\x0a\x06a gift\x18\x02\xf8\x01\x07";

#[test]
fn the_example_decodes_changes_and_encodes() {
    let built = Built::new("transform", Path::new("examples-c/transform.c"));
    for program in &built.programs {
        let output = built.run(program, ORDER);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "an order of Eva\ntea: 1.5 instead of 3\n");
        assert!(output.status.success());
        let total = HALVED.iter().position(|&byte| byte == 0x18).expect("it is there") + 1;
        assert_eq!(output.stdout[total], 2, "1 as a zigzag number");
        assert_eq!(output.stdout, HALVED);

        let output = built.run(program, &ORDER[..12]);
        assert_eq!(output.status.code(), Some(3));
        let words = "shop.Order, lines[0]: byte 6: the message ends within a field\n";
        assert_eq!(String::from_utf8_lossy(&output.stderr), words);
    }
}

#[test]
fn whatever_c_gives_it_gets_a_code_and_words() {
    let built = Built::new("bad", Path::new("tests/c/bad.c"));
    for program in &built.programs {
        let output = built.run(program, b"");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains(" of 24 prefixes refused: shop.Order"), "{said}");
    }
}

#[test]
fn what_the_docs_show_stands_in_the_example() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(here.join("../../docs/transform.md")).expect("the page is there");
    let example = std::fs::read_to_string(here.join("examples-c/transform.c")).expect("the example is there");
    let shown = page.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a block of C");
    assert!(shown.lines().count() >= 6);
    for line in shown.lines() {
        assert!(example.lines().any(|of| of.trim() == line), "{line}");
    }
}

/// A program of C, with the sanitizers too where there are any.
struct Built {
    programs: Vec<PathBuf>,
    descriptors: PathBuf,
}

impl Built {
    fn new(name: &str, source: &Path) -> Built {
        // The test lies in target/PROFILE/deps, the library in target/PROFILE/examples.
        let test = std::env::current_exe().expect("the test knows its own path");
        let profile = test.parent().and_then(Path::parent).expect("target/PROFILE/deps").to_owned();
        let library = profile.join("examples/libscotfree_transform.a");
        if !library.exists() {
            build_library(&profile);
        }
        let folder = profile.join("examples-c");
        std::fs::create_dir_all(&folder).expect("the target folder is writable");
        let named = |kind: &str| folder.join(format!("{name}-{kind}-{}", std::process::id()));
        let (plain, sanitized, descriptors) = (named("plain"), named("sanitized"), named("descriptors"));
        std::fs::write(&descriptors, self::descriptors()).expect("the target folder is writable");
        let mut programs = vec![plain.clone()];
        assert!(
            compile(source, &library, &plain, &[]),
            "{} compiles with cc (apt install gcc libc6-dev)",
            source.display()
        );
        if has_sanitizers(&folder) {
            let flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
            assert!(compile(source, &library, &sanitized, &flags), "{} with sanitizers", source.display());
            programs.push(sanitized);
        }
        Built { programs, descriptors }
    }

    fn run(&self, program: &Path, input: &[u8]) -> Output {
        let mut child = Command::new(program)
            .arg(&self.descriptors)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it was built");
        // It need not read what it does not want.
        let _ = child.stdin.take().expect("it is piped").write_all(input);
        child.wait_with_output().expect("our child")
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        for file in self.programs.iter().chain([&self.descriptors]) {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Under `cargo test` it is there already; under `cargo test --test c_api` it may not be.
fn build_library(profile: &Path) {
    let release = profile.ends_with("release").then_some("--release");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--offline", "--examples", "--package", "scotfree-transform"])
        .args(release)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(status.expect("cargo runs").success(), "the library does not build");
}

fn compile(source: &Path, library: &Path, output: &Path, flags: &[&str]) -> bool {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let status = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1", "-g"])
        .args(flags)
        .arg("-I")
        .arg(here.join("include"))
        .arg(here.join(source))
        .arg(library)
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(output)
        .status();
    status.is_ok_and(|status| status.success())
}

/// Whether the compiler has them, and what they make runs here.
fn has_sanitizers(folder: &Path) -> bool {
    let (source, output) = (folder.join(unique("tried.c")), folder.join(unique("tried")));
    std::fs::write(&source, "int main(void) { return 0; }\n").expect("the target folder is writable");
    let compiled = Command::new("cc")
        .args(["-fsanitize=address,undefined", "-o"])
        .args([&output, &source])
        .stderr(Stdio::null())
        .status();
    let runs = compiled.is_ok_and(|status| status.success())
        && Command::new(&output).status().is_ok_and(|status| status.success());
    for file in [source, output] {
        let _ = std::fs::remove_file(file);
    }
    runs
}

/// A name of this thread of this process, since tests run beside each other.
fn unique(name: &str) -> String {
    format!("{}-{:?}-{name}", std::process::id(), std::thread::current().id())
}
