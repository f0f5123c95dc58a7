//! The C interface (`include/scotfree.h`), as a static and a shared library `libscotfree`.
//!
//! Invariant: all unsafe code of this crate is in this file, which is a target of its own. A pointer
//! from C is looked at once, at the beginning of a call, and checked for NULL where it may be; no
//! panic crosses into C (an `extern "C"` function aborts instead).

use scotfree_core::{DeviceId, Durability, Epoch, SeqNum, SessionId, Tier};
use scotfree_rpc::{
    Incoming, Listener, ListenerConfig, ListenerError, Session, SessionConfig, SessionError, SessionKeeping,
};
use scotfree_session::{CompletedBy, RecoveredSession, RequestKind};
use scotfree_wire::{ClusterKey, Nonce};
use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::net::SocketAddr;
use std::time::Duration;

pub(crate) const CLUSTER_KEY_BYTES: usize = 32;

/// What a call returns; `enum scot_code`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Code {
    Ok = 0,
    TimedOut = 1,
    Invalid = 2,
    Ended = 3,
    TooLarge = 4,
    System = 5,
    Unreachable = 6,
    #[allow(dead_code)] // Of `scotfree_redis.h` alone, whose library has this file as a module.
    Refused = 7,
    #[allow(dead_code)] // As above.
    Fault = 8,
}

/// `scot_session_options`.
#[repr(C)]
pub struct SessionOptions {
    server: *const c_char,
    cluster_key: *const u8,
    window: u32,
    durability: u32,
    device_acks: u32,
    timeout_ms: u32,
}

/// `scot_reply`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ReplyInfo {
    seq: u64,
    bytes: usize,
    failed: c_int,
    answered_by: c_int,
}

/// `scot_session_record`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SessionRecord {
    session: u64,
    position: u64,
    epoch: u32,
    client_nonce: Nonce,
    server_nonce: Nonce,
}

/// `scot_device`.
#[repr(C)]
pub struct Device {
    id: u16,
    address: *const c_char,
}

/// `scot_server_options`.
#[repr(C)]
pub struct ServerOptions {
    address: *const c_char,
    cluster_key: *const u8,
    epoch: u32,
    keeps_sessions: c_int,
    sessions: *const SessionRecord,
    session_count: usize,
    devices: *const Device,
    device_count: usize,
}

/// `scot_incoming`.
#[repr(C)]
pub struct IncomingInfo {
    kind: c_int,
    id: u64,
    session: u64,
    seq: u64,
    payload: *const u8,
    payload_bytes: usize,
    record: SessionRecord,
}

/// `scot_session`: a session, and the reply that did not fit its buffer.
pub struct CSession {
    session: Session,
    waiting: Option<(ReplyInfo, Vec<u8>)>,
}

/// `scot_server`: a server, and the payload that C looks at.
pub struct CServer {
    listener: Listener,
    payload: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
}

pub(crate) type Outcome = Result<(), Failure>;

pub(crate) fn failure(code: Code, message: impl Into<String>) -> Failure {
    Failure { code, message: message.into() }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Failure {
        let code = match &error {
            SessionError::Socket { .. } | SessionError::Start(_) | SessionError::Io(_) => Code::System,
            SessionError::Unreachable { .. } => Code::Unreachable,
            SessionError::Ended(_) => Code::Ended,
            SessionError::TooLarge { .. } => Code::TooLarge,
            SessionError::TimedOut => Code::TimedOut,
        };
        failure(code, error.to_string())
    }
}

