//! An operator's questions to a proxy's cache, asked in the thread that serves its metrics and answered by the loop.
//!
//! Invariant: who asks holds the cluster's secret, and waits for a bounded time; of questions there are few at once.

use scotfree_cache::Asked;
use scotfree_core::ServerIndex;
use scotfree_io::now_realtime;
use scotfree_rpc::SharedKey;
use scotfree_wire::questions;
use std::sync::mpsc::{channel, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What questions are asked of.
const CACHE: &str = "cache";
/// The loop looks several times a second.
const PATIENCE: Duration = Duration::from_millis(1_500);
const QUESTIONS_MAX: usize = 16;

type Answer = Result<String, String>;
/// A question, and where its answer goes.
type Waiting = (Asked, Sender<Answer>);

/// The questions that wait. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Questions {
    key: Option<SharedKey>,
    number: u8,
    waiting: Arc<Mutex<Vec<Waiting>>>,
}

impl Questions {
    /// To a proxy that answers as server `number`, from whoever holds this secret; without one from nobody.
    pub fn new(key: Option<SharedKey>, number: u8) -> Questions {
        Questions { key, number, waiting: Arc::default() }
    }

    /// The secret.
    pub fn key(&self) -> Option<&SharedKey> {
        self.key.as_ref()
    }

    /// As what server the cache answers.
    pub(super) fn server(&self) -> ServerIndex {
        ServerIndex(self.number)
    }

    /// Asks what a target of `scot cache` asks, and waits for the answer.
    ///
    /// # Errors
    /// Why there is none, in words for who asks.
    pub fn ask(&self, target: &str) -> Answer {
        let key = self.key.as_ref().ok_or(
            "this proxy was started without the cluster's key (--key-file), and answers name keys: it answers nobody",
        )?;
        let (name, question) = questions::asked(&key.get(), target, now_realtime())?;
        if name != CACHE {
            return Err(format!("a proxy has no function `{name}`, only `{CACHE}`"));
        }
        let asked = Asked::parse(&question)?;
        let (sender, answer) = channel();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= QUESTIONS_MAX {
            return Err("too many questions wait; ask again".to_owned());
        }
        waiting.push((asked, sender));
        drop(waiting);
        answer
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|_| Err("the proxy does not serve yet, or no longer".to_owned()))
    }

    /// Answers what has been asked since.
    pub(super) fn answer(&self, mut answer: impl FnMut(&Asked) -> Answer) {
        let asked = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        for (question, sender) in asked {
            // Who asked may wait no longer.
            let _ = sender.send(answer(&question));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_wire::ClusterKey;

    #[test]
    fn who_holds_the_secret_is_answered_by_the_loop_and_others_are_told_why_not() {
        let secret = ClusterKey::from_bytes([1; 32]);
        let questions = Questions::new(Some(SharedKey::from(secret.clone())), 0);
        let target = |key: &ClusterKey, name: &str, question: &str| {
            questions::target(key, name, question, now_realtime())
        };
        let other = ClusterKey::from_bytes([2; 32]);
        let refused = |target: String| questions.ask(&target).expect_err("it is refused");
        assert!(refused(target(&other, "cache", "ls 5")).contains("--key-file"));
        assert!(refused(target(&secret, "persist", "ls 5")).contains("no function `persist`"));
        assert!(refused(target(&secret, "cache", "who")).contains("no question to a cache"));
        assert!(Questions::default()
            .ask(&target(&secret, "cache", "ls 5"))
            .is_err_and(|why| why.contains("without the")));
        let good = target(&secret, "cache", "drop all");
        std::thread::scope(|scope| {
            let asks = scope.spawn(|| questions.ask(&good));
            while !asks.is_finished() {
                questions.answer(|asked| Ok(format!("{asked:?}")));
                std::thread::yield_now();
            }
            assert_eq!(asks.join().expect("no panic"), Ok("DropAll".to_owned()));
        });
    }
}
