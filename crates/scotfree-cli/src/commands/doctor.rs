//! The command `scot doctor`.
//!
//! Invariant: ports and logs that the configuration names are checked as it names them.

use super::daemons::switch;
use crate::cli::DoctorArgs;
use crate::config::Sources;
use crate::failure::Failure;
use crate::out;
use crate::settings::{Config, Doctor, Plane, Switch, XdpMode};
use crate::text::{LogTier, PORT_DEFAULT};
use scotfree_doctor::{examine, KernelWish, LogDemand, LogRoom, PortWish, System, Wishes};
use scotfree_stage::process::Socket;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

pub fn run(sources: &Sources, flags: &DoctorArgs) -> Result<(), Failure> {
    let mut config = sources.read()?;
    config.switch.plane = flags.plane.or(config.switch.plane);
    config.switch.pin = flags.pin.clone().or(config.switch.pin);
    if !flags.ports.is_empty() {
        config.switch.ports.clone_from(&flags.ports);
    }
    let examination = examine(&System, &wishes(&config));
    if flags.json {
        out::json(&examination);
    } else {
        out::line(&examination);
    }
    if examination.ok {
        Ok(())
    } else {
        Err(Failure::Verdict)
    }
}

fn wishes(config: &Config) -> Wishes {
    let demand = LogDemand::default();
    Wishes {
        is_demand_asked: config.doctor != Doctor::default(),
        ports: ports(config),
        interfaces: config.switch.ports.clone(),
        kernel: kernel(&config.switch),
        logs: logs(config),
        pmem_logs: pmem_logs(config),
        demand: LogDemand {
            rate_per_s: config.doctor.rate_per_s.unwrap_or(demand.rate_per_s),
            update_bytes: config.doctor.update_bytes.unwrap_or(demand.update_bytes),
            time_to_stable_p99_ms: config
                .doctor
                .time_to_stable_p99_ms
                .unwrap_or(demand.time_to_stable_p99_ms),
        },
    }
}

fn kernel(switch: &Switch) -> KernelWish {
    KernelWish {
        is_wanted: switch.plane == Some(Plane::Xdp),
        pin: switch.pin.clone(),
        generic: switch.xdp_mode == Some(XdpMode::Generic),
    }
}

fn ports(config: &Config) -> Vec<PortWish> {
    let any = |port: u16| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let wish = |purpose: &str, socket, configured: Option<SocketAddr>, usual: Option<SocketAddr>| {
        configured.or(usual).map(|address| PortWish {
            purpose: purpose.to_owned(),
            socket,
            address,
            is_configured: configured.is_some(),
        })
    };
    let Config { switch, kv, server, client, proxy, .. } = config;
    let address = |address: Option<crate::text::Address>| address.map(|it| it.0);
    let listen = address(kv.listen).or(address(server.listen));
    let wishes = [
        wish("a server", Socket::Udp, listen, Some(any(PORT_DEFAULT))),
        // None that is usual: what listens at Redis' own port is most likely the Redis.
        wish("Redis clients", Socket::Tcp, client.listen, None),
        wish("metrics of the device", Socket::Tcp, switch.metrics, None),
        wish("metrics of scot kv", Socket::Tcp, kv.metrics, None),
        wish("metrics of the server's sidecar", Socket::Tcp, server.metrics, None),
        wish("metrics of the client's sidecar", Socket::Tcp, client.metrics, None),
    ];
    let of_proxies = proxy.all().iter().flat_map(|proxy| {
        [
            wish("Redis clients of the proxy", Socket::Tcp, proxy.listen, None),
            wish("Redis clients of the proxy, under TLS", Socket::Tcp, proxy.tls_listen, None),
            wish("metrics of the proxy", Socket::Tcp, proxy.metrics, None),
        ]
    });
    wishes.into_iter().chain(of_proxies).flatten().collect()
}

fn logs(config: &Config) -> Vec<LogRoom> {
    let entries_max = switch::entries_max(&config.switch);
    let room = |log: &crate::text::LogSpec| LogRoom {
        name: crate::text::LogSpec { size: None, ..log.clone() }.to_string(),
        // Half of a disk log may be live.
        bytes_max: (log.tier == LogTier::Disk).then(|| switch::disk_log_bytes(log) / 2),
        entries_max,
    };
    config.switch.log.iter().map(room).collect()
}

fn pmem_logs(config: &Config) -> Vec<PathBuf> {
    let logs = config.switch.log.iter().filter(|log| log.tier == LogTier::Pmem);
    logs.map(|log| log.path.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Proxies, Proxy};

    #[test]
    fn the_ports_of_proxies_are_looked_at_and_none_that_a_redis_has_usually() {
        let at = |port: u16| Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let one = Proxy { listen: at(7_379), metrics: at(9_099), ..Proxy::default() };
        let other = Proxy { tls_listen: at(7_380), ..Proxy::default() };
        let config = Config { proxy: Proxies::Several(vec![one, other]), ..Config::default() };
        let found: Vec<_> = ports(&config).iter().map(|wish| wish.address.port()).collect();
        assert_eq!(found, [PORT_DEFAULT, 7_379, 9_099, 7_380]);
        assert_eq!(ports(&Config::default()).len(), 1);
    }
}
