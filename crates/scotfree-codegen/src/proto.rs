//! What .proto files define, by protox.
//!
//! Invariant: scotfree.proto, which says what options of fields mean here, is known without a folder; nothing is generated
//! of it, nor of descriptor.proto, which it alone imports.

use crate::{names, CodegenError, Defined};
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver, IncludeFileResolver};
use scotfree_transform::descriptor::{read, types_of};
use std::path::{Path, PathBuf};

pub(crate) fn load(files: &[&Path], includes: &[&Path], case: names::Case) -> Result<Defined, CodegenError> {
    if files.is_empty() {
        return Ok(Defined::default());
    }
    let mut files = read(&compiled(files, includes)?)?;
    let sources = files.iter().filter_map(|file| found(&file.name, includes)).collect();
    if files.iter().any(|file| file.name == OWN) {
        files.retain(|file| file.name != OWN && file.name != DESCRIPTOR);
    }
    let loaded = types_of(&files)?;
    Ok(Defined {
        types: loaded.types,
        enums: loaded.enums,
        messages: loaded.messages,
        names: names::Names::of(&files, case),
        is_thrift: false,
        sources,
    })
}

/// Where a file is that was compiled: nowhere, if the compiler or this crate brings it along.
fn found(name: &str, includes: &[&Path]) -> Option<PathBuf> {
    includes.iter().map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Files and what they import as a `FileDescriptorSet`, options among them, for types that are loaded at run time.
pub fn descriptors(
    files: &[impl AsRef<Path>],
    includes: &[impl AsRef<Path>],
) -> Result<Vec<u8>, CodegenError> {
    let files: Vec<&Path> = files.iter().map(AsRef::as_ref).collect();
    let includes: Vec<&Path> = includes.iter().map(AsRef::as_ref).collect();
    compiled(&files, &includes)
}

const OWN: &str = "scotfree.proto";
const DESCRIPTOR: &str = "google/protobuf/descriptor.proto";

fn compiled(files: &[&Path], includes: &[&Path]) -> Result<Vec<u8>, CodegenError> {
    let mut resolver = ChainFileResolver::new();
    for folder in includes {
        resolver.add(IncludeFileResolver::new(folder.to_path_buf()));
    }
    resolver.add(Own);
    resolver.add(GoogleFileResolver::new());
    let mut compiler = protox::Compiler::with_file_resolver(resolver);
    // Not as a struct, which has no room for options of others.
    let set = compiler
        .include_imports(true)
        .open_files(files)
        .map(|compiler| compiler.encode_file_descriptor_set());
    set.map_err(|error| CodegenError::Proto {
        files: files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", "),
        reason: format!("{error:?}"),
    })
}

/// Has scotfree.proto.
struct Own;

impl FileResolver for Own {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        if name == OWN {
            File::from_source(name, include_str!("../proto/scotfree.proto"))
        } else {
            Err(protox::Error::file_not_found(name))
        }
    }
}
