//! A small Twitter on a Redis, in two designs: one distributes a post when it is written, the other when it
//! is read.
//!
//! Invariant: both have the same users, who follow the same users at first, and write posts of the same size.

pub mod pull;
pub mod push;

use scotfree_stage::workload::Random;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Whom everybody follows at first: those so many places behind.
const FOLLOWED: [u32; 5] = [1, 3, 9, 27, 81];
/// Of a hundred updates, those by which somebody follows one more; the others are posts.
const FOLLOWS_PERCENT: u64 = 10;
const POST_BYTES: usize = 100;
/// Posts that a timeline shows.
const SHOWN_MAX: usize = 10;

/// Who uses it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Users {
    /// With what all keys begin.
    pub prefix: String,
    /// How many there are.
    pub count: u32,
}

impl Users {
    /// Whom a user follows at first.
    fn followed_by(&self, user: u32) -> BTreeSet<u32> {
        FOLLOWED
            .iter()
            .map(|distance| (user + distance) % self.count)
            .filter(|other| *other != user)
            .collect()
    }

    fn any(&self, random: &mut Random) -> u32 {
        random.below(u64::from(self.count)) as u32
    }

    fn key(&self, kind: &str, of: impl std::fmt::Display) -> String {
        format!("{}{kind}:{of}", self.prefix)
    }
}

/// The text of a post, which names its author.
fn post_text(author: u32) -> String {
    format!("{author} says{:.>width$}", "", width = POST_BYTES - 10)
}

/// Who wrote a post.
fn author_of(text: &str) -> Option<u32> {
    text.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_follows_others_and_is_followed_by_as_many() {
        let users = Users { prefix: String::new(), count: 200 };
        for user in 0..users.count {
            assert_eq!(users.followed_by(user).len(), FOLLOWED.len());
            assert!(!users.followed_by(user).contains(&user));
        }
        let of_seven = (0..users.count).filter(|user| users.followed_by(*user).contains(&7)).count();
        assert_eq!(of_seven, FOLLOWED.len());
    }

    #[test]
    fn a_post_names_its_author() {
        assert_eq!(author_of(&post_text(173)), Some(173));
        assert!((95..=105).contains(&post_text(173).len()));
    }
}
