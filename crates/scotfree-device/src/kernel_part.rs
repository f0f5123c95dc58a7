//! A function that shares its work with programs in the kernel: they deal with the most frequent packets by the same
//! rules, and the function's part takes over what they have done before anything is decided.
//!
//! Invariant: to the device it is the function itself, under its name and with its tokens; what both have counted it
//! counts together.

use crate::base::Base;
use crate::effects::DeviceEffects;
use crate::function::{Before, Count, Function, Passing, SessionChange, Verdict, Word};
use crate::look::LogEntryView;
use crate::origin::Origin;
use crate::restore::RestoreError;
use crate::sessions::{Region, SessionName};
use scotfree_core::{Durability, Nanos, SeqNum, ServerIndex, Token};
use scotfree_wire::{Family, Packet, WireError};
use std::any::Any;
use std::fmt::{Debug, Formatter};
use std::ops::RangeInclusive;

/// What stands between a function and its programs in the kernel. Errors are for the operator.
pub trait KernelPart: Send {
    /// Takes over what the programs have done, as far as what comes needs it.
    fn before(
        &mut self,
        now: Nanos,
        base: &mut Base,
        function: &mut dyn Function,
        what: &Before<'_>,
        effects: &mut DeviceEffects,
    ) -> Result<(), String>;

    /// Makes known to the programs what was decided.
    fn after(&mut self, base: &mut Base, function: &mut dyn Function) -> Result<(), String>;

    /// When the programs should be looked at without another reason.
    fn next_timer(&self) -> Option<Nanos> {
        None
    }

    /// How much the programs have counted under a name of the function's.
    fn counted(&self, name: &str) -> u64;

    /// What only this part counts.
    fn counters(&self, _out: &mut dyn FnMut(Count)) {}

    /// Tells of what went wrong since the last call.
    fn check(&mut self, _tell: &mut dyn FnMut(Word)) {}
}

/// A function with its part in the kernel.
pub(crate) struct InKernel {
    pub(crate) function: Box<dyn Function>,
    pub(crate) part: Box<dyn KernelPart>,
}

impl Debug for InKernel {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InKernel").field("function", &self.function).finish_non_exhaustive()
    }
}

impl Function for InKernel {
    fn name(&self) -> &'static str {
        self.function.name()
    }

    fn family(&self) -> Family {
        self.function.family()
    }

    fn as_any(&self) -> &dyn Any {
        self.function.as_any()
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self.function.as_any_mut()
    }

    fn acknowledges(&self) -> bool {
        self.function.acknowledges()
    }

    fn hears_servers(&self) -> bool {
        self.function.hears_servers()
    }

    fn tokens_max(&self, base: &Base) -> u64 {
        self.function.tokens_max(base)
    }

    fn before(
        &mut self,
        now: Nanos,
        base: &mut Base,
        what: &Before<'_>,
        effects: &mut DeviceEffects,
    ) -> Result<(), String> {
        self.function.before(now, base, what, effects)?;
        self.part.before(now, base, self.function.as_mut(), what, effects)
    }

    fn after(&mut self, base: &mut Base) -> Result<(), String> {
        self.function.after(base)?;
        self.part.after(base, self.function.as_mut())
    }

    fn asks_order(&self, base: &Base, passing: &Passing<'_>) -> bool {
        self.function.asks_order(base, passing)
    }

    fn on_packet(
        &mut self,
        now: Nanos,
        base: &mut Base,
        passing: &mut Passing<'_>,
        effects: &mut DeviceEffects,
    ) -> Verdict {
        self.function.on_packet(now, base, passing, effects)
    }

    fn on_control(
        &mut self,
        now: Nanos,
        base: &mut Base,
        server: ServerIndex,
        packet: &Packet<'_>,
        effects: &mut DeviceEffects,
    ) -> Result<bool, WireError> {
        self.function.on_control(now, base, server, packet, effects)
    }

    fn on_own_packet(
        &mut self,
        now: Nanos,
        base: &mut Base,
        origin: Origin,
        message: &[u8],
        effects: &mut DeviceEffects,
    ) -> Result<(), WireError> {
        self.function.on_own_packet(now, base, origin, message, effects)
    }

    fn on_session(
        &mut self,
        now: Nanos,
        base: &mut Base,
        region: Region,
        change: SessionChange,
        effects: &mut DeviceEffects,
    ) {
        self.function.on_session(now, base, region, change, effects);
    }

    fn on_roomless_ended(&mut self, now: Nanos, base: &mut Base, session: SessionName) {
        self.function.on_roomless_ended(now, base, session);
    }

    fn on_placed(
        &mut self,
        now: Nanos,
        base: &mut Base,
        session: SessionName,
        run: RangeInclusive<SeqNum>,
        last_write: SeqNum,
    ) {
        self.function.on_placed(now, base, session, run, last_write);
    }

    fn on_persisted(&mut self, now: Nanos, base: &mut Base, token: Token, effects: &mut DeviceEffects) {
        self.function.on_persisted(now, base, token, effects);
    }

    fn on_refused(&mut self, base: &mut Base, token: Token) {
        self.function.on_refused(base, token);
    }

    fn set_media(&mut self, base: &mut Base, media: Durability) {
        self.function.set_media(base, media);
    }

    fn on_timer(&mut self, now: Nanos, base: &mut Base, effects: &mut DeviceEffects) {
        self.function.on_timer(now, base, effects);
    }

    fn next_timer(&self) -> Option<Nanos> {
        [self.function.next_timer(), self.part.next_timer()].into_iter().flatten().min()
    }

    fn restore(
        &mut self,
        now: Nanos,
        base: &mut Base,
        token: Token,
        record: &[u8],
    ) -> Result<(), RestoreError> {
        self.function.restore(now, base, token, record)
    }

    fn entries<'a>(&'a self, base: &'a Base, out: &mut dyn FnMut(LogEntryView<'a>)) {
        self.function.entries(base, out);
    }

    fn counters(&self, out: &mut dyn FnMut(Count)) {
        self.function.counters(&mut |count| {
            out(Count { value: count.value + self.part.counted(count.name), ..count });
        });
        self.part.counters(out);
    }

    fn ask(&mut self, now: Nanos, base: &mut Base, question: &str) -> Result<String, String> {
        self.function.ask(now, base, question)
    }

    fn check(&mut self, tell: &mut dyn FnMut(Word)) {
        self.function.check(tell);
        self.part.check(tell);
    }
}
