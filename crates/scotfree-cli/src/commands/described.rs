//! The commands whose programs the Python package brings, as far as completions and manual pages need them.
//!
//! Invariant: they are told by those programs' own parsers: `python -m scotfree.described` wrote the file, and a test
//! of the package compares it.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command, ValueHint};
use serde::Deserialize;

const DESCRIBED: &str = include_str!("../../data/python-commands.json");

/// A program such as `scot-study`.
#[derive(Deserialize)]
struct Program {
    name: String,
    about: String,
    /// The command that is meant where none is named.
    default: Option<String>,
    commands: Vec<Verb>,
}

/// One of its commands.
#[derive(Deserialize)]
struct Verb {
    name: String,
    about: String,
    examples: String,
    arguments: Vec<Argument>,
}

/// A flag, or what stands by its place.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Argument {
    flags: Vec<String>,
    value: Option<String>,
    choices: Vec<String>,
    is_path: bool,
    is_required: bool,
    is_many: bool,
    help: String,
}

/// A command with these among its own.
pub fn with_python_programs(command: Command) -> Command {
    command.subcommands(programs().into_iter().map(program))
}

fn programs() -> Vec<Program> {
    serde_json::from_str(DESCRIBED).expect("a test compares the file")
}

/// The commands of these programs that have that name, as they are typed.
pub fn named(verb: &str) -> Vec<String> {
    let has_it = |program: &Program| program.commands.iter().any(|one| one.name == verb);
    programs().into_iter().filter(has_it).map(|program| format!("scot {} {verb}", program.name)).collect()
}

fn program(Program { name, about, default, commands }: Program) -> Command {
    let mut command = Command::new(name.leak() as &str).about(about.leak() as &str).arg(not_inherited());
    if let Some(verb) = commands.iter().find(|verb| Some(&verb.name) == default.as_ref()) {
        // What may be left out is offered where it is not needed.
        let optional = verb.arguments.iter().filter(|argument| !argument.flags.is_empty());
        command = command.args(optional.map(Argument::to_arg));
    }
    command.subcommands(commands.into_iter().map(verb))
}

fn verb(Verb { name, about, examples, arguments }: Verb) -> Command {
    Command::new(name.leak() as &str)
        .about(about.leak() as &str)
        .after_help(format!("Examples:\n{examples}"))
        .args(arguments.iter().map(Argument::to_arg))
        .arg(not_inherited())
}

/// The flag that all commands of `scot` have, and its programs do not.
fn not_inherited() -> Arg {
    Arg::new("config").long("config").hide(true)
}

impl Argument {
    // Names live as long as this process, which ends when it has printed.
    fn to_arg(&self) -> Arg {
        let leaked = |text: &str| -> &'static str { text.to_owned().leak() };
        let longs: Vec<&str> = self.flags.iter().filter_map(|flag| flag.strip_prefix("--")).collect();
        let name = longs.first().copied().or(self.value.as_deref()).unwrap_or("value");
        let mut arg = Arg::new(leaked(name)).help(self.help.clone());
        for (position, long) in longs.iter().enumerate() {
            arg = if position == 0 { arg.long(leaked(long)) } else { arg.visible_alias(leaked(long)) };
        }
        if let Some(short) = self.flags.iter().find_map(|flag| short_of(flag)) {
            arg = arg.short(short);
        }
        let Some(value) = &self.value else { return arg.action(ArgAction::SetTrue) };
        arg = arg.value_name(leaked(value)).required(self.is_required);
        arg = arg.action(if self.is_many { ArgAction::Append } else { ArgAction::Set });
        if self.is_path {
            arg = arg.value_hint(ValueHint::AnyPath);
        }
        if !self.choices.is_empty() {
            arg =
                arg.value_parser(PossibleValuesParser::new(self.choices.iter().map(|choice| leaked(choice))));
        }
        arg
    }
}

fn short_of(flag: &str) -> Option<char> {
    let name = flag.strip_prefix('-').filter(|name| !name.starts_with('-'))?;
    name.chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    #[test]
    fn what_the_parsers_say_is_a_command_as_clap_wants_it() {
        let command = with_python_programs(Cli::command());
        command.clone().debug_assert();
        let matches = |words: &[&str]| command.clone().try_get_matches_from([&["scot"], words].concat());
        assert!(matches(&["study", "report", "a", "b", "--engine", "spark", "-o", "x.html"]).is_ok());
        assert!(matches(&["plan", "fit", "a", "--remedy", "b"]).is_ok());
        assert!(matches(&["study", "report", "a", "--engine", "none"]).is_err());
        assert!(matches(&["study", "report"]).is_err());
    }

    #[test]
    fn a_command_of_theirs_is_found_by_its_name() {
        assert_eq!(named("compare"), ["scot study compare"]);
        assert_eq!(named("serve"), ["scot study serve", "scot rag serve"]);
        assert_eq!(named("fit"), ["scot plan fit"]);
        assert!(named("gret").is_empty());
    }

    #[test]
    fn there_are_all_three_with_all_their_commands() {
        let command = with_python_programs(Cli::command());
        for (program, verbs) in [("study", 7), ("plan", 4), ("rag", 8)] {
            let found = command.find_subcommand(program).expect("it is there");
            assert_eq!(found.get_subcommands().count(), verbs, "{program}");
            assert!(found.get_subcommands().all(|verb| verb.get_arguments().count() > 1), "{program}");
        }
    }
}
