"""Where the time of one lone write goes: which thread of which node waits for what, and the system calls that it takes.

One client sends one SET after the other to the leader, while perf records the system calls and context switches of all
threads. Each write is cut into steps by what the kernel saw. The table has the median of each step over all writes, on a
disk and in memory. See README.md.
"""

import argparse
import collections
import os
import re
import shutil
import socket
import statistics
import subprocess
import time

from machine import ROOT, machine
from results import described, write_page
from servers import Cluster, node_threads

REQUEST = b"*3\r\n$3\r\nSET\r\n$5\r\nhello\r\n$32\r\n" + b"v" * 32 + b"\r\n"
EVENTS = ("raw_syscalls:sys_enter", "raw_syscalls:sys_exit", "sched:sched_switch")
# System calls of Linux on x86-64, by number.
CALLS = {0: "read", 1: "write", 18: "pwrite64", 20: "writev", 44: "sendto", 45: "recvfrom", 75: "fdatasync", 202: "futex", 232: "epoll_wait"}
WARM_UP_WRITES = 300
# name, nodes, whether the data is in memory.
SHAPES = (("one node", 1, False), ("three nodes, one disk", 3, False), ("one node, in memory", 1, True), ("three nodes, in memory", 3, True))
# Steps of a write: name, and what the kernel sees at their end.
STEPS = {
    "request is read": "the leader's worker has read the request",
    "entry is sent": "it has sent the entry to the first follower",
    "own sync begins": "the leader's log thread has written the entry",
    "own sync ends": "its fdatasync has returned",
    "follower reads": "the first follower's worker has read the entry",
    "follower's sync begins": "its log thread has written the entry",
    "follower's sync ends": "its fdatasync has returned",
    "acknowledgement is sent": "its worker has sent the acknowledgement",
    "acknowledgement is read": "the leader's worker has read it",
    "reply is sent": "the leader's worker has sent the reply",
    "reply is read": "the client has read it",
}


# What shows the end of a follower's steps: role, what the kernel sees, and its least result.
FOLLOWER_STEPS = {
    "follower reads": ("worker", "recvfrom ends", 1),
    "follower's sync begins": ("log", "fdatasync begins", 0),
    "follower's sync ends": ("log", "fdatasync ends", 0),
    "acknowledgement is sent": ("worker", "writev ends", 0),
}


def arguments():
    parser = argparse.ArgumentParser(prog="bench/compare/timeline", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="short rounds: to see that it works, not to quote")
    parser.add_argument("--seconds", type=float, help="of each shape (default: 5, with --quick 1)")
    parser.add_argument("--binary", default=os.path.join(ROOT, "target", "release", "tidelock"))
    parser.add_argument("--out", default=os.path.join(ROOT, "docs", "benchmarks"))
    parser.add_argument("--work", default=os.path.join(ROOT, "target", "compare"))
    parser.add_argument("--port-base", type=int, default=24700, help="the first of 60 free ports")
    found = parser.parse_args()
    found.rounds, found.seconds = 1, found.seconds or (1 if found.quick else 5)
    found.work, found.out = os.path.abspath(found.work), os.path.abspath(found.out)
    return found


def write_for(stream, seconds):
    """Writes one after the other, and returns how long each took, in microseconds."""
    took, end = [], time.perf_counter() + seconds
    while (begun := time.perf_counter()) < end:
        stream.sendall(REQUEST)
        stream.recv(64)
        took.append(1e6 * (time.perf_counter() - begun))
    return took


