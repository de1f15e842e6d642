//! Errors of labs, and their remedies.

use std::io;

use thiserror::Error;

/// The reason why a lab could not do something; the text gives a remedy.
#[derive(Debug, Error)]
pub enum LabError {
    /// [`super::enter`] was called too late.
    #[error("a lab must be entered before the program starts threads; this one has {0}")]
    Threads(usize),
    /// The system does not let this user make namespaces.
    #[error("cannot {doing}: {cause}. {remedy}")]
    Namespaces {
        /// The attempted action.
        doing: &'static str,
        /// The system's error.
        cause: io::Error,
        /// The remedy.
        remedy: String,
    },
    /// A program is not installed, or not for this user.
    #[error("cannot run `{program}`: {cause}. {remedy}")]
    Missing {
        /// Its name.
        program: String,
        /// The system's error: "permission denied" also if PATH names forbidden places.
        cause: io::Error,
        /// The remedy.
        remedy: &'static str,
    },
    /// There is no TAP device to be had.
    #[error("cannot open /dev/net/tun: {cause}. {remedy}")]
    Tun {
        /// The system's error.
        cause: io::Error,
        /// The remedy.
        remedy: &'static str,
    },
    /// A command failed.
    #[error("`{command}` in {place} failed ({status}): {stderr}")]
    Command {
        /// The command with its arguments.
        command: String,
        /// The host that it ran in, or "the lab".
        place: String,
        /// The exit status.
        status: std::process::ExitStatus,
        /// Its error output.
        stderr: String,
    },
    /// The name cannot name a host.
    #[error("\"{0}\" cannot name a host: use 1 to 32 of a-z, 0-9 and '-'")]
    Name(String),
    /// A system call failed.
    #[error("cannot {doing}: {cause}")]
    Io {
        /// The attempted action.
        doing: String,
        /// The system's error.
        cause: io::Error,
    },
}

impl LabError {
    /// For `map_err`: names the attempted action.
    pub fn io<E: Into<io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> Self {
        let doing = doing.into();
        move |cause| Self::Io { doing, cause: cause.into() }
    }

    /// Returns true if the machine, and not this program, is the cause: a test may skip.
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

    /// Finds out, by the switches of distributions, what forbids namespaces.
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
