//! Times to live, made absolute before they are logged.
//!
//! Invariant: what is logged means the same whenever it is replayed; a command whose expiry Redis would
//! refuse is left as it is, so that the server answers the error.

use crate::classes::{classify, Class};
use crate::codec::{parse_integer, Args, Command};

/// What became of a command's time to live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expiry {
    /// There is none, or it is absolute already.
    Unchanged,
    /// The same command with an absolute one.
    Absolute(Command),
    /// Redis would refuse it.
    Invalid,
}

/// Makes a relative time to live absolute; `now_ms` is the server's Unix time in milliseconds.
pub fn make_absolute(args: Args<'_>, now_ms: i64) -> Expiry {
    match Rule::of(args.get(0)) {
        None => Expiry::Unchanged,
        Some(Rule::Set) => options(args, 3, now_ms, &["NX", "XX", "GET", "KEEPTTL"]),
        Some(Rule::GetEx) => options(args, 2, now_ms, &["PERSIST"]),
        Some(Rule::SetEx(unit)) => set_with_expiry(args, unit, now_ms),
        Some(Rule::Renamed(name, unit)) => renamed(args, name, unit, now_ms),
        Some(Rule::Restore) => restore(args, now_ms),
    }
}

/// Whether Redis would accept a command's time to live; true for commands that take none.
pub fn is_valid(args: Args<'_>) -> bool {
    // Any plausible time will do: a margin of a century is kept below the largest one.
    const SOME_TIME_MS: i64 = 5_000_000_000_000;
    make_absolute(args, SOME_TIME_MS) != Expiry::Invalid
}

/// Whether a command may give a key a time to live.
pub fn may_set(args: Args<'_>) -> bool {
    const SCRIPTS: [&str; 5] = ["EVAL", "EVALSHA", "FCALL", "MIGRATE", "RESTORE-ASKING"];
    const DEADLINES: [&str; 4] = ["EXPIREAT", "PEXPIREAT", "HEXPIREAT", "HPEXPIREAT"];
    let is = |word: &&str| args.is(0, word);
    match Rule::of(args.get(0)) {
        Some(Rule::Set) => args.len() > 4,
        Some(Rule::GetEx) => args.len() > 2,
        Some(Rule::Restore) => args.get(2) != b"0",
        Some(Rule::SetEx(_) | Rule::Renamed(..)) => true,
        None => SCRIPTS.iter().any(is) || DEADLINES.iter().any(is),
    }
}

/// Whether what a deterministic write does depends on whether a key has expired. If it does, a replay
/// after the key's time would do something else: count from zero, or keep what should be gone.
pub fn is_dependent(args: Args<'_>) -> bool {
    const OVERWRITES: [&str; 7] = ["DEL", "UNLINK", "GETDEL", "MSET", "FLUSHALL", "FLUSHDB", "SWAPDB"];
    let verdict = classify(args);
    let class = verdict.in_transaction.unwrap_or(verdict.class);
    let is_set = matches!(verdict.class, Class::Early);
    class == Class::Covered && !is_set && !OVERWRITES.iter().any(|word| args.is(0, word))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Seconds,
    Milliseconds,
}

/// How a command takes its time to live.
#[derive(Clone, Copy)]
enum Rule {
    Set,
    GetEx,
    SetEx(Unit),
    Renamed(&'static str, Unit),
    Restore,
}

impl Rule {
    const ALL: [(&'static str, Rule); 9] = [
        ("SET", Rule::Set),
        ("GETEX", Rule::GetEx),
        ("SETEX", Rule::SetEx(Unit::Seconds)),
        ("PSETEX", Rule::SetEx(Unit::Milliseconds)),
        ("EXPIRE", Rule::Renamed("PEXPIREAT", Unit::Seconds)),
        ("PEXPIRE", Rule::Renamed("PEXPIREAT", Unit::Milliseconds)),
        ("HEXPIRE", Rule::Renamed("HPEXPIREAT", Unit::Seconds)),
        ("HPEXPIRE", Rule::Renamed("HPEXPIREAT", Unit::Milliseconds)),
        ("RESTORE", Rule::Restore),
    ];

    fn of(name: &[u8]) -> Option<Rule> {
        Self::ALL.iter().find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes())).map(|(_, rule)| *rule)
    }
}

