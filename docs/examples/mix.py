#!/usr/bin/env python3
"""The codec mix, after docs/wire.md (section 9.9), to show that it can be written from there.

    mix.py encode MODEL LEN [BASE] < bytes > records     in batches of LEN bytes
    mix.py decode MODEL [BASE]     < records > bytes
    mix.py check docs/wire.md [ROOT]                     codes and decodes the examples there

MODEL is the model's byte in hexadecimal digits: 14 is 1 MiB. BASE, records and ROOT are those of ppm.py beside it, which has
what both codecs share: the range coder, and how the examples are read.
"""

import sys

import ppm

BASE_MAX = 8_192
CONTEXTS = 6
LETTERS = frozenset(b"0123456789abcdefghijklmnopqrstuvwxyz") | frozenset(range(128, 256))
CAPITALS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
ENDS_OF_FIELDS = frozenset(b", :;=|\t")
POINTS = [1, 1, 1, 2, 3, 5, 8, 13, 22, 36, 60, 98, 162, 267, 439, 720, 1179, 1921, 3108, 4971, 7812, 11955, 17625, 24743]
POINTS += [32768, 40793, 47911, 53581, 57724, 60565, 62428, 63615, 64357, 64816, 65097, 65269, 65374, 65438, 65476, 65500]
POINTS += [65514, 65523, 65528, 65531, 65533, 65534, 65535, 65535, 65535]


class Encoder(ppm.Encoder):
    def bit(self, probability, bit):
        part = (self.length >> 16) * probability
        if bit:
            self._take(0, part)
        else:
            self._take(part, self.length - part)
        return bit


class Decoder(ppm.Decoder):
    def bit(self, probability, _bit):
        part = (self.length >> 16) * probability
        bit = int(self.position < part)
        if bit:
            self._take(0, part)
        else:
            self._take(part, self.length - part)
        return bit

    def end(self):
        super().end()
        if self.position >= self.length:
            raise ppm.Damaged("a position beyond the end")


class Learner:
    """No range coder: the model learns what is known."""

    def bit(self, _probability, bit):
        return bit


def clip(number, most):
    return max(-most, min(most, number))


def hash_of(a, b):
    x = (a * 0x9E3779B1 ^ b * 0x85EBCA6B) % ppm.WORD
    return (x ^ x >> 15) * 0xC2B2AE35 % ppm.WORD


def between_points(x):
    i, r = divmod(x + 3_072, 128)
    return ((128 - r) * POINTS[i] + r * POINTS[i + 1]) // 128


SQUASHED = [between_points(x) for x in range(-3_071, 3_072)]


def squash(x):
    return SQUASHED[clip(x, 3_071) + 3_071]


def stretched():
    """Returns the stretch of each probability of 2^12."""
    x, numbers = -2_047, []
    for probability in range(1 << 12):
        while x < 2_047 and squash(x) < 16 * probability + 8:
            x += 1
        numbers.append(x)
    return numbers


STRETCHED = stretched()


def is_state(zeros, ones):
    fewer, more = sorted((zeros, ones))
    return fewer <= 5 and more <= (40, 25, 12, 7, 5, 5)[fewer]


# Numbers of zeros and of ones, and the last bit, which is 0 if one of the numbers is.
STATES = [
    (zeros, total - zeros, last)
    for total in range(41)
    for zeros in range(total + 1)
    if is_state(zeros, total - zeros)
    for last in range(2 if 0 < zeros < total else 1)
]
assert len(STATES) == 247


def after(state, bit):
    counts = list(state[:2])
    counts[bit] += 1
    if counts[1 - bit] > 2:
        counts[1 - bit] = counts[1 - bit].bit_length()
    if not is_state(*counts):
        counts[bit] -= 1
    return STATES.index((*counts, bit if min(counts) > 0 else 0))


