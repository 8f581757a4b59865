"""Uses the client that openapi-python-client has made from `/openapi.json`, against three nodes, and prints a line for each
test: `ok NAME` or `FAILED NAME`.

usage: client.py URL URL URL
"""

import io
import sys
import traceback
from typing import Any, Callable

from tidelock_client import Client
from tidelock_client.api.configuration import create_namespace, get_namespace, get_pair, put_pair
from tidelock_client.api.keys import delete_key, get_key, list_keys, put_key, watch_keys
from tidelock_client.api.transactions import execute_transaction
from tidelock_client.models import (
    ConfigError, GetPairResponse200, KeyChanges, KeyPage, PairContent, Problem, PutPairResponse200, Transaction,
    TransactionAnswer,
)
from tidelock_client.types import UNSET, File, Response, Unset


def put(client: Client, key: str, value: bytes, if_match: str | Unset = UNSET, if_none_match: str | Unset = UNSET) -> Response[Any]:
    body = File(payload=io.BytesIO(value))
    return put_key.sync_detailed(key, client=client, body=body, if_match=if_match, if_none_match=if_none_match)


def put_get_delete(first: Client, second: Client, third: Client) -> None:
    assert put(first, "generated/python/a b", b"\x00\xffone").status_code == 201
    answer = get_key.sync_detailed("generated/python/a b", client=second)
    assert answer.status_code == 200 and answer.content == b"\x00\xffone", answer
    assert delete_key.sync_detailed("generated/python/a b", client=third).status_code == 204


def missing_key(first: Client, second: Client, third: Client) -> None:
    problem = get_key.sync("generated/python/missing", client=second)
    assert isinstance(problem, Problem), problem
    assert problem.status == 404 and problem.type_.endswith("/not-found"), problem


def conditional_write(first: Client, second: Client, third: Client) -> None:
    etag = put(first, "generated/python/conditional", b"one").headers["ETag"]
    assert put(second, "generated/python/conditional", b"two", if_match=etag).status_code == 200
    refused = put(third, "generated/python/conditional", b"three", if_match=etag)
    assert refused.status_code == 412 and isinstance(refused.parsed, Problem), refused
    current = refused.parsed.current
    assert isinstance(current, int) and current > int(etag.strip('"')), refused.parsed
    assert put(third, "generated/python/conditional", b"three", if_none_match="*").status_code == 412


def pages(first: Client, second: Client, third: Client) -> None:
    names = [f"generated/python/page/{number:02}" for number in range(25)]
    for name in names:
        put(first, name, b"value")
    found: list[str] = []
    after: str | Unset = UNSET
    while True:
        page = list_keys.sync(client=second, prefix="generated/python/page/", limit=10, after=after)
        assert isinstance(page, KeyPage) and len(page.items) <= 10, page
        found += [str(item.key) for item in page.items]
        if not page.next_:
            break
        after = page.next_
    assert found == names, found


def watch(first: Client, second: Client, third: Client) -> None:
    begun = watch_keys.sync(client=second, key="generated/python/watched", after="now", wait="1ms")
    assert isinstance(begun, KeyChanges), begun
    version = int(put(first, "generated/python/watched", b"seen").headers["ETag"].strip('"'))
    changes = watch_keys.sync(client=third, key="generated/python/watched", after=begun.cursor, wait="30s")
    assert isinstance(changes, KeyChanges), changes
    assert [(change.key, change.val, change.ver) for change in changes.changes] == [("generated/python/watched", "seen", version)]


def transaction(first: Client, second: Client, third: Client) -> None:
    request = {"id": "once", "then": [{"put": {"key": "{generated-python}x", "val": "1"}}, {"get": {"key": "{generated-python}x"}}]}
    answer = execute_transaction.sync(client=first, body=Transaction.from_dict(request))
    assert isinstance(answer, TransactionAnswer), answer
    repeated = execute_transaction.sync(client=second, body=Transaction.from_dict(request))
    assert isinstance(repeated, TransactionAnswer) and repeated.results == answer.results, repeated


def configuration(first: Client, second: Client, third: Client) -> None:
    assert create_namespace.sync_detailed("generated-python", client=first).status_code == 200
    done = put_pair.sync("generated-python", "port", client=second, body=PairContent(value=8080))
    assert isinstance(done, PutPairResponse200) and done.data.changed, done
    read = get_pair.sync("generated-python", "port", client=third)
    assert isinstance(read, GetPairResponse200) and read.data.value == 8080, read
    error = get_namespace.sync("generated-python-missing", client=first)
    assert isinstance(error, ConfigError) and error.errcode == 40401, error


TESTS: list[Callable[[Client, Client, Client], None]] = [
    put_get_delete, missing_key, conditional_write, pages, watch, transaction, configuration,
]


def main() -> int:
    first, second, third = (Client(base_url=url, timeout=90) for url in sys.argv[1:])  # type: ignore[arg-type]
    failed = 0
    for test in TESTS:
        try:
            test(first, second, third)
            print(f"ok {test.__name__}", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED {test.__name__}\n{traceback.format_exc()}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
