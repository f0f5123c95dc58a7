//! The rows of `data/command_classes.csv`, found by a command's name and form.
//!
//! Invariant: every row of the file parses (a broken file stops the first look-up, so a test), and every
//! command with several forms has one that applies to whatever is left.

use super::Class;
use crate::codec::Args;
use crate::names::NameTable;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

const TABLE: &str = include_str!("../../data/command_classes.csv");
/// Longer than any command's name.
const NAME_BYTES_MAX: usize = 40;

/// Properties of a command that Redis itself declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(u8);

impl Flags {
    /// Changes the dataset.
    pub const WRITE: Flags = Flags(1);
    /// Only reads the dataset.
    pub const READONLY: Flags = Flags(2);
    /// Refused when memory is used up.
    pub const DENYOOM: Flags = Flags(4);
    /// May block the connection.
    pub const BLOCKING: Flags = Flags(8);
    /// Refused inside MULTI.
    pub const NO_MULTI: Flags = Flags(16);
    /// For administrators.
    pub const ADMIN: Flags = Flags(32);
    /// Refused inside scripts.
    pub const NOSCRIPT: Flags = Flags(64);

    const NAMES: [(&'static str, Flags); 7] = [
        ("write", Flags::WRITE),
        ("readonly", Flags::READONLY),
        ("denyoom", Flags::DENYOOM),
        ("blocking", Flags::BLOCKING),
        ("no_multi", Flags::NO_MULTI),
        ("admin", Flags::ADMIN),
        ("noscript", Flags::NOSCRIPT),
    ];

    /// Whether all flags of `other` are set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets of flags.
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// The flag of a name that Redis uses; none of those we do not need.
    pub fn named(name: &str) -> Flags {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map_or(Flags::default(), |(_, flag)| *flag)
    }

    /// The names of the flags that are set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(_, flag)| self.has(*flag)).map(|(name, _)| name)
    }
}

/// Which arguments a row applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// Any.
    Any,
    /// What no other row of the command applies to.
    Plain,
    /// Every group has one of its words among the options.
    With {
        /// The groups of words.
        groups: Vec<Vec<String>>,
        /// As the table has it.
        text: String,
        /// Where the command's options can stand.
        options: Options,
    },
}

impl Form {
    /// As the table has it.
    pub fn text(&self) -> &str {
        match self {
            Form::Any => "any",
            Form::Plain => "plain",
            Form::With { text, .. } => text,
        }
    }

    fn parse(command: &str, text: &str) -> Form {
        match text.strip_prefix("with ") {
            None if text == "plain" => Form::Plain,
            None => Form::Any,
            Some(words) => {
                let groups = words.split(' ').map(|group| group.split('|').map(str::to_owned).collect());
                Form::With { groups: groups.collect(), text: text.to_owned(), options: Options::of(command) }
            }
        }
    }

    fn applies(&self, args: Args<'_>) -> bool {
        let Form::With { groups, options, .. } = self else { return true };
        let options = options.range(args);
        if options.is_empty() {
            return false;
        }
        let has = |word: &str| {
            options.clone().any(|index| {
                let is_chosen_id = word == "*" && args.get(index).ends_with(b"-*");
                args.is(index, word) || is_chosen_id
            })
        };
        groups.iter().all(|group| group.iter().any(|word| has(word)))
    }
}

/// One form of one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The command's name, with its subcommand's.
    pub command: String,
    /// Which arguments it applies to.
    pub form: Form,
    /// Redis' group of commands.
    pub group: String,
    /// Whether some Redis has it.
    pub in_redis: bool,
    /// Whether some Valkey has it.
    pub in_valkey: bool,
    /// How many arguments with the name; at least as many if negative.
    pub arity: i32,
    /// The index of the first key; 0 if there is none or it is elsewhere.
    pub first_key: usize,
    /// The index of the last key, counted from the end if negative.
    pub last_key: i32,
    /// From one key to the next.
    pub key_step: usize,
    /// What Redis says of it.
    pub flags: Flags,
    /// What may be done with it.
    pub class: Class,
    /// The same inside a transaction; none if it is refused there.
    pub in_transaction: Option<Class>,
    /// The reply that is known in advance, on the wire.
    pub fixed_reply: Option<String>,
    /// Whether its reply may be large whatever the request's size.
    pub lengthy: bool,
    /// Why it is so.
    pub why: String,
}

impl Row {
    /// Whether the command takes this many arguments, its name included.
    pub fn admits(&self, argument_count: usize) -> bool {
        arity_admits(self.arity, argument_count)
    }

