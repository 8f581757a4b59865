"""What bounds the loads without pipelines: which thread uses the processors for a request, which waits for one, and how long.

Each load runs on three nodes and beside that on the peer of the comparison. The kernel counts how long each thread ran, and
how long it could have run but had no processor. A second run counts system calls and context switches. See README.md.
"""

import argparse
import collections
import json
import os
import re
import shutil
import statistics
import subprocess
import time

from machine import ROOT, machine
from results import described, write_page
from servers import Cluster, Server, connects, get, node_threads, redis, task_times, threads

CONNECTIONS = 64
# The load runs for this long before it is measured.
LEAD_IN_S = 1
KV = ("kv", "-c", CONNECTIONS, "--distribution", "one")
SET = ("resp", "-c", CONNECTIONS, "-P", 1, "--reads", 0)
# name, load on the nodes, peer and its load.
LOADS = (
    ("P1: HTTP stale GET", (*KV, "--reads", 100, "--consistency", "stale", "--via", "follower"), "bare hyper"),
    ("P2: HTTP linearizable GET on the leader", (*KV, "--reads", 100, "--via", "leader"), "bare hyper"),
    ("P3: HTTP write", (*KV, "--reads", 0, "--via", "leader"), "bare hyper"),
    ("P7: RESP SET", (*SET, "--via", "leader"), "redis, appendfsync always"),
)


def arguments():
    parser = argparse.ArgumentParser(prog="bench/compare/bounds", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="short rounds: to see that it works, not to quote")
    parser.add_argument("--rounds", type=int, help="default: 3, with --quick 1")
    parser.add_argument("--seconds", type=float, help="of each load (default: 4, with --quick 1)")
    parser.add_argument("--in-memory", action="store_true", help="all data on tmpfs, where a sync takes no time; writes bounds-in-memory.md")
    parser.add_argument("--binary", default=os.path.join(ROOT, "target", "release", "tidelock"))
    parser.add_argument("--out", default=os.path.join(ROOT, "docs", "benchmarks"))
    parser.add_argument("--work", default=os.path.join(ROOT, "target", "compare"))
    parser.add_argument("--port-base", type=int, default=24800, help="the first of 60 free ports")
    found = parser.parse_args()
    found.seconds = found.seconds or (1 if found.quick else 4)
    found.rounds = found.rounds or (1 if found.quick else 3)
    found.work, found.out = os.path.abspath(found.work), os.path.abspath(found.out)
    return found


def idle_seconds():
    """Idle time of all processors since the start of the machine."""
    with open("/proc/stat", encoding="ascii") as stat:
        fields = stat.readline().split()
    return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")


def used(roles):
    """Microseconds that each thread has run, and that it has waited for a processor. Threads that have ended are left out."""
    found = {task: task_times(process, task) for task, (process, _) in roles.items()}
    return {task: times for task, times in found.items() if times}


def all_as(role, process):
    """The threads of a process, all with one role."""
    return {task: (process, role) for task in threads(process)}


class Load:
    """A running `tidelock bench`, and the servers that it loads."""

    def __init__(self, settings, line, server_roles):
        command = [settings.binary, "bench", *map(str, line), "--warm-up-s", "0", "-d", str(settings.seconds + 2 * LEAD_IN_S), "--json"]
        self.bench = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        time.sleep(LEAD_IN_S)
        self.roles = server_roles() | all_as("client", self.bench.pid)

    def rate(self):
        found = json.loads(self.bench.communicate()[0])
        if found["errors"]:
            raise RuntimeError(f"{found['error_counts']}")
        return found["requests_per_second"]


def times(settings, line, server_roles):
    """Requests a second, the idle share of the processors, and microseconds a request of each role: running, waiting."""
    load = Load(settings, line, server_roles)
    begun, idle, before = time.monotonic(), idle_seconds(), used(load.roles)
    time.sleep(settings.seconds)
    after, idle, elapsed = used(load.roles), idle_seconds() - idle, time.monotonic() - begun
    rate = load.rate()
    requests = rate * elapsed
    found = collections.Counter({("rate", ""): rate, ("idle", ""): idle / elapsed / os.cpu_count()})
    for task in after.keys() & before.keys():
        _, role = load.roles[task]
        found["runs", role] += (after[task][0] - before[task][0]) / requests
        found["waits", role] += (after[task][1] - before[task][1]) / requests
    return dict(found)


def calls(settings, line, server_roles):
    """System calls and context switches a request of each role. Counting costs time, so this run has no other figures."""
    load = Load(settings, line, server_roles)
    events = {"raw_syscalls:sys_enter": "calls", "context-switches": "switches"}
    processes = ",".join(str(process) for process in {process for process, _ in load.roles.values()})
    command = ["perf", "stat", "-x", ";", "--per-thread", "-e", ",".join(events), "-p", processes]
    counted = subprocess.run([*command, "--", "sleep", str(settings.seconds)], capture_output=True, text=True, check=True).stderr
    requests = load.rate() * settings.seconds
    found = collections.Counter()
    for task, count, event in re.findall(r"^.*-(\d+);(\d+);;([^;]+);", counted, re.M):
        if int(task) in load.roles:
            found[events[event], load.roles[int(task)][1]] += int(count) / requests
    return dict(found)


def cluster_roles(cluster):
    first = cluster.leader()

    def roles():
        found = {}
        for index, server in enumerate(cluster.servers):
            whose, process = "leader" if index == first else "followers", server.process.pid
            found |= {task: (process, f"{whose}: {role}") for task, role in node_threads(process).items()}
        return found

    return roles


