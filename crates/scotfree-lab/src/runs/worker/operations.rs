//! A client that reads and writes few keys which others read and write too, and notes what it saw.
//!
//! Invariant: a call stands in the file before it is made, and its reply after it has come, so that the
//! file of a client that was killed tells all that it may have done. Moments are of `CLOCK_MONOTONIC`, which
//! all processes of a host share.

use super::embedded::{parse_reply, write_request};
use scotfree_check::{Answer, Key, Op, Operation};
use scotfree_io::now_monotonic;
use scotfree_rpc::{start_session, Session, SessionConfig, SessionError};
use scotfree_stage::process::wait_until;
use scotfree_stage::resp::{Connection, Reply};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::workload::Random;
use scotfree_wire::ClusterKey;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long one reply may take: a server may be killed and started meanwhile.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// What to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OperationsSpec {
    /// The server, or where the sidecar before clients listens.
    pub server: SocketAddr,
    /// Whether that speaks RESP: then most operations are reads of one key, and none is relaxed.
    pub sidecar: bool,
    /// The secret that the cluster shares.
    pub cluster_key: [u8; 32],
    /// What the keys' names begin with.
    pub prefix: String,
    /// How many keys there are.
    pub keys: u32,
    /// Which client this is, from 0.
    pub client: u64,
    /// How many operations it makes.
    pub operations: u64,
    /// Whether its reads are relaxed.
    pub relaxed: bool,
    /// What is drawn.
    pub seed: u64,
    /// Where it notes what it saw.
    pub history: PathBuf,
}

/// What a client did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationsReport {
    /// Updates that a device's acknowledgement completed.
    pub completed_early: u64,
}

/// A line of a history's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    /// A new session; what the last one had no reply to will get none.
    Session,
    Called {
        at: u64,
        command: Command,
    },
    Returned {
        at: u64,
        reply: Said,
    },
}

/// An operation, by the numbers of its keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Command {
    Set(u32, u64),
    Get(u32),
    Del(Vec<u32>),
    Mset(Vec<(u32, u64)>),
    Mget(Vec<u32>),
    /// GET and SET at one instant.
    Exchange(u32, u64),
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Said {
    Done,
    Values(Vec<Option<u64>>),
    Number(u64),
    All(Vec<Said>),
}

/// Makes the operations.
pub(super) fn run(spec: &OperationsSpec) -> Result<OperationsReport, Trouble> {
    let mut file =
        File::create(&spec.history).map_err(|error| Trouble::file("write", &spec.history, &error))?;
    let mut random = Random::new(spec.seed, spec.client);
    let mut report = OperationsReport { completed_early: 0 };
    let (mut made, mut way) = (0, None);
    while made < spec.operations {
        // The upper half names the client, so every value is written once.
        let value = (spec.client + 1) << 32 | (made + 1) << 1;
        let result = match &mut way {
            None => open(spec, &mut file).map(|opened| way = Some(opened)),
            Some(Way::Session(session)) => {
                made += 1;
                let command = draw(&mut random, spec.keys, value);
                call(spec, session, command, random.below(2) == 0, &mut file).map(|is_early| {
                    report.completed_early += u64::from(is_early);
                })
            }
            Some(Way::Connection(connection)) => {
                made += 1;
                let command = draw_mostly_reads(&mut random, spec.keys, value);
                call_by_resp(spec, connection, &command, &mut file)
            }
        };
        match result {
            Ok(()) => {}
            // What it was asked last may have been done or not.
            Err(Broken::Session(SessionError::Ended(_)) | Broken::Connection) => way = None,
            Err(Broken::Session(error)) => {
                let tried = format!("call the server at {}", spec.server);
                return Err(Trouble::new(tried, error, "see the log of the server"));
            }
            Err(Broken::File(error)) => return Err(Trouble::file("write", &spec.history, &error)),
            Err(Broken::Reply(reply)) => {
                let problem = format!("it answered {reply}");
                return Err(Trouble::new("understand a reply", problem, "see the log of the server"));
            }
        }
    }
    Ok(report)
}

/// How calls are made.
#[allow(clippy::large_enum_variant, reason = "a client has one")]
enum Way {
    Session(Session),
    Connection(Connection),
}

enum Broken {
    Session(SessionError),
    /// Whoever listens there has gone, or says that it cannot do what it was asked.
    Connection,
    File(io::Error),
    Reply(String),
}

