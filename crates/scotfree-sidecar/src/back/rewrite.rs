//! The mend of append-only files that are not whole: the server writes them anew from its memory.
//!
//! Invariant: the rewrite that counts began after the files were found damaged, and the server says that
//! it has succeeded. One that was already under way is waited for and does not count.

use super::health::Info;
use super::replies::line;
use crate::aof::Ending;
use crate::resp::is_error;

/// A rewrite under way.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rewriting {
    file: String,
    damage: String,
    /// It began, or will as soon as the server can, because we asked.
    is_ours: bool,
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
    /// The rewrite that files in this state need; none if they are whole.
    pub fn because_of(ending: Ending) -> Option<Rewriting> {
        let (file, damage) = match ending {
            Ending::Whole => return None,
            Ending::Open { file, offset } => {
                let text = format!(
                    "has a transaction without end at byte {offset} (left by a power failure), which a later \
                     restart would execute or drop with everything behind it"
                );
                (file, text)
            }
            Ending::Unknown { file, reason } => (
                file,
                format!("cannot be read ({reason}), so a transaction without end could be in it unseen"),
            ),
        };
        Some(Rewriting { file: file.display().to_string(), damage, is_ours: false })
    }

    /// For the operator.
    pub fn text(&self) -> String {
        format!("{} {}; the server rewrites it now, then it is served", self.file, self.damage)
    }

    /// What the server answered to BGREWRITEAOF; an error is the reason why it cannot be served.
    pub fn on_reply(&mut self, reply: &[u8]) -> Result<(), String> {
        self.is_ours = !is_error(reply);
        if self.is_ours || reply.windows(b"in progress".len()).any(|words| words == b"in progress") {
            return Ok(());
        }
        Err(self.refusal(&line(reply)))
    }

    /// What the server says of the rewrite.
    pub fn on_info(&mut self, info: &Info) -> Result<Next, String> {
        let is_set = |fact: &str| info.get(fact) == "1";
        if is_set("aof_rewrite_in_progress") || is_set("aof_rewrite_scheduled") {
            return Ok(Next::Wait);
        }
        if !self.is_ours {
            return Ok(Next::Again);
        }
        match info.get("aof_last_bgrewrite_status") {
            "ok" => Ok(Next::Done),
            status => Err(self.refusal(&format!("aof_last_bgrewrite_status is `{status}`"))),
        }
    }

    fn refusal(&self, reason: &str) -> String {
        let Rewriting { file, damage, .. } = self;
        format!(
            "{file} {damage}, and the server cannot rewrite it: {reason}; look into the server's log, mend the cause \
             (no room on its disk, no memory for fork) and start the sidecar again; or stop the server, run: \
             redis-check-aof --fix {file}, which cuts away everything from that transaction on, and start both"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewriting() -> Rewriting {
        let ending = Ending::Open { file: "/d/a.aof".into(), offset: 7 };
        Rewriting::because_of(ending).expect("it is needed")
    }

    fn info(in_progress: u8, scheduled: u8, status: &str) -> Info {
        let text = format!(
            "aof_rewrite_in_progress:{in_progress}\r\naof_rewrite_scheduled:{scheduled}\r\n\
             aof_last_bgrewrite_status:{status}\r\n"
        );
        Info::parse(format!("${}\r\n{text}\r\n", text.len()).as_bytes())
    }

    #[test]
    fn whole_files_need_none() {
        assert_eq!(Rewriting::because_of(Ending::Whole), None);
    }

    #[test]
    fn it_is_over_when_the_server_says_so() {
        let mut rewriting = rewriting();
        assert_eq!(rewriting.on_reply(b"+Background append only file rewriting scheduled\r\n"), Ok(()));
        assert_eq!(rewriting.on_info(&info(0, 1, "err")), Ok(Next::Wait));
        assert_eq!(rewriting.on_info(&info(1, 0, "err")), Ok(Next::Wait));
        assert_eq!(rewriting.on_info(&info(0, 0, "ok")), Ok(Next::Done));
    }

    #[test]
    fn one_that_was_under_way_before_does_not_count() {
        let mut rewriting = rewriting();
        let busy = b"-ERR Background append only file rewriting already in progress\r\n";
        assert_eq!(rewriting.on_reply(busy), Ok(()));
        assert_eq!(rewriting.on_info(&info(1, 0, "ok")), Ok(Next::Wait));
        assert_eq!(rewriting.on_info(&info(0, 0, "ok")), Ok(Next::Again));
        assert_eq!(rewriting.on_reply(b"+Background append only file rewriting started\r\n"), Ok(()));
        assert_eq!(rewriting.on_info(&info(0, 0, "ok")), Ok(Next::Done));
    }

    #[test]
    fn a_refusal_names_the_file_and_what_to_do() {
        let mut rewriting = rewriting();
        let refused = rewriting.on_reply(b"-ERR Can't execute an AOF background rewriting.\r\n");
        let text = refused.expect_err("it cannot");
        assert!(text.contains("Can't execute") && text.contains("redis-check-aof --fix /d/a.aof"), "{text}");
        rewriting.on_reply(b"+started\r\n").expect("it was accepted");
        assert!(rewriting.on_info(&info(0, 0, "err")).expect_err("it failed").contains("`err`"));
        assert!(rewriting.on_info(&Info::default()).is_err(), "a fact that is missing counts against it");
    }
}
