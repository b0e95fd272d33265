#!/usr/bin/env bash
# The last step of action.yml: checks PATHS with RLCTL, prints annotations, and writes a SARIF log if SARIF names a file.
set -euo pipefail

mapfile -t paths < <(grep -v '^[[:space:]]*$' <<<"$PATHS" | sed 's/^[[:space:]]*//; s/[[:space:]]*$//')
options=(--only-configs --fail-on "$FAIL_ON" --runner "${RUNNER:-rlctl}")
if [ -n "$CLUSTER" ]; then options+=(--cluster "$CLUSTER"); fi

if [ -n "$SARIF" ]; then
    code=0
    "$RLCTL" check "${options[@]}" --format sarif -- "${paths[@]}" >"$SARIF" 2>/dev/null || code=$?
    # 1 and 3 are findings, which the next command prints.
    [ "$code" = 0 ] || [ "$code" = 1 ] || [ "$code" = 3 ] || echo "rlctl check ended with $code" >&2
fi
exec "$RLCTL" check "${options[@]}" --format github -- "${paths[@]}"
