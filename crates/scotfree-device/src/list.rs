//! The order of the functions: as configured, if it can work.
//!
//! Invariant: a list that cannot work is refused with what to do, before anything has changed.

use crate::function::Function;
use crate::maker::{Maker, Settings};
use scotfree_wire::Family;

/// Why a list of functions cannot work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListError {
    /// There is no function of this name.
    Unknown {
        /// The name in the list.
        name: String,
        /// The names that there are.
        known: Vec<&'static str>,
    },
    /// A function stands in the list twice.
    Twice(String),
    /// A function that acknowledges is not the last.
    NotLast(String),
    /// Two functions that acknowledge.
    TwoAcknowledge(String, String),
    /// Two functions of one family.
    OneFamily {
        /// Whose packets are theirs.
        family: Family,
        /// The first of the list.
        first: String,
        /// The other.
        second: String,
    },
}

impl std::fmt::Display for ListError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ListError::Unknown { name, known } => {
                write!(f, "no function `{name}`: this build has {}; mend the list of functions", known.join(", "))
            }
            ListError::Twice(name) => write!(f, "function `{name}` is listed twice; name it once"),
            ListError::NotLast(name) => write!(
                f,
                "function `{name}` acknowledges updates and must be the last of the list: a read is answered before the \
                 log is asked, and a write is noted before it is logged; move `{name}` to the end"
            ),
            ListError::TwoAcknowledge(first, second) => {
                write!(f, "functions `{first}` and `{second}` both acknowledge updates; keep one of them")
            }
            ListError::OneFamily { family, first, second } => write!(
                f,
                "functions `{first}` and `{second}` are both of the family {family:?}: its packets would reach the \
                 first alone, and nobody could tell whose answer one is; keep one of them"
            ),
        }
    }
}

impl std::error::Error for ListError {}

/// Picks the functions that a configuration names out of all that there are, in its order.
pub fn arrange(names: &[String], all: &[Maker]) -> Result<Vec<Maker>, ListError> {
    let mut list: Vec<Maker> = Vec::new();
    for name in names {
        if list.iter().any(|maker| maker.name == name) {
            return Err(ListError::Twice(name.clone()));
        }
        let known = || all.iter().map(|maker| maker.name).collect();
        let maker = all.iter().find(|maker| maker.name == name);
        list.push(*maker.ok_or_else(|| ListError::Unknown { name: name.clone(), known: known() })?);
    }
    let functions: Vec<_> = list.iter().map(|maker| (maker.make)(&Settings::default())).collect();
    check(&functions)?;
    Ok(list)
}

/// Refuses an order that cannot work.
pub(crate) fn check(list: &[Box<dyn Function>]) -> Result<(), ListError> {
    for (at, function) in list.iter().enumerate() {
        if list[..at].iter().any(|earlier| earlier.name() == function.name()) {
            return Err(ListError::Twice(function.name().to_owned()));
        }
    }
    check_families(list)?;
    let acknowledging: Vec<&str> =
        list.iter().filter(|function| function.acknowledges()).map(|function| function.name()).collect();
    match acknowledging[..] {
        [] => Ok(()),
        [only] if list.last().is_some_and(|last| last.acknowledges()) => {
            debug_assert!(list.last().is_some_and(|last| last.name() == only), "it is the last");
            Ok(())
        }
        [only] => Err(ListError::NotLast(only.to_owned())),
        [first, second, ..] => Err(ListError::TwoAcknowledge(first.to_owned(), second.to_owned())),
    }
}

/// What belongs to sessions comes to all functions of that family; of another there is one.
fn check_families(list: &[Box<dyn Function>]) -> Result<(), ListError> {
    for (at, second) in list.iter().enumerate() {
        let family = second.family();
        let same = list[..at].iter().find(|first| first.family() == family && family != Family::Session);
        if let Some(first) = same {
            let (first, second) = (first.name().to_owned(), second.name().to_owned());
            return Err(ListError::OneFamily { family, first, second });
        }
    }
    Ok(())
}
