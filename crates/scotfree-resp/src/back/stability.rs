//! Which effects have reached the server's stable storage.
//!
//! Invariant: an effect is called stable only after the server has answered it and its bytes have been
//! made durable since: by the server before it answered (appendfsync always), by the server on demand
//! (WAITAOF), or by our own fdatasync of the append-only files after the server had written them there.

use super::health::{version, Info, Settings};
use scotfree_core::Nanos;
use std::path::PathBuf;

/// How effects become stable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Method {
    /// The server syncs before it answers.
    OnReply,
    /// The server says when it has synced.
    WaitAof,
    /// We sync the server's append-only files ourselves.
    ObservedFsync(AofFiles),
    /// There is no append-only file: nothing ever survives.
    Never,
}

impl Method {
    /// The best that a server with these settings offers. `same_host` says that its files can be reached.
    pub fn of(info: &Info, settings: &Settings, same_host: bool) -> Method {
        if settings.get("appendonly") != "yes" {
            return Method::Never;
        }
        if syncs_always(settings) {
            return Method::OnReply;
        }
        Method::cautious(info, settings, same_host)
    }

    /// The best that such a server offers whatever becomes of appendfsync.
    pub fn cautious(info: &Info, settings: &Settings, same_host: bool) -> Method {
        let pauses = settings.get("no-appendfsync-on-rewrite") != "no";
        // WAITAOF waits for the server's own sync, which with "no" may never come.
        let server_syncs = settings.get("appendfsync") != "no" && !pauses;
        if version(info) >= (7, 2) && (server_syncs || !same_host) {
            return Method::WaitAof;
        }
        Method::ObservedFsync(AofFiles::of(settings))
    }

    /// In words for the operator.
    pub fn text(&self) -> &'static str {
        match self {
            Method::OnReply => "the server syncs before it answers (appendfsync always)",
            Method::WaitAof => "the server says when it has synced (WAITAOF)",
            Method::ObservedFsync(_) => "scot syncs the append-only files itself",
            Method::Never => "never: the server keeps no append-only file",
        }
    }
}

/// Whether the server syncs before it answers. During a rewrite the second setting suspends that.
fn syncs_always(settings: &Settings) -> bool {
    settings.get("appendfsync") == "always" && settings.get("no-appendfsync-on-rewrite") == "no"
}

/// Where a server's append-only files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AofFiles {
    /// The folder.
    pub folder: PathBuf,
    /// The name, or the beginning of the names of its parts.
    pub name: String,
    /// Whether it has parts, as from 7.0 on.
    pub has_parts: bool,
    /// The server is writing them anew. If that is since they were given up and begun again, what it appends meanwhile
    /// is in a file that does not count yet.
    pub is_rewriting: bool,
}

impl AofFiles {
    pub(super) fn of(settings: &Settings) -> AofFiles {
        // Before 7.0 there is one file, beside the others.
        let folder = PathBuf::from(settings.get("dir")).join(settings.get("appenddirname"));
        let has_parts = !settings.get("appenddirname").is_empty();
        AofFiles { folder, name: settings.get("appendfilename").to_owned(), has_parts, is_rewriting: false }
    }

    /// What the server appends to while files that were begun again do not count yet. It is there for no other reason,
    /// but that a server which died then has left it.
    pub fn uncounted(&self) -> PathBuf {
        self.folder.join(format!("temp-{}.incr", self.name))
    }

    /// Whether a file of this name holds appended commands.
    pub fn matches(&self, file_name: &str) -> bool {
        let part = file_name.strip_prefix(&self.name);
        part.is_some_and(|rest| rest.is_empty() || rest.starts_with('.') && rest.ends_with(".incr.aof"))
    }
}

/// What has to be done next to find out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ask {
    /// Ask INFO persistence.
    Info,
    /// Write something and WAITAOF.
    WaitAof,
    /// Sync the files.
    Sync(AofFiles),
}

