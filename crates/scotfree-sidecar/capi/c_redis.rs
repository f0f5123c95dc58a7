//! The C interface of the client in the caller's own process (`include/scotfree_redis.h`), as a static and a shared
//! library `libscotfree_redis`, which has the calls of `scotfree.h` as well.
//!
//! Invariant: no panic crosses into C: it is caught, answered by `SCOT_FAULT`, and the client is of no use afterwards.
//! A place for a reply is looked at before a command is said, so none is executed whose reply has no place.

#[path = "../../scotfree-rpc/capi/c_api.rs"]
pub(crate) mod c_api;

use c_api::{
    address, bytes, cluster_key, failure, finish, give, handle, items, tier, Code, Failure, Outcome,
};
use scotfree_core::Durability;
use scotfree_resp::codec::Limits;
use scotfree_resp::front::EarlyRule;
use scotfree_sidecar::client::in_process::{RedisClient, RedisClientConfig, RedisError, Reply};
use scotfree_sidecar::server::SidecarError;
use scotfree_wire::ClusterKey;
use std::ffi::{c_char, c_int, c_void, CStr};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;
use std::time::Duration;

/// `scot_redis_options`.
#[repr(C)]
pub struct RedisOptions {
    pub(crate) server: *const c_char,
    pub(crate) key_file: *const c_char,
    pub(crate) cluster_key: *const u8,
    pub(crate) mode: u32,
    pub(crate) durability: u32,
    pub(crate) device_acks: u32,
    pub(crate) timeout_ms: u32,
    pub(crate) spin_us: u32,
}

/// `scot_redis`: none after a fault.
pub struct CRedis(Option<RedisClient>);

/// `scot_redis_reply`.
#[repr(C)]
pub struct ReplyView {
    pub(crate) kind: c_int,
    pub(crate) integer: i64,
    pub(crate) bytes: *const c_char,
    pub(crate) byte_count: usize,
    pub(crate) elements: *const ReplyView,
    pub(crate) element_count: usize,
}

/// What C looks at, and what that points into. The view is first, so a pointer to it is one to the whole.
#[repr(C)]
struct OwnedReply {
    view: ReplyView,
    _kept: Kept,
}

/// The memory of a reply and of all within it; it stays where it is until the reply is freed. No boxes: moving one
/// says that nobody points into it.
#[derive(Default)]
struct Kept {
    bytes: Vec<Vec<u8>>,
    elements: Vec<Vec<ReplyView>>,
}

impl Kept {
    fn view(&mut self, reply: Reply) -> ReplyView {
        let (kind, integer, bytes, elements) = match reply {
            Reply::Null => (0, 0, Vec::new(), Vec::new()),
            Reply::Simple(text) => (1, 0, text.into_bytes(), Vec::new()),
            Reply::Error(text) => (2, 0, text.into_bytes(), Vec::new()),
            Reply::Integer(integer) => (3, integer, Vec::new(), Vec::new()),
            Reply::Bulk(bytes) => (4, 0, bytes, Vec::new()),
            Reply::Array(elements) => (5, 0, Vec::new(), elements),
        };
        // A reply nests no deeper than the limit of who has read it.
        let elements: Vec<ReplyView> = elements.into_iter().map(|element| self.view(element)).collect();
        let (start, byte_count) = self.keep(bytes);
        let view = ReplyView {
            kind,
            integer,
            bytes: start,
            byte_count,
            elements: elements.as_ptr(),
            element_count: elements.len(),
        };
        self.elements.push(elements);
        view
    }

    /// With a zero behind them, for who prints them.
    fn keep(&mut self, mut bytes: Vec<u8>) -> (*const c_char, usize) {
        let byte_count = bytes.len();
        if byte_count == 0 {
            return (c"".as_ptr(), 0);
        }
        bytes.push(0);
        let start = bytes.as_ptr().cast();
        self.bytes.push(bytes);
        (start, byte_count)
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Failure {
        let code = match &error {
            RedisError::Start(
                SidecarError::Listen { .. } | SidecarError::Io(_) | SidecarError::Random(_),
            )
            | RedisError::Session(_)
            | RedisError::Io(_) => Code::System,
            RedisError::Start(_) => Code::Unreachable,
            RedisError::Ended(_) | RedisError::Nonsense(_) => Code::Ended,
            RedisError::NothingAsked | RedisError::Unsupported => Code::Invalid,
            RedisError::TimedOut(_) => Code::TimedOut,
            RedisError::Unexpected(Reply::Error(text)) => {
                return failure(Code::Refused, format!("the server refused it: {text}"));
            }
            RedisError::Unexpected(_) => Code::Refused,
        };
        failure(code, error.to_string())
    }
}

/// What a panic is for C.
fn caught<T>(call: impl FnOnce() -> T) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|_| {
        failure(Code::Fault, "a fault of this library, which standard error describes: close the client")
    })
}

