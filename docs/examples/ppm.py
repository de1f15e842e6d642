#!/usr/bin/env python3
"""The codec ppm, written from docs/wire.md (section 9.7) alone, to show that this can be done.

    ppm.py encode MODEL LEN [BASE] < bytes > records     in batches of LEN bytes
    ppm.py decode MODEL [BASE]     < records > bytes
    ppm.py check docs/wire.md [ROOT]                     codes and decodes the examples there

MODEL is the model's byte in hexadecimal digits: 60 is order 6 and 1 MiB. BASE is a file with the bytes that both ends
learn first. A record is the length of a batch and the length of its compressed bytes, 2 bytes each, and these. With
ROOT, the directory that has docs and data, the examples are also the long ones, which take minutes.
"""

import os
import sys
import zlib

BATCH_MAX = 16_384
BASE_MAX = 32_768
HISTORY_MAX = 131_072

WORD = 1 << 32
BINARY = (15581, 7999, 22975, 18675, 25761, 23228, 26162, 24657)
FIRST_ESCAPES = (25, 14, 9, 7, 5, 5, 4, 4, 4, 3, 3, 3, 2, 2, 2, 2)
# The row of the frequency of escapes, by the number of states that are not excluded.
ROWS = [None, 0, 1, 2, 3]
for _row in range(4, 25):
    ROWS += [_row] * (_row - 2)
SIZES = [1, 2, 3, 4, 6, 8, 10, 12, 15, 18, 21, 24, *range(28, 129, 4)]
# The index of the smallest size that suffices, by the number of units.
SIZE_FOR = [next(i for i, size in enumerate(SIZES) if size >= units) for units in range(129)]


class Damaged(Exception):
    """The compressed bytes are not what an encoder makes."""


class Full(Exception):
    """The model's memory is full."""


