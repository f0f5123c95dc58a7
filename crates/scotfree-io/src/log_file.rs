//! What the files of all logs have in common: an identity in the first page, one owner at a time, and
//! a birth that is all or nothing.
//!
//! ```text
//! byte   0  magic "SCOTLOG\n"        8
//!        8  version                  4   little-endian, as all numbers
//!       12  kind: 1 ram, pmem; 2 disk  4
//!       16  salt                     8   random, mixed into every checksum
//!       24  geometry                 16  ram: slots, record bytes; disk: log bytes, 0
//!       40  CRC32C of bytes 0..40    4
//!     2048  process id of the owner  4   advisory: the lock is what counts
//!
//! pages 3, 4: the meta blob, two copies, one written behind the other; the newer one that holds counts
//!        0  generation               8
//!        8  length                   4
//!       12  CRC32C                   4    salted, of bytes 0..12 and the blob
//!       16  blob                     length
//! ```
//!
//! Invariant: a file that is not whole, ours, of our version and locked by us is never written to.

use crate::clock::now_monotonic;
use crate::domain::{DomainError, META_BYTES_MAX};
use crate::storage::Storage;
use crate::sys;
use scotfree_core::Nanos;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The unit in which the files are laid out.
pub const PAGE_BYTES: u64 = 4_096;
/// The version of both formats.
pub const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"SCOTLOG\n";
const IDENTITY_BYTES: usize = 44;
const OWNER_OFFSET: u64 = 2_048;
/// How long opening waits for a lock. An owner that has ended may still be seen for a moment: a process
/// that it, or we, are just starting holds copies of all descriptors until its program runs.
const LOCK_PATIENCE: Nanos = Nanos::from_millis(200);
const LOCK_RETRY: Duration = Duration::from_millis(2);
const META_HEADER_BYTES: usize = 16;
/// Where the two copies of the meta blob lie.
pub const META_OFFSETS: [u64; 2] = [3 * PAGE_BYTES, 4 * PAGE_BYTES];

/// Which format a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogKind {
    /// Slots in mapped memory.
    Ram,
    /// A circular log.
    Disk,
}

/// The identity in the first page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Which format follows.
    pub kind: LogKind,
    /// Mixed into every checksum, so that bytes which a client made cannot pass for records.
    pub salt: u64,
    /// The sizes that were chosen when the file was made.
    pub geometry: [u64; 2],
}

impl LogKind {
    fn code(self) -> u32 {
        match self {
            LogKind::Ram => 1,
            LogKind::Disk => 2,
        }
    }

    fn from_code(code: u32) -> Option<LogKind> {
        match code {
            1 => Some(LogKind::Ram),
            2 => Some(LogKind::Disk),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            LogKind::Ram => "a ram log",
            LogKind::Disk => "a disk log",
        }
    }
}

impl Identity {
    /// An identity with a fresh salt.
    pub fn new(kind: LogKind, geometry: [u64; 2]) -> io::Result<Identity> {
        Ok(Identity { kind, salt: sys::file::random_u64()?, geometry })
    }

