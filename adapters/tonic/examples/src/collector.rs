//! Collects logs.

/// What is counted of a record, whichever codec made it: its texts and bytes, and one for a number that is there.
macro_rules! counted {
    ($record:ident, $read:ident) => {{
        let mut bytes = $read!($record, severity_text).len() + $read!($record, body).len();
        bytes += $read!($record, trace_id).len() + $read!($record, span_id).len();
        bytes += usize::from($read!($record, time_unix_nano) != 0);
        bytes + usize::from($read!($record, severity) != 0) + usize::from($read!($record, flags) != 0)
    }};
}

macro_rules! attribute {
    ($attribute:ident, $read:ident) => {
        $read!($attribute, key).len()
            + $read!($attribute, text).len()
            + usize::from($read!($attribute, number) != 0)
    };
}

/// A field of a struct.
macro_rules! of_struct {
    ($of:ident, $field:ident) => {
        $of.$field
    };
}

/// A field of a view.
macro_rules! of_view {
    ($of:ident, $field:ident) => {
        $of.$field()
    };
}

/// The service over one of the codecs, whose modules these are, and how a batch is counted there.
macro_rules! collector {
    ($of:ident, $batch:ty, $codec:literal, |$from:ident| $records:expr) => {
        #[doc = concat!("Over ", $codec, ".")]
        pub mod $of {
            use crate::$of::logs::collector_server::{Collector, CollectorServer};
            use crate::$of::logs::{Note, Taken};
            use tonic::{Request, Response, Status};

            struct Collects;

            #[tonic::async_trait]
            impl Collector for Collects {
                async fn export(&self, request: Request<$batch>) -> Result<Response<Taken>, Status> {
                    let $from = request.into_inner();
                    let (mut records, mut bytes) = (0, 0);
                    for counted in $records {
                        records += 1;
                        bytes += counted as u64;
                    }
                    Ok(Response::new(Taken { records, bytes }))
                }

                async fn echo(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
                    Ok(Response::new(request.into_inner()))
                }
            }

            /// To be served.
            pub fn server() -> CollectorServer<impl Collector> {
                CollectorServer::new(Collects)
            }
        }
    };
}

collector!(ours, crate::ours::logs::Batch, "our codec's structs", |batch| {
    batch.records.iter().map(|record| {
        let attributes = record.attributes.iter().map(|attribute| attribute!(attribute, of_struct));
        counted!(record, of_struct) + attributes.sum::<usize>()
    })
});
collector!(prosts, crate::prosts::logs::Batch, "prost's codec", |batch| {
    batch.records.iter().map(|record| {
        let attributes = record.attributes.iter().map(|attribute| attribute!(attribute, of_struct));
        counted!(record, of_struct) + attributes.sum::<usize>()
    })
});
collector!(views, scotfree_tonic::Message<crate::views::logs::Batch>, "our codec's views", |batch| {
    batch.get().records().map(|record| {
        let attributes = record.attributes().map(|attribute| attribute!(attribute, of_view));
        counted!(record, of_view) + attributes.sum::<usize>()
    })
});
