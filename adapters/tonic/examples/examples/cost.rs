//! Processor time that a server takes for a call, over each codec.
//!
//! `cargo run --release --example cost`: an echo of 64 bytes, and batches of logs of 22 kB. Each server has a thread of
//! its own, whose time is counted; they are called in turns, by one client with prost's codec, 16 calls at once.

#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]

use scotfree_tonic_examples::collector;
use scotfree_tonic_examples::prosts::logs::collector_client::CollectorClient;
use scotfree_tonic_examples::prosts::logs::{Attribute, Batch, Note, Record};
use scotfree_tonic_examples::serving::Serving;
use std::error::Error;
use std::path::PathBuf;
use std::sync::mpsc;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tonic::service::Routes;
use tonic::transport::Channel;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const ROUNDS: usize = 31;
const AT_ONCE: usize = 16;

/// A server, its client, and where the kernel says what the server's thread took.
struct Server {
    name: &'static str,
    client: CollectorClient<Channel>,
    times: PathBuf,
    _end: tokio::sync::oneshot::Sender<()>,
}

impl Server {
    fn start(name: &'static str, routes: Routes, clients: &Runtime) -> Outcome<Self> {
        let (say, hear) = mpsc::channel();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        std::thread::spawn(move || {
            let own = || -> Outcome<_> {
                let thread = std::fs::read_link("/proc/thread-self")?;
                let runtime = Builder::new_current_thread().enable_all().build()?;
                let serving = runtime.block_on(Serving::start(routes))?;
                Ok((PathBuf::from("/proc").join(thread).join("schedstat"), runtime, serving))
            };
            match own() {
                Ok((times, runtime, serving)) => {
                    let serving = std::sync::Arc::new(serving);
                    let _ = say.send(Ok((times, std::sync::Arc::clone(&serving))));
                    let _ = runtime.block_on(ended);
                }
                Err(error) => drop(say.send(Err(error))),
            }
        });
        let (times, serving) = hear.recv()??;
        let client = CollectorClient::new(clients.block_on(serving.connect())?);
        Ok(Server { name, client, times, _end: end })
    }

    /// Nanoseconds of processor time so far.
    fn taken(&self) -> Outcome<f64> {
        let times = std::fs::read_to_string(&self.times)?;
        Ok(times.split(' ').next().ok_or("the kernel says no time")?.parse()?)
    }
}

#[derive(Clone)]
enum Call {
    Echo(Note),
    Export(Batch),
}

async fn calls(client: CollectorClient<Channel>, call: Call, count: usize) -> Outcome<()> {
    let mut tasks = JoinSet::new();
    for _ in 0..AT_ONCE {
        let (mut client, call) = (client.clone(), call.clone());
        tasks.spawn(async move {
            for _ in 0..count / AT_ONCE {
                match call.clone() {
                    Call::Echo(note) => drop(client.echo(note).await?),
                    Call::Export(batch) => drop(client.export(batch).await?),
                }
            }
            Ok::<_, tonic::Status>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

/// A batch of some 22 kB.
fn batch() -> Batch {
    let attribute = |key: &str, text: &str, number| Attribute { key: key.into(), text: text.into(), number };
    let record = |at: u64| Record {
        time_unix_nano: 1_700_000_000_000_000_000 + at * 977,
        severity: 9 + (at % 3) as i32,
        severity_text: "INFO".into(),
        body: format!("request {at} of /api/v1/basket took {} us", at * 37 % 9000),
        attributes: vec![
            attribute("http.method", ["GET", "POST"][at as usize % 2], 0),
            attribute("http.status_code", "", 200 + (at % 5).cast_signed()),
            attribute("service.instance.id", "basket-7f9c4d", 0),
        ],
        flags: 1,
        trace_id: vec![at as u8; 16],
        span_id: vec![at as u8; 8],
    };
    Batch { records: (0..120).map(record).collect() }
}

fn median(mut list: Vec<f64>) -> f64 {
    list.sort_by(f64::total_cmp);
    list[list.len() / 2]
}

fn main() -> Outcome<()> {
    let clients = Builder::new_current_thread().enable_all().build()?;
    let servers = [
        Server::start("prost", Routes::new(collector::prosts::server()), &clients)?,
        Server::start("structs", Routes::new(collector::ours::server()), &clients)?,
        Server::start("views", Routes::new(collector::views::server()), &clients)?,
    ];
    let batch = batch();
    let bytes = prost::Message::encoded_len(&batch);
    let cases = [
        ("echo of 64 B".to_owned(), Call::Echo(Note { text: "n".repeat(62) }), 1600),
        (format!("batch of {bytes} B"), Call::Export(batch), 320),
    ];
    for (name, call, count) in cases {
        let mut times = vec![Vec::new(); servers.len()];
        for round in 0..=ROUNDS {
            for (server, times) in servers.iter().zip(&mut times) {
                let before = server.taken()?;
                clients.block_on(calls(server.client.clone(), call.clone(), count))?;
                let taken = (server.taken()? - before) / count as f64;
                // The first warms up.
                if round > 0 {
                    times.push(taken);
                }
            }
        }
        println!("{name}: us of the server's processor time a call, {ROUNDS} rounds in turns");
        for (server, taken) in servers.iter().zip(&times) {
            let over = taken.iter().zip(&times[0]).map(|(ours, prosts)| prosts / ours).collect();
            println!("  {:8} {:7.2}  {:.3}x", server.name, median(taken.clone()) / 1000.0, median(over));
        }
    }
    Ok(())
}
