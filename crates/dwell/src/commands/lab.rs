//! `dwell lab`: a thin link between two sites, to try things on.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, IsTerminal as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use clap::builder::PossibleValuesParser;
use dwell_base::time::format_duration_ns;
use dwell_lab::http::{self, Server};
use dwell_lab::lab::topology::{self, Pair, PairSpec};
use dwell_lab::lab::{self, Host, Process};
use dwell_lab::relays::{RelayRate, RelaySettings, Relays};
use dwell_lab::{LinkSpec, corpus};
use dwell_relay::config::NodeConfig;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::lab_setup::{self, LINK, LinkArgs, RELAYS};
use crate::logging::{self, Logging};
use dwell_cli::{terminal, values};

const AFTER_HELP: &str = "\
Examples:
  dwell lab                                    a shell on the client
  dwell lab --relays --rate 2mbit              with a relay at each end of the link
  dwell lab --relays -- curl -so /dev/null http://10.2.0.2/text
  dwell lab --link 'delay 300ms jitter 20ms loss 1%' -- ping -c 5 10.2.0.2
  dwell lab --host egress -- tc -s qdisc show dev thin0

Inside, `on HOST COMMAND...` runs a command on another host, and so does
`ip netns exec HOST COMMAND...`. With relays, `dwell status egress` shows what they do.
It needs no privileges: its hosts are network namespaces of an ordinary user, made of the
programs ip and tc (iproute2). All of it is gone when the shell or the command ends.

Exit codes:
  that of the command or of the shell, 128 + N if signal N ended it
  1  the lab could not be built, or the command could not be started
  2  the command line is wrong";

/// Open a shell beside a thin link between two sites
///
/// Four hosts in a row, with a thin link in the middle: client, ingress, egress, server.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Lab {
    #[command(flatten)]
    link: LinkArgs,
    /// The link as the emulator takes it, its bottleneck included, which the hosts then can't
    /// feel: "rate 10mbit delay 20ms jitter 1ms loss 1% reorder 1% queue 100ms"
    #[arg(long = "link", value_name = "SPEC", conflicts_with_all = ["rate", "delay", "loss"])]
    #[arg(help_heading = LINK)]
    spec: Option<LinkSpec>,
    /// Run a relay at each end of the link
    #[arg(long, help_heading = RELAYS)]
    relays: bool,
    /// The relays' scheme
    #[arg(long, default_value = "auto", value_parser = values::schemes())]
    #[arg(requires = "relays", help_heading = RELAYS)]
    scheme: String,
    /// The codec and its level, or "auto" [default: auto with that scheme, else zstd:1]
    #[arg(long, value_parser = values::codec)]
    #[arg(requires = "relays", help_heading = RELAYS)]
    codec: Option<String>,
    /// The relays' setting of the link's rate: a rate, "auto" or "unlimited" [default:
    /// auto, but the rate in --link, since it can't be felt]
    #[arg(long, value_name = "RATE", value_parser = lab_setup::relay_rate)]
    #[arg(requires = "relays", help_heading = RELAYS)]
    relay_rate: Option<RelayRate>,
    /// The host that the shell or the command runs on
    #[arg(long, default_value = "client")]
    #[arg(value_parser = PossibleValuesParser::new(["client", "ingress", "egress", "server"]))]
    host: String,
    /// A command to run instead of a shell
    #[arg(last = true)]
    command: Vec<String>,
}

/// The length of the server's files.
const FILE_BYTES: usize = 10_000_000;
const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 2, 0, 2)), 80);

