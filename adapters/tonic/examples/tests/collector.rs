//! A batch of logs is counted the same over each codec.
#![allow(clippy::unwrap_used)]

use scotfree_tonic_examples::collector;
use scotfree_tonic_examples::prosts::logs::collector_client::CollectorClient;
use scotfree_tonic_examples::prosts::logs::{Attribute, Batch, Note, Record, Taken};
use scotfree_tonic_examples::serving::Serving;
use tonic::service::Routes;

fn batch() -> Batch {
    let attribute = |number| Attribute { key: "host".into(), text: "kiosk".into(), number };
    let record = |number| Record {
        time_unix_nano: 7,
        body: "it began".into(),
        attributes: vec![attribute(0), attribute(number)],
        span_id: vec![1; 8],
        ..Record::default()
    };
    Batch { records: (0..300).map(record).collect() }
}

async fn taken(routes: Routes) -> Taken {
    let serving = Serving::start(routes).await.unwrap();
    let mut client = CollectorClient::new(serving.connect().await.unwrap());
    let note = Note { text: "as it was".into() };
    assert_eq!(client.echo(note.clone()).await.unwrap().into_inner(), note);
    client.export(batch()).await.unwrap().into_inner()
}

#[tokio::test]
async fn each_codec_counts_the_same() {
    let expected = Taken { records: 300, bytes: 300 * (1 + 8 + 2 * 9 + 8) + 299 };
    assert_eq!(taken(Routes::new(collector::prosts::server())).await, expected);
    assert_eq!(taken(Routes::new(collector::ours::server())).await, expected);
    assert_eq!(taken(Routes::new(collector::views::server())).await, expected);
}
