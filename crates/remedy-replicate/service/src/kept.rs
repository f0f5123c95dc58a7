//! What a member keeps beside its service's storage: which history of the group that holds, and the last view.
//!
//! Invariant: the file never says a history that the storage does not hold: it is written before the storage is
//! replaced, and again when the new one is stored; and it names the log that it speaks of, so that it says nothing of
//! another that was put in its place.

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Form {
    lineage: Option<u64>,
    epoch: u64,
    /// The log; files that name none were written before logs were told apart.
    #[serde(default)]
    log: Option<u64>,
}

/// The file and what it says.
#[derive(Debug)]
pub(crate) struct Kept {
    path: PathBuf,
    form: Form,
    log: u64,
}

impl Kept {
    /// Reads it, beside this log; nothing at the first start.
    pub(crate) fn open(path: &Path, log: u64) -> Result<Kept, String> {
        let form = match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                format!("{}: it does not say which history of the group the log holds ({error}): move it away, and this member takes the whole state of another", path.display())
            })?,
            Err(error) if error.kind() == ErrorKind::NotFound => Form::default(),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        Ok(Kept { path: path.to_owned(), form, log })
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
        let form = Form { lineage, epoch: epoch.max(self.form.epoch), log: Some(self.log) };
        // What is said of another log stays while this one has taken part in nothing: that one may be brought back.
        let is_of_another = self.form.lineage.is_some() && self.lineage().is_none();
        if form == self.form || (is_of_another && lineage.is_none()) {
            return Ok(());
        }
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

    fn write(&self, form: &Form) -> io::Result<()> {
        let beside = self.path.with_extension("group-new");
        let mut file = File::create(&beside)?;
        file.write_all(&serde_json::to_vec(form).expect("two numbers are JSON"))?;
        file.sync_all()?;
        std::fs::rename(&beside, &self.path)?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
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

    #[test]
    fn who_has_no_room_is_told_to_make_some() {
        let kept = Kept { path: "kv.wal.group".into(), form: Form::default(), log: 0 };
        let problem = kept.describe(&ErrorKind::StorageFull.into());
        assert!(problem.contains("view of the group to kv.wal.group") && problem.contains("make room"));
    }
}
