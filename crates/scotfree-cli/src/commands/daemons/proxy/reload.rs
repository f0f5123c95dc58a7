//! SIGHUP: what of the settings is taken over while proxies serve.
//!
//! Invariant: all of it is understood before anything is taken over, of any proxy.

use super::sections::{sections, Section};
use super::{check_peers, config, Settings, Tls};
use crate::commands::daemons::client::early_rule_of;
use crate::commands::daemons::{cluster_key, take_key};
use crate::config::Sources;
use crate::failure::Failure;
use crate::serve::{say_reload, InForce, Messages};
use crate::settings::Cluster;
use scotfree_resp::front::EarlyRule;
use scotfree_rpc::SharedKey;
use scotfree_sidecar::client::proxy::ProxyConfig;
use scotfree_sidecar::client::EarlyRules;
use scotfree_wire::ClusterKey;

/// What can be taken over without a restart; connections that are open keep their rule.
const RELOADABLE: [&str; 12] = [
    "mode",
    "early_prefix",
    "log_level",
    "key_file",
    "key",
    "tls_cert",
    "tls_key",
    "tls_client_ca",
    "redis_ca",
    "redis_cert",
    "redis_key",
    "certificates",
];

/// A proxy that serves, and what of it can be changed.
pub(super) struct Running {
    name: Option<String>,
    in_force: InForce,
    messages: Messages,
    rules: EarlyRules,
    /// What peers are spoken to with, and an operator.
    key: Option<SharedKey>,
    tls: Tls,
}

/// What a proxy is to take over.
struct New {
    settings: Settings,
    rule: EarlyRule,
    key: Option<ClusterKey>,
    tls: Tls,
}

impl Running {
    /// One that was begun so.
    pub fn new(section: &Section<'_>, config: &ProxyConfig, messages: Messages) -> Running {
        Running {
            name: section.name.clone(),
            in_force: InForce::of(&section.settings),
            messages,
            rules: config.early_rules.clone(),
            key: config.questions.key().cloned(),
            tls: Tls::of(config),
        }
    }

    fn read(&self, section: &Section<'_>, cluster: &Cluster) -> Result<New, Failure> {
        let settings = section.settings.clone();
        check_peers(&settings)?;
        let tls = Tls::of(&config(&settings)?);
        let rule = early_rule_of("proxy", settings.mode, &settings.early_prefix)?;
        let key = self.key.as_ref().map(|_| cluster_key(cluster)).transpose()?;
        Ok(New { settings, rule, key, tls })
    }

    /// The keys that have changed.
    fn take_over(&mut self, new: New) -> Vec<String> {
        let mut changed = self.in_force.take_over(&InForce::of(&new.settings), &RELOADABLE);
        if let (Some(shared), Some(key)) = (&self.key, new.key) {
            changed.extend(take_key(&self.messages, shared, key).then(|| "key".to_owned()));
        }
        changed.extend(self.tls.take_over(&new.tls).then(|| "certificates".to_owned()));
        self.rules.set(new.rule);
        changed
    }
}

/// All proxies of this process.
pub(super) struct Reload {
    pub sources: Sources,
    pub common: InForce,
    pub messages: Messages,
    pub running: Vec<Running>,
}

impl Reload {
    /// Reads the settings again, takes over what can be, and says so.
    pub fn run(&mut self) {
        match self.read() {
            Ok((cluster, new)) => self.take_over(&cluster, new),
            Err(failure) => self.messages.say(&format!("ALARM: not reloaded: {failure}")),
        }
    }

    fn read(&self) -> Result<(Cluster, Vec<New>), Failure> {
        let read = self.sources.read()?;
        let sections = sections(&read.proxy, &self.sources)?;
        let is_of = |running: &Running, section: &Section<'_>| running.name == section.name;
        let gone =
            self.running.iter().find(|running| !sections.iter().any(|section| is_of(running, section)));
        if gone.is_some() || sections.len() != self.running.len() {
            let now = names(sections.iter().map(|section| section.name.as_deref()));
            let before = names(self.running.iter().map(|running| running.name.as_deref()));
            return Err(Failure::usage(format!(
                "the configuration has {now}, and this process serves {before}; restart it to take that over"
            )));
        }
        let new = self.running.iter().filter_map(|running| {
            let section = sections.iter().find(|section| is_of(running, section))?;
            let new = running.read(section, &read.cluster);
            Some(new.map_err(|failure| section.placed(&self.sources, failure)))
        });
        let new = new.collect::<Result<Vec<_>, _>>()?;
        Ok((read.cluster, new))
    }

    fn take_over(&mut self, cluster: &Cluster, new: Vec<New>) {
        self.messages.set_level(cluster.log_level);
        let mut common = self.common.take_over(&InForce::of(&cluster), &RELOADABLE);
        let mut is_any_said = false;
        for (running, new) in self.running.iter_mut().zip(new) {
            let mut changed = running.take_over(new);
            if running.name.is_none() {
                changed.append(&mut common);
            }
            if !changed.is_empty() {
                is_any_said = true;
                say_reload(&running.messages, &changed, &RELOADABLE);
            }
        }
        if !common.is_empty() || !is_any_said {
            say_reload(&self.messages, &common, &RELOADABLE);
        }
    }
}

/// Proxies as one line has them.
fn names<'n>(names: impl Iterator<Item = Option<&'n str>>) -> String {
    let all: Vec<&str> = names.map(|name| name.unwrap_or("one section [proxy]")).collect();
    let what = if all.len() > 1 { "proxies " } else { "" };
    format!("{what}{}", all.join(", "))
}
