//! OTLP's JSON to its protobuf, so that there is one decoder: which field is which stands in `fields`.
//!
//! Invariant: what comes out is a message of whole records; a record in which the JSON breaks off is not in it.

mod fields;
mod scalar;

use fields::{Field, Kind, Message};
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::de::{Deserializer, Read};
use std::fmt;

use super::Signal;

/// Why the text could not be read on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broken {
    /// It ends within a value.
    EndsEarly,
    /// It is no JSON, or not an object.
    NotJson(String),
}

/// What a text became.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transcoded {
    /// Protobuf of the records before the text broke, all if it did not.
    pub message: Vec<u8>,
    /// How many values were not of their field's kind and are left out.
    pub wrong: u64,
    /// Where it broke.
    pub broken: Option<Broken>,
}

/// Values of one signal in a text of one or more objects.
pub fn from_json(text: &[u8], signal: Signal) -> Transcoded {
    let message = match signal {
        Signal::Traces => &fields::TRACES,
        Signal::Metrics => &fields::METRICS,
    };
    // Protobuf is about half as long.
    let mut out = Writer { bytes: Vec::with_capacity(text.len() / 2 + text.len() / 8), wrong: 0 };
    // Of a text that is UTF-8 as a whole no string need be looked at once more.
    let broken = match std::str::from_utf8(text) {
        Ok(valid) => objects(&mut Deserializer::from_str(valid), text, message, &mut out),
        Err(_) => objects(&mut Deserializer::from_slice(text), text, message, &mut out),
    };
    Transcoded { message: out.bytes, wrong: out.wrong, broken }
}

/// Whether there is another object is not asked before each: the answer that there is one costs the number of its
/// line, which is counted from the text's beginning.
fn objects<'de, R: Read<'de>>(
    deserializer: &mut Deserializer<R>,
    text: &[u8],
    message: &'static Message,
    out: &mut Writer,
) -> Option<Broken> {
    loop {
        let mut has_begun = false;
        let Err(error) = object(deserializer, message, out, &mut has_begun) else { continue };
        return match error.is_eof() {
            true if !has_begun && is_over(text, &error) => None,
            true => Some(Broken::EndsEarly),
            false => Some(Broken::NotJson(error.to_string())),
        };
    }
}

/// Whether the text ends where another object could begin, and not within what is none.
fn is_over(text: &[u8], error: &serde_json::Error) -> bool {
    let is_behind_object = text.trim_ascii_end().last().is_none_or(|byte| *byte == b'}');
    is_behind_object && error.to_string().starts_with("EOF while parsing a value")
}

fn object<'de, R: Read<'de>>(
    deserializer: &mut Deserializer<R>,
    message: &'static Message,
    out: &mut Writer,
    has_begun: &mut bool,
) -> Result<(), serde_json::Error> {
    struct Top<'w>(&'static Message, &'w mut Writer, &'w mut bool);
    impl<'de> Visitor<'de> for Top<'_> {
        type Value = ();
        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
            *self.2 = true;
            members(map, self.0, self.1)
        }
    }
    serde::Deserializer::deserialize_map(deserializer, Top(message, out, has_begun))
}

#[derive(Debug, Default)]
struct Writer {
    bytes: Vec<u8>,
    wrong: u64,
}

/// A length that is filled in later takes all the bytes that a length of 32 bits can.
const LENGTH_BYTES: usize = 5;

impl Writer {
    fn tag(&mut self, number: u32, wire: u8) {
        self.varint(u64::from(number << 3 | u32::from(wire)));
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn text(&mut self, number: u32, text: &[u8]) {
        self.tag(number, 2);
        self.varint(text.len() as u64);
        self.bytes.extend_from_slice(text);
    }

    fn integer(&mut self, number: u32, value: u64) {
        self.tag(number, 0);
        self.varint(value);
    }

    fn eight(&mut self, number: u32, bits: u64) {
        self.tag(number, 1);
        self.bytes.extend_from_slice(&bits.to_le_bytes());
    }

    /// A message whose members are written by `write`. A record that breaks off is taken back.
    fn nested<E>(
        &mut self,
        number: u32,
        of: &Message,
        write: impl FnOnce(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = self.bytes.len();
        self.tag(number, 2);
        let length_at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; LENGTH_BYTES]);
        let written = write(self);
        let mut length = self.bytes.len() - length_at - LENGTH_BYTES;
        for (index, byte) in self.bytes[length_at..length_at + LENGTH_BYTES].iter_mut().enumerate() {
            *byte = (length & 0x7f) as u8 | if index + 1 < LENGTH_BYTES { 0x80 } else { 0 };
            length >>= 7;
        }
        if written.is_err() && of.is_record {
            self.bytes.truncate(start);
        }
        written
    }
}

