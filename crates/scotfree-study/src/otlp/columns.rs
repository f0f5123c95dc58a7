//! Columns under way, in the layout of Arrow's buffers.
//!
//! Invariant: values, validity and codes have one entry per row; every code is of the dictionary.

use std::collections::HashMap;

/// Bits, the first lowest: Arrow's validity.
#[derive(Debug, Clone, Default)]
pub struct Bitmap {
    bytes: Vec<u8>,
    count: usize,
    zeros: usize,
}

impl Bitmap {
    /// One more bit.
    #[inline]
    pub fn push(&mut self, bit: bool) {
        if self.count.is_multiple_of(8) {
            self.bytes.push(0);
        }
        if let Some(last) = self.bytes.last_mut() {
            *last |= u8::from(bit) << (self.count % 8);
        }
        self.zeros += usize::from(!bit);
        self.count += 1;
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many bits are not set.
    pub fn zeros(&self) -> usize {
        self.zeros
    }
}

/// Numbers, some of which may be missing.
#[derive(Debug, Clone, Default)]
pub struct Column<T> {
    /// One per row; 0 where there is none.
    pub values: Vec<T>,
    /// Which rows have a value.
    pub valid: Bitmap,
}

impl<T: Copy + Default> Column<T> {
    /// One more row.
    #[inline]
    pub fn push(&mut self, value: Option<T>) {
        self.values.push(value.unwrap_or_default());
        self.valid.push(value.is_some());
    }
}

/// Texts as codes of a dictionary.
#[derive(Debug, Clone)]
pub struct Texts {
    /// One per row; 0 where there is none.
    pub codes: Vec<i32>,
    /// Which rows have a text.
    pub valid: Bitmap,
    /// Where each text of the dictionary begins in `text`, and where the last one ends.
    pub offsets: Vec<i32>,
    /// The dictionary's texts, one behind the other.
    pub text: String,
    index: HashMap<Box<[u8]>, i32>,
}

/// A text's place in the dictionary, and whether the text had to be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coded {
    pub code: i32,
    pub change: Option<&'static str>,
}

/// Longer texts are cut, so that a dictionary of a batch stays small.
pub const TEXT_BYTES_MAX: usize = 1024;

impl Default for Texts {
    fn default() -> Self {
        let (codes, valid, index) = Default::default();
        Texts { codes, valid, offsets: vec![0], text: String::new(), index }
    }
}

impl Texts {
    /// The code of a text, which is new or known.
    pub fn code(&mut self, bytes: &[u8]) -> Coded {
        if let Some(&code) = self.index.get(bytes) {
            return Coded { code, change: None };
        }
        match std::str::from_utf8(bytes) {
            Ok(text) if bytes.len() <= TEXT_BYTES_MAX => Coded { code: self.insert(text), change: None },
            Ok(text) => self.changed(beginning(text), "a text is longer than 1024 bytes and was cut"),
            Err(_) => {
                let mended = String::from_utf8_lossy(&bytes[..bytes.len().min(TEXT_BYTES_MAX)]);
                self.changed(beginning(&mended), "a text is no UTF-8 and was mended")
            }
        }
    }

    /// One more row.
    #[inline]
    pub fn push(&mut self, code: Option<i32>) {
        self.codes.push(code.unwrap_or_default());
        self.valid.push(code.is_some());
    }

    fn changed(&mut self, text: &str, change: &'static str) -> Coded {
        let known = self.index.get(text.as_bytes()).copied();
        Coded { code: known.unwrap_or_else(|| self.insert(text)), change: Some(change) }
    }

    fn insert(&mut self, text: &str) -> i32 {
        let code = self.index.len() as i32;
        self.text.push_str(text);
        self.offsets.push(self.text.len() as i32);
        self.index.insert(text.as_bytes().into(), code);
        code
    }
}

/// As much of a text as may be kept, in whole characters.
fn beginning(text: &str) -> &str {
    let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_stand_lowest_first() {
        let mut bits = Bitmap::default();
        for index in 0..10 {
            bits.push(index == 0 || index == 9);
        }
        assert_eq!((bits.bytes(), bits.zeros()), (&[1_u8, 2][..], 8));
    }

    #[test]
    fn a_text_has_one_code() {
        let mut texts = Texts::default();
        let codes: Vec<i32> = [&b"a"[..], b"", b"a", b"b"].iter().map(|text| texts.code(text).code).collect();
        assert_eq!(codes, [0, 1, 0, 2]);
        assert_eq!((texts.text.as_str(), texts.offsets.as_slice()), ("ab", &[0, 1, 1, 2][..]));
    }

    #[test]
    fn what_is_no_text_or_too_long_becomes_one() {
        let mut texts = Texts::default();
        let mended = [&b"x\xff"[..], b"x\xfe"].map(|bytes| texts.code(bytes));
        assert_eq!(mended.map(|coded| (coded.code, coded.change.is_some())), [(0, true); 2]);
        let long = "\u{e9}".repeat(TEXT_BYTES_MAX);
        let cut = texts.code(&long.as_bytes()[..TEXT_BYTES_MAX + 2]);
        assert_eq!((cut.code, cut.change.is_some()), (1, true));
        assert_eq!(&texts.text["x\u{fffd}".len()..], &long[..TEXT_BYTES_MAX]);
    }
}
