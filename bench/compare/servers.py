"""Starts, finds and stops the servers of a comparison. Every started process is stopped by its id."""

import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.request

READY_S = 60
STOP_S = 20


class Server:
    """One process with a log file; it is ready when `probe` returns true."""

    def __init__(self, name, command, directory, probe):
        self.name, self.command, self.directory, self.probe = name, command, directory, probe
        self.process = None
        os.makedirs(directory, exist_ok=True)

    def start(self):
        """Returns the seconds until it was ready."""
        with open(os.path.join(self.directory, "log"), "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, cwd=self.directory)
        begun = time.monotonic()
        while not self.probe():
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with {self.process.returncode}; see {self.directory}/log")
            if time.monotonic() - begun > READY_S * 10:
                raise RuntimeError(f"{self.name} was not ready in time; see {self.directory}/log")
            time.sleep(0.01)
        return time.monotonic() - begun

    def stop(self, how=signal.SIGTERM):
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(how)
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        raise RuntimeError(f"{self.name} has no resident set")


def threads(process):
    """The threads of a process: number and name. Those that end meanwhile are left out."""
    found = {}
    for task in map(int, os.listdir(f"/proc/{process}/task")):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            with open(f"/proc/{process}/task/{task}/comm", encoding="utf-8") as comm:
                found[task] = comm.read().strip()
    return found


def node_threads(process):
    """The threads of a node: number and role. The worker is the first one, which drives the node."""

    def role(task, name):
        if task == process:
            return "worker"
        return "log" if name == "disk" else "other workers" if name.startswith("worker") else "other threads"

    return {task: role(task, name) for task, name in threads(process).items()}


def task_times(process, task):
    """Microseconds that a thread has run, and that it has waited for a processor; None if it has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        with open(f"/proc/{process}/task/{task}/schedstat", encoding="ascii") as schedstat:
            ran, waited, _ = map(int, schedstat.read().split())
        return ran / 1e3, waited / 1e3
    return None


def get(url, context=None):
    """The body, or None after any failure."""
    with contextlib.suppress(OSError):
        with urllib.request.urlopen(url, timeout=2, context=context) as answer:
            return answer.read()
    return None


def connects(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def redis_is_loaded(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2) as stream:
        stream.sendall(b"PING\r\n")
        return stream.recv(64).startswith(b"+PONG")
    return False


class Cluster:
    """A Tidelock cluster on this machine. Nodes beyond the founders join; without a number, all are founders."""

    scheme = "http"
    context = None
    # What clients need besides addresses.
    credentials = ()

    def __init__(self, binary, directory, nodes, port_base, options=(), founders=None):
        shutil.rmtree(directory, ignore_errors=True)
        self.binary, self.directory = binary, directory
        self.hosts = [self.host(index) for index in range(nodes)]
        self.http = [port_base + index for index in range(nodes)]
        self.resp = [port_base + 10 + index for index in range(nodes)]
        peer = [port_base + 20 + index for index in range(nodes)]
        founders = min(nodes, founders or nodes)
        peers = ",".join(f"{host}:{port}" for host, port in list(zip(self.hosts, peer))[:founders])
        founding = ["--peers", peers] if founders > 1 else []
        self.servers = []
        for index in range(nodes):
            own = os.path.join(directory, f"node{index + 1}")
            command = [binary, "serve", "--data-dir", os.path.join(own, "data"), "--log", "warn"]
            host = self.hosts[index]
            command += ["--http", f"{host}:{self.http[index]}", "--resp", f"{host}:{self.resp[index]}"]
            command += ["--resp-cluster", "off"]
            origin = founding if index < founders else ["--join", peers]
            command += ["--peer", f"{host}:{peer[index]}", *origin, *options, *self.options_of(host)]
            # A founder is ready only once a majority is up, so all are started before any is waited for.
            probe = (lambda: True) if nodes > 1 else (lambda index=index: self.get(index, "/readyz") is not None)
            self.servers.append(Server(f"tidelock node {index + 1}", command, own, probe))

    def start(self):
        took = max(server.start() for server in self.servers)
        begun = time.monotonic()
        while any(self.get(index, "/readyz") is None for index in range(len(self.http))):
            if time.monotonic() - begun > READY_S:
                raise RuntimeError("the cluster was not ready in time")
            time.sleep(0.05)
        # Nodes register their addresses through the log, a moment after they are ready.
        while not all(self.knows_all(index) for index in range(len(self.http))):
            if time.monotonic() - begun > READY_S:
                raise RuntimeError("not all nodes have said in time where they listen, or a shard has no leader")
            time.sleep(0.05)
        return took

    def host(self, _index):
        return "127.0.0.1"

    def options_of(self, _host):
        return ()

    def get(self, index, path):
        return get(f"{self.scheme}://{self.hosts[index]}:{self.http[index]}{path}", self.context)

    def knows_all(self, index):
        view = json.loads(self.get(index, "/v1/cluster") or "{}")
        hosts, shards = view.get("hosts", []), view.get("shards", [])
        listens = [host.get("http_address") and host.get("resp_address") for host in hosts]
        return len(hosts) == len(self.http) and all(listens) and shards and all(shard.get("leader") for shard in shards)

    def leader(self):
        """The index of the node that leads the first data shard."""
        views = [json.loads(self.get(index, "/v1/cluster")) for index in range(len(self.http))]
        leaders = [shard["leader"] for shard in views[0]["shards"] if shard["id"] != 0]
        return [view["node"] for view in views].index(leaders[0])

    def stop(self):
        for server in self.servers:
            server.stop()

    @property
    def urls(self):
        return ",".join(f"{self.scheme}://{host}:{port}" for host, port in zip(self.hosts, self.http))

    @property
    def addresses(self):
        return ",".join(f"{host}:{port}" for host, port in zip(self.hosts, self.resp))

    def checkpoint(self):
        """Has every replica of every shard make a snapshot."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.http[0]}/v1/cluster/checkpoint", method="POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)


class SecureCluster(Cluster):
    """A Tidelock cluster with TLS between nodes and with clients, which serves only clients with a token."""

    scheme = "https"

    def __init__(self, binary, directory, nodes, port_base, options=()):
        super().__init__(binary, directory, nodes, port_base, options)
        os.makedirs(directory, exist_ok=True)
        line = [binary, "tls", "init", "--hosts", ",".join(self.hosts), "--out", self.path("tls")]
        subprocess.run(line, capture_output=True, check=True)
        self.context = ssl.create_default_context(cafile=self.path("tls/ca.crt"))
        self.credentials = ("--ca", self.path("tls/ca.crt"), "--token-file", self.path("root.token"))

    def path(self, name):
        return os.path.join(self.directory, name)

    # A certificate is for one host.
    def host(self, index):
        return f"127.0.0.{index + 1}"

    def options_of(self, host):
        return "--tls-dir", self.path(f"tls/{host}")

    def start(self):
        took = super().start()
        reach = ["--url", self.urls, *self.credentials[:2]]
        token = ["token", "create", "root", "--out", self.path("root.token")]
        for line in (["principal", "put", "root", "--role", "admin"], token):
            subprocess.run([self.binary, "auth", *line, *reach], capture_output=True, check=True)
        line = [self.binary, "auth", "require", "--url", self.urls, *self.credentials]
        subprocess.run(line, capture_output=True, check=True)
        return took


def redis(directory, port, durable):
    shutil.rmtree(directory, ignore_errors=True)
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", directory]
    command += ["--appendonly", "yes", "--appendfsync", "always"] if durable else ["--appendonly", "no"]
    return Server("redis-server", command, directory, lambda: redis_is_loaded(port))


class Etcd:
    """An etcd cluster of three members."""

    def __init__(self, binary, directory, port_base):
        shutil.rmtree(directory, ignore_errors=True)
        self.ports = [port_base + index for index in range(3)]
        cluster = ",".join(f"m{index}={port_base + 10 + index}" for index in range(3))
        self.servers = []
        for index, port in enumerate(self.ports):
            own = os.path.join(directory, f"m{index}")
            command = [binary, "serve", f"m{index}", os.path.join(own, "data"), str(port), str(port_base + 10 + index), cluster]
            self.servers.append(Server(f"etcd m{index}", command, own, lambda: True))

    def start(self):
        for server in self.servers:
            server.start()
        begun = time.monotonic()
        while not all(connects(port) for port in self.ports):
            if time.monotonic() - begun > READY_S:
                raise RuntimeError("etcd was not ready in time")
            time.sleep(0.1)

    def stop(self):
        for server in self.servers:
            server.stop()
