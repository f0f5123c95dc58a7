//! What INFO and CONFIG GET say of the server: whether the promises can be kept on it.
//!
//! Invariant: a fact that is missing counts against the server.

use crate::codec::{elements, text_of};
use std::collections::BTreeMap;

/// Early answers stop above this share of maxmemory, in percent.
const EARLY_MEMORY_PERCENT_MAX: u64 = 90;

/// The facts of an INFO reply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Info(BTreeMap<String, String>);

impl Info {
    /// Reads the reply.
    pub fn parse(reply: &[u8]) -> Info {
        let text = String::from_utf8_lossy(text_of(reply).unwrap_or_default()).into_owned();
        let facts = text.lines().filter_map(|line| line.split_once(':'));
        Info(facts.map(|(name, value)| (name.to_owned(), value.trim_end().to_owned())).collect())
    }

    /// A fact; empty if it is missing.
    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Whether some key of a client has a time to live; true if it is not said.
    pub fn has_expiring_keys(&self, reserved_db: u16) -> bool {
        let none = |facts: &str| facts.split(',').any(|fact| fact == "expires=0");
        let number = |name: &str| name.strip_prefix("db")?.parse::<u16>().ok();
        let is_db = |name: &str| number(name).is_some_and(|db| db != reserved_db);
        let mut databases = self.0.iter().filter(|(name, _)| is_db(name));
        // Redis has keyspace_hits whenever it says anything of its databases: none may hold keys.
        !self.0.contains_key("keyspace_hits") || databases.any(|(_, facts)| !none(facts))
    }

    /// A fact that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.get(name).parse().ok()
    }
}

/// The settings of CONFIG GET replies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings(BTreeMap<String, String>);

impl Settings {
    /// The settings that are asked for, one CONFIG GET each, since old servers take no more.
    pub const NAMES: [&'static str; 12] = [
        "databases",
        "maxmemory-policy",
        "appendonly",
        "appendfsync",
        "no-appendfsync-on-rewrite",
        "dir",
        "appenddirname",
        "appendfilename",
        "cluster-enabled",
        "min-replicas-to-write",
        "stop-writes-on-bgsave-error",
        "save",
    ];

    /// Adds what a reply says.
    pub fn add(&mut self, reply: &[u8]) {
        let texts: Vec<String> = elements(reply)
            .map(|element| String::from_utf8_lossy(text_of(element).unwrap_or_default()).into_owned())
            .collect();
        for pair in texts.chunks_exact(2) {
            self.0.insert(pair[0].clone(), pair[1].clone());
        }
    }

    /// A setting; empty if it is missing.
    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }
}

