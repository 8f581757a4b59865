"""Copies the schemas of the kinds that the manifests have, so that kubeconform can read them.

The package kubernetes-validate gives each schema an address, and refers to definitions at another one, which its own
program knows. Without addresses, references lead to the file beside the schema.

usage: schemas.py FROM TO
"""

import json
import sys
from pathlib import Path

FILES = ["_definitions", "service-v1", "statefulset-apps-v1", "poddisruptionbudget-policy-v1"]
DEFINITIONS = "/api/_definitions.json#"


def local(node):
    if isinstance(node, list):
        return [local(item) for item in node]
    if not isinstance(node, dict):
        return node
    copy = {name: local(value) for name, value in node.items()}
    reference = copy.get("$ref")
    if isinstance(reference, str) and reference.startswith(DEFINITIONS):
        copy["$ref"] = "_definitions.json#" + reference.removeprefix(DEFINITIONS)
    return copy


source, target = Path(sys.argv[1]), Path(sys.argv[2])
unfinished = target.with_name(target.name + ".new")
unfinished.mkdir(parents=True, exist_ok=True)
for name in FILES:
    schema = local(json.loads((source / f"{name}.json").read_text()))
    schema.pop("$id", None)
    (unfinished / f"{name}.json").write_text(json.dumps(schema))
unfinished.rename(target)
