"""The templates and what they can use."""

from functools import cache
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from runnel.gateway.console import text
from runnel.gateway.console.static_files import static_url
from runnel.visual.style import SIGNS


@cache
def environment() -> Environment:
    """The environment; everything that is not markup of a template is escaped."""
    found = Environment(
        loader=PackageLoader("runnel.gateway.console"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.filters.update(
        number=text.number,
        rate=text.rate,
        size=text.size,
        duration=text.duration,
        moment=text.moment,
        ago=text.ago,
        shown=text.shown_bytes,
        ranges=text.partitions_text,
    )
    found.globals.update(plural=text.plural, signs=SIGNS, query=query, static=static_url)
    return found


def query(path: str, **parameters: object) -> str:
    """A path with those parameters that have a value."""
    given = {name: value for name, value in parameters.items() if value not in (None, "", False)}
    return f"{path}?{urlencode(given)}" if given else path