impl From<ListenerError> for Failure {
    fn from(error: ListenerError) -> Failure {
        let code = match &error {
            ListenerError::Bind { .. } | ListenerError::Random(_) | ListenerError::Io(_) => Code::System,
            ListenerError::UnknownId(_) => Code::Invalid,
        };
        failure(code, error.to_string())
    }
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

pub(crate) fn finish(outcome: Outcome) -> c_int {
    let Err(failure) = outcome else { return Code::Ok as c_int };
    let message = CString::new(failure.message.replace('\0', " ")).unwrap_or_default();
    LAST_ERROR.with_borrow_mut(|last| *last = message);
    failure.code as c_int
}

// ---- looking at C's memory

/// The bytes at `start`.
///
/// # Safety
/// `start` is NULL or points to `length` readable bytes that nobody changes during `'a`.
pub(crate) unsafe fn bytes<'a>(start: *const c_void, length: usize, what: &str) -> Result<&'a [u8], Failure> {
    if length == 0 {
        return Ok(&[]);
    }
    if start.is_null() {
        return Err(failure(Code::Invalid, format!("{what} is NULL and has {length} bytes")));
    }
    require_size::<u8>(length, what)?;
    // SAFETY: not NULL, and as long as the caller of this function promises.
    Ok(unsafe { std::slice::from_raw_parts(start.cast(), length) })
}

/// No object is larger than half of the address space: such a count was negative, or is none.
fn require_size<T>(count: usize, what: &str) -> Outcome {
    let fits = count.checked_mul(size_of::<T>()).is_some_and(|size| isize::try_from(size).is_ok());
    let refused =
        || failure(Code::Invalid, format!("{what} cannot have {count} items: is the count negative?"));
    fits.then_some(()).ok_or_else(refused)
}

/// The items at `start`.
///
/// # Safety
/// `start` is NULL or points to `count` readable items that nobody changes during `'a`.
pub(crate) unsafe fn items<'a, T>(start: *const T, count: usize, what: &str) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if start.is_null() {
        return Err(failure(Code::Invalid, format!("{what} is NULL and has {count} items")));
    }
    require_size::<T>(count, what)?;
    // SAFETY: not NULL, and as many as the caller of this function promises.
    Ok(unsafe { std::slice::from_raw_parts(start, count) })
}

/// # Safety
/// `text` is NULL or points to a string with a closing zero.
pub(crate) unsafe fn address(text: *const c_char, what: &str) -> Result<SocketAddr, Failure> {
    if text.is_null() {
        return Err(failure(Code::Invalid, format!("{what} is NULL")));
    }
    // SAFETY: not NULL, and closed by a zero as the caller of this function promises.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    text.parse().map_err(|_| {
        failure(
            Code::Invalid,
            format!("{what} `{text}` is no address: write it as 10.0.0.1:51000 or [::1]:51000"),
        )
    })
}

/// # Safety
/// `key` is NULL or points to [`CLUSTER_KEY_BYTES`] readable bytes.
pub(crate) unsafe fn cluster_key(key: *const u8) -> Result<ClusterKey, Failure> {
    // SAFETY: the caller of this function promises the same.
    let key = unsafe { bytes(key.cast(), CLUSTER_KEY_BYTES, "the cluster key") }?;
    let mut copy = [0; CLUSTER_KEY_BYTES];
    copy.copy_from_slice(key);
    Ok(ClusterKey::from_bytes(copy))
}

/// # Safety
/// `pointer` is NULL or came from this library, was not freed, and no other thread uses it.
pub(crate) unsafe fn handle<'a, T>(pointer: *mut T, what: &str) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller of this function promises that it is NULL or a live object of ours.
    unsafe { pointer.as_mut() }.ok_or_else(|| failure(Code::Invalid, format!("{what} is NULL")))
}

/// Gives C an object to hold.
///
/// # Safety
/// `place` is NULL or writable.
pub(crate) unsafe fn give<T>(place: *mut *mut T, object: impl FnOnce() -> Result<T, Failure>) -> Outcome {
    if place.is_null() {
        return Err(failure(Code::Invalid, "there is no place for the result: it is NULL"));
    }
    // SAFETY: not NULL, and writable as the caller of this function promises.
    unsafe { place.write(std::ptr::null_mut()) };
    let object = Box::into_raw(Box::new(object()?));
    // SAFETY: as above.
    unsafe { place.write(object) };
    Ok(())
}

// ---- calls

/// The last error of the calling thread.
#[no_mangle]
pub extern "C" fn scot_error_message() -> *const c_char {
    LAST_ERROR.with_borrow(|last| last.as_ptr())
}

/// In C, 0 devices stand for as many as the durability needs.
pub(crate) fn tier(durability: Durability, device_acks: u32) -> Result<Tier, Failure> {
    let device_count = match (durability, device_acks) {
        (Durability::None, _) => return Ok(Tier::NONE),
        (_, 0) => 1,
        (_, count) => u8::try_from(count).unwrap_or(u8::MAX),
    };
    Tier::new(durability, device_count).map_err(|error| failure(Code::Invalid, error.to_string()))
}

