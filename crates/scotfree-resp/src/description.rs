//! What a client's sidecar has to know of the server, told once when it connects.
//!
//! Invariant: arity and existence of commands are the server's own word; the class table never overrides
//! them.

use crate::classes::{rows, Flags};
use crate::codec::Args;
use crate::names::NameTable;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::OnceLock;

/// The most commands that are kept; further ones are unknown, and so bypass requests.
const COMMANDS_MAX: usize = 4_096;

/// What the server says of one of its commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommandInfo {
    /// How many arguments with the name; at least as many if negative.
    pub arity: i32,
    /// Its properties.
    pub flags: Flags,
}

/// What a client's sidecar knows of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // Independent facts, no states of one machine.
pub struct Description {
    /// The server's Unix time in milliseconds at the moment of telling.
    pub time_ms: i64,
    /// The server's version.
    pub version: String,
    /// How many databases it has.
    pub databases: u16,
    /// The one that holds the markers and is closed to clients.
    pub reserved_db: u16,
    /// Whether a client has to authenticate itself.
    pub auth_required: bool,
    /// Whether early answers are allowed at present.
    pub early_allowed: bool,
    /// How many devices stand before it, if it says so. Without any, nothing is more durable than the server
    /// alone makes it.
    pub devices: Option<u32>,
    /// Why no writes are to be asked for at present.
    pub writes_refused: Option<String>,
    /// Whether it takes several commands in one request; see [`crate::payload::pack`].
    pub packs: bool,
    /// Whether it can be asked whether the server would queue a command; see [`crate::payload::RequestFlags::ASK`].
    pub asks: bool,
    /// Whether a device before it may answer reads again, so that clients are to say which keys their writes touch and
    /// to ask for notes; see [`crate::payload::RequestFlags::NOTED`].
    pub cached: bool,
    /// The user whose rights clients have that give none of their own; empty if that is the default user.
    pub own_user: String,
    /// Its commands, in lower case, subcommands as "config|get". They change only before anything is asked of them.
    pub commands: BTreeMap<Vec<u8>, CommandInfo>,
    /// The same, to be found sooner; made when something is asked first.
    pub found: Found,
}

/// What [`Description::command`] looks things up in. All are equal: they say what `commands` says.
#[derive(Default)]
pub struct Found(OnceLock<NameTable<(CommandInfo, bool)>>);

impl Clone for Found {
    fn clone(&self) -> Found {
        Found::default()
    }
}

impl PartialEq for Found {
    fn eq(&self, _other: &Found) -> bool {
        true
    }
}

impl Eq for Found {}

impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Found")
    }
}

/// What nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// The command.
    Command,
    /// Its subcommand.
    Subcommand,
}

/// Room for a command's name in lower case.
pub struct NameBuffer([u8; 64]);

impl Default for NameBuffer {
    fn default() -> Self {
        NameBuffer([0; 64])
    }
}

impl NameBuffer {
    /// Writes a part in lower case; where it ends, if there is room.
    fn write(&mut self, at: usize, part: &[u8]) -> Option<usize> {
        let room = self.0.get_mut(at..at + part.len())?;
        room.iter_mut().zip(part).for_each(|(to, from)| *to = from.to_ascii_lowercase());
        Some(at + part.len())
    }
}

/// Why a description is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DescriptionError {
    /// It does not begin as a description does.
    #[error("the server's sidecar sent no description of version 1")]
    Version,
    /// A line cannot be read.
    #[error("the server's description has a broken line: {0}")]
    Line(String),
}

impl Default for Description {
    fn default() -> Self {
        Description {
            time_ms: 0,
            version: String::new(),
            databases: 16,
            reserved_db: 15,
            auth_required: false,
            early_allowed: true,
            devices: None,
            writes_refused: None,
            packs: false,
            asks: false,
            cached: false,
            own_user: String::new(),
            commands: BTreeMap::new(),
            found: Found::default(),
        }
    }
}

impl Description {
    /// The description of a server that has every command of the class table.
    pub fn of_table() -> Description {
        let commands = rows().iter().map(|row| {
            let name = row.command.to_ascii_lowercase().replace(' ', "|").into_bytes();
            (name, CommandInfo { arity: row.arity, flags: row.flags })
        });
        Description { commands: commands.collect(), ..Description::default() }
    }

    /// What the server says of a command; `name` in lower case.
    pub fn command(&self, name: &[u8]) -> Option<CommandInfo> {
        self.find(name).map(|(info, _)| info)
    }

