//! Sends each request to several members of a group under one identity, as a client does that fears that it was lost.
//!
//! Invariant: every request has as many answers as members it was sent to before it is done, and a counter says how
//! often requests were executed.

use super::embedded::{parse_reply, write_request};
use super::group_use::Members;
use scotfree_core::KeyHash;
use scotfree_io::udp::{UdpConfig, UdpTransport};
use scotfree_resp::codec::Reply;
use scotfree_rpc::{
    CallLabel, ClientEvent, ClientOptions, ClientRuntime, Mode, Request, RequestKind, SessionHandle,
    SessionOptions,
};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::workload::Random;
use scotfree_wire::{ClusterKey, Identity};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Members remember so many answers of a client, and more: it may not be so far ahead of its oldest request.
const AHEAD_MAX: u64 = 256;
const OUTSTANDING_MAX: usize = 64;
const KEYS: u64 = 16;
/// How long nothing may happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// What to send.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GroupResentSpec {
    /// The group.
    pub members: Members,
    /// How many requests; each is sent to two members at least.
    pub requests: u64,
    /// Where choices begin.
    pub seed: u64,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GroupResentReport {
    /// Requests.
    pub requests: u64,
    /// How often they were sent.
    pub sent: u64,
    /// Requests to which two members gave different answers.
    pub differing: u64,
    /// Answers that were none.
    pub refused: u64,
    /// How often a member had no room for the moment, and was sent the same again.
    pub put_off: u64,
    /// What the counters say at last.
    pub counted: u64,
}

/// A request under way.
struct Underway {
    identity: Identity,
    /// Answers that are to come.
    left: u32,
    answer: Option<Reply>,
}

struct Sender<'a> {
    spec: &'a GroupResentSpec,
    runtime: ClientRuntime<UdpTransport>,
    sessions: Vec<(u8, SessionHandle)>,
    client: [u8; 16],
    random: Random,
    underway: BTreeMap<u64, Underway>,
    /// Which request an answer is of, by session and its number there.
    places: HashMap<(SessionHandle, u64), u64>,
    report: GroupResentReport,
}

/// Sends the requests.
pub(super) fn run(spec: &GroupResentSpec) -> Result<GroupResentReport, Trouble> {
    let broke = |error: io::Error| Trouble::new("use a group", error, "see the logs of its members");
    let mut sender = Sender::open(spec).map_err(broke)?;
    sender.send_all().map_err(broke)?;
    sender.count().map_err(broke)?;
    Ok(sender.report)
}

