#!/usr/bin/env bash
# A worker in bash, with curl and jq. It takes jobs of one type, one after the other, gives the input of each to a
# command on standard input, and finishes the job with what the command prints.
#
#   examples/worker.sh http://127.0.0.1:8001 charge_customer ./charge.sh
#
# The command finds ONEJOB_JOB_ID (hand it on as the idempotency key of whatever it calls), ONEJOB_TOKEN and
# ONEJOB_ATTEMPT in its environment. What it writes to standard error becomes log lines. A status other than 0 fails
# the attempt, which is tried again while attempts are left; status 65 fails the job for good.
#
# ONEJOB_API_KEY: a key with the role worker. ONEJOB_LEASE: seconds, 30 unless set. ONEJOB_JOBS: leave after so many jobs.
set -euo pipefail

url=$1 type=$2
shift 2
lease=${ONEJOB_LEASE:-30} left=${ONEJOB_JOBS:--1}
folder=$(mktemp -d)
stopping=""
trap 'rm -rf "$folder"' EXIT
trap 'stopping=yes' TERM INT

# post PATH BODY FILE: prints the status of the answer, whose body goes into FILE. Every request here may be repeated
# as it is: the holder makes it the same wish. So no answer, or one that asks for patience, is met by asking again.
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

# Keep the job while the command runs: tell what it logged, and stop it when the job is not ours any more.
keep() { # JOB FENCE COMMAND-PID
    local sent=0 lines body
    while sleep "$(jq -n "$lease / 3")"; do
        lines=$(tail -n "+$((sent + 1))" "$folder/log" | head -n 100 | jq -R . | jq -sc .)
        body=$(jq -c ". + {leaseSeconds: $lease, logs: $lines, offset: $sent}" <<<"$2")
        case $(post "/api/jobs/$1/extend" "$body" "$folder/kept") in
            200) sent=$(jq .logs "$folder/kept") ;;
            *) kill "$3" 2>/dev/null || true; return ;;
        esac
    done
}

run() { # one claimed job, as JSON
    local job fence status result keeper command
    job=$(jq -r .job.id <<<"$1")
    fence=$(jq -c '{token, holder}' <<<"$1")
    status=$(post "/api/jobs/$job/start" "$(jq -c ". + {leaseSeconds: $lease}" <<<"$fence")" "$folder/started")
    [ "$status" = 200 ] || return 0 # somebody else has it
    : >"$folder/log"
    ONEJOB_JOB_ID=$job ONEJOB_TOKEN=$(jq .token <<<"$1") ONEJOB_ATTEMPT=$(jq .attempt "$folder/started") \
        "${worker[@]}" < <(jq -c .input <<<"$1") >"$folder/out" 2>"$folder/log" &
    command=$!
    keep "$job" "$fence" "$command" &
    keeper=$!
    status=0
    wait "$command" || status=$?
    kill "$keeper" 2>/dev/null || true
    wait "$keeper" 2>/dev/null || true
    # One JSON value is taken as it is, nothing as null, anything else as text.
    result=$(jq -sc 'if length > 1 then error("several") else .[0] end' "$folder/out" 2>/dev/null || jq -Rsc . "$folder/out")
    case $status in
        0) result=$(jq -c --argjson result "$result" '. + {result: $result}' <<<"$fence") ;;
        *) result=$(jq -c --arg error "status $status: $(tail -n 1 "$folder/log")" --argjson final "$([ $status = 65 ] && echo true || echo false)" \
            '. + {error: $error, final: $final}' <<<"$fence") ;;
    esac
    # 409 STALE: the job was cancelled, or is somebody else's; there is nothing left to say.
    post "/api/jobs/$job/finish" "$result" "$folder/finished" >/dev/null
}

worker=("$@")
count=0
while [ -z "$stopping" ] && [ "$left" != 0 ]; do
    # One holder for one wish, the same on every retry: a lost answer is given again.
    count=$((count + 1))
    holder="$(hostname | cut -c 1-30):$$:$count:$RANDOM"
    wish=$(jq -nc --arg type "$type" --arg holder "$holder" "{types: [\$type], holder: \$holder, wait: 20, leaseSeconds: $lease}")
    case $(post /api/work/claim "$wish" "$folder/claimed") in
        200) ;;
        *) jq -r '.detail // "no answer"' "$folder/claimed" >&2; exit 1 ;;
    esac
    while read -r one; do
        run "$one"
        left=$((left - 1))
    done < <(jq -c '.jobs[]' "$folder/claimed")
done
