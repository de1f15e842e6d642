//! The web page of a relay: what leaves it, and what a browser makes of it.

mod flows;

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use dwell_lab::lab::{Host, Lab, Process};
use dwell_lab::relays::{RelaySettings, Relays};
use serde_json::{Value, json};

use crate::harness::require;
use crate::site::{self, DWELL, Site, wait_until};
use crate::web::Web;

const PASSWORD: &str = "correct horse battery";
const PAGE: &str = "http://127.0.0.1:7780/";

/// Two relays with a page behind a password.
fn site(lab: &mut Lab) -> anyhow::Result<Site> {
    let file = lab.directory().join("web.password");
    std::fs::write(&file, PASSWORD)?;
    let private = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
    std::fs::set_permissions(&file, private)?;
    let extra = format!(
        "\n[web]\nlisten = \"0.0.0.0:7780\"\npassword_file = \"{}\"\n\
         [[class]]\nname = \"web\"\nports = [\"tcp/80\"]\n",
        file.display()
    );
    let scheme = "auto".to_owned();
    Site::thin(lab, &RelaySettings { extra, scheme, keyed: true, ..site::settings() })
}

/// Asks with curl. Returns the code, and what came.
fn ask(host: &Host, arguments: &[&str], url: &str) -> anyhow::Result<(String, String)> {
    let output = host
        .command("curl")
        .args(["-sS", "--max-time", "4", "-o", "-", "-w", "\n%{http_code}"])
        .args(arguments)
        .arg(url)
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let (body, code) = text.rsplit_once('\n').context("curl says nothing")?;
    Ok((code.to_owned(), body.to_owned()))
}

pub(super) fn closed(lab: &mut Lab) -> anyhow::Result<()> {
    require(&["curl"])?;
    let site = site(lab)?;
    let (here, outside) = (&site.pair.egress, &site.pair.ingress);
    let web = Web::start(&site, 200_000, 20_000)?;
    let login = format!("dwell:{PASSWORD}");
    let from_outside = "http://10.0.0.2:7780/";
    for path in ["", "live", "history"] {
        for arguments in [&[][..], &["-u", "dwell:wrong password"], &["-u", ":"]] {
            let (code, body) = ask(outside, arguments, &format!("{from_outside}{path}"))?;
            ensure!(code == "401" && body.len() < 50, "{path} {arguments:?}: {code} {body}");
        }
    }
    let (code, page) = ask(outside, &["-u", &login], from_outside)?;
    ensure!(code == "200" && page.contains("</html>"), "{code}: {page}");
    let rebound = ["-u", &*login, "-H", "Host: evil.example"];
    ensure!(ask(here, &rebound, PAGE)?.0 == "403", "another host's name is refused");
    let mut said = page;
    // The past begins with the second look.
    wait_until("the page has a past", || {
        web.fetch_all(&site.pair.client)?;
        let (code, history) = ask(here, &["-u", &login], &format!("{PAGE}history?range=5m"))?;
        ensure!(code == "200", "{code}: {history}");
        let window: Value = serde_json::from_str(&history)?;
        said += &history;
        let is_known =
            |value: &Value| value.as_array().is_some_and(|all| all.iter().any(|it| !it.is_null()));
        let has_moved = |value: &Value| {
            value.as_array().is_some_and(|all| all.iter().any(|it| it.as_f64() > Some(0.0)))
        };
        Ok(is_known(&window["series"]["link_bps"])
            && is_known(&window["classes"]["web"]["offered_bps"])
            && has_moved(&window["classes"]["web"]["link_bps"]))
    })?;
    // A stream has no end: curl gives up.
    let (_, live) = ask(here, &["-u", &login, "-N"], &format!("{PAGE}live"))?;
    let first = live.lines().find_map(|line| line.strip_prefix("data: ")).context("no message")?;
    let message: Value = serde_json::from_str(first)?;
    ensure!(message["peers"][0]["state"] == "up", "{first}");
    let events = message["events"].as_array().context("no events")?;
    ensure!(events.iter().any(|event| event["text"] == "other is up"), "{first}");
    said += &live;
    let status = site.relays.egress.status()?;
    ensure!(status.web.as_deref() == Some("http://10.77.0.2:7780/"), "{:?}", status.web);
    said += &seen_in_top(here, site.relays.egress.status_path())?;
    secrets_are_not_in(&site.directory, &said)
}

