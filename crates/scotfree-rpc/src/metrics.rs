//! Metrics as Prometheus text, and a small HTTP listener that serves them.
//!
//! Invariant: the listener never touches the event loop: it serves the text that the loop published
//! last, and says `503` when the loop has published nothing for [`STALE_AFTER`].

mod several;

use scotfree_core::Nanos;
use scotfree_io::advice::after_listening;
use scotfree_io::exposition::write_histogram;
pub use scotfree_io::exposition::{DurationHistogram, Exemplar, Exemplars, Format};
use scotfree_wire::questions::is_question;
use std::fmt::{self, Display, Write as _};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The largest HTTP request that is read; a longer one is answered with 431.
pub const REQUEST_BYTES_MAX: usize = 4_096;
/// How long one connection may take; then it is closed.
pub const CONNECTION_TIME_MAX: Duration = Duration::from_secs(2);
/// So many connections are served at once; further ones are closed.
const CONNECTIONS_MAX: usize = 64;
/// A loop that has published nothing for so long is not healthy.
pub const STALE_AFTER: Duration = Duration::from_secs(5);

/// What a family of samples means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows while the process lives.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Durations, by bucket.
    Histogram,
}

/// Prometheus text in the making.
#[derive(Debug, Default)]
pub struct MetricsText {
    out: String,
}

impl MetricsText {
    /// An empty text.
    pub fn new() -> Self {
        Self::default()
    }

    /// A counter with one sample.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(MetricKind::Counter, name, help);
        self.sample(name, &[], value);
    }

    /// A gauge with one sample.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(MetricKind::Gauge, name, help);
        self.sample(name, &[], value);
    }

    /// Begins a family; its samples follow.
    pub fn family(&mut self, kind: MetricKind, name: &str, help: &str) {
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a String cannot fail.
        let _ = write!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// One sample of the family begun last.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.out.push_str(name);
        for (position, (label, text)) in labels.iter().enumerate() {
            self.out.push(if position == 0 { '{' } else { ',' });
            let _ = write!(self.out, "{label}=\"{}\"", escaped(text));
        }
        if !labels.is_empty() {
            self.out.push('}');
        }
        let _ = writeln!(self.out, " {value}");
    }

    /// A histogram of durations of the family begun last, whose name ends in `_seconds`.
    pub fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        histogram: &DurationHistogram,
        exemplars: Option<&Exemplars>,
    ) {
        let pair = |(label, text): &(&str, &str)| format!("{label}=\"{}\"", escaped(text));
        let labels = labels.iter().map(pair).collect::<Vec<_>>().join(",");
        write_histogram(&mut self.out, name, &labels, histogram, exemplars);
    }

    /// The text, in which exemplars stand behind their samples: see [`Format`].
    pub fn as_str(&self) -> &str {
        &self.out
    }

    /// Forgets all, keeping the memory.
    pub fn clear(&mut self) {
        self.out.clear();
    }
}

/// A label's value as the format has it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Whether a process does its work, in its own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It does.
    Serving,
    /// It does not, and says why: recovering, draining.
    NotServing(&'static str),
}

#[derive(Debug)]
struct Board {
    text: String,
    health: Health,
    /// When, last; a loop that starts may take its time.
    published: Option<Instant>,
    /// Why the loop has ended, if it has.
    ended: Option<String>,
}

impl Board {
    /// Why the loop does not serve, if so.
    fn trouble(&self) -> Option<&str> {
        let is_stale = self.published.is_some_and(|at| at.elapsed() > STALE_AFTER);
        match self.health {
            _ if self.ended.is_some() => self.ended.as_deref(),
            _ if is_stale => Some("the event loop has stopped turning"),
            Health::Serving => None,
            Health::NotServing(why) => Some(why),
        }
    }
}

type Writer = Box<dyn Fn(&mut MetricsText) + Send>;
/// Answers a question by its target, or says why not.
type Answerer = Box<dyn Fn(&str) -> Result<String, String> + Send>;

struct Shared {
    board: Mutex<Board>,
    published: Condvar,
    /// What is not the loop's, written when somebody asks.
    others: Mutex<Vec<Writer>>,
    answerer: Mutex<Option<Answerer>>,
}

