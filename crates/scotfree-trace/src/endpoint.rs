//! Sends traces to an OTLP endpoint: HTTP/1.1, JSON, plain TCP, one connection for each batch.
//!
//! Invariant: a batch is delivered, refused or given up after `attempts_max` attempts, and counted as
//! such; a hostile answer costs at most `ANSWER_BYTES_MAX` bytes and the time-out.
//!
//! The client is deliberately small. It does not speak TLS: a collector on the same host or network does
//! that better, and a TLS library would be the largest dependency of the whole project.

use crate::otlp::{encode_request, Resource};
use crate::record::CallRecord;
use crate::writer::{Shared, Sink, WriterOptions};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

const ANSWER_BYTES_MAX: u64 = 64 << 10;
const DEFAULT_PORT: u16 = 4318;
const DEFAULT_PATH: &str = "/v1/traces";

/// Where traces are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    host: String,
    port: u16,
    path: String,
}

/// Why a text is no endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no OTLP endpoint: {problem}; write it as http://HOST[:PORT][/PATH], for example http://localhost:4318")]
pub struct EndpointError {
    text: String,
    problem: &'static str,
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_endpoint(text).map_err(|problem| EndpointError { text: text.to_owned(), problem })
    }
}

fn parse_endpoint(text: &str) -> Result<Endpoint, &'static str> {
    if text.starts_with("https://") {
        return Err("TLS is not spoken here (run a collector on this host, it forwards by TLS)");
    }
    let rest = text.strip_prefix("http://").ok_or("it does not begin with http://")?;
    if rest.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return Err("it contains blanks or control characters");
    }
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    if authority.contains('@') {
        return Err("user names are not supported");
    }
    let (host, port) = split_port(authority)?;
    if host.is_empty() {
        return Err("the host is missing");
    }
    let path = if path.len() > 1 { path } else { DEFAULT_PATH };
    Ok(Endpoint { host: host.to_owned(), port, path: path.to_owned() })
}

fn split_port(authority: &str) -> Result<(&str, u16), &'static str> {
    let after_brackets = authority.rfind(']').map_or(0, |at| at + 1);
    match authority[after_brackets..].rfind(':') {
        None => Ok((authority, DEFAULT_PORT)),
        Some(at) => {
            let (host, port) = authority.split_at(after_brackets + at);
            port[1..].parse().map(|port| (host, port)).map_err(|_| "the port is not a number below 65536")
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}{}", self.host, self.port, self.path)
    }
}

pub(crate) struct EndpointSink {
    endpoint: Endpoint,
    resource: Resource,
    options: WriterOptions,
    body: Vec<u8>,
}

impl EndpointSink {
    pub(crate) fn new(endpoint: Endpoint, resource: Resource, options: WriterOptions) -> EndpointSink {
        EndpointSink { endpoint, resource, options, body: Vec::new() }
    }

