//! The thread that connects to the server, since looking a name up, a host that does not answer, and reading the
//! password again take time.
//!
//! Invariant: each wish is answered once, in their order. Nobody waits for the thread: it ends by itself when what it
//! is at is over.

use crate::redis::RedisServer;
use crate::stream::Stream;
use scotfree_io::Waker;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;

/// A wish, and what came of it.
pub(crate) type Connected<W> = (W, io::Result<NewStream>);

/// A connection, and the password that it has to give if that was read again.
pub(crate) struct NewStream {
    pub stream: Stream,
    pub password: Option<String>,
}

/// A thread that connects on demand; `W` tells wishes apart.
pub(crate) struct Connector<W> {
    wishes: Sender<W>,
    results: Receiver<Connected<W>>,
    waker: Arc<Waker>,
    /// How many wishes are not answered.
    open: usize,
}

impl<W: Send + 'static> Connector<W> {
    /// Starts the thread, which reads the password by `read_password`.
    pub fn start(
        server: RedisServer,
        read_password: impl Fn() -> Option<String> + Send + 'static,
    ) -> io::Result<Connector<W>> {
        let (wishes, wished) = channel();
        let (answers, results) = channel();
        let waker = Arc::new(Waker::new()?);
        let wakes = Arc::clone(&waker);
        let work = move || {
            while let Ok(wish) = wished.recv() {
                let stream = server.connect();
                let connected = stream.map(|stream| NewStream { stream, password: read_password() });
                if answers.send((wish, connected)).is_err() {
                    break;
                }
                wakes.wake();
            }
        };
        std::thread::Builder::new().name("scotfree-connect".to_owned()).spawn(work)?;
        Ok(Connector { wishes, results, waker, open: 0 })
    }

    /// Asks for a connection.
    pub fn connect(&mut self, wish: W) {
        // The thread ends only with us, so somebody listens.
        let _ = self.wishes.send(wish);
        self.open += 1;
    }

    /// What came of a wish, if one is dealt with.
    pub fn result(&mut self) -> Option<Connected<W>> {
        if self.open == 0 {
            return None;
        }
        self.waker.drain();
        let result = self.results.try_recv().ok()?;
        self.open -= 1;
        Some(result)
    }

    /// Readable when a result waits.
    pub fn fd(&self) -> RawFd {
        self.waker.as_raw_fd()
    }
}
