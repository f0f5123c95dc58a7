//! Control messages of sockets (`cmsghdr`), read and written as plain bytes.
//!
//! Invariant: a control buffer that is short or inconsistent yields fewer messages, never a panic.

use scotfree_core::Nanos;

/// `cmsghdr` on 64-bit Linux: length (8), level (4), type (4).
const HEADER_BYTES: usize = 16;
/// Room for every control message that one of our sockets asks for, with slack.
pub const CONTROL_BYTES_MAX: usize = 256;
/// The control message that asks for one transmit stamp.
pub const STAMP_REQUEST_BYTES: usize = 24;

/// One control message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlMessage<'a> {
    /// `SOL_SOCKET` and its kin.
    pub level: i32,
    /// What it is, within its level.
    pub kind: i32,
    /// What it says.
    pub data: &'a [u8],
}

impl ControlMessage<'_> {
    /// The integer at `offset` of the data.
    pub fn u32_at(&self, offset: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(self.data.get(offset..offset + 4)?.try_into().ok()?))
    }

    /// The 16-bit integer at `offset` of the data.
    pub fn u16_at(&self, offset: usize) -> Option<u16> {
        Some(u16::from_ne_bytes(self.data.get(offset..offset + 2)?.try_into().ok()?))
    }

    /// The software stamp, if this is a message with stamps and one was taken.
    pub fn software_stamp(&self) -> Option<Nanos> {
        if (self.level, self.kind) != (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) {
            return None;
        }
        let seconds = u64::from_ne_bytes(self.data.get(..8)?.try_into().ok()?);
        let nanoseconds = u64::from_ne_bytes(self.data.get(8..16)?.try_into().ok()?);
        let stamp = seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)?;
        (stamp != 0).then_some(Nanos(stamp))
    }
}

/// The control messages in `buffer`, in order.
pub fn messages(mut buffer: &[u8]) -> impl Iterator<Item = ControlMessage<'_>> {
    std::iter::from_fn(move || {
        let length = usize::try_from(u64::from_ne_bytes(buffer.get(..8)?.try_into().ok()?)).ok()?;
        let level = i32::from_ne_bytes(buffer.get(8..12)?.try_into().ok()?);
        let kind = i32::from_ne_bytes(buffer.get(12..16)?.try_into().ok()?);
        let data = buffer.get(HEADER_BYTES..length)?;
        buffer = buffer.get(length.next_multiple_of(8)..).unwrap_or(&[]);
        Some(ControlMessage { level, kind, data })
    })
}

/// The control message that asks the kernel to stamp one packet when it leaves.
pub fn stamp_request() -> [u8; STAMP_REQUEST_BYTES] {
    let mut out = [0; STAMP_REQUEST_BYTES];
    out[..8].copy_from_slice(&(HEADER_BYTES as u64 + 4).to_ne_bytes());
    out[8..12].copy_from_slice(&libc::SOL_SOCKET.to_ne_bytes());
    out[12..16].copy_from_slice(&libc::SO_TIMESTAMPING.to_ne_bytes());
    out[16..20].copy_from_slice(&libc::SOF_TIMESTAMPING_TX_SOFTWARE.to_ne_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_message_is_read_back() {
        let request = stamp_request();
        let read: Vec<ControlMessage<'_>> = messages(&request).collect();
        assert_eq!(read.len(), 1);
        assert_eq!((read[0].level, read[0].kind), (libc::SOL_SOCKET, libc::SO_TIMESTAMPING));
        assert_eq!(read[0].u32_at(0), Some(libc::SOF_TIMESTAMPING_TX_SOFTWARE));
    }

    #[test]
    fn every_truncation_ends_the_list() {
        let mut two = stamp_request().to_vec();
        two.extend_from_slice(&stamp_request());
        assert_eq!(messages(&two).count(), 2);
        for length in 0..two.len() {
            assert!(messages(&two[..length]).count() <= 2);
        }
        two[..8].copy_from_slice(&u64::MAX.to_ne_bytes());
        assert_eq!(messages(&two).count(), 0);
        two[..8].copy_from_slice(&3_u64.to_ne_bytes());
        assert_eq!(messages(&two).count(), 0);
    }
}
