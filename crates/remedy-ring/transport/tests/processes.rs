//! A server's rings and its clients, in threads of one process and over its socket: what comes through, who is woken,
//! and who comes and goes.
#![allow(clippy::unwrap_used)]

use remedy_ring_transport::{server_address, HandoverError, RingConfig, RingListener, RingTransport};
use scotfree_io::{Interest, Poller, RxBurst, Transport, TxPacket};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

const SMALL: RingConfig = RingConfig { rings_max: 3, entries: 8, entry_bytes: 128, quota: 4 };
const PATIENCE: Duration = Duration::from_secs(30);

fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kv.ring");
    (folder, path)
}

fn poller(transport: &impl Transport) -> Poller {
    let poller = Poller::new(4).unwrap();
    poller.add(transport.poll_fd().unwrap(), 0, Interest::Read).unwrap();
    poller
}

fn packet(to: SocketAddr, bytes: &[u8]) -> TxPacket<'_> {
    TxPacket { to, bytes, stamp: None }
}

/// Waits, asleep, until something has come.
fn receive(transport: &mut impl Transport, poller: &mut Poller, rx: &mut RxBurst) {
    while transport.rx_burst(rx).unwrap() == 0 {
        poller.wait_for(transport, Some(PATIENCE), false).unwrap();
    }
}

/// A client gets a ring while the server turns.
fn connect(server: &mut RingListener, path: &Path) -> Result<RingTransport, HandoverError> {
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| RingTransport::connect(path));
        let (mut rx, mut poller) = (RxBurst::new(4, 128), poller(server));
        while !connecting.is_finished() {
            server.rx_burst(&mut rx).unwrap();
            // Whether the thread has ended nothing tells.
            poller.wait_for(server, Some(Duration::from_millis(1)), false).unwrap();
        }
        connecting.join().unwrap()
    })
}

#[test]
fn both_sides_sleep_between_messages_and_none_is_lost() {
    let (_folder, path) = place();
    let mut server = RingListener::bind(&path, &SMALL).unwrap();
    let mut client = connect(&mut server, &path).unwrap();
    let count = 2_000_u32;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut poller, mut rx) = (poller(&server), RxBurst::new(4, 128));
            let mut served = 0;
            while served < count {
                receive(&mut server, &mut poller, &mut rx);
                for packet_in in rx.iter() {
                    served += 1;
                    server.tx_burst(&[packet(packet_in.from, packet_in.bytes)]).unwrap();
                }
            }
        });
        let (mut poller, mut rx) = (poller(&client), RxBurst::new(4, 128));
        for nth in 0..count {
            let bytes = nth.to_le_bytes();
            client.tx_burst(&[packet(server_address(), &bytes)]).unwrap();
            receive(&mut client, &mut poller, &mut rx);
            let answer = rx.get(0).unwrap();
            assert_eq!((answer.bytes, answer.from), (&bytes[..], server_address()));
        }
    });
    let counters = client.counters();
    assert_eq!((counters.tx_packets, counters.rx_packets), (u64::from(count), u64::from(count)));
}

#[test]
fn what_finds_no_room_or_is_too_long_is_dropped_and_counted() {
    let (_folder, path) = place();
    let mut server = RingListener::bind(&path, &SMALL).unwrap();
    let mut client = connect(&mut server, &path).unwrap();
    assert_eq!((client.mtu(), server.mtu()), (112, 112));
    let packets = vec![packet(server_address(), b"many"); 20];
    assert_eq!(client.tx_burst(&packets).unwrap(), 20);
    let long = vec![0; 4 * 112 + 1];
    client.tx_burst(&[packet(server_address(), &long), packet("127.0.0.1:1".parse().unwrap(), b"")]).unwrap();
    let counters = client.counters();
    assert_eq!((counters.tx_packets, counters.tx_full), (8, 12));
    assert_eq!((counters.tx_too_long, counters.tx_unroutable), (1, 1));
    let mut rx = RxBurst::new(64, 128);
    let mut count = 0;
    let mut from = server_address();
    for _ in 0..4 {
        count += server.rx_burst(&mut rx).unwrap();
        from = rx.iter().map(|packet| packet.from).next().unwrap_or(from);
    }
    assert_eq!(count, 8);
    // The server has read: there is room again.
    client.tx_burst(&packets[..8]).unwrap();
    assert_eq!(client.counters().tx_packets, 16);
    // What is sent to one that is gone reaches nobody.
    drop(client);
    while server.client_count() > 0 {
        server.rx_burst(&mut rx).unwrap();
    }
    let mut next = connect(&mut server, &path).unwrap();
    server.tx_burst(&[packet(from, b"late")]).unwrap();
    assert_eq!((server.counters().tx_unroutable, next.rx_burst(&mut rx).unwrap()), (1, 0));
}

#[test]
fn one_client_too_many_is_told_so_and_gets_the_ring_of_one_that_leaves() {
    let (_folder, path) = place();
    let mut server = RingListener::bind(&path, &SMALL).unwrap();
    let clients: Vec<RingTransport> = (0..3).map(|_| connect(&mut server, &path).unwrap()).collect();
    let refused = connect(&mut server, &path).err().unwrap().to_string();
    assert!(
        refused.contains("refuses a ring: all its 3 rings are taken: try again when a client has left"),
        "{refused}"
    );
    assert_eq!((server.counters().granted, server.counters().refused), (3, 1));
    drop(clients);
    let mut rx = RxBurst::new(4, 128);
    while server.client_count() > 0 {
        server.rx_burst(&mut rx).unwrap();
    }
    assert!(connect(&mut server, &path).is_ok());
}

