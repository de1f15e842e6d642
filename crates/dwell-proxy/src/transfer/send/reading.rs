//! The thread that reads what is sent.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as blocking;
use std::thread;

use tokio::sync::mpsc;

use crate::transfer::PIECES_MAX;
use crate::transfer::blocks::Have;
use crate::transfer::count::Count;
use crate::transfer::repeats::Finder;
use crate::transfer::source::{Outlet, Recorder, Sent, Source, Stop};

/// What the thread that reads has made. At the end what became of it, or why it does not go on.
pub(super) enum Piece {
    Bytes(Vec<u8>),
    End(Sent),
    Failed(Stop),
}

/// The thread that reads.
pub(super) struct Reading {
    pub(super) pieces: mpsc::Receiver<Piece>,
    /// Where the buffers of pieces go back to it.
    pub(super) used: blocking::SyncSender<Vec<u8>>,
    /// Where the receiver's answers go; none if nothing is asked.
    pub(super) answers: Option<blocking::SyncSender<Have>>,
    pub(super) count: Arc<Count>,
}

/// Hands pieces over to those who send them.
struct Pieces {
    to: mpsc::Sender<Piece>,
    /// The buffers of those that were sent.
    spare: blocking::Receiver<Vec<u8>>,
    /// The part of the last ones, about [`PIECES_REMEMBERED`], for which there was no room at once.
    held_up: f64,
    link_is_fast: Arc<AtomicBool>,
}

/// So many pieces say whether a link holds them up.
const PIECES_REMEMBERED: f64 = 32.0;

impl Outlet for Pieces {
    fn put(&mut self, piece: Vec<u8>) -> bool {
        let is_held_up = f64::from(u8::from(self.to.capacity() == 0));
        self.held_up += (is_held_up - self.held_up) / PIECES_REMEMBERED;
        self.to.blocking_send(Piece::Bytes(piece)).is_ok()
    }

    fn buffer(&mut self) -> Vec<u8> {
        self.spare.try_recv().unwrap_or_default()
    }

    fn is_waiting(&self) -> bool {
        // A link holds up nearly all of them. Threads that share the processors hold each other up now and then.
        self.link_is_fast.load(Ordering::Relaxed) && self.held_up < 0.5
    }
}

/// Reads and hashes on a thread of its own, as reading may take any time.
pub(super) fn read_aside(
    source: Source,
    answers: Option<blocking::Receiver<Have>>,
    is_quick: bool,
    (finder, link_is_fast): (Option<Finder>, Arc<AtomicBool>),
    count: Arc<Count>,
) -> io::Result<(mpsc::Receiver<Piece>, blocking::SyncSender<Vec<u8>>)> {
    let (to, receiver) = mpsc::channel(PIECES_MAX);
    let (used, spare) = blocking::sync_channel(PIECES_MAX);
    let read = move || {
        let mut outlet = Pieces { to, spare, held_up: 1.0, link_is_fast };
        let made = Recorder::new(answers, is_quick, finder, &mut outlet, count).run(source);
        // Nobody waits for it if the transfer has failed.
        let _ = outlet.to.blocking_send(match made {
            Ok(sent) => Piece::End(sent),
            Err(stop) => Piece::Failed(stop),
        });
    };
    thread::Builder::new().name("dwell-read".to_owned()).spawn(read)?;
    Ok((receiver, used))
}
