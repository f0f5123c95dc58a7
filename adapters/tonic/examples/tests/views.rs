//! A method that takes its request as its slots.
#![allow(clippy::unwrap_used)]

use scotfree_tonic::Message;
use scotfree_tonic_examples::serving::Serving;
use scotfree_tonic_examples::{prosts, views};
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status};
use views::helloworld::greeter_server::{Greeter, GreeterServer};
use views::helloworld::{HelloReply, HelloRequest};

struct Greets;

#[tonic::async_trait]
impl Greeter for Greets {
    async fn say_hello(
        &self,
        request: Request<Message<HelloRequest>>,
    ) -> Result<Response<HelloReply>, Status> {
        let request = request.into_inner();
        Ok(Response::new(HelloReply { message: format!("Hello {}!", request.get().name()) }))
    }
}

#[tokio::test]
async fn a_view_is_what_a_client_of_prosts_codec_sends() {
    let serving = Serving::start(Routes::new(GreeterServer::new(Greets))).await.unwrap();
    let channel = serving.connect().await.unwrap();
    let mut client = prosts::helloworld::greeter_client::GreeterClient::new(channel);
    let request = prosts::helloworld::HelloRequest { name: "Negar".to_owned() };
    assert_eq!(client.say_hello(request).await.unwrap().into_inner().message, "Hello Negar!");
}

#[tokio::test]
async fn what_is_no_message_is_refused() {
    // A message of another type, in which the name is no text.
    let serving = Serving::start(Routes::new(GreeterServer::new(Greets))).await.unwrap();
    let channel = serving.connect().await.unwrap();
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<Vec<u8>, prosts::helloworld::HelloReply>::default();
    let path = "/helloworld.Greeter/SayHello".parse().unwrap();
    // Of a message that is bytes alone, these are field 1.
    let refused = grpc.unary(Request::new(vec![0xff, 0xfe]), path, codec).await.unwrap_err();
    assert_eq!(refused.code(), Code::Internal);
    assert!(refused.message().contains("no UTF-8"), "{}", refused.message());
}
