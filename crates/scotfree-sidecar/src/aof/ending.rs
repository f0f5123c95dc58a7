//! Whether a server's append-only files leave a transaction open.
//!
//! A server that finds its file cut inside a command of a transaction keeps the commands before it, MULTI
//! included, and appends to them. What comes then stands inside that transaction for the next load: with
//! the next EXEC its beginning is executed after all, without one everything behind it is dropped.
//!
//! Invariant: files are called whole only after they were read from their first byte to their last. What
//! cannot be read is never called whole.

use super::open_regular;
use scotfree_resp::back::{AofFiles, Ending};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek};
use std::path::Path;

/// A longer line is no part of an append-only file; only lengths and times stand on lines.
const LINE_BYTES_MAX: u64 = 1_024;
/// A line of a length is shorter.
const NEAR_BYTES: usize = 32;
/// How much is read at once.
const READ_BYTES: usize = 256 << 10;

/// Reads the files that the server appends to.
pub fn ending(files: &AofFiles) -> Ending {
    let unknown =
        |file: &Path, error: io::Error| Ending::Unknown { file: file.to_owned(), reason: error.to_string() };
    let manifest = files.folder.join(format!("{}.manifest", files.name));
    let names = match open_regular(&manifest).and_then(io::read_to_string) {
        Ok(text) => appended(&text),
        // Before 7.0 there is one file and no list of its parts.
        Err(error) if error.kind() == ErrorKind::NotFound => vec![files.name.clone()],
        Err(error) => return unknown(&manifest, error),
    };
    for name in names {
        let path = files.folder.join(name);
        let open = |file| open_transaction(BufReader::with_capacity(READ_BYTES, file));
        match open_regular(&path).and_then(open) {
            Ok(None) => {}
            Ok(Some(offset)) => return Ending::Open { file: path, offset },
            Err(error) => return unknown(&path, error),
        }
    }
    Ending::Whole
}

/// The names of the files with appended commands, from lines such as `file a.1.incr.aof seq 1 type i`.
fn appended(manifest: &str) -> Vec<String> {
    let name = |line: &str| {
        let (name, _) =
            line.trim_end().strip_suffix(" type i")?.strip_prefix("file ")?.rsplit_once(" seq ")?;
        Some(name.to_owned())
    };
    manifest.lines().filter_map(name).collect()
}