/// Starts a session.
///
/// # Safety
/// As in `scotfree.h`: pointers are NULL or valid, strings end with a zero.
#[no_mangle]
pub unsafe extern "C" fn scot_start_session(
    options: *const SessionOptions,
    place: *mut *mut CSession,
) -> c_int {
    // SAFETY: C's promise about `options`.
    let options = unsafe { options.as_ref() };
    let start = || {
        let options = options.ok_or_else(|| failure(Code::Invalid, "the options are NULL"))?;
        // SAFETY: C's promise about the options' strings.
        let server = unsafe { address(options.server, "the server") }?;
        // SAFETY: C's promise about the key's size.
        let key = unsafe { cluster_key(options.cluster_key) }?;
        let mut config = SessionConfig::new(server, key);
        let durability = u8::try_from(options.durability).ok().and_then(Durability::from_code);
        let durability = durability.ok_or_else(|| failure(Code::Invalid, "there is no such durability"))?;
        config.options.tier = tier(durability, options.device_acks)?;
        if options.window != 0 {
            config.options.window_asked = options.window;
        }
        if options.timeout_ms != 0 {
            config.patience = Duration::from_millis(options.timeout_ms.into());
        }
        Ok(CSession { session: scotfree_rpc::start_session(&config)?, waiting: None })
    };
    // SAFETY: C's promise about `place`.
    finish(unsafe { give(place, start) })
}

/// Ends and frees a session.
///
/// # Safety
/// `session` is NULL or came from [`scot_start_session`] and is not used afterwards.
#[no_mangle]
pub unsafe extern "C" fn scot_end_session(session: *mut CSession) -> c_int {
    if session.is_null() {
        return Code::Ok as c_int;
    }
    // SAFETY: it was made by `Box::into_raw` in `give`, and C gives it up.
    let session = unsafe { Box::from_raw(session) };
    finish(session.session.end_session().map_err(Failure::from))
}

/// Sends a request and notes its number.
///
/// # Safety
/// As in `scotfree.h`.
unsafe fn send(
    session: *mut CSession,
    key: (*const c_void, usize),
    payload: (*const c_void, usize),
    seq: *mut u64,
    send: impl FnOnce(&mut Session, &[u8], &[u8]) -> Result<SeqNum, SessionError>,
) -> c_int {
    let sent = || {
        // SAFETY: C's promise about handles.
        let session = unsafe { handle(session, "the session") }?;
        // SAFETY: C's promise about the key's size.
        let key = unsafe { bytes(key.0, key.1, "the key") }?;
        // SAFETY: C's promise about the payload's size.
        let payload = unsafe { bytes(payload.0, payload.1, "the payload") }?;
        let number = send(&mut session.session, key, payload)?;
        // SAFETY: C's promise: NULL or writable.
        if let Some(seq) = unsafe { seq.as_mut() } {
            *seq = number.0;
        }
        Ok(())
    };
    finish(sent())
}

/// Sends an update.
///
/// # Safety
/// As in `scotfree.h`.
#[no_mangle]
pub unsafe extern "C" fn scot_send_update(
    session: *mut CSession,
    key: *const c_void,
    key_bytes: usize,
    payload: *const c_void,
    payload_bytes: usize,
    seq: *mut u64,
) -> c_int {
    // SAFETY: C's promises are passed on.
    unsafe { send(session, (key, key_bytes), (payload, payload_bytes), seq, Session::send_update) }
}

/// Sends an update that devices complete.
///
/// # Safety
/// As in `scotfree.h`.
#[no_mangle]
pub unsafe extern "C" fn scot_send_early_update(
    session: *mut CSession,
    key: *const c_void,
    key_bytes: usize,
    payload: *const c_void,
    payload_bytes: usize,
    seq: *mut u64,
) -> c_int {
    // SAFETY: C's promises are passed on.
    unsafe { send(session, (key, key_bytes), (payload, payload_bytes), seq, Session::send_early_update) }
}

/// Sends a bypass request.
///
/// # Safety
/// As in `scotfree.h`.
#[no_mangle]
pub unsafe extern "C" fn scot_bypass(
    session: *mut CSession,
    payload: *const c_void,
    payload_bytes: usize,
    seq: *mut u64,
) -> c_int {
    let bypass = |session: &mut Session, _: &[u8], payload: &[u8]| session.bypass(payload);
    // SAFETY: C's promises are passed on.
    unsafe { send(session, (std::ptr::null(), 0), (payload, payload_bytes), seq, bypass) }
}

/// Sends a read.
///
/// # Safety
/// As in `scotfree.h`.
#[no_mangle]
pub unsafe extern "C" fn scot_read(
    session: *mut CSession,
    key: *const c_void,
    key_bytes: usize,
    payload: *const c_void,
    payload_bytes: usize,
    seq: *mut u64,
) -> c_int {
    // SAFETY: C's promises are passed on.
    unsafe { send(session, (key, key_bytes), (payload, payload_bytes), seq, Session::read) }
}

