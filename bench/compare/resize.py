"""Grows a cluster from 3 to 6 to 9 nodes and back to 3 under a checked load, by starting and draining nodes and nothing else.

Writes go on at a fixed rate, and every answer is checked. For each phase: the latency of writes, and how long it took until every
shard was placed as it should be. At the end every key is read, and the reasons of each placement are printed. See README.md.
"""

import argparse
import json
import os
import shutil
import subprocess
import threading
import time

from machine import ROOT, machine
from servers import Cluster, get

FOUNDERS, MOST = 3, 9
KEYS = 10_000
ZONES = ("a", "b", "c")


def arguments():
    parser = argparse.ArgumentParser(prog="bench/compare/resize", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20, help="of each measurement while the cluster keeps its size")
    parser.add_argument("--rate", type=int, default=500, help="writes per second")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--binary", default=os.path.join(ROOT, "target", "release", "tidelock"))
    parser.add_argument("--work", default=os.path.join(ROOT, "target", "compare"))
    parser.add_argument("--port-base", type=int, default=24800, help="the first of 40 free ports")
    found = parser.parse_args()
    found.work = os.path.abspath(found.work)
    # For the description of the run.
    found.rounds, found.quick = 1, False
    return found


class Resize:
    def __init__(self, settings):
        self.settings = settings
        directory = os.path.join(settings.work, "data", "resize")
        self.cluster = Cluster(settings.binary, directory, MOST, settings.port_base, ("--shards", str(settings.shards)), FOUNDERS)
        for number, server in enumerate(self.cluster.servers):
            server.command += ["--tag", f"geo:zone={ZONES[number % len(ZONES)]}"]
        self.urls = ",".join(f"http://127.0.0.1:{port}" for port in self.cluster.http[:FOUNDERS])
        self.running = FOUNDERS
        self.phases = []

    def tidelock(self, *line):
        command = [self.settings.binary, *map(str, line), "--url", self.urls]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, line))}: {done.stderr.strip()} {done.stdout.strip()}")
        return done.stdout

    def load(self, seconds):
        """Writes for so long at the fixed rate, and returns what bench found."""
        line = ["bench", "kv", "--via", "given", "-c", 32, "--reads", 0, "--rate", self.settings.rate, "-d", seconds]
        found = json.loads(self.tidelock(*line, "--no-prepare", "--warm-up-s", 0, "--json"))
        return found["latency_us"]["percentiles"], found["errors"], found["error_counts"]

    def phase(self, name, change):
        """Measures while `change` runs, in pieces of three seconds until it has ended, and notes the slowest piece.

        Every phase is measured alike, also those in which the cluster keeps its size: a piece connects anew, and asking for the
        placement takes processor time from the nodes.
        """
        failure = []

        def run():
            try:
                change()
            except Exception as error:  # noqa: BLE001: reported below
                failure.append(error)

        begun, worker, pieces = time.monotonic(), threading.Thread(target=run), []
        worker.start()
        while worker.is_alive():
            pieces.append(self.load(3))
        if failure:
            raise failure[0]
        self.note(name, time.monotonic() - begun, pieces)

    def note(self, name, took, pieces):
        errors = sum(piece[1] for piece in pieces)
        percentiles = [piece[0] for piece in pieces]
        figures = {key: max(found[key] for found in percentiles) for key in ("50", "99", "99.9")}
        self.phases.append((name, took, figures, errors))
        print(f"{name}: p50 {figures['50']:.0f} µs, p99 {figures['99']:.0f} µs, p99.9 {figures['99.9']:.0f} µs, {errors} errors {[piece[2] for piece in pieces if piece[1]]}", flush=True)

    def placed(self):
        """Whether every wanted replica exists as it should, on all running nodes."""
        for shard in self.shards():
            explained = json.loads(self.tidelock("cluster", "explain", shard, "--output", "json"))
            if not all(host["written"] for host in explained["hosts"]):
                return False
        view = json.loads(get(f"http://127.0.0.1:{self.cluster.http[0]}/v1/cluster"))
        return all(shard["leader"] for shard in view["shards"])

    def shards(self):
        view = json.loads(get(f"http://127.0.0.1:{self.cluster.http[0]}/v1/cluster"))
        return [shard["id"] for shard in view["shards"]]

    def grow(self, to):
        for server in self.cluster.servers[self.running : to]:
            server.start()
        self.running = to
        self.rest(5)

    def rest(self, seconds):
        """Waits until the placement has been as it should be for so long."""
        calm = 0
        # Votes move one after another, so the placement is at rest only if it stays as it is.
        while calm < seconds:
            calm = calm + 1 if self.placed() else 0
            time.sleep(1)

    def shrink(self):
        while self.running > FOUNDERS:
            # Nodes that join at the same time get their numbers in any order.
            node = json.loads(get(f"http://127.0.0.1:{self.cluster.http[self.running - 1]}/v1/cluster"))["node"]
            self.tidelock("cluster", "drain", node)
            self.tidelock("cluster", "remove", node)
            self.running -= 1
            self.cluster.servers[self.running].stop()

    def voters(self):
        view = json.loads(get(f"http://127.0.0.1:{self.cluster.http[0]}/v1/cluster"))
        return {shard["id"]: sorted(row["node"] for row in view["replicas"] if row["shard"] == shard["id"] and row["voter"]) for shard in view["shards"]}

    def run(self):
        for server in self.cluster.servers[:FOUNDERS]:
            server.start()
        while not all(get(f"http://127.0.0.1:{port}/readyz") for port in self.cluster.http[:FOUNDERS]):
            time.sleep(0.1)
        # Every key is written once and read back at the end.
        self.tidelock("bench", "kv", "--via", "given", "--distribution", "sequential", "--reads", 0, "-n", KEYS, "-c", 8)
        self.phase("3 nodes", lambda: self.rest(self.settings.seconds))
        for size in (6, 9):
            self.phase(f"growing to {size}", lambda size=size: self.grow(size))
            print("  voters:", self.voters())
            self.phase(f"{size} nodes", lambda: self.rest(self.settings.seconds))
        for shard in self.shards():
            print(self.tidelock("cluster", "explain", shard))
        self.phase("shrinking to 3", self.shrink)
        print("  voters:", self.voters())
        self.phase("3 nodes again", lambda: self.rest(self.settings.seconds))
        print(f"keys found at the end: {self.keys():,} of {KEYS:,}")

    def keys(self):
        """Number of the load's keys, counted page by page."""
        count, after = 0, ""
        while after is not None:
            page = json.loads(get(f"http://127.0.0.1:{self.cluster.http[0]}/v1/keys?prefix=bench:&keys=true&after={after}"))
            count, after = count + len(page["items"]), page["next"]
        return count


def main():
    settings = arguments()
    os.makedirs(settings.work, exist_ok=True)
    print("; ".join(f"{name} {value}" for name, value in machine(settings).items()))
    resize = Resize(settings)
    try:
        resize.run()
    finally:
        resize.cluster.stop()
        shutil.rmtree(os.path.join(settings.work, "data", "resize"), ignore_errors=True)


if __name__ == "__main__":
    main()
