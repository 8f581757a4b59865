"""What the threads of one node do for a request, and whether its shards should be driven by more than one of them.

The first worker drives all shards, and all workers serve clients. Measures the processor time of each thread with one and
with two workers, and beside them two nodes that share nothing: what shards on two workers could reach at best on two cores.
A simulation of queues then has more cores than this machine, fed with these costs. See README.md.
"""

import argparse
import collections
import heapq
import json
import os
import random
import re
import shutil
import statistics
import subprocess

from machine import ROOT, machine
from results import described, write_page
from servers import Cluster, get, node_threads, task_times

CONNECTIONS = 64
# name, arguments of bench without the number of connections.
LOADS = (
    ("HTTP write", ("kv", "--reads", 0), CONNECTIONS),
    ("HTTP linearizable read", ("kv", "--reads", 100), CONNECTIONS),
    ("RESP SET", ("resp", "--via", "leader", "-P", 1, "--reads", 0), CONNECTIONS),
    ("RESP SET, pipelines of 256", ("resp", "--via", "leader", "-P", 256, "--reads", 0), 8),
)
# name, workers of each node, nodes.
SHAPES = (("one worker", 1, 1), ("two workers", 2, 1), ("two nodes", 1, 2))
SIMULATED_WORKERS = (1, 2, 4, 8, 16, 32)
SIMULATED_CLIENTS_A_WORKER = 64
SIMULATED_REQUESTS = 60_000
# A connection of the worker that drives all shards counts for this many: `OWNER_WEIGHT` of the server.
DRIVER_WEIGHT = 3


def arguments():
    parser = argparse.ArgumentParser(prog="bench/compare/workers", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="short rounds: to see that it works, not to quote")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, help="of each load (default: 5, with --quick 1)")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--binary", default=os.path.join(ROOT, "target", "release", "tidelock"))
    parser.add_argument("--out", default=os.path.join(ROOT, "docs", "benchmarks"))
    parser.add_argument("--work", default=os.path.join(ROOT, "target", "compare"))
    parser.add_argument("--port-base", type=int, default=24600, help="the first of 60 free ports")
    found = parser.parse_args()
    found.seconds = found.seconds or (1 if found.quick else 5)
    found.work, found.out = os.path.abspath(found.work), os.path.abspath(found.out)
    return found


def thread_us(server):
    """Microseconds for which the threads of each role have run."""
    used = collections.Counter()
    for task, role in node_threads(server.process.pid).items():
        ran, _ = task_times(server.process.pid, task) or (0, 0)
        used[role] += ran
    return used


def metric(cluster, name):
    return float(re.search(rb"^" + name.encode() + rb" (\S+)", get(f"http://127.0.0.1:{cluster.http[0]}/metrics"), re.M).group(1))


def sync_us(cluster, before):
    """Mean time of a sync since `before`, in microseconds."""
    seconds, count = (metric(cluster, f"tidelock_wal_fsync_duration_seconds_{part}") for part in ("sum", "count"))
    return 1e6 * (seconds - before[0]) / max(1.0, count - before[1])


