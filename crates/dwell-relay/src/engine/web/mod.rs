//! A web page that shows the node live, with its past.
//!
//! A thread asks the relay's for the node's status every second, keeps what plots need of it, and wakes those
//! that watch. The relay's thread only makes the status; nothing else of this is its work. A page
//! is one document without anything from elsewhere, its data come as server-sent events.

mod access;
mod page;

use std::io;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dwell_base::time::SECOND_NS;
use dwell_confine::privilege;
use dwell_report::Status;
use dwell_report::live::{Range, Recorder};

use self::access::{Access, Verdict};
use self::page::{HEADERS, Page};
use super::http::{self, Answer, Client, PATIENCE, Request, Service};
use crate::config::WebConfig;
use crate::io::clock::Clock;
use crate::io::poller::Waker;

/// Readers that watch at the same time; others are sent away, and so always can ask.
const WATCHERS_MAX: usize = 8;
/// A watcher hears of this node at least so often, ...
const SILENCE: Duration = Duration::from_secs(5);
/// ... and connects again after this time.
const WATCH: Duration = Duration::from_secs(3_600);
const JSON: &str = "application/json";

/// The one who waits for a status.
type Wanted = SyncSender<Box<Status>>;

/// The relay's side.
#[derive(Debug)]
pub(super) struct WebServer {
    wanted: Receiver<Wanted>,
    shared: Arc<Shared>,
}

impl WebServer {
    /// Serves everybody who connects to `listener` and may.
    pub(super) fn start(
        listener: TcpListener,
        waker: Waker,
        config: WebConfig,
    ) -> io::Result<Self> {
        let (want, wanted) = channel();
        let shared = Arc::new(Shared {
            access: Access::new(config),
            page: Page::new(),
            state: Mutex::default(),
            changed: Condvar::new(),
            watched: AtomicBool::new(false),
        });
        let recording = Arc::clone(&shared);
        std::thread::Builder::new().name("dwell-web".into()).spawn(move || {
            if let Err(error) = privilege::give_up_all() {
                tracing::warn!("the thread for the web page keeps its privileges: {error}");
            }
            recording.record(&want, &waker);
        })?;
        http::serve(listener, "dwell-web", Site(Arc::clone(&shared)))?;
        Ok(Self { wanted, shared })
    }

    /// Returns true if somebody watches.
    pub(super) fn is_watched(&self) -> bool {
        self.shared.watched.load(Ordering::Relaxed)
    }

    /// Gives the status to who asked for it, if anybody did.
    pub(super) fn answer(&self, status: impl Fn() -> Status) {
        for client in self.wanted.try_iter() {
            // It may have lost patience.
            let _ = client.try_send(Box::new(status()));
        }
    }
}

/// What all threads share.
#[derive(Debug)]
struct Shared {
    access: Access,
    page: Page,
    state: Mutex<State>,
    changed: Condvar,
    /// Somebody watches; for the relay's thread, which waits for no lock.
    watched: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    recorder: Recorder,
    /// The latest message, and how many there were. Made only while somebody watches.
    message: Arc<str>,
    number: u64,
    watchers: usize,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the node every second, until it is gone.
    fn record(&self, want: &Sender<Wanted>, waker: &Waker) {
        let mut last_s = 0;
        loop {
            let into_second = Clock::unix_ns() % SECOND_NS;
            std::thread::sleep(Duration::from_nanos(SECOND_NS - into_second));
            let (give, given) = sync_channel(1);
            if want.send(give).is_err() {
                return;
            }
            waker.wake();
            // A relay that is too busy is asked again; the plot has a gap.
            let Ok(status) = given.recv_timeout(PATIENCE) else { continue };
            let now_s = Clock::unix_ns() / SECOND_NS;
            if now_s > last_s {
                self.take(&status, now_s);
            }
            last_s = now_s;
        }
    }

    fn take(&self, status: &Status, now_s: u64) {
        let mut state = self.state();
        let live = state.recorder.take(status, now_s);
        if state.watchers == 0 {
            return;
        }
        let json = serde_json::to_string(&live).unwrap_or_default();
        state.message = format!("data: {json}\n\n").into();
        state.number += 1;
        drop(state);
        self.changed.notify_all();
    }

