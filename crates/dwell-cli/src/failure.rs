//! The end of a program whose job failed: its message and exit code.

use std::io;
use std::process::ExitCode;

use crate::terminal;

/// The exit code of a program named `who`: what its job returned; or 1, once the error and its
/// causes have been written to standard error. A broken pipe is no failure.
pub fn exit_code(who: &str, done: anyhow::Result<ExitCode>) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::complain(who, &sentence(&error));
            ExitCode::FAILURE
        }
    }
}

/// An error and its causes, except for those that are in its words already.
fn sentence(error: &anyhow::Error) -> String {
    let mut sentence = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !sentence.contains(&cause) {
            sentence.push_str(": ");
            sentence.push_str(&cause);
        }
    }
    sentence
}

/// Whoever reads our output (`head`, a pager) has seen enough; that is not a failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn causes_are_reported_once() {
        let cause = || io::Error::other("the disk is full");
        let error = Err::<(), _>(cause()).context("the key can't be written").unwrap_err();
        assert_eq!(sentence(&error), "the key can't be written: the disk is full");
        let error = Err::<(), _>(cause()).context("no: the disk is full: stop").unwrap_err();
        assert_eq!(sentence(&error), "no: the disk is full: stop");
    }
}
