//! Random .proto files for tests/schemata.rs.
//!
//! Invariant: the same on each run, since each is drawn from its place alone; all are what a Protobuf compiler takes.

use crate::drawn::Drawn;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

/// How many fields the root of each file has: one, around the sizes of groups of six and of a word of presence bits,
/// and more than a straight line takes.
const FIELDS: [usize; 24] =
    [1, 2, 3, 4, 5, 6, 7, 7, 8, 8, 9, 9, 10, 11, 12, 13, 14, 15, 18, 19, 25, 64, 65, 80];

/// Types that are the table's, in two files of three: so straight lines and tables lie within each other, and less is
/// compiled.
pub fn cold() -> Vec<String> {
    let places = (0..FIELDS.len()).filter(|place| place % 3 != 0);
    places.flat_map(|place| [format!("s{place}.Other"), format!("s{place}.{}", third(place))]).collect()
}

/// Writes s0.proto, s1.proto and so on; their names.
pub fn write(folder: &Path) -> Vec<String> {
    let names: Vec<String> = (0..FIELDS.len()).map(|place| format!("s{place}.proto")).collect();
    for (place, name) in names.iter().enumerate() {
        std::fs::write(folder.join(name), file(place)).unwrap();
    }
    names
}

fn file(place: usize) -> String {
    let is_proto2 = place % 2 == 1;
    let mut drawing = Drawing { r: Drawn::new(place as u64 + 1, 0), is_proto2, text: String::new() };
    let syntax = if is_proto2 { "proto2" } else { "proto3" };
    drawing.line(&format!("syntax = \"{syntax}\";\npackage s{place};"));
    drawing.enumeration("Color");
    // Beside the root one that refers back to it, and one whose name the generated code might take for its own.
    let third = third(place);
    let few = 1 + drawing.r.below(4) as usize;
    drawing.line("message Root {");
    drawing.enumeration("Within");
    drawing.message("Inner", few, &["Inner", "Root.Inner"], &["Within", "Color"]);
    drawing.fields(FIELDS[place], &["Inner", "Other", third, "Root"], &["Within", "Color"]);
    drawing.line("}");
    let few = 2 + drawing.r.below(4) as usize;
    drawing.message("Other", few, &["Root", "Other", "Root.Inner"], &["Color", "Root.Within"]);
    let few = drawing.r.below(4) as usize;
    drawing.message(third, few, &[third, "Other"], &["Color"]);
    drawing.text
}

fn third(place: usize) -> &'static str {
    TYPE_NAMES[place % TYPE_NAMES.len()]
}

const TYPE_NAMES: [&str; 12] =
    ["P", "Type", "Option", "Result", "Self", "Field", "RootRef", "match", "Slots", "Some", "Kind", "Cow"];

const WORDS: [&str; 24] = [
    "type",
    "self",
    "match",
    "fn",
    "super",
    "crate",
    "slots",
    "async",
    "enum",
    "message",
    "optional",
    "mod",
    "r",
    "Upper",
    "camelCase",
    "with_1_digit",
    "move",
    "ref",
    "static",
    "frame",
    "path",
    "writer",
    "loop",
    "next",
];

const NUMBERS: [&str; 13] = [
    "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64",
    "bool", "float", "double",
];

/// The highest number that a field may have, and those that none may.
const NUMBER_MAX: u64 = (1 << 29) - 1;
const RESERVED: std::ops::Range<u64> = 19_000..20_000;

/// Of messages within a message there are no more, so that drawn messages stay small.
const CHILDREN_MAX: usize = 3;

struct Drawing {
    r: Drawn,
    is_proto2: bool,
    text: String,
}

impl Drawing {
    fn line(&mut self, text: &str) {
        let _ = writeln!(self.text, "{text}");
    }

