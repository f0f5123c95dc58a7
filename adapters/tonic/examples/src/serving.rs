//! A server on a port of its own, for as long as somebody holds it.

use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::service::Routes;
use tonic::transport::{Channel, Endpoint, Server};

/// It ends when this is dropped.
pub struct Serving {
    at: SocketAddr,
    task: JoinHandle<()>,
}

impl Serving {
    /// On a port that the system chooses.
    pub async fn start(routes: Routes) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let at = listener.local_addr()?;
        let serving =
            Server::builder().add_routes(routes).serve_with_incoming(TcpListenerStream::new(listener));
        let task = tokio::spawn(async {
            // It ends when it is aborted; what is wrong with it, a call says.
            let _ = serving.await;
        });
        Ok(Serving { at, task })
    }

    /// Where it is.
    pub fn address(&self) -> String {
        format!("http://{}", self.at)
    }

    /// A connection to it.
    pub async fn connect(&self) -> Result<Channel, tonic::transport::Error> {
        Endpoint::try_from(self.address())?.connect().await
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}
