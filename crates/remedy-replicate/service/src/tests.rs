//! A member with a device before it, around the embedded store: what it does with writes when its machine does not take
//! them, and what it stores of sessions. The machine and the membership are played.
#![allow(clippy::unwrap_used)]

use crate::kept::Kept;
use crate::peers::Peers;
use crate::service::{Inner, Parts, ReplicatedService};
use remedy_replicate::{Decline, MemberId, Replica, ReplicaCounters, ReplicaOwn, View, Write};
use remedy_replicate_membership::{Membership, MembershipEvent};
use scotfree_core::{Effects, Epoch, Nanos, SeqNum, SessionId};
use scotfree_io::disk::{DiskConfig, DiskDomain};
use scotfree_io::now_monotonic;
use scotfree_kv::{command, KvOptions, KvRecovery, KvService};
use scotfree_rpc::{Execution, Handler, Replies, Service};
use scotfree_session::{RecoveredSession, RequestKind};
use scotfree_state::request_of;
use scotfree_wire::Identity;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

const SESSION: SessionId = SessionId(1 << 32 | 1);
const PATIENCE: Nanos = Nanos::from_secs(30);

/// What the test says to the machine, and what the machine was given.
#[derive(Default)]
struct Script {
    is_serving: bool,
    given: Vec<(u64, Identity)>,
    says: VecDeque<Says>,
    /// What it says by its timer, before anything is stored.
    says_by_timer: VecDeque<Says>,
    /// How often it was asked what it has for other members.
    flushes: u32,
}

/// Of the write with this ticket.
enum Says {
    Answer(u64),
    Stable(u64),
    Lost(u64),
    Decline(u64, Decline),
}

impl Says {
    fn tell(self, effects: &mut Effects<ReplicaOwn>) {
        let reply = effects.append(|out| out.extend_from_slice(b"answer"));
        effects.own(match self {
            Says::Answer(ticket) => ReplicaOwn::Answer { ticket, reply, is_refused: false },
            Says::Stable(ticket) => ReplicaOwn::Stable { ticket },
            Says::Lost(ticket) => ReplicaOwn::Lost { ticket },
            Says::Decline(ticket, why) => ReplicaOwn::Decline { ticket, why },
        });
    }
}

/// A machine that says what it is told to.
struct Played {
    state: Inner,
    script: Rc<RefCell<Script>>,
    counters: ReplicaCounters,
}

impl Replica for Played {
    type State = Inner;

    fn state(&self) -> &Inner {
        &self.state
    }

    fn state_mut(&mut self) -> &mut Inner {
        &mut self.state
    }

    fn read(&mut self, _now: Nanos, _ticket: u64, _op: &[u8], _effects: &mut Effects<ReplicaOwn>) {}

    fn write(&mut self, _now: Nanos, write: &Write<'_>, effects: &mut Effects<ReplicaOwn>) {
        let mut script = self.script.borrow_mut();
        if script.is_serving {
            script.given.push((write.ticket, write.identity));
        } else {
            effects.own(ReplicaOwn::Decline { ticket: write.ticket, why: Decline::NoView });
        }
    }

    fn on_message(&mut self, _now: Nanos, _message: &[u8], _effects: &mut Effects<ReplicaOwn>) {}

    fn greet(&mut self, _address: SocketAddr) {}

    fn on_view(&mut self, _now: Nanos, _view: &View, _effects: &mut Effects<ReplicaOwn>) {}

    fn on_lease(&mut self, _until: Nanos) {}

    fn on_stored(&mut self, _now: Nanos, effects: &mut Effects<ReplicaOwn>) {
        self.script.borrow_mut().says.drain(..).for_each(|says| says.tell(effects));
    }

    fn on_timer(&mut self, _now: Nanos, effects: &mut Effects<ReplicaOwn>) {
        self.script.borrow_mut().says_by_timer.drain(..).for_each(|says| says.tell(effects));
    }

