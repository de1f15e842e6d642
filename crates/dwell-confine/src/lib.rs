//! What a process gives up once it is set up, so that a fault in it is worth little to whoever finds
//! it: its user and capabilities ([`privilege`]), and most system calls ([`seccomp`]). What it gives to
//! the user that it becomes is a socket in a [`directory`], and what it gives back to the system is free [`memory`].

pub mod directory;
pub mod memory;
pub mod privilege;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub mod seccomp;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[path = "no_seccomp.rs"]
pub mod seccomp;
