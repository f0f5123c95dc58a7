//! What a member keeps beside its service's storage: which history of the group that holds, and the last view.
//!
//! Invariant: the file never says a history that the storage does not hold: it is written before the storage is
//! replaced, and again when the new one is stored; and it names the log that it speaks of, so that it says nothing of
//! another that was put in its place. It has two places, and what is new is written over the older of the two: a disk
//! that has become full keeps no member out of the next view, and a write that is cut short leaves the other place.

use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What disks write as one.
const PLACE_BYTES: usize = 512;
const PLACES: u64 = 2;
const CHECKSUM_DIGITS: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Form {
    lineage: Option<u64>,
    epoch: u64,
    /// The log; files that name none were written before logs were told apart.
    #[serde(default)]
    log: Option<u64>,
    /// How many were written before it: the later counts.
    #[serde(default)]
    count: u64,
}

impl Form {
    /// A line as long as a place: its checksum, and what is sealed by that.
    fn line(&self) -> Vec<u8> {
        let json = serde_json::to_string(self).expect("numbers are JSON");
        let sealed = format!("{json:<width$}\n", width = PLACE_BYTES - CHECKSUM_DIGITS - 2);
        format!("{:08x} {sealed}", crc32c::crc32c(sealed.as_bytes())).into_bytes()
    }

    /// What stands in a place, unless it was never written, or not to its end.
    fn in_place(bytes: &[u8]) -> Option<Form> {
        let line = std::str::from_utf8(bytes).ok()?;
        let (checksum, sealed) = line.split_at_checked(CHECKSUM_DIGITS)?;
        let sealed = sealed.strip_prefix(' ')?;
        let is_whole = u32::from_str_radix(checksum, 16) == Ok(crc32c::crc32c(sealed.as_bytes()));
        is_whole.then(|| serde_json::from_str(sealed).ok())?
    }

    fn in_file(bytes: &[u8]) -> Result<Form, String> {
        let later = bytes.chunks(PLACE_BYTES).filter_map(Form::in_place).max_by_key(|form| form.count);
        // One written before there were two places is JSON as a whole.
        later.map_or_else(|| serde_json::from_slice(bytes).map_err(|error| error.to_string()), Ok)
    }
}

/// The file and what it says.
#[derive(Debug)]
pub(crate) struct Kept {
    path: PathBuf,
    form: Form,
    log: u64,
    /// The file, once it has its two places.
    file: Option<File>,
}

impl Kept {
    /// Reads it, beside this log; nothing at the first start.
    pub(crate) fn open(path: &Path, log: u64) -> Result<Kept, String> {
        let (form, has_places) = match std::fs::read(path) {
            Ok(bytes) => (Form::in_file(&bytes).map_err(|error| {
                format!("{}: it does not say which history of the group the log holds ({error}): move it away, and this member takes the whole state of another", path.display())
            })?, bytes.len() == PLACE_BYTES * PLACES as usize),
            Err(error) if error.kind() == ErrorKind::NotFound => (Form::default(), false),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let file = has_places.then(|| OpenOptions::new().write(true).open(path)).transpose();
        let file = file.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Kept { path: path.to_owned(), form, log, file })
    }

    /// The history that the log holds; none of another log.
    pub(crate) fn lineage(&self) -> Option<u64> {
        self.form.lineage.filter(|_| self.form.log.is_none_or(|log| log == self.log))
    }

    /// Whether it says of this very log what it holds, be that nothing.
    pub(crate) fn names_its_log(&self) -> bool {
        self.form.log == Some(self.log)
    }

    /// The last view that this member, in any of its lives, has taken part in.
    pub(crate) fn epoch(&self) -> u64 {
        self.form.epoch
    }

    /// Writes what has changed, durably.
    pub(crate) fn keep(&mut self, lineage: Option<u64>, epoch: u64) -> Result<(), String> {
        let Form { epoch: epoch_before, count, .. } = self.form;
        let form = Form { lineage, epoch: epoch.max(epoch_before), log: Some(self.log), count };
        // What is said of another log stays while this one has taken part in nothing: that one may be brought back.
        let is_of_another = self.form.lineage.is_some() && self.lineage().is_none();
        if form == self.form || (is_of_another && lineage.is_none()) {
            return Ok(());
        }
        let form = Form { count: count + 1, ..form };
        self.write(&form).map_err(|error| self.describe(&error))?;
        self.form = form;
        Ok(())
    }

