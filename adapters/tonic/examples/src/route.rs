//! Places and routes: a call of each kind of stream.

/// The service over one of the codecs, whose modules these are.
macro_rules! route_guide {
    ($of:ident, $codec:literal) => {
        #[doc = concat!("Over ", $codec, " codec.")]
        pub mod $of {
            use crate::$of::routeguide::route_guide_server::{RouteGuide, RouteGuideServer};
            use crate::$of::routeguide::{Feature, Point, Rectangle, RouteNote, RouteSummary};
            use tokio_stream::{Iter, StreamExt};
            use tonic::{Request, Response, Status, Streaming};

            struct Guides;

            /// Every tenth place has a name.
            fn feature(location: Point) -> Feature {
                let name = if location.longitude % 10 == 0 { "a mill" } else { "" };
                Feature { name: name.to_owned(), location: Some(location) }
            }

            #[tonic::async_trait]
            impl RouteGuide for Guides {
                type ListFeaturesStream = Iter<std::vec::IntoIter<Result<Feature, Status>>>;
                type RouteChatStream = Iter<std::vec::IntoIter<Result<RouteNote, Status>>>;

                async fn get_feature(&self, request: Request<Point>) -> Result<Response<Feature>, Status> {
                    Ok(Response::new(feature(request.into_inner())))
                }

                async fn list_features(
                    &self,
                    request: Request<Rectangle>,
                ) -> Result<Response<Self::ListFeaturesStream>, Status> {
                    let Rectangle { lo: Some(lo), hi: Some(hi) } = request.into_inner() else {
                        return Err(Status::invalid_argument("a corner is missing"));
                    };
                    let along = lo.longitude..=hi.longitude;
                    let features: Vec<_> =
                        along.map(|longitude| Ok(feature(Point { longitude, ..lo }))).collect();
                    Ok(Response::new(tokio_stream::iter(features)))
                }

                async fn record_route(
                    &self,
                    request: Request<Streaming<Point>>,
                ) -> Result<Response<RouteSummary>, Status> {
                    let mut points = request.into_inner();
                    let mut summary = RouteSummary::default();
                    while let Some(point) = points.next().await {
                        summary.point_count += 1;
                        summary.feature_count += i32::from(!feature(point?).name.is_empty());
                    }
                    Ok(Response::new(summary))
                }

                async fn route_chat(
                    &self,
                    request: Request<Streaming<RouteNote>>,
                ) -> Result<Response<Self::RouteChatStream>, Status> {
                    let mut notes = request.into_inner();
                    let mut answers = Vec::new();
                    while let Some(note) = notes.next().await {
                        let RouteNote { location, message } = note?;
                        answers.push(Ok(RouteNote { location, message: format!("{message}!") }));
                    }
                    Ok(Response::new(tokio_stream::iter(answers)))
                }
            }

            /// To be served.
            pub fn server() -> RouteGuideServer<impl RouteGuide> {
                RouteGuideServer::new(Guides)
            }
        }
    };
}

route_guide!(ours, "our");
route_guide!(prosts, "prost's");
