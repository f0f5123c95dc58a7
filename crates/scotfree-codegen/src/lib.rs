//! Rust for messages of .proto and .thrift files, over scotfree-transform: for `build.rs`.
//!
//! ```no_run
//! // build.rs
//! scotfree_codegen::Config::new().compile(&["proto/app.proto"], &["proto"]).unwrap();
//! // src/main.rs: include!(concat!(env!("OUT_DIR"), "/messages.rs"));
//! ```
//!
//! Invariant: what is generated has no unsafe code, and is the same for the same files.
#![forbid(unsafe_code)]

mod emit;
mod names;
mod owned;
mod proto;
mod straight;
mod thrift;
mod visit;

pub use proto::descriptors;
use scotfree_transform::descriptor::{DescriptorError, EnumDescription, MessageDescription};
use scotfree_transform::{TypeSchema, Types};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use thiserror::Error;
pub use thrift::ThriftError;

/// Why nothing was generated. It is debugged as it is displayed, since a build.rs that unwraps it shows it so.
#[derive(Error)]
pub enum CodegenError {
    /// The files are not Protobuf, or what they import is not found.
    #[error("compile {files}: {reason}")]
    Proto {
        /// What was to be compiled.
        files: String,
        /// What the compiler says.
        reason: String,
    },
    /// See there.
    #[error(transparent)]
    Descriptor(#[from] DescriptorError),
    /// See there.
    #[error(transparent)]
    Thrift(#[from] ThriftError),
    /// No folder was named, and cargo did not name one.
    #[error("write the generated code: no folder; call out_dir(…), or run from build.rs, where cargo sets OUT_DIR")]
    NoFolder,
    /// A type that was named is in none of the files.
    #[error("generate code: cold(\"{name}\") names no message; the first there is: {there_is}")]
    NoSuchType {
        /// As it was named.
        name: String,
        /// One that there is, so that one sees how they are written.
        there_is: String,
    },
    /// A field that no visitor is handed.
    #[error("make visitors: {field} is {why}; take Config::new() without visitors()")]
    NotVisited {
        /// The field, by its message and number.
        field: String,
        /// What it is.
        why: &'static str,
    },
    /// The file could not be written.
    #[error("write {path}: {reason}; its folder has to be there, to be yours to write, and to have room")]
    Write {
        /// The file.
        path: String,
        /// What the system says.
        reason: std::io::Error,
    },
}

impl std::fmt::Debug for CodegenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// What is generated, and where to.
#[derive(Debug, Clone)]
pub struct Config {
    out_dir: Option<PathBuf>,
    file_name: String,
    cold: Vec<String>,
    is_visited: bool,
    owned: Option<owned::Owned>,
    runtime: String,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            out_dir: std::env::var_os("OUT_DIR").map(PathBuf::from),
            file_name: "messages.rs".to_owned(),
            cold: Vec::new(),
            is_visited: false,
            owned: None,
            runtime: "::scotfree_transform".to_owned(),
        }
    }
}

impl Config {
    /// To `messages.rs` in cargo's `OUT_DIR`.
    pub fn new() -> Self {
        Config::default()
    }

    /// Another folder.
    pub fn out_dir(&mut self, folder: impl Into<PathBuf>) -> &mut Self {
        self.out_dir = Some(folder.into());
        self
    }

    /// Another name of the file.
    pub fn file_name(&mut self, name: impl Into<String>) -> &mut Self {
        self.file_name = name.into();
        self
    }

    /// Has messages of this full name (`pkg.Type`) done by the table: less code, for what is rare.
    pub fn cold(&mut self, name: impl Into<String>) -> &mut Self {
        self.cold.push(name.into());
        self
    }

    /// Makes visitors instead: of each type a trait with a method a field, which is called as the fields come. Nothing
    /// is kept, so that reading a message once costs less than decoding it; strings are handed out as bytes, unchecked.
    pub fn visitors(&mut self) -> &mut Self {
        self.is_visited = true;
        self
    }

    /// Makes plain structs of Protobuf's messages, with the names and types that prost-build gives them. A struct `T` is
    /// decoded and encoded by `scotfree_transform::Owned`, and `Message<T>` is the same message as its slots.
    pub fn owned(&mut self) -> &mut Self {
        self.owned = Some(owned::Owned { source: owned::Source::Made, is_ordered: false });
        self
    }

    /// The same with maps that are ordered (`BTreeMap`).
    pub fn owned_ordered(&mut self) -> &mut Self {
        self.owned = Some(owned::Owned { source: owned::Source::Made, is_ordered: true });
        self
    }

    /// Keeps the structs that prost-build made of the same files, and has them be decoded and encoded here: `root` is the
    /// module of this crate in which prost-build's modules lie, as `crate::proto`.
    pub fn owned_by_prost(&mut self, root: impl Into<String>) -> &mut Self {
        self.owned = Some(owned::Owned { source: owned::Source::Prost(root.into()), is_ordered: false });
        self
    }

    /// Has what is generated call the codec by another path than `::scotfree_transform`: that of a crate which hands it
    /// on.
    pub fn runtime(&mut self, path: impl Into<String>) -> &mut Self {
        self.runtime = path.into();
        self
    }

    /// What messages of .proto files are called in what is generated: paths from its root, by their full names
    /// (`pkg.Type`).
    pub fn paths(
        &self,
        files: &[impl AsRef<Path>],
        includes: &[impl AsRef<Path>],
    ) -> Result<BTreeMap<String, String>, CodegenError> {
        let files: Vec<&Path> = files.iter().map(AsRef::as_ref).collect();
        let includes: Vec<&Path> = includes.iter().map(AsRef::as_ref).collect();
        let defined = proto::load(&files, &includes, self.case())?;
        let named = defined.types.types.iter().zip(&defined.names.types);
        Ok(named.map(|(schema, name)| (schema.name.to_string(), name.from(&[]))).collect())
    }

