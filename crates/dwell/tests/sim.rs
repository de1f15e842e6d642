//! `dwell sim` as a program: results that do not depend on jobs, runs that are not repeated,
//! mistakes that are reported.

// Nothing here is for others, and clippy takes a test's helpers for ordinary code.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

const SCENARIO: &str = r#"
[about]
title = "A short one"

[run]
warm_up = "10ms"
measure = "100ms"
drain = "10ms"
replications = 3

[topology]
kind = "parking-lot"
relays = 2
rate = "100mbit"
buffer_packets = 100

[traffic]
kind = "on-off"
packet_bytes = 500
rate = "60mbit"
on = "250us"
off = "50us"

[scheme]
preset = "packet"

[compress]
ratio = 0.95
time = "200us"

[[sweep]]
compress.ratio = [0.7, 0.95]

[[figure]]
id = "a"
title = "Delay"
x = "compress.ratio"
y = "target.delay_mean_s"

[[paper]]
place = "nowhere"
quantity = "delay"
where = { compress.ratio = 0.7 }
metric = "target.delay_mean_s"
value = 1
"#;

/// A directory that is gone at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dwell-sim-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("x.toml"), SCENARIO).unwrap();
        Self(path)
    }

    fn sim(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
        command.arg("sim").args(arguments).current_dir(&self.0).output().unwrap()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn reported(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn results_are_the_same_with_any_number_of_jobs() {
    let directory = Directory::new("jobs");
    for jobs in ["1", "4"] {
        let output =
            directory.sim(&["run", "x.toml", "--jobs", jobs, "--out", &format!("out{jobs}")]);
        assert_eq!(output.status.code(), Some(0), "{}", reported(&output));
    }
    for file in ["results.jsonl", "results.csv", "figures/x-a.svg"] {
        let (one, four) =
            (directory.read(&format!("out1/{file}")), directory.read(&format!("out4/{file}")));
        assert!(!one.is_empty() && one == four, "{file} depends on the number of jobs");
    }
    assert!(directory.read("out1/report.html").contains("A short one"));
}

#[test]
fn an_interrupted_sweep_goes_on() {
    let directory = Directory::new("resume");
    let run = ["run", "x.toml", "--out", "runs.jsonl"];
    assert_eq!(directory.sim(&run).status.code(), Some(0));
    let whole = directory.read("runs.jsonl");
    assert_eq!(whole.lines().count(), 6);
    let cut = &whole[..whole.len() / 2];
    fs::write(directory.0.join("runs.jsonl"), cut).unwrap();
    let output = directory.sim(&run);
    assert!(reported(&output).contains("half written"), "{}", reported(&output));
    let known = format!("{} of 6 runs are done already", cut.matches('\n').count());
    assert!(reported(&output).contains(&known), "{}", reported(&output));
    assert_eq!(directory.read("runs.jsonl"), whole);
}

#[test]
fn what_is_no_result_is_not_overwritten() {
    let directory = Directory::new("foreign");
    let run = ["run", "x.toml", "--out", "runs.jsonl"];
    let foreign = "something else\nof somebody\n";
    fs::write(directory.0.join("runs.jsonl"), foreign).unwrap();
    let output = directory.sim(&run);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        reported(&output).contains("it is no file of results; name another"),
        "{}",
        reported(&output)
    );
    assert_eq!(directory.read("runs.jsonl"), foreign);

    fs::remove_file(directory.0.join("runs.jsonl")).unwrap();
    assert_eq!(directory.sim(&run).status.code(), Some(0));
    let whole = directory.read("runs.jsonl");
    fs::write(directory.0.join("runs.jsonl"), format!("{foreign}{whole}")).unwrap();
    let output = directory.sim(&run);
    assert!(reported(&output).contains("2 lines are no runs"), "{}", reported(&output));
    assert!(reported(&output).contains("moved to runs.jsonl.dropped"), "{}", reported(&output));
    assert_eq!(directory.read("runs.jsonl.dropped"), foreign);
    assert_eq!(directory.read("runs.jsonl"), whole);
}

#[test]
fn runs_that_come_to_the_same_are_run_once_and_counted_once() {
    let directory = Directory::new("shared");
    // The ratio makes no difference to what never compresses.
    let run = ["run", "x.toml", "--set", "scheme.preset=none", "--out", "runs.jsonl"];
    let output = directory.sim(&run);
    assert_eq!((output.status.code(), reported(&output).as_str()), (Some(0), ""));
    assert_eq!(directory.read("runs.jsonl").lines().count(), 3);
    let again = directory.sim(&run);
    assert!(reported(&again).contains("3 of 3 runs are done already"), "{}", reported(&again));
}

#[test]
fn a_run_tells_what_the_figures_of_each_of_its_scenarios_want() {
    let directory = Directory::new("figures");
    // Only the second one draws a distribution, of a run that both have.
    let both = ["sawabe/fig-9", "sawabe/fig-10"];
    let output = directory.sim(&[&["reproduce", "--quick", "--out", "out"][..], &both].concat());
    assert_eq!(output.status.code(), Some(0), "{}", reported(&output));
    let again = directory.sim(&["reproduce", "--quick", "--out", "out", "sawabe/fig-10"]);
    assert!(reported(&again).contains("runs are done already"), "{}", reported(&again));
    assert!(directory.read("out/results.jsonl").contains("\"file.excess_s\":[["));
}

#[test]
fn mistakes_name_the_key_and_the_remedy() {
    let directory = Directory::new("mistakes");
    for (arguments, code, words) in [
        (&["run", "x.toml", "--set", "compress.ratoi=0.5"][..], 1, "did you mean `ratio`?"),
        (&["run", "x.toml", "--set", "topology.rate=0mbit"], 1, "--set topology.rate: a rate must"),
        (&["run", "x.toml", "--set", "compress.ratio"], 2, "has no `=`"),
        (
            &["run", "x.toml", "--set", "run.series=[\"target.dealy_s\"]"],
            1,
            "--set run.series: there is no series",
        ),
        (
            &["run", "x.toml", "--precision", "target.dealy_mean_s=0.05"],
            2,
            "--precision: no run has a value \"target.dealy_mean_s\": did you mean `target.delay_mean_s`?",
        ),
        (
            &["run", "x.toml", "--precision", "target.excess_mean_s=0.05"],
            1,
            "no run has a value for target.excess_mean_s",
        ),
        (&["run", "y.toml"], 1, "y.toml can't be read"),
        (&["run", "shimamura/fig-88"], 1, "did you mean shimamura/fig-8?"),
        (&["list", "--show", "fig-8"], 1, "no scenario or paper \"fig-8\""),
        (&["reproduce", "nobody"], 1, "no scenario or paper \"nobody\""),
        (&["report", "."], 1, "there are no runs in"),
    ] {
        let output = directory.sim(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", reported(&output));
        assert!(reported(&output).contains(words), "{arguments:?}: {}", reported(&output));
    }
}

#[test]
fn a_scenario_can_be_shown_and_run_from_a_file() {
    let directory = Directory::new("show");
    let shown = directory.sim(&["list", "--show", "shimamura/eq-3"]);
    fs::write(directory.0.join("mine.toml"), &shown.stdout).unwrap();
    let output =
        directory.sim(&["run", "mine.toml", "--quick", "--set", "run.measure=10ms", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", reported(&output));
    let lines = String::from_utf8(output.stdout).unwrap();
    let run: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert!(run["metrics"]["r1.compressions"].as_f64().unwrap() > 0.0, "{run}");
}

#[test]
fn runs_go_on_until_a_precision_is_reached_or_no_more_may_be() {
    let directory = Directory::new("precision");
    let delays = |code: i32, arguments: &[&str]| {
        let fixed = ["run", "x.toml", "--json", "--set", "scheme.preset=packet", "--precision"];
        let output = directory.sim(&[&fixed, arguments].concat());
        assert_eq!(output.status.code(), Some(code), "{}", reported(&output));
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        let values = text.lines().map(|line| {
            let run: serde_json::Value = serde_json::from_str(line).unwrap();
            let ratio = run["point"]["compress.ratio"].as_f64().unwrap();
            (ratio, run["metrics"]["target.delay_mean_s"].as_f64().unwrap())
        });
        (values.collect::<Vec<_>>(), reported(&output))
    };
    // Three runs of each point are within 35 % already.
    let (wide, said) = delays(0, &["target.delay_mean_s=0.4"]);
    assert_eq!(wide.len(), 6, "{said}");
    let (narrow, said) = delays(0, &["target.delay_mean_s=0.2"]);
    assert!(narrow.len() > wide.len() && !said.contains("not reached"), "{said}");
    for ratio in [0.7, 0.95] {
        let of_point = narrow.iter().filter(|(of, _)| *of == ratio).map(|(_, delay)| *delay);
        let delays: Vec<f64> = of_point.collect();
        let count = delays.len() as f64;
        let mean = delays.iter().sum::<f64>() / count;
        let variance = delays.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / (count - 1.0);
        // Student's t is less than this from four runs on, and not less than the normal's 1.96.
        assert!(count >= 4.0 && 1.96 * (variance / count).sqrt() <= 0.2 * mean, "{said}");
    }
    let (few, said) = delays(1, &["target.delay_mean_s=0.0001", "--most", "4"]);
    assert_eq!(few.len(), 8, "{said}");
    assert!(said.contains("the most that --most lets it do: not reached"), "{said}");
}

#[test]
fn a_trace_says_what_it_leaves_out_and_is_whole_or_not_there() {
    let directory = Directory::new("whole");
    let output = directory.sim(&["trace", "x.toml", "--out", "x.pcapng", "--packets", "7"]);
    let said = reported(&output);
    assert!(output.status.success() && said.contains("more packets are left out"), "{said}");
    let before = fs::read(directory.0.join("x.pcapng")).unwrap();
    // Far longer than anybody waits.
    let long = ["sim", "trace", "x.toml", "--out", "x.pcapng", "--set", "run.measure=\"900000s\""];
    let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
    command.args(long).current_dir(&directory.0).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    while !directory.0.join("x.pcapng.new").exists() {
        thread::sleep(Duration::from_millis(10));
        assert!(child.try_wait().unwrap().is_none());
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", reported(&output));
    assert!(!directory.0.join("x.pcapng.new").exists());
    assert_eq!(fs::read(directory.0.join("x.pcapng")).unwrap(), before);
    // A pipe is written to, and not replaced by a file.
    let output = directory.sim(&["trace", "x.toml", "--out", "/dev/stdout", "--packets", "7"]);
    assert_eq!(output.stdout, before, "{}", reported(&output));
}

#[test]
fn a_trace_of_a_simulation_is_read_back_by_others() {
    let directory = Directory::new("pcapng");
    let output = directory.sim(&["trace", "x.toml", "--out", "x.pcapng"]);
    assert_eq!(output.status.code(), Some(0), "{}", reported(&output));
    let said = reported(&output);
    let count: u64 =
        said.split("wrote ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(count > 1000, "{said}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
    command.args(["trace", "analyze", "x.pcapng", "--json"]).current_dir(&directory.0);
    let read: serde_json::Value =
        serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    assert_eq!(read["files"][0]["ip"]["packets"].as_u64(), Some(count));
    assert!(read["files"][0]["trouble"].is_null(), "{}", read["files"]);
    // Wireshark's reader, where there is one.
    let mut command = Command::new("tshark");
    command.args(["-r", "x.pcapng", "-T", "fields", "-e", "frame.interface_name", "-e", "ip.len"]);
    let Ok(output) = command.current_dir(&directory.0).output() else { return };
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count() as u64, count);
    assert!(text.lines().any(|line| line == "r1\t500"), "{text}");
    // 500 bytes at a ratio of 0.7.
    assert!(text.lines().any(|line| line == "r1\t350"), "{text}");
}

/// A stand-in for Python that prints what it is given.
fn interpreter(directory: &Directory, script: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;

    let path = directory.0.join("python");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn engines_get_the_whole_command_line_and_give_the_exit_code() {
    let directory = Directory::new("engine");
    let python = interpreter(&directory, "#!/bin/sh\nshift 2\nprintf '%s\\n' \"$@\"\nexit 7\n");
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
        command.args(words).current_dir(&directory.0).env("DWELL_PYTHON", &python).output().unwrap()
    };
    let words =
        ["sim", "run", "x.toml", "--set", "a.b=[1,2]", "--on", "slurm", "--store", "s3://b/c"];
    let done = run(&[&["-v"][..], &words, &["--verbose"]].concat());
    assert_eq!(done.status.code(), Some(7), "{}", reported(&done));
    let given = String::from_utf8_lossy(&done.stdout).into_owned();
    let given: Vec<&str> = given.lines().collect();
    assert!(given[0].starts_with(concat!(env!("CARGO_PKG_VERSION"), "+")), "{given:?}");
    assert_eq!(given[1..], words);
    let words = ["trace", "analyze", "-", "a.pcap", "--on", "dask"];
    let done = run(&words);
    assert_eq!(done.status.code(), Some(1));
    assert!(reported(&done).contains("can't be read by other processes"), "{}", reported(&done));
    // What only the package can do, and what nobody can.
    assert!(reported(&run(&["sim", "run", "x.toml", "--out", "x.parquet"])).contains("--on local"));
    assert_eq!(run(&["sim", "run", "x.toml", "--on", "clouds"]).status.code(), Some(2));
    assert_eq!(run(&["sim", "run", "x.toml", "--shard", "1/2"]).status.code(), Some(2));
}

#[test]
fn engines_without_python_name_the_remedy() {
    let directory = Directory::new("no-engine");
    let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
    command.args(["sim", "run", "x.toml", "--on", "local"]).current_dir(&directory.0);
    let done = command.env("DWELL_PYTHON", "/nowhere/python").output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    assert!(reported(&done).contains("DWELL_PYTHON"), "{}", reported(&done));
}