/// What `dwell top` draws on a wide terminal: decisions, then flows.
fn seen_in_top(host: &Host, socket: &Path) -> anyhow::Result<String> {
    require(&["script"])?;
    let top =
        format!("stty rows 60 cols 240; NO_COLOR=1 {DWELL} top --socket {}", socket.display());
    let typed = "(sleep 1.5; printf f; sleep 1.5; printf q)";
    let line = format!("{typed} | script -qec '{top}' /dev/null");
    let output = host.command("sh").args(["-c", &line]).stdin(Stdio::null()).output()?;
    let drawn = String::from_utf8_lossy(&output.stdout).into_owned();
    // A terminal's own words begin with an escape: what stays is what people see.
    let pieces = drawn.split('\u{1b}').map(|piece| {
        let text = piece.strip_prefix('[').unwrap_or(piece);
        text.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, ';' | '?'))
    });
    let seen: String = pieces.filter_map(|text| text.get(1..)).collect();
    ensure!(seen.contains("other") && seen.contains("p99"), "top shows nothing: {seen}");
    Ok(seen)
}

/// How much of a secret would be too much.
const PART_LEN: usize = 12;

/// A secret as it stands in its file, and a key in hexadecimal digits, too.
fn notations(secret: &str) -> Vec<String> {
    let mut key = [0; 64];
    let len = dwell_base::base64::decode(secret.as_bytes(), &mut key);
    let hex = |len| key.iter().take(len).map(|byte| format!("{byte:02x}")).collect();
    std::iter::once(secret.to_owned()).chain(len.map(hex)).collect()
}

/// Looks for every key and password that the lab has, in any notation, and for parts of them.
pub(super) fn secrets_are_not_in(directory: &Path, said: &str) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let mut seen = 0;
    let entries = std::fs::read_dir(directory)?.chain(std::fs::read_dir(directory.join("relays"))?);
    for entry in entries {
        let path = entry?.path();
        let metadata = std::fs::metadata(&path)?;
        // Nobody else may read files with keys and passwords.
        if !metadata.is_file() || metadata.permissions().mode() & 0o077 != 0 {
            continue;
        }
        for line in std::fs::read_to_string(&path).unwrap_or_default().lines() {
            let secret = line.trim();
            if secret.len() >= 16 && !secret.starts_with('#') {
                seen += 1;
                for secret in notations(secret) {
                    let parts =
                        (0..=secret.len() - PART_LEN).map(|at| secret.get(at..at + PART_LEN));
                    let shown = parts.flatten().find(|part| said.contains(part));
                    ensure!(shown.is_none(), "{} is in what is said", path.display());
                }
            }
        }
    }
    ensure!(seen >= 3, "only {seen} secrets were found in {}", directory.display());
    Ok(())
}

/// Chromium, driven by WebDriver.
struct Browser<'a> {
    host: &'a Host,
    driver: Process,
    session: String,
}

/// Keys, as WebDriver names them.
const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";

const DRIVER: &str = "http://127.0.0.1:9515/session";

