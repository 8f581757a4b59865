"""Compares this tree's build with that of an earlier commit, under the loads of the comparison, and prints a table.

Both are measured one after the other in every round, in alternating order; the ratio of a line is the median of the ratios of its
rounds. Each build's own `tidelock bench` makes its load: an early one does not understand what other builds say of their cluster.
See README.md.
"""

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys

from machine import ROOT, machine, others_share
from servers import Cluster, SecureCluster, task_times, threads

# Name, what it measures, cluster, subcommand and its options. The cluster is a number of nodes, or SECURE: three nodes with
# TLS and tokens. P8 is judged by the median latency, all others by their rate.
SECURE = "secure"
DEEP, SHALLOW = ("-c", 8, "-P", 512), ("-c", 64, "-P", 1)
ONE_KEY, LEADER, FOLLOWER = ("--distribution", "one"), ("--via", "leader"), ("--via", "follower")
READS, WRITES = ("--reads", 100), ("--reads", 0)
LINES = [
    ("P1", "HTTP stale GET, 64 connections", 3, ("kv", *ONE_KEY, "-c", 64, *READS, "--consistency", "stale", *FOLLOWER)),
    ("P2", "HTTP linearizable GET on the leader, 64", 3, ("kv", *ONE_KEY, "-c", 64, *READS, *LEADER)),
    ("P2", "the same on followers", 3, ("kv", *ONE_KEY, "-c", 64, *READS, *FOLLOWER)),
    ("P3", "HTTP write, 64", 3, ("kv", *ONE_KEY, "-c", 64, *WRITES, *LEADER)),
    ("P3", "HTTP write, 512", 3, ("kv", *ONE_KEY, "-c", 512, *WRITES, *LEADER)),
    ("P4", "RESP SET, 8 connections of 512", 3, ("resp", *LEADER, *DEEP, *WRITES)),
    ("P5", "RESP GET, 8 of 512, linearizable", 3, ("resp", *LEADER, *DEEP, *READS)),
    ("P6", "as P4, one node", 1, ("resp", *LEADER, *DEEP, *WRITES)),
    ("P6", "as P5, one node", 1, ("resp", *LEADER, *DEEP, *READS)),
    ("P7", "RESP SET, 64 of 1", 3, ("resp", *LEADER, *SHALLOW, *WRITES)),
    ("P8", "one client: write p50", 3, ("kv", *ONE_KEY, "-c", 1, *WRITES, *LEADER)),
    ("P8", "the same, one node", 1, ("kv", *ONE_KEY, "-c", 1, *WRITES, *LEADER)),
    ("P9", "RESP SET, 8 of 64", 3, ("resp", *LEADER, "-c", 8, "-P", 64, *WRITES)),
    ("P9", "RESP GET, 8 of 64, linearizable", 3, ("resp", *LEADER, "-c", 8, "-P", 64, *READS)),
    ("P13", "HTTP linearizable GET with TLS and tokens, 64", SECURE, ("kv", *ONE_KEY, "-c", 64, *READS, *LEADER)),
    ("P13", "HTTP write with TLS and tokens, 64", SECURE, ("kv", *ONE_KEY, "-c", 64, *WRITES, *LEADER)),
    ("P13", "RESP SET with TLS and tokens, 64 of 1", SECURE, ("resp", "--tls", *LEADER, *SHALLOW, *WRITES)),
    ("P13", "RESP SET with TLS and tokens, 8 of 512", SECURE, ("resp", "--tls", *LEADER, *DEEP, *WRITES)),
]


def arguments():
    parser = argparse.ArgumentParser(prog="bench/compare/before COMMIT", description=__doc__.splitlines()[0])
    parser.add_argument("--before", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--commit", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--work", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5, help="of each load")
    parser.add_argument("--warm-up-s", type=float, default=1, help="before each load")
    parser.add_argument("--only", default="", help="these lines alone, such as P4,P7")
    parser.add_argument("--port-base", type=int, default=24400, help="the first of 200 free ports")
    parser.set_defaults(quick=False)
    return parser.parse_args()


