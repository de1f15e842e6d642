#[path = "../tests/parking_lot.rs"]
mod pl;
fn main() {
    let plan = pl::parking_lot(10, dwell_policy::Scheme::packet(), 0.95);
    for seed in 0..0 {
        let v = pl::run(&plan, seed).metrics();
        for n in 1..10 { print!("{:.0}/{:.0} ", v[&format!("r{n}.pressed.target")], v[&format!("r{n}.pressed.cross")]); }
        println!();
    }
    let plan = pl::parking_lot(2, dwell_policy::Scheme::packet(), 0.95);
    let t = std::time::Instant::now();
    let o: u64 = (0..20).map(|s| pl::run(&plan, s).source_packets).sum();
    println!("packet {:.2} M/s", o as f64 / t.elapsed().as_secs_f64() / 1e6);
    let plan = pl::parking_lot(2, dwell_policy::Scheme::none(), 0.95);
    let t = std::time::Instant::now();
    let o: u64 = (0..20).map(|s| pl::run(&plan, s).source_packets).sum();
    println!("none {:.2} M/s", o as f64 / t.elapsed().as_secs_f64() / 1e6);
}
