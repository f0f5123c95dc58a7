//! Certificates and keys in files of PEM.
//!
//! Invariant: a key that anybody may read is refused, and no error shows what a file holds.

use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::VerifierBuilderError;
use rustls::RootCertStore;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The bits of a file's mode by which anybody may do something with it.
const MODE_OF_OTHERS: u32 = 0o007;

/// Why TLS cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("reading {} failed: {}", .0.display(), .1)]
    Read(PathBuf, io::Error),
    /// Anybody may read a key.
    #[error("{path} is a key that every user of this machine can use (mode {mode:o}); run: chmod o= {path}", path = .0.display(), mode = .1)]
    Open(PathBuf, u32),
    /// A file does not hold what it should.
    #[error("{} holds no {} in PEM (-----BEGIN …){}", .0.display(), .1, .2)]
    Pem(PathBuf, &'static str, String),
    /// A certificate of an authority is none.
    #[error("{} holds a certificate that cannot be an authority's: {}", .0.display(), .1)]
    Root(PathBuf, rustls::Error),
    /// Clients' authorities cannot be used.
    #[error("the certificates in {} cannot be used to judge clients: {}", .0.display(), .1)]
    Authorities(PathBuf, VerifierBuilderError),
    /// A certificate and a key do not belong together, or are of a kind that is not known.
    #[error("the certificate in {} and the key in {} cannot be used together: {}", .0.display(), .1.display(), .2)]
    Identity(PathBuf, PathBuf, rustls::Error),
    /// The system has no authorities.
    #[error(
        "this system has no certificates of authorities{0}; install them (apt-get install ca-certificates), or name \
         those of the Redis (--redis-ca FILE)"
    )]
    NoSystemRoots(String),
    /// The server cannot have this name.
    #[error("`{0}` is no name that a certificate can be made out to; give it with --redis-server-name NAME")]
    Name(String),
    /// No version of TLS can be had.
    #[error("TLS cannot be set up: {0}")]
    Setup(rustls::Error),
}

/// The certificates in a file; at least one.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|error| no_pem(path, "certificate", &error))?;
    if found.is_empty() {
        return Err(no_pem(path, "certificate", &PemError::NoItemsFound));
    }
    Ok(found)
}

/// The first key in a file.
pub(super) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let found = std::fs::metadata(path).map_err(|error| TlsError::Read(path.to_owned(), error))?;
    if found.mode() & MODE_OF_OTHERS != 0 {
        return Err(TlsError::Open(path.to_owned(), found.mode() & 0o777));
    }
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|error| no_pem(path, "private key", &error))
}

/// Authorities; their certificates are added to those that were seen.
pub(super) fn roots(path: &Path, seen: &mut Vec<CertificateDer<'static>>) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        seen.push(certificate.clone());
        store.add(certificate).map_err(|error| TlsError::Root(path.to_owned(), error))?;
    }
    Ok(store)
}

/// The authorities that the system trusts.
pub(super) fn system_roots() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    // Among so many there may be some that are too old to be understood.
    let (added, _) = store.add_parsable_certificates(found.certs);
    if added == 0 {
        let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        return Err(TlsError::NoSystemRoots(why));
    }
    Ok(store)
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|error| TlsError::Read(path.to_owned(), error))
}

/// The parser's errors may show parts of a file, which may be a key.
fn no_pem(path: &Path, what: &'static str, error: &PemError) -> TlsError {
    let more = match error {
        PemError::NoItemsFound => "",
        _ => ": it is damaged",
    };
    TlsError::Pem(path.to_owned(), what, more.to_owned())
}
