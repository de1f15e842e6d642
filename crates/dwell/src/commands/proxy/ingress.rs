//! `dwell proxy ingress`: the end that programs connect to.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use dwell_proxy::security::read_private;
use dwell_proxy::socks::Users;
use dwell_proxy::target::{Host, Target};
use dwell_proxy::{Listener, PORT, Reload, is_loopback, run_ingress};

use super::options::{Options, listening};

const AFTER_HELP: &str = "\
Examples:
  dwell proxy ingress --psk proxy.psk --egress hub.example --forward 5432=db:5432
  dwell proxy ingress --psk proxy.psk --egress hub.example:7734 --socks 1080 \\
      --forward 0.0.0.0:8080=intranet:80
  dwell proxy ingress --egress 127.0.0.1 --socks 1080    to an egress on this machine, unprotected
  dwell proxy ingress --psk proxy.psk --egress hub.example --accept-proxy --log-streams \\
      --forward 8443=intranet:443                        behind HAProxy with send-proxy-v2
  kill -HUP PID                                          read keys and users again

The target's name is resolved by the egress, which must allow it. A forward listens on loopback
unless another address stands before its port.

Exit codes:
  0  it ran until it was asked to stop
  1  it could not start, or had to give up
  2  the command line is wrong";

/// Accept programs' connections, and forward them to the egress
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Ingress {
    /// Address of the egress [default port: 7734]
    #[arg(long, value_name = "HOST[:PORT]", value_parser = egress)]
    egress: Target,
    /// Listen at a port, and carry what connects there to a target; may be repeated
    #[arg(long, value_name = "[ADDRESS:]PORT=HOST:PORT", value_parser = forward)]
    forward: Vec<Forward>,
    /// Listen for SOCKS5 clients, which name the target themselves; may be repeated
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = listen)]
    socks: Vec<SocketAddr>,
    /// Users of SOCKS: lines of NAME:PASSWORD in a file that only its owner may read
    #[arg(long, value_name = "FILE", requires = "socks")]
    socks_users: Option<PathBuf>,
    /// Take what TPROXY sends there, to wherever it was going; needs CAP_NET_ADMIN
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = listen)]
    transparent: Vec<SocketAddr>,
    /// Whatever connects to a listener says first for whom, by the PROXY protocol (version 2, as HAProxy does by
    /// send-proxy-v2); others are turned away
    #[arg(long)]
    accept_proxy: bool,
    /// Connections to the egress that are kept ready, and used for one stream after the other; a
    /// browser opens six to eight at once. 0: each stream gets a new one
    #[arg(long, value_name = "COUNT", default_value = "16")]
    #[arg(value_parser = clap::value_parser!(u16).range(0..=1024))]
    pool: u16,
    /// The name that the egress' certificate must bear [default: the host of --egress]
    #[arg(long, value_name = "NAME", requires = "cert")]
    egress_name: Option<String>,
    #[command(flatten)]
    options: Options,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Forward {
    listen: SocketAddr,
    to: Target,
}

/// `host`, `host:port`, `[2001:db8::1]`: the port may be left out.
fn egress(text: &str) -> Result<Target, String> {
    target_with_port(text, PORT)
}

/// A target whose port may be left out.
pub(in crate::commands) fn target_with_port(text: &str, port: u16) -> Result<Target, String> {
    let error = match text.parse::<Target>() {
        Ok(target) => return Ok(target),
        Err(error) => error,
    };
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    match bare.parse::<IpAddr>() {
        Ok(ip) => Ok(Target { host: Host::ip(ip), port }),
        Err(_) if !text.contains(':') => Host::name(text.as_bytes())
            .map(|host| Target { host, port })
            .map_err(|error| error.to_string()),
        Err(_) => Err(error.to_string()),
    }
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    let port = |text: &str| text.parse::<u16>().ok();
    match port(text) {
        Some(port) => Ok((Ipv4Addr::LOCALHOST, port).into()),
        None => text.parse().map_err(|_| {
            "write PORT, or ADDRESS:PORT, as 1080, 0.0.0.0:1080 or [::]:1080".to_owned()
        }),
    }
}

fn forward(text: &str) -> Result<Forward, String> {
    let (from, to) = text
        .split_once('=')
        .ok_or("write [ADDRESS:]PORT=HOST:PORT, as 5432=db:5432 or 0.0.0.0:80=intranet:80")?;
    let to = to.parse().map_err(|error: dwell_proxy::target::TargetError| error.to_string())?;
    Ok(Forward { listen: listen(from)?, to })
}

fn users_of(path: &Path) -> anyhow::Result<Users> {
    Users::parse(&read_private(path)?).with_context(|| path.display().to_string())
}

impl Ingress {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let loopback = is_loopback(&self.egress.host);
        let place = format!("the egress {}", self.egress);
        let (protection, name) = (self.options.protection.clone(), self.egress_name);
        let security = protection.security(&place, loopback, name.clone())?;
        let path = self.socks_users.clone();
        let users = path.as_ref().map(|path| users_of(path)).transpose()?;
        let reload = Reload::new(move || {
            let security = protection.security(&place, loopback, name.clone());
            let users = path.as_ref().map(|path| users_of(path)).transpose();
            security.and_then(|security| Ok((security, users?))).map_err(|e| format!("{e:#}"))
        });
        let users = users.unwrap_or_default();
        let forwards = self.forward.into_iter();
        let mut listeners: Vec<Listener> =
            forwards.map(|Forward { listen, to }| Listener::Forward { listen, to }).collect();
        for listen in self.socks {
            if !listen.ip().is_loopback() && self.socks_users.is_none() {
                tracing::warn!(
                    "everybody who reaches {listen} may use it: --socks-users FILE asks for names"
                );
            }
            listeners.push(Listener::Socks { listen, users: users.clone() });
        }
        listeners
            .extend(self.transparent.into_iter().map(|listen| Listener::Transparent { listen }));
        let pool = usize::from(self.pool);
        let besides = dwell_proxy::Ingress::descriptors_besides(listeners.len(), pool);
        let ingress = dwell_proxy::Ingress {
            common: self.options.common("ingress", security, |_| besides)?,
            egress: self.egress,
            listeners,
            pool,
            accepts_proxy: self.accept_proxy,
            reload,
        };
        run_ingress(ingress, listening)?;
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doors_are_on_loopback_by_default() {
        assert_eq!(listen("1080").unwrap().to_string(), "127.0.0.1:1080");
        assert_eq!(listen("[::]:1080").unwrap().to_string(), "[::]:1080");
        assert!(listen("localhost:1080").is_err());
        let listener = forward("5432=db:5433").unwrap();
        assert_eq!(listener.listen.to_string(), "127.0.0.1:5432");
        assert_eq!(listener.to.to_string(), "db:5433");
        assert!(forward("5432:db:5433").unwrap_err().contains("5432=db:5432"));
        assert!(forward("5432=db").is_err());
    }

    #[test]
    fn the_egress_has_a_port_of_its_own() {
        for (text, shown) in [
            ("hub", "hub:7734"),
            ("hub:1", "hub:1"),
            ("10.0.0.1", "10.0.0.1:7734"),
            ("2001:db8::1", "[2001:db8::1]:7734"),
            ("[2001:db8::1]", "[2001:db8::1]:7734"),
            ("[2001:db8::1]:9", "[2001:db8::1]:9"),
        ] {
            assert_eq!(egress(text).unwrap().to_string(), shown);
        }
        assert!(egress("hub:x").is_err());
        assert!(egress("a b").is_err());
    }
}
