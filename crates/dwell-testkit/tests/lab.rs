//! Checks of the lab.
fn main() {}
