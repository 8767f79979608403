"""What Tenure itself writes, spoilt: most of pure noise is turned away at the first byte."""

from __future__ import annotations

import json
import random
from typing import Any

VALUES: list[Any] = [
    *(None, True, -1, 0, 2**63, 1e300),
    *("", "\x00", "ä" * 9, "a b", "a\r\nPING\r\n", "*", ">", "a.b"),
    *([], {}, [[[]]], {"": {}}),
]


def spoiled(sample: bytes, chance: random.Random) -> bytes:
    """The sample with a value of its JSON changed, or bytes of it cut, doubled or replaced."""
    kind = chance.randrange(5)
    if kind < 3:
        try:
            tree = json.loads(sample)
        except ValueError:
            kind = 3
        else:
            for _ in range(chance.randint(1, 3)):
                tree = changed(tree, chance)
            return json.dumps(tree, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")
    begin = chance.randrange(len(sample) + 1)
    end = min(len(sample), begin + chance.randrange(9))
    middle = sample[begin:end] * 2 if kind == 3 else chance.randbytes(chance.randrange(4))
    return sample[:begin] + middle + sample[end:]


def changed(tree: Any, chance: random.Random) -> Any:
    if chance.random() < 0.3 or not isinstance(tree, dict | list) or not tree:
        return chance.choice(VALUES)
    if isinstance(tree, list):
        place = chance.randrange(len(tree))
        return [changed(one, chance) if index == place else one for index, one in enumerate(tree)]
    name = chance.choice(sorted(tree))
    out = {key: changed(one, chance) if key == name else one for key, one in tree.items()}
    if chance.random() < 0.2:
        del out[name]
    return out
