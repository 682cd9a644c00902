#!/bin/sh
# Fits a straight line to the points outside of one fold by gradient descent with a penalty on its slope, and measures it
# on the fold. Replace it by your own program.
#   $1 fold of 3, $2 penalty
set -eu
previous=${HPCSWEEP_PREVIOUS_WORK_DIR:-/nonexistent}/weights
checkpoint=$HPCSWEEP_CHECKPOINT_DIR/weights
begin=/dev/null
[ ! -e "$previous" ] || begin=$previous
[ ! -e "$checkpoint" ] || begin=$checkpoint
echo "attempt $HPCSWEEP_ATTEMPT begins from $begin"
awk -v fold="$1" -v penalty="$2" -v metrics="$HPCSWEEP_METRICS" -v checkpoint="$checkpoint" '
{ first = $1; w = $2; b = $3 }
END {
  srand(1); n = 120
  for (i = 0; i < n; i++) { x[i] = i / n * 2 - 1; y[i] = 3 * x[i] - 0.5 + (rand() - 0.5) * 0.4 }
  for (epoch = first + 1; epoch <= 100; epoch++) {
    gw = 2 * penalty * w / n; gb = loss = unseen = 0
    for (i = 0; i < n; i++) {
      error = w * x[i] + b - y[i]
      if (i % 3 == fold) { unseen += error * error / (n / 3); continue }
      gw += 2 * error * x[i] / n; gb += 2 * error / n; loss += error * error / (n - n / 3)
    }
    w -= 0.2 * gw; b -= 0.2 * gb
    if (epoch % 20 == 0) {
      printf "{\"epoch\": %d, \"train_loss\": %.9g, \"loss\": %.9g}\n", epoch, loss, unseen >>metrics
      printf "%d %.17g %.17g\n", epoch, w, b >checkpoint
      close(checkpoint)
    }
  }
  printf "0 %.17g %.17g\n", w, b >checkpoint
}' "$begin"
# For the next link of the chain.
mv "$checkpoint" "$HPCSWEEP_WORK_DIR/weights"
