"""No chat template can hang the runner, fill its memory or reach the machine."""

import time
import tracemalloc

import pytest
from vocabularies import CONTROL, letters

from localllm.errors import BadFile, BadRequest
from localllm.text.template import ChatTemplate
from localllm.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer.from_gguf(letters({"<|im_end|>": CONTROL}))
SECONDS = 2.5  # of this thread's CPU time, with room for slow machines
MEGABYTES = 300


def grown(step: str, use: str, start: str = "['a']") -> str:
    """A template that does something sixty times to ns.s and ns.t, and uses what came out."""
    steps = "".join(f"{{% set ns.{v} = {step.replace('X', 'ns.' + v)} %}}" for v in "st")
    begin = f"{{% set ns = namespace(s={start}, t={start}) %}}"
    return f"{begin}{{% for i in range(60) %}}{steps}{{% endfor %}}{use}"


TWICE, PAIR = "[X, X]", "(X, X)"
HUGE = "{% set s = 'ab' * 5000000 %}{% for i in range(99999) %}{% set x = USE %}{% endfor %}"
ENDLESS = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "conditions": "{% for a in range(99999) %}{% for b in range(99999) if 0 %}{% endfor %}"
                  "{% endfor %}",
    "output": "{% for a in range(99999) %}{{ 'a' * 10000 }}{% endfor %}",
    "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "tree": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}"
            "{{ m(40) }}",
    "block": "{% block a %}{{ self.a() }}{% endblock %}",
    "recursive loop": "{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}",
    "product": "{{ 'a' * 10 ** 9 }}",
    "list product": "{{ (10 ** 9 * [0]) | length }}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "text ~": grown("X ~ X", "", "'abcd'"),
    "text +": grown("X + X", "", "'abcd'"),
    "list +": grown("X + X", ""),
    "block text": grown("X", "{% for i in range(60) %}{% set x %}{{ ns.s }}{{ ns.s }}{% endset %}"
                        "{% set ns.s = x %}{% endfor %}", "'abcd'"),
    "written": grown(TWICE, "{{ ns.s }}"),
    "joined by ~": grown(TWICE, "{{ 'a' ~ ns.s }}"),
    "as json": grown(TWICE, "{{ ns.s | tojson }}"),
    "joined": grown(TWICE, "{{ ns.s | join }}"),
    "in upper case": grown(TWICE, "{{ ns.s | upper }}"),
    "tested": grown(TWICE, "{{ ns.s is lower }}"),
    "as a number": grown(TWICE, "{{ ns.s | string | int }}"),
    "compared": grown(TWICE, "{{ ns.s == ns.t }}"),
    "looked for": grown(TWICE, "{{ ns.s in [ns.t] | map('list') }}"),
    "selected": grown(TWICE, "{{ [ns.s] | select('eq', ns.t) | list }}"),
    "index": grown(TWICE, "{{ [ns.s].index(ns.t) }}"),
    "sorted": grown(TWICE, "{{ [ns.s, ns.t] | map('list') | sort }}"),
    "changed": grown(TWICE, "{% for x in [ns.s, ns.t] %}{{ loop.changed(x) }}{% endfor %}"),
    "formatted": grown(TWICE, "{{ '%s' % (ns.s,) }}"),
    "formatted by method": grown(TWICE, "{{ '{}'.format(ns.s) }}"),
    "raised": grown(TWICE, "{{ raise_exception(ns.s) }}"),
    "a key": grown(PAIR, "{{ {ns.s: 1} }}"),
    "a subscript": grown(PAIR, "{{ {}[ns.s] }}"),
    "got": grown(PAIR, "{{ {}.get(ns.s) }}"),
    "replaced": "{% set x = ('a' * 1000).replace('a', 'b' * 1000) %}{{ x.replace('b', x) }}",
    "joined by a long text": "{{ ('a' * 99999).join(range(9999) | map('string')) }}",
    "padded": "{{ 'a'.ljust(10 ** 9) }}",
    "indented": "{{ [1] | tojson(indent=10 ** 9) }}",
    "rounded": "{{ 1.5 | round(10 ** 9, 'ceil') }}",
    "split": "{{ ('a ' * 20000000).split() | length }}",
    "lists": "{% for i in range(99999) %}{% set x = range(99999) | list %}{% endfor %}",
    "texts of a list": "{% for i in range(99999) %}{{ range(99999) | map('string') | join }}"
                       "{% endfor %}",
    "kept": "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}"
            "{% set ns.l = ns.l + ['a' * 1000000 ~ i] %}{% endfor %}",
    "dicts": "{% set ns = namespace(d={}) %}{% for i in range(99999) %}"
             "{% set ns.d = dict(ns.d, **{'k' ~ i: 1}) %}{% endfor %}",
    "groups": "{% for i in range(99) %}{{ range(99999) | groupby('real') | list | length }}"
              "{% endfor %}",
    "long slices": HUGE.replace("USE", "s[::-1]"),
    "long searches": HUGE.replace("USE", "s.find('c')"),
    "long comparisons": HUGE.replace("USE", "s == s ~ ''"),
    "long titles": HUGE.replace("USE", "s | title"),
}  # fmt: skip


