//! The C interface (`include/scotfree_transform.h`), as a static and a shared library `libscotfree_transform`.
//!
//! Invariant: unsafe code is what looks at C's memory, once, at the beginning of a call or at its end; a pointer is
//! checked for NULL where it may be. No panic crosses into C: it is a code, `Fault`.

use scotfree_transform::descriptor::{self, Loaded};
use scotfree_transform::dynamic::{missing, path_at, Dynamic, Editor, Misfit, Node, Scalar};
use scotfree_transform::{DecodeError, Kind, Limits, Shape, TypeSchema, NONE};
use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

/// `enum scot_transform_code`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
enum Code {
    Ok = 0,
    Invalid = 1,
    Absent = 2,
    Malformed = 3,
    Value = 4,
    Fault = 5,
}

/// Deeper may not be allowed, for the sake of the stack.
const DEPTH_MAX: u32 = 400;

/// `scot_transform_schema`.
pub struct CSchema(Arc<Loaded>);

/// `scot_transform_message`: a message, and the bytes that C looks at.
pub struct CMessage {
    message: Dynamic,
    encoded: Vec<u8>,
}

/// `scot_transform_limits`.
#[allow(clippy::struct_field_names)] // C's names.
#[repr(C)]
pub struct CLimits {
    message_bytes_max: u32,
    depth_max: u32,
    slots_bytes_max: u32,
    unknown_fields_max: u32,
}

/// `scot_transform_field_info`.
#[repr(C)]
pub struct FieldInfo {
    name: *const c_char,
    name_bytes: usize,
    number: u32,
    kind: c_int,
    is_many: c_int,
    is_map: c_int,
    of: u16,
}

struct Failure {
    code: Code,
    words: String,
}

type Outcome = Result<(), Failure>;

fn failure(code: Code, words: impl Into<String>) -> Failure {
    Failure { code, words: words.into() }
}

impl From<Misfit> for Failure {
    fn from(why: Misfit) -> Failure {
        let code = match why {
            Misfit::NoType | Misfit::NoField | Misfit::Count | Misfit::Stale => Code::Invalid,
            Misfit::Absent | Misfit::NoElement => Code::Absent,
            Misfit::Kind
            | Misfit::Range
            | Misfit::NotInEnum
            | Misfit::NotUtf8
            | Misfit::TooDeep
            | Misfit::Unknown(_)
            | Misfit::Exhausted(_) => Code::Value,
        };
        failure(code, why.to_string())
    }
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Does what a call does; a panic is a failure.
fn call(work: impl FnOnce() -> Outcome) -> c_int {
    let outcome = catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(failure(Code::Fault, "a fault of this library; free what it happened to")));
    let Err(failure) = outcome else { return Code::Ok as c_int };
    let words = CString::new(failure.words.replace('\0', " ")).unwrap_or_default();
    LAST_ERROR.with_borrow_mut(|last| *last = words);
    failure.code as c_int
}

// ---- looking at C's memory

fn is_null(what: &str) -> Failure {
    failure(Code::Invalid, format!("{what} is NULL"))
}

/// # Safety
/// `pointer` is NULL or points to an object that nobody changes during `'a`.
unsafe fn shared<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller of this function promises it.
    unsafe { pointer.as_ref() }.ok_or_else(|| is_null(what))
}

/// # Safety
/// `pointer` is NULL or points to an object that nobody else uses during `'a`.
unsafe fn owned<'a, T>(pointer: *mut T, what: &str) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller of this function promises it.
    unsafe { pointer.as_mut() }.ok_or_else(|| is_null(what))
}

/// # Safety
/// `start` is NULL or points to `length` bytes that nobody changes during `'a`.
unsafe fn bytes<'a>(start: *const c_void, length: usize) -> Result<&'a [u8], Failure> {
    match (start.is_null(), isize::try_from(length)) {
        (_, Ok(0)) => Ok(&[]),
        (true, _) => Err(is_null("what has bytes")),
        (false, Err(_)) => Err(failure(Code::Invalid, format!("nothing has {length} bytes"))),
        // SAFETY: not NULL, and as long as the caller of this function promises.
        (false, Ok(_)) => Ok(unsafe { std::slice::from_raw_parts(start.cast(), length) }),
    }
}

