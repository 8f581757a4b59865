"""Containers of three nodes: reads beside a constant answer and through inheritance, 10,000 watchers of one node, and
writes of keys while one client imports the largest document in a loop.

wrk and `tidelock bench` make the load. See README.md.
"""

import argparse
import contextlib
import json
import os
import re
import select
import shutil
import socket
import statistics
import subprocess
import threading
import time
import urllib.parse
import urllib.request

from coordination import processor_seconds
from machine import ROOT
from results import Results
from servers import Cluster, Server, get

CONNECTIONS = 64
WATCHERS = 9_800
CONTAINER = "app"
FIELDS = 7
# One hash slot, so that all are in one shard: a namespace that sets everything itself, and the last of four of which each
# but the first inherits from the one before it.
PLAIN = "{bench}/plain"
# Writes of keys a second beside imports. The document is nearly the largest that can be imported, with the most values.
WRITES_PER_SECOND = 1500
LONG_FIELDS, NUMBERS = 127, 1960
LEVELS = ["{bench}/base", "{bench}/region", "{bench}/cluster", "{bench}/leaf"]


def arguments():
    parser = argparse.ArgumentParser(prog="bench/compare/configuration", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="short rounds: to see that it works, not to quote")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, help="of each load (default: 5, with --quick 1)")
    parser.add_argument("--only", default="reads,watchers,imports", help="parts to run")
    parser.add_argument("--binary", default=os.path.join(ROOT, "target", "release", "tidelock"))
    parser.add_argument("--hello", default=os.path.join(ROOT, "target", "release", "examples", "hello"))
    parser.add_argument("--out", default=os.path.join(ROOT, "docs", "benchmarks"))
    parser.add_argument("--work", default=os.path.join(ROOT, "target", "compare"))
    parser.add_argument("--port-base", type=int, default=24900, help="the first of 40 free ports")
    found = parser.parse_args()
    found.seconds = found.seconds or (1 if found.quick else 5)
    found.only = found.only.split(",")
    found.work, found.out = os.path.abspath(found.work), os.path.abspath(found.out)
    return found


def path_of(namespace, *rest):
    return "/".join(("/api/namespaces", urllib.parse.quote(namespace, safe=""), *rest))


def long_document(number):
    """A document of nearly five megabytes, each field of which differs from that of another number."""
    numbers = ",".join(str(10**18 + number * NUMBERS + position) for position in range(NUMBERS))
    return "{" + ",".join(f'"f{field}":[{numbers}]' for field in range(LONG_FIELDS)) + "}"


