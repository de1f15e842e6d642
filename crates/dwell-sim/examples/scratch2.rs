#[path = "../tests/dumbbell.rs"]
mod d;
fn main() {
    for flows in [9, 27, 63, 99, 150, 198, 249, 300] {
        let plan = d::dumbbell(flows, None);
        let v: Vec<f64> = (0..3).map(|s| d::throughput_mbps(&plan, s)).collect();
        println!("{flows}: {v:.1?}");
    }
    let plan = d::dumbbell(198, None);
    let t = std::time::Instant::now();
    let o = dwell_sim::World::new(&plan, 1).unwrap().run();
    println!("{} packets {} events {:.3} s", o.source_packets, o.events, t.elapsed().as_secs_f64());
}
