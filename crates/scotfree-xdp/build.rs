//! Makes the list of the device's functions, compiles the programs for the kernel, and makes Rust types of what they
//! share with the daemon.

mod clang;

use libbpf_cargo::SkeletonBuilder;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..");
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-changed={}", root.join("bpf").display());
    let order = order(&root);
    let functions = functions(&root.join("crates"), &order);
    build(&root, &out, "dispatcher", &functions, &[]);
    say(&out, &functions);
    // What tests put into the list beside them.
    let fixtures = functions_of_fixtures(&root, &order);
    let object = out.join("fixtures.bpf.o");
    if fixtures.is_empty() {
        say_fixtures(&object, "");
        fs::write(&object, []).expect("the folder is cargo's");
        return;
    }
    let all = in_order(&order, functions.into_iter().chain(fixtures).collect());
    build(&root, &out, "fixtures", &all, &["-DSCOT_WITH_FAULTS"]);
    let names: Vec<&str> = all.iter().map(|function| function.name.as_str()).collect();
    say_fixtures(&object, &names.join(","));
}

/// Tells the tests of this package, and the packages of who depends on it, where the programs with fixtures lie and which
/// functions they have.
fn say_fixtures(object: &Path, functions: &str) {
    println!("cargo:fixtures={}", object.display());
    println!("cargo:fixture_functions={functions}");
    println!("cargo:rustc-env=SCOT_OBJECT_WITH_FIXTURES={}", object.display());
    println!("cargo:rustc-env=SCOT_FUNCTIONS_WITH_FIXTURES={functions}");
}

/// A function of the device: its name, and the folder of its programs.
struct Function {
    name: String,
    folder: PathBuf,
}

impl Function {
    fn source(&self) -> PathBuf {
        self.folder.join(format!("{}.bpf.c", self.name))
    }

    fn text(&self) -> String {
        fs::read_to_string(self.source()).expect("it was found")
    }

    /// Whether it keeps the places of sessions.
    fn keeps_places(&self) -> bool {
        self.text().contains(&format!("{}_take_place(", self.name))
    }

    /// Whether it wants to hear of what is acknowledged.
    fn hears_of_acknowledgements(&self) -> bool {
        self.text().contains(&format!("{}_on_acknowledged(", self.name))
    }

    /// Whether it says which extensions nobody waits for.
    fn knows_extensions(&self) -> bool {
        self.text().contains(&format!("{}_has_no_need_of(", self.name))
    }

    /// Whether it can be one of a set's: it says so if it has tables that are made anew with every load.
    fn is_for_sets(&self) -> bool {
        !self.text().contains(&format!("#define {}_NOT_IN_SETS", self.name.to_uppercase()))
    }
}

/// The names of functions in their order. One that is not there is left out.
fn order(root: &Path) -> Vec<String> {
    let text = fs::read_to_string(root.join("bpf/functions.order")).expect("bpf/functions.order is there");
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

/// The functions that lie in the folders of remedies in `place`.
fn functions(place: &Path, order: &[String]) -> Vec<Function> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let remedies = entries.filter_map(|entry| {
        let name = entry.file_name().to_str()?.strip_prefix("remedy-")?.to_owned();
        Some(Function { name, folder: entry.path().join("bpf") })
    });
    let found: Vec<Function> = remedies.filter(|function| function.folder.exists()).collect();
    for function in &found {
        let Function { name, folder } = function;
        // A program of another name would be compiled into nothing, and nobody would notice.
        assert!(
            function.source().exists(),
            "{} holds no {name}.bpf.c: a remedy's program bears its folder's name",
            folder.display()
        );
        // A new one is noticed by its line in the order.
        assert!(
            order.contains(name),
            "{} has a function that bpf/functions.order does not name",
            folder.display()
        );
        println!("cargo:rerun-if-changed={}", folder.display());
    }
    in_order(order, found)
}

fn functions_of_fixtures(root: &Path, order: &[String]) -> Vec<Function> {
    let place = root.join("fixtures");
    if place.exists() {
        functions(&place, order)
    } else {
        Vec::new()
    }
}

