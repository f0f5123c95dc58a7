//! A proxy whose clients and whose Redis speak TLS: what goes through, and who is turned away.

#[path = "site/authority.rs"]
mod authority;
mod site;

use authority::{Authority, Identity, HERE};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use scotfree_io::conformance::ports::free_address;
use scotfree_resp::codec::{write_words, Limits, Reply, ReplyDecoder};
use scotfree_stage::process::{wait_until, Process};
use scotfree_stage::resp::Connection;
use site::{call, end_of, ready, Site, CLIENT_PATIENCE, PATIENCE};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

/// Beside the plain listener of the site.
struct Place {
    site: Site,
    authority: Authority,
    own: Identity,
    tls: SocketAddr,
}

impl Place {
    fn new(name: &str) -> Option<Place> {
        let site = Site::new(name)?;
        let authority = Authority::new(&site.file(""), "authority");
        let own = authority.certify("proxy", HERE);
        Some(Place { site, authority, own, tls: free_address() })
    }

    /// The proxy before the Redis at the site's socket, with a listener under TLS.
    fn start(&self, more: &[&str]) -> Process {
        self.start_before("unix:redis.sock", more)
    }

    fn start_before(&self, redis: &str, more: &[&str]) -> Process {
        let tls = self.tls.to_string();
        let words = ["--tls-listen", &tls, "--tls-cert", &self.own.certificate, "--tls-key", &self.own.key];
        self.site.start_proxy_before(redis, &[&words[..], more].concat())
    }

    fn proxy(&self, more: &[&str]) -> Process {
        ready(self.start(more))
    }

    fn connect(&self) -> Client {
        Client::open(self.tls, &self.authority.file, None).expect("the proxy listens")
    }

    /// A Redis that speaks TLS alone.
    fn redis(&self, identity: &Identity, more: &[&str]) -> (Process, String) {
        let address = free_address();
        let port = address.port().to_string();
        let words = [
            "--tls-port",
            &port,
            "--tls-cert-file",
            &identity.certificate,
            "--tls-key-file",
            &identity.key,
            "--tls-ca-cert-file",
            &self.authority.file,
        ];
        (self.site.redis(&[&words[..], more].concat()), format!("localhost:{port}"))
    }
}

/// A client under TLS.
struct Client {
    stream: StreamOwned<ClientConnection, TcpStream>,
    replies: ReplyDecoder,
    buffer: Vec<u8>,
}

impl Client {
    fn open(address: SocketAddr, authority: &str, identity: Option<&Identity>) -> std::io::Result<Client> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(authority).expect("a certificate")).expect("an authority");
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().expect("it has versions");
        let builder = builder.with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some(Identity { certificate, key }) => {
                let chain = vec![CertificateDer::from_pem_file(certificate).expect("a certificate")];
                let key = PrivateKeyDer::from_pem_file(key).expect("a key");
                builder.with_client_auth_cert(chain, key).expect("they belong together")
            }
        };
        let name = ServerName::try_from("localhost").expect("a name");
        let tls = ClientConnection::new(Arc::new(config), name).expect("it can be set up");
        let socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(CLIENT_PATIENCE))?;
        socket.set_nodelay(true)?;
        let mut stream = StreamOwned::new(tls, socket);
        stream.flush()?;
        let limits = Limits::default();
        Ok(Client { stream, replies: ReplyDecoder::new(limits), buffer: vec![0; 64 << 10] })
    }

    fn send(&mut self, words: &[&[u8]]) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        write_words(&mut bytes, words);
        self.stream.write_all(&bytes)
    }

    fn read(&mut self) -> std::io::Result<Reply> {
        loop {
            if let Some(bytes) = self.replies.pop().map_err(std::io::Error::other)? {
                let reply = Reply::parse(bytes, &Limits::default()).map_err(std::io::Error::other)?;
                return Ok(reply.expect("it is whole"));
            }
            match self.stream.read(&mut self.buffer)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                count => self.replies.push(&self.buffer[..count]),
            }
        }
    }

    fn ask(&mut self, line: &str) -> std::io::Result<Reply> {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.send(&words)?;
        self.stream.flush()?;
        self.read()
    }
}

fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}

