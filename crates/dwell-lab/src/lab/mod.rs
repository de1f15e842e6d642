//! Hosts as network namespaces, of an ordinary user, that vanish with the process.
//!
//! ```no_run
//! # fn main() -> Result<(), dwell_lab::lab::LabError> {
//! use dwell_lab::lab;
//! let mut lab = lab::enter()?; // first thing in main
//! let (a, b) = (lab.host("a")?, lab.host("b")?);
//! let _link = lab.emulated_link((&a, "eth0"), (&b, "eth0"), "delay 20ms".parse().unwrap(),
//!                               "delay 20ms loss 1%".parse().unwrap())?;
//! a.address("eth0", "10.0.0.1/24")?;
//! b.address("eth0", "10.0.0.2/24")?;
//! print!("{}", a.output("ping", &["-c", "3", "10.0.0.2"])?);
//! # Ok(())
//! # }
//! ```

mod enter;
mod error;
mod host;
mod process;
mod shape;
pub mod topology;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub use enter::enter;
pub use error::LabError;
pub use host::Host;
pub use host::has_ipv6;
pub use process::Process;
pub use shape::Shape;

use crate::emulator::{EmulatedLink, Tap};
use crate::link::LinkSpec;

/// The namespaces that this process and its children live in. See [`enter`].
#[derive(Debug)]
pub struct Lab {
    interrupts: Interrupts,
}

#[derive(Debug)]
struct Interrupts {
    exit_at_once: Arc<AtomicBool>,
    interrupted: Arc<AtomicBool>,
    /// The latest signal; zero before the first.
    signal: Arc<AtomicUsize>,
}

/// An end of a cable: a host, and the name of the device there.
pub type CableEnd<'a> = (&'a Host, &'a str);

impl Lab {
    fn new(interrupts: Interrupts) -> Result<Self, LabError> {
        let lab = Self { interrupts };
        output(Command::new("ip").args(["link", "set", "lo", "up"]), "the lab")?;
        Ok(lab)
    }

    /// Returns a directory in memory that belongs to the lab and vanishes with it.
    pub fn directory(&self) -> PathBuf {
        Path::new("/run/dwell-lab").to_owned()
    }

    /// Makes SIGINT, SIGTERM and SIGHUP set this flag from now on instead of ending the lab at
    /// once, so that the program can finish its work. SIGQUIT still ends it.
    pub fn interrupted(&self) -> Arc<AtomicBool> {
        self.interrupts.exit_at_once.store(false, Ordering::SeqCst);
        Arc::clone(&self.interrupts.interrupted)
    }

    /// Returns the number of the signal that set the flag of [`Lab::interrupted`], the latest if
    /// there were several.
    pub fn interrupted_by(&self) -> Option<u8> {
        let signal = self.interrupts.signal.load(Ordering::SeqCst);
        u8::try_from(signal).ok().filter(|&signal| signal > 0)
    }

    /// Adds a host, with its loopback device up and nothing else. It exists until the last clone of
    /// the result is dropped, and is visible to `ip netns`.
    pub fn host(&mut self, name: &str) -> Result<Host, LabError> {
        Host::create(name)
    }

    /// Joins two hosts with a perfect cable (a veth pair) and brings both ends up.
    ///
    /// A veth carries segments of up to 64 KiB unless set otherwise (TSO): capture
    /// elsewhere if you want to see what goes over a real link.
    pub fn veth(&mut self, a: CableEnd<'_>, b: CableEnd<'_>) -> Result<(), LabError> {
        let ((a, a_device), (b, b_device)) = (a, b);
        let arguments = [
            "link",
            "add",
            a_device,
            "netns",
            a.name(),
            "type",
            "veth",
            "peer",
            "name",
            b_device,
            "netns",
            b.name(),
        ];
        output(Command::new("ip").args(arguments), "the lab")?;
        a.up(a_device)?;
        b.up(b_device)
    }

    /// Joins two hosts with a link of the given properties, and brings both ends up. The link
    /// exists as long as the result; its devices vanish with it.
    pub fn emulated_link(
        &mut self,
        a: CableEnd<'_>,
        b: CableEnd<'_>,
        ab: LinkSpec,
        ba: LinkSpec,
    ) -> Result<EmulatedLink, LabError> {
        let open = |(host, device): CableEnd<'_>| {
            let tap = host.run(|| Tap::create(device))??;
            host.up(device)?;
            Ok::<_, LabError>(tap)
        };
        let taps = [open(a)?, open(b)?];
        EmulatedLink::start(taps, [ab, ba]).map_err(LabError::io("start the link emulator"))
    }
}

/// Runs a command and returns its output; its error output is in the error.
fn output(command: &mut Command, place: &str) -> Result<String, LabError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| LabError::starting(&program, error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
    Err(LabError::Command {
        command: std::iter::once(program).chain(words).collect::<Vec<_>>().join(" "),
        place: place.to_owned(),
        status: output.status,
        stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
