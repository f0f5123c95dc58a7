//! The mend of append-only files that are not whole: the server writes them anew from its memory.
//!
//! Invariant: the rewrite that counts began after the files were found damaged, and the server says that
//! it has succeeded. One that was already under way is waited for and does not count. While a file that is
//! known to be damaged is being replaced it stays the last of the server's files, since a server that
//! finds any other one damaged does not start.

use super::ending::Ending;
use super::health::Info;
use super::replies::line;
use crate::codec::{elements, is_error};

/// How often a server that says it has failed is asked again: it may speak of an attempt before ours.
const FAILED_POLLS_MAX: u32 = 100;

/// How the server is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// At once it appends to a new file, behind the old one, and replaces both when the new base is there.
    Rewrite,
    /// It gives its files up, and replaces them when the new ones are complete. What others write while
    /// that lasts, a kill of the server loses, as the open transaction before it would.
    Replace,
}

impl Way {
    fn commands(self) -> &'static [&'static [&'static [u8]]] {
        match self {
            Way::Rewrite => &[&[b"BGREWRITEAOF"]],
            // In one step, so that no end of ours can leave the server without files.
            Way::Replace => &[
                &[b"MULTI"],
                &[b"CONFIG", b"SET", b"appendonly", b"no"],
                &[b"CONFIG", b"SET", b"appendonly", b"yes"],
                &[b"EXEC"],
            ],
        }
    }
}

/// A rewrite under way.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rewriting {
    file: String,
    damage: String,
    way: Way,
    /// It began, or will as soon as the server can, because we asked.
    is_ours: bool,
    failed_polls: u32,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Ask again later how it is.
    Wait,
    /// Ask for a rewrite again.
    Again,
    /// The files are whole.
    Done,
}

impl Rewriting {
    /// The rewrite that files in this state need; none if they are whole. A server with one file (before
    /// Redis 7.0) replaces it at the end in any case.
    pub fn because_of(ending: Ending, has_one_file: bool) -> Option<Rewriting> {
        let (file, damage, way) = match ending {
            Ending::Whole => return None,
            Ending::Open { file, offset } => {
                let text = format!(
                    "has a transaction without end at byte {offset} (left by a power failure), which a later \
                     restart would execute or drop with everything behind it"
                );
                (file, text, if has_one_file { Way::Rewrite } else { Way::Replace })
            }
            // Probably nothing is wrong, so what others write is not put at risk.
            Ending::Unknown { file, reason } => {
                let text =
                    format!("cannot be read ({reason}), so a transaction without end could be in it unseen");
                (file, text, Way::Rewrite)
            }
        };
        Some(Rewriting { file: file.display().to_string(), damage, way, is_ours: false, failed_polls: 0 })
    }

    /// What the server is told. Each is answered, the last answer is that of the whole.
    pub fn commands(&self) -> &'static [&'static [&'static [u8]]] {
        self.way.commands()
    }

    /// For the operator.
    pub fn text(&self) -> String {
        format!("{} {}; the server rewrites it now, then it is served", self.file, self.damage)
    }

    /// What the server answered to the commands; an error is the reason why it cannot be served.
    pub fn on_replies(&mut self, replies: &[Vec<u8>]) -> Result<(), String> {
        let parts = replies.iter().flat_map(|reply| match reply.first() {
            Some(b'*') => elements(reply).collect(),
            _ => vec![reply.as_slice()],
        });
        let Some(error) = parts.into_iter().find(|reply| is_error(reply)) else {
            self.is_ours = true;
            return Ok(());
        };
        if error.windows(b"in progress".len()).any(|words| words == b"in progress") {
            return Ok(());
        }
        Err(self.refusal(&line(error)))
    }

    /// What the server says of the rewrite.
    pub fn on_info(&mut self, info: &Info) -> Result<Next, String> {
        let is_set = |fact: &str| info.get(fact) == "1";
        let status = info.get("aof_last_bgrewrite_status");
        let failed = || self.refusal(&format!("aof_last_bgrewrite_status is `{status}`"));
        if is_set("aof_rewrite_in_progress") {
            return Ok(Next::Wait);
        }
        if is_set("aof_rewrite_scheduled") {
            if status == "ok" || is_set("rdb_bgsave_in_progress") {
                return Ok(Next::Wait);
            }
            // With its files given up the server tries again for ever.
            if self.failed_polls == FAILED_POLLS_MAX {
                return Err(failed());
            }
            self.failed_polls += 1;
            return Ok(Next::Wait);
        }
        if !self.is_ours {
            return Ok(Next::Again);
        }
        if status == "ok" {
            Ok(Next::Done)
        } else {
            Err(failed())
        }
    }

