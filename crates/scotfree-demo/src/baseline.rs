//! The same without the remedy, to compare with.
//!
//! Invariant: it has a server of its own that knows no device; the device bridges its packets like any
//! foreign traffic.

use super::{named, DemoOptions, Service, FLUSH_TIME_MAX, REDIS};
use scotfree_stage::process::{Process, ProcessSpec};
use scotfree_stage::site::{await_ready, Redis, Site};
use scotfree_stage::trouble::Trouble;
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

const BASELINE_REDIS: Redis = Redis { name: "redis-baseline", ..REDIS };
/// Outside the ports of Scotfree's packets.
const SERVER_PORT: u16 = 50_999;
const CLIENT_PORT: u16 = 6_379;
/// Who calls and who is called, in the records.
const CALLER: &str = "client-without-remedy";
const CALLEE: &str = "store-without-remedy";
/// A write-ahead file that is soon made.
const KV_LOG: &str = "16M";

/// The same without the remedy: a server of its own kind that knows no device, and a sidecar before it.
pub(super) struct Baseline {
    /// Where clients find it.
    pub address: SocketAddr,
    trace: PathBuf,
    sidecar: Process,
    _server: Vec<Process>,
}

impl Baseline {
    pub fn start(options: &DemoOptions, site: &Site<'_>) -> Result<Baseline, Trouble> {
        let key_file = key_file(site)?;
        let server = SocketAddr::new(site.address("server"), SERVER_PORT).to_string();
        let start = |role: &str, name: &str, words: &[&OsStr]| {
            let mut spec = ProcessSpec::new(name, &options.scot, site.log_folder()).args(words);
            spec = spec.args([OsStr::new("--key-file"), key_file.as_os_str()]);
            // No `scot.toml` of the caller's folder.
            spec.working_folder = Some(site.folder().to_owned());
            let process = site.lab.spawn(role, &spec)?;
            await_ready(&process)?;
            Ok(process)
        };
        let listen = ["--listen".as_ref(), server.as_ref()];
        let letters = site.folder().join("dead-letters-baseline");
        let running = match options.service {
            Service::Redis => {
                let redis = site.start_redis(&BASELINE_REDIS)?;
                let mut socket = OsString::from("unix:");
                socket.push(site.redis_socket(&BASELINE_REDIS));
                let words = ["sidecar", "server", "--redis"].map(OsStr::new);
                let more = [socket.as_os_str(), "--dead-letters".as_ref(), letters.as_os_str()];
                vec![redis, start("server", "baseline-server", &[&words[..], &more, &listen].concat())?]
            }
            Service::Kv => {
                let log = site.folder().join("baseline.wal");
                let words = [
                    "kv".as_ref(),
                    "--log-size".as_ref(),
                    KV_LOG.as_ref(),
                    "--log".as_ref(),
                    log.as_os_str(),
                ];
                vec![start("server", "baseline-server", &[&words[..], &listen].concat())?]
            }
        };
        let address = SocketAddr::new(site.address("client"), CLIENT_PORT);
        let trace = site.folder().join("baseline.jsonl");
        let shown = address.to_string();
        let words =
            ["sidecar", "client", "--durability", "none", "--listen", &shown, "--server", &server, "--trace"];
        let words = words.into_iter().map(OsStr::new).chain([trace.as_os_str()]);
        let words: Vec<&OsStr> = words.chain(named(CALLER, CALLEE).map(OsStr::new)).collect();
        let sidecar = start("client", "baseline-client", &words)?;
        Ok(Baseline { address, trace, sidecar, _server: running })
    }

    /// Ends it; its trace is whole then.
    pub fn finish(self) -> PathBuf {
        self.sidecar.stop(FLUSH_TIME_MAX);
        self.trace
    }
}

/// A key of its own: the two have nothing to do with each other.
fn key_file(site: &Site<'_>) -> Result<PathBuf, Trouble> {
    let path = site.folder().join("baseline.key");
    let mut key = [0; 32];
    getrandom::fill(&mut key)
        .map_err(|error| Trouble::new("make a key", error, "see whether the system gives random numbers"))?;
    let text = key.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| Trouble::file("write", &path, &error))?;
    Ok(path)
}
