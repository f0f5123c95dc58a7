//! Which Redis a proxy stands before: by name, on another host, and which it refuses.

mod site;

use scotfree_io::conformance::ports::free_address;
use scotfree_stage::process::{wait_until, Process};
use scotfree_stage::resp::{Connection, Reply};
use site::{call, end_of, ready, Site, PATIENCE};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

/// A Redis at an address, with files in a folder of its own.
fn redis_at(site: &Site, folder: &str, program: &str, address: SocketAddr, more: &[&str]) -> Process {
    let folder = site.file(folder);
    std::fs::create_dir_all(&folder).expect("it can be made");
    let (port, ip) = (address.port().to_string(), address.ip().to_string());
    let words = ["--port", &port, "--bind", &ip, "--dir", folder.to_str().expect("text"), "--save", ""];
    let aof = ["--appendonly", "yes", "--appendfsync", "everysec"];
    let redis = site.spawn("redis", program, &[&words[..], &aof, more].concat());
    let is_up = || Connection::open(address, PATIENCE).is_ok_and(|mut asked| asked.call(&["PING"]).is_ok());
    assert!(wait_until(PATIENCE, is_up), "{}", redis.output());
    redis
}

fn name_of(address: SocketAddr) -> String {
    format!("localhost:{}", address.port())
}

#[test]
fn a_redis_is_known_by_its_name() {
    let Some(site) = Site::new("reach-name") else { return };
    let address = free_address();
    let redis = redis_at(&site, "data", "redis-server", address, &[]);
    let proxy = ready(site.start_proxy_before(&name_of(address), &[]));
    let mut client = site.connect();
    assert_eq!(call(&mut client, "INCR n"), "1");
    // A lane of the client's own, and a tunnel, go to the same place.
    assert_eq!(call(&mut client, "WATCH n"), "OK");
    let mut blocked = site.connect();
    blocked.push(&["BLPOP", "list", "0"]);
    blocked.flush().expect("it is sent");
    assert_eq!(call(&mut client, "RPUSH list x"), "1");
    assert!(matches!(blocked.read(), Ok(Reply::Array(_))));
    redis.kill();
    let _redis = redis_at(&site, "data", "redis-server", address, &[]);
    assert_eq!(call(&mut site.connect(), "INCR n"), "2", "{}", proxy.error_output());
}

/// A proxy whose system knows the names in a file of its own.
fn start_with_hosts(site: &Site, hosts: &Path, redis: &str) -> Process {
    let script = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
    let listen = site.listen.to_string();
    let hosts = hosts.to_str().expect("text");
    let before = ["-Urm", "sh", "-c", script, hosts, site::SCOT];
    let words = ["proxy", "--listen", &listen, "--redis", redis, "--log", "proxy.log", "--log-size", "32M"];
    site.spawn("proxy", "unshare", &[&before[..], &words].concat())
}

#[test]
fn a_changed_address_is_followed_when_the_redis_was_lost() {
    let Some(site) = Site::new("reach-moved") else { return };
    let has_namespaces = std::process::Command::new("unshare").args(["-Urm", "true"]).output();
    if !has_namespaces.is_ok_and(|tried| tried.status.success()) {
        eprintln!("SKIP: no user and mount namespaces are allowed here (unshare -Urm)");
        return;
    }
    let first = free_address();
    let second = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), first.port()));
    let hosts = site.file("hosts");
    std::fs::write(&hosts, "127.0.0.1 moves.test\n").expect("it can be written");
    let redis = redis_at(&site, "data", "redis-server", first, &[]);
    let name = format!("moves.test:{}", first.port());
    let proxy = ready(start_with_hosts(&site, &hosts, &name));
    assert_eq!(call(&mut site.connect(), "INCR n"), "1");
    // Another one at the new address is not gone to while the old one answers.
    std::fs::write(&hosts, "127.0.0.2 moves.test\n").expect("it can be written");
    let other = redis_at(&site, "other", "redis-server", second, &[]);
    let mut client = site.connect();
    assert_eq!(call(&mut client, "WATCH n"), "OK");
    assert_eq!(call(&mut client, "GET n"), "1");
    drop((client, other));
    redis.kill();
    let _redis = redis_at(&site, "data", "redis-server", second, &[]);
    assert_eq!(call(&mut site.connect(), "INCR n"), "2", "{}", proxy.error_output());
}