impl From<SessionError> for Broken {
    fn from(error: SessionError) -> Broken {
        Broken::Session(error)
    }
}

fn open(spec: &OperationsSpec, file: &mut File) -> Result<Way, Broken> {
    let way = if spec.sidecar {
        let mut opened = Err(io::ErrorKind::TimedOut.into());
        // A sidecar that was killed is started again.
        wait_until(REPLY_TIMEOUT, || {
            opened = Connection::open(spec.server, REPLY_TIMEOUT);
            opened.is_ok()
        });
        Way::Connection(opened.map_err(|_| Broken::Reply(format!("nothing: {} is not there", spec.server)))?)
    } else {
        let key = ClusterKey::from_bytes(spec.cluster_key);
        let config = SessionConfig { patience: REPLY_TIMEOUT, ..SessionConfig::new(spec.server, key) };
        Way::Session(start_session(&config)?)
    };
    note(file, &Line::Session)?;
    Ok(way)
}

fn note(file: &mut File, line: &Line) -> Result<(), Broken> {
    let text = serde_json::to_string(line).expect("a line is JSON") + "\n";
    file.write_all(text.as_bytes()).map_err(Broken::File)
}

/// One operation, whether a device completed it.
fn call(
    spec: &OperationsSpec,
    session: &mut Session,
    command: Command,
    may_be_early: bool,
    file: &mut File,
) -> Result<bool, Broken> {
    let is_early = may_be_early && matches!(command, Command::Set(..));
    let payload = command.payload(&spec.prefix, is_early);
    let is_read = matches!(command, Command::Get(_) | Command::Mget(_));
    note(file, &Line::Called { at: now_monotonic().0, command })?;
    let key = spec.prefix.as_bytes();
    match (is_read, is_early) {
        (true, _) if spec.relaxed => session.read_relaxed(key, &payload)?,
        (true, _) => session.read(key, &payload)?,
        (false, true) => session.send_early_update(key, &payload)?,
        (false, false) => session.send_update(key, &payload)?,
    };
    let reply = session.next_reply(REPLY_TIMEOUT)?;
    let at = now_monotonic().0;
    let said = reply.bytes.map_or(Ok(Said::Done), Said::parse).map_err(Broken::Reply)?;
    let by_device = reply.bytes.is_none();
    note(file, &Line::Returned { at, reply: said })?;
    Ok(by_device)
}

/// The same to whom speaks RESP: several commands are a transaction.
fn call_by_resp(
    spec: &OperationsSpec,
    connection: &mut Connection,
    command: &Command,
    file: &mut File,
) -> Result<(), Broken> {
    note(file, &Line::Called { at: now_monotonic().0, command: command.clone() })?;
    let mut commands = command.words(&spec.prefix);
    if commands.len() > 1 {
        commands.insert(0, vec!["MULTI".to_owned()]);
        commands.push(vec!["EXEC".to_owned()]);
    }
    for words in &commands {
        connection.push(words);
    }
    connection.flush().map_err(|_| Broken::Connection)?;
    let mut last = None;
    for _ in &commands {
        last = Some(connection.read().map_err(|_| Broken::Connection)?);
    }
    let at = now_monotonic().0;
    let reply = last.expect("a command has words");
    if matches!(reply, Reply::Error(_)) {
        return Err(Broken::Connection);
    }
    let said = Said::of(&reply).ok_or_else(|| Broken::Reply(format!("{reply:?}")))?;
    note(file, &Line::Returned { at, reply: said })
}

/// What a cache has something of: most are reads of one key.
fn draw_mostly_reads(random: &mut Random, keys: u32, value: u64) -> Command {
    let one = random.below(u64::from(keys)) as u32;
    let other = (one + 1 + random.below(u64::from(keys) - 1) as u32) % keys;
    match random.below(50) {
        0..39 => Command::Get(one),
        39 => Command::Mget(vec![one, other]),
        40..47 => Command::Set(one, value),
        47 => Command::Mset(vec![(one, value), (other, value + 1)]),
        48 => Command::Del(vec![one, other]),
        _ => Command::Exchange(one, value),
    }
}

fn draw(random: &mut Random, keys: u32, value: u64) -> Command {
    let one = random.below(u64::from(keys)) as u32;
    let other = (one + 1 + random.below(u64::from(keys) - 1) as u32) % keys;
    match random.below(20) {
        0..5 => Command::Set(one, value),
        5..9 => Command::Get(one),
        9..14 => Command::Mget(vec![one, other]),
        14..17 => Command::Mset(vec![(one, value), (other, value + 1)]),
        17 => Command::Del(vec![one, other]),
        _ => Command::Exchange(one, value),
    }
}

