//! A post gets its number from the store and is put into the list of each follower when it is written.
//!
//! Invariant: a post's text is written before any list names it.

use super::{author_of, post_text, Users, FOLLOWS_PERCENT, SHOWN_MAX};
use crate::transactions::{number, texts, Application, Client, Failure, Findings, Store};
use scotfree_stage::resp::Reply;
use scotfree_stage::workload::Random;
use std::collections::{BTreeMap, BTreeSet};

/// The application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push(pub Users);

/// Somebody who writes and reads as all the users in turn.
#[derive(Debug)]
pub struct PushClient {
    users: Users,
    random: Random,
    posts: Vec<Post>,
    follows: Vec<Follow>,
    findings: Findings,
}

/// What was posted.
#[derive(Debug)]
struct Post {
    number: i64,
    author: u32,
    receivers: Vec<u32>,
}

#[derive(Debug)]
struct Follow {
    user: u32,
    followed: u32,
}

impl Application for Push {
    type Client = PushClient;

    fn set_up(&self, store: &mut Store) -> Result<(), Failure> {
        let users = &self.0;
        for user in 0..users.count {
            for followed in users.followed_by(user) {
                push_follow(users, &Follow { user, followed }, store)?;
            }
        }
        store.push(&["SET", &users.key("next", "post"), "0"])
    }

    fn client(&self, _number: u32, _count: u32, random: Random) -> PushClient {
        let (posts, follows) = (Vec::new(), Vec::new());
        PushClient { users: self.0.clone(), random, posts, follows, findings: Findings::default() }
    }

    fn check(&self, clients: &[PushClient], store: &mut Store) -> Result<Findings, Failure> {
        let mut findings = Findings::default();
        for client in clients {
            findings.add(&client.findings);
        }
        let posts: Vec<&Post> = clients.iter().flat_map(|client| &client.posts).collect();
        let follows: Vec<&Follow> = clients.iter().flat_map(|client| &client.follows).collect();
        self.check_posts(&posts, store, &mut findings)?;
        self.check_lists(&posts, store, &mut findings)?;
        self.check_followers(&follows, store, &mut findings)?;
        Ok(findings)
    }
}

impl Push {
    /// No two posts have one number, no number is left out, and every post can be read.
    fn check_posts(
        &self,
        posts: &[&Post],
        store: &mut Store,
        findings: &mut Findings,
    ) -> Result<(), Failure> {
        let users = &self.0;
        let numbers: BTreeSet<i64> = posts.iter().map(|post| post.number).collect();
        findings.compare("the count of different numbers of posts", &numbers.len(), &posts.len());
        let next = store.number(&users.key("next", "post"))?;
        findings.compare("the last number given to a post", &next, &(posts.len() as i64));
        let keys: Vec<String> = posts.iter().map(|post| users.key("post", post.number)).collect();
        for (post, text) in posts.iter().zip(store.values(&keys)?) {
            let author = text.as_deref().and_then(author_of);
            findings.compare("the author of a post", &author, &Some(post.author));
        }
        Ok(())
    }

    /// Every list holds the posts that were put into it, and each of them once.
    fn check_lists(
        &self,
        posts: &[&Post],
        store: &mut Store,
        findings: &mut Findings,
    ) -> Result<(), Failure> {
        let mut wanted: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for post in posts {
            for list in lists_of(&self.0, post) {
                wanted.entry(list).or_default().push(post.number);
            }
        }
        for (list, mut numbers) in wanted {
            let seen = texts(store.call(&["LRANGE", &list, "0", "-1"])?)?;
            let mut seen: Vec<i64> =
                seen.into_iter().flatten().filter_map(|text| text.parse().ok()).collect();
            seen.sort_unstable();
            numbers.sort_unstable();
            findings.compare(&list, &seen, &numbers);
        }
        Ok(())
    }

    fn check_followers(
        &self,
        follows: &[&Follow],
        store: &mut Store,
        findings: &mut Findings,
    ) -> Result<(), Failure> {
        let users = &self.0;
        let mut wanted: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        let at_first = (0..users.count)
            .flat_map(|user| users.followed_by(user).into_iter().map(move |followed| (user, followed)));
        let later = follows.iter().map(|follow| (follow.user, follow.followed));
        for (user, followed) in at_first.chain(later) {
            wanted.entry(followed).or_default().insert(user);
        }
        for (followed, wanted) in wanted {
            let seen = followers(users, followed, store)?.into_iter().collect();
            findings.compare(&users.key("followers", followed), &seen, &wanted);
        }
        Ok(())
    }
}

impl Client for PushClient {
    fn update(&mut self, store: &mut Store) -> Result<(), Failure> {
        if self.random.below(100) < FOLLOWS_PERCENT {
            self.follow(store)
        } else {
            self.post(store)
        }
    }

    /// Reads somebody's timeline: the last numbers, then their posts.
    fn read(&mut self, store: &mut Store) -> Result<(), Failure> {
        let timeline = self.users.key("timeline", self.users.any(&mut self.random));
        let last = (SHOWN_MAX - 1).to_string();
        let numbers = texts(store.call(&["LRANGE", &timeline, "0", &last])?)?;
        let keys: Vec<String> =
            numbers.into_iter().flatten().map(|number| self.users.key("post", number)).collect();
        if keys.is_empty() {
            return Ok(());
        }
        let missing = store.values(&keys)?.into_iter().filter(Option::is_none).count();
        self.findings.compare("the count of missing posts in a timeline", &missing, &0);
        Ok(())
    }
}

impl PushClient {
    fn post(&mut self, store: &mut Store) -> Result<(), Failure> {
        let author = self.users.any(&mut self.random);
        let number = number(&store.call(&["INCR", &self.users.key("next", "post")])?)?;
        let receivers = followers(&self.users, author, store)?;
        let post = Post { number, author, receivers };
        let text = number.to_string();
        store.push(&["SET", &self.users.key("post", number), &post_text(author)])?;
        for list in lists_of(&self.users, &post) {
            store.push(&["LPUSH", &list, &text])?;
        }
        store.replies()?;
        self.posts.push(post);
        Ok(())
    }

    fn follow(&mut self, store: &mut Store) -> Result<(), Failure> {
        let (user, followed) = (self.users.any(&mut self.random), self.users.any(&mut self.random));
        let follow = Follow { user, followed };
        push_follow(&self.users, &follow, store)?;
        store.replies()?;
        self.follows.push(follow);
        Ok(())
    }
}

fn push_follow(users: &Users, Follow { user, followed }: &Follow, store: &mut Store) -> Result<(), Failure> {
    store.push(&["SADD", &users.key("following", user), &followed.to_string()])?;
    store.push(&["SADD", &users.key("followers", followed), &user.to_string()])
}

fn followers(users: &Users, followed: u32, store: &mut Store) -> Result<Vec<u32>, Failure> {
    let reply: Reply = store.call(&["SMEMBERS", &users.key("followers", followed)])?;
    Ok(texts(reply)?.into_iter().flatten().filter_map(|text| text.parse().ok()).collect())
}

/// The author's own posts, and the followers' timelines.
fn lists_of(users: &Users, post: &Post) -> Vec<String> {
    let own = users.key("posts", post.author);
    let timelines = post.receivers.iter().map(|receiver| users.key("timeline", receiver));
    [own].into_iter().chain(timelines).collect()
}
