"""Generates clients in Python and TypeScript from the `/openapi.json` of a node, compiles them, and runs a program with each
against three nodes. Ends with `N passed, N failed`.

usage: run.py TIDELOCK PYTHON NODE TYPESCRIPT-DIRECTORY
  PYTHON                 of an environment with what python/requirements.txt names
  TYPESCRIPT-DIRECTORY   with the packages of typescript/package-lock.json
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from nodes import end_on_sigterm, nodes

PORTS = [int(os.environ.get("TIDELOCK_GENERATED_PORT", 22480)) + offset for offset in (0, 3, 6)]
STEP_S_MAX = 600


class Counts:
    """Counts tests, and prints those that fail."""

    def __init__(self):
        self.passed = self.failed = 0

    def step(self, name, command, directory):
        """One test: the command ends with 0. Returns whether it did."""
        done = execute(command, directory)
        self.count(f"{name}{'' if done.returncode == 0 else f': {done.stdout}'}", done.returncode == 0)
        return done.returncode == 0

    def program(self, name, command, directory):
        """One test for each `ok` and `FAILED` that the command prints, and one for its end."""
        done = execute(command, directory)
        failed = done.returncode != 0
        for line in done.stdout.splitlines():
            if line.startswith(("ok ", "FAILED ")):
                failed &= line.startswith("ok ")
                self.count(f"{name}: {line.partition(' ')[2]}", line.startswith("ok "))
        self.count(f"{name}: the program ends{f' with {done.returncode}' if failed else ''}", not failed)
        if done.returncode != 0:
            print(done.stdout, flush=True)

    def count(self, name, is_passed):
        self.passed, self.failed = self.passed + is_passed, self.failed + (not is_passed)
        print(f"{'ok' if is_passed else 'FAILED'} {name}", flush=True)


def execute(command, directory):
    return subprocess.run([str(word) for word in command], cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=STEP_S_MAX)


def python(counts, interpreter, urls, document, directory):
    """The generator makes a package, whose types mypy holds the program to."""
    generate = [interpreter, "-m", "openapi_python_client", "generate", "--path", document, "--meta", "none",
                "--output-path", directory / "tidelock_client", "--config", HERE / "python/config.yaml"]
    if not counts.step("Python: generate", generate, directory):
        return
    shutil.copy(HERE / "python/client.py", directory)
    # Some classes that the generator makes have errors of their own: a class `Tokens` with a member `tokens` is one.
    check = [interpreter, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", os.devnull, "client.py"]
    counts.step("Python: compile", check, directory)
    counts.program("Python", [interpreter, "client.py", *urls], directory)


def typescript(counts, node, packages, urls, document, directory):
    """The generator makes the types of openapi-fetch; tsc compiles them and the program that uses them, strictly."""
    for file in ("client.ts", "tsconfig.json", "package.json"):
        shutil.copy(HERE / "typescript" / file, directory)
    (directory / "node_modules").symlink_to(packages / "node_modules")
    generate = [node, "node_modules/openapi-typescript/bin/cli.js", document, "--output", "schema.d.ts"]
    if not counts.step("TypeScript: generate", generate, directory):
        return
    if counts.step("TypeScript: compile", [node, "node_modules/typescript/bin/tsc", "--project", "."], directory):
        counts.program("TypeScript", [node, "out/client.js", *urls], directory)


def main(tidelock, interpreter, node, packages):
    end_on_sigterm()
    counts = Counts()
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(nodes(tidelock, *PORTS))
        directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        document = directory / "openapi.json"
        document.write_bytes(cluster.get(0, "/openapi.json")[1])
        for language in ("python", "typescript"):
            (directory / language).mkdir()
        python(counts, interpreter, cluster.urls, document, directory / "python")
        typescript(counts, node, pathlib.Path(packages), cluster.urls, document, directory / "typescript")
    print(f"{counts.passed} passed, {counts.failed} failed")
    return 1 if counts.failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
