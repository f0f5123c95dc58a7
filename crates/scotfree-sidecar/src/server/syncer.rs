//! The thread that syncs the server's append-only files, since a sync blocks.
//!
//! Invariant: one sync at a time, each answered once.

use crate::aof::{self, Synced};
use scotfree_io::Waker;
use scotfree_resp::back::AofFiles;
use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Why files could not be synced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct SyncError {
    text: String,
    /// We may not open them, which no waiting changes.
    pub is_denied: bool,
}

/// A thread that syncs on demand.
pub struct Syncer {
    wishes: Option<Sender<AofFiles>>,
    results: Receiver<Result<bool, SyncError>>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    /// Starts the thread. It notes the synced sizes in a file, if one is given.
    pub fn start(sizes: Option<PathBuf>) -> io::Result<Syncer> {
        let (wishes, wished) = channel::<AofFiles>();
        let (answers, results) = channel();
        let waker = Arc::new(Waker::new()?);
        let wakes = Arc::clone(&waker);
        let work = move || {
            while let Ok(files) = wished.recv() {
                let result = sync(&files, sizes.as_deref());
                let gone = answers.send(result).is_err();
                wakes.wake();
                if gone {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name("scotfree-sync".to_owned()).spawn(work)?;
        Ok(Syncer { wishes: Some(wishes), results, waker, thread: Some(thread) })
    }

    /// Asks for a sync.
    pub fn sync(&self, files: AofFiles) {
        if let Some(wishes) = &self.wishes {
            // The thread ends only with us, so somebody listens.
            let _ = wishes.send(files);
        }
    }

    /// What came of a sync, if one is over: whether what the server has appended is on stable storage, or the server is
    /// writing its files anew and none of them counts yet.
    pub fn result(&self) -> Option<Result<bool, SyncError>> {
        self.waker.drain();
        self.results.try_recv().ok()
    }

    /// Readable when a result waits.
    pub fn fd(&self) -> RawFd {
        self.waker.as_raw_fd()
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.wishes = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn sync(files: &AofFiles, sizes: Option<&Path>) -> Result<bool, SyncError> {
    let name = files.folder.display();
    match aof::sync(files) {
        Ok(synced) => sizes.map_or(Ok(()), |path| note(path, &synced)).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => {
            let next = match error.kind() {
                io::ErrorKind::NotFound => {
                    "that is where the server's settings `dir` and `appenddirname` say that they are: put `dir` back if it was \
                     changed (redis-cli CONFIG SET dir …), or have the server write them anew there (BGREWRITEAOF)"
                }
                _ => "run scot as a user who can read the server's files (in the server's group, for instance)",
            };
            let text = format!("syncing the append-only files in {name} failed: {error}; {next}");
            Err(SyncError { text, is_denied: error.kind() == io::ErrorKind::PermissionDenied })
        }
    }
}

/// Replaces the note of synced sizes: a size and a path a line.
fn note(path: &Path, synced: &[Synced]) -> Result<(), SyncError> {
    let mut lines = String::new();
    for file in synced {
        let _ = writeln!(lines, "{} {}", file.bytes, file.path.display());
    }
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, lines).and_then(|()| std::fs::rename(&fresh, path)).map_err(|error| {
        let text = format!("noting the synced sizes in {} failed: {error}", path.display());
        SyncError { text, is_denied: false }
    })
}