    fn one_of<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.r.below(of.len() as u64) as usize]
    }

    fn enumeration(&mut self, name: &str) {
        let prefix = name.to_uppercase();
        let mut numbers = BTreeSet::from([0_i64, 1, -1]);
        for _ in 0..self.r.below(6) {
            numbers.insert(i64::from(self.r.number() as i32));
        }
        self.line(&format!("enum {name} {{\n  {prefix}_ZERO = 0;"));
        for (at, number) in numbers.into_iter().filter(|&number| number != 0).enumerate() {
            self.line(&format!("  {prefix}_V{at} = {number};"));
        }
        self.line("}");
    }

    fn message(&mut self, name: &str, fields: usize, types: &[&str], enums: &[&str]) {
        self.line(&format!("message {name} {{"));
        self.fields(fields, types, enums);
        self.line("}");
    }

    fn fields(&mut self, count: usize, types: &[&str], enums: &[&str]) {
        let numbers = self.numbers(count);
        let (mut words, mut children) = (WORDS.to_vec(), CHILDREN_MAX);
        let mut at = 0;
        while at < count {
            // Those of a choice stand together in the file, and anywhere by their numbers.
            let members =
                if self.r.below(12) == 0 { (2 + self.r.below(6) as usize).min(count - at) } else { 0 };
            if members > 0 {
                self.line(&format!("  oneof choice{at} {{"));
            }
            for at in at..at + members.max(1) {
                let name = match self.r.below(3) {
                    0 if !words.is_empty() => {
                        words.remove(self.r.below(words.len() as u64) as usize).to_owned()
                    }
                    _ => format!("f{at}"),
                };
                let kind = self.kind(types, enums, &mut children);
                let field = self.field(kind, &name, numbers[at], members > 0);
                self.line(&field);
            }
            if members > 0 {
                self.line("  }");
            }
            at += members.max(1);
        }
    }

    /// Numbers in any order: one behind the other, with gaps, or anywhere.
    fn numbers(&mut self, count: usize) -> Vec<u64> {
        let spread = self.r.below(3);
        let (mut numbers, mut seen, mut last) = (Vec::new(), BTreeSet::new(), 0);
        while numbers.len() < count {
            let number = match spread {
                0 => last + 1,
                1 => last + 1 + self.r.below(30),
                _ if numbers.is_empty() => NUMBER_MAX,
                _ => 1 + self.r.number() % (1 << (1 + self.r.below(29))),
            };
            let may_be = number <= NUMBER_MAX && !RESERVED.contains(&number);
            last = if may_be { number } else { last };
            if may_be && seen.insert(number) {
                numbers.push(number);
            }
        }
        if self.r.below(2) == 0 {
            for at in (1..count).rev() {
                numbers.swap(at, self.r.below(at as u64 + 1) as usize);
            }
        }
        numbers
    }

    fn kind<'a>(&mut self, types: &[&'a str], enums: &[&'a str], children: &mut usize) -> Drawable<'a> {
        match self.r.below(20) {
            0..=2 if *children > 0 => {
                *children -= 1;
                if self.is_proto2 && self.r.below(3) == 0 {
                    Drawable::Group
                } else {
                    Drawable::Message(self.one_of(types))
                }
            }
            0..=4 => Drawable::Enum(self.one_of(enums)),
            5..=7 => Drawable::Text("string"),
            8..=9 => Drawable::Text("bytes"),
            _ => Drawable::Number(self.one_of(&NUMBERS)),
        }
    }

    fn field(&mut self, kind: Drawable<'_>, name: &str, number: u64, is_member: bool) -> String {
        let label = match self.r.below(10) {
            _ if is_member => "",
            0..=2 => "repeated ",
            3 if self.is_proto2 && !matches!(kind, Drawable::Message(_) | Drawable::Group) => "required ",
            3..=5 => "optional ",
            6 if !matches!(kind, Drawable::Group) => return self.map(kind, name, number),
            _ if self.is_proto2 => "optional ",
            _ => "",
        };
        if matches!(kind, Drawable::Group) {
            // Of a group, the field's name follows from the type's.
            let inner = self.one_of(&NUMBERS);
            return format!(
                "  {label}group G{number} = {number} {{ optional {inner} a = 1; repeated string b = 6; }}"
            );
        }
        let packed = match (label, self.r.below(2)) {
            ("repeated ", 0) if matches!(kind, Drawable::Number(_) | Drawable::Enum(_)) => {
                [" [packed = true]", " [packed = false]"][usize::from(!self.is_proto2)]
            }
            _ => "",
        };
        format!("  {label}{} {name} = {number}{packed};", kind.name())
    }

    fn map(&mut self, value: Drawable<'_>, name: &str, number: u64) -> String {
        let key = self.one_of(&[&NUMBERS[..11], &["string"]].concat());
        format!("  map<{key}, {}> {name} = {number};", value.name())
    }
}

enum Drawable<'a> {
    Number(&'static str),
    Text(&'static str),
    Enum(&'a str),
    Message(&'a str),
    Group,
}

impl<'a> Drawable<'a> {
    fn name(&self) -> &'a str {
        match *self {
            Drawable::Number(name) | Drawable::Text(name) => name,
            Drawable::Enum(name) | Drawable::Message(name) => name,
            Drawable::Group => "group",
        }
    }
}
