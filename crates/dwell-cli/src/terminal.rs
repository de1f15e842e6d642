//! Writing to people: standard output, complaints, colours.

use std::io::{self, IsTerminal, Write};

/// The command line, for reports: without the directory of the program, which who reads a report does not have. What is
/// no UTF-8 of it is shown as replacement characters: the names of files may be anything.
pub fn command_line() -> String {
    let arguments = std::env::args_os().enumerate().map(|(at, argument)| {
        let name = std::path::Path::new(&argument).file_name().filter(|_| at == 0);
        name.unwrap_or(&argument).to_string_lossy().into_owned()
    });
    arguments.collect::<Vec<_>>().join(" ")
}

/// Writes to standard output. Fails if nobody reads it any more.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes `who: message` to standard error, with `who` in colour if colours are wanted.
pub fn complain(who: &str, message: &str) {
    let mut err = io::stderr().lock();
    // If standard error is closed, there is nobody to complain to about that.
    let _ = if wants_colours(&err) {
        writeln!(err, "\x1b[1;31m{who}:\x1b[0m {message}")
    } else {
        writeln!(err, "{who}: {message}")
    };
}

/// Writes a line to standard error.
pub fn note(message: &str) {
    let _ = writeln!(io::stderr().lock(), "{message}");
}

/// Colours are for terminals that can show them, unless the user said no
/// (<https://no-color.org>).
pub fn wants_colours(stream: &impl IsTerminal) -> bool {
    let says_no = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    stream.is_terminal() && !says_no && !is_dumb
}
