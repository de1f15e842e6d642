//! `dwell sim trace`: the packets of one run, to open in Wireshark.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use dwell_cli::terminal;
use dwell_sim::World;
use dwell_sim::plan::Plan;
use dwell_sim::scenario::{Options, Setting};
use dwell_sim::trace::{self, Pcapng};
use dwell_sim::world::Sighting;
use dwell_trace::replay::simulated;

use super::input;

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
  0  the trace is written
  1  it is not
  2  the command line is wrong";

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
    /// The most packets to write
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000)]
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
        let shown = self.out.display();
        let file = File::create(&self.out).with_context(|| format!("{shown} can't be written"))?;
        let mut file = Pcapng::new(BufWriter::new(file), &plan, &links, self.packets)?;
        let mut windows = String::from("seconds,flow,packets,threshold\n");
        let (mut written, mut failed) = (0u64, None);
        let mut world = World::new(&plan, self.seed)?;
        if let Some(contents) = simulated::contents(&plan).map_err(anyhow::Error::msg)? {
            world = world.with_contents(Box::new(contents));
        }
        world.run_observed(|sighting| match sighting {
            Sighting::Packet(seen) if failed.is_none() => {
                failed = file.packet(seen).err();
                written += u64::from(links.contains(&seen.link));
            }
            Sighting::Window { .. } if self.windows.is_some() => {
                windows.extend(trace::window_line(sighting));
            }
            _ => {}
        });
        failed.map_or(Ok(()), Err).with_context(|| format!("{shown} can't be written"))?;
        file.finish()?.flush()?;
        if let Some(path) = &self.windows {
            std::fs::write(path, windows)
                .with_context(|| format!("{} can't be written", path.display()))?;
        }
        let written = written.min(self.packets);
        terminal::note(&format!("wrote {written} packets of {} links to {shown}", links.len()));
        Ok(ExitCode::SUCCESS)
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
