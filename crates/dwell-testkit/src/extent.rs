//! How much of what they could go through tests do go through.

use std::ops::Range;

/// With this tests go through everything, as `./x test --all` has them do.
const VARIABLE: &str = "DWELL_TEST_ALL";

/// Returns true if tests are to go through everything, however long that takes.
pub fn is_everything() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|value| value == "1")
}

/// Returns the seeds from 0 on that a test goes through: `all` of them, or else the first `few`.
pub fn seeds(few: u64, all: u64) -> Range<u64> {
    0..if is_everything() { all } else { few.min(all) }
}

/// Returns the first `few` of these cases, or all of them.
pub fn cases<T>(few: usize, mut all: Vec<T>) -> Vec<T> {
    if !is_everything() {
        all.truncate(few);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_test_goes_through_more_than_there_is() {
        assert_eq!(seeds(9, 3), 0..3);
        let most = if is_everything() { 4 } else { 1 };
        assert_eq!(seeds(1, 4), 0..most);
        assert_eq!(cases(1, vec!["a", "b", "c", "d"]).len(), most as usize);
    }
}
