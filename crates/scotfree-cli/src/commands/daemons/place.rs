//! Where a server listens: at an address of UDP, or at a place of a transport that needs no address.

use crate::failure::{required, Failure};
use crate::registry::TRANSPORTS;
use crate::serve::open_files_max;
use crate::text::Address;
use scotfree_io::advice::after_listening;
use scotfree_io::udp::{UdpConfig, UdpTransport};
use scotfree_io::{Transport, TransportMaker};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where a server listens.
#[derive(Debug, Clone)]
pub(super) enum Place {
    Udp(SocketAddr),
    Made(&'static TransportMaker, PathBuf),
}

impl Place {
    /// As the settings of this section say it: `listen`, or `transport` in its stead.
    pub(super) fn of(
        section: &str,
        listen: Option<&Address>,
        transport: Option<&str>,
    ) -> Result<Place, Failure> {
        let Some(transport) = transport else {
            return Ok(Place::Udp(required(listen, section, "listen")?.0));
        };
        if let Some(listen) = listen {
            return Err(Failure::usage(format!(
                "--transport {transport} takes the place of UDP, and --listen {} is an address of that: leave one of \
                 them out",
                listen.0
            )));
        }
        named(transport)
    }

    /// Its address of UDP, if it has one.
    pub(super) fn udp(&self) -> Option<SocketAddr> {
        match self {
            Place::Udp(address) => Some(*address),
            Place::Made(..) => None,
        }
    }

    /// Listens there.
    pub(super) fn open(&self) -> Result<Box<dyn Transport>, Failure> {
        match self {
            Place::Udp(address) => {
                let transport = UdpTransport::bind(*address, &UdpConfig::default());
                let failed = |error| {
                    Failure::tried(format!("listen on UDP {address}"), &error, after_listening(&error))
                };
                Ok(Box::new(transport.map_err(failed)?))
            }
            Place::Made(maker, path) => {
                // Its clients take descriptors, which those of UDP do not.
                open_files_max();
                (maker.listen)(path).map_err(Failure::environment)
            }
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Udp(address) => address.fmt(f),
            Place::Made(maker, path) => write!(f, "{}:{}", maker.kind, path.display()),
        }
    }
}

/// A place by its name, `KIND:PATH`.
fn named(name: &str) -> Result<Place, Failure> {
    let (kind, path) = name.split_once(':').unwrap_or((name, ""));
    match TRANSPORTS.iter().find(|maker| maker.kind == kind) {
        Some(maker) if !path.is_empty() => Ok(Place::Made(maker, path.into())),
        _ => {
            let forms: Vec<String> = TRANSPORTS.iter().map(|maker| format!("{}:FILE", maker.kind)).collect();
            let known = if forms.is_empty() { "none in this build".to_owned() } else { forms.join(", ") };
            Err(Failure::usage(format!("there is no transport `{name}`: there are {known}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(result: Result<Place, Failure>) -> String {
        match result {
            Ok(place) => place.to_string(),
            Err(failure) => failure.to_string(),
        }
    }

    #[test]
    fn a_place_is_an_address_or_that_of_a_transport_and_not_both() {
        let address: Address = "127.0.0.1:51000".parse().expect("an address");
        assert_eq!(words(Place::of("kv", Some(&address), None)), "127.0.0.1:51000");
        assert!(words(Place::of("kv", None, None)).contains("--listen is missing"));
        assert!(words(Place::of("kv", Some(&address), Some("ring:a"))).contains("leave one of them out"));
        for name in ["ring", "ring:", "hose:a"] {
            assert!(words(Place::of("kv", None, Some(name))).contains(&format!("no transport `{name}`")));
        }
        for maker in TRANSPORTS {
            let name = format!("{}:/run/scotfree/kv", maker.kind);
            assert_eq!(words(Place::of("kv", None, Some(&name))), name);
        }
    }
}
