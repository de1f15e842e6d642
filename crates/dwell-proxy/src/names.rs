//! Names of hosts and their addresses.

use std::io;
use std::net::SocketAddr;

use tokio::sync::Semaphore;

/// So many names are looked up at a time. Each takes a thread until the system's resolver has given up, whoever asked
/// for it may have gone long before, and connections need these threads too.
static TURNS: Semaphore = Semaphore::const_new(128);

/// Looks a name up, when it is its turn.
pub(crate) async fn look_up(name: String, port: u16) -> io::Result<Vec<SocketAddr>> {
    let looking = async move {
        let found = tokio::net::lookup_host((name.as_str(), port)).await;
        found.map(|found| found.collect::<Vec<_>>())
    };
    in_turn(&TURNS, looking).await?
}

/// Does something when it is its turn. It keeps the turn as long as it takes, also if nobody waits for it any more.
async fn in_turn<T: Send + 'static>(
    turns: &'static Semaphore,
    looking: impl Future<Output = T> + Send + 'static,
) -> io::Result<T> {
    let turn = turns.acquire().await.map_err(io::Error::other)?;
    let looking = tokio::spawn(async move {
        let found = looking.await;
        drop(turn);
        found
    });
    looking.await.map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn who_has_gone_keeps_its_turn_until_the_resolver_is_done() {
        static TURNS: Semaphore = Semaphore::const_new(2);
        let (answers, mut asked) = (oneshot::channel(), Vec::new());
        let (first, gone) = answers;
        asked.push(tokio::spawn(in_turn(&TURNS, async { gone.await.is_ok() })));
        let (second, waits) = oneshot::channel();
        asked.push(tokio::spawn(in_turn(&TURNS, async { waits.await.is_ok() })));
        while TURNS.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        // Nobody waits for them any more, and still there are no more than two.
        asked.iter().for_each(tokio::task::JoinHandle::abort);
        for task in asked {
            assert!(task.await.unwrap_err().is_cancelled());
        }
        let mut third = std::pin::pin!(in_turn(&TURNS, async {}));
        assert!(tokio::time::timeout(Duration::from_millis(50), third.as_mut()).await.is_err());
        first.send(()).unwrap();
        third.await.unwrap();
        assert_eq!(TURNS.available_permits(), 1);
        second.send(()).unwrap();
        let _both = TURNS.acquire_many(2).await.unwrap();
    }

    #[tokio::test]
    async fn a_name_has_addresses_with_the_port() {
        let found = look_up("localhost".to_owned(), 7).await.unwrap();
        assert!(!found.is_empty());
        assert!(found.iter().all(|at| at.ip().is_loopback() && at.port() == 7), "{found:?}");
        assert!(look_up("nobody.invalid".to_owned(), 7).await.is_err());
    }
}
