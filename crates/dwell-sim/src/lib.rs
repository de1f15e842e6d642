//! Networks in virtual time, with the same decision core as the relay.
//!
//! A [`Plan`] describes the network: nodes, links with their queues, flows with their sources. A
//! [`World`] runs it, event by event in integer nanoseconds, and gives an [`Outcome`]. The same
//! plan and seed give the same outcome to the bit on any machine.
//!
//! Each link either decides by [`dwell_policy::Port`] or only queues, so that relays and plain
//! routers mix freely.

pub mod agenda;
pub mod analysis;
pub mod distribution;
pub mod effort;
pub mod library;
pub mod moment;
pub mod ns2;
pub mod outcome;
pub mod plan;
pub mod results;
pub mod scenario;
pub mod series;
pub mod source;
pub mod tcp;
pub mod trace;
pub mod world;

pub use outcome::Outcome;
pub use plan::Plan;
pub use world::World;

/// A hash of the code that results follow from: this crate, the decision core, and what both stand
/// on. Equal runs of equal code have equal results, so stored results are found again by it.
pub const CODE: &str = env!("DWELL_SIM_CODE");

#[cfg(test)]
mod tests {
    /// Results of code that was not hashed would be taken for those of other code.
    #[test]
    fn all_code_that_results_follow_from_is_hashed() {
        let hashed: Vec<&str> = env!("DWELL_SIM_CRATES").split(',').collect();
        for name in ["dwell-base", "dwell-drive", "dwell-policy", "dwell-sim"] {
            assert!(hashed.contains(&name), "{name} is not among {hashed:?}");
        }
        // Another chart is no reason to run everything again.
        assert!(!hashed.contains(&"dwell-figures"), "{hashed:?}");
    }
}
