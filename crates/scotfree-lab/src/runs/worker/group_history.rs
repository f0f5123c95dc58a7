//! Clients of a group that count and set the same few keys, and what they saw, judged.
//!
//! Invariant: each client has one operation under way at a time, notes when it was called and when it was answered, and
//! what had no answer may have been done or not. Keys are of this history alone, which so begins with nothing.

use super::embedded::{parse_reply, write_request};
use super::group_use::{group_client, Members, Requests};
use scotfree_check::{check, Answer, Key, Limits, Op, Operation, Registers, Reply, Verdict};
use scotfree_io::now_monotonic;
use scotfree_io::udp::UdpTransport;
use scotfree_resp::codec::Reply as Said;
use scotfree_rpc::{key_hash, CallLabel, GroupClient, GroupEvent, RequestKind};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::workload::Random;
use serde::{Deserialize, Serialize};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// A verdict takes so many steps, and one on a violation is not worth much more time to make it smaller.
const LIMITS: Limits = Limits { steps_max: 2_000_000, smallest_steps_max: 50_000 };
/// Keys that are only counted up, from 0; behind them those that are set.
const COUNTERS: u32 = 2;
const REGISTERS: u32 = 2;
/// How long a client waits for its group before it looks again.
const LOOK: Duration = Duration::from_secs(1);

/// What to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GroupHistorySpec {
    /// The group.
    pub members: Members,
    /// What the keys' names begin with.
    pub prefix: String,
    /// How many clients there are.
    pub clients: u64,
    /// How many operations each of them makes at most.
    pub operations_max: u64,
    /// How long they begin operations.
    pub time_ms: u64,
    /// Where choices begin.
    pub seed: u64,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GroupHistoryReport {
    /// Operations.
    pub operations: u64,
    /// Those that had no answer.
    pub unanswered: u64,
    /// Operations that were sent to several members.
    pub sent_again: u64,
    /// INCRs that were answered and are not in the counters.
    pub lost: u64,
    /// What the counters have more than there were INCRs.
    pub doubled: u64,
    /// Whether no order explains what was seen.
    pub unexplained: u64,
    /// Whether that was not found out.
    pub undecided: u64,
}

type History = Vec<Operation<Op, Reply>>;

/// Makes the operations, and judges them.
pub(super) fn run(spec: &GroupHistorySpec) -> Result<GroupHistoryReport, Trouble> {
    let broke = |error: io::Error| Trouble::new("use a group", error, "see the logs of its members");
    let mut seen: Vec<Seen> = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..spec.clients).map(|number| scope.spawn(move || Client::open(spec, number)?.run())).collect();
        let joined = threads.into_iter().map(|thread| thread.join().expect("a client does not panic"));
        joined.collect::<io::Result<_>>().map_err(broke)
    })?;
    let mut reader = Client::open(spec, spec.clients).map_err(broke)?;
    reader.read_all().map_err(broke)?;
    seen.push(reader.into_seen());
    let sent_again = seen.iter().map(|seen| seen.sent_again).sum();
    let history: History = seen.into_iter().flat_map(|seen| seen.history).collect();
    Ok(judge(&history, sent_again))
}

/// What the counters say against what was counted; and whether some order explains all of it.
fn judge(history: &History, sent_again: u64) -> GroupHistoryReport {
    let mut report =
        GroupHistoryReport { operations: history.len() as u64, sent_again, ..Default::default() };
    report.unanswered = history.iter().filter(|operation| operation.answer.is_none()).count() as u64;
    for counter in (0..COUNTERS).map(Key) {
        let is_count = |operation: &&Operation<Op, Reply>| operation.op == Op::Incr { key: counter };
        let all = history.iter().filter(is_count).count() as u64;
        let answered =
            history.iter().filter(is_count).filter(|operation| operation.answer.is_some()).count() as u64;
        // Who reads everything at the end comes last.
        let read = history.iter().rev().find(|operation| operation.op == Op::Get { key: counter });
        let found = match read.and_then(|operation| operation.answer.as_ref()) {
            Some(Answer { reply: Reply::Values(values), .. }) => values[0].unwrap_or(0),
            _ => continue,
        };
        report.lost += answered.saturating_sub(found);
        report.doubled += found.saturating_sub(all);
    }
    match check(&Registers, history, LIMITS) {
        Verdict::Linearizable => {}
        Verdict::Unknown { .. } => report.undecided = 1,
        Verdict::Violation(violation) => {
            report.unexplained = 1;
            eprintln!("{}", violation.describe(&Registers, history));
        }
    }
    report
}

/// What one client saw.
struct Seen {
    history: History,
    sent_again: u64,
}

struct Client<'a> {
    spec: &'a GroupHistorySpec,
    number: u64,
    group: GroupClient<UdpTransport>,
    random: Random,
    history: History,
    payload: Vec<u8>,
}

