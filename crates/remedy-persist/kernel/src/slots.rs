//! The log's slots, in memory that the kernel's programs write.
//!
//! Invariant: an entry is believed only if its slot was VALID with the same `seq_num` before and after
//! it was copied; the caller then checks its MAC. The daemon writes a slot only of a session that it
//! holds, and only one that no program is writing.

use scotfree_core::{BootEpoch, DeviceId, Durability, Nanos, OrderNumber, SeqNum};
use scotfree_wire::{Stamp, StampKind, HEADER_BYTES, STAMP_BYTES};
use scotfree_xdp::types::{scot_header, scot_slot, scot_stamp};
use scotfree_xdp::{Kernel, KernelError, Memory};
use std::ptr::{addr_of, addr_of_mut};
use std::sync::atomic::{fence, AtomicU32, AtomicU8, Ordering};

/// What a slot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotState {
    /// Nothing.
    Empty,
    /// The stamp of a request that is not logged.
    Stamped,
    /// An entry that a program is copying in.
    Writing,
    /// An entry.
    Valid,
    /// The stamp of an entry that the daemon keeps.
    Daemon,
}

impl SlotState {
    const ALL: [SlotState; 5] =
        [SlotState::Empty, SlotState::Stamped, SlotState::Writing, SlotState::Valid, SlotState::Daemon];

    fn from_code(code: u32) -> SlotState {
        // A state that this build does not know is nothing it could use.
        SlotState::ALL.get(code as usize).copied().unwrap_or(SlotState::Empty)
    }
}

/// What a slot says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotHead {
    /// What it holds.
    pub state: SlotState,
    /// Whose place in the session it is.
    pub seq: SeqNum,
    /// How many of its session had been logged with this one.
    pub logged: u64,
    /// When it was logged.
    pub logged_at: Nanos,
    /// Its stamp.
    pub stamp: Stamp,
    /// The durability that was asked for.
    pub asked: Durability,
    /// The domains that have it.
    pub persisted: Durability,
    /// The domains that the daemon is still writing it to.
    pub writing: Durability,
    /// Whether it has been acknowledged.
    pub acknowledged: bool,
}

/// The slots.
pub struct Slots {
    memory: Memory,
    count: u32,
}