impl Lab {
    pub(crate) fn run(self, logging: &Logging) -> anyhow::Result<ExitCode> {
        // This starts the program again, inside: before there are threads.
        let mut lab = lab::enter()?;
        logging.start(logging::DEFAULT)?;
        let end = EndSignals::watch(&lab)?;
        let pair = topology::pair(&mut lab, self.pair_spec())?;
        let _server = serve(&pair)?;
        let dwell = std::env::current_exe().context("the path of this program can't be found")?;
        let relays = self.start_relays(&lab, &pair, &dwell)?;
        let tools = Tools::create(&lab.directory(), &dwell, relays.is_some())?;
        let is_shell = self.command.is_empty();
        if is_shell {
            terminal::note(&self.map(&pair));
        }
        let host = self.host(&pair);
        let mut command = if is_shell { tools.shell(host)? } else { self.command(host) };
        tools.prepare(&mut command, host)?;
        let mut process = Process::spawn(&mut command)?;
        Ok(exit_code(end.wait_for(&mut process)?))
    }

    fn pair_spec(&self) -> PairSpec {
        match &self.spec {
            None => self.link.pair_spec(),
            Some(spec) => {
                let back = spec.clone().with_seed(spec.seed.wrapping_add(1));
                PairSpec::emulated(spec.clone(), back)
            }
        }
    }

    fn start_relays(
        &self,
        lab: &lab::Lab,
        pair: &Pair,
        dwell: &Path,
    ) -> anyhow::Result<Option<Relays>> {
        if !self.relays {
            return Ok(None);
        }
        let settings = RelaySettings {
            scheme: self.scheme.clone(),
            codec: self.codec().to_owned(),
            rate: self.rate_for_relays(),
            keyed: true,
            ..RelaySettings::default()
        };
        Ok(Some(Relays::start(lab, pair, dwell, &settings)?))
    }

    /// As relays have it if none is configured: only contexts can pick theirs.
    fn codec(&self) -> &str {
        let usual = if self.scheme == "auto" { "auto" } else { "zstd:1" };
        self.codec.as_deref().unwrap_or(usual)
    }

    fn rate_for_relays(&self) -> RelayRate {
        let hidden = self.spec.as_ref().and_then(|spec| spec.rate).map(RelayRate::Fixed);
        self.relay_rate.or(hidden).unwrap_or(RelayRate::Auto)
    }

    fn host<'a>(&self, pair: &'a Pair) -> &'a Host {
        match self.host.as_str() {
            "ingress" => &pair.ingress,
            "egress" => &pair.egress,
            "server" => &pair.server,
            _ => &pair.client,
        }
    }

    fn command(&self, host: &Host) -> Command {
        let mut command = host.command(&self.command[0]);
        command.args(&self.command[1..]);
        command
    }

    fn map(&self, pair: &Pair) -> String {
        let link = match &self.spec {
            Some(spec) => spec.to_string(),
            None => {
                let LinkArgs { rate, delay, loss } = &self.link;
                let loss = if *loss > 0.0 { format!(", loss {loss}") } else { String::new() };
                format!("{rate}, {}{loss}", format_duration_ns(*delay))
            }
        };
        let mut map = format!(
            "  client ───────── ingress ═══════════════ egress ───────── server
      eth0      eth0    thin0        thin0      eth0      eth0
  10.1.0.2  10.1.0.1    10.0.0.1  10.0.0.2  10.2.0.1  10.2.0.2
 fd00:1::2 fd00:1::1     fd00::1   fd00::2 fd00:2::1 fd00:2::2

  thin link, each way: {link}
  on HOST COMMAND...   runs a command on another host
  http://10.2.0.2/     has /text and /random, 10 MB each
"
        );
        if self.relays {
            // Writing to a string can't fail.
            let _ = writeln!(
                map,
                "  dwell status egress  (or ingress) shows the relays: {}, {}, rate {}",
                self.scheme,
                self.codec(),
                lab_setup::relay_rate_text(self.rate_for_relays()),
            );
        }
        let _ = write!(map, "\n  You are on {}; exit ends it all.", self.host(pair).name());
        map
    }
}

fn serve(pair: &Pair) -> anyhow::Result<Server> {
    let listener = pair
        .server
        .run(|| TcpListener::bind(SERVER))?
        .context("the HTTP server can't be started")?;
    let contents = HashMap::from([
        ("/text".to_owned(), Arc::new(corpus::text(FILE_BYTES, 1))),
        ("/random".to_owned(), Arc::new(corpus::incompressible(FILE_BYTES, 1))),
    ]);
    http::serve(listener, Arc::new(contents)).context("the HTTP server can't be started")
}