impl CRedis {
    pub(crate) fn call(&mut self, call: impl FnOnce(&mut RedisClient) -> Outcome) -> Outcome {
        let gone =
            || failure(Code::Fault, "this client had a fault in an earlier call: close it, connect another");
        let client = self.0.as_mut().ok_or_else(gone)?;
        let outcome = caught(|| call(client)).flatten();
        if outcome.as_ref().is_err_and(|failure| failure.code == Code::Fault) {
            let broken = self.0.take();
            // What is broken may not even be dropped well.
            let _ = caught(move || drop(broken));
        }
        outcome
    }
}

/// Calls a client of C's.
///
/// # Safety
/// `redis` is NULL or came from [`scot_redis_connect`], was not closed, and no other thread uses it.
unsafe fn with_client(redis: *mut CRedis, call: impl FnOnce(&mut RedisClient) -> Outcome) -> c_int {
    // SAFETY: the caller of this function promises the same.
    let redis = unsafe { handle(redis, "the client") };
    finish(redis.and_then(|redis| redis.call(call)))
}

/// A place of C's for a reply, which holds NULL until there is one.
struct Place(*mut *mut ReplyView);

impl Place {
    /// # Safety
    /// `place` is NULL or writable until this is gone.
    unsafe fn new(place: *mut *mut ReplyView) -> Result<Place, Failure> {
        if place.is_null() {
            return Err(failure(Code::Invalid, "there is no place for the reply: it is NULL"));
        }
        // SAFETY: not NULL, and writable as the caller of this function promises.
        unsafe { place.write(std::ptr::null_mut()) };
        Ok(Place(place))
    }

    fn fill(&self, reply: Reply) {
        let mut kept = Kept::default();
        let view = kept.view(reply);
        let owned = Box::into_raw(Box::new(OwnedReply { view, _kept: kept }));
        // SAFETY: it is not NULL, and writable as who made this has promised.
        unsafe { self.0.write(owned.cast()) };
    }
}

/// # Safety
/// What the options point to is NULL or valid.
unsafe fn config_of(options: &RedisOptions) -> Result<RedisClientConfig, Failure> {
    // SAFETY: the caller of this function promises it.
    let server = unsafe { address(options.server, "the server") }?;
    // SAFETY: the caller of this function promises it.
    let mut config = RedisClientConfig::new(server, unsafe { key_of(options) }?);
    config.early = match options.mode {
        0 => EarlyRule::Never,
        1 => EarlyRule::Always,
        mode => return Err(failure(Code::Invalid, format!("there is no mode {mode}"))),
    };
    let durability = u8::try_from(options.durability).ok().and_then(Durability::from_code);
    let durability = durability.ok_or_else(|| failure(Code::Invalid, "there is no such durability"))?;
    config.tier = tier(durability, options.device_acks)?;
    if options.timeout_ms != 0 {
        config.time_max = Duration::from_millis(options.timeout_ms.into());
    }
    config.spin = Duration::from_micros(options.spin_us.into());
    Ok(config)
}

/// # Safety
/// As for [`config_of`].
unsafe fn key_of(options: &RedisOptions) -> Result<ClusterKey, Failure> {
    if options.key_file.is_null() {
        // SAFETY: the caller of this function promises it.
        return unsafe { cluster_key(options.cluster_key) };
    }
    // SAFETY: not NULL, and closed by a zero as the caller of this function promises.
    let name = unsafe { CStr::from_ptr(options.key_file) }.to_string_lossy();
    let text = std::fs::read_to_string(Path::new(&*name)).map_err(|error| {
        failure(
            Code::System,
            format!("reading the key file {name} failed: {error}; name one that scot key new made"),
        )
    })?;
    ClusterKey::from_text(&text)
        .ok_or_else(|| failure(Code::Invalid, format!("{name} holds no key: scot key new makes one")))
}

