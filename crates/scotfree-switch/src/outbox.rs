//! The frames of one turn of the loop, on their way out: which port each leaves by and where its bytes
//! lie.
//!
//! Invariant: a frame that passes unchanged is never copied; the order of frames at a port is the
//! order in which they were pushed.

use crate::bridge::PortIndex;

/// Where the bytes of a frame lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameSource {
    /// In the burst that was received at `port`, at place `index`.
    Received {
        /// The port.
        port: PortIndex,
        /// The place in its burst.
        index: usize,
    },
    /// In the outbox itself.
    Written {
        /// The first byte.
        start: usize,
        /// The byte after the last.
        end: usize,
    },
}

/// Frames on their way out.
#[derive(Debug, Default)]
pub struct Outbox {
    frames: Vec<(PortIndex, FrameSource)>,
    written: Vec<u8>,
}

impl Outbox {
    /// Adds a frame that leaves by `port`.
    pub fn push(&mut self, port: PortIndex, source: FrameSource) {
        self.frames.push((port, source));
    }

    /// Lets `write` append a frame to the outbox's own memory; pushing it is the caller's choice.
    pub fn write_with<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> (FrameSource, T) {
        let start = self.written.len();
        let result = write(&mut self.written);
        (FrameSource::Written { start, end: self.written.len() }, result)
    }

    /// The bytes of a written frame.
    pub fn written(&self, start: usize, end: usize) -> &[u8] {
        &self.written[start..end]
    }

    /// The frames that leave by `port`, in order.
    pub fn leaving(&self, port: PortIndex) -> impl Iterator<Item = FrameSource> + Clone + '_ {
        self.frames.iter().filter(move |(egress, _)| *egress == port).map(|(_, source)| *source)
    }

    /// How many frames there are.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Forgets all, keeping the memory.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.written.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_leave_by_their_port_in_order() {
        let mut out = Outbox::default();
        let received = FrameSource::Received { port: PortIndex(0), index: 3 };
        out.push(PortIndex(1), received);
        let (written, ()) = out.write_with(|bytes| bytes.extend_from_slice(b"frame"));
        out.push(PortIndex(1), written);
        out.push(PortIndex(0), written);
        assert_eq!(out.leaving(PortIndex(1)).collect::<Vec<_>>(), [received, written]);
        assert_eq!(out.leaving(PortIndex(0)).count(), 1);
        let FrameSource::Written { start, end } = written else { panic!("it was written") };
        assert_eq!(out.written(start, end), b"frame");
        out.clear();
        assert!(out.is_empty());
    }
}
