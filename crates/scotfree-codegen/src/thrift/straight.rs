//! The straight line of a struct: its fields in their order, each with one look whether it is the next. One text is for
//! both protocols.

use scotfree_transform::{Field, Kind, Shape, TypeSchema, Types};
use std::fmt::Write;

/// So many fields are passed over before a struct is asked whether it is at its end.
const GROUP: usize = 6;

/// What a field's part of the line is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Number,
    Text,
    Each,
    Child,
    Structs,
    /// None: the table does it.
    Table,
}

fn step(types: &Types, field: &Field) -> Step {
    let is_many = field.shape.is_many();
    match field.kind {
        Kind::Message if field.shape == Shape::Map || types.types[field.sub as usize].is_container => {
            Step::Table
        }
        Kind::Message if is_many => Step::Structs,
        Kind::Message => Step::Child,
        Kind::Uuid => Step::Table,
        _ if is_many => Step::Each,
        Kind::String | Kind::Bytes => Step::Text,
        _ => Step::Number,
    }
}

/// The methods of `Type`. What is no struct on the wire has none: a container within another one, a map's entry.
pub(crate) fn methods(types: &Types, index: usize, child: impl Fn(&Field) -> String, out: &mut String) {
    let schema = &types.types[index];
    let is_its_entry = |field: &Field| field.shape == Shape::Map && field.sub as usize == index;
    if schema.is_container || types.types.iter().any(|of| of.fields.iter().any(is_its_entry)) {
        return;
    }
    decode(types, schema, &child, out);
    encode(types, schema, &child, out);
}

fn decode(types: &Types, schema: &TypeSchema, child: &impl Fn(&Field) -> String, out: &mut String) {
    let count = schema.fields.len();
    let steps: Vec<String> =
        schema.fields.iter().enumerate().map(|(at, field)| decode_step(types, at, field, child)).collect();
    let path = if steps.iter().any(|step| !step.is_empty()) { "path" } else { "_" };
    let _ = writeln!(out, "\n    #[inline(always)]\n    fn decode_thrift<P: __rt::Path, F: __rt::ThriftFormat>({path}: P, frame: __rt::ThriftFrame<'_, '_, Self, F>) -> ::core::result::Result<usize, __rt::DecodeError> {{\n        let mut frame = frame.moved();\n        let mut next = 0;\n        loop {{");
    let labels = (0..count).rev().map(|at| format!("'f{at}: {{ ")).collect::<Vec<_>>().concat();
    let whole = if count > GROUP { "'line: " } else { "" };
    let _ = writeln!(out, "            {whole}{{ {labels}match next {{");
    for at in 0..count {
        let number = if at + 1 == count { "_".to_owned() } else { at.to_string() };
        let _ = writeln!(out, "                {number} => break 'f{at},");
    }
    if count == 0 {
        out.push_str("                _ => {}\n");
    }
    out.push_str(if count == 0 { "            }\n" } else { "            }}\n" });
    for (at, step) in steps.iter().enumerate() {
        let _ = writeln!(out, "            {step}");
        if at + 1 < count {
            if (at + 1) % GROUP == 0 {
                out.push_str("            if frame.is_at_end() { break 'line; }\n");
            }
            out.push_str("            }\n");
        }
    }
    out.push_str("            }\n            if frame.is_over() { return Ok(frame.ended_at()); }\n            (frame, next) = frame.other()?;\n            if next == __rt::DONE { return Ok(frame.ended_at()); }\n        }\n    }\n");
}

fn decode_step(types: &Types, at: usize, field: &Field, child: &impl Fn(&Field) -> String) -> String {
    match step(types, field) {
        Step::Number => format!("frame.number::<{at}, P>(path);"),
        Step::Text => format!("frame.text::<{at}, P>(path);"),
        Step::Each => format!("frame.each::<{at}, P>(path);"),
        Step::Child => format!("frame.child::<{at}, {}, P>(path)?;", child(field)),
        Step::Structs => format!("frame.structs::<{at}, {}, P>(path)?;", child(field)),
        Step::Table => String::new(),
    }
}

fn encode(types: &Types, schema: &TypeSchema, child: &impl Fn(&Field) -> String, out: &mut String) {
    let steps: Vec<Step> = schema.fields.iter().map(|field| step(types, field)).collect();
    let path = if steps.iter().any(|step| *step != Step::Table) { "path" } else { "_" };
    let line = if steps.is_empty() { "line" } else { "mut line" };
    let _ = writeln!(out, "\n    #[inline(always)]\n    fn encode_thrift<'o, P: __rt::Path, F: __rt::ThriftFormat>({path}: P, message: __rt::Slots<'_, Self>, writer: __rt::Writer<'o>) -> __rt::Writer<'o> {{\n        let {line} = __rt::ThriftWriter::<F>::new(writer);");
    let is_asked = |word| {
        let mut fields = schema.fields.iter().zip(&steps);
        fields.any(|(field, step)| field.presence / 64 == word && *step != Step::Child)
    };
    for word in (0..schema.presence_words).filter(|word| is_asked(*word)) {
        let _ = writeln!(out, "        let p{word} = message.presence::<{word}>();");
    }
    let mut room = 0;
    for (at, field) in schema.fields.iter().enumerate() {
        let word = field.presence / 64;
        if steps[at] != Step::Number {
            room = 0;
        } else if room == 0 {
            room = steps[at..].iter().take_while(|step| **step == Step::Number).count();
            let _ = writeln!(out, "        line.room_for_numbers({room});");
        }
        let text = match steps[at] {
            Step::Number => format!("line.number::<Self, {at}, P>(path, message, p{word});"),
            Step::Text => format!("line = line.text::<Self, {at}, P>(path, message, p{word});"),
            Step::Each => format!("line = line.each::<Self, {at}, P>(path, message, p{word});"),
            Step::Child => format!("line = line.child::<Self, {at}, {}, P>(path, message);", child(field)),
            Step::Structs => {
                format!("line = line.structs::<Self, {at}, {}, P>(path, message, p{word});", child(field))
            }
            Step::Table => format!("line = line.by_table::<Self, {at}>(message, p{word});"),
        };
        let _ = writeln!(out, "        {text}");
    }
    out.push_str("        line.end(message)\n    }\n");
}
