//! A service for tests: lists, strings and counters in memory, which can break connections and refuse.
//!
//! Invariant: it applies each command once, before it replies.

use crate::resp::{read_reply, Reply};
use std::collections::BTreeMap;
use std::io::{BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

pub(crate) struct FakeRedis {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    lists: Mutex<BTreeMap<Vec<u8>, Vec<Vec<u8>>>>,
    connections: Mutex<Vec<TcpStream>>,
    refusals: AtomicU32,
    delay_us: AtomicU32,
    is_over: AtomicBool,
}

impl FakeRedis {
    pub(crate) fn start() -> FakeRedis {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared::default());
        let for_thread = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &for_thread));
        FakeRedis { address, shared }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn break_connections(&self) {
        for connection in lock(&self.shared.connections).drain(..) {
            // The client may have closed it already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Answers the next `count` commands with an error.
    pub(crate) fn refuse(&self, count: u32) {
        self.shared.refusals.store(count, Ordering::SeqCst);
    }

    /// Works this long on each command.
    pub(crate) fn delay(&self, span: Duration) {
        self.shared.delay_us.store(span.as_micros() as u32, Ordering::SeqCst);
    }

    pub(crate) fn change_list(&self, key: &str, change: impl FnOnce(&mut Vec<Vec<u8>>)) {
        change(lock(&self.shared.lists).entry(key.as_bytes().to_vec()).or_default());
    }
}

impl Drop for FakeRedis {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts, which then closes the listener.
        let _ = TcpStream::connect(self.address);
        crate::process::wait_until(Duration::from_secs(5), || TcpStream::connect(self.address).is_err());
        self.break_connections();
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept() {
        if shared.is_over.load(Ordering::SeqCst) {
            return;
        }
        lock(&shared.connections).push(stream.try_clone().expect("a socket can be shared"));
        let shared = Arc::clone(shared);
        thread::spawn(move || serve(stream, &shared));
    }
}

fn serve(mut stream: TcpStream, shared: &Shared) {
    stream.set_nodelay(true).expect("a socket has options");
    let mut reader = BufReader::new(stream.try_clone().expect("a socket can be shared"));
    while let Ok(Reply::Array(words)) = read_reply(&mut reader) {
        let words: Vec<Vec<u8>> = words
            .into_iter()
            .map(|word| match word {
                Reply::Bulk(bytes) => bytes,
                other => panic!("a command is made of strings, not {other:?}"),
            })
            .collect();
        let mut reply = Vec::new();
        shared.execute(&words, &mut reply);
        if stream.write_all(&reply).is_err() {
            return;
        }
    }
}

impl Shared {
    fn execute(&self, words: &[Vec<u8>], out: &mut Vec<u8>) {
        thread::sleep(Duration::from_micros(u64::from(self.delay_us.load(Ordering::SeqCst))));
        let refuse = |left: u32| left.checked_sub(1);
        if self.refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, refuse).is_ok() {
            out.extend_from_slice(b"-LOADING not yet\r\n");
            return;
        }
        let mut lists = lock(&self.lists);
        match (words[0].as_slice(), &words[1..]) {
            (b"RPUSH", [key, value]) => {
                let list = lists.entry(key.clone()).or_default();
                list.push(value.clone());
                write!(out, ":{}\r\n", list.len()).expect("memory");
            }
            (b"SET", [key, value]) => {
                lists.insert(key.clone(), vec![value.clone()]);
                out.extend_from_slice(b"+OK\r\n");
            }
            (b"GET", [key]) => match lists.get(key).and_then(|list| list.first()) {
                None => out.extend_from_slice(b"$-1\r\n"),
                Some(value) => push_bulk(value, out),
            },
            (b"MGET", keys) => {
                write!(out, "*{}\r\n", keys.len()).expect("memory");
                for key in keys {
                    match lists.get(key).and_then(|list| list.first()) {
                        None => out.extend_from_slice(b"$-1\r\n"),
                        Some(value) => push_bulk(value, out),
                    }
                }
            }
            (b"INCR", [key]) => {
                let list = lists.entry(key.clone()).or_default();
                list.push(Vec::new());
                write!(out, ":{}\r\n", list.len()).expect("memory");
            }
            (b"LRANGE", [key, first, last]) => {
                let number = |text: &[u8]| String::from_utf8_lossy(text).parse::<usize>().expect("an index");
                let list = lists.get(key).map_or(&[][..], Vec::as_slice);
                let end = (number(last) + 1).min(list.len());
                let part = &list[number(first).min(end)..end];
                write!(out, "*{}\r\n", part.len()).expect("memory");
                for value in part {
                    push_bulk(value, out);
                }
            }
            _ => out.extend_from_slice(b"-ERR unknown command\r\n"),
        }
    }
}

fn push_bulk(value: &[u8], out: &mut Vec<u8>) {
    write!(out, "${}\r\n", value.len()).expect("memory");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no test panics with the lock")
}
