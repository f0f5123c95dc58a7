//! The C interface of the client in one's own process: its example is built with the system's compiler and speaks to a
//! real redis-server through a server's sidecar; wrong arguments are answered by codes.

#[path = "../capi/c_redis.rs"]
mod c_redis;
mod support;

use c_redis::{CRedis, RedisOptions, ReplyView};
use scotfree_io::conformance::ports::free_address;
use std::ffi::{c_char, c_int, CStr, CString};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::ptr::{null, null_mut};
use support::pair::{Pair, KEY};
use support::RedisServer;

/// `enum scot_code`.
const OK: c_int = 0;
const TIMED_OUT: c_int = 1;
const INVALID: c_int = 2;
const TOO_LARGE: c_int = 4;
const SYSTEM: c_int = 5;
const UNREACHABLE: c_int = 6;
const REFUSED: c_int = 7;
const FAULT: c_int = 8;

#[test]
fn a_program_in_c_speaks_to_a_real_redis() {
    let Some(redis) = RedisServer::start(&["--appendonly yes"]) else { return };
    let program = Example::compile();
    let key = redis.folder.join("cluster.key");
    fs::write(&key, "07".repeat(32)).expect("the folder is writable");
    let server = free_address();
    let pair = Pair::start_at(server, &redis, &[], |_| ());
    let ran = program.run(server, &key);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(
        String::from_utf8_lossy(&ran.stdout),
        "greeting: hello\ncount: 100\nlist: 2, the last is b\n\
         refused: 1, ERR value is not an integer or out of range\n"
    );
    assert_eq!(redis.connect().line("GET count"), b"$3\r\n100\r\n");
    pair.end();
    fs::write(&key, "no key").expect("the folder is writable");
    let refused = program.run(server, &key);
    let words = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && words.contains("scot key new"), "{words}");
}

#[test]
fn replies_of_all_types_come_as_they_are() {
    let Some((_redis, pair, mut client)) = connect() else { return };
    assert_eq!(client.command(&["SET", "k", "a b"]), Ok(Seen::of(1, "OK")));
    assert_eq!(client.command(&["GET", "k"]), Ok(Seen::of(4, "a b")));
    assert_eq!(client.command(&["GET", "none"]), Ok(Seen::of(0, "")));
    assert_eq!(client.command(&["INCRBY", "n", "-7"]), Ok(Seen { integer: -7, ..Seen::of(3, "") }));
    let wrong = client.command(&["LPUSH", "k", "x"]).expect("an error is a reply");
    assert!(wrong.kind == 2 && wrong.text.starts_with("WRONGTYPE"), "{wrong:?}");
    client.command(&["RPUSH", "l", "", "b"]).expect("a reply");
    client.command(&["MULTI"]).expect("a reply");
    client.command(&["LRANGE", "l", "0", "-1"]).expect("a reply");
    let nested = client.command(&["EXEC"]).expect("a reply");
    let list = Seen { elements: vec![Seen::of(4, ""), Seen::of(4, "b")], ..Seen::of(5, "") };
    assert_eq!(nested, Seen { elements: vec![list], ..Seen::of(5, "") });
    client.close();
    pair.end();
}

#[test]
fn words_may_have_any_bytes_if_their_lengths_are_said() {
    let Some((redis, pair, mut client)) = connect() else { return };
    let words: [&[u8]; 3] = [b"SET", b"a\0b", b"x\0\r\n"];
    let starts = words.map(|word| word.as_ptr().cast::<c_char>());
    let lens = words.map(<[u8]>::len);
    let mut reply = null_mut();
    // SAFETY: three words and their lengths, all alive.
    let code =
        unsafe { c_redis::scot_redis_command(client.0, 3, starts.as_ptr(), lens.as_ptr(), &raw mut reply) };
    assert_eq!((code, take(&mut reply)), (OK, Some(Seen::of(1, "OK"))));
    assert_eq!(redis.connect().call(&[b"GET".as_slice(), b"a\0b"]), b"$4\r\nx\0\r\n\r\n");
    assert_eq!(client.get(b"a\0b"), (OK, Some(Seen::of(4, "x\0\r\n"))));
    client.close();
    pair.end();
}

