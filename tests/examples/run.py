"""Runs the programs of examples/ in three or four languages against a cluster of three nodes, also while the leader of their
shard is killed and while they, or a node, are paused for longer than their leases live. Ends with `N passed, M failed`.

usage: run.py TIDELOCK NODE DIRECTORY-OF-GO-PROGRAMS FIRST-PORT [PART-OF-A-NAME]
"""

import http.client
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from waiting import WAIT_S_MAX, eventually

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
DOCUMENTS = EXAMPLES.parent / "docs"


class Cluster:
    """Three nodes on loopback."""

    def __init__(self, tidelock, directory, port):
        self.tidelock, self.directory = tidelock, directory
        self.resp = [f"127.0.0.1:{port + 3 * node + 1}" for node in range(3)]
        self.http = [f"127.0.0.1:{port + 3 * node}" for node in range(3)]
        self.ports = [(port + 3 * node, port + 3 * node + 1, port + 3 * node + 2) for node in range(3)]
        self.processes = [None] * 3
        for node in range(3):
            self.start(node)
        for node in range(3):
            self.until_ready(node)

    def start(self, node):
        peers = ",".join(f"127.0.0.1:{peer}" for _, _, peer in self.ports)
        web, resp, peer = (f"127.0.0.1:{port}" for port in self.ports[node])
        command = [self.tidelock, "serve", "--data-dir", f"{self.directory}/{node}", "--http", web, "--resp", resp,
                   "--resp-cluster", "off", "--peer", peer, "--peers", peers, "--shards", "4", "--stop-at-stdin-end"]
        with open(f"{self.directory}/{node}.log", "ab") as log:
            self.processes[node] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)

    def until_ready(self, node):
        eventually(f"node {node} is ready", lambda: self.ask(node, "GET", "/readyz")[0] == 200)

    def ask(self, node, method, path, body=None):
        """Status, headers and body; status 0 if there is no answer."""
        connection = http.client.HTTPConnection(self.http[node], timeout=10)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        except (OSError, http.client.HTTPException):
            return 0, {}, b""
        finally:
            connection.close()

    def value(self, key):
        status, _, body = eventually(f"{key} is read", lambda: self.answered("GET", f"/v1/keys/{key}"))
        return body.decode() if status == 200 else None

    def put(self, key, value):
        eventually(f"{key} is written", lambda: self.answered("PUT", f"/v1/keys/{key}", value))

    def configure(self, namespace, number):
        """Makes a container resolve to a number, and to nothing else."""
        path = f"/api/namespaces/{namespace}/containers/app/import?create=true"
        eventually(f"{namespace} is changed",
                   lambda: (self.answered("POST", path, f'{{"port":{number}}}') or [0])[0] == 200)

    def delete(self, key):
        eventually(f"{key} is deleted", lambda: self.answered("DELETE", f"/v1/keys/{key}"))

    def answered(self, method, path, body=None):
        for node in range(3):
            answer = self.ask(node, method, path, body)
            if answer[0] not in (0, 503, 504):
                return answer
        return None

    def kill_leader(self, key):
        """Kills the node that leads the shard of a key, and returns it."""
        def leading(node):
            status, headers, _ = self.ask(node, "GET", f"/v1/keys/{key}")
            return status not in (0, 503) and "Tidelock-Leader" not in headers
        node = eventually("a leader", lambda: [node for node in range(3) if leading(node)])[0]
        self.processes[node].kill()
        self.processes[node].wait()
        return node

    def restart(self, node):
        self.start(node)
        self.until_ready(node)

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()