    /// The first bytes of the file.
    pub fn encode(&self) -> [u8; IDENTITY_BYTES] {
        let mut out = [0; IDENTITY_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&self.kind.code().to_le_bytes());
        out[16..24].copy_from_slice(&self.salt.to_le_bytes());
        out[24..32].copy_from_slice(&self.geometry[0].to_le_bytes());
        out[32..40].copy_from_slice(&self.geometry[1].to_le_bytes());
        let crc = crc32c::crc32c(&out[..40]);
        out[40..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads the identity of the log in `storage`, refusing what is not a log of this version.
    pub fn read(storage: &dyn Storage, path: &Path) -> Result<Identity, DomainError> {
        let io = |error| DomainError::io(format!("reading {}", path.display()), error);
        let length = storage.length().map_err(io)?;
        let mut first = vec![0; length.min(PAGE_BYTES) as usize];
        storage.read_at(0, &mut first).map_err(io)?;
        Self::decode(path, &first)
    }

    /// Refuses a log of another kind.
    pub fn expect(self, kind: LogKind, path: &Path) -> Result<Identity, DomainError> {
        if self.kind == kind {
            return Ok(self);
        }
        Err(foreign(path, format!("it is {}", self.kind.name())))
    }

    fn decode(path: &Path, bytes: &[u8]) -> Result<Identity, DomainError> {
        if bytes.len() < IDENTITY_BYTES || bytes[..8] != MAGIC {
            return Err(foreign(path, "it does not begin as a log of Scotfree does".to_owned()));
        }
        let version = read_u32(bytes, 8);
        if version != VERSION {
            return Err(DomainError::Foreign {
                path: path.to_owned(),
                found: format!("it has version {version} and this program reads version {VERSION}"),
                advice: "run the release that wrote it until the log is empty, or move it away".to_owned(),
            });
        }
        if crc32c::crc32c(&bytes[..40]) != read_u32(bytes, 40) {
            return Err(DomainError::Damaged {
                path: path.to_owned(),
                offset: 0,
                found: "the first page fails its checksum".to_owned(),
            });
        }
        let code = read_u32(bytes, 12);
        let kind = LogKind::from_code(code)
            .ok_or_else(|| foreign(path, format!("it is a log of unknown kind {code}")))?;
        Ok(Identity { kind, salt: read_u64(bytes, 16), geometry: [read_u64(bytes, 24), read_u64(bytes, 32)] })
    }
}

fn foreign(path: &Path, found: String) -> DomainError {
    let advice = "move it away or choose another file".to_owned();
    DomainError::Foreign { path: path.to_owned(), found, advice }
}

/// The number at `offset` of a block that is known to be long enough.
pub fn read_u32(bytes: &[u8], offset: usize) -> u32 {
    let mut out = [0; 4];
    out.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(out)
}

/// The number at `offset` of a block that is known to be long enough.
pub fn read_u64(bytes: &[u8], offset: usize) -> u64 {
    let mut out = [0; 8];
    out.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(out)
}

/// The checksum of `parts` under the file's salt.
pub fn salted_crc(salt: u64, parts: &[&[u8]]) -> u32 {
    let start = crc32c::crc32c(&salt.to_le_bytes());
    parts.iter().fold(start, |crc, part| crc32c::crc32c_append(crc, part))
}

/// Writes the meta blob: over its older copy, so that a crash leaves the other, then over that, so that
/// damage to one leaves nothing older.
pub fn write_meta(storage: &dyn Storage, salt: u64, generation: u64, meta: &[u8]) -> io::Result<()> {
    let mut out = Vec::with_capacity(META_HEADER_BYTES + META_BYTES_MAX);
    out.extend_from_slice(&generation.to_le_bytes());
    out.extend_from_slice(&(meta.len() as u32).to_le_bytes());
    let crc = salted_crc(salt, &[&out, meta]);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(meta);
    storage.write_at(META_OFFSETS[(generation % 2) as usize], &out)?;
    storage.write_at(META_OFFSETS[((generation + 1) % 2) as usize], &out)
}

/// The newer of the blobs that hold, with its generation; none if neither does.
pub fn read_meta(storage: &dyn Storage, salt: u64) -> io::Result<Option<(u64, Vec<u8>)>> {
    let mut newest: Option<(u64, Vec<u8>)> = None;
    for offset in META_OFFSETS {
        let mut bytes = [0; META_HEADER_BYTES + META_BYTES_MAX];
        storage.read_at(offset, &mut bytes)?;
        let (generation, length) = (read_u64(&bytes, 0), read_u32(&bytes, 8) as usize);
        let Some(meta) = bytes[META_HEADER_BYTES..].get(..length) else { continue };
        let holds = salted_crc(salt, &[&bytes[..12], meta]) == read_u32(&bytes, 12);
        if holds && newest.as_ref().is_none_or(|(newest, _)| *newest < generation) {
            newest = Some((generation, meta.to_vec()));
        }
    }
    Ok(newest)
}

/// Opens the log at `path` and locks it; if nothing is there, makes it with `fill`. `flags` are those
/// of `open(2)`.
pub fn open_or_create(
    path: &Path,
    flags: i32,
    fill: &dyn Fn(&File) -> io::Result<()>,
) -> Result<File, DomainError> {
    require_file(path)?;
    // Whoever loses the race to make the file finds it in the second round.
    for _ in 0..2 {
        match OpenOptions::new().read(true).write(true).custom_flags(flags).open(path) {
            Ok(file) => {
                lock(&file, path)?;
                return Ok(file);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if let Some(file) = create(path, flags, fill)? {
                    return Ok(file);
                }
            }
            Err(error) => return Err(DomainError::io(format!("opening {}", path.display()), error)),
        }
    }
    Err(DomainError::InUse { path: path.to_owned(), pid: None })
}

/// Refuses what is there and no file, before it is opened: opening a pipe waits, and devices have no end.
pub fn require_file(path: &Path) -> Result<(), DomainError> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(foreign(path, "it is not a regular file".to_owned())),
        // A file is not made behind a link: what it leads to is most likely a disk that is not mounted.
        Err(error) if error.kind() == io::ErrorKind::NotFound && fs::read_link(path).is_ok() => {
            let target = fs::read_link(path).unwrap_or_default();
            Err(DomainError::Foreign {
                path: path.to_owned(),
                found: format!("it is a symbolic link to {}, which is missing", target.display()),
                advice: "bring that back (is its disk mounted?), or remove the link for a new log".to_owned(),
            })
        }
        // What is missing is made, or its absence is reported.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Opens a log for reading only, locked so that nobody writes meanwhile.
pub fn open_to_read(path: &Path) -> Result<File, DomainError> {
    require_file(path)?;
    let file =
        File::open(path).map_err(|error| DomainError::io(format!("opening {}", path.display()), error))?;
    lock(&file, path)?;
    Ok(file)
}

/// Writes down who owns the file, for the message to the next who wants it. Failing to costs only
/// that message.
pub fn note_owner(file: &File) {
    let _ = file.write_all_at(&std::process::id().to_le_bytes(), OWNER_OFFSET);
}

fn lock(file: &File, path: &Path) -> Result<(), DomainError> {
    let deadline = now_monotonic().plus(LOCK_PATIENCE);
    loop {
        match sys::file::try_lock(file) {
            Ok(true) => return Ok(()),
            Ok(false) if now_monotonic() < deadline => std::thread::sleep(LOCK_RETRY),
            Ok(false) => return Err(DomainError::InUse { path: path.to_owned(), pid: noted_owner(file) }),
            Err(error) => return Err(DomainError::io(format!("locking {}", path.display()), error)),
        }
    }
}

fn noted_owner(file: &File) -> Option<u32> {
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, OWNER_OFFSET).ok()?;
    Some(u32::from_le_bytes(bytes)).filter(|pid| *pid != 0)
}

/// Makes the file and gives it its name only when it is whole. None if somebody else was faster.
fn create(
    path: &Path,
    flags: i32,
    fill: &dyn Fn(&File) -> io::Result<()>,
) -> Result<Option<File>, DomainError> {
    let unnamed =
        OpenOptions::new().read(true).write(true).custom_flags(flags | libc::O_TMPFILE).open(folder_of(path));
    match unnamed {
        Ok(file) => create_unnamed(&file, path, fill).map(|made| made.then_some(file)),
        // Not every file system has files without names; what else is wrong shows there, too.
        Err(_) => create_named(path, flags, fill),
    }
}

/// Whoever is killed in the middle leaves nothing, since the kernel frees a file that has no name.
fn create_unnamed(
    file: &File,
    path: &Path,
    fill: &dyn Fn(&File) -> io::Result<()>,
) -> Result<bool, DomainError> {
    let making = |error| DomainError::io(format!("making {}", path.display()), error);
    lock(file, path)?;
    fill(file).and_then(|()| file.sync_all()).map_err(making)?;
    match sys::file::give_name(file, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
        named => named.map_err(making)?,
    }
    // Left by one that was killed where files have names from the beginning.
    let _ = fs::remove_file(unborn_name(path));
    sync_folder(path)
        .map_err(|error| DomainError::io(format!("syncing the folder of {}", path.display()), error))?;
    Ok(true)
}

/// Makes the file under a temporary name and gives it its own only when it is whole. None if somebody
/// else was faster.
fn create_named(
    path: &Path,
    flags: i32,
    fill: &dyn Fn(&File) -> io::Result<()>,
) -> Result<Option<File>, DomainError> {
    let doing = |what: &str| format!("{what} {}", path.display());
    let unborn = unborn_name(path);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(flags)
        .open(&unborn)
        .map_err(|error| DomainError::io(doing("creating"), error))?;
    lock(&file, path)?;
    if !is_unborn(&file, &unborn) {
        return Ok(None);
    }
    let made = file.set_len(0).and_then(|()| fill(&file)).and_then(|()| file.sync_all());
    let born = made.and_then(|()| fs::hard_link(&unborn, path));
    // Whole or not, the temporary name has served; if it stays, the next attempt uses it again.
    let _ = fs::remove_file(&unborn);
    match born {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
        Err(error) => return Err(DomainError::io(doing("making"), error)),
    }
    sync_folder(path).map_err(|error| DomainError::io(doing("syncing the folder of"), error))?;
    Ok(Some(file))
}

/// Whether a file that we have just locked still has the temporary name alone. If not, its maker was
/// about to give, or had just given, it its own name: then it is a log, and not ours to begin anew.
fn is_unborn(file: &File, unborn: &Path) -> bool {
    let (Ok(ours), Ok(named)) = (file.metadata(), fs::metadata(unborn)) else { return false };
    if ours.ino() != named.ino() || ours.dev() != named.dev() {
        return false;
    }
    if ours.nlink() > 1 {
        // Its maker died between the two names; the temporary one is left over.
        let _ = fs::remove_file(unborn);
        return false;
    }
    true
}

fn unborn_name(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".new");
    PathBuf::from(name)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

/// The folder that `path` is in.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::faults::{Fault, FaultyStorage};