/// The bytes at `start`, as a copy if they lie in the message that they are for: what `get_bytes` gave.
///
/// # Safety
/// As of `bytes`; `message` is NULL or a message that nobody else uses.
unsafe fn bytes_for<'a>(
    message: *const CMessage,
    start: *const c_void,
    length: usize,
) -> Result<Cow<'a, [u8]>, Failure> {
    // SAFETY: the caller of this function promises the same.
    let bytes = unsafe { bytes(start, length) }?;
    // SAFETY: as above; the reference ends with this call.
    let message = &unsafe { shared(message, "the message") }?.message;
    Ok(if message.holds(bytes) { Cow::Owned(bytes.to_vec()) } else { Cow::Borrowed(bytes) })
}

/// # Safety
/// `text` is NULL or points to a string with a closing zero that nobody changes during `'a`.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(is_null("the name"));
    }
    // SAFETY: not NULL, and closed by a zero as the caller of this function promises.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| failure(Code::Invalid, "the name is no UTF-8"))
}

/// # Safety
/// `place` is NULL or writable.
unsafe fn put<T>(place: *mut T, value: T) -> Outcome {
    if place.is_null() {
        return Err(is_null("the place for the result"));
    }
    // SAFETY: not NULL, and writable as the caller of this function promises.
    unsafe { place.write(value) };
    Ok(())
}

/// Gives C an object to hold, NULL where there is none.
///
/// # Safety
/// `place` is NULL or writable.
unsafe fn give<T>(place: *mut *mut T, object: impl FnOnce() -> Result<T, Failure>) -> Outcome {
    // SAFETY: the caller of this function promises the same.
    unsafe { put(place, std::ptr::null_mut()) }?;
    let object = Box::into_raw(Box::new(object()?));
    // SAFETY: as above.
    unsafe { put(place, object) }
}

/// Ends what `give` gave.
///
/// # Safety
/// `object` is NULL or came from `give`, and is not used afterwards.
unsafe fn end<T>(object: *mut T) {
    if !object.is_null() {
        // SAFETY: it was made by `Box::into_raw`, and C gives it up.
        drop(unsafe { Box::from_raw(object) });
    }
}

// ---- schema

/// The last error of the calling thread.
#[no_mangle]
pub extern "C" fn scot_transform_error_message() -> *const c_char {
    LAST_ERROR.with_borrow(|last| last.as_ptr())
}

/// Loads a set of descriptors.
///
/// # Safety
/// As in `scotfree_transform.h`, here and below: pointers are NULL or valid, strings end with a zero, and a message is
/// used by one thread at a time.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_schema_load(
    descriptors: *const c_void,
    length: usize,
    place: *mut *mut CSchema,
) -> c_int {
    call(|| {
        let load = || {
            // SAFETY: C's promise about the bytes.
            let set = unsafe { bytes(descriptors, length) }?;
            let loaded = descriptor::read(set).and_then(|files| descriptor::types_of(&files));
            let loaded = loaded.map_err(|why| failure(Code::Malformed, why.to_string()))?;
            if loaded.types.types.is_empty() {
                let words = "there are no types in it: a FileDescriptorSet is expected, as protoc writes it";
                return Err(failure(Code::Malformed, words));
            }
            Ok(CSchema(Arc::new(loaded)))
        };
        // SAFETY: C's promise about `place`.
        unsafe { give(place, load) }
    })
}

/// Frees a schema.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_schema_free(schema: *mut CSchema) {
    // SAFETY: C's promise about handles.
    unsafe { end(schema) }
}

