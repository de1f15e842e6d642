use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};

use dwell_report::status::{EventStatus, PeerState, PeerStatus, ProblemStatus};

use super::super::http::CLIENTS_MAX;
use super::*;
use crate::config::WebPassword;

const NAME: &str = "</script><script>alert(1)</script>";

/// A node that is busy all the time.
fn status(asked: u64) -> Status {
    let mut peer = PeerStatus { name: NAME.to_owned(), ..PeerStatus::default() };
    peer.state = PeerState::Up;
    peer.tx.arrived.bytes = asked * 250_000;
    peer.tx.link_bytes = asked * 125_000;
    peer.problems = vec![ProblemStatus {
        problem: "path_mtu".to_owned(),
        why: "Too long.".to_owned(),
        remedy: "Shorter.".to_owned(),
        for_ns: 5,
    }];
    let text = "hub is up".to_owned();
    let event = EventStatus { kind: "up".to_owned(), text, ..EventStatus::default() };
    Status {
        name: "site-a".to_owned(),
        uptime_ns: asked * SECOND_NS,
        peers: vec![peer],
        events: vec![event],
        ..Status::default()
    }
}

/// A page that is served, and where.
fn page(password: Option<&str>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let password = password.map(|text| WebPassword::new(text).unwrap());
    let config = WebConfig { listen: address, password, hosts: Vec::new() };
    let server = WebServer::start(listener, Waker::new().unwrap(), config).unwrap();
    std::thread::spawn(move || {
        let asked = AtomicU64::new(1);
        loop {
            server.answer(|| status(asked.fetch_add(1, Ordering::Relaxed)));
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    address
}

fn connect(address: SocketAddr, path: &str, headers: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

fn ask(address: SocketAddr, path: &str, headers: &str) -> String {
    let mut text = String::new();
    connect(address, path, headers).read_to_string(&mut text).unwrap();
    text
}

/// The first message of a stream.
fn message(stream: TcpStream) -> serde_json::Value {
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    let mut data = lines.filter_map(|line| line.strip_prefix("data: ").map(str::to_owned));
    serde_json::from_str(&data.next().unwrap()).unwrap()
}

#[test]
fn a_reader_gets_the_page_the_past_and_the_present() {
    let address = page(None);
    let document = ask(address, "/", "");
    assert!(document.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/html"), "{document}");
    assert!(document.contains("Content-Security-Policy: default-src 'none'"));
    assert!(document.trim_end().ends_with("</html>"));
    let live = message(connect(address, "/live", ""));
    assert_eq!(live["node"], "site-a");
    assert_eq!(live["peers"][0]["name"], NAME);
    assert_eq!(live["peers"][0]["problems"][0]["remedy"], "Shorter.");
    assert_eq!(live["events"][0]["text"], "hub is up");
    for (path, code) in [
        ("/history", "200"),
        ("/history?range=1h", "200"),
        ("/history?range=1d&peer=%3C%2Fscript%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E", "200"),
        ("/history?range=for-ever", "404"),
        ("/history?peer=nobody", "404"),
        ("/metrics", "404"),
        ("//", "404"),
        ("/../etc/passwd", "404"),
    ] {
        let answer = ask(address, path, "");
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{path}: {answer}");
        assert!(answer.contains("X-Content-Type-Options: nosniff\r\n"), "{path}: {answer}");
    }
    let history = ask(address, "/history?range=5m", "");
    let (_, body) = history.split_once("\r\n\r\n").unwrap();
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["series"]["link_bps"].as_array().unwrap().len(), 300);
}

#[test]
fn without_the_password_there_is_nothing() {
    let address = page(Some("correct horse"));
    // dwell:correct horse, dwell:wrong horse
    let right = "Authorization: Basic ZHdlbGw6Y29ycmVjdCBob3JzZQ==\r\n";
    let wrong = "Authorization: Basic ZHdlbGw6d3JvbmcgaG9yc2U=\r\n";
    for path in ["/", "/live", "/history", "/nothing"] {
        for headers in ["", wrong] {
            let answer = ask(address, path, headers);
            assert!(answer.starts_with("HTTP/1.1 401 "), "{path}: {answer}");
            assert!(answer.contains("\r\nWWW-Authenticate: Basic "), "{answer}");
            assert!(answer.ends_with("\r\n\r\nthis page has a password\n"), "{answer}");
        }
    }
    assert!(ask(address, "/", right).starts_with("HTTP/1.1 200 "));
    assert_eq!(message(connect(address, "/live", right))["node"], "site-a");
    let rebound = "GET / HTTP/1.1\r\nHost: evil.example\r\n";
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("{rebound}{right}\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 403 "), "{text}");
}

#[test]
fn wrong_passwords_keep_out_nobody_who_knows_it() {
    let address = page(Some("correct horse"));
    let right = "Authorization: Basic ZHdlbGw6Y29ycmVjdCBob3JzZQ==\r\n";
    let wrong = "Authorization: Basic ZHdlbGw6d3JvbmcgaG9yc2U=\r\n";
    let mut watching = BufReader::new(connect(address, "/live", right));
    let mut head = String::new();
    watching.read_line(&mut head).unwrap();
    assert_eq!(head, "HTTP/1.1 200 OK\r\n");
    // More than there are places for, before each that is right and after it.
    for _ in 0..3 {
        let before: Vec<_> = (0..CLIENTS_MAX).map(|_| connect(address, "/", wrong)).collect();
        let mut asks = connect(address, "/", right);
        let after: Vec<_> = (0..CLIENTS_MAX / 2).map(|_| connect(address, "/", wrong)).collect();
        let mut text = String::new();
        asks.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
        drop((before, after));
    }
    assert_eq!(message(watching.into_inner())["node"], "site-a");
}

#[test]
fn those_who_watch_are_few_and_hold_up_nobody() {
    let address = page(None);
    let watchers: Vec<_> =
        (0..WATCHERS_MAX).map(|_| BufReader::new(connect(address, "/live", ""))).collect();
    let mut heads = Vec::new();
    for mut watcher in watchers {
        let mut head = String::new();
        watcher.read_line(&mut head).unwrap();
        assert_eq!(head, "HTTP/1.1 200 OK\r\n");
        heads.push(watcher);
    }
    let answer = ask(address, "/live", "");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    // Clients that say nothing don't drive out those that watch.
    let silent: Vec<_> =
        (0..2 * CLIENTS_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert!(ask(address, "/", "").starts_with("HTTP/1.1 200 "));
    for watcher in &mut heads {
        let data = watcher.lines().map_while(Result::ok).find(|line| line.starts_with("data: "));
        assert!(data.is_some());
    }
    drop(silent);
    drop(heads);
    // Who leaves makes room for others.
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let mut head = String::new();
        BufReader::new(connect(address, "/live", "")).read_line(&mut head).unwrap();
        if head == "HTTP/1.1 200 OK\r\n" {
            return;
        }
        assert!(Instant::now() < end, "there never is room again");
        std::thread::sleep(Duration::from_millis(50));
    }
}
