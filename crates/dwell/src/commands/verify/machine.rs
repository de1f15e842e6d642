//! What this machine does with packets that are not its own.

use std::process::{Command, Stdio};

/// The facts that matter, as far as they can be seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::commands) struct Machine {
    pub(in crate::commands) forwards_v4: Option<bool>,
    pub(in crate::commands) forwards_v6: Option<bool>,
    /// Chains of the firewall that drop what they do not accept, by the packets that they see.
    pub(in crate::commands) dropping: Vec<Hook>,
}

/// Where a chain of the firewall stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands) enum Hook {
    Input,
    Forward,
}

impl Machine {
    pub(in crate::commands) fn look() -> Self {
        let switch = |path: &str| {
            let text = std::fs::read_to_string(path).ok()?;
            Some(text.trim() != "0")
        };
        Self {
            forwards_v4: switch("/proc/sys/net/ipv4/ip_forward"),
            forwards_v6: switch("/proc/sys/net/ipv6/conf/all/forwarding"),
            dropping: dropping_chains(&nft_chains().unwrap_or_default()),
        }
    }
}

/// What `nft` lists, if it is installed and permitted. Rules of iptables are there, too, on systems of today.
fn nft_chains() -> Option<String> {
    let mut command = Command::new("nft");
    let output =
        command.args(["list", "chains"]).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let output = output.ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

fn dropping_chains(text: &str) -> Vec<Hook> {
    let drops = |hook: &str| {
        let mut lines = text.lines();
        lines.any(|line| line.contains(&format!("hook {hook} ")) && line.contains("policy drop"))
    };
    let hooks = [("input", Hook::Input), ("forward", Hook::Forward)];
    hooks.into_iter().filter(|(name, _)| drops(name)).map(|(_, hook)| hook).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_that_drop_are_found() {
        let text = "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; policy \
                    accept;\n\t}\n\tchain forward {\n\t\ttype filter hook forward priority filter; policy \
                    drop;\n\t}\n}\n";
        assert_eq!(dropping_chains(text), [Hook::Forward]);
        assert_eq!(dropping_chains(""), []);
    }
}
