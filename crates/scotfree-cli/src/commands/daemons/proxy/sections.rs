//! The proxies that a configuration has: one, or several in one process.
//!
//! Invariant: of several no two have the same name, address, file or Redis.

use super::Settings;
use crate::config::Sources;
use crate::failure::Failure;
use crate::settings::Proxies;
use crate::text::Redis;
use scotfree_sidecar::redis::RedisAddress;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// One proxy, as the configuration has it.
pub(super) struct Section<'s> {
    index: usize,
    /// What it is called among several.
    pub name: Option<String>,
    /// Its settings.
    pub settings: &'s Settings,
}

impl Section<'_> {
    /// A failure with the place in the file that it is about, and with the proxy if there are several.
    pub fn placed(&self, sources: &Sources, failure: Failure) -> Failure {
        let problem = failure.to_string();
        let place = sources.place("proxy", self.index, &problem).map(|place| place + ": ");
        match (failure, &self.name) {
            (Failure::Usage(_), _) => {
                Failure::Usage(place.unwrap_or_default() + &of_named(self.name.as_deref(), &problem))
            }
            (Failure::Environment(_), Some(name)) => Failure::Environment(of_named(Some(name), &problem)),
            (other, _) => other,
        }
    }
}

/// What is said of a proxy, with its name if it has one.
pub(super) fn of_named(name: Option<&str>, problem: &str) -> String {
    let Some(name) = name else { return problem.to_owned() };
    // What is shared with one proxy alone speaks of flags.
    let keys = if problem.contains("--") { " (in [[proxy]] a flag --a-b is the key a_b)" } else { "" };
    format!("[[proxy]] {name}: {problem}{keys}")
}

/// The proxies; those that would be in each other's way are refused.
pub(super) fn sections<'s>(proxies: &'s Proxies, sources: &Sources) -> Result<Vec<Section<'s>>, Failure> {
    let several = match proxies {
        Proxies::One(settings) => {
            let section = Section { index: 0, name: None, settings };
            let is_named = settings.name.is_some();
            let refusal = || Failure::usage("name: it is of use in sections [[proxy]] only; leave it out");
            return if is_named { Err(section.placed(sources, refusal())) } else { Ok(vec![section]) };
        }
        Proxies::Several(several) => several,
    };
    if several.is_empty() {
        return Err(Failure::usage("proxy: the list is empty; write a section [[proxy]] for each Redis"));
    }
    let sections: Vec<Section<'s>> = several
        .iter()
        .enumerate()
        .map(|(index, settings)| Section { index, name: Some(name_of(index, settings)), settings })
        .collect();
    for (index, section) in sections.iter().enumerate() {
        for other in &sections[..index] {
            if let Some(problem) = clash(other, section) {
                return Err(section.placed(sources, Failure::usage(problem)));
            }
        }
    }
    Ok(sections)
}

/// Its name, else its Redis, which no other has; a section without a Redis is refused later.
fn name_of(index: usize, settings: &Settings) -> String {
    let given = settings.name.as_ref().map(ToString::to_string);
    given
        .or_else(|| settings.redis.as_ref().map(ToString::to_string))
        .unwrap_or_else(|| (index + 1).to_string())
}

/// What two have in common that each must have for itself.
fn clash(first: &Section<'_>, second: &Section<'_>) -> Option<String> {
    let other = first.name.as_deref().unwrap_or_default();
    let (ours, theirs) = (second.settings, first.settings);
    if first.name == second.name && ours.name.is_some() {
        return Some(format!("name: {other} is that of a section before; each needs one of its own"));
    }
    let both = ours.redis.as_ref().zip(theirs.redis.as_ref());
    if let Some((redis, _)) = both.filter(|(ours, theirs)| is_same_redis(ours, theirs)) {
        return Some(format!(
            "redis: {redis} is behind {other}, too; one proxy serves all databases of a Redis, and two would not know of \
             each other's writes"
        ));
    }
    for (key, file) in files(ours) {
        if files(theirs).iter().any(|(_, their)| *their == file) {
            let file = file.display();
            return Some(format!("{key}: {file} is a file of {other}, too; name one of its own"));
        }
    }
    for (key, address) in addresses(ours) {
        if addresses(theirs).iter().any(|(_, their)| is_same(*their, address)) {
            return Some(format!("{key}: {address} is an address of {other}, too; name one of its own"));
        }
    }
    let have_metrics = ours.metrics.is_some() && theirs.metrics.is_some();
    have_metrics.then(|| {
        format!("metrics: the process has one address for them, which {other} names; leave it out here")
    })
}

/// Whether it is one by its address. One that has two addresses is refused at the start: it knows whose log it has.
fn is_same_redis(one: &Redis, other: &Redis) -> bool {
    match (&one.0, &other.0) {
        (RedisAddress::Unix(one), RedisAddress::Unix(other)) => resolved(one) == resolved(other),
        (one, other) => one == other,
    }
}

fn files(settings: &Settings) -> Vec<(&'static str, PathBuf)> {
    let dead = settings.dead_letters.clone().or(settings.log.as_deref().map(super::dead_letters_of));
    let named = [("log", settings.log.clone()), ("dead_letters", dead)];
    named.into_iter().filter_map(|(key, file)| Some((key, resolved(&file?)))).collect()
}

