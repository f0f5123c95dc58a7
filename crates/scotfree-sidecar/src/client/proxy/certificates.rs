//! Looks whether the proxy's own certificates are good, and will be: who refuses one says so to nobody but itself.
//!
//! Invariant: of one certificate it is said once that it is not good yet, that it will expire soon, and that it has.

use super::ProxyConfig;
use crate::notices::Notices;
use crate::tls::{Expiry, TlsAcceptor, TlsConnector};
use scotfree_rpc::metrics::MetricsText;

/// From so many seconds before it expires a certificate is spoken of.
const SOON_S: i64 = 7 * 86_400;

/// A certificate, and what was said of it.
#[derive(Clone)]
struct Watched<S> {
    source: Option<S>,
    read: fn(&S) -> Option<Expiry>,
    /// Who refuses it when it is not good.
    judge: &'static str,
    metric: &'static str,
    said: Option<(Expiry, Said)>,
}

/// What was said last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    NotYet,
    Soon,
    Expired,
}

/// Both certificates of a proxy.
#[derive(Clone)]
pub(super) struct Certificates {
    clients: Watched<TlsAcceptor>,
    server: Watched<TlsConnector>,
}

impl Certificates {
    /// Those of a configuration, whose files may be read again.
    pub fn of(config: &ProxyConfig) -> Certificates {
        Certificates {
            clients: Watched {
                source: config.listeners.iter().find_map(|listener| listener.tls.clone()),
                read: TlsAcceptor::expiry,
                judge: "clients",
                metric: "scotfree_proxy_certificate_seconds_left",
                said: None,
            },
            server: Watched {
                source: config.service.redis.tls.clone(),
                read: TlsConnector::expiry,
                judge: "the Redis",
                metric: "scotfree_proxy_redis_certificate_seconds_left",
                said: None,
            },
        }
    }

    /// Says what is to be said now.
    pub fn look(&mut self, unix_s: i64, notices: &Notices) {
        for text in [self.clients.look(unix_s), self.server.look(unix_s)].into_iter().flatten() {
            notices.alarm(&text);
        }
    }

    /// How long each is good; below 0 since when it is not.
    pub fn write_metrics(&self, unix_s: i64, text: &mut MetricsText) {
        for (metric, expiry) in
            [(self.clients.metric, self.clients.expiry()), (self.server.metric, self.server.expiry())]
        {
            if let Some(expiry) = expiry {
                let help =
                    "Seconds for which the proxy's own certificate is good, negative when it has expired";
                text.gauge(metric, help, expiry.unix_s - unix_s);
            }
        }
    }
}

impl<S> Watched<S> {
    fn expiry(&self) -> Option<Expiry> {
        (self.read)(self.source.as_ref()?)
    }

    /// What is to be said of it now, that was not said yet.
    fn look(&mut self, unix_s: i64) -> Option<String> {
        let expiry = self.expiry()?;
        let said = match expiry.unix_s - unix_s {
            left if left < 0 => Said::Expired,
            _ if unix_s < expiry.from_unix_s => Said::NotYet,
            left if left < SOON_S => Said::Soon,
            _ => {
                self.said = None;
                return None;
            }
        };
        let text = self.text(&expiry, said);
        let new = Some((expiry, said));
        (std::mem::replace(&mut self.said, new.clone()) != new).then_some(text)
    }

    fn text(&self, expiry: &Expiry, said: Said) -> String {
        let (file, date, judge) = (expiry.file.display(), expiry.date(), self.judge);
        let next = "put a new one there and send SIGHUP";
        match said {
            Said::NotYet => {
                let date = expiry.from_date();
                format!(
                    "the certificate {file} is not good before {date}; until then {judge} refuse it; is the clock right? \
                     {next}"
                )
            }
            Said::Expired => {
                format!("the certificate {file} has expired on {date}; {judge} refuse it; {next}")
            }
            Said::Soon => format!("the certificate {file} expires on {date}; {next} before that"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_certificate_it_is_said_once_that_it_expires_soon_and_that_it_has() {
        let expiry = |unix_s| Some(Expiry { file: "proxy.pem".into(), from_unix_s: 0, unix_s });
        let (now, judge) = (1_735_689_599, "clients");
        let mut watched = Watched {
            source: Some(expiry(now)),
            read: |source| source.clone(),
            judge,
            metric: "",
            said: None,
        };
        assert_eq!(watched.look(now - SOON_S), None);
        let soon = watched.look(now - SOON_S + 1).unwrap_or_default();
        assert_eq!(
            soon,
            "the certificate proxy.pem expires on 2024-12-31 23:59:59 UTC; put a new one there and send SIGHUP before \
             that"
        );
        assert_eq!(watched.look(now), None, "it is good in its last second");
        let expired = watched.look(now + 1).unwrap_or_default();
        assert!(expired.contains("has expired on 2024-12-31 23:59:59 UTC; clients refuse it"), "{expired}");
        assert_eq!(watched.look(now + SOON_S), None);
        // Another one is there, which expires soon as well.
        watched.source = Some(expiry(now + 10));
        assert!(watched.look(now + 1).is_some_and(|said| said.contains("expires on 2025-01-01")));
        watched.source = Some(expiry(now + 2 * SOON_S));
        assert_eq!(watched.look(now + 2), None);
        // One that is not good yet.
        let later = Some(Expiry { file: "proxy.pem".into(), from_unix_s: now + 9, unix_s: now + 3 * SOON_S });
        watched.source = Some(later);
        let said = watched.look(now + 8).unwrap_or_default();
        assert!(
            said.contains("is not good before 2025-01-01 00:00:08 UTC; until then clients refuse it"),
            "{said}"
        );
        assert_eq!(
            (watched.look(now + 8), watched.look(now + 9)),
            (None, None),
            "it is good in its first second"
        );
        watched.source = None;
        assert_eq!(watched.look(now + 3 * SOON_S), None, "without TLS there is none");
    }
}
