//! Greets.

/// The service over one of the codecs, whose modules these are.
macro_rules! greeter {
    ($of:ident, $codec:literal) => {
        #[doc = concat!("Over ", $codec, " codec.")]
        pub mod $of {
            use crate::$of::helloworld::greeter_server::{Greeter, GreeterServer};
            use crate::$of::helloworld::{HelloReply, HelloRequest};
            use tonic::{Request, Response, Status};

            struct Greets;

            #[tonic::async_trait]
            impl Greeter for Greets {
                async fn say_hello(
                    &self,
                    request: Request<HelloRequest>,
                ) -> Result<Response<HelloReply>, Status> {
                    let name = request.into_inner().name;
                    if name.is_empty() {
                        return Err(Status::invalid_argument("nobody is there"));
                    }
                    Ok(Response::new(HelloReply { message: format!("Hello {name}!") }))
                }
            }

            /// To be served.
            pub fn server() -> GreeterServer<impl Greeter> {
                GreeterServer::new(Greets)
            }
        }
    };
}

greeter!(ours, "our");
greeter!(prosts, "prost's");
