//! A group whose members an operator's file names: what the operator writes, and when.

use super::*;

fn asked(words: &[&str], expected: &str) {
    let (is_done, text) = scot(words);
    assert!(is_done && text.contains(expected), "{words:?}: {text}");
}

#[test]
fn a_member_that_was_killed_comes_back_by_the_operators_word() {
    let mut group = Group::new("group-by-file", "craq", static_file);
    let place = group.membership.clone();
    for said in ["wrote the first view", "already"] {
        let (is_done, text) = group.init(&[]);
        assert!(is_done && text.contains(said), "{text}");
    }
    (1..=3).for_each(|id| group.start(id));
    (1..=3).for_each(|id| group.await_said(id, "view 1 of members 1, 2, 3: this one is full"));
    let mut client = group.client(&[1, 2, 3], Policy::Random);
    let mut answers = client.increment(50, |_| {});

    group.members.remove(&3).expect("it was started").kill();
    asked(&["group", "add", &place, "3"], "epoch 2, in which member 3 joins");
    asked(&["group", "add", &place, "3"], "nothing to do");
    asked(&["group", "status", &place], "member 3: joining");
    hang_up(&group, &[1, 2]);
    (1..=2).for_each(|id| group.await_said(id, "view 2 of members 1, 2, 3: this one is full"));
    answers.extend(client.increment(50, |_| {}));

    group.start(3);
    group.await_said(3, "view 2 of members 1, 2, 3: this one is joining");
    group.await_said(2, "member 3 has the whole state");
    asked(&["group", "add", &place, "3", "--has-state"], "epoch 3, in which member 3 has the state");
    hang_up(&group, &[1, 2, 3]);
    (1..=3).for_each(|id| group.await_said(id, "view 3 of members 1, 2, 3: this one is full"));
    answers.extend(client.increment(50, |_| {}));
    assert_counted(&answers, 1);
    for id in 1..=3 {
        assert_eq!(group.client(&[1, 2, 3], Policy::Member(id)).read(), 150, "member {id}");
    }

    // What is no next view changes nothing.
    let file = group.folder.path().join("members.toml");
    let text = fs::read_to_string(&file).expect("it was written").replace("epoch = 3", "epoch = 2");
    for (wrong, reason) in [(text.as_str(), "raise it"), ("epoch = ", "TOML parse error")] {
        fs::write(&file, wrong).expect("the folder is ours");
        hang_up(&group, &[1]);
        group.await_said(1, reason);
    }
    assert_eq!(client.increment(1, |_| {}), [151]);
}

#[test]
fn one_that_was_started_again_does_not_say_that_it_has_the_state_because_the_file_does() {
    let mut group = Group::new("group-full-by-file", "chain", static_file);
    assert!(group.init(&[]).0);
    (1..=3).for_each(|id| group.start(id));
    (1..=3).for_each(|id| group.await_said(id, "this one is full"));
    group.members.remove(&3).expect("it was started").kill();
    let file = group.folder.path().join("members.toml");
    let text = fs::read_to_string(&file).expect("it was written");
    fs::write(&file, text.replace("epoch = 1", "epoch = 2")).expect("the folder is ours");
    group.start(3);
    group.await_said(3, "says that this member has the state, and it has not");
}

#[test]
fn members_that_do_not_mean_the_same_group_say_so() {
    let mut group = Group::new("group-other-by-file", "craq", static_file);
    assert!(group.init(&[]).0);
    (1..=2).for_each(|id| group.start(id));
    let mut third = group.command(3, 3, "other");
    group.members.insert(3, Running(third.spawn().expect("scot starts")));
    for (id, other) in [(2, 3), (3, 2)] {
        let address = group.addresses[other - 1].0;
        group.await_said(id, &format!("from {address}: of another group"));
    }
}

fn hang_up(group: &Group, ids: &[u8]) {
    for id in ids {
        group.members[id].signal(Signal::HUP);
    }
}