/// Where a loop puts its metrics for the listener. Clones share one board.
#[derive(Clone)]
pub struct MetricsBoard(Arc<Shared>);

impl fmt::Debug for MetricsBoard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MetricsBoard").field(&self.0.board).finish()
    }
}

impl Default for MetricsBoard {
    fn default() -> Self {
        let health = Health::NotServing("starting");
        let board = Board { text: String::new(), health, published: None, ended: None };
        MetricsBoard(Arc::new(Shared {
            board: Mutex::new(board),
            published: Condvar::new(),
            others: Mutex::default(),
            answerer: Mutex::default(),
        }))
    }
}

impl MetricsBoard {
    /// A board that says "starting".
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces what the listener serves.
    pub fn publish(&self, text: &MetricsText, health: Health) {
        let mut board = self.lock();
        board.text.clear();
        board.text.push_str(text.as_str());
        board.health = health;
        board.published = Some(Instant::now());
        drop(board);
        self.0.published.notify_all();
    }

    /// The loop does not serve, for this reason, and has nothing else to say yet.
    pub fn hold(&self, why: &'static str) {
        let mut board = self.lock();
        board.health = Health::NotServing(why);
        board.published = None;
    }

    /// The loop has ended, which the process outlasts: what it counted is shown no more, and health is this reason.
    pub fn end(&self, why: &str) {
        let mut board = self.lock();
        board.text.clear();
        board.ended = Some(why.replace('\n', " "));
    }

