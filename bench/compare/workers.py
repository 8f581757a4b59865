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
# name, arguments of bench without the number of connections, connections.
LOADS = (
    ("HTTP write", ("kv", "--reads", 0), CONNECTIONS),
    ("HTTP linearizable read", ("kv", "--reads", 100), CONNECTIONS),
    ("RESP SET", ("resp", "--via", "leader", "-P", 1, "--reads", 0), CONNECTIONS),
    ("RESP SET, pipelines of 256", ("resp", "--via", "leader", "-P", 256, "--reads", 0), 8),
)
# What a request costs depends on how many are handled together. So the shapes that the simulation takes its costs from are
# measured with this many times the connections too.
MANY = 4
CROSSING, CROSSING_WORKERS = "three workers", 3
# name, workers of each node, nodes, multiples of the connections.
SHAPES = (
    ("one worker", 1, 1, (1, MANY)),
    ("two workers", 2, 1, (1,)),
    (CROSSING, CROSSING_WORKERS, 1, (1, MANY)),
    ("two nodes", 1, 2, (1,)),
)
SIMULATED_WORKERS = (1, 2, 3, 4, 5, 6, 8, 16, 32)
SIMULATED_CLIENTS_A_WORKER = 64
SIMULATED_REQUESTS = 60_000
# The mean time from a reply until the client's next request arrives.
SIMULATED_PAUSE_US = 100
# A connection of the worker that drives all shards counts for this many, for each of the others: `OWNER_WEIGHT` of the server.
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


COUNTERS = {
    "batches": "tidelock_worker_batches_total",
    "sync seconds": "tidelock_wal_fsync_duration_seconds_sum",
    "syncs": "tidelock_wal_fsync_duration_seconds_count",
}


def counters(cluster):
    text = get(f"http://127.0.0.1:{cluster.http[0]}/metrics")
    return {key: float(re.search(rb"^" + name.encode() + rb" (\S+)", text, re.M).group(1)) for key, name in COUNTERS.items()}