class Measurement:
    def __init__(self, settings, results):
        self.settings, self.say = settings, results.say
        self.data = os.path.join(settings.work, "data", "configuration")

    @contextlib.contextmanager
    def cluster(self):
        cluster = Cluster(self.settings.binary, self.data, 3, self.settings.port_base)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
            shutil.rmtree(self.data, ignore_errors=True)

    @contextlib.contextmanager
    def hello(self):
        port = self.settings.port_base + 30
        address = f"127.0.0.1:{port}"
        server = Server("hello", [self.settings.hello, address], self.data + "-hello", lambda: get(f"http://{address}/") is not None)
        try:
            server.start()
            yield f"http://{address}/"
        finally:
            server.stop()

    def post(self, cluster, path, body):
        url = f"http://127.0.0.1:{cluster.http[0]}{path}"
        request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"}, method="POST")
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def fill(self, cluster):
        """One document in both: its fields refer to pairs, of which each level but the first sets two."""
        texts = {f"key-{number}": f"a text of eighty characters, about as long as the URL of a service: {number:>12}" for number in range(FIELDS)}
        fields = [{"key": f"field-{number}", "value": f"key-{number}"} for number in range(FIELDS)]
        for namespace in (PLAIN, *LEVELS):
            self.post(cluster, path_of(namespace), {})
        for namespace in (PLAIN, LEVELS[0]):
            for key, value in texts.items():
                self.post(cluster, path_of(namespace, "pairs", key), {"value": value, "type": "string"})
            self.post(cluster, path_of(namespace, "containers", CONTAINER), {"fields": fields})
        for parent, child in zip(LEVELS, LEVELS[1:]):
            self.post(cluster, path_of(child, "parents"), {"parents": [parent]})
        for level, namespace in enumerate(LEVELS[1:]):
            for key in (f"key-{2 * level}", f"key-{2 * level + 1}"):
                self.post(cluster, path_of(namespace, "pairs", key), {"value": texts[key], "type": "string"})

    def rate(self, url):
        line = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{self.settings.seconds}s", url]
        said = subprocess.run(line, capture_output=True, text=True, check=True).stdout
        if "Non-2xx" in said or "Socket errors" in said:
            raise RuntimeError(f"{' '.join(line)}: {said}")
        return float(re.search(r"Requests/sec:\s*([\d.]+)", said)[1])

    def reads(self):
        """The same document, set and inherited, at each node in turn; each round in alternating order."""
        found = {"hello": [], "plain": [], "inherited": []}
        with self.cluster() as cluster, self.hello() as hello:
            self.fill(cluster)
            paths = {"plain": path_of(PLAIN, "containers", CONTAINER), "inherited": path_of(LEVELS[-1], "containers", CONTAINER)}
            size = len(cluster.get(0, paths["plain"]))
            for turn in range(self.settings.rounds):
                for port in cluster.http:
                    urls = {"hello": hello, **{name: f"http://127.0.0.1:{port}{path}" for name, path in paths.items()}}
                    for name in list(urls) if turn % 2 == 0 else list(urls)[::-1]:
                        found[name].append(self.rate(urls[name]))
        self.say(f"A container of {FIELDS} fields, {size:,} bytes, linearizable, {CONNECTIONS} connections, at each of three nodes:\n")
        self.say("| | requests/s | beside | ratio (least–most) |")
        self.say("|---|---|---|---|")
        for name, peer, title in (("plain", "hello", "set by its namespace, beside a constant answer"), ("inherited", "plain", "inherited through three levels, beside one that is set")):
            ratios = [own / other for own, other in zip(found[name], found[peer])]
            own, other = statistics.median(found[name]), statistics.median(found[peer])
            self.say(f"| {title} | {own:,.0f} | {other:,.0f} | {statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f}) |")

    def watchers(self):
        """Memory and processor time of idle watchers of one node, and when each has a change."""
        with self.cluster() as cluster:
            self.fill(cluster)
            node, port = cluster.servers[1], cluster.http[1]
            before = node.resident_bytes()
            path = path_of(LEVELS[-1], "containers", CONTAINER, "watch")
            request = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/event-stream\r\n\r\n".encode()
            streams = {}
            poller = select.epoll()
            for _ in range(WATCHERS):
                stream = socket.create_connection(("127.0.0.1", port))
                stream.sendall(request)
                streams[stream.fileno()] = stream
                poller.register(stream, select.EPOLLIN)
            self.hear(poller, streams, "event: ")
            time.sleep(11)
            each = (node.resident_bytes() - before) / WATCHERS
            used, begun = processor_seconds(node), time.monotonic()
            time.sleep(30)
            share = (processor_seconds(node) - used) / (time.monotonic() - begun)
            self.say(f"\n- {WATCHERS:,} idle watchers of one node: {each:,.0f} bytes each, {share:.2%} of a core.")
            for title, namespace in (("it", LEVELS[-1]), ("what it inherits", LEVELS[0])):
                took = []
                for turn in range(self.settings.rounds):
                    begun = time.monotonic()
                    key = "key-0" if namespace == LEVELS[-1] else f"key-{FIELDS - 1}"
                    self.post(cluster, path_of(namespace, "pairs", key), {"value": f"{title} {turn}", "type": "string"})
                    self.hear(poller, streams, f"{title} {turn}")
                    took.append(time.monotonic() - begun)
                self.say(f"- All of them have a change of {title} after {statistics.median(took):.2f} s ({min(took):.2f}–{max(took):.2f}).")
            for stream in streams.values():
                stream.close()

    def imports(self):
        """The latency of writes without and with an importing client; each round in alternating order."""
        found, imported = {"without": [], "with": []}, []
        with self.cluster() as cluster:
            for turn in range(self.settings.rounds):
                for name in list(found) if turn % 2 == 0 else list(found)[::-1]:
                    if name == "without":
                        found[name].append(self.write_p99_us(cluster))
                        continue
                    with self.importing(cluster) as revisions:
                        found[name].append(self.write_p99_us(cluster))
                    imported.append(len(revisions))
        ratios = [own / other for own, other in zip(found["with"], found["without"])]
        own, other = statistics.median(found["with"]), statistics.median(found["without"])
        self.say(f"- p99 of {WRITES_PER_SECOND:,} writes/s of keys while one client imports {len(long_document(0)):,} bytes in a loop, "
                 f"{statistics.median(imported):.0f} times in {self.settings.seconds} s: {own:,.0f} µs; without imports {other:,.0f} µs; "
                 f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f}).")

    def write_p99_us(self, cluster):
        line = [self.settings.binary, "bench", "kv", "--url", cluster.urls, "--reads", "0", "--rate", str(WRITES_PER_SECOND),
                "-c", str(CONNECTIONS), "-d", str(self.settings.seconds), "--json"]
        done = subprocess.run(line, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["latency_us"]["percentiles"]["99"]

    @contextlib.contextmanager
    def importing(self, cluster):
        """One client imports different documents into one container, one after the other. Yields the list of revisions."""
        revisions, ends, failures = [], threading.Event(), []
        documents = [long_document(number).encode() for number in range(2)]
        url = f"http://127.0.0.1:{cluster.http[0]}" + path_of("imported", "containers", "c", "import") + "?format=json&create=true"

        def work():
            try:
                while not ends.is_set():
                    request = urllib.request.Request(url, documents[len(revisions) % 2], method="POST")
                    with urllib.request.urlopen(request, timeout=60) as answer:
                        revisions.append(json.load(answer)["data"]["revision"])
            except (OSError, ValueError, KeyError) as error:
                failures.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield revisions
        finally:
            ends.set()
            thread.join()
        if failures:
            raise RuntimeError("an import failed") from failures[0]

    def hear(self, poller, streams, text):
        """Waits until every stream has sent this text once more."""
        waiting, deadline = set(streams), time.monotonic() + 60
        tails = {}
        while waiting:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(waiting)} watchers did not receive {text!r}")
            for descriptor, _ in poller.poll(1):
                read = streams[descriptor].recv(65536)
                if not read:
                    raise RuntimeError("a watch ended")
                tails[descriptor] = tails.get(descriptor, b"")[-4096:] + read
                if text.encode() in tails[descriptor]:
                    waiting.discard(descriptor)


def main():
    settings = arguments()
    results = Results(settings)
    measurement = Measurement(settings, results)
    results.measure({"reads": measurement.reads, "watchers": measurement.watchers, "imports": measurement.imports})
    results.write("The configuration centre", "configuration")


if __name__ == "__main__":
    main()
