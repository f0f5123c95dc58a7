//! What the Redis tells of writes, whoever makes them, and up to when it has told of all.
//!
//! Invariant: whatever the Redis had executed when a PING was sent that counts has been handed on. The Redis writes what
//! it has to tell to a connection at the end of each turn of its loop, and answers a PING within a turn: the answer may
//! leave before what was executed earlier in that turn. So a PING counts when a later one is answered, which was sent
//! behind the first one's answer and is executed in a later turn.

mod link;

pub(super) use link::Link;
use scotfree_core::Nanos;
use scotfree_resp::back::LANE_NAME_PREFIX;
use scotfree_resp::codec::{elements, is_error, text_of, write_words, Frames, Limits};

/// Longer messages than this end the connection: who changes so much in one turn of the Redis has changed all.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// How many PINGs there are, at least, in the time for which one counts: two have to be answered, and be late now and
/// then.
const PINGS_OF_A_BOUND: u64 = 4;
/// How long reads are awaited, in times for which a PING counts, before none is sent any more.
const WANTED_BOUNDS: u64 = 4;
/// Behind an error in the place of an answer: the Redis is loading, or runs a script that does not end.
const REST: Nanos = Nanos::from_millis(10);
/// The greeting, and the word that all keys are to be told of.
const GREETINGS: u8 = 2;

/// What there is to be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told<'a> {
    /// From now on everything is told.
    Begun,
    /// This key has been written, in whatever database.
    Key(&'a [u8]),
    /// Any key may have been.
    Everything,
    /// Of what was executed before this time all has been told.
    Until(Nanos),
    /// Nothing is told any more.
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed,
    /// So many answers are missing.
    Greeting(u8),
    Open,
}

/// The connection without its socket.
#[derive(Debug)]
pub(super) struct Tracking {
    bound: Nanos,
    state: State,
    frames: Frames,
    output: Vec<u8>,
    /// When the PING was sent that has no answer.
    asked: Option<Nanos>,
    /// And the one that was answered last, if it is behind nothing that is not known.
    answered: Option<Nanos>,
    /// And the one that counts.
    counts: Option<Nanos>,
    wanted_until: Nanos,
    rests_until: Nanos,
    pings: u64,
    /// A rule that is switched off, for tests of the tests: a PING counts as soon as it is answered.
    #[cfg(test)]
    pub counts_at_once: bool,
}

impl Tracking {
    /// A connection that is not open, whose PINGs count for so long.
    pub fn new(bound: Nanos) -> Tracking {
        Tracking {
            bound,
            state: State::Closed,
            frames: frames(),
            output: Vec::new(),
            asked: None,
            answered: None,
            counts: None,
            wanted_until: Nanos(0),
            rests_until: Nanos(0),
            pings: 0,
            #[cfg(test)]
            counts_at_once: false,
        }
    }

    /// For how long a PING counts.
    pub fn bound(&self) -> Nanos {
        self.bound
    }

    /// Whether everything is told.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// How many PINGs were sent.
    pub fn pings(&self) -> u64 {
        self.pings
    }

    /// It is connected; these are the user and the password, if any are to be given.
    pub fn on_connected(&mut self, credentials: Option<(&str, &str)>) {
        self.close();
        self.state = State::Greeting(GREETINGS);
        let name = format!("{LANE_NAME_PREFIX}tracking");
        let mut hello: Vec<&[u8]> = vec![b"HELLO", b"3"];
        if let Some((user, password)) = credentials {
            hello.extend([&b"AUTH"[..], user.as_bytes(), password.as_bytes()]);
        }
        hello.extend([&b"SETNAME"[..], name.as_bytes()]);
        write_words(&mut self.output, &hello);
        // Not NOLOOP, and not on the connection that the proxy's own writes take: of a key that was changed twice in a
        // turn the Redis knows who did so last, and would leave out another's write before.
        write_words(&mut self.output, &[b"CLIENT", b"TRACKING", b"ON", b"BCAST"]);
    }

    /// It is not connected.
    pub fn close(&mut self) {
        self.state = State::Closed;
        self.frames = frames();
        self.output.clear();
        (self.asked, self.answered, self.counts) = (None, None, None);
    }

    /// What is to be sent.
    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// So much of it is sent.
    pub fn sent(&mut self, count: usize) {
        self.output.drain(..count);
    }

    /// Somebody reads what could be answered if a PING counted.
    pub fn want(&mut self, now: Nanos) {
        self.wanted_until = now.plus(Nanos(self.bound.0.saturating_mul(WANTED_BOUNDS)));
    }

    /// Sends a PING if it is time. No earlier time than `now` may be behind its sending.
    pub fn on_time(&mut self, now: Nanos) {
        if self.next_ping(now).is_some_and(|at| at <= now) {
            write_words(&mut self.output, &[b"PING"]);
            self.asked = Some(now);
            self.pings += 1;
        }
    }

