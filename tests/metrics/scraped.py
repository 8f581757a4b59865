"""A Prometheus that scrapes a cluster with the files that docs/how-to/monitor.md names: its configuration, the alerts, and
the queries of the dashboard."""

import contextlib
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import urllib.parse
import urllib.request

from nodes import await_port
from waiting import eventually

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
MANUAL = DEPLOY.parent / "docs/how-to/monitor.md"


def promtool_accepts(promtool, *arguments):
    done = subprocess.run([promtool, *arguments], cwd=DEPLOY / "prometheus", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout


def alerts_are_explained():
    """Each alert has a row in the manual, and the manual names no other."""
    alerts = re.findall(r"- alert: (\w+)", (DEPLOY / "prometheus/alerts.yml").read_text())
    explained = re.findall(r"^\| `(Tidelock\w+)`", MANUAL.read_text(), re.MULTILINE)
    assert alerts == explained, f"alerts: {alerts}; explained: {explained}"


class Prometheus:
    """Answers of a running Prometheus."""

    def __init__(self, port):
        self.address = f"http://127.0.0.1:{port}/api/v1"

    def ask(self, path, **parameters):
        """The data of an answer, or None while it does not serve."""
        with contextlib.suppress(OSError):
            query = urllib.parse.urlencode(parameters)
            with urllib.request.urlopen(f"{self.address}/{path}?{query}", timeout=30) as answer:
                return json.load(answer)["data"]
        return None

    def targets(self):
        """Targets that were scraped at least once."""
        found = (self.ask("targets") or {"activeTargets": []})["activeTargets"]
        return [target for target in found if target["health"] != "unknown"]

    def is_scraping(self, nodes):
        """All nodes answer, with the token and TLS."""
        found = eventually("every target was scraped", lambda: len(self.targets()) == nodes and self.targets())
        assert all(target["health"] == "up" and target["scrapeUrl"].startswith("https:") for target in found), found

    def refuses(self, nodes, error):
        """No node answers, and all give this reason."""
        found = eventually("every target was scraped", lambda: len(self.targets()) == nodes and self.targets())
        assert all(target["health"] == "down" and error in target["lastError"] for target in found), found

    def evaluates_alerts(self):
        """No alert fails, and none is raised by a cluster that is well."""

        def evaluated():
            rules = [rule for group in (self.ask("rules") or {"groups": []})["groups"] for rule in group["rules"]]
            # An evaluation before the first scrape of all nodes misses the leaders of the others: until the next one, that
            # alert is pending.
            is_pending = any(alert["state"] == "pending" for rule in rules for alert in rule["alerts"])
            is_complete = rules and all(rule["health"] != "unknown" for rule in rules)
            return rules if is_complete and not is_pending else None

        for rule in eventually("all alerts were evaluated", evaluated):
            assert rule["health"] == "ok", rule
            assert not rule["alerts"], rule

    def answers_dashboard(self):
        """Every query of the dashboard finds data."""
        dashboard = json.loads((DEPLOY / "grafana/tidelock.json").read_text())
        queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
        assert len(queries) > 30, "the dashboard has hardly any queries"
        without = [query.replace("$job", "tidelock").replace("$__rate_interval", "30s") for query in queries]

        def all_have_data():
            without[:] = [query for query in without if not (self.ask("query", query=query) or {}).get("result")]
            return not without

        try:
            eventually("the queries find data", all_have_data)
        except AssertionError:
            raise AssertionError("without data: " + "; ".join(without)) from None

    def knows_the_version(self, version):
        """The metric of the build has the version that the program prints."""
        found = self.ask("query", query="tidelock_build_info")["result"]
        assert {one["metric"]["version"] for one in found} == {version}, found


@contextlib.contextmanager
def prometheus(binary, cluster, token, port):
    """Runs Prometheus with the example's configuration, for this cluster and with this token."""
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        for name in ("prometheus.yml", "alerts.yml"):
            shutil.copy(DEPLOY / "prometheus" / name, directory)
        example = (directory / "prometheus.yml").read_text()
        targets = json.dumps(cluster.http)
        concrete = re.sub(r"targets: \[.*\]", f"targets: {targets}", example).replace("_interval: 10s", "_interval: 1s")
        assert targets in concrete and "1s" in concrete, "the example has another form than this test expects"
        (directory / "prometheus.yml").write_text(concrete)
        shutil.copy(cluster.ca, directory / "tidelock-ca.crt")
        (directory / "tidelock.token").write_text(token)
        command = [binary, f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data",
                   f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
        with open(directory / "log", "wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            await_port(port, process)
            yield Prometheus(port)
        finally:
            process.terminate()
            process.wait()
