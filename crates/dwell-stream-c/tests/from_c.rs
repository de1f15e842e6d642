//! Programs in C, Python and Go with the header and the libraries, installed as by `./x install`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::{Path, PathBuf};
use std::process::Command;

use dwell_testkit::skips::skipped;

/// Returns the directory with the libraries: that of this test, or one above.
fn library_directory() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors()
        .skip(1)
        .take(2)
        .find(|directory| directory.join("libdwell_stream_c.so").exists())
        .expect("the shared library is built with the test")
        .to_owned()
}

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The library, installed into a directory of the test's own.
struct Installed(PathBuf);

impl Installed {
    fn new(name: &str) -> Self {
        let prefix = library_directory().join(format!("installed-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&prefix);
        let mut install = Command::new("sh");
        install.arg(here("install.sh")).arg(library_directory()).arg(&prefix);
        run(&mut install);
        Self(prefix)
    }

    fn library(&self) -> PathBuf {
        self.0.join("lib")
    }

    /// Compiles a program.
    fn compile(&self, source: &str, libraries: &[&str]) -> PathBuf {
        let program = self.0.join("program");
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let mut command = Command::new(compiler);
        command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
        command.arg(here(source)).arg("-I").arg(self.0.join("include"));
        command.arg("-L").arg(self.library()).args(libraries);
        run(&mut command);
        program
    }

    /// A command that finds the library.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.library());
        command.env("PKG_CONFIG_PATH", self.library().join("pkgconfig"));
        command
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a command that must succeed, and returns what it prints.
#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let reported = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {reported}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns true if a program is installed; says that it is not otherwise.
#[track_caller]
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--help").output().is_ok();
    if !found {
        skipped(format_args!("{program} is not installed"));
    }
    found
}

#[test]
fn a_c_program_sends_and_receives() {
    let installed = Installed::new("shared");
    let program = installed.compile("tests/roundtrip.c", &["-ldwell_stream_c"]);
    assert_eq!(run(&mut installed.command(&program)), "all is well\n");
    // It asks for the library by the name that says which interface it was linked with.
    let bytes = std::fs::read(&program).unwrap();
    let soname = b"libdwell_stream_c.so.0\0";
    assert!(bytes.windows(soname.len()).any(|part| part == soname));
}

#[test]
fn a_c_program_has_a_socket() {
    let installed = Installed::new("socket");
    let program = installed.compile("examples/socket.c", &["-ldwell_stream_c"]);
    assert_eq!(run(&mut installed.command(&program)), "it arrived\n");
}

/// Of a longer file than 4 MiB the rest was not sent, and yet "it arrived".
#[test]
fn a_c_program_sends_a_file_of_any_length() {
    let installed = Installed::new("file");
    let program = installed.compile("examples/socket.c", &["-ldwell_stream_c"]);
    for len in [0, 1, (4 << 20) + 1, 9_000_000] {
        let file = installed.0.join("file");
        std::fs::write(&file, &b"from a file, piece by piece\n".repeat(330_000)[..len]).unwrap();
        let output = installed.command(&program).arg(&file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && output.stdout == b"it arrived\n", "{len}: {output:?}");
        assert!(said.starts_with(&format!("{len} bytes, ")), "{len}: {said}");
    }
}

/// With the libraries that pkg-config's file names for it, and without the shared one.
#[test]
fn a_c_program_has_the_library_inside() {
    let installed = Installed::new("static");
    let description =
        std::fs::read_to_string(installed.library().join("pkgconfig/dwell-stream.pc"));
    let description = description.unwrap();
    assert!(description.contains(&format!("prefix={}", installed.0.display())), "{description}");
    assert!(description.contains(&format!("Version: {}", env!("CARGO_PKG_VERSION"))));
    let private = description.lines().find_map(|line| line.strip_prefix("Libs.private: ")).unwrap();
    let libraries: Vec<&str> =
        ["-l:libdwell_stream_c.a"].into_iter().chain(private.split_whitespace()).collect();
    let program = installed.compile("tests/roundtrip.c", &libraries);
    assert_eq!(run(&mut Command::new(program)), "all is well\n");
}

#[test]
fn pkg_config_knows_it() {
    if !has("pkg-config") {
        return;
    }
    let installed = Installed::new("pkg-config");
    let mut command = installed.command("pkg-config");
    let flags = run(command.args(["--cflags", "--libs", "--static", "dwell-stream"]));
    assert!(flags.contains("-ldwell_stream_c") && flags.contains("-lm"), "{flags}");
}

/// Returns compressed / original of what an example says that it has sent.
#[track_caller]
fn ratio(said: &str) -> f64 {
    let rest = said.strip_prefix(&format!("version {}: ", env!("CARGO_PKG_VERSION"))).expect(said);
    let rest = rest.strip_suffix(" on the wire, and the same\n").expect(said);
    let (original, wire) = rest.split_once(" bytes, ").expect(said);
    wire.parse::<f64>().expect(said) / original.parse::<f64>().expect(said)
}

/// With the default settings, for a slow reader: nothing was compressed, since all was written first, and the
/// sender never notified that the socket takes no more.
#[test]
fn a_python_program_compresses_while_its_socket_is_full() {
    if !has("python3") {
        return;
    }
    let installed = Installed::new("python");
    let said = run(installed.command("python3").arg(here("examples/stream.py")));
    assert!(ratio(&said) < 0.5, "{said}");
    // Less than a sender's buffer, so that only a full socket is a reason to compress: it holds 128 KiB.
    let small = installed.0.join("small");
    std::fs::write(&small, b"from Python, through C, by Rust\n".repeat(6_250)).unwrap();
    let said = run(installed.command("python3").arg(here("examples/stream.py")).arg(small));
    assert!(ratio(&said) < 0.8, "{said}");
}

/// The same of a writer that waits in each write. The first time Go compiles its own runtime for C, which takes half a
/// minute: part of `./x test --all`.
#[test]
#[ignore = "long: ./x test --all runs it"]
fn long_a_go_program_compresses_while_its_pipe_is_full() {
    if !has("go") || !has("pkg-config") {
        return;
    }
    let installed = Installed::new("go");
    let mut command = installed.command("go");
    command.env("GO111MODULE", "off").arg("run").arg(here("examples/stream.go"));
    let said = run(&mut command);
    assert!(ratio(&said) < 0.5, "{said}");
}