    fn parse(line: &str) -> Option<Row> {
        let fields: Vec<&str> = line.splitn(14, ',').collect();
        let [command, form, group, redis, valkey, arity, first, last, step, flags, class, inside, fixed, why] =
            fields[..]
        else {
            return None;
        };
        let class = Class::from_name(class)?;
        let in_transaction = match inside {
            "" => Some(class),
            "refused" => None,
            name => Some(Class::from_name(name)?),
        };
        Some(Row {
            command: command.to_owned(),
            form: Form::parse(command, form),
            group: group.to_owned(),
            in_redis: redis == "y",
            in_valkey: valkey == "y",
            arity: arity.parse().ok()?,
            first_key: first.parse().ok()?,
            last_key: last.parse().ok()?,
            key_step: step.parse().ok()?,
            flags: flags.split('|').map(Flags::named).fold(Flags::default(), Flags::with),
            class,
            in_transaction,
            fixed_reply: (!fixed.is_empty()).then(|| format!("{fixed}\r\n")),
            lengthy: is_lengthy(command, form, class),
            why: why.trim_matches('"').to_owned(),
        })
    }
}

/// Writes that answer with data, of those that are logged.
const LENGTHY_COVERED: [&str; 11] = [
    "GETDEL",
    "GETEX",
    "GETSET",
    "LMOVE",
    "LMPOP",
    "LPOP",
    "RPOP",
    "RPOPLPUSH",
    "ZMPOP",
    "ZPOPMAX",
    "ZPOPMIN",
];
/// Those that do not, of those that are not logged.
const BRIEF_BYPASSES: [&str; 11] = [
    "GEORADIUS",
    "GEORADIUSBYMEMBER",
    "GEOSEARCHSTORE",
    "PUBLISH",
    "RESTORE-ASKING",
    "SORT",
    "SPUBLISH",
    "WAIT",
    "WAITAOF",
    "XADD",
    "XTRIM",
];

/// Whether a reply may be large: a doubt is settled towards yes.
fn is_lengthy(command: &str, form: &str, class: Class) -> bool {
    match class {
        Class::Early => false,
        Class::Covered if command == "SET" => form == "with GET",
        Class::Covered => LENGTHY_COVERED.contains(&command),
        Class::Bypass => !BRIEF_BYPASSES.contains(&command),
        Class::Read | Class::Control | Class::Tunnel => true,
    }
}

/// Redis' rule of arity: exactly so many, or at least so many if negative.
pub fn arity_admits(arity: i32, argument_count: usize) -> bool {
    let wanted = arity.unsigned_abs() as usize;
    if arity < 0 {
        argument_count >= wanted
    } else {
        argument_count == wanted
    }
}

/// All rows, sorted by command; those of one command in the order in which they are tried.
pub fn rows() -> &'static [Row] {
    &index().rows
}

/// The row that applies to a command with its arguments. An unknown subcommand gets the row of its
/// command, since the server answers the same error for all of them.
pub fn lookup(args: Args<'_>) -> Option<&'static Row> {
    let index = index();
    let mut name = Name::new();
    name.push(args.get(0))?;
    let of_command = index.by_name.get(name.bytes())?;
    let of_subcommand = (args.len() > 1 && of_command.has_subcommands)
        .then(|| name.push_word(args.get(1)))
        .flatten()
        .and_then(|()| index.by_name.get(name.bytes()));
    let Place { first, count, .. } = of_subcommand.unwrap_or(of_command);
    let rows = &index.rows[first..first + count];
    rows.iter().find(|row| row.form.applies(args))
}

/// A name in upper case, without allocating.
struct Name {
    bytes: [u8; NAME_BYTES_MAX],
    len: usize,
}

impl Name {
    fn new() -> Name {
        Name { bytes: [0; NAME_BYTES_MAX], len: 0 }
    }

    fn push(&mut self, text: &[u8]) -> Option<()> {
        let room = self.bytes.get_mut(self.len..self.len + text.len())?;
        // Byte by byte: names are short.
        room.iter_mut().zip(text).for_each(|(to, from)| *to = from.to_ascii_uppercase());
        self.len += text.len();
        Some(())
    }

    fn push_word(&mut self, text: &[u8]) -> Option<()> {
        let before = self.len;
        let pushed = self.push(b" ").and_then(|()| self.push(text));
        if pushed.is_none() {
            self.len = before;
        }
        pushed
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

struct Index {
    rows: Vec<Row>,
    by_name: NameTable<Place>,
}

/// Where a command's rows are.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    first: usize,
    count: usize,
    has_subcommands: bool,
}

fn index() -> &'static Index {
    static INDEX: OnceLock<Index> = OnceLock::new();
    INDEX.get_or_init(|| {
        let rows: Vec<Row> = TABLE
            .lines()
            .skip(1)
            .map(|line| {
                Row::parse(line).unwrap_or_else(|| panic!("the class table has a broken row: {line}"))
            })
            .collect();
        let by_name = NameTable::of(places(&rows).iter().map(|(name, place)| (name.as_bytes(), *place)));
        Index { rows, by_name }
    })
}

/// Where each command's rows are.
fn places(rows: &[Row]) -> BTreeMap<String, Place> {
    let mut places: BTreeMap<String, Place> = BTreeMap::new();
    for (first, row) in rows.iter().enumerate() {
        let new = Place { first, ..Place::default() };
        places.entry(row.command.clone()).or_insert(new).count += 1;
    }
    for row in rows {
        if let Some((container, _)) = row.command.split_once(' ') {
            // Not every one has a row of its own.
            places.entry(container.to_owned()).or_default().has_subcommands = true;
        }
    }
    places
}

/// Where a command's options can stand, so that keys and values are not taken for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Options {
    /// From this argument on.
    From(usize),
    /// Up to XADD's entry id.
    ToEntryId,
    /// Before the word STREAMS.
    ToStreams,
}

