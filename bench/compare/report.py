"""The table and the plots of a comparison."""

import os
import statistics
import textwrap

import matplotlib

matplotlib.use("svg")
# Deterministic output: an unchanged plot gives an unchanged file.
matplotlib.rcParams["svg.hashsalt"] = "tidelock"
matplotlib.rcParams["svg.fonttype"] = "none"
from matplotlib import pyplot  # noqa: E402  (the backend comes first)

from machine import BUSY_MAX  # noqa: E402

# As in all documents.
COLUMNS = 120

OURS, THEIRS = "#1f6f8b", "#b0b7bd"
COLOURS = {"met": "#2e8b57", "missed": "#c0563b", "busy": "#b0b7bd"}

def number(value, unit):
    if unit == "/s":
        return f"{value:,.0f}/s"
    if unit == "µs":
        return f"{value:,.0f} µs"
    if unit == "MiB":
        return f"{value:,.0f} MiB"
    return f"{value:,.2f} {unit}"


def summarise(rows):
    """Medians over all rounds; the ratio is the median of the ratios of the rounds."""
    for row in rows:
        row["ours"] = statistics.median(row["ours_rounds"])
        row["theirs"] = statistics.median(row["theirs_rounds"])
        ratios = [ours / theirs for ours, theirs in zip(row["ours_rounds"], row["theirs_rounds"])]
        row["ratio"] = statistics.median(ratios)
        row["spread"] = [min(ratios), max(ratios)]
        met = row["ratio"] <= row["target"] if row["at_most"] else row["ratio"] >= row["target"]
        row["verdict"] = "busy" if max(row["busy_rounds"]) > BUSY_MAX else "met" if met else "missed"


def markdown(result):
    lines = ["# Comparison", "", "Made by `bench/compare/compare`; do not edit. How to read and repeat it: [README.md](README.md).", ""]
    for run in result["runs"]:
        ids = ", ".join(dict.fromkeys(row["id"] for row in result["rows"] if row["date"] == run["date"]))
        run_line = f"- {ids}: " + "; ".join(run[name] if name == "machine" else f"{name} {run[name]}" for name in run)
        lines += textwrap.wrap(run_line, COLUMNS, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    lines += ["", "| # | load | Tidelock | beside it | figure | ratio (least, most) | goal | |", "|---|---|---|---|---|---|---|---|"]
    for row in result["rows"]:
        low, high = row["spread"]
        goal = ("≤ " if row["at_most"] else "≥ ") + f"{row['target']:g}"
        lines.append(
            f"| {row['id']} | {row['load']} | {number(row['ours'], row['unit'])} | {row['peer']} | {number(row['theirs'], row['unit'])} "
            f"| {row['ratio']:.2f} ({low:.2f}, {high:.2f}) | {goal} | {row['verdict']} |"
        )
    if any(row["verdict"] == "busy" for row in result["rows"]):
        note = f"**busy**: others used more than {BUSY_MAX:.0%} of the processors before a round. Then ratios say little, and nothing about goals."
        lines += ["", note]
    lines += ["", "![Ratios](ratios.svg)", "", "![Throughput](throughput.svg)", ""]
    if result["left_out"]:
        lines += ["Left out: " + "; ".join(result["left_out"]) + ".", ""]
    return "\n".join(lines)


def plot(result, directory):
    rows = result["rows"]
    figure, axes = pyplot.subplots(figsize=(9, 0.42 * len(rows) + 1.2))
    # Above 1 is better than the goal, for upper and lower bounds alike.
    merits = [row["target"] / row["ratio"] if row["at_most"] else row["ratio"] / row["target"] for row in rows]
    places = range(len(rows))
    axes.barh(places, merits, color=[COLOURS[row["verdict"]] for row in rows])
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(places, [f"{row['id']}  {row['short']}" for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel("ratio, in parts of its goal (1 = met)")
    finish(figure, directory, "ratios.svg")

    rates = [row for row in rows if row["unit"] == "/s"]
    if not rates:
        return
    figure, axes = pyplot.subplots(figsize=(9, 0.55 * len(rates) + 1.2))
    places = list(range(len(rates)))
    axes.barh([place - 0.2 for place in places], [row["ours"] for row in rates], 0.38, label="Tidelock", color=OURS)
    axes.barh([place + 0.2 for place in places], [row["theirs"] for row in rates], 0.38, label="beside it", color=THEIRS)
    axes.set_yticks(places, [f"{row['id']}  {row['short']} / {row['peer']}" for row in rates])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("requests/s")
    axes.legend()
    finish(figure, directory, "throughput.svg")


def finish(figure, directory, name):
    figure.tight_layout()
    figure.savefig(os.path.join(directory, name), metadata={"Date": None})
    pyplot.close(figure)
