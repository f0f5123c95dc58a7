//! Calls of streams, between either codec.
#![allow(clippy::unwrap_used)]

use scotfree_tonic_examples::serving::Serving;
use scotfree_tonic_examples::{ours, prosts, route};
use tokio_stream::StreamExt;
use tonic::service::Routes;
use tonic::Code;

macro_rules! guides {
    ($name:ident, $server:ident, $client:ident) => {
        #[tokio::test]
        async fn $name() {
            use $client::routeguide::route_guide_client::RouteGuideClient;
            use $client::routeguide::{Point, Rectangle, RouteNote, RouteSummary};
            let serving = Serving::start(Routes::new(route::$server::server())).await.unwrap();
            let mut client = RouteGuideClient::new(serving.connect().await.unwrap());
            let point = |longitude| Point { latitude: -7, longitude };

            let feature = client.get_feature(point(10)).await.unwrap().into_inner();
            assert_eq!((feature.name.as_str(), feature.location), ("a mill", Some(point(10))));

            let area = Rectangle { lo: Some(point(-5)), hi: Some(point(994)) };
            let listed = client.list_features(area).await.unwrap().into_inner();
            let listed: Vec<_> = listed.map(Result::unwrap).collect().await;
            assert_eq!(listed.len(), 1000);
            assert_eq!(listed[999].location, Some(point(994)));
            let refused = client.list_features(Rectangle::default()).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument);

            let points = tokio_stream::iter((1..=100).map(point).collect::<Vec<_>>());
            let summary = client.record_route(points).await.unwrap().into_inner();
            assert_eq!(summary, RouteSummary { point_count: 100, feature_count: 10, ..Default::default() });

            let note = |message: &str| RouteNote { location: Some(point(1)), message: message.to_owned() };
            let notes = tokio_stream::iter([note("here"), note("")]);
            let answers = client.route_chat(notes).await.unwrap().into_inner();
            let answers: Vec<_> = answers.map(Result::unwrap).collect().await;
            assert_eq!(answers, [note("here!"), note("!")]);
        }
    };
}

guides!(ours_guides_ours, ours, ours);
guides!(ours_guides_prosts, ours, prosts);
guides!(prosts_guides_ours, prosts, ours);
