//! The file of updates that were promised and could not be kept, for an operator to read.
//!
//! One JSON object a line: `time_ns`, session, seq, reason, error, commands. Arguments that are no UTF-8
//! stand as {"hex": "…"}.
//!
//! Invariant: a letter is durable when [`DeadLetters::write`] returns, or the [`DeadLetters::sync`] behind its
//! [`DeadLetters::add`], and never overwrites another.

use scotfree_core::{Nanos, SeqNum, SessionId};
use scotfree_resp::payload::RequestPayload;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// One update that could not be kept.
#[derive(Debug, Clone)]
pub struct Letter<'a> {
    /// When it was found out, in real time.
    pub time: Nanos,
    /// Whose it was.
    pub session: SessionId,
    /// Its place.
    pub seq: SeqNum,
    /// Why: `late_error`, `unknown_session` or `behind_gap`.
    pub reason: &'a str,
    /// What the server answered, if it was asked.
    pub error: &'a str,
    /// The commands' arguments.
    pub commands: &'a [Vec<Vec<u8>>],
}

/// Appends letters to a file.
#[derive(Debug)]
pub struct DeadLetters {
    path: PathBuf,
    bytes_max: u64,
    count: u64,
    syncs: u64,
    /// Those that were added since the last sync, each a line.
    added: Vec<String>,
}

impl DeadLetters {
    /// Letters go to `path`, which may grow to `bytes_max`; then writing is an error, so that no letter is
    /// lost unseen. It is made here if it does not exist, so that a promise is not broken before it is
    /// found that nobody can be told.
    pub fn open(path: &Path, bytes_max: u64) -> io::Result<DeadLetters> {
        open(path)?;
        Ok(DeadLetters { path: path.to_owned(), bytes_max, count: 0, syncs: 0, added: Vec::new() })
    }

    /// Where they are.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many letters were written.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How often the file was synced for them.
    pub fn syncs(&self) -> u64 {
        self.syncs
    }

    /// Writes a letter.
    pub fn write(&mut self, letter: &Letter<'_>) -> io::Result<()> {
        self.add(letter);
        self.sync()
    }

    /// Adds a letter to those that the next [`DeadLetters::sync`] writes.
    pub fn add(&mut self, letter: &Letter<'_>) {
        self.added.push(line(letter));
    }

    /// Writes the letters that were added, in order and with one sync. Of too many, those are written that there is
    /// room for.
    pub fn sync(&mut self) -> io::Result<()> {
        if self.added.is_empty() {
            return Ok(());
        }
        let added = std::mem::take(&mut self.added);
        let path = self.path.display();
        let doing = |error: io::Error| {
            io::Error::new(error.kind(), format!("writing a dead letter to {path} failed: {error}"))
        };
        // Letters are rare: the file is not kept open, so it can be moved away at any time.
        let mut file = open(&self.path).map_err(doing)?;
        let mut room = self.bytes_max.saturating_sub(file.metadata().map_err(doing)?.len());
        let mut text = String::new();
        if ends_within_a_line(&file).map_err(doing)? {
            text.push('\n');
            room = room.saturating_sub(1);
        }
        let mut fitting = 0;
        for line in &added {
            let Some(left) = room.checked_sub(line.len() as u64) else { break };
            room = left;
            fitting += 1;
            text.push_str(line);
        }
        if fitting > 0 {
            file.write_all(text.as_bytes()).and_then(|()| file.sync_data()).map_err(doing)?;
            self.count += fitting;
            self.syncs += 1;
        }
        if fitting < added.len() as u64 {
            let text = format!(
                "{path} would grow beyond {} bytes; look at its letters, move it away and start again",
                self.bytes_max
            );
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        Ok(())
    }
}

/// The commands of a payload; none if it cannot be read.
pub fn commands_of(payload: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let Ok(request) = RequestPayload::parse(payload) else { return Vec::new() };
    request.all(payload).map(|args| args.iter().map(<[u8]>::to_vec).collect()).collect()
}

/// Opens the file for appending. A new one is for its owner alone, since letters hold clients' data, and
/// its name is made durable.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    if file.metadata()?.len() == 0 {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(file)
}

/// Whether a full disk or a crash has cut the last letter: the next one is to begin a line of its own.
fn ends_within_a_line(file: &File) -> io::Result<bool> {
    let Some(at) = file.metadata()?.len().checked_sub(1) else { return Ok(false) };
    let mut last = [0];
    file.read_exact_at(&mut last, at)?;
    Ok(last != *b"\n")
}

