//! Where a Redis or Valkey listens, and connections to it.
//!
//! Invariant: only a unix socket or a loopback address is connected to: whoever can reach the server past
//! the sidecar can write past the order.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// How long a connection may take to be made.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(1);

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisAddress {
    /// A unix socket.
    Unix(PathBuf),
    /// A TCP port of this host.
    Tcp(SocketAddr),
}

impl FromStr for RedisAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<RedisAddress, String> {
        if let Some(path) = text.strip_prefix("unix:").or(text.starts_with('/').then_some(text)) {
            return Ok(RedisAddress::Unix(PathBuf::from(path)));
        }
        let address: SocketAddr = text.parse().map_err(|_| {
            format!("`{text}` is neither a path, unix:PATH, nor ADDRESS:PORT such as 127.0.0.1:6379")
        })?;
        if address.ip().is_loopback() {
            Ok(RedisAddress::Tcp(address))
        } else {
            Err(format!(
                "{address} is no loopback address; let the server listen on a unix socket (unixsocket) or on \
                 127.0.0.1 (bind) and run the sidecar on its host"
            ))
        }
    }
}

impl std::fmt::Display for RedisAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RedisAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            RedisAddress::Tcp(address) => write!(f, "{address}"),
        }
    }
}

impl RedisAddress {
    /// What to do about a connection that could not be made.
    pub fn mend(&self, error: &io::Error) -> String {
        match (self, error.kind()) {
            (RedisAddress::Unix(path), io::ErrorKind::PermissionDenied) => format!(
                "let the sidecar's user open {} (unixsocketperm 770 and the server's group, for instance)",
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
        }
    }

    /// Connects; the connection does not block afterwards.
    pub fn connect(&self) -> io::Result<RedisStream> {
        match self {
            RedisAddress::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_nonblocking(true)?;
                Ok(RedisStream::Unix(stream))
            }
            RedisAddress::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, CONNECT_TIME_MAX)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                Ok(RedisStream::Tcp(stream))
            }
        }
    }
}

/// A connection to a server.
#[derive(Debug)]
pub enum RedisStream {
    /// Over a unix socket.
    Unix(UnixStream),
    /// Over TCP.
    Tcp(TcpStream),
}

impl Read for RedisStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            RedisStream::Unix(stream) => stream.read(buffer),
            RedisStream::Tcp(stream) => stream.read(buffer),
        }
    }
}

impl Write for RedisStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            RedisStream::Unix(stream) => stream.write(bytes),
            RedisStream::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsRawFd for RedisStream {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            RedisStream::Unix(stream) => stream.as_raw_fd(),
            RedisStream::Tcp(stream) => stream.as_raw_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_host_is_accepted() {
        assert_eq!("/run/r.sock".parse(), Ok(RedisAddress::Unix(PathBuf::from("/run/r.sock"))));
        assert_eq!("unix:r.sock".parse(), Ok(RedisAddress::Unix(PathBuf::from("r.sock"))));
        let tcp: RedisAddress = "127.0.0.1:6379".parse().expect("loopback");
        assert_eq!(tcp.to_string(), "127.0.0.1:6379");
        assert!("[::1]:6379".parse::<RedisAddress>().is_ok());
        assert!("10.0.0.1:6379".parse::<RedisAddress>().expect_err("not loopback").contains("bind"));
        assert!("redis".parse::<RedisAddress>().is_err());
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert!(tcp.mend(&refused).contains("redis-cli -h 127.0.0.1 -p 6379 PING"));
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        assert!(RedisAddress::Unix("/run/r.sock".into()).mend(&denied).contains("unixsocketperm"));
    }
}
