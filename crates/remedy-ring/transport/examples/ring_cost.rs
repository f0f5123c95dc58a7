//! What rings cost here: `cargo run --release -p remedy-ring-transport --example ring_cost`.

use remedy_ring_transport::cost::{idle_look_ps, RoundTrips};
use remedy_ring_transport::Notify;

fn main() -> std::io::Result<()> {
    for notify in [Notify::Marks, Notify::Summary, Notify::Pointers] {
        for rings in [1, 64, 1_024, 4_096] {
            let idle = idle_look_ps(rings, notify, 1_000_000)? as f64 / 1_000.0;
            for used in [1, rings] {
                let mut times = RoundTrips { rings, notify, used, bytes: 64, count: 200_000 }.measure()?;
                times.sort_unstable();
                let at = |share: f64| times[(times.len() as f64 * share) as usize].0;
                println!(
                    "{notify:?} {rings}: idle look {idle:.1} ns; 64 B there and back by {used}: p50 {} p99 {} ns",
                    at(0.5),
                    at(0.99)
                );
            }
        }
    }
    Ok(())
}
