//! The log in systemd's journal, with fields that can be asked for.
//!
//! systemd says in `JOURNAL_STREAM` that standard error is a stream of its journal. Then events go to the journal's own
//! socket in its native protocol instead (systemd: Native Journal Protocol): the message as it would be on standard
//! error, its priority, and what it is about. As there, nobody waits for it: what is not taken at once is left out, counted, and
//! reported when there is room again.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

const SOCKET: &str = "/run/systemd/journal/socket";
const VARIABLE: &str = "JOURNAL_STREAM";
const IDENTIFIER: &str = "dwell";
/// Before the names of fields, so that they are nobody else's.
const PREFIX: &str = "DWELL_";
/// Longer values are cut: a datagram must take all of them.
const VALUE_BYTES_MAX: usize = 16 << 10;

/// The journal.
#[derive(Debug)]
pub(super) struct Journal {
    socket: UnixDatagram,
    at: PathBuf,
    /// Events that were left out since the last one that was not.
    missed: AtomicU64,
}

impl Journal {
    /// Finds the journal, if standard error is one of its streams.
    pub(super) fn of_service() -> Option<Self> {
        let stream = std::env::var(VARIABLE).ok()?;
        let error = File::from(io::stderr().as_fd().try_clone_to_owned().ok()?);
        let metadata = error.metadata().ok()?;
        is_stream(&stream, &metadata).then(|| Self::at(Path::new(SOCKET)).ok())?
    }

    fn at(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        let journal = Self { socket, at: path.to_owned(), missed: AtomicU64::new(0) };
        // Nothing is noted by this; but whether anybody listens shows.
        journal.socket.send_to(b"", path)?;
        Ok(journal)
    }

    fn send(&self, entry: &Entry) -> bool {
        self.socket.send_to(&entry.0, &self.at).is_ok()
    }

    fn note(&self, entry: &Entry) {
        let missed = self.missed.load(Ordering::Relaxed);
        if missed > 0 {
            let mut note = Entry::new(Level::WARN);
            note.field("MESSAGE", &format!("{missed} events could not be written to the journal"));
            if !self.send(&note) {
                self.missed.fetch_add(1, Ordering::Relaxed);
                return;
            }
            self.missed.fetch_sub(missed, Ordering::Relaxed);
        }
        if !self.send(entry) {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut entry = Entry::new(*event.metadata().level());
        entry.field("TARGET", event.metadata().target());
        event.record(&mut entry);
        self.note(&entry);
    }
}

/// Returns true if the variable names this file.
fn is_stream(variable: &str, metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    variable == format!("{}:{}", metadata.dev(), metadata.ino())
}

/// An entry of the journal as it is sent.
struct Entry(Vec<u8>);

impl Entry {
    fn new(level: Level) -> Self {
        let mut entry = Self(Vec::with_capacity(512));
        entry.field("PRIORITY", priority(level));
        entry.field("SYSLOG_IDENTIFIER", IDENTIFIER);
        entry
    }

    /// Adds a field. A value of several lines has its length before it.
    fn field(&mut self, name: &str, value: &str) {
        let value = &value.as_bytes()[..value.len().min(VALUE_BYTES_MAX)];
        self.0.extend(name.as_bytes());
        if value.contains(&b'\n') {
            self.0.push(b'\n');
            self.0.extend((value.len() as u64).to_le_bytes());
        } else {
            self.0.push(b'=');
        }
        self.0.extend(value);
        self.0.push(b'\n');
    }
}

/// Syslog's number of a level.
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        Level::DEBUG | Level::TRACE => "7",
    }
}

impl Visit for Entry {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.field("MESSAGE", value),
            name => self.field(&(PREFIX.to_owned() + &name.to_ascii_uppercase()), value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        // A value that can't be written is left out.
        if write!(text, "{value:?}").is_ok() {
            self.record_str(field, &text);
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    struct Receiver(UnixDatagram, PathBuf);

    impl Receiver {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("dwell-{name}-{}", std::process::id()));
            let _ = std::fs::remove_file(&path);
            let socket = UnixDatagram::bind(&path).unwrap();
            socket.set_nonblocking(true).unwrap();
            Self(socket, path)
        }

        /// The next entry; none if there is none.
        fn next(&self) -> Option<Vec<u8>> {
            let mut bytes = vec![0; 64 << 10];
            let len = self.0.recv(&mut bytes).ok()?;
            bytes.truncate(len);
            Some(bytes)
        }
    }

    impl Drop for Receiver {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.1);
        }
    }

    #[test]
    fn events_have_fields_that_can_be_asked_for() {
        let receiver = Receiver::new("journal-fields");
        let journal = Journal::at(&receiver.1).unwrap();
        assert_eq!(receiver.next().unwrap(), b"");
        tracing::subscriber::with_default(tracing_subscriber::registry().with(journal), || {
            let name = "site-b";
            tracing::warn!(peer = name, problem = "no_answer", "{name}: nothing comes back");
            tracing::info!(lines = "one\ntwo", "stopped");
        });
        let text = String::from_utf8(receiver.next().unwrap()).unwrap();
        assert_eq!(
            text.lines().filter(|line| !line.starts_with("TARGET=")).collect::<Vec<_>>(),
            [
                "PRIORITY=4",
                "SYSLOG_IDENTIFIER=dwell",
                "MESSAGE=site-b: nothing comes back",
                "DWELL_PEER=site-b",
                "DWELL_PROBLEM=no_answer",
            ]
        );
        let entry = receiver.next().unwrap();
        let lines = b"DWELL_LINES\n\x07\0\0\0\0\0\0\0one\ntwo\n";
        assert!(entry.windows(lines.len()).any(|part| part == lines), "{entry:?}");
        assert!(entry.starts_with(b"PRIORITY=6\n"));
    }

    #[test]
    fn a_journal_that_takes_nothing_holds_nobody_up() {
        let receiver = Receiver::new("journal-full");
        let journal = Journal::at(&receiver.1).unwrap();
        let entry = |number: u64| {
            let mut entry = Entry::new(Level::INFO);
            entry.field("MESSAGE", &format!("event {number} {}", "x".repeat(8_000)));
            entry
        };
        // More than any queue of datagrams takes.
        for number in 0..5_000 {
            journal.note(&entry(number));
        }
        assert!(journal.missed.load(Ordering::Relaxed) > 1_000);
        while receiver.next().is_some() {}
        journal.note(&entry(5_000));
        let said = String::from_utf8(receiver.next().unwrap()).unwrap();
        assert!(said.contains("events could not be written to the journal"), "{said}");
        assert!(receiver.next().unwrap().starts_with(b"PRIORITY=6"));
        assert_eq!(journal.missed.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_stream_of_the_journal_is_known_by_its_number() {
        use std::os::unix::fs::MetadataExt as _;
        let metadata = std::fs::metadata(std::env::temp_dir()).unwrap();
        let (dev, ino) = (metadata.dev(), metadata.ino());
        assert!(is_stream(&format!("{dev}:{ino}"), &metadata));
        assert!(!is_stream(&format!("{dev}:{}", ino + 1), &metadata) && !is_stream("", &metadata));
    }
}
