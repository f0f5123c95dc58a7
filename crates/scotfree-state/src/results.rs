//! What writes were answered, by their identities: a request that comes again, over any member, is answered with what
//! it was answered first (docs/design/groups.md, exactly once).
//!
//! Invariant: a write that was noted is known or refused ever after, never taken for a new one: what is forgotten
//! of a client lies below a number that is remembered, and a client is forgotten only when it has been silent for
//! longer than any client tries again.

use scotfree_wire::Identity;
use std::collections::BTreeMap;

/// The bounds of a table of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ResultsLimits {
    /// How many clients are remembered.
    pub clients_max: usize,
    /// How many results of each.
    pub per_client_max: usize,
    /// How many bytes of answers of each.
    pub bytes_per_client_max: usize,
    /// How many bytes all of them may take in a snapshot; beyond, answers of those who have been silent for longest
    /// are forgotten.
    pub bytes_max: usize,
    /// A client that has written nothing for so long may be forgotten, in milliseconds.
    pub silent_ms_min: u64,
}

impl Default for ResultsLimits {
    fn default() -> Self {
        ResultsLimits {
            clients_max: 4_096,
            per_client_max: 4_096,
            bytes_per_client_max: 1 << 20,
            bytes_max: 64 << 20,
            silent_ms_min: 600_000,
        }
    }
}

/// What is known of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known<'a> {
    /// It was not executed.
    New,
    /// It was, and this was the answer.
    Answered(&'a [u8]),
    /// It may have been, and its answer is forgotten: it must not be executed.
    Forgotten,
    /// It is a new client's, and there is no room to remember one more.
    NoRoom,
}

/// Results of all clients.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Results {
    limits: ResultsLimits,
    clients: BTreeMap<[u8; 16], Client>,
    /// What all of them take in a snapshot.
    bytes: usize,
}

/// What is remembered of a client.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Client {
    /// Results by the lower 40 bits of their numbers: the upper ones name where a request was sent first.
    answers: BTreeMap<u64, Box<[u8]>>,
    bytes: usize,
    /// Every number up to this one is forgotten.
    forgotten: u64,
    last_ms: u64,
}

/// The bits of an identity's number that count a client's requests; the bits above name the member to which the
/// request was sent first.
const COUNT_BITS: u32 = 40;

/// A request, wherever it was sent first: its client, and its place among that client's requests.
pub fn request_of(identity: &Identity) -> ([u8; 16], u64) {
    (identity.client, count_of(identity))
}

fn count_of(identity: &Identity) -> u64 {
    identity.number & ((1 << COUNT_BITS) - 1)
}

/// What a client and an answer take in a snapshot beside the answer.
const CLIENT_BYTES: usize = 16 + 8 + 8 + 4;
const ANSWER_BYTES: usize = 8 + 4;

impl Client {
    /// What its answers take in a snapshot.
    fn all_bytes(&self) -> usize {
        self.bytes + self.answers.len() * ANSWER_BYTES
    }

    fn forget_oldest(&mut self) {
        let Some((oldest, answer)) = self.answers.pop_first() else { return };
        self.bytes -= answer.len();
        self.forgotten = self.forgotten.max(oldest);
    }
}

impl Results {
    /// An empty table.
    pub fn new(limits: ResultsLimits) -> Results {
        Results { limits, clients: BTreeMap::new(), bytes: 0 }
    }

