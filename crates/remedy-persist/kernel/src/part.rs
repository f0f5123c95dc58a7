//! Persist's part in the kernel, as the device knows such parts.
//!
//! Invariant: the function behind it is persist.

use crate::mirror::Mirror;
use remedy_persist::{FastSide, Mishaps, Persist};
use scotfree_core::Nanos;
use scotfree_device::{Base, Before, Count, DeviceEffects, Function, KernelPart, SessionName, Word};
use scotfree_xdp::{Kernel, KernelError, PartMaker};
use std::sync::Arc;

/// Persist's part, as a list of parts names it.
pub const PART: PartMaker = PartMaker { function: crate::FUNCTION, start };

/// The mirror between persist and its programs.
struct PersistPart {
    mirror: Mirror,
    mishaps_told: Mishaps,
}

fn start(
    kernel: &Arc<Kernel>,
    ports: &[u32],
    base: &mut Base,
    function: &mut dyn Function,
    effects: &mut DeviceEffects,
) -> Result<Box<dyn KernelPart>, KernelError> {
    let side = &mut side(base, function);
    let mirror = Mirror::start(Arc::clone(kernel), ports.to_vec(), side, effects)?;
    Ok(Box::new(PersistPart { mirror, mishaps_told: Mishaps::default() }))
}

fn side<'a>(base: &'a mut Base, function: &'a mut dyn Function) -> FastSide<'a> {
    let persist = function.as_any_mut().downcast_mut::<Persist>().expect("the function is persist");
    FastSide::new(base, persist)
}

impl KernelPart for PersistPart {
    fn before(
        &mut self,
        now: Nanos,
        base: &mut Base,
        function: &mut dyn Function,
        what: &Before<'_>,
        effects: &mut DeviceEffects,
    ) -> Result<(), String> {
        let device = &mut side(base, function);
        let done = match what {
            Before::Packet(packet, server) => self.mirror.before_packet(packet, *server, device, effects),
            Before::Timer => self.mirror.before_timer(now, device, effects),
            Before::Promotion | Before::NewKey => self.mirror.before_all(device, effects),
            Before::Entry(server, id) => {
                self.mirror.on_entry(SessionName { server: *server, id: *id }, device, effects)
            }
            Before::Look => self.mirror.sync_all(device, effects),
        };
        done.map_err(|error| error.to_string())
    }

    fn after(&mut self, base: &mut Base, function: &mut dyn Function) -> Result<(), String> {
        self.mirror.after(&mut side(base, function)).map_err(|error| error.to_string())
    }

    fn next_timer(&self) -> Option<Nanos> {
        Some(self.mirror.next_timer())
    }

    fn counted(&self, name: &str) -> u64 {
        // Counters that cannot be read have raised an alarm elsewhere.
        let Ok(counted) = crate::counters(self.mirror.kernel()) else { return 0 };
        let mut found = 0;
        counted.each(&mut |count| {
            if count.name == name {
                found = count.value;
            }
        });
        found
    }

    fn counters(&self, out: &mut dyn FnMut(Count)) {
        let Mishaps { damaged, stuck, without_slots } = self.mirror.mishaps();
        for (labels, value) in [
            ("kind=\"damaged\"", damaged),
            ("kind=\"stuck\"", stuck),
            ("kind=\"without_slots\"", without_slots),
        ] {
            let help = "Entries or sessions that the device and its fast path could not share, by kind.";
            out(Count { name: "scotfree_fast_path_mishaps_total", help, labels, value });
        }
    }

    fn check(&mut self, tell: &mut dyn FnMut(Word)) {
        let told = std::mem::replace(&mut self.mishaps_told, self.mirror.mishaps());
        tell_mishaps(told, self.mishaps_told, tell);
    }
}

/// Tells of what went wrong since `told` was told.
fn tell_mishaps(told: Mishaps, now: Mishaps, tell: &mut dyn FnMut(Word)) {
    let Mishaps { damaged, stuck, without_slots } = now;
    if (damaged, stuck) != (told.damaged, told.stuck) {
        tell(Word::Alarm(format!(
            "{damaged} damaged and {stuck} unfinished entries in the kernel's log so far: they are not replayed"
        )));
    }
    if without_slots != told.without_slots {
        tell(Word::Notice(format!(
            "the kernel's log had no room for {without_slots} sessions so far: their packets take the way through the \
             daemon; start with more --slots"
        )));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_wrong_between_persist_and_its_programs_is_told_once() {
        let none = Mishaps::default();
        let damaged = Mishaps { damaged: 2, ..none };
        let also_stuck = Mishaps { stuck: 1, ..damaged };
        let also_without_slots = Mishaps { without_slots: 3, ..also_stuck };
        let words = |told, now| {
            let mut words = Vec::new();
            tell_mishaps(told, now, &mut |word| words.push(format!("{word:?}")));
            words
        };
        for (told, now, expected) in [
            (none, damaged, "Alarm(\"2 damaged and 0 unfinished"),
            (damaged, also_stuck, "Alarm(\"2 damaged and 1 unfinished"),
            (also_stuck, also_without_slots, "Notice(\"the kernel's log had no room for 3 sessions"),
        ] {
            let said = words(told, now);
            assert!(said.len() == 1 && said[0].starts_with(expected), "{said:?}");
            assert_eq!(words(now, now), [""; 0]);
        }
    }
}
