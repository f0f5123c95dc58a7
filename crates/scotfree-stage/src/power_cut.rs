//! What a power failure takes from a server's append-only file: everything behind the last sync, or behind
//! some place after it.
//!
//! Invariant: nothing is cut that the sidecar had seen synced. The sidecar notes the size that a file had
//! before it was synced, so a kill between sync and note only makes the note too small.

use crate::site::Site;
use crate::trouble::Trouble;
use crate::workload::Random;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Cuts files back.
#[derive(Debug)]
pub struct PowerCut {
    // Where the sidecar notes what is synced: lines of a size and a path.
    sizes: PathBuf,
}

impl PowerCut {
    /// Of what lies on a site's server.
    pub fn new(site: &Site<'_>) -> PowerCut {
        PowerCut { sizes: site.folder().join("synced-sizes") }
    }

    /// The file in which the sidecar notes what is synced.
    pub fn sizes_file(&self) -> &Path {
        &self.sizes
    }

    /// Cuts every file that was synced, in half of the cases to its synced size, else to some size above
    /// it. Returns how many bytes were lost.
    pub fn cut(&self, random: &mut Random) -> Result<u64, Trouble> {
        let kept_bytes = |unsynced_bytes| match random.below(2) {
            0 => 0,
            _ => random.below(unsynced_bytes + 1),
        };
        cut_back(&self.synced()?, kept_bytes)
    }

    /// How many bytes it could take now; while the server runs, less a moment later.
    pub fn unsynced_bytes(&self) -> Result<u64, Trouble> {
        // A file that is gone has been replaced by one that was synced.
        let unsynced = |file: &SyncedFile| {
            fs::metadata(&file.path).map_or(0, |found| found.len().saturating_sub(file.bytes))
        };
        Ok(self.synced()?.iter().map(unsynced).sum())
    }

    /// Which files were synced, and how far. None while nothing was synced, and nothing called stable.
    pub fn synced(&self) -> Result<Vec<SyncedFile>, Trouble> {
        synced_in(&self.sizes)
    }
}

/// What a file of synced sizes says; nothing if it is not there.
pub fn synced_in(sizes: &Path) -> Result<Vec<SyncedFile>, Trouble> {
    match fs::read_to_string(sizes) {
        Ok(text) => Ok(text.lines().filter_map(parse).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(Trouble::file("read", sizes, &error)),
    }
}

/// A file, and how much of it a power failure leaves at least.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncedFile {
    /// Where it is.
    pub path: PathBuf,
    /// How many bytes were synced.
    pub bytes: u64,
}

fn parse(line: &str) -> Option<SyncedFile> {
    let (bytes, path) = line.split_once(' ')?;
    Some(SyncedFile { path: path.into(), bytes: bytes.parse().ok()? })
}

/// Cuts files back to what was synced, and to so many bytes more, of those that there are. Returns how many bytes
/// were lost.
pub fn cut_back(files: &[SyncedFile], mut kept_bytes: impl FnMut(u64) -> u64) -> Result<u64, Trouble> {
    let mut lost = 0;
    for SyncedFile { path, bytes } in files {
        lost +=
            cut_file(path, *bytes, &mut kept_bytes).map_err(|error| Trouble::file("cut", path, &error))?;
    }
    Ok(lost)
}

fn cut_file(path: &Path, synced_bytes: u64, kept_bytes: &mut impl FnMut(u64) -> u64) -> io::Result<u64> {
    let file = match OpenOptions::new().write(true).open(path) {
        Ok(file) => file,
        // A rewrite has replaced it, and has synced what replaced it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let bytes = file.metadata()?.len();
    let unsynced_bytes = bytes.saturating_sub(synced_bytes);
    let kept_bytes = kept_bytes(unsynced_bytes);
    if unsynced_bytes > kept_bytes {
        file.set_len(synced_bytes + kept_bytes)?;
    }
    Ok(unsynced_bytes - kept_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn what_was_synced_stays_and_at_most_the_rest_is_lost() {
        let folder = Scratch::new("cut").expect("temporary files can be written");
        let (file, power) = (folder.path().join("a.log"), PowerCut { sizes: folder.path().join("sizes") });
        let mut random = Random::new(1, 0);
        assert_eq!(power.cut(&mut random), Ok(0), "nothing was noted yet");
        let gone = folder.path().join("gone").display().to_string();
        fs::write(&power.sizes, format!("60 {}\n7 {gone}\nnonsense\n", file.display())).expect("memory");
        let mut whole_rest = 0;
        for _ in 0..50 {
            fs::write(&file, [1; 100]).expect("it can be written");
            assert_eq!(power.unsynced_bytes(), Ok(40));
            let lost = power.cut(&mut random).expect("it is cut");
            let left = file.metadata().expect("it is there").len();
            assert!((60..=100).contains(&left) && left + lost == 100, "{left} {lost}");
            whole_rest += u32::from(left == 60);
        }
        assert!((20..50).contains(&whole_rest), "the whole rest is lost often, not always: {whole_rest}");
        fs::write(&file, [1; 100]).expect("it can be written");
        let synced = power.synced().expect("it was noted");
        assert_eq!(synced.len(), 2, "nonsense is none: {synced:?}");
        assert_eq!(cut_back(&synced, |_| 0), Ok(40), "nothing is kept that was not synced");
        fs::write(&file, [1; 40]).expect("it can be written");
        assert_eq!(power.cut(&mut random), Ok(0), "a file is never made longer");
        assert_eq!(file.metadata().expect("it is there").len(), 40);
    }
}
