"""What schemathesis is told about Tidelock beyond `/openapi.json`."""

import os
import re

import schemathesis

# A watch, or a place in the queue of a lock, waits as long as the client asks, up to 24 hours.
WAIT = "10ms"
DURATION = re.compile(r"[0-9]{1,16}(ms|s|m|h|d)?")
# Served without a token. The files of the console contain no data.
OPEN_OPERATIONS = {"live", "ready", "openapi", "console", "consoleFile", "signIn", "signOut"}
# Every client may ask who it is.
ALLOWED_WITHOUT_GRANTS = OPEN_OPERATIONS | {"whoami", "welcome"}


@schemathesis.hook
def before_call(context, case, kwargs):
    """Shortens valid waits, so that a run does not wait for changes that nobody makes."""
    for values in (case.query, case.body):
        if isinstance(values, dict) and DURATION.fullmatch(str(values.get("wait"))):
            values["wait"] = WAIT


def declare_token(context, raw_schema):
    """Declares that operations require a token, which `/openapi.json` does not: the check `ignored_auth` needs it."""
    raw_schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path in raw_schema["paths"].values():
        for operation in path.values():
            if isinstance(operation, dict):
                is_open = operation["operationId"] in OPEN_OPERATIONS
                operation["security"] = [] if is_open else [{"token": []}]


def refused_without_grant(ctx, response, case):
    """A token without grants gets nothing but what is open to everyone."""
    operation = case.operation.definition.raw["operationId"]
    if operation not in ALLOWED_WITHOUT_GRANTS and response.status_code < 400:
        raise AssertionError(f"a token without grants was answered {response.status_code}")


match os.environ.get("TIDELOCK_TOKEN"):
    case "administrator":
        schemathesis.hook("before_load_schema")(declare_token)
    case "without grants":
        schemathesis.check(refused_without_grant)