fn members<'de, A: MapAccess<'de>>(
    mut map: A,
    of: &'static Message,
    out: &mut Writer,
) -> Result<(), A::Error> {
    while let Some(field) = map.next_key_seed(Key(of))? {
        match field {
            Some(field) => map.next_value_seed(Member { field, out: &mut *out })?,
            None => {
                map.next_value::<IgnoredAny>()?;
            }
        }
    }
    Ok(())
}

/// A member's name, as the field of the message that it names.
struct Key(&'static Message);

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Option<&'static Field>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key {
    type Value = Option<&'static Field>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.field(name))
    }
}

/// A member's value, written where it belongs.
struct Member<'w> {
    field: &'static Field,
    out: &'w mut Writer,
}

impl<'de> DeserializeSeed<'de> for Member<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Member<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        scalar::write_bool(self.out, self.field, value);
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        scalar::write_integer(self.out, self.field, i128::from(value));
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        scalar::write_integer(self.out, self.field, i128::from(value));
        Ok(())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        scalar::write_double(self.out, self.field, value);
        Ok(())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        scalar::write_text(self.out, self.field, value);
        Ok(())
    }

    /// Null is as good as absent.
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    /// A list's elements are the field, repeated.
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Member { field: self.field, out: &mut *self.out })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        if let Kind::Message(of) = self.field.kind {
            return self.out.nested(self.field.number, of, |out| members(map, of, out));
        }
        self.out.wrong += 1;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::{Fields, Value};
    use super::*;

    const LINE: &str = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"a"},{"name":"b"}]}]}]}"#;

    fn names(message: &[u8]) -> Vec<String> {
        let mut inner: Vec<Vec<u8>> = vec![message.to_vec()];
        for number in [1, 2, 2, 5] {
            inner = inner.iter().flat_map(|message| all(message, number)).collect();
        }
        inner.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
    }

    fn all(message: &[u8], number: u32) -> Vec<Vec<u8>> {
        Fields::new(message)
            .map(|field| field.expect("what was written is read"))
            .filter_map(|(found, value)| match value {
                Value::Bytes(bytes) if found == number => Some(bytes.to_vec()),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn members_become_fields_and_unknown_ones_nothing() {
        let found = from_json(LINE.as_bytes(), Signal::Traces);
        assert_eq!(
            (names(&found.message), found.wrong, found.broken),
            (vec!["a".into(), "b".into()], 0, None)
        );
        assert_eq!(from_json(LINE.as_bytes(), Signal::Metrics), Transcoded::default());
    }

    #[test]
    fn wherever_a_text_ends_whole_records_come_out() {
        for end in 1..LINE.len() {
            let found = from_json(&LINE.as_bytes()[..end], Signal::Traces);
            assert_eq!(found.broken, Some(Broken::EndsEarly), "{end}");
            let whole = LINE[..end].matches('}').count().min(2);
            assert_eq!(names(&found.message).len(), whole, "{}", &LINE[..end]);
        }
    }

    #[test]
    fn several_objects_are_one_message_and_what_is_none_is_told() {
        let text = format!("{LINE}\n\n{LINE} 17");
        let found = from_json(text.as_bytes(), Signal::Traces);
        assert_eq!(names(&found.message).len(), 4);
        assert!(matches!(found.broken, Some(Broken::NotJson(_))));
        assert_eq!(from_json(b"  \n", Signal::Traces), Transcoded::default());
        for none in ["\"text", "\"}", "tru", "-"] {
            let text = format!("{LINE}\n{none}");
            assert_eq!(from_json(text.as_bytes(), Signal::Traces).broken, Some(Broken::EndsEarly), "{none}");
        }
        let bad = [LINE.as_bytes(), b"{\"\xff\":1}"].concat();
        let found = from_json(&bad, Signal::Traces);
        assert_eq!(names(&found.message).len(), 2);
        assert!(matches!(found.broken, Some(Broken::NotJson(_))));
    }

    #[test]
    fn values_of_a_wrong_kind_are_counted() {
        let text = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":{"x":[1]}, "kind": {}}, 7]}]}]}"#;
        let found = from_json(text.as_bytes(), Signal::Traces);
        assert_eq!((found.wrong, found.broken), (3, None));
    }
}
