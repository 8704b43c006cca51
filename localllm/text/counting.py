"""Code for Jinja templates that counts its blocks and leaves no operation to Python itself.

What it writes calls `tick`, `join_text`, `compare`, `key` and `cut` of the environment it runs in.
"""

from collections.abc import Iterable

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension
from jinja2.parser import Parser


class Counting(CodeGenerator):
    """Jinja's own generator, but for blocks, `~`, comparisons, dict literals and slices."""

    def blockvisit(self, nodes: Iterable[nodes.Node], frame: Frame) -> None:
        self.writeline("environment.tick()")
        super().blockvisit(nodes, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.join_text((")
        for each in node.nodes:
            self.visit(each, frame)
            self.write(", ")
        self.write("))")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        self.write("environment.compare(")
        self.visit(node.expr, frame)
        for each in node.ops:
            self.write(f", {each.op!r}, ")
            self.visit(each.expr, frame)
        self.write(")")

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self.write("{")
        for each in node.items:
            self.write("environment.key(")
            self.visit(each.key, frame)
            self.write("): ")
            self.visit(each.value, frame)
            self.write(", ")
        self.write("}")

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        if not isinstance(node.arg, nodes.Slice):
            return super().visit_Getitem(node, frame)
        self.write("environment.cut(")
        self.visit(node.node, frame)
        for each in (node.arg.start, node.arg.stop, node.arg.step):
            self.write(", ")
            if each is None:
                self.write("None")
            else:
                self.visit(each, frame)
        self.write(")")


class Generation(Extension):
    """{% generation %} marks what a model wrote, for training; here it changes nothing."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
