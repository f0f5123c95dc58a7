//! From when and until when a certificate is good: the libraries of TLS know it and do not tell.
//!
//! Invariant: whatever the bytes, reading ends, in times or in none.

use rustls::pki_types::CertificateDer;
use std::path::{Path, PathBuf};
use x509_parser::parse_x509_certificate;
use x509_parser::time::ASN1Time;

/// From when and until when the certificate that the other side is shown is good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expiry {
    /// The file that has it.
    pub file: PathBuf,
    /// The first second in which it is, since 1970.
    pub from_unix_s: i64,
    /// The last one.
    pub unix_s: i64,
}

impl Expiry {
    /// That of a file's first certificate, which is its owner's; none if it cannot be read.
    pub(super) fn of(file: &Path, chain: &[CertificateDer<'_>]) -> Option<Expiry> {
        let (from_unix_s, unix_s) = validity(chain.first()?)?;
        Some(Expiry { file: file.to_owned(), from_unix_s, unix_s })
    }

    /// When its last second is, as `2025-01-31 12:34:56 UTC`.
    pub fn date(&self) -> String {
        date(self.unix_s)
    }

    /// When its first second is.
    pub fn from_date(&self) -> String {
        date(self.from_unix_s)
    }
}

fn date(unix_s: i64) -> String {
    let Ok(time) = ASN1Time::from_timestamp(unix_s) else {
        return format!("{unix_s} s after 1970");
    };
    let time = time.to_datetime();
    let (year, month, day) = (time.year(), u8::from(time.month()), time.day());
    format!("{year}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", time.hour(), time.minute(), time.second())
}

/// The first and the last second in which a certificate is good, since 1970.
fn validity(certificate: &[u8]) -> Option<(i64, i64)> {
    let (_, certificate) = parse_x509_certificate(certificate).ok()?;
    let validity = certificate.validity();
    Some((validity.not_before.timestamp(), validity.not_after.timestamp()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{date_time_ymd, CertificateParams, KeyPair};

    fn certificate(year: i32, month: u8, day: u8) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        params.not_before = date_time_ymd(2000, 2, 1);
        params.not_after = date_time_ymd(year, month, day);
        let key = KeyPair::generate().expect("there is randomness");
        params.self_signed(&key).expect("a key of its own").der().clone()
    }

    #[test]
    fn a_certificate_is_good_from_its_first_to_its_last_second() {
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
            assert_eq!(expiry.from_date(), "2000-02-01 00:00:00 UTC");
        }
        assert_eq!(date(1_735_689_599), "2024-12-31 23:59:59 UTC");
        assert_eq!(date(-1), "1969-12-31 23:59:59 UTC");
    }

    #[test]
    fn what_is_cut_or_no_certificate_has_no_time() {
        let whole = certificate(2030, 1, 1);
        for length in 0..whole.len() {
            assert_eq!(validity(&whole[..length]), None, "{length}");
        }
        for place in 0..whole.len() {
            let mut damaged = whole.to_vec();
            damaged[place] ^= 0xff;
            // In times or in none.
            let _ = validity(&damaged);
        }
    }
}
