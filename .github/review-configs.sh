#!/usr/bin/env bash
# A step of action.yml: reviews PATHS between BASE and HEAD with RLCTL, and writes Markdown to REVIEW.
set -euo pipefail

if [ -z "$BASE" ]; then
    echo "no pull request, so nothing to review" >&2
    exit 0
fi
mapfile -t paths < <(grep -v '^[[:space:]]*$' <<<"$PATHS" | sed 's/^[[:space:]]*//; s/[[:space:]]*$//')
options=(--force -o "$REVIEW" --link "$LINK/$HEAD")
if [ -n "$RUNNER" ]; then options+=(--runner "$RUNNER"); fi
if [ -n "$CLUSTER" ]; then options+=(--cluster "$CLUSTER"); fi
for path in "${paths[@]}"; do options+=("--path=$path"); done
"$RLCTL" --language "$REVIEW_LANGUAGE" review "${options[@]}" -- "$BASE" "$HEAD"
if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then cat "$REVIEW" >>"$GITHUB_STEP_SUMMARY"; fi
