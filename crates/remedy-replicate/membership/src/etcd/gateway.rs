//! etcd v3 through its gateway, which takes JSON over HTTP.
//!
//! Invariant: one question is one request to one server, and an answer that is not understood is a failure. After a
//! failure the next server is asked the next time.

use super::endpoint::Endpoint;
use super::request::{Answer, Entry, Guard, Request, Swap};
use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use scotfree_core::Nanos;
use serde_json::{json, Value};
use std::time::Duration;

/// A view, a group and 255 signs of life are far below it.
const ANSWER_BYTES_MAX: u64 = 4 << 20;

/// The way to one group at etcd.
pub(crate) struct Gateway {
    endpoint: Endpoint,
    agent: ureq::Agent,
    /// Which server is asked.
    host: usize,
}

impl Gateway {
    pub(crate) fn new(endpoint: Endpoint) -> Gateway {
        // What a proxy of the environment would do to leases nobody knows.
        let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build();
        Gateway { endpoint, agent: config.into(), host: 0 }
    }

    /// How many servers there are to ask.
    pub(crate) fn host_count(&self) -> usize {
        self.endpoint.hosts.len()
    }

    /// Asks, and waits for the answer at most `limit`.
    pub(crate) fn ask(&mut self, request: &Request, limit: Nanos) -> Result<Answer, String> {
        let answer = match request {
            Request::Look => self.look(limit),
            Request::Grant { ttl_seconds } => self.grant(*ttl_seconds, limit),
            Request::KeepAlive { lease } => self.keep_alive(*lease, limit),
            Request::Revoke { lease } => self.revoke(*lease, limit),
            Request::Swap(swap) => self.swap(swap, limit),
        };
        answer.map_err(|reason| {
            let host = self.endpoint.hosts[self.host].clone();
            self.host = (self.host + 1) % self.host_count();
            format!("{host}: {reason}")
        })
    }

    /// How many seconds a lease still lasts, and nothing if it is over.
    pub(crate) fn lease_left(&mut self, lease: i64, limit: Nanos) -> Result<Option<u64>, String> {
        let answer = self.post("/v3/lease/timetolive", &json!({ "ID": lease.to_string() }), limit)?;
        let answer = answer.accepted()?;
        Ok(u64::try_from(integer(&answer, "TTL")?).ok())
    }

    fn look(&self, limit: Nanos) -> Result<Answer, String> {
        // All keys that begin with `PREFIX/`: up to the one that begins with the character after the slash.
        let (first, end) = (self.endpoint.key(""), format!("{}0", self.endpoint.prefix));
        let question = json!({ "key": coded(&first), "range_end": coded(&end) });
        let answer = self.post("/v3/kv/range", &question, limit)?.accepted()?;
        let found = answer.get("kvs").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let entries: Result<Vec<Entry>, String> =
            found.iter().map(|entry| read_entry(entry, &first)).collect();
        let term = answer.get("header").map_or(Ok(0), |header| natural(header, "raft_term"))?;
        Ok(Answer::Looked { entries: entries?, term })
    }

    fn grant(&self, ttl_seconds: u64, limit: Nanos) -> Result<Answer, String> {
        let question = json!({ "TTL": ttl_seconds.to_string() });
        let answer = self.post("/v3/lease/grant", &question, limit)?.accepted()?;
        let lease = integer(&answer, "ID")?;
        let ttl_seconds = natural(&answer, "TTL")?;
        if lease == 0 || ttl_seconds == 0 {
            return Err(format!("no lease: {answer}"));
        }
        Ok(Answer::Granted { lease, ttl_seconds })
    }

    fn keep_alive(&self, lease: i64, limit: Nanos) -> Result<Answer, String> {
        let answer =
            self.post("/v3/lease/keepalive", &json!({ "ID": lease.to_string() }), limit)?.accepted()?;
        let result = answer.get("result").ok_or_else(|| format!("no result: {answer}"))?;
        if integer(result, "ID")? != lease {
            return Err(format!("an answer about another lease: {answer}"));
        }
        Ok(Answer::KeptAlive { ttl_seconds: natural(result, "TTL")? })
    }

    fn revoke(&self, lease: i64, limit: Nanos) -> Result<Answer, String> {
        let answer = self.post("/v3/lease/revoke", &json!({ "ID": lease.to_string() }), limit)?;
        if !answer.is_lease_unknown() {
            answer.accepted()?;
        }
        Ok(Answer::Revoked)
    }