class Encoder:
    """The range coder of who compresses a batch."""

    def __init__(self):
        self.low, self.length, self.shifts = 0, WORD - 1, 0

    def _take(self, begin, length):
        # All that was written is above the 32 bits of `low`, so that carries need no care.
        self.low, self.length = self.low + begin, length
        while self.length < 1 << 24:
            self.low, self.length, self.shifts = self.low << 8, self.length << 8, self.shifts + 1

    def outcome(self, probability, first):
        """Codes whether the first of two outcomes came, and returns it."""
        part = (self.length >> 14) * probability
        if first:
            self._take(0, part)
        else:
            self._take(part, self.length - part)
        return first

    def choose(self, sizes, total, chosen):
        """Codes which of the parts came, None for what is left behind them, and returns it."""
        begin = sum(sizes if chosen is None else sizes[:chosen])
        size = total - begin if chosen is None else sizes[chosen]
        unit = self.length // total
        self._take(begin * unit, size * unit)
        return chosen

    def end(self):
        """Returns all that was written for the batch."""
        for zeros in range(4, -1, -1):
            step = 1 << (8 * zeros)
            number = -(-self.low // step) * step
            if number < self.low + self.length:
                break
        written = number.to_bytes(self.shifts + 4, "big")
        return written[:1] + written[1:].rstrip(b"\0")


class Decoder:
    """The range coder of who restores a batch: it finds out what the other was given."""

    def __init__(self, compressed):
        # `position` is what was read, less `low`.
        self.rest, self.length = len(compressed) - 4, WORD - 1
        self.bytes = iter(compressed)
        self.position = int.from_bytes(bytes(next(self.bytes, 0) for _ in range(4)), "big")

    def _take(self, begin, length):
        self.position, self.length = self.position - begin & WORD - 1, length
        while self.length < 1 << 24:
            self.position = (self.position << 8 | next(self.bytes, 0)) & WORD - 1
            self.length <<= 8
            self.rest -= 1

    def outcome(self, probability, _first):
        part = (self.length >> 14) * probability
        if self.position < part:
            self._take(0, part)
            return True
        self._take(part, self.length - part)
        return False

    def choose(self, sizes, total, _chosen):
        unit = self.length // total
        at = self.position // unit
        if at >= total:
            raise Damaged("a position beyond the total")
        begin = 0
        for index, size in enumerate(sizes):
            if at < begin + size:
                self._take(begin * unit, size * unit)
                return index
            begin += size
        self._take(begin * unit, (total - begin) * unit)
        return None

    def end(self):
        if self.rest > 0:
            raise Damaged("bytes behind the end")


class Learner:
    """No range coder: the model learns what is known."""

    def outcome(self, _probability, first):
        return first

    def choose(self, _sizes, _total, chosen):
        return chosen


class Memory:
    """Units, and blocks of them: they decide when the memory is full, and nothing else."""

    def __init__(self, size):
        units = size // 12
        self.lowest = self.gap_low = units - 7 * (units // 8)
        self.gap_high = units
        self.free = [[] for _ in SIZES]
        self.until_join = 0

    def context(self):
        """Returns the unit of a new context."""
        if self.gap_low < self.gap_high:
            self.gap_high -= 1
            return self.gap_high
        return self.free[0].pop() if self.free[0] else self._elsewhere(0)

    def list(self, size):
        """Returns the first unit of a block of the size with this index."""
        if self.free[size]:
            return self.free[size].pop()
        if self.gap_high - self.gap_low >= SIZES[size]:
            self.gap_low += SIZES[size]
            return self.gap_low - SIZES[size]
        return self._elsewhere(size)

    def _elsewhere(self, size):
        if self.until_join == 0:
            self._join()
            if self.free[size]:
                return self.free[size].pop()
        for larger in range(size + 1, len(SIZES)):
            if self.free[larger]:
                block = self.free[larger].pop()
                self.give_back(block + SIZES[size], SIZES[larger] - SIZES[size])
                return block
        self.until_join -= 1
        if 12 * self.lowest - self.text_len() > 12 * SIZES[size]:
            self.lowest -= SIZES[size]
            return self.lowest
        raise Full

    def give_back(self, block, units):
        """Returns units, 128 at most, whether there is a size for them or not."""
        size = SIZE_FOR[units]
        if SIZES[size] != units:
            size -= 1
            rest = units - SIZES[size]
            self.free[SIZE_FOR[rest]].append(block + SIZES[size])
        self.free[size].append(block)

    def _join(self):
        order = []
        for size, blocks in zip(SIZES, self.free):
            order += [(block, size) for block in reversed(blocks)]
            blocks.clear()
        order.reverse()
        self.until_join = max(255, len(order) // 16)
        sizes = dict(order)
        for block, _ in order:
            while block in sizes:
                behind = sizes.get(block + sizes[block])
                if behind is None or sizes[block] + behind > 65_535:
                    break
                del sizes[block + sizes[block]]
                sizes[block] += behind
        for block, _ in order:
            if block not in sizes:
                continue
            units = sizes[block]
            while units > 128:
                self.free[-1].append(block)
                block, units = block + 128, units - 128
            self.give_back(block, units)


class Context:
    """Its states are lists of symbol, frequency and successor: None, a place (int) or a context."""

    __slots__ = ("states", "sum", "suffix", "unit", "block")

    def __init__(self, states, total, suffix, unit, block):
        self.states, self.sum, self.suffix = states, total, suffix
        self.unit, self.block = unit, block

    def index(self, symbol):
        for index, state in enumerate(self.states):
            if state[0] == symbol:
                return index
        return None


def high(symbol):
    return symbol >= 64


class Model:
    """Predicts the bytes of a generation."""

    def __init__(self, order, memory):
        self.order, self.memory_size = order, memory
        self.history = bytearray()
        self._begin()

    def _begin(self):
        self.memory = Memory(self.memory_size)
        self.text = bytearray()
        self.memory.text_len = self.text.__len__
        # The root has the highest unit, and its states have the lowest.
        unit, block = self.memory.context(), self.memory.list(SIZE_FOR[128])
        root = Context([[symbol, 1, None] for symbol in range(256)], 257, None, unit, block)
        self.present = self.longest = root
        self.fall = self.order
        self.run = -1 - self.order
        self.likely = 0
        self.last = 0
        self.high_last = 0
        self.first_escapes = None
        self.binary = [None] + [
            [(1 << 14) - BINARY[k % 8] // (f + 1) for k in range(64)] for f in range(1, 129)
        ]
        # The sum, the shift and the count of each.
        self.escapes = [[[(5 * row + 10) * 8, 3, 4] for _ in range(16)] for row in range(25)]

    def code(self, coder, symbol=None):
        """Codes a symbol, or the one that a decoder finds, and returns it."""
        try:
            symbol = self._code(coder, symbol)
            self._remember(symbol)
        except Full as full:
            (symbol,) = full.args
            self._remember(symbol)
            self._restart()
        return symbol

    def learn(self, data):
        for symbol in data:
            self.code(Learner(), symbol)

    def _remember(self, symbol):
        self.history.append(symbol)
        if len(self.history) >= 2 * HISTORY_MAX:
            del self.history[:-HISTORY_MAX]  # no more of it is ever learned

    def _restart(self):
        self._begin()
        for symbol in self.history[-min(HISTORY_MAX, self.memory_size // 64) :]:
            try:
                self._code(Learner(), symbol)
            except Full:
                self._begin()
                return

    def _code(self, coder, symbol):
        c = self.present
        if len(c.states) == 1:
            state = c.states[0]
            if self._single(coder, c, state, symbol):
                return self._go_on(state, self._follow)
            excluded = {state[0]}
        else:
            sizes = [state[1] for state in c.states]
            index = coder.choose(sizes, c.sum, None if symbol is None else c.index(symbol))
            if index is not None:
                return self._several(c, index)
            excluded = {state[0] for state in c.states}
            self.high_last = high(self.last)
            self.likely = 0
        return self._escaped(coder, symbol, excluded)

    def _go_on(self, state, then):
        self.last = state[0]
        try:
            then(state)
        except Full:
            raise Full(state[0]) from None
        return state[0]

    def _single(self, coder, c, state, symbol):
        self.high_last = high(self.last)
        others = len(c.suffix.states)
        k = self.likely + 32 * (self.run < 0)
        k += 2 * (0 if others == 1 else 1 if others == 2 else 2 if others <= 11 else 3)
        k += 16 * high(state[0]) + 8 * self.high_last
        row = self.binary[state[1]]
        p = row[k]
        came = coder.outcome(p, state[0] == symbol)
        p -= (p + 32) // 128
        if came:
            row[k] = p + 128
            state[1] += state[1] < 128
            self.likely = 1
            self.run = min(self.run + 1, 2**31 - 1)
            return True
        row[k] = p
        self.first_escapes = FIRST_ESCAPES[p // 1024]
        self.likely = 0
        return False

    def _several(self, c, index):
        state = c.states[index]
        if index == 0:
            self.likely = int(2 * state[1] > c.sum)
            self.run = min(self.run + self.likely, 2**31 - 1)
            self._grow(c, state)
        else:
            self.likely = 0
            c.sum += 4
            state[1] += 4
            if state[1] > c.states[index - 1][1]:
                c.states[index - 1], c.states[index] = state, c.states[index - 1]
                if state[1] > 124:
                    self._halve(c, state)
        return self._go_on(state, self._follow)

    def _escaped(self, coder, symbol, excluded):
        while True:
            before = len(self.present.states)
            while True:
                self.present, self.fall = self.present.suffix, self.fall + 1
                if self.present is None:
                    raise Damaged("the root is escaped from")
                if len(self.present.states) > before:
                    break
            c = self.present
            n, u = len(c.states), len(c.states) - before
            if n == 256:
                entry, g = None, 1
            else:
                k = (u < len(c.suffix.states) - n) + 2 * (c.sum < 11 * n) + 4 * (n - u > u)
                entry = self.escapes[ROWS[u]][k + 8 * self.high_last]
                g = entry[0] >> entry[1]
                entry[0] -= g
                g = max(g, 1)
            left = [state for state in c.states if state[0] not in excluded]
            sizes = [state[1] for state in left]
            total = sum(sizes) + g
            wanted = None
            if symbol is not None:
                wanted = next((i for i, state in enumerate(left) if state[0] == symbol), None)
            index = coder.choose(sizes, total, wanted)
            if index is not None:
                break
            if entry is not None:
                entry[0] = (entry[0] + total) & 0xFFFF
            excluded = {state[0] for state in c.states}
        if entry is not None and entry[1] < 7:
            entry[2] -= 1
            if entry[2] == 0:
                entry[0] = (2 * entry[0]) & 0xFFFF
                entry[2] = (3 << entry[1]) & 0xFF
                entry[1] += 1
        self.run = -1 - self.order
        self._grow(c, left[index])
        return self._go_on(left[index], self._update)

    def _grow(self, c, state):
        c.sum += 4
        state[1] += 4
        if state[1] > 124:
            self._halve(c, state)

    def _follow(self, state):
        if self.fall == 0 and isinstance(state[2], Context):
            self.present = self.longest = state[2]
        else:
            self._update(state)

    def _halve(self, c, came):
        states = [came] + [state for state in c.states if state is not came]
        units = (len(states) + 1) // 2
        g = c.sum - sum(state[1] for state in states)
        more = int(self.fall > 0)
        came[1] += 4
        c.states = []
        for state in states:
            state[1] = (state[1] + more) // 2
            at = next((i for i, s in enumerate(c.states) if s[1] < state[1]), len(c.states))
            c.states.insert(at, state)
        while c.states[-1][1] == 0:
            c.states.pop()
            g += 1
        if len(c.states) == 1:
            while True:
                g, came[1] = g // 2, (came[1] + 1) // 2
                if g <= 1:
                    break
            c.sum = None
            self.memory.free[SIZE_FOR[units]].append(c.block)
            c.block = None
            return
        self._shrink(c, units)
        c.sum = sum(state[1] for state in c.states) + g - g // 2

    def _shrink(self, c, units):
        old, new = SIZE_FOR[units], SIZE_FOR[(len(c.states) + 1) // 2]
        if old == new:
            return
        free = self.memory.free
        if free[new]:
            block = free[new].pop()
            free[old].append(c.block)
            c.block = block
        else:
            self.memory.give_back(c.block + SIZES[new], SIZES[old] - SIZES[new])

    def _update(self, s):
        c, (x, f, _) = self.present, s
        if f < 31 and c.suffix is not None:
            self._prepare(c.suffix, x)
        if self.fall == 0:
            s[2] = self.present = self.longest = self._make_contexts(s)
            return
        self.text.append(x)
        if len(self.text) >= 12 * self.memory.lowest:
            raise Full
        t = len(self.text)
        if s[2] is None:
            s[2] = t
            v = c
        else:
            v = s[2] if isinstance(s[2], Context) else self._make_contexts(s)
            self.fall -= 1
            if self.fall == 0:
                t = v
                if self.longest is not c:
                    self.text.pop()
        d = self.longest
        while d is not c:
            self._add(d, c, x, f, t)
            d = d.suffix
        self.present = self.longest = v

    def _prepare(self, suffix, x):
        """The state of the symbol in the next shorter context."""
        if len(suffix.states) == 1:
            suffix.states[0][1] += suffix.states[0][1] < 32
            return
        at = suffix.index(x)
        state = suffix.states[at]
        if at > 0 and state[1] >= suffix.states[at - 1][1]:
            suffix.states[at - 1], suffix.states[at] = state, suffix.states[at - 1]
        if state[1] < 115:
            state[1] += 2
            suffix.sum += 2

    def _add(self, d, c, x, f, t):
        """Adds a state for the symbol to a context that did not have it."""
        n, there = len(d.states), len(c.states)
        o = c.sum - there - (f - 1)
        if n == 1:
            d.block = self.memory.list(SIZE_FOR[1])
            first = d.states[0]
            first[1] = 2 * first[1] if first[1] < 30 else 120
            d.sum = first[1] + self.first_escapes + (there > 3)
        else:
            if n % 2 == 0 and SIZE_FOR[n // 2] != SIZE_FOR[n // 2 + 1]:
                block = self.memory.list(SIZE_FOR[n // 2 + 1])
                self.memory.free[SIZE_FOR[n // 2]].append(d.block)
                d.block = block
            d.sum += (2 * n < there) + 2 * (4 * n <= there and d.sum <= 8 * n)
        w, y = 2 * f * (d.sum + 6), o + d.sum
        if w < 6 * y:
            frequency = 1 + (w > y) + (w >= 4 * y)
            d.sum += 3
        else:
            frequency = 4 + (w >= 9 * y) + (w >= 12 * y) + (w >= 15 * y)
            d.sum += frequency
        d.states.append([x, frequency, t])

    def _make_contexts(self, s):
        x, _, v = s
        collected = [] if self.fall == 0 else [s]
        d = self.present
        while d.suffix is not None:
            d = d.suffix
            state = d.states[d.index(x)]
            if state[2] != v:
                d = state[2]
                if not collected:
                    return d
                break
            collected.append(state)
        x1 = self.text[v]
        first = d.states[d.index(x1)]
        if len(d.states) == 1:
            q = first[1]
        else:
            j = first[1] - 1
            o = d.sum - len(d.states) - j
            q = 1 + ((5 * j > o) if 2 * j <= o else (2 * j + o - 1) // (2 * o) + 1)
        for state in reversed(collected):
            d = Context([[x1, q, v + 1]], None, d, self.memory.context(), None)
            state[2] = d
        return d


class Generation:
    """One end of a generation."""

    encoder, decoder = Encoder, Decoder

    def __init__(self, model, base=b""):
        order, log = model >> 4, model & 15
        if not 2 <= order <= 12 or log > 6 or len(base) > BASE_MAX:
            raise ValueError("no such model, or too long a base")
        self.model = Model(order, 1 << (20 + log))
        self.model.learn(base)

    def encode(self, batch):
        if not 1 <= len(batch) <= BATCH_MAX:
            raise ValueError(f"a batch has 1 to {BATCH_MAX} bytes")
        coder = self.encoder()
        for symbol in batch:
            self.model.code(coder, symbol)
        compressed = coder.end()
        return compressed if len(compressed) < len(batch) else batch

    def decode(self, compressed, length):
        if not 1 <= length <= BATCH_MAX or len(compressed) > length or not compressed:
            raise Damaged("lengths that no batch has")
        if len(compressed) == length:
            self.model.learn(compressed)
            return compressed
        coder = self.decoder(compressed)
        batch = bytes(self.model.code(coder) for _ in range(length))
        coder.end()
        return batch


def encode_all(generation, data, batch_len):
    """Returns the batches with their compressed bytes."""
    batches = (data[at : at + batch_len] for at in range(0, len(data), batch_len))
    return [(batch, generation.encode(batch)) for batch in batches]


def read_records(records):
    """Returns the lengths of the batches, and their compressed bytes."""
    at = 0
    while at < len(records):
        length, compressed = (int.from_bytes(records[at + i : at + i + 2], "big") for i in (0, 2))
        at += 4 + compressed
        if at > len(records):
            raise Damaged("records that are cut short")
        yield length, records[at - compressed : at]


# The examples of the document.


def block_of(document, title):
    """Returns the words of each line of a block, without comments."""
    _, _, behind = document.partition(f"\n```{title}\n")
    block, end, _ = behind.partition("\n```\n")
    if not end:
        sys.exit(f"there is no block {title}")
    lines = (line.partition("#")[0].split() for line in block.split("\n"))
    return [line for line in lines if line]


def content_of(name, length, root):
    """Returns bytes that are computed as the document says, or a file's."""
    if len(name) == 1:
        with open(os.path.join(root, name[0]), "rb") as file:
            return file.read()[:length]
    kind, *numbers = name[0], *map(int, name[1:])
    x = 1

    def r(a):
        nonlocal x
        x = (69_069 * x + 1) % WORD
        return (x >> 16) * a >> 16

    content = bytearray()
    if kind == "words":
        letters, count = numbers
        words = [bytes(97 + r(26) for _ in range(letters)) for _ in range(count)]
    while len(content) < length:
        if kind == "below":
            content.append(r(numbers[0]))
        elif kind == "twice":
            content += 2 * bytes(r(256) for _ in range(numbers[0]))
        else:
            content += words[r(count)]
    return bytes(content[:length])


def expect(is_so, what):
    if not is_so:
        sys.exit(f"not as in the document: {what}")


def check_short(lines, generation):
    """Each line of the block goes on behind its word; a line without one goes on with the line before."""
    entries = []
    for line in lines:
        if line[0] in ("model", "base", "batch", "coded"):
            entries.append((line[0], bytearray()))
            line = line[1:]
        entries[-1][1].extend(bytes.fromhex("".join(line)))
    batches = 0
    for word, data in ((word, bytes(data)) for word, data in entries):
        if word == "model":
            encoder, decoder = generation(data[0]), generation(data[0])
        elif word == "base":
            encoder.model.learn(data)
            decoder.model.learn(data)
        elif word == "batch":
            batch = data
        else:
            batches += 1
            found = encoder.encode(batch)
            expect(found == data, f"batch {batches} becomes {found.hex(' ')}")
            expect(decoder.decode(data, len(batch)) == batch, f"batch {batches} decoded")
    return batches


def check_long(line, root, generation):
    model, *name, length, batch_len, compressed_len, crc = line
    content = content_of(name, int(length), root)
    coded = encode_all(generation(int(model, 16)), content, int(batch_len))
    compressed = b"".join(compressed for _, compressed in coded)
    said = f"{len(compressed)} {zlib.crc32(compressed):08x}"
    expect(said == f"{compressed_len} {crc}", f"{' '.join(line)}: {said}")
    end = generation(int(model, 16))
    for batch, compressed in coded:
        expect(end.decode(compressed, len(batch)) == batch, f"{' '.join(line)}: decoded")


def check(codec, generation, path, root=None):
    with open(path, encoding="utf-8") as file:
        document = file.read()
    print(f"{check_short(block_of(document, codec), generation)} batches are as in the document")
    if root is None:
        return
    for line in block_of(document, f"{codec} long") + block_of(document, f"{codec} longer"):
        check_long(line, root, generation)
        print(" ".join(line))


def main(arguments, codec, generation, usage):
    """Runs the command line for a codec, whose ends are of this class."""

    def end(base_at):
        base = b""
        if len(arguments) > base_at:
            with open(arguments[base_at], "rb") as file:
                base = file.read()
        return generation(int(arguments[1], 16), base)

    command, out = arguments[:1], sys.stdout.buffer
    if command == ["encode"] and len(arguments) in (3, 4):
        for record in encode_all(end(3), sys.stdin.buffer.read(), int(arguments[2])):
            out.write(b"".join(len(part).to_bytes(2, "big") for part in record) + record[1])
    elif command == ["decode"] and len(arguments) in (2, 3):
        decoding = end(2)
        for length, compressed in read_records(sys.stdin.buffer.read()):
            out.write(decoding.decode(compressed, length))
    elif command == ["check"] and len(arguments) in (2, 3):
        check(codec, generation, *arguments[1:])
    else:
        sys.exit(usage)


if __name__ == "__main__":
    main(sys.argv[1:], "ppm", Generation, __doc__)
