"""Generates the decoder of one message in one version.

Performance (shared by the encoder): consecutive fixed-size fields become one `struct` call, which includes
the length, count or number of tags that follows them; one-byte varints are the fast path; structs are
inlined as loops, so that no element costs a call.

Safety: a length beyond the end moves the position past the end, where the next read or the final comparison
fails, and a slice never extends beyond the input. Counts are compared with the
bytes left before anything is built, and the elements and tagged fields of a request with a limit for all. So
the memory used is bounded by the size of the input, and the work by the limits.
"""

from runnel.model.limits import REQUEST_ELEMENTS_MAX, REQUEST_TAGS_MAX, TEXT_BYTES_MAX
from runnel.wire.primitives import (
    SHORT_ARRAY,
    ArrayOf,
    Blob,
    Fixed,
    MalformedMessage,
    StructOf,
    Text,
    TooManyElements,
    WireType,
    long_unsigned_varint,
    short_array_unpackers,
    skip_tags,
    tag_and_size,
    unpack_array,
)
from runnel.wire.source import Source
from runnel.wire.struct import UNSET, Field, Message, Request, Struct, fields_of, is_flexible


def decoder_source(message: type[Message], version: int) -> Source:
    """The source of `decode(view, position) -> (message, end)`; the caller checks the end.

    Decoders of requests have a third parameter: how many elements all arrays together may have.
    """
    return _Decoder(message, version).source


