//! Writes a history in a client's namespace and answers, on a socket in the file system, how it stands.
//!
//! Invariant: it is asked one thing at a time, and each question gets one line. Nothing is read back while
//! tokens are in flight: reading waits until the writers rest.
//!
//! A socket in the file system is reached from every network namespace of the same machine.

use super::READY;
use crate::history::{History, HistoryOptions, Verdict};
use crate::process::Process;
use crate::trouble::Trouble;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How a history is written.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HistorySpec {
    /// Where questions are answered.
    pub socket: PathBuf,
    /// How to write, and where to read.
    pub options: HistoryOptions,
    /// A socket of the server itself, for the last word.
    pub server: Option<PathBuf>,
}

/// A question or an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Question {
    /// Write.
    Write,
    /// Stop writing; answered when nothing is in flight.
    Rest,
    /// How many tokens are acknowledged, by writer?
    Count,
    /// What has become of them, by what is new?
    VerifyNew(Patience),
    /// What has become of all of them, as the server itself says?
    VerifyAll(Patience),
}

/// How long reading may be tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Patience {
    ms: u64,
}

pub(super) fn serve(spec: &HistorySpec) -> Result<(), Trouble> {
    let broke = |error: io::Error| Trouble::file("answer questions at", &spec.socket, &error);
    let listener = UnixListener::bind(&spec.socket).map_err(broke)?;
    println!("{READY}");
    let (stream, _) = listener.accept().map_err(broke)?;
    let mut writing = Writing::new(spec.clone());
    let mut stream_out = stream.try_clone().map_err(broke)?;
    for line in BufReader::new(stream).lines() {
        let line = line.map_err(broke)?;
        let question = serde_json::from_str(&line).map_err(|error| broke(error.into()))?;
        let answer = writing.answer(question) + "\n";
        stream_out.write_all(answer.as_bytes()).map_err(broke)?;
    }
    // Whoever asked is gone.
    writing.rest();
    Ok(())
}

/// A history and, while it is written, the thread that does.
struct Writing {
    spec: HistorySpec,
    // By writer.
    acknowledged: Arc<[AtomicU64]>,
    state: State,
}

enum State {
    Resting(Box<History>),
    Writing {
        stop: Arc<AtomicBool>,
        thread: JoinHandle<Box<History>>,
    },
    /// Only while the state changes.
    Between,
}

impl Writing {
    fn new(spec: HistorySpec) -> Writing {
        let writers_count = spec.options.writers + spec.options.key_writers;
        let acknowledged = (0..writers_count).map(|_| AtomicU64::new(0)).collect();
        Writing { spec, acknowledged, state: State::Resting(Box::default()) }
    }

    fn answer(&mut self, question: Question) -> String {
        match question {
            Question::Write => to_line(&self.write()),
            Question::Rest => {
                self.rest();
                to_line(&())
            }
            Question::Count => {
                let counts = self.acknowledged.iter().map(|count| count.load(Ordering::Relaxed));
                to_line(&counts.collect::<Vec<u64>>())
            }
            Question::VerifyNew(patience) => {
                let options = self.spec.options.clone();
                self.verify(&options, patience, History::verify_new)
            }
            Question::VerifyAll(patience) => {
                let HistorySpec { options, server, .. } = self.spec.clone();
                let options = HistoryOptions { read_at: server, ..options };
                self.verify(&options, patience, History::verify)
            }
        }
    }

    fn write(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Between) {
            State::Resting(mut history) => {
                let stop = Arc::new(AtomicBool::new(false));
                let (stopped, acknowledged) = (Arc::clone(&stop), Arc::clone(&self.acknowledged));
                let options = self.spec.options.clone();
                let thread = thread::spawn(move || {
                    history.write_telling(&options, &stopped, |writer| {
                        acknowledged[writer].fetch_add(1, Ordering::Relaxed);
                    });
                    history
                });
                State::Writing { stop, thread }
            }
            other => other,
        };
    }

    /// Stops writing and waits until nothing is in flight.
    fn rest(&mut self) -> &mut History {
        self.state = match std::mem::replace(&mut self.state, State::Between) {
            State::Writing { stop, thread } => {
                stop.store(true, Ordering::Relaxed);
                State::Resting(thread.join().expect("a writer does not panic"))
            }
            other => other,
        };
        match &mut self.state {
            State::Resting(history) => history,
            State::Writing { .. } | State::Between => unreachable!("it was made to rest just now"),
        }
    }

    fn verify(
        &mut self,
        options: &HistoryOptions,
        patience: Patience,
        verify: fn(&mut History, &HistoryOptions, Duration) -> Result<Verdict, Trouble>,
    ) -> String {
        let verdict = verify(self.rest(), options, Duration::from_millis(patience.ms));
        to_line(&verdict.map_err(|trouble| trouble.to_string()))
    }
}

