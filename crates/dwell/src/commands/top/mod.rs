//! `dwell top`: a node, live in the terminal.

mod draw;
mod flows;
mod model;

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::draw::{Palette, draw};
use self::model::{Key, Model};
use super::node::{named, relay_status, the_only_relay};
use dwell_cli::terminal;

const AFTER_HELP: &str = "\
Examples:
  sudo dwell top                       the node that runs here, if there is only one
  sudo dwell top site-a --every 5      the node of this name, every five seconds
  NO_COLOR=1 sudo -E dwell top         without colours

Keys:
  up, down   choose a peer, whose link, queue, decisions and classes stand below
  s          sort the peers: as configured, by name, rate out, rate in, waiting time, savings
  /          show only peers whose name, state or classes contain what is typed then; Esc clears it
  f          show the flows to the peer that send most, or decisions again. While flows are shown s
             sorts them: by rate, bytes, where they come from or go to; and / shows only some
  p          pause, and go on
  q          quit; Ctrl-C too

Exit codes:
  0  it was quit
  1  this is no terminal, or no node answers
  2  the command line is wrong";

/// Show a running node live: peers, queues, decisions and classes
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Top {
    /// The relay's name; may be left out if only one relay runs here
    #[arg(conflicts_with = "socket")]
    name: Option<String>,
    /// The node's status socket, if it is not at the default path
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Ask the node every SECONDS
    #[arg(long, value_name = "SECONDS", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    every: u16,
}

/// A key or a signal is answered within this time.
const PATIENCE: Duration = Duration::from_millis(100);

impl Top {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        ensure!(
            io::stdin().is_terminal() && io::stdout().is_terminal(),
            "dwell top needs a terminal: `dwell status --watch` prints the same again and again, and `dwell \
             status --json` for programs"
        );
        let socket = match (&self.socket, &self.name) {
            (Some(socket), _) => socket.clone(),
            (None, Some(name)) => named(name),
            (None, None) => the_only_relay()?,
        };
        // Before the screen is taken: if nobody answers, that is all there is to say.
        let mut model = Model::default();
        let start = Instant::now();
        model.update(0, relay_status(&socket)?);
        let asked_to_stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&asked_to_stop))?;
        }
        let palette = Palette { has_colours: terminal::wants_colours(&io::stdout()) };
        let mut screen = ratatui::try_init().context("the terminal can't be used")?;
        let shown =
            Show { socket: &socket, every: Duration::from_secs(self.every.into()), start, palette }
                .run(&mut screen, &mut model, &asked_to_stop);
        // Whatever happened, the terminal is as it was.
        ratatui::restore();
        shown?;
        Ok(ExitCode::SUCCESS)
    }
}

struct Show<'s> {
    socket: &'s Path,
    every: Duration,
    start: Instant,
    palette: Palette,
}

impl Show<'_> {
    fn run(
        &self,
        screen: &mut DefaultTerminal,
        model: &mut Model,
        asked_to_stop: &AtomicBool,
    ) -> anyhow::Result<()> {
        let mut next = self.start + self.every;
        let mut has_changed = true;
        while !asked_to_stop.load(Ordering::Relaxed) {
            if has_changed {
                screen.draw(|frame| draw(frame, model, self.palette))?;
            }
            has_changed = false;
            let left = next.saturating_duration_since(Instant::now());
            if event::poll(left.min(PATIENCE))? {
                if !handle(&event::read()?, model) {
                    return Ok(());
                }
                has_changed = true;
            }
            if Instant::now() >= next {
                next = Instant::now() + self.every;
                has_changed |= self.ask(model);
            }
        }
        Ok(())
    }

    /// Asks the node, unless it is paused. A node that is gone may come back.
    fn ask(&self, model: &mut Model) -> bool {
        if model.is_paused {
            return false;
        }
        match relay_status(self.socket) {
            Ok(status) => model.update(self.start.elapsed().as_nanos() as u64, status),
            Err(error) => model.trouble = Some(error.to_string()),
        }
        true
    }
}

/// False if the program ends.
fn handle(event: &Event, model: &mut Model) -> bool {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => {
            meaning(key).is_none_or(|key| model.take_key(key))
        }
        // The screen is drawn again in any case.
        _ => true,
    }
}

fn meaning(key: &KeyEvent) -> Option<Key> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return matches!(key.code, KeyCode::Char('c' | 'd')).then_some(Key::Interrupt);
    }
    Some(match key.code {
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Char(typed) => Key::Char(typed),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_terminals_mean_something() {
        let mut model = Model::default();
        let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert!(!handle(&Event::Key(control), &mut model));
        let filter = KeyEvent::new(KeyCode::Char('/'), KeyModifiers::NONE);
        assert!(handle(&Event::Key(filter), &mut model) && model.types_filter);
        assert!(handle(&Event::Resize(1, 1), &mut model));
        assert_eq!(meaning(&KeyEvent::new(KeyCode::F(1), KeyModifiers::NONE)), None);
    }
}
