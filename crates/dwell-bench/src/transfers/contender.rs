//! Who sends: `dwell send`, zstd or nothing at both ends of a TCP connection, or rsync and tar through ssh.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dwell_lab::lab::{Host, Process};

use super::super::bed::Bed;
use super::super::certificate;
use super::super::machine;
use super::super::peers::listens;
use super::super::peers::pipe::{Crossing, Gate};
use super::super::peers::ssh;
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
    /// `rsync -az` through ssh, by the receiver
    Rsync,
    /// `ssh -C`, with tar for trees, by the receiver
    Ssh,
    /// A TCP connection, with nothing compressed
    Plain,
    /// TLS 1.3 with AES-256-GCM by openssl, with nothing compressed: a single file
    Tls,
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dwell => "dwell send",
            Self::Adapt => "zstd --adapt",
            Self::Long => "zstd -T0 --long",
            Self::Rsync => "rsync -z",
            Self::Ssh => "ssh -C",
            Self::Plain => "plain TCP",
            Self::Tls => "TLS",
        })
    }
}

impl Contender {
    /// Its name where there is little room.
    pub(super) const fn short(self) -> &'static str {
        match self {
            Self::Dwell => "dwell",
            Self::Adapt => "adapt",
            Self::Long => "long",
            Self::Rsync => "rsync",
            Self::Ssh => "ssh",
            Self::Plain => "plain",
            Self::Tls => "tls",
        }
    }

    /// The programs that it needs, and Debian's packages of them.
    pub(super) const fn programs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Dwell => &[],
            Self::Adapt | Self::Long => &[("zstd", "zstd"), ("tar", "tar")],
            Self::Rsync => {
                &[("rsync", "rsync"), ("ssh", "openssh-client"), ("sshd", "openssh-server")]
            }
            Self::Ssh => &[("tar", "tar"), ("ssh", "openssh-client"), ("sshd", "openssh-server")],
            Self::Plain => &[("tar", "tar")],
            Self::Tls => &[("openssl", "openssl"), ("tar", "tar")],
        }
    }

    /// What is at both ends of a TCP connection of its own.
    const fn filters(self) -> Option<[&'static str; 2]> {
        match self {
            Self::Dwell | Self::Rsync | Self::Ssh | Self::Tls => None,
            Self::Adapt => Some(["zstd --adapt -cq", "zstd -dcq"]),
            Self::Long => Some(["zstd -T0 --long=27 -cq", "zstd -d --long=27 -cq"]),
            Self::Plain => Some(["cat", "cat"]),
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
/// Memory is looked at so often.
const LOOK_EVERY: Duration = Duration::from_millis(100);

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
    /// None where the receiver fetches.
    send: Option<Command>,
    receive: Option<Command>,
    /// What the receiver fetches from.
    _server: Option<Process>,
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
        let Some([encoder, decoder]) = contender.filters() else {
            return match contender {
                Contender::Rsync | Contender::Ssh => Self::by_ssh(bed, contender, content, site),
                Contender::Tls => Self::by_tls(bed, content, site),
                _ => Self::of_dwell(bed, content, site, options),
            };
        };
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
        Ok(Self {
            receiver: None,
            sender: None,
            gate: Some(Gate::open(bed)?),
            send: Some(shell(egress, &send)),
            receive: Some(shell(ingress, &receive)),
            _server: None,
        })
    }

    /// The receiver logs in at the sender's end and fetches.
    fn by_ssh(
        bed: &Bed<'_>,
        contender: Contender,
        content: &Content,
        site: &Site,
    ) -> anyhow::Result<Self> {
        let files = ssh::Files::make(&bed.lab.directory().join("ssh"))?;
        let server = files.serve(bed)?;
        let (from, to) = (site.source.display(), site.target.display());
        let mut options = files.options();
        // rsync compresses by itself.
        options.retain(|option| contender == Contender::Ssh || option != "-C");
        let (options, at) = (options.join(" "), ssh::DESTINATION);
        let line = match (contender, &content.file) {
            (Contender::Rsync, _) => {
                format!("exec rsync -az -e 'ssh {options}' {at}:'{from}/' '{to}/'")
            }
            (_, Some(name)) => {
                format!("exec ssh {options} {at} \"cat '{from}/{name}'\" > '{to}/{name}'")
            }
            (_, None) => {
                format!("ssh {options} {at} \"tar cf - -C '{from}' .\" | tar xf - -C '{to}'")
            }
        };
        let receive = shell(&bed.pair.ingress, &line);
        Ok(Self {
            receiver: None,
            sender: None,
            gate: None,
            send: None,
            receive: Some(receive),
            _server: Some(server),
        })
    }

    /// A server of openssl writes what a client of it sends.
    fn by_tls(bed: &Bed<'_>, content: &Content, site: &Site) -> anyhow::Result<Self> {
        let (egress, ingress) = (&bed.pair.egress, &bed.pair.ingress);
        let (from, to) = (site.source.display(), site.target.display());
        let directory = bed.lab.directory().join("transfers");
        certificate::make(&directory, "tls")?;
        let at = |name: &str| directory.join(name).display().to_string();
        let target = std::net::SocketAddr::from(AT);
        let server = format!(
            "openssl s_server -accept {} -naccept 2 -quiet -tls1_3 -cert '{}' -key '{}' \
             -ciphersuites TLS_AES_256_GCM_SHA384",
            target.port(),
            at("tls.crt"),
            at("tls.key"),
        );
        let client =
            format!("openssl s_client -connect {target} -quiet -no_ign_eof -nocommands -tls1_3");
        let (server, client) = match &content.file {
            Some(name) => (
                format!("exec {server} > '{to}/{name}'"),
                format!("exec {client} < '{from}/{name}'"),
            ),
            None => (
                format!("{server} | tar xf - -C '{to}'"),
                format!("tar cf - -C '{from}' . | {client}"),
            ),
        };
        let mut receive = shell(ingress, &server);
        // It would end with its input. The first of the two that it accepts only looks whether it is there.
        let receiver = quiet(&mut receive).stdin(Stdio::piped()).spawn();
        let receiver = Some(receiver.context("openssl can't be run")?);
        let send = Some(shell(egress, &client));
        let transfer =
            Self { receiver, sender: None, gate: None, send, receive: None, _server: None };
        await_listener(bed, target)?;
        Ok(transfer)
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
        let receiver = Some(quiet(&mut receive).spawn().context("dwell can't be run")?);
        let send = Some(send);
        let transfer =
            Self { receiver, sender: None, gate: None, send, receive: None, _server: None };
        await_listener(bed, at)?;
        Ok(transfer)
    }

    /// Starts the sender, or the receiver that fetches.
    pub(super) fn start(&mut self) -> anyhow::Result<()> {
        let (mut send, mut receive) = (self.send.take(), self.receive.take());
        send.iter_mut().chain(&mut receive).for_each(|command| {
            quiet(command).stdin(Stdio::null());
        });
        if let (Some(gate), Some(send), Some(receive)) = (&self.gate, &mut send, &mut receive) {
            let Crossing { far, near } = gate.cross()?;
            receive.stdin(input(near)?);
            send.stdout(input(far)?);
        }
        // The parent's copies of the sockets, which would keep the connection open, end with the commands.
        if let Some(mut receive) = receive {
            self.receiver = Some(receive.spawn().context("the receiver can't be run")?);
        }
        if let Some(mut send) = send {
            self.sender = Some(send.spawn().context("the sender can't be run")?);
        }
        Ok(())
    }

    /// Waits until both ends have ended well; the most memory that their processes had, together.
    pub(super) fn wait(&mut self, bed: &Bed<'_>) -> anyhow::Result<u64> {
        let end = Instant::now() + RUN_MAX;
        let mut peaks = Peaks::default();
        for (who, child) in [("sender", &mut self.sender), ("receiver", &mut self.receiver)] {
            let Some(child) = child else { continue };
            let status = loop {
                if let Some(status) = child.try_wait()? {
                    break status;
                }
                ensure!(Instant::now() < end, "the {who} does not come to an end");
                peaks.look();
                bed.sleep(GLANCE)?;
            };
            ensure!(status.success(), "the {who} failed: {status}");
        }
        Ok(peaks.bytes())
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

/// The most memory of each process that this one has started.
#[derive(Debug, Default)]
struct Peaks {
    looked: Option<Instant>,
    of: BTreeMap<u32, u64>,
}

impl Peaks {
    /// Looks, if that was not done lately: it takes about a millisecond.
    fn look(&mut self) {
        let now = Instant::now();
        if self.looked.is_some_and(|at| now.duration_since(at) < LOOK_EVERY) {
            return;
        }
        self.looked = Some(now);
        let own = std::process::id();
        for process in machine::family(&[own]).into_iter().filter(|&process| process != own) {
            // It may have ended.
            let Ok(memory) = machine::memory(process) else { continue };
            let peak = self.of.entry(process).or_default();
            *peak = memory.peak_bytes.max(*peak);
        }
    }

    fn bytes(&self) -> u64 {
        self.of.values().sum()
    }
}

/// A socket for a process, which does not reset the connection when it closes it.
fn input(socket: TcpStream) -> anyhow::Result<Stdio> {
    rustix::net::sockopt::set_socket_linger(&socket, None)?;
    Ok(OwnedFd::from(socket).into())
}

fn await_listener(bed: &Bed<'_>, at: std::net::SocketAddr) -> anyhow::Result<()> {
    let end = Instant::now() + PATIENCE;
    while !listens(&bed.pair.ingress, at)? {
        ensure!(Instant::now() < end, "the receiver does not listen");
        bed.sleep(Duration::from_millis(2))?;
    }
    Ok(())
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
