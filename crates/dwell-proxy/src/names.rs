//! Names of hosts and their addresses.

use std::io;
use std::net::SocketAddr;

use tokio::sync::Semaphore;

/// So many names are looked up at a time. Each takes a thread until the system's resolver has given up, whoever asked
/// for it may have gone long before, and connections need these threads too.
static TURNS: Semaphore = Semaphore::const_new(128);

/// Looks a name up, when it is its turn.
pub(crate) async fn look_up(name: String, port: u16) -> io::Result<Vec<SocketAddr>> {
    let turn = TURNS.acquire().await.map_err(io::Error::other)?;
    // It keeps its turn as long as its thread, also if nobody waits for it any more.
    let looking = tokio::spawn(async move {
        let _turn = turn;
        let found = tokio::net::lookup_host((name.as_str(), port)).await;
        found.map(|found| found.collect::<Vec<_>>())
    });
    looking.await.map_err(io::Error::other)?
}
