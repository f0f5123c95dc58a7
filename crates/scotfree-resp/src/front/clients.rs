//! CLIENT LIST, KILL and UNBLOCK over the connections of one sidecar or proxy.
//!
//! Invariant: clients see clients, under the numbers that these are told themselves, never the connections over which
//! a sidecar speaks to the server; those cannot be killed this way either.

use super::identity::word_with;
use super::Identity;
use crate::codec::{error_reply, parse_integer, text_of, write_bulk, Args, Command, Limits, RequestDecoder};

/// What is known here of a client's connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// The number that it is told as its ID.
    pub id: u64,
    /// Its address.
    pub address: String,
    /// The address it has connected to.
    pub listener: String,
    /// When its first bytes came, in milliseconds of the server's Unix time.
    pub begun_ms: i64,
    /// When its last ones came.
    pub heard_ms: i64,
    /// The name that it has given itself.
    pub name: Vec<u8>,
    /// Its database.
    pub db: u16,
    /// Its version of RESP.
    pub resp: u8,
    /// Its user.
    pub user: Vec<u8>,
    /// How many commands its transaction has, if it is in one.
    pub queued: Option<usize>,
    /// Its last command.
    pub command: Vec<u8>,
}

impl Facts {
    pub(super) fn of(identity: &Identity) -> Facts {
        Facts {
            id: identity.id,
            address: identity.address.clone(),
            listener: identity.listener.clone(),
            ..Facts::default()
        }
    }

    /// The fields of CLIENT LIST that are the client's wherever its commands run.
    pub(super) fn own_words(&self, now_ms: i64) -> Vec<(&'static str, Vec<u8>)> {
        let text = |value: &dyn ToString| value.to_string().into_bytes();
        let seconds = |since_ms: i64| text(&(now_ms.saturating_sub(since_ms).max(0) / 1_000));
        vec![
            ("id", text(&self.id)),
            ("addr", text(&self.address)),
            ("laddr", text(&self.listener)),
            ("name", self.name.clone()),
            ("age", seconds(self.begun_ms)),
            ("idle", seconds(self.heard_ms)),
            ("db", text(&self.db)),
            ("user", self.user.clone()),
            ("resp", text(&self.resp)),
        ]
    }

    /// Those of a connection that is no tunnel: it neither blocks nor listens.
    pub(super) fn plain_words(&self, now_ms: i64) -> Vec<(&'static str, Vec<u8>)> {
        let mut words = self.own_words(now_ms);
        let text = |value: &dyn ToString| value.to_string().into_bytes();
        // Ours to the server may be a unix socket; the client's is none.
        words.push(("flags", text(&if self.queued.is_some() { "x" } else { "N" })));
        words.push(("multi", self.queued.map_or_else(|| b"-1".to_vec(), |count| text(&count))));
        words.push(("cmd", self.command.clone()));
        for nothing in ["sub", "psub", "ssub", "multi-mem", "obl", "oll", "omem"] {
            words.push((nothing, b"0".to_vec()));
        }
        words.push(("events", b"r".to_vec()));
        words.push(("redir", b"-1".to_vec()));
        words
    }
}

/// A client's connection, for whoever lists or ends some.
#[derive(Debug, Clone)]
pub struct Row {
    /// What is known of it.
    pub facts: Facts,
    /// Its connection's number at the server, if it is a tunnel and the number is known.
    pub server_id: Option<i64>,
    /// Whether it is a tunnel.
    pub is_tunnel: bool,
}

/// What a client asks about the clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// CLIENT LIST.
    List(Filter),
    /// CLIENT KILL; the command, for whom only the server knows. The old form has one address and answers OK.
    Kill(Filter, bool, Command),
    /// CLIENT UNBLOCK.
    Unblock(Command),
}

/// Which clients are meant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    ids: Vec<u64>,
    address: Option<String>,
    listener: Option<String>,
    user: Option<Vec<u8>>,
    kind: Option<Kind>,
    age_seconds_min: Option<i64>,
    skips_me: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Normal,
    Pubsub,
    Replica,
    Master,
}

/// What comes of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A reply, and whose connections are to be closed.
    Reply(Vec<u8>, Vec<u64>),
    /// The server is asked this instead.
    Forward(Command),
}