fn line(letter: &Letter<'_>) -> String {
    let mut line = format!(
        "{{\"time_ns\":{},\"session\":\"{}\",\"seq\":{},\"reason\":",
        letter.time, letter.session, letter.seq
    );
    push_string(&mut line, letter.reason.as_bytes());
    line.push_str(",\"error\":");
    push_string(&mut line, letter.error.as_bytes());
    line.push_str(",\"commands\":");
    push_list(&mut line, letter.commands, |line, words| {
        push_list(line, words, |line, word| push_string(line, word));
    });
    line.push_str("}\n");
    line
}

fn push_list<T>(line: &mut String, items: &[T], mut push: impl FnMut(&mut String, &T)) {
    line.push('[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            line.push(',');
        }
        push(line, item);
    }
    line.push(']');
}

fn push_string(line: &mut String, bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        line.push_str("{\"hex\":\"");
        for byte in bytes {
            let _ = write!(line, "{byte:02x}");
        }
        line.push_str("\"}");
        return;
    };
    line.push('"');
    for character in text.chars() {
        match character {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            control if control < ' ' => {
                let _ = write!(line, "\\u{:04x}", u32::from(control));
            }
            other => line.push(other),
        }
    }
    line.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn letter(commands: &[Vec<Vec<u8>>]) -> Letter<'_> {
        Letter {
            time: Nanos(5),
            session: SessionId(u64::MAX),
            seq: SeqNum(2),
            reason: "late_error",
            error: "OOM \"no\"\n",
            commands,
        }
    }

    #[test]
    fn a_letter_is_one_line_of_json() {
        let commands = vec![vec![b"SET".to_vec(), b"k\\".to_vec(), vec![0xff, 0]]];
        assert_eq!(
            line(&letter(&commands)),
            "{\"time_ns\":5,\"session\":\"18446744073709551615\",\"seq\":2,\"reason\":\"late_error\",\
             \"error\":\"OOM \\\"no\\\"\\u000a\",\"commands\":[[\"SET\",\"k\\\\\",{\"hex\":\"ff00\"}]]}\n"
        );
    }

    #[test]
    fn letters_are_appended_up_to_the_limit() {
        let path = std::env::temp_dir().join(format!("scot-letters-{}", std::process::id()));
        let size = line(&letter(&[])).len() as u64;
        let mut letters = DeadLetters::open(&path, 2 * size).expect("it can be made");
        let mode = path.metadata().expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "letters hold clients' data");
        for _ in 0..2 {
            letters.write(&letter(&[])).expect("there is room");
        }
        let error = letters.write(&letter(&[])).expect_err("full");
        assert!(error.to_string().contains("move it away"), "{error}");
        assert_eq!(
            (letters.count(), std::fs::read_to_string(&path).expect("a file").lines().count()),
            (2, 2)
        );
        std::fs::remove_file(&path).expect("it is ours");
    }

    #[test]
    fn letters_that_come_together_are_synced_once_and_as_many_as_fit() {
        let path = std::env::temp_dir().join(format!("scot-letters-together-{}", std::process::id()));
        let size = line(&letter(&[])).len() as u64;
        let mut letters = DeadLetters::open(&path, 4 * size).expect("it can be made");
        let written = || std::fs::read_to_string(&path).expect("a file").lines().count();
        letters.sync().expect("there is nothing to do");
        (0..3).for_each(|_| letters.add(&letter(&[])));
        assert_eq!((letters.syncs(), letters.count(), written()), (0, 0, 0));
        letters.sync().expect("there is room");
        assert_eq!((letters.syncs(), letters.count(), written()), (1, 3, 3));
        (0..2).for_each(|_| letters.add(&letter(&[])));
        let error = letters.sync().expect_err("there is room for one");
        assert!(error.to_string().contains("move it away"), "{error}");
        assert_eq!((letters.syncs(), letters.count(), written()), (2, 4, 4));
        std::fs::remove_file(&path).expect("it is ours");
    }

    #[test]
    fn a_letter_behind_one_that_was_cut_has_a_line_of_its_own() {
        let path = std::env::temp_dir().join(format!("scot-cut-letter-{}", std::process::id()));
        let whole = line(&letter(&[]));
        std::fs::write(&path, &whole[..whole.len() / 2]).expect("it can be written");
        let mut letters = DeadLetters::open(&path, 10_000).expect("it is there");
        for _ in 0..2 {
            letters.write(&letter(&[])).expect("there is room");
        }
        let text = std::fs::read_to_string(&path).expect("a file");
        assert_eq!(text, format!("{}\n{whole}{whole}", &whole[..whole.len() / 2]));
        std::fs::remove_file(&path).expect("it is ours");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_found_at_once() {
        let folder = std::env::temp_dir();
        assert!(DeadLetters::open(&folder, 100).is_err(), "a folder");
        assert!(DeadLetters::open(&folder.join("scot-no-such-folder/letters"), 100).is_err());
    }
}
