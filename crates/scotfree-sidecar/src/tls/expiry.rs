//! Until when a certificate is good: the libraries of TLS know it and do not tell.
//!
//! Invariant: whatever the bytes, reading ends, in a time or in none.

use rustls::pki_types::CertificateDer;
use std::path::{Path, PathBuf};
use x509_parser::parse_x509_certificate;
use x509_parser::time::ASN1Time;

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
        let Ok(time) = ASN1Time::from_timestamp(self.unix_s) else {
            return format!("{} s after 1970", self.unix_s);
        };
        let time = time.to_datetime();
        let (year, month, day) = (time.year(), u8::from(time.month()), time.day());
        format!("{year}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", time.hour(), time.minute(), time.second())
    }
}

/// The last second in which a certificate is good, since 1970.
fn not_after(certificate: &[u8]) -> Option<i64> {
    let (_, certificate) = parse_x509_certificate(certificate).ok()?;
    Some(certificate.validity().not_after.timestamp())
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
    }
}
