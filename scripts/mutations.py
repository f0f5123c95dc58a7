"""Makes known mistakes in the protocols of groups, one at a time, and says who notices which.

Invariant: each mistake is made in a copy of the tree whose other files are as they are here; one that does not
compile is an error of the table, not a mistake that was noticed.
"""

import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
CRATE = pathlib.Path("crates/remedy-replicate")
OUT = pathlib.Path(os.environ.get("MUTATIONS_OUT", ROOT / "target" / "mutations"))
TREE = OUT / "tree"
SHARE_MIN = 0.95
# Tests that do not end have noticed something, too.
TIMEOUT_S = 600
ENDLESS = "does not end"
BUILD_TIME_MAX_S = 3600
CHAIN_TESTS = ["a_chain_keeps", "craq_keeps", "storms_of_chains", "a_window"]
HERMES_TESTS = ["hermes_keeps", "storms_of_hermes", "what_an_operator"]


class TableError(Exception):
    """A line of the table that is no mistake that can be tried."""


def read_table(text):
    """The mistakes that a table lists."""
    return tomllib.loads(text)["mutation"]


def changed(text, mutation):
    """A file's text with a mistake in it."""
    if text.count(mutation["text"]) != 1:
        raise TableError(f"its text is not in {mutation['file']} once: {mutation['text']!r}")
    return text.replace(mutation["text"], mutation["instead"])


def world_tests(file):
    """The tests of the world that a file's code may fail: those of its protocol, or all."""
    if file.startswith("src/chain"):
        return CHAIN_TESTS
    return HERMES_TESTS if file.startswith("src/hermes") else [*CHAIN_TESTS, *HERMES_TESTS]


def model_tests(file):
    """The models of the protocols that a file's code is part of."""
    protocols = ["chain", "craq"] if file.startswith("src/chain") else ["hermes"]
    protocols = protocols if file.startswith(("src/chain", "src/hermes")) else ["chain", "craq", "hermes"]
    return [f"{protocol}_keeps_every_promise" for protocol in protocols]


def stages(file):
    """Who is asked, one after the other: a name, what to build, and which of its tests."""
    if file.startswith("membership/"):
        return [("tests of the membership", ["remedy-replicate-membership", "--lib"], [""])]
    return [
        ("unit tests", ["remedy-replicate", "--lib"], [""]),
        ("the world", ["remedy-replicate-world", "--test", "simulation"], world_tests(file)),
        ("the models", ["remedy-replicate-models", "--test", "models"], model_tests(file)),
    ]


def reason(output):
    """Which invariant did not hold and in which seed, of a test that failed."""
    found = re.search(r"\bseed (\d+) broke (\w+)", output)
    model = re.search(r"not so: (.*)", output)
    if output == ENDLESS:
        return output
    words = [found and f"{found[2]}, seed {found[1]}", model and model[1]]
    panicked = re.search(r"panicked at ([\w/.-]+:\d+)", output)
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
            return False, ENDLESS
        log.seek(0)
        return is_well, log.read()


def verdict(seeds, asked):
    """Who notices, or nobody: of the copy as it is now."""
    for who, package, tests in asked:
        test = ["test", "--quiet", "--locked", "--package", *package]
        is_built, output = cargo([*test, "--no-run"], seeds, BUILD_TIME_MAX_S)
        if not is_built:
            raise TableError(f"it does not compile:\n{output}")
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


def try_all(mutations, ask):
    """The names of those that nobody notices, and of those that are no mistakes: each is told as soon as it is known.

    A line of the table that cannot be tried keeps nobody from trying the others."""
    missed, errors = [], []
    for one in mutations:
        began = time.monotonic()
        try:
            noticed = ask(one)
            missed += [] if noticed else [one["name"]]
        except TableError as error:
            noticed = f"ERROR of the table: {error}"
            errors.append(one["name"])
        took_s = time.monotonic() - began
        print(f"{one['name']} ({one['breaks']})\n    {noticed or 'MISSED'} [{took_s:.0f} s]", flush=True)
    return missed, errors


def summary(count, missed, errors):
    """What is said at the end, and whether it is well."""
    tried = count - len(errors)
    share = 1 - len(missed) / max(tried, 1)
    lines = [f"{tried - len(missed)} of {tried} mistakes are noticed ({100 * share:.0f} %)"]
    lines += [f"missed: {name}" for name in missed] + [f"an error of the table: {name}" for name in errors]
    return "\n".join(lines), share >= SHARE_MIN and not errors


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seeds", type=int, required=True, help="how many seeds of each kind of world")
    options.add_argument("--names", default="", help="a pattern that files and names of mistakes fit")
    options = options.parse_args()
    mutations = read_table((ROOT / CRATE / "mutations.toml").read_text())
    mutations = [one for one in mutations if re.search(options.names, f"{one['file']}: {one['name']}")]
    copy_the_tree()
    # The models have no bound that this run says, so that they are as they are in other tests.
    for asked in [stages("src/lib.rs")[:2], stages("membership/src/lib.rs")]:
        if noticed := verdict(options.seeds, asked):
            sys.exit(f"without any mistake: {noticed}: see {OUT}/last.log, and mend that first")
    missed, errors = try_all(mutations, lambda one: try_one(one, options.seeds))
    told, is_well = summary(len(mutations), missed, errors)
    print(f"\n{told}")
    sys.exit(not is_well)


if __name__ == "__main__":
    main()
