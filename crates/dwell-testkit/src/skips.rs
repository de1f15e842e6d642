//! Tests that can't test anything here, and say so.
//!
//! To the usual harness a test that returns has passed, and what it prints then is shown to nobody. So it also writes the
//! reason into a file that whoever runs all tests reads: `./x test` counts it, and prints it at the end.

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::panic::Location;
use std::thread;

/// The file, if somebody reads it.
const VARIABLE: &str = "DWELL_TEST_SKIPS";
/// What stands before the reason if the rest of the test was run.
const IN_PART: &str = "in part: ";

/// Says that this test tests nothing here, and why. It is to return then.
///
/// # Panics
/// If the file in which that is to be noted can't be written.
#[track_caller]
pub fn skipped(why: impl Display) {
    say(&format!("{}: {}", caller(Location::caller()), one_line(&why)));
}

/// Says that this test leaves out some of what it tests, and why.
///
/// # Panics
/// If the file in which that is to be noted can't be written.
#[track_caller]
pub fn skipped_in_part(why: impl Display) {
    say(&format!("{}: {IN_PART}{}", caller(Location::caller()), one_line(&why)));
}

/// Returns the name of the test, which its thread has; or else where it says so.
fn caller(at: &Location<'_>) -> String {
    match thread::current().name() {
        // With one thread for all tests they run on the first one of the process.
        None | Some("main") => format!("{}:{}", at.file(), at.line()),
        Some(name) => name.to_owned(),
    }
}

fn one_line(why: &impl Display) -> String {
    why.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn say(line: &str) {
    println!("skipped: {line}");
    if let Some(file) = std::env::var_os(VARIABLE) {
        note(&file, line).unwrap_or_else(|error| panic!("{VARIABLE}, {}: {error}", file.display()));
    }
}

/// Adds the line in one write: tests run at the same time, as threads and as processes.
fn note(file: &OsStr, line: &str) -> io::Result<()> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)?
        .write_all(format!("{line}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_lines_with_the_name_of_the_test() {
        let file = std::env::temp_dir().join(format!("dwell-skips-{}", std::process::id()));
        for why in ["nothing\n  is here", "nor there"] {
            note(file.as_os_str(), &format!("name: {}", one_line(&why))).expect("a file");
        }
        let text = std::fs::read_to_string(&file).expect("the file");
        assert_eq!(text, "name: nothing is here\nname: nor there\n");
        std::fs::remove_file(&file).expect("the file");

        let named = |name: &str| {
            let caller = || caller(Location::caller());
            let thread = thread::Builder::new().name(name.to_owned()).spawn(caller);
            thread.expect("a thread").join().expect("a name")
        };
        assert_eq!(named("a::test"), "a::test");
        assert!(named("main").contains("skips.rs:"));
    }
}
