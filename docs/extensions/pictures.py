"""Every picture of a notebook gets a text for those who can't see it: the heading that it stands under."""

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform


class NamePictures(SphinxPostTransform):
    """Write the text of pictures that have none, once outputs of cells are in place."""

    default_priority = 900

    def run(self) -> None:
        """Go through all pictures."""
        for picture in self.document.findall(nodes.image):
            if not picture.get("alt"):
                picture["alt"] = f"Picture: {_heading(picture)}"


def _heading(node: nodes.Node) -> str:
    """Return the title of the section that a node stands in."""
    above: nodes.Node | None = node
    while above is not None and not isinstance(above, nodes.section):
        above = above.parent
    title = None if above is None else above.next_node(nodes.title)
    return "" if title is None else title.astext()


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform."""
    app.add_post_transform(NamePictures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
