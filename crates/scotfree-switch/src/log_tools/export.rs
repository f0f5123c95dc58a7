//! `scot log export`: the log entries as JSON lines.
//!
//! Invariant: what identifies a session's keys, its nonces, is never written; a target is there whole, as
//! it was before or as it shall be.

use super::{read, LogKind, LogToolError};
use scotfree_core::Durability;
use scotfree_device::{Maker, Pipeline};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Whether the requests themselves are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payloads {
    /// Only how large they are.
    LeftOut,
    /// In hexadecimal.
    Hex,
}

/// A log that was read and whose every record holds.
pub struct Export {
    file: (u64, u64),
    kind: LogKind,
    device: Option<Pipeline>,
}

impl Export {
    /// Reads the whole log at `path`, changing nothing; `functions` are all that may have written it.
    pub fn read(path: &Path, functions: &[Maker]) -> Result<Export, LogToolError> {
        let log = read(path, functions)?;
        let file = identity(path).unwrap_or_default();
        Ok(Export { file, kind: log.contents.kind, device: log.device })
    }

    /// Writes a line for each entry, in the order that the device gave them.
    pub fn write(&self, out: &mut dyn Write, payloads: Payloads) -> io::Result<()> {
        let durability = match self.kind {
            LogKind::Ram => Durability::Ram,
            LogKind::Disk => Durability::Disk,
        };
        for entry in self.device.iter().flat_map(Pipeline::entries) {
            let (session, seq, stamp) = (entry.session.id.0, entry.seq.0, entry.stamp);
            // Numbers, names of durabilities and hexadecimal digits need no escaping.
            write!(
                out,
                "{{\"server\":{},\"session\":{session},\"seq\":{seq},\"stamp\":{{\"device\":{},\"boot_epoch\":{},\
                 \"order_number\":{},\"previous_write\":{}}},\"durability\":\"{durability}\",\"asked\":\"{}\",\
                 \"key_hash\":\"{:016x}\",\"payload_bytes\":{}",
                entry.session.server.0,
                stamp.device.0,
                stamp.boot_epoch.0,
                stamp.number.0,
                stamp.previous_write.0,
                entry.asked,
                entry.key_hash.0,
                entry.payload.len()
            )?;
            if payloads == Payloads::Hex {
                out.write_all(b",\"payload\":\"")?;
                entry.payload.iter().try_for_each(|byte| write!(out, "{byte:02x}"))?;
                out.write_all(b"\"")?;
            }
            out.write_all(b"}\n")?;
        }
        Ok(())
    }

    /// Writes the lines into a file that only its owner may read. It replaces `target` when it is whole
    /// and on its medium.
    pub fn write_file(&self, target: &Path, payloads: Payloads) -> io::Result<()> {
        self.check_target(target)?;
        let draft = draft_of(target);
        let written = self.write_draft(&draft, payloads).and_then(|()| fs::rename(&draft, target));
        if written.is_err() {
            // The error says more than a second one about the draft would.
            let _ = fs::remove_file(&draft);
        }
        written
    }

    fn write_draft(&self, draft: &Path, payloads: Payloads) -> io::Result<()> {
        let file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
        let mut out = BufWriter::new(file);
        self.write(&mut out, payloads)?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
    }

    /// Refuses to replace what is no file, or the log itself.
    fn check_target(&self, target: &Path) -> io::Result<()> {
        match fs::metadata(target) {
            Ok(found) if !found.is_file() => Err(io::Error::other("it is there and no regular file")),
            Ok(found) if (found.dev(), found.ino()) == self.file => {
                Err(io::Error::other("it is the log itself"))
            }
            // What is missing is made, or its folder's absence is reported.
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

fn draft_of(target: &Path) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(format!(".new-{}", std::process::id()));
    name.into()
}
