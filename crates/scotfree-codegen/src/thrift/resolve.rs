//! What names in .thrift files stand for: typedefs and includes are followed, methods become structs.
//!
//! Invariant: a file is read once, however often it is included.

use super::parse::{parse, Document, Field, Said, Struct};
use super::ThriftError;
use crate::names::{camel, module, Name};
use crate::Defined;
use scotfree_transform::descriptor::EnumDescription;
use scotfree_transform::thrift::{types_of, FieldDescription, Of, StructDescription};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Reads files, which lie in one of `includes` or where they are said to, and what they include.
pub(crate) fn load(files: &[&Path], includes: &[&Path]) -> Result<Defined, ThriftError> {
    let mut loader = Loader { includes, files: Vec::new(), by_path: BTreeMap::new() };
    for file in files {
        let missing = || ThriftError::Missing { file: file.display().to_string(), included: String::new() };
        let path = loader.found(file, None).ok_or_else(missing)?;
        loader.load(&path, 0)?;
    }
    let defined = Resolver { files: &loader.files }.all()?;
    Ok(Defined { sources: loader.by_path.into_keys().collect(), ..defined })
}

/// A file, its included ones by the names that they go by in it.
struct File {
    document: Document,
    included: BTreeMap<String, usize>,
    namespace: Vec<String>,
}

struct Loader<'p> {
    includes: &'p [&'p Path],
    files: Vec<File>,
    by_path: BTreeMap<PathBuf, usize>,
}

impl Loader<'_> {
    /// Where a file is: beside the one that includes it, or in a folder of includes.
    fn found(&self, file: &Path, beside: Option<&Path>) -> Option<PathBuf> {
        let folders = beside.into_iter().chain(self.includes.iter().copied());
        let mut candidates = folders.map(|folder| folder.join(file)).chain([file.to_owned()]);
        candidates.find(|path| path.is_file())
    }

    /// A file that `within` others include, one the other.
    fn load(&mut self, path: &Path, within: usize) -> Result<usize, ThriftError> {
        let key = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if let Some(place) = self.by_path.get(&key) {
            return Ok(*place);
        }
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|reason| ThriftError::Read { file: name.clone(), reason: reason.to_string() })?;
        let document = parse(&name, &text)?;
        let namespace = namespace(&document, path);
        let wanted = document.includes.clone();
        let place = self.files.len();
        // Before what it includes is read, so that files may include each other.
        self.by_path.insert(key, place);
        self.files.push(File { document, included: BTreeMap::new(), namespace });
        for (file, line) in wanted {
            let missing =
                || ThriftError::Missing { file: file.clone(), included: format!("{name}:{line}: ") };
            let inner = self.found(Path::new(&file), path.parent()).ok_or_else(missing)?;
            if within == INCLUDES_MAX {
                let expected = format!("at most {INCLUDES_MAX} files that include each other in a row");
                return Err(ThriftError::expected(&name, line, &expected, format_args!("`{file}`")));
            }
            let inner_place = self.load(&inner, within + 1)?;
            self.files[place].included.insert(stem(Path::new(&file)), inner_place);
        }
        Ok(place)
    }
}

/// A file that another includes, and so on, at most so often: each takes stack.
const INCLUDES_MAX: usize = 200;

fn stem(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

/// That of Rust, or that of all languages, or the file's name.
fn namespace(document: &Document, path: &Path) -> Vec<String> {
    let of = |scope: &str| document.namespaces.iter().rev().find(|(of, _)| of == scope);
    match of("rs").or_else(|| of("*")) {
        Some((_, name)) => name.split('.').map(str::to_owned).collect(),
        None => vec![stem(path)],
    }
}

/// What a name stands for.
enum Meaning<'f> {
    Typedef(usize, &'f Said),
    Enum,
    Struct(String),
}

struct Resolver<'f> {
    files: &'f [File],
}

impl<'f> Resolver<'f> {
    fn all(&self) -> Result<Defined, ThriftError> {
        let mut resolved = Defined { is_thrift: true, ..Defined::default() };
        let (mut structs, mut owners) = (Vec::new(), Vec::new());
        for (place, file) in self.files.iter().enumerate() {
            let modules = modules(&file.namespace);
            unique_names(file)?;
            for of in &file.document.enums {
                let mut description = EnumDescription::default();
                (description.name, description.values) = (of.name.clone(), of.values.clone());
                resolved.enums.push(description);
                resolved.names.enums.push(Name { modules: modules.clone(), name: camel(&of.name) });
            }
            for of in &file.document.structs {
                structs.push(self.structure(place, of, &full(file, &of.name))?);
                owners.push((modules.clone(), of.name.clone()));
            }
            for service in &file.document.services {
                let inner: Vec<String> = modules.iter().cloned().chain([module(&service.name)]).collect();
                for method in &service.methods {
                    let parts = [("Args", Some(&method.arguments)), ("Result", method.result.as_ref())];
                    for (suffix, fields) in parts.into_iter().filter_map(|(suffix, of)| Some((suffix, of?))) {
                        let name = format!("{}{suffix}", method.name);
                        let full = format!("{}.{name}", full(file, &service.name));
                        let fields = self.fields(place, fields)?;
                        structs.push(StructDescription { name: full, fields, is_union: false });
                        owners.push((inner.clone(), name));
                    }
                }
            }
        }
        let loaded = types_of(&structs)?;
        for (place, schema) in loaded.types.types.iter().enumerate() {
            let owner = loaded.owners[place] as usize;
            let (modules, of) = &owners[owner];
            let is_own = owner == place;
            let last = schema.name.rsplit('.').next().unwrap_or_default();
            resolved.names.types.push(Name {
                modules: modules.iter().cloned().chain((!is_own).then(|| module(of))).collect(),
                name: camel(last),
            });
        }
        resolved.types = loaded.types;
        resolved.names = resolved.names.distinct();
        Ok(resolved)
    }

