"""Runs the tests of redis-py and go-redis, which scripts/test-client-suites has installed, against three nodes, and compares what fails
with redis-py.txt and go-redis.txt."""

import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from xml.etree import ElementTree

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from differences import differences, unexpected
from nodes import end_on_sigterm, nodes

HTTP_PORT, RESP_PORT, PEER_PORT = 22441, 22444, 22447
# The tests choose by it which commands to expect. Nodes say 7.4.0, and have what is new of strings in 8.4.
REDIS_VERSION = "8.4.0"
SUITE_SECONDS_MAX = 1200

REDIS_PY_FILES = ["cache", "commands", "encoding", "lock", "pipeline", "pubsub", "scripting"]
# redis-py has the tests of all commands in one class. These are the beginnings of the names that belong to the families.
REDIS_PY_COMMANDS = """append binary_get_set client_getredir client_track copy decr del digest dump empty_response exists expire floating get incr
keys large_responses lcs local_digest mget mset never_decode pexpire pipeline_digest psetex pttl randomkey rename scan set stralgo strlen
substr touch ttl type unlink""".split()
# These need a cluster of Redis, modules, certificates, a replica, or accounts of a cloud.
REDIS_PY_MARKS = " and ".join(f"not {mark}" for mark in ["onlycluster", "redismod", "ssl", "replica", "cp_integration"])
GO_REDIS_SUITES = """Client-side cache|NewScriptServerSHA|PubSub|ScanIterator|Tx|pipelining
Commands (Eval|EvalRO|json marshaling/unmarshaling|keys|marshaling/unmarshaling|scanning|strings)"""


def run(command, directory, **environment):
    """Runs a suite, whose results are in a file of its own, and returns what it printed."""
    done = subprocess.run(command, cwd=directory, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=SUITE_SECONDS_MAX)
    return done.stdout.decode(errors="replace")


def redis_py(suites, data):
    """The results of each test, one with each version of the protocol."""
    source = next(suites.glob("redis-*/tests")).parent
    shutil.copytree(source, data / "redis-py")
    conftest = data / "redis-py/tests/conftest.py"
    text, asked = conftest.read_text(), 'version = info["redis_version"]'
    assert text.count(asked) == 1
    conftest.write_text(text.replace(asked, f'version = "{REDIS_VERSION}"'))
    files = [f"{directory}/test_{name}.py" for directory in ("tests", "tests/test_asyncio") for name in REDIS_PY_FILES]
    # Not each kind of test is there for the asynchronous client.
    files = [file for file in files if (data / "redis-py" / file).exists()]
    commands = [file for file in files if file.endswith("test_commands.py")]
    selections = [
        (commands, " or ".join(f"test_{name}" for name in REDIS_PY_COMMANDS)),
        ([file for file in files if file not in commands], "not Sentinel and not SSL"),
    ]
    results = collections.defaultdict(dict)
    for protocol in ("2", "3"):
        for selected, names in selections:
            report = data / "redis-py.xml"
            # Tracebacks of the other styles take seconds each, because pytest parses the long files of tests for them.
            output = run([suites / "python/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}",
                          "--tb=native", "--timeout=120", f"--redis-url=redis://127.0.0.1:{RESP_PORT}/0", f"--protocol={protocol}", "-m", REDIS_PY_MARKS, "-k", names,
                          *selected], data / "redis-py")
            if not report.exists():
                sys.exit(f"redis-py's tests did not run:\n{output}")
            for case in ElementTree.parse(report).iter("testcase"):
                place = re.fullmatch(r"tests\.((?:test_asyncio\.)?test_\w+)\.(.*)", case.get("classname") or "")
                if not place:
                    sys.exit(f"redis-py's tests did not run to their end:\n{output}")
                module, name = place.groups()
                failed, skipped = (any(case.find(kind) is not None for kind in kinds) for kinds in (["failure", "error"], ["skipped"]))
                state = "failed" if failed else "skipped" if skipped else "passed"
                results[module, f"{name}.{case.get('name')}"][f"RESP{protocol}"] = state
            report.unlink()
    return results


def go_redis(suites, data):
    """The results of each test."""
    # The tests take the address of a server from a file that describes a cluster of Redis Enterprise.
    (data / "endpoints.json").write_text(json.dumps({"nodes": {"raw_endpoints": [{"dns_name": "127.0.0.1", "port": RESP_PORT}]}}))
    focus = f"^go-redis ({GO_REDIS_SUITES.replace(chr(10), '|')}) "
    report = data / "go-redis.json"
    output = run(["./suite", "-test.run=^TestGinkgoSuite$", "-ginkgo.seed=1", f"-ginkgo.focus={focus}", f"-ginkgo.json-report={report}"],
                 suites / "go-redis", RE_CLUSTER="true", REDIS_ENDPOINTS_CONFIG_PATH=str(data / "endpoints.json"), REDIS_VERSION=REDIS_VERSION[:3])
    if not report.exists():
        sys.exit(f"go-redis' tests did not run:\n{output}")
    results = collections.defaultdict(dict)
    for case in json.loads(report.read_text())[0]["SpecReports"]:
        # A test out of focus is skipped without a message, one for a later version with one.
        if case["LeafNodeType"] == "It" and (case["State"] != "skipped" or case.get("Failure", {}).get("Message")):
            name = " ".join([*(case["ContainerHierarchyTexts"] or []), case["LeafNodeText"]])
            file = pathlib.PurePath(case["LeafNodeLocation"]["FileName"]).stem
            results[file, name]["RESP3"] = case["State"] if case["State"] in ("passed", "skipped") else "failed"
    return results


def named(results):
    """The results, with the version of the protocol in the name of a test that fails with one alone."""
    states = {}
    for (unit, name), found in results.items():
        ran = {protocol: state for protocol, state in found.items() if state != "skipped"}
        same = len(set(ran.values())) == 1
        for protocol, state in ran.items():
            states[unit, name if same else f"{name} with {protocol}"] = state
    return states


def main():
    tidelock, suites, wanted = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    end_on_sigterm()
    expected, wrong = 0, []
    for suite, tests in (("redis-py", redis_py), ("go-redis", go_redis)):
        if suite not in wanted:
            continue
        with tempfile.TemporaryDirectory() as data, nodes(tidelock, HTTP_PORT, RESP_PORT, PEER_PORT):
            results = tests(suites, pathlib.Path(data))
        states, reasons = named(results), differences(HERE / f"{suite}.txt")
        failed = {test for test, state in states.items() if state == "failed"}
        print(f"{suite}: {len(states) - len(failed)} of {len(states)} tests pass", flush=True)
        counts = collections.Counter(reasons[test] for test in failed & reasons.keys())
        for reason, count in counts.most_common():
            print(f"  {count} fail: {reason}")
        differing = unexpected(failed, reasons, suite)
        expected += len(states) - len([line for line in differing if line.startswith("fails")])
        wrong += differing
    if wrong:
        print("\n".join(wrong))
    print(f"{expected} passed, {len(wrong)} failed")
    sys.exit(1 if wrong else 0)


main()
