//! The limit of files and sockets that this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of file descriptors to the highest that this process may set, and returns it.
///
/// The usual limit, 1,024, is there for programs that use `select`, which can't handle more; nothing
/// here does. For commands that start no other programs: those would inherit it.
pub(crate) fn raise() -> u64 {
    let before = getrlimit(Resource::Nofile);
    let highest = Rlimit { current: before.maximum, maximum: before.maximum };
    if before.current != before.maximum
        && let Err(error) = setrlimit(Resource::Nofile, highest)
    {
        tracing::debug!("the limit of file descriptors can't be raised: {error}");
    }
    // None is no limit.
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised() {
        let hard = getrlimit(Resource::Nofile).maximum;
        assert_eq!(raise(), hard.unwrap_or(u64::MAX));
        assert_eq!(getrlimit(Resource::Nofile).current, hard);
    }
}
