//! An operator asks a proxy what its cache knows, before a real Redis, with the words by which a device is asked.

mod site;

use scotfree_io::conformance::ports::free_address;
use scotfree_stage::process::wait_until;
use scotfree_stage::resp::Connection;
use site::{call, Site, PATIENCE, SCOT};
use std::process::Command;

/// A site with two secrets, and where its proxy counts.
struct Asked {
    site: Site,
    metrics: String,
}

impl Asked {
    /// None where there is no Redis.
    fn new(name: &str) -> Option<Asked> {
        let site = Site::new(name)?;
        for key in ["cluster.key", "other.key"] {
            let made =
                Command::new(SCOT).args(["key", "new"]).arg(site.file(key)).output().expect("it is built");
            assert!(made.status.success());
        }
        Some(Asked { site, metrics: free_address().to_string() })
    }

    fn ask_as(&self, key: &str, words: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(SCOT);
        command.arg("cache").args(words).args(["--metrics", &self.metrics]);
        if words[0] != "stats" {
            command.arg("--key-file").arg(self.site.file(key));
        }
        let output = command.output().expect("it is built");
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).expect("it is text"))
    }

    fn ask(&self, words: &[&str]) -> (Option<i32>, String) {
        self.ask_as("cluster.key", words)
    }

    /// Reads until it is said to be answered here.
    fn warm(&self, client: &mut Connection, line: &str, key: &str) {
        let is_kept = || {
            call(client, line);
            self.ask(&["why", key]).1.starts_with("server 0: it is answered here: ")
        };
        assert!(wait_until(PATIENCE, is_kept), "{:?}", self.ask(&["why", key]));
    }
}

#[test]
fn a_proxy_says_what_it_keeps_and_why_not_and_forgets_what_it_is_told_to() {
    let Some(asked) = Asked::new("proxy-cache-asked") else { return };
    let _redis = asked.site.redis(&[]);
    let words =
        ["--cache", "16M", "--cache-only-writer", "--key-file", "cluster.key", "--metrics", &asked.metrics];
    let _proxy = asked.site.proxy(&words);
    let mut client = asked.site.connect();
    assert_eq!(call(&mut client, "SET k value"), "OK");
    asked.warm(&mut client, "GET k", "k");
    let (_, said) = asked.ask(&["why", "k", "--database", "3"]);
    assert!(said.starts_with("server 0: it is not kept: nothing is known of it"), "{said}");
    let is_listed = || {
        call(&mut client, "STRLEN k");
        let (code, said) = asked.ask(&["ls"]);
        let has = |start: &str| said.lines().any(|line| line.starts_with(start));
        code == Some(0) && has("k: ") && has("STRLEN k: ")
    };
    assert!(wait_until(PATIENCE, is_listed), "{:?}", asked.ask(&["ls"]));
    let (_, said) = asked.ask(&["ls", "--json"]);
    let kept: serde_json::Value = serde_json::from_str(&said).expect("it is JSON");
    let commands: Vec<_> =
        kept.as_array().expect("a list").iter().map(|one| one["command"].as_str()).collect();
    assert!(commands.contains(&None) && commands.contains(&Some("STRLEN")), "{said}");
    let is_counted = || asked.ask(&["stats"]).1.contains("kept now: 2 values");
    assert!(wait_until(PATIENCE, is_counted), "{:?}", asked.ask(&["stats"]));

    assert_eq!(asked.ask(&["drop", "k"]), (Some(0), "server 0: forgotten\n".to_owned()));
    assert_eq!(asked.ask(&["drop", "k"]), (Some(1), "server 0: nothing was known of it\n".to_owned()));
    assert!(asked.ask(&["ls"]).1.starts_with("nothing is kept"), "STRLEN is forgotten with its key");
    asked.warm(&mut client, "GET k", "k");
    assert_eq!(asked.ask(&["drop", "--all"]), (Some(0), "server 0: 1 values forgotten\n".to_owned()));
    assert_eq!(call(&mut client, "GET k"), "value");

    // Keys are told to who has the secret alone.
    let (code, said) = asked.ask_as("other.key", &["ls"]);
    assert!(code == Some(3) && said.contains("not signed with this cluster's key"), "{said}");
}

#[test]
fn a_proxy_that_cannot_be_asked_says_why() {
    let Some(asked) = Asked::new("proxy-cache-unasked") else { return };
    let _redis = asked.site.redis(&[]);
    let proxy = asked.site.proxy(&["--cache", "16M", "--cache-only-writer", "--metrics", &asked.metrics]);
    let (code, said) = asked.ask(&["ls"]);
    assert!(code == Some(3) && said.contains("started without the cluster's key"), "{said}");
    drop(proxy);
    let _proxy = asked.site.proxy(&["--metrics", &asked.metrics]);
    let (code, said) = asked.ask(&["stats"]);
    assert!(code == Some(3) && said.contains("has no cache") && said.contains("--cache SIZE"), "{said}");
}
