//! Loading, keeping and attaching the programs.
//!
//! Invariant: a table that outlives the daemon is taken over only if its layout, its size and the device
//! named in it are this daemon's; a port's program is replaced in one step, so no frame passes without one.

use crate::error::{bpf, load_failed, refused, system, KernelError};
use crate::links::{c_path, create_link, kept_links, link_name, pin_descriptor, remove_link, replace_link};
use crate::plain::{bytes_of, value_of};
use crate::prepared::{self, links_folder, pair_path, SetPrograms};
use crate::shared::{KeyWords, Settings, Shared, VERSION};
use crate::skeleton::types;
use crate::slots::Slots;
use crate::tables::{Counters, Session, Station, StationName, Tables};
use crate::upcalls::{Upcalls, UPCALLS_BURST_MAX};
use libbpf_rs::{
    libbpf_sys, MapCore, MapFlags, MapHandle, MapType, Object, ObjectBuilder, OpenObject, ProgramInput,
};
use scotfree_core::DeviceId;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// How the programs are attached to a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachMode {
    /// In the port's driver.
    Native,
    /// In the kernel's stack: works with every driver and is slower.
    Generic,
}

/// How the programs are loaded.
#[derive(Debug, Clone)]
pub struct KernelConfig {
    /// How many slots the log has.
    pub slot_count: u32,
    /// The folder, in a BPF file system, that keeps tables and attachments when the daemon ends; without
    /// one they end with it.
    pub pin: Option<PathBuf>,
}

/// A port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its interface.
    pub interface: String,
    /// The interface's number.
    pub ifindex: u32,
}

pub(crate) const PROGRAM_INGRESS: &str = "scot_ingress";
pub(crate) const PROGRAM_EGRESS: &str = "scot_egress";
const PROGRAM_EGRESS_ALONE: &str = "scot_egress_alone";
/// The memory that programs and daemon share; the name is the section's.
pub(crate) const TABLE_SHARED: &str = ".data.shared";
pub(crate) const TABLE_SLOTS: &str = "scot_slots";
/// `f_type` of a BPF file system.
const BPF_FS_MAGIC: i64 = 0xcafe_4a11;

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
    shared: Shared,
    slots: Slots,
}