/// Finds a type.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_find_type(
    schema: *const CSchema,
    name: *const c_char,
    place: *mut u16,
) -> c_int {
    call(|| {
        // SAFETY: C's promise about handles.
        let schema = unsafe { shared(schema, "the schema") }?;
        // SAFETY: C's promise about strings.
        let name = unsafe { text(name) }?;
        let index = schema.0.by_name.get(&format!(".{name}")).copied();
        let index = index.ok_or_else(|| failure(Code::Absent, format!("there is no type `{name}`")))?;
        // SAFETY: C's promise about `place`.
        unsafe { put(place, index) }
    })
}

/// Finds a field of a type by `which`, and tells C its handle.
///
/// # Safety
/// As above.
unsafe fn find(
    schema: *const CSchema,
    type_index: u16,
    place: *mut u32,
    which: impl FnOnce(&TypeSchema) -> Result<usize, Failure>,
) -> Outcome {
    // SAFETY: C's promise about handles.
    let schema = unsafe { shared(schema, "the schema") }?;
    let of = schema.0.types.types.get(type_index as usize).ok_or(Misfit::NoType)?;
    let handle = u32::from(type_index) << 16 | which(of)? as u32;
    // SAFETY: C's promise about `place`.
    unsafe { put(place, handle) }
}

/// Finds a field by its name.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_find_field(
    schema: *const CSchema,
    type_index: u16,
    name: *const c_char,
    place: *mut u32,
) -> c_int {
    call(|| {
        // SAFETY: C's promise about strings.
        let name = unsafe { text(name) }?;
        let named = |of: &TypeSchema| {
            let found = of.names.iter().position(|its| its == name);
            found.ok_or_else(|| failure(Code::Absent, format!("{} has no field `{name}`", of.name)))
        };
        // SAFETY: C's promises are passed on.
        unsafe { find(schema, type_index, place, named) }
    })
}

/// Finds a field by its number.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_find_number(
    schema: *const CSchema,
    type_index: u16,
    number: u32,
    place: *mut u32,
) -> c_int {
    call(|| {
        let numbered = |of: &TypeSchema| {
            let words = || format!("{} has no field of number {number}", of.name);
            of.place(number).ok_or_else(|| failure(Code::Absent, words()))
        };
        // SAFETY: C's promises are passed on.
        unsafe { find(schema, type_index, place, numbered) }
    })
}

/// Finds a field by its place.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_find_place(
    schema: *const CSchema,
    type_index: u16,
    at: usize,
    place: *mut u32,
) -> c_int {
    call(|| {
        let there = |of: &TypeSchema| {
            let words = || format!("{} has {} fields, and none at {at}", of.name, of.fields.len());
            (at < of.fields.len()).then_some(at).ok_or_else(|| failure(Code::Absent, words()))
        };
        // SAFETY: C's promises are passed on.
        unsafe { find(schema, type_index, place, there) }
    })
}

/// Describes a field.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_describe(
    schema: *const CSchema,
    handle: u32,
    info: *mut FieldInfo,
) -> c_int {
    call(|| {
        // SAFETY: C's promise about handles.
        let schema = unsafe { shared(schema, "the schema") }?;
        let of = schema.0.types.types.get((handle >> 16) as usize).ok_or(Misfit::NoType)?;
        let at = (handle & 0xffff) as usize;
        let (Some(field), Some(name)) = (of.fields.get(at), of.names.get(at)) else {
            return Err(Misfit::NoField.into());
        };
        let described = FieldInfo {
            name: name.as_ptr().cast(),
            name_bytes: name.len(),
            number: field.number,
            kind: kind(field.kind),
            is_many: field.shape.is_many().into(),
            is_map: (field.shape == Shape::Map).into(),
            of: if matches!(field.kind, Kind::Message | Kind::Group) { field.sub } else { NONE },
        };
        // SAFETY: C's promise about `info`.
        unsafe { put(info, described) }
    })
}

