//! `dwell proxy egress`: the end that connects onward.

use std::net::{Ipv6Addr, SocketAddr};
use std::process::ExitCode;

use dwell_proxy::allow::{AllowList, Rule};
use dwell_proxy::{PORT, run_egress};

use super::options::{Options, listening};

const AFTER_HELP: &str = "\
Examples:
  dwell proxy egress --psk proxy.psk --allow db:5432
  dwell proxy egress --psk proxy.psk --allow '*.intranet:443' --allow '10.0.0.0/8:8000-8099'
  dwell proxy egress --cert egress.pem --cert-key egress.key --ca ca.pem --allow '*:*'

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
    #[arg(long, value_name = "HOST:PORT", required = true)]
    allow: Vec<Rule>,
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

impl Egress {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let listen = self.listen.unwrap_or_else(|| {
            // A kernel without IPv6 can't listen at its addresses.
            let has_ipv6 = std::path::Path::new("/proc/net/if_inet6").exists();
            if has_ipv6 { (Ipv6Addr::UNSPECIFIED, PORT).into() } else { ([0; 4], PORT).into() }
        });
        let place = format!("who connects to {listen}");
        let security = self.options.protection.security(&place, listen.ip().is_loopback(), None)?;
        let besides = dwell_proxy::Egress::descriptors_besides;
        let egress = dwell_proxy::Egress {
            common: self.options.common("egress", security, besides)?,
            listen,
            allow: AllowList::new(self.allow),
        };
        run_egress(egress, listening)?;
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_listens_where_it_is_reported() {
        assert_eq!(listen("7000").unwrap().to_string(), "[::]:7000");
        assert_eq!(listen("127.0.0.1").unwrap().to_string(), "127.0.0.1:7734");
        assert_eq!(listen("10.0.0.1:9").unwrap().to_string(), "10.0.0.1:9");
        assert!(listen("hub:9").is_err());
    }
}
