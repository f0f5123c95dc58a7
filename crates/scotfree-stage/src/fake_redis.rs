//! A service for tests: lists, strings and counters in memory, which can break connections and refuse.
//!
//! Invariant: it applies each command once, before it replies.

use scotfree_resp::codec::{
    write_bulk, write_error, write_header, write_integer, write_null, write_simple, Limits, RequestDecoder,
};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// A service that speaks RESP, with a Redis's strings and lists.
#[derive(Debug)]
pub struct FakeRedis {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    lists: Mutex<BTreeMap<Vec<u8>, Vec<Vec<u8>>>>,
    connections: Mutex<Vec<TcpStream>>,
    refusals: AtomicU32,
    delay_us: AtomicU32,
    replicas: AtomicU32,
    is_over: AtomicBool,
}

impl FakeRedis {
    /// Starts one on loopback.
    pub fn start() -> FakeRedis {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared::default());
        let for_thread = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &for_thread));
        FakeRedis { address, shared }
    }

    /// Where it serves.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all connections.
    pub fn break_connections(&self) {
        for connection in lock(&self.shared.connections).drain(..) {
            // The client may have closed it already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Answers the next `count` commands with an error.
    pub fn refuse(&self, count: u32) {
        self.shared.refusals.store(count, Ordering::SeqCst);
    }

    /// Works this long on each command.
    pub fn delay(&self, span: Duration) {
        self.shared.delay_us.store(span.as_micros() as u32, Ordering::SeqCst);
    }

    /// Says to who waits that so many replicas have his write.
    pub fn replicate(&self, count: u32) {
        self.shared.replicas.store(count, Ordering::SeqCst);
    }

    /// Changes a list as no client would.
    pub fn change_list(&self, key: &str, change: impl FnOnce(&mut Vec<Vec<u8>>)) {
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
    let mut requests = RequestDecoder::new(Limits::default());
    let mut buffer = [0; 4_096];
    loop {
        while let Some(args) = requests.pop(true).expect("a client of ours speaks RESP") {
            let words: Vec<Vec<u8>> = args.iter().map(<[u8]>::to_vec).collect();
            let mut reply = Vec::new();
            shared.execute(&words, &mut reply);
            if stream.write_all(&reply).is_err() {
                return;
            }
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(count) => requests.push(&buffer[..count]),
        }
    }
}

impl Shared {
    fn execute(&self, words: &[Vec<u8>], out: &mut Vec<u8>) {
        thread::sleep(Duration::from_micros(u64::from(self.delay_us.load(Ordering::SeqCst))));
        let refuse = |left: u32| left.checked_sub(1);
        if self.refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, refuse).is_ok() {
            write_error(out, "LOADING not yet");
            return;
        }
        let mut lists = lock(&self.lists);
        match (words[0].as_slice(), &words[1..]) {
            (b"RPUSH", [key, value]) => {
                let list = lists.entry(key.clone()).or_default();
                list.push(value.clone());
                write_integer(out, list.len() as i64);
            }
            (b"SET", [key, value]) => {
                lists.insert(key.clone(), vec![value.clone()]);
                write_simple(out, "OK");
            }
            (b"WAIT", [_, _]) => write_integer(out, i64::from(self.replicas.load(Ordering::SeqCst))),
            (b"GET", [key]) => match lists.get(key).and_then(|list| list.first()) {
                None => write_null(out, false),
                Some(value) => write_bulk(out, value),
            },
            (b"MGET", keys) => {
                write_header(out, keys.len());
                for key in keys {
                    match lists.get(key).and_then(|list| list.first()) {
                        None => write_null(out, false),
                        Some(value) => write_bulk(out, value),
                    }
                }
            }
            (b"INCR", [key]) => {
                let list = lists.entry(key.clone()).or_default();
                list.push(Vec::new());
                write_integer(out, list.len() as i64);
            }
            (b"LRANGE", [key, first, last]) => {
                let number = |text: &[u8]| String::from_utf8_lossy(text).parse::<usize>().expect("an index");
                let list = lists.get(key).map_or(&[][..], Vec::as_slice);
                let end = (number(last) + 1).min(list.len());
                let part = &list[number(first).min(end)..end];
                write_header(out, part.len());
                for value in part {
                    write_bulk(out, value);
                }
            }
            (b"PING", []) => write_simple(out, "PONG"),
            _ => write_error(out, "ERR unknown command"),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no test panics with the lock")
}
