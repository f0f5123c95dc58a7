//! The cache's part in the kernel, as the device knows such parts.
//!
//! Invariant: a value is shown only under counts that were read before the notes were taken that the rules have decided
//! by; what the daemon itself lets pass makes doubtful what it concerns before it is decided about.

use crate::notes::{Note, Noted, Taken};
use crate::table::{Incarnations, Lossy, Named, Table};
use remedy_cache::{ReadCache, Told};
use scotfree_core::{Count, Nanos, SeqNum, ServerIndex, SessionId};
use scotfree_device::{Base, Before, DeviceEffects, Function, KernelPart, Region, SessionBase, SessionName};
use scotfree_wire::{Kind, Packet, Tail};
use scotfree_xdp::{Kernel, KernelError, PartMaker, SESSIONS_MAX};
use std::sync::Arc;

/// The cache's part, as a list of parts names it.
pub const PART: PartMaker = PartMaker { function: crate::FUNCTION, start };

/// How many keys one turn looks at to be shown; the next read of another has it looked at.
const CANDIDATES_MAX: usize = 256;
/// How many cells a timer looks at for marks.
const MARKS_AT_ONCE: usize = 512;
/// What programs count besides the rules, in the order of `struct cache_counts`.
const COUNTED: [&str; 2] = ["scotfree_cache_hits_total", "scotfree_cache_overwrites_total"];

fn start(
    kernel: &Arc<Kernel>,
    _ports: &[u32],
    _base: &mut Base,
    function: &mut dyn Function,
    _effects: &mut DeviceEffects,
) -> Result<Box<dyn KernelPart>, KernelError> {
    let cache = cache_of(function);
    Ok(Box::new(CachePart {
        kernel: Arc::clone(kernel),
        table: Table::open(kernel)?,
        begun: false,
        now: Nanos(0),
        candidates: Vec::new(),
        forgotten: cache.forgotten(),
        doubts_again: false,
        sessions: vec![None; SESSIONS_MAX],
        looks_at_sessions: false,
        shown: 0,
        lost: 0,
    }))
}

fn cache_of(function: &mut dyn Function) -> &mut ReadCache {
    function.as_any_mut().downcast_mut::<ReadCache>().expect("the function is the cache")
}

/// What the part knows of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    name: SessionName,
    /// The rules know that everything up to here is stable.
    stable: SeqNum,
}

/// What stands between the cache and its programs.
struct CachePart {
    kernel: Arc<Kernel>,
    table: Table,
    /// The programs tell, and what had passed before is known to be doubtful.
    begun: bool,
    now: Nanos,
    /// Keys that may be shown.
    candidates: Vec<Named>,
    forgotten: u64,
    /// Something was forgotten in the last turn. Who keeps the sessions ends them behind this part: until then programs
    /// may have shown more.
    doubts_again: bool,
    /// By their places.
    sessions: Vec<Option<Known>>,
    looks_at_sessions: bool,
    shown: u64,
    lost: u64,
}

impl KernelPart for CachePart {
    fn before(
        &mut self,
        now: Nanos,
        base: &mut Base,
        function: &mut dyn Function,
        what: &Before<'_>,
        effects: &mut DeviceEffects,
    ) -> Result<(), String> {
        self.now = now;
        self.begin(base, function)?;
        if std::mem::take(&mut self.doubts_again) {
            self.table.doubt_all();
        }
        // Before the notes: what has counted by then has left its own.
        let lossy = if matches!(what, Before::Timer) { self.lossy_sessions() } else { Vec::new() };
        self.take_notes(base, function)?;
        // What was told may have passed before a lapse of the lease, or an end of an epoch.
        function.before(now, base, what, effects)?;
        let cache = cache_of(function);
        match what {
            Before::Packet(packet, server) => {
                if let Some(region) = base.find(*server, packet.session()) {
                    self.follow_stability(base, region, cache);
                }
                self.expect(packet, *server, base, cache)?;
            }
            Before::Timer => {
                self.looks_at_sessions = true;
                for (region, _) in base.sessions().iter() {
                    self.follow_stability(base, region, cache);
                }
                self.table.take_marks(MARKS_AT_ONCE, |named, hits| {
                    cache.mark(named.server, named.key_hash, &named.key, hits);
                });
                for (region, lossy) in lossy {
                    let is_safe = |session: &SessionBase| {
                        lossy.last <= session.stable && !cache.has_under_way(session.name)
                    };
                    if base.session(region).is_some_and(is_safe) {
                        self.table.set_safe(region.0 as usize, lossy);
                    }
                }
            }
            Before::Promotion | Before::NewKey | Before::Entry(..) | Before::Look => {}
        }
        self.follow_forgotten(cache);
        Ok(())
    }