const SYNTAX: &str = "ERR syntax error";

impl Question {
    /// Reads CLIENT LIST, KILL or UNBLOCK; the error is what Redis answers. Versions from 7.4 on know MAXAGE.
    pub(super) fn parse(name: &[u8], args: Args<'_>, version: &str) -> Result<Question, String> {
        match name {
            b"client|list" => parse_list(args).map(Question::List),
            b"client|kill" if args.len() == 3 => {
                let address = Some(String::from_utf8_lossy(args.get(2)).into_owned());
                Ok(Question::Kill(Filter { address, ..Filter::default() }, true, args.into()))
            }
            b"client|kill" => parse_kill(args, knows_max_age(version))
                .map(|filter| Question::Kill(filter, false, args.into())),
            _ => Ok(Question::Unblock(args.into())),
        }
    }

    /// Whether the server's own list is needed for an answer.
    pub(super) fn needs_list(&self) -> bool {
        !matches!(self, Question::Unblock(_))
    }

    /// The answer to `asker`, if the server's list is `list` and the clients here are `rows`.
    pub fn answer(&self, now_ms: i64, asker: u64, list: &[u8], rows: &[Row]) -> Outcome {
        let lines = Lines::of(list);
        let admits = |filter: &Filter, row: &Row| filter.admits(now_ms, asker, row, &lines);
        match self {
            Question::List(filter) => {
                let mut text = Vec::new();
                for row in rows.iter().filter(|row| admits(filter, row)) {
                    text.extend_from_slice(&lines.line_of(now_ms, row));
                }
                Outcome::Reply(lines.wrap(&text), Vec::new())
            }
            Question::Kill(filter, is_old, command) => {
                let hit: Vec<u64> =
                    rows.iter().filter(|row| admits(filter, row)).map(|row| row.facts.id).collect();
                if hit.is_empty() && filter.may_be_the_servers() {
                    return Outcome::Forward(command.clone());
                }
                let reply = match (is_old, hit.is_empty()) {
                    (true, true) => error_reply("ERR No such client"),
                    (true, false) => b"+OK\r\n".to_vec(),
                    (false, _) => format!(":{}\r\n", hit.len()).into_bytes(),
                };
                Outcome::Reply(reply, hit)
            }
            Question::Unblock(command) => {
                let id = parse_integer(command.args().get(2));
                let named = rows.iter().find(|row| i64::try_from(row.facts.id).ok() == id);
                match named {
                    Some(row) if !row.is_tunnel => Outcome::Reply(b":0\r\n".to_vec(), Vec::new()),
                    _ => {
                        let id_of = |id| rows.iter().find(|row| row.facts.id == id)?.server_id;
                        let other = with_server_ids(command.args(), id_of);
                        Outcome::Forward(other.unwrap_or_else(|| command.clone()))
                    }
                }
            }
        }
    }
}

fn parse_list(args: Args<'_>) -> Result<Filter, String> {
    let mut filter = Filter::default();
    if args.len() == 2 {
        return Ok(filter);
    }
    if args.len() == 4 && args.is(2, "TYPE") {
        filter.kind = Some(kind(args.get(3))?);
    } else if args.len() > 3 && args.is(2, "ID") {
        for at in 3..args.len() {
            let id = parse_integer(args.get(at)).and_then(|id| u64::try_from(id).ok());
            filter.ids.push(id.ok_or("ERR Invalid client ID")?);
        }
    } else {
        return Err(SYNTAX.to_owned());
    }
    Ok(filter)
}

fn parse_kill(args: Args<'_>, knows_max_age: bool) -> Result<Filter, String> {
    let mut filter = Filter { skips_me: true, ..Filter::default() };
    for at in (2..args.len()).step_by(2) {
        if at + 1 >= args.len() {
            return Err(SYNTAX.to_owned());
        }
        let value = args.get(at + 1);
        let text = || String::from_utf8_lossy(value).into_owned();
        if args.is(at, "ID") {
            let id = parse_integer(value).and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0);
            filter.ids = vec![id.ok_or("ERR client-id should be greater than 0")?];
        } else if args.is(at, "TYPE") {
            filter.kind = Some(kind(value)?);
        } else if args.is(at, "ADDR") {
            filter.address = Some(text());
        } else if args.is(at, "LADDR") {
            filter.listener = Some(text());
        } else if args.is(at, "USER") {
            filter.user = Some(value.to_vec());
        } else if args.is(at, "SKIPME") && ["yes", "no"].iter().any(|word| args.is(at + 1, word)) {
            filter.skips_me = args.is(at + 1, "yes");
        } else if args.is(at, "MAXAGE") && knows_max_age {
            let age = parse_integer(value).filter(|age| *age > 0);
            filter.age_seconds_min = Some(age.ok_or("ERR maxage should be greater than 0")?);
        } else {
            return Err(SYNTAX.to_owned());
        }
    }
    Ok(filter)
}

