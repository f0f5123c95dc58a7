//! How a side that sleeps is woken, without a system call while it does not.
//!
//! Invariant: who is about to sleep says so and looks once more; who has written looks whether the other said so. Of
//! the two at least one sees the other (B5), since between each one's store and load lies a full fence.

use crate::words::{fence, AtomicU32, Ordering};

/// The word by which a side says that it sleeps, as the other side sees it.
#[derive(Debug, Clone, Copy)]
pub struct Doorbell<'a>(&'a AtomicU32);

impl<'a> Doorbell<'a> {
    /// That word; 0 before anybody sleeps.
    pub fn at(word: &'a AtomicU32) -> Doorbell<'a> {
        Doorbell(word)
    }

    /// Says that this side is about to sleep. Whatever was written before the other side could know that is seen by a
    /// look after this.
    pub fn about_to_sleep(self) {
        self.0.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Says that this side is awake.
    pub fn awake(self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// After something was written: whether the other side has to be woken. Several may write to it: each wakes it until
    /// it says that it is awake, so that one which stops between its look and its call holds up nobody.
    pub fn must_wake(self) -> bool {
        fence(Ordering::SeqCst);
        self.must_wake_behind_fence()
    }

    /// The same where a full fence lies behind what was written already.
    pub fn must_wake_behind_fence(self) -> bool {
        self.0.load(Ordering::Relaxed) == 1
    }

    /// The same where nobody else wakes the other side: once for each sleep.
    pub fn wakes_alone(self) -> bool {
        self.must_wake() && self.0.swap(0, Ordering::AcqRel) == 1
    }
}
