//! Signals arrive as events. A binary of its own: the handlers belong to the whole process.

use scotfree_io::{Interest, Poller, Signal, Signals};
use std::os::fd::AsRawFd;
use std::process::Command;

#[test]
fn signals_are_events_while_installed() {
    let signals = Signals::install().expect("nobody else has installed handlers");
    assert!(Signals::install().is_err(), "there is one owner");
    let mut poller = Poller::new(4).expect("a poller");
    poller.add(signals.as_raw_fd(), 1, Interest::Read).expect("a watch");
    assert_eq!(signals.next_signal(), None);
    for (name, signal) in [("TERM", Signal::Terminate), ("INT", Signal::Interrupt), ("HUP", Signal::Hangup)] {
        let own = std::process::id().to_string();
        let sent = Command::new("/bin/kill").args(["-s", name, &own]).status();
        let sent =
            sent.or_else(|_| Command::new("sh").args(["-c", &format!("kill -s {name} {own}")]).status());
        assert!(sent.expect("a way to signal").success());
        assert_eq!(poller.wait(None).expect("a wait")[0].key, 1);
        assert_eq!(signals.next_signal(), Some(signal));
    }
    drop(signals);
    drop(Signals::install().expect("the owner is gone"));
}
