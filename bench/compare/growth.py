"""What a request costs clusters of one to nine nodes: processor time of all nodes and of the busiest one, and bytes written.

All nodes and the client share one machine, so throughput says nothing about larger clusters; processor time per request does.
A request's cost is the time that the nodes' processes used, as the kernel counts it, divided by the requests. See README.md.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import time

from machine import ROOT, machine
from results import described, write_page
from servers import Cluster, get

NODES = (1, 3, 5, 7, 9)
# Three independent clusters of three nodes: what nine nodes cost without being one cluster.
INDEPENDENT = "3 × 3"
CLUSTERS_INDEPENDENT = 3
# The nodes beyond these join.
FOUNDERS = 3
# A cluster rests for 15 seconds before each division.
DIVIDED_S = 180
VALUE_BYTES, KEY_BYTES = 32, 16
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# name, kind of bench, clients, and more arguments: everything else at its default, so each request goes to the leader of its key.
LOADS = (
    ("HTTP write", "kv", 64, ("--reads", 0)),
    ("HTTP linearizable read", "kv", 64, ("--reads", 100)),
    ("RESP SET, pipelines of 256", "resp", 8, ("--via", "leader", "-P", 256, "--reads", 0)),
    ("RESP GET, pipelines of 256", "resp", 8, ("--via", "leader", "-P", 256, "--reads", 100)),
)

# How the number of clients grows.
SAME, EACH = "the same clients", "as many for each shard"


def arguments():
    parser = argparse.ArgumentParser(prog="bench/compare/growth", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="short rounds: to see that it works, not to quote")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, help="of each load (default: 5, with --quick 1)")
    parser.add_argument("--nodes", default=",".join(map(str, NODES)), help="sizes of the clusters")
    parser.add_argument("--independent", action="store_true", help="also three independent clusters of three nodes")
    parser.add_argument("--binary", default=os.path.join(ROOT, "target", "release", "tidelock"))
    parser.add_argument("--options", default="", help="more flags of every node, separated by spaces")
    parser.add_argument("--out", default=os.path.join(ROOT, "docs", "benchmarks"))
    parser.add_argument("--work", default=os.path.join(ROOT, "target", "compare"))
    parser.add_argument("--port-base", type=int, default=24700, help="the first of 100 free ports")
    found = parser.parse_args()
    found.seconds = found.seconds or (1 if found.quick else 5)
    found.sizes = [int(size) for size in found.nodes.split(",") if size] + ([INDEPENDENT] if found.independent else [])
    found.work, found.out = os.path.abspath(found.work), os.path.abspath(found.out)
    return found


def wait_for_division(cluster):
    """Waits until the cluster has as many data shards as it wants, each with its share of the slots."""
    begun = time.monotonic()
    while not is_divided(cluster):
        if time.monotonic() - begun > DIVIDED_S:
            raise RuntimeError("the cluster has not divided its shards in time")
        time.sleep(0.5)


def slots_of_data_shards(cluster):
    view = json.loads(cluster.get(0, "/v1/cluster"))
    return [shard["slots"] for shard in view["shards"] if shard["id"] != 0]


def is_divided(cluster):
    loads = [json.loads(cluster.get(index, "/v1/cluster/load") or "{}") for index in range(len(cluster.http))]
    divisions = [load["division"] for load in loads if "division" in load]
    slots = slots_of_data_shards(cluster)
    is_wanted = any(division["wanted"] == division["shards"] == len(slots) for division in divisions)
    return is_wanted and max(slots) - min(slots) <= 1


def processor_seconds(server):
    with open(f"/proc/{server.process.pid}/stat", encoding="utf-8") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def logged_bytes(cluster):
    """Bytes that all nodes have written to their logs."""
    found = [re.search(rb"^tidelock_wal_bytes_written_total (\d+)", get(f"http://127.0.0.1:{port}/metrics"), re.M) for port in cluster.http]
    return sum(int(match.group(1)) for match in found)


def measure(settings, clusters, load, processes):
    """Microseconds of all nodes and of the busiest one, and bytes logged, each per request.

    `processes` has the number of clients of each process that makes load. The processes load the clusters in turn.
    """
    _, kind, _, options = load
    loads = [(clients, clusters[index % len(clusters)].urls) for index, clients in enumerate(processes)]
    commands = [[settings.binary, "bench", kind, "-c", str(clients), *map(str, options), "--url", urls, "--json"] for clients, urls in loads]
    # Writes every key, so that the measured part changes keys that are there.
    for command in commands:
        subprocess.run([*command, "-n", "1"], check=True, capture_output=True)
    servers = [server for cluster in clusters for server in cluster.servers]
    before, logged = [processor_seconds(server) for server in servers], sum(map(logged_bytes, clusters))
    requests = requests_of([*command, "--no-prepare", "--warm-up-s", "0", "-d", str(settings.seconds)] for command in commands)
    used = [processor_seconds(server) - earlier for server, earlier in zip(servers, before)]
    return sum(used) * 1e6 / requests, max(used) * 1e6 / requests, (sum(map(logged_bytes, clusters)) - logged) / requests


def requests_of(commands):
    """Runs the loads at once, and returns how many requests they made."""
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    outputs = [process.communicate()[0] for process in running]
    for process in running:
        if process.returncode != 0:
            raise RuntimeError(f"{process.args} ended with {process.returncode}")
    reports = list(map(json.loads, outputs))
    for process, report in zip(running, reports):
        if report["errors"]:
            raise RuntimeError(f"{process.args}: {report['error_counts']}")
    return sum(report["requests_per_second"] * report["seconds"] for report in reports)


def clusters_of(settings, size):
    directory = os.path.join(settings.work, "data", f"growth-{size}")
    shutil.rmtree(directory, ignore_errors=True)
    if size != INDEPENDENT:
        return directory, [Cluster(settings.binary, directory, size, settings.port_base, settings.options.split(), FOUNDERS)]
    # A cluster of three would divide itself under this load. In a cluster of nine, each three nodes have one shard.
    options = [*settings.options.split(), "--shards", "1"]
    each = [(os.path.join(directory, str(index)), settings.port_base + 30 * index) for index in range(CLUSTERS_INDEPENDENT)]
    return directory, [Cluster(settings.binary, own, FOUNDERS, ports, options) for own, ports in each]


def measure_size(settings, size):
    """Figures by load and by how its clients grow: with one shard, those of the whole cluster and of each shard are the same."""
    figures = {}
    directory, clusters = clusters_of(settings, size)
    try:
        for cluster in clusters:
            cluster.start()
            if not settings.options and size != INDEPENDENT:
                wait_for_division(cluster)
        shards = sum(len(slots_of_data_shards(cluster)) for cluster in clusters)
        for load in LOADS:
            name, _, clients, _ = load
            figures[name, SAME] = measure(settings, clusters, load, [round(clients / len(clusters))] * len(clusters))
            figures[name, EACH] = measure(settings, clusters, load, [clients] * shards) if shards > 1 else figures[name, SAME]
    finally:
        for cluster in clusters:
            cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)
    return figures


def run(settings):
    """Figures by load, growth of clients and size, each the medians of the rounds."""
    rounds = {}
    for turn in range(settings.rounds):
        sizes = settings.sizes if turn % 2 == 0 else settings.sizes[::-1]
        for size in sizes:
            for (name, clients), found in measure_size(settings, size).items():
                rounds.setdefault((name, clients, size), []).append(found)
                print(f"round {turn + 1}, {size} nodes, {name}, {clients}: {microseconds(found[0])} µs, busiest {microseconds(found[1])} µs, {found[2]:.0f} bytes", flush=True)
    return {key: [statistics.median(column) for column in zip(*found)] for key, found in rounds.items()}


def microseconds(figure):
    """One decimal, and two below ten."""
    return f"{figure:.1f}" if figure >= 10 else f"{figure:.2f}"


def table(settings, figures, clients):
    lines = ["| nodes | " + " | ".join(name for name, *_ in LOADS) + " | bytes logged |", "|---|" + "---|" * (len(LOADS) + 1)]
    for size in settings.sizes:
        cells = [" / ".join(map(microseconds, figures[name, clients, size][:2])) for name, *_ in LOADS]
        logged = figures[LOADS[0][0], clients, size][2] / (VALUE_BYTES + KEY_BYTES)
        lines.append(f"| {size} | " + " | ".join(cells) + f" | {logged:.1f} |")
    return lines


def tables(settings, figures):
    lines = ["- Microseconds of processor time per request: of all nodes together / of the busiest node."]
    if not settings.options:
        lines += ["- Each cluster had divided its data shard as far as it does by itself: one shard for each three nodes, rounded up."]
    if settings.independent:
        lines += [f"- *{INDEPENDENT}*: three independent clusters of three nodes, on the same machine and with a third of the clients each."]
    lines += ["- Bytes logged: what all nodes write to their logs per byte of key and value, during HTTP writes.", ""]
    lines += ["Of the same clients at every size, 64 over HTTP and 8 over RESP:", "", *table(settings, figures, SAME), ""]
    return [*lines, "Of as many clients for each data shard, in a process of their own:", "", *table(settings, figures, EACH)]


def main():
    settings = arguments()
    os.makedirs(settings.work, exist_ok=True)
    first = described(machine(settings))
    print(write_page(settings, "What a request costs larger clusters", "growth", [first, *tables(settings, run(settings))]))


if __name__ == "__main__":
    main()
