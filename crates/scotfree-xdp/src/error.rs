//! Why the programs do not run, in words that say what to do next.

use crate::prepared;
use std::io;
use std::path::{Path, PathBuf};

/// Why the programs do not run.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The kernel does not take them.
    #[error("loading the device's programs into the kernel failed: {source}; {hint}")]
    Load {
        /// What the kernel said.
        source: libbpf_rs::Error,
        /// What to do.
        hint: &'static str,
    },
    /// A call about the programs or their tables failed.
    #[error("{doing} failed: {source}")]
    Bpf {
        /// What was tried.
        doing: String,
        /// What the kernel said.
        source: libbpf_rs::Error,
    },
    /// A system call failed.
    #[error("{doing} failed: {source}")]
    Io {
        /// What was tried.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
    /// The folder is not on a BPF file system.
    #[error(
        "{} is not on a BPF file system, where the log must be kept so that it outlives the daemon; \
         as root: mount -t bpf bpf /sys/fs/bpf (`ip netns exec` hides one that is mounted), or name another folder \
         with --pin; `--plane user` needs none", path.display()
    )]
    NoBpfFolder {
        /// The folder.
        path: PathBuf,
    },
    /// A folder's name has a dot, which no name in a BPF file system may have.
    #[error(
        "{} cannot be made: `{name}` has a dot, which no name in a BPF file system may have; name it `{}`",
        path.display(), name.replace('.', "-")
    )]
    Dot {
        /// The folder.
        path: PathBuf,
        /// The part of it with the dot.
        name: String,
    },
    /// The folder is the file system itself.
    #[error(
        "{} is where a file system is mounted: what is kept lies in a folder of its own, which can be given away and \
         removed; name one below it: {}", path.display(), path.join("scotfree-NAME").display()
    )]
    MountPoint {
        /// The folder.
        path: PathBuf,
    },
    /// A process has the folder.
    #[error("{} is in use: {}", path.display(), in_use(*holder))]
    InUse {
        /// The folder.
        path: PathBuf,
        /// The process that has it, if that can be seen from here.
        holder: Option<u32>,
    },
    /// What is kept there is of another kind.
    #[error(
        "{} holds {found}, this daemon needs {wanted}; start with its settings, or, if nothing in that log \
         is needed any more, give it up: {give_up}", path.display()
    )]
    Kept {
        /// The folder.
        path: PathBuf,
        /// What stands there.
        found: String,
        /// What this daemon needs.
        wanted: String,
        /// The command that ends that log.
        give_up: String,
    },
    /// A set was made by another build.
    #[error(
        "the programs in {} are of another build of scot; as root: scot setup --group GROUP, with this one \
         (the log stays)", path.display()
    )]
    OtherBuild {
        /// The folder.
        path: PathBuf,
    },
    /// A set has a log of another size.
    #[error(
        "{} has a log of {found} slots, not of {wanted}: leave --slots away, or make the sets of the group anew, as \
         root: scot setup --group GROUP --remove, then again", path.display()
    )]
    SetSlots {
        /// The folder.
        path: PathBuf,
        /// How many there are.
        found: u32,
        /// How many are wanted.
        wanted: u32,
    },
    /// A set has not all functions of the list.
    #[error(
        "the programs in {} have no `{function}`: take it out of [switch] functions, or start as root with a folder \
         of the device's own (--pin), or with `--plane user`", path.display()
    )]
    NotInSet {
        /// The folder.
        path: PathBuf,
        /// What it has not.
        function: &'static str,
    },
    /// There is no set.
    #[error(
        "{} is no set of programs, or not for this user; see: ls -l /sys/fs/bpf; make one, as root: scot setup \
         --group GROUP", path.display()
    )]
    NoSet {
        /// The folder.
        path: PathBuf,
    },
    /// This user may not use the folder.
    #[error(
        "{doing} failed: {source}; root may use {}, and so may the members of its group if it is a set: ls -ld {} says \
         which (as root: usermod -aG GROUP USER, who then logs in anew); if there is none, as root: scot setup --group \
         GROUP; `--plane user` needs neither", path.display(), path.parent().unwrap_or(path).display()
    )]
    ShutOut {
        /// The folder.
        path: PathBuf,
        /// What was tried.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
    /// There is no such function.
    #[error(
        "the programs in the kernel have no part of function `{name}`; those that they have: {known}. Give --plane user, \
         or take `{name}` out of the functions"
    )]
    NoFunction {
        /// The name.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// A set has pairs of ports for fewer servers.
    #[error(
        "{} serves {most} servers at most, not {wanted}: name fewer, or give the daemon programs of its own, as root: \
         --pin /sys/fs/bpf/scotfree-NAME", path.display()
    )]
    SetServers {
        /// The folder.
        path: PathBuf,
        /// How many there can be.
        most: usize,
        /// How many are wanted.
        wanted: usize,
    },
    /// A port does not take the program.
    #[error("attaching to {interface} failed: {source}; {hint}")]
    Attach {
        /// The port.
        interface: String,
        /// What the kernel said.
        source: io::Error,
        /// What to do.
        hint: &'static str,
    },
}

