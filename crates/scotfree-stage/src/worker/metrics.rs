//! Reads a daemon's `/metrics` from inside its namespace.
//!
//! Invariant: only whole numbers are reported, those with labels under their whole name; seconds are reported as whole
//! microseconds, with `_us` for `_seconds`; what else a daemon says is left out, and how histograms spread over buckets.

use crate::trouble::Trouble;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Which daemon's.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MetricsSpec {
    /// Where it answers.
    pub address: SocketAddr,
}

/// What a daemon has counted, by name.
pub type Counts = BTreeMap<String, u64>;

/// Reads them.
pub fn read(spec: &MetricsSpec) -> Result<Counts, Trouble> {
    let broke = |error: io::Error| {
        let next = "see whether the daemon runs and has this address for its metrics";
        Trouble::new(format!("read the metrics at {}", spec.address), error, next)
    };
    let answer = fetch(spec.address, "/metrics").map_err(broke)?;
    let body = answer.split_once("\r\n\r\n").filter(|(head, _)| head.starts_with("HTTP/1.1 200"));
    let body =
        body.map(|(_, body)| body).ok_or_else(|| broke(io::Error::other("it is no answer with metrics")))?;
    Ok(parse(body))
}

/// The status and the body of what a daemon answers there to any other target.
pub fn get(address: SocketAddr, target: &str) -> Result<(u16, String), Trouble> {
    let broke = |error: io::Error| {
        let next = "see whether the daemon runs and has this address for its metrics";
        Trouble::new(format!("ask the daemon at {address}"), error, next)
    };
    let answer = fetch(address, target).map_err(broke)?;
    let status = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    let found = status.zip(answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()));
    found.ok_or_else(|| broke(io::Error::other("it does not answer as a daemon does")))
}

fn fetch(address: SocketAddr, target: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream
        .write_all(format!("GET {target} HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    Ok(answer)
}

fn parse(body: &str) -> Counts {
    let is_bucket = |line: &str| line.split('{').next().is_some_and(|name| name.ends_with("_bucket"));
    let lines = body.lines().filter(|line| !line.starts_with('#') && !is_bucket(line));
    let pair = |line: &str| {
        // A label may hold a blank, a value does not.
        let (name, value) = line.rsplit_once(' ')?;
        if let Some(name) = name.strip_suffix("_seconds") {
            let seconds: f64 = value.trim().parse().ok()?;
            return Some((format!("{name}_us"), (seconds * 1e6).round() as u64));
        }
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    lines.filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn counters_are_read_and_all_else_is_left_out() {
        let histogram = "wait_seconds_bucket{le=\"1.0\"} 2\nwait_seconds_sum 0.5\nwait_seconds_count 3\n";
        let others = "# HELP a b\na_total 7\nb{c=\"d e\"} 8\nage 0.5\nage_seconds 0.25\nlast 9\n";
        let counts = parse(&(others.to_owned() + histogram));
        let expected = [
            ("a_total".into(), 7),
            ("age_us".into(), 250_000),
            ("b{c=\"d e\"}".into(), 8),
            ("last".into(), 9),
            ("wait_seconds_count".into(), 3),
        ];
        assert_eq!(counts, Counts::from(expected));
    }

    #[test]
    fn an_answer_that_is_none_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
        let address = listener.local_addr().expect("it is bound");
        for (answer, is_good) in
            [("HTTP/1.1 200 OK\r\n\r\na 1\n", true), ("HTTP/1.1 503 No\r\n\r\na 1\n", false), ("", false)]
        {
            let listener = listener.try_clone().expect("a socket can be shared");
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().expect("somebody connects");
                let mut request = [0; 128];
                assert!(stream.read(&mut request).expect("a request") > 0);
                stream.write_all(answer.as_bytes()).expect("it is read");
            });
            assert_eq!(read(&MetricsSpec { address }).is_ok(), is_good, "{answer}");
            server.join().expect("no panic");
        }
    }
}
