#!/bin/sh
# Writes a report, unless a newer one is there: a report that was begun under an older fence must not replace it.
set -eu
folder=${REPORT_DIR:-.}
mkdir -p "$folder"

# Stands for the work.
sleep "${REPORT_SECONDS:-1}"
echo "written under fence $HOLDFAST_FENCE" > "$folder/report.$HOLDFAST_FENCE"

# The storage decides: fences grow with every grant, so a lower one is an older lease. flock makes check and rename one step.
exec 9> "$folder/.fence.lock"
flock 9
newest=$(cat "$folder/.fence" 2> /dev/null || echo 0)
if [ "$HOLDFAST_FENCE" -lt "$newest" ]; then
  echo "fence $HOLDFAST_FENCE is older than $newest: nothing was replaced" >&2
  rm "$folder/report.$HOLDFAST_FENCE"
  exit 1
fi
echo "$HOLDFAST_FENCE" > "$folder/.fence"
mv "$folder/report.$HOLDFAST_FENCE" "$folder/report"