    fn next_timer(&self) -> Option<Nanos> {
        (!self.script.borrow().says_by_timer.is_empty()).then_some(Nanos(0))
    }

    fn flush(&mut self, _now: Nanos, _effects: &mut Effects<ReplicaOwn>) {
        self.script.borrow_mut().flushes += 1;
    }

    fn counters(&self) -> &ReplicaCounters {
        &self.counters
    }

    fn epoch(&self) -> u64 {
        1
    }

    fn lineage(&self) -> Option<u64> {
        Some(1)
    }

    fn is_serving(&self, _now: Nanos) -> Result<(), Decline> {
        self.script.borrow().is_serving.then_some(()).ok_or(Decline::NoView)
    }
}

struct Nobody;

impl Membership for Nobody {
    fn poll(&mut self, _out: &mut Vec<MembershipEvent>) {}

    fn poll_fd(&self) -> Option<RawFd> {
        None
    }

    fn promote(&mut self, _member: MemberId, _epoch: u64) {}

    fn tell_progress(&mut self, _applied: u64) {}

    fn leave(&mut self) {}
}

/// A folder that goes with its test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("scot-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left is in the way of nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open(folder: &Path) -> (KvService<DiskDomain>, KvRecovery) {
    let config = DiskConfig { log_bytes: 1 << 20, ..DiskConfig::default() };
    let domain = DiskDomain::open(&folder.join("wal"), &config).unwrap();
    KvService::open(domain, &KvOptions::for_log(1 << 20, 1, folder.join("dead"))).unwrap()
}

/// A life of the member.
struct Member {
    service: ReplicatedService,
    script: Rc<RefCell<Script>>,
    replies: Replies,
}

impl Member {
    fn start(folder: &Path) -> Member {
        let (store, recovery) = open(folder);
        let script: Rc<RefCell<Script>> = Rc::default();
        let state: Inner = Box::new(store);
        let (script_of, counters) = (Rc::clone(&script), ReplicaCounters::default());
        let service = ReplicatedService::new(Parts {
            machine: Box::new(Played { state, script: script_of, counters }),
            membership: Box::new(Nobody),
            peers: Peers::bind("127.0.0.1:0".parse().unwrap()).unwrap(),
            kept: Kept::open(&folder.join("kept"), 1).unwrap(),
            id: 1,
            boot: recovery.epoch.0,
            is_behind_device: true,
            sessions: recovery.sessions,
            decline: |why| why.as_bytes().to_vec(),
            say: Box::new(|_| {}),
        });
        Member { service, script, replies: Replies::new() }
    }

    fn begin_session(&mut self) {
        let (epoch, position) = (Epoch(1), SeqNum(0));
        let (client_nonce, server_nonce) = ([1; 16], [2; 16]);
        let record = RecoveredSession { session: SESSION, epoch, client_nonce, server_nonce, position };
        self.service.record_session(&record, &mut self.replies);
    }

    fn write(&mut self, ticket: u64, seq: u64) {
        let request = Execution {
            ticket,
            session: SESSION,
            seq: SeqNum(seq),
            kind: RequestKind::Update,
            payload: &command(&[b"INCR", b"n"]),
            is_replayed: false,
            identity: None,
        };
        self.service.execute(&request, &mut self.replies);
    }

    fn turn(&mut self) {
        self.service.poll(false, &mut self.replies);
        assert_eq!(self.service.broken(), None);
    }

    fn hears(&mut self, says: impl IntoIterator<Item = Says>) {
        self.script.borrow_mut().says.extend(says);
        self.turn();
    }

    fn serve(&mut self) {
        self.script.borrow_mut().is_serving = true;
        self.turn();
    }

    fn given(&self) -> Vec<(u64, Identity)> {
        self.script.borrow().given.clone()
    }

    fn tickets(&self) -> Vec<u64> {
        self.given().into_iter().map(|(ticket, _)| ticket).collect()
    }

