//! A log that nobody has to wait for, and that nobody dies of.
//!
//! The thread that carries packets is also the one that logs. A pipe that is not read any more,
//! a disk that is full or a terminal that was stopped must not stop it: what is not taken at once
//! is left out, counted, and reported when there is room again.

use std::io::{self, Write};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// A pipe that says that it is writable takes this much without blocking. A terminal says it as soon as
/// it takes anything: one that was stopped says no, but a pseudo-terminal whose other end is open and
/// not read can hold up the line that fills it. Services log to pipes, sockets and files.
const PIECE_BYTES: usize = 4096;

/// Writes lines to a descriptor if it takes them at once. Writing never fails.
#[derive(Debug)]
pub(crate) struct Unblocking<W> {
    out: W,
    /// Lines that were left out, or cut, since the last one that was not.
    missed: u64,
    /// The last one was cut.
    is_torn: bool,
}

impl<W: AsFd> Unblocking<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, missed: 0, is_torn: false }
    }

    /// Writes all of it, or says how much.
    fn put(&self, bytes: &[u8]) -> Result<(), usize> {
        let mut done = 0;
        while done < bytes.len() {
            let piece = &bytes[done..bytes.len().min(done + PIECE_BYTES)];
            if !self.takes_more() {
                return Err(done);
            }
            match rustix::io::write(&self.out, piece) {
                Ok(0) => return Err(done),
                Ok(len) => done += len,
                Err(Errno::INTR) => {}
                Err(_) => return Err(done),
            }
        }
        Ok(())
    }

    fn takes_more(&self) -> bool {
        let mut fds = [PollFd::new(&self.out, PollFlags::OUT)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().contains(PollFlags::OUT)
    }

    fn line(&mut self, line: &[u8]) {
        if self.missed > 0 {
            let before = if self.is_torn { "\n" } else { "" };
            let note = format!("{before}{} lines could not be written\n", self.missed);
            if let Err(done) = self.put(note.as_bytes()) {
                self.missed += 1;
                self.is_torn |= done > 0;
                return;
            }
        }
        match self.put(line) {
            Ok(()) => (self.missed, self.is_torn) = (0, false),
            Err(done) => {
                // What was reported of earlier ones is not reported again.
                self.missed = 1;
                self.is_torn = done > 0;
            }
        }
    }
}

impl<W: AsFd> Write for Unblocking<W> {
    /// Takes a line, or several.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.line(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_pipe_that_nobody_reads_holds_nobody_up_and_says_later_what_is_missing() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut log = Unblocking::new(writer);
        // More than a pipe holds, in lines of which none ends where its pages do.
        for number in 0..3_000 {
            log.write_all(format!("line {number}: {}\n", "x".repeat(90)).as_bytes()).unwrap();
        }
        assert!(log.missed > 1_000, "{} lines", log.missed);
        let mut taken = vec![0; 1 << 20];
        let len = reader.read(&mut taken).unwrap();
        log.write_all(b"the last line\n").unwrap();
        drop(log);
        taken.truncate(len);
        reader.read_to_end(&mut taken).unwrap();
        let text = String::from_utf8(taken).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let whole = lines.iter().filter(|line| line.ends_with(&"x".repeat(90))).count();
        let missing = lines[lines.len() - 2].strip_suffix(" lines could not be written");
        assert_eq!(missing.and_then(|count| count.parse().ok()), Some(3_000 - whole));
        assert_eq!(lines[lines.len() - 1], "the last line");
    }

    #[test]
    fn a_pipe_that_was_closed_and_a_full_disk_are_no_errors() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut log = Unblocking::new(writer);
        assert!(log.write_all(b"into nothing\n").is_ok());
        assert_eq!(log.missed, 1);
        let Ok(full) = File::options().write(true).open("/dev/full") else { return };
        let mut log = Unblocking::new(full);
        for _ in 0..3 {
            assert!(log.write_all(b"no room\n").is_ok());
        }
        assert_eq!((log.missed, log.is_torn), (3, false));
    }

    #[test]
    fn a_file_has_every_line() {
        let path = std::env::temp_dir().join(format!("dwell-log-{}", std::process::id()));
        let mut log = Unblocking::new(File::create(&path).unwrap());
        let long = "y".repeat(3 * PIECE_BYTES);
        log.write_all(b"one\n").unwrap();
        log.write_all(format!("{long}\n").as_bytes()).unwrap();
        drop(log);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("one\n{long}\n"));
        std::fs::remove_file(&path).unwrap();
    }
}
