"""Generates the encoder of one message in one version.

Small values are collected in a list and joined once; record data is passed through, so that a response with
megabytes of records costs as much as one without. The optimisations mirror those of the decoder.
"""

from runnel.wire.primitives import (
    SHORT_ARRAY,
    VARINTS,
    ArrayOf,
    Fixed,
    StructOf,
    Text,
    WireType,
    append_records,
    pack_array,
    short_array_packers,
    varint,
)
from runnel.wire.source import Source
from runnel.wire.struct import UNSET, Field, Message, Struct, fields_of, is_flexible


def encoder_source(message: type[Message], version: int) -> Source:
    """The source of `encode(message) -> list of buffers`."""
    return _Encoder(message, version).source


class _Encoder:
    def __init__(self, message: type[Message], version: int) -> None:
        self.version = version
        self.flexible = is_flexible(message, version)
        self.run: list[tuple[str, str]] = []  # fixed-size values waiting to be written by one call
        self.parts = "small"  # the list that receives the small values
        self.source = Source(
            VARINTS=VARINTS,
            varint=varint,
            pack_array=pack_array,
            append_records=append_records,
        )
        with self.source.block("def encode(message):"):
            self.source.line("small = []")
            self.source.line("buffers = []")
            self.write_struct(message, "message")
            self.source.line("buffers.append(b''.join(small))")
            self.source.line("return buffers")

    def add(self, expression: str) -> None:
        self.source.line(f"{self.parts}.append({expression})")

    def flush(self) -> None:
        """Write the whole run with one call."""
        if not self.run:
            return
        codes = "".join(code for code, _ in self.run)
        values = [value for _, value in self.run if value]
        if values:
            self.add(f"{self.source.layout('pack', codes)}({', '.join(values)})")
        else:
            self.add(repr(bytes(len(codes))))
        self.run.clear()

    def write_struct(self, struct: type[Struct], value: str) -> None:
        """Emit the writing of all fields of the object named `value`."""
        tagged: list[tuple[Field, str]] = []
        for field in fields_of(struct):
            if not field.versions.covers(self.version):
                continue
            if field.tag is not None:
                tagged.append((field, f"{value}.{field.name}"))
            else:
                nullable = field.nullable.covers(self.version)
                self.write(field.type, nullable, f"{value}.{field.name}", field.name)
        if self.flexible:
            self.write_tags(sorted(tagged, key=lambda pair: pair[0].tag or 0))
        self.flush()

    def write(self, wire_type: WireType, nullable: bool, value: str, stem: str) -> None:
        """Emit the writing of one value."""
        if isinstance(wire_type, Fixed):
            self.run.append((wire_type.code, value))
            return
        local = value
        if not value.isidentifier():
            local = self.source.name(stem)
            self.source.line(f"{local} = {value}")
        if not nullable:
            self.write_present(wire_type, local)
            return
        self.flush()
        with self.source.block(f"if {local} is None:"):
            self.add(repr(self.null(wire_type)))
        with self.source.block("else:"):
            if isinstance(wire_type, StructOf):
                self.run.append(("b", "1"))
            self.write_present(wire_type, local)
            self.flush()

    def null(self, wire_type: WireType) -> bytes:
        if isinstance(wire_type, StructOf):
            return b"\xff"
        if self.flexible:
            return b"\x00"
        return b"\xff\xff" if isinstance(wire_type, Text) else b"\xff\xff\xff\xff"

    def write_present(self, wire_type: WireType, local: str) -> None:
        """Emit the writing of a value that is not null."""
        if isinstance(wire_type, StructOf):
            self.write_struct(wire_type.struct, local)
        elif isinstance(wire_type, ArrayOf):
            self.write_array(wire_type.element, local)
        elif isinstance(wire_type, Text):
            data = self.source.name("text")
            self.source.line(f"{data} = {local}.encode()")
            self.write_length(f"len({data})", "h")
            self.add(data)
        elif wire_type.name == "records":
            self.flush()
            self.source.line(f"append_records({local}, {self.flexible}, small, buffers)")
        else:
            self.write_length(f"len({local})", "i")
            self.add(local)

    def write_length(self, length: str, code: str) -> None:
        """Emit a length: compact (plus one) or fixed, in the run where it can."""
        if not self.flexible:
            self.run.append((code, length))
            self.flush()
            return
        self.flush()
        local = self.source.name("length")
        self.source.line(f"{local} = {length} + 1")
        self.add(f"VARINTS[{local}] if {local} < 4096 else varint({local})")

    def write_array(self, element: WireType, local: str) -> None:
        """Emit the count and the elements."""
        if isinstance(element, Fixed):
            self.write_numbers(element, local)
            return
        self.write_length(f"len({local})", "i")
        item = self.source.name("element")
        with self.source.block(f"for {item} in {local}:"):
            self.write(element, False, item, "value")
            self.flush()

    def write_numbers(self, element: Fixed, local: str) -> None:
        """Emit the count and the elements with one call."""
        self.flush()
        length_code = "B" if self.flexible else "i"
        packers = short_array_packers(length_code, element.code)
        short = self.source.use(f"pack_{length_code}_{element.code}s", packers)
        count = self.source.name("count")
        self.source.line(f"{count} = len({local})")
        with self.source.block(f"if {count} < {SHORT_ARRAY}:"):
            self.add(f"{short}[{count}]({count}{' + 1' * self.flexible}, *{local})")
        with self.source.block("else:"):
            self.add(f"pack_array({length_code!r}, {element.code!r}, {local})")

    def write_tags(self, tagged: list[tuple[Field, str]]) -> None:
        """Emit the tagged fields that differ from their defaults; their number joins the preceding run."""
        if not tagged:
            self.run.append(("x", ""))
            return
        run = list(self.run)
        locals_ = [(field, self.source.name(field.name)) for field, _ in tagged]
        for (_, local), (_, value) in zip(locals_, tagged, strict=True):
            self.source.line(f"{local} = {value}")
        with self.source.block(f"if {' or '.join(self.may_differ(*each) for each in locals_)}:"):
            self.write_present_tags(locals_)
        with self.source.block("else:"):
            self.run = [*run, ("x", "")]
            self.flush()

    def write_present_tags(self, tagged: list[tuple[Field, str]]) -> None:
        """Emit the tagged fields when at least one may differ from its default."""
        present = [(field, local, self.source.name("set")) for field, local in tagged]
        for field, local, is_set in present:
            self.source.line(f"{is_set} = {self.differs(field, local)}")
        self.run.append(("B", " + ".join(is_set for _, _, is_set in present)))
        self.flush()
        outer = self.parts
        for field, local, is_set in present:
            with self.source.block(f"if {is_set}:"):
                self.parts = self.source.name("tagged")
                self.source.line(f"{self.parts} = []")
                self.write_tagged(field, local)
                inner, self.parts = self.parts, outer
                self.source.line(f"{inner} = b''.join({inner})")
                self.add(f"varint({field.tag}) + varint(len({inner})) + {inner}")

    def may_differ(self, field: Field, local: str) -> str:
        """A cheap expression that is false only for the default, the common case."""
        if field.default is UNSET and not isinstance(field.type, StructOf):
            return f"{local} is None or {local}"
        return f"{local} is not None" if field.default is None else self.differs(field, local)

    def differs(self, field: Field, local: str) -> str:
        """A true expression if the value must be written."""
        if field.default is None:
            if isinstance(field.type, StructOf) and not field.nullable.covers(self.version):
                empty = self.source.use(field.type.struct.__name__, field.type.struct)
                return f"{local} is not None and {local} != {empty}()"
            return f"{local} is not None"
        if field.default is not UNSET:
            return f"{local} != {field.default!r}"
        if isinstance(field.type, StructOf):
            empty = self.source.use(field.type.struct.__name__, field.type.struct)
            return f"{local} != {empty}()"
        return f"{local} is None or len({local}) > 0"

    def write_tagged(self, field: Field, local: str) -> None:
        """Emit the body of one tagged field."""
        nullable = field.nullable.covers(self.version)
        if nullable and isinstance(field.type, StructOf):
            # Unlike an inline nullable struct, a tagged one is preceded by an unsigned varint: 0 is null.
            with self.source.block(f"if {local} is None:"):
                self.add(r"b'\x00'")
            with self.source.block("else:"):
                self.run.append(("B", "1"))
                self.write_struct(field.type.struct, local)
        else:
            self.write(field.type, nullable, local, field.name)
        self.flush()