def measure(settings, clusters, line, connections):
    """Requests a second, microseconds of each role a request of the first node, and microseconds of a sync."""
    commands = [[settings.binary, "bench", *map(str, line), "-c", str(connections // len(clusters)), "--url", cluster.urls, "--json"] for cluster in clusters]
    for command in commands:
        subprocess.run([*command, "-n", "1"], check=True, capture_output=True)
    before = thread_us(clusters[0].servers[0])
    syncs = [metric(clusters[0], f"tidelock_wal_fsync_duration_seconds_{part}") for part in ("sum", "count")]
    flags = ["--no-prepare", "--warm-up-s", "0", "-d", str(settings.seconds)]
    running = [subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, text=True) for command in commands]
    found = [json.loads(process.communicate()[0]) for process in running]
    after = thread_us(clusters[0].servers[0])
    for result in found:
        if result["errors"]:
            raise RuntimeError(f"{line}: {result['error_counts']}")
    own = found[0]["requests_per_second"] * settings.seconds
    costs = {role: (after[role] - before[role]) / own for role in after}
    return {"rate": sum(result["requests_per_second"] for result in found), "sync": sync_us(clusters[0], syncs), **costs}


def run(settings):
    """Medians of the rounds by load and shape."""
    rounds = {}
    for turn in range(settings.rounds):
        for name, workers, nodes in SHAPES if turn % 2 == 0 else SHAPES[::-1]:
            directories = [os.path.join(settings.work, "data", f"workers-{node}") for node in range(nodes)]
            options = ["--workers", str(workers), "--shards", str(settings.shards)]
            clusters = [Cluster(settings.binary, directory, 1, settings.port_base + 30 * node, options, 1) for node, directory in enumerate(directories)]
            try:
                for cluster in clusters:
                    cluster.start()
                for load, line, connections in LOADS:
                    found = measure(settings, clusters, line, connections)
                    rounds.setdefault((load, name), []).append(found)
                    print(f"round {turn + 1}, {load}, {name}: " + ", ".join(f"{key} {value:.1f}" for key, value in found.items()), flush=True)
            finally:
                for cluster in clusters:
                    cluster.stop()
                for directory in directories:
                    shutil.rmtree(directory, ignore_errors=True)
    return {key: {name: statistics.median(result[name] for result in found) for name in found[0]} for key, found in rounds.items()}


def costs(figures, load):
    """Microseconds a request: of one whose connection and shard have the same worker; and of one that crosses, at each of the two.

    With two workers, half of the requests are of the first worker's connections, and those of the other one cross.
    """
    own = figures[load, "one worker"]["worker"]
    two = figures[load, "two workers"]
    return own, 2 * two["other workers"], max(0.05, 2 * two["worker"] - own)


def connected(clients, weights):
    """The worker of each client: as the server accepts connections, the one with the fewest, by weight."""
    loads, chosen = [0] * len(weights), []
    for _ in range(clients):
        worker = min(range(len(weights)), key=lambda one: loads[one] * weights[one])
        loads[worker] += 1
        chosen.append(worker)
    return chosen


class Simulation:
    """Workers take turns with what has come: requests of their connections, and those that others hand over. One log syncs what came meanwhile."""

    def __init__(self, workers, found, sync, log, is_spread):
        self.own, self.serve, self.drive = found
        self.workers, self.sync, self.log, self.is_spread = workers, sync, log, is_spread
        # Two lists of clients for each worker: requests of its connections, and requests for its shards.
        self.waiting = [([], []) for _ in range(workers)]
        self.busy = [False] * workers
        self.is_syncing, self.unsynced = False, []
        self.events, self.order, self.done, self.now = [], 0, 0, 0.0
        self.random = random.Random(1)

    def at(self, time, what, *rest):
        self.order += 1
        heapq.heappush(self.events, (time, self.order, what, rest))

    def run(self, clients):
        self.worker_of = connected(clients, [1 if self.is_spread or worker else DRIVER_WEIGHT for worker in range(self.workers)])
        for client, worker in enumerate(self.worker_of):
            self.waiting[worker][0].append(client)
        for worker in range(self.workers):
            self.turn(worker)
        while self.done < SIMULATED_REQUESTS:
            self.now, _, what, rest = heapq.heappop(self.events)
            getattr(self, what)(*rest)
        return 1e6 * self.done / self.now

    def turn(self, worker):
        asked, handed = self.waiting[worker]
        self.busy[worker] = bool(asked or handed)
        if not self.busy[worker]:
            return
        self.waiting[worker] = ([], [])
        # A key is of any shard.
        drivers = [self.random.randrange(self.workers) if self.is_spread else 0 for _ in asked]
        own = [client for client, driver in zip(asked, drivers) if driver == worker]
        crossing = [(client, driver) for client, driver in zip(asked, drivers) if driver != worker]
        cost = self.own * len(own) + self.serve * len(crossing) + self.drive * len(handed)
        self.at(self.now + cost, "end_turn", worker, own + handed, crossing)

    def end_turn(self, worker, driven, crossing):
        for client, driver in crossing:
            self.waiting[driver][1].append(client)
            if not self.busy[driver]:
                self.turn(driver)
        self.unsynced += driven
        self.write()
        self.turn(worker)

    def write(self):
        if not self.is_syncing and self.unsynced:
            self.is_syncing, batch, self.unsynced = True, self.unsynced, []
            self.at(self.now + self.sync + self.log * len(batch), "synced", batch)

    def synced(self, batch):
        self.is_syncing = False
        self.done += len(batch)
        for client in batch:
            worker = self.worker_of[client]
            self.waiting[worker][0].append(client)
            if not self.busy[worker]:
                self.turn(worker)
        self.write()


def simulated(figures, load):
    """Requests a second by number of workers, with the shards on one worker and on all."""
    two = figures[load, "two workers"]
    sync, log = (0.0, 0.0) if "read" in load else (two["sync"], two["log"])
    rates = {}
    for workers in SIMULATED_WORKERS:
        clients = SIMULATED_CLIENTS_A_WORKER * workers * (4 if "pipelines" in load else 1)
        rates[workers] = [Simulation(workers, costs(figures, load), sync, log, is_spread).run(clients) for is_spread in (False, True)]
    return rates


def tables(figures):
    lines = [
        "- Microseconds of processor time a request: of the first worker, which drives all shards; of the other one; of the thread of the log. Nodes and clients share the two processors.",
        "- *Two nodes* share nothing, and have half of the clients each: no arrangement of the shards of one node can do better on two cores.",
    ]
    lines += ["", "| load | shape | requests/s | first worker | other worker | log |", "|---|---|---|---|---|---|"]
    for load, _, _ in LOADS:
        for shape, _, _ in SHAPES:
            found = figures[load, shape]
            others = f"{found['other workers']:.1f}" if shape == "two workers" else "–"
            lines.append(f"| {load} | {shape} | {found['rate']:,.0f} | {found['worker']:.1f} | {others} | {found['log']:.1f} |")
    lines += ["", "## More cores than this machine has", ""]
    lines.append("- A request costs *own* if its connection and its shard have the same worker. Otherwise it costs *serve* at the worker of its connection and *drive* at that of its shard. From the lines above: with two workers, half of the requests cross.")
    lines.append("- The bound of a node whose shards one worker drives is 1 / drive.")
    lines.append(f"- Simulated: {SIMULATED_CLIENTS_A_WORKER} clients a worker that wait for each answer (four times as many for pipelines), one log, thousands of requests a second with the shards on *one* worker and on *all*.")
    lines += ["", "| load | own | serve | drive | bound | " + " | ".join(f"{workers}: one / all" for workers in SIMULATED_WORKERS) + " |", "|---|---|---|---|---|" + "---|" * len(SIMULATED_WORKERS)]
    for load, _, _ in LOADS:
        own, serve, drive = costs(figures, load)
        cells = " | ".join(f"{one / 1e3:,.0f} / {spread / 1e3:,.0f}" for one, spread in simulated(figures, load).values())
        lines.append(f"| {load} | {own:.1f} µs | {serve:.1f} µs | {drive:.1f} µs | {1e3 / drive:,.0f} | {cells} |")
    return lines


def main():
    settings = arguments()
    os.makedirs(settings.work, exist_ok=True)
    first = described(machine(settings))
    print(write_page(settings, "What the threads of a node do", "workers", [first, *tables(run(settings))]))


if __name__ == "__main__":
    main()
