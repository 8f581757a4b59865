"""Compares Tidelock with its ceilings and peers in one run on one machine, and writes a table and plots.

Only ratios of one round count: ours and theirs are measured one after the other, in every round, and the ratio of a line is the
median of the ratios of its rounds. See README.md.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys

import report
from machine import ROOT, machine, others_share
from servers import Cluster, Etcd, SecureCluster, Server, connects, redis



def arguments():
    parser = argparse.ArgumentParser(prog="bench/compare/compare", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="short rounds and few keys: to see that it works, not to quote")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, help="of each load (default: 10, with --quick 1)")
    parser.add_argument("--add", action="store_true", help="keep the lines of an earlier run that this one does not measure")
    parser.add_argument("--only", default="", help="these lines alone, such as P1,P3")
    parser.add_argument("--out", default=os.path.join(ROOT, "docs", "benchmarks"))
    parser.add_argument("--work", default=os.path.join(ROOT, "target", "compare"))
    parser.add_argument("--port-base", type=int, default=24400, help="the first of 200 free ports")
    found = parser.parse_args()
    if found.rounds < 1:
        parser.error("--rounds must be at least 1")
    if found.seconds is None:
        found.seconds = 1 if found.quick else 10
    if found.seconds < 0.5:
        parser.error("--seconds must be at least 0.5")
    # Each server has its own directory.
    found.work, found.out = os.path.abspath(found.work), os.path.abspath(found.out)
    return found


class Comparison:
    """The servers, the lines of the table, and their measurements."""

    def __init__(self, settings):
        self.settings = settings
        self.binary = os.path.join(ROOT, "target", "release", "tidelock")
        self.etcd_binary = os.path.join(settings.work, "etcd")
        self.rows, self.left_out, self.running = [], [], []

    def directory(self, name):
        return os.path.join(self.settings.work, "data", name)

    def begin(self, server):
        self.running.append(server)
        server.start()
        return server

    def end(self, server):
        server.stop()
        self.running.remove(server)

    def wanted(self, *names):
        only = [name for name in self.settings.only.split(",") if name]
        return not only or any(name in only for name in names)

    def bench(self, *line):
        """One run of `tidelock bench`, as JSON. A wrong answer ends the comparison."""
        done = subprocess.run([self.binary, "bench", *map(str, line), "--json"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"bench {' '.join(map(str, line))}: {done.stderr.strip()} {done.stdout[:2000]}")
        return json.loads(done.stdout)

    def load(self, *line):
        found = self.bench(*line, "-d", self.settings.seconds)
        if found["errors"] > 0:
            print(f"    {found['errors']} errors: {found['error_counts']}", file=sys.stderr)
        return found

    def rate(self, *line):
        return self.load(*line)["requests_per_second"]

    def line(self, name, load, peer, unit, goal, ours, theirs):
        """Adds a line; `goal` is (ratio, whether the ratio is an upper bound)."""
        if not self.wanted(name):
            return
        row = {"id": name, "load": load[0], "short": load[1], "peer": peer, "unit": unit}
        row |= {"target": goal[0], "at_most": goal[1], "ours": ours, "theirs": theirs}
        row |= {"ours_rounds": [], "theirs_rounds": [], "busy_rounds": []}
        self.rows.append(row)

    def measure(self):
        """Measures the lines that have no figures yet. Tidelock and the peer go first alternately."""
        rows = [row for row in self.rows if not row["busy_rounds"]]
        for turn in range(self.settings.rounds):
            busy = others_share()
            for row in rows:
                row["busy_rounds"].append(busy)
                sides = [("ours", row["ours"]), ("theirs", row["theirs"])]
                for side, measured in sides if turn % 2 == 0 else reversed(sides):
                    row[f"{side}_rounds"].append(measured())
                print(f"round {turn + 1} {row['id']:4} {row['short']}: {row['ours_rounds'][-1]:,.1f} beside {row['theirs_rounds'][-1]:,.1f}", flush=True)

    def run(self):
        os.makedirs(self.directory(""), exist_ok=True)
        base = self.settings.port_base
        if self.wanted("P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P13"):
            three = self.begin(Cluster(self.binary, self.directory("three"), 3, base))
            if self.wanted("P1", "P2", "P3"):
                self.http(three, base + 40)
            self.resp(three, base)
            self.disk(three, base + 60)
            self.etcd(three, base + 80)
            self.secure(three, base + 140)
            for server in list(self.running):
                self.end(server)
        if self.wanted("P10", "P11"):
            self.size(base + 120)
        self.snapshots(base + 160)

    def http(self, three, port):
        hello_binary = os.path.join(ROOT, "target", "release", "examples", "hello")
        self.begin(Server("hello", [hello_binary, f"127.0.0.1:{port}"], self.directory("hello"), lambda: connects(port)))

        def hello(connections):
            return lambda: self.rate("http", "-c", connections, f"http://127.0.0.1:{port}/")

        def kv(connections, *line):
            keys = ("--distribution", "one", "--url", three.urls, "-c", connections)
            return lambda: self.rate("kv", *keys, *line)

        name = "bare hyper"
        reads, writes = ("--reads", 100), ("--reads", 0, "--via", "leader")
        stale = kv(64, *reads, "--consistency", "stale", "--via", "follower")
        self.line("P1", ("HTTP stale GET, 64 connections", "stale GET 64"), name, "/s", (1.1, False), stale, hello(64))
        self.line("P2", ("HTTP linearizable GET on the leader, 64", "GET leader 64"), name, "/s", (0.8, False), kv(64, *reads, "--via", "leader"), hello(64))
        self.line("P2", ("the same on followers", "GET follower 64"), name, "/s", (0.7, False), kv(64, *reads, "--via", "follower"), hello(64))
        self.line("P3", ("HTTP write, 32 B, sync on, 64", "write 64"), name, "/s", (0.5, False), kv(64, *writes), hello(64))
        self.line("P3", ("the same, 512", "write 512"), name, "/s", (0.65, False), kv(512, *writes), hello(512))
        self.measure()

    def resp(self, three, base):
        if not self.wanted("P4", "P5", "P6", "P7"):
            return
        memory, durable = base + 50, base + 51
        self.begin(redis(self.directory("redis-memory"), memory, False))
        self.begin(redis(self.directory("redis-durable"), durable, True))
        one = self.begin(Cluster(self.binary, self.directory("one"), 1, base + 30 + 70)) if self.wanted("P6") else None
        deep, shallow = ("-c", 8, "-P", 512), ("-c", 64, "-P", 1)

        def theirs(port, depth, reads):
            return lambda: self.rate("resp", "--address", f"127.0.0.1:{port}", *depth, "--reads", reads)

        def ours(cluster, depth, reads):
            via = ("--url", cluster.urls, "--via", "leader")
            return lambda: self.rate("resp", *via, *depth, "--reads", reads)

        always, plain = "redis, appendfsync always", "redis in memory"
        self.line("P4", ("RESP SET, 8 connections of 512, sync on", "SET 8x512"), always, "/s", (1.5, False), ours(three, deep, 0), theirs(durable, deep, 0))
        self.line("P5", ("RESP GET, 8 of 512, linearizable", "GET 8x512"), plain, "/s", (1.5, False), ours(three, deep, 100), theirs(memory, deep, 100))
        if one is not None:
            self.line("P6", ("as P4, one node", "SET 8x512, one node"), always, "/s", (2, False), ours(one, deep, 0), theirs(durable, deep, 0))
            self.line("P6", ("as P5, one node", "GET 8x512, one node"), plain, "/s", (1.2, False), ours(one, deep, 100), theirs(memory, deep, 100))
        self.line("P7", ("RESP SET, 64 of 1, sync on", "SET 64x1"), always, "/s", (0.8, False), ours(three, shallow, 0), theirs(durable, shallow, 0))
        self.measure()

    def disk(self, three, port_base):
        if not self.wanted("P8"):
            return
        one = self.begin(Cluster(self.binary, self.directory("alone"), 1, port_base))

        def probe():
            ways = self.bench("disk", "--dir", self.directory(""), "-d", max(self.settings.seconds / 4, 0.5))["ways"]
            way = next(way for way in ways if (way["place"], way["sync"]) == ("preallocated", "fdatasync"))
            return way["latency_us"]["percentiles"]["50"]

        def median(cluster):
            line = ("kv", "-c", 1, "--reads", 0, "--distribution", "one", "--via", "leader", "--url", cluster.urls)
            return lambda: self.load(*line)["latency_us"]["percentiles"]["50"]

        peer = "write + fdatasync"
        self.line("P8", ("one client, sync on, three nodes: write p50", "p50, three nodes"), peer, "µs", (2.5, True), median(three), probe)
        self.line("P8", ("the same with one node", "p50, one node"), peer, "µs", (1.5, True), median(one), probe)
        self.measure()
        self.end(one)

    def etcd(self, three, port_base):
        if not self.wanted("P9"):
            return
        if not os.path.exists(self.etcd_binary):
            self.left_out.append("P9, because etcd could not be built")
            return
        etcd = self.begin(Etcd(self.etcd_binary, self.directory("etcd"), port_base))

        def theirs(operation):
            def measured():
                ports = ",".join(map(str, etcd.ports))
                line = [self.etcd_binary, "load", operation, "8", "512", str(max(int(self.settings.seconds), 1)), ports]
                done = subprocess.run(line, capture_output=True, text=True, check=True)
                return json.loads(done.stdout)["requests_per_second"]

            return measured

        def ours(reads):
            return lambda: self.rate("resp", "--url", three.urls, "--via", "leader", "-c", 8, "-P", 64, "--reads", reads)

        peer = "etcd 3.7.3"
        self.line("P9", ("writes, 512 outstanding", "writes 8x64"), peer, "/s", (50, False), ours(0), theirs("put"))
        self.line("P9", ("linearizable reads, 512 outstanding", "reads 8x64"), peer, "/s", (100, False), ours(100), theirs("range"))
        self.measure()
        self.end(etcd)

    def secure(self, three, port_base):
        """Compares a cluster with TLS and tokens with one that has neither."""
        if not self.wanted("P13"):
            return
        secure = self.begin(SecureCluster(self.binary, self.directory("secure"), 3, port_base))

        def kv(cluster, *line):
            line = ("--url", cluster.urls, *cluster.credentials, "--distribution", "one", "-c", 64, "--via", "leader", *line)
            return lambda: self.rate("kv", *line)

        def resp(cluster, reads):
            tls = ("--tls",) if cluster.credentials else ()
            line = ("--url", cluster.urls, *cluster.credentials, *tls, "--via", "leader", "-c", 8, "-P", 512, "--reads", reads)
            return lambda: self.rate("resp", *line)

        peer, goal = "without TLS and tokens", (0.75, False)
        for name, reads in (("GET", 100), ("write", 0)):
            line = ("--reads", reads)
            self.line("P13", (f"HTTP {name} with TLS and tokens, 64 connections", f"secure {name} 64"), peer, "/s", goal, kv(secure, *line), kv(three, *line))
        for name, reads in (("GET", 100), ("SET", 0)):
            self.line("P13", (f"RESP {name} with TLS and tokens, 8 connections of 512", f"secure {name} 8x512"), peer, "/s", goal, resp(secure, reads), resp(three, reads))
        self.measure()
        self.end(secure)

    def size(self, base):
        """Measures memory and restart with many keys, once, because filling takes longest and its results repeat well."""
        keys = 300_000 if self.settings.quick else 10_000_000
        ours = self.begin(Cluster(self.binary, self.directory("large"), 1, base))
        theirs = self.begin(redis(self.directory("redis-large"), base + 30, True))
        for address in (ours.addresses, f"127.0.0.1:{base + 30}"):
            self.bench("resp", "--address", address, "-c", 8, "-P", 256, "--keys", keys, "--distribution", "sequential", "--reads", 100, "-n", 1)
        mib = 1 << 20
        self.once("P10", (f"resident set, {keys:,} keys of 16 B with 32 B values", "memory"), "MiB", 1, (ours.servers[0].resident_bytes() / mib, theirs.resident_bytes() / mib))
        for server in (ours.servers[0], theirs):
            server.stop(signal.SIGKILL)
        self.once("P11", ("kill -9, then until ready, with those keys", "restart"), "s", 0.12, (ours.servers[0].start(), theirs.start()))
        self.end(ours)
        self.end(theirs)

    def once(self, name, load, unit, target, figures):
        if not self.wanted(name):
            return
        ours, theirs = figures
        self.line(name, load, "redis-server", unit, (target, True), None, None)
        self.rows[-1] |= {"ours_rounds": [ours], "theirs_rounds": [theirs], "busy_rounds": [others_share()]}
        print(f"once    {name:4} {load[1]}: {ours:,.2f} beside {theirs:,.2f}", flush=True)

    def snapshots(self, base):
        if not self.wanted("P11"):
            return
        keys = 50_000 if self.settings.quick else 800_000
        three = self.begin(Cluster(self.binary, self.directory("snapshots"), 3, base))
        line = ("kv", "--url", three.urls, "--reads", 0, "--keys", keys, "--rate", 1500, "-c", 64)
        self.bench(*line, "-n", 1)

        def p99(while_it_runs):
            def measured():
                while_it_runs()
                return self.load(*line, "--no-prepare", "--warm-up-s", 0)["latency_us"]["percentiles"]["99"]

            return measured

        self.line("P11", ("p99 of 1,500 writes/s while all nodes make all snapshots", "p99 in snapshots"), "without", "µs", (2, True), p99(three.checkpoint), p99(lambda: None))
        self.measure()
        self.end(three)


def with_earlier(settings, result):
    """Adds the lines of an earlier run that this one did not measure, each with the description of its own run."""
    if not settings.add:
        return result
    try:
        with open(os.path.join(settings.out, "comparison.json"), encoding="utf-8") as source:
            before = json.load(source)
    except FileNotFoundError:
        return result
    measured = {row["id"] for row in result["rows"]}
    kept = [row for row in before["rows"] if row["id"] not in measured]
    runs = [run for run in before["runs"] if any(row["date"] == run["date"] for row in kept)]
    # This run may have measured lines that the earlier one left out.
    left_out = [reason for reason in before["left_out"] if reason.split(",")[0] not in measured]
    return {"runs": runs + result["runs"], "rows": kept + result["rows"], "left_out": sorted(set(left_out + result["left_out"]))}


def main():
    settings = arguments()
    shutil.rmtree(os.path.join(settings.work, "data"), ignore_errors=True)
    os.makedirs(settings.work, exist_ok=True)
    run = machine(settings)
    comparison = Comparison(settings)
    try:
        comparison.run()
    finally:
        for server in reversed(comparison.running):
            server.stop()
    rows = comparison.rows
    if not rows:
        sys.exit("--only names no line" if not comparison.left_out else "left out: " + "; ".join(comparison.left_out))
    report.summarise(rows)
    for row in rows:
        row["date"] = run["date"]
    result = with_earlier(settings, {"runs": [run], "rows": rows, "left_out": comparison.left_out})
    result["rows"].sort(key=lambda row: int(row["id"][1:]))
    os.makedirs(settings.out, exist_ok=True)
    report.plot(result, settings.out)
    text = report.markdown(result)
    with open(os.path.join(settings.out, "comparison.md"), "w", encoding="utf-8") as out:
        out.write(text)
    with open(os.path.join(settings.out, "comparison.json"), "w", encoding="utf-8") as out:
        json.dump(result, out, indent=1, default=lambda _: None, ensure_ascii=False)
        out.write("\n")
    print(text)
    shutil.rmtree(os.path.join(settings.work, "data"), ignore_errors=True)


if __name__ == "__main__":
    main()
