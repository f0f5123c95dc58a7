//! Services of tonic over Scotfree's codec: for `build.rs`, in place of `tonic-prost-build`.
//!
//! ```no_run
//! // build.rs
//! scotfree_tonic_build::configure().compile(&["proto/app.proto"], &["proto"]).unwrap();
//! // src/main.rs: mod app { tonic::include_proto!("app"); }
//! ```
//!
//! Invariant: what a service's code is called, and what its messages are, is as tonic-prost-build has it, but for the
//! types that `view` names.

mod file;
mod service;

use protox::prost_reflect::prost_types::FileDescriptorSet;
use scotfree_codegen::CodegenError;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why nothing was generated. It is debugged as it is displayed, since a build.rs that unwraps it shows it so.
#[derive(Error)]
pub enum BuildError {
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
    Codegen(#[from] CodegenError),
    /// A type that is to be a view and that no file has.
    #[error("view {0}: no file that is compiled, or that these import, has such a message")]
    NoSuchType(String),
    /// No folder was named, and cargo did not name one.
    #[error("write the generated code: no folder; call out_dir(…), or run from build.rs, where cargo sets OUT_DIR")]
    NoFolder,
    /// A file could not be written.
    #[error("write {path}: {reason}")]
    Write {
        /// The file.
        path: String,
        /// What the system says.
        reason: std::io::Error,
    },
}

impl std::fmt::Debug for BuildError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// What is generated, and where to.
#[derive(Debug, Clone)]
pub struct Builder {
    out_dir: Option<PathBuf>,
    has_client: bool,
    has_server: bool,
    has_transport: bool,
    views: BTreeSet<String>,
    config: scotfree_codegen::Config,
}

/// Clients and servers, to cargo's `OUT_DIR`.
pub fn configure() -> Builder {
    let mut config = scotfree_codegen::Config::new();
    config.owned().runtime("::scotfree_tonic::transform");
    let out_dir = std::env::var_os("OUT_DIR").map(PathBuf::from);
    Builder {
        out_dir,
        has_client: true,
        has_server: true,
        has_transport: true,
        views: BTreeSet::new(),
        config,
    }
}

impl Builder {
    /// Another folder.
    #[must_use]
    pub fn out_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.out_dir = Some(folder.into());
        self
    }

    /// Whether clients are made.
    #[must_use]
    pub fn build_client(mut self, is_wanted: bool) -> Self {
        self.has_client = is_wanted;
        self
    }

    /// Whether servers are made.
    #[must_use]
    pub fn build_server(mut self, is_wanted: bool) -> Self {
        self.has_server = is_wanted;
        self
    }

    /// Whether clients have `connect`, which takes tonic's feature `transport`.
    #[must_use]
    pub fn build_transport(mut self, is_wanted: bool) -> Self {
        self.has_transport = is_wanted;
        self
    }

    /// Has methods take and return messages of this full name (`pkg.Type`) as their slots: `Message<Type>`, which are
    /// read without a struct being made.
    #[must_use]
    pub fn view(mut self, name: impl Into<String>) -> Self {
        self.views.insert(name.into());
        self
    }

    /// Has maps be ordered (`BTreeMap`).
    #[must_use]
    pub fn ordered_maps(mut self) -> Self {
        self.config.owned_ordered();
        self
    }

    /// Compiles files, which lie in one of `includes`, as does what they import. Of one package, `pkg.rs` is written, as
    /// `tonic::include_proto!("pkg")` looks for it; of several, `scotfree.rs` with a module for each.
    pub fn compile(
        &self,
        files: &[impl AsRef<Path>],
        includes: &[impl AsRef<Path>],
    ) -> Result<(), BuildError> {
        let folder = self.out_dir.clone().ok_or(BuildError::NoFolder)?;
        let (name, text) = self.generate(files, includes)?;
        let path = folder.join(name);
        std::fs::write(&path, text)
            .map_err(|reason| BuildError::Write { path: path.display().to_string(), reason })?;
        for path in self.config.sources(files, includes)? {
            // Outside of build.rs this is a line that nobody reads.
            println!("cargo:rerun-if-changed={}", path.display());
        }
        Ok(())
    }

    /// The file's name and its text.
    pub fn generate(
        &self,
        files: &[impl AsRef<Path>],
        includes: &[impl AsRef<Path>],
    ) -> Result<(String, String), BuildError> {
        let set = descriptors(files, includes)?;
        let paths = self.config.paths(files, includes)?;
        if let Some(missing) = self.views.iter().find(|name| !paths.contains_key(*name)) {
            return Err(BuildError::NoSuchType(missing.clone()));
        }
        let messages = self.config.generate(files, includes)?;
        let asked: Vec<&Path> = files.iter().map(AsRef::as_ref).collect();
        Ok(file::Tree { builder: self, set: &set, asked: &asked, paths: &paths, messages: &messages }.file())
    }

    fn is_view(&self, name: &str) -> bool {
        self.views.contains(name)
    }
}

fn descriptors(
    files: &[impl AsRef<Path>],
    includes: &[impl AsRef<Path>],
) -> Result<FileDescriptorSet, BuildError> {
    protox::compile(files, includes).map_err(|error| BuildError::Proto {
        files: files.iter().map(|file| file.as_ref().display().to_string()).collect::<Vec<_>>().join(", "),
        reason: format!("{error:?}"),
    })
}