/// Redis' version as numbers.
pub fn version(info: &Info) -> (u32, u32) {
    let text = match info.get("valkey_version") {
        // Valkey reports the Redis version that it is compatible with, which is what commands depend on.
        "" => info.get("redis_version"),
        _ if !info.get("redis_version").is_empty() => info.get("redis_version"),
        valkey => valkey,
    };
    let mut parts = text.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// What forbids to serve at all: each with what to do about it.
/// `was_served`: it has kept such files before.
pub fn obstacles(
    info: &Info,
    settings: &Settings,
    reserved_db: u16,
    allow_unstable: bool,
    was_served: bool,
) -> Vec<String> {
    let mut found: Vec<String> = no_master(info).into_iter().collect();
    if is_cluster_node(info, settings) {
        found.push(
            "this is a node of a Redis Cluster (cluster_enabled:1), which has one database only and a part of the keys; \
             not supported: run one Redis with cluster-enabled no, and clients that do without a cluster"
                .into(),
        );
    }
    if version(info) < (6, 2) {
        found.push(format!(
            "the server's version is {}; 6.2 or later is needed (SET … PXAT)",
            info.get("redis_version")
        ));
    }
    found.extend(evicts(settings));
    let databases: u32 = settings.get("databases").parse().unwrap_or(0);
    if databases <= u32::from(reserved_db) {
        found.push(format!(
            "the server has {databases} databases, so there is no database {reserved_db} for the markers; give another \
             (--marker-db) or raise the server's `databases`"
        ));
    }
    if settings.get("appendonly") != "yes" && !allow_unstable {
        found.push(if was_served { NO_FILE_ANY_MORE } else { NO_FILE }.to_owned());
    }
    found
}

/// Why one is not used that is no master, with what to do about it; none if it is one.
pub fn no_master(info: &Info) -> Option<String> {
    let role = info.get("role");
    (role != "master").then(|| {
        format!(
            "the server's role is `{role}`, but only a master can be written; name the master (--redis) or run: \
             redis-cli REPLICAOF NO ONE"
        )
    })
}

const NO_FILE: &str =
    "the server keeps no append-only file, so nothing ever becomes stable; run: redis-cli CONFIG SET \
     appendonly yes (the server's sidecar, not the proxy, can also go without durability: --allow-unstable)";
/// Where it has kept them, what it has loaded instead is older.
const NO_FILE_ANY_MORE: &str =
    "the server keeps no append-only file any more, so it was started without the one it kept, which has all that was \
     answered: put `appendonly yes` into its conf (redis.conf, or --appendonly yes), and restart it with the files it left; \
     CONFIG SET appendonly yes would overwrite them with older data. Where it was switched off with CONFIG SET in a \
     server that has run since, CONFIG SET appendonly yes is right";

/// Why what was written, or how far it was executed, may be gone again at maxmemory.
pub fn evicts(settings: &Settings) -> Option<String> {
    let policy = settings.get("maxmemory-policy");
    (policy != "noeviction").then(|| {
        format!(
            "maxmemory-policy is `{policy}`, which could evict the markers, and what was answered; run: redis-cli \
             CONFIG SET maxmemory-policy noeviction"
        )
    })
}

/// What keeps a server on another host from saying what it has synced, with what to do about it.
pub fn remote_obstacle(info: &Info, settings: &Settings) -> Option<String> {
    if version(info) < (7, 2) {
        return Some(format!(
            "remote Redis {} has no WAITAOF (7.2 or later, or Valkey), and its append-only files cannot be synced from \
             here, so nothing would be known to last; upgrade it, or run this on its host without --redis-remote",
            info.get("redis_version")
        ));
    }
    never_syncs(settings).then(|| NEVER_SYNCS.to_owned())
}

/// Whether WAITAOF would wait for a sync that never comes.
pub fn never_syncs(settings: &Settings) -> bool {
    settings.get("appendfsync") == "no"
}

/// What to do about such a server on another host.
pub const NEVER_SYNCS: &str =
    "appendfsync is `no`, so a remote server never says that a write has reached its disk; run there: redis-cli CONFIG \
     SET appendfsync everysec";

fn is_cluster_node(info: &Info, settings: &Settings) -> bool {
    info.get("redis_mode") == "cluster"
        || info.get("cluster_enabled") == "1"
        || settings.get("cluster-enabled") == "yes"
}

/// Why what answers is no server of data; none if it is one.
pub fn no_data(info: &Info) -> Option<String> {
    let is_sentinel = info.get("redis_mode") == "sentinel";
    is_sentinel.then(|| {
        "a Sentinel answers there (redis_mode:sentinel), which keeps no data, and is not asked who the master is: name \
         the master itself; who it is now says: redis-cli SENTINEL GET-MASTER-ADDR-BY-NAME NAME, asked of the Sentinel"
            .to_owned()
    })
}

const SCRIPT: &str = "the server is busy with a script";

/// What a server does that answers with this error, and will be over; none if it is another answer.
pub fn passing(reply: &[u8]) -> Option<&'static str> {
    if reply.starts_with(b"-BUSY ") {
        Some(SCRIPT)
    } else if reply.starts_with(b"-LOADING ") {
        Some("the server is loading its files")
    } else {
        None
    }
}

/// Errors by which a server says how it is, or who may do what at present, and nothing of the command.
const OF_STATE: [&str; 10] = [
    "-READONLY ",
    "-NOREPLICAS ",
    "-MISCONF ",
    "-NOPERM ",
    "-NOAUTH ",
    "-OOM ",
    "-MASTERDOWN ",
    "-BUSY ",
    "-LOADING ",
    // It became a replica within a transaction.
    "-EXECABORT Transaction contains write commands but instance is now a read-only replica",
];

/// Whether an error is about what the server is now, so that the same command may be taken later.
pub fn is_of_state(error: &[u8]) -> bool {
    OF_STATE.iter().any(|code| error.starts_with(code.as_bytes()))
}

