//! The privileges of a proxy once it runs.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;

use dwell_confine::privilege::{self, User};

use crate::pair::{Pair, Process, echo};

/// A value of each thread's status.
fn of_threads(process: &Process, key: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.0.id())).unwrap();
    let statuses = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("status")));
    statuses
        .map(|status| {
            let status = status.unwrap();
            let found = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            found.unwrap_or_else(|| panic!("no {key} in {status}")).trim().to_owned()
        })
        .collect()
}

fn all_are(process: &Process, key: &str, expected: &str) {
    let values = of_threads(process, key);
    assert!(values.len() > 2 && values.iter().all(|value| value == expected), "{key}: {values:?}");
}

fn carries(pair: &Pair) {
    let mut stream = pair.connect();
    stream.write_all(b"through both").unwrap();
    let mut got = [0; 12];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"through both");
}

/// Returns true if a proxy that this process starts becomes somebody else.
fn changes_user() -> bool {
    privilege::is_root() && privilege::can_become(User { uid: 65_534, gid: 65_534 })
}

#[test]
fn a_proxy_has_the_least_privileges() {
    let pair = Pair::new(echo(), &[], &[]);
    carries(&pair);
    for process in [&pair.ingress, &pair.egress] {
        all_are(process, "Seccomp", "2");
        all_are(process, "NoNewPrivs", "1");
        // Nobody but root may look into what is not dumpable.
        let memory = fs::metadata(format!("/proc/{}/mem", process.0.id())).unwrap();
        assert_eq!(memory.uid(), 0, "it can be dumped");
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            all_are(process, set, "0000000000000000");
        }
        if changes_user() {
            all_are(process, "CapBnd", "0000000000000000");
            for ids in ["Uid", "Gid"] {
                all_are(process, ids, "65534\t65534\t65534\t65534");
            }
            all_are(process, "Groups", "");
        } else {
            println!("what root becomes is not looked at: this is not root, or it can't");
        }
    }
    assert!(pair.statuses().iter().all(|status| status.seccomp));
}

#[test]
fn who_says_so_keeps_user_and_calls() {
    let as_it_is = ["--user", "none", "--no-seccomp"];
    let pair = Pair::new(echo(), &as_it_is, &as_it_is);
    carries(&pair);
    for process in [&pair.ingress, &pair.egress] {
        all_are(process, "Seccomp", "0");
        let own = rustix::process::geteuid().as_raw();
        all_are(process, "Uid", &vec![own.to_string(); 4].join("\t"));
        all_are(process, "CapEff", "0000000000000000");
    }
    assert!(pair.statuses().iter().all(|status| !status.seccomp));
}
