//! How long what a read shows is said to live, against a real redis-server.

mod support;

use scotfree_core::Nanos;
use scotfree_resp::back::BackConfig;
use scotfree_resp::codec::{write_command, Command};
use scotfree_resp::payload::pack::PackBuilder;
use scotfree_resp::payload::{RequestFlags, RequestHead, RequestKind};
use support::driver::BackDriver;
use support::RedisServer;

const EVERYSEC: &[&str] = &["--appendonly yes", "--appendfsync everysec"];
const FOR_EVER: u64 = u64::MAX;

fn vouching() -> BackConfig {
    BackConfig { vouches: true, ..BackConfig::default() }
}

fn request(flags: RequestFlags, lines: &[&str]) -> Vec<u8> {
    let mut payload = Vec::new();
    RequestHead { flags, db: 0, connection: 1 }.write(&mut payload);
    for line in lines {
        write_command(&mut payload, Command::new(line.split(' ')).args());
    }
    payload
}

/// A driver whose session writes and reads in turn.
struct Asking {
    driver: BackDriver,
    session: scotfree_core::SessionId,
    seq: u64,
}

impl Asking {
    fn new(redis: &RedisServer, config: BackConfig) -> Asking {
        let mut driver = BackDriver::started(&redis.socket(), config);
        let session = driver.open(1);
        Asking { driver, session, seq: 0 }
    }

    fn send(&mut self, kind: RequestKind, payload: &[u8]) -> u64 {
        self.seq += 1;
        self.driver.execute(self.session, self.seq, kind, payload)
    }

    fn write(&mut self, line: &str) {
        let ticket = self.send(RequestKind::Update, &request(RequestFlags::NONE, &[line]));
        self.driver.response(ticket);
    }

    /// How long what a read shows is said to live.
    fn lives(&mut self, payload: &[u8]) -> Option<u64> {
        let ticket = self.send(RequestKind::Read, payload);
        self.driver.response(ticket);
        self.driver.lives.get(&ticket).copied()
    }

    fn of_get(&mut self, key: &str) -> Option<u64> {
        self.lives(&request(RequestFlags::NOTED, &[&format!("GET {key}")]))
    }
}

#[test]
fn a_value_lives_for_ever_or_as_long_as_the_server_says_when_it_is_read() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut asking = Asking::new(&redis, vouching());
    assert!(asking.driver.describe().cached, "clients are told");
    asking.write("SET k v");
    assert_eq!(asking.of_get("k"), Some(FOR_EVER));
    asking.write("SET short v PX 90000");
    let left = asking.of_get("short").expect("it is a value");
    assert!((1..=90_000).contains(&left), "{left}");
    assert_eq!(asking.of_get("k"), Some(FOR_EVER), "also where others expire");
    asking.write("PERSIST short");
    assert_eq!(asking.of_get("short"), Some(FOR_EVER));
}

#[test]
fn nothing_is_said_of_what_is_no_value_or_is_not_asked_for_by_itself() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    for expires in [false, true] {
        let mut asking = Asking::new(&redis, vouching());
        for line in ["SET k v", "RPUSH l v", "HSET h f v", "SADD s m"] {
            asking.write(line);
        }
        if expires {
            asking.write("SETEX other 90 v");
        }
        for key in ["missing", "l"] {
            assert_eq!(asking.of_get(key), None, "{key}");
        }
        let plain = |flags| request(flags, &["GET k"]);
        assert_eq!(asking.lives(&plain(RequestFlags::NONE)), None, "its client takes no note");
        let own = RequestFlags::NOTED.with(RequestFlags::PRIVATE);
        assert_eq!(asking.lives(&plain(own)), None, "on a connection of its own");
        let transaction = RequestFlags::NOTED.with(RequestFlags::TRANSACTION);
        assert_eq!(asking.lives(&plain(transaction)), None, "in a transaction");
        for line in ["LLEN l", "EXISTS k", "ZCARD k", "MGET k l", "STRLEN missing", "HGET k f"] {
            let said = asking.lives(&request(RequestFlags::NOTED, &[line]));
            assert_eq!(said, None, "{line}: it may change unseen, is no answer, or of a key that is missing");
        }
        let fields_expire = asking.driver.describe().command(b"hpexpire").is_some();
        for (line, tells_of_hash) in
            [("STRLEN k", false), ("MGET k", false), ("SISMEMBER s n", false), ("HGET h g", true)]
        {
            let expected = (!(tells_of_hash && fields_expire)).then_some(FOR_EVER);
            assert_eq!(asking.lives(&request(RequestFlags::NOTED, &[line])), expected, "{line}");
        }
        let mut pack = PackBuilder::default();
        (0..2).for_each(|_| assert!(pack.add(&plain(RequestFlags::NONE), 1 << 20)));
        assert_eq!(asking.lives(pack.payload()), None, "in a pack");
        assert_eq!(asking.of_get("k"), Some(FOR_EVER));
    }
    let mut asking = Asking::new(&redis, BackConfig::default());
    assert!(!asking.driver.describe().cached);
    assert_eq!(asking.of_get("k"), None, "who does not vouch says nothing");
}

/// A read that shares a transaction with a write, behind one that is under way.
#[test]
fn a_read_among_writes_is_vouched_for_where_nothing_expires() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut asking = Asking::new(&redis, vouching());
    for (line, expected) in [("SET k v", Some(FOR_EVER)), ("SET k v PX 90000", None)] {
        asking.send(RequestKind::Update, &request(RequestFlags::NONE, &["INCR n"]));
        asking.send(RequestKind::Update, &request(RequestFlags::NONE, &[line]));
        let read = asking.send(RequestKind::Read, &request(RequestFlags::NOTED, &["GET k"]));
        asking.driver.response(read);
        assert_eq!(asking.driver.lives.get(&read).copied(), expected, "{line}");
    }
}

/// What waited for its turn while the server was asked which keys expire is missing in its answer.
#[test]
fn a_life_that_is_given_behind_a_look_at_the_server_is_known() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let config = BackConfig { health_interval: Nanos::from_millis(500), ..vouching() };
    let mut asking = Asking::new(&redis, config);
    asking.write("SET k v");
    let mut other = redis.connect();
    let mut looks = || {
        let said = String::from_utf8_lossy(&other.line("INFO commandstats")).into_owned();
        let calls = said.split("cmdstat_acl|getuser:calls=").nth(1).and_then(|rest| rest.split(',').next());
        calls.map_or(0, |calls| calls.parse::<u64>().expect("a number"))
    };
    redis.connect().line("CLIENT PAUSE 60000 WRITE");
    asking.send(RequestKind::Update, &request(RequestFlags::NONE, &["INCR n"]));
    let waits = asking.send(RequestKind::Update, &request(RequestFlags::NONE, &["PEXPIRE k 90000"]));
    let before = looks();
    asking.driver.until("the server is asked", |_| looks() > before);
    // Its answer is taken as well.
    let described = asking.driver.now();
    asking.driver.until("a turn later", |driver| driver.now() > described.plus(Nanos::from_millis(20)));
    redis.connect().line("CLIENT UNPAUSE");
    asking.driver.response(waits);
    let left = asking.of_get("k").expect("it is a value");
    assert!(left <= 90_000, "{left}");
}