fn kind(word: &[u8]) -> Result<Kind, String> {
    let kinds = [
        ("normal", Kind::Normal),
        ("pubsub", Kind::Pubsub),
        ("replica", Kind::Replica),
        ("slave", Kind::Replica),
        ("master", Kind::Master),
    ];
    let found = kinds.into_iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()));
    let unknown = || format!("ERR Unknown client type '{}'", String::from_utf8_lossy(word));
    found.map(|(_, kind)| kind).ok_or_else(unknown)
}

fn knows_max_age(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (7, 4)
}

impl Filter {
    fn admits(&self, now_ms: i64, asker: u64, row: &Row, lines: &Lines<'_>) -> bool {
        let facts = &row.facts;
        let is_named = |id: &u64| *id == facts.id || row.server_id.is_some_and(|own| own as u64 == *id);
        let age_seconds = now_ms.saturating_sub(facts.begun_ms) / 1_000;
        (self.ids.is_empty() || self.ids.iter().any(is_named))
            && self.address.as_ref().is_none_or(|address| *address == facts.address)
            && self.listener.as_ref().is_none_or(|listener| *listener == facts.listener)
            && self.user.as_ref().is_none_or(|user| *user == facts.user)
            && self.kind.is_none_or(|kind| kind == lines.kind_of(row))
            && self.age_seconds_min.is_none_or(|least| age_seconds >= least)
            && !(self.skips_me && facts.id == asker)
    }

    /// Whether one connection is meant that may be at the server without us.
    fn may_be_the_servers(&self) -> bool {
        // Ours have numbers from 2^52 on.
        self.address.is_some() || self.ids.iter().any(|id| *id < 1 << 52)
    }
}

/// The server's list.
struct Lines<'a> {
    /// `=` for a verbatim string.
    form: u8,
    lines: Vec<&'a [u8]>,
}

impl<'a> Lines<'a> {
    fn of(reply: &'a [u8]) -> Lines<'a> {
        let body = text_of(reply).unwrap_or_default();
        let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        Lines { form: reply.first().copied().unwrap_or(b'$'), lines: lines.collect() }
    }

    fn of_row(&self, row: &Row) -> Option<&'a [u8]> {
        let start = format!("id={} ", row.server_id?);
        self.lines.iter().copied().find(|line| line.starts_with(start.as_bytes()))
    }

    fn kind_of(&self, row: &Row) -> Kind {
        let Some(line) = self.of_row(row) else { return Kind::Normal };
        let flags = line.split(|byte| *byte == b' ').find_map(|word| word.strip_prefix(b"flags="));
        match flags {
            Some(flags) if flags.contains(&b'P') => Kind::Pubsub,
            Some(flags) if flags.contains(&b'S') && !flags.contains(&b'O') => Kind::Replica,
            _ => Kind::Normal,
        }
    }

    /// A client's line, in the form of this server's: a tunnel's is the server's own, another's is made from any.
    fn line_of(&self, now_ms: i64, row: &Row) -> Vec<u8> {
        let (line, mut words) = match self.of_row(row) {
            Some(line) => (line, row.facts.own_words(now_ms)),
            None => (self.lines.first().copied().unwrap_or_default(), row.facts.plain_words(now_ms)),
        };
        let is_own = self.of_row(row).is_some();
        // What a tunnel has done since, the server knows better.
        words.retain(|(name, _)| !is_own || !matches!(*name, "idle" | "db" | "user" | "resp" | "name"));
        let mut out: Vec<u8> = Vec::new();
        for word in line.split(|byte| *byte == b' ') {
            if is_own && word.starts_with(b"flags=") {
                // The connection to the server may be a unix socket; the client's is none.
                let flags: Vec<u8> = word.iter().copied().filter(|flag| *flag != b'U').collect();
                out.extend_from_slice(if flags == b"flags=" { b"flags=N" } else { &flags });
            } else if is_own && word.starts_with(b"name=scotfree-") {
                out.extend_from_slice(&[b"name=", row.facts.name.as_slice()].concat());
            } else {
                out.extend_from_slice(&word_with(word, &words));
            }
            out.push(b' ');
        }
        out.pop();
        out.push(b'\n');
        out
    }

