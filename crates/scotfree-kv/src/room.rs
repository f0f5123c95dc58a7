//! Says in time that the data comes near what it may take.
//!
//! Invariant: each thing is said once, until there is plenty of room again.

use crate::store::Store;

type Say = Box<dyn FnMut(&str) + Send>;

/// Watches how much room the data has left.
pub(crate) struct RoomWatch {
    say: Say,
    has_warned: bool,
    /// The refusals that were told, or happened before anybody was told.
    refused_told: u64,
    has_told_refusals: bool,
}

impl RoomWatch {
    /// Nobody is told until [`RoomWatch::tell`].
    pub fn new(refused_before: u64) -> RoomWatch {
        RoomWatch {
            say: Box::new(|_| ()),
            has_warned: false,
            refused_told: refused_before,
            has_told_refusals: false,
        }
    }

    /// Whom to tell.
    pub fn tell(&mut self, say: impl FnMut(&str) + Send + 'static) {
        self.say = Box::new(say);
    }

    /// Compares what the data takes with what it may take.
    pub fn look_at(&mut self, store: &Store) {
        let refused = store.refused_count();
        if refused > self.refused_told && !self.has_told_refusals {
            self.has_told_refusals = true;
            self.speak("commands are refused with OOM", store);
        } else if store.is_nearly_full() && !self.has_warned {
            self.has_warned = true;
            self.speak("at the limit, commands that grow it are refused with OOM", store);
        } else if self.has_warned && !is_crowded(store) {
            (self.has_warned, self.has_told_refusals) = (false, false);
            (self.say)("the data has room again");
        }
        self.refused_told = refused;
    }

    /// Tells something else that whoever looks after the room has to know.
    pub fn pass_on(&mut self, line: &str) {
        (self.say)(line);
    }

    fn speak(&mut self, what: &str, store: &Store) {
        (self.say)(&format!(
            "ALARM: the data takes {} of the {} bytes that it may, an eighth of the log: {what}; delete keys, or \
             serve from a new file with a larger --log-size",
            store.data_bytes(),
            store.data_bytes_max()
        ));
    }
}

/// Below nearly full by some margin, so that a value that comes and goes is not told each time.
fn is_crowded(store: &Store) -> bool {
    store.data_bytes() > store.data_bytes_max() / 10 * 8
}
