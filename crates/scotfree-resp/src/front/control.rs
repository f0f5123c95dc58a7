//! Commands that change or report the state of the connection.
//!
//! Invariant: they answer what Redis answers, and the server hears of them only where it has to.

use super::clients::Question;
use super::pending::Hook;
use super::{ClientFront, Closing, FrontAction, FrontRequest, ReplyMode, State};
use crate::classes::lookup;
use crate::codec::{elements, is_error, parse_integer, write_bulk, write_command, Args, Command};
use crate::guard;
use crate::payload::{RequestFlags, RequestKind};

/// What HELLO asks for besides AUTH.
#[derive(Debug, Clone, Default)]
pub(super) struct Hello {
    resp: Option<u8>,
    name: Option<Vec<u8>>,
}

impl ClientFront {
    /// Handles a command of the connection's state; false if it is none.
    pub(super) fn control(
        &mut self,
        now_ms: i64,
        name: &[u8],
        args: Args<'_>,
        actions: &mut Vec<FrontAction>,
    ) -> bool {
        match name {
            b"multi" => self.multi(),
            b"exec" => self.exec(now_ms, actions),
            b"discard" => self.discard(actions),
            b"watch" => self.watch(args, actions),
            b"unwatch" => {
                self.unwatch(actions);
                self.answer(b"+OK\r\n");
            }
            b"select" => self.select(args),
            b"auth" => self.auth(args, actions),
            b"hello" => self.hello(args, actions),
            b"reset" => self.reset(actions),
            b"client|reply" => self.client_reply(args),
            b"client|setname" => self.client_setname(args),
            b"client|getname" => self.client_getname(),
            b"client|setinfo" => self.client_setinfo(args),
            b"client|id" => self.answer(format!(":{}\r\n", self.identity.id).as_bytes()),
            b"client|info" => self.client_info(now_ms, args, actions),
            b"client|list" | b"client|kill" | b"client|unblock" => self.clients(name, args, actions),
            b"client|getredir"
            | b"client|trackinginfo"
            | b"client|no-evict"
            | b"client|no-touch"
            | b"client|capa" => {
                self.on_own_connection(args, Hook::None, actions);
            }
            _ => return false,
        }
        true
    }

    /// What a reply means for the connection; true if it is not (yet) the client's answer.
    pub(super) fn run_hook(
        &mut self,
        now_ms: i64,
        id: u64,
        hook: Hook,
        reply: &[u8],
        actions: &mut Vec<FrontAction>,
    ) -> bool {
        match hook {
            Hook::None | Hook::Shutdown | Hook::Hello | Hook::ClientInfo(_) | Hook::Tunnel(_) => {
                return false
            }
            Hook::Clients(_) if is_error(reply) => return false,
            Hook::Clients(question) => {
                actions.push(FrontAction::Clients { id, question, list: reply.to_vec() });
                return true;
            }
            Hook::AuthAgain { .. } if is_error(reply) => {
                self.pending.complete(id, reply, true);
                return true;
            }
            Hook::Auth { user, credentials } | Hook::AuthAgain { user, credentials } => {
                self.authenticated(user, credentials, reply);
            }
            Hook::HelloAuth { user, credentials, hello } => {
                self.authenticated(user, credentials, reply);
                if !is_error(reply) {
                    let request = self.hello_request(id, &hello);
                    self.pending.set_hook(id, Hook::Hello);
                    actions.push(FrontAction::Request(request));
                    return true;
                }
            }
            Hook::Exec { selects } => self.executed(&selects, reply),
            Hook::Queue(queued) => self.asked_to_queue(&queued, reply),
            Hook::Barrier => {
                self.on_barrier(id, reply, actions);
                return true;
            }
            Hook::Aside => {
                self.end_aside(actions);
                return false;
            }
            Hook::AskExec(transaction) => {
                self.asked_to_exec(now_ms, id, &transaction, reply, actions);
                return true;
            }
        }
        false
    }