impl<'a> Browser<'a> {
    fn start(host: &'a Host, directory: &Path) -> anyhow::Result<Self> {
        let log = std::fs::File::create(directory.join("chromedriver.log"))?;
        let mut command = host.command("chromedriver");
        command.arg("--port=9515").stdout(log.try_clone()?).stderr(log);
        command.env("HOME", directory).env("XDG_CONFIG_HOME", directory).env("TZ", "UTC");
        let driver = Process::spawn(&mut command)?;
        let mut browser = Self { host, driver, session: String::new() };
        wait_until("chromedriver answers", || {
            let ready = browser.call("GET", "http://127.0.0.1:9515/status", &Value::Null);
            Ok(ready.is_ok_and(|status| status["ready"] == true))
        })?;
        let profile = format!("--user-data-dir={}", directory.join("chromium").display());
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            &profile,
        ];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": { "args": arguments },
        } } });
        let made = browser.call("POST", DRIVER, &wanted)?;
        let session = made["sessionId"].as_str().with_context(|| format!("no session: {made}"))?;
        browser.session = format!("{DRIVER}/{session}");
        Ok(browser)
    }

    fn call(&self, method: &str, url: &str, body: &Value) -> anyhow::Result<Value> {
        let mut curl = self.host.command("curl");
        curl.args(["-sS", "--max-time", "60", "-X", method, url]);
        if method == "POST" {
            curl.args(["-H", "Content-Type: application/json", "-d", &body.to_string()]);
        }
        let output = curl.output()?;
        let answer: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
        ensure!(answer["value"]["error"].is_null(), "{url}: {}", answer["value"]);
        Ok(answer["value"].clone())
    }

    fn post(&self, what: &str, body: &Value) -> anyhow::Result<Value> {
        self.call("POST", &format!("{}/{what}", self.session), body)
    }

    fn run(&self, script: &str) -> anyhow::Result<Value> {
        self.post("execute/sync", &json!({ "script": script, "args": [] }))
    }

    fn devtools(&self, command: &str, parameters: &Value) -> anyhow::Result<Value> {
        self.post("goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    /// Waits until the script returns true.
    fn wait(&self, what: &str, script: &str) -> anyhow::Result<()> {
        wait_until(what, || Ok(self.run(script)? == true))
    }

    /// Types these keys.
    fn keys(&self, keys: &[&str]) -> anyhow::Result<()> {
        let event = |kind: &str, key: &str| json!({ "type": kind, "value": key });
        let strokes = keys.iter().flat_map(|key| [event("keyDown", key), event("keyUp", key)]);
        let actions: Vec<Value> = strokes.collect();
        let keyboard = json!({ "type": "key", "id": "k", "actions": actions });
        self.post("actions", &json!({ "actions": [keyboard] })).map(drop)
    }

    fn picture(&self, to: &Path, how: &Value) -> anyhow::Result<()> {
        let shot = self.devtools("Page.captureScreenshot", how)?;
        let base64 = to.with_extension("base64");
        std::fs::write(&base64, shot["data"].as_str().context("no picture")?)?;
        let output = std::process::Command::new("base64").arg("-d").arg(&base64).output()?;
        std::fs::write(to, output.stdout)?;
        Ok(std::fs::remove_file(base64)?)
    }

    /// Opens the page in a window of this size.
    fn open(&self, size: (u32, u32), theme: &str, motion: &str) -> anyhow::Result<()> {
        self.resize(size, theme, motion)?;
        let login = PASSWORD.replace(' ', "%20");
        self.post("url", &json!({ "url": format!("http://dwell:{login}@127.0.0.1:7780/") }))?;
        self.wait(
            "the page has data",
            "return document.querySelectorAll('#peers tbody tr').length === 1 \
             && (document.querySelector('#figures path').getAttribute('d') || '').length > 10",
        )
    }

    /// Gives the window this size, and the page another theme.
    fn resize(&self, (width, height): (u32, u32), theme: &str, motion: &str) -> anyhow::Result<()> {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", &size)?;
        let features = json!({ "features": [
            { "name": "prefers-color-scheme", "value": theme },
            { "name": "prefers-reduced-motion", "value": motion },
        ] });
        self.devtools("Emulation.setEmulatedMedia", &features).map(drop)
    }
}

impl Drop for Browser<'_> {
    fn drop(&mut self) {
        let _ = self.call("DELETE", &self.session, &Value::Null);
        let _ = self.driver.stop();
    }
}

/// The least contrast between texts and what is behind them, by WCAG 2.
const CONTRAST: &str = "
    const light = (c) => { const v = c.match(/[0-9.]+/g).slice(0, 3).map((x) => x / 255)
        .map((x) => x <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4);
        return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
    const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
        if (!/, 0\\)$/.test(c)) return c; } return 'rgb(255,255,255)'; };
    let least = 99, where = '';
    for (const e of document.querySelectorAll('body *')) {
        if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !e.getClientRects().length) continue;
        if (['SCRIPT', 'STYLE', 'NOSCRIPT', 'OPTION'].includes(e.tagName)) continue;
        const style = getComputedStyle(e);
        const [a, b] = [light(e.namespaceURI.endsWith('svg') ? style.fill : style.color), light(behind(e))].sort((x, y) => y - x);
        const contrast = (a + .05) / (b + .05);
        if (contrast < least) { least = contrast; where = e.outerHTML.slice(0, 200); }
    }
    return { least, where };";

/// What has no name for those who don't see it.
const NAMELESS: &str = "
    const bad = [];
    for (const e of document.querySelectorAll('svg[role=img]')) if (!e.getAttribute('aria-label')) bad.push(e.outerHTML.slice(0, 100));
    for (const e of document.querySelectorAll('select, input')) if (!e.labels.length) bad.push(e.outerHTML);
    for (const e of document.querySelectorAll('button')) if (!(e.textContent.trim() || e.getAttribute('aria-label'))) bad.push(e.outerHTML);
    for (const e of document.querySelectorAll('section, [role=region]')) {
        const by = e.getAttribute('aria-labelledby');
        if (!e.getAttribute('aria-label') && !(by && document.getElementById(by))) bad.push(e.outerHTML.slice(0, 100));
    }
    if (!document.documentElement.lang || !document.querySelector('main, h1')) bad.push('no language or landmarks');
    return bad;";