/// The words of a command.
///
/// # Safety
/// `argv` is NULL or points to `argc` pointers, each NULL or to as many bytes as `lens` says, or to a string with a
/// closing zero if `lens` is NULL.
unsafe fn words_of<'a>(
    argc: usize,
    argv: *const *const c_char,
    lens: *const usize,
) -> Result<Vec<&'a [u8]>, Failure> {
    let limits = Limits::default();
    if argc == 0 {
        return Err(failure(Code::Invalid, "a command has at least one word, its name"));
    }
    if argc > limits.argument_count_max {
        let most = limits.argument_count_max;
        return Err(failure(Code::TooLarge, format!("a command has at most {most} words, this one {argc}")));
    }
    // SAFETY: the caller of this function promises it.
    let starts = unsafe { items(argv, argc, "the list of words") }?;
    // SAFETY: the caller of this function promises it.
    let lens = if lens.is_null() { None } else { Some(unsafe { items(lens, argc, "the lengths") }?) };
    // SAFETY: the caller of this function promises it.
    let word =
        |(index, start): (usize, &*const c_char)| unsafe { word_of(*start, lens.map(|lens| lens[index])) };
    let words = starts.iter().enumerate().map(word).collect::<Result<Vec<_>, _>>()?;
    let size = words.iter().fold(0_usize, |sum, word| sum.saturating_add(word.len()));
    if size > limits.whole_bytes_max {
        let most = limits.whole_bytes_max;
        return Err(failure(Code::TooLarge, format!("a command has at most {most} bytes, this one {size}")));
    }
    Ok(words)
}

/// # Safety
/// As for [`words_of`].
unsafe fn word_of<'a>(start: *const c_char, length: Option<usize>) -> Result<&'a [u8], Failure> {
    if let Some(length) = length {
        // SAFETY: the caller of this function promises it.
        return unsafe { bytes(start.cast(), length, "a word") };
    }
    if start.is_null() {
        return Err(failure(Code::Invalid, "a word is NULL and has no length"));
    }
    // SAFETY: not NULL, and closed by a zero as the caller of this function promises.
    Ok(unsafe { CStr::from_ptr(start) }.to_bytes())
}

// ---- calls

/// Connects.
///
/// # Safety
/// As in `scotfree_redis.h`: pointers are NULL or valid, strings end with a zero.
#[no_mangle]
pub unsafe extern "C" fn scot_redis_connect(options: *const RedisOptions, place: *mut *mut CRedis) -> c_int {
    let connect = || {
        // SAFETY: C's promise about `options`.
        let options = unsafe { options.as_ref() };
        let options = options.ok_or_else(|| failure(Code::Invalid, "the options are NULL"))?;
        // SAFETY: C's promise about what the options point to.
        let config = unsafe { config_of(options) }?;
        Ok(CRedis(Some(RedisClient::connect(&config)?)))
    };
    // SAFETY: C's promise about `place`.
    finish(unsafe { give(place, || caught(connect).flatten()) })
}

/// Closes and frees a client.
///
/// # Safety
/// `redis` is NULL or points to NULL or to a client of [`scot_redis_connect`] that no other thread uses.
#[no_mangle]
pub unsafe extern "C" fn scot_redis_close(redis: *mut *mut CRedis) -> c_int {
    // SAFETY: C's promise about the place.
    let Some(place) = (unsafe { redis.as_mut() }) else { return Code::Ok as c_int };
    let client = std::mem::replace(place, std::ptr::null_mut());
    if client.is_null() {
        return Code::Ok as c_int;
    }
    // SAFETY: it was made by `Box::into_raw` in `give`, and C gives it up.
    let client = unsafe { Box::from_raw(client) };
    finish(caught(move || drop(client)))
}

/// SET.
///
/// # Safety
/// As in `scotfree_redis.h`.
#[no_mangle]
pub unsafe extern "C" fn scot_redis_set(
    redis: *mut CRedis,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
) -> c_int {
    let set = |client: &mut RedisClient| {
        // SAFETY: C's promise about the key's size.
        let key = unsafe { bytes(key, key_bytes, "the key") }?;
        // SAFETY: C's promise about the value's size.
        let value = unsafe { bytes(value, value_bytes, "the value") }?;
        Ok(client.set(key, value)?)
    };
    // SAFETY: C's promise about handles.
    unsafe { with_client(redis, set) }
}

/// GET.
///
/// # Safety
/// As in `scotfree_redis.h`.
#[no_mangle]
pub unsafe extern "C" fn scot_redis_get(
    redis: *mut CRedis,
    key: *const c_void,
    key_bytes: usize,
    reply: *mut *mut ReplyView,
) -> c_int {
    let get = |client: &mut RedisClient, place: &Place| {
        // SAFETY: C's promise about the key's size.
        let key = unsafe { bytes(key, key_bytes, "the key") }?;
        place.fill(client.get(key)?.map_or(Reply::Null, Reply::Bulk));
        Ok(())
    };
    // SAFETY: C's promises are passed on.
    unsafe { with_place(redis, reply, get) }
}

