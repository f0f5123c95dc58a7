//! Random .thrift files for tests/thrift_schemata, and what they say as values: so a test knows it by other means than the
//! parser.
//!
//! Invariant: the same on each run, since each is drawn from its place alone; a file says what its values say.

use crate::drawn::Drawn;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

/// How many fields the root of each file has: one, around the sizes of groups of six and of a word of presence bits,
/// and more than a straight line takes.
const FIELDS: [usize; 18] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 18, 19, 64, 65, 80];

/// What a file defines: the root is its first.
pub struct File {
    pub structs: Vec<Struct>,
}

pub struct Struct {
    pub name: &'static str,
    pub is_union: bool,
    pub fields: Vec<Field>,
}

pub struct Field {
    pub id: i16,
    pub name: String,
    pub need: Need,
    pub has_default: bool,
    pub of: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Need {
    Required,
    Optional,
    /// Neither is said.
    Usual,
}

/// What a value is. Without uuids, which Apache's crate does not know.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    Bool,
    I8,
    I16,
    I32,
    I64,
    Double,
    String,
    Binary,
    Enum,
    /// By its place in the file.
    Struct(usize),
    List(Box<Kind>),
    Set(Box<Kind>),
    Map(Box<Kind>, Box<Kind>),
}

/// The places of the structs of each file. The last one has no structs in it, so that it may be required everywhere.
const ROOT: usize = 0;
const OTHER: usize = 1;
const THIRD: usize = 2;
const CHOICE: usize = 3;
const PLAIN: usize = 4;

/// Types that are the table's, in two files of three: so straight lines and tables lie within each other, and less is
/// compiled.
pub fn cold() -> Vec<String> {
    let places = (0..FIELDS.len()).filter(|place| place % 3 != 0);
    let names = |place| ["Other", "Choice", "Plain", third(place)].map(|name| format!("t{place}.{name}"));
    places.flat_map(names).collect()
}

/// Writes t0.thrift, t1.thrift and so on; their names.
pub fn write(folder: &Path) -> Vec<String> {
    let names: Vec<String> = (0..FIELDS.len()).map(|place| format!("t{place}.thrift")).collect();
    for (place, name) in names.iter().enumerate() {
        std::fs::write(folder.join(name), drawn(place).1).unwrap();
    }
    names
}

/// The file of a place, and its text.
pub fn drawn(place: usize) -> (File, String) {
    let mut drawing =
        Drawing { r: Drawn::new(place as u64 + 1, 0), typedefs: 0, third: third(place), text: String::new() };
    drawing.line(&format!(
        "namespace rs t{place}\nenum Color {{ ZERO = 0, LOW = -7, HIGH = 2147483647; NEXT = 5 SIX }}"
    ));
    let few = |r: &mut Drawn| 1 + r.below(5) as usize;
    let counts = [
        FIELDS[place],
        2 + few(&mut drawing.r),
        few(&mut drawing.r) - 1,
        2 + few(&mut drawing.r),
        few(&mut drawing.r),
    ];
    let structs = (ROOT..=PLAIN).map(|at| drawing.structure(at, counts[at])).collect();
    (File { structs }, drawing.text)
}

fn third(place: usize) -> &'static str {
    TYPE_NAMES[place]
}

/// Names that generated code might take for its own.
const TYPE_NAMES: [&str; FIELDS.len()] = [
    "P",
    "Option",
    "Type",
    "F",
    "Result",
    "Self",
    "Field",
    "RootRef",
    "match",
    "Slots",
    "Some",
    "Need",
    "ThriftWriter",
    "ThriftFrame",
    "ThriftFormat",
    "ExactSizeIterator",
    "Path",
    "Edit",
];

const WORDS: [&str; 26] = [
    "type",
    "self",
    "match",
    "fn",
    "super",
    "crate",
    "slots",
    "async",
    "enum",
    "struct",
    "optional",
    "required",
    "mod",
    "list",
    "i32",
    "r",
    "Upper",
    "camelCase",
    "with_1_digit",
    "path",
    "writer",
    "frame",
    "next",
    "value",
    "P",
    "union",
];

const NUMBERS: [Kind; 7] = [Kind::Bool, Kind::I8, Kind::I16, Kind::I32, Kind::I64, Kind::Double, Kind::Enum];

/// Of structs within a struct there are no more, so that drawn values stay small.
const CHILDREN_MAX: usize = 4;

/// Those without an id get the ones below zero; what the file says of its own is below these.
const SAID_BELOW_ZERO: i16 = -200;

struct Drawing {
    r: Drawn,
    typedefs: usize,
    third: &'static str,
    text: String,
}

impl Drawing {
    fn line(&mut self, text: &str) {
        let _ = writeln!(self.text, "{text}");
    }

    fn is_one_of(&mut self, many: u64) -> bool {
        self.r.below(many) == 0
    }