def record(settings, cluster, first):
    """The events of the threads of all nodes and of this client, and how long writes take without perf."""
    processes = [server.process.pid for server in cluster.servers]
    data = os.path.join(settings.work, "timeline.perf")
    with socket.create_connection(("127.0.0.1", cluster.resp[first])) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(WARM_UP_WRITES):
            stream.sendall(REQUEST)
            stream.recv(64)
        unobserved = write_for(stream, settings.seconds)
        pids = ",".join(map(str, [*processes, os.getpid()]))
        events = [argument for event in EVENTS for argument in ("-e", event)]
        perf = subprocess.Popen(["perf", "record", "-q", "-m", "4M", "-o", data, *events, "-p", pids], stderr=subprocess.DEVNULL)
        time.sleep(1)
        write_for(stream, settings.seconds)
        perf.terminate()
        perf.wait()
    fields = "tid,comm,time,event,trace"
    script = subprocess.run(["perf", "script", "-i", data, "--ns", "-F", fields], capture_output=True, text=True, errors="replace", check=True)
    os.remove(data)
    return script.stdout, statistics.median(unobserved)


def threads(cluster, first):
    """What each thread is: (its node, its role). Node 0 is the leader; the client is node None."""
    found = {os.getpid(): (None, "client")}
    for index, server in enumerate(cluster.servers):
        node = 0 if index == first else 1 + sum(other != first for other in range(index))
        found |= {task: (node, role) for task, role in node_threads(server.process.pid).items()}
    return found


EVENT = re.compile(r"\s*.*?\s(\d+)\s+(\d+)\.(\d{9}):\s+(\S+?):\s+(.*)")


def parsed(script, known):
    """The events in order: nanoseconds, node, role, what, result."""
    for line in script.splitlines():
        found = EVENT.match(line)
        if not found or int(found[1]) not in known:
            continue
        at, event, rest = int(found[2]) * 10**9 + int(found[3]), found[4], found[5]
        call = re.match(r"NR (\d+)(?: = (-?\d+))?", rest)
        if event.endswith("sched_switch"):
            yield at, *known[int(found[1])], "switch", None
        elif call:
            name = CALLS.get(int(call[1]), f"call {call[1]}")
            yield at, *known[int(found[1])], f"{name} {'ends' if event.endswith('exit') else 'begins'}", int(call[2] or 0)


def split(events):
    """The events of each write, from the client's request to its reply."""
    write = None
    for event in events:
        _, _, role, what, result = event
        if role == "client" and what == "sendto begins":
            write = []
        if write is not None:
            write.append(event)
            if role == "client" and what == "recvfrom ends" and result > 0:
                yield write
                write = None


def after(write, begin, node, role, what, at_least=0):
    """The first time from `begin` on at which a thread does something, or None."""
    return next((at for at, *who, it, result in write if at >= begin and who == [node, role] and it == what and (result or 0) >= at_least), None)


def follower_steps(write, follower, since):
    """When each step of a follower ended, or None where one is not found."""
    path = {}
    for name, shown_by in FOLLOWER_STEPS.items():
        since = after(write, since, follower, *shown_by) if since is not None else None
        path[name] = since
    return path


def steps(write, nodes):
    """When each step of a write ended, in microseconds; None if one is not found, as when a batch was under way before."""
    begin, found = write[0][0], {}

    def next_step(name, since, *what):
        found[name] = after(write, since, *what) if since is not None else None
        return found[name]

    read = next_step("request is read", begin, 0, "worker", "recvfrom ends", len(REQUEST))
    own = next_step("own sync begins", read, 0, "log", "fdatasync begins")
    next_step("own sync ends", own, 0, "log", "fdatasync ends")
    if nodes > 1:
        next_step("entry is sent", read, 0, "worker", "writev ends")
        paths = [follower_steps(write, follower, read) for follower in range(1, nodes)]
        complete = [path for path in paths if None not in path.values()]
        if not complete:
            return None
        quickest = min(complete, key=lambda path: path["acknowledgement is sent"])
        found |= quickest
        next_step("acknowledgement is read", quickest["acknowledgement is sent"], 0, "worker", "recvfrom ends", 1)
    # The last one: the reply is what the client then reads.
    replies = [at for at, *who, what, _ in write if who == [0, "worker"] and what == "sendto ends"]
    found["reply is sent"] = replies[-1] if replies else None
    found["reply is read"] = write[-1][0]
    optional = ("own sync begins", "own sync ends") if nodes > 1 else ()
    if any(at is None for name, at in found.items() if name not in optional):
        return None
    return {name: (at - begin) / 1e3 for name, at in found.items() if at is not None}


