//! A program that speaks to its Redis without a client's sidecar.
//!
//! Usage: `redis_client SERVER KEY_FILE [early] [COUNT]`, with the address of a `scot sidecar server`

use scotfree_resp::front::EarlyRule;
use scotfree_sidecar::client::in_process::{RedisClient, RedisClientConfig};
use scotfree_wire::ClusterKey;
use std::error::Error;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: redis_client SERVER KEY_FILE [early] [COUNT]";
    let (server, key_file) = arguments.next().zip(arguments.next()).ok_or(usage)?;
    let key = ClusterKey::from_text(&std::fs::read_to_string(key_file)?)
        .ok_or("this is no key: scot key new FILE")?;
    let mut config = RedisClientConfig::new(server.parse()?, key);
    config.spin = Duration::from_micros(200);
    let mut count = 1_000_u32;
    for word in arguments {
        match word.as_str() {
            "early" => config.early = EarlyRule::Always,
            number => count = number.parse()?,
        }
    }
    let mut redis = RedisClient::connect(&config)?;
    let mut times: Vec<Duration> = Vec::new();
    for number in 0..count.max(1) {
        let begun = Instant::now();
        redis.set("greeting", format!("hello {number}"))?;
        times.push(begun.elapsed());
    }
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!("{count} SETs: median {:?}, 99 of 100 within {:?}", at(0.5), at(0.99));
    println!("{:?}", redis.get("greeting")?.map(|value| String::from_utf8_lossy(&value).into_owned()));
    println!("{:?}", redis.command(&["INFO", "server"]).map(|_| "and any other command"));
    Ok(())
}
