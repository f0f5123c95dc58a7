//! How much memory a shard has taken, and may take.
//!
//! Invariant: what is taken never exceeds what may be.

/// Memory taken, and its bound.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    used: usize,
    memory_max: usize,
}

impl Budget {
    pub fn new(memory_max: usize) -> Budget {
        Budget { used: 0, memory_max }
    }

    pub fn memory_max(&self) -> usize {
        self.memory_max
    }

    pub fn used(&self) -> usize {
        self.used
    }

    pub fn has(&self, bytes: usize) -> bool {
        bytes <= self.memory_max - self.used
    }

    /// Takes `bytes` if that leaves the bound.
    #[must_use]
    pub fn take(&mut self, bytes: usize) -> bool {
        let has = self.has(bytes);
        if has {
            self.used += bytes;
        }
        has
    }

    pub fn give(&mut self, bytes: usize) {
        assert!(bytes <= self.used, "what is given back was taken");
        self.used -= bytes;
    }
}