impl Opened {
    fn open(
        find: impl Fn(&str) -> libbpf_rs::Result<MapHandle>,
        config: &KernelConfig,
    ) -> Result<Opened, KernelError> {
        let table = |name: &str| find(name).map_err(bpf(format!("opening the table {name}")));
        Ok(Opened {
            shared: Shared::map(table(TABLE_SHARED)?.as_fd()).map_err(system("mapping the shared memory"))?,
            slots: Slots::map(table(TABLE_SLOTS)?.as_fd(), config.slot_count)
                .map_err(system("mapping the log's slots"))?,
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

/// The programs, loaded, with their tables.
pub struct Kernel {
    programs: Programs,
    tables: Tables,
    ports: MapHandle,
    pairs: MapHandle,
    ring: MapHandle,
    shared: Shared,
    slots: Slots,
    pin: Option<PathBuf>,
    adopted: bool,
    /// Locked while this daemon lives.
    _folder: Option<File>,
}

impl Kernel {
    /// Loads the programs; tables that a daemon before left in the folder are taken over.
    pub fn load(config: &KernelConfig) -> Result<Kernel, KernelError> {
        Kernel::load_with(config, false)
    }

    /// Loads also the programs that tests run by themselves.
    pub fn load_for_tests(config: &KernelConfig) -> Result<Kernel, KernelError> {
        Kernel::load_with(config, true)
    }

    fn load_with(config: &KernelConfig, testing: bool) -> Result<Kernel, KernelError> {
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
        let mut open = open_object(config.slot_count, testing)?;
        let adopted = match &config.pin {
            Some(folder) => adopt_tables(&mut open, folder, config.slot_count)?,
            None => false,
        };
        let mut object = open.load().map_err(load_failed)?;
        if let Some(folder) = config.pin.as_ref().filter(|_| !adopted) {
            pin_tables(&mut object, folder)?;
        }
        let tables = |name: &str| -> libbpf_rs::Result<MapHandle> {
            let map = object.maps().find(|map| map.name() == name).expect("the object has this table");
            MapHandle::try_from(&map)
        };
        let opened = Opened::open(tables, config)?;
        Kernel::assemble(opened, Programs::Loaded(object), config, adopted, folder)
    }

    /// Takes the programs and tables of a set, also without the rights to make them.
    fn open_set(config: &KernelConfig, folder: &Path) -> Result<Kernel, KernelError> {
        let lock = lock_folder(folder)?;
        let programs = prepared::open_programs(folder, config.slot_count)?;
        let tables = |name: &str| MapHandle::from_pinned_path(table_path(folder, OsStr::new(name)));
        let opened = Opened::open(tables, config)?;
        // Nobody's, if no daemon has had it.
        let adopted = opened.shared.device() != DeviceId(0);
        Kernel::assemble(opened, Programs::Set(programs), config, adopted, Some(lock))
    }

    fn assemble(
        opened: Opened,
        programs: Programs,
        config: &KernelConfig,
        adopted: bool,
        folder: Option<File>,
    ) -> Result<Kernel, KernelError> {
        let Opened { tables, ports, pairs, ring, shared, slots } = opened;
        if adopted && shared.version() != VERSION {
            let pin = config.pin.clone().unwrap_or_default();
            let found = format!("tables of layout {}", shared.version());
            return Err(refused(&pin, found, format!("layout {VERSION}")));
        }
        let pin = config.pin.clone();
        Ok(Kernel { programs, tables, ports, pairs, ring, shared, slots, pin, adopted, _folder: folder })
    }

    /// Whether tables of a daemon before were taken over.
    pub fn adopted(&self) -> bool {
        self.adopted
    }

    /// The shared memory.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The shared memory, for its settings.
    pub fn shared_mut(&mut self) -> &mut Shared {
        &mut self.shared
    }

    /// The log's slots.
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// The log's slots, for writing.
    pub fn slots_mut(&mut self) -> &mut Slots {
        &mut self.slots
    }

    /// The daemon's end of the ring; there must be only one.
    pub fn upcalls(&self) -> Result<Upcalls, KernelError> {
        Upcalls::open(&self.ring).map_err(bpf("opening the ring"))
    }

    // ---- sessions

    /// Holds a session: its packets are passed up until it is let go. When this returns, what a program
    /// had begun with it is over, but for a copy into a slot that says so.
    pub fn hold(&self, index: u32) -> Result<Option<Session>, KernelError> {
        self.shared.set_held(index, true);
        self.session(index)
    }

    /// Lets a session go.
    pub fn release(&self, index: u32) {
        self.shared.set_held(index, false);
    }

    /// What stands in a session's place, read under its lock.
    pub fn session(&self, index: u32) -> Result<Option<Session>, KernelError> {
        self.tables.session(index).map_err(bpf("reading a session's entry"))
    }

    /// Writes a session's entry, under its lock; the session is held or not yet known.
    pub fn set_session(&self, session: &Session) -> Result<(), KernelError> {
        self.tables.set_session(session).map_err(bpf("writing a session's entry"))
    }

    /// Writes a new session's entry and makes it known.
    pub fn add_session(&self, session: &Session) -> Result<(), KernelError> {
        self.set_session(session)?;
        self.tables.publish(session).map_err(bpf("making a session known"))
    }

    /// Forgets a session.
    pub fn remove_session(&self, session: &Session) -> Result<(), KernelError> {
        self.tables.remove(session).map_err(bpf("removing a session"))
    }

    // ---- counters and stations

    /// What the programs counted, over all processors.
    pub fn counters(&self) -> Result<Counters, KernelError> {
        self.tables.counters().map_err(bpf("reading the counters"))
    }

    /// Says where a station lives.
    pub fn set_station(&self, name: StationName, station: Station) -> Result<(), KernelError> {
        let key = types::scot_station_key { mac: name.mac, vlan: name.vlan };
        let value = types::scot_station { last_seen: station.last_seen.0, ifindex: station.ifindex, zero: 0 };
        let written = self.tables.stations.update(bytes_of(&key), bytes_of(&value), MapFlags::ANY);
        written.map_err(bpf("writing the table of stations"))
    }

    // ---- ports

    /// Attaches the programs to the ports. Where a daemon before left them attached they are replaced, and
    /// taken from such ports as are no more. Unless a folder keeps them, the attachments end with the
    /// descriptors.
    pub fn attach(&self, ports: &[Port], mode: AttachMode) -> Result<Vec<OwnedFd>, KernelError> {
        self.leave_others(ports)?;
        for port in ports {
            let value = devmap_value(port.ifindex, None);
            let written = self.ports.update(bytes_of(&port.ifindex), bytes_of(&value), MapFlags::ANY);
            written.map_err(bpf(format!("entering {} into the table of ports", port.interface)))?;
        }
        ports.iter().map(|port| self.attach_one(port, mode)).collect()
    }

    fn attach_one(&self, port: &Port, mode: AttachMode) -> Result<OwnedFd, KernelError> {
        let program = self.program_fd(PROGRAM_INGRESS);
        let kept = self.links_folder().map(|folder| folder.join(link_name(&port.interface)));
        if let Some(link) = kept.as_deref().and_then(|path| replace_link(path, program, port, mode)) {
            return Ok(link);
        }
        if let Some(path) = &kept {
            // One that could not be taken over is of another interface, or in the other mode.
            remove_link(path);
        }
        let link = create_link(program, port, mode)?;
        if let Some(path) = kept {
            pin_descriptor(link.as_raw_fd(), &path)
                .map_err(system(format!("keeping the attachment as {}", path.display())))?;
        }
        Ok(link)
    }

    /// The program that frames meet as they come in, for who wants to hand it frames in another way; the
    /// descriptor is this kernel's.
    pub fn ingress_program(&self) -> RawFd {
        self.program_fd(PROGRAM_INGRESS)
    }

    /// Takes the programs from ports that are not the device's any more, and forgets who lived behind them.
    fn leave_others(&self, ports: &[Port]) -> Result<(), KernelError> {
        let is_other = |ifindex: u32| ports.iter().all(|port| port.ifindex != ifindex);
        if is_other(self.shared.server_ifindex()) {
            self.shared.set_server_ifindex(0);
        }
        for table in [&self.ports, &self.pairs] {
            remove_keys(table, |key| value_of(key).is_some_and(is_other));
        }
        let lives_there = |key: &[u8]| self.tables.stations.lookup(key, MapFlags::ANY).ok().flatten();
        remove_keys(&self.tables.stations, |key| {
            let station = lives_there(key).and_then(|bytes| value_of::<types::scot_station>(&bytes));
            station.is_some_and(|station| is_other(station.ifindex))
        });
        let Some(folder) = self.links_folder() else { return Ok(()) };
        let names: Vec<_> = ports.iter().map(|port| link_name(&port.interface)).collect();
        for path in kept_links(&folder).map_err(system(format!("looking into {}", folder.display())))? {
            if names.iter().all(|name| !path.ends_with(name)) {
                remove_link(&path);
            }
        }
        Ok(())
    }

    fn links_folder(&self) -> Option<PathBuf> {
        let folder = self.pin.as_deref()?;
        Some(match self.programs {
            Programs::Loaded(_) => folder.to_owned(),
            Programs::Set(_) => links_folder(folder),
        })
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

    /// Says behind which of the ports the server lives: requests of the others are acknowledged.
    pub fn set_server_port(&self, ports: &[Port], server: u32) -> Result<(), KernelError> {
        let egress = self.program_fd(PROGRAM_EGRESS);
        if self.shared.server_ifindex() != server {
            self.shared.set_server_ifindex(0);
        }
        for (at, port) in ports.iter().enumerate().filter(|(_, port)| port.ifindex != server) {
            let pair = self.pair(at, [port.ifindex, server])?;
            for value in [devmap_value(port.ifindex, Some(egress)), devmap_value(server, None)] {
                let written = pair.update(bytes_of(&value.ifindex), bytes_of(&value), MapFlags::ANY);
                written.map_err(bpf(format!("pairing {} with the server's port", port.interface)))?;
            }
            let pair_fd = pair.as_fd().as_raw_fd() as u32;
            let written = self.pairs.update(bytes_of(&port.ifindex), bytes_of(&pair_fd), MapFlags::ANY);
            written.map_err(bpf("entering a pair of ports"))?;
        }
        self.shared.set_server_ifindex(server);
        Ok(())
    }

    /// A pair for these two: a new one, or that of the set.
    fn pair(&self, at: usize, ifindexes: [u32; 2]) -> Result<MapHandle, KernelError> {
        let (Programs::Set(_), Some(folder)) = (&self.programs, &self.pin) else {
            return new_pair().map_err(bpf("making a pair of ports"));
        };
        let path = pair_path(folder, at);
        let pair = MapHandle::from_pinned_path(&path).map_err(bpf(format!("opening {}", path.display())))?;
        remove_keys(&pair, |key| value_of(key).is_some_and(|ifindex| !ifindexes.contains(&ifindex)));
        Ok(pair)
    }

    // ---- settings

    /// Refuses what was kept under other settings, or under a stamp key that is none of `stamp_keys`.
    pub fn require_settings(&self, wanted: &Settings, stamp_keys: &[KeyWords]) -> Result<(), KernelError> {
        let Some(folder) = self.pin.as_deref().filter(|_| self.adopted) else { return Ok(()) };
        let (found, wanted) = self.shared.settings().differences(wanted, stamp_keys);
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
        self.shared.forget();
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
        for place in 0..self.slots.count() {
            self.slots.clear(place);
        }
        self.shared.order_restart();
        self.shared.set_lease(scotfree_core::Nanos(0));
        Ok(())
    }

    // ---- tests

    /// Runs the ingress program on a frame that came in by `ifindex`.
    pub fn test_ingress(&self, frame: &[u8], ifindex: u32) -> Result<TestRun, KernelError> {
        self.test_run(PROGRAM_INGRESS, frame, ifindex)
    }

    /// Runs the program that makes an acknowledgement of a stamped request's clone.
    pub fn test_egress(&self, frame: &[u8], ifindex: u32) -> Result<TestRun, KernelError> {
        self.test_run(PROGRAM_EGRESS_ALONE, frame, ifindex)
    }

    fn test_run(&self, name: &str, frame: &[u8], ifindex: u32) -> Result<TestRun, KernelError> {
        let Programs::Loaded(object) = &self.programs else { panic!("tests load the programs themselves") };
        let program = object.progs_mut().find(|program| program.name() == name);
        let program = program.expect("the object has this program");
        // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
        let context = [0, frame.len() as u32, 0, ifindex, 0, 0_u32];
        let mut context: Vec<u8> = context.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut out = vec![0; frame.len() + 256];
        let input = ProgramInput {
            context_in: Some(&mut context),
            data_in: Some(frame),
            data_out: Some(&mut out),
            ..ProgramInput::default()
        };
        let output = program.test_run(input).map_err(bpf(format!("running {name} on a frame")))?;
        let frame = output.data.map(|data| data.to_vec()).unwrap_or_default();
        Ok(TestRun { verdict: output.return_value, frame })
    }
}

/// What a program made of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestRun {
    /// Its verdict (`XDP_ABORTED` 0, `XDP_DROP` 1, `XDP_PASS` 2, `XDP_TX` 3, `XDP_REDIRECT` 4).
    pub verdict: u32,
    /// The frame as the program left it.
    pub frame: Vec<u8>,
}

fn devmap_value(ifindex: u32, program: Option<i32>) -> types::bpf_devmap_val {
    let mut value = types::bpf_devmap_val { ifindex, ..types::bpf_devmap_val::default() };
    value.bpf_prog.fd = program.unwrap_or(0);
    value
}

pub(crate) fn new_pair() -> libbpf_rs::Result<MapHandle> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        ..libbpf_sys::bpf_map_create_opts::default()
    };
    let value_bytes = size_of::<types::bpf_devmap_val>() as u32;
    MapHandle::create(MapType::DevmapHash, Some("scot_pair"), 4, value_bytes, 2, &options)
}

pub(crate) fn open_object(slot_count: u32, testing: bool) -> Result<OpenObject, KernelError> {
    let mut open = ObjectBuilder::default().open_memory(crate::OBJECT).map_err(load_failed)?;
    set_slot_count(&mut open, slot_count).map_err(load_failed)?;
    for mut program in open.progs_mut() {
        if program.name() == PROGRAM_EGRESS_ALONE {
            program.set_autoload(testing);
        }
    }
    Ok(open)
}

fn set_slot_count(open: &mut OpenObject, count: u32) -> libbpf_rs::Result<()> {
    let slots = open.maps_mut().find(|map| map.name() == TABLE_SLOTS);
    slots.expect("the object has this table").set_max_entries(count)
}

/// The number of the program that is attached to an interface, by whomever; frames that it takes reach no
/// packet socket.
pub fn attached_program(ifindex: u32) -> io::Result<Option<u32>> {
    let mut id = 0;
    // SAFETY: the number is written to a place that outlives the call.
    let result = unsafe { libbpf_sys::bpf_xdp_query_id(ifindex as i32, 0, &raw mut id) };
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    Ok((id != 0).then_some(id))
}

// ---- what outlives the daemon

pub(crate) fn make_bpf_folder(folder: &Path) -> Result<(), KernelError> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(system(format!("making the folder {}", folder.display())))?;
    let path = c_path(folder);
    let mut status = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the path ends with a zero byte and the kernel fills the whole struct if it returns 0.
    let kind = unsafe {
        if libc::statfs(path.as_ptr(), status.as_mut_ptr()) != 0 {
            return Err(system(format!("looking at {}", folder.display()))(io::Error::last_os_error()));
        }
        status.assume_init().f_type
    };
    if kind == BPF_FS_MAGIC {
        return Ok(());
    }
    // What this call made elsewhere is of no use.
    let _ = std::fs::remove_dir(folder);
    Err(KernelError::NoBpfFolder { path: folder.to_owned() })
}

/// Two daemons behind the same programs would each believe to know what the machine has decided.
pub(crate) fn lock_folder(folder: &Path) -> Result<File, KernelError> {
    let opened = File::open(folder).map_err(system(format!("opening {}", folder.display())))?;
    // SAFETY: the descriptor is open.
    if unsafe { libc::flock(opened.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(opened);
    }
    let source = io::Error::last_os_error();
    let doing =
        format!("locking {}, which another daemon has (ps -ef | grep \"scot switch\"),", folder.display());
    Err(KernelError::Io { doing, source })
}

/// Tables that are kept; the rest is made anew with every load of the programs.
fn is_kept(name: &OsStr) -> bool {
    name == TABLE_SHARED || name.as_bytes().starts_with(b"scot_")
}

pub(crate) fn table_path(folder: &Path, name: &OsStr) -> PathBuf {
    folder.join(format!("table-{}", name.to_string_lossy().trim_start_matches('.').replace('.', "-")))
}

pub(crate) fn adopt_tables(
    open: &mut OpenObject,
    folder: &Path,
    slot_count: u32,
) -> Result<bool, KernelError> {
    let slots = table_path(folder, OsStr::new(TABLE_SLOTS));
    if !slots.exists() {
        return Ok(false);
    }
    let kept = MapHandle::from_pinned_path(&slots).map_err(bpf(format!("opening {}", slots.display())))?;
    if (kept.max_entries(), kept.value_size()) != (slot_count, size_of::<types::scot_slot>() as u32) {
        let found = format!("a log of {} slots of {} bytes", kept.max_entries(), kept.value_size());
        let wanted = format!("{slot_count} slots of {} bytes", size_of::<types::scot_slot>());
        return Err(refused(folder, found, wanted));
    }
    for mut map in open.maps_mut() {
        let name = map.name().to_owned();
        if is_kept(&name) {
            let path = table_path(folder, &name);
            map.reuse_pinned_map(&path).map_err(bpf(format!("taking over {}", path.display())))?;
        }
    }
    Ok(true)
}

pub(crate) fn pin_tables(object: &mut Object, folder: &Path) -> Result<(), KernelError> {
    // The slots last: who finds them finds all.
    let names: Vec<_> = object.maps().map(|map| map.name().to_owned()).filter(|name| is_kept(name)).collect();
    let (slots, others): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| name == TABLE_SLOTS);
    for name in others.into_iter().chain(slots) {
        let path = table_path(folder, &name);
        // Left by a daemon that died while it did this.
        let _ = std::fs::remove_file(&path);
        let mut map = object.maps_mut().find(|map| map.name() == name).expect("it was listed");
        map.pin(&path).map_err(bpf(format!("keeping the table {}", path.display())))?;
    }
    Ok(())
}

fn remove_keys(table: &MapHandle, is_out: impl Fn(&[u8]) -> bool) {
    let out: Vec<Vec<u8>> = table.keys().filter(|key| is_out(key)).collect();
    for key in out {
        // A port that is gone has left the table by itself.
        let _ = table.delete(&key);
    }
}