    fn identity() -> Identity {
        Identity { kind: LogKind::Disk, salt: 7, geometry: [1, 2] }
    }

    fn read(bytes: &[u8]) -> Result<Identity, DomainError> {
        let path = Path::new("log");
        Identity::decode(path, bytes)?.expect(LogKind::Disk, path)
    }

    #[test]
    fn of_a_link_to_nothing_it_is_said_what_is_missing() {
        let folder = std::env::temp_dir().join(format!("scot-link-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("it can be made");
        let link = folder.join("log");
        std::os::unix::fs::symlink("/scot-no-such-folder/log", &link).expect("it is new");
        let error = open_or_create(&link, 0, &|_| Ok(())).expect_err("there is nothing");
        assert!(error.to_string().contains("/scot-no-such-folder/log, which is missing"), "{error}");
        fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[test]
    fn an_identity_round_trips() {
        assert_eq!(read(&identity().encode()).expect("our own"), identity());
    }

    #[test]
    fn a_damaged_copy_of_the_meta_blob_leaves_nothing_older() {
        for offset in META_OFFSETS {
            let storage = written(b"epoch 1");
            write_meta(&storage, 7, 2, b"epoch 2").expect("the storage works");
            storage.flip(offset + META_HEADER_BYTES as u64);
            assert_eq!(read_meta(&storage, 7).expect("it is read"), Some((2, b"epoch 2".to_vec())));
        }
    }

    #[test]
    fn a_crash_while_the_meta_blob_is_written_leaves_one_that_holds() {
        for (writes, expected) in [(0, b"epoch 1"), (1, b"epoch 2")] {
            let storage = written(b"epoch 1");
            storage.plan(writes, Fault::Cut { bytes: 18 });
            write_meta(&storage, 7, 2, b"epoch 2").expect_err("the power is lost");
            storage.repair();
            let (_, meta) = read_meta(&storage, 7).expect("it is read").expect("one copy holds");
            assert_eq!(meta, expected);
        }
    }

    fn written(meta: &[u8]) -> FaultyStorage {
        let storage = FaultyStorage::new();
        let end = META_OFFSETS[1] + PAGE_BYTES;
        storage.write_at(0, &vec![0; end as usize]).expect("the storage works");
        write_meta(&storage, 7, 1, meta).expect("the storage works");
        storage
    }

    #[test]
    fn other_files_are_foreign_and_bit_flips_are_damage() {
        assert!(matches!(read(b""), Err(DomainError::Foreign { .. })));
        assert!(matches!(read(&[0; 4_096]), Err(DomainError::Foreign { .. })));
        let mut newer = identity().encode();
        newer[8] = 9;
        let error = read(&newer).expect_err("a foreign version");
        assert!(error.to_string().contains("version 9"), "{error}");
        let mut flipped = identity().encode();
        flipped[20] ^= 1;
        assert!(matches!(read(&flipped), Err(DomainError::Damaged { offset: 0, .. })));
        let ram = Identity { kind: LogKind::Ram, ..identity() };
        let error = read(&ram.encode()).expect_err("the other kind");
        assert!(error.to_string().contains("a ram log"), "{error}");
    }
}