pub(super) fn in_a_browser(lab: &mut Lab) -> anyhow::Result<()> {
    require(&["chromedriver", "chromium"])?;
    let pictures = std::env::var_os("DWELL_SCREENSHOTS");
    let site = site(lab)?;
    // A past to be seen takes its time and is made of long downloads; a test needs little of it.
    let (text, random, past) = match pictures.is_some() {
        true => (16_000_000, 6_000_000, Duration::from_secs(170)),
        false => (1_000_000, 300_000, Duration::from_secs(4)),
    };
    let web = Web::start(&site, text, random)?;
    let end = Instant::now() + past;
    for round in 0.. {
        let file = if round % 3 == 2 { "random" } else { "text" };
        web.fetch(&site.pair.client, site::SERVERS[0], file)?;
        if Instant::now() > end {
            break;
        }
        std::thread::sleep(Duration::from_secs(round % 4));
    }
    // It goes on while it is looked at.
    let _download = web.begin(&site.pair.client, site::SERVERS[0], "text")?;
    // The relays go before the hosts that they are on: from the last to the first.
    let Site { pair, mut relays, directory } = site;
    let browser = Browser::start(&pair.egress, &directory)?;
    for (size, theme) in [
        ((1200, 1000), "light"),
        ((1200, 1000), "dark"),
        ((400, 820), "light"),
        ((400, 820), "dark"),
    ] {
        browser.open(size, theme, "no-preference")?;
        looks_right(&browser, size.0, theme)?;
        if let Some(pictures) = &pictures {
            let name = format!("web-{}-{theme}.png", size.0);
            browser.picture(&Path::new(pictures).join(name), &json!({ "format": "png" }))?;
        }
    }
    if let Some(pictures) = &pictures {
        flows::picture(&browser, (&web, &pair.client), Path::new(pictures))?;
    }
    works_by_keyboard(&browser)?;
    flows::are_reckoned_right(&browser)?;
    flows::are_plotted(&browser, &pair.client)?;
    shows_what_happens(&browser, &mut relays)
}

fn looks_right(browser: &Browser<'_>, width: u32, theme: &str) -> anyhow::Result<()> {
    let what = || format!("{width} pixels, {theme}");
    let over = browser.run("return document.documentElement.scrollWidth - innerWidth")?;
    ensure!(over.as_f64().is_some_and(|over| over <= 0.0), "{}: {over} too wide", what());
    let contrast = browser.run(CONTRAST)?;
    ensure!(contrast["least"].as_f64().is_some_and(|least| least >= 4.5), "{}: {contrast}", what());
    let nameless = browser.run(NAMELESS)?;
    ensure!(nameless == json!([]), "{}: {nameless}", what());
    let background =
        browser.run("return getComputedStyle(document.documentElement).backgroundColor")?;
    let is_light = background == "rgb(255, 255, 255)";
    ensure!(is_light == (theme == "light"), "{}: {background}", what());
    // Whatever the policy of the page forbids is an error there, and so is what the script does wrong.
    let log = browser.post("se/log", &json!({ "type": "browser" }))?;
    ensure!(log == json!([]), "{}: {log}", what());
    Ok(())
}

fn works_by_keyboard(browser: &Browser<'_>) -> anyhow::Result<()> {
    browser.open((1200, 1000), "light", "reduce")?;
    browser.run("document.querySelector('#figures svg[role=img]').focus()")?;
    const LEFT: &str = "\u{e012}";
    browser.keys(&[LEFT, LEFT])?;
    let read = browser.run("return document.getElementById('cursor').textContent")?;
    let read = read.as_str().unwrap_or_default().to_owned();
    ensure!(read.starts_with("Throughput at ") && read.contains("offered: "), "{read:?}");
    // Tab leads on to the table behind the plot, Enter opens it.
    browser.keys(&[TAB, ENTER])?;
    browser.wait(
        "the table behind the plot is open",
        "return document.querySelectorAll('#figures details[open] tbody tr').length > 2",
    )?;
    browser.run("document.querySelector('#peers button').focus()")?;
    browser.keys(&[ENTER])?;
    browser
        .wait("the peer is chosen", "return document.getElementById('scope').value === 'other'")?;
    browser.run("document.querySelector('input[value=\"1h\"]').focus()")?;
    browser.keys(&[" "])?;
    browser.wait(
        "an hour is shown",
        "return document.querySelector('input[value=\"1h\"]').checked \
         && document.querySelector('#figures path').getAttribute('d').length > 5",
    )
}

/// The other end dies: the page says so, and why, without being asked.
fn shows_what_happens(browser: &Browser<'_>, relays: &mut Relays) -> anyhow::Result<()> {
    site::kill(relays.ingress.process())?;
    // An idle peer is asked only after 20 s, and has 5 s to answer.
    let is_said = "return /not up/.test(document.getElementById('state').textContent) \
         && [...document.querySelectorAll('#events .kind')].some((e) => e.textContent === 'down')";
    let is_soon = browser.wait("the page says that the peer is gone", is_said);
    is_soon.or_else(|_| browser.wait("the page says at last that the peer is gone", is_said))
}
