"""`python -m benchmarks.torture`: the tables of the torture suite in docs/robustness.md.

Every model is told what the stream is like (noise variance 0.25, levels of the size of 2) and
nothing about the contamination. Seeds 0 .. 11: each position of a switch within a batch twice.
"""

from __future__ import annotations

import sys
import time

import holdfast as hf
from holdfast.models.bocd import bocd
from holdfast.models.naive import last_value
from holdfast.models.student_t import student_t_ihmm
from paper.torture import KINDS, NOISE_SD, Torture, stage, torture

BATCH, THRESHOLD, PARTICLES, SEEDS = 6, 2.0, 50, range(12)
KNOWN = {"noise": NOISE_SD**2, "prior_var": 4.0, "particles": PARTICLES}
LEARNT = {"prior_var": 4.0, "particles": PARTICLES}
CAREFUL = {"batch": BATCH, "threshold": THRESHOLD}

MODELS = {
    "br_ihmm": lambda seed: hf.br_ihmm(**CAREFUL, **KNOWN, seed=seed),
    "student_t_ihmm": lambda seed: student_t_ihmm(**CAREFUL, **LEARNT, seed=seed),
    "ihmm": lambda seed: hf.ihmm(**KNOWN, seed=seed),
    "wolf_ihmm": lambda seed: hf.wolf_ihmm(**KNOWN, threshold=THRESHOLD, seed=seed),
    "student_t_ihmm, plain": lambda seed: student_t_ihmm(
        **LEARNT, batch=1, weight="none", seed=seed
    ),
    "bocd": lambda seed: bocd(noise=NOISE_SD**2, prior_var=4.0),
    "last_value": lambda seed: last_value(),
}


def longest_burst() -> int:
    """The least of the bounds that `sensitivity` states for the seeds as contamination begins."""
    bounds = []
    for seed in SEEDS:
        scene, model = stage(seed, batch=BATCH), MODELS["br_ihmm"](seed)
        for y in scene.y[: scene.start]:
            model.update(y)
        bounds.append(hf.sensitivity(model, shift=[3.0]).longest_burst)
    return min(bounds)


def main() -> None:
    burst = longest_burst()
    print(f"B = {BATCH}, c = {THRESHOLD:g}, {PARTICLES} particles, bursts ignored up to {burst}")
    rows = []
    for label, maker in MODELS.items():
        begin = time.perf_counter()
        rows += torture({label: maker}, KINDS, SEEDS, batch=BATCH, burst=burst).rows
        print(f"{label}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    result = Torture(tuple(rows))
    print("\nexcess after the contamination / regimes opened by it\n\n" + result.table())
    print("\nexcess during the contamination\n\n" + result.table("during"))
    print("\nlargest snapshot:", max(row.n_bytes for row in rows), "bytes")
    failed = [f"{row.model}, {row.kind}" for row in rows if row.failure or not row.finite]
    print("not finite, or raised:", "; ".join(failed) or "none")


if __name__ == "__main__":
    main()