#[test]
fn wrong_arguments_are_named_and_nothing_is_executed() {
    let Some((redis, pair, mut client)) = connect() else { return };
    let mut reply = null_mut();
    let incr = [c"INCR".as_ptr(), c"n".as_ptr()];
    let holes = [c"INCR".as_ptr(), null()];
    let negative = [4, usize::MAX];
    let place = &raw mut reply;
    let cases: [(usize, *const *const c_char, *const usize, *mut *mut ReplyView, c_int, &str); 7] = [
        (0, incr.as_ptr(), null(), place, INVALID, "at least one word"),
        (2, null(), null(), place, INVALID, "the list of words is NULL"),
        (2, holes.as_ptr(), null(), place, INVALID, "a word is NULL"),
        (2, holes.as_ptr(), [4, 1].as_ptr(), place, INVALID, "a word is NULL and has 1 bytes"),
        (2, incr.as_ptr(), negative.as_ptr(), place, INVALID, "negative"),
        (usize::MAX, incr.as_ptr(), null(), place, TOO_LARGE, "at most 1048576 words"),
        (2, incr.as_ptr(), null(), null_mut(), INVALID, "place for the reply"),
    ];
    for (argc, argv, lens, place, expected, words) in cases {
        // SAFETY: pointers are NULL or valid; counts that are no counts are refused before anything is read.
        let code = unsafe { c_redis::scot_redis_command(client.0, argc, argv, lens, place) };
        assert_eq!(code, expected, "{words}");
        assert!(last_error().contains(words), "{}", last_error());
        assert!(reply.is_null());
    }
    // SAFETY: NULL is allowed everywhere.
    let without = unsafe {
        [
            c_redis::scot_redis_command(null_mut(), 2, incr.as_ptr(), null(), place),
            c_redis::scot_redis_send(null_mut(), 2, incr.as_ptr(), null()),
            c_redis::scot_redis_receive(null_mut(), place),
            c_redis::scot_redis_receive(client.0, null_mut()),
            c_redis::scot_redis_turn(null_mut()),
            c_redis::scot_redis_set(client.0, null(), 1, null(), 0),
            c_redis::scot_redis_set(client.0, c"n".as_ptr().cast(), 1, null(), 1),
            c_redis::scot_redis_get(client.0, null(), 1, place),
            c_redis::scot_redis_connect(null(), &raw mut client.0),
        ]
    };
    assert_eq!(without, [INVALID; 9]);
    assert!(client.0.is_null(), "a place for a client holds NULL after an error");
    assert_eq!(redis.connect().line("EXISTS n"), b":0\r\n");
    pair.end();
}

#[test]
fn what_a_client_may_do_after_an_error_is_told_by_codes() {
    let Some((redis, pair, mut client)) = connect() else { return };
    assert_eq!(client.receive(), (INVALID, None), "nobody has asked");
    assert_eq!(client.command(&["SUBSCRIBE", "c"]), Err(INVALID), "it never ends");
    assert_eq!(client.set(b"k", b"v"), OK, "a new connection");
    client.command(&["RPUSH", "list", "a"]).expect("a reply");
    assert_eq!(client.get(b"list"), (REFUSED, None));
    assert!(last_error().contains("WRONGTYPE"), "{}", last_error());
    redis.pause();
    assert_eq!(client.command(&["INCR", "n"]), Err(TIMED_OUT));
    redis.go_on();
    let mut late = client.receive();
    while late.0 == TIMED_OUT {
        late = client.receive();
    }
    assert_eq!(late, (OK, Some(Seen { integer: 1, ..Seen::of(3, "") })), "it came after all");
    assert_eq!(client.turn(), OK);
    client.close();
    client.close();
    assert_eq!((client.turn(), client.set(b"k", b"v")), (INVALID, INVALID), "it is closed");
    assert!(last_error().contains("the client is NULL"), "{}", last_error());
    pair.end();
}

