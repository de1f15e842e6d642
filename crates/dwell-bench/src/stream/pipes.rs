//! The tools that people use today: `zstd --adapt` and `ssh -C`, each between two pipes.

use std::fs;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;

use anyhow::Context as _;
use dwell_lab::lab::Process;

use super::super::bed::Bed;
use super::super::peers::pipe::{self, Crossing, Gate};
use super::super::peers::ssh;
use super::super::{machine, program};

/// Another program's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pipe {
    /// `zstd --adapt | tcp | zstd -d`.
    ZstdAdapt,
    /// `ssh -C host cat`.
    Ssh,
}

impl Pipe {
    const ALL: [Self; 2] = [Self::ZstdAdapt, Self::Ssh];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::ZstdAdapt => "zstd --adapt",
            Self::Ssh => "ssh -C",
        }
    }

    /// Which of its programs are not there.
    fn missing(self) -> Vec<&'static str> {
        self.programs().into_iter().filter(|name| program::find(name).is_none()).collect()
    }

    fn programs(self) -> Vec<&'static str> {
        match self {
            Self::ZstdAdapt => vec!["zstd"],
            Self::Ssh => ssh::PROGRAMS.map(|(name, _)| name).to_vec(),
        }
    }
}

/// Those whose programs are there.
pub(super) fn installed() -> Vec<Pipe> {
    Pipe::ALL.into_iter().filter(|pipe| pipe.missing().is_empty()).collect()
}

/// Complains of those whose programs are not there, in a sentence each.
pub(super) fn complaints() -> Vec<String> {
    let sentence = |pipe: Pipe| {
        let (name, missing) = (pipe.name(), pipe.missing());
        let missing = missing.join(", ");
        (!missing.is_empty())
            .then(|| format!("`{name}` does not take part: {missing} can't be found; install it"))
    };
    Pipe::ALL.into_iter().filter_map(sentence).collect()
}

/// Processes that send, and one whose output is what arrives.
#[derive(Debug)]
pub(super) struct Running {
    /// Of those that need one.
    server: Option<Process>,
    children: Vec<Child>,
    pub(super) output: std::process::ChildStdout,
    feeder: Option<thread::JoinHandle<()>>,
}

impl Running {
    /// CPU time of all of them, and of what they have started: sshd has a process of its own for
    /// each session.
    pub(super) fn cpu_ns(&self) -> u64 {
        let children = self.children.iter().map(Child::id);
        let processes: Vec<u32> = children.chain(self.server.as_ref().map(Process::id)).collect();
        machine::family_cpu_ns(&processes)
    }

    /// Ends all of them; call it before the output is dropped.
    pub(super) fn stop(&mut self) {
        for child in &mut self.children {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
        self.server = None;
        if let Some(feeder) = self.feeder.take() {
            let _ = feeder.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Starts it; it sends the body over and over, from the egress to the ingress.
pub(super) fn start(
    pipe: Pipe,
    bed: &Bed<'_>,
    body: &std::sync::Arc<Vec<u8>>,
    directory: &Path,
) -> anyhow::Result<Running> {
    match pipe {
        Pipe::ZstdAdapt => zstd(bed, std::sync::Arc::clone(body)),
        Pipe::Ssh => ssh(bed, body, directory),
    }
}

fn zstd(bed: &Bed<'_>, body: std::sync::Arc<Vec<u8>>) -> anyhow::Result<Running> {
    let Crossing { far, near } = Gate::open(bed)?.cross()?;
    let mut decoder = pipe::decoder(&bed.pair.ingress);
    let mut decoder = decoder.stdin(OwnedFd::from(near)).stdout(Stdio::piped()).spawn()?;
    let mut encoder = pipe::encoder(&bed.pair.egress);
    let mut encoder = encoder.stdin(Stdio::piped()).stdout(OwnedFd::from(far)).spawn()?;
    let mut input = encoder.stdin.take().context("a pipe was asked for")?;
    let output = decoder.stdout.take().context("a pipe was asked for")?;
    // Until the encoder has gone.
    let feeder = thread::spawn(move || while input.write_all(&body).is_ok() {});
    Ok(Running { server: None, children: vec![encoder, decoder], output, feeder: Some(feeder) })
}

fn ssh(bed: &Bed<'_>, body: &[u8], directory: &Path) -> anyhow::Result<Running> {
    let files = ssh::Files::make(directory)?;
    let content = files.path("body");
    fs::write(&content, body)?;
    let server = files.serve(bed)?;
    let mut client = bed.pair.ingress.command("ssh");
    client.args(files.options()).arg(ssh::DESTINATION);
    client.arg(format!("while cat '{}'; do :; done", content.display()));
    let mut client = client.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let output = client.stdout.take().context("a pipe was asked for")?;
    Ok(Running { server: Some(server), children: vec![client], output, feeder: None })
}
