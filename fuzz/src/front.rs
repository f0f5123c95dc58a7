//! The target for a client's whole connection: any bytes from the client, any order of answers from the
//! server, and anything that it may say over the connection of the client's own.
//!
//! Invariant: whatever is sent to the server is a payload that its sidecar takes, whatever is sent to
//! the client is RESP, the connection of the client's own is used only while there is one, and once
//! everything is answered nothing is pending.

use scotfree_resp::codec::{write_command, Command, Limits, ReplyDecoder};
use scotfree_resp::description::Description;
use scotfree_resp::front::{ClientFront, EarlyRule, FrontAction, FrontConfig, FrontRequest, Identity};
use scotfree_resp::payload::{write_response, RequestPayload, ResponseFlags};
use std::sync::{Arc, LazyLock};

const NOW_MS: i64 = 1_700_000_000_000;
const PENDING_MAX: usize = 6;
const REQUEST_BYTES_MAX: usize = 400;
/// Small enough that inputs reach every limit.
const LIMITS: Limits = Limits {
    bulk_bytes_max: 512,
    argument_count_max: 64,
    whole_bytes_max: 4 * REQUEST_BYTES_MAX,
    line_bytes_max: 256,
    depth_max: 8,
    reply_bytes_max: 4096,
};
/// What the server may say; not all of it fits all commands.
const REPLIES: [&[u8]; 8] = [
    b"+OK\r\n",
    b"$-1\r\n",
    b":1\r\n",
    b"-ERR no\r\n",
    b"*-1\r\n",
    b"*2\r\n+OK\r\n:1\r\n",
    b"*0\r\n",
    b"+QUEUED\r\n",
];

/// What it may say over the client's own connection besides, asked or not; not all of it fits all commands.
const MESSAGES: [&[u8]; 6] = [
    b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n",
    b"*3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n",
    b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n",
    b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n",
    b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n",
    b"*2\r\n+OK\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n",
];

/// The server's description: making it once is most of an input's cost.
static DESCRIPTION: LazyLock<Arc<Description>> = LazyLock::new(|| Arc::new(Description::of_table()));
static LOCKED: LazyLock<Arc<Description>> =
    LazyLock::new(|| Arc::new(Description { auth_required: true, ..Description::of_table() }));

/// Conversations: two bytes that choose how the server answers, then what the client says.
pub fn seeds() -> Vec<Vec<u8>> {
    let conversations: [&[&str]; 10] = [
        &["SET a 1", "GET a", "MSET a 1 b 2", "DEL a b"],
        &["MULTI", "SET a 1 EX 5", "SELECT 2", "GET a", "EXEC", "GET a"],
        &["WATCH a", "MULTI", "NOSUCH", "EXEC", "UNWATCH", "DISCARD", "RESET"],
        &["AUTH secret", "HELLO 3 AUTH me secret SETNAME x", "CLIENT SETNAME y", "SELECT 3", "SUBSCRIBE c"],
        &["CLIENT REPLY SKIP", "SET a 1", "CLIENT REPLY OFF", "GET a", "CLIENT REPLY ON", "PING"],
        &["SELECT 1", "BLPOP a 0", "GET a"],
        &["SUBSCRIBE c", "PING", "SET a 1", "UNSUBSCRIBE c", "GET a", "BLPOP a 0"],
        &["HELLO 3", "CLIENT TRACKING ON", "MULTI", "SET a 1", "EXEC", "CLIENT TRACKING OFF", "SET a 2"],
        &["WATCH a", "BLPOP a 1", "MULTI", "SUBSCRIBE c", "EXEC", "RESET", "MONITOR", "QUIT"],
        &["FLUSHALL", "SWAPDB 0 15", "EVAL x 0", "QUIT", "PING"],
    ];
    let mut seeds = Vec::new();
    for (index, lines) in conversations.iter().enumerate() {
        let mut bytes = vec![(index as u8).wrapping_mul(37), 0x57];
        for line in *lines {
            write_command(&mut bytes, Command::new(line.split(' ')).args());
        }
        seeds.push(bytes);
    }
    seeds
}

/// Reads the input as a client's side of a connection.
pub fn front(data: &[u8]) {
    let [how, choice, client @ ..] = data else { return };
    let mut talk = Talk::new(*how, *choice);
    for piece in client.chunks(1 + usize::from(how >> 4) * 9) {
        if talk.is_over {
            break;
        }
        talk.hear(piece);
        match talk.choose() % 4 {
            0 | 1 => talk.answer_one(),
            2 => talk.speak_one(),
            _ => {}
        }
    }
    talk.answer_all();
    // The server has nothing to say any more of what was asked over the client's own connection.
    if matches!(talk.own, Own::Used) {
        talk.speak(b"", true);
    }
    talk.answer_all();
    assert_eq!(talk.front.pending_count(), 0, "a command waits for nothing");
    let _ = talk.front.farewell();
}

/// The connection to the server that is the client's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Own {
    None,
    Used,
    Rests,
}

/// A connection and the server behind it.
struct Talk {
    front: ClientFront,
    to_client: ReplyDecoder,
    waiting: Vec<FrontRequest>,
    actions: Vec<FrontAction>,
    choices: u64,
    is_over: bool,
    own: Own,
}

