//! Files with the cluster's secrets, for their owner's eyes only: a line for each epoch, from the oldest to the
//! newest, with the epoch's number and 32 bytes in hexadecimal. A line without a number is of epoch 0.
//!
//! Invariant: a key that others could have read is refused; a file is replaced as a whole or not at all, and no
//! secret is ever replaced by another.

use crate::failure::Failure;
use scotfree_io::lifetime::try_lock;
use scotfree_stage::config::read_text;
use scotfree_wire::{ClusterKey, KeyEpoch, KEY_EPOCHS_MAX};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const KEY_BYTES: usize = 32;
// Larger files are no keys.
const SECRET_BYTES_MAX: u64 = 4_096;

/// Reads a key.
pub fn read(path: &Path) -> Result<ClusterKey, Failure> {
    read_secrets(path).map(|(key, _)| key)
}

type Secrets = Vec<(KeyEpoch, [u8; KEY_BYTES])>;

fn read_secrets(path: &Path) -> Result<(ClusterKey, Secrets), Failure> {
    let text = read_secret(path, "scot key new")?;
    let secrets = ClusterKey::secrets_of(&text);
    let key = secrets.clone().and_then(ClusterKey::from_epochs).zip(secrets);
    key.ok_or_else(|| {
        let allowed = format!(
            "allowed are up to {KEY_EPOCHS_MAX} lines of {} hexadecimal digits behind the number of their epoch, the \
             largest last",
            2 * KEY_BYTES
        );
        Failure::usage(format!("{}: this is no key; {allowed}; make one: scot key new FILE", path.display()))
    })
}

/// Adds a secret, unless the newest epoch is `epoch` already.
pub fn rotate(path: &Path, epoch: Option<KeyEpoch>) -> Result<ClusterKey, Failure> {
    let (path, _alone) = alone(path)?;
    let path = path.as_path();
    let shown = path.display();
    let (key, mut secrets) = read_secrets(path)?;
    let newest = key.newest();
    if epoch == Some(newest) {
        return Ok(key);
    }
    let epoch = epoch.or(newest.0.checked_add(1).map(KeyEpoch)).filter(|epoch| *epoch > newest);
    let epoch = epoch.ok_or_else(|| {
        Failure::usage(format!(
            "{shown}: its newest epoch is {} already; name a larger one, or none",
            newest.0
        ))
    })?;
    secrets.push((epoch, random()?));
    let rotated = ClusterKey::from_epochs(secrets.clone()).ok_or_else(|| {
        Failure::usage(format!(
            "{shown} has {KEY_EPOCHS_MAX} epochs; take away the old ones first: scot key retire {shown}"
        ))
    })?;
    replace(path, &secrets)?;
    Ok(rotated)
}

/// Takes all secrets but the newest away.
pub fn retire(path: &Path) -> Result<ClusterKey, Failure> {
    let (path, _alone) = alone(path)?;
    let path = path.as_path();
    let (key, mut secrets) = read_secrets(path)?;
    if secrets.len() == 1 {
        return Ok(key);
    }
    let newest = secrets.split_off(secrets.len() - 1);
    replace(path, &newest)?;
    Ok(ClusterKey::from_epochs(newest).expect("one secret is a key"))
}