def counts(events, writes):
    """System calls and context switches a write, by node and role."""
    found = collections.Counter()
    for _, node, role, what, _ in events:
        if what == "switch" or what.endswith(" begins"):
            kind = "client" if node is None else f"{'leader' if node == 0 else 'followers'}: {role}"
            found[kind, what.removesuffix(" begins")] += 1
    return {key: count / writes for key, count in found.items()}


def measure(settings, nodes, in_memory):
    directory = "/dev/shm/tidelock-timeline" if in_memory else os.path.join(settings.work, "timeline")
    cluster = Cluster(settings.binary, directory, nodes, settings.port_base, ("--shards", "1"))
    try:
        cluster.start()
        first = cluster.leader()
        known = threads(cluster, first)
        script, unobserved = record(settings, cluster, first)
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)
    events = list(parsed(script, known))
    writes = list(split(events))
    found = [each for each in (steps(write, nodes) for write in writes) if each]
    spans = [(write[-1][0] - write[0][0]) / 1e3 for write in writes]
    # The pauses before and after the load are not counted: only what is between the first write and the last.
    within = [event for event in events if writes[0][0][0] <= event[0] <= writes[-1][-1][0]]
    return {"unobserved": unobserved, "span": statistics.median(spans), "writes": len(writes), "steps": found, "counts": counts(within, len(writes))}


def tables(results):
    lines = [
        "- Microseconds from the client's system call that sends the request, the median of each step over the writes in which all were found. A follower's steps are those of the one that acknowledged first.",
        "- Recording costs time itself: the first line is without it. What the leader's own sync does after the reply is not waited for.",
    ]
    names = list(results)
    lines += ["", "| | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    lines.append("| a write without recording, p50 | " + " | ".join(f"{results[name]['unobserved']:.0f}" for name in names) + " |")
    lines.append("| a write while recorded, p50 | " + " | ".join(f"{results[name]['span']:.0f}" for name in names) + " |")
    lines.append("| writes that were recorded, of these with all steps | " + " | ".join(f"{results[name]['writes']:,}, {len(results[name]['steps']):,}" for name in names) + " |")
    for step, meaning in STEPS.items():
        cells = []
        for name in names:
            times = [found[step] for found in results[name]["steps"] if step in found]
            cells.append(f"{statistics.median(times):.0f}" if times else "–")
        lines.append(f"| {meaning} | " + " | ".join(cells) + " |")
    lines += ["", "## System calls and context switches of a write", ""]
    lines.append("- Of all threads of that role together; what is less than 0.05 is left out.")
    lines += ["", "| threads | what | " + " | ".join(names) + " |", "|---|---|" + "---:|" * len(names)]
    for key in sorted({key for result in results.values() for key in result["counts"]}):
        cells = [results[name]["counts"].get(key, 0) for name in names]
        if max(cells) >= 0.05:
            kind, what = key
            shown = "context switch" if what == "switch" else f"`{what}`"
            lines.append(f"| {kind} | {shown} | " + " | ".join(f"{cell:.1f}" for cell in cells) + " |")
    return lines


def main():
    settings = arguments()
    if shutil.which("perf") is None:
        raise SystemExit("timeline: perf is missing; install it (Debian: apt-get install linux-perf)")
    os.makedirs(settings.work, exist_ok=True)
    first = described(machine(settings))
    results = {name: measure(settings, nodes, in_memory) for name, nodes, in_memory in SHAPES}
    print(write_page(settings, "Where the time of a lone write goes", "timeline", [first, *tables(results)]))


if __name__ == "__main__":
    main()
