//! What a process gives up once it is set up, so that a fault in it is worth little to whoever finds
//! it: its user and capabilities ([`privilege`]), and most system calls ([`seccomp`]). What it gives to
//! the user that it becomes is a socket in a [`directory`].

pub mod directory;
pub mod privilege;
pub mod seccomp;
