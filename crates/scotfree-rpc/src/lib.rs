//! The RPC runtime: event loops that drive the persist remedy's client and server machines, the ten
//! stamps of each call, metrics, and the six calls of `PMNet`'s interface.
//!
//! Invariant: protocol decisions are the machines'; here are sockets, clocks and buffers. The unsafe
//! code of the C interface is not part of this library: it lies in `c_api.rs`, a target of its own.
#![forbid(unsafe_code)]

mod client;
mod dead_letters;
mod group;
mod grouped;
mod listener;
pub mod metrics;
mod noop;
mod outbox;
mod peek;
mod probes;
mod refusals;
mod server;
mod server_metrics;
mod service;
mod session;
mod shared_key;
mod upstream;
mod volatile;
mod watched;

pub use client::{
    CallError, ClientEvent, ClientOptions, ClientRuntime, ClientRuntimeCounters, ClientTotals, Recorded,
    Reply, SessionHandle, SessionOptions, StartError,
};
pub use dead_letters::DeadLetterFile;
pub use group::{
    GivenUp, GroupClient, GroupCounters, GroupError, GroupEvent, GroupMember, GroupOptions, GroupSubmitError,
    Policy, RequestNumber, GROUP_MEMBERS_MAX,
};
pub use grouped::{GroupCommand, GroupMaker, GroupPlan, MakeMember, Say, StatefulService};
pub use listener::{Incoming, Listener, ListenerConfig, ListenerError, SessionKeeping};
pub use noop::NoopHandler;
pub use probes::{CallLabel, ProbeOptions};
pub use server::{exclusion_notice, Exclusions, ServerOptions, ServerRuntime, ServerRuntimeCounters, Stop};
pub use server_metrics::{write_refused, write_udp_metrics, ServerDurations, ServerMetrics};
pub use service::{DeadLetter, Execution, Handler, Replies, ReplyCopy, Report, Service, Watch};
pub use session::{key_hash, start_session, Session, SessionConfig, SessionError};
pub use shared_key::SharedKey;
pub use upstream::Upstream;
pub use volatile::Volatile;
pub use watched::Watched;
// Named by this interface: who runs a server or reads a reply needs no other crate.
pub use scotfree_session::{
    ClosedReason, CompletedBy, DeadLetterReason, Mode, RecoveredSession, Request, RequestKind, ServerConfig,
    SubmitError,
};