    fn swap(&self, swap: &Swap, limit: Nanos) -> Result<Answer, String> {
        let guards: Vec<Value> = swap.guards.iter().map(|guard| self.compare(guard)).collect();
        let put = json!({
            "key": coded(&self.endpoint.key(&swap.key)),
            "value": coded(&swap.value),
            "lease": swap.lease.unwrap_or(0).to_string(),
        });
        let question = json!({ "compare": guards, "success": [{ "request_put": put }] });
        let answer = self.post("/v3/kv/txn", &question, limit)?;
        if answer.is_lease_unknown() {
            return Ok(Answer::LeaseOver);
        }
        let answer = answer.accepted()?;
        if answer.get("header").is_none() {
            return Err(format!("no answer to a transaction: {answer}"));
        }
        Ok(Answer::Swapped(answer.get("succeeded").and_then(Value::as_bool).unwrap_or(false)))
    }

    fn compare(&self, guard: &Guard) -> Value {
        let (key, target, name, revision) = match guard {
            Guard::Made { key, revision } => (key, "CREATE", "create_revision", revision),
            Guard::Written { key, revision } => (key, "MOD", "mod_revision", revision),
        };
        let key = coded(&self.endpoint.key(key));
        json!({ "key": key, "target": target, "result": "EQUAL", name: revision.to_string() })
    }

    fn post(&self, path: &str, question: &Value, limit: Nanos) -> Result<Reply, String> {
        let url = format!("{}{path}", self.endpoint.hosts[self.host]);
        let request = self.agent.post(&url).content_type("application/json");
        let request = request.config().timeout_global(Some(Duration::from_nanos(limit.0))).build();
        let mut response = request.send(question.to_string()).map_err(|error| error.to_string())?;
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
        let text = body.map_err(|error| error.to_string())?;
        let body = serde_json::from_str(&text).map_err(|_| {
            let start: String = text.chars().take(100).collect();
            format!("status {status}, and no JSON: {start:?}; is it an etcd of version 3.4 or later?")
        })?;
        Ok(Reply { status, body })
    }
}

struct Reply {
    status: u16,
    body: Value,
}

impl Reply {
    fn accepted(self) -> Result<Value, String> {
        if self.status == 200 && self.body.get("error").is_none() {
            return Ok(self.body);
        }
        let said = self.body.get("message").or_else(|| self.body.get("error"));
        let said = said.map_or_else(|| self.body.to_string(), ToString::to_string);
        Err(format!("status {}: {said}", self.status))
    }

    /// gRPC's code 5, not found: what is asked names nothing else that could be missing.
    fn is_lease_unknown(&self) -> bool {
        self.body.get("code").and_then(Value::as_i64) == Some(5)
    }
}

fn read_entry(entry: &Value, prefix: &str) -> Result<Entry, String> {
    let key = text(entry, "key")?;
    let key = key.strip_prefix(prefix).ok_or_else(|| format!("{key} was not asked for"))?;
    Ok(Entry {
        key: key.to_owned(),
        value: text(entry, "value")?,
        made: integer(entry, "create_revision")?,
        written: integer(entry, "mod_revision")?,
        lease: integer(entry, "lease")?,
    })
}

fn coded(text: &str) -> String {
    STANDARD.encode(text)
}

fn text(object: &Value, name: &str) -> Result<String, String> {
    let coded = object.get(name).and_then(Value::as_str).unwrap_or_default();
    let bytes = STANDARD.decode(coded).map_err(|error| format!("{name}: {error}"))?;
    String::from_utf8(bytes).map_err(|error| format!("{name}: {error}"))
}

/// Numbers of 64 bits come as text, and those that are 0 do not come.
fn integer(object: &Value, name: &str) -> Result<i64, String> {
    let Some(value) = object.get(name) else { return Ok(0) };
    let number = value.as_i64().or_else(|| value.as_str()?.parse().ok());
    number.ok_or_else(|| format!("{name} is no number: {value}"))
}

/// A time to live; one that is negative is over.
fn natural(object: &Value, name: &str) -> Result<u64, String> {
    Ok(u64::try_from(integer(object, name)?).unwrap_or(0))
}
