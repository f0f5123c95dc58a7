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

    /// The same, and the logs of the others are lost.
    fn end_all_but_logs_of(&mut self, kept: &[u8]) {
        self.end_all();
        for id in (1..=3).filter(|id| !kept.contains(id)) {
            let folder = self.folder_of(id);
            fs::remove_dir_all(&folder).and_then(|()| fs::create_dir(&folder)).expect("the folder is ours");
        }
        fs::remove_file(self.folder.path().join("said-3")).expect("it was written");
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
fn a_group_whose_full_members_are_lost_goes_on_with_what_another_holds_if_its_operator_says_so() {
    let Some((_ground, _etcd, mut group)) = group_at_etcd("group-recovered", "hermes") else { return };
    start_all(&mut group);
    assert_counted(&group.client(&[1, 2, 3], Policy::Random).increment(20, |_| {}), 1);
    // The others go on without the third, and are lost with all that they have answered since.
    group.members.remove(&3).expect("it was started").kill();
    let answers = group.client_named(*b"another's client", &[1, 2], Policy::Random).increment(5, |_| {});
    assert_counted(&answers, 21);
    group.end_all_but_logs_of(&[3]);
    let place = group.membership.clone();
    // While their leases last the third would be one that joins them, and not say what it holds.
    let are_gone = || scot(&["group", "status", &place]).1.matches("full; not alive").count() == 2;
    assert!(wait_until(PATIENCE, are_gone), "{}", scot(&["group", "status", &place]).1);
    group.start(3);
    group.await_said(3, "scot group recover goes on with what another member holds");
    for (words, why) in [(&["3"][..], "--accept-loss"), (&["2", "--accept-loss"], "member 2 is not there")] {
        let (is_done, text) = scot(&[&["group", "recover", &place], words].concat());
        assert!(!is_done && text.contains(why), "{text}");
    }
    for said in ["goes on with what member 3 holds", "nothing to recover"] {
        let (is_done, text) = scot(&["group", "recover", &place, "3", "--accept-loss"]);
        assert!(is_done && text.contains(said), "{text}");
    }
    group.await_said(3, "this one is full");
    for id in [1, 2] {
        group.start(id);
        let (is_full, text) = scot(&["group", "add", &place, &id.to_string()]);
        assert!(is_full, "{text}\n{}", group.said(id));
    }
    let mut client = group.client_named(*b"the third client", &[1, 2, 3], Policy::Random);
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
