"""How the site is built: `make docs`, without a network."""

import sys
from pathlib import Path

import optim

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "extensions"))

project = "optim"
author = "The optim developers"
copyright = "The optim developers, Apache-2.0"
version = release = optim.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_nb",
    "api_pages",
    "mathml",
    "pictures",
    "registry_tables",
]
exclude_patterns = ["extensions", "_build"]
default_role = "py:obj"  # single backticks of docstrings

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autosummary_generate = False
numpydoc_show_class_members = False

myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 4

nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE.parent / "build" / "notebooks")
nb_execution_timeout = 600
nb_execution_raise_on_error = True

html_theme = "pydata_sphinx_theme"
html_title = "optim"
html_math_renderer = "mathml"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_domain_indices = False  # the reference lists modules already
html_sidebars = dict.fromkeys(("first-answer", "install", "gallery", "glossary", "faq"), ())
html_theme_options = {
    "navbar_align": "left",
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": False,
}
