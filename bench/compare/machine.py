"""What a run is made on: the machine, the tree, and how busy other processes keep the processors."""

import os
import platform
import subprocess
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
SETTLE_SECONDS_MAX = 20

# If other processes use more than this share of all processors, a ratio gives no verdict: a single process that waits for a
# processor loses more than four that share one, and the end of a sync is noticed milliseconds late.
BUSY_MAX = 0.1


def busy_share():
    """The busy share of all processors during a second without load of ours."""

    def read():
        with open("/proc/stat", encoding="ascii") as stat:
            fields = [int(field) for field in stat.readline().split()[1:9]]
        return sum(fields), fields[3] + fields[4]

    (all_before, idle_before) = read()
    time.sleep(1)
    (all_after, idle_after) = read()
    return 1 - (idle_after - idle_before) / max(all_after - all_before, 1)


def others_share():
    """The busy share after our servers have finished work that a load left, such as snapshots."""
    least = busy_share()
    for _ in range(SETTLE_SECONDS_MAX):
        if least <= BUSY_MAX:
            break
        least = min(least, busy_share())
    return least


def machine(settings):
    model = "unknown"
    with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
        for line in cpuinfo:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    filesystem = subprocess.run(["stat", "-f", "-c", "%T", settings.work], capture_output=True, text=True, check=False)
    return {
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()) + " UTC",
        "version": commit.stdout.strip() or "unknown",
        "machine": f"{os.cpu_count()} processors, {model}; Linux {platform.release()}; {filesystem.stdout.strip()}",
        "other load before it": f"{busy_share():.0%} of all processors busy, load average {os.getloadavg()[0]:.1f}",
        "rounds": f"{settings.rounds} of {settings.seconds:g} s a load" + (" (--quick: do not quote)" if settings.quick else ""),
    }
