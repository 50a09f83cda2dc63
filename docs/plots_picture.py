"""Draw images/plots.png with the code of howto/plots.rst: `python docs/plots_picture.py`."""

import doctest
from pathlib import Path

HERE = Path(__file__).parent

if __name__ == "__main__":
    page = (HERE / "howto/plots.rst").read_text()
    namespace: dict = {}
    for example in doctest.DocTestParser().get_examples(page):
        if "plt.close" in example.source:
            break
        exec(example.source, namespace)
    namespace["figure"].savefig(HERE / "images/plots.png", dpi=110)
