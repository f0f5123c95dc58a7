//! Types of .thrift files: a parser of our own, since the language is small.
//!
//! What it reads: includes, namespaces, constants and annotations (which it passes over), typedefs, enumerations,
//! structs, unions, exceptions and services. A method's arguments are a struct `NameArgs` in its service's module, what it
//! gives is `NameResult`: `success` and the exceptions.

mod lex;
mod parse;
mod resolve;
pub(crate) mod straight;

pub(crate) use resolve::load;

use scotfree_transform::thrift::LayoutError;
use thiserror::Error;

/// Why a .thrift file gives no types.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ThriftError {
    /// Something else stands there.
    #[error("{file}:{line}: expected {expected}, found {found}")]
    Expected {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What was expected.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A file is not there.
    #[error("{included}{file} is not there; add its folder to the includes")]
    Missing {
        /// The file.
        file: String,
        /// Where it is included, if it is.
        included: String,
    },
    /// A file cannot be read.
    #[error("read {file}: {reason}")]
    Read {
        /// The file.
        file: String,
        /// What the system says.
        reason: String,
    },
    /// See there.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

impl ThriftError {
    fn expected(file: &str, line: usize, expected: &str, found: impl std::fmt::Display) -> Self {
        ThriftError::Expected {
            file: file.to_owned(),
            line,
            expected: expected.to_owned(),
            found: found.to_string(),
        }
    }
}
