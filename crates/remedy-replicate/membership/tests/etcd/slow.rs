//! Something between a member and its etcd that lets answers wait.

use super::address;
use remedy_replicate_membership::Endpoint;
use scotfree_core::Nanos;
use scotfree_io::Poller;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

pub struct Slow {
    delay: Arc<AtomicU64>,
    port: u16,
}

impl Slow {
    /// Before an etcd at this port. It lasts as long as the test's process.
    pub fn before(etcd: u16) -> Slow {
        let listener = TcpListener::bind(address(0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let delay = Arc::new(AtomicU64::new(0));
        let of_answers = Arc::clone(&delay);
        thread::spawn(move || {
            for asking in listener.incoming() {
                let Ok(asked) = TcpStream::connect(address(etcd)) else { continue };
                pass_both_ways(asking.unwrap(), asked, &of_answers);
            }
        });
        Slow { delay, port }
    }

    pub fn endpoint(&self, group: &str) -> Endpoint {
        Endpoint::parse(&format!("etcd:http://127.0.0.1:{}/scotfree/{group}", self.port)).unwrap()
    }

    /// How long answers wait from now on.
    pub fn set_delay(&self, delay: Nanos) {
        self.delay.store(delay.0, Ordering::SeqCst);
    }
}

fn pass_both_ways(asking: TcpStream, asked: TcpStream, delay: &Arc<AtomicU64>) {
    let (questions, answers) = (asking.try_clone().unwrap(), asked.try_clone().unwrap());
    let delay = Arc::clone(delay);
    thread::spawn(move || pass(questions, asked, &AtomicU64::new(0)));
    thread::spawn(move || pass(answers, asking, &delay));
}

/// Until either side has closed.
fn pass(mut from: TcpStream, mut to: TcpStream, delay: &AtomicU64) {
    let mut bytes = [0; 16_384];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let delay = Duration::from_nanos(delay.load(Ordering::SeqCst));
        if delay > Duration::ZERO {
            Poller::new(1).unwrap().wait(Some(delay)).unwrap();
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    // It may have closed already.
    let _ = to.shutdown(Shutdown::Both);
}
