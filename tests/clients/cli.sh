#!/usr/bin/env bash
# Runs redis-cli and redis-benchmark against a cluster. Arguments are the addresses of its nodes. With TEST_CA and TEST_TOKEN_FILE in
# the environment they connect with TLS and a token.
set -euo pipefail

secure=() suffix=
if [[ -n ${TEST_CA:-} ]]; then
    secure=(--tls --cacert "$TEST_CA") suffix=" with TLS and a token"
    REDISCLI_AUTH=$(<"$TEST_TOKEN_FILE")
    export REDISCLI_AUTH
fi

fail() {
    echo "redis-cli: $*" >&2
    exit 1
}

expect() {
    local expected=$1
    shift
    local found
    found=$("$@" 2>&1) || fail "$* failed: $found"
    [[ $found == "$expected" ]] || fail "$*: expected '$expected', found '$found'"
}

for address in "$@"; do
    cli=(redis-cli -h "${address%:*}" -p "${address#*:}" "${secure[@]}")
    for protocol in -2 -3; do
        expect PONG "${cli[@]}" "$protocol" PING
        expect OK "${cli[@]}" "$protocol" SET cli 41
        expect 42 "${cli[@]}" "$protocol" INCR cli
        expect 42 "${cli[@]}" "$protocol" GET cli
        expect OK "${cli[@]}" "$protocol" SET cli:ttl v EX 100
        expect 1 "${cli[@]}" "$protocol" DEL cli
    done
    expect $'OK\nQUEUED\nQUEUED\nOK\n1' "${cli[@]}" <<<$'MULTI\nSET {cli}a 0\nINCR {cli}a\nEXEC'
    expect 1 bash -c "$(printf '%q ' "${cli[@]}") --scan --pattern 'cli:t*' | wc -l"
    expect 12182 "${cli[@]}" CLUSTER KEYSLOT foo
    "${cli[@]}" LPUSH list a 2>&1 | grep -q '^ERR unknown command' || fail "LPUSH is not refused in words"
    expect OK "${cli[@]}" -c SET cluster-mode 1
done
echo "redis-cli$suffix: ok"

first=$1
for load in "-c 8 -P 512 -n 50000" "-c 64 -P 1 -n 5000"; do
    # shellcheck disable=SC2086 # words of a load
    redis-benchmark -h "${first%:*}" -p "${first#*:}" "${secure[@]}" ${REDISCLI_AUTH:+-a "$REDISCLI_AUTH"} -t ping,set,get,incr $load -r 1000 --csv >/dev/null 2>"${TMPDIR:-/tmp}/tidelock-benchmark.$$" \
        || fail "redis-benchmark $load failed: $(cat "${TMPDIR:-/tmp}/tidelock-benchmark.$$")"
    rm -f "${TMPDIR:-/tmp}/tidelock-benchmark.$$"
done
echo "redis-benchmark$suffix: ok"
