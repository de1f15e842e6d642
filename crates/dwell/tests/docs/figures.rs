//! Tables of figures, and the commands that make them.

use std::path::Path;
use std::process::ExitCode;

use anyhow::ensure;

use crate::pages;

/// Pages on formats, whose numbers are lengths and offsets.
const OF_FORMATS: [&str; 2] = ["docs/wire.md", "docs/stream-wire.md"];
/// Pages all of whose tables one command makes, which the page begins with.
const OF_ONE_COMMAND: [&str; 1] = ["docs/reproduction.md"];
/// A table with fewer figures is one of settings.
const FIGURES_MIN: usize = 4;
/// What begins a command.
const COMMANDS: [&str; 5] = ["./x ", "dwell ", "cargo ", "validate/", "python"];

/// Every table of figures has a command in its section, or in one that it is part of.
pub(crate) fn have_commands() -> anyhow::Result<ExitCode> {
    let mut without = Vec::new();
    for (page, text) in pages()? {
        let is_of = |names: &[&str]| names.iter().any(|name| page == Path::new(name));
        if is_of(&OF_FORMATS) {
            continue;
        }
        let level_min = if is_of(&OF_ONE_COMMAND) { 1 } else { 2 };
        let lacking = sections_without(&text, level_min);
        without.extend(lacking.map(|title| format!("{}: {title}", page.display())));
    }
    ensure!(
        without.is_empty(),
        "figures without the command that makes them:\n{}",
        without.join("\n")
    );
    Ok(ExitCode::SUCCESS)
}

struct Section<'a> {
    title: &'a str,
    level: usize,
    figures: usize,
    has_command: bool,
    /// True if it, or what it is part of, has a command.
    is_covered: bool,
}

/// Returns the headings of sections with figures and without a command. Headings above `level_min` cover
/// nothing below them.
fn sections_without(text: &str, level_min: usize) -> impl Iterator<Item = &str> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    let mut is_code = false;
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        let level = line.bytes().take_while(|&byte| byte == b'#').count();
        if !is_code && level > 0 {
            let (figures, has_command, is_covered) = (0, false, false);
            sections.push(Section { title: line, level, figures, has_command, is_covered });
        } else if let Some(section) = sections.last_mut() {
            section.figures += figures(line);
            section.has_command |= names_command(line, is_code);
        }
    }
    let mut open: Vec<(usize, bool)> = Vec::new();
    for section in &mut sections {
        open.retain(|&(level, _)| level < section.level);
        let above = open.iter().any(|&(level, has)| has && level >= level_min);
        section.is_covered = section.has_command || above;
        open.push((section.level, section.has_command));
    }
    let lacking = |section: &Section<'_>| section.figures >= FIGURES_MIN && !section.is_covered;
    sections.into_iter().filter(lacking).map(|section| section.title)
}

/// Returns true if a line has a command: in code, or between backquotes.
fn names_command(line: &str, is_code: bool) -> bool {
    let begins = |text: &str| COMMANDS.iter().any(|command| text.starts_with(command));
    let is_block = is_code || line.starts_with("    ");
    (is_block && begins(line.trim_start())) || line.split('`').skip(1).any(begins)
}

/// Returns the number of a table row's cells that are figures.
fn figures(line: &str) -> usize {
    let is_figure = |cell: &str| {
        let cell = cell.trim().trim_matches(['*', '−', '-', '+', '.', '<', '>', '≤', '≥']);
        let number = cell.split([' ', '(', ',', '%', '×', ';']).next().unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
    };
    match line.starts_with('|') {
        true => line.split('|').filter(|cell| is_figure(cell)).count(),
        false => 0,
    }
}