#[test]
fn a_panic_is_a_fault_and_the_client_can_only_be_closed() {
    let Some((_redis, pair, mut client)) = connect() else { return };
    // SAFETY: it is alive, and nobody else uses it.
    let redis = unsafe { client.0.as_mut() }.expect("it is connected");
    assert!(redis.call(|_| panic!("planted")).is_err());
    assert_eq!([client.set(b"k", b"v"), client.get(b"k").0, client.turn()], [FAULT; 3]);
    assert!(last_error().contains("close it"), "{}", last_error());
    client.close();
    pair.end();
}

#[test]
fn options_that_make_no_sense_are_named() {
    let nowhere = CString::new(free_address().to_string()).expect("text");
    let good = RedisOptions {
        server: nowhere.as_ptr(),
        key_file: null(),
        cluster_key: KEY.as_ptr(),
        mode: 0,
        durability: 1,
        device_acks: 0,
        timeout_ms: 200,
        spin_us: 0,
    };
    let cases = [
        (RedisOptions { server: null(), ..good }, INVALID, "the server is NULL"),
        (RedisOptions { server: c"redis".as_ptr(), ..good }, INVALID, "`redis` is no address"),
        (RedisOptions { cluster_key: null(), ..good }, INVALID, "the cluster key is NULL"),
        (RedisOptions { key_file: c"/nowhere/key".as_ptr(), ..good }, SYSTEM, "/nowhere/key"),
        (RedisOptions { mode: 2, ..good }, INVALID, "no mode 2"),
        (RedisOptions { durability: 9, ..good }, INVALID, "durability"),
        (RedisOptions { device_acks: 9, ..good }, INVALID, "1 to"),
        (RedisOptions { ..good }, UNREACHABLE, "nothing answers at"),
    ];
    for (options, expected, words) in cases {
        let mut client = null_mut();
        // SAFETY: the options and what they point to are alive.
        let code = unsafe { c_redis::scot_redis_connect(&raw const options, &raw mut client) };
        assert_eq!((code, client), (expected, null_mut()), "{words}: {}", last_error());
        assert!(last_error().contains(words), "{}", last_error());
    }
}

/// A client as C has one.
struct Client(*mut CRedis);

/// A client, and what it speaks to.
fn connect() -> Option<(RedisServer, Pair, Client)> {
    let redis = RedisServer::start(&["--appendonly yes"])?;
    let server = free_address();
    let pair = Pair::start_at(server, &redis, &[], |_| ());
    let text = CString::new(server.to_string()).expect("text");
    let options = RedisOptions {
        server: text.as_ptr(),
        key_file: null(),
        cluster_key: KEY.as_ptr(),
        mode: 0,
        durability: 1,
        device_acks: 0,
        timeout_ms: 1_000,
        spin_us: 0,
    };
    let mut client = null_mut();
    // SAFETY: the options and what they point to are alive.
    let code = unsafe { c_redis::scot_redis_connect(&raw const options, &raw mut client) };
    assert_eq!(code, OK, "{}", last_error());
    Some((redis, pair, Client(client)))
}

impl Client {
    fn command(&mut self, words: &[&str]) -> Result<Seen, c_int> {
        let words: Vec<CString> = words.iter().map(|word| CString::new(*word).expect("text")).collect();
        let starts: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
        let mut reply = null_mut();
        // SAFETY: the words are alive and end with zeros.
        let code = unsafe {
            c_redis::scot_redis_command(self.0, starts.len(), starts.as_ptr(), null(), &raw mut reply)
        };
        take(&mut reply).ok_or(code)
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> c_int {
        // SAFETY: key and value are alive and as long as is said.
        unsafe {
            c_redis::scot_redis_set(
                self.0,
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
            )
        }
    }

    fn get(&mut self, key: &[u8]) -> (c_int, Option<Seen>) {
        let mut reply = null_mut();
        // SAFETY: the key is alive and as long as is said.
        let code = unsafe { c_redis::scot_redis_get(self.0, key.as_ptr().cast(), key.len(), &raw mut reply) };
        (code, take(&mut reply))
    }

    fn receive(&mut self) -> (c_int, Option<Seen>) {
        let mut reply = null_mut();
        // SAFETY: the place is ours.
        let code = unsafe { c_redis::scot_redis_receive(self.0, &raw mut reply) };
        (code, take(&mut reply))
    }

    fn turn(&mut self) -> c_int {
        // SAFETY: it is NULL or alive.
        unsafe { c_redis::scot_redis_turn(self.0) }
    }

    fn close(&mut self) {
        // SAFETY: it is NULL or alive, and NULL afterwards.
        assert_eq!(unsafe { c_redis::scot_redis_close(&raw mut self.0) }, OK);
        assert!(self.0.is_null());
    }
}

/// A reply as C sees it.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    kind: c_int,
    integer: i64,
    text: String,
    elements: Vec<Seen>,
}