/// `enum scot_transform_kind`.
fn kind(kind: Kind) -> c_int {
    match kind {
        Kind::Bool => 0,
        Kind::Int32
        | Kind::Int64
        | Kind::Sint32
        | Kind::Sint64
        | Kind::Sfixed32
        | Kind::Sfixed64
        | Kind::Int8
        | Kind::Int16 => 1,
        Kind::Uint32 | Kind::Uint64 | Kind::Fixed32 | Kind::Fixed64 => 2,
        Kind::Float | Kind::Double => 3,
        Kind::String => 4,
        Kind::Bytes | Kind::Uuid => 5,
        Kind::Enum | Kind::ClosedEnum => 6,
        Kind::Message | Kind::Group => 7,
    }
}

// ---- messages

/// Makes an empty message.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_message_new(
    schema: *const CSchema,
    type_index: u16,
    limits: *const CLimits,
    place: *mut *mut CMessage,
) -> c_int {
    call(|| {
        let new = || {
            // SAFETY: C's promise about handles.
            let schema = unsafe { shared(schema, "the schema") }?;
            // SAFETY: C's promise about `limits`.
            let limits = limits_of(unsafe { limits.as_ref() })?;
            let message = Dynamic::new(schema.0.clone(), type_index, limits)?;
            Ok(CMessage { message, encoded: Vec::new() })
        };
        // SAFETY: C's promise about `place`.
        unsafe { give(place, new) }
    })
}

fn limits_of(asked: Option<&CLimits>) -> Result<Limits, Failure> {
    let default = Limits::default();
    let Some(asked) = asked else { return Ok(default) };
    if asked.depth_max > DEPTH_MAX {
        let words = format!("depth_max is {}; at most {DEPTH_MAX} is expected", asked.depth_max);
        return Err(failure(Code::Invalid, words));
    }
    let or = |asked: u32, default: u32| if asked == 0 { default } else { asked };
    Ok(Limits {
        message_bytes_max: or(asked.message_bytes_max, default.message_bytes_max),
        depth_max: or(asked.depth_max, default.depth_max.into()) as u16,
        slots_bytes_max: or(asked.slots_bytes_max, default.slots_bytes_max),
        unknown_fields_max: or(asked.unknown_fields_max, default.unknown_fields_max),
    })
}

/// Frees a message.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_message_free(message: *mut CMessage) {
    // SAFETY: C's promise about handles.
    unsafe { end(message) }
}

/// Empties a message.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_clear(message: *mut CMessage) -> c_int {
    // SAFETY: C's promise about handles.
    call(|| Ok(unsafe { owned(message, "the message") }?.message.clear()?))
}

/// Decodes a copy of the bytes.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_decode(
    message: *mut CMessage,
    start: *const c_void,
    length: usize,
) -> c_int {
    call(|| {
        // SAFETY: C's promises about the bytes and about handles.
        let input = unsafe { bytes_for(message, start, length) };
        // SAFETY: C's promise about handles.
        let message = &mut unsafe { owned(message, "the message") }?.message;
        message.clear()?;
        let input = input?;
        message.decode(&input).map_err(|why| refused(message, &input, why))
    })
}

/// Why bytes are no message, and in which field.
fn refused(message: &Dynamic, input: &[u8], why: DecodeError) -> Failure {
    let types = &message.loaded().types;
    let index = message.index(Node::ROOT).unwrap_or_default();
    let path = why.at().map_or_else(String::new, |at| path_at(types, index, input, at));
    let place = if path.is_empty() { path } else { format!(", {path}") };
    failure(Code::Malformed, format!("{}{place}: {why}", types.types[index as usize].name))
}

/// Encodes a message.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_encode(
    message: *mut CMessage,
    start: *mut *const c_void,
    length: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: C's promise about handles.
        let CMessage { message, encoded } = unsafe { owned(message, "the message") }?;
        if let Some(path) = missing(message.view(Node::ROOT)?) {
            return Err(failure(Code::Value, format!("{path} is required, and has no value")));
        }
        encoded.clear();
        message.encode(encoded)?;
        // SAFETY: C's promise about the places.
        unsafe { put_bytes(start, length, encoded) }
    })
}