impl Slots {
    /// Those of the programs.
    pub fn open(kernel: &Kernel) -> Result<Slots, KernelError> {
        let memory = kernel.map_slots(size_of::<scot_slot>())?;
        let count = (memory.bytes() / size_of::<scot_slot>()) as u32;
        Ok(Slots { memory, count })
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    fn slot(&self, place: u32) -> *mut scot_slot {
        assert!(place < self.count, "a slot's place lies in the table");
        // SAFETY: the place lies in the mapping.
        unsafe { self.memory.place().cast::<scot_slot>().as_ptr().add(place as usize) }
    }

    fn state(&self, place: u32) -> &AtomicU32 {
        // SAFETY: the field is an aligned half word of the mapping, which lives as long as `self`.
        unsafe { AtomicU32::from_ptr(addr_of_mut!((*self.slot(place)).state)) }
    }

    /// What a slot says of itself. Of one that is being written only state and `seq_num` mean something.
    pub fn head(&self, place: u32) -> SlotHead {
        let slot = self.slot(place);
        let state = SlotState::from_code(self.state(place).load(Ordering::Acquire));
        // SAFETY: the fields lie in the mapping; a program may write them at the same time, so what is
        // read counts only if the slot is found unchanged afterwards or its session is held.
        unsafe {
            SlotHead {
                state,
                seq: SeqNum(addr_of!((*slot).seq_num).read_volatile()),
                logged: addr_of!((*slot).logged).read_volatile(),
                logged_at: Nanos(addr_of!((*slot).logged_at).read_volatile()),
                stamp: stamp_of(&addr_of!((*slot).stamp).read_volatile()),
                asked: durability_of(addr_of!((*slot).asked).read_volatile()),
                persisted: durability_of(addr_of!((*slot).persisted).read_volatile()),
                writing: durability_of(addr_of!((*slot).writing).read_volatile()),
                acknowledged: addr_of!((*slot).acknowledged).read_volatile() != 0,
            }
        }
    }

    /// Copies the entry `seq` into `packet`, as the packet that its client sent with room for a stamp, if
    /// the slot holds it.
    pub fn read(&self, place: u32, seq: SeqNum, packet: &mut Vec<u8>) -> Option<SlotHead> {
        let before = self.head(place);
        if before.state != SlotState::Valid || before.seq != seq {
            return None;
        }
        let slot = self.slot(place);
        // SAFETY: the fields lie in the mapping; see `head`.
        let (bytes, header) = unsafe {
            (addr_of!((*slot).packet_bytes).read_volatile(), addr_of!((*slot).header).read_volatile())
        };
        let payload_bytes = (bytes as usize).checked_sub(HEADER_BYTES + STAMP_BYTES)?;
        packet.clear();
        packet.extend_from_slice(header_bytes(&header));
        packet.resize(HEADER_BYTES + STAMP_BYTES, 0);
        self.append_payload(place, payload_bytes, packet)?;
        fence(Ordering::Acquire);
        let after = self.head(place);
        (after.state == SlotState::Valid && after.seq == seq).then_some(after)
    }

    /// Appends so many bytes of a slot's payload, and no more: most entries are far smaller than their slot.
    fn append_payload(&self, place: u32, bytes: usize, packet: &mut Vec<u8>) -> Option<()> {
        let end = packet.len() + bytes;
        // SAFETY: only the address is taken; the slot lies in the mapping.
        let payload = unsafe { &raw const (*self.slot(place)).payload };
        if bytes > payload_bytes_max(payload) {
            return None;
        }
        let words: *const u64 = payload.cast();
        for word in 0..bytes.div_ceil(8) {
            // SAFETY: the payload is aligned to words, and behind its last byte lies the slot's reserve.
            packet.extend_from_slice(&unsafe { words.add(word).read_volatile() }.to_ne_bytes());
        }
        packet.truncate(end);
        Some(())
    }

    /// Writes the stamp of a request that the daemon has let pass or keeps; its session is held.
    pub fn note(&self, place: u32, head: &SlotHead) {
        assert!(matches!(head.state, SlotState::Stamped | SlotState::Daemon), "entries are the programs'");
        self.state(place).store(SlotState::Empty as u32, Ordering::SeqCst);
        let slot = self.slot(place);
        // SAFETY: the fields lie in the mapping; the session is held, so no program reads or writes them.
        unsafe {
            addr_of_mut!((*slot).seq_num).write_volatile(head.seq.0);
            addr_of_mut!((*slot).logged).write_volatile(head.logged);
            addr_of_mut!((*slot).logged_at).write_volatile(head.logged_at.0);
            addr_of_mut!((*slot).stamp).write_volatile(plain_stamp(&head.stamp));
            addr_of_mut!((*slot).asked).write_volatile(head.asked.code());
            addr_of_mut!((*slot).persisted).write_volatile(head.persisted.code());
            addr_of_mut!((*slot).writing).write_volatile(head.writing.code());
            addr_of_mut!((*slot).acknowledged).write_volatile(u8::from(head.acknowledged));
        }
        self.state(place).store(head.state as u32, Ordering::SeqCst);
    }

    /// Says to which domains the daemon has brought an entry and to which it is still writing.
    pub fn set_persisted(&self, place: u32, persisted: Durability, writing: Durability, acknowledged: bool) {
        let slot = self.slot(place);
        let byte = |field: *mut u8, value: u8| {
            // SAFETY: the field is a byte of the mapping, which lives as long as `self`.
            unsafe { AtomicU8::from_ptr(field) }.store(value, Ordering::SeqCst);
        };
        // SAFETY: the fields lie in the mapping.
        unsafe {
            byte(addr_of_mut!((*slot).persisted), persisted.code());
            byte(addr_of_mut!((*slot).writing), writing.code());
            if acknowledged {
                byte(addr_of_mut!((*slot).acknowledged), 1);
            }
        }
    }

    /// Empties a slot; nobody's session may have it.
    pub fn clear(&self, place: u32) {
        self.state(place).store(SlotState::Empty as u32, Ordering::SeqCst);
        self.set_persisted(place, Durability::None, Durability::None, false);
    }
}

const fn payload_bytes_max<const N: usize>(_: *const [u8; N]) -> usize {
    N
}

const _: () = assert!(std::mem::offset_of!(scot_slot, payload) % 8 == 0);
const _: () = assert!(size_of::<scot_slot>() - std::mem::offset_of!(scot_slot, reserve) >= 7);

fn header_bytes(header: &scot_header) -> &[u8] {
    assert_eq!(size_of_val(header), HEADER_BYTES);
    // SAFETY: the header is a plain struct of this size without padding.
    unsafe { std::slice::from_raw_parts(addr_of!(*header).cast(), HEADER_BYTES) }
}

fn durability_of(code: u8) -> Durability {
    Durability::from_code(code & 3).expect("0 to 3 are codes")
}

fn stamp_of(plain: &scot_stamp) -> Stamp {
    let kind = StampKind::ALL.into_iter().find(|kind| kind.code() == plain.kind);
    Stamp {
        kind: kind.unwrap_or_default(),
        device: DeviceId(plain.device),
        boot_epoch: BootEpoch(plain.boot_epoch),
        number: OrderNumber(plain.number),
        previous_write: SeqNum(plain.previous_write),
    }
}

fn plain_stamp(stamp: &Stamp) -> scot_stamp {
    scot_stamp {
        kind: stamp.kind.code(),
        zero: [0],
        device: stamp.device.0,
        boot_epoch: stamp.boot_epoch.0,
        number: stamp.number.0,
        previous_write: stamp.previous_write.0,
        mac: 0,
    }
}
