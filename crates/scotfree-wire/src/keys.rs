//! Keys: from the cluster's key every session and every pair of roles derives its own, one per direction
//! (rule 14). The cluster's key is rotated: it has one secret per epoch, and old epochs are taken away.
//!
//! Invariant: what was made under an epoch that has been taken away is never authentic again.

use crate::error::WireError;
use crate::header::{u32_at, u64_at};
use crate::packet::Packet;
use crate::tail::Stamp;
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
    /// Member of a group to member.
    MemberToMember,
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
            Direction::MemberToMember => b"scotfree 1 member to member",
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

    /// The key that starts `SipHash` from these two words.
    pub fn from_words(words: [u64; 2]) -> Key {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&words[0].to_le_bytes());
        bytes[8..].copy_from_slice(&words[1].to_le_bytes());
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

/// Which of a cluster's secrets; grows with every rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct KeyEpoch(pub u32);

/// How many epochs a cluster's key has at most: what states none is tried under each of them.
pub const KEY_EPOCHS_MAX: usize = 8;

/// The first bytes of a server's nonce that names its session's epoch. A nonce without them is of a time
/// before there were epochs, and of the first.
const NONCE_MARK: u32 = u32::from_le_bytes(*b"KEY\x1a");

/// The epoch of the cluster's key under which the session of this server's nonce was opened. The nonce says
/// it because it stays with everything that is kept of a session.
pub fn key_epoch(server_nonce: &Nonce) -> KeyEpoch {
    let marked = u32_at(server_nonce, 0) == NONCE_MARK;
    KeyEpoch(if marked { u32_at(server_nonce, 4) } else { 0 })
}

/// A server's nonce for a session under `epoch`; the rest of it is `fresh`.
pub fn nonce_under(epoch: KeyEpoch, fresh: [u8; 8]) -> Nonce {
    let mut nonce = [0; 16];
    nonce[..4].copy_from_slice(&NONCE_MARK.to_le_bytes());
    nonce[4..8].copy_from_slice(&epoch.0.to_le_bytes());
    nonce[8..].copy_from_slice(&fresh);
    nonce
}

/// The secret that a cluster shares: one for each epoch that is still accepted. What is new is made under
/// the newest.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey {
    /// In the order of their epochs; never empty.
    secrets: Vec<(KeyEpoch, [u8; 32])>,
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClusterKey").field(&self.epochs().collect::<Vec<_>>()).finish()
    }
}

impl ClusterKey {
    /// A cluster key of known bytes, of the first epoch.
    pub fn from_bytes(bytes: [u8; 32]) -> ClusterKey {
        ClusterKey { secrets: vec![(KeyEpoch(0), bytes)] }
    }

    /// A cluster key of one to [`KEY_EPOCHS_MAX`] epochs, each larger than the one before it.
    pub fn from_epochs(secrets: Vec<(KeyEpoch, [u8; 32])>) -> Option<ClusterKey> {
        let fits = (1..=KEY_EPOCHS_MAX).contains(&secrets.len());
        let grows = secrets.windows(2).all(|pair| pair[0].0 < pair[1].0);
        (fits && grows).then_some(ClusterKey { secrets })
    }

    /// Reads the text of a key file: a line for each epoch, from the oldest to the newest, with the epoch's number and
    /// 64 hexadecimal digits. A line without a number is of epoch 0.
    pub fn from_text(text: &str) -> Option<ClusterKey> {
        ClusterKey::secrets_of(text).and_then(ClusterKey::from_epochs)
    }

    /// The secrets in the text of a key file.
    pub fn secrets_of(text: &str) -> Option<Vec<(KeyEpoch, [u8; 32])>> {
        text.trim().lines().map(secret_of).collect()
    }

