//! The commands, one file each.
//!
//! A new command is a file with a `clap::Args` struct that has `run(self)`, and here its
//! `mod` line, its variant and its arm. Its help must have examples and exit codes.

mod check;
mod completions;
mod demo;
mod doctor;
mod engine;
mod genkey;
mod genpsk;
mod init;
mod interrupt;
mod invite;
mod join;
mod key_file;
mod lab;
mod lab_setup;
mod man;
mod networks;
mod node;
mod peer;
mod proxy;
mod pubkey;
mod recv;
mod relay;
mod send;
mod sim;
mod site;
mod status;
mod top;
mod trace;
mod transfer;
mod up;
mod verify;
mod whole_file;

use std::process::ExitCode;

use clap::Subcommand;

use crate::logging::{self, Logging};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Init(Box<init::Init>),
    Join(Box<join::Join>),
    Up(up::Up),
    Verify(verify::Verify),
    Status(status::Status),
    Top(top::Top),
    Doctor(doctor::Doctor),
    Peer(peer::Peer),
    Invite(invite::Invite),
    Relay(relay::Relay),
    Proxy(proxy::Proxy),
    Send(send::SendCommand),
    Recv(recv::Recv),
    Check(check::Check),
    Genkey(genkey::Genkey),
    Pubkey(pubkey::Pubkey),
    Genpsk(genpsk::Genpsk),
    Demo(demo::Demo),
    Lab(lab::Lab),
    Sim(sim::Sim),
    Trace(trace::Trace),
    Man(man::Man),
    Completions(completions::Completions),
}

impl Command {
    /// Does the job. An error is a job that failed; a command that has already reported what
    /// went wrong returns [`ExitCode::FAILURE`].
    pub(crate) fn run(self, logging: &Logging) -> anyhow::Result<ExitCode> {
        // How much the relay logs is for its configuration to say, and a lab is to be entered
        // before anything else happens.
        if !matches!(
            self,
            Self::Relay(_) | Self::Up(_) | Self::Join(_) | Self::Demo(_) | Self::Lab(_)
        ) {
            logging.start(logging::DEFAULT)?;
        }
        match self {
            Self::Init(command) => command.run(),
            Self::Join(command) => command.run(logging),
            Self::Up(command) => command.run(logging),
            Self::Verify(command) => command.run(),
            Self::Peer(command) => command.run(),
            Self::Invite(command) => command.run(),
            Self::Relay(command) => command.run(logging),
            Self::Proxy(command) => command.run(),
            Self::Send(command) => command.run(),
            Self::Recv(command) => command.run(),
            Self::Check(command) => command.run(),
            Self::Status(command) => command.run(),
            Self::Top(command) => command.run(),
            Self::Doctor(command) => command.run(),
            Self::Genkey(command) => command.run(),
            Self::Pubkey(command) => command.run(),
            Self::Genpsk(command) => command.run(),
            Self::Demo(command) => command.run(logging),
            Self::Lab(command) => command.run(logging),
            Self::Sim(command) => command.run(),
            Self::Trace(command) => command.run(),
            Self::Man(command) => command.run(),
            Self::Completions(command) => command.run(),
        }
    }
}
