"""Runs schemathesis over `/openapi.json` of three nodes: without authentication, then with TLS and tokens, as an
administrator and with a token without grants. Each operation of each run is a test, which fails if a check found what
is not in differences.txt. Ends with `N passed, N failed`.

usage: run.py TIDELOCK SCHEMATHESIS [--examples N] [--seed N]
"""

import argparse
import base64
import collections
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from nodes import end_on_sigterm, nodes

PORTS = [int(os.environ.get("TIDELOCK_SCHEMATHESIS_PORT", 22460)) + offset for offset in (0, 3, 6)]
# The name of a scenario that is not of one operation.
STATEFUL = "Stateful tests"
SHOWN_CHARACTERS_MAX = 1500
GRANTS = {
    "data": ["read keys:", "write keys:", "watch keys:", "read config:*", "write config:*", "reveal config:*"],
    # A role has at least one grant.
    "little": ["read keys:no-test-has-this/"],
}
Finding = collections.namedtuple("Finding", "operation check text")
Difference = collections.namedtuple("Difference", "operation check fragment by_chance")


def differences():
    """The expected findings, and by run which operations it leaves out, each with its reason."""
    expected, left_out, reason = {}, collections.defaultdict(dict), None
    for line in (HERE / "differences.txt").read_text().splitlines():
        if line.startswith("# "):
            reason = line[2:]
        elif line:
            by_chance, line = line.startswith("? "), line.removeprefix("? ")
            operation, check, fragment = line.split(": ", 2)
            assert reason, line
            if check == "left out":
                left_out[fragment][operation] = reason
            else:
                expected[Difference(operation, check, fragment, by_chance)] = reason
    return expected, left_out


def text(encoded):
    """A body in a report, as text."""
    return base64.b64decode(encoded["$base64"]).decode(errors="replace")[:400] if encoded else ""


def described(failure, interaction):
    """What a finding is compared with, and shown if it is not expected."""
    request, response = interaction["request"], interaction["response"] or {}
    headers = {name: value for name, value in request["headers"].items() if name != "Authorization"}
    return "\n".join([
        failure["message"],
        f"{request['method']} {request['uri']} {headers} {text(request.get('body'))}",
        f"{response.get('status_code')} {text(response.get('content'))}",
    ])


def read_report(path):
    """The operations that were called, how often, and what the checks found."""
    calls, findings = collections.Counter(), []
    for line in path.read_text().splitlines():
        (kind, event), = json.loads(line).items()
        if "Error" in kind:
            findings.append(Finding(event.get("label") or "the run", "error", json.dumps(event)[:2000]))
        if kind != "ScenarioFinished":
            continue
        recorder = event["recorder"]
        for case, interaction in recorder.get("interactions", {}).items():
            value = recorder["cases"][case]["value"]
            label = recorder["label"] if recorder["label"] != STATEFUL else f"{value['method']} {value['path']}"
            calls[label] += 1
            for check in recorder.get("checks", {}).get(case, []):
                if check["status"] == "failure":
                    failure = check["failure_info"]["failure"]
                    operation = failure.get("operation") or label
                    findings.append(Finding(operation, check["name"], described(failure, interaction)))
    return calls, findings


