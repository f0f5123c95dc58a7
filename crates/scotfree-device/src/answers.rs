//! Answers that functions gave in the server's place: kept until the client has them for certain, and what they
//! answered passed over at the server.
//!
//! Invariant: a read that was answered here takes no step at the server: before the next request of its session is
//! passed on, either its client's own word or one `Read | SKIP` in the client's name covers it. What was passed over
//! nobody else can answer, so the answer stays until the client's word covers it. Where there is no room to keep it,
//! nothing is passed over either ([`Base::answer_unkept`]).

use crate::base::Base;
use crate::effects::DeviceEffects;
use crate::sessions::{Region, SessionBase};
use scotfree_core::{ByteRange, Epoch, KeyHash, SeqNum, ServerIndex, Token};
use scotfree_session::Fault;
use scotfree_wire::{
    emit, emit_stamp, fragments, Answerer, Family, Flags, Header, Kind, Packet, ResponseTail, Stamp, Tail,
};
use std::collections::VecDeque;

/// An answer.
#[derive(Debug)]
struct Answer {
    seq: SeqNum,
    key_hash: KeyHash,
    by: Family,
    /// It leaves when this has completed.
    depends: Option<Token>,
    bytes: Vec<u8>,
}

/// The answers of one session, and the last run of requests that were answered and not passed on.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    kept: VecDeque<Answer>,
    run: Option<(SeqNum, SeqNum)>,
}

/// What a request is answered with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answered {
    pub(crate) seq: SeqNum,
    pub(crate) key_hash: KeyHash,
    pub(crate) by: Family,
    pub(crate) depends: Option<Token>,
    /// The answer, in the effects.
    pub(crate) bytes: ByteRange,
}

/// Room for answers, of all sessions.
#[derive(Debug)]
pub(crate) struct Room {
    bytes_left: usize,
    /// Memory of answers that are not kept any more.
    spare: Vec<Vec<u8>>,
}

/// How much room an answer takes beside its bytes.
const ANSWER_HEAD_BYTES: usize = 64;

impl Room {
    pub(crate) fn new(bytes_max: usize) -> Room {
        Room { bytes_left: bytes_max, spare: Vec::new() }
    }

    pub(crate) fn has(&self, bytes: usize) -> bool {
        bytes + ANSWER_HEAD_BYTES <= self.bytes_left
    }

    fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.bytes_left -= bytes.len() + ANSWER_HEAD_BYTES;
        let mut kept = self.spare.pop().unwrap_or_default();
        kept.extend_from_slice(bytes);
        kept
    }

    fn give_back(&mut self, mut bytes: Vec<u8>) {
        self.bytes_left += bytes.len() + ANSWER_HEAD_BYTES;
        bytes.clear();
        self.spare.push(bytes);
    }
}

impl Answers {
    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    fn of(&self, seq: SeqNum) -> Option<&Answer> {
        self.kept.iter().find(|answer| answer.seq == seq)
    }

    fn waiting_count(&self) -> usize {
        self.kept.iter().filter(|answer| answer.depends.is_some()).count()
    }
}

impl Base {
    /// From now on answers are not kept.
    pub(crate) fn keep_no_answers(&mut self) {
        self.answer_room = Room::new(0);
    }

    /// A request takes no step at the server: it is not passed on. What stands between it and the last such run, if
    /// anything does, the server has to see: then that run ends here, and the server is told of it.
    pub(crate) fn withhold(
        &mut self,
        region: Region,
        seq: SeqNum,
        completed: SeqNum,
        effects: &mut DeviceEffects,
    ) {
        let run = self.sessions.get(region).and_then(|session| session.answers.run);
        if run.is_some_and(|(_, last)| last.next() != seq) {
            self.pass_over_answered(region, completed, effects);
        }
        let Some(session) = self.sessions.get_mut(region) else { return };
        let first = session.answers.run.map_or(seq, |(first, _)| first);
        session.answers.run = Some((first, seq));
    }

    /// Answers a request for the server, and keeps the answer. It says who answered, under the device's key.
    pub(crate) fn answer(&mut self, region: Region, answered: Answered, effects: &mut DeviceEffects) {
        let Answered { seq, key_hash, by, depends, bytes } = answered;
        let Some(session) = self.sessions.get_mut(region) else { return };
        let bytes = self.answer_room.take(effects.bytes(bytes));
        session.answers.kept.push_back(Answer { seq, key_hash, by, depends, bytes });
        self.counters.answered += 1;
        self.answers_waiting += usize::from(depends.is_some());
        self.send_answer(region, seq, effects);
    }

    /// Answers a request without keeping the answer, where that has to be: only if its client has all before it. Then
    /// nothing has to be passed over, and if the answer is lost the client's retry goes to the server, which has more
    /// room. Whether it was answered.
    pub(crate) fn answer_unkept(
        &mut self,
        region: Region,
        answered: &Answered,
        completed: SeqNum,
        effects: &mut DeviceEffects,
    ) -> bool {
        if completed.next() != answered.seq || answered.depends.is_some() {
            return false;
        }
        let Answered { seq, key_hash, by, bytes, .. } = *answered;
        let mut lent = self.answer_room.spare.pop().unwrap_or_default();
        lent.extend_from_slice(effects.bytes(bytes));
        let mut answer = Answer { seq, key_hash, by, depends: None, bytes: lent };
        let Some(session) = self.sessions.get(region) else { return false };
        self.send_response(session, &answer, effects);
        answer.bytes.clear();
        self.answer_room.spare.push(answer.bytes);
        self.counters.answered += 1;
        true
    }

