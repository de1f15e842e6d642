//! Pairing: two nodes come to know each other by a line of text in each direction.
//!
//! * [`Line`]: what is pasted from one end to the other. An answer is sealed, so that changes on the way are seen.
//! * [`Invitations`]: the offers that wait for their answers, one each.
//! * [`address`]: which tunnel addresses are suggested.
//! * [`edit`]: what becomes of configuration files; their comments stay.
//!
//! All of it is pure: text in, text out. The program brings files and terminals.

pub mod address;
pub mod edit;
mod invitations;
mod line;
mod seal;

pub use invitations::{Invitation, InvitationError, Invitations, OPEN_MAX};
pub use line::{LINE_LEN_MAX, LISTED_MAX, Line, LineError, LineKind};
pub use seal::{PASS_LEN, Pass, Seal, is_code};
