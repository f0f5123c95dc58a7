//! Commands of Redis whose whole replies may be kept.
//!
//! Invariant: the reply of each is the same until its key is written or its time to live is over, whoever asks, and
//! asking changes nothing. Left out is what draws by chance (SRANDMEMBER, SPOP), tells of clocks or of how values lie
//! (TTL, OBJECT, DUMP, XINFO, XPENDING), keeps something beside (PFCOUNT, TOUCH, GETEX), goes on from a place that moves
//! without a write (SCAN and its kin), waits (XREAD), or looks at keys that it does not name (`SORT_RO`).

/// A command whose whole reply may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadCommand {
    /// In capitals. Its first key is its first argument.
    pub name: &'static str,
    /// All its arguments are keys: with one alone its reply is one key's.
    pub takes_keys: bool,
    /// Its reply may tell of a hash. Where fields have times to live of their own it changes though its key is not
    /// written and has none.
    pub tells_of_hashes: bool,
}

const fn read(name: &'static str) -> ReadCommand {
    ReadCommand { name, takes_keys: false, tells_of_hashes: false }
}

const fn of_hash(name: &'static str) -> ReadCommand {
    ReadCommand { name, takes_keys: false, tells_of_hashes: true }
}

/// All of them, by name.
pub const READS: [ReadCommand; 51] = [
    read("BITCOUNT"),
    read("BITFIELD_RO"),
    read("BITPOS"),
    ReadCommand { name: "EXISTS", takes_keys: true, tells_of_hashes: true },
    of_hash("EXPIRETIME"),
    read("GEODIST"),
    read("GEOHASH"),
    read("GEOPOS"),
    read("GEORADIUSBYMEMBER_RO"),
    read("GEORADIUS_RO"),
    read("GEOSEARCH"),
    read("GET"),
    read("GETBIT"),
    read("GETRANGE"),
    of_hash("HEXISTS"),
    of_hash("HGET"),
    of_hash("HGETALL"),
    of_hash("HKEYS"),
    of_hash("HLEN"),
    of_hash("HMGET"),
    of_hash("HSTRLEN"),
    of_hash("HVALS"),
    read("LINDEX"),
    read("LLEN"),
    read("LPOS"),
    read("LRANGE"),
    // Of a hash it says null, as long as there is one and after it.
    ReadCommand { name: "MGET", takes_keys: true, tells_of_hashes: false },
    of_hash("PEXPIRETIME"),
    read("SCARD"),
    read("SISMEMBER"),
    read("SMEMBERS"),
    read("SMISMEMBER"),
    read("STRLEN"),
    read("SUBSTR"),
    of_hash("TYPE"),
    read("XLEN"),
    read("XRANGE"),
    read("XREVRANGE"),
    read("ZCARD"),
    read("ZCOUNT"),
    read("ZLEXCOUNT"),
    read("ZMSCORE"),
    read("ZRANGE"),
    read("ZRANGEBYLEX"),
    read("ZRANGEBYSCORE"),
    read("ZRANK"),
    read("ZREVRANGE"),
    read("ZREVRANGEBYLEX"),
    read("ZREVRANGEBYSCORE"),
    read("ZREVRANK"),
    read("ZSCORE"),
];

/// Longer than any name.
const NAME_BYTES_MAX: usize = 24;

/// Where GET stands among them.
const GET_AT: usize = place_of_get();

const fn place_of_get() -> usize {
    let mut at = 0;
    while !matches!(READS[at].name.as_bytes(), b"GET") {
        at += 1;
    }
    at
}

impl ReadCommand {
    /// The command of this name, in any case.
    pub fn named(name: &[u8]) -> Option<&'static ReadCommand> {
        // Nearly all are GETs.
        if name.eq_ignore_ascii_case(b"GET") {
            return Some(&READS[GET_AT]);
        }
        let mut capitals = [0; NAME_BYTES_MAX];
        let capitals = capitals.get_mut(..name.len())?;
        capitals.copy_from_slice(name);
        capitals.make_ascii_uppercase();
        let at = READS.binary_search_by(|read| read.name.as_bytes().cmp(capitals)).ok()?;
        Some(&READS[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_found_in_any_case() {
        assert!(READS.is_sorted_by(|one, next| one.name < next.name));
        for read in &READS {
            assert!(read.name.len() <= NAME_BYTES_MAX);
            assert_eq!(ReadCommand::named(read.name.to_lowercase().as_bytes()), Some(read));
        }
        for other in
            ["", "TTL", "SRANDMEMBER", "PFCOUNT", "GETEX", "ZSCAN", "GETS", "A NAME LONGER THAN ANY IS"]
        {
            assert_eq!(ReadCommand::named(other.as_bytes()), None, "{other}");
        }
    }
}
