//! The checks by name.

mod links;
mod networks;
mod teardown;

use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;

use dwell_testkit::stalls::StallWatch;

use crate::Check::{self, InLab, Outside};

pub(crate) const ALL: &[(&str, Check)] = &[
    ("hosts_reach_each_other", InLab(networks::hosts_reach_each_other)),
    ("sites_reach_each_other", InLab(networks::sites_reach_each_other)),
    ("things_run_on_the_host_they_are_given", InLab(networks::things_run_on_their_host)),
    ("a_dropped_host_is_gone", InLab(networks::a_dropped_host_is_gone)),
    ("a_stubborn_process_is_killed", InLab(networks::a_stubborn_process_is_killed)),
    ("errors_say_what_happened", InLab(networks::errors_say_what_happened)),
    ("the_token_bucket_keeps_the_rate", InLab(networks::the_token_bucket_keeps_the_rate)),
    ("the_queue_pushes_back_on_sockets", InLab(networks::the_queue_pushes_back)),
    ("the_emulator_delays", InLab(links::delays)),
    ("the_emulator_keeps_the_rate", InLab(links::keeps_the_rate)),
    ("the_emulator_loses_and_doubles", InLab(links::loses_and_doubles)),
    ("the_emulator_can_be_cut_and_healed", InLab(links::can_be_cut)),
    ("the_emulator_is_fast", InLab(links::is_fast)),
    ("the_emulator_adds_little", InLab(links::adds_little)),
    ("a_dropped_link_is_gone", InLab(links::a_dropped_link_is_gone)),
    ("the_exit_code_is_passed_on", Outside(teardown::exit_code)),
    ("threads_before_the_lab_are_refused", Outside(teardown::threads)),
    ("nothing_is_left_after_the_end", Outside(teardown::after_the_end)),
    ("nothing_is_left_after_a_panic", Outside(teardown::after_a_panic)),
    ("nothing_is_left_after_ctrl_c", Outside(teardown::after_ctrl_c)),
    ("nothing_is_left_after_sigint_and_sigterm", Outside(teardown::after_sigint_and_sigterm)),
    ("nothing_is_left_after_killing_the_outer", Outside(teardown::after_killing_the_outer)),
    ("nothing_is_left_after_killing_the_inner", Outside(teardown::after_killing_the_inner)),
    ("an_interrupted_program_can_finish", Outside(teardown::can_finish)),
    ("an_ordinary_user_has_a_lab", Outside(teardown::ordinary_user)),
];

/// The reason why a check cannot run here.
#[derive(Debug)]
pub(crate) struct Skip(pub(crate) String);

impl std::fmt::Display for Skip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skip {}

/// The programs in labs that the checks of teardown start and end.
pub(crate) fn scenario(name: &str) -> ExitCode {
    teardown::scenario(name).unwrap_or_else(|error| {
        eprintln!("{error:#}");
        ExitCode::FAILURE
    })
}

pub(crate) fn read(pipe: Option<impl Read>) -> std::io::Result<String> {
    let mut text = String::new();
    pipe.map_or(Ok(0), |mut pipe| pipe.read_to_string(&mut text)).map(|_| text)
}

/// Repeats a check that depends on the clock if the machine stood still meanwhile, and only then.
/// Prints the result.
fn undisturbed(mut check: impl FnMut() -> anyhow::Result<String>) -> anyhow::Result<()> {
    const TRIES: u32 = 5;
    const STALLED_MAX: Duration = Duration::from_millis(20);
    for _ in 1..TRIES {
        let watch = StallWatch::start();
        match check() {
            Ok(said) => {
                println!("{said}");
                return Ok(());
            }
            Err(error) => {
                let stalled = watch.stop();
                if stalled <= STALLED_MAX {
                    return Err(error);
                }
                println!("{error}, but the machine stood still for {} ms", stalled.as_millis());
            }
        }
    }
    println!("{}", check()?);
    Ok(())
}
