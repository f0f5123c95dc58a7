//! What becomes of a group whose logs are lost, or served alone.

use super::trouble::{group_at_etcd, start_all};
use super::*;

impl Group {
    /// All members die; what they have said is forgotten.
    fn end_all(&mut self) {
        for (id, mut member) in std::mem::take(&mut self.members) {
            member.kill();
            fs::remove_file(self.folder.path().join(format!("said-{id}"))).expect("it was written");
        }
    }

    fn move_logs(&self, from: &str, to: &str) {
        for id in 1..=3 {
            let folder = self.folder_of(id);
            fs::rename(folder.join(from), folder.join(to)).expect("the log is there");
        }
    }
}

#[test]
fn a_group_whose_logs_are_all_lost_says_so_and_goes_on_when_they_are_back() {
    let Some((_ground, _etcd, mut group)) = group_at_etcd("group-lost", "craq") else { return };
    // Without a write, the logs are those that took part all the same.
    start_all(&mut group);
    group.end_all();
    start_all(&mut group);
    assert_counted(&group.client(&[1, 2, 3], Policy::Random).increment(20, |_| {}), 1);

    group.end_all();
    group.move_logs("kv.wal", "true.wal");
    (1..=3).for_each(|id| group.start(id));
    (1..=3).for_each(|id| group.await_said(id, "without the log that held it"));
    group.end_all();
    group.move_logs("true.wal", "kv.wal");
    start_all(&mut group);
    let mut client = group.client_named(*b"another's client", &[1, 2, 3], Policy::Random);
    assert_counted(&client.increment(5, |_| {}), 21);
}

#[test]
fn a_members_log_is_not_served_alone() {
    let mut group = Group::new("group-alone", "craq", static_file);
    assert!(group.init(&[]).0);
    start_all(&mut group);
    assert_counted(&group.client(&[1, 2, 3], Policy::Random).increment(1, |_| {}), 1);
    group.end_all();
    let clients = group.addresses[0].1.to_string();
    let log = group.folder_of(1).join("kv.wal").display().to_string();
    let key = group.folder.path().join("key").display().to_string();
    let alone = ["kv", "--listen", &clients, "--log", &log, "--key-file", &key];
    let (is_served, text) = scot(&alone);
    assert!(!is_served && text.contains("the log of a member of a group"), "{text}");
    let told = [&alone[..], &["--member", "1", "--membership", &group.membership]].concat();
    let (is_served, text) = scot(&told);
    assert!(!is_served && text.contains("--member, --membership without --group"), "{text}");
}
