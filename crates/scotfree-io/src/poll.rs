//! Waiting for many descriptors, for other threads and for signals.
//!
//! Invariant: an interrupted wait goes on with the time that is left; readiness is level-triggered, so
//! nothing is missed by reading too little. A poller that may spin does so only while that has paid lately,
//! and leaves the processor to whoever else wants it.

mod crowd;
mod spin;

use crate::clock::now_monotonic;
use crate::sys::event;
use crate::transport::Transport;
pub use crowd::Crowd;
use scotfree_core::Nanos;
use spin::Looking;
pub use spin::Spin;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What to wait for on a descriptor. Errors, and a peer that is gone, are always reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Something to read.
    Read,
    /// Room to write.
    Write,
    /// Either.
    ReadWrite,
    /// Nothing but that the peer sends no more. It is reported as readable, whatever there is to read.
    End,
}

/// A descriptor that is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The key it was added under.
    pub key: u64,
    /// Reading will not block.
    pub readable: bool,
    /// Writing will not block.
    pub writable: bool,
    /// It has an error or the peer is gone. A UDP socket with transmit stamps to fetch says this too;
    /// it is reported again until they are fetched.
    pub error: bool,
}

/// Waits for many descriptors at once.
pub struct Poller {
    epoll: OwnedFd,
    raw: Box<[event::RawEvent]>,
    events: Vec<Event>,
    looking: Looking,
}

impl Poller {
    /// A poller that reports up to `events_max` descriptors per wait; further ones come with the next.
    pub fn new(events_max: usize) -> io::Result<Poller> {
        assert!(events_max > 0, "a wait reports at least one event");
        Ok(Poller {
            epoll: event::epoll_create()?,
            raw: vec![event::RawEvent { events: 0, u64: 0 }; events_max].into(),
            events: Vec::with_capacity(events_max),
            looking: Looking::Never,
        })
    }

    /// From now on looks so before it sleeps. At first it never does.
    pub fn spin(&mut self, spin: Spin) {
        self.looking = spin.into();
    }

    /// Waits as [`Poller::wait`] does, but sleeps at once, and learns nothing from that: looking now would be in
    /// somebody's way.
    pub fn wait_asleep(&mut self, timeout: Option<Duration>) -> io::Result<&[Event]> {
        let count = self.sleep(timeout)?;
        Ok(self.report(count))
    }

    /// As [`Poller::wait`] if it `looks` this time, else as [`Poller::wait_asleep`]; but looks at the transport as well,
    /// which may have what no descriptor tells of, and ends when it has.
    pub fn wait_for(
        &mut self,
        transport: &mut impl Transport,
        timeout: Option<Duration>,
        looks: bool,
    ) -> io::Result<&[Event]> {
        self.wait_with(timeout, looks, &mut OfTransport(transport))
    }

    /// As [`Poller::wait`] if it `looks` this time, else as [`Poller::wait_asleep`].
    pub fn wait_looking(&mut self, timeout: Option<Duration>, looks: bool) -> io::Result<&[Event]> {
        self.wait_with(timeout, looks, &mut Nothing)
    }

    /// Watches `fd` from now on; its events carry `key`. A descriptor leaves when it is closed.
    pub fn add(&self, fd: RawFd, key: u64, interest: Interest) -> io::Result<()> {
        event::epoll_control(&self.epoll, libc::EPOLL_CTL_ADD, fd, interest.mask(), key)
    }

    /// Changes what a watched `fd` is watched for, and its key.
    pub fn modify(&self, fd: RawFd, key: u64, interest: Interest) -> io::Result<()> {
        event::epoll_control(&self.epoll, libc::EPOLL_CTL_MOD, fd, interest.mask(), key)
    }

