//! The same scripts run against Redis itself and through both sidecars: byte for byte the same replies.

mod support;

use scotfree_resp::back::BackConfig;
use scotfree_resp::front::{EarlyRule, FrontConfig};
use support::driver::Sidecars;
use support::{text, RedisServer};

const PERSISTENT: &[&str] = &["--appendonly yes", "--appendfsync everysec"];

/// Scripts as raw bytes; each begins on a new connection, on empty databases.
const SCRIPTS: &[&str] = &[
    "SET a 1\r\nGET a\r\nINCR a\r\nGET a\r\nDEL a\r\nGET a\r\nTYPE a\r\n",
    "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$5\r\nx\r\n\r\ny\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n",
    "PING\r\nPING hello\r\nECHO hello\r\n",
    "MULTI\r\nMULTI\r\nSET a 1\r\nEXEC\r\n",
    "MULTI\r\nWATCH a\r\nSET a 1\r\nEXEC\r\nGET a\r\n",
    "MULTI\r\nFOO a\r\nGET\r\nSET a 1\r\nEXEC\r\nGET a\r\n",
    "MULTI\r\nEXEC\r\nEXEC\r\nDISCARD\r\n",
    "MULTI\r\nEXEC x\r\nEXEC\r\nEXEC x\r\n",
    "MULTI\r\nDISCARD x\r\nSET a 1\r\nEXEC\r\nMULTI x\r\nMULTI\r\nMULTI x\r\nEXEC\r\n",
    "MULTI\r\nSET a x\r\nINCR a\r\nGET a\r\nEXEC\r\nGET a\r\n",
    "MULTI\r\nSET a 1\r\nDISCARD\r\nGET a\r\n",
    "MULTI\r\nGET a\r\nLRANGE l 0 -1\r\nEXEC\r\n",
    "MULTI\r\nSELECT 2\r\nSET a two\r\nEXEC\r\nGET a\r\nSELECT 0\r\nGET a\r\n",
    "MULTI\r\nSELECT 99\r\nSELECT 2\r\nEXEC\r\nSET b 1\r\nSELECT 0\r\nGET b\r\n",
    "MULTI\r\nBLPOP l 0\r\nRPUSH l a b\r\nBLPOP l 0\r\nEXEC\r\n",
    "MULTI\r\nSHUTDOWN\r\nEXEC\r\n",
    "MULTI\r\nSPOP s\r\nUNWATCH\r\nEXEC\r\n",
    "MULTI\r\nRESET\r\nEXEC\r\n",
    "MULTI\r\nQUIT\r\nPING\r\n",
    "MULTI\r\nCLIENT FOO\r\nCLIENT SETNAME a b\r\nEXEC\r\n",
    "MULTI\r\nSETEX a 0 b\r\nSET a b EX 100\r\nTTL a\r\nEXEC\r\n",
    "WATCH a\r\nMULTI\r\nSET a 1\r\nEXEC\r\nGET a\r\n",
    "WATCH a\r\nSET a 0\r\nMULTI\r\nSET a 1\r\nEXEC\r\nGET a\r\nMULTI\r\nSET a 2\r\nEXEC\r\nGET a\r\n",
    "WATCH a\r\nSET a 0\r\nUNWATCH\r\nMULTI\r\nSET a 1\r\nEXEC\r\nGET a\r\n",
    "WATCH a\r\nSET a 0\r\nMULTI\r\nDISCARD\r\nMULTI\r\nGET a\r\nEXEC\r\n",
    "WATCH a\r\nSET a 0\r\nMULTI\r\nEXEC\r\nMULTI\r\nEXEC\r\n",
    "WATCH a b\r\nMULTI\r\nFOO\r\nEXEC\r\nSET a 0\r\nMULTI\r\nGET a\r\nEXEC\r\n",
    "WATCH\r\nUNWATCH\r\nUNWATCH x\r\n",
    "SELECT abc\r\nSELECT 99\r\nSELECT -1\r\nSELECT\r\nSELECT 1 2\r\nSELECT 99999999999\r\n",
    "SELECT 3\r\nSET a 3\r\nSELECT 0\r\nGET a\r\nSELECT 3\r\nGET a\r\n",
    "HELLO 4\r\nHELLO abc\r\nHELLO 3 FOO\r\nHELLO 3 AUTH a\r\nHELLO 3 SETNAME \"a b\"\r\n",
    "HSET h f v\r\nHELLO 3\r\nHGETALL h\r\nGET nothing\r\nZADD z 1 a\r\nZSCORE z a\r\nHELLO 2\r\nHGETALL h\r\nGET nothing\r\n",
    "HELLO 3\r\nMULTI\r\nHGETALL h\r\nGET a\r\nEXEC\r\nCLIENT GETNAME\r\nSMEMBERS s\r\n",
    "HELLO\r\nHELLO 2 SETNAME x\r\nCLIENT GETNAME\r\n",
    "HELLO 3\r\nWATCH a\r\nSET a 1\r\nMULTI\r\nGET a\r\nEXEC\r\n",
    "HELLO 3\r\nRESET\r\nGET nothing\r\n",
    "CLIENT REPLY SKIP\r\nPING\r\nECHO a\r\nCLIENT REPLY OFF\r\nPING\r\nSET a 1\r\nCLIENT REPLY ON\r\nGET a\r\n",
    "CLIENT REPLY FOO\r\nCLIENT REPLY\r\nCLIENT REPLY SKIP\r\nCLIENT REPLY ON\r\n",
    "CLIENT REPLY OFF\r\nFOO\r\nCLIENT REPLY SKIP\r\nPING\r\nRESET\r\nPING\r\n",
    "CLIENT SETNAME\r\nCLIENT FOO\r\nCLIENT GETNAME\r\nCLIENT SETNAME x\r\nCLIENT GETNAME\r\nCLIENT SETNAME \"\"\r\nCLIENT GETNAME\r\n",
    "CLIENT\r\nCLIENT SETINFO lib-name x\r\n",
    "CLIENT NO-EVICT on\r\nCLIENT NO-EVICT maybe\r\nCLIENT GETREDIR\r\n",
    "AUTH x\r\nAUTH default x\r\nAUTH a b c\r\nAUTH foo bar\r\nAUTH\r\nPING\r\n",
    "*1\r\n$-1\r\n",
    "PING\r\n*a\r\nPING\r\n",
    "*1\r\nx\r\n",
    "SET a 1\r\n\"a\r\n",
    "GET \"a\"b\r\n",
    "POST / HTTP\r\nfoo\r\n",
    "*0\r\n*-1\r\nPING\r\n",
    "*3\r\n$3\r\nSET\r\n$1\r\naXX$1\r\nbYY*2\r\n$3\r\nGET\r\n$1\r\na\r\n",
    "FOO  bar baz\r\nfoo \"a\\x00\\n\"\r\nGET\r\nget a b\r\nOBJECT\r\nOBJECT FOO a\r\n",
    "SETEX a 0 b\r\nSET a b EX 0\r\nSET a b EX\r\nSET a b PX x\r\nSET a b EX 10 PX 10\r\nSET a b KEEPTTL EX 10\r\n",
    "SETEX a 100 b\r\nTTL a\r\nPSETEX a 100000 b\r\nTTL a\r\nSET a b PXAT 1\r\nGET a\r\nGETEX a EX 10\r\n",
    "SET a b EX 100 NX\r\nSET a c NX\r\nSET a d XX GET\r\nTTL a\r\nEXPIRE a 50 GT\r\nEXPIRE a 200\r\nTTL a\r\nPERSIST a\r\nTTL a\r\n",
    "SET a b\r\nEXPIRE a -1\r\nEXISTS a\r\nEXPIRE a x\r\nEXPIRE a\r\n",
    "LPUSH l a\r\nLPUSH a b\r\nSET l x\r\nLPUSH l y\r\nINCR l\r\nHSET l f v\r\n",
    "RPUSH l a b c\r\nLRANGE l 0 -1\r\nLPOP l\r\nRPOP l\r\nLLEN l\r\nLPOP nothing\r\nLPOP nothing 2\r\n",
    "SADD s a\r\nSPOP s\r\nSPOP s\r\nSPOP s 2\r\nSMEMBERS s\r\n",
    "XADD s 1-1 f v\r\nXADD s 1-1 f v\r\nXLEN s\r\nXRANGE s - +\r\nXADD s * \r\n",
    "EVAL \"return redis.call('set', KEYS[1], 'v')\" 1 k\r\nGET k\r\nEVAL \"return {1,{2,3},'x'}\" 0\r\nEVAL bad 0\r\n",
    "MSET a 1 b 2\r\nMGET a b c\r\nMSET a\r\nMSETNX a 1 d 2\r\nDBSIZE\r\n",
    "SET a 1\r\nSELECT 1\r\nSET a 2\r\nSWAPDB 0 1\r\nGET a\r\nSELECT 0\r\nGET a\r\n",
    "SET a 1\r\nMOVE a 2\r\nEXISTS a\r\nSELECT 2\r\nGET a\r\nFLUSHDB\r\nDBSIZE\r\nSELECT 0\r\nCOPY a b\r\n",
    "SET a 1\r\nFLUSHALL\r\nGET a\r\nFLUSHALL ASYNC\r\nFLUSHALL NOW\r\nSET a 2\r\nGET a\r\n",
    "GEOADD g 13.36 38.11 p\r\nGEORADIUS g 13 38 200 km\r\nGEORADIUS g 13 38 200 km STORE d\r\nZCARD d\r\n",
    "SORT l\r\nRPUSH l 3 1 2\r\nSORT l\r\nSORT l STORE m\r\nLRANGE m 0 -1\r\n",
    "PUBLISH c m\r\nPUBSUB CHANNELS\r\nWAIT 0 0\r\n",
    "CONFIG GET maxclients\r\nCONFIG SET maxmemory-samples 6\r\nCONFIG GET maxmemory-samples\r\nCONFIG SET nonsense 1\r\n",
    "SAVE\r\nSET a 1\r\nGET a\r\n",
    "COMMAND COUNT\r\nCOMMAND INFO get\r\nOBJECT ENCODING x\r\nMEMORY USAGE x\r\n",
    "SCRIPT LOAD \"return 1\"\r\nEVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0\r\nSCRIPT EXISTS x\r\n",
    "GETSET a 1\r\nGETDEL a\r\nAPPEND a x\r\nSTRLEN a\r\nSETRANGE a 2 y\r\nGETRANGE a 0 -1\r\nSETBIT a 1 1\r\nBITCOUNT a\r\n",
    "QUIT\r\nPING\r\n",
    "PING\r\nQUIT now\r\nPING\r\n",
    "DEBUG SLEEP 0\r\nPFADD p a\r\nPFCOUNT p\r\nPFMERGE q p\r\n",
];

