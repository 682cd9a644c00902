#!/bin/sh
# Fits a straight line to 200 noisy points by gradient descent: a real, if small, training run that
# needs nothing but awk. Replace it by your own program in any language.
#   $1 learning rate, $2 momentum, $3 epochs
# Metrics are JSON lines appended to $HPCSWEEP_METRICS.
set -eu
awk -v lr="$1" -v momentum="$2" -v epochs="$3" -v metrics="${HPCSWEEP_METRICS:-/dev/stdout}" 'BEGIN {
  srand(1); n = 200
  for (i = 0; i < n; i++) { x[i] = i / n * 2 - 1; y[i] = 3 * x[i] - 0.5 + (rand() - 0.5) * 0.2 }
  for (epoch = 1; epoch <= epochs; epoch++) {
    gw = gb = loss = 0
    for (i = 0; i < n; i++) {
      error = w * x[i] + b - y[i]
      gw += 2 * error * x[i] / n; gb += 2 * error / n; loss += error * error / n
    }
    vw = momentum * vw + gw; vb = momentum * vb + gb
    w -= lr * vw; b -= lr * vb
    printf "{\"step\": %d, \"loss\": %.9g, \"w\": %.6g, \"b\": %.6g}\n", epoch, loss, w, b >> metrics
  }
  printf "y = %.3f x + %.3f, loss %.6f\n", w, b, loss
}'