impl Options {
    fn of(command: &str) -> Options {
        match command {
            "RESTORE" => Options::From(4),
            "SET" | "GEOSEARCHSTORE" => Options::From(3),
            "XADD" => Options::ToEntryId,
            "XREAD" | "XREADGROUP" => Options::ToStreams,
            "GEORADIUS" => Options::From(6),
            "GEORADIUSBYMEMBER" => Options::From(5),
            _ => Options::From(2),
        }
    }

    fn range(self, args: Args<'_>) -> Range<usize> {
        match self {
            Options::From(first) => first..args.len(),
            Options::ToEntryId => 2..(entry_id(args) + 1).min(args.len()),
            Options::ToStreams => 1..streams(args),
        }
    }
}

/// The index of XADD's entry id.
fn entry_id(args: Args<'_>) -> usize {
    let mut at = 2;
    loop {
        if args.is(at, "NOMKSTREAM") {
            at += 1;
        } else if args.is(at, "MAXLEN") || args.is(at, "MINID") {
            let has_operator = matches!(args.get(at + 1), b"=" | b"~");
            at += if has_operator { 3 } else { 2 };
        } else if args.is(at, "LIMIT") {
            at += 2;
        } else {
            return at;
        }
    }
}

/// The index of the word STREAMS.
pub(super) fn streams(args: Args<'_>) -> usize {
    (1..args.len()).find(|index| args.is(*index, "STREAMS")).unwrap_or(args.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Command;

    #[test]
    fn the_file_parses_and_every_command_has_a_last_resort() {
        assert!(rows().len() > 400);
        let places = places(rows());
        for (name, place) in places.iter().filter(|(_, place)| place.count > 0) {
            let last = &rows()[place.first + place.count - 1];
            assert!(matches!(last.form, Form::Any | Form::Plain), "{name}");
        }
    }

    #[test]
    fn arity_is_exact_or_a_minimum() {
        assert!(arity_admits(2, 2) && !arity_admits(2, 3));
        assert!(arity_admits(-2, 2) && arity_admits(-2, 9) && !arity_admits(-2, 1));
    }

    #[test]
    fn names_are_found_in_any_case_and_long_ones_are_unknown() {
        let found = |words: &[&str]| lookup(Command::new(words).args()).map(|row| row.command.clone());
        assert_eq!(found(&["gEt", "k"]), Some("GET".to_owned()));
        assert_eq!(found(&["config", "get", "x"]), Some("CONFIG GET".to_owned()));
        assert_eq!(found(&["config"]), Some("CONFIG".to_owned()));
        assert_eq!(found(&["config", &"x".repeat(100)]), Some("CONFIG".to_owned()));
        for length in [NAME_BYTES_MAX, NAME_BYTES_MAX + 1, 100] {
            assert_eq!(found(&[&"x".repeat(length)]), None);
        }
        assert!(rows().iter().all(|row| row.command.len() <= NAME_BYTES_MAX));
        assert_eq!(found(&[""]), None);
    }

    #[test]
    fn replies_with_data_may_be_large_and_those_that_count_are_not() {
        let lengthy = |line: &str| lookup(Command::new(line.split(' ')).args()).map(|row| row.lengthy);
        for line in [
            "GET k",
            "GETEX k",
            "SET k v GET",
            "SET k v NX GET",
            "EVAL s 0",
            "FCALL f 0",
            "SPOP k 9",
            "LPOP k",
        ] {
            assert_eq!(lengthy(line), Some(true), "{line}");
        }
        for line in
            ["SET k v", "SET k v NX", "SET k v KEEPTTL", "INCR k", "XADD k * a b", "PUBLISH c m", "DEL k"]
        {
            assert_eq!(lengthy(line), Some(false), "{line}");
        }
        assert_eq!(lengthy("NEWER k"), None);
    }

    #[test]
    fn flags_have_names() {
        let flags = Flags::WRITE.with(Flags::DENYOOM);
        assert_eq!(flags.names().collect::<Vec<_>>(), ["write", "denyoom"]);
        assert!(flags.has(Flags::WRITE) && !flags.has(Flags::ADMIN));
    }
}