impl Command {
    /// A request to the embedded server, in the layout that the sidecars speak.
    fn payload(&self, prefix: &str, is_early: bool) -> Vec<u8> {
        let commands = self.words(prefix);
        let commands: Vec<&[String]> = commands.iter().map(Vec::as_slice).collect();
        let mut payload = Vec::new();
        write_request(&commands, is_early, &mut payload);
        payload
    }

    /// Its commands.
    fn words(&self, prefix: &str) -> Vec<Vec<String>> {
        let name = |key: &u32| format!("{prefix}{key}");
        let several = |verb: &str, keys: &[u32]| {
            let words = [verb.to_owned()].into_iter().chain(keys.iter().map(name));
            vec![words.collect::<Vec<String>>()]
        };
        let set = |key: &u32, value: &u64| vec!["SET".to_owned(), name(key), value.to_string()];
        match self {
            Command::Set(key, value) => vec![set(key, value)],
            Command::Get(key) => several("GET", &[*key]),
            Command::Del(keys) => several("DEL", keys),
            Command::Mget(keys) => several("MGET", keys),
            Command::Mset(pairs) => {
                let pairs = pairs.iter().flat_map(|(key, value)| [name(key), value.to_string()]);
                vec![["MSET".to_owned()].into_iter().chain(pairs).collect()]
            }
            Command::Exchange(key, value) => {
                vec![vec!["GET".to_owned(), name(key)], set(key, value)]
            }
        }
    }

    fn op(&self) -> Op {
        let keys = |keys: &[u32]| keys.iter().copied().map(Key).collect();
        match self {
            Command::Set(key, value) => Op::Set { key: Key(*key), value: *value },
            Command::Get(key) => Op::Get { key: Key(*key) },
            Command::Del(deleted) => Op::Del { keys: keys(deleted) },
            Command::Mset(pairs) => {
                Op::MSet { pairs: pairs.iter().map(|(key, value)| (Key(*key), *value)).collect() }
            }
            Command::Mget(read) => Op::MGet { keys: keys(read) },
            Command::Exchange(key, value) => {
                Op::Transaction(vec![Op::Get { key: Key(*key) }, Op::Set { key: Key(*key), value: *value }])
            }
        }
    }

    /// The reply in the checker's words: a single value is a list of one, a transaction's are its own.
    fn reply(&self, said: &Said) -> scotfree_check::Reply {
        said.reply(matches!(self, Command::Exchange(..)))
    }
}

impl Said {
    fn parse(bytes: &[u8]) -> Result<Said, String> {
        let reply = parse_reply(bytes)?;
        Said::of(&reply).ok_or_else(|| format!("{reply:?}"))
    }

    fn of(reply: &Reply) -> Option<Said> {
        let value = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok();
        match reply {
            Reply::Simple(text) if text == "OK" => Some(Said::Done),
            Reply::Integer(number) => u64::try_from(*number).ok().map(Said::Number),
            Reply::Null => Some(Said::Values(vec![None])),
            Reply::Bulk(text) => Some(Said::Values(vec![Some(value(text)?)])),
            Reply::Array(items) => items.iter().map(Said::of).collect::<Option<Vec<_>>>().map(Said::All),
            _ => None,
        }
    }

    fn reply(&self, of_transaction: bool) -> scotfree_check::Reply {
        match self {
            Said::Done => scotfree_check::Reply::Done,
            Said::Number(number) => scotfree_check::Reply::Number(*number),
            Said::Values(values) => scotfree_check::Reply::Values(values.clone()),
            Said::All(items) if of_transaction => {
                scotfree_check::Reply::All(items.iter().map(|item| item.reply(false)).collect())
            }
            Said::All(items) => {
                let values = items.iter().flat_map(|item| match item {
                    Said::Values(values) => values.clone(),
                    Said::Done | Said::Number(_) | Said::All(_) => Vec::new(),
                });
                scotfree_check::Reply::Values(values.collect())
            }
        }
    }
}

/// How many lines of a history stand in its file.
pub fn lines_count(file: &Path) -> usize {
    fs::read_to_string(file).map_or(0, |text| text.lines().count())
}

