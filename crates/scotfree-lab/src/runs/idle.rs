//! How long the idle processors of a virtual machine look for work before they halt.
//!
//! Invariant: what an experiment sets here is as it was before when the experiment is over, also if it fails.

use scotfree_stage::environment::HALT_POLL_FILE;
use scotfree_stage::trouble::Trouble;
use std::fs;
use std::path::{Path, PathBuf};

/// Has idle processors look for so long, as long as this lives. To wake one that has halted takes a way through the
/// host, which who wakes it pays for.
pub(super) struct HaltPoll {
    file: PathBuf,
    before: String,
}

impl HaltPoll {
    pub(super) fn set(nanos: u64) -> Result<HaltPoll, Trouble> {
        HaltPoll::set_in(Path::new(HALT_POLL_FILE), nanos)
    }

    fn set_in(file: &Path, nanos: u64) -> Result<HaltPoll, Trouble> {
        let refused = |error| {
            Trouble::new(
                format!("have idle processors look for {nanos} ns before they halt ({})", file.display()),
                error,
                "it takes root, and a virtual machine whose kernel has cpuidle-haltpoll",
            )
        };
        let before = fs::read_to_string(file).map_err(refused)?;
        fs::write(file, nanos.to_string()).map_err(refused)?;
        Ok(HaltPoll { file: file.to_owned(), before })
    }

    /// What holds now.
    pub(super) fn nanos(&self) -> u64 {
        fs::read_to_string(&self.file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }
}

impl Drop for HaltPoll {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.file, self.before.trim()) {
            eprintln!("scot: {} stays at {}: {error}", self.file.display(), self.nanos());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_stage::scratch::Scratch;

    #[test]
    fn what_was_set_is_as_before_afterwards() {
        let folder = Scratch::new("halt-poll").expect("temporary files can be written");
        let file = folder.path().join("guest_halt_poll_ns");
        fs::write(&file, "7\n").expect("it can be written");
        let look = HaltPoll::set_in(&file, 200_000).expect("it is there");
        assert_eq!(look.nanos(), 200_000);
        drop(look);
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "7");
        let missing = HaltPoll::set_in(&folder.path().join("none"), 1).err().expect("it is not there");
        assert!(missing.to_string().contains("cpuidle-haltpoll"), "{missing}");
    }
}
