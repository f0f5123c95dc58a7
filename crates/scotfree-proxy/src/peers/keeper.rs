//! A peer: it keeps proxies' logs in memory.
//!
//! Invariant: memory is bounded; a log is changed by the connection that began or resumed it last, and by none that
//! stands before an older incarnation of the Redis.

use super::message::{FromKeeper, Held, ToKeeper, RECORD_BYTES_MAX};
use std::collections::BTreeMap;

/// By which a log is told from others.
pub type LogName = [u8; 16];

/// What each record takes beside its bytes.
const RECORD_COST: usize = 64;

/// What a peer is told at its start.
#[derive(Debug, Clone)]
pub struct KeeperConfig {
    /// How many bytes of records it keeps.
    pub bytes_max: usize,
    /// How many logs it keeps.
    pub logs_max: usize,
}

impl Default for KeeperConfig {
    fn default() -> Self {
        KeeperConfig { bytes_max: 1 << 30, logs_max: 64 }
    }
}

/// What has been counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeeperCounters {
    /// Records stored.
    pub stored: u64,
    /// Logs begun.
    pub begun: u64,
    /// Requests refused.
    pub refused: u64,
}

#[derive(Debug, Default)]
struct Log {
    epoch: u32,
    /// By the place of their last update.
    records: BTreeMap<u64, Box<[u8]>>,
    stored: u64,
    trimmed: u64,
    bytes: usize,
    /// The connection that may change it.
    owner: u64,
}

impl Log {
    fn held(&self) -> Held {
        Held { epoch: self.epoch, stored: self.stored, trimmed: self.trimmed }
    }
}

/// The logs.
#[derive(Debug, Default)]
pub struct Keeper {
    config: KeeperConfig,
    logs: BTreeMap<LogName, Log>,
    bytes: usize,
    counters: KeeperCounters,
}

impl Keeper {
    /// Keeps nothing yet.
    pub fn new(config: KeeperConfig) -> Keeper {
        Keeper { config, ..Keeper::default() }
    }

    /// What it holds of a log.
    pub fn held(&self, name: &LogName) -> Option<Held> {
        self.logs.get(name).map(Log::held)
    }

    /// Does what the proxy of the log says over a connection; `say` is called with what is answered at once. Stored
    /// records are reported by [`Keeper::held`], once for many.
    pub fn take(
        &mut self,
        name: &LogName,
        connection: u64,
        message: &ToKeeper<'_>,
        say: &mut dyn FnMut(&FromKeeper<'_>),
    ) {
        let done = match message {
            ToKeeper::Read => {
                self.read(name, say);
                Ok(())
            }
            ToKeeper::Begin(epoch) => self.begin(name, connection, *epoch),
            ToKeeper::Resume(epoch) => self.resume(name, connection, *epoch),
            ToKeeper::Append(last, record) => self.append(name, connection, last.0, record),
            ToKeeper::Trim(through) => self.trim(name, connection, through.0),
            ToKeeper::Drop => self.remove(name, connection),
        };
        match done {
            Ok(()) if matches!(message, ToKeeper::Begin(_) | ToKeeper::Resume(_)) => {
                say(&FromKeeper::State(self.held(name)));
            }
            Ok(()) => {}
            Err(text) => {
                self.counters.refused += 1;
                say(&FromKeeper::Refused(text));
            }
        }
    }

    fn read(&self, name: &LogName, say: &mut dyn FnMut(&FromKeeper<'_>)) {
        for record in self.logs.get(name).iter().flat_map(|log| log.records.values()) {
            say(&FromKeeper::Record(record));
        }
        say(&FromKeeper::End);
    }

    fn begin(&mut self, name: &LogName, connection: u64, epoch: u32) -> Result<(), &'static str> {
        self.not_older(name, epoch)?;
        if !self.logs.contains_key(name) && self.logs.len() >= self.config.logs_max {
            return Err("this peer keeps as many logs as it may (--logs-max)");
        }
        let old = self.logs.insert(*name, Log { epoch, owner: connection, ..Log::default() });
        self.bytes -= old.map_or(0, |log| log.bytes);
        self.counters.begun += 1;
        Ok(())
    }

    fn resume(&mut self, name: &LogName, connection: u64, epoch: u32) -> Result<(), &'static str> {
        self.not_older(name, epoch)?;
        let log = self.logs.get_mut(name).ok_or("this peer has no such log to go on with")?;
        (log.epoch, log.owner) = (epoch, connection);
        Ok(())
    }