/// Scripts for a server whose default user has the password "secret", and that knows alice.
const PASSWORD_SCRIPTS: &[&str] = &[
    "PING\r\nGET a\r\nFOO\r\nGET\r\nSELECT 1\r\nQUIT\r\n",
    "MULTI\r\nEXEC\r\nDISCARD\r\nWATCH a\r\n",
    "AUTH wrong\r\nGET a\r\nAUTH secret\r\nSET a 1\r\nGET a\r\n",
    "AUTH default secret\r\nGET a\r\nAUTH default wrong\r\nGET a\r\nRESET\r\nGET a\r\n",
    "HELLO\r\nHELLO 3\r\nHELLO 3 AUTH default wrong\r\nGET a\r\n",
    "HELLO 3 AUTH default secret SETNAME me\r\nGET nothing\r\nCLIENT GETNAME\r\nHGETALL h\r\n",
    "AUTH alice secret\r\nSET alice:a 1\r\nGET alice:a\r\nINCR alice:a\r\nGET bob:a\r\nSET bob:a 1\r\nPING\r\n",
    "HELLO 3 AUTH alice secret\r\nHSET alice:h f v\r\nHGETALL alice:h\r\nMULTI\r\nINCR alice:n\r\nEXEC\r\n",
    "AUTH alice secret\r\nWATCH alice:a\r\nMULTI\r\nINCR alice:a\r\nEXEC\r\nAUTH secret\r\nSET bob:a 1\r\nGET bob:a\r\n",
    "AUTH secret\r\nWATCH a\r\nSET a 2\r\nMULTI\r\nGET a\r\nEXEC\r\nAUTH secret\r\nGET a\r\n",
    "*12\r\n",
    "*2\r\n$4\r\nECHO\r\n$20000\r\n",
];

