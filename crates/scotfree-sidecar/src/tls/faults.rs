//! What goes wrong with TLS, and what to do about it.
//!
//! Invariant: each text is about what its reader can change.

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};
use std::io;

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
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    Some(match error {
        Error::InvalidCertificate(error) => of_certificate(error)?,
        Error::InvalidMessage(_) => "is it a port of TLS (tls-port)?",
        Error::AlertReceived(AlertDescription::CertificateRequired | AlertDescription::HandshakeFailure) => {
            "it asks for a certificate (tls-auth-clients): give one with --redis-cert and --redis-key"
        }
        Error::AlertReceived(alert) if is_distrust(*alert) => {
            "it does not trust the certificate of --redis-cert: see its tls-ca-cert-file"
        }
        _ => return None,
    })
}

fn of_certificate(error: &CertificateError) -> Option<&'static str> {
    Some(match error {
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
        _ => return None,
    })
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