/// How long to wait before the server is asked again whether it has written its buffer.
const BUFFER_RETRY: Nanos = Nanos::from_micros(500);
/// How long to wait after a failed attempt.
const FAILURE_RETRY: Nanos = Nanos::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    /// INFO is asked. The size of the file at which everything is written, and of its base, if known.
    Asked {
        goal: Option<Goal>,
    },
    /// INFO is to be asked again at this time.
    Retry {
        at: Nanos,
        goal: Option<Goal>,
    },
    /// The files are being synced, or the server has been asked to say so.
    Waiting,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Goal {
    size: u64,
    base: u64,
}

/// Counts effects and finds out which are stable. One probe is under way at a time.
#[derive(Debug)]
pub(super) struct Stability {
    method: Method,
    /// How many effects have been answered.
    done: u64,
    /// How many of them are stable.
    stable: u64,
    /// How many the probe under way will make stable.
    target: u64,
    phase: Phase,
    /// When the next probe may begin, unless somebody waits.
    next_at: Nanos,
    /// When the next probe may begin at all.
    not_before: Nanos,
    interval: Nanos,
}

impl Stability {
    pub fn new(method: Method, interval: Nanos) -> Stability {
        Stability {
            method,
            done: 0,
            stable: 0,
            target: 0,
            phase: Phase::Idle,
            next_at: Nanos(0),
            not_before: Nanos(0),
            interval,
        }
    }

    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The server's settings have changed. "Always" says nothing about effects before it, so these are
    /// first made stable in the old way; the caller repeats the wish.
    pub fn set_method(&mut self, method: Method) {
        if method == Method::OnReply && self.stable < self.done {
            return;
        }
        if self.method != method {
            // Whatever a probe finds out now belongs to the old way.
            self.phase = Phase::Idle;
            self.method = method;
        }
    }

    /// The server has answered one more effect; returns its number.
    pub fn effect(&mut self) -> u64 {
        self.done += 1;
        if matches!(self.method, Method::OnReply | Method::Never) {
            self.stable = self.done;
        }
        self.done
    }

    /// The number of the last effect answered.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// The number of the last effect that is stable.
    pub fn stable(&self) -> u64 {
        self.stable
    }

    /// What to ask now, if anything.
    pub fn next(&mut self, now: Nanos, somebody_waits: bool) -> Option<Ask> {
        match self.phase {
            Phase::Idle => {
                let due = (somebody_waits || now >= self.next_at) && now >= self.not_before;
                if self.stable == self.done || !due {
                    return None;
                }
                self.begin(now)
            }
            Phase::Retry { at, goal } if now >= at => {
                self.phase = Phase::Asked { goal };
                Some(Ask::Info)
            }
            Phase::Retry { .. } | Phase::Asked { .. } | Phase::Waiting => None,
        }
    }

    /// When to ask [`Stability::next`] again.
    pub fn timer(&self, somebody_waits: bool) -> Option<Nanos> {
        match self.phase {
            Phase::Idle if self.stable == self.done => None,
            Phase::Idle if somebody_waits => Some(self.not_before),
            Phase::Idle => Some(self.next_at.max(self.not_before)),
            Phase::Retry { at, .. } => Some(at),
            Phase::Asked { .. } | Phase::Waiting => None,
        }
    }

    /// INFO persistence was answered: the files can be synced once everything is in them.
    pub fn on_info(&mut self, now: Nanos, info: &Info) -> Option<Ask> {
        let (Phase::Asked { goal }, Method::ObservedFsync(files)) = (self.phase, &self.method) else {
            return None;
        };
        let facts =
            (info.number("aof_current_size"), info.number("aof_base_size"), info.number("aof_buffer_length"));
        let (Some(size), Some(base), Some(buffer)) = facts else {
            self.failed(now);
            return None;
        };
        if info.get("aof_last_write_status") != "ok" {
            self.failed(now);
            return None;
        }
        let busy = |name| info.get(name) == "1";
        let is_rewriting = busy("aof_rewrite_in_progress") || busy("aof_rewrite_scheduled");
        if is_rewriting && !files.has_parts {
            // Nothing tells a rewrite of files that count from one of files that do not yet.
            self.failed(now);
            return None;
        }
        // A rewrite starts the count anew, so the goal is only good for the same base.
        let reached = goal.is_some_and(|goal| goal.base == base && size >= goal.size);
        if buffer == 0 || reached {
            self.phase = Phase::Waiting;
            return Some(Ask::Sync(AofFiles { is_rewriting, ..files.clone() }));
        }
        let goal = goal.filter(|goal| goal.base == base).or(Some(Goal { size: size + buffer, base }));
        self.phase = Phase::Retry { at: now.plus(BUFFER_RETRY), goal };
        None
    }

