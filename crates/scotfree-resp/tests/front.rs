//! The front half alone: limits, order, and what a hostile client can do.

use proptest::prelude::*;
use scotfree_core::KeyHash;
use scotfree_resp::codec::Limits;
use scotfree_resp::description::Description;
use scotfree_resp::front::clients::Outcome;
use scotfree_resp::front::{ClientFront, EarlyRule, FrontAction, FrontConfig, FrontRequest, Identity};
use scotfree_resp::payload::{
    write_response, RequestFlags, RequestHead, RequestKind, RequestPayload, ResponseFlags,
};
use std::sync::Arc;

const NOW_MS: i64 = 1_700_000_000_000;

struct Bench {
    front: ClientFront,
    actions: Vec<FrontAction>,
}

impl Bench {
    fn new(config: FrontConfig) -> Bench {
        Bench::told(config, Description::of_table())
    }

    fn told(config: FrontConfig, description: Description) -> Bench {
        let identity = Identity::new(1, 77);
        Bench {
            front: ClientFront::new(Arc::new(config), Arc::new(description), identity),
            actions: Vec::new(),
        }
    }

    /// One whose server can be asked whether it would queue a command, and may have a reason not to.
    fn doubtful() -> Bench {
        let description = Description { asks: true, early_allowed: false, ..Description::of_table() };
        Bench::told(FrontConfig::default(), description)
    }

    /// Sends one line, which leads to a question whether the server would queue this.
    fn asks(&mut self, line: &str, about: &str) -> u64 {
        let requests = self.send(format!("{line}\r\n").as_bytes());
        let [request] = &requests[..] else { panic!("{line}: {requests:?}") };
        let parsed = RequestPayload::parse(&request.payload).expect("a payload");
        assert!(parsed.head.flags.has(RequestFlags::ASK) && request.kind == RequestKind::Read, "{line}");
        assert!(parsed.args(&request.payload, 0).is(0, about), "{line}");
        request.id
    }

    fn send(&mut self, bytes: &[u8]) -> Vec<FrontRequest> {
        self.front.on_bytes(NOW_MS, bytes, &mut self.actions);
        self.requests()
    }

    fn respond(&mut self, id: u64, flags: ResponseFlags, reply: &[u8]) -> Vec<FrontRequest> {
        let mut response = Vec::new();
        write_response(&mut response, flags, reply);
        self.front.on_response(NOW_MS, id, &response, &mut self.actions);
        self.requests()
    }

    fn requests(&mut self) -> Vec<FrontRequest> {
        let mut requests = Vec::new();
        self.actions.retain(|action| match action {
            FrontAction::Request(request) => {
                requests.push(request.clone());
                false
            }
            _ => true,
        });
        requests
    }

    fn output(&mut self) -> String {
        let text = String::from_utf8_lossy(self.front.output()).into_owned();
        self.front.sent(text.len());
        text
    }
}

fn early_allowed() -> ResponseFlags {
    ResponseFlags::NONE.with_if(true, ResponseFlags::EARLY_ALLOWED)
}

#[test]
fn at_the_limit_of_waiting_commands_no_more_is_read_until_one_is_answered() {
    let mut bench = Bench::new(FrontConfig { pending_max: 3, ..FrontConfig::default() });
    let requests = bench.send(&b"GET k\r\n".repeat(5));
    assert_eq!((requests.len(), bench.front.wants_input()), (3, false));
    let more = bench.respond(requests[0].id, early_allowed(), b"$1\r\n1\r\n");
    assert_eq!((more.len(), bench.front.wants_input()), (1, false));
    assert_eq!(bench.output(), "$1\r\n1\r\n");
    // Answered out of order, replies leave in order.
    bench.respond(more[0].id, early_allowed(), b"$1\r\n4\r\n");
    bench.respond(requests[2].id, early_allowed(), b"$1\r\n3\r\n");
    assert_eq!(bench.output(), "");
    bench.respond(requests[1].id, early_allowed(), b"$1\r\n2\r\n");
    assert_eq!(bench.output(), "$1\r\n2\r\n$1\r\n3\r\n$1\r\n4\r\n");
    assert!(bench.front.wants_input());
}

#[test]
fn a_client_that_does_not_read_is_not_read() {
    let mut bench = Bench::new(FrontConfig { output_bytes_max: 10, ..FrontConfig::default() });
    bench.send(&b"MULTI\r\nDISCARD\r\n".repeat(5));
    assert!(!bench.front.wants_input());
    let said = bench.output();
    assert!(said.len() < 40, "{said}");
    bench.send(b"");
    assert!(!bench.output().is_empty(), "what had arrived goes on when there is room");
}

#[test]
fn early_is_for_the_prefixes_given_and_while_the_server_allows_it() {
    let early = EarlyRule::Prefixes(vec![b"cache:".to_vec()]);
    let mut bench = Bench::new(FrontConfig { early, ..FrontConfig::default() });
    let requests = bench.send(b"SET cache:a 1\r\nSET other 1\r\nSETEX cache:b 10 x\r\nINCR cache:a\r\n");
    let early: Vec<bool> = requests.iter().map(|request| request.early.is_some()).collect();
    assert_eq!(early, [true, false, true, false]);
    assert!(requests.iter().all(|request| request.kind == RequestKind::Update));
    let head = RequestHead::parse(&requests[0].payload).expect("a payload");
    assert!(head.flags.has(RequestFlags::EARLY));
    // The device's word is enough, the server's later one changes nothing.
    bench.front.on_early(NOW_MS, requests[0].id, b"+OK\r\n", &mut bench.actions);
    assert_eq!(bench.output(), "+OK\r\n");
    bench.respond(requests[0].id, ResponseFlags::NONE, b"-OOM\r\n");
    assert_eq!(bench.output(), "");
    let requests = bench.send(b"SET cache:a 2\r\n");
    assert_eq!(requests[0].early, None, "the server has said that early answers stop");
    bench.respond(requests[0].id, early_allowed(), b"+OK\r\n");
    assert!(bench.send(b"SET cache:a 3\r\n")[0].early.is_some());
}

