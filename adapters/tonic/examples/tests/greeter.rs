//! A call of one message each way, between either codec.
#![allow(clippy::unwrap_used)]

use scotfree_tonic_examples::serving::Serving;
use scotfree_tonic_examples::{greeter, ours, prosts};
use tonic::service::Routes;
use tonic::Code;

macro_rules! greets {
    ($name:ident, $server:ident, $client:ident) => {
        #[tokio::test]
        async fn $name() {
            let serving = Serving::start(Routes::new(greeter::$server::server())).await.unwrap();
            let channel = serving.connect().await.unwrap();
            let mut client = $client::helloworld::greeter_client::GreeterClient::new(channel);
            let request = |name: &str| $client::helloworld::HelloRequest { name: name.to_owned() };
            for name in ["Negar", "Zoë", &"long ".repeat(20_000)] {
                let reply = client.say_hello(request(name)).await.unwrap().into_inner();
                assert_eq!(reply.message, format!("Hello {name}!"));
            }
            let refused = client.say_hello(request("")).await.unwrap_err();
            assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, "nobody is there"));
        }
    };
}

greets!(ours_greets_ours, ours, ours);
greets!(ours_greets_prosts, ours, prosts);
greets!(prosts_greets_ours, prosts, ours);

#[tokio::test]
async fn clients_connect_by_themselves() {
    let serving = Serving::start(Routes::new(greeter::ours::server())).await.unwrap();
    let client = ours::helloworld::greeter_client::GreeterClient::connect(serving.address());
    let request = ours::helloworld::HelloRequest { name: "Negar".to_owned() };
    let reply = client.await.unwrap().say_hello(request).await.unwrap().into_inner();
    assert_eq!(reply.message, "Hello Negar!");
}
