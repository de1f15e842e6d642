//! Gives the shared library its name for the dynamic linker.

/// Raised whenever a program that was linked before would not work any more.
const ABI: u32 = 0;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libdwell_stream_c.so.{ABI}");
    }
}