    fn append(
        &mut self,
        name: &LogName,
        connection: u64,
        last: u64,
        record: &[u8],
    ) -> Result<(), &'static str> {
        let log = owned(&mut self.logs, name, connection)?;
        if record.len() > RECORD_BYTES_MAX {
            return Err("a record is larger than any can be");
        }
        if last <= log.stored {
            // It was sent again.
            return Ok(());
        }
        let cost = record.len() + RECORD_COST;
        if self.bytes + cost > self.config.bytes_max {
            return Err("this peer's memory for logs is used up (--memory)");
        }
        log.records.insert(last, record.into());
        log.stored = last;
        log.bytes += cost;
        self.bytes += cost;
        self.counters.stored += 1;
        Ok(())
    }

    fn trim(&mut self, name: &LogName, connection: u64, through: u64) -> Result<(), &'static str> {
        let log = owned(&mut self.logs, name, connection)?;
        while let Some(record) = log.records.first_entry().filter(|record| *record.key() <= through) {
            let cost = record.remove().len() + RECORD_COST;
            log.bytes -= cost;
            self.bytes -= cost;
        }
        log.trimmed = log.trimmed.max(through);
        Ok(())
    }

    fn remove(&mut self, name: &LogName, connection: u64) -> Result<(), &'static str> {
        owned(&mut self.logs, name, connection)?;
        self.bytes -= self.logs.remove(name).map_or(0, |log| log.bytes);
        Ok(())
    }

    fn not_older(&self, name: &LogName, epoch: u32) -> Result<(), &'static str> {
        match self.logs.get(name) {
            Some(log) if log.epoch > epoch => {
                Err("another proxy has stood before a later start of this Redis since")
            }
            _ => Ok(()),
        }
    }

    /// How many logs there are.
    pub fn len(&self) -> usize {
        self.logs.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.logs.is_empty()
    }

    /// What their records take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What was counted.
    pub fn counters(&self) -> KeeperCounters {
        self.counters
    }
}

fn owned<'a>(
    logs: &'a mut BTreeMap<LogName, Log>,
    name: &LogName,
    connection: u64,
) -> Result<&'a mut Log, &'static str> {
    match logs.get_mut(name) {
        Some(log) if log.owner == connection => Ok(log),
        Some(_) => Err("another connection has taken this log over"),
        None => Err("this log was not begun"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_core::SeqNum;

    const NAME: LogName = [7; 16];

    fn said(keeper: &mut Keeper, connection: u64, message: &ToKeeper<'_>) -> Vec<String> {
        let mut said = Vec::new();
        keeper.take(&NAME, connection, message, &mut |message| said.push(format!("{message:?}")));
        said
    }

    fn refusal(keeper: &mut Keeper, connection: u64, message: &ToKeeper<'_>) -> String {
        let said = said(keeper, connection, message).concat();
        assert!(said.starts_with("Refused"), "{said}");
        said
    }

    #[test]
    fn a_log_is_given_back_as_far_as_it_is_not_trimmed() {
        let mut keeper = Keeper::new(KeeperConfig::default());
        assert_eq!(keeper.held(&NAME), None);
        said(&mut keeper, 1, &ToKeeper::Begin(3));
        for (last, record) in [(2, b"a"), (5, b"b"), (5, b"b"), (9, b"c")] {
            said(&mut keeper, 1, &ToKeeper::Append(SeqNum(last), record));
        }
        said(&mut keeper, 1, &ToKeeper::Trim(SeqNum(4)));
        assert_eq!(keeper.held(&NAME), Some(Held { epoch: 3, stored: 9, trimmed: 4 }));
        assert_eq!(said(&mut keeper, 2, &ToKeeper::Read), ["Record([98])", "Record([99])", "End"]);
        assert_eq!(keeper.bytes(), 2 * (1 + RECORD_COST));
        said(&mut keeper, 1, &ToKeeper::Drop);
        assert_eq!((keeper.len(), keeper.bytes()), (0, 0));
    }

    #[test]
    fn only_who_began_or_resumed_a_log_last_changes_it() {
        let mut keeper = Keeper::new(KeeperConfig::default());
        assert!(refusal(&mut keeper, 1, &ToKeeper::Append(SeqNum(1), b"a")).contains("not begun"));
        assert!(refusal(&mut keeper, 1, &ToKeeper::Resume(3)).contains("no such log"));
        said(&mut keeper, 1, &ToKeeper::Begin(3));
        said(&mut keeper, 2, &ToKeeper::Resume(3));
        assert!(refusal(&mut keeper, 1, &ToKeeper::Append(SeqNum(1), b"a")).contains("another connection"));
        assert!(refusal(&mut keeper, 1, &ToKeeper::Begin(2)).contains("later start"));
        assert!(refusal(&mut keeper, 1, &ToKeeper::Drop).contains("another connection"));
        assert_eq!(keeper.counters().refused, 5);
    }

    #[test]
    fn memory_is_bounded() {
        let config = KeeperConfig { bytes_max: 100 + RECORD_COST, logs_max: 1 };
        let mut keeper = Keeper::new(config);
        said(&mut keeper, 1, &ToKeeper::Begin(1));
        said(&mut keeper, 1, &ToKeeper::Append(SeqNum(1), &[0; 100]));
        assert!(refusal(&mut keeper, 1, &ToKeeper::Append(SeqNum(2), b"")).contains("--memory"));
        let mut other = String::new();
        keeper.take(&[8; 16], 2, &ToKeeper::Begin(1), &mut |said| other = format!("{said:?}"));
        assert!(other.contains("--logs-max"), "{other}");
        said(&mut keeper, 1, &ToKeeper::Begin(1));
        assert_eq!(keeper.bytes(), 0);
    }
}