impl Seen {
    fn of(kind: c_int, text: &str) -> Seen {
        Seen { kind, text: text.into(), ..Seen::default() }
    }

    /// # Safety
    /// The view is one of a reply that is not freed.
    unsafe fn copy(view: &ReplyView) -> Seen {
        // SAFETY: as many bytes as it says, and a zero.
        let with_zero = unsafe { std::slice::from_raw_parts(view.bytes.cast::<u8>(), view.byte_count + 1) };
        assert_eq!(with_zero.last(), Some(&0));
        let text = String::from_utf8_lossy(&with_zero[..view.byte_count]).into_owned();
        // SAFETY: as many elements as it says.
        let elements = unsafe { std::slice::from_raw_parts(view.elements, view.element_count) };
        // SAFETY: they are of the same reply.
        let elements = elements.iter().map(|element| unsafe { Seen::copy(element) }).collect();
        Seen { kind: view.kind, integer: view.integer, text, elements }
    }
}

/// Copies a reply, frees it, and frees it once more, which does nothing.
fn take(reply: &mut *mut ReplyView) -> Option<Seen> {
    // SAFETY: it is NULL or a reply that is not freed.
    let seen = unsafe { reply.as_ref() };
    // SAFETY: the same.
    let seen = seen.map(|view| unsafe { Seen::copy(view) });
    for _ in 0..2 {
        // SAFETY: it is NULL or a reply that is not freed, and NULL afterwards.
        unsafe { c_redis::scot_redis_free_reply(reply) };
        assert!(reply.is_null());
    }
    seen
}

fn last_error() -> String {
    // SAFETY: it is never NULL, ends with a zero, and no call comes before it is copied.
    unsafe { CStr::from_ptr(c_redis::c_api::scot_error_message()) }.to_string_lossy().into_owned()
}

/// The example in C, built.
struct Example(PathBuf);

impl Example {
    fn compile() -> Example {
        // The test lies in target/PROFILE/deps, the library in target/PROFILE/examples.
        let test = std::env::current_exe().expect("the test knows its own path");
        let profile = test.parent().and_then(Path::parent).expect("target/PROFILE/deps");
        build_library(profile);
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let program = profile.join(format!("redis_client_c-{}", std::process::id()));
        let status = Command::new("cc")
            .args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1"])
            .args(["-I", "include", "-I", "../scotfree-rpc/include", "examples-c/redis_client.c"])
            .arg(profile.join("examples/libscotfree_redis.a"))
            .args(["-lpthread", "-ldl", "-lm", "-o"])
            .arg(&program)
            .current_dir(here)
            .status();
        assert!(status.expect("a C compiler `cc` is installed (apt install gcc libc6-dev)").success());
        Example(program)
    }

    fn run(&self, server: SocketAddr, key_file: &Path) -> Output {
        Command::new(&self.0).arg(server.to_string()).arg(key_file).output().expect("it was built")
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Under `cargo test` of everything it is there already, which scripts/test.sh says: cargo itself would build half of it
/// again, as this package alone has other features. Under `cargo test --test c_redis` it may be an older one.
fn build_library(profile: &Path) {
    if std::env::var_os("EXAMPLES_ARE_BUILT").is_some() {
        return;
    }
    let release = profile.ends_with("release").then_some("--release");
    let status = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--offline",
            "--example",
            "scotfree_redis",
            "--package",
            "scotfree-sidecar",
        ])
        .args(release)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(status.expect("cargo runs").success(), "the library does not build");
}
