//! `dwell join`: takes the other end's line, and makes it a peer.

use std::io::{self, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use dwell_relay::config::{Config, Endpoint, PeerConfig, PublicKey, RateConfig, Security};
use dwell_relay::pairing::edit::{self, NewPeer};
use dwell_relay::pairing::{Invitation, LINE_LEN_MAX, Line, LineKind, Pass, Seal, is_code};

use super::init::{Own, config_option, listen_for, print_line};
use super::networks;
use super::node::Reloaded;
use super::site::Site;
use super::up;
use crate::logging::{DEFAULT, Logging};
use dwell_cli::terminal;

const AFTER_HELP: &str = "\
Examples:
  sudo dwell join LINE                 the line that `dwell init` printed at the other end
  sudo dwell join --prefix 10.2.0.0/24 --rate 2mbit LINE    without questions
  sudo dwell join --up LINE            and run the relay at once
  sudo dwell join < line.txt           from a file, or pasted
  sudo dwell join --code 4821-0937-5561-2048 ANSWER   with the code that the other end printed
  sudo dwell join --psk /etc/dwell/ab.psk LINE   with a key that both ends share, of `dwell genpsk`

Without a configuration it makes one. It prints the line that is to be pasted at the other end, and
a code for those who compare it; given that line, it asks for the code and prints nothing more. A
relay that runs takes the new peer at once.

Exit codes:
  0  the other end is a peer
  1  it is not: the line is damaged, or contradicts the configuration
  2  the command line is wrong";

/// Make the other end a peer, by the line that it printed
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Join {
    /// The line of the other end [default: from standard input]
    line: Vec<String>,
    #[command(flatten)]
    own: Own,
    #[command(flatten)]
    options: Options,
    /// Run the relay then, as `dwell up` does
    #[arg(long)]
    up: bool,
    /// Print JSON: the line, the public key and the file
    #[arg(long)]
    json: bool,
}

/// How the other end is to be taken.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Options {
    /// The file with a key that both ends share, to be mixed in; relative to the configuration
    #[arg(long, value_name = "FILE")]
    pub(super) psk: Option<PathBuf>,
    /// The peer's name here, if it is not to be its own
    #[arg(long = "as", value_name = "NAME")]
    pub(super) alias: Option<String>,
    /// Replace what the configuration says of that peer now
    #[arg(long)]
    pub(super) force: bool,
    /// The code that the other end printed with its answer; it is asked for on a terminal
    #[arg(long, value_name = "DIGITS")]
    pub(super) code: Option<String>,
    /// Take the other end's word for networks as wide as a default route
    #[arg(long)]
    pub(super) default_route: bool,
}

impl Options {
    /// Refuses them if they don't fit the line.
    pub(super) fn fit(&self, line: &Line) -> anyhow::Result<()> {
        match (&self.psk, line.has_psk) {
            (None, true) => bail!(
                "{} mixes in a key that both ends share: copy its file here over a channel that nobody \
                 else can read (scp), with mode 0600, and add --psk FILE",
                line.name
            ),
            (Some(_), false) if matches!(line.kind, LineKind::Answer { .. }) => bail!(
                "{} mixes in no shared key: leave --psk out, or let it join again with --psk",
                line.name
            ),
            _ => self.fit_kind(line),
        }
    }

    fn fit_kind(&self, line: &Line) -> anyhow::Result<()> {
        if self.code.is_some() && line.pass().is_some() {
            bail!(
                "--code is for an answer, and this line is an offer: leave it out. The code is printed here, \
                 and asked for at {}",
                line.name
            );
        }
        networks::refuse_default(line, self.default_route)
    }
}

impl Join {
    pub(crate) fn run(mut self, logging: &Logging) -> anyhow::Result<ExitCode> {
        if !self.up {
            logging.start(DEFAULT)?;
        }
        let line: Line = self.read_line()?.parse()?;
        let path = self.own.config.clone();
        // Nothing is left behind of what can't work.
        self.options.fit(&line)?;
        let (site, rate) = match Site::open(&path)? {
            Some(site) => {
                self.refuse_settings(&path)?;
                (site, self.own.rate)
            }
            // There it is that of all peers.
            None => (self.create(&line)?, None),
        };
        let joining = Joining { site, line, options: self.options, rate };
        let (joining, outcome) = joining.check()?.add()?;
        let is_running = joining.site.reload()? != Reloaded::NotRunning;
        let answer = joining.answer()?;
        for warning in joining.site.config.warnings() {
            terminal::complain("warning", &warning);
        }
        terminal::note(&outcome);
        if let Some((line, code)) = &answer {
            print_line(line, &path, Some(code), self.json)?;
            if !self.json {
                terminal::note(&next_step(line, code));
            }
        }
        drop(joining);
        match (self.up, is_running) {
            (true, _) => return up::run(&path, None, logging),
            (false, true) => terminal::note("See whether it works:  sudo dwell verify"),
            (false, false) => terminal::note(&format!(
                "Start it here:  sudo dwell up{}\nSee whether it works:  sudo dwell verify",
                config_option(&path)
            )),
        }
        Ok(ExitCode::SUCCESS)
    }