    fn refusal(&self, reason: &str) -> String {
        let Rewriting { file, damage, .. } = self;
        format!(
            "{file} {damage}, and the server cannot rewrite it: {reason}; look into the server's log, mend the cause \
             (no room on its disk, no memory for fork, no right to CONFIG SET) and start scot again; or stop \
             the server, run: redis-check-aof --fix {file}, which cuts away everything from that transaction on, and \
             start both"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewriting(has_one_file: bool) -> Rewriting {
        let ending = Ending::Open { file: "/d/a.aof".into(), offset: 7 };
        Rewriting::because_of(ending, has_one_file).expect("it is needed")
    }

    fn told(rewriting: &mut Rewriting, replies: &[&str]) -> Result<(), String> {
        let replies: Vec<Vec<u8>> = replies.iter().map(|reply| reply.as_bytes().to_vec()).collect();
        rewriting.on_replies(&replies)
    }

    fn info(in_progress: u8, scheduled: u8, status: &str) -> Info {
        let text = format!(
            "aof_rewrite_in_progress:{in_progress}\r\naof_rewrite_scheduled:{scheduled}\r\n\
             aof_last_bgrewrite_status:{status}\r\n"
        );
        Info::parse(format!("${}\r\n{text}\r\n", text.len()).as_bytes())
    }

    const EXECUTED: [&str; 4] = ["+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "*2\r\n+OK\r\n+OK\r\n"];

    #[test]
    fn whole_files_need_none() {
        assert_eq!(Rewriting::because_of(Ending::Whole, false), None);
    }

    #[test]
    fn only_files_known_to_be_damaged_are_given_up() {
        assert_eq!(rewriting(false).commands().last(), Some(&[b"EXEC".as_slice()].as_slice()));
        assert_eq!(rewriting(true).commands(), [[b"BGREWRITEAOF".as_slice()]]);
        let unknown = Ending::Unknown { file: "/d/a.aof".into(), reason: "permission denied".to_owned() };
        let rewriting = Rewriting::because_of(unknown, false).expect("it is needed");
        assert_eq!(rewriting.commands(), [[b"BGREWRITEAOF".as_slice()]]);
    }

    #[test]
    fn it_is_over_when_the_server_says_so() {
        let mut rewriting = rewriting(false);
        assert_eq!(told(&mut rewriting, &EXECUTED), Ok(()));
        assert_eq!(rewriting.on_info(&info(0, 1, "err")), Ok(Next::Wait), "that was an attempt before ours");
        assert_eq!(rewriting.on_info(&info(1, 0, "err")), Ok(Next::Wait));
        assert_eq!(rewriting.on_info(&info(0, 0, "ok")), Ok(Next::Done));
    }

    #[test]
    fn one_that_was_under_way_before_does_not_count() {
        let mut rewriting = rewriting(true);
        let busy = "-ERR Background append only file rewriting already in progress\r\n";
        assert_eq!(told(&mut rewriting, &[busy]), Ok(()));
        assert_eq!(rewriting.on_info(&info(1, 0, "ok")), Ok(Next::Wait));
        assert_eq!(rewriting.on_info(&info(0, 0, "ok")), Ok(Next::Again));
        assert_eq!(told(&mut rewriting, &["+Background append only file rewriting started\r\n"]), Ok(()));
        assert_eq!(rewriting.on_info(&info(0, 0, "ok")), Ok(Next::Done));
    }

    #[test]
    fn a_refusal_names_the_file_and_what_to_do() {
        let mut rewriting = rewriting(true);
        let refused = told(&mut rewriting, &["-ERR Can't execute an AOF background rewriting.\r\n"]);
        let text = refused.expect_err("it cannot");
        assert!(text.contains("Can't execute") && text.contains("redis-check-aof --fix /d/a.aof"), "{text}");
        told(&mut rewriting, &["+started\r\n"]).expect("it was accepted");
        assert!(rewriting.on_info(&info(0, 0, "err")).expect_err("it failed").contains("`err`"));
        assert!(rewriting.on_info(&Info::default()).is_err(), "a fact that is missing counts against it");
    }

    #[test]
    fn a_setting_that_is_refused_inside_the_transaction_is_a_refusal() {
        let refused = ["+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "*2\r\n+OK\r\n-ERR no fork\r\n"];
        assert!(told(&mut rewriting(false), &refused).expect_err("it cannot").contains("no fork"));
        let aborted = ["+OK\r\n", "-NOPERM no right\r\n", "-NOPERM no right\r\n", "-EXECABORT all\r\n"];
        assert!(told(&mut rewriting(false), &aborted).expect_err("it may not").contains("NOPERM"));
    }

    #[test]
    fn a_server_that_fails_again_and_again_is_refused() {
        let mut rewriting = rewriting(false);
        told(&mut rewriting, &EXECUTED).expect("it was accepted");
        for _ in 0..FAILED_POLLS_MAX {
            assert_eq!(rewriting.on_info(&info(0, 1, "err")), Ok(Next::Wait));
        }
        assert!(rewriting.on_info(&info(0, 1, "err")).expect_err("it fails").contains("`err`"));
    }
}
