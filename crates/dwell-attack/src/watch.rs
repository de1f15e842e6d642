//! The processor time and memory that a process uses.

use std::fs;

use anyhow::Context as _;

/// Clock ticks in a second, as `/proc` counts them; a constant of Linux' interface to programs.
const TICKS_A_SECOND: f64 = 100.0;

/// A process that is watched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched(pub(crate) u32);

impl Watched {
    /// Processor time so far, in seconds.
    pub(crate) fn cpu_seconds(self) -> anyhow::Result<f64> {
        let text = self.read("stat")?;
        // The program's name, in parentheses, may hold anything.
        let (_, rest) = text.rsplit_once(')').context("/proc has another form")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
        let (user, system) = ticks(11).zip(ticks(12)).context("/proc has another form")?;
        Ok((user + system) / TICKS_A_SECOND)
    }

    /// Memory in use, in bytes.
    pub(crate) fn resident_bytes(self) -> anyhow::Result<u64> {
        self.memory("VmRSS:")
    }

    /// The most that it ever had in use, in bytes.
    pub(crate) fn peak_bytes(self) -> anyhow::Result<u64> {
        self.memory("VmHWM:")
    }

    fn memory(self, key: &str) -> anyhow::Result<u64> {
        let text = self.read("status")?;
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        let value = line.and_then(|line| line.trim().strip_suffix("kB"));
        Ok(value.context("/proc has another form")?.trim().parse::<u64>()? << 10)
    }

    fn read(self, file: &str) -> anyhow::Result<String> {
        let path = format!("/proc/{}/{file}", self.0);
        fs::read_to_string(&path).context(path)
    }
}

/// Processor time that the kernel of this machine has spent so far on what comes from networks and on
/// the like, for whomever (softirq), in seconds.
pub(crate) fn softirq_seconds() -> anyhow::Result<f64> {
    let text = fs::read_to_string("/proc/stat")?;
    // The word `cpu`, and times: user, nice, system, idle, waiting for I/O, interrupts, softirq.
    let field = text.lines().next().and_then(|line| line.split_whitespace().nth(7));
    let ticks: f64 = field.context("/proc has another form")?.parse()?;
    Ok(ticks / TICKS_A_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_something() {
        let this = Watched(std::process::id());
        // In this order, and with the pages that the kernel counts late (64 for each processor).
        let (resident, peak) = (this.resident_bytes().unwrap(), this.peak_bytes().unwrap());
        assert!(peak + (4 << 20) >= resident, "{peak} at most, {resident} now");
        assert!(resident > 100_000);
        assert!(this.cpu_seconds().unwrap() >= 0.0 && softirq_seconds().unwrap() >= 0.0);
    }
}
