//! The pages of the documentation, and the command lines in them.

use std::io;
use std::path::{Path, PathBuf};

/// The project's root.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Returns the path of a file of the project.
pub fn path(name: impl AsRef<Path>) -> PathBuf {
    Path::new(ROOT).join(name)
}

/// Returns the directories of the crates, from the project's root.
///
/// # Errors
/// The directory can't be read.
pub fn crates() -> io::Result<Vec<PathBuf>> {
    let mut crates = Vec::new();
    for entry in std::fs::read_dir(path("crates"))? {
        let entry = entry?;
        if entry.path().join("Cargo.toml").exists() {
            crates.push(Path::new("crates").join(entry.file_name()));
        }
    }
    Ok(crates)
}

/// Returns the pages of the project, in the order of their names: their paths from its root, and their texts.
///
/// # Errors
/// A file can't be read.
pub fn pages() -> io::Result<Vec<(PathBuf, String)>> {
    let mut pages = Vec::new();
    let directories = ["", "docs", "data", "fuzz"].map(PathBuf::from);
    for directory in directories.into_iter().chain(crates()?) {
        for entry in std::fs::read_dir(path(&directory))? {
            let name = directory.join(entry?.file_name());
            if name.extension().is_some_and(|extension| extension == "md") {
                let text = std::fs::read_to_string(path(&name))?;
                pages.push((name, text));
            }
        }
    }
    pages.sort();
    Ok(pages)
}

/// Where a command line stands in a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a block of what somebody sees at a terminal, after this prompt.
    Console(String),
    /// In a block of shell.
    Shell,
    /// In a block that is set apart by spaces.
    Indented,
    /// Within a sentence, where it may be only the beginning of one.
    Sentence,
}

/// A command line of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// The number of its line, from 1 on.
    pub line: usize,
    /// Where it stands.
    pub place: Place,
    /// What there is to type.
    pub text: String,
}

impl CommandLine {
    /// Returns the words of the command line if it calls this program, as root or not: without the program, quotes
    /// and all that a shell does with its output.
    pub fn words_of(&self, program: &str) -> Option<Vec<String>> {
        let text = self.text.strip_prefix("sudo ").unwrap_or(&self.text);
        let rest = text.strip_prefix(program)?;
        rest.starts_with([' ', '\t'])
            .then(|| words(rest))
            .or_else(|| rest.is_empty().then(Vec::new))
    }
}

/// Returns the command lines of a page.
pub fn command_lines(page: &str) -> Vec<CommandLine> {
    let mut found = Vec::new();
    let mut fence: Option<&str> = None;
    for (at, line) in page.lines().enumerate() {
        let mut add = |place, text: &str| {
            found.push(CommandLine { line: at + 1, place, text: text.trim().to_owned() });
        };
        if let Some(info) = line.strip_prefix("```") {
            fence = if fence.is_none() { Some(info.trim()) } else { None };
            continue;
        }
        match fence {
            Some("console") => {
                // Output has no prompt: one word, or none, before the sign.
                let prompt = line.split_once("$ ").filter(|(prompt, _)| !prompt.contains(' '));
                if let Some((prompt, text)) = prompt {
                    add(Place::Console(prompt.to_owned()), text);
                }
            }
            Some("sh" | "bash") => add(Place::Shell, line),
            Some(_) => {}
            None => match line.strip_prefix("    ").filter(|text| is_ours(text)) {
                // What it does stands beside it.
                Some(text) => {
                    add(Place::Indented, text.split_once("  ").map_or(text, |(text, _)| text));
                }
                None => {
                    let spans = line.split('`').skip(1).step_by(2);
                    spans.filter(|text| is_ours(text)).for_each(|text| add(Place::Sentence, text));
                }
            },
        }
    }
    found
}

fn is_ours(text: &str) -> bool {
    let text = text.strip_prefix("sudo ").unwrap_or(text);
    ["dwell ", "./x "].iter().any(|program| text.starts_with(program))
}

/// The words of a command as a shell splits them, up to where its output goes.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quote, mut is_word) = (String::new(), None, false);
    for c in text.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.push(c),
            (None, '\'' | '"') => (quote, is_word) = (Some(c), true),
            (None, '|' | '>' | '<' | '&' | ';') => break,
            (None, '#') if !is_word => break,
            (None, c) if c.is_whitespace() => {
                if is_word {
                    words.push(std::mem::take(&mut word));
                }
                is_word = false;
            }
            (None, c) => {
                word.push(c);
                is_word = true;
            }
        }
    }
    if is_word {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_found_wherever_they_stand() {
        let page = "Say `dwell status` or `sudo ./x demo --html F`, and not `dwells`.\n\n    \
                    dwell send FILE… CODE     sends files\n    other\n\n```console\nhub$ sudo dwell invite > lines \
                    # all\nok  is $ 5\n```\n```toml\n`dwell no`\n```\n```sh\nnft -f -\n```\n";
        let found: Vec<_> = command_lines(page);
        let texts: Vec<_> = found.iter().map(|found| (found.line, &*found.text)).collect();
        let expected = [
            (1, "dwell status"),
            (1, "sudo ./x demo --html F"),
            (3, "dwell send FILE… CODE"),
            (7, "sudo dwell invite > lines # all"),
            (14, "nft -f -"),
        ];
        assert_eq!(texts, expected);
        assert_eq!(found[3].place, Place::Console("hub".to_owned()));
        assert_eq!(found[3].words_of("dwell").unwrap(), ["invite"]);
        assert_eq!(found[1].words_of("./x").unwrap(), ["demo", "--html", "F"]);
        assert_eq!(found[1].words_of("dwell"), None);
    }

    #[test]
    fn words_are_those_of_a_shell() {
        assert_eq!(words(" a 'b c' \"$(d e)\" f='g h' | i"), ["a", "b c", "$(d e)", "f=g h"]);
        assert_eq!(words("''  #x"), [""]);
        assert_eq!(words("a#b"), ["a#b"]);
    }
}