class Program:
    """A running example, and the lines that it has printed."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def expect(self, what, holds):
        """Waits for a line for which this holds."""
        def found():
            assert self.process.poll() in (None, 0), f"{self.process.args} failed: {self.lines}"
            return any(holds(line) for line in list(self.lines))
        try:
            eventually(what, found)
        except AssertionError as error:
            raise AssertionError(f"{self.process.args}: {error}; it printed {self.lines[-20:]}") from None

    def last(self, *beginnings):
        """The last line with one of these beginnings."""
        return next((line for line in reversed(self.lines) if line.startswith(beginnings)), None)

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Redis:
    """A redis-server, to copy keys from."""

    def __init__(self, directory, port):
        self.port, self.address = port, f"127.0.0.1:{port}"
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", directory]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        eventually("redis-server answers", lambda: self.ask("PING") == "PONG")

    def ask(self, *command):
        done = subprocess.run(["redis-cli", "-p", str(self.port), *command], capture_output=True, text=True)
        return done.stdout.strip()

    def kill(self):
        self.process.kill()
        self.process.wait()


class Examples:
    """Starts examples, and ends those that are left."""

    def __init__(self, cluster, node, go):
        self.cluster, self.started = cluster, []
        nodes = ",".join(cluster.http)
        self.commands = {
            "Python": lambda recipe, name: [sys.executable, EXAMPLES / recipe / f"{name}.py", nodes],
            "Node.js": lambda recipe, name: [node, EXAMPLES / recipe / f"{name}.mjs", nodes],
            "Go": lambda recipe, name: [f"{go}/{recipe}", nodes],
        }
        # Libraries of Node.js are looked for beside the program, and they are where Node.js itself is.
        self.libraries = pathlib.Path(node).parents[3]

    def start(self, language, recipe, name, *arguments):
        program = Program([*self.commands[language](recipe, name), *map(str, arguments)])
        self.started.append(program)
        return program

    def at(self, nodes, recipe, name, *arguments):
        """The program in Python, with some of the nodes only."""
        program = Program([sys.executable, EXAMPLES / recipe / f"{name}.py", ",".join(nodes), *map(str, arguments)])
        self.started.append(program)
        return program

    def caching(self, key):
        """The programs with a Redis client."""
        recipe, nodes = EXAMPLES / "client-side-caching", ",".join(self.cluster.resp)
        copied = shutil.copy(recipe / "cache.mjs", self.libraries)
        programs = [Program([sys.executable, recipe / "cache.py", nodes, key]),
                    Program([self.commands["Node.js"]("", "")[0], copied, nodes, key])]
        self.started += programs
        return programs

    def configured(self, language, nodes, namespace, path):
        """The program of a language that watches a namespace."""
        recipe = EXAMPLES / "configuration"
        command = ["java", recipe / "Config.java"] if language == "Java" else (
            self.commands[language]("configuration", "config")[:-1])
        program = Program([*map(str, command), nodes, namespace, str(path)])
        self.started.append(program)
        return program

    def everywhere(self, recipe, name, *arguments):
        return [self.start(language, recipe, name, *arguments) for language in self.commands]

    def end(self):
        for program in self.started:
            program.kill()
        self.started.clear()


def lock(examples, cluster, with_kill):
    """No addition is lost."""
    name = f"count-{with_kill}"
    programs = examples.everywhere("distributed-lock", "lock", name, 6, "0.05")
    for program in programs:
        program.expect("the lock", lambda line: line.startswith("holding"))
    killed = cluster.kill_leader(name) if with_kill else None
    for program in programs:
        program.expect("the end", lambda line: line == "done")
    assert cluster.value(f"%7B{name}%7Dcount") == "18"
    return killed


def paused_holder(examples, cluster, language):
    """The fenced write of a holder that was paused past its lease is refused."""
    name = f"paused-{language}"
    holder = examples.start(language, "distributed-lock", "lock", name, 1, 1)
    holder.expect("the lock", lambda line: line.startswith("holding"))
    holder.signal(signal.SIGSTOP)
    other = examples.start("Python", "distributed-lock", "lock", name, 1)
    other.expect("the end of the next holder", lambda line: line == "done")
    assert cluster.value(f"%7B{name}%7Dcount") == "1"
    holder.signal(signal.SIGCONT)
    holder.expect("the refusal", lambda line: line.startswith("refused"))
    holder.expect("the end", lambda line: line == "done")
    assert cluster.value(f"%7B{name}%7Dcount") == "2"


def hung_node(examples, cluster, language):
    """A holder whose first node hangs for longer than its lease lives renews the lease at another one."""
    name, hung_s = f"hung-{language}", 7
    holder = examples.start(language, "distributed-lock", "lock", name, 1, hung_s - 1)
    holder.expect("the lock", lambda line: line.startswith("holding"))
    cluster.processes[0].send_signal(signal.SIGSTOP)
    end = time.monotonic() + hung_s
    try:
        other = examples.at(cluster.http[1:], "distributed-lock", "lock", name, 1)
        eventually("the node has hung for long enough", lambda: time.monotonic() > end)
        assert other.last("holding") is None, other.lines
    finally:
        cluster.processes[0].send_signal(signal.SIGCONT)
    holder.expect("the end", lambda line: line == "done")
    assert holder.last("refused") is None, holder.lines
    other.expect("the end of the next holder", lambda line: line == "done")
    assert cluster.value(f"%7B{name}%7Dcount") == "2"


def leading(candidates):
    """The candidate that leads, once all candidates agree."""
    def agreed():
        shown = {candidate.last("leader ") for candidate in candidates.values()}
        elected = [name for name, candidate in candidates.items()
                   if (candidate.last("elected", "deposed") or "").startswith("elected")]
        return elected[0] if len(elected) == 1 and shown == {f"leader {elected[0]}"} else None
    try:
        return eventually("all agree who leads", agreed)
    except AssertionError:
        raise AssertionError({name: candidate.lines[-9:] for name, candidate in candidates.items()}) from None


def election(examples, cluster, with_kill):
    """One leads at a time, whichever process or node fails."""
    name = f"scheduler-{with_kill}"
    candidates = {language: examples.start(language, "leader-election", "election", name, language)
                  for language in examples.commands}
    killed = None
    for _ in range(2):
        leader = leading(candidates)
        eventually("the leader works", lambda: cluster.value(f"%7B{name}%7Ddone-by") == leader)
        if with_kill and killed is None:
            killed = cluster.kill_leader(name)
            leader = leading(candidates)
        candidates.pop(leader).kill()
    assert leading(candidates) in candidates
    return killed


def paused_leader(examples, cluster, language):
    """A leader that was paused past its term notices that it was replaced."""
    name = f"deposed-{language}"
    first = examples.start(language, "leader-election", "election", name, "first")
    first.expect("its election", lambda line: line.startswith("elected"))
    second = examples.start("Python", "leader-election", "election", name, "second")
    second.expect("who leads", lambda line: line == "leader first")
    first.signal(signal.SIGSTOP)
    second.expect("its election", lambda line: line.startswith("elected"))
    eventually("the new leader works", lambda: cluster.value(f"%7B{name}%7Ddone-by") == "second")
    first.signal(signal.SIGCONT)
    first.expect("that it was deposed", lambda line: line == "deposed")
    first.expect("who leads", lambda line: line == "leader second")
    assert cluster.value(f"%7B{name}%7Ddone-by") == "second"


def registry(examples, cluster, with_kill):
    """Instances are there for as long as their processes run."""
    name = f"web-{with_kill}"
    recipe = "service-registry", "registry"
    instances = {language: examples.start(language, *recipe, "register", name, language, "10.0.0.1")
                 for language in examples.commands}
    observers = examples.everywhere(*recipe, "discover", name)

    def until_all_show(*languages):
        wanted = " ".join(["instances:", *(f"{language}=10.0.0.1" for language in sorted(languages))])
        for observer in observers:
            eventually(f"{observer.process.args} shows {wanted}, not {observer.lines[-3:]}",
                       lambda: observer.last("instances:") == wanted)

    until_all_show("Go", "Node.js", "Python")
    killed = cluster.kill_leader(f"%7B{name}%7D") if with_kill else None
    instances["Go"].kill()
    until_all_show("Node.js", "Python")
    instances["Node.js"].signal(signal.SIGSTOP)
    until_all_show("Python")
    instances["Node.js"].signal(signal.SIGCONT)
    until_all_show("Node.js", "Python")
    return killed


def flags(examples, cluster, with_kill):
    """Every program has the last value of each flag."""
    prefix = f"flags-{with_kill}/"
    cluster.put(f"{prefix}dark", "on")
    programs = examples.everywhere("feature-flags", "flags", prefix)
    killed = None
    for value in ("off", "on", "deleted"):
        for program in programs:
            program.expect("the state", lambda line: line == "ready")
        if with_kill and killed is None:
            killed = cluster.kill_leader(f"{prefix}dark")
        cluster.delete(f"{prefix}dark") if value == "deleted" else cluster.put(f"{prefix}dark", value)
        for program in programs:
            eventually(f"{program.process.args} has {value}, not {program.lines[-3:]}",
                       lambda: program.last(prefix) == f"{prefix}dark {value}")
    return killed


def caches(examples, cluster, with_kill):
    """Programs that read from their memory see what is written through other nodes."""
    key = f"setting-{with_kill}"
    cluster.put(key, "first")
    programs = examples.caching(key)
    killed = None
    for value in ("second", "third", "deleted"):
        for program in programs:
            program.expect("the first value", lambda line: line == "first")
        if with_kill and killed is None:
            # The programs are connected to it.
            killed = 0
            cluster.processes[killed].kill()
            cluster.processes[killed].wait()
        cluster.delete(key) if value == "deleted" else cluster.put(key, value)
        for program in programs:
            eventually(f"{program.process.args} has {value}, not {program.lines[-3:]}",
                       lambda: program.lines[-1:] == [value])
    return killed


def transfers(examples, cluster, with_kill):
    """Every unit is moved exactly once."""
    bank = f"bank-{with_kill}"
    programs = examples.everywhere("idempotent-retry", "transfer", bank, 15)
    killed = None
    if with_kill:
        eventually("the first transfers", lambda: int(cluster.value(f"%7B{bank}%7Db") or 0) > 5)
        killed = cluster.kill_leader(f"%7B{bank}%7Da")
    for program in programs:
        program.expect("the end", lambda line: line == "done")
    assert (cluster.value(f"%7B{bank}%7Da"), cluster.value(f"%7B{bank}%7Db")) == ("-45", "45")
    return killed


def configuration(examples, cluster, with_kill):
    """Every program has the present documents, and starts with its last good copy if no node is reachable."""
    namespace = f"config-{with_kill}"
    copies = pathlib.Path(cluster.directory) / namespace
    copies.mkdir()
    cluster.configure(namespace, 1)
    languages = [*examples.commands, "Java"]
    programs = {language: examples.configured(language, ",".join(cluster.http), namespace, copies / language)
                for language in languages}
    killed = None
    for number in (1, 2, 3):
        if number > 1:
            if with_kill and killed is None:
                killed = cluster.kill_leader(namespace)
            cluster.configure(namespace, number)
        for language, program in programs.items():
            eventually(f"{language} has {number}, not {program.lines[-3:]}",
                       lambda: program.last("current") == f'current {{"app":{{"port":{number}}}}}')
    for language, program in programs.items():
        program.kill()
        alone = examples.configured(language, "127.0.0.1:1", namespace, copies / language)
        alone.expect("the copy", lambda line: line == 'copy {"app":{"port":3}}')
    return killed


def first_programs(examples, cluster, with_kill):
    """Every run is counted."""
    killed = cluster.kill_leader("runs") if with_kill else None
    before = int(cluster.value("runs") or 0)
    for _ in range(2):
        for program in examples.everywhere("first-program", "first"):
            program.expect("its number", lambda line: line.startswith("run "))
    assert int(cluster.value("runs")) == before + 6
    return killed


def exported(page):
    """The file that a page on moving shows."""
    text = (DOCUMENTS / "how-to" / f"move-from-{page}.md").read_text()
    return text.split("```json\n")[1].split("```")[0]


def migrate(cluster, *arguments):
    """Exit code and output of the program that copies keys."""
    command = [sys.executable, EXAMPLES / "migrate" / "migrate.py", "--url", f"http://{cluster.http[0]}", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=WAIT_S_MAX)
    return done.returncode, done.stdout


def migration(examples, cluster, source):
    """Keys are copied once, and a key with another value is reported and not changed."""
    prefix = f"{source}/"
    if source == "redis":
        server = Redis(cluster.directory, cluster.ports[2][2] + 1)
        examples.started.append(server)
        server.ask("SET", "app/color", "blue")
        server.ask("SET", "app/port", "8080", "EX", "10000")
        server.ask("RPUSH", "app/list", "1")
        given = server.address
    else:
        given = pathlib.Path(cluster.directory) / f"{source}.json"
        given.write_text(exported(source))
    for _ in range(2):
        code, output = migrate(cluster, "--prefix", prefix, source, str(given))
        assert code == 0 and "2 stored, 0 not stored" in output, output
    assert (cluster.value(f"{prefix}app/color"), cluster.value(f"{prefix}app/port")) == ("blue", "8080")
    if source == "redis":
        assert "left out: 1 of the type list" in output, output
        assert cluster.ask(0, "GET", f"/v1/keys/{prefix}app/port")[1]["Tidelock-TTL-Ms"]
    cluster.put(f"{prefix}app/color", "red")
    code, output = migrate(cluster, "--prefix", prefix, source, str(given))
    assert code == 1 and "1 stored, 1 not stored" in output, output
    assert cluster.value(f"{prefix}app/color") == "red"


def main(tidelock, node, go, port, part=""):
    passed = failed = 0
    with tempfile.TemporaryDirectory() as directory:
        cluster = Cluster(tidelock, directory, int(port))
        examples = Examples(cluster, node, go)
        recipes = first_programs, lock, election, registry, flags, caches, transfers, configuration
        tests = [(test, with_kill) for test in recipes for with_kill in (False, True)]
        pauses = paused_holder, paused_leader, hung_node
        tests += [(test, language) for test in pauses for language in examples.commands]
        tests += [(migration, source) for source in ("etcd", "consul", "redis")]
        for test, argument in tests:
            name = f"{test.__name__} ({argument})"
            if part not in name:
                continue
            try:
                killed = test(examples, cluster, argument)
                if killed is not None:
                    cluster.restart(killed)
                passed += 1
                print(f"ok {name}", flush=True)
            except Exception:
                failed += 1
                print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
                for number, process in enumerate(cluster.processes):
                    if process.poll() is not None:
                        cluster.restart(number)
            finally:
                examples.end()
        cluster.stop()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
