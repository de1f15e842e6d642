//! A program at the ingress, before its stream is open.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::TcpStream;

use crate::local::reset_on_close;
use crate::proxy_header::{self, HEADER_BYTES_MAX};
use crate::socks::{CLIENT_BYTES_MAX, Negotiation, SocksStep, Users};
use crate::target::Target;

/// What a program sends before its stream is open goes with the request for it, up to so many bytes.
const EARLY_BYTES_MAX: usize = 16 << 10;

/// A program that wants a stream.
pub(crate) struct Client {
    pub(crate) local: TcpStream,
    /// Its address.
    pub(crate) from: SocketAddr,
    /// The address that it has connected to.
    pub(crate) listener: SocketAddr,
    /// The name that it has shown to SOCKS.
    pub(crate) user: Option<Vec<u8>>,
    /// What it has sent already.
    pub(crate) early: Vec<u8>,
    /// True if it has no more.
    pub(crate) has_ended: bool,
    /// True if it has reset its connection. The socket says that once: who reads it must not lose it, or the
    /// stream would take the cut for an end.
    pub(crate) has_reset: bool,
    /// True if some of that has been sent to the egress, which may have acted on it.
    pub(crate) is_committed: bool,
}

/// What a SOCKS client wants.
pub(crate) enum Wish {
    Stream(Target),
    /// To send datagrams, and from where if it has said so.
    Datagrams(Option<SocketAddr>),
}

impl Client {
    /// A program that has connected to the address `listener`, and sent nothing yet.
    pub(crate) fn new(local: TcpStream, from: SocketAddr, listener: SocketAddr) -> Self {
        Self {
            local,
            from,
            listener,
            user: None,
            early: Vec::new(),
            has_ended: false,
            has_reset: false,
            is_committed: false,
        }
    }

    /// Reads what has come, as much as may be held before the stream is open.
    pub(crate) fn read_now(&mut self) {
        let mut piece = [0; 4096];
        while self.reads_early() {
            let room = (EARLY_BYTES_MAX - self.early.len()).min(piece.len());
            match self.local.try_read(&mut piece[..room]) {
                Ok(0) => self.has_ended = true,
                Ok(len) => self.early.extend_from_slice(&piece[..len]),
                Err(error) => {
                    self.has_reset = error.kind() != io::ErrorKind::WouldBlock;
                    return;
                }
            }
        }
    }

    pub(crate) fn reads_early(&self) -> bool {
        !self.has_ended && !self.has_reset && self.early.len() < EARLY_BYTES_MAX
    }
}

/// Until a program has reset its connection. (Its end may be that of its request.)
pub(crate) async fn is_gone(local: &TcpStream) {
    if local.ready(Interest::ERROR).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Reads more of what a client says before its stream. `max` is the longest that makes sense.
async fn read_more(client: &mut Client, max: usize) -> Result<(), String> {
    let mut piece = [0; 512];
    let room = max.saturating_sub(client.early.len()).clamp(1, piece.len());
    let len = client.local.read(&mut piece[..room]).await.map_err(|error| error.to_string())?;
    if len == 0 {
        return Err("it went away".to_owned());
    }
    client.early.extend_from_slice(&piece[..len]);
    Ok(())
}

/// Reads for whom a connection is.
pub(crate) async fn read_proxy_header(client: &mut Client) -> Result<(), String> {
    loop {
        if let Some((ends, used)) =
            proxy_header::decode(&client.early).map_err(|error| error.to_string())?
        {
            client.early.drain(..used);
            if let Some((from, listener)) = ends {
                (client.from, client.listener) = (from, listener);
            }
            return Ok(());
        }
        read_more(client, HEADER_BYTES_MAX).await?;
    }
}

/// Asks a SOCKS client where it wants to go. What it has sent beyond that belongs to
/// the stream.
pub(crate) async fn negotiate(client: &mut Client, users: &Users) -> Result<Wish, String> {
    let mut negotiation = Negotiation::new(users);
    loop {
        match negotiation.step(&mut client.early) {
            SocksStep::Connect(target) => {
                client.user = negotiation.into_user();
                return Ok(Wish::Stream(target));
            }
            SocksStep::Associate(from) => return Ok(Wish::Datagrams(from)),
            SocksStep::Say(bytes) => {
                client.local.write_all(&bytes).await.map_err(|error| error.to_string())?;
            }
            SocksStep::Refuse(bytes, why) => {
                // It may be gone already.
                let _ = client.local.write_all(&bytes).await;
                return Err(why.to_string());
            }
            SocksStep::More => read_more(client, CLIENT_BYTES_MAX).await?,
        }
    }
}

/// Closes so that what was written last still arrives: without a reset, and after the client has
/// had a moment to read.
pub(crate) async fn close_politely(mut local: TcpStream) {
    const MOMENT: Duration = Duration::from_secs(1);
    if reset_on_close(&local, false).is_err() || local.shutdown().await.is_err() {
        return;
    }
    // Closing with something unread would reset.
    let mut sink = [0; 512];
    let reading = async { while matches!(local.read(&mut sink).await, Ok(1..)) {} };
    let _ = tokio::time::timeout(MOMENT, reading).await;
}
