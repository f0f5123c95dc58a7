//! The one loop that carries out what a device wishes for, until it wishes for nothing more.
//!
//! Invariant: effects are carried out in their order, and what is durable is reported after all that was wished for
//! with it.

use crate::effects::{DeviceEffects, DeviceOwn};
use crate::pipeline::Pipeline;
use scotfree_core::{BootEpoch, Effect, Epoch, Machine, Nanos, ServerIndex, Token};
use std::net::SocketAddr;

/// When something becomes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// It is already.
    Done,
    /// The shell will say.
    Later,
}

/// What a device's surroundings do for it.
pub trait Shell {
    /// The device.
    fn pipeline(&mut self) -> &mut Pipeline;
    /// Sends a packet of the device's making.
    fn send(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]);
    /// Passes the message just received on, with these bytes.
    fn forward(&mut self, bytes: &[u8]);
    /// Makes a record durable.
    fn persist(&mut self, token: Token, record: &[u8]) -> Completion;
    /// Forgets a record.
    fn erase(&mut self, token: Token);
    /// Makes the incarnations durable; returns when they are.
    fn set_meta(&mut self, boot_epoch: BootEpoch, server: ServerIndex, server_epoch: Epoch);
    /// Makes all erasures so far durable.
    fn flush_erasures(&mut self, token: Token) -> Completion;
    /// Adds what has become durable meanwhile.
    fn collect(&mut self, _done: &mut Vec<Token>) {}
}

/// Effects on their way from a device to its shell; kept so that their memory is reused.
#[derive(Debug, Default)]
pub struct Round {
    /// What is wished for now.
    pub effects: DeviceEffects,
    done: Vec<Token>,
}

/// Carries out what a device wishes for, and what it then wishes for, until it is content.
pub fn carry_out(now: Nanos, round: &mut Round, shell: &mut impl Shell) {
    while !round.effects.is_empty() {
        carry_out_once(&round.effects, &mut round.done, shell);
        round.effects.clear();
        report(now, round, shell);
    }
    shell.pipeline().after();
}

/// Tells the device what has become durable meanwhile.
pub fn report(now: Nanos, round: &mut Round, shell: &mut impl Shell) {
    shell.collect(&mut round.done);
    for token in round.done.drain(..) {
        shell.pipeline().on_persisted(now, token, &mut round.effects);
    }
}

fn carry_out_once(effects: &DeviceEffects, done: &mut Vec<Token>, shell: &mut impl Shell) {
    for effect in effects.iter() {
        match effect {
            Effect::Send { from, to, bytes } => shell.send(*from, *to, effects.bytes(*bytes)),
            Effect::Persist { token, bytes } => {
                if shell.persist(*token, effects.bytes(*bytes)) == Completion::Done {
                    done.push(*token);
                }
            }
            Effect::Erase { token } => shell.erase(*token),
            Effect::Own(DeviceOwn::Forward { bytes }) => shell.forward(effects.bytes(*bytes)),
            Effect::Own(DeviceOwn::SetMeta { boot_epoch, server, server_epoch }) => {
                shell.set_meta(*boot_epoch, *server, *server_epoch);
            }
            Effect::Own(DeviceOwn::FlushErasures { token }) => {
                if shell.flush_erasures(*token) == Completion::Done {
                    done.push(*token);
                }
            }
        }
    }
}