/// What a client saw, killed or not. `client_next` is the number of its first session, and then that of
/// the next client's.
pub fn read_history(
    file: &Path,
    client_next: &mut u64,
) -> Result<Vec<Operation<Op, scotfree_check::Reply>>, Trouble> {
    let text = fs::read_to_string(file).map_err(|error| Trouble::file("read", file, &error))?;
    let mut operations: Vec<Operation<_, _>> = Vec::new();
    let mut last = None;
    // A client that was killed may have left its last line unfinished; what it called for was not sent.
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let line = serde_json::from_str(line)
            .map_err(|error| Trouble::new(format!("read {}", file.display()), error, "run it again"))?;
        match line {
            Line::Session => *client_next += 1,
            Line::Called { at, command } => {
                let op = command.op();
                operations.push(Operation { client: *client_next, called: at, op, answer: None });
                last = Some(command);
            }
            Line::Returned { at, reply } => {
                if let (Some(operation), Some(command)) = (operations.last_mut(), last.take()) {
                    operation.answer = Some(Answer { at, reply: command.reply(&reply) });
                }
            }
        }
    }
    Ok(operations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_stage::scratch::Scratch;

    fn read(lines: &[Line], torn: &str) -> Vec<Operation<Op, scotfree_check::Reply>> {
        let folder = Scratch::new("operations").expect("temporary files can be written");
        let file = folder.path().join("history");
        let text: String =
            lines.iter().map(|line| serde_json::to_string(line).expect("a line is JSON") + "\n").collect();
        fs::write(&file, text + torn).expect("it can be written");
        read_history(&file, &mut 0).expect("it can be read")
    }

    #[test]
    fn a_file_tells_what_was_answered_and_what_was_not() {
        let command = Command::Mget(vec![1, 2]);
        let said = Said::All(vec![Said::Values(vec![Some(5)]), Said::Values(vec![None])]);
        let lines = [
            Line::Session,
            Line::Called { at: 10, command: command.clone() },
            Line::Returned { at: 11, reply: said },
            Line::Called { at: 12, command: Command::Set(1, 7) },
            Line::Session,
            Line::Called { at: 14, command: Command::Exchange(1, 8) },
        ];
        let history = read(&lines, "{\"called\":{\"at\":15,");
        assert_eq!(history.len(), 3);
        let reply = scotfree_check::Reply::Values(vec![Some(5), None]);
        assert_eq!(history[0].answer, Some(Answer { at: 11, reply }));
        assert_eq!((history[1].client, &history[1].answer), (1, &None));
        assert_eq!((history[2].client, &history[2].answer), (2, &None));
        assert_eq!(history[2].op, Command::Exchange(1, 8).op());
    }

    #[test]
    fn a_transaction_s_replies_are_its_own_and_nonsense_is_none() {
        let said = Said::parse(b"\x01\x00*2\r\n$1\r\n5\r\n+OK\r\n").expect("a reply");
        let reply = Command::Exchange(1, 8).reply(&said);
        let found = scotfree_check::Reply::Values(vec![Some(5)]);
        assert_eq!(reply, scotfree_check::Reply::All(vec![found, scotfree_check::Reply::Done]));
        for bytes in [&b"\x01\x00-ERR no\r\n"[..], b"\x01\x00$3\r\nabc\r\n", b"\x01"] {
            assert!(Said::parse(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn each_value_is_written_once_and_every_kind_of_operation_is_drawn() {
        let mut random = Random::new(7, 0);
        let drawn: Vec<Command> = (1..200).map(|made| draw(&mut random, 4, made << 1)).collect();
        let is_there = |is: fn(&Command) -> bool| drawn.iter().any(is);
        assert!(is_there(|command| matches!(command, Command::Mset(pairs) if pairs[0].0 != pairs[1].0)));
        assert!(is_there(|command| matches!(command, Command::Del(_))));
        assert!(is_there(|command| matches!(command, Command::Exchange(..))));
        assert!(is_there(|command| matches!(command, Command::Mget(keys) if keys[0] != keys[1])));
        let drawn: Vec<Command> =
            (1..1_000).map(|made| draw_mostly_reads(&mut random, 4, made << 1)).collect();
        let gets = drawn.iter().filter(|command| matches!(command, Command::Get(_))).count();
        let others = drawn.iter().map(std::mem::discriminant).collect::<std::collections::HashSet<_>>().len();
        assert!((700..900).contains(&gets) && others == 6, "{gets} of 999, {others} kinds");
    }
}