/// Keeps others from changing a key as long as the file that is returned is open; of two that read the same file
/// the later would replace what the earlier has said. Where a link leads, the file is the one to change.
fn alone(path: &Path) -> Result<(PathBuf, Option<File>), Failure> {
    let file = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    // What cannot be read is told by who reads it.
    let Some(opened) = file.is_file().then(|| File::open(&file).ok()).flatten() else {
        return Ok((file, None));
    };
    // Whoever had it may have put another file in its place since it was opened.
    let is_ours = try_lock(&opened)
        .and_then(|is_locked| Ok(is_locked && opened.metadata()?.ino() == fs::metadata(&file)?.ino()));
    match is_ours {
        Ok(true) => Ok((file, Some(opened))),
        Ok(false) => {
            let problem = format!("another scot key changes {} now", path.display());
            Err(Failure::environment(format!("{problem}; nothing was changed, try again when it is done")))
        }
        Err(error) => {
            let next = "nothing was changed; see whether it is yours";
            Err(Failure::tried(format!("lock {}", path.display()), &error, next))
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A reader finds the old file or the new one.
fn replace(path: &Path, secrets: &Secrets) -> Result<(), Failure> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let beside = Path::new(&name);
    let failed = |error: &io::Error| {
        let next = "the file is as it was; see whether its folder is yours and has room";
        Failure::tried(format!("replace {}", path.display()), error, next)
    };
    // Of a try that was broken off.
    if let Err(error) = fs::remove_file(beside).or_else(ignore_missing) {
        return Err(failed(&error));
    }
    let text = secrets.iter().fold(String::new(), |text, (epoch, secret)| {
        text + &epoch.0.to_string() + " " + &encode(secret) + "\n"
    });
    let written = (|| {
        let owner = fs::metadata(path)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(beside)?;
        file.write_all(text.as_bytes())?;
        std::os::unix::fs::fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
        file.sync_all()?;
        fs::rename(beside, path)?;
        File::open(folder_of(path))?.sync_all()
    })();
    written.map_err(|error| {
        let _ = fs::remove_file(beside);
        failed(&error)
    })
}

fn ignore_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound {
        Ok(())
    } else {
        Err(error)
    }
}

fn random() -> Result<[u8; KEY_BYTES], Failure> {
    let mut random = [0; KEY_BYTES];
    getrandom::fill(&mut random).map_err(|error| {
        Failure::environment(format!("ask the system for random numbers: {error}; no key was made"))
    })?;
    Ok(random)
}

/// The text of a file that only its owner may read.
pub fn read_secret(path: &Path, maker: &str) -> Result<String, Failure> {
    let shown = path.display();
    let failed = |error: io::Error| {
        let next = match error.kind() {
            io::ErrorKind::NotFound => format!("name an existing file, or make one: {maker} {shown}"),
            io::ErrorKind::PermissionDenied => "run as its owner, or name a file that is yours".to_owned(),
            _ => format!("name a regular file, or make one: {maker} FILE"),
        };
        Failure::usage(format!("read the secret in {shown}: {error}; {next}"))
    };
    let found = fs::metadata(path).map_err(failed)?;
    let mode = found.mode() & 0o777;
    if found.is_file() && mode & !0o600 != 0 {
        let problem = format!("{shown} has mode {mode:04o}: others may use the secret in it");
        return Err(Failure::usage(format!(
            "{problem}; chmod 600 {shown}, and make a new one if they could read it"
        )));
    }
    read_text(path, SECRET_BYTES_MAX).map_err(failed)
}

/// Makes a key in a new file.
pub fn create(path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    let random = random()?;
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(|error| {
            let next = if error.kind() == io::ErrorKind::AlreadyExists {
                "a key is never overwritten: choose another name, or remove the file if no one needs it"
            } else {
                "name a file in a folder that is yours"
            };
            Failure::tried(format!("create {shown}"), &error, next)
        })?;
    file.write_all(format!("{}\n", encode(&random)).as_bytes()).and_then(|()| file.sync_all()).map_err(
        |error| {
            // Half a key would only stand in the way of the next try.
            let _ = fs::remove_file(path);
            let next = "no key was made; make room (df), or name a file on another disk";
            Failure::tried(format!("write {shown}"), &error, next)
        },
    )
}

fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_stage::scratch::Scratch;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_new_key_is_read_back_and_never_overwritten() {
        let folder = Scratch::new("key").expect("temporary files can be written");
        let path = folder.path().join("a.key");
        create(&path).expect("the name is free");
        let key = read(&path).expect("it is a key");
        let failure = create(&path).expect_err("it exists");
        assert_eq!(failure.code(), 3);
        assert!(failure.to_string().contains("never overwritten"), "{failure}");
        assert_eq!(read(&path).expect("it is a key"), key);
        let other = folder.path().join("b.key");
        create(&other).expect("the name is free");
        assert_ne!(read(&other).expect("it is a key"), key);
    }

    #[test]
    fn a_key_that_others_may_use_is_refused_with_the_mend() {
        let folder = Scratch::new("key-mode").expect("temporary files can be written");
        let path = folder.path().join("a.key");
        create(&path).expect("the name is free");
        for mode in [0o640, 0o604, 0o666, 0o601, 0o700] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
            let shown = read(&path).expect_err("it is too open").to_string();
            assert!(shown.contains(&format!("chmod 600 {}", path.display())), "{shown}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).expect("it is ours");
        read(&path).expect("less than 0600 is fine");
    }

    #[test]
    fn what_is_no_file_gets_no_advice_about_modes() {
        let folder = Scratch::new("key-kind").expect("temporary files can be written");
        for path in [folder.path(), Path::new("/dev/zero")] {
            let shown = read(path).expect_err("it is no file").to_string();
            assert!(shown.contains("not a regular file") && !shown.contains("chmod"), "{shown}");
        }
        let large = folder.path().join("large");
        fs::write(&large, "a".repeat(SECRET_BYTES_MAX as usize + 1)).expect("it can be written");
        fs::set_permissions(&large, fs::Permissions::from_mode(0o600)).expect("it is ours");
        assert!(read(&large).expect_err("it is too large").to_string().contains("more than 4096 bytes"));
    }

    #[test]
    fn two_that_change_a_key_do_not_undo_each_other() {
        let folder = Scratch::new("key-alone").expect("temporary files can be written");
        let path = folder.path().join("a.key");
        create(&path).expect("the name is free");
        let before = read(&path).expect("it is a key");
        let (_, other) = alone(&path).expect("nobody else is at it");
        for refused in [rotate(&path, None), retire(&path)] {
            let shown = refused.expect_err("another is at it").to_string();
            assert!(shown.contains("nothing was changed, try again"), "{shown}");
        }
        assert_eq!(read(&path).expect("it is a key"), before);
        drop(other);
        rotate(&path, None).expect("nobody is at it any more");
    }

    #[test]
    fn a_rotation_changes_the_file_that_a_link_leads_to() {
        let folder = Scratch::new("key-link").expect("temporary files can be written");
        let (path, link) = (folder.path().join("a.key"), folder.path().join("link.key"));
        create(&path).expect("the name is free");
        std::os::unix::fs::symlink("a.key", &link).expect("the name is free");
        let rotated = rotate(&link, None).expect("there is room");
        assert_eq!(read(&path).expect("it is a key"), rotated);
        assert!(fs::symlink_metadata(&link).expect("it is there").is_symlink());
    }

    #[test]
    fn a_rotation_adds_an_epoch_and_is_done_once() {
        let folder = Scratch::new("key-rotate").expect("temporary files can be written");
        let path = folder.path().join("a.key");
        create(&path).expect("the name is free");
        let before = read(&path).expect("it is a key");
        assert_eq!(before.epochs().collect::<Vec<_>>(), [KeyEpoch(0)]);
        fs::write(folder.path().join("a.key.new"), "left by a try that was broken off")
            .expect("it can be written");
        let rotated = rotate(&path, None).expect("there is room");
        assert_eq!(rotated.epochs().collect::<Vec<_>>(), [KeyEpoch(0), KeyEpoch(1)]);
        assert_eq!(read(&path).expect("it is a key"), rotated);
        assert_eq!(rotate(&path, Some(KeyEpoch(1))).expect("it has it"), rotated);
        assert_eq!(rotate(&path, Some(KeyEpoch(0))).expect_err("it is older").code(), 2);
        assert_eq!(fs::metadata(&path).expect("it is there").mode() & 0o777, 0o600);
        let retired = retire(&path).expect("it is ours");
        assert_eq!(retired.epochs().collect::<Vec<_>>(), [KeyEpoch(1)]);
        assert!(
            read(&path).expect("it is a key") == retired && retire(&path).expect("nothing to do") == retired
        );
        let names = fs::read_dir(folder.path()).expect("it is there").count();
        assert_eq!(names, 1, "nothing is left beside it");
    }

    #[test]
    fn there_are_only_so_many_epochs() {
        let folder = Scratch::new("key-full").expect("temporary files can be written");
        let path = folder.path().join("a.key");
        create(&path).expect("the name is free");
        for _ in 1..KEY_EPOCHS_MAX {
            rotate(&path, None).expect("there is room");
        }
        let full = read(&path).expect("it is a key");
        let failure = rotate(&path, None).expect_err("it is full");
        assert!(failure.to_string().contains("scot key retire"), "{failure}");
        assert_eq!(read(&path).expect("it is a key"), full);
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let folder = Scratch::new("key-bad").expect("temporary files can be written");
        let path = folder.path().join("bad.key");
        assert!(read(&path).expect_err("it is not there").to_string().contains("scot key new"));
        let line = |epoch: &str| format!("{epoch} {}\n", "a".repeat(64));
        let falling = line("2") + &line("1");
        let twice = line("1") + &line("1");
        let many: String = (0..=KEY_EPOCHS_MAX).map(|epoch| line(&epoch.to_string())).collect();
        let wrong = [falling, twice, many, line("x"), line("+1"), line("4294967296"), "+a".repeat(32)];
        let none = [String::new(), "abc".to_owned(), "g".repeat(64), "é".repeat(32), "a".repeat(66)];
        for text in wrong.iter().chain(&none) {
            fs::write(&path, text).expect("it can be written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
            let failure = read(&path).expect_err(text);
            assert!(failure.code() == 2 && failure.to_string().contains("64 hexadecimal"), "{failure}");
        }
    }
}
