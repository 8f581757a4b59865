"""Runs units of the test suite of Redis 7.0 against redis-server and against three nodes, and compares.

A test that redis-server passes and Tidelock does not must be in differences.txt, with a reason; one that is listed there
must fail. Ends with `N passed, N failed`, where a test passes if it does what the list says.

The suite runs from a copy with three changes. It calls `FUNCTION FLUSH` before each unit, and would not start
without that command. The tests of scripts run with `EVAL` only, not a second time with `FUNCTION`, where they
wait forever. And a test that fails within a transaction would leave the connection there, so that the tests
behind it fail too: the connection is reset.

usage: units.py REDIS-SOURCE REDIS-SERVER TIDELOCK [UNIT...]
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from differences import differences
from nodes import await_port, end_on_sigterm, nodes

UNITS = ["type/string", "type/incr", "expire", "multi", "scan", "keyspace", "scripting"]
# A unit waits forever when a command that it needs is missing.
UNIT_SECONDS_MAX = 600
REDIS_PORT = int(os.environ.get("TIDELOCK_REDIS_SUITE_PORT", 22400))
HTTP_PORT, RESP_PORT, PEER_PORT = (REDIS_PORT + offset for offset in (1, 4, 7))
OPTIONS = ["--singledb", "--durable", "--ignore-encoding", "--ignore-digest"]


def passed(source, unit, port):
    """The names of the tests of a unit that pass."""
    command = ["./runtest", "--host", "127.0.0.1", "--port", str(port), *OPTIONS, "--single", f"unit/{unit}"]
    # The runner does not end by itself when its unit cannot go on.
    run = subprocess.Popen(command, cwd=source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           start_new_session=True)
    try:
        output, _ = run.communicate(timeout=UNIT_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        subprocess.run(["kill", "-9", "--", f"-{run.pid}"], check=False)
        output, _ = run.communicate()
    text = re.sub(r"\x1b\[[0-9;]*m", "", output.decode(errors="replace"))
    return re.findall(r"^\[ok\]: (.*?)(?: \(\d+ ms\))?$", text, re.MULTILINE)


def copy(source, target):
    """A copy of the suite with the three changes."""
    shutil.copytree(source / "tests", target / "tests")
    shutil.copytree(source / "utils", target / "utils")
    for file in ("runtest", "redis.conf"):
        shutil.copy(source / file, target)
    change(target / "tests/unit/scripting.tcl", "foreach is_eval {0 1} {\n", "foreach is_eval {1} {\n")
    change(target / "tests/support/server.tcl", "    r function flush\n", "")
    caught = "    if {[catch {set retval [uplevel 1 $code]} error]} {\n"
    change(target / "tests/support/test.tcl", caught, f'{caught}        catch {{[srv 0 "client"] reset}}\n')


def change(path, old, new):
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def compare(unit, suite, reasons):
    """Runs a unit against both, prints the counts, and returns how many tests were as expected and what was not."""
    theirs, ours = (passed(suite, unit, port) for port in (REDIS_PORT, RESP_PORT))
    both = [name for name in theirs if name in ours]
    print(f"{unit}: redis-server passes {len(theirs)}, {len(both)} of them pass here", flush=True)
    missing = {name for name in theirs if name not in ours}
    listed = {name for reason_unit, name in reasons if reason_unit == unit}
    wrong = [f"fails without a reason: {unit}: {name}" for name in sorted(missing - listed)]
    wrong += [f"passes, though it is listed: {unit}: {name}" for name in sorted(listed & set(both))]
    if not theirs:
        wrong.append(f"redis-server passes no test of {unit}: the suite did not run")
    return len(theirs) - len(wrong), wrong


def main():
    end_on_sigterm()
    source, server, tidelock, units = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:] or UNITS
    reasons, expected, wrong = differences(HERE / "differences.txt"), 0, []
    with tempfile.TemporaryDirectory() as data, nodes(tidelock, HTTP_PORT, RESP_PORT, PEER_PORT):
        suite = pathlib.Path(data) / "suite"
        suite.mkdir()
        copy(source, suite)
        redis_server = subprocess.Popen([server, "--port", str(REDIS_PORT), "--save", "", "--dir", data,
                                         "--enable-debug-command", "yes"], stdout=subprocess.DEVNULL)
        try:
            await_port(REDIS_PORT, redis_server)
            for unit in units:
                as_expected, differing = compare(unit, suite, reasons)
                expected += as_expected
                wrong += differing
        finally:
            redis_server.terminate()
            redis_server.wait()
    if wrong:
        print("\n".join(wrong))
    print(f"{expected} passed, {len(wrong)} failed")
    sys.exit(1 if wrong else 0)


main()
