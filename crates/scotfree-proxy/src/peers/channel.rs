//! An authenticated stream between a proxy and a peer: an opening by both, then sealed messages.
//!
//! Opening: the proxy says its magic (8 bytes), the log's name (16), a nonce (16) and the newest epoch of its key (4);
//! the peer its magic, a nonce (16, which names the epoch that both use) and its incarnation (16). From these and the
//! cluster's key each direction has a key of its own. A sealed message: its length (4, little-endian), its bytes, and
//! SipHash-2-4 (8) over its number in the stream and its bytes: nothing can be changed, left out, doubled or taken from
//! another connection. What is said is not secret.
//!
//! Invariant: whatever comes in, memory stays below a message's and its reader's piece; behind an error nothing is read.

use super::copies::Incarnation;
use super::keeper::LogName;
use super::message::RECORD_BYTES_MAX;
use scotfree_core::{Epoch, SessionId};
use scotfree_wire::{key_epoch, nonce_under, ClusterKey, Key, KeyEpoch, Nonce};

const PROXY_MAGIC: [u8; 8] = *b"SCOTPEE\x01";
const KEEPER_MAGIC: [u8; 8] = *b"SCOTKEE\x01";
const HELLO_BYTES: usize = 44;
const WELCOME_BYTES: usize = 40;
const LENGTH_BYTES: usize = 4;
const MAC_BYTES: usize = 8;
/// A message: a record, its place, and what it is.
const MESSAGE_BYTES_MAX: usize = RECORD_BYTES_MAX + 16;
/// What an empty buffer keeps of its memory.
const SEND_KEPT_BYTES: usize = 1 << 20;
/// Sets these keys apart from those of sessions.
const NOBODY: SessionId = SessionId(u64::from_le_bytes(*b"scotpeer"));

/// Why a stream cannot be read further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    /// Somebody else speaks.
    #[error("who answers there is no `scot peer` of this version, or no proxy")]
    Magic,
    /// The other end has no key in common.
    #[error("the other end has another cluster key, or one of other epochs: both need the same key file")]
    KeyEpoch,
    /// Somebody without the key, or something on the way, has written.
    #[error("a message is not authentic: both ends need the same key file")]
    Mac,
    /// A message is longer than any can be.
    #[error("a message of {0} bytes is longer than any can be")]
    Length(u32),
}

/// What an opening has brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// The log's name.
    pub name: LogName,
    /// The peer.
    pub incarnation: Incarnation,
}

enum Opening {
    /// A proxy waits for the peer's welcome.
    Proxy {
        name: LogName,
        nonce: Nonce,
    },
    /// A peer waits for a proxy's hello.
    Keeper {
        incarnation: Incarnation,
        fresh: [u8; 8],
    },
    Done(Opened),
}

#[derive(Clone, Copy)]
struct Seal {
    key: Key,
    count: u64,
}

impl Seal {
    fn mac(&mut self, bytes: &[u8]) -> [u8; MAC_BYTES] {
        let mac = self.key.mac(&[&self.count.to_le_bytes(), bytes]);
        self.count += 1;
        mac.to_le_bytes()
    }
}

/// One end of a stream.
pub struct Channel {
    cluster: ClusterKey,
    opening: Opening,
    seals: Option<(Seal, Seal)>,
    received: Vec<u8>,
    /// How much of it was read.
    read: usize,
    outgoing: Vec<u8>,
    /// How much of it was sent.
    sent: usize,
    is_broken: bool,
}

impl Channel {
    /// The proxy's end; `nonce` is fresh and random.
    pub fn of_proxy(cluster: ClusterKey, name: LogName, nonce: Nonce) -> Channel {
        let mut channel = Channel::new(cluster, Opening::Proxy { name, nonce });
        let newest = channel.cluster.newest().0.to_le_bytes();
        for part in [&PROXY_MAGIC[..], &name, &nonce, &newest] {
            channel.outgoing.extend_from_slice(part);
        }
        channel
    }