    /// What is known of a write.
    pub fn look(&self, identity: &Identity, now_ms: u64) -> Known<'_> {
        let Some(client) = self.clients.get(&identity.client) else {
            return if self.has_room(now_ms) { Known::New } else { Known::NoRoom };
        };
        match client.answers.get(&count_of(identity)) {
            Some(answer) => Known::Answered(answer),
            None if count_of(identity) <= client.forgotten => Known::Forgotten,
            None => Known::New,
        }
    }

    /// Notes what a write was answered. The second note of an identity changes nothing.
    pub fn note(&mut self, identity: &Identity, at_ms: u64, answer: &[u8]) {
        if !self.clients.contains_key(&identity.client) && self.clients.len() >= self.limits.clients_max {
            self.forget_silent(at_ms);
        }
        let limits = self.limits;
        let bytes = &mut self.bytes;
        let client = self.clients.entry(identity.client).or_insert_with(|| {
            *bytes += CLIENT_BYTES;
            Client::default()
        });
        let count = count_of(identity);
        client.last_ms = client.last_ms.max(at_ms);
        if count <= client.forgotten || client.answers.contains_key(&count) {
            return;
        }
        let before = client.all_bytes();
        client.bytes += answer.len();
        client.answers.insert(count, answer.into());
        while client.answers.len() > limits.per_client_max || client.bytes > limits.bytes_per_client_max {
            client.forget_oldest();
        }
        self.bytes = self.bytes + client.all_bytes() - before;
        if self.bytes > limits.bytes_max {
            self.make_room(&identity.client);
        }
    }

    /// Forgets the answers of those who have been silent for longest; those of whoever wrote just now last.
    fn make_room(&mut self, last: &[u8; 16]) {
        let mut by_silence: Vec<(u64, [u8; 16])> = self
            .clients
            .iter()
            .filter(|(_, client)| !client.answers.is_empty())
            .map(|(name, client)| (client.last_ms, *name))
            .collect();
        by_silence.sort_unstable();
        by_silence.sort_by_key(|(_, name)| name == last);
        for (_, name) in by_silence {
            let Some(client) = self.clients.get_mut(&name) else { continue };
            while self.bytes > self.limits.bytes_max / 8 * 7 && !client.answers.is_empty() {
                let before = client.all_bytes();
                client.forget_oldest();
                self.bytes -= before - client.all_bytes();
            }
        }
    }

    /// How many clients are remembered.
    pub fn client_count(&self) -> usize {
        self.clients.len()
    }

    fn has_room(&self, now_ms: u64) -> bool {
        self.clients.len() < self.limits.clients_max
            || self.clients.values().any(|client| self.is_silent(client, now_ms))
    }

    fn is_silent(&self, client: &Client, now_ms: u64) -> bool {
        now_ms.saturating_sub(client.last_ms) >= self.limits.silent_ms_min
    }

    fn forget_silent(&mut self, now_ms: u64) {
        let longest = self.clients.iter().min_by_key(|(_, client)| client.last_ms);
        if let Some((name, _)) = longest.filter(|(_, client)| self.is_silent(client, now_ms)) {
            let name = *name;
            let client = self.clients.remove(&name).expect("it was there just now");
            self.bytes -= CLIENT_BYTES + client.all_bytes();
        }
    }

    /// Appends the table to a snapshot: clients (4), and of each its name (16), what is forgotten (8), when it wrote
    /// last (8), results (4), and of each its number (8), bytes (4) and the answer.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.clients.len() as u32).to_le_bytes());
        for (name, client) in &self.clients {
            out.extend_from_slice(name);
            out.extend_from_slice(&client.forgotten.to_le_bytes());
            out.extend_from_slice(&client.last_ms.to_le_bytes());
            out.extend_from_slice(&(client.answers.len() as u32).to_le_bytes());
            for (count, answer) in &client.answers {
                out.extend_from_slice(&count.to_le_bytes());
                out.extend_from_slice(&(answer.len() as u32).to_le_bytes());
                out.extend_from_slice(answer);
            }
        }
    }

    /// Reads a table from the beginning of `bytes`; it, and what follows. `None` if it is not whole.
    pub fn read(limits: ResultsLimits, bytes: &[u8]) -> Option<(Results, &[u8])> {
        let (count, mut rest) = number::<4>(bytes)?;
        let mut results = Results::new(limits);
        for _ in 0..count {
            let (name, after) = rest.split_first_chunk::<16>()?;
            let (client, after) = read_client(after)?;
            results.bytes += CLIENT_BYTES + client.all_bytes();
            results.clients.insert(*name, client);
            rest = after;
        }
        Some((results, rest))
    }
}

fn read_client(bytes: &[u8]) -> Option<(Client, &[u8])> {
    let (forgotten, rest) = number::<8>(bytes)?;
    let (last_ms, rest) = number::<8>(rest)?;
    let (count, mut rest) = number::<4>(rest)?;
    let mut client = Client { forgotten, last_ms, ..Client::default() };
    for _ in 0..count {
        let (number_of, after) = number::<8>(rest)?;
        let (length, after) = number::<4>(after)?;
        let (answer, after) = after.split_at_checked(length as usize)?;
        client.bytes += answer.len();
        client.answers.insert(number_of, answer.into());
        rest = after;
    }
    Some((client, rest))
}

