//! Where a Redis or Valkey listens, and connections to it.
//!
//! Invariant: unless it is said that the server may be on another host, only a unix socket or a loopback address is
//! connected to: whoever can reach the server past the sidecar can write past the order. What all parts of a process
//! have of a server that is known by name is at one address, until the server is begun with anew.

use crate::stream::Stream;
use crate::tls::{self, TlsConnector};
use rustix::net::sockopt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a connection to one address may take to be made.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(1);
/// How many addresses of one name are tried.
const ADDRESSES_MAX: usize = 4;
/// After how long without a sign of its host a connection to another host is over.
const SILENCE_TIME_MAX: Duration = Duration::from_secs(10);

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisAddress {
    /// A unix socket.
    Unix(PathBuf),
    /// A TCP port.
    Tcp(SocketAddr),
    /// A TCP port of a host that the system's resolver knows.
    Name {
        /// The host.
        host: String,
        /// The port.
        port: u16,
    },
}

impl FromStr for RedisAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<RedisAddress, String> {
        if let Some(path) = text.strip_prefix("unix:").or(text.starts_with('/').then_some(text)) {
            return Ok(RedisAddress::Unix(PathBuf::from(path)));
        }
        if let Ok(address) = text.parse() {
            return Ok(RedisAddress::Tcp(address));
        }
        name_and_port(text).ok_or_else(|| {
            format!(
                "`{text}` is neither a path, unix:PATH, ADDRESS:PORT such as 127.0.0.1:6379, nor NAME:PORT such as \
                 localhost:6379"
            )
        })
    }
}

fn name_and_port(text: &str) -> Option<RedisAddress> {
    let (host, port) = text.rsplit_once(':')?;
    let may_be_in_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    // What has no letter is an address that is not right.
    let is_name = host.chars().all(may_be_in_name) && host.contains(|c: char| c.is_ascii_alphabetic());
    let port = port.parse().ok().filter(|port| *port != 0)?;
    is_name.then(|| RedisAddress::Name { host: host.to_owned(), port })
}

impl std::fmt::Display for RedisAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RedisAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            RedisAddress::Tcp(address) => write!(f, "{address}"),
            RedisAddress::Name { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

impl RedisAddress {
    /// Whether it is known to be on another host; what a name stands for is known when it is looked up.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self, RedisAddress::Tcp(address) if !address.ip().is_loopback())
    }

    /// What to do about a connection that could not be made.
    pub fn mend(&self, error: &io::Error) -> String {
        match (self, error.kind()) {
            (RedisAddress::Unix(path), ErrorKind::PermissionDenied) => format!(
                "let scot's user open {} (unixsocketperm 770 and the server's group, for instance)",
                path.display()
            ),
            _ => format!("is a Redis or Valkey running there? (redis-cli {} PING, --redis)", self.flags()),
        }
    }

    /// How redis-cli is told of the address.
    fn flags(&self) -> String {
        match self {
            RedisAddress::Unix(path) => format!("-s {}", path.display()),
            RedisAddress::Tcp(address) => format!("-h {} -p {}", address.ip(), address.port()),
            RedisAddress::Name { host, port } => format!("-h {host} -p {port}"),
        }
    }
}

/// A server, and how it is reached. Clones share the address that its name stands for.
#[derive(Debug, Clone)]
pub struct RedisServer {
    /// Where it listens.
    pub address: RedisAddress,
    /// It may be on another host.
    pub is_remote: bool,
    /// By what TLS is begun, if it is asked for.
    pub tls: Option<TlsConnector>,
    /// What its name stands for, since somebody was connected there.
    found: Arc<Mutex<Option<SocketAddr>>>,
}

impl From<RedisAddress> for RedisServer {
    fn from(address: RedisAddress) -> RedisServer {
        RedisServer { address, is_remote: false, tls: None, found: Arc::default() }
    }
}

impl std::fmt::Display for RedisServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.address.fmt(f)
    }
}

impl RedisServer {
    /// The next connection looks the name up: nobody is connected any more.
    pub fn look_up_again(&self) {
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// What to do about a connection that could not be made, or is lost.
    pub fn mend(&self, error: &io::Error) -> String {
        tls::mend(error).map_or_else(|| self.address.mend(error), str::to_owned)
    }

    /// Connects; the connection does not block afterwards. Until then this does: for as long as the system's
    /// resolver takes, a second for each address, and two for a handshake of TLS.
    pub fn connect(&self) -> io::Result<Stream> {
        match &self.address {
            RedisAddress::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_nonblocking(true)?;
                Ok(Stream::Unix(stream))
            }
            RedisAddress::Tcp(address) => {
                self.admit(*address)?;
                self.finish(connect_to(*address)?)
            }
            RedisAddress::Name { host, port } => self.finish(self.connect_by_name(host, *port)?),
        }
    }