    /// The peer's end; `fresh` is random.
    pub fn of_keeper(cluster: ClusterKey, incarnation: Incarnation, fresh: [u8; 8]) -> Channel {
        Channel::new(cluster, Opening::Keeper { incarnation, fresh })
    }

    fn new(cluster: ClusterKey, opening: Opening) -> Channel {
        let (received, outgoing) = (Vec::new(), Vec::new());
        Channel { cluster, opening, seals: None, received, read: 0, outgoing, sent: 0, is_broken: false }
    }

    /// What the opening has brought, if it is over.
    pub fn opened(&self) -> Option<Opened> {
        match self.opening {
            Opening::Done(opened) => Some(opened),
            _ => None,
        }
    }

    /// Seals a message, which `write` appends.
    pub fn say(&mut self, write: &mut dyn FnMut(&mut Vec<u8>)) {
        let Some((_, ours)) = &mut self.seals else { return };
        let at = self.outgoing.len();
        self.outgoing.extend_from_slice(&[0; LENGTH_BYTES]);
        write(&mut self.outgoing);
        let body = at + LENGTH_BYTES;
        let length = (self.outgoing.len() - body) as u32;
        self.outgoing[at..body].copy_from_slice(&length.to_le_bytes());
        let mac = ours.mac(&self.outgoing[body..]);
        self.outgoing.extend_from_slice(&mac);
    }

    /// What is to be sent.
    pub fn to_send(&self) -> &[u8] {
        &self.outgoing[self.sent..]
    }

    /// So much of it was sent.
    pub fn sent(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent == self.outgoing.len() {
            self.outgoing.clear();
            self.outgoing.shrink_to(SEND_KEPT_BYTES);
            self.sent = 0;
        }
    }

    /// Takes what has come.
    pub fn receive(&mut self, bytes: &[u8]) {
        if self.read == self.received.len() {
            self.received.clear();
        } else if self.read > 0 {
            self.received.drain(..self.read);
        }
        self.read = 0;
        self.received.extend_from_slice(bytes);
    }

    /// The next message that is whole and authentic.
    pub fn next_message(&mut self) -> Result<Option<&[u8]>, ChannelError> {
        if self.is_broken {
            return Ok(None);
        }
        match self.find_message() {
            Ok(found) => Ok(found.map(|(from, to)| &self.received[from..to])),
            Err(error) => {
                self.is_broken = true;
                Err(error)
            }
        }
    }

    fn find_message(&mut self) -> Result<Option<(usize, usize)>, ChannelError> {
        if self.seals.is_none() && !self.open()? {
            return Ok(None);
        }
        let Some((theirs, _)) = &mut self.seals else { return Ok(None) };
        let rest = &self.received[self.read..];
        let Some((length, rest)) = rest.split_first_chunk() else { return Ok(None) };
        let length = u32::from_le_bytes(*length);
        if length as usize > MESSAGE_BYTES_MAX {
            return Err(ChannelError::Length(length));
        }
        let Some((message, rest)) = rest.split_at_checked(length as usize) else { return Ok(None) };
        let Some((mac, _)) = rest.split_first_chunk::<MAC_BYTES>() else { return Ok(None) };
        if theirs.mac(message) != *mac {
            return Err(ChannelError::Mac);
        }
        let from = self.read + LENGTH_BYTES;
        self.read = from + length as usize + MAC_BYTES;
        Ok(Some((from, from + length as usize)))
    }

