//! The command `scot demo`.
//!
//! Invariant: with `--json`, standard output has one object and nothing else. Who may not make network
//! namespaces gets a user namespace of his own, in this process's place.

use super::external;
use super::lab::{enter_namespaces, scot};
use crate::cli::{Demo, DemoPlane, DemoService, FitCalls};
use crate::failure::Failure;
use crate::out;
use scotfree_demo::{
    record_fit_calls, run_cached, DemoError, DemoOptions, FitCallsOptions, PlaneWish, Service,
};
use scotfree_stage::netns::RUN_FOLDER;
use scotfree_stage::process::find_tool;
use scotfree_trace::Style;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub fn run(flags: &Demo) -> Result<(), Failure> {
    if flags.cache && flags.service == DemoService::Kv {
        return Err(Failure::usage("--cache shows GETs of a Redis: leave --service kv out"));
    }
    let service = service(flags.service)?;
    let picture = flags.report.as_deref().map(Picture::plan).transpose()?;
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
        trace_folder: picture.as_ref().map(|picture| picture.traces.clone()),
    };
    let is_json = flags.json;
    if flags.cache {
        let shown = run_cached(&options, &mut |text| say(is_json, text)).map_err(failed)?;
        if is_json {
            out::line(serde_json::to_string(&shown).expect("a report is JSON"));
        }
        return Ok(());
    }
    let shown = scotfree_demo::run(&options, &mut |text| say(is_json, text)).map_err(failed)?;
    if is_json {
        out::line(serde_json::to_string(&shown.report).expect("a report is JSON"));
    }
    if let Some(picture) = picture {
        picture.draw(is_json)?;
        picture.close_the_loop(is_json, shown.report.plane)?;
    }
    if shown.is_good {
        Ok(())
    } else {
        Err(Failure::Verdict)
    }
}

/// `scot lab fit-calls`: a demonstration's device and server, called at the rates of a fit.
pub fn fit_calls(flags: &FitCalls) -> Result<(), Failure> {
    let service = service(flags.service)?;
    require_folder_of(&flags.folder)?;
    make_folder(&flags.folder).map_err(|error| {
        let what = format!("make {}", flags.folder.display());
        Failure::tried(what, &error, "name a folder in one that is yours")
    })?;
    enter_namespaces()?;
    let options = FitCallsOptions {
        scot: scot()?,
        run_folder: RUN_FOLDER.into(),
        service,
        plane: plane(flags.plane),
        log_folder: flags.log_folder.clone(),
        folder: flags.folder.clone(),
    };
    let made = record_fit_calls(&options, &mut |text| say(flags.json, text)).map_err(failed)?;
    if flags.json {
        out::line(serde_json::to_string(&made).expect("what was recorded is JSON"));
    } else {
        for file in &made.files {
            out::line(file.display());
        }
    }
    Ok(())
}

fn failed(error: DemoError) -> Failure {
    match error {
        DemoError::Config(_) => Failure::usage(error),
        DemoError::Trouble(_) => Failure::environment(error),
        DemoError::Interrupted => Failure::Interrupted(error.to_string()),
    }
}

/// The fit, beside the page.
const FIT: &str = "persist.json";

/// The study of the demo's calls.
struct Picture {
    program: PathBuf,
    traces: PathBuf,
    file: PathBuf,
}

impl Picture {
    /// Finds what draws, before the demo has taken anybody's time, and makes a folder for the calls.
    fn plan(file: &Path) -> Result<Picture, Failure> {
        require_folder_of(file)?;
        let program = external::find("study").ok_or_else(|| {
            let problem = "there is no program `scot-study` in the path";
            Failure::environment(format!("draw {}: {problem}; {}", file.display(), external::STUDY_ADVICE))
        })?;
        let traces = file.with_extension("traces");
        make_folder(&traces).map_err(|error| {
            Failure::tried(
                format!("make {}", traces.display()),
                &error,
                "name a file in a folder that is yours",
            )
        })?;
        Ok(Picture { program, traces, file: file.to_owned() })
    }

    fn draw(&self, is_json: bool) -> Result<(), Failure> {
        say(is_json, "the same calls through the study:");
        let words = ["report".into(), self.traces.clone().into(), "-o".into(), self.file.clone().into()];
        if run_program(&self.program, &words, is_json)? {
            return Ok(());
        }
        let problem = format!("draw {}: {} has not done it", self.file.display(), self.program.display());
        Err(Failure::environment(format!("{problem}; see what it says above")))
    }

    /// What the planner makes of the calls without the remedy alone, by a fit on calls that have nothing to do with
    /// them; beside it what came, and the comparison of both.
    fn close_the_loop(&self, is_json: bool, plane: &str) -> Result<(), Failure> {
        let Some(plan) = external::find("plan") else { return Ok(()) };
        let (fits, [before, after]) = (self.file.with_extension("fits"), self.both());
        say(is_json, "what the planner knew before: a fit of persist, on other calls on this machine:");
        let fit: [OsString; 6] = [
            "fit".into(),
            "--here".into(),
            "--plane".into(),
            plane.into(),
            "-o".into(),
            fits.join(FIT).into(),
        ];
        if !run_program(&plan, &fit, is_json)? {
            say(is_json, "without a fit there is no plan; make one and plan again: scot plan fit --here");
            return Ok(());
        }
        say(
            is_json,
            "the plan, of the calls without the remedy and this fit alone, and beside it what came:",
        );
        let words: [OsString; 11] = [
            before.clone().into(),
            "--only".into(),
            "persist".into(),
            "--updates".into(),
            "SET".into(),
            "--one-machine".into(),
            "--quiet".into(),
            "--fits".into(),
            fits.into(),
            "--measured".into(),
            after.clone().into(),
        ];
        run_program(&plan, &words, is_json)?;
        say(is_json, "and the comparison of both:");
        run_program(
            &self.program,
            &["compare".into(), before.into(), after.into(), "--quiet".into()],
            is_json,
        )?;
        Ok(())
    }

    fn both(&self) -> [PathBuf; 2] {
        ["baseline.jsonl", "remedy.jsonl"].map(|name| self.traces.join(name))
    }
}

/// Whether a program of the study has come to a good end; what it says is the demo's.
fn run_program(program: &Path, words: &[OsString], is_json: bool) -> Result<bool, Failure> {
    let mut command = external::command(program);
    command.args(words);
    if is_json {
        command.stdout(std::io::stderr());
    }
    let ended = command
        .status()
        .map_err(|error| Failure::environment(format!("run {}: {error}", program.display())))?;
    Ok(ended.success())
}

/// A name that was mistyped must not make folders.
fn require_folder_of(file: &Path) -> Result<(), Failure> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if folder.is_dir() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "write {}: there is no folder {}; make it, or name a file in one that is there",
        file.display(),
        folder.display()
    )))
}

/// It may be there, from an earlier demo.
fn make_folder(folder: &Path) -> std::io::Result<()> {
    match std::fs::create_dir(folder) {
        Err(_) if folder.is_dir() => Ok(()),
        made => made,
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
