"""Works for ever as a server in Python does: parses, matches, sorts, compresses, prints."""

import json
import random
import re
import zlib

WORD = re.compile(r"\b(\w+)-(\d+)\b")


def make_request(chance: random.Random) -> str:
    items = [{"id": f"item-{chance.randrange(1000)}", "price": chance.random()} for _ in range(50)]
    return json.dumps({"user": chance.randrange(100), "items": items})


def handle(body: str, totals: dict[str, float]) -> bytes:
    request = json.loads(body)
    for item in sorted(request["items"], key=lambda item: item["price"]):
        totals[item["id"]] = totals.get(item["id"], 0.0) + item["price"]
    numbers = [int(number) for _, number in WORD.findall(body)]
    return zlib.compress(f"{sum(numbers)} of {len(totals)}: {body}".encode())


def main() -> None:
    chance = random.Random(1)
    totals: dict[str, float] = {}
    while True:
        handle(make_request(chance), totals)


if __name__ == "__main__":
    main()