#[test]
fn a_client_whose_server_ends_is_told() {
    let (_folder, path) = place();
    let mut server = RingListener::bind(&path, &SMALL).unwrap();
    let mut client = connect(&mut server, &path).unwrap();
    drop(server);
    assert!(!path.exists());
    let (mut rx, mut poller) = (RxBurst::new(4, 128), poller(&client));
    let gone = loop {
        match client.rx_burst(&mut rx) {
            Ok(_) => poller.wait_for(&mut client, Some(PATIENCE), false).unwrap(),
            Err(gone) => break gone,
        };
    };
    assert_eq!(gone.kind(), ErrorKind::ConnectionReset);
    let nobody = RingTransport::connect(&path).err().unwrap().to_string();
    assert!(nobody.contains("no server listens there: start it first"), "{nobody}");
}

#[test]
fn a_socket_that_was_left_is_taken_over_and_nothing_else_is() {
    let (folder, path) = place();
    drop(UnixListener::bind(&path).unwrap());
    let server = RingListener::bind(&path, &SMALL).unwrap();
    let second = RingListener::bind(&path, &SMALL).err().unwrap().to_string();
    assert!(second.contains("another server listens there"), "{second}");
    drop(server);
    std::fs::write(&path, "somebody's").unwrap();
    let file = RingListener::bind(&path, &SMALL).err().unwrap().to_string();
    assert!(file.contains("no socket: choose another name"), "{file}");
    assert_eq!(std::fs::read(&path).unwrap(), b"somebody's");
    let odd = RingConfig { entries: 100, ..SMALL };
    let odd = RingListener::bind(&folder.path().join("odd"), &odd).err().unwrap().to_string();
    assert!(odd.contains("100 entries: give a power of two"), "{odd}");
}

#[test]
fn what_is_no_server_of_rings_hands_over_none() {
    let (_folder, path) = place();
    let listener = UnixListener::bind(&path).unwrap();
    for (said, words) in [
        (&b"scotring and then something"[..], "hands over no rings of version 1"),
        (b"", "has closed the connection without an answer"),
    ] {
        let error = std::thread::scope(|scope| {
            let connecting = scope.spawn(|| RingTransport::connect(&path).err().unwrap().to_string());
            let (mut stream, _) = listener.accept().unwrap();
            std::io::Write::write_all(&mut stream, said).unwrap();
            drop(stream);
            connecting.join().unwrap()
        });
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn what_a_client_said_before_its_end_counts_and_no_longer() {
    let (_folder, path) = place();
    let mut server = RingListener::bind(&path, &SMALL).unwrap();
    let mut client = connect(&mut server, &path).unwrap();
    let last = vec![packet(server_address(), b"last words"); 8];
    client.tx_burst(&last).unwrap();
    drop(client);
    let (mut rx, mut poller, mut heard) = (RxBurst::new(2, 128), poller(&server), 0);
    while server.client_count() > 0 {
        poller.wait_for(&mut server, Some(PATIENCE), false).unwrap();
        heard += server.rx_burst(&mut rx).unwrap();
    }
    assert_eq!(heard, 8);
}

#[test]
fn a_ring_that_is_broken_is_the_next_clients_and_whole() {
    let (_folder, path) = place();
    let mut server = RingListener::bind(&path, &SMALL).unwrap();
    let mut rx = RxBurst::new(4, 128);
    for _ in 0..7 {
        let mut good = connect(&mut server, &path).unwrap();
        let bad = connect(&mut server, &path).unwrap();
        bad.spoil();
        good.tx_burst(&[packet(server_address(), b"good")]).unwrap();
        let mut heard = 0;
        while server.client_count() > 1 || heard == 0 {
            heard += server.rx_burst(&mut rx).unwrap();
        }
        drop((good, bad));
        while server.client_count() > 0 {
            server.rx_burst(&mut rx).unwrap();
        }
    }
    assert_eq!((server.counters().broken, server.counters().granted), (7, 14));
    let three: Vec<_> = (0..3).map(|_| connect(&mut server, &path).unwrap()).collect();
    assert_eq!(three.len(), 3);
}

#[test]
fn a_server_that_ends_leaves_the_socket_of_the_next_alone() {
    let (_folder, path) = place();
    let first = RingListener::bind(&path, &SMALL).unwrap();
    std::fs::remove_file(&path).unwrap();
    let second = RingListener::bind(&path, &SMALL).unwrap();
    drop(first);
    assert!(path.exists());
    drop(second);
    assert!(!path.exists());
}

/// A client that says something on its socket, or that is killed, loses its ring.
#[test]
fn a_client_that_talks_where_it_should_listen_loses_its_ring() {
    let (_folder, path) = place();
    let mut server = RingListener::bind(&path, &SMALL).unwrap();
    let mut stream = UnixStream::connect(&path).unwrap();
    let mut rx = RxBurst::new(4, 128);
    while server.client_count() == 0 {
        server.rx_burst(&mut rx).unwrap();
    }
    std::io::Write::write_all(&mut stream, b"hello").unwrap();
    while server.client_count() > 0 {
        server.rx_burst(&mut rx).unwrap();
    }
}
