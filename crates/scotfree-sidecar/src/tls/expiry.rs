//! Until when a certificate is good, read from its DER (RFC 5280, 4.1): the libraries of TLS know it and do not tell.
//!
//! Invariant: whatever the bytes, reading ends, in a time or in none.

use rustls::pki_types::CertificateDer;
use std::path::{Path, PathBuf};

const DAY_S: i64 = 86_400;
const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The version, which may be left out.
const VERSION: u8 = 0xa0;

/// Until when the certificate that the other side is shown is good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expiry {
    /// The file that has it.
    pub file: PathBuf,
    /// The last second in which it is, since 1970.
    pub unix_s: i64,
}

impl Expiry {
    /// That of a file's first certificate, which is its owner's; none if it cannot be read.
    pub(super) fn of(file: &Path, chain: &[CertificateDer<'_>]) -> Option<Expiry> {
        Some(Expiry { file: file.to_owned(), unix_s: not_after(chain.first()?)? })
    }

    /// When that is, as `2025-01-31 12:34:56 UTC`.
    pub fn date(&self) -> String {
        let (days, second) = (self.unix_s.div_euclid(DAY_S), self.unix_s.rem_euclid(DAY_S));
        let (year, month, day) = date_of(days);
        let (hour, minute) = (second / 3_600, second / 60 % 60);
        format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02} UTC", second % 60)
    }
}

/// The last second in which a certificate is good, since 1970.
fn not_after(certificate: &[u8]) -> Option<i64> {
    let (body, _) = element(certificate, SEQUENCE)?;
    let (mut rest, _) = element(body, SEQUENCE)?;
    if rest.first() == Some(&VERSION) {
        (_, rest) = element(rest, VERSION)?;
    }
    // The serial number, by what it is signed, and by whom.
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        (_, rest) = element(rest, tag)?;
    }
    let (validity, _) = element(rest, SEQUENCE)?;
    let (_, not_after) = element(validity, *validity.first()?)?;
    let tag = *not_after.first()?;
    time(tag, element(not_after, tag)?.0)
}

/// What an element with this tag holds, and what is behind it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match *first {
        short @ 0..0x80 => (usize::from(short), rest),
        long => {
            let (length, rest) =
                rest.split_at_checked(usize::from(long & 0x7f)).filter(|(l, _)| l.len() <= 4)?;
            (length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
    };
    (*found == tag).then(|| rest.split_at_checked(length))?
}

/// Seconds since 1970, of a time in the one form that certificates may have: with seconds, and in UTC.
fn time(tag: u8, text: &[u8]) -> Option<i64> {
    let text = text.strip_suffix(b"Z").filter(|text| text.iter().all(u8::is_ascii_digit))?;
    let number = |text: &[u8]| text.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'));
    let (year, rest) = match (tag, text.len()) {
        (UTC_TIME, 12) => {
            let (year, rest) = text.split_at(2);
            let year = number(year);
            (if year < 50 { 2_000 + year } else { 1_900 + year }, rest)
        }
        (GENERALIZED_TIME, 14) => {
            let (year, rest) = text.split_at(4);
            (number(year), rest)
        }
        _ => return None,
    };
    let part = |at: usize| number(&rest[2 * at..2 * at + 2]);
    let is_date = (1..=12).contains(&part(0)) && (1..=31).contains(&part(1));
    is_date.then(|| days_until(year, part(0), part(1)) * DAY_S + part(2) * 3_600 + part(3) * 60 + part(4))
}

/// Days from 1970 to a date, in years that begin in March.
fn days_until(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Year, month and day of so many days after 1970.
fn date_of(days: i64) -> (i64, i64, i64) {
    let mut year = 1_970 + days.div_euclid(366);
    while days_until(year + 1, 1, 1) <= days {
        year += 1;
    }
    let month = (1..=12).rev().find(|month| days_until(year, *month, 1) <= days).unwrap_or(1);
    (year, month, days - days_until(year, month, 1) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{date_time_ymd, CertificateParams, KeyPair};

    fn certificate(year: i32, month: u8, day: u8) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        params.not_after = date_time_ymd(year, month, day);
        let key = KeyPair::generate().expect("there is randomness");
        params.self_signed(&key).expect("a key of its own").der().clone()
    }

    #[test]
    fn a_certificate_is_good_until_its_last_second() {
        for (year, month, day, text) in [
            (2001, 1, 1, "2001-01-01 00:00:00 UTC"),
            (2024, 2, 29, "2024-02-29 00:00:00 UTC"),
            (2049, 12, 31, "2049-12-31 00:00:00 UTC"),
            // From here on in another form.
            (2050, 1, 1, "2050-01-01 00:00:00 UTC"),
            (2100, 3, 1, "2100-03-01 00:00:00 UTC"),
        ] {
            let expiry =
                Expiry::of(Path::new("a.pem"), &[certificate(year, month, day)]).expect("it is good");
            assert_eq!(expiry.date(), text);
            assert_eq!(expiry.unix_s, date_time_ymd(year, month, day).unix_timestamp());
        }
        let at = |unix_s| Expiry { file: PathBuf::new(), unix_s }.date();
        assert_eq!(at(1_735_689_599), "2024-12-31 23:59:59 UTC");
        assert_eq!(at(-1), "1969-12-31 23:59:59 UTC");
    }

    #[test]
    fn what_is_cut_or_no_certificate_has_no_time() {
        let whole = certificate(2030, 1, 1);
        for length in 0..whole.len() {
            assert_eq!(not_after(&whole[..length]), None, "{length}");
        }
        for place in 0..whole.len() {
            let mut damaged = whole.to_vec();
            damaged[place] ^= 0xff;
            // In a time or in none.
            let _ = not_after(&damaged);
        }
        assert_eq!(time(UTC_TIME, b"991301000000Z"), None, "no month");
        assert_eq!(time(UTC_TIME, b"9912310000Z"), None, "no seconds");
    }
}
