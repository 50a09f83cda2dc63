"""Formulas as MathML, which browsers draw by themselves: no script, no network."""

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml


def _formula(node: nodes.Node, *, as_block: bool) -> str:
    formula = tex2mathml(node.astext().replace(r"\dots", r"\ldots"), as_block=as_block)
    # Browsers leave no space between a function and its argument.
    return formula.replace("<mo>&ApplyFunction;</mo>", '<mspace width="0.17em"></mspace>')


def _visit_inline(self: Any, node: nodes.Node) -> None:
    self.body.append(_formula(node, as_block=False))
    raise nodes.SkipNode


def _visit_block(self: Any, node: nodes.Node) -> None:
    self.body.append(f'<div class="math">\n{_formula(node, as_block=True)}\n</div>\n')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Make it known to Sphinx."""
    app.add_html_math_renderer("mathml", (_visit_inline, None), (_visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
