"""Tries a random sample of changes to the machine crates and says which nobody notices.

Invariant: a sample is a function of its seed and the code; what does not compile is replaced by the next.

cargo-mutants lists the changes. Each is made in a copy of the tree, where the tests of all machine crates run and
of the remedies' parts, and where they pass, 200 seeds of the simulator.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "target" / "mutants"
TREE = OUT / "tree"
# What lies in a remedy's folder beside its machine is tried with it: its world, and its programs, which must do
# what the machine does.
PARTS = ["world", "kernel"]
MACHINES = ["scotfree-core", "scotfree-wire", "scotfree-session", "scotfree-device"]
SEEDS = "0..200"
KINDS = [[], ["--storm"], ["--several"]]
# What only planted faults reach is no part of the product, and their tests are not run here; the same for what
# only tests are made of.
UNTRIED = (
    "planted",
    "Planted",
    "Fault::",
    "/fault.rs",
    "/by_hand.rs",
    "Base::acknowledge_unlogged",
    "Server::execute_again",
)
# A change with which the tests or the seeds do not end is noticed.
TIMEOUT_S = 600
# What takes longer to build does so because of the machine.
BUILD_TIME_MAX_S = 3600


def machine_crates(manifests):
    """The machine crates among the paths of manifests; a remedy's parts lie deeper than its machine."""
    folders = [pathlib.PurePath(path).parent for path in manifests]
    folders = [folder for folder in folders if folder.parent.name == "crates"]
    return sorted(folder.name for folder in folders if folder.name in MACHINES or folder.name.startswith("remedy-"))


def crate_of(path):
    """The machine crate in whose folder a file lies."""
    return pathlib.PurePath(path).parts[1]


def shuffled(changes, seed):
    """All changes, in the order in which this seed tries them."""
    changes = sorted(changes, key=lambda change: change["name"])
    random.Random(seed).shuffle(changes)
    return changes


def changed(text, change):
    """A file's text with a change made. Lines and columns count from 1, an end lies behind its last letter."""
    lines = text.splitlines(keepends=True)

    def offset(at):
        return sum(map(len, lines[: at["line"] - 1])) + at["column"] - 1

    begin, end = offset(change["span"]["start"]), offset(change["span"]["end"])
    return text[:begin] + change["replacement"] + text[end:]


def read(command):
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def list_changes(crates):
    packages = [word for name in crates for word in ("--package", name)]
    changes = json.loads(read(["cargo", "mutants", "--list", "--json", *packages]))
    return [change for change in changes if not any(word in change["name"] for word in UNTRIED)]


def copy_the_tree():
    """What git knows or would take, kept apart so that nobody's work is changed."""
    shutil.rmtree(TREE, ignore_errors=True)
    for path in read(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]).split("\0"):
        if path and (ROOT / path).is_file():
            (TREE / path).parent.mkdir(parents=True, exist_ok=True)
            # With times of now: an interrupted run has left builds of a change.
            shutil.copy(ROOT / path, TREE / path)


def passes(*command, time_max_s=TIMEOUT_S):
    """Whether a command in the copy ends well, and in time."""
    environment = {**os.environ, "CARGO_TARGET_DIR": str(OUT / "target"), "CARGO_PROFILE_DEV_DEBUG": "0"}
    with (OUT / "last.log").open("w") as log:
        child = subprocess.Popen(
            ["cargo", *command], cwd=TREE, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            return child.wait(time_max_s) == 0
        except subprocess.TimeoutExpired:
            # What does not end is not cargo but what it has started.
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            return False


class Trial:
    """The tests and the seeds that a change has to get past."""

    def __init__(self, crates):
        self.crates = crates
        self.parts = [f"{name}-{part}" for name in crates for part in PARTS if (ROOT / "crates" / name / part).is_dir()]
        self.worlds = [name for name in crates if (ROOT / "crates" / name / "world").is_dir()]

    def verdict(self, first=None):
        """Of the copy as it is now. The tests of one crate may be asked first: they notice most, soonest."""
        stages = [[first], [name for name in self.crates if name != first]] if first else [self.crates]
        for crates in [*stages, self.parts]:
            # Worlds are run for many seeds, which takes minutes unless they are optimised.
            release = ["--release"] if crates is self.parts else []
            packages = (word for name in crates for word in ("--package", name))
            tests = ["test", "--quiet", "--locked", *release, *packages]
            if not passes(*tests, "--no-run", time_max_s=BUILD_TIME_MAX_S):
                return "does not compile"
            if not passes(*tests):
                return "killed by tests"
        for world in self.worlds:
            example = ["--release", "--quiet", "--locked", "--package", f"{world}-world", "--example", "sim"]
            for kind in KINDS:
                if not passes("run", *example, "--", "--seeds", SEEDS, *kind):
                    return "killed by seeds"
        return "SURVIVES"

    def verdict_on(self, change):
        path = TREE / change["file"]
        text = path.read_text()
        path.write_text(changed(text, change))
        try:
            return self.verdict(first=crate_of(change["file"]))
        finally:
            path.write_text(text)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--sample", type=int, required=True, help="how many changes that compile")
    options.add_argument("--seed", type=int, required=True)
    options.add_argument("--names", type=pathlib.Path, help="a file with names of changes, of which each is tried")
    options = options.parse_args()

    metadata = json.loads(read(["cargo", "metadata", "--no-deps", "--format-version", "1"]))
    crates = machine_crates(package["manifest_path"] for package in metadata["packages"])
    changes = shuffled(list_changes(crates), options.seed)
    if options.names:
        wanted = set(options.names.read_text().splitlines())
        changes = [change for change in changes if change["name"] in wanted]
    print(f"SAMPLE={options.sample} SEED={options.seed} of {len(changes)} changes in {', '.join(crates)}", flush=True)
    copy_the_tree()
    trial = Trial(crates)
    unchanged = trial.verdict()
    if unchanged != "SURVIVES":
        sys.exit(f"the code as it is {unchanged}: see {OUT}/last.log, and mend that first")

    viable, survivors = 0, []
    for change in changes:
        if viable == options.sample:
            break
        verdict = trial.verdict_on(change)
        print(f"{verdict:<16} {change['name']}", flush=True)
        viable += verdict != "does not compile"
        if verdict == "SURVIVES":
            survivors.append(change["name"])

    killed = viable - len(survivors)
    print(f"\n{killed} of {viable} changes killed ({100 * killed / max(viable, 1):.0f} %), SEED={options.seed}")
    for name in survivors:
        print(f"survives: {name}")


if __name__ == "__main__":
    main()
