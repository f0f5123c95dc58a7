//! Waiting: epoll, eventfd, and a pipe that signal handlers write to.
//!
//! Invariant: the signal handler does nothing but write one byte to a nonblocking pipe and restores
//! `errno`, so it is safe at any instruction.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::OnceLock;
use std::time::Duration;

/// A new epoll instance.
pub fn epoll_create() -> io::Result<OwnedFd> {
    // SAFETY: takes integers only.
    let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    // SAFETY: the kernel has just made `fd` for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Adds, modifies or removes (`operation`) the watch on `fd`.
pub fn epoll_control(epoll: &OwnedFd, operation: i32, fd: RawFd, events: u32, key: u64) -> io::Result<()> {
    let mut event = libc::epoll_event { events, u64: key };
    // SAFETY: `event` lives through the call; a stale `fd` gives an error, not a fault.
    check(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), operation, fd, &raw mut event) }).map(drop)
}

/// Room for events.
pub type RawEvent = libc::epoll_event;

/// Waits for events at most `timeout`; how many came.
pub fn epoll_wait(epoll: &OwnedFd, events: &mut [RawEvent], timeout: Option<Duration>) -> io::Result<usize> {
    static NO_NANOSECONDS: AtomicBool = AtomicBool::new(false);
    // Relaxed: the flag guards no other memory; a late look costs one more refused call.
    if NO_NANOSECONDS.load(Ordering::Relaxed) {
        return epoll_wait_milliseconds(epoll, events, timeout);
    }
    let count_max = events.len().min(i32::MAX as usize) as libc::c_int;
    let time = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: i64::from(timeout.subsec_nanos()),
    });
    let time_pointer = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `events` and `time` live through the call and the count is that of `events`; the mask
    // is absent.
    let result = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.as_raw_fd(),
            events.as_mut_ptr(),
            count_max,
            time_pointer,
            std::ptr::null::<libc::sigset_t>(),
            0_usize,
        )
    };
    match check(result as libc::c_int) {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
            NO_NANOSECONDS.store(true, Ordering::Relaxed);
            epoll_wait_milliseconds(epoll, events, timeout)
        }
        other => other.map(|count| count as usize),
    }
}

/// Before Linux 5.11 there are only milliseconds; rounding up keeps timers from firing early.
fn epoll_wait_milliseconds(
    epoll: &OwnedFd,
    events: &mut [RawEvent],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    let milliseconds = timeout
        .map_or(-1, |timeout| i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
    let count_max = events.len().min(i32::MAX as usize) as libc::c_int;
    // SAFETY: `events` lives through the call and `count_max` is its length.
    let result = unsafe { libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr(), count_max, milliseconds) };
    check(result).map(|count| count as usize)
}

/// A new nonblocking eventfd at zero.
pub fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: takes integers only.
    let fd = check(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
    // SAFETY: the kernel has just made `fd` for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes an eventfd readable. It can only fail when the counter is full, and then it is readable.
pub fn eventfd_set(fd: &OwnedFd) {
    let one = 1_u64.to_ne_bytes();
    // SAFETY: pointer and length describe `one`, which lives through the call.
    let _ = unsafe { libc::write(fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

/// Makes an eventfd unreadable; whether it was readable.
pub fn eventfd_clear(fd: &OwnedFd) -> bool {
    read_some(fd, &mut [0; 8]) == 8
}

/// Reads what a nonblocking descriptor holds; 0 if nothing.
pub fn read_some(fd: &OwnedFd, buffer: &mut [u8]) -> usize {
    // SAFETY: pointer and length describe `buffer`, which lives through the call.
    let count = unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
    usize::try_from(count).unwrap_or(0)
}

/// The pipe of the signal handlers, never closed: a handler may run at any moment.
static SIGNAL_PIPE: OnceLock<(OwnedFd, OwnedFd)> = OnceLock::new();
/// Its write end, for the handlers, which must not touch the lock.
static SIGNAL_WRITER: AtomicI32 = AtomicI32::new(-1);
/// Whether the handlers have an owner.
static SIGNALS_OWNED: AtomicBool = AtomicBool::new(false);

/// Routes `signals` of the whole process into a pipe, one byte (the number) each; its read end.
pub fn signals_install(signals: &[i32]) -> io::Result<&'static OwnedFd> {
    // AcqRel: whoever sets the flag owns the handlers and the pipe until `signals_restore`.
    if SIGNALS_OWNED.swap(true, Ordering::AcqRel) {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "signal handlers are installed already"));
    }
    install_all(signals).inspect_err(|_| signals_restore(signals))
}

fn install_all(signals: &[i32]) -> io::Result<&'static OwnedFd> {
    if SIGNAL_PIPE.get().is_none() {
        let ends = pipe()?;
        SIGNAL_WRITER.store(ends.1.as_raw_fd(), Ordering::Release);
        // Only the owner of the flag comes here, so the cell is still empty.
        let _ = SIGNAL_PIPE.set(ends);
    }
    for signal in signals {
        set_handler(*signal, on_signal as *const () as usize)?;
    }
    let (reader, _) = SIGNAL_PIPE.get().ok_or_else(|| io::Error::other("the signal pipe is missing"))?;
    Ok(reader)
}

/// Gives `signals` back to their default actions.
pub fn signals_restore(signals: &[i32]) {
    for signal in signals {
        // A signal that was never accepted keeps its default action, which is what is wanted.
        let _ = set_handler(*signal, libc::SIG_DFL);
    }
    SIGNALS_OWNED.store(false, Ordering::Release);
}

/// Has writes beyond `RLIMIT_FSIZE` fail instead of ending the process.
pub fn ignore_file_limits() {
    // It always works for a signal that exists and may be ignored.
    let _ = set_handler(libc::SIGXFSZ, libc::SIG_IGN);
}

extern "C" fn on_signal(signal: libc::c_int) {
    let fd = SIGNAL_WRITER.load(Ordering::Acquire);
    if fd < 0 {
        return;
    }
    let byte = [signal as u8];
    // SAFETY: returns the address of this thread's errno, always valid.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: `errno` is valid as above and no other thread touches this thread's.
    let saved = unsafe { *errno };
    // SAFETY: `write` is allowed in signal handlers; `byte` lives through the call. A full pipe loses a
    // signal of which many copies are waiting already.
    let _ = unsafe { libc::write(fd, byte.as_ptr().cast(), 1) };
    // SAFETY: as above.
    unsafe { *errno = saved };
}

fn set_handler(signal: i32, handler: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: sigaction is plain data, for which zero is a valid value (empty mask, no flags).
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: `action` lives through the call and names a standard action or `on_signal`, which is
    // safe at any instruction (see the module's invariant).
    check(unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) }).map(drop)
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for the two descriptors.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) })?;
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
    let reader = unsafe { OwnedFd::from_raw_fd(ends[0]) };
    // SAFETY: as above.
    let writer = unsafe { OwnedFd::from_raw_fd(ends[1]) };
    Ok((reader, writer))
}