    fn deliver(&self, shared: &Shared) -> Result<u64, Refusal> {
        let mut backoff = self.options.backoff;
        let mut attempt = 1;
        loop {
            let refusal = match self.post() {
                Ok(rejected) => return Ok(rejected),
                Err(refusal) => refusal,
            };
            if !refusal.is_worth_retrying || attempt >= self.options.attempts_max || shared.is_closing() {
                return Err(refusal);
            }
            shared.complain(&refusal.problem);
            pause(refusal.retry_after.unwrap_or(backoff).min(self.options.backoff_max), shared);
            backoff = (backoff * 2).min(self.options.backoff_max);
            attempt += 1;
            shared.counters.retries.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// One attempt; returns how many spans the endpoint rejected.
    fn post(&self) -> Result<u64, Refusal> {
        let answer = self.exchange().map_err(|error| Refusal {
            problem: format!("{}: {error}", self.endpoint),
            is_worth_retrying: true,
            retry_after: None,
        })?;
        parse_answer(&answer).map_err(|refusal| Refusal {
            problem: format!("{}: {}", self.endpoint, refusal.problem),
            ..refusal
        })
    }

    fn exchange(&self) -> io::Result<Vec<u8>> {
        let mut stream = self.connect()?;
        stream.set_write_timeout(Some(self.options.timeout))?;
        stream.set_nodelay(true)?;
        let Endpoint { host, port, path } = &self.endpoint;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nUser-Agent: scotfree/{}\r\nConnection: close\r\n\r\n",
            self.body.len(),
            env!("CARGO_PKG_VERSION"),
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(&self.body)?;
        read_answer(&mut stream, Instant::now() + self.options.timeout)
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let host = self.endpoint.host.trim_start_matches('[').trim_end_matches(']');
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (host, self.endpoint.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, self.options.timeout) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

impl Sink for EndpointSink {
    fn write(&mut self, batch: &[CallRecord], shared: &Shared) {
        self.body.clear();
        encode_request(&self.resource, batch, &mut self.body);
        match self.deliver(shared) {
            Err(refusal) => shared.fail(batch.len(), &refusal.problem),
            Ok(rejected) => {
                let rejected = rejected.min(batch.len() as u64);
                shared.written(batch.len() as u64 - rejected);
                if rejected > 0 {
                    shared.fail(rejected as usize, &format!("{}: it rejected spans", self.endpoint));
                }
            }
        }
    }
}

/// Why a batch was not taken.
#[derive(Debug)]
struct Refusal {
    problem: String,
    is_worth_retrying: bool,
    retry_after: Option<Duration>,
}

/// Waits, but not longer than until the writer is closed.
fn pause(span: Duration, shared: &Shared) {
    let end = Instant::now() + span;
    while let Some(rest) = end.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero()) {
        if shared.is_closing() {
            return;
        }
        thread::park_timeout(rest);
    }
}

/// Reads until the peer closes, or until the answer's own length is reached.
fn read_answer(stream: &mut TcpStream, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut chunk = [0; 4096];
    while (answer.len() as u64) < ANSWER_BYTES_MAX && !is_whole(&answer) {
        let rest = deadline.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"));
        }
        stream.set_read_timeout(Some(rest))?;
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
    }
    Ok(answer)
}

/// Whether the head is complete and as many bytes follow as it announces.
fn is_whole(answer: &[u8]) -> bool {
    let Some((head, body)) = split_head(answer) else { return false };
    header(head, "content-length")
        .and_then(|length| length.parse::<usize>().ok())
        .is_some_and(|length| body.len() >= length)
}

fn parse_answer(answer: &[u8]) -> Result<u64, Refusal> {
    let refuse = |problem: String, is_worth_retrying, retry_after| {
        Err(Refusal { problem, is_worth_retrying, retry_after })
    };
    let Some((head, body)) = split_head(answer) else {
        return refuse("the answer is not HTTP".into(), true, None);
    };
    let first_line = head.lines().next().unwrap_or_default();
    let Some(status) = status_of(first_line) else {
        return refuse("the answer is not HTTP".into(), true, None);
    };
    match status {
        200..=299 => Ok(rejected_spans(body)),
        // The codes that the OTLP specification calls retryable.
        429 | 502 | 503 | 504 => {
            let seconds = header(head, "retry-after").and_then(|value| value.parse().ok());
            refuse(format!("it answered `{first_line}`"), true, seconds.map(Duration::from_secs))
        }
        _ => refuse(format!("it answered `{first_line}`"), false, None),
    }
}

fn split_head(answer: &[u8]) -> Option<(&str, &[u8])> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    Some((std::str::from_utf8(&answer[..end]).ok()?, &answer[end + 4..]))
}

fn status_of(first_line: &str) -> Option<u16> {
    let mut words = first_line.split(' ');
    words.next().filter(|version| version.starts_with("HTTP/1."))?;
    words.next()?.parse().ok()
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .skip(1)
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
}

/// OTLP's partial success; a body that is not understood rejects nothing.
fn rejected_spans(body: &[u8]) -> u64 {
    let body: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let rejected = &body["partialSuccess"]["rejectedSpans"];
    rejected.as_u64().or_else(|| rejected.as_str()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::decode_line;
    use crate::record::{AnsweredBy, Ids, Sources};
    use crate::writer::TraceWriter;
    use scotfree_core::{Boundaries, Boundary, Nanos};
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    #[test]
    fn endpoints_are_parsed_with_defaults() {
        for (text, shown) in [
            ("http://localhost", "http://localhost:4318/v1/traces"),
            ("http://localhost:4318/", "http://localhost:4318/v1/traces"),
            ("http://[::1]:9/otlp", "http://[::1]:9/otlp"),
            ("http://[::1]", "http://[::1]:4318/v1/traces"),
        ] {
            let endpoint: Endpoint = text.parse().expect("it is an endpoint");
            assert_eq!(endpoint.to_string(), shown);
        }
        for text in
            ["https://a", "a:1", "http://", "http://a:b", "http://a:70000", "http://a b", "http://u@a"]
        {
            let error = text.parse::<Endpoint>().expect_err(text).to_string();
            assert!(error.contains(text) && error.contains("http://localhost:4318"), "{error}");
        }
    }

    #[test]
    fn batches_arrive_and_are_counted() {
        let (endpoint, server) = listener(vec!["HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"]);
        let counts = send(endpoint, 10);
        assert_eq!((counts.written, counts.failed), (10, 0));
        let requests = server.join().expect("the listener ends");
        assert!(requests[0].0.starts_with("POST /v1/traces HTTP/1.1\r\n"));
        assert_eq!(decode_line(&requests[0].1).expect("the body is OTLP").calls.len(), 10);
    }

    #[test]
    fn an_overloaded_endpoint_is_tried_again() {
        let (endpoint, server) = listener(vec![
            "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
            "",
            "HTTP/1.1 200 OK\r\n\r\n{\"partialSuccess\":{\"rejectedSpans\":\"3\"}}",
        ]);
        let writer = writer(endpoint);
        (0..10).for_each(|at| writer.handle().record(call(at)));
        let deadline = Instant::now() + Duration::from_secs(20);
        while writer.counts().written == 0 && Instant::now() < deadline {
            thread::yield_now();
        }
        assert_eq!(server.join().expect("the listener ends").len(), 3);
        let counts = writer.close();
        assert_eq!((counts.written, counts.failed, counts.retries), (7, 3, 2));
    }

    #[test]
    fn a_refused_batch_is_not_tried_again() {
        let (endpoint, server) = listener(vec!["HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"]);
        let counts = send(endpoint, 10);
        assert_eq!((counts.written, counts.failed, counts.retries), (0, 10, 0));
        server.join().expect("the listener ends");
    }

    #[test]
    fn attempts_end_and_the_error_names_the_endpoint() {
        // A port that was bound and is free again: nobody listens.
        let port = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port();
        let endpoint: Endpoint = format!("http://127.0.0.1:{port}").parse().expect("it is an endpoint");
        let writer = writer(endpoint);
        let (sender, said) = std::sync::mpsc::channel();
        writer.on_trouble(move |line| sender.send(line.to_owned()).expect("the test listens"));
        writer.handle().record(call(1));
        let line = said.recv_timeout(Duration::from_secs(20)).expect("it is said at the first attempt");
        assert!(line.starts_with("ALARM") && line.contains(&format!("127.0.0.1:{port}")), "{line}");
        let deadline = Instant::now() + Duration::from_secs(20);
        while writer.counts().failed == 0 && Instant::now() < deadline {
            thread::yield_now();
        }
        assert_eq!(writer.counts().retries, 2);
        assert!(writer.first_error().is_some_and(|error| error.contains(&format!("127.0.0.1:{port}"))));
    }

    #[test]
    fn hostile_answers_are_refusals() {
        for answer in
            [&b""[..], b"\r\n\r\n", b"HTTP/1.1\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"\xff\xfe\r\n\r\n"]
        {
            assert!(parse_answer(answer).is_err());
        }
    }

    fn writer(endpoint: Endpoint) -> TraceWriter {
        let options = WriterOptions {
            linger: Duration::from_millis(100),
            attempts_max: 3,
            backoff: Duration::from_millis(1),
            backoff_max: Duration::from_millis(5),
            ..WriterOptions::default()
        };
        let resource = Resource { service: "test".into(), instance: None, peer: None };
        TraceWriter::to_endpoint(endpoint, resource, options)
    }

    fn send(endpoint: Endpoint, count: u64) -> crate::TraceCounts {
        let writer = writer(endpoint);
        (0..count).for_each(|at| writer.handle().record(call(at)));
        writer.close()
    }

    type Requests = Vec<(String, Vec<u8>)>;

    /// Answers one connection after the other with the texts given; returns the requests.
    fn listener(answers: Vec<&'static str>) -> (Endpoint, JoinHandle<Requests>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
        let address = listener.local_addr().expect("it is bound");
        let serve = move |answer: &str| {
            let (mut stream, _) = listener.accept().expect("the sink connects");
            let request = read_request(&mut stream);
            stream.write_all(answer.as_bytes()).expect("the sink reads");
            request
        };
        let thread = thread::spawn(move || answers.into_iter().map(serve).collect());
        (format!("http://{address}").parse().expect("it is an endpoint"), thread)
    }

    fn read_request(stream: &mut TcpStream) -> (String, Vec<u8>) {
        let mut bytes = Vec::new();
        let mut chunk = [0; 4096];
        while !is_whole(&bytes) {
            let count = stream.read(&mut chunk).expect("the sink writes");
            bytes.extend_from_slice(&chunk[..count]);
        }
        let (head, body) = split_head(&bytes).expect("the request is whole");
        (head.to_owned(), body.to_owned())
    }

    fn call(at: u64) -> CallRecord {
        let mut boundaries = Boundaries::default();
        boundaries.stamp(Boundary::Called, Nanos(1_000 + at));
        boundaries.stamp(Boundary::Resumed, Nanos(9_000 + at));
        let mut ids = Ids::from_seed(at);
        CallRecord {
            trace_id: ids.trace_id(),
            span_id: ids.span_id(),
            parent_span_id: None,
            method: "SET".into(),
            start_unix_ns: at,
            boundaries,
            sources: Sources::default(),
            clock_bound_ns: None,
            answered_by: AnsweredBy::Server,
            key: None,
            request_bytes: 1,
            response_bytes: 1,
            cpu_ns: None,
            error: None,
        }
    }
}