/// Takes the next reply.
///
/// # Safety
/// As in `scotfree.h`.
#[no_mangle]
pub unsafe extern "C" fn scot_next_reply(
    session: *mut CSession,
    buffer: *mut c_void,
    buffer_bytes: usize,
    reply: *mut ReplyInfo,
    timeout_ms: u32,
) -> c_int {
    let take = || {
        // SAFETY: C's promise about handles.
        let session = unsafe { handle(session, "the session") }?;
        if reply.is_null() || (buffer.is_null() && buffer_bytes != 0) {
            return Err(failure(Code::Invalid, "there is no place for the reply: it is NULL"));
        }
        let (info, bytes) = session.next_reply(Duration::from_millis(timeout_ms.into()))?;
        let fits = bytes.len() <= buffer_bytes;
        let copied_bytes = if fits { bytes.len() } else { 0 };
        if copied_bytes != 0 {
            // SAFETY: the buffer is as large as C says, and is not inside a reply of ours.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), copied_bytes) };
        }
        let size = bytes.len();
        // SAFETY: not NULL, and writable by C's promise.
        unsafe { reply.write(ReplyInfo { bytes: size, ..info }) };
        if fits {
            return Ok(());
        }
        session.waiting = Some((info, bytes));
        Err(failure(Code::TooLarge, format!("the reply has {size} bytes, the buffer {buffer_bytes}")))
    };
    finish(take())
}

impl CSession {
    fn next_reply(&mut self, timeout: Duration) -> Result<(ReplyInfo, Vec<u8>), Failure> {
        if let Some(waiting) = self.waiting.take() {
            return Ok(waiting);
        }
        let reply = self.session.next_reply(timeout)?;
        let answered_by = match reply.answered_by {
            CompletedBy::Server => -1,
            CompletedBy::ServerAck => -2,
            CompletedBy::Device(DeviceId(device)) => c_int::from(device),
            CompletedBy::Function(answerer) => c_int::from(answerer.device.0),
        };
        let info = ReplyInfo { seq: reply.seq.0, bytes: 0, failed: c_int::from(reply.failed), answered_by };
        Ok((info, reply.bytes.unwrap_or_default().to_vec()))
    }
}

/// Listens.
///
/// # Safety
/// As in `scotfree.h`.
#[no_mangle]
pub unsafe extern "C" fn scot_listen(options: *const ServerOptions, place: *mut *mut CServer) -> c_int {
    // SAFETY: C's promise about `options`.
    let options = unsafe { options.as_ref() };
    let listen = || {
        let options = options.ok_or_else(|| failure(Code::Invalid, "the options are NULL"))?;
        // SAFETY: C's promises about what the options point to.
        let config = unsafe { listener_config(options) }?;
        Ok(CServer { listener: Listener::bind(config)?, payload: Vec::new() })
    };
    // SAFETY: C's promise about `place`.
    finish(unsafe { give(place, listen) })
}

/// # Safety
/// What the options point to is NULL or valid.
unsafe fn listener_config(options: &ServerOptions) -> Result<ListenerConfig, Failure> {
    // SAFETY: the caller of this function promises it.
    let here = unsafe { address(options.address, "the address") }?;
    // SAFETY: the caller of this function promises it.
    let key = unsafe { cluster_key(options.cluster_key) }?;
    if options.epoch == 0 {
        return Err(failure(Code::Invalid, "the epoch is at least 1 and grows with every start"));
    }
    let mut config = ListenerConfig::new(here, key, Epoch(options.epoch));
    // SAFETY: the caller of this function promises it.
    for device in unsafe { items(options.devices, options.device_count, "the list of devices") }? {
        // SAFETY: the caller of this function promises it.
        let address = unsafe { address(device.address, "a device's address") }?;
        config.devices.push((DeviceId(device.id), address));
    }
    // SAFETY: the caller of this function promises it.
    let sessions = unsafe { items(options.sessions, options.session_count, "the list of sessions") }?;
    if options.keeps_sessions != 0 {
        config.sessions =
            SessionKeeping::Application(sessions.iter().map(SessionRecord::recovered).collect());
    }
    Ok(config)
}

impl SessionRecord {
    const NONE: SessionRecord =
        SessionRecord { session: 0, position: 0, epoch: 0, client_nonce: [0; 16], server_nonce: [0; 16] };

    fn recovered(&self) -> RecoveredSession {
        RecoveredSession {
            session: SessionId(self.session),
            epoch: Epoch(self.epoch),
            client_nonce: self.client_nonce,
            server_nonce: self.server_nonce,
            position: SeqNum(self.position),
        }
    }