    /// Returns the next message after that of this number, and its own. None if there was none for long.
    fn next(&self, seen: u64) -> Option<(u64, Arc<str>)> {
        let waiting = self.state();
        let is_old = |state: &mut State| state.number == seen;
        let waited = self.changed.wait_timeout_while(waiting, SILENCE, is_old);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (state.number != seen).then(|| (state.number, Arc::clone(&state.message)))
    }

    /// Sends the client a message a second.
    fn stream(&self, client: &Client) -> io::Result<()> {
        let Some(watcher) = Watcher::admit(self) else {
            let text = format!("{WATCHERS_MAX} are watching already\n");
            return client.send(&Answer {
                headers: HEADERS,
                ..Answer::text("503 Service Unavailable", &text)
            });
        };
        client.watches();
        client.write(
            format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{HEADERS}\
                 Connection: close\r\n\r\nretry: 2000\n\n"
            )
            .as_bytes(),
        )?;
        let (end, mut seen) = (Instant::now() + WATCH, watcher.seen);
        while Instant::now() < end {
            match self.next(seen) {
                Some((number, message)) => {
                    seen = number;
                    client.write(message.as_bytes())?;
                }
                None => client.write(b": still here\n\n")?,
            }
        }
        Ok(())
    }

    fn history(&self, client: &Client, request: &Request<'_>) -> io::Result<()> {
        let range = match request.parameter("range") {
            None => Some(Range::default()),
            Some(name) => Range::named(&name),
        };
        let peer = request.parameter("peer");
        let window = range.and_then(|range| self.state().recorder.window(peer.as_deref(), range));
        match window {
            Some(window) => {
                let body = serde_json::to_string(&window).unwrap_or_default();
                let answer = Answer::text("200 OK", &body);
                client.send(&Answer { content_type: JSON, headers: HEADERS, ..answer })
            }
            None => client.send(&Answer {
                headers: HEADERS,
                ..Answer::text("404 Not Found", "nothing is kept of that\n")
            }),
        }
    }
}

/// Somebody who watches, until dropped.
struct Watcher<'a> {
    shared: &'a Shared,
    seen: u64,
}

impl<'a> Watcher<'a> {
    fn admit(shared: &'a Shared) -> Option<Self> {
        let mut state = shared.state();
        if state.watchers >= WATCHERS_MAX {
            return None;
        }
        state.watchers += 1;
        shared.watched.store(true, Ordering::Relaxed);
        let seen = state.number;
        drop(state);
        Some(Self { shared, seen })
    }
}

impl Drop for Watcher<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.watchers -= 1;
        self.shared.watched.store(state.watchers > 0, Ordering::Relaxed);
    }
}

/// What is served.
#[derive(Clone, Debug)]
struct Site(Arc<Shared>);

impl Service for Site {
    fn answer(&self, client: &Client, request: &Request<'_>) -> io::Result<()> {
        let shared = &*self.0;
        let verdict = shared.access.verdict(request);
        if verdict == Verdict::WrongPassword {
            client.waits_for_refusal(access::PAUSE);
        }
        if verdict != Verdict::Granted {
            return refuse(client, verdict);
        }
        match request.path {
            "/" => client.send(&Answer {
                code: "200 OK",
                content_type: "text/html; charset=utf-8",
                headers: &shared.page.headers,
                body: &shared.page.document,
            }),
            "/live" => shared.stream(client),
            "/history" => shared.history(client, request),
            _ => client.send(&Answer {
                headers: HEADERS,
                ..Answer::text("404 Not Found", "the page is at /\n")
            }),
        }
    }
}

fn refuse(client: &Client, verdict: Verdict) -> io::Result<()> {
    let (code, body, ask) = match verdict {
        Verdict::Unauthorized | Verdict::WrongPassword | Verdict::Granted => (
            "401 Unauthorized",
            "this page has a password\n",
            "WWW-Authenticate: Basic realm=\"dwell\", charset=\"UTF-8\"\r\n",
        ),
        Verdict::WrongHost => (
            "403 Forbidden",
            "this host is not known by that name: ask by its address, or name it in hosts under [web]\n",
            "",
        ),
        Verdict::CrossSite => ("403 Forbidden", "pages of other sites may not read this\n", ""),
    };
    let headers = format!("{ask}{HEADERS}");
    client.send(&Answer { headers: &headers, ..Answer::text(code, body) })
}

#[cfg(test)]
mod tests;
