//! What clients must not do, since the promise of "exactly once" rests on it.
//!
//! Invariant: no client's command reads or writes the reserved database, and none makes the server a replica. Who
//! meets clients asks here to answer soon, who stands before the server to be sure.

use crate::classes::{classify, keeps_in_value};
use crate::codec::{parse_integer, Args};

/// Why a command is refused, as the text of the error reply; none if it may pass.
pub fn refusal(args: Args<'_>, reserved_db: u16) -> Option<String> {
    let touches = |index: usize| parse_integer(args.get(index)) == Some(i64::from(reserved_db));
    let name = args.get(0);
    let is = |word: &str| name.eq_ignore_ascii_case(word.as_bytes());
    if is("SELECT") && touches(1)
        || is("SWAPDB") && (touches(1) || touches(2))
        || is("MOVE") && touches(2)
        || is("COPY") && (3..args.len()).any(|index| args.is(index, "DB") && touches(index + 1))
    {
        return Some(reserved(reserved_db));
    }
    let ends = is("REPLICAOF") || is("SLAVEOF");
    if ends && !(args.is(1, "NO") && args.is(2, "ONE")) || is("FAILOVER") && !args.is(1, "ABORT") {
        return Some(NO_REPLICA.to_owned());
    }
    if is("CONFIG") && args.is(1, "SET") {
        return setting(args);
    }
    if is("ACL")
        && args.is(1, "SETUSER")
        && args.get(2) == b"default"
        && (3..args.len()).any(|rule| takes(args.get(rule)))
    {
        return Some(NO_RIGHT_LESS.to_owned());
    }
    if is("DEBUG") && args.is(1, "FLUSHALL") {
        return Some("ERR scotfree: DEBUG FLUSHALL would delete the markers; use FLUSHALL".to_owned());
    }
    let script = if is("EVAL") || is("EVAL_RO") {
        args.get(1)
    } else if is("SCRIPT") && args.is(1, "LOAD") || is("FUNCTION") && args.is(1, "LOAD") {
        args.get(args.len() - 1)
    } else {
        &[]
    };
    if script.is_empty() {
        return None;
    }
    ["select", "swapdb", "flushall"].into_iter().find(|word| calls(script, word)).map(|word| {
        format!("ERR scotfree: scripts may not call {word}, which could reach the markers in database {reserved_db}")
    })
}

/// Whether a command deletes every database, the reserved one too. It may only in a transaction that writes the
/// markers anew.
pub fn flushes_all(args: Args<'_>) -> bool {
    let is_valid = args.len() == 1 || args.len() == 2 && (args.is(1, "ASYNC") || args.is(1, "SYNC"));
    args.is(0, "FLUSHALL") && is_valid
}

/// As [`refusal`], for what goes past the markers: a client's own connection to the server.
pub fn refusal_aside(args: Args<'_>, reserved_db: u16) -> Option<String> {
    refusal(args, reserved_db).or_else(|| flushes_all(args).then(|| NO_FLUSH.to_owned()))
}

/// Why a command is refused aside where a device before the server answers reads: what is written past it, it does not
/// see. Commands that block change nothing that a device answers.
pub fn refusal_unseen(args: Args<'_>) -> Option<String> {
    const NO_DATA: [&str; 3] = ["PUBLISH", "SPUBLISH", "SCRIPT"];
    let may_write = classify(args).class.is_write() || keeps_in_value(args);
    let writes = may_write && !NO_DATA.iter().any(|word| args.is(0, word));
    writes.then(|| {
        format!(
            "ERR scotfree: {} may write, and a device answers this server's values from its memory (cache_device), which \
             this connection goes past while it listens or tracks: send it on another connection",
            String::from_utf8_lossy(args.get(0)).to_uppercase()
        )
    })
}

/// Inside MULTI it cannot be taken out of its place.
pub const NO_FLUSH: &str =
    "ERR scotfree: FLUSHALL would delete the markers that make requests run exactly once, here where commands go past \
     them: send it outside MULTI, or on a connection that neither listens nor tracks";

/// A replica takes no write, not even the one that would make it a master again.
const NO_REPLICA: &str =
    "ERR scotfree: as a replica this server would lose its data and take no write, and that could not be undone from \
     here; run it at the server itself, and restart what stands before it with the new master's address";

/// A Redis whose user `default` has fewer rights leaves out of its append-only file at a restart what was written inside
/// MULTI, and writes are refused while it is so: this one too, which would give the right back.
const NO_RIGHT_LESS: &str =
    "ERR scotfree: the user default needs all its rights, or what is written is gone after a restart; it may be switched \
     off, and others may have fewer";

/// Whether a rule of ACL SETUSER may take a right away, other than to authenticate oneself.
fn takes(rule: &[u8]) -> bool {
    const WORDS: [&str; 5] = ["reset", "resetkeys", "resetchannels", "nocommands", "clearselectors"];
    rule.starts_with(b"-") || WORDS.iter().any(|word| rule.eq_ignore_ascii_case(word.as_bytes()))
}

/// The text of the refusal to enter the reserved database.
pub fn reserved(reserved_db: u16) -> String {
    format!(
        "ERR scotfree: database {reserved_db} holds the markers that make requests run exactly once; \
         use another, or give the proxy or the server's sidecar another one (--marker-db)"
    )
}

