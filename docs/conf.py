"""Settings of the documentation: `sphinx-build -W -n docs docs/_build/html`."""

import sys
from pathlib import Path

import mcdensity

sys.path.insert(0, str(Path(__file__).parent))  # for mathml and gallery_arguments

project = "mcdensity"
author = "the mcdensity developers"
copyright = author
version = release = mcdensity.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "mathml",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates"]

# Single backticks in docstrings name objects; a name without a module is often a parameter, and
# is shown as code where it is no link.
default_role = "py:obj"
# Docstrings that come from skpro name its own methods as "self....".
nitpick_ignore_regex = [("py:obj", r"[^.]+|(sklearn|scipy|pickle|joblib|torch|self)\..*")]

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "reset_argv": "gallery_arguments.write_nothing",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
    "remove_config_comments": True,
}

html_theme = "furo"
html_math_renderer = "mathml"
html_title = f"mcdensity {version}"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_extra_path = ["results.html"]
html_copy_source = False
html_show_sphinx = False