    /// The files are synced, or the server has said so.
    pub fn on_synced(&mut self, now: Nanos) {
        if self.phase == Phase::Waiting {
            self.stable = self.stable.max(self.target);
            self.phase = Phase::Idle;
            self.next_at = now.plus(self.interval);
        }
    }

    /// The probe failed; the next one begins after a pause.
    pub fn failed(&mut self, now: Nanos) {
        self.phase = Phase::Idle;
        self.not_before = now.plus(FAILURE_RETRY);
        self.next_at = now.plus(self.interval);
    }

    fn begin(&mut self, now: Nanos) -> Option<Ask> {
        self.target = self.done;
        self.next_at = now.plus(self.interval);
        match &self.method {
            Method::OnReply | Method::Never => {
                self.stable = self.done;
                None
            }
            Method::WaitAof => {
                self.phase = Phase::Waiting;
                Some(Ask::WaitAof)
            }
            Method::ObservedFsync(_) => {
                self.phase = Phase::Asked { goal: None };
                Some(Ask::Info)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    fn files() -> AofFiles {
        AofFiles {
            folder: PathBuf::from("/d/appendonlydir"),
            name: "appendonly.aof".to_owned(),
            has_parts: true,
            is_rewriting: false,
        }
    }

    fn observed() -> Stability {
        Stability::new(Method::ObservedFsync(files()), MS(50))
    }

    fn info(size: u64, base: u64, buffer: u64) -> Info {
        let text = format!(
            "aof_current_size:{size}\r\naof_base_size:{base}\r\naof_buffer_length:{buffer}\r\naof_last_write_status:ok\r\n"
        );
        Info::parse(format!("${}\r\n{text}\r\n", text.len()).as_bytes())
    }

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        let mut settings = Settings::default();
        for (name, value) in pairs {
            let reply = format!("*2\r\n${}\r\n{name}\r\n${}\r\n{value}\r\n", name.len(), value.len());
            settings.add(reply.as_bytes());
        }
        settings
    }

    #[test]
    fn the_method_follows_the_settings() {
        let old = Info::parse(b"$20\r\nredis_version:7.0.1\r\n");
        let new = Info::parse(b"$20\r\nredis_version:7.2.0\r\n");
        let off = settings(&[("appendonly", "no")]);
        assert_eq!(Method::of(&new, &off, true), Method::Never);
        let pairs = [("appendonly", "yes"), ("appendfsync", "always"), ("no-appendfsync-on-rewrite", "no")];
        assert_eq!(Method::of(&old, &settings(&pairs), true), Method::OnReply);
        let paused = [pairs[0], pairs[1], ("no-appendfsync-on-rewrite", "yes")];
        assert!(matches!(Method::of(&new, &settings(&paused), true), Method::ObservedFsync(_)));
        let everysec =
            [pairs[0], ("appendfsync", "everysec"), pairs[2], ("dir", "/d"), ("appenddirname", "a")];
        assert!(matches!(Method::of(&old, &settings(&everysec), true), Method::ObservedFsync(_)));
        assert_eq!(Method::of(&new, &settings(&everysec), true), Method::WaitAof);
    }

    #[test]
    fn only_the_appended_parts_are_synced() {
        for name in ["appendonly.aof", "appendonly.aof.1.incr.aof", "appendonly.aof.12.incr.aof"] {
            assert!(files().matches(name), "{name}");
        }
        for name in ["appendonly.aof.1.base.rdb", "appendonly.aof.manifest", "temp-x", "appendonly.aofx"] {
            assert!(!files().matches(name), "{name}");
        }
    }

    #[test]
    fn nothing_is_stable_before_it_was_synced() {
        let mut stability = observed();
        assert_eq!(stability.next(MS(0), true), None, "there is nothing to find out");
        let effect = stability.effect();
        assert_eq!(stability.next(MS(0), true), Some(Ask::Info));
        let later = stability.effect();
        assert_eq!(stability.on_info(MS(1), &info(100, 10, 0)), Some(Ask::Sync(files())));
        assert_eq!(stability.stable(), 0);
        stability.on_synced(MS(2));
        assert_eq!(
            (stability.stable(), later),
            (effect, effect + 1),
            "the later one came after the question"
        );
        assert_eq!(stability.next(MS(3), false), None, "nobody waits and the interval is not over");
        assert_eq!(stability.timer(false), Some(MS(52)));
        assert_eq!(stability.next(MS(52), false), Some(Ask::Info));
    }

    #[test]
    fn a_buffer_under_constant_load_is_outwaited() {
        let mut stability = observed();
        stability.effect();
        assert_eq!(stability.next(MS(0), true), Some(Ask::Info));
        assert_eq!(stability.on_info(MS(0), &info(100, 10, 30)), None);
        assert_eq!(stability.next(MS(0), true), None);
        assert_eq!(stability.next(MS(1), true), Some(Ask::Info));
        assert_eq!(stability.on_info(MS(1), &info(120, 10, 40)), None, "129 of 130 bytes are not enough");
        assert_eq!(stability.next(MS(2), true), Some(Ask::Info));
        assert_eq!(stability.on_info(MS(2), &info(130, 10, 900)), Some(Ask::Sync(files())));
    }

    #[test]
    fn a_rewrite_in_between_starts_the_measure_again() {
        let mut stability = observed();
        stability.effect();
        stability.next(MS(0), true);
        assert_eq!(stability.on_info(MS(0), &info(100, 10, 30)), None);
        stability.next(MS(1), true);
        assert_eq!(
            stability.on_info(MS(1), &info(500, 90, 30)),
            None,
            "sizes of another base do not compare"
        );
        stability.next(MS(2), true);
        assert_eq!(stability.on_info(MS(2), &info(530, 90, 1)), Some(Ask::Sync(files())));
    }

    #[test]
    fn a_failed_probe_pauses_and_tries_again() {
        let mut stability = observed();
        stability.effect();
        stability.next(MS(0), true);
        assert_eq!(stability.on_info(MS(0), &Info::default()), None);
        assert_eq!(stability.next(MS(1), true), None);
        assert_eq!(stability.timer(true), Some(MS(100)));
        assert_eq!(stability.next(MS(100), true), Some(Ask::Info));
        stability.on_synced(MS(101));
        assert_eq!(stability.stable(), 0, "a sync that was not asked for says nothing");
    }

    #[test]
    fn always_does_not_vouch_for_what_was_before_it() {
        let mut stability = observed();
        stability.effect();
        stability.set_method(Method::OnReply);
        assert_eq!(stability.next(MS(0), true), Some(Ask::Info));
        stability.on_info(MS(0), &info(1, 1, 0));
        stability.on_synced(MS(1));
        stability.set_method(Method::OnReply);
        let effect = stability.effect();
        assert_eq!(stability.stable(), effect);
    }

    #[test]
    fn with_always_an_answer_is_enough_and_without_a_file_there_is_nothing_to_wait_for() {
        for method in [Method::OnReply, Method::Never] {
            let mut stability = Stability::new(method, MS(50));
            let effect = stability.effect();
            assert_eq!((stability.stable(), stability.next(MS(0), true)), (effect, None));
        }
        let mut stability = Stability::new(Method::WaitAof, MS(50));
        let effect = stability.effect();
        assert_eq!(stability.next(MS(0), true), Some(Ask::WaitAof));
        stability.on_synced(MS(1));
        assert_eq!(stability.stable(), effect);
    }
}
