//! The target for a client's whole connection: any bytes from the client, any order of answers from the
//! server.
//!
//! Invariant: whatever is sent to the server is a payload that its sidecar takes, whatever is sent to
//! the client is RESP, and once everything is answered nothing is pending.

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

/// The server's description: making it once is most of an input's cost.
static DESCRIPTION: LazyLock<Arc<Description>> = LazyLock::new(|| Arc::new(Description::of_table()));
static LOCKED: LazyLock<Arc<Description>> =
    LazyLock::new(|| Arc::new(Description { auth_required: true, ..Description::of_table() }));

/// Conversations: two bytes that choose how the server answers, then what the client says.
pub fn seeds() -> Vec<Vec<u8>> {
    let conversations: [&[&str]; 7] = [
        &["SET a 1", "GET a", "MSET a 1 b 2", "DEL a b"],
        &["MULTI", "SET a 1 EX 5", "SELECT 2", "GET a", "EXEC", "GET a"],
        &["WATCH a", "MULTI", "NOSUCH", "EXEC", "UNWATCH", "DISCARD", "RESET"],
        &["AUTH secret", "HELLO 3 AUTH me secret SETNAME x", "CLIENT SETNAME y", "SELECT 3", "SUBSCRIBE c"],
        &["CLIENT REPLY SKIP", "SET a 1", "CLIENT REPLY OFF", "GET a", "CLIENT REPLY ON", "PING"],
        &["SELECT 1", "BLPOP a 0", "GET a"],
        &["FLUSHALL", "SWAPDB 0 15", "EVAL x 0", "QUIT", "PING"],
    ];
    let mut seeds = Vec::new();
    for (index, lines) in conversations.iter().enumerate() {
        let mut bytes = vec![index as u8 * 37, 0x57];
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
        if talk.choose() % 2 == 0 {
            talk.answer_one();
        }
    }
    while !talk.waiting.is_empty() {
        talk.answer_one();
    }
    // The command that opened a tunnel is answered through it.
    let most = usize::from(talk.is_tunnel);
    assert!(talk.front.pending_count() <= most, "a command waits for nothing");
    let _ = talk.front.farewell();
}

/// A connection and the server behind it.
struct Talk {
    front: ClientFront,
    to_client: ReplyDecoder,
    waiting: Vec<FrontRequest>,
    actions: Vec<FrontAction>,
    choices: u64,
    is_over: bool,
    is_tunnel: bool,
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
            is_tunnel: false,
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

    /// Does what the connection's shell would do.
    fn follow(&mut self) {
        while !self.actions.is_empty() {
            for action in std::mem::take(&mut self.actions) {
                match action {
                    FrontAction::Request(request) => self.take_request(request),
                    FrontAction::Tunnel { .. } => {
                        self.is_tunnel = true;
                        self.end();
                    }
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
