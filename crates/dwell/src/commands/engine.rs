//! Engines for campaigns and archives: Python's package has them, and the program becomes it.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::anyhow;

use super::sim::code_version;

/// The variable that names the interpreter that has the package, if it is not `python3`.
const VARIABLE: &str = "DWELL_PYTHON";
const INTERPRETER: &str = "python3";

/// Begins the package's command line with this program's version of the code. The present directory is no place to
/// look for packages in.
const BEGIN: &str = r#"
import sys
if sys.path[:1] == [""]:
    del sys.path[0]
try:
    from dwell.__main__ import handed_over
except ImportError as error:
    if not (error.name or "").startswith("dwell"):
        raise
    sys.exit(
        f"dwell: {sys.executable} has no Python package dwell of this version, and engines are its: "
        "install it there (`./x python --release`, then `pip install target/wheels/dwell-*.whl pyarrow`), "
        "or name another interpreter with DWELL_PYTHON"
    )
sys.exit(handed_over(sys.argv[1], sys.argv[2:]))
"#;

/// Where tasks run, and where their results are kept.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Engines (Python's package dwell, see docs/python.md)")]
pub(super) struct Engine {
    /// Run the tasks there: threads of this machine, or a cluster
    #[arg(long, value_name = "ENGINE", value_parser = ["local", "ray", "dask", "slurm"])]
    on: Option<String>,
    /// Keep results in this store, and do only what it lacks: a directory, or a URL such as s3://bucket/prefix
    #[arg(long, value_name = "DIR|URL")]
    store: Option<String>,
    /// Do only this part, where there is no engine: 3/16 is the third of sixteen
    #[arg(long, value_name = "I/N", requires = "store")]
    shard: Option<String>,
}

impl Engine {
    /// Returns true if the package is to do the work.
    pub(super) fn is_wanted(&self) -> bool {
        self.on.is_some() || self.store.is_some() || self.shard.is_some()
    }

    /// Becomes the package's command line, which has the same options: signals and exit codes are its own.
    ///
    /// # Errors
    /// If there is no interpreter; else it does not return.
    pub(super) fn hand_over() -> anyhow::Result<Infallible> {
        let python = std::env::var_os(VARIABLE).filter(|name| !name.is_empty());
        let python = python.unwrap_or_else(|| INTERPRETER.into());
        let mut command = Command::new(&python);
        command
            .args(["-c", BEGIN, &code_version()])
            .args(without_logging(std::env::args_os().skip(1)));
        let error = command.exec();
        Err(anyhow!(
            "{} can't be started: {error}. Engines are in Python's package dwell (docs/python.md): install Python \
             and the package, or name the interpreter that has it with {VARIABLE}",
            python.display()
        ))
    }
}

/// Returns the words of a command line but those that are about this program's logging.
fn without_logging(words: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let mut is_behind_options = false;
    words.filter(move |word| {
        is_behind_options |= word == "--";
        is_behind_options || !is_logging(word)
    })
}

fn is_logging(word: &OsStr) -> bool {
    let short = word.to_str().and_then(|word| word.strip_prefix('-'));
    word == "--verbose" || short.is_some_and(|of| !of.is_empty() && of.bytes().all(|b| b == b'v'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_gets_all_but_what_is_about_logging() {
        let line =
            ["-v", "sim", "-vv", "run", "x.toml", "--verbose", "--on", "ray", "-", "--", "-v"];
        let words: Vec<OsString> = without_logging(line.iter().map(OsString::from)).collect();
        assert_eq!(words, ["sim", "run", "x.toml", "--on", "ray", "-", "--", "-v"]);
    }
}
