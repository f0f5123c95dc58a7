//! Keeps the device machine and the programs' tables of one mind.
//!
//! Invariant: before the machine decides about a session it knows all that the programs have done with
//! it, and until the programs know what it has decided they touch nothing of that session.

mod absorb;
mod export;
mod free_slots;

use crate::room::Room;
use crate::slots::Slots;
use free_slots::FreeSlots;
use remedy_persist::{FastSide, Mishaps};
use scotfree_core::{Nanos, OrderNumber, SeqNum, ServerIndex, SessionId};
use scotfree_device::{DeviceEffects, OrderCounter, PortNumber, SessionName};
use scotfree_wire::{Key, Kind, Packet, Tail};
use scotfree_xdp::{Kernel, KernelError, SessionEntry, SharedServer, SESSIONS_MAX};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How often the machine takes over what the programs have done, so that entries age in it.
const SYNC_INTERVAL: Nanos = Nanos::from_millis(100);

/// The counter of a server's order numbers in the memory that the programs share.
#[derive(Clone)]
struct SharedOrder(Arc<Kernel>, ServerIndex);

impl SharedOrder {
    fn server(&self) -> SharedServer<'_> {
        self.0.shared().server(usize::from(self.1 .0))
    }
}

impl std::fmt::Debug for SharedOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedOrder({:?})", self.server().order_current())
    }
}

impl OrderCounter for SharedOrder {
    fn current(&self) -> OrderNumber {
        self.server().order_current()
    }

    fn next(&mut self) -> OrderNumber {
        self.server().order_next()
    }

    fn restart(&mut self) {
        self.server().order_restart();
    }
}

/// What the mirror knows of a session in the programs' tables.
#[derive(Debug, Clone, Copy)]
struct Known {
    index: u32,
    slot_first: u32,
    window: u32,
    /// Everything before this has been taken over.
    absorbed: SeqNum,
    /// Entries logged so far, the daemon's with them.
    logged: u64,
    /// Up to here entries were logged out of the order of their `seq_num`.
    disorder_until: SeqNum,
    held: bool,
}

impl Known {
    fn place(&self, seq: SeqNum) -> Option<u32> {
        (self.window > 0).then(|| self.slot_first + (seq.0 % u64::from(self.window)) as u32)
    }
}

/// The programs' tables beside the machine.
pub struct Mirror {
    kernel: Arc<Kernel>,
    slots: Slots,
    /// The ports in the order in which the machine counts them, by the kernel's numbers.
    ports: Vec<u32>,
    known: BTreeMap<SessionName, Known>,
    free: FreeSlots,
    held: Vec<SessionName>,
    packet: Vec<u8>,
    seqs: Vec<SeqNum>,
    sync_at: Nanos,
    mishaps: Mishaps,
}

impl Mirror {
    /// Puts the programs before `device`, which has been restored from its own logs: what the programs'
    /// log holds is taken over, and what `device` knows made known to them.
    pub fn start(
        kernel: Arc<Kernel>,
        ports: Vec<u32>,
        device: &mut FastSide<'_>,
        effects: &mut DeviceEffects,
    ) -> Result<Mirror, KernelError> {
        let slots = Slots::open(&kernel)?;
        let mut mirror = Mirror {
            free: FreeSlots::new(slots.count()),
            slots,
            kernel,
            ports,
            known: BTreeMap::new(),
            held: Vec::new(),
            packet: Vec::new(),
            seqs: Vec::new(),
            sync_at: Nanos(0),
            mishaps: Mishaps::default(),
        };
        for server in servers(device) {
            device.share(server, Box::new(SharedOrder(Arc::clone(&mirror.kernel), server)));
        }
        if mirror.kernel.adopted() {
            mirror.take_over(device, effects)?;
        }
        if mirror.kernel.shared().boot_epoch() != device.boot_epoch() {
            // Every session is held.
            for server in servers(device) {
                mirror.kernel.shared().server(usize::from(server.0)).order_restart();
            }
        }
        device.touch_all();
        mirror.after(device)?;
        Ok(mirror)
    }

    /// Takes over the sessions that a daemon before left; such as the machine does not know are removed.
    fn take_over(
        &mut self,
        device: &mut FastSide<'_>,
        effects: &mut DeviceEffects,
    ) -> Result<(), KernelError> {
        for index in 0..SESSIONS_MAX as u32 {
            let Some(state) = self.kernel.hold(index)? else {
                self.kernel.release(index);
                continue;
            };
            let name = name_of(&state);
            let same = device.session_view(name).is_some_and(|view| view.region == index);
            if !same {
                self.kernel.remove_session(&state)?;
                self.kernel.release(index);
                continue;
            }
            let (slot_first, window) = (state.slot_first, state.window);
            let room = Room::of(&state);
            self.free.take_at(slot_first, window);
            let known = Known {
                index,
                slot_first,
                window,
                absorbed: SeqNum(1),
                logged: room.logged,
                disorder_until: room.disorder_until,
                held: true,
            };
            self.known.insert(name, known);
            self.held.push(name);
            if let Some(port) = self.ports.iter().position(|ifindex| *ifindex == state.client_ifindex) {
                device.absorb_port(name, PortNumber(port as u32));
            }
            device.keep_log_key(name, Key::from_words(state.client_to_server.0));
            self.absorb(&state, device, effects);
        }
        Ok(())
    }

