//! A unix socket in front of a real server that misbehaves once for each fault that is planted.
//!
//! Invariant: without a planted fault it passes every byte.
#![allow(dead_code)] // Each test file uses its own part.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// What happens to the connection on which the needle passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is closed, and the server never sees the bytes.
    DropBefore,
    /// The server sees the bytes, its answer is lost with the connection.
    DropAfter,
    /// The server sees the bytes, and its answer is replaced by nonsense.
    Nonsense,
}

type Faults = Arc<Mutex<Vec<(String, Fault)>>>;

/// The proxy; its threads end with their connections.
pub struct Proxy {
    /// Where it listens.
    pub path: PathBuf,
    faults: Faults,
}

impl Proxy {
    /// Listens beside `server`.
    pub fn start(server: &Path) -> Proxy {
        Proxy::with(server, false)
    }

    /// Listens beside `server`, which seems to be a Redis 7.2 with WAITAOF.
    pub fn newer(server: &Path) -> Proxy {
        Proxy::with(server, true)
    }

    fn with(server: &Path, newer: bool) -> Proxy {
        let path = server.with_extension("proxy");
        let listener = UnixListener::bind(&path).expect("the folder is ours");
        let faults = Faults::default();
        let (server, for_thread) = (server.to_owned(), Arc::clone(&faults));
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let Ok(server) = UnixStream::connect(&server) else { continue };
                carry(client, server, Arc::clone(&for_thread), newer);
            }
        });
        Proxy { path, faults }
    }

    /// The next connection on which `needle` passes misbehaves, once.
    pub fn plant(&self, needle: &str, fault: Fault) {
        self.faults.lock().expect("no thread panics").push((needle.to_owned(), fault));
    }
}

fn carry(client: UnixStream, server: UnixStream, faults: Faults, newer: bool) {
    let struck: Arc<Mutex<Option<Fault>>> = Arc::default();
    let (mut from, mut to) = (client.try_clone().expect("a copy"), server.try_clone().expect("a copy"));
    let for_requests = Arc::clone(&struck);
    std::thread::spawn(move || {
        pump(&mut from, &mut to, |bytes| {
            let fault = take(&faults, bytes)?;
            *for_requests.lock().expect("no thread panics") = Some(fault);
            Some(fault).filter(|fault| *fault == Fault::DropBefore).map(|_| Vec::new())
        });
    });
    let (mut from, mut to) = (server, client);
    std::thread::spawn(move || {
        pump(&mut from, &mut to, |bytes| match *struck.lock().expect("no thread panics") {
            Some(Fault::Nonsense) => Some(b"HTTP/1.1 400 Bad Request\r\n".to_vec()),
            Some(Fault::DropAfter) => Some(Vec::new()),
            Some(Fault::DropBefore) | None => newer.then(|| renewed(bytes)),
        });
    });
}

/// What Redis 7.2 would have said.
fn renewed(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let refusal = text.lines().find(|line| line.contains("unknown command 'WAITAOF'")).unwrap_or("nothing");
    // Versions are equally long, so that lengths stay right.
    text.replace("redis_version:7.0.", "redis_version:7.2.").replace(refusal, "*2\r\n:1\r\n:0").into_bytes()
}

fn take(faults: &Faults, bytes: &[u8]) -> Option<Fault> {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let mut faults = faults.lock().expect("no thread panics");
    let index = faults.iter().position(|(needle, _)| text.contains(needle.as_str()))?;
    Some(faults.remove(index).1)
}

/// Passes bytes on. `change` may replace them; nothing means the end of the connection.
fn pump(from: &mut UnixStream, to: &mut UnixStream, mut change: impl FnMut(&[u8]) -> Option<Vec<u8>>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let changed = change(&buffer[..count]);
        let bytes = changed.as_deref().unwrap_or(&buffer[..count]);
        if bytes.is_empty() || to.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