    /// When the next PING is due, as far as is known now.
    pub fn next_ping(&self, now: Nanos) -> Option<Nanos> {
        if self.state != State::Open || self.asked.is_some() || now >= self.wanted_until {
            return None;
        }
        let pace = Nanos(self.bound.0 / PINGS_OF_A_BOUND);
        let due = match (self.counts, self.answered) {
            (Some(counts), Some(last)) if last.since(counts) <= pace.plus(pace) => last.plus(pace),
            // Nothing counts that is not old.
            _ => Nanos(0),
        };
        Some(due.max(self.rests_until))
    }

    /// The Redis has sent this. An error is why the connection is of no use.
    pub fn on_bytes(&mut self, bytes: &[u8], tell: &mut impl FnMut(Told<'_>)) -> Result<(), String> {
        let mut frames = std::mem::take(&mut self.frames);
        frames.push(bytes);
        let result = loop {
            match frames.pop() {
                Ok(None) => break Ok(()),
                Ok(Some(message)) => {
                    if let Err(trouble) = self.on_message(message, tell) {
                        break Err(trouble);
                    }
                }
                Err(error) => break Err(error.to_string()),
            }
        };
        self.frames = frames;
        result
    }

    fn on_message(&mut self, message: &[u8], tell: &mut impl FnMut(Told<'_>)) -> Result<(), String> {
        let is_push = message.first() == Some(&b'>');
        let text = || String::from_utf8_lossy(message.trim_ascii()).into_owned();
        match self.state {
            _ if is_push => tell_of(message, tell),
            State::Greeting(_) if is_error(message) => return Err(text()),
            State::Greeting(missing) if missing > 1 => self.state = State::Greeting(missing - 1),
            State::Greeting(_) => {
                self.state = State::Open;
                tell(Told::Begun);
            }
            State::Open if message == b"+PONG\r\n" => self.on_pong(tell)?,
            State::Open if is_error(message) => self.on_refused(),
            State::Open | State::Closed => return Err(format!("it answers a PING with {}", text())),
        }
        Ok(())
    }

    fn on_pong(&mut self, tell: &mut impl FnMut(Told<'_>)) -> Result<(), String> {
        let sent = self.asked.take().ok_or("it answers what it was not asked")?;
        let before = self.answered.replace(sent);
        #[cfg(test)]
        let before = if self.counts_at_once { Some(sent) } else { before };
        if let Some(before) = before {
            self.counts = Some(before);
            tell(Told::Until(before));
        }
        Ok(())
    }

    /// The Redis may be within a turn that takes long: what it answers meanwhile says nothing of that turn.
    fn on_refused(&mut self) {
        let sent = self.asked.take().unwrap_or(Nanos(0));
        self.rests_until = sent.plus(REST);
        (self.answered, self.counts) = (None, None);
    }
}

fn frames() -> Frames {
    Frames::new(Limits { reply_bytes_max: MESSAGE_BYTES_MAX, ..Limits::default() })
}

/// Hands on what a push says; of one that says something else anything may be true.
fn tell_of(push: &[u8], tell: &mut impl FnMut(Told<'_>)) {
    let parts: Vec<&[u8]> = elements(push).collect();
    let keys = match parts[..] {
        [kind, keys @ [b'*', digit, ..]]
            if digit.is_ascii_digit() && text_of(kind) == Some(b"invalidate") =>
        {
            keys
        }
        _ => return tell(Told::Everything),
    };
    for key in elements(keys) {
        tell(text_of(key).map_or(Told::Everything, Told::Key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Nanos = Nanos::from_millis(8);
    const PONG: &[u8] = b"+PONG\r\n";

    fn ms(count: u64) -> Nanos {
        Nanos::from_millis(count)
    }

    /// What is told, in words.
    fn told(tracking: &mut Tracking, bytes: &[u8]) -> Result<Vec<String>, String> {
        let mut all = Vec::new();
        tracking.on_bytes(bytes, &mut |told| {
            all.push(match told {
                Told::Key(key) => String::from_utf8_lossy(key).into_owned(),
                told => format!("{told:?}"),
            });
        })?;
        Ok(all)
    }

    fn sent(tracking: &mut Tracking) -> String {
        let text = String::from_utf8_lossy(tracking.output()).replace("\r\n", " ");
        tracking.sent(tracking.output().len());
        text
    }

    fn open() -> Tracking {
        let mut tracking = Tracking::new(BOUND);
        tracking.on_connected(None);
        sent(&mut tracking);
        assert_eq!(told(&mut tracking, b"%1\r\n+proto\r\n:3\r\n+OK\r\n"), Ok(vec!["Begun".to_owned()]));
        tracking
    }

    /// A PING that is sent at `now`, if one is due.
    fn pings(tracking: &mut Tracking, now: Nanos) -> bool {
        tracking.on_time(now);
        sent(tracking).contains("PING")
    }

    #[test]
    fn it_begins_when_all_keys_are_tracked() {
        let mut tracking = Tracking::new(BOUND);
        tracking.on_connected(Some(("scot", "secret")));
        let greeting = sent(&mut tracking);
        for part in ["HELLO $1 3 $4 AUTH $4 scot $6 secret $7 SETNAME", "TRACKING $2 ON $5 BCAST"] {
            assert!(greeting.contains(part), "{greeting}");
        }
        assert_eq!((told(&mut tracking, b"%0\r\n"), tracking.is_open()), (Ok(vec![]), false));
        assert!(!pings(&mut tracking, ms(1)));
        let refused = told(&mut tracking, b"-NOPERM no permission\r\n");
        assert_eq!(refused, Err("-NOPERM no permission".to_owned()));
    }

    #[test]
    fn a_ping_counts_when_one_that_was_sent_behind_its_answer_is_answered() {
        let mut tracking = open();
        assert!(!pings(&mut tracking, ms(1)), "nobody reads");
        tracking.want(ms(1));
        assert!(pings(&mut tracking, ms(1)) && !pings(&mut tracking, ms(2)), "one at a time");
        assert_eq!(told(&mut tracking, PONG), Ok(vec![]));
        assert!(pings(&mut tracking, ms(3)), "at once, since nothing counts");
        // What the turn of the first one has changed stands behind its answer.
        let bytes = b">2\r\n$10\r\ninvalidate\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n+PONG\r\n";
        assert_eq!(
            told(&mut tracking, bytes),
            Ok(vec!["a".into(), "b".into(), "Until(Nanos(1000000))".into()])
        );
        assert_eq!(tracking.next_ping(ms(4)), Some(ms(5)), "a quarter of the bound later");
        assert!(!pings(&mut tracking, ms(4)) && pings(&mut tracking, ms(5)));
        assert_eq!(told(&mut tracking, PONG), Ok(vec!["Until(Nanos(3000000))".into()]));
        assert_eq!(tracking.next_ping(ms(33)), None, "nobody has read for a while");
        tracking.want(ms(40));
        assert!(pings(&mut tracking, ms(40)));
        assert_eq!(told(&mut tracking, PONG), Ok(vec!["Until(Nanos(5000000))".into()]));
        assert!(pings(&mut tracking, ms(41)), "what counts is old");
    }

    #[test]
    fn an_error_in_the_place_of_an_answer_counts_for_nothing_and_what_went_before_neither() {
        let mut tracking = open();
        tracking.want(ms(1));
        assert!(pings(&mut tracking, ms(1)));
        assert_eq!(told(&mut tracking, PONG), Ok(vec![]));
        assert!(pings(&mut tracking, ms(2)));
        assert_eq!(told(&mut tracking, b"-BUSY Redis is busy running a script\r\n"), Ok(vec![]));
        assert_eq!(tracking.next_ping(ms(3)), Some(ms(12)));
        assert!(pings(&mut tracking, ms(12)));
        assert_eq!(told(&mut tracking, PONG), Ok(vec![]), "the turn of the first may have lasted until now");
        assert!(pings(&mut tracking, ms(13)));
        assert_eq!(told(&mut tracking, PONG), Ok(vec!["Until(Nanos(12000000))".into()]));
    }

    #[test]
    fn of_what_is_not_understood_anything_may_be_true() {
        let mut tracking = open();
        for push in [
            &b">2\r\n$10\r\ninvalidate\r\n_\r\n"[..],
            b">2\r\n$10\r\ninvalidate\r\n*-1\r\n",
            b">2\r\n$5\r\nother\r\n*1\r\n$1\r\na\r\n",
            b">1\r\n$10\r\ninvalidate\r\n",
            b">2\r\n$10\r\ninvalidate\r\n*1\r\n_\r\n",
        ] {
            assert_eq!(told(&mut tracking, push), Ok(vec!["Everything".to_owned()]), "{push:?}");
        }
        assert!(told(&mut tracking, b"+OK\r\n").is_err());
        assert!(told(&mut open(), PONG).is_err(), "nothing was asked");
        assert!(told(&mut open(), b"nonsense\r\n").is_err());
    }

    #[test]
    fn a_connection_that_is_lost_says_nothing_of_the_next_one() {
        let mut tracking = open();
        tracking.want(ms(1));
        assert!(pings(&mut tracking, ms(1)));
        tracking.close();
        assert!(!tracking.is_open() && tracking.next_ping(ms(1)).is_none());
        tracking.on_connected(None);
        sent(&mut tracking);
        assert_eq!(told(&mut tracking, b"%0\r\n+OK\r\n"), Ok(vec!["Begun".to_owned()]));
        assert!(pings(&mut tracking, ms(2)));
        assert_eq!(told(&mut tracking, PONG), Ok(vec![]), "one of before does not count");
    }
}