    fn after(&mut self, base: &mut Base, function: &mut dyn Function) -> Result<(), String> {
        self.follow_forgotten(cache_of(function));
        if std::mem::take(&mut self.looks_at_sessions) {
            self.learn_sessions(base);
        }
        self.show(base, function)
    }

    fn counted(&self, name: &str) -> u64 {
        let Some(at) = COUNTED.iter().position(|counted| *counted == name) else { return 0 };
        // Counters that cannot be read have raised an alarm elsewhere.
        self.kernel.counted_in("cache_counted").ok().and_then(|counts| counts.get(at).copied()).unwrap_or(0)
    }

    fn counters(&self, out: &mut dyn FnMut(Count)) {
        for (name, help, value) in [
            ("scotfree_cache_shown_total", "Values that were shown to programs in the kernel.", self.shown),
            (
                "scotfree_cache_notes_lost_total",
                "How often programs told more than could be taken.",
                self.lost,
            ),
        ] {
            out(Count { name, help, labels: "", value });
        }
    }
}

impl CachePart {
    /// Programs of a daemon before, which told nobody, may have let requests pass until now.
    fn begin(&mut self, base: &mut Base, function: &mut dyn Function) -> Result<(), String> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        self.table.turn_on(cache_of(function).has_doorkeeper());
        self.looks_at_sessions = true;
        self.doubt_what_has_passed(base, function)
    }

    /// Whatever has passed may have been a write of any key; what is not stable of it may still be executed.
    fn doubt_what_has_passed(&mut self, base: &mut Base, function: &mut dyn Function) -> Result<(), String> {
        self.table.doubt_all();
        let cache = cache_of(function);
        (0..base.server_count()).for_each(|server| cache.on_told_unseen(ServerIndex(server as u8)));
        for index in 0..SESSIONS_MAX as u32 {
            let Some(state) = self.kernel.session(index).map_err(|error| error.to_string())? else {
                continue;
            };
            let name = SessionName { server: ServerIndex(state.server as u8), id: state.id };
            let stable = base.find(name.server, name.id).and_then(|region| base.session(region));
            let stable = stable.map_or(SeqNum(0), |session| session.stable);
            if stable.next() < state.next {
                let run = stable.next()..=SeqNum(state.next.0 - 1);
                function.on_placed(self.now, base, name, run, state.last_write);
            }
        }
        Ok(())
    }

    /// Sessions whose logged writes programs do not show.
    fn lossy_sessions(&self) -> Vec<(Region, Lossy)> {
        let known = (0..).zip(&self.sessions).filter(|(_, known)| known.is_some());
        known.filter_map(|(index, _)| Some((Region(index), self.table.lossy(index as usize)?))).collect()
    }

    // ---- what is told

    fn take_notes(&mut self, base: &mut Base, function: &mut dyn Function) -> Result<(), String> {
        let (cache, candidates) = (cache_of(function), &mut self.candidates);
        let taken = self.table.notes.take(|note| match note {
            Note::Request(noted) => on_note(cache, base, noted, candidates),
            Note::Unseen(server) => cache.on_told_unseen(*server),
        });
        if taken == Taken::Lost {
            self.lost += 1;
            self.candidates.clear();
            self.doubt_what_has_passed(base, function)?;
        }
        Ok(())
    }

    /// Who keeps the places of sessions takes over what is stable without telling other functions.
    fn follow_stability(&mut self, base: &Base, region: Region, cache: &mut ReadCache) {
        let Some(session) = base.session(region) else { return };
        let known = self.sessions[region.0 as usize].as_mut();
        if let Some(known) = known.filter(|known| known.name == session.name && known.stable < session.stable)
        {
            known.stable = session.stable;
            cache.on_told_stable(session.name, session.stable);
        }
    }

    // ---- what the daemon lets pass itself

    /// A packet is decided about here, and what it concerns is doubtful until that is done.
    fn expect(
        &mut self,
        packet: &Packet<'_>,
        server: ServerIndex,
        base: &Base,
        cache: &ReadCache,
    ) -> Result<(), String> {
        match (packet.kind(), packet.tail()) {
            (Kind::Update | Kind::Bypass, _) => {
                if let Some(region) = base.find(server, packet.session()) {
                    self.table.count_lossy(region.0 as usize, packet.seq_num());
                }
                match cache.keys_of(packet) {
                    Some(keys) => keys.into_iter().for_each(|key_hash| self.table.doubt(key_hash)),
                    None => self.table.doubt_all(),
                }
            }
            (Kind::Read, _) => {
                if let Some(region) = base.find(server, packet.session()) {
                    self.table.set_awaited(region.0 as usize, packet.seq_num());
                }
            }
            (Kind::Response, _) => {
                let name = (SessionName { server, id: packet.session() }, packet.seq_num());
                if let Some((key_hash, key)) = cache.awaited(name) {
                    note_candidate(&mut self.candidates, Named { server, key_hash, key: key.to_vec() });
                }
            }
            (Kind::ServerAck, _) => self.on_stable(packet.session(), server, packet.seq_num(), base)?,
            (Kind::Heartbeat, Tail::Heartbeat(tail)) => {
                self.on_stable(packet.session(), server, tail.stable, base)?;
            }
            (Kind::Drain | Kind::RecoveryPoll | Kind::SessionAccept | Kind::SessionClose, _) => {
                self.table.doubt_all();
                self.looks_at_sessions = true;
                if packet.kind() == Kind::Drain {
                    self.forget_session(server, packet.session(), base);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// What is stable and has not passed here never will: a reply to it is one to what was not seen.
    fn on_stable(
        &mut self,
        id: SessionId,
        server: ServerIndex,
        stable: SeqNum,
        base: &Base,
    ) -> Result<(), String> {
        let Some(region) = base.find(server, id) else { return Ok(()) };
        let state = self.kernel.session(region.0).map_err(|error| error.to_string())?;
        if state.is_none_or(|state| state.id != id || state.next <= stable) {
            self.table.set_seen_from(region.0 as usize, stable.next());
        }
        Ok(())
    }

    /// What has passed of it is learnt anew.
    fn forget_session(&mut self, server: ServerIndex, id: SessionId, base: &Base) {
        if let Some(region) = base.find(server, id) {
            self.sessions[region.0 as usize] = None;
        }
    }

    /// Sessions that are new, or that have come further than what has passed here, before programs know them.
    fn learn_sessions(&mut self, base: &Base) {
        for (region, session) in base.sessions().iter() {
            let known = &mut self.sessions[region.0 as usize];
            if known.is_none_or(|known| known.name != session.name) {
                *known = Some(Known { name: session.name, stable: SeqNum(0) });
                self.table.begin_session(region.0 as usize, session.next, session.last_write);
            }
        }
    }

    // ---- what is shown

    /// What was forgotten is answered no more.
    fn follow_forgotten(&mut self, cache: &ReadCache) {
        let forgotten = cache.forgotten();
        if std::mem::replace(&mut self.forgotten, forgotten) != forgotten {
            self.table.doubt_all();
            self.doubts_again = true;
        }
    }

    fn show(&mut self, base: &mut Base, function: &mut dyn Function) -> Result<(), String> {
        if self.candidates.is_empty() {
            return Ok(());
        }
        let candidates = std::mem::take(&mut self.candidates);
        let quiet: Vec<_> = candidates.iter().map(|named| self.table.quiet(named.key_hash)).collect();
        // All that those counts have counted has left its note: now it is known.
        let lost = self.lost;
        self.take_notes(base, function)?;
        let cache = cache_of(function);
        self.follow_forgotten(cache);
        if self.lost != lost {
            return Ok(());
        }
        for (named, quiet) in candidates.iter().zip(quiet) {
            let of = Incarnations { server: base.heard_epoch(named.server), device: base.boot_epoch() };
            let value = cache.lasting(self.now, base, named.server, named.key_hash, &named.key);
            if let (Some(value), Some(quiet)) = (value, quiet) {
                self.shown += u64::from(self.table.show(named, value, quiet, of));
            }
        }
        Ok(())
    }
}

fn on_note(cache: &mut ReadCache, base: &Base, noted: &Noted, candidates: &mut Vec<Named>) {
    let Noted { server, session, seq, kind, flags, completed, place, stamp, passed_at, key_hash, .. } =
        *noted;
    let (reads, read, is_unkept) = (noted.reads, noted.read.as_deref(), noted.is_unkept);
    let told = Told {
        server,
        session,
        seq,
        kind,
        flags,
        completed,
        place,
        stamp,
        passed_at,
        key_hash,
        reads,
        read,
        is_unkept,
    };
    cache.on_told(base, &told);
    if let Some(key) = &noted.read {
        note_candidate(candidates, Named { server, key_hash, key: key.clone() });
    }
}

fn note_candidate(candidates: &mut Vec<Named>, named: Named) {
    if candidates.len() < CANDIDATES_MAX && !candidates.contains(&named) {
        candidates.push(named);
    }
}
