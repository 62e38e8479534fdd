"""Formulas as MathML, made at build time: pages need neither a network nor a script to show them."""

import re
from html import escape

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)
TAG = re.compile(r"\\tag\{([^}]*)\}")


def markup(source: str, *, is_block: bool) -> str:
    r"""Return the MathML of a formula; `\textstyle`, which only saves room, is left out."""
    return tex2mathml(source.replace(r"\textstyle", "").strip(), as_block=is_block)


def visit_inline(translator: nodes.NodeVisitor, node: nodes.math) -> None:
    """Write a formula within a line."""
    if TAG.search(node.astext()):
        LOGGER.warning("a numbered formula needs an empty line before it", location=node)
    translator.body.append(_checked(node, is_block=False))
    raise nodes.SkipNode


def visit_block(translator: nodes.NodeVisitor, node: nodes.math_block) -> None:
    """Write a formula on its own line, with its number, which can be linked to: `#eq-A.4`."""
    tag = TAG.search(node.astext())
    number = escape(tag[1]) if tag else ""
    anchor = f' id="eq-{number}"' if tag else ""
    shown = f'<a class="equation-number" href="#eq-{number}">({number})</a>' if tag else ""
    formula = _checked(node, is_block=True)
    translator.body.append(
        f'<div class="equation"{anchor}><div class="formula" tabindex="0" role="group" aria-label="formula {number}">'
        f"{formula}</div>{shown}</div>\n"
    )
    raise nodes.SkipNode


def _checked(node: nodes.Node, *, is_block: bool) -> str:
    source = TAG.sub("", node.astext())
    try:
        return markup(source, is_block=is_block)
    except SyntaxError as error:
        LOGGER.warning("formula %r: %s", source, error, location=node)
        return f"<code>{escape(source)}</code>"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer under the name `mathml`."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
