#!/bin/sh
# Runs the report on one machine of many. For a crontab: 0 3 * * * /opt/app/cron.sh
here=$(dirname "$0")

${HOLDFAST:-holdfast} run nightly-report --wait 0 --ttl 30s --info "cron on $(hostname)" -- sh "$here/report.sh"
code=$?

case $code in
  0) echo "the report is written" ;;
  75) echo "another machine is at it" ;;
  69) echo "the lock server cannot be reached, so nobody ran" >&2; exit $code ;;
  79) echo "the lock was lost, and the report was stopped in time" >&2; exit $code ;;
  *) echo "the report failed with $code" >&2; exit $code ;;
esac
