//! A listener that answers `GET /metrics`, `/healthz`, `/events` and signed questions, polled in the plane's own loop.
//!
//! Invariant: it never blocks, holds at most `METRICS_CONNECTIONS_MAX` connections and reads at most
//! `REQUEST_BYTES_MAX` of each; at the first limit the oldest connection is closed, at the second the
//! asker is told that the request is too long.

use scotfree_core::Nanos;
use scotfree_io::exposition::Format;
use scotfree_io::{Interest, Poller};
use scotfree_wire::questions::is_question;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

/// How many connections are held at a time.
pub const METRICS_CONNECTIONS_MAX: usize = 16;
const REQUEST_BYTES_MAX: usize = 4_096;
/// A connection that has not been served by then is closed.
const PATIENCE: Nanos = Nanos::from_secs(5);

/// What the answers are made of.
pub trait Pages {
    /// The text of `/metrics`.
    fn metrics(&mut self) -> String;
    /// Whether `/healthz` says that all is well, and what it says.
    fn health(&mut self) -> (bool, String);
    /// The text of `/events`: a line for each of the last packets that were sampled.
    fn events(&mut self) -> String;
    /// The answer to a question to a function, by its target ([`scotfree_wire::questions`]); or why there is none.
    fn ask(&mut self, target: &str) -> Result<String, String>;
}

/// The listener and its connections.
#[derive(Debug)]
pub struct MetricsListener {
    listener: TcpListener,
    connections: Vec<Connection>,
    key_first: u64,
    next_key: u64,
}

#[derive(Debug)]
struct Connection {
    key: u64,
    stream: TcpStream,
    opened_at: Nanos,
    request: Vec<u8>,
    answer: Vec<u8>,
}

enum Progress {
    Waiting,
    WaitingToWrite,
    Done,
}

impl MetricsListener {
    /// Listens at `address`. Poll keys from `key_first` on are its own.
    pub fn bind(address: SocketAddr, poller: &Poller, key_first: u64) -> io::Result<MetricsListener> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        poller.add(listener.as_raw_fd(), key_first, Interest::Read)?;
        Ok(MetricsListener { listener, connections: Vec::new(), key_first, next_key: key_first + 1 })
    }

    /// Where it listens.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// A descriptor with `key` is ready.
    pub fn on_ready(&mut self, now: Nanos, key: u64, poller: &Poller, pages: &mut dyn Pages) {
        if key == self.key_first {
            self.accept(now, poller);
            return;
        }
        let Some(index) = self.connections.iter().position(|one| one.key == key) else { return };
        let connection = &mut self.connections[index];
        match connection.advance(pages) {
            Progress::Waiting => {}
            Progress::WaitingToWrite => {
                let watched = poller.modify(connection.stream.as_raw_fd(), key, Interest::Write);
                if watched.is_err() {
                    self.connections.swap_remove(index);
                }
            }
            Progress::Done => {
                self.connections.swap_remove(index);
            }
        }
    }

    /// Closes connections that have had their time.
    pub fn on_timer(&mut self, now: Nanos) {
        self.connections.retain(|one| now.since(one.opened_at) < PATIENCE);
    }

    /// When to call [`MetricsListener::on_timer`] next.
    pub fn next_timer(&self) -> Option<Nanos> {
        self.connections.iter().map(|one| one.opened_at.plus(PATIENCE)).min()
    }

    fn accept(&mut self, now: Nanos, poller: &Poller) {
        while let Ok((stream, _)) = self.listener.accept() {
            let key = self.next_key;
            let watched = stream
                .set_nonblocking(true)
                .and_then(|()| poller.add(stream.as_raw_fd(), key, Interest::Read));
            if watched.is_err() {
                continue;
            }
            self.next_key += 1;
            if self.connections.len() >= METRICS_CONNECTIONS_MAX {
                self.connections.remove(0);
            }
            let connection =
                Connection { key, stream, opened_at: now, request: Vec::new(), answer: Vec::new() };
            self.connections.push(connection);
        }
    }
}

impl Connection {
    fn advance(&mut self, pages: &mut dyn Pages) -> Progress {
        if self.answer.is_empty() {
            match self.read() {
                Ok(true) => self.answer = answer(&self.request, pages),
                Ok(false) => return Progress::Waiting,
                Err(_) => return Progress::Done,
            }
        }
        self.write()
    }

