//! The checks by name.

mod closed;
mod contexts;
mod doctor;
mod downloads;
mod fair;
mod faults;
mod hostile;
mod hub;
mod idle;
mod keys;
mod life;
mod links;
mod mistakes;
mod monitor;
mod mtu;
mod page;
mod pairing;
mod ports;
mod programs;
mod proxy;
mod replay;
mod routes;
mod schemes;
mod sites;
mod steps;
mod why;

use dwell_testkit::faults::Fault;

use crate::harness::Check;

/// The beginnings of the names of checks that compare times, or need all of the machine, and so must not
/// share it.
pub(crate) const ALONE: &[&str] = &[
    "a_changing_link_behind_a_router_is_found",
    "a_peer_that_sends_crowds_leaves_others_alone",
    "a_replay_agrees_with_the_relay_",
    "an_idle_link_is_silent",
    "long_a_hub_with_200_peers_",
];

/// The beginning of the names of checks that run only if they are asked for by it.
pub(crate) const LONG: &str = "long_";

pub(crate) const ALL: &[Check] = &[
    ("downloads_none_sealed", |lab| downloads::run(lab, "none", "zstd:1", true)),
    ("downloads_none_plain", |lab| downloads::run(lab, "none", "zstd:1", false)),
    ("downloads_all_lz4_sealed", |lab| downloads::run(lab, "all", "lz4", true)),
    ("downloads_all_lz4_plain", |lab| downloads::run(lab, "all", "lz4", false)),
    ("downloads_all_zstd_sealed", |lab| downloads::run(lab, "all", "zstd:1", true)),
    ("downloads_all_zstd_plain", |lab| downloads::run(lab, "all", "zstd:1", false)),
    ("downloads_all_deflate_sealed", |lab| downloads::run(lab, "all", "deflate", true)),
    ("downloads_all_deflate_plain", |lab| downloads::run(lab, "all", "deflate", false)),
    ("downloads_packet_lz4_sealed", |lab| downloads::run(lab, "packet", "lz4", true)),
    ("downloads_packet_lz4_plain", |lab| downloads::run(lab, "packet", "lz4", false)),
    ("downloads_packet_zstd_sealed", |lab| downloads::run(lab, "packet", "zstd:1", true)),
    ("downloads_packet_zstd_plain", |lab| downloads::run(lab, "packet", "zstd:1", false)),
    ("downloads_packet_deflate_sealed", |lab| downloads::run(lab, "packet", "deflate", true)),
    ("downloads_packet_deflate_plain", |lab| downloads::run(lab, "packet", "deflate", false)),
    ("downloads_packet_zstd_keyed", keys::downloads),
    ("a_wrong_public_key_gets_no_answer", keys::wrong_key),
    ("a_relay_has_the_least_privileges", keys::privileges),
    ("two_sites_pair_by_two_lines", pairing::two_sites),
    ("verify_names_what_is_wrong", pairing::mistakes),
    ("files_that_are_refused_are_explained_everywhere", mistakes::refused_files),
    ("what_keeps_a_relay_from_starting_is_in_check", mistakes::obstacles),
    ("a_restart_of_one_end_is_an_event", mistakes::restarted),
    ("savings_outlive_restarts", pairing::savings),
    ("prometheus_reads_a_relay", monitor::prometheus),
    ("a_doctor_gathers_everything_but_keys", doctor::doctor),
    ("the_web_page_has_a_password_and_no_secrets", page::closed),
    ("long_a_browser_shows_the_web_page", page::in_a_browser),
    ("iperf3_there_and_back", programs::iperf3),
    ("rsync_copies_a_tree", programs::rsync),
    ("ssh_copies_a_tree", programs::ssh),
    ("a_parking_lot_of_four_relays", |lab| sites::parking_lot(lab, false)),
    ("a_parking_lot_that_carries_on", |lab| sites::parking_lot(lab, true)),
    ("a_star_of_four_relays", sites::star),
    ("a_relay_between_two_opens_nothing_packet", |lab| sites::transit(lab, "packet")),
    ("a_relay_between_two_opens_nothing_edge", |lab| sites::transit(lab, "edge")),
    ("pings_around_the_mtu", mtu::ping_sizes),
    ("too_big_packets_are_answered", mtu::too_big),
    ("tcp_keeps_within_the_mtu", mtu::mss),
    ("a_bad_link_sealed", |lab| links::bad_link(lab, true)),
    ("a_bad_link_plain", |lab| links::bad_link(lab, false)),
    ("every_scheme_is_checked", schemes::all_are_there),
    ("a_bad_link_with_auto", |lab| schemes::over_a_bad_link(lab, "auto")),
    ("a_bad_link_with_none", |lab| schemes::over_a_bad_link(lab, "none")),
    ("a_bad_link_with_all", |lab| schemes::over_a_bad_link(lab, "all")),
    ("a_bad_link_with_packet", |lab| schemes::over_a_bad_link(lab, "packet")),
    ("decisions_are_repeated_from_journals", schemes::decisions_are_repeated),
    ("a_bad_link_with_flow", |lab| schemes::over_a_bad_link(lab, "flow")),
    ("a_bad_link_with_service", |lab| schemes::over_a_bad_link(lab, "service")),
    ("a_bad_link_with_host_pair", |lab| schemes::over_a_bad_link(lab, "host-pair")),
    ("a_bad_link_with_edge", |lab| schemes::over_a_bad_link(lab, "edge")),
    ("a_bad_link_with_basicq", |lab| schemes::over_a_bad_link(lab, "basicq")),
    ("a_bad_link_with_chumq", |lab| schemes::over_a_bad_link(lab, "chumq")),
    ("a_bad_link_with_chumq_cea", |lab| schemes::over_a_bad_link(lab, "chumq+cea")),
    ("a_bad_link_with_chutq_dcf", |lab| schemes::over_a_bad_link(lab, "chutq-dcf")),
    ("a_bad_link_with_chutq_dcf_cea", |lab| schemes::over_a_bad_link(lab, "chutq-dcf+cea")),
    ("a_bad_link_with_chutq_tpf", |lab| schemes::over_a_bad_link(lab, "chutq-tpf")),
    ("a_bad_link_with_chutq_tpf_cea", |lab| schemes::over_a_bad_link(lab, "chutq-tpf+cea")),
    ("a_bad_link_with_chutq_cef", |lab| schemes::over_a_bad_link(lab, "chutq-cef")),
    ("a_bad_link_with_chutq_cef_cea", |lab| schemes::over_a_bad_link(lab, "chutq-cef+cea")),
    ("contexts_over_a_bad_link", |lab| contexts::downloads(lab, "host-pair", "host-pair")),
    ("contexts_of_a_peer_over_a_bad_link", |lab| contexts::downloads(lab, "edge", "peer")),
    ("contexts_after_a_restart", contexts::restarts),
    ("contexts_after_kills_at_random", |lab| contexts::restarts_at_random(lab, 1, 4)),
    ("long_contexts_with_an_older_program", contexts::older_program),
    ("long_contexts_after_kills_1", |lab| contexts::restarts_at_random(lab, 2, 5)),
    ("long_contexts_after_kills_2", |lab| contexts::restarts_at_random(lab, 3, 5)),
    ("long_contexts_after_kills_3", |lab| contexts::restarts_at_random(lab, 4, 5)),
    ("long_contexts_after_kills_4", |lab| contexts::restarts_at_random(lab, 5, 5)),
    ("a_hub_with_many_peers_after_kills", |lab| hub::kills(lab, 12, 1)),
    ("long_a_hub_with_200_peers_after_kills", |lab| hub::kills(lab, 200, 2)),
    ("loss_is_reported_within_seconds", links::loss),
    ("a_peer_that_sends_crowds_leaves_others_alone", fair::crowds),
    ("a_changing_link_behind_a_router_is_found", steps::found),
    ("a_link_behind_a_router_is_not_felt", steps::not_found),
    ("a_replay_agrees_with_the_relay_none", |lab| replay::agrees(lab, "none")),
    ("a_replay_agrees_with_the_relay_all", |lab| replay::agrees(lab, "all")),
    ("a_replay_agrees_with_the_relay_packet", |lab| replay::agrees(lab, "packet")),
    ("a_replay_agrees_with_the_relay_flow", |lab| replay::agrees(lab, "flow")),
    ("a_replay_agrees_with_the_relay_auto", |lab| replay::agrees(lab, "auto")),
    ("a_replay_agrees_with_the_relay_edge", |lab| replay::agrees(lab, "edge")),
    ("an_idle_link_is_silent", idle::idle),
    ("a_bad_configuration_is_refused", life::bad_config),
    ("an_unreachable_peer_does_no_harm", life::unreachable_peer),
    ("a_closed_port_is_named", why::closed_port),
    ("a_path_that_swallows_long_packets_is_found", why::black_hole),
    ("another_user_cannot_share_a_port", ports::are_not_shared),
    ("a_peer_moves_after_privileges_were_dropped", ports::are_shared_after_roaming),
    ("nothing_leaves_while_a_peer_is_connecting", closed::while_connecting),
    ("nothing_leaves_while_a_relay_is_dead", closed::while_dead),
    ("routes_that_are_removed_come_back", routes::come_back),
    ("routes_that_win_over_ours_are_named", routes::are_named_if_they_win),
    ("a_wrong_key_gets_no_answer", hostile::wrong_key),
    ("rubbish_and_replays_do_no_harm", hostile::rubbish),
    ("replayed_hellos_do_no_harm", hostile::replayed_hellos),
    ("lies_about_lengths_do_no_harm", hostile::lies),
    ("readers_who_do_not_read_do_no_harm", hostile::readers),
    ("a_relay_out_of_descriptors_waits", hostile::no_descriptors),
    ("a_deleted_tun_comes_back", life::tun_deleted),
    ("a_reload_loses_nothing", life::reload_under_load),
    ("a_stopped_relay_leaves_cleanly", life::stop_under_load),
    ("a_killed_relay_is_gone_around", life::fail_open),
    ("a_killed_relay_is_waited_for", life::fail_closed),
    ("after_kill_ingress_with_keys", |lab| faults::survives(lab, Fault::KillIngress, true)),
    ("after_kill_egress_with_keys", |lab| faults::survives(lab, Fault::KillEgress, true)),
    ("after_freeze_with_keys", |lab| faults::survives(lab, Fault::Freeze, true)),
    ("after_link_down_with_keys", |lab| faults::survives(lab, Fault::LinkDown, true)),
    ("after_address_with_keys", |lab| faults::survives(lab, Fault::Address, true)),
    ("after_log_full_with_keys", |lab| faults::survives(lab, Fault::LogFull, true)),
    ("after_log_closed_with_keys", |lab| faults::survives(lab, Fault::LogClosed, true)),
    ("after_log_unread_with_keys", |lab| faults::survives(lab, Fault::LogUnread, true)),
    ("after_reload_with_keys", |lab| faults::survives(lab, Fault::Reload, true)),
    ("after_kill_ingress_with_psk", |lab| faults::survives(lab, Fault::KillIngress, false)),
    ("after_kill_egress_with_psk", |lab| faults::survives(lab, Fault::KillEgress, false)),
    ("after_freeze_with_psk", |lab| faults::survives(lab, Fault::Freeze, false)),
    ("after_link_down_with_psk", |lab| faults::survives(lab, Fault::LinkDown, false)),
    ("after_address_with_psk", |lab| faults::survives(lab, Fault::Address, false)),
    ("operators_commands", life::commands),
    ("proxies_carry_curl", proxy::curl),
    ("a_large_stream_of_proxies_leaves_room_to_small_ones", proxy::pace),
    ("proxies_carry_rsync", proxy::rsync),
    ("proxies_carry_redis", proxy::redis),
    ("proxies_carry_postgresql", proxy::postgres),
    ("proxies_carry_what_tproxy_brings", proxy::transparent),
    ("proxies_work_as_documented", proxy::documented),
    ("a_receiver_names_an_address_that_leads_there", proxy::receive),
    ("what_goes_early_over_a_long_way_arrives", proxy::early),
];
