//! The toy function beside the device machine, as fixtures/remedy-toy/bpf has it in the kernel: it counts reads, and
//! answers those of one key.
//!
//! Invariant: only a read that has just become its session's next, and whose client has all before it, is answered.

use crate::packets::Sent;
use crate::sides::{next_of, Leaving};
use scotfree_core::{DeviceId, SeqNum, ServerIndex, SessionId};
use scotfree_device::Pipeline;
use scotfree_wire::{emit, Answerer, Family, Header, Kind, Packet, ResponseTail, Tail};

/// The key whose reads are answered (`TOY_KEY_HASH`).
pub const TOY_KEY_HASH: u64 = 7;

/// The function.
#[derive(Debug)]
pub struct Toy {
    device: DeviceId,
    /// How many reads of the key it has seen.
    pub reads: u64,
}

impl Toy {
    pub fn new(device: DeviceId) -> Toy {
        Toy { device, reads: 0 }
    }

    /// What leaves instead of `leaving`, which is what the machine made of the packet when its session had come as far
    /// as `before`.
    pub fn after(
        &mut self,
        device: &Pipeline,
        before: Option<SeqNum>,
        sent: &Sent,
        leaving: Vec<Leaving>,
    ) -> Vec<Leaving> {
        let Ok(packet) = Packet::parse(&sent.bytes) else { return leaving };
        let (header, id) = (packet.header(), packet.session());
        let base = device.base();
        let session = base.find(ServerIndex(0), id).and_then(|region| base.session(region));
        let Some(session) = session else { return leaving };
        let took_place = header.kind == Kind::Read
            && before.is_some_and(|before| before <= header.seq_num)
            && session.next == header.seq_num.next()
            && matches!(leaving[..], [Leaving::Forwarded(_)]);
        if !took_place || header.key_hash.0 != TOY_KEY_HASH {
            return leaving;
        }
        self.reads += 1;
        if header.completed.next() != header.seq_num {
            return leaving;
        }
        let mut answer = Header::new(Kind::Response, id, device.server_epoch(ServerIndex(0)));
        (answer.seq_num, answer.key_hash) = (header.seq_num, header.key_hash);
        let answered_by = Answerer::device(self.device, Family::Trial);
        let tail = Tail::Response(ResponseTail { answered_by, ..ResponseTail::default() });
        let payload = TOY_KEY_HASH.to_le_bytes();
        let mut bytes = Vec::new();
        emit(&answer, &tail, &payload, &session.keys.device_to_client, &mut bytes);
        vec![Leaving::Originated { to: sent.from, bytes }]
    }
}

/// How far the session of a packet has come.
pub fn reached(device: &Pipeline, sent: &Sent) -> Option<SeqNum> {
    let id: SessionId = Packet::parse(&sent.bytes).ok()?.session();
    next_of(device, id)
}
