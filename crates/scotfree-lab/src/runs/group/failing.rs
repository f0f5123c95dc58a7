//! What runs in which members die have in common: groups that an etcd keeps, and when a kill comes.
//!
//! Invariant: each group has a name of its own in the etcd, so that none finds the members of another.

use super::etcd::Etcd;
use super::{empty_folder, peers_of, Ground, Group, GroupSettings};
use scotfree_stage::site::Site;
use scotfree_stage::trouble::Trouble;
use scotfree_stage::workload::Random;
use std::thread;
use std::time::Duration;

/// An etcd, and how many groups it has kept.
pub(super) struct Keeper<'s, 'a> {
    site: &'s Site<'a>,
    ground: Ground,
    etcd: Etcd,
    groups_count: u64,
}

impl<'s, 'a> Keeper<'s, 'a> {
    pub(super) fn up(site: &'s Site<'a>, ground: Ground) -> Result<Keeper<'s, 'a>, Trouble> {
        Ok(Keeper { site, ground, etcd: Etcd::up(site, ground.host(), 1)?, groups_count: 0 })
    }

    /// The next group, all of its members serving.
    pub(super) fn group(
        &mut self,
        settings: &GroupSettings,
        lease_ms: u64,
    ) -> Result<Group<'s, 'a>, Trouble> {
        self.groups_count += 1;
        let (folder, membership) = (empty_folder(self.site)?, self.etcd.place(self.groups_count));
        let words = self.init_words(settings, lease_ms, &membership);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.site.run_scot(self.ground.host(), "group-init", &words)?;
        Group::start_all(self.site, self.ground, settings, folder, membership)
    }

    /// Choices of its own for the group that is up.
    pub(super) fn random(&self, seed: u64) -> Random {
        Random::new(seed, self.groups_count)
    }

    fn init_words(&self, settings: &GroupSettings, lease_ms: u64, membership: &str) -> Vec<String> {
        let lease = lease_ms.to_string();
        let mut words: Vec<String> = ["group", "init", membership, "--name", "lab"].map(Into::into).into();
        words.extend(["--lease-ms", &lease, "--protocol", &settings.protocol].map(String::from));
        for id in 1..=settings.members {
            let clients = self.ground.clients_of(self.site, id);
            words.extend(["--member".into(), format!("{id}={},{clients}", peers_of(id))]);
        }
        words
    }
}

/// When a kill comes at a moment that nobody knows before, and how long clients go on.
pub(super) struct Pace {
    /// How long requests are answered before the kill, at least, and how much longer at most.
    pub(super) calm_ms: u64,
    pub(super) calm_more_ms_max: u64,
    /// How long they go on behind the latest kill and the lease.
    pub(super) after_ms: u64,
}

impl Pace {
    /// How long clients make requests.
    pub(super) const fn time_ms(&self, lease_ms: u64) -> u64 {
        self.calm_ms + self.calm_more_ms_max + lease_ms + self.after_ms
    }

    /// Waits until the kill is to come.
    pub(super) fn calm(&self, random: &mut Random) {
        thread::sleep(Duration::from_millis(self.calm_ms + random.below(self.calm_more_ms_max + 1)));
    }
}