    /// Whether the request is whole.
    fn read(&mut self) -> io::Result<bool> {
        let mut room = [0; 1_024];
        loop {
            match self.stream.read(&mut room) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.request.extend_from_slice(&room[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            let whole = self.request.windows(4).any(|end| end == b"\r\n\r\n");
            if whole || self.request.len() > REQUEST_BYTES_MAX {
                return Ok(true);
            }
        }
    }

    fn write(&mut self) -> Progress {
        while !self.answer.is_empty() {
            match self.stream.write(&self.answer) {
                Ok(0) => return Progress::Done,
                Ok(count) => drop(self.answer.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Progress::WaitingToWrite,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Progress::Done,
            }
        }
        Progress::Done
    }
}

fn answer(request: &[u8], pages: &mut dyn Pages) -> Vec<u8> {
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    let mut format = Format::Classic;
    let (status, body) = if request.len() > REQUEST_BYTES_MAX {
        ("431 Request Header Fields Too Large", "the request is too long\n".to_owned())
    } else if method != b"GET" {
        ("405 Method Not Allowed", "only GET is answered here\n".to_owned())
    } else if path == b"/metrics" {
        format = Format::asked_by(request);
        ("200 OK", format.of(&pages.metrics()))
    } else if path == b"/events" {
        ("200 OK", pages.events())
    } else if is_question(target) {
        match pages.ask(&String::from_utf8_lossy(target)) {
            Ok(answer) => ("200 OK", answer),
            Err(why) => ("403 Forbidden", why + "\n"),
        }
    } else if path == b"/healthz" {
        let (well, text) = pages.health();
        (if well { "200 OK" } else { "503 Service Unavailable" }, text)
    } else {
        ("404 Not Found", "here are /metrics, /healthz and /events\n".to_owned())
    };
    let length = body.len();
    let content_type = format.content_type();
    let head = format!("Content-Type: {content_type}\r\nConnection: close\r\n");
    format!("HTTP/1.1 {status}\r\n{head}Content-Length: {length}\r\n\r\n{body}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_io::now_monotonic;
    use std::time::Duration;

    struct Fixed;

    impl Pages for Fixed {
        fn metrics(&mut self) -> String {
            "scotfree_up 1\n".repeat(20_000)
        }

        fn health(&mut self) -> (bool, String) {
            (false, "the disk is gone\n".to_owned())
        }

        fn events(&mut self) -> String {
            "{\"session\":1}\n".to_owned()
        }

        fn ask(&mut self, target: &str) -> Result<String, String> {
            target.strip_suffix("?good").map(str::to_owned).ok_or_else(|| "it is not signed".to_owned())
        }
    }

    /// Serves until `client` has what it wanted.
    fn serve(
        mut listener: MetricsListener,
        mut poller: Poller,
        client: std::thread::JoinHandle<String>,
    ) -> String {
        while !client.is_finished() {
            let events = poller.wait(Some(Duration::from_millis(5))).expect("a wait").to_vec();
            for event in events {
                listener.on_ready(now_monotonic(), event.key, &poller, &mut Fixed);
            }
        }
        client.join().expect("the client ends")
    }

    fn ask(request: &'static [u8]) -> String {
        let poller = Poller::new(8).expect("a poller");
        let address = "127.0.0.1:0".parse().expect("an address");
        let listener = MetricsListener::bind(address, &poller, 100).expect("a listener");
        let address = listener.local_address().expect("an address");
        let client = std::thread::spawn(move || {
            let mut stream = TcpStream::connect(address).expect("a connection");
            stream.write_all(request).expect("a request");
            let mut text = String::new();
            // A refused request may end in a reset after the answer; the answer is what counts.
            let _ = stream.read_to_string(&mut text);
            text
        });
        serve(listener, poller, client)
    }

    #[test]
    fn metrics_come_whole_even_when_they_are_long() {
        let text = ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{}", &text[..60]);
        assert!(text.ends_with("scotfree_up 1\n"));
        assert!(text.len() > 280_000);
    }

    #[test]
    fn questions_to_functions_are_answered_or_told_why_not() {
        let good = ask(b"GET /functions/cache?good HTTP/1.1\r\n\r\n");
        assert!(good.starts_with("HTTP/1.1 200") && good.ends_with("/functions/cache"), "{good}");
        let bad = ask(b"GET /functions/cache?bad HTTP/1.1\r\n\r\n");
        assert!(bad.starts_with("HTTP/1.1 403") && bad.ends_with("it is not signed\n"), "{bad}");
    }

    #[test]
    fn who_asks_for_open_metrics_gets_them() {
        let text = ask(b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n");
        assert!(
            text.contains("\r\nContent-Type: application/openmetrics-text; version=1.0.0;"),
            "{}",
            &text[..90]
        );
        assert!(text.ends_with("scotfree_up 1\n# EOF\n"));
        let health = ask(b"GET /healthz HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n");
        assert!(health.contains("text/plain") && health.ends_with("the disk is gone\n"), "{health}");
    }

    #[test]
    fn health_says_what_is_wrong_and_other_requests_what_is_here() {
        assert!(ask(b"GET /healthz HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 503"));
        assert!(ask(b"GET / HTTP/1.0\r\n\r\n").contains("/metrics, /healthz and /events"));
        assert!(ask(b"GET /events HTTP/1.0\r\n\r\n").ends_with("{\"session\":1}\n"));
        assert!(ask(b"POST /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert!(ask(b"\r\n\r\n").starts_with("HTTP/1.1 405"));
    }

    #[test]
    fn a_connection_that_says_nothing_is_closed_in_time() {
        let poller = Poller::new(8).expect("a poller");
        let address = "127.0.0.1:0".parse().expect("an address");
        let mut listener = MetricsListener::bind(address, &poller, 100).expect("a listener");
        let address = listener.local_address().expect("an address");
        let silent: Vec<TcpStream> =
            (0..20).map(|_| TcpStream::connect(address).expect("a connection")).collect();
        listener.on_ready(Nanos(1), 100, &poller, &mut Fixed);
        assert_eq!(listener.connections.len(), METRICS_CONNECTIONS_MAX);
        let end = listener.next_timer().expect("a deadline");
        listener.on_timer(end);
        assert!(listener.connections.is_empty());
        drop(silent);
    }
}
