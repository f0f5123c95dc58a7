//! The programs, loaded, with their tables.
//!
//! Invariant: a table that outlives the daemon is taken over only if its layout, its size and the device
//! named in it are this daemon's.

mod holder;
mod pins;
mod ports;
mod test_run;

pub use pins::refuse_mount_point;
pub(crate) use pins::{
    adopt_tables, lock_folder, make_bpf_folder, pin_tables, require_bpf, require_layout, table_path,
};
use pins::{is_unused, NewLog};
pub(crate) use ports::new_pair;
pub use ports::{attached_program, AttachMode, Port};
pub use test_run::TestRun;

use crate::error::{bpf, load_failed, refused, system, KernelError};
use crate::functions::{self, Functions};
use crate::memory::Memory;
use crate::plain::bytes_of;
use crate::prepared::{self, SetPrograms};
use crate::shared::{KeyWords, Settings, Shared};
use crate::skeleton::types;
use crate::tables::{sums_of, Counters, FunctionCounters, SessionEntry, Station, StationName, Tables};
use crate::upcalls::{Upcalls, UPCALLS_BURST_MAX};
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject};
use scotfree_core::DeviceId;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How the programs are loaded.
#[derive(Debug, Clone)]
pub struct KernelConfig {
    /// How many slots the log has.
    pub slot_count: u32,
    /// The folder, in a BPF file system, that keeps tables and attachments when the daemon ends; without
    /// one they end with it.
    pub pin: Option<PathBuf>,
    /// Which of the programs' functions are on; of a set, those with which it was made.
    pub functions: Functions,
}

pub(crate) const PROGRAM_INGRESS: &str = "scot_ingress";
pub(crate) const PROGRAM_EGRESS: &str = "scot_egress";
const PROGRAM_EGRESS_ALONE: &str = "scot_egress_alone";
/// The memory that programs and daemon share; the name is the section's.
pub(crate) const TABLE_SHARED: &str = ".data.shared";
/// The places of sessions, with what their keeper keeps in them; how many there are, the operator says.
pub(crate) const TABLE_SLOTS: &str = "scot_slots";
/// How the name of the table ends that the compiler knows to be constant and the loader may still set.
const TABLE_CONSTANTS: &str = ".rodata";
/// The programs.
enum Programs {
    /// Loaded by this process.
    Loaded(Object),
    /// Of a set that root has loaded.
    Set(SetPrograms),
}

/// The tables, whoever has made them.
struct Opened {
    tables: Tables,
    ports: MapHandle,
    pairs: MapHandle,
    ring: MapHandle,
    /// Of functions, by the names of their tables.
    counters: Vec<(String, MapHandle)>,
    shared: Shared,
    /// None without a keeper of places.
    slots: Option<MapHandle>,
}

impl Opened {
    fn open(find: impl Fn(&str) -> libbpf_rs::Result<MapHandle>) -> Result<Opened, KernelError> {
        let table = |name: &str| find(name).map_err(bpf(format!("opening the table {name}")));
        let own = functions::with_counters().map(|name| Ok((name.clone(), table(&name)?)));
        Ok(Opened {
            counters: own.collect::<Result<_, KernelError>>()?,
            shared: Shared::map(table(TABLE_SHARED)?.as_fd()).map_err(system("mapping the shared memory"))?,
            slots: find(TABLE_SLOTS).ok(),
            tables: Tables {
                sessions: table("scot_sessions")?,
                index: table("scot_session_index")?,
                stations: table("scot_stations")?,
                counters: table("scot_counters")?,
            },
            ports: table("scot_ports")?,
            pairs: table("scot_pairs")?,
            ring: table("scot_upcalls")?,
        })
    }
}

impl Opened {
    fn counters_of(&self, name: &str) -> libbpf_rs::Result<Vec<u64>> {
        let table = self.counters.iter().find(|(known, _)| known == name);
        table.map_or(Ok(Vec::new()), |(_, table)| sums_of(table))
    }
}

/// The programs, loaded, with their tables.
pub struct Kernel {
    programs: Programs,
    opened: Opened,
    pin: Option<PathBuf>,
    adopted: bool,
    /// What this daemon has begun in the folder.
    new_log: Option<NewLog>,
    /// Locked while this daemon lives; after the new log, which goes under the lock.
    _folder: Option<File>,
}

