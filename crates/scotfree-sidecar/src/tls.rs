//! TLS: with clients, to whom the proxy shows a certificate, and with the server, which shows it one.
//!
//! Invariant: what files say is taken over as a whole or not at all, and holds for connections made from then on.

mod expiry;
mod faults;
mod files;
mod stream;

pub use expiry::Expiry;
pub(crate) use faults::mend;
pub use files::TlsError;
pub use stream::TlsStream;

use crate::stream::Stream;
use faults::NoTls;
use files::{certificates, private_key, roots, system_roots};
use rustls::crypto::{ring, CryptoProvider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a handshake with the server may take.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(2);

/// A certificate with those that lead to its authority, and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityFiles {
    /// The certificates, in PEM.
    pub certificates: PathBuf,
    /// The key, in PEM.
    pub key: PathBuf,
}

impl IdentityFiles {
    fn read(&self, seen: &mut Vec<CertificateDer<'static>>) -> Result<Identity, TlsError> {
        let chain = certificates(&self.certificates)?;
        seen.extend(chain.iter().cloned());
        let expiry = Expiry::of(&self.certificates, &chain);
        Ok(Identity { chain, key: private_key(&self.key)?, expiry })
    }

    fn fault(&self, error: rustls::Error) -> TlsError {
        TlsError::Identity(self.certificates.clone(), self.key.clone(), error)
    }
}

struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    expiry: Option<Expiry>,
}

/// What clients are shown, and asked for.
#[derive(Debug, Clone)]
pub struct AcceptFiles {
    /// Who the proxy is.
    pub identity: IdentityFiles,
    /// The authorities of clients' certificates; without them no client is asked for one.
    pub client_authorities: Option<PathBuf>,
}

/// What the server is asked for, and shown.
#[derive(Debug, Clone)]
pub struct ConnectFiles {
    /// The authorities of the server's certificate; those of the system if not given.
    pub authorities: Option<PathBuf>,
    /// Who the proxy is, if the server asks.
    pub identity: Option<IdentityFiles>,
}

/// What files said last; clones share it.
#[derive(Clone)]
struct Shared<C>(Arc<Mutex<Read<C>>>);

/// What files said.
#[derive(Clone)]
struct Read<C> {
    config: Arc<C>,
    /// Their certificates.
    certificates: Vec<CertificateDer<'static>>,
    /// Until when the one that the other side is shown is good.
    expiry: Option<Expiry>,
}

impl<C> Shared<C> {
    fn new(config: C, certificates: Vec<CertificateDer<'static>>, expiry: Option<Expiry>) -> Shared<C> {
        Shared(Arc::new(Mutex::new(Read { config: Arc::new(config), certificates, expiry })))
    }

    fn lock(&self) -> MutexGuard<'_, Read<C>> {
        // A thread that panicked left a whole configuration.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn config(&self) -> Arc<C> {
        Arc::clone(&self.lock().config)
    }

    /// Whether its certificates are others than before.
    fn take_over(&self, other: &Shared<C>) -> bool {
        let Read { config, certificates, expiry } = &*other.lock();
        let mut held = self.lock();
        let differs = held.certificates != *certificates;
        let (config, certificates, expiry) = (Arc::clone(config), certificates.clone(), expiry.clone());
        *held = Read { config, certificates, expiry };
        differs
    }
}

/// Begins TLS with clients. Clones share what the files said last.
#[derive(Clone)]
pub struct TlsAcceptor(Shared<ServerConfig>);

impl std::fmt::Debug for TlsAcceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsAcceptor")
    }
}

impl TlsAcceptor {
    /// Reads the files.
    pub fn read(files: &AcceptFiles) -> Result<TlsAcceptor, TlsError> {
        let provider = provider();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().map_err(TlsError::Setup)?;
        let mut seen = Vec::new();
        let builder = match &files.client_authorities {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = roots(path, &mut seen)?;
                let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
                let verifier =
                    verifier.build().map_err(|error| TlsError::Authorities(path.clone(), error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let Identity { chain, key, expiry } = files.identity.read(&mut seen)?;
        let config = builder.with_single_cert(chain, key);
        let mut config = config.map_err(|error| files.identity.fault(error))?;
        if files.client_authorities.is_some() {
            // Who resumes a session shows no certificate, which may have expired since.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(TlsAcceptor(Shared::new(config, seen, expiry)))
    }

    /// Until when the certificate that clients are shown is good.
    pub fn expiry(&self) -> Option<Expiry> {
        self.0.lock().expiry.clone()
    }

    /// Connections accepted from now on get what the other one has read; whether that are other certificates.
    pub fn take_over(&self, other: &TlsAcceptor) -> bool {
        self.0.take_over(&other.0)
    }

    /// A client's connection, whose handshake goes on as bytes come.
    pub fn accept(&self, socket: TcpStream) -> io::Result<TlsStream> {
        let tls = ServerConnection::new(self.0.config()).map_err(io::Error::other)?;
        Ok(TlsStream::new(socket, tls.into()))
    }
}

/// Begins TLS with a server. Clones share what the files said last.
#[derive(Clone)]
pub struct TlsConnector {
    config: Shared<ClientConfig>,
    name: ServerName<'static>,
}

impl std::fmt::Debug for TlsConnector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TlsConnector({})", self.name.to_str())
    }
}

impl TlsConnector {
    /// Reads the files; the server has to show a certificate of this name or address.
    pub fn read(files: &ConnectFiles, name: &str) -> Result<TlsConnector, TlsError> {
        let name = ServerName::try_from(name.to_owned()).map_err(|_| TlsError::Name(name.to_owned()))?;
        let builder = ClientConfig::builder_with_provider(provider());
        let builder = builder.with_safe_default_protocol_versions().map_err(TlsError::Setup)?;
        let mut seen = Vec::new();
        let builder = builder.with_root_certificates(match &files.authorities {
            Some(path) => roots(path, &mut seen)?,
            None => system_roots()?,
        });
        let (config, expiry) = match &files.identity {
            None => (builder.with_no_client_auth(), None),
            Some(identity) => {
                let Identity { chain, key, expiry } = identity.read(&mut seen)?;
                let config = builder.with_client_auth_cert(chain, key);
                (config.map_err(|error| identity.fault(error))?, expiry)
            }
        };
        Ok(TlsConnector { config: Shared::new(config, seen, expiry), name })
    }

    /// Until when the certificate that the server is shown is good, if it is shown one.
    pub fn expiry(&self) -> Option<Expiry> {
        self.config.lock().expiry.clone()
    }

    /// Connections made from now on use what the other one has read, but its name; whether that are other
    /// certificates.
    pub fn take_over(&self, other: &TlsConnector) -> bool {
        self.config.take_over(&other.config)
    }

    /// Makes the handshake, which blocks for [`HANDSHAKE_TIME_MAX`] at most; the connection blocks afterwards too.
    pub(crate) fn connect(&self, socket: TcpStream) -> io::Result<Stream> {
        let tls = ClientConnection::new(self.config.config(), self.name.clone()).map_err(io::Error::other)?;
        let mut stream = TlsStream::new(socket, tls.into());
        let until = Instant::now() + HANDSHAKE_TIME_MAX;
        while stream.is_handshaking() {
            let left = until.saturating_duration_since(Instant::now());
            stream.step(left).map_err(|error| match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                    io::Error::new(ErrorKind::TimedOut, NoTls::Silent(HANDSHAKE_TIME_MAX))
                }
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                    io::Error::new(error.kind(), NoTls::Closed)
                }
                _ => error,
            })?;
        }
        Ok(Stream::Tls(Box::new(stream)))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
