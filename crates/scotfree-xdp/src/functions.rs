//! The functions that the programs were compiled with.
//!
//! Invariant: a function's place in the list is its number in the programs, by whose bit it is on.

use crate::error::KernelError;

include!(concat!(env!("OUT_DIR"), "/functions.rs"));

/// Which functions are on, by the bits of their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Functions(pub(crate) u32);

impl Functions {
    /// All that there are.
    pub const ALL: Functions = Functions(u32::MAX);
    /// None: all of Scotfree's requests are the daemon's.
    pub const NONE: Functions = Functions(0);

    /// Those that a set has.
    pub(crate) fn of_sets() -> Functions {
        Functions::named(OF_SETS).expect("they are named by those that there are")
    }

    /// The names of those that are off.
    pub(crate) fn off(self) -> impl Iterator<Item = &'static str> {
        let is_off = move |at: &usize| self.0 & 1 << at == 0;
        (0..FUNCTIONS.len()).filter(is_off).map(|at| FUNCTIONS[at].0)
    }

    /// Those of these that others do not have, by their names.
    pub(crate) fn missing_in(self, others: Functions) -> Vec<&'static str> {
        let is_missing = |at: &usize| self.0 & 1 << at != 0 && others.0 & 1 << at == 0;
        (0..FUNCTIONS.len()).filter(is_missing).map(|at| FUNCTIONS[at].0).collect()
    }

    /// Those with these names.
    pub fn named(names: &[&str]) -> Result<Functions, KernelError> {
        let known: Vec<&str> = FUNCTIONS.iter().map(|(name, _)| *name).collect();
        Functions::named_among(names, &known)
    }

    /// Those with these names, of programs compiled with the functions `known`, in their order.
    pub fn named_among(names: &[&str], known: &[&str]) -> Result<Functions, KernelError> {
        let number = |name: &&str| {
            let found = known.iter().position(|known| known == name);
            found.ok_or_else(|| KernelError::NoFunction { name: (*name).to_owned(), known: known.join(", ") })
        };
        names.iter().map(number).try_fold(Functions::NONE, |all, at| Ok(Functions(all.0 | 1 << at?)))
    }
}

/// What the function with this name counts, and the table that it does it in; `None` if there is no such function or it
/// counts nothing.
pub(crate) fn counters(name: &str) -> Option<(String, &'static [&'static str])> {
    let (_, fields) = FUNCTIONS.iter().find(|(known, fields)| *known == name && !fields.is_empty())?;
    Some((format!("scot_{name}_counters"), fields))
}

/// The tables in which functions count.
pub(crate) fn with_counters() -> impl Iterator<Item = String> {
    FUNCTIONS.iter().filter_map(|(name, _)| counters(name).map(|(table, _)| table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_off_and_what_others_lack_is_named() {
        let names: Vec<&str> = FUNCTIONS.iter().map(|(name, _)| *name).collect();
        assert_eq!(Functions::NONE.off().collect::<Vec<_>>(), names);
        assert_eq!(Functions::ALL.off().count(), 0);
        assert_eq!(Functions::ALL.missing_in(Functions::NONE), names);
        for name in &names {
            let one = Functions::named(&[name]).expect("it is there");
            assert_eq!((one.missing_in(Functions::NONE), one.missing_in(one)), (vec![*name], vec![]));
        }
        let of_sets = Functions::of_sets();
        assert!(OF_SETS.iter().all(|name| !of_sets.off().any(|off| off == *name)));
    }

    #[test]
    fn functions_are_named_or_refused_with_the_names_that_there_are() {
        assert_eq!(Functions::named(&[]).expect("none is named"), Functions::NONE);
        for (at, (name, _)) in FUNCTIONS.iter().enumerate() {
            assert_eq!(Functions::named(&[name]).expect("it is there"), Functions(1 << at));
        }
        let refused = Functions::named(&["none-such"]).expect_err("there is none").to_string();
        assert!(refused.contains("`none-such`"), "{refused}");
        assert!(FUNCTIONS.iter().all(|(name, _)| refused.contains(name)), "{refused}");
    }
}
