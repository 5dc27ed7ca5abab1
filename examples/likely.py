"""Learns the weights of `src/policy/classify/likely.tsv` from labelled failures.

    cargo run --release --example words -- failures.jsonl ... > words.tsv
    pip install scikit-learn==1.9.*
    python examples/likely.py words.tsv > src/policy/classify/likely.tsv

Multinomial logistic regression with an L2 penalty (C = 1) over the words of a failure, its pairs of neighbouring words, its
status and its surface; each counts once. Only what stands in three failures or more is learned from, and the 12,000 features
with the largest weights are kept, in sixteenths; what is wrong with an invalid request is learned from such requests alone,
with 2,000 features. A file that is named twice counts double: failures that were seen, beside wordings that were thought up.
Keep sets apart that no rule and no weight has seen, and score both (`relight classify --score FILE`).
"""

import sys

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

FEATURES = 12000
DETAIL_FEATURES = 2000
PARTS = 16


def features(line: str) -> list[str]:
    *words, status, surface = line.split(" ")
    return words + [f"{one} {two}" for one, two in zip(words, words[1:])] + [status, surface]


def main() -> None:
    rows = [line.rstrip("\n").split("\t") for path in sys.argv[1:] for line in open(path, encoding="utf-8")]
    if not rows:
        sys.exit("name files of words: see the head of this file")
    vectorizer = CountVectorizer(analyzer=features, min_df=3, binary=True)
    counts = vectorizer.fit_transform([words for _, words in rows])
    labels = np.array([label for label, _ in rows])
    detailed = np.char.find(labels, ".") >= 0
    models = [learn(counts, np.array([label.split(".")[0] for label in labels])), learn(counts[detailed], labels[detailed])]
    kept = strongest(models[0], FEATURES) | strongest(models[1], DETAIL_FEATURES)
    for model in models:
        for label, weight in zip(model.classes_, whole(model.intercept_)):
            print(f"{label}\t{weight}")
    weights = np.vstack([whole(model.coef_) for model in models])
    names = vectorizer.get_feature_names_out()
    for at in sorted(np.flatnonzero(kept), key=lambda at: names[at]):
        pairs = [f"{label}:{weight}" for label, weight in enumerate(weights[:, at]) if abs(weight) > 1]
        if pairs:
            print(f"{names[at]}\t{' '.join(pairs)}")


def learn(counts, labels) -> LogisticRegression:
    return LogisticRegression(C=1.0, max_iter=1000).fit(counts, labels)


def strongest(model: LogisticRegression, count: int) -> np.ndarray:
    strength = np.abs(model.coef_).max(0)
    return strength >= max(np.sort(strength)[-min(count, len(strength))], 1e-9)


def whole(weights: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(weights * PARTS), -127, 127).astype(int)


if __name__ == "__main__":
    main()
