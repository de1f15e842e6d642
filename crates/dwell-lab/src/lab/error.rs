//! Why a lab could not do something, and what helps.

use std::io;

use thiserror::Error;

/// Why a lab could not do something; the text says what helps.
#[derive(Debug, Error)]
pub enum LabError {
    /// [`super::enter`] was called too late.
    #[error("a lab must be entered before the program starts threads; this one has {0}")]
    Threads(usize),
    /// The system does not let this user make namespaces.
    #[error("cannot {doing}: {cause}. {remedy}")]
    Namespaces {
        /// What was tried.
        doing: &'static str,
        /// What the system says.
        cause: io::Error,
        /// What helps.
        remedy: String,
    },
    /// A program is not installed, or not for this user.
    #[error("cannot run `{program}`: {cause}. {remedy}")]
    Missing {
        /// Its name.
        program: String,
        /// What the system says: "permission denied" also if PATH names forbidden places.
        cause: io::Error,
        /// What helps.
        remedy: &'static str,
    },
    /// There is no TAP device to be had.
    #[error("cannot open /dev/net/tun: {cause}. {remedy}")]
    Tun {
        /// What the system says.
        cause: io::Error,
        /// What helps.
        remedy: &'static str,
    },
    /// A command said no.
    #[error("`{command}` in {place} failed ({status}): {stderr}")]
    Command {
        /// The command with its arguments.
        command: String,
        /// The host that it ran in, or "the lab".
        place: String,
        /// How it ended.
        status: std::process::ExitStatus,
        /// What it printed about it.
        stderr: String,
    },
    /// The name cannot name a host.
    #[error("\"{0}\" cannot name a host: use 1 to 32 of a-z, 0-9 and '-'")]
    Name(String),
    /// The system said no.
    #[error("cannot {doing}: {cause}")]
    Io {
        /// What was tried.
        doing: String,
        /// What the system says.
        cause: io::Error,
    },
}

impl LabError {
    /// For `map_err`: names what was tried.
    pub fn io<E: Into<io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> Self {
        let doing = doing.into();
        move |cause| Self::Io { doing, cause: cause.into() }
    }

    /// Whether the machine, and not this program, is to blame: a test may skip.
    pub fn is_not_permitted(&self) -> bool {
        matches!(self, Self::Namespaces { .. } | Self::Missing { .. } | Self::Tun { .. })
    }

    pub(crate) fn starting(program: &str, cause: io::Error) -> Self {
        if !matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) {
            return Self::Io { doing: format!("run `{program}`"), cause };
        }
        let remedy = match program {
            "ip" | "tc" => "Install iproute2, for instance: sudo apt install iproute2",
            "ping" => "Install it, for instance: sudo apt install iputils-ping",
            _ => "Install it, or correct PATH",
        };
        Self::Missing { program: program.to_owned(), cause, remedy }
    }

    pub(crate) fn tun(cause: io::Error) -> Self {
        let remedy = match cause.kind() {
            io::ErrorKind::PermissionDenied => {
                "Let every user open it, as Debian and Ubuntu do: sudo chmod 666 /dev/net/tun \
                 (what a user can do with it is limited to their own namespaces)"
            }
            io::ErrorKind::NotFound => {
                "Load the driver: sudo modprobe tun; in a container, pass the device in \
                 (--device /dev/net/tun)"
            }
            _ => "Is the driver loaded? sudo modprobe tun",
        };
        Self::Tun { cause, remedy }
    }

    /// Tells apart, by the switches that distributions have, who forbids namespaces.
    pub(crate) fn namespaces(doing: &'static str, cause: io::Error) -> Self {
        let is = |path: &str, value: &str| {
            std::fs::read_to_string(path).is_ok_and(|text| text.trim() == value)
        };
        let remedy = if is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
            "Ubuntu's AppArmor keeps ordinary users from it: sudo sysctl -w \
             kernel.apparmor_restrict_unprivileged_userns=0 (or give this program a profile \
             with `userns,`), or run it with sudo"
        } else if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
            "Debian's kernel keeps ordinary users from it: sudo sysctl -w \
             kernel.unprivileged_userns_clone=1, or run it with sudo"
        } else if is("/proc/sys/user/max_user_namespaces", "0") {
            "User namespaces are limited to none: sudo sysctl -w user.max_user_namespaces=10000, \
             or run it with sudo"
        } else {
            "Something keeps this program from making namespaces, such as the security profile \
             of a container: run it outside, or in a container with --privileged"
        };
        Self::Namespaces { doing, cause, remedy: remedy.to_owned() }
    }
}
