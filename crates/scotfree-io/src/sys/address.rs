//! Socket addresses in the kernel's layout (`sockaddr_in`, `sockaddr_in6`), as plain bytes.
//!
//! Invariant: encoding and decoding are inverse for every address without flow label.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// The size of `sockaddr_in6`, the larger of the two.
pub const RAW_ADDRESS_BYTES_MAX: usize = 28;
const RAW_V4_BYTES: usize = 16;

/// A socket address as the kernel reads and writes it.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(8))]
pub struct RawAddress {
    bytes: [u8; RAW_ADDRESS_BYTES_MAX],
    length: u32,
}

impl RawAddress {
    /// The kernel's form of `address`.
    pub fn encode(address: SocketAddr) -> RawAddress {
        match address {
            SocketAddr::V4(v4) => Self::encode_v4(v4),
            SocketAddr::V6(v6) => Self::encode_v6(&v6),
        }
    }

    /// The address of what the kernel wrote, if it is one of the two internet families.
    pub fn decode(&self) -> Option<SocketAddr> {
        let bytes = self.bytes.get(..self.length as usize)?;
        let family = i32::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
        match family {
            libc::AF_INET => {
                let ip: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
                Some(SocketAddrV4::new(Ipv4Addr::from(ip), port).into())
            }
            libc::AF_INET6 => {
                let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
                let scope = u32::from_ne_bytes(bytes.get(24..28)?.try_into().ok()?);
                Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, 0, scope).into())
            }
            _ => None,
        }
    }

    /// The bytes for the kernel to read.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length as usize]
    }

    /// Room for the kernel to write into; [`RawAddress::set_length`] says how much it wrote.
    pub fn room(&mut self) -> &mut [u8; RAW_ADDRESS_BYTES_MAX] {
        &mut self.bytes
    }

    /// Notes how many bytes the kernel says it wrote.
    pub fn set_length(&mut self, length: u32) {
        self.length = length.min(RAW_ADDRESS_BYTES_MAX as u32);
    }

    fn encode_v4(address: SocketAddrV4) -> RawAddress {
        let mut raw = RawAddress { length: RAW_V4_BYTES as u32, ..RawAddress::default() };
        raw.bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        raw.bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        raw.bytes[4..8].copy_from_slice(&address.ip().octets());
        raw
    }

    fn encode_v6(address: &SocketAddrV6) -> RawAddress {
        let mut raw = RawAddress { length: RAW_ADDRESS_BYTES_MAX as u32, ..RawAddress::default() };
        raw.bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
        raw.bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        raw.bytes[8..24].copy_from_slice(&address.ip().octets());
        raw.bytes[24..28].copy_from_slice(&address.scope_id().to_ne_bytes());
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip() {
        for text in ["10.1.2.3:51000", "[::1]:9", "[fe80::1%7]:65535"] {
            let address: SocketAddr = text.parse().expect("an address");
            assert_eq!(RawAddress::encode(address).decode(), Some(address));
        }
    }

    #[test]
    fn a_short_or_foreign_address_is_none() {
        let mut raw = RawAddress::encode("10.1.2.3:4".parse().expect("an address"));
        raw.set_length(6);
        assert_eq!(raw.decode(), None);
        assert_eq!(RawAddress::default().decode(), None);
        let mut unix = RawAddress::default();
        unix.room()[0] = libc::AF_UNIX as u8;
        unix.set_length(16);
        assert_eq!(unix.decode(), None);
    }
}
