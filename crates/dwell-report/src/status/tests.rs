use dwell_base::{Instant, Rate};
use dwell_policy::{Event, FrameCost, Packet, PacketId, Port, PortConfig, QueueLimit, Scheme};

use super::*;

fn count(packets: u64, bytes: u64) -> Count {
    Count { packets, bytes }
}

fn map<V>(entries: impl IntoIterator<Item = (&'static str, V)>) -> BTreeMap<String, V> {
    entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A node with one peer and something in every field.
pub(crate) fn example() -> Status {
    Status {
        schema: SCHEMA,
        version: "0.1.0".into(),
        name: "site-a".into(),
        uptime_ns: 3_600_000_000_000,
        cpu_ns: 36_000_000_000,
        seccomp: true,
        configuration: ConfigurationStatus {
            path: "/etc/dwell/relay.toml".into(),
            reloads: 1,
            refused: None,
            waits_for_restart: None,
        },
        savings: SavingsStatus {
            kept: true,
            today: Saved { plain_bytes: 2_000_000_000, taken_bytes: 1_100_000_000 },
            days_30: Saved { plain_bytes: 20_000_000_000, taken_bytes: 12_000_000_000 },
            total: Saved { plain_bytes: 100_000_000_000, taken_bytes: 60_000_000_000 },
            total_days: 120,
            cost_per_gb: Some(4.5),
            currency: "EUR".into(),
        },
        tun: TunStatus {
            name: "dwell0".into(),
            addresses: vec!["10.77.0.1/24".into()],
            mtu: 1420,
            offload: true,
            rx_packets: 1000,
            rx_bytes: 1_200_000,
            tx_packets: 900,
            tx_bytes: 90_000,
        },
        history: HistoryStatus {
            memory_bytes: 5_000_000,
            memory_bytes_max: Some(64 << 20),
            evicted: 2,
        },
        drops: map([("no_route", 3)]),
        problems: vec![],
        events: vec![],
        flows: vec![],
        web: None,
        peers: vec![PeerStatus {
            name: "hub".into(),
            endpoint: Some("198.51.100.7:7733".into()),
            prefixes: vec!["10.0.0.0/8".into(), "10.77.0.2/32".into()],
            state: PeerState::Up,
            state_for_ns: 3_000_000_000_000,
            recent: Some(RecentTraffic {
                window_ns: 8_000_000_000,
                offered_bps: 8_000_000,
                link_bps: 4_400_000,
                received_bps: 2_000_000,
                received_link_bps: 1_000_000,
                utilisation_ppm: Some(440_000),
            }),
            problems: vec![ProblemStatus {
                problem: "path_mtu".into(),
                for_ns: 12_000_000_000,
                why: "Datagrams of 1472 bytes do not arrive there.".into(),
                remedy: "Raise the path's MTU.".into(),
            }],
            security: "psk".into(),
            on_dead: "closed".to_owned(),
            scheme: "packet".into(),
            codec: "zstd".into(),
            dictionary: None,
            rate_bps: Some(10_000_000),
            rate_source: RateSource::Configured,
            mtu: 1440,
            waiting_packets: 10,
            waiting_bytes: 9000,
            waiting_ns: 7_200_000,
            rtt_ns: Some(42_000_000),
            since_received_ns: Some(1_000_000_000),
            tx: example_tx(),
            rx: example_rx(),
            one_way_ns: Some(21_000_000),
            bottleneck_bps: None,
            beyond_ns: Some(1_000_000),
            deadlines: vec![DeadlineStatus {
                class: "meters".to_owned(),
                max_wait_ns: 50_000_000,
                deadline_ns: 28_000_000,
                packets: 70,
                past_deadline: 5,
                late: 2,
                excess_mean_ns: 40_000,
                excess_max_ns: 60_000,
            }],
            traffic: vec![ClassTraffic {
                class: "meters".to_owned(),
                arrived: count(75, 7_500),
                sent: count(70, 7_000),
                compressed: count(60, 6_000),
                plain_bytes: 9_940,
                link_bytes: 3_100,
                received: count(5, 500),
                dropped: map([("queue_packets", 5)]),
                bypassed: map([("back_off", 8), ("too_small", 2)]),
                sojourn: HistogramSummary { count: 70, p99_ns: 28_060_000, ..Default::default() },
            }],
            classes: vec![ClassStatus {
                class: "tcp/443".into(),
                ratio: 0.5,
                ns_per_byte: 6.25,
                backing_off: false,
            }],
        }],
    }
}

fn example_tx() -> TxStatus {
    TxStatus {
        arrived: count(1000, 1_200_000),
        sent: count(950, 1_140_000),
        dropped: map([("queue_packets", count(40, 51_000))]),
        held: count(10, 9000),
        frames: 600,
        link_bytes: 640_000,
        plain_bytes: 1_153_300,
        net_saved_bytes: 499_400,
        compressions: 805,
        tried: 805,
        compressed: count(800, 1_000_000),
        compressed_to_bytes: 500_000,
        not_smaller: 5,
        failed: 0,
        compress_ns: 3_000_000,
        bypassed: map([("no_time", 150), ("scheme", 0)]),
        sojourn: HistogramSummary {
            count: 950,
            min_ns: 10_000,
            mean_ns: 9_000_000,
            p50_ns: 2_000_000,
            p90_ns: 50_000_000,
            p99_ns: 90_000_000,
            max_ns: 99_000_000,
            at_most: [0, 0, 5, 20, 100, 475, 600, 700, 800, 855, 950, 950, 950, 950, 950, 950],
        },
        control_datagrams: 12,
        control_bytes: 900,
        resent_datagrams: 9,
        resent_bytes: 13_000,
        copied_datagrams: 2,
        forwarded_compressed: count(30, 12_000),
        datagrams: 621,
        peer_got_datagrams: 600,
        peer_lost_datagrams: 10,
        loss: RecentLoss::of(200, 3),
        contexts: TxContexts::default(),
        send_errors: map([("ENOBUFS", 0)]),
    }
}

fn example_rx() -> RxStatus {
    RxStatus {
        datagrams: 700,
        bytes: 70_000,
        raw: 450,
        compressed: 450,
        blocks: 20,
        fragments: 7,
        dropped_records: map([("timed_out", 1)]),
        packets: count(900, 90_000),
        forwarded_compressed: count(70, 40_000),
        forwarded: count(15, 1500),
        hop_limit: 0,
        lost_datagrams: 10,
        loss: RecentLoss::of(250, 10),
        sequence_jumps: 0,
        deferred_datagrams: 0,
        over_budget: 0,
        too_many_packets: 0,
        recovered_datagrams: 4,
        unrecovered_datagrams: 1,
        replayed: 0,
        auth_failed: 2,
        malformed: 0,
        decode_failed: 0,
        skipped_records: 0,
        not_allowed: 0,
        contexts: RxContexts::default(),
        reported: Some(PeerReport {
            datagrams: 590,
            bytes: 620_000,
            records: 930,
            lost: 10,
            duplicates: 0,
            delivery_bps: 9_500_000,
            waiting_bytes: 12_000,
            waiting_ns: 9_600_000,
        }),
    }
}

/// The format that programs read: a change of a name is a new [`SCHEMA`].
const EXAMPLE_JSON: &str = r#"{
  "schema": 1,
  "version": "0.1.0",
  "name": "site-a",
  "uptime_ns": 3600000000000,
  "cpu_ns": 36000000000,
  "seccomp": true,
  "configuration": {
    "path": "/etc/dwell/relay.toml",
    "reloads": 1,
    "refused": null,
    "waits_for_restart": null
  },
  "savings": {
    "kept": true,
    "today": {
      "plain_bytes": 2000000000,
      "taken_bytes": 1100000000
    },
    "days_30": {
      "plain_bytes": 20000000000,
      "taken_bytes": 12000000000
    },
    "total": {
      "plain_bytes": 100000000000,
      "taken_bytes": 60000000000
    },
    "total_days": 120,
    "cost_per_gb": 4.5,
    "currency": "EUR"
  },
  "tun": {
    "name": "dwell0",
    "addresses": [
      "10.77.0.1/24"
    ],
    "mtu": 1420,
    "offload": true,
    "rx_packets": 1000,
    "rx_bytes": 1200000,
    "tx_packets": 900,
    "tx_bytes": 90000
  },
  "history": {
    "memory_bytes": 5000000,
    "memory_bytes_max": 67108864,
    "evicted": 2
  },
  "drops": {
    "no_route": 3
  },
  "problems": [],
  "peers": [
    {
      "name": "hub",
      "endpoint": "198.51.100.7:7733",
      "prefixes": [
        "10.0.0.0/8",
        "10.77.0.2/32"
      ],
      "state": "up",
      "state_for_ns": 3000000000000,
      "recent": {
        "window_ns": 8000000000,
        "offered_bps": 8000000,
        "link_bps": 4400000,
        "received_bps": 2000000,
        "received_link_bps": 1000000,
        "utilisation_ppm": 440000
      },
      "problems": [
        {
          "problem": "path_mtu",
          "for_ns": 12000000000,
          "why": "Datagrams of 1472 bytes do not arrive there.",
          "remedy": "Raise the path's MTU."
        }
      ],
      "security": "psk",
      "on_dead": "closed",
      "scheme": "packet",
      "codec": "zstd",
      "rate_bps": 10000000,
      "rate_source": "configured",
      "mtu": 1440,
      "waiting_packets": 10,
      "waiting_bytes": 9000,
      "waiting_ns": 7200000,
      "rtt_ns": 42000000,
      "since_received_ns": 1000000000,
      "tx": {
        "arrived": {
          "packets": 1000,
          "bytes": 1200000
        },
        "sent": {
          "packets": 950,
          "bytes": 1140000
        },
        "dropped": {
          "queue_packets": {
            "packets": 40,
            "bytes": 51000
          }
        },
        "held": {
          "packets": 10,
          "bytes": 9000
        },
        "frames": 600,
        "link_bytes": 640000,
        "plain_bytes": 1153300,
        "net_saved_bytes": 499400,
        "compressions": 805,
        "tried": 805,
        "compressed": {
          "packets": 800,
          "bytes": 1000000
        },
        "compressed_to_bytes": 500000,
        "not_smaller": 5,
        "failed": 0,
        "compress_ns": 3000000,
        "bypassed": {
          "no_time": 150,
          "scheme": 0
        },
        "sojourn": {
          "count": 950,
          "min_ns": 10000,
          "mean_ns": 9000000,
          "p50_ns": 2000000,
          "p90_ns": 50000000,
          "p99_ns": 90000000,
          "max_ns": 99000000,
          "at_most": [
            0,
            0,
            5,
            20,
            100,
            475,
            600,
            700,
            800,
            855,
            950,
            950,
            950,
            950,
            950,
            950
          ]
        },
        "control_datagrams": 12,
        "control_bytes": 900,
        "resent_datagrams": 9,
        "resent_bytes": 13000,
        "copied_datagrams": 2,
        "forwarded_compressed": {
          "packets": 30,
          "bytes": 12000
        },
        "datagrams": 621,
        "peer_got_datagrams": 600,
        "peer_lost_datagrams": 10,
        "loss": {
          "datagrams": 200,
          "lost": 3,
          "ppm": 15000
        },
        "send_errors": {
          "ENOBUFS": 0
        }
      },
      "rx": {
        "datagrams": 700,
        "bytes": 70000,
        "raw": 450,
        "compressed": 450,
        "blocks": 20,
        "fragments": 7,
        "dropped_records": {
          "timed_out": 1
        },
        "packets": {
          "packets": 900,
          "bytes": 90000
        },
        "forwarded_compressed": {
          "packets": 70,
          "bytes": 40000
        },
        "forwarded": {
          "packets": 15,
          "bytes": 1500
        },
        "hop_limit": 0,
        "lost_datagrams": 10,
        "loss": {
          "datagrams": 250,
          "lost": 10,
          "ppm": 40000
        },
        "sequence_jumps": 0,
        "deferred_datagrams": 0,
        "over_budget": 0,
        "too_many_packets": 0,
        "recovered_datagrams": 4,
        "unrecovered_datagrams": 1,
        "replayed": 0,
        "auth_failed": 2,
        "malformed": 0,
        "decode_failed": 0,
        "skipped_records": 0,
        "not_allowed": 0,
        "reported": {
          "datagrams": 590,
          "bytes": 620000,
          "records": 930,
          "lost": 10,
          "duplicates": 0,
          "delivery_bps": 9500000,
          "waiting_bytes": 12000,
          "waiting_ns": 9600000
        }
      },
      "one_way_ns": 21000000,
      "bottleneck_bps": null,
      "beyond_ns": 1000000,
      "deadlines": [
        {
          "class": "meters",
          "max_wait_ns": 50000000,
          "deadline_ns": 28000000,
          "packets": 70,
          "past_deadline": 5,
          "late": 2,
          "excess_mean_ns": 40000,
          "excess_max_ns": 60000
        }
      ],
      "traffic": [
        {
          "class": "meters",
          "arrived": {
            "packets": 75,
            "bytes": 7500
          },
          "sent": {
            "packets": 70,
            "bytes": 7000
          },
          "compressed": {
            "packets": 60,
            "bytes": 6000
          },
          "plain_bytes": 9940,
          "link_bytes": 3100,
          "received": {
            "packets": 5,
            "bytes": 500
          },
          "dropped": {
            "queue_packets": 5
          },
          "bypassed": {
            "back_off": 8,
            "too_small": 2
          },
          "sojourn": {
            "count": 70,
            "min_ns": 0,
            "mean_ns": 0,
            "p50_ns": 0,
            "p90_ns": 0,
            "p99_ns": 28060000,
            "max_ns": 0,
            "at_most": [
              0,
              0,
              0,
              0,
              0,
              0,
              0,
              0,
              0,
              0,
              0,
              0,
              0,
              0,
              0,
              0
            ]
          }
        }
      ],
      "classes": [
        {
          "class": "tcp/443",
          "ratio": 0.5,
          "ns_per_byte": 6.25,
          "backing_off": false
        }
      ]
    }
  ]
}"#;

#[test]
fn the_format_is_as_it_was() {
    let example = example();
    assert_eq!(serde_json::to_string_pretty(&example).unwrap(), EXAMPLE_JSON);
    assert_eq!(serde_json::from_str::<Status>(EXAMPLE_JSON).unwrap(), example);
}

#[test]
fn fields_of_later_versions_are_ignored() {
    let later = EXAMPLE_JSON.replace("\"frames\"", "\"news\": [1], \"frames\"");
    assert_eq!(serde_json::from_str::<Status>(&later).unwrap(), example());
}

#[test]
fn states_and_sources_are_named_as_in_json() {
    for state in [PeerState::Up, PeerState::Connecting, PeerState::Down] {
        assert_eq!(serde_json::to_value(state).unwrap(), state.name());
    }
    let sources =
        [RateSource::Configured, RateSource::Measured, RateSource::Share, RateSource::Unlimited];
    for source in sources {
        assert_eq!(serde_json::to_value(source).unwrap(), source.name());
    }
}

#[test]
fn a_ports_accounts_become_a_record_that_balances() {
    let config = PortConfig {
        scheme: Scheme::none(),
        rate: Some(Rate::from_mbps(10)),
        limit: QueueLimit::packets(3),
        frame: FrameCost::FREE,
        ..PortConfig::default()
    };
    let mut port = Port::new(config).unwrap();
    for id in 0..4 {
        let class = ClassKey::new(6, 80);
        let packet = Packet {
            id: PacketId(id),
            bytes: 100,
            source: class,
            destination: class,
            flow: 0,
            group: 0,
            max_wait_ns: Packet::NEVER_HELD,
            looks_random: false,
            takes_mark: false,
            compressed: false,
            batch_bytes_max: u32::MAX,
        };
        port.handle(Instant::ZERO, Event::Arrive(packet));
        while port.poll(Instant::ZERO).is_some() {}
    }
    let tx = TxStatus::from(port.accounts());
    assert!(tx.balances());
    assert_eq!(tx.arrived, count(4, 400));
    assert_eq!(tx.dropped["cleared"], Count::default());
    assert_eq!(tx.bypassed.len(), Bypass::ALL.len());
    assert_eq!(tx.dropped.len(), DropReason::ALL.len());
    assert_eq!(tx.dropped_total().packets + tx.sent.packets + tx.held.packets, 4);
}

#[test]
fn ratios_need_something_to_compare() {
    assert_eq!(TxStatus::default().link_ratio(), None);
    assert_eq!(TxStatus::default().compressed_ratio(), None);
    let tx = example_tx();
    assert!(tx.balances());
    assert_eq!(tx.compressed_ratio(), Some(0.5));
    assert_eq!(tx.saved_bytes(), 500_000);
}

#[test]
fn what_is_saved_is_net_of_everything_that_dwell_sends() {
    let tx = example_tx().with_savings(14);
    assert_eq!(tx.plain_bytes, 1_140_000 + 950 * 14);
    assert_eq!(tx.net_saved_bytes, 1_153_300 - 640_000 - 13_000 - 900);
    let idle = TxStatus { control_bytes: 900, ..TxStatus::default() }.with_savings(14);
    assert_eq!(idle.net_saved_bytes, -900, "a tunnel that carries nothing costs");
}

#[test]
fn learned_classes_have_names_and_units() {
    let learned = (ClassKey::new(6, 443), Ratio::from_ppm(500_000), 6_250, true);
    let expected =
        ClassStatus { class: "tcp/443".into(), ratio: 0.5, ns_per_byte: 6.25, backing_off: true };
    assert_eq!(ClassStatus::learned(learned), expected);
}
