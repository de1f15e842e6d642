//! Journals of the decision cores, one file for each peer.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use crate::node::Node;

/// The files that are open.
#[derive(Debug, Default)]
pub(super) struct Journals {
    /// By peer.
    files: Vec<BufWriter<File>>,
}

impl Journals {
    /// Keeps a journal of each peer of a new node in `directory`, which is made if it is not there,
    /// for this user alone. There must be none yet: those of another run are not overwritten.
    ///
    /// # Errors
    /// If a file can't be made.
    pub(super) fn open(directory: &Path, node: &mut Node) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let mut files = Vec::new();
        for peer in 0..node.peer_count() {
            let Some(config) = node.peer_config(peer) else { continue };
            let path = directory.join(format!("{}.jsonl", config.name));
            // A new file only, so that nobody's link leads to another one.
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            files.push(BufWriter::new(file));
            node.keep_journal(peer);
        }
        Ok(Self { files })
    }

    /// Writes what was noted. If that fails, all journals end with a warning.
    pub(super) fn write(&mut self, node: &mut Node) {
        let written = self.try_write(node);
        self.end_if_failed(node, written);
    }

    /// Writes out what is left.
    pub(super) fn finish(&mut self, node: &mut Node) {
        let written = self.try_write(node);
        let written = written.and_then(|()| self.files.iter_mut().try_for_each(Write::flush));
        self.end_if_failed(node, written);
    }

    fn end_if_failed(&mut self, node: &mut Node, written: io::Result<()>) {
        if let Err(error) = written {
            tracing::warn!("the journals end here, perhaps within a line: {error}");
            self.files.clear();
            node.end_journals();
        }
    }

    fn try_write(&mut self, node: &mut Node) -> io::Result<()> {
        for (peer, file) in self.files.iter_mut().enumerate() {
            for entry in node.take_journal(peer) {
                writeln!(file, "{}", entry.to_line())?;
            }
        }
        Ok(())
    }
}
