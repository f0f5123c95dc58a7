//! Starts other programs, watches them, and ends them.
//!
//! Invariant: every process started here is ended and reaped when its `Process` is dropped or when its
//! `Supervisor` ends all, whichever is first, and by the kernel if this process is killed; a signal is only ever sent to a child that has not been
//! reaped, so never to a stranger that was given its number.

use crate::priority::Priority;
use crate::scratch::is_scratch;
use crate::trouble::Trouble;
use scotfree_io::lifetime::end_with_starter;
use scotfree_io::priority::{begin_at_real_time, Heirs};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{sync_channel, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Processes that one supervisor watches at a time.
pub const PROCESSES_MAX: usize = 256;

const POLL: Duration = Duration::from_millis(2);
// What an error message shows of a process's last words.
const TAIL_BYTES_MAX: u64 = 2_000;

/// What to start.
#[derive(Debug, Clone)]
pub struct ProcessSpec {
    /// Its name in messages and log files.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables added to its environment.
    pub env: Vec<(OsString, OsString)>,
    /// Where `<name>.out` and `<name>.err` are written, behind what they already hold.
    pub log_folder: PathBuf,
    /// The folder it starts in; ours if none.
    pub working_folder: Option<PathBuf>,
    /// At which priority it runs.
    pub priority: Priority,
    /// Whether the threads and processes that it starts have its priority; otherwise they have the normal one.
    pub gives_priority_on: bool,
}

impl ProcessSpec {
    /// A program that logs to `log_folder`.
    pub fn new(name: &str, program: impl Into<PathBuf>, log_folder: impl Into<PathBuf>) -> ProcessSpec {
        ProcessSpec {
            name: name.to_owned(),
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            log_folder: log_folder.into(),
            working_folder: None,
            priority: Priority::Normal,
            gives_priority_on: true,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> ProcessSpec {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Runs it at a priority.
    #[must_use]
    pub fn at(mut self, priority: Priority) -> ProcessSpec {
        self.priority = priority;
        self
    }

    /// Adds a variable to the environment.
    #[must_use]
    pub fn env(mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> ProcessSpec {
        self.env.push((key.into(), value.into()));
        self
    }
}

/// What a process listens with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Socket {
    /// A listening TCP socket.
    Tcp,
    /// A bound UDP socket.
    Udp,
}

/// Starts processes and ends all that are left.
#[derive(Debug, Clone, Default)]
pub struct Supervisor {
    children: Arc<Mutex<Vec<Weak<Mutex<Child>>>>>,
}

impl Supervisor {
    /// A supervisor without processes.
    pub fn new() -> Supervisor {
        Supervisor::default()
    }

    /// Starts a program.
    pub fn spawn(&self, spec: &ProcessSpec) -> Result<Process, Trouble> {
        self.spawn_behind(&[], spec)
    }

    /// Starts a program behind the words of another, such as `ip netns exec NAME`, which must replace
    /// itself by it.
    pub fn spawn_behind(&self, prefix: &[&OsStr], spec: &ProcessSpec) -> Result<Process, Trouble> {
        let mut children = lock(&self.children);
        children.retain(|child| child.strong_count() > 0);
        if children.len() >= PROCESSES_MAX {
            return Err(Trouble::new(
                format!("start {}", spec.name),
                format!("{PROCESSES_MAX} processes are already running"),
                "end some of them first",
            ));
        }
        let process = Process::start(prefix, spec)?;
        children.push(Arc::downgrade(&process.child));
        Ok(process)
    }

    /// Ends all processes that are left, at once.
    pub fn kill_all(&self) {
        // Taken out under the lock, ended outside it: ending waits.
        let children = std::mem::take(&mut *lock(&self.children));
        for child in children.iter().filter_map(Weak::upgrade) {
            kill_and_reap(&mut lock(&child));
        }
    }
}

/// A running process; dropping it ends it.
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: u32,
    child: Arc<Mutex<Child>>,
    out: Log,
    err: Log,
}

#[derive(Debug)]
struct Log {
    path: PathBuf,
    // Where this process's output begins in a file that an earlier one may have written to.
    begin: u64,
}

impl Process {
    fn start(prefix: &[&OsStr], spec: &ProcessSpec) -> Result<Process, Trouble> {
        fs::create_dir_all(&spec.log_folder)
            .map_err(|error| Trouble::file("create the folder", &spec.log_folder, &error))?;
        let (out, out_file) = Log::open(&spec.log_folder, &spec.name, "out")?;
        let (err, err_file) = Log::open(&spec.log_folder, &spec.name, "err")?;
        let program = find_program(&spec.program).ok_or_else(|| {
            not_started(&spec.name, spec.program.as_os_str(), &io::ErrorKind::NotFound.into())
        })?;
        let mut words = prefix.iter().copied().chain([program.as_os_str()]);
        let program = words.next().expect("the program itself is a word");
        let mut command = Command::new(program);
        command.args(words).args(&spec.args).envs(spec.env.iter().cloned());
        command.stdout(out_file).stderr(err_file);
        // A group of its own: Ctrl-C reaches us alone, and we end the children in order.
        command.stdin(Stdio::piped()).process_group(0);
        if let Some(folder) = &spec.working_folder {
            command.current_dir(folder);
        }
        if spec.priority == Priority::RealTime {
            let heirs = if spec.gives_priority_on { Heirs::All } else { Heirs::None };
            begin_at_real_time(&mut command, heirs);
        }
        let mut child = spawn_for_life(command).map_err(|error| not_started(&spec.name, program, &error))?;
        // The child reads an empty input. `/dev/null` would do, but not everyone may open it.
        drop(child.stdin.take());
        let pid = child.id();
        Ok(Process { name: spec.name.clone(), pid, child: Arc::new(Mutex::new(child)), out, err })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// How it ended, if it has.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        lock(&self.child).try_wait().ok().flatten()
    }

    /// Whether it has not ended.
    pub fn is_running(&self) -> bool {
        self.exit_status().is_none()
    }

    /// Ends it as a crash would: SIGKILL.
    pub fn kill(&self) {
        kill_and_reap(&mut lock(&self.child));
    }

    /// Asks it to end (SIGTERM) and waits; after `grace` it is killed. Says how it ended.
    pub fn stop(&self, grace: Duration) -> Option<ExitStatus> {
        self.signal("TERM");
        let status = self.wait(grace);
        if status.is_none() {
            self.kill();
        }
        status.or_else(|| self.exit_status())
    }

    /// Sends a signal by its name, such as `HUP`; does nothing if the process has ended.
    pub fn signal(&self, signal: &str) {
        let mut child = lock(&self.child);
        // Not yet reaped, so the number is still its own.
        if matches!(child.try_wait(), Ok(None)) {
            // A process that ends in this very moment need not be told.
            let _ = run("sh", ["-c", "kill -s \"$1\" \"$2\"", "sh", signal, &self.pid.to_string()]);
        }
    }

    /// Waits until it ends, at most `patience`.
    pub fn wait(&self, patience: Duration) -> Option<ExitStatus> {
        let mut status = None;
        wait_until(patience, || {
            status = self.exit_status();
            status.is_some()
        });
        status
    }

    /// Waits until `is_ready`, at most `patience`. It is an error if the process ends before.
    pub fn wait_until(
        &self,
        what: &str,
        patience: Duration,
        mut is_ready: impl FnMut() -> bool,
    ) -> Result<(), Trouble> {
        let mut status = None;
        let mut ready = false;
        wait_until(patience, || {
            // Asked in this order, so that what a process did before it ended counts.
            status = self.exit_status();
            ready = is_ready();
            ready || status.is_some()
        });
        if ready {
            return Ok(());
        }
        let problem = match status {
            Some(status) => format!("it ended before ({status})"),
            None => format!("not within {} ms", patience.as_millis()),
        };
        Err(self.trouble(format!("wait until {} {what}", self.name), &problem))
    }

    /// Waits until its standard output or error contains `text`.
    pub fn wait_for_output(&self, text: &str, patience: Duration) -> Result<(), Trouble> {
        self.wait_until(&format!("prints `{text}`"), patience, || {
            [&self.out, &self.err].iter().any(|log| log.contains(text))
        })
    }

    /// Waits until a socket of the process's network namespace listens on `port`.
    pub fn wait_for_port(&self, socket: Socket, port: u16, patience: Duration) -> Result<(), Trouble> {
        self.wait_until(&format!("listens on {socket:?} port {port}"), patience, || {
            self.listens(socket, port)
        })
    }

    /// Whether a socket of the process's network namespace listens on `port`.
    pub fn listens(&self, socket: Socket, port: u16) -> bool {
        let files = match socket {
            Socket::Tcp => ["tcp", "tcp6"],
            Socket::Udp => ["udp", "udp6"],
        };
        let table = |file: &str| fs::read_to_string(format!("/proc/{}/net/{file}", self.pid));
        files.iter().any(|file| table(file).is_ok_and(|text| lists_listener(&text, socket, port)))
    }

    /// What it has printed to standard output.
    pub fn output(&self) -> String {
        self.out.read(u64::MAX)
    }

    /// What it has printed to standard error.
    pub fn error_output(&self) -> String {
        self.err.read(u64::MAX)
    }

    /// The processor time that it has used: user and system, all threads that live, to the nanosecond
    /// where the kernel counts it, else to the clock tick.
    pub fn cpu_time(&self) -> Option<Duration> {
        cpu_time_of(self.pid)
    }

    /// How often its first thread has slept so far, where the kernel says so; that it yielded, or that another
    /// took its processor, is no sleep.
    pub fn sleeps(&self) -> Option<u64> {
        sleeps_of(self.pid)
    }

    fn trouble(&self, tried: String, problem: &str) -> Trouble {
        let said = self.err.read(TAIL_BYTES_MAX) + &self.out.read(TAIL_BYTES_MAX);
        let said =
            if said.trim().is_empty() { "it printed nothing".into() } else { format!("it printed:\n{said}") };
        let file = &self.err.path;
        // Of a folder that goes with the run nobody can look into it.
        let place = if is_scratch(file) {
            "--log-folder FOLDER keeps all that is printed".to_owned()
        } else {
            format!("see {}", file.display())
        };
        Trouble::new(tried, problem, format!("{place}; {said}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Log {
    fn open(folder: &Path, name: &str, ending: &str) -> Result<(Log, File), Trouble> {
        let path = folder.join(format!("{name}.{ending}"));
        let open = || {
            let file = OpenOptions::new().append(true).create(true).open(&path)?;
            let begin = file.metadata()?.len();
            Ok((begin, file))
        };
        let (begin, file) = open().map_err(|error: io::Error| Trouble::file("write", &path, &error))?;
        Ok((Log { path, begin }, file))
    }

    /// At most the last `bytes_max` bytes that this process wrote.
    fn read(&self, bytes_max: u64) -> String {
        let read = || {
            let mut file = File::open(&self.path)?;
            let end = file.seek(SeekFrom::End(0))?;
            file.seek(SeekFrom::Start(self.begin.max(end.saturating_sub(bytes_max))))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        // A log that somebody removed says nothing.
        read().unwrap_or_else(|_: io::Error| String::new())
    }

    fn contains(&self, text: &str) -> bool {
        self.read(u64::MAX).contains(text)
    }
}

/// Polls `is_done` until it is or `patience` ends; says whether it was.
pub fn wait_until(patience: Duration, mut is_done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    loop {
        if is_done() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(POLL);
    }
}

/// Whether a table of /proc/net has a listener on `port`.
fn lists_listener(table: &str, socket: Socket, port: u16) -> bool {
    // The states of include/net/tcp_states.h: a bound UDP socket counts as closed.
    let state = match socket {
        Socket::Tcp => "0A",
        Socket::Udp => "07",
    };
    let end = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|local| local.ends_with(&end)) && words.nth(1) == Some(state)
    })
}

/// Runs a tool to its end and returns its standard output.
pub fn run<S: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = S>) -> Result<String, Trouble> {
    let mut command = Command::new(find_program(program.as_ref()).unwrap_or_else(|| program.into()));
    let output = output_of(command.args(args))?;
    let shown = show(&command);
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let problem = if said.is_empty() { output.status.to_string() } else { said };
    Err(Trouble::new(format!("run `{shown}`"), &problem, advice(program, &problem)))
}

fn output_of(command: &mut Command) -> Result<Output, Trouble> {
    // An empty pipe, since `/dev/null` is not open to everyone everywhere.
    let output = command.stdin(Stdio::piped()).output();
    output.map_err(|error| not_started(&show(command), command.get_program(), &error))
}

fn not_started(name: &str, program: &OsStr, error: &io::Error) -> Trouble {
    let program = program.to_string_lossy();
    Trouble::new(format!("start {name} (`{program}`)"), error, advice(&program, &error.to_string()))
}

fn show(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// What to do about a tool that is missing or may not do its work.
fn advice(program: &str, problem: &str) -> String {
    let tool = Path::new(program).file_name().and_then(OsStr::to_str).unwrap_or(program);
    let package = match tool {
        "ip" => "iproute2",
        "ethtool" => "ethtool",
        "redis-server" => "redis-server",
        "redis-cli" | "redis-benchmark" => "redis-tools",
        "unshare" | "mount" => "util-linux",
        "git" => "git",
        other => other,
    };
    if find_program(Path::new(program)).is_none() {
        format!("install it: apt-get install {package}")
    } else if problem.contains("ermission denied") || problem.contains("not permitted") {
        "run as root, or in a user namespace: unshare -Urnm sh -c 'mount -t tmpfs tmpfs /run; ...'".into()
    } else {
        format!("run it by hand to see more; the tool is {program}")
    }
}

/// Where a tool is: in the path, or where tools for administrators are, which not everyone's path names.
pub fn find_tool(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders =
        std::env::split_paths(&path).chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// The program's whole path, so that it is found from any folder.
fn find_program(program: &Path) -> Option<PathBuf> {
    std::path::absolute(find_tool(program.to_str()?)?).ok()
}

/// The processor time of a process.
pub fn cpu_time_of(pid: u32) -> Option<Duration> {
    // Of threads that have ended only the ticks remain; of those that live, the finer count is better.
    let ticks = cpu_ticks_of(pid)?;
    Some(cpu_nanos_of_threads(pid).map_or(ticks, |nanos| nanos.max(ticks)))
}

fn cpu_ticks_of(pid: u32) -> Option<Duration> {
    // USER_HZ is 100 on every architecture that we run on; it is part of the kernel's interface.
    const TICK: Duration = Duration::from_millis(10);
    let fields = stat_fields(pid)?;
    // Fields 14 and 15 of proc(5); the list begins with the third.
    let ticks: u32 = [11, 12].iter().filter_map(|at| fields.get(*at)?.parse::<u32>().ok()).sum();
    Some(TICK * ticks)
}

fn cpu_nanos_of_threads(pid: u32) -> Option<Duration> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let nanos = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Some(Duration::from_nanos(nanos.sum()))
}

/// How often a process's first thread has slept so far, where the kernel says so.
pub fn sleeps_of(pid: u32) -> Option<u64> {
    sleeps_in(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// The same, of the text in its `status` file.
pub fn sleeps_in(status: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?.trim().parse().ok()
}

/// When a process started, in clock ticks since boot: with its number it names a process for good.
pub fn start_ticks_of(pid: u32) -> Option<u64> {
    stat_fields(pid)?.get(19)?.parse().ok()
}

/// The fields of /proc/PID/stat from the third on; the second may contain anything.
fn stat_fields(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

/// Starts a child that the kernel ends with this process. It ends it with the thread that started it, so
/// all are started by one that outlives the others.
pub fn spawn_for_life(mut command: Command) -> io::Result<Child> {
    end_with_starter(&mut command);
    let (answer, child) = sync_channel(1);
    lock(STARTER.get_or_init(start_starter))
        .send((command, answer))
        .expect("the thread that starts children never ends");
    child.recv().expect("it answers every order")
}

/// A command, and where its child is wanted.
type Order = (Command, SyncSender<io::Result<Child>>);
static STARTER: OnceLock<Mutex<SyncSender<Order>>> = OnceLock::new();

fn start_starter() -> Mutex<SyncSender<Order>> {
    let (starter, orders) = sync_channel::<Order>(0);
    thread::spawn(move || {
        for (mut command, answer) in orders {
            // Who gave the order waits for the answer.
            let _ = answer.send(command.spawn());
        }
    });
    Mutex::new(starter)
}

fn kill_and_reap(child: &mut Child) {
    // An error means that it has been reaped already.
    let _ = child.kill();
    let _ = child.wait();
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked leaves children to be ended all the same.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::net::{TcpListener, UdpSocket};

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn a_process_is_watched_and_its_output_kept() {
        let folder = Scratch::new("process-output").expect("temporary files can be written");
        let spec =
            shell("greeter", &folder, "echo hello; echo world >&2; read line; echo read=$line; exit 3");
        let process = Supervisor::new().spawn(&spec).expect("sh starts");
        process.wait_for_output("world", PATIENCE).expect("it prints");
        let status = process.wait(PATIENCE).expect("its input is empty, so it ends");
        assert_eq!(status.code(), Some(3));
        assert_eq!(process.output(), "hello\nread=\n");
        let again = Supervisor::new().spawn(&shell("greeter", &folder, "echo again")).expect("sh starts");
        again.wait(PATIENCE).expect("it ends");
        assert_eq!(again.output(), "again\n", "an earlier process's output is not this one's");
    }

    #[test]
    fn sleeps_are_told_from_a_processor_taken() {
        let text = "Name:\tscot\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t9\n";
        assert_eq!(sleeps_in(text), Some(7));
        assert_eq!(sleeps_in("nonvoluntary_ctxt_switches:\t9\n"), None);
        assert!(sleeps_of(std::process::id()).is_some());
    }

    #[test]
    fn an_early_end_is_reported_with_its_last_words() {
        let folder = Scratch::new("process-early").expect("temporary files can be written");
        let spec = shell("broken", &folder, "echo cannot bind >&2; exit 1");
        let process = Supervisor::new().spawn(&spec).expect("sh starts");
        let error = process.wait_for_output("ready", PATIENCE).expect_err("it never is").to_string();
        assert!(error.contains("it ended before") && error.contains("cannot bind"), "{error}");
    }

    #[test]
    fn a_missing_program_is_named_with_its_mend() {
        let folder = Scratch::new("process-missing").expect("temporary files can be written");
        let spec = ProcessSpec::new("server", "scot-no-such-program", folder.path());
        let error = Supervisor::new().spawn(&spec).expect_err("it does not exist").to_string();
        assert!(error.contains("scot-no-such-program") && error.contains("apt-get install"), "{error}");
    }

    #[test]
    fn stop_asks_first_and_kills_then() {
        let folder = Scratch::new("process-stop").expect("temporary files can be written");
        let polite = shell("polite", &folder, "trap 'exit 7' TERM; echo up; while :; do sleep 0.01; done");
        let process = Supervisor::new().spawn(&polite).expect("sh starts");
        process.wait_for_output("up", PATIENCE).expect("it starts");
        assert_eq!(process.stop(PATIENCE).and_then(|status| status.code()), Some(7));
        let stubborn = shell("stubborn", &folder, "trap '' TERM; echo up; while :; do sleep 0.01; done");
        let process = Supervisor::new().spawn(&stubborn).expect("sh starts");
        process.wait_for_output("up", PATIENCE).expect("it starts");
        let status = process.stop(Duration::from_millis(20)).expect("it is dead");
        assert_eq!(status.code(), None, "it was killed: {status}");
    }

    #[test]
    fn the_supervisor_and_the_handle_both_end_a_process() {
        let folder = Scratch::new("process-end").expect("temporary files can be written");
        let supervisor = Supervisor::new();
        let one = supervisor.spawn(&shell("one", &folder, "exec sleep 1000")).expect("sh starts");
        let two = supervisor.spawn(&shell("two", &folder, "exec sleep 1000")).expect("sh starts");
        let pid = two.pid();
        drop(two);
        assert_eq!(start_ticks_of(pid), None);
        assert!(one.is_running());
        supervisor.kill_all();
        assert!(!one.is_running());
        one.kill();
    }

    #[test]
    fn a_process_outlives_the_thread_that_asked_for_it() {
        let folder = Scratch::new("process-thread").expect("temporary files can be written");
        let spec = shell("heir", &folder, "read line; echo up; exec sleep 1000");
        let start = || Supervisor::new().spawn(&spec).expect("sh starts");
        let process = thread::scope(|scope| scope.spawn(start).join().expect("no panic"));
        process.wait_for_output("up", PATIENCE).expect("it goes on");
        assert!(process.is_running());
    }

    #[test]
    fn listeners_are_seen_from_outside() {
        let folder = Scratch::new("process-port").expect("temporary files can be written");
        let process = Supervisor::new().spawn(&shell("idle", &folder, "exec sleep 1000")).expect("sh starts");
        let tcp = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
        let udp = UdpSocket::bind("127.0.0.1:0").expect("loopback has ports");
        let port = |address: io::Result<std::net::SocketAddr>| address.expect("it is bound").port();
        process.wait_for_port(Socket::Tcp, port(tcp.local_addr()), PATIENCE).expect("it is bound");
        process.wait_for_port(Socket::Udp, port(udp.local_addr()), PATIENCE).expect("it is bound");
        let tcp_port = port(tcp.local_addr());
        drop(tcp);
        // A child that another test is just starting holds all that we had open until it has become its program.
        assert!(wait_until(PATIENCE, || !process.listens(Socket::Tcp, tcp_port)));
    }

    #[test]
    fn processor_time_grows_with_work() {
        let folder = Scratch::new("process-cpu").expect("temporary files can be written");
        let process =
            Supervisor::new().spawn(&shell("busy", &folder, "while :; do :; done")).expect("sh starts");
        process
            .wait_until("has worked", PATIENCE, || process.cpu_time() > Some(Duration::from_millis(30)))
            .expect("it works");
    }

    fn shell(name: &str, folder: &Scratch, script: &str) -> ProcessSpec {
        ProcessSpec::new(name, "sh", folder.path()).args(["-c", script])
    }
}