fn in_order(order: &[String], mut functions: Vec<Function>) -> Vec<Function> {
    functions.sort_by_key(|function| order.iter().position(|name| *name == function.name));
    functions
}

/// Compiles the dispatcher with these functions.
fn build(root: &Path, out: &Path, name: &str, functions: &[Function], more: &[&str]) {
    let source = root.join("bpf/dispatcher.bpf.c");
    let list = out.join(name);
    fs::create_dir_all(&list).expect("the folder is cargo's");
    fs::write(list.join("scot_functions.h"), list_of(functions)).expect("the folder is cargo's");
    let folders = [root.join("bpf/include"), list];
    let folders = folders.iter().chain(functions.iter().map(|function| &function.folder));
    let includes: Vec<String> = folders.map(|folder| format!("-I{}", folder.display())).collect();
    let arch_include =
        format!("-I/usr/include/{}-linux-gnu", env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it"));
    let fixed = ["-mcpu=v3", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-unused-function"];
    let built = SkeletonBuilder::new()
        .source(&source)
        .obj(out.join(format!("{name}.bpf.o")))
        .clang(clang::find())
        .clang_args(
            fixed.iter().chain(more).map(|word| (*word).to_owned()).chain(includes).chain([arch_include]),
        )
        .build_and_generate(out.join(format!("{name}.skel.rs")));
    if let Err(error) = built {
        panic!("compiling {} failed: {error:#}\n{}", source.display(), clang::ADVICE);
    }
}

/// The list as the dispatcher reads it.
fn list_of(functions: &[Function]) -> String {
    let names = functions.iter().map(|function| &function.name);
    let calls: Vec<String> = names.clone().zip(0..).map(|(name, at)| format!("each({name}, {at})")).collect();
    let mut lines: Vec<String> = names.map(|name| format!("#include \"{name}.bpf.c\"")).collect();
    lines.push(format!("#define SCOT_FUNCTIONS(each) {}", calls.join(" ")));
    let those = |are: fn(&Function) -> bool| {
        let both = functions.iter().zip(&calls).filter(|(function, _)| are(function));
        both.map(|(_, call)| call.as_str()).collect::<Vec<_>>().join(" ")
    };
    lines.push(format!("#define SCOT_LISTENERS(each) {}", those(Function::hears_of_acknowledgements)));
    lines.push(format!("#define SCOT_READERS(each) {}", those(Function::knows_extensions)));
    let mut keepers = functions.iter().zip(0..).filter(|(function, _)| function.keeps_places());
    if let Some((Function { name, .. }, at)) = keepers.next() {
        lines.push(format!("#define SCOT_KEEPER(hook) {name}_##hook"));
        lines.push(format!("#define SCOT_KEEPER_NUMBER {at}"));
    }
    assert!(keepers.next().is_none(), "one function keeps the places of sessions, not two");
    lines.join("\n") + "\n"
}

/// Says in Rust which functions there are, in their order, and what each counts: the fields of `struct NAME_counters`.
fn say(out: &Path, functions: &[Function]) {
    let types = fs::read_to_string(out.join("dispatcher.skel.rs")).expect("it was just made");
    let one = |Function { name, .. }: &Function| {
        format!("({name:?}, &{:?})", fields_of(&types, &format!("{name}_counters")))
    };
    let all: Vec<String> = functions.iter().map(one).collect();
    let of_sets: Vec<&str> =
        functions.iter().filter(|one| one.is_for_sets()).map(|one| one.name.as_str()).collect();
    let text = format!(
        "pub(crate) const FUNCTIONS: &[(&str, &[&str])] = &[{}];\npub(crate) const OF_SETS: &[&str] = &{of_sets:?};\n",
        all.join(", ")
    );
    fs::write(out.join("functions.rs"), text).expect("the folder is cargo's");
}

/// The names of a struct's fields, in their order.
fn fields_of<'a>(types: &'a str, name: &str) -> Vec<&'a str> {
    let begin = format!("pub struct {name} {{");
    let body = types.split_once(&begin).and_then(|(_, rest)| rest.split_once('}'));
    let fields = body.map_or("", |(body, _)| body).split(',');
    fields.filter_map(|field| field.split_once(':')?.0.trim().strip_prefix("pub ")).collect()
}