/// # Safety
/// `start` and `length` are NULL or writable.
unsafe fn put_bytes(start: *mut *const c_void, length: *mut usize, bytes: &[u8]) -> Outcome {
    // SAFETY: the caller of this function promises the same.
    unsafe { put(length, bytes.len()) }?;
    // SAFETY: as above.
    unsafe { put(start, bytes.as_ptr().cast()) }
}

/// The place of a field in the type of a node.
fn place_of(message: &Dynamic, node: u64, handle: u32) -> Result<(Node, usize), Failure> {
    let node = Node::from_number(node);
    let index = message.index(node)?;
    if u32::from(index) != handle >> 16 {
        let name = &message.loaded().types.types[index as usize].name;
        return Err(failure(Code::Invalid, format!("the field is none of {name}, which the node is of")));
    }
    Ok((node, (handle & 0xffff) as usize))
}

/// How many values a field has.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_count(
    message: *const CMessage,
    node: u64,
    handle: u32,
    count: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: C's promise about handles.
        let message = &unsafe { shared(message, "the message") }?.message;
        let (node, at) = place_of(message, node, handle)?;
        let view = message.view(node)?;
        let field = view.schema().fields.get(at).ok_or(Misfit::NoField)?;
        let there = if field.shape.is_many() { view.count(field) } else { view.has(field).into() };
        // SAFETY: C's promise about `count`.
        unsafe { put(count, there) }
    })
}

/// A value of a field.
fn value(message: &Dynamic, node: u64, handle: u32, index: usize) -> Result<Scalar<'_>, Failure> {
    let (node, at) = place_of(message, node, handle)?;
    let view = message.view(node)?;
    let field = view.schema().fields.get(at).ok_or(Misfit::NoField)?;
    let found = match (field.shape.is_many(), index) {
        (true, _) if index < view.count(field) => Scalar::of(field.kind, view.element(field, index)),
        (false, 0) => view.get(field).map_or(Scalar::zero(field.kind), |value| Scalar::of(field.kind, value)),
        _ => return Err(Misfit::NoElement.into()),
    };
    Ok(found.ok_or(Misfit::Kind)?)
}

/// Tells C a value, as `take` has it.
///
/// # Safety
/// As above.
unsafe fn get<T>(
    message: *const CMessage,
    from: (u64, u32, usize),
    place: *mut T,
    take: impl FnOnce(Scalar<'_>) -> Result<T, Misfit>,
) -> c_int {
    call(|| {
        // SAFETY: C's promise about handles.
        let message = &unsafe { shared(message, "the message") }?.message;
        let value = value(message, from.0, from.1, from.2)?;
        // SAFETY: C's promise about `place`.
        unsafe { put(place, take(value)?) }
    })
}

/// A truth.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_get_bool(
    message: *const CMessage,
    node: u64,
    handle: u32,
    index: usize,
    place: *mut c_int,
) -> c_int {
    let take = |value: Scalar<'_>| match value {
        Scalar::Bool(is_true) => Ok(is_true.into()),
        _ => Err(Misfit::Kind),
    };
    // SAFETY: C's promises are passed on.
    unsafe { get(message, (node, handle, index), place, take) }
}

/// A number.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_get_int(
    message: *const CMessage,
    node: u64,
    handle: u32,
    index: usize,
    place: *mut i64,
) -> c_int {
    let take = |value: Scalar<'_>| match value {
        Scalar::Signed(number) => Ok(number),
        Scalar::Unsigned(number) => i64::try_from(number).map_err(|_| Misfit::Range),
        _ => Err(Misfit::Kind),
    };
    // SAFETY: C's promises are passed on.
    unsafe { get(message, (node, handle, index), place, take) }
}