class _Decoder:
    def __init__(self, message: type[Message], version: int) -> None:
        self.version = version
        self.flexible = is_flexible(message, version)
        # Only requests are untrusted; responses and stored records come from brokers.
        self.is_counted = issubclass(message, Request)
        self.run: list[tuple[str, int, str]] = []  # fixed-size values waiting to be read by one call
        self.source = Source(
            MalformedMessage=MalformedMessage,
            TooManyElements=TooManyElements,
            long_unsigned_varint=long_unsigned_varint,
            skip_tags=skip_tags,
            tag_and_size=tag_and_size,
            unpack_array=unpack_array,
            new=object.__new__,
        )
        room = f", room={REQUEST_ELEMENTS_MAX}" if self.is_counted else ""
        with self.source.block(f"def decode(view, position{room}):"):
            self.source.line("limit = len(view)")
            if self.flexible:
                # A tagged field has at least two bytes, so the size of the input is a limit as well.
                self.source.line(f"tags_left = {REQUEST_TAGS_MAX if self.is_counted else 'limit'}")
            result = self.read_struct(message)
            self.source.line(f"return {result}, position")

    def refuse(self, why: str) -> None:
        self.source.line(f"raise MalformedMessage({why!r})")

    def later(self, code: str, size_bytes: int, stem: str) -> str:
        """Add a fixed-size value to the run; returns its name, which is assigned by `flush`."""
        name = self.source.name(stem)
        self.run.append((code, size_bytes, name))
        return name

    def flush(self) -> None:
        """Read the whole run with one call."""
        if not self.run:
            return
        size_bytes = sum(size for _, size, _ in self.run)
        codes = "".join(code for code, _, _ in self.run)
        if codes == "B":
            self.source.line(f"{self.run[0][2]} = view[position]")
        else:
            names = ", ".join(name for _, _, name in self.run)
            unpack = self.source.layout("unpack_from", codes)
            self.source.line(f"{names}{',' * (len(self.run) == 1)} = {unpack}(view, position)")
        self.source.line(f"position += {size_bytes}")
        self.run.clear()

    def read_struct(self, struct: type[Struct]) -> str:
        """Emit the reading of all fields; returns the name of the object."""
        arguments: list[str] = []
        tagged: list[tuple[Field, str]] = []
        for field in fields_of(struct):
            if not field.versions.covers(self.version):
                arguments.append(self.default(field))
            elif field.tag is not None:
                tagged.append((field, self.source.name(field.name)))
                arguments.append(tagged[-1][1])
            else:
                label = f"{struct.__name__}.{field.name}"
                arguments.append(
                    self.read(field.type, field.nullable.covers(self.version), label, field.name)
                )
        if self.flexible:
            self.read_tags(struct, tagged)
        self.flush()
        result = self.source.name(struct.__name__.lower())
        # Assigning slots inline takes two thirds of the time of a constructor call.
        self.source.line(f"{result} = new({self.source.use(struct.__name__, struct)})")
        for field, argument in zip(fields_of(struct), arguments, strict=True):
            self.source.line(f"{result}.{field.name} = {argument}")
        return result

    def default(self, field: Field) -> str:
        """An expression for the value of an absent field."""
        if field.default is not UNSET:
            return repr(field.default)
        if isinstance(field.type, StructOf):
            return self.source.use(field.type.struct.__name__, field.type.struct) + "()"
        return "[]"

    def read(self, wire_type: WireType, nullable: bool, label: str, stem: str) -> str:
        """Emit the reading of one value; returns its name."""
        if isinstance(wire_type, Fixed):
            return self.later(wire_type.code, wire_type.size_bytes, stem)
        if isinstance(wire_type, StructOf):
            return self.read_nested(wire_type, nullable, stem)
        result = self.source.name(stem)
        narrow = isinstance(wire_type, Text)
        length = self.read_length(("h", 2) if narrow else ("i", 4))
        present, null = (length, "0") if self.flexible else (f"{length} >= 0", "-1")
        if nullable:
            with self.source.block(f"if {present}:"):
                self.read_body(wire_type, result, length, label)
            if self.flexible:
                with self.source.block("else:"):
                    self.source.line(f"{result} = None")
            else:
                with self.source.block(f"elif {length} == {null}:"):
                    self.source.line(f"{result} = None")
                with self.source.block("else:"):
                    self.refuse(f"{label} has a negative length")
        else:
            with self.source.block(f"if not {length}:" if self.flexible else f"if {length} < 0:"):
                self.refuse(f"{label} is null or has a negative length")
            self.read_body(wire_type, result, length, label)
        return result

    def read_length(self, fixed: tuple[str, int]) -> str:
        """Emit the reading of a length: compact (plus one, zero is null) or fixed (minus one is null)."""
        if not self.flexible:
            length = self.later(*fixed, "length")
            self.flush()
            return length
        length = self.later("B", 1, "length")
        self.flush()
        with self.source.block(f"if {length} > 127:"):
            self.source.line(f"{length}, position = long_unsigned_varint(view, position - 1)")
        return length

    def read_body(self, wire_type: WireType, result: str, length: str, label: str) -> None:
        """Emit the reading of the bytes after a length that is not null."""
        size = f"{length} - 1" if self.flexible else length
        if isinstance(wire_type, ArrayOf):
            self.read_elements(wire_type.element, result, length, label)
            return
        if self.flexible and self.is_counted and isinstance(wire_type, Text):
            # Kafka has the same limit; fixed lengths cannot exceed it.
            with self.source.block(f"if {length} > {TEXT_BYTES_MAX + 1}:"):
                self.refuse(f"{label} is longer than {TEXT_BYTES_MAX} bytes")
        self.source.line(f"end = position + {size}")
        if isinstance(wire_type, Text):
            self.source.line(f"{result} = view[position:end].tobytes().decode() if end > position else ''")
        else:
            self.source.line(f"{result} = view[position:end]")
        self.source.line("position = end")

    def read_elements(self, element: WireType, result: str, length: str, label: str) -> None:
        """Emit the reading of the elements of an array."""
        if self.flexible:
            self.source.line(f"{length} -= 1")
        smallest = self.smallest(element)
        with self.source.block(f"if {length} * {smallest} > limit - position:"):
            self.refuse(f"{label} has more elements than bytes are left for")
        if self.is_counted:
            self.source.line(f"room -= {length}")
            with self.source.block("if room < 0:"):
                self.source.line(f"raise TooManyElements({label!r})")
        if isinstance(element, Fixed):
            short = self.source.use(f"unpack_{element.code}s", short_array_unpackers(element.code))
            with self.source.block(f"if {length} < {SHORT_ARRAY}:"):
                self.source.line(f"{result} = list({short}[{length}](view, position))")
            with self.source.block("else:"):
                self.source.line(f"{result} = list(unpack_array({element.code!r}, {length}, view, position))")
            self.source.line(f"position += {length} * {element.size_bytes}")
            return
        self.source.line(f"{result} = []")
        with self.source.block(f"for _ in range({length}):"):
            value = self.read(element, False, label, "element")
            self.flush()
            self.source.line(f"{result}.append({value})")

    def read_nested(self, wire_type: StructOf, nullable: bool, stem: str) -> str:
        """Emit the reading of an inline struct; a nullable one is preceded by a byte that is -1 for null."""
        if not nullable:
            return self.read_struct(wire_type.struct)
        present = self.later("b", 1, "present")
        self.flush()
        result = self.source.name(stem)
        with self.source.block(f"if {present} >= 0:"):
            self.source.line(f"{result} = {self.read_struct(wire_type.struct)}")
        with self.source.block("else:"):
            self.source.line(f"{result} = None")
        return result

    def read_tags(self, struct: type[Struct], tagged: list[tuple[Field, str]]) -> None:
        """Emit the reading of tagged fields; unknown ones are skipped."""
        count = self.later("B", 1, "tags")
        self.flush()
        if not tagged:
            with self.source.block(f"if {count}:"):
                self.source.line(f"position, tags_left = skip_tags(view, position, {count}, tags_left)")
            return
        for field, name in tagged:
            self.source.line(f"{name} = {self.default(field)}")
        with self.source.block(f"if {count}:"):
            tag, size, end, last = (self.source.name(stem) for stem in ("tag", "size", "end", "last"))
            with self.source.block(f"if {count} > 127:"):
                self.source.line(f"{count}, position = long_unsigned_varint(view, position - 1)")
            with self.source.block(f"if (tags_left := tags_left - {count}) < 0:"):
                self.refuse("there are more tagged fields than the limit allows")
            self.source.line(f"{last} = -1")
            with self.source.block(f"for _ in range({count}):"):
                self.source.line(f"{tag}, {size}, position = tag_and_size(view, position)")
                self.source.line(f"{end} = position + {size}")
                with self.source.block(f"if {tag} <= {last} or {end} > limit:"):
                    self.refuse(f"a tagged field of {struct.__name__} is repeated, out of order or too long")
                self.source.line(f"{last} = {tag}")
                for index, (field, name) in enumerate(tagged):
                    with self.source.block(f"{'el' * (index > 0)}if {tag} == {field.tag}:"):
                        self.read_tagged(struct, field, name)
                with self.source.block("else:"):
                    self.source.line(f"position = {end}")
                with self.source.block(f"if position != {end}:"):
                    self.refuse(f"a tagged field of {struct.__name__} does not match its size")

    def read_tagged(self, struct: type[Struct], field: Field, name: str) -> None:
        """Emit the reading of one known tagged field."""
        nullable = field.nullable.covers(self.version)
        if nullable and isinstance(field.type, StructOf):
            # Unlike an inline nullable struct, a tagged one is preceded by an unsigned varint: 0 is null.
            self.source.line("present = view[position]")
            self.source.line("position += 1")
            with self.source.block("if present:"):
                self.source.line(f"{name} = {self.read_struct(field.type.struct)}")
            with self.source.block("else:"):
                self.source.line(f"{name} = None")
            return
        value = self.read(field.type, nullable, f"{struct.__name__}.{field.name}", field.name)
        self.flush()
        self.source.line(f"{name} = {value}")

    def smallest(self, wire_type: WireType) -> int:
        """The minimum encoded size of a value of this type."""
        if isinstance(wire_type, Fixed):
            return wire_type.size_bytes
        if isinstance(wire_type, (Text, Blob, ArrayOf)):
            return 1 if self.flexible else 2 if isinstance(wire_type, Text) else 4
        size_bytes = 1 if self.flexible else 0
        for field in fields_of(wire_type.struct):
            if field.versions.covers(self.version) and field.tag is None:
                null_struct = isinstance(field.type, StructOf) and field.nullable.covers(self.version)
                size_bytes += 1 if null_struct else self.smallest(field.type)
        return max(size_bytes, 1)