#[test]
fn another_redis_behind_the_name_is_refused() {
    let Some(site) = Site::new("reach-other") else { return };
    let address = free_address();
    let redis = redis_at(&site, "data", "redis-server", address, &[]);
    let proxy = ready(site.start_proxy_before(&name_of(address), &[]));
    assert_eq!(call(&mut site.connect(), "SET k v"), "OK");
    redis.kill();
    let _other = redis_at(&site, "other", "redis-server", address, &[]);
    let (code, said) = end_of(&proxy);
    assert!(code == Some(3) && said.contains("or another server answers there"), "{code:?} {said}");
    assert!(said.contains("--accept-server"), "{said}");
    // It was left as it was.
    let mut other = Connection::open(address, PATIENCE).expect("it listens");
    assert_eq!(call(&mut other, "DBSIZE"), "0");
    assert_eq!(call(&mut other, "SELECT 15"), "OK");
    assert_eq!(call(&mut other, "DBSIZE"), "0");
}

#[test]
fn a_name_that_nobody_has_is_said_to_be_looked_up() {
    let Some(site) = Site::new("reach-nobody") else { return };
    let (code, said) = end_of(&site.start_proxy_before("no-such-host.invalid:6379", &[]));
    assert!(code == Some(3) && said.contains("looking up no-such-host.invalid"), "{code:?} {said}");
}

#[test]
fn a_redis_on_another_host_is_allowed_only_when_it_is_said_and_can_be_known_to_sync() {
    let Some(site) = Site::new("reach-remote") else { return };
    let (code, said) = end_of(&site.start_proxy_before("192.0.2.1:6379", &[]));
    assert!(code == Some(2) && said.contains("--redis-remote"), "{code:?} {said}");
    let address = free_address();
    let mut redis = redis_at(&site, "data", "redis-server", address, &[]);
    let mut asked = Connection::open(address, PATIENCE).expect("it listens");
    let has_waitaof = matches!(asked.call(&["COMMAND", "INFO", "WAITAOF"]), Ok(Reply::Array(found)) if found != [Reply::Null]);
    if !has_waitaof {
        let (code, said) = end_of(&site.start_proxy_before(&name_of(address), &["--redis-remote"]));
        assert!(code == Some(3) && said.contains("has no WAITAOF"), "{code:?} {said}");
        drop(redis);
        if std::process::Command::new("valkey-server").arg("--version").output().is_err() {
            eprintln!("SKIP: no server with WAITAOF is installed (Redis 7.2, or valkey-server)");
            return;
        }
        redis = redis_at(&site, "newer", "valkey-server", address, &[]);
    }
    let proxy = ready(site.start_proxy_before(&name_of(address), &["--redis-remote"]));
    assert!(proxy.error_output().contains("WAITAOF"), "{}", proxy.error_output());
    for number in 1..=100 {
        assert_eq!(call(&mut site.connect(), "INCR n"), number.to_string());
    }
    assert_eq!(call(&mut site.connect(), "EVAL return(redis.call('incr','n')) 0"), "101");
    // It syncs no more by itself, so nothing would be known to last.
    let mut direct = Connection::open(address, PATIENCE).expect("it listens");
    assert_eq!(call(&mut direct, "CONFIG SET appendfsync no"), "OK");
    assert!(wait_until(PATIENCE, || call(&mut site.connect(), "SET k w").contains("appendfsync is `no`")));
    assert_eq!(call(&mut direct, "CONFIG SET appendfsync everysec"), "OK");
    assert!(wait_until(PATIENCE, || call(&mut site.connect(), "SET k x") == "OK"));
    drop(redis);
}

#[test]
fn clusters_and_sentinels_are_refused_by_their_names() {
    let Some(site) = Site::new("reach-kinds") else { return };
    let address = free_address();
    // By itself its other port is ten thousand higher, and somebody's maybe.
    let bus = free_address().port().to_string();
    let more = ["--cluster-enabled", "yes", "--cluster-port", &bus];
    let cluster = redis_at(&site, "cluster", "redis-server", address, &more);
    let (code, said) = end_of(&site.start_proxy_before(&address.to_string(), &[]));
    assert!(code == Some(3) && said.contains("node of a Redis Cluster"), "{code:?} {said}");
    drop(cluster);
    let port = address.port().to_string();
    std::fs::write(site.file("sentinel.conf"), "").expect("it can be written");
    let words = ["sentinel.conf", "--sentinel", "--port", &port, "--bind", "127.0.0.1"];
    let sentinel = site.spawn("sentinel", "redis-server", &words);
    let is_up = || Connection::open(address, PATIENCE).is_ok_and(|mut asked| asked.call(&["PING"]).is_ok());
    assert!(wait_until(PATIENCE, is_up), "{}", sentinel.output());
    let (code, said) = end_of(&site.start_proxy_before(&address.to_string(), &[]));
    assert!(code == Some(3) && said.contains("a Sentinel answers there"), "{code:?} {said}");
}

