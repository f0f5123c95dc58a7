//! The class table: what may be done with each form of each command.
//!
//! Invariant: a doubt is settled towards the safer class. A command is `early` only if its reply is the
//! same whatever the server holds and its arguments have been found valid; whatever is unknown is a
//! `bypass`, which the device never logs and the server answers only when the effect is stable.

mod again;
mod keys;
mod table;

pub use again::{keeps_in_value, read_again, ReadAgain};
pub use keys::{first_key, key_hash, keys, touches, written_keys, Touches};
pub use table::{arity_admits, lookup, rows, Flags, Row};

use crate::codec::{Args, Command};
use crate::expiry;
use std::fmt::{self, Write as _};

/// What may be done with a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// A write whose reply is known before the server has seen it.
    Early,
    /// A deterministic write: replayed in order, it gives the same reply and leaves the same state.
    Covered,
    /// A write that a replay could do differently: never logged, answered when stable.
    Bypass,
    /// Leaves nothing durable; running it again does no harm.
    Read,
    /// Changes or reports the state of the connection.
    Control,
    /// Blocks the connection or makes it a stream: goes around the protocol.
    Tunnel,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 6] =
        [Class::Early, Class::Covered, Class::Bypass, Class::Read, Class::Control, Class::Tunnel];

    /// The name in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Early => "early",
            Class::Covered => "covered",
            Class::Bypass => "bypass",
            Class::Read => "read",
            Class::Control => "control",
            Class::Tunnel => "tunnel",
        }
    }

    /// Whether the command may change what the server stores.
    pub const fn is_write(self) -> bool {
        matches!(self, Class::Early | Class::Covered | Class::Bypass)
    }

    fn from_name(name: &str) -> Option<Class> {
        Class::ALL.into_iter().find(|class| class.name() == name)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What the table says of one command with its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// What may be done with it outside a transaction.
    pub class: Class,
    /// What may be done with it inside one; none if it is refused there.
    pub in_transaction: Option<Class>,
    /// The reply that is known in advance, if there is one.
    pub fixed_reply: Option<&'static [u8]>,
    /// The row that applies; none for a command that the table does not know.
    pub row: Option<&'static Row>,
}

/// Finds the class of a command.
pub fn classify(args: Args<'_>) -> Verdict {
    let Some(row) = lookup(args) else {
        return Verdict {
            class: Class::Bypass,
            in_transaction: Some(Class::Bypass),
            fixed_reply: None,
            row: None,
        };
    };
    let doubtful = row.class.is_write() && !expiry::is_valid(args);
    let class = if doubtful || !row.admits(args.len()) { safest(row.class) } else { row.class };
    Verdict {
        class,
        in_transaction: row.in_transaction.map(|inside| if class == Class::Bypass { class } else { inside }),
        fixed_reply: row.fixed_reply.as_deref().filter(|_| class != Class::Bypass).map(str::as_bytes),
        row: Some(row),
    }
}

/// A command whose arguments are wrong goes to the server, whose error is the best answer.
fn safest(class: Class) -> Class {
    match class {
        Class::Early | Class::Covered | Class::Bypass => Class::Bypass,
        Class::Read | Class::Tunnel => Class::Read,
        Class::Control => Class::Control,
    }
}

