//! `dwell proxy`: runs one end of a pair of proxies for TCP streams.

mod egress;
mod ingress;
mod options;

pub(super) use ingress::target_with_port;
pub(super) use options::{Protection, duration, objective, strategy};

use std::process::ExitCode;

use clap::Subcommand;

const AFTER_HELP: &str = "\
Examples:
  dwell genpsk --out proxy.psk            a key; copy it to the other machine

  On the machine beside the database:
    dwell proxy egress --psk proxy.psk --allow db:5432
  On the machine beside the programs:
    dwell proxy ingress --psk proxy.psk --egress hub.example --forward 5432=db:5432
    psql -h 127.0.0.1

  dwell proxy ingress --psk proxy.psk --egress hub.example --socks 1080
  curl --proxy socks5h://127.0.0.1:1080 http://intranet/

  dwell status ingress                    what it has done

Neither needs privileges, except for transparent listeners. docs/proxy.md has the rest.

Exit codes:
  0  it ran until it was asked to stop
  1  it could not start, or had to give up
  2  the command line is wrong";

/// Run one end of a pair of proxies that compress TCP streams
///
/// Programs connect to the ingress, the egress connects onward. What waits between the two is
/// compressed where that is faster, and bytes that could leave at once are not held up.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Proxy {
    #[command(subcommand)]
    end: End,
}

#[derive(Debug, Subcommand)]
enum End {
    Ingress(ingress::Ingress),
    Egress(egress::Egress),
}

impl Proxy {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.end {
            End::Ingress(ingress) => ingress.run(),
            End::Egress(egress) => egress.run(),
        }
    }
}
