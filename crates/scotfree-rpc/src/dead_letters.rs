//! The file of updates that were never applied, or promised and refused, for an operator to read.
//!
//! One line per letter: time (nanoseconds since 1970), session, `seq_num`, reason, payload in
//! hexadecimal, separated by spaces; behind an early update that was refused its error, as reason
//! `late_error`.
//!
//! Invariant: a letter is durable when [`DeadLetterFile::write`] returns, and never overwrites another.

use crate::service::DeadLetter;
use scotfree_core::{SeqNum, SessionId};
use scotfree_io::now_realtime;
use scotfree_session::DeadLetterReason;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Appends dead letters to a file.
#[derive(Debug)]
pub struct DeadLetterFile {
    path: PathBuf,
    bytes_max: u64,
    /// Opened with the first letter: most servers never write one.
    file: Option<File>,
    count: u64,
}

impl DeadLetterFile {
    /// Letters will go to `path`, which may grow to `bytes_max`; then writing is an error, so that no
    /// letter is lost unseen.
    pub fn new(path: &Path, bytes_max: u64) -> DeadLetterFile {
        DeadLetterFile { path: path.to_owned(), bytes_max, file: None, count: 0 }
    }

    /// How many letters were written.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Writes a letter.
    pub fn write(&mut self, letter: &DeadLetter<'_>) -> io::Result<()> {
        let reason = match letter.reason {
            DeadLetterReason::UnknownSession => "unknown_session",
            DeadLetterReason::BehindGap => "behind_gap",
        };
        self.append(&line(letter.session, letter.seq, reason, letter.payload, ""))
    }

    /// Writes a letter about an update whose client had its answer before the service refused it.
    pub fn write_late_error(
        &mut self,
        session: SessionId,
        seq: SeqNum,
        payload: &[u8],
        error: &str,
    ) -> io::Result<()> {
        self.append(&line(session, seq, "late_error", payload, error))
    }

    fn append(&mut self, line: &str) -> io::Result<()> {
        let path = &self.path;
        let doing = |error: io::Error| {
            io::Error::new(
                error.kind(),
                format!("writing a dead letter to {} failed: {error}", path.display()),
            )
        };
        let file = match self.file.take() {
            Some(file) => file,
            None => OpenOptions::new().append(true).create(true).open(path).map_err(doing)?,
        };
        if file.metadata().map_err(doing)?.len() + line.len() as u64 > self.bytes_max {
            let text = format!(
                "{} would grow beyond {} bytes; look at its letters, move it away and start again",
                path.display(),
                self.bytes_max
            );
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        let file = self.file.insert(file);
        file.write_all(line.as_bytes()).and_then(|()| file.sync_data()).map_err(doing)?;
        self.count += 1;
        Ok(())
    }
}

fn line(session: SessionId, seq: SeqNum, reason: &str, payload: &[u8], error: &str) -> String {
    let mut line = format!("{} {session} {seq} {reason} ", now_realtime());
    for byte in payload {
        // Writing to a String cannot fail.
        let _ = write!(line, "{byte:02x}");
    }
    if !error.is_empty() {
        line.push(' ');
        // A letter is one line, whatever the error says.
        line.extend(error.chars().map(|c| if c.is_control() { ' ' } else { c }));
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_error_stands_behind_its_update_on_the_same_line() {
        let line = line(SessionId(7), SeqNum(9), "late_error", b"\x00A", "OOM no\r\nroom");
        assert!(line.ends_with(" 7 9 late_error 0041 OOM no  room\n"), "{line}");
        assert_eq!(line.lines().count(), 1);
    }

    #[test]
    fn letters_are_appended_until_the_file_is_full() {
        let folder = std::env::temp_dir().join(format!("scot-dead-letters-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for the test");
        let path = folder.join("dead");
        let letter = DeadLetter {
            session: SessionId(7),
            seq: SeqNum(9),
            reason: DeadLetterReason::BehindGap,
            payload: b"\x00\xffA",
        };
        let mut file = DeadLetterFile::new(&path, 100);
        file.write(&letter).expect("there is room");
        // Another run of the server.
        let mut file = DeadLetterFile::new(&path, 100);
        file.write(&letter).expect("there is room");
        let error = file.write(&letter).expect_err("the file is full");
        assert!(error.to_string().contains("move it away"), "{error}");
        assert_eq!(file.count(), 1);
        let text = std::fs::read_to_string(&path).expect("the file is there");
        assert_eq!(text.lines().filter(|line| line.ends_with(" 7 9 behind_gap 00ff41")).count(), 2);
        std::fs::remove_dir_all(&folder).expect("the folder was ours");
    }
}