#[test]
fn everything_goes_through_under_tls_on_both_sides() {
    let Some(place) = Place::new("tls-both") else { return };
    let identity = place.authority.certify("redis", HERE);
    let (redis, address) = place.redis(&identity, &["--tls-auth-clients", "no"]);
    let before = ["--redis-tls", "--redis-ca", &place.authority.file];
    let proxy = ready(place.start_before(&address, &before));
    let mut client = place.connect();
    assert_eq!(client.ask("SET k v").expect("it is answered"), ok());
    // Large values, both ways.
    let large: Vec<u8> = (0..5 << 20).map(|at: u32| (at * 31) as u8).collect();
    client.send(&[b"SET", b"large", &large]).expect("it is sent");
    assert_eq!(client.read().expect("it is answered"), ok());
    assert_eq!(client.ask("GET large").expect("it is answered"), Reply::Bulk(large));
    // A pipeline.
    for number in 0..20_000 {
        client.send(&[b"RPUSH", b"list", number.to_string().as_bytes()]).expect("it is sent");
    }
    for number in 1..=20_000 {
        assert_eq!(client.read().expect("every command is answered"), Reply::Integer(number));
    }
    // Replies that nobody reads for a while: more than what waits for one client.
    let value = vec![b'x'; 200 << 10];
    client.send(&[b"SET", b"big", &value]).expect("it is sent");
    assert_eq!(client.read().expect("it is answered"), ok());
    for _ in 0..200 {
        client.send(&[b"GET", b"big"]).expect("it is sent");
    }
    for _ in 0..200 {
        assert_eq!(client.read().expect("it is answered"), Reply::Bulk(value.clone()));
    }
    // A connection of its own at the Redis, and tunnels.
    assert_eq!(client.ask("WATCH k").expect("it is answered"), ok());
    let mut listener = place.connect();
    assert!(matches!(listener.ask("SUBSCRIBE news"), Ok(Reply::Array(_))));
    let mut blocked = place.connect();
    blocked.send(&[b"BLPOP", b"queue", b"0"]).expect("it is sent");
    let published = Reply::Integer(1);
    assert_eq!(client.ask("PUBLISH news x").expect("it is answered"), published);
    assert!(matches!(listener.read(), Ok(Reply::Array(_))));
    client.send(&[b"RPUSH", b"queue", &value]).expect("it is sent");
    assert_eq!(client.read().expect("it is answered"), Reply::Integer(1));
    let popped = Reply::Array(vec![Reply::Bulk(b"queue".to_vec()), Reply::Bulk(value)]);
    assert_eq!(blocked.read().expect("it is answered"), popped);
    // The plain listener is beside it.
    assert_eq!(call(&mut place.site.connect(), "GET k"), "v");
    // The Redis is lost, and comes back.
    redis.kill();
    let port = address.rsplit(':').next().expect("a port");
    let words = [
        "--tls-port",
        port,
        "--tls-cert-file",
        &identity.certificate,
        "--tls-key-file",
        &identity.key,
        "--tls-ca-cert-file",
        &place.authority.file,
        "--tls-auth-clients",
        "no",
    ];
    let _redis = place.site.redis(&words);
    // Who watched something there was told that it is over.
    let again = place.connect().ask("INCR n").expect("it is answered");
    assert_eq!(again, Reply::Integer(1), "{}", proxy.error_output());
}

#[test]
fn redis_cli_speaks_tls_with_the_proxy() {
    let Some(place) = Place::new("tls-cli") else { return };
    let _redis = place.site.redis(&[]);
    let _proxy = place.proxy(&[]);
    let port = place.tls.port().to_string();
    let said = std::process::Command::new("redis-cli")
        .args(["--tls", "--cacert", &place.authority.file, "-p", &port, "SET", "k", "v"])
        .output()
        .expect("redis-cli is installed with redis-server");
    let (out, err) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    if err.contains("Unrecognized option") {
        eprintln!("SKIP: this redis-cli was built without TLS");
        return;
    }
    assert_eq!(out.trim(), "OK", "{err}");
}