    /// Sends a kept answer if its time has come; whether there is one.
    pub(crate) fn send_answer(&self, region: Region, seq: SeqNum, effects: &mut DeviceEffects) -> bool {
        let Some(session) = self.sessions.get(region) else { return false };
        let Some(answer) = session.answers.of(seq) else { return false };
        if answer.depends.is_none() {
            self.send_response(session, answer, effects);
        }
        true
    }

    /// A server says that it has no reply any more: to a straggler, perhaps, of a read that was answered here and
    /// passed over there. Then the answer goes in the place of that word; whether it is so.
    pub(crate) fn has_the_reply(
        &self,
        server: ServerIndex,
        packet: &Packet<'_>,
        effects: &mut DeviceEffects,
    ) -> bool {
        let Some(region) = self.find(server, packet.session()) else { return false };
        let Some(session) = self.sessions.get(region).filter(|session| !session.answers.is_empty()) else {
            return false;
        };
        packet.verify(&session.keys.server_to_client).is_ok()
            && self.send_answer(region, packet.seq_num(), effects)
    }

    /// What an answer depended on has completed.
    pub(crate) fn release_answers(&mut self, token: Token, effects: &mut DeviceEffects) {
        if self.answers_waiting == 0 {
            return;
        }
        let regions: Vec<Region> = self.sessions.iter().map(|(region, _)| region).collect();
        for region in regions {
            let Some(session) = self.sessions.get_mut(region) else { continue };
            let waiting = session.answers.kept.iter_mut().filter(|answer| answer.depends == Some(token));
            let mut released = Vec::new();
            for answer in waiting {
                answer.depends = None;
                released.push(answer.seq);
            }
            for seq in released {
                self.answers_waiting -= 1;
                self.send_answer(region, seq, effects);
            }
        }
    }

    /// What answers depended on will not complete: whoever asks again is answered by the server, if it can.
    pub(crate) fn forsake_answers(&mut self, token: Token) {
        if self.answers_waiting == 0 {
            return;
        }
        let regions: Vec<Region> = self.sessions.iter().map(|(region, _)| region).collect();
        for region in regions {
            let Some(session) = self.sessions.get_mut(region) else { continue };
            let depends = |answer: &Answer| answer.depends == Some(token);
            while let Some(at) = session.answers.kept.iter().position(depends) {
                let Some(answer) = session.answers.kept.remove(at) else { break };
                self.answers_waiting -= 1;
                self.answer_room.give_back(answer.bytes);
            }
        }
    }

    fn send_response(&self, session: &SessionBase, answer: &Answer, effects: &mut DeviceEffects) {
        // A client takes no answer of an epoch before the last that it has seen.
        let epoch: Epoch = session.epoch.max(self.heard_epoch(session.name.server));
        let mut header = Header::new(Kind::Response, session.name.id, epoch);
        header.seq_num = answer.seq;
        header.key_hash = answer.key_hash;
        let answered_by = Answerer::device(self.config.device, answer.by);
        let tail = Tail::Response(ResponseTail { answered_by, ..ResponseTail::default() });
        let from = self.config.server(session.name.server).address;
        for (header, part) in fragments(&header, &answer.bytes).expect("a longer answer is not taken") {
            let key = &session.keys.device_to_client;
            effects.send(from, session.client, |out| emit(&header, &tail, part, key, out));
        }
    }

    /// A session has ended: nobody asks for its answers.
    pub(crate) fn drop_answers(&mut self, mut answers: Answers) {
        self.answers_waiting -= answers.waiting_count();
        answers.kept.drain(..).for_each(|answer| self.answer_room.give_back(answer.bytes));
    }

    /// The client has everything up to `completed`: nobody will ask for it again.
    pub(crate) fn forget_answers(&mut self, region: Region, completed: SeqNum) {
        let Some(session) = self.sessions.get_mut(region) else { return };
        while session.answers.kept.front().is_some_and(|answer| answer.seq <= completed) {
            let Some(answer) = session.answers.kept.pop_front() else { return };
            self.answers_waiting -= usize::from(answer.depends.is_some());
            self.answer_room.give_back(answer.bytes);
        }
    }

    /// Before a request is passed on, the server learns to pass over what was answered before it, unless the
    /// client's own word, which the request bears, says so.
    pub(crate) fn pass_over_answered(
        &mut self,
        region: Region,
        completed: SeqNum,
        effects: &mut DeviceEffects,
    ) {
        let Some(session) = self.sessions.get_mut(region) else { return };
        let Some((first, last)) = session.answers.run.take() else { return };
        if completed >= last || self.config.planted.is(Fault::StallBehindAnswered) {
            return;
        }
        let Some(session) = self.sessions.get(region) else { return };
        let stamp = session.noted(last).map_or_else(Stamp::default, |noted| noted.stamp);
        let mut header = Header::new(Kind::Read, session.name.id, session.epoch);
        header.seq_num = last;
        header.set_skip_first(first);
        header.flags = Flags::SKIP.with(Flags::AGAIN);
        header.completed = completed;
        let to = self.config.server(session.name.server).address;
        let stamp_key = self.keys.stamp.newest();
        effects.send(session.client, to, |out| {
            let start = out.len();
            emit(&header, &Tail::Stamp(Stamp::default()), &[], &session.keys.client_to_server, out);
            emit_stamp(&mut out[start..], &stamp, &stamp_key).expect("a read has room for a stamp");
        });
        self.counters.passed_over += 1;
    }
}