class Run:
    """One run of schemathesis: the phases, the operations that it leaves out or the only ones that it calls, and more flags."""

    def __init__(self, name, phases, flags=(), without=(), only=None, **environment):
        self.name, self.phases, self.flags, self.environment = name, phases, flags, environment
        self.without, self.only = set(without), only

    def execute(self, options, cluster):
        """Runs it against the first node. Returns what read_report returns; an operation that was not called is a finding."""
        operations = documented(cluster)
        called = (operations.keys() if self.only is None else self.only) - self.without
        unknown = [Finding(name, "left out", "the document has no such operation") for name in (self.without | called) - operations.keys()]
        calls, findings = read_report(self.report(options, cluster, sorted(called & operations.keys())))
        missing = {operations[name] for name in called & operations.keys()} - calls.keys()
        return calls, [*findings, *unknown, *(Finding(operation, "called", "it was not called") for operation in missing)]

    def report(self, options, cluster, operations):
        report = cluster.data / f"{self.name.replace(' ', '-')}.ndjson"
        command = [options.schemathesis, "--config-file", HERE / "schemathesis.toml", "run", f"{cluster.urls[0]}/openapi.json",
                   "--phases", self.phases, "--max-examples", options.examples, "--seed", options.seed, "--no-color",
                   "--report", "ndjson", "--report-ndjson-path", report, "--output-sanitize", "false", *self.flags]
        for operation in operations:
            command += ["--include-operation-id", operation]
        environment = os.environ | self.environment | {"SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(HERE)}
        # schemathesis leaves files where it runs.
        done = subprocess.run([str(word) for word in command], cwd=cluster.data, env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        # 1 says that there are findings.
        if done.returncode not in (0, 1) or not report.exists():
            sys.exit(f"schemathesis ended with {done.returncode}:\n{done.stdout[-5000:]}")
        return report


def documented(cluster):
    """The operations of the document by id: method and path."""
    _, document = cluster.get(0, "/openapi.json")
    paths = json.loads(document)["paths"]
    return {operation["operationId"]: f"{method.upper()} {path}" for path, methods in paths.items()
            for method, operation in methods.items() if method != "parameters"}


def with_token(cluster, token):
    return ["--mode", "positive", "--header", f"Authorization: Bearer {token.read_text().strip()}", "--tls-verify", str(cluster.ca)]


def secure_runs(cluster, left_out):
    """Whether a token is required, and what it allows."""
    for role, grants in GRANTS.items():
        cluster.administer("auth", "role", "put", role, *(word for grant in grants for word in ("--grant", grant)))
    cluster.administer("auth", "principal", "put", "root", "--role", "admin", "--role", "data")
    cluster.administer("auth", "principal", "put", "nobody", "--role", "little")
    token = cluster.data / "nobody.token"
    cluster.administer("auth", "token", "create", "nobody", "--out", str(token))
    without = {*left_out["open"], *left_out["administrator"]}
    return [
        Run("administrator", "examples,coverage", with_token(cluster, cluster.root_token), without, TIDELOCK_TOKEN="administrator"),
        Run("without grants", "examples,coverage", with_token(cluster, token), TIDELOCK_TOKEN="without grants"),
    ]


def all_runs(options, left_out):
    """The name of each run, what it called and what it found."""
    with nodes(options.tidelock, *PORTS) as cluster:
        yield from executed([Run("open", "examples,coverage,fuzzing,stateful", without=left_out["open"])], options, cluster)
    with nodes(options.tidelock, *PORTS) as cluster:
        run = Run("last", "coverage,fuzzing", without=left_out["last"], only=left_out["open"].keys())
        yield from executed([run], options, cluster)
    with nodes(options.tidelock, *PORTS, secure=True) as cluster:
        yield from executed(secure_runs(cluster, left_out), options, cluster)


def executed(runs, options, cluster):
    for run in runs:
        yield run.name, *run.execute(options, cluster)


def compare(findings, expected):
    """The findings that are not in the list, one of each operation and check, and the lines of the list that explain others."""
    unexpected, used = {}, set()
    for finding in findings:
        matching = [line for line in expected if line.operation in ("*", finding.operation) and line.check == finding.check
                    and line.fragment in finding.text]
        used.update(matching)
        if not matching:
            unexpected.setdefault((finding.operation, finding.check), finding)
    return unexpected.values(), used


def main():
    end_on_sigterm()
    parser = argparse.ArgumentParser()
    parser.add_argument("tidelock")
    parser.add_argument("schemathesis")
    parser.add_argument("--examples", default="3", help="generated requests of each operation, beside those at limits")
    parser.add_argument("--seed", default="1")
    options = parser.parse_args()
    expected, left_out = differences()
    passed = failed = 0
    seen = set()
    for name, calls, findings in all_runs(options, left_out):
        unexpected, used = compare(findings, expected)
        seen |= used
        wrong = {finding.operation for finding in unexpected}
        passed, failed = passed + len(calls.keys() - wrong), failed + len(wrong)
        print(f"{name}: {calls.total()} requests to {len(calls)} operations, {len(findings)} findings", flush=True)
        for finding in unexpected:
            print(f"FAILED {name}: {finding.operation}: {finding.check}: {finding.text[:SHOWN_CHARACTERS_MAX]}\n", flush=True)
    for line in sorted(line for line in expected.keys() - seen if not line.by_chance):
        failed += 1
        print(f"FAILED does not happen, though it is listed: {': '.join(line[:3])}")
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
