//! A membership that etcd keeps: one thread asks it, the machine decides.
//!
//! Invariant: what has not been polled is bounded: the newest view, the newest lease, and the last texts.

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
use scotfree_io::{now_monotonic, Waker};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
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
    /// How often at most a progress is told after that. Each time leaves a revision behind at etcd, until etcd is
    /// told to compact.
    pub progress_every: Nanos,
}

/// A membership at etcd. Dropping it ends the thread and leaves the lease to run out, as a crash does.
pub struct EtcdMembership {
    shared: Arc<Shared>,
    commands: Option<Sender<Command>>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and its owner both see.
struct Shared {
    news: Mutex<News>,
    waker: Waker,
    applied: AtomicU64,
}

#[derive(Default)]
struct News {
    view: Option<MembershipEvent>,
    lease: Option<MembershipEvent>,
    texts: VecDeque<MembershipEvent>,
}

enum Command {
    Promote(MemberId, u64),
    Leave,
}

impl EtcdMembership {
    /// Starts the thread; what becomes of it is told as events.
    pub fn start(settings: EtcdSettings, myself: Myself) -> io::Result<EtcdMembership> {
        let shared = Arc::new(Shared {
            news: Mutex::default(),
            waker: Waker::new()?,
            applied: AtomicU64::new(settings.applied),
        });
        let (commands, receiver) = mpsc::channel();
        let machine = Machine::new(myself, &settings, now_monotonic());
        let gateway = Gateway::new(settings.endpoint);
        let keeper = Keeper { machine, gateway, shared: Arc::clone(&shared), commands: receiver };
        let thread = std::thread::Builder::new().name("membership".to_owned()).spawn(|| keeper.run())?;
        Ok(EtcdMembership { shared, commands: Some(commands), thread: Some(thread) })
    }

    /// Gives the lease back, so that the others go on at once instead of waiting for its end. Whoever calls this
    /// answers no reads any more.
    pub fn leave(self) {
        if let Some(commands) = &self.commands {
            // A thread that has ended has no lease to give back.
            let _ = commands.send(Command::Leave);
        }
    }
}

impl Membership for EtcdMembership {
    fn poll(&mut self, out: &mut Vec<MembershipEvent>) {
        // Drained first: what comes while we take wakes again.
        self.shared.waker.drain();
        let News { view, lease, texts } = std::mem::take(&mut *self.shared.news());
        out.extend(view.into_iter().chain(lease).chain(texts));
    }

    fn poll_fd(&self) -> Option<RawFd> {
        Some(self.shared.waker.as_raw_fd())
    }

    fn promote(&mut self, member: MemberId, epoch: u64) {
        if let Some(commands) = &self.commands {
            // The thread ends only with its owner.
            let _ = commands.send(Command::Promote(member, epoch));
        }
    }

    fn tell_progress(&mut self, applied: u64) {
        // Relaxed: a number that is shown, and guards no other memory.
        self.shared.applied.store(applied, Ordering::Relaxed);
    }
}

impl Drop for EtcdMembership {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            // One that has panicked has said so already.
            let _ = thread.join();
        }
    }
}

impl Shared {
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
    commands: Receiver<Command>,
}

impl Keeper {
    /// Asks and waits in turn until the owner is gone.
    fn run(mut self) {
        while self.take_command() {
            self.machine.tell_progress(self.shared.applied.load(Ordering::Relaxed));
            if let Some(request) = self.machine.next(now_monotonic()) {
                match self.gateway.ask(&request, self.machine.time_limit()) {
                    Ok(answer) => self.machine.on_answer(now_monotonic(), answer),
                    Err(reason) => self.machine.on_failure(now_monotonic(), &reason),
                }
            }
            self.shared.tell(self.machine.take_events());
        }
    }

    /// Waits for a command or the machine's time; false when nobody is left to command.
    fn take_command(&mut self) -> bool {
        let now = now_monotonic();
        let received = match self.machine.next_timer() {
            Some(due) if due <= now => self.commands.try_recv().map_err(|error| match error {
                TryRecvError::Empty => RecvTimeoutError::Timeout,
                TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
            }),
            Some(due) => self.commands.recv_timeout(Duration::from_nanos(due.since(now).0)),
            None => self.commands.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match received {
            Ok(Command::Promote(member, epoch)) => {
                self.machine.promote(member, epoch);
                true
            }
            Ok(Command::Leave) => {
                self.leave();
                false
            }
            Err(RecvTimeoutError::Timeout) => true,
            Err(RecvTimeoutError::Disconnected) => false,
        }
    }

    /// Asks each server once: if none answers, the lease runs out as after a crash.
    fn leave(&mut self) {
        let limit = self.machine.time_limit();
        let Some(request) = self.machine.leave(now_monotonic()) else { return };
        for _ in 0..self.gateway.host_count() {
            if self.gateway.ask(&request, limit).is_ok() {
                return;
            }
        }
    }
}