    fn executed(&mut self, selects: &[(usize, u16)], reply: &[u8]) {
        self.state.stalled = false;
        let replies: Vec<&[u8]> = elements(reply).collect();
        for (index, db) in selects {
            if replies.get(*index) == Some(&&b"+OK\r\n"[..]) {
                self.state.db = *db;
            }
        }
    }

    fn authenticated(&mut self, user: bool, credentials: Command, reply: &[u8]) {
        self.state.stalled = false;
        if !is_error(reply) {
            self.state.authenticated = true;
            self.state.user = user;
            self.state.credentials = Some(credentials);
        }
    }

    fn select(&mut self, args: Args<'_>) {
        let Some(db) = parse_integer(args.get(1)) else {
            self.answer(b"-ERR value is not an integer or out of range\r\n");
            return;
        };
        if i32::try_from(db).is_err() {
            self.answer(b"-ERR value is out of range, value must between -2147483648 and 2147483647\r\n");
            return;
        }
        match u16::try_from(db).ok().filter(|db| *db < self.description.databases) {
            None => self.answer(b"-ERR DB index is out of range\r\n"),
            Some(db) if db == self.description.reserved_db => self.answer_error(&guard::reserved(db)),
            Some(db) => {
                self.state.db = db;
                self.answer(b"+OK\r\n");
            }
        }
    }

    fn watch(&mut self, args: Args<'_>, actions: &mut Vec<FrontAction>) {
        if self.state.transaction.is_some() {
            self.answer(b"-ERR WATCH inside MULTI is not allowed\r\n");
            return;
        }
        self.state.watching = self.on_own_connection(args, Hook::None, actions) || self.state.watching;
    }

    /// Forgets what is watched.
    pub(super) fn unwatch(&mut self, actions: &mut Vec<FrontAction>) {
        if std::mem::take(&mut self.state.watching) {
            let mut payload = self.begin_payload(RequestFlags::PRIVATE);
            write_command(&mut payload, Command::new(["UNWATCH"]).args());
            actions.push(FrontAction::Request(FrontRequest::read("UNWATCH", payload)));
        }
    }

    /// A command that has to run on a connection to the server that is ours alone; false if it was not sent.
    fn on_own_connection(&mut self, args: Args<'_>, hook: Hook, actions: &mut Vec<FrontAction>) -> bool {
        // Whoever proves to be the default user, or the sidecar's, needs no connection of its own afterwards.
        let brief = matches!(
            hook,
            Hook::Auth { user: false, .. }
                | Hook::AuthAgain { user: false, .. }
                | Hook::HelloAuth { user: false, .. }
        );
        let release = brief && !self.state.user && !self.state.watching;
        let flags = RequestFlags::PRIVATE.with_if(release, RequestFlags::RELEASE);
        self.state.private_open |= !release;
        let mut payload = self.begin_payload(flags);
        write_command(&mut payload, args);
        let method = lookup(args).map_or("unknown", |row| row.command.as_str());
        self.send(FrontRequest::read(method, payload), hook, actions)
    }

    /// Whether AUTH names a user whose rights are not those with which clients' commands are executed anyway. Who proves
    /// to be the sidecar's own user shares its connections, and is logged.
    fn is_another_user(&self, args: Args<'_>) -> bool {
        let shared = [b"default", self.description.own_user.as_bytes()];
        args.len() == 3 && !shared.contains(&args.get(1))
    }

    fn auth(&mut self, args: Args<'_>, actions: &mut Vec<FrontAction>) {
        if args.len() > 3 {
            self.answer(b"-ERR syntax error\r\n");
            return;
        }
        let user = self.is_another_user(args);
        let hook = Hook::Auth { user, credentials: args.into() };
        self.state.stalled = self.on_own_connection(args, hook, actions);
    }