    fn describe(&self, error: &io::Error) -> String {
        let next = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => ": make room there",
            _ => "",
        };
        format!("writing the view of the group to {} failed: {error}{next}", self.path.display())
    }

    fn write(&mut self, form: &Form) -> io::Result<()> {
        let line = form.line();
        if let Some(file) = &self.file {
            file.write_all_at(&line, form.count % PLACES * PLACE_BYTES as u64)?;
            return file.sync_data();
        }
        self.file = Some(self.create(&line)?);
        Ok(())
    }

    /// Makes the file with both places; none, or the one before, is there until it is whole.
    fn create(&self, line: &[u8]) -> io::Result<File> {
        let beside = self.path.with_extension("group-new");
        let mut file = File::create(&beside)?;
        file.write_all(&line.repeat(PLACES as usize))?;
        file.sync_all()?;
        std::fs::rename(&beside, &self.path)?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::unwrap_used)]
    fn what_could_not_be_written_is_written_when_it_can_be() {
        let folder = std::env::temp_dir().join(format!("scot-{}-kept", std::process::id()));
        let path = folder.join("kv.wal.group");
        let mut kept = Kept::open(&path, 5).unwrap();
        let problem = kept.keep(Some(1), 1).unwrap_err();
        assert!(problem.contains("kv.wal.group failed"), "{problem}");
        std::fs::create_dir_all(&folder).unwrap();
        kept.keep(Some(1), 1).unwrap();
        let again = Kept::open(&path, 5).unwrap();
        assert_eq!((again.lineage(), again.names_its_log()), (Some(1), true));
        let mut of_another = Kept::open(&path, 6).unwrap();
        assert_eq!((of_another.lineage(), of_another.names_its_log(), of_another.epoch()), (None, false, 1));
        of_another.keep(None, 2).unwrap();
        assert_eq!(Kept::open(&path, 5).unwrap().lineage(), Some(1), "it may be brought back");
        of_another.keep(Some(2), 2).unwrap();
        assert_eq!(Kept::open(&path, 5).unwrap().lineage(), None);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// As a fresh start reads it after that many views.
    #[allow(clippy::unwrap_used)]
    fn written(path: &Path, epochs: std::ops::RangeInclusive<u64>) -> Kept {
        let mut kept = Kept::open(path, 5).unwrap();
        epochs.for_each(|epoch| kept.keep(Some(1), epoch).unwrap());
        Kept::open(path, 5).unwrap()
    }

    #[test]
    #[allow(clippy::unwrap_used)]
    fn what_is_written_needs_no_new_room_and_one_cut_short_leaves_the_one_before() {
        let path = std::env::temp_dir().join(format!("scot-{}-places.group", std::process::id()));
        assert_eq!(written(&path, 1..=7).epoch(), 7);
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(whole.len(), 1_024);
        for place in [0, 512] {
            for at in 0..512 {
                let mut damaged = whole.clone();
                damaged[place + at] ^= 1;
                std::fs::write(&path, &damaged).unwrap();
                let epoch = Kept::open(&path, 5).unwrap().epoch();
                // The seventh lies in the second place.
                assert_eq!(epoch, if place == 512 { 6 } else { 7 }, "byte {at} of {place}");
            }
        }
        std::fs::write(&path, &whole[..512]).unwrap();
        assert_eq!(written(&path, 8..=9).epoch(), 9, "a file that was cut gets its places again");
        std::fs::write(&path, [b' '; 1_024]).unwrap();
        assert!(Kept::open(&path, 5).unwrap_err().contains("does not say which history"));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    #[allow(clippy::unwrap_used)]
    fn a_file_of_the_form_before_is_read_and_becomes_one_with_places() {
        let path = std::env::temp_dir().join(format!("scot-{}-before.group", std::process::id()));
        std::fs::write(&path, r#"{"lineage":1,"epoch":4,"log":5}"#).unwrap();
        let kept = Kept::open(&path, 5).unwrap();
        assert_eq!((kept.lineage(), kept.epoch()), (Some(1), 4));
        assert_eq!(written(&path, 5..=5).epoch(), 5);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 1_024);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn who_has_no_room_is_told_to_make_some() {
        let kept = Kept { path: "kv.wal.group".into(), form: Form::default(), log: 0, file: None };
        let problem = kept.describe(&ErrorKind::StorageFull.into());
        assert!(problem.contains("view of the group to kv.wal.group") && problem.contains("make room"));
    }
}