fn setting(args: Args<'_>) -> Option<String> {
    let settings = || (2..args.len().saturating_sub(1)).step_by(2);
    let evicts = |index: usize| args.is(index, "maxmemory-policy") && !args.is(index + 1, "noeviction");
    let forgets = |index: usize| args.is(index, "appendonly") && args.is(index + 1, "no");
    if settings().any(evicts) {
        let text = "ERR scotfree: maxmemory-policy has to stay noeviction, or the markers could be evicted";
        return Some(text.to_owned());
    }
    if settings().any(forgets) {
        let text =
            "ERR scotfree: without append-only files no write would last; appendonly can be set to no at the server itself";
        return Some(text.to_owned());
    }
    settings().any(|index| args.is(index, "dir")).then(|| {
        "ERR scotfree: elsewhere the append-only files could not be found, in which scot sees what is on the disk, nor by \
         the server at its next start; put dir into its conf, and restart it with its files there"
            .to_owned()
    })
}

/// Whether a script names a command as a string of its own.
fn calls(script: &[u8], command: &str) -> bool {
    let length = command.len() + 2;
    script.windows(length).any(|window| {
        let quotes = matches!((window[0], window[length - 1]), (b'\'', b'\'') | (b'"', b'"'));
        quotes && window[1..length - 1].eq_ignore_ascii_case(command.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Command;

    fn is_refused(words: &[&str]) -> bool {
        refusal(Command::new(words).args(), 15).is_some()
    }

    #[test]
    fn every_way_into_the_reserved_database_is_closed() {
        for line in ["SELECT 15", "swapdb 15 0", "SWAPDB 0 15", "MOVE k 15", "COPY a b REPLACE DB 15"] {
            assert!(is_refused(&line.split(' ').collect::<Vec<_>>()), "{line}");
        }
        for line in
            ["SELECT 14", "SWAPDB 0 1", "MOVE k 1", "COPY a b DB 1", "COPY DB 15", "SET 15 15", "SELECT"]
        {
            assert!(!is_refused(&line.split(' ').collect::<Vec<_>>()), "{line}");
        }
    }

    #[test]
    fn past_the_markers_nothing_deletes_them() {
        let is_refused = |line: &str| refusal_aside(Command::new(line.split(' ')).args(), 15).is_some();
        for line in ["FLUSHALL", "flushall async", "FLUSHALL SYNC", "SELECT 15", "SWAPDB 0 15"] {
            assert!(is_refused(line), "{line}");
        }
        for line in ["FLUSHDB", "FLUSHALL NOW", "FLUSHALL SYNC SYNC", "SWAPDB 0 1"] {
            assert!(!is_refused(line), "{line}");
        }
    }

    #[test]
    fn the_server_stays_a_master() {
        for line in
            ["REPLICAOF 127.0.0.1 6379", "slaveof h 1", "REPLICAOF NO WAY", "FAILOVER", "FAILOVER TO h 1"]
        {
            assert!(is_refused(&line.split(' ').collect::<Vec<_>>()), "{line}");
        }
        for line in ["REPLICAOF NO ONE", "slaveof no one", "FAILOVER ABORT", "ROLE"] {
            assert!(!is_refused(&line.split(' ').collect::<Vec<_>>()), "{line}");
        }
    }

    #[test]
    fn the_servers_files_stay_where_they_are() {
        assert!(is_refused(&["CONFIG", "SET", "hz", "12", "DIR", "/elsewhere"]));
        assert!(!is_refused(&["CONFIG", "SET", "dir"]));
        assert!(!is_refused(&["CONFIG", "GET", "dir"]));
    }

    #[test]
    fn the_default_user_keeps_its_rights() {
        for rules in [&["-get"][..], &["on", "reset"], &["RESETKEYS"], &["-@all", "+get"], &["nocommands"]] {
            assert!(is_refused(&[&["ACL", "SETUSER", "default"], rules].concat()), "{rules:?}");
            assert!(!is_refused(&[&["ACL", "SETUSER", "other"], rules].concat()), "{rules:?}");
        }
        for rules in [&["off"][..], &["on", "nopass", "+@all", "~*"], &[">-secret", "resetpass"], &[]] {
            assert!(!is_refused(&[&["ACL", "SETUSER", "default"], rules].concat()), "{rules:?}");
        }
    }

    #[test]
    fn scripts_must_not_leave_their_database() {
        assert!(is_refused(&["EVAL", "redis.call('SELECT', 15)", "0"]));
        assert!(is_refused(&["EVAL", "redis.call(\"flushall\")", "0"]));
        assert!(is_refused(&["SCRIPT", "LOAD", "redis.pcall('swapdb',0,15)"]));
        assert!(is_refused(&["FUNCTION", "LOAD", "REPLACE", "redis.call('select', 15)"]));
        assert!(!is_refused(&[
            "EVAL",
            "-- select what is best\nreturn redis.call('get', KEYS[1])",
            "1",
            "k"
        ]));
        assert!(!is_refused(&["SCRIPT", "FLUSH"]));
    }

    #[test]
    fn the_markers_cannot_be_made_evictable() {
        assert!(is_refused(&["CONFIG", "SET", "maxmemory", "1mb", "maxmemory-policy", "allkeys-lru"]));
        assert!(!is_refused(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]));
        assert!(!is_refused(&["CONFIG", "SET", "maxmemory-policy"]));
        assert!(is_refused(&["config", "set", "maxmemory", "1mb", "appendonly", "NO"]));
        assert!(!is_refused(&["CONFIG", "SET", "appendonly", "yes"]));
        assert!(!is_refused(&["CONFIG", "SET", "appendonly"]));
        assert!(is_refused(&["DEBUG", "FLUSHALL"]));
    }
}