impl Kernel {
    /// Loads the programs; tables that a daemon before left in the folder are taken over.
    pub fn load(config: &KernelConfig) -> Result<Kernel, KernelError> {
        Kernel::load_with(config, crate::OBJECT, false)
    }

    /// Loads also the programs that tests run by themselves.
    pub fn load_for_tests(config: &KernelConfig) -> Result<Kernel, KernelError> {
        Kernel::load_with(config, crate::OBJECT, true)
    }

    /// The same of another compilation, with functions that only tests know.
    pub fn load_object_for_tests(object: &[u8], config: &KernelConfig) -> Result<Kernel, KernelError> {
        Kernel::load_with(config, object, true)
    }

    fn load_with(config: &KernelConfig, object: &[u8], testing: bool) -> Result<Kernel, KernelError> {
        // What libbpf would print is in the errors that it returns.
        libbpf_rs::set_print(None);
        if let Some(folder) = config.pin.as_deref().filter(|folder| prepared::is_set(folder)) {
            return Kernel::open_set(config, folder);
        }
        let folder = config.pin.as_deref().map(|folder| {
            make_bpf_folder(folder)?;
            lock_folder(folder)
        });
        let folder = folder.transpose()?;
        let mut open = open_object(object, config, testing)?;
        let adopted = match &config.pin {
            // A daemon that was killed before it attached them has logged nothing.
            Some(folder) => !is_unused(folder)? && adopt_tables(&mut open, folder, config.slot_count)?,
            None => false,
        };
        let new_log = config.pin.as_deref().filter(|_| !adopted).map(NewLog::begin);
        let mut object = open.load().map_err(load_failed)?;
        if let Some(folder) = config.pin.as_ref().filter(|_| !adopted) {
            pin_tables(&mut object, folder)?;
        }
        let tables = |name: &str| -> libbpf_rs::Result<MapHandle> {
            let map = object.maps().find(|map| map.name() == name);
            MapHandle::try_from(&map.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::NotFound))?)
        };
        let opened = Opened::open(tables)?;
        let kernel = Kernel::assemble(opened, Programs::Loaded(object), config, adopted, folder);
        Ok(Kernel { new_log, ..kernel })
    }

    /// Takes the programs and tables of a set, also without the rights to make them.
    fn open_set(config: &KernelConfig, folder: &Path) -> Result<Kernel, KernelError> {
        let lock = lock_folder(folder)?;
        if let Some(function) = config.functions.missing_in(Functions::of_sets()).first() {
            return Err(KernelError::NotInSet { path: folder.to_owned(), function });
        }
        require_layout(folder)?;
        let programs = prepared::open_programs(folder, config.slot_count)?;
        let tables = |name: &str| MapHandle::from_pinned_path(table_path(folder, OsStr::new(name)));
        let opened = Opened::open(tables)?;
        // Nobody's, if no daemon has had it.
        let adopted = opened.shared.device() != DeviceId(0);
        Ok(Kernel::assemble(opened, Programs::Set(programs), config, adopted, Some(lock)))
    }

    fn assemble(
        opened: Opened,
        programs: Programs,
        config: &KernelConfig,
        adopted: bool,
        folder: Option<File>,
    ) -> Kernel {
        let pin = config.pin.clone();
        Kernel { programs, opened, pin, adopted, new_log: None, _folder: folder }
    }

    /// Whether tables of a daemon before were taken over.
    pub fn adopted(&self) -> bool {
        self.adopted
    }

    /// Whether the log still lies where the next daemon finds it; true if it never did.
    pub fn is_kept(&self) -> bool {
        self.pin.as_deref().is_none_or(|folder| table_path(folder, OsStr::new(TABLE_SHARED)).exists())
    }

    /// The shared memory.
    pub fn shared(&self) -> &Shared {
        &self.opened.shared
    }

    /// The shared memory, for its settings.
    pub fn shared_mut(&mut self) -> &mut Shared {
        &mut self.opened.shared
    }

    /// How many places of sessions there are: as many as the kernel has, not as were asked for.
    pub fn slot_count(&self) -> u32 {
        self.opened.slots.as_ref().map_or(0, MapHandle::max_entries)
    }

    /// The memory of the places, whose keeper knows what lies in them; `bytes` is what it takes one to be.
    pub fn map_slots(&self, bytes: usize) -> Result<Memory, KernelError> {
        let failed = || system("mapping the log's slots");
        let slots = self.opened.slots.as_ref().filter(|slots| slots.value_size() as usize == bytes);
        let slots = slots.ok_or_else(|| failed()(std::io::ErrorKind::NotFound.into()))?;
        Memory::map(slots.as_fd(), bytes * slots.max_entries() as usize).map_err(failed())
    }

    /// The memory of a table of a function's own, of at least `bytes`, in a kernel whose programs this process has loaded.
    pub fn map_table(&self, name: &str, bytes: usize) -> Result<Memory, KernelError> {
        let failed = || system(format!("mapping the table {name}"));
        let none = || failed()(std::io::ErrorKind::NotFound.into());
        let Programs::Loaded(object) = &self.programs else { return Err(none()) };
        let map = object.maps().find(|map| map.name() == name);
        let map = map.filter(|map| map.value_size() as usize * map.max_entries() as usize >= bytes);
        Memory::map(map.ok_or_else(none)?.as_fd(), bytes).map_err(failed())
    }

    /// A table of a function's own that counts, by word and over all processors.
    pub fn counted_in(&self, name: &str) -> Result<Vec<u64>, KernelError> {
        let Programs::Loaded(object) = &self.programs else { return Ok(Vec::new()) };
        let Some(map) = object.maps().find(|map| map.name() == name) else { return Ok(Vec::new()) };
        let table = MapHandle::try_from(&map).and_then(|table| sums_of(&table));
        table.map_err(bpf(format!("reading the table {name}")))
    }

    /// The daemon's end of the ring; there must be only one.
    pub fn upcalls(&self) -> Result<Upcalls, KernelError> {
        Upcalls::open(&self.opened.ring).map_err(bpf("opening the ring"))
    }

    // ---- sessions

    /// Holds a session: its packets are passed up until it is let go. When this returns, what a program
    /// had begun with it is over, but for a copy into a slot that says so.
    pub fn hold(&self, index: u32) -> Result<Option<SessionEntry>, KernelError> {
        self.opened.shared.set_held(index, true);
        self.session(index)
    }

    /// Lets a session go.
    pub fn release(&self, index: u32) {
        self.opened.shared.set_held(index, false);
    }

    /// What stands in a session's place, read under its lock.
    pub fn session(&self, index: u32) -> Result<Option<SessionEntry>, KernelError> {
        self.opened.tables.session(index).map_err(bpf("reading a session's entry"))
    }

    /// Writes a session's entry, under its lock; the session is held or not yet known.
    pub fn set_session(&self, session: &SessionEntry) -> Result<(), KernelError> {
        self.opened.tables.set_session(session).map_err(bpf("writing a session's entry"))
    }

    /// Writes a new session's entry and makes it known.
    pub fn add_session(&self, session: &SessionEntry) -> Result<(), KernelError> {
        self.set_session(session)?;
        self.opened.tables.publish(session).map_err(bpf("making a session known"))
    }

    /// Forgets a session.
    pub fn remove_session(&self, session: &SessionEntry) -> Result<(), KernelError> {
        self.opened.tables.remove(session).map_err(bpf("removing a session"))
    }

    // ---- counters and stations

    /// What the programs counted, over all processors.
    pub fn counters(&self) -> Result<Counters, KernelError> {
        self.opened.tables.counters().map_err(bpf("reading the counters"))
    }

    /// What the function with this name counted, over all processors; nothing if there is none, or it counts nothing.
    pub fn counters_of(&self, function: &str) -> Result<FunctionCounters, KernelError> {
        let Some((table, names)) = functions::counters(function) else { return Ok(FunctionCounters::new()) };
        let sums =
            self.opened.counters_of(&table).map_err(bpf(format!("reading the counters of {function}")))?;
        Ok(names.iter().copied().zip(sums).collect())
    }

    /// Says where a station lives.
    pub fn set_station(&self, name: StationName, station: Station) -> Result<(), KernelError> {
        let key = types::scot_station_key { mac: name.mac, vlan: name.vlan };
        let value = types::scot_station { last_seen: station.last_seen.0, ifindex: station.ifindex, zero: 0 };
        let written = self.opened.tables.stations.update(bytes_of(&key), bytes_of(&value), MapFlags::ANY);
        written.map_err(bpf("writing the table of stations"))?;
        self.opened.shared.note_station();
        Ok(())
    }

    fn program_fd(&self, name: &str) -> i32 {
        match &self.programs {
            Programs::Loaded(object) => {
                let program = object.progs().find(|program| program.name() == name);
                program.expect("the object has this program").as_fd().as_raw_fd()
            }
            Programs::Set(set) if name == PROGRAM_INGRESS => set.ingress.as_raw_fd(),
            Programs::Set(set) => set.egress.as_raw_fd(),
        }
    }

    // ---- settings

    /// Refuses what was kept under other settings, or under a stamp key that is none of `stamp_keys`.
    pub fn require_settings(&self, wanted: &Settings, stamp_keys: &[KeyWords]) -> Result<(), KernelError> {
        let Some(folder) = self.pin.as_deref().filter(|_| self.adopted) else { return Ok(()) };
        let (found, wanted) = self.opened.shared.settings().differences(wanted, stamp_keys);
        if found.is_empty() {
            return Ok(());
        }
        Err(refused(folder, format!("the log of {}", found.join(", ")), wanted.join(", ")))
    }

    /// Ends a set's log and takes its programs from all ports.
    pub(crate) fn forget(self) -> Result<(), KernelError> {
        self.leave_others(&[])?;
        self.clear_for_tests()?;
        let mut upcalls = self.upcalls()?;
        while upcalls.take(|_| ()) == UPCALLS_BURST_MAX {}
        self.opened.shared.forget();
        Ok(())
    }

    /// Empties the log and forgets all sessions, for tests that load once.
    pub fn clear_for_tests(&self) -> Result<(), KernelError> {
        for index in 0..crate::shared::SESSIONS_MAX as u32 {
            self.release(index);
            if let Some(session) = self.session(index)? {
                self.remove_session(&session)?;
            }
        }
        if let Some(slots) = &self.opened.slots {
            let bytes = slots.value_size() as usize * slots.max_entries() as usize;
            Memory::map(slots.as_fd(), bytes).map_err(system("mapping the log's slots"))?.clear();
        }
        self.opened.shared.orders_restart();
        self.opened.shared.servers().for_each(|server| server.set_lease(scotfree_core::Nanos(0)));
        Ok(())
    }
}

