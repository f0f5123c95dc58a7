//! The command `scot demo`.
//!
//! Invariant: with `--json`, standard output has one object and nothing else. Who may not make network
//! namespaces gets a user namespace of his own, in this process's place.

use super::lab::{enter_namespaces, failed, scot};
use crate::cli::{Demo, DemoPlane, DemoService};
use crate::failure::Failure;
use crate::out;
use scotfree_lab::netns::RUN_FOLDER;
use scotfree_lab::process::find_tool;
use scotfree_lab::runs::demo::{self, DemoOptions, PlaneWish, Service};
use scotfree_trace::Style;
use std::io::{IsTerminal, Write};
use std::time::Duration;

pub fn run(flags: &Demo) -> Result<(), Failure> {
    let service = service(flags.service)?;
    enter_namespaces()?;
    let is_terminal =
        if flags.json { std::io::stderr().is_terminal() } else { std::io::stdout().is_terminal() };
    let options = DemoOptions {
        scot: scot()?,
        run_folder: RUN_FOLDER.into(),
        span: Duration::from_secs(flags.seconds),
        service,
        plane: plane(flags.plane),
        style: Style::from_environment(is_terminal),
        log_folder: flags.log_folder.clone(),
    };
    let is_json = flags.json;
    let shown = demo::run(&options, &mut |text| say(is_json, text)).map_err(failed)?;
    if is_json {
        out::line(serde_json::to_string(&shown.report).expect("a report is JSON"));
    }
    if shown.is_good {
        Ok(())
    } else {
        Err(Failure::Verdict)
    }
}

fn plane(wanted: DemoPlane) -> PlaneWish {
    match wanted {
        DemoPlane::User => PlaneWish::User,
        DemoPlane::Xdp => PlaneWish::Xdp,
        DemoPlane::Auto => PlaneWish::Auto,
    }
}

fn service(wanted: DemoService) -> Result<Service, Failure> {
    match wanted {
        DemoService::Auto => Ok(Service::installed()),
        DemoService::Kv => Ok(Service::Kv),
        DemoService::Redis if find_tool("redis-server").is_some() => Ok(Service::Redis),
        DemoService::Redis => Err(Failure::environment(
            "start a Redis: redis-server is not installed; apt-get install redis-server, or --service kv",
        )),
    }
}

fn say(is_json: bool, text: &str) {
    if is_json {
        // Nobody reads it: then nobody misses it.
        let _ = writeln!(std::io::stderr(), "{text}");
    } else {
        out::line(text);
    }
}