/// A number that is not negative.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_get_uint(
    message: *const CMessage,
    node: u64,
    handle: u32,
    index: usize,
    place: *mut u64,
) -> c_int {
    let take = |value: Scalar<'_>| match value {
        Scalar::Unsigned(number) => Ok(number),
        Scalar::Signed(number) => u64::try_from(number).map_err(|_| Misfit::Range),
        _ => Err(Misfit::Kind),
    };
    // SAFETY: C's promises are passed on.
    unsafe { get(message, (node, handle, index), place, take) }
}

/// A number with a point.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_get_double(
    message: *const CMessage,
    node: u64,
    handle: u32,
    index: usize,
    place: *mut f64,
) -> c_int {
    let take = |value: Scalar<'_>| match value {
        Scalar::Float(number) => Ok(number),
        _ => Err(Misfit::Kind),
    };
    // SAFETY: C's promises are passed on.
    unsafe { get(message, (node, handle, index), place, take) }
}

/// A string's or field of bytes' bytes.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_get_bytes(
    message: *const CMessage,
    node: u64,
    handle: u32,
    index: usize,
    start: *mut *const c_void,
    length: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: C's promise about handles.
        let message = &unsafe { shared(message, "the message") }?.message;
        let Scalar::Bytes(bytes) = value(message, node, handle, index)? else {
            return Err(Misfit::Kind.into());
        };
        // SAFETY: C's promise about the places.
        unsafe { put_bytes(start, length, bytes) }
    })
}

/// A message.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_get_message(
    message: *mut CMessage,
    node: u64,
    handle: u32,
    index: usize,
    place: *mut u64,
) -> c_int {
    // SAFETY: C's promises are passed on.
    unsafe { within(message, node, handle, place, |message, node, at| message.find(node, at, index)) }
}

/// Tells C the node of a message within another one.
///
/// # Safety
/// As above.
unsafe fn within(
    message: *mut CMessage,
    node: u64,
    handle: u32,
    place: *mut u64,
    find: impl FnOnce(&mut Dynamic, Node, usize) -> Result<Node, Misfit>,
) -> c_int {
    call(|| {
        // SAFETY: C's promise about handles.
        let message = &mut unsafe { owned(message, "the message") }?.message;
        let (node, at) = place_of(message, node, handle)?;
        // Before anything is made.
        if place.is_null() {
            return Err(is_null("the place for the result"));
        }
        let found = find(message, node, at)?;
        // SAFETY: C's promise about `place`.
        unsafe { put(place, found.number()) }
    })
}

/// Changes a message.
///
/// # Safety
/// As above.
unsafe fn change(
    message: *mut CMessage,
    node: u64,
    handle: u32,
    change: impl FnOnce(&mut Editor<'_>, usize) -> Result<(), Misfit>,
) -> c_int {
    call(|| {
        // SAFETY: C's promise about handles.
        let message = &mut unsafe { owned(message, "the message") }?.message;
        let (node, at) = place_of(message, node, handle)?;
        let mut editor = message.edit(node)?;
        let schema = editor.schema();
        change(&mut editor, at).map_err(|why| {
            let name = schema.names.get(at).map_or("", |name| name);
            let Failure { code, words } = why.into();
            failure(code, format!("{}.{name}: {words}", schema.name))
        })
    })
}

/// Sets a truth.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_set_bool(
    message: *mut CMessage,
    node: u64,
    handle: u32,
    value: c_int,
) -> c_int {
    // SAFETY: C's promises are passed on.
    unsafe { change(message, node, handle, |to, at| to.set(at, Scalar::Bool(value != 0))) }
}

/// Sets a number.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_set_int(
    message: *mut CMessage,
    node: u64,
    handle: u32,
    value: i64,
) -> c_int {
    // SAFETY: C's promises are passed on.
    unsafe { change(message, node, handle, |to, at| to.set(at, Scalar::Signed(value))) }
}

/// Sets a number that is not negative.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_set_uint(
    message: *mut CMessage,
    node: u64,
    handle: u32,
    value: u64,
) -> c_int {
    // SAFETY: C's promises are passed on.
    unsafe { change(message, node, handle, |to, at| to.set(at, Scalar::Unsigned(value))) }
}