/// A script without end, until another connection ends it.
fn keep_busy(address: SocketAddr) -> Connection {
    let mut busy = Connection::open(address, PATIENCE).expect("it listens");
    busy.push(&["EVAL", "while true do end", "0"]);
    busy.flush().expect("it is sent");
    let is_busy = || {
        let asked = Connection::open(address, PATIENCE).map(|mut asked| asked.call(&["GET", "k"]));
        matches!(asked, Ok(Ok(Reply::Error(text))) if text.starts_with("BUSY"))
    };
    assert!(wait_until(PATIENCE, is_busy));
    busy
}

fn end_script(address: SocketAddr) {
    let mut direct = Connection::open(address, PATIENCE).expect("it listens");
    assert_eq!(call(&mut direct, "SCRIPT KILL"), "OK");
}

#[test]
fn a_redis_that_is_busy_with_a_script_is_waited_for() {
    let Some(site) = Site::new("reach-busy") else { return };
    let address = free_address();
    let _redis = redis_at(&site, "data", "redis-server", address, &["--lua-time-limit", "50"]);
    let busy = keep_busy(address);
    let proxy = site.start_proxy_before(&address.to_string(), &[]);
    let says = |what: &str| wait_until(PATIENCE, || proxy.error_output().contains(what));
    assert!(says("busy with a script"), "{}", proxy.error_output());
    assert!(proxy.is_running());
    end_script(address);
    drop(busy);
    let proxy = ready(proxy);
    let mut client = site.connect();
    assert_eq!(call(&mut client, "SET k v"), "OK");
    // The same while it serves: no other reason is given for it.
    let said = |what: &str| proxy.error_output().matches(what).count();
    let before = said("waiting until it is done");
    let _busy = keep_busy(address);
    assert!(wait_until(PATIENCE, || said("waiting until it is done") > before), "{}", proxy.error_output());
    // Who asks meanwhile is told what the Redis says, or waits.
    let mut other = site.connect();
    client.push(&["SET", "k", "meanwhile"]);
    other.push(&["GET", "k"]);
    client.flush().and_then(|()| other.flush()).expect("they are sent");
    end_script(address);
    for reply in [client.read(), other.read()] {
        let reply = reply.expect("it is answered");
        assert!(!matches!(&reply, Reply::Error(text) if !text.starts_with("BUSY")), "{reply:?}");
    }
    assert!(wait_until(PATIENCE, || call(&mut site.connect(), "SET k w") == "OK"));
    assert_eq!(said("keeps no append-only file"), 0, "{}", proxy.error_output());
    assert_eq!(said("no longer keeps"), 0, "{}", proxy.error_output());
    assert_eq!(said("writes are refused"), 0, "{}", proxy.error_output());
}

#[test]
fn a_redis_that_says_no_more_how_it_is_is_given_its_own_reason() {
    let Some(site) = Site::new("reach-noperm") else { return };
    let address = free_address();
    let _redis = redis_at(&site, "data", "redis-server", address, &[]);
    let mut direct = Connection::open(address, PATIENCE).expect("it listens");
    assert_eq!(call(&mut direct, "ACL SETUSER proxy on >secret +@all ~* &*"), "OK");
    std::fs::write(site.file("password"), "secret").expect("it can be written");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(site.file("password"), private).expect("it is ours");
    let words = ["--redis-user", "proxy", "--redis-password-file", "password"];
    let proxy = ready(site.start_proxy_before(&address.to_string(), &words));
    assert_eq!(call(&mut site.connect(), "SET k v"), "OK");
    assert_eq!(call(&mut direct, "ACL SETUSER proxy -config"), "OK");
    let refused = || call(&mut site.connect(), "SET k w").contains("ACL SETUSER proxy");
    assert!(wait_until(PATIENCE, refused), "{}", proxy.error_output());
    assert_eq!(call(&mut direct, "ACL SETUSER proxy +config"), "OK");
    assert!(wait_until(PATIENCE, || call(&mut site.connect(), "SET k x") == "OK"));
    assert!(!proxy.error_output().contains("no longer keeps an append-only file"));
}

#[test]
fn a_log_that_has_no_room_is_refused_with_both_numbers() {
    let Some(site) = Site::new("reach-room") else { return };
    let _redis = site.redis(&[]);
    let listen = site.listen.to_string();
    let words =
        ["proxy", "--listen", &listen, "--redis", "unix:redis.sock", "--log", "l", "--log-size", "1000000G"];
    let (code, said) = end_of(&site.spawn("proxy", site::SCOT, &words));
    assert!(code == Some(3) && said.contains("1073741824000000 bytes"), "{code:?} {said}");
    assert!(said.contains("bytes free") && !site.file("l").exists(), "{said}");
}
