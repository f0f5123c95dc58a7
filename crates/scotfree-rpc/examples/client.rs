//! A client of the server that adds up numbers.
//!
//! Usage: client ADDRESS [stop]

use scotfree_rpc::{start_session, Session, SessionConfig, SessionError};
use scotfree_wire::ClusterKey;
use std::error::Error;
use std::time::Duration;

/// A real cluster has a secret key, read from a file.
const CLUSTER_KEY: [u8; 32] = [42; 32];
const KEY: &[u8] = b"sum";

fn main() -> Result<(), Box<dyn Error>> {
    let server = std::env::args().nth(1).ok_or("usage: client ADDRESS [stop]")?.parse()?;
    let mut session = start_session(&SessionConfig::new(server, ClusterKey::from_bytes(CLUSTER_KEY)))?;

    session.bypass(b"1000")?;
    println!("set: {}", reply(&mut session)?);
    // Updates are sent one behind the other; their replies come in the same order.
    for number in 1..=10 {
        session.send_update(KEY, number.to_string().as_bytes())?;
    }
    for number in 1..=10 {
        println!("added {number}: {}", reply(&mut session)?);
    }
    session.send_update(KEY, b"ten")?;
    println!("refused: {}", reply(&mut session)?);
    session.read(KEY, b"")?;
    println!("read: {}", reply(&mut session)?);
    if std::env::args().nth(2).is_some_and(|word| word == "stop") {
        session.bypass(b"stop")?;
        println!("stop: {}", reply(&mut session)?);
        // The server is gone and cannot end the session with us.
        return Ok(());
    }
    session.end_session()?;
    println!("ended");
    Ok(())
}

fn reply(session: &mut Session) -> Result<String, SessionError> {
    let reply = session.next_reply(Duration::from_secs(10))?;
    Ok(String::from_utf8_lossy(reply.bytes.unwrap_or_default()).into_owned())
}