/// What to do about a server that answers a write with such an error.
pub fn takes_writes_again(error: &[u8], user: &str) -> String {
    let said = String::from_utf8_lossy(error);
    let code = said.trim_start_matches('-').split(' ').next().unwrap_or_default();
    let next = match code {
        "READONLY" | "EXECABORT" => {
            "it is a replica: point --redis at its master, or make it one: redis-cli REPLICAOF NO ONE"
        }
        "MASTERDOWN" => "it is a replica that has lost its master: redis-cli REPLICAOF NO ONE",
        "NOREPLICAS" => {
            "bring its replicas back, or ask for fewer: redis-cli CONFIG SET min-replicas-to-write 0"
        }
        "MISCONF" => "it cannot write its files: see its log, and whether its disk is full",
        "OOM" => "free memory there, or raise maxmemory: redis-cli CONFIG SET maxmemory BYTES",
        _ => return way_in(&said, user).unwrap_or_else(|| "see its log".to_owned()),
    };
    next.to_owned()
}

/// For the operator: that it is waited for.
pub fn waiting(what: &str) -> String {
    let next =
        if what == SCRIPT { " (redis-cli SCRIPT KILL ends a script that has not written)" } else { "" };
    format!("{what}; waiting until it is done{next}")
}

/// What to do about an error by which a server keeps a user out; none if it is another error.
pub fn way_in(error: &str, user: &str) -> Option<String> {
    let next = match error.trim_start_matches('-').split(' ').next()? {
        "NOAUTH" => "give its password: --redis-password-file FILE, with --redis-user NAME if it is not the default user's"
            .to_owned(),
        "WRONGPASS" => format!(
            "put the password of the user `{user}` into the file of --redis-password-file; whether the user exists \
             and is on says: redis-cli ACL GETUSER {user}"
        ),
        "NOPERM" => format!("give the user its rights: redis-cli ACL SETUSER {user} '+@all' '~*' '&*'"),
        "BUSY" => "a script is running there: wait until it is done, or end it: redis-cli SCRIPT KILL".to_owned(),
        "DENIED" => "it takes scot for another host (is it in a container?): let both meet on a unix socket \
             (unixsocket PATH), or set a password (requirepass) and give it with --redis-password-file"
            .to_owned(),
        _ => return None,
    };
    Some(next)
}

/// By what one past of a server is told from another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Past {
    run_id: String,
    replication_id: String,
}

impl Past {
    /// The past that the server says it has.
    pub fn of(info: &Info) -> Past {
        let text = |name| info.get(name).to_owned();
        Past { run_id: text("run_id"), replication_id: text("master_replid") }
    }

    /// Whether the server still has this past. When its first replica comes a server takes another replication id,
    /// in the same run, and has no second one. One that has followed another server keeps that one's id as its
    /// second, or its own, if the other has sent it nothing of another past.
    pub fn is_still(&mut self, info: &Info) -> bool {
        let now = Past::of(info);
        let second = info.get("master_replid2");
        let goes_on = second.bytes().all(|byte| byte == b'0') || second == self.replication_id;
        if now.run_id == self.run_id && !now.run_id.is_empty() && goes_on {
            self.replication_id = now.replication_id;
            return true;
        }
        now.replication_id == self.replication_id
    }
}