    fn wrap(&self, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        if self.form == b'=' {
            write_bulk(&mut out, &[b"txt:", text].concat());
            out[0] = b'=';
        } else {
            write_bulk(&mut out, text);
        }
        out
    }
}

/// A command with the server's numbers in the place of ours: CLIENT UNBLOCK, and CLIENT TRACKING with REDIRECT.
pub fn with_server_ids(args: Args<'_>, server_id: impl FnOnce(u64) -> Option<i64>) -> Option<Command> {
    let at = id_place(args)?;
    let id = u64::try_from(parse_integer(args.get(at))?).ok()?;
    let own = server_id(id)?.to_string();
    let words = args.iter().enumerate().map(|(index, word)| if index == at { own.as_bytes() } else { word });
    Some(Command::new(words))
}

fn id_place(args: Args<'_>) -> Option<usize> {
    if !args.is(0, "CLIENT") {
        return None;
    }
    if args.is(1, "UNBLOCK") && args.len() > 2 {
        return Some(2);
    }
    let redirects = |at: &usize| args.is(*at, "REDIRECT") && at + 1 < args.len();
    (2..args.len()).find(redirects).filter(|_| args.is(1, "TRACKING")).map(|at| at + 1)
}

/// The first of the commands.
fn first(commands: &[u8]) -> Option<Command> {
    let mut decoder = RequestDecoder::new(Limits::default());
    decoder.push(commands);
    decoder.pop(true).ok()?.map(Command::from)
}

/// Whether the first of the commands starts replication.
pub fn is_replication(commands: &[u8]) -> bool {
    first(commands).is_some_and(|command| command.args().is(0, "SYNC") || command.args().is(0, "PSYNC"))
}

/// Which connection the first of the commands names, as [`with_server_ids`] finds it.
pub fn named_by(commands: &[u8]) -> Option<u64> {
    let command = first(commands)?;
    let at = id_place(command.args())?;
    u64::try_from(parse_integer(command.args().get(at))?).ok()
}

