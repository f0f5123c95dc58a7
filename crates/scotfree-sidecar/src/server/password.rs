//! A password that may be another when it is read again.
//!
//! Invariant: a file that cannot be read changes nothing, and is spoken of once until it can be.

use crate::notices::Notices;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

type ReadPassword = dyn Fn() -> Result<String, String> + Send + Sync;

/// Where a server's password is read again for each connection; clones share what was said of it.
#[derive(Clone)]
pub struct PasswordSource {
    read: Arc<ReadPassword>,
    said: Arc<Mutex<String>>,
}

impl PasswordSource {
    /// It is what `read` gives, or an error that says what to do.
    pub fn new(read: impl Fn() -> Result<String, String> + Send + Sync + 'static) -> PasswordSource {
        PasswordSource { read: Arc::new(read), said: Arc::default() }
    }

    /// The password as it is now; none if it cannot be read, which is said.
    pub(crate) fn read(&self, notices: &Notices) -> Option<String> {
        let (found, trouble) = match (self.read)() {
            Ok(password) => (Some(password), String::new()),
            Err(trouble) => (None, trouble),
        };
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if *said != trouble && !trouble.is_empty() {
            notices.alarm(&format!(
                "the password of the Redis server cannot be read again: {trouble}; the one that was read at \
                 the start is used"
            ));
        }
        *said = trouble;
        found
    }
}

impl fmt::Debug for PasswordSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordSource")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_that_cannot_be_read_is_spoken_of_once_until_it_can_be() {
        let results = Mutex::new(vec![Err("gone"), Ok("new"), Err("gone"), Err("gone"), Ok("old")]);
        let source = PasswordSource::new(move || {
            let result = results.lock().expect("nobody panics").pop().expect("one is left");
            result.map(str::to_owned).map_err(str::to_owned)
        });
        let said = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&said);
        let notices = Notices::new(move |line| lines.lock().expect("nobody panics").push(line.to_owned()));
        let read: Vec<Option<String>> = (0..5).map(|_| source.read(&notices)).collect();
        assert_eq!(read, [Some("old".to_owned()), None, None, Some("new".to_owned()), None]);
        let said = said.lock().expect("nobody panics");
        assert!(said.len() == 2 && said[0].contains("cannot be read again: gone"), "{said:?}");
    }
}
