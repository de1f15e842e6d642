//! Who sends: `dwell send`, or zstd at both ends of a TCP connection.

use std::fmt;
use std::fs::{self, File};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use dwell_lab::lab::Host;

use super::super::bed::Bed;
use super::super::peers::listens;
use super::super::peers::pipe::{Crossing, Gate};
use super::super::program;
use super::content::Content;

/// A way to send files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Contender {
    /// `dwell send` to `dwell recv`
    Dwell,
    /// `zstd --adapt`, and `zstd -d`
    Adapt,
    /// `zstd -T0 --long=27`, and `zstd -d --long=27`
    Long,
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dwell => "dwell send",
            Self::Adapt => "zstd --adapt",
            Self::Long => "zstd -T0 --long",
        })
    }
}

impl Contender {
    fn encoder(self) -> &'static str {
        match self {
            Self::Dwell => "",
            Self::Adapt => "zstd --adapt -cq",
            Self::Long => "zstd -T0 --long=27 -cq",
        }
    }

    fn decoder(self) -> &'static str {
        match self {
            Self::Dwell => "",
            Self::Adapt => "zstd -dcq",
            Self::Long => "zstd -d --long=27 -cq",
        }
    }
}

/// Where files are.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) source: PathBuf,
    pub(super) target: PathBuf,
    key: PathBuf,
}

/// The address at which the receiver listens.
const AT: ([u8; 4], u16) = ([10, 0, 0, 1], 7735);
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest run.
const RUN_MAX: Duration = Duration::from_secs(180);
const GLANCE: Duration = Duration::from_micros(500);

impl Site {
    pub(super) fn open(directory: &Path) -> anyhow::Result<Self> {
        let site = Self {
            source: directory.join("from"),
            target: directory.join("to"),
            key: directory.join("key"),
        };
        fs::create_dir_all(directory).context("a directory for files can't be made")?;
        if !site.key.exists() {
            let made =
                Command::new(program::dwell()?).args(["genpsk", "--out"]).arg(&site.key).status();
            ensure!(made.context("dwell can't be run")?.success(), "no key could be made");
        }
        Ok(site)
    }

    /// Removes what came.
    pub(super) fn clear(&self) -> anyhow::Result<()> {
        if self.target.exists() {
            fs::remove_dir_all(&self.target).context("what came can't be removed")?;
        }
        fs::create_dir_all(&self.target).context("a directory for what comes can't be made")
    }
}

/// A transfer whose receiver waits.
#[derive(Debug)]
pub(super) struct Transfer {
    /// None for those that need no receiver before the connection is there.
    receiver: Option<Child>,
    sender: Option<Child>,
    gate: Option<Gate>,
    commands: [Command; 2],
}

impl Transfer {
    pub(super) fn prepare(
        bed: &Bed<'_>,
        contender: Contender,
        content: &Content,
        site: &Site,
        options: &[String],
    ) -> anyhow::Result<Self> {
        let (egress, ingress) = (&bed.pair.egress, &bed.pair.ingress);
        if contender == Contender::Dwell {
            return Self::of_dwell(bed, content, site, options);
        }
        let (encoder, decoder) = (contender.encoder(), contender.decoder());
        let (from, to) = (&site.source, &site.target);
        let (send, receive) = match &content.file {
            Some(name) => {
                let (from, to) = (from.join(name), to.join(name));
                (
                    format!("exec {encoder} '{}'", from.display()),
                    format!("exec {decoder} > '{}'", to.display()),
                )
            }
            None => (
                format!("tar cf - -C '{}' . | {encoder}", from.display()),
                format!("{decoder} | tar xf - -C '{}'", to.display()),
            ),
        };
        let commands = [shell(egress, &send), shell(ingress, &receive)];
        Ok(Self { receiver: None, sender: None, gate: Some(Gate::open(bed)?), commands })
    }

    fn of_dwell(
        bed: &Bed<'_>,
        content: &Content,
        site: &Site,
        options: &[String],
    ) -> anyhow::Result<Self> {
        let (egress, ingress) = (&bed.pair.egress, &bed.pair.ingress);
        let dwell = program::dwell()?;
        let at = std::net::SocketAddr::from(AT);
        let mut receive = ingress.command(&dwell);
        receive.arg("recv").arg("--psk").arg(&site.key).args([
            "--quiet",
            "--listen",
            &at.to_string(),
        ]);
        receive.arg(&site.target);
        let mut send = egress.command(&dwell);
        send.arg("send").arg("--psk").arg(&site.key).arg("--quiet").args(options);
        match &content.file {
            Some(name) => send.arg(site.source.join(name)),
            None => send.args(entries(&site.source)?),
        };
        send.arg(at.to_string());
        let receiver = quiet(&mut receive).spawn().context("dwell can't be run")?;
        let end = Instant::now() + PATIENCE;
        while !listens(ingress, at)? {
            ensure!(Instant::now() < end, "`dwell recv` does not listen");
            bed.sleep(Duration::from_millis(2))?;
        }
        Ok(Self { receiver: Some(receiver), sender: None, gate: None, commands: [send, receive] })
    }

    /// Starts the sender.
    pub(super) fn start(&mut self, _bed: &Bed<'_>) -> anyhow::Result<()> {
        let [send, receive] = &mut self.commands;
        if let Some(gate) = &self.gate {
            let Crossing { far, near } = gate.cross()?;
            let receiver = quiet(receive.stdin(input(near)?)).stdout(Stdio::null()).spawn();
            self.receiver = Some(receiver.context("the receiver can't be run")?);
            send.stdin(Stdio::null()).stdout(input(far)?).stderr(Stdio::null());
        } else {
            quiet(send);
        }
        self.sender = Some(send.spawn().context("the sender can't be run")?);
        // The parent's copies of the sockets would keep the connection open.
        for command in &mut self.commands {
            command.stdin(Stdio::null()).stdout(Stdio::null());
        }
        Ok(())
    }

    /// Waits until both ends have ended well.
    pub(super) fn wait(&mut self, bed: &Bed<'_>) -> anyhow::Result<()> {
        let end = Instant::now() + RUN_MAX;
        for (who, child) in [("sender", &mut self.sender), ("receiver", &mut self.receiver)] {
            let Some(child) = child else { bail!("there is no {who}") };
            let status = loop {
                if let Some(status) = child.try_wait()? {
                    break status;
                }
                ensure!(Instant::now() < end, "the {who} does not come to an end");
                bed.sleep(GLANCE)?;
            };
            ensure!(status.success(), "the {who} failed: {status}");
        }
        Ok(())
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        for child in [&mut self.sender, &mut self.receiver].into_iter().flatten() {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A socket for a process, which does not reset the connection when it closes it.
fn input(socket: TcpStream) -> anyhow::Result<Stdio> {
    rustix::net::sockopt::set_socket_linger(&socket, None)?;
    Ok(OwnedFd::from(socket).into())
}

fn shell(host: &Host, line: &str) -> Command {
    let mut command = host.command("bash");
    command.args(["-o", "pipefail", "-c", line]);
    command
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdout(Stdio::null()).stderr(Stdio::null())
}

fn entries(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory)?.map(|entry| Ok(entry?.path()));
    entries.collect::<std::io::Result<_>>().context("what is sent can't be read")
}

/// Opens a file for both.
pub(super) fn create(path: &Path) -> anyhow::Result<File> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    File::create(path).with_context(|| format!("{} can't be written", path.display()))
}
