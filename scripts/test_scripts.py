"""Tests of the shell scripts, in folders where programs are missing or pretend to be others."""

import os
import re
import shutil
import subprocess
import tempfile
import tomllib
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What the scripts use of the system, whatever else is missing. They also look into /usr/sbin, so that `ip` and
# `ethtool` may be there in any case.
ALWAYS = "bash sh cat cut env grep id mktemp rm sed sleep sort tail true uname dirname mkdir".split()
ENOUGH = "ip unshare redis-server redis-cli redis-benchmark ethtool clang-14 pkg-config make chromium".split()
ENOUGH += ["prometheus", "promtool", "etcd"]
# A package manager that offers what lies in OFFERED, and fails whole for one name that it does not.
APT_GET = """#!/bin/sh
echo "$0 $*" | sed 's,.*/,,' >>"$RECORD"
[ "$1" != install ] && exit 0
for word in "$@"; do
  case $word in
    install | -*) ;;
    *) grep -qx "$word .*" "$OFFERED" || { echo "E: Unable to locate package $word" >&2; exit 100; } ;;
  esac
done
"""
APT_CACHE = """#!/bin/sh
case $1 in
  policy) version=$(sed -n "s/^$2 //p" "$OFFERED"); printf '%s:\\n  Candidate: %s\\n' "$2" "${version:-(none)}" ;;
  search) sed -nE 's/^(clang-[0-9]+) .*/\\1 - compiler/p' "$OFFERED" ;;
esac
"""
CARGO = """#!/bin/sh
case $1 in
  metadata) HOME=$REAL_HOME exec "$REAL_CARGO" "$@" ;;
  --version) echo "cargo 1.${MINOR:-99}.0" ;;
esac
"""
OLD_BASH = "BASH_VERSINFO[0]:-0"