    /// The programs.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// What went wrong.
    pub fn mishaps(&self) -> Mishaps {
        self.mishaps
    }

    // ---- before the machine decides

    /// Before the machine sees a packet to or from a server.
    pub fn before_packet(
        &mut self,
        packet: &Packet<'_>,
        server: ServerIndex,
        device: &mut FastSide<'_>,
        effects: &mut DeviceEffects,
    ) -> Result<(), KernelError> {
        let name = SessionName { server, id: packet.session() };
        match packet.kind() {
            Kind::Update | Kind::Read | Kind::Bypass | Kind::ServerAck | Kind::Heartbeat | Kind::Drain => {
                self.take(name, Hold::Yes, device, effects)
            }
            Kind::SessionAccept if device.has_room() => self.take(name, Hold::Yes, device, effects),
            Kind::SessionAccept | Kind::RecoveryPoll => self.take_all(Hold::Yes, device, effects),
            Kind::SessionClose => self.take(name, Hold::Yes, device, effects),
            Kind::Retransmit if packet.session() == SessionId(0) => self.sync_all(device, effects),
            Kind::Retransmit => self.take(name, Hold::No, device, effects),
            Kind::Lease => {
                // A lease that raises the boot epoch begins the order anew.
                let raises =
                    matches!(packet.tail(), Tail::Lease(tail) if tail.boot_epoch > device.boot_epoch());
                if raises {
                    self.take_all(Hold::Yes, device, effects)?;
                }
                Ok(())
            }
            Kind::SessionOpen
            | Kind::PersistAck
            | Kind::Response
            | Kind::Manifest
            | Kind::Replay
            | Kind::Busy => Ok(()),
        }
    }

    /// Before the machine's timers run.
    pub fn before_timer(
        &mut self,
        now: Nanos,
        device: &mut FastSide<'_>,
        effects: &mut DeviceEffects,
    ) -> Result<(), KernelError> {
        if device.forgets_at(now) {
            self.take_all(Hold::Yes, device, effects)?;
        } else if self.sync_at <= now {
            self.sync_all(device, effects)?;
        }
        if self.sync_at <= now {
            self.sync_at = now.plus(SYNC_INTERVAL);
        }
        Ok(())
    }

    /// Before the machine does something that concerns every session: it becomes the head of its chain, or
    /// takes the cluster's key anew.
    pub fn before_all(
        &mut self,
        device: &mut FastSide<'_>,
        effects: &mut DeviceEffects,
    ) -> Result<(), KernelError> {
        self.take_all(Hold::Yes, device, effects)
    }

    /// When the machine should take over next what the programs have done.
    pub fn next_timer(&self) -> Nanos {
        self.sync_at
    }

    /// Programs have logged entries that are to go to disk, since they were last looked for. Which others they have
    /// acknowledged is left for the next decision: asking for each that lives would cost more than the entries.
    pub fn on_entry(
        &mut self,
        name: SessionName,
        device: &mut FastSide<'_>,
        effects: &mut DeviceEffects,
    ) -> Result<(), KernelError> {
        let Some(known) = self.known.get(&name).filter(|known| !known.held) else { return Ok(()) };
        if let Some(state) = self.kernel.session(known.index)? {
            self.absorb_new(&state, device, effects);
        }
        Ok(())
    }

    /// Takes over what the programs have done so far with all sessions, without stopping them.
    pub fn sync_all(
        &mut self,
        device: &mut FastSide<'_>,
        effects: &mut DeviceEffects,
    ) -> Result<(), KernelError> {
        self.take_all(Hold::No, device, effects)
    }

    fn take_all(
        &mut self,
        hold: Hold,
        device: &mut FastSide<'_>,
        effects: &mut DeviceEffects,
    ) -> Result<(), KernelError> {
        let names: Vec<SessionName> = self.known.keys().copied().collect();
        names.into_iter().try_for_each(|name| self.take(name, hold, device, effects))
    }

    /// Takes over what the programs have done so far with a session. One that is held was taken over then.
    fn take(
        &mut self,
        name: SessionName,
        hold: Hold,
        device: &mut FastSide<'_>,
        effects: &mut DeviceEffects,
    ) -> Result<(), KernelError> {
        let Some(known) = self.known.get_mut(&name).filter(|known| !known.held) else { return Ok(()) };
        let state = match hold {
            Hold::No => self.kernel.session(known.index)?,
            Hold::Yes => {
                known.held = true;
                self.held.push(name);
                self.kernel.hold(known.index)?
            }
        };
        if let Some(state) = state {
            self.absorb(&state, device, effects);
        }
        Ok(())
    }
}

/// Whether the programs touch a session no more, once it is taken over, until they are told what was decided.
#[derive(Debug, Clone, Copy)]
enum Hold {
    Yes,
    No,
}

/// The name of a session in the programs' tables.
fn name_of(state: &SessionEntry) -> SessionName {
    SessionName { server: ServerIndex(state.server as u8), id: state.id }
}

/// The servers of the device.
fn servers(device: &FastSide<'_>) -> impl Iterator<Item = ServerIndex> + use<> {
    (0..device.base().server_count()).map(|index| ServerIndex(index as u8))
}
