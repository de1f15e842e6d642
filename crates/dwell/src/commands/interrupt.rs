//! Interruption of a job by the user.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use signal_hook::consts::{SIGINT, SIGTERM};

/// The exit code of a job that was interrupted.
pub(super) const INTERRUPTED: u8 = 130;

/// Set once the user wants to stop; asking a second time ends the program at once.
pub(super) fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal sets the flag that arms the second.
        let code = i32::from(INTERRUPTED);
        signal_hook::flag::register_conditional_shutdown(signal, code, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .context("signals can't be caught")?;
    }
    Ok(stop)
}
