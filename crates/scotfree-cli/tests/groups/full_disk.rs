//! A member whose disk is full: it says so and is counted no longer, the others go on, and when there is room it comes
//! back with what it has.

use super::trouble::{group_at_etcd, start_all};
use super::*;
use rustix::fs::statvfs;
use std::process::ExitStatus;

/// A file system of a member's own, in memory, over the folder where its files lie; it goes with that.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// None where nothing can be mounted.
    fn mount(folder: PathBuf) -> Option<SmallDisk> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=96M,mode=700", "scot-small"]).arg(&folder);
        let output = mount.output().expect("every system has mount");
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            eprintln!("SKIP: no file system can be mounted here: run it as root ({})", said.trim());
            return None;
        }
        Some(SmallDisk(folder))
    }

    /// From now on it takes so much more than lies on it.
    fn leave_room(&self, bytes: u64) {
        let found = statvfs(&self.0).expect("it is mounted");
        let size = (found.f_blocks - found.f_bfree) * found.f_frsize + bytes;
        let remount = format!("remount,size={size}");
        done(Command::new("mount").args(["-o", &remount]).arg(&self.0));
    }

    /// The log has room only for what was written there: as a copy has it that leaves zeros out, or any file of a file
    /// system that puts what is written somewhere else.
    fn thin_out(&self) {
        done(Command::new("fallocate").arg("--dig-holes").arg(self.0.join("kv.wal")));
    }
}

fn done(command: &mut Command) {
    let output = command.output().expect("every system has it");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A member has ended by itself, with a reason; what it had said before counts as well.
fn await_end(group: &mut Group, id: u8, reasons: &[&str]) {
    let mut ended: Option<ExitStatus> = None;
    let member = &mut group.members.get_mut(&id).expect("it was started").0;
    let has_ended = wait_until(PATIENCE, || {
        ended = member.try_wait().expect("it is ours");
        ended.is_some()
    });
    let said = group.said(id);
    assert!(has_ended, "member {id} goes on: {said}");
    assert!(ended.is_some_and(|status| status.code() == Some(3)), "{ended:?}: {said}");
    for reason in reasons {
        assert!(said.contains(reason), "{reason}: {said}");
    }
    group.members.remove(&id);
}

fn come_back(group: &mut Group, id: u8) {
    group.start(id);
    let (is_full, text) = scot(&["group", "add", &group.membership, &id.to_string()]);
    assert!(is_full, "{text}\n{}", group.said(id));
}

#[test]
fn a_member_whose_log_finds_no_room_ends_and_comes_back_when_there_is_some() {
    let Some((_ground, _etcd, mut group)) = group_at_etcd("group-full-log", "craq") else { return };
    let Some(disk) = SmallDisk::mount(group.folder_of(3)) else { return };
    group.log_size = "64M";
    start_all(&mut group);
    let mut client = group.client(&[1, 2, 3], Policy::Random);
    let mut answers = client.increment(50, |_| {});
    group.members.remove(&3).expect("it was started").kill();
    disk.thin_out();
    disk.leave_room(1 << 20);
    come_back(&mut group, 3);

    // Three times what there is room for, and all of it is answered.
    let count = 3_000;
    client.fill(count);
    await_end(&mut group, 3, &["writing records of", "3/kv.wal failed: No space left", "make room there"]);
    group.await_said(1, "of members 1, 2: this one is full");
    answers.extend(client.increment(50, |_| {}));

    disk.leave_room(64 << 20);
    come_back(&mut group, 3);
    answers.extend(client.increment(50, |_| {}));
    assert_counted(&answers, 1);
    for id in 1..=3 {
        let mut reader = group.client(&[1, 2, 3], Policy::Member(id));
        assert_eq!((reader.read(), reader.filled(count)), (150, count), "member {id}");
    }
}

#[test]
fn a_member_on_a_full_disk_goes_on_through_views_and_starts_again() {
    let Some((_ground, _etcd, mut group)) = group_at_etcd("group-full-view", "hermes") else { return };
    let Some(disk) = SmallDisk::mount(group.folder_of(3)) else { return };
    start_all(&mut group);
    let mut client = group.client(&[1, 2, 3], Policy::Random);
    let mut answers = client.increment(50, |_| {});
    // Its log and what it notes of views have their room since they were made.
    disk.leave_room(0);
    answers.extend(client.increment(50, |_| {}));
    group.members.remove(&2).expect("it was started").kill();
    group.await_said(3, "of members 1, 3: this one is full");
    answers.extend(client.increment(50, |_| {}));
    group.members.remove(&3).expect("it was started").kill();
    group.await_said(1, "of members 1: this one is full");
    answers.extend(client.increment(50, |_| {}));
    for id in [3, 2] {
        come_back(&mut group, id);
        answers.extend(client.increment(50, |_| {}));
    }
    assert_counted(&answers, 1);
    for id in 1..=3 {
        assert_eq!(group.client(&[1, 2, 3], Policy::Member(id)).read(), 300, "member {id}");
    }
}
