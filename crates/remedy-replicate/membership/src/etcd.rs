//! A membership that etcd keeps: one thread asks it, the machine decides.
//!
//! Invariant: what waits is bounded, in both directions: of views, leases, progress and joiners only the newest
//! counts, and of texts the last ones.

mod absent;
pub(crate) mod commands;
mod decide;
pub(crate) mod endpoint;
mod gateway;
mod machine;
mod request;
mod seen;

use crate::{Membership, MembershipEvent, Myself};
use endpoint::Endpoint;
use gateway::Gateway;
use machine::Machine;
use remedy_replicate::MemberId;
use scotfree_core::Nanos;
use scotfree_io::{now_boottime, Waker};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError};
use std::sync::{mpsc, Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How many texts wait to be polled; the oldest is lost first.
const TEXTS_MAX: usize = 64;

/// How a member finds its group at etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdSettings {
    /// Where the group's keys are.
    pub endpoint: Endpoint,
    /// The protocol by which this member keeps the state; the group has to have the same.
    pub protocol: String,
    /// By how much a clock, etcd's or this host's, goes wrong at most, in parts of a million.
    pub drift_ppm_max: u32,
    /// How many writes this member's state has seen as it starts.
    pub applied: u64,
    /// In which epoch the history began of which that state is ([`remedy_replicate::View::founded`]), if any.
    pub founded: Option<u64>,
    /// How often at most a progress is told after that. Each time leaves a revision behind at etcd, until etcd is
    /// told to compact.
    pub progress_every: Nanos,
}

/// A membership at etcd. Dropping it ends the thread and leaves the lease to run out, as a crash does.
pub struct EtcdMembership {
    shared: Arc<Shared>,
    /// Wakes the thread; dropping it ends the thread.
    bell: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and its owner both see.
struct Shared {
    news: Mutex<News>,
    waker: Waker,
    applied: AtomicU64,
    wishes: Mutex<Wishes>,
}

/// What the owner wants to have done.
#[derive(Default)]
struct Wishes {
    promoted: Option<(MemberId, u64)>,
    leaves: bool,
}

#[derive(Default)]
struct News {
    view: Option<MembershipEvent>,
    lease: Option<MembershipEvent>,
    texts: VecDeque<MembershipEvent>,
}

impl EtcdMembership {
    /// Starts the thread; what becomes of it is told as events.
    pub fn start(settings: EtcdSettings, myself: Myself) -> io::Result<EtcdMembership> {
        let shared = Arc::new(Shared {
            news: Mutex::default(),
            waker: Waker::new()?,
            applied: AtomicU64::new(settings.applied),
            wishes: Mutex::default(),
        });
        // One ring that was not heard yet is as good as many.
        let (bell, heard) = mpsc::sync_channel(1);
        let machine = Machine::new(myself, &settings, now_boottime());
        let gateway = Gateway::new(settings.endpoint);
        let keeper = Keeper { machine, gateway, shared: Arc::clone(&shared), bell: heard };
        let thread = std::thread::Builder::new().name("membership".to_owned()).spawn(|| keeper.run())?;
        Ok(EtcdMembership { shared, bell: Some(bell), thread: Some(thread) })
    }

    /// Ends the thread, which may be waiting for one more answer.
    fn end(&mut self) {
        self.bell = None;
        if let Some(thread) = self.thread.take() {
            // One that has panicked has said so already.
            let _ = thread.join();
        }
    }

    fn ring(&self) {
        if let Some(bell) = &self.bell {
            // It rings already, or the thread has ended.
            let _ = bell.try_send(());
        }
    }
}

impl Membership for EtcdMembership {
    fn poll(&mut self, out: &mut Vec<MembershipEvent>) {
        // Drained first: what comes while we take wakes again.
        if !self.shared.waker.drain() {
            return;
        }
        let News { view, lease, texts } = std::mem::take(&mut *self.shared.news());
        out.extend(view.into_iter().chain(lease).chain(texts));
    }

    fn poll_fd(&self) -> Option<RawFd> {
        Some(self.shared.waker.as_raw_fd())
    }

    fn promote(&mut self, member: MemberId, epoch: u64) {
        let before = self.shared.wishes().promoted.replace((member, epoch));
        if before != Some((member, epoch)) {
            self.ring();
        }
    }

    fn tell_progress(&mut self, applied: u64) {
        // Relaxed: a number that is shown, and guards no other memory.
        self.shared.applied.store(applied, Ordering::Relaxed);
    }

    fn leave(&mut self) {
        self.shared.wishes().leaves = true;
        self.end();
        *self.shared.news() = News::default();
    }
}

impl Drop for EtcdMembership {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn wishes(&self) -> MutexGuard<'_, Wishes> {
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever panicked holding it left whole events behind.
    fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, events: Vec<MembershipEvent>) {
        if events.is_empty() {
            return;
        }
        let mut news = self.news();
        for event in events {
            news.add(event);
        }
        drop(news);
        self.waker.wake();
    }
}

impl News {
    fn add(&mut self, event: MembershipEvent) {
        match event {
            MembershipEvent::View(_) => self.view = Some(event),
            MembershipEvent::Lease { .. } => self.lease = Some(event),
            MembershipEvent::Trouble(_) | MembershipEvent::Well(_) | MembershipEvent::Refused(_) => {
                if self.texts.len() == TEXTS_MAX {
                    self.texts.pop_front();
                }
                self.texts.push_back(event);
            }
        }
    }
}

/// The thread.
struct Keeper {
    machine: Machine,
    gateway: Gateway,
    shared: Arc<Shared>,
    bell: Receiver<()>,
}

impl Keeper {
    /// Asks and waits in turn until the owner is gone.
    fn run(mut self) {
        while self.wait() {
            self.take_wishes();
            if let Some(request) = self.machine.next(now_boottime()) {
                match self.gateway.ask(&request, self.machine.time_limit()) {
                    Ok(answer) => self.machine.on_answer(now_boottime(), answer),
                    Err(reason) => self.machine.on_failure(now_boottime(), &reason),
                }
            }
            self.shared.tell(self.machine.take_events());
        }
        if self.shared.wishes().leaves {
            self.leave();
        }
    }

    fn take_wishes(&mut self) {
        self.machine.tell_progress(self.shared.applied.load(Ordering::Relaxed));
        if let Some((member, epoch)) = self.shared.wishes().promoted {
            self.machine.promote(member, epoch);
        }
    }

    /// Waits for the bell or the machine's time; false when the owner is gone.
    fn wait(&self) -> bool {
        let now = now_boottime();
        let heard = match self.machine.next_timer() {
            Some(due) if due <= now => self.bell.try_recv().map_err(|error| match error {
                TryRecvError::Empty => RecvTimeoutError::Timeout,
                TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
            }),
            Some(due) => self.bell.recv_timeout(Duration::from_nanos(due.since(now).0)),
            None => self.bell.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        heard != Err(RecvTimeoutError::Disconnected)
    }

    /// Asks each server once: if none answers, the lease runs out as after a crash.
    fn leave(&mut self) {
        let limit = self.machine.time_limit();
        let Some(request) = self.machine.leave(now_boottime()) else { return };
        for _ in 0..self.gateway.host_count() {
            if self.gateway.ask(&request, limit).is_ok() {
                return;
            }
        }
    }
}