#[test]
fn certificates_are_asked_for_both_ways() {
    let Some(place) = Place::new("tls-mutual") else { return };
    let identity = place.authority.certify("redis", HERE);
    let (_redis, address) = place.redis(&identity, &["--tls-auth-clients", "yes"]);
    let authority = &place.authority.file;
    let without = place.start_before(&address, &["--redis-tls", "--redis-ca", authority]);
    let (code, said) = end_of(&without);
    assert!(code == Some(3) && said.contains("--redis-cert"), "{code:?} {said}");
    let own = &place.own;
    let words = [
        "--redis-tls",
        "--redis-ca",
        authority,
        "--redis-cert",
        &own.certificate,
        "--redis-key",
        &own.key,
        "--tls-client-ca",
        authority,
    ];
    let proxy = ready(place.start_before(&address, &words));
    let friend = place.authority.certify("friend", &["friend"]);
    let mut client = Client::open(place.tls, authority, Some(&friend)).expect("it listens");
    assert_eq!(client.ask("SET k v").expect("it is answered"), ok());
    // Nobody else gets in: without a certificate, with one that is too old, with one of another authority.
    let turned_away = |identity: Option<&Identity>| {
        let asked = Client::open(place.tls, authority, identity).and_then(|mut client| client.ask("GET k"));
        assert!(asked.is_err(), "{asked:?}");
    };
    turned_away(None);
    let said = || proxy.error_output().contains("--tls-client-ca asks for");
    assert!(wait_until(PATIENCE, said), "{}", proxy.error_output());
    turned_away(Some(&place.authority.certify_until("late", &["friend"], 2001)));
    let other = Authority::new(&place.site.file(""), "other");
    turned_away(Some(&other.certify("stranger", &["friend"])));
    assert_eq!(client.ask("GET k").expect("it is answered"), Reply::Bulk(b"v".to_vec()));
}

#[test]
fn a_redis_that_shows_no_good_certificate_is_not_spoken_to() {
    let Some(place) = Place::new("tls-faults") else { return };
    let authority = place.authority.file.as_str();
    let refused = |address: &str, ca: &str, more: &[&str]| {
        let words = ["--redis-tls", "--redis-ca", ca];
        end_of(&place.start_before(address, &[&words[..], more].concat()))
    };
    let mut cases: Vec<(Identity, &str, &str)> = Vec::new();
    let other = Authority::new(&place.site.file(""), "other");
    cases.push((
        place.authority.certify_until("late", HERE, 2001),
        authority,
        "renew the Redis' certificate",
    ));
    cases.push((place.authority.certify("elsewhere", &["db.example.org"]), authority, "--redis-server-name"));
    cases.push((place.authority.certify("good", HERE), &other.file, "--redis-ca"));
    for (identity, ca, expected) in &cases {
        let (_redis, address) = place.redis(identity, &["--tls-auth-clients", "no"]);
        let (code, said) = refused(&address, ca, &[]);
        assert!(code == Some(3) && said.contains(expected), "{code:?} {said}");
    }
    // By the name that it has, it is good.
    let (redis, address) = place.redis(&cases[1].0, &["--tls-auth-clients", "no"]);
    let words = ["--redis-tls", "--redis-ca", authority, "--redis-server-name", "db.example.org"];
    let proxy = ready(place.start_before(&address, &words));
    assert_eq!(call(&mut place.site.connect(), "SET k v"), "OK");
    drop((proxy, redis));
    // A port without TLS.
    let plain = free_address();
    let port = plain.port().to_string();
    let _redis = place.site.redis(&["--port", &port]);
    let (code, said) = refused(&plain.to_string(), authority, &[]);
    assert!(code == Some(3) && said.contains("tls-port"), "{code:?} {said}");
}

#[test]
fn who_speaks_the_wrong_language_is_told_or_cut_off() {
    let Some(place) = Place::new("tls-wrong") else { return };
    let _redis = place.site.redis(&[]);
    {
        let proxy = place.proxy(&[]);
        let mut plain = Connection::open(place.tls, CLIENT_PATIENCE).expect("it listens");
        assert!(plain.call(&["PING"]).is_err());
        let said = || proxy.error_output().contains("it speaks no TLS");
        assert!(wait_until(PATIENCE, said), "{}", proxy.error_output());
        assert_eq!(place.connect().ask("PING").expect("it is answered"), Reply::Simple("PONG".to_owned()));
    }
    let proxy = place.proxy(&[]);
    let asked = Client::open(place.site.listen, &place.authority.file, None)
        .and_then(|mut client| client.ask("PING"));
    assert!(asked.is_err(), "{asked:?}");
    let said = || proxy.error_output().contains("this port speaks no TLS");
    assert!(wait_until(PATIENCE, said), "{}", proxy.error_output());
}

