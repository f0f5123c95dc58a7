//! Whether what clients saw, and nothing else, is explained by some order: strict reads.
//!
//! Invariant: what the server holds is not looked at. A call that its client was never told of may have
//! been executed at any time after it was made, or never.

use crate::app::{App, Op, Reply};
use crate::history::Call;
use scotfree_check::{check, Answer, Key, Limits, Model, Operation, Verdict};

/// How long a verdict may take. A run has some hundred calls, of which some ten overlap.
const LIMITS: Limits = Limits { steps_max: 100_000, smallest_steps_max: 100_000 };

/// What is to be said of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// Some order explains it.
    Explained,
    /// None does, and why.
    Unexplained(String),
    /// It takes too long to tell.
    Undecided,
}

/// Judges what clients saw; relaxed reads are left out unless they are to be held to strictness too.
pub fn judge(calls: &[Call], cell_count: usize, relaxed_too: bool) -> Judgement {
    let held = calls.iter().filter(|call| relaxed_too || !call.relaxed);
    let history: Vec<Operation<Op, Reply>> = held.map(operation).collect();
    let model = Cells { cell_count };
    match check(&model, &history, LIMITS) {
        Verdict::Linearizable => Judgement::Explained,
        Verdict::Violation(violation) => Judgement::Unexplained(violation.describe(&model, &history)),
        Verdict::Unknown { .. } => Judgement::Undecided,
    }
}

fn operation(call: &Call) -> Operation<Op, Reply> {
    let answer = |at| Some(Answer { at, reply: call.reply? });
    Operation {
        client: call.session as u64,
        called: call.invoked,
        op: call.op,
        answer: call.completed.and_then(answer),
    }
}

/// The application as a model: each cell is a key.
struct Cells {
    cell_count: usize,
}

impl Model for Cells {
    type Op = Op;
    type Reply = Reply;
    type State = App;

    fn initial(&self) -> App {
        App::new(self.cell_count)
    }

    fn apply(&self, state: &mut App, op: &Op) -> Reply {
        state.apply(op)
    }

    fn writes(&self, op: &Op) -> bool {
        op.writes()
    }

    fn keys(&self, op: &Op) -> Vec<Key> {
        op.cells().map(|cell| Key(u32::from(cell))).to_vec()
    }

    fn may_show(&self, op: &Op, reply: &Reply, write: &Op) -> bool {
        match (op, write) {
            (Op::Set { .. } | Op::SetFor { .. } | Op::Expire { .. } | Op::Known, _)
            | (_, Op::Get { .. } | Op::GetTwo { .. } | Op::Known)
            | (Op::Append { .. }, Op::Swap { .. } | Op::Expire { .. })
            | (Op::Swap { .. }, Op::Append { .. }) => false,
            // Registers change places, so another cell may show the token.
            (_, Op::Set { token, .. }) => reply.seen(op).any(|seen| seen == *token),
            // And what has lived out leaves them empty.
            (_, Op::SetFor { token, .. } | Op::Expire { token, .. }) => {
                reply.seen(op).any(|seen| seen == *token) || reply.shows_nothing(op)
            }
            (Op::Append { .. } | Op::Get { .. } | Op::GetTwo { .. }, Op::Append { cell, .. }) => {
                op.cells().contains(cell)
            }
            (Op::Get { .. } | Op::GetTwo { .. } | Op::Swap { .. }, Op::Swap { .. }) => true,
        }
    }

    fn describe(&self, op: &Op, reply: Option<&Reply>) -> String {
        match reply {
            Some(reply) => {
                format!("{op:?} -> {:?}{}", reply.words(), if reply.failed { ", refused" } else { "" })
            }
            None => format!("{op:?}, never answered"),
        }
    }
}
