//! What clients are told when a session has ended, in words.
//!
//! Invariant: every reason has words of its own, and no name that only this program's source explains.

use scotfree_session::ClosedReason;
use scotfree_wire::CloseReason;

/// What a command is answered that was on its way when its session ended.
pub(super) fn outcome_unknown(reason: ClosedReason) -> String {
    format!("the session with the server has ended, because {}; the outcome is unknown", cause(reason))
}

/// What a command is answered that comes behind the end of its session.
pub(super) const OVER: &str = "ERR scotfree: the session with the server has ended";

/// What a command is answered whose session has ended before it was sent.
pub(super) fn not_sent(reason: ClosedReason) -> String {
    if reason == ClosedReason::Server(CloseReason::NoMemory) {
        return "OOM scotfree: no session can be opened: the server is over maxmemory".to_owned();
    }
    let cause = cause(reason);
    format!("ERR scotfree: the session with the server has ended, because {cause}; the command was not sent")
}

fn cause(reason: ClosedReason) -> &'static str {
    match reason {
        ClosedReason::Finished | ClosedReason::Server(CloseReason::ByClient) => "this sidecar has closed it",
        ClosedReason::Unreachable => "no server's sidecar answered",
        ClosedReason::KeyRemoved => "its key was taken out of the cluster's key file",
        ClosedReason::Server(CloseReason::UnknownSession) => "the server does not know it any more",
        ClosedReason::Server(CloseReason::ReplyGone) => {
            "a request of it was executed and the server has lost the reply"
        }
        ClosedReason::Server(CloseReason::ServerFailed) => {
            "the server has failed for it, or takes no writes at present"
        }
        ClosedReason::Server(CloseReason::Expire) => "it has expired at the server",
        ClosedReason::Server(CloseReason::NoRoom) => "the server has no room for another session",
        ClosedReason::Server(CloseReason::NoMemory) => "the server has no memory for another session",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_in_words_and_not_in_names_of_the_source() {
        let own = [ClosedReason::Finished, ClosedReason::Unreachable, ClosedReason::KeyRemoved];
        for reason in own.into_iter().chain(CloseReason::ALL.map(ClosedReason::Server)) {
            let debug = format!("{reason:?}");
            let names = debug.split(['(', ')']).filter(|name| !name.is_empty());
            let names: Vec<&str> = names.collect();
            for text in [outcome_unknown(reason), not_sent(reason)] {
                let word = |word: &str| word.trim_end_matches([',', ';', ':']).to_owned();
                let words: Vec<String> = text.split([' ', '(', ')']).map(word).collect();
                assert!(!names.iter().any(|name| words.iter().any(|word| word == name)), "{text}");
            }
        }
    }
}