impl<'a> Sender<'a> {
    fn open(spec: &'a GroupResentSpec) -> io::Result<Sender<'a>> {
        let here: SocketAddr = "127.0.0.1:0".parse().expect("it is an address");
        let transport = UdpTransport::bind(here, &UdpConfig::default())?;
        let key = ClusterKey::from_bytes(spec.members.cluster_key);
        let mut runtime = ClientRuntime::new(transport, ClientOptions::new(spec.members.addresses[0].1, key));
        let mut client = [0; 16];
        getrandom::fill(&mut client).map_err(|error| io::Error::other(error.to_string()))?;
        let mut sessions = Vec::new();
        for (id, address) in &spec.members.addresses {
            let options = SessionOptions { server: Some(*address), ..SessionOptions::default() };
            sessions.push((*id, runtime.start_session(options).map_err(io::Error::other)?));
        }
        let random = Random::new(spec.seed, 0);
        let (underway, places) = (BTreeMap::new(), HashMap::new());
        let report = GroupResentReport::default();
        let mut sender = Sender { spec, runtime, sessions, client, random, underway, places, report };
        sender.await_sessions()?;
        Ok(sender)
    }

    fn await_sessions(&mut self) -> io::Result<()> {
        let begin = Instant::now();
        while self.sessions.iter().any(|(_, session)| self.runtime.credit(*session) == 0) {
            if begin.elapsed() > PATIENCE {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "a member opens no session"));
            }
            self.runtime.turn()?;
            while self.runtime.next_event().is_some() {}
            self.runtime.wait(Some(Duration::from_millis(10)))?;
        }
        Ok(())
    }

    fn send_all(&mut self) -> io::Result<()> {
        let mut last = Instant::now();
        while self.report.requests < self.spec.requests || !self.underway.is_empty() {
            while self.may_send() {
                self.send()?;
            }
            self.runtime.turn()?;
            if self.take()? {
                last = Instant::now();
            } else if last.elapsed() > PATIENCE {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "a request has no answer"));
            } else {
                self.runtime.wait(Some(Duration::from_millis(100)))?;
            }
        }
        Ok(())
    }

    fn may_send(&self) -> bool {
        let next = self.report.requests + 1;
        let oldest = self.underway.keys().next().copied().unwrap_or(next);
        let has_room = self.underway.len() < OUTSTANDING_MAX && next - oldest < AHEAD_MAX;
        let has_credit = self.sessions.iter().all(|(_, session)| self.runtime.credit(*session) > 0);
        self.report.requests < self.spec.requests && has_room && has_credit
    }

    /// Sends a request to two members or more, in any order.
    fn send(&mut self) -> io::Result<()> {
        self.report.requests += 1;
        let number = self.report.requests;
        let all = self.sessions.len() as u64;
        let (first, copies) = (self.random.below(all), 2 + self.random.below(all - 1));
        let (id, session) = self.sessions[first as usize];
        let identity = Identity { client: self.client, number: self.identity_number(number, id, session) };
        for place in 0..copies {
            let (_, session) = self.sessions[((first + place) % all) as usize];
            self.submit(session, number, identity)?;
        }
        self.underway.insert(number, Underway { identity, left: copies as u32, answer: None });
        Ok(())
    }

    fn send_again(&mut self, session: SessionHandle, number: u64) -> io::Result<()> {
        let identity = self.underway[&number].identity;
        self.submit(session, number, identity)
    }

    /// As a group's client makes it: its count, the member that has it first, and that one's life.
    fn identity_number(&self, number: u64, id: u8, session: SessionHandle) -> u64 {
        let epoch = self.runtime.server_epoch(session).unwrap_or_default();
        number | u64::from(epoch.0 as u16) << 40 | u64::from(id) << 56
    }

    fn submit(&mut self, session: SessionHandle, number: u64, identity: Identity) -> io::Result<()> {
        let mut payload = Vec::new();
        write_request(&[&["INCR", &key_name(number % KEYS)]], false, &mut payload);
        let request = request(RequestKind::Update, &payload);
        let seq = self
            .runtime
            .submit_identified(session, request, identity, CallLabel::new("lab"))
            .map_err(|error| io::Error::other(format!("{error:?}")))?;
        self.places.insert((session, seq.0), number);
        self.report.sent += 1;
        Ok(())
    }

    /// Takes what was answered; whether there was any.
    fn take(&mut self) -> io::Result<bool> {
        let mut has_come = false;
        while let Some(event) = self.runtime.next_event() {
            match event {
                ClientEvent::Completed { session, reply, .. } => {
                    has_come = true;
                    let answer = parse_reply(reply.bytes.unwrap_or_default());
                    let Some(number) = self.places.remove(&(session, reply.seq.0)) else { continue };
                    if on_answer(&mut self.underway, &mut self.report, number, answer) {
                        self.send_again(session, number)?;
                    }
                }
                ClientEvent::Closed { .. } => return Err(io::Error::other("a session has ended")),
                ClientEvent::Opened { .. } => {}
            }
        }
        Ok(has_come)
    }

    /// What the counters say at last, by one of the members.
    fn count(&mut self) -> io::Result<()> {
        for key in 0..KEYS {
            let mut payload = Vec::new();
            write_request(&[&["GET", &key_name(key)]], false, &mut payload);
            let session = self.sessions[(key % self.sessions.len() as u64) as usize].1;
            self.runtime
                .submit(session, request(RequestKind::Read, &payload), CallLabel::new("lab"))
                .map_err(|error| io::Error::other(format!("{error:?}")))?;
            self.report.counted += self.next_number()?;
        }
        Ok(())
    }

    fn next_number(&mut self) -> io::Result<u64> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            self.runtime.turn()?;
            if let Some(ClientEvent::Completed { reply, .. }) = self.runtime.next_event() {
                return match parse_reply(reply.bytes.unwrap_or_default()) {
                    Ok(Reply::Bulk(bytes)) => number_in(&bytes),
                    Ok(Reply::Null) => Ok(0),
                    other => Err(io::Error::other(format!("a counter is {other:?}"))),
                };
            }
            self.runtime.wait(Some(Duration::from_millis(100)))?;
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "a read has no answer"))
    }
}

/// Takes an answer; whether it is to be sent again, as a group's client does it.
fn on_answer(
    underway: &mut BTreeMap<u64, Underway>,
    report: &mut GroupResentReport,
    number: u64,
    answer: Result<Reply, String>,
) -> bool {
    let Some(request) = underway.get_mut(&number) else { return false };
    if matches!(&answer, Ok(Reply::Error(why)) if why.starts_with("BUSY")) {
        report.put_off += 1;
        return true;
    }
    request.left -= 1;
    match answer {
        Ok(answer @ Reply::Integer(_)) => {
            report.differing += u64::from(request.answer.as_ref().is_some_and(|other| *other != answer));
            request.answer = Some(answer);
        }
        other => {
            eprintln!("request {number} is refused: {other:?}");
            report.refused += 1;
        }
    }
    if request.left == 0 {
        underway.remove(&number);
    }
    false
}

fn request(kind: RequestKind, payload: &[u8]) -> Request<'_> {
    Request {
        kind,
        mode: Mode::Covered,
        fixed_reply: false,
        relaxed: false,
        traced: false,
        key_hash: KeyHash(0),
        payload,
    }
}

fn key_name(key: u64) -> String {
    format!("count{key}")
}

fn number_in(bytes: &[u8]) -> io::Result<u64> {
    let number = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| io::Error::other("a counter holds no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_done_when_all_have_answered_and_differing_answers_are_counted() {
        let mut report = GroupResentReport::default();
        let identity = Identity { client: [1; 16], number: 7 };
        let mut underway = BTreeMap::from([(7, Underway { identity, left: 3, answer: None })]);
        let busy = Reply::Error("BUSY no room".to_owned());
        let answers = [Ok(Reply::Integer(4)), Ok(busy), Err("none".to_owned()), Ok(Reply::Integer(5))];
        let is_again = answers.map(|answer| {
            assert!(!underway.is_empty());
            on_answer(&mut underway, &mut report, 7, answer)
        });
        assert_eq!(is_again, [false, true, false, false]);
        assert!(underway.is_empty());
        assert_eq!((report.differing, report.refused, report.put_off), (1, 1, 1));
    }
}
