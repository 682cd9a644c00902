#!/bin/sh
# Several processes compute pi together: each integrates its share of 4 / (1 + x^2) over 0..1, rank 0 adds
# the shares up.
#   $1 number of intervals
set -eu
echo "rank $RANK of $WORLD_SIZE, local rank $LOCAL_RANK of $LOCAL_WORLD_SIZE," \
  "node $GROUP_RANK of $GROUP_WORLD_SIZE, rank 0 at $MASTER_ADDR:$MASTER_PORT, on $(uname -n)"

# The trial's own folder is on the shared disk. A share is written aside and renamed, so that it is there
# whole or not at all; a later attempt does not take those of an earlier one.
share=$HPCSWEEP_WORK_DIR/share.$HPCSWEEP_ATTEMPT
awk -v n="$1" -v rank="$RANK" -v world="$WORLD_SIZE" 'BEGIN {
  for (i = rank; i < n; i += world) { x = (i + 0.5) / n; sum += 4 / (1 + x * x) / n }
  printf "%.17g\n", sum
}' >"$share.$RANK.part"
mv "$share.$RANK.part" "$share.$RANK"
[ "$RANK" -eq 0 ] || exit 0

# If another rank fails, its trial is ended and this loop with it.
other=1
while [ "$other" -lt "$WORLD_SIZE" ]; do
  if [ -e "$share.$other" ]; then other=$((other + 1)); else sleep 0.05; fi
done
cat "$share".[0-9]* | awk '{ pi += $1 } END {
  printf "{\"pi\": %.12f, \"error\": %.3g}\n", pi, pi - 3.14159265358979
}' >"$HPCSWEEP_RESULT"
rm -f "$share".[0-9]*