/// Sets a number with a point.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_set_double(
    message: *mut CMessage,
    node: u64,
    handle: u32,
    value: f64,
) -> c_int {
    // SAFETY: C's promises are passed on.
    unsafe { change(message, node, handle, |to, at| to.set(at, Scalar::Float(value))) }
}

/// Sets a string or bytes.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_set_bytes(
    message: *mut CMessage,
    node: u64,
    handle: u32,
    start: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: C's promises about the bytes and about handles.
    match unsafe { bytes_for(message, start, length) } {
        // SAFETY: C's promises are passed on.
        Ok(bytes) => unsafe { change(message, node, handle, |to, at| to.set(at, Scalar::Bytes(&bytes))) },
        Err(failure) => call(|| Err(failure)),
    }
}

/// The message of a field of one.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_set_message(
    message: *mut CMessage,
    node: u64,
    handle: u32,
    place: *mut u64,
) -> c_int {
    // SAFETY: C's promises are passed on.
    unsafe { within(message, node, handle, place, Dynamic::within) }
}

/// Puts a truth behind others.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_add_bool(
    message: *mut CMessage,
    node: u64,
    handle: u32,
    value: c_int,
) -> c_int {
    // SAFETY: C's promises are passed on.
    unsafe { change(message, node, handle, |to, at| to.push(at, Scalar::Bool(value != 0))) }
}

/// Puts a number behind others.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_add_int(
    message: *mut CMessage,
    node: u64,
    handle: u32,
    value: i64,
) -> c_int {
    // SAFETY: C's promises are passed on.
    unsafe { change(message, node, handle, |to, at| to.push(at, Scalar::Signed(value))) }
}

/// Puts a number that is not negative behind others.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_add_uint(
    message: *mut CMessage,
    node: u64,
    handle: u32,
    value: u64,
) -> c_int {
    // SAFETY: C's promises are passed on.
    unsafe { change(message, node, handle, |to, at| to.push(at, Scalar::Unsigned(value))) }
}

/// Puts a number with a point behind others.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_add_double(
    message: *mut CMessage,
    node: u64,
    handle: u32,
    value: f64,
) -> c_int {
    // SAFETY: C's promises are passed on.
    unsafe { change(message, node, handle, |to, at| to.push(at, Scalar::Float(value))) }
}

/// Puts a string or bytes behind others.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_add_bytes(
    message: *mut CMessage,
    node: u64,
    handle: u32,
    start: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: C's promises about the bytes and about handles.
    match unsafe { bytes_for(message, start, length) } {
        // SAFETY: C's promises are passed on.
        Ok(bytes) => unsafe { change(message, node, handle, |to, at| to.push(at, Scalar::Bytes(&bytes))) },
        Err(failure) => call(|| Err(failure)),
    }
}

/// Puts an empty message behind others.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_add_message(
    message: *mut CMessage,
    node: u64,
    handle: u32,
    place: *mut u64,
) -> c_int {
    // SAFETY: C's promises are passed on.
    unsafe { within(message, node, handle, place, Dynamic::push) }
}

/// Has a field be absent.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_clear_field(message: *mut CMessage, node: u64, handle: u32) -> c_int {
    // SAFETY: C's promises are passed on.
    unsafe {
        change(message, node, handle, |to, at| {
            to.clear(at)?;
            Ok(())
        })
    }
}

/// A run of unknown fields.
///
/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn scot_transform_get_unknown(
    message: *const CMessage,
    node: u64,
    index: usize,
    start: *mut *const c_void,
    length: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: C's promise about handles.
        let message = &unsafe { shared(message, "the message") }?.message;
        let run = message.view(Node::from_number(node))?.unknown().nth(index);
        let run =
            run.ok_or_else(|| failure(Code::Absent, format!("there is no run {index} of unknown fields")))?;
        // SAFETY: C's promise about the places.
        unsafe { put_bytes(start, length, run) }
    })
}