    /// What the server says of a command in any case, with its subcommand if it has some: under which name, and
    /// what. An error says of which of the two it knows nothing.
    pub fn command_of<'a>(
        &self,
        args: Args<'_>,
        name: &'a mut NameBuffer,
    ) -> Result<(&'a [u8], CommandInfo), Unknown> {
        let length = name.write(0, args.get(0)).ok_or(Unknown::Command)?;
        let (info, has_subcommands) = self.find(&name.0[..length]).ok_or(Unknown::Command)?;
        if args.len() == 1 || !has_subcommands {
            return Ok((&name.0[..length], info));
        }
        let bar = name.write(length, b"|").ok_or(Unknown::Subcommand)?;
        let length = name.write(bar, args.get(1)).ok_or(Unknown::Subcommand)?;
        let info = self.command(&name.0[..length]).ok_or(Unknown::Subcommand)?;
        Ok((&name.0[..length], info))
    }

    fn find(&self, name: &[u8]) -> Option<(CommandInfo, bool)> {
        let table = self.found.0.get_or_init(|| {
            let commands = self.commands.iter();
            NameTable::of(commands.map(|(name, info)| (name.as_slice(), (*info, self.has_help(name)))))
        });
        table.get(name)
    }

    /// Whether a command has subcommands.
    pub fn is_container(&self, name: &[u8]) -> bool {
        self.find(name).is_some_and(|(_, has_subcommands)| has_subcommands)
    }

    fn has_help(&self, name: &[u8]) -> bool {
        // Containers are few, and every one has HELP.
        self.commands.contains_key([name, b"|help"].concat().as_slice())
    }

    /// As text, one fact a line.
    pub fn to_text(&self) -> String {
        let mut text = String::from("scotfree 1\n");
        let _ = writeln!(text, "time_ms {}", self.time_ms);
        let _ = writeln!(text, "version {}", self.version);
        let _ = writeln!(text, "databases {}", self.databases);
        let _ = writeln!(text, "reserved_db {}", self.reserved_db);
        let _ = writeln!(text, "auth_required {}", u8::from(self.auth_required));
        let _ = writeln!(text, "early_allowed {}", u8::from(self.early_allowed));
        if let Some(devices) = self.devices {
            let _ = writeln!(text, "devices {devices}");
        }
        if let Some(reason) = &self.writes_refused {
            let _ = writeln!(text, "writes_refused {}", reason.replace(['\r', '\n'], " "));
        }
        let _ = writeln!(text, "packs {}", u8::from(self.packs));
        let _ = writeln!(text, "asks {}", u8::from(self.asks));
        if self.cached {
            let _ = writeln!(text, "cached 1");
        }
        if !self.own_user.is_empty() {
            let _ = writeln!(text, "own_user {}", self.own_user);
        }
        for (name, info) in &self.commands {
            let flags: Vec<&str> = info.flags.names().collect();
            let name = String::from_utf8_lossy(name);
            let _ = writeln!(text, "command {name} {} {}", info.arity, flags.join("|"));
        }
        text
    }

    /// Reads the text.
    pub fn parse(text: &str) -> Result<Description, DescriptionError> {
        let mut lines = text.lines();
        if lines.next() != Some("scotfree 1") {
            return Err(DescriptionError::Version);
        }
        let mut description = Description::default();
        for line in lines {
            description
                .read_line(line)
                .ok_or_else(|| DescriptionError::Line(line.chars().take(80).collect()))?;
        }
        Ok(description)
    }

    fn read_line(&mut self, line: &str) -> Option<()> {
        let (word, rest) = line.split_once(' ')?;
        match word {
            "time_ms" => self.time_ms = rest.parse().ok()?,
            "version" => rest.clone_into(&mut self.version),
            "databases" => self.databases = rest.parse().ok()?,
            "reserved_db" => self.reserved_db = rest.parse().ok()?,
            "auth_required" => self.auth_required = rest == "1",
            "early_allowed" => self.early_allowed = rest == "1",
            "packs" => self.packs = rest == "1",
            "asks" => self.asks = rest == "1",
            "cached" => self.cached = rest == "1",
            "own_user" => rest.clone_into(&mut self.own_user),
            "writes_refused" => self.writes_refused = Some(rest.to_owned()),
            "devices" => self.devices = Some(rest.parse().ok()?),
            "command" if self.commands.len() < COMMANDS_MAX => {
                let mut parts = rest.splitn(3, ' ');
                let name = parts.next()?.to_owned().into_bytes();
                let arity = parts.next()?.parse().ok()?;
                let flags = parts.next()?.split('|').map(Flags::named).fold(Flags::default(), Flags::with);
                self.commands.insert(name, CommandInfo { arity, flags });
            }
            // A fact that a later version adds.
            _ => {}
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_survives_the_wire() {
        let told = Description {
            time_ms: 1_700_000_000_123,
            version: "7.0.15".to_owned(),
            databases: 32,
            reserved_db: 31,
            auth_required: true,
            early_allowed: false,
            devices: Some(2),
            packs: true,
            asks: true,
            cached: true,
            own_user: "scot".to_owned(),
            ..Description::of_table()
        };
        assert_eq!(Description::parse(&told.to_text()), Ok(told));
    }

    #[test]
    fn commands_and_containers_are_known() {
        let description = Description::of_table();
        assert_eq!(description.command(b"get").map(|info| info.arity), Some(2));
        assert!(description.command(b"set").is_some_and(|info| info.flags.has(Flags::WRITE)));
        assert_eq!(description.command(b"nosuch"), None);
        assert!(description.is_container(b"config") && !description.is_container(b"get"));
    }

    #[test]
    fn broken_text_is_a_typed_error() {
        assert_eq!(Description::parse(""), Err(DescriptionError::Version));
        for line in ["databases many", "command get", "nospace"] {
            let text = format!("scotfree 1\n{line}\n");
            assert_eq!(Description::parse(&text), Err(DescriptionError::Line(line.to_owned())));
        }
        assert!(Description::parse("scotfree 1\nlater fact\n").is_ok());
    }
}