    fn await_stable(&mut self, ticket: u64) {
        let deadline = now_monotonic().plus(PATIENCE);
        while self.replies.stable_through() < Some(ticket) {
            assert!(now_monotonic() < deadline, "{ticket} is not stable");
            self.turn();
        }
    }
}

#[test]
fn a_write_that_is_owed_waits_until_it_is_taken_and_keeps_its_place_and_name() {
    let folder = Folder::new("owed");
    let mut member = Member::start(&folder.0);
    member.begin_session();
    (1..=3).for_each(|ticket| member.write(ticket, ticket));
    member.turn();
    assert_eq!((member.tickets(), member.replies.replies()), (vec![], vec![]), "none is declined");
    member.serve();
    assert_eq!(member.tickets(), [1, 2, 3]);
    // It is left out, and taken in again.
    member.script.borrow_mut().is_serving = false;
    let away = [Says::Decline(3, Decline::NoView), Says::Decline(2, Decline::NoView), Says::Lost(1)];
    member.hears([Says::Answer(1)].into_iter().chain(away));
    member.write(4, 4);
    member.serve();
    assert_eq!(member.tickets(), [1, 2, 3, 1, 2, 3, 4]);
    let given = member.given();
    assert_eq!(given[..3], given[3..6], "each has its name again");
    member.hears([Says::Answer(1), Says::Stable(1), Says::Decline(2, Decline::Forgotten)]);
    let answers: Vec<u64> = member.replies.replies().iter().map(|reply| reply.ticket).collect();
    assert_eq!(answers, [1, 2], "what can never be executed is declined");
}

#[test]
fn an_answer_leaves_before_the_members_are_told_and_they_are_told_at_once_behind_it() {
    let folder = Folder::new("first");
    let mut member = Member::start(&folder.0);
    member.begin_session();
    member.serve();
    member.write(1, 1);
    member.turn();
    let flushes = member.script.borrow().flushes;
    member.script.borrow_mut().says_by_timer.extend([Says::Answer(1), Says::Stable(1)]);
    member.turn();
    let answers: Vec<u64> = member.replies.replies().iter().map(|reply| reply.ticket).collect();
    assert_eq!((answers, member.script.borrow().flushes), (vec![1], flushes));
    assert_eq!(member.service.next_poll(), Some(Nanos(0)), "the turn is not over");
    member.turn();
    assert!(member.script.borrow().flushes > flushes);
}

#[test]
fn a_session_is_as_far_as_what_is_stable_and_its_writes_have_their_names_in_the_next_life() {
    let folder = Folder::new("places");
    let mut member = Member::start(&folder.0);
    member.begin_session();
    member.serve();
    (1..=3).for_each(|ticket| member.write(ticket, ticket + 4));
    member.hears([Says::Answer(1), Says::Answer(2), Says::Answer(3), Says::Stable(3), Says::Stable(1)]);
    member.await_stable(1);
    member.turn();
    assert_eq!(member.replies.stable_through(), Some(1), "the second may be lost still");
    let before = member.given();
    drop(member);
    assert_eq!(open(&folder.0).1.sessions[0].position, SeqNum(5));
    let mut member = Member::start(&folder.0);
    member.serve();
    (1..=2).for_each(|ticket| member.write(ticket, ticket + 5));
    let names = |given: &[(u64, Identity)]| -> Vec<_> {
        given.iter().map(|(_, identity)| request_of(identity)).collect()
    };
    assert_eq!(names(&member.given()), names(&before[1..]));
}

#[test]
fn a_member_that_cannot_keep_its_view_does_nothing_more() {
    let folder = Folder::new("no-room");
    let mut member = Member::start(&folder.0);
    std::fs::create_dir(folder.0.join("kept.group-new")).unwrap();
    member.script.borrow_mut().says.push_back(Says::Answer(1));
    member.service.poll(false, &mut member.replies);
    let why = member.service.broken().unwrap();
    assert!(why.contains("writing the view of the group"), "{why}");
    assert_eq!(member.script.borrow().says.len(), 1, "the machine was not moved along");
}
