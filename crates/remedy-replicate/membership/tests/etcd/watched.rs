//! A member whose events are kept as they come.

use super::{clients, pause, peers, LIMIT};
use remedy_replicate::{MemberId, Standing, View};
use remedy_replicate_membership::{
    status, Endpoint, EtcdMembership, EtcdSettings, Membership, MembershipEvent, Myself,
};
use scotfree_core::Nanos;
use scotfree_io::{now_boottime, Interest, Poller};
use std::time::Duration;

pub struct Watched {
    membership: EtcdMembership,
    poller: Poller,
    id: MemberId,
    boot: u32,
    pub view: Option<View>,
    pub until: Nanos,
    pub texts: Vec<MembershipEvent>,
    /// How many of the texts have been waited for.
    heard: usize,
}

impl Watched {
    pub fn start(endpoint: &Endpoint, id: u8, boot: u32, applied: u64) -> Watched {
        Watched::start_like(endpoint, id, boot, applied, 7)
    }

    pub fn start_like(endpoint: &Endpoint, id: u8, boot: u32, applied: u64, fingerprint: u64) -> Watched {
        let endpoint = endpoint.clone();
        let settings = EtcdSettings {
            endpoint,
            protocol: "hermes".to_owned(),
            drift_ppm_max: 500,
            applied,
            founded: (applied > 0).then_some(1),
            progress_every: Nanos::from_millis(100),
        };
        let (group, peers, clients) = ("g1".to_owned(), peers(id), clients(id));
        let id = MemberId(id);
        let myself = Myself { group, id, boot, peers, clients, fingerprint };
        let membership = EtcdMembership::start(settings, myself).unwrap();
        let poller = Poller::new(1).unwrap();
        poller.add(membership.poll_fd().unwrap(), 0, Interest::Read).unwrap();
        Watched { membership, poller, id, boot, view: None, until: Nanos(0), texts: Vec::new(), heard: 0 }
    }

    /// Whether it may answer reads now.
    pub fn is_serving(&self) -> bool {
        let named = self.view.as_ref().and_then(|view| view.member(self.id));
        let is_full = named.is_some_and(|n| n.boot == self.boot && n.standing == Standing::Full);
        is_full && now_boottime() < self.until
    }

    pub fn promote(&mut self, member: MemberId, epoch: u64) {
        self.membership.promote(member, epoch);
    }

    pub fn leave(mut self) {
        self.membership.leave();
    }

    pub fn tell_progress(&mut self, applied: u64) {
        self.membership.tell_progress(applied);
    }

    pub fn poll(&mut self) {
        let mut events = Vec::new();
        self.membership.poll(&mut events);
        for event in events {
            match event {
                MembershipEvent::View(view) => {
                    let known = self.view.as_ref().map_or(0, |view| view.epoch);
                    assert!(view.epoch > known, "epoch {} after {known}", view.epoch);
                    self.view = Some(view);
                }
                MembershipEvent::Lease { until } => self.until = until,
                text => self.texts.push(text),
            }
        }
    }

    pub fn wait_until(&mut self, what: &str, mut is_so: impl FnMut(&Watched) -> bool) {
        let until = now_boottime().plus(LIMIT);
        self.poll();
        while !is_so(self) {
            assert!(
                now_boottime() < until,
                "member {} waits for this in vain: {what}; {:?}, {:?}",
                self.id,
                self.view,
                self.texts
            );
            self.poller.wait(Some(Duration::from_millis(20))).unwrap();
            self.poll();
        }
    }

    /// Goes on listening for a while.
    pub fn wait_for(&mut self, span: Nanos) {
        let until = now_boottime().plus(span);
        self.wait_until("time", |_| now_boottime() >= until);
    }

    pub fn wait_until_serving(&mut self) {
        self.wait_until("to serve", Watched::is_serving);
    }

    pub fn wait_for_view(&mut self, what: &str, is_it: impl Fn(&View) -> bool) {
        self.wait_until(&format!("a view {what}"), |member| member.view.as_ref().is_some_and(&is_it));
    }

    /// Waits for a text that was not waited for before.
    pub fn wait_for_text(&mut self, words: &str) {
        let heard = self.heard;
        let has = |event: &MembershipEvent| format!("{event:?}").contains(words);
        self.wait_until(words, |member| member.texts[heard..].iter().any(has));
        self.heard += self.texts[heard..].iter().position(has).unwrap() + 1;
    }

    pub fn wait_for_refusal(&mut self) -> String {
        let refused = |event: &MembershipEvent| matches!(event, MembershipEvent::Refused(_));
        self.wait_until("to be refused", |member| member.texts.iter().any(refused));
        let Some(MembershipEvent::Refused(reason)) = self.texts.iter().find(|event| refused(event)) else {
            unreachable!("it was just found")
        };
        reason.clone()
    }

    pub fn wait_until_none_is_alive(endpoint: &Endpoint) {
        let until = now_boottime().plus(LIMIT);
        while status(endpoint).unwrap().members.iter().any(|member| member.live.is_some()) {
            assert!(now_boottime() < until, "somebody is still alive");
            pause();
        }
    }
}
