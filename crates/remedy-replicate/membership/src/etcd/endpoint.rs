//! Where a group's keys are: `etcd:http://HOST:PORT[,HOST:PORT...]/PREFIX`.

/// How many of etcd's servers are named at most.
const HOSTS_MAX: usize = 16;

/// The servers of an etcd, and the prefix of one group's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Each as `http://HOST:PORT`; they are tried in turn.
    pub hosts: Vec<String>,
    /// With a slash before it and none behind.
    pub prefix: String,
}

impl Endpoint {
    /// Reads an endpoint, with or without `etcd:` before it.
    pub fn parse(text: &str) -> Result<Endpoint, String> {
        let refuse = |why: &str| Err(format!("{text}: {why}, e.g. etcd:http://127.0.0.1:2379/scotfree/g1"));
        let address = text.strip_prefix("etcd:").unwrap_or(text);
        if address.starts_with("https:") {
            return refuse("etcd is spoken to in the clear; put a proxy that speaks TLS on this host");
        }
        let Some(rest) = address.strip_prefix("http://") else {
            return refuse("an endpoint of etcd begins with http://");
        };
        let Some((hosts, path)) = rest.split_once('/') else {
            return refuse("the prefix of the group's keys is missing");
        };
        let path = path.trim_matches('/');
        if path.is_empty() {
            return refuse("the prefix of the group's keys is missing");
        }
        let hosts: Vec<&str> = hosts.split(',').collect();
        if hosts.len() > HOSTS_MAX || hosts.iter().any(|host| !has_port(host)) {
            return refuse("1 to 16 servers are named, each as HOST:PORT");
        }
        let hosts = hosts.into_iter().map(|host| format!("http://{host}")).collect();
        Ok(Endpoint { hosts, prefix: format!("/{path}") })
    }

    /// The key of one thing of the group.
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.prefix)
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hosts: Vec<&str> = self.hosts.iter().map(|host| host.trim_start_matches("http://")).collect();
        write!(f, "etcd:http://{}{}", hosts.join(","), self.prefix)
    }
}

fn has_port(host: &str) -> bool {
    host.rsplit_once(':').is_some_and(|(name, port)| !name.is_empty() && port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_endpoint_is_servers_and_a_prefix() {
        let text = "etcd:http://127.0.0.1:2379,[::1]:2380/scotfree/g1";
        let endpoint = Endpoint::parse(text).unwrap();
        assert_eq!(endpoint.hosts, ["http://127.0.0.1:2379", "http://[::1]:2380"]);
        assert_eq!(endpoint.key("view"), "/scotfree/g1/view");
        assert_eq!(endpoint.to_string(), text);
        for (text, reason) in [
            ("etcd:https://a:1/b", "TLS"),
            ("etcd:a:1/b", "begins with http://"),
            ("http://a:1", "prefix"),
            ("http://a:1//", "prefix"),
            ("http://a/b", "HOST:PORT"),
            ("http://a:1,/b", "HOST:PORT"),
        ] {
            let said = Endpoint::parse(text).unwrap_err();
            assert!(said.contains(reason), "{said}");
        }
    }
}