    fn read_line(&self) -> anyhow::Result<String> {
        if !self.line.is_empty() {
            // A shell may have split what a mail program had broken.
            return Ok(self.line.concat());
        }
        let mut text = String::new();
        if io::stdin().is_terminal() {
            terminal::note("paste the line of the other end:");
            io::stdin().lock().take(4 * LINE_LEN_MAX as u64).read_line_or_end(&mut text)?;
        } else {
            io::stdin().lock().take(4 * LINE_LEN_MAX as u64).read_to_string(&mut text)?;
        }
        Ok(text)
    }

    /// What a node that is there says of itself stands in its file.
    fn refuse_settings(&self, path: &Path) -> anyhow::Result<()> {
        let own = &self.own;
        let given = [
            ("--name", own.name.is_some()),
            ("--prefix", !own.prefixes.is_empty()),
            ("--endpoint", !own.endpoints.is_empty()),
            ("--address", !own.addresses.is_empty()),
            ("--listen", own.listen.is_some()),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            None => Ok(()),
            Some((option, _)) => bail!(
                "{option} is for a node that is to be made, and {} is there: change it in that file, or \
                 leave the option out",
                path.display()
            ),
        }
    }

    fn create(&mut self, line: &Line) -> anyhow::Result<Site> {
        if matches!(line.kind, LineKind::Answer { .. }) {
            bail!(
                "this line answers the offer of a node, and there is none here ({} is missing): paste it \
                 at that node, or begin with `dwell init`",
                self.own.config.display()
            );
        }
        self.own.ask(line.endpoints.is_empty())?;
        let mut new = self.own.node()?;
        if let (true, LineKind::Offer { addresses, .. }) = (new.addresses.is_empty(), &line.kind) {
            new.addresses.clone_from(addresses);
        }
        if new.endpoints.is_empty() && line.endpoints.is_empty() {
            bail!(
                "neither end has an endpoint, so that neither could find the other: add --endpoint HOST:PORT \
                 at the end that can be reached"
            );
        }
        if new.listen.is_none() && new.endpoints.is_empty() {
            // Its own port is its own affair; what counts is the family.
            let v6 = listen_for(&line.endpoints).filter(|listen| listen.is_ipv6());
            new.listen = v6.map(|listen| (listen.ip(), dwell_relay::config::PORT).into());
        }
        if let Some(psk) = &self.options.psk {
            let near = self.own.config.parent().unwrap_or(Path::new("")).join(psk);
            if !near.exists() {
                bail!(
                    "there is no {}: make it with `dwell genpsk --out FILE`, or copy it",
                    near.display()
                );
            }
        }
        networks::refuse_own(line, &new.prefixes, &new.addresses)?;
        networks::refuse_what_is_in_use(line, None)?;
        Site::create(&self.own.config, &new)
    }
}

/// Reads what is typed or pasted up to the end of a line, or of the input.
trait ReadLineOrEnd {
    fn read_line_or_end(self, text: &mut String) -> io::Result<()>;
}

impl<R: io::BufRead> ReadLineOrEnd for R {
    fn read_line_or_end(mut self, text: &mut String) -> io::Result<()> {
        // What a mail program broke is more than one line.
        while self.read_line(text)? > 0 && !text.contains("sum=") && !text.trim().is_empty() {}
        Ok(())
    }
}

/// A node, and the line that it is given.
pub(super) struct Joining {
    pub(super) site: Site,
    pub(super) line: Line,
    pub(super) options: Options,
    /// The rate of the link to that peer, if it is not that of all.
    pub(super) rate: Option<RateConfig>,
}

