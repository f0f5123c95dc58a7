//! Files with the cluster's secret: 32 bytes in hexadecimal, for their owner's eyes only.
//!
//! Invariant: a key that others could have read is refused, and no file is ever overwritten.

use crate::failure::Failure;
use scotfree_lab::config::read_text;
use scotfree_wire::ClusterKey;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

const KEY_BYTES: usize = 32;
// Larger files are no keys.
const SECRET_BYTES_MAX: u64 = 4_096;

/// Reads a key.
pub fn read(path: &Path) -> Result<ClusterKey, Failure> {
    let text = read_secret(path, "scot key new")?;
    let key = decode(text.trim()).ok_or_else(|| {
        let allowed = format!("allowed are {} hexadecimal digits", 2 * KEY_BYTES);
        Failure::usage(format!("{}: this is no key; {allowed}; make one: scot key new FILE", path.display()))
    })?;
    Ok(ClusterKey::from_bytes(key))
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
    let mut random = [0; KEY_BYTES];
    getrandom::fill(&mut random).map_err(|error| {
        Failure::environment(format!("ask the system for random numbers: {error}; no key was made"))
    })?;
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

fn decode(text: &str) -> Option<[u8; KEY_BYTES]> {
    if text.len() != 2 * KEY_BYTES || !text.is_ascii() {
        return None;
    }
    let mut key = [0; KEY_BYTES];
    for (index, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_lab::scratch::Scratch;
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
    fn what_is_no_key_is_refused() {
        let folder = Scratch::new("key-bad").expect("temporary files can be written");
        let path = folder.path().join("bad.key");
        assert!(read(&path).expect_err("it is not there").to_string().contains("scot key new"));
        for text in ["", "abc", &"g".repeat(64), &"é".repeat(32), &"a".repeat(66)] {
            fs::write(&path, text).expect("it can be written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
            let failure = read(&path).expect_err(text);
            assert!(failure.code() == 2 && failure.to_string().contains("64 hexadecimal"), "{failure}");
        }
    }
}
