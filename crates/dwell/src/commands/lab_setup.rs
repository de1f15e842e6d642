//! The parts that `dwell demo` and `dwell lab` share: the thin link and the relays on it.

use dwell_base::Rate;
use dwell_base::time::parse_duration_ns;
use dwell_cli::values::probability;
use dwell_lab::LinkSpec;
use dwell_lab::lab::Shape;
use dwell_lab::lab::topology::PairSpec;
use dwell_lab::relays::RelayRate;

/// Headings in the help.
pub(super) const LINK: &str = "The link";
pub(super) const RELAYS: &str = "The relays";

/// The thin link, as seen by its plainest properties.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct LinkArgs {
    /// Rate, each way
    #[arg(long, default_value = "10mbit", help_heading = LINK)]
    pub(super) rate: Rate,
    /// Delay, each way
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = parse_duration_ns)]
    #[arg(help_heading = LINK)]
    pub(super) delay: u64,
    /// Share of packets that the link loses, each way: 0.01 or 1%
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = probability)]
    #[arg(help_heading = LINK)]
    pub(super) loss: f64,
}

impl LinkArgs {
    /// The rate limit is the sending host's, where its sockets feel it; the rest is emulated.
    pub(super) fn pair_spec(&self) -> PairSpec {
        // One medium even if it does nothing: its devices carry no uncut packets, so that
        // their counters show what a real link would carry.
        let medium = LinkSpec::new().with_delay_ns(self.delay).with_loss(self.loss);
        PairSpec {
            shape: Some(Shape::new(self.rate)),
            medium: Some([medium.clone().with_seed(1), medium.with_seed(2)]),
            router: None,
        }
    }
}

pub(super) fn relay_rate(text: &str) -> Result<RelayRate, String> {
    match text {
        "auto" => Ok(RelayRate::Auto),
        "local" => Ok(RelayRate::Local),
        "unlimited" => Ok(RelayRate::Unlimited),
        rate => rate.parse().map(RelayRate::Fixed).map_err(|error| {
            format!(
                "{error}, or \"auto\" to find it by back-pressure and the peer's reports, \"local\" for \
                 back-pressure only, or \"unlimited\""
            )
        }),
    }
}

pub(super) fn relay_rate_text(rate: RelayRate) -> String {
    match rate {
        RelayRate::Auto => "auto".to_owned(),
        RelayRate::Local => "local".to_owned(),
        RelayRate::Unlimited => "unlimited".to_owned(),
        RelayRate::Fixed(rate) => rate.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_in_configurations() {
        assert_eq!(relay_rate("auto"), Ok(RelayRate::Auto));
        assert_eq!(relay_rate("2mbit"), Ok(RelayRate::Fixed(Rate::from_mbps(2))));
        assert!(relay_rate("fast").is_err_and(|why| why.contains("\"auto\"")));
    }
}