/// Options that stand alone are `words`; an expiry and one of KEEPTTL and PERSIST exclude each other.
fn options(args: Args<'_>, first: usize, now_ms: i64, words: &[&str]) -> Expiry {
    if args.len() < first {
        return Expiry::Invalid;
    }
    let mut found: Option<(usize, i64, bool)> = None;
    let mut lasting = 0;
    let mut at = first;
    while at < args.len() {
        if words.iter().any(|word| args.is(at, word)) {
            lasting += usize::from(args.is(at, "KEEPTTL") || args.is(at, "PERSIST"));
            at += 1;
            continue;
        }
        let Some(deadline) = deadline(args, at, now_ms) else { return Expiry::Invalid };
        if found.replace((at, deadline.0, deadline.1)).is_some() {
            return Expiry::Invalid;
        }
        at += 2;
    }
    let both = words.contains(&"NX") && has(args, first, "NX") && has(args, first, "XX");
    match found {
        Some(_) if lasting > 0 => Expiry::Invalid,
        _ if both || lasting > 1 => Expiry::Invalid,
        Some((at, deadline_ms, true)) => replace_option(args, at, deadline_ms),
        Some(_) | None => Expiry::Unchanged,
    }
}

fn has(args: Args<'_>, first: usize, word: &str) -> bool {
    (first..args.len()).any(|index| args.is(index, word))
}

/// The expiry option at `at`: its deadline, and whether it was relative.
fn deadline(args: Args<'_>, at: usize, now_ms: i64) -> Option<(i64, bool)> {
    let (unit, relative) = [
        ("EX", Unit::Seconds, true),
        ("PX", Unit::Milliseconds, true),
        ("EXAT", Unit::Seconds, false),
        ("PXAT", Unit::Milliseconds, false),
    ]
    .iter()
    .find(|(word, _, _)| args.is(at, word))
    .map(|(_, unit, relative)| (*unit, *relative))?;
    let value = parse_integer(args.get(at + 1)).filter(|value| *value > 0)?;
    let value_ms = in_milliseconds(value, unit)?;
    let deadline_ms = if relative { value_ms.checked_add(now_ms)? } else { value_ms };
    Some((deadline_ms, relative))
}

fn in_milliseconds(value: i64, unit: Unit) -> Option<i64> {
    match unit {
        Unit::Seconds => value.checked_mul(1_000),
        Unit::Milliseconds => Some(value),
    }
}

fn replace_option(args: Args<'_>, at: usize, deadline_ms: i64) -> Expiry {
    let mut command = Command::default();
    for (index, argument) in args.iter().enumerate() {
        if index == at {
            command.push(b"PXAT");
        } else if index == at + 1 {
            command.push(deadline_ms.to_string().as_bytes());
        } else {
            command.push(argument);
        }
    }
    Expiry::Absolute(command)
}

/// SETEX key time value becomes SET key value PXAT deadline.
fn set_with_expiry(args: Args<'_>, unit: Unit, now_ms: i64) -> Expiry {
    let time = parse_integer(args.get(2)).filter(|time| *time > 0 && args.len() == 4);
    let Some(deadline_ms) = time.and_then(|time| in_milliseconds(time, unit)?.checked_add(now_ms)) else {
        return Expiry::Invalid;
    };
    let deadline = deadline_ms.to_string();
    Expiry::Absolute(Command::new([b"SET", args.get(1), args.get(3), b"PXAT", deadline.as_bytes()]))
}

/// EXPIRE key time … becomes PEXPIREAT key deadline …; a time in the past deletes, so it is allowed.
fn renamed(args: Args<'_>, name: &str, unit: Unit, now_ms: i64) -> Expiry {
    let time = parse_integer(args.get(2)).filter(|_| args.len() >= 3);
    let Some(deadline_ms) = time.and_then(|time| in_milliseconds(time, unit)?.checked_add(now_ms)) else {
        return Expiry::Invalid;
    };
    let mut command = Command::new([name.as_bytes(), args.get(1), deadline_ms.to_string().as_bytes()]);
    args.iter().skip(3).for_each(|argument| command.push(argument));
    Expiry::Absolute(command)
}

