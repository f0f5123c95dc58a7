//! `scot log export`: the log entries as JSON lines.
//!
//! Invariant: what identifies a session's keys, its nonces, is never written; a target is there whole, as
//! it was before or as it shall be.

use super::{read, LogKind, LogToolError};
use remedy_persist::Device;
use scotfree_core::{Durability, Token};
use std::collections::BTreeMap;
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
    device: Option<Device>,
    asked_for: BTreeMap<(u64, u64), AskedFor>,
}

/// What a record says of its request beside what the device shows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AskedFor {
    durability: Durability,
    key_hash: u64,
}

// The layout of remedy-persist's records, as it stands at the head of its device/record.rs; the device has
// restored the record before it is read here.
const TYPE_AT: usize = 1;
const TYPE_ENTRY: u8 = 2;
const SESSION_AT: usize = 20;
const SEQ_AT: usize = 72;
const ASKED_AT: usize = 80;
const KEY_HASH_AT: usize = 108;

impl Export {
    /// Reads the whole log at `path`, changing nothing.
    pub fn read(path: &Path) -> Result<Export, LogToolError> {
        let log = read(path)?;
        let file = identity(path).unwrap_or_default();
        let asked_for = log.records.iter().filter_map(asked_for).collect();
        Ok(Export { file, kind: log.contents.kind, device: log.device, asked_for })
    }

    /// Writes a line for each entry, in the order that the device gave them.
    pub fn write(&self, out: &mut dyn Write, payloads: Payloads) -> io::Result<()> {
        let durability = match self.kind {
            LogKind::Ram => Durability::Ram,
            LogKind::Disk => Durability::Disk,
        };
        for entry in self.device.iter().flat_map(Device::entries) {
            let (session, seq, stamp) = (entry.session.0, entry.seq.0, entry.stamp);
            let asked_for = self.asked_for.get(&(session, seq)).expect("every entry was read from a record");
            // Numbers, names of durabilities and hexadecimal digits need no escaping.
            write!(
                out,
                "{{\"session\":{session},\"seq\":{seq},\"stamp\":{{\"device\":{},\"boot_epoch\":{},\
                 \"order_number\":{},\"previous_write\":{}}},\"durability\":\"{durability}\",\"asked\":\"{}\",\
                 \"key_hash\":\"{:016x}\",\"payload_bytes\":{}",
                stamp.device.0,
                stamp.boot_epoch.0,
                stamp.number.0,
                stamp.previous_write.0,
                asked_for.durability,
                asked_for.key_hash,
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

fn asked_for((_, record): &(Token, Vec<u8>)) -> Option<((u64, u64), AskedFor)> {
    if *record.get(TYPE_AT)? != TYPE_ENTRY {
        return None;
    }
    let word = |at: usize| Some(u64::from_le_bytes(*record.get(at..)?.first_chunk()?));
    let durability = Durability::from_code(*record.get(ASKED_AT)?)?;
    Some(((word(SESSION_AT)?, word(SEQ_AT)?), AskedFor { durability, key_hash: word(KEY_HASH_AT)? }))
}