    /// Reads the other end's opening; whether it is there.
    fn open(&mut self) -> Result<bool, ChannelError> {
        let heard = &self.received[self.read..];
        match self.opening {
            Opening::Proxy { name, nonce } => {
                check_magic(heard, KEEPER_MAGIC)?;
                let Some((welcome, _)) = heard.split_first_chunk::<WELCOME_BYTES>() else { return Ok(false) };
                let theirs: Nonce = part(welcome, 8);
                if !self.cluster.has(key_epoch(&theirs)) {
                    return Err(ChannelError::KeyEpoch);
                }
                self.read += WELCOME_BYTES;
                self.opening = Opening::Done(Opened { name, incarnation: part(welcome, 24) });
                let (to_keeper, to_proxy) = keys(&self.cluster, &nonce, &theirs);
                self.seals = Some((to_proxy, to_keeper));
            }
            Opening::Keeper { incarnation, fresh } => {
                check_magic(heard, PROXY_MAGIC)?;
                let Some((hello, _)) = heard.split_first_chunk::<HELLO_BYTES>() else { return Ok(false) };
                let newest = KeyEpoch(u32::from_le_bytes(part(hello, 40)));
                let epoch = if self.cluster.has(newest) { newest } else { self.cluster.newest() };
                let ours = nonce_under(epoch, fresh);
                for part in [&KEEPER_MAGIC[..], &ours, &incarnation] {
                    self.outgoing.extend_from_slice(part);
                }
                self.read += HELLO_BYTES;
                self.opening = Opening::Done(Opened { name: part(hello, 8), incarnation });
                let (to_keeper, to_proxy) = keys(&self.cluster, &part(hello, 24), &ours);
                self.seals = Some((to_keeper, to_proxy));
            }
            Opening::Done(_) => {}
        }
        Ok(true)
    }
}

/// Whether the other end begins as it should: said as soon as it does not.
fn check_magic(heard: &[u8], magic: [u8; 8]) -> Result<(), ChannelError> {
    let there = heard.len().min(magic.len());
    if heard[..there] == magic[..there] {
        Ok(())
    } else {
        Err(ChannelError::Magic)
    }
}

fn part<const COUNT: usize>(bytes: &[u8], at: usize) -> [u8; COUNT] {
    std::array::from_fn(|index| bytes[at + index])
}

