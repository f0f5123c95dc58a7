//! Strings that are decimal numbers.
//!
//! Invariant: a number is read only in the one way in which it is written, so that reading and adding 0 changes nothing.

use super::{Shard, Target};
use crate::item::Kind;
use crate::reply::{Outcome, Replies, Reply};
use std::fmt::Display;
use std::io::Write;
use std::str::FromStr;

/// The longest decimal number of 64 bits, with its sign.
const DIGITS_MAX: usize = 20;

/// A number in decimal.
pub(super) struct Decimal {
    digits: [u8; DIGITS_MAX],
    length: usize,
}

impl Decimal {
    pub fn of(number: impl Display) -> Decimal {
        let mut digits = [0; DIGITS_MAX];
        let mut rest = &mut digits[..];
        write!(rest, "{number}").expect("numbers of 64 bits have at most 20 digits and signs");
        let length = DIGITS_MAX - rest.len();
        Decimal { digits, length }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.digits[..self.length]
    }
}

/// The number that is written so.
pub(super) fn parse<N: FromStr + Display + Copy>(bytes: &[u8]) -> Result<N, Outcome> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= DIGITS_MAX);
    let number = text.and_then(|text| text.parse::<N>().ok());
    number.filter(|number| Decimal::of(*number).bytes() == bytes).ok_or(Outcome::NotANumber)
}

impl Shard {
    pub(super) fn add(&mut self, target: &Target<'_>, by: i64, out: &mut Replies) {
        let sum = Shard::of_kind(target, Kind::String).and_then(|found| {
            let number =
                found.map_or(Ok(0), |found| parse::<i64>(self.items.value(found.place, &found.head)))?;
            number.checked_add(by).ok_or(Outcome::Overflow)
        });
        out.push(self.write_number(target, sum, |sum| sum));
    }

    pub(super) fn add_unsigned(
        &mut self,
        target: &Target<'_>,
        by: u64,
        add: fn(u64, u64) -> u64,
        out: &mut Replies,
    ) {
        let sum = Shard::of_kind(target, Kind::String).and_then(|found| {
            let found = found.ok_or(Outcome::Absent)?;
            Ok(add(parse::<u64>(self.items.value(found.place, &found.head))?, by))
        });
        out.push(self.write_number(target, sum, |sum| sum as i64));
    }

    fn write_number<N: Display + Copy>(
        &mut self,
        target: &Target<'_>,
        sum: Result<N, Outcome>,
        number: fn(N) -> i64,
    ) -> Reply {
        let written = sum.and_then(|sum| {
            let version = self.rewrite(target, Kind::String, Decimal::of(sum).bytes(), 0)?;
            Ok(Reply { version, ..Reply::number(number(sum)) })
        });
        written.unwrap_or_else(Reply::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_one_way_only() {
        for number in [0, 1, -1, i64::MAX, i64::MIN] {
            assert_eq!(parse(Decimal::of(number).bytes()), Ok(number));
        }
        assert_eq!(parse(Decimal::of(u64::MAX).bytes()), Ok(u64::MAX));
        for text in ["", "+1", "01", "-0", " 1", "1 ", "1.0", "9223372036854775808", "000000000000000000001"]
        {
            assert_eq!(parse::<i64>(text.as_bytes()), Err(Outcome::NotANumber), "{text}");
        }
    }
}
