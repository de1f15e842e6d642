//! Journals of the decision cores, one file for each peer.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::node::Node;

/// The files that are open.
#[derive(Debug, Default)]
pub(super) struct Journals {
    /// By peer.
    files: Vec<BufWriter<File>>,
}

impl Journals {
    /// Keeps a journal of each peer of a new node in `directory`, which is made if it is not there.
    ///
    /// # Errors
    /// If a file can't be made.
    pub(super) fn open(directory: &Path, node: &mut Node) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let mut files = Vec::new();
        for peer in 0..node.peer_count() {
            let Some(config) = node.peer_config(peer) else { continue };
            let file = File::create(directory.join(format!("{}.jsonl", config.name)))?;
            files.push(BufWriter::new(file));
            node.keep_journal(peer);
        }
        Ok(Self { files })
    }

    /// Writes what was noted. A journal that can't be written ends with a warning.
    pub(super) fn write(&mut self, node: &mut Node) {
        if let Err(error) = self.try_write(node) {
            tracing::warn!("the journals end here: {error}");
            self.files.clear();
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