def measure(settings, clusters, line, connections):
    """Requests a second; of the first node: microseconds of each role and batches a request, and microseconds of a sync."""
    commands = [[settings.binary, "bench", *map(str, line), "-c", str(connections // len(clusters)), "--url", cluster.urls, "--json"] for cluster in clusters]
    for command in commands:
        subprocess.run([*command, "-n", "1"], check=True, capture_output=True)
    before, counted = thread_us(clusters[0].servers[0]), counters(clusters[0])
    flags = ["--no-prepare", "--warm-up-s", "0", "-d", str(settings.seconds)]
    running = [subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, text=True) for command in commands]
    found = [json.loads(process.communicate()[0]) for process in running]
    after, counted_after = thread_us(clusters[0].servers[0]), counters(clusters[0])
    for result in found:
        if result["errors"]:
            raise RuntimeError(f"{line}: {result['error_counts']}")
    own = found[0]["requests_per_second"] * settings.seconds
    more = {key: counted_after[key] - counted[key] for key in counted}
    return {
        "rate": sum(result["requests_per_second"] for result in found),
        "sync": 1e6 * more["sync seconds"] / max(1.0, more["syncs"]),
        "batches": more["batches"] / own,
        **{role: (after[role] - before[role]) / own for role in after},
    }


def run(settings):
    """Medians of the rounds by load, shape and connections."""
    rounds = {}
    for turn in range(settings.rounds):
        for name, workers, nodes, multiples in SHAPES if turn % 2 == 0 else SHAPES[::-1]:
            directories = [os.path.join(settings.work, "data", f"workers-{node}") for node in range(nodes)]
            options = ["--workers", str(workers), "--shards", str(settings.shards)]
            clusters = [Cluster(settings.binary, directory, 1, settings.port_base + 30 * node, options, 1) for node, directory in enumerate(directories)]
            try:
                for cluster in clusters:
                    cluster.start()
                for load, line, connections in LOADS:
                    for count in (multiple * connections for multiple in multiples):
                        found = measure(settings, clusters, line, count)
                        rounds.setdefault((load, name, count), []).append(found)
                        print(f"round {turn + 1}, {load}, {name}, {count} connections: " + ", ".join(f"{key} {value:.3f}" for key, value in found.items()), flush=True)
            finally:
                for cluster in clusters:
                    cluster.stop()
                for directory in directories:
                    shutil.rmtree(directory, ignore_errors=True)
    return {key: {name: statistics.median(result[name] for result in found) for name in found[0]} for key, found in rounds.items()}


class Costs:
    """What a request of a load costs: *own* if its connection and its shard have the same worker, otherwise *serve* and *drive*.

    From the lines with many connections, as the workers of a machine with many cores have them: threads then sleep seldom.
    """

    def __init__(self, figures, load, connections):
        count = MANY * connections
        found = figures[load, CROSSING, count]
        # The first worker has connections too; their requests do not cross.
        share = connected(count, CROSSING_WORKERS, False).count(0) / count
        self.own = figures[load, "one worker", count]["worker"]
        self.serve = found["other workers"] / (1 - share)
        self.drive = (found["worker"] - share * self.own) / (1 - share)
        self.log, self.sync = (0.0, 0.0) if "read" in load else (found["log"], found["sync"])


def connected(clients, workers, is_spread):
    """The worker of each client: as the server accepts connections, the one with the fewest, by weight."""
    weights = [1 if is_spread or worker else DRIVER_WEIGHT * (workers - 1) for worker in range(workers)]
    loads, chosen = [0] * workers, []
    for _ in range(clients):
        worker = min(range(workers), key=lambda one: loads[one] * weights[one])
        loads[worker] += 1
        chosen.append(worker)
    return chosen


class Simulation:
    """Workers take turns with what has come: requests of their connections, and those that others hand over. One log syncs what came meanwhile."""

    def __init__(self, workers, costs, is_spread):
        self.costs, self.workers, self.is_spread = costs, workers, is_spread
        # For each worker: clients with requests, and clients whose requests other workers handed over.
        self.waiting = [([], []) for _ in range(workers)]
        self.busy = [False] * workers
        self.is_syncing, self.unsynced = False, []
        self.events, self.order, self.done, self.now = [], 0, 0, 0.0
        self.random = random.Random(1)

    def at(self, time, what, *rest):
        self.order += 1
        heapq.heappush(self.events, (time, self.order, what, rest))

    def run(self, clients):
        self.worker_of = connected(clients, self.workers, self.is_spread)
        for client in range(clients):
            self.asks(client)
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
        sent = collections.defaultdict(list)
        for client in asked:
            # A key is of any shard.
            sent[self.random.randrange(self.workers) if self.is_spread else 0].append(client)
        driven = sent.pop(worker, [])
        cost = self.costs.own * len(driven) + self.costs.serve * (len(asked) - len(driven)) + self.costs.drive * len(handed)
        driven += handed
        self.at(self.now + cost, "end_turn", worker, driven, sent)

    def end_turn(self, worker, driven, sent):
        for driver, batch in sent.items():
            self.waiting[driver][1].extend(batch)
            if not self.busy[driver]:
                self.turn(driver)
        self.unsynced += driven
        self.write()
        self.turn(worker)

    def write(self):
        if not self.is_syncing and self.unsynced:
            self.is_syncing, batch, self.unsynced = True, self.unsynced, []
            self.at(self.now + self.costs.sync + self.costs.log * len(batch), "synced", batch)

    def synced(self, batch):
        self.is_syncing = False
        self.done += len(batch)
        for client in batch:
            self.at(self.now + self.random.expovariate(1 / SIMULATED_PAUSE_US), "asks", client)
        self.write()

    def asks(self, client):
        worker = self.worker_of[client]
        self.waiting[worker][0].append(client)
        if not self.busy[worker]:
            self.turn(worker)


def simulated(costs, load):
    """Requests a second by number of workers, with the shards on one worker and on all."""
    rates = {}
    for workers in SIMULATED_WORKERS:
        clients = SIMULATED_CLIENTS_A_WORKER * workers * (4 if "pipelines" in load else 1)
        rates[workers] = [Simulation(workers, costs, is_spread).run(clients) for is_spread in (False, True)]
    return rates


def tables(figures):
    lines = [
        "- Microseconds of processor time a request: of the first worker, which drives all shards; of the others; of the thread of the log. Nodes and clients share the two processors.",
        "- With two workers the first one serves a quarter of the connections, with three about a thirteenth. All requests of the others cross to it. *Batch*: how many cross together.",
        "- *Two nodes* share nothing, and have half of the clients each: no arrangement of the shards of one node can do better on two cores.",
    ]
    lines += ["", "| load | shape | connections | requests/s | first worker | other workers | log | batch |", "|---|---|---|---|---|---|---|---|"]
    for (load, shape, connections), found in figures.items():
        others, batch = (f"{found['other workers']:.1f}", f"{1 / found['batches']:.1f}") if found["batches"] else ("–", "–")
        lines.append(f"| {load} | {shape} | {connections} | {found['rate']:,.0f} | {found['worker']:.2f} | {others} | {found['log']:.2f} | {batch} |")
    lines += ["", "## More cores than this machine has", ""]
    lines.append(f"- A request costs *own* if its connection and its shard have the same worker. Otherwise it costs *serve* at the worker of its connection and *drive* at that of its shard. From the lines above with {MANY} times the connections; more requests cross together there.")
    lines.append("- *Bound*: what one worker can drive, 1 / drive, in thousands a second.")
    lines.append(f"- Simulated: {SIMULATED_CLIENTS_A_WORKER} clients a worker that ask {SIMULATED_PAUSE_US} µs after each answer (four times as many for pipelines), one log, a core for each worker and for the log; thousands of requests a second with the shards on *one* worker and on *all*.")
    lines += ["", "| load | own | serve | drive | bound | " + " | ".join(f"{workers}: one / all" for workers in SIMULATED_WORKERS) + " |", "|---|---|---|---|---|" + "---|" * len(SIMULATED_WORKERS)]
    for load, _, connections in LOADS:
        costs = Costs(figures, load, connections)
        cells = " | ".join(f"{one / 1e3:,.0f} / {spread / 1e3:,.0f}" for one, spread in simulated(costs, load).values())
        lines.append(f"| {load} | {costs.own:.1f} µs | {costs.serve:.1f} µs | {costs.drive:.1f} µs | {1e3 / costs.drive:,.0f} | {cells} |")
    return lines


def main():
    settings = arguments()
    os.makedirs(settings.work, exist_ok=True)
    first = described(machine(settings))
    figures = run(settings)
    # By load, not in the order of the rounds.
    figures = {key: figures[key] for load, _, _ in LOADS for key in figures if key[0] == load}
    print(write_page(settings, "What the threads of a node do", "workers", [first, *tables(figures)]))


if __name__ == "__main__":
    main()