    /// Adds metrics that the loop does not know, such as those of a thread beside it. `write` is called for
    /// every answer, in the listener's thread.
    pub fn add(&self, write: impl Fn(&mut MetricsText) + Send + 'static) {
        self.0.others.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(write));
    }

    /// An operator's questions ([`scotfree_wire::questions`]) are answered by `answer` from now on, which is given a
    /// target, in the listener's thread: others wait meanwhile.
    pub fn answer_questions(&self, answer: impl Fn(&str) -> Result<String, String> + Send + 'static) {
        *self.0.answerer.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(answer));
    }

    /// The answer to a question; none if nobody answers any.
    fn ask(&self, target: &str) -> Option<Result<String, String>> {
        let answerer = self.0.answerer.lock().unwrap_or_else(PoisonError::into_inner);
        answerer.as_ref().map(|answer| answer(target))
    }

    /// Waits until the loop says that it serves, which may be never.
    pub fn wait_until_serving(&self) {
        let mut board = self.lock();
        while board.health != Health::Serving {
            board = self.0.published.wait(board).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What was published last about the loop's health.
    pub fn health(&self) -> Health {
        self.lock().health
    }

    // A publisher that panicked left a whole text or an empty one: both may be served.
    fn lock(&self) -> MutexGuard<'_, Board> {
        self.0.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn others(&self) -> MetricsText {
        let mut text = MetricsText::new();
        let others = self.0.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.iter().for_each(|write| write(&mut text));
        text
    }

    fn metrics(&self) -> String {
        let text = self.lock().text.clone();
        text + self.others().as_str()
    }

    fn trouble(&self) -> Option<String> {
        self.lock().trouble().map(str::to_owned)
    }
}

/// Whose metrics a listener serves.
#[derive(Debug, Clone)]
enum Boards {
    One(MetricsBoard),
    /// Each of several loops has a name, which its samples bear as this label.
    Several {
        label: &'static str,
        named: Vec<(String, MetricsBoard)>,
    },
}

impl Boards {
    fn answer(&self, target: &str, format: Format) -> (&'static str, String) {
        match path_of(target) {
            "/metrics" => ("200 OK", format.of(&self.metrics())),
            "/healthz" => match self.trouble() {
                None => ("200 OK", "serving\n".into()),
                Some(why) => ("503 Service Unavailable", why + "\n"),
            },
            _ => match is_question(target.as_bytes()).then(|| self.ask(target)).flatten() {
                Some(Ok(answer)) => ("200 OK", answer),
                Some(Err(why)) => ("403 Forbidden", why + "\n"),
                None => ("404 Not Found", "try /metrics or /healthz\n".into()),
            },
        }
    }

    /// The answers of all that answer this question, or why the first one does not.
    fn ask(&self, target: &str) -> Option<Result<String, String>> {
        match self {
            Boards::One(board) => board.ask(target),
            Boards::Several { named, .. } => {
                let answers = named.iter().filter_map(|(_, board)| board.ask(target));
                answers.reduce(|first, next| match (first, next) {
                    (Ok(first), Ok(next)) => Ok(first + &next),
                    (Ok(answer), Err(_)) | (Err(_), Ok(answer)) => Ok(answer),
                    (Err(why), Err(_)) => Err(why),
                })
            }
        }
    }

    fn metrics(&self) -> String {
        match self {
            Boards::One(board) => board.metrics(),
            Boards::Several { label, named } => {
                let texts: Vec<(&str, String)> =
                    named.iter().map(|(name, board)| (name.as_str(), board.metrics())).collect();
                several::merged(label, &texts)
            }
        }
    }

    /// Who does not serve, and why.
    fn trouble(&self) -> Option<String> {
        match self {
            Boards::One(board) => board.trouble(),
            Boards::Several { named, .. } => {
                let trouble = |(name, board): &(String, MetricsBoard)| {
                    board.trouble().map(|why| format!("{name}: {why}"))
                };
                let lines: Vec<String> = named.iter().filter_map(trouble).collect();
                (!lines.is_empty()).then(|| lines.join("\n"))
            }
        }
    }
}

/// How often metrics are published.
const PUBLISH_INTERVAL: Nanos = Nanos::from_millis(250);

/// When a loop publishes: now and then, and at once when its health has changed, since somebody may wait
/// for that.
#[derive(Debug, Default)]
pub struct PublishTimes {
    next: Nanos,
    said: Option<Health>,
}

impl PublishTimes {
    /// Whether it is time; then it counts as done.
    pub fn is_due(&mut self, now: Nanos, health: Health) -> bool {
        let is_due = now >= self.next || self.said != Some(health);
        if is_due {
            self.next = now.plus(PUBLISH_INTERVAL);
            self.said = Some(health);
        }
        is_due
    }

    /// When it is time at the latest.
    pub fn next(&self) -> Nanos {
        self.next
    }
}

/// The listener could not start.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The address is not free or not ours.
    #[error("cannot serve metrics on {address}: {source}; {}", after_listening(source))]
    Listen {
        /// The address tried.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// No thread could be started.
    #[error("cannot start the thread that serves metrics: {0}; check the limit on processes (ulimit -u)")]
    Thread(io::Error),
}

/// A thread that serves `/metrics` and `/healthz`; it ends when this is dropped.
#[derive(Debug)]
pub struct MetricsListener {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsListener {
    /// Serves what is published on `board`.
    pub fn listen(address: SocketAddr, board: MetricsBoard) -> Result<MetricsListener, MetricsError> {
        MetricsListener::serve(address, Boards::One(board))
    }

    /// Serves what several loops publish: each one's samples bear its name as `label`, and health is that of all.
    pub fn listen_to_several(
        address: SocketAddr,
        label: &'static str,
        named: Vec<(String, MetricsBoard)>,
    ) -> Result<MetricsListener, MetricsError> {
        MetricsListener::serve(address, Boards::Several { label, named })
    }

    fn serve(address: SocketAddr, boards: Boards) -> Result<MetricsListener, MetricsError> {
        let failed = |source| MetricsError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new()
            .name("metrics".into())
            .spawn({
                let stop = Arc::clone(&stop);
                let boards = Arc::new(boards);
                move || serve(&listener, &boards, &stop)
            })
            .map_err(MetricsError::Thread)?;
        Ok(MetricsListener { address, stop, thread: Some(thread) })
    }

    /// The address that is listened on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsListener {
    fn drop(&mut self) {
        // Release pairs with the thread's Acquire; a connection wakes the blocking accept.
        self.stop.store(true, Ordering::Release);
        let mut wake = self.address;
        if wake.ip().is_unspecified() {
            wake.set_ip(if wake.is_ipv4() {
                std::net::Ipv4Addr::LOCALHOST.into()
            } else {
                std::net::Ipv6Addr::LOCALHOST.into()
            });
        }
        let woken = TcpStream::connect_timeout(&wake, CONNECTION_TIME_MAX).is_ok();
        if let (true, Some(thread)) = (woken, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

/// Each connection is answered by a thread of its own, so that one that says nothing holds up no other.
fn serve(listener: &TcpListener, boards: &Arc<Boards>, stop: &AtomicBool) {
    let under_way = Arc::new(());
    loop {
        let accepted = listener.accept();
        if stop.load(Ordering::Acquire) {
            return;
        }
        match accepted {
            Ok(_) if Arc::strong_count(&under_way) > CONNECTIONS_MAX => {}
            Ok((mut stream, _)) => {
                let held = (Arc::clone(boards), Arc::clone(&under_way));
                // A peer that leaves early is its own problem, and without a thread it is not answered.
                let _ = std::thread::Builder::new().name("metrics-answer".into()).spawn(move || {
                    let (boards, _under_way) = held;
                    drop(answer(&mut stream, &boards));
                });
            }
            // Out of descriptors, most likely: give the rest of the process time to free some.
            Err(_) => std::thread::park_timeout(Duration::from_millis(100)),
        }
    }
}

fn answer(stream: &mut TcpStream, boards: &Boards) -> io::Result<()> {
    let deadline = Instant::now() + CONNECTION_TIME_MAX;
    let mut request = [0; REQUEST_BYTES_MAX];
    let mut format = Format::Classic;
    let (status, body) = match read_head(stream, &mut request, deadline)? {
        Some(head) => match target(head) {
            Some(target) => {
                // Words about health are plain text, whatever was asked for.
                format = if is_metrics(target) { Format::asked_by(head) } else { Format::Classic };
                boards.answer(target, format)
            }
            None => ("400 Bad Request", "only GET is understood\n".into()),
        },
        None => ("431 Request Header Fields Too Large", "the request is too long\n".into()),
    };
    stream.set_write_timeout(Some(CONNECTION_TIME_MAX))?;
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        format.content_type(),
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// The request up to its empty line; `None` if it does not fit.
fn read_head<'a>(
    stream: &mut TcpStream,
    buffer: &'a mut [u8; REQUEST_BYTES_MAX],
    deadline: Instant,
) -> io::Result<Option<&'a [u8]>> {
    let mut filled = 0;
    while !buffer[..filled].windows(4).any(|four| four == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if filled == buffer.len() {
            return Ok(None);
        }
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer[filled..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    Ok(Some(&buffer[..filled]))
}

fn path_of(target: &str) -> &str {
    target.split('?').next().unwrap_or_default()
}

fn is_metrics(target: &str) -> bool {
    path_of(target) == "/metrics"
}

fn target(head: &[u8]) -> Option<&str> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    std::str::from_utf8(line).ok()?.strip_prefix("GET ")?.split(' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_what_prometheus_reads() {
        let mut text = MetricsText::new();
        text.counter("scotfree_requests_total", "Requests.", 7);
        text.family(MetricKind::Gauge, "scotfree_x", "Two\nlines.");
        text.sample("scotfree_x", &[("reason", "a \"b\" \\ c"), ("role", "server")], 1.5);
        assert_eq!(
            text.as_str(),
            "# HELP scotfree_requests_total Requests.\n# TYPE scotfree_requests_total counter\n\
             scotfree_requests_total 7\n# HELP scotfree_x Two\\nlines.\n# TYPE scotfree_x gauge\n\
             scotfree_x{reason=\"a \\\"b\\\" \\\\ c\",role=\"server\"} 1.5\n"
        );
    }

    #[test]
    fn a_scraper_gets_what_was_published_last() {
        let (board, listener) = listening();
        assert!(ask(&listener, "GET /healthz HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 503"));
        let mut text = MetricsText::new();
        text.counter("scotfree_one_total", "One.", 1);
        board.publish(&text, Health::Serving);
        assert!(
            ask(&listener, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").ends_with("scotfree_one_total 1\n")
        );
        assert!(ask(&listener, "GET /healthz HTTP/1.1\r\n\r\n").ends_with("serving\n"));
        board.publish(&text, Health::NotServing("draining"));
        assert!(ask(&listener, "GET /healthz?a=b HTTP/1.1\r\n\r\n").ends_with("draining\n"));
        assert!(ask(&listener, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    }

    #[test]
    fn who_asks_for_open_metrics_gets_exemplars_and_others_get_none() {
        let (board, listener) = listening();
        let (mut histogram, mut exemplars) = (DurationHistogram::default(), Exemplars::default());
        let (duration, at) = (Nanos::from_millis(3), Nanos::from_secs(7));
        histogram.record(duration);
        exemplars.note(Exemplar { trace_id: [1; 16], span_id: [2; 8], duration, at });
        let mut text = MetricsText::new();
        text.counter("scotfree_one_total", "One.", 1);
        text.family(MetricKind::Histogram, "scotfree_x_seconds", "X.");
        text.histogram("scotfree_x_seconds", &[("of", "a\"b")], &histogram, Some(&exemplars));
        board.publish(&text, Health::Serving);
        let get = |accept: &str| ask(&listener, &format!("GET /metrics HTTP/1.1\r\n{accept}\r\n"));
        let classic = get("");
        assert!(classic.contains("content-type: text/plain; version=0.0.4"), "{classic}");
        assert!(classic.contains("\nscotfree_x_seconds_bucket{of=\"a\\\"b\",le=\"0.005\"} 1\n"), "{classic}");
        assert!(classic.ends_with("\nscotfree_x_seconds_count{of=\"a\\\"b\"} 1\n"), "{classic}");
        assert!(classic.contains("\n# TYPE scotfree_one_total counter\n"), "{classic}");
        let open = get("Accept: application/openmetrics-text\r\n");
        assert!(open.contains("content-type: application/openmetrics-text; version=1.0.0"), "{open}");
        let exemplar =
            format!("# {{trace_id=\"{}\",span_id=\"{}\"}} 0.003 7.000\n", "01".repeat(16), "02".repeat(8));
        assert!(open.contains(&format!("le=\"0.005\"}} 1 {exemplar}")), "{open}");
        assert!(open.contains("\n# TYPE scotfree_one counter\nscotfree_one_total 1\n"), "{open}");
        assert!(open.ends_with("\n# EOF\n"), "{open}");
        let health = ask(&listener, "GET /healthz HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n");
        assert!(health.contains("text/plain") && health.ends_with("\r\n\r\nserving\n"), "{health}");
    }

    #[test]
    fn of_several_loops_each_is_named_and_who_has_ended_says_why() {
        let boards = [MetricsBoard::new(), MetricsBoard::new()];
        let named = ["a", "b"].map(str::to_owned).into_iter().zip(boards.clone()).collect();
        let listener =
            MetricsListener::listen_to_several(any(), "loop", named).expect("there are free ports");
        let health = || ask(&listener, "GET /healthz HTTP/1.1\r\n\r\n");
        assert!(health().ends_with("\r\n\r\na: starting\nb: starting\n"));
        let mut text = MetricsText::new();
        text.counter("x_total", "X.", 1);
        for board in &boards {
            board.publish(&text, Health::Serving);
        }
        assert!(health().starts_with("HTTP/1.1 200") && health().ends_with("\r\n\r\nserving\n"));
        let metrics = || ask(&listener, "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(metrics().ends_with("x_total{loop=\"a\"} 1\nx_total{loop=\"b\"} 1\n"));
        boards[0].hold("its server is away");
        boards[1].end("it was\nrefused");
        assert!(health().starts_with("HTTP/1.1 503"));
        assert!(health().ends_with("\r\n\r\na: its server is away\nb: it was refused\n"));
        assert!(metrics().ends_with("x_total{loop=\"a\"} 1\n"), "{}", metrics());
    }

    #[test]
    fn questions_are_answered_by_whoever_answers_any() {
        let boards = [MetricsBoard::new(), MetricsBoard::new(), MetricsBoard::new()];
        let named = ["a", "b", "c"].map(str::to_owned).into_iter().zip(boards.clone()).collect();
        let listener =
            MetricsListener::listen_to_several(any(), "loop", named).expect("there are free ports");
        let get = || ask(&listener, "GET /functions/cache?x HTTP/1.1\r\n\r\n");
        assert!(get().starts_with("HTTP/1.1 404"), "nobody does");
        boards[2].answer_questions(|_| Err("it has none".to_owned()));
        assert!(get().starts_with("HTTP/1.1 403") && get().ends_with("it has none\n"));
        for board in &boards[..2] {
            board.answer_questions(|target| Ok(format!("{target};")));
        }
        assert!(get().ends_with("\r\n\r\n/functions/cache?x;/functions/cache?x;"), "{}", get());
        assert!(ask(&listener, "GET /other HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    }

    #[test]
    fn what_is_no_request_is_refused_and_the_next_one_served() {
        let (_board, listener) = listening();
        assert!(ask(&listener, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400"));
        assert!(ask(&listener, "\u{fffd}\r\n\r\n").starts_with("HTTP/1.1 400"));
        let long = "GET /".to_string() + &"x".repeat(REQUEST_BYTES_MAX - 5);
        assert!(ask(&listener, &long).starts_with("HTTP/1.1 431"));
        drop(TcpStream::connect(listener.address()).expect("the listener listens"));
        assert!(ask(&listener, "GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
    }

    #[test]
    fn who_connects_and_says_nothing_holds_up_nobody() {
        let (_board, listener) = listening();
        let mut idle = TcpStream::connect(listener.address()).expect("the listener listens");
        assert!(ask(&listener, "GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
        // It was not closed for the other.
        idle.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("it is open");
        let mut answer = String::new();
        idle.read_to_string(&mut answer).expect("it is answered");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    #[test]
    fn what_the_loop_does_not_know_is_asked_for_at_every_answer() {
        let (board, listener) = listening();
        let count = Arc::new(std::sync::atomic::AtomicU64::new(7));
        let counted = Arc::clone(&count);
        board.add(move |text| text.counter("b_total", "Other", counted.load(Ordering::Relaxed)));
        let mut text = MetricsText::new();
        text.counter("a_total", "The loop's", 1);
        board.publish(&text, Health::Serving);
        let ask = || ask(&listener, "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(ask().ends_with("a_total 1\n# HELP b_total Other\n# TYPE b_total counter\nb_total 7\n"));
        count.store(8, Ordering::Relaxed);
        assert!(ask().ends_with("b_total 8\n"));
    }

    #[test]
    fn a_taken_address_is_named() {
        let (_board, listener) = listening();
        let error =
            MetricsListener::listen(listener.address(), MetricsBoard::new()).expect_err("it is taken");
        assert!(error.to_string().contains(&listener.address().to_string()));
    }

    fn any() -> SocketAddr {
        "127.0.0.1:0".parse().expect("an address")
    }

    fn listening() -> (MetricsBoard, MetricsListener) {
        let board = MetricsBoard::new();
        let listener = MetricsListener::listen(any(), board.clone()).expect("loopback has free ports");
        (board, listener)
    }

    fn ask(listener: &MetricsListener, request: &str) -> String {
        let mut stream = TcpStream::connect(listener.address()).expect("the listener listens");
        stream.write_all(request.as_bytes()).expect("the listener reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the listener answers");
        answer
    }

    #[test]
    fn who_waits_for_service_is_told_as_soon_as_it_is_published() {
        let board = MetricsBoard::new();
        let waiting = board.clone();
        let waiter = std::thread::spawn(move || waiting.wait_until_serving());
        board.publish(&MetricsText::new(), Health::NotServing("recovering"));
        board.publish(&MetricsText::new(), Health::Serving);
        waiter.join().expect("it comes back");
    }

    #[test]
    fn a_change_of_health_is_published_at_once_and_all_else_now_and_then() {
        let mut times = PublishTimes::default();
        let recovering = Health::NotServing("recovering");
        assert!(times.is_due(Nanos(1), recovering));
        assert!(!times.is_due(Nanos(2), recovering));
        assert!(times.is_due(Nanos(3), Health::Serving));
        assert!(!times.is_due(Nanos(4), Health::Serving));
        assert_eq!(times.next(), Nanos(3).plus(PUBLISH_INTERVAL));
        assert!(times.is_due(times.next(), Health::Serving));
    }
}