    fn name_of(&self, at: usize) -> &'static str {
        ["Root", "Other", self.third, "Choice", "Plain"][at]
    }

    fn structure(&mut self, at: usize, count: usize) -> Struct {
        let is_union = at == CHOICE;
        let (mut words, mut children) = (WORDS.to_vec(), if at == PLAIN { 0 } else { CHILDREN_MAX });
        let mut below_zero = 0;
        let (mut fields, mut lines) = (Vec::new(), String::new());
        for (place, said) in self.ids(count).into_iter().enumerate() {
            let id = said.unwrap_or_else(|| {
                below_zero -= 1;
                below_zero
            });
            let name = match self.r.below(3) {
                0 if !words.is_empty() => words.remove(self.r.below(words.len() as u64) as usize).to_owned(),
                _ => format!("f{place}"),
            };
            let of = self.of(&mut children, 0);
            let field = self.field(id, name, of, is_union);
            lines.push_str(&self.said(&field, said.is_some()));
            fields.push(field);
        }
        let word = ["struct", "struct", "struct", "union", "exception"][at];
        let name = self.name_of(at);
        self.line(&format!("{word} {name} {{\n{lines}}}"));
        Struct { name, is_union, fields }
    }

    /// Ids in any order: one behind the other, with gaps, or anywhere; some are not said. No two are further apart than
    /// 2^15 - 1, since Apache's crate panics where it writes the step from one to the other.
    fn ids(&mut self, count: usize) -> Vec<Option<i16>> {
        let spread = self.r.below(5);
        let (mut ids, mut seen, mut last) = (Vec::new(), BTreeSet::new(), 0_i16);
        while ids.len() < count {
            let anywhere = (self.r.below(1 << 15) >> self.r.below(15)) as i16;
            let id = match spread {
                0..=1 | 3..=4 if self.is_one_of(12) => {
                    ids.push(None);
                    continue;
                }
                0 => last + 1,
                1 => last + 1 + self.r.below(30) as i16,
                2 => [0, i16::MAX].get(ids.len()).copied().unwrap_or(anywhere),
                3 if ids.is_empty() => i16::MIN,
                3 => SAID_BELOW_ZERO - anywhere % 32_000,
                _ if ids.is_empty() => 0,
                _ if self.is_one_of(3) => SAID_BELOW_ZERO - anywhere / 4,
                _ => anywhere / 2,
            };
            last = id;
            if seen.insert(id) {
                ids.push(Some(id));
            }
        }
        if self.is_one_of(2) {
            for at in (1..count).rev() {
                ids.swap(at, self.r.below(at as u64 + 1) as usize);
            }
        }
        ids
    }

    fn of(&mut self, children: &mut usize, depth: u64) -> Kind {
        match self.r.below(if depth > 2 { 14 } else { 20 }) {
            0..=8 => NUMBERS[self.r.below(NUMBERS.len() as u64) as usize].clone(),
            9..=10 => Kind::String,
            11 => Kind::Binary,
            12..=13 if *children > 0 => {
                *children -= 1;
                Kind::Struct([ROOT, OTHER, THIRD, CHOICE, PLAIN, PLAIN][self.r.below(6) as usize])
            }
            12..=13 => Kind::String,
            14..=15 => Kind::List(Box::new(self.of(children, depth + 1))),
            16..=17 => Kind::Set(Box::new(self.of(children, depth + 1))),
            _ => Kind::Map(Box::new(self.of(children, depth + 1)), Box::new(self.of(children, depth + 1))),
        }
    }

    fn field(&mut self, id: i16, name: String, of: Kind, is_in_union: bool) -> Field {
        let need = match self.r.below(5) {
            _ if is_in_union => Need::Optional,
            0 if is_finite(&of) => Need::Required,
            0..=2 => Need::Optional,
            _ => Need::Usual,
        };
        let has_default = !is_in_union && self.is_one_of(6);
        Field { id, name, need, has_default, of }
    }

    /// A field as the file has it.
    fn said(&mut self, field: &Field, with_id: bool) -> String {
        let id = if with_id { format!("{}: ", field.id) } else { String::new() };
        let need = match field.need {
            Need::Required => "required ",
            Need::Optional if self.is_one_of(8) => "optional /* or not */ ",
            Need::Optional => "optional ",
            Need::Usual => "",
        };
        let mut of = self.type_of(&field.of);
        if self.is_one_of(8) {
            let alias = format!("Alias{}", self.typedefs);
            self.typedefs += 1;
            self.line(&format!("typedef {of} {alias}"));
            of = alias;
        }
        let default = if field.has_default { format!(" = {}", default_of(&field.of)) } else { String::new() };
        let behind = ["", ",", ";", " (a.b = \"c\")", " // more"][self.r.below(5) as usize];
        format!("  {id}{need}{of} {}{default}{behind}\n", field.name)
    }

    fn type_of(&self, of: &Kind) -> String {
        match of {
            Kind::Bool => "bool".into(),
            Kind::I8 => "i8".into(),
            Kind::I16 => "i16".into(),
            Kind::I32 => "i32".into(),
            Kind::I64 => "i64".into(),
            Kind::Double => "double".into(),
            Kind::String => "string".into(),
            Kind::Binary => "binary".into(),
            Kind::Enum => "Color".into(),
            Kind::Struct(at) => self.name_of(*at).into(),
            Kind::List(of) => format!("list<{}>", self.type_of(of)),
            Kind::Set(of) => format!("set<{}>", self.type_of(of)),
            Kind::Map(key, of) => format!("map<{}, {}>", self.type_of(key), self.type_of(of)),
        }
    }
}

/// Whether one of it can be required everywhere: a struct that requires itself has no end.
fn is_finite(of: &Kind) -> bool {
    !matches!(of, Kind::Struct(at) if *at != PLAIN)
}

fn default_of(of: &Kind) -> &'static str {
    match of {
        Kind::Bool => "true",
        Kind::I8 | Kind::I16 | Kind::I32 | Kind::I64 => "-7",
        Kind::Double => "1.5e-3",
        Kind::String | Kind::Binary => "\"a text\"",
        Kind::Enum => "Color.SIX",
        Kind::List(_) | Kind::Set(_) => "[]",
        Kind::Struct(_) | Kind::Map(..) => "{}",
    }
}
