//! What ns-2 recorded, and the same networks here, for tests and for `examples/against_ns2`.
//!
//! [`records`] reads what `validate/parking.tcl` wrote, [`parking`] is that network as a plan, and
//! [`compare`] runs it with the same streams and says which packets fared differently. [`dumbbell`]
//! is the network of `validate/dumbbell.tcl`, for means over seeds; [`blocks`] is the same with schemes that compress
//! blocks, for run by run and packet by packet.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each program that has this module uses a part of it"
)]

pub mod blocks;
pub mod compare;
pub mod dumbbell;
pub mod parking;
pub mod records;
