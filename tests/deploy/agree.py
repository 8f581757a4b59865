"""Checks what the Dockerfile, the manifests, the unit and the package say about each other and about the node.

A variable that the node does not know is ignored by it, and so is a port on which nothing listens: neither is an error
that a linter can see.

usage: agree.py, from the root of the repository
"""

import re
import sys
from pathlib import Path

SETTINGS = Path("crates/server/src/config/raw/mod.rs").read_text()
CONNECTION = Path("crates/client/src/connection.rs").read_text()
DOCKERFILE = Path("Dockerfile").read_text()
MANIFEST = Path("deploy/kubernetes/tidelock.yaml").read_text()
UNIT = Path("packaging/tidelock.service").read_text()
PACKAGE = Path("crates/cli/Cargo.toml").read_text()
POSTINST = Path("packaging/debian/postinst").read_text()
POSTRM = Path("packaging/debian/postrm").read_text()

problems = []


def expect(what, found, wanted):
    if found != wanted:
        problems.append(f"{what}: {found!r} instead of {wanted!r}")


def names(pattern, text):
    found = re.findall(pattern, text, re.MULTILINE)
    if not found:
        problems.append(f"nothing matches {pattern}")
    return found


known = set(names(r'env = "(TIDELOCK_\w+)"', SETTINGS + CONNECTION))
for name, text in [("Dockerfile", DOCKERFILE), ("manifest", MANIFEST)]:
    unknown = set(names(r"\bTIDELOCK_[A-Z_]*[A-Z]\b", text)) - known
    expect(f"{name}: variables that no node knows", unknown, set())

# The ports of the listeners are those that are exposed, and those of the services.
listeners = r"TIDELOCK_(?:LISTEN_(?:HTTP|RESP|PEER)|RESP_CLUSTER)(?:=|\n\s+value: )0\.0\.0\.0:(\d+)"
image = sorted(names(listeners, DOCKERFILE))
expect("Dockerfile: EXPOSE", sorted(names(r"^EXPOSE (.*)$", DOCKERFILE)[0].split()), image)
expect("manifest: listeners", sorted(names(listeners, MANIFEST)), image)
expect("manifest: containerPort", sorted(names(r"containerPort: (\d+)", MANIFEST)), image)
expect("manifest: ports of services", sorted(set(names(r"^\s+port: (\d+)$", MANIFEST))), image)
defaults = sorted(names(r"default: 127\.0\.0\.1:(\d+)", SETTINGS))
expect("defaults of the node, besides Redis Cluster", set(defaults) - set(image), set())

# The founders are the pods of the StatefulSet, by the names that they advertise.
replicas = int(names(r"^  replicas: (\d+)$", MANIFEST)[0])
service = names(r"serviceName: (\S+)", MANIFEST)[0]
domain = f"{service}.$(NAMESPACE).svc.cluster.local"
founders = names(r"TIDELOCK_PEERS\n\s+value: (\S+)", MANIFEST)[0].split(",")
expect("founders", founders, [f"tidelock-{pod}.{domain}:9001" for pod in range(replicas)])
expect("advertised name", names(r"NODE_NAME\n\s+value: (\S+)", MANIFEST), [f"$(POD_NAME).{domain}"])
certified = names(r"path: (tidelock-\d+)/tls\.crt", MANIFEST)
expect("certificates", certified, [f"tidelock-{pod}" for pod in range(replicas)])

# The user of the image is that of the pods.
user = names(r"^USER (\d+):\d+$", DOCKERFILE)
expect("manifest: runAsUser", names(r"runAsUser: (\d+)", MANIFEST), user)
version = names(r'^version = "(.*)"$', Path("Cargo.toml").read_text())[0]
expect("manifest: image", names(r"image: (\S+)", MANIFEST), [f"tidelock:{version}"])

# The unit reads the file that the package installs as configuration, and its user is the one that the package makes.
config = names(r"^ExecStart=/usr/bin/tidelock serve --config (\S+)$", UNIT)
expect("package: conf-files", names(r'conf-files = \["(.*)"\]', PACKAGE), config)
expect("package: user", names(r"adduser .* (\w+)$", POSTINST), names(r"^User=(.*)$", UNIT))
for key, root in [("StateDirectory", "/var/lib/"), ("LogsDirectory", "/var/log/")]:
    directory = root + names(rf"^{key}=(.*)$", UNIT)[0]
    expect(f"purge: {directory} is deleted", f" {directory}" in names(r"^ +rm -rf(.*)$", POSTRM)[0], True)

print("\n".join(problems) or "all agree")
sys.exit(bool(problems))