NEXT = [[after(state, bit) for bit in (0, 1)] for state in STATES]
SHARES = [(1 << 17) // (2 * n + 3) for n in range(256)]


class Learned:
    """A probability that is learned."""

    __slots__ = ("p", "n")

    def __init__(self, p):
        self.p, self.n = p, 0

    def learn(self, bit):
        self.p += (((1 << 22) - 1 if bit else 0) - self.p) * SHARES[self.n] // (1 << 16)
        self.n += self.n < 255

    def inputs(self):
        q = self.p >> 10
        return STRETCHED[q], (q - 2_048) // 2


class Contexts:
    """What went before a byte."""

    def __init__(self):
        self.last = 0  # b1 in the lowest bits, b7 in the highest
        self.word = self.line = self.field = self.begun = 0
        self.count = 0

    def push(self, b):
        self.last = (self.last << 8 | b) & (1 << 56) - 1
        self.count += 1
        if b in LETTERS or b in CAPITALS:
            self.word = hash_of(self.word, b + (33 if b in CAPITALS else 1))
        else:
            self.word = 0
        if b == 10:
            self.line = self.field = self.begun = 0
        elif b in ENDS_OF_FIELDS:
            if self.field == 0:
                self.line = self.begun
            self.field, self.begun = self.field + 1, 0
        else:
            self.begun = hash_of(self.begun, b + 1)

    def hashes(self):
        b1, b4 = self.last & 0xFF, self.last & 0xFFFFFFFF
        contexts = (
            hash_of(b1, 0),
            hash_of(self.last & 0xFFFFFF, 0),
            hash_of(b4, self.last >> 32 & 0xFF),
            hash_of(self.word, b1),
            hash_of(hash_of(self.line, self.field), self.begun),
            min(self.count, 255),
        )
        return [hash_of(context, i + 1) for i, context in enumerate(contexts)]


class Slots:
    """Each is a list of 16: its mark, and its states from 1 to 15."""

    def __init__(self, log):
        self.mask, self.slots = (1 << log) - 1, {}

    def get(self, number):
        return self.slots.get(number, (0,) * 16)

    def find(self, h):
        """Returns the number of the slot of a hash."""
        numbers = [h & self.mask ^ way for way in range(3)]
        mark = max(1, h >> 24)
        for number in numbers:
            if self.get(number)[0] == mark:
                return number
        seen = [1 + slot[1] if slot[0] else 0 for slot in map(self.get, numbers)]
        number = numbers[seen.index(min(seen))]
        self.slots[number] = [mark] + [0] * 15
        return number


class Repetition:
    """What came where the last bytes were before."""

    def __init__(self, memory_log):
        self.shift, self.distance_max = 36 - memory_log, (1 << memory_log - 3) - 32
        self.bytes, self.places = bytearray(), {}
        self.next, self.len, self.missed = 0, 0, 8

    def expected(self):
        return self.bytes[self.next] if self.missed < 8 else None

    def push(self, last):
        expected = self.expected()
        self.bytes.append(last & 0xFF)
        if expected is not None:
            is_right = expected == last & 0xFF
            self.len = min(self.len + 1, 65_535) if is_right else 0
            self.missed += not is_right
            self.next += 1
        place = hash_of(last & 0xFFFFFFFF, last >> 32) >> self.shift
        if self.len < 10:
            self._look(self.places.get(place, 0))
        self.places[place] = len(self.bytes) % ppm.WORD

    def _look(self, place):
        n = len(self.bytes)
        d = (n - place) % ppm.WORD
        if not 0 < d <= min(n, self.distance_max):
            return
        same = 0
        while same < min(32, n - d) and self.bytes[n - d - 1 - same] == self.bytes[n - 1 - same]:
            same += 1
        if same >= 7:
            self.len, self.next, self.missed = same, n - d, 0


class Model:
    """Predicts the bits of a generation."""

    def __init__(self, memory_log):
        self.slots = Slots(memory_log - 5)
        self.repetition = Repetition(memory_log)
        self.contexts = Contexts()
        self.of_states = [
            [Learned(((2 * ones + 1) << 21) // (zeros + ones + 1)) for zeros, ones, _ in STATES]
            for _ in range(CONTEXTS)
        ]
        self.of_lengths = [Learned(1 << 21) for _ in range(64)]
        first = [5_000 if i % 2 == 0 and i <= 12 else 0 for i in range(16)]
        self.by_byte = [first[:] for _ in range(768)]
        self.by_known = [first[:] for _ in range(384)]
        row = [squash(256 * u - 3_072) for u in range(25)]
        self.cells = [row[:] for _ in range(1_024)]
        self.bits = 0

    def begin_batch(self):
        self.contexts.count = 0

    def learn(self, data):
        """Learns bytes as a batch."""
        self.begin_batch()
        for symbol in data:
            self.code(Learner(), symbol)

    def code(self, coder, symbol=0):
        """Codes a byte, or the one that a decoder finds, and returns it."""
        expected, known = self.repetition.expected(), 1
        hashes = self.contexts.hashes()
        for half in (symbol >> 4, symbol & 15):
            if known > 1:
                hashes = [hash_of(h, known) for h in hashes]
            numbers = [self.slots.find(h) for h in hashes]
            copies = [list(self.slots.get(number)) for number in numbers]
            k = 1
            for at in (3, 2, 1, 0):
                bit = self._bit(coder, half >> at & 1, (known, k, expected), copies)
                known, k = 2 * known + bit, 2 * k + bit
            self.slots.slots.update(zip(numbers, copies))
        byte = known & 0xFF
        self.contexts.push(byte)
        self.repetition.push(self.contexts.last)
        return byte

    def _bit(self, coder, bit, at, copies):
        c, k, expected = at
        a = c.bit_length() - 1
        length = self.repetition.len
        states = [copy[k] for copy in copies]
        learned = [of[state] for of, state in zip(self.of_states, states)]
        inputs = []  # with their numbers, those that are not 0
        for i, state in enumerate(states):
            if state:
                inputs += enumerate(learned[i].inputs(), 2 * i)
        r = 0 if expected is None else 1 + min(length // 16, 2)
        goes_on = expected is not None and (256 + expected) >> (8 - a) == c
        by_byte, q = c, 4 * (r > 0)
        if goes_on:
            e = expected >> (7 - a) & 1
            kind = length if length < 16 else 11 + length.bit_length()
            learned.append(self.of_lengths[2 * kind + e])
            inputs += enumerate(learned[-1].inputs(), 12)
            by_byte, q = c + 256 * (1 + e), r
        inputs.append((14, 256))
        known = len(states) - states.count(0)
        sets = self.by_byte[by_byte], self.by_known[64 * q + 8 * known + a]
        sums = [clip(sum(weights[i] * x for i, x in inputs) >> 14, 3_071) for weights in sets]
        s = sum(sums) // 2
        u, v = divmod(s + 3_072, 256)
        row = self.cells[256 * r + c]
        y = (row[u] * (256 - v) + row[u + 1] * v) // 256
        bit = coder.bit(max(4, min(65_532, (squash(s) + y) // 2)), bit)

        wanted = 65_535 if bit else 0
        row[u + (v >= 128)] += (wanted - row[u + (v >= 128)]) // 64
        rate = 6 + max(0, 10 - self.bits // (1 << 13))
        for weights, of_set in zip(sets, sums):
            error = clip((wanted - squash(of_set)) * rate // 8, 32_767)
            for i, x in inputs:
                changed = weights[i] + (x * error // (1 << 16) + 1) // 2
                weights[i] = max(-32_768, min(32_767, changed))
        self.bits += 1
        for it in learned:
            it.learn(bit)
        for copy, state in zip(copies, states):
            copy[k] = NEXT[state][bit]
        return bit


class Generation(ppm.Generation):
    """One end of a generation."""

    encoder, decoder = Encoder, Decoder

    def __init__(self, model, base=b""):
        if not 20 <= model <= 26 or len(base) > BASE_MAX:
            raise ValueError("no such model, or too long a base")
        self.model = Model(model)
        self.model.learn(base)

    def encode(self, batch):
        self.model.begin_batch()
        return super().encode(batch)

    def decode(self, compressed, length):
        self.model.begin_batch()
        return super().decode(compressed, length)


if __name__ == "__main__":
    ppm.main(sys.argv[1:], "mix", Generation, __doc__)