fn in_use(holder: Option<u32>) -> String {
    let (who, end) = match holder {
        Some(pid) => (format!("process {pid} has it"), format!("kill {pid}")),
        None => {
            ("a process that is not to be seen from here has it".to_owned(), "ps -ef | grep scot".to_owned())
        }
    };
    format!("{who}, as a device's daemon has while it runs; end that first ({end}), which keeps its log, then try again")
}

fn load_hint(error: &libbpf_rs::Error) -> &'static str {
    match error.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => {
            "it needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN in the first user namespace (root has them), or a set that root has made for your group (`scot \
             setup --help`): --pin /sys/fs/bpf/scotfree-group-GROUP/0; if the rights are there, this kernel refuses \
             the programs: docs/kernels.md names those that were tried; `--plane user` needs none of this"
        }
        libbpf_rs::ErrorKind::OutOfMemory => "the log's slots are kernel memory: grant fewer with --slots",
        _ => "`scot doctor` says what this kernel lacks; `--plane user` works everywhere",
    }
}

pub(crate) fn attach_hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::EINVAL) => {
            "its driver has no native XDP for it: give --xdp-mode generic, or --plane user"
        }
        Some(libc::EBUSY | libc::EEXIST) => {
            "another program is attached: `ip link show` names it; detach it (ip link set dev PORT xdp off; that of \
             another device goes with its folder, which `scot doctor` names) or give --plane user"
        }
        Some(libc::ENOSPC) => {
            "the other end of the port has more transmit queues than the port has receive queues: ethtool -L PORT \
             rx COUNT, or at the other end ethtool -L INTERFACE tx COUNT; or give --xdp-mode generic, or --plane user"
        }
        Some(libc::ERANGE) => {
            "frames that arrive there may be larger than a program takes, which is an MTU of 3506 at most: ip link set \
             dev INTERFACE mtu 1500, at the port and at its other end; or give --xdp-mode generic, or --plane user"
        }
        Some(libc::EPERM) => "it needs CAP_NET_ADMIN in this network namespace; --plane user needs less",
        _ => "--plane user works with every port",
    }
}

pub(crate) fn bpf(doing: impl Into<String>) -> impl FnOnce(libbpf_rs::Error) -> KernelError {
    let doing = doing.into();
    move |source| KernelError::Bpf { doing, source }
}

pub(crate) fn system(doing: impl Into<String>) -> impl FnOnce(io::Error) -> KernelError {
    let doing = doing.into();
    move |source| KernelError::Io { doing, source }
}

/// What failed about the folder `path`, perhaps since it is not for this user.
pub(crate) fn shut_out(path: &Path, doing: String) -> impl FnOnce(io::Error) -> KernelError {
    let path = path.to_owned();
    move |source| match source.kind() {
        io::ErrorKind::PermissionDenied => KernelError::ShutOut { path, doing, source },
        _ => KernelError::Io { doing, source },
    }
}

pub(crate) fn load_failed(source: libbpf_rs::Error) -> KernelError {
    KernelError::Load { hint: load_hint(&source), source }
}

/// What is kept in `folder` has another layout, which this build cannot even end.
pub(crate) fn other_layout(folder: &Path, found: u32, wanted: u32) -> KernelError {
    let give_up = if prepared::is_set(folder) {
        "as root: scot setup --group GROUP --remove, then scot setup --group GROUP".to_owned()
    } else {
        format!("rm -r {}", folder.display())
    };
    let layout = |number: u32| format!("layout {number}");
    let (found, wanted) = (format!("tables of {}", layout(found)), layout(wanted));
    KernelError::Kept { path: folder.to_owned(), found, wanted, give_up }
}

/// What is kept in `folder` is not what is wanted.
pub(crate) fn refused(folder: &Path, found: String, wanted: String) -> KernelError {
    let remove = if prepared::is_set(folder) { "scot setup --release" } else { "rm -r" };
    let give_up = format!("{remove} {}", folder.display());
    KernelError::Kept { path: folder.to_owned(), found, wanted, give_up }
}