    /// The epochs, from the oldest to the newest.
    pub fn epochs(&self) -> impl DoubleEndedIterator<Item = KeyEpoch> + '_ {
        self.secrets.iter().map(|(epoch, _)| *epoch)
    }

    /// The epoch under which sessions are opened.
    pub fn newest(&self) -> KeyEpoch {
        self.secrets.last().expect("there is a secret").0
    }

    /// Whether what was made under `epoch` is accepted.
    pub fn has(&self, epoch: KeyEpoch) -> bool {
        self.epochs().any(|known| known == epoch)
    }

    /// The newest key between two roles that have no session.
    pub fn control(&self, direction: Direction) -> Key {
        self.controls(direction).newest()
    }

    /// The keys between two roles that have no session: control messages, stamps, handshakes.
    pub fn controls(&self, direction: Direction) -> ControlKeys {
        self.labelled(direction.label())
    }

    fn labelled(&self, label: &[u8]) -> ControlKeys {
        let derived = |(epoch, secret): &(KeyEpoch, _)| (*epoch, derive(secret, &[], label));
        ControlKeys(self.secrets.iter().rev().map(derived).collect())
    }

    /// Under which an operator's questions to a daemon are signed.
    pub fn questions(&self) -> ControlKeys {
        self.labelled(QUESTIONS)
    }

    /// Under which keys of requests are hashed in records of calls: all who share the secret hash them alike, and
    /// nobody else can try out keys. A new secret changes it.
    pub fn trace_keys(&self) -> Key {
        let (_, secret) = self.secrets.last().expect("there is a secret");
        derive(secret, &[], TRACE_KEYS)
    }

    /// The keys of a session, from the secret of its epoch. One whose epoch has been taken away has keys
    /// from the newest: all but its client can derive them, so servers and devices can end it together.
    pub fn session(&self, client: &Nonce, server: &Nonce, session: SessionId, epoch: Epoch) -> SessionKeys {
        let mut salt = [0; 44];
        salt[..16].copy_from_slice(client);
        salt[16..32].copy_from_slice(server);
        salt[32..40].copy_from_slice(&session.0.to_le_bytes());
        salt[40..].copy_from_slice(&epoch.0.to_le_bytes());
        let opened = key_epoch(server);
        let of_epoch = self.secrets.iter().find(|(known, _)| *known == opened);
        let (_, secret) = of_epoch.or(self.secrets.last()).expect("there is a secret");
        SessionKeys {
            client_to_server: derive(secret, &salt, Direction::ClientToServer.label()),
            server_to_client: derive(secret, &salt, Direction::ServerToClient.label()),
            device_to_client: derive(secret, &salt, Direction::DeviceToClient.label()),
        }
    }
}

const QUESTIONS: &[u8] = b"scotfree questions";
const TRACE_KEYS: &[u8] = b"scotfree keys in traces";

fn derive(secret: &[u8; 32], salt: &[u8], label: &[u8]) -> Key {
    let mut key = [0; 16];
    Hkdf::<Sha256>::new(Some(salt), secret).expand(label, &mut key).expect("HKDF-SHA256 yields 16 bytes");
    Key(key)
}

/// The keys of one direction without a session, one per epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlKeys(Vec<(KeyEpoch, Key)>);

impl ControlKeys {
    /// The key of the newest epoch: what one sends oneself is made under it.
    pub fn newest(&self) -> Key {
        self.0[0].1
    }

    /// The key of an epoch that the packet states.
    pub fn of(&self, epoch: KeyEpoch) -> Result<Key, WireError> {
        let found = self.0.iter().find(|(known, _)| *known == epoch);
        found.map(|(_, key)| *key).ok_or(WireError::UnknownKeyEpoch)
    }

    /// All of them, the newest first.
    pub fn all(&self) -> impl Iterator<Item = Key> + '_ {
        self.0.iter().map(|(_, key)| *key)
    }

    /// The epoch under which the packet was made by someone who holds its key.
    pub fn verify(&self, packet: &Packet<'_>) -> Result<KeyEpoch, WireError> {
        let made_it = |(_, key): &&(KeyEpoch, Key)| packet.verify(key).is_ok();
        self.0.iter().find(made_it).map(|(epoch, _)| *epoch).ok_or(WireError::BadMac)
    }

    /// A request's stamp, if it was made by someone who holds one of these keys; an empty stamp is authentic.
    pub fn verified_stamp(&self, packet: &Packet<'_>) -> Result<Stamp, WireError> {
        let made_by = |key| packet.verified_stamp(&key).ok();
        self.all().find_map(made_by).ok_or(WireError::BadStampMac)
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

fn secret_of(line: &str) -> Option<(KeyEpoch, [u8; 32])> {
    let (epoch, digits) = line.trim().split_once(' ').unwrap_or(("0", line.trim()));
    let plain = !epoch.is_empty() && epoch.bytes().all(|digit| digit.is_ascii_digit());
    let epoch = epoch.parse().ok().filter(|_| plain)?;
    Some((KeyEpoch(epoch), decode(digits.trim())?))
}

fn decode(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut secret = [0; 32];
    for (index, byte) in secret.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(secret)
}
