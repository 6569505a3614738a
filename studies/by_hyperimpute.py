"""One table with holes, completed by HyperImpute: `python studies/by_hyperimpute.py table.csv labels seed`.

It needs older versions of NumPy, pandas and scikit-learn than the library, and so an environment of its
own, whose Python the variable HYPERIMPUTE_PYTHON names:

    pip install hyperimpute==0.1.17 'numpy<2' 'pandas<3' 'scikit-learn<1.6'

With pandas 3 it fills in means and says nothing.  The table holds numbers and codes of labels; what is
printed is the same table without holes.
"""

import sys

import pandas as pd


def main(path: str, labels: int, seed: int) -> None:
    from hyperimpute.plugins.imputers import Imputers

    frame = pd.read_csv(path)
    # columns with fewer distinct values are classes; by default those of four
    imputer = Imputers().get("hyperimpute", random_state=seed, class_threshold=max(5, labels + 2))
    done = pd.DataFrame(imputer.fit_transform(frame.copy()).to_numpy(), columns=frame.columns)
    done.to_csv(sys.stdout, index=False)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
