//! How far a Redis has synced its append-only files, seen from outside.
//!
//! Invariant: whatever a sync has put on the disk counts as synced. Redis syncs in a thread of its own, which sleeps
//! between syncs; a sync that ended between two looks has let it sleep once more, and then everything that is in the
//! files by now is taken for synced.

use scotfree_stage::power_cut::SyncedFile;
use scotfree_stage::process::{sleeps_in, Process};
use scotfree_stage::trouble::Trouble;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What Redis 6.2 to 8 and Valkey call the thread, at its beginning.
const THREAD: &str = "bio_aof";

/// Watches one Redis.
#[derive(Debug)]
pub(super) struct SyncWatch {
    folder: PathBuf,
    // The status of the thread that syncs.
    status: PathBuf,
    sleeps: u64,
    synced: Vec<SyncedFile>,
}

impl SyncWatch {
    /// Begins to watch a Redis with its files in a folder: what is in them now is taken for synced.
    pub fn start(redis: &Process, folder: PathBuf) -> Result<SyncWatch, Trouble> {
        let status = status_of_thread(redis.pid()).map_err(|error| {
            Trouble::new(
                format!("find the thread with which {} syncs", redis.name()),
                error,
                "show the demonstration without a Redis: scot demo --service kv",
            )
        })?;
        // In this order: a sync between the two is seen by the next look.
        let sleeps = sleeps_of_thread(&status)?;
        let synced = sizes_in(&folder)?;
        Ok(SyncWatch { folder, status, sleeps, synced })
    }

    /// Looks again; whether there was a sync since the last look, or is one.
    pub fn look(&mut self) -> Result<bool, Trouble> {
        let sleeps = sleeps_of_thread(&self.status)?;
        if sleeps == self.sleeps {
            return Ok(false);
        }
        self.sleeps = sleeps;
        self.synced = sizes_in(&self.folder)?;
        Ok(true)
    }

    /// How much a power failure would leave, at most, by the last look.
    pub fn synced(&self) -> &[SyncedFile] {
        &self.synced
    }
}

fn status_of_thread(pid: u32) -> io::Result<PathBuf> {
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let thread = thread?.path();
        // Another may end while we look.
        if fs::read_to_string(thread.join("comm")).is_ok_and(|name| name.starts_with(THREAD)) {
            return Ok(thread.join("status"));
        }
    }
    Err(io::Error::other(format!("none of its threads is called {THREAD}…")))
}

fn sleeps_of_thread(status: &Path) -> Result<u64, Trouble> {
    let fault = |error: io::Error| Trouble::file("read", status, &error);
    let text = fs::read_to_string(status).map_err(fault)?;
    sleeps_in(&text).ok_or_else(|| fault(io::Error::other("it does not say how often the thread slept")))
}

/// The append-only files, of Redis 6 in the folder itself and since Redis 7 in one below it.
fn sizes_in(folder: &Path) -> Result<Vec<SyncedFile>, Trouble> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let fault = |error: io::Error| Trouble::file("read the folder", &folder, &error);
        for entry in fs::read_dir(&folder).map_err(fault)? {
            let entry = entry.map_err(fault)?;
            let file = entry.metadata().map_err(fault)?;
            if file.is_dir() {
                folders.push(entry.path());
            } else if entry.path().extension().is_some_and(|ending| ending == "aof") {
                found.push(SyncedFile { path: entry.path(), bytes: file.len() });
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_stage::process::wait_until;
    use scotfree_stage::scratch::Scratch;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn what_was_written_since_the_thread_last_slept_is_not_synced() {
        let folder = Scratch::new("sync-watch").expect("temporary files can be written");
        let below = folder.path().join("appendonlydir");
        fs::create_dir(&below).expect("it can be made");
        let file = below.join("appendonly.aof.1.incr.aof");
        fs::write(&file, [1; 10]).expect("it can be written");
        fs::write(below.join("appendonly.aof.manifest"), "no data").expect("it can be written");
        let (wake, woken) = channel::<()>();
        let syncs = thread::Builder::new().name("bio_aof_fsync".into());
        let syncs = syncs.spawn(move || woken.iter().for_each(drop)).expect("a thread");
        let pid = std::process::id();
        let named = || status_of_thread(pid).is_ok();
        assert!(wait_until(Duration::from_secs(20), named), "the thread has its name");
        let status = status_of_thread(pid).expect("it is there");
        let mut watch =
            SyncWatch { folder: folder.path().into(), status, sleeps: u64::MAX, synced: Vec::new() };
        assert!(wait_until(Duration::from_secs(20), || watch.look().is_ok_and(|has_synced| !has_synced)));
        let of = |bytes| vec![SyncedFile { path: file.clone(), bytes }];
        assert_eq!(watch.synced(), of(10));
        fs::write(&file, [1; 30]).expect("it can be written");
        assert_eq!((watch.look(), watch.synced()), (Ok(false), &of(10)[..]), "nobody has synced");
        wake.send(()).expect("it listens");
        assert!(wait_until(Duration::from_secs(20), || watch.look() == Ok(true)), "it has slept again");
        assert_eq!(watch.synced(), of(30));
        drop(wake);
        syncs.join().expect("it ends");
    }

    #[test]
    fn a_process_that_has_no_such_thread_is_named() {
        let error = status_of_thread(1).expect_err("process 1 is no Redis").to_string();
        assert!(!error.is_empty(), "{error}");
    }
}