/// The file itself, by whatever way it is named; it need not be there yet.
pub(super) fn resolved(file: &Path) -> PathBuf {
    let whole = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let of_folder = || Some(whole.parent()?.canonicalize().ok()?.join(whole.file_name()?));
    whole.canonicalize().ok().or_else(of_folder).unwrap_or_else(|| whole.clone())
}

fn addresses(settings: &Settings) -> Vec<(&'static str, SocketAddr)> {
    let named =
        [("listen", settings.listen), ("tls_listen", settings.tls_listen), ("metrics", settings.metrics)];
    named.into_iter().filter_map(|(key, address)| Some((key, address?))).collect()
}

/// Whether both cannot be listened on. Port 0 is any that is free.
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    let covers = one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && covers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(number: u16) -> Settings {
        Settings {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 7000 + number))),
            redis: format!("127.0.0.1:{}", 6000 + number).parse().ok(),
            log: Some(format!("/var/lib/scot/{number}.log").into()),
            ..Settings::default()
        }
    }

    fn names(proxies: &Proxies) -> Result<Vec<Option<String>>, String> {
        let found = sections(proxies, &Sources::default()).map_err(|failure| failure.to_string())?;
        Ok(found.into_iter().map(|section| section.name).collect())
    }

    #[test]
    fn several_are_called_by_their_names_or_by_their_redis() {
        let named = Settings { name: "cart".parse().ok(), ..proxy(1) };
        let several = Proxies::Several(vec![named.clone(), proxy(2), Settings::default()]);
        let expected = ["cart", "127.0.0.1:6002", "3"].map(|name| Some(name.to_owned()));
        assert_eq!(names(&several), Ok(expected.to_vec()));
        assert_eq!(names(&Proxies::One(Box::new(proxy(1)))), Ok(vec![None]));
        let alone = names(&Proxies::One(Box::new(named))).expect_err("it has a name");
        assert!(alone.contains("[[proxy]] only"), "{alone}");
        assert!(names(&Proxies::Several(Vec::new())).is_err());
    }

    #[test]
    fn what_two_cannot_share_is_refused_with_the_name_of_the_other() {
        let name = || "cart".parse().ok();
        let at = |text: &str| text.parse().ok();
        for (first, second, wanted) in [
            (
                Settings { name: name(), ..proxy(1) },
                Settings { name: name(), ..proxy(2) },
                "[[proxy]] cart: name: cart",
            ),
            (proxy(1), Settings { redis: proxy(1).redis, ..proxy(2) }, "redis: 127.0.0.1:6001 is behind"),
            (
                Settings { redis: "unix:/tmp/r".parse().ok(), ..proxy(1) },
                Settings { redis: "unix:/tmp/../tmp/r".parse().ok(), ..proxy(2) },
                "redis: unix:/tmp/../tmp/r is behind unix:/tmp/r",
            ),
            (proxy(1), Settings { log: proxy(1).log, ..proxy(2) }, "log: /var/lib/scot/1.log is a file of"),
            (
                proxy(1),
                Settings { log: Some("/var/lib/scot/1.log.dead".into()), ..proxy(2) },
                "log: /var/lib/scot/1.log.dead is a file of 127.0.0.1:6001",
            ),
            (
                proxy(1),
                Settings { dead_letters: Some("/var/lib/scot/1.log.dead".into()), ..proxy(2) },
                "dead_letters: /var/lib/scot/1.log.dead",
            ),
            (
                proxy(1),
                Settings { listen: proxy(1).listen, ..proxy(2) },
                "[[proxy]] 127.0.0.1:6002: listen: 127.0.0.1:7001",
            ),
            (proxy(1), Settings { tls_listen: at("0.0.0.0:7001"), ..proxy(2) }, "tls_listen: 0.0.0.0:7001"),
            (proxy(1), Settings { metrics: at("127.0.0.1:7001"), ..proxy(2) }, "metrics: 127.0.0.1:7001"),
            (
                Settings { metrics: at("127.0.0.1:1"), ..proxy(1) },
                Settings { metrics: at("127.0.0.1:2"), ..proxy(2) },
                "metrics: the process has one address",
            ),
        ] {
            let problem = names(&Proxies::Several(vec![first, second])).expect_err(wanted);
            assert!(problem.contains(wanted), "{problem}");
        }
        let any = || Settings { listen: at("127.0.0.1:0"), ..proxy(1) };
        let other = Settings { listen: at("127.0.0.1:0"), ..proxy(2) };
        assert!(names(&Proxies::Several(vec![any(), other])).is_ok(), "port 0 is another for each");
    }

    #[test]
    fn a_file_is_the_same_by_whatever_way_it_is_named() {
        let folder =
            scotfree_stage::scratch::Scratch::new("sections").expect("temporary files can be written");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path(), &link).expect("it can be made");
        assert_eq!(resolved(&folder.path().join("a.log")), resolved(&link.join("a.log")));
        assert_ne!(resolved(&folder.path().join("a.log")), resolved(&link.join("b.log")));
    }
}