/// RESTORE key ttl value … gets ABSTTL unless it has it or the ttl is 0, which means none.
fn restore(args: Args<'_>, now_ms: i64) -> Expiry {
    let Some(ttl_ms) = parse_integer(args.get(2)).filter(|ttl_ms| *ttl_ms >= 0 && args.len() >= 4) else {
        return Expiry::Invalid;
    };
    if ttl_ms == 0 || has(args, 4, "ABSTTL") {
        return Expiry::Unchanged;
    }
    let Some(deadline_ms) = ttl_ms.checked_add(now_ms) else { return Expiry::Invalid };
    let mut command = Command::new([args.get(0), args.get(1), deadline_ms.to_string().as_bytes()]);
    args.iter().skip(3).for_each(|argument| command.push(argument));
    command.push(b"ABSTTL");
    Expiry::Absolute(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 1_700_000_000_000;

    fn absolute(line: &str) -> String {
        let command = Command::new(line.split(' '));
        match make_absolute(command.args(), NOW_MS) {
            Expiry::Unchanged => line.to_owned(),
            Expiry::Invalid => "invalid".to_owned(),
            Expiry::Absolute(command) => {
                let words: Vec<_> = command.args().iter().map(String::from_utf8_lossy).collect();
                words.join(" ")
            }
        }
    }

    #[test]
    fn relative_times_become_absolute() {
        let cases = [
            ("SET k v", "SET k v"),
            ("set k v ex 10 nx", "set k v PXAT 1700000010000 nx"),
            ("SET k v GET PX 5", "SET k v GET PXAT 1700000000005"),
            ("SET k v EXAT 99", "SET k v EXAT 99"),
            ("SETEX k 2 v", "SET k v PXAT 1700000002000"),
            ("PSETEX k 2 v", "SET k v PXAT 1700000000002"),
            ("EXPIRE k 1 GT", "PEXPIREAT k 1700000001000 GT"),
            ("EXPIRE k -1", "PEXPIREAT k 1699999999000"),
            ("PEXPIRE k 7", "PEXPIREAT k 1700000000007"),
            ("GETEX k EX 1", "GETEX k PXAT 1700000001000"),
            ("GETEX k PERSIST", "GETEX k PERSIST"),
            ("GETEX k", "GETEX k"),
            ("HEXPIRE k 1 FIELDS 1 f", "HPEXPIREAT k 1700000001000 FIELDS 1 f"),
            ("RESTORE k 5 x REPLACE", "RESTORE k 1700000000005 x REPLACE ABSTTL"),
            ("RESTORE k 5 x ABSTTL", "RESTORE k 5 x ABSTTL"),
            ("RESTORE k 0 x", "RESTORE k 0 x"),
            ("EXPIREAT k 5", "EXPIREAT k 5"),
        ];
        for (line, expected) in cases {
            assert_eq!(absolute(line), expected);
        }
    }

    #[test]
    fn what_an_expiry_can_change_is_known() {
        let is = |test: fn(Args<'_>) -> bool, line: &str| test(Command::new(line.split(' ')).args());
        for line in
            ["INCR k", "SET k v NX", "SET k v KEEPTTL", "PEXPIREAT k 5", "RPUSH l a", "SUNIONSTORE d a"]
        {
            assert!(is(is_dependent, line), "{line}");
        }
        for line in ["SET k v", "SETEX k 5 v", "SET k v PXAT 5", "DEL k", "MSET a 1", "GET k", "SPOP s"] {
            assert!(!is(is_dependent, line), "{line}");
        }
        for line in
            ["SET k v PXAT 5", "SETEX k 5 v", "EXPIREAT k 5", "GETEX k PXAT 5", "RESTORE k 5 x", "EVAL x 0"]
        {
            assert!(is(may_set, line), "{line}");
        }
        for line in ["SET k v", "SET k v NX", "GETEX k", "RESTORE k 0 x", "INCR k", "PERSIST k"] {
            assert!(!is(may_set, line), "{line}");
        }
    }

    #[test]
    fn what_redis_would_refuse_is_left_to_it() {
        let lines = [
            "SET k v EX 0",
            "SET k v EX 10 EX 10",
            "SET k v KEEPTTL PX 1",
            "SET k v NX XX",
            "SET k v PX 9223372036854775807",
            "SET k v EXAT 9223372036854775807",
            "SETEX k 1",
            "SETEX k 1 v x",
            "EXPIRE k",
            "EXPIRE k x",
            "EXPIRE k 9223372036854775807",
            "PEXPIRE k 9223372036854775807",
            "GETEX k EX 0",
            "GETEX k PERSIST EX 1",
            "RESTORE k -1 x",
        ];
        for line in lines {
            assert_eq!(absolute(line), "invalid", "{line}");
        }
    }
}
