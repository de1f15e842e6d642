//! Puts on the disk what was written while more comes, by a thread, so that the end of a transfer has little to wait for.

use std::fs::File;
use std::io;
use std::sync::mpsc::{self, SyncSender};
use std::thread::{self, JoinHandle};

/// After so many bytes it is time.
const EARLY_BYTES: u64 = 4 << 20;

/// What was written and may not be on the disk yet. The thread runs only once there is much.
#[derive(Debug, Default)]
pub(super) struct Early {
    written: u64,
    running: Option<(SyncSender<File>, JoinHandle<io::Result<()>>)>,
}

impl Early {
    /// Notes that this was written to a file. It never waits: a disk that is busy gets the next ones.
    pub(super) fn wrote(&mut self, file: &File, len: usize) {
        self.written += len as u64;
        if self.written < EARLY_BYTES {
            return;
        }
        self.written = 0;
        // Without descriptors or threads all is put there at the end.
        let Ok(file) = file.try_clone() else { return };
        if self.running.is_none() {
            self.running = start().ok();
        }
        if let Some((files, _)) = &self.running {
            let _ = files.try_send(file);
        }
    }

    /// Waits until the thread has done what it was given.
    ///
    /// # Errors
    /// What could not be put there: the system says so to the first who asks, and never again.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        let Some((files, thread)) = self.running.take() else { return Ok(()) };
        drop(files);
        thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread that syncs has failed")))
    }
}

fn start() -> io::Result<(SyncSender<File>, JoinHandle<io::Result<()>>)> {
    let (files, written) = mpsc::sync_channel::<File>(1);
    let work = move || {
        let mut result = Ok(());
        for file in written {
            result = result.and(file.sync_data());
        }
        result
    };
    let thread = thread::Builder::new().name("dwell-sync".to_owned()).spawn(work)?;
    Ok((files, thread))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_said_when_it_settles() {
        let path = std::env::temp_dir().join(format!("dwell-early-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        let mut early = Early::default();
        early.wrote(&file, 1000);
        assert!(early.running.is_none(), "too little");
        early.wrote(&file, 8 << 20);
        assert!(early.running.is_some());
        early.settle().unwrap();
        assert!(early.running.is_none());
        std::fs::remove_file(&path).unwrap();
        // What can't be synced at all.
        let (pipe, _writer) = io::pipe().unwrap();
        early.wrote(&File::from(std::os::fd::OwnedFd::from(pipe)), 8 << 20);
        assert!(early.settle().is_err());
        early.settle().unwrap();
    }
}
