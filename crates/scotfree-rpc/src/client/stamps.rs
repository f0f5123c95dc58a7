//! Where the stamps of a call come from: its leaving, the kernels' transmit stamps, its end.
//!
//! Invariant: a transmit stamp is attributed to the call whose packet asked for it, wherever that call
//! is by then: in flight, complete and not taken, or a record that waits.

use super::{Call, ClientRuntime, What};
use crate::probes::{Ending, Stamped};
use scotfree_core::{Boundary, Nanos, SeqNum};
use scotfree_io::{now_monotonic, Transport};
use scotfree_session::{CompletedBy, Completion};
use scotfree_wire::ResponseTail;

impl<T: Transport> ClientRuntime<T> {
    /// Stamps the calls submitted since the last time, and keeps of them the ones whose transmit
    /// stamp is wanted.
    pub(super) fn stamp_dequeued(&mut self) {
        if self.fresh.len() == self.fresh_stamped {
            return;
        }
        let dequeued = self.real_time.at(now_monotonic());
        let (slots, probes) = (&mut self.slots, self.options.probes);
        let mut index = 0;
        let stamped = self.fresh_stamped;
        self.fresh.retain(|fresh| {
            index += 1;
            if index <= stamped {
                return true;
            }
            if let Some(call) = slots[fresh.slot].as_mut().and_then(|slot| slot.call(fresh.seq)) {
                call.dequeued = dequeued;
                call.sent = Stamped::lib(dequeued);
            }
            probes.samples_transmit(fresh.seq)
        });
        self.fresh_stamped = self.fresh.len();
    }

    pub(super) fn collect_transmit_stamps(&mut self) {
        if !self.transmit.is_waiting() {
            return;
        }
        let mut stamps = std::mem::take(&mut self.transmit_stamps);
        self.transport.tx_stamps(&mut stamps);
        for (key, at) in stamps.drain(..) {
            if let Some((slot, seq)) = self.transmit.answered(key) {
                self.on_transmit_stamp(slot, seq, at);
            }
        }
        self.transmit_stamps = stamps;
    }

    fn on_transmit_stamp(&mut self, slot: usize, seq: SeqNum, at: Nanos) {
        if let Some(call) = self.unfinished_call(slot, seq) {
            call.sent = Stamped::kernel(at);
            let dequeued = call.dequeued;
            self.recorder.request_stack.observe(dequeued, at);
        } else {
            self.recorder.late(slot, seq, Boundary::RequestSent, at);
        }
    }

    pub(super) fn on_late_stamp(&mut self, slot: usize, seq: SeqNum, at: Nanos) {
        if let Some(call) = self.unfinished_call(slot, seq) {
            call.response_sent = at;
        } else {
            self.recorder.late(slot, seq, Boundary::ResponseSent, at);
        }
    }

    /// A call that is not complete, or whose completion nobody has taken yet.
    fn unfinished_call(&mut self, slot: usize, seq: SeqNum) -> Option<&mut Call> {
        let entry = self.slots[slot].as_mut()?;
        if seq >= entry.first_call {
            return entry.call(seq);
        }
        self.events.iter_mut().rev().find_map(|event| match &mut event.what {
            What::Completed { completion, call, .. } if event.slot == slot && completion.seq == seq => {
                Some(call)
            }
            What::Opened { .. } | What::Completed { .. } | What::Closed { .. } => None,
        })
    }
}

pub(super) fn ending(
    completion: &Completion,
    reply_bytes: usize,
    completing: Stamped,
    resumed: Nanos,
) -> Ending {
    // Only the server's own answer carries stamps that belong to this call's path.
    let times = match completion.answered_by {
        CompletedBy::Server => completion.times,
        CompletedBy::Device(_) | CompletedBy::Function(_) | CompletedBy::ServerAck => ResponseTail::default(),
    };
    Ending {
        seq: completion.seq,
        answered_by: completion.answered_by,
        failed: completion.failed,
        reply_bytes,
        times,
        completing,
        resumed,
    }
}
