//! An authority of tests, that certifies whomever it is asked to.
#![allow(dead_code)] // Each test file uses its own part.

use rcgen::{date_time_ymd, BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What a certificate is made out to.
pub const HERE: &[&str] = &["localhost", "127.0.0.1", "::1"];

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: PathBuf,
    /// The file of its own certificate.
    pub file: String,
}

/// Files of a certificate and its key.
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new(folder: &Path, name: &str) -> Authority {
        let key = KeyPair::generate().expect("there is randomness");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key).expect("a key of its own");
        let file = written(folder, &format!("{name}.pem"), &certificate.pem());
        Authority { issuer: Issuer::new(params, key), folder: folder.to_owned(), file }
    }

    /// Good for long.
    pub fn certify(&self, file: &str, names: &[&str]) -> Identity {
        self.certify_until(file, names, 2100)
    }

    /// Good until the first day of a year.
    pub fn certify_until(&self, file: &str, names: &[&str], year: i32) -> Identity {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names or addresses");
        params.distinguished_name.push(DnType::CommonName, file);
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().expect("there is randomness");
        let certificate = params.signed_by(&key, &self.issuer).expect("a key of its own");
        Identity {
            certificate: written(&self.folder, &format!("{file}.pem"), &certificate.pem()),
            key: written(&self.folder, &format!("{file}.key"), &key.serialize_pem()),
        }
    }
}

fn written(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    let _ = fs::remove_file(&path);
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).expect("it can be written");
    path.to_str().expect("text").to_owned()
}