    /// Compiles files, of Protobuf or by their ending of Thrift, which lie in one of `includes`, as does what they import.
    /// Tells cargo to run build.rs again when one of them changes.
    pub fn compile(
        &self,
        files: &[impl AsRef<Path>],
        includes: &[impl AsRef<Path>],
    ) -> Result<(), CodegenError> {
        let folder = self.out_dir.clone().ok_or(CodegenError::NoFolder)?;
        let path = folder.join(&self.file_name);
        let defined = self.load(files, includes)?;
        written(&path, &self.text(&defined)?)
            .map_err(|reason| CodegenError::Write { path: path.display().to_string(), reason })?;
        // Outside of build.rs these are lines that nobody reads. A file that build.rs has made itself is newer than its run
        // each time, and would have cargo run it each time.
        let own = sources_of(&defined).filter(|path| !path.starts_with(&folder));
        own.for_each(|path| println!("cargo:rerun-if-changed={}", path.display()));
        Ok(())
    }

    /// The same as text.
    pub fn generate(
        &self,
        files: &[impl AsRef<Path>],
        includes: &[impl AsRef<Path>],
    ) -> Result<String, CodegenError> {
        self.text(&self.load(files, includes)?)
    }

    /// The files that are read: those that are named, and what they import.
    pub fn sources(
        &self,
        files: &[impl AsRef<Path>],
        includes: &[impl AsRef<Path>],
    ) -> Result<Vec<PathBuf>, CodegenError> {
        Ok(sources_of(&self.load(files, includes)?).cloned().collect())
    }

    /// What files define, a set for each language.
    fn load(
        &self,
        files: &[impl AsRef<Path>],
        includes: &[impl AsRef<Path>],
    ) -> Result<Vec<Defined>, CodegenError> {
        let files: Vec<&Path> = files.iter().map(AsRef::as_ref).collect();
        let includes: Vec<&Path> = includes.iter().map(AsRef::as_ref).collect();
        let (thrift, proto): (Vec<&Path>, Vec<&Path>) =
            files.into_iter().partition(|file| file.extension().is_some_and(|ending| ending == "thrift"));
        if let Some(file) = thrift.first().filter(|_| self.is_visited) {
            return Err(CodegenError::NotVisited { field: file.display().to_string(), why: "Thrift" });
        }
        let mut defined = Vec::new();
        if !proto.is_empty() {
            defined.push(proto::load(&proto, &includes, self.case())?);
        }
        if !thrift.is_empty() {
            defined.push(thrift::load(&thrift, &includes)?);
        }
        Ok(defined)
    }

    fn text(&self, defined: &[Defined]) -> Result<String, CodegenError> {
        self.check_cold(defined)?;
        if self.is_visited {
            visit::file(defined, self)
        } else {
            Ok(emit::file(defined, self))
        }
    }

    /// That each type that was named is one.
    fn check_cold(&self, defined: &[Defined]) -> Result<(), CodegenError> {
        let names = || defined.iter().flat_map(|one| one.types.types.iter()).map(|schema| &*schema.name);
        match self.cold.iter().find(|cold| !names().any(|name| name == *cold)) {
            Some(name) => {
                let there_is = names().next().unwrap_or("none").to_owned();
                Err(CodegenError::NoSuchType { name: name.clone(), there_is })
            }
            None => Ok(()),
        }
    }

    /// How names are said: beside structs of prost's names, views have these too.
    fn case(&self) -> names::Case {
        if self.owned.is_some() && !self.is_visited {
            names::Case { camel: owned::camel, snake: owned::snake }
        } else {
            names::Case::default()
        }
    }

    /// Whether a type is done by the table.
    fn is_cold(&self, schema: &TypeSchema) -> bool {
        schema.fields.len() > STRAIGHT_FIELDS_MAX || self.cold.iter().any(|name| *name == schema.name)
    }
}

/// What files of one language define: types, enumerations, and their names in Rust.
#[derive(Debug, Default)]
struct Defined {
    types: Types,
    enums: Vec<EnumDescription>,
    messages: Vec<MessageDescription>,
    names: names::Names,
    is_thrift: bool,
    /// The files that say so, as far as they are files.
    sources: Vec<PathBuf>,
}

/// Writes a file, or leaves what was there: beside it first, since a full disk ends within it.
fn written(path: &Path, text: &str) -> std::io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let done = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path));
    if done.is_err() {
        // It may not even have been made.
        let _ = std::fs::remove_file(&beside);
    }
    done
}

fn sources_of(defined: &[Defined]) -> impl Iterator<Item = &PathBuf> {
    defined.iter().flat_map(|defined| &defined.sources)
}

impl Defined {
    /// The name of the set of its types.
    fn set(&self) -> &'static str {
        if self.is_thrift {
            "THRIFT_TYPES"
        } else {
            "TYPES"
        }
    }
}

/// Types of .thrift files as they are known at run time: by the full names of their structs, as `namespace.Name`.
pub fn thrift_types(files: &[impl AsRef<Path>], includes: &[impl AsRef<Path>]) -> Result<Types, ThriftError> {
    let files: Vec<&Path> = files.iter().map(AsRef::as_ref).collect();
    let includes: Vec<&Path> = includes.iter().map(AsRef::as_ref).collect();
    Ok(thrift::load(&files, &includes)?.types)
}

/// A type of more fields is done by the table: a line so long would not stay in the instruction cache.
const STRAIGHT_FIELDS_MAX: usize = 64;
