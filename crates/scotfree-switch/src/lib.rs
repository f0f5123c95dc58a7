//! The device daemon: bridges its ports, lets the persist device see Scotfree's packets, keeps the
//! logs, and says how it is.
//!
//! Invariant: decisions are made in machines and tables without I/O ([`bridge`], [`neighbours`],
//! [`impair`], the persist device itself); one thread owns all of them, and one loop moves the frames.
#![forbid(unsafe_code)]

pub mod bridge;
mod config;
mod daemon;
pub mod datapath;
#[cfg(feature = "xdp")]
mod events;
pub mod impair;
mod link;
pub mod log_tools;
pub mod logs;
mod metrics;
pub mod metrics_http;
mod ndp;
pub mod neighbours;
mod notice;
mod offload;
pub mod outbox;
mod plane;
pub mod plane_user;
#[cfg_attr(not(feature = "xdp"), path = "plane_xdp/left_out.rs")]
mod plane_xdp;
pub mod programs;
#[cfg(feature = "xdp")]
pub mod sets;

pub use config::{
    DiskLogConfig, PlaneConfig, PortConfig, RamLogConfig, SwitchConfig, XdpConfig, PORTS_DEFAULT, PORTS_MAX,
    RECORDS_MAX, XDP_SESSIONS_MAX,
};
pub use daemon::{Command, Daemon, DaemonHandle, StartError, RECORD_BYTES_MAX};
pub use link::{is_link_local, mac_of_device, Vlan};
pub use metrics::{MetricKind, MetricsText};
pub use notice::{Notices, Sink};
#[cfg(feature = "xdp")]
pub use scotfree_xdp::Prepared;
