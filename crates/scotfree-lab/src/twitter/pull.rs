//! A post gets its number from its author and is looked up by the followers when they read: all that is
//! written is set to a value that its writer knows.
//!
//! Invariant: a post's text is written before the number of its author's last post says that it is there. A
//! user writes at one client only.

use super::{author_of, post_text, Users, FOLLOWS_PERCENT, SHOWN_MAX};
use crate::transactions::{Application, Client, Failure, Findings, Store};
use scotfree_stage::workload::Random;
use std::collections::BTreeSet;

/// The application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pull(pub Users);

/// Somebody who writes as some of the users and reads as these.
#[derive(Debug)]
pub struct PullClient {
    users: Users,
    random: Random,
    accounts: Vec<Account>,
    findings: Findings,
}

/// What a user has written.
#[derive(Debug)]
struct Account {
    user: u32,
    followed: BTreeSet<u32>,
    posts: u32,
}

impl Application for Pull {
    type Client = PullClient;

    fn set_up(&self, store: &mut Store) -> Result<(), Failure> {
        let users = &self.0;
        (0..users.count).try_for_each(|user| push_followed(users, user, &users.followed_by(user), store))
    }

    fn client(&self, number: u32, count: u32, random: Random) -> PullClient {
        let users = self.0.clone();
        let account = |user| Account { user, followed: users.followed_by(user), posts: 0 };
        let accounts = (number..users.count).step_by(count as usize).map(account).collect();
        PullClient { users, random, accounts, findings: Findings::default() }
    }

    fn check(&self, clients: &[PullClient], store: &mut Store) -> Result<Findings, Failure> {
        let mut findings = Findings::default();
        for client in clients {
            findings.add(&client.findings);
            for account in &client.accounts {
                self.check_account(account, store, &mut findings)?;
            }
        }
        Ok(findings)
    }
}

impl Pull {
    fn check_account(
        &self,
        account: &Account,
        store: &mut Store,
        findings: &mut Findings,
    ) -> Result<(), Failure> {
        let Account { user, followed, posts } = account;
        let last = self.0.key("last", user);
        findings.compare(&last, &store.number(&last)?, &i64::from(*posts));
        let following = self.0.key("following", user);
        let seen = store.values(std::slice::from_ref(&following))?;
        findings.compare(&following, &seen, &vec![Some(list_text(followed))]);
        let keys: Vec<String> = (1..=*posts).map(|number| post_key(&self.0, *user, number.into())).collect();
        for text in store.values(&keys)? {
            findings.compare("the author of a post", &text.as_deref().and_then(author_of), &Some(*user));
        }
        Ok(())
    }
}

impl Client for PullClient {
    fn update(&mut self, store: &mut Store) -> Result<(), Failure> {
        let index = self.any_account();
        if self.random.below(100) < FOLLOWS_PERCENT {
            self.follow(index, store)
        } else {
            self.post(index, store)
        }
    }

    /// Reads the last post of everybody whom a user follows.
    fn read(&mut self, store: &mut Store) -> Result<(), Failure> {
        let index = self.any_account();
        let followed: Vec<u32> = self.accounts[index].followed.iter().copied().take(SHOWN_MAX).collect();
        let last_keys: Vec<String> = followed.iter().map(|user| self.users.key("last", user)).collect();
        let lasts = store.numbers(&last_keys)?;
        let with_posts = followed.iter().zip(lasts).filter(|(_, last)| *last > 0);
        let keys: Vec<String> = with_posts.map(|(user, last)| post_key(&self.users, *user, last)).collect();
        if keys.is_empty() {
            return Ok(());
        }
        let missing = store.values(&keys)?.into_iter().filter(Option::is_none).count();
        self.findings.compare("the count of missing posts in a timeline", &missing, &0);
        Ok(())
    }
}

impl PullClient {
    fn any_account(&mut self) -> usize {
        self.random.below(self.accounts.len() as u64) as usize
    }

    fn post(&mut self, index: usize, store: &mut Store) -> Result<(), Failure> {
        let Account { user, posts, .. } = self.accounts[index];
        let number = posts + 1;
        store.push(&["SET", &post_key(&self.users, user, number.into()), &post_text(user)])?;
        store.push(&["SET", &self.users.key("last", user), &number.to_string()])?;
        store.replies()?;
        self.accounts[index].posts = number;
        Ok(())
    }

    fn follow(&mut self, index: usize, store: &mut Store) -> Result<(), Failure> {
        let followed = self.users.any(&mut self.random);
        let account = &mut self.accounts[index];
        account.followed.insert(followed);
        push_followed(&self.users, account.user, &account.followed, store)?;
        store.replies().map(drop)
    }
}

fn post_key(users: &Users, author: u32, number: i64) -> String {
    users.key("post", format_args!("{author}:{number}"))
}

fn push_followed(
    users: &Users,
    user: u32,
    followed: &BTreeSet<u32>,
    store: &mut Store,
) -> Result<(), Failure> {
    store.push(&["SET", &users.key("following", user), &list_text(followed)])
}

fn list_text(users: &BTreeSet<u32>) -> String {
    users.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}
