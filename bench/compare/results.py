"""The results of parts that are measured one after the other: printed as they come, and written to a document."""

import os
import resource
import textwrap

from machine import machine, others_share


class Results:
    """Lines of a document. Those of one part follow those of the part before."""

    def __init__(self, settings):
        self.settings, self.lines = settings, []

    def say(self, text):
        self.lines.append(text)
        print(text, flush=True)

    def measure(self, parts):
        """Measures the parts that are wanted, each after it has stated how busy the machine is."""
        os.makedirs(self.settings.work, exist_ok=True)
        # Ten thousand watchers of three nodes, and their clients.
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        self.say(described(machine(self.settings)))
        self.say("")
        for name in self.settings.only:
            busy = others_share()
            parts[name]()
            self.say(f"\n({name}: other load before it {busy:.0%})\n")

    def write(self, title, name):
        """Writes the document `name`.md, made by bench/compare/`name`."""
        write_page(self.settings, title, name, self.lines)


def described(found):
    """The first line of a page: machine, versions and times."""
    return "- " + "; ".join(text if name == "machine" else f"{name} {text}" for name, text in found.items())


def write_page(settings, title, name, lines):
    """Writes the document `name`.md, made by bench/compare/`name`, and returns its text."""
    head = [f"# {title}", "", f"Made by `bench/compare/{name}`; do not edit. How to read and repeat it: [README.md](README.md).", ""]
    text = "\n".join(map(wrapped, head + lines)).rstrip() + "\n"
    os.makedirs(settings.out, exist_ok=True)
    with open(os.path.join(settings.out, f"{name}.md"), "w", encoding="utf-8") as out:
        out.write(text)
    return text


def wrapped(line):
    """A list item as the documents have it: at most 120 columns."""
    is_item = line.startswith("- ")
    return textwrap.fill(line, 120, subsequent_indent="  ", break_on_hyphens=False) if is_item else line