/// Why early answers of a master are not allowed at present; none if they are.
pub fn early_obstacle(info: &Info) -> Option<String> {
    if info.get("maxmemory_policy") != "noeviction" {
        return Some(format!("maxmemory-policy is `{}`", info.get("maxmemory_policy")));
    }
    if info.get("aof_enabled") == "1" && info.get("aof_last_write_status") != "ok" {
        return Some("the server cannot write its append-only file".to_owned());
    }
    let (Some(used), Some(max)) = (info.number("used_memory"), info.number("maxmemory")) else {
        return Some("the server does not say how much memory it uses".to_owned());
    };
    let near = max > 0 && used.saturating_mul(100) > max.saturating_mul(EARLY_MEMORY_PERCENT_MAX);
    // Of what is used now nothing is said: it would be another cause each time.
    near.then(|| {
        format!(
            "the server uses more than {EARLY_MEMORY_PERCENT_MAX} % of its {max} bytes of memory (maxmemory)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(facts: &[(&str, &str)]) -> Info {
        Info(facts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    fn good() -> Info {
        info(&[
            ("role", "master"),
            ("master_replid", "a"),
            ("redis_version", "7.0.15"),
            ("maxmemory_policy", "noeviction"),
            ("used_memory", "89"),
            ("maxmemory", "100"),
            ("aof_enabled", "1"),
            ("aof_last_write_status", "ok"),
        ])
    }

    #[test]
    fn replies_are_read() {
        let parsed = Info::parse(b"$30\r\n# Server\r\nrole:master\r\nnumber:5\r\n\r\n");
        assert_eq!(
            (parsed.get("role"), parsed.number("number"), parsed.get("none")),
            ("master", Some(5), "")
        );
        let mut settings = Settings::default();
        settings.add(b"*2\r\n$3\r\ndir\r\n$4\r\n/tmp\r\n");
        settings.add(b"*0\r\n");
        assert_eq!(settings.get("dir"), "/tmp");
    }

    #[test]
    fn expiring_keys_are_seen() {
        let mut facts = info(&[("keyspace_hits", "0")]);
        assert!(!facts.has_expiring_keys(15));
        facts.0.insert("db0".to_owned(), "keys=3,expires=0,avg_ttl=0".to_owned());
        assert!(!facts.has_expiring_keys(15));
        facts.0.insert("db15".to_owned(), "keys=3,expires=1,avg_ttl=0".to_owned());
        assert!(!facts.has_expiring_keys(15));
        facts.0.insert("db3".to_owned(), "keys=3,expires=10,avg_ttl=0".to_owned());
        assert!(facts.has_expiring_keys(15));
        assert!(Info::default().has_expiring_keys(15));
    }

    #[test]
    fn early_answers_stop_for_each_reason() {
        assert_eq!(early_obstacle(&good()), None);
        for (name, value) in
            [("maxmemory_policy", "allkeys-lru"), ("used_memory", "91"), ("aof_last_write_status", "err")]
        {
            let mut changed = good();
            changed.0.insert(name.to_owned(), value.to_owned());
            assert!(early_obstacle(&changed).is_some(), "{name}");
        }
        for (used, is_near) in [(EARLY_MEMORY_PERCENT_MAX, false), (EARLY_MEMORY_PERCENT_MAX + 1, true)] {
            let mut changed = good();
            changed.0.insert("used_memory".to_owned(), used.to_string());
            assert_eq!(early_obstacle(&changed).is_some(), is_near, "{used} of 100");
        }
        let said = |used: &str| {
            let mut changed = good();
            changed.0.insert("used_memory".to_owned(), used.to_owned());
            early_obstacle(&changed)
        };
        assert_eq!(said("91"), said("99"), "it is one cause");
        let mut unlimited = good();
        unlimited.0.insert("maxmemory".to_owned(), "0".to_owned());
        assert_eq!(early_obstacle(&unlimited), None);
        unlimited.0.remove("used_memory");
        assert!(early_obstacle(&unlimited).is_some());
    }

    #[test]
    fn a_first_replica_changes_no_past_and_a_master_of_its_own_does() {
        let zeros = "0".repeat(40);
        let said = |run: &str, id: &str, second: &str| {
            info(&[("run_id", run), ("master_replid", id), ("master_replid2", second)])
        };
        for (run, id, second, is_still) in [
            ("r", "a", zeros.as_str(), true),
            ("r", "b", &zeros, true),
            // It has followed a server that has sent it nothing, or one of another past.
            ("r", "b", "a", true),
            ("r", "b", "c", false),
            // Another run, which may have begun with other data.
            ("q", "b", &zeros, false),
            ("q", "a", &zeros, true),
        ] {
            let mut past = Past::of(&said("r", "a", &zeros));
            assert_eq!(past.is_still(&said(run, id, second)), is_still, "{run} {id} {second}");
            // The second replica finds the id that the first one has brought.
            assert_eq!(past.is_still(&said("q", id, &zeros)), is_still, "{run} {id} {second}");
        }
    }

    #[test]
    fn a_server_on_another_host_has_to_say_what_it_has_synced() {
        let settings = |fsync: &str| Settings([("appendfsync".to_owned(), fsync.to_owned())].into());
        let old = remote_obstacle(&good(), &settings("always")).unwrap_or_default();
        assert!(
            old.contains("remote Redis 7.0.15 has no WAITAOF") && old.contains("--redis-remote"),
            "{old}"
        );
        let new = info(&[("redis_version", "7.2.4"), ("valkey_version", "8.1.0")]);
        assert_eq!(remote_obstacle(&new, &settings("everysec")), None);
        let never = remote_obstacle(&new, &settings("no")).unwrap_or_default();
        assert!(never.contains("CONFIG SET appendfsync everysec"), "{never}");
    }

    #[test]
    fn who_is_kept_out_is_told_how_to_get_in() {
        let next = |error| way_in(error, "ada").unwrap_or_default();
        assert!(next("-NOAUTH Authentication required.").contains("--redis-password-file"));
        assert!(next("-WRONGPASS invalid username-password pair").contains("ACL GETUSER ada"));
        assert!(next("-NOPERM this user has no permissions").contains("ACL SETUSER ada '+@all'"));
        assert!(next("-DENIED Redis is running in protected mode").contains("unixsocket"));
        assert_eq!(way_in("-ERR max number of clients reached", "ada"), None);
    }

    #[test]
    fn a_refusal_for_what_the_server_is_now_is_told_from_one_of_the_command() {
        for (error, next) in [
            ("-READONLY You can't write against a read only replica.", "REPLICAOF NO ONE"),
            ("-NOREPLICAS Not enough good replicas to write.", "min-replicas-to-write"),
            ("-MISCONF Errors writing to the AOF file: No space left on device", "disk"),
            ("-NOPERM User ada has no permissions", "ACL SETUSER ada"),
            ("-OOM command not allowed when used memory > 'maxmemory'.", "maxmemory"),
            ("-MASTERDOWN Link with MASTER is down", "REPLICAOF NO ONE"),
        ] {
            assert!(is_of_state(error.as_bytes()), "{error}");
            let said = takes_writes_again(error.as_bytes(), "ada");
            assert!(said.contains(next), "{error}: {said}");
        }
        for error in [
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
            "-ERR value is not an integer or out of range",
            "-BUSYGROUP Consumer Group name already exists",
            "-EXECABORT Transaction discarded because of previous errors.",
            "+OK",
        ] {
            assert!(!is_of_state(error.as_bytes()), "{error}");
        }
    }

    #[test]
    fn what_passes_is_told_from_what_does_not() {
        let said = |reply: &str| passing(reply.as_bytes()).unwrap_or_default();
        assert!(said("-BUSY Redis is busy running a script.").contains("busy with a script"));
        assert!(said("-LOADING Redis is loading the dataset in memory").contains("loading its files"));
        // Another one, by which XGROUP speaks of a name that is taken.
        assert_eq!(said("-BUSYGROUP Consumer Group name already exists"), "");
        assert_eq!(said("-NOPERM this user has no permissions"), "");
    }

    #[test]
    fn clusters_and_sentinels_are_told_from_one_server() {
        for fact in [("redis_mode", "cluster"), ("cluster_enabled", "1")] {
            let mut facts = good();
            facts.0.insert(fact.0.to_owned(), fact.1.to_owned());
            let found = obstacles(&facts, &Settings::default(), 15, true, false).join("; ");
            assert!(found.contains("node of a Redis Cluster"), "{found}");
        }
        assert_eq!(no_data(&good()), None);
        let sentinel = no_data(&info(&[("redis_mode", "sentinel")])).unwrap_or_default();
        assert!(sentinel.contains("GET-MASTER-ADDR-BY-NAME"), "{sentinel}");
    }

    #[test]
    fn obstacles_name_what_to_do() {
        let mut settings = Settings::default();
        for (name, value) in [("databases", "16"), ("maxmemory-policy", "noeviction"), ("appendonly", "yes")]
        {
            settings.0.insert(name.to_owned(), value.to_owned());
        }
        assert!(obstacles(&good(), &settings, 15, false, false).is_empty());
        assert!(obstacles(&good(), &settings, 16, false, false)[0].contains("--marker-db"));
        settings.0.insert("maxmemory-policy".to_owned(), "allkeys-lru".to_owned());
        settings.0.insert("appendonly".to_owned(), "no".to_owned());
        let found = obstacles(&good(), &settings, 15, false, false);
        assert!(found[0].contains("CONFIG SET maxmemory-policy noeviction"));
        assert!(found[1].contains("CONFIG SET appendonly yes"));
        assert_eq!(obstacles(&good(), &settings, 15, true, false).len(), 1);
        let anew = &obstacles(&good(), &settings, 15, false, true)[1];
        assert!(anew.contains("restart it") && anew.contains("would overwrite"), "{anew}");
        assert!(!obstacles(&Info::default(), &settings, 15, true, false).is_empty());
    }
}
