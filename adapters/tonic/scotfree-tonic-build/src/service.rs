//! Services as tonic-build takes them.

use heck::{ToSnakeCase, ToUpperCamelCase};
use proc_macro2::TokenStream;
use protox::prost_reflect::prost_types::{
    FileDescriptorProto, MethodDescriptorProto, MethodOptions, ServiceDescriptorProto,
};

/// A service of a file.
pub(crate) struct Service {
    name: String,
    package: String,
    identifier: String,
    methods: Vec<Method>,
    comments: Vec<String>,
}

/// One of its methods.
pub(crate) struct Method {
    name: String,
    identifier: String,
    request: TokenStream,
    response: TokenStream,
    is_client_streaming: bool,
    is_server_streaming: bool,
    is_deprecated: bool,
    comments: Vec<String>,
}

/// Those of a file. `type_of` says what a message is called in a service's module, by its full name behind a dot.
pub(crate) fn services(file: &FileDescriptorProto, type_of: &dyn Fn(&str) -> TokenStream) -> Vec<Service> {
    let services = (0..).zip(&file.service);
    services.map(|(place, of)| service(file, place, of, type_of)).collect()
}

/// Where a service is in a file's description, and a method in a service's.
const SERVICE: i32 = 6;
const METHOD: i32 = 2;

fn service(
    file: &FileDescriptorProto,
    place: i32,
    of: &ServiceDescriptorProto,
    type_of: &dyn Fn(&str) -> TokenStream,
) -> Service {
    let methods = (0..).zip(&of.method);
    Service {
        name: of.name().to_upper_camel_case(),
        package: file.package().to_owned(),
        identifier: of.name().to_owned(),
        comments: comments(file, &[SERVICE, place]),
        methods: methods
            .map(|(at, of)| method(of, comments(file, &[SERVICE, place, METHOD, at]), type_of))
            .collect(),
    }
}

fn method(
    of: &MethodDescriptorProto,
    comments: Vec<String>,
    type_of: &dyn Fn(&str) -> TokenStream,
) -> Method {
    Method {
        name: escaped(of.name().to_snake_case()),
        identifier: of.name().to_owned(),
        request: type_of(of.input_type()),
        response: type_of(of.output_type()),
        is_client_streaming: of.client_streaming(),
        is_server_streaming: of.server_streaming(),
        is_deprecated: of.options.as_ref().is_some_and(MethodOptions::deprecated),
        comments,
    }
}

/// A name that is none of Rust's own words.
pub(crate) fn escaped(name: String) -> String {
    if syn::parse_str::<syn::Ident>(&name).is_ok() {
        name
    } else if matches!(name.as_str(), "self" | "super" | "crate" | "extern") {
        format!("{name}_")
    } else {
        format!("r#{name}")
    }
}

/// What a file says above one of its parts, line by line.
fn comments(file: &FileDescriptorProto, path: &[i32]) -> Vec<String> {
    let info = file.source_code_info.iter().flat_map(|info| &info.location);
    let said = info.filter(|location| location.path == path);
    said.flat_map(|location| location.leading_comments().lines().map(str::to_owned)).collect()
}

impl tonic_build::Service for Service {
    type Comment = String;
    type Method = Method;

    fn name(&self) -> &str {
        &self.name
    }

    fn package(&self) -> &str {
        &self.package
    }

    fn identifier(&self) -> &str {
        &self.identifier
    }

    fn methods(&self) -> &[Method] {
        &self.methods
    }

    fn comment(&self) -> &[String] {
        &self.comments
    }
}

impl tonic_build::Method for Method {
    type Comment = String;

    fn name(&self) -> &str {
        &self.name
    }

    fn identifier(&self) -> &str {
        &self.identifier
    }

    fn codec_path(&self) -> &'static str {
        "::scotfree_tonic::ScotfreeCodec"
    }

    fn client_streaming(&self) -> bool {
        self.is_client_streaming
    }

    fn server_streaming(&self) -> bool {
        self.is_server_streaming
    }

    fn comment(&self) -> &[String] {
        &self.comments
    }

    fn deprecated(&self) -> bool {
        self.is_deprecated
    }

    fn request_response_name(&self, _: &str, _: bool) -> (TokenStream, TokenStream) {
        (self.request.clone(), self.response.clone())
    }
}