class Scripts(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        self.programs = self.folder / "programs"
        self.programs.mkdir()
        self.record, self.offered = self.folder / "record", self.folder / "offered"
        self.record.touch()
        self.offered.touch()
        for name in ALWAYS:
            found = shutil.which(name)
            assert found, name
            (self.programs / name).symlink_to(found)
        real = shutil.which("cargo")
        assert real
        self.environment = {
            "PATH": str(self.programs),
            "RECORD": str(self.record),
            "OFFERED": str(self.offered),
            "REAL_CARGO": real,
            "REAL_HOME": str(Path.home()),
            "HOME": str(self.folder),
        }
        # Where rustup keeps the real cargo, if that is another place.
        self.environment |= {name: value for name, value in os.environ.items() if name.startswith("RUSTUP_")}
        self.stub("cargo", CARGO)
        self.stub("cc", "#!/bin/sh\ncat >/dev/null\n")

    def stub(self, name: str, text: str = "#!/bin/sh\n") -> None:
        program = self.programs / name
        program.write_text(text)
        program.chmod(0o755)

    def offer(self, *packages: str) -> None:
        """A distribution with these packages; `NAME=VERSION` where the version matters."""
        self.stub("apt-get", APT_GET)
        self.stub("apt-cache", APT_CACHE)
        # The scripts become root by it where they are not.
        self.stub("sudo", '#!/bin/sh\nshift\nexec "$@"\n')
        lines = [package.partition("=")[::2] for package in packages]
        self.offered.write_text("".join(f"{name} {version or '1.0'}\n" for name, version in lines))

    def run_script(self, script: str, *words: str, **changes: str | None) -> subprocess.CompletedProcess[str]:
        given = {key: value for key, value in (self.environment | changes).items() if value is not None}
        command = [f"{ROOT}/scripts/{script}", *words]
        return subprocess.run(command, env=given, cwd=self.folder, capture_output=True, text=True, check=False)

    def sourced(self, script: str, **changes: str) -> str:
        """What a piece of shell prints with what the scripts have in common, from the root."""
        command = ["bash", "-euo", "pipefail", "-c", f". scripts/common.sh; {script}"]
        environment = self.environment | changes
        return subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()

    def installed(self) -> list[str]:
        """What was asked for of the package manager in each call."""
        calls = [line.split() for line in self.record.read_text().splitlines()]
        return [" ".join(word for word in call[2:] if word[0] != "-") for call in calls if call[1] == "install"]


@unittest.skipUnless(
    Path("/usr/include/bpf/bpf_helpers.h").exists(), "no libbpf-dev here, which would be installed"
)
class Setup(Scripts):
    def test_where_all_is_there_nothing_is_said_or_done(self) -> None:
        for name in ENOUGH:
            self.stub(name)
        self.offer()
        done = self.run_script("setup.sh")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.assertEqual(self.record.read_text(), "")

    def test_no_home_is_no_fault(self) -> None:
        for name in ENOUGH:
            self.stub(name)
        done = self.run_script("setup.sh", HOME=None)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_each_package_is_named_with_what_it_is_for_before_it_is_installed(self) -> None:
        for name in set(ENOUGH) - {"pkg-config", "redis-server"}:
            self.stub(name)
        self.offer("pkg-config", "redis-server")
        said = self.run_script("setup.sh").stdout
        self.assertRegex(
            said, r"(?s)  redis-server +a real Redis.*  pkg-config +the plane in the kernel.*installing them"
        )
        self.assertEqual(self.installed(), ["redis-server pkg-config"])

    def test_one_package_that_cannot_be_had_leaves_the_others(self) -> None:
        for name in set(ENOUGH) - {"pkg-config", "redis-server", "chromium"}:
            self.stub(name)
        self.stub("java", "#!/bin/sh\necho 'openjdk version \"21.0.1\"' >&2\n")
        self.stub("python3")
        self.offer("redis-server", "pkg-config")
        done = self.run_script("setup.sh", "--study")
        together, *singly = self.installed()
        self.assertEqual(together.split(), singly)
        self.assertEqual(singly, ["redis-server", "pkg-config", "chromium"])
        self.assertIn("could not install chromium: E: Unable to locate package chromium", done.stderr)
        self.assertIn("lost by it: tests of pages in a browser", done.stderr)
        self.assertIn("apt-get update && apt-get install chromium\n", done.stderr)
        self.assertNotIn("could not install redis-server", done.stderr)
        self.assertEqual(done.returncode, 0)

    def test_the_compiler_and_java_are_what_the_distribution_offers(self) -> None:
        offers = {
            "clang-14": ("clang-14", "clang=1:14.0-55", "clang-16"),
            "clang": ("clang=1:19.0-63", "clang-17", "clang-19"),
            "clang-16": ("clang=1:13.0-53", "clang-15", "clang-16", "clang-13"),
        }
        for name in set(ENOUGH) - {"clang-14"}:
            self.stub(name)
        self.stub("python3")
        for wanted, there in offers.items():
            self.record.write_text("")
            self.offer(*there, "openjdk-21-jre-headless", "openjdk-25-jre-headless")
            self.run_script("setup.sh", "--study")
            self.assertEqual(self.installed(), [f"{wanted} openjdk-21-jre-headless"])

    def test_without_a_package_manager_all_are_named(self) -> None:
        for name in set(ENOUGH) - {"unshare", "make"}:
            self.stub(name)
        done = self.run_script("setup.sh")
        self.assertIn("no apt-get here", done.stderr)
        self.assertRegex(done.stdout, r"  util-linux +the demo without being root")
        self.assertIn("unshare is needed and missing", done.stderr)
        self.assertIn("instead of `make demo`: scripts/build.sh && ", done.stderr)
        self.assertEqual(done.returncode, 1)

    def test_an_older_rust_is_refused_with_the_number_that_cargo_has(self) -> None:
        for name in ENOUGH:
            self.stub(name)
        needed = re.search(r'^rust-version = "1\.(\d+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
        assert needed
        minor = int(needed[1])
        done = self.run_script("setup.sh", MINOR=str(minor - 1))
        self.assertIn(f"Rust 1.{minor} or newer is needed, this is cargo 1.{minor - 1}.0", done.stderr)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.run_script("setup.sh", MINOR=str(minor)).returncode, 0)


class Common(Scripts):
    def test_another_system_is_refused_in_words(self) -> None:
        (self.programs / "uname").unlink()
        self.stub("uname", "#!/bin/sh\necho Darwin\n")
        for script in ("setup.sh", "build.sh", "python.sh"):
            done = self.run_script(script)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, r"^scotfree: this is Darwin.*\n$")

    def test_an_old_bash_is_refused_in_words(self) -> None:
        # As one that is old says it.
        text = (ROOT / "scripts/common.sh").read_text()
        self.assertIn(OLD_BASH, text)
        old = text.replace("${BASH_VERSINFO[0]:-0}", "3").replace("${BASH_VERSION:-another shell}", "3.2.57")
        (self.folder / "common.sh").write_text(old)
        done = subprocess.run(
            ["bash", "-c", ". ./common.sh; mapfile -t lines <<<one"],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^scotfree: these scripts need bash 4.4 or newer, this is 3\.2\.57.*\n$")

    def test_the_target_folder_is_cargos(self) -> None:
        self.assertEqual(self.sourced("target_folder"), f"{ROOT}/target")
        self.assertEqual(self.sourced("target_folder", CARGO_TARGET_DIR="/tmp/a b"), "/tmp/a b")
        # Relative to where cargo is started, also where that is below.
        relative = {"CARGO_TARGET_DIR": "elsewhere"}
        self.assertEqual(self.sourced("target_folder", **relative), f"{ROOT}/elsewhere")
        self.assertEqual(self.sourced("cd python && target_folder", **relative), f"{ROOT}/elsewhere")
        # As a configuration of cargo may say it.
        configured = {"CARGO_BUILD_TARGET_DIR": "/tmp/configured"}
        self.assertEqual(self.sourced("target_folder", **configured), "/tmp/configured")

    def test_nothing_names_a_fixed_folder_of_cargos(self) -> None:
        scripts = [*ROOT.glob("scripts/*.sh"), ROOT / "Makefile"]
        fixed = {path.name for path in scripts if re.search(r"(?<!\$)\btarget/(release|debug)\b", path.read_text())}
        self.assertEqual(fixed, set())

    def test_the_verbs_of_the_makefile_run_what_cargo_built(self) -> None:
        release = self.folder / "built/release"
        release.mkdir(parents=True)
        scot = release / "scot"
        scot.write_text('#!/bin/sh\necho "scot $*"\n')
        scot.chmod(0o755)
        make = shutil.which("make")
        if make is None:
            self.skipTest("no make here")
        for verb, words in (("demo", "demo"), ("claims", "claims")):
            listed = subprocess.run(
                [make, "-n", verb], cwd=ROOT, capture_output=True, text=True, check=True
            ).stdout
            line = next(line for line in listed.splitlines() if "common.sh" in line)
            environment = os.environ | {"CARGO_TARGET_DIR": str(self.folder / "built")}
            ran = subprocess.run(
                ["bash", "-c", line], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
            )
            self.assertEqual((ran.stdout, ran.returncode), (f"scot {words}\n", 0), ran.stderr)

    def test_the_compiler_is_the_known_one_or_the_newest(self) -> None:
        find = "find_clang || echo none"
        self.assertEqual(self.sourced(find), "none")
        self.stub("clang", "#!/bin/sh\necho 'Debian clang version 13.0.1'\n")
        self.assertEqual(self.sourced(find), "none")
        self.stub("clang", "#!/bin/sh\necho 'Debian clang version 19.1.7 (3+b1)'\n")
        self.assertEqual(self.sourced(find), "clang")
        for name in ("clang-9", "clang-13", "clang-cpp-22"):
            self.stub(name)
        self.assertEqual(self.sourced(find), "clang")
        for name in ("clang-16", "clang-19"):
            self.stub(name)
        self.assertEqual(self.sourced(find), "clang-19")
        self.stub("clang-14")
        self.assertEqual(self.sourced(find), "clang-14")
        self.assertEqual(self.sourced(find, CLANG="clang-16"), "clang-16")
        self.assertEqual(self.sourced(find, CLANG="clang-3"), "none")


class Python(Scripts):
    def run_copy(self) -> subprocess.CompletedProcess[str]:
        """In a clone in which nothing is made yet."""
        clone = self.folder / "clone"
        shutil.copytree(ROOT / "scripts", clone / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
        (clone / "python").mkdir()
        for listed in (ROOT / "python").glob("*.txt"):
            shutil.copy(listed, clone / "python")
        for name in ("cmp", "tail", "kill", "rm"):
            found = shutil.which(name)
            if found and not (self.programs / name).exists():
                (self.programs / name).symlink_to(found)
        command = [str(clone / "scripts/python.sh"), "--study"]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)

    def test_without_python_the_command_that_installs_it_is_named(self) -> None:
        done = self.run_copy()
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("python3: command not found", done.stderr)
        self.assertIn("`make setup-report` installs what is missing", done.stderr)

    def test_what_takes_longer_says_what_it_is(self) -> None:
        self.stub("python3", "#!/bin/sh\nsleep 3\nexit 1\n")
        done = self.run_copy()
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("python: what installs the others …\n", done.stderr)

    def test_what_is_installed_is_compiled_once_and_not_at_each_run(self) -> None:
        bootstrap = self.folder / "clone/target/uv"
        (bootstrap / "bin").mkdir(parents=True)
        shutil.copy(ROOT / "python/bootstrap.txt", bootstrap / "installed")
        self.stub("python3")
        for name in ("awk", "cat"):
            if not (self.programs / name).exists():
                (self.programs / name).symlink_to(shutil.which(name) or name)
        # It installs nothing, and the script ends there.
        uv = bootstrap / "bin/uv"
        uv.write_text('#!/bin/sh\necho "$@" >>"$RECORD"\n[ "$2" != install ] || cat >/dev/null\n[ "$2" != sync ]\n')
        uv.chmod(0o755)
        done = self.run_copy()
        self.assertEqual(done.returncode, 3, done.stderr)
        (sync,) = [line for line in self.record.read_text().splitlines() if line.startswith("pip sync")]
        self.assertIn("--compile-bytecode", sync.split())


class Locks(unittest.TestCase):
    def test_study_and_retrieval_are_used_at_the_versions_that_they_are_tested_with(self) -> None:
        def pinned(name: str) -> set[str]:
            lines = (ROOT / "python" / name).read_text().splitlines()
            return {line.split(" ")[0] for line in lines if "==" in line}

        tests = pinned("requirements.txt")
        project = tomllib.loads((ROOT / "python/pyproject.toml").read_text())["project"]
        # What only tests and the others use is what each is small without.
        heavy = {"pyspark", "playwright", "mypy", "faiss-cpu", "pandas", "rich", "torch", "sentence-transformers"}
        of_study = {"pyarrow", "duckdb", "altair", "ibis-framework", "vl-convert-python"}
        for extra, others in (("study", {"onnxruntime", "onnx"}), ("rag", of_study)):
            used = pinned(f"requirements-{extra}.txt")
            self.assertLessEqual(used, tests)
            listed = project["dependencies"] + project["optional-dependencies"][extra]
            asked = {re.split(r"[^a-z0-9-]", one)[0] for one in listed} | {"maturin"}
            names = {line.split("==")[0] for line in used}
            self.assertLessEqual(asked, names)
            self.assertEqual((heavy | others) & names, set())


if __name__ == "__main__":
    unittest.main()