/// To whom the first of the commands redirects what it tracks.
pub fn redirect_of(commands: &[u8]) -> Option<u64> {
    first(commands).filter(|command| command.args().is(1, "TRACKING"))?;
    named_by(commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 100_000;
    const LIST: &[u8] =
        b"$91\r\nid=5 addr=/s:0 name=scotfree-control flags=U db=15 x=1\nid=9 addr=/s:0 name= flags=PU \
                          db=0 x=2\n\r\n";

    fn rows() -> Vec<Row> {
        let facts = |id: u64, name: &str| Facts {
            id: (1 << 52) + id,
            address: format!("10.0.0.{id}:1"),
            listener: "10.0.0.9:6379".to_owned(),
            name: name.as_bytes().to_vec(),
            user: b"default".to_vec(),
            begun_ms: NOW_MS - 10_000 * id as i64,
            ..Facts::default()
        };
        vec![
            Row { facts: facts(1, "ann"), server_id: None, is_tunnel: false },
            Row { facts: facts(2, ""), server_id: Some(9), is_tunnel: true },
        ]
    }

    fn answer(line: &str) -> Outcome {
        let line = line.replace("ANN", &((1u64 << 52) + 1).to_string());
        let line = line.replace("TUNNEL", &((1u64 << 52) + 2).to_string());
        let command = Command::new(line.split(' '));
        let name = format!("client|{}", line.split(' ').nth(1).expect("a subcommand").to_lowercase());
        let question = Question::parse(name.as_bytes(), command.args(), "7.4.0").expect("well-formed");
        question.answer(NOW_MS, (1 << 52) + 1, LIST, &rows())
    }

    fn hit(line: &str) -> Vec<u64> {
        let Outcome::Reply(reply, hit) = answer(line) else { panic!("{line} is forwarded") };
        if line.len() > "CLIENT KILL".len() && !line.contains("10.0.0.1:1") {
            assert_eq!(reply, format!(":{}\r\n", hit.len()).into_bytes(), "{line}");
        }
        hit.into_iter().map(|id| id - (1 << 52)).collect()
    }

    #[test]
    fn a_list_has_the_clients_in_the_form_of_the_server_and_none_of_ours() {
        let Outcome::Reply(reply, _) = answer("CLIENT LIST") else { panic!("forwarded") };
        let text = String::from_utf8(reply).expect("text");
        let ann = format!("id={} addr=10.0.0.1:1 name=ann flags=N db=0 x=1\n", (1u64 << 52) + 1);
        let tunnel = format!("id={} addr=10.0.0.2:1 name= flags=P db=0 x=2\n", (1u64 << 52) + 2);
        assert!(text.ends_with(&format!("\r\n{ann}{tunnel}\r\n")), "{text}");
        let Outcome::Reply(reply, _) = answer("CLIENT LIST TYPE pubsub") else { panic!("forwarded") };
        assert!(String::from_utf8_lossy(&reply).contains(&tunnel));
        assert!(!String::from_utf8_lossy(&reply).contains(&ann));
    }

    #[test]
    fn every_filter_says_who_is_ended() {
        assert_eq!(hit("CLIENT KILL ID TUNNEL"), [2]);
        assert_eq!(hit("CLIENT KILL ID 9"), [2], "by its number at the server");
        assert_eq!(hit("CLIENT KILL ID ANN"), [], "not who asks");
        assert_eq!(hit("CLIENT KILL ID ANN SKIPME no"), [1]);
        assert_eq!(hit("CLIENT KILL TYPE normal SKIPME no"), [1]);
        assert_eq!(hit("CLIENT KILL TYPE pubsub"), [2]);
        assert_eq!(hit("CLIENT KILL USER default"), [2]);
        assert_eq!(hit("CLIENT KILL USER other SKIPME no"), []);
        assert_eq!(hit("CLIENT KILL ADDR 10.0.0.2:1"), [2]);
        assert_eq!(hit("CLIENT KILL LADDR 10.0.0.9:6379 SKIPME no"), [1, 2]);
        assert_eq!(hit("CLIENT KILL MAXAGE 15 SKIPME no"), [2]);
        assert_eq!(hit("CLIENT KILL SKIPME yes"), [2]);
        assert_eq!(hit("CLIENT KILL 10.0.0.1:1"), [1], "the old form spares nobody");
    }

    #[test]
    fn whoever_only_the_server_can_know_is_its_affair() {
        assert!(matches!(answer("CLIENT KILL ID 77"), Outcome::Forward(_)));
        assert!(matches!(answer("CLIENT KILL 10.0.0.77:1"), Outcome::Forward(_)));
        let unblock = |line| match answer(line) {
            Outcome::Forward(command) => String::from_utf8_lossy(command.args().get(2)).into_owned(),
            Outcome::Reply(reply, _) => String::from_utf8_lossy(&reply).into_owned(),
        };
        assert_eq!(unblock("CLIENT UNBLOCK TUNNEL ERROR"), "9");
        assert_eq!(unblock("CLIENT UNBLOCK 77"), "77");
        assert_eq!(unblock("CLIENT UNBLOCK ANN"), ":0\r\n", "it does not block");
    }

    #[test]
    fn a_redirection_names_the_connection_at_the_server() {
        let line = Command::new(["CLIENT", "TRACKING", "on", "REDIRECT", "12"]);
        let other = with_server_ids(line.args(), |id| (id == 12).then_some(3)).expect("it is known");
        assert_eq!(other.args().get(4), b"3");
        assert!(with_server_ids(line.args(), |_| None).is_none());
        let mut bytes = Vec::new();
        crate::codec::write_command(&mut bytes, line.args());
        assert_eq!(
            (redirect_of(&bytes), redirect_of(b"PING\r\n"), redirect_of(b"CLI")),
            (Some(12), None, None)
        );
        assert!(is_replication(b"SYNC\r\n") && !is_replication(b"PING\r\n"));
    }
}
