//! What a power failure takes from a server's append-only file: everything behind the last sync, or behind
//! some place after it.
//!
//! Invariant: nothing is cut that the sidecar had seen synced. The sidecar notes the size that a file had
//! before it was synced, so a kill between sync and note only makes the note too small.

use crate::runs::site::Site;
use crate::trouble::Trouble;
use crate::workload::Random;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Cuts files back.
#[derive(Debug)]
pub(super) struct PowerCut {
    // Where the sidecar notes what is synced: lines of a size and a path.
    sizes: PathBuf,
}

impl PowerCut {
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
        let synced = match fs::read_to_string(&self.sizes) {
            Ok(text) => text,
            // Nothing has been synced yet, and nothing called stable.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(Trouble::file("read", &self.sizes, &error)),
        };
        let mut lost = 0;
        for line in synced.lines() {
            let Some((bytes, path)) = parse(line) else { continue };
            lost += cut_file(path, bytes, random).map_err(|error| Trouble::file("cut", path, &error))?;
        }
        Ok(lost)
    }
}

fn parse(line: &str) -> Option<(u64, &Path)> {
    let (bytes, path) = line.split_once(' ')?;
    Some((bytes.parse().ok()?, Path::new(path)))
}

fn cut_file(path: &Path, synced_bytes: u64, random: &mut Random) -> io::Result<u64> {
    let file = match OpenOptions::new().write(true).open(path) {
        Ok(file) => file,
        // A rewrite has replaced it, and has synced what replaced it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let bytes = file.metadata()?.len();
    let unsynced_bytes = bytes.saturating_sub(synced_bytes);
    let kept_bytes = if random.below(2) == 0 { 0 } else { random.below(unsynced_bytes + 1) };
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
            let lost = power.cut(&mut random).expect("it is cut");
            let left = file.metadata().expect("it is there").len();
            assert!((60..=100).contains(&left) && left + lost == 100, "{left} {lost}");
            whole_rest += u32::from(left == 60);
        }
        assert!((20..50).contains(&whole_rest), "the whole rest is lost often, not always: {whole_rest}");
        fs::write(&file, [1; 40]).expect("it can be written");
        assert_eq!(power.cut(&mut random), Ok(0), "a file is never made longer");
        assert_eq!(file.metadata().expect("it is there").len(), 40);
    }
}
