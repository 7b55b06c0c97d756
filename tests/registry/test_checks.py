"""Verdicts are those of the schemas that were compared, and do not keep them."""

import gc
import json
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.registry import checks
from runnel.registry.checks import (
    FINDING_CHARACTERS_MAX,
    FINDINGS_CHARACTERS_MAX,
    Check,
    Side,
    Unchecked,
    Verdicts,
    not_comparable,
)
from runnel.registry.format import ReferencedSchema

TEXTS = st.text(st.sampled_from("ab\ud800"), max_size=3)
REFERENCES = st.lists(st.builds(ReferencedSchema, TEXTS, TEXTS), max_size=2).map(tuple)
CHECKS = st.builds(Check, *[st.builds(Side, TEXTS, TEXTS, REFERENCES)] * 2)


@given(CHECKS, CHECKS)
def test_keys_are_equal_if_the_checks_are(one, other):
    assert (one.key == other.key) == (one == other)


def test_verdicts_do_not_keep_schemas():
    class Text(str):
        """A text that can be watched."""

    verdicts = Verdicts()
    text = Text("x" * 1000)
    watched = weakref.ref(text)
    verdicts.add(Check(Side("AVRO", text), Side("AVRO", "y")), [not_comparable("no")])

    assert verdicts.of([Check(Side("AVRO", text), Side("AVRO", "y"))]) == [[not_comparable("no")]]
    with pytest.raises(Unchecked):
        verdicts.of([Check(Side("AVRO", "y"), Side("AVRO", text))])
    del text
    gc.collect()
    assert watched() is None


class Dropped(Check):
    """A check whose verdict another thread drops after it was looked up."""

    looks = 0

    @property
    def key(self) -> bytes:
        Dropped.looks += 1
        if Dropped.looks == 3:
            VERDICTS.add(Check(self.writer, self.reader), [])
        return self.reader.digest + self.writer.digest


VERDICTS = Verdicts()


def test_a_verdict_that_is_dropped_meanwhile_is_one_nevertheless(monkeypatch):
    monkeypatch.setattr("runnel.registry.checks.VERDICTS_MAX", 1)
    check = Dropped(Side("AVRO", "x"), Side("AVRO", "y"))
    VERDICTS.add(check, [not_comparable("no")])

    assert VERDICTS.of([check]) == [[not_comparable("no")]]


def test_findings_about_long_names_are_short():
    fields = [{"name": "f" * 10_000 + str(number), "type": "int"} for number in range(50)]
    old, new = (
        Side("AVRO", json.dumps({"type": "record", "name": "R", "fields": given})) for given in ([], fields)
    )
    findings = Check(new, old).run()

    assert findings
    shown = [text for one in findings for text in (one.path, one.message)]
    assert max(map(len, shown)) <= FINDING_CHARACTERS_MAX
    assert sum(map(len, shown)) <= FINDINGS_CHARACTERS_MAX


def test_a_large_text_that_many_schemas_refer_to_is_hashed_once():
    large = ReferencedSchema("r", "x" * 5_000)
    before = checks._digest.cache_info().misses
    digests = {Side("AVRO", str(number), (large,)).digest for number in range(50)}
    assert len(digests) == 50
    assert checks._digest.cache_info().misses == before + 1
    assert Side("AVRO", "1", (ReferencedSchema("r", "x" * 4_999 + "y"),)).digest not in digests