    fn hello(&mut self, args: Args<'_>, actions: &mut Vec<FrontAction>) {
        let (hello, credentials) = match parse_hello(args) {
            Ok(parsed) => parsed,
            Err(text) => return self.answer_error(&text),
        };
        if let Some(credentials) = credentials {
            let user = self.is_another_user(credentials.args());
            let hook = Hook::HelloAuth { user, credentials: credentials.clone(), hello };
            self.state.stalled = self.on_own_connection(credentials.args(), hook, actions);
        } else if self.state.authenticated {
            let id = self.pending.expect(Hook::Hello);
            let request = self.hello_request(id, &hello);
            actions.push(FrontAction::Request(request));
        } else {
            self.answer(
                b"-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH \
                  <user> <pass> option can be used to authenticate the client and select the RESP protocol \
                  version at the same time\r\n",
            );
        }
    }

    /// Takes on what HELLO asks for, and asks the server for its answer.
    fn hello_request(&mut self, id: u64, hello: &Hello) -> FrontRequest {
        self.take_hello(hello);
        let resp = self.state.resp.to_string();
        let mut payload = self.begin_payload(RequestFlags::NONE);
        write_command(&mut payload, Command::new(["HELLO", &resp]).args());
        self.counters.reads += 1;
        FrontRequest { id, ..FrontRequest::read("HELLO", payload) }
    }

    pub(super) fn take_hello(&mut self, hello: &Hello) {
        if let Some(resp) = hello.resp {
            self.state.resp = resp;
        }
        if let Some(name) = &hello.name {
            self.state.client_name.clone_from(name);
        }
    }

    /// The server has let the client into its tunnel, as the user that this command names.
    pub(super) fn take_user(&mut self, credentials: Command) {
        self.state.user = self.is_another_user(credentials.args());
        self.state.authenticated = true;
        self.state.credentials = Some(credentials);
        self.state.is_known_in_tunnel_only = true;
    }

    /// Behind a tunnel: as whom the client has proved itself in it, it is known on the usual way before its next
    /// command. Nobody asked for the answer.
    pub(super) fn authenticate_again(&mut self, actions: &mut Vec<FrontAction>) {
        let is_new =
            std::mem::take(&mut self.state.is_known_in_tunnel_only) && self.state.closing == Closing::No;
        let Some(credentials) = self.state.credentials.clone().filter(|_| is_new) else { return };
        // What names a user is refused where the server knows of none on a connection of this one's own.
        let user = std::mem::take(&mut self.state.user);
        let suppressed = std::mem::replace(&mut self.pending.suppress, true);
        let hook = Hook::AuthAgain { user, credentials: credentials.clone() };
        self.state.stalled = self.on_own_connection(credentials.args(), hook, actions);
        self.pending.suppress = suppressed;
        self.state.user = user;
    }

    fn reset(&mut self, actions: &mut Vec<FrontAction>) {
        if self.state.private_open {
            let request = self.release_request();
            actions.push(FrontAction::Request(request));
        }
        // Answers come again, its own as the first; but one that was to be skipped is.
        self.pending.suppress &= self.state.replies != ReplyMode::Off;
        self.forget_state();
        self.answer(b"+RESET\r\n");
    }

    /// The client is as one that has just come; what the server is like stays known.
    pub(super) fn forget_state(&mut self) {
        let early_allowed = self.state.early_allowed;
        let writes_refused = self.state.writes_refused.take();
        self.state = State { early_allowed, writes_refused, ..State::new(&self.description) };
    }

    fn client_reply(&mut self, args: Args<'_>) {
        if args.is(2, "ON") {
            self.state.replies = ReplyMode::On;
            self.pending.suppress = false;
            self.answer(b"+OK\r\n");
        } else if args.is(2, "OFF") {
            self.state.replies = ReplyMode::Off;
        } else if args.is(2, "SKIP") {
            if self.state.replies != ReplyMode::Off {
                self.state.replies = ReplyMode::SkipNext;
            }
        } else {
            self.answer(b"-ERR syntax error\r\n");
        }
    }

    fn client_setname(&mut self, args: Args<'_>) {
        if is_printable(args.get(2)) {
            self.state.client_name = args.get(2).to_vec();
            self.answer(b"+OK\r\n");
        } else {
            self.answer_error(BAD_NAME);
        }
    }

