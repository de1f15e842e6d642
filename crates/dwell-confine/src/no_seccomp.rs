//! In the place of filters of system calls, for processors whose calls are not listed.

use thiserror::Error;

/// Why there is no filter.
#[derive(Debug, Error)]
pub enum FilterError {
    /// The lists are of other processors.
    #[error("dwell has lists of them for x86-64 and aarch64 only")]
    Processor,
}

/// Says that nothing can be forbidden here.
///
/// # Errors
/// Always.
pub fn confine() -> Result<(), FilterError> {
    Err(FilterError::Processor)
}