def cluster(binary, directory, kind, port_base):
    """A cluster of any build: an early one has no listener for Redis Cluster, so it cannot be told to leave it out."""
    if kind == SECURE:
        return SecureCluster(binary, directory, 3, port_base)
    found = Cluster(binary, directory, kind, port_base)
    options = subprocess.run([binary, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    if "--resp-cluster" not in options:
        for server in found.servers:
            at = server.command.index("--resp-cluster")
            del server.command[at : at + 2]
    return found


def processor_us(cluster):
    """Microseconds for which all threads of the nodes have run."""
    processes = [server.process.pid for server in cluster.servers]
    times = [task_times(process, task) for process in processes for task in threads(process)]
    return sum(ran for ran, _ in filter(None, times))


def bench(line, side, *options):
    """The report of one load. A wrong answer ends the comparison."""
    subcommand, *shape = map(str, line)
    command = [side.binary, "bench", subcommand, "--url", side.urls, *side.credentials, *shape, *map(str, options), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()} {done.stdout[:2000]}")
    return json.loads(done.stdout)


def figures(name, settings, line, side):
    """Requests a second, or for P8 microseconds; and the processor time that all nodes took, by the rate.

    The latter counts the warm-up too, so it means something only beside that of the other build.
    """
    before = processor_us(side)
    report = bench(line, side, "--no-prepare", "--warm-up-s", settings.warm_up_s, "-d", settings.seconds)
    used = processor_us(side) - before
    if report["errors"] > 0:
        print(f"    {report['errors']} errors: {report['error_counts']}", file=sys.stderr)
    figure = report["latency_us"]["percentiles"]["50"] if name == "P8" else report["requests_per_second"]
    return figure, used / report["requests_per_second"]


def measure(settings, sides, lines):
    """For each line, both builds' figures of all rounds, with the processor time, and how busy others kept the machine before each round."""
    found = [([], [], []) for _ in lines]
    # Writes every key once.
    for _, _, kind, line in lines:
        for side in ("now", "before"):
            bench(line, sides[side, kind], "-n", 1)
    for turn in range(settings.rounds):
        busy = others_share()
        for (name, what, kind, line), (ours, theirs, busy_rounds) in zip(lines, found):
            busy_rounds.append(busy)
            both = [(ours, "now"), (theirs, "before")]
            for rounds, side in both if turn % 2 == 0 else reversed(both):
                rounds.append(figures(name, settings, line, sides[side, kind]))
            print(f"round {turn + 1} {name} {what}: {ours[-1][0]:,.0f} beside {theirs[-1][0]:,.0f}", flush=True)
    return found


def mean(ratios):
    """The geometric mean, and two standard errors of it."""
    logs = [math.log(ratio) for ratio in ratios]
    error = 2 * statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.nan
    return f"{math.exp(statistics.fmean(logs)):.3f} ± {error:.3f}"


def table(settings, lines, found):
    run = machine(settings)
    print("\n" + "; ".join(f"{name} {value}" for name, value in run.items()))
    print(f"\nBefore: {settings.commit}. P8 in µs, so less is better; all others in requests a second.\n")
    print("Each ratio is the median of the rounds, with the least and the greatest; then their geometric mean and two standard errors.\n")
    print("| # | load | now | before | now / before | mean | processor time of a request, now / before | mean | others' load |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (name, what, _, _), (ours, theirs, busy) in zip(lines, found):
        cells = [f"{statistics.median(figure for figure, _ in side):,.0f}" for side in (ours, theirs)]
        for each in (0, 1):
            ratios = [now[each] / before[each] for now, before in zip(ours, theirs)]
            cells += [f"{statistics.median(ratios):.2f} ({min(ratios):.2f}, {max(ratios):.2f})", mean(ratios)]
        print(f"| {name} | {what} | {' | '.join(cells)} | at most {max(busy):.0%} |")


def main():
    settings = arguments()
    only = [name for name in settings.only.split(",") if name]
    lines = [line for line in LINES if not only or line[0] in only]
    if not lines:
        sys.exit("--only names no line")
    builds = [("now", os.path.join(ROOT, "target", "release", "tidelock")), ("before", settings.before)]
    directory = os.path.join(settings.work, "data")
    shutil.rmtree(directory, ignore_errors=True)
    sides, ports = {}, settings.port_base
    try:
        for side, binary in builds:
            for kind in dict.fromkeys(kind for _, _, kind, _ in lines):
                sides[side, kind] = cluster(binary, os.path.join(directory, f"{side}{kind}"), kind, ports)
                sides[side, kind].start()
                ports += 30
        found = measure(settings, sides, lines)
    finally:
        for servers in sides.values():
            servers.stop()
        shutil.rmtree(directory, ignore_errors=True)
    table(settings, lines, found)


if __name__ == "__main__":
    main()
