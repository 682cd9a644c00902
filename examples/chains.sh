#!/bin/sh
# Fits a polynomial of degree 5 to noisy points by gradient descent with a penalty on its weights, and
# measures it on the points of one fold, which it has not seen.
#   $1 fold, $2 number of folds, $3 penalty, $4 file in which the links of a chain hand on their weights
# Weights are saved every 100 epochs, so that a lost attempt costs no more than that. The first attempt of
# one trial is lost on purpose, to show it.
set -eu
checkpoint=$HPCSWEEP_CHECKPOINT_DIR/weights
begin=/dev/null
[ "$HPCSWEEP_LINK" -eq 0 ] || [ ! -e "$4" ] || begin=$4
[ ! -e "$checkpoint" ] || begin=$checkpoint
echo "attempt $HPCSWEEP_ATTEMPT begins from $begin"

awk -v fold="$1" -v folds="$2" -v penalty="$3" -v attempt="$HPCSWEEP_ATTEMPT" -v checkpoint="$checkpoint" \
  -v metrics="$HPCSWEEP_METRICS" '
function predict(i,  k, sum) { for (k = sum = 0; k <= 5; k++) sum += w[k] * power[i, k]; return sum }
function save(epoch,  k) {
  print epoch >checkpoint
  for (k = 0; k <= 5; k++) printf "%.17g\n", w[k] >checkpoint
  close(checkpoint)
}
NR == 1 { first = $1 }
NR > 1 { w[NR - 2] = $1 }
END {
  srand(1); n = 120
  for (i = 0; i < n; i++) {
    x = i / n * 2 - 1; y[i] = sin(3 * x) + (rand() - 0.5) * 0.4
    for (k = 0; k <= 5; k++) power[i, k] = x ^ k
  }
  for (epoch = first + 1; epoch <= 400; epoch++) {
    for (k = 0; k <= 5; k++) gradient[k] = 2 * penalty * w[k] / n
    loss = unseen = 0
    for (i = 0; i < n; i++) {
      error = predict(i) - y[i]
      if (i % folds == fold) { unseen += error * error; continue }
      loss += error * error
      for (k = 0; k <= 5; k++) gradient[k] += 2 * error * power[i, k] / n
    }
    for (k = 0; k <= 5; k++) w[k] -= 0.3 * gradient[k]
    if (epoch % 100 == 0) {
      printf "{\"epoch\": %d, \"train_loss\": %.9g, \"loss\": %.9g}\n", epoch,
        loss / (n - n / folds), unseen / (n / folds) >>metrics
      save(epoch)
    }
    if (epoch == 250 && attempt == 1 && fold == 2 && penalty == 0.1) { print "lost on purpose"; exit 3 }
  }
  save(0)
}' "$begin"
# Handed on whole, or not at all.
mv "$checkpoint" "$4"
