//! `dwell proxy egress`: the end that connects onward.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use dwell_proxy::allow::{AllowList, Rule};
use dwell_proxy::{PORT, Reload, run_egress};

use super::options::{Options, listening};

const AFTER_HELP: &str = "\
Examples:
  dwell proxy egress --psk proxy.psk --allow db:5432
  dwell proxy egress --psk proxy.psk --allow '*.intranet:443' --allow '10.0.0.0/8:8000-8099'
  dwell proxy egress --cert egress.pem --cert-key egress.key --ca ca.pem --allow '*:*'
  dwell proxy egress --psk proxy.psk --allow-file targets --send-proxy 'web:443'
  kill -HUP PID                                          read keys and --allow-file again

An allowed name is resolved here, and may lead anywhere; a prefix allows names too that lead into
it. Everything else is refused, and the ingress is informed why.

Exit codes:
  0  it ran until it was asked to stop
  1  it could not start, or had to give up
  2  the command line is wrong";

/// Accept connections of ingresses, and connect onward to allowed targets
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Egress {
    /// Address and port to listen at: ADDRESS:PORT, ADDRESS or PORT [default: port 7734 of all addresses, IPv4
    /// and IPv6]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listen)]
    listen: Option<SocketAddr>,
    /// A target that ingresses may reach: a host, *.domain, prefix or *, and behind a colon a port,
    /// a range or *; may be repeated
    #[arg(long, value_name = "HOST:PORT", required_unless_present = "allow_file")]
    allow: Vec<Rule>,
    /// More of them, one in each line of a file, which is read again at SIGHUP; # begins a comment
    #[arg(long, value_name = "FILE")]
    allow_file: Option<PathBuf>,
    /// A target that learns whom a connection is for, by the PROXY protocol (version 2), in the form of --allow; may
    /// be repeated
    #[arg(long, value_name = "HOST:PORT")]
    send_proxy: Vec<Rule>,
    #[command(flatten)]
    options: Options,
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((Ipv6Addr::UNSPECIFIED, port).into());
    }
    if let Ok(ip) = text.parse() {
        return Ok(SocketAddr::new(ip, PORT));
    }
    text.parse().map_err(|_| "write ADDRESS:PORT, as 0.0.0.0:7734 or [::]:7734".to_owned())
}

/// The rules of the command line, and those of a file.
fn allowed(rules: &[Rule], path: Option<&Path>) -> anyhow::Result<AllowList> {
    let mut rules = rules.to_vec();
    if let Some(path) = path {
        let place = || path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(place)?;
        rules.extend(rules_of(&text).with_context(place)?);
    }
    Ok(AllowList::new(rules))
}

/// The rules in the lines of a text.
fn rules_of(text: &str) -> anyhow::Result<Vec<Rule>> {
    let lines = text.lines().enumerate();
    let rules = lines.map(|(at, line)| (at + 1, line.split('#').next().unwrap_or("").trim()));
    rules
        .filter(|(_, rule)| !rule.is_empty())
        .map(|(line, rule)| rule.parse().with_context(|| format!("line {line}")))
        .collect()
}

impl Egress {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let listen = self.listen.unwrap_or_else(|| {
            // A kernel without IPv6 can't listen at its addresses.
            let has_ipv6 = std::path::Path::new("/proc/net/if_inet6").exists();
            if has_ipv6 { (Ipv6Addr::UNSPECIFIED, PORT).into() } else { ([0; 4], PORT).into() }
        });
        let place = format!("who connects to {listen}");
        let (protection, loopback) = (self.options.protection.clone(), listen.ip().is_loopback());
        let security = protection.security(&place, loopback, None)?;
        let (rules, path) = (self.allow, self.allow_file);
        let allow = allowed(&rules, path.as_deref())?;
        let reload = Reload::new(move || {
            let security = protection.security(&place, loopback, None);
            let allow = allowed(&rules, path.as_deref());
            security.and_then(|security| Ok((security, allow?))).map_err(|e| format!("{e:#}"))
        });
        let besides = dwell_proxy::Egress::descriptors_besides;
        let egress = dwell_proxy::Egress {
            common: self.options.common("egress", security, besides)?,
            listen,
            allow,
            send_proxy: AllowList::new(self.send_proxy),
            reload,
        };
        run_egress(egress, listening)?;
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_stand_in_lines() {
        let rules = rules_of("# who\n\ndb:5432\n10.0.0.0/8:*  # all\n").unwrap();
        let shown: Vec<_> = rules.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["db:5432", "10.0.0.0/8:*"]);
        let error = format!("{:#}", rules_of("db:5432\ndb").unwrap_err());
        assert!(error.starts_with("line 2: \"db\" is no target"), "{error}");
    }

    #[test]
    fn it_listens_where_it_is_reported() {
        assert_eq!(listen("7000").unwrap().to_string(), "[::]:7000");
        assert_eq!(listen("127.0.0.1").unwrap().to_string(), "127.0.0.1:7734");
        assert_eq!(listen("10.0.0.1:9").unwrap().to_string(), "10.0.0.1:9");
        assert!(listen("hub:9").is_err());
    }
}
