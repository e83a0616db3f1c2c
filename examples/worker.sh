#!/usr/bin/env bash
# A worker in bash, with curl and jq. It claims jobs of one type, one after the other, passes the input of each to a
# command on standard input, and finishes the job with the output of the command.
#
#   examples/worker.sh http://127.0.0.1:8001 charge_customer ./charge.sh
#
# The command gets ONEJOB_JOB_ID (use it as the idempotency key of calls to other services), ONEJOB_TOKEN and
# ONEJOB_ATTEMPT in its environment. Its standard error becomes log lines. An exit status other than 0 fails the
# attempt, which is retried while attempts are left; status 65 fails the job without a retry.
#
# ONEJOB_API_KEY: a key with the role worker. ONEJOB_LEASE: seconds, default 30. ONEJOB_JOBS: exit after so many jobs.
set -euo pipefail

url=$1 type=$2
shift 2
lease=${ONEJOB_LEASE:-30} left=${ONEJOB_JOBS:--1}
folder=$(mktemp -d)
stopping=""
trap 'rm -rf "$folder"' EXIT
trap 'stopping=yes' TERM INT

# post PATH BODY FILE: prints the status of the response and writes its body to FILE. Every request here is idempotent
# because of its holder, so it is repeated without a response, and after 429 or 5xx.
post() {
    local status
    for _ in {1..60}; do
        status=$(curl -sS -o "$3" -w '%{http_code}' --max-time 45 ${ONEJOB_API_KEY:+-H "Authorization: Bearer $ONEJOB_API_KEY"} \
            -H 'Content-Type: application/json' -d "$2" "$url$1" 2>/dev/null) || status=000
        case $status in
            000 | 429 | 5??) sleep "${ONEJOB_PAUSE:-1}" ;;
            *) break ;;
        esac
    done
    echo "$status"
}

# Extend the lease while the command runs, send its log lines, and stop it when the lease is lost.
extend() { # JOB FENCE COMMAND-PID
    local sent=0 lines body
    while sleep "$(jq -n "$lease / 3")" >/dev/null 2>&1; do # a sleep that is left behind holds no pipe of the worker open
        lines=$(tail -n "+$((sent + 1))" "$folder/log" | head -n 100 | jq -R . | jq -sc .)
        body=$(jq -c ". + {leaseSeconds: $lease, logs: $lines, offset: $sent}" <<<"$2")
        case $(post "/api/jobs/$1/extend" "$body" "$folder/extended") in
            200) sent=$(jq .logs "$folder/extended") ;;
            *) kill "$3" 2>/dev/null || true; return ;;
        esac
    done
}

run() { # one claimed job, as JSON
    local job fence status result extender command
    job=$(jq -r .job.id <<<"$1")
    fence=$(jq -c '{token, holder}' <<<"$1")
    status=$(post "/api/jobs/$job/start" "$(jq -c ". + {leaseSeconds: $lease}" <<<"$fence")" "$folder/started")
    [ "$status" = 200 ] || return 0 # another worker has started it
    : >"$folder/log"
    ONEJOB_JOB_ID=$job ONEJOB_TOKEN=$(jq .token <<<"$1") ONEJOB_ATTEMPT=$(jq .attempt "$folder/started") \
        "${worker[@]}" < <(jq -c .input <<<"$1") >"$folder/out" 2>"$folder/log" &
    command=$!
    extend "$job" "$fence" "$command" &
    extender=$!
    status=0
    wait "$command" || status=$?
    kill "$extender" 2>/dev/null || true
    wait "$extender" 2>/dev/null || true
    # One JSON value is the result itself, no output is null, anything else is a text.
    result=$(jq -sc 'if length > 1 then error("several") else .[0] end' "$folder/out" 2>/dev/null || jq -Rsc . "$folder/out")
    case $status in
        0) result=$(jq -c --argjson result "$result" '. + {result: $result}' <<<"$fence") ;;
        *) result=$(jq -c --arg error "status $status: $(tail -n 1 "$folder/log")" --argjson final "$([ $status = 65 ] && echo true || echo false)" \
            '. + {error: $error, final: $final}' <<<"$fence") ;;
    esac
    # 409 STALE: the job was cancelled, or another worker has it; nothing is left to report.
    post "/api/jobs/$job/finish" "$result" "$folder/finished" >/dev/null
}

worker=("$@")
count=0
while [ -z "$stopping" ] && [ "$left" != 0 ]; do
    # One holder for each claim, the same on every retry, so that a lost response is repeated.
    count=$((count + 1))
    holder="$(hostname | cut -c 1-30):$$:$count:$RANDOM"
    claim=$(jq -nc --arg type "$type" --arg holder "$holder" "{types: [\$type], holder: \$holder, wait: 20, leaseSeconds: $lease}")
    case $(post /api/work/claim "$claim" "$folder/claimed") in
        200) ;;
        *) jq -r '.detail // "no response"' "$folder/claimed" >&2; exit 1 ;;
    esac
    while read -r one; do
        run "$one"
        left=$((left - 1))
    done < <(jq -c '.jobs[]' "$folder/claimed")
done
