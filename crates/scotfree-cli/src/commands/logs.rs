//! The command `scot log`: looks into log files, and hands what is in them to a server.
//!
//! Invariant: the files are read only.

mod replay;

use crate::cli::{Log, LogExport};
use crate::config::Sources;
use crate::failure::Failure;
use crate::out;
use crate::registry;
use scotfree_io::stderr;
use scotfree_io::verify::{verify, LogKind, VerifyReport};
use scotfree_io::DomainError;
use scotfree_switch::log_tools::{self, Export, LogToolError, Payloads};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Runs one of them.
pub fn run(command: &Log, sources: Sources) -> Result<(), Failure> {
    match command {
        Log::Ls { file } => show(log_tools::ls(file, &registry::functions()).map_err(no_entries))?,
        Log::Export(flags) => export(flags)?,
        Log::Replay(flags) => return replay::run(sources, flags),
        Log::Verify { file } => show(match log_tools::verify(file, &registry::functions()) {
            Err(LogToolError::ForeignMeta { .. }) => verify_any(file),
            told => told.map_err(failed),
        })?,
    }
    say_kept(command);
    Ok(())
}

/// A file of the kernel plane without entries does not mean that its device holds nothing.
fn say_kept(command: &Log) {
    let (Log::Ls { file } | Log::Verify { file } | Log::Export(LogExport { file, .. })) = command else {
        return;
    };
    let meta = log_tools::read_log(file, &registry::functions()).ok().and_then(|log| log.meta);
    if let Some(said) = meta.and_then(|meta| replay::kept(meta.device)) {
        stderr::line(format_args!("scot log: {} is not the whole log: {said}", file.display()));
    }
}

fn export(flags: &LogExport) -> Result<(), Failure> {
    let payloads = if flags.payload { Payloads::Hex } else { Payloads::LeftOut };
    let export = Export::read(&flags.file, &registry::functions()).map_err(no_entries)?;
    let Some(target) = &flags.to else {
        let mut out = BufWriter::new(io::stdout().lock());
        out::note(export.write(&mut out, payloads).and_then(|()| out.flush()));
        return Ok(());
    };
    export.write_file(target, payloads).map_err(|error| {
        let what = format!("write {}", target.display());
        Failure::tried(what, &error, "give another file, or make room; what was there is as it was")
    })
}

/// A log without log entries is told apart from one that is damaged.
fn no_entries(error: LogToolError) -> Failure {
    match error {
        LogToolError::ForeignMeta { path, meta } if scotfree_kv::is_meta(&meta) => Failure::Damaged(format!(
            "{0} is the log of a `scot kv`, not of a device: it has no sessions to list; `scot log verify {0}` \
             checks its records",
            path.display()
        )),
        error => failed(error),
    }
}

fn show(text: Result<String, Failure>) -> Result<(), Failure> {
    out::text(text?);
    Ok(())
}

/// A log that is not a device's, such as the write-ahead file of scot kv.
fn verify_any(file: &Path) -> Result<String, Failure> {
    let VerifyReport { kind, record_count, live_count, live_bytes, torn_bytes } =
        verify(file).map_err(|error| failed(error.into()))?;
    let kind = match kind {
        LogKind::Ram => "ram",
        LogKind::Disk => "disk",
    };
    let torn = (torn_bytes > 0).then(|| format!("the tail is torn, {torn_bytes} bytes"));
    Ok(format!(
        "{}: {}\n{kind} log of no device: {record_count} records, {live_count} live with \
         {live_bytes} bytes; {torn_bytes} bytes torn\n",
        file.display(),
        log_tools::verdict(torn)
    ))
}

fn failed(error: LogToolError) -> Failure {
    match error {
        // It was not read, which says nothing of what is in it.
        LogToolError::Domain(error @ (DomainError::Io { .. } | DomainError::InUse { .. })) => {
            Failure::environment(error)
        }
        // Who is told so has run the command that its own message names.
        LogToolError::Domain(DomainError::Damaged { path, offset, found }) => Failure::Damaged(format!(
            "{} is damaged at byte {offset}: {found}; it was left untouched. Put a whole copy in its place, or \
             move it away to begin anew, without the updates that only it holds",
            path.display()
        )),
        LogToolError::Domain(DomainError::Foreign { path, found, advice }) => {
            Failure::Damaged(format!("{} is not usable as a log: {found}; {advice}", path.display()))
        }
        error => Failure::Damaged(error.to_string()),
    }
}