impl Talk {
    fn new(how: u8, choice: u8) -> Talk {
        let early = match how % 3 {
            0 => EarlyRule::Never,
            1 => EarlyRule::Always,
            _ => EarlyRule::Prefixes(vec![b"a".to_vec()]),
        };
        let config = FrontConfig {
            limits: LIMITS,
            early,
            pending_max: PENDING_MAX,
            output_bytes_max: 512,
            transaction_commands_max: 4,
            request_bytes_max: REQUEST_BYTES_MAX,
        };
        let description = if how % 2 == 0 { &DESCRIPTION } else { &LOCKED };
        Talk {
            front: ClientFront::new(Arc::new(config), Arc::clone(description), Identity::new(7, 7)),
            to_client: ReplyDecoder::new(Limits::default()),
            waiting: Vec::new(),
            actions: Vec::new(),
            choices: u64::from(choice) << 8 | u64::from(how),
            is_over: false,
            own: Own::None,
        }
    }

    /// The next of the server's choices, determined by the input's first bytes.
    fn choose(&mut self) -> usize {
        self.choices =
            self.choices.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.choices >> 33) as usize
    }

    fn hear(&mut self, bytes: &[u8]) {
        self.front.on_bytes(NOW_MS, bytes, &mut self.actions);
        self.follow();
    }

    fn answer_one(&mut self) {
        let at = self.choose() % self.waiting.len().max(1);
        if at >= self.waiting.len() {
            return;
        }
        let request = self.waiting.remove(at);
        let reply = REPLIES[self.choose() % REPLIES.len()];
        match (self.choose() % 8, request.early) {
            (0, _) => self.front.on_failure(NOW_MS, request.id, "it is gone", &mut self.actions),
            (1, _) => self.front.on_response(NOW_MS, request.id, b"\x09", &mut self.actions),
            (2..=4, Some(reply)) => self.front.on_early(NOW_MS, request.id, reply, &mut self.actions),
            (what, _) => {
                let flags = ResponseFlags::NONE.with_if(what == 5, ResponseFlags::CLOSE);
                let mut payload = Vec::new();
                write_response(&mut payload, flags.with_if(what != 6, ResponseFlags::EARLY_ALLOWED), reply);
                self.front.on_response(NOW_MS, request.id, &payload, &mut self.actions);
            }
        }
        self.follow();
    }

    fn answer_all(&mut self) {
        while !self.waiting.is_empty() {
            self.answer_one();
        }
    }

    /// The server says something over the client's own connection, in one piece or in two, or closes it.
    fn speak_one(&mut self) {
        if self.own == Own::None {
            return;
        }
        let choice = self.choose();
        let bytes = match choice % 3 {
            0 => REPLIES[choice / 3 % REPLIES.len()],
            1 => MESSAGES[choice / 3 % MESSAGES.len()],
            _ => b"+scotfree: answered so far?\r\n",
        };
        let (first, rest) = bytes.split_at(self.choose() % bytes.len());
        self.speak(first, false);
        let ends = self.choose() % 16 == 0;
        self.speak(rest, ends);
    }

    fn speak(&mut self, bytes: &[u8], ends: bool) {
        if self.own == Own::None {
            return;
        }
        if ends {
            self.own = Own::None;
        }
        self.front.on_tunnel(NOW_MS, bytes, ends, &mut self.actions);
        self.follow();
    }

    /// Does what the connection's shell would do.
    fn follow(&mut self) {
        while !self.actions.is_empty() {
            for action in std::mem::take(&mut self.actions) {
                match action {
                    FrontAction::Request(request) => self.take_request(request),
                    FrontAction::Tunnel { is_whole: true, .. } => {
                        assert_eq!(self.own, Own::None, "a client has two connections of its own");
                        self.end();
                    }
                    FrontAction::Tunnel { is_whole: false, .. } => {
                        self.use_own(&[Own::None, Own::Rests], Own::Used)
                    }
                    FrontAction::Pass(_) => self.use_own(&[Own::Used], Own::Used),
                    FrontAction::RestTunnel => self.use_own(&[Own::Used], Own::Rests),
                    FrontAction::EndTunnel => self.use_own(&[Own::Rests], Own::None),
                    FrontAction::Clients { id, question, list } => {
                        let outcome = question.answer(NOW_MS, 1, &list, &[]);
                        self.front.on_clients(NOW_MS, id, outcome, false, &mut self.actions);
                    }
                    FrontAction::Close => self.end(),
                }
            }
        }
        assert!(self.front.pending_count() <= PENDING_MAX, "more is pending than allowed");
        self.read_output();
    }

    fn use_own(&mut self, before: &[Own], after: Own) {
        assert!(
            before.contains(&self.own),
            "the client's own connection is {:?}, and is to be {after:?}",
            self.own
        );
        self.own = after;
    }

    fn end(&mut self) {
        assert!(!self.is_over, "a connection ends twice");
        self.is_over = true;
    }

    fn take_request(&mut self, request: FrontRequest) {
        assert!(request.payload.len() <= REQUEST_BYTES_MAX, "a request is larger than allowed");
        assert!(RequestPayload::parse(&request.payload).is_ok(), "the server's sidecar refuses a request");
        assert!(self.waiting.iter().all(|other| other.id != request.id), "two requests have one name");
        if request.id != 0 {
            self.waiting.push(request);
        }
    }

    fn read_output(&mut self) {
        self.to_client.push(self.front.output());
        let count = self.front.output().len();
        self.front.sent(count);
        while self.to_client.pop().expect("the client gets RESP").is_some() {}
    }
}