impl Joining {
    /// Refuses what can't work, or would not be what anybody wants, or is not by whom it says.
    pub(super) fn check(self) -> anyhow::Result<Checked> {
        let (line, config) = (&self.line, &self.site.config);
        let own = self.site.public_key()?;
        if line.public_key == own {
            bail!(
                "this is the line of this node itself ({}): paste it at the other end. If the other end has \
                 this key too, its files were copied: make it a key of its own with `dwell init` there",
                config.node.name
            );
        }
        if let LineKind::Answer { tag, .. } = &line.kind
            && *tag != Line::tag_of(&own)
        {
            bail!(
                "this line answers another node, whose public key begins with {tag} (this one's begins \
                 with {}): paste it there, or give {} this node's line (`dwell invite`)",
                Line::tag_of(&own),
                line.name
            );
        }
        networks::refuse_own(line, &config.pairing.prefixes, &config.node.addresses)?;
        networks::refuse_what_is_in_use(line, Some(config))?;
        let has_endpoint = !line.endpoints.is_empty() || !config.pairing.endpoints.is_empty();
        if !has_endpoint {
            bail!(
                "neither end has an endpoint, so that neither could find the other: name the address that \
                 this node is reached at under [pairing] in {}, endpoints = [\"HOST:PORT\"], or that of the \
                 other one there",
                self.site.path.display()
            );
        }
        let new = self.new_peer();
        if self.site.config.peers.iter().any(|known| is_same(known, &new)) {
            // Nothing is to be changed, and the answer may have been taken long ago. If not, its offer ends with it.
            let answers = self.open_offer()?.map(|invitation| Answered { invitation, code: None });
            return Ok(Checked { joining: self, answers });
        }
        let answers = self.answered()?;
        Ok(Checked { joining: self, answers })
    }

    /// The offer that this line answers, if it is open, and the answer by whom it says.
    fn open_offer(&self) -> anyhow::Result<Option<Invitation>> {
        let LineKind::Answer { offer, .. } = &self.line.kind else { return Ok(None) };
        let open = self.site.invitations()?;
        let Some(invitation) = open.get(offer) else { return Ok(None) };
        let is_sealed = self.line.is_sealed_for(self.site.private_key()?, &invitation.pass);
        Ok(is_sealed.then(|| invitation.clone()))
    }

    /// The offer that this line answers, if it is an answer: an open one, as the other end made it.
    fn answered(&self) -> anyhow::Result<Option<Answered>> {
        let LineKind::Answer { offer, .. } = &self.line.kind else { return Ok(None) };
        let name = &self.line.name;
        let open = self.site.invitations()?;
        let Some(invitation) = open.get(offer) else {
            bail!(
                "{name} answers no line of this node that waits for an answer: each takes one, for some days. \
                 That line was answered already, is too old by the clock of this machine, or was changed on its way. Give {name} a new one \
                 (`dwell invite`), and take it there with --force"
            );
        };
        let kind = LineKind::Offer { addresses: Vec::new(), pass: invitation.pass };
        if invitation.node != self.site.line(kind, false)?.node_digest() {
            bail!(
                "{name} answers another line than this node gives now: this node's name, endpoints or prefixes \
                 were changed since. Give {name} the present one (`dwell invite`), and take it there with --force"
            );
        }
        if !self.line.is_sealed_for(self.site.private_key()?, &invitation.pass) {
            bail!(
                "this answer was changed on its way, or is not by the node whose key it names: what it says was \
                 not sealed with that key for this node. Fetch it from {name} again, over a channel that \
                 nobody else can write to"
            );
        }
        let code = self.compare_codes(&invitation.pass)?;
        Ok(Some(Answered { invitation: invitation.clone(), code }))
    }

    /// Refuses an answer whose code is not the one that was printed with it. Returns it if nobody said one.
    fn compare_codes(&self, pass: &Pass) -> anyhow::Result<Option<String>> {
        let (name, code) = (&self.line.name, self.line.code(pass));
        let typed = match &self.options.code {
            Some(typed) => Some(typed.clone()),
            None => ask_code(name)?,
        };
        match typed {
            None => Ok(Some(code)),
            Some(typed) if is_code(&code, &typed) => Ok(None),
            Some(_) => bail!(
                "the code is another one than that of this answer: it was mistyped, or {name} did not make \
                 this answer, or not of this node's line. Nothing was changed here. If the code is right, \
                 remove this node from {name} (`dwell peer remove`) and begin again with `dwell invite`, over \
                 another channel"
            ),
        }
    }

    fn new_peer(&self) -> NewPeer {
        let line = &self.line;
        NewPeer {
            name: self.options.alias.clone().unwrap_or_else(|| line.name.clone()),
            public_key: line.public_key,
            endpoint: endpoint_for(&line.endpoints, &self.site.config),
            prefixes: line.prefixes.clone(),
            psk_file: self.options.psk.clone(),
            rate: self.rate,
        }
    }

