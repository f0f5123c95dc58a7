//! Keys: one cluster key, from which every session and every pair of roles derives its own, one per
//! direction (rule 14).

use crate::header::u64_at;
use core::fmt;
use core::hash::Hasher;
use hkdf::Hkdf;
use scotfree_core::{Epoch, SessionId};
use sha2::Sha256;
use siphasher::sip::SipHasher24;

/// A random number used once.
pub type Nonce = [u8; 16];

/// Who speaks to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Client to server.
    ClientToServer,
    /// Server to client.
    ServerToClient,
    /// Device to client.
    DeviceToClient,
    /// Server to device.
    ServerToDevice,
    /// Device to server.
    DeviceToServer,
    /// Device to device and server: stamps.
    Stamp,
    /// Session opening, before there is a session.
    Handshake,
}

impl Direction {
    const fn label(self) -> &'static [u8] {
        match self {
            Direction::ClientToServer => b"scotfree 1 client to server",
            Direction::ServerToClient => b"scotfree 1 server to client",
            Direction::DeviceToClient => b"scotfree 1 device to client",
            Direction::ServerToDevice => b"scotfree 1 server to device",
            Direction::DeviceToServer => b"scotfree 1 device to server",
            Direction::Stamp => b"scotfree 1 stamp",
            Direction::Handshake => b"scotfree 1 handshake",
        }
    }
}

/// A key of the packet MAC. Its value is never printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key([u8; 16]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// A key of known bytes, for tests and golden vectors.
    pub const fn from_bytes(bytes: [u8; 16]) -> Key {
        Key(bytes)
    }

    /// The two words from which `SipHash` starts, for a program that computes it elsewhere.
    pub fn words(&self) -> [u64; 2] {
        core::array::from_fn(|half| u64_at(&self.0, half * 8))
    }

    /// SipHash-2-4 over the parts as if they were one.
    pub fn mac(&self, parts: &[&[u8]]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        for part in parts {
            hasher.write(part);
        }
        hasher.finish()
    }
}

/// The secret that a cluster shares.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey([u8; 32]);

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(..)")
    }
}

impl ClusterKey {
    /// A cluster key of known bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> ClusterKey {
        ClusterKey(bytes)
    }

    /// The key between two roles that have no session: control messages, stamps, handshakes.
    pub fn control(&self, direction: Direction) -> Key {
        self.derive(&[], direction.label())
    }

    /// The keys of a session.
    pub fn session(&self, client: &Nonce, server: &Nonce, session: SessionId, epoch: Epoch) -> SessionKeys {
        let mut salt = [0; 44];
        salt[..16].copy_from_slice(client);
        salt[16..32].copy_from_slice(server);
        salt[32..40].copy_from_slice(&session.0.to_le_bytes());
        salt[40..].copy_from_slice(&epoch.0.to_le_bytes());
        SessionKeys {
            client_to_server: self.derive(&salt, Direction::ClientToServer.label()),
            server_to_client: self.derive(&salt, Direction::ServerToClient.label()),
            device_to_client: self.derive(&salt, Direction::DeviceToClient.label()),
        }
    }

    fn derive(&self, salt: &[u8], label: &[u8]) -> Key {
        let mut key = [0; 16];
        Hkdf::<Sha256>::new(Some(salt), &self.0)
            .expand(label, &mut key)
            .expect("HKDF-SHA256 yields 16 bytes");
        Key(key)
    }
}

/// The keys of one session, one per direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionKeys {
    /// Authenticates requests.
    pub client_to_server: Key,
    /// Authenticates responses and `ServerAck`s.
    pub server_to_client: Key,
    /// Authenticates `PersistAck`s.
    pub device_to_client: Key,
}