/// Where the transaction begins that is not complete, if there is one.
fn open_transaction(reader: impl BufRead + Seek) -> io::Result<Option<u64>> {
    let mut commands = Commands { reader, offset: 0, line: Vec::new() };
    let mut open = None;
    loop {
        let begin = commands.offset;
        match commands.next()? {
            Command::Multi if open.is_some() => return Ok(open),
            Command::Multi => open = Some(begin),
            Command::Exec => open = None,
            Command::Other => {}
            // A last command in parts is still being written, or is cut off when it is loaded.
            Command::End => return Ok(open),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Command {
    Multi,
    Exec,
    Other,
    End,
}

/// The commands of a file, one after the other; their arguments are skipped.
struct Commands<R> {
    reader: R,
    offset: u64,
    line: Vec<u8>,
}

impl<R: BufRead + Seek> Commands<R> {
    fn next(&mut self) -> io::Result<Command> {
        loop {
            match self.read_line()? {
                None => return Ok(Command::End),
                Some(b'*') => break,
                // The time at which what follows was appended.
                Some(b'#') => {}
                Some(_) => return Err(self.damaged("no command begins here")),
            }
        }
        match self.number()? {
            1 => self.single_word(),
            count => self.skip_words(count),
        }
    }

    fn single_word(&mut self) -> io::Result<Command> {
        let Some(bytes) = self.word_length()? else { return Ok(Command::End) };
        let mut word = Vec::new();
        if bytes <= 5 {
            self.reader.by_ref().take(bytes).read_to_end(&mut word)?;
            self.offset += word.len() as u64;
        } else {
            self.skip(bytes)?;
        }
        if !self.word_ends()? {
            return Ok(Command::End);
        }
        Ok(match word.to_ascii_uppercase().as_slice() {
            b"MULTI" => Command::Multi,
            b"EXEC" => Command::Exec,
            _ => Command::Other,
        })
    }

    fn skip_words(&mut self, count: u64) -> io::Result<Command> {
        for _ in 0..count {
            let Some(bytes) = self.word_length()? else { return Ok(Command::End) };
            self.skip(bytes)?;
            if !self.word_ends()? {
                return Ok(Command::End);
            }
        }
        Ok(Command::Other)
    }

    /// The length of the word that follows; none at the end of the file.
    fn word_length(&mut self) -> io::Result<Option<u64>> {
        match self.read_line()? {
            None => Ok(None),
            Some(b'$') => self.number().map(Some),
            Some(_) => Err(self.damaged("no argument begins here")),
        }
    }

    /// Steps over a word's bytes; beyond the end of the file the next read finds nothing.
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let step = i64::try_from(bytes).map_err(|_| self.damaged("a length is absurd"))?;
        self.reader.seek_relative(step)?;
        self.offset += bytes;
        Ok(())
    }

    /// Whether the end of a word's line is there.
    fn word_ends(&mut self) -> io::Result<bool> {
        match self.read_line()? {
            None => Ok(false),
            Some(b'\r') if self.line.len() == 2 => Ok(true),
            Some(_) => Err(self.damaged("an argument is longer than it says")),
        }
    }

    /// Reads a line and returns its first byte; none if the file ends before the line does.
    fn read_line(&mut self) -> io::Result<Option<u8>> {
        self.line.clear();
        let count = self.copy_line()?;
        self.offset += count as u64;
        if self.line.ends_with(b"\r\n") {
            return Ok(self.line.first().copied());
        }
        if count as u64 == LINE_BYTES_MAX || self.line.ends_with(b"\n") {
            return Err(self.damaged("no line of an append-only file ends here"));
        }
        Ok(None)
    }

    /// Copies the next line, or as much of it as may be. Nearly all lines are short and in the buffer.
    fn copy_line(&mut self) -> io::Result<usize> {
        let buffered = self.reader.fill_buf()?;
        let near = &buffered[..buffered.len().min(NEAR_BYTES)];
        if let Some(end) = near.iter().position(|byte| *byte == b'\n') {
            self.line.extend_from_slice(&near[..=end]);
            self.reader.consume(end + 1);
            return Ok(end + 1);
        }
        self.reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line)
    }

    /// The number behind the line's first byte.
    fn number(&self) -> io::Result<u64> {
        let digits = self.line.get(1..self.line.len().saturating_sub(2)).unwrap_or_default();
        let add = |sum: u64, digit: &u8| {
            let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
            sum.checked_mul(10)?.checked_add(u64::from(digit))
        };
        let number = digits.iter().try_fold(0, add).filter(|_| !digits.is_empty());
        number.ok_or_else(|| self.damaged("a length is no number"))
    }

    fn damaged(&self, what: &str) -> io::Error {
        let text = format!("{what} (before byte {})", self.offset);
        io::Error::new(ErrorKind::InvalidData, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    const SET: &str = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n";
    const MULTI: &str = "*1\r\n$5\r\nMULTI\r\n";
    const EXEC: &str = "*1\r\n$4\r\nEXEC\r\n";

    fn open(parts: &[&str]) -> io::Result<Option<u64>> {
        open_transaction(Cursor::new(parts.concat().into_bytes()))
    }

    fn offset(parts: &[&str]) -> Option<u64> {
        open(parts).expect("it can be read")
    }

    #[test]
    fn a_file_of_complete_transactions_is_whole() {
        assert_eq!(offset(&[]), None);
        assert_eq!(offset(&["#TS:1700000000\r\n", SET, MULTI, SET, EXEC, SET]), None);
        assert_eq!(offset(&[MULTI, EXEC, MULTI, SET, SET, EXEC]), None);
    }

    #[test]
    fn a_transaction_without_end_is_found_at_every_cut() {
        let whole = [SET, MULTI, SET, SET, EXEC].concat();
        let begin = SET.len();
        for cut in 0..whole.len() {
            let expected = (cut >= begin + MULTI.len()).then_some(begin as u64);
            assert_eq!(offset(&[&whole[..cut]]), expected, "cut to {cut}");
        }
    }

    #[test]
    fn what_was_appended_since_does_not_hide_it() {
        assert_eq!(offset(&[MULTI, SET, SET]), Some(0));
        assert_eq!(offset(&[SET, MULTI, SET, SET, MULTI, SET, EXEC, SET]), Some(SET.len() as u64));
    }

    #[test]
    fn a_value_that_looks_like_a_transaction_is_none() {
        let value = [MULTI, SET].concat();
        let command = format!("*2\r\n$4\r\nPING\r\n${}\r\n{value}\r\n", value.len());
        assert_eq!(offset(&[&command, SET]), None);
        assert_eq!(offset(&["*1\r\n$6\r\nMULTIS\r\n", SET]), None);
    }

    #[test]
    fn what_cannot_be_read_is_not_called_whole() {
        for bytes in ["REDIS0010\u{1}", "x\r\n", "*x\r\n", "*1\r\nMULTI\r\n", "*1\r\n$2\r\nabcd\r\n", "*1\n"]
        {
            assert!(open(&[bytes, SET]).is_err(), "{bytes:?}");
        }
        let line = "x".repeat(2 * LINE_BYTES_MAX as usize);
        assert!(open(&["*", &line]).is_err());
        let length = format!("*1\r\n${}\r\nabc\r\n", u64::MAX);
        assert!(open(&[&length]).is_err());
    }

    #[test]
    fn the_parts_that_are_appended_to_are_read_and_no_others() {
        let folder = std::env::temp_dir().join(format!("scot-ending-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
        let files = AofFiles {
            folder: folder.clone(),
            name: "a.aof".to_owned(),
            has_parts: true,
            is_rewriting: false,
        };
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("writable");
        assert!(matches!(ending(&files), Ending::Unknown { .. }), "there is no file");
        write("a.aof", SET);
        assert_eq!(ending(&files), Ending::Whole, "one file, as before 7.0");
        write("a.aof.manifest", "file a.1 seq 1 type b\nfile a.0 seq 0 type h\nfile a.2 seq 2 type i\n");
        for name in ["a.aof", "a.0", "a.1"] {
            write(name, MULTI);
        }
        write("a.2", SET);
        assert_eq!(ending(&files), Ending::Whole);
        write("a.2", &[SET, MULTI].concat());
        assert_eq!(ending(&files), Ending::Open { file: folder.join("a.2"), offset: SET.len() as u64 });
        for name in ["a.2", "a.aof.manifest"] {
            std::fs::remove_file(folder.join(name)).expect("it is ours");
            crate::aof::tests::make_pipe(&folder.join(name));
            let Ending::Unknown { file, reason } = ending(&files) else { panic!("{name} is a pipe") };
            assert_eq!(file, folder.join(name));
            assert!(reason.contains("no regular file"), "{reason}");
        }
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }
}
