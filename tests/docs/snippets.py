"""Makes a program of the ```cpp blocks of docs/encodings.md.

Each block defines `encoding`. The program checks that it is the one its
section is about, and lowers it for a call of 8 heads of 64 channels.

usage: snippets.py encodings.md OUTPUT.cc
"""

import pathlib
import re
import sys

PROGRAM = """\
#include <locus/locus.h>

#include <cstdio>
#include <string_view>
#include <vector>

namespace {{

bool Serves(const locus::Encoding& encoding, std::string_view section) {{
  const auto shape = locus::Shape::SelfAttention(8, 64, /*length=*/16);
  locus::Validate(encoding.Lower(shape).terms, shape);
  if (encoding.Name() == section) return true;
  std::printf("section %s builds %s\\n", section.data(),
              encoding.Name().data());
  return false;
}}

}}  // namespace

int main() {{
  bool all = true;
{blocks}  return all ? 0 : 1;
}}
"""


def main():
    text = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
    section, blocks = "", []
    for heading, block in re.findall(
        r"^## ([^\n]*)$|^```cpp\n(.*?)^```$", text, re.MULTILINE | re.DOTALL
    ):
        section = heading or section
        if block:
            blocks.append(f'  {{\n{block}all &= Serves(encoding, "{section}");\n  }}\n')
    if not blocks:
        sys.exit("no ```cpp block found")
    pathlib.Path(sys.argv[2]).write_text(
        PROGRAM.format(blocks="".join(blocks)), encoding="utf-8"
    )


main()
