//! The server's user `default`: who clients are that give no user of their own, and by whose rights a server
//! judges what its append-only file holds.
//!
//! Invariant: a server is served only while this user has all rights, switched on or off. A server without the
//! mend of redis#14541 looks at rights again when it meets EXEC in its own file, and leaves out without a word
//! what `default` may not do: all that was written here is inside MULTI.

use super::health::Settings;
use crate::codec::{elements, is_error, text_of};

/// What ACL GETUSER says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DefaultUser {
    /// Clients have to say who they are.
    pub needs_password: bool,
    is_off: bool,
    has_all: bool,
}

impl DefaultUser {
    /// Reads the reply. A server that has no such command has no users either.
    pub fn of(reply: &[u8]) -> DefaultUser {
        if is_error(reply) {
            return DefaultUser { needs_password: false, is_off: false, has_all: true };
        }
        let parts: Vec<&[u8]> = elements(reply).collect();
        let value = |name: &[u8]| {
            let pair = parts.chunks_exact(2).find(|pair| text_of(pair[0]) == Some(name));
            pair.map(|pair| pair[1])
        };
        let has_flag = |flag: &[u8]| value(b"flags").is_some_and(|flags| is_any(flags, &[flag]));
        let has_all = value(b"commands").is_some_and(|rights| is_any(rights, &[b"+@all"]))
            && value(b"keys").is_some_and(|keys| is_any(keys, &[b"~*", b"*"]))
            && value(b"channels").is_none_or(|channels| is_any(channels, &[b"&*", b"*"]));
        let is_off = has_flag(b"off");
        DefaultUser { needs_password: !has_flag(b"nopass") || is_off, is_off, has_all }
    }

    /// Whether an error says that the server knows no such command, and not that it keeps what it knows to
    /// itself.
    pub fn is_unknown(reply: &[u8]) -> bool {
        reply.starts_with(b"-ERR unknown command") || reply.starts_with(b"-ERR Unknown subcommand")
    }

    /// Why what is written would not outlast a restart of the server, and what to do. Without an append-only
    /// file nothing is judged, and who is off is nobody.
    pub fn obstacle(self, settings: &Settings) -> Option<String> {
        let word = if self.is_off { "off " } else { "" };
        let matters = !self.is_off || settings.get("appendonly") == "yes";
        (!self.has_all && matters).then(|| {
            format!(
                "its user `default` has fewer rights than all, and by these, also where it is switched off, the server \
                 judges at its next restart what its append-only file has inside MULTI, which is whatever is written \
                 here: what they do not allow would be gone without a word (redis#14541); clients that give no user \
                 of their own would have more rights than it, besides; give it all, and switch it off where nobody is \
                 to use it: redis-cli ACL SETUSER default {word}+@all '~*' '&*', and where the server reads its users \
                 at its start, too (redis.conf, or ACL SAVE: user default off +@all ~* &*)"
            )
        })
    }
}

/// Whether a value is one of these words, or holds one.
fn is_any(value: &[u8], all: &[&[u8]]) -> bool {
    let is_one = |text: &[u8]| text_of(text).is_some_and(|text| all.contains(&text));
    is_one(value) || elements(value).any(is_one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::write_bulk;

    /// As a server up to 6.2 (`*` for all keys) and a newer one say it.
    fn reply(flags: &[&str], commands: &str, keys: &str) -> Vec<u8> {
        let mut reply = format!("*8\r\n$5\r\nflags\r\n*{}\r\n", flags.len()).into_bytes();
        for flag in flags {
            write_bulk(&mut reply, flag.as_bytes());
        }
        for text in ["commands", commands, "keys", keys, "channels", "&*"] {
            write_bulk(&mut reply, text.as_bytes());
        }
        reply
    }

    #[test]
    fn a_user_without_password_needs_none() {
        let needs = |flags: &[&str]| DefaultUser::of(&reply(flags, "+@all", "~*")).needs_password;
        assert!(!needs(&["on", "nopass"]));
        assert!(needs(&["on"]));
        assert!(needs(&["off", "nopass"]));
        assert!(!DefaultUser::of(b"-ERR unknown command\r\n").needs_password);
    }

    #[test]
    fn it_has_all_rights_whether_it_is_on_or_off() {
        let settings = |appendonly: &str| {
            let mut settings = Settings::default();
            settings.add(
                format!("*2\r\n$10\r\nappendonly\r\n${}\r\n{appendonly}\r\n", appendonly.len()).as_bytes(),
            );
            settings
        };
        let obstacle = |reply: &[u8]| DefaultUser::of(reply).obstacle(&settings("yes"));
        for (flag, commands, keys) in [
            ("on", "-@all +get", "~*"),
            ("on", "+@all", "~app:*"),
            ("off", "-@all", ""),
            ("off", "+@all", ""),
        ] {
            let said = obstacle(&reply(&[flag], commands, keys)).unwrap_or_default();
            let off = if flag == "off" { "off " } else { "" };
            assert!(said.contains(&format!("ACL SETUSER default {off}+@all '~*' '&*'")), "{said}");
        }
        assert_eq!(obstacle(&reply(&["on"], "+@all", "~*")), None);
        assert_eq!(obstacle(&reply(&["off"], "+@all", "*")), None);
        assert_eq!(obstacle(b"-ERR unknown command\r\n"), None);
        let without_file = |flag| DefaultUser::of(&reply(&[flag], "-@all", "")).obstacle(&settings("no"));
        assert!(without_file("off").is_none() && without_file("on").is_some());
    }

    #[test]
    fn who_may_not_ask_knows_nothing() {
        assert!(DefaultUser::is_unknown(b"-ERR unknown command 'ACL', with args beginning with\r\n"));
        assert!(!DefaultUser::is_unknown(b"-NOPERM this user has no permissions\r\n"));
    }
}
