"""What the scripts that run other projects' tests against three nodes have in common: the nodes, and the lists of expected
differences."""

import contextlib
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent


def differences(name):
    """The reasons of the listed tests, by unit and name."""
    reasons, reason = {}, None
    for line in (HERE / name).read_text().splitlines():
        if line.startswith("# "):
            reason = line[2:]
        elif line:
            unit, test = line.split(": ", 1)
            assert reason and (unit, test) not in reasons, line
            reasons[unit, test] = reason
    return reasons


def is_listening(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def await_port(port, process):
    for _ in range(600):
        if process.poll() is not None:
            sys.exit(f"{process.args[0]} ended with {process.returncode}")
        if is_listening(port):
            return
        time.sleep(0.1)
    sys.exit(f"{process.args[0]} does not listen on port {port}")


@contextlib.contextmanager
def nodes(tidelock, http, resp, peer):
    """Three nodes, with their data in a temporary directory. The arguments are the first ports of each kind."""
    if is_listening(resp):
        # The tests would run against the nodes of another run, until they end.
        sys.exit(f"port {resp} is in use")
    ports = ["--http-base", str(http), "--resp-base", str(resp), "--peer-base", str(peer)]
    with tempfile.TemporaryDirectory() as data:
        process = subprocess.Popen([tidelock, "dev", "--nodes", "3", "--data-dir", f"{data}/nodes", *ports],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            await_port(resp, process)
            yield
        finally:
            process.terminate()
            process.wait()