pub(crate) fn open_object(
    object: &[u8],
    config: &KernelConfig,
    testing: bool,
) -> Result<OpenObject, KernelError> {
    let mut open = ObjectBuilder::default().open_memory(object).map_err(load_failed)?;
    set_slot_count(&mut open, config.slot_count).map_err(load_failed)?;
    set_functions(&mut open, config.functions);
    // Tests number the functions of theirs otherwise.
    if std::ptr::eq(object, crate::OBJECT) {
        shrink_tables(&mut open, config.functions).map_err(load_failed)?;
    }
    for mut program in open.progs_mut() {
        if program.name() == PROGRAM_EGRESS_ALONE {
            program.set_autoload(testing);
        }
    }
    Ok(open)
}

fn set_slot_count(open: &mut OpenObject, count: u32) -> libbpf_rs::Result<()> {
    let slots = open.maps_mut().find(|map| map.name() == TABLE_SLOTS);
    slots.map_or(Ok(()), |mut slots| slots.set_max_entries(count))
}

/// The tables of a function's own, which are made anew with every load, take no room while it is off.
fn shrink_tables(open: &mut OpenObject, functions: Functions) -> libbpf_rs::Result<()> {
    let off: Vec<String> = functions.off().map(|name| format!("{name}_")).collect();
    let is_own = |name: &OsStr| off.iter().any(|begin| name.as_bytes().starts_with(begin.as_bytes()));
    open.maps_mut().filter(|map| is_own(map.name())).try_for_each(|mut map| map.set_max_entries(1))
}

/// The kernel takes out what is not on, since it knows this table to be constant.
fn set_functions(open: &mut OpenObject, functions: Functions) {
    let is_it = |name: &OsStr| name.as_bytes().ends_with(TABLE_CONSTANTS.as_bytes());
    let mut table = open.maps_mut().find(|map| is_it(map.name()));
    let constants = table.as_mut().and_then(|table| table.initial_value_mut());
    let at = std::mem::offset_of!(types::rodata, scot_functions_on);
    let place = constants.and_then(|constants| constants.get_mut(at..at + size_of::<u32>()));
    place.expect("the object has this constant").copy_from_slice(&functions.0.to_ne_bytes());
}
