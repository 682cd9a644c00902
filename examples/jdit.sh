#!/bin/sh
# Trains a classifier of two clouds of 400 points (logistic regression, full-batch gradient descent) with
# nothing but awk. A stand-in for your own program.
#   $1 learning rate, $2 epochs
# What it learns on the way are JSON lines appended to $HPCSWEEP_METRICS; each name becomes a column.
set -eu
echo "trial ${HPCSWEEP_TRIAL-}: devices '${CUDA_VISIBLE_DEVICES-}'"
awk -v lr="$1" -v epochs="$2" -v devices="${CUDA_VISIBLE_DEVICES-}" \
  -v metrics="${HPCSWEEP_METRICS:-/dev/stdout}" 'BEGIN {
  srand(1); n = 400
  for (i = 0; i < n; i++) {
    label[i] = i % 2; side = label[i] ? 1 : -1
    x[i] = side + 3 * (rand() - 0.5); y[i] = side + 3 * (rand() - 0.5)
  }
  for (epoch = 1; epoch <= epochs; epoch++) {
    loss = right = ga = gb = gc = 0
    for (i = 0; i < n; i++) {
      p = 1 / (1 + exp(-(a * x[i] + b * y[i] + c)))
      loss -= log(label[i] ? p : 1 - p); right += (p > 0.5) == label[i]
      error = p - label[i]
      ga += error * x[i]; gb += error * y[i]; gc += error
    }
    a -= lr * ga; b -= lr * gb; c -= lr * gc
    if (epoch % 20 == 0)
      printf "{\"epoch\": %d, \"loss\": %.9g, \"accuracy\": %.4f, \"devices\": \"%s\"}\n",
        epoch, loss / n, right / n, devices >> metrics
  }
  printf "loss %.6f, accuracy %.4f\n", loss / n, right / n
}'
