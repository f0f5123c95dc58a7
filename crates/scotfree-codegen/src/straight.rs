//! The straight line of a type: its fields in their order, each with one look whether it is the next.

use scotfree_transform::{Field, Kind, Shape, TypeSchema, Types, NONE};
use std::fmt::Write;

/// Fields behind one look at the presence bits: measured to pay on sparse messages and to cost nothing on dense ones.
const GROUP: usize = 6;

/// So many fields make it pay to ask first whether most of them are absent: of fewer the line is over sooner.
const WIDE: usize = 24;

/// What a field's part of the line is.
#[derive(Clone, Copy)]
enum Step {
    Number,
    Truth,
    Text,
    Each,
    Child {
        is_many: bool,
    },
    /// None: the table does it.
    Table,
}

fn step(types: &Types, field: &Field) -> Step {
    let is_many = field.shape.is_many();
    match field.kind {
        Kind::Group | Kind::ClosedEnum => Step::Table,
        _ if field.converter != 0 => Step::Table,
        // Of which an entry may be none.
        Kind::Message if types.has_closed_values(field) => Step::Table,
        Kind::Message => Step::Child { is_many },
        _ if is_many => Step::Each,
        Kind::String | Kind::Bytes => Step::Text,
        Kind::Bool if field.shape == Shape::Implicit && field.oneof == NONE => Step::Truth,
        _ => Step::Number,
    }
}

/// The body of `Type::decode`.
pub(crate) fn decode(types: &Types, schema: &TypeSchema, child: impl Fn(&Field) -> String, out: &mut String) {
    let count = schema.fields.len();
    let mut line = |text: &str| {
        out.push_str("        ");
        out.push_str(text);
        out.push('\n');
    };
    line("let mut next = 0;");
    if count >= WIDE {
        line("if frame.is_sparse() {");
        line("    (frame, next) = frame.other(path)?;");
        line("    if next == __rt::DONE { return Ok(frame.ended_at()); }");
        line("}");
    }
    line("loop {");
    let labels = (0..count).rev().map(|at| format!("'f{at}: {{ ")).collect::<Vec<_>>().concat();
    let whole = if count > GROUP { "'line: " } else { "" };
    line(&format!("    {whole}{{ {labels}match next {{"));
    for at in 0..count.saturating_sub(1) {
        line(&format!("        {at} => break 'f{at},"));
    }
    if let Some(last) = count.checked_sub(1) {
        line(&format!("        _ => break 'f{last},"));
        line("    }}");
    } else {
        line("        _ => {}");
        line("    }");
    }
    let rows = rows(types, &schema.fields);
    for (at, field) in schema.fields.iter().enumerate() {
        let is_last = at + 1 == count;
        let row = rows[at];
        if row.is_some_and(|place| place % GROUP == 0) {
            line("    frame.look(path);");
        }
        line(&format!("    {}", decode_step(step(types, field), at, field, row.is_some(), &child)));
        if !is_last {
            // So that a message of few fields does not look for all the others behind its end.
            if (at + 1) % GROUP == 0 {
                line("    if frame.is_at_end() { break 'line; }");
            }
            line("    }");
        }
    }
    line("    }");
    line("    if frame.is_over() { return Ok(frame.ended_at()); }");
    line("    (frame, next) = frame.other(path)?;");
    line("    if next == __rt::DONE { return Ok(frame.ended_at()); }");
    line("}");
}

/// Of each field its place in a row of numbers; none, where it is no number or there is no other beside it.
fn rows(types: &Types, fields: &[Field]) -> Vec<Option<usize>> {
    let mut rows = Vec::with_capacity(fields.len());
    for row in fields.chunk_by(|one, next| is_number(types, one) && is_number(types, next)) {
        rows.extend((0..row.len()).map(|place| (row.len() > 1).then_some(place)));
    }
    rows
}

fn is_number(types: &Types, field: &Field) -> bool {
    matches!(step(types, field), Step::Number | Step::Truth)
}

fn decode_step(
    step: Step,
    at: usize,
    field: &Field,
    is_in_row: bool,
    child: &impl Fn(&Field) -> String,
) -> String {
    match step {
        Step::Truth => format!("frame.truth::<{at}, P>(path);"),
        Step::Number if is_in_row => format!("frame.number_in_row::<{at}, P>(path);"),
        Step::Number => format!("frame.number::<{at}, P>(path);"),
        Step::Text => format!("frame.text::<{at}, P>(path);"),
        Step::Each if field.shape == Shape::Packed => format!("frame.packed::<{at}, P>(path);"),
        Step::Each => format!("frame.each::<{at}, P>(path);"),
        Step::Child { is_many } => {
            let inner = child(field);
            let head = if is_many { "while" } else { "if" };
            format!("{head} let Some(inner) = frame.child::<{at}, {inner}>()? {{ path.decode::<{inner}>(inner)?; frame.back(); }}")
        }
        Step::Table => String::new(),
    }
}

/// The body of `Type::encode`.
pub(crate) fn encode(types: &Types, schema: &TypeSchema, child: impl Fn(&Field) -> String, out: &mut String) {
    for word in 0..schema.presence_words {
        let _ = writeln!(out, "        let p{word} = message.presence::<{word}>();");
    }
    for (group, fields) in schema.fields.chunks(GROUP).enumerate() {
        let mut masks = vec![0_u64; schema.presence_words as usize];
        for field in fields {
            masks[field.presence as usize / 64] |= 1 << (field.presence % 64);
        }
        let any = masks.iter().enumerate().filter(|(_, mask)| **mask != 0);
        let any: Vec<String> = any.map(|(word, mask)| format!("p{word} & {mask:#x} != 0")).collect();
        let _ = writeln!(out, "        if {} {{", any.join(" || "));
        let mut room = 0;
        for (place, field) in fields.iter().enumerate() {
            let at = group * GROUP + place;
            if is_number(types, field) {
                if room == 0 {
                    room = fields[place..].iter().take_while(|field| is_number(types, field)).count();
                    let _ = writeln!(out, "            writer.room({room} * __rt::NUMBER_BYTES_MAX);");
                }
                room -= 1;
            }
            let _ = writeln!(out, "            {}", encode_step(step(types, field), at, field, &child));
        }
        out.push_str("        }\n");
    }
    out.push_str("        writer.unknown(message)\n");
}

fn encode_step(step: Step, at: usize, field: &Field, child: &impl Fn(&Field) -> String) -> String {
    let (word, bit) = (field.presence / 64, field.presence % 64);
    let is_there = format!("if p{word} & {:#x} != 0", 1_u64 << bit);
    match step {
        Step::Number | Step::Truth => format!("writer.number::<Self, {at}, P>(path, message, p{word});"),
        Step::Text => format!("{is_there} {{ writer = writer.text::<Self, {at}, P>(path, message); }}"),
        Step::Each => format!("{is_there} {{ writer = writer.each::<Self, {at}, P>(path, message); }}"),
        Step::Child { is_many: false } => {
            let inner = child(field);
            format!("if let Some(inner) = message.message::<{at}, {inner}>() {{ let (begun, from) = writer.begin::<Self, {at}>(); writer = path.encode::<{inner}>(inner, begun).end(from); }}")
        }
        Step::Child { is_many: true } => {
            let inner = child(field);
            format!("{is_there} {{ for index in 0..message.count::<{at}>() {{ let (begun, from) = writer.begin::<Self, {at}>(); writer = path.encode::<{inner}>(message.element_message::<{at}, {inner}>(index), begun).end(from); }} }}")
        }
        Step::Table => format!("{is_there} {{ writer = writer.by_table::<Self, {at}>(message); }}"),
    }
}