/// The whole table as text, one line per form.
pub fn table_text() -> String {
    let mut text = format!("{:<26} {:<28} {:<8} {:<8} {}\n", "command", "form", "class", "in MULTI", "why");
    for row in rows() {
        let inside = row.in_transaction.map_or("refused", Class::name);
        let fixed = row.fixed_reply.as_deref().unwrap_or_default().trim_end();
        let why = if fixed.is_empty() { row.why.clone() } else { format!("[{fixed}] {}", row.why) };
        let line =
            format!("{:<26} {:<28} {:<8} {:<8} {why}", row.command, row.form.text(), row.class, inside);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// What the table says of one command line, and why.
pub fn explain(words: &[&str]) -> String {
    let command = Command::new(words);
    let args = command.args();
    let verdict = classify(args);
    let mut text = format!("{}: {}\n", words.join(" "), verdict.class);
    match verdict.row {
        None => text.push_str("  not in the table: goes to the server as a bypass request\n"),
        Some(row) => explain_row(&mut text, args, verdict, row),
    }
    text
}

fn explain_row(text: &mut String, args: Args<'_>, verdict: Verdict, row: &Row) {
    let _ = writeln!(text, "  row: {} ({})", row.command, row.form.text());
    if verdict.class != row.class {
        let _ = writeln!(text, "  the arguments are not valid, so the server answers the error");
    } else if !row.why.is_empty() {
        let _ = writeln!(text, "  why: {}", row.why);
    }
    if let Some(reply) = verdict.fixed_reply {
        let _ = writeln!(text, "  reply: {}", String::from_utf8_lossy(reply).trim_end());
    }
    let inside = match (verdict.in_transaction, verdict.class) {
        (Some(class), _) => class.name(),
        (None, Class::Tunnel) => "takes the whole transaction through a tunnel; refused behind WATCH",
        (None, _) => "refused",
    };
    let _ = writeln!(text, "  inside MULTI: {inside}");
    for key in keys(args) {
        let _ = writeln!(text, "  key: {}", String::from_utf8_lossy(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class_of(line: &str) -> Class {
        classify(Command::new(line.split(' ')).args()).class
    }

    #[test]
    fn a_plain_set_is_early_and_its_options_decide() {
        for line in ["SET k v", "set k v ex 10", "SET k v PXAT 99999999999999", "SETEX k 1 v", "psetex k 1 v"]
        {
            assert_eq!(class_of(line), Class::Early, "{line}");
        }
        for line in
            ["SET k v NX", "SET k v XX EX 5", "SET k v GET", "SET k v KEEPTTL", "SETNX k v", "MSET a 1"]
        {
            assert_eq!(class_of(line), Class::Covered, "{line}");
        }
        assert_eq!(class_of("SET NX GET"), Class::Early, "a key and a value are no options");
    }

    #[test]
    fn an_early_command_with_wrong_arguments_is_answered_by_the_server() {
        let lines = [
            "SET k",
            "SET k v EX",
            "SET k v EX 0",
            "SET k v EX -1",
            "SET k v PX x",
            "SET k v EX 1 PX 1",
            "SET k v FOO",
            "SET k v EX 9223372036854775807",
            "SETEX k 0 v",
            "SETEX k 1",
            "SETEX k 01 v",
            "PSETEX k 9223372036854775807 v",
        ];
        for line in lines {
            let verdict = classify(Command::new(line.split(' ')).args());
            assert_eq!((verdict.class, verdict.fixed_reply), (Class::Bypass, None), "{line}");
        }
    }

    #[test]
    fn what_a_replay_could_do_differently_is_a_bypass() {
        let lines = [
            "SPOP s",
            "XADD s * f v",
            "XADD s MAXLEN ~ 10 1-1 f v",
            "XADD s 5-* f v",
            "XTRIM s MAXLEN ~ 5",
            "EVAL x 0",
            "FCALL f 0",
            "SORT l STORE d",
            "PUBLISH c m",
            "NOSUCHCOMMAND a",
            "GEOSEARCHSTORE d s FROMLONLAT 1 1 BYRADIUS 1 km COUNT 1 ANY",
            "XREADGROUP GROUP g c STREAMS s >",
        ];
        for line in lines {
            assert_eq!(class_of(line), Class::Bypass, "{line}");
        }
        for line in
            ["XADD s 1-1 f *", "XADD s NOMKSTREAM MAXLEN = 5 1-1 f ~", "XTRIM s MAXLEN 5", "ZPOPMIN z"]
        {
            assert_eq!(class_of(line), Class::Covered, "{line}");
        }
    }

    #[test]
    fn only_blocking_streaming_and_replication_commands_tunnel() {
        for row in rows().iter().filter(|row| row.class == Class::Tunnel) {
            let streaming = ["SUBSCRIBE", "MONITOR", "SYNC", "REPLCONF", "CLIENT TRACKING", "CLIENT CACHING"]
                .iter()
                .any(|word| row.command.contains(word));
            let blocking = row.flags.has(Flags::BLOCKING) || row.command == "PSYNC";
            assert!(streaming || blocking, "{}", row.command);
        }
        for (line, class) in [
            ("BLPOP l 0", Class::Tunnel),
            ("XREAD BLOCK 5 STREAMS s 0", Class::Tunnel),
            ("XREAD STREAMS BLOCK 0", Class::Read),
            ("XREAD COUNT 1 STREAMS s 0", Class::Read),
            ("UNSUBSCRIBE", Class::Tunnel),
        ] {
            assert_eq!(class_of(line), class, "{line}");
        }
    }

    #[test]
    fn reads_with_a_store_option_are_writes() {
        assert_eq!(class_of("GEORADIUS g 1 1 1 km"), Class::Read);
        assert_eq!(class_of("GEORADIUS g 1 1 1 km STOREDIST d"), Class::Covered);
        assert_eq!(class_of("GEORADIUS g 1 1 1 km COUNT 1 ANY STORE d"), Class::Bypass);
        assert_eq!(class_of("SORT l"), Class::Read);
    }

    #[test]
    fn subcommands_have_their_own_rows() {
        assert_eq!(class_of("CONFIG GET maxmemory"), Class::Read);
        assert_eq!(class_of("config set maxmemory 0"), Class::Bypass);
        assert_eq!(class_of("CLIENT ID"), Class::Control);
        assert_eq!(class_of("CLIENT NOSUCH"), Class::Read);
    }

    #[test]
    fn blocking_commands_do_not_block_inside_a_transaction() {
        let blpop = classify(Command::new(["BLPOP", "l", "0"]).args());
        assert_eq!(blpop.in_transaction, Some(Class::Covered));
        assert_eq!(classify(Command::new(["MONITOR"]).args()).in_transaction, None);
    }

    #[test]
    fn an_explanation_names_row_reply_and_key() {
        let text = explain(&["SET", "k", "v"]);
        assert!(text.starts_with("SET k v: early\n"), "{text}");
        assert!(text.contains("reply: +OK") && text.contains("key: k"), "{text}");
        assert!(explain(&["SETEX", "k", "0", "v"]).contains("not valid"));
        assert!(table_text().lines().count() > 400);
    }
}
