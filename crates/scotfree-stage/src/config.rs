//! Reads TOML files into plain structs.
//!
//! Invariant: whatever is wrong is reported with file, line, key and what is allowed; nothing is started
//! on half a configuration.

use crate::trouble::ConfigError;
use serde::de::DeserializeOwned;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The largest configuration file that is read.
pub const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// A configuration file's text, from which errors get their lines.
#[derive(Debug, Clone)]
pub struct Source {
    file: PathBuf,
    text: String,
}

impl Source {
    /// Reads a file.
    pub fn read(file: &Path) -> Result<Source, ConfigError> {
        let text = read_text(file, CONFIG_BYTES_MAX).map_err(|error| ConfigError {
            file: file.to_owned(),
            line: 0,
            key: String::new(),
            problem: format!("{error}; name a regular file that you may read"),
        })?;
        Ok(Source { file: file.to_owned(), text })
    }

    /// The text itself.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A text that stands for a file.
    pub fn from_text(file: impl Into<PathBuf>, text: impl Into<String>) -> Source {
        Source { file: file.into(), text: text.into() }
    }

    /// The file's name without folder and ending.
    pub fn stem(&self) -> &str {
        self.file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default()
    }

    /// The struct that the text describes.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        toml::from_str(&self.text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            let key = self.key_at(&span);
            // The parser says what is allowed on a line of its own.
            self.error(span, &key, with_allowed(&error.message().trim_end().replace('\n', "; ")))
        })
    }

    /// An error about the text at `span`.
    pub fn error(&self, span: Range<usize>, key: &str, problem: impl Into<String>) -> ConfigError {
        ConfigError {
            file: self.file.clone(),
            line: self.line_of(span.start),
            key: key.to_owned(),
            problem: problem.into(),
        }
    }

    /// An error about the whole file.
    pub fn error_at_top(&self, key: &str, problem: impl Into<String>) -> ConfigError {
        self.error(0..0, key, problem)
    }

    fn line_of(&self, at: usize) -> usize {
        1 + self.text.bytes().take(at).filter(|byte| *byte == b'\n').count()
    }

    /// The key of the line on which the span begins.
    fn key_at(&self, span: &Range<usize>) -> String {
        let line = self.text.lines().nth(self.line_of(span.start) - 1).unwrap_or_default();
        let key = line.split('=').next().unwrap_or_default().trim();
        key.trim_matches(|c| c == '[' || c == ']').to_owned()
    }
}

/// A parser's problem with what is allowed, where it only names its own type.
pub fn with_allowed(problem: &str) -> String {
    const ADDRESS: &str = "invalid socket address syntax";
    let integers = [
        ("u8", u64::from(u8::MAX)),
        ("u16", u64::from(u16::MAX)),
        ("u32", u64::from(u32::MAX)),
        ("u64", u64::MAX),
    ];
    if problem.ends_with(ADDRESS) {
        return format!("{problem}; allowed is IP:PORT, for instance 127.0.0.1:9100");
    }
    let integer = integers.iter().find_map(|(name, max)| {
        let found = problem.strip_suffix(name)?.strip_suffix("expected ")?;
        Some(format!("{found}allowed is a whole number from 0 to {max}"))
    });
    integer.unwrap_or_else(|| problem.to_owned())
}

/// The text of a regular file of at most `bytes_max` bytes: a pipe would keep us waiting for its writer,
/// and a device may have no end.
pub fn read_text(file: &Path, bytes_max: u64) -> io::Result<String> {
    let refuse = |problem: String| Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    if !std::fs::metadata(file)?.is_file() {
        return refuse("it is not a regular file".to_owned());
    }
    // Not waiting, in case a pipe has just taken its place.
    let mut opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(file)?;
    let mut text = String::new();
    (&mut opened).take(bytes_max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > bytes_max {
        return refuse(format!("it has more than {bytes_max} bytes, which is the most that is read"));
    }
    Ok(text)
}

/// Whether `name` can be part of a namespace's or file's name.
pub fn is_plain_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=40).contains(&name.len()) && name.bytes().all(is_plain) && !name.starts_with('-')
}

/// What [`is_plain_name`] allows, in words.
pub const PLAIN_NAME_RULE: &str = "allowed are 1 to 40 of a-z, 0-9 and -, not beginning with -";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::run;
    use crate::scratch::Scratch;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Example {
        #[allow(dead_code)]
        size: u32,
    }

    #[test]
    fn an_error_names_file_line_key_and_what_is_allowed() {
        for (text, line, wanted) in [
            ("# two\nsise = 1\n", 2, "`sise`: unknown field `sise`, expected `size`"),
            (
                "\n\nsize = \"a\"",
                3,
                "`size`: invalid type: string \"a\", allowed is a whole number from 0 to 4294967295",
            ),
            ("size = ", 1, "`size`: "),
            ("", 1, "missing field `size`"),
        ] {
            let error = Source::from_text("lab/x.toml", text).parse::<Example>().expect_err(text);
            let shown = error.to_string();
            assert!(shown.starts_with(&format!("lab/x.toml:{line}: {wanted}")), "{shown}");
        }
    }

    #[test]
    fn what_is_no_regular_file_or_too_large_is_refused_at_once() {
        let folder = Scratch::new("config-kinds").expect("temporary files can be written");
        let (pipe, large) = (folder.path().join("pipe"), folder.path().join("large"));
        run("mkfifo", [&pipe]).expect("mkfifo runs");
        std::fs::write(&large, "#".repeat(CONFIG_BYTES_MAX as usize + 1)).expect("it can be written");
        for (file, wanted) in [
            (folder.path(), "not a regular file"),
            (Path::new("/dev/zero"), "not a regular file"),
            (&pipe, "not a regular file"),
            (&large, "more than 1048576 bytes"),
        ] {
            let shown = Source::read(file).expect_err(wanted).to_string();
            assert!(shown.contains(wanted) && shown.contains(&file.display().to_string()), "{shown}");
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Source::read(Path::new("/nowhere/x.toml")).expect_err("it is not there");
        assert!(error.to_string().contains("/nowhere/x.toml"));
    }

    #[test]
    fn names_are_plain() {
        assert!(is_plain_name("one-device2"));
        for name in ["", "-a", "a b", "A", "a/b", "..", &"a".repeat(41)] {
            assert!(!is_plain_name(name), "{name}");
        }
    }
}
