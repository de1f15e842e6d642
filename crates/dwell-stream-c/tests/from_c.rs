//! A C program with the header and the shared library.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the directory with the shared library: that of this test, or one above.
fn library_directory() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors()
        .skip(1)
        .take(2)
        .find(|directory| directory.join("libdwell_stream_c.so").exists())
        .expect("the shared library is built with the test")
        .to_owned()
}

#[test]
fn a_c_program_sends_and_receives() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = library_directory();
    let program = directory.join(format!("dwell-stream-roundtrip-{}", std::process::id()));
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let compiled = Command::new(compiler)
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(here.join("tests/roundtrip.c"))
        .arg("-I")
        .arg(here.join("include"))
        .arg("-L")
        .arg(&directory)
        .arg("-ldwell_stream_c")
        .status()
        .expect("a C compiler is there, as for building the libraries below");
    assert!(compiled.success());
    let output = Command::new(&program).env("LD_LIBRARY_PATH", &directory).output().unwrap();
    std::fs::remove_file(&program).unwrap();
    let reported = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{reported}");
    assert_eq!(output.stdout, b"all is well\n");
}
