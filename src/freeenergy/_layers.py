"""The list of layers: what is in the library, from the ground up.

A part imports only those before it.  Whoever needs the list reads it here: the test of imports, files,
the command line, the documentation.
"""

# what models, learners and estimators are made of
PARTS = (
    "_core",
    "bijections",
    "distributions",
    "nn",
    "kernels",
    "inference",
    "models",
    "learning",
    "evaluation",
    "shell",
    "estimators",
)
LAYERS = (*PARTS, "datasets")
# one layer: what a person touches
TOP = ("testing", "comparison", "report", "plots", "io")
# a program uses the library as a user does
ENTRIES = ("cli", "__main__")
# the first that may import scikit-learn
SCIKIT_LEARN_FROM = "shell"