    /// Stops watching `fd`.
    pub fn remove(&self, fd: RawFd) -> io::Result<()> {
        event::epoll_control(&self.epoll, libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    /// Blocks until a descriptor is ready or `timeout` is over (no timeout: for ever). An empty answer
    /// means that the time is over.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<&[Event]> {
        self.wait_with(timeout, true, &mut Nothing)
    }

    fn wait_with(
        &mut self,
        timeout: Option<Duration>,
        looks: bool,
        beside: &mut dyn Beside,
    ) -> io::Result<&[Event]> {
        let count = if !looks || self.looking.is_never() || timeout == Some(Duration::ZERO) {
            self.sleep_over(timeout, beside)?.0
        } else {
            self.look_then_sleep(timeout, beside)?
        };
        Ok(self.report(count))
    }

    fn look_then_sleep(&mut self, timeout: Option<Duration>, beside: &mut dyn Beside) -> io::Result<usize> {
        let began = now_monotonic();
        let (mut count, mut is_there) = self.look(began, timeout, beside)?;
        let in_vain = count == 0 && !is_there;
        if in_vain {
            let left =
                timeout.map(|span| span.saturating_sub(Duration::from_nanos(now_monotonic().since(began).0)));
            (count, is_there) = self.sleep_over(left, beside)?;
        }
        let now = now_monotonic();
        // A time that is over would have come as late without sleeping.
        let waited = if count > 0 || is_there { now.since(began) } else { Nanos::MAX };
        self.looking.learn(waited, in_vain, now);
        Ok(count)
    }

    /// Looks until something is ready, as long as that is likely; how many descriptors are, and whether there is what
    /// none of them tells of.
    fn look(
        &mut self,
        began: Nanos,
        timeout: Option<Duration>,
        beside: &mut dyn Beside,
    ) -> io::Result<(usize, bool)> {
        let time = self.looking.time();
        let time = timeout.map_or(time, |timeout| time.min(nanos(timeout)));
        while now_monotonic().since(began) < time {
            if beside.glance() {
                return Ok((0, true));
            }
            match event::epoll_wait(&self.epoll, &mut self.raw, Some(Duration::ZERO)) {
                Ok(0) => std::thread::yield_now(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other.map(|count| (count, false)),
            }
        }
        Ok((0, false))
    }

    /// Sleeps, unless there is what no descriptor tells of; how many descriptors are ready, and whether there was that.
    fn sleep_over(
        &mut self,
        timeout: Option<Duration>,
        beside: &mut dyn Beside,
    ) -> io::Result<(usize, bool)> {
        let may_sleep = beside.may_sleep();
        let count = self.sleep(if may_sleep { timeout } else { Some(Duration::ZERO) })?;
        Ok((count, !may_sleep))
    }

    fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        let deadline = timeout.map(|span| now_monotonic().plus(nanos(span)));
        let mut left = timeout;
        loop {
            match event::epoll_wait(&self.epoll, &mut self.raw, left) {
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    left = deadline.map(|deadline| Duration::from_nanos(deadline.since(now_monotonic()).0));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn report(&mut self, count: usize) -> &[Event] {
        self.events.clear();
        self.events.extend(self.raw[..count].iter().map(|raw| {
            let mask = raw.events as i32;
            Event {
                key: raw.u64,
                readable: mask & (libc::EPOLLIN | libc::EPOLLHUP | libc::EPOLLRDHUP) != 0,
                writable: mask & libc::EPOLLOUT != 0,
                error: mask & (libc::EPOLLERR | libc::EPOLLHUP) != 0,
            }
        }));
        &self.events
    }
}

/// What is looked at beside descriptors.
trait Beside {
    fn glance(&mut self) -> bool;
    fn may_sleep(&mut self) -> bool;
}

struct OfTransport<'a, T>(&'a mut T);

impl<T: Transport> Beside for OfTransport<'_, T> {
    fn glance(&mut self) -> bool {
        (0..self.0.glances()).any(|_| {
            std::hint::spin_loop();
            self.0.glance()
        })
    }

    fn may_sleep(&mut self) -> bool {
        self.0.may_sleep()
    }
}

struct Nothing;

impl Beside for Nothing {
    fn glance(&mut self) -> bool {
        false
    }

    fn may_sleep(&mut self) -> bool {
        true
    }
}

impl AsRawFd for Poller {
    fn as_raw_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}

impl Interest {
    fn mask(self) -> u32 {
        let mask = match self {
            Interest::Read => libc::EPOLLIN | libc::EPOLLRDHUP,
            Interest::Write => libc::EPOLLOUT,
            Interest::ReadWrite => libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLOUT,
            Interest::End => libc::EPOLLRDHUP,
        };
        mask as u32
    }
}

fn nanos(span: Duration) -> Nanos {
    Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

/// Wakes a thread that waits in a [`Poller`]; share it by reference or in an `Arc`.
pub struct Waker {
    eventfd: OwnedFd,
    is_woken: AtomicBool,
}

impl Waker {
    /// A waker that nobody has used yet.
    pub fn new() -> io::Result<Waker> {
        Ok(Waker { eventfd: event::eventfd()?, is_woken: AtomicBool::new(false) })
    }

    /// Makes the waker's descriptor readable. Waking twice before it is drained is waking once.
    pub fn wake(&self) {
        event::eventfd_set(&self.eventfd);
        // Behind the descriptor: whoever drains what is not yet said here finds the descriptor readable again.
        self.is_woken.store(true, Ordering::Release);
    }

    /// Makes the descriptor unreadable again; whether somebody had woken it. Without that it is no system call.
    pub fn drain(&self) -> bool {
        let is_woken = self.is_woken.swap(false, Ordering::Acquire);
        if is_woken {
            event::eventfd_clear(&self.eventfd);
        }
        is_woken
    }
}

impl AsRawFd for Waker {
    fn as_raw_fd(&self) -> RawFd {
        self.eventfd.as_raw_fd()
    }
}

/// A request to the process from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: drain, then end.
    Terminate,
    /// SIGINT: end and remove what was made.
    Interrupt,
    /// SIGHUP: read the configuration again.
    Hangup,
}

/// SIGTERM, SIGINT and SIGHUP of the process as something to poll. Only the process's one owner of
/// signals makes this; dropping it gives the signals back to their default actions.
pub struct Signals {
    pipe: &'static OwnedFd,
}

const SIGNALS: [i32; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

impl Signals {
    /// Takes the three signals over, for all threads. Programs started later are not affected.
    pub fn install() -> io::Result<Signals> {
        Ok(Signals { pipe: event::signals_install(&SIGNALS)? })
    }

    /// The next signal that has arrived, if any.
    pub fn next_signal(&self) -> Option<Signal> {
        let mut number = [0];
        if event::read_some(self.pipe, &mut number) == 0 {
            return None;
        }
        match i32::from(number[0]) {
            libc::SIGTERM => Some(Signal::Terminate),
            libc::SIGHUP => Some(Signal::Hangup),
            _ => Some(Signal::Interrupt),
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        event::signals_restore(&SIGNALS);
    }
}

impl AsRawFd for Signals {
    fn as_raw_fd(&self) -> RawFd {
        self.pipe.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A transport that always has something, of which no descriptor tells.
    struct Full;

    impl Beside for Full {
        fn glance(&mut self) -> bool {
            false
        }

        fn may_sleep(&mut self) -> bool {
            false
        }
    }

    #[test]
    fn what_is_there_already_is_a_short_wait() {
        let mut poller = Poller::new(1).expect("a poller");
        poller.spin(Spin::UpTo(Nanos::from_micros(200)));
        for _ in 0..10 {
            assert!(poller.wait_with(None, true, &mut Full).expect("it waits").is_empty());
        }
        assert!(poller.looking.time() > Nanos(0), "waits so short would have been worth a look");
    }

    #[test]
    fn a_poller_that_spins_finds_events_and_ends_in_time() {
        let waker = Waker::new().expect("a waker");
        let mut poller = Poller::new(1).expect("a poller");
        poller.add(waker.as_raw_fd(), 7, Interest::Read).expect("it can be watched");
        let hour = Nanos::from_secs(3_600);
        poller.looking = Looking::UpTo { time_max: hour, time: hour };
        let timeout = Duration::from_millis(2);
        let began = now_monotonic();
        assert!(poller.wait(Some(timeout)).expect("it waits").is_empty());
        assert!(now_monotonic().since(began) >= nanos(timeout));
        poller.looking = Looking::UpTo { time_max: hour, time: hour };
        waker.wake();
        assert_eq!(poller.wait(None).expect("it waits")[0].key, 7);
    }
    use std::sync::Arc;

    #[test]
    fn a_waker_wakes_another_thread_once() {
        let waker = Arc::new(Waker::new().expect("a waker"));
        let mut poller = Poller::new(4).expect("a poller");
        poller.add(waker.as_raw_fd(), 42, Interest::Read).expect("a watch");
        let other = Arc::clone(&waker);
        let thread = std::thread::spawn(move || other.wake());
        let event = poller.wait(None).expect("a wait")[0];
        assert_eq!((event.key, event.readable, event.error), (42, true, false));
        thread.join().expect("the other thread ends");
        assert!(waker.drain());
        assert!(!waker.drain());
        assert!(poller.wait(Some(Duration::ZERO)).expect("a wait").is_empty());
    }

    #[test]
    fn a_wait_lasts_its_timeout_to_the_microsecond() {
        let mut poller = Poller::new(1).expect("a poller");
        let before = now_monotonic();
        assert!(poller.wait(Some(Duration::from_micros(300))).expect("a wait").is_empty());
        assert!(now_monotonic().since(before) >= Nanos::from_micros(300));
    }

    #[test]
    fn a_changed_and_a_removed_watch_are_heeded() {
        let waker = Waker::new().expect("a waker");
        waker.wake();
        let mut poller = Poller::new(2).expect("a poller");
        poller.add(waker.as_raw_fd(), 1, Interest::Read).expect("a watch");
        poller.modify(waker.as_raw_fd(), 2, Interest::ReadWrite).expect("a change");
        let event = poller.wait(None).expect("a wait")[0];
        assert_eq!((event.key, event.readable, event.writable), (2, true, true));
        poller.remove(waker.as_raw_fd()).expect("a removal");
        assert!(poller.wait(Some(Duration::ZERO)).expect("a wait").is_empty());
        assert!(poller.remove(waker.as_raw_fd()).is_err());
    }
}
