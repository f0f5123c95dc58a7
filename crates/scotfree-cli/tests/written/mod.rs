//! A history that is written to a sidecar, by a worker on the client's host: tokens of two writers that set keys.
//!
//! Invariant: nothing is written before it is asked for.

use scotfree_stage::history::HistoryOptions;
use scotfree_stage::process::Process;
use scotfree_stage::worker::history::{HistoryControl, HistorySpec};
use scotfree_stage::worker::WorkerSpec;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The worker, and what it is asked by.
pub struct Written {
    _worker: Process,
    pub control: HistoryControl,
}

impl Written {
    /// Starts the worker, whose files lie in the folder; `scot` runs the command there, on the client's host.
    pub fn begin(sidecar: &str, folder: &Path, scot: impl FnOnce(&[&str]) -> Process) -> Written {
        let sidecar = sidecar.parse().expect("an address");
        let options = HistoryOptions { key_writers: 2, outstanding_max: 4, ..HistoryOptions::new(sidecar) };
        let spec = HistorySpec { socket: folder.join("history.socket"), options, server: None };
        let socket = spec.socket.clone();
        let text = serde_json::to_vec(&WorkerSpec::History(spec)).expect("it is JSON");
        fs::write(folder.join("history.json"), text).expect("it can be written");
        let worker = scot(&["lab-worker", "history.json"]);
        worker.wait_for_output("ready", Duration::from_secs(60)).expect("it answers");
        let control = HistoryControl::connect(&socket, &worker).expect("it answers");
        Written { _worker: worker, control }
    }

    /// Tokens that set keys and are acknowledged.
    pub fn keys_acknowledged(&mut self) -> u64 {
        // The writers of lists come first.
        self.control.counts().expect("it counts")[2..].iter().sum()
    }
}