#[test]
fn handshakes_that_never_end_count_as_connections_and_are_over_after_a_while() {
    let Some(place) = Place::new("tls-half") else { return };
    let _redis = place.site.redis(&[]);
    let proxy = place.proxy(&["--connections-max", "2"]);
    let silent: Vec<TcpStream> = (0..2)
        .map(|_| {
            let mut socket = TcpStream::connect(place.tls).expect("it listens");
            // The head of a handshake, and no more.
            socket.write_all(&[0x16, 3, 1, 2, 0, 1]).expect("it is sent");
            socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
            socket
        })
        .collect();
    let refused = || {
        let asked = Connection::open(place.site.listen, PATIENCE).map(|mut plain| plain.call(&["PING"]));
        matches!(asked, Ok(Ok(Reply::Error(text))) if text.contains("max number of clients"))
    };
    assert!(wait_until(PATIENCE, refused), "{}", proxy.error_output());
    for mut socket in silent {
        // With the words of TLS for an end.
        assert!(socket.read_to_end(&mut Vec::new()).expect("the proxy ends it") > 0);
    }
    assert_eq!(place.connect().ask("PING").expect("it is answered"), Reply::Simple("PONG".to_owned()));
}

#[test]
fn certificates_are_read_again_when_the_proxy_is_told_to() {
    let Some(place) = Place::new("tls-reload") else { return };
    let _redis = place.site.redis(&[]);
    let proxy = place.proxy(&[]);
    let mut before = place.connect();
    assert_eq!(before.ask("SET k v").expect("it is answered"), ok());
    // What cannot be read is not taken over.
    let good = std::fs::read(&place.own.certificate).expect("it is there");
    std::fs::write(&place.own.certificate, "no certificate").expect("it can be written");
    proxy.signal("HUP");
    assert!(wait_until(PATIENCE, || proxy.error_output().contains("ALARM: not reloaded")));
    assert_eq!(place.connect().ask("PING").expect("it is answered"), Reply::Simple("PONG".to_owned()));
    std::fs::write(&place.own.certificate, good).expect("it can be written");
    // Another authority has certified it since.
    let other = Authority::new(&place.site.file(""), "other");
    other.certify("proxy", HERE);
    proxy.signal("HUP");
    assert!(wait_until(PATIENCE, || proxy.error_output().contains("reloaded: certificates")));
    let mut after = Client::open(place.tls, &other.file, None).expect("it listens");
    assert_eq!(after.ask("GET k").expect("it is answered"), Reply::Bulk(b"v".to_vec()));
    assert!(Client::open(place.tls, &place.authority.file, None)
        .and_then(|mut old| old.ask("PING"))
        .is_err());
    assert_eq!(before.ask("GET k").expect("it goes on"), Reply::Bulk(b"v".to_vec()));
}

/// What metrics say of a certificate.
fn seconds_left(metrics: SocketAddr) -> Option<i64> {
    let mut answer = String::new();
    let mut stream = TcpStream::connect(metrics).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").ok()?;
    stream.read_to_string(&mut answer).ok()?;
    let mut lines = answer.lines();
    lines.find_map(|line| line.strip_prefix("scotfree_proxy_certificate_seconds_left "))?.parse().ok()
}

#[test]
fn a_certificate_of_its_own_that_has_expired_is_an_alarm_until_there_is_a_new_one() {
    let Some(mut place) = Place::new("tls-expired") else { return };
    place.own = place.authority.certify_until("proxy", HERE, 2001);
    let _redis = place.site.redis(&[]);
    let metrics = free_address();
    let proxy = place.proxy(&["--metrics", &metrics.to_string()]);
    let expired = format!("ALARM: the certificate {} has expired on 2001-01-01", place.own.certificate);
    assert!(wait_until(PATIENCE, || proxy.error_output().contains(&expired)), "{}", proxy.error_output());
    assert!(wait_until(PATIENCE, || seconds_left(metrics).is_some_and(|left| left < 0)));
    place.authority.certify("proxy", HERE);
    proxy.signal("HUP");
    assert!(wait_until(PATIENCE, || seconds_left(metrics).is_some_and(|left| left > 0)));
    assert_eq!(place.connect().ask("PING").expect("it is answered"), Reply::Simple("PONG".to_owned()));
    // And again: what is read again is looked at.
    place.authority.certify_until("proxy", HERE, 2002);
    proxy.signal("HUP");
    let again = || proxy.error_output().contains("has expired on 2002-01-01");
    assert!(wait_until(PATIENCE, again), "{}", proxy.error_output());
    assert_eq!(proxy.error_output().matches(&expired).count(), 1, "{}", proxy.error_output());
}

#[test]
fn a_key_that_everybody_may_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let Some(place) = Place::new("tls-key") else { return };
    std::fs::set_permissions(&place.own.key, std::fs::Permissions::from_mode(0o644)).expect("it is there");
    let (code, said) = end_of(&place.start(&[]));
    assert!(code == Some(3) && said.contains("chmod o="), "{code:?} {said}");
}