fn to_line(answer: &impl Serialize) -> String {
    serde_json::to_string(answer).expect("an answer is JSON")
}

/// Asks a history's worker.
#[derive(Debug)]
pub struct HistoryControl {
    reader: BufReader<UnixStream>,
    stream: UnixStream,
}

impl HistoryControl {
    /// Connects to a worker that is ready.
    pub fn connect(socket: &Path, process: &Process) -> Result<HistoryControl, Trouble> {
        let open = || {
            let stream = UnixStream::connect(socket)?;
            Ok((BufReader::new(stream.try_clone()?), stream))
        };
        let (reader, stream) = open().map_err(|error: io::Error| {
            Trouble::new(format!("ask {}", process.name()), error, process.error_output())
        })?;
        Ok(HistoryControl { reader, stream })
    }

    /// Begins to write, or goes on.
    pub fn write(&mut self) -> Result<(), Trouble> {
        self.ask(Question::Write)
    }

    /// Stops writing; returns when nothing is in flight.
    pub fn rest(&mut self) -> Result<(), Trouble> {
        self.ask(Question::Rest)
    }

    /// How many tokens are acknowledged.
    pub fn count(&mut self) -> Result<u64, Trouble> {
        self.counts().map(|counts| counts.iter().sum())
    }

    /// How many tokens of each writer are acknowledged; those who set keys come last.
    pub fn counts(&mut self) -> Result<Vec<u64>, Trouble> {
        self.ask(Question::Count)
    }

    /// What has become of the tokens, by what is new since the last time. Writing stops.
    pub fn verify_new(&mut self, patience: Duration) -> Result<Verdict, Trouble> {
        self.verdict(Question::VerifyNew(Patience { ms: patience.as_millis() as u64 }))
    }

    /// What has become of all tokens, as the server itself says, if its socket is known. Writing stops.
    pub fn verify_all(&mut self, patience: Duration) -> Result<Verdict, Trouble> {
        self.verdict(Question::VerifyAll(Patience { ms: patience.as_millis() as u64 }))
    }

    fn verdict(&mut self, question: Question) -> Result<Verdict, Trouble> {
        let verdict: Result<Verdict, String> = self.ask(question)?;
        verdict.map_err(|problem| {
            let next = "see the logs of the run: the service has not recovered in time";
            Trouble::new("read the history back", problem, next)
        })
    }

    fn ask<Answer: DeserializeOwned>(&mut self, question: Question) -> Result<Answer, Trouble> {
        let mut exchange = || {
            self.stream.write_all((to_line(&question) + "\n").as_bytes())?;
            let mut line = String::new();
            self.reader.read_line(&mut line)?;
            serde_json::from_str(&line).map_err(io::Error::from)
        };
        exchange().map_err(|error| {
            Trouble::new("ask the writers of the history", error, "see the log of the history's worker")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_redis::FakeRedis;
    use crate::process::wait_until;
    use crate::scratch::Scratch;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn questions_are_answered_while_it_writes_and_when_it_rests() {
        let service = FakeRedis::start();
        let folder = Scratch::new("history").expect("temporary files can be written");
        let spec = HistorySpec {
            socket: folder.path().join("s"),
            options: HistoryOptions { key_writers: 1, ..HistoryOptions::new(service.address()) },
            server: None,
        };
        let socket = spec.socket.clone();
        let worker = thread::spawn(move || serve(&spec));
        assert!(wait_until(PATIENCE, || socket.exists()));
        let stream = UnixStream::connect(&socket).expect("it listens");
        let reader = BufReader::new(stream.try_clone().expect("a socket can be shared"));
        let mut control = HistoryControl { reader, stream };
        for round in 1..=3 {
            control.write().expect("an answer");
            let is_enough =
                |counts: &[u64]| counts.len() == 3 && counts.iter().all(|count| *count > round * 30);
            assert!(wait_until(PATIENCE, || is_enough(&control.counts().expect("an answer"))));
            let verdict = control.verify_new(PATIENCE).expect("an answer");
            assert!(verdict.is_good() && verdict.acked > round * 90, "{verdict}");
            assert_eq!(control.count().expect("an answer"), verdict.acked, "it rests");
        }
        assert!(control.verify_all(PATIENCE).expect("an answer").is_good());
        drop(service);
        let error = control.verify_all(Duration::from_millis(20)).expect_err("it is gone");
        assert!(error.to_string().contains("read"), "{error}");
        control.write().expect("an answer");
        drop(control);
        worker.join().expect("no panic").expect("it ends when nobody asks any more");
    }
}
