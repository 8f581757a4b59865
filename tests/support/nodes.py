"""Three nodes on loopback for the tests that run other projects' programs against them."""

import contextlib
import http.client
import pathlib
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time

READY_S_MAX = 120
# These tests are not about disks. Nodes refuse writes while a disk is slow, as it is if others use it.
MEMORY = pathlib.Path("/dev/shm")


def end_on_sigterm():
    """Makes SIGTERM end the program by an exception, so that the nodes end with it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def is_listening(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def eventually(what, attempt, process, log=None):
    """Waits until the attempt succeeds. Ends the program if the process ends first, with the end of its log."""
    deadline = time.monotonic() + READY_S_MAX
    while time.monotonic() < deadline:
        if process.poll() is not None:
            last = log.read_text(errors="replace")[-2000:] if log else ""
            sys.exit(f"{process.args[0]} ended with {process.returncode}\n{last}")
        if attempt():
            return
        time.sleep(0.1)
    sys.exit(f"not within {READY_S_MAX} s: {what}")


def await_port(port, process):
    eventually(f"{process.args[0]} listens on port {port}", lambda: is_listening(port), process)


class Cluster:
    """Addresses of three running nodes, and, with TLS and tokens, the files that a client needs."""

    def __init__(self, tidelock, data, ports, secure):
        self.tidelock, self.data = tidelock, pathlib.Path(data)
        http_port, resp_port, self.peer_port = ports
        self.http = [f"127.0.0.1:{http_port + node}" for node in range(3)]
        self.resp = [f"127.0.0.1:{resp_port + node}" for node in range(3)]
        self.urls = [f"http{'s' if secure else ''}://{address}" for address in self.http]
        self.ca = self.data / "nodes/node-1/tls/ca.crt" if secure else None
        self.root_token = self.data / "nodes/node-1/root.token" if secure else None
        self.log = self.data / "log"

    def command(self):
        ports = [address[0].rpartition(":")[2] for address in (self.http, self.resp)]
        command = [self.tidelock, "dev", "--nodes", "3", "--data-dir", str(self.data / "nodes"),
                   "--http-base", ports[0], "--resp-base", ports[1], "--peer-base", str(self.peer_port)]
        return [*command, "--secure"] if self.ca else command

    def get(self, node, path):
        """Status and body of an answer of a node."""
        if self.ca:
            context = ssl.create_default_context(cafile=str(self.ca))
            connection = http.client.HTTPSConnection(self.http[node], timeout=60, context=context)
        else:
            connection = http.client.HTTPConnection(self.http[node], timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def is_ready(self, node):
        """Whether a node serves requests."""
        try:
            return self.get(node, "/readyz")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def administer(self, *arguments):
        """Runs a command of the administrator, and returns what it prints."""
        command = [self.tidelock, *arguments, "--url", ",".join(self.urls)]
        if self.ca:
            command += ["--ca", str(self.ca), "--token-file", str(self.root_token)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        if done.returncode != 0:
            sys.exit(f"{' '.join(arguments)} ended with {done.returncode}: {done.stdout}")
        return done.stdout


@contextlib.contextmanager
def nodes(tidelock, *ports, secure=False):
    """A cluster with its data in memory if possible. The ports are the first of HTTP, RESP and peers."""
    if is_listening(ports[0]) or is_listening(ports[1]):
        # The tests would run against the nodes of another run, until they end.
        sys.exit(f"port {ports[0]} or {ports[1]} is in use")
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as data:
        cluster = Cluster(tidelock, data, ports, secure)
        with open(cluster.log, "wb") as log:
            process = subprocess.Popen(cluster.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            for node in range(3):
                eventually(f"node {node + 1} is ready", lambda: cluster.is_ready(node), process, cluster.log)
            yield cluster
        finally:
            process.terminate()
            process.wait()
