#!/usr/bin/env python3
"""Says which tests took longest, and how many passed.

Usage: test_summary.py RESULTS.xml    (of ctest --output-junit)
"""

import sys
import xml.etree.ElementTree as ElementTree

SHOWN = 12

cases = ElementTree.parse(sys.argv[1]).getroot().iter("testcase")
rows = [(float(c.get("time", 0)), c.get("name"), c.get("status")) for c in cases]
rows.sort(reverse=True)
total = sum(seconds for seconds, _, _ in rows)
print(f"\nlocus: {len(rows)} tests, {total / 60:.1f} minutes in sum; the longest:")
for seconds, name, _ in rows[:SHOWN]:
    print(f"{seconds:8.1f} s  {name}")
count = {
    word: sum(status == word for _, _, status in rows)
    for word in ("run", "fail", "notrun", "disabled")
}
print(
    f"\n{count['run']} passed, {count['fail']} failed, "
    f"{count['notrun'] + count['disabled']} skipped"
)