    fn client_getname(&mut self) {
        if self.state.client_name.is_empty() {
            self.answer(if self.state.resp == 3 { b"_\r\n" } else { b"$-1\r\n" });
        } else {
            let mut reply = Vec::new();
            write_bulk(&mut reply, &self.state.client_name);
            self.answer(&reply);
        }
    }

    /// The server describes a connection of our own to it; what is the client's is put in its place.
    fn client_info(&mut self, now_ms: i64, args: Args<'_>, actions: &mut Vec<FrontAction>) {
        let mut facts = self.facts();
        facts.heard_ms = now_ms;
        facts.command = b"client|info".to_vec();
        let mut words = facts.plain_words(now_ms);
        words.push(("qbuf", asked_bytes(args)));
        self.on_own_connection(args, Hook::ClientInfo(words), actions);
    }

    /// A question about the clients. Who they are is known here, how the server describes clients is known there.
    fn clients(&mut self, name: &[u8], args: Args<'_>, actions: &mut Vec<FrontAction>) {
        let question = match Question::parse(name, args, &self.description.version) {
            Ok(question) => question,
            Err(text) => return self.answer_error(&text),
        };
        self.state.last_command = "CLIENT LIST";
        if question.needs_list() {
            let list = Command::new(["CLIENT", "LIST"]);
            let request = self.request_of(RequestKind::Read, None, list.args());
            self.send(request, Hook::Clients(question), actions);
        } else {
            let id = self.pending.expect(Hook::None);
            actions.push(FrontAction::Clients { id, question, list: Vec::new() });
        }
    }

    /// The library's name would be that of our own connection's, so it stays here.
    fn client_setinfo(&mut self, args: Args<'_>) {
        let attribute = String::from_utf8_lossy(args.get(2)).to_ascii_lowercase();
        if attribute != "lib-name" && attribute != "lib-ver" {
            self.answer_error(&format!("ERR Unrecognized option '{}'", String::from_utf8_lossy(args.get(2))));
        } else if is_printable(args.get(3)) {
            self.answer(b"+OK\r\n");
        } else {
            self.answer_error(&format!(
                "ERR {attribute} cannot contain spaces, newlines or special characters."
            ));
        }
    }
}

/// How many bytes a command takes as it is sent.
fn asked_bytes(args: Args<'_>) -> Vec<u8> {
    let mut sent = Vec::new();
    write_command(&mut sent, args);
    sent.len().to_string().into_bytes()
}

const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";

fn is_printable(name: &[u8]) -> bool {
    name.iter().all(u8::is_ascii_graphic)
}

/// HELLO [version [AUTH user password] [SETNAME name]]: what it asks, and its AUTH as a command.
pub(super) fn parse_hello(args: Args<'_>) -> Result<(Hello, Option<Command>), String> {
    let mut hello = Hello::default();
    let mut credentials = None;
    if args.len() > 1 {
        let version = parse_integer(args.get(1))
            .ok_or_else(|| "ERR Protocol version is not an integer or out of range".to_owned())?;
        if !(2..=3).contains(&version) {
            return Err("NOPROTO unsupported protocol version".to_owned());
        }
        hello.resp = Some(version as u8);
    }
    let mut at = 2;
    while at < args.len() {
        if args.is(at, "AUTH") && at + 2 < args.len() {
            credentials = Some(Command::new([b"AUTH", args.get(at + 1), args.get(at + 2)]));
            at += 3;
        } else if args.is(at, "SETNAME") && at + 1 < args.len() {
            if !is_printable(args.get(at + 1)) {
                return Err(BAD_NAME.to_owned());
            }
            hello.name = Some(args.get(at + 1).to_vec());
            at += 2;
        } else {
            let option = String::from_utf8_lossy(args.get(at)).into_owned();
            return Err(format!("ERR Syntax error in HELLO option '{option}'"));
        }
    }
    Ok((hello, credentials))
}