    fn of(record: &RecoveredSession) -> SessionRecord {
        SessionRecord {
            session: record.session.0,
            position: record.position.0,
            epoch: record.epoch.0,
            client_nonce: record.client_nonce,
            server_nonce: record.server_nonce,
        }
    }
}

/// Writes the address that is listened on.
///
/// # Safety
/// As in `scotfree.h`.
#[no_mangle]
pub unsafe extern "C" fn scot_server_address(
    server: *mut CServer,
    buffer: *mut c_char,
    buffer_bytes: usize,
) -> c_int {
    let write = || {
        // SAFETY: C's promise about handles.
        let server = unsafe { handle(server, "the server") }?;
        let text = CString::new(server.listener.address().to_string()).unwrap_or_default();
        let text = text.as_bytes_with_nul();
        if buffer.is_null() || text.len() > buffer_bytes {
            return Err(failure(Code::TooLarge, format!("the address needs {} bytes", text.len())));
        }
        // SAFETY: the buffer is as large as C says, and not ours.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), text.len()) };
        Ok(())
    };
    finish(write())
}

/// Gets the next thing to do.
///
/// # Safety
/// As in `scotfree.h`.
#[no_mangle]
pub unsafe extern "C" fn scot_receive(
    server: *mut CServer,
    place: *mut IncomingInfo,
    timeout_ms: u32,
) -> c_int {
    let receive = || {
        // SAFETY: C's promise about handles.
        let server = unsafe { handle(server, "the server") }?;
        if place.is_null() {
            return Err(failure(Code::Invalid, "there is no place for the request: it is NULL"));
        }
        let incoming = server.listener.receive(Duration::from_millis(timeout_ms.into()))?;
        let incoming = incoming.ok_or_else(|| failure(Code::TimedOut, "nothing came in time"))?;
        let info = server.describe(incoming);
        // SAFETY: not NULL, and writable by C's promise.
        unsafe { place.write(info) };
        Ok(())
    };
    finish(receive())
}

impl CServer {
    /// What C gets to see; the payload stays here until the next one.
    fn describe(&mut self, incoming: Incoming) -> IncomingInfo {
        self.payload.clear();
        let mut info = IncomingInfo {
            kind: 0,
            id: 0,
            session: 0,
            seq: 0,
            payload: std::ptr::null(),
            payload_bytes: 0,
            record: SessionRecord::NONE,
        };
        match incoming {
            Incoming::Request { id, session, seq, kind, payload } => {
                info.kind = match kind {
                    RequestKind::Update => 1,
                    RequestKind::Read => 2,
                    RequestKind::Bypass => 3,
                };
                (info.id, info.session, info.seq) = (id, session.0, seq.0);
                self.payload = payload;
            }
            Incoming::SessionStarted { id, record } => {
                info.kind = 4;
                (info.id, info.session, info.record) = (id, record.session.0, SessionRecord::of(&record));
            }
            Incoming::SessionEnded { id, session } => {
                info.kind = 5;
                (info.id, info.session) = (id, session.0);
            }
            Incoming::DeadLetter { session, seq, payload, .. } => {
                info.kind = 6;
                (info.session, info.seq) = (session.0, seq.0);
                self.payload = payload;
            }
        }
        (info.payload, info.payload_bytes) = (self.payload.as_ptr(), self.payload.len());
        info
    }
}

/// Acknowledges.
///
/// # Safety
/// As in `scotfree.h`.
#[no_mangle]
pub unsafe extern "C" fn scot_ack(
    server: *mut CServer,
    id: u64,
    reply: *const c_void,
    reply_bytes: usize,
    failed: c_int,
) -> c_int {
    let ack = || {
        // SAFETY: C's promise about handles.
        let server = unsafe { handle(server, "the server") }?;
        // SAFETY: C's promise about the reply's size.
        let reply = unsafe { bytes(reply, reply_bytes, "the reply") }?;
        Ok(server.listener.ack(id, reply, failed != 0)?)
    };
    finish(ack())
}

/// Ends and frees a server.
///
/// # Safety
/// `server` is NULL or came from [`scot_listen`] and is not used afterwards.
#[no_mangle]
pub unsafe extern "C" fn scot_close(server: *mut CServer) -> c_int {
    if server.is_null() {
        return Code::Ok as c_int;
    }
    // SAFETY: it was made by `Box::into_raw` in `give`, and C gives it up.
    let server = unsafe { Box::from_raw(server) };
    match server.listener.close() {
        Ok(true) => Code::Ok as c_int,
        Ok(false) => finish(Err(failure(Code::TimedOut, "requests were received and never acknowledged"))),
        Err(error) => finish(Err(error.into())),
    }
}
