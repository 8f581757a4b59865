"""Watches, leases, transactions and locks: three nodes of Tidelock beside three members of etcd, and what many of them cost.

One program makes the load of both (etcd/coordination). See README.md.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import time
import urllib.parse

from machine import ROOT
from results import Results
from servers import Cluster, Etcd

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
MANY_WATCHERS, MANY_LEASES = 10_000, 10_000
# A shard has at most 50,000 leases.
GRANT_SECONDS_MAX = 3
# name, command, its numbers but the seconds, the figures that are compared: larger is better, or smaller.
BESIDE_ETCD = (
    ("watch, 1 watcher a node, 100 puts/s: p50", "watch", (1, 100), "50", False),
    ("watch, 1 watcher a node, 100 puts/s: p99", "watch", (1, 100), "99", False),
    ("watch, 100 watchers a node, 20 puts/s: p50", "watch", (100, 20), "50", False),
    ("watch, 100 watchers a node, 20 puts/s: p99", "watch", (100, 20), "99", False),
    ("lease grants/s, 64 clients", "lease", (64,), "rate", True),
    ("transactions/s, 64 clients", "txn", (64,), "rate", True),
    ("hand-over of a lock among 8 clients: p50", "lock", (8,), "50", False),
    ("hand-over of a lock among 8 clients: p99", "lock", (8,), "99", False),
)


def arguments():
    parser = argparse.ArgumentParser(prog="bench/compare/coordination", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="short rounds: to see that it works, not to quote")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, help="of each load (default: 5, with --quick 1)")
    parser.add_argument("--only", default="etcd,watchers,writer,leases", help="parts to run")
    parser.add_argument("--binary", default=os.path.join(ROOT, "target", "release", "tidelock"))
    parser.add_argument("--out", default=os.path.join(ROOT, "docs", "benchmarks"))
    parser.add_argument("--work", default=os.path.join(ROOT, "target", "compare"))
    parser.add_argument("--port-base", type=int, default=24900, help="the first of 60 free ports")
    found = parser.parse_args()
    found.seconds = found.seconds or (1 if found.quick else 5)
    found.only = found.only.split(",")
    found.work, found.out = os.path.abspath(found.work), os.path.abspath(found.out)
    return found


def processor_seconds(server):
    with open(f"/proc/{server.process.pid}/stat", encoding="utf-8") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


class Measurement:
    def __init__(self, settings, results):
        self.settings, self.say = settings, results.say
        self.program = os.path.join(settings.work, "coordination")

    def directory(self, name):
        return os.path.join(self.settings.work, "data", f"coordination-{name}")

    @contextlib.contextmanager
    def tidelock(self):
        cluster = Cluster(self.settings.binary, self.directory("tidelock"), 3, self.settings.port_base)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
            shutil.rmtree(self.directory("tidelock"), ignore_errors=True)

    @contextlib.contextmanager
    def etcd(self):
        cluster = Etcd(os.path.join(self.settings.work, "etcd"), self.directory("etcd"), self.settings.port_base + 30)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
            shutil.rmtree(self.directory("etcd"), ignore_errors=True)

    def command(self, command, store, numbers, ports):
        return [self.program, command, store, *map(str, numbers), ",".join(map(str, ports))]

    def load(self, command, store, numbers, ports, seconds=None):
        seconds = seconds or self.settings.seconds
        if command == "lease":
            seconds = min(seconds, GRANT_SECONDS_MAX)
        line = self.command(command, store, (*numbers, seconds), ports)
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(line)}: {done.stderr}")
        found = json.loads(done.stdout.splitlines()[-1])
        if found["errors"] or found.get("missed"):
            raise RuntimeError(f"{' '.join(line)}: {found}")
        return found

    def beside_etcd(self):
        """Both are measured directly after one another in each round, in alternating order."""
        found = {}
        with self.tidelock() as tidelock, self.etcd() as etcd:
            stores = [("tidelock", tidelock.http), ("etcd", etcd.ports)]
            for turn in range(self.settings.rounds):
                for command, numbers in dict.fromkeys(line[1:3] for line in BESIDE_ETCD):
                    for store, ports in stores if turn % 2 == 0 else stores[::-1]:
                        result = self.load(command, store, numbers, ports)
                        found.setdefault((command, numbers, store), []).append(result)
        self.say("| | Tidelock | etcd | ratio (least–most) |")
        self.say("|---|---|---|---|")
        for name, command, numbers, figure, is_rate in BESIDE_ETCD:
            pick = (lambda result: result["requests_per_second"]) if is_rate else (lambda result, figure=figure: result["latency_us"]["percentiles"][figure])
            ours, theirs = ([pick(result) for result in found[command, numbers, store]] for store in ("tidelock", "etcd"))
            ratios = [own / other for own, other in zip(ours, theirs)]
            unit = "" if is_rate else " µs"
            self.say(
                f"| {name} | {statistics.median(ours):,.0f}{unit} | {statistics.median(theirs):,.0f}{unit} "
                f"| {statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f}) |"
            )

    def watchers(self):
        """Memory and processor time of idle watchers of one node, then latencies with them."""
        with self.tidelock() as cluster:
            node = cluster.servers[1]
            before = node.resident_bytes()
            line = self.command("observe", "tidelock", (MANY_WATCHERS - 200, 3600), cluster.http[1:2])
            idle = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
            try:
                if idle.stdout.readline() != "ready\n":
                    raise RuntimeError("the watchers did not begin")
                time.sleep(11)
                each = (node.resident_bytes() - before) / (MANY_WATCHERS - 200)
                used, begun = processor_seconds(node), time.monotonic()
                time.sleep(10 if self.settings.quick else 30)
                share = (processor_seconds(node) - used) / (time.monotonic() - begun)
                self.say(f"- {MANY_WATCHERS - 200:,} idle watchers of one node: {each:,.0f} bytes each, {share:.2%} of a core.")
                crowded = self.load("watch", "tidelock", (100, 1), cluster.http, 5)
                self.say(f"- A change reaches 100 watchers a node beside them, and them: p99 {crowded['latency_us']['percentiles']['99'] / 1e3:,.1f} ms for the 100.")
            finally:
                idle.kill()
                idle.wait()
        with self.tidelock() as cluster:
            few = self.load("watch", "tidelock", (100, 20), cluster.http)["latency_us"]["percentiles"]
            self.say(f"- A change reaches 100 watchers of each of three nodes: p50 {few['50'] / 1e3:.1f}, p99 {few['99'] / 1e3:.1f} ms.")
            # A process has too few file descriptors for all of them.
            puts, heard = 5, []
            lines = [self.command("hear", "tidelock", (MANY_WATCHERS - 200, puts), [port]) for port in cluster.http]
            hearing = [subprocess.Popen(line, stdout=subprocess.PIPE, text=True) for line in lines]
            if any(process.stdout.readline() != "ready\n" for process in hearing):
                raise RuntimeError("the watchers did not begin")
            self.load("watch", "tidelock", (1, 1), cluster.http, puts)
            for process in hearing:
                found = json.loads(process.communicate()[0].splitlines()[-1])
                if found["missed"]:
                    raise RuntimeError(f"a watcher missed a change: {found}")
                heard.append(found["latency_us"]["percentiles"])
            worst = {name: max(node[name] for node in heard) / 1e3 for name in ("50", "99")}
            self.say(f"- A change reaches {MANY_WATCHERS:,} watchers of each of three nodes, the slowest of them: p50 {worst['50']:,.0f}, p99 {worst['99']:,.0f} ms.")

    def writer(self):
        """Throughput of writes alone and beside 1,000 watchers of other keys, alternating."""
        with self.tidelock() as cluster:
            ratios, alone_rates = [], []
            for _ in range(self.settings.rounds):
                alone = self.writes(cluster)
                line = self.command("observe", "tidelock", (1_000, 3600), cluster.http[1:2])
                idle = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
                try:
                    idle.stdout.readline()
                    ratios.append(self.writes(cluster) / alone)
                    alone_rates.append(alone)
                finally:
                    idle.kill()
                    idle.wait()
            rate, ratio = statistics.median(alone_rates), statistics.median(ratios)
            self.say(
                f"- {rate:,.0f} pipelined SETs/s alone; beside 1,000 watchers of other keys {ratio:.2f} of it ({min(ratios):.2f}–{max(ratios):.2f})."
            )

    def writes(self, cluster):
        line = [self.settings.binary, "bench", "resp", "--via", "leader", "-c", "1", "-P", "64", "--reads", "0", "-d", str(self.settings.seconds), "--json"]
        done = subprocess.run([*line, "--url", cluster.urls], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["requests_per_second"]

    def leases(self):
        """Processor time of renewals, and what happens when a leader is killed meanwhile."""
        with self.tidelock() as cluster:
            length = 45 if self.settings.quick else 60
            line = self.command("renew", "tidelock", (MANY_LEASES, length), cluster.http)
            renewing = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
            if renewing.stdout.readline() != "ready\n":
                raise RuntimeError("the leases were not granted")
            time.sleep(5)
            used, begun = [processor_seconds(server) for server in cluster.servers], time.monotonic()
            time.sleep(length / 3)
            share = (sum(map(processor_seconds, cluster.servers)) - sum(used)) / (time.monotonic() - begun)
            self.say(f"- {MANY_LEASES:,} leases of 10 s renewed every 3.3 s, 100 in a request: {share:.1%} of a core for three nodes together.")
            before = self.paced_writes(cluster, cluster.urls)
            leader = cluster.leader()
            cluster.servers[leader].stop(signal.SIGKILL)
            others = ",".join(url for index, url in enumerate(cluster.urls.split(",")) if index != leader)
            after = self.paced_writes(cluster, others)
            found = json.loads(renewing.communicate()[0].splitlines()[-1])
            self.say(f"- Its leader killed: writes p99 {before / 1e3:.1f} ms before, {after / 1e3:.1f} ms in the 10 s after.")
            self.say(f"- Renewals that failed meanwhile: {found['error_counts']}; succeeded: {found['ok']:,} requests.")
            kept = self.kept(cluster, (leader + 1) % 3)
            self.say(f"- Leases at the end: {kept:,}.")

    def kept(self, cluster, node):
        """Number of leases, counted page by page."""
        count, after = 0, ""
        while after is not None:
            position = f"&after={urllib.parse.quote(after)}" if after else ""
            page = json.loads(cluster.get(node, f"/v1/leases?limit=1000{position}"))
            count, after = count + len(page["items"]), page["next"]
        return count

    def paced_writes(self, cluster, urls):
        line = [self.settings.binary, "bench", "kv", "--via", "given", "-c", "8", "--reads", "0", "--rate", "200", "-d", "10", "--json", "--url", urls]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        # It also ends with an error if single requests failed, as some may while a leader is elected.
        if not done.stdout:
            raise RuntimeError(f"{' '.join(line)}: {done.stderr}")
        return json.loads(done.stdout)["latency_us"]["percentiles"]["99"]


def main():
    settings = arguments()
    results = Results(settings)
    measurement = Measurement(settings, results)
    results.measure({"etcd": measurement.beside_etcd, "watchers": measurement.watchers, "writer": measurement.writer, "leases": measurement.leases})
    results.write("Coordination", "coordination")


if __name__ == "__main__":
    main()