/// Any command and its reply.
///
/// # Safety
/// As in `scotfree_redis.h`.
#[no_mangle]
pub unsafe extern "C" fn scot_redis_command(
    redis: *mut CRedis,
    argc: usize,
    argv: *const *const c_char,
    lens: *const usize,
    reply: *mut *mut ReplyView,
) -> c_int {
    let command = |client: &mut RedisClient, place: &Place| {
        // SAFETY: C's promise about words and lengths.
        let words = unsafe { words_of(argc, argv, lens) }?;
        place.fill(client.command(&words)?);
        Ok(())
    };
    // SAFETY: C's promises are passed on.
    unsafe { with_place(redis, reply, command) }
}

/// A command, without waiting.
///
/// # Safety
/// As in `scotfree_redis.h`.
#[no_mangle]
pub unsafe extern "C" fn scot_redis_send(
    redis: *mut CRedis,
    argc: usize,
    argv: *const *const c_char,
    lens: *const usize,
) -> c_int {
    let send = |client: &mut RedisClient| {
        // SAFETY: C's promise about words and lengths.
        let words = unsafe { words_of(argc, argv, lens) }?;
        Ok(client.send(&words)?)
    };
    // SAFETY: C's promise about handles.
    unsafe { with_client(redis, send) }
}

/// The next reply.
///
/// # Safety
/// As in `scotfree_redis.h`.
#[no_mangle]
pub unsafe extern "C" fn scot_redis_receive(redis: *mut CRedis, reply: *mut *mut ReplyView) -> c_int {
    let receive = |client: &mut RedisClient, place: &Place| {
        place.fill(client.receive()?);
        Ok(())
    };
    // SAFETY: C's promises are passed on.
    unsafe { with_place(redis, reply, receive) }
}

/// Calls a client for a reply.
///
/// # Safety
/// As for [`with_client`]; `reply` is NULL or writable.
unsafe fn with_place(
    redis: *mut CRedis,
    reply: *mut *mut ReplyView,
    call: impl FnOnce(&mut RedisClient, &Place) -> Outcome,
) -> c_int {
    // SAFETY: the caller of this function promises it.
    match unsafe { Place::new(reply) } {
        // SAFETY: the caller of this function promises it.
        Ok(place) => unsafe { with_client(redis, |client| call(client, &place)) },
        Err(failure) => finish(Err(failure)),
    }
}

/// Sends and receives what there is.
///
/// # Safety
/// As in `scotfree_redis.h`.
#[no_mangle]
pub unsafe extern "C" fn scot_redis_turn(redis: *mut CRedis) -> c_int {
    // SAFETY: C's promise about handles.
    unsafe { with_client(redis, |client| Ok(client.turn()?)) }
}

/// Frees a reply.
///
/// # Safety
/// `reply` is NULL or points to NULL or to a reply of this library.
#[no_mangle]
pub unsafe extern "C" fn scot_redis_free_reply(reply: *mut *mut ReplyView) {
    // SAFETY: C's promise about the place.
    let Some(place) = (unsafe { reply.as_mut() }) else { return };
    let view = std::mem::replace(place, std::ptr::null_mut());
    if !view.is_null() {
        // SAFETY: it was made by `Box::into_raw` in `Place::fill` of the whole, whose first field the view is.
        drop(unsafe { Box::from_raw(view.cast::<OwnedReply>()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_resp::codec::ReplyError;

    #[test]
    fn errors_have_codes_of_their_own() {
        let refused = || RedisError::Unexpected(Reply::Error("WRONGTYPE".into()));
        for (error, code, words) in [
            (RedisError::Ended("ERR Protocol error".into()), Code::Ended, "ERR Protocol error"),
            (RedisError::Nonsense(ReplyError::BadValue), Code::Ended, "nonsense"),
            (RedisError::Io(std::io::ErrorKind::OutOfMemory.into()), Code::System, "socket"),
            (refused(), Code::Refused, "the server refused it: WRONGTYPE"),
            (RedisError::Unexpected(Reply::Integer(1)), Code::Refused, "Integer(1)"),
        ] {
            let failure = Failure::from(error);
            assert!(failure.code == code && failure.message.contains(words), "{failure:?}");
        }
    }
}