    fn connect_by_name(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let found = *self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(address) = found {
            return connect_to(address);
        }
        let (stream, address) = self.connect_to_any(look_up(host, port)?)?;
        // Somebody may have been quicker: then both have looked up the same, or one of them goes elsewhere.
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        match *found.get_or_insert(address) {
            same if same == address => Ok(stream),
            other => connect_to(other),
        }
    }

    fn connect_to_any(&self, addresses: Vec<SocketAddr>) -> io::Result<(TcpStream, SocketAddr)> {
        let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
        for address in addresses {
            match self.admit(address).and_then(|()| connect_to(address)) {
                Ok(stream) => return Ok((stream, address)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn admit(&self, address: SocketAddr) -> io::Result<()> {
        if self.is_remote || address.ip().is_loopback() {
            return Ok(());
        }
        let text =
            format!("{address} is on another host, and only a proxy can be told to use one (--redis-remote)");
        Err(io::Error::new(ErrorKind::PermissionDenied, text))
    }

    fn finish(&self, stream: TcpStream) -> io::Result<Stream> {
        stream.set_nodelay(true)?;
        if self.is_remote {
            // A host that is gone sends no end.
            sockopt::set_tcp_user_timeout(&stream, SILENCE_TIME_MAX.as_millis() as u32)?;
            sockopt::set_socket_keepalive(&stream, true)?;
            sockopt::set_tcp_keepidle(&stream, SILENCE_TIME_MAX / 2)?;
            sockopt::set_tcp_keepintvl(&stream, SILENCE_TIME_MAX / 4)?;
        }
        let stream = match &self.tls {
            None => Stream::Tcp(stream),
            Some(tls) => tls.connect(stream)?,
        };
        stream.set_nonblocking(true)?;
        Ok(stream)
    }
}

/// The addresses of a host, as its system's resolver has them now.
fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let found = (host, port).to_socket_addrs();
    let found = found.map_err(|error| io::Error::new(error.kind(), format!("looking up {host}: {error}")))?;
    Ok(found.take(ADDRESSES_MAX).collect())
}

fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&address, CONNECT_TIME_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn address(text: &str) -> RedisAddress {
        text.parse().expect("an address")
    }

    #[test]
    fn addresses_are_paths_numbers_or_names() {
        assert_eq!(address("/run/r.sock"), RedisAddress::Unix(PathBuf::from("/run/r.sock")));
        assert_eq!(address("unix:r.sock"), RedisAddress::Unix(PathBuf::from("r.sock")));
        for text in ["127.0.0.1:6379", "[::1]:6379", "localhost:6379", "redis-1.example.org:7000"] {
            assert_eq!(address(text).to_string(), text);
        }
        for text in ["redis", "redis:", "redis:0", ":6379", "10.0.0.300:6379", "a b:1", "a:b:1"] {
            let wrong = text.parse::<RedisAddress>().expect_err(text);
            assert!(wrong.contains("localhost:6379"), "{wrong}");
        }
    }

    #[test]
    fn what_to_do_is_said() {
        let refused = io::Error::from(ErrorKind::ConnectionRefused);
        assert!(address("127.0.0.1:6379").mend(&refused).contains("redis-cli -h 127.0.0.1 -p 6379 PING"));
        assert!(address("db:6379").mend(&refused).contains("redis-cli -h db -p 6379 PING"));
        let denied = io::Error::from(ErrorKind::PermissionDenied);
        assert!(address("/run/r.sock").mend(&denied).contains("unixsocketperm"));
    }

    #[test]
    fn another_host_is_connected_to_only_when_that_is_allowed() {
        assert!(address("192.0.2.1:1").is_elsewhere() && !address("127.0.0.1:1").is_elsewhere());
        let mut server = RedisServer::from(address("192.0.2.1:1"));
        let error = server.connect().expect_err("it is not tried");
        assert!(error.to_string().contains("--redis-remote"), "{error}");
        assert!(server.admit("127.0.0.1:1".parse().expect("loopback")).is_ok());
        server.is_remote = true;
        assert!(server.admit("192.0.2.1:1".parse().expect("elsewhere")).is_ok());
    }

    #[test]
    fn a_name_stands_for_one_address_until_it_is_looked_up_again() {
        let (one, other) = (TcpListener::bind("127.0.0.1:0"), TcpListener::bind("127.0.0.1:0"));
        let (one, other) = (one.expect("loopback"), other.expect("loopback"));
        let at = |listener: &TcpListener| listener.local_addr().expect("bound");
        let server = RedisServer::from(address(&format!("localhost:{}", at(&one).port())));
        let clone = server.clone();
        let connected = |server: &RedisServer| match server.connect().expect("somebody listens") {
            Stream::Tcp(stream) => stream.peer_addr().expect("connected").port(),
            _ => 0,
        };
        assert_eq!(connected(&server), at(&one).port());
        // As if the name stood for another host now, of which one clone has heard.
        *server.found.lock().expect("nobody panics") = Some(at(&other));
        assert_eq!(connected(&clone), at(&other).port());
        clone.look_up_again();
        assert_eq!(connected(&server), at(&one).port());
    }
}