def syncs(cluster):
    """Number of syncs of the leader's log, and the seconds that they took."""
    metrics = get(f"http://127.0.0.1:{cluster.http[cluster.leader()]}/metrics")
    return [float(re.search(rb"^tidelock_wal_fsync_duration_seconds_" + part + rb" (\S+)", metrics, re.M)[1]) for part in (b"count", b"sum")]


def measure(settings):
    """Medians of the rounds, by load and side."""
    data = "/dev/shm/tidelock-bounds" if settings.in_memory else os.path.join(settings.work, "bounds")
    base = settings.port_base
    cluster = Cluster(settings.binary, os.path.join(data, "three"), 3, base)
    hello_binary = os.path.join(ROOT, "target", "release", "examples", "hello")
    hello = Server("hello", [hello_binary, f"127.0.0.1:{base + 40}"], os.path.join(data, "hello"), lambda: connects(base + 40))
    durable = redis(os.path.join(data, "redis"), base + 41, True)
    peers = {
        "bare hyper": (hello, ("http", "-c", CONNECTIONS, f"http://127.0.0.1:{base + 40}/")),
        "redis, appendfsync always": (durable, (*SET, "--address", f"127.0.0.1:{base + 41}")),
    }
    rounds = collections.defaultdict(list)
    try:
        for server in (cluster, hello, durable):
            server.start()
        for turn in range(settings.rounds):
            for name, line, peer in LOADS:
                server, their_line = peers[peer]
                theirs = (their_line, lambda server=server: all_as("server", server.process.pid))
                ours = ((*line, "--url", cluster.urls), cluster_roles(cluster))
                sides = [("Tidelock", ours), (peer, theirs)]
                for side, (arguments_of_bench, roles) in sides if turn % 2 == 0 else reversed(sides):
                    before = syncs(cluster)
                    found = times(settings, arguments_of_bench, roles)
                    count, seconds = (after - at_first for after, at_first in zip(syncs(cluster), before))
                    if side == "Tidelock" and "--reads" in line and line[line.index("--reads") + 1] == 0:
                        # The syncs are those of the whole run of the bench.
                        found["writes a sync", ""] = found["rate", ""] * (settings.seconds + 2 * LEAD_IN_S) / count
                        found["sync", ""] = 1e6 * seconds / count
                    found |= calls(settings, arguments_of_bench, roles)
                    rounds[name, side].append(found)
                    print(f"round {turn + 1}, {name}, {side}: {found['rate', '']:,.0f} requests/s, idle {found['idle', '']:.0%}", flush=True)
    finally:
        for server in (durable, hello, cluster):
            server.stop()
        shutil.rmtree(data, ignore_errors=True)
    return {key: {what: statistics.median(each.get(what, 0) for each in found) for what in found[0]} for key, found in rounds.items()}


def table(name, ours, peer, theirs):
    processors = os.cpu_count()
    busy = [sum(value for (what, _), value in side.items() if what == "runs") for side in (ours, theirs)]
    lines = ["", f"## {name}", "", f"| | Tidelock | {peer} |", "|---|---:|---:|"]
    lines.append("| requests a second | " + " | ".join(f"{side['rate', '']:,.0f}" for side in (ours, theirs)) + " |")
    lines.append("| time of a request, of 64 at once | " + " | ".join(f"{1e6 * CONNECTIONS / side['rate', '']:,.0f} µs" for side in (ours, theirs)) + " |")
    if ("sync", "") in ours:
        lines.append(f"| requests in one sync of the leader, and how long it takes | {ours['writes a sync', '']:.1f}, {ours['sync', '']:.0f} µs | – |")
    lines.append("| idle processors | " + " | ".join(f"{side['idle', '']:.0%}" for side in (ours, theirs)) + " |")
    lines.append("| processor time of a request | " + " | ".join(f"{total:.1f} µs" for total in busy) + " |")
    lines.append("| requests a second if no processor were ever idle | " + " | ".join(f"{1e6 * processors / total:,.0f}" for total in busy) + " |")
    lines += ["", "| threads | run | wait for a processor | system calls | context switches |", "|---|---:|---:|---:|---:|"]
    for side, found in (("", ours), (f"{peer}: ", theirs)):
        for role in sorted({role for what, role in found if what == "runs"}):
            if found["runs", role] + found["waits", role] >= 0.05:
                cells = [f"{found['runs', role]:.1f} µs", f"{found['waits', role]:.1f} µs"]
                cells += [f"{found.get((what, role), 0):.2f}" for what in ("calls", "switches")]
                lines.append(f"| {side}{role} | " + " | ".join(cells) + " |")
    return lines


def main():
    settings = arguments()
    if shutil.which("perf") is None:
        raise SystemExit("bounds: perf is missing; install it (Debian: apt-get install linux-perf)")
    os.makedirs(settings.work, exist_ok=True)
    lines = [
        described(machine(settings)),
        f"- Three nodes, all data {'in memory, where a sync takes no time' if settings.in_memory else 'on one disk'}; {CONNECTIONS} connections without pipelines; medians of the rounds. Nodes, peer and client share the processors.",
        "- *Run* and *wait for a processor*: of all threads of a line together, for one request. A thread that waits for a processor could go on. One that waits for a message or for the disk counts in neither column.",
        "- *If no processor were ever idle*: the processors divided by the processor time of a request. What is between it and the requests a second is time in which all threads wait for messages or for the disk.",
    ]
    found = measure(settings)
    for name, _, peer in LOADS:
        lines += table(name, found[name, "Tidelock"], peer, found[name, peer])
    where = "bounds-in-memory" if settings.in_memory else "bounds"
    print(write_page(settings, "What bounds requests without pipelines" + (", in memory" if settings.in_memory else ""), where, lines))


if __name__ == "__main__":
    main()
