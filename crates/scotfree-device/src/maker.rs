//! How a function is made: a remedy hands out one constant, and a list of them is all that a shell knows of remedies.

use crate::function::Function;
use scotfree_core::{Durability, Nanos};
use scotfree_session::Planted;

/// What a configuration tells functions; each takes what concerns it.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What the persistence domains can give.
    pub media: Durability,
    /// How long a log's entry may stay without `ServerAck` before it is sent to the server again.
    pub reforward_after: Nanos,
    /// Whether the device is the first on the path.
    pub head: bool,
    /// What was given of the functions' own options.
    pub options: Vec<OptionValue>,
    /// A safety rule switched off, for tests.
    pub planted: Planted,
}

impl Default for Settings {
    /// For a device with memory only.
    fn default() -> Settings {
        Settings {
            media: Durability::Ram,
            reforward_after: Nanos::from_millis(400),
            head: true,
            options: Vec::new(),
            planted: Planted::NONE,
        }
    }
}

impl Settings {
    /// What an option of a function is: as given, or what it is by default.
    pub fn option(&self, function: &str, option: &FunctionOption) -> u64 {
        let given = self.options.iter().rev().find(|given| given.is_of(function, option.name));
        given.map_or(option.default, |given| given.value)
    }
}

/// A number by which a configuration changes what a function does.
#[derive(Debug, Clone, Copy)]
pub struct FunctionOption {
    /// Its name.
    pub name: &'static str,
    /// What it is, for people.
    pub about: &'static str,
    /// What it is if nobody says anything else.
    pub default: u64,
    /// The least and the most that it can be.
    pub range: (u64, u64),
}

/// An option that was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionValue {
    /// Of which function.
    pub function: String,
    /// Its name.
    pub name: String,
    /// What it is.
    pub value: u64,
}

impl OptionValue {
    fn is_of(&self, function: &str, name: &str) -> bool {
        self.function == function && self.name == name
    }
}

/// A function that can be made.
#[derive(Debug, Clone, Copy)]
pub struct Maker {
    /// Its name in the configuration.
    pub name: &'static str,
    /// Its own options.
    pub options: &'static [FunctionOption],
    /// Why it cannot work as it is configured, and what to do.
    pub obstacle: fn(&Settings) -> Option<String>,
    /// Makes it.
    pub make: fn(&Settings) -> Box<dyn Function>,
}

impl Maker {
    /// Of a function that has no options and works however it is configured.
    pub const fn plain(name: &'static str, make: fn(&Settings) -> Box<dyn Function>) -> Maker {
        Maker { name, options: &[], obstacle: |_| None, make }
    }
}

/// Refuses settings by which one of these functions cannot work, and options that none of them has.
pub fn check_settings(list: &[Maker], settings: &Settings) -> Result<(), String> {
    settings.options.iter().try_for_each(|given| check_option(list, given))?;
    match list.iter().find_map(|maker| (maker.obstacle)(settings)) {
        Some(obstacle) => Err(format!("functions: {obstacle}")),
        None => Ok(()),
    }
}

fn check_option(list: &[Maker], given: &OptionValue) -> Result<(), String> {
    let OptionValue { function, name, value } = given;
    let Some(maker) = list.iter().find(|maker| maker.name == function) else {
        let names: Vec<&str> = list.iter().map(|maker| maker.name).collect();
        return Err(format!(
            "option: `{function}.{name}` is for the function `{function}`, which is not in the list ({}); add it to \
             `functions`, or leave the option away",
            names.join(", ")
        ));
    };
    let Some(option) = maker.options.iter().find(|option| option.name == name) else {
        let names: Vec<&str> = maker.options.iter().map(|option| option.name).collect();
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Err(format!("option: the function `{function}` has no option `{name}`; it has {known}"));
    };
    let (least, most) = option.range;
    if (least..=most).contains(value) {
        return Ok(());
    }
    Err(format!("option: `{function}.{name}` is {value}; allowed are {least} to {most} ({})", option.about))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: FunctionOption = FunctionOption { name: "room", about: "bytes", default: 7, range: (1, 9) };
    const MAKER: Maker = Maker {
        options: &[ROOM],
        obstacle: |settings| (!settings.head).then(|| "`a` needs the head".to_owned()),
        ..Maker::plain("a", |_| unreachable!("nothing is made here"))
    };

    fn given(options: &[(&str, &str, u64)]) -> Settings {
        let value = |(function, name, value): &(&str, &str, u64)| OptionValue {
            function: (*function).to_owned(),
            name: (*name).to_owned(),
            value: *value,
        };
        Settings { options: options.iter().map(value).collect(), ..Settings::default() }
    }

    #[test]
    fn an_option_is_the_last_that_was_given_or_its_default() {
        assert_eq!(given(&[]).option("a", &ROOM), 7);
        assert_eq!(given(&[("a", "room", 2), ("b", "room", 4), ("a", "room", 3)]).option("a", &ROOM), 3);
    }

    #[test]
    fn what_no_function_can_take_is_refused_with_what_it_can() {
        let check = |options: &[(&str, &str, u64)]| check_settings(&[MAKER], &given(options));
        assert_eq!(check(&[("a", "room", 9)]), Ok(()));
        for (wrong, said) in [
            (("a", "room", 10), "`a.room` is 10; allowed are 1 to 9 (bytes)"),
            (("a", "rom", 1), "has no option `rom`; it has room"),
            (("b", "room", 1), "not in the list (a)"),
        ] {
            let error = check(&[wrong]).expect_err(said);
            assert!(error.contains(said), "{error}");
        }
        let follows = Settings { head: false, ..Settings::default() };
        assert_eq!(check_settings(&[MAKER], &follows), Err("functions: `a` needs the head".to_owned()));
    }
}
