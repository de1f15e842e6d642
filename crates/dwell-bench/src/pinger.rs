//! The system's `ping` beside a run.

use std::io::Read as _;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use dwell_lab::lab::{Host, Process};
use dwell_lab::ping::PingSummary;
use rustix::process::Signal;

/// The address of the server in every bed.
pub(super) const SERVER: &str = "10.2.0.2";

/// A running `ping` from the client to the server.
#[derive(Debug)]
pub(super) struct Pinger {
    process: Process,
}

/// The time in which `ping` must end when asked to.
const GRACE: Duration = Duration::from_secs(2);

impl Pinger {
    pub(super) fn start(client: &Host, pause: Duration) -> anyhow::Result<Self> {
        Self::start_to(client, pause, SERVER)
    }

    /// The same from any host to any address.
    pub(super) fn start_to(host: &Host, pause: Duration, address: &str) -> anyhow::Result<Self> {
        let mut command = host.command("ping");
        let pause = format!("{:.3}", pause.as_secs_f64());
        command.args(["-n", "-i", &pause, address]).stdout(Stdio::piped()).stderr(Stdio::null());
        Ok(Self { process: Process::spawn(&mut command)? })
    }

    /// Ends it, and returns what it saw.
    pub(super) fn stop(mut self) -> anyhow::Result<PingSummary> {
        self.process.signal(Signal::INT)?;
        if self.process.wait_timeout(GRACE)?.is_none() {
            self.process.stop()?;
        }
        let mut output = String::new();
        let stdout = self.process.child().stdout.take();
        stdout
            .context("ping has no output")?
            .read_to_string(&mut output)
            .context("the output of ping can't be read")?;
        Ok(PingSummary::parse(&output))
    }
}