/// What differs between any two connections, or sets of replies without order.
fn masked(bytes: &[u8]) -> String {
    let text = text(bytes);
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find("id\\r\\n:") {
        let (before, after) = rest.split_at(at + "id\\r\\n:".len());
        out.push_str(before);
        out.push('#');
        rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    out + rest
}

/// Ends a script so that the end is known by the connection's.
const END: &[u8] = b"\r\nCLIENT REPLY ON\r\nRESET\r\nQUIT\r\n";

/// Runs scripts through the sidecars, each on a new connection and on empty databases.
fn differences(
    sidecars: &mut Sidecars,
    scripts: &[&str],
    mut expect: impl FnMut(&str) -> Vec<u8>,
) -> Vec<String> {
    let cleaner = sidecars.connect();
    let mut found = Vec::new();
    for script in scripts {
        let expected = expect(script);
        sidecars.script(cleaner, b"AUTH secret\r\nFLUSHALL\r\n");
        let client = sidecars.connect();
        let mut got = sidecars.script(client, script.as_bytes());
        if !sidecars.clients[client].closed {
            got.extend(sidecars.script(client, END));
        }
        assert!(sidecars.clients[client].closed, "{script}");
        assert_eq!(sidecars.clients[client].tunnel, None, "{script}");
        if masked(&got) != masked(&expected) {
            let (script, redis, ours) = (text(script.as_bytes()), text(&expected), text(&got));
            found.push(format!("{script}\n  redis: {redis}\n  ours:  {ours}"));
        }
    }
    found
}

fn directly(server: &RedisServer, script: &str) -> Vec<u8> {
    let mut connection = server.connect();
    connection.line("FLUSHALL");
    drop(connection);
    let mut connection = server.connect();
    connection.send(&[script.as_bytes(), END].concat());
    connection.read_to_end()
}

#[test]
fn passwords_and_users_are_what_they_are_to_redis() {
    let secret = ["--requirepass secret"];
    let Some(plain) = RedisServer::start(&secret) else { return };
    let Some(behind) = RedisServer::start(&[PERSISTENT, &secret].concat()) else { return };
    let alice = "ACL SETUSER alice on >secret ~alice:* ~scotfree:markers +@all";
    for server in [&plain, &behind] {
        let mut connection = server.connect();
        connection.line("AUTH secret");
        assert_eq!(connection.line(alice), b"+OK\r\n");
    }
    let credentials = Some(("default".to_owned(), "secret".to_owned()));
    let back = BackConfig { credentials, ..BackConfig::default() };
    let mut sidecars = Sidecars::start(&behind.socket(), back, FrontConfig::default());
    let differences = differences(&mut sidecars, PASSWORD_SCRIPTS, |script| {
        let mut connection = plain.connect();
        connection.line("AUTH secret");
        connection.line("FLUSHALL");
        let mut connection = plain.connect();
        connection.send(&[script.as_bytes(), END].concat());
        connection.read_to_end()
    });
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn scripts_get_the_replies_that_redis_gives() {
    let Some(plain) = RedisServer::start(&[]) else { return };
    for early in [EarlyRule::Never, EarlyRule::Always] {
        let Some(behind) = RedisServer::start(PERSISTENT) else { return };
        let front = FrontConfig { early, ..FrontConfig::default() };
        let mut sidecars = Sidecars::start(&behind.socket(), BackConfig::default(), front);
        let differences = differences(&mut sidecars, SCRIPTS, |script| directly(&plain, script));
        assert!(differences.is_empty(), "{}", differences.join("\n"));
        assert!(sidecars.driver.failed.is_empty(), "{:?}", sidecars.driver.failed);
        assert_eq!(sidecars.driver.late_errors, []);
    }
}

/// The words of CLIENT INFO.
fn info(reply: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(reply).into_owned();
    let line =
        text.lines().find(|line| line.contains("addr=")).expect("a description").trim_start_matches("txt:");
    let words = line.split(' ').filter_map(|word| word.split_once('='));
    words.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The replies to what a connection asks about itself: HELLO's ID, CLIENT ID's, and CLIENT INFO's words.
fn told_of_itself(mut script: impl FnMut(&[u8]) -> Vec<u8>) -> (u64, u64, Vec<(String, String)>) {
    let number = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().expect("a number")
    };
    script(b"SELECT 3\r\nCLIENT SETNAME joe\r\n");
    let hello = script(b"HELLO 3\r\n");
    let mark = b"id\r\n:";
    let at = hello.windows(mark.len()).position(|window| window == mark).expect("an ID") + mark.len();
    let id = script(b"CLIENT ID\r\n");
    (number(&hello[at..]), number(&id[1..]), info(&script(b"CLIENT INFO\r\n")))
}

#[test]
fn a_connection_is_told_of_itself_what_redis_would_tell() {
    let Some(plain) = RedisServer::start(&[]) else { return };
    let Some(behind) = RedisServer::start(PERSISTENT) else { return };
    let mut sidecars = Sidecars::start(&behind.socket(), BackConfig::default(), FrontConfig::default());
    let mut last = 0;
    for _ in 0..2 {
        let mut connection = plain.connect();
        let (_, _, redis) = told_of_itself(|bytes| {
            let count = bytes.split(|byte| *byte == b'\n').count() - 1;
            connection.send(bytes);
            (0..count).flat_map(|_| connection.reply()).collect()
        });
        let client = sidecars.connect();
        let (hello, id, ours) = told_of_itself(|bytes| sidecars.script(client, bytes));
        assert!(hello == id && id > last, "{hello}, {id}, {last}");
        last = id;
        let names =
            |words: &[(String, String)]| words.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&ours), names(&redis));
        let value = |words: &[(String, String)], name: &str| {
            words.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
        };
        assert_eq!(value(&ours, "id"), Some(id.to_string()));
        for name in ["name", "db", "sub", "psub", "multi", "cmd", "user", "redir", "resp"] {
            assert_eq!(value(&ours, name), value(&redis, name), "{name}");
        }
    }
}

