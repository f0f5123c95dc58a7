//! What goes wrong with TLS, and what to do about it.
//!
//! Invariant: each text is about what its reader can change.

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};
use std::io;
use std::time::Duration;

/// Whoever is there says nothing of TLS.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoTls {
    /// It says nothing at all.
    #[error("no TLS handshake within {0:?}")]
    Silent(Duration),
    /// It has closed the connection.
    #[error("closed within the TLS handshake")]
    Closed,
}

/// What to do where no TLS is spoken.
const IS_IT_TLS: &str = "is it a port of TLS (tls-port)?";

/// What the judge of certificates (webpki) calls one of an authority that a server shows as its own.
const AUTHORITY_AS_SERVER: &str = "CaUsedAsEndEntity";

/// Why a client was turned away.
pub(super) fn of_client(error: &Error) -> String {
    match error {
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "it speaks no TLS, as this port does: a plain client?".to_owned()
        }
        Error::NoCertificatesPresented => {
            "it shows no certificate, which --tls-client-ca asks for".to_owned()
        }
        Error::InvalidCertificate(error) => format!("its certificate is not good: {error}"),
        Error::AlertReceived(alert) if is_distrust(*alert) => {
            format!("it does not trust the certificate of --tls-cert ({error})")
        }
        error => error.to_string(),
    }
}

/// What to do about a server with which TLS fails; empty if that is not known.
pub(crate) fn mend(error: &io::Error) -> Option<&'static str> {
    let inner = error.get_ref()?;
    if inner.is::<NoTls>() {
        return Some(IS_IT_TLS);
    }
    Some(match inner.downcast_ref::<Error>()? {
        Error::InvalidCertificate(error) => of_certificate(error),
        Error::InvalidMessage(_) => IS_IT_TLS,
        Error::AlertReceived(AlertDescription::CertificateRequired | AlertDescription::HandshakeFailure) => {
            "it asks for a certificate (tls-auth-clients): give one with --redis-cert and --redis-key"
        }
        Error::AlertReceived(alert) if is_distrust(*alert) => {
            "it does not trust the certificate of --redis-cert: see its tls-ca-cert-file"
        }
        _ => return None,
    })
}

fn of_certificate(error: &CertificateError) -> &'static str {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "renew the Redis' certificate, or set the clock of this host"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "set the clock of this host"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "name what its certificate is made out to (its subjectAltName): --redis-server-name NAME"
        }
        CertificateError::UnknownIssuer => "name the authority that has signed it: --redis-ca FILE",
        CertificateError::Other(other) if other.0.to_string() == AUTHORITY_AS_SERVER => {
            "the Redis shows as its own the certificate of an authority (CA:TRUE), which openssl req -x509 makes unless it \
             is told otherwise: add -addext basicConstraints=critical,CA:FALSE, or have an authority sign one for the \
             Redis, and name that authority with --redis-ca FILE"
        }
        _ => {
            "the Redis' certificate cannot be used: have an authority sign another one, of version 3 with a \
             subjectAltName, and name that authority with --redis-ca FILE"
        }
    }
}

/// Whether the other side does not like our certificate.
fn is_distrust(alert: AlertDescription) -> bool {
    use AlertDescription as Alert;
    matches!(
        alert,
        Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
    )
}

#[cfg(test)]
mod tests {
    use super::super::{AcceptFiles, ConnectFiles, IdentityFiles, TlsAcceptor, TlsConnector};
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};

    const NAME: &str = "localhost";
    const PATIENCE: Duration = Duration::from_secs(30);

    fn written(path: PathBuf, text: &str) -> PathBuf {
        std::fs::write(&path, text).expect("it can be written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("it is there");
        path
    }

    /// A certificate that its own key has signed.
    fn self_signed(folder: &Path, is_ca: IsCa) -> IdentityFiles {
        let key = KeyPair::generate().expect("there is randomness");
        let mut params = CertificateParams::new(vec![NAME.to_owned()]).expect("a name");
        params.is_ca = is_ca;
        let certificate = params.self_signed(&key).expect("a key of its own");
        IdentityFiles {
            certificates: written(folder.join("own.pem"), &certificate.pem()),
            key: written(folder.join("own.key"), &key.serialize_pem()),
        }
    }

    /// What comes of connecting to a server with this certificate, where that is named as the authority.
    fn connect(name: &str, is_ca: IsCa) -> io::Result<()> {
        let folder = std::env::temp_dir().join(format!("scot-tls-faults-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("it can be made");
        let identity = self_signed(&folder, is_ca);
        let files = ConnectFiles { authorities: Some(identity.certificates.clone()), identity: None };
        let connector = TlsConnector::read(&files, NAME).expect("a certificate");
        let acceptor = TlsAcceptor::read(&AcceptFiles { identity, client_authorities: None });
        let acceptor = acceptor.expect("a certificate and its key");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it has one");
        let server = std::thread::spawn(move || {
            let (socket, _) = listener.accept().expect("somebody connects");
            let mut stream = acceptor.accept(socket).expect("it can be set up");
            while stream.is_handshaking() && stream.step(PATIENCE).is_ok() {}
            stream
        });
        let connected = connector.connect(TcpStream::connect(address).expect("it listens")).map(drop);
        drop(server.join());
        std::fs::remove_dir_all(&folder).expect("it is there");
        connected
    }

    #[test]
    fn a_certificate_of_an_authority_shown_by_a_server_is_named_with_the_way_out() {
        let error =
            connect("authority", IsCa::Ca(BasicConstraints::Unconstrained)).expect_err("it is refused");
        let next = mend(&error).expect("what to do is known");
        assert!(
            next.contains("CA:TRUE") && next.contains("basicConstraints=critical,CA:FALSE"),
            "{error}: {next}"
        );
        // And that way leads out.
        connect("own", IsCa::ExplicitNoCa).expect("it is its own authority");
    }

    #[test]
    fn who_speaks_no_tls_is_asked_for_its_port_once() {
        for fault in [NoTls::Silent(PATIENCE), NoTls::Closed] {
            let error = io::Error::new(io::ErrorKind::TimedOut, fault);
            assert_eq!(mend(&error), Some(IS_IT_TLS));
            assert!(!error.to_string().contains("tls-port"), "{error}");
        }
    }
}