/// A little-endian number of `N` bytes, and what follows.
fn number<const N: usize>(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    let mut word = [0; 8];
    word[..N].copy_from_slice(first);
    Some((u64::from_le_bytes(word), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> ResultsLimits {
        ResultsLimits {
            clients_max: 2,
            per_client_max: 3,
            bytes_per_client_max: 100,
            bytes_max: 1_000,
            silent_ms_min: 1_000,
        }
    }

    fn id(client: u8, number: u64) -> Identity {
        Identity { client: [client; 16], number }
    }

    #[test]
    fn what_was_answered_is_known_and_what_is_forgotten_is_refused() {
        let mut results = Results::new(limits());
        assert_eq!(results.look(&id(1, 1), 0), Known::New);
        for number in 1..=4 {
            results.note(&id(1, number), 0, &[number as u8]);
        }
        assert_eq!(results.look(&id(1, 1), 0), Known::Forgotten);
        assert_eq!(results.look(&id(1, 4), 0), Known::Answered(&[4]));
        assert_eq!(results.look(&id(1, 5), 0), Known::New);
        results.note(&id(1, 4), 0, b"again");
        assert_eq!(results.look(&id(1, 4), 0), Known::Answered(&[4]), "the first answer stands");
        results.note(&id(1, 9), 0, &[0; 101]);
        assert_eq!(results.look(&id(1, 9), 0), Known::Forgotten, "an answer that is too large");
    }

    #[test]
    fn where_a_request_was_sent_first_does_not_make_it_another() {
        let mut results = Results::new(limits());
        results.note(&id(1, 7 | 3 << 56), 0, b"x");
        assert_eq!(results.look(&id(1, 7 | 3 << 56), 0), Known::Answered(b"x"));
        assert_eq!(results.look(&id(1, 7 | 9 << 56), 0), Known::Answered(b"x"));
    }

    #[test]
    fn a_client_is_forgotten_only_when_it_was_silent_for_long() {
        let mut results = Results::new(limits());
        results.note(&id(1, 1), 0, b"x");
        results.note(&id(2, 1), 500, b"y");
        assert_eq!(results.look(&id(3, 1), 999), Known::NoRoom);
        assert_eq!(results.look(&id(3, 1), 1_000), Known::New);
        results.note(&id(3, 1), 1_000, b"z");
        assert_eq!(results.client_count(), 2);
        assert_eq!(results.look(&id(2, 1), 1_000), Known::Answered(b"y"));
    }

    #[test]
    fn what_all_take_is_bounded_and_the_silent_are_forgotten_first() {
        let mut results = Results::new(ResultsLimits { bytes_max: 200, clients_max: 3, ..limits() });
        results.note(&id(1, 1), 1, &[1; 50]);
        results.note(&id(2, 1), 2, &[2; 50]);
        results.note(&id(3, 1), 3, &[3; 50]);
        assert_eq!(results.look(&id(1, 1), 3), Known::Forgotten);
        assert_eq!(results.look(&id(1, 2), 3), Known::New, "the client is known still");
        assert_eq!(results.look(&id(3, 1), 3), Known::Answered(&[3; 50]));
        let mut bytes = Vec::new();
        results.write(&mut bytes);
        assert_eq!(bytes.len(), 4 + results.bytes);
        assert!(results.bytes <= 200);
    }

    #[test]
    fn a_table_is_read_back_and_a_cut_one_is_not() {
        let mut results = Results::new(limits());
        (1..=5).for_each(|number| results.note(&id(1, number), number, &[1; 3]));
        results.note(&id(2, 1), 9, b"");
        let mut bytes = Vec::new();
        results.write(&mut bytes);
        assert_eq!(Results::read(limits(), &bytes), Some((results, &[][..])));
        for length in 0..bytes.len() {
            assert_eq!(Results::read(limits(), &bytes[..length]), None, "{length}");
        }
    }
}