def render(source: str) -> str:
    template = ChatTemplate(source, TOKENIZER)
    return "".join(part.text for part in template.render([{"role": "user", "content": "hi"}]))


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_templates_are_stopped_soon(name):
    before = time.thread_time()
    with pytest.raises(BadFile, match="was stopped"):
        render(ENDLESS[name])
    assert time.thread_time() - before < SECONDS


@pytest.mark.parametrize("name", ["text ~", "list +", "kept", "long slices", "split", "output"])
def test_stopped_templates_have_taken_little_memory(name):
    tracemalloc.start()
    try:
        with pytest.raises(BadFile):
            render(ENDLESS[name])
        assert tracemalloc.get_traced_memory()[1] < MEGABYTES << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "source",
    [
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{{ " + "[" * 5000 + "]" * 5000 + " }}",
        "{{ " + "not " * 15000 + "1 }}",
        "{{ " + "- " * 30000 + "1 }}",
        "{{ " + "1+" * 20000 + "1 }}",
        "{{ 1" + "|abs" * 15000 + " }}",
        "{{ a" + ".b" * 30000 + " }}",
        "{{ a" + "()" * 30000 + " }}",
        "{{ " + "1 if 0 else " * 5000 + "2 }}",
        "{% if 1 %}" * 2500 + "{% endif %}" * 2500,
        "{% for a in b %}" * 1500 + "{% endfor %}" * 1500,
        "x" * 70_000,
    ],
    ids=lambda source: source[:12],
)
def test_deep_and_long_sources_are_refused_soon(source):
    before = time.thread_time()
    with pytest.raises(BadFile):
        render(source)
    assert time.thread_time() - before < SECONDS


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ self.__init__.__globals__ }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({}) }}",
        "{{ messages[0].pop('role') }}",
        "{{ (1).to_bytes(9, 'big') }}",
        "{{ 'a'.expandtabs(9) }}",
        "{{ 'a'.encode() }}",
        "{{ '%*d' % (999999999, 1) }}",
        "{{ '{:999999999}'.format(1) }}",
        "{{ '{:{}}'.format(1, 999999999) }}",
        "{{ '{a:{b}}'.format_map({'a': 1, 'b': 9}) }}",
        "{{ strftime_now('%999999999d') }}",
        "{{ range(10 ** 9) }}",
        "{{ lipsum() }}",
        "{{ cycler(1) }}",
        "{% include 'x' %}",
        "{% import 'os' as os %}",
        "{{ undefined_function() }}",
        "{{ 1 / 0 }}",
    ],
)
def test_what_templates_may_not_do_is_an_error(source):
    with pytest.raises(BadRequest):
        render(source)


@pytest.mark.parametrize(
    "source", ["{{ raise_exception.__globals__ }}", "{{ '{0.__class__}'.format(1) }}", "{{ [].x }}"]
)
def test_what_is_private_is_not_there(source):
    assert render(source) == ""


def test_a_long_conversation_is_no_attack():
    source = (
        "{% set ns = namespace(text='') %}{% for m in messages %}{% if m.role in ['user'] %}"
        "{{ m.content }}{% if loop.index % 5 == 0 %}{% set ns.text = ns.text ~ m.content | trim %}"
        "{% endif %}{% endif %}{% endfor %}"
        "{{ ns.text }}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
    )
    messages = [{"role": "user", "content": "words and more words " * 50}] * 1000
    text = ChatTemplate(source, TOKENIZER).render(messages)[0].text
    assert text.endswith("1000") and len(text) > 1_000_000
