//! The disk on which a path lies: what rates of reading and writing are limited of.
//!
//! Invariant: a path without a disk behind it has no limit on its disk, and that is said.

use super::hierarchy::Mount;
use crate::trouble::Trouble;
use serde::Serialize;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A disk, as the kernel's groups name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Disk {
    /// Its number, `254:0`.
    pub number: String,
    /// Its name, `vda`.
    pub name: String,
}

/// The disks behind paths, each once.
pub fn disks_of<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<Vec<Disk>, Trouble> {
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut disks = paths.into_iter().map(|path| disk_of(path, &mountinfo)).collect::<Result<Vec<_>, _>>()?;
    disks.sort();
    disks.dedup();
    Ok(disks)
}

fn disk_of(path: &Path, mountinfo: &str) -> Result<Disk, Trouble> {
    let whole = path.canonicalize().map_err(|error| Trouble::file("find", path, &error))?;
    let mount = mount_of(&whole, mountinfo);
    let number = mount.as_ref().and_then(number_of);
    number.as_deref().and_then(|number| whole_disk(number, Path::new("/sys/dev/block"))).ok_or_else(|| {
        let kind = mount.map_or("an unknown file system".to_owned(), |mount| mount.kind);
        Trouble::new(
            format!("find the disk of {}", path.display()),
            format!("it lies on {kind}, and no disk can be seen behind that"),
            "name a folder that lies on a disk (TMPDIR, for temporary files), or leave the limits on disks out",
        )
    })
}

/// Where a path is mounted: the last of the longest places, since later mounts cover earlier ones.
fn mount_of(path: &Path, mountinfo: &str) -> Option<Mount> {
    let mounts = mountinfo.lines().filter_map(Mount::parse).filter(|mount| path.starts_with(&mount.place));
    mounts.max_by_key(|mount| mount.place.components().count())
}

/// The number of a mounted disk or partition. Some file systems have a number of their own, and name the disk.
fn number_of(mount: &Mount) -> Option<String> {
    if !mount.number.starts_with("0:") {
        return Some(mount.number.clone());
    }
    let source = Path::new(&mount.source);
    let data = source.is_absolute().then(|| fs::metadata(source).ok()).flatten();
    let data = data.filter(|data| data.file_type().is_block_device())?;
    Some(format!("{}:{}", libc::major(data.rdev()), libc::minor(data.rdev())))
}

/// The disk of a number: of a partition the disk that it is a part of, which is what has rates.
fn whole_disk(number: &str, folder: &Path) -> Option<Disk> {
    let device = folder.join(number).canonicalize().ok()?;
    let device: PathBuf =
        if device.join("partition").exists() { device.parent()?.to_owned() } else { device };
    let number = fs::read_to_string(device.join("dev")).ok()?.trim().to_owned();
    Some(Disk { number, name: device.file_name()?.to_str()?.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    const MOUNTS: &str = "\
27 1 254:1 / / rw - ext4 /dev/vda1 rw
28 27 0:23 / /tmp rw - tmpfs tmpfs rw
29 27 8:0 / /data rw - ext4 /dev/sda rw
30 27 8:16 / /data rw - ext4 /dev/sdb rw
";

    #[test]
    fn a_path_lies_on_the_last_mount_of_the_longest_place() {
        for (path, number) in
            [("/", "254:1"), ("/srv/x", "254:1"), ("/tmp/x", "0:23"), ("/tmpx", "254:1"), ("/data/x", "8:16")]
        {
            let mount = mount_of(Path::new(path), MOUNTS).expect("all is mounted");
            assert_eq!(mount.number, number, "{path}");
        }
        assert_eq!(mount_of(Path::new("/x"), ""), None);
    }

    #[test]
    fn a_partition_has_the_rates_of_its_disk() {
        let folder = Scratch::new("edge-disk").expect("temporary files can be written");
        let disk = folder.path().join("devices/vda");
        fs::create_dir_all(disk.join("vda1")).expect("it can be made");
        fs::create_dir(folder.path().join("block")).expect("it can be made");
        for (name, text) in [("dev", "254:0\n"), ("vda1/dev", "254:1\n"), ("vda1/partition", "1\n")] {
            fs::write(disk.join(name), text).expect("it can be written");
        }
        let link = |number: &str, to: &Path| {
            let from = folder.path().join("block").join(number);
            std::os::unix::fs::symlink(to, from).expect("it can be made");
        };
        link("254:0", &disk);
        link("254:1", &disk.join("vda1"));
        let wanted = Disk { number: "254:0".into(), name: "vda".into() };
        for number in ["254:0", "254:1"] {
            let found = whole_disk(number, &folder.path().join("block"));
            assert_eq!(found.as_ref(), Some(&wanted), "{number}");
        }
        assert_eq!(whole_disk("8:0", &folder.path().join("block")), None);
    }

    #[test]
    fn a_path_without_a_disk_is_named_with_its_file_system() {
        let error = disk_of(Path::new("/proc/self"), "22 27 0:21 / /proc rw - proc proc rw\n");
        let error = error.expect_err("it has no disk").to_string();
        assert!(error.contains("find the disk of /proc/self") && error.contains("lies on proc"), "{error}");
        let error = disks_of([Path::new("/nowhere")]).expect_err("it is not there").to_string();
        assert!(error.contains("/nowhere"), "{error}");
    }
}
