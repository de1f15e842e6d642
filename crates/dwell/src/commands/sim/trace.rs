//! `dwell sim trace`: the packets of one run, to open in Wireshark.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use dwell_cli::progress::Progress;
use dwell_cli::terminal;
use dwell_sim::World;
use dwell_sim::plan::Plan;
use dwell_sim::scenario::{Options, Setting};
use dwell_sim::trace::{self, Pcapng};
use dwell_sim::world::Sighting;
use dwell_trace::replay::simulated;

use super::input;
use crate::commands::interrupt::{INTERRUPTED, stop_flag};
use crate::commands::whole_file::{replace, replace_with};

/// The first line of a file of windows.
const WINDOWS_HEADING: &str = "seconds,flow,packets,threshold\n";

const AFTER_HELP: &str = "\
Examples:
  dwell sim trace worked/lte --quick --out lte.pcapng          the first point of the scenario
  dwell sim trace mine.toml --link radio --out radio.pcapng    one link of several
  dwell sim trace worked/satellite --set flow.data.flavour=bbr --out sat.pcapng --windows sat.csv

The file has an interface for each link. Packets have headers that follow from their flow, and no
payload; their times are those at which their transmission begins. Where queues are not managed,
they are simulated packet by packet for this, so that what happens at the same instant may be in
another order.

Exit codes:
  0    the trace is written
  1    it is not
  2    the command line is wrong
  130  it was interrupted, and nothing was written";

/// Write the packets of one run as pcapng
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Trace {
    /// A scenario's file, or the name of one that dwell carries with it
    #[arg(value_name = "FILE|NAME")]
    scenario: String,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// A link to trace; all if none is named; may be given several times
    #[arg(long = "link", value_name = "NAME")]
    links: Vec<String>,
    /// Write the congestion windows, too, as lines of seconds, flow, packets and threshold
    #[arg(long, value_name = "FILE")]
    windows: Option<PathBuf>,
    /// Set a value of the scenario, by the dotted path of its key
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<Setting>,
    /// The seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The most packets to write; it says how many there are beyond
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    packets: u64,
    /// The scenario's quick variant: a shorter run
    #[arg(long)]
    quick: bool,
}

impl Trace {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let options = Options { settings: self.set.clone(), is_quick: self.quick };
        let scenario = input::scenario(&self.scenario, &options)?;
        let Some(point) = scenario.points.first() else { bail!("the scenario has no point") };
        if scenario.points.len() > 1 {
            let values: Vec<String> = point
                .values
                .iter()
                .map(|(key, value)| format!("{key}={}", value.shown()))
                .collect();
            terminal::note(&format!(
                "of {} points this is {}",
                scenario.points.len(),
                values.join(" ")
            ));
        }
        let mut plan = point.plan.clone();
        let links = self.links(&plan)?;
        trace::observe(&mut plan, &links);
        let mut world = World::new(&plan, self.seed)?;
        if let Some(contents) = simulated::contents(&plan).map_err(anyhow::Error::msg)? {
            world = world.with_contents(Box::new(contents));
        }
        // Before there is a file, or an interruption would leave half of one.
        let stop = stop_flag()?;
        let mut windows = String::from(WINDOWS_HEADING);
        let (mut written, mut left_out, mut is_whole) = (0, 0, true);
        let result = replace_with(&self.out, |file| {
            let counts = self.write(world, &plan, &links, &stop, (file, &mut windows))?;
            is_whole = counts.is_some();
            (written, left_out) = counts.ok_or(io::ErrorKind::Interrupted)?;
            Ok(())
        });
        if !is_whole {
            terminal::note("interrupted: nothing was written");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        result?;
        if let Some(path) = &self.windows {
            replace(path, &windows)?;
        }
        let shown = self.out.display();
        terminal::note(&format!("wrote {written} packets of {} links to {shown}", links.len()));
        if left_out > 0 {
            terminal::complain(
                "dwell",
                &format!(
                    "{left_out} more packets are left out: --packets {} writes all",
                    written + left_out
                ),
            );
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Writes the packets of a run, and the windows; returns how many packets are written and left out, nothing if it was interrupted.
    fn write(
        &self,
        world: World,
        plan: &Plan,
        links: &[usize],
        stop: &AtomicBool,
        (file, windows): (&mut BufWriter<File>, &mut String),
    ) -> io::Result<Option<(u64, u64)>> {
        let mut file = Pcapng::new(file, plan, links, self.packets)?;
        let mut failed = None;
        let mut progress = Progress::quiet(1, Duration::from_secs(1));
        let goes_on = |share: f64| {
            progress.goes_on(Duration::from_secs_f64(share));
            !stop.load(Ordering::Relaxed)
        };
        let outcome = world.run_observed_while(goes_on, |sighting| match sighting {
            Sighting::Packet(seen) if failed.is_none() => failed = file.packet(seen).err(),
            Sighting::Window { .. } if self.windows.is_some() => {
                windows.extend(trace::window_line(sighting));
            }
            _ => {}
        });
        failed.map_or(Ok(()), Err)?;
        let counts = (file.written(), file.left_out());
        file.finish()?;
        Ok(outcome.map(|_| counts))
    }

    /// The links to trace, by index.
    fn links(&self, plan: &Plan) -> anyhow::Result<Vec<usize>> {
        if self.links.is_empty() {
            return Ok((0..plan.links.len()).collect());
        }
        let find = |name: &String| {
            let found = plan.links.iter().position(|link| link.name == *name);
            found.with_context(|| {
                let names: Vec<&str> = plan.links.iter().map(|link| link.name.as_str()).collect();
                format!("there is no link \"{name}\": there are {}", names.join(", "))
            })
        };
        self.links.iter().map(find).collect()
    }
}
