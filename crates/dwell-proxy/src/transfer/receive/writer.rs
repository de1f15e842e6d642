//! The thread that writes what comes, and who hands it over.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Interval, MissedTickBehavior};

use super::{ANSWERS_MAX, FAREWELL, Failure};
use crate::carrier::Carrier;
use crate::message::Message;
use crate::transfer::blocks::Have;
use crate::transfer::count::Count;
use crate::transfer::sink::{Kept, Received, Sink, SinkError};
use crate::transfer::{PIECES_MAX, PULSE, Progress, Summary, TransferError};

/// A piece of the stream; at the end the sign of who waits to know that all is in its place.
pub(super) enum Piece {
    Bytes(Vec<u8>),
    End(oneshot::Sender<()>),
}

/// What became of the thread that writes.
pub(super) enum Outcome {
    Complete(Received),
    Failed(SinkError, Option<Kept>),
    /// Nobody waited for the end.
    Abandoned(Option<Kept>),
}

pub(super) enum GaveUp {
    /// It was in its place already.
    Complete(Box<Summary>),
    Left(Option<Kept>),
}

/// A thread that writes and hashes, as writing may take any time.
pub(super) struct Writer {
    pieces: mpsc::Sender<Piece>,
    /// The buffers of those that were written.
    pub(super) spare: mpsc::Receiver<Vec<u8>>,
    pub(super) answers: mpsc::Receiver<Have>,
    pub(super) outcome: Option<oneshot::Receiver<Outcome>>,
    /// What came of it, if that was asked for already.
    pub(super) ended: Option<Outcome>,
    pub(super) count: Arc<Count>,
    pub(super) link_bytes: u64,
    pub(super) progress: Option<Progress>,
    /// When the sender is to hear next that somebody is there.
    pub(super) pulse: Interval,
}

impl Writer {
    pub(super) fn start(sink: Sink, count: Arc<Count>) -> io::Result<Self> {
        let (pieces, mut receiver) = mpsc::channel(PIECES_MAX);
        let (used, spare) = mpsc::channel(PIECES_MAX);
        let (answer, answers) = mpsc::channel(ANSWERS_MAX);
        let (ended, outcome) = oneshot::channel();
        let work = move || {
            // Nobody asks if all went well.
            let _ = ended.send(write(sink, &mut receiver, &used, &answer));
        };
        thread::Builder::new().name("dwell-write".to_owned()).spawn(work)?;
        let (outcome, link_bytes) = (Some(outcome), 0);
        let mut pulse = tokio::time::interval_at(tokio::time::Instant::now() + PULSE, PULSE);
        pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (ended, progress) = (None, None);
        Ok(Self { pieces, spare, answers, outcome, ended, count, link_bytes, progress, pulse })
    }

    /// Hands it a piece, and what it answers meanwhile to the sender.
    pub(super) async fn write(
        &mut self,
        carrier: &mut Carrier,
        piece: Piece,
    ) -> Result<(), Failure> {
        let permit = loop {
            tokio::select! {
                biased;
                Some(have) = self.answers.recv() => carrier.say(&Message::Have(have)).await?,
                _ = self.pulse.tick() => carrier.say(&Message::Alive).await?,
                permit = self.pieces.reserve() => break permit.map_err(|_| Failure::Writer)?,
            }
        };
        permit.send(piece);
        Ok(())
    }

    pub(super) async fn outcome(&mut self) -> Option<Outcome> {
        if let Some(ended) = self.ended.take() {
            return Some(ended);
        }
        self.outcome.take()?.await.ok()
    }

    pub(super) fn summary(&self, received: Received) -> Summary {
        let nothing = Progress {
            bytes: 0,
            reused_bytes: 0,
            link_bytes: 0,
            total: None,
            elapsed: Duration::ZERO,
        };
        Summary {
            name: received.name,
            files: received.files,
            progress: self.progress.unwrap_or(nothing),
            blake3: received.blake3,
            left_out: received.left_out,
            remarks: received.remarks,
            left_out_there: 0,
            kept: received.kept,
            basis_bytes: received.basis_bytes,
        }
    }

    /// Why it has ended before the end.
    pub(super) async fn error(&mut self) -> TransferError {
        match self.outcome().await {
            Some(Outcome::Failed(error, kept)) => {
                self.ended = Some(Outcome::Abandoned(kept));
                match error {
                    SinkError::Write { what, error } => TransferError::Write { what, error },
                    SinkError::Refused(why) => TransferError::NoPlace(why),
                    SinkError::Differs(_) => TransferError::Differs(error.to_string()),
                    other => TransferError::Malformed(other.to_string()),
                }
            }
            other => {
                self.ended = other;
                let why = "what writes it has come to an end of its own";
                TransferError::Connection(why.to_owned())
            }
        }
    }

    /// Ends it before it was reported the end, or at least before it has said what came of that. All may be
    /// in its place already, and then that is reported.
    pub(super) async fn give_up(mut self) -> GaveUp {
        // Without its sender it ends.
        drop(std::mem::replace(&mut self.pieces, mpsc::channel(1).0));
        self.answers.close();
        match tokio::time::timeout(FAREWELL, self.outcome()).await {
            Ok(Some(Outcome::Complete(received))) => {
                GaveUp::Complete(Box::new(self.summary(received)))
            }
            Ok(Some(Outcome::Failed(_, kept) | Outcome::Abandoned(kept))) => GaveUp::Left(kept),
            // It does not come to an end: the disk does not answer.
            Ok(None) | Err(_) => GaveUp::Left(None),
        }
    }
}

fn write(
    mut sink: Sink,
    pieces: &mut mpsc::Receiver<Piece>,
    used: &mpsc::Sender<Vec<u8>>,
    answers: &mpsc::Sender<Have>,
) -> Outcome {
    sink.answer_to(answers.clone());
    while let Some(piece) = pieces.blocking_recv() {
        let result = match piece {
            Piece::Bytes(bytes) => {
                let taken = sink.take(&bytes, &mut |have| answers.blocking_send(have).is_ok());
                // Enough of them are there if there is no room.
                let _ = used.try_send(bytes);
                taken.map(|()| None)
            }
            Piece::End(awaited) => sink.finish(|| !awaited.is_closed()).map(Some),
        };
        match result {
            Ok(None) => {}
            Ok(Some(received)) => return Outcome::Complete(received),
            Err(error) => {
                let kept = sink.give_up();
                return Outcome::Failed(error, kept);
            }
        }
    }
    Outcome::Abandoned(sink.give_up())
}