#[test]
fn a_connection_that_only_devices_answer_is_told_that_early_answers_stop() {
    let mut bench = Bench::new(FrontConfig { early: EarlyRule::Always, ..FrontConfig::default() });
    let requests = bench.send(b"SET a 1\r\n");
    bench.front.on_early(NOW_MS, requests[0].id, b"+OK\r\n", &mut bench.actions);
    bench.front.allow_early(false);
    assert_eq!(bench.send(b"SET a 2\r\n")[0].early, None);
    bench.front.allow_early(true);
    assert!(bench.send(b"SET a 3\r\n")[0].early.is_some());
}

#[test]
fn an_early_command_with_wrong_arguments_is_not_answered_early() {
    let mut bench = Bench::new(FrontConfig { early: EarlyRule::Always, ..FrontConfig::default() });
    let requests = bench.send(b"SETEX k 0 v\r\nSET k v EX 0\r\nSET k v EX\r\nSET k v FOO\r\n");
    assert!(requests.iter().all(|request| request.early.is_none() && request.kind == RequestKind::Bypass));
}

#[test]
fn relative_times_are_absolute_in_the_payload() {
    let mut bench = Bench::new(FrontConfig::default());
    let requests = bench.send(b"SETEX k 10 v\r\nMULTI\r\nEXPIRE k 5\r\nEXEC\r\n");
    let texts: Vec<String> =
        requests.iter().map(|request| String::from_utf8_lossy(&request.payload).into_owned()).collect();
    assert!(texts[0].contains("PXAT") && texts[0].contains("1700000010000"), "{}", texts[0]);
    assert!(texts[1].contains("PEXPIREAT") && texts[1].contains("1700000005000"), "{}", texts[1]);
}

#[test]
fn a_transaction_is_as_careful_as_its_most_careful_command() {
    let mut bench = Bench::new(FrontConfig::default());
    for (commands, kind) in [
        ("GET a\r\nLRANGE l 0 -1", RequestKind::Read),
        ("GET a\r\nSET a 1", RequestKind::Update),
        ("SET a 1\r\nSPOP s", RequestKind::Bypass),
        ("BLPOP l 0", RequestKind::Update),
    ] {
        let requests = bench.send(format!("MULTI\r\n{commands}\r\nEXEC\r\n").as_bytes());
        assert_eq!(requests[0].kind, kind, "{commands}");
        assert_eq!(
            RequestPayload::parse(&requests[0].payload).expect("a payload").len(),
            commands.lines().count()
        );
    }
}

#[test]
fn limits_are_errors_that_name_them() {
    let limits = Limits { whole_bytes_max: 200, ..Limits::default() };
    let config = FrontConfig { transaction_commands_max: 2, limits, ..FrontConfig::default() };
    let mut bench = Bench::new(config);
    bench.send(b"MULTI\r\nPING\r\nPING\r\nPING\r\nEXEC\r\n");
    let said = bench.output();
    assert!(
        said.contains("more than 2 commands (transaction_commands_max) or 200 bytes")
            && said.contains("-EXECABORT"),
        "{said}"
    );
    assert!(bench.send(format!("SET k {}\r\n", "x".repeat(300)).as_bytes()).is_empty());
    assert!(bench.output().contains("may have 200"));
    assert_eq!(bench.front.counters().over_limit, 2);
}