    fn add(&mut self) -> anyhow::Result<String> {
        let new = self.new_peer();
        let path = self.site.path.display().to_string();
        let mut text = self.site.text.clone();
        let known = self.site.config.peers.iter();
        let same =
            |peer: &&PeerConfig| peer.name == new.name || key_of(peer) == Some(new.public_key);
        let known: Vec<PeerConfig> = known.filter(same).cloned().collect();
        if let [known] = &known[..]
            && is_same(known, &new)
        {
            return Ok(format!("{} is a peer already: {path} stays as it is", new.name));
        }
        for known in &known {
            if !self.options.force {
                bail!(
                    "there is a peer \"{}\" already, with {}: add --force to replace it, or --as NAME to call \
                     this one otherwise",
                    known.name,
                    if key_of(known) == Some(new.public_key) {
                        "the same key and other prefixes or another endpoint"
                    } else {
                        "another key"
                    }
                );
            }
            text = edit::remove_peer(&text, &known.name)?;
        }
        let text = edit::add_peer(&text, &new)?;
        self.site.change(text)?;
        let prefixes: Vec<_> = new.prefixes.iter().map(ToString::to_string).collect();
        let word = if known.is_empty() { "added" } else { "replaced" };
        Ok(format!(
            "{word} the peer \"{}\" ({}) in {path}, with the public key {}",
            new.name,
            prefixes.join(", "),
            new.public_key
        ))
    }

    /// The line for the other end with its code, unless its line was the answer to ours.
    pub(super) fn answer(&self) -> anyhow::Result<Option<(Line, String)>> {
        let Some(pass) = self.line.pass() else { return Ok(None) };
        let kind = LineKind::Answer {
            tag: Line::tag_of(&self.line.public_key),
            offer: self.line.offer_digest(),
            seal: Seal::default(),
        };
        let answer = self.site.line(kind, self.options.psk.is_some())?;
        let answer = answer.sealed(self.site.private_key()?, &self.line.public_key, pass);
        let answer = answer.context("the key in the line is none")?;
        let code = answer.code(pass);
        Ok(Some((answer, code)))
    }
}

/// A line that was looked at.
pub(super) struct Checked {
    joining: Joining,
    answers: Option<Answered>,
}

/// An offer that is answered, and the code of the answer if nobody has compared it.
struct Answered {
    invitation: Invitation,
    code: Option<String>,
}

impl Checked {
    /// Makes the other end a peer, and says what happened. The offer takes no other answer then.
    pub(super) fn add(mut self) -> anyhow::Result<(Joining, String)> {
        let mut outcome = self.joining.add()?;
        if let Some(Answered { invitation, code }) = self.answers {
            self.joining.site.end_invitation(&invitation.offer)?;
            if let Some(code) = code {
                let name = &self.joining.line.name;
                outcome += &format!(
                    "\nThe code of its answer is {code}. If {name} printed another one, somebody has replaced \
                     the answer: remove the peer at both ends"
                );
            }
        }
        Ok((self.joining, outcome))
    }
}

/// What is pasted has all arrived after this time.
const PASTE_TIME: Duration = Duration::from_millis(300);

/// Asks on a terminal for the code that the other end printed; none if it is not given.
fn ask_code(name: &str) -> anyhow::Result<Option<String>> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(None);
    }
    // What was pasted behind the line is no answer to this question.
    std::thread::sleep(PASTE_TIME);
    rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush)?;
    let text = format!(
        "Code that {name} printed with this answer [none: nobody else can write to the channel that it came by]: "
    );
    super::init::question(&text, |typed| Ok(typed.to_owned()))
}

pub(super) fn next_step(answer: &Line, code: &str) -> String {
    format!(
        "\nAt the other end:  sudo dwell join {}\nIf it asks for the code of this answer:  {code}",
        answer.quoted()
    )
}

pub(super) fn key_of(peer: &PeerConfig) -> Option<PublicKey> {
    match &peer.security {
        Security::Keys { peer, .. } => Some(*peer),
        Security::Psk(_) | Security::None => None,
    }
}

fn is_same(known: &PeerConfig, new: &NewPeer) -> bool {
    let has_psk = matches!(&known.security, Security::Keys { psk: Some(_), .. });
    known.name == new.name
        && key_of(known) == Some(new.public_key)
        && known.prefixes == new.prefixes
        && known.endpoint == new.endpoint
        && has_psk == new.psk_file.is_some()
}

/// The first endpoint that can be reached from where the node listens; names may be either.
fn endpoint_for(endpoints: &[Endpoint], config: &Config) -> Option<Endpoint> {
    let is_v4 = config.node.listen.is_ipv4();
    let fits = |endpoint: &&Endpoint| endpoint.ip().is_none_or(|ip| ip.is_ipv4() == is_v4);
    // One that does not fit is refused with what to do.
    endpoints.iter().find(fits).or(endpoints.first()).cloned()
}

/// Reads one peer's key, prefixes and so on, as options.
pub(super) fn add_by_hand(site: &mut Site, new: &NewPeer) -> anyhow::Result<()> {
    let text = edit::add_peer(&site.text, new)?;
    site.change(text).with_context(|| format!("\"{}\" is not added", new.name))
}