    fn structure(&self, file: usize, of: &Struct, name: &str) -> Result<StructDescription, ThriftError> {
        let fields = self.fields(file, &of.fields)?;
        Ok(StructDescription { name: name.to_owned(), fields, is_union: of.is_union })
    }

    fn fields(&self, file: usize, fields: &[Field]) -> Result<Vec<FieldDescription>, ThriftError> {
        fields
            .iter()
            .map(|field| {
                Ok(FieldDescription {
                    id: field.id,
                    name: field.name.clone(),
                    need: field.need,
                    has_default: field.has_default,
                    of: self.of(
                        file,
                        &field.of,
                        &mut Way { line: field.line, followed: 0, depth: 0, left: CONTAINERS_MAX },
                    )?,
                })
            })
            .collect()
    }

    /// A type as it is without typedefs.
    fn of(&self, file: usize, said: &Said, way: &mut Way) -> Result<Of, ThriftError> {
        let line = way.line;
        if !matches!(said, Said::Named(_)) {
            // Typedefs of typedefs would else be as many containers as two to their number.
            if way.depth == CONTAINERS_DEPTH_MAX || way.left == 0 {
                let (of, expected) =
                    (&self.files[file].document.file, "fewer containers in one field's type");
                return Err(ThriftError::expected(of, line, expected, "typedefs of more"));
            }
            way.left -= 1;
        }
        let mut inner = |said: &Said| {
            way.depth += 1;
            let of = self.of(file, said, way).map(Box::new);
            way.depth -= 1;
            of
        };
        Ok(match said {
            Said::List(of) => Of::List(inner(of)?),
            Said::Set(of) => Of::Set(inner(of)?),
            Said::Map(key, value) => Of::Map(inner(key)?, inner(value)?),
            Said::Named(name) => match name.as_str() {
                "bool" => Of::Bool,
                "byte" | "i8" => Of::I8,
                "i16" => Of::I16,
                "i32" => Of::I32,
                "i64" => Of::I64,
                "double" => Of::Double,
                "string" | "slist" => Of::String,
                "binary" => Of::Binary,
                "uuid" => Of::Uuid,
                name => match self.meaning(file, name) {
                    Some(Meaning::Enum) => Of::Enum,
                    Some(Meaning::Struct(name)) => Of::Struct(name),
                    Some(Meaning::Typedef(file, said)) if way.followed < TYPEDEFS_MAX => {
                        way.followed += 1;
                        let of = self.of(file, said, way)?;
                        way.followed -= 1;
                        of
                    }
                    Some(Meaning::Typedef(..)) => {
                        return Err(self.expected(file, line, "a typedef that ends in a type", name))
                    }
                    None => {
                        return Err(self.expected(
                            file,
                            line,
                            "a type that is defined here or included",
                            name,
                        ))
                    }
                },
            },
        })
    }

    fn expected(&self, file: usize, line: usize, expected: &str, found: &str) -> ThriftError {
        ThriftError::expected(&self.files[file].document.file, line, expected, format_args!("`{found}`"))
    }

    /// What a name stands for in a file: its own, or `file.Name` of one that it includes.
    fn meaning(&self, file: usize, name: &str) -> Option<Meaning<'f>> {
        let (file, name) = match name.rsplit_once('.') {
            Some((included, name)) => (*self.files[file].included.get(included)?, name),
            None => (file, name),
        };
        let of: &'f File = &self.files[file];
        let document = &of.document;
        if document.structs.iter().any(|of| of.name == name) {
            return Some(Meaning::Struct(full(of, name)));
        }
        if document.enums.iter().any(|of| of.name == name) {
            return Some(Meaning::Enum);
        }
        document.typedefs.iter().find(|of| of.name == name).map(|of| Meaning::Typedef(file, &of.of))
    }
}

/// That a file defines a name once.
fn unique_names(file: &File) -> Result<(), ThriftError> {
    let document = &file.document;
    let mut seen = BTreeMap::new();
    let named = document
        .typedefs
        .iter()
        .map(|of| (&of.name, of.line))
        .chain(document.enums.iter().map(|of| (&of.name, of.line)))
        .chain(document.structs.iter().map(|of| (&of.name, of.line)));
    for (name, line) in named {
        if let Some(before) = seen.insert(name, line) {
            let (first, second) = (before.min(line), before.max(line));
            let expected = format!("another name: line {first} defines it too");
            return Err(ThriftError::expected(&document.file, second, &expected, format_args!("`{name}`")));
        }
    }
    Ok(())
}

/// Where a field's type is looked for.
struct Way {
    line: usize,
    /// Typedefs that led here.
    followed: usize,
    /// Containers that it is in.
    depth: usize,
    /// So many containers may still be in the field's type.
    left: usize,
}

/// A typedef of a typedef, at most so often.
const TYPEDEFS_MAX: usize = 64;

/// Containers within each other, as many as the parser takes without typedefs.
const CONTAINERS_DEPTH_MAX: usize = 65;

/// Containers in one field's type: each within another is a type, of which a set has no more than 65,534.
const CONTAINERS_MAX: usize = 65_534;

fn full(file: &File, name: &str) -> String {
    format!("{}.{name}", file.namespace.join("."))
}

fn modules(namespace: &[String]) -> Vec<String> {
    namespace.iter().map(|part| module(part)).collect()
}