#[test]
fn a_command_that_is_too_large_is_refused_when_its_length_is_announced() {
    let limits = Limits { whole_bytes_max: 200, ..Limits::default() };
    let mut bench = Bench::new(FrontConfig { limits, ..FrontConfig::default() });
    assert!(bench.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$400000000\r\n").is_empty());
    let said = bench.output();
    assert!(said.starts_with("-ERR Protocol error: invalid bulk length"), "{said}");
    assert!(said.contains("may have 200"), "{said}");
    assert_eq!(bench.actions, [FrontAction::Close]);
    assert_eq!((bench.front.input_bytes(), bench.front.counters().over_limit), (0, 1));
}

#[test]
fn what_cannot_be_answered_ends_the_connection_with_an_error() {
    let mut bench = Bench::new(FrontConfig::default());
    let requests = bench.send(b"INCR a\r\nINCR b\r\nINCR c\r\n");
    bench.respond(requests[0].id, early_allowed(), b":1\r\n");
    bench.front.on_failure(NOW_MS, requests[1].id, "the session has ended", &mut bench.actions);
    assert_eq!(bench.output(), ":1\r\n-ERR scotfree: the session has ended\r\n");
    assert_eq!(bench.actions, [FrontAction::Close]);
    bench.respond(requests[2].id, early_allowed(), b":1\r\n");
    assert!(bench.send(b"GET a\r\n").is_empty() && bench.output().is_empty());
}

#[test]
fn a_response_that_is_none_ends_the_connection_with_an_error() {
    let mut bench = Bench::new(FrontConfig::default());
    let requests = bench.send(b"GET a\r\n");
    bench.front.on_response(NOW_MS, requests[0].id, b"\x09\0junk", &mut bench.actions);
    assert!(bench.output().starts_with("-ERR scotfree: the server's sidecar sent a response"));
    assert_eq!(bench.actions, [FrontAction::Close]);
}

#[test]
fn a_connection_becomes_a_tunnel_when_everything_before_is_answered() {
    let mut bench = Bench::new(FrontConfig::default());
    let requests =
        bench.send(b"SELECT 3\r\nCLIENT SETNAME me\r\nHELLO 3\r\nINCR a\r\nBLPOP l 0\r\nINCR b\r\n");
    assert_eq!(requests.len(), 2, "nothing behind the blocking command is sent");
    bench.respond(requests[0].id, early_allowed(), b"%0\r\n");
    assert!(bench.actions.is_empty());
    bench.respond(requests[1].id, early_allowed(), b":1\r\n");
    let [FrontAction::Tunnel { setup, setup_replies, bytes, is_whole: false }] = &bench.actions[..] else {
        panic!("no tunnel")
    };
    let setup = String::from_utf8_lossy(setup);
    assert!(setup.contains("HELLO") && setup.contains("SELECT") && setup.contains("SETNAME"), "{setup}");
    assert_eq!(*setup_replies, 4, "the last one is CLIENT ID's");
    assert_eq!(bytes, b"*3\r\n$5\r\nBLPOP\r\n$1\r\nl\r\n$1\r\n0\r\n");
    bench.output();
    let requests = bench.hear(b"_\r\n");
    assert_eq!(bench.output(), "_\r\n");
    let [request] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!((request.kind, request.method), (RequestKind::Update, "INCR"), "the usual way again");
}

impl Bench {
    /// The server says something through the tunnel.
    fn hear(&mut self, bytes: &[u8]) -> Vec<FrontRequest> {
        self.actions.clear();
        self.front.on_tunnel(NOW_MS, bytes, false, &mut self.actions);
        self.requests()
    }

    /// Sends what goes through the tunnel, or begins one.
    fn pass(&mut self, bytes: &[u8]) -> String {
        self.actions.clear();
        assert!(self.send(bytes).is_empty());
        let sent = self.actions.iter().map(|action| match action {
            FrontAction::Tunnel { bytes, .. } | FrontAction::Pass(bytes) => {
                String::from_utf8_lossy(bytes).into_owned()
            }
            other => panic!("{other:?}"),
        });
        sent.collect()
    }

    fn speak_resp3(&mut self) {
        let hello = self.send(b"HELLO 3\r\n").pop().expect("the server is asked");
        self.respond(hello.id, early_allowed(), b"%0\r\n");
        self.output();
    }

    fn rests(&self) -> bool {
        self.actions.contains(&FrontAction::RestTunnel)
    }
}

#[test]
fn what_is_written_in_a_tunnel_is_answered_when_something_behind_it_is_stable() {
    let mut bench = Bench::new(FrontConfig::default());
    bench.pass(b"BRPOP l 0\r\nSET a 1\r\n");
    let popped = b"*2\r\n$1\r\nl\r\n$1\r\nx\r\n";
    let requests = bench.hear(popped);
    let [barrier] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!((barrier.kind, bench.output()), (RequestKind::Bypass, String::new()));
    let next = bench.respond(barrier.id, early_allowed(), b":0\r\n");
    assert_eq!(bench.output().as_bytes(), popped);
    assert_eq!(next.iter().map(|request| request.method).collect::<Vec<_>>(), ["SET"]);
    bench.respond(next[0].id, early_allowed(), b"+OK\r\n");
    bench.output();
    // The connection of the last time is in the right state.
    bench.actions.clear();
    bench.send(b"BRPOP l 0\r\n");
    let [FrontAction::Tunnel { setup, setup_replies: 0, .. }] = &bench.actions[..] else {
        panic!("{:?}", bench.actions)
    };
    assert!(setup.is_empty());
    let barrier = bench.hear(popped).pop().expect("it waits for storage");
    bench.respond(barrier.id, ResponseFlags::NONE, b"-MISCONF no\r\n");
    assert!(bench.output().starts_with("-ERR scotfree: the command was executed;"));
    assert_eq!(bench.actions.last(), Some(&FrontAction::Close));
}

#[test]
fn what_a_tunnel_has_written_is_not_vouched_for_when_the_server_is_lost() {
    let mut bench = Bench::new(FrontConfig::default());
    bench.pass(b"BRPOP l 0\r\n");
    let barrier = bench.hear(b"*2\r\n$1\r\nl\r\n$1\r\nx\r\n").pop().expect("it waits for storage");
    bench.front.on_tunnel(NOW_MS, b"", true, &mut bench.actions);
    let told = bench.output();
    assert!(
        told.starts_with("-ERR scotfree: the server is lost") && told.matches('\n').count() == 1,
        "{told}"
    );
    assert_eq!(bench.actions.last(), Some(&FrontAction::Close));
    bench.respond(barrier.id, early_allowed(), b":0\r\n");
    assert_eq!(bench.output(), "", "what the next server holds says nothing of it");
}

#[test]
fn who_quits_in_a_tunnel_gets_all_answers_first() {
    let mut bench = Bench::new(FrontConfig::default());
    bench.pass(b"CLIENT TRACKING ON REDIRECT 1\r\n");
    bench.hear(b"+OK\r\n");
    bench.output();
    let sent = bench.pass(b"SET a 1\r\nQUIT\r\n");
    let mark = mark_of(&sent);
    let barrier = bench.hear(format!("+OK\r\n{mark}").as_bytes()).pop().expect("it waits for storage");
    assert_eq!(bench.output(), "");
    bench.respond(barrier.id, early_allowed(), b":0\r\n");
    assert_eq!(bench.output(), "+OK\r\n+OK\r\n");
    assert_eq!(bench.actions.last(), Some(&FrontAction::Close));
}

/// What stands for the number of answers that only the server knows.
fn mark_of(sent: &str) -> String {
    sent.split("PING").nth(1).expect("a mark stands behind it").trim_start().to_owned()
}

#[test]
fn a_subscription_behind_a_refused_multi_is_confirmed() {
    let mut bench = Bench::new(FrontConfig::default());
    bench.speak_resp3();
    let sent = bench.pass(b"SUBSCRIBE a\r\n");
    let confirmed =
        |channel: &str, count: u8| format!(">3\r\n$9\r\nsubscribe\r\n$1\r\n{channel}\r\n:{count}\r\n");
    bench.hear((confirmed("a", 1) + &mark_of(&sent)).as_bytes());
    bench.output();
    let sent = bench.pass(b"MULTI\r\nSUBSCRIBE b\r\nPING\r\n");
    assert!(sent.ends_with("MULTI\r\n"), "whether the next one is inside is not known yet: {sent}");
    bench.actions.clear();
    bench.front.on_tunnel(NOW_MS, b"-NOPERM no\r\n", false, &mut bench.actions);
    let [FrontAction::Pass(sent)] = &bench.actions[..] else { panic!("{:?}", bench.actions) };
    let mark = mark_of(&String::from_utf8_lossy(sent));
    bench.output();
    bench.actions.clear();
    bench.hear((confirmed("b", 2) + &mark).as_bytes());
    assert_eq!(bench.output(), confirmed("b", 2));
    let asked: Vec<_> =
        bench.actions.iter().filter(|action| matches!(action, FrontAction::Pass(_))).collect();
    assert_eq!(asked.len(), 1, "PING is asked");
    bench.hear(b"+PONG\r\n");
    assert_eq!(bench.output(), "+PONG\r\n");
}

#[test]
fn what_may_change_data_past_the_order_is_counted_until_it_is_answered() {
    let mut bench = Bench::new(FrontConfig::default());
    let mut counts = |bytes: &[u8], answers: &[u8]| {
        bench.pass(bytes);
        let asked = bench.front.passed_by().begun;
        bench.hear(answers);
        (asked, bench.front.passed_by().ended)
    };
    assert_eq!(counts(b"CLIENT TRACKING ON REDIRECT 1\r\n", b"+OK\r\n"), (0, 0));
    assert_eq!(counts(b"GET k\r\nSCAN 0\r\n", b"$1\r\nv\r\n*2\r\n$1\r\n0\r\n*0\r\n"), (0, 0));
    assert_eq!(counts(b"SET k 1\r\nEVAL x 0\r\n", b"+OK\r\n"), (2, 1), "one of them has no answer");
    assert_eq!(counts(b"PFCOUNT h\r\n", b":1\r\n:1\r\n"), (3, 3));
    assert_eq!(counts(b"NOSUCH k\r\n", b"-ERR unknown command\r\n"), (4, 4));
    // What is inside MULTI writes when EXEC does.
    assert_eq!(counts(b"MULTI\r\n", b"+OK\r\n"), (4, 4));
    assert_eq!(counts(b"SET k 1\r\n", b"+QUEUED\r\n"), (5, 5));
    assert_eq!(counts(b"EXEC\r\n", b"*1\r\n+OK\r\n"), (6, 6));
}

#[test]
fn what_blocks_names_the_keys_that_it_may_take_from_until_it_is_answered() {
    let mut bench = Bench::new(FrontConfig::default());
    let mut waits = |bytes: &[u8], answers: &[u8]| {
        bench.pass(bytes);
        let asked = bench.front.waits().cloned();
        bench.hear(answers);
        (asked.map(|waits| (waits.number, waits.keys)), bench.front.waits().is_some())
    };
    let keys = |names: &[&str]| Some(names.iter().map(|name| KeyHash::of(0, name.as_bytes())).collect());
    let null = b"*-1\r\n";
    assert_eq!(waits(b"CLIENT TRACKING ON REDIRECT 1\r\n", b"+OK\r\n"), (None, false));
    assert_eq!(waits(b"BLPOP a b 0\r\n", b""), (Some((1, keys(&["a", "b"]))), true));
    assert_eq!(waits(b"", null), (Some((1, keys(&["a", "b"]))), false));
    assert_eq!(waits(b"BLMOVE a b LEFT LEFT 0\r\n", null), (Some((2, keys(&["a", "b"]))), false));
    assert_eq!(waits(b"BZMPOP 0 1 z MIN\r\n", null), (Some((3, keys(&["z"]))), false));
    assert_eq!(waits(b"XREAD BLOCK 0 STREAMS s 0\r\n", null), (None, false), "it only reads");
    assert_eq!(waits(b"XREADGROUP GROUP g c BLOCK 0 STREAMS s >\r\n", null), (None, false));
    // In which database that is the server has not said yet.
    assert_eq!(waits(b"SELECT 1\r\nBLPOP a 0\r\n", b"+OK\r\n*-1\r\n"), (Some((4, None)), false));
    assert_eq!(waits(b"BLPOP\r\n", b"-ERR wrong number\r\n"), (None, false));
    // Behind what chooses no database its keys are known.
    assert_eq!(
        waits(b"SET a 1\r\nBLPOP a 0\r\n", b"+OK\r\n*-1\r\n"),
        (Some((5, Some(vec![KeyHash::of(1, b"a")]))), false)
    );
}

#[test]
fn data_that_look_like_a_confirmation_are_data() {
    let data = "*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:5\r\n";
    for in_resp3 in [false, true] {
        let mut bench = Bench::new(FrontConfig::default());
        if in_resp3 {
            bench.speak_resp3();
        }
        bench.pass(b"CLIENT TRACKING ON REDIRECT 1\r\n");
        bench.hear(b"+OK\r\n");
        bench.output();
        bench.pass(b"EVAL_RO x 0\r\nMULTI\r\n");
        bench.hear(format!("{data}+OK\r\n").as_bytes());
        bench.pass(b"EVAL_RO x 0\r\nEXEC\r\n");
        bench.hear(format!("+QUEUED\r\n*1\r\n{data}").as_bytes());
        assert_eq!(bench.output(), format!("{data}+OK\r\n+QUEUED\r\n*1\r\n{data}"));
        bench.pass(b"CLIENT TRACKING OFF\r\n");
        bench.hear(b"+OK\r\n");
        assert!(bench.rests(), "it listens to nothing");
    }
}

#[test]
fn replies_are_chosen_in_a_tunnel_as_the_server_has_it() {
    let mut bench = Bench::new(FrontConfig::default());
    let sent = bench.pass(b"SUBSCRIBE a\r\n");
    let confirmed = "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n";
    bench.hear((confirmed.to_owned() + "*2\r\n$4\r\npong\r\n" + &mark_of(&sent)).as_bytes());
    bench.output();
    let sent = bench.pass(b"CLIENT REPLY OFF\r\n");
    assert!(sent.contains("REPLY"), "who listens in RESP2 is refused: {sent}");
    bench.hear(b"-ERR Can't execute\r\n");
    assert_eq!(bench.output(), "-ERR Can't execute\r\n");
    let mut bench = Bench::new(FrontConfig::default());
    bench.pass(b"CLIENT TRACKING ON REDIRECT 1\r\n");
    bench.hear(b"+OK\r\n");
    bench.output();
    assert!(bench.pass(b"CLIENT REPLY OFF x\r\n").contains("REPLY"));
    bench.hear(b"-ERR wrong number\r\n");
    assert_eq!(bench.output(), "-ERR wrong number\r\n");
    assert!(!bench.pass(b"CLIENT REPLY OFF\r\nGET a\r\nRESET\r\n").contains("REPLY"));
    bench.hear(b"$-1\r\n+RESET\r\n");
    assert_eq!(bench.output(), "+RESET\r\n", "answers come again");
    let mut bench = Bench::new(FrontConfig::default());
    bench.send(b"CLIENT REPLY SKIP\r\nRESET\r\nRESET\r\n");
    assert_eq!(bench.output(), "+RESET\r\n", "the first one is skipped");
    bench.send(b"CLIENT REPLY OFF\r\nRESET\r\n");
    assert_eq!(bench.output(), "+RESET\r\n");
}

#[test]
fn who_quits_unheard_is_told_nothing() {
    let mut bench = Bench::new(FrontConfig::default());
    bench.pass(b"CLIENT TRACKING ON REDIRECT 1\r\n");
    bench.hear(b"+OK\r\n");
    bench.output();
    let sent = bench.pass(b"CLIENT REPLY OFF\r\nQUIT\r\n");
    bench.hear(mark_of(&sent).as_bytes());
    assert_eq!((bench.output(), bench.actions.last()), (String::new(), Some(&FrontAction::Close)));
}

#[test]
fn what_is_refused_in_a_tunnel_is_told_whole() {
    let mut bench = Bench::new(FrontConfig::default());
    bench.pass(b"CLIENT TRACKING ON REDIRECT 1\r\n");
    bench.hear(b"+OK\r\n");
    bench.output();
    let reason = format!("MISCONF writes are refused: {}", "because ".repeat(30));
    bench.front.refuse_writes(Some(reason.as_str().into()));
    let sent = bench.pass(b"SET a 1\r\n");
    assert!(!sent.contains("SET"), "{sent}");
    bench.hear(b"-ERR unknown command 'scotfree: refused', with args beginning with: \r\n");
    let told = bench.output();
    assert!(told.starts_with("-ERR scotfree: ") && told.contains(reason.trim_end()), "{told}");
}

const REFUSED: &[u8] = b"-ERR unknown command 'scotfree: refused', with args beginning with: \r\n";

#[test]
fn what_deletes_all_goes_the_usual_way_when_all_before_it_is_answered() {
    let mut bench = Bench::new(FrontConfig::default());
    bench.pass(b"CLIENT TRACKING ON\r\n");
    bench.hear(b"+OK\r\n");
    bench.output();
    let sent = bench.pass(b"SET a 1\r\nFLUSHALL ASYNC\r\nGET a\r\n");
    assert!(sent.contains("SET") && !sent.contains("FLUSHALL") && !sent.contains("GET"), "{sent}");
    assert!(bench.requests().is_empty(), "what is before it is not answered");
    let barrier = bench.hear(b"+OK\r\n").pop().expect("it waits for storage");
    let flush = bench.respond(barrier.id, early_allowed(), b":0\r\n");
    let [flush] = &flush[..] else { panic!("{flush:?}") };
    assert_eq!((flush.kind, flush.method), (RequestKind::Update, "FLUSHALL"));
    // Messages come meanwhile, and nothing is asked before the answer.
    bench.hear(b">2\r\n$10\r\ninvalidate\r\n_\r\n");
    assert!(
        !bench.actions.iter().any(|action| matches!(action, FrontAction::Pass(_))),
        "{:?}",
        bench.actions
    );
    bench.output();
    bench.respond(flush.id, early_allowed(), b"+OK\r\n");
    assert_eq!(bench.output(), "+OK\r\n");
    let [FrontAction::Pass(sent)] = &bench.actions[..] else { panic!("{:?}", bench.actions) };
    assert!(String::from_utf8_lossy(sent).contains("GET"), "it tracks on");
}

#[test]
fn inside_multi_nothing_that_goes_past_the_markers_deletes_them_or_chooses_replies() {
    let mut bench = Bench::new(FrontConfig::default());
    bench.pass(b"CLIENT TRACKING ON\r\nMULTI\r\n");
    bench.hear(b"+OK\r\n");
    bench.hear(b"+OK\r\n");
    bench.output();
    for (line, why) in [
        ("FLUSHALL", "delete the markers"),
        ("CLIENT REPLY SKIP", "CLIENT REPLY inside MULTI is not supported"),
        ("CLIENT REPLY OFF", "CLIENT REPLY inside MULTI is not supported"),
    ] {
        let sent = bench.pass(format!("{line}\r\n").as_bytes());
        assert!(!sent.contains("FLUSHALL") && !sent.contains("REPLY"), "{sent}");
        bench.hear(REFUSED);
        let told = bench.output();
        assert!(told.starts_with("-ERR scotfree: ") && told.contains(why), "{line}: {told}");
    }
    bench.pass(b"EXEC\r\n");
    bench.hear(b"-EXECABORT\r\n");
    assert_eq!(bench.output(), "-EXECABORT\r\n", "its answers come");
    // A transaction that would become a tunnel.
    for lines in [&b"MULTI\r\nFLUSHALL\r\nSUBSCRIBE a\r\n"[..], b"MULTI\r\nSUBSCRIBE a\r\nFLUSHALL\r\n"] {
        let mut bench = Bench::new(FrontConfig::default());
        bench.send(lines);
        let told = bench.output();
        assert!(told.starts_with("+OK\r\n+QUEUED\r\n-ERR scotfree: FLUSHALL would"), "{told}");
    }
}

#[test]
fn of_a_tunnel_no_more_is_heard_than_may_wait_for_storage_and_the_client() {
    let config = FrontConfig { output_bytes_max: 100, ..FrontConfig::default() };
    let mut bench = Bench::new(config);
    bench.pass(b"CLIENT TRACKING ON\r\n");
    bench.hear(b"+OK\r\n");
    bench.output();
    bench.pass(b"GETEX a PERSIST\r\n");
    assert!(bench.front.takes_tunnel());
    let reply = format!("$100\r\n{}\r\n", "x".repeat(100));
    let barrier = bench.hear(reply.as_bytes()).pop().expect("it waits for storage");
    assert!(!bench.front.takes_tunnel() && !bench.front.is_full(), "it waits for storage");
    bench.respond(barrier.id, early_allowed(), b":0\r\n");
    assert!(!bench.front.takes_tunnel() && bench.front.is_full(), "it waits for the client");
    assert_eq!(bench.output(), reply);
    assert!(bench.front.takes_tunnel());
}

#[test]
fn who_is_named_no_more_takes_the_usual_way() {
    let mut bench = Bench::new(FrontConfig::default());
    bench.front.become_tunnel(&mut bench.actions);
    let [FrontAction::Tunnel { setup, .. }] = &bench.actions[..] else { panic!("{:?}", bench.actions) };
    assert!(
        String::from_utf8_lossy(setup).contains("SETNAME\r\n$0\r\n"),
        "the connection's own name is ours"
    );
    bench.actions.clear();
    bench.front.forget_naming(NOW_MS, &mut bench.actions);
    assert!(bench.rests());
}

#[test]
fn who_blocks_is_awaited_no_longer_than_its_client() {
    let mut bench = Bench::new(FrontConfig::default());
    bench.pass(b"BLPOP l 0\r\n");
    assert!(bench.front.blocks() && !bench.front.awaits_tunnel());
    bench.hear(b"*-1\r\n");
    bench.pass(b"CLIENT TRACKING ON REDIRECT 1\r\n");
    assert!(!bench.front.blocks() && bench.front.awaits_tunnel(), "this one is answered");
}

#[test]
fn what_cannot_be_read_in_a_tunnel_is_told_behind_all_answers() {
    let mut bench = Bench::new(FrontConfig::default());
    bench.pass(b"CLIENT TRACKING ON REDIRECT 1\r\n");
    bench.hear(b"+OK\r\n");
    bench.output();
    bench.pass(b"GET a\r\nSET a 1\r\n*1\r\n:no\r\n");
    assert_eq!(bench.output(), "");
    let barrier = bench.hear(b"$-1\r\n+OK\r\n").pop().expect("it waits for storage");
    assert_eq!((bench.output().as_str(), bench.actions.contains(&FrontAction::Close)), ("$-1\r\n", false));
    bench.respond(barrier.id, early_allowed(), b":0\r\n");
    let told = bench.output();
    assert!(told.starts_with("+OK\r\n-ERR Protocol error"), "{told}");
    assert_eq!(bench.actions.last(), Some(&FrontAction::Close));
}

#[test]
fn a_tunnel_whose_barrier_fails_ends() {
    let mut bench = Bench::new(FrontConfig::default());
    bench.pass(b"BRPOP l 0\r\n");
    let barrier = bench.hear(b"*2\r\n$1\r\nl\r\n$1\r\nx\r\n").pop().expect("it waits for storage");
    bench.front.on_failure(NOW_MS, barrier.id, "it is gone", &mut bench.actions);
    assert_eq!(bench.output(), "-ERR scotfree: it is gone\r\n");
    assert_eq!(bench.actions.last(), Some(&FrontAction::Close));
}

#[test]
fn a_tunnel_lasts_while_channels_are_listened_to_and_no_longer() {
    let mut bench = Bench::new(FrontConfig::default());
    let sent = bench.pass(b"SUBSCRIBE a b\r\n");
    let mark = mark_of(&sent);
    let confirmed = |kind: &str, channel: &str, count: u8| {
        format!("*3\r\n${}\r\n{kind}\r\n$1\r\n{channel}\r\n:{count}\r\n", kind.len())
    };
    let message = "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n";
    let both = confirmed("subscribe", "a", 1) + message + &confirmed("subscribe", "b", 2);
    bench.hear(both.as_bytes());
    bench.hear(format!("*2\r\n$4\r\npong\r\n{mark}").as_bytes());
    assert_eq!((bench.output(), bench.rests()), (both, false), "the client sees nothing of the mark");
    assert!(bench.pass(b"UNSUBSCRIBE\r\nSET k 1\r\n").contains("UNSUBSCRIBE"));
    bench.hear(message.as_bytes());
    assert_eq!(bench.output(), message);
    let left = confirmed("unsubscribe", "a", 1) + &confirmed("unsubscribe", "b", 0);
    assert!(bench.hear(left.as_bytes()).is_empty());
    let next = bench.hear(mark.as_bytes());
    assert_eq!((bench.output(), bench.rests()), (left, true));
    assert_eq!(next.iter().map(|request| request.kind).collect::<Vec<_>>(), [RequestKind::Update]);
}

/// The connection on which the client will be this user's is another than the tunnel's.
#[test]
fn who_proves_to_be_a_user_in_a_tunnel_is_known_behind_it_before_the_next_command() {
    let leave = |bench: &mut Bench, commands: &[u8]| {
        bench.pass(b"CLIENT TRACKING ON REDIRECT 1\r\n");
        bench.hear(b"+OK\r\n");
        bench.pass(commands);
        let requests = bench.hear(b"+OK\r\n+OK\r\n");
        bench.output();
        let [auth] = &requests[..] else {
            panic!("nothing else is sent before it is answered: {requests:?}")
        };
        assert_eq!(auth.method, "AUTH");
        let flags = RequestPayload::parse(&auth.payload).expect("a payload").head.flags;
        assert!(flags.has(RequestFlags::PRIVATE) && !flags.has(RequestFlags::USER));
        (auth.id, flags)
    };
    let sent = b"AUTH app pw\r\nCLIENT TRACKING OFF\r\nGET a\r\n";
    let mut bench = Bench::new(FrontConfig::default());
    let (auth, flags) = leave(&mut bench, sent);
    assert!(!flags.has(RequestFlags::RELEASE));
    let next = bench.respond(auth, early_allowed(), b"+OK\r\n");
    let [get] = &next[..] else { panic!("{next:?}") };
    let flags = RequestPayload::parse(&get.payload).expect("a payload").head.flags;
    assert!(get.method == "GET" && flags.has(RequestFlags::USER));
    bench.respond(get.id, early_allowed(), b"$1\r\n1\r\n");
    assert_eq!(bench.output(), "$1\r\n1\r\n", "the client has asked for no other answer");
    // Back to what all share: what was this user's is let go.
    let (auth, flags) = leave(&mut bench, b"AUTH default pw\r\nCLIENT TRACKING OFF\r\nGET a\r\n");
    assert!(flags.has(RequestFlags::RELEASE));
    let next = bench.respond(auth, early_allowed(), b"+OK\r\n");
    let flags = RequestPayload::parse(&next[0].payload).expect("a payload").head.flags;
    assert!(!flags.has(RequestFlags::PRIVATE));
    // Nothing is done as somebody else.
    let mut bench = Bench::new(FrontConfig::default());
    let (auth, _) = leave(&mut bench, sent);
    let refusal = "-WRONGPASS it has changed\r\n";
    assert!(bench.respond(auth, early_allowed(), refusal.as_bytes()).is_empty());
    assert_eq!((bench.output().as_str(), bench.actions.last()), (refusal, Some(&FrontAction::Close)));
}

#[test]
fn who_tracks_in_resp3_gets_messages_between_answers_and_its_state_is_kept() {
    let mut bench = Bench::new(FrontConfig::default());
    let requests = bench.send(b"HELLO 3\r\n");
    bench.respond(requests[0].id, early_allowed(), b"%0\r\n");
    bench.output();
    bench.pass(b"CLIENT TRACKING ON\r\n");
    bench.hear(b"+OK\r\n");
    assert_eq!((bench.output().as_str(), bench.rests()), ("+OK\r\n", false));
    bench.pass(b"GET a\r\nSELECT 4\r\nSET b 1\r\nGET b\r\n");
    let push = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n";
    let barrier = bench.hear(format!("$1\r\n1\r\n{push}+OK\r\n+OK\r\n$1\r\n1\r\n").as_bytes());
    assert_eq!(bench.output(), format!("$1\r\n1\r\n{push}+OK\r\n"), "what is behind a write waits with it");
    bench.respond(barrier[0].id, early_allowed(), b":0\r\n");
    assert_eq!(bench.output(), "+OK\r\n$1\r\n1\r\n");
    assert!(bench.pass(b"CLIENT TRACKING OFF\r\nSET c 1\r\n").contains("OFF"));
    let next = bench.hear(b"+OK\r\n");
    let head = RequestPayload::parse(&next[0].payload).expect("a payload").head;
    assert_eq!((head.db, next[0].kind, bench.rests()), (4, RequestKind::Update, true));
}

#[test]
fn while_something_is_in_doubt_the_server_has_the_word_on_each_command_that_is_queued() {
    let mut bench = Bench::doubtful();
    bench.send(b"MULTI\r\n");
    let id = bench.asks("SET k v", "SET");
    assert!(bench.send(b"DEL k\r\n").is_empty(), "what comes behind it waits");
    let more = bench.respond(id, ResponseFlags::NONE, b"-OOM command not allowed\r\n");
    assert_eq!(bench.output(), "+OK\r\n-OOM command not allowed\r\n");
    bench.respond(more[0].id, ResponseFlags::NONE, b"+QUEUED\r\n");
    assert_eq!(bench.output(), "+QUEUED\r\n");
    let id = bench.asks("EXEC", "DEL");
    assert!(bench.respond(id, ResponseFlags::NONE, b"+QUEUED\r\n").is_empty(), "nothing is executed");
    assert_eq!(bench.output(), "-EXECABORT Transaction discarded because of previous errors.\r\n");
    bench.send(b"MULTI\r\nDISCARD\r\n");
    assert_eq!(bench.output(), "+OK\r\n+OK\r\n", "the transaction is over");
}

#[test]
fn while_something_is_in_doubt_exec_asks_about_the_command_that_would_be_refused_first() {
    let mut bench = Bench::doubtful();
    for line in ["MULTI", "GET k", "DEL k", "SET k v"] {
        for request in bench.send(format!("{line}\r\n").as_bytes()) {
            bench.respond(request.id, ResponseFlags::NONE, b"+QUEUED\r\n");
        }
    }
    let id = bench.asks("EXEC", "SET");
    let sent = bench.respond(id, ResponseFlags::NONE, b"+QUEUED\r\n");
    assert_eq!((sent.len(), sent[0].id), (1, id), "its reply takes the place of EXEC's");
    bench.output();
    bench.respond(id, ResponseFlags::NONE, b"*0\r\n");
    assert_eq!(bench.output(), "*0\r\n");
    bench.send(b"MULTI\r\n");
    let id = bench.asks("EXEC", "PING");
    bench.respond(id, ResponseFlags::NONE, b"-BUSY a script\r\n");
    assert_eq!(bench.output(), "+OK\r\n-EXECABORT Transaction discarded because of: BUSY a script\r\n");
}

#[test]
fn of_a_large_command_it_is_asked_whether_its_like_would_be_queued() {
    let mut bench = Bench::doubtful();
    bench.send(b"MULTI\r\n");
    // Above ASKED_BYTES_MAX.
    let large = "x".repeat(8 << 10);
    let id = bench.asks(&format!("RPUSH k {large}"), "SET");
    bench.respond(id, ResponseFlags::NONE, b"+QUEUED\r\n");
    let id = bench.asks("EXEC", "SET");
    let sent = bench.respond(id, ResponseFlags::NONE, b"+QUEUED\r\n");
    assert!(
        sent.iter().map(|request| request.payload.len()).sum::<usize>() > large.len(),
        "the whole is sent"
    );
}

#[test]
fn a_script_under_way_is_a_doubt() {
    let description = Description { asks: true, ..Description::of_table() };
    let mut bench = Bench::told(FrontConfig::default(), description);
    bench.send(b"MULTI\r\n");
    assert!(bench.send(b"SET k v\r\nEXEC\r\n")[0].kind == RequestKind::Update, "all is well");
    let script = bench.send(b"EVAL x 0\r\nMULTI\r\nSET k v\r\n");
    assert_eq!((script.len(), bench.front.scripts()), (2, 1));
    bench.respond(script[1].id, early_allowed(), b"+QUEUED\r\n");
    bench.respond(script[0].id, early_allowed(), b"$-1\r\n");
    assert_eq!(bench.front.scripts(), 0);
    bench.front.know_scripts(true);
    bench.asks("GET k", "GET");
}

#[test]
fn a_question_about_the_clients_takes_the_servers_list_along() {
    let mut bench = Bench::new(FrontConfig::default());
    let list = bench.send(b"CLIENT LIST\r\n");
    bench.respond(list[0].id, early_allowed(), b"$8\r\nid=5 x=y\r\n");
    let [FrontAction::Clients { id, list: told, .. }] = &bench.actions[..] else {
        panic!("{:?}", bench.actions)
    };
    assert_eq!((*id, told.as_slice()), (list[0].id, &b"$8\r\nid=5 x=y\r\n"[..]));
    let outcome = Outcome::Reply(b"$0\r\n\r\n".to_vec(), Vec::new());
    bench.front.on_clients(NOW_MS, list[0].id, outcome, false, &mut bench.actions);
    assert_eq!(bench.output(), "$0\r\n\r\n");
    for (line, error) in [
        ("CLIENT LIST TYPE odd", "-ERR Unknown client type 'odd'\r\n"),
        ("CLIENT LIST ID a", "-ERR Invalid client ID\r\n"),
        ("CLIENT KILL ID 0", "-ERR client-id should be greater than 0\r\n"),
        ("CLIENT KILL SKIPME maybe", "-ERR syntax error\r\n"),
        ("CLIENT KILL MAXAGE 5", "-ERR syntax error\r\n"),
    ] {
        assert!(bench.send(format!("{line}\r\n").as_bytes()).is_empty(), "{line}");
        assert_eq!(bench.output(), error, "{line}");
    }
}

#[test]
fn a_farewell_is_said_only_if_the_server_holds_something_for_the_connection() {
    let mut bench = Bench::new(FrontConfig::default());
    let is_release = |farewell: Option<FrontRequest>| {
        let farewell = farewell.expect("the server holds something, or may");
        RequestHead::parse(&farewell.payload).expect("a payload").flags.has(RequestFlags::RELEASE)
    };
    for line in [&b"GET a\r\n"[..], b"WATCH a\r\n"] {
        assert_eq!(bench.front.farewell(), None);
        let id = bench.send(line)[0].id;
        assert!(is_release(bench.front.farewell()), "what is under way may be too large for one packet");
        bench.respond(id, early_allowed(), b"+OK\r\n");
    }
    bench.send(b"WATCH b\r\n");
    assert!(is_release(bench.front.farewell()), "a connection of its own");
}

/// Bytes that look enough like commands to get somewhere.
fn commands() -> impl Strategy<Value = Vec<u8>> {
    let words = vec![
        "GET a",
        "SET a 1",
        "SET a 1 EX 10",
        "MULTI",
        "EXEC",
        "DISCARD",
        "WATCH a",
        "UNWATCH",
        "SELECT 1",
        "SELECT 15",
        "HELLO 3",
        "HELLO 2 SETNAME x",
        "HELLO 3 AUTH default x",
        "AUTH x",
        "RESET",
        "QUIT",
        "CLIENT REPLY OFF",
        "CLIENT REPLY SKIP",
        "CLIENT REPLY ON",
        "CLIENT ID",
        "BLPOP l 0",
        "SPOP s",
        "FOO",
        "GET",
        "FLUSHALL",
        "\"",
        "*1",
        "$3",
        "*2\r\n$3\r\nGET\r\n$1\r\na",
        "*-1",
        "EVAL x 0",
        "SUBSCRIBE c",
        "XREAD BLOCK 0 STREAMS s 0",
    ];
    let line = prop_oneof![
        8 => proptest::sample::select(words).prop_map(|word| format!("{word}\r\n").into_bytes()),
        1 => proptest::collection::vec(any::<u8>(), 0..8),
    ];
    proptest::collection::vec(line, 0..20).prop_map(|lines| lines.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn whatever_a_client_sends_every_command_is_answered_once(bytes in commands(), size in 1usize..9) {
        let mut whole = Bench::new(FrontConfig::default());
        let mut pieces = Bench::new(FrontConfig::default());
        let answer = |bench: &mut Bench, mut requests: Vec<FrontRequest>| {
            let mut seen = Vec::new();
            while !requests.is_empty() {
                let request = requests.remove(0);
                RequestPayload::parse(&request.payload).expect("a payload that the other half can read");
                requests.extend(bench.respond(request.id, ResponseFlags::NONE, b"+OK\r\n"));
                seen.push(request);
            }
            seen
        };
        let requests = whole.send(&bytes);
        let seen = answer(&mut whole, requests);
        let mut seen_in_pieces = Vec::new();
        for piece in bytes.chunks(size) {
            let requests = pieces.send(piece);
            seen_in_pieces.extend(answer(&mut pieces, requests));
        }
        prop_assert_eq!(seen.len(), seen_in_pieces.len());
        prop_assert_eq!(whole.output(), pieces.output());
        prop_assert_eq!(whole.front.pending_count(), 0);
    }
}