fn keys(cluster: &ClusterKey, proxy: &Nonce, keeper: &Nonce) -> (Seal, Seal) {
    let keys = cluster.session(proxy, keeper, NOBODY, Epoch(0));
    let seal = |key| Seal { key, count: 0 };
    (seal(keys.client_to_server), seal(keys.server_to_client))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pair(proxy: &ClusterKey, keeper: &ClusterKey) -> (Channel, Channel) {
        (
            Channel::of_proxy(proxy.clone(), [1; 16], [2; 16]),
            Channel::of_keeper(keeper.clone(), [3; 16], [4; 8]),
        )
    }

    fn carry(from: &mut Channel, to: &mut Channel) {
        to.receive(&taken(from));
    }

    fn taken(from: &mut Channel) -> Vec<u8> {
        let bytes = from.to_send().to_vec();
        from.sent(bytes.len());
        assert!(from.to_send().is_empty());
        bytes
    }

    /// Both openings are said and heard.
    fn greet(proxy: &mut Channel, keeper: &mut Channel) {
        carry(proxy, keeper);
        assert_eq!(keeper.next_message(), Ok(None));
        carry(keeper, proxy);
        assert_eq!(proxy.next_message(), Ok(None));
    }

    fn open() -> (Channel, Channel) {
        let key = ClusterKey::from_bytes([5; 32]);
        let (mut proxy, mut keeper) = pair(&key, &key);
        greet(&mut proxy, &mut keeper);
        (proxy, keeper)
    }

    fn sealed(channel: &mut Channel, message: &[u8]) -> Vec<u8> {
        channel.say(&mut |out| out.extend_from_slice(message));
        taken(channel)
    }

    #[test]
    fn both_ends_know_each_other_and_read_what_was_said() {
        let (mut proxy, mut keeper) = open();
        let opened = Some(Opened { name: [1; 16], incarnation: [3; 16] });
        assert_eq!((proxy.opened(), keeper.opened()), (opened, opened));
        let bytes = [sealed(&mut proxy, b"one"), sealed(&mut proxy, b"")].concat();
        for byte in &bytes[..bytes.len() - 1] {
            keeper.receive(&[*byte]);
            let read = keeper.next_message().expect("authentic");
            assert!(read.is_none_or(|message| message == b"one"), "nothing else was said");
        }
        keeper.receive(&bytes[bytes.len() - 1..]);
        assert_eq!(keeper.next_message(), Ok(Some(&b""[..])));
        let reply = sealed(&mut keeper, b"two");
        proxy.receive(&reply);
        assert_eq!(proxy.next_message(), Ok(Some(&b"two"[..])));
    }

    #[test]
    fn what_was_changed_doubled_left_out_or_turned_round_is_refused() {
        for change in 0..4 {
            let (mut proxy, mut keeper) = open();
            let (first, second) = (sealed(&mut proxy, b"first"), sealed(&mut proxy, b"second"));
            let bytes = match change {
                0 => [&first[..6], &[first[6] ^ 1], &first[7..]].concat(),
                1 => [&first[..], &first].concat(),
                2 => second,
                _ => sealed(&mut keeper, b"third"),
            };
            keeper.receive(&bytes);
            let mut read = keeper.next_message().map(|message| message.map(<[u8]>::to_vec));
            if change == 1 {
                assert_eq!(read, Ok(Some(b"first".to_vec())));
                read = keeper.next_message().map(|message| message.map(<[u8]>::to_vec));
            }
            assert_eq!(read, Err(ChannelError::Mac), "{change}");
            assert_eq!(keeper.next_message(), Ok(None), "behind an error nothing is read");
        }
    }

    #[test]
    fn who_has_another_key_or_speaks_otherwise_is_refused() {
        let (ours, theirs) = (ClusterKey::from_bytes([5; 32]), ClusterKey::from_bytes([6; 32]));
        let (mut proxy, mut keeper) = pair(&ours, &theirs);
        greet(&mut proxy, &mut keeper);
        let said = sealed(&mut proxy, b"hello");
        keeper.receive(&said);
        assert_eq!(keeper.next_message(), Err(ChannelError::Mac));

        let later = ClusterKey::from_epochs(vec![(KeyEpoch(9), [5; 32])]).expect("one epoch");
        let (mut proxy, mut keeper) = pair(&ours, &later);
        carry(&mut proxy, &mut keeper);
        assert_eq!(keeper.next_message(), Ok(None));
        carry(&mut keeper, &mut proxy);
        assert_eq!(proxy.next_message(), Err(ChannelError::KeyEpoch));

        let (_, mut keeper) = pair(&ours, &ours);
        keeper.receive(b"*1\r\n");
        assert_eq!(keeper.next_message(), Err(ChannelError::Magic));

        let (_, mut keeper) = open();
        keeper.receive(&u32::MAX.to_le_bytes());
        assert_eq!(keeper.next_message(), Err(ChannelError::Length(u32::MAX)));
    }

    #[test]
    fn an_older_epoch_that_both_have_is_used() {
        let old = ClusterKey::from_bytes([5; 32]);
        let both = ClusterKey::from_epochs(vec![(KeyEpoch(0), [5; 32]), (KeyEpoch(1), [6; 32])])
            .expect("two epochs");
        for (proxy_key, keeper_key) in [(&old, &both), (&both, &old)] {
            let (mut proxy, mut keeper) = pair(proxy_key, keeper_key);
            greet(&mut proxy, &mut keeper);
            let said = sealed(&mut proxy, b"hello");
            keeper.receive(&said);
            assert_eq!(keeper.next_message(), Ok(Some(&b"hello"[..])));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_waited_with(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let (mut proxy, mut keeper) = open();
            for channel in [&mut proxy, &mut keeper] {
                channel.receive(&bytes);
                prop_assert!(!matches!(channel.next_message(), Ok(Some(_))), "nobody has the key");
            }
        }
    }
}
