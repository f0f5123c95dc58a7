"""Makes known mistakes in the protocols of groups, one at a time, and says who notices which.

Invariant: each mistake is made in a copy of the tree whose other files are as they are here; one that does not
compile is an error, not a mistake that was noticed.
"""

import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
CRATE = pathlib.Path("crates/remedy-replicate")
OUT = pathlib.Path(os.environ.get("MUTATIONS_OUT", ROOT / "target" / "mutations"))
TREE = OUT / "tree"
SHARE_MIN = 0.95
# Tests that do not end have noticed something, too.
TIMEOUT_S = 600
BUILD_TIME_MAX_S = 3600
CHAIN_TESTS = ["a_chain_keeps", "craq_keeps", "a_window", "storms_break"]
HERMES_TESTS = ["hermes_keeps", "storms_break"]


def read_table(text):
    """The mistakes that a table lists."""
    return tomllib.loads(text)["mutation"]


def changed(text, mutation):
    """A file's text with a mistake in it."""
    if text.count(mutation["text"]) != 1:
        raise ValueError(f"{mutation['name']}: its text is not in {mutation['file']} once: {mutation['text']!r}")
    return text.replace(mutation["text"], mutation["instead"])


def world_tests(file):
    """The tests of the world that a file's code may fail: those of its protocol, or all."""
    if file.startswith("src/chain"):
        return CHAIN_TESTS
    return HERMES_TESTS if file.startswith("src/hermes") else [*CHAIN_TESTS[:3], *HERMES_TESTS]


def stages(file):
    """Who is asked, one after the other: a name, what to build, and which of its tests."""
    if file.startswith("membership/"):
        return [("tests of the membership", ["remedy-replicate-membership", "--lib"], [""])]
    kind = "hermes" if file.startswith("src/hermes") else "chain" if file.startswith("src/chain") else ""
    return [
        ("unit tests", ["remedy-replicate", "--lib"], [""]),
        ("the world", ["remedy-replicate-world", "--test", "simulation"], world_tests(file)),
        ("the models", ["remedy-replicate-models", "--test", "models"], [f"{kind}_keeps_every_promise"]),
    ]


def reason(output):
    """Which invariant did not hold and in which seed, of a test that failed."""
    found = re.search(r"\bseed (\d+) broke (\w+)", output)
    model = re.search(r"not so: (.*)", output)
    words = [found and f"{found[2]}, seed {found[1]}", model and model[1]]
    panicked = re.search(r"panicked at ([\w/.]+:\d+)", output)
    return ", ".join(filter(None, words)) or (panicked and f"panics at {panicked[1]}") or "fails"


def copy_the_tree():
    """What git knows or would take. Files that are the same keep their times, so that little is built anew."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    for name in filter(None, names.split("\0")):
        source, target = ROOT / name, TREE / name
        if source.is_file() and not (target.is_file() and target.read_bytes() == source.read_bytes()):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)


def cargo(arguments, seeds, time_max_s):
    """Whether a command of cargo in the copy ends well, and what it has said."""
    environment = {**os.environ, "CARGO_TARGET_DIR": str(OUT / "target"), "CARGO_PROFILE_DEV_DEBUG": "0"}
    environment |= {"SEEDS": str(seeds), "RUSTFLAGS": "-Awarnings"}
    # To a file: what is left of a test that was ended would keep a pipe open.
    with (OUT / "last.log").open("w+") as log:
        child = subprocess.Popen(
            ["cargo", *arguments], cwd=TREE, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            is_well = child.wait(time_max_s) == 0
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            return False, "does not end"
        log.seek(0)
        return is_well, log.read()


def verdict(seeds, asked):
    """Who notices, or nobody: of the copy as it is now."""
    for who, package, tests in asked:
        test = ["test", "--quiet", "--locked", "--package", *package]
        is_built, output = cargo([*test, "--no-run"], seeds, BUILD_TIME_MAX_S)
        if not is_built:
            sys.exit(f"it does not compile:\n{output}")
        for name in tests:
            is_well, output = cargo([*test, "--", name], seeds, TIMEOUT_S)
            if not is_well:
                return f"{who}: {name} {reason(output)}" if name else f"{who}: {reason(output)}"
    return None


def try_one(mutation, seeds):
    """Who notices a mistake, or nobody."""
    path = TREE / CRATE / mutation["file"]
    text = path.read_text()
    path.write_text(changed(text, mutation))
    try:
        return verdict(seeds, stages(mutation["file"]))
    finally:
        path.write_text(text)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seeds", type=int, required=True, help="how many seeds of each kind of world")
    options.add_argument("--names", default="", help="a pattern that names of mistakes fit")
    options = options.parse_args()
    mutations = read_table((ROOT / CRATE / "mutations.toml").read_text())
    mutations = [one for one in mutations if re.search(options.names, one["name"])]
    copy_the_tree()
    # The models have no bound that this run says, so that they are as they are in other tests.
    for asked in [stages("src/lib.rs")[:2], stages("membership/src/lib.rs")]:
        if noticed := verdict(options.seeds, asked):
            sys.exit(f"without any mistake: {noticed}: see {OUT}/last.log, and mend that first")
    missed = []
    for one in mutations:
        noticed = try_one(one, options.seeds)
        print(f"{one['name']} ({one['breaks']})\n    {noticed or 'MISSED'}", flush=True)
        missed += [] if noticed else [one["name"]]
    share = 1 - len(missed) / max(len(mutations), 1)
    print(f"\n{len(mutations) - len(missed)} of {len(mutations)} mistakes are noticed ({100 * share:.0f} %)")
    sys.exit(share < SHARE_MIN)


if __name__ == "__main__":
    main()
