//! Syncing a server's append-only files from another process, and reading how they end.
//!
//! Invariant: a file is reported with the size it had before the sync, so everything up to that size is on
//! stable storage. Syncing goes by the file, not by the descriptor, so a foreign writer's bytes count.

mod ending;

pub use ending::ending;

use scotfree_resp::back::AofFiles;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file that was synced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Synced {
    /// Which.
    pub path: PathBuf,
    /// So many bytes of it are on stable storage.
    pub bytes: u64,
}

/// Syncs all files that hold appended commands, and their folder.
///
/// An error, [`io::ErrorKind::WouldBlock`], while the server has given its files up and writes new ones: what it appends
/// then counts only when these are complete.
pub fn sync(files: &AofFiles) -> io::Result<Vec<Synced>> {
    if files.is_rewriting && files.uncounted().exists() {
        let text = "the server is writing its append-only files anew";
        return Err(io::Error::new(io::ErrorKind::WouldBlock, text));
    }
    let mut synced = Vec::new();
    for entry in std::fs::read_dir(&files.folder)? {
        let entry = entry?;
        if !entry.file_name().to_str().is_some_and(|name| files.matches(name)) {
            continue;
        }
        match sync_file(entry.path()) {
            Ok(file) => synced.push(file),
            // A rewrite has replaced it: what it held is in the new base, which the server has synced.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    if synced.is_empty() {
        let text = format!("no append-only file `{}` in {}", files.name, files.folder.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    File::open(&files.folder)?.sync_all()?;
    Ok(synced)
}

/// Opens a file of the server's for reading. Opening a pipe would wait for somebody who writes to it.
fn open_regular(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    let text = format!("{} is no regular file; put the server's own file back", path.display());
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

fn sync_file(path: PathBuf) -> io::Result<Synced> {
    let file = open_regular(&path)?;
    let bytes = file.metadata()?.len();
    file.sync_data()?;
    Ok(Synced { path, bytes })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A pipe that nobody writes to.
    pub fn make_pipe(path: &Path) {
        let status = std::process::Command::new("mkfifo").arg(path).status();
        assert!(status.expect("mkfifo is everywhere").success());
    }

    #[test]
    fn only_appended_files_are_synced_and_none_is_an_error() {
        let folder = std::env::temp_dir().join(format!("scot-aof-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
        let files = AofFiles {
            folder: folder.clone(),
            name: "a.aof".to_owned(),
            has_parts: true,
            is_rewriting: false,
        };
        std::fs::write(folder.join("a.aof.1.base.rdb"), b"base").expect("writable");
        assert_eq!(sync(&files).expect_err("nothing to sync").kind(), io::ErrorKind::NotFound);
        std::fs::write(folder.join("a.aof.1.incr.aof"), b"12345").expect("writable");
        let synced = sync(&files).expect("there is a file");
        assert_eq!(synced, [Synced { path: folder.join("a.aof.1.incr.aof"), bytes: 5 }]);
        // What a server that died has left is no reason, but while files are written anew.
        std::fs::write(files.uncounted(), b"6").expect("writable");
        assert!(sync(&files).is_ok());
        let anew = AofFiles { is_rewriting: true, ..files.clone() };
        assert_eq!(sync(&anew).expect_err("it does not count yet").kind(), io::ErrorKind::WouldBlock);
        std::fs::remove_file(files.uncounted()).expect("it is ours");
        assert!(sync(&anew).is_ok(), "an ordinary rewrite");
        make_pipe(&folder.join("a.aof.2.incr.aof"));
        assert!(sync(&files).expect_err("a pipe").to_string().contains("no regular file"));
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }
}