impl<'a> Client<'a> {
    fn open(spec: &'a GroupHistorySpec, number: u64) -> io::Result<Client<'a>> {
        let seed = spec.seed ^ number << 32;
        let group = group_client(&spec.members, &Requests { seed, ..Requests::default() })?;
        let random = Random::new(spec.seed, number);
        Ok(Client { spec, number, group, random, history: Vec::new(), payload: Vec::new() })
    }

    fn run(mut self) -> io::Result<Seen> {
        let begin = Instant::now();
        for count in 1..=self.spec.operations_max {
            if begin.elapsed() >= Duration::from_millis(self.spec.time_ms) {
                break;
            }
            // The upper half names the client, so every value is written once.
            let op = draw(&mut self.random, (self.number + 1) << 32 | count);
            self.make(op)?;
        }
        Ok(self.into_seen())
    }

    fn read_all(&mut self) -> io::Result<()> {
        (0..COUNTERS + REGISTERS).try_for_each(|key| self.make(Op::Get { key: Key(key) }))
    }

    fn into_seen(self) -> Seen {
        Seen { sent_again: self.group.counters().sent_again, history: self.history }
    }

    fn make(&mut self, op: Op) -> io::Result<()> {
        let (Op::Get { key } | Op::Incr { key } | Op::Set { key, .. }) = op else { return Ok(()) };
        let name = format!("{}{}", self.spec.prefix, key.0);
        let kind = match &op {
            Op::Set { value, .. } => self.put(&["SET", &name, &value.to_string()], RequestKind::Update),
            Op::Incr { .. } => self.put(&["INCR", &name], RequestKind::Update),
            _ => self.put(&["GET", &name], RequestKind::Read),
        };
        let called = now_monotonic().0;
        let hash = key_hash(name.as_bytes());
        self.group
            .submit_keyed(kind, hash, &self.payload, CallLabel::new("lab"))
            .map_err(io::Error::other)?;
        let said = self.next_answer()?;
        let answer = said.map(|said| reply_of(&op, said)).transpose()?;
        let answer = answer.map(|reply| Answer { at: now_monotonic().0, reply });
        self.history.push(Operation { client: self.number, called, op, answer });
        Ok(())
    }

    fn put(&mut self, words: &[&str], kind: RequestKind) -> RequestKind {
        write_request(&[words], false, &mut self.payload);
        kind
    }

    /// What the one request under way was answered; nothing if it was given up.
    fn next_answer(&mut self) -> io::Result<Option<Said>> {
        loop {
            self.group.turn()?;
            match self.group.next_event() {
                Some(GroupEvent::Answered { bytes, .. }) => {
                    return parse_reply(bytes).map(Some).map_err(io::Error::other)
                }
                Some(GroupEvent::GivenUp { .. }) => return Ok(None),
                None => self.group.wait(Some(LOOK))?,
            }
        }
    }
}

fn draw(random: &mut Random, value: u64) -> Op {
    let mut of = |keys: u32| random.below(u64::from(keys)) as u32;
    let (counter, register) = (Key(of(COUNTERS)), Key(COUNTERS + of(REGISTERS)));
    match random.below(4) {
        0 | 1 => Op::Incr { key: counter },
        2 => Op::Set { key: register, value },
        _ => Op::Get { key: if random.below(2) == 0 { counter } else { register } },
    }
}

fn reply_of(op: &Op, said: Said) -> io::Result<Reply> {
    match (op, said) {
        (Op::Set { .. }, Said::Simple(text)) if text == "OK" => Ok(Reply::Done),
        (Op::Incr { .. }, Said::Integer(number)) => Ok(Reply::Number(number as u64)),
        (Op::Get { .. }, Said::Null) => Ok(Reply::Values(vec![None])),
        (Op::Get { .. }, Said::Bulk(bytes)) => {
            let value = std::str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok());
            let value = value.ok_or_else(|| io::Error::other("a key holds no number"))?;
            Ok(Reply::Values(vec![Some(value)]))
        }
        (op, said) => Err(io::Error::other(format!("{op:?} was answered {said:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(counted: u64, found: u64) -> History {
        let answered = |client, called, op, reply| {
            let answer = Some(Answer { at: called + 1, reply });
            Operation { client, called, op, answer }
        };
        let key = Key(0);
        let counts =
            (1..=counted).map(|number| answered(0, 10 * number, Op::Incr { key }, Reply::Number(number)));
        let read = answered(1, 1_000, Op::Get { key }, Reply::Values(vec![Some(found)]));
        counts.chain([read]).collect()
    }

    #[test]
    fn counters_tell_what_is_lost_and_what_was_done_twice() {
        let told = |counted, found| {
            let report = judge(&history(counted, found), 0);
            (report.lost, report.doubled, report.unexplained)
        };
        assert_eq!(told(5, 5), (0, 0, 0));
        assert_eq!(told(5, 4), (1, 0, 1));
        assert_eq!(told(5, 7), (0, 2, 1));
    }
}
