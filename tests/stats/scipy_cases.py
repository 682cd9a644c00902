"""Makes scipy_cases.json: samples, and what scipy says of them. Needs scipy; the tests need only the file."""

import json

import numpy as np
from scipy import stats

rng = np.random.default_rng(1)
cases = []
for n in (2, 3, 4, 5, 8, 12, 30, 49, 50, 51, 200):
    for draw in (
        lambda: (rng.normal(size=n), rng.normal(0.3, 2, size=n)),
        lambda: (rng.exponential(size=n), rng.exponential(1.7, size=n)),
        lambda: (100 + rng.normal(size=n), 101 + rng.normal(size=n)),
        lambda: (np.round(rng.normal(size=n), 1), np.round(rng.normal(0.5, size=n), 1)),
    ):
        a, b = draw()
        if (a - b == 0).all() or a.std() == 0 or b.std() == 0:
            continue
        low, high = stats.t.interval(0.95, n - 1, loc=a.mean(), scale=stats.sem(a))
        welch = stats.ttest_ind(a, b, equal_var=False)
        paired = stats.ttest_rel(a, b)
        has_ties = len(set(np.abs(a - b))) < n or (a - b == 0).any()
        signed_rank = None
        if (a != b).sum() > 50 or not has_ties:
            method = "exact" if n <= 50 else "asymptotic"
            signed_rank = stats.wilcoxon(a, b, zero_method="wilcox", correction=False, method=method).pvalue
        elif n <= 12:
            d = (a - b)[a != b]
            exact = stats.PermutationMethod(n_resamples=10**6)
            signed_rank = stats.wilcoxon(d, method=exact).pvalue
        cases.append({
            "a": a.tolist(),
            "b": b.tolist(),
            "interval": [low, high],
            "iqm": stats.trim_mean(a, 0.25),
            "welch": {"p": welch.pvalue, "interval": list(welch.confidence_interval())},
            "paired": {"p": paired.pvalue, "interval": list(paired.confidence_interval())},
            "signed_rank": signed_rank,
        })
with open("scipy_cases.json", "w") as file:
    file.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
