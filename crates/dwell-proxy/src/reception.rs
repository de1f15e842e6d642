//! Takes in connections that have not shown the key yet: who may be here, and for how long.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};

use crate::carrier::{Carrier, CarrierError};
use crate::handshakes::{Handshakes, Ticket};
use crate::hello::Hello;
use crate::security::Acceptor;

/// The longest time until a connection's first byte. Whoever connects speaks at once, and may lose
/// that twice.
const FIRST_BYTE_TIME: Duration = Duration::from_secs(3);
/// A full table is checked again this often: connections stall without anything happening.
const LOOK: Duration = Duration::from_millis(50);

/// Connections without a key, at most a given number.
#[derive(Debug)]
pub(crate) struct Reception {
    table: Mutex<Handshakes<oneshot::Sender<()>>>,
    freed: Notify,
}

/// A place for one connection.
#[derive(Debug)]
pub(crate) struct Admitted {
    ticket: Ticket,
    /// Fails when the place is given to somebody else.
    evicted: oneshot::Receiver<()>,
}

impl Reception {
    pub(crate) fn new(max: usize) -> Self {
        Self { table: Mutex::new(Handshakes::new(max)), freed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Handshakes<oneshot::Sender<()>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of connections that have not shown the key yet.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Finds a place for a connection; if need be that of another one, which ends. As long as all
    /// others make progress it waits, and so do those behind it, in the kernel's queue.
    pub(crate) async fn admit(&self, peer: SocketAddr) -> Admitted {
        let (mut alarm, evicted) = oneshot::channel();
        loop {
            let arrived = self.lock().arrive(Instant::now(), peer.ip(), alarm);
            match arrived {
                Ok((ticket, _)) => return Admitted { ticket, evicted },
                Err(back) => alarm = back,
            }
            let _ = tokio::time::timeout(LOOK, self.freed.notified()).await;
        }
    }

    /// The same without waiting: if all others make progress there is no place.
    pub(crate) fn try_admit(&self, peer: SocketAddr) -> Option<Admitted> {
        let (alarm, evicted) = oneshot::channel();
        let (ticket, _) = self.lock().arrive(Instant::now(), peer.ip(), alarm).ok()?;
        Some(Admitted { ticket, evicted })
    }

    /// Waits until a connection has shown the key, but no longer than `time`. An ingress whose program goes
    /// leaves in the middle of it: that is [`CarrierError::Left`] where the key was shown before.
    pub(crate) async fn welcome(
        &self,
        admitted: Admitted,
        tcp: TcpStream,
        peer: SocketAddr,
        tls: Option<Acceptor>,
        ours: &Hello,
        time: Duration,
    ) -> Result<Carrier, CarrierError> {
        let Admitted { ticket, evicted } = admitted;
        let mut place = Place { reception: self, ticket, has_key: false };
        let shaking = async {
            first_byte(&tcp, time.min(FIRST_BYTE_TIME)).await?;
            self.lock().spoke(Instant::now(), &place.ticket);
            Carrier::accept(tcp, peer, tls, ours, time).await
        };
        let accepted = tokio::select! {
            accepted = shaking => accepted,
            _ = evicted => Err(CarrierError::Evicted),
        };
        place.has_key = matches!(accepted, Ok(_) | Err(CarrierError::Left));
        match accepted {
            Err(error) if error.is_cut() && place.is_known() => Err(CarrierError::Left),
            accepted => accepted,
        }
    }
}

/// Gives a place back, however its connection ended.
struct Place<'a> {
    reception: &'a Reception,
    ticket: Ticket,
    has_key: bool,
}

impl Place<'_> {
    fn is_known(&self) -> bool {
        self.reception.lock().is_known(Instant::now(), &self.ticket)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.reception.lock().ended(Instant::now(), &self.ticket, self.has_key);
        self.reception.freed.notify_one();
    }
}

/// Until then nothing is allocated for a connection.
async fn first_byte(tcp: &TcpStream, time: Duration) -> Result<(), CarrierError> {
    let mut byte = [0];
    match tokio::time::timeout(time, tcp.peek(&mut byte)).await {
        Err(_) => Err(CarrierError::Expired),
        Ok(Ok(0)) => Err(CarrierError::Closed),
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    /// Full of a source's connections that have just come, after it has shown the key.
    fn full() -> (Reception, Vec<Admitted>) {
        let reception = Reception::new(2);
        let first = reception.try_admit(peer(1)).unwrap();
        drop(Place { reception: &reception, ticket: first.ticket, has_key: true });
        let admitted = [2, 3].map(|port| reception.try_admit(peer(port)).unwrap());
        (reception, admitted.into())
    }

    #[test]
    fn where_there_is_no_place_the_newcomer_is_refused_and_nobody_else() {
        let (reception, mut admitted) = full();
        assert!(reception.try_admit(peer(4)).is_none());
        for Admitted { evicted, .. } in &mut admitted {
            assert_eq!(evicted.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        }
        assert_eq!(reception.len(), 2);
        let Admitted { ticket, .. } = admitted.remove(0);
        drop(Place { reception: &reception, ticket, has_key: false });
        assert!(reception.try_admit(peer(4)).is_some());
    }
}