/// Conveniences in the lab: commands, a prompt, sockets where programs look for them.
struct Tools {
    directory: PathBuf,
}

impl Tools {
    fn create(lab: &Path, dwell: &Path, with_relays: bool) -> anyhow::Result<Self> {
        let tools = Self { directory: lab.join("bin") };
        tools.write(dwell).context("the lab's own commands can't be written")?;
        if with_relays {
            link_status(&lab.join("relays")).context("the relays' sockets can't be linked")?;
        }
        Ok(tools)
    }

    fn write(&self, dwell: &Path) -> io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        symlink(dwell, self.directory.join("dwell"))?;
        let on = self.directory.join("on");
        fs::write(&on, ON)?;
        fs::set_permissions(&on, fs::Permissions::from_mode(0o755))?;
        fs::write(self.directory.join("../bashrc"), BASHRC)
    }

    /// An interactive shell, the user's own.
    fn shell(&self, host: &Host) -> anyhow::Result<Command> {
        let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
        let mut command = host.command(&shell);
        if Path::new(&shell).file_name().is_some_and(|name| name == "bash") {
            let prompt = self
                .directory
                .join("../bashrc")
                .canonicalize()
                .context("the shell's settings can't be found")?;
            command.arg("--rcfile").arg(prompt);
        }
        Ok(command)
    }

    fn prepare(&self, command: &mut Command, host: &Host) -> anyhow::Result<()> {
        let mut path = self.directory.clone().into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        command.env("PATH", path).env("DWELL_LAB_HOST", host.name());
        Ok(())
    }
}

/// Network devices of another host are in its namespace; everything else is shared.
const ON: &str = r#"#!/bin/sh
# on HOST COMMAND...: runs a command on a host of this lab.
if [ $# -lt 2 ] || [ ! -e "/run/netns/$1" ]; then
    echo "usage: on HOST COMMAND..., where HOST is one of:" $(ls /run/netns) >&2
    exit 2
fi
DWELL_LAB_HOST=$1
export DWELL_LAB_HOST
shift
exec nsenter --net="/run/netns/$DWELL_LAB_HOST" -- "$@"
"#;

const BASHRC: &str = r#"[ -f ~/.bashrc ] && . ~/.bashrc
PATH=/run/dwell-lab/bin:$PATH
PS1='[dwell lab: $DWELL_LAB_HOST] \w\$ '
"#;

/// So that `dwell status egress` finds them; the directory is the lab's own.
fn link_status(relays: &Path) -> io::Result<()> {
    for name in ["ingress", "egress"] {
        symlink(relays.join(format!("{name}.sock")), NodeConfig::default_status(name))?;
    }
    Ok(())
}

/// Signals that shall end the lab, and what runs in it before.
struct EndSignals(Arc<AtomicBool>);

impl EndSignals {
    fn watch(lab: &lab::Lab) -> anyhow::Result<Self> {
        // Or they would end the lab at once.
        let interrupted = lab.interrupted();
        if !io::stdin().is_terminal() {
            return Ok(Self(interrupted));
        }
        // Ctrl-C is for the command, which gets it from the terminal as well.
        let end = Arc::new(AtomicBool::new(interrupted.load(Ordering::Relaxed)));
        for signal in [SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&end))
                .context("signals can't be watched")?;
        }
        Ok(Self(end))
    }

    fn wait_for(&self, process: &mut Process) -> anyhow::Result<ExitStatus> {
        const PAUSE: Duration = Duration::from_millis(100);
        loop {
            if let Some(status) = process.wait_timeout(PAUSE)? {
                return Ok(status);
            }
            if self.0.load(Ordering::Relaxed) {
                return Ok(process.stop()?);
            }
        }
    }
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(SIGINT));
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}
