//! More clients than a server has sessions by default, all of them at one member of a group.

use super::trouble::{group_at_etcd, start_all};
use super::*;

/// Each has two sessions with the member, of which a server takes 1,024 (`sessions_max`) where nothing else is said.
const CLIENTS: u32 = 600;

#[test]
fn many_clients_at_one_member_are_all_answered() {
    let Some((_ground, _etcd, mut group)) = group_at_etcd("group-many", "craq") else { return };
    start_all(&mut group);
    let named = |number: u32| {
        let mut name = [7; 16];
        name[..4].copy_from_slice(&number.to_le_bytes());
        group.client_named(name, &[1], Policy::Random)
    };
    let mut clients: Vec<Client> = (0..CLIENTS).map(named).collect();
    let increment: &[&[u8]] = &[b"INCR", b"n"];
    for client in &mut clients {
        let submitted = client.0.submit(RequestKind::Update, &command(increment), CallLabel::new("test"));
        submitted.expect("there is room");
    }
    let mut answers = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while answers.len() < clients.len() {
        assert!(Instant::now() < deadline, "{} of {CLIENTS} are answered", answers.len());
        for client in &mut clients {
            answers.extend(client.next_number());
        }
    }
    assert_counted(&answers, 1);
}

impl Client {
    /// What an answer says that has come, if one has.
    fn next_number(&mut self) -> Option<i64> {
        self.0.turn().expect("the socket works");
        match self.0.next_event()? {
            GroupEvent::Answered { bytes, .. } => Some(number_in(bytes)),
            GroupEvent::GivenUp { why, .. } => panic!("given up: {why:?}"),
        }
    }
}