#[test]
fn what_is_too_large_for_a_packet_comes_and_goes_in_parts() {
    let Some(plain) = RedisServer::start(&[]) else { return };
    let Some(behind) = RedisServer::start(PERSISTENT) else { return };
    let back = BackConfig { reply_bytes_max: 20_000, ..BackConfig::default() };
    let front = FrontConfig { request_bytes_max: 3_000, early: EarlyRule::Always, ..FrontConfig::default() };
    let mut sidecars = Sidecars::start(&behind.socket(), back, front);
    let long = "abcdefghij".repeat(5_000);
    let scripts = [
        format!("SET k {long}\r\nGET k\r\nSTRLEN k\r\nAPPEND k x\r\nGETRANGE k 49990 -1\r\n"),
        format!("MULTI\r\nSET k {long}\r\nGET k\r\nEXEC\r\nGET k\r\nGET k\r\nPING\r\n"),
        format!("SET k v\r\nWATCH k\r\nMULTI\r\nSET k {long}\r\nEXEC\r\nGET k\r\nHELLO 3\r\nGET k\r\n"),
        format!("RPUSH l {}\r\nLRANGE l 0 -1\r\n", "x ".repeat(9_000).trim_end()),
    ];
    let scripts: Vec<&str> = scripts.iter().map(String::as_str).collect();
    let differences = differences(&mut sidecars, &scripts, |script| directly(&plain, script));
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    let large: u64 = sidecars.clients.iter().map(|client| client.counters().large).sum();
    assert_eq!((large, sidecars.driver.late_errors.len()), (4, 0));
}
