//! `dwell init`, `join`, `invite` and `peer` as an operator types them, without a network.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use dwell_relay::pairing::Line;

const DWELL: &str = env!("CARGO_BIN_EXE_dwell");

/// A directory with a node's files, removed with it.
struct Node(PathBuf);

impl Node {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("dwell-pairing-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn config(&self) -> PathBuf {
        self.0.join("relay.toml")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.config()).unwrap()
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(DWELL);
        command.args(words).arg("--config").arg(self.config());
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// What it prints on standard output.
    #[track_caller]
    fn does(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Why it refuses. Nothing is changed then.
    #[track_caller]
    fn refuses(&self, words: &[&str]) -> String {
        let before = fs::read_to_string(self.config()).ok();
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{words:?}: {output:?}");
        assert_eq!(fs::read_to_string(self.config()).ok(), before, "{words:?} changed something");
        String::from_utf8(output.stderr).unwrap()
    }

    fn init(&self, name: &str, more: &[&str]) -> String {
        self.does(&[&["init", "--name", name], more].concat())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const A: [&str; 4] = ["--prefix", "10.1.0.0/24", "--endpoint", "203.0.113.10"];

#[test]
fn two_sites_know_each_other_after_two_lines() {
    let (a, b) = (Node::new("two-a"), Node::new("two-b"));
    let offer = a.init("site-a", &A);
    let answer = b.does(&["join", "--name", "site-b", "--prefix", "10.2.0.0/24", &offer]);
    assert_eq!(a.does(&["join", &answer]), "", "an answer needs none");
    for node in [&a, &b] {
        let checked = node_check(node);
        assert!(checked.contains("\"valid\": true"), "{checked}");
        for file in ["relay.toml", "private.key"] {
            let mode = fs::metadata(node.0.join(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
        let key = fs::read_to_string(node.0.join("private.key")).unwrap();
        for line in [&offer, &answer] {
            assert!(!line.contains(key.trim().trim_end_matches('=')), "a secret is in {line}");
        }
    }
    assert!(a.text().contains("prefixes = [\"10.2.0.0/24\", \"10.77.0.2/32\"]"), "{}", a.text());
    assert!(b.text().contains("endpoint = \"203.0.113.10:7733\""), "{}", b.text());
    let before = a.text();
    a.does(&["join", &answer]);
    assert_eq!(a.text(), before, "once more changes nothing");
    let again = b.does(&["join", &offer]);
    assert_eq!(again, answer, "whoever lost the answer has it again");
    let listed = a.does(&["peer", "list", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["peers"][0]["name"], "site-b");
    a.does(&["peer", "remove", "site-b"]);
    assert!(a.does(&["peer", "list"]).contains("no peers"));
    // An offer takes one answer, and a new one is the way back.
    let old = a.refuses(&["join", &answer]);
    assert!(old.contains("answers no line") && old.contains("dwell invite"), "{old}");
    let again = b.does(&["join", &a.does(&["invite"])]);
    a.does(&["join", &again]);
    assert_eq!(a.text(), before);
}

/// What `join` prints on standard error.
fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_offer_takes_the_answer_of_one_who_has_seen_it() {
    let (a, b, c) = (Node::new("pass-a"), Node::new("pass-b"), Node::new("pass-c"));
    let offer = a.init("site-a", &A);
    let join = |node: &Node, name: &str, line: &str| {
        node.does(&["join", "--name", name, "--address", "10.77.0.9/24", line])
    };
    // Whoever knows all of it but the pass, for instance from another offer.
    let (begin, pass) = offer.split_once(",pass=").unwrap();
    let pass = &pass[..22];
    let guessed = changed_on_its_way(&offer, pass, "AAAAAAAAAAAAAAAAAAAAAA");
    let refused = a.refuses(&["join", &join(&c, "site-c", &guessed)]);
    assert!(refused.contains("answers no line"), "{refused}");
    // The digest of the true one alone does not help.
    let answer = join(&b, "site-b", &offer);
    let digest = |answer: &str| answer.split_once(",of=").unwrap().1[..16].to_owned();
    fs::remove_file(c.config()).unwrap();
    let forged = join(&c, "site-c", &guessed);
    let forged = changed_on_its_way(&forged, &digest(&forged), &digest(&answer));
    let refused = a.refuses(&["join", &forged]);
    assert!(refused.contains("was changed on its way"), "{refused}");
    // Two sites with one line: the second needs one of its own.
    fs::remove_file(c.config()).unwrap();
    let second = join(&c, "site-c", &offer);
    a.does(&["join", &answer]);
    assert!(a.refuses(&["join", &second]).contains("each takes one"));
    assert!(!answer.contains(pass), "the pass is in no answer, {begin}");
}

#[test]
fn an_offer_is_open_for_some_days() {
    let (a, b) = (Node::new("days-a"), Node::new("days-b"));
    a.init("site-a", &A);
    let answer = b.does(&["join", "--name", "site-b", &a.does(&["invite", "--days", "3"])]);
    let open = a.0.join("relay.invitations");
    assert_eq!(fs::metadata(&open).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&open).unwrap();
    let mut until: Vec<u64> = Vec::new();
    let old: Vec<String> = text
        .lines()
        .map(|line| match line.rsplit_once(' ') {
            Some((begin, until_s)) if !line.starts_with('#') => {
                until.push(until_s.parse().unwrap());
                format!("{begin} 1700000000")
            }
            _ => line.to_owned(),
        })
        .collect();
    let day = |at: usize| until[at] / 86_400;
    assert!((3..=4).contains(&(day(0) - day(1))), "a line of `init` has seven days: {until:?}");
    fs::write(&open, old.join("\n") + "\n").unwrap();
    assert!(a.refuses(&["join", &answer]).contains("is too old"));
    fs::write(&open, "nonsense\n").unwrap();
    let refused = a.refuses(&["invite"]);
    assert!(refused.contains("remove the file"), "{refused}");
}

#[test]
fn an_answer_that_was_replaced_has_another_code() {
    let (a, b, c) = (Node::new("code-a"), Node::new("code-b"), Node::new("code-c"));
    let offer = a.init("site-a", &A);
    let code_of = |output: &Output| {
        let said = said(output);
        let code = said.split_once("asks for the code of this answer:").unwrap().1;
        code.trim().lines().next().unwrap().to_owned()
    };
    let joined = b.run(&["join", "--name", "site-b", &offer]);
    let (answer, code) = (String::from_utf8(joined.stdout.clone()).unwrap(), code_of(&joined));
    // Somebody who has seen the offer, and whom the channel obeys.
    let replaced = c.does(&["join", "--name", "site-b", &offer]);
    let refused = a.refuses(&["join", "--code", &code, &replaced]);
    assert!(refused.contains("the code is another one"), "{refused}");
    assert!(a.refuses(&["join", "--code", "1234", answer.trim()]).contains("mistyped"));
    assert!(b.refuses(&["join", "--code", &code, &offer]).contains("is for an answer"));
    let taken = a.run(&["join", "--code", &code.replace(' ', "-"), answer.trim()]);
    assert!(taken.status.success() && !said(&taken).contains("The code"), "{taken:?}");
    // Where nobody said one it can be compared later.
    let (d, e) = (Node::new("code-d"), Node::new("code-e"));
    let joined = e.run(&["join", "--name", "site-b", &d.init("site-d", &A)]);
    let taken = d.run(&["join", &String::from_utf8_lossy(&joined.stdout)]);
    assert!(said(&taken).contains(&code_of(&joined)), "{taken:?}");
}

#[test]
fn networks_that_this_machine_needs_are_refused() {
    let (a, b) = (Node::new("nets-a"), Node::new("nets-b"));
    let offer = a.init("site-a", &A);
    let join = |more: &[&str], nets: &str| {
        let line = changed_on_its_way(&offer, "nets=10.1.0.0/24", &format!("nets={nets}"));
        b.run(&[&["join", "--name", "site-b"], more, &[&line]].concat())
    };
    for nets in ["0.0.0.0/0", "0.0.0.0/1+128.0.0.0/1", "10.0.0.0/7", "10.1.0.0/24+::/0"] {
        let output = join(&[], nets);
        let said = said(&output);
        assert!(said.contains("--default-route") && !b.config().exists(), "{nets}: {said}");
    }
    // The endpoint has no route but the default one, if any, wherever this runs.
    for more in [&["--default-route"][..], &[]] {
        let nets = if more.is_empty() { "203.0.113.0/24" } else { "0.0.0.0/0" };
        let said = said(&join(more, nets));
        assert!(said.contains("ip route add 203.0.113.10 via"), "{nets}: {said}");
        assert!(!b.config().exists());
    }
    assert!(join(&["--default-route"], "::/0").status.success());
}

fn node_check(node: &Node) -> String {
    let mut command = Command::new(DWELL);
    let output =
        command.args(["check", "--json", "--no-routes"]).arg(node.config()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_line_comes_by_standard_input_too() {
    let (a, b) = (Node::new("stdin-a"), Node::new("stdin-b"));
    let offer = a.init("site-a", &A);
    let (begin, end) = offer.split_at(70);
    let mailed = b.0.join("mail.txt");
    fs::write(&mailed, format!("\n  {begin}\r\n{end}\n")).unwrap();
    let mut command = Command::new(DWELL);
    command.args(["join", "--name", "site-b"]).arg("--config").arg(b.config());
    let output = command.stdin(fs::File::open(&mailed).unwrap()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.starts_with(b"dwell3,answer,name=site-b,"), "{output:?}");
}

#[test]
fn a_hub_pairs_with_a_hundred_sites() {
    const SITES: usize = 100;
    let hub = Node::new("hub");
    let own = ["--prefix", "10.0.0.0/8", "--endpoint", "hub.example.net:7744"];
    hub.init("hub", &[&own[..], &["--address", "172.30.0.1/16"]].concat());
    let lines = hub.does(&["invite", "--count", &SITES.to_string()]);
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(lines.len(), SITES);
    for (number, line) in lines.iter().enumerate() {
        let site = Node::new(&format!("hub-{number}"));
        let (name, prefix) = (format!("site-{number}"), format!("192.168.{number}.0/24"));
        let answer = site.does(&["join", "--name", &name, "--prefix", &prefix, line]);
        assert!(site.text().contains("endpoint = \"hub.example.net:7744\""));
        hub.does(&["peer", "add", &answer]);
    }
    let checked: serde_json::Value = serde_json::from_str(&node_check(&hub)).unwrap();
    assert_eq!(
        (&checked["valid"], checked["peers"].as_array().unwrap().len()),
        (&true.into(), SITES)
    );
    assert!(hub.does(&["invite"]).contains("you=172.30.0.102/16"), "the next free address");
}

#[test]
fn what_is_there_is_not_overwritten() {
    let a = Node::new("force");
    let offer = a.init("site-a", &A);
    let key = fs::read_to_string(a.0.join("private.key")).unwrap();
    assert!(a.refuses(&["init"]).contains("is left as it is"));
    fs::write(a.config(), a.text() + "\n# Mine.\n").unwrap();
    let of_node = |line: &str| line.split_once(",pass=").unwrap().0.to_owned();
    assert_eq!(of_node(&a.does(&["invite"])), of_node(&offer));
    a.init("site-a", &[&A[..], &["--force"]].concat());
    assert!(!a.text().contains("# Mine."));
    assert_eq!(fs::read_to_string(a.0.join("private.key")).unwrap(), key, "peers know this key");
    // Whatever its file is called.
    fs::rename(a.0.join("private.key"), a.0.join("mine.key")).unwrap();
    fs::write(a.config(), a.text().replace("private.key", "mine.key")).unwrap();
    let again = a.init("site-a", &[&A[..], &["--force"]].concat());
    assert_eq!(of_node(&again), of_node(&offer));
}

/// A hub has the whole network, so that sites reach each other through it; each site has a part of that.
#[test]
fn a_site_may_be_in_the_network_of_its_hub() {
    let (hub, site) = (Node::new("whole"), Node::new("part"));
    let offer = hub.init("hub", &["--prefix", "10.0.0.0/8", "--endpoint", "203.0.113.10"]);
    let join = ["join", "--name", "site", "--prefix", "10.2.0.0/24", &offer];
    let answer = site.does(&join);
    hub.does(&["join", "--rate", "2mbit", answer.trim()]);
    let text = hub.text();
    assert!(text.contains("10.2.0.0/24") && text.contains("rate = \"2Mbit\""), "{text}");
}

#[test]
fn mistakes_end_in_a_remedy() {
    let (a, b, c) = (Node::new("wrong-a"), Node::new("wrong-b"), Node::new("wrong-c"));
    let offer = a.init("site-a", &A);
    let join = ["join", "--name", "site-b"];
    let refused = |more: &[&str]| b.refuses(&[&join[..], more].concat());
    let cut = &offer[..offer.len() - 4];
    assert!(refused(&[cut]).contains("the end of the line is missing"));
    let changed = offer.replace("10.1.0.0", "10.1.1.0");
    assert!(refused(&[&changed]).contains("copy it again"));
    assert!(refused(&["hello"]).contains("this is no line of `dwell init`"));
    // The prefixes of the two sites, swapped or the same.
    let swapped = refused(&["--prefix", "10.1.0.0/24", &offer]);
    assert!(swapped.contains("both sites can't have the same network"), "{swapped}");
    assert!(refused(&["--address", "10.77.0.1/24", &offer]).contains("has the tunnel address"));
    assert!(!b.config().exists() && !b.0.join("private.key").exists(), "nothing is left of it");
    // The same key twice, and the same line at the wrong end.
    assert!(a.refuses(&["join", &offer]).contains("this is the line of this node itself"));
    let answer = b.does(&[&join[..], &[&offer]].concat());
    c.init("site-c", &A);
    assert!(c.refuses(&["join", &answer]).contains("this line answers another node"));
    assert!(Node::new("wrong-d").refuses(&["join", &answer]).contains("there is none here"));
    assert!(
        b.refuses(&["join", "--prefix", "10.9.0.0/24", &offer]).contains("change it in that file")
    );
    a.does(&["join", &answer]);
    // Another node of the same name, or with the same network.
    let same_name = c.does(&["invite"]).replace("site-c", "x");
    assert!(a.refuses(&["join", &same_name]).contains("copy it again"), "a line can't be edited");
    let same_network = a.refuses(&["join", &c.does(&["invite"])]);
    assert!(same_network.contains("both sites can't have the same network"), "{same_network}");
    let d = Node::new("wrong-e");
    let line = d.init("site-b", &["--prefix", "10.4.0.0/24", "--endpoint", "192.0.2.9"]);
    let taken = a.refuses(&["join", &line]);
    assert!(taken.contains("has the tunnel address"), "{taken}");
    // Neither end can be reached.
    let (e, f) = (Node::new("wrong-f"), Node::new("wrong-g"));
    let hidden = e.init("site-e", &[]);
    assert!(f.refuses(&["join", "--name", "f", &hidden]).contains("neither end has an endpoint"));
    assert!(a.refuses(&["peer", "remove", "nobody"]).contains("there is no peer \"nobody\""));
}

/// A line with something else in it, and the check sum that fits.
fn changed_on_its_way(line: &str, from: &str, to: &str) -> String {
    let (body, _) = line.rsplit_once(",sum=").unwrap();
    assert!(body.contains(from), "{line}");
    Line::summed(&body.replace(from, to))
}

#[test]
fn a_line_that_was_changed_on_purpose_is_refused() {
    let (a, b) = (Node::new("forged-a"), Node::new("forged-b"));
    let offer = a.init("site-a", &A);
    let join = |line: &str| b.does(&["join", "--force", "--name", "site-b", line]);
    // More networks than the site has, or its traffic to somebody else.
    let answer = join(&offer);
    for (from, to) in [("10.77.0.2/32", "10.0.0.0/8"), ("name=site-b", "name=site-x")] {
        let forged = changed_on_its_way(&answer, from, to);
        let refused = a.refuses(&["join", &forged]);
        assert!(
            refused.contains("was changed on its way") && refused.contains("again"),
            "{refused}"
        );
    }
    // The offer, which only the answer to it can show.
    fs::remove_file(b.config()).unwrap();
    for (from, to) in [("at=203.0.113.10", "at=198.51.100.66"), ("you=10.77.0.2", "you=10.77.0.66")]
    {
        let elsewhere = join(&changed_on_its_way(&offer, from, to));
        let refused = a.refuses(&["join", &elsewhere]);
        assert!(
            refused.contains("answers no line") && refused.contains("dwell invite"),
            "{refused}"
        );
        fs::remove_file(b.config()).unwrap();
    }
    // What the node itself says otherwise by now.
    let text = a.text();
    fs::write(a.config(), text.replace("10.1.0.0/24", "10.3.0.0/24")).unwrap();
    let refused = a.refuses(&["join", &answer]);
    assert!(refused.contains("were changed since"), "{refused}");
    fs::write(a.config(), text).unwrap();
    a.does(&["join", &answer]);
}

#[test]
fn a_shared_key_is_asked_for_at_both_ends() {
    let (a, b) = (Node::new("psk-a"), Node::new("psk-b"));
    let offer = a.init("site-a", &A);
    let join = ["join", "--name", "site-b", "--psk", "ab.psk"];
    let join = |node: &Node| node.run(&[&join[..], &[&offer]].concat());
    let missing = String::from_utf8(join(&b).stderr).unwrap();
    assert!(missing.contains("make it with `dwell genpsk"), "{missing}");
    assert!(!b.config().exists());
    make_psk(&b.0.join("ab.psk"));
    let answer = String::from_utf8(join(&b).stdout).unwrap();
    let answer = answer.trim();
    let asked = a.refuses(&["join", answer]);
    assert!(asked.contains("copy its file here") && asked.contains("--psk FILE"), "{asked}");
    fs::copy(b.0.join("ab.psk"), a.0.join("ab.psk")).unwrap();
    a.does(&["join", "--psk", "ab.psk", answer]);
    assert!(a.text().contains("psk_file = \"ab.psk\""));
    let secret = fs::read_to_string(b.0.join("ab.psk")).unwrap();
    assert!(!answer.contains(secret.trim()));
}

fn make_psk(path: &Path) {
    assert!(Command::new(DWELL).args(["genpsk", "--out"]).arg(path).status().unwrap().success());
}

#[test]
fn peers_can_be_added_by_their_values() {
    let hub = Node::new("values");
    hub.init("hub", &A);
    let key = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";
    let add = ["peer", "add", "--as", "b", "--public-key", key, "--prefix", "10.2.0.0/24"];
    hub.does(&add);
    let same = hub.refuses(&[&add[..3], &["c"], &add[4..]].concat());
    assert!(same.contains("has the same key"), "{same}");
    hub.does(&[&add[..], &["--rate", "2mbit", "--force"]].concat());
    assert!(hub.text().contains("rate = \"2Mbit\""), "{}", hub.text());
}
