//! Starts that are refused: at once, with what is wrong and what to do, and with every file as it was.

use scotfree_stage::scratch::Scratch;
use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Refusal {
    folder: Scratch,
}

impl Refusal {
    fn new(name: &str) -> Refusal {
        let folder = Scratch::new(name).expect("temporary files can be written");
        let refusal = Refusal { folder };
        assert!(refusal.scot(&["key", "new", "key"]).status.success());
        refusal
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn scot(&self, words: &[&str]) -> Output {
        self.scot_with(&[], words)
    }

    fn scot_with(&self, variables: &[(&str, &str)], words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_scot"));
        command.args(words).current_dir(self.folder.path()).envs(variables.iter().copied());
        command.output().expect("the command runs")
    }

    /// Runs a command that is refused and leaves `log` as it is: missing, or with these bytes.
    fn refuses(&self, words: &[&str], code: i32, parts: &[&str], log: &Path) {
        let before = fs::read(log).ok();
        assert_refused(&self.scot(words), code, parts);
        assert!(fs::read(log).ok() == before, "{words:?} has touched {}", log.display());
    }
}

fn assert_refused(output: &Output, code: i32, parts: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for part in parts {
        assert!(said.contains(part), "`{part}` is not in: {said}");
    }
}

#[test]
fn a_refused_server_leaves_its_file_as_it_was() {
    let refusal = Refusal::new("refused-kv");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("loopback has ports");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
    let taken = udp.local_addr().expect("it is bound").to_string();
    let metrics = tcp.local_addr().expect("it is bound").to_string();
    fs::write(refusal.path("bad"), "no key").expect("it can be written");
    fs::set_permissions(refusal.path("bad"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("it is ours");
    let new = refusal.path("new.wal");
    let kv = |words: &[&'static str]| [&["kv", "--log", "new.wal"], words].concat();
    let key = ["--key-file", "key"];
    let free = ["--listen", "127.0.0.1:0"];
    let with = |words: &[&'static str], more: [String; 2]| -> Vec<String> {
        kv(words).into_iter().map(str::to_owned).chain(more).collect()
    };
    let refuse = |words: Vec<String>, code, parts: &[&str]| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        refusal.refuses(&words, code, parts, &new);
    };
    refuse(with(&key, ["--listen".into(), taken.clone()]), 3, &[&taken, "ss -tulpn"]);
    refuse(with(&key, ["--listen".into(), "192.0.2.1:51000".into()]), 3, &["no such address", "ip -brief"]);
    let far = "192.0.2.1:9100";
    refuse(with(&[key, free].concat(), ["--metrics".into(), far.into()]), 3, &[far, "no such address"]);
    refuse(with(&[key, free].concat(), ["--metrics".into(), metrics.clone()]), 3, &[&metrics, "ss -tulpn"]);
    refuse(with(&free, ["--key-file".into(), "bad".into()]), 2, &["64 hexadecimal"]);
    assert!(!new.exists());
}

#[test]
fn a_file_that_may_not_grow_is_an_error_with_a_mend_and_leaves_nothing() {
    let refusal = Refusal::new("refused-size");
    let script =
        "ulimit -f 256; exec \"$0\" kv --key-file key --listen 127.0.0.1:0 --log kv.wal --log-size 16M";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_scot")]).current_dir(refusal.folder.path());
    assert_refused(&command.output().expect("sh runs"), 3, &["kv.wal", "ulimit -f"]);
    let left: Vec<_> = fs::read_dir(refusal.folder.path()).expect("it is there").flatten().collect();
    assert_eq!(left.len(), 1, "only the key: {left:?}");
}

#[test]
fn a_refused_device_leaves_its_log_as_it_was() {
    let refusal = Refusal::new("refused-switch");
    let words = ["switch", "--port", "scot-none0", "--port", "scot-none1", "--address", "10.0.0.9"];
    let words = [&words[..], &["--server", "10.0.0.2", "--device-id", "1", "--key-file", "key"]].concat();
    for log in ["ram:log:16M", "disk:log:16M"] {
        let words = [&words[..], &["--log", log]].concat();
        refusal.refuses(&words, 3, &["scot-none0"], &refusal.path("log"));
    }
    assert!(!refusal.path("log").exists());
}

#[test]
fn what_is_no_regular_file_is_refused_at_once_and_named() {
    let refusal = Refusal::new("refused-files");
    let made = Command::new("mkfifo").arg(refusal.path("pipe.toml")).status();
    assert!(made.expect("mkfifo runs").success());
    for file in ["pipe.toml", "/dev/zero", "."] {
        let parts = [file, "not a regular file"];
        assert_refused(&refusal.scot(&["--config", file, "kv"]), 2, &parts);
        assert_refused(&refusal.scot_with(&[("SCOT_CONFIG", file)], &["doctor"]), 2, &parts);
        assert_refused(&refusal.scot(&["config", "check", file]), 2, &parts);
        assert_refused(&refusal.scot(&["kv", "--key-file", file]), 2, &parts);
        assert_refused(&refusal.scot(&["log", "verify", file]), 1, &[file, "not usable as a log"]);
    }
    assert_refused(&refusal.scot(&["lab", "up", "./pipe.toml"]), 2, &["pipe.toml", "not a regular file"]);
    let load = ["lab", "load", "./pipe.toml", "--address", "127.0.0.1:1"];
    assert_refused(&refusal.scot(&load), 2, &["pipe.toml", "not a regular file"]);
}

#[test]
fn a_variable_that_is_no_setting_is_refused_with_the_nearest() {
    let refusal = Refusal::new("refused-variable");
    let output = refusal.scot_with(&[("SCOT_SWICTH_LOG", "[]")], &["config", "check"]);
    assert_refused(&output, 2, &["SCOT_SWICTH_LOG", "SCOT_SWITCH_LOG"]);
    assert!(refusal.scot_with(&[("SCOT_TEST", "1")], &["config", "check"]).status.success());
}

#[test]
fn a_server_names_each_device_once() {
    let refusal = Refusal::new("refused-devices");
    let (one, number) = ("1=10.0.0.254", "1=10.0.0.253");
    for (again, parts) in [
        (number, ["1=10.0.0.253:51000", "name each device once"]),
        ("2=10.0.0.254", ["2=10.0.0.254:51000", "name each device once"]),
    ] {
        let words = ["kv", "--key-file", "key", "--log", "new.wal", "--listen", "127.0.0.1:0"];
        let words = [&words[..], &["--device", one, "--device", again]].concat();
        refusal.refuses(&words, 2, &parts, &refusal.path("new.wal"));
        let config = format!(
            "[cluster]\nkey_file = \"key\"\n[server]\nlisten = \"10.0.0.2\"\nredis = \"127.0.0.1:6379\"\ndead_letters = \"dead\"\n\
             devices = [\"{one}\", \"{again}\"]\n"
        );
        fs::write(refusal.path("twice.toml"), config).expect("it can be written");
        assert_refused(&refusal.scot(&["config", "check", "twice.toml"]), 2, &parts);
    }
}
